/* packed.c - regions that a real spillwayd has packed on a GPU, read where they lie by spillway_device.cuh; and the
 * example query on packed columns against the same on the host.
 *
 * As in roundtrip.c the daemon is started before this process touches CUDA, and the tests run in one process.
 * SW_TEST_SMALL=1: smaller columns, for runs under compute-sanitizer. */
#include "codec/bitpack/bitpack_core.h"
#include "ipc/spillway.h"
#include "tests/example/packed_filter.h"
#include "tests/gpu/packed_kernels.h"
#include "tests/lib/buffer.h"
#include "tests/lib/content.h"
#include "tests/lib/packed_columns.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/spillwayd.h"
#include "tests/lib/tpch_tables.h"

#include <check.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_CHUNKS = 64 };

static struct sw_test_daemon daemon_process;
static struct spillway *connection;
static struct spillway_error error;
static struct sw_err err;
static bool is_small;

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

/* Opens a session for each column: short columns would use the plan of the column before, if they could. */
static void open_session(void) {
    ok(spillway_open(&connection, SW_OPTIONS(.socket_path = daemon_process.socket), &error));
}

static void close_session(void) {
    spillway_close(connection);
}

/* A column on the GPU, packed in its memory. */
struct column {
    struct sw_buffer *buffer;
    uint8_t *content;
    uint64_t bytes;
    struct spillway_region region;
    struct spillway_packed_chunk chunks[MAX_CHUNKS];
    uint32_t n;
};

/* content: taken over. */
static void pack(struct column *ret, uint8_t *content, uint64_t bytes, enum sw_value_type type,
                 enum sw_buffer_kind kind) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    *ret = (struct column){.content = content, .bytes = bytes};
    ck_assert_int_eq(sw_buffer_new(&ret->buffer, kind, bytes, &err), 0);
    ck_assert_int_eq(sw_buffer_upload(ret->buffer, 0, content, bytes, &err), 0);
    ok(spillway_spill(
        connection,
        SW_REQUEST(SW_ONE_TYPED(ret->buffer->data, bytes, (enum spillway_value_type)type), .flags = SPILLWAY_IN_PLACE),
        1, &ticket, &error));
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    ret->region = result.region;
    ok(spillway_query_packed(connection, result.region, ret->chunks, MAX_CHUNKS, &ret->n, &error));
    ck_assert(ret->n > 0 && ret->n <= MAX_CHUNKS);
}

/* Every byte is as it was before it was packed. */
static void unpack(struct column *c) {
    struct spillway_ticket *ticket = NULL;
    uint8_t *got = malloc(c->bytes);
    ck_assert_ptr_nonnull(got);
    ok(spillway_restore(connection,
                        SW_REQUEST(SW_ONE(c->buffer->data, c->bytes), .region = c->region, .flags = SPILLWAY_IN_PLACE),
                        1, &ticket, &error));
    ok(spillway_wait(ticket, -1, NULL, 0, &error));
    spillway_ticket_free(ticket);
    ck_assert_int_eq(sw_buffer_download(c->buffer, 0, got, c->bytes, &err), 0);
    ck_assert(memcmp(got, c->content, c->bytes) == 0);
    free(got);
    sw_buffer_free(c->buffer);
    free(c->content);
}

static bool can_read(enum sw_value_type type, enum spillway_codec codec, enum sw_packed_way way) {
    if (way == SW_PACKED_VALUES)
        return sw_packed_values_codecs() >> codec & 1;
    return way != SW_PACKED_VECTORS || sw_value_type_bytes(type) >= 4;
}

static uint64_t read_back(const struct column *c, enum sw_value_type type, enum sw_packed_way way, uint8_t *got) {
    uint64_t n = 0;
    ck_assert(sw_packed_read(c->buffer->data, c->chunks, c->n, sw_value_type_bytes(type), way, got, c->bytes, &n));
    return n;
}

static void pack_column(struct column *ret, int i, enum sw_buffer_kind kind) {
    const uint64_t bytes = (is_small ? 40001 : 3000001) * (uint64_t)sw_value_type_bytes(sw_packed_columns[i].type);
    uint8_t *content = malloc(bytes);
    ck_assert_ptr_nonnull(content);
    sw_numbers_fill(content, 0, bytes, sw_packed_columns[i].type, sw_packed_columns[i].kind, sw_packed_columns[i].bits,
                    5);
    pack(ret, content, bytes, sw_packed_columns[i].type, kind);
}

START_TEST(every_codec_is_read_in_place) {
    const enum sw_value_type type = sw_packed_columns[_i].type;
    struct column c;
    pack_column(&c, _i, SW_BUFFER_CUDA_MALLOC);
    uint8_t *got = malloc(c.bytes);
    ck_assert_ptr_nonnull(got);
    for (uint32_t i = 0; i < c.n; i++)
        ck_assert_uint_eq(c.chunks[i].codec, sw_packed_columns[_i].codec);
    for (int way = 0; way < SW_PACKED_WAYS; way++) {
        if (!can_read(type, sw_packed_columns[_i].codec, (enum sw_packed_way)way))
            continue;
        memset(got, 0, c.bytes);
        ck_assert_uint_eq(read_back(&c, type, (enum sw_packed_way)way, got), c.bytes / sw_value_type_bytes(type));
        ck_assert_msg(memcmp(got, c.content, c.bytes) == 0, "way %d", way);
    }
    free(got);
    unpack(&c);
}
END_TEST

/* A tile with a wrong checksum gives no bytes, the others give theirs. Raw chunks have no checksum. */
START_TEST(tiles_are_verified) {
    const enum sw_value_type type = sw_packed_columns[_i].type;
    const uint64_t in_tile = SW_NUMBERS_TILE_BYTES / sw_value_type_bytes(type);
    struct column c;
    pack_column(&c, _i, SW_BUFFER_CUDA_MALLOC);
    const uint64_t all = c.bytes / sw_value_type_bytes(type);
    const bool is_raw = sw_packed_columns[_i].codec == SPILLWAY_CODEC_RAW;
    const uint64_t at =
        c.chunks[0].offset + sw_frame_records_offset(c.chunks[0].n_symbols) + offsetof(struct sw_tile_record, hash);
    uint8_t *got = malloc(c.bytes), byte;
    ck_assert_ptr_nonnull(got);
    for (int i = 0; i < 2 && !is_raw; i++) { /* damaged, then mended */
        ck_assert_int_eq(sw_buffer_download(c.buffer, at, &byte, 1, &err), 0);
        byte ^= 0x10;
        ck_assert_int_eq(sw_buffer_upload(c.buffer, at, &byte, 1, &err), 0);
        ck_assert_uint_eq(read_back(&c, type, SW_PACKED_TILES, got), i ? all : all - in_tile);
        ck_assert(memcmp(got + SW_NUMBERS_TILE_BYTES, c.content + SW_NUMBERS_TILE_BYTES,
                         c.bytes - SW_NUMBERS_TILE_BYTES) == 0);
        if (can_read(type, sw_packed_columns[_i].codec, SW_PACKED_VECTORS)) /* these are not verified */
            ck_assert_uint_eq(read_back(&c, type, SW_PACKED_VECTORS, got), all);
    }
    free(got);
    unpack(&c);
}
END_TEST

/* Whatever stands there, nothing is read outside: compute-sanitizer would see it. */
START_TEST(damage_stays_in_bounds) {
    const enum sw_value_type type = sw_packed_columns[_i].type;
    struct column c;
    pack_column(&c, _i, SW_BUFFER_CUDA_MALLOC);
    uint8_t *got = malloc(c.bytes), *noise = malloc(c.chunks[0].bytes), *kept = malloc(c.chunks[0].bytes);
    ck_assert(got && noise && kept);
    const uint64_t first = c.chunks[0].offset, n = c.chunks[0].bytes;
    ck_assert_int_eq(sw_buffer_download(c.buffer, first, kept, n, &err), 0);
    for (unsigned seed = 1; seed <= 4; seed++) {
        memcpy(noise, kept, n);
        sw_content_fill(noise, seed % 2 ? n : n / 8, SW_CONTENT_RANDOM, seed);
        ck_assert_int_eq(sw_buffer_upload(c.buffer, first, noise, n, &err), 0);
        for (int way = 0; way < SW_PACKED_WAYS; way++)
            if (can_read(type, sw_packed_columns[_i].codec, (enum sw_packed_way)way))
                (void)read_back(&c, type, (enum sw_packed_way)way, got);
    }
    ck_assert_int_eq(sw_buffer_upload(c.buffer, first, kept, n, &err), 0);
    free(got);
    free(noise);
    free(kept);
    unpack(&c);
}
END_TEST

static int try_unpack(const struct column *c) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(connection,
                        SW_REQUEST(SW_ONE(c->buffer->data, c->bytes), .region = c->region, .flags = SPILLWAY_IN_PLACE),
                        1, &ticket, &error));
    const int rc = spillway_wait(ticket, -1, NULL, 0, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static uint8_t *download(const struct column *c) {
    uint8_t *image = malloc(c->bytes);
    ck_assert_ptr_nonnull(image);
    ck_assert_int_eq(sw_buffer_download(c->buffer, 0, image, c->bytes, &err), 0);
    return image;
}

/* Refused, for whole frames before a byte was written; nothing is lost by it. */
static void check_refused(const struct column *c, const uint8_t *wrong, const uint8_t *right, bool untouched) {
    ck_assert_int_eq(sw_buffer_upload(c->buffer, 0, wrong, c->bytes, &err), 0);
    ck_assert_int_eq(try_unpack(c), -SPILLWAY_ECHECKSUM);
    uint8_t *got = download(c);
    ck_assert(!untouched || memcmp(got, wrong, c->bytes) == 0);
    free(got);
    ck_assert_int_eq(sw_buffer_upload(c->buffer, 0, right, c->bytes, &err), 0);
}

/* Frames that are whole, but another column's, or another chunk's: the bytes of two columns of one kind and length, at
 * places where kernels can read them and where they cannot. */
static void exchange_columns(int i, enum sw_buffer_kind kind) {
    const bool is_raw = sw_packed_columns[i].codec == SPILLWAY_CODEC_RAW;
    struct column a, b;
    pack_column(&a, i, kind);
    uint8_t *other = malloc(a.bytes);
    ck_assert_ptr_nonnull(other);
    sw_numbers_fill(other, 0, a.bytes, sw_packed_columns[i].type, sw_packed_columns[i].kind, sw_packed_columns[i].bits,
                    6);
    pack(&b, other, a.bytes, sw_packed_columns[i].type, kind);
    uint8_t *image_a = download(&a), *image_b = download(&b);
    check_refused(&a, image_b, image_a, !is_raw);
    check_refused(&b, image_a, image_b, !is_raw);
    for (uint32_t k = 1; k < a.n && !is_raw; k++) { /* chunks of one column change places */
        const struct spillway_packed_chunk *x = &a.chunks[k - 1], *y = &a.chunks[k];
        const uint64_t n = x->bytes < y->bytes ? x->bytes : y->bytes;
        uint8_t *wrong = malloc(a.bytes);
        ck_assert_ptr_nonnull(wrong);
        memcpy(wrong, image_a, a.bytes);
        memcpy(wrong + x->offset, image_a + y->offset, n);
        memcpy(wrong + y->offset, image_a + x->offset, n);
        check_refused(&a, wrong, image_a, true);
        free(wrong);
    }
    free(image_a);
    free(image_b);
    unpack(&a);
    unpack(&b);
}

START_TEST(exchanged_frames_are_refused) {
    exchange_columns(_i, SW_BUFFER_CUDA_MALLOC);
    exchange_columns(_i, SW_BUFFER_CUDA_MIDDLE);
}
END_TEST

START_TEST(unreadable_frames_are_refused) {
    struct column c;
    uint64_t n, room;
    pack_column(&c, 2, SW_BUFFER_CUDA_MIDDLE); /* at an odd address */
    ck_assert(!sw_packed_read(c.buffer->data, c.chunks, c.n, 4, SW_PACKED_TILES, &room, sizeof room, &n));
    ck_assert_ptr_null(packed_column_new(connection, c.region, c.buffer->data, PACKED_SHIPDATE, &error));
    ck_assert_int_eq(error.code, -SPILLWAY_ENOTSUP);
    unpack(&c);
    pack_column(&c, 2, SW_BUFFER_CUDA_MALLOC);
    ck_assert(!sw_packed_read(c.buffer->data, c.chunks, c.n, 8, SW_PACKED_TILES, &room, sizeof room, &n));
    unpack(&c);
    pack_column(&c, 4, SW_BUFFER_CUDA_MALLOC); /* differences: not value by value */
    ck_assert(!sw_packed_read(c.buffer->data, c.chunks, c.n, 4, SW_PACKED_VALUES, &room, sizeof room, &n));
    unpack(&c);
}
END_TEST

static void pack_tpch(struct column *ret, const struct sw_tpch *t, enum sw_tpch_column column) {
    const uint64_t orders = sw_tpch_orders(t);
    uint8_t *content = malloc(sw_tpch_bound_bytes(column, sw_tpch_rows(t, column, 0, orders)));
    ck_assert_ptr_nonnull(content);
    const uint64_t bytes = sw_tpch_fill(t, column, 0, orders, content, NULL);
    pack(ret, content, bytes, sw_tpch_column_type(column), SW_BUFFER_CUDA_MALLOC);
}

START_TEST(a_query_on_packed_columns) {
    static const int32_t days[] = {INT32_MIN, 8035, 8100, 9298, 10561, INT32_MAX}; /* 1992 to 1998 */
    struct sw_tpch *t = sw_tpch_new(is_small ? 0.002 : 0.1, 1);
    struct packed_filter_result *d_result, result;
    struct column shipdate, quantity;
    ck_assert_ptr_nonnull(t);
    pack_tpch(&shipdate, t, SW_L_SHIPDATE);
    pack_tpch(&quantity, t, SW_L_QUANTITY);
    ck_assert_int_eq(cudaMalloc((void **)&d_result, sizeof *d_result), cudaSuccess);
    struct packed_column *a =
        packed_column_new(connection, shipdate.region, shipdate.buffer->data, PACKED_SHIPDATE, &error);
    struct packed_column *b =
        packed_column_new(connection, quantity.region, quantity.buffer->data, PACKED_QUANTITY, &error);
    ck_assert_msg(a && b, "%s", error.text);
    for (size_t i = 0; i < sizeof days / sizeof days[0]; i++) {
        struct packed_filter_result want = {.rows = shipdate.bytes / 4};
        for (uint64_t row = 0; row < want.rows; row++) {
            const bool is_selected = ((const int32_t *)(const void *)shipdate.content)[row] < days[i];
            want.selected += is_selected;
            want.sum += is_selected ? (unsigned long long)((const int64_t *)(const void *)quantity.content)[row] : 0;
        }
        ck_assert_int_eq(packed_filter(a, b, days[i], d_result, NULL), cudaSuccess);
        ck_assert_int_eq(cudaMemcpy(&result, d_result, sizeof result, cudaMemcpyDeviceToHost), cudaSuccess);
        ck_assert_uint_eq(result.rows, want.rows);
        ck_assert_uint_eq(result.selected, want.selected);
        ck_assert_uint_eq(result.sum, want.sum);
    }
    packed_column_free(a);
    packed_column_free(b);
    (void)cudaFree(d_result);
    unpack(&shipdate);
    unpack(&quantity);
    sw_tpch_free(t);
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("packed");
    TCase *cases = tcase_create("all");
    tcase_set_timeout(cases, 600);
    tcase_add_checked_fixture(cases, open_session, close_session);
    tcase_add_loop_test(cases, every_codec_is_read_in_place, 0, SW_N_PACKED_COLUMNS);
    tcase_add_loop_test(cases, tiles_are_verified, 0, SW_N_PACKED_COLUMNS);
    tcase_add_loop_test(cases, damage_stays_in_bounds, 0, SW_N_PACKED_COLUMNS);
    tcase_add_loop_test(cases, exchanged_frames_are_refused, 0, SW_N_PACKED_COLUMNS);
    tcase_add_test(cases, unreadable_frames_are_refused);
    tcase_add_test(cases, a_query_on_packed_columns);
    suite_add_tcase(suite, cases);
    return suite;
}

int main(int argc, char **argv) {
    static const char *const options[] = {"device=auto", "slots=0", "host_tier_bytes=64 MiB",
                                          "host_tier_initial_bytes=64 MiB", NULL};
    const char *reason = NULL;
    is_small = getenv("SW_TEST_SMALL") != NULL;
    sw_test_daemon_start(&daemon_process, argc > 1 ? argv[1] : SW_SPILLWAYD_PATH, options);
    int failed = 1;
    if (sw_buffer_usable_kinds(&reason) < SW_BUFFER_KIND_NR) {
        (void)printf("skipped: %s\n", reason);
        failed = 77;
    } else {
        failed = sw_test_run(make_suite(), CK_NOFORK); /* one CUDA context for all tests */
    }
    const int exit_code = sw_test_daemon_stop(&daemon_process, SIGTERM);
    if (exit_code != 0)
        (void)printf("spillwayd exited with %d, its log is %s\n", exit_code, daemon_process.log);
    else
        sw_test_daemon_clean(&daemon_process);
    return failed ? failed : exit_code != 0;
}
