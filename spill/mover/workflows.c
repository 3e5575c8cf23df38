/* workflows.c - which ways an operation's runs take through the slots. To add one: a row, in a file of its own. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

static bool advance_move(struct sw_mover *m, struct sw_run *run) {
    return m->sink->ops->move(m->sink, run);
}

/* The sink does all of it. */
static const struct sw_workflow move = {.advance = advance_move};

enum { MOST = 3 };
static const struct sw_workflow *const rows[SW_OP_NR][MOST + 1] = {
    [SW_OP_SPILL] = {&sw_workflow_group, &sw_workflow_copy_out, &sw_workflow_spill},
    [SW_OP_RESTORE] = {&sw_workflow_group, &sw_workflow_copy_back, &sw_workflow_restore},
    [SW_OP_PACK] = {&sw_workflow_pack},
    [SW_OP_UNPACK] = {&sw_workflow_unpack},
    [SW_OP_MOVE] = {&move},
};

const struct sw_workflow *const *sw_workflows(enum sw_operation operation) {
    return rows[operation];
}

const struct sw_workflow *sw_workflow_of(enum sw_operation operation) {
    const struct sw_workflow *const *row = rows[operation];
    SW_ASSERT(row[0]);
    while (row[1])
        row++;
    return *row;
}
