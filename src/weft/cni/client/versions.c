/* Which plugin this process is, and which versions that speaks. VERSION is answered here, without the daemon: a runtime
 * asks each plugin for it, and the answer never changes. A test compares all of it with what the plugins themselves say
 * (`Plugin` in weft/cni/sdk/startup.py). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "weft.h"

static const char *const versions[] = {"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", NULL};

/* Plugins that do not speak the first ones, and the first one that they do. */
static const struct {
    const char *plugin, *first;
} younger[] = {{"bandwidth", "0.3.0"}, {"firewall", "0.4.0"}, {NULL, NULL}};

static const char *const plugins[] = {"bandwidth", "bridge", "firewall", "flannel", "host-local", "loopback",
                                      "portmap",   "ptp",    "sbr",      "static",  "tuning",     NULL};

/* What `weft cni install` writes behind the program, and then the plugin's name and a newline (executables.py). */
static const char mark[] = "\nweft plugin: ";

static const char *known(const char *name)
{
    for (const char *const *plugin = plugins; *plugin; plugin++)
        if (!strcmp(*plugin, name))
            return *plugin;
    return NULL;
}

/* The plugin that this file was installed as, NULL if it does not say. */
static const char *written(void)
{
    char tail[MAX_NAME + sizeof mark] = "", *name;
    int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    ssize_t size = -1;

    if (file < 0)
        return NULL;
    if (lseek(file, -(off_t)(sizeof tail - 1), SEEK_END) >= 0)
        size = read(file, tail, sizeof tail - 1);
    close(file);
    if (size <= 0 || tail[size - 1] != '\n')
        return NULL;
    tail[size - 1] = '\0';
    for (name = tail + size - 1; name > tail && name[-1] && name[-1] != '\n';)
        name--;
    return strncmp(name, mark + 1, sizeof mark - 2) ? NULL : known(name + sizeof mark - 2);
}

const char *plugin_of(const char *name)
{
    const char *plugin = known(name);

    if (!plugin)
        plugin = written();
    return plugin ? plugin : name;
}

int print_versions(const char *plugin)
{
    char answer[256];
    const char *const *version = versions;
    size_t used;

    for (int i = 0; younger[i].plugin; i++)
        while (!strcmp(plugin, younger[i].plugin) && strcmp(*version, younger[i].first))
            version++;
    used = (size_t)snprintf(answer, sizeof answer, "{\"cniVersion\":\"1.1.0\",\"supportedVersions\":[\"%s\"", *version);
    while (*++version)
        used += (size_t)snprintf(answer + used, sizeof answer - used, ",\"%s\"", *version);
    used += (size_t)snprintf(answer + used, sizeof answer - used, "]}\n");
    return write_all(1, answer, used) < 0;
}
