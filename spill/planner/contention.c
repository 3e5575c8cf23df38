#include "spill/planner/contention.h"

/* A slot encodes about half of the time: its frame waits in line among the raw chunks on the link. At the end some
 * chunks that are being encoded are waited for. */
#define ENCODING_PART 0.5
#define LAST_CHUNKS 1
#define LEAST_CHUNKS 16
/* The link's rate seldom changes: so many times as much has to be saved for its probe. */
#define LINK_PRICE 4
#define STAKE_PART 0.01
#define MOST_DOUBTS 16u
#define MOST_WASTED 6u /* so that the next plan has to be worth 64 of them */

/* ---- in part ---- */

size_t sw_contention_step_chunks(size_t n_chunks, uint64_t raw_bytes, size_t most) {
    const size_t n = (n_chunks * SW_COST_KERNEL_LINK_BYTES + raw_bytes - 1) / raw_bytes;
    return n < most ? n : most;
}

bool sw_contention_can_go_in_part(const struct sw_cost_question *q) {
    return sw_cost_is_long(q->raw_bytes) && q->n_slots > 1 && !q->to_disk && !q->room_is_short &&
           q->n_chunks >=
               sw_contention_step_chunks(q->n_chunks, q->raw_bytes, SW_COST_STEP_MOST_CHUNKS) + q->n_slots - 1;
}

/* The encoder takes what it can, while the link never stands still. False: it can take all. */
static bool time_in_part(const struct sw_cost_question *q, struct sw_cost_time *ret) {
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

/* By more than noise, since it takes more room. What is won on the way back by compressing all does not count: the
 * encoder that is hardly faster than the link is a busy GPU's, whose slots have their turns together and then the link,
 * so that all takes longer than it seems. */
bool sw_contention_pays_in_part(const struct sw_cost_question *q, const struct sw_cost_time *raw,
                                const struct sw_cost_time *coded, bool coded_pays, struct sw_cost_time *ret) {
    return sw_contention_can_go_in_part(q) && q->n_chunks >= LEAST_CHUNKS && time_in_part(q, ret) &&
           SW_COST_TOLERANCE * ret->out_s < raw->out_s && sw_cost_round_trip_s(ret) < sw_cost_round_trip_s(raw) &&
           (!coded_pays || SW_COST_TOLERANCE * ret->out_s < coded->out_s);
}

bool sw_contention_probes_in_part(const struct sw_cost_question *q, bool encoder_is_slow) {
    return encoder_is_slow && sw_contention_can_go_in_part(q);
}

bool sw_contention_probes_link(struct sw_probe_budget *budget, struct sw_meter *direct_out, double in_part_s,
                               double raw_s) {
    if (!sw_probe_is_due(budget, SW_PROBE_LINK, in_part_s, LINK_PRICE * (raw_s - in_part_s)))
        return false;
    sw_meter_age(direct_out);
    return true;
}

/* ---- stakes ---- */

bool sw_stakes_cover(struct sw_stakes *stakes, double cost_s, double prize_s) {
    stakes->saved_s += STAKE_PART * prize_s;
    if (stakes->saved_s < cost_s)
        return false;
    stakes->saved_s -= cost_s;
    return true;
}

void sw_stakes_won(struct sw_stakes *stakes, double prize_s) {
    stakes->saved_s = prize_s > stakes->saved_s ? prize_s : stakes->saved_s;
}

bool sw_stakes_forgo(struct sw_stakes *stakes, bool pays, double part) {
    if (pays && stakes->n_doubts < MOST_DOUBTS) {
        stakes->n_doubts++;
        return true;
    }
    stakes->forgone += part;
    return stakes->forgone >= (double)(1u << stakes->n_wasted);
}

void sw_stakes_planned(struct sw_stakes *stakes) {
    stakes->forgone = 0;
}

void sw_stakes_wasted(struct sw_stakes *stakes) {
    stakes->n_wasted += stakes->n_wasted < MOST_WASTED;
}

void sw_stakes_earned(struct sw_stakes *stakes) {
    stakes->n_wasted = 0;
}
