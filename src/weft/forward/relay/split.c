/* Segmentation in place of a device's, as the kernel's own (net/ipv4/tcp_offload.c, udp_offload.c). */
#include <string.h>

#include "relay.h"

enum { FIN = 1, PSH = 8, CWR = 0x80 };

/* Where the headers of such a packet end: those before TCP or UDP, and all; 0 if it is not what `how` says. */
struct shape {
    int protocol;
    size_t below, headers;
};

static struct shape shape_of(const unsigned char *ip, size_t size, const struct vnet *how)
{
    int tcp = (how->gso_type & ~VNET_ECN) == (is_v6(ip) ? VNET_TCP6 : VNET_TCP4);
    struct shape shape = {.protocol = ip[9], .below = ip_header_size(ip)};
    size_t own = UDP_HEADER;

    if (is_v6(ip))
        shape.protocol = content_of(ip, size, 0, &shape.below);
    else if (is_fragment(ip))
        return shape;
    if (shape.protocol != (tcp ? TCP : UDP) || (!tcp && how->gso_type != VNET_UDP))
        return shape;
    if (tcp) {
        if (size < shape.below + TCP_HEADER)
            return shape;
        own = (size_t)(ip[shape.below + 12] >> 4) * 4;
        if (own < TCP_HEADER)
            return shape;
    }
    if (shape.below + own < size && shape.below + own <= MAX_HEADERS)
        shape.headers = shape.below + own;
    return shape;
}

size_t segments_of(const unsigned char *ip, size_t size, const struct vnet *how, size_t *each)
{
    struct shape shape = shape_of(ip, size, how);

    if (!shape.headers || !how->gso_size)
        return 0;
    *each = shape.headers + how->gso_size;
    return (size - shape.headers + how->gso_size - 1) / how->gso_size;
}

static void ip_head(unsigned char *out, const unsigned char *ip, size_t size, size_t number)
{
    if (is_v6(ip)) {
        put16(out + 4, size - IPV6_HEADER);
        return;
    }
    put16(out + 2, size);
    put16(out + 4, (get16(ip + 4) + number) & 0xffff);
    put16(out + 10, 0);
    put_native(out + 10, checksum_of(sum_of(out, ip_header_size(ip))));
}

/* Writes the headers of packet number `number`, whose content is `content`. */
static void head(unsigned char *out, const unsigned char *ip, const struct shape *shape, const struct vnet *how,
                 size_t number, struct iovec content, int is_last)
{
    size_t below = shape->below, size = shape->headers + content.iov_len;
    unsigned char *inner = out + below;
    int tcp = shape->protocol == TCP;
    uint16_t sum;

    memcpy(out, ip, shape->headers);
    ip_head(out, ip, size, number);
    if (tcp) {
        put32(inner + 4, get32(inner + 4) + (uint32_t)(number * how->gso_size));
        if (!is_last)
            inner[13] &= (unsigned char)~(FIN | PSH);
        if (number)
            inner[13] &= (unsigned char)~CWR;
        put16(inner + 16, 0);
    } else {
        put16(inner + 4, size - below);
        put16(inner + 6, 0);
    }
    sum = checksum_of(pseudo_sum(out, shape->protocol, size - below) + sum_of(inner, shape->headers - below) +
                      sum_of(content.iov_base, content.iov_len));
    put_native(inner + (tcp ? 16 : 6), sum || tcp ? sum : 0xffff);
}

void split(struct train *out, const unsigned char *ip, size_t size, const struct vnet *how, size_t first, size_t most)
{
    struct shape shape = shape_of(ip, size, how);
    size_t headers = shape.headers, each, all = segments_of(ip, size, how, &each);

    out->segments = 0;
    for (size_t number = first; number < all && number < first + most && out->segments < MAX_SEGMENTS; number++) {
        size_t start = headers + number * how->gso_size;
        size_t rest = size - start;
        struct iovec content = {(void *)(ip + start), rest < how->gso_size ? rest : how->gso_size};
        struct iovec *parts = out->parts + 2 * out->segments;

        head(out->headers[out->segments], ip, &shape, how, number, content, number + 1 == all);
        parts[0] = (struct iovec){out->headers[out->segments], headers};
        parts[1] = content;
        out->last = headers + content.iov_len;
        if (!out->segments)
            out->each = out->last;
        out->segments++;
    }
}
