/* What the service logs of the folder of its NVMe tier, and what a check of it prints. The folder is played. */
#include "daemon/tiers/row.h"
#include "spill/journal/catalogue.h"
#include "spill/tier/nvme/nvme_check.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/kept_log.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the folder -------------------------------------------------------------------------------------------------- */

static struct sw_tier_nvme_info played;
static struct sw_tier_nvme_config asked;
static int open_code;
static bool is_adopted; /* regions of a predecessor wait */

static void close_tier(struct sw_tier *tier) {
    (void)tier;
}

static const struct sw_tier_ops ops = {.close = close_tier};
static struct sw_tier the_tier = {.ops = &ops};

int __wrap_sw_tier_nvme_open(struct sw_tier **ret, const struct sw_tier_nvme_config *config, struct sw_err *error);
int __wrap_sw_tier_nvme_open(struct sw_tier **ret, const struct sw_tier_nvme_config *config, struct sw_err *error) {
    asked = *config;
    if (open_code) {
        (void)sw_err_set(error, open_code, SW_SCOPE_DAEMON, "it is broken");
        return sw_err_detail(error, "a reason"), open_code;
    }
    *ret = &the_tier;
    return 0;
}

void __wrap_sw_tier_nvme_info(struct sw_tier *tier, struct sw_tier_nvme_info *ret);
void __wrap_sw_tier_nvme_info(struct sw_tier *tier, struct sw_tier_nvme_info *ret) {
    ck_assert_ptr_eq(tier, &the_tier);
    *ret = played;
}

bool __wrap_sw_catalogue_is_adopted(const struct sw_catalogue *catalogue);
bool __wrap_sw_catalogue_is_adopted(const struct sw_catalogue *catalogue) {
    (void)catalogue;
    return is_adopted;
}

static struct sw_nvme_check found;

int __wrap_sw_nvme_check(struct sw_nvme_check *ret, const char *directory, uint64_t file_bytes,
                         void (*bad)(const struct sw_checked_frame *frame, void *arg), void *arg, struct sw_err *error);
int __wrap_sw_nvme_check(struct sw_nvme_check *ret, const char *directory, uint64_t file_bytes,
                         void (*bad)(const struct sw_checked_frame *frame, void *arg), void *arg,
                         struct sw_err *error) {
    struct sw_checked_frame frame = {.slot = 7, .gen = 3, .chunk = 5, .file = "data-1", .offset = 4096, .bytes = 300};
    ck_assert_str_eq(directory, "/x/disk");
    ck_assert_uint_eq(file_bytes, 16 << 20);
    if (open_code)
        return sw_err_set(error, open_code, SW_SCOPE_DAEMON, "it is broken");
    *ret = found;
    (void)sw_err_set(&frame.err, -SW_ECHECKSUM, SW_SCOPE_REGION, "its hash is wrong");
    for (int i = 0; i < 2; i++) {
        frame.doubtful = i;
        bad(&frame, arg);
    }
    return 0;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

static struct sw_config config;
static struct sw_service service;
static struct sw_err err;
static struct sw_tier *tier;
static void *own;

static void setup(void) {
    sw_kept_log_begin();
    sw_config_init(&config);
    (void)snprintf(config.nvme_tier_directory, sizeof config.nvme_tier_directory, "/x/disk");
    config.nvme_tier_bytes = 16 << 20;
    service.config = &config;
}

static void teardown(void) {
    sw_kept_log_end();
}

static const struct sw_tier_row *nvme_row(void) {
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        if (sw_tier_rows[i]->option && strcmp(sw_tier_rows[i]->option, "nvme_tier_directory") == 0)
            return sw_tier_rows[i];
    return NULL;
}

static int open_disk(void) {
    sw_kept_log_forget();
    tier = own = NULL;
    return nvme_row()->open(&service, &tier, &own, &err);
}

static void close_disk(void) {
    if (own)
        nvme_row()->closed(own);
}

/* ---- what is logged ---------------------------------------------------------------------------------------------- */

/* What a folder says of itself when it is opened, and the line that tells it. */
static const struct {
    struct sw_tier_nvme_info info;
    const char *says;
} folders[] = {
    {{.reserved = true, .is_rewrapped = true}, "event=nvme.key_rewrapped "},
    {{.reserved = true, .damage = {3, 777, "a hash is wrong", 5, 6}},
     "event=tier.damaged tier=nvme file=manifest offset=777 text=\"a hash is wrong\" places=3 doubtful_frames=5 "
     "dropped_frames=6 "},
    {{.reserved = true, .damaged_names = 4}, "event=tier.damaged tier=nvme file=names places=4 "},
    {{.reserved = true, .emptied = {.code = -SW_EVERSION, .msg = "it is old"}},
     "event=tier.emptied tier=nvme name=EVERSION text=\"it is old\" "},
    {{.reserved = false}, "event=tier.not_reserved tier=nvme bytes=16777216 "},
    {{.reserved = true, .method = SW_TIER_NVME_URING}, "bytes=16777216 method=io_uring direct=no encrypted=no"},
    {{.reserved = true, .method = SW_TIER_NVME_THREADS, .direct = true}, "method=threads direct=yes encrypted=no"},
    {{.reserved = true, .method = SW_TIER_NVME_THREADS, .is_encrypted = true},
     "method=threads direct=no encrypted=yes"},
};
enum { FOLDERS = sizeof folders / sizeof folders[0] };

START_TEST(what_a_folder_says_is_logged) {
    static const char *const events[] = {"nvme.key_rewrapped", "tier.damaged", "tier.emptied", "tier.not_reserved"};
    const char *says = folders[_i].says;
    played = folders[_i].info;
    ck_assert_msg(open_disk() == 0 && tier == &the_tier, "%s", err.msg);
    ck_assert_msg(sw_kept_log_has(says), "%s", sw_kept_log);
    for (size_t i = 0; i < sizeof events / sizeof events[0]; i++)
        ck_assert_msg(!sw_kept_log_has(events[i]) || strstr(says, events[i]), "%s", sw_kept_log);
    ck_assert(sw_kept_log_has("event=tier.ready tier=nvme directory=\"/x/disk\" bytes=16777216 "));
    close_disk();
}
END_TEST

/* A disk that cannot be read must not cost the regions in memory, if there are some. Every other error ends the start.
 */
START_TEST(a_disk_that_cannot_be_read) {
    static const int codes[] = {-SW_EIO, -SW_EACCES, -SW_ENOSPACE, -SW_EBUSY};
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        for (int adopted = 0; adopted < 2; adopted++) {
            const bool goes_on = codes[i] == -SW_EIO && adopted;
            open_code = codes[i];
            is_adopted = adopted;
            ck_assert_int_eq(open_disk(), goes_on ? 0 : codes[i]);
            ck_assert_ptr_null(tier);
            ck_assert_int_eq(sw_kept_log_has("event=tier.unreadable tier=nvme name=EIO "), goes_on);
            ck_assert_int_eq(sw_kept_log_has("it is broken\" detail=\"a reason\" "), goes_on);
            ck_assert_ptr_nonnull(strstr(err.msg, "nvme_tier_directory /x/disk: it is broken"));
            ck_assert_int_eq(asked.unwanted, !adopted);
            ck_assert(asked.key == NULL && !asked.keep_plain && asked.capacity_bytes == 16 << 20);
            close_disk();
        }
}
END_TEST

/* ---- --check-tier ------------------------------------------------------------------------------------------------ */

/* All that was found is printed; of very many damaged places the first ones, and how many there are. */
START_TEST(a_check_prints_what_it_finds) {
    static char said[8192];
    char line[100];
    bool is_good = true;
    found = (struct sw_nvme_check){.manifest_bytes = 11,
                                   .tail_bytes = 12,
                                   .n_places = SW_MANIFEST_MAX_PLACES + (size_t)_i * 3,
                                   .n_frames = 13,
                                   .frame_bytes = 14,
                                   .n_doubtful = 15,
                                   .n_dropped = 16,
                                   .n_read = 17,
                                   .n_bad = 18};
    for (unsigned i = 0; i < SW_MANIFEST_MAX_PLACES; i++)
        found.places[i] = (struct sw_manifest_place){.at = 1000 + i, .bytes = 100 + i, .what = "torn"};
    FILE *out = fmemopen(said, sizeof said, "w");
    ck_assert_int_eq(nvme_row()->check(&config, out, &is_good, &err), 0);
    (void)fclose(out);
    ck_assert(!is_good);
    for (unsigned i = 0; i < SW_MANIFEST_MAX_PLACES; i++) {
        (void)snprintf(line, sizeof line, "damage      manifest at byte %u, %u bytes: torn\n", 1000 + i, 100 + i);
        ck_assert_msg(strstr(said, line), "%s", said);
    }
    const char *more = strstr(said, "more places");
    ck_assert_msg(_i ? more && strstr(said, "damage      3 more places\n") : !more, "%s", said);
    (void)snprintf(line, sizeof line, "manifest    11 bytes, %u damaged places, 12 bytes of a record",
                   (unsigned)found.n_places);
    ck_assert_msg(strstr(said, line), "%s", said);
    ck_assert_ptr_nonnull(strstr(said, "frames      13, 14 bytes; 15 perhaps released"));
    ck_assert_ptr_nonnull(strstr(said, "; 16 overwritten and left out\n"));
    ck_assert_ptr_nonnull(strstr(said, "read        17, of these damaged: 18\n"));
    ck_assert_ptr_nonnull(strstr(said, "result      damaged\n"));
    const char *bad = "bad frame   region 7:3, chunk 5, data-1 at byte 4096, 300 bytes: ECHECKSUM: its hash is wrong";
    const char *sure = strstr(said, bad), *doubtful = sure ? strstr(sure + 1, bad) : NULL;
    ck_assert_msg(doubtful && sure[strlen(bad)] == '\n', "%s", said);
    ck_assert_int_eq(strncmp(doubtful + strlen(bad), " (perhaps released: records are missing)\n", 41), 0);
    open_code = -SW_EVERSION;
    ck_assert_int_eq(nvme_row()->check(&config, stderr, &is_good, &err), -SW_EVERSION);
    ck_assert_str_eq(err.msg, "nvme_tier_directory /x/disk: it is broken");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_nvme");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, what_a_folder_says_is_logged, 0, FOLDERS);
    tcase_add_test(tests, a_disk_that_cannot_be_read);
    tcase_add_loop_test(tests, a_check_prints_what_it_finds, 0, 2);
    Suite *suite = suite_create("daemon_nvme");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
