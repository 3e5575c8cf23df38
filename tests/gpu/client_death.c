/* client_death.c - clients with GPU memory of every kind that are killed while they spill, restore, pack, move batches
 * of a registered block or just have regions: afterwards the service holds what it held, and the GPU has as much free
 * memory; what another client has parked is whole.
 *
 * client_death [CYCLES [SPILLWAYD]]: so many deaths, 96 by default; several clients at a time, since it takes each a
 * third of a second to begin with CUDA: one for each core. The clients alone touch it. Nobody else may use the GPU.
 * $SW_TEST_HOST=1: on the host device with memfds, to try the test itself. */
#include "base/assert.h"
#include "base/clock.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/parked.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

/* A client's memory is 6 MiB of chunks of 1 MiB, so that it is met in the middle of an operation. */
enum {
    BYTES = (6 << 20) + 321,
    PIECES = 64,
    PIECE_BYTES = 20011,
    MOST_AT_ONCE = 16,
    MAX_DELAY_US = 12000,
    SETTLE_MS = 30000
};
/* What the driver may take for itself; a single client's memory that stayed would be as much. */
#define TOLERANCE_BYTES ((uint64_t)4 << 20)

static unsigned cycles = 96, at_once = 4;
static const char *program = SW_SPILLWAYD_PATH;
static bool on_host;
static struct sw_test_daemon daemon_process;
static struct spillway_error error;

/* ---- clients that die -------------------------------------------------------------------------------------------- */

struct client {
    struct spillway *connection;
    enum sw_buffer_kind kind;
    struct sw_parked memory;
};

static void spilling(struct client *c) {
    for (;;) {
        SW_ASSERT(sw_parked_spill(c->connection, &c->memory) == 0);
        MUST(spillway_drop(c->connection, c->memory.region, &error) == 0, &error);
    }
}

static void restoring(struct client *c) {
    SW_ASSERT(sw_parked_spill(c->connection, &c->memory) == 0);
    for (;;)
        SW_ASSERT(sw_parked_restore(c->connection, &c->memory, true) == 0);
}

static void packing(struct client *c) {
    for (;;)
        SW_ASSERT(sw_parked_pack(c->connection, &c->memory) == 0 && sw_parked_unpack(c->connection, &c->memory) == 0);
}

static void batches(struct client *c) {
    struct spillway_piece pieces[PIECES];
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < PIECES; i++)
        pieces[i] = (struct spillway_piece){.data = (uint8_t *)c->memory.buffer->data + (size_t)i * PIECE_BYTES,
                                            .bytes = PIECE_BYTES};
    MUST(spillway_register(c->connection, c->memory.buffer->data, BYTES, &error) == 0, &error);
    for (;;) {
        MUST(spillway_spill_batch(c->connection, pieces, PIECES, NULL, &ticket, &error) == 0, &error);
        MUST(spillway_wait(ticket, -1, NULL, &error) == 0, &error);
        spillway_ticket_free(ticket);
        MUST(spillway_restore_batch(c->connection, pieces, PIECES, NULL, 0, &ticket, &error) == 0, &error);
        MUST(spillway_wait(ticket, -1, NULL, &error) == 0, &error);
        spillway_ticket_free(ticket);
    }
}

static void parked_and_packed(struct client *c) {
    struct sw_parked other;
    sw_parked_init(&other, c->kind, BYTES, SW_CONTENT_TEXT);
    SW_ASSERT(sw_parked_spill(c->connection, &c->memory) == 0 && sw_parked_pack(c->connection, &other) == 0);
    for (;;)
        (void)pause();
}

static const struct {
    const char *name;
    void (*live)(struct client *c); /* until it is killed */
} states[] = {{"spilling", spilling},
              {"restoring", restoring},
              {"packing and unpacking", packing},
              {"batches of a registered block", batches},
              {"regions parked and packed", parked_and_packed}};
enum { N_STATES = sizeof states / sizeof states[0] };

static enum sw_buffer_kind kind_of(unsigned i) {
    return on_host ? SW_BUFFER_MEMFD
                   : (enum sw_buffer_kind)(SW_BUFFER_CUDA_MALLOC + i % (SW_BUFFER_KIND_NR - SW_BUFFER_CUDA_MALLOC));
}

static __attribute__((noreturn)) void client_main(unsigned i, int ready, pid_t parent) {
    struct client c = {.kind = kind_of(i / N_STATES)};
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    sw_parked_init(&c.memory, c.kind, BYTES, i);
    MUST(spillway_open(&c.connection, daemon_process.socket, &error) == 0, &error);
    SW_ASSERT(write(ready, "x", 1) == 1);
    states[i % N_STATES].live(&c);
    _exit(3);
}

struct life {
    pid_t pid;
    int ready;
};

static struct life begin(unsigned i) {
    int fds[2];
    ck_assert_int_eq(pipe2(fds, O_CLOEXEC), 0);
    const pid_t parent = getpid();
    const struct life life = {.pid = fork(), .ready = fds[0]};
    ck_assert_int_ge(life.pid, 0);
    if (life.pid == 0)
        client_main(i, fds[1], parent);
    (void)close(fds[1]);
    return life;
}

static void end(const struct life *life, unsigned i, uint64_t *random) {
    int status;
    char byte;
    ck_assert_msg(read(life->ready, &byte, 1) == 1, "a client that is %s ended by itself", states[i % N_STATES].name);
    (void)close(life->ready);
    sleep_us(sw_random(random) % MAX_DELAY_US);
    ck_assert_int_eq(waitpid(life->pid, &status, WNOHANG), 0);
    (void)kill(life->pid, SIGKILL);
    ck_assert_int_eq(waitpid(life->pid, &status, 0), life->pid);
}

static void live_and_die(unsigned from, unsigned n, uint64_t *random) {
    struct life lives[MOST_AT_ONCE];
    for (unsigned done = 0; done < n;) {
        unsigned k = 0;
        for (; k < at_once && done + k < n; k++)
            lives[k] = begin(from + done + k);
        for (unsigned i = 0; i < k; i++)
            end(&lives[i], from + done + i, random);
        done += k;
    }
}

/* ---- one that lives ---------------------------------------------------------------------------------------------- */

/* Shared with it: it says how much memory the GPU has free, and compares what it has parked, when asked. */
static struct shared {
    atomic_uint asked, answered;
    atomic_ulong free_bytes;
    atomic_bool stop;
} * shared;
static pid_t witness;

static __attribute__((noreturn)) void witness_main(pid_t parent) {
    struct spillway *connection;
    struct sw_parked parked;
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    MUST(spillway_open(&connection, daemon_process.socket, &error) == 0, &error);
    sw_parked_init(&parked, kind_of(0), BYTES, SW_CONTENT_MIXED);
    SW_ASSERT(sw_parked_spill(connection, &parked) == 0);
    while (!atomic_load(&shared->stop)) {
        const unsigned asked = atomic_load(&shared->asked);
        if (atomic_load(&shared->answered) != asked) {
            SW_ASSERT(sw_parked_restore(connection, &parked, true) == 0);
            atomic_store(&shared->free_bytes, sw_buffer_free_bytes());
            atomic_store(&shared->answered, asked);
        }
        sleep_us(1000);
    }
    SW_ASSERT(sw_parked_restore(connection, &parked, false) == 0);
    spillway_close(connection);
    _exit(0);
}

static uint64_t ask(void) {
    const unsigned asked = atomic_fetch_add(&shared->asked, 1) + 1;
    while (atomic_load(&shared->answered) != asked) {
        siginfo_t info = {0};
        ck_assert_int_eq(waitid(P_PID, (id_t)witness, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        ck_assert_msg(info.si_pid == 0, "the client that lives has died; it says above, why");
        sleep_us(500);
    }
    return atomic_load(&shared->free_bytes);
}

static void ck_free_bytes(uint64_t before) {
    const uint64_t begun_us = sw_clock_us();
    uint64_t now;
    while ((now = ask()) + TOLERANCE_BYTES < before) {
        ck_assert_msg(sw_clock_us() - begun_us < SETTLE_MS * 1000ull, "%llu bytes of the GPU are free, were %llu",
                      (unsigned long long)now, (unsigned long long)before);
        sleep_us(10000);
    }
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void start(void) {
    static const char *const gpu[] = {"device=cuda", "chunk_bytes=1 MiB", "host_tier_bytes=128 MiB",
                                      "host_tier_initial_bytes=128 MiB", NULL};
    const char *const *options = on_host ? gpu + 1 : gpu;
    sw_test_daemon_start(&daemon_process, program, options);
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    const pid_t parent = getpid();
    witness = fork();
    ck_assert_int_ge(witness, 0);
    if (witness == 0)
        witness_main(parent);
    (void)ask();
}

static void stop(void) {
    int status = -1;
    atomic_store(&shared->stop, true);
    ck_assert_int_eq(waitpid(witness, &status, 0), witness);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
    (void)munmap(shared, sizeof *shared);
}

START_TEST(clients_die_and_no_memory_stays) {
    const unsigned once = N_STATES * (SW_BUFFER_KIND_NR - SW_BUFFER_CUDA_MALLOC); /* every state with every kind */
    uint64_t random = 42;
    struct sw_sound before;
    start();
    live_and_die(0, once, &random); /* what is taken for good is taken */
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 100000, 1));
    sw_sound_take(&daemon_process, &before);
    const uint64_t free_bytes = ask();
    for (unsigned done = once; done < cycles; done += once) {
        live_and_die(done, once < cycles - done ? once : cycles - done, &random);
        const char *wrong = sw_sound_check(&daemon_process, &before);
        ck_assert_msg(!wrong, "after %u deaths: %s", done + once, wrong);
        ck_free_bytes(free_bytes);
    }
    printf("%u clients with %s memory killed; %lld bytes of the GPU less are free\n", cycles, on_host ? "memfd" : "GPU",
           (long long)(free_bytes - ask()));
    (void)fflush(stdout);
    stop();
}
END_TEST

int main(int argc, char **argv) {
    on_host = getenv("SW_TEST_HOST") != NULL;
    cycles = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : cycles;
    program = argc > 2 ? argv[2] : program;
    if (!on_host && sw_parked_usable_kinds() < SW_BUFFER_KIND_NR) {
        (void)puts("skipped: no GPU that can be used");
        return 77;
    }
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    at_once = cores > MOST_AT_ONCE ? MOST_AT_ONCE : cores > at_once ? (unsigned)cores : at_once;
    Suite *suite = suite_create("gpu client_death");
    TCase *tcase = tcase_create("client_death");
    tcase_set_timeout(tcase, argc > 1 ? 36000 : 280);
    tcase_add_test(tcase, clients_die_and_no_memory_stays);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
