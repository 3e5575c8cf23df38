#include "daemon/watchdog.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "daemon/notify.h"
#include <inttypes.h>

enum { TURNS = 4 }; /* messages and questions in the time after which the manager gives up */

struct sw_watchdog {
    struct sw_service *service;
    uv_timer_t timer;
    uint64_t patience_us;
    bool is_silent;
};

static void on_timer(uv_timer_t *timer) {
    struct sw_watchdog *w = timer->data;
    struct sw_service *service = w->service;
    const uint64_t silent_us = sw_engine_silent_us(service->engine);
    const bool is_silent = silent_us > w->patience_us / 2;
    if (is_silent && !w->is_silent)
        sw_log(SW_LOG_ERROR, "device.silent",
               "silent_us=%" PRIu64 " then=\"no watchdog message is sent until it answers\"", silent_us);
    w->is_silent = is_silent;
    if (!is_silent)
        (void)sw_notify("WATCHDOG=1");
    sw_engine_ask_life(service->engine);
    sw_service_check_devices(service);
}

int sw_watchdog_open(struct sw_watchdog **ret, struct sw_service *service, struct sw_err *err) {
    const uint64_t us = sw_notify_watchdog_us(), turn_ms = us / 1000 / TURNS;
    if (!us || !sw_notify_is_heard())
        return 0;
    struct sw_watchdog *w = sw_alloc(sizeof *w);
    if (!w)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the watchdog");
    w->service = service;
    w->patience_us = us;
    w->timer.data = w;
    SW_ASSERT(uv_timer_init(service->loop, &w->timer) == 0);
    SW_ASSERT(uv_timer_start(&w->timer, on_timer, 0, turn_ms ? turn_ms : 1) == 0);
    *ret = w;
    return 0;
}

static void on_closed(uv_handle_t *handle) {
    sw_free(handle->data);
}

void sw_watchdog_close(struct sw_watchdog *watchdog) {
    if (watchdog)
        uv_close((uv_handle_t *)&watchdog->timer, on_closed);
}
