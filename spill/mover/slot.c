/* slot.c - taking a slot and giving it back, failing and waiting: for workflows. */
#include "spill/mover/mover_state.h"

#include <string.h>

void sw_run_hold_slot(struct sw_run *run) {
    run->n_slots++;
    sw_turns_hold(&run->turn);
}

void sw_run_give_slot(struct sw_mover *m, struct sw_run *run) {
    run->n_slots--;
    sw_turns_give(&run->turn);
    if (!sw_run_complete(run))
        sw_turns_wake(&m->turns, &run->turn);
    if (run->n_slots == 0)
        sw_run_look_at(m, run);
}

void sw_slot_take(struct sw_mover *m, struct sw_slot *slot, const struct sw_workflow *workflow, struct sw_run *run) {
    slot->workflow = workflow;
    slot->run = run;
    slot->runs = true;
    slot->age = m->next_age++;
    if (run)
        sw_run_hold_slot(run);
}

static void note_lacks_place(struct sw_slot *slot, bool lacks) {
    if (slot->lacks_place != lacks)
        slot->run->n_placeless += lacks ? 1 : -1u;
    slot->lacks_place = lacks;
}

void sw_slot_give(struct sw_mover *m, struct sw_slot *slot) {
    if (m->sink->ops->release) /* empty once it was committed */
        m->sink->ops->release(m->sink, slot->run, &slot->stored);
    note_lacks_place(slot, false);
    if (slot->run)
        sw_run_give_slot(m, slot->run);
    slot->workflow = NULL;
    slot->run = NULL;
    slot->runs = slot->waits = slot->is_disputed = slot->drains = slot->compresses = false;
    slot->plans = slot->learns = false;
    slot->dictionary = NULL;
}

void sw_slot_fail_at(struct sw_mover *m, const struct sw_slot *slot, size_t n_chunks, const struct sw_err *err) {
    sw_mover_fail_at(m, slot->run, slot->chunk, slot->run->request->operation == SW_OP_RESTORE ? n_chunks : 0, err);
}

void sw_slot_drain(struct sw_mover *m, struct sw_slot *slot, size_t n_chunks, const struct sw_err *err) {
    sw_slot_fail_at(m, slot, n_chunks, err);
    slot->drains = true;
}

void sw_slot_store(struct sw_mover *m, struct sw_slot *slot, uint64_t bytes,
                   int (*queue)(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err)) {
    struct sw_err err = {0};
    int rc = -SW_EAGAIN;
    const bool has_link = sw_link_has_room(m, SW_LINK_OUT, slot->run, bytes);
    note_lacks_place(slot, false);
    if (has_link)
        rc = m->sink->ops->reserve(m->sink, slot->run, bytes, false, &slot->stored, &err);
    slot->waits = rc == -SW_EAGAIN;
    note_lacks_place(slot, has_link && slot->waits);
    slot->runs = !slot->waits;
    if (!rc)
        rc = queue(m, slot, &err);
    if (rc && !slot->waits)
        sw_slot_drain(m, slot, 0, &err);
}

int sw_slot_copy_out(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    uint64_t at = 0;
    int rc = 0;
    sw_link_take(m, slot, SW_LINK_OUT, slot->stored.bytes);
    for (unsigned i = 0; !rc && i < slot->stored.n_extents; i++) {
        const struct sw_extent *extent = &slot->stored.extents[i];
        rc = m->device->ops->store(m->device, sw_slot_index(m, slot), extent->memory, at, extent->bytes, err);
        at += extent->bytes;
    }
    return rc;
}

int sw_slot_copy_in(struct sw_mover *m, const struct sw_slot *slot, const struct sw_stored *stored, uint64_t at,
                    struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < stored->n_extents; i++) {
        rc = m->device->ops->load(m->device, sw_slot_index(m, slot), stored->extents[i].memory, at,
                                  stored->extents[i].bytes, err);
        at += stored->extents[i].bytes;
    }
    return rc;
}

/* A frame that moves on belongs to the sink from now on. */
int sw_slot_stored(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_run *run = slot->run;
    run->frames->identities[slot->chunk] = sw_frames_identify(run->frames, slot->chunk, &slot->stored);
    if (sw_slot_is_staged(slot)) {
        m->sink->ops->put(m->sink, run, slot->chunk, &slot->stored);
        return 0;
    }
    const int rc = m->sink->ops->commit(m->sink, &slot->stored, err);
    if (rc)
        return rc;
    run->frames->stored[slot->chunk] = slot->stored;
    memset(&slot->stored, 0, sizeof slot->stored);
    run->n_done++;
    return 0;
}
