/* deal.c - decides which run gets a free slot: by turns.h, and among the buffers of one operation by Johnson's rule
 * (rules.h), with half of the slots for each of the rule's two groups. */
#include "spill/mover/mover_state.h"

#include "spill/planner/rules.h"

/* A mixed run deals chunks directly while a plan is being made. */
static bool goes_on_unplanned(const struct sw_mover *m, const struct sw_run *run) {
    return run->course.is_mixed && run->request->operation == SW_OP_SPILL && run->n_dealt < run->frames->n_chunks &&
           !sw_run_has_direct_step(m, run);
}

/* While a run learns a denser plan, no more of its chunks go by the other one than keep its tier busy. A sink in
 * another process has no more than the slots. */
static bool holds_back(const struct sw_mover *m, const struct sw_run *run) {
    return run->course.learning == SW_LEARNING_UNDER_WAY && !sw_mover_sink_is_away(m) &&
           run->n_in_sink + run->n_slots > m->n_slots;
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
        return !holds_back(m, run) && run->workflows->main->wants(m, run);
    }
    return false;
}

/* Returns true if the run's next chunk is known, and how it is stored. A client's frame needs no coder, so that it goes
 * at once, as what has no plan. */
static bool can_be_ordered(const struct sw_mover *m, const struct sw_run *run) {
    const bool is_known = (run->request->operation == SW_OP_RESTORE && !sw_mover_sink_is_away(m)) ||
                          (run->stage == SW_STAGE_RUNNING && run->course.plan_state != SW_PLAN_STATE_MISSING);
    return is_known && !run->buffer->frame_bytes && run->n_dealt < run->frames->n_chunks;
}

/* Returns true if the slot makes a plan for a buffer of this operation. */
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

/* The candidates for an operation's next step. */
struct op_next {
    struct sw_run *unplanned;
    struct sw_run *ordered[2]; /* the first by Johnson's rule among the early buffers, and among the others */
    struct sw_rules_stages stages[2];
};

static void consider(struct sw_mover *m, struct sw_run *run, struct op_next *next) {
    if (!can_be_ordered(m, run)) {
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

/* Johnson's rule lets buffers that keep one stage busy go before those that keep the other busy, and assumes unlimited
 * room between the stages. Here the slots are the only room, so one stage would mostly be idle. Therefore each group
 * gets half of the slots while both have buffers. A run's group is its last dealt chunk's; the slots that it had before
 * do not matter for long. */
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

/* Returns the buffer of an operation that should go first; `first` is the one whose turn it is. Buffers without a plan
 * go before chunks, but one at a time once some buffer has a plan: while a plan is being made, chunks go, so that the
 * link is not idle until all plans exist. */
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

/* A restore's step queues its copy at once, unless its frame has yet to be brought into memory. A sink in another
 * process has the link in its hands. */
static bool has_link(struct sw_mover *m, const struct sw_run *run) {
    return run->request->operation != SW_OP_RESTORE || sw_mover_sink_is_away(m) ||
           run->n_dealt == run->frames->n_chunks || !m->sink->ops->has(m->sink, run, run->n_dealt) ||
           sw_link_has_room(m, SW_LINK_BACK, run, run->frames->layouts[run->n_dealt].frame_bytes);
}

static enum sw_turn_answer ask(struct sw_turn *turn, void *arg) {
    struct sw_mover *m = arg;
    struct sw_run *run = sw_run_of_turn(turn);
    if (!run_wants_slot(m, run))
        return SW_TURN_REST;
    return has_link(m, run) ? SW_TURN_TAKE : SW_TURN_LATER;
}

struct sw_run *sw_mover_next_run(struct sw_mover *m, unsigned n_free) {
    const struct sw_turn_question question = {
        .ask = ask, .arg = m, .n_free = n_free, .n_slots = m->n_slots, .now_us = sw_mover_now_us(m)};
    struct sw_turn *turn = sw_turns_next(&m->turns, &question);
    struct sw_run *run = turn ? sw_run_of_turn(turn) : NULL;
    return run && run->request->number ? next_of_op(m, run) : run;
}
