#include "base/log.h"

#include "base/journal.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, PIPE_BYTES = 1 << 20 };
#define STAMP_FORMAT "time=%Y-%m-%dT%H:%M:%S."
enum { STAMP_BYTES = sizeof "time=2026-01-31T12:34:56.789Z " - 1 };

static atomic_int max_level = SW_LOG_INFO;

/* The tap is set, removed and called under the lock: after its removal it is not called any more. */
static pthread_mutex_t tap_lock = PTHREAD_MUTEX_INITIALIZER;
static sw_log_tap_fn *tap;
static void *tap_arg;
static atomic_bool is_tapped;

void sw_log_set_tap(sw_log_tap_fn *fn, void *arg) {
    (void)pthread_mutex_lock(&tap_lock);
    tap = fn;
    tap_arg = arg;
    atomic_store(&is_tapped, fn != NULL);
    (void)pthread_mutex_unlock(&tap_lock);
}

static void tap_line(enum sw_log_level level, const char *line) {
    (void)pthread_mutex_lock(&tap_lock);
    if (tap)
        tap(level, line, tap_arg);
    (void)pthread_mutex_unlock(&tap_lock);
}

void sw_log_set_level(enum sw_log_level level) {
    atomic_store(&max_level, (int)level);
}

const char *sw_log_level_name(enum sw_log_level level) {
    static const char *const names[SW_LOG_NR] = {"error", "warning", "info", "debug", "debug"};
    return (unsigned)level < SW_LOG_NR ? names[level] : "unknown";
}

bool sw_log_set_level_name(const char *name) {
    for (int level = SW_LOG_NR - 1; level >= 0; level--) /* backwards: "debug" means DEBUG, which includes OPERATION */
        if (strcmp(name, sw_log_level_name((enum sw_log_level)level)) == 0) {
            sw_log_set_level((enum sw_log_level)level);
            return true;
        }
    return false;
}

/* Where lines are printed if there is no journal, the rest of a line that was printed only partly, and the number of
 * dropped lines that are not reported yet. */
static pthread_mutex_t out_lock = PTHREAD_MUTEX_INITIALIZER;
static int out = STDERR_FILENO;
static char rest[STAMP_BYTES + LINE_BYTES];
static size_t rest_bytes;
static unsigned long long n_dropped;

void sw_log_open(void) {
    struct stat found;
    const bool is_pipe = fstat(STDERR_FILENO, &found) == 0 && S_ISFIFO(found.st_mode);
    if (!is_pipe && !isatty(STDERR_FILENO))
        return;
    /* Open stderr again: O_NONBLOCK on stderr itself would apply to all processes that share it, such as the shell. */
    const int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        return;
    if (is_pipe)
        (void)fcntl(fd, F_SETPIPE_SZ, PIPE_BYTES); /* bridges short pauses of the reader */
    (void)pthread_mutex_lock(&out_lock);
    out = fd;
    (void)pthread_mutex_unlock(&out_lock);
}

/* Writes without waiting, and returns how many bytes were written. A pipe takes a line whole or not at all (PIPE_BUF);
 * a terminal may take a part of it. */
static size_t write_now(const char *data, size_t bytes) {
    struct pollfd room = {.fd = out, .events = POLLOUT};
    ssize_t n = send(out, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && errno == ENOTSOCK && poll(&room, 1, 0) == 1)
        n = write(out, data, bytes);
    return n > 0 ? (size_t)n : 0;
}

static bool print(const char *line, size_t bytes) {
    if (rest_bytes > 0) {
        const size_t n = write_now(rest, rest_bytes);
        rest_bytes -= n;
        memmove(rest, rest + n, rest_bytes);
        if (rest_bytes > 0)
            return false;
    }
    const size_t n = write_now(line, bytes);
    if (n > 0) {
        rest_bytes = bytes - n;
        memcpy(rest, line + n, rest_bytes);
    }
    return n > 0;
}

/* A line, with room for the time before it and a newline after it. */
struct line {
    char all[STAMP_BYTES + LINE_BYTES];
};

static char *text_of(struct line *line) {
    return line->all + STAMP_BYTES;
}

/* Puts the time before the line, in UTC. */
static void stamp(struct line *line) {
    char text[STAMP_BYTES + 1];
    struct timespec now;
    struct tm utc;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const size_t n = strftime(text, sizeof text, STAMP_FORMAT, gmtime_r(&now.tv_sec, &utc));
    (void)snprintf(text + n, sizeof text - n, "%03uZ ", (unsigned)(now.tv_nsec / 1000000) % 1000);
    memcpy(line->all, text, STAMP_BYTES);
}

/* Sends the line to the journal or prints it. False: there was no room for it, or the write failed. */
static bool deliver(enum sw_log_level level, struct line *line, size_t bytes) {
    static const int priorities[SW_LOG_NR] = {3, 4, 6, 7, 7}; /* as in syslog.h */
    const enum sw_journal_answer answer = sw_journal_send(priorities[level], text_of(line));
    if (answer != SW_JOURNAL_ABSENT)
        return answer == SW_JOURNAL_TAKEN;
    stamp(line);
    text_of(line)[bytes] = '\n';
    return print(line->all, STAMP_BYTES + bytes + 1);
}

/* Lines stay in order: the count of dropped lines goes out before the next line. */
static void deliver_or_count(enum sw_log_level level, struct line *line, size_t bytes) {
    (void)pthread_mutex_lock(&out_lock);
    if (n_dropped > 0) {
        struct line notice;
        const int n = snprintf(text_of(&notice), LINE_BYTES,
                               "level=warning event=log.dropped lines=%llu why=\"the log's reader was too slow, or a "
                               "write to the log failed\"",
                               n_dropped);
        if (deliver(SW_LOG_WARNING, &notice, (size_t)n))
            n_dropped = 0;
    }
    if (n_dropped > 0 || !deliver(level, line, bytes))
        n_dropped++;
    (void)pthread_mutex_unlock(&out_lock);
}

bool sw_log_prints(enum sw_log_level level) {
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

void sw_log(enum sw_log_level level, const char *event, const char *fmt, ...) {
    const bool printed = sw_log_prints(level),
               tapped = level <= SW_LOG_OPERATION && atomic_load_explicit(&is_tapped, memory_order_relaxed);
    if (!printed && !tapped)
        return;
    struct line line;
    char *text = text_of(&line);
    const int last = LINE_BYTES - 1; /* room for the newline */
    int n = snprintf(text, (size_t)last, "level=%s event=%s ", sw_log_level_name(level), event);
    if (n < 0 || n >= last)
        return;
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(text + n, (size_t)(last - n), fmt, ap);
    va_end(ap);
    if (m < 0)
        return;
    n = m >= last - n ? last - 1 : n + m;
    text[n] = 0;
    if (tapped)
        tap_line(level, text);
    if (!printed)
        return;
    deliver_or_count(level, &line, (size_t)n);
}

const char *sw_log_quote(char *ret, size_t ret_bytes, const char *text) {
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    if (ret_bytes < 3)
        return "";
    ret[n++] = '"';
    for (; *text && n + 6 < ret_bytes; text++) {
        unsigned char c = (unsigned char)*text;
        if (c == '"' || c == '\\') {
            ret[n++] = '\\';
            ret[n++] = (char)c;
        } else if (c < 0x20 || c == 0x7f) {
            ret[n++] = '\\';
            ret[n++] = 'x';
            ret[n++] = hex[c >> 4];
            ret[n++] = hex[c & 15];
        } else {
            ret[n++] = (char)c;
        }
    }
    ret[n++] = '"';
    ret[n] = 0;
    return ret;
}
