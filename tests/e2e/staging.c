/* Memory that cannot be handed over, through a real spillwayd: the same calls, the same promises. */
#include "base/alloc.h"
#include "ipc/client/client_staging.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include <check.h>
#include <linux/memfd.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WAIT_MS = 120000, PIECE = (int)SW_PIECE_BYTES, ARENA = SW_ARENA_PIECES * PIECE };

static struct spillway *connection;
static struct spillway_error error;
static unsigned fds_before; /* and those of memory that a test keeps */

static void before_each(void) {
    fds_before = sw_count_fds();
    connection = sw_served_connect(&sw_served_daemon);
}

static void after_each(void) {
    sw_served_close(connection);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
}

/* ---- memory and operations --------------------------------------------------------------------------------------- */

static uint8_t *heap(size_t bytes) {
    uint8_t *data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(data);
    return data;
}

/* A block of the content again and again, each with its number in front: much of it is had cheaply. */
static void fill(uint8_t *data, size_t bytes, enum sw_content content, uint64_t seed) {
    enum { BLOCK = 1 << 18 };
    sw_content_fill(data, bytes < BLOCK ? bytes : BLOCK, content, seed);
    for (size_t at = BLOCK; at < bytes; at += BLOCK) {
        memcpy(data + at, data, bytes - at < BLOCK ? bytes - at : BLOCK);
        memcpy(data + at, &at, bytes - at < sizeof at ? bytes - at : sizeof at);
    }
}

static uint8_t *filled(size_t bytes, enum sw_content content, uint64_t seed) {
    uint8_t *data = heap(bytes);
    fill(data, bytes, content, seed);
    return data;
}

static uint8_t *shared(size_t bytes) {
    const int fd = memfd_create("e2e", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    fds_before++; /* stays open, and the memory, until the test's process ends */
    return data;
}

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static struct spillway_ticket *spill(const uint8_t *data, size_t bytes) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(data, bytes)), 1, &ticket, &error));
    return ticket;
}

static struct spillway_ticket *restore(struct spillway_region region, uint8_t *data, size_t bytes, unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(connection, SW_REQUEST(SW_ONE(data, bytes), .region = region, .flags = flags), 1, &ticket,
                        &error));
    return ticket;
}

static int finish(struct spillway_ticket *ticket, struct spillway_result *ret) {
    const int rc = spillway_wait(ticket, WAIT_MS, ret, ret != NULL, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static struct spillway_region spilled(const uint8_t *data, size_t bytes) {
    struct spillway_result result = {.size = sizeof result};
    ok(finish(spill(data, bytes), &result));
    ck_assert_uint_eq(result.raw_bytes, bytes);
    ck_assert(result.stored_bytes > 0 || !bytes);
    ck_assert_str_eq(result.tier, "host");
    ck_assert_str_ne(result.codec, "");
    return result.region;
}

static void restored(struct spillway_region region, uint8_t *data, size_t bytes, unsigned flags) {
    struct spillway_result result = {.size = sizeof result};
    ok(finish(restore(region, data, bytes, flags), &result));
    ck_assert_uint_eq(result.region.slot, region.slot);
    ck_assert_uint_eq(result.region.generation, region.generation);
}

static void ck_failed(int rc, int code, enum spillway_scope scope) {
    ck_assert_msg(rc == -code, "%d (%s: %s), not %d", rc, error.name, error.text, -code);
    ck_assert_int_eq(error.scope, scope);
    ck_assert_str_ne(error.text, "");
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static const size_t sizes[] = {0, 1, 4095, 100003, PIECE, PIECE + 1, ARENA + 1};

START_TEST(every_size_comes_back) {
    const size_t bytes = sizes[_i], at = 3; /* nothing is aligned, and there is something on either side */
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, bytes), *data = heap(bytes + 100);
    memcpy(data + at, expected, bytes);
    const struct spillway_region region = spilled(data + at, bytes);
    ck_assert(memcmp(data + at, expected, bytes) == 0);
    memset(data, 0xA5, bytes + 100);
    restored(region, data + at, bytes + 50, 0);
    ck_assert(memcmp(data + at, expected, bytes) == 0);
    for (size_t i = 0; i < 100; i++)
        ck_assert_uint_eq(data[i < at ? i : bytes + i], 0xA5);
    ck_failed(spillway_drop(connection, &region, 1, &error), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    sw_served_ck_empty(connection, 1); /* the arena */
    free(expected);
    free(data);
}
END_TEST

/* Regions go from every kind of memory into every other. Memory that can be handed over needs no arena. */
START_TEST(into_other_memory) {
    const size_t bytes = PIECE + 100001;
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 1), *data = heap(bytes), *memfd = shared(bytes + 7);
    struct spillway_region region = spilled(expected, bytes);
    restored(region, memfd + 7, bytes, SPILLWAY_KEEP);
    ck_assert(memcmp(memfd + 7, expected, bytes) == 0);
    ck_assert_uint_eq(sw_served_status(connection).mapped_memories, 1); /* the memfd is the client's alone again */
    memset(memfd, 0, bytes);
    ok(spillway_register(connection, memfd, bytes + 7, &error));
    restored(region, memfd + 3, bytes, SPILLWAY_KEEP);
    ck_assert(memcmp(memfd + 3, expected, bytes) == 0);
    memset(memfd, 0, bytes);
    struct spillway_ticket *ticket = restore(region, memfd + 1, bytes, 0);
    ok(spillway_unregister(connection, memfd, &error)); /* waits for all of it */
    ok(spillway_wait(ticket, 0, NULL, 0, &error));
    spillway_ticket_free(ticket);
    ck_assert(memcmp(memfd + 1, expected, bytes) == 0);
    region = spilled(memfd + 1, bytes); /* one region of the daemon's */
    restored(region, data, bytes, SPILLWAY_KEEP);
    ck_assert(memcmp(data, expected, bytes) == 0);
    memset(data, 0, bytes);
    restored(region, data, bytes, 0);
    ck_assert(memcmp(data, expected, bytes) == 0);
    sw_served_ck_empty(connection, 1);
    free(expected);
    free(data);
}
END_TEST

static bool is_all(const uint8_t *data, size_t bytes, uint8_t value) {
    return !bytes || (data[0] == value && memcmp(data, data + 1, bytes - 1) == 0);
}

/* A region that the daemon stores as one chunk goes through an arena of its own if it is longer than the connection's
 * arena, which is freed afterwards. */
START_TEST(a_region_longer_than_the_arena) {
    static const size_t lengths[] = {ARENA - 1, (size_t)ARENA + 1, 2 * (size_t)ARENA + 12345};
    const size_t bytes = lengths[_i], room = 2 * (size_t)ARENA + 20000;
    const struct spillway_region none = {.slot = 9999, .generation = 1};
    uint8_t *memfd = shared(bytes), *data = heap(room);
    fill(memfd, bytes, SW_CONTENT_TEXT, 2);
    const struct spillway_region region = spilled(memfd, bytes);
    ck_failed(finish(restore(region, data, 1000, 0), NULL), SPILLWAY_ETOOSMALL, SPILLWAY_SCOPE_REQUEST);
    ck_failed(finish(restore(region, data, bytes - 1, 0), NULL), SPILLWAY_ETOOSMALL, SPILLWAY_SCOPE_REQUEST);
    ck_failed(finish(restore(none, data, room, 0), NULL), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST);
    for (int keep = 1; keep >= 0; keep--) {
        memset(data, 0xA5, room);
        restored(region, data, room, keep ? SPILLWAY_KEEP : 0);
        ck_assert(memcmp(data, memfd, bytes) == 0);
        ck_assert_msg(is_all(data + bytes, room - bytes, 0xA5), "written to behind the region");
        ck_assert_uint_le(sw_served_status(connection).mapped_memories, 1); /* the connection's arena */
    }
    ck_failed(finish(restore(region, data, room, 0), NULL), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    ck_assert_uint_eq(sw_served_status(connection).regions, 0);
    free(data);
}
END_TEST

/* The same by the event loop's way, others meanwhile, and twice at once: each has an arena of its own. */
START_TEST(long_regions_side_by_side) {
    enum { N = 3 };
    const size_t bytes = (size_t)ARENA + 100001, small_bytes = 70000;
    uint8_t *memfd = shared(bytes), *data[N], *small = filled(small_bytes, SW_CONTENT_TEXT, 3);
    struct spillway_ticket *tickets[N];
    struct spillway_region regions[N];
    fill(memfd, bytes, SW_CONTENT_TEXT, 4);
    for (unsigned i = 0; i < N; i++) {
        data[i] = heap(bytes);
        regions[i] = i ? spilled(memfd, bytes) : spilled(small, small_bytes);
        memset(data[i], 0, bytes);
    }
    for (unsigned i = 0; i < N; i++)
        tickets[i] = restore(regions[i], data[i], bytes, 0);
    for (int n_done = 0; n_done < N;) {
        struct pollfd p = {.fd = spillway_fd(connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
        const int n = spillway_dispatch(connection, &error);
        ck_assert_int_ge(n, 0);
        n_done += n;
    }
    for (unsigned i = 0; i < N; i++) {
        ok(finish(tickets[i], NULL));
        ck_assert(memcmp(data[i], i ? memfd : small, i ? bytes : small_bytes) == 0);
        free(data[i]);
    }
    sw_served_ck_empty(connection, 1);
    free(small);
}
END_TEST

/* The connection is closed, or the memory freed, while such a region is being copied. */
START_TEST(a_long_region_is_given_up) {
    const size_t bytes = (size_t)ARENA + 1000;
    uint8_t *memfd = shared(bytes);
    uint8_t *gone = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(gone, MAP_FAILED);
    fill(memfd, bytes, SW_CONTENT_TEXT, 2);
    const struct spillway_region region = spilled(memfd, bytes);
    struct spillway_ticket *ticket = restore(region, gone, bytes, SPILLWAY_KEEP);
    ck_assert_int_eq(munmap(gone + PIECE, PIECE), 0);
    ck_failed(finish(ticket, NULL), SPILLWAY_EIO, SPILLWAY_SCOPE_REQUEST);
    ck_assert_uint_le(sw_served_status(connection).mapped_memories, 1);
    uint8_t *data = heap(bytes);
    restored(region, data, bytes, SPILLWAY_KEEP);
    ck_assert(memcmp(data, memfd, bytes) == 0);
    ticket = restore(region, data, bytes, 0);
    (void)spillway_wait(ticket, 20 * _i, NULL, 0, &error);
    spillway_close(connection);
    free(data);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    connection = sw_served_connect(&sw_served_daemon);
}
END_TEST

/* Made without MFD_ALLOW_SEALING, as libraries of others may make it. */
START_TEST(a_memfd_that_cannot_be_sealed_is_copied) {
    const size_t bytes = 100003;
    const int fd = memfd_create("e2e", MFD_CLOEXEC);
    fds_before++;
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    uint8_t *data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 8), *memfd = shared(bytes);
    memcpy(data, expected, bytes);
    struct spillway_region region = spilled(data, bytes);
    memset(data, 0, bytes);
    restored(region, data, bytes, 0); /* in pieces */
    ck_assert(memcmp(data, expected, bytes) == 0);
    memcpy(memfd, expected, bytes);
    region = spilled(memfd, bytes);
    memset(data, 0, bytes);
    restored(region, data, bytes, 0); /* as one */
    ck_assert(memcmp(data, expected, bytes) == 0);
    ck_failed(spillway_register(connection, data, bytes, &error), SPILLWAY_EUNSEALED, SPILLWAY_SCOPE_REQUEST);
    free(expected);
}
END_TEST

/* A range that goes from a memfd into the memory behind it: another memfd, or any memory. */
START_TEST(a_range_across_mappings_is_copied) {
    const size_t page = 4096, bytes = 40 * page, begin = 5 * page + 3;
    uint8_t *space = mmap(NULL, 2 * bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    uint8_t *expected = filled(2 * bytes, SW_CONTENT_TEXT, 9);
    ck_assert_ptr_ne(space, MAP_FAILED);
    ck_assert_ptr_eq(mremap(shared(bytes), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, space), space);
    if (_i)
        ck_assert_ptr_eq(mremap(shared(bytes), bytes, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, space + bytes),
                         space + bytes);
    memcpy(space, expected, 2 * bytes);
    const struct spillway_region region = spilled(space + begin, bytes);
    memset(space, 0, 2 * bytes);
    restored(region, space + begin, bytes, 0);
    ck_assert(memcmp(space + begin, expected + begin, bytes) == 0);
    ck_assert(is_all(space, begin, 0) && is_all(space + begin + bytes, bytes - begin, 0));
    ck_failed(spillway_register(connection, space + begin, bytes, &error), SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST);
    free(expected);
}
END_TEST

/* Two of several pieces each, and many small ones: the pieces of the arena go round. */
START_TEST(many_at_once) {
    enum { N = 24 };
    const size_t small = 300001, large = PIECE + 17;
    struct spillway_ticket *tickets[N];
    struct spillway_result results[N];
    uint8_t *data[N];
    for (unsigned i = 0; i < N; i++) {
        data[i] = filled(i % 12 ? small : large, SW_CONTENT_TEXT, i);
        ok(spillway_spill(connection, SW_REQUEST(SW_ONE(data[i], i % 12 ? small : large), .user = &tickets[i]), 1,
                          &tickets[i], &error));
    }
    for (int n_done = 0, n_told = 0; n_done < N;) { /* by the event loop's way alone */
        struct pollfd p = {.fd = spillway_fd(connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, WAIT_MS), 1);
        const int n = spillway_dispatch(connection, &error);
        ck_assert_int_ge(n, 0);
        n_done += n;
        for (struct spillway_ticket *t; (t = spillway_next_done(connection)); n_told++)
            ck_assert_ptr_eq(*(struct spillway_ticket **)spillway_ticket_user(t), t);
        ck_assert_int_eq(n_told, n_done);
    }
    for (unsigned i = 0; i < N; i++) {
        const size_t bytes = i % 12 ? small : large;
        results[i].size = sizeof results[i];
        ok(spillway_wait(tickets[i], 0, &results[i], 1, &error));
        spillway_ticket_free(tickets[i]);
        memset(data[i], 0, bytes);
        tickets[i] = restore(results[i].region, data[i], bytes, 0);
    }
    for (unsigned i = N; i-- > 0;) {
        const size_t bytes = i % 12 ? small : large;
        uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, i);
        ok(finish(tickets[i], NULL));
        ck_assert(memcmp(data[i], expected, bytes) == 0);
        free(expected);
        free(data[i]);
    }
    sw_served_ck_empty(connection, 1);
}
END_TEST

/* An operation that found no block continues when a later one frees its blocks, although the service sends nothing
 * more. */
START_TEST(free_arena_blocks_are_used_at_once) {
    const size_t small_bytes = 1 << 20, bytes = ARENA - 5;
    uint8_t *memfd = shared(bytes), *small = filled(small_bytes, SW_CONTENT_TEXT, 2), *data = heap(bytes);
    struct spillway_region region;
    struct spillway_result result = {.size = sizeof result};
    fill(memfd, bytes, SW_CONTENT_TEXT, 1);
    region = spilled(memfd, bytes);
    restored(region, data, bytes, SPILLWAY_KEEP); /* the arena is there now */
    struct spillway_ticket *first = spill(small, small_bytes), *second = restore(region, data, bytes, SPILLWAY_KEEP);
    ok(spillway_wait(first, -1, &result, 1, &error)); /* without end, which the test's time limit has */
    spillway_ticket_free(first);
    ok(finish(second, NULL));
    ck_assert_int_eq(memcmp(data, memfd, bytes), 0);
    ok(spillway_drop(connection, &region, 1, &error));
    restored(result.region, data, small_bytes, 0);
    ck_assert_int_eq(memcmp(data, small, small_bytes), 0);
    free(small);
    free(data);
}
END_TEST

START_TEST(keep_query_drop) {
    const size_t bytes = 2 * (size_t)PIECE + 300000; /* more pieces than calls below that copy one */
    struct spillway_region_info info = {.size = sizeof info};
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 4), *data = heap(bytes);
    ok(finish(spill(expected, bytes), &result));
    const struct spillway_region region = result.region;
    for (int i = 0; i < 2; i++) {
        memset(data, 0, bytes);
        restored(region, data, bytes, SPILLWAY_KEEP);
        ck_assert(memcmp(data, expected, bytes) == 0);
    }
    ok(spillway_query(connection, region, &info, &error));
    ck_assert_uint_eq(info.raw_bytes, bytes);
    ck_assert_uint_eq(info.stored_bytes, result.stored_bytes);
    ck_assert_str_eq(info.state, "out");
    ck_assert_str_eq(info.tier, "host");
    ck_assert_str_eq(info.codec, result.codec);
    ck_failed(finish(restore(region, data, bytes - 1, 0), NULL), SPILLWAY_ETOOSMALL, SPILLWAY_SCOPE_REQUEST);
    ticket = restore(region, data, bytes, SPILLWAY_KEEP);
    ck_failed(finish(restore(region, data, bytes, 0), NULL), SPILLWAY_EBUSY, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_drop(connection, &region, 1, &error), SPILLWAY_EBUSY, SPILLWAY_SCOPE_REQUEST);
    ok(finish(ticket, NULL));
    ck_assert_uint_eq(sw_served_status(connection).regions, 1);
    ok(spillway_drop(connection, &region, 1, &error));
    sw_served_ck_empty(connection, 1);
    ck_failed(spillway_drop(connection, &region, 1, &error), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_query(connection, region, &info, &error), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    ck_failed(finish(restore(region, data, bytes, 0), NULL), SPILLWAY_ESTALE, SPILLWAY_SCOPE_REQUEST);
    const struct spillway_region next = spilled(expected, 1), none = {next.slot + 1, 1};
    ck_failed(finish(restore(none, data, bytes, 0), NULL), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST);
    free(expected);
    free(data);
}
END_TEST

/* Such a memfd cannot be handed over. If the machine has no such page to spare, the region has no bytes. */
START_TEST(a_memfd_of_huge_pages_is_copied) {
    const size_t page = 2 << 20;
    const int fd = memfd_create("e2e", MFD_HUGETLB | MFD_HUGE_2MB | MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) /* the kernel has none of that size */
        return;
    fds_before++;
    ck_assert_int_eq(ftruncate(fd, (off_t)page), 0);
    uint8_t *data = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    const size_t bytes = data == MAP_FAILED ? 0 : page;
    if (!bytes)
        data = mmap(NULL, page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 8);
    memcpy(data, expected, bytes);
    const struct spillway_region region = spilled(data, bytes);
    memset(data, 0, bytes);
    restored(region, data, bytes, 0);
    ck_assert(memcmp(data, expected, bytes) == 0);
    ck_failed(spillway_register(connection, data, page, &error), SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST);
    free(expected);
}
END_TEST

/* A pack or unpack has nothing to copy, and registered memory is not copied. */
START_TEST(copied_memory_is_refused_in_place_and_for_registration) {
    struct spillway_ticket *ticket = NULL;
    uint8_t *data = filled(5000, SW_CONTENT_TEXT, 5);
    const struct spillway_region region = spilled(data, 5000);
    ck_failed(
        spillway_spill(connection, SW_REQUEST(SW_ONE(data, 5000), .flags = SPILLWAY_IN_PLACE), 1, &ticket, &error),
        SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_restore(connection, SW_REQUEST(SW_ONE(data, 5000), .region = region, .flags = SPILLWAY_IN_PLACE),
                               1, &ticket, &error),
              SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST);
    ck_failed(spillway_register(connection, data, 5000, &error), SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST);
    uint8_t *pages = mmap(NULL, 3 << 12, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert(pages != MAP_FAILED && munmap(pages + (2 << 12), 1 << 12) == 0);
    ck_failed(spillway_spill(connection, SW_REQUEST(SW_ONE(pages, (2 << 12) + 1)), 1, &ticket, &error), SPILLWAY_ERANGE,
              SPILLWAY_SCOPE_REQUEST);
    ck_assert_int_eq(mprotect(pages, 1 << 12, PROT_READ), 0);
    ck_failed(spillway_restore(connection, SW_REQUEST(SW_ONE(pages, 5000), .region = region), 1, &ticket, &error),
              SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST);
    ck_assert_int_eq(munmap(pages, 2 << 12), 0);
    ck_failed(spillway_spill(connection, SW_REQUEST(SW_ONE(pages, 1)), 1, &ticket, &error), SPILLWAY_EMEMKIND,
              SPILLWAY_SCOPE_REQUEST);
    restored(region, data, 5000, 0);
    free(data);
}
END_TEST

/* The memory goes while it is restored to: an error, and another try is possible. */
START_TEST(a_failed_restore_can_be_tried_again) {
    const size_t bytes = 2 * (size_t)PIECE;
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 7), *data = heap(bytes);
    uint8_t *gone = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(gone, MAP_FAILED);
    const struct spillway_region region = spilled(expected, bytes);
    struct spillway_ticket *ticket = restore(region, gone, bytes, 0);
    ck_assert_int_eq(munmap(gone + PIECE, PIECE), 0);
    ck_failed(finish(ticket, NULL), SPILLWAY_EIO, SPILLWAY_SCOPE_REQUEST);
    restored(region, data, bytes, 0);
    ck_assert(memcmp(data, expected, bytes) == 0);
    sw_served_ck_empty(connection, 1);
    free(expected);
    free(data);
}
END_TEST

START_TEST(a_freed_ticket_leaves_no_region) {
    const size_t bytes = PIECE + 1000;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 8);
    struct spillway_ticket *running = spill(data, bytes), *done = spill(data, bytes / 30);
    (void)spillway_wait(running, 1, NULL, 0, &error);
    spillway_ticket_free(running);
    ok(spillway_wait(done, WAIT_MS, NULL, 0, &error)); /* its id is not asked for */
    spillway_ticket_free(done);
    sw_served_ck_empty(connection, 1);
    const struct spillway_region region = spilled(data, bytes);
    spillway_ticket_free(restore(region, data, bytes, 0)); /* goes on, and uses the region up */
    sw_served_ck_empty(connection, 1);
    free(data);
}
END_TEST

/* Each allocation fails in turn, of a spill, of a restore through the arena and of one past it. */
START_TEST(a_heap_that_fails_costs_one_call) {
    enum { MOST = 24 };
    const size_t bytes = 5000;
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 12), *memfd = shared(bytes), *data = heap(bytes);
    struct spillway_region region = spilled(expected, bytes);
    struct spillway_result result = {.size = sizeof result};
    unsigned n_failed = 0;
    const long live = sw_alloc_live();
    for (unsigned long n = 0; n < 3UL * MOST; n++) {
        uint8_t *to = n < 2UL * MOST ? data : memfd;
        struct spillway_ticket *ticket = NULL;
        sw_alloc_fail_nth(n % MOST + 1);
        int rc = n < MOST ? spillway_spill(connection, SW_REQUEST(SW_ONE(expected, bytes)), 1, &ticket, &error)
                          : spillway_restore(connection,
                                             SW_REQUEST(SW_ONE(to, bytes), .region = region, .flags = SPILLWAY_KEEP), 1,
                                             &ticket, &error);
        rc = rc ? rc : finish(ticket, &result);
        sw_alloc_fail_nth(0);
        ck_assert_msg(rc == 0 || rc == -SPILLWAY_ENOMEM, "%s: %s", error.name, error.text);
        n_failed += rc < 0;
        ck_assert(rc < 0 || n < MOST || memcmp(to, expected, bytes) == 0);
        if (n < MOST && !rc)
            ok(spillway_drop(connection, &result.region, 1, &error));
        for (int tries = 0; tries < 1000 && sw_alloc_live() != live; tries++) /* a reply that no call waits for */
            (void)sw_served_status(connection);
        ck_assert_uint_eq(sw_served_status(connection).mapped_memories, 1);
        ck_assert_msg(sw_alloc_live() == live, "allocation %lu of %lu: %ld live, not %ld", n % MOST + 1, n / MOST,
                      sw_alloc_live(), live);
    }
    ck_assert_uint_ge(n_failed, 12);
    ok(spillway_drop(connection, &region, 1, &error));
    sw_served_ck_empty(connection, 1);
    free(expected);
    free(data);
}
END_TEST

/* Only the call itself moves a restore on that no other call waits for. */
START_TEST(a_retried_drop_succeeds) {
    const size_t bytes = (size_t)PIECE + 1000;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 11);
    const struct spillway_region region = spilled(data, bytes);
    spillway_ticket_free(restore(region, data, bytes, SPILLWAY_KEEP));
    int rc = -SPILLWAY_EBUSY;
    for (int i = 0; rc == -SPILLWAY_EBUSY && i < WAIT_MS; i++) {
        rc = spillway_drop(connection, &region, 1, &error);
        (void)usleep(1000);
    }
    ok(rc);
    sw_served_ck_empty(connection, 1);
    free(data);
}
END_TEST

START_TEST(closed_during_operations) {
    const size_t bytes = PIECE + 1000;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 9), *memfd = shared(bytes);
    const struct spillway_region region = spilled(data, bytes);
    struct spillway_ticket *first = spill(data, bytes);
    (void)spill(data, bytes);
    (void)restore(region, memfd, bytes, 0);
    (void)restore(spilled(data, 10), data, bytes, 0);
    (void)spillway_wait(first, 3 * _i, NULL, 0, &error);
    spillway_close(connection); /* the memfd is the daemon's for a while yet */
    free(data);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    connection = sw_served_connect(&sw_served_daemon);
}
END_TEST

/* ---- daemons of their own ---------------------------------------------------------------------------------------- */

/* One operation at a time is all that the daemon allows. */
START_TEST(no_more_in_flight_than_allowed) {
    static const char *const options[] = {"max_session_operations=1", NULL};
    const size_t bytes = PIECE + 1000;
    struct sw_test_daemon own;
    struct spillway_ticket *none = NULL;
    uint8_t *expected = filled(bytes, SW_CONTENT_TEXT, 10), *data = heap(bytes), *memfd = shared(bytes);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&own);
    struct spillway_ticket *ticket = spill(expected, bytes);
    struct spillway_result result = {.size = sizeof result};
    ck_failed(spillway_spill(connection, SW_REQUEST(SW_ONE(expected, 1)), 1, &none, &error), SPILLWAY_ELIMIT,
              SPILLWAY_SCOPE_REQUEST);
    ok(finish(ticket, &result));
    restored(result.region, data, bytes, SPILLWAY_KEEP);
    ck_assert(memcmp(data, expected, bytes) == 0);
    restored(result.region, memfd, bytes, SPILLWAY_KEEP);
    ck_assert(memcmp(memfd, expected, bytes) == 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGTERM), 0);
    sw_test_daemon_clean(&own);
    free(expected);
    free(data);
}
END_TEST

/* 20 MiB of tier, 32 MiB that do not compress: one block has been stored when the other fails. */
START_TEST(a_full_tier_fails_one_spill) {
    static const char *const options[] = {"host_tier_bytes=20 MiB", "host_tier_initial_bytes=20 MiB", NULL};
    const size_t bytes = 2 * (size_t)PIECE;
    struct sw_test_daemon own;
    uint8_t *data = filled(bytes, SW_CONTENT_RANDOM, 6), *expected = filled(bytes, SW_CONTENT_RANDOM, 6);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&own);
    ck_failed(finish(spill(data, bytes), NULL), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST);
    ck_assert(memcmp(data, expected, bytes) == 0);
    sw_served_ck_empty(connection, 1);
    const struct spillway_region region = spilled(data, PIECE + 1000);
    memset(data, 0, bytes);
    restored(region, data, bytes, 0);
    ck_assert(memcmp(data, expected, PIECE + 1000) == 0);
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGTERM), 0);
    sw_test_daemon_clean(&own);
    free(data);
    free(expected);
}
END_TEST

/* Killed after so many milliseconds of a spill, or of a restore. */
START_TEST(killed_during_operations) {
    const size_t bytes = PIECE + 1000000;
    struct sw_test_daemon own;
    struct spillway_ticket *none = NULL;
    uint8_t *data = filled(bytes, SW_CONTENT_TEXT, 11), *expected = filled(bytes, SW_CONTENT_TEXT, 11);
    uint8_t *back = _i % 3 ? heap(bytes) : shared(bytes);
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, NULL);
    connection = sw_served_connect(&own);
    struct spillway_ticket *ticket = _i % 2 ? restore(spilled(data, bytes), back, bytes, 0) : spill(data, bytes);
    int rc = spillway_wait(ticket, 2 * _i, NULL, 0, &error);
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGKILL), -SIGKILL);
    if (rc == -SPILLWAY_EAGAIN && (rc = finish(ticket, NULL)) < 0)
        ck_failed(rc, SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION);
    ck_assert(rc == 0 || rc == -SPILLWAY_ECONN);
    while (spillway_dispatch(connection, NULL) >= 0) /* it may have ended before, without being polled */
        (void)usleep(1000);
    ck_assert(memcmp(data, expected, bytes) == 0);
    ck_failed(spillway_spill(connection, SW_REQUEST(SW_ONE(data, 1)), 1, &none, &error), SPILLWAY_ECONN,
              SPILLWAY_SCOPE_SESSION);
    spillway_close(connection);
    sw_test_daemon_clean(&own);
    free(data);
    free(expected);
    if (_i % 3)
        free(back);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("staging");
    TCase *served = tcase_create("served"), *left = tcase_create("left");
    sw_test_slow(served, 60);
    sw_test_slow(left, 60);
    tcase_add_unchecked_fixture(served, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(served, before_each, after_each);
    tcase_add_loop_test(served, every_size_comes_back, 0, (int)(sizeof sizes / sizeof sizes[0]));
    tcase_add_test(served, into_other_memory);
    tcase_add_loop_test(served, a_region_longer_than_the_arena, 0, 3);
    tcase_add_test(served, long_regions_side_by_side);
    tcase_add_loop_test(served, a_long_region_is_given_up, 0, 3);
    tcase_add_test(served, a_memfd_that_cannot_be_sealed_is_copied);
    tcase_add_loop_test(served, a_range_across_mappings_is_copied, 0, 2);
    tcase_add_test(served, many_at_once);
    tcase_add_test(served, free_arena_blocks_are_used_at_once);
    tcase_add_test(served, keep_query_drop);
    tcase_add_test(served, a_retried_drop_succeeds);
    tcase_add_test(served, a_memfd_of_huge_pages_is_copied);
    tcase_add_test(served, copied_memory_is_refused_in_place_and_for_registration);
    tcase_add_test(served, a_failed_restore_can_be_tried_again);
    tcase_add_test(served, a_freed_ticket_leaves_no_region);
    tcase_add_test(served, a_heap_that_fails_costs_one_call);
    tcase_add_loop_test(served, closed_during_operations, 0, 2);
    tcase_add_test(left, no_more_in_flight_than_allowed);
    tcase_add_test(left, a_full_tier_fails_one_spill);
    tcase_add_loop_test(left, killed_during_operations, 0, 4);
    suite_add_tcase(suite, served);
    suite_add_tcase(suite, left);
    return sw_test_run(suite, CK_FORK);
}
