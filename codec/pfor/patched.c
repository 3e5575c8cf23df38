#include "codec/pfor/patched.h"

#define LANES SW_VECTOR_LANES

/* The smallest and the largest of some numbers; least > most: there are none. */
struct range {
    uint64_t least, most;
};

static struct range join(struct range a, struct range b) {
    return (struct range){a.least < b.least ? a.least : b.least, a.most > b.most ? a.most : b.most};
}

static const struct range nothing = {UINT64_MAX, 0};

static unsigned lane_of(const struct sw_patched_numbers *numbers, unsigned i) {
    return numbers->is_in_order ? i / (SW_VECTOR_VALUES / LANES) : i / (SW_UNIT_BYTES * 8 / numbers->bits) % LANES;
}

static struct sw_patched packed_in(const struct sw_patched_numbers *numbers, struct sw_patched_window in) {
    struct range range = nothing;
    struct sw_patched ret = {.n_packed = 0};
    for (unsigned i = 0; i < SW_VECTOR_VALUES; i++)
        if (sw_patched_is_packed(numbers, i, in)) {
            range = join(range, (struct range){numbers->number[i], numbers->number[i]});
            ret.n_packed++;
        }
    if (ret.n_packed) {
        ret.window = sw_patched_window_of(in, range.least, range.most, numbers->best);
        ret.width = sw_width_of(ret.window.last);
    }
    return ret;
}

static unsigned units(const struct sw_patched_numbers *numbers, const struct sw_patched *patched) {
    return sw_patched_units(numbers->bits, patched->width, numbers->n - patched->n_packed);
}

/* Returns the range from the largest of the groups' smallest numbers to the smallest of their largest ones. */
static struct range inner_range(const struct range lanes[LANES], unsigned group_lanes) {
    struct range inner = {0, UINT64_MAX};
    for (unsigned first = 0; first < LANES; first += group_lanes) {
        struct range group = nothing;
        for (unsigned i = 0; i < group_lanes; i++)
            group = join(group, lanes[first + i]);
        if (group.least > group.most)
            continue;
        inner.least = group.least > inner.least ? group.least : inner.least;
        inner.most = group.most < inner.most ? group.most : inner.most;
    }
    return inner;
}

struct sw_patched sw_patched_choose(const struct sw_patched_numbers *numbers) {
    struct range lanes[LANES];
    for (unsigned lane = 0; lane < LANES; lane++)
        lanes[lane] = nothing;
    for (unsigned i = 0; i < SW_VECTOR_VALUES; i++)
        if (numbers->is_there[i]) {
            struct range *lane = &lanes[lane_of(numbers, i)];
            *lane = join(*lane, (struct range){numbers->number[i], numbers->number[i]});
        }
    struct sw_patched best = packed_in(numbers, (struct sw_patched_window){0, sw_patched_last(numbers->bits)});
    const struct range all = inner_range(lanes, LANES);
    for (unsigned group_lanes = SW_PATCHED_GROUP_LANES; group_lanes && best.n_packed; group_lanes /= 4) {
        const struct range inner = inner_range(lanes, group_lanes);
        if (inner.least > inner.most || sw_width_of(inner.most - inner.least) >= best.width)
            continue;
        const struct sw_patched other =
            packed_in(numbers, sw_patched_window_around(numbers->bits, all.least, inner.least, inner.most, all.most));
        if (units(numbers, &other) < units(numbers, &best))
            best = other;
    }
    return best;
}
