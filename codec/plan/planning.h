/* planning.h - makes a plan in steps, for a caller that can fetch samples of a region. It is a state machine and needs
 * no device.
 *
 * sw_planning_begin() sets `step`. The caller performs the step, and calls the step's function, which sets the next
 * step, until the step is SW_PLANNING_DONE. For regions of numbers, and for all regions on the host: sample, learn. For
 * regions of bytes on a GPU: probe, train. Regions of bytes may need another sample, if another codec may gain. With
 * room for a dictionary, a GPU learns that one, too, and the sample judges it.
 *
 * The same input makes the same plan. thread: any, one at a time. */
#ifndef SW_CODEC_PLANNING_H
#define SW_CODEC_PLANNING_H

#include "codec/plan/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sw_planning_step {
    SW_PLANNING_DONE,   /* `plan` is complete */
    SW_PLANNING_SAMPLE, /* fetch the samples to the host; then call sw_planning_learn() */
    SW_PLANNING_PROBE,  /* probe the sample on the GPU; then call sw_planning_probed() */
    SW_PLANNING_TRAIN,  /* train on the sample on the GPU; then call sw_planning_trained() */
    /* Learn a dictionary on the GPU from the samples of all parts, and fetch the sample of sw_planning_judge(), too;
     * then call sw_planning_learned(), or sw_planning_learn_on_host() if the GPU could not. */
    SW_PLANNING_LEARN,
};

struct sw_planning {
    struct sw_plan plan;
    enum sw_planning_step step;
    unsigned piece_bytes; /* of the sample */
    unsigned n_parts;     /* of the region, each of which has a sample of its own (sw_sample_part()) */
    bool takes_long;      /* learning takes milliseconds: use a thread that nothing else waits for */
    bool learns;          /* the caller can perform LEARN; it sets this after sw_planning_begin() */
    enum sw_value_type value_type;
    uint64_t raw_bytes;
    struct sw_frame_dictionary *dictionary;
};

/* Begins a plan for a region of raw_bytes. trains: the caller can perform PROBE and TRAIN. dictionary: room for one,
 * which the plan may borrow, so that codecs with a dictionary are tried, too: they shrink text more, and encode more
 * slowly; and slow codecs of numbers. NULL: they are left out. */
void sw_planning_begin(struct sw_planning *p, enum sw_value_type type, uint64_t raw_bytes, bool trains,
                       struct sw_frame_dictionary *dictionary);
/* Learns from the samples, one behind the other. */
void sw_planning_learn(struct sw_planning *p, const void *sample);
/* Ends the step PROBE. is_hopeless: training would be useless. */
void sw_planning_probed(struct sw_planning *p, bool is_hopeless);
/* Ends the step TRAIN. The arguments are as in sw_plan_init_trained(). */
void sw_planning_trained(struct sw_planning *p, const struct sw_params *params, size_t coded_bytes);
/* Returns the part of the region whose sample judges a dictionary: as good as all of it, but its pieces are others than
 * those that the dictionary is learned from. */
struct sw_sample_part sw_planning_judge(const struct sw_planning *p);
/* Ends the step LEARN. learned: as in sw_plan_refine(). sample: of sw_planning_judge(). */
void sw_planning_learned(struct sw_planning *p, void *learned, const void *sample);
/* Replaces the step LEARN by SAMPLE. */
void sw_planning_learn_on_host(struct sw_planning *p);

/* Performs all steps for a region in host memory, of any type. sample: room for SW_SAMPLE_MAX_BYTES. */
void sw_plan_make(struct sw_plan *ret, enum sw_value_type type, const void *region, uint64_t raw_bytes, void *sample);

#ifdef __cplusplus
}
#endif
#endif
