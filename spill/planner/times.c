#include "spill/planner/times.h"

double sw_cost_stage_s(double bytes, double rate) {
    return rate > 0 ? bytes / rate : 0;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* Returns the time of the slowest stage, plus the first chunk's time in the other stages. */
static double overlapped_s(double a, double b, double c, uint64_t n_chunks) {
    const double slowest = larger(a, larger(b, c));
    return slowest + (a + b + c - slowest) / (double)(n_chunks ? n_chunks : 1);
}

bool sw_cost_knows_out(const struct sw_cost_question *q) {
    return q->rates.encode[q->codec] > 0 && q->rates.link_out > 0 && (!q->to_disk || q->rates.disk_write > 0);
}

bool sw_cost_knows_back(const struct sw_cost_question *q) {
    const struct sw_cost_rates *r = &q->rates;
    return r->restore[q->codec] > 0 && (r->restore[SW_CODEC_RAW] > 0 || r->direct_back > 0) &&
           (!q->to_disk || r->disk_read > 0);
}

struct sw_cost_time sw_cost_time_of(const struct sw_cost_question *q, enum sw_codec_id codec) {
    const struct sw_cost_rates *r = &q->rates;
    const double raw = (double)q->raw_bytes, stored = codec == SW_CODEC_RAW ? raw : raw / q->expected_ratio;
    struct sw_cost_time time = {0};
    time.out_s = overlapped_s(sw_cost_stage_s(raw, r->encode[codec]), sw_cost_stage_s(stored, r->link_out),
                              q->to_disk ? sw_cost_stage_s(stored, r->disk_write) : 0, q->n_chunks);
    if (sw_cost_knows_back(q))
        time.back_s = overlapped_s(sw_cost_stage_s(raw, r->restore[codec]),
                                   q->to_disk ? sw_cost_stage_s(stored, r->disk_read) : 0, 0, q->n_chunks);
    return time;
}

double sw_cost_direct_out_rate(const struct sw_cost_rates *r) {
    return r->direct_out > 0 ? r->direct_out : r->link_out;
}

double sw_cost_direct_back_rate(const struct sw_cost_rates *r) {
    return r->direct_back > 0 ? r->direct_back : r->link_out;
}

/* Returns the time of a raw region whose bytes only copy engines move. */
static struct sw_cost_time direct_time_of(const struct sw_cost_question *q) {
    const struct sw_cost_rates *r = &q->rates;
    const double raw = (double)q->raw_bytes, out = sw_cost_direct_out_rate(r), back = sw_cost_direct_back_rate(r);
    struct sw_cost_time time = {0};
    time.out_s =
        overlapped_s(sw_cost_stage_s(raw, out), q->to_disk ? sw_cost_stage_s(raw, r->disk_write) : 0, 0, q->n_chunks);
    if (sw_cost_knows_back(q))
        time.back_s = overlapped_s(sw_cost_stage_s(raw, back), q->to_disk ? sw_cost_stage_s(raw, r->disk_read) : 0, 0,
                                   q->n_chunks);
    return time;
}

bool sw_cost_is_long(uint64_t region_bytes) {
    return region_bytes > SW_COST_KERNEL_CPU_BYTES;
}

struct sw_cost_time sw_cost_raw_time_of(const struct sw_cost_question *q, bool *ret_direct) {
    struct sw_cost_time time = sw_cost_time_of(q, SW_CODEC_RAW);
    const struct sw_cost_time direct = direct_time_of(q);
    *ret_direct =
        sw_cost_is_long(q->raw_bytes) || (q->rates.link_out > 0 && time.out_s > SW_COST_TOLERANCE * direct.out_s);
    if (*ret_direct)
        time.out_s = direct.out_s;
    if (sw_cost_is_long(q->raw_bytes) || q->rates.restore[SW_CODEC_RAW] <= 0 || time.back_s > direct.back_s)
        time.back_s = direct.back_s;
    return time;
}
