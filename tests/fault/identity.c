/* A stored frame is whole, but belongs to another region. Whichever two frames are exchanged, in whichever tier, both
 * are refused, and no client gets another's bytes. If the frames lie in the client's memory, nothing is lost by it. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Chunks of 64 KiB. */
enum { CHUNK = 65536, LONG = 2 * CHUNK, SHORT = 3000, MAX_PLACES = 2, MAX_FRAMES = 64 };

/* Pairs of one kind and length: with numbers of one width their frames have the same length, too. */
static const struct kind {
    uint64_t bytes;
    enum sw_value_type type;
    enum sw_content content;
    unsigned bits;
    unsigned n_buffers;
} kinds[] = {{LONG, SW_VALUE_U32, SW_CONTENT_TEXT, 17, 1},   {LONG, SW_VALUE_U32, SW_CONTENT_TEXT, 17, 1},
             {LONG, SW_VALUE_I64, SW_CONTENT_TEXT, 40, 1},   {LONG, SW_VALUE_NONE, SW_CONTENT_TEXT, 0, 1},
             {LONG, SW_VALUE_NONE, SW_CONTENT_TEXT, 0, 1},   {LONG, SW_VALUE_NONE, SW_CONTENT_RANDOM, 0, 1},
             {LONG, SW_VALUE_NONE, SW_CONTENT_RANDOM, 0, 1}, {LONG, SW_VALUE_U32, SW_CONTENT_TEXT, 17, 2},
             {SHORT, SW_VALUE_U32, SW_CONTENT_TEXT, 9, 1},   {SHORT, SW_VALUE_U32, SW_CONTENT_TEXT, 9, 1},
             {SHORT, SW_VALUE_NONE, SW_CONTENT_RANDOM, 0, 1}};
enum { N_REGIONS = sizeof kinds / sizeof kinds[0], TEXT = 3, OTHER_TEXT = 4, HOST = 0, DISK = 1 };

static struct sw_fixture f;
static struct sw_memory memory;
static uint8_t *expected;
static struct sw_region_id ids[N_REGIONS];

static int (*open_inner)(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);

/* Raw frames go directly then. */
static int open_linked(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    const int rc = open_inner(ret, config, err);
    if (rc == 0)
        ((struct sw_device_info *)(uintptr_t)(*ret)->ops->info(*ret))->has_link = true;
    return rc;
}

static void setup(void) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.n_slots = 3;
    config.nvme_bytes = 16 << 20;
    config.staging_bytes = 1 << 20;
    config.high_pct = 100;
    open_inner = sw_fixture_open_device;
    sw_fixture_open_device = open_linked;
    sw_fixture_open(&f, &config);
    memory = sw_memory_new(N_REGIONS * LONG);
    expected = sw_alloc(N_REGIONS * LONG);
    ck_assert_ptr_nonnull(expected);
}

static void teardown(void) {
    sw_memory_free(&memory);
    sw_free(expected);
    sw_fixture_close(&f);
}

/* ---- regions ---- */

static void fill(uint8_t *to, unsigned i) {
    const struct kind *kind = &kinds[i];
    if (kind->type == SW_VALUE_NONE)
        sw_content_fill(to, kind->bytes, kind->content, i + 1);
    else
        sw_numbers_fill(to, 0, kind->bytes, kind->type, SW_NUMBERS_UNIFORM, kind->bits, i + 1);
}

/* Several buffers: of equal length, one behind the other. */
static unsigned ranges_of(unsigned i, struct sw_mem *mem, uint64_t offset, struct sw_range ret[2]) {
    const struct kind *kind = &kinds[i];
    for (unsigned k = 0; k < kind->n_buffers; k++)
        ret[k] = (struct sw_range){.mem = mem,
                                   .offset = offset + k * kind->bytes / kind->n_buffers,
                                   .bytes = kind->bytes / kind->n_buffers,
                                   .type = kind->type};
    return kind->n_buffers;
}

static void spill(unsigned i) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    struct sw_test_op op = {0};
    struct sw_range ranges[2];
    const unsigned n = ranges_of(i, mem, 0, ranges);
    fill(memory.data, i);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, n), sw_test_op_done, &op, &ids[i], NULL), 0);
    sw_fixture_until(&f, &op.done);
    ck_assert_msg(op.outcome.err.code == 0, "%s", op.outcome.err.msg);
    sw_fixture_close_mem(&f, mem);
}

static int restore(unsigned i) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    struct sw_test_op op = {0};
    struct sw_range ranges[2];
    const unsigned n = ranges_of(i, mem, 0, ranges);
    memset(memory.data, 0, kinds[i].bytes);
    ck_assert_int_eq(
        sw_engine_restore(f.owner, ids[i], SW_TRANSFER(ranges, n, .keep = true), sw_test_op_done, &op, NULL), 0);
    sw_fixture_until(&f, &op.done);
    sw_fixture_close_mem(&f, mem);
    return op.outcome.err.code;
}

static struct sw_region *region_of(unsigned i) {
    struct sw_region *region;
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, ids[i], &region, NULL), 0);
    return region;
}

static void check_restores(unsigned i) {
    ck_assert_int_eq(restore(i), 0);
    fill(expected, i);
    ck_assert_int_eq(memcmp(memory.data, expected, kinds[i].bytes), 0);
}

/* ---- frames in tiers ---- */

struct frame {
    unsigned region;
    size_t chunk;
    uint64_t bytes;
    uint8_t *content; /* as it was stored */
};
static struct frame frames[MAX_FRAMES];
static unsigned n_frames;

/* Copies the first bytes of a frame from or to where it is stored. */
static void copy(const struct frame *frame, uint8_t *data, uint64_t bytes, bool to_tier) {
    const struct sw_stored *stored = &region_of(frame->region)->frames->stored[frame->chunk];
    const int disk = sw_stored_is_away(stored) ? sw_nvme_open_data(&f.folder) : -1;
    for (unsigned e = 0; e < stored->n_extents && bytes > 0; e++) {
        const struct sw_extent *extent = &stored->extents[e];
        const uint64_t n = extent->bytes < bytes ? extent->bytes : bytes;
        if (disk >= 0)
            ck_assert_int_eq(to_tier ? pwrite(disk, data, n, (off_t)extent->offset)
                                     : pread(disk, data, n, (off_t)extent->offset),
                             (ssize_t)n);
        else
            memcpy(to_tier ? extent->memory : data, to_tier ? data : extent->memory, n);
        data += n;
        bytes -= n;
    }
    if (disk >= 0)
        (void)close(disk);
}

static void find_frames(void) {
    n_frames = 0;
    for (unsigned i = 0; i < N_REGIONS; i++) {
        const struct sw_frames *of = region_of(i)->frames;
        for (size_t c = 0; c < of->n_chunks; c++) {
            struct frame *frame = &frames[n_frames++];
            ck_assert_uint_lt(n_frames, MAX_FRAMES);
            *frame = (struct frame){
                .region = i, .chunk = c, .bytes = of->stored[c].bytes, .content = sw_alloc(of->stored[c].bytes)};
            ck_assert_ptr_nonnull(frame->content);
            copy(frame, frame->content, frame->bytes, false);
        }
    }
}

static void free_frames(void) {
    for (unsigned i = 0; i < n_frames; i++)
        sw_free(frames[i].content);
}

/* Exchanges two frames: each place gets as much of the other frame as fits. */
static void exchange(struct frame *a, struct frame *b, bool back) {
    const uint64_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    copy(a, back ? a->content : b->content, bytes, true);
    copy(b, back ? b->content : a->content, bytes, true);
}

/* Refused, and without any byte written if the device writes only verified bytes. Then the state is as before. */
static void check_refused(unsigned i) {
    ck_assert_int_eq(restore(i), -SW_ECHECKSUM);
    struct sw_region *region = region_of(i);
    ck_assert_int_eq(region->state, SW_REGION_LOST);
    region->state = SW_REGION_OUT;
}

static void move_to_the_disk(void) {
    do {
        ck_assert_int_eq(sw_engine_make_room(f.engine, UINT64_MAX, NULL), 0);
        if (f.engine->balance.n_moves)
            (void)uv_run(&f.loop, UV_RUN_ONCE);
    } while (f.engine->balance.n_moves);
}

START_TEST(test_exchanged_frames_are_refused_in_every_tier) {
    unsigned n_pairs = 0, n_equal = 0;
    for (unsigned i = 0; i < N_REGIONS; i++)
        spill(i);
    if (_i == DISK)
        move_to_the_disk();
    find_frames();
    for (unsigned i = 0; i < N_REGIONS; i++)
        ck_assert_str_eq(region_of(i)->tier->kind->name, _i == DISK ? "nvme" : "host");
    for (unsigned a = 0; a < n_frames; a++)
        for (unsigned b = a + 1; b < n_frames; b++) {
            exchange(&frames[a], &frames[b], false);
            check_refused(frames[a].region);
            if (frames[a].region != frames[b].region)
                check_refused(frames[b].region);
            exchange(&frames[a], &frames[b], true);
            n_equal += frames[a].bytes == frames[b].bytes;
            n_pairs++;
        }
    ck_assert_uint_eq(n_pairs, n_frames * (n_frames - 1) / 2);
    ck_assert_uint_gt(n_equal, 10);
    for (unsigned i = 0; i < N_REGIONS; i++)
        check_restores(i);
    free_frames();
}
END_TEST

/* ---- packed ---- */

struct place {
    uint64_t offset; /* in the memory */
    struct sw_test_op packed;
};
static struct place places[N_REGIONS];
static uint8_t *image; /* the memory when all is packed */

static struct sw_range packed_range(unsigned i, struct sw_mem *mem) {
    return (struct sw_range){.mem = mem, .offset = places[i].offset, .bytes = kinds[i].bytes, .type = kinds[i].type};
}

static void pack(unsigned i, uint64_t offset) {
    struct place *place = &places[i];
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, true);
    *place = (struct place){.offset = offset};
    fill(memory.data + offset, i);
    const struct sw_range range = packed_range(i, mem);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &place->packed,
                                     &ids[i], NULL),
                     0);
    sw_fixture_until(&f, &place->packed.done);
    ck_assert_int_eq(place->packed.outcome.err.code, 0);
    sw_fixture_close_mem(&f, mem);
}

static int unpack(unsigned i, struct sw_test_op *op) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, true);
    const struct sw_range range = packed_range(i, mem);
    memset(op, 0, sizeof *op);
    ck_assert_int_eq(
        sw_engine_restore(f.owner, ids[i], SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, op, NULL), 0);
    sw_fixture_until(&f, &op->done);
    sw_fixture_close_mem(&f, mem);
    return op->outcome.err.code;
}

/* Odd: then a GPU's codecs cannot read them where they lie. */
static void pack_all(uint64_t odd) {
    for (unsigned i = 0; i < N_REGIONS; i++)
        pack(i, i * (uint64_t)LONG + (kinds[i].bytes == SHORT ? odd : 0));
    image = sw_alloc(memory.bytes);
    ck_assert_ptr_nonnull(image);
    memcpy(image, memory.data, memory.bytes);
}

static void unpack_all(void) {
    for (unsigned i = 0; i < N_REGIONS; i++) {
        struct sw_test_op op;
        ck_assert_int_eq(unpack(i, &op), 0);
        fill(expected, i);
        ck_assert_int_eq(memcmp(memory.data + places[i].offset, expected, kinds[i].bytes), 0);
    }
    sw_free(image);
}

static void check_refused_in_place(unsigned i, bool untouched) {
    uint8_t *before = sw_alloc(memory.bytes);
    struct sw_test_op op;
    ck_assert_ptr_nonnull(before);
    memcpy(before, memory.data, memory.bytes);
    ck_assert_int_eq(unpack(i, &op), -SW_ECHECKSUM);
    ck_assert_int_eq(op.outcome.err.scope, SW_SCOPE_REGION);
    ck_assert_int_eq(region_of(i)->state, SW_REGION_OUT);
    if (untouched)
        ck_assert_int_eq(memcmp(before, memory.data, memory.bytes), 0);
    sw_free(before);
}

/* Frames in the memory, with where they are. A raw one has its beginning in the tier. */
struct packed_frame {
    unsigned region;
    size_t chunk;
    uint64_t at, bytes;
    bool is_whole;
};

static unsigned find_packed(struct packed_frame ret[MAX_FRAMES]) {
    unsigned n = 0;
    for (unsigned i = 0; i < N_REGIONS; i++) {
        const struct sw_frames *of = region_of(i)->frames;
        for (size_t c = 0; c < of->n_chunks; c++)
            ret[n++] = (struct packed_frame){.region = i,
                                             .chunk = c,
                                             .at = places[i].offset + of->packed[c].offset,
                                             .bytes = of->packed[c].bytes,
                                             .is_whole = of->stored[c].bytes == 0};
    }
    return n;
}

/* A wrong raw frame is found in its turn; chunks before it are unpacked by then. */
static bool is_packed(const struct packed_frame *frame) {
    return region_of(frame->region)->frames->packed[frame->chunk].is_packed;
}

/* Each of the two is refused before a byte is written, and comes back once the right bytes are back. */
START_TEST(test_exchanged_frames_are_refused_where_they_are_packed) {
    static struct packed_frame packed[MAX_FRAMES];
    pack_all(_i ? 77 : 0);
    const unsigned n = find_packed(packed);
    unsigned n_whole = 0, n_raw = 0;
    for (unsigned i = 0; i < n * n; i++) {
        const struct packed_frame *a = &packed[i / n], *b = &packed[i % n];
        const uint64_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
        if (a->at >= b->at || !is_packed(a) || !is_packed(b))
            continue;
        memcpy(memory.data + a->at, image + b->at, bytes);
        memcpy(memory.data + b->at, image + a->at, bytes);
        check_refused_in_place(a->region, a->is_whole);
        if (a->region != b->region)
            check_refused_in_place(b->region, b->is_whole);
        n_whole += a->is_whole && b->is_whole;
        n_raw += !a->is_whole || !b->is_whole;
        memcpy(memory.data, image, memory.bytes);
    }
    ck_assert_uint_gt(n_whole, 20);
    ck_assert_uint_gt(n_raw, 10);
    unpack_all();
}
END_TEST

/* A is packed, then its memory is used for B, which is packed there, too. A is refused until its bytes are back. */
START_TEST(test_packed_memory_reused_for_another_region) {
    struct sw_test_op op;
    pack(0, 0);
    image = sw_alloc(LONG);
    memcpy(image, memory.data, LONG);
    pack(1, 0);
    check_refused_in_place(0, true);
    ck_assert_int_eq(unpack(1, &op), 0);
    fill(expected, 1);
    ck_assert_int_eq(memcmp(memory.data, expected, LONG), 0);
    memcpy(memory.data, image, LONG);
    ck_assert_int_eq(unpack(0, &op), 0);
    fill(expected, 0);
    ck_assert_int_eq(memcmp(memory.data, expected, LONG), 0);
    sw_free(image);
}
END_TEST

/* The client writes after the comparison. A device that reads a copy notices it. */
static struct {
    const struct sw_device_ops *real;
    struct sw_device_ops ops;
    unsigned n;
} race;

static int racing_unpack(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                         const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    memcpy(memory.data + places[TEXT].offset, image + places[OTHER_TEXT].offset,
           places[TEXT].packed.outcome.stored_bytes);
    race.n++;
    return race.real->unpack(device, s, mapping, items, n, err);
}

START_TEST(test_a_client_writes_after_the_comparison) {
    struct sw_test_op op;
    pack_all(0);
    race.real = f.device->ops;
    race.ops = *race.real;
    race.ops.unpack = racing_unpack;
    f.device->ops = &race.ops;
    const int rc = unpack(TEXT, &op);
    f.device->ops = race.real;
    ck_assert_uint_gt(race.n, 0);
    if (open_inner == sw_device_host_open)
        ck_assert_int_eq(rc, -SW_ECHECKSUM);
    sw_free(image);
}
END_TEST

/* A region of so many frames that they are compared by several steps. */
enum { MANY = SW_HEAD_MAX + 6, MANY_BYTES = MANY * CHUNK };
static struct {
    struct sw_memory memory;
    uint8_t *raw, *packed;
    struct sw_test_op op;
} many;

static int unpack_many(void) {
    struct sw_test_op back;
    return sw_fixture_unpack(&f, many.op.id, &many.memory, 0, MANY_BYTES, &back);
}

static void pack_many(void) {
    many.memory = sw_memory_new(MANY_BYTES);
    many.raw = sw_alloc(MANY_BYTES);
    many.packed = sw_alloc(MANY_BYTES);
    ck_assert(many.raw && many.packed);
    sw_content_fill(many.memory.data, MANY_BYTES, SW_CONTENT_TEXT, 1);
    memcpy(many.raw, many.memory.data, MANY_BYTES);
    ck_assert_int_eq(sw_fixture_pack(&f, &many.memory, 0, MANY_BYTES, &many.op), 0);
    memcpy(many.packed, many.memory.data, MANY_BYTES);
}

static void end_many(void) {
    ck_assert_int_eq(unpack_many(), 0);
    ck_assert_int_eq(memcmp(many.memory.data, many.raw, MANY_BYTES), 0);
    sw_free(many.raw);
    sw_free(many.packed);
    sw_memory_free(&many.memory);
}

/* A wrong identity is found, also by the last step. */
START_TEST(test_one_wrong_frame_of_many_is_found) {
    static const size_t pairs[][2] = {{0, 1}, {3, MANY - 1}, {MANY - 2, MANY - 1}};
    struct sw_region *region;
    pack_many();
    ck_assert_int_eq(sw_region_find(&f.engine->store.regions, f.owner, many.op.id, &region, NULL), 0);
    ck_assert_uint_eq(region->frames->n_chunks, MANY);
    for (unsigned i = 0; i < sizeof pairs / sizeof pairs[0]; i++) {
        const struct sw_packed_chunk *a = &region->frames->packed[pairs[i][0]],
                                     *b = &region->frames->packed[pairs[i][1]];
        const uint64_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
        memcpy(many.memory.data + a->offset, many.packed + b->offset, bytes);
        uint8_t *before = sw_alloc(MANY_BYTES);
        ck_assert_ptr_nonnull(before);
        memcpy(before, many.memory.data, MANY_BYTES);
        ck_assert_int_eq(unpack_many(), -SW_ECHECKSUM);
        ck_assert_int_eq(memcmp(before, many.memory.data, MANY_BYTES), 0);
        memcpy(many.memory.data, many.packed, MANY_BYTES);
        sw_free(before);
    }
    end_many();
}
END_TEST

START_TEST(test_comparing_many_fails) {
    pack_many();
    for (unsigned nth = 1; nth <= 2; nth++) {
        sw_device_faulty_arm(f.device, "identify", nth, -SW_EGPU, (enum sw_fault)_i);
        ck_assert_int_eq(unpack_many(), -SW_EGPU);
        sw_device_faulty_arm(f.device, "identify", 0, 0, SW_FAULT_AT_ONCE);
        ck_assert_int_eq(memcmp(many.packed, many.memory.data, MANY_BYTES), 0);
    }
    end_many();
}
END_TEST

/* Decoding must not wait for the device's time slice after the comparison. */
static struct {
    const struct sw_device_ops *real;
    unsigned n_woken, n_compared;
} turn;

static void turning_wake(struct sw_device *device) {
    ck_assert_uint_eq(turn.n_compared, 0);
    turn.n_woken++;
    turn.real->wake(device);
}

static int turning_identify(struct sw_device *device, unsigned s, const struct sw_mapping *mapping,
                            struct sw_head_item *items, unsigned n, struct sw_err *err) {
    turn.n_compared += mapping != NULL; /* else it is one that is fetched, to be decoded */
    return turn.real->identify(device, s, mapping, items, n, err);
}

START_TEST(test_the_device_is_woken_once_before_frames_are_compared) {
    pack_many();
    turn.real = f.device->ops;
    struct sw_device_ops ops = *turn.real;
    ops.wake = turning_wake;
    ops.identify = turning_identify;
    f.device->ops = &ops;
    ck_assert_int_eq(unpack_many(), 0);
    f.device->ops = turn.real;
    ck_assert_uint_eq(turn.n_woken, 1);
    ck_assert_uint_eq(turn.n_compared, 2);
    ck_assert_int_eq(sw_fixture_pack(&f, &many.memory, 0, MANY_BYTES, &many.op), 0);
    end_many();
}
END_TEST

/* Any step of the comparison fails: nothing has been written. */
START_TEST(test_comparing_fails) {
    struct sw_test_op op;
    pack_all(0);
    for (unsigned i = 0; i < N_REGIONS; i++) {
        if (kinds[i].content == SW_CONTENT_RANDOM)
            continue; /* has none in the memory */
        sw_device_faulty_arm(f.device, "identify", 1, -SW_EGPU, (enum sw_fault)_i);
        ck_assert_int_eq(unpack(i, &op), -SW_EGPU);
        sw_device_faulty_arm(f.device, "identify", 0, 0, SW_FAULT_AT_ONCE);
        ck_assert_int_eq(region_of(i)->state, SW_REGION_OUT);
        ck_assert_int_eq(memcmp(image, memory.data, memory.bytes), 0);
    }
    unpack_all();
}
END_TEST

/* If anything fails while the pack finds the identities, the pack is undone. */
START_TEST(test_identifying_fails) {
    struct sw_test_op op;
    unsigned nth = 0;
    int rc;
    do {
        fill(memory.data, 3);
        fill(expected, 3);
        sw_device_faulty_arm(f.device, "identify", ++nth, -SW_EGPU, (enum sw_fault)_i);
        rc = sw_fixture_pack(&f, &memory, 0, LONG, &op);
        sw_device_faulty_arm(f.device, "identify", 0, 0, SW_FAULT_AT_ONCE);
        ck_assert(rc == 0 || rc == -SW_EGPU);
        ck_assert(rc == 0 || memcmp(memory.data, expected, LONG) == 0);
    } while (rc);
    ck_assert_uint_gt(nth, 2);
    ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, 0, LONG, &op), 0);
    ck_assert_int_eq(memcmp(memory.data, expected, LONG), 0);
}
END_TEST

/* The beginning of a raw frame, which the tier has, is damaged there: that is no bytes that the client could put back.
 */
START_TEST(test_a_beginning_in_the_tier_is_damaged) {
    struct sw_test_op op;
    pack_all(0);
    for (unsigned i = 0; i < N_REGIONS; i++) {
        struct sw_stored *stored = region_of(i)->frames->stored;
        if (!stored[0].bytes)
            continue;
        ((uint8_t *)stored[0].extents[0].memory)[stored[0].bytes - 1 - 100] ^= 1; /* a tile's record, or padding */
        ((uint8_t *)stored[0].extents[0].memory)[SW_FRAME_HEADER_BYTES + 5] ^= 1;
        ck_assert_int_eq(unpack(i, &op), -SW_ELOST);
        ck_assert_int_eq(region_of(i)->state, SW_REGION_LOST);
        ck_assert_int_eq(memcmp(image, memory.data, memory.bytes), 0);
    }
    sw_free(image);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("identity");
    TCase *tcase = tcase_create("identity");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_exchanged_frames_are_refused_in_every_tier, HOST, DISK + 1);
    tcase_add_loop_test(tcase, test_exchanged_frames_are_refused_where_they_are_packed, 0, 2);
    tcase_add_test(tcase, test_packed_memory_reused_for_another_region);
    tcase_add_test(tcase, test_a_client_writes_after_the_comparison);
    tcase_add_loop_test(tcase, test_comparing_fails, 0, 3);
    tcase_add_test(tcase, test_one_wrong_frame_of_many_is_found);
    tcase_add_loop_test(tcase, test_comparing_many_fails, 0, 3);
    tcase_add_test(tcase, test_the_device_is_woken_once_before_frames_are_compared);
    tcase_add_loop_test(tcase, test_identifying_fails, 0, 3);
    tcase_add_test(tcase, test_a_beginning_in_the_tier_is_damaged);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
