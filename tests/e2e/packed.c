/* Places of a packed region's chunks, with a real spillwayd, or packed in this process: the bytes there decode to the
 * packed ones. */
#include "codec/frame.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/frames.h"
#include "tests/lib/packed_columns.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS, MAX_CHUNKS = 64 };
static const size_t bytes = (size_t)10 << 20; /* several chunks */

static struct spillway *connection;
static struct spillway_error error;
static uint8_t *data, *original;

static void open_with(uint32_t flags) {
    const struct spillway_options options = {
        .size = sizeof options, .socket_path = sw_served_daemon.socket, .flags = flags};
    ck_assert_int_eq(spillway_open(&connection, &options, &error), 0);
    const int fd = memfd_create("e2e", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED); /* the descriptor stays open: the library hands it over */
    original = malloc(bytes);
    ck_assert_ptr_nonnull(original);
}

static void before_each(void) {
    open_with(SPILLWAY_CODEC_SERVICE);
}

static void before_each_here(void) {
    open_with(SPILLWAY_CODEC_CLIENT);
}

static void after_each(void) {
    (void)munmap(data, bytes);
    free(original);
    sw_served_close(connection);
}

static int finish(struct spillway_ticket *ticket, struct spillway_result *ret) {
    const int rc = spillway_wait(ticket, WAIT_MS, ret, ret != NULL, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static struct spillway_result packed(uint64_t n, enum spillway_value_type type) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    memcpy(data, original, bytes);
    ck_assert_int_eq(spillway_spill(connection, SW_REQUEST(SW_ONE_TYPED(data, n, type), .flags = SPILLWAY_IN_PLACE), 1,
                                    &ticket, &error),
                     0);
    const int rc = finish(ticket, &result);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    memset(data + result.stored_bytes, 0xDB, n - result.stored_bytes);
    return result;
}

static void unpacked(struct spillway_region region, uint64_t n) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_restore(connection,
                                      SW_REQUEST(SW_ONE(data, n), .region = region, .flags = SPILLWAY_IN_PLACE), 1,
                                      &ticket, &error),
                     0);
    ck_assert_int_eq(finish(ticket, NULL), 0);
    ck_assert_int_eq(memcmp(data, original, n), 0);
}

START_TEST(chunks_lie_where_the_directory_says) {
    struct spillway_packed_chunk chunks[MAX_CHUNKS];
    uint32_t n = 0, again = 0;
    sw_numbers_fill(original, 0, bytes, sw_packed_columns[_i].type, sw_packed_columns[_i].kind,
                    sw_packed_columns[_i].bits, 7);
    const struct spillway_result result = packed(bytes, (enum spillway_value_type)sw_packed_columns[_i].type);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, chunks, MAX_CHUNKS, &n, &error), 0);
    ck_assert_uint_gt(n, 1);
    ck_assert_uint_eq(sw_packed_ck(data, result.stored_bytes, chunks, n, original, bytes), bytes);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(chunks[i].codec, sw_packed_columns[_i].codec);
        ck_assert_uint_eq(chunks[i].type,
                          sw_packed_columns[_i].codec == SPILLWAY_CODEC_RAW ? 0 : sw_packed_columns[_i].type);
    }
    memset(chunks, 0, sizeof chunks);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, chunks, 1, &again, &error), 0);
    ck_assert(again == n && chunks[0].raw_bytes && !chunks[1].raw_bytes);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, NULL, 0, &again, &error), 0);
    ck_assert_uint_eq(again, n);
    unpacked(result.region, bytes);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, chunks, 1, &n, &error), -SPILLWAY_ESTALE);
}
END_TEST

/* Also a region of bytes, though no kernel here reads strings, and one of very few bytes. */
START_TEST(any_region_has_a_directory) {
    static const uint64_t lengths[] = {0, 1, 100, 32768, 100001};
    struct spillway_packed_chunk chunks[MAX_CHUNKS];
    uint32_t n;
    sw_content_fill(original, bytes, SW_CONTENT_TEXT, 3);
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const struct spillway_result result = packed(lengths[i], SPILLWAY_BYTES);
        ck_assert_int_eq(spillway_query_packed(connection, result.region, chunks, MAX_CHUNKS, &n, &error), 0);
        ck_assert_uint_eq(n, lengths[i] > 0);
        ck_assert_uint_eq(sw_packed_ck(data, result.stored_bytes, chunks, n, original, lengths[i]), lengths[i]);
        unpacked(result.region, lengths[i]);
    }
}
END_TEST

START_TEST(other_regions_have_no_directory) {
    struct spillway_packed_chunk chunk;
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    uint32_t n = 77;
    sw_content_fill(original, bytes, SW_CONTENT_TEXT, 3);
    memcpy(data, original, bytes);
    ck_assert_int_eq(spillway_spill(connection, SW_REQUEST(SW_ONE(data, 100001)), 1, &ticket, &error), 0);
    ck_assert_int_eq(finish(ticket, &result), 0);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, &chunk, 1, &n, &error), -SPILLWAY_EINVAL);
    ck_assert_int_eq(spillway_drop(connection, &result.region, 1, &error), 0);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, &chunk, 1, &n, &error), -SPILLWAY_ESTALE);
    ck_assert_int_eq(spillway_spill(connection, SW_REQUEST(SW_ONE(original, 100001)), 1, &ticket, &error),
                     0); /* in pieces */
    ck_assert_int_eq(finish(ticket, &result), 0);
    ck_assert_int_eq(spillway_query_packed(connection, result.region, &chunk, 1, &n, &error), -SPILLWAY_EINVAL);
    ck_assert_int_eq(spillway_drop(connection, &result.region, 1, &error), 0);
    ck_assert_int_eq(spillway_spill(connection,
                                    SW_REQUEST(SW_ONE_TYPED(data, 7, SPILLWAY_I64), .flags = SPILLWAY_IN_PLACE), 1,
                                    &ticket, &error),
                     0);
    ck_assert_int_eq(finish(ticket, &result), -SPILLWAY_EINVAL);
    ck_assert_uint_eq(n, 77);
}
END_TEST

static void add_case(Suite *suite, const char *name, void (*before)(void)) {
    TCase *served = tcase_create(name);
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(served, before, after_each);
    tcase_add_loop_test(served, chunks_lie_where_the_directory_says, 0, SW_N_PACKED_COLUMNS);
    tcase_add_test(served, any_region_has_a_directory);
    tcase_add_test(served, other_regions_have_no_directory);
    suite_add_tcase(suite, served);
}

int main(void) {
    Suite *suite = suite_create("packed");
    add_case(suite, "packed by the service", before_each);
    add_case(suite, "packed here", before_each_here);
    return sw_test_run(suite, CK_FORK);
}
