/* spillway_pool.h - a buffer manager for engines: idle buffers leave the GPU for others, and come back when pinned.
 *
 * The simplest use (cc program.c $(pkg-config --cflags --libs spillway)):
 *
 *     struct spillway_pool *pool;
 *     struct spillway_handle *column;
 *     struct spillway_handle_options options = {.size = sizeof options, .bytes = n, .type = SPILLWAY_I64};
 *     void *data;
 *
 *     spillway_pool_create(&pool, NULL, &error);
 *     spillway_pool_new(pool, &options, &column, &error);
 *     spillway_handle_pin(column, stream, &data, &error);  // 0: the memory is there, with its bytes
 *     kernel<<<blocks, threads, 0, stream>>>(data);
 *     spillway_handle_unpin(column, stream, &error);       // at once: the pool waits for the stream by itself
 *     ...
 *     spillway_handle_free(column, &error);
 *     spillway_pool_close(pool);
 *
 * An engine with an allocator of its own passes it in spillway_pool_options, and asks for room where that fails:
 *
 *     while (!(data = my_alloc(bytes)) && (spillway_pool_make_room(pool, bytes, &freed, NULL), freed > 0))
 *         ;
 *
 * Terms
 *   - A handle stands for one buffer. The buffer is live (it has memory), spilled (the service has its bytes), or empty
 *     (no memory and no bytes yet).
 *   - A pin keeps a buffer live, at one address. Pins nest, also those of several threads and streams.
 *   - A buffer is idle when it is not pinned, and its streams have passed the events that its unpins have recorded.
 *     Only idle buffers are spilled.
 *   - Evicting a buffer is spilling its bytes and freeing its memory.
 *
 * Which buffers leave first
 *   1. those of lower keep_priority
 *   2. those used longer ago. A buffer's age is the number of unpins in the pool since its own last one, or since its
 *      adoption or restore. Two ages are similar if they have the same highest bit.
 *   3. among those of similar age the largest, and then the oldest
 *
 * What a program must not do
 *   - Use memory of a buffer that it has not pinned, or queue work on it after its last unpin.
 *   - Free a handle that another thread uses, or use any handle after spillway_pool_close().
 *   - Pin or free a handle in the allocator callback that gets memory for that handle.
 *   - Unpin on a stream that is being captured: EINVAL, and the buffer stays pinned. A buffer of a graph has to be
 *     pinned as long as the graph may run.
 *   - Use a pool after fork(). Its functions fail with EINVAL in the child, and spillway_pool_close() only closes
 *     descriptors.
 *
 * Conventions are those of spillway.h, and:
 *   - Threads: every function but spillway_pool_close() may be called from any thread, also inside callbacks of the
 *     allocator. The pool holds no lock while it waits, allocates, or calls a callback. It has no threads of its own.
 *   - Streams: the pool uses the CUDA driver that the process has loaded when it makes the pool. Without one, streams
 *     are ignored.
 *   - Calls take up to 80 KiB of stack, besides the CUDA driver's.
 *
 * When something fails
 *   - A spill that failed leaves the buffer live and unchanged. A restore that failed leaves it spilled: pin again.
 *   - If the service's connection is lost for good, live buffers stay usable, nothing is evicted any more, and pins of
 *     spilled buffers fail with ELOST. */
#ifndef SPILLWAY_POOL_H
#define SPILLWAY_POOL_H

#include "spillway.h"

#ifdef __cplusplus
extern "C" {
#endif

struct spillway_pool;   /* opaque */
struct spillway_handle; /* opaque */

/* Where memory comes from. Callbacks may be called from any thread that calls a function of the pool. */
struct spillway_allocator {
    /* Returns memory that may be used now, or after the work of the stream; NULL: out of memory. May call
     * spillway_pool_make_room(). */
    void *(*alloc)(void *user, uint64_t bytes, struct CUstream_st *stream);
    /* Frees memory that nothing uses any more: neither the service nor the streams of any pin. */
    void (*free)(void *user, void *data, uint64_t bytes);
    void *user;
};

/* ---- pools ---- */

enum {
    SPILLWAY_POOL_UNPREPARED = 1 /* take what spills need with the first spill, not with the pool's creation */
};

struct spillway_pool_options {
    size_t size;
    const struct spillway_options *connection; /* NULL: all defaults. Copied. */
    uint32_t n_connections; /* that the pool opens; at most 16; 0: 1, enough unless memory is copied */
    uint32_t flags;
    uint64_t budget_bytes; /* limit of the buffers' memory; 0: none */
    /* Both callbacks NULL: cuMemAlloc and cuMemFree in the primary context; without a CUDA driver malloc and free. */
    struct spillway_allocator allocator;
    int gpu; /* CUDA's number of the GPU for cuMemAlloc */
    /* For how long calls that need room wait for streams, pins, and callbacks of others. 0: 1 s, -1: not at all. */
    int wait_ms;
};

/* Connects to the service, and makes a pool.
 *
 * - options: NULL: all defaults. owns: *ret is the caller's until spillway_pool_close().
 * - Allocates a small block for a moment to find out which memory spills need on the GPU, and takes that memory now.
 * - errors: those of spillway_open() and spillway_prepare(), EINVAL, EGPU, ENOMEM. */
int spillway_pool_create(struct spillway_pool **ret, const struct spillway_pool_options *options,
                         struct spillway_error *error);

/* Frees all handles with their memory (not watched memory), waits for their streams, and closes the connections.
 *
 * - Spilled bytes are gone. thread: no other thread uses the pool. NULL: no-op. */
void spillway_pool_close(struct spillway_pool *pool);

/* Takes now what spills of this kind of memory need, so that they work when the GPU is full.
 *
 * - Only for memory that the pool's allocator did not make. errors: those of spillway_prepare(). */
int spillway_pool_prepare(struct spillway_pool *pool, const void *memory, struct spillway_error *error);

/* Changes the budget. 0: none. The next pin that needs memory keeps to it. errors: EINVAL (after fork). */
int spillway_pool_set_budget(struct spillway_pool *pool, uint64_t bytes, struct spillway_error *error);

/* Evicts idle buffers until at least `bytes` were freed. For handlers of out-of-memory errors.
 *
 * - *ret_freed: the bytes that the pool has freed during the call, also for other threads. It is set after errors, too.
 * - Allocates no GPU memory. Waits for spills, also those that other threads have begun. Waits for streams, and for
 *   other threads' free callbacks, for wait_ms and only while nothing is idle. Never waits for pins or restores. So it
 *   may be called inside an allocator, whatever other threads do.
 * - Returns 0 if enough was freed.
 * - errors: ENOMEM (no more idle buffers), the first spill's error, EINVAL. */
int spillway_pool_make_room(struct spillway_pool *pool, uint64_t bytes, uint64_t *ret_freed,
                            struct spillway_error *error);

struct spillway_pool_stats {
    size_t size;                             /* set by the caller */
    uint64_t handles, live, spilled, pinned; /* now: handles; of them live, spilled, pinned */
    uint64_t live_bytes, spilled_bytes;      /* now */
    uint64_t stored_bytes;                   /* now, of the spilled ones: in the service */
    uint64_t held_bytes;                     /* now: of the budget; also memory that is being allocated or freed */
    uint64_t hits, waits;                    /* so far: pins that found it live; that waited for a transfer */
    uint64_t restores, evictions;            /* so far */
    uint64_t failed_restores, failed_spills; /* so far */
};

/* Returns the pool's counts. errors: EINVAL. */
int spillway_pool_stats(struct spillway_pool *pool, struct spillway_pool_stats *ret, struct spillway_error *error);

/* ---- handles ---- */

enum {
    SPILLWAY_HANDLE_STAYS = 1,   /* never evicted */
    SPILLWAY_HANDLE_CONSTANT = 2 /* the bytes do not change after the first unpin. The service keeps them after a
                                    restore, and the next eviction moves nothing. */
};

struct spillway_handle_options {
    size_t size;
    uint64_t bytes;        /* at least 1 */
    uint16_t type;         /* enum spillway_value_type; bytes must be a multiple of the value's length */
    uint8_t keep_priority; /* buffers of lower priority leave the GPU first, and the service's host memory as well */
    uint8_t reserved;
    uint32_t flags;
    struct spillway_allocator allocator; /* of this buffer; a NULL callback: the pool's */
    struct CUstream_st *stream;          /* adopt, watch: the bytes are there after this stream's work so far */
};

/* Makes a handle for a new buffer, which is empty: the first pin allocates its memory, of undefined content.
 *
 * - owns: *ret is the caller's until spillway_handle_free(). The options are copied.
 * - errors: EINVAL, ENOMEM. */
int spillway_pool_new(struct spillway_pool *pool, const struct spillway_handle_options *options,
                      struct spillway_handle **ret, struct spillway_error *error);

/* Makes a handle for memory that exists and has its bytes. The pool owns the memory, and frees it by options.allocator.
 *
 * - After an eviction new memory comes from options.allocator.alloc, and goes to options.allocator.free. If `alloc` is
 *   NULL it comes from the pool's allocator, and goes there.
 * - If the budget is exceeded then, evicts other buffers. That may fail without an error.
 * - errors: as spillway_pool_new(), and the memory is still the caller's; EGPU, EINVAL (the stream is captured). */
int spillway_pool_adopt(struct spillway_pool *pool, void *data, const struct spillway_handle_options *options,
                        struct spillway_handle **ret, struct spillway_error *error);

/* Makes a handle for memory whose owner frees it. options.allocator.free only tells the owner that its bytes are
 * stored, and that nothing uses the memory any more.
 *
 * - The pool counts the memory as freed when the callback returns.
 * - spillway_handle_free() does not call it: after that the memory is the owner's again.
 * - With options.allocator.alloc the owner also gives the memory for a restore, which is then watched, too. Without, it
 *   comes from the pool's allocator, and the pool owns it.
 * - errors: as spillway_pool_adopt(), EINVAL (no `free`). */
int spillway_pool_watch(struct spillway_pool *pool, void *data, const struct spillway_handle_options *options,
                        struct spillway_handle **ret, struct spillway_error *error);

/* Frees the handle. Its bytes are gone, and its memory is freed after the streams of its pins, perhaps by a later call.
 *
 * - Waits for its spill or restore, if one is under way.
 * - errors: EBUSY (pinned), EINVAL (after fork). NULL: no-op. */
int spillway_handle_free(struct spillway_handle *handle, struct spillway_error *error);

/* Pins the buffer, and returns its address, which is valid until the matching spillway_handle_unpin().
 *
 * - A live buffer costs a lock. A spilled one is restored first: one thread restores, others wait for it.
 * - A buffer that is being spilled: waits for the end of the spill. Then it stays live, and nothing is restored.
 * - stream: where the caller will use it; NULL: the default stream. New memory is written after this stream's work.
 * - Needs memory: evicts others above the budget, and if the allocator fails. Waits for them, and up to wait_ms for
 *   streams and other pins. Then it is ENOMEM.
 * - After ERESTARTED it tries again by itself.
 * - errors: ENOMEM, ELOST, those of spillway_restore(), EINVAL. The buffer is then not pinned. */
int spillway_handle_pin(struct spillway_handle *handle, struct CUstream_st *stream, void **ret,
                        struct spillway_error *error);

/* Pins without waiting for the restore: returns 1 (live) or 0 (under way).
 *
 * - It may evict others, and waits for these. Then call spillway_handle_pin_ready(), or unpin to give up.
 * - errors: as spillway_handle_pin(). */
int spillway_handle_pin_begin(struct spillway_handle *handle, struct CUstream_st *stream, struct spillway_error *error);

/* Returns the address of a buffer that the caller has pinned, when it is live.
 *
 * - timeout_ms: -1: no limit; 0: only looks. EAGAIN: not yet; the pin stays.
 * - Other errors: as spillway_handle_pin(). The restore has failed, and the pin is gone. */
int spillway_handle_pin_ready(struct spillway_handle *handle, int timeout_ms, void **ret, struct spillway_error *error);

/* Gives one pin back. The buffer may be spilled when the work that is queued on the stream now has ended.
 *
 * - errors: EINVAL (not pinned; the stream is being captured), EGPU, ENOMEM. The pin stays. */
int spillway_handle_unpin(struct spillway_handle *handle, struct CUstream_st *stream, struct spillway_error *error);

/* Starts to restore a spilled buffer, without a pin and without waiting. No-op if it is live.
 *
 * - Evicts nothing: ENOMEM if the budget or the allocator has no room.
 * - Memory that the library copies is moved by later calls of the pool only.
 * - errors: as spillway_handle_pin(). A restore that fails later is not reported: the pin tries again. */
int spillway_handle_prefetch(struct spillway_handle *handle, struct CUstream_st *stream, struct spillway_error *error);

/* Evicts this buffer now, and waits for that. No-op if it is not live.
 *
 * - errors: EBUSY (pinned, or its streams have not passed), EINVAL (it stays), those of spillway_spill(). */
int spillway_handle_spill(struct spillway_handle *handle, struct spillway_error *error);

struct spillway_handle_info {
    size_t size;                  /* set by the caller */
    uint64_t bytes, stored_bytes; /* stored_bytes: in the service; 0: it has no copy */
    uint32_t pins;
    char state[16]; /* "empty", "live", "spilling", "spilled", "restoring", "lost" */
    char codec[16]; /* of the stored bytes */
};

/* Describes a buffer. errors: EINVAL. */
int spillway_handle_query(struct spillway_handle *handle, struct spillway_handle_info *ret,
                          struct spillway_error *error);

#ifdef __cplusplus
}
#endif
#endif
