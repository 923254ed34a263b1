/* From peers to the device. Datagrams that came together are joined into what the kernel takes as one packet. */
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "relay.h"
#include "socket.h"

enum { MESSAGES = 16, ROOM = MAX_PACKET + 1 };

union control {
    char bytes[CMSG_SPACE(sizeof(int))];
    struct cmsghdr header;
};

struct in {
    struct join join;
    struct mmsghdr messages[MESSAGES];
    struct iovec parts[MESSAGES];
    union endpoint from[MESSAGES];
    union control control[MESSAGES];
    unsigned char data[MESSAGES][ROOM];
};

struct in *in_start(int joins_udp)
{
    struct in *in = calloc(1, sizeof *in);

    if (in)
        in->join.udp = joins_udp;
    return in;
}

/* Writes what was joined. That the device is gone shows where it is read. */
static void flush(struct queue *queue)
{
    struct join *join = &queue->in->join;
    int packets = join->count;

    if (!join->ip)
        return;
    join_end(join);
    if (writev(queue->tun, join->parts, packets + 1) < 0)
        count(&queue->counters.dropped[NOT_WRITTEN], (uint64_t)packets);
}

/* Takes one packet of a peer. */
static void take(struct queue *queue, unsigned char *ip, size_t got)
{
    size_t size = packet_size(ip, got);

    if (!size || !header_is_right(ip)) {
        count(&queue->counters.dropped[MALFORMED], 1);
        return;
    }
    if (is_local(ip)) {
        count(&queue->counters.dropped[LOCAL], 1);
        return;
    }
    if (spend_ttl(ip) < 0) {
        say_error(queue, ip, size, TIME_EXCEEDED, 0);
        count(&queue->counters.dropped[EXPIRED], 1);
        return;
    }
    if (join_add(&queue->in->join, ip, size))
        return;
    flush(queue);
    join_add(&queue->in->join, ip, size);
}

/* Bytes of each datagram that the kernel has put into one message (UDP_GRO). */
static size_t size_of_each(struct msghdr *message, size_t whole)
{
    struct cmsghdr *said = CMSG_FIRSTHDR(message);
    int each = 0;

    if (said && said->cmsg_level == SOL_UDP && said->cmsg_type == UDP_GRO)
        memcpy(&each, CMSG_DATA(said), sizeof each);
    return each > 0 ? (size_t)each : whole;
}

/* Takes all packets of one message. */
static void take_all(struct queue *queue, struct mmsghdr *message)
{
    const union endpoint *from = message->msg_hdr.msg_name;
    unsigned char *data = message->msg_hdr.msg_iov->iov_base;
    size_t whole = message->msg_len, each = size_of_each(&message->msg_hdr, whole);
    size_t number = whole ? (whole + each - 1) / each : 0;
    struct peer *peer = table_peer(queue->table, address_of(from));

    if (!peer) {
        count(&queue->counters.dropped[UNKNOWN_PEER], number);
        return;
    }
    count(&queue->counters.received, number);
    count(&queue->counters.received_bytes, whole);
    count(&peer->received, number);
    count(&peer->received_bytes, whole);
    for (size_t at = 0; at < whole; at += each)
        take(queue, data + at, whole - at < each ? whole - at : each);
}

int in_once(struct queue *queue)
{
    struct in *in = queue->in;
    int got;

    for (int i = 0; i < MESSAGES; i++) {
        in->parts[i] = (struct iovec){in->data[i], MAX_PACKET};
        memset(in->messages + i, 0, sizeof in->messages[i]);
        in->messages[i].msg_hdr.msg_name = in->from + i;
        in->messages[i].msg_hdr.msg_namelen = sizeof in->from[i];
        set_parts(&in->messages[i].msg_hdr, in->parts + i, 1);
        in->messages[i].msg_hdr.msg_control = in->control + i;
        in->messages[i].msg_hdr.msg_controllen = sizeof in->control[i];
    }
    got = receive_many(queue->udp, in->messages, MESSAGES);
    if (got <= 0)
        return 0;
    table_read(queue->table);
    for (int i = 0; i < got; i++)
        take_all(queue, in->messages + i);
    flush(queue);
    table_done(queue->table);
    return 1;
}
