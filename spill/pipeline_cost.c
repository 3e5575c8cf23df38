/* pipeline_cost.c - what a pipeline measures of its stages, and what it asks cost.h about a job. */
#include "spill/pipeline_state.h"

#include "base/clock.h"

#define MOST_NUMBERS_RATIO 1000 /* of equal ones */

static struct sw_meter *find_meter(struct sw_cost_class *c, enum sw_stage_kind stage, enum sw_codec_id codec) {
    switch (stage) {
    case SW_STAGE_ENCODE:
        return &c->encode[codec];
    case SW_STAGE_LINK_OUT:
        return &c->link_out;
    case SW_STAGE_RESTORE:
        return &c->restore[codec];
    case SW_STAGE_DIRECT_OUT:
        return &c->direct_out;
    case SW_STAGE_DIRECT_BACK:
        return &c->direct_back;
    }
    return NULL;
}

void sw_measure_begin(struct sw_pipeline *p, struct sw_slot *slot, enum sw_stage_kind stage, enum sw_codec_id codec,
                      uint64_t raw_bytes, uint64_t bytes) {
    const int class = sw_cost_class(raw_bytes);
    if (class < 0)
        return;
    slot->measure = (struct sw_slot_measure){.meter = find_meter(&p->costs[class], stage, codec),
                                             .is_coder = stage == SW_STAGE_ENCODE && codec != SW_CODEC_RAW,
                                             .begun_us = sw_clock_us(),
                                             .bytes = bytes};
    sw_meter_begin(slot->measure.meter, slot->measure.begun_us);
}

/* Its chunk is compressed, and will have the link, or has it. */
static bool is_compressing(const struct sw_slot *slot) {
    return (slot->state == SW_SLOT_ENCODING && slot->measure.is_coder) ||
           (slot->state == SW_SLOT_STORING && slot->frame.codec != SW_CODEC_RAW);
}

bool sw_shares_link(const struct sw_pipeline *p, const struct sw_slot *slot) {
    const bool is_direct = slot->direct.n > 0;
    if (slot->job->is_mixed)
        return true;
    for (unsigned s = 0; s < p->n_slots; s++) {
        const struct sw_slot *other = &p->slots[s];
        if (other == slot || other->job != slot->job)
            continue;
        if (is_direct ? is_compressing(other) || (other->direct.n > 0 && !other->measure.meter) : other->direct.n > 0)
            return true;
    }
    return false;
}

void sw_measure_end(struct sw_pipeline *p, struct sw_slot *slot, bool counts) {
    struct sw_slot_measure *measure = &slot->measure;
    if (!measure->meter)
        return;
    /* While the worker slept on another slot this one may have ended long ago. */
    counts = counts && measure->begun_us >= p->woke_us;
    sw_meter_end(measure->meter, sw_clock_us(), counts ? measure->bytes : 0);
    measure->meter = NULL;
}

/* Where the job's frames would go, and how fast the disk is, if that is there. */
static void ask_placement(const struct sw_placement *place, struct sw_cost_question *q) {
    const enum sw_placement_room raw = sw_placement_room(place, q->raw_bytes);
    const enum sw_placement_room coded = sw_placement_room(place, (uint64_t)((double)q->raw_bytes / q->expected_ratio));
    struct sw_tier_stats stats = {0};
    q->to_disk = coded == SW_ROOM_DISK;
    q->room_is_short = raw == SW_ROOM_NONE || raw != coded;
    if (q->to_disk)
        place->nvme->ops->stats(place->nvme, &stats);
    q->rates.disk_write = (double)stats.write_bytes_per_s;
    q->rates.disk_read = (double)stats.read_bytes_per_s;
}

void sw_measure_plan(struct sw_pipeline *p, uint64_t us) {
    const double s = (double)us / 1e6;
    p->plan_s = p->plan_s > 0 ? (3 * p->plan_s + s) / 4 : s;
}

static bool has_link(const struct sw_pipeline *p) {
    return p->device->ops->info(p->device)->has_link;
}

/* Raw, they would exceed what the tenant may have. */
static bool is_too_much(struct sw_quota *quota, uint64_t raw_bytes) {
    return quota && quota->max_bytes && atomic_load(&quota->bytes) + raw_bytes > quota->max_bytes;
}

static struct sw_cost_question ask(const struct sw_pipeline *p, const struct sw_weighed *what, enum sw_codec_id codec,
                                   double expected_ratio) {
    const int class = sw_cost_class(what->chunk_bytes);
    struct sw_cost_question question = {.codec = codec,
                                        .expected_ratio = expected_ratio,
                                        .raw_bytes = what->raw_bytes,
                                        .n_chunks = what->n_chunks,
                                        .n_slots = p->n_slots};
    if (class >= 0)
        sw_cost_class_rates(&p->costs[class], &question.rates);
    ask_placement(p->place, &question);
    question.room_is_short |= is_too_much(what->quota, what->raw_bytes);
    return question;
}

/* Of the codecs that would do for numbers the sample's choice shrinks them most; another one may take less time. */
static struct sw_cost_question ask_of_plan(const struct sw_pipeline *p, const struct sw_weighed *what,
                                           struct sw_plan *plan) {
    struct sw_cost_question best = ask(p, what, plan->codec, plan->expected_ratio);
    /* Where room is short the densest one stands: a looser one might find none. */
    for (int codec = 0; !best.room_is_short && codec < SW_CODEC_NR; codec++) {
        if (plan->ratios[codec] <= 0)
            continue;
        const struct sw_cost_question other = ask(p, what, (enum sw_codec_id)codec, plan->ratios[codec]);
        if (sw_cost_is_quicker(&other, &best))
            best = other;
    }
    if (best.codec != plan->codec)
        sw_plan_switch(plan, best.codec);
    return best;
}

struct sw_verdict sw_plan_weigh(struct sw_pipeline *p, enum sw_job_kind kind, const struct sw_weighed *what,
                                bool may_retry, struct sw_plan *plan) {
    struct sw_cost_answer answer;
    /* Packing, or without a link, it is done for the room: time does not count. */
    if (kind != SW_JOB_SPILL || !has_link(p))
        return (struct sw_verdict){.reason = plan->codec == SW_CODEC_RAW ? SW_COST_NO_GAIN : SW_COST_ROOM};
    const struct sw_cost_question question = ask_of_plan(p, what, plan);
    sw_cost_choose(&question, &answer);
    if (answer.reason == SW_COST_IN_PART &&
        sw_cost_retry_link(&p->costs[sw_cost_class(what->chunk_bytes)], question.codec, &answer)) {
        sw_plan_init_raw(plan);
        return (struct sw_verdict){.reason = SW_COST_RETRY, .is_direct = true};
    }
    if (answer.codec != SW_CODEC_RAW)
        return (struct sw_verdict){.reason = answer.reason, .is_mixed = answer.reason == SW_COST_IN_PART};
    if (answer.reason != SW_COST_NO_GAIN &&
        (may_retry || sw_cost_retry(&p->costs[sw_cost_class(what->chunk_bytes)], &question, &answer)))
        return (struct sw_verdict){.reason = SW_COST_RETRY,
                                   .is_direct = answer.direct,
                                   .is_mixed = sw_cost_retries_in_part(&question, &answer)};
    sw_plan_init_raw(plan);
    return (struct sw_verdict){.reason = answer.reason, .is_direct = answer.direct};
}

/* A job from its chunk `first` on. */
static struct sw_weighed part_of(const struct sw_job *job, size_t first) {
    const struct sw_frames *frames = job->frames;
    return (struct sw_weighed){.raw_bytes = job->bytes - first * frames->chunk_bytes,
                               .chunk_bytes = frames->n_chunks > 1 ? frames->chunk_bytes : job->bytes,
                               .n_chunks = frames->n_chunks - first,
                               .quota = job->quota};
}

void sw_job_weigh(struct sw_pipeline *p, struct sw_job *job) {
    const struct sw_weighed rest = part_of(job, job->n_dealt);
    const struct sw_verdict verdict = sw_plan_weigh(p, job->kind, &rest, job->may_retry, &job->plan);
    job->reason = verdict.reason;
    job->is_direct = verdict.is_direct;
    job->is_mixed = verdict.is_mixed;
    job->is_retry = verdict.reason == SW_COST_RETRY && job->plan.codec != SW_CODEC_RAW && !verdict.is_mixed;
    job->may_retry = false;
}

void sw_job_weigh_again(struct sw_pipeline *p, struct sw_job *job) {
    /* As if it began: what is left alone would have the slots to fill once more. */
    const struct sw_weighed all = part_of(job, 0);
    struct sw_cost_answer answer;
    if (job->kind != SW_JOB_SPILL || (job->reason != SW_COST_PAYS && job->reason != SW_COST_UNKNOWN) ||
        job->stage != SW_STAGE_RUNNING || job->resample || job->n_dealt == job->frames->n_chunks || !has_link(p))
        return;
    const struct sw_cost_question question = ask(p, &all, job->plan.codec, job->plan.expected_ratio);
    if (!sw_cost_stops_paying(&question, &answer))
        return;
    job->reason = answer.reason;
    job->is_mixed = answer.reason == SW_COST_IN_PART;
    if (job->is_mixed)
        return;
    sw_plan_init_raw(&job->plan);
    job->plan_number++; /* what is under way says nothing about this one */
    job->is_direct = answer.direct;
}

/* Of the codecs of that type, the one that has lately encoded fastest. Those that have not been measured do not count
 * beside others: which suit no column never will be. */
static enum sw_codec_id fastest_codec(const struct sw_pipeline *p, const struct sw_weighed *what,
                                      enum sw_value_type type) {
    const int class = sw_cost_class(what->chunk_bytes);
    enum sw_codec_id best = SW_CODEC_V5T;
    double best_rate = 0;
    for (int codec = 0; type != SW_VALUE_NONE && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type))
            continue;
        const double rate = class < 0 ? 0 : sw_meter_rate(&p->costs[class].encode[codec]);
        if (rate > best_rate || best == SW_CODEC_V5T)
            best = (enum sw_codec_id)codec;
        best_rate = rate > best_rate ? rate : best_rate;
    }
    return best;
}

/* Chunks of a region in part go directly while its plan is being made: there have to be some left. */
static bool outlasts_plan(const struct sw_pipeline *p, const struct sw_cost_answer *answer) {
    return 2 * p->plan_s <= answer->times[SW_CODEC_RAW].out_s;
}

bool sw_job_turn_away(struct sw_pipeline *p, struct sw_job *job) {
    const struct sw_weighed rest = part_of(job, job->n_dealt);
    struct sw_cost_answer answer;
    if (job->kind != SW_JOB_SPILL || !has_link(p) || sw_cost_class(rest.chunk_bytes) < 0)
        return false;
    const double promise = sw_plan_cache_promise(&p->plans, job->plan_key);
    const bool is_typed = job->value_type != SW_VALUE_NONE;
    struct sw_cost_question question = ask(p, &rest, fastest_codec(p, &rest, job->value_type),
                                           promise > 0 ? promise
                                           : is_typed  ? MOST_NUMBERS_RATIO
                                                       : SW_V5T_MAX_SYMBOL_BYTES);
    bool hopeless = sw_cost_is_hopeless(&question, &answer);
    job->is_mixed = answer.reason == SW_COST_IN_PART;
    job->reason = SW_COST_ENCODER; /* should all chunks have gone before there is a plan */
    question.plan_s = p->plan_s / (sw_plan_cache_is_used_up(&p->plans, job->plan_key) ? SW_PLAN_MAX_USES : 1);
    if (!hopeless && promise > 0) {
        hopeless = sw_cost_is_hopeless(&question, &answer);
        if (hopeless && sw_plan_cache_use(&p->plans, job->plan_key, &job->plan)) {
            job->plan_is_cached = true;
            sw_job_weigh(p, job);
            return true;
        }
        if (job->is_mixed)
            hopeless = !outlasts_plan(p, &answer);
    }
    if (!hopeless)
        return false;
    job->may_retry = sw_cost_retry(&p->costs[sw_cost_class(rest.chunk_bytes)], &question, &answer);
    job->is_mixed = job->may_retry && sw_cost_retries_in_part(&question, &answer) && outlasts_plan(p, &answer);
    if (job->may_retry)
        return false;
    sw_plan_init_raw(&job->plan);
    job->reason = answer.reason == SW_COST_IN_PART ? SW_COST_ENCODER : answer.reason; /* with its plan */
    job->is_direct = answer.direct;
    return true;
}

struct sw_policy_stages sw_job_stages(struct sw_pipeline *p, const struct sw_job *job) {
    const struct sw_frames *frames = job->frames;
    const bool is_back = job->kind == SW_JOB_RESTORE;
    const double raw = (double)sw_frames_chunk_bytes(frames, job->n_dealt),
                 stored = is_back ? (double)frames->layouts[job->n_dealt].frame_bytes : raw / job->plan.expected_ratio;
    const enum sw_codec_id codec = is_back ? frames->layouts[job->n_dealt].codec : job->plan.codec;
    const int class = sw_cost_class((uint64_t)raw);
    struct sw_cost_rates rates = {0};
    if (class >= 0)
        sw_cost_class_rates(&p->costs[class], &rates);
    const double coder = is_back ? rates.restore[codec] : rates.encode[codec];
    if (coder <= 0 || rates.link_out <= 0)
        return (struct sw_policy_stages){0};
    const double coder_s = raw / coder, link_s = stored / rates.link_out;
    if (!is_back)
        return (struct sw_policy_stages){coder_s, link_s};
    /* Loading and decoding are measured as one; the link is as fast in both directions. */
    return (struct sw_policy_stages){link_s, coder_s > link_s ? coder_s - link_s : 0};
}

bool sw_moves_directly(const struct sw_pipeline *p, const struct sw_job *job) {
    for (unsigned s = 0; s < p->n_slots; s++)
        if (p->slots[s].job == job && p->slots[s].direct.n > 0)
            return true;
    return false;
}

/* Raw bytes go directly, but those of short regions now and then, to see how fast the kernels are. */
bool sw_goes_directly(struct sw_pipeline *p, const struct sw_job *job, uint64_t raw_bytes, uint64_t step_bytes) {
    const int class = sw_cost_class(raw_bytes);
    if (job->kind == SW_JOB_SPILL && job->is_mixed)
        return !sw_moves_directly(p, job); /* one slot does, all others encode */
    if (job->kind != SW_JOB_SPILL || !job->is_direct || job->plan.codec != SW_CODEC_RAW)
        return false;
    return sw_cost_is_long(job->bytes) || class < 0 ||
           !sw_cost_retry_kernels_out(&p->costs[class], raw_bytes, step_bytes);
}

bool sw_comes_directly(struct sw_pipeline *p, uint64_t raw_bytes, uint64_t step_bytes) {
    const int class = sw_cost_class(raw_bytes);
    struct sw_cost_rates rates = {0};
    if (class < 0 || !has_link(p))
        return false;
    sw_cost_class_rates(&p->costs[class], &rates);
    return sw_cost_restores_directly(&rates) && !sw_cost_retry_kernels_back(&p->costs[class], raw_bytes, step_bytes);
}
