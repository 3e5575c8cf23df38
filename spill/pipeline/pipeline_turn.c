/* pipeline_turn.c - whose turn it is to get a free slot: jobs one after the other, so that a long one does not starve a
 * short one, the buffers of one operation by Johnson's rule (policy.h), half of the slots from either part of it. */
#include "spill/pipeline/pipeline_state.h"

#include "spill/pipeline/transfer.h"
#include "spill/policy.h"

/* Of a mixed job chunks go directly while a plan is being made. */
static bool goes_on_unplanned(const struct sw_pipeline *p, const struct sw_job *job) {
    return job->is_mixed && job->kind == SW_JOB_SPILL && job->n_dealt < job->frames->n_chunks &&
           !sw_job_has_direct_step(p, job);
}

static bool job_wants_slot(struct sw_pipeline *p, struct sw_job *job) {
    if (job->err.code)
        return false;
    switch (job->stage) {
    case SW_STAGE_WAITING:
        return true;
    case SW_STAGE_PREPARING:
        return goes_on_unplanned(p, job);
    case SW_STAGE_RUNNING:
        if (job->kind == SW_JOB_UNPACK)
            return sw_in_place_may_unpack(p, job);
        if (job->kind == SW_JOB_RESTORE)
            return job->n_dealt < job->frames->n_chunks && sw_transfer_is_at_hand(job, job->n_dealt);
        if (sw_job_moves(job->kind))
            return false;
        /* Whether a kept plan will do is seen from a first frame. Those behind it could not be taken back. */
        if (job->kind == SW_JOB_PACK && job->plan_state == SW_JOB_PLAN_UNPROVEN && job->n_dealt > 0)
            return false;
        return job->n_dealt < job->frames->n_chunks;
    }
    return false;
}

/* It is known what its next chunk is, and how that is stored. */
static bool can_be_ordered(const struct sw_job *job) {
    const bool is_known =
        job->kind == SW_JOB_RESTORE || (job->stage == SW_STAGE_RUNNING && job->plan_state != SW_JOB_PLAN_MISSING);
    return is_known && job->n_dealt < job->frames->n_chunks;
}

/* Whether a slot makes a plan for a buffer of that operation. */
static bool slot_plans_op(const struct sw_slot *slot, uint64_t op_number) {
    const bool is_group = slot->group.n > 0;
    return (slot->state == SW_SLOT_PREPARING || slot->state == SW_SLOT_REPLANNING) &&
           (is_group ? slot->group.jobs[0] : slot->job)->op_number == op_number;
}

static bool any_slot_plans_op(const struct sw_pipeline *p, uint64_t op_number) {
    for (unsigned s = 0; s < p->n_slots; s++)
        if (slot_plans_op(&p->slots[s], op_number))
            return true;
    return false;
}

/* What an operation might go on with. */
struct op_next {
    struct sw_job *unplanned;
    struct sw_job *ordered[2]; /* the first ones by Johnson's rule of those that are early by it, and of the rest */
    struct sw_policy_stages stages[2];
};

static void consider(struct sw_pipeline *p, struct sw_job *job, struct op_next *next) {
    if (!can_be_ordered(job)) {
        next->unplanned = next->unplanned ? next->unplanned : job;
        return;
    }
    const struct sw_policy_stages stages = sw_job_stages(p, job);
    const int rest = !sw_policy_is_early(&stages);
    if (!next->ordered[rest] || sw_policy_goes_before(&stages, &next->stages[rest])) {
        next->ordered[rest] = job;
        next->stages[rest] = stages;
    }
}

/* The rule lets what keeps one stage busy go before what keeps the other one busy, and takes it that any number may
 * wait between the two. Here the slots are all that there is to wait in, so that most of the time one stage would stand
 * still: each kind gets half of them, while there are both. A job's kind is that of its last chunk that was dealt so;
 * which slots it had before does not matter for long. */
static struct sw_job *choose(const struct sw_pipeline *p, const struct op_next *next) {
    struct sw_job *early = next->ordered[0], *rest = next->ordered[1];
    int more_early = 0;
    if (!early || !rest)
        return early ? early : rest;
    for (unsigned s = 0; s < p->n_slots; s++) {
        const struct sw_slot *slot = &p->slots[s];
        if (sw_slot_serves_op(slot, early) && slot->job->n_dealt > 0)
            more_early += slot->job->is_early ? 1 : -1;
    }
    return more_early > 0 ? rest : early;
}

/* Of the buffers of one operation, `first` being the one whose turn it would be, that which should go before the
 * others. Those that have no plan yet go before chunks, but one at a time once a buffer has one: beside a plan that is
 * being made chunks go, so that the link does not wait until there are all. The operation has one place in the line:
 * all of its jobs go to the end. */
static struct sw_job *next_of_op(struct sw_pipeline *p, const struct sw_job *first) {
    const uint64_t op_number = first->op_number;
    struct op_next op_next = {0};
    struct sw_list jobs_of_op;
    sw_list_init(&jobs_of_op);
    for (struct sw_list *node = p->jobs.next, *next; node != &p->jobs; node = next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        next = node->next;
        if (job->op_number != op_number)
            continue;
        const bool wants_slot = job_wants_slot(p, job);
        sw_list_remove(node);
        sw_list_append(&jobs_of_op, node);
        if (wants_slot)
            consider(p, job, &op_next);
    }
    sw_list_append_all(&p->jobs, &jobs_of_op);
    struct sw_job *chosen = choose(p, &op_next);
    if (!chosen || (op_next.unplanned && !any_slot_plans_op(p, op_number)))
        return op_next.unplanned;
    chosen->is_early = chosen == op_next.ordered[0];
    return chosen;
}

struct sw_job *sw_pipeline_next_job(struct sw_pipeline *p) {
    for (struct sw_list *node = p->jobs.next; node != &p->jobs; node = node->next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        sw_job_check_canceled(job);
        if (job_wants_slot(p, job)) {
            if (job->op_number)
                job = next_of_op(p, job);
            sw_list_remove(&job->node);
            sw_list_append(&p->jobs, &job->node);
            return job;
        }
    }
    return NULL;
}
