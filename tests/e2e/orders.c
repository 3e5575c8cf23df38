/* Requests that wait for words of their client's order page, by wire, to a real daemon: pages and words that are none
 * get their named error, a client that never writes holds up itself alone, and nothing stays behind. */
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/wired.h"
#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE_BYTES = 4096, WORDS = PAGE_BYTES / 8, SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static _Atomic uint64_t *map_words(int fd) {
    void *words = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(words, MAP_FAILED);
    return words;
}

static int send_page(struct sw_wire *wire, int fd, unsigned n_fds, uint64_t bytes) {
    const int fds[] = {fd, fd};
    struct sw_msg msg = {.header.type = SW_MSG_ORDER_PAGE, .u.order_page.bytes = bytes};
    return sw_wire_call(wire, &msg, fds, n_fds);
}

static struct sw_msg spill_after(uint32_t mem, uint32_t word, uint64_t value) {
    struct sw_msg msg = sw_wire_spill_msg(mem, 0, SW_WIRED_BYTES);
    msg.u.spill.flags = SW_REQ9_ORDER;
    msg.u.spill.order_word = word;
    msg.u.spill.order_value = value;
    return msg;
}

static int spill_code(uint32_t word, uint64_t value) {
    struct sw_msg msg = spill_after(1, word, value);
    return sw_wire_call(&sw_wired, &msg, NULL, 0);
}

static void hand_over_memory(struct sw_wire *wire) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(wire, 1, fd, SW_WIRED_BYTES, false), 0);
    (void)close(fd);
}

/* Requests that wait by a refused page get the page's error, until there is a good one. */
START_TEST(invalid_order_pages_are_refused) {
    static const struct {
        int code, seals;
        off_t file_bytes;
        uint64_t bytes;
        unsigned n_fds;
    } cases[] = {{-SW_EFDS, SEALS, PAGE_BYTES, PAGE_BYTES, 0},
                 {-SW_EFDS, SEALS, PAGE_BYTES, PAGE_BYTES, 2},
                 {-SW_EUNSEALED, F_SEAL_SHRINK, PAGE_BYTES, PAGE_BYTES, 1},
                 {-SW_EUNSEALED, F_SEAL_GROW, PAGE_BYTES, PAGE_BYTES, 1},
                 {-SW_ERANGE, SEALS, PAGE_BYTES, 2 * PAGE_BYTES, 1},
                 {-SW_ERANGE, SEALS, 16 * PAGE_BYTES + 8, 16 * PAGE_BYTES + 8, 1}};
    hand_over_memory(&sw_wired);
    ck_assert_int_eq(spill_code(0, 1), -SW_EINVAL); /* there is no page */
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int fd = sw_wire_memfd(NULL, (size_t)cases[i].file_bytes, cases[i].seals);
        ck_assert_int_eq(send_page(&sw_wired, fd, cases[i].n_fds, cases[i].bytes), cases[i].code);
        ck_assert_int_eq(spill_code(0, 1), cases[i].code);
        (void)close(fd);
    }
    ck_assert_int_eq(send_page(&sw_wired, sw_wired.socket, 1, PAGE_BYTES), -SW_EFDS);
    const int fd = sw_wire_memfd(NULL, PAGE_BYTES, SEALS);
    ck_assert_int_eq(send_page(&sw_wired, fd, 1, PAGE_BYTES), 0);
    ck_assert_int_eq(spill_code(WORDS, 1), -SW_ERANGE);
    ck_assert_int_eq(spill_code(UINT32_MAX, 1), -SW_ERANGE);
    ck_assert_int_eq(spill_code(0, 0), -SW_EINVAL);
    atomic_store(&map_words(fd)[WORDS - 1], 1);
    ck_assert_int_eq(spill_code(WORDS - 1, 1), 0);
    (void)close(fd);
}
END_TEST

/* This holds for every kind of request. */
START_TEST(requests_wait_for_their_words) {
    const int fd = sw_wire_memfd(NULL, PAGE_BYTES, SEALS), other = sw_wire_memfd(NULL, PAGE_BYTES, SEALS);
    _Atomic uint64_t *const words = map_words(fd), *const other_words = map_words(other);
    struct sw_msg msgs[4], reply;
    uint32_t seqs[4];
    hand_over_memory(&sw_wired);
    ck_assert_int_eq(send_page(&sw_wired, fd, 1, PAGE_BYTES), 0);
    msgs[0] = spill_after(1, 10, 1);
    msgs[1] = sw_wire_spill_batch_msg(1, 3, 1000);
    msgs[1].u.spill_batch.flags = SW_REQ9_ORDER;
    msgs[1].u.spill_batch.order_word = 11;
    msgs[1].u.spill_batch.order_value = 1;
    sw_msg_init(&msgs[2], SW_MSG_SPILL_BUFFERS);
    msgs[2].u.spill_buffers.count = 2;
    for (int i = 0; i < 2; i++) {
        msgs[2].u.spill_buffers.mem[i] = 1;
        msgs[2].u.spill_buffers.bytes[i] = 1000;
    }
    msgs[2].u.spill_buffers.waits[1] = 1;
    msgs[2].u.spill_buffers.order_word[1] = 12;
    msgs[2].u.spill_buffers.order_value[1] = 1;
    sw_msg_init(&msgs[3], SW_MSG_SPILL_DURABLE);
    msgs[3].u.spill_durable = (struct sw_msg_spill_durable){
        .mem = 1, .flags = SW_REQ9_ORDER, .bytes = 1000, .order_word = 13, .order_value = 1, .name = "waits"};
    for (int i = 0; i < 4; i++)
        seqs[i] = sw_wire_send(&sw_wired, &msgs[i], NULL, 0);
    ck_assert_int_eq(send_page(&sw_wired, other, 1, PAGE_BYTES), 0); /* later requests are about this one */
    (void)usleep(30000);
    for (int i = 3; i >= 0; i--) {
        struct sw_region_id id;
        ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, 0, SW_WIRED_BYTES, &id), 0); /* and no other reply has come */
        atomic_store(&words[10 + i], 1);
        ck_assert_int_eq(sw_wire_await(&sw_wired, seqs[i], &reply), 0);
        if (i == 3)
            ck_assert_int_eq(sw_wire_drop(&sw_wired, (struct sw_region_id){reply.u.result.slot, reply.u.result.gen}),
                             0);
    }
    atomic_store(&other_words[0], 5);
    ck_assert_int_eq(spill_code(0, 5), 0);
    (void)close(fd);
    (void)close(other);
}
END_TEST

enum { SESSIONS = 32, EACH = 8 };

/* Sessions that queue all that they may, behind words that never come. */
static void queue_for_ever(struct sw_wire wires[SESSIONS]) {
    const int fd = sw_wire_memfd(NULL, PAGE_BYTES, SEALS);
    for (unsigned i = 0; i < SESSIONS; i++) {
        sw_wire_open(&wires[i], sw_wired_daemon.socket);
        hand_over_memory(&wires[i]);
        ck_assert_int_eq(send_page(&wires[i], fd, 1, PAGE_BYTES), 0);
        for (uint32_t k = 0; k < EACH; k++) {
            struct sw_msg msg = spill_after(1, i * EACH + k, 1);
            (void)sw_wire_send(&wires[i], &msg, NULL, 0);
        }
    }
    (void)close(fd);
}

/* Other clients are served meanwhile, and the sessions end when they hang up, also those of a stopped process. */
START_TEST(a_word_that_is_never_written_delays_no_other_client) {
    struct sw_wire wires[SESSIONS];
    int status;
    const pid_t stopped = fork();
    ck_assert_int_ge(stopped, 0);
    queue_for_ever(wires);
    if (stopped == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)raise(SIGSTOP);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(stopped, &status, WUNTRACED), stopped);
    ck_assert(WIFSTOPPED(status));
    for (uint64_t seed = 1; seed <= 5; seed++)
        sw_wired_ck_restores(sw_wired_spill(seed), seed);
    ck_assert_int_eq(kill(stopped, SIGKILL), 0);
    ck_assert_int_eq(waitpid(stopped, NULL, 0), stopped);
    for (unsigned i = 0; i < SESSIONS; i++)
        sw_wire_close(&wires[i]);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("orders");
    tcase_add_unchecked_fixture(tests, sw_wired_start, sw_wired_stop);
    tcase_add_checked_fixture(tests, sw_wired_before_each, sw_wired_after_each);
    tcase_add_test(tests, invalid_order_pages_are_refused);
    tcase_add_test(tests, requests_wait_for_their_words);
    tcase_add_test(tests, a_word_that_is_never_written_delays_no_other_client);
    Suite *suite = suite_create("orders");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
