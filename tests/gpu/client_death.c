/* client_death.c - clients with GPU memory of every kind that are killed while they spill, restore, pack, move batches
 * of a registered block or just have regions: afterwards the service holds what it held, and the GPU has as much free
 * memory; what another client has parked is whole.
 *
 * client_death [CYCLES [SPILLWAYD]]: so many deaths, 96 by default; several clients at a time, since it takes each a
 * third of a second to begin with CUDA: one for each core. The clients alone touch it. Nobody else may use the GPU.
 * $SW_TEST_HOST=1: on the host device with memfds, to try the test itself. */
#include "base/assert.h"
#include "tests/lib/child.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/parked.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/witness.h"

#include <check.h>
#include <signal.h>
#include <unistd.h>

/* A client's memory is 6 MiB of chunks of 1 MiB, so that it is met in the middle of an operation. */
enum { BYTES = (6 << 20) + 321, N_BUFFERS = 64, BUFFER_BYTES = 20011 };

static unsigned cycles = 96;
static const char *program = SW_SPILLWAYD_PATH;
static bool on_host;
static struct sw_test_daemon daemon_process;
static struct sw_witness witness;
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
        MUST(spillway_drop(c->connection, &c->memory.region, 1, &error) == 0, &error);
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
    struct spillway_buffer buffers[N_BUFFERS];
    struct spillway_request spills[N_BUFFERS] = {0}, restores[N_BUFFERS];
    struct spillway_result results[N_BUFFERS] = {{.size = sizeof *results}};
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < N_BUFFERS; i++)
        buffers[i] = (struct spillway_buffer){.data = (uint8_t *)c->memory.buffer->data + (size_t)i * BUFFER_BYTES,
                                              .bytes = BUFFER_BYTES};
    sw_requests_of_each(spills, buffers, N_BUFFERS);
    memcpy(restores, spills, sizeof restores);
    MUST(spillway_register(c->connection, c->memory.buffer->data, BYTES, &error) == 0, &error);
    for (;;) {
        MUST(spillway_spill(c->connection, spills, N_BUFFERS, &ticket, &error) == 0, &error);
        MUST(spillway_wait(ticket, -1, results, N_BUFFERS, &error) == 0, &error);
        spillway_ticket_free(ticket);
        sw_requests_take_regions(restores, results, N_BUFFERS);
        MUST(spillway_restore(c->connection, restores, N_BUFFERS, &ticket, &error) == 0, &error);
        MUST(spillway_wait(ticket, -1, NULL, 0, &error) == 0, &error);
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

static void live(unsigned i, int socket) {
    struct client c = {.kind = kind_of(i / N_STATES)};
    sw_parked_init(&c.memory, c.kind, BYTES, i);
    MUST(spillway_open(&c.connection, SW_OPTIONS(.socket_path = daemon_process.socket), &error) == 0, &error);
    sw_mortal_is_there(socket);
    states[i % N_STATES].live(&c);
}

static const char *doing(unsigned i) {
    return states[i % N_STATES].name;
}

static struct sw_mortals mortals = {.live = live, .doing = doing, .max_delay_us = 12000};

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void start(void) {
    static const char *const gpu[] = {"device=cuda", "chunk_bytes=1 MiB", "host_tier_bytes=128 MiB",
                                      "host_tier_initial_bytes=128 MiB", NULL};
    const char *const *options = on_host ? gpu + 1 : gpu;
    sw_test_daemon_start(&daemon_process, program, options);
    witness = sw_witness_begin(daemon_process.socket, kind_of(0), BYTES);
}

static void stop(void) {
    sw_witness_end(&witness);
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
}

START_TEST(clients_die_and_no_memory_stays) {
    const unsigned once = N_STATES * (SW_BUFFER_KIND_NR - SW_BUFFER_CUDA_MALLOC); /* every state with every kind */
    uint64_t random = 42;
    struct sw_sound before;
    start();
    sw_mortals_die(&mortals, 0, once, &random); /* lasting allocations are made */
    ck_assert_ptr_null(sw_sound_round_trip(&daemon_process, 100000, 1));
    sw_sound_take(&daemon_process, &before);
    const uint64_t free_bytes = sw_witness_ask(&witness);
    for (unsigned done = once; done < cycles; done += once) {
        sw_mortals_die(&mortals, done, once < cycles - done ? once : cycles - done, &random);
        const char *wrong = sw_sound_check(&daemon_process, &before);
        ck_assert_msg(!wrong, "after %u deaths: %s", done + once, wrong);
        sw_witness_check_free(&witness, free_bytes);
    }
    printf("%u clients with %s memory killed; %lld bytes of the GPU less are free\n", cycles, on_host ? "memfd" : "GPU",
           (long long)(free_bytes - sw_witness_ask(&witness)));
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
    mortals.at_once = sw_mortals_for_cores(4);
    Suite *suite = suite_create("gpu client_death");
    TCase *tcase = tcase_create("client_death");
    tcase_set_timeout(tcase, argc > 1 ? 36000 : 280);
    tcase_add_test(tcase, clients_die_and_no_memory_stays);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
