/* probe.h - decides when to try the path that was not chosen, to see whether it is faster by now.
 *
 * The time that a path takes is known from its last use, so rejected paths have to be tried again. One budget pays for
 * all of these probes: 1 % of the time that the chosen paths take. If the budget suffices for several probes, the one
 * made least recently goes first. Pure. All zero at the start. */
#ifndef SW_SPILL_PROBE_H
#define SW_SPILL_PROBE_H

#include <stdbool.h>

enum sw_probe {
    SW_PROBE_ENCODING, /* whether compressing pays */
    SW_PROBE_KERNELS,  /* how fast kernels are, where copy engines move raw chunks */
    SW_PROBE_DIRECT,   /* how fast copy engines are, where kernels move raw chunks */
    SW_PROBE_LINK,     /* how fast raw chunks are that have the link for themselves */
    SW_PROBE_NR
};

struct sw_probe_budget {
    double saved_s;
    unsigned n_asked;                               /* serves as a clock */
    unsigned asked[SW_PROBE_NR], made[SW_PROBE_NR]; /* the clock at the last question and the last probe */
};

/* Adds taken_s, the time of the step about to be done, to the budget. Returns true if this step should be the probe,
 * which costs cost_s more. */
bool sw_probe_is_due(struct sw_probe_budget *budget, enum sw_probe probe, double taken_s, double cost_s);

#endif
