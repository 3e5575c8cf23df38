/* Marks of the client library: words of a page that streams write, and when a word is reused. */
#include "base/alloc.h"
#include "ipc/client/mark.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sw_mark_page *page;

static void setup(void) {
    ck_assert_int_eq(sw_mark_page_get(&page, NULL), 0);
}

static void teardown(void) {
    sw_mark_page_put(page);
}

static struct sw_mark *new_mark(void) {
    struct sw_mark *mark = sw_mark_new(page, NULL, NULL);
    ck_assert_ptr_nonnull(mark);
    ck_assert(!sw_mark_is_reached(mark));
    return mark;
}

START_TEST(the_page_is_a_memfd_that_keeps_its_length) {
    struct stat st;
    const int fd = sw_mark_page_fd(page);
    ck_assert_int_eq(fcntl(fd, F_GET_SEALS) & (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE),
                     F_SEAL_SHRINK | F_SEAL_GROW);
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_eq((uint64_t)st.st_size, sw_mark_page_bytes(page));
    ck_assert_uint_eq((uint64_t)st.st_blocks * 512, sw_mark_page_bytes(page)); /* all of it is there */
    ck_assert_int_ne(fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
}
END_TEST

START_TEST(a_mark_is_its_word_and_value) {
    struct sw_mark *mark = new_mark();
    const _Atomic uint64_t *words = sw_mark_page_data(page);
    ck_assert(&words[sw_mark_word(mark)] == sw_mark_address(mark));
    sw_mark_write(mark);
    ck_assert(sw_mark_is_reached(mark));
    ck_assert_uint_eq(atomic_load(&words[sw_mark_word(mark)]), sw_mark_value(mark));
    sw_mark_unref(mark);
}
END_TEST

/* The stream of a canceled operation may write late: until then its word is not reused. No value comes twice in a word.
 */
START_TEST(a_word_is_reused_once_it_has_its_value) {
    struct sw_mark *first = new_mark();
    const uint32_t word = sw_mark_word(first);
    uint64_t value = sw_mark_value(first);
    sw_mark_unref(first); /* nothing waits for it any more */
    for (int i = 0; i < 3 * SW_MARK_PAGE_WORDS; i++) {
        struct sw_mark *mark = new_mark();
        ck_assert_uint_ne(sw_mark_word(mark), word);
        sw_mark_write(mark);
        sw_mark_unref(mark);
    }
    sw_mark_write(first); /* its stream, at last */
    struct sw_mark *marks[SW_MARK_PAGE_WORDS];
    bool found = false;
    for (int i = 0; i < SW_MARK_PAGE_WORDS; i++) {
        marks[i] = new_mark();
        found |= sw_mark_word(marks[i]) == word;
        ck_assert(sw_mark_word(marks[i]) != word || sw_mark_value(marks[i]) > value);
    }
    ck_assert(found);
    for (int i = 0; i < SW_MARK_PAGE_WORDS; i++) {
        sw_mark_write(marks[i]);
        sw_mark_unref(marks[i]);
    }
}
END_TEST

START_TEST(marks_are_held_by_every_reference) {
    struct sw_mark *mark = new_mark();
    const uint32_t word = sw_mark_word(mark);
    ck_assert_ptr_eq(sw_mark_ref(mark), mark);
    sw_mark_write(mark);
    sw_mark_unref(mark);
    struct sw_mark *other = new_mark();
    ck_assert_uint_ne(sw_mark_word(other), word);
    sw_mark_unref(mark);
    struct sw_mark *next = new_mark();
    ck_assert_uint_eq(sw_mark_word(next), word);
    sw_mark_write(other);
    sw_mark_write(next);
    sw_mark_unref(other);
    sw_mark_unref(next);
    sw_mark_unref(NULL);
}
END_TEST

START_TEST(too_many_marks_are_refused) {
    struct sw_mark *marks[SW_MARK_PAGE_WORDS];
    struct sw_err err = {0};
    for (int i = 0; i < SW_MARK_PAGE_WORDS; i++)
        marks[i] = new_mark();
    ck_assert_ptr_null(sw_mark_new(page, NULL, &err));
    ck_assert_int_eq(err.code, -SW_ELIMIT);
    sw_mark_write(marks[7]);
    ck_assert_ptr_null(sw_mark_new(page, NULL, NULL)); /* an operation still holds it */
    sw_mark_unref(marks[7]);
    marks[7] = new_mark();
    sw_mark_unref(marks[9]);
    ck_assert_ptr_null(sw_mark_new(page, NULL, NULL)); /* its stream is late */
    sw_mark_write(marks[9]);
    marks[9] = new_mark();
    for (int i = 0; i < SW_MARK_PAGE_WORDS; i++) {
        sw_mark_write(marks[i]);
        sw_mark_unref(marks[i]);
    }
}
END_TEST

/* A stream may still write when the connection has ended: the page stays, with its late word, for the next one; but not
 * for a forked child, whose words would be its parent's, too. */
START_TEST(a_page_serves_the_next_connection_of_the_process) {
    struct sw_mark_page *other = NULL;
    struct sw_mark *late = new_mark();
    const uint32_t word = sw_mark_word(late);
    const unsigned fds = sw_count_fds();
    sw_mark_unref(late);
    for (int i = 0; i < 3; i++) {
        sw_mark_page_put(page);
        page = NULL;
        ck_assert_int_eq(sw_mark_page_get(&page, NULL), 0);
    }
    ck_assert_uint_eq(sw_count_fds(), fds);
    struct sw_mark *mark = new_mark();
    ck_assert_uint_ne(sw_mark_word(mark), word);
    sw_mark_write(mark);
    sw_mark_unref(mark);
    ck_assert_int_eq(sw_mark_page_get(&other, NULL), 0); /* the first one is in use */
    ck_assert_ptr_ne(other, page);
    sw_mark_page_put(other);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        struct sw_mark_page *own = NULL;
        _exit(sw_mark_page_get(&own, NULL) != 0 || own == other || own == page);
    }
    int status = -1;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    sw_mark_write(late);
}
END_TEST

START_TEST(a_page_without_memory_leaves_nothing) {
    struct sw_mark_page *other = NULL;
    struct sw_err err = {0};
    const unsigned fds = sw_count_fds();
    const long live = sw_alloc_live();
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_mark_page_get(&other, &err), -SW_ENOMEM);
    sw_alloc_fail_nth(0);
    ck_assert_int_eq(err.code, -SW_ENOMEM);
    ck_assert_uint_eq(sw_count_fds(), fds);
    ck_assert_int_eq(sw_alloc_live(), live);
}
END_TEST

/* Its file is closed. */
START_TEST(a_page_that_cannot_be_filled_leaves_nothing) {
    struct rlimit none, before;
    struct sw_mark_page *other = NULL;
    const unsigned fds = sw_count_fds();
    ck_assert(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = before;
    none.rlim_cur = 0;
    (void)setrlimit(RLIMIT_FSIZE, &none);
    const int rc = sw_mark_page_get(&other, NULL);
    (void)setrlimit(RLIMIT_FSIZE, &before); /* Check writes files, too */
    ck_assert_int_lt(rc, 0);
    ck_assert_ptr_null(other);
    ck_assert_uint_eq(sw_count_fds(), fds);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("marks");
    TCase *tcase = tcase_create("marks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_page_is_a_memfd_that_keeps_its_length);
    tcase_add_test(tcase, a_mark_is_its_word_and_value);
    tcase_add_test(tcase, a_word_is_reused_once_it_has_its_value);
    tcase_add_test(tcase, marks_are_held_by_every_reference);
    tcase_add_test(tcase, too_many_marks_are_refused);
    tcase_add_test(tcase, a_page_serves_the_next_connection_of_the_process);
    tcase_add_test(tcase, a_page_without_memory_leaves_nothing);
    tcase_add_test(tcase, a_page_that_cannot_be_filled_leaves_nothing);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
