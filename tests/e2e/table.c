/* Whole tables through a real spillwayd: all columns of TPC-H's lineitem as one region. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/lineitem.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS, N = SW_LINEITEM_BUFFERS };
static const double scale = 0.002;

static struct spillway *connection;
static struct spillway_error error;
static struct sw_lineitem *table;

static void before_each(void) {
    connection = sw_served_connect(&sw_served_daemon);
    table = sw_lineitem_new(scale, 1);
    ck_assert_ptr_nonnull(table);
}

static void after_each(void) {
    sw_lineitem_free(table);
    sw_served_close(connection);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

/* Room for a buffer in a memfd of its own, which begins so many bytes before it. */
static void *new_memory(uint64_t bytes, uint64_t before) {
    const int fd = memfd_create("e2e", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)(before + bytes)) == 0);
    uint8_t *data = mmap(NULL, before + bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    return data + before; /* the descriptor stays open: the library hands it over */
}

static void new_buffers(struct spillway_buffer ret[N], uint64_t before) {
    for (int i = 0; i < N; i++)
        ret[i] = (struct spillway_buffer){.data = new_memory(table->buffers[i].bytes, before),
                                          .bytes = table->buffers[i].bytes,
                                          .type = (uint16_t)table->buffers[i].type};
}

static void free_buffers(struct spillway_buffer buffers[N], uint64_t before) {
    for (int i = 0; i < N; i++)
        (void)munmap((uint8_t *)buffers[i].data - before, before + table->buffers[i].bytes);
}

static void fill(const struct spillway_buffer buffers[N]) {
    for (int i = 0; i < N; i++)
        memcpy(buffers[i].data, table->buffers[i].data, table->buffers[i].bytes);
}

static void ck_same(const struct spillway_buffer buffers[N]) {
    for (int i = 0; i < N; i++)
        ck_assert_msg(memcmp(buffers[i].data, table->buffers[i].data, table->buffers[i].bytes) == 0, "%s, %s",
                      table->buffers[i].column, table->buffers[i].role);
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

static int spill_n(const struct spillway_buffer *buffers, uint32_t n, struct spillway_result *ret) {
    struct spillway_ticket *ticket = NULL;
    int rc = spillway_spill(connection, SW_REQUEST(SW_SEVERAL(buffers, n)), 1, &ticket, &error);
    if (rc == 0)
        rc = spillway_wait(ticket, WAIT_MS, ret, ret != NULL, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static int restore_n(struct spillway_region region, const struct spillway_buffer *buffers, uint32_t n, unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    int rc = spillway_restore(connection, SW_REQUEST(SW_SEVERAL(buffers, n), .region = region, .flags = flags), 1,
                              &ticket, &error);
    if (rc == 0)
        rc = spillway_wait(ticket, WAIT_MS, NULL, 0, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static struct spillway_region spilled(const struct spillway_buffer buffers[N]) {
    struct spillway_result result = {.size = sizeof result};
    const int rc = spill_n(buffers, N, &result);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    ck_assert_uint_eq(result.raw_bytes, table->bytes);
    return result.region;
}

static void ck_failed(int rc, int code) {
    ck_assert_msg(rc == -code, "%d (%s: %s), not %d", rc, error.name, error.text, -code);
    ck_assert_uint_eq(sw_served_status(connection).regions, 0);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(a_table_comes_back) {
    struct spillway_buffer_info info[SPILLWAY_MAX_BUFFERS];
    struct spillway_region_info all = {.size = sizeof all};
    struct spillway_buffer from[N], to[N];
    uint64_t stored_bytes = 0;
    uint32_t n = 0;
    new_buffers(from, 0);
    fill(from);
    const struct spillway_region region = spilled(from);
    free_buffers(from, 0);
    ck_assert_uint_eq(sw_served_status(connection).mapped_memories, 0);
    ck_assert_uint_eq(sw_served_status(connection).regions, 1);
    ck_assert_int_eq(spillway_query_buffers(connection, region, info, &n, &error), 0);
    ck_assert_uint_eq(n, N);
    for (int i = 0; i < N; i++) {
        const bool is_number = table->buffers[i].type != SW_VALUE_NONE;
        ck_assert_uint_eq(info[i].raw_bytes, table->buffers[i].bytes);
        ck_assert_msg(!is_number || strstr(info[i].codec, "for") || strcmp(info[i].codec, "dict") == 0 ||
                          strstr(info[i].codec, "radix"),
                      "%s, %s: %s", table->buffers[i].column, table->buffers[i].role, info[i].codec);
        ck_assert_msg(is_number || strcmp(info[i].codec, "v5t") == 0 || strcmp(info[i].codec, "phrase") == 0, "%s: %s",
                      table->buffers[i].column, info[i].codec);
        stored_bytes += info[i].stored_bytes;
    }
    ck_assert_int_eq(spillway_query(connection, region, &all, &error), 0);
    ck_assert_uint_eq(all.raw_bytes, table->bytes);
    ck_assert_uint_eq(all.stored_bytes, stored_bytes);
    ck_assert_uint_gt(table->bytes, 2 * stored_bytes);
    ck_assert_int_eq(spillway_advise(connection, region, SPILLWAY_ADVICE_PIN, 1, &error), 0);
    new_buffers(to, 0);
    ck_assert_int_eq(restore_n(region, to, N, SPILLWAY_KEEP), 0);
    ck_same(to);
    free_buffers(to, 0);
    new_buffers(to, 13); /* at any place */
    ck_assert_int_eq(restore_n(region, to, N, 0), 0);
    ck_same(to);
    ck_failed(restore_n(region, to, N, 0), SPILLWAY_ESTALE);
    free_buffers(to, 13);
}
END_TEST

/* All columns in one block that stays open. */
START_TEST(registered_memory_holds_a_table) {
    struct spillway_buffer buffers[N];
    uint64_t bytes = 0;
    uint8_t *block = new_memory(table->bytes, 0);
    for (int i = 0; i < N; bytes += buffers[i++].bytes)
        buffers[i] = (struct spillway_buffer){
            .data = block + bytes, .bytes = table->buffers[i].bytes, .type = (uint16_t)table->buffers[i].type};
    ck_assert_int_eq(spillway_register(connection, block, bytes, &error), 0);
    for (int round = 0; round < 2; round++) {
        fill(buffers);
        const struct spillway_region region = spilled(buffers);
        memset(block, 0, bytes);
        ck_assert_int_eq(restore_n(region, buffers, N, 0), 0);
        ck_same(buffers);
        ck_assert_uint_eq(sw_served_status(connection).mapped_memories, 1);
    }
    ck_assert_int_eq(spillway_unregister(connection, block, &error), 0);
    (void)munmap(block, bytes);
}
END_TEST

/* A slice of an array of strings: its offsets begin anywhere, and buffers without bytes may be nowhere. */
START_TEST(slices_and_empty_buffers) {
    int64_t *offsets = new_memory(1001 * sizeof *offsets, 0);
    char *characters = new_memory(20000, 0);
    for (int i = 0; i <= 1000; i++)
        offsets[i] = INT64_C(5000000000) + INT64_C(20) * i;
    sw_content_fill((uint8_t *)characters, 20000, SW_CONTENT_TEXT, 1);
    struct spillway_buffer buffers[] = {{.data = NULL, .bytes = 0, .type = SPILLWAY_U8},
                                        {.data = offsets, .bytes = 1001 * sizeof *offsets, .type = SPILLWAY_I64},
                                        {.data = characters, .bytes = 20000, .type = SPILLWAY_BYTES},
                                        {.data = NULL, .bytes = 0, .type = SPILLWAY_BYTES}};
    struct spillway_result result = {.size = sizeof result};
    ck_assert_int_eq(spill_n(buffers, 4, &result), 0);
    memset(characters, 0, 20000);
    memset(offsets, 0, 1001 * sizeof *offsets);
    ck_assert_int_eq(restore_n(result.region, buffers, 4, 0), 0);
    for (int i = 0; i <= 1000; i++)
        ck_assert_int_eq(offsets[i], INT64_C(5000000000) + INT64_C(20) * i);
    for (int i = 0; i < 4; i++)
        buffers[i].bytes = 0;
    ck_failed(spill_n(buffers, 4, &result), SPILLWAY_EINVAL);
    (void)munmap(offsets, 1001 * sizeof *offsets);
    (void)munmap(characters, 20000);
}
END_TEST

START_TEST(invalid_calls_are_refused) {
    struct spillway_buffer from[N], bad[SPILLWAY_MAX_BUFFERS + 1];
    struct spillway_result result = {.size = sizeof result};
    new_buffers(from, 0);
    fill(from);
    for (int i = 0; i <= SPILLWAY_MAX_BUFFERS; i++)
        bad[i] = from[0];
    ck_failed(spill_n(bad, SPILLWAY_MAX_BUFFERS + 1, &result), SPILLWAY_EINVAL);
    ck_failed(spill_n(bad, 0, &result), SPILLWAY_EINVAL);
    ck_failed(spill_n(NULL, 1, &result), SPILLWAY_EINVAL);
    memcpy(bad, from, sizeof from);
    bad[5].type = 77;
    ck_failed(spill_n(bad, N, &result), SPILLWAY_EINVAL);
    memcpy(bad, from, sizeof from);
    bad[5].bytes--; /* of numbers of 8 bytes */
    ck_failed(spill_n(bad, N, &result), SPILLWAY_EINVAL);
    ck_same(from);

    const struct spillway_region region = spilled(from);
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(restore_n(region, from, N - 1, 0), -SPILLWAY_EINVAL);
    memcpy(bad, from, sizeof from);
    bad[2].bytes--;
    ck_assert_int_eq(restore_n(region, bad, N, 0), -SPILLWAY_ETOOSMALL);
    ck_assert_int_eq(restore_n(region, from, N, 64), -SPILLWAY_EINVAL);
    ck_assert_int_eq(spillway_restore(connection, SW_REQUEST(SW_ONE(from[0].data, from[0].bytes), .region = region), 1,
                                      &ticket, &error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &error), -SPILLWAY_EINVAL);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(restore_n(region, from, N, 0), 0);
    ck_same(from);
    free_buffers(from, 0);
}
END_TEST

START_TEST(overlapping_destinations) {
    uint8_t *block = new_memory(3000, 0);
    struct spillway_buffer buffers[] = {{.data = block, .bytes = 1000, .type = SPILLWAY_BYTES},
                                        {.data = block + 1000, .bytes = 1000, .type = SPILLWAY_U8}};
    struct spillway_result result = {.size = sizeof result};
    ck_assert_int_eq(spillway_register(connection, block, 3000, &error), 0);
    ck_assert_int_eq(spill_n(buffers, 2, &result), 0);
    buffers[1].data = block + 999;
    ck_assert_int_eq(restore_n(result.region, buffers, 2, 0), -SPILLWAY_EINVAL);
    buffers[1].data = block + 2000;
    ck_assert_int_eq(restore_n(result.region, buffers, 2, 0), 0);
    ck_assert_int_eq(spillway_unregister(connection, block, &error), 0);
    (void)munmap(block, 3000);
}
END_TEST

START_TEST(a_freed_ticket_leaves_no_region) {
    struct spillway_buffer from[N];
    new_buffers(from, 0);
    fill(from);
    for (int i = 0; i < 4; i++) {
        struct spillway_ticket *ticket = NULL;
        ck_assert_int_eq(spillway_spill(connection, SW_REQUEST(SW_SEVERAL(from, N)), 1, &ticket, &error), 0);
        spillway_ticket_free(ticket);
    }
    sw_served_ck_empty(connection, 0);
    while (sw_served_status(connection).regions)
        (void)usleep(1000);
    free_buffers(from, 0);
}
END_TEST

START_TEST(several_tables_at_once) {
    enum { TABLES = 4 };
    struct spillway_buffer from[TABLES][N];
    struct spillway_ticket *tickets[TABLES];
    struct spillway_result results[TABLES];
    for (int i = 0; i < TABLES; i++) {
        new_buffers(from[i], 0);
        fill(from[i]);
        ck_assert_int_eq(spillway_spill(connection, SW_REQUEST(SW_SEVERAL(from[i], N)), 1, &tickets[i], &error), 0);
    }
    for (int i = 0; i < TABLES; i++) {
        results[i].size = sizeof results[i];
        ck_assert_int_eq(spillway_wait(tickets[i], WAIT_MS, &results[i], 1, &error), 0);
        spillway_ticket_free(tickets[i]);
        for (int k = 0; k < N; k++)
            memset(from[i][k].data, 0, from[i][k].bytes);
        ck_assert_int_eq(spillway_restore(connection, SW_REQUEST(SW_SEVERAL(from[i], N), .region = results[i].region),
                                          1, &tickets[i], &error),
                         0);
    }
    for (int i = 0; i < TABLES; i++) {
        ck_assert_int_eq(spillway_wait(tickets[i], WAIT_MS, NULL, 0, &error), 0);
        spillway_ticket_free(tickets[i]);
        ck_same(from[i]);
        free_buffers(from[i], 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("table");
    TCase *served = tcase_create("served");
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(served, before_each, after_each);
    tcase_add_test(served, a_table_comes_back);
    tcase_add_test(served, registered_memory_holds_a_table);
    tcase_add_test(served, slices_and_empty_buffers);
    tcase_add_test(served, invalid_calls_are_refused);
    tcase_add_test(served, overlapping_destinations);
    tcase_add_test(served, a_freed_ticket_leaves_no_region);
    tcase_add_test(served, several_tables_at_once);
    suite_add_tcase(suite, served);
    return sw_test_run(suite, CK_FORK);
}
