/* IPv4 packets: what they say of themselves, and their checksums. */
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

uint64_t pseudo_sum(const unsigned char *ip, size_t size)
{
    unsigned char rest[4] = {0, ip[9]};

    put16(rest + 2, size);
    return sum_of(ip + 12, 8) + sum_of(rest, sizeof rest);
}

size_t ip_header_size(const unsigned char *ip)
{
    return (size_t)(ip[0] & 15) * 4;
}

size_t packet_size(const unsigned char *ip, size_t size)
{
    size_t own;

    if (size < IP_HEADER || ip[0] >> 4 != 4 || ip_header_size(ip) < IP_HEADER)
        return 0;
    own = get16(ip + 2);
    return own >= ip_header_size(ip) && own <= size ? own : 0;
}

int header_is_right(const unsigned char *ip)
{
    return checksum_of(sum_of(ip, ip_header_size(ip))) == 0;
}

int is_fragment(const unsigned char *ip)
{
    return get16(ip + 6) & 0x3fff; /* "more fragments", or an offset */
}

int spend_ttl(unsigned char *ip)
{
    unsigned sum;

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
    uint16_t sum;

    if (start < IP_HEADER || place + 2 > size)
        return -1;
    sum = checksum_of(sum_of(ip + start, size - start));
    put_native(ip + place, sum || ip[9] != 17 ? sum : 0xffff); /* 0 means "none" in UDP */
    return 0;
}
