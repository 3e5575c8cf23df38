/* Packets of builds and of reads: every combination of what they may ask for works or names its error; limits are met
 * to the last one; lengths that do not add up end the session; a wrong field fails its own build or read. */
#include "spill/engine_state.h"
#include "tests/lib/builds_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum {
    MOST = SW_PROTO_MAX_ITEMS,
    BYTES = SW_BUILDS_BYTES,
    MEMORY_BYTES = SW_BUILDS_MEMORY_BYTES,
    N_MEMS = SW_BUILDS_MEMS,
    MEM = SW_PACKET_RIG_MEM,
    ONCE = 100 /* and ONCE + 1, ...: of the same bytes, for one packet */
};

static struct sw_packet_rig *const rig = &sw_builds.rig;
static struct sw_test_packet packet, packet_back;

/* ---- combinations ---- */

/* The flags and fields of a packet of builds. */
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
    /* as many as a packet holds */
    cell.n_builds = digit(&index, 2) ? MOST / cell.n_buffers : 1;
    cell.mems = digit(&index, N_KINDS_OF_MEMORY);
    cell.durable = digit(&index, 2);
    cell.typed = digit(&index, 2);
    cell.in_place = digit(&index, 2);
    cell.all = digit(&index, 2);
    return cell;
}

/* The table of combinations. 0: it works. */
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
        sw_packet_rig_add_memory(rig, ONCE + i, sw_builds.fds[i], MEMORY_BYTES, true);
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
    ck_assert_uint_eq(rig->reply.header.type, SW_MSG_RESULTS);
    ck_assert_uint_eq(rig->reply.u.results.n_results, cell->n_builds);
    ck_assert_uint_eq(rig->reply.u.results.n_buffers + rig->reply.u.results.text_bytes, 0u);
    ck_assert_uint_le(rig->reply.u.results.n_texts, 8);
    for (unsigned i = 0; i < cell->n_builds; i++) {
        const struct sw_wire_result *result = &rig->reply.u.results.results[i];
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), 0);
        ck_assert_uint_eq(result->number, first_number + i);
        ck_assert_uint_eq(result->raw_bytes, (uint64_t)cell->n_buffers * BYTES);
        ck_assert_uint_gt(result->stored_bytes, 0);
        ck_assert_str_eq(sw_test_text(&rig->reply, result->tier), cell->in_place ? SW_PACKED_TIER_NAME : "host");
        ck_assert_str_ne(sw_test_text(&rig->reply, result->codec), "");
        ck_assert_str_ne(sw_test_text(&rig->reply, result->reason), "");
    }
}

/* Memory for one packet is used up, even if the packet was refused. */
static void ck_used_up(const struct cell *cell) {
    if (cell->mems == IS_ONCE)
        ck_assert_int_eq(sw_builds_close_memory(ONCE), -SW_ENOENT);
}

static void ck_cell(int index) {
    const struct cell cell = cell_of(index);
    const unsigned n_in_memory = cell.n_builds * cell.n_buffers;
    struct sw_region_id ids[MOST];
    open_once(&cell);
    add_cell_builds(&cell);
    const int rc = sw_packet_rig_call(rig, &packet);
    ck_assert_msg(rc == code_of(&cell), "%u x %u, durable %d, typed %d, in place %d, all %d: %s", cell.n_builds,
                  cell.n_buffers, cell.durable, cell.typed, cell.in_place, cell.all, sw_err_name(rc));
    if (rc) {
        ck_used_up(&cell);
        sw_builds_ck_rest(0, N_MEMS);
        sw_builds_ck_memory();
        return;
    }
    ck_results(&cell, 1);
    sw_builds_ck_rest(cell.n_builds, N_MEMS);
    for (unsigned i = 0; i < cell.n_builds; i++)
        ids[i] = sw_test_result_id(&rig->reply, i);
    ck_used_up(&cell);
    if (!cell.in_place)
        sw_builds_wipe();
    open_once(&cell);
    add_cell_reads(&cell, ids);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), 0);
    ck_results(&cell, 1001);
    for (unsigned at = 0; at < n_in_memory; at++) {
        const unsigned m = (mem_of(&cell, at) - MEM) % (ONCE - MEM);
        ck_assert_mem_eq(sw_builds.memory[m] + (size_t)at * BYTES, sw_builds.original[m] + (size_t)at * BYTES, BYTES);
    }
    sw_builds_ck_rest(cell.durable ? cell.n_builds : 0, N_MEMS);
    if (!cell.durable)
        return;
    sw_builds_discard_all(cell.n_builds);
    sw_builds_ck_rest(0, N_MEMS);
}

START_TEST(each_combination_works_or_names_its_error) {
    for (int form = 0; form < N_FORMS; form++) {
        ck_cell(form * (N_CELLS / N_FORMS) + _i);
        sw_builds_fill_again();
    }
}
END_TEST

/* 257 items where a packet has at most 256, 65 buffers of a region, and names that are too long. */
START_TEST(counts_are_limited) {
    char name[SW_PROTO_NAME_BYTES + 1] = {0};
    sw_builds_make(&packet, MOST + 1, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    for (unsigned n = SW_PROTO_MAX_BUFFERS; n <= SW_PROTO_MAX_BUFFERS + 1; n++) {
        sw_test_packet(&packet, SW_MSG_BUILD, 0);
        (void)sw_test_add_build(&packet, NULL);
        for (unsigned i = 0; i < n; i++) {
            (void)sw_test_add_buffer(&packet, BYTES, 0);
            (void)sw_test_add_chunk(&packet, MEM, (uint64_t)i * BYTES, BYTES);
        }
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet), n > SW_PROTO_MAX_BUFFERS ? -SW_EINVAL : 0);
        if (n == SW_PROTO_MAX_BUFFERS)
            sw_builds_discard_all(1);
    }
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL); /* no buffer */
    memset(name, 'n', sizeof name - 1);
    for (unsigned n = SW_PROTO_NAME_BYTES; n >= SW_PROTO_NAME_BYTES - 1; n--) {
        name[n] = 0;
        sw_builds_make(&packet, 0, 0);
        (void)sw_test_add_build(&packet, name);
        (void)sw_test_add_buffer(&packet, BYTES, 0);
        (void)sw_test_add_chunk(&packet, MEM, 0, BYTES);
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet), n == SW_PROTO_NAME_BYTES ? -SW_EINVAL : 0);
    }
    sw_builds_discard_all(1);
    packet.names[3] = 0;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_DISCARD, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    for (unsigned i = 0; i <= MOST; i++)
        sw_test_add_id(&packet, (struct sw_region_id){1, 1});
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

/* A count in the head or in a record is off by one, so the arrays cannot be told apart. */
START_TEST(wrong_sums_of_lengths_end_the_session) {
    struct sw_msg_build *m = &packet.msg.u.build;
    sw_builds_make(&packet, 2, 0);
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
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EPROTO);
    ck_assert_uint_eq(rig->reply.u.error.scope, SW_SCOPE_SESSION);
    ck_assert(rig->session->closing);
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
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, reserved, 1u << 15), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, prefer, 3), -SW_EINVAL, false},
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, durability, SW_DURABILITY_HOST), -SW_EINVAL, false}, /* without a name */
    {SW_MSG_BUILD, FIELD(BUILD, sw_wire_build, durability, SW_DURABILITY_NR), -SW_EINVAL, false},
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
    sw_builds_make(&packet, N_PLAIN, all ? SW_REQ_ALL : 0);
    if (is_read) {
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
        sw_builds_make_reads(&packet, N_PLAIN, all ? SW_REQ_ALL : 0, 0);
        sw_builds_wipe();
    }
    make_odd(row);
    const int rc = sw_packet_rig_call(rig, &packet);
    const bool fails = all || row->fails_all;
    ck_assert_msg(rc == (fails ? row->code : 0), "row %d: %s", (int)(row - odd), sw_err_name(rc));
    ck_assert(row->fails_all || !fails || sw_packet_rig_says(rig, "request 2 of 3: "));
    sw_builds_ck_rest(is_read ? (fails ? N_PLAIN : 1) : (fails ? 0 : N_PLAIN - 1), N_MEMS);
    for (unsigned i = 0; !fails && i < N_PLAIN; i++)
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), i == 1 ? row->code : 0);
    if (!fails)
        ck_assert_int_eq(strncmp(rig->reply.u.results.text, "request 2 of 3: ", 16), 0);
    if (!is_read)
        sw_builds_ck_memory();
    sw_builds_drop_all();
    sw_builds_fill_again();
}

START_TEST(a_wrong_field_fails_only_its_build_or_read) {
    for (unsigned i = 0; i < N_ODD; i++)
        ck_odd(&odd[i], _i);
}
END_TEST

START_TEST(a_packet_whose_only_build_fails_gets_an_error) {
    sw_builds_make(&packet, 1, 0);
    packet.chunks[0].mem = 77;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_ENOENT);
    ck_assert(!sw_packet_rig_says(rig, "request"));
    sw_builds_make(&packet, 2, 0);
    packet.chunks[0].mem = 77;
    packet.chunks[1].offset = UINT64_MAX;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_ENOENT); /* as all have failed, with the first one's */
    ck_assert(sw_packet_rig_says(rig, "request 1 of 2: "));
    sw_builds_make(&packet, 1, 0);
    (void)sw_test_add_buffer(&packet, BYTES, SW_VALUE_F64);
    (void)sw_test_add_chunk(&packet, MEM, BYTES, BYTES - 1);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(rig, "buffer 2 of 2: "));
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

/* Unless the build says how long its chunks are; out of order they are wrong in any case. */
START_TEST(a_buffer_has_one_chunk) {
    for (int is_read = 0; is_read < 2; is_read++)
        for (unsigned at = BYTES; at <= BYTES + 1; at++) {
            sw_builds_make(&packet, 1, 0);
            if (is_read) {
                ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
                sw_builds_make_reads(&packet, 1, 0, 0);
                sw_test_add_room(&packet, MEM, BYTES, BYTES)->buffer = 0;
            } else {
                (void)sw_test_add_chunk(&packet, MEM, BYTES, BYTES);
            }
            packet.chunks[1].at = at;
            ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
        }
    sw_builds_ck_rest(2, N_MEMS);
}
END_TEST

/* Buffers without bytes may come in any order, with a chunk or without. */
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
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
        sw_builds_ck_rest(1, N_MEMS);
        const struct sw_region_id id = sw_test_result_id(&rig->reply, 0);
        sw_builds_wipe();
        sw_test_packet(&packet, SW_MSG_READ, 0);
        (void)sw_test_add_read(&packet, id, 0);
        if (n_full > 0) {
            ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL); /* there is no room for its bytes */
            sw_test_add_room(&packet, MEM, 0, BYTES)->buffer = 2;
        }
        if (n_full > 1) {
            ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
            sw_test_add_room(&packet, MEM + 1, BYTES, BYTES)->buffer = 0;
        }
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
        ck_assert(n_full < 1 || memcmp(sw_builds.memory[0], sw_builds.original[0], BYTES) == 0);
        ck_assert(n_full < 2 || memcmp(sw_builds.memory[1] + BYTES, sw_builds.original[1] + BYTES, BYTES) == 0);
        sw_builds_fill_again();
        sw_builds_ck_rest(0, N_MEMS);
    }
}
END_TEST

/* The memory is one that is handed over for the packet alone. */
START_TEST(an_empty_and_a_full_buffer_from_once_memory) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, ONCE, 0, BYTES);
    (void)sw_test_add_buffer(&packet, 0, 0);
    sw_packet_rig_add_memory(rig, ONCE, sw_builds.fds[0], MEMORY_BYTES, true);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region_id id = sw_test_result_id(&rig->reply, 0);
    sw_packet_rig_add_memory(rig, ONCE, sw_builds.fds[0], MEMORY_BYTES, true);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, id, 0);
    (void)sw_test_add_room(&packet, ONCE, 0, BYTES);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

START_TEST(destinations_may_not_overlap) {
    sw_builds_make(&packet, 3, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_builds_make_reads(&packet, 3, 0, SW_READ_KEEP);
    packet.chunks[0].offset = 2 * BYTES + 1;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    packet.chunks[0].mem = packet.chunks[1].mem = MEM + 1; /* out of order, and other memories */
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    packet.chunks[1].offset = packet.chunks[0].offset;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    sw_builds_ck_rest(3, N_MEMS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_builds");
    TCase *tcase = tcase_create("builds");
    tcase_add_checked_fixture(tcase, sw_builds_open, sw_builds_close);
    tcase_add_loop_test(tcase, each_combination_works_or_names_its_error, 0, N_CELLS / N_FORMS);
    tcase_add_test(tcase, counts_are_limited);
    tcase_add_loop_test(tcase, wrong_sums_of_lengths_end_the_session, 0, 8);
    tcase_add_loop_test(tcase, a_wrong_field_fails_only_its_build_or_read, 0, 2);
    tcase_add_test(tcase, a_packet_whose_only_build_fails_gets_an_error);
    tcase_add_test(tcase, a_buffer_has_one_chunk);
    tcase_add_test(tcase, buffers_without_bytes_need_no_chunk);
    tcase_add_test(tcase, an_empty_and_a_full_buffer_from_once_memory);
    tcase_add_test(tcase, destinations_may_not_overlap);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
