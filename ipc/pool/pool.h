/* pool.h - inside of the buffer manager: pools, handles, and who may touch what. Not installed.
 *
 * Life of a buffer. `lock` guards the state; the thread that has moved a buffer to a state in capitals does the work
 * outside the lock and moves it on:
 *
 *   empty ---> ALLOCATING ---> live ---> LEAVING ---> spilled ---> ALLOCATING ---> RESTORING ---> live
 *     ^            |            ^           |            ^              |               |
 *     +------------+            +-----------+            +--------------+---------------+      (it failed)
 *
 * - A buffer has pins only while it is live, ALLOCATING or RESTORING; and in empty and spilled until each of those that
 *   waited for a restore has seen that it failed.
 * - LEAVING buffers have no pins. Their events belong to the thread that evicts them.
 * - Before a callback frees memory, the memory is detached from its handle. So no handle is LEAVING because of a thread
 *   that runs a callback, and waiting for LEAVING handles is waiting for the service.
 *
 * The lock is never held during calls of the client library, the CUDA driver, or callbacks. */
#ifndef SW_IPC_POOL_POOL_H
#define SW_IPC_POOL_POOL_H

#include "base/list.h"
#include "ipc/pool/lane.h"
#include "ipc/pool/pool_gpu.h"
#include "ipc/spillway_pool.h"
#include <pthread.h>
#include <stdbool.h>
#include <sys/types.h>

enum { SW_POOL_MAX_LANES = 16 };

enum sw_handle_state {
    SW_HANDLE_EMPTY,
    SW_HANDLE_ALLOCATING,
    SW_HANDLE_LIVE,
    SW_HANDLE_LEAVING,
    SW_HANDLE_SPILLED,
    SW_HANDLE_RESTORING
};

/* A restore that is under way, and what it names. */
struct sw_handle_restore {
    struct sw_lane_call call;
    struct spillway_buffer buffer;
    struct spillway_request request;
    struct spillway_result result;
};

struct spillway_handle {
    struct sw_list node;      /* of spillway_pool.handles, or .dying */
    struct sw_list idle_node; /* of spillway_pool.idle: live, no pins, may be evicted */
    struct spillway_pool *pool;
    struct spillway_handle_options options;
    bool watches; /* memory of options.allocator.alloc is the owner's */
    enum sw_handle_state state;
    bool wanted; /* LEAVING: a caller waits for it, so it stays live */
    struct sw_pool_memory memory;
    struct sw_list events; /* sw_pool_event.node: of unpins whose streams may not have passed */
    unsigned n_pins;
    uint64_t used; /* spillway_pool.n_unpins after its last one */
    uint64_t failed_at,
        busy_at; /* n_searches when its spill failed, or its streams had not passed, last; 0: they had */
    struct spillway_region region; /* the service's copy; generation 0: none */
    struct sw_lane *lane;          /* of the region */
    uint64_t stored_bytes;
    char codec[16];
    struct sw_handle_restore restore;
    struct spillway_error failure; /* of the last restore */
};

struct spillway_pool {
    pid_t process;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* any state, pin or budget; on the monotonic clock */
    struct sw_list handles; /* spillway_handle.node */
    struct sw_list idle;    /* spillway_handle.idle_node */
    struct sw_list dying;   /* spillway_handle.node: freed by the caller, their streams have not passed */
    struct sw_lane lanes[SW_POOL_MAX_LANES];
    unsigned n_lanes, next_lane;
    struct spillway_allocator allocator;
    bool has_own_allocator;  /* the default one: its memory needs no order with streams */
    struct sw_pool_gpu *gpu; /* NULL: no CUDA driver */
    uint64_t wait_us;
    uint64_t budget_bytes, held_bytes;
    uint64_t freed_bytes;             /* since the beginning */
    uint64_t n_unpins, n_searches;    /* since the beginning; searches for room, and rounds of them */
    unsigned n_leaving, n_freeing;    /* buffers that are LEAVING; memory that was detached and is not freed yet */
    struct spillway_pool_stats stats; /* those since the beginning */
};

/* Returns -SPILLWAY_EINVAL in a forked child. */
int sw_pool_check(const struct spillway_pool *pool, struct spillway_error *error);
/* Fills in *error, if it is not NULL. Returns the code. */
int sw_pool_fail(struct spillway_error *error, int code, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Waits for `changed`, with the lock. Returns false at the deadline. */
bool sw_pool_wait(struct spillway_pool *pool, uint64_t deadline_us);

/* ---- with the lock held ---- */

/* Makes the buffer live; it is idle if it is not pinned. */
void sw_handle_set_live(struct spillway_handle *h);
/* Has an idle buffer LEAVING. */
void sw_handle_set_leaving(struct spillway_handle *h);
/* Takes the region from the handle, to be dropped by sw_lane_drop() without the lock. */
struct spillway_region sw_handle_take_region(struct spillway_handle *h);

/* ---- handle.c ---- */

/* Frees the handle. Its memory is freed by the next sw_pool_reap() that finds its streams passed. */
void sw_handle_end(struct spillway_handle *h);

/* ---- evict.c ---- */

/* Does spillway_pool_make_room(). */
int sw_pool_evict(struct spillway_pool *pool, uint64_t bytes, uint64_t *ret_freed, struct spillway_error *error);
/* Evicts one buffer, which is LEAVING. errors: -SPILLWAY_EBUSY (a stream has not passed), those of the spill. */
int sw_pool_evict_one(struct spillway_handle *h, struct spillway_error *error);
/* Frees the memory of freed handles whose streams have passed; of all, after waiting for them. */
void sw_pool_reap(struct spillway_pool *pool, bool all);

/* Allocates a buffer's memory, within the budget; evicts others if may_evict. errors: -SPILLWAY_ENOMEM. */
int sw_pool_allocate(struct spillway_handle *h, struct CUstream_st *stream, bool may_evict, struct sw_pool_memory *ret,
                     struct spillway_error *error);

/* ---- memory.c ---- */

/* Takes the memory from a handle, to be freed by sw_pool_free_memory() without the lock. Needs the lock. */
struct sw_pool_memory sw_handle_detach(struct spillway_handle *h);
/* Calls back to free detached memory, and gives it back to the budget. */
void sw_pool_free_memory(struct spillway_pool *pool, const struct sw_pool_memory *memory);
/* Chooses the default allocator. */
void sw_pool_default_allocator(struct spillway_pool *pool);

#endif
