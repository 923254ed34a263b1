/* No daemon: one process stands in for it, with the same code, and serves every call of the node until none comes. The
 * first client that finds neither starts it, on a socket that it listens on already, so that others can queue there.
 *
 * The socket's name in the daemon's directory says for whom it is: who sees other files or another network, has another
 * installation or other state, looks for another name. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include "weft.h"

enum {
    BACKLOG = 1024,
    LISTENING = 3,              /* the stand-in's descriptor of the socket */
    MOST_OPEN = 1024,           /* what is closed where the kernel does not know close_range, before 5.9 */
    ABOVE = 16,                 /* no descriptor that is put somewhere else */
    LOCK_MICROSECONDS = 1000,   /* between two looks */
    SIGNALS = 65,               /* one more than there are */
};

/* FNV-1a. No adversary chooses what goes in: all of it is root's. */
static void mix(uint64_t *hash, const void *data, size_t size)
{
    for (const unsigned char *at = data; size--; at++)
        *hash = (*hash ^ *at) * 0x100000001b3;
}

/* Which file it is, and of what age unless that changes with what lies in it. */
static void mix_file(uint64_t *hash, const struct stat *status, int aged)
{
    mix(hash, &status->st_dev, sizeof status->st_dev);
    mix(hash, &status->st_ino, sizeof status->st_ino);
    if (aged)
        mix(hash, &status->st_ctim, sizeof status->st_ctim);
}

/* What a stand-in may use, whatever the client that starts it may; less where the client may never have so much. */
static const struct { int which; rlim_t least, most; const char *what; } limits[] = {
    {RLIMIT_NOFILE, 156, 1 << 16, "descriptors (LimitNOFILE)"}, /* LEAST_DESCRIPTORS in serve/server.py */
    {RLIMIT_FSIZE, 1 << 20, RLIM_INFINITY, "bytes of a file (LimitFSIZE)"},
    {RLIMIT_AS, 256 << 20, RLIM_INFINITY, "bytes of memory (LimitAS)"},
    {RLIMIT_DATA, 64 << 20, RLIM_INFINITY, "bytes of data (LimitDATA)"},
    {RLIMIT_CPU, 60, RLIM_INFINITY, "seconds of a processor (LimitCPU)"},
    {RLIMIT_NPROC, 16, RLIM_INFINITY, "processes of a user (LimitNPROC)"},
    {RLIMIT_STACK, 1 << 20, 8 << 20, "bytes of a stack (LimitSTACK)"},
    {RLIMIT_MEMLOCK, 0, RLIM_INFINITY, "bytes of locked memory (LimitMEMLOCK)"},
};
enum { LIMITS = sizeof limits / sizeof *limits };

static struct rlimit limit_of(size_t number)
{
    rlim_t most = limits[number].most;
    struct rlimit has = {most, most};

    getrlimit(limits[number].which, &has);
    has.rlim_cur = has.rlim_max < most ? has.rlim_max : most;
    return has;
}

/* Tells by trying whether a stand-in may raise a limit, as root may with CAP_SYS_RESOURCE outside of a user namespace. */
static int may_raise(size_t number)
{
    struct rlimit has, all = {limits[number].most, limits[number].most};

    return getrlimit(limits[number].which, &has) == 0 && setrlimit(limits[number].which, &all) == 0 &&
           setrlimit(limits[number].which, &has) == 0;
}

/* The first limit of this client's that is, and stays, too low to serve anybody; LIMITS if there is none. */
static size_t too_low(void)
{
    size_t number = 0;

    while (number < LIMITS && (limit_of(number).rlim_cur >= limits[number].least || may_raise(number)))
        number++;
    return number;
}

/* Mixes in what a client cannot give to what it starts: limits, rights, and the group whose limits hold for both. */
static void mix_bounds(uint64_t *hash)
{
    /* linux/capability.h: _LINUX_CAPABILITY_VERSION_3 of this process; effective, permitted, inheritable, twice. */
    uint32_t header[2] = {0x20080522, 0}, rights[6] = {0};
    char group[4096];
    int file = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC), right = 0, others[2];
    ssize_t size = file < 0 ? 0 : read(file, group, sizeof group);

    for (size_t i = 0; i < LIMITS; i++) {
        struct rlimit limit = limit_of(i);
        mix(hash, &limit.rlim_cur, sizeof limit.rlim_cur);
    }
    syscall(SYS_capget, header, rights);
    mix(hash, rights, sizeof rights);
    for (int number = 0; (right = prctl(PR_CAPBSET_READ, number, 0, 0, 0)) >= 0; number++)
        mix(hash, &right, sizeof right);
    others[0] = prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0);
    others[1] = prctl(PR_GET_SECCOMP, 0, 0, 0, 0);
    mix(hash, others, sizeof others);
    mix(hash, group, size < 0 ? 0 : (size_t)size);
    if (file >= 0)
        close(file);
}

/* What of a client's environment its stand-in gets: which state directory is the node's, and which file locks iptables'
 * tables, so that all programs of the node take one lock. */
static const char *const passed[] = {"WEFT_STATE_DIR", "XTABLES_LOCKFILE"};
enum { PASSED = sizeof passed / sizeof *passed };
static const char *environment[PASSED + 3] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
                                              "MALLOC_ARENA_MAX=1"}; /* each further one takes 64 MB of LimitAS */

/* Names the stand-in after all that it takes over from the client that starts it: namespaces, the root, the installation,
 * settings, and what it may do. Another client with other bounds has another stand-in. */
static void name(struct standin *one)
{
    static const char *const here[] = {"/proc/self/ns/mnt", "/proc/self/ns/net", "/proc/self/ns/user", "/"};
    uint64_t hash = 0xcbf29ce484222325;
    struct stat status;

    for (size_t i = 0; i < sizeof here / sizeof *here; i++)
        if (stat(here[i], &status) == 0)
            mix_file(&hash, &status, 0);
    mix_file(&hash, &one->interpreter.status, 1);
    if (fstatat(one->opened, "state-dir", &status, AT_SYMLINK_NOFOLLOW) == 0)
        mix_file(&hash, &status, 1);
    for (size_t i = 0, count = 2; i < PASSED; i++) {
        char *set = getenv(passed[i]);
        if (set) {
            set -= strlen(passed[i]) + 1; /* NAME=VALUE is what stands there */
            mix(&hash, set, strlen(set));
            environment[count++] = set;
        }
    }
    mix_bounds(&hash);
    snprintf(one->name, sizeof one->name, "standin-%016llx", (unsigned long long)hash);
}

/* Tells whether a directory has nothing in it but itself and the one above. */
static int is_empty(int directory)
{
    static struct {
        uint64_t inode;
        int64_t next;
        unsigned short size;
        unsigned char type;
        char name[1005];
    } entry; /* getdents64(2): room for the first entries, of which a third is enough */
    long left = syscall(SYS_getdents64, directory, &entry, sizeof entry);
    const char *at = (const char *)&entry;
    int count = 0;

    for (; left > 0; count++) {
        unsigned short size;

        memcpy(&size, at + offsetof(__typeof__(entry), size), sizeof size);
        at += size;
        left -= size;
    }
    return left == 0 && count == 2;
}

/* A kubelet makes the directories of a pod's manifest, for all to see. Such a one that nobody has used is closed, as the
 * daemon does it; any other may be somebody's. */
static int is_closed(int directory, const struct stat *status)
{
    if (!(status->st_mode & (S_IRWXG | S_IRWXO)))
        return 1;
    return !(status->st_mode & (S_IWGRP | S_IWOTH)) && is_empty(directory) && fchmod(directory, 0700) == 0;
}

/* Opens the directory of the daemon's socket, made if missing; NULL, or what is wrong with it. */
static const char *open_directory(struct standin *one, const char *daemon)
{
    struct stat status;
    char *slash;

    errno = ENAMETOOLONG;
    if (strlen(daemon) >= MAX_PATH)
        return strerror(errno);
    strcpy(one->directory, strchr(daemon, '/') ? daemon : ".");
    slash = strrchr(one->directory, '/');
    if (slash)
        slash[slash == one->directory] = '\0';
    for (slash = one->directory; *slash && (slash = strchr(slash + 1, '/')); *slash = '/') {
        *slash = '\0';
        mkdir(one->directory, 0700);
    }
    mkdir(one->directory, 0700);
    one->opened = open(one->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (one->opened < 0 || fstat(one->opened, &status) < 0)
        return strerror(errno);
    if (status.st_uid != 0)
        return "not owned by root";
    if (!is_closed(one->opened, &status))
        return "open to others than root";
    name_of(one->opened, one->directory);
    return NULL;
}

int find_standin(struct standin *out, const char *daemon, const char *why)
{
    const char *wrong;

    out->said = -1;
    if (find_interpreter(&out->interpreter, why))
        return -1;
    wrong = open_directory(out, daemon);
    if (wrong) {
        fail(CODE_AGAIN, "weftd does not answer (%s), and no socket of a stand-in can be in %s: %s", why, out->directory,
             wrong);
        return -1;
    }
    name(out);
    return 0;
}

/* Puts the path of a file in the directory into `path`, whatever the directory is called by now. */
static void path_of(const struct standin *one, const char *suffix, char path[MAX_SOCKET_PATH])
{
    snprintf(path, MAX_SOCKET_PATH, "/proc/self/fd/%d/%s%s", one->opened, one->name, suffix);
}

static ino_t present(const struct standin *one)
{
    struct stat status;

    return fstatat(one->opened, one->name, &status, AT_SYMLINK_NOFOLLOW) == 0 ? status.st_ino : 0;
}

int connect_standin(struct standin *one)
{
    char path[MAX_SOCKET_PATH];

    path_of(one, "", path);
    one->seen = present(one);
    return connect_to(path, SEND_SECONDS * 1000);
}

/* Becomes the interpreter. Nothing of the caller's is kept: a runtime waits until nothing has its pipes open. */
static _Noreturn void become(const struct standin *one, int listener)
{
    static char path[MAX_PATH + sizeof one->name + 1];
    const char *const arguments[] = {one->interpreter.path, "-I", "-m", "weft.cni", path, NULL};
    int kept = fcntl(listener, F_DUPFD, ABOVE), said = fcntl(one->said, F_DUPFD, ABOVE), null;
    sigset_t none;

    setsid();
    umask(022);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    for (int number = 1; number < SIGNALS; number++)
        signal(number, SIG_DFL);
    for (size_t i = 0; i < LIMITS; i++) {
        struct rlimit limit = limit_of(i), all = {limits[i].most, limits[i].most};
        if (setrlimit(limits[i].which, &all) < 0)
            setrlimit(limits[i].which, &limit);
    }
    null = open("/dev/null", O_RDWR);
    if (null < 0 || kept < 0 || said < 0 || chdir("/") < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 ||
        dup2(said, 2) < 0 || dup2(kept, LISTENING) < 0)
        _exit(1);
    if (syscall(SYS_close_range, LISTENING + 1, ~0U, 0) < 0)
        for (int fd = LISTENING + 1; fd < MOST_OPEN; fd++)
            close(fd);
    snprintf(path, sizeof path, "%s/%s", one->directory, one->name);
    execve(one->interpreter.path, (char *const *)(uintptr_t)arguments, (char *const *)(uintptr_t)environment);
    dprintf(2, "%s, named in %s, cannot be executed: %s", one->interpreter.path, one->interpreter.settings,
            strerror(errno));
    _exit(1);
}

/* Listens under a name that nothing looks for, and takes over the right one: what has it is listened on. -1 with errno
 * set. */
static int listen_there(const struct standin *one)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char fresh[sizeof one->name + 4];
    int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);

    snprintf(fresh, sizeof fresh, "%s.new", one->name);
    unlinkat(one->opened, fresh, 0);
    path_of(one, ".new", address.sun_path);
    if (listener >= 0 && bind(listener, (struct sockaddr *)&address, sizeof address) == 0 &&
        listen(listener, BACKLOG) == 0 && renameat(one->opened, fresh, one->opened, one->name) == 0)
        return listener;
    if (listener >= 0)
        close(listener);
    return -1;
}

/* Starts one in the place of what has the name; 0, or -1 with errno set. */
static int start(struct standin *one)
{
    int listener = listen_there(one);
    pid_t child;

    if (listener < 0)
        return -1;
    if (one->said >= 0)
        close(one->said);
    one->said = memfd_create("weft-standin", MFD_CLOEXEC);
    child = one->said < 0 ? -1 : vfork();
    if (child == 0)
        become(one, listener);
    close(listener);
    return child < 0 ? -1 : 0;
}

/* Takes the lock under which a stand-in gets its name: the directory's own. -1 with errno set. */
static int lock(const struct standin *one)
{
    for (int left = SEND_SECONDS * (1000000 / LOCK_MICROSECONDS); flock(one->opened, LOCK_EX | LOCK_NB) < 0; left--) {
        if (errno != EWOULDBLOCK || !left)
            return -1;
        usleep(LOCK_MICROSECONDS);
    }
    return 0;
}

int start_standin(struct standin *one, const char *why)
{
    size_t low = too_low();
    int started = 0, error;

    if (check_interpreter(&one->interpreter, why))
        return -1;
    if (low < LIMITS) {
        fail(CODE_AGAIN, "HOST-002: weftd does not answer (%s), and nothing can stand in for it by the limits of the "
             "runtime that calls: %llu %s; expected %llu or more", why, (unsigned long long)limit_of(low).rlim_cur,
             limits[low].what, (unsigned long long)limits[low].least);
        return -1;
    }
    if (lock(one) < 0) {
        fail(CODE_AGAIN, "weftd does not answer (%s), and %s is locked by another process: %s", why, one->directory,
             strerror(errno));
        return -1;
    }
    if (present(one) == one->seen)
        started = start(one);
    error = errno;
    flock(one->opened, LOCK_UN);
    if (started < 0)
        fail(CODE_AGAIN, "weftd does not answer (%s), and a stand-in cannot be started in %s: %s", why, one->directory,
             strerror(error));
    return started;
}

void forget_standin(const struct standin *one)
{
    if (lock(one) < 0)
        return;
    if (present(one) == one->seen)
        unlinkat(one->opened, one->name, 0);
    flock(one->opened, LOCK_UN);
}

const char *last_words(const struct standin *one)
{
    static char words[512];
    struct stat status;
    ssize_t size;
    char *line;

    if (one->said < 0 || fstat(one->said, &status) < 0)
        return "";
    /* Not by its position, which is the one at which the stand-in writes. */
    size = pread(one->said, words, sizeof words - 1, status.st_size < (off_t)sizeof words ? 0
                                                         : status.st_size - (off_t)sizeof words + 1);
    while (size > 0 && words[size - 1] == '\n')
        size--;
    words[size < 0 ? 0 : size] = '\0';
    line = strrchr(words, '\n');
    return line ? line + 1 : words;
}
