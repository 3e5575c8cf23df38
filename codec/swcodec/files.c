#include "codec/swcodec/files.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int fail_errno(struct sw_err *err, int errno_value) {
    return sw_err_set(err, sw_err_from_errno(errno_value), SW_SCOPE_REQUEST, "%s", strerror(errno_value));
}

static mode_t default_mode(void) {
    mode_t mask = umask(0);
    umask(mask);
    return 0666 & ~mask;
}

int sw_input_open(struct sw_input *ret, const char *path, struct sw_err *err) {
    struct stat st;
    bool is_standard = strcmp(path, "-") == 0;
    struct sw_input input = {.fd = STDIN_FILENO, .name = is_standard ? "standard input" : path};
    if (!is_standard)
        input.fd = open(path, O_RDONLY | O_CLOEXEC);
    if (input.fd < 0 || fstat(input.fd, &st) < 0)
        goto failed;
    if (S_ISDIR(st.st_mode)) {
        errno = EISDIR;
        goto failed;
    }
    input.total_bytes = S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
    input.mode = S_ISREG(st.st_mode) ? st.st_mode & 0777 : default_mode();
    *ret = input;
    return 0;
failed:;
    int saved = errno;
    sw_input_close(&input);
    return fail_errno(err, saved);
}

void sw_input_close(struct sw_input *input) {
    if (input->fd > STDIN_FILENO)
        close(input->fd);
    input->fd = -1;
}

/* Waits until the input can be read. Returns 1; 0: the run is being stopped; -1: an error, in errno. */
static int await_input(int fd, int stop_fd) {
    struct pollfd fds[2] = {{.fd = fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
    int r;
    do
        r = poll(fds, 2, -1);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -1 : !fds[1].revents;
}

int sw_input_read(const struct sw_input *input, void *ret, size_t bytes, int stop_fd, size_t *ret_bytes,
                  struct sw_err *err) {
    size_t got = 0;
    while (got < bytes) {
        int r = await_input(input->fd, stop_fd);
        if (r < 0)
            return fail_errno(err, errno);
        if (r == 0)
            break;
        ssize_t n = read(input->fd, (char *)ret + got, bytes - got);
        if (n < 0 && (errno == EINTR || errno == EAGAIN))
            continue;
        if (n < 0)
            return fail_errno(err, errno);
        if (n == 0)
            break;
        got += (size_t)n;
    }
    *ret_bytes = got;
    return 0;
}

/* The file that a signal handler has to remove. */
static const char *volatile temporary_path;

static void remove_and_die(int signal_number) {
    const char *path = temporary_path;
    if (path)
        unlink(path);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

static void guard_temporary(const char *path) {
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
    temporary_path = path;
    for (size_t i = 0; i < sizeof signals / sizeof signals[0]; i++) {
        struct sigaction old, action = {.sa_handler = remove_and_die};
        if (sigaction(signals[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaction(signals[i], &action, NULL);
    }
}

static int open_in_place(struct sw_output *output, bool is_binary, bool is_forced, struct sw_err *err) {
    if (output->path)
        output->fd = open(output->path, O_WRONLY | O_CLOEXEC);
    if (output->fd < 0)
        return fail_errno(err, errno);
    if (is_binary && !is_forced && isatty(output->fd)) {
        sw_output_abort(output);
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "is a terminal; use --force to write to it");
    }
    return 0;
}

static int open_temporary(struct sw_output *output, mode_t mode, struct sw_err *err) {
    int n = snprintf(output->temporary, sizeof output->temporary, "%s.XXXXXX", output->path);
    if (n < 0 || (size_t)n >= sizeof output->temporary)
        return fail_errno(err, ENAMETOOLONG);
    output->fd = mkostemp(output->temporary, O_CLOEXEC);
    if (output->fd < 0) {
        output->temporary[0] = '\0';
        return fail_errno(err, errno);
    }
    guard_temporary(output->temporary);
    if (fchmod(output->fd, mode) < 0) {
        int saved = errno;
        sw_output_abort(output);
        return fail_errno(err, saved);
    }
    return 0;
}

int sw_output_open(struct sw_output *ret, const char *path, mode_t mode, bool is_binary, bool is_forced,
                   struct sw_err *err) {
    struct stat st;
    bool is_standard = strcmp(path, "-") == 0;
    *ret = (struct sw_output){
        .fd = is_standard ? STDOUT_FILENO : -1,
        .name = is_standard ? "standard output" : path,
        .path = is_standard ? NULL : path,
        .is_overwriting = is_forced,
    };
    if (is_standard)
        return open_in_place(ret, is_binary, is_forced, err);
    if (stat(path, &st) < 0)
        return errno == ENOENT ? open_temporary(ret, mode, err) : fail_errno(err, errno);
    if (!S_ISREG(st.st_mode))
        return open_in_place(ret, is_binary, is_forced, err);
    if (!is_forced)
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_REQUEST, "already exists; use --force to replace it");
    return open_temporary(ret, mode, err);
}

int sw_output_write(const struct sw_output *output, const void *data, size_t bytes, struct sw_err *err) {
    const char *p = data;
    while (bytes) {
        ssize_t n = write(output->fd, p, bytes);
        if (n < 0 && errno == EAGAIN) { /* a pipe that another process has made non-blocking */
            struct pollfd fd = {.fd = output->fd, .events = POLLOUT};
            (void)poll(&fd, 1, -1);
            continue;
        }
        if (n < 0 && errno != EINTR)
            return fail_errno(err, errno);
        if (n > 0) {
            p += n;
            bytes -= (size_t)n;
        }
    }
    return 0;
}

/* Gives the temporary file its name; returns 0 or an errno value. */
static int publish(const struct sw_output *output) {
    if (output->is_overwriting)
        return rename(output->temporary, output->path) == 0 ? 0 : errno;
    if (renameat2(AT_FDCWD, output->temporary, AT_FDCWD, output->path, RENAME_NOREPLACE) == 0)
        return 0;
    if (errno != EINVAL && errno != ENOSYS)
        return errno;
    /* The file system does not support RENAME_NOREPLACE. A hard link does not replace an existing file, either. */
    if (link(output->temporary, output->path) < 0)
        return errno;
    return unlink(output->temporary) == 0 ? 0 : errno;
}

int sw_output_commit(struct sw_output *output, struct sw_err *err) {
    int failed = 0;
    if (output->temporary[0] && fsync(output->fd) < 0)
        failed = errno;
    int fd = output->fd;
    if (!failed) {
        output->fd = -1;
        if (close(fd) < 0)
            failed = errno;
    }
    if (!failed && output->temporary[0])
        failed = publish(output);
    if (failed) {
        sw_output_abort(output);
        return fail_errno(err, failed);
    }
    temporary_path = NULL;
    output->temporary[0] = '\0';
    return 0;
}

void sw_output_abort(struct sw_output *output) {
    if (output->fd > STDERR_FILENO)
        close(output->fd);
    output->fd = -1;
    temporary_path = NULL;
    if (output->temporary[0])
        unlink(output->temporary);
    output->temporary[0] = '\0';
}
