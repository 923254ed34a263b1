/* Delegates: programs of CNI_PATH that are not ours. Only this process sees the host's files and environment. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "weft.h"

enum {
    MAX_ENVIRONMENT = 4096,     /* variables */
    MAX_CHANGES = 16 << 10,     /* bytes of changes */
    BUSY_RETRIES = 5,           /* as the reference: "text file busy" is tried again five times, a second apart */
    MAX_LOST = 16 << 20,        /* bytes that are dropped before a program counts as one that prints for ever */
    LINGER_SECONDS = 1,         /* how long what others write who have its pipes is read after its end */
    EXIT_TOO_MUCH = 125,        /* exit statuses for what never came to an exit of its own, as shells use them */
    EXIT_NO_EXEC = 126,
    EXIT_SIGNAL = 128,
};

/* What is watched while a delegate runs: its streams, its end, and the connection to the daemon. */
enum { INPUT, OUTPUT, LOG, CHILD, DAEMON, WATCHED };

extern char **environ;

/* A delegate's output. What does not fit is read and dropped, and counted in `lost`. */
struct sink {
    size_t size, limit, lost;
    unsigned char *data;
};

static unsigned char out_bytes[MAX_PAYLOAD - MAX_STDERR - 64], log_bytes[MAX_STDERR];
static char *environment[MAX_ENVIRONMENT + 1];
static char changes[MAX_CHANGES];

/* Finds a regular file named `name` (symbolic links followed, execute bit not looked at) in CNI_PATH. */
static int find(char *path, const char *name)
{
    const char *directory = getenv("CNI_PATH");

    if (strchr(name, '/') || !strcmp(name, ".") || !strcmp(name, ".."))
        return -1;
    while (directory && *directory) {
        size_t size = strcspn(directory, ":");
        struct stat status;
        if (size > 0 && size + 1 + strlen(name) < MAX_PATH) {
            snprintf(path, MAX_PATH, "%.*s/%s", (int)size, directory, name);
            if (stat(path, &status) == 0 && S_ISREG(status.st_mode))
                return 0;
        }
        directory += size + (directory[size] == ':');
    }
    return -1;
}

static int same_variable(const char *a, const char *b)
{
    size_t size = strcspn(a, "=");

    return size == strcspn(b, "=") && !strncmp(a, b, size);
}

/* Sets one variable, `K=V`; -1 with EMSGSIZE where there is no room. */
static int set_variable(size_t *count, char *entry)
{
    size_t at = 0;

    while (at < *count && !same_variable(environment[at], entry))
        at++;
    if (at == MAX_ENVIRONMENT) {
        errno = EMSGSIZE;
        return -1;
    }
    environment[at] = entry;
    *count += at == *count;
    return 0;
}

/* The environment of this process with the changes from `fields`; -1 with EMSGSIZE or EBADMSG. */
static int make_environment(const struct span *fields, int count)
{
    size_t variables = 0, used = 0;

    for (; environ[variables]; variables++) {
        if (variables == MAX_ENVIRONMENT) {
            errno = EMSGSIZE;
            return -1;
        }
        environment[variables] = environ[variables];
    }
    for (int i = 0; i < count; i++) {
        if (copy_text(changes + used, sizeof changes - used, fields[i]) < 0)
            return -1;
        if (set_variable(&variables, changes + used) < 0)
            return -1;
        used += fields[i].size + 1;
    }
    environment[variables] = NULL;
    return 0;
}

static void set_nonblocking(int fd)
{
    fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

/* Starts `path` once; 0, or a positive errno. The child shares this memory until it is another program. */
static int try_start(pid_t *child, const char *path, char *name, int pipes[3][2])
{
    char *argv[] = {name, NULL};
    volatile int error = 0;

    *child = vfork();
    if (*child < 0)
        return errno;
    if (*child == 0) {
        /* SIGPIPE is ignored in this process; a program that we start must not inherit that. */
        signal(SIGPIPE, SIG_DFL);
        if (dup2(pipes[0][0], 0) == 0 && dup2(pipes[1][1], 1) == 1 && dup2(pipes[2][1], 2) == 2)
            execve(path, argv, environment);
        error = errno;
        _exit(1);
    }
    if (error)
        waitpid(*child, NULL, 0);
    return error;
}

/* Starts `path` with pipes[0], [1], [2] as its three streams; 0 or a positive errno. */
static int start(pid_t *child, const char *path, char *name, int pipes[3][2])
{
    int error = try_start(child, path, name, pipes);

    for (int i = 0; error == ETXTBSY && i < BUSY_RETRIES; i++) {
        sleep(1);
        error = try_start(child, path, name, pipes);
    }
    return error;
}

/* Reads once; 0 at the end of the stream. */
static int drain(int fd, struct sink *sink)
{
    static unsigned char spare[4096];
    size_t room = sink->limit - sink->size;
    ssize_t got = read(fd, room ? sink->data + sink->size : spare, room ? room : sizeof spare);

    if (got < 0)
        return errno == EINTR || errno == EAGAIN;
    *(room ? &sink->size : &sink->lost) += (size_t)got;
    return got > 0;
}

/* Writes once; 0 when there is nothing left to write or no reader. */
static int feed(int fd, struct span *input)
{
    ssize_t wrote = write(fd, input->data, input->size);

    if (wrote < 0)
        return errno == EINTR || errno == EAGAIN;
    input->data += wrote;
    input->size -= (size_t)wrote;
    return input->size > 0;
}

long long now(void)
{
    struct timespec time = {0};

    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000LL + time.tv_nsec / 1000000;
}

/* How a conversation with a delegate ends: by itself, because the daemon waits no more, or because it prints for ever. */
enum ending { ENDED, GIVEN_UP, ENDLESS };

/* Moves bytes until the delegate and both of its outputs have ended, or soon after its own end: a process that it has left
 * may hold its pipes for ever. The daemon waits for a delegate in silence, so what it says, its end included, is that it
 * waits no more. */
static enum ending converse(struct pollfd watched[WATCHED], struct span input, struct sink *out, struct sink *log)
{
    enum ending ending = ENDED;
    long long until = 0; /* 0: the delegate runs */

    while (watched[OUTPUT].fd >= 0 || watched[LOG].fd >= 0 || watched[CHILD].fd >= 0) {
        int alive[] = {1, 1, 1, 1};
        long long left = until ? until - now() : -1;
        if (until && left <= 0)
            break;
        if (poll(watched, WATCHED, (int)left) <= 0)
            continue;
        if (watched[DAEMON].revents)
            ending = GIVEN_UP;
        else if (out->lost + log->lost > MAX_LOST)
            ending = ENDLESS;
        if (ending != ENDED)
            break;
        if (watched[INPUT].revents)
            alive[INPUT] = feed(watched[INPUT].fd, &input);
        if (watched[OUTPUT].revents)
            alive[OUTPUT] = drain(watched[OUTPUT].fd, out);
        if (watched[LOG].revents)
            alive[LOG] = drain(watched[LOG].fd, log);
        if (watched[CHILD].revents) {
            alive[CHILD] = 0;
            until = now() + LINGER_SECONDS * 1000LL;
        }
        for (int i = INPUT; i <= CHILD; i++) {
            if (alive[i])
                continue;
            close(watched[i].fd);
            watched[i].fd = -1;
        }
    }
    for (int i = INPUT; i <= CHILD; i++)
        if (watched[i].fd >= 0)
            close(watched[i].fd);
    return ending;
}

static void complain(struct sink *log, const char *path, const char *what)
{
    log->size = (size_t)snprintf((char *)log->data, log->limit, "weft: %.512s: %s\n", path, what);
}

/* A descriptor that can be read once `child` has ended; -1 from a kernel before 5.3. */
static int watch(pid_t child)
{
    return (int)syscall(SYS_pidfd_open, child, 0);
}

/* Runs `path`; returns the exit status that is reported, or -1 if the daemon waits for none: then nothing of it goes on
 * beside what the runtime calls next. */
static int execute(int connection, char *path, char *name, struct span input, struct sink *out, struct sink *log)
{
    int pipes[3][2], error, status;
    enum ending ending;
    pid_t child;

    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            _exit(fail(CODE_AGAIN, "cannot make a pipe: %s", strerror(errno)));
    error = start(&child, path, name, pipes);
    close(pipes[0][0]);
    close(pipes[1][1]);
    close(pipes[2][1]);
    struct pollfd watched[WATCHED] = {
        [INPUT] = {pipes[0][1], POLLOUT, 0},
        [OUTPUT] = {pipes[1][0], POLLIN, 0},
        [LOG] = {pipes[2][0], POLLIN, 0},
        [CHILD] = {error ? -1 : watch(child), POLLIN, 0},
        [DAEMON] = {error ? -1 : connection, POLLIN, 0},
    };
    for (int i = INPUT; i <= LOG; i++)
        set_nonblocking(watched[i].fd);
    if (!input.size) {
        close(watched[INPUT].fd);
        watched[INPUT].fd = -1;
    }
    ending = converse(watched, input, out, log);
    if (error) {
        complain(log, path, strerror(error));
        return EXIT_NO_EXEC;
    }
    if (ending != ENDED)
        kill(child, SIGKILL);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR)
        ;
    if (ending == GIVEN_UP)
        return -1;
    if (ending == ENDLESS || out->lost) {
        out->size = 0;
        complain(log, path, ending == ENDLESS ? "prints without end" : "printed more than fits into an answer");
        return EXIT_TOO_MUCH;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_SIGNAL + WTERMSIG(status);
}

int run_delegate(int connection, const struct frame *run)
{
    struct sink out = {0, sizeof out_bytes, 0, out_bytes}, log = {0, sizeof log_bytes, 0, log_bytes};
    char name[MAX_NAME], path[MAX_PATH], status[16] = "missing";

    errno = EBADMSG;
    if (run->count < 2 || copy_text(name, sizeof name, run->fields[0]) < 0)
        return -1;
    if (make_environment(run->fields + 2, run->count - 2) < 0)
        return -1;
    if (find(path, name) == 0) {
        int ended = execute(connection, path, name, run->fields[1], &out, &log);
        if (ended < 0)
            return 0;
        snprintf(status, sizeof status, "%d", ended);
    }
    struct span answer[] = {text(status), {out.data, out.size}, {log.data, log.size}};
    return frame_send(connection, RAN, answer, 3, NULL);
}
