/* Segmentation in place of a device's, as the kernel's own (net/ipv4/tcp_offload.c, udp_offload.c). */
#include <string.h>

#include "relay.h"

enum { FIN = 1, PSH = 8, CWR = 0x80 };

static int is_tcp(const struct vnet *how)
{
    return (how->gso_type & ~VNET_ECN) == VNET_TCP4;
}

/* Bytes of IP and TCP or UDP headers; 0 if they are not what `how` says. */
static size_t headers_of(const unsigned char *ip, size_t size, const struct vnet *how)
{
    size_t below = ip_header_size(ip), own;

    if (is_fragment(ip))
        return 0;
    if (is_tcp(how)) {
        if (ip[9] != 6 || size < below + TCP_HEADER)
            return 0;
        own = (size_t)(ip[below + 12] >> 4) * 4;
        return own >= TCP_HEADER && below + own < size ? below + own : 0;
    }
    return how->gso_type == VNET_UDP && ip[9] == 17 && below + UDP_HEADER < size ? below + UDP_HEADER : 0;
}

size_t segments_of(const unsigned char *ip, size_t size, const struct vnet *how, size_t *each)
{
    size_t headers = headers_of(ip, size, how);

    if (!headers || !how->gso_size)
        return 0;
    *each = headers + how->gso_size;
    return (size - headers + how->gso_size - 1) / how->gso_size;
}

/* Writes the headers of packet number `number`, whose content is `content`. */
static void head(unsigned char *out, const unsigned char *ip, size_t headers, const struct vnet *how, size_t number,
                 struct iovec content, int is_last)
{
    size_t below = ip_header_size(ip), size = headers + content.iov_len;
    unsigned char *inner = out + below;
    uint16_t sum;

    memcpy(out, ip, headers);
    put16(out + 2, size);
    put16(out + 4, (get16(ip + 4) + number) & 0xffff);
    put16(out + 10, 0);
    put_native(out + 10, checksum_of(sum_of(out, below)));
    if (is_tcp(how)) {
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
    sum = checksum_of(pseudo_sum(out, size - below) + sum_of(inner, headers - below) +
                      sum_of(content.iov_base, content.iov_len));
    put_native(inner + (is_tcp(how) ? 16 : 6), sum || is_tcp(how) ? sum : 0xffff);
}

void split(struct train *out, const unsigned char *ip, size_t size, const struct vnet *how, size_t first, size_t most)
{
    size_t headers = headers_of(ip, size, how), each, all = segments_of(ip, size, how, &each);

    out->segments = 0;
    for (size_t number = first; number < all && number < first + most && out->segments < MAX_SEGMENTS; number++) {
        size_t start = headers + number * how->gso_size;
        size_t rest = size - start;
        struct iovec content = {(void *)(ip + start), rest < how->gso_size ? rest : how->gso_size};
        struct iovec *parts = out->parts + 2 * out->segments;

        head(out->headers[out->segments], ip, headers, how, number, content, number + 1 == all);
        parts[0] = (struct iovec){out->headers[out->segments], headers};
        parts[1] = content;
        out->last = headers + content.iov_len;
        if (!out->segments)
            out->each = out->last;
        out->segments++;
    }
}
