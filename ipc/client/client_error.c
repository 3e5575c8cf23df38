/* client_error.c - converts the project's errors to the caller's struct. */
#include "ipc/client/client.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

_Static_assert((int)SPILLWAY_SCOPE_DAEMON == (int)SW_SCOPE_DAEMON, "one list of scopes");

int sw_client_report(struct spillway_error *ret, const struct sw_err *err) {
    if (!ret)
        return err->code;
    memset(ret, 0, sizeof *ret);
    ret->code = err->code;
    ret->scope = (enum spillway_scope)err->scope;
    ret->cuda = err->cuda;
    if (err->code)
        (void)snprintf(ret->name, sizeof ret->name, "%s", sw_err_name(err->code));
    const char *open = err->detail[0] ? " (" : "", *close = err->detail[0] ? ")" : "";
    char text[sizeof err->msg + sizeof err->detail + 3];
    (void)snprintf(text, sizeof text, "%s%s%s%s", err->msg, open, err->detail, close);
    sw_msg_text(ret->text, sizeof ret->text, (const uint8_t *)text, strlen(text));
    return err->code;
}

int sw_client_copy_error(struct spillway_error *ret, const struct spillway_error *from) {
    if (ret)
        *ret = *from;
    return from->code;
}

void sw_client_note_error(struct spillway_error *first, const struct spillway_error *error) {
    if (!first->code)
        *first = *error;
}

void sw_client_note_err(struct spillway_error *first, const struct sw_err *err) {
    struct spillway_error error;
    (void)sw_client_report(&error, err);
    sw_client_note_error(first, &error);
}

int sw_client_too_many(unsigned n_in_flight, struct sw_err *err) {
    return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                      "%u operations are in flight, the most that max_session_operations allows", n_in_flight);
}

void sw_client_combine(char *ret, size_t ret_bytes, const char *part) {
    if (strcmp(ret, part) != 0)
        (void)snprintf(ret, ret_bytes, "%s", *ret ? "mixed" : part);
}

static int check_process(const struct spillway *c, struct spillway_error *error) {
    struct sw_err err = {0};
    if (c->process != getpid())
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_SESSION,
                         "the connection belongs to process %d, which has forked this one: open another one here",
                         (int)c->process);
    return sw_client_report(error, &err);
}

int sw_client_enter(struct spillway *c, struct spillway_error *error) {
    const int rc = check_process(c, error);
    if (!rc) {
        (void)pthread_mutex_lock(&c->calls);
        (void)pthread_mutex_lock(&c->lock);
    }
    return rc;
}

void sw_client_leave(struct spillway *c) {
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_mutex_unlock(&c->calls);
}

bool sw_client_step_in(struct spillway *c) {
    return pthread_mutex_trylock(&c->lock) == 0;
}

void sw_client_step_out(struct spillway *c) {
    (void)pthread_mutex_unlock(&c->lock);
}
