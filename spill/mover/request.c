#include "spill/mover/request.h"

const char *sw_operation_name(enum sw_operation operation) {
    static const char *const names[SW_OP_NR] = {[SW_OP_SPILL] = "spill",
                                                [SW_OP_RESTORE] = "restore",
                                                [SW_OP_PACK] = "pack",
                                                [SW_OP_UNPACK] = "unpack",
                                                [SW_OP_MOVE] = "move"};
    return names[operation];
}

void sw_run_init(struct sw_run *run, const struct sw_request *request, unsigned index, struct sw_signals *signals) {
    run->request = request;
    run->index = index;
    run->signals = signals;
    if (request->n_buffers > 0)
        run->buffer = &request->buffers[index];
}
