#include "spill/meter.h"

#define FADE 0.75
#define MOST_SLOWER 4 /* than before, of a single one */

void sw_meter_begin(struct sw_meter *m, uint64_t now_us) {
    if (m->n_running++ == 0)
        m->since_us = now_us;
}

static void remember(struct sw_meter *m, double bytes, double us) {
    if (m->is_old || m->us <= 0) {
        m->bytes = bytes;
        m->us = us;
        m->is_old = false;
        return;
    }
    const double most_us = MOST_SLOWER * bytes * m->us / m->bytes;
    m->bytes = FADE * m->bytes + bytes;
    m->us = FADE * m->us + (us < most_us ? us : most_us);
}

void sw_meter_end(struct sw_meter *m, uint64_t now_us, uint64_t bytes) {
    const uint64_t us = now_us - m->since_us;
    m->n_running--;
    m->since_us = now_us;
    if (!bytes)
        return;
    if (m->is_warm)
        remember(m, (double)bytes, us ? (double)us : 1);
    m->is_warm = true;
}

double sw_meter_rate(const struct sw_meter *m) {
    return m->us > 0 ? m->bytes / m->us * 1e6 : 0;
}

void sw_meter_age(struct sw_meter *m) {
    m->is_old = true;
}
