#include "tests/lib/kept_log.h"

#include "base/log.h"

#include <pthread.h>
#include <string.h>

char sw_kept_log[SW_KEPT_LOG_BYTES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void keep_line(enum sw_log_level level, const char *line, void *arg) {
    (void)level, (void)arg;
    (void)pthread_mutex_lock(&lock);
    (void)strncat(sw_kept_log, line, sizeof sw_kept_log - strlen(sw_kept_log) - 1);
    (void)strncat(sw_kept_log, "\n", sizeof sw_kept_log - strlen(sw_kept_log) - 1);
    (void)pthread_mutex_unlock(&lock);
}

void sw_kept_log_begin(void) {
    sw_kept_log_forget();
    sw_log_set_level(SW_LOG_INFO);
    sw_log_set_tap(keep_line, NULL);
}

void sw_kept_log_end(void) {
    sw_log_set_tap(NULL, NULL);
}

void sw_kept_log_forget(void) {
    (void)pthread_mutex_lock(&lock);
    sw_kept_log[0] = 0;
    (void)pthread_mutex_unlock(&lock);
}

bool sw_kept_log_has(const char *part) {
    (void)pthread_mutex_lock(&lock);
    const bool ret = strstr(sw_kept_log, part) != NULL;
    (void)pthread_mutex_unlock(&lock);
    return ret;
}
