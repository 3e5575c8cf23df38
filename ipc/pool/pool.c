/* pool.c - pools: their creation, their end, and their statistics. */
#include "ipc/pool/pool.h"

#include "base/alloc.h"
#include "ipc/client/client_call.h"
#include <string.h>
#include <unistd.h>

enum {
    OPTIONS_BYTES = sizeof(struct spillway_pool_options),
    STATS_BYTES = sizeof(struct spillway_pool_stats),
    WAIT_MS = 1000,
    PROBE_BYTES = 64 << 10
};

/* ---- creation ---------------------------------------------------------------------------------------------------- */

static int take_options(struct spillway_pool_options *ret, const struct spillway_pool_options *options,
                        struct spillway_error *error) {
    struct sw_err err = {0};
    *ret = (struct spillway_pool_options){0};
    if (options &&
        sw_versioned_copy(ret, sizeof *ret, OPTIONS_BYTES, options, "struct spillway_pool_options", &err) < 0)
        return sw_client_report(error, &err);
    if (ret->flags & ~(uint32_t)SPILLWAY_POOL_UNPREPARED || ret->n_connections > SW_POOL_MAX_LANES)
        return sw_pool_fail(error, -SPILLWAY_EINVAL, "pool: unknown flags 0x%x, or %u connections, at most %d",
                            (unsigned)ret->flags, (unsigned)ret->n_connections, SW_POOL_MAX_LANES);
    if (ret->gpu < 0)
        return sw_pool_fail(error, -SPILLWAY_EINVAL, "pool: GPU %d", ret->gpu);
    if (!ret->allocator.alloc != !ret->allocator.free)
        return sw_pool_fail(error, -SPILLWAY_EINVAL, "pool: an allocator needs both alloc and free");
    return 0;
}

static struct spillway_pool *pool_new(const struct spillway_pool_options *o) {
    struct spillway_pool *pool = sw_alloc(sizeof *pool);
    pthread_condattr_t attributes;
    if (!pool)
        return NULL;
    pool->process = getpid();
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&pool->changed, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    sw_list_init(&pool->handles);
    sw_list_init(&pool->idle);
    sw_list_init(&pool->dying);
    pool->allocator = o->allocator;
    pool->budget_bytes = o->budget_bytes;
    pool->wait_us = o->wait_ms < 0 ? 0 : (uint64_t)(o->wait_ms ? o->wait_ms : WAIT_MS) * 1000;
    return pool;
}

/* Returns whether spills of the memory need GPU memory of this process: a staging arena, or the codec's. */
static int needs_preparation(struct spillway *c, const void *memory, struct spillway_error *error) {
    struct sw_export e;
    struct sw_err err = {0};
    int rc = sw_client_enter(c, error);
    if (rc < 0)
        return rc;
    rc = sw_export_find(&e, &c->cuda, memory, 1, &err);
    if (rc == 0)
        sw_export_fini(&e);
    rc = rc < 0 || c->has_codec;
    sw_client_leave(c);
    return rc;
}

int spillway_pool_prepare(struct spillway_pool *pool, const void *memory, struct spillway_error *error) {
    int rc = sw_pool_check(pool, error);
    (void)sw_pool_gpu_stream(pool->gpu, memory);
    for (unsigned i = 0; rc == 0 && i < pool->n_lanes; i++) {
        rc = needs_preparation(pool->lanes[i].connection, memory, error);
        if (rc > 0)
            rc = spillway_prepare(pool->lanes[i].connection, memory, error);
    }
    return rc;
}

/* Prepares spills of memory of the pool's allocator. */
static int prepare(struct spillway_pool *pool, struct spillway_error *error) {
    const struct spillway_allocator *a = &pool->allocator;
    void *probe = a->alloc(a->user, PROBE_BYTES, NULL);
    if (!probe)
        return sw_pool_fail(error, -SPILLWAY_ENOMEM, "the allocator has no %d bytes to find out its kind of memory",
                            PROBE_BYTES);
    const int rc = spillway_pool_prepare(pool, probe, error);
    a->free(a->user, probe, PROBE_BYTES);
    return rc;
}

int spillway_pool_create(struct spillway_pool **ret, const struct spillway_pool_options *options,
                         struct spillway_error *error) {
    struct spillway_pool_options o;
    int rc = take_options(&o, options, error);
    if (rc < 0)
        return rc;
    struct spillway_pool *pool = pool_new(&o);
    if (!pool)
        return sw_pool_fail(error, -SPILLWAY_ENOMEM, "no memory for a pool");
    rc = sw_pool_gpu_open(&pool->gpu, o.allocator.alloc ? -1 : o.gpu, error);
    if (!o.allocator.alloc)
        sw_pool_default_allocator(pool);
    for (unsigned n = o.n_connections ? o.n_connections : 1; rc == 0 && pool->n_lanes < n;) {
        rc = sw_lane_open(&pool->lanes[pool->n_lanes], pool, o.connection, error);
        pool->n_lanes += rc == 0;
    }
    if (rc == 0 && !(o.flags & SPILLWAY_POOL_UNPREPARED))
        rc = prepare(pool, error);
    if (rc < 0) {
        spillway_pool_close(pool);
        return rc;
    }
    if (error)
        *error = (struct spillway_error){0};
    *ret = pool;
    return 0;
}

/* ---- the end ----------------------------------------------------------------------------------------------------- */

static bool has_calls(struct spillway_pool *pool, struct sw_lane **ret) {
    for (unsigned i = 0; i < pool->n_lanes; i++)
        if (pool->lanes[i].n_calls > 0) {
            *ret = &pool->lanes[i];
            return true;
        }
    return false;
}

static bool is_quiet(const void *lane) {
    return ((const struct sw_lane *)lane)->n_calls == 0;
}

/* Waits for prefetches, whose memory the service still writes. */
static void await_calls(struct spillway_pool *pool) {
    struct sw_lane *lane;
    (void)pthread_mutex_lock(&pool->lock);
    while (has_calls(pool, &lane))
        (void)sw_lane_wait(lane, is_quiet, lane, UINT64_MAX);
    (void)pthread_mutex_unlock(&pool->lock);
}

void spillway_pool_close(struct spillway_pool *pool) {
    if (!pool)
        return;
    const bool is_foreign = pool->process != getpid();
    if (!is_foreign)
        await_calls(pool);
    while (!is_foreign && !sw_list_empty(&pool->handles)) {
        struct spillway_handle *h = SW_CONTAINER_OF(pool->handles.next, struct spillway_handle, node);
        h->region = (struct spillway_region){0}; /* it ends with the connection */
        sw_handle_end(h);
    }
    if (!is_foreign)
        sw_pool_reap(pool, true);
    for (unsigned i = 0; i < pool->n_lanes; i++)
        sw_lane_close(&pool->lanes[i]);
    if (is_foreign) /* other threads of the parent may have held the lock, and CUDA cannot be called */
        return;
    sw_pool_gpu_close(pool->gpu);
    (void)pthread_cond_destroy(&pool->changed);
    (void)pthread_mutex_destroy(&pool->lock);
    sw_free(pool);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

int spillway_pool_set_budget(struct spillway_pool *pool, uint64_t bytes, struct spillway_error *error) {
    const int rc = sw_pool_check(pool, error);
    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&pool->lock);
    pool->budget_bytes = bytes;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
    return 0;
}

int spillway_pool_make_room(struct spillway_pool *pool, uint64_t bytes, uint64_t *ret_freed,
                            struct spillway_error *error) {
    const int rc = sw_pool_check(pool, error);
    *ret_freed = 0;
    return rc < 0 ? rc : sw_pool_evict(pool, bytes, ret_freed, error);
}

static void count(struct spillway_pool_stats *stats, const struct spillway_handle *h) {
    stats->handles++;
    stats->pinned += h->n_pins > 0;
    stats->live += h->memory.data != NULL;
    stats->live_bytes += h->memory.bytes;
    if (h->state != SW_HANDLE_SPILLED)
        return;
    stats->spilled++;
    stats->spilled_bytes += h->options.bytes;
    stats->stored_bytes += h->stored_bytes;
}

int spillway_pool_stats(struct spillway_pool *pool, struct spillway_pool_stats *ret, struct spillway_error *error) {
    int rc = sw_pool_check(pool, error);
    if (!rc)
        rc = sw_check_size(ret->size, STATS_BYTES, "struct spillway_pool_stats", error);
    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&pool->lock);
    struct spillway_pool_stats stats = pool->stats;
    stats.held_bytes = pool->held_bytes;
    for (const struct sw_list *n = pool->handles.next; n != &pool->handles; n = n->next)
        count(&stats, SW_CONTAINER_OF(n, struct spillway_handle, node));
    (void)pthread_mutex_unlock(&pool->lock);
    sw_versioned_fill(ret, &stats, sizeof stats);
    return 0;
}
