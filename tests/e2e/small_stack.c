/* A service, and the other programs, under a small RLIMIT_STACK (ulimit -s 64): all codecs, both tiers, encryption, and
 * the deepest JSON that is parsed. And how much of their stacks the threads use. */
#include "base/assert.h"
#include "base/thread.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/control.h"
#include "tests/lib/numbers.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { REGION_BYTES = 1 << 18, MAX_JSON_DEPTH = 2048 };
/* A sanitizer's runtime does not fit 64 KiB on the main thread. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SMALL_STACK "ulimit -s 512"
#else
#define SMALL_STACK "ulimit -s 64"
#endif

static struct sw_test_daemon daemon_;
static struct spillway *connection;
static struct spillway_error error;
static char script[SW_TEST_PATH_BYTES], disk[SW_TEST_PATH_BYTES];
static uint8_t *memory, expected[REGION_BYTES];

static void start(void) {
    char directory[80];
    const char *options[] = {directory, "nvme_tier_bytes=16 MiB", "nvme_encrypt=on", NULL};
    sw_test_folder_here(disk);
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", disk);
    sw_test_daemon_script(script, SMALL_STACK " && exec", SW_SPILLWAYD_PATH);
    sw_test_daemon_start(&daemon_, script, options);
    ck_assert_int_eq(spillway_open(&connection, SW_OPTIONS(.socket_path = daemon_.socket), &error), 0);
    const int fd = memfd_create("column", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, REGION_BYTES) == 0);
    memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
}

static void stop(void) {
    spillway_close(connection);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_);
    ck_assert_int_eq(unlink(script), 0);
}

static void finish(int rc, struct spillway_ticket **ticket, struct spillway_result *ret) {
    if (rc == 0)
        rc = spillway_wait(*ticket, SW_TEST_WAIT_MS, ret, ret != NULL, &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    spillway_ticket_free(*ticket);
}

static void go_round(enum spillway_value_type type, bool in_place) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    memcpy(expected, memory, REGION_BYTES);
    struct spillway_request request =
        *SW_REQUEST(SW_ONE_TYPED(memory, REGION_BYTES, type), .flags = in_place ? SPILLWAY_IN_PLACE : 0);
    finish(spillway_spill(connection, &request, 1, &ticket, &error), &ticket, &result);
    request.region = result.region;
    finish(spillway_restore(connection, &request, 1, &ticket, &error), &ticket, NULL);
    ck_assert_mem_eq(memory, expected, REGION_BYTES);
}

/* Sends a line: `before`, many times `open`, many times `close`, and `after`. Takes any answer. */
static void send_nested(struct sw_ctl *ctl, const char *before, const char *open, const char *close,
                        const char *after) {
    enum { DEPTH = MAX_JSON_DEPTH - 8 };
    static char line[16 * MAX_JSON_DEPTH];
    const char *answer;
    struct sw_err err;
    char *at = stpcpy(line, before);
    for (unsigned i = 0; i < DEPTH; i++)
        at = stpcpy(at, open);
    for (unsigned i = 0; i < DEPTH; i++)
        at = stpcpy(at, close);
    (void)stpcpy(at, after);
    ck_assert(sw_ctl_send(ctl, line, &err) == 0 && sw_ctl_receive(ctl, 60000, &answer, &err) == 0);
    ck_assert_msg(strstr(answer, "\"error\""), "%s", answer);
}

/* The most that any thread has touched of a stack as sw_thread_start() makes it, and of the process's own. */
static void measure(uint64_t *ret_thread, uint64_t *ret_main) {
    char line[512];
    char rights[5];
    uint64_t begin, end, kib, bytes = 0, guard_end = 0;
    bool is_main = false, is_guarded = false;
    (void)snprintf(line, sizeof line, "/proc/%d/smaps", (int)daemon_.pid);
    FILE *maps = fopen(line, "re");
    ck_assert_ptr_nonnull(maps);
    *ret_thread = *ret_main = 0;
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%" SCNx64 "-%" SCNx64 " %4s", &begin, &end, rights) == 3) {
            is_guarded = begin == guard_end; /* as all stacks are */
            guard_end = strcmp(rights, "---p") == 0 ? end : 0;
            bytes = end - begin;
            is_main = strstr(line, "[stack]") != NULL;
        } else if (sscanf(line, "Rss: %" SCNu64 " kB", &kib) == 1) {
            uint64_t *most = is_main ? ret_main : is_guarded && bytes == SW_THREAD_STACK_BYTES ? ret_thread : NULL;
            if (most && kib * 1024 > *most)
                *most = kib * 1024;
        }
    }
    (void)fclose(maps);
}

START_TEST(the_library_works_with_a_small_stack) {
    start();
    struct sw_ctl *ctl = sw_control_connect(&daemon_);
    for (int content = 0; content < SW_CONTENT_NR; content++) {
        sw_content_fill(memory, REGION_BYTES, (enum sw_content)content, 7);
        go_round(SPILLWAY_BYTES, false);
        go_round(SPILLWAY_BYTES, true);
    }
    for (unsigned type = SPILLWAY_U8; type <= SPILLWAY_DEC128; type++)
        for (unsigned kind = 0; kind < SW_NUMBERS_NR; kind++) {
            sw_numbers_fill(memory, 0, REGION_BYTES, (enum sw_value_type)type, (enum sw_numbers)kind, 5, 7);
            go_round((enum spillway_value_type)type, kind % 2);
        }
    send_nested(ctl, "", "[", "", "");
    send_nested(ctl, "", "{\"a\":", "", "");
    send_nested(ctl, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"slots\",", "[", "]", "]}");
    json_decref(sw_control_ask(ctl, "stats", NULL));
    uint64_t of_thread, of_main;
    measure(&of_thread, &of_main);
    (void)printf("most of a thread's stack of %d KiB that was used: %" PRIu64 " KiB; of the process's own: %" PRIu64
                 " KiB\n",
                 SW_THREAD_STACK_BYTES / 1024, of_thread / 1024, of_main / 1024);
    ck_assert_uint_gt(of_thread, 0);
    ck_assert_uint_le(of_thread, SW_THREAD_STACK_BYTES / 4 * 3);
    sw_ctl_close(ctl);
    stop();
}
END_TEST

/* Each is run to its end. */
START_TEST(programs_run_with_a_small_stack) {
    static const char *const commands[] = {SW_SPILLWAYCTL_PATH " --socket %s top --once >/dev/null",
                                           SW_SWCODEC_PATH " probe " SW_SPILLWAYD_PATH " >/dev/null # %s",
                                           SW_BENCH_PATH " --socket %s --column l_comment --size 64K --duration 1 "
                                                         ">/dev/null"};
    char command[1024], path[128];
    start();
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        (void)snprintf(path, sizeof path, "%s", i == 0 ? daemon_.control : daemon_.socket);
        const int n = snprintf(command, sizeof command, SMALL_STACK " && ");
        (void)snprintf(command + n, sizeof command - (size_t)n, commands[i], path);
        const int status = system(command);
        ck_assert_msg(status == 0, "%s: %#x", command, (unsigned)status);
    }
    stop();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("small_stack");
    tcase_add_test(tests, the_library_works_with_a_small_stack);
    tcase_add_test(tests, programs_run_with_a_small_stack);
    Suite *suite = suite_create("small_stack");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
