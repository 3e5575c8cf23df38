/* A client pays for the pages of its memory. The engine writes to existing pages and allocates none, whatever the
 * client does meanwhile. */
#include "spill/device/guard.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE 4096u
enum { PAGES = 2048, BYTES = PAGES * PAGE };

static struct sw_fixture f;

static bool setup(void) {
    const bool is_there = sw_guard_take();
    if (is_there)
        sw_guard_give_back();
    else
        (void)fprintf(stderr, "skipped: userfaultfd() cannot be used here\n");
    sw_fixture_open(&f, NULL);
    return is_there;
}

static void punch(const struct sw_memory *memory, uint64_t offset, uint64_t bytes) {
    ck_assert_int_eq(fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)offset, (off_t)bytes), 0);
}

static uint64_t pages_of(const struct sw_memory *memory) {
    struct stat st;
    ck_assert_int_eq(fstat(memory->fd, &st), 0);
    return (uint64_t)st.st_blocks * 512 / PAGE;
}

/* A region of that content; *ret_memory keeps it. */
static struct sw_region_id spill(enum sw_content content, struct sw_memory *ret_memory) {
    struct sw_test_op op;
    *ret_memory = sw_memory_new(BYTES);
    sw_content_fill(ret_memory->data, BYTES, content, 5);
    ck_assert_int_eq(sw_fixture_spill(&f, ret_memory, 0, BYTES, &op), 0);
    return op.id;
}

static void ck_restore_of_holes(enum sw_content content) {
    struct sw_memory from, to = sw_memory_new(BYTES);
    struct sw_test_op op;
    const struct sw_region_id id = spill(content, &from);
    punch(&to, 0, BYTES);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, 0, BYTES, true, &op), -SW_EUNALLOCATED);
    ck_assert_uint_eq(pages_of(&to), 0);
    ck_assert_int_eq(fallocate(to.fd, 0, 0, BYTES), 0);
    punch(&to, BYTES / 2, PAGE);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, 0, BYTES, true, &op), -SW_EUNALLOCATED);
    ck_assert_uint_eq(pages_of(&to), PAGES - 1);
    ck_assert_int_eq(fallocate(to.fd, 0, 0, BYTES), 0);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, 0, BYTES, false, &op), 0);
    ck_assert_int_eq(memcmp(to.data, from.data, BYTES), 0);
    sw_memory_free(&from);
    sw_memory_free(&to);
}

START_TEST(a_restore_into_holes_fails_and_makes_no_page) {
    if (setup()) {
        ck_restore_of_holes(SW_CONTENT_TEXT);
        ck_restore_of_holes(SW_CONTENT_RANDOM); /* raw: from its place in the tier */
    }
    sw_fixture_close(&f);
}
END_TEST

/* A pack reads zeros where nothing is, and writes frames there. */
START_TEST(a_pack_of_holes_fails_and_makes_no_page) {
    if (setup()) {
        struct sw_memory memory = sw_memory_new(BYTES);
        struct sw_test_op op;
        punch(&memory, 0, BYTES);
        ck_assert_int_eq(sw_fixture_pack(&f, &memory, 0, BYTES, &op), -SW_ELOST); /* it cannot be undone, either */
        ck_assert_msg(strstr(op.outcome.err.detail, "no page at offset ") != NULL, "%s", op.outcome.err.detail);
        ck_assert_uint_eq(pages_of(&memory), 0);
        sw_memory_free(&memory);
    }
    sw_fixture_close(&f);
}
END_TEST

/* ---- while holes are punched ------------------------------------------------------------------------------------- */

/* Punches one page after the other, and never makes one. */
static void *punch_all(void *arg) {
    const struct sw_memory *memory = arg;
    for (unsigned i = 0; i < PAGES; i++) {
        punch(memory, (uint64_t)(i * 787) % PAGES * PAGE, PAGE); /* 787: no divisor of PAGES */
        (void)usleep(300);
    }
    return NULL;
}

/* Each page is as it was stored, or gone since. */
static void ck_right_or_gone(const struct sw_memory *to, const uint8_t *expected) {
    static const uint8_t gone[PAGE];
    uint8_t page[PAGE];
    for (unsigned i = 0; i < PAGES; i++) {
        ck_assert_int_eq(pread(to->fd, page, PAGE, (off_t)i * PAGE), PAGE);
        ck_assert(memcmp(page, expected + (size_t)i * PAGE, PAGE) == 0 || memcmp(page, gone, PAGE) == 0);
    }
}

static void ck_restores_while_punched(enum sw_content content) {
    struct sw_memory from, to = sw_memory_new(BYTES);
    struct sw_test_op op;
    pthread_t thread;
    const struct sw_region_id id = spill(content, &from);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, 0, BYTES, true, &op), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, punch_all, &to), 0);
    for (uint64_t left = PAGES, before = left; left > 0; before = left) {
        const int rc = sw_fixture_restore(&f, id, &to, 0, BYTES, true, &op);
        ck_assert_msg(rc == 0 || rc == -SW_EUNALLOCATED, "%d: %s", rc, op.outcome.err.msg);
        left = pages_of(&to);
        ck_assert_uint_le(left, before);
        ck_right_or_gone(&to, from.data);
    }
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &from, 0, BYTES, false, &op), 0);
    sw_memory_free(&from);
    sw_memory_free(&to);
}

START_TEST(no_page_is_made_while_a_client_punches_holes) {
    if (setup()) {
        ck_restores_while_punched(SW_CONTENT_TEXT);
        ck_restores_while_punched(SW_CONTENT_RANDOM);
    }
    sw_fixture_close(&f);
}
END_TEST

/* ---- without userfaultfd() --------------------------------------------------------------------------------------- */

static void forbid_userfaultfd(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_userfaultfd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(without_userfaultfd_holes_are_filled_with_a_warning) {
    struct sw_memory from, to = sw_memory_new(BYTES);
    struct sw_test_op op;
    forbid_userfaultfd();
    ck_assert(!setup());
    ck_assert(f.device->ops->info(f.device)->is_unguarded);
    const struct sw_region_id id = spill(SW_CONTENT_TEXT, &from);
    punch(&to, 0, BYTES);
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, 0, BYTES, false, &op), 0);
    ck_assert_int_eq(memcmp(to.data, from.data, BYTES), 0);
    sw_memory_free(&from);
    sw_fixture_close(&f);
    sw_memory_free(&to);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("holes");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_restore_into_holes_fails_and_makes_no_page);
    tcase_add_test(tests, a_pack_of_holes_fails_and_makes_no_page);
    tcase_add_test(tests, no_page_is_made_while_a_client_punches_holes);
    tcase_add_test(tests, without_userfaultfd_holes_are_filled_with_a_warning);
    Suite *suite = suite_create("holes");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
