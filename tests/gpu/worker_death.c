/* worker_death.c - an engine whose worker processes have no CUDA context of their own: one process has made GPU memory
 * of every kind and exported it, workers hand it over, and are killed while they do that, spill, restore, pack, move
 * batches or have regions. Afterwards the service holds what it held, and the GPU has as much free memory; what another
 * client has parked is whole, and so is memory that a worker only spilled.
 *
 * worker_death [CYCLES [SPILLWAYD]]: so many deaths, 480 by default, 192 at least; as many workers at a time as there
 * are cores, each in memory of its own. Ten thousand take a minute or two, where clients that begin with CUDA
 * (client_death.c) would take half an hour. Nobody else may use the GPU. $SW_TEST_HOST=1: on the host device with
 * memfds, to try the test itself. */
#include "base/assert.h"
#include "base/clock.h"
#include "ipc/client/memory.h"
#include "tests/lib/child.h"
#include "tests/lib/content.h"
#include "tests/lib/parked.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/wire.h"
#include "tests/lib/witness.h"

#include <check.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* A worker's memory is 6 MiB of chunks of 1 MiB, so that it is met in the middle of an operation. */
enum {
    BYTES = (6 << 20) + 321,
    PARKED_BYTES = BYTES / 2,
    PIECES = 64,
    PIECE_BYTES = 20011,
    MAX_PARTS = 8,
    GPU_KINDS = SW_BUFFER_KIND_NR - SW_BUFFER_CUDA_MALLOC,
    CHECK_EVERY = 192 /* deaths: for what takes longer */
};

static unsigned cycles = 480, kinds = GPU_KINDS;
static const char *program = SW_SPILLWAYD_PATH;
static bool on_host;
static struct sw_test_daemon daemon_process;
static struct sw_witness witness;
static struct sw_child exporter;

/* Exported memory: the messages that hand it over, except for its number and whether it is handed over once. */
struct memory {
    struct sw_msg_mem_open open;
    struct sw_msg_mem_parts parts;
    uint64_t offset; /* of the buffer in it */
    int fds[MAX_PARTS];
};
static struct memory memories[SW_MORTALS_AT_ONCE][GPU_KINDS];

/* ---- workers that die -------------------------------------------------------------------------------------------- */

struct worker {
    struct sw_wire wire;
    int socket; /* to the test */
    const struct memory *memory;
    bool once;
    uint32_t mem; /* number of the memory that was handed over last */
};

static void call(struct worker *w, struct sw_msg *msg, const int *fds, unsigned n_fds) {
    const unsigned request = msg->header.type;
    const int rc = sw_wire_call(&w->wire, msg, fds, n_fds);
    if (rc == 0)
        return;
    (void)fprintf(stderr, "a worker's %s: %s: %.256s\n", sw_msg_name(request), sw_err_name(rc),
                  msg->header.type == SW_MSG_ERROR ? (const char *)msg->u.error.text : "");
    abort();
}

static void hand_over(struct worker *w, bool once) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_OPEN, .u.mem_open = w->memory->open};
    msg.u.mem_open.mem = ++w->mem;
    msg.u.mem_open.once = once;
    call(w, &msg, NULL, 0);
    if (!w->memory->open.n_parts)
        return;
    msg = (struct sw_msg){.header.type = SW_MSG_MEM_PARTS, .u.mem_parts = w->memory->parts};
    msg.u.mem_parts.mem = w->mem;
    call(w, &msg, w->memory->fds, w->memory->open.n_parts);
}

/* Registered, or handed over for the next operation alone. */
static uint32_t memory_of(struct worker *w) {
    if (w->once || !w->mem)
        hand_over(w, w->once);
    return w->mem;
}

static struct sw_region_id spill(struct worker *w, uint64_t at, uint64_t bytes, uint32_t flags) {
    struct sw_msg msg = sw_wire_spill_msg(memory_of(w), w->memory->offset + at, bytes);
    msg.u.spill.flags = flags;
    call(w, &msg, NULL, 0);
    return (struct sw_region_id){.slot = msg.u.result.slot, .gen = msg.u.result.gen};
}

static void restore(struct worker *w, struct sw_region_id id, uint32_t flags) {
    struct sw_msg msg = sw_wire_restore_msg(id, memory_of(w), w->memory->offset, BYTES);
    msg.u.restore.flags = flags;
    call(w, &msg, NULL, 0);
}

static void handing_over(struct worker *w) {
    sw_mortal_is_there(w->socket);
    for (;;) {
        hand_over(w, false);
        SW_ASSERT(sw_wire_mem_close(&w->wire, w->mem) == 0);
    }
}

static void spilling(struct worker *w) {
    sw_mortal_is_there(w->socket);
    for (;;)
        SW_ASSERT(sw_wire_drop(&w->wire, spill(w, 0, BYTES, 0)) == 0);
}

static void restoring(struct worker *w) {
    const struct sw_region_id id = spill(w, 0, BYTES, 0);
    sw_mortal_is_there(w->socket);
    for (;;)
        restore(w, id, SW_REQ9_KEEP);
}

static void packing(struct worker *w) {
    sw_mortal_is_there(w->socket);
    for (;;)
        restore(w, spill(w, 0, BYTES, SW_REQ9_IN_PLACE), SW_REQ9_IN_PLACE);
}

static void batches(struct worker *w) {
    struct sw_region_id ids[PIECES];
    hand_over(w, false);
    sw_mortal_is_there(w->socket);
    for (;;) {
        struct sw_msg msg = sw_wire_spill_batch_msg(w->mem, PIECES, PIECE_BYTES);
        for (unsigned i = 0; i < PIECES; i++)
            msg.u.spill_batch.offset[i] += w->memory->offset;
        call(w, &msg, NULL, 0);
        for (unsigned i = 0; i < PIECES; i++)
            ids[i] = (struct sw_region_id){msg.u.result_batch.slot[i], msg.u.result_batch.gen[i]};
        msg = sw_wire_restore_batch_msg(w->mem, ids, PIECES, PIECE_BYTES);
        for (unsigned i = 0; i < PIECES; i++)
            msg.u.restore_batch.offset[i] += w->memory->offset;
        call(w, &msg, NULL, 0);
    }
}

static void parked_and_packed(struct worker *w) {
    (void)spill(w, 0, PARKED_BYTES, 0);
    (void)spill(w, PARKED_BYTES, BYTES - PARKED_BYTES, SW_REQ9_IN_PLACE);
    sw_mortal_is_there(w->socket);
    for (;;)
        (void)pause();
}

static const struct {
    const char *name;
    void (*live)(struct worker *w); /* until it is killed */
    bool untouched;                 /* its memory is unchanged, whenever it dies */
} states[] = {{"handing over and taking back", handing_over, true},
              {"spilling", spilling, true},
              {"restoring", restoring, false},
              {"packing and unpacking", packing, false},
              {"batches", batches, false},
              {"regions parked and packed", parked_and_packed, false}};
enum { N_STATES = sizeof states / sizeof states[0], EVERY_WAY = N_STATES * GPU_KINDS * 2 };

static void live(unsigned i, int socket);

static const char *doing(unsigned i) {
    return states[i % N_STATES].name;
}

static struct sw_mortals mortals = {.live = live, .doing = doing};

/* Assigns memories to workers: the ones that run at a time are at_once in a row. */
static unsigned seat_of(unsigned i) {
    return i % mortals.at_once;
}

/* Each time round it begins with another kind, or a seat would never have some of them. */
static unsigned kind_of(unsigned i) {
    return (i / N_STATES + i / EVERY_WAY) % kinds;
}

static void live(unsigned i, int socket) {
    struct worker w = {
        .socket = socket, .memory = &memories[seat_of(i)][kind_of(i)], .once = i / N_STATES / GPU_KINDS % 2};
    sw_wire_open(&w.wire, daemon_process.socket);
    states[i % N_STATES].live(&w);
}

/* ---- the process whose memory it is ------------------------------------------------------------------------------ */

/* Buffers of this process alone. */
static struct sw_buffer *buffers[SW_MORTALS_AT_ONCE][GPU_KINDS];
static uint8_t *contents[SW_CONTENT_NR], *found;

static void must(int rc, const struct sw_err *err) {
    if (rc < 0)
        (void)fprintf(stderr, "the exporter: %s\n", err->msg);
    SW_ASSERT(rc >= 0);
}

static const uint8_t *content_of(unsigned seat, unsigned kind) {
    return contents[(seat + kind) % SW_CONTENT_NR];
}

static void offer(int socket, struct sw_cuda **cuda, const struct sw_buffer *buffer) {
    struct sw_export e;
    struct sw_err err;
    struct memory m = {0};
    must(sw_export_find(&e, cuda, buffer->data, buffer->bytes, &err), &err);
    SW_ASSERT(e.n_parts <= MAX_PARTS);
    m.open = (struct sw_msg_mem_open){.kind = (uint32_t)e.kind, .n_parts = e.n_parts, .bytes = e.bytes};
    memcpy(m.open.device_uuid, e.device_uuid, sizeof m.open.device_uuid);
    memcpy(m.open.handle, e.handle, sizeof m.open.handle);
    m.parts.count = e.n_parts;
    for (unsigned i = 0; i < e.n_parts; i++)
        m.parts.part_bytes[i] = e.part_bytes[i];
    m.offset = e.offset;
    SW_ASSERT(sw_packet_send(socket, (const uint8_t *)&m, sizeof m, e.fds, e.n_parts) == 0);
    sw_export_fini(&e);
}

/* An order to compare, or to fill anew, the buffers of workers from ... from + n - 1. */
struct order {
    unsigned from, n;
};

static void look_after(const struct order *order) {
    for (unsigned i = order->from; i < order->from + order->n; i++) {
        struct sw_buffer *buffer = buffers[seat_of(i)][kind_of(i)];
        const uint8_t *content = content_of(seat_of(i), kind_of(i));
        struct sw_err err;
        if (!states[i % N_STATES].untouched) {
            must(sw_buffer_upload(buffer, 0, content, BYTES, &err), &err);
            continue;
        }
        must(sw_buffer_download(buffer, 0, found, BYTES, &err), &err);
        SW_ASSERT(memcmp(found, content, BYTES) == 0);
    }
}

static void export_all(unsigned i, int socket) {
    struct sw_cuda *cuda = NULL;
    struct order order;
    struct sw_err err;
    (void)i;
    SW_ASSERT((found = malloc(BYTES)));
    for (unsigned c = 0; c < SW_CONTENT_NR; c++) {
        SW_ASSERT((contents[c] = malloc(BYTES)));
        sw_content_fill(contents[c], BYTES, (enum sw_content)c, c);
    }
    for (unsigned seat = 0; seat < mortals.at_once; seat++)
        for (unsigned kind = 0; kind < kinds; kind++) {
            struct sw_buffer **buffer = &buffers[seat][kind];
            const unsigned first = on_host ? SW_BUFFER_MEMFD : SW_BUFFER_CUDA_MALLOC;
            must(sw_buffer_new(buffer, (enum sw_buffer_kind)(first + kind), BYTES, &err), &err);
            must(sw_buffer_upload(*buffer, 0, content_of(seat, kind), BYTES, &err), &err);
            offer(socket, &cuda, *buffer);
        }
    while (read(socket, &order, sizeof order) == sizeof order) {
        look_after(&order);
        SW_ASSERT(write(socket, "x", 1) == 1);
    }
    _exit(0);
}

static void take_exports(void) {
    for (unsigned seat = 0; seat < mortals.at_once; seat++)
        for (unsigned kind = 0; kind < kinds; kind++) {
            struct pollfd exported = {.fd = exporter.socket, .events = POLLIN};
            _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
            int fds[SW_PROTO_MAX_FDS];
            struct memory *m = &memories[seat][kind];
            size_t bytes = 0;
            unsigned n_fds = 0;
            ck_assert_int_eq(poll(&exported, 1, -1), 1);
            ck_assert_int_eq(sw_packet_receive(exporter.socket, packet, &bytes, fds, &n_fds), 0);
            ck_assert_uint_eq(bytes, sizeof *m);
            memcpy(m, packet, sizeof *m);
            ck_assert_uint_eq(n_fds, m->open.n_parts);
            memcpy(m->fds, fds, n_fds * sizeof *fds);
        }
}

/* ---- the test ---------------------------------------------------------------------------------------------------- */

static void start(void) {
    static const char *const gpu[] = {"device=cuda", "chunk_bytes=1 MiB", "host_tier_bytes=192 MiB",
                                      "host_tier_initial_bytes=192 MiB", NULL};
    sw_test_daemon_start(&daemon_process, program, on_host ? gpu + 1 : gpu);
    exporter = sw_child_begin(export_all, 0);
    take_exports();
    witness = sw_witness_begin(daemon_process.socket, on_host ? SW_BUFFER_MEMFD : SW_BUFFER_CUDA_MALLOC, BYTES);
}

static void stop(void) {
    sw_witness_end(&witness);
    sw_child_end(&exporter, "the exporter");
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    sw_test_daemon_clean(&daemon_process);
}

/* Before memory is a worker's again, the service must have let go of it. */
static void die(unsigned from, unsigned to, const struct sw_sound *before, uint64_t *random) {
    struct order order = {.from = from};
    for (; order.from < to; order.from += order.n) {
        char done;
        order.n = to - order.from < mortals.at_once ? to - order.from : mortals.at_once;
        sw_mortals_die(&mortals, order.from, order.n, random);
        const char *wrong = sw_sound_check(&daemon_process, before);
        ck_assert_msg(!wrong, "after %u deaths: %s", order.from + order.n, wrong);
        sw_child_tell(&exporter, &order, sizeof order);
        sw_child_hear(&exporter, &done, 1, "the exporter");
    }
}

START_TEST(workers_die_and_no_memory_stays) {
    uint64_t random = 42;
    struct sw_sound before;
    const unsigned once = EVERY_WAY * kinds; /* in all memory */
    cycles = cycles < once ? once : cycles;
    start();
    sw_sound_take(&daemon_process, &before);
    before.fds = UINT_MAX; /* lasting imports are made now */
    die(0, once, &before, &random);
    sw_sound_take(&daemon_process, &before);
    const uint64_t free_bytes = sw_witness_ask(&witness), begun_us = sw_clock_us();
    for (unsigned done = once; done < cycles; done += CHECK_EVERY) {
        die(done, cycles - done < CHECK_EVERY ? cycles : done + CHECK_EVERY, &before, &random);
        sw_witness_check_free(&witness, free_bytes);
    }
    printf("%u workers with %s memory killed, the last %u in %.1f s; %lld bytes of the GPU less are free\n", cycles,
           on_host ? "memfd" : "GPU", cycles - once, (double)(sw_clock_us() - begun_us) / 1e6,
           (long long)(free_bytes - sw_witness_ask(&witness)));
    (void)fflush(stdout);
    stop();
}
END_TEST

int main(int argc, char **argv) {
    on_host = getenv("SW_TEST_HOST") != NULL;
    kinds = on_host ? 1 : GPU_KINDS;
    cycles = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : cycles;
    program = argc > 2 ? argv[2] : program;
    if (!on_host && sw_parked_usable_kinds() < SW_BUFFER_KIND_NR) {
        (void)puts("skipped: no GPU that can be used");
        return 77;
    }
    mortals.at_once = sw_mortals_for_cores(4);
    mortals.max_delay_us = 24000 / mortals.at_once; /* these add up */
    Suite *suite = suite_create("gpu worker_death");
    TCase *tcase = tcase_create("worker_death");
    tcase_set_timeout(tcase, argc > 1 ? 36000 : 280);
    tcase_add_test(tcase, workers_die_and_no_memory_stays);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
