/* workflows.c - the workflows of each operation. A new workflow gets a file of its own and a row in this table. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

static bool advance_move(struct sw_mover *m, struct sw_run *run) {
    return m->sink->ops->move(m->sink, run);
}

/* The sink does all of a move. */
static const struct sw_workflow move = {.advance = advance_move};

/* For a sink in this process. */
static const struct sw_workflows here[SW_OP_NR] = {
    [SW_OP_SPILL] = {.first = {&sw_workflow_group, &sw_workflow_client_group, &sw_workflow_take, &sw_workflow_copy_out},
                     .main = &sw_workflow_spill},
    [SW_OP_RESTORE] = {.first = {&sw_workflow_group, &sw_workflow_client_group, &sw_workflow_give,
                                 &sw_workflow_copy_back},
                       .main = &sw_workflow_restore},
    [SW_OP_PACK] = {.main = &sw_workflow_pack},
    [SW_OP_UNPACK] = {.main = &sw_workflow_unpack},
    [SW_OP_MOVE] = {.main = &move},
};

/* For a sink in another process. Packed regions stay in this one. */
static const struct sw_workflows away[SW_OP_NR] = {
    [SW_OP_SPILL] = {.first = {&sw_workflow_group}, .main = &sw_workflow_send},
    [SW_OP_RESTORE] = {.first = {&sw_workflow_group}, .main = &sw_workflow_fetch},
    [SW_OP_PACK] = {.main = &sw_workflow_pack},
    [SW_OP_UNPACK] = {.main = &sw_workflow_unpack},
};

const struct sw_workflows *sw_workflows(const struct sw_mover *m, enum sw_operation operation) {
    const struct sw_workflows *row = &(sw_mover_sink_is_away(m) ? away : here)[operation];
    SW_ASSERT(row->main);
    return row;
}
