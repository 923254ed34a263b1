/* The first process of weft's container: runs weftd, which lies beside it, and starts it again at once after a crash.
 *
 * A container that ends waits for the kubelet, the second time for ten seconds and then for ever longer; and with it go
 * the processes that carry packets (forward/relay, charon). So a daemon that is killed, or that fails after it has run
 * for a while, is started here; one that fails as it starts would fail again, and is the kubelet's to report.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    MAX_PATH = 4096,
    STARTED_SECONDS = 10,       /* a daemon that fails earlier has not started */
    CRASHES = 5,                /* so many within CRASH_SECONDS are answered; after the next one the container ends */
    CRASH_SECONDS = 60,
    CANNOT_RUN = 127,           /* as a shell has it */
    SIGNALLED = 128,
};

static const int passed[] = {SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2};

static time_t seconds(void)
{
    struct timespec now = {0};

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec;
}

/* Puts the path of the program beside this one into `out`. */
static void find_daemon(char out[MAX_PATH])
{
    static const char name[] = "/weftd";
    ssize_t size = readlink("/proc/self/exe", out, MAX_PATH - sizeof name);
    char *slash;

    out[size < 0 ? 0 : size] = '\0';
    slash = strrchr(out, '/');
    strcpy(slash ? slash : out, name);
}

static pid_t start(const char *program, char **argv, const sigset_t *usual)
{
    pid_t child = fork();

    if (child < 0)
        dprintf(2, "weft-init: fork: %s\n", strerror(errno));
    if (child)
        return child;
    sigprocmask(SIG_SETMASK, usual, NULL);
    execv(program, argv);
    dprintf(2, "weft-init: %s cannot be run: %s\n", program, strerror(errno));
    _exit(CANNOT_RUN);
}

/* Passes signals on and reaps, until the daemon has ended; its status. `stopping` becomes one when it was asked to. */
static int follow(pid_t daemon, const sigset_t *awaited, int *stopping)
{
    for (;;) {
        int number = sigwaitinfo(awaited, NULL), status;
        pid_t ended;

        if (number > 0 && number != SIGCHLD) {
            *stopping |= number == SIGTERM || number == SIGINT || number == SIGQUIT;
            kill(daemon, number);
        }
        while ((ended = waitpid(-1, &status, WNOHANG)) > 0)
            if (ended == daemon)
                return status;
    }
}

/* Notes a crash; how many there have been within CRASH_SECONDS. */
static int count_crash(time_t now)
{
    static time_t crashes[CRASHES + 1];
    int count = 0;

    memmove(crashes + 1, crashes, CRASHES * sizeof *crashes);
    crashes[0] = now + 1; /* 0 is none */
    for (int i = 0; i <= CRASHES; i++)
        count += crashes[i] && crashes[i] > now - CRASH_SECONDS;
    return count;
}

int main(int argc, char **argv)
{
    static char program[MAX_PATH];
    sigset_t awaited, usual;
    int stopping = 0;

    (void)argc;
    find_daemon(program);
    sigemptyset(&awaited);
    sigaddset(&awaited, SIGCHLD);
    for (size_t i = 0; i < sizeof passed / sizeof *passed; i++)
        sigaddset(&awaited, passed[i]);
    sigprocmask(SIG_BLOCK, &awaited, &usual);
    argv[0] = program;
    for (;;) {
        time_t began = seconds(), ran;
        pid_t daemon = start(program, argv, &usual);
        int status, code, count;
        char how[64];

        if (daemon < 0)
            return CANNOT_RUN;
        status = follow(daemon, &awaited, &stopping);
        ran = seconds() - began;
        code = WIFSIGNALED(status) ? SIGNALLED + WTERMSIG(status) : WEXITSTATUS(status);
        if (stopping || (!WIFSIGNALED(status) && ran < STARTED_SECONDS))
            return code;
        if (WIFSIGNALED(status))
            snprintf(how, sizeof how, "was ended by signal %d (%s)", WTERMSIG(status), strsignal(WTERMSIG(status)));
        else
            snprintf(how, sizeof how, "ended with status %d", code);
        count = count_crash(seconds());
        if (count > CRASHES) {
            dprintf(2, "weft-init: weftd %s after %lld s, the %dth time within %d s: the container ends\n", how,
                    (long long)ran, count, CRASH_SECONDS);
            return code;
        }
        dprintf(2, "weft-init: weftd %s after %lld s; it is started again\n", how, (long long)ran);
    }
}
