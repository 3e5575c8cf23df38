/* dense.h - decides whether a run of bytes gets a plan by a codec with a dictionary, which is denser: it shrinks text
 * by a fifth to a half more than the usual one, takes up to twice as long to encode, and has to be learned, which takes
 * a GPU or a CPU milliseconds.
 *
 *   - For room: if that is preferred, or if the frames find no room where they would go raw. Without a link, also if
 *     they go to a tier behind memory.
 *   - For time, bytes only: if the frames go to a tier behind memory that is slower than the link, or to memory from a
 *     device that learns by itself, and the slowest stage gets faster by it. Then the dictionary is learned when the
 *     regions of a session, to memory those of a column, would have gained its price. A long region begins with the
 *     usual codec, and changes at a chunk once the dictionary is there. A short one waits for it, never longer than it
 *     and the ones before it would have gained.
 *   - Never for packs, since kernels cannot read these frames.
 *
 * An engine's process does not know where its frames go: all go to memory. Pure. */
#ifndef SW_SPILL_DENSE_H
#define SW_SPILL_DENSE_H

#include "spill/planner/planner.h"

enum sw_dense {
    SW_DENSE_NOT,   /* the run gets a usual plan */
    SW_DENSE_WAITS, /* it gets a kept plan that was made under this goal, or waits until such a plan is made */
    SW_DENSE_KEPT,  /* it gets a kept plan, and does not wait if that is to be made anew */
    SW_DENSE_LATER, /* it begins with a usual plan, and learns such a one meanwhile */
    SW_DENSE_COLUMN /* it gets the kept usual plan, or the denser one of the same column */
};
/* Decides for a run that begins. key: of its usual plans. COLUMN: *ret_gain_s is what it gains by a denser plan. */
enum sw_dense sw_dense_choose(struct sw_planner *p, uint64_t key, const struct sw_snapshot *now, double *ret_gain_s);
/* Returns how long learning takes. */
double sw_dense_learning_s(const struct sw_planner *p, uint64_t raw_bytes);
/* Decides for the rest of a run that was to learn a denser plan, or another one, while it goes on by this one. UNKNOWN:
 * its rates have not been measured yet. */
enum sw_dense_rest { SW_DENSE_REST_NOT, SW_DENSE_REST_UNKNOWN, SW_DENSE_REST_LEARNS };
enum sw_dense_rest sw_dense_ask_rest(struct sw_planner *p, uint64_t key, const struct sw_workload *rest,
                                     const struct sw_plan *plan);
/* Returns true if a plan of this key and length is kept. */
bool sw_dense_is_kept(const struct sw_planner *p, uint64_t key, uint64_t raw_bytes);
/* Returns true if a denser plan saves time on these bytes over the usual one. */
bool sw_dense_pays(struct sw_planner *p, const struct sw_workload *what, const struct sw_plan *usual,
                   const struct sw_plan *dense);

#endif
