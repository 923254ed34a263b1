/* What musl's compiler wrapper does not see of linux/udp.h and linux/in.h, and calls for many datagrams at once: musl
 * makes one call for each, because its structures once differed from the kernel's; zeroed, they are the same. */
#ifndef RELAY_SOCKET_H
#define RELAY_SOCKET_H

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SOL_UDP
#define SOL_UDP 17
#endif

/* The number's type is not the same in all C libraries. */
static inline void set_parts(struct msghdr *message, struct iovec *parts, int number)
{
    message->msg_iov = parts;
    message->msg_iovlen = (__typeof__(message->msg_iovlen))number;
}

static inline int send_many(int fd, struct mmsghdr *messages, unsigned count)
{
    return (int)syscall(SYS_sendmmsg, fd, messages, count, MSG_DONTWAIT);
}

static inline int receive_many(int fd, struct mmsghdr *messages, unsigned count)
{
    return (int)syscall(SYS_recvmmsg, fd, messages, count, MSG_DONTWAIT, NULL);
}

#endif
