#include "base/log.h"

#include "base/journal.h"
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static atomic_int max_level = SW_LOG_INFO;

/* Set and removed under the lock, called under it: who has removed it is not called any more. */
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
    static const char *const names[SW_LOG_NR] = {"error", "warning", "info", "debug"};
    return (unsigned)level < SW_LOG_NR ? names[level] : "unknown";
}

bool sw_log_set_level_name(const char *name) {
    for (int level = 0; level < SW_LOG_NR; level++)
        if (strcmp(name, sw_log_level_name((enum sw_log_level)level)) == 0) {
            sw_log_set_level((enum sw_log_level)level);
            return true;
        }
    return false;
}

void sw_log(enum sw_log_level level, const char *event, const char *fmt, ...) {
    const bool printed = (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed),
               tapped = level <= SW_LOG_INFO && atomic_load_explicit(&is_tapped, memory_order_relaxed);
    if (!printed && !tapped)
        return;
    char line[1024];
    const int last = (int)sizeof line - 1; /* room for the newline */
    int n = snprintf(line, (size_t)last, "level=%s event=%s ", sw_log_level_name(level), event);
    if (n < 0 || n >= last)
        return;
    va_list ap;
    va_start(ap, fmt);
    int m = vsnprintf(line + n, (size_t)(last - n), fmt, ap);
    va_end(ap);
    if (m < 0)
        return;
    n = m >= last - n ? last - 1 : n + m;
    line[n] = 0;
    if (tapped)
        tap_line(level, line);
    if (!printed)
        return;
    static const int priorities[SW_LOG_NR] = {3, 4, 6, 7}; /* as in syslog.h */
    if (sw_journal_send(priorities[level], line))
        return;
    line[n++] = '\n';
    /* Nowhere to report a failed write of the log itself. */
    ssize_t ignored = write(STDERR_FILENO, line, (size_t)n);
    (void)ignored;
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
