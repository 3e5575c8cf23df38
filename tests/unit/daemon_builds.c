/* Version 10 by packets: each combination of what a packet of builds may ask for works or names its error; limits are
 * met to the last one; lengths that do not add up end the session; one of several that fails takes the others along
 * with SW_REQ_ALL, and only then. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/packets.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST = SW_PROTO_MAX_ITEMS,
    BYTES = 3000, /* of a buffer: whole numbers of every type */
    MEMORY_BYTES = MOST * BYTES,
    N_MEMS = 2,
    MEM = 1,   /* and MEM + 1, to stay */
    ONCE = 100 /* and ONCE + 1, ...: of the same bytes, for one packet */
};

static struct sw_test_service service;
static struct sw_session *session;
static int peer;
static bool closed;
static uint32_t last_seq;
static int fds[N_MEMS];
static uint8_t *memory[N_MEMS], *original[N_MEMS];
static struct sw_test_packet packet, packet_back;
static struct sw_msg reply; /* borrows from received */
static _Alignas(SW_PROTO_ALIGN) uint8_t received[SW_PROTO_MAX_PACKET_BYTES];

/* ---- messages ---- */

static uint32_t send_msg(struct sw_msg *msg, int *msg_fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t sent[2 * SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = msg->header.version ? msg->header.version : SW_PROTO_VERSION;
    msg->header.seq = ++last_seq;
    sw_session_packet(session, sent, sw_msg_encode(msg, sent), msg_fds, n_fds);
    return last_seq;
}

static bool has_reply(void) {
    int reply_fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    const int rc = sw_packet_receive(peer, received, &bytes, reply_fds, &n_fds);
    if (rc == -SW_EAGAIN)
        return false;
    ck_assert(rc == 0 && bytes > 0);
    ck_assert_int_eq(sw_msg_decode(&reply, received, bytes, NULL), 0);
    ck_assert_uint_eq(reply.header.version, session->version);
    return true;
}

/* The code of the next reply, which is in `reply`. */
static int await(void) {
    struct sw_err err;
    while (!has_reply())
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    if (reply.header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &reply.u.error);
    return err.code;
}

static int call(struct sw_msg *msg) {
    const uint32_t seq = send_msg(msg, NULL, 0);
    const int rc = await();
    ck_assert_uint_eq(reply.header.seq, seq);
    return rc;
}

static int call_packet(struct sw_test_packet *p) {
    return call(&p->msg);
}

static bool says(const char *text) {
    return strstr((const char *)reply.u.error.text, text) != NULL;
}

static void open_memory(uint32_t mem, int fd, bool once) {
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}};
    int sent = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    open.u.mem_open =
        (struct sw_msg_mem_open){.mem = mem, .kind = SW_MEM_MEMFD, .n_parts = 1, .once = once, .bytes = MEMORY_BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {MEMORY_BYTES}};
    ck_assert_int_eq(call(&open), 0);
    (void)send_msg(&parts, &sent, 1);
    ck_assert_int_eq(await(), 0);
}

static int close_memory(uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}, .u.mem_close.mem = mem};
    return call(&msg);
}

static void setup(void) {
    sw_test_service_start_large(&service);
    session = sw_test_service_session(&service, &peer, &closed);
    session->version = SW_PROTO_VERSION;
    last_seq = 100;
    for (unsigned i = 0; i < N_MEMS; i++) {
        fds[i] = memfd_create("builds", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert(ftruncate(fds[i], MEMORY_BYTES) == 0 && fcntl(fds[i], F_ADD_SEALS, F_SEAL_SHRINK) == 0);
        memory[i] = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
        original[i] = malloc(MEMORY_BYTES);
        ck_assert(memory[i] != MAP_FAILED && original[i]);
        sw_content_fill(original[i], MEMORY_BYTES, SW_CONTENT_RANDOM, 3 + i);
        memcpy(memory[i], original[i], MEMORY_BYTES);
        open_memory(MEM + i, fds[i], false);
    }
}

static void teardown(void) {
    sw_test_service_end(&service, session, &closed);
    (void)close(peer);
    for (unsigned i = 0; i < N_MEMS; i++) {
        (void)munmap(memory[i], MEMORY_BYTES);
        (void)close(fds[i]);
        free(original[i]);
    }
}

static struct sw_engine_stats stats_now(void) {
    struct sw_engine_stats stats;
    sw_engine_check(service.service.engine);
    sw_engine_stats(service.service.engine, &stats);
    return stats;
}

/* Nothing is mapped but what stays; what was not mapped is closed later. */
static void ck_at_rest(unsigned n_regions, unsigned n_mems) {
    struct sw_engine_stats stats = stats_now();
    ck_assert_uint_le(stats.n_mapped, n_mems);
    while (stats.n_mems > n_mems) {
        (void)uv_run(&service.loop, UV_RUN_ONCE);
        stats = stats_now();
    }
    ck_assert_uint_eq(stats.n_regions, n_regions);
    ck_assert_uint_eq(stats.n_mems, n_mems);
    ck_assert_uint_eq(stats.n_ops, 0);
    ck_assert(session->n_operations == 0 && session->n_buffers == 0 && session->tenant->n_operations == 0);
    ck_assert_uint_eq(session->deferred.n, 0);
    ck_assert(!session->closing);
}

static void ck_memory(void) {
    for (unsigned i = 0; i < N_MEMS; i++)
        ck_assert_mem_eq(memory[i], original[i], MEMORY_BYTES);
}

static void wipe(void) {
    for (unsigned i = 0; i < N_MEMS; i++)
        memset(memory[i], 0, MEMORY_BYTES);
}

static void restore_memory(void) {
    for (unsigned i = 0; i < N_MEMS; i++)
        memcpy(memory[i], original[i], MEMORY_BYTES);
}

/* n whole builds of a buffer each, side by side. */
static void plain_builds(struct sw_test_packet *p, unsigned n, uint32_t flags) {
    sw_test_packet(p, SW_MSG_BUILD, flags);
    for (unsigned i = 0; i < n; i++) {
        (void)sw_test_add_build(p, NULL);
        (void)sw_test_add_buffer(p, BYTES, 0);
        (void)sw_test_add_chunk(p, MEM, (uint64_t)i * BYTES, BYTES);
    }
}

/* Whole reads of what the reply says was built so. */
static void plain_reads(struct sw_test_packet *p, unsigned n, uint32_t flags, unsigned read_flags) {
    struct sw_region_id ids[MOST];
    for (unsigned i = 0; i < n; i++)
        ids[i] = sw_test_result_id(&reply, i);
    sw_test_packet(p, SW_MSG_READ, flags);
    for (unsigned i = 0; i < n; i++) {
        (void)sw_test_add_read(p, ids[i], read_flags);
        (void)sw_test_add_room(p, MEM, (uint64_t)i * BYTES, BYTES);
    }
}

/* Whatever they are. */
static void drop_regions(void) {
    struct sw_owner *owner = session->owner;
    while (!sw_list_empty(&owner->regions))
        ck_assert_int_eq(sw_engine_drop(owner, SW_CONTAINER_OF(owner->regions.next, struct sw_region, node)->id, NULL),
                         0);
}

static void discard_all(unsigned n) {
    sw_test_packet(&packet_back, SW_MSG_DISCARD, 0);
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet_back, sw_test_result_id(&reply, i));
    ck_assert_int_eq(call_packet(&packet_back), 0);
}

/* ---- combinations ---- */

/* What a packet of builds asks for. */
struct cell {
    unsigned n_builds, n_buffers;
    bool durable, typed, in_place, all;
    enum { STAY, TWO, IS_ONCE, N_KINDS_OF_MEMORY } mems;
};
enum { N_FORMS = 2 * 2 * 2 * 2, N_CELLS = 2 * 2 * N_KINDS_OF_MEMORY * N_FORMS };

static unsigned digit(int *rest, unsigned base) {
    const unsigned digit = (unsigned)*rest % base;
    *rest /= (int)base;
    return digit;
}

static struct cell cell_of(int index) {
    struct cell cell = {.n_buffers = digit(&index, 2) ? SW_PROTO_MAX_BUFFERS : 1};
    /* As many as a packet holds. */
    cell.n_builds = digit(&index, 2) ? MOST / cell.n_buffers : 1;
    cell.mems = digit(&index, N_KINDS_OF_MEMORY);
    cell.durable = digit(&index, 2);
    cell.typed = digit(&index, 2);
    cell.in_place = digit(&index, 2);
    cell.all = digit(&index, 2);
    return cell;
}

/* The table of combinations: what works is 0. */
static int code_of(const struct cell *cell) {
    const bool is_all = cell->all && cell->n_builds > 1;
    if (is_all && cell->in_place)
        return -SW_ENOTSUP; /* cannot be taken back */
    if (cell->in_place && (cell->durable || cell->n_buffers > 1))
        return -SW_EINVAL; /* a pack has one buffer and lasts as long as its client */
    return 0;
}

static uint32_t mem_of(const struct cell *cell, unsigned i) {
    return cell->mems == STAY ? MEM : (cell->mems == IS_ONCE ? ONCE : MEM) + i % N_MEMS;
}

static void open_once(const struct cell *cell) {
    for (unsigned i = 0; cell->mems == IS_ONCE && i < N_MEMS && i < cell->n_builds * cell->n_buffers; i++)
        open_memory(ONCE + i, fds[i], true);
}

static void add_cell_builds(const struct cell *cell) {
    static const unsigned types[] = {SW_VALUE_F64, SW_VALUE_F32, SW_VALUE_I64};
    char name[32];
    sw_test_packet(&packet, SW_MSG_BUILD, cell->all ? SW_REQ_ALL : 0);
    for (unsigned i = 0, at = 0; i < cell->n_builds; i++) {
        (void)snprintf(name, sizeof name, "build %u", i);
        struct sw_wire_build *build = sw_test_add_build(&packet, cell->durable ? name : NULL);
        build->flags |= cell->in_place ? SW_BUILD_IN_PLACE : 0;
        for (unsigned k = 0; k < cell->n_buffers; k++, at++) {
            (void)sw_test_add_buffer(&packet, BYTES, cell->typed ? types[at % 3] : 0);
            (void)sw_test_add_chunk(&packet, mem_of(cell, at), (uint64_t)at * BYTES, BYTES);
        }
    }
}

static void add_cell_reads(const struct cell *cell, const struct sw_region_id *ids) {
    sw_test_packet(&packet_back, SW_MSG_READ, cell->all ? SW_REQ_ALL : 0);
    for (unsigned i = 0, at = 0; i < cell->n_builds; i++) {
        (void)sw_test_add_read(&packet_back, ids[i], cell->in_place ? SW_READ_IN_PLACE : 0);
        for (unsigned k = 0; k < cell->n_buffers; k++, at++)
            (void)sw_test_add_room(&packet_back, mem_of(cell, at), (uint64_t)at * BYTES, BYTES);
    }
}

static void ck_results(const struct cell *cell, uint32_t first_number) {
    ck_assert_uint_eq(reply.header.type, SW_MSG_RESULTS);
    ck_assert_uint_eq(reply.u.results.n_results, cell->n_builds);
    ck_assert_uint_eq(reply.u.results.n_buffers + reply.u.results.text_bytes, 0u);
    ck_assert_uint_le(reply.u.results.n_texts, 8);
    for (unsigned i = 0; i < cell->n_builds; i++) {
        const struct sw_wire_result *result = &reply.u.results.results[i];
        ck_assert_int_eq(sw_test_result_code(&reply, i), 0);
        ck_assert_uint_eq(result->number, first_number + i);
        ck_assert_uint_eq(result->raw_bytes, (uint64_t)cell->n_buffers * BYTES);
        ck_assert_uint_gt(result->stored_bytes, 0);
        ck_assert_str_eq(sw_test_text(&reply, result->tier), cell->in_place ? SW_PACKED_TIER_NAME : "host");
        ck_assert_str_ne(sw_test_text(&reply, result->codec), "");
        ck_assert_str_ne(sw_test_text(&reply, result->reason), "");
    }
}

/* Also by what was refused. */
static void ck_used_up(const struct cell *cell) {
    if (cell->mems == IS_ONCE)
        ck_assert_int_eq(close_memory(ONCE), -SW_ENOENT);
}

static void ck_cell(int index) {
    const struct cell cell = cell_of(index);
    const unsigned n_in_memory = cell.n_builds * cell.n_buffers;
    struct sw_region_id ids[MOST];
    open_once(&cell);
    add_cell_builds(&cell);
    const int rc = call_packet(&packet);
    ck_assert_msg(rc == code_of(&cell), "%u x %u, durable %d, typed %d, in place %d, all %d: %s", cell.n_builds,
                  cell.n_buffers, cell.durable, cell.typed, cell.in_place, cell.all, sw_err_name(rc));
    if (rc) {
        ck_used_up(&cell);
        ck_at_rest(0, N_MEMS);
        ck_memory();
        return;
    }
    ck_results(&cell, 1);
    ck_at_rest(cell.n_builds, N_MEMS);
    for (unsigned i = 0; i < cell.n_builds; i++)
        ids[i] = sw_test_result_id(&reply, i);
    ck_used_up(&cell);
    if (!cell.in_place)
        wipe();
    open_once(&cell);
    add_cell_reads(&cell, ids);
    ck_assert_int_eq(call_packet(&packet_back), 0);
    ck_results(&cell, 1001);
    for (unsigned at = 0; at < n_in_memory; at++) {
        const unsigned m = (mem_of(&cell, at) - MEM) % (ONCE - MEM);
        ck_assert_mem_eq(memory[m] + (size_t)at * BYTES, original[m] + (size_t)at * BYTES, BYTES);
    }
    ck_at_rest(cell.durable ? cell.n_builds : 0, N_MEMS);
    if (!cell.durable)
        return;
    discard_all(cell.n_builds);
    ck_at_rest(0, N_MEMS);
}

START_TEST(each_combination_works_or_names_its_error) {
    for (int form = 0; form < N_FORMS; form++) {
        ck_cell(form * (N_CELLS / N_FORMS) + _i);
        restore_memory();
    }
}
END_TEST

/* 257 of what a packet has at most 256 of, 65 buffers of a region, names that are too long. */
START_TEST(counts_have_their_bounds) {
    char name[SW_PROTO_NAME_BYTES + 1] = {0};
    plain_builds(&packet, MOST + 1, 0);
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    for (unsigned n = SW_PROTO_MAX_BUFFERS; n <= SW_PROTO_MAX_BUFFERS + 1; n++) {
        sw_test_packet(&packet, SW_MSG_BUILD, 0);
        (void)sw_test_add_build(&packet, NULL);
        for (unsigned i = 0; i < n; i++) {
            (void)sw_test_add_buffer(&packet, BYTES, 0);
            (void)sw_test_add_chunk(&packet, MEM, (uint64_t)i * BYTES, BYTES);
        }
        ck_assert_int_eq(call_packet(&packet), n > SW_PROTO_MAX_BUFFERS ? -SW_EINVAL : 0);
        if (n == SW_PROTO_MAX_BUFFERS)
            discard_all(1);
    }
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL); /* no buffer */
    memset(name, 'n', sizeof name - 1);
    for (unsigned n = SW_PROTO_NAME_BYTES; n >= SW_PROTO_NAME_BYTES - 1; n--) {
        name[n] = 0;
        plain_builds(&packet, 0, 0);
        (void)sw_test_add_build(&packet, name);
        (void)sw_test_add_buffer(&packet, BYTES, 0);
        (void)sw_test_add_chunk(&packet, MEM, 0, BYTES);
        ck_assert_int_eq(call_packet(&packet), n == SW_PROTO_NAME_BYTES ? -SW_EINVAL : 0);
    }
    discard_all(1);
    packet.names[3] = 0;
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_DISCARD, 0);
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    for (unsigned i = 0; i <= MOST; i++)
        sw_test_add_id(&packet, (struct sw_region_id){1, 1});
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    ck_at_rest(0, N_MEMS);
}
END_TEST

/* A count of the head, or of a record, that is off by one: the arrays cannot be told apart. */
START_TEST(lengths_that_do_not_add_up_end_the_session) {
    struct sw_msg_build *m = &packet.msg.u.build;
    plain_builds(&packet, 2, 0);
    packet.builds[1].name_bytes = 1;
    m->name_bytes = 1;
    switch (_i) {
    case 0:
        m->n_buffers++;
        break;
    case 1:
        m->n_chunks--;
        break;
    case 2:
        m->name_bytes++;
        break;
    case 3:
        packet.builds[0].n_buffers = 0;
        break;
    case 4:
        packet.builds[1].n_chunks = UINT16_MAX;
        break;
    case 5:
        packet.builds[0].name_bytes = 63;
        break;
    default:
        sw_test_packet(&packet, SW_MSG_READ, 0);
        (void)sw_test_add_read(&packet, (struct sw_region_id){1, 1}, 0);
        (void)sw_test_add_room(&packet, MEM, 0, BYTES);
        packet.reads[0].n_chunks = _i == 6 ? 0 : 2;
    }
    ck_assert_int_eq(call_packet(&packet), -SW_EPROTO);
    ck_assert_uint_eq(reply.u.error.scope, SW_SCOPE_SESSION);
    ck_assert(session->closing);
}
END_TEST

/* ---- what is refused, and alone ---- */

/* Sets one field of a good packet of three; of the second record, where there are several. */
enum record { HEAD, BUILD, READ, BUFFER, CHUNK };
#define FIELD(record, type, field, value)                                                                              \
    record, offsetof(struct type, field), sizeof(((struct type *)NULL)->field), value
static const struct odd {
    unsigned type;
    enum record record;
    size_t offset, bytes;
    uint64_t value;
    int code;
    bool fails_all; /* not just its build or read */
} odd[] = {
    {SW_MSG_BUILD, FIELD(HEAD, sw_msg_build, reserved, 1), -SW_EINVAL, true},
    {SW_MSG_BUILD, FIELD(HEAD, sw_msg_build, flags, 2), -SW_EINVAL, true},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, reserved, 1u << 31), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, 16 | SW_BUILD_BEGIN | SW_BUILD_COMMIT), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, SW_BUILD_ABORT | SW_BUILD_BEGIN), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, SW_BUILD_ABORT | SW_BUILD_COMMIT), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, SW_BUILD_COMMIT), -SW_EINVAL, false}, /* it has buffers */
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, 0), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, SW_BUILD_ABORT), -SW_EINVAL, false}, /* it has chunks */
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, flags, SW_BUILD_BEGIN | SW_BUILD_IN_PLACE), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, codec, 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, reason, 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, stored_bytes, 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, value_type, SW_VALUE_NR), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, value_type, UINT16_MAX), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, chunk_bytes, 4096), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, raw_bytes, BYTES + 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUFFER, sw_wire_buffer, raw_bytes, 0), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, reserved, 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, buffer, 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, buffer, UINT16_MAX), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, at, 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, raw_bytes, BYTES - 1), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, frame_bytes, 100), -SW_EINVAL, false}, /* no chunk_bytes */
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, mem, 77), -SW_ENOENT, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, offset, MEMORY_BYTES - BYTES + 1), -SW_ERANGE, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, offset, UINT64_MAX), -SW_ERANGE, false},
    {SW_MSG_BUILD, FIELD(CHUNK, sw_wire_chunk, order_value, 1), -SW_EINVAL, false}, /* there is no page */
    {SW_MSG_READ, FIELD(HEAD, sw_msg_read, reserved, 1), -SW_EINVAL, true},
    {SW_MSG_READ, FIELD(HEAD, sw_msg_read, flags, 2), -SW_EINVAL, true},
    {SW_MSG_READ, FIELD(READ, sw_wire_read, flags, 16 | SW_READ_BEGIN | SW_READ_END), -SW_EINVAL, false},
    {SW_MSG_READ, FIELD(READ, sw_wire_read, flags, SW_READ_END), -SW_EINVAL, false}, /* it names a region */
    {SW_MSG_READ, FIELD(READ, sw_wire_read, slot, 4000), -SW_ENOENT, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, raw_bytes, BYTES - 1), -SW_ETOOSMALL, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, at, 1), -SW_EINVAL, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, frame_bytes, 1), -SW_ETOOSMALL, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, buffer, 1), -SW_EINVAL, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, reserved, 1), -SW_EINVAL, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, mem, 77), -SW_ENOENT, false},
    {SW_MSG_READ, FIELD(CHUNK, sw_wire_chunk, offset, BYTES - 1), -SW_EINVAL, true}, /* they overlap */
};
enum { N_ODD = sizeof odd / sizeof odd[0], N_PLAIN = 3 };

static void make_odd(const struct odd *row) {
    void *const records[] = {[HEAD] = &packet.msg.u,
                             [BUILD] = &packet.builds[1],
                             [READ] = &packet.reads[1],
                             [BUFFER] = &packet.buffers[1],
                             [CHUNK] = &packet.chunks[1]};
    memcpy((uint8_t *)records[row->record] + row->offset, &row->value, row->bytes);
}

/* Each by itself: the others are done. All: none of them, and the text says which one it was. */
static void ck_odd(const struct odd *row, bool all) {
    const bool is_read = row->type == SW_MSG_READ;
    plain_builds(&packet, N_PLAIN, all ? SW_REQ_ALL : 0);
    if (is_read) {
        ck_assert_int_eq(call_packet(&packet), 0);
        plain_reads(&packet, N_PLAIN, all ? SW_REQ_ALL : 0, 0);
        wipe();
    }
    make_odd(row);
    const int rc = call_packet(&packet);
    const bool fails = all || row->fails_all;
    ck_assert_msg(rc == (fails ? row->code : 0), "row %d: %s", (int)(row - odd), sw_err_name(rc));
    ck_assert(row->fails_all || !fails || says("request 2 of 3: "));
    ck_at_rest(is_read ? (fails ? N_PLAIN : 1) : (fails ? 0 : N_PLAIN - 1), N_MEMS);
    for (unsigned i = 0; !fails && i < N_PLAIN; i++)
        ck_assert_int_eq(sw_test_result_code(&reply, i), i == 1 ? row->code : 0);
    if (!fails)
        ck_assert_int_eq(strncmp(reply.u.results.text, "request 2 of 3: ", 16), 0);
    if (!is_read)
        ck_memory();
    drop_regions();
    restore_memory();
}

START_TEST(a_field_that_is_wrong_fails_its_own_build_or_read) {
    for (unsigned i = 0; i < N_ODD; i++)
        ck_odd(&odd[i], _i);
}
END_TEST

START_TEST(one_of_one_that_fails_is_an_error) {
    plain_builds(&packet, 1, 0);
    packet.chunks[0].mem = 77;
    ck_assert_int_eq(call_packet(&packet), -SW_ENOENT);
    ck_assert(!says("request"));
    plain_builds(&packet, 2, 0);
    packet.chunks[0].mem = 77;
    packet.chunks[1].offset = UINT64_MAX;
    ck_assert_int_eq(call_packet(&packet), -SW_ENOENT); /* as all have failed, with the first one's */
    ck_assert(says("request 1 of 2: "));
    plain_builds(&packet, 1, 0);
    (void)sw_test_add_buffer(&packet, BYTES, SW_VALUE_F64);
    (void)sw_test_add_chunk(&packet, MEM, BYTES, BYTES - 1);
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    ck_assert(says("buffer 2 of 2: "));
    ck_at_rest(0, N_MEMS);
}
END_TEST

/* Unless the build says how long its chunks are; out of order they are wrong in any case. */
START_TEST(a_buffer_has_one_chunk) {
    for (int is_read = 0; is_read < 2; is_read++)
        for (unsigned at = BYTES; at <= BYTES + 1; at++) {
            plain_builds(&packet, 1, 0);
            if (is_read) {
                ck_assert_int_eq(call_packet(&packet), 0);
                plain_reads(&packet, 1, 0, 0);
                sw_test_add_room(&packet, MEM, BYTES, BYTES)->buffer = 0;
            } else {
                (void)sw_test_add_chunk(&packet, MEM, BYTES, BYTES);
            }
            packet.chunks[1].at = at;
            ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
        }
    ck_at_rest(2, N_MEMS);
}
END_TEST

/* In any order; with a chunk or without. */
START_TEST(buffers_without_bytes_need_no_chunk) {
    for (unsigned n_full = 0; n_full < 3; n_full++) { /* of four buffers: the third, then the first */
        sw_test_packet(&packet, SW_MSG_BUILD, 0);
        (void)sw_test_add_build(&packet, NULL);
        for (unsigned i = 0; i < 4; i++)
            (void)sw_test_add_buffer(&packet, (i == 2 && n_full > 0) || (i == 0 && n_full > 1) ? BYTES : 0, 0);
        if (n_full > 0)
            sw_test_add_chunk(&packet, MEM, 0, BYTES)->buffer = 2;
        if (n_full > 1)
            sw_test_add_chunk(&packet, MEM + 1, BYTES, BYTES)->buffer = 0;
        (void)sw_test_add_chunk(&packet, MEM, 7, 0);
        ck_assert_int_eq(call_packet(&packet), 0);
        ck_at_rest(1, N_MEMS);
        const struct sw_region_id id = sw_test_result_id(&reply, 0);
        wipe();
        sw_test_packet(&packet, SW_MSG_READ, 0);
        (void)sw_test_add_read(&packet, id, 0);
        if (n_full > 0) {
            ck_assert_int_eq(call_packet(&packet), -SW_EINVAL); /* there is no room for its bytes */
            sw_test_add_room(&packet, MEM, 0, BYTES)->buffer = 2;
        }
        if (n_full > 1) {
            ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
            sw_test_add_room(&packet, MEM + 1, BYTES, BYTES)->buffer = 0;
        }
        ck_assert_int_eq(call_packet(&packet), 0);
        ck_assert(n_full < 1 || memcmp(memory[0], original[0], BYTES) == 0);
        ck_assert(n_full < 2 || memcmp(memory[1] + BYTES, original[1] + BYTES, BYTES) == 0);
        restore_memory();
        ck_at_rest(0, N_MEMS);
    }
}
END_TEST

/* The memory is one that is handed over for the packet alone. */
START_TEST(a_region_of_nothing_and_something_from_memory_for_once) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, ONCE, 0, BYTES);
    (void)sw_test_add_buffer(&packet, 0, 0);
    open_memory(ONCE, fds[0], true);
    ck_assert_int_eq(call_packet(&packet), 0);
    const struct sw_region_id id = sw_test_result_id(&reply, 0);
    open_memory(ONCE, fds[0], true);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, id, 0);
    (void)sw_test_add_room(&packet, ONCE, 0, BYTES);
    ck_assert_int_eq(call_packet(&packet), 0);
    ck_at_rest(0, N_MEMS);
}
END_TEST

START_TEST(destinations_may_not_overlap) {
    plain_builds(&packet, 3, 0);
    ck_assert_int_eq(call_packet(&packet), 0);
    plain_reads(&packet, 3, 0, SW_READ_KEEP);
    packet.chunks[0].offset = 2 * BYTES + 1;
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    packet.chunks[0].mem = packet.chunks[1].mem = MEM + 1; /* out of order, and other memories */
    ck_assert_int_eq(call_packet(&packet), 0);
    packet.chunks[1].offset = packet.chunks[0].offset;
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    ck_at_rest(3, N_MEMS);
}
END_TEST

/* ---- all or nothing, or each by itself ---- */

/* The tenant's bytes are used up by the second of three: that shows when it is stored. */
START_TEST(a_build_that_fails_late) {
    const bool all = _i;
    session->tenant->quota.max_bytes = 2 * BYTES;
    plain_builds(&packet, 3, all ? SW_REQ_ALL : 0);
    const int rc = call_packet(&packet);
    ck_assert_int_eq(rc, all ? -SW_ETENANTBYTES : 0);
    ck_assert(!all || says(" of 3: "));
    unsigned n_stored = 0;
    for (unsigned i = 0; !all && i < 3; i++) {
        const int code = sw_test_result_code(&reply, i);
        const struct sw_region_id id = sw_test_result_id(&reply, i);
        ck_assert(code == 0 || code == -SW_ETENANTBYTES);
        ck_assert(!code == (id.gen != 0));
        n_stored += !code;
    }
    ck_assert(all || (n_stored > 0 && n_stored < 3));
    ck_at_rest(n_stored, N_MEMS);
    ck_memory();
}
END_TEST

START_TEST(reads_keep_what_they_are_told_to) {
    const bool all = _i;
    plain_builds(&packet, 3, 0);
    ck_assert_int_eq(call_packet(&packet), 0);
    plain_reads(&packet, 3, all ? SW_REQ_ALL : 0, SW_READ_KEEP);
    ck_assert_int_eq(call_packet(&packet), 0);
    ck_at_rest(3, N_MEMS);
    packet.reads[1].flags &= (uint16_t)~SW_READ_KEEP;
    ck_assert_int_eq(call_packet(&packet), all ? -SW_EINVAL : 0); /* one that is back speaks for all */
    ck_at_rest(all ? 3 : 2, N_MEMS);
    packet.reads[0].flags = packet.reads[2].flags = packet.reads[1].flags;
    ck_assert_int_eq(call_packet(&packet), 0);
    if (!all)
        ck_assert_int_eq(sw_test_result_code(&reply, 1), -SW_ESTALE);
    ck_at_rest(0, N_MEMS);
}
END_TEST

START_TEST(the_priority_comes_with_the_build) {
    plain_builds(&packet, 2, 0);
    packet.builds[1].keep_priority = 200;
    ck_assert_int_eq(call_packet(&packet), 0);
    const struct sw_region *regions = service.service.engine->store.regions.regions;
    ck_assert_uint_eq(regions[sw_test_result_id(&reply, 0).slot].priority, 0);
    ck_assert_uint_eq(regions[sw_test_result_id(&reply, 1).slot].priority, 200);
}
END_TEST

/* ---- memories for one packet ---- */

/* As many as there are chunks, each used once or several times; unmapped before the reply. */
START_TEST(memories_for_one_packet_go_with_it) {
    enum { N = 32 };
    sw_test_packet(&packet, SW_MSG_BUILD, _i ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < N; i++) {
        open_memory(ONCE + i, fds[0], true);
        (void)sw_test_add_build(&packet, NULL);
        for (unsigned k = 0; k < 2; k++) {
            (void)sw_test_add_buffer(&packet, BYTES, 0);
            (void)sw_test_add_chunk(&packet, ONCE + i * k, (2ul * i + k) * BYTES, BYTES);
        }
    }
    ck_assert_uint_eq(stats_now().n_mems, N_MEMS + N);
    ck_assert_int_eq(call_packet(&packet), 0);
    ck_at_rest(N, N_MEMS);
    ck_assert_uint_eq(stats_now().n_mapped, N_MEMS);
    ck_assert_uint_eq(service.service.fds.used, N_MEMS);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(close_memory(ONCE + i), -SW_ENOENT);
}
END_TEST

/* By its head, its limits, its first build, the last one. */
START_TEST(a_packet_that_is_refused_uses_them_up) {
    for (unsigned i = 0; i < 2; i++)
        open_memory(ONCE + i, fds[i], true);
    plain_builds(&packet, 2, _i == 2 ? SW_REQ_ALL : 0);
    packet.chunks[0].mem = ONCE;
    packet.chunks[1].mem = ONCE + 1;
    service.service.draining = _i == 0;
    packet.msg.u.build.reserved = _i == 1;
    packet.builds[0].reserved[0] = _i >= 2;
    packet.builds[1].reserved[0] = _i >= 3;
    ck_assert_int_eq(call_packet(&packet), _i ? -SW_EINVAL : -SW_EDRAINING);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(close_memory(ONCE + i), -SW_ENOENT);
    ck_at_rest(0, N_MEMS);
    ck_assert_uint_eq(service.service.fds.used, N_MEMS);
}
END_TEST

/* The session ends while a packet works with memories of its own. */
START_TEST(a_session_that_ends_beneath_a_packet) {
    for (unsigned i = 0; i < 2; i++)
        open_memory(ONCE + i, fds[i], true);
    plain_builds(&packet, 2, _i ? SW_REQ_ALL : 0);
    packet.chunks[0].mem = ONCE;
    packet.chunks[1].mem = ONCE + 1;
    (void)send_msg(&packet.msg, NULL, 0);
    sw_session_close(session, "test");
}
END_TEST

/* ---- memory that cannot be had ---- */

/* Each allocation fails in turn: what was not stored is not there, what was is in the results, and the rest is as
 * before. The loop's index: all or nothing, or each by itself. */
START_TEST(an_allocation_that_fails_leaves_nothing_behind) {
    const uint32_t flags = _i ? SW_REQ_ALL : 0;
    long live = 0;
    unsigned n_failed = 0;
    for (unsigned long nth = 0;; nth++) { /* at first none: a device keeps what it has allocated for the first one */
        plain_builds(&packet, 2, flags);
        (void)sw_test_add_buffer(&packet, 0, 0); /* in no memory */
        sw_alloc_fail_nth(nth);
        const int rc = call_packet(&packet);
        sw_alloc_fail_nth(0);
        ck_assert_msg(rc == 0 || rc == -SW_ENOMEM, "%s", (const char *)reply.u.error.text);
        const unsigned n_bad =
            rc ? 2u : (sw_test_result_code(&reply, 0) ? 1u : 0) + (sw_test_result_code(&reply, 1) ? 1u : 0);
        ck_assert(!_i || n_bad != 1);
        ck_at_rest(2 - n_bad, N_MEMS);
        ck_memory();
        drop_regions();
        live = nth ? live : sw_alloc_live();
        ck_assert_int_eq(sw_alloc_live(), live);
        if (nth && !n_bad)
            break;
        n_failed += n_bad > 0;
    }
    ck_assert_uint_gt(n_failed, 5);
}
END_TEST

/* ---- orders ---- */

START_TEST(chunks_wait_for_their_words) {
    enum { WORDS = 512 };
    int page = memfd_create("order", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct sw_msg hand_over = {.header.type = SW_MSG_ORDER_PAGE, .u.order_page.bytes = WORDS * 8};
    ck_assert(ftruncate(page, WORDS * 8) == 0 && fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    _Atomic uint64_t *words = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    ck_assert_ptr_ne(words, MAP_FAILED);
    (void)send_msg(&hand_over, &page, 1);
    ck_assert_int_eq(await(), 0);
    plain_builds(&packet, 3, 0);
    packet.chunks[0].order_word = 3;
    packet.chunks[0].order_value = 5;
    packet.chunks[1].order_word = WORDS - 1;
    packet.chunks[1].order_value = 1;
    packet.chunks[2].order_word = 4000; /* means nothing: it does not wait */
    memset(memory[0], 0, 2 * BYTES);
    (void)send_msg(&packet.msg, NULL, 0);
    for (unsigned i = 0; i < 2; i++) {
        for (int turn = 0; turn < 20; turn++) {
            (void)uv_run(&service.loop, UV_RUN_NOWAIT);
            (void)usleep(500);
            ck_assert(!has_reply());
        }
        memcpy(memory[0] + (size_t)i * BYTES, original[0] + (size_t)i * BYTES, BYTES);
        atomic_store(&words[i ? WORDS - 1 : 3], i ? 1 : 7);
    }
    ck_assert_int_eq(await(), 0);
    plain_reads(&packet, 3, SW_REQ_ALL, 0);
    wipe();
    ck_assert_int_eq(call_packet(&packet), 0);
    ck_assert_mem_eq(memory[0], original[0], 3 * BYTES); /* as the stream left them */
    plain_builds(&packet, 1, 0);
    packet.chunks[0].order_word = WORDS;
    packet.chunks[0].order_value = 1;
    ck_assert_int_eq(call_packet(&packet), -SW_ERANGE);
    ck_at_rest(0, N_MEMS);
    (void)munmap((void *)(uintptr_t)words, WORDS * 8);
}
END_TEST

/* ---- limits ---- */

START_TEST(a_drained_service_builds_nothing_and_gives_all_back) {
    plain_builds(&packet, 3, 0);
    ck_assert_int_eq(call_packet(&packet), 0);
    plain_reads(&packet_back, 3, 0, 0);
    service.service.draining = true;
    for (unsigned all = 0; all < 2; all++) {
        plain_builds(&packet, 3, all ? SW_REQ_ALL : 0);
        ck_assert_int_eq(call_packet(&packet), -SW_EDRAINING);
    }
    wipe();
    ck_assert_int_eq(call_packet(&packet_back), 0);
    ck_assert_mem_eq(memory[0], original[0], 3 * BYTES);
    ck_at_rest(0, N_MEMS);
}
END_TEST

/* As the client's counter would number them behind n others. */
static void number_builds(struct sw_test_packet *p, unsigned n) {
    for (unsigned i = 0; i < p->msg.u.build.n_builds; i++)
        p->builds[i].build += n;
}

/* Packets count, whatever is in them; until the loop runs none has ended. */
START_TEST(packets_in_flight_have_their_bounds) {
    unsigned n_codes[2] = {0};
    service.config.max_session_operations = _i ? 100 : 3;
    service.config.tenant_operations = _i ? 3 : 0;
    for (unsigned i = 0; i < 5; i++) {
        plain_builds(&packet, i + 1, 0);
        number_builds(&packet, i * MOST);
        (void)send_msg(&packet.msg, NULL, 0);
    }
    for (unsigned i = 0; i < 5; i++) {
        const int rc = await();
        ck_assert(rc == 0 || rc == (_i ? -SW_ETENANTOPS : -SW_ELIMIT));
        n_codes[rc != 0]++;
    }
    ck_assert(n_codes[0] == 3 && n_codes[1] == 2);
    ck_at_rest(1 + 2 + 3, N_MEMS);
}
END_TEST

/* Eight full packets, and single builds beside them, but not one more of two. */
START_TEST(buffers_in_flight_have_their_bound) {
    unsigned n_refused = 0;
    const unsigned n_full = SW_SESSION_MAX_BUFFERS / MOST;
    for (unsigned i = 0; i < n_full; i++) {
        plain_builds(&packet, MOST, 0);
        number_builds(&packet, i * MOST);
        for (unsigned k = 0; k < MOST; k++)
            packet.buffers[k].raw_bytes = packet.chunks[k].raw_bytes = 0; /* the tier has room for all */
        (void)send_msg(&packet.msg, NULL, 0);
    }
    ck_assert_uint_eq(session->n_buffers, SW_SESSION_MAX_BUFFERS);
    for (unsigned n = 1; n <= 2; n++) {
        plain_builds(&packet, n, 0);
        number_builds(&packet, (n_full + n) * MOST);
        (void)send_msg(&packet.msg, NULL, 0);
    }
    for (unsigned i = 0; i < n_full + 2; i++) {
        const int rc = await();
        ck_assert_msg(rc == 0 || rc == -SW_ELIMIT, "%s", (const char *)reply.u.error.text);
        n_refused += rc != 0;
    }
    ck_assert_uint_eq(n_refused, 1);
    ck_at_rest(SW_SESSION_MAX_BUFFERS + 1, N_MEMS);
}
END_TEST

/* ---- ids ---- */

START_TEST(what_can_be_discarded_is) {
    const bool consumes = _i;
    const struct sw_region_id never = {4000, 1};
    struct sw_region_id ids[2];
    plain_builds(&packet, 1, 0);
    (void)sw_test_add_build(&packet, "stays");
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, MEM, 0, BYTES);
    ck_assert_int_eq(call_packet(&packet), 0);
    for (unsigned i = 0; i < 2; i++)
        ids[i] = sw_test_result_id(&reply, i);
    sw_test_packet(&packet_back, SW_MSG_DISCARD, consumes ? SW_REQ_CONSUME : 0);
    sw_test_add_id(&packet_back, never);
    sw_test_add_id(&packet_back, ids[0]);
    sw_test_add_id(&packet_back, ids[1]);
    ck_assert_int_eq(call_packet(&packet_back), 0);
    ck_assert_uint_eq(reply.u.results.n_results, 3);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(sw_test_result_code(&reply, i), i ? 0 : -SW_ENOENT);
    ck_assert_uint_eq(sw_test_result_id(&reply, 1).slot, ids[0].slot);
    ck_assert_ptr_nonnull(strstr(reply.u.results.text, "request 1 of 3: "));
    ck_at_rest(consumes, N_MEMS); /* a durable region stays */
    sw_test_packet(&packet_back, SW_MSG_DISCARD, 0);
    sw_test_add_id(&packet_back, never);
    sw_test_add_id(&packet_back, ids[0]);
    ck_assert_int_eq(call_packet(&packet_back), -SW_ENOENT);
    ck_assert(says("request 1 of 2: "));
    for (unsigned i = 0; i < 2; i++) {
        sw_test_packet(&packet_back, SW_MSG_DISCARD, i ? 4 : 0);
        packet_back.msg.u.discard.reserved = !i;
        sw_test_add_id(&packet_back, ids[1]);
        ck_assert_int_eq(call_packet(&packet_back), -SW_EINVAL);
    }
    sw_test_packet(&packet_back, SW_MSG_DISCARD, 0);
    sw_test_add_id(&packet_back, ids[1]);
    ck_assert_int_eq(call_packet(&packet_back), consumes ? 0 : -SW_ESTALE);
    ck_at_rest(0, N_MEMS);
}
END_TEST

static int inspect(struct sw_region_id id, uint32_t what, uint32_t first) {
    struct sw_msg msg = {.header.type = SW_MSG_INSPECT, .u.inspect = {id.slot, id.gen, what, first}};
    const int rc = call(&msg);
    ck_assert(rc || reply.header.type == SW_MSG_DETAILS);
    return rc;
}

START_TEST(a_region_can_be_inspected) {
    const struct sw_msg_details *details = &reply.u.details;
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    for (unsigned i = 0; i < 2; i++) {
        (void)sw_test_add_buffer(&packet, BYTES + 1000u * i, 0);
        (void)sw_test_add_chunk(&packet, MEM, i * 4ul * BYTES, BYTES + 1000u * i);
    }
    (void)sw_test_add_build(&packet, NULL);
    packet.builds[1].flags |= SW_BUILD_IN_PLACE;
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, MEM + 1, 0, BYTES);
    ck_assert_int_eq(call_packet(&packet), 0);
    const struct sw_region_id id = sw_test_result_id(&reply, 0), packed = sw_test_result_id(&reply, 1);
    ck_assert_int_eq(inspect(id, SW_INSPECT_REGION, 0), 0);
    ck_assert_uint_eq(details->n_results, 1);
    ck_assert_uint_eq(details->n_buffers + details->n_frames + details->n_all, 0);
    ck_assert(details->results[0].slot == id.slot && details->results[0].gen == id.gen);
    ck_assert_uint_eq(details->results[0].raw_bytes, 2 * BYTES + 1000);
    ck_assert_str_eq(sw_test_text(&reply, details->results[0].state), "out");
    ck_assert_str_eq(sw_test_text(&reply, details->results[0].tier), "host");
    ck_assert_int_eq(inspect(id, SW_INSPECT_BUFFERS, 0), 0);
    ck_assert(details->n_buffers == 2 && details->results[0].n_buffers == 2);
    ck_assert(details->buffers[0].raw_bytes == BYTES && details->buffers[1].raw_bytes == BYTES + 1000);
    ck_assert_uint_gt(details->buffers[1].stored_bytes, 0);
    ck_assert_str_ne(sw_test_text(&reply, details->buffers[1].codec), "");
    ck_assert_int_eq(inspect(packed, SW_INSPECT_FRAMES, 0), 0);
    ck_assert(details->n_all == 1 && details->n_frames == 1);
    ck_assert(details->frames[0].offset == 0 && details->frames[0].raw_bytes == BYTES);
    ck_assert_int_eq(inspect(packed, SW_INSPECT_FRAMES, 1), -SW_ERANGE);
    ck_assert_int_eq(inspect(id, SW_INSPECT_FRAMES, 0), -SW_EINVAL); /* it is not packed */
    ck_assert_int_eq(inspect(id, SW_INSPECT_BUFFERS, 1), -SW_EINVAL);
    ck_assert_int_eq(inspect(id, SW_INSPECT_FRAMES + 1, 0), -SW_EINVAL);
    ck_assert_int_eq(inspect((struct sw_region_id){4000, 1}, SW_INSPECT_REGION, 0), -SW_ENOENT);
}
END_TEST

static int adopt(const char *name) {
    struct sw_msg msg = {.header.type = SW_MSG_ADOPT};
    sw_msg_set_text(msg.u.adopt.name, sizeof msg.u.adopt.name, name);
    return call(&msg);
}

START_TEST(a_durable_region_is_adopted_by_its_name) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    for (unsigned i = 0; i < 2; i++) {
        (void)sw_test_add_build(&packet, i ? "two" : "one");
        (void)sw_test_add_buffer(&packet, BYTES, 0);
        (void)sw_test_add_chunk(&packet, MEM, 0, BYTES);
    }
    ck_assert_int_eq(call_packet(&packet), 0);
    const struct sw_region_id two = sw_test_result_id(&reply, 1);
    ck_assert_int_eq(call_packet(&packet), -SW_EEXIST);
    ck_assert_int_eq(adopt("two"), 0);
    ck_assert_uint_eq(reply.header.type, SW_MSG_RESULTS);
    ck_assert(sw_test_result_id(&reply, 0).slot == two.slot && sw_test_result_id(&reply, 0).gen == two.gen);
    ck_assert_uint_eq(reply.u.results.results[0].raw_bytes, BYTES);
    ck_assert_int_eq(adopt("three"), -SW_ENOENT);
}
END_TEST

/* ---- versions ---- */

/* A session keeps the version that it has begun with: in the other one, no message is served. */
START_TEST(a_packet_of_the_other_version_ends_the_session) {
    static const struct {
        uint16_t session, header, type;
    } cases[] = {{10, 9, SW_MSG_STATUS}, {10, 9, SW_MSG_QUERY},   {10, 9, SW_MSG_DISCARD}, {10, 10, SW_MSG_QUERY},
                 {9, 10, SW_MSG_STATUS}, {9, 10, SW_MSG_DISCARD}, {9, 10, SW_MSG_QUERY},   {9, 9, SW_MSG_DISCARD}};
    struct sw_msg msg = {.header = {.version = cases[_i].header, .type = cases[_i].type}};
    session->version = cases[_i].session;
    ck_assert_int_eq(call(&msg), -SW_EPROTO);
    ck_assert(session->closing);
}
END_TEST

START_TEST(a_hello_is_answered_in_its_version) {
    const unsigned version = (unsigned)(SW_PROTO_OLDEST_VERSION + _i % 2), claimed = version + (unsigned)(_i / 2);
    struct sw_msg msg = {.header = {.version = (uint16_t)version, .type = SW_MSG_HELLO}, .u.hello.version = claimed};
    session->version = SW_PROTO_OLDEST_VERSION; /* as before a HELLO */
    session->greeted = false;
    (void)send_msg(&msg, NULL, 0);
    const int rc = await();
    if (claimed != version) {
        ck_assert_int_eq(rc, -SW_EVERSION);
        ck_assert(session->closing);
        return;
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_uint_eq(reply.header.version, version);
    ck_assert_uint_eq(reply.u.hello_ok.version, version);
    ck_assert_uint_eq(session->version, version);
}
END_TEST

/* ---- after a restart ---- */

static int settle(uint32_t type, uint32_t seq, uint32_t flags, const struct sw_region_id *ids, unsigned n) {
    sw_test_packet(&packet, SW_MSG_SETTLE, flags);
    packet.msg.u.settle.type = type;
    packet.msg.u.settle.seq = seq;
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, ids ? ids[i] : (struct sw_region_id){0});
    return call_packet(&packet);
}

static void move(struct sw_region_id id, enum sw_region_state state) {
    sw_region_move(&service.service.engine->store.regions.regions[id.slot], state);
}

/* One of three builds is lost, or was taken back: with `all` nothing was stored, and so it is made. */
START_TEST(builds_are_settled_by_seq_and_index) {
    const bool all = _i % 2, is_lost = _i / 2;
    struct sw_region_id ids[3];
    plain_builds(&packet, 3, all ? SW_REQ_ALL : 0);
    ck_assert_int_eq(call_packet(&packet), 0);
    const uint32_t seq = last_seq;
    for (unsigned i = 0; i < 3; i++)
        ids[i] = sw_test_result_id(&reply, i);
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, all ? SW_REQ_ALL : 0, NULL, 3), -SW_EINVAL); /* it has not come back */
    session->may_settle = true;
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, all ? SW_REQ_ALL : 0, NULL, 3), 0);
    ck_assert_uint_eq(reply.u.results.service_us, 0);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_test_result_code(&reply, i), 0);
        ck_assert(sw_test_result_id(&reply, i).slot == ids[i].slot && sw_test_result_id(&reply, i).gen == ids[i].gen);
        ck_assert_uint_eq(reply.u.results.results[i].raw_bytes, BYTES);
    }
    if (is_lost)
        move(ids[1], SW_REGION_LOST);
    else
        ck_assert_int_eq(sw_engine_drop(session->owner, ids[1], NULL), 0);
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, all ? SW_REQ_ALL : 0, NULL, 3), all ? -SW_ERESTARTED : 0);
    for (unsigned i = 0; !all && i < 3; i++)
        ck_assert_int_eq(sw_test_result_code(&reply, i), i == 1 ? -SW_ERESTARTED : 0);
    ck_at_rest(all ? 0 : 2, N_MEMS);
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq + 1000, 0, NULL, 1), -SW_ERESTARTED);
    ck_assert_int_eq(settle(0, 0, 0, NULL, 0), 0);
    ck_assert_uint_eq(reply.header.type, SW_MSG_OK);
    ck_assert(!session->may_settle);
}
END_TEST

/* The second of three is back. With `all` it speaks for the others. */
START_TEST(reads_are_settled_by_their_ids) {
    const bool all = _i;
    struct sw_region_id ids[4];
    plain_builds(&packet, 4, 0);
    ck_assert_int_eq(call_packet(&packet), 0);
    for (unsigned i = 0; i < 4; i++)
        ids[i] = sw_test_result_id(&reply, i);
    session->may_settle = true;
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, ids, 3), -SW_ERESTARTED);
    ck_assert(all ? !says("request") : says("request 1 of 3: "));
    move(ids[1], SW_REGION_RESTORING);
    move(ids[1], SW_REGION_IN);
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, ids, 3), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(sw_test_result_code(&reply, i), all || i == 1 ? 0 : -SW_ERESTARTED);
    ck_at_rest(all ? 1 : 3, N_MEMS);
    ck_assert_int_eq(settle(SW_MSG_READ, 7, 0, &ids[1], 1), -SW_ESTALE);
    move(ids[3], SW_REGION_LOST);
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, &ids[3], 1), -SW_ELOST);
}
END_TEST

START_TEST(what_cannot_be_settled) {
    const struct sw_region_id id = {1, 1};
    session->may_settle = true;
    ck_assert_int_eq(settle(SW_MSG_DISCARD, 7, 0, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_SPILL, 7, 0, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_BUILD, 7, 2, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_BUILD, 7, 0, NULL, 0), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_BUILD, 7, 0, NULL, MOST + 1), -SW_EINVAL);
    ck_assert_int_eq(settle(0, 0, 0, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(0, 7, 0, NULL, 0), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_SETTLE, 0);
    packet.msg.u.settle.reserved = 1;
    ck_assert_int_eq(call_packet(&packet), -SW_EINVAL);
    ck_assert(session->may_settle);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("builds");
    TCase *tcase = tcase_create("builds");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, each_combination_works_or_names_its_error, 0, N_CELLS / N_FORMS);
    tcase_add_test(tcase, counts_have_their_bounds);
    tcase_add_loop_test(tcase, lengths_that_do_not_add_up_end_the_session, 0, 8);
    tcase_add_loop_test(tcase, a_field_that_is_wrong_fails_its_own_build_or_read, 0, 2);
    tcase_add_test(tcase, one_of_one_that_fails_is_an_error);
    tcase_add_test(tcase, a_buffer_has_one_chunk);
    tcase_add_test(tcase, buffers_without_bytes_need_no_chunk);
    tcase_add_test(tcase, a_region_of_nothing_and_something_from_memory_for_once);
    tcase_add_test(tcase, destinations_may_not_overlap);
    tcase_add_loop_test(tcase, a_build_that_fails_late, 0, 2);
    tcase_add_loop_test(tcase, reads_keep_what_they_are_told_to, 0, 2);
    tcase_add_test(tcase, the_priority_comes_with_the_build);
    tcase_add_loop_test(tcase, memories_for_one_packet_go_with_it, 0, 2);
    tcase_add_loop_test(tcase, a_packet_that_is_refused_uses_them_up, 0, 4);
    tcase_add_loop_test(tcase, a_session_that_ends_beneath_a_packet, 0, 2);
    tcase_add_loop_test(tcase, an_allocation_that_fails_leaves_nothing_behind, 0, 2);
    tcase_add_test(tcase, chunks_wait_for_their_words);
    tcase_add_test(tcase, a_drained_service_builds_nothing_and_gives_all_back);
    tcase_add_loop_test(tcase, packets_in_flight_have_their_bounds, 0, 2);
    tcase_add_test(tcase, buffers_in_flight_have_their_bound);
    tcase_add_loop_test(tcase, what_can_be_discarded_is, 0, 2);
    tcase_add_test(tcase, a_region_can_be_inspected);
    tcase_add_test(tcase, a_durable_region_is_adopted_by_its_name);
    tcase_add_loop_test(tcase, a_packet_of_the_other_version_ends_the_session, 0, 8);
    tcase_add_loop_test(tcase, a_hello_is_answered_in_its_version, 0, 4);
    tcase_add_loop_test(tcase, builds_are_settled_by_seq_and_index, 0, 4);
    tcase_add_loop_test(tcase, reads_are_settled_by_their_ids, 0, 2);
    tcase_add_test(tcase, what_cannot_be_settled);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
