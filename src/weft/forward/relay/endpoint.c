#include "endpoint.h"

#include <string.h>

socklen_t locate(union endpoint *to, uint16_t port, const struct peer *peer)
{
    memset(to, 0, sizeof *to);
    if (is_mapped(peer->address)) {
        to->v4 = (struct sockaddr_in){AF_INET, port, {htonl((uint32_t)peer->address.low)}, {0}};
        return sizeof to->v4;
    }
    to->v6.sin6_family = AF_INET6;
    to->v6.sin6_port = port;
    put64(to->v6.sin6_addr.s6_addr, peer->address.high);
    put64(to->v6.sin6_addr.s6_addr + 8, peer->address.low);
    return sizeof to->v6;
}

struct address address_of(const union endpoint *from)
{
    const unsigned char *v6 = from->v6.sin6_addr.s6_addr;

    if (from->any.sa_family == AF_INET)
        return mapped(ntohl(from->v4.sin_addr.s_addr));
    return (struct address){get64(v6), get64(v6 + 8)};
}

uint32_t path_mtu(int probe, const struct peer *peer)
{
    union endpoint to;
    socklen_t length = locate(&to, htons(9), peer);
    int v4 = is_mapped(peer->address), overhead = (v4 ? IP_HEADER : IPV6_HEADER) + UDP_HEADER, mtu = 0;
    socklen_t size = sizeof mtu;

    if (connect(probe, &to.any, length) < 0 ||
        getsockopt(probe, v4 ? IPPROTO_IP : IPPROTO_IPV6, v4 ? IP_MTU : IPV6_MTU, &mtu, &size) < 0)
        mtu = 0;
    to.any.sa_family = AF_UNSPEC; /* away again, with the source that the way had */
    connect(probe, &to.any, sizeof to.any);
    return mtu > overhead ? (uint32_t)(mtu - overhead) : 0;
}

void let_cut(int udp, const struct peer *peer, int may)
{
    int how4 = may ? IP_PMTUDISC_WANT : IP_PMTUDISC_DO, how6 = may ? IPV6_PMTUDISC_WANT : IPV6_PMTUDISC_DO;

    if (is_mapped(peer->address))
        setsockopt(udp, IPPROTO_IP, IP_MTU_DISCOVER, &how4, sizeof how4);
    else
        setsockopt(udp, IPPROTO_IPV6, IPV6_MTU_DISCOVER, &how6, sizeof how6);
}
