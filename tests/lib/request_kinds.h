/* request_kinds.h - a client of a session inside the test that makes requests of each kind: single, batched, of several
 * buffers, durable, packed.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one, the loop's. */
#ifndef SW_TEST_REQUEST_KINDS_H
#define SW_TEST_REQUEST_KINDS_H

#include "tests/lib/content.h"
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

static inline uint32_t send_msg(struct sw_msg *msg, int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = SW_PROTO_OLDEST_VERSION;
    msg->header.seq = ++last_seq;
    sw_session_packet(session, packet, sw_msg_encode(msg, packet), fds, n_fds);
    return last_seq;
}

/* The code of the next reply, which is in *ret. */
static inline int await(struct sw_msg *ret) {
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

static inline int call(struct sw_msg *msg) {
    (void)send_msg(msg, NULL, 0);
    return await(msg);
}

static inline int open_memory(uint32_t mem, int fd, bool once) {
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

static inline void setup(void) {
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

static inline void teardown(void) {
    sw_test_service_end(&service, session, &closed);
    (void)close(peer);
    (void)munmap(memory, MEMORY_BYTES);
    (void)close(memory_fd);
}

/* The fields of a request. */
struct ask {
    uint64_t offset, bytes; /* of its last piece, if that is not to be the half of BYTES: 0 */
    uint32_t flags, count, waits;
    const char *name;
};
static const struct ask plainly = {.name = "orders"};

static inline struct sw_msg spill_msg(enum kind kind, const struct ask *ask) {
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

static inline int spill(enum kind kind, const struct ask *ask, struct made *ret) {
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

static inline struct sw_msg restore_msg(enum kind kind, const struct made *made, const struct ask *ask) {
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

static inline int restore(enum kind kind, const struct made *made, const struct ask *ask) {
    struct sw_msg msg = restore_msg(kind, made, ask);
    return call(&msg);
}

/* Restores to memory that was wiped, and finds the bytes. */
static inline void ck_restores(enum kind kind, const struct made *made, uint32_t flags) {
    const struct ask ask = {.flags = flags};
    if (kind != PACKED)
        memset(memory, 0, MEMORY_BYTES);
    ck_assert_int_eq(restore(kind, made, &ask), 0);
    ck_assert_mem_eq(memory, original, BYTES);
    memcpy(memory, original, MEMORY_BYTES);
}

static inline int drop(struct sw_region_id id) {
    struct sw_msg msg = {.header = {.type = SW_MSG_DROP}};
    msg.u.drop = (struct sw_msg_drop){id.slot, id.gen};
    return call(&msg);
}

static inline void drop_all(const struct made *made) {
    for (unsigned i = 0; i < made->n; i++)
        ck_assert_int_eq(drop(made->ids[i]), 0);
}

static inline struct sw_engine_stats stats_now(void) {
    struct sw_engine_stats stats;
    sw_engine_check(service.service.engine);
    sw_engine_stats(service.service.engine, &stats);
    return stats;
}

/* It was refused, and nothing has changed. */
static inline void ck_refused(enum kind kind, const struct ask *ask, int code) {
    struct made made;
    const unsigned n_before = stats_now().n_regions;
    const int rc = spill(kind, ask, &made);
    ck_assert_msg(rc == code, "kind %d: %s", kind, rc ? sw_err_name(rc) : "accepted");
    ck_assert_uint_eq(stats_now().n_regions, n_before);
    ck_assert_mem_eq(memory, original, MEMORY_BYTES);
    ck_assert(session->n_operations == 0 && session->n_buffers == 0 && session->tenant->n_operations == 0);
}

static inline void ck_not_restored(enum kind kind, const struct made *made, const struct ask *ask, int code) {
    const int rc = restore(kind, made, ask);
    ck_assert_msg(rc == code, "kind %d: %s", kind, rc ? sw_err_name(rc) : "accepted");
}

static inline int close_memory(uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
    msg.u.mem_close.mem = mem;
    return call(&msg);
}

#endif
