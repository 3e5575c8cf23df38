/* evict.c - which buffers leave the GPU, and how; and memory for those that come. */
#include "ipc/pool/pool.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <string.h>

/* Buffers that one call of the library evicts. */
enum { MAX_BATCH = 64, SLICE_US = 200 };

struct batch {
    struct spillway_handle *handles[MAX_BATCH];
    bool stored[MAX_BATCH]; /* the service has the bytes */
    unsigned n;
};

/* A search for room. */
struct search {
    uint64_t begun; /* spillway_pool.n_searches then */
    uint64_t
        round; /* the same at the beginning of this round; those whose streams had not passed are asked once a round */
    bool has_busy; /* there were some */
};

/* ---- which ------------------------------------------------------------------------------------------------------- */

static unsigned log2_of(uint64_t n) {
    return n ? 63 - (unsigned)__builtin_clzll(n) : 0;
}

/* Returns whether a leaves before b. */
static bool leaves_first(const struct spillway_handle *a, const struct spillway_handle *b) {
    const uint64_t now = a->pool->n_unpins + 1; /* so the youngest have age 1 */
    const unsigned age_a = log2_of(now - a->used), age_b = log2_of(now - b->used);
    if (a->options.keep_priority != b->options.keep_priority)
        return a->options.keep_priority < b->options.keep_priority;
    if (age_a != age_b)
        return age_a > age_b;
    if (a->memory.bytes != b->memory.bytes)
        return a->memory.bytes > b->memory.bytes;
    return a->used < b->used;
}

/* Inserts a buffer in the batch, which keeps the MAX_BATCH buffers that leave first, in order. */
static void rank(struct batch *batch, struct spillway_handle *h) {
    if (batch->n == MAX_BATCH && !leaves_first(h, batch->handles[MAX_BATCH - 1]))
        return;
    unsigned at = batch->n < MAX_BATCH ? batch->n++ : MAX_BATCH - 1;
    for (; at > 0 && leaves_first(h, batch->handles[at - 1]); at--)
        batch->handles[at] = batch->handles[at - 1];
    batch->handles[at] = h;
}

/* Takes idle buffers of `bytes` together. Leaves out those that another thread has tried without success meanwhile.
 * Needs the lock. */
static void choose(struct spillway_pool *pool, uint64_t bytes, const struct search *search, struct batch *ret) {
    uint64_t chosen = 0;
    unsigned n = 0;
    *ret = (struct batch){.n = 0};
    for (struct sw_list *node = pool->idle.next; node != &pool->idle; node = node->next) {
        struct spillway_handle *h = SW_CONTAINER_OF(node, struct spillway_handle, idle_node);
        if (h->failed_at < search->begun && h->busy_at < search->round)
            rank(ret, h);
    }
    for (; n < ret->n && chosen < bytes; n++) {
        sw_handle_set_leaving(ret->handles[n]);
        chosen += ret->handles[n]->memory.bytes;
    }
    ret->n = n;
}

/* ---- how --------------------------------------------------------------------------------------------------------- */

/* Ends an eviction. ret: memory to be freed without the lock, if the service has the bytes and no thread waits for the
 * buffer. ret_region: to be dropped without the lock. Needs the lock. */
static void settle_one(struct spillway_handle *h, bool is_stored, struct sw_pool_memory *ret,
                       struct spillway_region *ret_region) {
    struct spillway_pool *pool = h->pool;
    pool->n_leaving--;
    if (is_stored && !h->wanted) {
        *ret = sw_handle_detach(h);
        h->state = SW_HANDLE_SPILLED;
        pool->stats.evictions++;
        return;
    }
    if (is_stored) /* this search has had it */
        h->failed_at = pool->n_searches;
    if (h->region.generation && !(h->options.flags & SPILLWAY_HANDLE_CONSTANT))
        *ret_region = sw_handle_take_region(h);
    sw_handle_set_live(h);
}

/* Ends the evictions of a batch, and frees the memory. */
static void settle(struct spillway_pool *pool, const struct batch *batch) {
    struct sw_pool_memory memory[MAX_BATCH];
    struct spillway_region regions[MAX_BATCH];
    struct sw_lane *lanes[MAX_BATCH];
    memset(memory, 0, sizeof memory);
    memset(regions, 0, sizeof regions);
    (void)pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i < batch->n; i++) {
        lanes[i] = batch->handles[i]->lane;
        settle_one(batch->handles[i], batch->stored[i], &memory[i], &regions[i]);
    }
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < batch->n; i++) { /* the handles may be gone */
        sw_pool_free_memory(pool, &memory[i]);
        if (regions[i].generation)
            sw_lane_drop(lanes[i], regions[i]);
    }
}

static struct sw_pool_memory settle_spill(struct sw_lane_call *call) {
    struct spillway_pool *pool = call->lane->pool;
    (void)pthread_mutex_lock(&pool->lock);
    call->is_done = true;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
    return (struct sw_pool_memory){0};
}

static bool is_done(const void *call) {
    return ((const struct sw_lane_call *)call)->is_done;
}

/* The connections take turns. NULL: all are lost; *error says how, and is unchanged otherwise. Needs the lock. */
static struct sw_lane *next_lane(struct spillway_pool *pool, struct spillway_error *error) {
    struct sw_lane *lane = NULL;
    for (unsigned i = 0; i < pool->n_lanes; i++) {
        lane = &pool->lanes[pool->next_lane++ % pool->n_lanes];
        if (!lane->lost.code)
            return lane;
    }
    *error = lane->lost;
    return NULL;
}

/* Has the service's answer in the handles. Needs the lock. */
static void take_results(struct batch *batch, struct sw_lane *lane, const struct spillway_result *results) {
    for (unsigned i = 0; i < batch->n; i++) {
        struct spillway_handle *h = batch->handles[i];
        batch->stored[i] = results[i].code == 0 && results[i].region.generation;
        h->failed_at = batch->stored[i] ? 0 : lane->pool->n_searches;
        lane->pool->stats.failed_spills += !batch->stored[i];
        if (!batch->stored[i])
            continue;
        h->region = results[i].region;
        h->lane = lane;
        h->stored_bytes = results[i].stored_bytes;
        memcpy(h->codec, results[i].codec, sizeof h->codec);
    }
}

/* Spills a batch in one call, and waits. Returns the error of a call that could not start. *error: of that or of a
 * buffer. */
static int spill_together(struct spillway_pool *pool, struct batch *batch, struct spillway_error *error) {
    struct spillway_buffer buffers[MAX_BATCH];
    struct spillway_request requests[MAX_BATCH];
    struct spillway_result results[MAX_BATCH];
    struct sw_lane_call call = {
        .is_spill = true, .n = batch->n, .requests = requests, .results = results, .settle = settle_spill};
    for (unsigned i = 0; i < batch->n; i++) {
        const struct spillway_handle *h = batch->handles[i];
        buffers[i] =
            (struct spillway_buffer){.data = h->memory.data, .bytes = h->memory.bytes, .type = h->options.type};
        requests[i] = (struct spillway_request){.size = sizeof requests[0],
                                                .buffers = &buffers[i],
                                                .n_buffers = 1,
                                                .flags = SPILLWAY_EACH,
                                                .stream = sw_pool_gpu_stream(pool->gpu, h->memory.data),
                                                .keep_priority = h->options.keep_priority,
                                                .user = &call};
    }
    (void)pthread_mutex_lock(&pool->lock);
    struct sw_lane *lane = next_lane(pool, error);
    (void)pthread_mutex_unlock(&pool->lock);
    const int rc = lane ? sw_lane_start(lane, &call, error) : error->code;
    if (rc < 0)
        return rc;
    (void)pthread_mutex_lock(&pool->lock);
    (void)sw_lane_wait(lane, is_done, &call, UINT64_MAX);
    take_results(batch, lane, results);
    (void)pthread_mutex_unlock(&pool->lock);
    if (call.rc < 0)
        *error = call.error;
    return 0;
}

/* Notes the buffers of a call that could not start. */
static void note_failed(struct spillway_pool *pool, struct batch *batch) {
    (void)pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i < batch->n; i++)
        batch->handles[i]->failed_at = pool->n_searches;
    pool->stats.failed_spills += batch->n;
    (void)pthread_mutex_unlock(&pool->lock);
}

/* Spills a batch of buffers that are LEAVING, and whose streams have passed. *first: the first error. */
static void spill(struct spillway_pool *pool, struct batch *batch, struct spillway_error *first) {
    struct spillway_error error = {0};
    const int rc = batch->n > 0 ? spill_together(pool, batch, &error) : 0;
    if (rc < 0 && batch->n > 1 && error.scope == SPILLWAY_SCOPE_REQUEST) {
        for (unsigned i = 0; i < batch->n; i++) { /* one of them may be no memory any more */
            struct batch one = {.handles = {batch->handles[i]}, .n = 1};
            spill(pool, &one, first);
            batch->stored[i] = one.stored[0];
        }
        return;
    }
    if (rc < 0)
        note_failed(pool, batch);
    if (error.code && !first->code)
        *first = error;
}

static void add(struct batch *batch, struct spillway_handle *h, bool is_stored) {
    batch->stored[batch->n] = is_stored;
    batch->handles[batch->n++] = h;
}

/* Evicts a batch, except for buffers whose streams have not passed. Returns how many it has left out. */
static unsigned evict(struct spillway_pool *pool, const struct batch *batch, struct spillway_error *first) {
    struct batch busy = {.n = 0}, rest = {.n = 0}, left = {.n = 0};
    (void)pthread_mutex_lock(&pool->lock);
    const uint64_t now = pool->n_searches;
    (void)pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < batch->n; i++) {
        struct spillway_handle *h = batch->handles[i];
        const bool is_busy = !sw_pool_events_passed(pool->gpu, &h->events);
        h->busy_at = is_busy ? now : 0;
        if (is_busy)
            add(&busy, h, false);
        else if (h->region.generation && sw_lane_is_alive(h->lane)) /* constant, and the service has kept it */
            add(&left, h, true);
        else
            add(&rest, h, false);
    }
    settle(pool, &busy); /* at once: others may want them */
    spill(pool, &rest, first);
    for (unsigned i = 0; i < rest.n; i++)
        add(&left, rest.handles[i], rest.stored[i]);
    settle(pool, &left); /* together, before the first callback */
    return busy.n;
}

int sw_pool_evict_one(struct spillway_handle *h, struct spillway_error *error) {
    struct spillway_pool *pool = h->pool;
    struct batch batch = {.handles = {h}, .n = 1};
    struct spillway_error first = {0};
    if (evict(pool, &batch, &first) > 0)
        return sw_pool_fail(error, -SPILLWAY_EBUSY, "the work of a stream has not ended");
    if (first.code && error)
        *error = first;
    return first.code;
}

/* ---- room -------------------------------------------------------------------------------------------------------- */

/* Frees what is left of a freed handle. Returns false if its streams have not passed. */
static bool bury(struct spillway_handle *h) {
    struct spillway_pool *pool = h->pool;
    if (!sw_pool_events_passed(pool->gpu, &h->events))
        return false;
    (void)pthread_mutex_lock(&pool->lock);
    const struct sw_pool_memory memory = sw_handle_detach(h);
    (void)pthread_mutex_unlock(&pool->lock);
    sw_pool_free_memory(pool, &memory);
    sw_free(h);
    return true;
}

void sw_pool_reap(struct spillway_pool *pool, bool all) {
    struct sw_list dying, late;
    sw_list_init(&dying);
    sw_list_init(&late);
    (void)pthread_mutex_lock(&pool->lock);
    const bool is_idle = sw_list_empty(&pool->dying);
    sw_list_append_all(&dying, &pool->dying);
    pool->n_freeing += !is_idle; /* for other threads, which no longer see them */
    (void)pthread_mutex_unlock(&pool->lock);
    for (struct sw_list *node; (node = sw_list_take_first(&dying));) {
        struct spillway_handle *h = SW_CONTAINER_OF(node, struct spillway_handle, node);
        if (all)
            sw_pool_events_await(pool->gpu, &h->events);
        if (!bury(h))
            sw_list_append(&late, node);
    }
    if (is_idle)
        return;
    (void)pthread_mutex_lock(&pool->lock);
    sw_list_append_all(&pool->dying, &late);
    pool->n_freeing--;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

/* Waits for what may make room without this thread. Returns false if there is nothing, or the time is up. Needs the
 * lock. */
static bool wait_for_others(struct spillway_pool *pool, struct search *search, uint64_t deadline_us) {
    if (pool->n_leaving > 0) { /* ends with the service's answer */
        (void)sw_pool_wait(pool, UINT64_MAX);
        return true;
    }
    const uint64_t now_us = sw_clock_us();
    const bool has_busy = search->has_busy || !sw_list_empty(&pool->dying);
    if ((!has_busy && pool->n_freeing == 0) || now_us >= deadline_us)
        return false;
    (void)sw_pool_wait(pool, has_busy && now_us + SLICE_US < deadline_us ? now_us + SLICE_US : deadline_us);
    search->round = ++pool->n_searches;
    search->has_busy = false;
    return true;
}

static int report_room(uint64_t bytes, uint64_t freed, const struct spillway_error *first,
                       struct spillway_error *error) {
    if (freed >= bytes)
        return 0;
    if (!first->code)
        return sw_pool_fail(error, -SPILLWAY_ENOMEM, "%llu bytes of %llu were freed: no other buffer is idle",
                            (unsigned long long)freed, (unsigned long long)bytes);
    if (error)
        *error = *first;
    return first->code;
}

int sw_pool_evict(struct spillway_pool *pool, uint64_t bytes, uint64_t *ret_freed, struct spillway_error *error) {
    const uint64_t deadline_us = sw_clock_us() + pool->wait_us;
    struct spillway_error first = {0};
    struct batch batch;
    (void)pthread_mutex_lock(&pool->lock);
    for (unsigned i = 0; i < pool->n_lanes; i++) /* what was prefetched may be evicted */
        sw_lane_poll(&pool->lanes[i]);
    const uint64_t before = pool->freed_bytes, begun = ++pool->n_searches;
    struct search search = {.begun = begun, .round = begun};
    for (bool goes_on = true; goes_on;) {
        (void)pthread_mutex_unlock(&pool->lock);
        sw_pool_reap(pool, false);
        (void)pthread_mutex_lock(&pool->lock);
        *ret_freed = pool->freed_bytes - before;
        if (*ret_freed >= bytes)
            break;
        choose(pool, bytes - *ret_freed, &search, &batch);
        if (batch.n == 0) {
            goes_on = wait_for_others(pool, &search, deadline_us);
            continue;
        }
        (void)pthread_mutex_unlock(&pool->lock);
        const bool has_busy = evict(pool, &batch, &first) > 0;
        (void)pthread_mutex_lock(&pool->lock);
        search.has_busy |= has_busy;
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return report_room(bytes, *ret_freed, &first, error);
}

/* ---- memory for those that come ---------------------------------------------------------------------------------- */

/* cause: why others could not be evicted. */
static int no_memory(const char *what, uint64_t bytes, const struct spillway_error *cause,
                     struct spillway_error *error) {
    if (cause->code && cause->code != -SPILLWAY_ENOMEM)
        return sw_pool_fail(error, -SPILLWAY_ENOMEM, "%s has no room for %llu bytes, and others stay: %s: %.120s", what,
                            (unsigned long long)bytes, cause->name, cause->text);
    return sw_pool_fail(error, -SPILLWAY_ENOMEM, "%s has no room for %llu bytes, and no other buffer is idle", what,
                        (unsigned long long)bytes);
}

static bool fits(const struct spillway_pool *pool, uint64_t bytes) {
    return !pool->budget_bytes ||
           (pool->held_bytes <= pool->budget_bytes && bytes <= pool->budget_bytes - pool->held_bytes);
}

/* Charges the budget, after evicting what does not fit beside it. */
static int charge(struct spillway_pool *pool, uint64_t bytes, bool may_evict, struct spillway_error *error) {
    const uint64_t deadline_us = sw_clock_us() + pool->wait_us;
    struct spillway_error cause = {0};
    bool gives_up = false;
    (void)pthread_mutex_lock(&pool->lock);
    while (!fits(pool, bytes) && !gives_up) {
        uint64_t freed = 0;
        gives_up = !may_evict || bytes > pool->budget_bytes;
        if (gives_up)
            continue;
        const uint64_t excess = pool->held_bytes + bytes - pool->budget_bytes;
        (void)pthread_mutex_unlock(&pool->lock);
        (void)sw_pool_evict(pool, excess, &freed, &cause);
        (void)pthread_mutex_lock(&pool->lock);
        if (freed == 0 && !fits(pool, bytes))
            gives_up = !sw_pool_wait(pool, deadline_us);
    }
    if (fits(pool, bytes))
        gives_up = false;
    if (!gives_up)
        pool->held_bytes += bytes;
    (void)pthread_mutex_unlock(&pool->lock);
    return gives_up ? no_memory("the pool's budget", bytes, &cause, error) : 0;
}

static void uncharge(struct spillway_pool *pool, uint64_t bytes) {
    (void)pthread_mutex_lock(&pool->lock);
    pool->held_bytes -= bytes;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}

int sw_pool_allocate(struct spillway_handle *h, struct CUstream_st *stream, bool may_evict, struct sw_pool_memory *ret,
                     struct spillway_error *error) {
    struct spillway_pool *pool = h->pool;
    const struct spillway_allocator *own = &h->options.allocator;
    const struct spillway_allocator *from = own->alloc ? own : &pool->allocator;
    const uint64_t bytes = h->options.bytes;
    struct spillway_error cause = {0};
    uint64_t freed = 1;
    const int rc = charge(pool, bytes, may_evict, error);
    if (rc < 0)
        return rc;
    void *data = from->alloc(from->user, bytes, stream);
    while (!data && may_evict && freed > 0) {
        (void)sw_pool_evict(pool, bytes, &freed, &cause);
        data = from->alloc(from->user, bytes, stream);
    }
    if (!data) {
        uncharge(pool, bytes);
        return no_memory("the allocator", bytes, &cause, error);
    }
    *ret = (struct sw_pool_memory){.data = data,
                                   .bytes = bytes,
                                   .free = from == own && own->free ? own->free : pool->allocator.free,
                                   .user = from == own && own->free ? own->user : pool->allocator.user,
                                   .is_watched = from == own && h->watches,
                                   .is_stream_ordered = from == own || !pool->has_own_allocator};
    return 0;
}
