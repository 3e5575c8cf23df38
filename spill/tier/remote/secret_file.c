#include "spill/tier/remote/secret_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int failed(struct sw_err *err, int cause, const char *path, const char *what) {
    return sw_err_set(err, cause == EACCES ? -SW_EACCES : -SW_EIO, SW_SCOPE_DAEMON, "%.60s: %s cannot be read: %s",
                      path, what, strerror(cause));
}

int sw_secret_open(FILE **ret, char ret_path[SW_SECRET_PATH_BYTES], const char *path, const char *credential,
                   const char *what, struct sw_err *err) {
    const char *folder = getenv("CREDENTIALS_DIRECTORY");
    struct stat st;
    *ret = NULL;
    (void)snprintf(ret_path, SW_SECRET_PATH_BYTES, "%s%s%s",
                   path     ? path
                   : folder ? folder
                            : "",
                   path ? "" : "/", path ? "" : credential);
    if (!path && (!folder || access(ret_path, F_OK) != 0))
        return 0;
    const int fd = open(ret_path, O_RDONLY | O_CLOEXEC | O_NOCTTY);
    if (fd < 0)
        return failed(err, errno, ret_path, what);
    if (fstat(fd, &st) < 0 || (st.st_mode & S_IRWXO) != 0) {
        (void)close(fd);
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_DAEMON, "%.60s: every user may access it; chmod o= it first",
                          ret_path);
    }
    *ret = fdopen(fd, "re");
    if (!*ret) {
        (void)close(fd);
        return failed(err, ENOMEM, ret_path, what);
    }
    (void)setvbuf(*ret, NULL, _IONBF, 0); /* no copy of the secret in a buffer */
    return 0;
}
