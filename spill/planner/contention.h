/* contention.h - what is done beside other processes' kernels, with which ours have the GPU in turn.
 *
 * All that exists for that alone is here, so that it can go as a whole.
 *
 * In part: where the encoder cannot keep up with the link a long region may be compressed in part. The encoder takes
 * what it can, and the link, which would stand still in between, the rest as it is. That takes less time than raw also
 * where compressing all of it would take more, but for what is still being encoded at the end.
 *
 * Stakes: bytes that no kept plan suits may be another column's. To try the next plan, or to make a new one, takes
 * turns of the GPU, so it is done for a small part of what it may win. Pure. */
#ifndef SW_SPILL_CONTENTION_H
#define SW_SPILL_CONTENTION_H

#include "base/meter.h"
#include "spill/planner/probe.h"
#include "spill/planner/times.h"
#include <stddef.h>

/* Chunks of a direct step beside others that are encoded: a kernel's time. With more of them frames would wait too long
 * for the link. */
size_t sw_contention_step_chunks(size_t n_chunks, uint64_t raw_bytes, size_t most);
/* True if chunks of it may go directly beside others that slots look at or encode: there are enough for all slots. */
bool sw_contention_can_go_in_part(const struct sw_cost_question *q);
/* True if that saves time over raw and over compressing all of it, coded, should that pay: *ret is what it takes. */
bool sw_contention_pays_in_part(const struct sw_cost_question *q, const struct sw_cost_time *raw,
                                const struct sw_cost_time *coded, bool coded_pays, struct sw_cost_time *ret);
/* True if a probe of the encoder is made in part, so that several encoders at once show their rate: one alone beside a
 * busy GPU shows how long a turn takes. Only if it is the encoder that was too slow. */
bool sw_contention_probes_in_part(const struct sw_cost_question *q, bool encoder_is_slow);
/* Of a region that pays in part: true if it should go directly as a whole all the same, so that what that takes stays
 * known: beside compressed chunks it cannot be measured. direct_out: that rate, which is forgotten then. */
bool sw_contention_probes_link(struct sw_probe_budget *budget, struct sw_meter *direct_out, double in_part_s,
                               double raw_s);

/* Of the plans of one key (plan_cache.h). All zero at the start. */
struct sw_stakes {
    double saved_s;    /* time that may be lost by tries that hardly ever win anything */
    unsigned n_doubts; /* regions that no plan suited, as far as they are counted */
    double forgone;    /* what they have lost since the last plan was made, in prices of one */
    unsigned n_wasted; /* plans that have lately gone before they were worth anything */
};

/* Whether to try another plan for bytes that look as if nothing shrank them, which costs cost_s and wins prize_s if
 * they are another column's: for a hundredth of what could be won, and for what has been won. */
bool sw_stakes_cover(struct sw_stakes *stakes, double cost_s, double prize_s);
/* Such a try has won. */
void sw_stakes_won(struct sw_stakes *stakes, double prize_s);
/* No plan suits a region, which loses `part` of a plan's price by that. True: one is to be made, since as much as that
 * has been lost (more, if the last ones were soon in the way of others), or, if compressing pays, but a few regions
 * have been in doubt. */
bool sw_stakes_forgo(struct sw_stakes *stakes, bool pays, double part);
/* A plan has been made; one has gone before it was worth anything; one has been worth what a new one costs. */
void sw_stakes_planned(struct sw_stakes *stakes);
void sw_stakes_wasted(struct sw_stakes *stakes);
void sw_stakes_earned(struct sw_stakes *stakes);

#endif
