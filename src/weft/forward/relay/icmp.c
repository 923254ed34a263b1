/* ICMP errors about packets that cannot go on. */
#include <string.h>

#include "relay.h"

struct kind {
    unsigned char type, code;
};

/* By `enum error`: RFC 792, RFC 4443 section 3. */
static const struct kind KINDS[] = {{3, 0}, {3, 4}, {11, 0}}, KINDS6[] = {{1, 0}, {2, 0}, {3, 0}};

/* Tells whether nobody may be told of it: an error about an error, or to no single host. */
static int is_silent(const unsigned char *ip, size_t size)
{
    size_t below = ip_header_size(ip);
    int kind = ip[9] == ICMP && size > below ? ip[below] : -1;

    if (get16(ip + 6) & 0x1fff || ip[16] >= 224)
        return 1;
    if (ip[12] == 0 || ip[12] == 127 || ip[12] >= 224)
        return 1;
    return ip[9] == ICMP && kind != 0 && kind != 8 && kind != 13 && kind != 14; /* echo and timestamp, and replies */
}

/* The same of IPv6: no error about an error or a redirect (RFC 4443 section 2.4 (e)). */
static int is_silent6(const unsigned char *ip, size_t size)
{
    size_t at;

    if (is_local(ip))
        return 1;
    return content_of(ip, size, 1, &at) == ICMP6 && (at >= size || ip[at] < 128 || ip[at] == 137);
}

static size_t quote(unsigned char *out, const unsigned char *ip, size_t size, struct kind kind, size_t most)
{
    size_t quoted = size < most - ICMP_ERROR ? size : most - ICMP_ERROR;

    memset(out, 0, ICMP_ERROR);
    out[0] = kind.type;
    out[1] = kind.code;
    memcpy(out + ICMP_ERROR, ip, quoted);
    return ICMP_ERROR + quoted;
}

size_t icmp_error(unsigned char *out, const unsigned char *ip, size_t size, enum error error, uint32_t mtu)
{
    size_t length;

    if (is_v6(ip)) {
        length = is_silent6(ip, size) ? 0 : quote(out, ip, size, KINDS6[error], MAX_ICMP6);
        if (length)
            put32(out + 4, mtu);
        return length;
    }
    if (is_silent(ip, size))
        return 0;
    length = quote(out, ip, size, KINDS[error], MAX_ICMP);
    put16(out + 6, mtu);
    put_native(out + 2, checksum_of(sum_of(out, length)));
    return length;
}
