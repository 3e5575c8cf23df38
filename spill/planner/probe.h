/* probe.h - looking now and then whether the way that was not taken would be the better one by now.
 *
 * What a way takes is known from when it was taken last, so ways that were turned away have to be tried again. One
 * budget pays for all of these probes: 1 % of the time that the ways chosen take. When it suffices for several, the
 * probe goes first that was made least recently. Pure. All zero at the start. */
#ifndef SW_SPILL_PROBE_H
#define SW_SPILL_PROBE_H

#include <stdbool.h>

enum sw_probe {
    SW_PROBE_ENCODING, /* whether compressing pays */
    SW_PROBE_KERNELS,  /* how fast kernels are, where raw chunks go by copy engines */
    SW_PROBE_DIRECT,   /* how fast copy engines are, where raw chunks go by kernels */
    SW_PROBE_LINK,     /* how fast raw chunks go that have the link for themselves */
    SW_PROBE_NR
};

struct sw_probe_budget {
    double saved_s;
    unsigned n_asked;                               /* a clock */
    unsigned asked[SW_PROBE_NR], made[SW_PROBE_NR]; /* the last time, by it */
};

/* Something is about to be done that takes taken_s. True: the probe is to be made with it, which costs cost_s more. */
bool sw_probe_is_due(struct sw_probe_budget *budget, enum sw_probe probe, double taken_s, double cost_s);

#endif
