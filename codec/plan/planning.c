#include "codec/plan/planning.h"

#include "base/assert.h"

static void want_sample(struct sw_planning *p, unsigned piece_bytes) {
    p->step = SW_PLANNING_SAMPLE;
    p->piece_bytes = piece_bytes;
    p->n_parts = 1;
}

void sw_planning_begin(struct sw_planning *p, enum sw_value_type type, uint64_t raw_bytes, bool trains,
                       struct sw_frame_dictionary *dictionary) {
    sw_plan_init_raw(&p->plan);
    p->step = SW_PLANNING_DONE;
    p->takes_long = type != SW_VALUE_NONE && dictionary;
    p->learns = false;
    p->value_type = type;
    p->raw_bytes = raw_bytes;
    p->dictionary = dictionary;
    if (!raw_bytes)
        return;
    want_sample(p, type == SW_VALUE_NONE ? SW_SAMPLE_SHORT_PIECE_BYTES : SW_SAMPLE_LONG_PIECE_BYTES);
    if (type == SW_VALUE_NONE && trains)
        p->step = SW_PLANNING_PROBE;
}

/* Goes on after there is a plan for bytes. */
static void end_or_refine(struct sw_planning *p) {
    p->step = SW_PLANNING_DONE;
    if (!sw_plan_may_refine(&p->plan, p->dictionary != NULL))
        return;
    const bool learns = p->dictionary && p->learns && p->plan.codec != SW_CODEC_RAW;
    want_sample(p, SW_SAMPLE_LONG_PIECE_BYTES);
    if (p->dictionary)
        p->n_parts = sw_sample_parts(p->raw_bytes, learns ? SW_SAMPLE_MOST_GPU_PARTS : SW_SAMPLE_MOST_PARTS);
    if (learns)
        p->step = SW_PLANNING_LEARN;
    p->takes_long = true;
}

void sw_planning_learn(struct sw_planning *p, const void *sample) {
    const size_t bytes = p->n_parts * sw_sample_bytes(p->raw_bytes); /* of parts, each is as long as the longest */
    SW_ASSERT(p->step == SW_PLANNING_SAMPLE);
    if (p->value_type == SW_VALUE_NONE && p->piece_bytes == SW_SAMPLE_SHORT_PIECE_BYTES) {
        sw_plan_init(&p->plan, sample, bytes, p->raw_bytes);
        end_or_refine(p);
        return;
    }
    p->plan.raw_bytes = p->raw_bytes;
    if (p->value_type == SW_VALUE_NONE)
        sw_plan_refine(&p->plan, sample, bytes, p->dictionary, NULL);
    else
        sw_plan_init_typed(&p->plan, p->value_type, sample, bytes, p->raw_bytes);
    if (p->value_type != SW_VALUE_NONE && p->dictionary)
        sw_plan_try_slow(&p->plan, p->value_type, sample, bytes, p->raw_bytes);
    p->step = SW_PLANNING_DONE;
}

void sw_planning_probed(struct sw_planning *p, bool is_hopeless) {
    SW_ASSERT(p->step == SW_PLANNING_PROBE);
    p->step = is_hopeless ? SW_PLANNING_DONE : SW_PLANNING_TRAIN;
}

void sw_planning_trained(struct sw_planning *p, const struct sw_params *params, size_t coded_bytes) {
    SW_ASSERT(p->step == SW_PLANNING_TRAIN);
    sw_plan_init_trained(&p->plan, params, coded_bytes, sw_sample_bytes(p->raw_bytes), p->raw_bytes);
    end_or_refine(p);
}

struct sw_sample_part sw_planning_judge(const struct sw_planning *p) {
    /* The sample of the only part is that of the region. */
    const uint64_t offset = p->n_parts > 1 ? 0 : p->raw_bytes / 8 / 16 * 16;
    return (struct sw_sample_part){.offset = offset, .bytes = p->raw_bytes - offset};
}

void sw_planning_learned(struct sw_planning *p, void *learned, const void *sample) {
    SW_ASSERT(p->step == SW_PLANNING_LEARN);
    sw_plan_refine(&p->plan, sample, sw_sample_bytes(sw_planning_judge(p).bytes), p->dictionary, learned);
    p->step = SW_PLANNING_DONE;
}

void sw_planning_learn_on_host(struct sw_planning *p) {
    SW_ASSERT(p->step == SW_PLANNING_LEARN);
    p->learns = false;
    end_or_refine(p);
}

void sw_plan_make(struct sw_plan *ret, enum sw_value_type type, const void *region, uint64_t raw_bytes, void *sample) {
    struct sw_planning p;
    sw_planning_begin(&p, type, raw_bytes, false, NULL);
    while (p.step != SW_PLANNING_DONE) {
        (void)sw_sample_gather(sample, region, raw_bytes, p.piece_bytes);
        sw_planning_learn(&p, sample);
    }
    *ret = p.plan;
}
