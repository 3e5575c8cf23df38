/* planning.h - a plan in steps, for whoever can bring a sample of a region: a state machine without a device.
 *
 * sw_planning_begin() says what comes first, in `step`; the caller does it and calls the function that belongs to the
 * step, until the step is SW_PLANNING_DONE. Regions of numbers, and all on the host: sample, learn. Of bytes on a GPU:
 * probe, train. Either may go on with another sample and learning, if another codec of bytes may gain.
 * The same input makes the same plan. thread: any, one at a time. */
#ifndef SW_CODEC_PLANNING_H
#define SW_CODEC_PLANNING_H

#include "codec/plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sw_planning_step {
    SW_PLANNING_DONE,   /* `plan` is made */
    SW_PLANNING_SAMPLE, /* bring the sample to the host; then call sw_planning_learn() */
    SW_PLANNING_PROBE,  /* look at the sample on the GPU; then call sw_planning_probed() */
    SW_PLANNING_TRAIN,  /* train on the sample on the GPU; then call sw_planning_trained() */
};

struct sw_planning {
    struct sw_plan plan;
    enum sw_planning_step step;
    unsigned piece_bytes; /* of the sample */
    bool takes_long;      /* learning from it takes milliseconds, more than a thread has that others wait for */
    enum sw_value_type value_type;
    uint64_t raw_bytes;
};

/* Begins a plan for a region of raw_bytes; trains: the caller can do the steps of a GPU. */
void sw_planning_begin(struct sw_planning *p, enum sw_value_type type, uint64_t raw_bytes, bool trains);
/* Learns from the sample, sw_sample_bytes(raw_bytes) long. */
void sw_planning_learn(struct sw_planning *p, const void *sample);
/* Takes note that training would be in vain, or not. */
void sw_planning_probed(struct sw_planning *p, bool is_hopeless);
/* Takes what was trained; arguments as of sw_plan_init_trained(). */
void sw_planning_trained(struct sw_planning *p, const struct sw_params *params, size_t coded_bytes);

/* All steps for a region in the host's memory, of any type; sample: SW_SAMPLE_MAX_BYTES of room. */
void sw_plan_make(struct sw_plan *ret, enum sw_value_type type, const void *region, uint64_t raw_bytes, void *sample);

#ifdef __cplusplus
}
#endif
#endif
