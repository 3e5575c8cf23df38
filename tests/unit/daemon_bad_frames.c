/* Frames of a client that are bad, change while they are copied, or are damaged later: a bad frame fails its build or
 * its read, and nothing else. */
#include "spill/engine_state.h"
#include "tests/lib/client_frames.h"
#include "tests/lib/content.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>

/* ---- bad frames ---- */

static void set_header(unsigned i, void (*change)(struct sw_frame_header *h)) {
    struct sw_frame_header h;
    struct sw_frame_layout layout;
    memcpy(&h, frame(i), sizeof h);
    ck_assert_int_eq(sw_frame_parse(&layout, frame(i), frame_bytes[i], frame_bytes[i], NULL), 0);
    change(&h);
    /* A hash that is right: only what it says is wrong. */
    layout.codec = (enum sw_codec_id)h.codec;
    layout.segment_log2 = h.segment_log2;
    layout.n_tiles = h.n_tiles;
    layout.n_symbols = h.n_symbols;
    layout.value_type = (enum sw_value_type)h.value_type;
    layout.raw_bytes = h.raw_bytes;
    layout.frame_bytes = h.frame_bytes;
    sw_frame_header_init((struct sw_frame_header *)(void *)frame(i), &layout, frame(i) + SW_FRAME_HEADER_BYTES);
}

static void other_raw_bytes(struct sw_frame_header *h) {
    h->raw_bytes -= 8;
}

static void other_length(struct sw_frame_header *h) {
    h->frame_bytes -= 16;
}

static void unknown_codec(struct sw_frame_header *h) {
    h->codec = SW_CODEC_NR;
}

static void wrong_segments(struct sw_frame_header *h) {
    h->segment_log2 = 20;
}

static void too_many_symbols(struct sw_frame_header *h) {
    h->n_symbols = SW_FRAME_MAX_SYMBOLS + 1;
}

static void more_tiles(struct sw_frame_header *h) {
    h->n_tiles++;
}

enum bad {
    TRUNCATED,
    LONGER,
    TOO_SHORT,
    TOO_LONG,
    OTHER_RAW_BYTES,
    OTHER_LENGTH,
    OTHER_CHUNK,
    WRONG_TYPE,
    UNKNOWN_CODEC,
    WRONG_SEGMENTS,
    TOO_MANY_SYMBOLS,
    MORE_TILES,
    HEADER_HASH,
    OTHER_VERSION,
    RANDOM_BYTES,
    ZEROS,
    N_BAD
};

/* Spoils frame 2 and the chunk that speaks of it. */
static void spoil(enum bad bad, struct sw_wire_chunk *chunk) {
    switch (bad) {
    case TRUNCATED:
        chunk->frame_bytes -= 16;
        break;
    case LONGER:
        chunk->frame_bytes += 16;
        break;
    case TOO_SHORT:
        chunk->frame_bytes = 1;
        break;
    case TOO_LONG:
        chunk->frame_bytes = (uint32_t)sw_frame_bound_bytes(CHUNK) + 16;
        break;
    case OTHER_RAW_BYTES:
        set_header(2, other_raw_bytes);
        break;
    case OTHER_LENGTH:
        set_header(2, other_length);
        break;
    case OTHER_CHUNK: /* the last one, which is shorter */
        chunk->offset = frame_at(N_CHUNKS - 1);
        chunk->frame_bytes = frame_bytes[N_CHUNKS - 1];
        break;
    case WRONG_TYPE:
        make_raw(SW_VALUE_U32);
        encode(SW_VALUE_U32);
        chunk->frame_bytes = frame_bytes[2];
        break;
    case UNKNOWN_CODEC:
        set_header(2, unknown_codec);
        break;
    case WRONG_SEGMENTS:
        set_header(2, wrong_segments);
        break;
    case TOO_MANY_SYMBOLS:
        set_header(2, too_many_symbols);
        break;
    case MORE_TILES:
        set_header(2, more_tiles);
        break;
    case HEADER_HASH:
        frame(2)[20] ^= 1;
        break;
    case OTHER_VERSION:
        frame(2)[4]++;
        break;
    case RANDOM_BYTES:
        sw_content_fill(frame(2), ROOM, SW_CONTENT_RANDOM, 3);
        break;
    case ZEROS:
        memset(frame(2), 0, ROOM);
        break;
    case N_BAD:
        break;
    }
}

/* Nothing of such a build stays, and the daemon takes the next one. */
START_TEST(a_bad_frame_fails_its_build) {
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    (void)add_frame(0, 0);
    (void)add_frame(0, 1);
    ck_assert_int_eq(call(), 0);
    new_build(NUMBER, 0, 0);
    spoil((enum bad)_i, add_frame(0, 2));
    ck_assert_int_eq(call(), -SW_EFRAME);
    encode(SW_VALUE_NONE);
    new_build(NUMBER, SW_BUILD_COMMIT, 0);
    (void)add_frame(0, 3);
    ck_assert_int_eq(call(), -SW_EFRAME);
    ck_rest(0, 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    ck_restored(store_frames(NUMBER + 1));
    ck_rest(0, 0);
}
END_TEST

/* The frame is copied once its word is there. The copy is checked, so the client's later writes do not matter. */
START_TEST(a_frame_that_changes_before_it_is_copied) {
    sw_packet_rig_add_page(&rig);
    new_build(NUMBER, SW_BUILD_BEGIN, CHUNK);
    struct sw_wire_chunk *chunk = add_frame(0, 0);
    chunk->order_word = 3;
    chunk->order_value = 1;
    const uint32_t seq = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    sw_packet_rig_idle(&rig);
    frame(0)[10] ^= 1;
    atomic_store(&rig.words[3], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), -SW_EFRAME);
    abort_build(-SW_EFRAME);
    ck_rest(0, 0);
    frame(0)[10] ^= 1;
    ck_restored(store_frames(NUMBER + 1));
}
END_TEST

static void count_alarm(const struct sw_bad_frame *frame, void *arg) {
    (void)frame;
    ++*(unsigned *)arg;
}

/* Returns the code of a read of all bytes. *ret_alarms: how often it reported a damaged tier. */
static int read_bad(struct sw_region_id id, unsigned *ret_alarms) {
    struct sw_observer *observer = &sw_engine_of(rig.session->owner)->store.observer;
    const struct sw_observer before = *observer;
    *ret_alarms = 0;
    *observer = (struct sw_observer){.bad_frame = count_alarm, .arg = ret_alarms};
    memset(rig.memory, 0, RAW_BYTES);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)add_room(0, 0, RAW_BYTES, 0);
    const int rc = call();
    *observer = before;
    return rc;
}

/* A header that is right before content that is not: the client's own bytes are lost, nothing else, and nobody is told
 * that a tier is damaged. Also if the daemon has encoded the most of it. */
START_TEST(a_frame_whose_content_is_bad) {
    const struct sw_region_id good = store_frames(NUMBER);
    unsigned n_alarms;
    frame(1)[frame_bytes[1] - 40] ^= 0x55;
    memcpy(rig.memory, raw, RAW_BYTES);
    new_build(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)(i == 1 || _i == 0 ? add_frame(0, i) : add_any(0, i * (uint64_t)CHUNK, chunk_bytes(i), i * CHUNK));
    ck_assert_int_eq(call(), 0);
    const int rc = read_bad(sw_test_result_id(&rig.reply, 0), &n_alarms);
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    ck_assert_uint_eq(n_alarms, 0);
    ck_restored(good);
    ck_rest(1, 0); /* the bad one is lost, until it is dropped */
}
END_TEST

/* The tier has changed a frame of the client, or of the daemon. */
START_TEST(a_tier_that_damages_frames_raises_an_alarm) {
    struct sw_region *region = NULL;
    unsigned n_alarms;
    memcpy(rig.memory, raw, RAW_BYTES);
    new_build(NUMBER, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    for (unsigned i = 0; i < N_CHUNKS; i++)
        (void)(_i == 0 ? add_frame(0, i) : add_any(0, i * (uint64_t)CHUNK, chunk_bytes(i), i * CHUNK));
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0);
    ck_assert_int_eq(
        sw_region_find(&sw_engine_of(rig.session->owner)->store.regions, rig.session->owner, id, &region, NULL), 0);
    ((uint8_t *)region->frames->stored[2].extents[0].memory)[100] ^= 1;
    ck_assert_int_lt(read_bad(id, &n_alarms), 0);
    ck_assert_uint_eq(n_alarms, 1);
}
END_TEST

/* A disputed frame is checked at most once a second for each tenant; otherwise the frame is only sent again. */
START_TEST(a_frame_that_a_client_disputes) {
    const struct sw_region_id good = store_frames(NUMBER);
    frame(1)[frame_bytes[1] - 40] ^= 0x55;
    const struct sw_region_id bad = store_frames(NUMBER + 1);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, good);
    (void)add_frame_room(0, 0);
    ck_assert_int_eq(call(), 0);
    ck_frame(0, 0, 0);
    const unsigned disputed = SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED;
    new_read(NUMBER, disputed, bad);
    (void)add_frame_room(0, 1);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.n_frames, 1);
    rig.session->tenant->disputed_us -= 1000000;
    new_read(NUMBER, disputed, bad);
    (void)add_frame_room(0, 1);
    int rc = call();
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    new_read(NUMBER, disputed, bad);
    (void)add_frame_room(0, 1);
    ck_assert_int_eq(call(), -SW_ELOST);
    ck_restored(good);
    ck_rest(1, 0);
}
END_TEST

START_TEST(what_may_not_be_disputed) {
    const struct sw_region_id id = store_frames(NUMBER);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, id);
    (void)add_room(0, 0, RAW_BYTES, 0);
    ck_assert_int_eq(call(), -SW_EINVAL); /* not a frame */
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP | SW_READ_DISPUTED, id);
    for (unsigned i = 0; i <= SW_READ_MAX_DISPUTED; i++)
        add_frame_room(0, 0)->offset = i * (uint64_t)ROOM;
    ck_assert_int_eq(call(), -SW_EINVAL); /* too many */
    ck_restored(id);
    ck_rest(0, 0);
}
END_TEST

/* Frames whose sections point anywhere: the daemon's decoder finds an error, or bytes, and stays inside. */
START_TEST(frames_with_wild_content_harm_nobody) {
    const struct sw_region_id good = store_frames(NUMBER);
    uint64_t random = 1 + (uint64_t)_i;
    encode(_i % 2 ? SW_VALUE_U32 : SW_VALUE_NONE);
    new_build(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT, CHUNK);
    packet.buffers[0].value_type = _i % 2 ? SW_VALUE_U32 : SW_VALUE_NONE;
    for (unsigned i = 0; i < N_CHUNKS; i++) {
        struct sw_frame_layout layout;
        ck_assert_int_eq(sw_frame_parse(&layout, frame(i), frame_bytes[i], frame_bytes[i], NULL), 0);
        for (unsigned k = 0; k < 20; k++)
            frame(i)[layout.records_offset + sw_random(&random) % (frame_bytes[i] - layout.records_offset)] =
                (uint8_t)sw_random(&random);
        (void)add_frame(0, i);
    }
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id wild = sw_test_result_id(&rig.reply, 0);
    new_read(NUMBER, SW_READ_BEGIN | SW_READ_END | SW_READ_KEEP, wild);
    (void)add_room(0, 0, RAW_BYTES, 0);
    const int rc = call();
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    make_raw(SW_VALUE_NONE);
    ck_restored(good);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("bad frames of clients");
    TCase *tcase = tcase_create("bad frames of clients");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_bad_frame_fails_its_build, 0, N_BAD);
    tcase_add_test(tcase, a_frame_that_changes_before_it_is_copied);
    tcase_add_loop_test(tcase, a_frame_whose_content_is_bad, 0, 2);
    tcase_add_loop_test(tcase, a_tier_that_damages_frames_raises_an_alarm, 0, 2);
    tcase_add_test(tcase, a_frame_that_a_client_disputes);
    tcase_add_test(tcase, what_may_not_be_disputed);
    tcase_add_loop_test(tcase, frames_with_wild_content_harm_nobody, 0, 20);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
