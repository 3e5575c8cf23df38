#include "spill/worker/way.h"

#include "base/clock.h"

/* Of the memory for frames on their way, the part that is left to short ones of tenants that have none there. */
#define SPARE_PART 8

void sw_way_init(struct sw_way *way, struct sw_placement *place) {
    way->place = place;
    sw_turns_init(&way->turns[SW_TIER_WRITE]);
    sw_turns_init(&way->turns[SW_TIER_READ]);
    sw_list_init(&way->lacking);
}

void sw_way_fini(struct sw_way *way) {
    sw_turns_fini(&way->turns[SW_TIER_WRITE]);
    sw_turns_fini(&way->turns[SW_TIER_READ]);
}

static bool moves(const struct sw_job *job) {
    return job->run.request->operation == SW_OP_MOVE;
}

/* ---- turns ---- */

enum sw_tier_io_kind sw_way_kind(const struct sw_job *job) {
    const bool goes_out = moves(job) ? job->from && sw_tier_can(job->from, SW_TIER_ADDRESSABLE)
                                     : job->run.request->operation == SW_OP_SPILL;
    return goes_out ? SW_TIER_WRITE : SW_TIER_READ;
}

int sw_way_join(struct sw_way *way, struct sw_job *job, struct sw_err *err) {
    const struct sw_run *run = &job->run;
    if (job->way_turn.session)
        return 0;
    const uint64_t bytes = run->buffer->bytes, chunk_bytes = run->frames->chunk_bytes;
    const enum sw_tier_io_kind kind = sw_way_kind(job);
    const struct sw_turn_key key = {.tenant = run->request->tenant,
                                    .session = run->request->session,
                                    .request = run->request->number,
                                    .piece_bytes = bytes < chunk_bytes ? bytes : chunk_bytes,
                                    .lane = kind == SW_TIER_READ ? SW_TURN_BACK : SW_TURN_OUT};
    return sw_turns_add(&way->turns[kind], &job->way_turn, &key, sw_clock_us(), err);
}

void sw_way_wake(struct sw_way *way, struct sw_job *job) {
    sw_turns_wake(&way->turns[sw_way_kind(job)], &job->way_turn);
}

void sw_way_leave(struct sw_way *way, struct sw_job *job) {
    sw_list_remove(&job->lacking);
    sw_turns_remove(&way->turns[sw_way_kind(job)], &job->way_turn, sw_clock_us());
}

/* ---- memory ---- */

bool sw_way_is_short_newcomer(const struct sw_job *job, uint64_t bytes) {
    return bytes <= SW_TIER_SHARE_SHORT_BYTES && job->way_turn.session && !sw_turns_tenant_holds(&job->way_turn);
}

/* A frame of another job waits in its slot for memory, and its turn is before this job's. */
static bool has_waiting_before(const struct sw_way *way, const struct sw_job *job) {
    for (const struct sw_list *node = way->lacking.next; node != &way->lacking; node = node->next) {
        const struct sw_job *other = SW_CONTAINER_OF(node, const struct sw_job, lacking);
        if (other != job && other->run.n_placeless > 0 && sw_turns_goes_before(&other->way_turn, &job->way_turn))
            return true;
    }
    return false;
}

/* Beside other tenants. */
static bool may_stage(const struct sw_way *way, const struct sw_job *job, uint64_t bytes) {
    const struct sw_placement *place = way->place;
    const bool goes_out = !moves(job) && sw_way_kind(job) == SW_TIER_WRITE;
    const uint64_t had = atomic_load(moves(job) || goes_out ? &place->out_bytes : &place->in_bytes);
    if (sw_way_is_short_newcomer(job, bytes))
        return true;
    return (had == 0 || had + bytes <= place->way_bytes - place->way_bytes / SPARE_PART) &&
           !(goes_out && has_waiting_before(way, job));
}

static bool is_shared(struct sw_way *way, const struct sw_job *job) {
    const void *tenant = job->run.request->tenant;
    struct sw_tier_share *share = &way->place->share;
    return moves(job) ? sw_tier_share_has_others(share, tenant, sw_clock_us())
                      : sw_tier_share_note(share, tenant, sw_clock_us());
}

int sw_way_stage(struct sw_way *way, struct sw_job *job, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    /* Between two tiers a frame is on its way out, wherever it comes from. */
    const enum sw_tier_io_kind kind = moves(job) ? SW_TIER_WRITE : sw_way_kind(job);
    int rc = moves(job) ? 0 : sw_way_join(way, job, err);
    if (!rc && is_shared(way, job) && !may_stage(way, job, bytes))
        rc = -SW_EAGAIN;
    if (!rc)
        rc = sw_placement_stage(way->place, kind, bytes, ret, err);
    if (!rc)
        sw_turns_hold(&job->way_turn);
    if (rc == -SW_EAGAIN && sw_list_empty(&job->lacking))
        sw_list_append(&way->lacking, &job->lacking);
    return rc;
}

void sw_way_unstage(struct sw_way *way, struct sw_job *job, struct sw_stored *staged) {
    sw_placement_arrived(way->place, staged);
    sw_turns_give(&job->way_turn);
}
