/* A real spillwayd through the public API, as an engine on the host device would use it: sizes, memory, codecs,
 * regions. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include "tests/lib/served_client.h"

#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static bool all_zero(const uint8_t *data, size_t bytes) {
    while (bytes && !data[bytes - 1])
        bytes--;
    return bytes == 0;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const size_t sizes[] = {0, 1, 7, 8, 9, 511, 512, 513, 4095, 4096, 4097, 32767, 32768, 100003, 1 << 20, 9000001};

START_TEST(every_size_comes_back) {
    const size_t bytes = sizes[_i];
    struct spillway_result result = {.size = sizeof result};
    struct memory m = new_memory(bytes + 100);
    fill(m.data, bytes, bytes);
    const struct spillway_region region = spilled(m.data, bytes);
    free_memory(&m);
    m = new_memory(bytes + 100);
    memset(m.data, 0xA5, m.bytes);
    ck_assert_int_eq(finish(restore(region, m.data, bytes, 0), &result), 0);
    ck_assert_uint_eq(result.raw_bytes, bytes);
    ck_assert(holds(m.data, bytes, bytes));
    for (size_t i = bytes; i < m.bytes; i++)
        ck_assert_uint_eq(m.data[i], 0xA5);
    free_memory(&m);
}
END_TEST

START_TEST(odd_places_inside_a_memfd) {
    static const size_t places[][2] = {{1, 1000}, {4095, 2}, {4097, 70001}, {123457, 300000}, {1048575, 1}};
    struct memory m = new_memory(mib), back = new_memory(mib);
    fill(m.data, mib, 3);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        const size_t at = places[i][0], bytes = places[i][1], to = mib - at - bytes; /* elsewhere in the other one */
        memset(back.data, 0, mib);
        const struct spillway_region region = spilled(m.data + at, bytes);
        ck_assert_int_eq(finish(restore(region, back.data + to, bytes, 0), NULL), 0);
        ck_assert(memcmp(back.data + to, m.data + at, bytes) == 0);
        ck_assert(all_zero(back.data, to) && all_zero(back.data + to + bytes, mib - to - bytes));
    }
    ck_assert(holds(m.data, mib, 3));
    free_memory(&m);
    free_memory(&back);
}
END_TEST

START_TEST(sixty_four_at_once) {
    enum { N = 64 };
    const size_t each = 200001;
    struct memory m = new_memory(N * each);
    struct spillway_ticket *tickets[N];
    struct spillway_result results[N];
    for (unsigned i = 0; i < N; i++) {
        fill(m.data + i * each, each, i);
        tickets[i] = spill(m.data + i * each, each);
    }
    for (unsigned i = N; i-- > 0;) {
        results[i].size = sizeof results[i];
        ck_assert_int_eq(finish(tickets[i], &results[i]), 0);
    }
    memset(m.data, 0, m.bytes);
    for (unsigned i = 0; i < N; i++)
        tickets[i] = restore(results[i].region, m.data + i * each, each, 0);
    for (int n_done = 0; n_done < N;) {
        struct pollfd p = {.fd = spillway_fd(connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
        const int n = spillway_dispatch(connection, &error);
        ck_assert_int_ge(n, 0);
        n_done += n;
    }
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(spillway_wait(tickets[i], 0, &results[i], 1, &error), 0);
        ck_assert(holds(m.data + i * each, each, i));
        spillway_ticket_free(tickets[i]);
    }
    free_memory(&m);
}
END_TEST

static uint64_t mapped_memories(void) {
    return sw_served_status(connection).mapped_memories;
}

/* Pieces of one registered memory go out and come back to other places in it, all at once. */
START_TEST(packs_in_place) {
    struct memory m = new_memory(3 << 20);
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    sw_content_fill(m.data, m.bytes, SW_CONTENT_TEXT, 9);
    uint8_t *expected = malloc(m.bytes);
    ck_assert_ptr_nonnull(expected);
    memcpy(expected, m.data, m.bytes);
    ck_assert_int_eq(spillway_spill(connection, SW_REQUEST(SW_ONE(m.data + 5, m.bytes - 5), .flags = SPILLWAY_IN_PLACE),
                                    1, &ticket, &error),
                     0);
    ck_assert_int_eq(finish(ticket, &result), 0);
    ck_assert_str_eq(result.tier, "device");
    ck_assert_uint_lt(result.stored_bytes, m.bytes / 2);
    memset(m.data + 5 + result.stored_bytes, 0xDB, m.bytes - 5 - result.stored_bytes);
    ticket = restore(result.region, m.data + 5, m.bytes - 5, 0);
    ck_assert_int_eq(finish(ticket, NULL), -SPILLWAY_EINVAL); /* not by a restore */
    ck_assert_int_eq(spillway_restore(connection,
                                      SW_REQUEST(SW_ONE(m.data + 5, m.bytes - 5), .region = result.region,
                                                 .flags = SPILLWAY_IN_PLACE),
                                      1, &ticket, &error),
                     0);
    ck_assert_int_eq(finish(ticket, &result), 0);
    ck_assert_int_eq(memcmp(m.data, expected, m.bytes), 0);
    ck_assert_int_eq(spillway_drop(connection, &result.region, 1, &error), -SPILLWAY_ESTALE);
    free(expected);
    free_memory(&m);
}
END_TEST

START_TEST(registered_memory_stays_mapped) {
    enum { N = 16 };
    const size_t each = 100003;
    struct memory m = new_memory((size_t)2 * N * each + 17);
    struct spillway_ticket *tickets[N];
    struct spillway_result results[N];
    uint8_t *first = m.data + 17;
    ck_assert_int_eq(spillway_register(connection, first, m.bytes - 17, &error), 0);
    ck_assert_uint_eq(mapped_memories(), 1);
    for (unsigned i = 0; i < N; i++) {
        fill(first + i * each, each, i);
        tickets[i] = spill(first + i * each, each);
    }
    for (unsigned i = 0; i < N; i++) {
        results[i].size = sizeof results[i];
        ck_assert_int_eq(finish(tickets[i], &results[i]), 0);
    }
    ck_assert_uint_eq(mapped_memories(), 1);
    (void)spilled(m.data, 18); /* begins outside: handed over for itself, and let go */
    ck_assert_uint_eq(mapped_memories(), 1);
    memset(m.data, 0, m.bytes);
    for (unsigned i = 0; i < N; i++)
        tickets[i] = restore(results[i].region, first + (2 * N - 1 - i) * each, each, 0);
    ck_assert_int_eq(spillway_unregister(connection, first, &error), 0); /* waits for them */
    ck_assert_uint_eq(mapped_memories(), 0);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(spillway_wait(tickets[i], 0, NULL, 0, &error), 0);
        spillway_ticket_free(tickets[i]);
        ck_assert(holds(first + (2 * N - 1 - i) * each, each, i));
    }
    ck_assert(all_zero(m.data, 17 + N * each));
    free_memory(&m);
}
END_TEST

/* The daemon lets go of it with the connection, see after_each(). */
START_TEST(closed_with_memory_registered) {
    struct memory m = new_memory(200000), other = new_memory(4096);
    fill(m.data, m.bytes, 11);
    ck_assert_int_eq(spillway_register(connection, m.data, m.bytes, &error), 0);
    ck_assert_int_eq(spillway_register(connection, other.data, other.bytes, &error), 0);
    ck_failed(spillway_register(connection, m.data + 5, 10, &error), SPILLWAY_EEXIST, SPILLWAY_SCOPE_REQUEST);
    ck_assert_uint_eq(mapped_memories(), 2);
    (void)spilled(m.data, m.bytes);
    (void)spill(m.data, m.bytes); /* still runs */
}
END_TEST

/* Numbers in memory that is handed over, and in memory that is copied. */
START_TEST(numbers_have_their_codecs) {
    const size_t bytes = 3 * mib;
    struct memory m = new_memory(bytes + 100);
    uint8_t *heap = malloc(bytes);
    ck_assert_ptr_nonnull(heap);
    int64_t *dates = (int64_t *)(void *)m.data;
    for (size_t i = 0; i < bytes / sizeof *dates; i++)
        dates[i] = 8035 + (int64_t)((i * i * 2654435761u >> 16) % 2526); /* few values, and many differences */
    memcpy(heap, m.data, bytes);
    const void *const sources[] = {m.data, heap};
    for (int i = 0; i < 2; i++) {
        struct spillway_ticket *ticket = NULL;
        struct spillway_result result = {.size = sizeof result};
        struct spillway_region_info info = {.size = sizeof info};
        ck_assert_int_eq(
            spillway_spill(connection, SW_REQUEST(SW_ONE_TYPED(sources[i], bytes, SPILLWAY_I64)), 1, &ticket, &error),
            0);
        ck_assert_int_eq(finish(ticket, &result), 0);
        ck_assert_str_eq(result.codec, "for");
        ck_assert_uint_lt(result.stored_bytes, bytes / 4);
        ck_assert_int_eq(spillway_query(connection, result.region, &info, &error), 0);
        ck_assert_str_eq(info.codec, "for");
        memset(m.data, 0, bytes);
        ck_assert_int_eq(finish(restore(result.region, m.data, bytes, 0), NULL), 0);
        ck_assert(memcmp(m.data, heap, bytes) == 0);
    }
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(
        spillway_spill(connection, SW_REQUEST(SW_ONE_TYPED(m.data, bytes - 1, SPILLWAY_I64)), 1, &ticket, &error), 0);
    ck_failed(finish(ticket, NULL), SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST);
    free(heap);
    free_memory(&m);
}
END_TEST

START_TEST(keep_query_drop) {
    struct spillway_region_info info = {.size = sizeof info};
    struct spillway_status status = {.size = sizeof status};
    struct memory m = new_memory(300000);
    fill(m.data, m.bytes, 4);
    const struct spillway_region region = spilled(m.data, m.bytes);
    for (int i = 0; i < 2; i++) {
        memset(m.data, 0, m.bytes);
        ck_assert_int_eq(finish(restore(region, m.data, m.bytes, SPILLWAY_KEEP), NULL), 0);
        ck_assert(holds(m.data, m.bytes, 4));
    }
    ck_assert_int_eq(spillway_query(connection, region, &info, &error), 0);
    ck_assert_uint_eq(info.raw_bytes, m.bytes);
    ck_assert_uint_gt(info.stored_bytes, 0);
    ck_assert_str_eq(info.state, "out");
    ck_assert_str_eq(info.tier, "host");
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_str_eq(status.device, "host");
    ck_assert_uint_eq(status.n_gpus, 0);
    ck_assert_uint_eq(status.sessions, 1);
    ck_assert_uint_eq(status.regions, 1);
    ck_assert_uint_eq(status.mapped_memories, 0); /* once its ticket is done, memory is the client's alone */
    ck_assert_uint_ge(status.tier_used_bytes, info.stored_bytes);
    ck_assert_uint_le(status.scratch_bytes, status.scratch_limit_bytes);
    ck_assert_int_eq(spillway_drop(connection, &region, 1, &error), 0);
    ck_failed(spillway_drop(connection, &region, 1, &error), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    free_memory(&m);
}
END_TEST

static uint64_t spills_for(const char *reason) {
    const struct spillway_status status = sw_served_status(connection);
    for (uint32_t i = 0; i < status.n_reasons; i++)
        if (strcmp(status.reasons[i].text, reason) == 0)
            return status.reasons[i].spills;
    ck_abort_msg("'%s' is not among the reasons", reason);
}

static uint64_t spills_for_all(void) {
    const struct spillway_status status = sw_served_status(connection);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < status.n_reasons; i++) {
        sum += status.reasons[i].spills;
        ck_assert_str_ne(status.reasons[i].text, "");
    }
    return sum;
}

/* Why a region was compressed, or was not, is in the reply, and counted under the same name. */
START_TEST(reasons_are_reported_and_counted) {
    static const enum sw_content kinds[] = {SW_CONTENT_TEXT, SW_CONTENT_RANDOM};
    struct memory m = new_memory(4 * mib);
    uint64_t before = spills_for_all(), not_shrunk = spills_for("does not shrink");
    for (int i = 0; i < 2; i++) {
        struct spillway_result result = {.size = sizeof result};
        sw_content_fill(m.data, m.bytes, kinds[i], 3);
        ck_assert_int_eq(finish(spill(m.data, m.bytes), &result), 0);
        ck_assert_uint_ge(spills_for(result.reason), 1);
        ck_assert_uint_eq(spills_for_all(), ++before);
        ck_assert_int_eq(spillway_drop(connection, &result.region, 1, &error), 0);
    }
    ck_assert_uint_eq(spills_for("does not shrink"), not_shrunk + 1); /* the second */
    free_memory(&m);
}
END_TEST

START_TEST(used_up_and_unknown_ids) {
    struct spillway_region_info info = {.size = sizeof info};
    struct memory m = new_memory(50000);
    fill(m.data, m.bytes, 5);
    const struct spillway_region region = spilled(m.data, m.bytes), none = {.slot = UINT32_MAX, .generation = 1};
    ck_assert_int_eq(finish(restore(region, m.data, m.bytes, 0), NULL), 0);
    ck_failed(finish(restore(region, m.data, m.bytes, 0), NULL), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_query(connection, region, &info, &error), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_query(connection, none, &info, &error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_drop(connection, &(struct spillway_region){0, 0}, 1, &error), SPILLWAY_ENOENT,
              SPILLWAY_SCOPE_REQUEST);
    ck_assert(holds(m.data, m.bytes, 5));
    free_memory(&m);
}
END_TEST

START_TEST(a_too_small_buffer_stays_unchanged) {
    struct memory m = new_memory(80000), small = new_memory(79999);
    fill(m.data, m.bytes, 6);
    const struct spillway_region region = spilled(m.data, m.bytes);
    memset(m.data, 0, m.bytes);
    ck_failed(finish(restore(region, small.data, small.bytes, 0), NULL), SPILLWAY_ETOOSMALL, SPILLWAY_SCOPE_REQUEST);
    ck_assert(all_zero(small.data, small.bytes));
    ck_assert_int_eq(finish(restore(region, m.data, m.bytes, 0), NULL), 0); /* the region is none the worse */
    ck_assert(holds(m.data, m.bytes, 6));
    free_memory(&m);
    free_memory(&small);
}
END_TEST

/* Sealed, or its descriptor opened for appending: it is read, but a restore to it fails, and costs nothing. */
START_TEST(read_only_memory_cannot_be_restored_to) {
    struct memory sealed = new_memory(8192), appended = new_memory(8192);
    fill(appended.data, appended.bytes, 9);
    (void)munmap(sealed.data, sealed.bytes); /* none that is writable may be there */
    ck_assert_int_eq(fcntl(sealed.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    sealed.data = mmap(NULL, sealed.bytes, PROT_READ, MAP_SHARED, sealed.fd, 0);
    ck_assert_ptr_ne(sealed.data, MAP_FAILED);
    const struct spillway_region from_sealed = spilled(sealed.data, sealed.bytes);
    ck_assert_int_eq(spillway_drop(connection, &from_sealed, 1, &error), 0);
    ck_assert_int_eq(fcntl(appended.fd, F_SETFL, O_APPEND), 0);
    const struct spillway_region region = spilled(appended.data, appended.bytes);
    ck_failed(finish(restore(region, sealed.data, sealed.bytes, 0), NULL), SPILLWAY_EACCES, SPILLWAY_SCOPE_REQUEST);
    ck_failed(finish(restore(region, appended.data, appended.bytes, 0), NULL), SPILLWAY_EACCES, SPILLWAY_SCOPE_REQUEST);
    ck_assert_int_eq(fcntl(appended.fd, F_SETFL, 0), 0);
    memset(appended.data, 0, appended.bytes);
    ck_assert_int_eq(finish(restore(region, appended.data, appended.bytes, 0), NULL), 0);
    ck_assert(holds(appended.data, appended.bytes, 9));
    free_memory(&sealed);
    free_memory(&appended);
}
END_TEST

START_TEST(a_freed_ticket_leaves_no_region) {
    struct memory m = new_memory(4 * mib);
    fill(m.data, m.bytes, 7);
    spillway_ticket_free(spill(m.data, m.bytes));
    sw_served_ck_empty(connection, 0);
    ck_assert(holds(m.data, m.bytes, 7));
    free_memory(&m);
}
END_TEST

/* 64 MiB of tier, pieces of 12 MiB that do not compress: the sixth does not fit. */
START_TEST(a_full_host_tier_fails_one_spill) {
    enum { N = 6 };
    const size_t each = 12 * mib;
    struct memory m = new_memory(each);
    struct spillway_region regions[N];
    unsigned n = 0;
    int rc = 0;
    for (; n < N; n++) {
        struct spillway_result result = {.size = sizeof result};
        sw_content_fill(m.data, each, SW_CONTENT_RANDOM, n);
        rc = finish(spill(m.data, each), &result);
        if (rc < 0)
            break;
        regions[n] = result.region;
    }
    ck_assert_uint_eq(n, 5);
    ck_failed(rc, SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST);
    uint8_t *expected = malloc(each);
    ck_assert_ptr_nonnull(expected);
    sw_content_fill(expected, each, SW_CONTENT_RANDOM, n);
    ck_assert(memcmp(m.data, expected, each) == 0); /* its bytes are where they were */
    ck_assert_int_eq(spillway_drop(connection, &regions[0], 1, &error), 0);
    const struct spillway_region late = spilled(m.data, each);
    memset(m.data, 0, each);
    ck_assert_int_eq(finish(restore(late, m.data, each, 0), NULL), 0);
    ck_assert(memcmp(m.data, expected, each) == 0);
    free(expected);
    free_memory(&m);
}
END_TEST

/* ---- a daemon that goes ------------------------------------------------------------------------------------------ */

/* A program that the process starts must not hold a connection, or the service would not see its end. The loop's index:
 * without and with the codec in this process. */
START_TEST(programs_that_are_started_inherit_nothing) {
    enum { MOST = 256 };
    const struct spillway_options options = {
        .size = sizeof options, .socket_path = sw_served_daemon.socket, .flags = _i ? SPILLWAY_CODEC_CLIENT : 0};
    struct spillway *other = NULL;
    static char copied[4096];
    bool was_open[MOST];
    unsigned n_opened = 0;
    for (int fd = 0; fd < MOST; fd++)
        was_open[fd] = fcntl(fd, F_GETFD) >= 0;
    ck_assert_int_eq(spillway_open(&other, &options, &error), 0);
    ck_assert_int_eq(spillway_prepare(other, copied, &error), 0);
    for (int fd = 0; fd < MOST; fd++) {
        const int flags = was_open[fd] ? -1 : fcntl(fd, F_GETFD);
        ck_assert(flags < 0 || flags & FD_CLOEXEC);
        n_opened += flags >= 0;
    }
    ck_assert_uint_gt(n_opened, 3);
    spillway_close(other);
}
END_TEST

/* Operations that run when a connection is closed write to no memory after that. */
START_TEST(close_waits_for_running_operations) {
    struct memory m = new_memory(128 * mib);
    for (int round = 0; round < 3; round++) {
        struct spillway *closed = sw_served_connect(&sw_served_daemon);
        struct spillway_ticket *ticket = NULL;
        struct spillway_result result = {.size = sizeof result};
        sw_content_fill(m.data, m.bytes, SW_CONTENT_TEXT, 1);
        ck_assert_int_eq(spillway_spill(closed, SW_REQUEST(SW_ONE(m.data, m.bytes)), 1, &ticket, &error), 0);
        ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, &result, 1, &error), 0);
        spillway_ticket_free(ticket);
        ck_assert_int_eq(
            spillway_restore(closed, SW_REQUEST(SW_ONE(m.data, m.bytes), .region = result.region), 1, &ticket, &error),
            0);
        spillway_ticket_free(ticket);
        (void)usleep(10000U << round); /* it has begun */
        spillway_close(closed);
        memset(m.data, 0xAA, m.bytes);
        (void)usleep(200000);
        for (size_t i = 0; i < m.bytes; i++)
            if (m.data[i] != 0xAA)
                ck_abort_msg("byte %zu was written after the connection was closed", i);
    }
    free_memory(&m);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("client");
    TCase *served = tcase_create("client");
    sw_test_slow(served, 60);
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(served, before_each, after_each);
    tcase_add_loop_test(served, every_size_comes_back, 0, (int)(sizeof sizes / sizeof sizes[0]));
    tcase_add_test(served, odd_places_inside_a_memfd);
    tcase_add_test(served, sixty_four_at_once);
    tcase_add_test(served, packs_in_place);
    tcase_add_test(served, registered_memory_stays_mapped);
    tcase_add_test(served, closed_with_memory_registered);
    tcase_add_test(served, numbers_have_their_codecs);
    tcase_add_test(served, keep_query_drop);
    tcase_add_test(served, reasons_are_reported_and_counted);
    tcase_add_test(served, used_up_and_unknown_ids);
    tcase_add_test(served, a_too_small_buffer_stays_unchanged);
    tcase_add_test(served, read_only_memory_cannot_be_restored_to);
    tcase_add_test(served, a_freed_ticket_leaves_no_region);
    tcase_add_test(served, a_full_host_tier_fails_one_spill);
    tcase_add_loop_test(served, programs_that_are_started_inherit_nothing, 0, 2);
    tcase_add_test(served, close_waits_for_running_operations);
    suite_add_tcase(suite, served);
    return sw_test_run(suite, CK_FORK);
}
