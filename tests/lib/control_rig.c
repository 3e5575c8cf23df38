#include "tests/lib/control_rig.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

struct sw_control_rig sw_rig;

void sw_rig_start(const char *const *options) {
    sw_test_daemon_start(&sw_rig.served, sw_rig.spillwayd, options);
    sw_rig.ctl = sw_control_connect(&sw_rig.served);
}

void sw_rig_setup(void) {
    const int fd = memfd_create("control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, SW_RIG_BYTES) == 0);
    sw_rig.data = mmap(NULL, SW_RIG_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(sw_rig.data, MAP_FAILED);
    sw_content_fill(sw_rig.data, SW_RIG_BYTES, SW_CONTENT_MIXED, 1);
    sw_rig_start(NULL);
    sw_rig.client = sw_served_connect(&sw_rig.served);
}

void sw_rig_stop(void) {
    sw_ctl_close(sw_rig.ctl);
    spillway_close(sw_rig.client);
    sw_rig.ctl = NULL;
    sw_rig.client = NULL;
    if (sw_rig.served.pid)
        ck_assert_int_eq(sw_test_daemon_stop(&sw_rig.served, SIGTERM), 0);
}

void sw_rig_start_anew(const char *const *options) {
    sw_rig_stop();
    sw_test_daemon_clean(&sw_rig.served);
    sw_rig_start(options);
}

void sw_rig_teardown(void) {
    sw_rig_stop();
    ck_assert_msg(access(sw_rig.served.control, F_OK) != 0, "the socket file is left");
    sw_test_daemon_clean(&sw_rig.served);
}

int sw_rig_try_spill(size_t bytes, struct spillway_region *ret) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    int rc = spillway_spill(sw_rig.client, SW_REQUEST(SW_ONE(sw_rig.data, bytes)), 1, &ticket, &sw_rig.error);
    if (rc == 0)
        rc = spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &sw_rig.error);
    spillway_ticket_free(ticket);
    if (rc == 0)
        *ret = result.region;
    return rc;
}

struct spillway_region sw_rig_spill(size_t bytes) {
    struct spillway_region region = {0};
    const int rc = sw_rig_try_spill(bytes, &region);
    ck_assert_msg(rc == 0, "%s: %s", sw_rig.error.name, sw_rig.error.text);
    return region;
}

int sw_rig_restore(struct spillway_region region) {
    struct spillway_ticket *ticket = NULL;
    int rc = spillway_restore(sw_rig.client, SW_REQUEST(SW_ONE(sw_rig.data, SW_RIG_BYTES), .region = region), 1,
                              &ticket, &sw_rig.error);
    if (rc == 0)
        rc = spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_rig.error);
    spillway_ticket_free(ticket);
    return rc;
}

const char *sw_rig_text(const json_t *object, const char *name) {
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "(none)";
}

long long sw_rig_number(const json_t *object, const char *name) {
    ck_assert_msg(json_is_integer(json_object_get(object, name)), "no number %s", name);
    return json_integer_value(json_object_get(object, name));
}
