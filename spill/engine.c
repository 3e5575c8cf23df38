/* engine.c - starts and stops the engine, begins operations, and ends them when their jobs have come back from the
 * workers (on_wake()). See engine.h and spill/README.md. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/journal/kept.h"

#include <string.h>
#include <sys/random.h>

/* ---- operations come back ---- */

static void spill_ended(struct sw_op *op) {
    struct sw_region *region = op->region;
    region->charged_bytes = op->charged_bytes;
    region->kept_bytes += op->outcome->kept_bytes;
    if (op->outcome->err.code) {
        sw_region_give_up(region);
        return;
    }
    (void)sw_regions_complete(&(struct sw_completion){region, op->frames, op->outcome}, 1, &op->outcome->err);
    op->tier = region->tier;
}

/* Bad frames in packed memory are no loss: the client may put the right ones back. */
static bool is_lost(const struct sw_op *op) {
    return op->request.operation == SW_OP_UNPACK ? op->outcome->err.code == -SW_ELOST
                                                 : sw_restore_proves_loss(op->outcome->err.code);
}

static void restore_ended(struct sw_op *op) {
    struct sw_region *region = op->region;
    if (!op->outcome->err.code) {
        op->tier = region->tier;
        sw_region_come_back(region, op->keep);
        return;
    }
    if (!op->outcome->mapped_us) /* nothing was written */
        region->may_fill_holes = op->request.may_fill_holes;
    if (op->request.operation == SW_OP_RESTORE)
        sw_damage_report(&sw_engine_of(op->owner)->store.observer, region->id, op->frames, op->outcome);
    sw_restore_widen(&op->outcome->err);
    sw_region_stay_out(region, is_lost(op));
}

/* Ends the region's part in the operation, and fills the outcome. */
static void settle_op(struct sw_engine *engine, struct sw_op *op, struct sw_outcome *ret) {
    static const char *const what[SW_OP_NR] = {[SW_OP_SPILL] = "spill of",
                                               [SW_OP_RESTORE] = "restore of",
                                               [SW_OP_PACK] = "pack of",
                                               [SW_OP_UNPACK] = "unpack of"};
    struct sw_region *region = op->region;
    const struct sw_region_id id = region->id;
    region->op = NULL;
    if (sw_operation_encodes(op->request.operation))
        spill_ended(op);
    else
        restore_ended(op);
    const struct sw_ended ended = {.engine = engine,
                                   .operation = op->request.operation,
                                   .what = what[op->request.operation],
                                   .region = region,
                                   .id = id,
                                   .tier = op->tier,
                                   .sum = op->outcome,
                                   .submitted_us = op->submitted_us};
    sw_outcome_fill(&ended, ret);
    sw_outcome_note(&ended, ret);
    if (op->owner->state == SW_OWNER_CLOSING && region->owner == op->owner && region->id.gen == id.gen)
        sw_region_let_go(engine->config.catalogue, region);
}

/* The callback comes last: it may start, close or free anything. */
static void op_ended(struct sw_engine *engine, struct sw_op *op) {
    struct sw_owner *owner = op->owner;
    struct sw_outcome outcome;
    if (op->series && sw_operation_encodes(op->request.operation))
        sw_build_append_ended(op, &outcome);
    else if (op->series)
        sw_read_chunks_ended(op, &outcome);
    else
        settle_op(engine, op, &outcome);
    const int code = outcome.err.code;
    engine->counters.canceled_ops += code == -SW_ECANCELED;
    engine->counters.failed_ops += code != 0 && code != -SW_ECANCELED;
    sw_op_end(op);
    sw_owner_settle(owner);
    sw_outcome_cb *done = op->done;
    void *arg = op->arg;
    sw_op_free(op);
    if (code == 0 || code == -SW_ENOSPACE) /* a tier may be above its watermark */
        sw_balance_look(&engine->balance);
    done(&outcome, arg);
}

static void op_kept(const struct sw_err *err, void *arg) {
    struct sw_op *op = arg;
    if (err->code) {
        op->outcome->err = *err;
        sw_frames_free(op->frames);
        op->frames = NULL;
    }
    op_ended(sw_engine_of(op->owner), op);
}

/* Has a tier keep the operation's durable region before the operation ends. Returns false if there is nothing to wait
 * for. */
static bool keep_first(struct sw_engine *engine, struct sw_op *op) {
    if (op->outcome->err.code || op->series || op->request.operation != SW_OP_SPILL ||
        op->region->durability == SW_DURABILITY_SERVICE)
        return false;
    const struct sw_completion what = {op->region, op->frames, op->outcome};
    struct sw_err err = {0};
    if (sw_keeper_keep(&engine->keeper, &what, 1, op_kept, op, &err))
        op_kept(&err, op);
    return true;
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
    else if ((op = sw_op_job_ended(job)) && !keep_first(engine, op))
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
    sw_keeper_fini(&engine->keeper);
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

/* Stops the workers once the last owner is gone, and closes the rest once their threads have ended. */
static void stop_if_due(struct sw_engine *engine) {
    if (engine->state == SW_ENGINE_RUNNING || engine->state == SW_ENGINE_STOPPED || engine->store.n_owners > 0 ||
        engine->balance.n_moves > 0 || engine->keeper.n_changes > 0)
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

static void on_wake(uv_async_t *async) {
    struct sw_engine *engine = async->data;
    struct sw_list ended, *node;
    bool ends_soon = false;
    sw_list_init(&ended);
    for (unsigned i = 0; i < engine->config.n_devices; i++) {
        sw_worker_take(engine->workers[i], &ended);
        ends_soon |= sw_worker_ends_soon(engine->workers[i]);
    }
    engine->now_us = sw_clock_us();
    if (ends_soon || !sw_list_empty(&ended))
        sw_engine_keep_awake(engine);
    while ((node = sw_list_take_first(&ended)))
        job_ended(engine, SW_CONTAINER_OF(node, struct sw_job, node));
    sw_keeper_take(&engine->keeper);
    sw_series_call_back(engine);
    engine->now_us = 0;
    close_settled_owners(engine);
    stop_if_due(engine);
}

static void wake(void *arg) {
    struct sw_engine *engine = arg;
    (void)uv_async_send(&engine->async);
}

/* An owner's record is freed after the records of its regions. */
static void on_owner_settled(struct sw_owner *owner) {
    struct sw_engine *engine = sw_engine_of(owner);
    if (owner->state == SW_OWNER_CLOSED)
        sw_catalogue_free(engine->config.catalogue, &owner->record);
    (void)uv_async_send(&engine->async);
}

static void on_moved(struct sw_region *region) {
    if (region->op)
        sw_op_post(region->op);
    else if (region->series)
        sw_series_post(region->series);
}

/* Ids and epoch go on from a predecessor's: its catalogue's, or those of the regions that tiers keep. */
static int find_ids(struct sw_engine *engine, struct sw_kept_ids *ret, struct sw_err *err) {
    struct sw_catalogue *catalogue = engine->config.catalogue;
    int rc = sw_kept_ids(&engine->config.tiers, ret, err);
    if (rc)
        return rc;
    if (ret->n && sw_catalogue_is_adopted(catalogue) && sw_catalogue_epoch(catalogue) != ret->epoch)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "the disk has durable regions of another service than the kept memory: stop the unit, which "
                          "gives up the memory, or set another folder");
    if (ret->n)
        sw_catalogue_take_over(catalogue, ret->epoch, ret->generation, ret->n_entries);
    else if (!catalogue && getrandom(&ret->epoch, sizeof ret->epoch, 0) != (ssize_t)sizeof ret->epoch)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "no random bytes for the regions' ids");
    if (catalogue)
        *ret = (struct sw_kept_ids){.epoch = sw_catalogue_epoch(catalogue),
                                    .generation = sw_catalogue_generation(catalogue),
                                    .n_entries = sw_catalogue_n_entries(catalogue)};
    return 0;
}

static int open_store(struct sw_engine *engine, const struct sw_kept_ids *ids, struct sw_err *err) {
    const struct sw_engine_config *config = &engine->config;
    const struct sw_store_config store = {.tiers = config->tiers,
                                          .staging_bytes = config->staging_bytes,
                                          .max_regions = config->max_regions,
                                          .n_entries = ids->n_entries,
                                          .first_gen = ids->generation,
                                          .epoch = ids->epoch,
                                          .observer = config->observer,
                                          .owner_settled = on_owner_settled};
    if (sw_store_init(&engine->store, &store))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %u regions", config->max_regions);
    engine->store.keeper = &engine->keeper;
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

/* Comes last, because it cannot be undone at once. No worker wakes the loop before it has a job. */
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
    sw_list_init(&engine->ended_series);
    struct sw_kept_ids ids;
    int rc = sw_tiers_settle(&engine->config.tiers, err);
    if (!rc)
        rc = find_ids(engine, &ids, err);
    if (rc) {
        sw_free(engine);
        return rc;
    }
    sw_keeper_init(&engine->keeper, &engine->store, config->catalogue, wake, engine);
    rc = open_store(engine, &ids, err);
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
        sw_balance_look(&engine->balance); /* the limit may be lower now, or a tier behind may be new */
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
    engine->closed = closed;
    engine->arg = arg;
    (void)uv_async_send(&engine->async);
}

/* ---- operations start ---- */

void sw_engine_cancel(struct sw_owner *owner, struct sw_region_id id) {
    struct sw_region *region;
    if (sw_region_find(&owner->store->regions, owner, id, &region, NULL))
        return;
    if (region->series)
        sw_series_expire(region->series, &(struct sw_err){-SW_ECANCELED, .scope = SW_SCOPE_REQUEST, .msg = "canceled"});
    else if (region->op)
        sw_op_cancel(region->op);
}

int sw_engine_spill(struct sw_owner *owner, const struct sw_transfer *transfer, sw_outcome_cb *done, void *arg,
                    struct sw_region_id *ret_id, struct sw_err *err) {
    struct sw_op *op = NULL;
    int rc = sw_admit_spill(owner, transfer, &op, err);
    if (rc)
        return rc;
    const struct sw_region_start start = {.raw_bytes = op->raw_bytes,
                                          .request = transfer->request,
                                          .batch_index = transfer->batch_index,
                                          .in_place = transfer->in_place,
                                          .name = transfer->name,
                                          .durability = transfer->durability,
                                          .prefer = transfer->prefer};
    struct sw_region *region = NULL;
    rc = sw_region_begin(owner, &start, &region, err);
    if (rc) {
        sw_op_free(op);
        return rc;
    }
    *ret_id = region->id;
    region->op = op;
    sw_op_submit(op, region, done, arg);
    return 0;
}

int sw_engine_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_transfer *transfer,
                      sw_outcome_cb *done, void *arg, struct sw_err *err) {
    struct sw_region *region = NULL;
    struct sw_op *op = NULL;
    const int rc = sw_admit_restore(owner, id, transfer, &op, &region, err);
    if (rc)
        return rc;
    op->keep = transfer->keep || region->name;
    region->may_fill_holes = false;
    sw_region_move(region, SW_REGION_RESTORING);
    region->op = op;
    if (transfer->in_place) /* recorded as broken before the first byte moves */
        sw_region_record_hints(sw_engine_of(owner)->config.catalogue, region);
    sw_op_submit(op, region, done, arg);
    return 0;
}
