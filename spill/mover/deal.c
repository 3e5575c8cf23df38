/* deal.c - whose turn it is to get a free slot: by turns.h, the buffers of one operation among themselves by
 * Johnson's rule (rules.h), half of the slots from either part of it. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"
#include "spill/planner/rules.h"

/* Of a mixed run chunks go directly while a plan is being made. */
static bool goes_on_unplanned(const struct sw_mover *m, const struct sw_run *run) {
    return run->course.is_mixed && run->request->operation == SW_OP_SPILL && run->n_dealt < run->frames->n_chunks &&
           !sw_run_has_direct_step(m, run);
}

static bool run_wants_slot(struct sw_mover *m, struct sw_run *run) {
    if (run->outcome.err.code)
        return false;
    switch (run->stage) {
    case SW_STAGE_WAITING:
        return true;
    case SW_STAGE_PREPARING:
        return goes_on_unplanned(m, run);
    case SW_STAGE_RUNNING:
        return sw_workflows(run->request->operation)->main->wants(m, run);
    }
    return false;
}

/* It is known what its next chunk is, and how that is stored. */
static bool can_be_ordered(const struct sw_run *run) {
    const bool is_known = run->request->operation == SW_OP_RESTORE ||
                          (run->stage == SW_STAGE_RUNNING && run->course.plan_state != SW_PLAN_STATE_MISSING);
    return is_known && run->n_dealt < run->frames->n_chunks;
}

/* Whether a slot makes a plan for a buffer of that operation. */
static bool slot_plans_op(const struct sw_slot *slot, uint64_t op_number) {
    const bool is_group = slot->group.n > 0;
    return slot->plans && (is_group ? slot->group.runs[0] : slot->run)->request->number == op_number;
}

static bool any_slot_plans_op(const struct sw_mover *m, uint64_t op_number) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (slot_plans_op(&m->slots[s], op_number))
            return true;
    return false;
}

/* What an operation might go on with. */
struct op_next {
    struct sw_run *unplanned;
    struct sw_run *ordered[2]; /* the first ones by Johnson's rule of those that are early by it, and of the rest */
    struct sw_rules_stages stages[2];
};

static void consider(struct sw_mover *m, struct sw_run *run, struct op_next *next) {
    if (!can_be_ordered(run)) {
        next->unplanned = next->unplanned ? next->unplanned : run;
        return;
    }
    const struct sw_rules_stages stages = sw_run_stages(m, run);
    const int rest = !sw_rules_is_early(&stages);
    if (!next->ordered[rest] || sw_rules_goes_before(&stages, &next->stages[rest])) {
        next->ordered[rest] = run;
        next->stages[rest] = stages;
    }
}

/* The rule lets what keeps one stage busy go before what keeps the other one busy, and takes it that any number may
 * wait between the two. Here the slots are all that there is to wait in, so that most of the time one stage would stand
 * still: each kind gets half of them, while there are both. A run's kind is that of its last chunk that was dealt so;
 * which slots it had before does not matter for long. */
static struct sw_run *choose(const struct sw_mover *m, const struct op_next *next) {
    struct sw_run *early = next->ordered[0], *rest = next->ordered[1];
    int more_early = 0;
    if (!early || !rest)
        return early ? early : rest;
    for (unsigned s = 0; s < m->n_slots; s++) {
        const struct sw_slot *slot = &m->slots[s];
        if (sw_slot_serves_op(slot, early) && slot->run->n_dealt > 0)
            more_early += slot->run->is_early ? 1 : -1;
    }
    return more_early > 0 ? rest : early;
}

struct peers {
    struct sw_mover *mover;
    struct op_next next;
};

static void consider_peer(struct sw_turn *turn, void *arg) {
    struct peers *peers = arg;
    struct sw_run *run = sw_run_of_turn(turn);
    if (run_wants_slot(peers->mover, run))
        consider(peers->mover, run, &peers->next);
}

/* Of the buffers of one operation, `first` being the one whose turn it would be, that which should go before the
 * others. Those that have no plan yet go before chunks, but one at a time once a buffer has one: beside a plan that is
 * being made chunks go, so that the link does not wait until there are all. */
static struct sw_run *next_of_op(struct sw_mover *m, struct sw_run *first) {
    struct peers peers = {.mover = m};
    sw_turns_each_peer(&first->turn, consider_peer, &peers);
    struct sw_run *chosen = choose(m, &peers.next);
    if (!chosen || (peers.next.unplanned && !any_slot_plans_op(m, first->request->number)))
        return peers.next.unplanned;
    chosen->is_early = chosen == peers.next.ordered[0];
    return chosen;
}

/* ---- among all runs ---- */

/* A restore's step queues its copy at once, unless its frame is still to be brought to memory. */
static bool has_link(struct sw_mover *m, const struct sw_run *run) {
    return run->request->operation != SW_OP_RESTORE || run->n_dealt == run->frames->n_chunks ||
           !m->sink->ops->has(m->sink, run, run->n_dealt) ||
           sw_link_has_room(m, SW_LINK_BACK, run, run->frames->layouts[run->n_dealt].frame_bytes);
}

static enum sw_turn_answer ask(struct sw_turn *turn, void *arg) {
    struct sw_mover *m = arg;
    struct sw_run *run = sw_run_of_turn(turn);
    sw_run_check_canceled(run);
    if (!run_wants_slot(m, run))
        return SW_TURN_REST;
    return has_link(m, run) ? SW_TURN_TAKE : SW_TURN_LATER;
}

struct sw_run *sw_mover_next_run(struct sw_mover *m, unsigned n_free) {
    const struct sw_turn_question question = {
        .ask = ask, .arg = m, .n_free = n_free, .n_slots = m->n_slots, .now_us = sw_clock_us()};
    struct sw_turn *turn = sw_turns_next(&m->turns, &question);
    struct sw_run *run = turn ? sw_run_of_turn(turn) : NULL;
    return run && run->request->number ? next_of_op(m, run) : run;
}
