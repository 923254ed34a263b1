/* Joining of packets that follow each other, by the rules of the kernel's GRO (net/ipv4/tcp_offload.c): what comes out
 * is cut into the same packets again. */
#include <string.h>

#include "relay.h"

enum { ACK = 0x10, PUSH = 8 };

/* Bytes of the headers of a packet that may be joined; 0 if it goes alone, as one with IPv6's extension headers does. */
static size_t joinable(const struct join *join, const unsigned char *ip, size_t size)
{
    size_t below = ip_header_size(ip), own;
    int protocol = protocol_of(ip);

    if (!is_v6(ip) && (below != IP_HEADER || is_fragment(ip)))
        return 0;
    if (protocol == TCP && size > below + TCP_HEADER) {
        own = (size_t)(ip[below + 12] >> 4) * 4;
        /* Only data: what opens, ends, or is urgent goes alone. */
        return own >= TCP_HEADER && below + own < size && (ip[below + 13] & ~PUSH) == ACK ? below + own : 0;
    }
    if (join->udp && protocol == UDP && size > below + UDP_HEADER && get16(ip + below + 4) == size - below && get16(ip + below + 6))
        return below + UDP_HEADER;
    return 0;
}

static int content_is_right(const unsigned char *ip, size_t size)
{
    size_t below = ip_header_size(ip), inner = size - below;

    return checksum_of(pseudo_sum(ip, protocol_of(ip), inner) + sum_of(ip + below, inner)) == 0;
}

/* Tells whether IP headers are equal but for length, id, and checksum. */
static int same_way(const unsigned char *a, const unsigned char *b)
{
    if (is_v6(a))
        return !memcmp(a, b, 4) && !memcmp(a + 6, b + 6, IPV6_HEADER - 6);
    return !memcmp(a, b, 2) && !memcmp(a + 6, b + 6, 4) && !memcmp(a + 12, b + 12, 8);
}

/* Tells whether headers are equal but for what differs from packet to packet of a flow: IP's as above, and checksum, and
 * TCP's sequence number and "push". */
static int same_flow(const unsigned char *a, const unsigned char *b, size_t headers)
{
    size_t below = ip_header_size(a);

    if (!same_way(a, b))
        return 0;
    if (protocol_of(a) == UDP)
        return !memcmp(a + below, b + below, 4);
    headers -= below;
    a += below;
    b += below;
    return !memcmp(a, b, 4) && !memcmp(a + 8, b + 8, 5) && !((a[13] ^ b[13]) & ~PUSH) && !memcmp(a + 14, b + 14, 2) &&
           !memcmp(a + 18, b + 18, headers - 18);
}

static int begin(struct join *join, unsigned char *ip, size_t size, size_t headers)
{
    const unsigned char *inner = ip + ip_header_size(ip);
    int tcp = headers && protocol_of(ip) == TCP;

    join->ip = ip;
    join->headers = headers;
    join->each = size - headers;
    join->total = size;
    join->next = tcp ? get32(inner + 4) + (uint32_t)join->each : 0;
    join->closed = !headers || (tcp && inner[13] & PUSH);
    join->count = 1;
    join->parts[1] = (struct iovec){ip, size};
    return 1;
}

int join_add(struct join *join, unsigned char *ip, size_t size)
{
    size_t headers = joinable(join, ip, size), content = size - headers, below = ip_header_size(ip);
    int tcp = protocol_of(ip) == TCP;

    if (headers && !content_is_right(ip, size))
        headers = 0;
    if (!join->ip)
        return begin(join, ip, size, headers);
    if (join->closed || headers != join->headers || content > join->each || join->count == MAX_SEGMENTS ||
        join->total + content > MAX_PACKET || !same_flow(join->ip, ip, headers))
        return 0;
    if (tcp && get32(ip + below + 4) != join->next)
        return 0;
    join->count++;
    join->parts[join->count] = (struct iovec){ip + headers, content};
    join->total += content;
    join->next += (uint32_t)content;
    if (tcp && ip[below + 13] & PUSH) {
        join->ip[below + 13] |= PUSH;
        join->closed = 1;
    }
    if (content < join->each)
        join->closed = 1;
    return 1;
}

void join_end(struct join *join)
{
    unsigned char *ip = join->ip;
    size_t below = ip_header_size(ip), inner = join->total - below, place;
    int protocol = protocol_of(ip), tcp = protocol == TCP;

    join->vnet = (struct vnet){.flags = join->headers ? VNET_DATA_VALID : 0};
    join->parts[0] = (struct iovec){&join->vnet, sizeof join->vnet};
    join->ip = NULL;
    if (join->count == 1)
        return;
    place = tcp ? 16 : 6;
    if (is_v6(ip)) {
        put16(ip + 4, inner);
    } else {
        put16(ip + 2, join->total);
        put16(ip + 10, 0);
        put_native(ip + 10, checksum_of(sum_of(ip, below)));
    }
    if (!tcp)
        put16(ip + below + 4, inner);
    put_native(ip + below + place, folded(pseudo_sum(ip, protocol, inner)));
    join->vnet.flags = VNET_NEEDS_CSUM;
    join->vnet.gso_type = !tcp ? VNET_UDP : is_v6(ip) ? VNET_TCP6 : VNET_TCP4;
    join->vnet.header_size = (uint16_t)join->headers;
    join->vnet.gso_size = (uint16_t)join->each;
    join->vnet.csum_start = (uint16_t)below;
    join->vnet.csum_offset = (uint16_t)place;
}
