#include "tests/lib/sim_device.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/list.h"

#include <stdio.h>
#include <string.h>

enum { MAX_SLOTS = 16, N_SYMBOLS = 255, MAX_GROUP_ITEMS = 256, MAX_SPANS = 256 };
#define GB 1e9
#define MIN_RATIO 1.05 /* as in codec.c: plans that promise less are raw */

struct sim_slot {
    uint64_t end_ns; /* of the last step queued */
    bool reported;
    struct sw_slot_result result;
    struct sw_plan plan;
};

struct sw_mapping {
    char nothing;
};

/* A resource that slots share, as it is used: [begin_ns, end_ns) each, in order, the ones that end later than now. A
 * step that is queued behind others of its slot uses it when these have ended, and leaves it to other slots before. */
struct sim_resource {
    unsigned n;
    struct sim_span {
        uint64_t begin_ns, end_ns;
    } spans[MAX_SPANS];
};

struct sim_tier {
    struct sw_tier tier;
    uint64_t used_bytes, committed_frames;
    /* A disk's. */
    struct sim_device *device;
    double bytes_per_s;
    uint64_t done_bytes;
    struct sim_queue {
        struct sw_list ios; /* struct sw_tier_io, by tier.node */
        uint64_t end_ns;    /* of the first one */
    } queues[2];
};

struct sim_device {
    struct sw_device device;
    struct sw_device_info info;
    struct sw_sim_speed speed;
    struct sw_sim_data data;
    struct sw_sim_counts counts;
    struct sim_resource compute, out, back;
    struct sw_mapping mapping;
    struct sim_tier *disk; /* NULL: has none */
    struct sim_slot slots[MAX_SLOTS];
};

static uint64_t now_ns;
static bool is_open; /* the clock is the device's */

static uint64_t now_us(void) {
    return now_ns / 1000;
}

const struct sw_sim_speed sw_sim_idle_gpu = {
    .encode = {[SW_CODEC_RAW] = 1500 * GB, [SW_CODEC_V5T] = 800 * GB, [SW_CODEC_ONPAIR] = 360 * GB},
    .decode = {[SW_CODEC_RAW] = 1500 * GB, [SW_CODEC_V5T] = 1100 * GB, [SW_CODEC_ONPAIR] = 575 * GB},
    .hash = 3000 * GB,
    .link_out = 55 * GB,
    .link_back = 55 * GB,
    .launch_us = 8,
    .plan_us = 800,
    .slowdown = 1,
    .wake_us = 30};

static struct sim_device *sim_of(const struct sw_device *device) {
    return SW_CONTAINER_OF(device, struct sim_device, device);
}

/* ---- time ---- */

static uint64_t later(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

static void forget_past(struct sim_resource *resource) {
    unsigned n_past = 0;
    while (n_past < resource->n && resource->spans[n_past].end_ns <= now_ns)
        n_past++;
    resource->n -= n_past;
    memmove(resource->spans, resource->spans + n_past, resource->n * sizeof resource->spans[0]);
}

/* Takes the resource for so long, as soon after ready_ns as it has that time. Returns when. */
static uint64_t reserve(struct sim_resource *resource, uint64_t ready_ns, uint64_t ns) {
    unsigned at = 0;
    forget_past(resource);
    for (; at < resource->n && ready_ns + ns > resource->spans[at].begin_ns; at++)
        ready_ns = later(ready_ns, resource->spans[at].end_ns);
    SW_ASSERT(resource->n < MAX_SPANS);
    memmove(resource->spans + at + 1, resource->spans + at, (resource->n - at) * sizeof resource->spans[0]);
    resource->spans[at] = (struct sim_span){ready_ns, ready_ns + ns};
    resource->n++;
    return ready_ns;
}

/* Queues `s` seconds of work, behind the slot's other work. resource NULL: not shared. */
static void take(struct sim_slot *slot, struct sim_resource *resource, double launch_us, double s) {
    const uint64_t ready_ns = later(now_ns, slot->end_ns) + (uint64_t)(launch_us * 1e3), ns = (uint64_t)(s * 1e9);
    slot->end_ns = (resource ? reserve(resource, ready_ns, ns) : ready_ns) + ns;
    slot->reported = false;
}

static void compute(struct sim_device *d, unsigned s, double seconds) {
    take(&d->slots[s], &d->compute, d->speed.launch_us * d->speed.slowdown, seconds * d->speed.slowdown);
}

static void copy_out(struct sim_device *d, unsigned s, uint64_t bytes) {
    take(&d->slots[s], &d->out, d->speed.launch_us, (double)bytes / d->speed.link_out);
}

static void copy_back(struct sim_device *d, unsigned s, uint64_t bytes) {
    take(&d->slots[s], &d->back, d->speed.launch_us, (double)bytes / d->speed.link_back);
}

static void seal(struct sim_device *d, unsigned s, uint64_t bytes) {
    if (d->speed.seal > 0)
        take(&d->slots[s], NULL, 0, (double)bytes / d->speed.seal);
}

/* ---- data ---- */

static double code_bytes(const struct sw_sim_data *data, uint64_t offset, uint64_t bytes) {
    double codes = 0;
    for (uint64_t n = 0; bytes > 0; offset += n, bytes -= n) {
        const uint64_t left = data->stripe_bytes - offset % data->stripe_bytes;
        n = bytes < left ? bytes : left;
        codes += (double)n / data->ratios[offset / data->stripe_bytes % 2];
    }
    return codes;
}

static const struct sw_frame_dictionary dictionary = {.bytes = 48 << 10};
/* As on a CPU of 2026. */
#define DENSE_PLAN_US 25000
#define DENSE_PART_US 12000
#define LEARNING_US 6000 /* on a GPU, and a CPU writes and judges what it learned */

/* The column that a plan is for is noted as its number of symbols. */
static bool suits(const struct sw_sim_data *data, const struct sw_plan *plan) {
    return data->by_others <= 0 || plan->params.n_symbols == N_SYMBOLS - data->column;
}

/* The frame that a plan makes. */
static struct sw_frame_layout frame_of(const struct sw_sim_data *data, const struct sw_plan *plan, uint64_t offset,
                                       uint64_t bytes) {
    const enum sw_codec_id codec = plan->codec;
    struct sw_frame_layout raw, coded;
    sw_frame_layout_init(&raw, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, bytes, 0);
    if (codec == SW_CODEC_RAW)
        return raw;
    sw_frame_layout_init(&coded, codec, SW_RAW_SEGMENT_LOG2, bytes, codec == SW_CODEC_V5T ? N_SYMBOLS : 0);
    if (plan->dictionary)
        sw_frame_layout_add_dictionary(&coded, plan->dictionary->bytes);
    const double codes = !plan->dictionary && codec != SW_CODEC_V5T ? (double)bytes / data->of_numbers[codec]
                         : !suits(data, plan)                       ? (double)bytes / data->by_others
                         : plan->dictionary                         ? code_bytes(data, offset, bytes) / data->dense_gain
                                                                    : code_bytes(data, offset, bytes);
    coded.frame_bytes = coded.data_offset + (uint64_t)codes;
    return coded.frame_bytes < raw.frame_bytes ? coded : raw;
}

/* ---- steps ---- */

/* As sw_plan_init_typed() would. */
static void plan_numbers(struct sw_plan *plan, const struct sw_sim_data *data, enum sw_value_type type,
                         uint64_t bytes) {
    plan->value_type = type;
    plan->raw_bytes = bytes;
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        plan->ratios[codec] = data->of_numbers[codec];
        if (plan->ratios[codec] > plan->expected_ratio)
            sw_plan_switch(plan, (enum sw_codec_id)codec);
    }
}

static int sim_make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                         const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    struct sw_plan *plan = &d->slots[s].plan;
    (void)mapping;
    (void)err;
    d->counts.plans++;
    sw_plan_init_raw(plan);
    if (d->data.plans_raw)
        return 0;
    /* Training takes a few of the computing units only: kernels go on beside it. */
    take(&d->slots[s], NULL, 0, d->speed.plan_us * d->speed.slowdown / 1e6);
    if (type != SW_VALUE_NONE) {
        plan_numbers(plan, &d->data, type, bytes);
        return 0;
    }
    struct sw_plan trained = *plan;
    trained.codec = SW_CODEC_V5T;
    if (is_dense && d->data.dense_gain > 0) {
        const unsigned n_parts = sw_sample_parts(bytes, SW_SAMPLE_MOST_PARTS);
        take(&d->slots[s], NULL, 0,
             (d->data.learns ? LEARNING_US * d->speed.slowdown : DENSE_PLAN_US + DENSE_PART_US * (n_parts - 1)) / 1e6);
        trained.codec = SW_CODEC_ONPAIR;
        trained.dictionary = &dictionary;
    }
    trained.raw_bytes = bytes;
    trained.params.n_symbols = N_SYMBOLS - d->data.column;
    const struct sw_frame_layout frame = frame_of(&d->data, &trained, offset, bytes);
    trained.expected_ratio = (double)bytes / (double)frame.frame_bytes;
    if (trained.dictionary) /* as sw_plan_head_part() counts it */
        trained.expected_ratio = 1 / (sw_plan_head_part(&trained) + 1 / (d->data.ratios[0] * d->data.dense_gain));
    if (frame.codec != SW_CODEC_RAW && trained.expected_ratio >= MIN_RATIO)
        *plan = trained;
    return 0;
}

static const struct sw_plan *sim_plan(struct sw_device *device, unsigned s) {
    return &sim_of(device)->slots[s].plan;
}

static int sim_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                      const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    (void)mapping;
    (void)err;
    d->counts.encodes[plan->codec]++;
    compute(d, s, (double)bytes / d->speed.encode[plan->codec]);
    d->slots[s].result.frame = frame_of(&d->data, plan, offset, bytes);
    if (d->slots[s].result.frame.codec != plan->codec) /* made again, raw */
        compute(d, s, (double)bytes / d->speed.encode[SW_CODEC_RAW]);
    return 0;
}

static int sim_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                     struct sw_err *err) {
    (void)h_to;
    (void)frame_offset;
    (void)err;
    copy_out(sim_of(device), s, bytes);
    return 0;
}

static int sim_load(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                    struct sw_err *err) {
    (void)h_from;
    (void)frame_offset;
    (void)err;
    copy_back(sim_of(device), s, bytes);
    return 0;
}

static int sim_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                      const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    double seconds = 0;
    (void)mapping;
    (void)err;
    SW_ASSERT(items[n - 1].frame_at + items[n - 1].layout->frame_bytes <= d->info.buffer_bytes);
    for (unsigned i = 0; i < n; i++)
        seconds += (double)items[i].layout->raw_bytes / d->speed.decode[items[i].layout->codec];
    d->counts.decodes[items->layout->codec]++;
    compute(d, s, seconds);
    return 0;
}

static uint64_t raw_bytes_of(const struct sw_raw_item *items, unsigned n) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < n; i++)
        bytes += items[i].frame.raw_bytes;
    return bytes;
}

/* From begun_ns on, beside the slot's other work: one kernel that hashes. */
static void hash_beside(struct sim_device *d, unsigned s, uint64_t begun_ns, uint64_t bytes) {
    struct sim_slot *slot = &d->slots[s];
    const uint64_t end_ns = slot->end_ns;
    slot->end_ns = begun_ns;
    if (bytes > 0)
        compute(d, s, (double)bytes / d->speed.hash);
    slot->end_ns = later(end_ns, slot->end_ns);
}

static int sim_spill_raw(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                         const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    const uint64_t begun_ns = later(now_ns, d->slots[s].end_ns);
    (void)mapping;
    (void)err;
    d->counts.spills_raw++;
    for (unsigned i = 0; i < n; i++)
        SW_ASSERT(items[i].stored->bytes == items[i].frame.frame_bytes);
    copy_out(d, s, raw_bytes_of(items, n));
    hash_beside(d, s, begun_ns, raw_bytes_of(items, n - n_by_cpu));
    seal(d, s, raw_bytes_of(items + n - n_by_cpu, n_by_cpu));
    return 0;
}

static int sim_restore_raw(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                           const struct sw_raw_item *items, unsigned n, unsigned n_by_cpu, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    struct sim_slot *slot = &d->slots[s];
    const unsigned n_hashed = n - n_by_cpu;
    (void)mapping;
    (void)err;
    d->counts.restores_raw++;
    const uint64_t begun_ns = later(now_ns, slot->end_ns);
    if (n_hashed > 0)
        copy_back(d, s, raw_bytes_of(items, n_hashed));
    const uint64_t arrived_ns = slot->end_ns;
    if (n_by_cpu > 0)
        copy_back(d, s, raw_bytes_of(items + n_hashed, n_by_cpu));
    hash_beside(d, s, arrived_ns, raw_bytes_of(items, n_hashed));
    /* The CPU reads the bytes that are still to be copied. */
    const uint64_t end_ns = slot->end_ns;
    slot->end_ns = begun_ns;
    seal(d, s, raw_bytes_of(items + n_hashed, n_by_cpu));
    slot->end_ns = later(end_ns, slot->end_ns);
    return 0;
}

static int sim_encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                            struct sw_group_item *items, unsigned n, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    double seconds = 0;
    (void)err;
    for (unsigned i = 0; i < n; i++) {
        items[i].frame = frame_of(&d->data, plan, items[i].offset, items[i].bytes);
        seconds += (double)items[i].bytes / d->speed.encode[plan->codec];
    }
    d->counts.encodes[plan->codec]++;
    compute(d, s, seconds);
    return 0;
}

static int sim_store_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                           struct sw_err *err) {
    uint64_t bytes = 0;
    (void)err;
    for (unsigned i = 0; i < n; i++)
        bytes += items[i].stored->n_extents ? items[i].frame.frame_bytes : 0;
    copy_out(sim_of(device), s, bytes);
    return 0;
}

static int sim_restore_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                             struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    double seconds = 0;
    uint64_t bytes = 0;
    (void)err;
    for (unsigned i = 0; i < n; i++) {
        bytes += items[i].frame.frame_bytes;
        seconds += (double)items[i].bytes / d->speed.decode[items[i].frame.codec];
    }
    d->counts.decodes[items[0].frame.codec]++;
    copy_back(d, s, bytes);
    compute(d, s, seconds);
    return 0;
}

static int report(struct sim_slot *slot, struct sw_slot_result *ret) {
    *ret = slot->result;
    slot->result = (struct sw_slot_result){0};
    slot->reported = true;
    return 0;
}

static int sim_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct sim_slot *slot = &sim_of(device)->slots[s];
    (void)err;
    return slot->end_ns > now_ns ? -SW_EAGAIN : report(slot, ret);
}

static int sim_slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct sim_device *d = sim_of(device);
    (void)err;
    now_ns = later(now_ns, d->slots[s].end_ns + (uint64_t)(d->speed.wake_us * 1e3));
    return report(&d->slots[s], ret);
}

/* ---- the device ---- */

static const struct sw_device_info *sim_info(const struct sw_device *device) {
    return &sim_of(device)->info;
}

static int sim_map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret,
                   struct sw_err *err) {
    (void)desc;
    (void)err;
    *ret = &sim_of(device)->mapping;
    return 0;
}

static void sim_unmap(struct sw_device *device, struct sw_mapping *mapping) {
    (void)device;
    (void)mapping;
}

static void sim_close(struct sw_device *device) {
    sw_clock_set(NULL);
    is_open = false;
    sw_free(sim_of(device));
}

static const struct sw_device_ops sim_ops = {
    .info = sim_info,
    .map = sim_map,
    .unmap = sim_unmap,
    .make_plan = sim_make_plan,
    .plan = sim_plan,
    .encode = sim_encode,
    .store = sim_store,
    .load = sim_load,
    .decode = sim_decode,
    .spill_raw = sim_spill_raw,
    .restore_raw = sim_restore_raw,
    .encode_group = sim_encode_group,
    .store_group = sim_store_group,
    .restore_group = sim_restore_group,
    .slot_poll = sim_slot_poll,
    .slot_wait = sim_slot_wait,
    .close = sim_close,
};

struct sw_device *sw_sim_device_new(unsigned n_slots, uint64_t chunk_bytes, unsigned poll_us) {
    struct sim_device *d = sw_alloc(sizeof *d);
    SW_ASSERT(d && n_slots <= MAX_SLOTS && !is_open);
    d->device.ops = &sim_ops;
    d->info = (struct sw_device_info){.n_slots = n_slots,
                                      .chunk_bytes = chunk_bytes,
                                      .buffer_bytes = sw_frame_bound_bytes(chunk_bytes),
                                      .group_items = MAX_GROUP_ITEMS,
                                      .group_bytes = sw_frame_bound_bytes(chunk_bytes),
                                      .has_link = true,
                                      .poll_us = poll_us};
    (void)snprintf(d->info.name, sizeof d->info.name, "simulated");
    for (unsigned s = 0; s < n_slots; s++)
        d->slots[s].reported = true;
    now_ns = 1000000; /* 0 says "never" to some */
    sw_clock_set(now_us);
    is_open = true;
    return &d->device;
}

void sw_sim_set_speed(struct sw_device *device, const struct sw_sim_speed *speed) {
    sim_of(device)->speed = *speed;
}

void sw_sim_set_data(struct sw_device *device, const struct sw_sim_data *data) {
    sim_of(device)->data = *data;
    sim_of(device)->info.takes_dictionaries = data->dense_gain > 0; /* for movers that are made from now on */
    sim_of(device)->info.learns_dictionaries = data->dense_gain > 0 && data->learns;
}

struct sw_sim_counts sw_sim_counts(const struct sw_device *device) {
    return sim_of(device)->counts;
}

uint64_t sw_sim_now_ns(void) {
    return now_ns;
}

static uint64_t next_end_ns(const struct sim_device *d, uint64_t to_ns) {
    for (unsigned s = 0; s < d->info.n_slots; s++)
        if (!d->slots[s].reported && d->slots[s].end_ns < to_ns)
            to_ns = d->slots[s].end_ns;
    for (int kind = 0; d->disk && kind < 2; kind++)
        if (!sw_list_empty(&d->disk->queues[kind].ios) && d->disk->queues[kind].end_ns < to_ns)
            to_ns = d->disk->queues[kind].end_ns;
    return to_ns;
}

static void disk_begin(const struct sim_tier *disk, struct sim_queue *queue) {
    if (sw_list_empty(&queue->ios))
        return;
    const struct sw_tier_io *io = SW_CONTAINER_OF(queue->ios.next, struct sw_tier_io, tier.node);
    queue->end_ns = now_ns + (uint64_t)((double)io->stored->bytes / disk->bytes_per_s * 1e9);
}

static void disk_end(struct sim_tier *disk, struct sim_queue *queue) {
    struct sw_tier_io *io = SW_CONTAINER_OF(sw_list_take_first(&queue->ios), struct sw_tier_io, tier.node);
    disk->done_bytes += io->stored->bytes;
    if (io->kind == SW_TIER_WRITE) {
        io->stored->committed = true;
        disk->committed_frames++;
    } else { /* no check: an earlier version's */
        memset(io->key, 0, sizeof io->key);
    }
    disk_begin(disk, queue);
    io->done(io, io->arg);
}

void sw_sim_advance(const struct sw_device *device, uint64_t most_ns) {
    const struct sim_device *d = sim_of(device);
    uint64_t until_ns = next_end_ns(d, now_ns + most_ns);
    now_ns = later(now_ns, until_ns);
    for (int kind = 0; d->disk && kind < 2; kind++)
        if (!sw_list_empty(&d->disk->queues[kind].ios) && d->disk->queues[kind].end_ns <= now_ns)
            disk_end(d->disk, &d->disk->queues[kind]);
}

/* ---- the tier ---- */

#define CAPACITY_BYTES ((uint64_t)1 << 60)

static struct sim_tier *sim_tier_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct sim_tier, tier);
}

/* The beginning of all frames; no more of them is compared. */
static uint8_t beginning[4 << 20];

static int tier_reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    struct sw_extent *extent = sw_alloc(sizeof *extent);
    if (!extent)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a reservation");
    SW_ASSERT(sw_frame_head_bound_bytes(bytes) <= sizeof beginning);
    *extent = (struct sw_extent){.memory = beginning, .bytes = bytes};
    *ret = (struct sw_stored){.extents = extent, .n_extents = 1, .bytes = bytes, .tier = tier};
    sim_tier_of(tier)->used_bytes += bytes;
    return 0;
}

static int tier_commit(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err) {
    (void)err;
    SW_ASSERT(!stored->committed);
    stored->committed = true;
    sim_tier_of(tier)->committed_frames++;
    return 0;
}

static void tier_release(struct sw_tier *tier, struct sw_stored *stored) {
    struct sim_tier *t = sim_tier_of(tier);
    t->used_bytes -= stored->bytes;
    t->committed_frames -= stored->committed;
    sw_free(stored->extents);
    *stored = (struct sw_stored){0};
}

static void tier_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    const struct sim_tier *t = sim_tier_of(tier);
    *ret = (struct sw_tier_stats){.capacity_bytes = CAPACITY_BYTES,
                                  .backed_bytes = CAPACITY_BYTES,
                                  .used_bytes = t->used_bytes,
                                  .largest_free_bytes = CAPACITY_BYTES - t->used_bytes,
                                  .write_bytes_per_s = (uint64_t)t->bytes_per_s,
                                  .read_bytes_per_s = (uint64_t)t->bytes_per_s,
                                  .committed_frames = t->committed_frames};
}

static void tier_close(struct sw_tier *tier) {
    SW_ASSERT(sim_tier_of(tier)->used_bytes == 0);
    sw_free(sim_tier_of(tier));
}

static const struct sw_tier_ops tier_ops = {
    .reserve = tier_reserve, .commit = tier_commit, .release = tier_release, .stats = tier_stats, .close = tier_close};

static const struct sw_tier_kind tier_kind = {.name = "simulated", .id = 255, .capabilities = SW_TIER_ADDRESSABLE};

struct sw_tier *sw_sim_tier_new(void) {
    struct sim_tier *t = sw_alloc(sizeof *t);
    SW_ASSERT(t);
    t->tier = (struct sw_tier){.ops = &tier_ops, .kind = &tier_kind};
    return &t->tier;
}

static int disk_reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    const int rc = tier_reserve(tier, bytes, ret, err);
    if (!rc)
        ret->extents->memory = NULL;
    return rc;
}

static void disk_submit(struct sw_tier *tier, struct sw_tier_io *io) {
    struct sim_tier *disk = sim_tier_of(tier);
    struct sim_queue *queue = &disk->queues[io->kind];
    const bool rests = sw_list_empty(&queue->ios);
    io->err.code = 0;
    sw_list_append(&queue->ios, &io->tier.node);
    if (rests)
        disk_begin(disk, queue);
}

static void disk_close(struct sw_tier *tier) {
    sim_tier_of(tier)->device->disk = NULL;
    tier_close(tier);
}

static const struct sw_tier_ops disk_ops = {
    .reserve = disk_reserve, .release = tier_release, .stats = tier_stats, .submit = disk_submit, .close = disk_close};

static const struct sw_tier_kind disk_kind = {
    .name = "simulated disk", .id = 254, .capabilities = SW_TIER_ASYNCHRONOUS | SW_TIER_VIA};

struct sw_tier *sw_sim_disk_new(struct sw_device *device, double bytes_per_s) {
    struct sw_tier *tier = sw_sim_tier_new();
    struct sim_tier *disk = sim_tier_of(tier);
    *tier = (struct sw_tier){.ops = &disk_ops, .kind = &disk_kind};
    disk->device = sim_of(device);
    disk->bytes_per_s = bytes_per_s;
    for (int kind = 0; kind < 2; kind++)
        sw_list_init(&disk->queues[kind].ios);
    sim_of(device)->disk = disk;
    return tier;
}

uint64_t sw_sim_disk_done_bytes(struct sw_tier *disk) {
    return sim_tier_of(disk)->done_bytes;
}
