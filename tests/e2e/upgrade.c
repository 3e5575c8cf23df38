/* Versions of the catalogue: a service that is new to an earlier one's takes it over, wherever it is killed while it
 * does; one that is too old for it leaves all as it is. */
#include "ipc/spillway.h"
#include "tests/lib/catalogue_v1.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/wire.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PLACE_BYTES = 1 << 20, REGION_BYTES = 900001, N_REGIONS = 14, MOST_MESSAGES = 100 };

/* The catalogue's name at the service manager. */
#define NAME "catalogue-3"

/* Some in host memory, some on the disk, one packed. */
static struct world {
    struct sw_supervisor supervisor;
    char option[SW_TEST_PATH_BYTES + 32];
    const char *options[8];
    struct spillway *connection;
    struct spillway_region regions[N_REGIONS], packed;
    uint8_t *memory, *packed_memory, *expected;
} w;

static uint8_t *new_memory(void) {
    const int fd = sw_wire_memfd(NULL, PLACE_BYTES, 0);
    uint8_t *memory = mmap(NULL, PLACE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory; /* the descriptor stays open: the library hands it over */
}

static void fill(uint8_t *to, unsigned i) {
    sw_content_fill(to, REGION_BYTES, i % 3 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, i + 1);
}

static struct spillway_region wait_for(struct spillway_ticket *ticket) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    MUST(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error) == 0, &error);
    spillway_ticket_free(ticket);
    return result.region;
}

static void setup(void) {
    const char *const options[] = {w.option,
                                   "log_level=warning",
                                   "nvme_tier_bytes=64 MiB",
                                   "host_tier_bytes=8 MiB",
                                   "host_tier_initial_bytes=8 MiB",
                                   "host_tier_slab_bytes=2 MiB",
                                   NULL};
    char folder[SW_TEST_PATH_BYTES];
    struct spillway_ticket *ticket;
    struct spillway_error error;
    sw_test_folder_here(folder);
    (void)snprintf(w.option, sizeof w.option, "nvme_tier_directory=%s/nvme", folder);
    memcpy(w.options, options, sizeof options);
    w.memory = new_memory();
    w.packed_memory = new_memory();
    w.expected = malloc(PLACE_BYTES);
    sw_supervisor_start(&w.supervisor, SW_SPILLWAYD_PATH, w.options);
    MUST(spillway_open(&w.connection, SW_OPTIONS(.socket_path = w.supervisor.daemon.socket), &error) == 0, &error);
    for (unsigned i = 0; i < N_REGIONS; i++) {
        fill(w.memory, i);
        MUST(spillway_spill(w.connection, SW_REQUEST(SW_ONE(w.memory, REGION_BYTES)), 1, &ticket, &error) == 0, &error);
        w.regions[i] = wait_for(ticket);
    }
    fill(w.packed_memory, 0);
    MUST(spillway_spill(w.connection, SW_REQUEST(SW_ONE(w.packed_memory, REGION_BYTES), .flags = SPILLWAY_IN_PLACE), 1,
                        &ticket, &error) == 0,
         &error);
    w.packed = wait_for(ticket);
}

static void teardown(void) {
    spillway_close(w.connection);
    ck_assert_int_eq(sw_supervisor_stop(&w.supervisor, SIGTERM), 0);
    sw_supervisor_end(&w.supervisor);
    free(w.expected);
}

static void check_all(void) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    for (unsigned i = 0; i < N_REGIONS; i++) {
        memset(w.memory, 0, REGION_BYTES);
        MUST(
            spillway_restore(w.connection,
                             SW_REQUEST(SW_ONE(w.memory, REGION_BYTES), .region = w.regions[i], .flags = SPILLWAY_KEEP),
                             1, &ticket, &error) == 0,
            &error);
        (void)wait_for(ticket);
        fill(w.expected, i);
        ck_assert_msg(memcmp(w.memory, w.expected, REGION_BYTES) == 0, "region %u has other bytes", i);
    }
}

static void check_packed(void) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    MUST(spillway_restore(
             w.connection,
             SW_REQUEST(SW_ONE(w.packed_memory, REGION_BYTES), .region = w.packed, .flags = SPILLWAY_IN_PLACE), 1,
             &ticket, &error) == 0,
         &error);
    (void)wait_for(ticket);
    fill(w.expected, 0);
    ck_assert(memcmp(w.packed_memory, w.expected, REGION_BYTES) == 0);
}

static bool is_stored(const char *name) {
    const int fd = sw_supervisor_take(&w.supervisor, name);
    if (fd >= 0)
        sw_supervisor_store(&w.supervisor, name, fd);
    return fd >= 0;
}

static void set_version(int fd, uint32_t version) {
    ck_assert_int_eq(pwrite(fd, &version, sizeof version, 8), sizeof version);
}

/* The names of earlier versions. */
static const char *const old_names[] = {"catalogue", "catalogue-2"};

/* The manager then keeps the state that an earlier version would have left. Version 2 records everything but batches as
 * this one does. */
static void downgrade(int version) {
    const char *name = old_names[version - 1];
    const int new = sw_supervisor_take(&w.supervisor, NAME);
    ck_assert_int_ge(new, 0);
    ck_assert(!is_stored(name));
    if (version == 2)
        set_version(new, 2);
    sw_supervisor_store(&w.supervisor, name, version == 1 ? sw_catalogue_v1_of(new) : new);
    if (version == 1)
        (void)close(new);
}

/* It is killed at each message to the service manager, before or after the message was carried out: only messages
 * change the kept state. */
START_TEST(killed_at_each_step_of_an_upgrade) {
    const int version = 1 + _i / 2;
    bool was_killed = true;
    for (unsigned nth = 1; was_killed; nth++) {
        ck_assert_uint_lt(nth, MOST_MESSAGES);
        ck_assert_int_eq(sw_supervisor_stop(&w.supervisor, nth % 2 ? SIGKILL : SIGTERM), nth % 2 ? -SIGKILL : 0);
        downgrade(version);
        sw_supervisor_kill_at(&w.supervisor, nth, _i % 2);
        was_killed = !sw_supervisor_spawn(&w.supervisor);
        ck_assert(was_killed || nth > 4);
        ck_assert(is_stored(old_names[version - 1]) || is_stored(NAME));
        if (!was_killed) /* ready: the next message may have been the one */
            (void)sw_supervisor_stop(&w.supervisor, SIGKILL);
        sw_supervisor_kill_at(&w.supervisor, 0, false);
        ck_assert(sw_supervisor_spawn(&w.supervisor));
        check_all();
        ck_assert(is_stored(NAME) && !is_stored(old_names[version - 1]));
    }
    check_packed();
}
END_TEST

/* A later version has run. It has named its catalogue as versions since 2 do, or as version 1 does. */
START_TEST(a_downgrade_is_refused_and_loses_nothing) {
    const char *later_name = _i ? "catalogue" : "catalogue-4";
    ck_assert_int_eq(sw_supervisor_stop(&w.supervisor, SIGTERM), 0);
    const int fd = sw_supervisor_take(&w.supervisor, NAME);
    ck_assert_int_ge(fd, 0);
    set_version(fd, 4);
    sw_supervisor_store(&w.supervisor, later_name, fd);
    const unsigned n_stored = sw_supervisor_n_stored(&w.supervisor);
    for (unsigned i = 1; i <= 2; i++) { /* and again */
        ck_assert(!sw_supervisor_spawn(&w.supervisor));
        ck_assert_uint_eq(sw_test_daemon_logged(&w.supervisor.daemon, "event=catalogue.newer"), i);
        ck_assert_uint_eq(sw_test_daemon_logged(&w.supervisor.daemon, "event=start.failed"), i);
        ck_assert_uint_eq(sw_test_daemon_logged(&w.supervisor.daemon, "a later version has stored regions"), i);
        ck_assert_uint_eq(sw_supervisor_n_stored(&w.supervisor), n_stored);
    }
    const int again = sw_supervisor_take(&w.supervisor, later_name);
    set_version(again, 3); /* that version starts again */
    sw_supervisor_store(&w.supervisor, NAME, again);
    ck_assert(sw_supervisor_spawn(&w.supervisor));
    check_all();
    check_packed();
}
END_TEST

/* The manager keeps no more descriptors, but does not lose any. */
START_TEST(without_room_for_a_copy_the_old_catalogue_is_kept) {
    ck_assert_int_eq(sw_supervisor_stop(&w.supervisor, SIGTERM), 0);
    downgrade(1 + _i);
    const unsigned n_stored = sw_supervisor_n_stored(&w.supervisor);
    w.supervisor.handover.store_limit = n_stored;
    ck_assert(!sw_supervisor_spawn(&w.supervisor));
    ck_assert_uint_eq(sw_test_daemon_logged(&w.supervisor.daemon, "FileDescriptorStoreMax="), 1);
    ck_assert_uint_eq(sw_supervisor_n_stored(&w.supervisor), n_stored);
    w.supervisor.handover.store_limit = 0;
    ck_assert(sw_supervisor_spawn(&w.supervisor));
    check_all();
    check_packed();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("upgrade");
    TCase *tcase = tcase_create("upgrade");
    sw_test_slow(tcase, 120);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, killed_at_each_step_of_an_upgrade, 0, 4);
    tcase_add_loop_test(tcase, a_downgrade_is_refused_and_loses_nothing, 0, 2);
    tcase_add_loop_test(tcase, without_room_for_a_copy_the_old_catalogue_is_kept, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
