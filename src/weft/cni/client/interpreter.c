/* Which Python has weft stands in a file beside the executable, because neither PATH nor the caller's environment may
 * decide what root executes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft.h"

enum { MAX_LINKS = 40 /* path_resolution(7) */ };

static const char not_roots[] = "not owned by root", open_to_others[] = "writable by others than root";

/* Puts `.weft-python` beside this executable into `path`; -1 with errno set. */
static int settings_path(char *path)
{
    static const char name[] = ".weft-python";
    ssize_t size = readlink("/proc/self/exe", path, MAX_PATH - sizeof name);
    char *slash;

    if (size < 0)
        return -1;
    path[size] = '\0';
    slash = strrchr(path, '/');
    if (!slash) {
        errno = ENOENT;
        return -1;
    }
    strcpy(slash + 1, name);
    return 0;
}

/* A link that leads nowhere is there, and refused when it is read. */
static int is_missing(const char *path)
{
    struct stat status;

    return lstat(path, &status) < 0 && errno == ENOENT;
}

int names_interpreter(void)
{
    char path[MAX_PATH];

    return settings_path(path) < 0 || !is_missing(path);
}

/* Reads the interpreter's path; NULL, or what is wrong with the file. */
static const char *read_settings(struct interpreter *out)
{
    char *interpreter = out->path;
    ssize_t size;
    int fd = open(out->settings, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &out->status) < 0)
        return strerror(errno);
    if (!S_ISREG(out->status.st_mode))
        return "not a regular file";
    if (out->status.st_uid != 0)
        return not_roots;
    if (out->status.st_mode & (S_IWGRP | S_IWOTH))
        return open_to_others;
    size = read(fd, interpreter, MAX_PATH);
    close(fd);
    if (size < 0)
        return strerror(errno);
    if (size == MAX_PATH)
        return "too long";
    if (size > 0 && interpreter[size - 1] == '\n')
        size--;
    interpreter[size] = '\0';
    if (interpreter[0] != '/' || strlen(interpreter) != (size_t)size || strpbrk(interpreter, "\n\r"))
        return "does not hold one absolute path";
    return NULL;
}

/* Reads numbers from a small file of procfs; how many there were. */
static int read_numbers(const char *path, unsigned long *out, int most)
{
    char content[128], *at = content, *end;
    int fd = open(path, O_RDONLY | O_CLOEXEC), count = 0;
    ssize_t size = fd < 0 ? -1 : read(fd, content, sizeof content - 1);

    if (fd >= 0)
        close(fd);
    content[size < 0 ? 0 : size] = '\0';
    for (; count < most; at = end, count++) {
        out[count] = strtoul(at, &end, 10);
        if (end == at)
            break;
    }
    return count;
}

/* In a user namespace (a lab of an ordinary user) files of everyone outside show one and the same number, and uid 0 is
 * that user, who runs this interpreter already. Elsewhere the map is the whole one (user_namespaces(7)). */
static int is_roots(uid_t owner)
{
    unsigned long map[3], overflow;

    if (owner == 0 || read_numbers("/proc/self/uid_map", map, 3) != 3 || (map[0] == 0 && map[2] == UINT32_MAX))
        return owner == 0;
    return read_numbers("/proc/sys/kernel/overflowuid", &overflow, 1) == 1 && owner == overflow;
}

/* What is wrong with a directory, link or file on the way to the interpreter; NULL if nobody but root can exchange it or
 * what is in it. To a directory with the sticky bit others may write: nobody can exchange there what is not his. */
static const char *wrong_step(const struct stat *status)
{
    if (!is_roots(status->st_uid))
        return not_roots;
    if (S_ISLNK(status->st_mode) || (S_ISDIR(status->st_mode) && status->st_mode & S_ISVTX))
        return NULL;
    return status->st_mode & (S_IWGRP | S_IWOTH) ? open_to_others : NULL;
}

/* Puts where a link leads before the `rest` of a way; 0, or -1 with errno set. */
static int follow(int link, char *way, const char *rest)
{
    static char target[MAX_PATH];
    ssize_t size = readlinkat(link, "", target, MAX_PATH);

    if (size < 0)
        return -1;
    errno = ENAMETOOLONG;
    if ((size_t)size + 1 + strlen(rest) >= MAX_PATH)
        return -1;
    target[size] = '/';
    strcpy(target + size + 1, rest);
    strcpy(way, target);
    return 0;
}

void name_of(int fd, char *name)
{
    char link[32];
    ssize_t size;

    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    size = readlink(link, name, MAX_PATH - 1);
    name[size < 0 ? 0 : size] = '\0';
}

/* Goes the way to the interpreter step by step as the kernel does, through links too; NULL, or what is wrong with what
 * is then in `where`. A way that is right nobody but root can change before the interpreter is executed. The last
 * descriptors are closed by that, or with this process. */
static const char *check_way(const char *path, char *where)
{
    static char way[MAX_PATH];
    int here = -1, there = open("/", O_PATH | O_CLOEXEC), links = 0;
    char *name, *rest = strcpy(way, path);
    const char *wrong;
    struct stat status;

    strcpy(where, path);
    while (there >= 0 && fstat(there, &status) == 0) {
        wrong = wrong_step(&status);
        if (wrong) {
            name_of(there, where);
            return wrong;
        }
        if (S_ISLNK(status.st_mode)) {
            errno = ELOOP;
            if (++links > MAX_LINKS || follow(there, way, rest) < 0)
                break;
            rest = way;
            there = *way == '/' ? open("/", O_PATH | O_CLOEXEC) : here;
        }
        if (here != there)
            close(here); /* a way may have more steps than a runtime has descriptors */
        here = there;
        name = rest + strspn(rest, "/");
        if (!*name)
            return NULL;
        rest = name + strcspn(name, "/");
        if (*rest)
            *rest++ = '\0';
        there = openat(here, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    }
    return strerror(errno);
}

int find_interpreter(struct interpreter *out, const char *why)
{
    const char *wrong;

    if (settings_path(out->settings) < 0)
        return fail(CODE_AGAIN, "weftd does not answer (%s), and .weft-python cannot be looked for: %s", why,
                    strerror(errno));
    if (is_missing(out->settings))
        return fail(CODE_AGAIN, "weftd does not answer (%s), and without %s nothing stands in for it: see whether it runs",
                    why, out->settings);
    wrong = read_settings(out);
    if (wrong)
        return fail(CODE_AGAIN, "weftd does not answer (%s), and %s cannot be used: %s", why, out->settings, wrong);
    return 0;
}

int check_interpreter(const struct interpreter *one, const char *why)
{
    static char where[MAX_PATH];
    const char *wrong = check_way(one->path, where);

    if (wrong)
        return fail(CODE_AGAIN, "weftd does not answer (%s), and %s, named in %s, cannot be used: %s: %s", why,
                    one->path, one->settings, where, wrong);
    return 0;
}
