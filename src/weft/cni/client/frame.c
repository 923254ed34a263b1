/* Frames: a header (payload size, version, kind; big-endian), then fields, each a size and that many bytes.
 * The rules are those of weft/wire/frames.py, and a test reads what each side writes with the other. */
#define _GNU_SOURCE
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "weft.h"

/* The sizes in these structures have other types in glibc than in musl. */
#define SET(field, value) ((field) = (__typeof__(field))(value))

static unsigned char payload[MAX_PAYLOAD];

static void put32(unsigned char *at, uint32_t value)
{
    at[0] = (unsigned char)(value >> 24);
    at[1] = (unsigned char)(value >> 16);
    at[2] = (unsigned char)(value >> 8);
    at[3] = (unsigned char)value;
}

static uint32_t get32(const unsigned char *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

struct span text(const char *string)
{
    return (struct span){(const unsigned char *)string, strlen(string)};
}

int copy_text(char *out, size_t size, struct span field)
{
    if (field.size == 0 || field.size >= size || memchr(field.data, 0, field.size)) {
        errno = field.size < size ? EBADMSG : EMSGSIZE;
        return -1;
    }
    memcpy(out, field.data, field.size);
    out[field.size] = '\0';
    return 0;
}

int write_all(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size > 0) {
        ssize_t wrote = write(fd, at, size);
        if (wrote < 0 && errno == EINTR)
            continue;
        if (wrote < 0)
            return -1;
        at += wrote;
        size -= (size_t)wrote;
    }
    return 0;
}

static int send_all(int connection, struct msghdr *message)
{
    while (message->msg_iovlen > 0) {
        ssize_t sent = sendmsg(connection, message, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent < 0)
            return -1;
        /* Descriptors travel with the first byte, once. */
        message->msg_control = NULL;
        message->msg_controllen = 0;
        while (message->msg_iovlen > 0 && (size_t)sent >= message->msg_iov->iov_len) {
            sent -= (ssize_t)message->msg_iov->iov_len;
            message->msg_iov++;
            message->msg_iovlen--;
        }
        if (sent > 0) {
            message->msg_iov->iov_base = (char *)message->msg_iov->iov_base + sent;
            message->msg_iov->iov_len -= (size_t)sent;
        }
    }
    return 0;
}

int frame_send(int connection, enum kind kind, const struct span *fields, int count, const struct descriptors *with)
{
    static unsigned char header[HEADER_SIZE], prefixes[MAX_FIELDS][PREFIX_SIZE];
    static struct iovec parts[1 + 2 * MAX_FIELDS];
    union {
        struct cmsghdr first;
        char bytes[CMSG_SPACE(sizeof(int) * MAX_FDS)];
    } control = {0};
    struct msghdr message = {.msg_iov = parts};
    size_t size = 0, used = 1;

    if (count > MAX_FIELDS) {
        errno = EMSGSIZE;
        return -1;
    }
    for (int i = 0; i < count; i++) {
        if (fields[i].size > MAX_PAYLOAD) {
            errno = EMSGSIZE;
            return -1;
        }
        size += PREFIX_SIZE + fields[i].size;
        put32(prefixes[i], (uint32_t)fields[i].size);
        parts[used++] = (struct iovec){prefixes[i], PREFIX_SIZE};
        parts[used++] = (struct iovec){(void *)(uintptr_t)fields[i].data, fields[i].size};
    }
    if (size > MAX_PAYLOAD) {
        errno = EMSGSIZE;
        return -1;
    }
    put32(header, (uint32_t)size);
    put32(header + 4, (uint32_t)VERSION << 16 | (uint32_t)kind);
    parts[0] = (struct iovec){header, HEADER_SIZE};
    SET(message.msg_iovlen, used);
    if (with && with->count > 0) {
        size_t bytes = sizeof(int) * (size_t)with->count;
        message.msg_control = control.bytes;
        SET(message.msg_controllen, CMSG_SPACE(bytes));
        control.first.cmsg_level = SOL_SOCKET;
        control.first.cmsg_type = SCM_RIGHTS;
        SET(control.first.cmsg_len, CMSG_LEN(bytes));
        memcpy(CMSG_DATA(&control.first), with->fds, bytes);
    }
    return send_all(connection, &message);
}

static int receive_all(int connection, unsigned char *at, size_t size)
{
    const unsigned char *start = at;

    while (size > 0) {
        ssize_t got = recv(connection, at, size, 0);
        if (got < 0 && errno == EINTR)
            continue;
        if (got == 0)
            errno = ECONNRESET;
        if (got < 0 && errno == EAGAIN && at > start)
            errno = ETIMEDOUT;
        if (got <= 0)
            return -1;
        at += got;
        size -= (size_t)got;
    }
    return 0;
}

int frame_receive(int connection, struct frame *frame)
{
    unsigned char header[HEADER_SIZE];
    size_t size, at = 0;

    if (receive_all(connection, header, sizeof header) < 0)
        return -1;
    size = get32(header);
    frame->version = get32(header + 4) >> 16;
    frame->kind = (enum kind)(get32(header + 4) & 0xffff);
    frame->count = 0;
    errno = EBADMSG;
    if (size > MAX_PAYLOAD)
        return -1;
    if (receive_all(connection, payload, size) < 0) {
        errno = errno == EAGAIN ? ETIMEDOUT : errno;
        return -1;
    }
    errno = EBADMSG;
    while (at < size) {
        size_t field;
        if (size - at < PREFIX_SIZE || frame->count == MAX_FIELDS)
            return -1;
        field = get32(payload + at);
        at += PREFIX_SIZE;
        if (field > size - at)
            return -1;
        frame->fields[frame->count++] = (struct span){payload + at, field};
        at += field;
    }
    return 0;
}
