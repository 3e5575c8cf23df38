#include "tests/bench/spillway_bench/statistics.h"

#include "base/alloc.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool add_sample(struct sw_bench_samples *s, uint64_t value) {
    if (s->n == s->room) {
        const size_t room = s->room ? 2 * s->room : 1024;
        uint64_t *values = sw_realloc(s->values, room * sizeof *values);
        if (!values)
            return false;
        s->values = values;
        s->room = room;
    }
    s->values[s->n++] = value;
    return true;
}

void sw_bench_statistics_fini(struct sw_bench_statistics *f) {
    for (int op = 0; op < SW_BENCH_OP_NR; op++) {
        sw_free(f->ops[op].latency_us.values);
        sw_free(f->ops[op].service_us.values);
    }
    memset(f, 0, sizeof *f);
}

static void add_to(struct sw_bench_count *count, uint64_t n, uint64_t raw_bytes, uint64_t stored_bytes) {
    count->n += n;
    count->raw_bytes += raw_bytes;
    count->stored_bytes += stored_bytes;
}

/* The count of these names, or a new one; the last takes all that no room is left for. */
static struct sw_bench_count *find_count(struct sw_bench_count *counts, const char *codec, const char *tier,
                                         const char *reason) {
    struct sw_bench_count *c = counts;
    while (c < counts + SW_BENCH_MAX_NAMES - 1 && c->n &&
           (strcmp(c->codec, codec) != 0 || strcmp(c->tier, tier) != 0 || strcmp(c->reason, reason) != 0))
        c++;
    if (!c->n) {
        (void)snprintf(c->codec, sizeof c->codec, "%s", codec);
        (void)snprintf(c->tier, sizeof c->tier, "%s", tier);
        (void)snprintf(c->reason, sizeof c->reason, "%s", reason);
    }
    return c;
}

static void add_counts(struct sw_bench_count *sum, const struct sw_bench_count *part) {
    for (int i = 0; i < SW_BENCH_MAX_NAMES; i++)
        if (part[i].n)
            add_to(find_count(sum, part[i].codec, part[i].tier, part[i].reason), part[i].n, part[i].raw_bytes,
                   part[i].stored_bytes);
}

static void add_samples(struct sw_bench_statistics *f, struct sw_bench_samples *sum,
                        const struct sw_bench_samples *part) {
    for (size_t i = 0; i < part->n; i++)
        f->out_of_memory |= !add_sample(sum, part->values[i]);
}

void sw_bench_statistics_add(struct sw_bench_statistics *sum, const struct sw_bench_statistics *part) {
    for (int op = 0; op < SW_BENCH_OP_NR; op++) {
        sum->ops[op].n += part->ops[op].n;
        sum->ops[op].n_regions += part->ops[op].n_regions;
        sum->ops[op].n_by_client += part->ops[op].n_by_client;
        sum->ops[op].bytes += part->ops[op].bytes;
        add_samples(sum, &sum->ops[op].latency_us, &part->ops[op].latency_us);
        add_samples(sum, &sum->ops[op].service_us, &part->ops[op].service_us);
    }
    for (int i = 0; i < SW_BENCH_MAX_COLUMNS; i++)
        add_to(&sum->columns[i], part->columns[i].n, part->columns[i].raw_bytes, part->columns[i].stored_bytes);
    add_counts(sum->stored, part->stored);
    add_counts(sum->errors, part->errors);
    sum->n_compared += part->n_compared;
    sum->n_different += part->n_different;
    sum->n_dropped += part->n_dropped;
    sum->out_of_memory |= part->out_of_memory;
}

void sw_bench_note(struct sw_bench_statistics *f, enum sw_bench_op op, const struct spillway_result *results,
                   unsigned n_regions, uint64_t latency_us, unsigned column) {
    struct sw_bench_op_statistics *statistics = &f->ops[op];
    uint64_t service_us = 0;
    for (const struct spillway_result *r = results; r < results + n_regions; r++) {
        statistics->bytes += r->raw_bytes;
        statistics->n_by_client += strcmp(r->coder, "client") == 0;
        service_us = r->service_us > service_us ? r->service_us : service_us;
        if (op != SW_BENCH_SPILL)
            continue;
        add_to(&f->columns[column], 1, r->raw_bytes, r->stored_bytes);
        add_to(find_count(f->stored, r->codec, r->tier, r->reason), 1, r->raw_bytes, r->stored_bytes);
    }
    statistics->n++;
    statistics->n_regions += n_regions;
    f->out_of_memory |=
        !add_sample(&statistics->latency_us, latency_us) || !add_sample(&statistics->service_us, service_us);
}

void sw_bench_note_error(struct sw_bench_statistics *f, const char *name) {
    add_to(find_count(f->errors, name, "", ""), 1, 0, 0);
}

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

uint64_t sw_bench_percentile(struct sw_bench_samples *samples, double part) {
    if (!samples->n)
        return 0;
    qsort(samples->values, samples->n, sizeof *samples->values, by_value);
    const size_t at = (size_t)(part * (double)samples->n);
    return samples->values[at < samples->n ? at : samples->n - 1];
}

void sw_bench_busy_begin(struct sw_bench_busy *busy, enum sw_bench_op op, uint64_t now_us) {
    const int kinds[] = {(int)op, SW_BENCH_OP_NR};
    (void)pthread_mutex_lock(&busy->lock);
    for (int i = 0; i < 2; i++)
        if (busy->kinds[kinds[i]].n++ == 0)
            busy->kinds[kinds[i]].since_us = now_us;
    (void)pthread_mutex_unlock(&busy->lock);
}

void sw_bench_busy_end(struct sw_bench_busy *busy, enum sw_bench_op op, uint64_t now_us) {
    const int kinds[] = {(int)op, SW_BENCH_OP_NR};
    (void)pthread_mutex_lock(&busy->lock);
    for (int i = 0; i < 2; i++)
        if (--busy->kinds[kinds[i]].n == 0 && now_us > busy->kinds[kinds[i]].since_us)
            busy->kinds[kinds[i]].total_us += now_us - busy->kinds[kinds[i]].since_us;
    (void)pthread_mutex_unlock(&busy->lock);
}
