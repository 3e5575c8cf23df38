/* Memory that claims a great length and has no pages costs its client only an inode. The service's memory and work must
 * follow the stored bytes, not the claimed ones. */
#include "base/alloc.h"
#include "codec/codec.h"
#include "codec/lz/lz.h"
#include "codec/plan/plan.h"
#include "spill/engine_state.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define PIB ((uint64_t)1 << 50)

enum { N_AT_ONCE = 50 };

static struct sw_fixture f;
static struct sw_quota quota;

static void setup(void) {
    sw_fixture_open(&f, NULL);
    memset(&quota, 0, sizeof quota);
    sw_owner_set_quota(f.owner, &quota);
}

static void teardown(void) {
    if (f.owner)
        sw_fixture_close_owner(&f, f.owner);
    f.owner = NULL;
    sw_fixture_close(&f);
}

static struct sw_mem *sparse_memory(uint64_t bytes) {
    struct sw_mem_desc desc = {.kind = SW_MEM_MEMFD, .bytes = bytes, .n_parts = 1};
    struct sw_mem *mem = NULL;
    desc.fds = sw_alloc_array(1, sizeof *desc.fds);
    desc.part_bytes = sw_alloc_array(1, sizeof *desc.part_bytes);
    desc.fds[0] = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    desc.part_bytes[0] = bytes;
    ck_assert_int_ge(desc.fds[0], 0);
    ck_assert_int_eq(ftruncate(desc.fds[0], (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(desc.fds[0], F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(sw_mem_open(f.owner, &desc, false, &mem, NULL), 0);
    return mem;
}

static int spill(struct sw_mem *mem, uint64_t bytes, struct sw_test_op *op, struct sw_err *err) {
    const struct sw_range range = {.mem = mem, .bytes = bytes};
    memset(op, 0, sizeof *op);
    return sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, op, &op->id, err);
}

static uint64_t page_faults(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)usage.ru_minflt;
}

START_TEST(spills_that_never_fit_are_refused_at_once) {
    struct sw_mem *mem = sparse_memory(8 * PIB);
    struct sw_test_op op;
    struct sw_err err = {0};
    ck_assert_int_eq(spill(mem, 8 * PIB, &op, &err), -SW_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(err.msg, "never fit"));
    quota.max_bytes = 1 << 20;
    ck_assert_int_eq(spill(mem, (uint64_t)8 << 30, &op, &err), -SW_ETENANTBYTES);
    ck_assert_ptr_nonnull(strstr(err.msg, "never fit"));
    ck_assert_uint_eq(op.calls, 0);
    ck_assert_uint_eq(quota.n_regions, 0);
}
END_TEST

/* The limit refuses nothing that fits: even bytes that shrink most are stored if there is room for all of them. */
START_TEST(spills_that_may_fit_are_stored) {
    const uint64_t bytes = (uint64_t)256 << 20;
    struct sw_mem *mem = sparse_memory(bytes);
    struct sw_test_op op;
    quota.max_bytes = (uint64_t)6 << 20;
    ck_assert_int_eq(spill(mem, bytes, &op, NULL), 0);
    sw_fixture_until(&f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_uint_ge(op.outcome.stored_bytes, sw_frame_least_bytes(bytes));
}
END_TEST

/* A session has the most spills that it may have, and its client hangs up. No record of a chunk is touched that was not
 * encoded. */
START_TEST(spills_that_end_early_count_what_they_stored) {
    const uint64_t bytes = (uint64_t)64 << 30; /* a million chunks of each */
    struct sw_mem *mem = sparse_memory(bytes);
    struct sw_test_op ops[N_AT_ONCE], first;
    ck_assert_int_eq(spill(mem, 1 << 20, &first, NULL), 0); /* threads and their buffers are there */
    sw_fixture_until(&f, &first.done);
    const uint64_t before = page_faults();
    for (unsigned i = 0; i < N_AT_ONCE; i++)
        ck_assert_int_eq(spill(mem, bytes, &ops[i], NULL), 0);
    for (unsigned i = 0; i < 1000; i++)
        (void)uv_run(&f.loop, UV_RUN_NOWAIT);
    (void)usleep(200000);
    sw_fixture_close_owner(&f, f.owner);
    f.owner = NULL;
    for (unsigned i = 0; i < N_AT_ONCE; i++)
        ck_assert_int_eq(ops[i].outcome.err.code, -SW_ECANCELED);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* shadow memory has faults of its own */
    ck_assert_uint_lt(page_faults() - before, 40000);
#else
    (void)before;
#endif
}
END_TEST

/* Every codec has to describe its tiles: the bound that admission goes by. */
START_TEST(no_codec_makes_shorter_frames) {
    enum { MOST = 300000 };
    static uint8_t zeros[MOST];
    const uint64_t cap = sw_frame_bound_bytes(MOST);
    uint8_t *frame = sw_alloc(cap);
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        for (int type = 0; type < SW_VALUE_NR; type++)
            for (uint64_t bytes = 0; bytes <= MOST; bytes = bytes * 3 + 8) {
                struct sw_plan plan;
                uint64_t frame_bytes = 0;
                sw_plan_init_raw(&plan);
                if (type != SW_VALUE_NONE && !sw_codec_takes((enum sw_codec_id)codec, (enum sw_value_type)type))
                    continue;
                if (type == SW_VALUE_NONE)
                    sw_plan_init(&plan, zeros, bytes < SW_SAMPLE_MAX_BYTES ? bytes : SW_SAMPLE_MAX_BYTES, bytes);
                else if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, (enum sw_value_type)type))
                    sw_plan_init_lz(&plan, (enum sw_value_type)type, 0);
                sw_plan_learn(&plan, zeros, bytes < SW_SAMPLE_MAX_BYTES ? bytes : SW_SAMPLE_MAX_BYTES);
                ck_assert_int_eq(sw_codec_encode(&plan, zeros, bytes, frame, cap, &frame_bytes, NULL), 0);
                ck_assert_uint_ge(frame_bytes, sw_frame_least_bytes(bytes));
            }
    sw_free(frame);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("sparse");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, spills_that_never_fit_are_refused_at_once);
    tcase_add_test(tests, spills_that_may_fit_are_stored);
    tcase_add_test(tests, spills_that_end_early_count_what_they_stored);
    TCase *codecs = tcase_create("codecs");
    tcase_add_test(codecs, no_codec_makes_shorter_frames);
    Suite *suite = suite_create("sparse");
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, codecs);
    return sw_test_run(suite, CK_FORK);
}
