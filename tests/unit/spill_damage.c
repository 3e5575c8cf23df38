/* Which failures are reported as damage of stored frames, and what the report says. On a tier that only knows where
 * its frames lie. */
#include "spill/mover/frames.h"
#include "spill/mover/request.h"
#include "spill/store/damage.h"

#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { N_CHUNKS = 4, HEAD_BYTES = 64 };

static struct {
    struct sw_frames *frames;
    struct sw_run_outcome outcome;
    struct sw_bad_frame bad;
    unsigned n_reports;
    uint8_t heads[N_CHUNKS][HEAD_BYTES];
    struct sw_extent extents[N_CHUNKS];
} rig;

static void locate(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                   uint64_t *ret_offset) {
    (void)tier;
    (void)snprintf(ret_file, SW_TIER_FILE_BYTES, "data");
    *ret_offset = stored->bytes * 10;
}

static const struct sw_tier_ops ops = {.locate = locate}, silent_ops;
static const struct sw_tier_kind disk_kind = {.name = "disk"},
                                 memory_kind = {.name = "memory", .capabilities = SW_TIER_ADDRESSABLE};
static struct sw_tier disk = {.ops = &ops, .kind = &disk_kind}, memory = {.ops = &ops, .kind = &memory_kind},
                      silent = {.ops = &silent_ops, .kind = &disk_kind};

static void on_bad_frame(const struct sw_bad_frame *frame, void *arg) {
    ck_assert_ptr_eq(arg, &rig);
    rig.bad = *frame;
    rig.n_reports++;
}

static void fill(struct sw_tier *tier, bool packed) {
    rig.frames = sw_frames_new(N_CHUNKS * 1000, 1000, packed);
    for (size_t i = 0; i < N_CHUNKS; i++) {
        memset(rig.heads[i], (int)i + 1, HEAD_BYTES);
        rig.extents[i] = (struct sw_extent){.memory = rig.heads[i], .bytes = HEAD_BYTES};
        rig.frames->stored[i] =
            (struct sw_stored){.tier = tier, .extents = &rig.extents[i], .n_extents = 1, .bytes = 100 + i};
        rig.frames->layouts[i].counts_offset = HEAD_BYTES;
        rig.frames->identities[i] = sw_frames_identify(rig.frames, i, &rig.frames->stored[i]);
    }
}

/* Reports a failure of the chunks 1 and 2. Returns whether that is passed on. */
static bool is_reported(int code) {
    static const struct sw_observer observer = {.bad_frame = on_bad_frame, .arg = &rig}, deaf = {.arg = &rig};
    const struct sw_region_id id = {.slot = 7, .gen = 3};
    rig.n_reports = 0;
    rig.outcome.err.code = code;
    sw_damage_report(&deaf, id, rig.frames, &rig.outcome);
    ck_assert_uint_eq(rig.n_reports, 0);
    sw_damage_report(&observer, id, rig.frames, &rig.outcome);
    return rig.n_reports == 1;
}

static void setup(void) {
    memset(&rig, 0, sizeof rig);
    rig.outcome.failed = (struct sw_failed_chunks){.first = 1, .n = 2};
    fill(&disk, false);
}

static void teardown(void) {
    sw_frames_delete(rig.frames);
}

static void fill_again(struct sw_tier *tier, bool packed) {
    teardown();
    fill(tier, packed);
}

START_TEST(a_report_says_where_the_frame_lies) {
    ck_assert(is_reported(-SW_ECHECKSUM));
    ck_assert(rig.bad.region.slot == 7 && rig.bad.region.gen == 3);
    ck_assert(rig.bad.chunk == 1 && rig.bad.n_chunks == 2);
    ck_assert_str_eq(rig.bad.tier, "disk");
    ck_assert_str_eq(rig.bad.file, "data");
    ck_assert(rig.bad.offset == 1010 && rig.bad.bytes == 101);
    ck_assert_int_eq(rig.bad.err->code, -SW_ECHECKSUM);
}
END_TEST

START_TEST(only_failures_of_stored_bytes_are_reported) {
    ck_assert(is_reported(-SW_EFRAME) && is_reported(-SW_EVERSION) && is_reported(-SW_EIO));
    ck_assert(!is_reported(0) && !is_reported(-SW_ENOMEM) && !is_reported(-SW_ECANCELED) && !is_reported(-SW_EGPU));
}
END_TEST

/* It is not known which chunks, or there are none; or no tier says where they lie; or they lie in a client's memory. */
START_TEST(what_lies_nowhere_is_not_reported) {
    rig.outcome.failed.n = 0;
    ck_assert(!is_reported(-SW_ECHECKSUM));
    rig.outcome.failed = (struct sw_failed_chunks){.first = N_CHUNKS, .n = 1};
    ck_assert(!is_reported(-SW_ECHECKSUM));
    rig.outcome.failed = (struct sw_failed_chunks){.first = 1, .n = 1};
    fill_again(&silent, false);
    ck_assert(!is_reported(-SW_ECHECKSUM));
    fill_again(NULL, false);
    ck_assert(!is_reported(-SW_ECHECKSUM));
    fill_again(&disk, true);
    ck_assert(!is_reported(-SW_ECHECKSUM));
    fill_again(&disk, false);
    ck_assert(is_reported(-SW_ECHECKSUM));
}
END_TEST

/* A client may make frames whose content is bad. It cannot change their beginnings in memory later, or make the disk
 * fail. */
START_TEST(clients_frames_may_be_bad) {
    fill_again(&memory, false);
    rig.frames->are_clients[0] = rig.frames->are_clients[3] = true; /* not of this step */
    ck_assert(is_reported(-SW_ECHECKSUM));
    rig.frames->are_clients[2] = true;
    ck_assert(!is_reported(-SW_ECHECKSUM));
    ck_assert(is_reported(-SW_EIO));
    rig.heads[3][5]++;
    ck_assert(!is_reported(-SW_ECHECKSUM));
    rig.heads[2][5]++;
    ck_assert(is_reported(-SW_ECHECKSUM));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("damage");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_report_says_where_the_frame_lies);
    tcase_add_test(tests, only_failures_of_stored_bytes_are_reported);
    tcase_add_test(tests, what_lies_nowhere_is_not_reported);
    tcase_add_test(tests, clients_frames_may_be_bad);
    Suite *suite = suite_create("damage");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
