/* The service with a kind of tier more, by a row of its table: opened, counted, shown, and known to the control socket.
 */
#include "daemon/control/metrics.h"
#include "daemon/tiers/names.h"
#include "daemon/tiers/row.h"
#include "daemon/tiers/tiers.h"
#include "tests/lib/folder_tier/folder_tier.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct sw_test_service service;
static struct sw_test_control control;
static struct sw_nvme_folder folder;

static void setup(void) {
    folder = sw_nvme_folder_new();
    (void)snprintf(sw_folder_tier_directory, sizeof sw_folder_tier_directory, "%s", folder.path);
    sw_test_service_start(&service);
    sw_test_control_start(&control, &service);
}

static void teardown(void) {
    sw_nvme_folder_free(&folder);
}

static void ck_answer(const char *method, const char *params, const char *part) {
    char line[256];
    (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\",\"params\":%s}", method, params);
    char *answer = sw_test_control_line(&control, line, strlen(line));
    ck_assert_msg(answer && strstr(answer, part), "%s", answer);
    free(answer);
}

START_TEST(the_tier_is_opened_and_counted) {
    ck_assert_uint_eq(service.service.tiers.n, 2);
    ck_assert_ptr_eq(service.service.tiers.at[1]->kind, &sw_folder_tier_kind);
    const uint64_t with = sw_tiers_bytes(&service.config);
    sw_folder_tier_directory[0] = 0;
    ck_assert_uint_eq(with, sw_tiers_bytes(&service.config) + SW_FOLDER_TIER_BYTES);
}
END_TEST

/* All tiers are checked, and good only if each is. Loop: which ones are. The bad frame of the disk is none. */
START_TEST(a_check_is_of_all_tiers) {
    const bool is_disk_good = _i & 1, is_folder_good = _i & 2;
    struct sw_nvme_folder disk = sw_nvme_folder_new();
    struct sw_tier_nvme_config config = sw_nvme_config_of(1 << 20, SW_TIER_NVME_THREADS);
    struct sw_err err = {0};
    struct sw_stored stored;
    char *text = NULL;
    size_t n = 0;
    bool is_good = false;
    FILE *out = open_memstream(&text, &n);
    config.directory = disk.path;
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert(is_disk_good || sw_nvme_put(tier, 5000, 1, &stored, &err) == 0);
    tier->ops->close(tier);
    (void)snprintf(service.config.nvme_tier_directory, sizeof service.config.nvme_tier_directory, "%s", disk.path);
    sw_folder_tier_is_good = is_folder_good;
    ck_assert_msg(sw_tiers_check(&service.config, out, &is_good, &err) == 0, "%s", err.msg);
    (void)fclose(out);
    ck_assert_int_eq(is_good, is_disk_good && is_folder_good);
    ck_assert_ptr_nonnull(strstr(text, "folder tier"));
    ck_assert_ptr_nonnull(strstr(text, is_disk_good ? "nothing is damaged" : "result      damaged"));
    free(text);
    sw_nvme_folder_free(&disk);
}
END_TEST

/* At most half of the first tier is room for frames on their way to this one. */
START_TEST(frames_on_their_way_leave_half_of_the_first_tier) {
    service.config.host_tier_bytes = UINT64_C(1) << 40;
    const uint64_t wanted = sw_tiers_staging_bytes(&service.service);
    ck_assert(wanted > 0 && wanted < service.config.host_tier_bytes / 2);
    service.service.n_gpus = 3;
    ck_assert_uint_eq(sw_tiers_staging_bytes(&service.service), 3 * wanted);
    service.service.n_gpus = 0;
    for (uint64_t most = wanted / 2; most <= 2 * wanted; most += wanted / 2) {
        service.config.host_tier_bytes = 2 * most;
        ck_assert_uint_eq(sw_tiers_staging_bytes(&service.service), most < wanted ? most : wanted);
    }
    service.service.tiers.n = 1;
    ck_assert_uint_eq(sw_tiers_staging_bytes(&service.service), 0);
    service.service.tiers.n = 2;
}
END_TEST

START_TEST(the_tier_is_shown) {
    ck_assert_str_eq(sw_tier_names, "host, nvme, remote, folder, device");
    ck_answer("tiers", "{}", "{\"tier\":\"folder\",\"capacity_bytes\":67108864,");
    ck_answer("status", "{}", "\"nvme_capacity_bytes\":67108864,"); /* all that is behind the first */
    ck_answer("regions", "{\"tier\":\"folder\"}", "\"result\"");
    ck_answer("regions", "{\"tier\":\"shelf\"}", "one of host, nvme, remote, folder, device");
    char *text = sw_metrics_text(&service.service, control.context.events);
    ck_assert_ptr_nonnull(strstr(text, "spillway_tier_capacity_bytes{tier=\"folder\"} 67108864\n"));
    ck_assert_ptr_nonnull(strstr(text, "spillway_tier_capacity_bytes{tier=\"nvme\"} 0\n"));
    ck_assert_ptr_nonnull(strstr(text, "spillway_operations_total{kind=\"spill\",tier=\"folder\",codec=\"raw\"} 0\n"));
    free(text);
}
END_TEST

/* ---- care for objects: the tier of the test's has some ---- */

static struct sw_tier_care_state state;
static int care_code;

static int care(struct sw_tier *tier, enum sw_tier_care what, bool changes, struct sw_err *err) {
    (void)tier;
    if (care_code)
        return sw_err_set(err, care_code, SW_SCOPE_REQUEST, "the last one still runs");
    state = (struct sw_tier_care_state){.what = what,
                                        .has_begun = true,
                                        .is_running = true,
                                        .changes = changes,
                                        .objects = 11,
                                        .found = 12,
                                        .found_bytes = 13,
                                        .changed = 14};
    return 0;
}

static void care_state(struct sw_tier *tier, struct sw_tier_care_state *ret) {
    (void)tier;
    *ret = state;
}

#define FIGURES "\"objects\":11,\"found\":12,\"found_bytes\":13,\"changed\":14"

/* Nothing is changed unless it was asked for, and each kind tells of itself. */
START_TEST(care_for_objects_does_what_was_asked) {
    static const char *const methods[] = {"remote.gc", "remote.rewrap"}, *const changing[] = {"remove", "replace"};
    const char *method = methods[_i], *other = methods[!_i];
    const enum sw_tier_care what = _i ? SW_TIER_CARE_REWRAP : SW_TIER_CARE_GC;
    char params[64];
    ck_answer(method, "{}", "ENOTSUP");
    struct sw_tier *tier = service.service.tiers.at[1];
    struct sw_tier_ops ops = *tier->ops;
    ops.care = care;
    ops.care_state = care_state;
    const struct sw_tier_ops *before = tier->ops;
    tier->ops = &ops;
    ck_answer(method, "{}", "\"result\":{\"state\":\"never\"}");
    ck_answer(method, "{\"mode\":\"find\"}", "{\"state\":\"running\",\"changes\":false," FIGURES "}");
    ck_assert(state.what == what && !state.changes);
    (void)snprintf(params, sizeof params, "{\"mode\":\"%s\"}", changing[_i]);
    ck_answer(method, params, "{\"state\":\"running\",\"changes\":true," FIGURES "}");
    ck_assert(state.what == what && state.changes);
    ck_answer(other, "{}", "\"result\":{\"state\":\"never\"}");
    care_code = -SW_EBUSY;
    ck_answer(method, params, "EBUSY");
    state.is_running = false;
    ck_answer(method, "{}", "{\"state\":\"done\",\"changes\":true," FIGURES "}");
    (void)sw_err_set(&state.err, -SW_EIO, SW_SCOPE_REQUEST, "it ended early");
    ck_answer(method, "{}", "{\"state\":\"failed\",\"changes\":true," FIGURES ",\"error\":\"it ended early\"}");
    tier->ops = before;
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_folder_tier");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_tier_is_opened_and_counted);
    tcase_add_test(tests, frames_on_their_way_leave_half_of_the_first_tier);
    tcase_add_test(tests, the_tier_is_shown);
    tcase_add_loop_test(tests, care_for_objects_does_what_was_asked, 0, 2);
    tcase_add_loop_test(tests, a_check_is_of_all_tiers, 0, 4);
    Suite *suite = suite_create("daemon_folder_tier");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
