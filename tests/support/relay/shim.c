/* The pure part of the relay for tests in Python: bytes in, and out strings of bytes with their lengths before them. */
#include <stdlib.h>
#include <string.h>

#include "relay.h"

size_t cut(unsigned char *data, size_t size, unsigned char *out);
size_t joined(unsigned char *data, size_t size, unsigned char *out, size_t udp);
size_t said(unsigned char *data, size_t size, unsigned char *out);
size_t completed(unsigned char *data, size_t size, unsigned char *out);
size_t found(unsigned char *data, size_t size, unsigned char *out, size_t most);

static size_t put(unsigned char *out, size_t at, const void *data, size_t size)
{
    uint32_t length = (uint32_t)size;

    memcpy(out + at, &length, sizeof length);
    memcpy(out + at + sizeof length, data, size);
    return at + sizeof length + size;
}

/* A vnet header and a packet: the packets that it stands for. */
size_t cut(unsigned char *data, size_t size, unsigned char *out)
{
    static struct train train;
    struct vnet how;
    unsigned char *ip = data + sizeof how;
    size_t at = 0, each, all;

    memcpy(&how, data, sizeof how);
    all = segments_of(ip, size - sizeof how, &how, &each);
    for (size_t first = 0; first < all; first += MAX_SEGMENTS) {
        split(&train, ip, size - sizeof how, &how, first, MAX_SEGMENTS);
        for (int i = 0; i < train.segments; i++) {
            static unsigned char whole[MAX_PACKET];
            struct iovec *parts = train.parts + 2 * i;
            memcpy(whole, parts[0].iov_base, parts[0].iov_len);
            memcpy(whole + parts[0].iov_len, parts[1].iov_base, parts[1].iov_len);
            at = put(out, at, whole, parts[0].iov_len + parts[1].iov_len);
        }
    }
    return at;
}

static size_t end(struct join *join, unsigned char *out, size_t at)
{
    static unsigned char whole[2 * MAX_PACKET];
    size_t used = 0;
    int parts = join->count + 1;

    join_end(join);
    for (int i = 0; i < parts; used += join->parts[i++].iov_len)
        memcpy(whole + used, join->parts[i].iov_base, join->parts[i].iov_len);
    return put(out, at, whole, used);
}

/* Packets with their lengths before them: what is written for them, with UDP joined or not. */
size_t joined(unsigned char *data, size_t size, unsigned char *out, size_t udp)
{
    static struct join join;
    size_t at = 0;
    uint32_t length;

    join.ip = NULL;
    join.udp = (int)udp;
    for (unsigned char *next = data; next < data + size; next += sizeof length + length) {
        memcpy(&length, next, sizeof length);
        if (join_add(&join, next + sizeof length, length))
            continue;
        at = end(&join, out, at);
        join_add(&join, next + sizeof length, length);
    }
    return join.ip ? end(&join, out, at) : at;
}

/* Anything: how long the packet is, and if it is one, whether its header is right, whether it is local, an error about
 * it, whether it may pass, and what it is then. */
size_t said(unsigned char *data, size_t size, unsigned char *out)
{
    unsigned char error[MAX_ICMP6], truth;
    uint32_t own = (uint32_t)packet_size(data, size);
    size_t at = put(out, 0, &own, sizeof own);

    if (!own)
        return at;
    truth = (unsigned char)header_is_right(data);
    at = put(out, at, &truth, 1);
    truth = (unsigned char)is_local(data);
    at = put(out, at, &truth, 1);
    at = put(out, at, error, icmp_error(error, data, own, TOO_BIG, 1400));
    truth = spend_ttl(data) == 0;
    at = put(out, at, &truth, 1);
    return put(out, at, data, own);
}

static struct address read_address(const unsigned char *at)
{
    return (struct address){get64(at), get64(at + 8)};
}

/* A vnet header and a packet: whether its checksum could be written, and what it is then. */
size_t completed(unsigned char *data, size_t size, unsigned char *out)
{
    struct vnet how;
    unsigned char done;

    memcpy(&how, data, sizeof how);
    done = complete(data + sizeof how, size - sizeof how, &how) == 0;
    return put(out, put(out, 0, &done, 1), data + sizeof how, size - sizeof how);
}

/* Changes of routes, and behind them `most` addresses: the last byte of the peer of each. */
size_t found(unsigned char *data, size_t size, unsigned char *out, size_t most)
{
    enum { CHANGE = 36 };
    struct table table;
    unsigned char peers[256];

    table_start(&table);
    for (; size >= most * 16 + CHANGE; size -= CHANGE, data += CHANGE)
        if (data[0] == 1)
            table_set(&table, read_address(data + 4), data[1], read_address(data + 20));
        else
            table_delete(&table, read_address(data + 4), data[1]);
    for (size_t i = 0; i < most; i++) {
        struct peer *peer = table_find(&table, read_address(data + 16 * i));
        peers[i] = peer ? (unsigned char)peer->address.low : 0;
    }
    table_clear(&table);
    free(table.routes);
    free(table.index);
    return put(out, 0, peers, most);
}
