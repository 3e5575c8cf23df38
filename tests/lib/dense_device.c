#include "tests/lib/dense_device.h"

#include "codec/codec.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

static struct sw_err err;

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s (%s)", sw_err_name(rc), err.msg, err.detail);
}

static struct sw_slot_result settle(struct sw_device *device, unsigned s) {
    struct sw_slot_result result;
    ok(device->ops->slot_wait(device, s, &result, &err));
    return result;
}

/* Makes a plan that borrows a dictionary of its own. */
static struct sw_plan make_plan(struct sw_device *device, const struct sw_mapping *from, uint64_t offset,
                                uint64_t bytes, struct sw_frame_dictionary *ret) {
    ok(device->ops->make_plan(device, 0, SW_VALUE_NONE, true, from, offset, bytes, &err));
    (void)settle(device, 0);
    struct sw_plan plan = *device->ops->plan(device, 0);
    ck_assert_int_eq(plan.codec, SW_CODEC_ONPAIR);
    *ret = *plan.dictionary;
    plan.dictionary = ret;
    return plan;
}

/* Encodes on slot 1, and brings the frame to the arena. */
static struct sw_frame_layout encode(struct sw_device *device, const struct sw_plan *plan, struct sw_mapping *from,
                                     uint64_t bytes, uint8_t *arena) {
    struct sw_frame_layout layout;
    ok(device->ops->encode(device, 1, plan, from, 0, bytes, &err));
    const uint64_t frame_bytes = settle(device, 1).frame.frame_bytes;
    ok(device->ops->store(device, 1, arena, 0, frame_bytes, &err));
    (void)settle(device, 1);
    ok(sw_frame_parse(&layout, arena, frame_bytes, frame_bytes, &err));
    return layout;
}

static void ck_frame(const struct sw_frame_layout *layout, const uint8_t *arena, const uint8_t *text) {
    uint64_t raw_bytes = 0;
    uint8_t *out = malloc(layout->raw_bytes);
    ck_assert_ptr_nonnull(out);
    ok(sw_codec_decode(arena, layout->frame_bytes, out, layout->raw_bytes, &raw_bytes, &err));
    ck_assert_int_eq(memcmp(out, text, layout->raw_bytes), 0);
    free(out);
}

/* Encodes a group by a dictionary, for which its last item is too short, and decodes it on the host and on the device.
 */
static void ck_group(struct sw_device *device, const struct sw_plan *plan, struct sw_mapping *from,
                     struct sw_mapping *to, const uint8_t *text, uint64_t item_bytes, uint8_t *arena) {
    enum { N = 3, SHORT_BYTES = 600 };
    struct sw_group_item items[N];
    struct sw_frame_layout layout;
    uint64_t at = 0;
    for (unsigned i = 0; i < N; i++)
        items[i] = (struct sw_group_item){
            .mapping = from, .offset = i * item_bytes, .bytes = i < N - 1 ? item_bytes : SHORT_BYTES};
    ok(device->ops->encode_group(device, 1, plan, items, N, &err));
    (void)settle(device, 1);
    for (unsigned i = 0; i < N; i++) {
        struct sw_group_item *item = &items[i];
        ck_assert_int_eq(item->frame.codec, i < N - 1 ? SW_CODEC_ONPAIR : SW_CODEC_RAW);
        ok(device->ops->store(device, 1, arena, at, item->frame.frame_bytes, &err));
        (void)settle(device, 1);
        ok(sw_frame_parse(&layout, arena, item->frame.frame_bytes, item->frame.frame_bytes, &err));
        ck_assert_int_eq(memcmp(&layout, &item->frame, sizeof layout), 0);
        ck_frame(&layout, arena, text + item->offset);
        item->mapping = to;
        item->frame_at = at;
        at += sw_group_item_bytes(item->bytes);
    }
    ok(device->ops->decode_group(device, 1, items, N, &err));
    (void)settle(device, 1);
    for (unsigned i = 0; i < N; i++)
        ck_assert(!items[i].is_damaged);
}

void sw_dense_device_ck(struct sw_device *device, struct sw_mapping *from, struct sw_mapping *to, const uint8_t *text,
                        uint64_t bytes, uint64_t chunk_bytes, uint8_t *arena) {
    static struct sw_frame_dictionary dictionaries[2];
    const struct sw_plan first = make_plan(device, from, 0, bytes / 2, &dictionaries[0]),
                         second = make_plan(device, from, bytes / 2, bytes / 2, &dictionaries[1]);
    for (int i = 0; i < 3; i++) {
        const struct sw_plan *plan = i == 1 ? &second : &first;
        const struct sw_frame_layout layout = encode(device, plan, from, chunk_bytes, arena);
        ck_assert_int_eq(layout.codec, SW_CODEC_ONPAIR);
        ck_assert_mem_eq(arena + layout.dictionary_offset, plan->dictionary->data, plan->dictionary->bytes);
        ck_frame(&layout, arena, text);
        ok(device->ops->load(device, 0, arena, 0, layout.frame_bytes, &err));
        ok(device->ops->decode(device, 0, to, &(struct sw_decode_item){.layout = &layout}, 1, &err));
        (void)settle(device, 0);
    }
    const struct sw_frame_layout layout = encode(device, &first, from, 600, arena);
    ck_assert_int_eq(layout.codec, SW_CODEC_RAW);
    ck_frame(&layout, arena, text);
    ck_group(device, &first, from, to, text, chunk_bytes / 4, arena);
}
