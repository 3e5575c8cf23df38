/* A mover in the process whose memory it moves (away_rig.h): regions are packed and unpacked there, and nothing goes to
 * the other process. */
#include "spill/mover/heap_places.h"
#include "spill/mover/mover.h"
#include "tests/mover/away_rig.h"
#include "tests/mover/away_sink.h"
#include "tests/mover/runner.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

/* ---- steps of the device that fail ---- */

static struct {
    unsigned nth; /* the nth step from now on fails; 0: none */
    int code;
} fault;

static bool fails(struct sw_err *err) {
    if (!fault.nth || --fault.nth)
        return false;
    (void)sw_err_set(err, fault.code, SW_SCOPE_REQUEST, "the device refuses");
    return true;
}

static int f_encode(struct sw_device *d, unsigned s, const struct sw_plan *plan, const struct sw_mapping *mapping,
                    uint64_t offset, uint64_t bytes, struct sw_err *err) {
    return fails(err) ? fault.code : rig.real->encode(d, s, plan, mapping, offset, bytes, err);
}

/* These two overwrite bytes of the client: from then on nobody can go on in the mover's place. */
static int f_place(struct sw_device *d, unsigned s, struct sw_mapping *mapping, uint64_t offset, uint64_t frame_offset,
                   uint64_t bytes, struct sw_err *err) {
    ck_assert(sw_mover_must_go_on(rig.mover));
    return fails(err) ? fault.code : rig.real->place(d, s, mapping, offset, frame_offset, bytes, err);
}

static int f_unpack(struct sw_device *d, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                    unsigned n, struct sw_err *err) {
    ck_assert(sw_mover_must_go_on(rig.mover));
    return fails(err) ? fault.code : rig.real->unpack(d, s, mapping, items, n, err);
}

static int f_fetch(struct sw_device *d, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                   uint64_t frame_offset, uint64_t bytes, struct sw_err *err) {
    return fails(err) ? fault.code : rig.real->fetch(d, s, mapping, offset, frame_offset, bytes, err);
}

static int f_identify(struct sw_device *d, unsigned s, const struct sw_mapping *mapping, struct sw_head_item *items,
                      unsigned n, struct sw_err *err) {
    return fails(err) ? fault.code : rig.real->identify(d, s, mapping, items, n, err);
}

static int f_decode(struct sw_device *d, unsigned s, struct sw_mapping *mapping, const struct sw_decode_item *items,
                    unsigned n, struct sw_err *err) {
    return fails(err) ? fault.code : rig.real->decode(d, s, mapping, items, n, err);
}

/* ---- runs ---- */

static void open_rig(unsigned n_slots) {
    rig_open(n_slots, CHUNK_BYTES, SW_AWAY_LATER);
    fault.nth = 0;
    rig.ops.encode = f_encode;
    rig.ops.place = f_place;
    rig.ops.fetch = f_fetch;
    rig.ops.identify = f_identify;
    rig.ops.decode = f_decode;
    rig.ops.unpack = f_unpack;
}

/* Begins a pack or unpack of one->back; frames: of the unpack. */
static void add_in_place(struct one *one, enum sw_operation operation, struct sw_frames *frames) {
    describe(one, operation, 1);
    begin(one, &one->request, 0, 0);
    one->away.run.frames = frames;
}

static int pack(struct one *one) {
    memcpy(one->back, one->data, one->bytes);
    add_in_place(one, SW_OP_PACK, NULL);
    finish();
    return one->away.run.outcome.err.code;
}

static int unpack(struct one *one, struct sw_frames *frames) {
    add_in_place(one, SW_OP_UNPACK, frames);
    finish();
    return one->away.run.outcome.err.code;
}

/* Packs, and overwrites what the pack has left free. */
static struct sw_frames *packed(struct one *one) {
    ck_assert_int_eq(pack(one), 0);
    const uint64_t used = one->away.run.outcome.stored_bytes;
    ck_assert_uint_eq(used, sw_frames_packed_bytes(one->away.run.frames));
    memset(one->back + used, 0xDB, one->bytes - used);
    return one->away.run.frames;
}

START_TEST(a_region_is_packed_in_place) {
    for (unsigned n_slots = 1; n_slots <= 4; n_slots++)
        for (enum content content = TEXT; content < CONTENTS; content++) {
            struct one one;
            open_rig(n_slots);
            one_init(&one, 5 * MIB + 1000, content, content == NUMBERS ? SW_VALUE_U32 : SW_VALUE_NONE, n_slots);
            struct sw_frames *frames = packed(&one);
            ck_assert(content == RANDOM || one.away.run.outcome.stored_bytes < one.bytes);
            ck_assert_int_eq(unpack(&one, frames), 0);
            assert_back(&one);
            ck_assert(rig.sink.n_sends == 0 && rig.sink.n_fetched == 0);
            sw_heap_free_frames(frames);
            one_fini(&one);
            rig_close();
        }
}
END_TEST

/* All frames are compared before the first byte is written. Frames with a beginning in the heap are told apart there.
 */
START_TEST(frames_that_changed_places_are_refused) {
    struct one one;
    open_rig(3);
    one_init(&one, 4 * MIB, NUMBERS, SW_VALUE_U32, 1);
    struct sw_frames *frames = packed(&one);
    uint8_t *before = malloc(one.bytes);
    ck_assert_ptr_nonnull(before);
    for (size_t i = 0; i < frames->n_chunks; i++)
        for (size_t k = i + 1; k < frames->n_chunks; k++) {
            uint8_t *a = one.back + frames->packed[i].offset, *b = one.back + frames->packed[k].offset;
            const size_t bytes = SW_FRAME_ALIGN * 4;
            for (size_t at = 0; at < bytes; at++) {
                const uint8_t byte = a[at];
                a[at] = b[at];
                b[at] = byte;
            }
            memcpy(before, one.back, one.bytes);
            if (memcmp(a, b, bytes) == 0)
                continue;
            ck_assert_int_eq(unpack(&one, frames), -SW_ECHECKSUM);
            ck_assert_int_eq(memcmp(before, one.back, one.bytes), 0);
            for (size_t at = 0; at < bytes; at++) {
                const uint8_t byte = a[at];
                a[at] = b[at];
                b[at] = byte;
            }
        }
    ck_assert_int_eq(unpack(&one, frames), 0);
    assert_back(&one);
    free(before);
    sw_heap_free_frames(frames);
    one_fini(&one);
    rig_close();
}
END_TEST

/* A pack that fails at any step is undone. An unpack that fails at any step can be repeated. */
START_TEST(each_step_may_fail) {
    const enum content content = (enum content)_i;
    const int code = -SW_EGPU;
    struct one one;
    unsigned nth = 0;
    open_rig(3);
    one_init(&one, 5 * MIB + 1000, content, content == NUMBERS ? SW_VALUE_U32 : SW_VALUE_NONE, 1);
    do {
        fault.nth = ++nth;
        fault.code = code;
        const int rc = pack(&one);
        ck_assert_msg(rc == 0 || rc == code, "%d %s", rc, one.away.run.outcome.err.msg);
        if (rc)
            assert_back(&one);
    } while (fault.nth == 0);
    struct sw_frames *frames = one.away.run.frames;
    int rc = code;
    for (nth = 1; rc == code; nth++) {
        fault.nth = nth;
        rc = unpack(&one, frames);
    }
    ck_assert_int_eq(rc, 0);
    assert_back(&one);
    sw_heap_free_frames(frames);
    one_fini(&one);
    rig_close();
}
END_TEST

/* Whenever it is canceled: beside a spill, whose frames are with the other process. */
START_TEST(a_canceled_pack_is_undone) {
    struct one one, other;
    open_rig(3);
    one_init(&one, 6 * MIB, MIXED, SW_VALUE_NONE, 1);
    one_init(&other, 4 * MIB, TEXT, SW_VALUE_NONE, 2);
    bool was_whole = false;
    for (unsigned n_steps = 0; !was_whole; n_steps++) {
        add_spill(&other, 2);
        memcpy(one.back, one.data, one.bytes);
        add_in_place(&one, SW_OP_PACK, NULL);
        for (unsigned i = 0; i < n_steps; i++)
            step();
        sw_mover_cancel(rig.mover, &one.signals);
        finish();
        ck_assert(!sw_mover_must_go_on(rig.mover));
        ck_assert_int_eq(end(&other), 0);
        sw_away_frames_free(&other.frames);
        was_whole = one.away.run.outcome.err.code == 0;
        ck_assert(was_whole || one.away.run.outcome.err.code == -SW_ECANCELED);
        if (!was_whole)
            assert_back(&one);
    }
    struct sw_frames *frames = one.away.run.frames;
    ck_assert_int_eq(unpack(&one, frames), 0);
    assert_back(&one);
    sw_heap_free_frames(frames);
    one_fini(&other);
    one_fini(&one);
    rig_close();
}
END_TEST

/* No step uses a slot to whose buffer another process may write. The last slot is never taken away. */
START_TEST(retired_slots_are_not_used) {
    struct one one;
    open_rig(3);
    one_init(&one, 6 * MIB, MIXED, SW_VALUE_NONE, 1);
    sw_mover_retire_slot(rig.mover, 0);
    sw_mover_retire_slot(rig.mover, 2);
    uint8_t *buffers = rig.buffers;
    memset(buffers, 0x77, rig.sink.stride);
    memset(buffers + 2 * rig.sink.stride, 0x77, rig.sink.stride);
    struct sw_frames *frames = packed(&one);
    ck_assert_int_eq(unpack(&one, frames), 0);
    assert_back(&one);
    for (uint64_t i = 0; i < rig.sink.stride; i++)
        ck_assert(buffers[i] == 0x77 && buffers[2 * rig.sink.stride + i] == 0x77);
    sw_mover_retire_slot(rig.mover, 1);
    sw_heap_free_frames(frames);
    frames = packed(&one);
    ck_assert_int_eq(unpack(&one, frames), 0);
    assert_back(&one);
    sw_heap_free_frames(frames);
    one_fini(&one);
    rig_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mover away, packed");
    TCase *tcase = tcase_create("in place");
    tcase_set_timeout(tcase, 240); /* the machine may be busy */
    tcase_add_test(tcase, a_region_is_packed_in_place);
    tcase_add_test(tcase, frames_that_changed_places_are_refused);
    tcase_add_loop_test(tcase, each_step_may_fail, TEXT, CONTENTS);
    tcase_add_test(tcase, a_canceled_pack_is_undone);
    tcase_add_test(tcase, retired_slots_are_not_used);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
