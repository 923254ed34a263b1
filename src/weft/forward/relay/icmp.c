/* ICMP errors about packets that cannot go on. */
#include <string.h>

#include "relay.h"

/* Tells whether nobody may be told of it: an error about an error, or to no single host. */
static int is_silent(const unsigned char *ip, size_t size)
{
    size_t below = ip_header_size(ip);
    int kind = ip[9] == 1 && size > below ? ip[below] : -1;

    if (get16(ip + 6) & 0x1fff || ip[16] >= 224)
        return 1;
    if (ip[12] == 0 || ip[12] == 127 || ip[12] >= 224)
        return 1;
    return ip[9] == 1 && kind != 0 && kind != 8 && kind != 13 && kind != 14; /* echo and timestamp, and their replies */
}

size_t icmp_error(unsigned char *out, const unsigned char *ip, size_t size, int type, int code, uint32_t mtu)
{
    size_t quoted = size < MAX_ICMP - ICMP_ERROR ? size : MAX_ICMP - ICMP_ERROR;

    if (is_silent(ip, size))
        return 0;
    memset(out, 0, ICMP_ERROR);
    out[0] = (unsigned char)type;
    out[1] = (unsigned char)code;
    put16(out + 6, mtu);
    memcpy(out + ICMP_ERROR, ip, quoted);
    put_native(out + 2, checksum_of(sum_of(out, ICMP_ERROR + quoted)));
    return ICMP_ERROR + quoted;
}
