/* A successor's host arena: slabs that an earlier service has left, a smaller bound, and slabs that the kernel may
 * still write. */
#include "base/alloc.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/host_tier.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <unistd.h>

enum { MAX_KEPT = 8 };
static struct sw_tier_host_slab kept[MAX_KEPT];
static unsigned n_kept, n_forgotten;
static uint64_t forgotten[MAX_KEPT];
static struct sw_tier *trimmed; /* NULL: not yet */

static void keep_slab(int fd, uint64_t offset, void *arg) {
    (void)arg;
    ck_assert_uint_lt(n_kept, MAX_KEPT);
    kept[n_kept++] = (struct sw_tier_host_slab){fcntl(fd, F_DUPFD_CLOEXEC, 0), offset};
}

static void forget_slab(uint64_t offset, void *arg) {
    (void)arg;
    ck_assert_uint_lt(n_forgotten, MAX_KEPT);
    forgotten[n_forgotten++] = offset;
    if (trimmed) /* or its thread would grow it again */
        ck_assert_uint_eq(stats_of(trimmed).capacity_bytes, stats_of(trimmed).backed_bytes);
}

static struct sw_tier *open_kept(uint64_t capacity) {
    const struct sw_tier_host_config config = {.capacity_bytes = capacity,
                                               .initial_bytes = capacity,
                                               .slab_bytes = 2 * MIB,
                                               .keep = keep_slab,
                                               .forget = forget_slab,
                                               .kept = kept,
                                               .n_kept = n_kept};
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    return tier;
}

static int recover(struct sw_tier *tier, struct sw_stored *const *frames, size_t n) {
    return tier->ops->recover(tier, &(struct sw_tier_recovery){.frames = frames, .n = n}, NULL);
}

/* A frame of a predecessor, in the arena's block there. */
static void claim_block(struct sw_tier *tier, uint64_t offset, struct sw_stored *ret) {
    struct sw_extent *extent = sw_alloc(sizeof *extent);
    *extent = (struct sw_extent){.offset = offset, .bytes = 4096};
    *ret = (struct sw_stored){.extents = extent, .n_extents = 1, .bytes = 4096};
    ck_assert_int_eq(recover(tier, &ret, 1), 0);
    ck_assert_ptr_eq(ret->tier, tier);
}

/* Slabs beyond the limit stay while they hold frames, and only then. */
START_TEST(test_empty_slabs_beyond_a_lower_limit_are_released) {
    struct sw_stored frame, more = {0};
    struct sw_tier *tier = open_kept(8 * MIB);
    UNTIL(tier, s.backed_bytes == 8 * MIB);
    ck_assert_uint_eq(tier->ops->trim(tier), 0);
    tier->ops->close(tier);
    ck_assert_uint_eq(n_kept, 4);
    const unsigned others = count_slabs();
    tier = open_kept(4 * MIB);
    ck_assert_uint_eq(stats_of(tier).capacity_bytes, 8 * MIB);
    claim_block(tier, 6 * MIB + 4096, &frame);
    trimmed = tier;
    ck_assert_uint_eq(tier->ops->trim(tier), 4 * MIB);
    ck_assert_uint_eq(n_forgotten, 2);
    ck_assert(forgotten[0] == 4 * MIB && forgotten[1] == 2 * MIB);
    ck_assert_uint_eq(count_slabs(), others + 2);
    ck_assert(stats_of(tier).capacity_bytes == 4 * MIB && stats_of(tier).backed_bytes == 4 * MIB);
    ck_assert_int_eq(tier->ops->reserve(tier, 4 * MIB - 4096, &more, NULL), 0); /* all that is left */
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &(struct sw_stored){0}, NULL), -SW_ENOSPACE);
    tier->ops->release(tier, &more);
    tier->ops->release(tier, &frame);
    ck_assert_uint_eq(tier->ops->trim(tier), 0);
    tier->ops->close(tier);
}
END_TEST

/* There is no memory for the records of a kept slab: it must not stay with the manager uncounted. */
START_TEST(test_an_unusable_kept_slab_is_released) {
    const struct sw_tier_host_config config = {
        .capacity_bytes = 4 * MIB, .slab_bytes = 2 * MIB, .keep = keep_slab, .forget = forget_slab};
    struct sw_stored frame;
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    sw_alloc_fail_nth(2); /* after the slab's own */
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &frame, NULL), -SW_ENOMEM);
    ck_assert_uint_eq(n_kept, 1);
    ck_assert_uint_eq(n_forgotten, 1);
    ck_assert_uint_eq(forgotten[0], kept[0].offset);
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &frame, NULL), 0);
    ck_assert_uint_ne(kept[1].offset, kept[0].offset);
    tier->ops->release(tier, &frame);
    tier->ops->close(tier);
    ck_assert_uint_eq(n_forgotten, 1);
}
END_TEST

/* Every descriptor that was handed over is closed once it has served, whether it was of use or not. */
START_TEST(test_two_kept_slabs_for_one_place) {
    struct sw_stored frame;
    struct sw_tier *tier = open_kept(4 * MIB);
    UNTIL(tier, s.backed_bytes == 4 * MIB);
    tier->ops->close(tier);
    ck_assert_uint_eq(n_kept, 2);
    keep_slab(sw_memory_new(2 * MIB).fd, kept[0].offset, NULL);
    const unsigned fds = sw_count_fds();
    tier = open_kept(4 * MIB);
    ck_assert_uint_eq(sw_count_fds(), fds - 3);
    ck_assert_uint_eq(stats_of(tier).backed_bytes, 4 * MIB);
    claim_block(tier, 2 * MIB, &frame);
    tier->ops->release(tier, &frame);
    tier->ops->close(tier);
}
END_TEST

/* A descriptor that is no slab, between two that are. Its place is nobody's, as others may still have its offset. */
START_TEST(test_the_place_of_what_is_no_slab_stays_unused) {
    struct sw_stored frames[4] = {0};
    struct sw_tier *tier = open_kept(4 * MIB);
    UNTIL(tier, s.backed_bytes == 4 * MIB);
    tier->ops->close(tier);
    (void)close(kept[1].fd);
    n_kept = 1;
    const int none = open("/dev/null", O_RDWR | O_CLOEXEC);
    keep_slab(none, (_i ? 2 : 6) * MIB, NULL);
    (void)close(none);
    tier = open_kept(8 * MIB);
    UNTIL(tier, s.backed_bytes == 8 * MIB);
    for (unsigned i = 2; i < n_kept; i++)
        ck_assert_uint_ge(kept[i].offset, (_i ? 4 : 8) * MIB);
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(tier->ops->reserve(tier, 2 * MIB, &frames[i], NULL), 0);
    for (unsigned i = 0; i < 4; i++)
        tier->ops->release(tier, &frames[i]);
    tier->ops->close(tier);
}
END_TEST

static struct sw_tier *open_with_pipes(uint64_t capacity, const int *io_pipes, unsigned n) {
    const struct sw_tier_host_config config = {.capacity_bytes = capacity,
                                               .slab_bytes = 2 * MIB,
                                               .keep = keep_slab,
                                               .forget = forget_slab,
                                               .kept = kept,
                                               .n_kept = n_kept,
                                               .io_pipes = io_pipes,
                                               .n_io_pipes = n};
    struct sw_tier *tier = NULL;
    ck_assert_int_eq(sw_tier_host_open(&tier, &config, NULL), 0);
    return tier;
}

/* The kernel may still write to free parts of a predecessor's memory; it does not write to new memory or to frames that
 * were found. */
START_TEST(test_slabs_that_the_kernel_may_write_are_not_used) {
    enum { N = 2 };
    struct sw_stored frame, stored[3] = {0}, rest = {0};
    struct sw_err err = {0};
    int reads[N], writes[N];
    struct sw_tier *tier = open_kept(4 * MIB);
    UNTIL(tier, s.backed_bytes == 4 * MIB);
    tier->ops->close(tier);
    for (int i = 0; i < N; i++) {
        int ends[2];
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        reads[i] = ends[0];
        writes[i] = ends[1];
    }
    tier = open_with_pipes(6 * MIB, reads, N);
    claim_block(tier, 2 * MIB + 4096, &frame);
    ck_assert_uint_eq(stats_of(tier).held_bytes, 4 * MIB - 4096);
    ck_assert_uint_eq(stats_of(tier).used_bytes, 4 * MIB);
    ck_assert_uint_eq(tier->ops->trim(tier), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, MIB, &stored[0], &err), 0); /* waits for a slab */
    ck_assert_uint_ge(stored[0].extents[0].offset, 4 * MIB);
    tier->ops->release(tier, &frame);
    ck_assert_int_eq(tier->ops->reserve(tier, MIB, &stored[1], &err), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &stored[2], &err), 0);
    ck_assert_uint_eq(stored[2].extents[0].offset, 2 * MIB + 4096); /* where a frame lay nothing else is on its way */
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &rest, &err), -SW_ENOSPACE);
    (void)close(writes[1]);
    ck_assert_int_eq(tier->ops->reserve(tier, 4096, &rest, &err), -SW_ENOSPACE);
    ck_assert_uint_eq(stats_of(tier).held_bytes, 4 * MIB - 4096);
    (void)close(writes[0]);
    ck_assert_int_eq(tier->ops->reserve(tier, 4 * MIB - 4096, &rest, &err), 0);
    ck_assert_uint_eq(stats_of(tier).held_bytes, 0);
    for (int i = 0; i < 3; i++)
        tier->ops->release(tier, &stored[i]);
    tier->ops->release(tier, &rest);
    tier->ops->close(tier);
}
END_TEST

/* Nothing was found, or the tier is closed with its frames; its pipes are closed in any case. */
START_TEST(test_pipes_are_closed) {
    struct sw_stored stored;
    int ends[2];
    struct sw_tier *tier = open_kept(2 * MIB);
    UNTIL(tier, s.backed_bytes == 2 * MIB);
    tier->ops->close(tier);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
        if (i == 1)
            (void)close(ends[1]);
        tier = open_with_pipes(2 * MIB, &ends[0], 1);
        if (i < 2)
            ck_assert_int_eq(recover(tier, NULL, 0), 0);
        if (i == 0)
            ck_assert_int_eq(tier->ops->reserve(tier, 4096, &stored, NULL), -SW_ENOSPACE);
        if (i == 1) {
            ck_assert_int_eq(tier->ops->reserve(tier, 2 * MIB, &stored, NULL), 0);
            tier->ops->release(tier, &stored);
        }
        tier->ops->close(tier);
        ck_assert_int_eq(fcntl(ends[0], F_GETFD), -1);
        if (i != 1)
            (void)close(ends[1]);
        keep_slab(sw_memory_new(2 * MIB).fd, 0, NULL); /* the one before was moved */
        kept[0] = kept[--n_kept];
    }
    (void)close(kept[0].fd);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("kept slabs of the host tier");
    TCase *tcase = tcase_create("kept slabs of the host tier");
    tcase_add_test(tcase, test_empty_slabs_beyond_a_lower_limit_are_released);
    tcase_add_test(tcase, test_an_unusable_kept_slab_is_released);
    tcase_add_test(tcase, test_two_kept_slabs_for_one_place);
    tcase_add_loop_test(tcase, test_the_place_of_what_is_no_slab_stays_unused, 0, 2);
    tcase_add_test(tcase, test_slabs_that_the_kernel_may_write_are_not_used);
    tcase_add_test(tcase, test_pipes_are_closed);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
