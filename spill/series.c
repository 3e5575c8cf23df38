/* series.c - a series of operations on one region: a build, which stores the region by several appends, or a read,
 * which restores it chunk by chunk. This file has what both share: operations, failure, end, batches. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <string.h>

void *sw_series_new(struct sw_owner *owner, uint64_t bytes, const struct sw_series_kind *kind, struct sw_err *err) {
    int rc;
    struct sw_series *series = sw_budget_alloc(sw_quota_kept(owner->quota), bytes, kind->name, &rc, err);
    if (!series)
        return NULL;
    series->kind = kind;
    series->owner = owner;
    series->kept_bytes = owner->quota ? bytes : 0;
    series->idle_us = sw_clock_us();
    sw_list_append(&owner->series, &series->node);
    owner->n_series++;
    return series;
}

void sw_series_free(struct sw_series *series) {
    struct sw_owner *owner = series->owner;
    sw_list_remove(&series->node);
    owner->n_series--;
    sw_budget_give(sw_quota_kept(owner->quota), series->kept_bytes);
    sw_free(series);
    sw_owner_settle(owner);
}

void sw_series_take_region(struct sw_series *series, struct sw_region *region) {
    series->region = region;
    series->id = region->id;
    region->series = series;
}

struct sw_region *sw_series_leave_region(struct sw_series *series) {
    struct sw_region *region = series->region;
    series->region = NULL;
    region->series = NULL;
    return region;
}

/* ---- operations ---- */

int sw_series_check(const struct sw_series *series, struct sw_err *err) {
    if (series->is_ending)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s is ended already", series->kind->name);
    if (series->has_failed && err)
        *err = series->sum.err;
    return series->has_failed ? series->sum.err.code : 0;
}

void sw_series_submit(struct sw_series *series, struct sw_op *op, sw_outcome_cb *done, void *arg) {
    series->submitted_us = series->submitted_us ? series->submitted_us : op->submitted_us;
    series->n_ops++;
    sw_op_submit(op, series->region, done, arg);
}

void sw_series_post(struct sw_series *series) {
    for (struct sw_list *node = series->owner->ops.next; node != &series->owner->ops; node = node->next) {
        struct sw_op *op = SW_CONTAINER_OF(node, struct sw_op, node);
        if (op->series == series)
            sw_op_post(op);
    }
}

static struct sw_ended ended_of(const struct sw_series *series, const char *what, const struct sw_region *region) {
    return (struct sw_ended){.engine = sw_engine_of(series->owner),
                             .operation = series->kind->operation,
                             .what = what,
                             .region = region,
                             .id = series->id,
                             .tier = region ? region->tier : NULL};
}

void sw_series_fill_op(const struct sw_op *op, struct sw_outcome *ret) {
    struct sw_ended ended = ended_of(op->series, op->series->kind->op_what, NULL);
    ended.sum = op->outcome;
    ended.submitted_us = op->submitted_us;
    sw_outcome_fill(&ended, ret);
    bool is_client = true;
    for (unsigned i = 0; i < op->request.n_buffers; i++)
        is_client &= op->buffers[i].frame_bytes > 0;
    ret->coder = sw_coder_name(is_client);
    ret->raw_bytes = op->raw_bytes;
    ret->stored_bytes = op->outcome->stored_bytes;
    ret->codec = sw_frames_most_used(op->outcome->codec_raw_bytes);
    ret->reason = sw_cost_reason_text(op->outcome->reason);
}

void sw_series_note_failure(struct sw_series *series, struct sw_op *op) {
    if (series->has_failed) /* the operation was canceled for this; its own outcome does not count */
        op->outcome->err = series->sum.err;
    else if (op->outcome->err.code)
        sw_series_fail(series, &op->outcome->err);
}

void sw_series_op_ended(struct sw_series *series) {
    series->n_ops--;
    series->idle_us = sw_engine_now_us(sw_engine_of(series->owner));
    sw_series_look(series);
}

uint64_t sw_series_idle_since_us(const struct sw_series *series) {
    return series->n_ops ? 0 : series->idle_us;
}

/* ---- the end ---- */

void sw_series_fill(struct sw_series *series, const struct sw_region *region) {
    struct sw_ended ended = ended_of(series, series->kind->what, region);
    ended.sum = &series->sum;
    ended.submitted_us = series->submitted_us;
    sw_outcome_fill(&ended, &series->outcome);
}

void sw_series_note(const struct sw_series *series, const struct sw_region *region) {
    struct sw_ended ended = ended_of(series, series->kind->what, region);
    ended.sum = &series->sum;
    ended.submitted_us = series->submitted_us;
    if (series->submitted_us) /* otherwise no byte was moved */
        sw_outcome_note(&ended, &series->outcome);
}

/* The last series frees the batch. */
static void leave_batch(struct sw_series *series) {
    struct sw_batch *batch = series->batch;
    if (!batch)
        return;
    series->batch = NULL;
    for (unsigned i = 0; i < batch->n; i++)
        if (batch->all[i] == series)
            batch->all[i--] = batch->all[--batch->n];
    if (batch->n > 0)
        return;
    sw_budget_give(batch->kept, batch->kept_bytes);
    sw_free(batch);
}

static int join(struct sw_series *const *all, unsigned n, struct sw_err *err) {
    const uint64_t bytes = sizeof(struct sw_batch) + n * sizeof(struct sw_series *);
    struct sw_budget *kept = sw_quota_kept(all[0]->owner->quota);
    int rc;
    struct sw_batch *batch = sw_budget_alloc(kept, bytes, "a batch", &rc, err);
    if (!batch)
        return rc;
    batch->kept = kept;
    batch->kept_bytes = bytes;
    batch->n = n;
    for (unsigned i = 0; i < n; i++) {
        batch->all[i] = all[i];
        all[i]->batch = batch;
    }
    return 0;
}

static void fail(struct sw_series *series, const struct sw_err *cause) {
    leave_batch(series);
    series->has_failed = true;
    series->sum.err = *cause;
    for (struct sw_list *node = series->owner->ops.next; node != &series->owner->ops; node = node->next) {
        struct sw_op *op = SW_CONTAINER_OF(node, struct sw_op, node);
        if (op->series == series)
            sw_op_cancel(op);
    }
}

void sw_series_fail(struct sw_series *series, const struct sw_err *cause) {
    struct sw_batch *batch = series->batch;
    struct sw_series *others[SW_SERIES_MAX_BATCH];
    unsigned n = 0;
    for (unsigned i = 0; batch && i < batch->n; i++)
        if (batch->all[i] != series)
            others[n++] = batch->all[i];
    fail(series, cause);
    for (unsigned i = 0; i < n; i++)
        fail(others[i], cause);
    for (unsigned i = 0; i < n; i++)
        sw_series_look(others[i]);
}

void sw_series_expire(struct sw_series *series, const struct sw_err *cause) {
    if (series->has_failed || series->has_ended || series->is_keeping)
        return;
    sw_series_fail(series, cause);
    sw_series_look(series);
}

static void end(struct sw_series *series) {
    struct sw_engine *engine = sw_engine_of(series->owner);
    if (series->is_dropped) {
        sw_series_free(series);
        return;
    }
    series->has_ended = true;
    sw_list_remove(&series->node);
    sw_list_append(&engine->ended_series, &series->node);
    (void)uv_async_send(&engine->async);
}

/* The series has failed or is complete. */
static void finish(struct sw_series *series) {
    if (series->has_failed) {
        if (series->region)
            series->kind->give_up(series);
        sw_series_fill(series, NULL);
    }
    if (series->is_ending || series->is_dropped)
        end(series);
}

/* Its owner was closed while a tier was asked to keep the region. */
static void let_go(const struct sw_series *series) {
    struct sw_owner *owner = series->owner;
    struct sw_region *region;
    if (sw_region_find(&owner->store->regions, owner, series->id, &region, NULL) == 0 &&
        region->state == SW_REGION_OUT && !sw_region_is_busy(region))
        sw_region_let_go(sw_engine_of(owner)->config.catalogue, region);
}

/* Completes series that end together, or lets them fail. */
static void finish_all(struct sw_series *const *all, unsigned n, const struct sw_err *cause) {
    struct sw_err err = *cause;
    struct sw_balance *balance = &sw_engine_of(all[0]->owner)->balance;
    const int rc = err.code ? err.code : all[0]->kind->complete(all, n, &err);
    for (unsigned i = 0; i < n; i++) {
        if (rc)
            fail(all[i], &err);
        else
            leave_batch(all[i]);
        if (!rc && all[i]->owner->state == SW_OWNER_CLOSING)
            let_go(all[i]);
        finish(all[i]);
    }
    sw_balance_look(balance); /* the first tier may be above its watermark now */
}

/* None has operations in flight, and none has failed. */
static void complete(struct sw_series *const *all, unsigned n) {
    struct sw_err err = {0};
    const int rc = all[0]->kind->keep ? all[0]->kind->keep(all, n, &err) : 0;
    for (unsigned i = 0; rc > 0 && i < n; i++)
        all[i]->is_keeping = true;
    if (rc <= 0)
        finish_all(all, n, &err);
}

void sw_series_kept(const struct sw_err *err, void *series) {
    struct sw_series *first = series, *all[SW_SERIES_MAX_BATCH] = {first};
    const struct sw_batch *batch = first->batch; /* the last series frees it */
    unsigned n = 1;
    if (batch) {
        n = batch->n;
        memcpy(all, batch->all, n * sizeof(struct sw_series *));
    }
    finish_all(all, n, err);
}

static void complete_batch(const struct sw_batch *batch) {
    struct sw_series *all[SW_SERIES_MAX_BATCH] = {batch->all[0]};
    const unsigned n = batch->n;
    for (unsigned i = 0; i < n; i++) {
        all[i] = batch->all[i];
        if (all[i]->n_ops > 0 || !all[i]->is_ending)
            return;
    }
    complete(all, n);
}

void sw_series_look(struct sw_series *series) {
    if (series->n_ops > 0 || series->has_ended || series->is_keeping)
        return;
    if (series->has_failed || !series->is_ending)
        finish(series);
    else if (series->batch)
        complete_batch(series->batch);
    else
        complete(&series, 1);
}

void sw_series_end(struct sw_series *series, sw_outcome_cb *done, void *arg) {
    series->is_ending = true;
    series->done = done;
    series->arg = arg;
    sw_series_look(series);
}

int sw_series_check_number(unsigned n, struct sw_err *err) {
    if (n < 1 || n > SW_SERIES_MAX_BATCH)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a batch of %u, must be 1 to %d", n, SW_SERIES_MAX_BATCH);
    return 0;
}

static bool is_among(struct sw_series *const *all, unsigned n, const struct sw_series *series) {
    for (unsigned i = 0; i < n; i++)
        if (all[i] == series)
            return true;
    return false;
}

static int check_end(const struct sw_series *series, struct sw_err *err) {
    if (series->is_ending)
        return sw_series_check(series, err);
    return series->has_failed ? 0 : series->kind->check_end(series, err);
}

static int check_all(struct sw_series *const *all, unsigned n, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++) {
        rc = check_end(all[i], err);
        if (!rc && (is_among(all, i, all[i]) || all[i]->owner != all[0]->owner))
            rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "it is there twice, or another owner's");
        if (rc && n > 1)
            sw_err_context(err, "%s, %u of a batch of %u", all[i]->kind->name, i + 1, n);
    }
    return rc;
}

int sw_series_end_all(struct sw_series *const *all, void *const *args, unsigned n, sw_outcome_cb *done,
                      struct sw_err *err) {
    const struct sw_series *failed = NULL;
    int rc = check_all(all, n, err);
    for (unsigned i = 0; !rc && !failed && i < n; i++)
        failed = all[i]->has_failed ? all[i] : NULL;
    if (!rc && !failed && n > 1)
        rc = join(all, n, err);
    if (rc)
        return rc;
    for (unsigned i = 0; failed && i < n; i++)
        sw_series_expire(all[i], &failed->sum.err);
    for (unsigned i = 0; i < n; i++)
        sw_series_end(all[i], done, args[i]);
    return 0;
}

void sw_series_call_back(struct sw_engine *engine) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&engine->ended_series))) {
        struct sw_series *series = SW_CONTAINER_OF(node, struct sw_series, node);
        const struct sw_outcome outcome = series->outcome;
        sw_outcome_cb *done = series->done;
        void *arg = series->arg;
        sw_series_free(series);
        done(&outcome, arg);
    }
}

void sw_series_close(struct sw_owner *owner) {
    const struct sw_err closing = {-SW_ECANCELED, .scope = SW_SCOPE_REQUEST, .msg = "the session is closing"};
    owner->n_series++; /* the owner must not settle here */
    for (struct sw_list *node = owner->series.next, *next; node != &owner->series; node = next) {
        struct sw_series *series = SW_CONTAINER_OF(node, struct sw_series, node);
        next = node->next;
        series->is_dropped = !series->is_ending;
        if (!series->has_failed && !series->is_keeping)
            fail(series, &closing); /* the others of its batch belong to this owner, too */
        sw_series_look(series);
    }
    owner->n_series--;
}
