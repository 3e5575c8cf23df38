#include "daemon/ctl/top.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "daemon/ctl/print.h"
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_SESSIONS = 20, VALUE_BYTES = 32 };

int sw_top_look(struct sw_top *ret, struct sw_ctl *ctl, struct sw_err *err) {
    *ret = (struct sw_top){.at_s = (double)sw_clock_us() / 1e6};
    int rc = sw_ctl_call(ctl, "status", NULL, &ret->status, err);
    if (rc == 0)
        rc = sw_ctl_call(ctl, "stats", NULL, &ret->stats, err);
    if (rc == 0)
        rc = sw_ctl_call(ctl, "tiers", NULL, &ret->tiers, err);
    if (rc == 0)
        rc = sw_ctl_call(ctl, "sessions", NULL, &ret->sessions, err);
    if (rc < 0)
        sw_top_fini(ret);
    return rc;
}

void sw_top_fini(struct sw_top *top) {
    json_decref(top->status);
    json_decref(top->stats);
    json_decref(top->tiers);
    json_decref(top->sessions);
    *top = (struct sw_top){.status = NULL};
}

static double number(const json_t *object, const char *name) {
    return json_number_value(json_object_get(object, name));
}

static const char *text(const json_t *object, const char *name) {
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "-";
}

/* Returns the recent growth of a total of `stats`, per second. */
static double rate(const struct sw_top *now, const struct sw_top *before, const char *name) {
    const double seconds = before ? now->at_s - before->at_s : number(now->status, "uptime_us") / 1e6;
    const double grown = number(now->stats, name) - (before ? number(before->stats, name) : 0);
    return seconds > 0 && grown > 0 ? grown / seconds : 0;
}

static void print_rates(FILE *out, const struct sw_top *now, const struct sw_top *before) {
    char bytes[3][VALUE_BYTES];
    const double raw = number(now->stats, "spilled_raw_bytes"), stored = number(now->stats, "spilled_stored_bytes");
    (void)fprintf(out, "spills   %8.1f/s  %10s/s   stored %10s/s   ratio %.2f\n", rate(now, before, "spills"),
                  sw_ctl_bytes(bytes[0], VALUE_BYTES, rate(now, before, "spilled_raw_bytes")),
                  sw_ctl_bytes(bytes[1], VALUE_BYTES, rate(now, before, "spilled_stored_bytes")),
                  stored > 0 ? raw / stored : 1.0);
    (void)fprintf(out, "restores %8.1f/s  %10s/s   under way %.0f   failed %.0f   canceled %.0f\n",
                  rate(now, before, "restores"),
                  sw_ctl_bytes(bytes[2], VALUE_BYTES, rate(now, before, "restored_raw_bytes")),
                  number(now->stats, "operations"), number(now->stats, "failed"), number(now->stats, "canceled"));
}

static void print_latency(FILE *out, const json_t *stats) {
    size_t i;
    json_t *row;
    char mean[VALUE_BYTES], p99[VALUE_BYTES];
    json_array_foreach(json_object_get(stats, "latency"), i, row) {
        if (strcmp(text(row, "stage"), "whole") == 0 && number(row, "operations") > 0)
            (void)fprintf(out, "%-8s takes %s on average, 99 of 100 at most %s\n", text(row, "kind"),
                          sw_ctl_time(mean, sizeof mean, number(row, "mean_us")),
                          json_is_null(json_object_get(row, "p99_us"))
                              ? "more than 10 s"
                              : sw_ctl_time(p99, sizeof p99, number(row, "p99_us")));
    }
}

static void print_tiers(FILE *out, const json_t *tiers) {
    size_t i;
    json_t *tier;
    char used[VALUE_BYTES], capacity[VALUE_BYTES], bar[SW_CTL_BAR_BYTES];
    json_array_foreach(json_object_get(tiers, "tiers"), i, tier) {
        const double share =
            number(tier, "capacity_bytes") > 0 ? number(tier, "used_bytes") / number(tier, "capacity_bytes") : 0;
        (void)fprintf(out, "%-8s [%s] %3.0f %%  %s of %s, %.0f frames\n", text(tier, "tier"), sw_ctl_bar(bar, share),
                      share * 100, sw_ctl_bytes(used, sizeof used, number(tier, "used_bytes")),
                      sw_ctl_bytes(capacity, sizeof capacity, number(tier, "capacity_bytes")), number(tier, "frames"));
    }
}

struct entry {
    double stored_bytes;
    json_t *session; /* borrowed */
};

static int by_stored(const void *a, const void *b) {
    const double x = ((const struct entry *)a)->stored_bytes, y = ((const struct entry *)b)->stored_bytes;
    return (y > x) - (y < x);
}

/* Prints the sessions with the most stored bytes. */
static void print_sessions(FILE *out, const json_t *answer) {
    const json_t *all = json_object_get(answer, "sessions");
    const size_t n = json_array_size(all), shown = n < MAX_SESSIONS ? n : MAX_SESSIONS;
    struct entry *order = sw_alloc_array(n + 1, sizeof *order);
    if (!order)
        return;
    for (size_t i = 0; i < n; i++) {
        order[i].session = json_array_get(all, i);
        order[i].stored_bytes = number(order[i].session, "stored_bytes");
    }
    qsort(order, n, sizeof *order, by_stored);
    json_t *top = json_array();
    for (size_t i = 0; i < shown; i++)
        (void)json_array_append(top, order[i].session);
    sw_free(order);
    json_t *object = json_pack("{s:o}", "sessions", top);
    if (shown)
        sw_ctl_print(out, object);
    if (n > shown)
        (void)fprintf(out, "and %zu more\n", n - shown);
    json_decref(object);
}

void sw_top_print(FILE *out, const struct sw_top *now, const struct sw_top *before) {
    char uptime[VALUE_BYTES];
    (void)fprintf(out, "spillwayd %s, %s, up %s: %.0f sessions, %.0f regions\n\n", text(now->status, "version"),
                  text(now->status, "state"), sw_ctl_time(uptime, sizeof uptime, number(now->status, "uptime_us")),
                  number(now->status, "sessions"), number(now->status, "regions"));
    print_rates(out, now, before);
    print_latency(out, now->stats);
    (void)fputc('\n', out);
    print_tiers(out, now->tiers);
    (void)fputc('\n', out);
    print_sessions(out, now->sessions);
}
