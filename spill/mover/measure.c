/* measure.c - what a mover measures of its stages, and what that says of a run. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"

struct sw_cost_class *sw_mover_costs(struct sw_mover *m, uint64_t chunk_bytes, bool is_group) {
    const int class = sw_cost_class(chunk_bytes);
    return class < 0 ? NULL : &(is_group ? m->group_costs : m->costs)[class];
}

/* All zero: nothing is known. */
static struct sw_cost_rates rates_of(const struct sw_cost_class *costs) {
    struct sw_cost_rates rates = {0};
    if (costs)
        sw_cost_class_rates(costs, &rates);
    return rates;
}

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
    struct sw_cost_class *costs = sw_mover_costs(m, raw_bytes, slot->group.n > 0);
    if (!costs)
        return;
    slot->measure =
        (struct sw_slot_measure){.meter = find_meter(costs, kind, codec), .begun_us = sw_clock_us(), .bytes = bytes};
    sw_meter_begin(slot->measure.meter, slot->measure.begun_us);
}

bool sw_slot_shares_link(const struct sw_mover *m, const struct sw_slot *slot) {
    const bool is_direct = slot->direct.n > 0;
    if (slot->run->is_mixed && slot->run->trial != SW_TRIAL_WANTED) /* until it is tried, nothing is compressed */
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
    /* While the worker slept on another slot this one may have ended long ago. */
    counts = counts && measure->begun_us >= m->woke_us;
    sw_meter_end(measure->meter, sw_clock_us(), counts ? measure->bytes : 0);
    measure->meter = NULL;
}

/* Where a frame of so many bytes would come to rest: 0 memory, i a place behind it, -1 nowhere. */
static int place_of(const struct sw_sink_room *room, uint64_t bytes) {
    if (bytes <= room->memory_bytes)
        return 0;
    for (unsigned i = 0; i < room->n_behind; i++)
        if (bytes <= room->behind[i].bytes)
            return (int)i + 1;
    return -1;
}

/* Where the run's frames would go, and how fast that place is, if it is behind memory. */
static void ask_sink(struct sw_mover *m, const struct sw_run *run, struct sw_cost_question *q) {
    struct sw_sink_room room = {0};
    m->sink->ops->room(m->sink, run, &room);
    const int raw = place_of(&room, q->raw_bytes);
    const int coded = place_of(&room, (uint64_t)((double)q->raw_bytes / q->expected_ratio));
    q->to_disk = coded > 0;
    q->room_is_short = raw < 0 || raw != coded || q->raw_bytes > room.allowed_bytes;
    if (q->to_disk) {
        q->rates.disk_write = room.behind[coded - 1].write;
        q->rates.disk_read = room.behind[coded - 1].read;
    }
}

void sw_measure_plan(struct sw_mover *m, uint64_t us) {
    const double s = (double)us / 1e6;
    m->plan_s = m->plan_s > 0 ? (3 * m->plan_s + s) / 4 : s;
}

bool sw_mover_has_link(const struct sw_mover *m) {
    return m->device->ops->info(m->device)->has_link;
}

struct sw_cost_question sw_mover_ask(struct sw_mover *m, const struct sw_weighed *what, enum sw_codec_id codec,
                                     double expected_ratio) {
    struct sw_cost_question question = {.codec = codec,
                                        .expected_ratio = expected_ratio,
                                        .raw_bytes = what->raw_bytes,
                                        .n_chunks = what->n_chunks,
                                        .n_slots = m->n_slots,
                                        .rates = rates_of(sw_mover_costs(m, what->chunk_bytes, what->shares_step))};
    if (what->shares_slots)
        sw_cost_share_slots(&question);
    ask_sink(m, what->run, &question);
    return question;
}

struct sw_rules_stages sw_run_stages(struct sw_mover *m, const struct sw_run *run) {
    const struct sw_frames *frames = run->frames;
    const bool is_back = run->request->operation == SW_OP_RESTORE;
    const double raw = (double)sw_frames_chunk_bytes(frames, run->n_dealt),
                 stored = is_back ? (double)frames->layouts[run->n_dealt].frame_bytes : raw / run->plan.expected_ratio;
    const enum sw_codec_id codec = is_back ? frames->layouts[run->n_dealt].codec : run->plan.codec;
    const struct sw_cost_rates rates = rates_of(sw_mover_costs(m, (uint64_t)raw, false));
    const double coder = is_back ? rates.restore[codec] : rates.encode[codec];
    if (coder <= 0 || rates.link_out <= 0)
        return (struct sw_rules_stages){0};
    const double coder_s = raw / coder, link_s = stored / rates.link_out;
    if (!is_back)
        return (struct sw_rules_stages){coder_s, link_s};
    /* Loading and decoding are measured as one; the link is as fast in both directions. */
    return (struct sw_rules_stages){link_s, coder_s > link_s ? coder_s - link_s : 0};
}

bool sw_run_has_direct_step(const struct sw_mover *m, const struct sw_run *run) {
    for (unsigned s = 0; s < m->n_slots; s++)
        if (m->slots[s].run == run && m->slots[s].direct.n > 0)
            return true;
    return false;
}

/* Raw bytes go directly, but those of short regions now and then, to see how fast the kernels are. */
bool sw_run_spills_directly(struct sw_mover *m, const struct sw_run *run, uint64_t raw_bytes, uint64_t step_bytes) {
    struct sw_cost_class *costs = sw_mover_costs(m, raw_bytes, false);
    if (run->request->operation != SW_OP_SPILL)
        return false;
    if (run->is_mixed)
        return !sw_run_has_direct_step(m, run); /* one slot does, all others encode */
    if (!run->is_direct || run->plan.codec != SW_CODEC_RAW)
        return false;
    return sw_cost_is_long(run->buffer->bytes) || !costs || !sw_cost_retry_kernels_out(costs, raw_bytes, step_bytes);
}

static enum sw_way_back choose_way_back(struct sw_mover *m, const struct sw_run *run, uint64_t raw_bytes) {
    struct sw_cost_class *costs = sw_mover_costs(m, raw_bytes, false);
    if (!sw_mover_has_link(m))
        return SW_WAY_BACK_KERNELS;
    if (sw_cost_is_long(run->buffer->bytes))
        return SW_WAY_BACK_DIRECT;
    if (!costs)
        return SW_WAY_BACK_KERNELS;
    const struct sw_cost_rates rates = rates_of(costs);
    /* Beside frames of other codecs nothing is measured. */
    if (sw_cost_restores_directly(&rates) || (!run->is_mixed && sw_cost_retry_direct_back(costs, run->buffer->bytes)))
        return SW_WAY_BACK_DIRECT;
    return SW_WAY_BACK_KERNELS;
}

bool sw_run_restores_directly(struct sw_mover *m, struct sw_run *run, uint64_t raw_bytes, uint64_t step_bytes) {
    struct sw_cost_class *costs = sw_mover_costs(m, raw_bytes, false);
    if (run->way_back == SW_WAY_BACK_OPEN)
        run->way_back = choose_way_back(m, run, raw_bytes);
    if (run->way_back == SW_WAY_BACK_KERNELS)
        return false;
    return sw_cost_is_long(run->buffer->bytes) || !costs || !sw_cost_retry_kernels_back(costs, raw_bytes, step_bytes);
}
