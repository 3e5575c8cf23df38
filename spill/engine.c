/* engine.c - drives regions through their states; see engine.h and spill/README.md.
 *
 * A job is made here, carried out by a worker, and comes back through on_wake(). Only this file decides what a
 * region's state becomes, but for what a restart finds (journal/recovery.c), and what workers tell of how far an
 * operation is (find.c). */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"

#include <string.h>

/* ---- operations come back ---- */

static void forget_failed(struct sw_engine *engine, struct sw_op *op) {
    sw_region_move(op->region, SW_REGION_IN);
    sw_region_forget(engine->config.catalogue, op->region);
}

/* Before its client is told. False: it cannot be, and counts as not stored. A packed region could not be taken back: it
 * ends with this process. */
static bool record_spilled(struct sw_engine *engine, struct sw_op *op) {
    if (op->owner->state == SW_OWNER_CLOSING && !op->region->name)
        return true; /* its end is near */
    return !sw_region_record(engine->config.catalogue, op->region, &op->outcome.err) ||
           op->request.operation == SW_OP_PACK;
}

static void spill_ended(struct sw_engine *engine, struct sw_op *op) {
    struct sw_region *region = op->region;
    struct sw_run_outcome *outcome = &op->outcome;
    region->charged_bytes = op->charged_bytes;
    region->kept_bytes += outcome->kept_bytes;
    if (outcome->err.code) {
        forget_failed(engine, op);
        return;
    }
    /* A region without chunks has nothing to encode or store, and still takes every step. */
    sw_op_follow_phase(op);
    region->frames = op->frames;
    region->tier = sw_frames_tier(op->frames, region->tier_bytes);
    region->used_us = sw_clock_us();
    op->tier = region->tier;
    region->stored_bytes = outcome->stored_bytes;
    region->codec = sw_frames_most_used(outcome->codec_raw_bytes);
    region->reason = outcome->reason;
    op->owner->raw_bytes += region->raw_bytes;
    op->owner->stored_bytes += region->stored_bytes;
    sw_region_move(region, SW_REGION_OUT);
    if (!record_spilled(engine, op)) {
        sw_region_forget(engine->config.catalogue, region);
        return;
    }
    outcome->err.code = 0;
    engine->counters.spills++;
    engine->counters.reasons[outcome->reason]++;
    engine->counters.packs += op->request.operation == SW_OP_PACK;
    engine->counters.spilled_raw_bytes += region->raw_bytes;
    engine->counters.spilled_stored_bytes += region->stored_bytes;
}

static bool proves_loss(int code) {
    /* A frame of our own in a version that we do not know is a damaged header. */
    return code == -SW_EFRAME || code == -SW_ECHECKSUM || code == -SW_EVERSION || code == -SW_ELOST;
}

/* Bad frames in a client's own memory are no loss: the client may put the right ones back. */
static bool is_lost(const struct sw_op *op) {
    return op->request.operation == SW_OP_UNPACK ? op->outcome.err.code == -SW_ELOST
                                                 : proves_loss(op->outcome.err.code);
}

static void restore_ended(struct sw_engine *engine, struct sw_op *op) {
    struct sw_region *region = op->region;
    if (op->outcome.err.code) {
        if (!op->outcome.mapped_us) /* nothing was written */
            region->may_fill_holes = op->request.may_fill_holes;
        if (op->request.operation == SW_OP_RESTORE)
            sw_damage_report(&engine->store.observer, region->id, op->frames, &op->outcome);
        sw_region_move(region, is_lost(op) ? SW_REGION_LOST : SW_REGION_OUT);
        if (proves_loss(op->outcome.err.code) &&
            op->outcome.err.scope < SW_SCOPE_REGION) /* who saw it saw a frame only */
            op->outcome.err.scope = SW_SCOPE_REGION;
        if (op->request.operation == SW_OP_RESTORE || region->state == SW_REGION_LOST)
            sw_region_record_hints(engine->config.catalogue, region);
        else /* which chunks are packed; if that fails it counts as broken */
            (void)sw_region_record(engine->config.catalogue, region, NULL);
        return;
    }
    engine->counters.restores++;
    op->tier = region->tier;
    region->used_us = sw_clock_us();
    engine->counters.restored_raw_bytes += region->raw_bytes;
    if (op->keep) {
        sw_region_move(region, SW_REGION_OUT);
        sw_region_record_hints(engine->config.catalogue, region);
    } else {
        sw_region_move(region, SW_REGION_IN);
        sw_region_consume(engine->config.catalogue, region);
    }
}

/* Where the region is or was; one without frames counts for the first tier. */
static const struct sw_tier *tier_of(const struct sw_op *op) {
    return op->tier ? op->tier : sw_placement_memory(&op->owner->store->place);
}

static void fill_outcome(const struct sw_op *op, struct sw_outcome *ret) {
    const struct sw_region *region = op->region;
    uint64_t now_us = sw_clock_us();
    memset(ret, 0, sizeof *ret);
    ret->err = op->outcome.err;
    ret->region = region->id;
    ret->raw_bytes = region->raw_bytes;
    ret->stored_bytes = region->stored_bytes;
    ret->codec = region->codec;
    ret->reason = sw_cost_reason_text(region->reason);
    ret->tier = sw_operation_is_in_place(op->request.operation) ? SW_PACKED_TIER_NAME : tier_of(op)->kind->name;
    ret->total_us = now_us - op->submitted_us;
    if (region->name)
        (void)snprintf(ret->name, sizeof ret->name, "%s", region->name);
    ret->queued_us = (op->outcome.started_us ? op->outcome.started_us : now_us) - op->submitted_us;
    if (ret->err.code)
        sw_err_context(&ret->err, "%s of region %u:%u", sw_operation_name(op->request.operation), region->id.slot,
                       region->id.gen);
}

static void note_figures(struct sw_engine *engine, const struct sw_op *op, const struct sw_outcome *outcome) {
    const struct sw_run_outcome *sum = &op->outcome;
    const uint64_t submitted_us = op->submitted_us, mapped_us = sum->mapped_us ? sum->mapped_us : submitted_us;
    /* Of several buffers, one without a plan of its own may be mapped after the last plan. */
    const uint64_t planned_us = sum->planned_us > mapped_us ? sum->planned_us : mapped_us;
    if (outcome->err.code)
        return;
    sw_figures_note(&engine->figures,
                    &(struct sw_figures_op){
                        .kind = sw_operation_encodes(op->request.operation) ? SW_FIGURES_SPILL : SW_FIGURES_RESTORE,
                        .tier = sw_operation_is_in_place(op->request.operation) ? SW_FIGURES_PACKED : tier_of(op)->rank,
                        .codec = outcome->codec,
                        .raw_bytes = outcome->raw_bytes,
                        .stored_bytes = outcome->stored_bytes,
                        .us = {[SW_FIGURES_WAIT] = mapped_us - submitted_us,
                               [SW_FIGURES_PLAN] = planned_us - mapped_us,
                               [SW_FIGURES_MOVE] = submitted_us + outcome->total_us - planned_us,
                               [SW_FIGURES_WHOLE] = outcome->total_us}});
}

/* The callback comes last: it may start, close or free whatever it likes. */
static void op_ended(struct sw_engine *engine, struct sw_op *op) {
    struct sw_owner *owner = op->owner;
    struct sw_region *region = op->region;
    struct sw_region_id id = region->id;
    struct sw_outcome outcome;
    region->op = NULL;
    if (sw_operation_encodes(op->request.operation))
        spill_ended(engine, op);
    else
        restore_ended(engine, op);
    fill_outcome(op, &outcome);
    outcome.region = id;
    const int code = outcome.err.code;
    note_figures(engine, op, &outcome);
    if (owner->state == SW_OWNER_CLOSING && region->owner == owner && region->id.gen == id.gen)
        sw_region_let_go(engine->config.catalogue, region);
    engine->counters.canceled_ops += code == -SW_ECANCELED;
    engine->counters.failed_ops += code != 0 && code != -SW_ECANCELED;
    sw_list_remove(&op->node);
    owner->n_ops--;
    engine->n_ops--;
    sw_op_end(op);
    sw_owner_settle(owner);
    sw_outcome_cb *done = op->done;
    void *arg = op->arg;
    sw_op_free(op);
    if (code == 0 || code == -SW_ENOSPACE) /* for what rests in the host tier, perhaps, and could leave */
        sw_balance_look(&engine->balance);
    done(&outcome, arg);
}

static void job_ended(struct sw_engine *engine, struct sw_job *job) {
    struct sw_op *op;
    if (job->kind == SW_JOB_CANARY)
        sw_canary_ended(job);
    else if (job->kind == SW_JOB_UNMAP)
        sw_mem_unmapped(SW_CONTAINER_OF(job, struct sw_mem, job));
    else if (job->kind == SW_JOB_MAP)
        sw_mem_mapped(SW_CONTAINER_OF(job, struct sw_mem, job));
    else if (job->run.request->operation == SW_OP_MOVE)
        sw_balance_move_ended(&engine->balance, job);
    else if ((op = sw_op_job_ended(job)))
        op_ended(engine, op);
}

static void close_settled_owners(struct sw_engine *engine) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&engine->store.settled))) {
        struct sw_owner *owner = SW_CONTAINER_OF(node, struct sw_owner, node);
        void (*closed)(void *) = owner->closed;
        void *arg = owner->arg;
        if (owner->state == SW_OWNER_LEFT)
            sw_list_append(&engine->store.left, &owner->node);
        else
            sw_free(owner);
        engine->store.n_owners--;
        if (closed)
            closed(arg);
    }
}

/* ---- start and stop ---- */

static void free_parts(struct sw_engine *engine) {
    for (unsigned i = 0; engine->workers && i < engine->config.n_devices; i++)
        sw_worker_free(engine->workers[i]);
    sw_free(engine->workers);
    sw_free(engine->canaries);
    sw_recovery_forget_left(&engine->store);
    sw_store_fini(&engine->store);
    sw_free(engine);
}

static void on_closed(uv_handle_t *handle) {
    struct sw_engine *engine = handle->data;
    void (*closed)(void *) = engine->closed;
    void *arg = engine->arg;
    free_parts(engine);
    if (closed)
        closed(arg);
}

static void on_async_closed(uv_handle_t *handle) {
    struct sw_engine *engine = handle->data;
    uv_close((uv_handle_t *)&engine->spin, on_closed);
}

/* Once the last owner is gone the workers are stopped; once their threads have ended, the rest goes. */
static void stop_if_due(struct sw_engine *engine) {
    if (engine->state == SW_ENGINE_RUNNING || engine->state == SW_ENGINE_STOPPED || engine->store.n_owners > 0 ||
        engine->balance.n_moves > 0)
        return;
    for (unsigned i = 0; engine->state == SW_ENGINE_CLOSING && i < engine->config.n_devices; i++)
        sw_worker_stop(engine->workers[i]);
    engine->state = SW_ENGINE_STOPPING;
    for (unsigned i = 0; i < engine->config.n_devices; i++)
        if (!sw_worker_ended(engine->workers[i]))
            return;
    engine->state = SW_ENGINE_STOPPED;
    uv_close((uv_handle_t *)&engine->async, on_async_closed);
}

static void on_spin(uv_idle_t *spin) {
    const struct sw_engine *engine = spin->data;
    if (sw_clock_us() >= engine->spin_until_us)
        (void)uv_idle_stop(spin);
}

/* Something has begun or ended, or will end soon. Waking a thread that sleeps can take longer than a short operation
 * itself (50 to 80 us in a virtual machine), so for as long as workers poll idle devices the loop polls its
 * descriptors. */
static void keep_awake(struct sw_engine *engine) {
    if (engine->poll_us == 0)
        return;
    engine->spin_until_us = sw_clock_us() + engine->poll_us;
    (void)uv_idle_start(&engine->spin, on_spin);
}

static void on_wake(uv_async_t *async) {
    struct sw_engine *engine = async->data;
    struct sw_list ended, *node;
    bool ends_soon = false;
    sw_list_init(&ended);
    for (unsigned i = 0; i < engine->config.n_devices; i++) {
        sw_worker_take(engine->workers[i], &ended);
        ends_soon |= sw_worker_ends_soon(engine->workers[i]);
    }
    if (ends_soon || !sw_list_empty(&ended))
        keep_awake(engine);
    while ((node = sw_list_take_first(&ended)))
        job_ended(engine, SW_CONTAINER_OF(node, struct sw_job, node));
    close_settled_owners(engine);
    stop_if_due(engine);
}

static void wake(void *arg) {
    struct sw_engine *engine = arg;
    (void)uv_async_send(&engine->async);
}

/* Under a name regions are recorded: an owner's own record goes last. */
static void on_owner_settled(struct sw_owner *owner) {
    struct sw_engine *engine = sw_engine_of(owner);
    if (owner->state == SW_OWNER_CLOSED)
        sw_catalogue_free(engine->config.catalogue, &owner->record);
    (void)uv_async_send(&engine->async);
}

static void on_moved(struct sw_region *region) {
    if (region->op)
        sw_op_post(region->op); /* has waited for this */
}

static int open_store(struct sw_engine *engine, struct sw_err *err) {
    const struct sw_engine_config *config = &engine->config;
    const struct sw_store_config store = {.tiers = config->tiers,
                                          .staging_bytes = config->staging_bytes,
                                          .max_regions = config->max_regions,
                                          .n_slots = sw_catalogue_n_slots(config->catalogue),
                                          .first_gen = sw_catalogue_generation(config->catalogue),
                                          .epoch = sw_catalogue_epoch(config->catalogue),
                                          .observer = config->observer,
                                          .owner_settled = on_owner_settled};
    if (sw_store_init(&engine->store, &store))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %u regions", config->max_regions);
    return 0;
}

static int open_workers(struct sw_engine *engine, struct sw_err *err) {
    const struct sw_engine_config *config = &engine->config;
    int rc = 0;
    engine->workers = sw_alloc_array(config->n_devices, sizeof engine->workers[0]);
    engine->canaries = sw_alloc_array(config->n_devices, sizeof engine->canaries[0]);
    if (!engine->workers || !engine->canaries)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %u devices", config->n_devices);
    for (unsigned i = 0; !rc && i < config->n_devices; i++) {
        const unsigned poll_us = config->devices[i]->ops->info(config->devices[i])->poll_us;
        engine->poll_us = poll_us > engine->poll_us ? poll_us : engine->poll_us;
        engine->canaries[i].given_us = sw_clock_us();
        rc = sw_worker_new(&engine->workers[i], config->devices[i], &engine->store.place, wake, engine, err);
    }
    return rc;
}

static void init_balance(struct sw_engine *engine) {
    engine->balance = (struct sw_balance){.store = &engine->store,
                                          .catalogue = engine->config.catalogue,
                                          .worker = engine->workers[engine->config.n_devices - 1],
                                          .high_pct = engine->config.high_pct,
                                          .low_pct = engine->config.low_pct,
                                          .moved = on_moved};
}

/* Cannot be undone at once, and so comes last; no worker wakes the loop before it has a job. */
static int watch_workers(struct sw_engine *engine, uv_loop_t *loop, struct sw_err *err) {
    const int rc = uv_async_init(loop, &engine->async, on_wake);
    engine->async.data = engine->spin.data = engine;
    if (rc)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot watch the workers: %s", uv_strerror(rc));
    (void)uv_idle_init(loop, &engine->spin);
    return 0;
}

int sw_engine_open(struct sw_engine **ret, uv_loop_t *loop, const struct sw_engine_config *config, struct sw_err *err) {
    if (config->n_devices == 0 || config->max_regions == 0)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON, "the engine needs a device and room for regions");
    struct sw_engine *engine = sw_alloc(sizeof *engine);
    if (!engine)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the engine");
    engine->config = *config;
    int rc = sw_tiers_settle(&engine->config.tiers, err);
    if (rc) {
        sw_free(engine);
        return rc;
    }
    rc = open_store(engine, err);
    if (!rc)
        rc = open_workers(engine, err);
    if (!rc)
        rc = watch_workers(engine, loop, err);
    if (rc) {
        free_parts(engine);
        return rc;
    }
    init_balance(engine);
    *ret = engine;
    return 0;
}

int sw_engine_recover(struct sw_engine *engine, struct sw_recovered *ret, struct sw_err *err) {
    const int rc = sw_recovery_run(&engine->store, engine->config.catalogue, ret, err);
    if (!rc)
        sw_balance_look(&engine->balance); /* the bound may be lower now, or there was no tier behind before */
    return rc;
}

uint64_t sw_engine_chunk_bytes(const struct sw_engine *engine) {
    return engine->store.place.chunk_bytes;
}

void sw_engine_close(struct sw_engine *engine, void (*closed)(void *arg), void *arg) {
    if (!engine)
        return;
    for (struct sw_list *node = engine->store.owners.next; node != &engine->store.owners; node = node->next)
        SW_ASSERT(sw_owner_is_ending(SW_CONTAINER_OF(node, struct sw_owner, node)));
    SW_ASSERT(engine->state == SW_ENGINE_RUNNING);
    engine->state = SW_ENGINE_CLOSING;
    engine->balance.is_off = true;
    engine->closed = closed;
    engine->arg = arg;
    (void)uv_async_send(&engine->async);
}

/* ---- operations start ---- */

void sw_engine_hold(struct sw_engine *engine) {
    for (unsigned i = 0; i < engine->config.n_devices; i++)
        sw_worker_hold(engine->workers[i]);
}

void sw_engine_release(struct sw_engine *engine) {
    for (unsigned i = 0; i < engine->config.n_devices; i++)
        sw_worker_release(engine->workers[i]);
}

void sw_engine_cancel(struct sw_owner *owner, struct sw_region_id id) {
    struct sw_region *region;
    if (sw_region_find(&owner->store->regions, owner, id, &region, NULL) == 0 && region->op)
        sw_op_cancel(region->op);
}

/* From here on nothing can fail: the operation is accepted. */
static void op_submit(struct sw_op *op, struct sw_region *region) {
    struct sw_owner *owner = op->owner;
    struct sw_engine *engine = sw_engine_of(owner);
    op->region = region;
    region->op = op;
    sw_op_begin(op);
    sw_list_append(&owner->ops, &op->node);
    owner->n_ops++;
    engine->n_ops++;
    if (region->move)
        region->move->cancel(region->move); /* and goes on when that has ended */
    else
        sw_op_post(op);
    keep_awake(engine);
}

/* A slot and what is known from the start. That of a pack is recorded before its first byte moves, as broken: should
 * the process die, its bytes are neither here nor there. Without the record a successor would take them for untouched.
 */
static int make_region(struct sw_owner *owner, const struct sw_range *first, uint64_t bytes, struct sw_region **ret,
                       struct sw_err *err) {
    struct sw_engine *engine = sw_engine_of(owner);
    struct sw_budget *kept = sw_quota_kept(owner->quota);
    int rc = sw_budget_take(kept, SW_REGION_KEPT_BYTES, "a region", err);
    if (rc)
        return rc;
    struct sw_region *region = sw_region_acquire(&engine->store.regions, owner);
    if (!region) {
        sw_budget_give(kept, SW_REGION_KEPT_BYTES);
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "the service holds %u regions, the most allowed",
                          engine->store.regions.n_used);
    }
    region->kept_bytes = kept ? SW_REGION_KEPT_BYTES : 0;
    sw_catalogue_note_id(engine->config.catalogue, region->id.slot, region->id.gen);
    region->raw_bytes = bytes;
    region->request = first->request;
    region->piece = first->piece;
    region->in_place = first->in_place;
    if (first->name && sw_region_set_name(region, first->name))
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region's name");
    if (!rc && first->in_place)
        rc = sw_region_record(engine->config.catalogue, region, err);
    if (rc) {
        sw_budget_give(kept, SW_REGION_KEPT_BYTES);
        sw_region_release(&engine->store.regions, region);
    } else {
        *ret = region;
    }
    return rc;
}

int sw_engine_spill_buffers(struct sw_owner *owner, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done,
                            void *arg, struct sw_region_id *ret_id, struct sw_err *err) {
    const bool in_place = ranges[0].in_place;
    uint64_t bytes = 0;
    SW_ASSERT(!in_place || n == 1);
    int rc = sw_admit_spill(owner, ranges, n, &bytes, err);
    if (rc)
        return rc;
    struct sw_op *op = NULL;
    rc = sw_op_new(&op, owner, in_place ? SW_OP_PACK : SW_OP_SPILL, ranges, n, err);
    if (rc)
        return rc;
    struct sw_region *region = NULL;
    rc = make_region(owner, &ranges[0], bytes, &region, err);
    if (rc) {
        sw_op_free(op);
        return rc;
    }
    op->done = done;
    op->arg = arg;
    sw_list_append(&owner->regions, &region->node);
    owner->n_regions++;
    if (owner->quota)
        owner->quota->n_regions++;
    sw_region_move(region, SW_REGION_STAGING);
    *ret_id = region->id;
    op_submit(op, region);
    return 0;
}

int sw_engine_spill(struct sw_owner *owner, const struct sw_range *range, sw_outcome_cb *done, void *arg,
                    struct sw_region_id *ret_id, struct sw_err *err) {
    return sw_engine_spill_buffers(owner, range, 1, done, arg, ret_id, err);
}

int sw_engine_restore_buffers(struct sw_owner *owner, struct sw_region_id id, const struct sw_range *ranges, unsigned n,
                              bool keep, sw_outcome_cb *done, void *arg, struct sw_err *err) {
    const bool in_place = ranges[0].in_place;
    struct sw_region *region;
    int rc = sw_admit_restore(owner, id, ranges, n, keep, &region, err);
    if (rc)
        return rc;
    struct sw_op *op = NULL;
    rc = sw_op_new(&op, owner, in_place ? SW_OP_UNPACK : SW_OP_RESTORE, ranges, n, err);
    if (rc)
        return rc;
    rc = sw_op_set_frames(op, region->frames, err);
    if (rc) {
        sw_op_free(op);
        return rc;
    }
    op->done = done;
    op->arg = arg;
    op->keep = keep || region->name;
    op->request.may_fill_holes = region->may_fill_holes;
    region->may_fill_holes = false;
    sw_region_move(region, SW_REGION_RESTORING);
    region->op = op;
    if (in_place)
        sw_region_record_hints(sw_engine_of(owner)->config.catalogue,
                               region); /* broken, from before the first byte moves */
    op_submit(op, region);
    return 0;
}

int sw_engine_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_range *range, bool keep,
                      sw_outcome_cb *done, void *arg, struct sw_err *err) {
    return sw_engine_restore_buffers(owner, id, range, 1, keep, done, arg, err);
}

int sw_engine_drop(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err) {
    struct sw_region *region;
    const int rc = sw_engine_find_idle(owner, id, &region, err);
    if (!rc)
        sw_region_forget(sw_engine_of(owner)->config.catalogue, region);
    return rc;
}

int sw_engine_consume(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err) {
    struct sw_region *region;
    const int rc = sw_engine_find_idle(owner, id, &region, err);
    if (!rc && !region->name)
        sw_region_consume(sw_engine_of(owner)->config.catalogue, region);
    return rc;
}

void sw_engine_announce_consumed(struct sw_owner *owner, struct sw_region_id id) {
    const struct sw_catalogue_hints hints = {.is_in = true};
    struct sw_region *region;
    if (sw_engine_find_idle(owner, id, &region, NULL) == 0 && !region->name)
        sw_catalogue_hint(sw_engine_of(owner)->config.catalogue, region->record, &hints);
}
