/* client_in_place.c - see client_in_place.h. Life of an item:
 *
 *   LEFT      the service is to do it, after the others
 *   READY     until there is a coder, and the caller's stream is where it was at the call
 *   RUNS      the coder packs or unpacks. A pack that fails is undone by the mover
 *   PACKED    the service is to be told, which gives the region its id; TELLS: it was, and has not answered
 *   UNDOES    the service has refused the region, or the call was canceled: the bytes are unpacked again
 *   DONE      its result is known
 *
 * Whatever happens to the service or to the connection: a pack that the service does not know is undone, and an unpack
 * goes on. */
#include "ipc/client/client_in_place.h"
#include "ipc/client/client_coder.h"
#include "ipc/client/client_packed.h"
#include "ipc/client/client_results.h"
#include "ipc/client/client_way.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <string.h>

enum stage { LEFT, READY, RUNS, PACKED, TELLS, UNDOES, DONE };

struct piece {
    enum stage stage;
    struct sw_coder_link *link;
    struct sw_packed_region *packed; /* a pack's is this call's until it is DONE; an unpack's is the connection's */
    struct sw_coder_run run;
    uint64_t waits_since_us; /* READY: for the stream; 0: not yet */
    bool is_canceled;        /* RUNS */
    bool is_answered;        /* TELLS: the service has */
    struct sw_err cause;     /* TELLS: the service's error; UNDOES: why */
    enum sw_codec_id codec;  /* of a packed region's most bytes */
};

/* Of a call, in the coder at a time. */
enum { MOST_RUNS = 64 };

struct in_place {
    struct sw_way way;
    void (*fall_back)(struct sw_transfer *x);
    struct piece *pieces; /* [call->n] */
    uint32_t first;       /* the items before it are LEFT or DONE */
    uint32_t n_runs;      /* RUNS or UNDOES */
    bool is_over;
};

static struct in_place *op_of(struct sw_way *way) {
    return SW_CONTAINER_OF(way, struct in_place, way);
}

static bool is_pack(const struct in_place *op) {
    return sw_way_is_spill(&op->way);
}

static const struct sw_call_request *request_of(const struct in_place *op, uint32_t i) {
    return op->way.transfer->items[i].request;
}

/* ---- the end of an item ------------------------------------------------------------------------------------------ */

static void end_piece(struct in_place *op, uint32_t i, enum stage stage) {
    op->pieces[i].stage = stage;
    op->way.transfer->items[i].is_done = stage == DONE;
}

static void fail_piece(struct in_place *op, uint32_t i, const struct sw_err *err) {
    struct sw_transfer *x = op->way.transfer;
    struct spillway_error error;
    (void)sw_client_report(&error, err);
    sw_transfer_name_request(x, i, &error);
    x->results[i].code = err->code;
    if (is_pack(op))
        x->results[i].region = (struct spillway_region){0};
    sw_client_note_error(&x->error, &error);
    end_piece(op, i, DONE);
}

/* Why nothing more is begun for the call. */
static void take_stop(const struct in_place *op, struct sw_err *ret) {
    const struct sw_transfer *x = op->way.transfer;
    const struct spillway_error *lost = &sw_way_connection(&op->way)->lost;
    if (x->cancel_code)
        (void)sw_err_set(ret, x->cancel_code, SW_SCOPE_REQUEST, "%s", x->cancel_text);
    else
        (void)sw_err_set(ret, lost->code, (enum sw_scope)lost->scope, "%s", lost->text);
}

/* An unpack does without the service. */
static bool must_stop(const struct in_place *op) {
    return op->way.transfer->cancel_code || (is_pack(op) && sw_way_connection(&op->way)->lost.code);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void add_run(struct in_place *op, uint32_t i, enum sw_operation operation, struct sw_frames *frames) {
    struct piece *p = &op->pieces[i];
    const struct spillway_buffer *buffer = &request_of(op, i)->buffers[0];
    struct sw_coder_run *runs[] = {&p->run};
    p->run = (struct sw_coder_run){
        .user = &p->link->user,
        .owner = op,
        .item = i,
        .request = {.operation = operation, .session = sw_way_connection(&op->way)->number, .may_fill_holes = true},
        .buffer = {.type = (enum sw_value_type)(is_pack(op) ? buffer->type : 0),
                   .bytes = frames ? frames->raw_bytes : buffer->bytes},
        .memory.data = buffer->data,
        .run.frames = frames};
    op->n_runs++;
    sw_coder_add(p->link->coder, runs, 1);
}

/* Takes the outcome of a run that is over, and its frames. */
static struct sw_frames *take_run(struct in_place *op, uint32_t i, struct sw_run_outcome *ret) {
    struct piece *p = &op->pieces[i];
    struct sw_frames *frames = p->run.run.frames;
    *ret = p->run.run.outcome;
    p->run.run.frames = NULL;
    op->n_runs--;
    return frames;
}

static void undo(struct in_place *op, uint32_t i, const struct sw_err *cause) {
    struct piece *p = &op->pieces[i];
    p->cause = *cause;
    p->stage = UNDOES;
    add_run(op, i, SW_OP_UNPACK, p->packed->frames);
}

/* Waits for what READY is about. Returns true if the run may begin. */
static bool may_begin(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    struct sw_mark **mark = &sw_way_buffer(&op->way, i, 0)->mark;
    if (op->n_runs >= MOST_RUNS || (is_pack(op) && p->link->state != SW_CODER_READY))
        return false;
    if (*mark && !sw_mark_is_reached(*mark)) {
        sw_coder_link_look_again(p->link, &p->waits_since_us);
        return false;
    }
    sw_mark_unref(*mark);
    *mark = NULL;
    if (p->waits_since_us)
        p->link->marked_us = 0;
    return true;
}

static void begin(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    struct sw_err err;
    if (must_stop(op)) {
        take_stop(op, &err);
        fail_piece(op, i, &err);
    } else if (is_pack(op) && sw_coder_link_is_refused(p->link)) {
        end_piece(op, i, LEFT);
    } else if (may_begin(op, i)) {
        p->stage = RUNS;
        add_run(op, i, is_pack(op) ? SW_OP_PACK : SW_OP_UNPACK, is_pack(op) ? NULL : p->packed->frames);
    }
}

/* ---- packs ------------------------------------------------------------------------------------------------------- */

/* A pack that has failed was undone, and the service can still do it. */
static void pack_failed(struct in_place *op, uint32_t i, const struct sw_err *err) {
    struct sw_err stop;
    if (err->code == -SW_ELOST) {
        fail_piece(op, i, err);
    } else if (must_stop(op)) {
        take_stop(op, &stop);
        fail_piece(op, i, &stop);
    } else {
        end_piece(op, i, LEFT);
    }
}

static void pack_ended(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    struct sw_run_outcome outcome;
    struct sw_frames *frames = take_run(op, i, &outcome);
    if (outcome.err.code) {
        pack_failed(op, i, &outcome.err);
        return;
    }
    p->packed->frames = frames;
    p->packed->stored_bytes = outcome.stored_bytes;
    p->codec = sw_frames_most_used(outcome.codec_raw_bytes);
    sw_client_combine(p->packed->reason, sizeof p->packed->reason, sw_cost_reason_text(outcome.reason));
    p->stage = PACKED;
}

static bool take_told(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_transfer *x = t->own.owner;
    struct piece *p = t->into;
    struct spillway_result *result = &x->results[t->own.part];
    const struct sw_msg_results *m = &msg->u.results;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != 1 || !sw_results_read(m, 0, result))
        return false;
    if (result->code)
        sw_client_result_error(&t->error, m, 0);
    return result->code || (result->region.generation && result->raw_bytes == p->packed->frames->raw_bytes);
}

static void told(struct spillway_ticket *t) {
    struct sw_transfer *x = t->own.owner;
    struct piece *p = t->into;
    x->n_in_flight--;
    p->is_answered = true;
    p->cause.code = 0;
    if (t->error.code)
        (void)sw_err_set(&p->cause, t->error.code, (enum sw_scope)t->error.scope, "%s", t->error.text);
}

/* Tells the service of the region. Returns false if it has to wait. */
static bool tell(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    struct sw_transfer *x = op->way.transfer;
    struct sw_err err = {0};
    if (!sw_way_may_send(&op->way))
        return false;
    struct sw_arrays *a = sw_arrays_begin(x);
    x->items[i].number = sw_client_new_number(sw_way_connection(&op->way));
    sw_arrays_add_item(a, &x->items[i], SW_BUILD_BEGIN | SW_BUILD_COMMIT | SW_BUILD_IN_PLACE | SW_BUILD_PACKED);
    sw_arrays_add_packed(a, p->packed->frames->raw_bytes, p->packed->stored_bytes, request_of(op, i)->buffers[0].type,
                         (uint8_t)p->codec);
    struct spillway_ticket *t = sw_arrays_send(x, a, i, false, take_told, told, &err);
    if (!t) {
        undo(op, i, &err);
        return true;
    }
    t->into = p;
    p->is_answered = false;
    p->stage = TELLS;
    return true;
}

static void go_on_packed(struct in_place *op, uint32_t i) {
    struct sw_err err;
    if (must_stop(op)) {
        take_stop(op, &err);
        undo(op, i, &err);
    } else {
        (void)tell(op, i);
    }
}

/* The region is the connection's. */
static void keep_packed(struct in_place *op, uint32_t i) {
    struct sw_transfer *x = op->way.transfer;
    struct piece *p = &op->pieces[i];
    struct spillway_result *result = &x->results[i];
    p->packed->region = result->region;
    memcpy(p->packed->codec, result->codec, sizeof result->codec);
    memcpy(result->reason, p->packed->reason, sizeof result->reason);
    sw_list_append(&sw_way_connection(&op->way)->packed, &p->packed->node);
    p->packed = NULL;
    x->items[i].is_stored = true;
    end_piece(op, i, DONE);
}

/* A call that was canceled reports no region. */
static void take_answer(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    struct sw_err stop;
    if (p->cause.code == -SW_ERESTARTED && !must_stop(op)) {
        p->stage = PACKED; /* the service's next process is told */
    } else if (p->cause.code) {
        const struct sw_err cause = p->cause;
        undo(op, i, &cause);
    } else if (must_stop(op)) {
        sw_transfer_drop_one(op->way.transfer, i);
        take_stop(op, &stop);
        undo(op, i, &stop);
    } else {
        keep_packed(op, i);
    }
}

static void undone(struct in_place *op, uint32_t i) {
    struct sw_run_outcome outcome;
    struct sw_err err = op->pieces[i].cause;
    (void)take_run(op, i, &outcome);
    if (outcome.err.code) {
        (void)sw_err_set(&err, -SW_ELOST, SW_SCOPE_REGION,
                         "the operation failed and could not be undone: the memory's bytes are lost");
        (void)sw_err_detail(&err, "%s", outcome.err.msg);
    }
    fail_piece(op, i, &err);
}

/* ---- unpacks ----------------------------------------------------------------------------------------------------- */

static void unpack_ended(struct in_place *op, uint32_t i) {
    struct sw_transfer *x = op->way.transfer;
    struct piece *p = &op->pieces[i];
    struct spillway_result *result = &x->results[i];
    struct sw_run_outcome outcome;
    (void)take_run(op, i, &outcome);
    p->packed->is_busy = false;
    if (outcome.err.code == -SW_ECANCELED && x->cancel_code)
        take_stop(op, &outcome.err);
    if (outcome.err.code) {
        fail_piece(op, i, &outcome.err);
        return;
    }
    *result = (struct spillway_result){.size = sizeof *result,
                                       .region = p->packed->region,
                                       .raw_bytes = p->packed->frames->raw_bytes,
                                       .stored_bytes = p->packed->stored_bytes,
                                       .tier = "device",
                                       .coder = "client"};
    memcpy(result->codec, p->packed->codec, sizeof result->codec);
    memcpy(result->reason, p->packed->reason, sizeof result->reason);
    x->items[i].is_unpacked = true;
    sw_packed_free(p->packed);
    end_piece(op, i, DONE);
}

/* ---- a call, step by step ---------------------------------------------------------------------------------------- */

static bool is_over(const struct piece *p) {
    return atomic_load_explicit(&p->run.is_over, memory_order_acquire);
}

static void cancel_run(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    if (!p->is_canceled)
        sw_coder_cancel(p->link->coder, &p->run);
    p->is_canceled = true;
}

static void run_ended(struct in_place *op, uint32_t i) {
    if (is_pack(op))
        pack_ended(op, i);
    else
        unpack_ended(op, i);
}

/* Goes on with an item as far as it can. Returns true if it is in another stage. */
static bool step(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    const enum stage stage = p->stage;
    switch (stage) {
    case READY:
        begin(op, i);
        break;
    case RUNS:
        if (is_over(p))
            run_ended(op, i);
        else if (must_stop(op))
            cancel_run(op, i);
        break;
    case PACKED:
        go_on_packed(op, i);
        break;
    case TELLS:
        if (p->is_answered)
            take_answer(op, i);
        break;
    case UNDOES:
        if (is_over(p))
            undone(op, i);
        break;
    case LEFT:
    case DONE:
        break;
    }
    return p->stage != stage;
}

/* Without a failure of an item the call has none, even if it was canceled, or the connection was lost. */
static void settle_error(struct sw_transfer *x) {
    for (uint32_t i = 0; i < x->call->n; i++)
        if (!x->items[i].is_done || x->results[i].code)
            return;
    x->error = (struct spillway_error){0};
}

static bool is_ended(const struct piece *p) {
    return p->stage == LEFT || p->stage == DONE;
}

static void advance(struct sw_way *way) {
    struct in_place *op = op_of(way);
    struct sw_transfer *x = way->transfer;
    bool is_left = false;
    for (uint32_t i = op->first; i < x->call->n; i++)
        while (step(op, i))
            ;
    while (op->first < x->call->n && is_ended(&op->pieces[op->first]))
        op->first++;
    if (op->is_over || op->first < x->call->n)
        return;
    sw_transfer_consume_unpacked(x);
    for (uint32_t i = 0; i < x->call->n; i++)
        is_left |= !x->items[i].is_done;
    if (is_left && !x->cancel_code && !sw_way_connection(way)->lost.code) {
        op->fall_back(x);
        return;
    }
    settle_error(x);
    op->is_over = true;
}

static bool has_ended(const struct sw_way *way) {
    return SW_CONTAINER_OF(way, const struct in_place, way)->is_over;
}

static void cancel(struct sw_way *way) {
    struct in_place *op = op_of(way);
    for (uint32_t i = 0; i < sw_way_n_items(way); i++)
        if (op->pieces[i].stage == RUNS)
            cancel_run(op, i);
}

static void await_run(const struct piece *p) {
    while (!is_over(p))
        (void)sw_coder_step(p->link->coder);
}

/* The connection is closed: nobody will hear of the call. A pack is undone, and an unpack stops. */
static void bring_to_end(struct in_place *op, uint32_t i) {
    struct piece *p = &op->pieces[i];
    struct sw_err err;
    if (p->stage == RUNS) {
        cancel_run(op, i);
        await_run(p);
        run_ended(op, i);
    }
    if (p->stage == PACKED || p->stage == TELLS) {
        (void)sw_err_set(&err, -SW_ECONN, SW_SCOPE_SESSION, "the connection was closed");
        undo(op, i, &err);
    }
    if (p->stage == UNDOES) {
        await_run(p);
        undone(op, i);
    }
}

static void in_place_free(struct sw_way *way) {
    struct in_place *op = op_of(way);
    for (uint32_t i = 0; i < sw_way_n_items(way); i++) {
        struct piece *p = &op->pieces[i];
        bring_to_end(op, i);
        if (is_pack(op))
            sw_packed_free(p->packed);
        else if (p->stage == READY)
            p->packed->is_busy = false;
    }
    sw_free(op->pieces);
    sw_free(op);
}

static const struct sw_way_ops in_place_ops = {
    .has_ended = has_ended, .cancel = cancel, .advance = advance, .free = in_place_free};

/* ---- beginning --------------------------------------------------------------------------------------------------- */

/* Where no coder is, the service packs. It also says what is wrong with the memory. */
static int prepare_pack(struct in_place *op, uint32_t i, struct sw_err *err) {
    const struct sw_call_request *r = request_of(op, i);
    struct spillway *c = sw_way_connection(&op->way);
    struct piece *p = &op->pieces[i];
    struct sw_err ignored = {0};
    if (r->bytes)
        p->link = sw_coder_link_find(c, r->buffers[0].data, r->bytes, true, NULL, &ignored);
    if (!p->link)
        return 0;
    p->packed = sw_packed_new();
    p->stage = READY;
    return p->packed ? 0 : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a packed region");
}

static int check_unpack(const struct sw_packed_region *packed, const struct sw_call_request *r, struct sw_err *err) {
    if (packed->is_busy)
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being unpacked", packed->region.slot,
                          packed->region.generation);
    if (r->bytes < packed->frames->raw_bytes)
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "region has %llu bytes, the buffer %llu",
                          (unsigned long long)packed->frames->raw_bytes, (unsigned long long)r->bytes);
    return 0;
}

/* An unpack that cannot begin fails alone. */
static void prepare_unpack(struct in_place *op, uint32_t i) {
    const struct sw_call_request *r = request_of(op, i);
    struct spillway *c = sw_way_connection(&op->way);
    struct piece *p = &op->pieces[i];
    struct sw_packed_region *packed = sw_packed_find(c, r->region);
    struct sw_err err = {0};
    if (!packed)
        return;
    int rc = check_unpack(packed, r, &err);
    if (!rc)
        rc = sw_coder_link_local(&p->link, c, r->buffers[0].data, r->bytes, &err);
    if (rc < 0) {
        fail_piece(op, i, &err);
        return;
    }
    p->packed = packed;
    p->stage = READY;
    packed->is_busy = true;
}

/* Every stream has its mark at the call, also those of items that the service does. */
static int mark(struct in_place *op, uint32_t i, struct sw_err *err) {
    struct spillway *c = sw_way_connection(&op->way);
    const struct sw_call_request *r = request_of(op, i);
    int rc = 0;
    for (uint32_t k = 0; !rc && k < r->n_buffers; k++) {
        const struct spillway_buffer *buffer = &r->buffers[k];
        struct sw_item_buffer *b = sw_way_buffer(&op->way, i, k);
        struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
        struct sw_cuda_place place;
        struct sw_err ignored = {0};
        /* Registered memory is in use until the call has ended. */
        const struct sw_registered *registered = sw_registered_find(c, buffer->data, buffer->bytes, &e);
        b->bytes = buffer->bytes;
        b->mem = registered ? registered->mem : 0;
        e.kind = SW_MEM_CUDA_IPC;
        if (buffer->bytes && sw_cuda_locate(&c->cuda, buffer->data, buffer->bytes, &place, &ignored) > SW_CUDA_UNKNOWN)
            rc = sw_export_order(&e, &c->cuda, NULL, buffer->data, r->stream, err);
        b->mark = e.mark;
    }
    return rc;
}

static int prepare_items(struct in_place *op, struct sw_err *err) {
    struct sw_transfer *x = op->way.transfer;
    bool some_here = false;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < x->call->n; i++) {
        if (!(request_of(op, i)->flags & SPILLWAY_IN_PLACE))
            continue;
        if (is_pack(op))
            rc = prepare_pack(op, i, err);
        else
            prepare_unpack(op, i);
        some_here |= op->pieces[i].stage != LEFT;
    }
    for (uint32_t i = 0; !rc && some_here && i < x->call->n; i++)
        rc = mark(op, i, err);
    if (!rc && some_here)
        x->way = &op->way;
    else
        in_place_free(&op->way);
    return rc;
}

/* Returns whether anything of the call can be done here. */
static bool suits(const struct sw_transfer *x) {
    const struct spillway *c = x->ticket->connection;
    bool some = false;
    if (x->call->is_spill ? !c->has_codec : sw_list_empty(&c->packed))
        return false;
    for (uint32_t i = 0; !some && i < x->call->n; i++)
        some = x->call->requests[i].flags & SPILLWAY_IN_PLACE;
    return some;
}

int sw_in_place_prepare(struct sw_transfer *x, void (*fall_back)(struct sw_transfer *x), struct sw_err *err) {
    if (!suits(x))
        return 0;
    struct in_place *op = sw_alloc(sizeof *op);
    struct piece *pieces = op ? sw_alloc_array(x->call->n, sizeof *pieces) : NULL;
    if (!pieces) {
        sw_free(op);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a call of %u requests", x->call->n);
    }
    *op = (struct in_place){
        .way = {.ops = &in_place_ops, .transfer = x, .is_in_place = true}, .fall_back = fall_back, .pieces = pieces};
    return prepare_items(op, err);
}

static bool overlap(const struct spillway_buffer *a, const struct spillway_buffer *b) {
    const uintptr_t at = (uintptr_t)a->data, other = (uintptr_t)b->data;
    return a->bytes && b->bytes && at < other + b->bytes && other < at + a->bytes;
}

static bool calls_overlap(const struct sw_call *a, const struct sw_call *b) {
    for (uint32_t i = 0; i < a->n_buffers; i++)
        for (uint32_t k = 0; k < b->n_buffers; k++)
            if (overlap(&a->buffers[i], &b->buffers[k]))
                return true;
    return false;
}

int sw_in_place_check_others(const struct sw_transfer *x, struct sw_err *err) {
    const struct spillway *c = x->ticket->connection;
    const bool is_in_place = x->way && x->way->is_in_place;
    for (const struct sw_list *n = c->transfers.next; n != &c->transfers; n = n->next) {
        const struct sw_transfer *other = SW_CONTAINER_OF(n, const struct spillway_ticket, node)->call;
        if ((is_in_place || (other->way && other->way->is_in_place)) && calls_overlap(x->call, other->call))
            return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST,
                              "another call uses the memory, and one of them packs or unpacks it");
    }
    return 0;
}

bool sw_in_place_is_alone(const struct spillway *c, const struct sw_call *call) {
    for (uint32_t i = 0; i < call->n; i++)
        if (call->is_spill || !(call->requests[i].flags & SPILLWAY_IN_PLACE) ||
            !sw_packed_find(c, call->requests[i].region))
            return false;
    return true;
}
