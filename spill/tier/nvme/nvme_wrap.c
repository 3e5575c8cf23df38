#include "spill/tier/nvme/nvme_wrap.h"

#include "spill/tier/nvme/nvme_file_ops.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define NEW_FILE "key-wrapped.new"
#define FIRST_LINE "SPWKEYWR 1"

enum { HALVES = 2, TEXT_BYTES = sizeof FIRST_LINE + 1 + HALVES * (SW_OBJECT_META_BYTES + 1) };
_Static_assert(HALVES *SW_OBJECT_KEY_BYTES == SW_NVME_KEY_BYTES, "each half is wrapped by itself");
static const char *const names[HALVES] = {"nvme tier, first half", "nvme tier, second half"};

static int failed(struct sw_err *err, const char *call) {
    const int cause = errno;
    (void)sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "the NVMe tier's wrapped key: %s", strerror(cause));
    (void)sw_err_detail(err, "%s of " SW_NVME_WRAP_FILE ": %s", call, strerror(cause));
    return sw_nvme_error(cause);
}

int sw_nvme_wrap_exists(int directory, struct sw_err *err) {
    if (faccessat(directory, SW_NVME_WRAP_FILE, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 1;
    return errno == ENOENT ? 0 : failed(err, "faccessat");
}

static int damaged(struct sw_err *err) {
    return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_DAEMON,
                      "the NVMe tier's wrapped key (" SW_NVME_WRAP_FILE ") is damaged: restore the file");
}

static int read_text(int directory, char ret[TEXT_BYTES], struct sw_err *err) {
    const int fd = openat(directory, SW_NVME_WRAP_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    memset(ret, 0, TEXT_BYTES);
    if (fd < 0)
        return failed(err, "openat");
    ssize_t n;
    do
        n = read(fd, ret, TEXT_BYTES - 1);
    while (n < 0 && errno == EINTR);
    const int rc = n < 0 ? failed(err, "read") : 0;
    (void)close(fd);
    return rc;
}

/* Ends the line that begins at *at with a zero, and moves on. NULL: there is no whole line. */
static char *next_line(char **at) {
    char *line = *at, *end = strchr(line, '\n');
    if (!end)
        return NULL;
    *end = 0;
    *at = end + 1;
    return line;
}

static int open_halves(char *text, const struct sw_object_keyring *keyring, struct sw_object_key halves[HALVES],
                       bool *ret_is_old, struct sw_err *err) {
    const char *first = next_line(&text);
    if (!first || strcmp(first, FIRST_LINE) != 0)
        return damaged(err);
    int rc = 0;
    for (unsigned i = 0; !rc && i < HALVES; i++) {
        const char *meta = next_line(&text);
        struct sw_err cause = {0};
        rc = meta ? sw_object_key_open(keyring, names[i], meta, &halves[i], ret_is_old, &cause) : -SW_ECHECKSUM;
        if (rc == -SW_EACCES)
            return sw_err_set(err, rc, SW_SCOPE_DAEMON,
                              "the NVMe tier's key is wrapped by another master key: add it to nvme_key_file");
        if (rc)
            return damaged(err);
    }
    return rc;
}

int sw_nvme_wrap_read(int directory, const struct sw_object_keyring *keyring, struct sw_nvme_key *ret, bool *ret_is_old,
                      struct sw_err *err) {
    char text[TEXT_BYTES];
    struct sw_object_key halves[HALVES];
    int rc = read_text(directory, text, err);
    if (!rc)
        rc = open_halves(text, keyring, halves, ret_is_old, err);
    if (!rc)
        rc = sw_nvme_key_set(ret, halves[0].bytes, halves[1].bytes, err);
    for (unsigned i = 0; i < HALVES; i++)
        sw_object_key_fini(&halves[i]);
    return rc;
}

static int wrap(const struct sw_object_keyring *keyring, const struct sw_nvme_key *key, char ret[TEXT_BYTES],
                struct sw_err *err) {
    char metas[HALVES][SW_OBJECT_META_BYTES];
    int rc = 0;
    for (unsigned i = 0; !rc && i < HALVES; i++) {
        struct sw_object_key half;
        memcpy(half.bytes, key->bytes + i * SW_OBJECT_KEY_BYTES, SW_OBJECT_KEY_BYTES);
        rc = sw_object_key_wrap(keyring, &half, names[i], metas[i], err);
        sw_object_key_fini(&half);
    }
    if (!rc)
        (void)snprintf(ret, TEXT_BYTES, FIRST_LINE "\n%s\n%s\n", metas[0], metas[1]);
    return rc;
}

int sw_nvme_wrap_write(int directory, const struct sw_object_keyring *keyring, const struct sw_nvme_key *key,
                       struct sw_err *err) {
    char text[TEXT_BYTES];
    int rc = wrap(keyring, key, text, err);
    if (rc)
        return rc;
    const int fd = openat(directory, NEW_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(err, "openat");
    const ssize_t n = write(fd, text, strlen(text));
    if (n != (ssize_t)strlen(text) || fsync(fd) != 0)
        rc = failed(err, "write");
    (void)close(fd);
    if (!rc && (renameat(directory, NEW_FILE, directory, SW_NVME_WRAP_FILE) != 0 || fsync(directory) != 0))
        rc = failed(err, "renameat");
    return rc;
}

int sw_nvme_wrap_remove(int directory, struct sw_err *err) {
    return unlinkat(directory, SW_NVME_WRAP_FILE, 0) == 0 || errno == ENOENT ? 0 : failed(err, "unlinkat");
}
