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

extern char **environ;

/* What this process was called with: NULL for a command that is not set, `problem` NULL for a stdin that was not read. */
struct call {
    const char *plugin, *command, *problem;
    struct span input;
};

/* One byte more than is taken, so that the fallback sees as well that it is too much. */
static unsigned char input[MAX_PAYLOAD + 1];

static void limit_wait(int connection, int direction, int seconds)
{
    const struct timeval limit = {.tv_sec = seconds};

    setsockopt(connection, SOL_SOCKET, direction, &limit, sizeof limit);
}

/* Connects to the daemon; -1 with errno set when nothing answers there. A full backlog is waited for as long as for
 * sending. */
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
    limit_wait(connection, SO_SNDTIMEO, SEND_SECONDS);
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
        if (got < 0) {
            *out = (struct span){NULL, 0};
            return strerror(errno);
        }
        used += (size_t)got;
        *out = (struct span){input, used};
        if (used == sizeof input)
            return "more than 1 MiB";
        if (got == 0)
            return "";
    }
}

static int do_it_here(const struct call *call, const char *why)
{
    return become_python(call->plugin, call->input.data ? &call->input : NULL, why);
}

/* Sends the request; 0, -1 with errno set, or 1 after an error object has been printed. */
static int ask(int connection, const struct call *call)
{
    static struct span fields[MAX_FIELDS];
    struct descriptors with = {0};
    size_t size = 0;
    int count = 5;

    fields[0] = text(call->plugin);
    fields[3] = text(call->problem ? call->problem : "");
    fields[4] = call->problem && *call->problem ? text("") : call->input;
    for (char **variable = environ; *variable; variable++) {
        if (strncmp(*variable, "CNI_", 4))
            continue;
        if (count == MAX_FIELDS)
            return fail(CODE_ENVIRONMENT, "too many CNI_ variables in the environment");
        fields[count] = text(*variable);
        size += PREFIX_SIZE + fields[count++].size;
    }
    if (size > MAX_PAYLOAD / 2)
        return fail(CODE_ENVIRONMENT, "the CNI_ variables in the environment are too large");
    collect(&with, call->plugin, getenv("CNI_NETNS"));
    fields[1] = text(with.names);
    fields[2] = text(with.netns_problem);
    /* Names and variables come first, the configuration must fit into what they leave. */
    if (size + fields[4].size + PREFIX_SIZE * 5 + 512 > MAX_PAYLOAD) {
        fields[3] = text("more than 1 MiB");
        fields[4].size = 0;
    }
    return frame_send(connection, CALL, fields, count, &with);
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

/* The daemon was lost after it had begun: what holds now, and what to do. */
static int lost(const struct call *call, int error)
{
    const char *command = call->command ? call->command : "";
    const char *then = !strcmp(command, "ADD") ? "call DEL, which removes what ADD has made, then ADD again"
                                               : "call it again, it takes up what was left undone";

    if (error == EAGAIN || error == ETIMEDOUT)
        return fail(CODE_AGAIN, "weftd has begun %s and not answered for %d s: %s", command, ANSWER_SECONDS, then);
    if (error == EBADMSG)
        return fail(CODE_AGAIN, "weftd has sent an answer that cannot be read");
    return fail(CODE_AGAIN, "the connection to weftd was lost in the middle of %s (%s): %s", command, strerror(error),
                then);
}

/* A daemon that hangs up may have said why before. */
static int hung_up(int error)
{
    return error == EPIPE || error == ECONNRESET;
}

/* Until the daemon says that it has begun everything can be done here, without doubt: one that cannot say so, because
 * this end is shut down, does not begin. */
static int converse(int connection, const struct call *call)
{
    static struct frame frame;
    int begun = 0, closed = 0;

    for (;;) {
        if (frame_receive(connection, &frame) < 0) {
            if (begun || (errno != EAGAIN && errno != ECONNRESET))
                return lost(call, errno);
            if (closed || errno == ECONNRESET)
                return do_it_here(call, closed ? "it has not begun in time" : strerror(errno));
            shutdown(connection, SHUT_RDWR);
            closed = 1;
            continue;
        }
        /* The header and `done` are the same in every version, so that a refusal can always be read. */
        if (frame.kind == DONE && !begun && frame.version < VERSION)
            return do_it_here(call, "it speaks an older version of the protocol");
        if (frame.kind == DONE)
            return finish(&frame);
        if (frame.version != VERSION || frame.kind != (begun ? frame.kind == OPEN ? OPEN : RUN : BEGUN))
            return fail(CODE_AGAIN, "weftd speaks another version of the protocol: kind %d, version %u",
                        (int)frame.kind, frame.version);
        if (frame.kind == BEGUN)
            limit_wait(connection, SO_RCVTIMEO, ANSWER_SECONDS);
        else if ((frame.kind == OPEN ? send_settings : run_delegate)(connection, &frame) < 0 && !hung_up(errno))
            return fail(CODE_AGAIN, "what weftd has asked for could not be passed to it: %s", strerror(errno));
        begun = 1;
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
    const char *path = getenv("WEFT_CNI_SOCKET"), *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    struct call call = {.plugin = slash ? slash + 1 : argc > 0 ? argv[0] : "", .command = getenv("CNI_COMMAND")};
    int connection, asked;

    open_standard_streams();
    if (!*call.plugin || strlen(call.plugin) >= MAX_NAME)
        return fail(CODE_AGAIN, "called by a name that no plugin has");
    if (call.command && !strcmp(call.command, "VERSION"))
        return print_versions(call.plugin);
    /* Called by hand without CNI_COMMAND a plugin says what it is; it does not wait for a terminal. All input is there
     * before the daemon is asked, which waits for no client. */
    if (call.command && *call.command)
        call.problem = read_input(&call.input);
    connection = connect_daemon(path && *path ? path : WEFT_SOCKET);
    if (connection < 0)
        return do_it_here(&call, errno == EAGAIN ? "it accepts no connection" : strerror(errno));
    signal(SIGPIPE, SIG_IGN);
    if (!served_by_root(connection))
        return fail(CODE_AGAIN, "the daemon's socket is not served by root");
    limit_wait(connection, SO_RCVTIMEO, BEGIN_SECONDS);
    asked = ask(connection, &call);
    if (asked > 0)
        return asked;
    if (asked < 0) /* it never begins what it has not got whole */
        return do_it_here(&call, errno == EAGAIN ? "it does not read" : strerror(errno));
    return converse(connection, &call);
}
