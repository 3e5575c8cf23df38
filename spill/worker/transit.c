#include "spill/worker/transit.h"

#include "base/clock.h"

/* Part of the memory for frames in transit that is kept for short frames of tenants that have none there. */
#define SPARE_PART 8

void sw_transit_init(struct sw_transit *transit, struct sw_placement *place) {
    transit->place = place;
    sw_turns_init(&transit->turns[SW_TIER_WRITE]);
    sw_turns_init(&transit->turns[SW_TIER_READ]);
    sw_list_init(&transit->waiting);
}

void sw_transit_fini(struct sw_transit *transit) {
    sw_turns_fini(&transit->turns[SW_TIER_WRITE]);
    sw_turns_fini(&transit->turns[SW_TIER_READ]);
}

static bool moves(const struct sw_job *job) {
    return job->run.request->operation == SW_OP_MOVE;
}

/* ---- turns ---- */

enum sw_tier_io_kind sw_transit_kind(const struct sw_job *job) {
    const bool goes_out = moves(job) ? job->from && sw_tier_can(job->from, SW_TIER_ADDRESSABLE)
                                     : job->run.request->operation == SW_OP_SPILL;
    return goes_out ? SW_TIER_WRITE : SW_TIER_READ;
}

int sw_transit_join(struct sw_transit *transit, struct sw_job *job, struct sw_err *err) {
    const struct sw_run *run = &job->run;
    if (job->transit_turn.session)
        return 0;
    const uint64_t bytes = run->buffer->bytes, chunk_bytes = run->frames->chunk_bytes;
    const enum sw_tier_io_kind kind = sw_transit_kind(job);
    const struct sw_turn_key key = {.tenant = run->request->tenant,
                                    .session = run->request->session,
                                    .request = run->request->number,
                                    .step_bytes = bytes < chunk_bytes ? bytes : chunk_bytes,
                                    .lane = kind == SW_TIER_READ ? SW_TURN_BACK : SW_TURN_OUT};
    return sw_turns_add(&transit->turns[kind], &job->transit_turn, &key, sw_clock_us(), err);
}

void sw_transit_wake(struct sw_transit *transit, struct sw_job *job) {
    sw_turns_wake(&transit->turns[sw_transit_kind(job)], &job->transit_turn);
}

void sw_transit_leave(struct sw_transit *transit, struct sw_job *job) {
    sw_list_remove(&job->waiting);
    if (!job->transit_turn.session)
        return;
    sw_turns_remove(&transit->turns[sw_transit_kind(job)], &job->transit_turn, sw_clock_us());
}

/* ---- memory ---- */

bool sw_transit_is_short_newcomer(const struct sw_job *job, uint64_t bytes) {
    return bytes <= SW_TIER_SHARE_SHORT_BYTES && job->transit_turn.session &&
           !sw_turns_tenant_holds(&job->transit_turn);
}

/* Returns true if another job's frame waits in its slot for memory, and has its turn before this job. */
static bool has_waiting_before(const struct sw_transit *transit, const struct sw_job *job) {
    for (const struct sw_list *node = transit->waiting.next; node != &transit->waiting; node = node->next) {
        const struct sw_job *other = SW_CONTAINER_OF(node, const struct sw_job, waiting);
        if (other != job && other->run.n_placeless > 0 &&
            sw_turns_goes_before(&other->transit_turn, &job->transit_turn))
            return true;
    }
    return false;
}

/* Returns whether a job may stage bytes, if other tenants have jobs, too. */
static bool may_stage(const struct sw_transit *transit, const struct sw_job *job, uint64_t bytes) {
    const struct sw_placement *place = transit->place;
    const bool goes_out = !moves(job) && sw_transit_kind(job) == SW_TIER_WRITE;
    const uint64_t had = atomic_load(moves(job) || goes_out ? &place->out_bytes : &place->in_bytes);
    if (sw_transit_is_short_newcomer(job, bytes))
        return true;
    return (had == 0 || had + bytes <= place->transit_bytes - place->transit_bytes / SPARE_PART) &&
           !(goes_out && has_waiting_before(transit, job));
}

static bool is_shared(struct sw_transit *transit, const struct sw_job *job) {
    const void *tenant = job->run.request->tenant;
    struct sw_tier_share *share = &transit->place->share;
    return moves(job) ? sw_tier_share_has_others(share, tenant, sw_clock_us())
                      : sw_tier_share_note(share, tenant, sw_clock_us());
}

int sw_transit_reserve(struct sw_transit *transit, struct sw_job *job, uint64_t bytes, struct sw_stored *ret,
                       struct sw_err *err) {
    /* Between two tiers a frame counts as going out, wherever it comes from. */
    const enum sw_tier_io_kind kind = moves(job) ? SW_TIER_WRITE : sw_transit_kind(job);
    int rc = moves(job) ? 0 : sw_transit_join(transit, job, err);
    if (!rc && is_shared(transit, job) && !may_stage(transit, job, bytes))
        rc = -SW_EAGAIN;
    if (!rc)
        rc = sw_placement_stage(transit->place, kind, bytes, ret, err);
    if (!rc)
        sw_turns_hold(&job->transit_turn);
    if (rc == -SW_EAGAIN && sw_list_empty(&job->waiting))
        sw_list_append(&transit->waiting, &job->waiting);
    return rc;
}

void sw_transit_release(struct sw_transit *transit, struct sw_job *job, struct sw_stored *staged) {
    sw_placement_arrived(transit->place, staged);
    sw_turns_give(&job->transit_turn);
}
