#include "spill/planner/cost.h"

#define MIN_RATIO 1.05 /* as for plans: less is not worth a decoder's work */
#define TOLERANCE 1.03
#define CLEARLY 1.25
#define RETRY_PART 0.01        /* of the time, for looking again: well within TOLERANCE */
#define SELDOM 0.1             /* of a region's time: what costs nothing is not done for more than one in ten either */
#define LINK_RETRY_PART 0.0025 /* the same for the link, whose rate seldom changes */
#define MIN_BYTES_LOG2 18
/* For all slots, of which a buffer of several has some. A guess, so a low one: a GPU that shares its units with others
 * makes no more of several chunks at a time than of one. */
#define WITH_ALL_SLOTS 1.5
/* Beside a busy GPU a kernel takes 2.1 ms from its launch to its end, however little it hashes (H200). In that time the
 * link brings 115 MB, and copies whose bytes the CPU hashes 84. */
#define KERNEL_LINK_BYTES ((uint64_t)115000000)
#define KERNEL_CPU_BYTES ((uint64_t)84000000)
/* A step keeps its slot, and the link, for longer than others would like to wait: 16 chunks of 26 MiB are 8 ms. */
#define MOST_CHUNKS 16
#define MOST_CHUNKS_SHARED 4
/* A region that is compressed in part. A slot encodes about half of the time: its frame waits in line among the raw
 * chunks on the link. At the end some chunks that are being encoded are waited for. */
#define MIXED_LEAST_CHUNKS 16
#define MIXED_ENCODING 0.5
#define MIXED_LAST_CHUNKS 1

const char *sw_cost_reason_text(enum sw_cost_reason reason) {
    static const char *const texts[SW_COST_REASON_NR] = {
        [SW_COST_UNKNOWN] = "rates not measured yet",
        [SW_COST_PAYS] = "pays",
        [SW_COST_NO_GAIN] = "does not shrink",
        [SW_COST_ENCODER] = "encoder slower than raw",
        [SW_COST_DECODER] = "decoder slower than raw",
        [SW_COST_SHORT] = "too short to tell",
        [SW_COST_ROOM] = "saves room",
        [SW_COST_RETRY] = "tried again",
        [SW_COST_IN_PART] = "pays in part",
    };
    return texts[reason];
}

/* ---- times ---- */

/* A stage that is not known takes no time. */
static double stage_s(double bytes, double rate) {
    return rate > 0 ? bytes / rate : 0;
}

static double larger(double a, double b) {
    return a > b ? a : b;
}

static size_t divide_up(size_t a, size_t b) {
    return (a + b - 1) / b;
}

/* The slowest stage, and of the others what the first chunk takes. */
static double overlapped_s(double a, double b, double c, uint64_t n_chunks) {
    const double slowest = larger(a, larger(b, c));
    return slowest + (a + b + c - slowest) / (double)(n_chunks ? n_chunks : 1);
}

static bool knows_out(const struct sw_cost_question *q) {
    return q->rates.encode[q->codec] > 0 && q->rates.link_out > 0 && (!q->to_disk || q->rates.disk_write > 0);
}

static bool knows_back(const struct sw_cost_question *q) {
    const struct sw_cost_rates *r = &q->rates;
    return r->restore[q->codec] > 0 && (r->restore[SW_CODEC_RAW] > 0 || r->direct_back > 0) &&
           (!q->to_disk || r->disk_read > 0);
}

static struct sw_cost_time time_of(const struct sw_cost_question *q, enum sw_codec_id codec) {
    const struct sw_cost_rates *r = &q->rates;
    const double raw = (double)q->raw_bytes, stored = codec == SW_CODEC_RAW ? raw : raw / q->expected_ratio;
    struct sw_cost_time time = {0};
    time.out_s = overlapped_s(stage_s(raw, r->encode[codec]), stage_s(stored, r->link_out),
                              q->to_disk ? stage_s(stored, r->disk_write) : 0, q->n_chunks);
    if (knows_back(q))
        time.back_s = overlapped_s(stage_s(raw, r->restore[codec]), q->to_disk ? stage_s(stored, r->disk_read) : 0, 0,
                                   q->n_chunks);
    return time;
}

/* Until the direct way has been measured. */
static double direct_out_rate(const struct sw_cost_rates *r) {
    return r->direct_out > 0 ? r->direct_out : r->link_out;
}

static double direct_back_rate(const struct sw_cost_rates *r) {
    return r->direct_back > 0 ? r->direct_back : r->link_out;
}

/* Of a raw region whose bytes are moved by copy engines alone. */
static struct sw_cost_time direct_time_of(const struct sw_cost_question *q) {
    const struct sw_cost_rates *r = &q->rates;
    const double raw = (double)q->raw_bytes, out = direct_out_rate(r), back = direct_back_rate(r);
    struct sw_cost_time time = {0};
    time.out_s = overlapped_s(stage_s(raw, out), q->to_disk ? stage_s(raw, r->disk_write) : 0, 0, q->n_chunks);
    if (knows_back(q))
        time.back_s = overlapped_s(stage_s(raw, back), q->to_disk ? stage_s(raw, r->disk_read) : 0, 0, q->n_chunks);
    return time;
}

bool sw_cost_is_long(uint64_t region_bytes) {
    return region_bytes > KERNEL_CPU_BYTES;
}

/* Raw, by the better way. What comes back chooses anew. */
static struct sw_cost_time raw_time_of(const struct sw_cost_question *q, bool *ret_direct) {
    struct sw_cost_time time = time_of(q, SW_CODEC_RAW);
    const struct sw_cost_time direct = direct_time_of(q);
    *ret_direct = sw_cost_is_long(q->raw_bytes) || (q->rates.link_out > 0 && time.out_s > TOLERANCE * direct.out_s);
    if (*ret_direct)
        time.out_s = direct.out_s;
    if (sw_cost_is_long(q->raw_bytes) || q->rates.restore[SW_CODEC_RAW] <= 0 || time.back_s > direct.back_s)
        time.back_s = direct.back_s;
    return time;
}

/* Of a region of which the encoder takes what it can, while the link never stands still. False: it can take all. */
static bool mixed_time_of(const struct sw_cost_question *q, struct sw_cost_time *ret) {
    const struct sw_cost_rates *r = &q->rates;
    const double raw = (double)q->raw_bytes, saved = 1 - 1 / q->expected_ratio,
                 encode = MIXED_ENCODING * r->encode[q->codec], out = direct_out_rate(r), back = direct_back_rate(r);
    ret->out_s = raw / (out + encode * saved);
    const double coded = encode * ret->out_s;
    ret->out_s += MIXED_LAST_CHUNKS * raw / (double)q->n_chunks / r->encode[q->codec];
    ret->back_s = knows_back(q) ? larger(coded / r->restore[q->codec], (raw - coded * saved) / back) : 0;
    return coded < raw;
}

static double round_trip_s(const struct sw_cost_time *time) {
    return time->out_s + time->back_s;
}

/* ---- the choice ---- */

/* The way out, and out and back together, take hardly longer than raw. */
static bool pays(const struct sw_cost_time *raw, const struct sw_cost_time *coded) {
    return coded->out_s <= TOLERANCE * raw->out_s && round_trip_s(coded) <= TOLERANCE * round_trip_s(raw);
}

/* Those of a direct step: a kernel's time; with more of them frames would wait too long for the link. */
static size_t mixed_step_chunks(size_t n_chunks, uint64_t raw_bytes, size_t most) {
    const size_t n = divide_up(n_chunks * KERNEL_LINK_BYTES, raw_bytes);
    return n < most ? n : most;
}

bool sw_cost_can_go_in_part(const struct sw_cost_question *q) {
    return sw_cost_is_long(q->raw_bytes) && q->n_slots > 1 && !q->to_disk && !q->room_is_short &&
           q->n_chunks >= mixed_step_chunks(q->n_chunks, q->raw_bytes, MOST_CHUNKS) + q->n_slots - 1;
}

/* In part it saves time over raw, and on the way out over all of it, if that pays: by more than noise, since it takes
 * more room. What is won on the way back by compressing all does not count: the encoder that is hardly faster than the
 * link is a busy GPU's, whose slots have their turns together and then the link, so that all takes longer than it
 * seems. */
static bool pays_in_part(const struct sw_cost_question *q, const struct sw_cost_time *raw,
                         const struct sw_cost_time *coded, struct sw_cost_time *mixed) {
    return sw_cost_can_go_in_part(q) && q->n_chunks >= MIXED_LEAST_CHUNKS && mixed_time_of(q, mixed) &&
           TOLERANCE * mixed->out_s < raw->out_s && round_trip_s(mixed) < round_trip_s(raw) &&
           (!pays(raw, coded) || TOLERANCE * mixed->out_s < coded->out_s);
}

static enum sw_cost_reason weigh(const struct sw_cost_question *q, struct sw_cost_answer *a) {
    struct sw_cost_time *raw = &a->times[SW_CODEC_RAW], *coded = &a->times[q->codec];
    *raw = raw_time_of(q, &a->direct);
    if (q->expected_ratio < MIN_RATIO)
        return SW_COST_NO_GAIN;
    if (q->raw_bytes < SW_COST_MIN_BYTES)
        return SW_COST_SHORT;
    if (!knows_out(q))
        return SW_COST_UNKNOWN;
    *coded = time_of(q, q->codec);
    struct sw_cost_time mixed;
    if (pays_in_part(q, raw, coded, &mixed)) {
        *coded = mixed;
        return SW_COST_IN_PART;
    }
    if (pays(raw, coded))
        return SW_COST_PAYS;
    if (q->room_is_short)
        return SW_COST_ROOM;
    return coded->out_s > TOLERANCE * raw->out_s ? SW_COST_ENCODER : SW_COST_DECODER;
}

bool sw_cost_is_quicker(const struct sw_cost_question *other, const struct sw_cost_question *q) {
    if (!knows_out(q))
        return false;
    struct sw_cost_time a = time_of(q, q->codec), b = time_of(other, other->codec);
    if (!knows_back(q) || !knows_back(other))
        a.back_s = b.back_s = 0;
    return TOLERANCE * round_trip_s(&b) < round_trip_s(&a);
}

static bool stays_raw(enum sw_cost_reason reason) {
    return reason == SW_COST_NO_GAIN || reason == SW_COST_ENCODER || reason == SW_COST_DECODER;
}

void sw_cost_choose(const struct sw_cost_question *question, struct sw_cost_answer *ret) {
    *ret = (struct sw_cost_answer){0};
    ret->reason = weigh(question, ret);
    ret->codec = stays_raw(ret->reason) ? SW_CODEC_RAW : question->codec;
}

bool sw_cost_stops_paying(const struct sw_cost_question *q, struct sw_cost_answer *ret) {
    sw_cost_choose(q, ret);
    if (ret->reason != SW_COST_IN_PART && ret->reason != SW_COST_ENCODER)
        return false;
    const double other_s = ret->times[ret->reason == SW_COST_IN_PART ? q->codec : SW_CODEC_RAW].out_s;
    return time_of(q, q->codec).out_s > CLEARLY * other_s;
}

bool sw_cost_is_hopeless(const struct sw_cost_question *q, struct sw_cost_answer *ret) {
    sw_cost_choose(q, ret);
    if (q->room_is_short)
        return false;
    const double raw_s = ret->times[SW_CODEC_RAW].out_s;
    const double tolerance = ret->reason == SW_COST_PAYS ? TOLERANCE : 1; /* in part it is done for the time alone */
    if ((ret->reason == SW_COST_PAYS || ret->reason == SW_COST_IN_PART) &&
        ret->times[q->codec].out_s + q->plan_s > tolerance * raw_s) {
        ret->reason = SW_COST_ENCODER;
        ret->codec = SW_CODEC_RAW;
    }
    return ret->reason == SW_COST_ENCODER || ret->reason == SW_COST_DECODER || ret->reason == SW_COST_NO_GAIN;
}

bool sw_cost_restores_directly(const struct sw_cost_rates *rates) {
    return rates->restore[SW_CODEC_RAW] > 0 && direct_back_rate(rates) > TOLERANCE * rates->restore[SW_CODEC_RAW];
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
    /* Frames that cross beside copies that go directly get only their share of the link. */
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

bool sw_cost_retries_in_part(const struct sw_cost_question *q, const struct sw_cost_answer *a) {
    return a->reason == SW_COST_ENCODER && sw_cost_can_go_in_part(q);
}

bool sw_cost_retry(struct sw_cost_class *c, const struct sw_cost_question *q, const struct sw_cost_answer *a) {
    const double raw_s = round_trip_s(&a->times[SW_CODEC_RAW]), coded_s = round_trip_s(&a->times[q->codec]);
    double extra_s = q->plan_s;
    const double n_tried = sw_cost_retries_in_part(q, a) ? q->n_slots - 1 : 1;
    if (coded_s > raw_s)
        extra_s += n_tried * (coded_s - raw_s) / (double)(q->n_chunks ? q->n_chunks : 1);
    c->credit_s += RETRY_PART * raw_s;
    if (c->credit_s < extra_s)
        return false;
    c->credit_s = 0;
    sw_meter_age(&c->encode[q->codec]);
    sw_meter_age(&c->restore[q->codec]);
    return true;
}

bool sw_cost_retry_link(struct sw_cost_class *c, enum sw_codec_id codec, const struct sw_cost_answer *a) {
    const double mixed_s = a->times[codec].out_s;
    c->link_credit_s += LINK_RETRY_PART * mixed_s;
    if (c->link_credit_s < a->times[SW_CODEC_RAW].out_s - mixed_s)
        return false;
    c->link_credit_s = 0;
    sw_meter_age(&c->direct_out);
    return true;
}

static bool retry_kernels(struct sw_cost_class *c, double kernels_s, double direct_s) {
    c->kernels_credit_s += RETRY_PART * direct_s;
    if (c->kernels_credit_s < kernels_s)
        return false;
    c->kernels_credit_s = 0;
    return true;
}

bool sw_cost_retry_kernels_out(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes) {
    const double bytes = (double)raw_bytes;
    struct sw_cost_rates r;
    sw_cost_class_rates(c, &r);
    return retry_kernels(c, stage_s(bytes, r.encode[SW_CODEC_RAW]) + stage_s(bytes, r.link_out),
                         stage_s((double)direct_bytes, direct_out_rate(&r)));
}

bool sw_cost_retry_kernels_back(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes) {
    const double bytes = (double)raw_bytes;
    struct sw_cost_rates r;
    sw_cost_class_rates(c, &r);
    return retry_kernels(c, stage_s(bytes, r.restore[SW_CODEC_RAW]),
                         stage_s((double)direct_bytes, direct_back_rate(&r)));
}

bool sw_cost_retry_direct_back(struct sw_cost_class *c, uint64_t region_bytes) {
    const double bytes = (double)region_bytes;
    struct sw_cost_rates r;
    sw_cost_class_rates(c, &r);
    const double kernels_s = stage_s(bytes, r.restore[SW_CODEC_RAW]), direct_s = stage_s(bytes, direct_back_rate(&r));
    c->direct_credit_s += RETRY_PART * kernels_s;
    if (kernels_s <= 0 || c->direct_credit_s < larger(direct_s - kernels_s, SELDOM * kernels_s))
        return false;
    c->direct_credit_s = 0;
    sw_meter_age(&c->direct_back);
    return true;
}

/* ---- the direct way ---- */

static bool is_for_cpu(const struct sw_cost_direct *region) {
    return region->is_back ? region->raw_bytes <= KERNEL_LINK_BYTES : !sw_cost_is_long(region->raw_bytes);
}

/* As many steps for each slot, of about one length: a short one at the end would wait for its kernel alone. What the
 * CPU hashes goes out chunk by chunk: it seals one while the next is on its way. Back it hashes them meanwhile. */
unsigned sw_cost_direct_chunks(const struct sw_cost_direct *region) {
    const size_t most = region->is_alone ? MOST_CHUNKS : MOST_CHUNKS_SHARED;
    if (region->has_neighbours)
        return 1;
    if (region->is_mixed)
        return (unsigned)mixed_step_chunks(region->n_chunks, region->raw_bytes, most);
    if (is_for_cpu(region) && !region->is_back)
        return 1;
    const size_t n_rounds = divide_up(region->n_chunks, most * region->n_slots);
    return (unsigned)divide_up(region->n_chunks, n_rounds * region->n_slots);
}

/* On its way back what a kernel hashes must have arrived. So that nobody waits for it the CPU hashes what arrives after
 * that, where it comes from. No more: the 16 CPUs of that host read 92 GB/s together, of which the copies take 55. */
unsigned sw_cost_chunks_by_cpu(const struct sw_cost_direct *region, size_t first, unsigned n) {
    if (is_for_cpu(region))
        return n;
    if (!region->is_back)
        return 0;
    const size_t behind = region->n_chunks - first - n,
                 at_end = divide_up(region->n_chunks * KERNEL_LINK_BYTES, region->raw_bytes);
    if (at_end <= behind)
        return 0;
    return at_end - behind < n ? (unsigned)(at_end - behind) : n;
}
