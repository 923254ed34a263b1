/* A fuzzer of the relay (libFuzzer): anything that peers send, anything that the device gives, and what comes of it.
 *
 * The first byte of the input chooses the direction. From peers it is a row of datagrams, each with its length, the
 * size of what the kernel says to have joined, and who sent it; from the device a virtio_net_hdr and a packet.
 * Checked is what the kernel and a peer rely on: each thing that is written says its own length, and is whole. What lies
 * behind the end of what came must not be read. A fuzzer guesses no checksum, so on demand they are made right.
 */
#include <errno.h>
#include <sanitizer/asan_interface.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "relay.h"
#include "sockets.h"

enum { PEER = 0x0a000002, STRANGER = 0x0a000003 };

static const unsigned char *input;
static size_t left;
static struct table table;
static struct queue queue;

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void must(int so)
{
    if (!so)
        abort();
}

static size_t take(void *out, size_t most)
{
    size_t size = left < most ? left : most;

    memcpy(out, input, size);
    input += size;
    left -= size;
    return size;
}

/* Fills a buffer, behind whose end nothing may be read. */
static size_t fill(unsigned char *buffer, size_t room, size_t most)
{
    size_t size;

    ASAN_UNPOISON_MEMORY_REGION(buffer, room);
    size = take(buffer, most < room ? most : room);
    ASAN_POISON_MEMORY_REGION(buffer + size, room - size);
    return size;
}

/* Hops that a packet has left. */
static int life(const unsigned char *ip)
{
    return is_v6(ip) ? ip[7] : ip[8];
}

/* Makes the checksums of a packet right. */
static void mend(unsigned char *ip, size_t got)
{
    size_t size = packet_size(ip, got), below, place;
    int protocol;

    if (!size)
        return;
    below = ip_header_size(ip);
    protocol = protocol_of(ip);
    place = below + (protocol == TCP ? 16 : 6);
    if (!is_v6(ip)) {
        put16(ip + 10, 0);
        put_native(ip + 10, checksum_of(sum_of(ip, below)));
    }
    if ((protocol != TCP && protocol != UDP) || (!is_v6(ip) && below != IP_HEADER) || place + 2 > size)
        return;
    put16(ip + place, 0);
    put_native(ip + place, checksum_of(pseudo_sum(ip, protocol, size - below) + sum_of(ip + below, size - below)));
}

int receive_many(int fd, struct mmsghdr *messages, unsigned count)
{
    unsigned number = 0;

    (void)fd;
    for (; number < count && left > 4; number++) {
        struct msghdr *message = &messages[number].msg_hdr;
        union endpoint from = {.v4 = {.sin_family = AF_INET}};
        unsigned char head[4], *data = message->msg_iov->iov_base;
        size_t size;
        int each;
        take(head, sizeof head);
        from.v4.sin_addr.s_addr = htonl(head[0] & 1 ? STRANGER : PEER);
        memcpy(message->msg_name, &from, sizeof from);
        size = fill(data, message->msg_iov->iov_len, (size_t)(head[2] << 8 | head[3]));
        messages[number].msg_len = (unsigned)size;
        each = head[1] * 8;
        for (size_t at = 0, step = each && head[0] & 2 ? (size_t)each : size; head[0] & 4 && at < size; at += step)
            mend(data + at, size - at < step ? size - at : step);
        if (head[0] & 2) {
            struct cmsghdr *said = message->msg_control;
            said->cmsg_len = CMSG_LEN(sizeof each);
            said->cmsg_level = SOL_UDP;
            said->cmsg_type = UDP_GRO;
            memcpy(CMSG_DATA(said), &each, sizeof each);
        } else {
            message->msg_controllen = 0;
        }
    }
    return (int)number;
}

/* What the device is given: one packet that says its own length, behind a header that fits to it. */
ssize_t fuzzed_writev(int fd, const struct iovec *parts, int count)
{
    static unsigned char whole[2 * MAX_PACKET];
    struct vnet vnet;
    size_t size = 0;

    (void)fd;
    must(count >= 2 && parts[0].iov_len == sizeof vnet);
    memcpy(&vnet, parts[0].iov_base, sizeof vnet);
    for (int i = 1; i < count; size += parts[i++].iov_len)
        memcpy(whole + size, parts[i].iov_base, parts[i].iov_len);
    must(size <= MAX_PACKET && packet_size(whole, size) == size && header_is_right(whole) && life(whole) > 0);
    must(!is_local(whole));
    if (vnet.gso_type) {
        must(vnet.flags == VNET_NEEDS_CSUM && vnet.gso_size > 0 && vnet.header_size + vnet.gso_size < size);
        must((size_t)vnet.csum_start + vnet.csum_offset + 2 <= vnet.header_size);
    }
    return (ssize_t)size;
}

ssize_t fuzzed_read(int fd, void *buffer, size_t size)
{
    (void)fd;
    if (left > 0)
        return (ssize_t)fill(buffer, size, size);
    errno = EAGAIN;
    return -1;
}

/* What peers are sent: whole packets, those of a train of one size but the last. */
int send_many(int fd, struct mmsghdr *messages, unsigned count)
{
    (void)fd;
    for (unsigned i = 0; i < count; i++) {
        static unsigned char whole[2 * MAX_PACKET];
        const struct msghdr *message = &messages[i].msg_hdr;
        size_t size = 0, each;
        uint16_t cut;
        for (size_t part = 0; part < (size_t)message->msg_iovlen; size += message->msg_iov[part++].iov_len)
            memcpy(whole + size, message->msg_iov[part].iov_base, message->msg_iov[part].iov_len);
        each = size;
        must(size > 0 && size <= MAX_DATAGRAM);
        if (message->msg_control) {
            memcpy(&cut, CMSG_DATA((struct cmsghdr *)message->msg_control), sizeof cut);
            each = cut;
        }
        must(each > 0 && (size + each - 1) / each <= MAX_SEGMENTS);
        for (size_t at = 0; at < size; at += each) {
            size_t own = size - at < each ? size - at : each;
            must(packet_size(whole + at, own) == own && life(whole + at) > 0 && !is_local(whole + at));
        }
    }
    return (int)count;
}

void say_error(struct queue *of, const unsigned char *ip, size_t size, enum error error, uint32_t mtu)
{
    unsigned char message[MAX_ICMP6];
    size_t length = icmp_error(message, ip, size, error, mtu);

    (void)of;
    must(!length || is_v6(ip) || checksum_of(sum_of(message, length)) == 0);
}

void count(atomic_uint_fast64_t *counter, uint64_t number)
{
    atomic_fetch_add(counter, number);
}

static void start(void)
{
    table_start(&table);
    must(table_set(&table, mapped(0x0a050000), MAPPED_BITS + 16, mapped(PEER)) == 0);
    must(table_set(&table, (struct address){0xfd05ull << 48, 0}, 32, mapped(PEER)) == 0);
    queue = (struct queue){.tun = -1, .udp = -1, .icmp = -1, .icmp6 = -1, .table = &table, .out = out_start(), .in = in_start(1)};
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size)
{
    if (!queue.table)
        start();
    if (!size)
        return 0;
    input = data + 1;
    left = size - 1;
    if (data[0] & 1)
        out_once(&queue);
    else
        while (in_once(&queue) > 0)
            continue;
    return 0;
}
