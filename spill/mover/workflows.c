/* workflows.c - the workflows of each operation. To add one: a file of its own, and a place in this table. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

static bool advance_move(struct sw_mover *m, struct sw_run *run) {
    return m->sink->ops->move(m->sink, run);
}

/* The sink does all of a move. */
static const struct sw_workflow move = {.advance = advance_move};

static const struct sw_workflows rows[SW_OP_NR] = {
    [SW_OP_SPILL] = {.first = {&sw_workflow_group, &sw_workflow_copy_out}, .main = &sw_workflow_spill},
    [SW_OP_RESTORE] = {.first = {&sw_workflow_group, &sw_workflow_copy_back}, .main = &sw_workflow_restore},
    [SW_OP_PACK] = {.main = &sw_workflow_pack},
    [SW_OP_UNPACK] = {.main = &sw_workflow_unpack},
    [SW_OP_MOVE] = {.main = &move},
};

const struct sw_workflows *sw_workflows(enum sw_operation operation) {
    SW_ASSERT(rows[operation].main);
    return &rows[operation];
}
