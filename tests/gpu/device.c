/* device.c - the CUDA device against its contract: groups, in which every item has its own frame, and raw frames whose
 * bytes are copied. Frames are stored in their extents, restored to the same bytes, and only damaged items fail. */
#include "codec/codec.h"
#include "codec/identity.h"
#include "spill/device/device_cuda_map.h"
#include "spill/tier/tier.h"
#include "tests/lib/content.h"
#include "tests/lib/dense_device.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GAP_BYTES = 48, BLOCK_BYTES = SW_TIER_IO_ALIGN, MOST_EXTENTS = 2000 };
#define GUARD_VALUE 0xA5

static struct sw_device *device;
static struct sw_err err;

static void cuda_ok(cudaError_t e, const char *call) {
    ck_assert_msg(e == cudaSuccess, "%s: %s", call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s (%s)", sw_err_name(rc), err.msg, err.detail);
}

static void *must_calloc(size_t n, size_t bytes) {
    void *p = calloc(n, bytes);
    ck_assert_ptr_nonnull(p);
    return p;
}

static void open_device(uint64_t chunk_bytes) {
    const struct sw_device_config config = {
        .scratch_bytes = chunk_bytes > 8 << 20 ? 160 << 20 : 64 << 20, .n_slots = 2, .chunk_bytes = chunk_bytes};
    ok(sw_device_cuda_open(&device, 0, &config, &err));
}

/* Ends the queued steps of a slot, by polling or by waiting. */
static void settle(unsigned s, bool by_polling) {
    struct sw_slot_result result;
    int rc = -SW_EAGAIN;
    while (by_polling && rc == -SW_EAGAIN)
        rc = device->ops->slot_poll(device, s, &result, &err);
    ok(by_polling ? rc : device->ops->slot_wait(device, s, &result, &err));
}

/* A client's block with the items' bytes and gaps between them, the place where they are restored, and an arena. There
 * every frame lies in up to `pieces` extents, in another order than the items. */
struct group {
    unsigned n;
    size_t image_bytes, arena_bytes;
    struct sw_group_item *items;
    struct sw_stored *stored;
    struct sw_extent *extents;
    uint8_t *image, *d_from, *d_to, *arena;
    struct sw_mapping from, to;
};

static struct group group_new(unsigned n, const uint64_t *bytes, const enum sw_content *content) {
    struct group g = {.n = n, .image_bytes = GAP_BYTES};
    g.items = must_calloc(n, sizeof *g.items);
    g.stored = must_calloc(n, sizeof *g.stored);
    g.extents = must_calloc(MOST_EXTENTS, sizeof *g.extents);
    for (unsigned i = 0; i < n; i++) {
        g.items[i] = (struct sw_group_item){.offset = g.image_bytes, .bytes = bytes[i], .stored = &g.stored[i]};
        g.image_bytes += bytes[i] + GAP_BYTES + i % 16;
        g.arena_bytes += sw_frame_bound_bytes(bytes[i]) / BLOCK_BYTES * BLOCK_BYTES + BLOCK_BYTES;
    }
    g.image = must_calloc(1, g.image_bytes);
    memset(g.image, GUARD_VALUE, g.image_bytes);
    for (unsigned i = 0; i < n; i++)
        sw_content_fill(g.image + g.items[i].offset, bytes[i], content[i], i + 1);
    g.arena = aligned_alloc(BLOCK_BYTES, g.arena_bytes);
    ck_assert_ptr_nonnull(g.arena);
    memset(g.arena, GUARD_VALUE, g.arena_bytes);
    ok(device->ops->pin(device, g.arena, g.arena_bytes, &err));
    CUDA(cudaMalloc((void **)&g.d_from, g.image_bytes));
    CUDA(cudaMalloc((void **)&g.d_to, g.image_bytes));
    CUDA(cudaMemcpy(g.d_from, g.image, g.image_bytes, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize()); /* slots do not wait for the default stream */
    g.from = (struct sw_mapping){.address = (uintptr_t)g.d_from, .bytes = g.image_bytes};
    g.to = (struct sw_mapping){.address = (uintptr_t)g.d_to, .bytes = g.image_bytes};
    return g;
}

static void group_free(struct group *g) {
    device->ops->unpin(device, g->arena, g->arena_bytes);
    CUDA(cudaFree(g->d_from));
    CUDA(cudaFree(g->d_to));
    free(g->items);
    free(g->stored);
    free(g->extents);
    free(g->image);
    free(g->arena);
}

/* Room for each frame, the last item's first: extents of `blocks` blocks, the last one shorter. */
static void reserve(struct group *g, uint64_t blocks) {
    unsigned n_extents = 0;
    uint64_t at = 0;
    for (unsigned i = g->n; i-- > 0;) {
        uint64_t left = g->items[i].frame.frame_bytes;
        g->stored[i] = (struct sw_stored){.extents = &g->extents[n_extents], .bytes = left};
        while (left) {
            const uint64_t bytes = left < blocks * BLOCK_BYTES ? left : blocks * BLOCK_BYTES;
            ck_assert_uint_lt(n_extents, MOST_EXTENTS);
            g->extents[n_extents++] = (struct sw_extent){.memory = g->arena + at, .offset = at, .bytes = bytes};
            g->stored[i].n_extents++;
            at += (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
            left -= bytes;
        }
    }
    ck_assert_uint_le(at, g->arena_bytes);
}

static void encode(struct group *g, unsigned s, const struct sw_plan *plan) {
    struct sw_plan copy = *plan;
    for (unsigned i = 0; i < g->n; i++)
        g->items[i].mapping = &g->from;
    ok(device->ops->encode_group(device, s, &copy, g->items, g->n, &err));
    memset(&copy, 0xEE, sizeof copy); /* it was copied */
    settle(s, s == 0);
    for (unsigned i = 0; i < g->n; i++) {
        ck_assert_uint_eq(g->items[i].frame.raw_bytes, g->items[i].bytes);
        ck_assert_uint_gt(g->items[i].frame.frame_bytes, 0);
        ck_assert_uint_le(g->items[i].frame.frame_bytes, sw_frame_bound_bytes(g->items[i].bytes));
    }
}

/* Every stored frame decodes on the host, and the rest of its blocks was not written. */
static void ck_stored(const struct group *g) {
    for (unsigned i = 0; i < g->n; i++) {
        const struct sw_group_item *item = &g->items[i];
        uint8_t *frame = aligned_alloc(16, item->frame.frame_bytes), *out = must_calloc(1, item->bytes);
        uint64_t at = 0, decoded;
        ck_assert_ptr_nonnull(frame);
        for (unsigned e = 0; e < g->stored[i].n_extents; e++) {
            const struct sw_extent *extent = &g->stored[i].extents[e];
            memcpy(frame + at, extent->memory, extent->bytes);
            at += extent->bytes;
            for (uint64_t k = extent->bytes; k % BLOCK_BYTES; k++)
                ck_assert_uint_eq(((uint8_t *)extent->memory)[k], GUARD_VALUE);
        }
        ok(sw_codec_decode(frame, at, out, item->bytes, &decoded, &err));
        ck_assert_uint_eq(decoded, item->bytes);
        ck_assert_msg(!memcmp(out, g->image + item->offset, item->bytes), "item %u", i);
        if (item->identity) /* raw frames that copy engines move have none here */
            ck_assert_uint_eq(item->identity, sw_identity_of(frame, item->frame.counts_offset));
        free(frame);
        free(out);
    }
}

/* Restores by the stored headers. damaged: index of the damaged item; else g->n. */
static void restore(struct group *g, unsigned s, unsigned damaged) {
    uint8_t *out = must_calloc(1, g->image_bytes);
    CUDA(cudaMemset(g->d_to, GUARD_VALUE, g->image_bytes));
    CUDA(cudaDeviceSynchronize());
    for (unsigned i = 0; i < g->n; i++) {
        struct sw_group_item *item = &g->items[i];
        const struct sw_extent *first = g->stored[i].extents;
        item->mapping = &g->to;
        item->is_damaged = i != damaged;
        ok(sw_frame_parse(&item->frame, first->memory, first->bytes, g->stored[i].bytes, &err));
    }
    ok(device->ops->restore_group(device, s, g->items, g->n, &err));
    settle(s, s == 0);
    CUDA(cudaMemcpy(out, g->d_to, g->image_bytes, cudaMemcpyDeviceToHost));
    for (unsigned i = 0; i < g->n; i++) {
        ck_assert_msg(g->items[i].is_damaged == (i == damaged), "item %u", i);
        if (i == damaged)
            memcpy(out + g->items[i].offset, g->image + g->items[i].offset, g->items[i].bytes);
    }
    ck_assert(!memcmp(out, g->image, g->image_bytes));
    free(out);
}

/* A plan from a sample of an item, as the engine makes it. */
static struct sw_plan plan_for(const struct group *g, unsigned item) {
    ok(device->ops->make_plan(device, 0, SW_VALUE_NONE, false, &g->from, g->items[item].offset, g->items[item].bytes,
                              &err));
    settle(0, false);
    return *device->ops->plan(device, 0);
}

START_TEST(groups_go_out_and_come_back) {
    enum { N = 100 };
    uint64_t bytes[N];
    enum sw_content content[N];
    open_device(1 << 20);
    for (unsigned i = 0; i < N; i++) {
        bytes[i] = i == 0 ? 60000 : 1 + i * i * 7 % 9001;
        content[i] = i ? (enum sw_content)(i % SW_CONTENT_NR) : SW_CONTENT_TEXT;
    }
    struct group g = group_new(N, bytes, content);
    struct sw_plan plan = plan_for(&g, 0), raw;
    ck_assert_int_eq(plan.codec, SW_CODEC_PHRASE);
    sw_plan_init_raw(&raw);
    for (unsigned s = 0; s < 2; s++) {
        encode(&g, s, &plan);
        ck_assert_int_eq(g.items[0].frame.codec, SW_CODEC_PHRASE);
        for (unsigned i = 0; i < N; i++)
            ck_assert(g.items[i].frame.codec == SW_CODEC_PHRASE || content[i] != SW_CONTENT_TEXT || bytes[i] < 5000);
        ck_assert_int_eq(g.items[SW_CONTENT_NR].frame.codec, SW_CODEC_RAW); /* random */
        reserve(&g, s ? 1 : 3);
        ok(device->ops->store_group(device, s, g.items, N, &err));
        settle(s, s == 0);
        ck_stored(&g);
        restore(&g, 1 - s, N);
        memset(g.arena, GUARD_VALUE, g.arena_bytes);
    }
    encode(&g, 0, &raw);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(g.items[i].frame.codec, SW_CODEC_RAW);
    reserve(&g, 100);
    ok(device->ops->store_group(device, 0, g.items, N, &err));
    settle(0, true);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_ne(g.items[i].identity, 0);
    ck_stored(&g);
    restore(&g, 1, N);
    group_free(&g);
    device->ops->close(device);
}
END_TEST

START_TEST(a_dictionary_goes_to_the_device) {
    enum { CHUNK = 4 << 20, TEXT_BYTES = 4 * CHUNK, LEARNING_CHUNK = 32 << 20 };
    uint8_t *text = must_calloc(1, TEXT_BYTES), *out = must_calloc(1, CHUNK), *arena = NULL;
    struct sw_mapping from = {.bytes = TEXT_BYTES}, to = {.bytes = CHUNK};
    void *d_text = NULL, *d_out = NULL;
    open_device(_i ? LEARNING_CHUNK : CHUNK);
    ck_assert_int_eq(device->ops->info(device)->learns_dictionaries,
                     _i && device->ops->info(device)->takes_dictionaries);
    if (device->ops->info(device)->takes_dictionaries) {
        sw_tpch_text_fill(text, 0, TEXT_BYTES, 1);
        CUDA(cudaMalloc(&d_text, TEXT_BYTES));
        CUDA(cudaMalloc(&d_out, CHUNK));
        CUDA(cudaHostAlloc((void **)&arena, 2 * CHUNK, cudaHostAllocPortable));
        CUDA(cudaMemcpy(d_text, text, TEXT_BYTES, cudaMemcpyHostToDevice));
        from.address = (uintptr_t)d_text;
        to.address = (uintptr_t)d_out;
        sw_dense_device_ck(device, &from, &to, text, TEXT_BYTES, CHUNK, arena);
        CUDA(cudaMemcpy(out, d_out, CHUNK, cudaMemcpyDeviceToHost));
        ck_assert(!memcmp(out, text, CHUNK));
        CUDA(cudaFreeHost(arena));
        CUDA(cudaFree(d_out));
        CUDA(cudaFree(d_text));
    }
    free(text);
    free(out);
    device->ops->close(device);
}
END_TEST

START_TEST(only_the_damaged_item_fails) {
    enum { N = 20 };
    uint64_t bytes[N];
    enum sw_content content[N];
    open_device(1 << 20);
    for (unsigned i = 0; i < N; i++) {
        bytes[i] = 10000 + 1001 * i;
        content[i] = i % 2 ? SW_CONTENT_TEXT : SW_CONTENT_RANDOM;
    }
    struct group g = group_new(N, bytes, content);
    const struct sw_plan plan = plan_for(&g, 1);
    encode(&g, 0, &plan);
    reserve(&g, 1000);
    ok(device->ops->store_group(device, 0, g.items, N, &err));
    settle(0, false);
    for (unsigned i = 0; i < N; i += 3) {
        uint8_t *hash = (uint8_t *)g.stored[i].extents[0].memory + g.items[i].frame.records_offset + 4;
        *hash ^= 1;
        restore(&g, i % 2, i);
        *hash ^= 1;
    }
    restore(&g, 0, N);
    group_free(&g);
    device->ops->close(device);
}
END_TEST

/* More pieces than the list of one copy kernel holds. */
/* Frames in the slot's buffer, behind the step that makes them, and in a client's memory, at any place; as many and as
 * long as may be. */
START_TEST(frames_are_identified) {
    enum { CHUNK_BYTES = 4 << 20 };
    const uint64_t frame_cap = sw_frame_bound_bytes(CHUNK_BYTES);
    struct sw_head_item heads[SW_HEAD_MAX];
    struct sw_slot_result result;
    struct sw_plan raw;
    uint8_t *d_from, *content = must_calloc(1, CHUNK_BYTES), *frame = must_calloc(1, frame_cap);
    open_device(CHUNK_BYTES);
    sw_content_fill(content, CHUNK_BYTES, SW_CONTENT_RANDOM, 3);
    CUDA(cudaMalloc((void **)&d_from, CHUNK_BYTES));
    CUDA(cudaMemcpy(d_from, content, CHUNK_BYTES, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    struct sw_mapping from = {.address = (uintptr_t)d_from, .bytes = CHUNK_BYTES};
    sw_plan_init_raw(&raw);
    const uint64_t head_bytes = sw_frame_head_bound_bytes(CHUNK_BYTES);
    ok(device->ops->encode(device, 0, &raw, &from, 0, CHUNK_BYTES, &err));
    heads[0] = (struct sw_head_item){.at = 0, .bytes = 64 + 8 * (CHUNK_BYTES / 32768)};
    ok(device->ops->identify(device, 0, NULL, heads, 1, &err));
    ok(device->ops->slot_wait(device, 0, &result, &err));
    ck_assert_uint_eq(result.frame.counts_offset, heads[0].bytes);
    ok(device->ops->store(device, 0, frame, 0, result.frame.frame_bytes, &err));
    settle(0, true);
    ck_assert_uint_eq(heads[0].identity, sw_identity_of(frame, heads[0].bytes));
    for (unsigned i = 0; i < SW_HEAD_MAX; i++)
        heads[i] = (struct sw_head_item){.at = 4099 * i, .bytes = 4095};
    ok(device->ops->identify(device, 1, &from, heads, SW_HEAD_MAX, &err));
    settle(1, true);
    for (unsigned i = 0; i < SW_HEAD_MAX; i++)
        ck_assert_uint_eq(heads[i].identity, sw_identity_of(content + heads[i].at, heads[i].bytes));
    heads[0] = (struct sw_head_item){.at = 1, .bytes = head_bytes};
    ok(device->ops->identify(device, 1, &from, heads, 1, &err));
    settle(1, false);
    ck_assert_uint_eq(heads[0].identity, sw_identity_of(content + 1, head_bytes));
    CUDA(cudaFree(d_from));
    device->ops->close(device);
    free(content);
    free(frame);
}
END_TEST

START_TEST(frames_in_very_many_extents) {
    const uint64_t bytes[] = {3000001, 100, 3000000, 5000};
    const enum sw_content content[] = {SW_CONTENT_RANDOM, SW_CONTENT_TEXT, SW_CONTENT_RANDOM, SW_CONTENT_TEXT};
    struct sw_plan raw;
    open_device(8 << 20);
    struct group g = group_new(4, bytes, content);
    sw_plan_init_raw(&raw);
    encode(&g, 0, &raw);
    reserve(&g, 1);
    ok(device->ops->store_group(device, 0, g.items, 4, &err));
    settle(0, false);
    ck_stored(&g);
    restore(&g, 1, 4);
    group_free(&g);
    device->ops->close(device);
}
END_TEST

/* A group has the most items and the most bytes that it may have, on devices of all sizes. */
START_TEST(the_largest_groups) {
    static const uint64_t chunks[] = {32 << 10, 1 << 20, 4 << 20};
    open_device(chunks[_i]);
    const struct sw_device_info *info = device->ops->info(device);
    const unsigned n = info->group_items;
    uint64_t *bytes = must_calloc(n, sizeof *bytes), used = 0;
    enum sw_content *content = must_calloc(n, sizeof *content);
    ck_assert_uint_ge(n, 1);
    ck_assert_uint_le(info->scratch_bytes, 64 << 20);
    for (unsigned i = 0; i < n; i++) {
        bytes[i] = 1;
        content[i] = SW_CONTENT_TEXT;
        used += sw_group_item_bytes(1);
    }
    ck_assert_uint_le(used, info->group_bytes);
    while (used - sw_group_item_bytes(1) + sw_group_item_bytes(bytes[n - 1] + 256) <= info->group_bytes)
        bytes[n - 1] += 256;
    struct group g = group_new(n, bytes, content);
    const struct sw_plan plan = plan_for(&g, n - 1);
    encode(&g, 0, &plan);
    reserve(&g, 1000);
    ok(device->ops->store_group(device, 0, g.items, n, &err));
    settle(0, false);
    ck_stored(&g);
    restore(&g, 0, n);
    group_free(&g);
    free(bytes);
    free(content);
    device->ops->close(device);
}
END_TEST

/* Where the bytes are, or are to go; the frames are where they are reserved. */
static void raw_items(const struct group *g, struct sw_raw_item *ret) {
    for (unsigned i = 0; i < g->n; i++)
        ret[i] = (struct sw_raw_item){
            .frame = g->items[i].frame, .offset = g->items[i].offset, .stored = g->items[i].stored};
}

/* Fills the items' extents with raw frames of their bytes, in steps of `step` chunks, of which the CPU hashes up to
 * n_by_cpu. */
static void spill_raw(struct group *g, uint64_t blocks, unsigned step, unsigned n_by_cpu) {
    struct sw_raw_item items[SW_RAW_MAX];
    for (unsigned i = 0; i < g->n; i++)
        sw_frame_layout_init(&g->items[i].frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, g->items[i].bytes, 0);
    reserve(g, blocks);
    raw_items(g, items);
    for (unsigned i = 0; i < g->n; i += step) {
        const unsigned n = g->n - i < step ? g->n - i : step;
        ok(device->ops->spill_raw(device, i % 2, &g->from, items + i, n, n_by_cpu < n ? n_by_cpu : n, &err));
        settle(i % 2, i % 4 < 2);
    }
}

static void restore_raw(struct group *g, unsigned step, unsigned n_by_cpu) {
    struct sw_raw_item items[SW_RAW_MAX];
    raw_items(g, items);
    for (unsigned i = 0; i < g->n; i += step) {
        const unsigned n = g->n - i < step ? g->n - i : step;
        ok(device->ops->restore_raw(device, i % 2, &g->to, items + i, n, n_by_cpu < n ? n_by_cpu : n, &err));
        settle(i % 2, i % 3 == 0);
    }
}

/* All chunks in one step or some in each, hashed by the CPU, by a kernel, or by both. */
START_TEST(raw_frames_directly) {
    enum { N = 11 };
    static const uint64_t bytes[N] = {1, 15, 1024, 32767, 32768, 32769, 65536, 100000, 123456, 1048576, 3000001};
    static const unsigned by_cpu[] = {0, 1, 3, N};
    enum sw_content content[N];
    for (unsigned i = 0; i < N; i++)
        content[i] = i % 2 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT;
    open_device(8 << 20);
    struct group g = group_new(N, bytes, content);
    uint8_t *out = must_calloc(1, g.image_bytes);
    for (unsigned k = 0; k < sizeof by_cpu / sizeof by_cpu[0]; k++) {
        for (unsigned step = 1; step <= N; step += 5) {
            memset(g.arena, GUARD_VALUE, g.arena_bytes);
            spill_raw(&g, step == 1 ? 7 : step * 100, step, by_cpu[k]);
            ck_stored(&g);
            CUDA(cudaMemset(g.d_to, GUARD_VALUE, g.image_bytes));
            CUDA(cudaDeviceSynchronize());
            restore_raw(&g, step, by_cpu[k]);
            CUDA(cudaMemcpy(out, g.d_to, g.image_bytes, cudaMemcpyDeviceToHost));
            ck_assert(!memcmp(out, g.image, g.image_bytes));
        }
    }
    restore(&g, 0, N); /* they are frames like others */
    free(out);
    group_free(&g);
    device->ops->close(device);
}
END_TEST

/* _i: chunks that the CPU hashes. */
START_TEST(a_damaged_raw_frame_is_found) {
    enum { N = 3 };
    static const uint64_t bytes[N] = {200000, 70000, 200000};
    static const enum sw_content content[N] = {SW_CONTENT_RANDOM, SW_CONTENT_TEXT, SW_CONTENT_RANDOM};
    struct sw_slot_result result;
    struct sw_raw_item items[N] = {{.offset = 0}};
    open_device(1 << 20);
    struct group g = group_new(N, bytes, content);
    spill_raw(&g, 1000, N, (unsigned)_i);
    raw_items(&g, items);
    for (unsigned i = 0; i < N; i++) {
        const struct sw_frame_layout *frame = &items[i].frame;
        for (uint64_t at = frame->records_offset + 4; at < frame->data_offset + bytes[i]; at += 33333) {
            uint8_t *byte = (uint8_t *)g.stored[i].extents[0].memory + at;
            *byte ^= 1;
            ok(device->ops->restore_raw(device, 0, &g.to, items, N, (unsigned)_i, &err));
            ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_ECHECKSUM);
            *byte ^= 1;
        }
    }
    restore_raw(&g, N, (unsigned)_i);
    group_free(&g);
    device->ops->close(device);
}
END_TEST

/* A step has the most chunks that it may have, of the longest length. */
START_TEST(the_longest_raw_step) {
    uint64_t bytes[SW_RAW_MAX];
    enum sw_content content[SW_RAW_MAX];
    open_device(1 << 20);
    for (unsigned i = 0; i < SW_RAW_MAX; i++) {
        bytes[i] = 1 << 20;
        content[i] = SW_CONTENT_RANDOM;
    }
    struct group g = group_new(SW_RAW_MAX, bytes, content);
    uint8_t *out = must_calloc(1, g.image_bytes);
    spill_raw(&g, 1000, SW_RAW_MAX, 0);
    ck_stored(&g);
    CUDA(cudaMemset(g.d_to, GUARD_VALUE, g.image_bytes));
    CUDA(cudaDeviceSynchronize());
    restore_raw(&g, SW_RAW_MAX, 5);
    CUDA(cudaMemcpy(out, g.d_to, g.image_bytes, cudaMemcpyDeviceToHost));
    ck_assert(!memcmp(out, g.image, g.image_bytes));
    free(out);
    group_free(&g);
    device->ops->close(device);
}
END_TEST

int main(void) {
    if (sw_device_cuda_count() == 0) {
        (void)puts("skipped: no GPU");
        return 77;
    }
    TCase *cases = tcase_create("device");
    tcase_add_test(cases, groups_go_out_and_come_back);
    tcase_add_loop_test(cases, a_dictionary_goes_to_the_device, 0, 2); /* learned by the host, and by the GPU */
    tcase_add_test(cases, only_the_damaged_item_fails);
    tcase_add_test(cases, frames_are_identified);
    tcase_add_test(cases, frames_in_very_many_extents);
    tcase_add_loop_test(cases, the_largest_groups, 0, 3);
    tcase_add_test(cases, raw_frames_directly);
    tcase_add_loop_test(cases, a_damaged_raw_frame_is_found, 0, 4);
    tcase_add_test(cases, the_longest_raw_step);
    Suite *suite = suite_create("gpu device");
    suite_add_tcase(suite, cases);
    return sw_test_run(suite, CK_NOFORK); /* one CUDA context for all tests */
}
