/* One call of a plugin: VERSION is answered here, everything else by the daemon, or what stands in for it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"

extern char **environ;

enum {
    ATTEMPTS = 3,               /* stand-ins that are asked, each after one that has died; servers that may be lost */
    LOOK_MICROSECONDS = 50000,  /* between two looks whether the daemon is there */
    GLANCE_MILLISECONDS = 250,  /* for a daemon that was seen to hang */
};

/* Results of a call that are no exit status: no server has begun it, or the server that had begun it was lost. */
enum { NOT_BEGUN = -1, LOST = -2 };

/* Why a server has not begun, and whether it may live and hang. */
struct refusal {
    int hangs;
    int unread; /* it has not even read what was asked */
    const char *why;
};

/* What this process was called with: NULL for a command that is not set, `problem` NULL for a stdin that was not read. */
struct call {
    const char *plugin, *command, *problem;
    struct span input;
    char called[64];    /* the variable that says when it was called */
    int lost;           /* whether a server was lost that had begun it */
};

/* Who is asked, for messages. */
static const char *server = "weftd";

/* When this call is to have its answer, by `now`. */
static long long deadline;

/* Limits how long a connection waits: so many milliseconds, but not beyond the deadline. A limit of 0 would mean none. */
static void limit_wait(int connection, int direction, int milliseconds)
{
    long long left = deadline - now(), most = left > 0 ? left : 1;
    long long wait = most < milliseconds ? most : milliseconds;
    const struct timeval limit = {wait / 1000, wait % 1000 * 1000};

    setsockopt(connection, SOL_SOCKET, direction, &limit, sizeof limit);
}

/* A full backlog is waited for as long as for sending. */
int connect_to(const char *path, int milliseconds)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    int connection;

    errno = ENAMETOOLONG;
    if (strlen(path) >= sizeof address.sun_path)
        return -1;
    strcpy(address.sun_path, path);
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connection < 0)
        return -1;
    limit_wait(connection, SO_SNDTIMEO, milliseconds);
    if (connect(connection, (struct sockaddr *)&address, sizeof address) == 0)
        return connection;
    close(connection);
    return -1;
}

static int served_by_root(int connection)
{
    struct ucred peer;
    socklen_t size = sizeof peer;

    return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == 0;
}

/* Sends the request; 0, -1 with errno set, or 1 after an error object has been printed. */
static int ask(int connection, const struct call *call)
{
    static struct span fields[MAX_FIELDS];
    static struct descriptors with; /* the same for each server that is asked, but for a socket that one was lost with */
    size_t size = 0;
    int count = 5 + call->lost;

    fields[0] = text(call->plugin);
    fields[3] = text(call->problem ? call->problem : "");
    fields[4] = call->problem && *call->problem ? text("") : call->input;
    fields[5] = text(call->called);
    for (char **variable = environ; *variable; variable++) {
        if (strncmp(*variable, "CNI_", 4))
            continue;
        if (count == MAX_FIELDS)
            return fail(CODE_ENVIRONMENT, "too many CNI_ variables");
        fields[count] = text(*variable);
        size += PREFIX_SIZE + fields[count++].size;
    }
    if (size > MAX_PAYLOAD / 2)
        return fail(CODE_ENVIRONMENT, "the CNI_ variables are too large");
    if (!with.count)
        collect(&with, call->plugin, getenv("CNI_NETNS"));
    else if (call->lost)
        renew_route();
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
        return fail(CODE_AGAIN, "%s has sent an answer that cannot be read", server);
    exit_status = strtol(status, &end, 10);
    if (status[0] < '0' || status[0] > '9' || *end || exit_status > 255)
        return fail(CODE_AGAIN, "%s has sent an answer that cannot be read", server);
    write_all(2, done->fields[2].data, done->fields[2].size);
    if (write_all(1, done->fields[1].data, done->fields[1].size) < 0)
        return 1;
    return (int)exit_status;
}

/* What to do about a call that may have been begun. */
static const char *what_then(const struct call *call)
{
    if (call->command && !strcmp(call->command, "ADD"))
        return "call DEL, which removes what ADD has made, then ADD again";
    return "call it again, it takes up what was left undone";
}

/* The server has begun and does not answer as it should: what holds now, and what to do. */
static int unanswered(const struct call *call, int error)
{
    if (error == EBADMSG)
        return fail(CODE_AGAIN, "%s has sent an answer that cannot be read", server);
    if (error == ECONNRESET)
        return fail(CODE_AGAIN, "the connection to %s was lost in the middle of %s: %s", server,
                    call->command ? call->command : "", what_then(call));
    return fail(CODE_AGAIN, "%s has begun %s and not answered in time: %s", server, call->command ? call->command : "",
                what_then(call));
}

/* A server that hangs up may have said why before. */
static int hung_up(int error)
{
    return error == EPIPE || error == ECONNRESET;
}

static int not_begun(struct refusal *refusal, int hangs, const char *why)
{
    *refusal = (struct refusal){hangs, hangs, why};
    return NOT_BEGUN;
}

/* Tells whether the other end has left something unread: one that is busy reads at once. */
static int is_unread(int connection)
{
    int left = 0;

    return ioctl(connection, TIOCOUTQ, &left) == 0 && left > 0;
}

/* Until the server says that it has begun another one can be asked, without doubt: one that cannot say so, because this
 * end is shut down, does not begin. */
static int converse(int connection, const struct call *call, struct refusal *refusal)
{
    static struct frame frame;
    int begun = 0, closed = 0, unread = 0;

    for (;;) {
        if (begun)
            limit_wait(connection, SO_RCVTIMEO, ANSWER_SECONDS * 1000);
        if (frame_receive(connection, &frame) < 0) {
            if (begun && errno == ECONNRESET)
                return LOST;
            if (begun || (errno != EAGAIN && errno != ECONNRESET))
                return unanswered(call, errno);
            if (closed || errno == ECONNRESET) {
                not_begun(refusal, closed, closed ? "it has not begun in time" : strerror(errno));
                refusal->unread = unread;
                return NOT_BEGUN;
            }
            unread = is_unread(connection);
            shutdown(connection, SHUT_RDWR);
            closed = 1;
            continue;
        }
        /* The header and `done` are the same in every version, so that a refusal can always be read. */
        if (frame.kind == DONE && !begun && frame.version < VERSION)
            return not_begun(refusal, 0, "it speaks an older version of the protocol");
        if (frame.kind == DONE)
            return finish(&frame);
        if (frame.version != VERSION || frame.kind != (begun ? frame.kind == OPEN ? OPEN : RUN : BEGUN))
            return fail(CODE_AGAIN, "%s speaks another version of the protocol: kind %d, version %u", server,
                        (int)frame.kind, frame.version);
        if (frame.kind == BEGUN) {
            limit_wait(connection, SO_SNDTIMEO, SEND_SECONDS * 1000);
        } else {
            long long asked = now();
            if ((frame.kind == OPEN ? send_settings : run_delegate)(connection, &frame) < 0 && !hung_up(errno))
                return fail(CODE_AGAIN, "what %s has asked for could not be passed to it: %s", server, strerror(errno));
            deadline += now() - asked;
        }
        begun = 1;
    }
}

/* Has a server do it, which may take so long to begin; the exit status, LOST, or NOT_BEGUN with why. */
static int call_over(int connection, const struct call *call, int milliseconds, struct refusal *refusal)
{
    int status;

    if (connection < 0)
        return not_begun(refusal, errno == EAGAIN, errno == EAGAIN ? "it accepts no connection" : strerror(errno));
    if (!served_by_root(connection))
        return fail(CODE_AGAIN, "the daemon's socket is not served by root");
    limit_wait(connection, SO_RCVTIMEO, milliseconds);
    status = ask(connection, call);
    if (status < 0) /* it never begins what it has not got whole */
        status = not_begun(refusal, errno == EAGAIN, errno == EAGAIN ? "it does not read" : strerror(errno));
    else if (!status)
        status = converse(connection, call, refusal);
    close(connection);
    return status;
}

/* Tells whether a call is worth waiting for: STATUS asks how it is now. */
static int is_work(const struct call *call)
{
    return call->command && *call->command && strcmp(call->command, "STATUS");
}

/* Has the daemon do it once. A daemon that is stopped or hangs, and so reads nothing, costs the first call BEGIN_SECONDS.
 * That call leaves a note beside the socket. Later calls that find the note wait only a moment for the daemon to begin,
 * and then go on without it. A note that is older than the socket is about an earlier daemon. */
static int call_once(const struct call *call, const char *path, struct refusal *refusal)
{
    struct stat socket, noted;
    char note[MAX_PATH];
    int hung, hangs, status;

    snprintf(note, sizeof note, "%s.hangs", path);
    hung = stat(note, &noted) == 0 && stat(path, &socket) == 0 && noted.st_mtim.tv_sec >= socket.st_ctim.tv_sec;
    status = call_over(connect_to(path, hung ? GLANCE_MILLISECONDS : SEND_SECONDS * 1000), call,
                       hung ? GLANCE_MILLISECONDS : BEGIN_SECONDS * 1000, refusal);
    hangs = status == NOT_BEGUN && refusal->unread;
    if (hung == hangs || (status == NOT_BEGUN && !refusal->hangs))
        return status;
    unlink(note);
    if (!hung)
        close(open(note, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    return status;
}

/* Has the daemon do it. In Kubernetes the daemon is a pod, and no Python of the node has weft: the first pods of a node
 * come before the daemon, and some come while another one takes its place, which hangs up on those that it has not begun.
 * They wait, because kubelet tries again only after ten seconds. */
static int call_daemon(const struct call *call, const char *path, struct refusal *refusal)
{
    long long end = now() + COMING_SECONDS * 1000LL;
    int status;

    for (;;) {
        status = call_once(call, path, refusal);
        if (status != NOT_BEGUN || refusal->hangs || !is_work(call) || names_interpreter() || now() >= end)
            return status;
        usleep(LOOK_MICROSECONDS);
    }
}

/* Has a stand-in of the daemon do it. One that dies before it has begun is replaced, here or by another client. */
static int call_standin(const struct call *call, const char *daemon, const char *why)
{
    static struct standin one;
    struct refusal refusal = {0, 0, "no time left"};

    server = "weftd's stand-in";
    if (find_standin(&one, daemon, why) < 0)
        return 1;
    for (int left = ATTEMPTS; left && !*last_words(&one) && now() < deadline; left--) {
        int connection = connect_standin(&one), status;
        if (connection < 0 && (errno == ENOENT || errno == ECONNREFUSED)) {
            if (start_standin(&one, why) < 0)
                return 1;
            connection = connect_standin(&one);
        }
        status = call_over(connection, call, START_SECONDS * 1000, &refusal);
        if (status != NOT_BEGUN)
            return status;
        if (refusal.hangs) {
            forget_standin(&one);
            break;
        }
    }
    if (*last_words(&one))
        return fail(CODE_AGAIN, "weftd does not answer (%s), and its stand-in has ended: %s", why, last_words(&one));
    return fail(CODE_AGAIN, "weftd does not answer (%s), nor does its stand-in (%s)%s", why, refusal.why,
                call->lost ? "" : ": nothing was done, call it again");
}

/* Has the daemon do it, else a stand-in; the exit status, or LOST. */
static int call_any(const struct call *call, const char *path)
{
    static char why[256];
    struct refusal refusal;
    int status;

    server = "weftd";
    status = call_daemon(call, path, &refusal);
    if (status != NOT_BEGUN)
        return status;
    if (!call->lost)
        return call_standin(call, path, refusal.why);
    snprintf(why, sizeof why, "%s, after it had begun: %s", refusal.why, what_then(call));
    return call_standin(call, path, why);
}

/* Has it done, and again if the server dies in the middle. DEL, CHECK and GC finish what was left undone. An ADD brings
 * along when this call began, so that the next server first removes what is younger (`_undo_lost` in
 * weft/cni/sdk/startup.py). A server that lives and has only closed the connection keeps the container's turn until it has
 * undone its work. A delegate's call is not repeated: the call that has started the delegate is repeated as a whole. */
static int call_again(struct call *call, const char *path)
{
    long long end = now() + REPEAT_SECONDS * 1000LL;
    struct timespec called = {0};
    int status;

    deadline = now() + TOTAL_SECONDS * 1000LL;
    clock_gettime(CLOCK_REALTIME_COARSE, &called); /* the clock of files */
    snprintf(call->called, sizeof call->called, CALLED_VARIABLE "=%lld%09ld", (long long)called.tv_sec, called.tv_nsec);
    status = call_any(call, path);
    for (int left = ATTEMPTS; status == LOST && left && now() < end && !getenv(TURN_VARIABLE); left--) {
        call->lost = 1;
        status = call_any(call, path);
    }
    return status == LOST ? unanswered(call, ECONNRESET) : status;
}

int main(int argc, char **argv)
{
    const char *path = getenv("WEFT_CNI_SOCKET"), *slash = argc > 0 ? strrchr(argv[0], '/') : NULL;
    const char *name = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    struct call call = {.command = getenv("CNI_COMMAND")};

    open_standard_streams();
    if (!*name || strlen(name) >= MAX_NAME)
        return fail(CODE_AGAIN, "unknown plugin name");
    call.plugin = plugin_of(name);
    if (call.command && !strcmp(call.command, "VERSION"))
        return print_versions(call.plugin);
    /* Called by hand without CNI_COMMAND a plugin says what it is; it does not wait for a terminal. All input is there
     * before the daemon is asked, which waits for no client. */
    if (call.command && *call.command)
        call.problem = read_input(&call.input);
    signal(SIGPIPE, SIG_IGN);
    return call_again(&call, path && *path ? path : WEFT_SOCKET);
}
