/* reload.h - changes options of a running service.
 *
 * Options marked `live` in config/config.c take effect at once. The others need a restart and are never half applied.
 * thread: loop. */
#ifndef SW_DAEMON_RELOAD_H
#define SW_DAEMON_RELOAD_H

#include "daemon/service.h"

enum { SW_RELOAD_MAX = 64 };
struct sw_reload_report {
    const char *changed[SW_RELOAD_MAX],
        *restart[SW_RELOAD_MAX]; /* option names; restart: options that differ but keep their old value */
    unsigned n_changed, n_restart;
};

/* Sets one option. errors: -SW_ECONFIG (no such option, bad value), -SW_ENOTSUP (it needs a restart); nothing has
 * changed then. */
int sw_reload_option(struct sw_service *service, const char *name, const struct json_t *value, struct sw_err *err);
/* Reads the configuration again and applies the live options. errors: those of reading it; nothing has changed then.
 * Logs the result in both cases. */
int sw_reload(struct sw_service *service, struct sw_reload_report *ret, struct sw_err *err);

#endif
