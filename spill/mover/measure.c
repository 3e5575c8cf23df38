/* measure.c - measures the mover's stages, and describes a run to the planner. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"

static struct sw_meter *find_meter(struct sw_cost_class *c, enum sw_measure_kind kind, enum sw_codec_id codec) {
    switch (kind) {
    case SW_MEASURE_ENCODE:
        return &c->encode[codec];
    case SW_MEASURE_LINK_OUT:
        return &c->link_out;
    case SW_MEASURE_RESTORE:
        return &c->restore[codec];
    case SW_MEASURE_DIRECT_OUT:
        return &c->direct_out;
    case SW_MEASURE_DIRECT_BACK:
        return &c->direct_back;
    }
    return NULL;
}

void sw_measure_begin(struct sw_mover *m, struct sw_slot *slot, enum sw_measure_kind kind, enum sw_codec_id codec,
                      uint64_t raw_bytes, uint64_t bytes) {
    struct sw_cost_class *costs = sw_planner_costs(&m->planner, raw_bytes, slot->group.n > 0);
    if (!costs)
        return;
    slot->measure =
        (struct sw_slot_measure){.meter = find_meter(costs, kind, codec), .begun_us = sw_clock_us(), .bytes = bytes};
    sw_meter_begin(slot->measure.meter, slot->measure.begun_us);
}

bool sw_slot_shares_link(const struct sw_mover *m, const struct sw_slot *slot) {
    const bool is_direct = slot->direct.n > 0;
    if (slot->run->course.is_mixed &&
        slot->run->course.trial != SW_TRIAL_WANTED) /* before its trial, nothing is compressed */
        return true;
    for (unsigned s = 0; s < m->n_slots; s++) {
        const struct sw_slot *other = &m->slots[s];
        if (other == slot || !sw_slot_serves_op(other, slot->run))
            continue;
        if (is_direct ? other->compresses || (other->direct.n > 0 && !other->measure.meter) : other->direct.n > 0)
            return true;
    }
    return false;
}

void sw_measure_end(struct sw_mover *m, struct sw_slot *slot, bool counts) {
    struct sw_slot_measure *measure = &slot->measure;
    if (!measure->meter)
        return;
    /* While the worker slept on another slot, this one may have ended long ago. */
    counts = counts && measure->begun_us >= m->woke_us;
    sw_meter_end(measure->meter, sw_clock_us(), counts ? measure->bytes : 0);
    measure->meter = NULL;
}

struct sw_room sw_run_room(struct sw_mover *m, const struct sw_run *run) {
    struct sw_room room = {.memory_bytes = UINT64_MAX, .allowed_bytes = UINT64_MAX};
    if (!sw_mover_sink_is_away(m))
        room = (struct sw_room){0};
    if (m->sink->ops->room)
        m->sink->ops->room(m->sink, run, &room);
    return room;
}

struct sw_snapshot sw_run_snapshot(struct sw_mover *m, const struct sw_run *run) {
    return (struct sw_snapshot){.is_pack = run->request->operation == SW_OP_PACK,
                                .is_running = run->stage == SW_STAGE_RUNNING,
                                .has_copying = sw_run_has_direct_step(m, run),
                                .type = run->buffer->type,
                                .raw_bytes = run->buffer->bytes,
                                .chunk_bytes = run->frames->chunk_bytes,
                                .n_chunks = run->frames->n_chunks,
                                .n_dealt = run->n_dealt,
                                .n_encoded = run->n_encoded,
                                .shares_slots = run->request->number != 0,
                                .room = sw_run_room(m, run)};
}

struct sw_rules_stages sw_run_stages(struct sw_mover *m, const struct sw_run *run) {
    const struct sw_frames *frames = run->frames;
    const bool is_back = run->request->operation == SW_OP_RESTORE;
    const double raw = (double)sw_frames_chunk_bytes(frames, run->n_dealt),
                 stored = is_back ? (double)frames->layouts[run->n_dealt].frame_bytes
                                  : raw / run->course.plan->expected_ratio;
    const enum sw_codec_id codec = is_back ? frames->layouts[run->n_dealt].codec : run->course.plan->codec;
    const struct sw_cost_rates rates = sw_planner_rates(&m->planner, (uint64_t)raw, false);
    const double coder = is_back ? rates.restore[codec] : rates.encode[codec];
    if (coder <= 0 || rates.link_out <= 0)
        return (struct sw_rules_stages){0};
    const double coder_s = raw / coder, link_s = stored / rates.link_out;
    if (!is_back)
        return (struct sw_rules_stages){coder_s, link_s};
    /* Loading and decoding are measured as one. The link has the same rate in both directions. */
    return (struct sw_rules_stages){link_s, coder_s > link_s ? coder_s - link_s : 0};
}

bool sw_run_has_direct_step(const struct sw_mover *m, const struct sw_run *run) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].run == run && m->slots[s].direct.n > 0)
            return true;
    return false;
}
