/* From the device to peers. The kernel leaves the segmentation of TCP and UDP to us, and takes it off us again when a
 * train of equal datagrams is sent by one call (UDP_SEGMENT): content is copied by the kernel alone. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

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
    struct sockaddr_in to[BATCH];
    union control control[BATCH];
    struct train train;
    unsigned char arena[ARENA];
};

struct out *out_start(void)
{
    return calloc(1, sizeof(struct out));
}

static void address_to(struct msghdr *message, struct sockaddr_in *to, const struct queue *queue,
                       const struct peer *peer)
{
    *to = (struct sockaddr_in){AF_INET, queue->port, {htonl(peer->address)}, {0}};
    memset(message, 0, sizeof *message);
    message->msg_name = to;
    message->msg_namelen = sizeof *to;
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

/* What a packet to a peer may have at most, without our headers; 0 if that is not known. */
static uint32_t path_mtu(const struct peer *peer)
{
    struct sockaddr_in to = {AF_INET, htons(9), {htonl(peer->address)}, {0}};
    int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0), mtu = 0;
    socklen_t size = sizeof mtu;

    if (probe < 0)
        return 0;
    if (connect(probe, (struct sockaddr *)&to, sizeof to) < 0 || getsockopt(probe, IPPROTO_IP, IP_MTU, &mtu, &size) < 0)
        mtu = 0;
    close(probe);
    return mtu > IP_HEADER + UDP_HEADER ? (uint32_t)mtu - IP_HEADER - UDP_HEADER : 0;
}

/* The way to the peer is too narrow: a packet that may not be fragmented is told so, of any other the datagram is. */
static int send_fragmented(struct queue *queue, struct mmsghdr *message, const struct peer *peer)
{
    const unsigned char *ip = message->msg_hdr.msg_iov[0].iov_base;
    int how = IP_PMTUDISC_WANT, done;

    if (ip[6] & 0x40) {
        say_error(queue, ip, message->msg_hdr.msg_iov[0].iov_len, UNREACHABLE, TOO_BIG, path_mtu(peer));
        count(&queue->counters.dropped[TOO_LARGE], 1);
        return 0;
    }
    setsockopt(queue->udp, IPPROTO_IP, IP_MTU_DISCOVER, &how, sizeof how);
    done = send_all(queue, message, 1);
    how = IP_PMTUDISC_DO;
    setsockopt(queue->udp, IPPROTO_IP, IP_MTU_DISCOVER, &how, sizeof how);
    return done;
}

/* Sends each packet of a refused train by itself; `per` parts make one. */
static void send_each(struct queue *queue, struct peer *peer, struct iovec *parts, int number, int per)
{
    for (int i = 0; i < number; i++) {
        struct mmsghdr message = {0};
        struct sockaddr_in to;
        size_t size = 0;

        address_to(&message.msg_hdr, &to, queue, peer);
        set_parts(&message.msg_hdr, parts + i * per, per);
        for (int part = 0; part < per; part++)
            size += parts[i * per + part].iov_len;
        if (send_all(queue, &message, 1) || (errno == EMSGSIZE && send_fragmented(queue, &message, peer)))
            sent(queue, peer, 1, size);
        else if (errno != EMSGSIZE)
            count(&queue->counters.dropped[NOT_SENT], 1);
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
        struct sockaddr_in to;
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

/* Takes a packet that a pod, or this node, sends. */
static void take(struct queue *queue, const struct vnet *how, unsigned char *ip, size_t got)
{
    size_t size = packet_size(ip, got);
    struct peer *peer;

    if (!size) { /* of IPv6 the kernel says something on each device */
        count(&queue->counters.dropped[MALFORMED], ip[0] >> 4 == 4);
        return;
    }
    peer = table_find(queue->table, get32(ip + 16));
    if (!peer) {
        say_error(queue, ip, size, UNREACHABLE, NET, 0);
        count(&queue->counters.dropped[NO_ROUTE], 1);
    } else if (spend_ttl(ip) < 0) {
        say_error(queue, ip, size, TIME_EXCEEDED, IN_TRANSIT, 0);
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
            more = errno == EAGAIN ? 0 : errno == EINTR ? 1 : -1;
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
