/* What the daemon cannot open itself: the container's namespace is known by a path that means something here only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "weft.h"

/* linux/magic.h, linux/nsfs.h and linux/netlink.h, which musl's compiler wrapper does not see. */
#define NSFS_MAGIC 0x6e736673
#define NS_GET_NSTYPE 0xb703
#define PROC_SUPER_MAGIC 0x9fa0
#define NETLINK_ROUTE 0

#define SETTINGS "/proc/sys/net"

/* The namespaces of this process and, once it was entered, of the container. They stay open as long as this process. */
static int own = -1, container = -1, route = -1; /* and a socket in the latter */

/* They work in the host's namespace alone: the container's is named to them and not entered. The same choice is made
 * in weft/cni/host/sysctls.py. */
static const char *const outside[] = {"firewall", "host-local", "portmap", "static", NULL};

static int is_outside(const char *plugin)
{
    for (const char *const *one = outside; *one; one++)
        if (!strcmp(plugin, *one))
            return 1;
    return 0;
}

static void add(struct descriptors *out, const char *name, int fd)
{
    size_t used = strlen(out->names), room = sizeof out->names - used;

    if (fd < 0)
        return;
    if (out->count == MAX_FDS || strlen(name) + 2 > room) {
        close(fd);
        return;
    }
    snprintf(out->names + used, room, "%s%s", used ? " " : "", name);
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
    fd = open(path, O_RDONLY | O_CLOEXEC); /* never a FIFO: nothing of these file systems is one */
    if (fd < 0)
        problem(out, "open");
    return fd;
}

/* Adds the namespace of a plugin that does not enter it, unless it could not be entered. */
static void name_only(struct descriptors *out, int netns)
{
    if (ioctl(netns, NS_GET_NSTYPE) == CLONE_NEWNET) {
        add(out, "netns-only", netns);
        return;
    }
    errno = EINVAL;
    problem(out, "setns");
}

/* Leaves the container's namespace: delegates run in the caller's. If this failed they would run in the container's. */
static void return_home(void)
{
    if (setns(own, CLONE_NEWNET) < 0)
        _exit(fail(CODE_AGAIN, "cannot return to the host's network namespace: %s", strerror(errno)));
}

void collect(struct descriptors *out, const char *plugin, const char *netns)
{
    int there;

    own = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    add(out, "own", own);
    add(out, "root", open("/", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (own < 0 || !netns || !*netns)
        return;
    there = open_netns(out, netns);
    if (there < 0)
        return;
    if (is_outside(plugin)) {
        name_only(out, there);
        return;
    }
    if (setns(there, CLONE_NEWNET) < 0) {
        problem(out, "setns");
        return;
    }
    container = there;
    add(out, "netns", container);
    add(out, "route", route = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    return_home();
}

void renew_route(void)
{
    int fresh;

    if (route < 0 || setns(container, CLONE_NEWNET) < 0)
        return;
    fresh = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    return_home();
    if (fresh < 0)
        return;
    dup3(fresh, route, O_CLOEXEC);
    close(fresh);
}

/* Opens one directory of the container's settings; -1 with errno set. A descriptor of /proc/sys/net itself would resolve
 * in the namespace of the process that uses it, so that the daemon would change the host's settings through it. */
static int open_settings(const char *name)
{
    char path[sizeof SETTINGS + MAX_NAME];
    int fd, error;

    errno = ENOENT;
    if (container < 0 || name[0] == '.' || strchr(name, '/'))
        return -1;
    snprintf(path, sizeof path, SETTINGS "/%s", name);
    if (setns(container, CLONE_NEWNET) < 0)
        return -1;
    fd = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    error = errno;
    return_home();
    errno = error;
    return fd;
}

int send_settings(int connection, const struct frame *asked)
{
    struct descriptors found = {0};
    char name[MAX_NAME], status[16] = "0";
    struct span answer;
    int sent;

    errno = EBADMSG;
    if (asked->count != 1 || copy_text(name, sizeof name, asked->fields[0]) < 0)
        return -1;
    found.fds[0] = open_settings(name);
    if (found.fds[0] >= 0)
        found.count = 1;
    else
        snprintf(status, sizeof status, "%d", errno);
    answer = text(status);
    sent = frame_send(connection, OPENED, &answer, 1, &found);
    if (found.count)
        close(found.fds[0]);
    return sent;
}
