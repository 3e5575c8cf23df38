#include "base/meter.h"

#define FADE 0.75
#define MOST_SLOWER 4 /* a sample counts as at most this many times slower than the rate so far */
#define MOST_TOGETHER 4

void sw_meter_begin(struct sw_meter *m, uint64_t now_us) {
    if (m->n_running++ == 0)
        m->since_us = now_us;
}

static void remember(struct sw_meter *m, double bytes, double us, unsigned n) {
    if (m->is_old || m->us <= 0) {
        m->bytes = bytes;
        m->us = us;
        m->is_old = false;
        return;
    }
    const double most_us = MOST_SLOWER * bytes * m->us / m->bytes;
    for (; n > 0; n--) {
        m->bytes *= FADE;
        m->us *= FADE;
    }
    m->bytes += bytes;
    m->us += us < most_us ? us : most_us;
}

/* Turns ended chunks into a sample. Chunks that run side by side may all end at once, at the very end: only together do
 * they show the stage's throughput. */
static void take_sample(struct sw_meter *m) {
    if (m->n_ended == 0 || (m->n_running > 0 && m->n_ended < MOST_TOGETHER))
        return;
    if (m->is_warm)
        remember(m, (double)m->ended_bytes, m->ended_us ? (double)m->ended_us : 1, m->n_ended);
    m->is_warm = true;
    m->n_ended = 0;
    m->ended_bytes = m->ended_us = 0;
}

void sw_meter_end(struct sw_meter *m, uint64_t now_us, uint64_t bytes) {
    const uint64_t us = now_us - m->since_us;
    m->n_running--;
    m->since_us = now_us;
    if (bytes) {
        m->n_ended++;
        m->ended_bytes += bytes;
        m->ended_us += us;
    }
    take_sample(m);
}

double sw_meter_rate(const struct sw_meter *m) {
    return m->us > 0 ? m->bytes / m->us * 1e6 : 0;
}

void sw_meter_age(struct sw_meter *m) {
    m->is_old = true;
}
