#include "daemon/session/operation.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ipc/dispatch.h"
#include <inttypes.h>
#include <string.h>

/* Builds that the worker gets together: it begins with them while the loop checks the next ones. */
enum { POSTED_TASKS = 64 };

struct sw_operation {
    struct sw_deferred_reply *deferred;
    struct sw_session *session;
    struct sw_operation_spec spec;
    bool has_several_jobs;              /* a `once` memory that they use stays mapped until all have ended */
    uint64_t begun_us, queued_us;       /* queued: of the task that ended last */
    unsigned n_turns, n_begun, n_ended; /* tasks */
    unsigned n_unmapping;               /* memories */
    unsigned n_reported;                /* buffers of reads that begin */
    struct sw_results results;
    struct sw_task tasks[]; /* then an array of results */
};

static struct sw_owner *owner_of(const struct sw_operation *operation) {
    return operation->session->owner;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static const char *mixed(const char *all, const char *one) {
    return !all || all == one || strcmp(all, one) == 0 ? one : "mixed"; /* mostly the same static text */
}

static void log_done(const struct sw_operation *op) {
    const bool is_single = op->results.n == 1;
    struct sw_result sum = {0};
    char of_one[SW_SESSION_LOG_NAME_BYTES + 40], name[SW_SESSION_LOG_NAME_BYTES];
    for (unsigned i = 0; i < op->results.n; i++) {
        const struct sw_result *one = &op->results.all[i];
        if (one->code || !one->codec)
            continue;
        sum.raw_bytes += one->raw_bytes;
        sum.stored_bytes += one->stored_bytes;
        sum.codec = mixed(sum.codec, one->codec);
        sum.tier = mixed(sum.tier, one->tier);
        sum.reason = mixed(sum.reason, one->reason);
    }
    if (!sum.codec) /* no build or read has ended with success */
        return;
    if (is_single)
        (void)snprintf(of_one, sizeof of_one, "%s region=%" PRIu32 ":%" PRIu32,
                       sw_session_log_name(name, op->deferred->region_name), op->results.all[0].id.slot,
                       op->results.all[0].id.gen);
    else
        (void)snprintf(of_one, sizeof of_one, " n=%u failed=%u", op->results.n, op->results.n_failed);
    sw_log(SW_LOG_OPERATION,
           op->spec.is_build ? is_single ? "spill.done" : "spill_batch.done"
           : is_single       ? "restore.done"
                             : "restore_batch.done",
           "session=%" PRIu32 "%s bytes=%" PRIu64 " stored=%" PRIu64 " us=%" PRIu64 " queued_us=%" PRIu64
           " codec=%s tier=%s reason=\"%s\"",
           op->session->id, of_one, sum.raw_bytes, sum.stored_bytes, op->results.service_us, op->queued_us, sum.codec,
           sum.tier, sum.reason);
}

static bool has_failed(const struct sw_operation *op) {
    return op->results.n_failed == op->results.n || (op->spec.all && op->results.n_failed);
}

/* With `all`, drops the regions of failed builds, or the stored copies of reads that all succeeded. A region that is
 * already gone ended with the session, or the client guessed its id. */
static void drop_stored(const struct sw_operation *op) {
    for (unsigned i = 0; i < op->n_turns; i++)
        if (op->tasks[i].is_done)
            (void)(op->spec.is_build ? sw_engine_drop : sw_engine_consume)(owner_of(op), op->results.all[i].id, NULL);
}

static void send_results(const struct sw_operation *op, bool consumes) {
    struct sw_results_reply reply;
    sw_results_fill(&reply, op->session->version, op->deferred->request, &op->results);
    for (unsigned i = 0; consumes && i < op->results.n; i++)
        sw_engine_announce_consumed(owner_of(op), op->results.all[i].id);
    /* The client does not wait for the log or the drops, which take a tenth of a restore's time. */
    sw_session_reply_early(op->deferred, &reply.msg);
    if (op->results.n_failed)
        sw_session_report_failure(op->session, op->deferred->request, op->deferred->node.id, op->deferred->region_name,
                                  &op->results.err);
    if (op->spec.ends && sw_tenant_may_log(op->session->tenant, SW_LINES_OTHER))
        log_done(op);
}

/* Closes overdue sessions if a task failed for lack of resources that they may hold. */
static void reclaim_from_others(const struct sw_operation *op) {
    for (unsigned i = 0; !op->session->closing && i < op->results.n; i++)
        if (op->results.all[i].code)
            sw_tenants_reclaim(op->session->service, op->session->tenant, op->deferred->request,
                               op->results.all[i].code);
}

static void operation_free(struct sw_operation *op) {
    for (unsigned i = 0; i < op->results.n; i++) {
        sw_free(op->results.all[i].buffers);
        sw_free(op->results.all[i].frames);
    }
    sw_free(op);
}

static void finish(struct sw_operation *op) {
    const struct sw_service *service = op->session->service;
    const bool failed = has_failed(op), any_failed = op->results.n_failed > 0,
               consumes = !op->spec.is_build && op->spec.all && !op->spec.keep && !failed;
    if (any_failed)
        reclaim_from_others(op);
    if (!failed)
        send_results(op, consumes);
    if (consumes || (op->spec.is_build && failed))
        drop_stored(op);
    sw_session_finish_reply(op->deferred, NULL, failed ? &op->results.err : NULL);
    operation_free(op);
    if (any_failed)
        sw_service_check_devices(service);
}

static void on_unmapped(void *arg) {
    struct sw_operation *op = arg;
    if (--op->n_unmapping == 0)
        finish(op);
}

static void all_ended(struct sw_operation *op) {
    op->results.service_us = sw_clock_us() - op->begun_us;
    op->n_unmapping = sw_memtable_unmap(&op->deferred->once, on_unmapped, op);
    if (op->n_unmapping == 0)
        finish(op);
}

/* ---- tasks ------------------------------------------------------------------------------------------------------- */

void sw_task_cancel(struct sw_task *task) {
    struct sw_err err;
    (void)sw_err_set(&err, -SW_ECANCELED, SW_SCOPE_REQUEST, "canceled");
    if (task->ends)
        sw_open_fail(task->ends, &err);
    else
        sw_engine_cancel(owner_of(task->operation), task->result->id);
}

void sw_task_fail(struct sw_task *task, const struct sw_err *cause) {
    struct sw_operation *op = task->operation;
    if (task->result->code) /* a later error follows from the first one */
        return;
    sw_results_fail(&op->results, task->index, cause);
    if (op->spec.is_build)
        task->result->id = (struct sw_region_id){0};
    for (unsigned i = 0; op->spec.all && op->results.n_failed == 1 && i < op->n_turns; i++)
        if (op->tasks[i].n_waiting && &op->tasks[i] != task)
            sw_task_cancel(&op->tasks[i]);
}

static void succeed(struct sw_task *task, const struct sw_outcome *outcome) {
    struct sw_result *result = task->result;
    result->raw_bytes = outcome->raw_bytes;
    result->stored_bytes = outcome->stored_bytes;
    result->codec = sw_codec_name(outcome->codec);
    result->tier = outcome->tier;
    result->reason = outcome->reason;
    result->coder = outcome->coder;
    result->durability = outcome->durability;
}

static void leave_number(struct sw_task *task) {
    if (task->has_number)
        sw_opens_leave(task->operation->session, &task->whole);
    task->has_number = false;
}

static void ended_one(struct sw_task *task) {
    struct sw_operation *op = task->operation;
    if (--task->n_waiting)
        return;
    leave_number(task);
    task->is_done = !task->result->code;
    if (++op->n_ended == op->n_begun)
        all_ended(op);
}

static void note(struct sw_task *task, const struct sw_outcome *outcome) {
    struct sw_operation *op = task->operation;
    op->queued_us = outcome->queued_us;
    if (outcome->name[0] && (op->results.n == 1 || outcome->err.code))
        memcpy(op->deferred->region_name, outcome->name, sizeof op->deferred->region_name);
    if (outcome->err.code)
        sw_task_fail(task, &outcome->err);
}

void sw_task_moved(const struct sw_outcome *outcome, void *arg) {
    struct sw_task *task = arg;
    note(task, outcome);
    if (!outcome->err.code && !task->reports_end)
        succeed(task, outcome);
    ended_one(task);
}

void sw_task_done(struct sw_task *task, const struct sw_outcome *outcome) {
    succeed(task, outcome);
    task->result->id = outcome->region;
    if (task->keep_priority)
        (void)sw_engine_advise(owner_of(task->operation), outcome->region, SW_ADVISE_PRIORITY, task->keep_priority,
                               NULL);
}

void sw_task_ended(const struct sw_outcome *outcome, void *arg) {
    struct sw_task *task = arg;
    struct sw_operation *op = task->operation;
    if (task->ends)
        sw_open_end(op->session, task->ends);
    task->ends = NULL;
    note(task, outcome);
    if (!outcome->err.code)
        sw_task_done(task, outcome);
    ended_one(task);
}

int sw_task_check_others(const struct sw_task *task, struct sw_err *err) {
    const struct sw_operation *op = task->operation;
    if (!op->spec.all || !op->results.n_failed)
        return 0;
    *err = op->results.err;
    return err->code;
}

struct sw_task *sw_operation_next(struct sw_operation *op, uint32_t number, uint8_t keep_priority) {
    if (op->n_turns == op->spec.n)
        return NULL;
    if (op->n_turns == 0 && op->has_several_jobs)
        sw_engine_hold(op->session->service->engine, op->spec.needs_kernels);
    struct sw_task *task = &op->tasks[op->n_turns];
    task->seq = op->deferred->node.id;
    task->index = op->n_turns;
    task->result = &op->results.all[op->n_turns++];
    task->result->number = number;
    task->operation = op;
    task->keep_priority = keep_priority;
    return task;
}

int sw_task_range(struct sw_task *task, const struct sw_wire_chunk *chunk, unsigned n, struct sw_range *ret,
                  struct sw_err *err) {
    struct sw_operation *op = task->operation;
    struct sw_session *session = op->session;
    struct sw_list *once = &op->deferred->once;
    const bool is_shared = n > 1 || op->has_several_jobs;
    *ret = (struct sw_range){0};
    if (!chunk)
        return sw_memtable_begin_empty(&session->mems, once, is_shared, &ret->mem, err);
    ret->offset = chunk->offset;
    ret->bytes = chunk->raw_bytes;
    ret->frame_bytes = chunk->frame_bytes;
    ret->buffer = chunk->buffer;
    ret->at = chunk->at;
    const int rc = sw_memtable_begin(&session->mems, once, chunk->mem, is_shared, &ret->mem, err);
    if (rc < 0)
        return rc;
    return sw_orders_find(&session->orders, chunk->order_value > 0, chunk->order_word, chunk->order_value, &ret->order,
                          err);
}

/* Version 9 has no numbers, and so no cancel. */
int sw_task_enter(struct sw_task *task, bool is_read, struct sw_err *err) {
    struct sw_session *session = task->operation->session;
    if (session->version < SW_PROTO_VERSION)
        return 0;
    task->whole = (struct sw_open){.task = task, .is_read = is_read};
    const int rc = sw_opens_enter(session, task->result->number, &task->whole, err);
    task->has_number = rc == 0;
    return rc;
}

void sw_task_end(struct sw_task *task, struct sw_open *open) {
    open->task = task;
    task->ends = open;
    task->reports_end = true;
}

int sw_task_report_buffers(struct sw_task *task, const struct sw_buffer_info *buffers, unsigned n, struct sw_err *err) {
    struct sw_operation *op = task->operation;
    struct sw_result *result = task->result;
    const size_t bytes = n * sizeof *buffers;
    int rc;
    if (op->n_reported + n > SW_PROTO_MAX_ITEMS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "the regions of all reads that begin here have more than %d buffers: use several packets",
                          SW_PROTO_MAX_ITEMS);
    result->buffers = sw_session_alloc(op->deferred, bytes, "the buffers of a read", &rc, err);
    if (!result->buffers)
        return rc;
    memcpy(result->buffers, buffers, bytes);
    result->n_buffers = n;
    op->n_reported += n;
    return 0;
}

int sw_task_report_frames(struct sw_task *task, struct sw_wire_frame **ret, struct sw_err *err) {
    struct sw_result *result = task->result;
    int rc;
    *ret = result->frames =
        sw_session_alloc(task->operation->deferred, result->n_frames * sizeof **ret, "the frames of a read", &rc, err);
    return rc;
}

void sw_task_expect(struct sw_task *task) {
    task->n_waiting++;
}

void sw_task_started(struct sw_task *task, int rc, const struct sw_err *err) {
    struct sw_operation *op = task->operation;
    struct sw_engine *engine = op->session->service->engine;
    if (rc < 0) {
        leave_number(task);
        sw_task_fail(task, err);
        return;
    }
    op->n_begun++;
    op->n_ended += task->n_waiting == 0;
    task->is_done = task->n_waiting == 0 && !task->result->code;
    /* Reads are not released early: if one is refused, all destinations must stay unchanged. */
    if (op->spec.is_build && op->n_begun % POSTED_TASKS == 0 && op->has_several_jobs) {
        sw_engine_release(engine);
        sw_engine_hold(engine, op->spec.needs_kernels);
    }
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static int admit(const struct sw_session *session, const struct sw_operation_spec *spec, unsigned n_buffers,
                 struct sw_err *err) {
    const uint64_t most = session->service->config->max_session_operations,
                   tenants = session->tenant->limits[SW_LIMIT_OPERATIONS];
    if (spec->only_cancels)
        return 0;
    if (spec->is_build && spec->begins && session->service->draining)
        return sw_err_set(err, -SW_EDRAINING, SW_SCOPE_REQUEST, "the service is being drained: it takes no new spills");
    if (session->n_operations >= most)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u operations in flight, the most that max_session_operations allows",
                          session->n_operations);
    if (tenants && session->tenant->n_operations >= tenants)
        return sw_err_set(err, -SW_ETENANTOPS, SW_SCOPE_REQUEST,
                          "the tenant has %u operations in flight, the most that tenant_operations or quotas allow",
                          session->tenant->n_operations);
    if (n_buffers > SW_SESSION_MAX_BUFFERS - session->n_buffers)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u buffers in flight, %u more would exceed the limit of %u",
                          session->n_buffers, n_buffers, (unsigned)SW_SESSION_MAX_BUFFERS);
    return 0;
}

static int operation_new(struct sw_operation **ret, struct sw_deferred_reply *deferred,
                         const struct sw_operation_spec *spec, struct sw_err *err) {
    struct sw_operation *op = NULL;
    const size_t all = sizeof *op + spec->n * sizeof op->tasks[0], bytes = all + spec->n * sizeof *op->results.all;
    int rc;
    op = sw_session_alloc(deferred, bytes, "an operation", &rc, err);
    if (!op)
        return rc;
    op->deferred = deferred;
    op->session = deferred->session;
    op->spec = *spec;
    op->has_several_jobs = spec->n > 1 || spec->n_buffers > 1;
    op->begun_us = sw_clock_us();
    op->results = (struct sw_results){.all = (struct sw_result *)(void *)((uint8_t *)op + all), .n = spec->n};
    *ret = op;
    return 0;
}

_Static_assert(sizeof(struct sw_operation) % _Alignof(struct sw_result) == 0 &&
                   sizeof(struct sw_task) % _Alignof(struct sw_result) == 0,
               "the results are aligned behind the tasks");

int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_operation_spec *spec,
                       struct sw_operation **ret, struct sw_err *err) {
    const unsigned n_buffers = spec->n_buffers > 1 ? spec->n_buffers : spec->n > 1 ? spec->n : 0;
    struct sw_deferred_reply *deferred = NULL;
    int rc = sw_session_defer_reply(session, request, &deferred, err);
    if (rc < 0)
        return rc;
    rc = admit(session, spec, n_buffers, err);
    if (rc == 0)
        rc = operation_new(ret, deferred, spec, err);
    if (rc < 0) {
        sw_session_cancel_reply(deferred);
        return rc;
    }
    if (spec->only_cancels)
        return 0;
    deferred->is_operation = true;
    deferred->n_buffers = n_buffers;
    session->n_operations++;
    session->tenant->n_operations++;
    session->n_buffers += n_buffers;
    return 0;
}

int sw_operation_go(struct sw_operation *op, struct sw_err *err) {
    if (op->has_several_jobs)
        sw_engine_release(op->session->service->engine);
    if (op->n_begun) {
        if (op->n_ended == op->n_begun)
            all_ended(op);
        return SW_REPLY_LATER;
    }
    *err = op->results.err;
    struct sw_deferred_reply *deferred = op->deferred;
    operation_free(op);
    sw_session_cancel_reply(deferred);
    return err->code;
}
