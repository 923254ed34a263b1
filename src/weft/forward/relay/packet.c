/* IPv4 and IPv6 packets: what they say of themselves, and their checksums. */
#include <string.h>

#include "relay.h"

uint64_t sum_of(const unsigned char *data, size_t size)
{
    uint64_t sum = 0;
    uint32_t word;
    uint16_t half = 0;

    /* 64 KB are 2^14 words of 32 bits, so nothing overflows; compilers make vector instructions of it. */
    for (; size >= sizeof word; size -= sizeof word, data += sizeof word) {
        memcpy(&word, data, sizeof word);
        sum += word;
    }
    if (size >= sizeof half) {
        memcpy(&half, data, sizeof half);
        sum += half;
        size -= sizeof half;
        data += sizeof half;
    }
    if (size) {
        half = 0;
        memcpy(&half, data, 1);
        sum += half;
    }
    return sum;
}

uint16_t folded(uint64_t sum)
{
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffffffff) + (sum >> 32);
    sum = (sum & 0xffff) + (sum >> 16);
    sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

uint16_t checksum_of(uint64_t sum)
{
    return (uint16_t)~folded(sum);
}

uint16_t get16(const unsigned char *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

void put16(unsigned char *at, size_t number)
{
    at[0] = (unsigned char)(number >> 8);
    at[1] = (unsigned char)number;
}

uint32_t get32(const unsigned char *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

void put32(unsigned char *at, uint32_t number)
{
    put16(at, number >> 16);
    put16(at + 2, number & 0xffff);
}

void put_native(unsigned char *at, uint16_t sum)
{
    memcpy(at, &sum, sizeof sum);
}

uint64_t get64(const unsigned char *at)
{
    return (uint64_t)get32(at) << 32 | get32(at + 4);
}

void put64(unsigned char *at, uint64_t number)
{
    put32(at, (uint32_t)(number >> 32));
    put32(at + 4, (uint32_t)number);
}

uint64_t pseudo_sum(const unsigned char *ip, int protocol, size_t size)
{
    unsigned char rest[4] = {0, (unsigned char)protocol};

    put16(rest + 2, size);
    return (is_v6(ip) ? sum_of(ip + 8, 32) : sum_of(ip + 12, 8)) + sum_of(rest, sizeof rest);
}

size_t ip_header_size(const unsigned char *ip)
{
    return is_v6(ip) ? IPV6_HEADER : (size_t)(ip[0] & 15) * 4;
}

size_t packet_size(const unsigned char *ip, size_t size)
{
    size_t own;

    if (size >= IPV6_HEADER && is_v6(ip)) {
        own = IPV6_HEADER + (size_t)get16(ip + 4);
        return own <= size ? own : 0;
    }
    if (size < IP_HEADER || ip[0] >> 4 != 4 || ip_header_size(ip) < IP_HEADER)
        return 0;
    own = get16(ip + 2);
    return own >= ip_header_size(ip) && own <= size ? own : 0;
}

int header_is_right(const unsigned char *ip)
{
    return is_v6(ip) || checksum_of(sum_of(ip, ip_header_size(ip))) == 0;
}

int is_fragment(const unsigned char *ip)
{
    return get16(ip + 6) & 0x3fff; /* "more fragments", or an offset */
}

int content_of(const unsigned char *ip, size_t size, int all, size_t *at)
{
    int next = ip[6];

    *at = IPV6_HEADER;
    while (next == HOP_BY_HOP || next == OPTIONS || (all && (next == ROUTING || next == FRAGMENT))) {
        const unsigned char *header = ip + *at;
        if (*at + 8 > size || (next == FRAGMENT && get16(header + 2) & 0xfff8))
            break;
        *at += next == FRAGMENT ? 8 : ((size_t)header[1] + 1) * 8;
        next = header[0];
    }
    return next;
}

/* Multicast, link-local, none, this machine (RFC 4291 sections 2.5 and 2.7), or IPv4's in a header that is not. */
static int means_nothing_there(const unsigned char *address)
{
    uint64_t high = get64(address), low = get64(address + 8);

    return high >> 56 == 0xff || high >> 54 == 0xfe80 >> 6 || (!high && (low <= 1 || low >> 32 == 0xffff));
}

int is_local(const unsigned char *ip)
{
    return is_v6(ip) && (means_nothing_there(ip + 8) || means_nothing_there(ip + 24));
}

int spend_ttl(unsigned char *ip)
{
    unsigned sum;

    if (is_v6(ip))
        return ip[7] <= 1 ? -1 : (ip[7]--, 0);
    if (ip[8] <= 1)
        return -1;
    ip[8]--;
    sum = get16(ip + 10) + 0x100u;
    put16(ip + 10, sum + (sum >= 0xffff));
    return 0;
}

int complete(unsigned char *ip, size_t size, const struct vnet *how)
{
    size_t start = how->csum_start, place = start + how->csum_offset;
    /* Behind extension headers the place tells UDP from TCP and ICMPv6. */
    int udp = is_v6(ip) ? how->csum_offset == 6 : ip[9] == UDP;
    uint16_t sum;

    if (start < (is_v6(ip) ? IPV6_HEADER : IP_HEADER) || place + 2 > size)
        return -1;
    sum = checksum_of(sum_of(ip + start, size - start));
    put_native(ip + place, sum || !udp ? sum : 0xffff); /* 0 means "none" in UDP */
    return 0;
}
