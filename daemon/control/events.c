#include "daemon/control/events.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/logfmt.h"
#include "daemon/control/rpc.h"
#include <jansson.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MAX_LINES = 1024 }; /* waiting for the loop */

struct line {
    struct sw_list node;
    int64_t time_ms; /* since 1970 */
    char text[];
};

struct sw_events {
    uv_async_t async;
    struct sw_list subscribers;
    unsigned n_subscribers;
    uint64_t n_dropped;
    void (*closed)(void *arg);
    void *closed_arg;
    pthread_mutex_t lock; /* guards the rest */
    struct sw_list lines;
    unsigned n_lines;
    uint64_t n_lost; /* lines for which the queue was full */
};

static int64_t wall_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    return now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* Called on any thread. */
static void on_line(enum sw_log_level level, const char *text, void *arg) {
    struct sw_events *events = arg;
    const size_t bytes = strlen(text) + 1;
    (void)level;
    (void)pthread_mutex_lock(&events->lock);
    struct line *line = events->n_lines < MAX_LINES ? sw_alloc(sizeof *line + bytes) : NULL;
    if (line) {
        line->time_ms = wall_ms();
        memcpy(line->text, text, bytes);
        sw_list_append(&events->lines, &line->node);
        events->n_lines++;
    } else {
        events->n_lost++;
    }
    (void)pthread_mutex_unlock(&events->lock);
    (void)uv_async_send(&events->async);
}

/* Returns {"time_ms": ..., "event": "spill.done", "session": 4, ...}; copies the event's name. */
static json_t *to_json(const struct line *line, char *ret_event, size_t event_bytes) {
    struct sw_logfmt_field field;
    json_t *object = json_pack("{s:I}", "time_ms", (json_int_t)line->time_ms);
    ret_event[0] = 0;
    for (const char *at = line->text; sw_logfmt_next(&at, &field);) {
        const bool number = sw_logfmt_is_number(&field);
        (void)json_object_set_new(object, field.name,
                                  number ? json_integer(strtoll(field.value, NULL, 10)) : sw_rpc_text(field.value));
        if (strcmp(field.name, "event") == 0)
            (void)snprintf(ret_event, event_bytes, "%.*s", (int)event_bytes - 1, field.value);
    }
    return object;
}

/* "session" matches session.open, and so does "session.open"; "sess" does not. */
static bool wants(const struct sw_subscriber *subscriber, const char *event) {
    if (!subscriber->only[0])
        return true;
    for (const char *at = subscriber->only; *at; at += *at == ',') {
        const size_t n = strcspn(at, ",");
        if (n && strncmp(at, event, n) == 0 && (event[n] == 0 || event[n] == '.'))
            return true;
        at += n;
    }
    return false;
}

static void drop(struct sw_subscriber *subscriber, uint64_t n) {
    subscriber->n_dropped += n;
    subscriber->events->n_dropped += n;
}

void sw_subscriber_resume(struct sw_subscriber *subscriber) {
    if (!subscriber->is_on || !subscriber->n_dropped)
        return;
    char *text = sw_rpc_notification("dropped", json_pack("{s:I}", "events", (json_int_t)subscriber->n_dropped));
    if (text && subscriber->send(subscriber, text))
        subscriber->n_dropped = 0;
    free(text);
}

static void deliver(struct sw_events *events, const struct line *line) {
    char event[64];
    json_t *object = to_json(line, event, sizeof event);
    char *text = sw_rpc_notification("event", object);
    for (struct sw_list *node = events->subscribers.next, *next; node != &events->subscribers; node = next) {
        struct sw_subscriber *subscriber = SW_CONTAINER_OF(node, struct sw_subscriber, node);
        next = node->next;
        if (!wants(subscriber, event))
            continue;
        sw_subscriber_resume(subscriber);
        if (!text || subscriber->n_dropped || !subscriber->send(subscriber, text))
            drop(subscriber, 1);
    }
    free(text);
}

static void deliver_all(struct sw_events *events) {
    struct sw_list lines, *node;
    sw_list_init(&lines);
    (void)pthread_mutex_lock(&events->lock);
    sw_list_append_all(&lines, &events->lines);
    events->n_lines = 0;
    const uint64_t n_lost = events->n_lost;
    events->n_lost = 0;
    (void)pthread_mutex_unlock(&events->lock);
    while ((node = sw_list_take_first(&lines))) {
        struct line *line = SW_CONTAINER_OF(node, struct line, node);
        deliver(events, line);
        sw_free(line);
    }
    for (struct sw_list *at = events->subscribers.next, *next; n_lost && at != &events->subscribers; at = next) {
        struct sw_subscriber *subscriber = SW_CONTAINER_OF(at, struct sw_subscriber, node);
        next = at->next;
        drop(subscriber, n_lost);
        sw_subscriber_resume(subscriber); /* perhaps no event follows that would */
    }
}

static void on_wake(uv_async_t *async) {
    deliver_all(async->data);
}

int sw_events_open(struct sw_events **ret, uv_loop_t *loop, struct sw_err *err) {
    struct sw_events *events = sw_alloc(sizeof *events);
    if (!events)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for events");
    const int rc = uv_async_init(loop, &events->async, on_wake);
    if (rc < 0) {
        sw_free(events);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "events cannot wake the loop: %s", uv_strerror(rc));
    }
    events->async.data = events;
    sw_list_init(&events->subscribers);
    sw_list_init(&events->lines);
    (void)pthread_mutex_init(&events->lock, NULL);
    *ret = events;
    return 0;
}

static void on_closed(uv_handle_t *handle) {
    struct sw_events *events = handle->data;
    void (*closed)(void *) = events->closed;
    void *arg = events->closed_arg;
    (void)pthread_mutex_destroy(&events->lock);
    sw_free(events);
    closed(arg);
}

void sw_events_close(struct sw_events *events, void (*closed)(void *arg), void *arg) {
    if (!events)
        return;
    events->closed = closed;
    events->closed_arg = arg;
    sw_log_set_tap(NULL, NULL);
    deliver_all(events);
    for (struct sw_list *node = events->subscribers.next; node != &events->subscribers; node = events->subscribers.next)
        sw_unsubscribe(SW_CONTAINER_OF(node, struct sw_subscriber, node));
    uv_close((uv_handle_t *)&events->async, on_closed);
}

void sw_subscriber_init(struct sw_subscriber *ret, struct sw_events *events,
                        bool (*send)(struct sw_subscriber *subscriber, const char *line)) {
    *ret = (struct sw_subscriber){.events = events, .send = send};
    sw_list_init(&ret->node);
}

void sw_subscribe(struct sw_subscriber *subscriber, const char *only) {
    struct sw_events *events = subscriber->events;
    (void)snprintf(subscriber->only, sizeof subscriber->only, "%s", only ? only : "");
    if (subscriber->is_on)
        return;
    subscriber->is_on = true;
    sw_list_append(&events->subscribers, &subscriber->node);
    if (events->n_subscribers++ == 0)
        sw_log_set_tap(on_line, events);
}

void sw_unsubscribe(struct sw_subscriber *subscriber) {
    if (!subscriber->is_on)
        return;
    subscriber->is_on = false;
    subscriber->n_dropped = 0;
    sw_list_remove(&subscriber->node);
    if (--subscriber->events->n_subscribers == 0)
        sw_log_set_tap(NULL, NULL);
}

unsigned sw_events_subscribers(const struct sw_events *events) {
    return events->n_subscribers;
}

uint64_t sw_events_dropped(const struct sw_events *events) {
    return events->n_dropped;
}
