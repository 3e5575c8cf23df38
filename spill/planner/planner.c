/* planner.c - chooses a run's plan: one of its session's kept plans, a new one, or none.
 *
 * A kept plan is used as long as a new one would cost more than a small part of the time that its regions have taken
 * since. The first frame that it makes of a region shows whether it matches the bytes. If it does not match, the
 * session's other plans are tried, where this costs less than it may gain. After that the frame is accepted as it is.
 * The time lost by this is added up until it reaches the price of a new plan. So spills of new columns, or of columns
 * in turn, are slower than raw ones by at most a part of what they gain. */
#include "spill/planner/planner.h"

#include "spill/planner/dense.h"

#define MOST_NUMBERS_RATIO 1000 /* the ratio of equal numbers */
#define PLAN_PART 0.03          /* of its regions' time: the most that a new plan may cost */
/* While rates are not known: regions up to this length use a kept plan, which is made anew after this many uses. */
#define SHORT_BYTES ((uint64_t)4 << 20)
#define SHORT_USES 256
/* Of a region of several buffers, each of which has plans of its own: chunks wait for the first, and the link for them.
 */
#define SHARED_PLAN_PART 0.005
/* A frame by another column's table that shrinks less than this is hardly text. The loss from leaving it counts for a
 * small part only, since most likely no plan would shrink it. */
#define LEAST_RATIO 1.05
#define UNLIKELY_PART 0.01
#define BETTER_PART                                                                                                    \
    0.25 /* of the bytes left: another codec may save this much of numbers that shrink better than expected */
/* Of a region of several buffers, encoders that are so many times as fast as the link are never waited for: other
 * buffers shrink less. */
#define HIDDEN_RATIO 8
#define ALIKE_PART 0.03 /* of a frame's ratio: frames of one column differ by less */
#define MOST_RATIO 100  /* of a frame's data: a higher one makes no difference */
#define TRY_PART 0.25   /* of what another plan may gain: the most that a try may cost */

void sw_planner_set_segments(const struct sw_planner *p, struct sw_plan *plan, uint64_t chunk_bytes) {
    if (sw_codec_has_segments(plan->codec))
        plan->segment_log2 = sw_rules_segment_log2(chunk_bytes, p->full_segments, plan->segment_log2);
}

/* ---- the price of plans ---- */

void sw_planner_observe_plan(struct sw_planner *p, bool is_dense, uint64_t us) {
    const double s = (double)us / 1e6, before_s = p->plan_s[is_dense];
    p->plan_s[is_dense] = before_s > 0 ? (3 * before_s + s) / 4 : s;
}

/* Returns the time to make a plan of this key. */
static double plan_s_of(const struct sw_planner *p, uint64_t key) {
    return p->plan_s[sw_plan_key_is_dense(key)];
}

/* Returns true if time does not count for the run. */
static bool is_for_room(const struct sw_snapshot *now) {
    return now->is_pack || now->room.prefer == SW_PREFER_ROOM;
}

/* ---- whether a plan pays ---- */

/* Returns the question for the plan's best codec. The sample chose the codec that shrinks numbers most; another one may
 * take less time. */
static struct sw_cost_question ask_of_plan(struct sw_planner *p, const struct sw_workload *what, struct sw_plan *plan) {
    struct sw_cost_question best = sw_planner_ask(p, what, plan->codec, plan->expected_ratio);
    if (what->shares_slots && best.rates.encode[best.codec] >= HIDDEN_RATIO * best.rates.link_out)
        return best;
    /* If room is short, the codec that shrinks most stands: frames of another one might find no room. */
    for (int codec = 0; !best.room_is_short && codec < SW_CODEC_NR; codec++) {
        if (plan->ratios[codec] <= 0)
            continue;
        const struct sw_cost_question other = sw_planner_ask(p, what, (enum sw_codec_id)codec, plan->ratios[codec]);
        if (sw_cost_is_quicker(&other, &best))
            best = other;
    }
    if (best.codec != plan->codec)
        sw_plan_switch(plan, best.codec);
    return best;
}

/* Returns the rates for this length of chunk. NULL: the chunks are too short to have rates; then a compressing plan
 * stands, and no retry is evaluated. */
static struct sw_cost_class *costs_of(struct sw_planner *p, const struct sw_workload *what) {
    return sw_planner_costs(p, what->chunk_bytes, what->shares_step);
}

static bool probes_link(struct sw_planner *p, const struct sw_workload *what, enum sw_codec_id codec,
                        const struct sw_cost_answer *answer) {
    struct sw_cost_class *costs = costs_of(p, what);
    return answer->reason == SW_COST_PARTIAL &&
           sw_contention_probes_link(&costs->probes, &costs->direct_out, answer->times[codec].out_s,
                                     answer->times[SW_CODEC_RAW].out_s);
}

struct sw_plan_decision sw_planner_decide(struct sw_planner *p, bool is_for_room, const struct sw_workload *what,
                                          bool may_retry, struct sw_plan *plan) {
    struct sw_cost_answer answer;
    /* Devices without a link compress to save room, too. */
    if (is_for_room || !p->has_link)
        return (struct sw_plan_decision){.reason = plan->codec == SW_CODEC_RAW ? SW_COST_NO_GAIN : SW_COST_ROOM};
    const struct sw_cost_question question = ask_of_plan(p, what, plan);
    sw_cost_choose(&question, &answer);
    if (probes_link(p, what, question.codec, &answer)) {
        sw_plan_init_raw(plan);
        return (struct sw_plan_decision){.reason = SW_COST_RETRY, .is_direct = true};
    }
    if (answer.codec != SW_CODEC_RAW)
        return (struct sw_plan_decision){.reason = answer.reason, .is_mixed = answer.reason == SW_COST_PARTIAL};
    if (answer.reason != SW_COST_NO_GAIN &&
        (may_retry || sw_cost_probe_encoding(costs_of(p, what), &question, &answer)))
        return (struct sw_plan_decision){
            .reason = SW_COST_RETRY,
            .is_direct = answer.direct,
            .is_mixed = sw_contention_probes_partially(&question, answer.reason == SW_COST_ENCODER)};
    sw_plan_init_raw(plan);
    return (struct sw_plan_decision){.reason = answer.reason, .is_direct = answer.direct};
}

/* Returns the rest of a run from its chunk `first` on. */
static struct sw_workload part_of(const struct sw_snapshot *now, size_t first) {
    return (struct sw_workload){.raw_bytes = now->raw_bytes - first * now->chunk_bytes,
                                .chunk_bytes = now->n_chunks > 1 ? now->chunk_bytes : now->raw_bytes,
                                .n_chunks = now->n_chunks - first,
                                .room = &now->room,
                                .shares_slots = now->shares_slots};
}

/* Returns the query for a plan for this rest. */
static struct sw_plan_query query_of(struct sw_course *course, const struct sw_snapshot *now, size_t first) {
    return (struct sw_plan_query){.is_for_room = is_for_room(now),
                                  .what = part_of(now, first),
                                  .key = course->plan_key,
                                  .bytes = now->raw_bytes,
                                  .choice = &course->plan_choice};
}

void sw_planner_evaluate(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first) {
    const struct sw_workload rest = part_of(now, first);
    const struct sw_plan_decision decision =
        sw_planner_decide(p, is_for_room(now), &rest, course->trial == SW_TRIAL_WANTED, course->plan);
    course->reason = decision.reason;
    course->is_direct = decision.is_direct;
    course->is_mixed = decision.is_mixed;
    course->trial = decision.reason == SW_COST_RETRY && course->plan->codec != SW_CODEC_RAW && !decision.is_mixed
                        ? SW_TRIAL_NEXT_CHUNK
                        : SW_TRIAL_NONE;
}

void sw_planner_reevaluate(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    /* Asks about the whole run as if it began: for the rest alone, filling the slots would count once more. */
    const struct sw_workload all = part_of(now, 0);
    struct sw_cost_answer answer;
    if (is_for_room(now) || (course->reason != SW_COST_PAYS && course->reason != SW_COST_UNKNOWN) || !now->is_running ||
        course->plan_state == SW_PLAN_STATE_MISSING || now->n_dealt == now->n_chunks || !p->has_link)
        return;
    const struct sw_cost_question question = sw_planner_ask(p, &all, course->plan->codec, course->plan->expected_ratio);
    if (!sw_cost_stops_paying(&question, &answer))
        return;
    course->reason = answer.reason;
    course->is_mixed = answer.reason == SW_COST_PARTIAL;
    if (course->is_mixed)
        return;
    sw_plan_init_raw(course->plan);
    course->plan_number++; /* frames under way say nothing about the new plan */
    course->is_direct = answer.direct;
}

/* ---- plans that are kept ---- */

static bool counts_time(const struct sw_planner *p, bool is_for_room) {
    return !is_for_room && p->has_link;
}

/* Converts a time to prices of a plan. While one of the two is not known, a short region counts a little, a long one a
 * whole price. */
static double in_plans(const struct sw_planner *p, uint64_t key, double part, double s, uint64_t raw_bytes) {
    const double plan_s = plan_s_of(p, key);
    if (s > 0 && plan_s > 0)
        return part * s / plan_s;
    return raw_bytes <= SHORT_BYTES ? 1.0 / SHORT_USES : 1;
}

enum sw_plan_found sw_planner_find(struct sw_planner *p, const struct sw_plan_query *query, struct sw_plan *ret) {
    const struct sw_workload *what = &query->what;
    const struct sw_plan *plan = sw_plan_cache_find(&p->plans, query->key, query->bytes, query->choice);
    struct sw_cost_answer answer;
    if (!plan)
        return SW_PLAN_NONE;
    *ret = *plan;
    const struct sw_cost_question question = sw_planner_ask(p, what, plan->codec, plan->expected_ratio);
    const double rate = question.rates.encode[plan->codec];
    double s = rate > 0 ? (double)what->raw_bytes / rate : 0; /* used where only room counts */
    if (counts_time(p, query->is_for_room)) {
        sw_cost_choose(&question, &answer);
        if (answer.codec == SW_CODEC_RAW)
            return SW_PLAN_USABLE; /* compressing would not pay now, whichever plan it is */
        s = answer.times[plan->codec].out_s;
        if (s <= 0) /* the codec has not been measured yet */
            s = answer.times[SW_CODEC_RAW].out_s;
    }
    const double part = in_plans(p, query->key, what->shares_slots ? SHARED_PLAN_PART : PLAN_PART, s, what->raw_bytes);
    return sw_plan_cache_use(&p->plans, query->key, query->choice, part) ? SW_PLAN_USABLE : SW_PLAN_DUE;
}

static double ratio_of(const struct sw_frame_layout *frame) {
    return (double)frame->raw_bytes / (double)frame->frame_bytes;
}

/* Returns the ratio of raw bytes to data bytes, with a maximum: equal numbers take no data at all. */
static double data_ratio_of(const struct sw_frame_layout *frame) {
    const double raw = (double)frame->raw_bytes, data = (double)(frame->frame_bytes - frame->data_offset);
    return raw < MOST_RATIO * data ? raw / data : MOST_RATIO;
}

/* Returns the time that bytes lose on the link if they shrink to `ratio` and not as expected. If they shrink better
 * than expected: a part of their whole time. */
static double lost_s(const struct sw_cost_question *q, double ratio) {
    const double part = ratio < q->expected_ratio ? 1 / ratio - 1 / q->expected_ratio : BETTER_PART / ratio;
    return q->rates.link_out > 0 ? (double)q->raw_bytes * part / q->rates.link_out : 0;
}

/* Another plan is tried if the try costs little beside its possible gain. The first try is free for short regions,
 * unless they look incompressible, and for members of a group, which share the step. */
static bool may_try(struct sw_planner *p, const struct sw_plan_query *query, const struct sw_cost_question *q,
                    const struct sw_frame_layout *frame) {
    const struct sw_workload *what = &query->what;
    const bool looks_raw = ratio_of(frame) < LEAST_RATIO;
    const int n_tried = __builtin_popcount(query->choice->tried);
    /* Chunks that are under way are encoded again, too. */
    const double n_chunks = (double)(what->n_chunks < p->n_slots ? what->n_chunks : p->n_slots),
                 rate = q->rates.encode[q->codec], cost_s = rate > 0 ? n_chunks * (double)frame->raw_bytes / rate : 0,
                 gain_s = counts_time(p, query->is_for_room) ? lost_s(q, ratio_of(frame)) : plan_s_of(p, query->key);
    if (n_tried == 1 && (what->shares_step || (what->raw_bytes <= SHORT_BYTES && !looks_raw)))
        return true;
    return looks_raw ? sw_plan_cache_may_try(&p->plans, query->key, query->choice, cost_s, gain_s)
                     : n_tried * cost_s < gain_s * TRY_PART || cost_s <= 0;
}

/* Finds a kept plan whose estimate is higher than the ratio seen. */
static bool find_other(struct sw_planner *p, const struct sw_plan_query *query, double ratio, struct sw_plan *ret) {
    const struct sw_plan *other;
    while ((other = sw_plan_cache_find(&p->plans, query->key, query->bytes, query->choice)) != NULL) {
        if (other->expected_ratio > ratio)
            return sw_planner_find(p, query, ret) != SW_PLAN_NONE;
        sw_plan_cache_note_mismatch(query->choice);
    }
    return false;
}

bool sw_planner_is_stale(const struct sw_plan *plan, const struct sw_frame_layout *frame) {
    return plan->codec != SW_CODEC_RAW &&
           sw_rules_plan_is_stale(sw_plan_data_ratio(plan), frame->raw_bytes, frame->frame_bytes - frame->data_offset,
                                  plan->value_type != SW_VALUE_NONE);
}

enum sw_plan_mismatch sw_planner_handle_mismatch(struct sw_planner *p, const struct sw_plan_query *query,
                                                 const struct sw_frame_layout *frame, struct sw_plan *plan) {
    const struct sw_workload *what = &query->what;
    const struct sw_cost_question question = sw_planner_ask(p, what, plan->codec, plan->expected_ratio);
    const double ratio = ratio_of(frame);
    struct sw_cost_answer answer;
    struct sw_plan other;
    sw_plan_cache_note_mismatch(query->choice);
    if (may_try(p, query, &question, frame) && find_other(p, query, ratio, &other)) {
        *plan = other;
        return SW_MISMATCH_RETRY;
    }
    if (!counts_time(p, query->is_for_room) || question.room_is_short)
        return SW_MISMATCH_REPLAN;
    sw_cost_choose(&question, &answer);
    const double lost =
        in_plans(p, query->key, ratio < LEAST_RATIO ? UNLIKELY_PART : 1, lost_s(&question, ratio), what->raw_bytes);
    const bool pays = answer.codec != SW_CODEC_RAW;
    return sw_plan_cache_add_regret(&p->plans, query->key, query->choice, pays, lost) ? SW_MISMATCH_REPLAN
                                                                                      : SW_MISMATCH_ACCEPT;
}

/* Returns the codec of this type that has recently encoded fastest. Beside measured codecs an unmeasured one does not
 * count: a codec that matches no column is never measured. */
static enum sw_codec_id fastest_codec(struct sw_planner *p, const struct sw_workload *what, enum sw_value_type type) {
    const struct sw_cost_class *costs = costs_of(p, what);
    enum sw_codec_id best = SW_CODEC_RAW;
    double best_rate = 0;
    if (type == SW_VALUE_NONE)
        return SW_PLAN_BYTES_CODEC;
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type))
            continue;
        const double rate = costs ? sw_meter_rate(&costs->encode[codec]) : 0;
        if (rate > best_rate || best == SW_CODEC_RAW)
            best = (enum sw_codec_id)codec;
        best_rate = rate > best_rate ? rate : best_rate;
    }
    return best;
}

/* While the plan is being made, chunks of a region that is partially compressed, or that would go directly as a whole,
 * go directly. Some must be left when the plan is ready. */
static bool outlasts_plan(const struct sw_planner *p, uint64_t key, const struct sw_cost_answer *answer) {
    return 2 * plan_s_of(p, key) <= answer->times[SW_CODEC_RAW].out_s;
}

/* ---- at a run's beginning ---- */

/* Returns true if, by the estimates of the session's recent plans, a new plan could not pay. */
static bool skip_planning(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    const struct sw_workload rest = part_of(now, now->n_dealt);
    struct sw_cost_answer answer;
    if (!counts_time(p, is_for_room(now)) || !costs_of(p, &rest))
        return false;
    const double estimate = sw_plan_cache_estimate(&p->plans, course->plan_key);
    const bool is_typed = now->type != SW_VALUE_NONE;
    struct sw_cost_question question = sw_planner_ask(p, &rest, fastest_codec(p, &rest, now->type),
                                                      estimate > 0 ? estimate
                                                      : is_typed   ? MOST_NUMBERS_RATIO
                                                                   : SW_PLAN_MOST_BYTES_RATIO);
    bool hopeless = sw_cost_is_hopeless(&question, &answer);
    course->is_mixed = answer.reason == SW_COST_PARTIAL;
    course->reason = SW_COST_ENCODER; /* stands if all chunks have gone before the plan is ready */
    question.plan_s = plan_s_of(p, course->plan_key);
    if (!hopeless && estimate > 0) {
        hopeless = sw_cost_is_hopeless(&question, &answer);
        if (course->is_mixed)
            hopeless = !outlasts_plan(p, course->plan_key, &answer);
    }
    if (!hopeless)
        return false;
    course->is_mixed = false;
    course->reason =
        answer.reason == SW_COST_PARTIAL ? SW_COST_ENCODER : answer.reason; /* the time of its plan included */
    if (sw_cost_probe_encoding(costs_of(p, &rest), &question, &answer)) {
        course->trial = SW_TRIAL_WANTED;
        course->is_mixed =
            sw_contention_can_compress_partially(&question) && outlasts_plan(p, course->plan_key, &answer);
        return false;
    }
    sw_plan_init_raw(course->plan);
    course->plan_state = SW_PLAN_STATE_SETTLED;
    course->is_direct = answer.direct;
    return true;
}

/* Lets chunks go directly while the run's kept plan is made anew, if partial compression pays. */
static void compress_partially_meanwhile(struct sw_planner *p, struct sw_course *course,
                                         const struct sw_workload *rest) {
    const struct sw_cost_question question = sw_planner_ask(p, rest, course->plan->codec, course->plan->expected_ratio);
    struct sw_cost_answer answer;
    sw_cost_choose(&question, &answer);
    course->is_mixed = answer.reason == SW_COST_PARTIAL && outlasts_plan(p, course->plan_key, &answer);
    course->reason = SW_COST_ENCODER; /* stands if all chunks have gone before the plan is ready */
}

/* Takes the denser plan of the column whose usual plan was found, if it has one. */
static bool takes_denser(struct sw_planner *p, struct sw_course *course) {
    const struct sw_plan *denser =
        course->gain_s > 0 ? sw_plan_cache_denser(&p->plans, course->plan_key, &course->plan_choice) : NULL;
    if (denser)
        *course->plan = *denser;
    return denser;
}

/* The usual plan of the column that is expected need not be made anew then. */
static bool begins_denser(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    if (course->gain_s <= 0 || !sw_plan_cache_find(&p->plans, course->plan_key, now->raw_bytes, &course->plan_choice) ||
        !takes_denser(p, course))
        return false;
    (void)sw_plan_cache_use(&p->plans, course->plan_key, &course->plan_choice, 0);
    return true;
}

/* Returns true if the run is to learn a denser plan for the column whose usual plan was found. */
static bool learns_for_column(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    if (course->gain_s <= 0)
        return false;
    course->learns_for = sw_plan_cache_wish_denser(&p->plans, course->plan_key, &course->plan_choice, course->gain_s,
                                                   sw_dense_learning_s(p, now->raw_bytes));
    if (!course->learns_for)
        return false;
    course->plan_key |= SW_PLAN_KEY_DENSE;
    course->plan_choice = (struct sw_plan_choice){0};
    return true;
}

bool sw_planner_begin(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    const enum sw_dense dense = sw_dense_choose(p, course->plan_key, now, &course->gain_s);
    if (dense == SW_DENSE_WAITS || dense == SW_DENSE_KEPT)
        course->plan_key |= SW_PLAN_KEY_DENSE;
    if (dense == SW_DENSE_LATER)
        course->learning = SW_LEARNING_WANTED;
    course->never_waits = dense == SW_DENSE_KEPT;
    const struct sw_plan_query query = query_of(course, now, now->n_dealt);
    const bool is_denser = begins_denser(p, course, now);
    enum sw_plan_found found = is_denser ? SW_PLAN_USABLE : sw_planner_find(p, &query, course->plan);
    if (found == SW_PLAN_DUE && dense == SW_DENSE_KEPT) {
        course->learning = SW_LEARNING_WANTED;
        found = SW_PLAN_USABLE;
    }
    switch (found) {
    case SW_PLAN_USABLE:
        if (!is_denser && learns_for_column(p, course, now))
            return false;
        course->plan_state = SW_PLAN_STATE_UNPROVEN;
        sw_planner_evaluate(p, course, now, now->n_dealt);
        return true;
    case SW_PLAN_DUE:
        compress_partially_meanwhile(p, course, &query.what);
        return false;
    case SW_PLAN_NONE:
        return skip_planning(p, course, now);
    }
    return false;
}

/* ---- at its first frame ---- */

/* Continues with a plan that does not match, at the ratio that it reaches. */
static void accept(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                   const struct sw_frame_layout *frame) {
    course->plan_state = SW_PLAN_STATE_SETTLED;
    course->plan->expected_ratio = ratio_of(frame);
    if (now->n_dealt < now->n_chunks) {
        course->plan_number++; /* chunks under way had a higher estimate */
        sw_planner_evaluate(p, course, now, now->n_dealt);
    } else if (frame->codec == SW_CODEC_RAW) {
        course->reason = SW_COST_NO_GAIN;
    }
}

/* A pack is for room, and a plan that only saves time may leave much of it. So the region's first frame must shrink as
 * the plan's own first frame did. */
static bool plan_matches(const struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                         const struct sw_frame_layout *frame) {
    if (!now->is_pack)
        return !sw_planner_is_stale(course->plan, frame);
    const double seen = sw_plan_cache_seen(&p->plans, course->plan_key, &course->plan_choice),
                 ratio = data_ratio_of(frame);
    return ratio > (1 - ALIKE_PART) * seen && ratio < (1 + ALIKE_PART) * seen;
}

/* A run that does not wait for another dictionary: the new plan is a usual one, and a denser one is learned meanwhile.
 */
static void go_on_by_usual(struct sw_course *course) {
    course->never_waits = false;
    course->plan_key &= ~SW_PLAN_KEY_DENSE;
    course->plan_choice = (struct sw_plan_choice){0};
    course->n_retrained++;
    if (course->learning == SW_LEARNING_NONE)
        course->learning = SW_LEARNING_WANTED;
}

enum sw_plan_mismatch sw_planner_check_frame(struct sw_planner *p, struct sw_course *course,
                                             const struct sw_snapshot *now, unsigned plan_number,
                                             const struct sw_frame_layout *frame) {
    const bool is_by_current = plan_number == course->plan_number;
    if (course->plan_state != SW_PLAN_STATE_UNPROVEN) {
        if (is_by_current)
            sw_plan_cache_saw(&p->plans, course->plan_key, &course->plan_choice, course->plan, data_ratio_of(frame));
        return SW_MISMATCH_ACCEPT;
    }
    if (plan_matches(p, course, now, frame)) {
        if (is_by_current && course->plan->codec != SW_CODEC_RAW) {
            sw_plan_cache_note_match(&p->plans, course->plan_key, &course->plan_choice);
            course->plan_state = SW_PLAN_STATE_SETTLED;
        }
        return SW_MISMATCH_ACCEPT;
    }
    if (!is_by_current) /* another plan is being tried already */
        return SW_MISMATCH_RETRY;
    const struct sw_plan_query query =
        query_of(course, now, now->n_encoded); /* includes the chunks under way by that plan */
    const enum sw_plan_mismatch mismatch = sw_planner_handle_mismatch(p, &query, frame, course->plan);
    if (mismatch == SW_MISMATCH_RETRY) {
        (void)takes_denser(p, course);
        course->plan_number++;
        sw_planner_evaluate(p, course, now, now->n_encoded);
    } else if (mismatch == SW_MISMATCH_ACCEPT) {
        accept(p, course, now, frame);
    } else if (course->never_waits) {
        go_on_by_usual(course);
    }
    return mismatch;
}

bool sw_planner_learns_beside(const struct sw_planner *p, const struct sw_course *course,
                              const struct sw_snapshot *now) {
    return sw_plan_key_is_dense(course->plan_key) && course->plan->dictionary && !is_for_room(now) && p->n_slots > 1;
}

void sw_planner_handle_drift(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                             const struct sw_frame_layout *frame) {
    const struct sw_workload rest = part_of(now, now->n_dealt);
    struct sw_cost_answer answer;
    struct sw_cost_question question = sw_planner_ask(p, &rest, course->plan->codec, course->plan->expected_ratio);
    question.plan_s = plan_s_of(p, course->plan_key);
    if (counts_time(p, is_for_room(now)) && sw_cost_is_hopeless(&question, &answer)) {
        accept(p, course, now, frame);
        return;
    }
    course->n_retrained++;
    if (!sw_planner_learns_beside(p, course, now)) {
        course->plan_state = SW_PLAN_STATE_MISSING;
        return;
    }
    accept(p, course, now, frame);
    if (course->learning == SW_LEARNING_NONE)
        course->learning = SW_LEARNING_WANTED;
}

/* ---- the next step ---- */

/* Returns true if the next chunk goes directly, as raw chunks do. Now and then one chunk of a short region goes by
 * kernels instead, to measure them. */
static bool goes_directly(struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                          uint64_t step_bytes) {
    const uint64_t left = now->raw_bytes - now->n_dealt * now->chunk_bytes,
                   raw_bytes = left < now->chunk_bytes ? left : now->chunk_bytes;
    struct sw_cost_class *costs = sw_planner_costs(p, raw_bytes, false);
    if (now->is_pack)
        return false;
    if (course->is_mixed)
        return !now->has_copying; /* one slot copies, the others encode */
    if (!course->is_direct || course->plan->codec != SW_CODEC_RAW)
        return false;
    return sw_cost_is_long(now->raw_bytes) || !costs || !sw_cost_probe_kernels_out(costs, raw_bytes, step_bytes);
}

enum sw_step sw_planner_next_step(struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                                  uint64_t step_bytes) {
    if (now->n_dealt == now->n_chunks)
        return SW_STEP_WAIT;
    if (now->is_running && course->plan_state == SW_PLAN_STATE_MISSING)
        return SW_STEP_PLAN;
    return goes_directly(p, course, now, step_bytes) ? SW_STEP_COPY : SW_STEP_ENCODE;
}

/* Returns true if raw frames come back directly, whatever was measured: those of long regions, and all where there is
 * no link: a direct chunk is copied once, one that is loaded and decoded three times. */
static bool always_restores_directly(const struct sw_planner *p, const struct sw_snapshot *now) {
    return !p->has_link || sw_cost_is_long(now->raw_bytes);
}

static enum sw_restore_path choose_restore_path(struct sw_planner *p, const struct sw_course *course,
                                                const struct sw_snapshot *now, uint64_t raw_bytes) {
    struct sw_cost_class *costs = sw_planner_costs(p, raw_bytes, false);
    if (always_restores_directly(p, now))
        return SW_RESTORE_PATH_DIRECT;
    if (!costs)
        return SW_RESTORE_PATH_KERNELS;
    const struct sw_cost_rates rates = sw_planner_rates(p, raw_bytes, false);
    /* Beside frames of other codecs nothing is measured. */
    if (sw_cost_restores_directly(&rates) || (!course->is_mixed && sw_cost_probe_direct_back(costs, now->raw_bytes)))
        return SW_RESTORE_PATH_DIRECT;
    return SW_RESTORE_PATH_KERNELS;
}

enum sw_step sw_planner_next_step_back(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                                       uint64_t raw_bytes, uint64_t step_bytes) {
    struct sw_cost_class *costs = sw_planner_costs(p, raw_bytes, false);
    if (course->restore_path == SW_RESTORE_PATH_OPEN)
        course->restore_path = choose_restore_path(p, course, now, raw_bytes);
    if (course->restore_path == SW_RESTORE_PATH_KERNELS)
        return SW_STEP_ENCODE;
    return always_restores_directly(p, now) || !costs || !sw_cost_probe_kernels_back(costs, raw_bytes, step_bytes)
               ? SW_STEP_COPY
               : SW_STEP_ENCODE;
}

void sw_planner_take_plan(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first,
                          const struct sw_plan *plan) {
    *course->plan = *plan;
    course->plan_state = SW_PLAN_STATE_SETTLED;
    sw_plan_cache_put(&p->plans, course->plan_key, now->raw_bytes, &course->plan_choice, plan);
    if (course->learns_for)
        sw_plan_cache_link(&p->plans, course->plan_key & ~SW_PLAN_KEY_DENSE, course->learns_for, &course->plan_choice,
                           plan);
    if (first < now->n_chunks) /* otherwise the plan came too late for this run */
        sw_planner_evaluate(p, course, now, first);
    course->plan_number++;
}

/* ---- a denser plan, learned meanwhile ---- */

bool sw_planner_learns_now(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    const struct sw_workload rest = part_of(now, now->n_dealt);
    enum sw_dense_rest answer;
    if (course->learning != SW_LEARNING_WANTED || !now->is_running || course->plan_state == SW_PLAN_STATE_MISSING ||
        now->n_dealt == 0 || now->n_dealt == now->n_chunks)
        return false;
    /* Bytes that no symbols shrink have no long ones either; and another run may have learned one by now. */
    if (course->plan->codec == SW_CODEC_RAW || (!sw_plan_key_is_dense(course->plan_key) && course->n_retrained == 0 &&
                                                sw_dense_is_kept(p, course->plan_key, now->raw_bytes)))
        answer = SW_DENSE_REST_NOT;
    else
        answer = sw_dense_ask_rest(p, course->plan_key, &rest, course->plan);
    if (answer == SW_DENSE_REST_NOT)
        course->learning = SW_LEARNING_NONE;
    return answer == SW_DENSE_REST_LEARNS;
}

void sw_planner_take_denser(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                            const struct sw_plan *plan) {
    const struct sw_workload rest = part_of(now, now->n_dealt);
    struct sw_plan_choice choice =
        sw_plan_key_is_dense(course->plan_key) ? course->plan_choice : (struct sw_plan_choice){0};
    course->learning = SW_LEARNING_NONE;
    if (now->is_running && course->plan_state != SW_PLAN_STATE_MISSING && now->n_dealt < now->n_chunks &&
        sw_dense_pays(p, &rest, course->plan, plan)) {
        course->plan_key |= SW_PLAN_KEY_DENSE;
        course->plan_choice = choice;
        sw_planner_take_plan(p, course, now, now->n_dealt, plan);
    } else {
        sw_plan_cache_put(&p->plans, course->plan_key | SW_PLAN_KEY_DENSE, now->raw_bytes, &choice, plan);
    }
}
