/* link.c - limits how much is queued on the link to host memory at a time.
 *
 * What is queued there cannot be overtaken: a copy of 64 KiB behind the copies of all other slots waits for all of
 * them. So, beside other tenants, the next long copy is queued only when the one before is about to end, or both are
 * short. The link's measured rate says when this will be. While no rate has been measured, long copies go one by one.
 * Without a link nothing waits. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"

/* Steps up to this length never wait, and are not waited for: at most a group, or a short region. */
#define SHORT_BYTES ((uint64_t)1 << 20)
/* A copy is launched this long before the one ahead of it ends. */
#define EARLY_US 20u
/* Part of a chunk that may be queued. What waits there waits for kernels, too. */
#define PART 0.75

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Returns bytes per second; 0: not known. Both directions of a link have the same rate. */
static double rate_of(const struct sw_mover *m) {
    double rate = 0;
    for (int class = 0; class < SW_COST_CLASSES; class ++) {
        const struct sw_cost_class *costs = &m->planner.costs[class];
        rate = larger(rate, larger(sw_meter_rate(&costs->link_out), sw_meter_rate(&costs->direct_out)));
        rate = larger(rate, sw_meter_rate(&costs->direct_back));
    }
    return rate;
}

bool sw_link_has_room(struct sw_mover *m, unsigned link, const struct sw_run *run, uint64_t bytes) {
    const uint64_t free_us = m->links[link].free_us, now_us = sw_clock_us();
    const double rate = rate_of(m);
    if (!m->planner.has_link || bytes <= SHORT_BYTES || !sw_mover_has_neighbours(m, run))
        return true;
    if (rate <= 0)
        return m->links[link].n_running == 0;
    if (free_us <= now_us + EARLY_US)
        return true;
    const double most = (double)m->device->ops->info(m->device)->chunk_bytes * PART,
                 queued = (double)(free_us - now_us) / 1e6 * rate;
    if (queued + (double)bytes <= most)
        return true;
    sw_mover_look_at(m, free_us - EARLY_US);
    return false;
}

void sw_link_take(struct sw_mover *m, struct sw_slot *slot, unsigned link, uint64_t bytes) {
    const uint64_t now_us = sw_clock_us();
    const double rate = rate_of(m);
    struct sw_link *l = &m->links[link];
    l->free_us = l->free_us > now_us ? l->free_us : now_us;
    l->free_us += rate > 0 ? (uint64_t)((double)bytes / rate * 1e6) : 0;
    slot->link = l;
    slot->link_number = ++l->n_queued;
    l->n_running++;
}

void sw_link_ended(struct sw_slot *slot) {
    struct sw_link *link = slot->link;
    const uint64_t now_us = sw_clock_us();
    slot->link = NULL;
    if (!link)
        return;
    link->n_running--;
    if (link->n_queued == slot->link_number && link->free_us > now_us)
        link->free_us = now_us; /* it was the last one */
}
