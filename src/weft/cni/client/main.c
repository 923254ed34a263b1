/* One call of a plugin: VERSION is answered here, everything else by the daemon, or without one by Python. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "weft.h"

static const char versions[] =
    "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":"
    "[\"0.1.0\",\"0.2.0\",\"0.3.0\",\"0.3.1\",\"0.4.0\",\"1.0.0\",\"1.1.0\"]}\n";

extern char **environ;

static unsigned char input[MAX_PAYLOAD];

/* Connects to the daemon; -1 with errno set when nobody answers there. */
static int connect_daemon(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (connection < 0)
        return -1;
    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    return connect(connection, (struct sockaddr *)&address, sizeof address) < 0 ? -1 : connection;
}

static int served_by_root(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == 0;
}

/* Reads stdin to its end; what is wrong with it is text for the daemon, which knows the right error object. */
static const char *read_input(struct span *out)
{
    size_t used = 0;

    for (;;) {
        ssize_t got = read(0, input + used, sizeof input - used);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return strerror(errno);
        used += (size_t)got;
        if (used == sizeof input)
            return "more than 1 MiB";
        if (got > 0)
            continue;
        *out = (struct span){input, used};
        return "";
    }
}

/* Sends the request; 0, or -1 after an error object has been printed. */
static int ask(int connection, const char *plugin)
{
    static struct span fields[MAX_FIELDS];
    struct descriptors with = {0};
    const char *command = getenv("CNI_COMMAND"), *input_problem = "";
    size_t size = 0;
    int count = 5;

    collect(&with, plugin, getenv("CNI_NETNS"));
    fields[4] = (struct span){input, 0};
    /* Called by hand without CNI_COMMAND a plugin says what it is; it does not wait for a terminal. */
    if (command && *command)
        input_problem = read_input(&fields[4]);
    fields[0] = text(plugin);
    fields[1] = text(with.names);
    fields[2] = text(with.netns_problem);
    for (char **variable = environ; *variable; variable++) {
        if (strncmp(*variable, "CNI_", 4))
            continue;
        if (count == MAX_FIELDS) {
            fail(CODE_ENVIRONMENT, "too many CNI_ variables in the environment");
            return -1;
        }
        fields[count] = text(*variable);
        size += PREFIX_SIZE + fields[count++].size;
    }
    if (size > MAX_PAYLOAD / 2) {
        fail(CODE_ENVIRONMENT, "the CNI_ variables in the environment are too large");
        return -1;
    }
    /* Names and variables come first, the configuration must fit into what they leave. */
    if (size + fields[4].size + PREFIX_SIZE * 5 + 512 > MAX_PAYLOAD) {
        input_problem = "more than 1 MiB";
        fields[4].size = 0;
    }
    fields[3] = text(input_problem);
    if (frame_send(connection, CALL, fields, count, &with) == 0)
        return 0;
    fail(CODE_AGAIN, "the request could not be sent to weftd: %s", strerror(errno));
    return -1;
}

/* Prints the answer and returns its exit status; 1 if it makes no sense. */
static int finish(const struct frame *done)
{
    char status[8];
    char *end;
    long exit_status;

    if (done->count != 3 || copy_text(status, sizeof status, done->fields[0]) < 0)
        return fail(CODE_AGAIN, "weftd has sent an answer that cannot be read");
    exit_status = strtol(status, &end, 10);
    if (status[0] < '0' || status[0] > '9' || *end || exit_status > 255)
        return fail(CODE_AGAIN, "weftd has sent an answer that cannot be read");
    write_all(2, done->fields[2].data, done->fields[2].size);
    if (write_all(1, done->fields[1].data, done->fields[1].size) < 0)
        return 1;
    return (int)exit_status;
}

static int converse(int connection)
{
    static struct frame frame;

    for (;;) {
        if (frame_receive(connection, &frame) < 0) {
            if (errno == EAGAIN)
                return fail(CODE_AGAIN, "weftd has not answered for %d s", ANSWER_TIMEOUT);
            return fail(CODE_AGAIN, "the connection to weftd was lost: %s", strerror(errno));
        }
        /* The header and `done` are the same in every version, so that a refusal can always be read. */
        if (frame.kind == DONE)
            return finish(&frame);
        if ((frame.kind != RUN && frame.kind != OPEN) || frame.version != VERSION)
            return fail(CODE_AGAIN, "weftd speaks another version of the protocol: kind %d, version %u",
                        (int)frame.kind, frame.version);
        if (frame.kind == OPEN && send_settings(connection, &frame) < 0)
            return fail(CODE_AGAIN, "settings could not be passed to weftd: %s", strerror(errno));
        if (frame.kind == RUN && run_delegate(connection, &frame) < 0)
            return fail(CODE_AGAIN, "a delegate's answer could not be passed to weftd: %s", strerror(errno));
    }
}

/* A descriptor that takes the number of a missing standard stream would be written to by mistake. */
static void open_standard_streams(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR);
    while (fd >= 0 && fd <= 2);
    if (fd > 2)
        close(fd);
}

int main(int argc, char **argv)
{
    const struct timeval limit = {.tv_sec = ANSWER_TIMEOUT};
    const char *command = getenv("CNI_COMMAND"), *path = getenv("WEFT_CNI_SOCKET");
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *plugin = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    int connection;

    open_standard_streams();
    if (!*plugin || strlen(plugin) >= MAX_NAME)
        return fail(CODE_AGAIN, "called by a name that no plugin has");
    if (command && !strcmp(command, "VERSION"))
        return write_all(1, versions, sizeof versions - 1) < 0;
    connection = connect_daemon(path && *path ? path : WEFT_SOCKET);
    if (connection < 0)
        return become_python(plugin, strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    if (!served_by_root(connection))
        return fail(CODE_AGAIN, "the daemon's socket is not served by root");
    setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    if (ask(connection, plugin) < 0)
        return 1;
    return converse(connection);
}
