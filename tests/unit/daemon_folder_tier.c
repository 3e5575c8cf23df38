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

/* At most half of the first tier is room for frames on their way to this one. */
START_TEST(frames_on_their_way_leave_half_of_the_first_tier) {
    service.config.host_tier_bytes = UINT64_C(1) << 40;
    const uint64_t wanted = sw_tiers_staging_bytes(&service.service);
    ck_assert(wanted > 0 && wanted < service.config.host_tier_bytes / 2);
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

int main(void) {
    TCase *tests = tcase_create("daemon_folder_tier");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_tier_is_opened_and_counted);
    tcase_add_test(tests, frames_on_their_way_leave_half_of_the_first_tier);
    tcase_add_test(tests, the_tier_is_shown);
    Suite *suite = suite_create("daemon_folder_tier");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
