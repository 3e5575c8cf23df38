/* What the service says of a frame becomes the layout by which the codec in an engine's process decodes it. */
#include "codec/codec.h"
#include "codec/onpair/onpair.h"
#include "ipc/client/client_coded_state.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define BYTES ((uint64_t)512 << 10)

static uint8_t *text, *frame;
static uint64_t room_bytes;

static void setup(void) {
    room_bytes = sw_frame_bound_bytes(BYTES);
    text = malloc(BYTES);
    frame = malloc(room_bytes);
    ck_assert(text && frame);
    sw_tpch_text_fill(text, 0, BYTES, 1);
}

static void teardown(void) {
    free(text);
    free(frame);
}

/* Encodes the text. The loop's index: by which plan. Returns the frame's layout. */
static struct sw_frame_layout encode(int by) {
    static struct sw_frame_dictionary dictionary;
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_frame_layout layout;
    struct sw_plan plan;
    uint64_t frame_bytes;
    if (by == 0)
        sw_plan_init_raw(&plan);
    else if (by == 1)
        sw_plan_make(&plan, SW_VALUE_NONE, text, BYTES, sample);
    else
        ck_assert_int_eq(sw_onpair_plan(&plan, &dictionary, text, BYTES), 0);
    ck_assert_int_eq(sw_codec_encode(&plan, text, BYTES, frame, room_bytes, &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    return layout;
}

static struct sw_wire_frame say(const struct sw_frame_layout *layout) {
    return (struct sw_wire_frame){.bytes = layout->frame_bytes,
                                  .raw_bytes = layout->raw_bytes,
                                  .n_symbols = layout->n_symbols,
                                  .codec = (uint8_t)layout->codec,
                                  .segment_log2 = (uint8_t)layout->segment_log2,
                                  .dictionary16 = (uint16_t)(layout->dictionary_bytes / SW_FRAME_ALIGN)};
}

START_TEST(the_layout_is_the_frame_s) {
    static const enum sw_codec_id codecs[] = {SW_CODEC_RAW, SW_CODEC_V5T, SW_CODEC_ONPAIR};
    const struct sw_frame_layout layout = encode(_i);
    const struct sw_wire_frame said = say(&layout);
    struct sw_frame_layout taken;
    ck_assert_int_eq(layout.codec, codecs[_i]);
    ck_assert(sw_coded_take_layout(&taken, &said, room_bytes));
    ck_assert_mem_eq(&taken, &layout, sizeof layout);
    ck_assert(!sw_coded_take_layout(&taken, &said, layout.frame_bytes - 1));
}
END_TEST

START_TEST(no_dictionary_is_longer_than_its_codec_s) {
    const struct sw_frame_layout layout = encode(_i);
    struct sw_frame_layout taken;
    struct sw_wire_frame said = say(&layout);
    said.dictionary16 = SW_FRAME_MAX_DICTIONARY_BYTES / SW_FRAME_ALIGN + 1;
    ck_assert(!sw_coded_take_layout(&taken, &said, room_bytes));
    said.dictionary16 = 1;
    ck_assert_int_eq(sw_coded_take_layout(&taken, &said, room_bytes), layout.codec == SW_CODEC_ONPAIR);
    said.bytes = layout.counts_offset;
    ck_assert(!sw_coded_take_layout(&taken, &said, room_bytes));
}
END_TEST

static void ck_refused(struct sw_wire_frame said) {
    struct sw_frame_layout taken;
    ck_assert(!sw_coded_take_layout(&taken, &said, room_bytes + SW_FRAME_ALIGN));
}

/* One number of the frame is such that no frame of its codec has it. */
START_TEST(what_no_frame_has_is_refused) {
    const struct sw_frame_layout layout = encode(_i);
    const struct sw_wire_frame said = say(&layout);
    struct sw_wire_frame other[8];
    for (unsigned i = 0; i < 8; i++)
        other[i] = said;
    other[0].raw_bytes = 0;
    other[1].raw_bytes = SW_FRAME_MAX_RAW_BYTES + 1;
    other[2].value_type = SW_VALUE_NR;
    other[3].segment_log2 = SW_FRAME_MIN_SEGMENT_LOG2 - 1;
    other[4].segment_log2 = 31;
    other[5].n_symbols = 1 << 16;
    other[6].codec = SW_CODEC_NR;
    other[7].bytes = layout.codec == SW_CODEC_RAW ? said.bytes + SW_FRAME_ALIGN : 0; /* its length is known */
    for (unsigned i = 0; i < 8; i++)
        ck_refused(other[i]);
    for (unsigned type = 0; type < SW_VALUE_NR; type++) {
        other[0] = said;
        other[0].value_type = (uint8_t)type;
        if (!sw_codec_takes(layout.codec, (enum sw_value_type)type))
            ck_refused(other[0]);
    }
}
END_TEST

START_TEST(no_frame_has_more_symbols_than_its_codec) {
    struct sw_frame_layout layout = encode(_i), taken;
    struct sw_wire_frame said = say(&layout);
    said.n_symbols = sw_codec_format_of(layout.codec)->max_symbols + 1;
    sw_frame_layout_init(&layout, layout.codec, layout.segment_log2, layout.raw_bytes, said.n_symbols);
    sw_frame_layout_add_dictionary(&layout, said.dictionary16 * SW_FRAME_ALIGN);
    said.bytes = layout.frame_bytes ? layout.frame_bytes : room_bytes; /* all other numbers fit */
    ck_assert(!sw_coded_take_layout(&taken, &said, 2 * room_bytes));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_coded");
    TCase *tcase = tcase_create("layouts");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, the_layout_is_the_frame_s, 0, 3);
    tcase_add_loop_test(tcase, no_dictionary_is_longer_than_its_codec_s, 0, 3);
    tcase_add_loop_test(tcase, what_no_frame_has_is_refused, 0, 3);
    tcase_add_loop_test(tcase, no_frame_has_more_symbols_than_its_codec, 0, 3);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
