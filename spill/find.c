/* find.c - an owner's region by its id, in the state that it is in now. */
#include "spill/engine_state.h"

void sw_op_follow_phase(struct sw_op *op) {
    static const enum sw_region_state next[] = {SW_REGION_ENCODING, SW_REGION_STORING};
    struct sw_region *region = op->region;
    if (!sw_operation_encodes(op->request.operation))
        return;
    for (int phase = (int)(region->state - SW_REGION_STAGING); phase < sw_op_phase(op); phase++)
        sw_region_move(region, next[phase]);
}

int sw_engine_find(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    for (struct sw_list *node = owner->detached.next; node != &owner->detached; node = node->next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        if (region->id.slot == id.slot && region->id.gen == id.gen) {
            *ret = region;
            return 0;
        }
    }
    const int rc = sw_region_find(&owner->store->regions, owner, id, ret, err);
    if (!rc && (*ret)->op)
        sw_op_follow_phase((*ret)->op);
    return rc;
}

int sw_engine_find_idle(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    int rc = sw_engine_find(owner, id, ret, err);
    if (!rc && sw_region_is_busy(*ret))
        rc = sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is %s", id.slot, id.gen,
                        sw_region_state_name((*ret)->state));
    return rc;
}
