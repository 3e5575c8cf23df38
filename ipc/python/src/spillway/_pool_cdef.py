# SPDX-License-Identifier: Apache-2.0
"""The declarations of spillway_pool.h for cffi, compared with the compiled header like those of _cdef.py."""

STRUCTS = """
struct spillway_allocator {
    void *(*alloc)(void *, uint64_t, struct CUstream_st *);
    void (*free)(void *, void *, uint64_t);
    void *user;
};
struct spillway_pool_options {
    size_t size;
    const struct spillway_options *connection;
    uint32_t n_connections;
    uint32_t flags;
    uint64_t budget_bytes;
    struct spillway_allocator allocator;
    int gpu;
    int wait_ms;
};
struct spillway_pool_stats {
    size_t size;
    uint64_t handles, live, spilled, pinned;
    uint64_t live_bytes, spilled_bytes;
    uint64_t stored_bytes;
    uint64_t held_bytes;
    uint64_t hits, waits;
    uint64_t restores, evictions;
    uint64_t failed_restores, failed_spills;
};
struct spillway_handle_options {
    size_t size;
    uint64_t bytes;
    uint16_t type;
    uint8_t keep_priority;
    uint8_t reserved;
    uint32_t flags;
    struct spillway_allocator allocator;
    struct CUstream_st *stream;
};
struct spillway_handle_info {
    size_t size;
    uint64_t bytes, stored_bytes;
    uint32_t pins;
    char state[16];
    char codec[16];
};
"""

OPAQUE = """
struct spillway_pool;
struct spillway_handle;
"""

FUNCTIONS = """
int spillway_pool_create(struct spillway_pool **, const struct spillway_pool_options *, struct spillway_error *);
void spillway_pool_close(struct spillway_pool *);
int spillway_pool_prepare(struct spillway_pool *, const void *, struct spillway_error *);
int spillway_pool_set_budget(struct spillway_pool *, uint64_t, struct spillway_error *);
int spillway_pool_make_room(struct spillway_pool *, uint64_t, uint64_t *, struct spillway_error *);
int spillway_pool_stats(struct spillway_pool *, struct spillway_pool_stats *, struct spillway_error *);
int spillway_pool_new(struct spillway_pool *, const struct spillway_handle_options *, struct spillway_handle **,
                      struct spillway_error *);
int spillway_pool_adopt(struct spillway_pool *, void *, const struct spillway_handle_options *,
                        struct spillway_handle **, struct spillway_error *);
int spillway_pool_watch(struct spillway_pool *, void *, const struct spillway_handle_options *,
                        struct spillway_handle **, struct spillway_error *);
int spillway_handle_free(struct spillway_handle *, struct spillway_error *);
int spillway_handle_pin(struct spillway_handle *, struct CUstream_st *, void **, struct spillway_error *);
int spillway_handle_unpin(struct spillway_handle *, struct CUstream_st *, struct spillway_error *);
int spillway_handle_prefetch(struct spillway_handle *, struct CUstream_st *, struct spillway_error *);
int spillway_handle_spill(struct spillway_handle *, struct spillway_error *);
int spillway_handle_query(struct spillway_handle *, struct spillway_handle_info *, struct spillway_error *);
"""

# Names without "SPILLWAY_".
CONSTANTS = {"POOL_UNPREPARED": 1, "HANDLE_STAYS": 1, "HANDLE_CONSTANT": 2}
