/* Joining of packets that follow each other, by the rules of the kernel's GRO (net/ipv4/tcp_offload.c): what comes out
 * is cut into the same packets again. */
#include <string.h>

#include "relay.h"

enum { TCP = 6, UDP = 17, ACK = 0x10, PUSH = 8 };

/* Bytes of the headers of a packet that may be joined; 0 if it goes alone. */
static size_t joinable(const unsigned char *ip, size_t size)
{
    size_t below = ip_header_size(ip), own;

    if (below != IP_HEADER || is_fragment(ip))
        return 0;
    if (ip[9] == TCP && size > below + TCP_HEADER) {
        own = (size_t)(ip[below + 12] >> 4) * 4;
        /* Only data: what opens, ends, or is urgent goes alone. */
        return own >= TCP_HEADER && below + own < size && (ip[below + 13] & ~PUSH) == ACK ? below + own : 0;
    }
    if (ip[9] == UDP && size > below + UDP_HEADER && get16(ip + below + 4) == size - below && get16(ip + below + 6))
        return below + UDP_HEADER;
    return 0;
}

static int content_is_right(const unsigned char *ip, size_t size)
{
    size_t inner = size - IP_HEADER;

    return checksum_of(pseudo_sum(ip, inner) + sum_of(ip + IP_HEADER, inner)) == 0;
}

/* Tells whether headers are equal but for what differs from packet to packet of a flow: length, id, checksums, and
 * TCP's sequence number and "push". */
static int same_flow(const unsigned char *a, const unsigned char *b, size_t headers)
{
    if (memcmp(a, b, 2) || memcmp(a + 6, b + 6, 4) || memcmp(a + 12, b + 12, 12))
        return 0;
    if (a[9] == UDP)
        return 1;
    a += IP_HEADER;
    b += IP_HEADER;
    return !memcmp(a + 8, b + 8, 5) && !((a[13] ^ b[13]) & ~PUSH) && !memcmp(a + 14, b + 14, 2) &&
           !memcmp(a + 18, b + 18, headers - IP_HEADER - 18);
}

static int begin(struct join *join, unsigned char *ip, size_t size, size_t headers)
{
    join->ip = ip;
    join->headers = headers;
    join->each = size - headers;
    join->total = size;
    join->next = headers && ip[9] == TCP ? get32(ip + IP_HEADER + 4) + (uint32_t)join->each : 0;
    join->closed = !headers || (ip[9] == TCP && ip[IP_HEADER + 13] & PUSH);
    join->count = 1;
    join->parts[1] = (struct iovec){ip, size};
    return 1;
}

int join_add(struct join *join, unsigned char *ip, size_t size)
{
    size_t headers = joinable(ip, size), content = size - headers;

    if (headers && !content_is_right(ip, size))
        headers = 0;
    if (!join->ip)
        return begin(join, ip, size, headers);
    if (join->closed || headers != join->headers || content > join->each || join->count == MAX_SEGMENTS ||
        join->total + content > MAX_PACKET || !same_flow(join->ip, ip, headers))
        return 0;
    if (ip[9] == TCP && get32(ip + IP_HEADER + 4) != join->next)
        return 0;
    join->count++;
    join->parts[join->count] = (struct iovec){ip + headers, content};
    join->total += content;
    join->next += (uint32_t)content;
    if (ip[9] == TCP && ip[IP_HEADER + 13] & PUSH) {
        join->ip[IP_HEADER + 13] |= PUSH;
        join->closed = 1;
    }
    if (content < join->each)
        join->closed = 1;
    return 1;
}

void join_end(struct join *join)
{
    unsigned char *ip = join->ip, *inner = ip + IP_HEADER;
    size_t place;

    join->vnet = (struct vnet){.flags = join->headers ? VNET_DATA_VALID : 0};
    join->parts[0] = (struct iovec){&join->vnet, sizeof join->vnet};
    join->ip = NULL;
    if (join->count == 1)
        return;
    place = ip[9] == TCP ? 16 : 6;
    put16(ip + 2, join->total);
    put16(ip + 10, 0);
    put_native(ip + 10, checksum_of(sum_of(ip, IP_HEADER)));
    if (ip[9] == UDP)
        put16(inner + 4, join->total - IP_HEADER);
    put_native(inner + place, folded(pseudo_sum(ip, join->total - IP_HEADER)));
    join->vnet.flags = VNET_NEEDS_CSUM;
    join->vnet.gso_type = ip[9] == TCP ? VNET_TCP4 : VNET_UDP;
    join->vnet.header_size = (uint16_t)join->headers;
    join->vnet.gso_size = (uint16_t)join->each;
    join->vnet.csum_start = IP_HEADER;
    join->vnet.csum_offset = (uint16_t)place;
}
