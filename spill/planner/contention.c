#include "spill/planner/contention.h"

/* A slot encodes about half of the time: its frame waits among the raw chunks for the link. At the end the run waits
 * for some chunks that are still being encoded. */
#define ENCODING_PART 0.5
#define LAST_CHUNKS 1
#define LEAST_CHUNKS 16
/* The link's rate seldom changes: a probe of it must be worth this many times its cost. */
#define LINK_PRICE 4
#define TRY_PART 0.01
#define MOST_MISMATCHES 16u
#define MOST_WASTED 6u /* then the next plan has to be worth 64 plans */

/* ---- partial compression ---- */

size_t sw_contention_step_chunks(size_t n_chunks, uint64_t raw_bytes, size_t most) {
    const size_t n = (n_chunks * SW_COST_KERNEL_LINK_BYTES + raw_bytes - 1) / raw_bytes;
    return n < most ? n : most;
}

bool sw_contention_can_compress_partially(const struct sw_cost_question *q) {
    return sw_cost_is_long(q->raw_bytes) && q->n_slots > 1 && !q->to_disk && !q->room_is_short && !q->is_beside_data &&
           q->n_chunks >=
               sw_contention_step_chunks(q->n_chunks, q->raw_bytes, SW_COST_STEP_MOST_CHUNKS) + q->n_slots - 1;
}

/* Computes the time if the encoder takes what it can while the link is never idle. Returns false if the encoder can
 * take everything. */
static bool partial_time(const struct sw_cost_question *q, struct sw_cost_time *ret) {
    const struct sw_cost_rates *r = &q->rates;
    const double raw = (double)q->raw_bytes, saved = 1 - 1 / q->expected_ratio,
                 encode = ENCODING_PART * r->encode[q->codec],
                 coded_s = raw / (sw_cost_direct_out_rate(r) + encode * saved), coded = encode * coded_s;
    ret->out_s = coded_s + LAST_CHUNKS * raw / (double)q->n_chunks / r->encode[q->codec];
    ret->back_s = 0;
    if (sw_cost_knows_back(q)) {
        const double decode_s = coded / r->restore[q->codec],
                     link_s = (raw - coded * saved) / sw_cost_direct_back_rate(r);
        ret->back_s = decode_s > link_s ? decode_s : link_s;
    }
    return coded < raw;
}

/* Partial compression must save more than noise, since it takes more room than compressing everything. The gain of
 * compressing everything on the restore path does not count: an encoder that is hardly faster than the link runs on a
 * busy GPU. There the slots take their turns together and then wait for the link, so everything takes longer than the
 * rates say. */
bool sw_contention_pays_partially(const struct sw_cost_question *q, const struct sw_cost_time *raw,
                                  const struct sw_cost_time *coded, bool coded_pays, struct sw_cost_time *ret) {
    return sw_contention_can_compress_partially(q) && q->n_chunks >= LEAST_CHUNKS && partial_time(q, ret) &&
           SW_COST_TOLERANCE * ret->out_s < raw->out_s && sw_cost_round_trip_s(ret) < sw_cost_round_trip_s(raw) &&
           (!coded_pays || SW_COST_TOLERANCE * ret->out_s < coded->out_s);
}

bool sw_contention_probes_partially(const struct sw_cost_question *q, bool encoder_is_slow) {
    return encoder_is_slow && sw_contention_can_compress_partially(q);
}

bool sw_contention_probes_link(struct sw_probe_budget *budget, struct sw_meter *direct_out, double partial_s,
                               double raw_s) {
    if (!sw_probe_is_due(budget, SW_PROBE_LINK, partial_s, LINK_PRICE * (raw_s - partial_s)))
        return false;
    sw_meter_age(direct_out);
    return true;
}

/* ---- replanning ---- */

bool sw_replan_may_try(struct sw_replan_budget *budget, double cost_s, double gain_s) {
    budget->saved_s += TRY_PART * gain_s;
    if (budget->saved_s < cost_s)
        return false;
    budget->saved_s -= cost_s;
    return true;
}

void sw_replan_try_won(struct sw_replan_budget *budget, double gain_s) {
    budget->saved_s = gain_s > budget->saved_s ? gain_s : budget->saved_s;
}

bool sw_replan_add_regret(struct sw_replan_budget *budget, bool pays, double part) {
    if (pays && budget->n_mismatches < MOST_MISMATCHES) {
        budget->n_mismatches++;
        return true;
    }
    budget->regret += part;
    return budget->regret >= (double)(1u << budget->n_wasted);
}

void sw_replan_planned(struct sw_replan_budget *budget) {
    budget->regret = 0;
}

void sw_replan_plan_wasted(struct sw_replan_budget *budget) {
    budget->n_wasted += budget->n_wasted < MOST_WASTED;
}

void sw_replan_plan_paid(struct sw_replan_budget *budget) {
    budget->n_wasted = 0;
}
