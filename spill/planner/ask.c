/* ask.c - makes the questions for cost.c: what was measured, and where frames would go. */
#include "spill/planner/planner.h"

struct sw_cost_class *sw_planner_costs(struct sw_planner *p, uint64_t chunk_bytes, bool is_group) {
    const int class = sw_cost_class(chunk_bytes);
    return class < 0 ? NULL : &(is_group ? p->group_costs : p->costs)[class];
}

struct sw_cost_rates sw_planner_rates(struct sw_planner *p, uint64_t chunk_bytes, bool is_group) {
    const struct sw_cost_class *costs = sw_planner_costs(p, chunk_bytes, is_group);
    struct sw_cost_rates rates = {0};
    if (costs)
        sw_cost_class_rates(costs, &rates);
    return rates;
}

/* Returns where a frame of this length would stay: 0 memory, i a place after memory, -1 nowhere. */
static int place_of(const struct sw_room *room, uint64_t bytes) {
    if (bytes <= room->memory_bytes)
        return 0;
    for (unsigned i = 0; i < room->n_behind; i++)
        if (bytes <= room->behind[i].bytes)
            return (int)i + 1;
    return -1;
}

bool sw_planner_goes_to_store(const struct sw_room *room, uint64_t raw_bytes) {
    const int place = place_of(room, raw_bytes);
    return place > 0 && room->behind[place - 1].is_store;
}

/* Adds where the run's frames would go, and the rates of that place if it is not memory. */
static void ask_room(const struct sw_room *room, struct sw_cost_question *q) {
    const int raw = place_of(room, q->raw_bytes);
    const int coded = place_of(room, (uint64_t)((double)q->raw_bytes / q->expected_ratio));
    q->to_disk = coded > 0;
    q->room_is_short = raw < 0 || raw != coded || q->raw_bytes > room->allowed_bytes;
    if (q->to_disk) {
        q->rates.disk_write = room->behind[coded - 1].write;
        q->rates.disk_read = room->behind[coded - 1].read;
    }
}

struct sw_cost_question sw_planner_ask(struct sw_planner *p, const struct sw_workload *what, enum sw_codec_id codec,
                                       double expected_ratio) {
    struct sw_cost_question question = {.codec = codec,
                                        .expected_ratio = expected_ratio,
                                        .raw_bytes = what->raw_bytes,
                                        .n_chunks = what->n_chunks,
                                        .n_slots = p->n_slots,
                                        .is_beside_data = p->is_beside_data,
                                        .rates = sw_planner_rates(p, what->chunk_bytes, what->shares_step)};
    if (what->shares_slots)
        sw_cost_share_slots(&question);
    ask_room(what->room, &question);
    return question;
}
