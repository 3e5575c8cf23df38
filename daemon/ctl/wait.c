#include "daemon/ctl/wait.h"

#include "daemon/ctl/print.h"
#include "daemon/tiers/names.h"
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { INTERVAL_MS = 100, TEXT_BYTES = 64 };

struct progress {
    double done, all; /* the same unit */
    char text[TEXT_BYTES];
    bool has_ended;
};

struct wait {
    struct sw_ctl *ctl;
    enum sw_control_method method;
    json_t **result;
    bool has_target; /* drain: to a tier */
    double most;     /* the most that has been left so far */
};

static double number(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

/* `left` goes to 0; it may rise meanwhile. */
static void set_left(struct wait *w, double left, struct progress *ret) {
    w->most = left > w->most ? left : w->most;
    ret->all = w->most;
    ret->done = w->most - left;
}

/* Regions go to another tier. */
static int look_at_moves(struct wait *w, struct progress *ret, struct sw_err *err) {
    const json_t *error = json_object_get(*w->result, "error"), *left = json_object_get(*w->result, "left_bytes");
    char text[32];
    if (error || !left)
        return sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST, "the regions stay where they are: %.90s",
                          error ? json_string_value(error) : "the drain was ended");
    set_left(w, json_number_value(left), ret);
    ret->has_ended = json_number_value(left) <= 0;
    (void)snprintf(ret->text, sizeof ret->text, "%s left", sw_ctl_bytes(text, sizeof text, json_number_value(left)));
    return 0;
}

static int look_at_drain(struct wait *w, struct progress *ret, struct sw_err *err) {
    json_t *now = NULL;
    const int rc = sw_ctl_call(w->ctl, "drain", NULL, &now, err);
    if (rc)
        return rc;
    json_decref(*w->result);
    *w->result = now;
    if (!json_is_true(json_object_get(now, "draining")))
        return sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST, "the service is not draining");
    if (w->has_target)
        return look_at_moves(w, ret, err);
    const double regions = number(now, "regions"), operations = number(now, "operations");
    set_left(w, regions, ret);
    ret->has_ended = regions <= 0 && operations <= 0;
    (void)snprintf(ret->text, sizeof ret->text, "%.0f regions, %.0f operations left", regions, operations);
    return 0;
}

static int look_at_spill(struct wait *w, struct progress *ret, struct sw_err *err) {
    json_t *now = NULL;
    char text[32];
    const int rc = sw_ctl_call(w->ctl, "tiers", NULL, &now, err);
    if (rc)
        return rc;
    const double left = number(json_array_get(json_object_get(now, "tiers"), 0), "leaving_bytes");
    json_decref(now);
    set_left(w, left, ret);
    ret->has_ended = left <= 0;
    (void)snprintf(ret->text, sizeof ret->text, "%s left", sw_ctl_bytes(text, sizeof text, left));
    return 0;
}

/* The first tier is named first. */
static bool is_first_tier(const char *name) {
    const size_t n = strcspn(sw_tier_names, ",");
    return strncmp(name, sw_tier_names, n) == 0 && !name[n];
}

static int look_at_region(struct wait *w, struct progress *ret, struct sw_err *err) {
    const char *region = json_string_value(json_object_get(*w->result, "region"));
    char done[32], all[32];
    json_t *page = NULL;
    const int rc =
        sw_ctl_call(w->ctl, "regions",
                    json_pack("{s:I, s:i}", "cursor", (json_int_t)strtoll(region, NULL, 10), "limit", 1), &page, err);
    if (rc)
        return rc;
    const json_t *row = json_array_get(json_object_get(page, "regions"), 0);
    const char *name = json_string_value(json_object_get(row, "region")),
               *tier = json_string_value(json_object_get(row, "tier"));
    int outcome = 0;
    ret->done = number(row, "moved_bytes");
    ret->all = number(row, "stored_bytes");
    ret->has_ended = !json_is_true(json_object_get(row, "moving"));
    (void)snprintf(ret->text, sizeof ret->text, "%s of %s", sw_ctl_bytes(done, sizeof done, ret->done),
                   sw_ctl_bytes(all, sizeof all, ret->all));
    if (!name || !tier || strcmp(name, region) != 0)
        outcome =
            sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "region %.24s was dropped or restored meanwhile", region);
    else if (ret->has_ended && is_first_tier(tier) != (w->method == SW_CONTROL_PROMOTE))
        outcome = sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST, "region %.24s has stayed in tier %.16s: see the log",
                             region, tier);
    json_decref(page);
    return outcome;
}

static int look(struct wait *w, struct progress *ret, struct sw_err *err) {
    *ret = (struct progress){.has_ended = false};
    if (w->method == SW_CONTROL_DRAIN)
        return look_at_drain(w, ret, err);
    return json_object_get(*w->result, "region") ? look_at_region(w, ret, err) : look_at_spill(w, ret, err);
}

static void show(const struct progress *progress) {
    char bar[SW_CTL_BAR_BYTES];
    const double share = progress->has_ended ? 1 : progress->all > 0 ? progress->done / progress->all : 0;
    (void)fprintf(stderr, "\r[%s] %3.0f %%  %s\033[K", sw_ctl_bar(bar, share), share * 100, progress->text);
    (void)fflush(stderr);
}

bool sw_ctl_can_wait(const struct sw_control_row *row) {
    return row == &sw_control_rows[SW_CONTROL_DRAIN] || row == &sw_control_rows[SW_CONTROL_SPILL] ||
           row == &sw_control_rows[SW_CONTROL_DEMOTE] || row == &sw_control_rows[SW_CONTROL_PROMOTE];
}

int sw_ctl_wait(struct sw_ctl *ctl, const struct sw_control_row *row, struct json_t **result, struct sw_err *err) {
    static const struct timespec interval = {.tv_nsec = INTERVAL_MS * 1000000L};
    struct wait w = {.ctl = ctl, .method = (enum sw_control_method)(row - sw_control_rows), .result = result};
    const bool is_terminal = isatty(STDERR_FILENO);
    struct progress progress;
    w.has_target = json_object_get(*result, "to") != NULL;
    int rc;
    while ((rc = look(&w, &progress, err)) == 0) {
        if (is_terminal)
            show(&progress);
        if (progress.has_ended)
            break;
        (void)nanosleep(&interval, NULL);
    }
    if (is_terminal)
        (void)fputc('\n', stderr);
    return rc;
}

int sw_ctl_collect(struct sw_ctl *ctl, struct json_t *result, struct sw_err *err) {
    json_t *regions = json_object_get(result, "regions"), *next;
    while ((next = json_object_get(result, "next"))) {
        json_t *page = NULL;
        const int rc =
            sw_ctl_call(ctl, sw_control_rows[SW_CONTROL_SNAPSHOT].name, json_pack("{s:O}", "cursor", next), &page, err);
        if (rc)
            return rc;
        (void)json_array_extend(regions, json_object_get(page, "regions"));
        (void)json_object_del(result, "next");
        json_t *more = json_object_get(page, "next");
        if (more)
            (void)json_object_set(result, "next", more);
        json_decref(page);
    }
    return 0;
}
