/* A service is killed at each of its writes in turn: at every store to the catalogue's records, at every record of the
 * disk's manifest (before it, in the middle, behind it), and at every reply. A client that speaks the protocol by hand
 * knows which replies it got, and the successor's state must agree with them. Then each record of a service fails in
 * turn: its client must get the error, or lose nothing.
 *
 * The service is a child process with a real session; its catalogue and its memory are this process's. Stores are found
 * by lib/store_trap.h, so it is x86-64 only. */
#include "base/assert.h"
#include "base/log.h"
#include "daemon/session/commands.h"
#include "daemon/session/session.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/lives.h"
#include "tests/lib/packets.h"
#include "tests/lib/run.h"
#include "tests/lib/store_trap.h"
#include "tests/lib/transfer.h"
#include "tests/lib/wire.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if !SW_STORE_TRAP
int main(void) {
    (void)fprintf(stderr, "left out: it needs the trap flag of x86-64\n");
    return 77;
}
#else

enum { BYTES = 100001, N_PIECES = 12 };

/* ---- the child: killed at a point ---- */

static struct shared {
    unsigned n_points, kill_at;  /* the latter 0: not at all */
    unsigned n_records, fail_at; /* the same: records that fail, this one alone or all behind it, too */
    bool goes_on;
} * shared;
static bool is_service;

static void point(void) {
    if (is_service && ++shared->n_points == shared->kill_at)
        (void)kill(getpid(), SIGKILL);
}

static bool fails(void) {
    const unsigned n = is_service ? ++shared->n_records : 0;
    return n && shared->fail_at && (n == shared->fail_at || (shared->goes_on && n > shared->fail_at));
}

int __real_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err) {
    if (fails())
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "catalogue is full: so the test wants it");
    return __real_sw_catalogue_put_region(catalogue, region, replaced, ret, err);
}

int __real_sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session,
                                    uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session,
                                    uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session,
                                    uint32_t *ret, struct sw_err *err) {
    if (fails())
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_SESSION, "catalogue is full: so the test wants it");
    return __real_sw_catalogue_put_session(catalogue, session, ret, err);
}

static ssize_t killing_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if (fails()) {
        errno = bytes % 3 ? ENOSPC : EIO;
        return -1;
    }
    point();
    if (pwrite(fd, data, bytes / 2, offset) != (ssize_t)(bytes / 2))
        return -1;
    point();
    if (pwrite(fd, (const char *)data + bytes / 2, bytes - bytes / 2, offset + (off_t)(bytes / 2)) < 0)
        return -1;
    point();
    return (ssize_t)bytes;
}

static const struct sw_nvme_file_ops killing_files = {.pwrite = killing_pwrite, .pread = pread};

int __real_sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds);
int __wrap_sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds);
int __wrap_sw_packet_send(int socket, const uint8_t *packet, size_t bytes, const int *fds, unsigned n_fds) {
    point();
    const int rc = __real_sw_packet_send(socket, packet, bytes, fds, n_fds);
    point();
    return rc;
}

static void on_closed(struct sw_session *session, void *arg) {
    (void)session;
    *(bool *)arg = true;
}

static void on_device_lost(void *arg) {
    (void)arg;
}

/* Serves one session until its client hangs up. */
__attribute__((noreturn)) static void serve(int socket, uint64_t disk_bytes) {
    static struct sw_life life;
    static struct sw_config config;
    static struct sw_service service;
    struct sw_session *session = NULL;
    struct sw_err err;
    bool closed = false;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    sw_world.files = &killing_files;
    sw_life_open(&life, disk_bytes);
    SW_ASSERT(sw_engine_recover(life.engine, &life.found, &err) == 0);
    sw_config_init(&config);
    service = (struct sw_service){.loop = &life.loop,
                                  .config = &config,
                                  .commands = sw_commands,
                                  .n_commands = sw_commands_count,
                                  .fds = {.limit = 256, .max_closing = 64},
                                  .engine = life.engine,
                                  .tiers = {.at = {life.host, life.nvme}, .n = life.nvme ? 2 : 1},
                                  .devices = {life.device},
                                  .n_devices = 1,
                                  .catalogue = life.catalogue,
                                  .device_lost = on_device_lost,
                                  .userns = {.maps_all_uids = true, .maps_all_gids = true}};
    sw_list_init(&service.tenants);
    is_service = true;
    if (!shared->fail_at)
        sw_store_trap_set(point);
    SW_ASSERT(sw_session_open(&session, &service, socket, 1, on_closed, &closed, &err) == 0);
    while (!closed)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    point();
    (void)kill(getpid(), SIGKILL);
    abort();
}

/* ---- the client ---- */

enum stage {
    NONE,
    SPILLING, /* asked for, not answered */
    STORED,
    REFUSED,   /* the answer was an error */
    RESTORING, /* so that it is consumed */
    DROPPING,
    GONE,
};

/* A region, as its client knows it. */
static struct piece {
    enum stage stage;
    struct sw_region_id id;    /* gen 0: not known to the client */
    uint32_t request, index;   /* of its spill */
    struct sw_memory from, to; /* of a batch only the first owns it */
    uint64_t offset;
    bool packed, durable;
    unsigned n_buffers;
    unsigned batch; /* first piece + 1 of the pieces that are restored together; 0: alone */
    unsigned group; /* the same for pieces that are committed together */
    bool is_out;    /* a successor has found it */
} pieces[N_PIECES];
static unsigned n_pieces;
static struct sw_wire wire;
static uint32_t last_mem;
static bool is_dead; /* the service */
static unsigned n_errors;

static void fill(uint8_t *to, unsigned seed) {
    sw_content_fill(to, BYTES, seed % 2 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, seed + 1);
}

static bool holds(const uint8_t *data, unsigned seed) {
    static uint8_t expected[BYTES];
    fill(expected, seed);
    return memcmp(data, expected, BYTES) == 0;
}

static struct piece *piece_new(struct piece *share) {
    struct piece *p = &pieces[n_pieces++];
    ck_assert_uint_le(n_pieces, N_PIECES);
    *p = (struct piece){.n_buffers = 1};
    if (share) {
        p->from = share->from;
        p->to = share->to;
        p->index = (uint32_t)(p - share);
        p->offset = p->index * BYTES;
    }
    return p;
}

/* n pieces side by side. */
static struct piece *pieces_new(unsigned n) {
    struct piece *first = piece_new(NULL);
    first->from = sw_memory_new(n * BYTES);
    first->to = sw_memory_new(n * BYTES);
    for (unsigned i = 1; i < n; i++)
        (void)piece_new(first);
    for (unsigned i = 0; i < n; i++)
        fill(first->from.data + i * BYTES, (unsigned)(first + i - pieces));
    return first;
}

/* Whether a request was answered, well; else the service is dead, or a record has failed. */
static bool answered(int rc) {
    is_dead |= rc == -SW_ECONN;
    ck_assert_msg(rc == 0 || rc == -SW_ECONN || shared->fail_at, "%s", sw_err_name(rc));
    n_errors += rc != 0 && rc != -SW_ECONN;
    return rc == 0;
}

static uint32_t open_mem(const struct sw_memory *memory) {
    const uint32_t mem = ++last_mem;
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_PARTS}};
    msg.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {memory->bytes}};
    return !is_dead && answered(sw_wire_mem_open(&wire, mem, SW_MEM_MEMFD, 1, 0, memory->bytes)) &&
                   answered(sw_wire_call(&wire, &msg, &memory->fd, 1))
               ? mem
               : 0;
}

/* Sends a request that concerns n pieces, which are in `meanwhile` from then on, and in `then` when it is answered. */
static bool ask(struct sw_msg *msg, struct piece *p, unsigned n, enum stage meanwhile, enum stage then) {
    if (is_dead)
        return false;
    const uint32_t seq = sw_wire_send(&wire, msg, NULL, 0);
    for (unsigned i = 0; i < n; i++) {
        p[i].stage = meanwhile;
        if (meanwhile == SPILLING)
            p[i].request = seq;
    }
    const bool good = answered(sw_wire_await(&wire, seq, msg));
    for (unsigned i = 0; i < n && !is_dead; i++)
        p[i].stage = good ? then : meanwhile == SPILLING ? REFUSED : STORED;
    return good;
}

static void note_id(struct piece *p, const struct sw_msg *reply) {
    p->id = (struct sw_region_id){reply->u.result.slot, reply->u.result.gen};
}

static void spill(struct piece *p, bool in_place) {
    struct sw_msg msg = sw_wire_spill_msg(open_mem(&p->from), 0, BYTES);
    msg.u.spill.flags = in_place ? SW_REQ9_IN_PLACE : 0;
    p->packed = in_place;
    if (ask(&msg, p, 1, SPILLING, STORED))
        note_id(p, &msg);
}

static void spill_durable(struct piece *p, const char *name) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_DURABLE}};
    msg.u.spill_durable = (struct sw_msg_spill_durable){.mem = open_mem(&p->from), .bytes = BYTES};
    sw_msg_set_text(msg.u.spill_durable.name, sizeof msg.u.spill_durable.name, name);
    p->durable = true;
    if (ask(&msg, p, 1, SPILLING, STORED))
        note_id(p, &msg);
}

/* Halves of the piece as buffers. */
static void spill_buffers(struct piece *p) {
    const uint32_t mem = open_mem(&p->from);
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BUFFERS}};
    msg.u.spill_buffers = (struct sw_msg_spill_buffers){
        .count = 2, .mem = {mem, mem}, .offset = {0, BYTES / 2}, .bytes = {BYTES / 2, BYTES - BYTES / 2}};
    p->n_buffers = 2;
    if (ask(&msg, p, 1, SPILLING, STORED))
        note_id(p, &msg);
}

static void spill_batch(struct piece *p, unsigned n) {
    struct sw_msg msg = sw_wire_spill_batch_msg(open_mem(&p->from), n, BYTES);
    if (ask(&msg, p, n, SPILLING, STORED))
        for (unsigned i = 0; i < n; i++)
            p[i].id = (struct sw_region_id){msg.u.result_batch.slot[i], msg.u.result_batch.gen[i]};
}

/* Durable and kept regions stay stored. */
static void restore(struct piece *p, uint32_t flags) {
    const bool stays = p->durable || (flags & SW_REQ9_KEEP);
    if (p->stage != STORED)
        return;
    struct sw_msg msg = sw_wire_restore_msg(p->id, open_mem(p->packed ? &p->from : &p->to), 0, BYTES);
    msg.u.restore.flags = flags | (p->packed ? SW_REQ9_IN_PLACE : 0);
    (void)ask(&msg, p, 1, stays ? STORED : RESTORING, stays ? STORED : GONE);
}

static void restore_buffers(struct piece *p) {
    if (p->stage != STORED)
        return;

    const uint32_t mem = open_mem(&p->to);
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BUFFERS}};
    msg.u.restore_buffers = (struct sw_msg_restore_buffers){.slot = p->id.slot,
                                                            .gen = p->id.gen,
                                                            .count = 2,
                                                            .mem = {mem, mem},
                                                            .offset = {0, BYTES / 2},
                                                            .bytes = {BYTES / 2, BYTES - BYTES / 2}};
    (void)ask(&msg, p, 1, RESTORING, GONE);
}

static void restore_batch(struct piece *p, unsigned n) {
    struct sw_region_id ids[N_PIECES];
    if (p->stage != STORED)
        return;
    for (unsigned i = 0; i < n; i++) {
        ids[i] = p[i].id;
        p[i].batch = (unsigned)(p - pieces) + 1;
    }
    struct sw_msg msg = sw_wire_restore_batch_msg(open_mem(&p->to), ids, n, BYTES);
    if (is_dead)
        return;
    const uint32_t seq = sw_wire_send(&wire, &msg, NULL, 0);
    for (unsigned i = 0; i < n; i++)
        p[i].stage = p[i].durable ? STORED : RESTORING;
    const bool good = answered(sw_wire_await(&wire, seq, &msg));
    for (unsigned i = 0; i < n && !is_dead; i++)
        p[i].stage = p[i].durable || !good ? STORED : GONE;
}

/* ---- version 10: a packet of n pieces, each with a result of its own ---- */

static struct sw_test_packet packet;

static void ask_packet(struct piece *p, unsigned n, enum stage meanwhile, enum stage then) {
    struct sw_msg *msg = &packet.msg;
    unsigned n_failed = 0;
    if (!ask(msg, p, n, meanwhile, then))
        return;
    for (unsigned i = 0; i < n; i++)
        if (sw_test_result_code(msg, i)) {
            n_failed++;
            p[i].stage = meanwhile == SPILLING ? REFUSED : STORED;
        } else if (meanwhile == SPILLING) {
            p[i].id = sw_test_result_id(msg, i);
        } else if (p[i].durable) {
            p[i].stage = STORED;
        }
    ck_assert(!n_failed || shared->fail_at);
    n_errors += n_failed > 0;
}

/* The last one has two buffers. */
static void build_packet(struct piece *p, unsigned n, uint32_t flags, const char *name_of_first) {
    const uint32_t mem = open_mem(&p->from);
    sw_test_packet(&packet, SW_MSG_BUILD, flags);
    for (unsigned i = 0; i < n; i++) {
        p[i].n_buffers = i == n - 1 ? 2 : 1;
        p[i].durable = i == 0 && name_of_first;
        (void)sw_test_add_build(&packet, i == 0 ? name_of_first : NULL);
        for (unsigned k = 0; k < p[i].n_buffers; k++) {
            const uint64_t bytes = p[i].n_buffers == 1 ? BYTES : k ? BYTES - BYTES / 2 : BYTES / 2;
            (void)sw_test_add_buffer(&packet, bytes, 0);
            (void)sw_test_add_chunk(&packet, mem, p[i].offset + k * (BYTES / 2), bytes);
        }
    }
    ask_packet(p, n, SPILLING, STORED);
}

/* All stored ones, if all are; with SW_REQ_ALL one that is back speaks for all. */
static void read_packet(struct piece *p, unsigned n, uint32_t flags) {
    for (unsigned i = 0; i < n; i++)
        if (p[i].stage != STORED)
            return;
    const uint32_t mem = open_mem(&p->to);
    sw_test_packet(&packet, SW_MSG_READ, flags);
    for (unsigned i = 0; i < n; i++) {
        p[i].batch = flags & SW_REQ_ALL ? (unsigned)(p - pieces) + 1 : 0;
        (void)sw_test_add_read(&packet, p[i].id, 0);
        for (unsigned k = 0; k < p[i].n_buffers; k++)
            (void)sw_test_add_room(&packet, mem, p[i].offset + k * (BYTES / 2),
                                   p[i].n_buffers == 1 ? BYTES
                                   : k                 ? BYTES - BYTES / 2
                                                       : BYTES / 2);
    }
    ask_packet(p, n, RESTORING, GONE);
}

/* ---- and by several packets, all or none ---- */

enum { FIRST_BYTES = 2 * SW_BUILD_CHUNK_STEP_BYTES, FIRST_NUMBER = 100 };

/* Adds the first or the last chunk of each of n pieces; of builds, or of reads. */
static void add_chunks(const struct piece *p, unsigned n, uint32_t mem, unsigned step) {
    const bool is_build = packet.msg.header.type == SW_MSG_BUILD;
    const uint64_t at = step == 1 ? 0 : FIRST_BYTES, bytes = step == 1 ? FIRST_BYTES : BYTES - FIRST_BYTES;
    for (unsigned i = 0; step > 0 && i < n; i++) {
        packet.chunks[i] = (struct sw_wire_chunk){.mem = mem, .at = at, .offset = p[i].offset + at, .raw_bytes = bytes};
        *(is_build ? &packet.builds[i].n_chunks : &packet.reads[i].n_chunks) = 1;
        *(is_build ? &packet.msg.u.build.n_chunks : &packet.msg.u.read.n_chunks) = (uint16_t)(i + 1);
    }
}

static void make_build_step(const struct piece *p, unsigned n, uint32_t mem, unsigned step, const char *name_of_first) {
    static const uint16_t flags[] = {SW_BUILD_BEGIN, 0, SW_BUILD_COMMIT};
    sw_test_packet(&packet, SW_MSG_BUILD, step == 2 ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_build *build = sw_test_add_build(&packet, i == 0 && step == 0 ? name_of_first : NULL);
        build->build = FIRST_NUMBER + (unsigned)(p + i - pieces);
        build->flags = flags[step];
        if (step == 0)
            sw_test_add_buffer(&packet, BYTES, 0)->chunk_bytes = SW_BUILD_CHUNK_STEP_BYTES;
    }
    add_chunks(p, n, mem, step);
}

/* By three packets: begin, first chunk, last chunk and commit. */
static void build_open(struct piece *p, unsigned n, const char *name_of_first) {
    const uint32_t mem = open_mem(&p->from);
    for (unsigned step = 0; step < 3; step++) {
        make_build_step(p, n, mem, step, name_of_first);
        if (step < 2 && !is_dead)
            (void)answered(sw_wire_call(&wire, &packet.msg, NULL, 0));
    }
    for (unsigned i = 0; i < n; i++)
        p[i].group = (unsigned)(p - pieces) + 1;
    p->durable = name_of_first;
    ask_packet(p, n, SPILLING, STORED);
}

static void make_read_step(const struct piece *p, unsigned n, uint32_t mem, unsigned step) {
    static const uint16_t flags[] = {SW_READ_BEGIN, 0, SW_READ_END};
    sw_test_packet(&packet, SW_MSG_READ, step == 2 ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_read *read = sw_test_add_read(&packet, step == 0 ? p[i].id : (struct sw_region_id){0}, 0);
        read->read = FIRST_NUMBER + N_PIECES + (unsigned)(p + i - pieces);
        read->flags = flags[step];
    }
    add_chunks(p, n, mem, step);
}

/* The same way back. */
static void read_open(struct piece *p, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (p[i].stage != STORED)
            return;
    const uint32_t mem = open_mem(&p->to);
    for (unsigned step = 0; step < 3; step++) {
        make_read_step(p, n, mem, step);
        if (step < 2 && !is_dead)
            (void)answered(sw_wire_call(&wire, &packet.msg, NULL, 0));
    }
    for (unsigned i = 0; i < n; i++)
        p[i].batch = (unsigned)(p - pieces) + 1;
    ask_packet(p, n, RESTORING, GONE);
}

static void discard_packet(struct piece *p, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (p[i].stage != STORED)
            return;
    sw_test_packet(&packet, SW_MSG_DISCARD, 0);
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, p[i].id);
    (void)ask(&packet.msg, p, n, DROPPING, GONE);
}

static void drop(struct piece *p) {
    if (p->stage != STORED)
        return;

    struct sw_msg msg = {.header = {.type = SW_MSG_DROP}};
    msg.u.drop = (struct sw_msg_drop){p->id.slot, p->id.gen};
    (void)ask(&msg, p, 1, DROPPING, GONE);
}

/* Until the service has ended its moves. */
static void await_moves(void) {
    struct sw_msg_status_ok status = {0};
    uint64_t before = 1;
    for (unsigned n_same = 0; !is_dead && n_same < 5; n_same += status.nvme_used_bytes == before) {
        before = status.nvme_used_bytes;
        (void)usleep(3000);
        (void)answered(sw_wire_status(&wire, &status));
    }
}

/* ---- what its successor finds ---- */

static struct sw_life life;
static struct sw_owner *tenant_owner;

static int on_found(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg, struct sw_err *err) {
    (void)uid;
    (void)arg;
    (void)err;
    if (is_tenant_owner)
        tenant_owner = owner;
    return 0;
}

/* Restores to memory of the test's own; 0: it has the right bytes. */
static int try(struct sw_owner *owner, struct piece *p) {
    struct sw_memory own = p->packed ? p->from : sw_memory_new(BYTES);
    struct sw_mem_desc desc = sw_memory_desc(&own);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    struct sw_range ranges[2] = {{.bytes = BYTES}};
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    if (p->n_buffers == 2) {
        ranges[0].bytes = BYTES / 2;
        ranges[1] = (struct sw_range){.mem = mem, .offset = BYTES / 2, .bytes = BYTES - BYTES / 2};
    }
    ranges[0].mem = mem;
    int rc =
        sw_engine_restore(owner, p->id, SW_TRANSFER(ranges, p->n_buffers, .in_place = p->packed, .keep = !p->packed),
                          sw_test_op_done, &op, NULL);
    sw_mem_close(mem, NULL, NULL);
    if (!rc) {
        sw_life_until(&life, &op.done);
        rc = op.outcome.err.code;
    }
    if (!rc)
        ck_assert_msg(holds(own.data, (unsigned)(p - pieces)), "piece %u has other bytes", (unsigned)(p - pieces));
    if (!p->packed)
        sw_memory_free(&own);
    return rc;
}

static bool is_back(const struct piece *p) {
    return holds((p->packed ? p->from.data : p->to.data) + p->offset, (unsigned)(p - pieces));
}

/* ALL of a batch's restore are back if one of them is said to be. */
static bool is_whole_batch_back(const struct piece *p) {
    for (unsigned i = 0; i < n_pieces; i++)
        if (p->batch ? pieces[i].batch == p->batch && !is_back(&pieces[i]) : p == &pieces[i] && !is_back(p))
            return false;
    return true;
}

static void check_piece(struct sw_owner *owner, struct piece *p, unsigned kill_at) {
    struct sw_region_info info;
    const unsigned i = (unsigned)(p - pieces);
    int rc = -SW_ENOENT;
    if (!p->id.gen && owner && p->request) {
        struct sw_region_id ids[N_PIECES];
        sw_engine_find_by_request(owner, p->request, ids, p->index + 1);
        p->id = ids[p->index];
    }
    if (p->id.gen) {
        rc = owner ? sw_engine_query(owner, p->id, &info, NULL) : -SW_ENOENT;
        if (rc && tenant_owner && p->durable)
            rc = sw_engine_query(owner = tenant_owner, p->id, &info, NULL);
    }
    const bool is_out = !rc && info.state == SW_REGION_OUT, is_in = !rc && info.state == SW_REGION_IN,
               is_lost = !rc && info.state == SW_REGION_LOST;
#define SAY(condition)                                                                                                 \
    ck_assert_msg(condition, "killed at %u: piece %u in stage %d: %s", kill_at, i, p->stage,                           \
                  rc ? "is not there" : sw_region_state_name(info.state))
    switch (p->stage) {
    case NONE:
        break;
    case SPILLING:
        SAY(!is_in && (!is_lost || p->packed));
        SAY(is_lost || is_out || holds(p->from.data + p->offset, i)); /* no record: it was not touched */
        SAY(p->packed || holds(p->from.data + p->offset, i));
        break;
    case STORED: /* a pack whose end could not be recorded ends with its service */
        SAY(is_out || (is_lost && p->packed && shared->fail_at));
        break;
    case REFUSED:
        SAY(rc && holds(p->from.data + p->offset, i));
        break;
    case RESTORING:
        SAY(!rc);
        SAY(!is_lost || p->packed);
        SAY(!is_in || is_whole_batch_back(p));
        break;
    case DROPPING:
        SAY(!is_in && !is_lost);
        break;
    case GONE:
        SAY(rc || is_in);
        break;
    }
    p->is_out = is_out;
    if (is_out)
        SAY(try(owner, p) == 0);
#undef SAY
}

/* Regions whose reply was lost were all recorded, or none. */
static void check_groups(unsigned kill_at) {
    for (unsigned i = 0; i < n_pieces; i++)
        if (pieces[i].group && pieces[i].stage == SPILLING)
            ck_assert_msg(
                pieces[i].is_out == pieces[pieces[i].group - 1].is_out, "killed at %u: piece %u is %s", kill_at, i,
                pieces[i].is_out ? "there, the first of its group is not" : "gone, the first of its group is there");
}

static void check_successor(unsigned kill_at, uint64_t disk_bytes, bool has_hung_up) {
    static const uint8_t none[sizeof wire.token];
    struct sw_tier_stats stats;
    sw_world.files = NULL;
    sw_life_open(&life, disk_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_damaged, 0);
    sw_engine_check(life.engine);
    struct sw_owner *owner =
        memcmp(wire.token, none, sizeof none) ? sw_owner_claim(life.engine, (uint32_t)getuid(), wire.token) : NULL;
    ck_assert(owner || has_hung_up || n_pieces == 0 || !pieces[0].request || shared->fail_at);
    tenant_owner = NULL;
    ck_assert_int_eq(sw_owners_visit_found(life.engine, on_found, NULL, NULL), 0);
    for (unsigned i = 0; i < n_pieces; i++) {
        if (has_hung_up && !pieces[i].durable && pieces[i].stage != NONE) /* it may go, and may still be there */
            pieces[i].stage = pieces[i].stage == GONE ? GONE : DROPPING;
        check_piece(owner, &pieces[i], kill_at);
    }
    check_groups(kill_at);
    /* Every region is known to a client: after they have dropped them nothing is left. */
    sw_life_close_owner(&life, tenant_owner, false);
    sw_life_close_owner(&life, owner, false);
    (void)sw_owners_close_unclaimed(life.engine, NULL, false, NULL);
    for (struct sw_engine_stats all = {.n_owners = 1}; all.n_owners; sw_engine_stats(life.engine, &all))
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
    life.host->ops->stats(life.host, &stats);
    ck_assert_uint_eq(stats.used_bytes, 0);
    if (life.nvme) {
        life.nvme->ops->stats(life.nvme, &stats);
        ck_assert_uint_eq(stats.used_bytes, 0);
    }
    sw_life_close(&life, NULL, false);
}

/* ---- what is done meanwhile ---- */

static void alone(void) {
    struct piece *p = pieces_new(1), *kept = pieces_new(1), *late = pieces_new(1);
    spill(p, false);
    spill(kept, false);
    restore(kept, SW_REQ9_KEEP);
    restore(p, 0);
    spill(late, false);
    drop(kept);
    restore(late, 0);
}

static void in_batches(void) {
    struct piece *p = pieces_new(3), *more = pieces_new(2);
    spill_batch(p, 3);
    restore_batch(p, 3);
    spill_batch(more, 2);
    drop(&more[1]);
}

static void durable(void) {
    struct piece *p = pieces_new(1), *other = pieces_new(1), *third = pieces_new(1);
    spill_durable(p, "one");
    spill_durable(other, "two");
    restore(p, 0);
    restore_batch(p, 1);
    spill_durable(third, "three");
    drop(other);
    struct sw_msg msg = {.header = {.type = SW_MSG_ADOPT}};
    sw_msg_set_text(msg.u.adopt.name, sizeof msg.u.adopt.name, "one");
    if (p->stage == STORED)
        (void)ask(&msg, p, 1, STORED, STORED);
}

static void buffers(void) {
    struct piece *p = pieces_new(1), *other = pieces_new(1);
    spill_buffers(p);
    spill_buffers(other);
    restore_buffers(p);
    drop(other);
}

static void in_place(void) {
    struct piece *p = pieces_new(1), *other = pieces_new(1);
    spill(p, true);
    spill(other, true);
    restore(p, 0);
    restore(other, 0);
}

static void on_the_disk(void) {
    struct piece *p = pieces_new(4);
    spill_batch(p, 4);
    await_moves();
    restore_batch(p, 1);
    drop(&p[1]);
    spill(pieces_new(1), false);
    await_moves();
}

static void in_packets(void) {
    struct piece *p = pieces_new(3), *more = pieces_new(3), *rest = pieces_new(2);
    build_packet(p, 3, 0, "one");
    read_packet(p, 3, 0);
    build_packet(more, 3, SW_REQ_ALL, NULL);
    read_packet(more, 3, SW_REQ_ALL);
    build_packet(rest, 2, 0, NULL);
    discard_packet(rest, 2);
}

static void in_open_packets(void) {
    struct piece *p = pieces_new(3), *more = pieces_new(2);
    build_open(p, 3, "one");
    build_open(more, 2, NULL);
    read_open(p, 3);
    read_open(more, 2);
}

static const struct scenario {
    void (*run)(void);
    bool has_disk, hangs_up;
    uint32_t version;
} scenarios[] = {{alone, false, false, 9},       {in_batches, false, false, 9},      {durable, false, true, 9},
                 {buffers, false, true, 9},      {in_place, false, false, 9},        {on_the_disk, true, false, 9},
                 {in_packets, false, false, 10}, {in_open_packets, false, false, 10}};
enum { N_SCENARIOS = 8 };

/* Returns whether it was killed before its end, or a record has failed. */
static bool run(const struct scenario *s, unsigned kill_at, unsigned fail_at, bool goes_on) {
    const uint64_t disk_bytes = s->has_disk ? sw_life_disks[1] : 0;
    int pair[2], status;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    *shared = (struct shared){.kill_at = kill_at, .fail_at = fail_at, .goes_on = goes_on};
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)close(pair[1]);
        SW_ASSERT(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
        serve(pair[0], disk_bytes);
    }
    (void)close(pair[0]);
    wire = (struct sw_wire){.socket = pair[1]};
    n_pieces = last_mem = n_errors = 0;
    is_dead = false;
    if (answered(sw_wire_hello(&wire, s->version)))
        s->run();
    const bool died = is_dead;
    if (!s->hangs_up) /* else it is killed while it cleans up, or when it has */
        (void)kill(child, SIGKILL);
    sw_wire_close(&wire);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", (unsigned)status);
    check_successor(kill_at, disk_bytes, s->hangs_up && !died);
    for (unsigned i = 0; i < n_pieces; i++)
        if (pieces[i].index == 0) {
            sw_memory_free(&pieces[i].from);
            sw_memory_free(&pieces[i].to);
        }
    return (kill_at && shared->n_points >= kill_at) || (fail_at && shared->n_records >= fail_at);
}

static void begin(const struct scenario *s) {
    sw_world.high_pct = 3; /* with a disk, all but one region leave memory */
    sw_world.low_pct = 2;
    sw_life_open(&life, s->has_disk ? sw_life_disks[1] : 0); /* makes catalogue and memory */
    sw_life_await_arena(&life);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_life_close(&life, NULL, false);
}

START_TEST(killed_at_each_write) {
    const struct scenario *s = &scenarios[_i];
    begin(s);
    ck_assert(!run(s, 0, 0, false));
    const unsigned n_points = shared->n_points, step = SW_TEST_EVERY;
    ck_assert_uint_gt(n_points, 40);
    for (unsigned at = 1; run(s, at, 0, false); at += step)
        ck_assert_uint_lt(at, 20 * n_points);
}
END_TEST

/* With a disk a write or a move fails, which no client hears of. Without one, each failure but one is an error that a
 * client gets. The exception is the end of a pack, which cannot be undone. */
START_TEST(each_record_fails) {
    const struct scenario *s = &scenarios[_i / 2];
    unsigned n_failed = 0, n_seen = 0;
    begin(s);
    for (unsigned at = 1; run(s, 0, at, _i % 2); at++) {
        ck_assert_uint_lt(at, 1000);
        n_failed++;
        n_seen += n_errors > 0;
    }
    ck_assert_uint_gt(n_failed, 2);
    ck_assert_msg(s->has_disk || s->run == in_place || n_seen == n_failed, "%u failed, %u were seen", n_failed, n_seen);
    ck_assert_uint_gt(n_seen, 1);
}
END_TEST

static void setup(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    sw_world_setup();
}

static void teardown(void) {
    sw_world_teardown();
    (void)munmap(shared, sizeof *shared);
}

int main(void) {
    sw_log_set_level(SW_LOG_ERROR);
    Suite *suite = suite_create("kill_points");
    TCase *tcase = tcase_create("kill_points");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, killed_at_each_write, 0, N_SCENARIOS);
    tcase_add_loop_test(tcase, each_record_fails, 0, 2 * N_SCENARIOS);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
#endif
