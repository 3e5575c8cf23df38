/* group_members.c - the runs that share a slot's steps, for workflows of groups: gathered, taken, given back. */
#include "spill/mover/mover_state.h"

#include "base/alloc.h"

/* Jobs that are examined for a group: among many long ones the search for short ones ends here. */
#define MOST_SEEN 1024u

int sw_group_init(struct sw_group *ret, unsigned max_items, struct sw_err *err) {
    if (max_items == 0)
        return 0;
    ret->runs = sw_alloc_array(max_items, sizeof(struct sw_run *));
    ret->items = sw_alloc_array(max_items, sizeof ret->items[0]);
    ret->moved = sw_alloc_array(max_items, sizeof ret->moved[0]);
    return ret->runs && ret->items && ret->moved
               ? 0
               : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for groups of %u", max_items);
}

void sw_group_fini(struct sw_group *group) {
    sw_free(group->runs);
    sw_free(group->items);
    sw_free(group->moved);
}

bool sw_group_gather(struct sw_mover *m, struct sw_group *g, struct sw_run *first, const struct sw_group_rules *rules) {
    g->n = 0;
    g->raw_bytes = g->item_bytes = g->room_bytes = 0;
    if (!rules->is_eligible(m, first) || !rules->join(m, g, first))
        return false;
    unsigned n_seen = 0;
    for (struct sw_turn *turn = sw_turns_line_first(&first->turn); turn && n_seen < MOST_SEEN;
         turn = sw_turns_line_next(&first->turn, turn), n_seen++) {
        struct sw_run *run = sw_run_of_turn(turn);
        if (run == first)
            continue;
        if (rules->is_eligible(m, run) && rules->may_join(m, g, run) && !rules->join(m, g, run))
            break;
    }
    if (g->n == 1)
        g->n = 0;
    return g->n > 0;
}

void sw_group_take(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow) {
    struct sw_group *g = &slot->group;
    sw_slot_take(m, slot, workflow, NULL);
    for (unsigned i = g->n; i-- > 0;) { /* backwards, so that the first run's turn stays before the others' */
        sw_turns_rest(&m->turns, &g->runs[i]->turn);
        sw_run_hold_slot(g->runs[i]);
    }
}

void sw_group_leave(struct sw_mover *m, struct sw_group *g, unsigned i) {
    g->raw_bytes -= g->runs[i]->buffer->bytes;
    sw_run_give_slot(m, g->runs[i]);
    g->runs[i] = NULL;
}

void sw_group_give(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_group *g = &slot->group;
    for (unsigned i = 0; i < g->n; i++)
        if (g->runs[i])
            sw_group_leave(m, g, i);
    g->n = 0;
    sw_slot_give(m, slot);
}

/* Members that have not failed are dealt again, alone, since runs that have begun are not gathered. */
void sw_group_give_unserved(struct sw_mover *m, struct sw_slot *slot) {
    for (unsigned i = 0; i < slot->group.n; i++)
        if (slot->group.runs[i] && !slot->group.runs[i]->outcome.err.code)
            slot->group.runs[i]->n_dealt = 0;
    sw_group_give(m, slot);
}

void sw_group_drop_failed(struct sw_mover *m, struct sw_group *g) {
    unsigned n = 0;
    for (unsigned i = 0; i < g->n; i++) {
        if (g->runs[i] && g->runs[i]->outcome.err.code)
            sw_group_leave(m, g, i);
        if (!g->runs[i])
            continue;
        if (n < i) {
            g->runs[n] = g->runs[i];
            g->items[n] = g->items[i];
            g->moved[n] = g->moved[i];
        }
        n++;
    }
    g->n = n;
}

void sw_group_fail(struct sw_mover *m, struct sw_group *g, const struct sw_err *err) {
    for (unsigned i = 0; i < g->n; i++)
        if (g->runs[i])
            sw_mover_fail(m, g->runs[i], err);
}

void sw_group_set_phase(struct sw_mover *m, const struct sw_group *g, enum sw_phase phase) {
    for (unsigned i = 0; i < g->n; i++)
        if (g->runs[i])
            atomic_store(&g->runs[i]->signals->phase, (int)phase);
    m->host.progress(m->host.arg);
}
