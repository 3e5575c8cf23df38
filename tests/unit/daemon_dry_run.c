/* Snapshots from a file: their content is understood, or refused by name; and the result of a dry run. */
#include "base/alloc.h"
#include "daemon/dry_run.h"
#include "daemon/snapshot.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[SW_TEST_PATH_BYTES], output[8192];

static void write_file(const char *text) {
    const int fd = sw_test_file(path);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    ck_assert_int_eq(close(fd), 0);
}

static int load(struct sw_snapshot *ret, const char *text, struct sw_err *err) {
    write_file(text);
    const int rc = sw_snapshot_load(ret, path, 4000, err);
    ck_assert_int_eq(unlink(path), 0);
    return rc;
}

static int dry_run(const struct sw_config *config, const char *text, struct sw_err *err) {
    FILE *out = fmemopen(output, sizeof output, "w");
    ck_assert_ptr_nonnull(out);
    write_file(text);
    const int rc = sw_dry_run(config, path, out, err);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(fclose(out), 0);
    return rc;
}

#define HOST "\"host_tier\": {\"used_bytes\": 1}"
#define REGION "\"region\": \"1:1\", \"stored_bytes\": 1, \"used_us\": 1, \"tier\": \"host\""
#define WITH(more) "{" HOST ", \"regions\": [{" REGION more "}]}"
#define WITHOUT(rest) "{" HOST ", \"regions\": [{" rest "}]}"

static const struct {
    const char *text, *says;
} mistakes[] = {
    {"", ":1: "},
    {"{", ":1: "},
    {"{}\n{}", ":2: "},
    {"[]", ": must be one JSON object"},
    {"{}", ": host_tier: is missing"},
    {"{" HOST "}", ": regions: is missing"},
    {"{" HOST ", \"regions\": {}}", ": regions: must be an array"},
    {"{" HOST ", \"regions\": [1]}", ": regions[0]: must be an object"},
    {"{" HOST ", \"regions\": [], \"more\": 1}", ": more: unknown key"},
    {"{" HOST ", " HOST ", \"regions\": []}", "duplicate"},
    {"{\"host_tier\": 5, \"regions\": []}", ": host_tier: must be an object"},
    {"{\"host_tier\": {}, \"regions\": []}", ": host_tier.used_bytes: is missing"},
    {"{\"host_tier\": {\"used_bytes\": -1}, \"regions\": []}", ": host_tier.used_bytes: -1 is not a whole number from"},
    {"{\"host_tier\": {\"used_bytes\": 1.5}, \"regions\": []}", ": host_tier.used_bytes: 1.5 is not a whole number"},
    {"{\"host_tier\": {\"used_bytes\": 1, \"staging_bytes\": 4001}, \"regions\": []}",
     ": host_tier.staging_bytes: exceeds the capacity"},
    {WITH(", \"age\": 3"), ": regions[0].age: unknown key"},
    {WITH(", \"priority\": 256"), ": regions[0].priority: 256 is not a whole number from 0 to 255"},
    {WITH(", \"priority\": \"1\""), ": regions[0].priority: \"1\" is not a whole number from 0 to 255"},
    {WITH(", \"pinned\": 1"), ": regions[0].pinned: 1 is not true or false"},
    {WITH("}, {"), ": regions[1].region: is missing"},
    {WITHOUT("\"region\": \"1 1\""), ": regions[0].region: \"1 1\" is not a string of 1 to 31 printable characters"},
    {WITHOUT("\"region\": \"\""), ": regions[0].region: \"\" is not a string"},
    {WITHOUT("\"region\": \"\\u001b[2J\""), ": regions[0].region: \"\\u001B[2J\" is not a string"},
    {WITHOUT("\"region\": \"12345678901234567890123456789012\""), " is not a string of 1 to 31 printable"},
    {WITHOUT("\"region\": 11"), ": regions[0].region: 11 is not a string"},
    {WITHOUT("\"tier\": \"disk\""), ": regions[0].tier: \"disk\" is not one of host, nvme, remote, device"},
    {WITHOUT("\"region\": \"1\", \"tier\": \"host\", \"used_us\": 1"), ": regions[0].stored_bytes: is missing"},
};

START_TEST(test_mistakes_are_named) {
    struct sw_snapshot snapshot;
    struct sw_err err;
    const long live = sw_alloc_live();
    ck_assert_int_eq(load(&snapshot, mistakes[_i].text, &err), -SW_ECONFIG);
    ck_assert_msg(strstr(err.msg, mistakes[_i].says) != NULL, "'%s' does not say '%s'", err.msg, mistakes[_i].says);
    ck_assert_ptr_null(snapshot.regions);
    ck_assert_uint_eq(snapshot.n_regions, 0);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

START_TEST(test_files_that_cannot_be_read) {
    struct sw_snapshot snapshot;
    struct sw_err err;
    ck_assert_int_eq(sw_snapshot_load(&snapshot, "/nonexistent/snapshot", 1, &err), -SW_EIO);
    ck_assert_str_eq(err.msg, "/nonexistent/snapshot: No such file or directory");
    ck_assert_int_eq(sw_snapshot_load(&snapshot, "/", 1, &err), -SW_EIO);
}
END_TEST

START_TEST(test_missing_fields_have_defaults) {
    struct sw_snapshot snapshot;
    struct sw_err err;
    ck_assert_int_eq(load(&snapshot, WITH(""), &err), 0);
    ck_assert_uint_eq(snapshot.n_regions, 1);
    ck_assert_uint_eq(snapshot.first.used_bytes, 1);
    ck_assert_uint_eq(snapshot.first.capacity_bytes, 4000);
    ck_assert_uint_eq(snapshot.first.staging_bytes, 0);
    ck_assert_str_eq(snapshot.regions[0].region, "1:1");
    ck_assert_str_eq(snapshot.regions[0].tier, "host");
    ck_assert(!snapshot.regions[0].pinned && snapshot.regions[0].priority == 0);
    sw_snapshot_fini(&snapshot);
    ck_assert_int_eq(load(&snapshot, WITH(", \"pinned\": true, \"priority\": 255"), &err), 0);
    ck_assert(snapshot.regions[0].pinned && snapshot.regions[0].priority == 255);
    sw_snapshot_fini(&snapshot);
}
END_TEST

/* Of 1000 bytes 100 are for the way: moving begins above 720, ends at 450. */
static const char full[] =
    "{\"host_tier\": {\"used_bytes\": 730, \"capacity_bytes\": 1000, \"staging_bytes\": 100}, \"regions\": ["
    "{\"region\": \"important\", \"stored_bytes\": 100, \"used_us\": 1, \"tier\": \"host\", \"priority\": 9},"
    "{\"region\": \"pinned\", \"stored_bytes\": 200, \"used_us\": 1, \"tier\": \"host\", \"pinned\": true},"
    "{\"region\": \"new\", \"stored_bytes\": 150, \"used_us\": 40, \"tier\": \"host\", \"priority\": 1},"
    "{\"region\": \"old\", \"stored_bytes\": 150, \"used_us\": 30, \"tier\": \"host\", \"priority\": 1},"
    "{\"region\": \"last\", \"stored_bytes\": 130, \"used_us\": 99, \"tier\": \"host\"},"
    "{\"region\": \"away\", \"stored_bytes\": 100, \"used_us\": 2, \"tier\": \"nvme\"},"
    "{\"region\": \"packed\", \"stored_bytes\": 100, \"used_us\": 2, \"tier\": \"device\"}]}";

static struct sw_config configured(const char *tier) {
    struct sw_config config;
    sw_config_init(&config);
    (void)strcpy(config.nvme_tier_directory, tier);
    config.host_tier_high_pct = 80;
    config.host_tier_low_pct = 50;
    return config;
}

/* True if the output has a line that begins with `order` and `region` and ends with `why`. */
static bool has_line(const char *order, const char *region, const char *why) {
    char copy[sizeof output], *rest = NULL;
    (void)strcpy(copy, output);
    for (char *line = strtok_r(copy, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        char first[64], second[64];
        const size_t length = strlen(line), tail = strlen(why);
        if (sscanf(line, "%63s %63s", first, second) == 2 && strcmp(first, order) == 0 && strcmp(second, region) == 0)
            return length >= tail && strcmp(line + length - tail, why) == 0;
    }
    return false;
}

START_TEST(test_moved_regions_are_listed_with_the_reason) {
    const struct sw_config config = configured("/somewhere");
    struct sw_err err;
    ck_assert_int_eq(dry_run(&config, full, &err), 0);
    ck_assert_ptr_nonnull(strstr(output, "now: 730 of 900 bytes of the host tier in use (81.1 %)\n"
                                         "moving begins above 80 % and ends at 50 %\n"));
    ck_assert(has_line("1", "last", "  lower priority than the regions that stay"));
    ck_assert(has_line("2", "old", "  least recently used"));
    ck_assert(has_line("stays", "new", "  the low watermark is reached earlier"));
    ck_assert(has_line("stays", "important", "  the low watermark is reached earlier"));
    ck_assert(has_line("stays", "pinned", "  pinned"));
    ck_assert(has_line("stays", "away", "  is in the NVMe tier"));
    ck_assert(has_line("stays", "packed", "  is packed in its client's memory"));
    ck_assert_ptr_nonnull(strstr(output, "moved to the NVMe tier: 2 of 7 regions, 280 bytes\n"
                                         "then: 450 of 900 bytes of the host tier in use (50.0 %)\n"));
}
END_TEST

START_TEST(test_no_region_is_moved_below_the_watermark) {
    struct sw_config config = configured("none");
    struct sw_err err;
    ck_assert_int_eq(dry_run(&config, full, &err), 0);
    ck_assert_ptr_nonnull(strstr(output, "nvme_tier_directory is none: nothing is moved\n"));
    ck_assert(has_line("stays", "last", "  there is no NVMe tier"));
    ck_assert_ptr_nonnull(strstr(output, "now: 730 of 1000 bytes ")); /* no frame is on its way to another tier */
    ck_assert_int_eq(dry_run(&config,
                             "{" HOST ", \"regions\": [{\"region\": \"far\", \"stored_bytes\": 1, \"used_us\": 1, "
                             "\"tier\": \"remote\"}]}",
                             &err),
                     0);
    ck_assert(has_line("stays", "far", "  is in the remote tier"));
    config = configured("/somewhere");
    config.host_tier_high_pct = 82;
    ck_assert_int_eq(dry_run(&config, full, &err), 0);
    ck_assert(has_line("stays", "last", "  the high watermark is not exceeded"));
    ck_assert_ptr_nonnull(strstr(output, "moved to the NVMe tier: 0 of 7 regions, 0 bytes\n"));
    ck_assert_int_eq(dry_run(&config, "{" HOST ", \"regions\": []}", &err), 0);
    ck_assert_ptr_nonnull(strstr(output, "now: 1 of 8589934592 bytes of the host tier in use (0.0 %)\n"));
    ck_assert_ptr_nonnull(strstr(output, "moved to the NVMe tier: 0 of 0 regions, 0 bytes\n"));
}
END_TEST

START_TEST(test_all_regions_moved_are_not_enough) {
    struct sw_config config = configured("/somewhere");
    struct sw_err err;
    config.host_tier_low_pct = 0;
    ck_assert_int_eq(dry_run(&config, full, &err), 0);
    ck_assert(has_line("4", "important", "  every region that may be moved is moved"));
    ck_assert(has_line("stays", "pinned", "  pinned"));
    ck_assert_ptr_nonnull(strstr(output, "200 bytes too many: no other region may be moved\n"));
}
END_TEST

START_TEST(test_allocations_that_fail) {
    const struct sw_config config = configured("/somewhere");
    struct sw_err err;
    const long live = sw_alloc_live();
    unsigned long nth = 1;
    for (int rc = -1; rc < 0; nth++) {
        sw_alloc_fail_nth(nth);
        rc = dry_run(&config, full, &err);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || (rc == -SW_ENOMEM && !output[0]));
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    ck_assert_uint_eq(nth, 5);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("dry_run");
    TCase *tcase = tcase_create("dry_run");
    tcase_add_loop_test(tcase, test_mistakes_are_named, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(tcase, test_files_that_cannot_be_read);
    tcase_add_test(tcase, test_missing_fields_have_defaults);
    tcase_add_test(tcase, test_moved_regions_are_listed_with_the_reason);
    tcase_add_test(tcase, test_no_region_is_moved_below_the_watermark);
    tcase_add_test(tcase, test_all_regions_moved_are_not_enough);
    tcase_add_test(tcase, test_allocations_that_fail);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
