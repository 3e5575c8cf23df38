#include "spill/planner/probe.h"

#define PART 0.01 /* of the time: less than the noise between paths (cost.c) */
/* A probe that was not asked for in this many questions holds up no other probe. */
#define PATIENCE 16u

static bool waits_longer(const struct sw_probe_budget *b, int other, enum sw_probe probe) {
    return b->asked[other] > b->made[other] && b->n_asked - b->asked[other] < PATIENCE &&
           b->made[other] < b->made[probe];
}

bool sw_probe_is_due(struct sw_probe_budget *b, enum sw_probe probe, double taken_s, double cost_s) {
    b->saved_s += PART * taken_s;
    b->asked[probe] = ++b->n_asked;
    if (b->saved_s < cost_s)
        return false;
    for (int other = 0; other < SW_PROBE_NR; other++)
        if (waits_longer(b, other, probe))
            return false;
    b->saved_s = 0; /* not reduced by the cost: time that could not be spent is not spent at once later */
    b->made[probe] = b->n_asked;
    return true;
}
