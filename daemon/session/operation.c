#include "daemon/session/operation.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "ipc/dispatch.h"
#include <inttypes.h>
#include <string.h>

/* Of builds, pieces that the worker gets at once: it begins with them while the next ones are being looked at. */
enum { POSTED_PIECES = 64 };

struct sw_piece {
    struct sw_operation *operation;
    struct sw_open whole; /* its number, while has_number */
    struct sw_open *ends; /* the build or read of several packets that ends with it; NULL: none, or it has ended */
    unsigned n_waiting;   /* calls of the engine that are due */
    bool has_number, is_done;
    bool tells_all; /* sw_piece_ended() tells its result */
    uint8_t keep_priority;
};

struct sw_operation {
    struct sw_deferred_reply *deferred;
    struct sw_session *session;
    struct sw_ask ask;
    uint64_t begun_us, queued_us;       /* queued: of the last piece that has ended */
    unsigned n_turns, n_begun, n_ended; /* pieces */
    unsigned n_unmapping;               /* memories */
    unsigned n_told;                    /* buffers of reads that begin */
    struct sw_results results;
    struct sw_piece pieces[]; /* and the results of all behind them */
};

static unsigned index_of(const struct sw_piece *piece) {
    return (unsigned)(piece - piece->operation->pieces);
}

static struct sw_result *result_of(const struct sw_piece *piece) {
    return &piece->operation->results.all[index_of(piece)];
}

static struct sw_owner *owner_of(const struct sw_operation *operation) {
    return operation->session->owner;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static const char *mixed(const char *all, const char *one) {
    return !all || strcmp(all, one) == 0 ? one : "mixed";
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
    if (!sum.codec) /* nothing has ended well */
        return;
    if (is_single)
        (void)snprintf(of_one, sizeof of_one, "%s region=%" PRIu32 ":%" PRIu32,
                       sw_session_log_name(name, op->deferred->region_name), op->results.all[0].id.slot,
                       op->results.all[0].id.gen);
    else
        (void)snprintf(of_one, sizeof of_one, " n=%u failed=%u", op->results.n, op->results.n_failed);
    sw_log(SW_LOG_OPERATION,
           op->ask.is_build ? is_single ? "spill.done" : "spill_batch.done"
           : is_single      ? "restore.done"
                            : "restore_batch.done",
           "session=%" PRIu32 "%s bytes=%" PRIu64 " stored=%" PRIu64 " us=%" PRIu64 " queued_us=%" PRIu64
           " codec=%s tier=%s reason=\"%s\"",
           op->session->id, of_one, sum.raw_bytes, sum.stored_bytes, op->results.service_us, op->queued_us, sum.codec,
           sum.tier, sum.reason);
}

static bool has_failed(const struct sw_operation *op) {
    return op->results.n_failed == op->results.n || (op->ask.all && op->results.n_failed);
}

/* With `all`: of builds that failed, the regions that nobody is to know of; of reads, the copies that were kept until
 * all were back. A region that is gone went with the session, or its client guessed its id. */
static void drop_stored(const struct sw_operation *op) {
    for (unsigned i = 0; i < op->n_turns; i++)
        if (op->pieces[i].is_done)
            (void)(op->ask.is_build ? sw_engine_drop : sw_engine_consume)(owner_of(op), op->results.all[i].id, NULL);
}

static void send_results(const struct sw_operation *op, bool consumes) {
    struct sw_results_reply reply;
    sw_results_fill(&reply, op->session->version, op->deferred->request, &op->results);
    for (unsigned i = 0; consumes && i < op->results.n; i++)
        sw_engine_announce_consumed(owner_of(op), op->results.all[i].id);
    /* The client need not wait for the log, nor for the drops, which take a tenth of a restore's time. */
    sw_session_reply_early(op->deferred, &reply.msg);
    if (op->results.n_failed)
        sw_session_report_failure(op->session, op->deferred->request, op->deferred->node.id, op->deferred->region_name,
                                  &op->results.err);
    if (op->ask.ends && sw_tenant_may_log(op->session->tenant, SW_LINES_OTHER))
        log_done(op);
}

/* Sessions that were not resumed may hold what was not to be had. */
static void have_others_give_way(const struct sw_operation *op) {
    for (unsigned i = 0; !op->session->closing && i < op->results.n; i++)
        if (op->results.all[i].code)
            sw_tenants_give_way(op->session->service, op->session->tenant, op->deferred->request,
                                op->results.all[i].code);
}

static void operation_free(struct sw_operation *op) {
    for (unsigned i = 0; op->n_told && i < op->results.n; i++)
        sw_free(op->results.all[i].buffers);
    sw_free(op);
}

static void finish(struct sw_operation *op) {
    const struct sw_service *service = op->session->service;
    const bool failed = has_failed(op), any_failed = op->results.n_failed > 0,
               consumes = !op->ask.is_build && op->ask.all && !op->ask.keep && !failed;
    if (any_failed)
        have_others_give_way(op);
    if (!failed)
        send_results(op, consumes);
    if (consumes || (op->ask.is_build && failed))
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

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

void sw_piece_cancel(struct sw_piece *piece) {
    struct sw_err err;
    (void)sw_err_set(&err, -SW_ECANCELED, SW_SCOPE_REQUEST, "canceled");
    if (piece->ends)
        sw_open_fail(piece->ends, &err);
    else
        sw_engine_cancel(owner_of(piece->operation), *sw_piece_id(piece));
}

void sw_piece_fail(struct sw_piece *piece, const struct sw_err *cause) {
    struct sw_operation *op = piece->operation;
    if (result_of(piece)->code) /* what its build is told then is no other cause */
        return;
    sw_results_fail(&op->results, index_of(piece), cause);
    if (op->ask.is_build)
        result_of(piece)->id = (struct sw_region_id){0};
    for (unsigned i = 0; op->ask.all && op->results.n_failed == 1 && i < op->n_turns; i++)
        if (op->pieces[i].n_waiting && &op->pieces[i] != piece)
            sw_piece_cancel(&op->pieces[i]);
}

static void succeed(struct sw_piece *piece, const struct sw_outcome *outcome) {
    struct sw_result *result = result_of(piece);
    result->raw_bytes = outcome->raw_bytes;
    result->stored_bytes = outcome->stored_bytes;
    result->codec = sw_codec_name(outcome->codec);
    result->tier = outcome->tier;
    result->reason = outcome->reason;
}

static void leave_number(struct sw_piece *piece) {
    if (piece->has_number)
        sw_opens_leave(piece->operation->session, &piece->whole);
    piece->has_number = false;
}

static void ended_one(struct sw_piece *piece) {
    struct sw_operation *op = piece->operation;
    if (--piece->n_waiting)
        return;
    leave_number(piece);
    piece->is_done = !result_of(piece)->code;
    if (++op->n_ended == op->n_begun)
        all_ended(op);
}

static void note(struct sw_piece *piece, const struct sw_outcome *outcome) {
    struct sw_operation *op = piece->operation;
    op->queued_us = outcome->queued_us;
    if (outcome->name[0] && (op->results.n == 1 || outcome->err.code))
        memcpy(op->deferred->region_name, outcome->name, sizeof op->deferred->region_name);
    if (outcome->err.code)
        sw_piece_fail(piece, &outcome->err);
}

void sw_piece_moved(const struct sw_outcome *outcome, void *arg) {
    struct sw_piece *piece = arg;
    note(piece, outcome);
    if (!outcome->err.code && !piece->tells_all)
        succeed(piece, outcome);
    ended_one(piece);
}

void sw_piece_ended(const struct sw_outcome *outcome, void *arg) {
    struct sw_piece *piece = arg;
    struct sw_operation *op = piece->operation;
    if (piece->ends)
        sw_open_end(op->session, piece->ends);
    piece->ends = NULL;
    note(piece, outcome);
    if (!outcome->err.code) {
        succeed(piece, outcome);
        result_of(piece)->id = outcome->region;
        if (piece->keep_priority)
            (void)sw_engine_advise(owner_of(op), outcome->region, SW_ADVISE_PRIORITY, piece->keep_priority, NULL);
    }
    ended_one(piece);
}

/* Memory that is handed over for one use is unmapped with the only job that uses it, or stays until all have ended. */
static bool has_several_jobs(const struct sw_operation *op) {
    return op->ask.n > 1 || op->ask.n_buffers > 1;
}

int sw_piece_moot(const struct sw_piece *piece, struct sw_err *err) {
    const struct sw_operation *op = piece->operation;
    if (!op->ask.all || !op->results.n_failed)
        return 0;
    *err = op->results.err;
    return err->code;
}

struct sw_piece *sw_operation_next(struct sw_operation *op, uint32_t number, uint8_t keep_priority) {
    if (op->n_turns == op->ask.n)
        return NULL;
    if (op->n_turns == 0 && has_several_jobs(op))
        sw_engine_hold(op->session->service->engine);
    struct sw_piece *piece = &op->pieces[op->n_turns++];
    piece->operation = op;
    piece->keep_priority = keep_priority;
    result_of(piece)->number = number;
    return piece;
}

int sw_piece_memory(struct sw_piece *piece, uint32_t number, unsigned n, struct sw_mem **ret, struct sw_err *err) {
    struct sw_operation *op = piece->operation;
    return sw_memtable_begin(&op->session->mems, &op->deferred->once, number, n > 1 || has_several_jobs(op), ret, err);
}

int sw_piece_empty_memory(struct sw_piece *piece, unsigned n, struct sw_mem **ret, struct sw_err *err) {
    struct sw_operation *op = piece->operation;
    return sw_memtable_begin_empty(&op->session->mems, &op->deferred->once, n > 1 || has_several_jobs(op), ret, err);
}

int sw_piece_order(struct sw_piece *piece, uint32_t word, uint64_t value, struct sw_order *ret, struct sw_err *err) {
    return sw_orders_find(&piece->operation->session->orders, value > 0, word, value, ret, err);
}

struct sw_region_id *sw_piece_id(struct sw_piece *piece) {
    return &result_of(piece)->id;
}

uint32_t sw_piece_seq(const struct sw_piece *piece) {
    return piece->operation->deferred->node.id;
}

unsigned sw_piece_index(const struct sw_piece *piece) {
    return index_of(piece);
}

/* Version 9 has no numbers. */
int sw_piece_enter(struct sw_piece *piece, bool is_read, struct sw_err *err) {
    struct sw_session *session = piece->operation->session;
    if (session->version < SW_PROTO_VERSION)
        return 0;
    piece->whole = (struct sw_open){.piece = piece, .is_read = is_read};
    const int rc = sw_opens_enter(session, result_of(piece)->number, &piece->whole, err);
    piece->has_number = rc == 0;
    return rc;
}

void sw_piece_end(struct sw_piece *piece, struct sw_open *open) {
    open->piece = piece;
    piece->ends = open;
    piece->tells_all = true;
}

int sw_piece_tell(struct sw_piece *piece, const struct sw_buffer_info *buffers, unsigned n, struct sw_err *err) {
    struct sw_operation *op = piece->operation;
    struct sw_result *result = result_of(piece);
    const size_t bytes = n * sizeof *buffers;
    if (op->n_told + n > SW_PROTO_MAX_ITEMS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "the regions of reads that begin have more than %d buffers: begin them in several packets",
                          SW_PROTO_MAX_ITEMS);
    const int rc = sw_session_keep(op->deferred, bytes, "the buffers of a read", err);
    if (rc < 0)
        return rc;
    result->buffers = sw_alloc(bytes);
    if (!result->buffers)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for the buffers of a read");
    memcpy(result->buffers, buffers, bytes);
    result->n_buffers = n;
    op->n_told += n;
    return 0;
}

void sw_piece_expect(struct sw_piece *piece) {
    piece->n_waiting++;
}

void sw_piece_begun(struct sw_piece *piece, int rc, const struct sw_err *err) {
    struct sw_operation *op = piece->operation;
    struct sw_engine *engine = op->session->service->engine;
    if (rc < 0) {
        leave_number(piece);
        sw_piece_fail(piece, err);
        return;
    }
    op->n_begun++;
    op->n_ended += piece->n_waiting == 0;
    piece->is_done = piece->n_waiting == 0 && !result_of(piece)->code;
    /* Destinations stay untouched if any piece of reads is refused. */
    if (op->ask.is_build && op->n_begun % POSTED_PIECES == 0 && has_several_jobs(op)) {
        sw_engine_release(engine);
        sw_engine_hold(engine);
    }
}

/* ---- the beginning ----------------------------------------------------------------------------------------------- */

static int admit(const struct sw_session *session, const struct sw_ask *ask, unsigned n_pieces, struct sw_err *err) {
    const uint64_t most = session->service->config->max_session_operations,
                   tenants = session->service->config->tenant_operations;
    if (ask->only_cancels)
        return 0;
    if (ask->is_build && ask->begins && session->service->draining)
        return sw_err_set(err, -SW_EDRAINING, SW_SCOPE_REQUEST, "the service is being drained: no new spills");
    if (session->n_operations >= most)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u operations in flight, the most that max_session_operations allows",
                          session->n_operations);
    if (tenants && session->tenant->n_operations >= tenants)
        return sw_err_set(err, -SW_ETENANTOPS, SW_SCOPE_REQUEST,
                          "the tenant has %u operations in flight, the most that tenant_operations allows",
                          session->tenant->n_operations);
    if (n_pieces > SW_SESSION_MAX_PIECES - session->n_pieces)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the session has %u buffers of packets with several in flight, %u more would exceed %u",
                          session->n_pieces, n_pieces, (unsigned)SW_SESSION_MAX_PIECES);
    return 0;
}

static int operation_new(struct sw_operation **ret, struct sw_deferred_reply *deferred, const struct sw_ask *ask,
                         struct sw_err *err) {
    struct sw_operation *op = NULL;
    const size_t all = sizeof *op + ask->n * sizeof op->pieces[0], bytes = all + ask->n * sizeof *op->results.all;
    const int rc = sw_session_keep(deferred, bytes, "an operation", err);
    if (rc < 0)
        return rc;
    op = sw_alloc(bytes);
    if (!op)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for an operation");
    op->deferred = deferred;
    op->session = deferred->session;
    op->ask = *ask;
    op->begun_us = sw_clock_us();
    op->results = (struct sw_results){.all = (struct sw_result *)(void *)((uint8_t *)op + all), .n = ask->n};
    *ret = op;
    return 0;
}

_Static_assert(sizeof(struct sw_operation) % _Alignof(struct sw_result) == 0 &&
                   sizeof(struct sw_piece) % _Alignof(struct sw_result) == 0,
               "the results lie behind the pieces");

int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_ask *ask,
                       struct sw_operation **ret, struct sw_err *err) {
    const unsigned n_pieces = ask->n_buffers > 1 ? ask->n_buffers : ask->n > 1 ? ask->n : 0;
    struct sw_deferred_reply *deferred = NULL;
    int rc = sw_session_defer_reply(session, request, &deferred, err);
    if (rc < 0)
        return rc;
    rc = admit(session, ask, n_pieces, err);
    if (rc == 0)
        rc = operation_new(ret, deferred, ask, err);
    if (rc < 0) {
        sw_session_cancel_reply(deferred);
        return rc;
    }
    if (ask->only_cancels)
        return 0;
    deferred->is_operation = true;
    deferred->n_pieces = n_pieces;
    session->n_operations++;
    session->tenant->n_operations++;
    session->n_pieces += n_pieces;
    return 0;
}

int sw_operation_go(struct sw_operation *op, struct sw_err *err) {
    if (has_several_jobs(op))
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
