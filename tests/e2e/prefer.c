/* A real spillwayd: which codec text gets, by where it goes and by what its request, its tenant or the operator
 * prefers.
 */
#include "ipc/spillway.h"
#include "tests/lib/control.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BYTES ((size_t)48 << 20)

static struct sw_test_daemon daemon_process;
static struct sw_nvme_folder folder;
static struct spillway *connection;
static struct sw_ctl *ctl;
static struct spillway_error error;
static uint8_t *data, *expected;

static void start(const char *host_tier) {
    char directory[128];
    folder = sw_nvme_folder_new();
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", folder.path);
    const char *options[] = {host_tier, "host_tier_initial_bytes=0", "host_tier_slab_bytes=2 MiB",
                             directory, "nvme_tier_bytes=128 MiB",   "host_tier_high_pct=100",
                             NULL};
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, options);
    connection = sw_served_connect(&daemon_process);
    ctl = sw_control_connect(&daemon_process);
    data = sw_served_memory(BYTES);
    expected = sw_served_memory(BYTES);
    sw_tpch_text_fill(expected, 0, BYTES, 1);
}

static void setup_roomy(void) {
    start("host_tier_bytes=256 MiB");
}

/* The text finds no room raw, and hardly any encoded. */
static void setup_tight(void) {
    start("host_tier_bytes=8 MiB");
}

static void teardown(void) {
    sw_ctl_close(ctl);
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
    sw_nvme_folder_free(&folder);
}

static void wait_for(struct spillway_ticket *ticket, struct spillway_result *ret) {
    *ret = (struct spillway_result){.size = sizeof *ret};
    const int rc = spillway_wait(ticket, -1, ret, 1, &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    spillway_ticket_free(ticket);
}

/* Spills the text and brings it back. Returns the outcome of the spill; checks that operators see its codec. */
static struct spillway_result round_trip(uint8_t prefer) {
    struct spillway_buffer buffer = {.data = data, .bytes = BYTES};
    struct spillway_request request = {.size = sizeof request, .buffers = &buffer, .n_buffers = 1, .prefer = prefer};
    struct spillway_ticket *ticket;
    struct spillway_result spilled, restored;
    memcpy(data, expected, BYTES);
    ck_assert_msg(spillway_spill(connection, &request, 1, &ticket, &error) == 0, "%s", error.text);
    wait_for(ticket, &spilled);
    json_t *regions = sw_control_ask(ctl, "regions", NULL);
    ck_assert_str_eq(
        json_string_value(json_object_get(json_array_get(json_object_get(regions, "regions"), 0), "codec")),
        spilled.codec);
    json_decref(regions);
    memset(data, 0, BYTES);
    request.region = spilled.region;
    ck_assert_msg(spillway_restore(connection, &request, 1, &ticket, &error) == 0, "%s", error.text);
    wait_for(ticket, &restored);
    ck_assert_int_eq(memcmp(data, expected, BYTES), 0);
    return spilled;
}

static void set(const char *option, const char *value) {
    char params[160];
    (void)snprintf(params, sizeof params, "{\"name\": \"%s\", \"value\": %s}", option, value);
    json_decref(sw_control_ask(ctl, "config.set", params));
}

START_TEST(text_is_denser_if_room_is_preferred) {
    char row[80];
    const struct spillway_result usual = round_trip(SPILLWAY_PREFER_NONE), dense = round_trip(SPILLWAY_PREFER_ROOM);
    ck_assert_str_eq(usual.codec, "v5t");
    ck_assert_str_eq(usual.tier, "host");
    ck_assert_str_eq(dense.codec, "onpair");
    ck_assert_str_eq(dense.tier, "host");
    ck_assert_uint_lt(10 * dense.stored_bytes, 8 * usual.stored_bytes);
    set("tenant_prefer", "\"room\"");
    ck_assert_str_eq(round_trip(SPILLWAY_PREFER_NONE).codec, "onpair");
    ck_assert_str_eq(round_trip(SPILLWAY_PREFER_TIME).codec, "v5t");
    (void)snprintf(row, sizeof row, "[{\"uid\": %u, \"prefer\": \"time\"}]", (unsigned)geteuid());
    set("quotas", row);
    ck_assert_str_eq(round_trip(SPILLWAY_PREFER_NONE).codec, "v5t");
    ck_assert_str_eq(round_trip(SPILLWAY_PREFER_ROOM).codec, "onpair");
    json_t *tenants = sw_control_ask(ctl, "tenants", NULL);
    const json_t *tenant = json_array_get(json_object_get(tenants, "tenants"), 0);
    ck_assert_str_eq(json_string_value(json_object_get(tenant, "prefer")), "time");
    json_decref(tenants);
}
END_TEST

START_TEST(text_for_the_disk_is_denser) {
    const struct spillway_result unasked = round_trip(SPILLWAY_PREFER_NONE), fast = round_trip(SPILLWAY_PREFER_TIME);
    ck_assert_str_eq(unasked.tier, "nvme");
    ck_assert_str_eq(unasked.codec, "onpair");
    ck_assert_str_eq(fast.tier, "nvme");
    ck_assert_str_eq(fast.codec, "v5t");
    ck_assert_uint_lt(10 * unasked.stored_bytes, 8 * fast.stored_bytes);
}
END_TEST

START_TEST(an_unknown_preference_is_refused) {
    struct spillway_buffer buffer = {.data = data, .bytes = 1};
    const struct spillway_request request = {.size = sizeof request, .buffers = &buffer, .n_buffers = 1, .prefer = 3};
    struct spillway_ticket *ticket;
    ck_assert_int_eq(spillway_spill(connection, &request, 1, &ticket, &error), -SPILLWAY_EINVAL);
    ck_assert_str_eq(error.text, "preference 3 is unknown");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("prefer");
    TCase *tcase = tcase_create("roomy");
    sw_test_slow(tcase, 120);
    tcase_add_checked_fixture(tcase, setup_roomy, teardown);
    tcase_add_test(tcase, text_is_denser_if_room_is_preferred);
    tcase_add_test(tcase, an_unknown_preference_is_refused);
    suite_add_tcase(suite, tcase);
    tcase = tcase_create("tight");
    sw_test_slow(tcase, 120);
    tcase_add_checked_fixture(tcase, setup_tight, teardown);
    tcase_add_test(tcase, text_for_the_disk_is_denser);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
