/* handle.c - buffers: pins, restores, and the end. */
#include "ipc/pool/pool.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "ipc/client/client_call.h"
#include <string.h>

enum { OPTIONS_BYTES = sizeof(struct spillway_handle_options), INFO_BYTES = sizeof(struct spillway_handle_info) };

static void lock(struct spillway_pool *pool) {
    (void)pthread_mutex_lock(&pool->lock);
}

static void unlock(struct spillway_pool *pool) {
    (void)pthread_mutex_unlock(&pool->lock);
}

static void unlock_changed(struct spillway_pool *pool) {
    (void)pthread_cond_broadcast(&pool->changed);
    unlock(pool);
}

/* ---- new handles ------------------------------------------------------------------------------------------------- */

static int check_options(const struct spillway_handle_options *o, struct sw_err *err) {
    static const uint8_t value_bytes[] = {1, 1, 2, 4, 8, 1, 2, 4,
                                          8, 4, 8, 2, 2, 1, 16}; /* by enum spillway_value_type */
    if (o->flags & ~(uint32_t)(SPILLWAY_HANDLE_STAYS | SPILLWAY_HANDLE_CONSTANT) || o->reserved)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "handle: unknown flags 0x%x, or reserved field is not 0",
                          (unsigned)o->flags);
    if (!o->bytes || o->type > SPILLWAY_DEC128 || o->bytes % value_bytes[o->type])
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "handle: %llu bytes are no values of type %u",
                          (unsigned long long)o->bytes, (unsigned)o->type);
    return 0;
}

static int handle_new(struct spillway_pool *pool, const struct spillway_handle_options *options,
                      struct spillway_handle **ret, struct spillway_error *error) {
    struct sw_err err = {0};
    struct spillway_handle_options o;
    const int foreign = sw_pool_check(pool, error);
    if (foreign < 0)
        return foreign;
    if (sw_versioned_copy(&o, sizeof o, OPTIONS_BYTES, options, "struct spillway_handle_options", &err) < 0 ||
        check_options(&o, &err) < 0)
        return sw_client_report(error, &err);
    struct spillway_handle *h = sw_alloc(sizeof *h);
    if (!h)
        return sw_pool_fail(error, -SPILLWAY_ENOMEM, "no memory for a handle");
    h->pool = pool;
    h->options = o;
    sw_list_init(&h->node);
    sw_list_init(&h->idle_node);
    sw_list_init(&h->events);
    *ret = h;
    return 0;
}

int spillway_pool_new(struct spillway_pool *pool, const struct spillway_handle_options *options,
                      struct spillway_handle **ret, struct spillway_error *error) {
    struct spillway_handle *h = NULL;
    const int rc = handle_new(pool, options, &h, error);
    if (rc < 0)
        return rc;
    lock(pool);
    sw_list_append(&pool->handles, &h->node);
    unlock(pool);
    *ret = h;
    return 0;
}

/* Has the memory in the pool, and others out of it if the budget is exceeded now. */
static void take_in(struct spillway_handle *h, const struct sw_pool_memory *memory, struct sw_pool_event *event) {
    struct spillway_pool *pool = h->pool;
    struct sw_list replaced;
    uint64_t excess = 0, freed;
    sw_list_init(&replaced);
    lock(pool);
    h->memory = *memory;
    h->used = ++pool->n_unpins;
    sw_pool_event_add(&h->events, event, &replaced);
    sw_list_append(&pool->handles, &h->node);
    sw_handle_set_live(h);
    pool->held_bytes += memory->bytes;
    if (pool->budget_bytes && pool->held_bytes > pool->budget_bytes)
        excess = pool->held_bytes - pool->budget_bytes;
    unlock_changed(pool);
    if (excess > 0)
        (void)sw_pool_evict(pool, excess, &freed, NULL);
}

static int adopt(struct spillway_pool *pool, void *data, const struct spillway_handle_options *options, bool watches,
                 struct spillway_handle **ret, struct spillway_error *error) {
    struct spillway_handle *h = NULL;
    struct sw_pool_event *event = NULL;
    int rc = handle_new(pool, options, &h, error);
    if (rc < 0)
        return rc;
    const struct spillway_allocator *own = &h->options.allocator;
    if (!data || (watches && !own->free))
        rc = sw_pool_fail(error, -SPILLWAY_EINVAL,
                          data ? "watched memory needs allocator.free, which tells its owner" : "memory is NULL");
    else
        rc = sw_pool_event_record(pool->gpu, h->options.stream, data, &event, error);
    if (rc < 0) {
        sw_free(h);
        return rc;
    }
    h->watches = watches;
    const struct spillway_allocator *from = own->free ? own : &pool->allocator;
    const struct sw_pool_memory memory = {
        .data = data, .bytes = h->options.bytes, .free = from->free, .user = from->user, .is_watched = watches};
    (void)sw_pool_gpu_stream(pool->gpu, data); /* made now: there may be no room for it later */
    take_in(h, &memory, event);
    *ret = h;
    return 0;
}

int spillway_pool_adopt(struct spillway_pool *pool, void *data, const struct spillway_handle_options *options,
                        struct spillway_handle **ret, struct spillway_error *error) {
    return adopt(pool, data, options, false, ret, error);
}

int spillway_pool_watch(struct spillway_pool *pool, void *data, const struct spillway_handle_options *options,
                        struct spillway_handle **ret, struct spillway_error *error) {
    return adopt(pool, data, options, true, ret, error);
}

/* ---- restores ---------------------------------------------------------------------------------------------------- */

/* Ends a restore. Runs in any thread that waits for the connection. */
static struct sw_pool_memory settle_restore(struct sw_lane_call *call) {
    struct spillway_handle *h = call->owner;
    struct spillway_pool *pool = h->pool;
    struct sw_pool_memory memory = {0};
    lock(pool);
    if (call->rc < 0) {
        memory = sw_handle_detach(h);
        h->failure = call->error;
        h->state = SW_HANDLE_SPILLED;
        pool->stats.failed_restores++;
    } else {
        if (!(h->options.flags & SPILLWAY_HANDLE_CONSTANT))
            (void)sw_handle_take_region(h);
        h->used = pool->n_unpins;
        sw_handle_set_live(h);
        pool->stats.restores++;
    }
    unlock_changed(pool); /* from here on the handle may be gone */
    return memory;
}

/* Starts to read the bytes into the handle's memory. Memory of an allocator that knows streams is the stream's. */
static int start_restore(struct spillway_handle *h, struct CUstream_st *stream, struct spillway_error *error) {
    struct sw_handle_restore *r = &h->restore;
    r->buffer = (struct spillway_buffer){.data = h->memory.data, .bytes = h->memory.bytes};
    r->request = (struct spillway_request){
        .size = sizeof r->request,
        .buffers = &r->buffer,
        .n_buffers = 1,
        .flags = h->options.flags & SPILLWAY_HANDLE_CONSTANT ? SPILLWAY_KEEP : 0,
        .region = h->region,
        .stream = h->memory.is_stream_ordered ? stream : sw_pool_gpu_stream(h->pool->gpu, h->memory.data),
        .user = &r->call};
    r->call = (struct sw_lane_call){
        .n = 1, .requests = &r->request, .results = &r->result, .settle = settle_restore, .owner = h};
    return sw_lane_start(h->lane, &r->call, error);
}

/* The error of a handle whose bytes are in the service. Needs the lock. */
static int restore_error(const struct spillway_handle *h, const struct spillway_error *failure,
                         struct spillway_error *error) {
    if (h->region.generation && h->lane->lost.code)
        return sw_pool_fail(error, -SPILLWAY_ELOST, "the connection that had the buffer's bytes is lost: %s: %.180s",
                            h->lane->lost.name, h->lane->lost.text);
    return sw_client_copy_error(error, failure);
}

/* Gets memory for a handle that is ALLOCATING, and starts the restore. A buffer without bytes is then live. */
static int fill(struct spillway_handle *h, struct CUstream_st *stream, bool may_evict, struct spillway_error *failure) {
    struct spillway_pool *pool = h->pool;
    struct sw_pool_memory memory = {0};
    int rc = sw_pool_allocate(h, stream, may_evict, &memory, failure);
    if (!rc)
        (void)sw_pool_gpu_stream(pool->gpu, memory.data); /* made now: there may be no room for it later */
    lock(pool);
    h->memory = memory;
    const bool has_bytes = h->region.generation != 0;
    if (!rc && has_bytes)
        h->state = SW_HANDLE_RESTORING;
    unlock(pool);
    if (!rc && has_bytes && (rc = start_restore(h, stream, failure)) == 0)
        return 0;
    lock(pool);
    if (rc < 0) {
        (void)sw_handle_detach(h);
        h->state = has_bytes ? SW_HANDLE_SPILLED : SW_HANDLE_EMPTY;
        h->failure = *failure;
        pool->stats.failed_restores += has_bytes;
    } else {
        h->used = pool->n_unpins;
        sw_handle_set_live(h);
    }
    unlock_changed(pool);
    if (rc < 0)
        sw_pool_free_memory(pool, &memory);
    return rc;
}

/* ---- pins -------------------------------------------------------------------------------------------------------- */

static bool is_settled(const void *handle) {
    const struct spillway_handle *h = handle;
    return h->state != SW_HANDLE_ALLOCATING && h->state != SW_HANDLE_RESTORING;
}

/* Waits until the handle has no transition under way. Needs the lock. Returns false at the deadline. */
static bool await_settled(struct spillway_handle *h, uint64_t deadline_us) {
    while (!is_settled(h)) {
        const bool is_in_time = h->state == SW_HANDLE_RESTORING ? sw_lane_wait(h->lane, is_settled, h, deadline_us)
                                                                : sw_pool_wait(h->pool, deadline_us);
        if (!is_in_time)
            return is_settled(h);
    }
    return true;
}

/* Waits for the end of an eviction. wanted: it is to stay live. Needs the lock. */
static void await_left(struct spillway_handle *h, bool wanted) {
    while (h->state == SW_HANDLE_LEAVING) {
        h->wanted |= wanted;
        (void)sw_pool_wait(h->pool, UINT64_MAX);
    }
}

/* Adds a pin to a live buffer. Needs the lock. */
static void add_pin(struct spillway_handle *h) {
    sw_list_remove(&h->idle_node);
    h->n_pins++;
}

int spillway_handle_pin_begin(struct spillway_handle *handle, struct CUstream_st *stream,
                              struct spillway_error *error) {
    struct spillway_pool *pool = handle->pool;
    struct spillway_error failure = {0};
    int rc = sw_pool_check(pool, error);
    if (rc < 0)
        return rc;
    lock(pool);
    pool->stats.waits += handle->state == SW_HANDLE_LEAVING;
    await_left(handle, true);
    const bool is_live = handle->state == SW_HANDLE_LIVE, is_under_way = !is_settled(handle);
    const bool is_lost = handle->state == SW_HANDLE_SPILLED && handle->lane->lost.code;
    pool->stats.hits += is_live;
    if (is_lost)
        rc = restore_error(handle, &failure, error);
    else
        add_pin(handle);
    if (!is_lost && !is_live && !is_under_way)
        handle->state = SW_HANDLE_ALLOCATING;
    unlock(pool);
    if (is_lost || is_live || is_under_way)
        return rc < 0 ? rc : is_live;
    rc = fill(handle, stream, true, &failure);
    lock(pool);
    if (rc < 0) {
        handle->n_pins--;
        rc = restore_error(handle, &failure, error);
    } else {
        rc = handle->state == SW_HANDLE_LIVE;
    }
    unlock(pool);
    return rc;
}

int spillway_handle_pin_ready(struct spillway_handle *handle, int timeout_ms, void **ret,
                              struct spillway_error *error) {
    struct spillway_pool *pool = handle->pool;
    const uint64_t deadline_us = timeout_ms < 0 ? UINT64_MAX : sw_clock_us() + (uint64_t)timeout_ms * UINT64_C(1000);
    int rc = sw_pool_check(pool, error);
    if (rc < 0)
        return rc;
    lock(pool);
    pool->stats.waits += !is_settled(handle) && timeout_ms != 0;
    if (handle->n_pins == 0)
        rc = sw_pool_fail(error, -SPILLWAY_EINVAL, "the buffer is not pinned");
    else if (!await_settled(handle, deadline_us))
        rc = sw_pool_fail(error, -SPILLWAY_EAGAIN, "the restore still runs after %d ms", timeout_ms);
    else if (handle->state == SW_HANDLE_LIVE)
        *ret = handle->memory.data;
    else {
        handle->n_pins--;
        rc = restore_error(handle, &handle->failure, error);
    }
    unlock(pool);
    return rc;
}

int spillway_handle_pin(struct spillway_handle *handle, struct CUstream_st *stream, void **ret,
                        struct spillway_error *error) {
    const int rc = spillway_handle_pin_begin(handle, stream, error);
    return rc < 0 ? rc : spillway_handle_pin_ready(handle, -1, ret, error);
}

int spillway_handle_unpin(struct spillway_handle *handle, struct CUstream_st *stream, struct spillway_error *error) {
    struct spillway_pool *pool = handle->pool;
    struct sw_pool_event *event = NULL;
    struct sw_list replaced;
    int rc = sw_pool_check(pool, error);
    if (rc < 0)
        return rc;
    lock(pool);
    const void *memory = handle->state == SW_HANDLE_LIVE ? handle->memory.data : NULL;
    if (handle->n_pins == 0)
        rc = sw_pool_fail(error, -SPILLWAY_EINVAL, "the buffer is not pinned");
    unlock(pool);
    if (!rc && memory)
        rc = sw_pool_event_record(pool->gpu, stream, memory, &event, error);
    if (rc < 0)
        return rc;
    sw_list_init(&replaced);
    lock(pool);
    sw_pool_event_add(&handle->events, event, &replaced);
    handle->n_pins--;
    if (memory)
        handle->used = ++pool->n_unpins;
    if (handle->state == SW_HANDLE_LIVE)
        sw_handle_set_live(handle);
    unlock_changed(pool);
    sw_pool_events_put(pool->gpu, &replaced);
    return 0;
}

int spillway_handle_prefetch(struct spillway_handle *handle, struct CUstream_st *stream, struct spillway_error *error) {
    struct spillway_pool *pool = handle->pool;
    struct spillway_error failure = {0};
    int rc = sw_pool_check(pool, error);
    if (rc < 0)
        return rc;
    lock(pool);
    handle->wanted = true; /* if it is LEAVING, it stays live */
    const bool is_spilled = handle->state == SW_HANDLE_SPILLED;
    if (is_spilled && handle->lane->lost.code)
        rc = restore_error(handle, &failure, error);
    else if (is_spilled)
        handle->state = SW_HANDLE_ALLOCATING;
    unlock(pool);
    if (!is_spilled || rc < 0)
        return rc;
    if (fill(handle, stream, false, &failure) == 0)
        return 0;
    lock(pool);
    rc = restore_error(handle, &failure, error);
    unlock(pool);
    return rc;
}

/* ---- the end, and questions -------------------------------------------------------------------------------------- */

int spillway_handle_spill(struct spillway_handle *handle, struct spillway_error *error) {
    struct spillway_pool *pool = handle->pool;
    int rc = sw_pool_check(pool, error);
    if (rc < 0)
        return rc;
    lock(pool);
    (void)await_settled(handle, UINT64_MAX);
    await_left(handle, false);
    const bool is_live = handle->state == SW_HANDLE_LIVE;
    if (is_live && handle->options.flags & SPILLWAY_HANDLE_STAYS)
        rc = sw_pool_fail(error, -SPILLWAY_EINVAL, "the buffer stays on the GPU: SPILLWAY_HANDLE_STAYS");
    else if (is_live && handle->n_pins > 0)
        rc = sw_pool_fail(error, -SPILLWAY_EBUSY, "the buffer is pinned");
    else if (is_live)
        sw_handle_set_leaving(handle);
    unlock(pool);
    return rc < 0 || !is_live ? rc : sw_pool_evict_one(handle, error);
}

void sw_handle_end(struct spillway_handle *h) {
    struct spillway_pool *pool = h->pool;
    lock(pool);
    sw_list_remove(&h->node);
    sw_list_remove(&h->idle_node);
    if (h->memory.is_watched) {
        pool->held_bytes -= h->memory.bytes;
        h->memory = (struct sw_pool_memory){0};
    }
    struct sw_lane *lane = h->lane;
    const struct spillway_region region = sw_handle_take_region(h);
    sw_list_append(&pool->dying, &h->node);
    unlock_changed(pool);
    if (region.generation)
        sw_lane_drop(lane, region);
}

int spillway_handle_free(struct spillway_handle *handle, struct spillway_error *error) {
    struct spillway_pool *pool = handle ? handle->pool : NULL;
    int rc = pool ? sw_pool_check(pool, error) : 0;
    if (!pool || rc < 0)
        return rc;
    lock(pool);
    (void)await_settled(handle, UINT64_MAX);
    await_left(handle, false);
    if (handle->n_pins > 0)
        rc = sw_pool_fail(error, -SPILLWAY_EBUSY, "the buffer is pinned");
    unlock(pool);
    if (rc < 0)
        return rc;
    sw_handle_end(handle);
    sw_pool_reap(pool, false);
    return 0;
}

static const char *state_name(const struct spillway_handle *h) {
    static const char *const names[] = {"empty", "restoring", "live", "spilling", "spilled", "restoring"};
    return h->state == SW_HANDLE_SPILLED && h->lane->lost.code ? "lost" : names[h->state];
}

int spillway_handle_query(struct spillway_handle *handle, struct spillway_handle_info *ret,
                          struct spillway_error *error) {
    struct spillway_handle_info info = {.bytes = handle->options.bytes};
    int rc = sw_pool_check(handle->pool, error);
    if (!rc)
        rc = sw_check_size(ret->size, INFO_BYTES, "struct spillway_handle_info", error);
    if (rc < 0)
        return rc;
    lock(handle->pool);
    info.stored_bytes = handle->stored_bytes;
    info.pins = handle->n_pins;
    (void)strcpy(info.state, state_name(handle));
    if (handle->region.generation)
        memcpy(info.codec, handle->codec, sizeof info.codec);
    unlock(handle->pool);
    sw_versioned_fill(ret, &info, sizeof info);
    return 0;
}
