/* Buffers that are used again: which one fits, which ones go. */
#include "base/alloc.h"
#include "spill/tier/remote/remote_buffers.h"
#include "tests/lib/run.h"

#include <check.h>

enum { MIB = 1 << 20 };

static struct sw_remote_buffers buffers;

static void setup(void) {
    sw_remote_buffers_init(&buffers);
}

static void give(uint64_t bytes) {
    struct sw_remote_buffer *buffer = sw_remote_buffer_new(bytes);
    ck_assert_ptr_nonnull(buffer);
    ck_assert_uint_eq(buffer->bytes, bytes);
    buffer->body[bytes - 1] = 1;
    sw_remote_buffers_give(&buffers, buffer);
}

static void free_beyond(uint64_t bytes) {
    struct sw_list surplus;
    sw_list_init(&surplus);
    sw_remote_buffers_cut(&buffers, bytes, &surplus);
    sw_remote_buffers_free(&surplus);
    ck_assert(sw_list_empty(&surplus));
    ck_assert_uint_le(buffers.spare_bytes, bytes);
}

START_TEST(a_buffer_fits_from_half_its_length) {
    give(8 * MIB);
    ck_assert_ptr_null(sw_remote_buffers_find(&buffers, 8 * MIB + 1));
    ck_assert_ptr_null(sw_remote_buffers_find(&buffers, 4 * MIB - 1));
    ck_assert_ptr_nonnull(sw_remote_buffers_find(&buffers, 4 * MIB));
    struct sw_remote_buffer *buffer = sw_remote_buffers_find(&buffers, 8 * MIB);
    ck_assert_ptr_nonnull(buffer);
    sw_remote_buffers_take(&buffers, buffer);
    ck_assert_uint_eq(buffers.spare_bytes, 0);
    ck_assert_ptr_null(sw_remote_buffers_find(&buffers, 8 * MIB));
    sw_remote_buffers_give(&buffers, buffer);
    ck_assert_uint_eq(buffers.spare_bytes, 8 * MIB);
    free_beyond(0);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

/* What was used last is most likely still in the processor's caches. */
START_TEST(the_last_used_is_taken_and_the_first_used_goes) {
    for (unsigned i = 0; i < 4; i++)
        give(4 * MIB + i);
    ck_assert_uint_eq(sw_remote_buffers_find(&buffers, 4 * MIB)->bytes, 4 * MIB + 3);
    free_beyond(9 * MIB);
    ck_assert_uint_eq(buffers.spare_bytes, 8 * MIB + 5);
    ck_assert_uint_eq(sw_remote_buffers_find(&buffers, 4 * MIB)->bytes, 4 * MIB + 3);
    free_beyond(8 * MIB + 5);
    ck_assert_uint_eq(buffers.spare_bytes, 8 * MIB + 5);
    free_beyond(0);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(without_memory_there_is_no_buffer) {
    sw_alloc_fail_nth(1);
    ck_assert_ptr_null(sw_remote_buffer_new(MIB));
    sw_alloc_fail_nth(0);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("remote_buffers");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, a_buffer_fits_from_half_its_length);
    tcase_add_test(tests, the_last_used_is_taken_and_the_first_used_goes);
    tcase_add_test(tests, without_memory_there_is_no_buffer);
    Suite *suite = suite_create("spill_remote_buffers");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
