/* Clients are killed in every state. Their resources are free within a second, regions of other clients are whole, and
 * after many deaths the daemon holds as much as before.
 *
 * client_death [CYCLES [WORD]]: so many deaths in a row, 200 by default; the states take turns, those whose name
 * contains the word, or all. The last lines say how often each state was met, and how long the slowest return took. */
#include "ipc/spillway.h"
#include "tests/lib/child.h"
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/wire.h"
#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* A client's memory is 6 MiB of chunks of 1 MiB: half a dozen deaths fit into one operation. */
enum {
    BYTES = 6 << 20,
    WITNESSES = 3,
    WITNESS_BYTES = 3 << 20,
    PIECES = 64,
    PIECE_BYTES = 20000,
    WARM_CYCLES = 60,
    WITHIN_MS = 1000,
    MAX_GROWN_KIB = 4096
};

static unsigned cycles = 200;
static struct sw_test_daemon daemon_process;
static struct sw_nvme_folder folder;
static int text_fd; /* content that every client spills; nothing else is ever written to it */

/* ---- clients ----------------------------------------------------------------------------------------------------- */

struct client {
    struct sw_wire wire;
    int socket; /* to the test */
};

static void there(const struct client *c) {
    sw_mortal_is_there(c->socket);
}

static __attribute__((noreturn)) void wait_for_death(const struct client *c) {
    there(c);
    for (;;)
        (void)pause();
}

static void send_spill(struct client *c, bool in_place) {
    struct sw_msg msg = sw_wire_spill_msg(1, 0, BYTES);
    msg.u.spill.flags = in_place ? SW_REQ9_IN_PLACE : 0;
    (void)sw_wire_send(&c->wire, &msg, NULL, 0);
}

static void send_restore(struct client *c, struct sw_region_id id, bool in_place) {
    struct sw_msg msg = sw_wire_restore_msg(id, 1, 0, BYTES);
    msg.u.restore.flags = in_place ? SW_REQ9_IN_PLACE : SW_REQ9_KEEP;
    (void)sw_wire_send(&c->wire, &msg, NULL, 0);
}

static struct sw_region_id result(struct client *c) {
    struct sw_msg msg;
    if (sw_wire_receive(&c->wire, &msg) != 1 || msg.header.type != SW_MSG_RESULT)
        _exit(3);
    return (struct sw_region_id){.slot = msg.u.result.slot, .gen = msg.u.result.gen};
}

static void connected(struct client *c) {
    sw_wire_close(&c->wire);
    (void)sw_wire_connect(&c->wire, daemon_process.socket);
}

static void greeted(struct client *c) {
    (void)c;
}

static void half_announced(struct client *c) {
    (void)sw_wire_mem_open(&c->wire, 1, SW_MEM_CUDA_VMM, 4, 0, (uint64_t)4 * 4096);
    (void)sw_wire_mem_parts(&c->wire, 1, 0, 2, 4096, text_fd, 2);
}

static void register_own(struct client *c) {
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 2, F_SEAL_SHRINK);
    (void)sw_wire_mem(&c->wire, 1, fd, BYTES, false);
}

static void registered(struct client *c) {
    (void)sw_wire_mem(&c->wire, 1, text_fd, BYTES, false);
}

static void spilling(struct client *c) {
    registered(c);
    there(c);
    for (;;) {
        send_spill(c, false);
        send_spill(c, false);
        (void)result(c);
        (void)result(c);
    }
}

static void restoring(struct client *c) {
    register_own(c);
    send_spill(c, false);
    const struct sw_region_id id = result(c);
    there(c);
    for (;;) {
        send_restore(c, id, false);
        (void)result(c);
    }
}

/* Pack, unpack, without end: both are met. */
static void packing(struct client *c) {
    register_own(c);
    there(c);
    for (;;) {
        send_spill(c, true);
        const struct sw_region_id id = result(c);
        send_restore(c, id, true);
        (void)result(c);
    }
}

static void packed(struct client *c) {
    register_own(c);
    send_spill(c, true);
    (void)result(c);
}

static void batches(struct client *c) {
    struct sw_region_id ids[PIECES];
    register_own(c);
    there(c);
    for (;;) {
        if (sw_wire_spill_batch(&c->wire, 1, PIECES, PIECE_BYTES, ids) < 0)
            _exit(3);
        struct sw_msg msg = sw_wire_restore_batch_msg(1, ids, PIECES, PIECE_BYTES);
        if (sw_wire_call(&c->wire, &msg, NULL, 0) < 0)
            _exit(3);
    }
}

/* A client of the library, with memory that cannot be shared. */
struct engine {
    struct spillway *connection;
    uint8_t *data;
    struct spillway_result result;
};

static void finish(struct spillway_ticket *ticket, struct spillway_result *ret) {
    struct spillway_error error;
    if (spillway_wait(ticket, -1, ret, 1, &error) < 0)
        _exit(3);
    spillway_ticket_free(ticket);
}

static void engine_spill(struct engine *e) {
    struct spillway_error error;
    struct spillway_ticket *ticket;
    e->result.size = sizeof e->result;
    if (spillway_spill(e->connection, SW_REQUEST(SW_ONE(e->data, BYTES)), 1, &ticket, &error) < 0)
        _exit(3);
    finish(ticket, &e->result);
}

static void engine_restore(struct engine *e, unsigned flags) {
    struct spillway_error error;
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    if (spillway_restore(e->connection, SW_REQUEST(SW_ONE(e->data, BYTES), .region = e->result.region, .flags = flags),
                         1, &ticket, &error) < 0)
        _exit(3);
    finish(ticket, &result);
}

static struct engine engine_open(uint32_t flags) {
    struct engine e = {.data = malloc(BYTES)};
    struct spillway_error error;
    if (!e.data ||
        spillway_open(&e.connection, SW_OPTIONS(.socket_path = daemon_process.socket, .flags = flags), &error) < 0)
        _exit(3);
    sw_content_fill(e.data, BYTES, SW_CONTENT_TEXT, 3);
    return e;
}

/* Memory that cannot be shared is copied block by block through the library's arena. */
static void staging(struct client *c) {
    struct engine e = engine_open(SPILLWAY_CODEC_SERVICE);
    there(c);
    for (;;) {
        engine_spill(&e);
        engine_restore(&e, 0);
    }
}

/* An engine that encodes and decodes itself. Its first spill has made its coder. */
static struct engine open_coding(void) {
    struct engine e = engine_open(SPILLWAY_CODEC_CLIENT);
    engine_spill(&e);
    if (strcmp(e.result.coder, "client") != 0)
        _exit(3);
    return e;
}

static void encoding(struct client *c) {
    struct spillway_error error;
    struct engine e = open_coding();
    there(c);
    for (;;) {
        if (spillway_drop(e.connection, &e.result.region, 1, &error) < 0)
            _exit(3);
        engine_spill(&e);
    }
}

static void decoding(struct client *c) {
    struct engine e = open_coding();
    there(c);
    for (;;)
        engine_restore(&e, SPILLWAY_KEEP);
}

/* The same with many short regions, which go together. */
static void engine_batch(struct engine *e, struct spillway_region *regions, bool is_spill, unsigned flags) {
    struct spillway_buffer buffers[PIECES];
    struct spillway_request requests[PIECES] = {0};
    static struct spillway_result results[PIECES];
    struct spillway_error error;
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < PIECES; i++)
        buffers[i] = (struct spillway_buffer){.data = e->data + (size_t)i * PIECE_BYTES, .bytes = PIECE_BYTES};
    sw_requests_of_each(requests, buffers, PIECES);
    for (unsigned i = 0; i < PIECES; i++) {
        requests[i].region = is_spill ? (struct spillway_region){0} : regions[i];
        requests[i].flags = flags;
    }
    results[0].size = sizeof results[0];
    if ((is_spill ? spillway_spill : spillway_restore)(e->connection, requests, PIECES, &ticket, &error) < 0 ||
        spillway_wait(ticket, -1, results, PIECES, &error) < 0 || strcmp(results[0].coder, "client") != 0)
        _exit(3);
    spillway_ticket_free(ticket);
    for (unsigned i = 0; i < PIECES; i++)
        regions[i] = results[i].region;
}

static void moving_batches(struct client *c) {
    struct spillway_region regions[PIECES];
    struct engine e = open_coding();
    there(c);
    for (;;) {
        engine_batch(&e, regions, true, 0);
        engine_batch(&e, regions, false, SPILLWAY_KEEP);
        engine_batch(&e, regions, false, 0);
    }
}

static void unread_replies(struct client *c) {
    struct sw_msg msg = {.header = {.version = c->wire.version, .type = SW_MSG_STATUS}};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    registered(c);
    send_spill(c, false);
    (void)fcntl(c->wire.socket, F_SETFL, O_NONBLOCK);
    for (int refused = 0; refused < 3;) {
        msg.header.seq = ++c->wire.seq;
        const bool sent = sw_packet_send(c->wire.socket, packet, sw_msg_encode(&msg, packet), NULL, 0) == 0;
        refused = sent ? 0 : refused + 1;
        if (!sent)
            (void)usleep(1000);
    }
}

static void with_regions(struct client *c) {
    registered(c);
    for (int i = 0; i < 4; i++) {
        send_spill(c, false);
        (void)result(c);
    }
}

static const struct {
    const char *name;
    void (*get_there)(struct client *c); /* returns, or goes on until it is killed */
} states[] = {
    {"connected", connected},
    {"greeted", greeted},
    {"memory half announced", half_announced},
    {"memory registered", registered},
    {"spilling", spilling},
    {"restoring", restoring},
    {"packing and unpacking", packing},
    {"packed", packed},
    {"batches", batches},
    {"staging", staging},
    {"encoding itself", encoding},
    {"decoding itself", decoding},
    {"moving batches itself", moving_batches},
    {"replies unread", unread_replies},
    {"with regions in both tiers", with_regions},
};
enum { N_STATES = sizeof states / sizeof states[0] };

static const char *word = "";

/* The state of death i. */
static unsigned state_of(unsigned i) {
    unsigned chosen[N_STATES], n = 0;
    for (unsigned s = 0; s < N_STATES; s++)
        if (strstr(states[s].name, word))
            chosen[n++] = s;
    ck_assert_msg(n > 0, "no state's name contains \"%s\"", word);
    return chosen[i % n];
}

static void live(unsigned i, int socket) {
    struct client c = {.socket = socket};
    sw_wire_open(&c.wire, daemon_process.socket);
    states[state_of(i)].get_there(&c);
    wait_for_death(&c);
}

static const char *doing(unsigned i) {
    return states[state_of(i)].name;
}

/* ---- what they leave --------------------------------------------------------------------------------------------- */

struct held {
    unsigned fds, sessions, regions;
    uint64_t tier_bytes, nvme_bytes, mapped;
};

static struct held look(struct sw_wire *wire) {
    struct sw_msg_status_ok status;
    ck_assert_int_eq(sw_wire_status(wire, &status), 0);
    return (struct held){.fds = sw_test_daemon_fds(&daemon_process),
                         .sessions = status.sessions,
                         .regions = status.regions,
                         .tier_bytes = status.tier_used_bytes,
                         .nvme_bytes = status.nvme_used_bytes,
                         .mapped = status.mapped_memories};
}

static bool is_same(const struct held *a, const struct held *b) {
    /* The witnesses' regions may be moved between the tiers. */
    return a->fds == b->fds && a->sessions == b->sessions && a->regions == b->regions && a->mapped == b->mapped &&
           a->tier_bytes + a->nvme_bytes == b->tier_bytes + b->nvme_bytes;
}

/* The service closes descriptors of clients in threads of their own. Returns what it holds once nothing of that has
 * changed for 100 ms. */
static struct held look_when_quiet(struct sw_wire *wire) {
    struct held held = look(wire);
    for (unsigned same = 0; same < 50;) {
        (void)usleep(2000);
        const struct held now = look(wire);
        same = is_same(&now, &held) ? same + 1 : 0;
        held = now;
    }
    return held;
}

static uint64_t now_ms(void) {
    struct timespec now;
    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

/* Milliseconds until everything is back. Under a sanitizer, or beside other tests, a second is no measure: then it only
 * has to come back. */
static uint64_t await_return(struct sw_wire *wire, const struct held *before, const char *state) {
    const uint64_t begun = now_ms();
    struct held now;
    while (now = look(wire), !is_same(&now, before)) {
        ck_assert_msg(now_ms() - begun < 60000,
                      "after a client that was %s: fds %u %u, sessions %u %u, regions %u %u, tier %" PRIu64 " %" PRIu64
                      ", nvme %" PRIu64 " %" PRIu64 ", mapped %" PRIu64 " %" PRIu64,
                      state, before->fds, now.fds, before->sessions, now.sessions, before->regions, now.regions,
                      before->tier_bytes, now.tier_bytes, before->nvme_bytes, now.nvme_bytes, before->mapped,
                      now.mapped);
        (void)usleep(1000);
    }
    return now_ms() - begun;
}

/* ---- another client, that lives ---------------------------------------------------------------------------------- */

static struct sw_wire witness;
static struct sw_region_id parked[WITNESSES];
static int witness_fd;

static void park(void) {
    sw_wire_open(&witness, daemon_process.socket);
    for (unsigned i = 0; i < WITNESSES; i++) {
        const int fd = sw_wire_content_memfd(WITNESS_BYTES, SW_CONTENT_RANDOM, 10 + i, F_SEAL_SHRINK);
        ck_assert_int_eq(sw_wire_mem(&witness, 100 + i, fd, WITNESS_BYTES, true), 0);
        ck_assert_int_eq(sw_wire_spill(&witness, 100 + i, 0, WITNESS_BYTES, &parked[i]), 0);
        (void)close(fd);
    }
    witness_fd = sw_wire_memfd(NULL, WITNESS_BYTES, F_SEAL_SHRINK);
}

static void check_parked(void) {
    for (unsigned i = 0; i < WITNESSES; i++) {
        struct sw_msg msg = sw_wire_restore_msg(parked[i], 200, 0, WITNESS_BYTES);
        msg.u.restore.flags = SW_REQ9_KEEP;
        ck_assert_int_eq(sw_wire_mem(&witness, 200, witness_fd, WITNESS_BYTES, true), 0);
        ck_assert_int_eq(sw_wire_call(&witness, &msg, NULL, 0), 0);
        ck_assert(sw_wire_memfd_holds(witness_fd, WITNESS_BYTES, SW_CONTENT_RANDOM, 10 + i));
    }
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void start(void) {
    char directory[128];
    const char *const options[] = {directory,
                                   "nvme_tier_bytes=256 MiB",
                                   "host_tier_bytes=24 MiB",
                                   "host_tier_initial_bytes=24 MiB",
                                   "chunk_bytes=1 MiB",
                                   "log_level=debug", /* names the state in which an operation ended */
                                   NULL};
    folder = sw_nvme_folder_new();
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", folder.path);
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, options);
    text_fd = sw_wire_content_memfd(BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
}

static void stop(void) {
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
    sw_nvme_folder_free(&folder);
    (void)close(text_fd);
}

static void report(const unsigned times[N_STATES], const uint64_t slowest[N_STATES], long grown_kib) {
    for (unsigned i = 0; i < N_STATES; i++)
        printf("row | client killed: %s | kill -9 | %u | all it had is back, slowest after %" PRIu64 " ms | 0\n",
               states[i].name, times[i], slowest[i]);
    printf("operations that were under way: %u spills, %u restores\n",
           sw_test_daemon_logged(&daemon_process, "from=staging to=in"),
           sw_test_daemon_logged(&daemon_process, "from=restoring to=out"));
    printf("anonymous memory: %+ld KiB since cycle %d\n", grown_kib, WARM_CYCLES);
    (void)fflush(stdout); /* later calls may fail */
}

static const struct sw_mortals mortals = {.live = live, .doing = doing, .at_once = 1, .max_delay_us = 12000};

START_TEST(clients_die_and_nothing_is_left) {
    unsigned times[N_STATES] = {0};
    uint64_t slowest[N_STATES] = {0}, random = 42;
    long warm_kib = 0;
    start();
    park();
    check_parked(); /* so that the allocations exist that a first restore makes and keeps */
    const struct held before = look_when_quiet(&witness);
    for (unsigned i = 0; i < cycles; i++) {
        const unsigned state = state_of(i);
        sw_mortals_die(&mortals, i, 1, &random);
        const uint64_t ms = await_return(&witness, &before, states[state].name);
        times[state]++;
        slowest[state] = ms > slowest[state] ? ms : slowest[state];
        if (i % 40 == 39)
            check_parked();
        if (i == WARM_CYCLES)
            warm_kib = sw_test_daemon_anonymous_kib(&daemon_process);
    }
    check_parked();
    ck_assert(sw_wire_memfd_holds(text_fd, BYTES, SW_CONTENT_TEXT, 1));
    const long grown_kib = cycles > WARM_CYCLES ? sw_test_daemon_anonymous_kib(&daemon_process) - warm_kib : 0;
    report(times, slowest, grown_kib);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers keep freed memory */
    ck_assert_int_lt(grown_kib, MAX_GROWN_KIB);
#endif
    for (unsigned i = 0; cycles > 1000 && i < N_STATES; i++)
        ck_assert_msg(slowest[i] <= WITHIN_MS, "%s: %" PRIu64 " ms", states[i].name, slowest[i]);
    sw_wire_close(&witness);
    (void)close(witness_fd);
    stop();
}
END_TEST

int main(int argc, char **argv) {
    cycles = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : cycles;
    word = argc > 2 ? argv[2] : word;
    TCase *tests = tcase_create("client_death");
    tcase_set_timeout(tests, argc > 1 ? 36000 : 280);
    tcase_add_test(tests, clients_die_and_nothing_is_left);
    Suite *suite = suite_create("client_death");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
