/* CNI error objects: four spaces of indentation, no newline at the end, as the reference plugins print them. */
#include <stdarg.h>
#include <stdio.h>

#include "weft.h"

enum { MAX_MESSAGE = 1024, ESCAPED = 6 };

/* Writes `message` as the inside of a JSON string. What is not printable ASCII becomes \u00XX: a path may hold bytes
 * that are no UTF-8, and an unreadable error object would be worse than an ugly one. */
static void escape(char *out, size_t size, const char *message)
{
    size_t used = 0;

    for (; *message && used + ESCAPED < size; message++) {
        unsigned char byte = (unsigned char)*message;
        if (byte == '"' || byte == '\\')
            used += (size_t)snprintf(out + used, size - used, "\\%c", byte);
        else if (byte < 0x20 || byte > 0x7e)
            used += (size_t)snprintf(out + used, size - used, "\\u%04x", byte);
        else
            out[used++] = (char)byte;
    }
    out[used] = '\0';
}

int fail(unsigned code, const char *format, ...)
{
    static char message[MAX_MESSAGE], escaped[MAX_MESSAGE * ESCAPED + 1], object[sizeof escaped + 64];
    va_list arguments;
    int size;

    va_start(arguments, format);
    vsnprintf(message, sizeof message, format, arguments);
    va_end(arguments);
    escape(escaped, sizeof escaped, message);
    size = snprintf(object, sizeof object, "{\n    \"code\": %u,\n    \"msg\": \"%s\"\n}", code, escaped);
    write_all(1, object, (size_t)size);
    return 1;
}
