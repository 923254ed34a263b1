/* One queue of the device: both directions, in turns, as long as there is anything to do. */
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "relay.h"

enum { ERRORS_A_SECOND = 100 };

void count(atomic_uint_fast64_t *counter, uint64_t number)
{
    atomic_fetch_add_explicit(counter, number, memory_order_relaxed);
}

static ssize_t send_error(const struct queue *queue, const unsigned char *ip, const unsigned char *error, size_t size)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    struct sockaddr_in6 to6 = {.sin6_family = AF_INET6};

    if (is_v6(ip)) {
        memcpy(&to6.sin6_addr, ip + 8, sizeof to6.sin6_addr);
        return sendto(queue->icmp6, error, size, MSG_DONTWAIT, (struct sockaddr *)&to6, sizeof to6);
    }
    memcpy(&to.sin_addr, ip + 12, sizeof to.sin_addr);
    return sendto(queue->icmp, error, size, MSG_DONTWAIT, (struct sockaddr *)&to, sizeof to);
}

void say_error(struct queue *queue, const unsigned char *ip, size_t size, enum error error, uint32_t mtu)
{
    unsigned char message[MAX_ICMP6];
    struct timespec now;
    size_t length;

    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    if (now.tv_sec != queue->second) {
        queue->second = now.tv_sec;
        memset(queue->errors, 0, sizeof queue->errors);
    }
    if (queue->errors[error] >= ERRORS_A_SECOND)
        return;
    length = icmp_error(message, ip, size, error, mtu);
    if (length && send_error(queue, ip, message, length) >= 0)
        queue->errors[error]++;
}

void *queue_serve(void *served)
{
    struct queue *queue = served;
    struct pollfd both[] = {{queue->out ? queue->tun : -1, POLLIN, 0}, {queue->in ? queue->udp : -1, POLLIN, 0}};

    for (;;) {
        int out = queue->out ? out_once(queue) : 0, in = queue->in ? in_once(queue) : 0;
        if (out < 0)
            exit(0);
        if (!out && !in)
            poll(both, 2, -1);
    }
}
