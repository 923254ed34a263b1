/* Starts a program of weft's node part, which brings its own dynamic loader and C library, on a node that may have
 * others, or none. Links in bin/ and programs/ lead here; the name by which it is called says which program is meant:
 *
 *   bin/weft-launch         this
 *   bin/NAME, programs/NAME links to it
 *   libexec/NAME            the program, or a script for Python
 *   lib/ld.so, lib/lib…     what loads it, and its libraries
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MAX_PATH = 4096,
    MAX_ADDED = 9,
    NOT_FOUND = 127,            /* as a shell has it */
};

static const char interpreter[] = "python3";

static _Noreturn void fail(const char *what)
{
    dprintf(2, "weft-launch: %s: %s\n", what, strerror(errno));
    _exit(NOT_FOUND);
}

__attribute__((format(printf, 2, 3))) static char *path(char out[MAX_PATH], const char *format, ...)
{
    va_list arguments;
    int size;

    va_start(arguments, format);
    size = vsnprintf(out, MAX_PATH, format, arguments);
    va_end(arguments);
    if (size < 0 || size >= MAX_PATH) {
        errno = ENAMETOOLONG;
        fail(format);
    }
    return out;
}

/* Puts the directory of the node part into `home`: the one above this program's. */
static void find_home(char home[MAX_PATH])
{
    ssize_t size = readlink("/proc/self/exe", home, MAX_PATH - 1);

    if (size < 0)
        fail("/proc/self/exe");
    home[size] = '\0';
    for (int up = 0; up < 2; up++) {
        char *slash = strrchr(home, '/');

        if (slash)
            *slash = '\0';
    }
}

static int is_script(const char *program)
{
    char magic[4] = "";
    int fd = open(program, O_RDONLY | O_CLOEXEC);

    if (fd < 0 || read(fd, magic, sizeof magic) < 0)
        fail(program);
    close(fd);
    return memcmp(magic, "\177ELF", sizeof magic) != 0;
}

int main(int argc, char **argv)
{
    static char home[MAX_PATH], loader[MAX_PATH], libraries[MAX_PATH], extensions[MAX_PATH], program[MAX_PATH],
        python[MAX_PATH], called[MAX_PATH], library_path[] = "--library-path", argv0[] = "--argv0", no_cache[] = "-B",
        isolated[] = "-I";
    const char *slash = argc > 0 ? strrchr(argv[0], '/') : NULL, *name = slash ? slash + 1 : argc > 0 ? argv[0] : "";
    char **with = calloc((size_t)argc + MAX_ADDED, sizeof *with), **at = with;
    int script;

    if (!with)
        fail("calloc");
    find_home(home);
    script = is_script(path(program, "%s/libexec/%s", home, name));
    *at++ = path(loader, "%s/lib/ld.so", home);
    *at++ = library_path;
    *at++ = path(libraries, "%s/lib", home);
    /* By its own path Python finds its modules, and starts others like itself. */
    *at++ = argv0;
    *at++ = path(called, "%s/%s/%s", home, script || !strcmp(name, interpreter) ? "bin" : "programs",
                 script ? interpreter : name);
    *at++ = script ? path(python, "%s/libexec/%s", home, interpreter) : program;
    /* Nothing but an installation writes here. */
    if (script || !strcmp(name, interpreter))
        *at++ = no_cache;
    if (script) {
        *at++ = isolated;
        *at++ = program;
    }
    for (int i = 1; i < argc; i++)
        *at++ = argv[i];
    /* What others have set for their own C library. */
    unsetenv("LD_PRELOAD");
    unsetenv("LD_LIBRARY_PATH");
    unsetenv("LD_AUDIT");
    setenv("XTABLES_LIBDIR", path(extensions, "%s/lib/xtables", home), 1);
    execv(loader, with);
    fail(loader);
}
