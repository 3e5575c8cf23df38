/* contention.h - what the planner does only beside other processes' kernels, which take turns with ours on the GPU.
 *
 * Everything with this one purpose is in this file, so that it can be removed as a whole.
 *
 * Partial compression: if the encoder is slower than the link, a long region may be compressed partially. The encoder
 * takes the chunks that it can, and the link, which would be idle meanwhile, moves others raw. This takes less time
 * than raw, even where compressing all of the region would take more. Only the chunks that are still being encoded at
 * the end are waited for.
 *
 * Replanning: bytes that match no kept plan may belong to another column. Trying the next plan, or making a new one,
 * takes turns of the GPU, so it may only cost a small part of what it may gain. Pure. */
#ifndef SW_SPILL_CONTENTION_H
#define SW_SPILL_CONTENTION_H

#include "base/meter.h"
#include "spill/planner/probe.h"
#include "spill/planner/times.h"
#include <stddef.h>

/* Returns the number of chunks of a direct step beside chunks that are encoded: as many as take one kernel's time. With
 * more, frames would wait too long for the link. */
size_t sw_contention_step_chunks(size_t n_chunks, uint64_t raw_bytes, size_t most);
/* Returns true if some chunks can go directly while slots sample or encode others: there are enough chunks for all
 * slots. */
bool sw_contention_can_compress_partially(const struct sw_cost_question *q);
/* Returns true if partial compression saves time over raw, and over compressing everything (`coded`) where this pays.
 * *ret is the time it takes. */
bool sw_contention_pays_partially(const struct sw_cost_question *q, const struct sw_cost_time *raw,
                                  const struct sw_cost_time *coded, bool coded_pays, struct sw_cost_time *ret);
/* Returns true if a probe of the encoder should compress partially, so that several encoders show their rate at once: a
 * single one beside a busy GPU only shows how long a turn takes. Only if the encoder was too slow. */
bool sw_contention_probes_partially(const struct sw_cost_question *q, bool encoder_is_slow);
/* Returns true if a region that pays partially compressed should go directly as a whole, because the direct rate cannot
 * be measured beside compressed chunks. Then forgets direct_out, the old rate. */
bool sw_contention_probes_link(struct sw_probe_budget *budget, struct sw_meter *direct_out, double partial_s,
                               double raw_s);

/* The replanning budget of one key's plans (plan_cache.h). All zero at the start. */
struct sw_replan_budget {
    double saved_s;        /* time that may be spent on tries that hardly ever gain anything */
    unsigned n_mismatches; /* regions that matched no plan, counted up to a limit */
    double regret;         /* time lost since the last plan was made, in prices of a plan */
    unsigned n_wasted;     /* plans that were recently dropped before they were worth their price */
};

/* Returns true if another plan should be tried for bytes that look incompressible. The try costs cost_s and gains
 * gain_s if the bytes are another column's. It may cost a hundredth of the possible gains, and what earlier tries have
 * gained. */
bool sw_replan_may_try(struct sw_replan_budget *budget, double cost_s, double gain_s);
/* Reports that a try has gained time. */
void sw_replan_try_won(struct sw_replan_budget *budget, double gain_s);
/* Adds the loss of a region that matches no plan: `part` of a plan's price. Returns true if a plan should be made: the
 * losses have reached a plan's price (more, if recent plans were soon dropped), or compressing pays and only a few
 * regions have mismatched. */
bool sw_replan_add_regret(struct sw_replan_budget *budget, bool pays, double part);
/* Reports that a plan was made; that a plan was dropped before it was worth its price; that a plan was worth its price.
 */
void sw_replan_planned(struct sw_replan_budget *budget);
void sw_replan_plan_wasted(struct sw_replan_budget *budget);
void sw_replan_plan_paid(struct sw_replan_budget *budget);

#endif
