/* Limits to the byte: an exact fit is taken, one byte more is refused by name and changes nothing, and no sum of two
 * numbers wraps into a small one. */
#include "spill/device/memfd.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "spill/store/quota.h"
#include "spill/worker/order.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MEMORY_BYTES = 100000, CAPACITY_BYTES = 8 << 20 };

static struct sw_fixture f;
static struct sw_memory memory;

static void open_fixture(const struct sw_fixture_config *config) {
    sw_fixture_open(&f, config);
    memory = sw_memory_new(MEMORY_BYTES);
}

static void close_fixture(void) {
    sw_memory_free(&memory);
    sw_fixture_close(&f);
}

/* ---- what a tenant may have stored ---- */

START_TEST(a_quota_is_taken_to_the_byte) {
    struct sw_quota quota = {.max_bytes = 1000};
    ck_assert_int_eq(sw_quota_take(&quota, 400, NULL), 0);
    ck_assert_int_eq(sw_quota_take(&quota, 601, NULL), -SW_ETENANTBYTES);
    ck_assert_int_eq(sw_quota_take(&quota, UINT64_MAX - 399, NULL), -SW_ETENANTBYTES); /* 0 with what it has */
    ck_assert_int_eq(sw_quota_take(&quota, UINT64_MAX, NULL), -SW_ETENANTBYTES);
    ck_assert_uint_eq(atomic_load(&quota.bytes), 400);
    ck_assert_int_eq(sw_quota_take(&quota, 600, NULL), 0);
    ck_assert_int_eq(sw_quota_take(&quota, 1, NULL), -SW_ETENANTBYTES);
    ck_assert_int_eq(sw_quota_take(&quota, 0, NULL), 0);
    quota.max_bytes = 10; /* lowered since */
    ck_assert_int_eq(sw_quota_take(&quota, UINT64_MAX - 900, NULL), -SW_ETENANTBYTES);
    sw_quota_give(&quota, 1000);
    ck_assert_int_eq(sw_quota_take(&quota, 10, NULL), 0);
}
END_TEST

/* An operator may change how many regions a session has, also to fewer than it has. */
START_TEST(the_number_of_regions_may_change) {
    struct sw_test_op op = {0};
    open_fixture(NULL);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), 0);
    sw_engine_set_limits(f.engine, 80, 50, 1);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), -SW_ELIMIT);
    sw_engine_set_limits(f.engine, 80, 50, 2);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), 0);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), -SW_ELIMIT);
    close_fixture();
}
END_TEST

/* With nothing left no spill begins; with one byte left it begins, and is cut off when it exceeds the quota. */
START_TEST(a_used_up_quota_lets_nothing_begin) {
    struct sw_quota quota = {.max_bytes = 1 << 20};
    struct sw_test_op op = {0};
    open_fixture(NULL);
    sw_owner_set_quota(f.owner, &quota);
    atomic_store(&quota.bytes, quota.max_bytes);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), -SW_ETENANTBYTES);
    ck_assert_uint_eq(op.calls, 0);
    quota.max_bytes = 10; /* lowered since */
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), -SW_ETENANTBYTES);
    ck_assert_str_eq(op.outcome.err.msg, "the tenant has 1048576 bytes stored, and may have at most 10");
    quota.max_bytes = 1 << 20;
    atomic_store(&quota.bytes, quota.max_bytes - 1);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), -SW_ETENANTBYTES);
    ck_assert_uint_eq(op.calls, 1);
    ck_assert_uint_eq(atomic_load(&quota.bytes), quota.max_bytes - 1);
    atomic_store(&quota.bytes, 0);
    sw_fixture_close_owner(&f, f.owner);
    f.owner = NULL;
    close_fixture();
}
END_TEST

/* The shortest frames that the bytes could have decide: a spill that these just fit begins, whatever its bytes take
 * then; one byte less, and it does not. */
static void ck_least_that_is_tried(void (*limit)(uint64_t bytes), int refusal) {
    struct sw_test_op op = {0};
    const uint64_t least = sw_frame_least_bytes(MEMORY_BYTES);
    limit(least - 1);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, MEMORY_BYTES, &op), refusal);
    ck_assert_uint_eq(op.calls, 0);
    limit(least);
    (void)sw_fixture_spill(&f, &memory, 0, MEMORY_BYTES, &op);
    ck_assert_uint_eq(op.calls, 1);
}

static void limit_quota(uint64_t bytes) {
    atomic_store(&f.owner->quota->max_bytes, bytes);
}

static void limit_tiers(uint64_t bytes) {
    f.engine->store.place.capacity_bytes = bytes;
}

START_TEST(a_spill_that_may_fit_the_quota_is_tried) {
    struct sw_quota quota = {0};
    open_fixture(NULL);
    sw_owner_set_quota(f.owner, &quota);
    ck_least_that_is_tried(limit_quota, -SW_ETENANTBYTES);
    sw_fixture_close_owner(&f, f.owner);
    f.owner = NULL;
    close_fixture();
}
END_TEST

START_TEST(a_spill_that_may_fit_the_tiers_is_tried) {
    open_fixture(NULL);
    const uint64_t capacity = f.engine->store.place.capacity_bytes;
    ck_least_that_is_tried(limit_tiers, -SW_ENOSPACE);
    f.engine->store.place.capacity_bytes = capacity;
    close_fixture();
}
END_TEST

/* ---- where a request's bytes lie ---- */

START_TEST(ranges_end_where_their_memory_does) {
    static const struct {
        uint64_t offset, bytes;
    } refused[] = {{0, MEMORY_BYTES + 1}, {1, MEMORY_BYTES},     {MEMORY_BYTES, 1},
                   {MEMORY_BYTES + 1, 0}, {16, UINT64_MAX - 15}, /* 0 */
                   {16, UINT64_MAX - 14},                        /* 1 */
                   {UINT64_MAX, 1},       {UINT64_MAX - 15, 16}, {UINT64_MAX, UINT64_MAX}};
    struct sw_test_op op = {0}, other = {0};
    open_fixture(NULL);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, refused[i].offset, refused[i].bytes, &op), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, MEMORY_BYTES, 0, &op), 0);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, MEMORY_BYTES + 1, 0, false, &other), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, MEMORY_BYTES, 0, false, &other), 0);
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 1, MEMORY_BYTES - 1, &op), 0);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, 1, MEMORY_BYTES - 2, false, &other), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, 2, MEMORY_BYTES - 1, false, &other), -SW_ERANGE);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, 1, MEMORY_BYTES - 1, false, &other), 0);
    close_fixture();
}
END_TEST

/* A sparse file may be as long as a file can be: three of them are longer than any number. */
START_TEST(lengths_of_buffers_do_not_wrap) {
    struct sw_range ranges[3];
    struct sw_test_op op = {0};
    struct sw_err err = {0};
    struct sw_region_id id;
    open_fixture(NULL);
    const struct sw_memory sparse = {.fd = memfd_create("sparse", MFD_CLOEXEC | MFD_ALLOW_SEALING), .bytes = INT64_MAX};
    ck_assert_int_eq(ftruncate(sparse.fd, INT64_MAX), 0);
    ck_assert_int_eq(fcntl(sparse.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &sparse, false);
    for (int i = 0; i < 3; i++)
        ranges[i] = (struct sw_range){.mem = mem, .bytes = INT64_MAX};
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 3), sw_test_op_done, &op, &id, &err), -SW_ERANGE);
    ck_assert_msg(strstr(err.msg, "overflow"), "%s", err.msg);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 2), sw_test_op_done, &op, &id, &err), -SW_ENOSPACE);
    sw_fixture_close_mem(&f, mem);
    (void)close(sparse.fd);
    close_fixture();
}
END_TEST

/* ---- the host tier ---- */

/* Loop: whose memory is made when it is wanted, or is there from the start. */
START_TEST(a_tier_is_filled_to_the_last_byte) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_stored stored, more;
    config.capacity_bytes = CAPACITY_BYTES;
    config.initial_bytes = _i ? CAPACITY_BYTES : 0;
    open_fixture(&config);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, CAPACITY_BYTES, &stored, NULL), 0);
    f.tier->ops->release(f.tier, &stored);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, CAPACITY_BYTES + 1, &stored, NULL), -SW_ENOSPACE);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, UINT64_MAX, &stored, NULL), -SW_ENOSPACE);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, CAPACITY_BYTES - SW_TIER_IO_ALIGN, &stored, NULL), 0);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, SW_TIER_IO_ALIGN + 1, &more, NULL), -SW_ENOSPACE);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, SW_TIER_IO_ALIGN, &more, NULL), 0);
    f.tier->ops->release(f.tier, &more);
    f.tier->ops->release(f.tier, &stored);
    ck_assert_int_eq(f.tier->ops->reserve(f.tier, CAPACITY_BYTES, &stored, NULL), 0);
    f.tier->ops->release(f.tier, &stored);
    close_fixture();
}
END_TEST

/* ---- files that clients hand over ---- */

static int sealed_file(uint64_t bytes, int seals) {
    const int fd = memfd_create("limits", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

START_TEST(a_memory_is_as_long_as_its_file) {
    const int fd = sealed_file(4097, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_memfd_check(fd, 4097, NULL), 0);
    ck_assert_int_eq(sw_memfd_check(fd, 4098, NULL), -SW_ERANGE);
    ck_assert_int_eq(sw_memfd_check(fd, UINT64_MAX, NULL), -SW_ERANGE);
    ck_assert_int_eq(sw_memfd_check(fd, 0, NULL), 0);
    (void)close(fd);
}
END_TEST

static bool count_region(const struct sw_region_view *view, void *arg) {
    (void)view;
    return ++*(unsigned *)arg < 100;
}

/* A list of very many regions is made in parts, so that nobody waits for the whole. */
START_TEST(a_visit_looks_at_no_more_slots_than_asked) {
    enum { REGIONS = 5 };
    struct sw_test_op op;
    open_fixture(NULL);
    for (unsigned i = 0; i < REGIONS; i++)
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, 4096, &op), 0);
    for (unsigned most = 1; most <= REGIONS; most++) {
        unsigned n = 0, n_calls = 0;
        for (uint32_t slot = 0; slot != UINT32_MAX; n_calls++) {
            const unsigned before = n;
            slot = sw_engine_visit(f.engine, slot, most, count_region, &n);
            ck_assert_uint_le(n - before, most);
        }
        ck_assert_uint_eq(n, REGIONS);
        ck_assert_uint_eq(n_calls, (REGIONS + most - 1) / most);
    }
    close_fixture();
}
END_TEST

START_TEST(an_order_page_has_its_stated_number_of_words) {
    static const struct {
        uint64_t file_bytes, bytes;
        int code;
    } cases[] = {{8, 8, 0},
                 {SW_ORDER_MAX_BYTES, SW_ORDER_MAX_BYTES, 0},
                 {SW_ORDER_MAX_BYTES + 8, SW_ORDER_MAX_BYTES + 8, -SW_ERANGE},
                 {SW_ORDER_MAX_BYTES, SW_ORDER_MAX_BYTES - 8, -SW_ERANGE},
                 {8, 0, -SW_ERANGE},
                 {8, 7, -SW_ERANGE},
                 {16, 12, -SW_ERANGE},
                 {8, 16, -SW_ERANGE},
                 {8, UINT64_MAX - 7, -SW_ERANGE}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_order_page *page = NULL;
        struct sw_order order;
        const uint32_t n = (uint32_t)(cases[i].bytes / sizeof(uint64_t));
        const int fd = sealed_file(cases[i].file_bytes, F_SEAL_SHRINK | F_SEAL_GROW);
        ck_assert_msg(sw_order_page_open(&page, fd, cases[i].bytes, NULL, NULL) == cases[i].code, "case %zu", i);
        if (cases[i].code == 0) {
            ck_assert_int_eq(sw_order_find(&order, page, n - 1, 1, NULL), 0);
            ck_assert_int_eq(sw_order_find(&order, page, n, 1, NULL), -SW_ERANGE);
            ck_assert_int_eq(sw_order_find(&order, page, UINT32_MAX, 1, NULL), -SW_ERANGE);
        }
        sw_order_page_unref(page);
        (void)close(fd);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_add_test(tcase, a_quota_is_taken_to_the_byte);
    tcase_add_test(tcase, the_number_of_regions_may_change);
    tcase_add_test(tcase, a_used_up_quota_lets_nothing_begin);
    tcase_add_test(tcase, a_spill_that_may_fit_the_quota_is_tried);
    tcase_add_test(tcase, a_spill_that_may_fit_the_tiers_is_tried);
    tcase_add_test(tcase, ranges_end_where_their_memory_does);
    tcase_add_test(tcase, lengths_of_buffers_do_not_wrap);
    tcase_add_loop_test(tcase, a_tier_is_filled_to_the_last_byte, 0, 2);
    tcase_add_test(tcase, a_memory_is_as_long_as_its_file);
    tcase_add_test(tcase, a_visit_looks_at_no_more_slots_than_asked);
    tcase_add_test(tcase, an_order_page_has_its_stated_number_of_words);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
