#include "daemon/session/open.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "daemon/session/session.h"
#include <inttypes.h>

static struct sw_budget *kept(const struct sw_session *session) {
    return &session->tenant->quota.kept;
}

static const char *what(bool is_read) {
    return is_read ? "read" : "build";
}

/* ---- expiry ------------------------------------------------------------------------------------------------------ */

static void on_timer(uv_timer_t *timer);

static void wait_for_expiry(struct sw_session *session, uint64_t ms) {
    if (session->service->open_ms && !session->closing)
        (void)uv_timer_start(&session->opens.timer, on_timer, ms, 0);
}

static uint64_t idle_since_us(const struct sw_open *open) {
    return open->is_read ? sw_read_idle_since_us(open->read) : sw_build_idle_since_us(open->build);
}

static bool may_expire(const struct sw_open *open) {
    return !open->task &&
           (open->is_read ? sw_read_state(open->read) == SW_READ_OPEN : sw_build_state(open->build) == SW_BUILD_OPEN);
}

/* Fails a record that has been idle for most_ms. Returns in how many milliseconds to look again. */
static uint64_t expire(const struct sw_open *open, uint64_t now_us, uint64_t most_ms) {
    const uint64_t idle_us = may_expire(open) ? idle_since_us(open) : 0;
    const uint64_t idle_ms = idle_us && now_us > idle_us ? (now_us - idle_us) / 1000 : 0;
    struct sw_err err;
    if (idle_ms < most_ms)
        return most_ms - idle_ms;
    (void)sw_err_set(&err, -SW_ETIMEDOUT, SW_SCOPE_REQUEST,
                     open->is_read ? "the read was idle for %" PRIu64
                                     " ms: it has ended, and the region is still stored"
                                   : "the build was idle for %" PRIu64 " ms: it has ended, and nothing is stored",
                     idle_ms);
    sw_open_fail(open, &err);
    return most_ms;
}

static void on_timer(uv_timer_t *timer) {
    struct sw_session *session = timer->data;
    struct sw_opens *opens = &session->opens;
    const uint64_t now_us = sw_clock_us(), most_ms = session->service->open_ms;
    uint64_t next_ms = most_ms;
    for (struct sw_list *node = opens->open.next; node != &opens->open; node = node->next) {
        const uint64_t ms = expire(SW_CONTAINER_OF(node, struct sw_open, list), now_us, most_ms);
        next_ms = ms < next_ms ? ms : next_ms;
    }
    if (opens->n_open)
        wait_for_expiry(session, next_ms);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

void sw_opens_init(struct sw_session *session) {
    sw_idmap_init(&session->opens.numbers);
    sw_list_init(&session->opens.open);
    session->opens.timer.data = session;
}

void sw_opens_close(struct sw_session *session) {
    struct sw_opens *opens = &session->opens;
    for (struct sw_list *node = opens->open.next, *next; node != &opens->open; node = next) {
        struct sw_open *open = SW_CONTAINER_OF(node, struct sw_open, list);
        next = node->next;
        if (!open->task)
            sw_open_end(session, open);
    }
}

static int check_free(const struct sw_session *session, uint32_t number, struct sw_err *err) {
    if (!sw_idmap_find(&session->opens.numbers, number))
        return 0;
    return sw_err_set(err, -SW_EEXIST, SW_SCOPE_REQUEST, "number %" PRIu32 " is in use by another build or read",
                      number);
}

int sw_opens_begin(struct sw_session *session, uint32_t number, bool is_read, struct sw_open **ret,
                   struct sw_err *err) {
    struct sw_opens *opens = &session->opens;
    int rc = check_free(session, number, err);
    if (rc == 0 && opens->n_open >= SW_SESSION_MAX_OPEN)
        rc = sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                        "the session has %u open builds and reads, the most allowed: end some first", opens->n_open);
    if (rc < 0)
        return rc;
    struct sw_open *open =
        sw_budget_alloc(kept(session), sizeof *open, is_read ? "an open read" : "an open build", &rc, err);
    if (!open)
        return rc;
    open->is_read = is_read;
    sw_idmap_add(&opens->numbers, &open->node, number);
    sw_list_append(&opens->open, &open->list);
    if (opens->n_open++ == 0)
        wait_for_expiry(session, session->service->open_ms);
    *ret = open;
    return 0;
}

void sw_open_end(struct sw_session *session, struct sw_open *open) {
    struct sw_opens *opens = &session->opens;
    sw_idmap_remove(&opens->numbers, &open->node);
    sw_list_remove(&open->list);
    if (--opens->n_open == 0 && !session->closing)
        (void)uv_timer_stop(&opens->timer);
    sw_free(open);
    sw_budget_give(kept(session), sizeof *open);
}

void sw_open_fail(const struct sw_open *open, const struct sw_err *cause) {
    if (open->build)
        sw_build_fail(open->build, cause);
    if (open->read)
        sw_read_fail(open->read, cause);
}

int sw_opens_enter(struct sw_session *session, uint32_t number, struct sw_open *whole, struct sw_err *err) {
    const int rc = check_free(session, number, err);
    if (rc < 0)
        return rc;
    sw_list_init(&whole->list);
    sw_idmap_add(&session->opens.numbers, &whole->node, number);
    return 0;
}

void sw_opens_leave(struct sw_session *session, struct sw_open *whole) {
    sw_idmap_remove(&session->opens.numbers, &whole->node);
}

int sw_opens_find(const struct sw_session *session, uint32_t number, bool is_read, struct sw_open **ret,
                  struct sw_err *err) {
    struct sw_idnode *node = sw_idmap_find(&session->opens.numbers, number);
    struct sw_open *open = node ? SW_CONTAINER_OF(node, struct sw_open, node) : NULL;
    if (!open || open->is_read != is_read)
        return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "there is no %s with number %" PRIu32, what(is_read),
                          number);
    *ret = open;
    return 0;
}
