/* outcome.c - the outcome of an operation or a series that has ended, and its part of the statistics. */
#include "spill/engine_state.h"

#include <stdio.h>

/* Without a tier it counts for the first one. */
static const struct sw_tier *tier_of(const struct sw_ended *ended) {
    return ended->tier ? ended->tier : sw_placement_memory(&ended->engine->store.place);
}

void sw_outcome_fill(const struct sw_ended *ended, struct sw_outcome *ret) {
    const struct sw_region *region = ended->region;
    const struct sw_run_outcome *sum = ended->sum;
    const uint64_t now_us = sw_engine_now_us(ended->engine),
                   submitted_us = ended->submitted_us ? ended->submitted_us : now_us;
    if (sum->err.code) {
        ret->err = sum->err;
        sw_err_context(&ret->err, "%s region %u:%u", ended->what, ended->id.slot, ended->id.gen);
    } else {
        ret->err.code = ret->err.cuda = 0; /* the texts are long */
        ret->err.scope = SW_SCOPE_REQUEST;
        ret->err.msg[0] = ret->err.detail[0] = 0;
    }
    ret->region = ended->id;
    ret->raw_bytes = region ? region->raw_bytes : 0;
    ret->stored_bytes = region ? region->stored_bytes : 0;
    ret->codec = region ? region->codec : SW_CODEC_RAW;
    ret->reason = sw_cost_reason_text(region ? region->reason : SW_COST_UNKNOWN);
    ret->coder = sw_coder_name(region && sw_operation_encodes(ended->operation) && region->reason == SW_COST_CLIENT);
    ret->tier = sw_operation_is_in_place(ended->operation) ? SW_PACKED_TIER_NAME : tier_of(ended)->kind->name;
    ret->total_us = now_us - submitted_us;
    ret->name[0] = 0;
    if (region && region->name)
        (void)snprintf(ret->name, sizeof ret->name, "%s", region->name);
    ret->durability = region ? sw_region_durability(region) : SW_DURABILITY_SERVICE;
    ret->queued_us = (sum->started_us ? sum->started_us : now_us) - submitted_us;
}

void sw_outcome_note(const struct sw_ended *ended, const struct sw_outcome *outcome) {
    const struct sw_run_outcome *sum = ended->sum;
    const uint64_t submitted_us = ended->submitted_us, mapped_us = sum->mapped_us ? sum->mapped_us : submitted_us;
    /* A buffer without a plan may be mapped after the last plan was made. */
    const uint64_t planned_us = sum->planned_us > mapped_us ? sum->planned_us : mapped_us;
    if (outcome->err.code)
        return;
    sw_op_statistics_note(
        &ended->engine->statistics,
        &(struct sw_ended_op){.kind = sw_operation_encodes(ended->operation) ? SW_OP_KIND_SPILL : SW_OP_KIND_RESTORE,
                              .tier = sw_operation_is_in_place(ended->operation) ? SW_STATISTICS_PACKED
                                                                                 : tier_of(ended)->rank,
                              .codec = outcome->codec,
                              .raw_bytes = outcome->raw_bytes,
                              .stored_bytes = outcome->stored_bytes,
                              .us = {[SW_OP_STAGE_WAIT] = mapped_us - submitted_us,
                                     [SW_OP_STAGE_PLAN] = planned_us - mapped_us,
                                     [SW_OP_STAGE_MOVE] = submitted_us + outcome->total_us - planned_us,
                                     [SW_OP_STAGE_WHOLE] = outcome->total_us}});
}
