/* The relay of back end udp.
 *
 *     weft-relay PORT QUEUES ABOUT
 *
 * All that it works with is open when it starts, so it needs no right: descriptor 3 is the listening socket of the
 * daemon's questions, 4 a raw socket for ICMP errors, and from 5 on come the device and a UDP socket for each queue.
 * PORT is that of all peers; ABOUT is given back to whoever asks what this relay is for. It ends with its device.
 */
#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "relay.h"

enum { LISTENER = 3, ICMP = 4, FIRST = 5 };

static struct table table;
static struct queue queues[MAX_QUEUES];

int main(int argc, char **argv)
{
    int number = argc == 4 ? atoi(argv[2]) : 0;

    if (number < 1 || number > MAX_QUEUES)
        return 2;
    signal(SIGPIPE, SIG_IGN);
    table_start(&table);
    for (int i = 0; i < number; i++) {
        struct queue *queue = queues + i;
        pthread_t thread;
        *queue = (struct queue){.tun = FIRST + 2 * i, .udp = FIRST + 2 * i + 1, .icmp = ICMP, .table = &table};
        queue->port = htons((uint16_t)atoi(argv[1]));
        queue->out = out_start();
        queue->in = in_start();
        if (!queue->out || !queue->in || pthread_create(&thread, NULL, queue_serve, queue))
            return 1;
    }
    control_serve(LISTENER, &table, queues, number, argv[3]);
    return 0;
}
