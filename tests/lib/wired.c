#include "tests/lib/wired.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

struct sw_test_daemon sw_wired_daemon;
struct sw_wire sw_wired;
static struct sw_sound before;

void sw_wired_start(void) {
    static const char *const options[] = {"max_session_operations=8", "max_session_memories=8", NULL};
    sw_test_daemon_start(&sw_wired_daemon, SW_SPILLWAYD_PATH, options);
    /* The first round trip makes lasting allocations: worker threads' memory, arena slabs. */
    if (sw_sound_round_trip(&sw_wired_daemon, SW_WIRED_BYTES, 7))
        abort();
}

void sw_wired_stop(void) {
    if (sw_test_daemon_stop(&sw_wired_daemon, SIGTERM) != 0)
        abort();
    sw_test_daemon_clean(&sw_wired_daemon);
}

void sw_wired_before_each(void) {
    sw_sound_take(&sw_wired_daemon, &before);
    sw_wire_open(&sw_wired, sw_wired_daemon.socket);
}

void sw_wired_after_each(void) {
    sw_wire_close(&sw_wired);
    const char *wrong = sw_sound_check(&sw_wired_daemon, &before);
    ck_assert_msg(wrong == NULL, "%s", wrong);
}

struct sw_region_id sw_wired_spill(uint64_t seed) {
    struct sw_region_id id = {0};
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, seed, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1000, fd, SW_WIRED_BYTES, true), 0);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1000, 0, SW_WIRED_BYTES, &id), 0);
    (void)close(fd);
    return id;
}

void sw_wired_ck_restores(struct sw_region_id id, uint64_t seed) {
    const int fd = sw_wire_memfd(NULL, SW_WIRED_BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1001, fd, SW_WIRED_BYTES, true), 0);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 1001, 0, SW_WIRED_BYTES), 0);
    ck_assert(sw_wire_memfd_holds(fd, SW_WIRED_BYTES, SW_CONTENT_TEXT, seed));
    (void)close(fd);
}
