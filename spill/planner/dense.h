/* dense.h - decides whether a run of bytes gets a plan by a codec with a dictionary, which is denser: it shrinks text
 * by a fifth to a half more than the usual one, takes twice as long to encode, and milliseconds of a CPU to learn.
 *
 *   - For room: if that is preferred, or if the frames find no room where they would go raw. Without a link, also if
 *     they go to a tier behind memory.
 *   - For time, bytes only: if the frames go to a tier behind memory, and the slowest stage gets faster by it. Then the
 *     dictionary is learned when the regions of a session would have gained its price. So a region never waits for it
 *     longer than this region and the ones before it would have gained.
 *   - Never for packs, since kernels cannot read these frames, and never in an engine's process, which does not know
 *     where its frames go.
 *
 * Memory behind a link of tens of GB/s keeps the usual codec, and so does a tier as fast as the link: no measurement
 * shows a gain there yet. Pure. */
#ifndef SW_SPILL_DENSE_H
#define SW_SPILL_DENSE_H

#include "spill/planner/planner.h"

/* Returns true if the run that begins gets such a plan, or a kept plan that was made under this goal. key: of its usual
 * plans. */
bool sw_dense_is_wanted(struct sw_planner *p, uint64_t key, const struct sw_snapshot *now);

#endif
