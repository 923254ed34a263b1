/* What the daemon cannot open itself: the container's namespace is known by a path that means something here only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "weft.h"

/* linux/magic.h and linux/netlink.h, which musl's compiler wrapper does not see. */
#define NSFS_MAGIC 0x6e736673
#define PROC_SUPER_MAGIC 0x9fa0
#define NETLINK_ROUTE 0

/* Directories, one by one: a descriptor of /proc/sys/net itself resolves in the namespace of whoever uses it, so that
 * the daemon would change the host's settings through it. These keep the namespace in which they were opened. */
static const char *const sysctl_directories[] = {"ipv4", "ipv6", "core"};

static void add(struct descriptors *out, const char *name, int fd)
{
    size_t used = strlen(out->names);

    if (fd < 0 || out->count == MAX_FDS)
        return;
    snprintf(out->names + used, sizeof out->names - used, "%s%s", used ? " " : "", name);
    out->fds[out->count++] = fd;
}

static void problem(struct descriptors *out, const char *step)
{
    snprintf(out->netns_problem, sizeof out->netns_problem, "%s %d", step, errno);
}

/* Opens the namespace after the checks of the reference (spec section 1.18); -1 with `netns_problem` set. */
static int open_netns(struct descriptors *out, const char *path)
{
    struct statfs where;
    int fd;

    if (statfs(path, &where) < 0) {
        problem(out, "statfs");
        return -1;
    }
    if (where.f_type != NSFS_MAGIC && where.f_type != PROC_SUPER_MAGIC) {
        snprintf(out->netns_problem, sizeof out->netns_problem, "magic %lx", (unsigned long)where.f_type);
        return -1;
    }
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        problem(out, "open");
    return fd;
}

static void collect_inside(struct descriptors *out, int netns)
{
    char path[32];

    add(out, "netns", netns);
    add(out, "route", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    for (size_t i = 0; i < sizeof sysctl_directories / sizeof *sysctl_directories; i++) {
        snprintf(path, sizeof path, "/proc/sys/net/%s", sysctl_directories[i]);
        add(out, sysctl_directories[i], open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
    }
}

void collect(struct descriptors *out, const char *netns)
{
    int own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    int inside;

    add(out, "own", own);
    add(out, "root", open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (own < 0 || !netns || !*netns)
        return;
    inside = open_netns(out, netns);
    if (inside < 0)
        return;
    if (setns(inside, CLONE_NEWNET) < 0) {
        problem(out, "setns");
        return;
    }
    collect_inside(out, inside);
    /* Back again: delegates run in the caller's namespace. If this failed they would run in the container's. */
    if (setns(own, CLONE_NEWNET) < 0)
        _exit(fail(CODE_AGAIN, "cannot return to the host's network namespace: %s", strerror(errno)));
}
