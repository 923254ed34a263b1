/* VERSION is answered here, without the daemon: a runtime asks each plugin for it, and the answer never changes. A test
 * compares it with what the plugins themselves say (`Plugin.versions` in weft/cni/sdk/startup.py). */
#include <stdio.h>
#include <string.h>

#include "weft.h"

static const char *const versions[] = {"0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0", NULL};

/* Plugins that do not speak the first ones, and the first one that they do. */
static const struct {
    const char *plugin, *first;
} younger[] = {{"bandwidth", "0.3.0"}, {"firewall", "0.4.0"}, {NULL, NULL}};

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
