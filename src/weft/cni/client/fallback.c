/* No daemon: the same plugin code, in this process. Which interpreter has it stands in a file beside the executable,
 * because neither PATH nor the caller's environment may decide what root executes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "weft.h"

enum { MAX_PATH = 4096 };

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

/* Reads the interpreter's path; NULL, or what is wrong with the file. */
static const char *read_interpreter(const char *path, char *interpreter)
{
    struct stat status;
    ssize_t size;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0 || fstat(fd, &status) < 0)
        return strerror(errno);
    if (!S_ISREG(status.st_mode))
        return "not a regular file";
    if (status.st_uid != 0)
        return "not owned by root";
    if (status.st_mode & (S_IWGRP | S_IWOTH))
        return "writable by others than root";
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

/* Makes `input` the stdin again; 0, or -1 with errno set. */
static int give_back(const struct span *input)
{
    int fd = memfd_create("weft-cni-input", MFD_CLOEXEC), moved = -1;

    if (fd < 0)
        return -1;
    if (write_all(fd, input->data, input->size) == 0 && lseek(fd, 0, SEEK_SET) == 0)
        moved = dup2(fd, 0);
    close(fd);
    return moved;
}

int become_python(const char *plugin, const struct span *input, const char *why)
{
    static char path[MAX_PATH], interpreter[MAX_PATH];
    const char *const arguments[] = {interpreter, "-I", "-m", "weft.cni", plugin, NULL};
    const char *wrong;

    if (settings_path(path) < 0)
        return fail(CODE_AGAIN, "weftd does not answer (%s), and .weft-python cannot be looked for: %s", why,
                    strerror(errno));
    wrong = read_interpreter(path, interpreter);
    if (wrong)
        return fail(CODE_AGAIN, "weftd does not answer (%s), and %s cannot be used: %s", why, path, wrong);
    if (input && give_back(input) < 0)
        return fail(CODE_AGAIN, "weftd does not answer (%s), and the input cannot be passed on: %s", why,
                    strerror(errno));
    execv(interpreter, (char *const *)(uintptr_t)arguments);
    return fail(CODE_AGAIN, "weftd does not answer (%s), and %s, named in %s, cannot be executed: %s", why, interpreter,
                path, strerror(errno));
}
