/* The relay of back end udp.
 *
 *     weft-relay PORT QUEUES ABOUT
 *
 * All that it works with is open when it starts, so it needs no right, and gives all away: descriptor 3 is the
 * listening socket of the daemon's questions, 4 and 5 are raw sockets for errors by ICMP and ICMPv6, 6 is the UDP
 * socket, and from 7 on come the queues of the device. Without IPv6 5 is the one for ICMP again, which takes no such
 * message. PORT is that of all peers; ABOUT is the answer to who asks what this relay is for. It ends with its
 * device.
 *
 * The socket is one alone: whatever shares its port by SO_REUSEPORT would be given packets. One thread receives, so
 * that the packets of a flow stay in order; where there are several queues each has a thread that sends.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "relay.h"

/* linux/if_tun.h, which musl's compiler wrapper does not see: checksums, TSO4, TSO6, TSO_ECN, USO4 and USO6. */
enum { TUNSETOFFLOAD = 0x400454d0, OFFLOADS = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 };
enum { LISTENER = 3, ERRORS = 4, ERRORS6 = 5, PEERS = 6, FIRST = 7 };

static struct table table;
static struct queue queues[MAX_QUEUES + 1]; /* the first receives */

/* Tells whether the kernel takes UDP that is left whole (Linux 6.2), by asking for what it was given already. */
static int takes_udp(int tun)
{
    return ioctl(tun, TUNSETOFFLOAD, OFFLOADS) == 0;
}

/* Starts the thread of a queue; 0 if there is no memory, or no thread (RLIMIT_NPROC, a cgroup's pids.max). */
static int start(struct queue *queue, int tun, uint16_t port, int sends, int receives)
{
    struct sockaddr_storage own;
    socklen_t size = sizeof own;
    pthread_t thread;

    *queue = (struct queue){.tun = tun, .udp = PEERS, .icmp = ERRORS, .icmp6 = ERRORS6, .port = port, .table = &table};
    if (getsockname(PEERS, (struct sockaddr *)&own, &size) < 0 ||
        (queue->probe = socket(own.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)) < 0)
        return 0;
    queue->out = sends ? out_start() : NULL;
    queue->in = receives ? in_start(takes_udp(tun)) : NULL;
    return (queue->out || !sends) && (queue->in || !receives) && !pthread_create(&thread, NULL, queue_serve, queue);
}

int main(int argc, char **argv)
{
    int number = argc == 4 ? atoi(argv[2]) : 0, threads = 1;
    uint16_t port;

    if (number < 1 || number > MAX_QUEUES)
        return 2;
    if (drop_rights() < 0)
        return 1;
    port = htons((uint16_t)atoi(argv[1]));
    signal(SIGPIPE, SIG_IGN);
    table_start(&table);
    /* A queue that no thread serves is closed: the kernel gives it no packet then. */
    while (threads <= number && number > 1 && start(queues + threads, FIRST + threads - 1, port, 1, 0))
        threads++;
    for (int i = threads > 1 ? threads - 1 : 1; i < number; i++)
        close(FIRST + i);
    if (!start(queues, FIRST, port, threads == 1, 1))
        return 1;
    control_serve(&(struct daemon){LISTENER, argv[3], confine()}, &table, queues, threads);
    return 0;
}
