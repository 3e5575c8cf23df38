#include "config/json.h"

#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Some editors put it at the beginning of a file, where it is invisible. */
#define BYTE_ORDER_MARK "\xef\xbb\xbf"

/* Keeps the end of the path, which says more than its beginning; an error text is short. */
void sw_json_name(char ret[SW_JSON_NAME_BYTES], const char *path) {
    const size_t length = strlen(path), most = SW_JSON_NAME_BYTES - sizeof "...";
    (void)snprintf(ret, SW_JSON_NAME_BYTES, "%s%s", length > most ? "..." : "",
                   length > most ? path + length - most : path);
}

/* Opens a regular file. On NULL, errno says why; 0: it is no regular file. */
static FILE *open_file(const char *path) {
    struct stat found;
    const int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    const bool is_file = fd >= 0 && fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    FILE *file = is_file ? fdopen(fd, "r") : NULL;
    if (fd >= 0 && !file) {
        (void)close(fd);
        errno = is_file ? ENOMEM : 0;
    }
    return file;
}

int sw_json_load(struct json_t **ret, const char *path, bool waits, struct sw_err *err) {
    char name[SW_JSON_NAME_BYTES];
    sw_json_name(name, path);
    FILE *file = waits ? fopen(path, "re") : open_file(path);
    if (!file && !errno)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s: cannot be read again: not a regular file", name);
    if (!file) {
        int rc = sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "%s: %s", name, strerror(errno));
        return sw_err_detail(err, "fopen"), rc;
    }
    json_error_t where;
    errno = 0;
    json_t *value = json_loadf(file, JSON_REJECT_DUPLICATES, &where);
    const int read_error = ferror(file) ? errno : 0;
    (void)fclose(file);
    if (value && !read_error) {
        *ret = value;
        return 0;
    }
    json_decref(value);
    if (!read_error && where.line == 1 && strstr(where.text, BYTE_ORDER_MARK))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s:1: begins with a byte order mark (BOM): remove it",
                          name);
    if (!read_error)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s:%d: %s", name, where.line, where.text);
    int rc = sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "%s: %s", name, strerror(read_error));
    return sw_err_detail(err, "fread"), rc;
}

void sw_json_context(struct sw_err *err, const char *path) {
    char name[SW_JSON_NAME_BYTES];
    sw_json_name(name, path);
    sw_err_context(err, "%s", name);
}
