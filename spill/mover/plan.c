/* plan.c - by which plan a run goes: one of its session's that are kept, a new one, or none.
 *
 * A plan that is kept is used as long as a new one would cost more than a small part of the time that its regions have
 * taken since. The first frame that it makes of a region tells whether it suits the bytes. If it does not, the
 * session's other plans are tried, where that costs less than it may win; then the frame is accepted as it is, and what
 * was lost by that is noted, until as much has been lost as a new plan costs. So neither new columns nor columns in
 * turn make spills slower than raw ones by more than a part of what they win. */
#include "spill/mover/mover_state.h"

#include "spill/planner/rules.h"

#define MOST_NUMBERS_RATIO 1000 /* of equal ones */
#define PLAN_PART 0.03          /* of the time that its regions take: a new plan may cost as much */
/* While rates are not known: regions up to here go by a kept plan, which is made anew after so many. */
#define SHORT_BYTES ((uint64_t)4 << 20)
#define SHORT_USES 256
/* A frame by another column's table that shrinks less than this is hardly of text: what is lost by leaving it counts
 * for a small part only, since most likely no plan would shrink it. */
#define LEAST_RATIO 1.05
#define DOUBT_PART 0.01
#define BETTER_PART 0.25 /* of the bytes left: numbers that shrink better than promised may by another codec */
#define ALIKE_PART 0.03  /* of a frame's ratio: of one column's frames it differs by less */
#define MOST_RATIO 100   /* of a frame's data: beyond that it makes no difference */
#define TRY_PART 0.25    /* of what another plan may win: trying it costs less */

void sw_mover_plan_set_segments(const struct sw_mover *m, struct sw_plan *plan, uint64_t chunk_bytes) {
    if (sw_codec_has_segments(plan->codec))
        plan->segment_log2 =
            sw_rules_segment_log2(chunk_bytes, m->device->ops->info(m->device)->full_segments, plan->segment_log2);
}

/* ---- is it worth it ---- */

/* Of the codecs that would do for numbers the sample's choice shrinks them most; another one may take less time. */
static struct sw_cost_question ask_of_plan(struct sw_mover *m, const struct sw_weighed *what, struct sw_plan *plan) {
    struct sw_cost_question best = sw_mover_ask(m, what, plan->codec, plan->expected_ratio);
    /* Where room is short the densest one stands: a looser one might find none. */
    for (int codec = 0; !best.room_is_short && codec < SW_CODEC_NR; codec++) {
        if (plan->ratios[codec] <= 0)
            continue;
        const struct sw_cost_question other = sw_mover_ask(m, what, (enum sw_codec_id)codec, plan->ratios[codec]);
        if (sw_cost_is_quicker(&other, &best))
            best = other;
    }
    if (best.codec != plan->codec)
        sw_plan_switch(plan, best.codec);
    return best;
}

/* Where a retry is weighed it is not NULL: of chunks that short no rates are known, so that a coded plan stands. */
static struct sw_cost_class *costs_of(struct sw_mover *m, const struct sw_weighed *what) {
    return sw_mover_costs(m, what->chunk_bytes, what->shares_step);
}

struct sw_verdict sw_mover_plan_weigh(struct sw_mover *m, enum sw_operation kind, const struct sw_weighed *what,
                                      bool may_retry, struct sw_plan *plan) {
    struct sw_cost_answer answer;
    /* Packing, or without a link, it is done for the room: time does not count. */
    if (kind != SW_OP_SPILL || !sw_mover_has_link(m))
        return (struct sw_verdict){.reason = plan->codec == SW_CODEC_RAW ? SW_COST_NO_GAIN : SW_COST_ROOM};
    const struct sw_cost_question question = ask_of_plan(m, what, plan);
    sw_cost_choose(&question, &answer);
    if (answer.reason == SW_COST_IN_PART && sw_cost_retry_link(costs_of(m, what), question.codec, &answer)) {
        sw_plan_init_raw(plan);
        return (struct sw_verdict){.reason = SW_COST_RETRY, .is_direct = true};
    }
    if (answer.codec != SW_CODEC_RAW)
        return (struct sw_verdict){.reason = answer.reason, .is_mixed = answer.reason == SW_COST_IN_PART};
    if (answer.reason != SW_COST_NO_GAIN && (may_retry || sw_cost_retry(costs_of(m, what), &question, &answer)))
        return (struct sw_verdict){.reason = SW_COST_RETRY,
                                   .is_direct = answer.direct,
                                   .is_mixed = sw_cost_retries_in_part(&question, &answer)};
    sw_plan_init_raw(plan);
    return (struct sw_verdict){.reason = answer.reason, .is_direct = answer.direct};
}

/* A run from its chunk `first` on. */
static struct sw_weighed part_of(const struct sw_run *run, size_t first) {
    const struct sw_frames *frames = run->frames;
    return (struct sw_weighed){.raw_bytes = run->buffer->bytes - first * frames->chunk_bytes,
                               .chunk_bytes = frames->n_chunks > 1 ? frames->chunk_bytes : run->buffer->bytes,
                               .n_chunks = frames->n_chunks - first,
                               .run = run,
                               .shares_slots = run->request->number != 0};
}

/* It looks for a plan for that part. */
static struct sw_plan_query query_of(struct sw_run *run, size_t first) {
    return (struct sw_plan_query){.kind = run->request->operation,
                                  .what = part_of(run, first),
                                  .key = run->plan_key,
                                  .bytes = run->buffer->bytes,
                                  .choice = &run->plan_choice};
}

void sw_run_weigh(struct sw_mover *m, struct sw_run *run, size_t first) {
    const struct sw_weighed rest = part_of(run, first);
    const struct sw_verdict verdict =
        sw_mover_plan_weigh(m, run->request->operation, &rest, run->trial == SW_TRIAL_WANTED, &run->plan);
    run->outcome.reason = verdict.reason;
    run->is_direct = verdict.is_direct;
    run->is_mixed = verdict.is_mixed;
    run->trial = verdict.reason == SW_COST_RETRY && run->plan.codec != SW_CODEC_RAW && !verdict.is_mixed
                     ? SW_TRIAL_NEXT_CHUNK
                     : SW_TRIAL_NONE;
}

void sw_run_weigh_again(struct sw_mover *m, struct sw_run *run) {
    /* As if it began: what is left alone would have the slots to fill once more. */
    const struct sw_weighed all = part_of(run, 0);
    struct sw_cost_answer answer;
    if (run->request->operation != SW_OP_SPILL ||
        (run->outcome.reason != SW_COST_PAYS && run->outcome.reason != SW_COST_UNKNOWN) ||
        run->stage != SW_STAGE_RUNNING || run->plan_state == SW_PLAN_STATE_MISSING ||
        run->n_dealt == run->frames->n_chunks || !sw_mover_has_link(m))
        return;
    const struct sw_cost_question question = sw_mover_ask(m, &all, run->plan.codec, run->plan.expected_ratio);
    if (!sw_cost_stops_paying(&question, &answer))
        return;
    run->outcome.reason = answer.reason;
    run->is_mixed = answer.reason == SW_COST_IN_PART;
    if (run->is_mixed)
        return;
    sw_plan_init_raw(&run->plan);
    run->plan_number++; /* what is under way says nothing about this one */
    run->is_direct = answer.direct;
}

/* ---- plans that are kept ---- */

static bool counts_time(const struct sw_mover *m, enum sw_operation kind) {
    return kind == SW_OP_SPILL && sw_mover_has_link(m);
}

/* A time in prices of a plan. While either is not known: of short regions a little, of others one. */
static double in_plans(const struct sw_mover *m, double part, double s, uint64_t raw_bytes) {
    if (s > 0 && m->plan_s > 0)
        return part * s / m->plan_s;
    return raw_bytes <= SHORT_BYTES ? 1.0 / SHORT_USES : 1;
}

enum sw_plan_found sw_mover_plan_find(struct sw_mover *m, const struct sw_plan_query *query, struct sw_plan *ret) {
    const struct sw_weighed *what = &query->what;
    const struct sw_plan *plan = sw_plan_cache_find(&m->plans, query->key, query->bytes, query->choice);
    struct sw_cost_answer answer;
    if (!plan)
        return SW_PLAN_NONE;
    *ret = *plan;
    const struct sw_cost_question question = sw_mover_ask(m, what, plan->codec, plan->expected_ratio);
    const double rate = question.rates.encode[plan->codec];
    double s = rate > 0 ? (double)what->raw_bytes / rate : 0; /* where only the room counts */
    if (counts_time(m, query->kind)) {
        sw_cost_choose(&question, &answer);
        if (answer.codec == SW_CODEC_RAW)
            return SW_PLAN_USABLE; /* it would not pay now, whoever's it is */
        s = answer.times[plan->codec].out_s;
        if (s <= 0) /* that codec has not been measured yet */
            s = answer.times[SW_CODEC_RAW].out_s;
    }
    const double part = in_plans(m, PLAN_PART, s, what->raw_bytes);
    return sw_plan_cache_use(&m->plans, query->key, query->choice, part) ? SW_PLAN_USABLE : SW_PLAN_DUE;
}

static double ratio_of(const struct sw_frame_layout *frame) {
    return (double)frame->raw_bytes / (double)frame->frame_bytes;
}

/* Equal numbers take no data at all. */
static double data_ratio_of(const struct sw_frame_layout *frame) {
    const double raw = (double)frame->raw_bytes, data = (double)(frame->frame_bytes - frame->data_offset);
    return raw < MOST_RATIO * data ? raw / data : MOST_RATIO;
}

/* What bytes take longer on the link if they shrink like that and not as promised; if they shrink better than that, a
 * part of all that they take. */
static double lost_s(const struct sw_cost_question *q, double ratio) {
    const double part = ratio < q->expected_ratio ? 1 / ratio - 1 / q->expected_ratio : BETTER_PART / ratio;
    return q->rates.link_out > 0 ? (double)q->raw_bytes * part / q->rates.link_out : 0;
}

/* Another plan is tried if that costs little beside what it may win. One is in any case for short regions, but for
 * those that look as if nothing shrank them, and for members of a group, who share the step. */
static bool may_try(struct sw_mover *m, const struct sw_plan_query *query, const struct sw_cost_question *q,
                    const struct sw_frame_layout *frame) {
    const struct sw_weighed *what = &query->what;
    const bool looks_raw = ratio_of(frame) < LEAST_RATIO;
    const int n_tried = __builtin_popcount(query->choice->tried);
    /* What is under way is encoded again, too. */
    const double n_chunks = (double)(what->n_chunks < m->n_slots ? what->n_chunks : m->n_slots),
                 rate = q->rates.encode[q->codec], cost_s = rate > 0 ? n_chunks * (double)frame->raw_bytes / rate : 0,
                 gain_s = counts_time(m, query->kind) ? lost_s(q, ratio_of(frame)) : m->plan_s;
    if (n_tried == 1 && (what->shares_step || (what->raw_bytes <= SHORT_BYTES && !looks_raw)))
        return true;
    return looks_raw ? sw_plan_cache_stakes(&m->plans, query->key, query->choice, cost_s, gain_s)
                     : n_tried * cost_s < gain_s * TRY_PART || cost_s <= 0;
}

/* One that promises more than the bytes have shrunk. */
static bool find_other(struct sw_mover *m, const struct sw_plan_query *query, double ratio, struct sw_plan *ret) {
    const struct sw_plan *other;
    while ((other = sw_plan_cache_find(&m->plans, query->key, query->bytes, query->choice)) != NULL) {
        if (other->expected_ratio > ratio)
            return sw_mover_plan_find(m, query, ret) != SW_PLAN_NONE;
        sw_plan_cache_misfits(query->choice);
    }
    return false;
}

bool sw_mover_plan_is_stale(const struct sw_plan *plan, const struct sw_frame_layout *frame) {
    return plan->codec != SW_CODEC_RAW &&
           sw_rules_plan_is_stale(sw_plan_data_ratio(plan), frame->raw_bytes, frame->frame_bytes - frame->data_offset,
                                  plan->value_type != SW_VALUE_NONE);
}

enum sw_misfit sw_mover_plan_misfits(struct sw_mover *m, const struct sw_plan_query *query,
                                     const struct sw_frame_layout *frame, struct sw_plan *plan) {
    const struct sw_weighed *what = &query->what;
    const struct sw_cost_question question = sw_mover_ask(m, what, plan->codec, plan->expected_ratio);
    const double ratio = ratio_of(frame);
    struct sw_cost_answer answer;
    struct sw_plan other;
    sw_plan_cache_misfits(query->choice);
    if (may_try(m, query, &question, frame) && find_other(m, query, ratio, &other)) {
        *plan = other;
        return SW_MISFIT_AGAIN;
    }
    if (!counts_time(m, query->kind) || question.room_is_short)
        return SW_MISFIT_PLAN;
    sw_cost_choose(&question, &answer);
    const double lost = in_plans(m, ratio < LEAST_RATIO ? DOUBT_PART : 1, lost_s(&question, ratio), what->raw_bytes);
    const bool pays = answer.codec != SW_CODEC_RAW;
    return sw_plan_cache_forgo(&m->plans, query->key, query->choice, pays, lost) ? SW_MISFIT_PLAN : SW_MISFIT_ACCEPT;
}

/* Of the codecs of that type, the one that has lately encoded fastest. Those that have not been measured do not count
 * beside others: which suit no column never will be. */
static enum sw_codec_id fastest_codec(struct sw_mover *m, const struct sw_weighed *what, enum sw_value_type type) {
    const struct sw_cost_class *costs = costs_of(m, what);
    enum sw_codec_id best = SW_CODEC_V5T;
    double best_rate = 0;
    for (int codec = 0; type != SW_VALUE_NONE && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type))
            continue;
        const double rate = costs ? sw_meter_rate(&costs->encode[codec]) : 0;
        if (rate > best_rate || best == SW_CODEC_V5T)
            best = (enum sw_codec_id)codec;
        best_rate = rate > best_rate ? rate : best_rate;
    }
    return best;
}

/* Chunks of a region in part, or of one that would go directly as a whole, go directly while its plan is being made:
 * there have to be some left. */
static bool outlasts_plan(const struct sw_mover *m, const struct sw_cost_answer *answer) {
    return 2 * m->plan_s <= answer->times[SW_CODEC_RAW].out_s;
}

/* ---- at a run's beginning ---- */

/* True if making a plan could not pay, by what the session's last ones promised. */
static bool turn_away(struct sw_mover *m, struct sw_run *run) {
    const struct sw_weighed rest = part_of(run, run->n_dealt);
    struct sw_cost_answer answer;
    if (!counts_time(m, run->request->operation) || !costs_of(m, &rest))
        return false;
    const double promise = sw_plan_cache_promise(&m->plans, run->plan_key);
    const bool is_typed = run->buffer->type != SW_VALUE_NONE;
    struct sw_cost_question question = sw_mover_ask(m, &rest, fastest_codec(m, &rest, run->buffer->type),
                                                    promise > 0 ? promise
                                                    : is_typed  ? MOST_NUMBERS_RATIO
                                                                : SW_PLAN_MOST_BYTES_RATIO);
    bool hopeless = sw_cost_is_hopeless(&question, &answer);
    run->is_mixed = answer.reason == SW_COST_IN_PART;
    run->outcome.reason = SW_COST_ENCODER; /* should all chunks have gone before there is a plan */
    question.plan_s = m->plan_s;
    if (!hopeless && promise > 0) {
        hopeless = sw_cost_is_hopeless(&question, &answer);
        if (run->is_mixed)
            hopeless = !outlasts_plan(m, &answer);
    }
    if (!hopeless)
        return false;
    run->is_mixed = false;
    run->outcome.reason = answer.reason == SW_COST_IN_PART ? SW_COST_ENCODER : answer.reason; /* with its plan */
    if (sw_cost_retry(costs_of(m, &rest), &question, &answer)) {
        run->trial = SW_TRIAL_WANTED;
        run->is_mixed = sw_cost_can_go_in_part(&question) && outlasts_plan(m, &answer);
        return false;
    }
    sw_plan_init_raw(&run->plan);
    run->plan_state = SW_PLAN_STATE_SETTLED;
    run->is_direct = answer.direct;
    return true;
}

/* Of a run whose kept plan is due. */
static void goes_in_part_meanwhile(struct sw_mover *m, struct sw_run *run, const struct sw_weighed *rest) {
    const struct sw_cost_question question = sw_mover_ask(m, rest, run->plan.codec, run->plan.expected_ratio);
    struct sw_cost_answer answer;
    sw_cost_choose(&question, &answer);
    run->is_mixed = answer.reason == SW_COST_IN_PART && outlasts_plan(m, &answer);
    run->outcome.reason = SW_COST_ENCODER; /* should all chunks have gone before there is a plan */
}

bool sw_run_find_plan(struct sw_mover *m, struct sw_run *run) {
    const struct sw_plan_query query = query_of(run, run->n_dealt);
    switch (sw_mover_plan_find(m, &query, &run->plan)) {
    case SW_PLAN_USABLE:
        run->plan_state = SW_PLAN_STATE_UNPROVEN;
        sw_run_weigh(m, run, run->n_dealt);
        return true;
    case SW_PLAN_DUE:
        goes_in_part_meanwhile(m, run, &query.what);
        return false;
    case SW_PLAN_NONE:
        return turn_away(m, run);
    }
    return false;
}

/* ---- at its first frame ---- */

/* Goes on by a plan that does not suit, as far as that shrinks. */
static void accept(struct sw_mover *m, struct sw_run *run, const struct sw_frame_layout *frame) {
    run->plan_state = SW_PLAN_STATE_SETTLED;
    run->plan.expected_ratio = ratio_of(frame);
    if (run->n_dealt < run->frames->n_chunks) {
        run->plan_number++; /* what is under way was promised more */
        sw_run_weigh(m, run, run->n_dealt);
    } else if (frame->codec == SW_CODEC_RAW) {
        run->outcome.reason = SW_COST_NO_GAIN;
    }
}

/* For packing room counts, and a plan that is only good enough for time may leave much of it: the region's bytes have
 * to be as the plan's own. */
static bool suits(const struct sw_mover *m, const struct sw_run *run, const struct sw_frame_layout *frame) {
    if (run->request->operation != SW_OP_PACK)
        return !sw_mover_plan_is_stale(&run->plan, frame);
    const double seen = sw_plan_cache_seen(&m->plans, run->plan_key, &run->plan_choice), ratio = data_ratio_of(frame);
    return ratio > (1 - ALIKE_PART) * seen && ratio < (1 + ALIKE_PART) * seen;
}

enum sw_misfit sw_run_judge_plan(struct sw_mover *m, struct sw_run *run, unsigned plan_number,
                                 const struct sw_frame_layout *frame) {
    const bool is_by_current = plan_number == run->plan_number;
    if (run->plan_state != SW_PLAN_STATE_UNPROVEN) {
        if (is_by_current)
            sw_plan_cache_saw(&m->plans, run->plan_key, &run->plan_choice, &run->plan, data_ratio_of(frame));
        return SW_MISFIT_ACCEPT;
    }
    if (suits(m, run, frame)) {
        if (is_by_current && run->plan.codec != SW_CODEC_RAW) {
            sw_plan_cache_suits(&m->plans, run->plan_key, &run->plan_choice);
            run->plan_state = SW_PLAN_STATE_SETTLED;
        }
        return SW_MISFIT_ACCEPT;
    }
    if (!is_by_current) /* another plan is being tried since */
        return SW_MISFIT_AGAIN;
    const struct sw_plan_query query = query_of(run, run->n_encoded); /* what is under way by that plan, too */
    const enum sw_misfit misfit = sw_mover_plan_misfits(m, &query, frame, &run->plan);
    if (misfit == SW_MISFIT_AGAIN) {
        run->plan_number++;
        sw_run_weigh(m, run, run->n_encoded);
    } else if (misfit == SW_MISFIT_ACCEPT) {
        accept(m, run, frame);
    }
    return misfit;
}

void sw_run_drifts(struct sw_mover *m, struct sw_run *run, const struct sw_frame_layout *frame) {
    const struct sw_weighed rest = part_of(run, run->n_dealt);
    struct sw_cost_answer answer;
    struct sw_cost_question question = sw_mover_ask(m, &rest, run->plan.codec, run->plan.expected_ratio);
    question.plan_s = m->plan_s;
    if (counts_time(m, run->request->operation) && sw_cost_is_hopeless(&question, &answer)) {
        accept(m, run, frame);
        return;
    }
    run->plan_state = SW_PLAN_STATE_MISSING;
    run->n_retrained++;
}
