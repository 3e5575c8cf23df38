/* pipeline_cost.c - what a pipeline measures of its stages, and what it asks cost.h about a job. */
#include "spill/pipeline_state.h"

#include "base/clock.h"

static struct sw_meter *find_meter(struct sw_cost_class *c, enum sw_stage_kind stage, enum sw_codec_id codec) {
    switch (stage) {
    case SW_STAGE_ENCODE:
        return &c->encode[codec];
    case SW_STAGE_LINK_OUT:
        return &c->link_out;
    case SW_STAGE_RESTORE:
        return &c->restore[codec];
    }
    return NULL;
}

void sw_measure_begin(struct sw_pipeline *p, struct sw_slot *slot, enum sw_stage_kind stage, enum sw_codec_id codec,
                      uint64_t raw_bytes, uint64_t bytes) {
    const int class = sw_cost_class(raw_bytes);
    if (class < 0)
        return;
    slot->measure = (struct sw_slot_measure){
        .meter = find_meter(&p->costs[class], stage, codec), .begun_us = sw_clock_us(), .bytes = bytes};
    sw_meter_begin(slot->measure.meter, slot->measure.begun_us);
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

/* Time counts: the job copies over a link. Packing, or without a link, it is done for the room. */
static bool time_counts(const struct sw_pipeline *p, enum sw_job_kind kind) {
    return kind == SW_JOB_SPILL && p->device->ops->info(p->device)->has_link;
}

enum sw_cost_reason sw_plan_weigh(struct sw_pipeline *p, enum sw_job_kind kind, const struct sw_weighed *what,
                                  struct sw_plan *plan) {
    const int class = sw_cost_class(what->chunk_bytes);
    struct sw_cost_question question = {
        .expected_ratio = plan->expected_ratio, .raw_bytes = what->raw_bytes, .n_chunks = what->n_chunks};
    struct sw_cost_answer answer;
    if (!time_counts(p, kind))
        return plan->codec == SW_CODEC_RAW ? SW_COST_NO_GAIN : SW_COST_ROOM;
    if (class >= 0)
        sw_cost_class_rates(&p->costs[class], &question.rates);
    ask_placement(p->place, &question);
    sw_cost_choose(&question, &answer);
    if (answer.codec != SW_CODEC_RAW)
        return answer.reason;
    if (answer.reason != SW_COST_NO_GAIN && sw_cost_retry(&p->costs[class], &question, &answer))
        return SW_COST_RETRY;
    sw_plan_init_raw(plan);
    return answer.reason;
}

void sw_job_weigh(struct sw_pipeline *p, struct sw_job *job) {
    const struct sw_frames *frames = job->frames;
    const struct sw_weighed rest = {.raw_bytes = job->bytes - job->n_dealt * frames->chunk_bytes,
                                    .chunk_bytes = frames->n_chunks > 1 ? frames->chunk_bytes : job->bytes,
                                    .n_chunks = frames->n_chunks - job->n_dealt};
    job->reason = sw_plan_weigh(p, job->kind, &rest, &job->plan);
    job->is_retry = job->reason == SW_COST_RETRY;
}
