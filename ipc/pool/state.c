/* state.c - the common functions of the buffer manager: errors, waiting, and moves between states. */
#include "ipc/pool/pool.h"

#include "base/clock.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int sw_pool_fail(struct spillway_error *error, int code, const char *fmt, ...) {
    va_list args;
    if (!error)
        return code;
    *error = (struct spillway_error){.code = code};
    (void)snprintf(error->name, sizeof error->name, "%s", spillway_error_name(code));
    va_start(args, fmt);
    (void)vsnprintf(error->text, sizeof error->text, fmt, args);
    va_end(args);
    return code;
}

int sw_pool_check(const struct spillway_pool *pool, struct spillway_error *error) {
    if (error)
        *error = (struct spillway_error){0};
    if (pool->process == getpid())
        return 0;
    return sw_pool_fail(error, -SPILLWAY_EINVAL,
                        "the pool belongs to process %d, which has forked this one: make another one here",
                        (int)pool->process);
}

bool sw_pool_wait(struct spillway_pool *pool, uint64_t deadline_us) {
    if (deadline_us == UINT64_MAX) {
        (void)pthread_cond_wait(&pool->changed, &pool->lock);
        return true;
    }
    const struct timespec until = {.tv_sec = (time_t)(deadline_us / 1000000),
                                   .tv_nsec = (long)(deadline_us % 1000000) * 1000};
    (void)pthread_cond_timedwait(&pool->changed, &pool->lock, &until);
    return sw_clock_us() < deadline_us;
}

void sw_handle_set_live(struct spillway_handle *h) {
    h->state = SW_HANDLE_LIVE;
    if (h->n_pins == 0 && !(h->options.flags & SPILLWAY_HANDLE_STAYS)) {
        sw_list_remove(&h->idle_node);
        sw_list_append(&h->pool->idle, &h->idle_node);
    }
}

struct spillway_region sw_handle_take_region(struct spillway_handle *h) {
    const struct spillway_region region = h->region;
    h->region = (struct spillway_region){0};
    h->stored_bytes = 0;
    return region;
}

void sw_handle_set_leaving(struct spillway_handle *h) {
    sw_list_remove(&h->idle_node);
    h->state = SW_HANDLE_LEAVING;
    h->wanted = false;
    h->pool->n_leaving++;
}
