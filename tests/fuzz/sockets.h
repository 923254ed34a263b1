/* In place of the relay's socket.h: datagrams come from a fuzzer, and what is written is looked at. */
#ifndef RELAY_SOCKET_H
#define RELAY_SOCKET_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define UDP_SEGMENT 103
#define UDP_GRO 104
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

int receive_many(int fd, struct mmsghdr *messages, unsigned count);
int send_many(int fd, struct mmsghdr *messages, unsigned count);
ssize_t fuzzed_writev(int fd, const struct iovec *parts, int count);
ssize_t fuzzed_read(int fd, void *buffer, size_t size);

#define writev fuzzed_writev
#define read fuzzed_read

static inline void set_parts(struct msghdr *message, struct iovec *parts, int number)
{
    message->msg_iov = parts;
    message->msg_iovlen = (__typeof__(message->msg_iovlen))number;
}

#endif
