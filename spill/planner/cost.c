#include "spill/planner/cost.h"

#include "spill/planner/contention.h"

#define MIN_RATIO 1.05 /* as for plans: a smaller gain is not worth the decoder's work */
#define CLEARLY 1.25
#define SELDOM 0.1 /* of a region's time: even a probe that costs nothing is made for at most one region in ten */
#define MIN_BYTES_LOG2 18
/* Factor for having all slots, where one of several buffers has a share. A guess, so a low one: a GPU that shares its
 * units with others gains nothing from several chunks at a time. */
#define WITH_ALL_SLOTS 1.5
#define MOST_CHUNKS_SHARED 4
const char *sw_cost_reason_text(enum sw_cost_reason reason) {
    static const char *const texts[SW_COST_REASON_NR] = {
        [SW_COST_UNKNOWN] = "rates not measured yet",
        [SW_COST_PAYS] = "pays",
        [SW_COST_NO_GAIN] = "does not shrink",
        [SW_COST_ENCODER] = "encoder slower than raw",
        [SW_COST_DECODER] = "decoder slower than raw",
        [SW_COST_SHORT] = "too short to judge",
        [SW_COST_ROOM] = "saves room",
        [SW_COST_RETRY] = "tried again",
        [SW_COST_PARTIAL] = "partially compressed",
        [SW_COST_CLIENT] = "encoded by the client",
    };
    return texts[reason];
}

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

/* ---- the choice ---- */

/* Returns true if the spill, and spill and restore together, take hardly longer than raw. */
static bool pays(const struct sw_cost_time *raw, const struct sw_cost_time *coded) {
    return coded->out_s <= SW_COST_TOLERANCE * raw->out_s &&
           sw_cost_round_trip_s(coded) <= SW_COST_TOLERANCE * sw_cost_round_trip_s(raw);
}

static enum sw_cost_reason evaluate(const struct sw_cost_question *q, struct sw_cost_answer *a) {
    struct sw_cost_time *raw = &a->times[SW_CODEC_RAW], *coded = &a->times[q->codec];
    *raw = sw_cost_raw_time_of(q, &a->direct);
    if (q->expected_ratio < MIN_RATIO)
        return SW_COST_NO_GAIN;
    if (q->raw_bytes < SW_COST_MIN_BYTES)
        return SW_COST_SHORT;
    if (!sw_cost_knows_out(q))
        return SW_COST_UNKNOWN;
    *coded = sw_cost_time_of(q, q->codec);
    if (q->is_beside_data)
        return SW_COST_PAYS;
    struct sw_cost_time mixed;
    if (sw_contention_pays_partially(q, raw, coded, pays(raw, coded), &mixed)) {
        *coded = mixed;
        return SW_COST_PARTIAL;
    }
    if (pays(raw, coded))
        return SW_COST_PAYS;
    if (q->room_is_short)
        return SW_COST_ROOM;
    return coded->out_s > SW_COST_TOLERANCE * raw->out_s ? SW_COST_ENCODER : SW_COST_DECODER;
}

bool sw_cost_is_quicker(const struct sw_cost_question *other, const struct sw_cost_question *q) {
    if (!sw_cost_knows_out(q))
        return false;
    struct sw_cost_time a = sw_cost_time_of(q, q->codec), b = sw_cost_time_of(other, other->codec);
    if (!sw_cost_knows_back(q) || !sw_cost_knows_back(other))
        a.back_s = b.back_s = 0;
    return SW_COST_TOLERANCE * sw_cost_round_trip_s(&b) < sw_cost_round_trip_s(&a);
}

static bool stays_raw(enum sw_cost_reason reason) {
    return reason == SW_COST_NO_GAIN || reason == SW_COST_ENCODER || reason == SW_COST_DECODER;
}

void sw_cost_choose(const struct sw_cost_question *question, struct sw_cost_answer *ret) {
    *ret = (struct sw_cost_answer){0};
    ret->reason = evaluate(question, ret);
    ret->codec = stays_raw(ret->reason) ? SW_CODEC_RAW : question->codec;
}

bool sw_cost_stops_paying(const struct sw_cost_question *q, struct sw_cost_answer *ret) {
    sw_cost_choose(q, ret);
    if (ret->reason != SW_COST_PARTIAL && ret->reason != SW_COST_ENCODER)
        return false;
    const double other_s = ret->times[ret->reason == SW_COST_PARTIAL ? q->codec : SW_CODEC_RAW].out_s;
    return sw_cost_time_of(q, q->codec).out_s > CLEARLY * other_s;
}

/* Returns true if compressing makes up for the plan's time, too. */
static bool plan_pays(const struct sw_cost_question *q, const struct sw_cost_answer *a) {
    const double raw = (double)q->raw_bytes, raw_s = a->times[SW_CODEC_RAW].out_s;
    if (q->is_beside_data)
        return q->plan_s <= sw_cost_stage_s(raw - raw / q->expected_ratio, q->rates.link_out);
    const double tolerance =
        a->reason == SW_COST_PAYS ? SW_COST_TOLERANCE : 1; /* partial compression only saves time */
    return a->times[q->codec].out_s + q->plan_s <= tolerance * raw_s;
}

bool sw_cost_is_hopeless(const struct sw_cost_question *q, struct sw_cost_answer *ret) {
    sw_cost_choose(q, ret);
    if (q->room_is_short)
        return false;
    if ((ret->reason == SW_COST_PAYS || ret->reason == SW_COST_PARTIAL) && !plan_pays(q, ret)) {
        ret->reason = SW_COST_ENCODER;
        ret->codec = SW_CODEC_RAW;
    }
    return ret->reason == SW_COST_ENCODER || ret->reason == SW_COST_DECODER || ret->reason == SW_COST_NO_GAIN;
}

bool sw_cost_restores_directly(const struct sw_cost_rates *rates) {
    return rates->restore[SW_CODEC_RAW] > 0 &&
           sw_cost_direct_back_rate(rates) > SW_COST_TOLERANCE * rates->restore[SW_CODEC_RAW];
}

/* ---- classes ---- */

int sw_cost_class(uint64_t chunk_bytes) {
    int class = -1;
    while (class + 1 < SW_COST_CLASSES && chunk_bytes >> (MIN_BYTES_LOG2 + class + 1) > 0)
        class ++;
    return class;
}

void sw_cost_class_rates(const struct sw_cost_class *c, struct sw_cost_rates *ret) {
    ret->direct_out = sw_meter_rate(&c->direct_out);
    /* Frames that cross beside direct copies only get their share of the link. */
    ret->link_out = larger(sw_meter_rate(&c->link_out), ret->direct_out);
    ret->direct_back = sw_meter_rate(&c->direct_back);
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        ret->encode[codec] = sw_meter_rate(&c->encode[codec]);
        ret->restore[codec] = sw_meter_rate(&c->restore[codec]);
    }
}

void sw_cost_share_slots(struct sw_cost_question *q) {
    if (q->codec == SW_CODEC_RAW)
        return;
    q->rates.encode[q->codec] *= WITH_ALL_SLOTS;
    q->rates.restore[q->codec] *= WITH_ALL_SLOTS;
}

bool sw_cost_probe_encoding(struct sw_cost_class *c, const struct sw_cost_question *q, const struct sw_cost_answer *a) {
    const double raw_s = sw_cost_round_trip_s(&a->times[SW_CODEC_RAW]),
                 coded_s = sw_cost_round_trip_s(&a->times[q->codec]);
    double extra_s = q->plan_s;
    const double n_tried = sw_contention_probes_partially(q, a->reason == SW_COST_ENCODER) ? q->n_slots - 1 : 1;
    if (coded_s > raw_s)
        extra_s += n_tried * (coded_s - raw_s) / (double)(q->n_chunks ? q->n_chunks : 1);
    if (!sw_probe_is_due(&c->probes, SW_PROBE_ENCODING, raw_s, extra_s))
        return false;
    sw_meter_age(&c->encode[q->codec]);
    sw_meter_age(&c->restore[q->codec]);
    return true;
}

bool sw_cost_probe_kernels_out(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes) {
    const double bytes = (double)raw_bytes;
    struct sw_cost_rates r;
    sw_cost_class_rates(c, &r);
    return sw_probe_is_due(&c->probes, SW_PROBE_KERNELS,
                           sw_cost_stage_s((double)direct_bytes, sw_cost_direct_out_rate(&r)),
                           sw_cost_stage_s(bytes, r.encode[SW_CODEC_RAW]) + sw_cost_stage_s(bytes, r.link_out));
}

bool sw_cost_probe_kernels_back(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes) {
    struct sw_cost_rates r;
    sw_cost_class_rates(c, &r);
    return sw_probe_is_due(&c->probes, SW_PROBE_KERNELS,
                           sw_cost_stage_s((double)direct_bytes, sw_cost_direct_back_rate(&r)),
                           sw_cost_stage_s((double)raw_bytes, r.restore[SW_CODEC_RAW]));
}

bool sw_cost_probe_direct_back(struct sw_cost_class *c, uint64_t region_bytes) {
    const double bytes = (double)region_bytes;
    struct sw_cost_rates r;
    sw_cost_class_rates(c, &r);
    const double kernels_s = sw_cost_stage_s(bytes, r.restore[SW_CODEC_RAW]),
                 direct_s = sw_cost_stage_s(bytes, sw_cost_direct_back_rate(&r));
    if (kernels_s <= 0 ||
        !sw_probe_is_due(&c->probes, SW_PROBE_DIRECT, kernels_s, larger(direct_s - kernels_s, SELDOM * kernels_s)))
        return false;
    sw_meter_age(&c->direct_back);
    return true;
}

/* ---- direct steps ---- */

static bool is_for_cpu(const struct sw_cost_direct *region) {
    return region->is_back ? region->raw_bytes <= SW_COST_KERNEL_LINK_BYTES : !sw_cost_is_long(region->raw_bytes);
}

/* Each slot gets the same number of steps of about one length: a short step at the end would wait for its kernel alone.
 * On the spill path, chunks that the CPU hashes go one by one: the CPU seals one while the next is copied. On the
 * restore path the CPU hashes chunks while others are copied. */
unsigned sw_cost_direct_chunks(const struct sw_cost_direct *region) {
    const size_t most = region->is_alone ? SW_COST_STEP_MOST_CHUNKS : MOST_CHUNKS_SHARED;
    if (region->has_neighbours)
        return 1;
    if (region->is_mixed)
        return (unsigned)sw_contention_step_chunks(region->n_chunks, region->raw_bytes, most);
    if (is_for_cpu(region) && !region->is_back)
        return 1;
    const size_t n_rounds = divide_up(region->n_chunks, most * region->n_slots);
    return (unsigned)divide_up(region->n_chunks, n_rounds * region->n_slots);
}

/* On the restore path a kernel can only hash bytes that have arrived. To avoid waiting for the kernel, the CPU hashes
 * the chunks that arrive after its launch, at their source. It does not hash more: the 16 CPUs of that host read 92
 * GB/s together, of which the copies take 55. */
unsigned sw_cost_chunks_by_cpu(const struct sw_cost_direct *region, size_t first, unsigned n) {
    if (is_for_cpu(region))
        return n;
    if (!region->is_back)
        return 0;
    const size_t behind = region->n_chunks - first - n,
                 at_end = divide_up(region->n_chunks * SW_COST_KERNEL_LINK_BYTES, region->raw_bytes);
    if (at_end <= behind)
        return 0;
    return at_end - behind < n ? (unsigned)(at_end - behind) : n;
}
