/* The relay of back end udp.
 *
 *     weft-relay PORT QUEUES ABOUT
 *
 * All that it works with is open when it starts, so it needs no right, and gives all away: descriptor 3 is the
 * listening socket of the daemon's questions, 4 and 5 are raw sockets for errors by ICMP and ICMPv6, and from 6 on come
 * the device and a UDP socket for each queue. Without IPv6 5 is the one for ICMP again, which takes no such message.
 * PORT is that of all peers; ABOUT is given back to whoever asks what this relay is for. It ends with its device.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "relay.h"

/* linux/if_tun.h, which musl's compiler wrapper does not see: checksums, TSO4, TSO6, TSO_ECN, USO4 and USO6. */
enum { TUNSETOFFLOAD = 0x400454d0, OFFLOADS = 0x01 | 0x02 | 0x04 | 0x08 | 0x20 | 0x40 };
enum { LISTENER = 3, ERRORS = 4, ERRORS6 = 5, FIRST = 6 };

static struct table table;
static struct queue queues[MAX_QUEUES];

/* Tells whether the kernel takes UDP that is left whole (Linux 6.2), by asking for what it was given already. */
static int takes_udp(int tun)
{
    return ioctl(tun, TUNSETOFFLOAD, OFFLOADS) == 0;
}

/* Gives all capabilities away, for this and for whatever it would execute; -1 if that cannot be. */
static int drop_rights(void)
{
    /* linux/capability.h: _LINUX_CAPABILITY_VERSION_3 of this process; effective, permitted, inheritable, twice. */
    uint32_t header[2] = {0x20080522, 0}, none[6] = {0};

    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 || syscall(SYS_capset, header, none) < 0 ? -1 : 0;
}

int main(int argc, char **argv)
{
    int number = argc == 4 ? atoi(argv[2]) : 0;

    if (number < 1 || number > MAX_QUEUES)
        return 2;
    if (drop_rights() < 0)
        return 1;
    signal(SIGPIPE, SIG_IGN);
    table_start(&table);
    for (int i = 0; i < number; i++) {
        struct queue *queue = queues + i;
        pthread_t thread;
        *queue = (struct queue){.tun = FIRST + 2 * i, .udp = FIRST + 2 * i + 1, .table = &table};
        queue->icmp = ERRORS;
        queue->icmp6 = ERRORS6;
        queue->port = htons((uint16_t)atoi(argv[1]));
        queue->out = out_start();
        queue->in = in_start(takes_udp(queue->tun));
        if (!queue->out || !queue->in || pthread_create(&thread, NULL, queue_serve, queue))
            return 1;
    }
    control_serve(LISTENER, &table, queues, number, argv[3]);
    return 0;
}
