/* What the daemon cannot open itself: the container's namespace is known by a path that means something here only. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "weft.h"

/* linux/magic.h, linux/nsfs.h and linux/netlink.h, which musl's compiler wrapper does not see. */
#define NSFS_MAGIC 0x6e736673
#define NS_GET_NSTYPE 0xb703
#define PROC_SUPER_MAGIC 0x9fa0
#define NETLINK_ROUTE 0

#define SETTINGS "/proc/sys/net"

/* getdents64(2). Not opendir(3), which allocates and would bring an allocator with it. */
struct entry {
    uint64_t inode;
    int64_t next;
    uint16_t size;
    uint8_t kind;
    char name[];
};

/* They work in the host's namespace alone: the container's is named to them and not entered. The same choice is made
 * in weft/cni/settings.py. */
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
    fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        problem(out, "open");
    return fd;
}

static void add_directory(struct descriptors *out, const char *name)
{
    char path[sizeof SETTINGS + MAX_NAME];

    if (name[0] == '.' || strlen(name) >= MAX_NAME)
        return;
    snprintf(path, sizeof path, SETTINGS "/%s", name);
    add(out, name, open(path, O_PATH | O_DIRECTORY | O_CLOEXEC));
}

/* Adds all directories of settings: this plugin may be told to write to any. */
static void add_all_settings(struct descriptors *out)
{
    static _Alignas(struct entry) char entries[4096];
    int all = open(SETTINGS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    long got;

    if (all < 0)
        return;
    while ((got = syscall(SYS_getdents64, all, entries, sizeof entries)) > 0) {
        for (char *at = entries; at < entries + got;) {
            const struct entry *entry = (const struct entry *)(const void *)at;
            add_directory(out, entry->name);
            at += entry->size;
        }
    }
    close(all);
}

/* Adds directories of settings, one by one: a descriptor of /proc/sys/net itself resolves in the namespace of whoever
 * uses it, so that the daemon would change the host's settings through it. These keep the namespace in which they were
 * opened. Only what the plugin can need: each name is searched for among those of all namespaces of the machine, and
 * to list them costs that for every name there is. The same choice is made in weft/cni/settings.py. */
static void add_settings(struct descriptors *out, const char *plugin)
{
    if (!strcmp(plugin, "tuning")) {
        add_all_settings(out);
        return;
    }
    add_directory(out, "ipv6");
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

static void collect_inside(struct descriptors *out, const char *plugin, int netns)
{
    add(out, "netns", netns);
    add(out, "route", socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    add_settings(out, plugin);
}

void collect(struct descriptors *out, const char *plugin, const char *netns)
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
    if (is_outside(plugin)) {
        name_only(out, inside);
        return;
    }
    if (setns(inside, CLONE_NEWNET) < 0) {
        problem(out, "setns");
        return;
    }
    collect_inside(out, plugin, inside);
    /* Back again: delegates run in the caller's namespace. If this failed they would run in the container's. */
    if (setns(own, CLONE_NEWNET) < 0)
        _exit(fail(CODE_AGAIN, "cannot return to the host's network namespace: %s", strerror(errno)));
}
