/* Regions of numbers: every type is planned by its own codec, comes back, and is refused if type and length do not
 * match. */
#include "base/alloc.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/frames.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

static struct sw_fixture f;

static void open_fixture(void) {
    sw_fixture_open(&f, NULL);
}

static void close_fixture(void) {
    sw_fixture_close(&f);
}

static int spill_typed(const struct sw_memory *from, uint64_t bytes, enum sw_value_type type, struct sw_test_op *op) {
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, from, false);
    const struct sw_range range = {.mem = mem, .bytes = bytes, .type = type};
    *op = (struct sw_test_op){0};
    int rc = sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, op, &op->id, NULL);
    if (!rc) {
        sw_fixture_until(&f, &op->done);
        rc = op->outcome.err.code;
    }
    sw_fixture_close_mem(&f, mem);
    sw_engine_check(f.engine);
    return rc;
}

static void ck_restores(const struct sw_memory *from, struct sw_test_op *op) {
    struct sw_memory to = sw_memory_new(from->bytes);
    ck_assert_int_eq(sw_fixture_restore(&f, op->id, &to, 0, from->bytes, false, op), 0);
    ck_assert(memcmp(to.data, from->data, from->bytes) == 0);
    sw_memory_free(&to);
}

START_TEST(test_every_type_has_its_codec) {
    static const struct {
        enum sw_numbers kind;
        unsigned bits;
        enum sw_codec_id codec;
    } kinds[] = {{SW_NUMBERS_UNIFORM, 3, SW_CODEC_FOR}, {SW_NUMBERS_SORTED, 1, SW_CODEC_DFOR},
                 {SW_NUMBERS_RUNS, 15, SW_CODEC_RFOR},  {SW_NUMBERS_UNIFORM, 64, SW_CODEC_RAW},
                 {SW_NUMBERS_EQUAL, 0, SW_CODEC_FOR},   {SW_NUMBERS_EXTREMES, 0, SW_CODEC_NR},
                 {SW_NUMBERS_MIXED, 4, SW_CODEC_NR}};
    const enum sw_value_type type = (enum sw_value_type)_i;
    const unsigned value_bytes = sw_value_type_bytes(type);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        close_fixture(); /* each by a plan of its own */
        open_fixture();
        if (value_bytes < 4 && (kinds[i].kind == SW_NUMBERS_SORTED || kinds[i].kind == SW_NUMBERS_RUNS))
            continue; /* the type is too small to tell */
        struct sw_memory from = sw_memory_new((size_t)250007 * value_bytes);
        struct sw_test_op op;
        const unsigned bits = kinds[i].bits < 8 * value_bytes ? kinds[i].bits : 8 * value_bytes;
        sw_numbers_fill(from.data, 0, from.bytes, type, kinds[i].kind, bits, 5);
        ck_assert_int_eq(spill_typed(&from, from.bytes, type, &op), 0);
        /* Floats of every kind may be decimals; unit_codec_floats says of which codecs they are. */
        const enum sw_codec_id of_floats = i == 0 && type <= SW_VALUE_F64 ? SW_CODEC_ALP : SW_CODEC_NR;
        const bool is_constant = kinds[i].kind == SW_NUMBERS_EQUAL && value_bytes >= 4;
        const enum sw_codec_id codec = type < SW_VALUE_F32       ? (is_constant ? SW_CODEC_RADIX : kinds[i].codec)
                                       : type == SW_VALUE_DEC128 ? SW_CODEC_HUFFMAN
                                                                 : of_floats;
        ck_assert_msg(codec == SW_CODEC_NR || op.outcome.codec == codec, "%s, kind %d: %s", sw_value_type_name(type),
                      (int)kinds[i].kind, sw_codec_name(op.outcome.codec));
        ck_assert_uint_le(op.outcome.stored_bytes, sw_frame_bound_bytes(from.bytes));
        ck_restores(&from, &op);
        sw_memory_free(&from);
    }
}
END_TEST

START_TEST(test_invalid_types_and_lengths_are_refused) {
    struct sw_memory from = sw_memory_new(8000);
    struct sw_test_op op;
    ck_assert_int_eq(spill_typed(&from, 8000, SW_VALUE_NR, &op), -SW_EINVAL);
    ck_assert_int_eq(spill_typed(&from, 8000, (enum sw_value_type)UINT32_MAX, &op), -SW_EINVAL);
    for (int type = SW_VALUE_U16; type < SW_VALUE_NR; type++)
        if (sw_value_type_bytes((enum sw_value_type)type) > 1)
            ck_assert_int_eq(spill_typed(&from, 7999, (enum sw_value_type)type, &op), -SW_EINVAL);
    ck_assert_int_eq(spill_typed(&from, 0, SW_VALUE_I64, &op), 0); /* no numbers at all are fine */
    ck_assert_int_eq(spill_typed(&from, 7999, SW_VALUE_I8, &op), 0);
    sw_memory_free(&from);
}
END_TEST

/* Short ones of one session are encoded together, but only with others of their type. */
START_TEST(test_a_group_has_one_type) {
    enum { N = 24, BYTES = 32 << 10 };
    static const enum sw_value_type types[] = {SW_VALUE_U32, SW_VALUE_NONE, SW_VALUE_I64};
    struct sw_memory from = sw_memory_new((size_t)N * BYTES), to = sw_memory_new((size_t)N * BYTES);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &from, false);
    struct sw_test_op ops[N] = {0};
    sw_numbers_fill(from.data, 0, from.bytes, SW_VALUE_U32, SW_NUMBERS_UNIFORM, 7, 1);
    sw_engine_hold(f.engine, true);
    for (int i = 0; i < N; i++) {
        const struct sw_range range = {.mem = mem, .offset = (uint64_t)i * BYTES, .bytes = BYTES, .type = types[i % 3]};
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, NULL),
                         0);
    }
    sw_engine_release(f.engine);
    for (int i = 0; i < N; i++) {
        sw_fixture_until(&f, &ops[i].done);
        ck_assert_int_eq(ops[i].outcome.err.code, 0);
        ck_assert_int_eq(ops[i].outcome.codec == SW_CODEC_V5T, types[i % 3] == SW_VALUE_NONE);
    }
    sw_engine_check(f.engine);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(
            sw_fixture_restore(&f, ops[i].id, &to, (uint64_t)i * BYTES, BYTES, false, &(struct sw_test_op){0}), 0);
    ck_assert(memcmp(to.data, from.data, from.bytes) == 0);
    sw_fixture_close_mem(&f, mem);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

/* Numbers are also compressed in place. */
START_TEST(test_numbers_are_packed) {
    struct sw_memory memory = sw_memory_new(8 << 20), copy = sw_memory_new(8 << 20);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    const struct sw_range range = {.mem = mem, .bytes = memory.bytes, .type = SW_VALUE_I32};
    struct sw_test_op op = {0};
    sw_numbers_fill(memory.data, 0, memory.bytes, SW_VALUE_I32, SW_NUMBERS_SORTED, 3, 1);
    memcpy(copy.data, memory.data, memory.bytes);
    ck_assert_int_eq(
        sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id, NULL), 0);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_int_eq(op.outcome.codec, SW_CODEC_DFOR);
    ck_assert_uint_lt(op.outcome.stored_bytes, memory.bytes / 4);
    ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, 0, memory.bytes, &op), 0);
    ck_assert(memcmp(memory.data, copy.data, memory.bytes) == 0);
    sw_fixture_close_mem(&f, mem);
    sw_memory_free(&memory);
    sw_memory_free(&copy);
}
END_TEST

enum { CHUNKS = 7, CHUNK_BYTES = 65536 }; /* of the fixture */

/* Random numbers, except for those that make their frame a little shorter than the raw one. */
static void fill_reluctant(uint32_t *values, enum spillway_codec codec) {
    sw_numbers_fill(values, 0, CHUNK_BYTES, SW_VALUE_I32, SW_NUMBERS_UNIFORM, 32, 1);
    if (codec == SPILLWAY_CODEC_FOR)
        memset(values, 0, 4096); /* a vector that takes nothing */
    for (int i = 1; i <= 110 && codec == SPILLWAY_CODEC_ELSEWHERE; i++)
        values[9 * i] = values[9 * i - 1]; /* still longer than the chunk */
}

/* One chunk in the middle does not shrink as the others do. A pack or unpack moves the frames: nobody is told where
 * they lie meanwhile. */
START_TEST(test_packed_chunks_are_located) {
    static const enum spillway_codec codecs[] = {SPILLWAY_CODEC_RAW, SPILLWAY_CODEC_FOR, SPILLWAY_CODEC_ELSEWHERE};
    const bool has_runs = codecs[_i] == SPILLWAY_CODEC_ELSEWHERE;
    struct sw_memory memory = sw_memory_new((size_t)CHUNKS * CHUNK_BYTES - 4), copy = sw_memory_new(memory.bytes);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    const struct sw_range range = {.mem = mem, .bytes = memory.bytes, .type = SW_VALUE_I32};
    struct spillway_packed_chunk chunks[CHUNKS + 1] = {{0}};
    struct sw_test_op op = {0};
    size_t n, n_chunks;
    sw_numbers_fill(copy.data, 0, copy.bytes, SW_VALUE_I32, has_runs ? SW_NUMBERS_RUNS : SW_NUMBERS_UNIFORM, 9, 1);
    fill_reluctant((uint32_t *)(void *)(copy.data + 2 * CHUNK_BYTES), codecs[_i]);
    memcpy(memory.data, copy.data, memory.bytes);
    ck_assert_int_eq(
        sw_engine_spill(f.owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id, NULL), 0);
    ck_assert_int_eq(sw_engine_query_packed(f.owner, op.id, 0, chunks, 1, &n, &n_chunks, NULL), -SW_EBUSY);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    for (size_t first = 0; first < CHUNKS; first += n) { /* a few at a time */
        ck_assert_int_eq(sw_engine_query_packed(f.owner, op.id, first, chunks + first, 3, &n, &n_chunks, NULL), 0);
        ck_assert_uint_eq(n_chunks, CHUNKS);
        ck_assert_uint_eq(n, first + 3 <= CHUNKS ? 3 : CHUNKS - first);
    }
    ck_assert_int_eq(sw_engine_query_packed(f.owner, op.id, CHUNKS, chunks, 3, &n, &n_chunks, NULL), -SW_ERANGE);
    ck_assert_uint_eq(sw_packed_ck(memory.data, op.outcome.stored_bytes, chunks, CHUNKS, copy.data, copy.bytes),
                      has_runs ? copy.bytes - CHUNK_BYTES : copy.bytes);
    /* Noise in the sample may be what exceptions are for. */
    ck_assert(chunks[1].codec == SPILLWAY_CODEC_PFOR ||
              chunks[1].codec == (has_runs ? SPILLWAY_CODEC_RFOR : SPILLWAY_CODEC_FOR));
    ck_assert_int_eq(chunks[2].codec, codecs[_i] == SPILLWAY_CODEC_FOR ? chunks[1].codec : codecs[_i]);
    const struct sw_region_id id = op.id;
    op = (struct sw_test_op){0};
    ck_assert_int_eq(
        sw_engine_restore(f.owner, id, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(sw_engine_query_packed(f.owner, id, 0, chunks, 1, &n, &n_chunks, NULL), -SW_EBUSY);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert(memcmp(memory.data, copy.data, memory.bytes) == 0);
    sw_fixture_close_mem(&f, mem);
    sw_memory_free(&memory);
    sw_memory_free(&copy);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("typed");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, open_fixture, close_fixture);
    tcase_add_loop_test(tcase, test_every_type_has_its_codec, 1, SW_VALUE_NR);
    tcase_add_test(tcase, test_invalid_types_and_lengths_are_refused);
    tcase_add_test(tcase, test_a_group_has_one_type);
    tcase_add_test(tcase, test_numbers_are_packed);
    tcase_add_loop_test(tcase, test_packed_chunks_are_located, 0, 3);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
