/* planning_gpu.h - makes a plan on a GPU: queues the steps of planning.h on the caller's stream.
 *
 * No call waits. The caller must wait until the stream is empty before the next call. errors: as in codec/gpu.h.
 * thread: gpu. */
#ifndef SW_CODEC_PLANNING_GPU_H
#define SW_CODEC_PLANNING_GPU_H

#include "codec/gpu.h"
#include "codec/plan/planning.h"

/* The results that are copied to the host; in pinned memory. */
struct sw_gpu_planning_host {
    struct sw_params trained;
    struct sw_gpu_training training;
    uint32_t hopeless;
};

/* The caller's memory, which it must not touch until the plan is complete. d_: on the GPU. */
struct sw_gpu_planning_room {
    struct sw_gpu_planning_host *h;
    /* Pinned: SW_SAMPLE_MAX_BYTES; with a dictionary SW_SAMPLE_MOST_PARTS times as many. Aligned to 8. */
    uint8_t *h_samples;
    void *d_sample; /* SW_SAMPLE_MAX_BYTES */
    struct sw_params *d_params;
    struct sw_gpu_training *d_training;
    void *d_scratch; /* sw_gpu_train_scratch_bytes() */
    size_t scratch_bytes;
    /* sw_gpu_planning_learner_bytes(), aligned to 16: to learn dictionaries; may lie where d_scratch does. NULL: the
     * host learns them. */
    uint8_t *d_learner;
    struct sw_frame_dictionary *dictionary; /* in the host's memory: as for sw_planning_begin() */
    struct sw_gpu_pass pass; /* of the kernels that read the region; the caller changes it before each call */
};

struct sw_gpu_planning {
    struct sw_planning planning; /* planning.plan is the result */
    struct sw_gpu_planning_room room;
    const void *d_region;
    struct CUstream_st *stream;
    /* SAMPLE, LEARN: samples whose gathering is or was queued; LEARN: that holds for all, and the GPU learns from them.
     */
    unsigned n_gathered;
    bool has_samples;
};

/* Returns the device memory that learning a dictionary takes: tens of MB. */
size_t sw_gpu_planning_learner_bytes(void);
/* Begins a plan, and queues its first step, if there is one. */
int sw_gpu_planning_begin(struct sw_gpu_planning *p, enum sw_value_type type, const void *d_region, uint64_t raw_bytes,
                          const struct sw_gpu_planning_room *room, struct CUstream_st *stream, struct sw_err *err);
/* Returns whether kernels of the step that is queued read the region. */
bool sw_gpu_planning_reads_region(const struct sw_gpu_planning *p);
/* Returns whether the host has to learn from a fetched sample, which takes milliseconds, or to write and judge what the
 * GPU has learned, which takes one. The caller must then call sw_gpu_planning_learn() before it goes on. */
bool sw_gpu_planning_waits(const struct sw_gpu_planning *p);
/* Does this. thread: any. */
void sw_gpu_planning_learn(struct sw_gpu_planning *p);
/* Performs the next step, when the stream is empty and the host need not learn. Returns 0: the plan is complete;
 * -SW_EAGAIN: the next step is queued, or the host has to learn. */
int sw_gpu_planning_go_on(struct sw_gpu_planning *p, struct sw_err *err);

#endif
