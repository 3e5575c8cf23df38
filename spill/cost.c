#include "spill/cost.h"

#define MIN_RATIO 1.05 /* as for plans: less is not worth a decoder's work */
#define TOLERANCE 1.03
#define RETRY_PART 0.01 /* of the time, for looking again: well within TOLERANCE */
#define MIN_BYTES_LOG2 18

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

/* The slowest stage, and of the others what the first chunk takes. */
static double overlapped_s(double a, double b, double c, uint64_t n_chunks) {
    const double slowest = larger(a, larger(b, c));
    return slowest + (a + b + c - slowest) / (double)(n_chunks ? n_chunks : 1);
}

static bool knows_out(const struct sw_cost_question *q) {
    return q->rates.encode[SW_CODEC_V5T] > 0 && q->rates.link_out > 0 && (!q->to_disk || q->rates.disk_write > 0);
}

static bool knows_back(const struct sw_cost_question *q) {
    return q->rates.restore[SW_CODEC_V5T] > 0 && q->rates.restore[SW_CODEC_RAW] > 0 &&
           (!q->to_disk || q->rates.disk_read > 0);
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

static double round_trip_s(const struct sw_cost_time *time) {
    return time->out_s + time->back_s;
}

/* ---- the choice ---- */

static enum sw_cost_reason weigh(const struct sw_cost_question *q, struct sw_cost_answer *a) {
    if (q->expected_ratio < MIN_RATIO)
        return SW_COST_NO_GAIN;
    if (q->raw_bytes < SW_COST_MIN_BYTES)
        return SW_COST_SHORT;
    if (!knows_out(q))
        return SW_COST_UNKNOWN;
    const struct sw_cost_time *raw = &a->times[SW_CODEC_RAW], *coded = &a->times[SW_CODEC_V5T];
    a->times[SW_CODEC_RAW] = time_of(q, SW_CODEC_RAW);
    a->times[SW_CODEC_V5T] = time_of(q, SW_CODEC_V5T);
    const bool slow_out = coded->out_s > TOLERANCE * raw->out_s;
    if (!slow_out && round_trip_s(coded) <= TOLERANCE * round_trip_s(raw))
        return SW_COST_PAYS;
    if (q->room_is_short)
        return SW_COST_ROOM;
    return slow_out ? SW_COST_ENCODER : SW_COST_DECODER;
}

static bool stays_raw(enum sw_cost_reason reason) {
    return reason == SW_COST_NO_GAIN || reason == SW_COST_ENCODER || reason == SW_COST_DECODER;
}

void sw_cost_choose(const struct sw_cost_question *question, struct sw_cost_answer *ret) {
    *ret = (struct sw_cost_answer){0};
    ret->reason = weigh(question, ret);
    ret->codec = stays_raw(ret->reason) ? SW_CODEC_RAW : SW_CODEC_V5T;
}

/* ---- classes ---- */

int sw_cost_class(uint64_t chunk_bytes) {
    int class = -1;
    while (class + 1 < SW_COST_CLASSES && chunk_bytes >> (MIN_BYTES_LOG2 + class + 1) > 0)
        class ++;
    return class;
}

void sw_cost_class_rates(const struct sw_cost_class *c, struct sw_cost_rates *ret) {
    ret->link_out = sw_meter_rate(&c->link_out);
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        ret->encode[codec] = sw_meter_rate(&c->encode[codec]);
        ret->restore[codec] = sw_meter_rate(&c->restore[codec]);
    }
}

bool sw_cost_retry(struct sw_cost_class *c, const struct sw_cost_question *q, const struct sw_cost_answer *a) {
    const double raw_s = round_trip_s(&a->times[SW_CODEC_RAW]);
    const double extra_s = (round_trip_s(&a->times[SW_CODEC_V5T]) - raw_s) / (double)(q->n_chunks ? q->n_chunks : 1);
    c->credit_s += RETRY_PART * raw_s;
    if (c->credit_s < extra_s)
        return false;
    c->credit_s = 0;
    sw_meter_age(&c->encode[SW_CODEC_V5T]);
    sw_meter_age(&c->restore[SW_CODEC_V5T]);
    return true;
}
