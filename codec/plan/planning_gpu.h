/* planning_gpu.h - a plan whose sample is taken on a GPU, and trained on there: the steps of planning.h as work on the
 * caller's stream.
 *
 * Queues and returns; nothing here waits. The caller sees to it that the stream runs dry between two calls. errors:
 * those of codec/gpu.h. thread: gpu. */
#ifndef SW_CODEC_PLANNING_GPU_H
#define SW_CODEC_PLANNING_GPU_H

#include "codec/gpu.h"
#include "codec/plan/planning.h"

/* What comes to the host; page-locked memory. */
struct sw_gpu_planning_host {
    uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_params trained;
    struct sw_gpu_training training;
    uint32_t hopeless;
};

/* The caller's memory, which it leaves alone until the plan is made; d_: on the GPU. */
struct sw_gpu_planning_room {
    struct sw_gpu_planning_host *h;
    void *d_sample; /* SW_SAMPLE_MAX_BYTES */
    struct sw_params *d_params;
    struct sw_gpu_training *d_training;
    void *d_scratch; /* sw_gpu_train_scratch_bytes() */
    size_t scratch_bytes;
};

struct sw_gpu_planning {
    struct sw_planning planning; /* planning.plan is what is made */
    struct sw_gpu_planning_room room;
    const void *d_region;
    struct CUstream_st *stream;
};

/* Begins, and queues the first step, if there is one. */
int sw_gpu_planning_begin(struct sw_gpu_planning *p, enum sw_value_type type, const void *d_region, uint64_t raw_bytes,
                          const struct sw_gpu_planning_room *room, struct CUstream_st *stream, struct sw_err *err);
/* True if the host is to learn from a sample that has come, for milliseconds: the caller then has
 * sw_gpu_planning_learn() run, on any thread, before it goes on. */
bool sw_gpu_planning_waits(const struct sw_gpu_planning *p);
void sw_gpu_planning_learn(struct sw_gpu_planning *p);
/* Goes on when the stream has run dry and nothing is waited for. 0: the plan is made; -SW_EAGAIN: more is queued, or
 * the host is to learn. */
int sw_gpu_planning_go_on(struct sw_gpu_planning *p, struct sw_err *err);

#endif
