/* Operations that wait for a word of their client's order page: valid pages, when words are polled, and that no other
 * operation waits. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/engine_state.h"
#include "spill/worker/order_queue.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- a client's page --------------------------------------------------------------------------------------------- */

enum { WORDS = 512, PAGE_BYTES = WORDS * 8, ALL_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static struct client {
    int fd;
    _Atomic uint64_t *words;
    struct sw_order_page *page; /* as the service has it */
} client;

static int make_file(off_t bytes, int seals) {
    const int fd = memfd_create("page", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, bytes) == 0);
    ck_assert(!seals || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

static void client_open(void) {
    client.fd = make_file(PAGE_BYTES, ALL_SEALS);
    client.words = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, client.fd, 0);
    ck_assert_ptr_ne((void *)client.words, MAP_FAILED);
    ck_assert_int_eq(sw_order_page_open(&client.page, client.fd, PAGE_BYTES, NULL, NULL), 0);
}

static void client_close(void) {
    sw_order_page_unref(client.page);
    ck_assert_int_eq(munmap((void *)client.words, PAGE_BYTES), 0);
    (void)close(client.fd);
}

static struct sw_order order_of(uint32_t word, uint64_t value) {
    struct sw_order order = {0};
    ck_assert_int_eq(sw_order_find(&order, client.page, word, value, NULL), 0);
    return order;
}

START_TEST(test_only_a_sealed_memfd_of_that_length_is_a_page) {
    static const struct {
        off_t bytes;
        int seals, code;
        uint64_t claimed;
    } cases[] = {{PAGE_BYTES, ALL_SEALS, 0, PAGE_BYTES},
                 {PAGE_BYTES, F_SEAL_SHRINK, -SW_EUNSEALED, PAGE_BYTES},
                 {PAGE_BYTES, F_SEAL_GROW, -SW_EUNSEALED, PAGE_BYTES},
                 {PAGE_BYTES, 0, -SW_EUNSEALED, PAGE_BYTES},
                 {PAGE_BYTES, ALL_SEALS, -SW_ERANGE, PAGE_BYTES + 8},
                 {PAGE_BYTES, ALL_SEALS, -SW_ERANGE, PAGE_BYTES - 8},
                 {PAGE_BYTES, ALL_SEALS, -SW_ERANGE, PAGE_BYTES - 1},
                 {PAGE_BYTES, ALL_SEALS, -SW_ERANGE, 0},
                 {PAGE_BYTES, ALL_SEALS, -SW_ERANGE, UINT64_MAX - 7},
                 {8, ALL_SEALS, 0, 8},
                 {(off_t)SW_ORDER_MAX_BYTES, ALL_SEALS, 0, SW_ORDER_MAX_BYTES},
                 {(off_t)SW_ORDER_MAX_BYTES + 8, ALL_SEALS, -SW_ERANGE, SW_ORDER_MAX_BYTES + 8}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_order_page *page = NULL;
        struct sw_err err = {0};
        const int fd = make_file(cases[i].bytes, cases[i].seals);
        const int rc = sw_order_page_open(&page, fd, cases[i].claimed, NULL, &err);
        ck_assert_msg(rc == cases[i].code && err.code == rc, "case %zu: %d", i, rc);
        ck_assert((page != NULL) == (rc == 0));
        sw_order_page_unref(page);
        (void)close(fd);
    }
    int pipes[2];
    struct sw_order_page *page = NULL;
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    ck_assert_int_eq(sw_order_page_open(&page, pipes[0], PAGE_BYTES, NULL, NULL), -SW_EFDS);
    ck_assert_int_eq(sw_order_page_open(&page, -1, PAGE_BYTES, NULL, NULL), -SW_EFDS);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
}
END_TEST

START_TEST(test_words_are_found_and_reached) {
    struct sw_order order = {0};
    client_open();
    ck_assert_int_eq(sw_order_find(&order, client.page, WORDS, 1, NULL), -SW_ERANGE);
    ck_assert_int_eq(sw_order_find(&order, client.page, UINT32_MAX, 1, NULL), -SW_ERANGE);
    ck_assert_int_eq(sw_order_find(&order, client.page, 0, 0, NULL), -SW_EINVAL);
    ck_assert(sw_order_is_reached(&order)); /* nothing to wait for */
    order = order_of(WORDS - 1, 7);
    ck_assert(!sw_order_is_reached(&order));
    atomic_store(&client.words[WORDS - 1], 6);
    ck_assert(!sw_order_is_reached(&order));
    atomic_store(&client.words[WORDS - 1], 7);
    ck_assert(sw_order_is_reached(&order));
    atomic_store(&client.words[WORDS - 1], 9); /* used again since */
    ck_assert(sw_order_is_reached(&order));
    client_close();
}
END_TEST

/* Reading a word in a hole makes a page that the service pays for. So there are at most as many as the client's budget
 * allows. */
START_TEST(test_words_in_holes_count_for_the_tenant) {
    struct sw_budget kept = {.limit_bytes = 3 * PAGE_BYTES / 2};
    struct sw_order_page *page = NULL, *second = NULL;
    struct sw_order order = {0};
    struct stat st;
    const int fd = make_file(PAGE_BYTES, ALL_SEALS);
    ck_assert_int_eq(sw_order_page_open(&page, fd, PAGE_BYTES, &kept, NULL), 0);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_order_find(&order, page, 3, 1, NULL), 0);
        ck_assert(!sw_order_is_reached(&order));
        ck_assert_int_eq(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)PAGE_BYTES), 0);
    }
    for (uint32_t word = 0; word < PAGE_BYTES / sizeof(uint64_t); word++) {
        ck_assert_int_eq(sw_order_find(&order, page, word, 1, NULL), 0);
        ck_assert(!sw_order_is_reached(&order));
    }
    ck_assert_int_eq(fstat(fd, &st), 0);
    ck_assert_uint_le((uint64_t)st.st_blocks * 512, PAGE_BYTES);
    ck_assert_int_eq(sw_order_page_open(&second, fd, PAGE_BYTES, &kept, NULL), -SW_ETENANTMEMORY);
    sw_order_page_unref(page);
    ck_assert_int_eq(sw_order_page_open(&second, fd, PAGE_BYTES, &kept, NULL), 0);
    sw_order_page_unref(second);
    (void)close(fd);
    const int one_word = make_file(sizeof(uint64_t), ALL_SEALS); /* costs a whole page of the system, too */
    ck_assert_int_eq(sw_order_page_open(&page, one_word, sizeof(uint64_t), &kept, NULL), 0);
    ck_assert_int_eq(sw_order_page_open(&second, one_word, sizeof(uint64_t), &kept, NULL), -SW_ETENANTMEMORY);
    sw_order_page_unref(page);
    ck_assert_uint_eq(atomic_load(&kept.used_bytes), 0);
    (void)close(one_word);
}
END_TEST

/* A page that cannot be mapped, such as a write-only one: its budget is given back. */
START_TEST(test_an_unmappable_page_leaves_nothing_behind) {
    struct sw_budget kept = {.limit_bytes = 3 * PAGE_BYTES / 2};
    struct sw_order_page *page = NULL;
    char path[40];
    const int fd = make_file(PAGE_BYTES, ALL_SEALS);
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int unreadable = open(path, O_WRONLY | O_CLOEXEC);
    ck_assert_int_ge(unreadable, 0);
    const long live = sw_alloc_live();
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(sw_order_page_open(&page, unreadable, PAGE_BYTES, &kept, NULL), -SW_EFDS);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_order_page_open(&page, fd, PAGE_BYTES, &kept, NULL), -SW_ENOMEM);
    ck_assert_ptr_null(page);
    ck_assert_uint_eq(atomic_load(&kept.used_bytes), 0);
    ck_assert_int_eq(sw_alloc_live(), live);
    (void)close(unreadable);
    (void)close(fd);
}
END_TEST

/* ---- when words are looked at ------------------------------------------------------------------------------------ */

static unsigned take(struct sw_order_queue *queue, uint64_t now_us, bool all) {
    struct sw_list ready;
    unsigned n = 0;
    sw_list_init(&ready);
    const bool found = sw_order_queue_take(queue, now_us, all, &ready);
    while (sw_list_take_first(&ready))
        n++;
    ck_assert(found == (n > 0));
    return n;
}

START_TEST(test_pauses_grow_with_the_wait_up_to_5_ms) {
    enum { SPIN_US = 1000 };
    const uint64_t begun_us = 123456789;
    struct sw_order_queue queue;
    uint64_t now_us = begun_us;
    unsigned n_looks = 0;
    client_open();
    struct sw_job job = {.order = order_of(0, 1)};
    sw_order_queue_init(&queue, SPIN_US);
    ck_assert_uint_eq(sw_order_queue_next_us(&queue, now_us), UINT64_MAX);
    sw_order_queue_add(&queue, &job, now_us);
    ck_assert_uint_eq(sw_order_queue_next_us(&queue, now_us), now_us);
    ck_assert_uint_eq(take(&queue, now_us + SPIN_US - 1, false), 0);
    ck_assert_uint_eq(sw_order_queue_next_us(&queue, now_us + SPIN_US - 1), now_us + SPIN_US - 1); /* no pause yet */
    ck_assert_uint_eq(sw_order_queue_next_us(&queue, now_us + SPIN_US), now_us + SPIN_US); /* late, so at once */
    for (now_us += SPIN_US; now_us < begun_us + 10000000; n_looks++) {
        ck_assert_uint_eq(take(&queue, now_us, false), 0);
        const uint64_t next_us = sw_order_queue_next_us(&queue, now_us), pause_us = next_us - now_us;
        ck_assert(pause_us >= 100 && pause_us <= 5000 && pause_us <= 100 + (now_us - begun_us) / 8);
        now_us = next_us;
    }
    ck_assert_uint_lt(n_looks, 2100); /* 200 a second, and some more in the beginning */
    atomic_store(&client.words[0], 1);
    ck_assert_uint_eq(take(&queue, now_us, false), 1);
    ck_assert(sw_order_queue_is_empty(&queue));
    client_close();
}
END_TEST

START_TEST(test_jobs_leave_in_the_order_of_their_words) {
    enum { N = 6 };
    struct sw_order_queue queue;
    struct sw_job jobs[N];
    memset(jobs, 0, sizeof jobs);
    client_open();
    sw_order_queue_init(&queue, 0);
    for (uint32_t i = 0; i < N; i++) {
        jobs[i].order = order_of(i, 5);
        sw_order_queue_add(&queue, &jobs[i], 0);
    }
    ck_assert_uint_eq(take(&queue, 1000000, false), 0); /* old from now on */
    atomic_store(&client.words[4], 5);
    atomic_store(&client.words[1], 5);
    ck_assert_uint_eq(take(&queue, 1004999, false), 0); /* not polled yet */
    ck_assert_uint_eq(take(&queue, 1005000, false), 2);
    atomic_store(&jobs[0].signals.cancel, true);
    ck_assert_uint_eq(take(&queue, 1010000, false), 1);
    ck_assert_uint_eq(take(&queue, 1010001, true), N - 3); /* whatever their words are */
    ck_assert(sw_order_queue_is_empty(&queue));
    client_close();
}
END_TEST

/* ---- the engine -------------------------------------------------------------------------------------------------- */

enum { N_LATE = 256, BYTES = 40000 };

static struct sw_fixture f;
static struct sw_memory memory;

static void setup(void) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.max_regions = config.max_owner_regions = 2 * N_LATE;
    sw_fixture_open(&f, &config);
    memory = sw_memory_new(BYTES);
    client_open();
}

static void teardown(void) {
    client_close();
    sw_memory_free(&memory);
    sw_fixture_close(&f);
}

/* value 0: waits for nothing. */
static void spill_from(struct sw_owner *owner, struct sw_mem *mem, uint32_t word, uint64_t value,
                       struct sw_test_op *op) {
    struct sw_range range = {.mem = mem, .bytes = memory.bytes};
    if (value)
        range.order = order_of(word, value);
    ck_assert_int_eq(sw_engine_spill(owner, SW_TRANSFER(&range, 1), sw_test_op_done, op, &op->id, NULL), 0);
}

static void spill_after(struct sw_owner *owner, uint32_t word, uint64_t value, struct sw_test_op *op) {
    struct sw_mem *mem = sw_fixture_mem(&f, owner, &memory, true);
    spill_from(owner, mem, word, value, op);
    sw_mem_close(mem, NULL, NULL);
}

static void await(const struct sw_test_op *ops, unsigned n, int code) {
    for (unsigned i = 0; i < n; i++) {
        sw_fixture_until(&f, &ops[i].done);
        ck_assert_int_eq(ops[i].outcome.err.code, code);
    }
}

static uint64_t cpu_us(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000 +
           (uint64_t)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* Hundreds of operations of one client wait for words that are not written. None of them has a slot or a mapping, other
 * operations are served, and the service sleeps. Operations whose words are written continue, in any order. */
START_TEST(test_one_jobs_word_delays_no_other_job) {
    struct sw_test_op late[N_LATE], op;
    struct sw_engine_stats stats;
    struct sw_owner *other;
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    memset(late, 0, sizeof late);
    ck_assert_int_eq(sw_owner_open(f.engine, &other, NULL), 0);
    for (uint32_t i = 0; i < N_LATE; i++)
        spill_from(f.owner, mem, i, 3, &late[i]);
    for (int i = 0; i < 5; i++) {
        memset(&op, 0, sizeof op);
        spill_after(other, 0, 0, &op);
        await(&op, 1, 0);
    }
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped, 0);
    const uint64_t begun_us = cpu_us();
    (void)usleep(300000);
    ck_assert_uint_lt(cpu_us() - begun_us, 150000); /* of 300000 of each thread */
    for (uint32_t i = 0; i < N_LATE; i++)
        ck_assert(!late[i].done);
    atomic_store(&client.words[N_LATE - 1], 3);
    await(&late[N_LATE - 1], 1, 0);
    ck_assert(!late[0].done);
    for (uint32_t i = 0; i < N_LATE; i++)
        atomic_store(&client.words[i], 3);
    await(late, N_LATE, 0);
    sw_fixture_close_owner(&f, other);
}
END_TEST

START_TEST(test_cancel_and_close_need_no_word) {
    static struct sw_test_op late[2]; /* the second one calls back at the fixture's end */
    struct sw_test_op other[3] = {0};
    struct sw_owner *owner;
    ck_assert_int_eq(sw_owner_open(f.engine, &owner, NULL), 0);
    for (uint32_t i = 0; i < 2; i++)
        spill_after(f.owner, i, 1, &late[i]);
    for (uint32_t i = 0; i < 3; i++)
        spill_after(owner, 10, 1, &other[i]);
    sw_engine_cancel(f.owner, late[0].id);
    await(late, 1, -SW_ECANCELED);
    ck_assert(!late[1].done);
    sw_fixture_close_owner(&f, owner);
    await(other, 3, -SW_ECANCELED);
    ck_assert(!late[1].done);
} /* and so does the fixture's end */
END_TEST

/* Nothing waits on a device that is lost: the words of its clients' streams may never come. */
START_TEST(test_a_lost_device_needs_no_word) {
    struct sw_test_op late[3] = {0}, op = {0}, after = {0};
    for (uint32_t i = 0; i < 3; i++)
        spill_after(f.owner, i, 1, &late[i]);
    sw_device_faulty_arm(f.device, "encode", 1, -SW_EGPULOST, SW_FAULT_LATE);
    spill_after(f.owner, 0, 0, &op);
    await(&op, 1, -SW_EGPULOST);
    await(late, 3, -SW_EGPULOST);
    spill_after(f.owner, 5, 1, &after); /* nor does one that comes then */
    await(&after, 1, -SW_EGPULOST);
}
END_TEST

/* The buffers of one region wait each for its own word, and the region for all of them. */
START_TEST(test_each_buffer_waits_for_its_own_word) {
    struct sw_test_op op = {0};
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    struct sw_range ranges[3];
    for (uint32_t i = 0; i < 3; i++)
        ranges[i] = (struct sw_range){.mem = mem, .offset = i * 10000, .bytes = 10000};
    ranges[0].order = order_of(0, 1);
    ranges[2].order = order_of(2, 1);
    ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(ranges, 3), sw_test_op_done, &op, &op.id, NULL), 0);
    for (uint32_t word = 0; word <= 2; word += 2) {
        struct sw_test_op pass = {0};
        spill_after(f.owner, 0, 0, &pass);
        await(&pass, 1, 0);
        ck_assert(!op.done);
        atomic_store(&client.words[word], 1);
    }
    await(&op, 1, 0);
}
END_TEST

/* The memory's bytes are read once the word is there, not before. */
START_TEST(test_bytes_are_read_after_the_word) {
    struct sw_test_op op = {0}, back = {0};
    memset(memory.data, 1, memory.bytes);
    spill_after(f.owner, 8, 1, &op);
    (void)usleep(20000);
    memset(memory.data, 2, memory.bytes); /* the stream's work before it writes the word */
    atomic_store(&client.words[8], 1);
    await(&op, 1, 0);
    memset(memory.data, 0, memory.bytes);
    ck_assert_int_eq(sw_fixture_restore(&f, op.id, &memory, 0, memory.bytes, false, &back), 0);
    for (size_t i = 0; i < memory.bytes; i++)
        ck_assert_uint_eq(memory.data[i], 2);
}
END_TEST

/* The page stays mapped for waiting operations after their session has closed it. */
START_TEST(test_a_page_outlives_its_last_request) {
    struct sw_test_op op = {0};
    spill_after(f.owner, 5, 1, &op);
    sw_order_page_unref(client.page);
    client.page = NULL;
    (void)usleep(10000);
    atomic_store(&client.words[5], 1);
    await(&op, 1, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("orders");
    TCase *pages = tcase_create("pages"), *engine = tcase_create("engine");
    tcase_add_test(pages, test_only_a_sealed_memfd_of_that_length_is_a_page);
    tcase_add_test(pages, test_words_are_found_and_reached);
    tcase_add_test(pages, test_words_in_holes_count_for_the_tenant);
    tcase_add_test(pages, test_an_unmappable_page_leaves_nothing_behind);
    tcase_add_test(pages, test_pauses_grow_with_the_wait_up_to_5_ms);
    tcase_add_test(pages, test_jobs_leave_in_the_order_of_their_words);
    suite_add_tcase(suite, pages);
    tcase_add_checked_fixture(engine, setup, teardown);
    tcase_add_test(engine, test_one_jobs_word_delays_no_other_job);
    tcase_add_test(engine, test_cancel_and_close_need_no_word);
    tcase_add_test(engine, test_a_lost_device_needs_no_word);
    tcase_add_test(engine, test_each_buffer_waits_for_its_own_word);
    tcase_add_test(engine, test_bytes_are_read_after_the_word);
    tcase_add_test(engine, test_a_page_outlives_its_last_request);
    suite_add_tcase(suite, engine);
    return sw_test_run(suite, CK_FORK);
}
