/* lane.h - a connection that several threads share, none of which sleeps with it locked.
 *
 * - A call is one spill or restore. Its owner keeps the struct until `settle` was called, once, without locks, by any
 *   thread that waits for the lane.
 * - One of the waiting threads, the leader, polls the connection. The others wait for the pool's `changed`. The leader
 *   holds no lock while it polls, and is no leader any more when it calls `settle`. That must not wait.
 * - The library's lock of the connection is held while packets are made and taken in, and while memory is copied that
 *   the service cannot open.
 *
 * thread: any. */
#ifndef SW_IPC_POOL_LANE_H
#define SW_IPC_POOL_LANE_H

#include "ipc/spillway.h"
#include <stdbool.h>

struct spillway_pool;

/* Memory of a buffer, and what gives it back. */
struct sw_pool_memory {
    void *data; /* NULL: none */
    uint64_t bytes;
    void (*free)(void *user, void *data, uint64_t bytes);
    void *user;
    bool is_watched;        /* the owner's: spillway_handle_free() does not free it */
    bool is_stream_ordered; /* of an allocator that was passed a stream */
};

struct sw_lane {
    struct spillway_pool *pool;
    struct spillway *connection;
    /* Guarded by the pool's lock: */
    bool has_leader;
    unsigned n_calls;           /* under way */
    struct spillway_error lost; /* code 0: alive */
};

struct sw_lane_call {
    struct sw_lane *lane;
    bool is_spill;
    uint32_t n;
    const struct spillway_request *requests; /* the caller's, until `settle` */
    struct spillway_result *results;         /* n of them, filled in before `settle` */
    /* Returns memory to be freed, which may wait for other threads: after all calls that the leader has taken in. */
    struct sw_pool_memory (*settle)(struct sw_lane_call *call);
    void *owner;
    int rc; /* of the call, with `error` */
    struct spillway_error error;
    unsigned n_restarts; /* after ERESTARTED */
    bool is_done;        /* for `settle`s use */
};

int sw_lane_open(struct sw_lane *lane, struct spillway_pool *pool, const struct spillway_options *options,
                 struct spillway_error *error);
void sw_lane_close(struct sw_lane *lane);

/* Starts a call. If too much is under way it waits for other calls of the lane. errors: those of the call, and then
 * `settle` is not called. */
int sw_lane_start(struct sw_lane *lane, struct sw_lane_call *call, struct spillway_error *error);

/* Waits until ended(arg), which is asked with the pool's lock, taking replies in. Needs the pool's lock, which it gives
 * back meanwhile. Returns false at the deadline. */
bool sw_lane_wait(struct sw_lane *lane, bool (*ended)(const void *arg), const void *arg, uint64_t deadline_us);

/* Takes in what has come, without waiting. Needs the pool's lock, which it gives back meanwhile. */
void sw_lane_poll(struct sw_lane *lane);

/* Looks whether the connection is lost. */
bool sw_lane_is_alive(struct sw_lane *lane);

/* Drops a region without waiting for the answer. A region of generation 0: no-op. */
void sw_lane_drop(struct sw_lane *lane, struct spillway_region region);

#endif
