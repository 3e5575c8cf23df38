/* pool_gpu.h - what the buffer manager needs of the CUDA driver: events, streams without work, memory.
 *
 * The driver is the one that the process has loaded. thread: any. */
#ifndef SW_IPC_POOL_POOL_GPU_H
#define SW_IPC_POOL_POOL_GPU_H

#include "base/list.h"
#include "ipc/spillway.h"
#include <stdbool.h>

struct sw_pool_gpu;
struct sw_pool_event;

/* Finds the driver. *ret: NULL if there is none. ordinal: of the GPU to allocate on; -1: nothing is allocated. errors:
 * -SPILLWAY_EMEMKIND (too old), -SPILLWAY_EGPU, -SPILLWAY_ENOMEM. */
int sw_pool_gpu_open(struct sw_pool_gpu **ret, int ordinal, struct spillway_error *error);
/* All events must have been put back. NULL: no-op. */
void sw_pool_gpu_close(struct sw_pool_gpu *gpu);

/* Allocates on the GPU of sw_pool_gpu_open(). NULL: out of memory. */
void *sw_pool_gpu_alloc(struct sw_pool_gpu *gpu, uint64_t bytes);
void sw_pool_gpu_free(struct sw_pool_gpu *gpu, void *data);

/* Returns a non-blocking stream without work for operations on this memory, made if needed. NULL: it is no GPU memory,
 * or the driver makes none. */
struct CUstream_st *sw_pool_gpu_stream(struct sw_pool_gpu *gpu, const void *data);

/* Records an event behind the work that is queued on the stream. *ret: NULL if there is nothing to wait for. memory:
 * names the context of a default stream where the thread has none. errors: -SPILLWAY_EINVAL (captured),
 * -SPILLWAY_EGPU, -SPILLWAY_ENOMEM. */
int sw_pool_event_record(struct sw_pool_gpu *gpu, struct CUstream_st *stream, const void *memory,
                         struct sw_pool_event **ret, struct spillway_error *error);
/* Adds the event to the list, and moves the one that it replaces, of the same stream, to *replaced. Needs the lock that
 * guards both. NULL: no-op. */
void sw_pool_event_add(struct sw_list *events, struct sw_pool_event *event, struct sw_list *replaced);
/* Returns whether all events of the list are passed, and puts the passed ones back. */
bool sw_pool_events_passed(struct sw_pool_gpu *gpu, struct sw_list *events);
/* Waits for them first. */
void sw_pool_events_await(struct sw_pool_gpu *gpu, struct sw_list *events);
/* Puts events back for the next ones. */
void sw_pool_events_put(struct sw_pool_gpu *gpu, struct sw_list *events);

#endif
