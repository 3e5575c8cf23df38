/* planner.c - by which plan a run goes: one of its session's that are kept, a new one, or none.
 *
 * A plan that is kept is used as long as a new one would cost more than a small part of the time that its regions have
 * taken since. The first frame that it makes of a region tells whether it suits the bytes. If it does not, the
 * session's other plans are tried, where that costs less than it may win; then the frame is accepted as it is, and what
 * was lost by that is noted, until as much has been lost as a new plan costs. So neither new columns nor columns in
 * turn make spills slower than raw ones by more than a part of what they win. */
#include "spill/planner/planner.h"

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

void sw_planner_set_segments(const struct sw_planner *p, struct sw_plan *plan, uint64_t chunk_bytes) {
    if (sw_codec_has_segments(plan->codec))
        plan->segment_log2 = sw_rules_segment_log2(chunk_bytes, p->full_segments, plan->segment_log2);
}

/* ---- rates ---- */

struct sw_cost_class *sw_planner_costs(struct sw_planner *p, uint64_t chunk_bytes, bool is_group) {
    const int class = sw_cost_class(chunk_bytes);
    return class < 0 ? NULL : &(is_group ? p->group_costs : p->costs)[class];
}

struct sw_cost_rates sw_planner_rates(struct sw_planner *p, uint64_t chunk_bytes, bool is_group) {
    const struct sw_cost_class *costs = sw_planner_costs(p, chunk_bytes, is_group);
    struct sw_cost_rates rates = {0};
    if (costs)
        sw_cost_class_rates(costs, &rates);
    return rates;
}

/* Where a frame of so many bytes would come to rest: 0 memory, i a place behind it, -1 nowhere. */
static int place_of(const struct sw_room *room, uint64_t bytes) {
    if (bytes <= room->memory_bytes)
        return 0;
    for (unsigned i = 0; i < room->n_behind; i++)
        if (bytes <= room->behind[i].bytes)
            return (int)i + 1;
    return -1;
}

/* Where the run's frames would go, and how fast that place is, if it is behind memory. */
static void ask_room(const struct sw_room *room, struct sw_cost_question *q) {
    const int raw = place_of(room, q->raw_bytes);
    const int coded = place_of(room, (uint64_t)((double)q->raw_bytes / q->expected_ratio));
    q->to_disk = coded > 0;
    q->room_is_short = raw < 0 || raw != coded || q->raw_bytes > room->allowed_bytes;
    if (q->to_disk) {
        q->rates.disk_write = room->behind[coded - 1].write;
        q->rates.disk_read = room->behind[coded - 1].read;
    }
}

struct sw_cost_question sw_planner_ask(struct sw_planner *p, const struct sw_weighed *what, enum sw_codec_id codec,
                                       double expected_ratio) {
    struct sw_cost_question question = {.codec = codec,
                                        .expected_ratio = expected_ratio,
                                        .raw_bytes = what->raw_bytes,
                                        .n_chunks = what->n_chunks,
                                        .n_slots = p->n_slots,
                                        .rates = sw_planner_rates(p, what->chunk_bytes, what->shares_step)};
    if (what->shares_slots)
        sw_cost_share_slots(&question);
    ask_room(what->room, &question);
    return question;
}

void sw_planner_observe_plan(struct sw_planner *p, uint64_t us) {
    const double s = (double)us / 1e6;
    p->plan_s = p->plan_s > 0 ? (3 * p->plan_s + s) / 4 : s;
}

/* ---- is it worth it ---- */

/* Of the codecs that would do for numbers the sample's choice shrinks them most; another one may take less time. */
static struct sw_cost_question ask_of_plan(struct sw_planner *p, const struct sw_weighed *what, struct sw_plan *plan) {
    struct sw_cost_question best = sw_planner_ask(p, what, plan->codec, plan->expected_ratio);
    /* Where room is short the densest one stands: a looser one might find none. */
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

/* Where a retry is weighed it is not NULL: of chunks that short no rates are known, so that a coded plan stands. */
static struct sw_cost_class *costs_of(struct sw_planner *p, const struct sw_weighed *what) {
    return sw_planner_costs(p, what->chunk_bytes, what->shares_step);
}

static bool probes_link(struct sw_planner *p, const struct sw_weighed *what, enum sw_codec_id codec,
                        const struct sw_cost_answer *answer) {
    struct sw_cost_class *costs = costs_of(p, what);
    return answer->reason == SW_COST_IN_PART &&
           sw_contention_probes_link(&costs->probes, &costs->direct_out, answer->times[codec].out_s,
                                     answer->times[SW_CODEC_RAW].out_s);
}

struct sw_verdict sw_planner_decide(struct sw_planner *p, bool is_pack, const struct sw_weighed *what, bool may_retry,
                                    struct sw_plan *plan) {
    struct sw_cost_answer answer;
    /* Packing, or without a link, it is done for the room: time does not count. */
    if (is_pack || !p->has_link)
        return (struct sw_verdict){.reason = plan->codec == SW_CODEC_RAW ? SW_COST_NO_GAIN : SW_COST_ROOM};
    const struct sw_cost_question question = ask_of_plan(p, what, plan);
    sw_cost_choose(&question, &answer);
    if (probes_link(p, what, question.codec, &answer)) {
        sw_plan_init_raw(plan);
        return (struct sw_verdict){.reason = SW_COST_RETRY, .is_direct = true};
    }
    if (answer.codec != SW_CODEC_RAW)
        return (struct sw_verdict){.reason = answer.reason, .is_mixed = answer.reason == SW_COST_IN_PART};
    if (answer.reason != SW_COST_NO_GAIN &&
        (may_retry || sw_cost_probe_encoding(costs_of(p, what), &question, &answer)))
        return (struct sw_verdict){.reason = SW_COST_RETRY,
                                   .is_direct = answer.direct,
                                   .is_mixed =
                                       sw_contention_probes_in_part(&question, answer.reason == SW_COST_ENCODER)};
    sw_plan_init_raw(plan);
    return (struct sw_verdict){.reason = answer.reason, .is_direct = answer.direct};
}

/* A run from its chunk `first` on. */
static struct sw_weighed part_of(const struct sw_snapshot *now, size_t first) {
    return (struct sw_weighed){.raw_bytes = now->raw_bytes - first * now->chunk_bytes,
                               .chunk_bytes = now->n_chunks > 1 ? now->chunk_bytes : now->raw_bytes,
                               .n_chunks = now->n_chunks - first,
                               .room = &now->room,
                               .shares_slots = now->shares_slots};
}

/* It looks for a plan for that part. */
static struct sw_plan_query query_of(struct sw_course *course, const struct sw_snapshot *now, size_t first) {
    return (struct sw_plan_query){.is_pack = now->is_pack,
                                  .what = part_of(now, first),
                                  .key = course->plan_key,
                                  .bytes = now->raw_bytes,
                                  .choice = &course->plan_choice};
}

void sw_planner_weigh(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first) {
    const struct sw_weighed rest = part_of(now, first);
    const struct sw_verdict verdict =
        sw_planner_decide(p, now->is_pack, &rest, course->trial == SW_TRIAL_WANTED, &course->plan);
    course->reason = verdict.reason;
    course->is_direct = verdict.is_direct;
    course->is_mixed = verdict.is_mixed;
    course->trial = verdict.reason == SW_COST_RETRY && course->plan.codec != SW_CODEC_RAW && !verdict.is_mixed
                        ? SW_TRIAL_NEXT_CHUNK
                        : SW_TRIAL_NONE;
}

void sw_planner_weigh_again(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    /* As if it began: what is left alone would have the slots to fill once more. */
    const struct sw_weighed all = part_of(now, 0);
    struct sw_cost_answer answer;
    if (now->is_pack || (course->reason != SW_COST_PAYS && course->reason != SW_COST_UNKNOWN) || !now->is_running ||
        course->plan_state == SW_PLAN_STATE_MISSING || now->n_dealt == now->n_chunks || !p->has_link)
        return;
    const struct sw_cost_question question = sw_planner_ask(p, &all, course->plan.codec, course->plan.expected_ratio);
    if (!sw_cost_stops_paying(&question, &answer))
        return;
    course->reason = answer.reason;
    course->is_mixed = answer.reason == SW_COST_IN_PART;
    if (course->is_mixed)
        return;
    sw_plan_init_raw(&course->plan);
    course->plan_number++; /* what is under way says nothing about this one */
    course->is_direct = answer.direct;
}

/* ---- plans that are kept ---- */

static bool counts_time(const struct sw_planner *p, bool is_pack) {
    return !is_pack && p->has_link;
}

/* A time in prices of a plan. While either is not known: of short regions a little, of others one. */
static double in_plans(const struct sw_planner *p, double part, double s, uint64_t raw_bytes) {
    if (s > 0 && p->plan_s > 0)
        return part * s / p->plan_s;
    return raw_bytes <= SHORT_BYTES ? 1.0 / SHORT_USES : 1;
}

enum sw_plan_found sw_planner_find(struct sw_planner *p, const struct sw_plan_query *query, struct sw_plan *ret) {
    const struct sw_weighed *what = &query->what;
    const struct sw_plan *plan = sw_plan_cache_find(&p->plans, query->key, query->bytes, query->choice);
    struct sw_cost_answer answer;
    if (!plan)
        return SW_PLAN_NONE;
    *ret = *plan;
    const struct sw_cost_question question = sw_planner_ask(p, what, plan->codec, plan->expected_ratio);
    const double rate = question.rates.encode[plan->codec];
    double s = rate > 0 ? (double)what->raw_bytes / rate : 0; /* where only the room counts */
    if (counts_time(p, query->is_pack)) {
        sw_cost_choose(&question, &answer);
        if (answer.codec == SW_CODEC_RAW)
            return SW_PLAN_USABLE; /* it would not pay now, whoever's it is */
        s = answer.times[plan->codec].out_s;
        if (s <= 0) /* that codec has not been measured yet */
            s = answer.times[SW_CODEC_RAW].out_s;
    }
    const double part = in_plans(p, PLAN_PART, s, what->raw_bytes);
    return sw_plan_cache_use(&p->plans, query->key, query->choice, part) ? SW_PLAN_USABLE : SW_PLAN_DUE;
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
static bool may_try(struct sw_planner *p, const struct sw_plan_query *query, const struct sw_cost_question *q,
                    const struct sw_frame_layout *frame) {
    const struct sw_weighed *what = &query->what;
    const bool looks_raw = ratio_of(frame) < LEAST_RATIO;
    const int n_tried = __builtin_popcount(query->choice->tried);
    /* What is under way is encoded again, too. */
    const double n_chunks = (double)(what->n_chunks < p->n_slots ? what->n_chunks : p->n_slots),
                 rate = q->rates.encode[q->codec], cost_s = rate > 0 ? n_chunks * (double)frame->raw_bytes / rate : 0,
                 gain_s = counts_time(p, query->is_pack) ? lost_s(q, ratio_of(frame)) : p->plan_s;
    if (n_tried == 1 && (what->shares_step || (what->raw_bytes <= SHORT_BYTES && !looks_raw)))
        return true;
    return looks_raw ? sw_plan_cache_stakes(&p->plans, query->key, query->choice, cost_s, gain_s)
                     : n_tried * cost_s < gain_s * TRY_PART || cost_s <= 0;
}

/* One that promises more than the bytes have shrunk. */
static bool find_other(struct sw_planner *p, const struct sw_plan_query *query, double ratio, struct sw_plan *ret) {
    const struct sw_plan *other;
    while ((other = sw_plan_cache_find(&p->plans, query->key, query->bytes, query->choice)) != NULL) {
        if (other->expected_ratio > ratio)
            return sw_planner_find(p, query, ret) != SW_PLAN_NONE;
        sw_plan_cache_misfits(query->choice);
    }
    return false;
}

bool sw_planner_is_stale(const struct sw_plan *plan, const struct sw_frame_layout *frame) {
    return plan->codec != SW_CODEC_RAW &&
           sw_rules_plan_is_stale(sw_plan_data_ratio(plan), frame->raw_bytes, frame->frame_bytes - frame->data_offset,
                                  plan->value_type != SW_VALUE_NONE);
}

enum sw_misfit sw_planner_misfits(struct sw_planner *p, const struct sw_plan_query *query,
                                  const struct sw_frame_layout *frame, struct sw_plan *plan) {
    const struct sw_weighed *what = &query->what;
    const struct sw_cost_question question = sw_planner_ask(p, what, plan->codec, plan->expected_ratio);
    const double ratio = ratio_of(frame);
    struct sw_cost_answer answer;
    struct sw_plan other;
    sw_plan_cache_misfits(query->choice);
    if (may_try(p, query, &question, frame) && find_other(p, query, ratio, &other)) {
        *plan = other;
        return SW_MISFIT_AGAIN;
    }
    if (!counts_time(p, query->is_pack) || question.room_is_short)
        return SW_MISFIT_PLAN;
    sw_cost_choose(&question, &answer);
    const double lost = in_plans(p, ratio < LEAST_RATIO ? DOUBT_PART : 1, lost_s(&question, ratio), what->raw_bytes);
    const bool pays = answer.codec != SW_CODEC_RAW;
    return sw_plan_cache_forgo(&p->plans, query->key, query->choice, pays, lost) ? SW_MISFIT_PLAN : SW_MISFIT_ACCEPT;
}

/* Of the codecs of that type, the one that has lately encoded fastest. Those that have not been measured do not count
 * beside others: which suit no column never will be. */
static enum sw_codec_id fastest_codec(struct sw_planner *p, const struct sw_weighed *what, enum sw_value_type type) {
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

/* Chunks of a region in part, or of one that would go directly as a whole, go directly while its plan is being made:
 * there have to be some left. */
static bool outlasts_plan(const struct sw_planner *p, const struct sw_cost_answer *answer) {
    return 2 * p->plan_s <= answer->times[SW_CODEC_RAW].out_s;
}

/* ---- at a run's beginning ---- */

/* True if making a plan could not pay, by what the session's last ones promised. */
static bool turn_away(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    const struct sw_weighed rest = part_of(now, now->n_dealt);
    struct sw_cost_answer answer;
    if (!counts_time(p, now->is_pack) || !costs_of(p, &rest))
        return false;
    const double promise = sw_plan_cache_promise(&p->plans, course->plan_key);
    const bool is_typed = now->type != SW_VALUE_NONE;
    struct sw_cost_question question = sw_planner_ask(p, &rest, fastest_codec(p, &rest, now->type),
                                                      promise > 0 ? promise
                                                      : is_typed  ? MOST_NUMBERS_RATIO
                                                                  : SW_PLAN_MOST_BYTES_RATIO);
    bool hopeless = sw_cost_is_hopeless(&question, &answer);
    course->is_mixed = answer.reason == SW_COST_IN_PART;
    course->reason = SW_COST_ENCODER; /* should all chunks have gone before there is a plan */
    question.plan_s = p->plan_s;
    if (!hopeless && promise > 0) {
        hopeless = sw_cost_is_hopeless(&question, &answer);
        if (course->is_mixed)
            hopeless = !outlasts_plan(p, &answer);
    }
    if (!hopeless)
        return false;
    course->is_mixed = false;
    course->reason = answer.reason == SW_COST_IN_PART ? SW_COST_ENCODER : answer.reason; /* with its plan */
    if (sw_cost_probe_encoding(costs_of(p, &rest), &question, &answer)) {
        course->trial = SW_TRIAL_WANTED;
        course->is_mixed = sw_contention_can_go_in_part(&question) && outlasts_plan(p, &answer);
        return false;
    }
    sw_plan_init_raw(&course->plan);
    course->plan_state = SW_PLAN_STATE_SETTLED;
    course->is_direct = answer.direct;
    return true;
}

/* Of a run whose kept plan is due. */
static void goes_in_part_meanwhile(struct sw_planner *p, struct sw_course *course, const struct sw_weighed *rest) {
    const struct sw_cost_question question = sw_planner_ask(p, rest, course->plan.codec, course->plan.expected_ratio);
    struct sw_cost_answer answer;
    sw_cost_choose(&question, &answer);
    course->is_mixed = answer.reason == SW_COST_IN_PART && outlasts_plan(p, &answer);
    course->reason = SW_COST_ENCODER; /* should all chunks have gone before there is a plan */
}

bool sw_planner_begin(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now) {
    const struct sw_plan_query query = query_of(course, now, now->n_dealt);
    switch (sw_planner_find(p, &query, &course->plan)) {
    case SW_PLAN_USABLE:
        course->plan_state = SW_PLAN_STATE_UNPROVEN;
        sw_planner_weigh(p, course, now, now->n_dealt);
        return true;
    case SW_PLAN_DUE:
        goes_in_part_meanwhile(p, course, &query.what);
        return false;
    case SW_PLAN_NONE:
        return turn_away(p, course, now);
    }
    return false;
}

/* ---- at its first frame ---- */

/* Goes on by a plan that does not suit, as far as that shrinks. */
static void accept(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                   const struct sw_frame_layout *frame) {
    course->plan_state = SW_PLAN_STATE_SETTLED;
    course->plan.expected_ratio = ratio_of(frame);
    if (now->n_dealt < now->n_chunks) {
        course->plan_number++; /* what is under way was promised more */
        sw_planner_weigh(p, course, now, now->n_dealt);
    } else if (frame->codec == SW_CODEC_RAW) {
        course->reason = SW_COST_NO_GAIN;
    }
}

/* For packing room counts, and a plan that is only good enough for time may leave much of it: the region's bytes have
 * to be as the plan's own. */
static bool suits(const struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                  const struct sw_frame_layout *frame) {
    if (!now->is_pack)
        return !sw_planner_is_stale(&course->plan, frame);
    const double seen = sw_plan_cache_seen(&p->plans, course->plan_key, &course->plan_choice),
                 ratio = data_ratio_of(frame);
    return ratio > (1 - ALIKE_PART) * seen && ratio < (1 + ALIKE_PART) * seen;
}

enum sw_misfit sw_planner_judge(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                                unsigned plan_number, const struct sw_frame_layout *frame) {
    const bool is_by_current = plan_number == course->plan_number;
    if (course->plan_state != SW_PLAN_STATE_UNPROVEN) {
        if (is_by_current)
            sw_plan_cache_saw(&p->plans, course->plan_key, &course->plan_choice, &course->plan, data_ratio_of(frame));
        return SW_MISFIT_ACCEPT;
    }
    if (suits(p, course, now, frame)) {
        if (is_by_current && course->plan.codec != SW_CODEC_RAW) {
            sw_plan_cache_suits(&p->plans, course->plan_key, &course->plan_choice);
            course->plan_state = SW_PLAN_STATE_SETTLED;
        }
        return SW_MISFIT_ACCEPT;
    }
    if (!is_by_current) /* another plan is being tried since */
        return SW_MISFIT_AGAIN;
    const struct sw_plan_query query = query_of(course, now, now->n_encoded); /* what is under way by that plan, too */
    const enum sw_misfit misfit = sw_planner_misfits(p, &query, frame, &course->plan);
    if (misfit == SW_MISFIT_AGAIN) {
        course->plan_number++;
        sw_planner_weigh(p, course, now, now->n_encoded);
    } else if (misfit == SW_MISFIT_ACCEPT) {
        accept(p, course, now, frame);
    }
    return misfit;
}

void sw_planner_drifts(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                       const struct sw_frame_layout *frame) {
    const struct sw_weighed rest = part_of(now, now->n_dealt);
    struct sw_cost_answer answer;
    struct sw_cost_question question = sw_planner_ask(p, &rest, course->plan.codec, course->plan.expected_ratio);
    question.plan_s = p->plan_s;
    if (counts_time(p, now->is_pack) && sw_cost_is_hopeless(&question, &answer)) {
        accept(p, course, now, frame);
        return;
    }
    course->plan_state = SW_PLAN_STATE_MISSING;
    course->n_retrained++;
}

/* ---- the next step ---- */

/* Of raw chunks, but those of short regions now and then, to see how fast the kernels are. */
static bool goes_directly(struct sw_planner *p, const struct sw_course *course, const struct sw_snapshot *now,
                          uint64_t step_bytes) {
    const uint64_t left = now->raw_bytes - now->n_dealt * now->chunk_bytes,
                   raw_bytes = left < now->chunk_bytes ? left : now->chunk_bytes;
    struct sw_cost_class *costs = sw_planner_costs(p, raw_bytes, false);
    if (now->is_pack)
        return false;
    if (course->is_mixed)
        return !now->has_copying; /* one slot does, all others encode */
    if (!course->is_direct || course->plan.codec != SW_CODEC_RAW)
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

static enum sw_way_back choose_way_back(struct sw_planner *p, const struct sw_course *course,
                                        const struct sw_snapshot *now, uint64_t raw_bytes) {
    struct sw_cost_class *costs = sw_planner_costs(p, raw_bytes, false);
    if (!p->has_link)
        return SW_WAY_BACK_KERNELS;
    if (sw_cost_is_long(now->raw_bytes))
        return SW_WAY_BACK_DIRECT;
    if (!costs)
        return SW_WAY_BACK_KERNELS;
    const struct sw_cost_rates rates = sw_planner_rates(p, raw_bytes, false);
    /* Beside frames of other codecs nothing is measured. */
    if (sw_cost_restores_directly(&rates) || (!course->is_mixed && sw_cost_probe_direct_back(costs, now->raw_bytes)))
        return SW_WAY_BACK_DIRECT;
    return SW_WAY_BACK_KERNELS;
}

enum sw_step sw_planner_next_step_back(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now,
                                       uint64_t raw_bytes, uint64_t step_bytes) {
    struct sw_cost_class *costs = sw_planner_costs(p, raw_bytes, false);
    if (course->way_back == SW_WAY_BACK_OPEN)
        course->way_back = choose_way_back(p, course, now, raw_bytes);
    if (course->way_back == SW_WAY_BACK_KERNELS)
        return SW_STEP_ENCODE;
    return sw_cost_is_long(now->raw_bytes) || !costs || !sw_cost_probe_kernels_back(costs, raw_bytes, step_bytes)
               ? SW_STEP_COPY
               : SW_STEP_ENCODE;
}

void sw_planner_take_plan(struct sw_planner *p, struct sw_course *course, const struct sw_snapshot *now, size_t first,
                          const struct sw_plan *plan) {
    course->plan = *plan;
    course->plan_state = SW_PLAN_STATE_SETTLED;
    sw_plan_cache_put(&p->plans, course->plan_key, now->raw_bytes, &course->plan_choice, plan);
    if (first < now->n_chunks) /* else it came too late for this one */
        sw_planner_weigh(p, course, now, first);
    course->plan_number++;
}
