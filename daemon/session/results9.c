#include "daemon/session/results9.h"

#include <string.h>

/* The sums of all results. A text is "mixed" if it differs between results. */
struct sums {
    uint64_t raw_bytes, stored_bytes;
    const char *codec, *tier, *reason;
};

/* Compares pointers first, because most texts are static. */
static void combine(const char **all, const char *one) {
    if (!*all || !one)
        *all = one ? one : *all;
    else if (*all != one && strcmp(*all, one) != 0)
        *all = "mixed";
}

static struct sums sum(const struct sw_results *results) {
    struct sums sums = {0};
    for (unsigned i = 0; i < results->n; i++) {
        sums.raw_bytes += results->all[i].raw_bytes;
        sums.stored_bytes += results->all[i].stored_bytes;
        combine(&sums.codec, results->all[i].codec);
        combine(&sums.tier, results->all[i].tier);
        combine(&sums.reason, results->all[i].reason);
    }
    return sums;
}

static void set_text(uint8_t *field, size_t bytes, const char *text) {
    sw_msg_set_text(field, bytes, text ? text : "");
}

static void fill_result(struct sw_msg *ret, const struct sw_results *results) {
    struct sw_msg_result *m = &ret->u.result;
    const struct sw_result *result = &results->all[0];
    sw_msg_init(ret, SW_MSG_RESULT);
    m->slot = result->id.slot;
    m->gen = result->id.gen;
    m->raw_bytes = result->raw_bytes;
    m->stored_bytes = result->stored_bytes;
    m->service_us = results->service_us;
    set_text(m->codec, sizeof m->codec, result->codec);
    set_text(m->tier, sizeof m->tier, result->tier);
    set_text(m->reason, sizeof m->reason, result->reason);
}

static void fill_batch(struct sw_msg *ret, const struct sw_results *results) {
    struct sw_msg_result_batch *m = &ret->u.result_batch;
    const struct sums sums = sum(results);
    sw_msg_init(ret, SW_MSG_RESULT_BATCH);
    m->count = results->n;
    m->raw_bytes = sums.raw_bytes;
    m->stored_bytes = sums.stored_bytes;
    m->service_us = results->service_us;
    set_text(m->codec, sizeof m->codec, sums.codec);
    set_text(m->tier, sizeof m->tier, sums.tier);
    set_text(m->reason, sizeof m->reason, sums.reason);
    for (unsigned i = 0; i < results->n; i++) {
        m->slot[i] = results->all[i].id.slot;
        m->gen[i] = results->all[i].id.gen;
    }
}

void sw_results9_fill(struct sw_msg *ret, unsigned request, const struct sw_results *results) {
    switch (request) {
    case SW_MSG_SPILL_BATCH:
    case SW_MSG_RESTORE_BATCH:
        fill_batch(ret, results);
        break;
    case SW_MSG_DROP:
    case SW_MSG_DROP_BATCH:
    case SW_MSG_CONSUME:
        sw_msg_init(ret, SW_MSG_OK);
        break;
    default:
        fill_result(ret, results);
    }
}
