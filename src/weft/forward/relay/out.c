/* From the device to peers. The kernel leaves the segmentation of TCP and UDP to us, and takes it off us again when a
 * train of equal datagrams is sent by one call (UDP_SEGMENT): content is copied by the kernel alone. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "endpoint.h"
#include "relay.h"
#include "socket.h"

enum {
    BATCH = 64,
    LARGEST = (int)sizeof(struct vnet) + MAX_PACKET,
    ARENA = 2 * LARGEST + BATCH * 2048,
    PATIENCE = 100,             /* milliseconds for a full socket */
};

union control {
    char bytes[CMSG_SPACE(sizeof(uint16_t))];
    struct cmsghdr header;
};

/* Datagrams to one peer that are sent at once: all but the last have one size. */
struct run {
    struct peer *peer;
    int first, count;           /* of `parts` */
    size_t each, total;
    int closed;
};

struct out {
    int runs, used;             /* of `parts` */
    struct run run[BATCH];
    struct iovec parts[BATCH];
    struct mmsghdr messages[BATCH];
    union endpoint to[BATCH];
    union control control[BATCH];
    struct train train;
    unsigned char arena[ARENA];
};

/* Held while datagrams are cut: the option is the socket's, which all threads have, and one of them would end it before
 * another has sent. */
static pthread_mutex_t cutting = PTHREAD_MUTEX_INITIALIZER;

struct out *out_start(void)
{
    return calloc(1, sizeof(struct out));
}

static void address_to(struct msghdr *message, union endpoint *to, const struct queue *queue, const struct peer *peer)
{
    memset(message, 0, sizeof *message);
    message->msg_name = to;
    message->msg_namelen = locate(to, queue->port, peer);
}

/* Has the kernel cut a message into datagrams of `each` bytes. */
static void cut_into(struct msghdr *message, union control *control, size_t each)
{
    uint16_t size = (uint16_t)each;

    memset(control, 0, sizeof *control);
    control->header.cmsg_level = SOL_UDP;
    control->header.cmsg_type = UDP_SEGMENT;
    control->header.cmsg_len = CMSG_LEN(sizeof size);
    memcpy(CMSG_DATA(&control->header), &size, sizeof size);
    message->msg_control = control;
    message->msg_controllen = sizeof *control;
}

/* Sends until all is sent, or a message is refused; how many were sent, and errno says why not more. */
static int send_all(const struct queue *queue, struct mmsghdr *messages, int number)
{
    int sent = 0;

    while (sent < number) {
        struct pollfd room = {queue->udp, POLLOUT, 0};
        int now = send_many(queue->udp, messages + sent, (unsigned)(number - sent));
        if (now > 0)
            sent += now;
        else if (errno != EINTR && ((errno != EAGAIN && errno != ENOBUFS) || poll(&room, 1, PATIENCE) <= 0))
            break;
    }
    return sent;
}

static void sent(struct queue *queue, struct peer *peer, int packets, size_t bytes)
{
    count(&queue->counters.sent, (uint64_t)packets);
    count(&queue->counters.sent_bytes, bytes);
    count(&peer->sent, (uint64_t)packets);
    count(&peer->sent_bytes, bytes);
}

/* Tells whether a packet may not be cut. One of IPv6 that each link must take goes in a datagram that is (RFC 2473
 * section 7.1). */
static int is_whole(const unsigned char *ip)
{
    return is_v6(ip) ? IPV6_HEADER + get16(ip + 4) > LEAST_MTU : ip[6] & 0x40;
}

/* The way to the peer is too narrow: the sender of a packet that may not be fragmented gets an error, the datagram of
 * any other packet is fragmented. Tells whether it was sent. */
static int send_fragmented(struct queue *queue, struct mmsghdr *message, const struct peer *peer)
{
    const unsigned char *ip = message->msg_hdr.msg_iov[0].iov_base;
    int done;

    if (is_whole(ip)) {
        uint32_t mtu = path_mtu(queue->probe, peer);
        if (is_v6(ip) && mtu < LEAST_MTU)
            mtu = LEAST_MTU;
        say_error(queue, ip, message->msg_hdr.msg_iov[0].iov_len, TOO_BIG, mtu);
        count(&queue->counters.dropped[TOO_LARGE], 1);
        return 0;
    }
    pthread_mutex_lock(&cutting);
    let_cut(queue->udp, peer, 1); /* meanwhile another thread's may be cut as well, which costs it nothing but speed */
    done = send_all(queue, message, 1);
    let_cut(queue->udp, peer, 0);
    pthread_mutex_unlock(&cutting);
    if (!done)
        count(&queue->counters.dropped[NOT_SENT], 1);
    return done;
}

/* Sends each packet of a refused train by itself; `per` parts make one. */
static void send_each(struct queue *queue, struct peer *peer, struct iovec *parts, int number, int per)
{
    for (int i = 0; i < number; i++) {
        struct mmsghdr message = {0};
        union endpoint to;
        size_t size = 0;

        address_to(&message.msg_hdr, &to, queue, peer);
        set_parts(&message.msg_hdr, parts + i * per, per);
        for (int part = 0; part < per; part++)
            size += parts[i * per + part].iov_len;
        if (send_all(queue, &message, 1))
            sent(queue, peer, 1, size);
        else if (errno != EMSGSIZE)
            count(&queue->counters.dropped[NOT_SENT], 1);
        else if (send_fragmented(queue, &message, peer))
            sent(queue, peer, 1, size);
    }
}

/* Sends what was gathered. */
static void flush(struct queue *queue)
{
    struct out *out = queue->out;
    int done = 0, number = out->runs;

    for (int i = 0; i < number; i++) {
        const struct run *run = out->run + i;
        struct msghdr *message = &out->messages[i].msg_hdr;
        address_to(message, out->to + i, queue, run->peer);
        set_parts(message, out->parts + run->first, run->count);
        if (run->count > 1)
            cut_into(message, out->control + i, run->each);
    }
    while (done < number) {
        int now = send_all(queue, out->messages + done, number - done);
        for (int i = done; i < done + now; i++)
            sent(queue, out->run[i].peer, out->run[i].count, out->run[i].total);
        done += now;
        if (done < number) {
            struct run *run = out->run + done++;
            send_each(queue, run->peer, out->parts + run->first, run->count, 1);
        }
    }
    out->runs = out->used = 0;
}

/* Gathers a packet; one that fits to those before goes with them. */
static void gather(struct queue *queue, struct peer *peer, unsigned char *ip, size_t size)
{
    struct out *out = queue->out;
    struct run *run = out->runs ? out->run + out->runs - 1 : NULL;

    if (!run || run->closed || run->peer != peer || size > run->each || run->total + size > MAX_DATAGRAM ||
        run->count == MAX_SEGMENTS) {
        run = out->run + out->runs++;
        *run = (struct run){.peer = peer, .first = out->used, .each = size};
    }
    out->parts[out->used++] = (struct iovec){ip, size};
    run->count++;
    run->total += size;
    run->closed = size < run->each;
}

/* Sends a packet that the kernel has left whole, as the packets that it stands for. */
static void send_whole(struct queue *queue, struct peer *peer, unsigned char *ip, size_t size, const struct vnet *how)
{
    struct train *train = &queue->out->train;
    size_t each, all = segments_of(ip, size, how, &each), most, trains;

    if (!all || each > MAX_DATAGRAM) {
        count(&queue->counters.dropped[MALFORMED], 1);
        return;
    }
    flush(queue);
    most = MAX_DATAGRAM / each < MAX_SEGMENTS ? MAX_DATAGRAM / each : MAX_SEGMENTS;
    trains = (all + most - 1) / most;
    most = (all + trains - 1) / trains; /* all of one length */
    for (size_t first = 0; first < all; first += most) {
        struct mmsghdr message = {0};
        union endpoint to;
        union control control;
        split(train, ip, size, how, first, most);
        address_to(&message.msg_hdr, &to, queue, peer);
        set_parts(&message.msg_hdr, train->parts, 2 * train->segments);
        if (train->segments > 1)
            cut_into(&message.msg_hdr, &control, train->each);
        if (send_all(queue, &message, 1))
            sent(queue, peer, train->segments, (size_t)(train->segments - 1) * train->each + train->last);
        else
            send_each(queue, peer, train->parts, train->segments, 2);
    }
}

static struct address destination_of(const unsigned char *ip)
{
    return is_v6(ip) ? (struct address){get64(ip + 24), get64(ip + 32)} : mapped(get32(ip + 16));
}

/* Takes a packet that a pod, or this node, sends. */
static void take(struct queue *queue, const struct vnet *how, unsigned char *ip, size_t got)
{
    size_t size = packet_size(ip, got);
    struct peer *peer;

    if (!size || is_local(ip)) { /* of IPv6 the kernel says something on each device */
        count(&queue->counters.dropped[size ? LOCAL : MALFORMED], 1);
        return;
    }
    peer = table_find(queue->table, destination_of(ip));
    if (!peer) {
        say_error(queue, ip, size, UNREACHABLE, 0);
        count(&queue->counters.dropped[NO_ROUTE], 1);
    } else if (spend_ttl(ip) < 0) {
        say_error(queue, ip, size, TIME_EXCEEDED, 0);
        count(&queue->counters.dropped[EXPIRED], 1);
    } else if (how->gso_type) {
        send_whole(queue, peer, ip, size, how);
    } else if (how->flags & VNET_NEEDS_CSUM && complete(ip, size, how) < 0) {
        count(&queue->counters.dropped[MALFORMED], 1);
    } else {
        gather(queue, peer, ip, size);
    }
}

int out_once(struct queue *queue)
{
    struct out *out = queue->out;
    size_t at = 0;
    int more = 1;

    table_read(queue->table);
    for (int number = 0; number < BATCH && at + LARGEST <= ARENA; number++) {
        struct vnet how;
        ssize_t got = read(queue->tun, out->arena + at, LARGEST);
        if (got < 0) {
            more = errno == EBADFD || errno == ENODEV ? -1 : errno == EINTR;
            break;
        }
        if ((size_t)got <= sizeof how)
            continue;
        memcpy(&how, out->arena + at, sizeof how);
        take(queue, &how, out->arena + at + sizeof how, (size_t)got - sizeof how);
        at = out->runs ? (at + (size_t)got + 15) & ~(size_t)15 : 0; /* nothing gathered: nothing to keep */
    }
    flush(queue);
    table_done(queue->table);
    return more;
}
