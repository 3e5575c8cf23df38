/* pooled.h - what tests of the buffer manager share: an allocator of memfds with a limit, a pool on a daemon, buffers
 * with known bytes.
 *
 * What fails, fails the test. thread: the allocator: any; all others: the test's, unless they say otherwise. */
#ifndef SW_TEST_POOLED_H
#define SW_TEST_POOLED_H

#include "ipc/spillway_pool.h"
#include <pthread.h>
#include <stdbool.h>

/* An allocator, which a test may look at and limit at any time with its lock. */
struct sw_pooled_memory {
    pthread_mutex_t lock;
    uint64_t limit_bytes, used_bytes; /* 0: no limit */
    unsigned n_allocs, n_frees, n_refusals;
    struct CUstream_st *stream;      /* of the last allocation */
    bool (*on_full)(uint64_t bytes); /* as an allocator's failure callback: true: try again; without the lock */
    bool on_full_locked;             /* with the lock, which is recursive */
    void (*on_free)(void *data);     /* without the lock; NULL: none */
};
extern struct sw_pooled_memory sw_pooled_memory;
extern struct spillway_allocator sw_pooled_allocator;

/* The test's pool and the error of its last call. */
extern struct spillway_pool *sw_pooled;
extern struct spillway_error sw_pooled_error;

/* Makes the pool. socket: the daemon's. Fields of the options: budget_bytes, wait_ms, ... */
#define sw_pooled_open(socket_, ...)                                                                                   \
    sw_pooled_open_with(&(struct spillway_pool_options){                                                               \
        .size = sizeof(struct spillway_pool_options),                                                                  \
        .connection = &(struct spillway_options){.size = sizeof(struct spillway_options), .socket_path = (socket_)},   \
        .allocator = sw_pooled_allocator,                                                                              \
        .flags = SPILLWAY_POOL_UNPREPARED,                                                                             \
        __VA_ARGS__})
void sw_pooled_open_with(const struct spillway_pool_options *options);
/* Closes it. All memory must have been freed. */
void sw_pooled_close(void);

/* rc is 0, or that error with the text. */
void sw_pooled_ok(int rc);
void sw_pooled_ck_failed(int rc, int code, const char *text);

#define sw_pooled_new(bytes_, ...)                                                                                     \
    sw_pooled_new_with(&(struct spillway_handle_options){                                                              \
        .size = sizeof(struct spillway_handle_options), .bytes = (bytes_), __VA_ARGS__})
/* A new buffer, which is empty. */
struct spillway_handle *sw_pooled_new_with(const struct spillway_handle_options *options);
/* Pins it, writes the bytes of the seed, unpins it. */
void sw_pooled_fill(struct spillway_handle *handle, uint64_t seed);
/* Pins it, and compares. */
void sw_pooled_ck(struct spillway_handle *handle, uint64_t seed);
/* Pins and unpins. */
void sw_pooled_use(struct spillway_handle *handle);
struct spillway_handle_info sw_pooled_info(struct spillway_handle *handle);
bool sw_pooled_is(struct spillway_handle *handle, const char *state);
struct spillway_pool_stats sw_pooled_stats(void);
/* Makes room, which must succeed; returns what was freed. */
uint64_t sw_pooled_make_room(uint64_t bytes);

#endif
