/* Rules that hold for each kind of request: single, batched, of several buffers, durable, packed. Draining, limits,
 * ranges, flags, durable regions, and questions after a restart. */
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum kind { SINGLE, BATCH, BUFFERS, DURABLE, PACKED, N_KINDS };
enum { BYTES = 3000, MEMORY_BYTES = 4 * BYTES, MEM = 1, FIRST_SEQ = 100, N_PIECES = 2 };

static struct sw_test_service service;
static struct sw_session *session;
static int peer;
static bool closed;
static uint32_t last_seq;
static uint8_t *memory, original[MEMORY_BYTES];

/* ---- messages ---- */

static uint32_t send_msg(struct sw_msg *msg, int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = SW_PROTO_OLDEST_VERSION;
    msg->header.seq = ++last_seq;
    sw_session_packet(session, packet, sw_msg_encode(msg, packet), fds, n_fds);
    return last_seq;
}

/* The code of the next reply, which is in *ret. */
static int await(struct sw_msg *ret) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    struct sw_err err;
    while (sw_packet_receive(peer, packet, &bytes, fds, &n_fds) == -SW_EAGAIN)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_gt(bytes, 0);
    ck_assert_int_eq(sw_msg_decode(ret, packet, bytes, NULL), 0);
    if (ret->header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &ret->u.error);
    return err.code;
}

static int call(struct sw_msg *msg) {
    (void)send_msg(msg, NULL, 0);
    return await(msg);
}

static int open_memory(uint32_t mem, int fd, bool once) {
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}};
    int sent = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    open.u.mem_open =
        (struct sw_msg_mem_open){.mem = mem, .kind = SW_MEM_MEMFD, .n_parts = 1, .once = once, .bytes = MEMORY_BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {MEMORY_BYTES}};
    const int rc = call(&open);
    (void)send_msg(&parts, &sent, 1);
    const int rc_parts = await(&parts);
    return rc ? rc : rc_parts;
}

static int memory_fd;

static void setup(void) {
    sw_test_service_start(&service);
    session = sw_test_service_session(&service, &peer, &closed);
    last_seq = FIRST_SEQ;
    memory_fd = memfd_create("rules", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(ftruncate(memory_fd, MEMORY_BYTES) == 0 && fcntl(memory_fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    ck_assert(memory != MAP_FAILED);
    sw_content_fill(original, MEMORY_BYTES, SW_CONTENT_RANDOM, 3);
    memcpy(memory, original, MEMORY_BYTES);
    ck_assert_int_eq(open_memory(MEM, memory_fd, false), 0);
}

static void teardown(void) {
    sw_test_service_end(&service, session, &closed);
    (void)close(peer);
    (void)munmap(memory, MEMORY_BYTES);
    (void)close(memory_fd);
}

/* ---- requests of each kind: of BYTES from `offset` on; batches and buffers have two halves of them ---- */

/* The fields of a request. */
struct ask {
    uint64_t offset, bytes; /* of its last piece, if that is not to be the half of BYTES: 0 */
    uint32_t flags, count, waits;
    const char *name;
};
static const struct ask plainly = {.name = "orders"};

static struct sw_msg spill_msg(enum kind kind, const struct ask *ask) {
    const uint64_t bytes = ask->bytes ? ask->bytes : kind == BATCH || kind == BUFFERS ? BYTES / 2 : BYTES;
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL}};
    switch (kind) {
    case BATCH:
        msg.header.type = SW_MSG_SPILL_BATCH;
        msg.u.spill_batch = (struct sw_msg_spill_batch){.mem = MEM,
                                                        .flags = ask->flags,
                                                        .count = ask->count ? ask->count : N_PIECES,
                                                        .offset = {0, ask->offset ? ask->offset : BYTES / 2},
                                                        .bytes = {BYTES / 2, bytes}};
        break;
    case BUFFERS:
        msg.header.type = SW_MSG_SPILL_BUFFERS;
        msg.u.spill_buffers = (struct sw_msg_spill_buffers){.flags = ask->flags,
                                                            .count = ask->count ? ask->count : N_PIECES,
                                                            .waits = {0, ask->waits},
                                                            .offset = {0, ask->offset ? ask->offset : BYTES / 2},
                                                            .bytes = {BYTES / 2, bytes}};
        for (unsigned i = 0; i < SW_PROTO_MAX_BUFFERS; i++)
            msg.u.spill_buffers.mem[i] = MEM;
        break;
    case DURABLE:
        msg.header.type = SW_MSG_SPILL_DURABLE;
        msg.u.spill_durable =
            (struct sw_msg_spill_durable){.mem = MEM, .flags = ask->flags, .offset = ask->offset, .bytes = bytes};
        sw_msg_set_text(msg.u.spill_durable.name, sizeof msg.u.spill_durable.name, ask->name);
        break;
    default:
        msg.u.spill = (struct sw_msg_spill){.mem = MEM,
                                            .flags = ask->flags | (kind == PACKED ? SW_REQ9_IN_PLACE : 0),
                                            .offset = ask->offset,
                                            .bytes = bytes};
    }
    return msg;
}

/* The regions of a spill. */
struct made {
    uint32_t request;
    struct sw_region_id ids[N_PIECES];
    unsigned n;
    uint64_t stored_bytes;
};

static int spill(enum kind kind, const struct ask *ask, struct made *ret) {
    struct sw_msg msg = spill_msg(kind, ask);
    *ret = (struct made){.request = send_msg(&msg, NULL, 0), .n = kind == BATCH ? N_PIECES : 1};
    const int rc = await(&msg);
    if (rc)
        return rc;
    ck_assert_uint_eq(msg.header.type, kind == BATCH ? SW_MSG_RESULT_BATCH : SW_MSG_RESULT);
    for (unsigned i = 0; i < ret->n; i++)
        ret->ids[i] = kind == BATCH ? (struct sw_region_id){msg.u.result_batch.slot[i], msg.u.result_batch.gen[i]}
                                    : (struct sw_region_id){msg.u.result.slot, msg.u.result.gen};
    ret->stored_bytes = kind == BATCH ? msg.u.result_batch.stored_bytes : msg.u.result.stored_bytes;
    return 0;
}

static struct sw_msg restore_msg(enum kind kind, const struct made *made, const struct ask *ask) {
    const uint64_t bytes = ask->bytes ? ask->bytes : kind == BATCH || kind == BUFFERS ? BYTES / 2 : BYTES;
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE}};
    switch (kind) {
    case BATCH:
        msg.header.type = SW_MSG_RESTORE_BATCH;
        msg.u.restore_batch = (struct sw_msg_restore_batch){.mem = MEM,
                                                            .flags = ask->flags,
                                                            .count = ask->count ? ask->count : N_PIECES,
                                                            .slot = {made->ids[0].slot, made->ids[1].slot},
                                                            .gen = {made->ids[0].gen, made->ids[1].gen},
                                                            .offset = {0, ask->offset ? ask->offset : BYTES / 2},
                                                            .bytes = {BYTES / 2, bytes}};
        break;
    case BUFFERS:
        msg.header.type = SW_MSG_RESTORE_BUFFERS;
        msg.u.restore_buffers = (struct sw_msg_restore_buffers){.slot = made->ids[0].slot,
                                                                .gen = made->ids[0].gen,
                                                                .flags = ask->flags,
                                                                .count = ask->count ? ask->count : N_PIECES,
                                                                .mem = {MEM, MEM},
                                                                .waits = {0, ask->waits},
                                                                .offset = {0, ask->offset ? ask->offset : BYTES / 2},
                                                                .bytes = {BYTES / 2, bytes}};
        break;
    default:
        msg.u.restore = (struct sw_msg_restore){.slot = made->ids[0].slot,
                                                .gen = made->ids[0].gen,
                                                .mem = MEM,
                                                .flags = ask->flags | (kind == PACKED ? SW_REQ9_IN_PLACE : 0),
                                                .offset = ask->offset,
                                                .bytes = bytes};
    }
    return msg;
}

static int restore(enum kind kind, const struct made *made, const struct ask *ask) {
    struct sw_msg msg = restore_msg(kind, made, ask);
    return call(&msg);
}

/* Restores to memory that was wiped, and finds the bytes. */
static void ck_restores(enum kind kind, const struct made *made, uint32_t flags) {
    const struct ask ask = {.flags = flags};
    if (kind != PACKED)
        memset(memory, 0, MEMORY_BYTES);
    ck_assert_int_eq(restore(kind, made, &ask), 0);
    ck_assert_mem_eq(memory, original, BYTES);
    memcpy(memory, original, MEMORY_BYTES);
}

static int drop(struct sw_region_id id) {
    struct sw_msg msg = {.header = {.type = SW_MSG_DROP}};
    msg.u.drop = (struct sw_msg_drop){id.slot, id.gen};
    return call(&msg);
}

static void drop_all(const struct made *made) {
    for (unsigned i = 0; i < made->n; i++)
        ck_assert_int_eq(drop(made->ids[i]), 0);
}

static struct sw_engine_stats stats_now(void) {
    struct sw_engine_stats stats;
    sw_engine_check(service.service.engine);
    sw_engine_stats(service.service.engine, &stats);
    return stats;
}

/* It was refused, and nothing has changed. */
static void ck_refused(enum kind kind, const struct ask *ask, int code) {
    struct made made;
    const unsigned n_before = stats_now().n_regions;
    const int rc = spill(kind, ask, &made);
    ck_assert_msg(rc == code, "kind %d: %s", kind, rc ? sw_err_name(rc) : "accepted");
    ck_assert_uint_eq(stats_now().n_regions, n_before);
    ck_assert_mem_eq(memory, original, MEMORY_BYTES);
    ck_assert(session->n_operations == 0 && session->n_buffers == 0 && session->tenant->n_operations == 0);
}

static void ck_not_restored(enum kind kind, const struct made *made, const struct ask *ask, int code) {
    const int rc = restore(kind, made, ask);
    ck_assert_msg(rc == code, "kind %d: %s", kind, rc ? sw_err_name(rc) : "accepted");
}

/* ---- draining ---- */

START_TEST(a_drained_service_takes_nothing_and_gives_all_back) {
    const enum kind kind = (enum kind)_i;
    struct made made;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    service.service.draining = true;
    if (kind != PACKED) /* else the memory would have changed */
        for (int other = 0; other < N_KINDS; other++)
            ck_refused((enum kind)other, &(struct ask){.name = "other"}, -SW_EDRAINING);
    ck_restores(kind, &made, kind == PACKED ? 0 : SW_REQ9_KEEP);
    if (kind != PACKED) {
        ck_restores(kind, &made, 0);
        ck_assert_uint_eq(stats_now().n_regions, kind == DURABLE);
    }
    if (kind == PACKED)
        for (int other = 0; other < N_KINDS; other++)
            ck_refused((enum kind)other, &(struct ask){.name = "other"}, -SW_EDRAINING);
    if (kind == DURABLE)
        drop_all(&made);
    service.service.draining = false;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    if (kind == PACKED)
        ck_restores(kind, &made, 0);
    else
        drop_all(&made);
}
END_TEST

/* ---- limits, to the last one ---- */

/* Sends n spills of SINGLE without an answer: they are in flight until the loop runs. */
static void begin_singles(unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        struct sw_msg msg = spill_msg(SINGLE, &plainly);
        (void)send_msg(&msg, NULL, 0);
    }
}

/* A request of the kind when n others are in flight: its code; all that was accepted ends, and is dropped. */
static int code_beside(enum kind kind, bool is_restore, const struct made *made, unsigned n) {
    struct sw_msg msg = is_restore ? restore_msg(kind, made, &(struct ask){.flags = kind == PACKED ? 0 : SW_REQ9_KEEP})
                                   : spill_msg(kind, &(struct ask){.name = "beside"});
    struct sw_msg reply;
    int code = 0;
    begin_singles(n);
    const uint32_t seq = send_msg(&msg, NULL, 0);
    for (unsigned i = 0; i <= n; i++) {
        const int rc = await(&reply);
        if (reply.header.seq == seq)
            code = rc;
        else
            ck_assert_int_eq(rc, 0);
        if (!rc && reply.header.type == SW_MSG_RESULT_BATCH && !is_restore)
            for (unsigned k = 0; k < reply.u.result_batch.count; k++)
                ck_assert_int_eq(
                    sw_engine_drop(session->owner,
                                   (struct sw_region_id){reply.u.result_batch.slot[k], reply.u.result_batch.gen[k]},
                                   NULL),
                    0);
        const bool is_its = reply.header.seq == seq;
        if (rc || (is_its && is_restore) || reply.header.type != SW_MSG_RESULT)
            continue;
        const struct made one = {.ids = {{reply.u.result.slot, reply.u.result.gen}}, .n = 1};
        if (is_its && kind == PACKED)
            ck_restores(PACKED, &one, 0);
        else
            ck_assert_int_eq(sw_engine_drop(session->owner, one.ids[0], NULL), 0);
    }
    return code;
}

START_TEST(operations_in_flight_are_limited) {
    const enum kind kind = (enum kind)(_i / 2);
    const bool is_restore = _i % 2;
    struct made made = {0};
    if (is_restore)
        ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    if (is_restore && kind == PACKED) /* other sessions cannot read packed regions */
        return;
    service.config.max_session_operations = 3;
    ck_assert_int_eq(code_beside(kind, is_restore, &made, 3), -SW_ELIMIT);
    ck_assert_int_eq(code_beside(kind, is_restore, &made, 2), kind == PACKED ? -SW_EBUSY : 0); /* others read it */
    service.config.max_session_operations = 100;
    service.config.tenant_operations = 3;
    sw_tenants_set_limits(&service.service);
    ck_assert_int_eq(code_beside(kind, is_restore, &made, 3), -SW_ETENANTOPS);
    ck_assert_int_eq(code_beside(kind, is_restore, &made, 2), kind == PACKED ? -SW_EBUSY : 0);
    service.config.tenant_operations = 0;
    sw_tenants_set_limits(&service.service);
    ck_assert_int_eq(code_beside(kind, is_restore, &made, 4), kind == PACKED ? -SW_EBUSY : 0);
    ck_assert_uint_eq(session->n_operations + session->n_buffers + session->tenant->n_operations, 0);
}
END_TEST

START_TEST(buffers_in_flight_are_limited) {
    static const enum kind kinds[] = {BATCH, BUFFERS};
    const enum kind kind = kinds[_i];
    struct made made;
    for (int restores = 0; restores < 2; restores++) {
        if (restores)
            ck_assert_int_eq(spill(kind, &plainly, &made), 0);
        session->n_buffers = SW_SESSION_MAX_BUFFERS - N_PIECES + 1; /* as if so many were */
        ck_assert_int_eq(code_beside(kind, restores, &made, 0), -SW_ELIMIT);
        session->n_buffers = SW_SESSION_MAX_BUFFERS - N_PIECES;
        ck_assert_int_eq(code_beside(kind, restores, &made, 0), 0);
        ck_assert_uint_eq(session->n_buffers, SW_SESSION_MAX_BUFFERS - N_PIECES);
        session->n_buffers = 0;
    }
}
END_TEST

static void drop_everything(void) {
    while (!sw_list_empty(&session->owner->regions))
        ck_assert_int_eq(drop(SW_CONTAINER_OF(session->owner->regions.next, struct sw_region, node)->id), 0);
}

/* The engine's bound is 16 of a session; the tenant's is set. */
START_TEST(regions_are_limited) {
    const enum kind kind = (enum kind)_i;
    const unsigned n_made = kind == BATCH ? N_PIECES : 1;
    struct made made;
    for (int way = 0; way < 2; way++) {
        const unsigned bound = way ? 5 : 16;
        session->tenant->quota.max_regions = way ? bound : 0;
        for (unsigned i = 0; i < bound - n_made; i++)
            ck_assert_int_eq(spill(SINGLE, &plainly, &made), 0);
        ck_assert_int_eq(spill(kind, &plainly, &made), 0); /* the last that has room */
        if (kind == PACKED)
            ck_restores(kind, &made, 0);
        else
            drop_all(&made);
        ck_assert_int_eq(spill(SINGLE, &plainly, &made), 0);
        ck_refused(kind, &plainly, way ? -SW_ETENANTREGIONS : -SW_ELIMIT);
        drop_everything();
    }
}
END_TEST

/* Stored bytes count exactly; packed bytes are not stored here. */
START_TEST(a_tenants_bytes_are_limited) {
    const enum kind kind = (enum kind)_i;
    struct sw_quota *quota = &session->tenant->quota;
    struct made made;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    const uint64_t used = atomic_load(&quota->bytes);
    if (kind == PACKED) {
        ck_restores(kind, &made, 0);
        quota->max_bytes = 1;
        ck_assert_int_eq(spill(kind, &plainly, &made), used > 1 ? -SW_ETENANTBYTES : 0);
        if (used <= 1)
            ck_restores(kind, &made, 0);
        return;
    }
    ck_assert_uint_gt(used, BYTES);
    drop_all(&made);
    ck_assert_uint_eq(atomic_load(&quota->bytes), 0);
    quota->max_bytes = used;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    ck_refused(kind, &(struct ask){.name = "more"}, -SW_ETENANTBYTES);
    drop_all(&made);
    quota->max_bytes = used - 1;
    ck_refused(kind, &plainly, -SW_ETENANTBYTES);
    ck_assert_uint_eq(atomic_load(&quota->bytes), 0);
}
END_TEST

/* ---- ranges, to the byte ---- */

START_TEST(ranges_end_where_the_memory_does) {
    const enum kind kind = (enum kind)_i;
    static const struct {
        uint64_t offset, bytes;
        bool is_good;
    } ranges[] = {{MEMORY_BYTES - 1000, 1000, true},
                  {MEMORY_BYTES - 1000, 1001, false},
                  {MEMORY_BYTES - 999, 1000, false},
                  {MEMORY_BYTES + 1, 1, false},
                  {UINT64_MAX, 1, false},
                  {UINT64_MAX - 998, 1000, false},
                  {1, UINT64_MAX, false},
                  {UINT64_MAX - 10, UINT64_MAX - 10, false},
                  {MEMORY_BYTES - 1000, UINT64_MAX - 5, false}};
    for (unsigned i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        const struct ask ask = {.offset = ranges[i].offset, .bytes = ranges[i].bytes, .name = "orders"};
        struct made made;
        if (!ranges[i].is_good) {
            ck_refused(kind, &ask, -SW_ERANGE);
            continue;
        }
        ck_assert_int_eq(spill(kind, &ask, &made), 0);
        ck_assert_int_eq(restore(kind, &made, &ask), 0);
        ck_assert_mem_eq(memory, original, MEMORY_BYTES);
        if (kind == DURABLE)
            drop_all(&made);
    }
}
END_TEST

START_TEST(destinations_have_room_for_all) {
    static const enum kind kinds[] = {SINGLE, BATCH, BUFFERS, DURABLE, PACKED};
    const enum kind kind = kinds[_i];
    const uint64_t all = kind == BATCH || kind == BUFFERS ? BYTES / 2 : BYTES;
    struct made made;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    ck_not_restored(kind, &made, &(struct ask){.bytes = all - 1}, -SW_ETOOSMALL);
    ck_not_restored(kind, &made, &(struct ask){.offset = MEMORY_BYTES - all + 1, .bytes = all}, -SW_ERANGE);
    ck_not_restored(kind, &made, &(struct ask){.offset = UINT64_MAX - all + 2, .bytes = all}, -SW_ERANGE);
    if (kind == BATCH || kind == BUFFERS) /* by a byte */
        ck_not_restored(kind, &made, &(struct ask){.offset = BYTES / 2 - 1, .bytes = all}, -SW_EINVAL);
    ck_restores(kind, &made, 0);
    if (kind == DURABLE)
        drop_all(&made);
}
END_TEST

/* ---- numbers and flags ---- */

START_TEST(counts_are_limited) {
    struct made made;
    ck_refused(BATCH, &(struct ask){.count = SW_PROTO_MAX_BATCH + 1}, -SW_EINVAL);
    ck_refused(BATCH, &(struct ask){.count = SW_PROTO_MAX_BATCH}, -SW_ELIMIT); /* the engine's, here, is eight */
    ck_refused(BUFFERS, &(struct ask){.count = SW_PROTO_MAX_BUFFERS + 1}, -SW_EINVAL);
    ck_assert_int_eq(spill(BUFFERS, &(struct ask){.count = SW_PROTO_MAX_BUFFERS}, &made), 0);
    ck_not_restored(BUFFERS, &made, &(struct ask){.count = 1}, -SW_EINVAL);
    ck_not_restored(BUFFERS, &made, &(struct ask){.count = SW_PROTO_MAX_BUFFERS + 1}, -SW_EINVAL);
    drop_all(&made);
    for (int kind = BATCH; kind <= BUFFERS; kind++) { /* none at all */
        struct sw_msg msg = spill_msg((enum kind)kind, &plainly);
        *(kind == BATCH ? &msg.u.spill_batch.count : &msg.u.spill_buffers.count) = 0;
        ck_assert_int_eq(call(&msg), -SW_EINVAL);
    }
    struct sw_msg drops = {.header = {.type = SW_MSG_DROP_BATCH}};
    ck_assert_int_eq(call(&drops), -SW_EINVAL);
    drops = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    drops.u.drop_batch.count = SW_PROTO_MAX_BATCH + 1;
    ck_assert_int_eq(call(&drops), -SW_EINVAL);
}
END_TEST

START_TEST(unknown_flags_are_refused) {
    const enum kind kind = (enum kind)_i;
    struct made made;
    for (uint32_t bit = 3; bit < 32; bit++)
        ck_refused(kind, &(struct ask){.flags = UINT32_C(1) << bit, .name = "orders"}, -SW_EINVAL);
    ck_refused(kind, &(struct ask){.flags = SW_REQ9_KEEP, .name = "orders"}, -SW_EINVAL);
    if (kind == BATCH || kind == BUFFERS || kind == DURABLE)
        ck_refused(kind, &(struct ask){.flags = SW_REQ9_IN_PLACE, .name = "orders"}, -SW_EINVAL);
    if (kind == BUFFERS)
        for (uint32_t waits = 2; waits; waits <<= 1)
            ck_refused(kind, &(struct ask){.waits = waits}, -SW_EINVAL);
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    for (uint32_t bit = 3; bit < 32; bit++)
        ck_not_restored(kind, &made, &(struct ask){.flags = UINT32_C(1) << bit}, -SW_EINVAL);
    if (kind == PACKED)
        ck_not_restored(kind, &made, &(struct ask){.flags = SW_REQ9_KEEP}, -SW_EINVAL);
    else
        ck_not_restored(SINGLE, &made, &(struct ask){.flags = SW_REQ9_IN_PLACE}, -SW_EINVAL);
    ck_restores(kind, &made, 0);
    if (kind == DURABLE)
        drop_all(&made);
}
END_TEST

static int close_memory(uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
    msg.u.mem_close.mem = mem;
    return call(&msg);
}

START_TEST(memories_are_limited) {
    struct sw_msg msg;
    for (uint32_t mem = MEM + 1; mem < MEM + 8; mem++)
        ck_assert_int_eq(open_memory(mem, memory_fd, mem % 2), 0);
    ck_assert_int_eq(open_memory(MEM + 8, memory_fd, false), -SW_ELIMIT);
    ck_assert_int_eq(close_memory(MEM + 8), -SW_ELIMIT); /* requests that name it get its error */
    msg = (struct sw_msg){.header = {.type = SW_MSG_MEM_CLOSE}};
    msg.u.mem_close.mem = MEM + 2;
    ck_assert_int_eq(call(&msg), 0);
    ck_assert_int_eq(open_memory(MEM + 8, memory_fd, false), 0);
    ck_assert_int_eq(close_memory(MEM + 8), 0);
    ck_assert_int_eq(close_memory(MEM + 8), -SW_ENOENT); /* that is over */
}
END_TEST

/* Its record stays until it is closed, so that requests that name it get its error. */
START_TEST(memory_that_failed_can_be_closed) {
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}};
    open.u.mem_open =
        (struct sw_msg_mem_open){.mem = MEM + 1, .kind = SW_MEM_MEMFD, .n_parts = 2, .bytes = MEMORY_BYTES};
    ck_assert_int_eq(call(&open), -SW_EINVAL);
    ck_assert_int_eq(close_memory(MEM + 1), 0);
    ck_assert_int_eq(close_memory(MEM + 1), -SW_ENOENT);
    ck_assert_int_eq(open_memory(MEM + 1, memory_fd, false), 0);
}
END_TEST

/* ---- memory that was handed over for one request ---- */

START_TEST(once_memory_ends_with_its_request) {
    const enum kind kind = (enum kind)_i;
    struct made made;
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
    msg.u.mem_close.mem = MEM;
    ck_assert_int_eq(call(&msg), 0);
    ck_assert_int_eq(open_memory(MEM, memory_fd, true), 0);
    const int rc = spill(kind, &plainly, &made);
    ck_assert_msg(rc == 0, "%s", sw_err_name(rc));
    ck_assert_int_eq(spill(SINGLE, &plainly, &made), -SW_ENOENT); /* it is gone */
}
END_TEST

/* ---- durable ---- */

/* By whatever it is restored or consumed: only a drop ends it. */
START_TEST(a_durable_region_stays) {
    struct made made;
    struct sw_msg msg;
    ck_assert_int_eq(spill(DURABLE, &plainly, &made), 0);
    ck_restores(DURABLE, &made, 0);
    msg = (struct sw_msg){.header = {.type = SW_MSG_RESTORE_BATCH}};
    msg.u.restore_batch = (struct sw_msg_restore_batch){
        .mem = MEM, .count = 1, .slot = {made.ids[0].slot}, .gen = {made.ids[0].gen}, .bytes = {BYTES}};
    ck_assert_int_eq(call(&msg), 0);
    ck_restores(DURABLE, &made, 0);
    msg = (struct sw_msg){.header = {.type = SW_MSG_RESTORE_BUFFERS}};
    msg.u.restore_buffers = (struct sw_msg_restore_buffers){
        .slot = made.ids[0].slot, .gen = made.ids[0].gen, .count = 1, .mem = {MEM}, .bytes = {BYTES}};
    ck_assert_int_eq(call(&msg), 0);
    ck_restores(DURABLE, &made, 0);
    msg = (struct sw_msg){.header = {.type = SW_MSG_CONSUME}};
    msg.u.consume = (struct sw_msg_consume){made.ids[0].slot, made.ids[0].gen};
    ck_assert_int_eq(call(&msg), 0);
    ck_restores(DURABLE, &made, 0);
    msg = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    msg.u.drop_batch =
        (struct sw_msg_drop_batch){.count = 1, .slot = {made.ids[0].slot}, .gen = {made.ids[0].gen}, .consume = 1};
    ck_assert_int_eq(call(&msg), 0);
    ck_restores(DURABLE, &made, 0);
    ck_refused(DURABLE, &plainly, -SW_EEXIST);
    msg = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    msg.u.drop_batch = (struct sw_msg_drop_batch){.count = 1, .slot = {made.ids[0].slot}, .gen = {made.ids[0].gen}};
    ck_assert_int_eq(call(&msg), 0);
    ck_assert_uint_eq(stats_now().n_regions, 0);
}
END_TEST

/* The engine's bound is four. */
START_TEST(durable_regions_are_limited) {
    char name[SW_PROTO_NAME_BYTES + 1];
    struct made made[4];
    memset(name, 'n', sizeof name);
    name[SW_PROTO_NAME_BYTES] = 0;
    ck_refused(DURABLE, &(struct ask){.name = name}, -SW_EINVAL); /* without a zero at its end */
    ck_refused(DURABLE, &(struct ask){.name = ""}, -SW_EINVAL);
    name[SW_PROTO_NAME_BYTES - 1] = 0;
    ck_assert_int_eq(spill(DURABLE, &(struct ask){.name = name}, &made[0]), 0);
    for (unsigned i = 1; i < 4; i++) {
        name[0] = (char)('a' + i);
        ck_assert_int_eq(spill(DURABLE, &(struct ask){.name = name}, &made[i]), 0);
    }
    ck_refused(DURABLE, &(struct ask){.name = "one more"}, -SW_ETENANTREGIONS);
    drop_all(&made[2]);
    ck_assert_int_eq(spill(DURABLE, &(struct ask){.name = "one more"}, &made[2]), 0);
    for (unsigned i = 0; i < 4; i++)
        drop_all(&made[i]);
}
END_TEST

/* ---- what fails takes the rest along ---- */

/* Buffers are held back until the last one was checked, so that all are found before they begin. */
START_TEST(a_refused_buffer_cancels_the_others) {
    struct made made;
    const uint64_t before = stats_now().canceled_ops;
    ck_refused(BATCH, &(struct ask){.offset = MEMORY_BYTES, .bytes = 1}, -SW_ERANGE);
    ck_assert_uint_eq(stats_now().canceled_ops, before + 1);
    ck_assert_int_eq(spill(BATCH, &plainly, &made), 0);
    ck_not_restored(BATCH, &made, &(struct ask){.bytes = 1}, -SW_ETOOSMALL);
    ck_assert_uint_eq(stats_now().canceled_ops, before + 2);
    ck_restores(BATCH, &made, 0);
}
END_TEST

/* ---- after a restart ---- */

/* As the library asks about a request whose reply has not come. */
static int settle(uint32_t type, uint32_t seq, const struct made *made, struct sw_msg *ret) {
    *ret = (struct sw_msg){.header = {.type = SW_MSG_SETTLE9}};
    ret->u.settle9 = (struct sw_msg_settle9){.type = type, .seq = seq, .count = made->n};
    for (unsigned i = 0; i < made->n; i++) {
        ret->u.settle9.slot[i] = made->ids[i].slot;
        ret->u.settle9.gen[i] = made->ids[i].gen;
    }
    return call(ret);
}

START_TEST(each_kind_of_request_can_be_settled) {
    static const uint32_t spills[] = {SW_MSG_SPILL, SW_MSG_SPILL_BATCH, SW_MSG_SPILL_BUFFERS, SW_MSG_SPILL},
                          restores[] = {SW_MSG_RESTORE, SW_MSG_RESTORE_BATCH, SW_MSG_RESTORE_BUFFERS, SW_MSG_RESTORE};
    const enum kind kind = (enum kind)_i;
    struct made made;
    struct sw_msg msg;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    ck_assert_int_eq(settle(spills[kind], made.request, &made, &msg), -SW_EINVAL); /* it has not come back */
    session->may_settle = true;
    ck_assert_int_eq(settle(spills[kind], made.request, &made, &msg), 0);
    ck_assert_uint_eq(msg.header.type, kind == BATCH ? SW_MSG_RESULT_BATCH : SW_MSG_RESULT);
    const uint32_t slot = kind == BATCH ? msg.u.result_batch.slot[1] : msg.u.result.slot,
                   gen = kind == BATCH ? msg.u.result_batch.gen[1] : msg.u.result.gen;
    ck_assert(slot == made.ids[made.n - 1].slot && gen == made.ids[made.n - 1].gen);
    ck_assert_int_eq(settle(spills[kind], made.request + 1000, &made, &msg), -SW_ERESTARTED);
    ck_assert_int_eq(settle(restores[kind], made.request, &made, &msg), -SW_ERESTARTED);
    ck_restores(kind, &made, SW_REQ9_KEEP);
    drop_all(&made);
    ck_assert_int_eq(settle(restores[kind], made.request, &made, &msg), -SW_ESTALE);
    ck_assert_int_eq(settle(spills[kind], made.request, &made, &msg), -SW_ERESTARTED);
    ck_assert_int_eq(settle(SW_MSG_DROP, made.request, &made, &msg), -SW_EINVAL);
    made.n = 0;
    ck_assert_int_eq(settle(spills[kind], made.request, &made, &msg), -SW_EINVAL);
    ck_assert_int_eq(settle(0, 0, &made, &msg), 0);
    ck_assert(!session->may_settle);
}
END_TEST

/* A restart has lost a part of a spill whose bytes the client still has. The client does not hear that it was stored,
 * and the rest of the stored bytes is freed. */
START_TEST(a_spill_lost_by_a_restart_is_repeated) {
    static const uint32_t spills[] = {SW_MSG_SPILL, SW_MSG_SPILL_BATCH, SW_MSG_SPILL_BUFFERS, SW_MSG_SPILL};
    const enum kind kind = (enum kind)_i;
    struct made made;
    struct sw_msg msg;
    ck_assert_int_eq(spill(kind, &plainly, &made), 0);
    const uint32_t last = made.ids[made.n - 1].slot;
    sw_region_move(&service.service.engine->store.regions.regions[last], SW_REGION_LOST);
    session->may_settle = true;
    ck_assert_int_eq(settle(spills[kind], made.request, &made, &msg), -SW_ERESTARTED);
    ck_assert_uint_eq(stats_now().n_regions, 0);
}
END_TEST

/* The error names the first of several failures, and all valid ids are dropped. */
START_TEST(a_failed_drop_does_not_stop_the_others) {
    struct made made;
    struct sw_msg msg = {.header = {.type = SW_MSG_DROP_BATCH}};
    ck_assert_int_eq(spill(SINGLE, &plainly, &made), 0);
    msg.u.drop_batch = (struct sw_msg_drop_batch){
        .count = 4, .slot = {50, made.ids[0].slot, 51, 52}, .gen = {1, made.ids[0].gen, 1, 1}, .consume = (uint32_t)_i};
    ck_assert_int_eq(call(&msg), -SW_ENOENT);
    ck_assert_ptr_nonnull(strstr((const char *)msg.u.error.text, "request 1 of 4"));
    ck_assert_ptr_nonnull(strstr((const char *)msg.u.error.text, "50:1"));
    ck_assert_uint_eq(stats_now().n_regions, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("rules");
    TCase *tcase = tcase_create("rules");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_drained_service_takes_nothing_and_gives_all_back, 0, N_KINDS);
    tcase_add_loop_test(tcase, operations_in_flight_are_limited, 0, 2 * N_KINDS);
    tcase_add_loop_test(tcase, buffers_in_flight_are_limited, 0, 2);
    tcase_add_loop_test(tcase, regions_are_limited, 0, N_KINDS);
    tcase_add_loop_test(tcase, a_tenants_bytes_are_limited, 0, N_KINDS);
    tcase_add_loop_test(tcase, ranges_end_where_the_memory_does, 0, N_KINDS);
    tcase_add_loop_test(tcase, destinations_have_room_for_all, 0, N_KINDS);
    tcase_add_test(tcase, counts_are_limited);
    tcase_add_loop_test(tcase, unknown_flags_are_refused, 0, N_KINDS);
    tcase_add_test(tcase, memories_are_limited);
    tcase_add_test(tcase, memory_that_failed_can_be_closed);
    tcase_add_loop_test(tcase, once_memory_ends_with_its_request, 0, N_KINDS);
    tcase_add_test(tcase, a_durable_region_stays);
    tcase_add_test(tcase, durable_regions_are_limited);
    tcase_add_test(tcase, a_refused_buffer_cancels_the_others);
    tcase_add_loop_test(tcase, each_kind_of_request_can_be_settled, 0, PACKED);
    tcase_add_loop_test(tcase, a_spill_lost_by_a_restart_is_repeated, 0, DURABLE);
    tcase_add_loop_test(tcase, a_failed_drop_does_not_stop_the_others, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
