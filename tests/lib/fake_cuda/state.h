/* state.h - the state that the parts of the fake share: which threads may call, memory, queued work. Private to the
 * folder. All functions except sw_fake_enter() need the lock. */
#ifndef SW_TEST_FAKE_CUDA_STATE_H
#define SW_TEST_FAKE_CUDA_STATE_H

#include "codec/gpu.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <stdbool.h>

enum { SW_FAKE_ARGS_BYTES = 768 };

/* Begins a call: takes the lock, which sw_fake_leave() gives back whatever was returned. */
cudaError_t sw_fake_enter(enum sw_fake_call call);
cudaError_t sw_fake_leave(cudaError_t result);
/* The last error of this thread that was not asked for yet: a launch takes it for its own. */
cudaError_t sw_fake_take_last_error(void);

/* Memory that work may reach. */
struct sw_fake_range {
    enum sw_fake_thing thing;
    const uint8_t *from;
    size_t bytes;
};
void sw_fake_range_add(enum sw_fake_thing thing, const void *from, size_t bytes);
/* Returns its length, 0 if there is none that begins there. */
size_t sw_fake_range_remove(enum sw_fake_thing thing, const void *from);
/* The range that holds all of it, or NULL. */
const struct sw_fake_range *sw_fake_range_find(const void *at, size_t bytes);
/* For work that is done: false, and a dead context, if it is not there. */
bool sw_fake_reach(const void *at, size_t bytes);
void sw_fake_hold(enum sw_fake_thing thing, int change);
void sw_fake_kill(cudaError_t error);

/* Queues work with a copy of its arguments. */
cudaError_t sw_fake_queue(cudaStream_t stream, void (*work)(const void *args), const void *args, size_t bytes);
/* Queues a kernel, which begins only while the GPU is not full, and then does nothing if it may not pass. */
cudaError_t sw_fake_queue_kernel(cudaStream_t stream, void (*work)(const void *args), const void *args, size_t bytes,
                                 struct sw_gpu_pass pass);
/* Does what is queued, all of it; on every stream. */
cudaError_t sw_fake_run(cudaStream_t stream);
void sw_fake_run_all(void);

/* The driver's function of that name, or NULL. */
void *sw_fake_driver_entry(const char *name);

#endif
