/* The wire format: an encoded message decodes to itself, and everything else is refused by name. Packets arrive as they
 * were sent, and no descriptor outlives a refused packet. */
#include "ipc/proto.h"
#include "ipc/span.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/packets.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

static const unsigned types[] = {
#define TYPE(NAME, name, number) number,
    SW_MESSAGES(TYPE)
#undef TYPE
};
enum { TYPE_COUNT = sizeof types / sizeof types[0] };

/* A record of an array, or several. */
static const uint64_t records[256] = {0x0102030405060708, 0x1112131415161718, 0x2122232425262728};

/* Three records in each array, the first bytes of `records`; 24 characters in each text. */
static void lay_out_arrays(struct sw_msg *msg, unsigned type) {
    switch (type) {
#define FIELD(field, ...)
#define ARRAY(type, field, count)                                                                                      \
    m->count = sizeof(type) == 1 ? 24 : 3;                                                                             \
    m->field = (const type *)(const void *)records;
#define CASE(NAME, name, number)                                                                                       \
    case number: {                                                                                                     \
        struct sw_msg_##name *m = &msg->u.name;                                                                        \
        (void)m;                                                                                                       \
        SW_FIELDS_##NAME(FIELD, FIELD, FIELD, FIELD, FIELD, FIELD, ARRAY) break;                                       \
    }
        SW_MESSAGES(CASE)
#undef CASE
#undef ARRAY
#undef FIELD
    default:
        break;
    }
}

/* A message whose every byte differs from its neighbours'. */
static struct sw_msg patterned(unsigned type, uint32_t seq) {
    struct sw_msg msg;
    memset(&msg, 0, sizeof msg);
    for (size_t i = 0; i < sizeof msg.u; i++)
        ((uint8_t *)&msg.u)[i] = (uint8_t)(i * 7 + type);
    lay_out_arrays(&msg, type);
    msg.header.type = (uint16_t)type;
    msg.header.seq = seq;
    return msg;
}

START_TEST(message_decodes_to_itself) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES], again[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_err err;
    const struct sw_msg msg = patterned(types[_i], 0xdeadbeef);
    struct sw_msg back;
    const size_t bytes = sw_msg_encode(&msg, packet);
    ck_assert_uint_gt(bytes, SW_PROTO_HEADER_BYTES);
    ck_assert_uint_le(bytes, SW_PROTO_MAX_PACKET_BYTES);
    ck_assert_int_eq(sw_msg_decode(&back, packet, bytes, &err), 0);
    ck_assert_uint_eq(back.header.type, types[_i]);
    ck_assert_uint_eq(back.header.seq, 0xdeadbeef);
    ck_assert_uint_eq(back.header.version, SW_PROTO_VERSION);
    ck_assert_uint_eq(sw_msg_encode(&back, again), bytes);
    ck_assert_mem_eq(again, packet, bytes);
    ck_assert_str_ne(sw_msg_name(types[_i]), "unknown");
    /* The pattern has arrived: a field that the codec forgot would not hold it. */
    ck_assert_mem_eq(packet + SW_PROTO_HEADER_BYTES, &msg.u, 4);
}
END_TEST

START_TEST(fields_have_their_offsets) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL, .seq = 0x01020304}};
    msg.u.spill =
        (struct sw_msg_spill){.mem = 1, .flags = 2, .offset = 3, .bytes = 4, .order_word = 5, .order_value = 6};
    static const uint8_t expected[] = {'S', 'P', 'I', 'L', SW_PROTO_VERSION,
                                       0,   5,   0,   4,   3,
                                       2,   1,   40,  0,   0,
                                       0,   1,   0,   0,   0,
                                       2,   0,   0,   0,   3,
                                       0,   0,   0,   0,   0,
                                       0,   0,   4,   0,   0,
                                       0,   0,   0,   0,   0,
                                       5,   0,   0,   0,   6,
                                       0};
    ck_assert_uint_eq(sw_msg_encode(&msg, packet), SW_PROTO_HEADER_BYTES + 4 + 4 + 8 + 8 + 4 + 8 + 4);
    ck_assert_mem_eq(packet, expected, sizeof expected);
}
END_TEST

/* 256 durable builds of one buffer and one chunk. */
START_TEST(the_longest_message_has_its_length) {
    enum { N = SW_PROTO_MAX_ITEMS, NAME = SW_PROTO_NAME_BYTES - 1 };
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    static struct sw_wire_build builds[N];
    static struct sw_wire_buffer buffers[N];
    static struct sw_wire_chunk chunks[N];
    static char names[N * NAME];
    const struct sw_msg msg = {.header = {.type = SW_MSG_BUILD},
                               .u.build = {.n_builds = N,
                                           .n_buffers = N,
                                           .n_chunks = N,
                                           .name_bytes = sizeof names,
                                           .builds = builds,
                                           .buffers = buffers,
                                           .chunks = chunks,
                                           .names = names}};
    struct sw_msg back;
    builds[0].build = 0x01020304;
    chunks[N - 1].buffer = 0x1112;
    memcpy(names + sizeof names - 3, "end", 3);
    const size_t bytes = sw_msg_encode(&msg, packet), arrays = SW_PROTO_HEADER_BYTES + 16;
    const uint8_t build[] = {4, 3, 2, 1}, buffer[] = {0x12, 0x11, 0, 0};
    ck_assert_uint_eq(bytes, arrays + N * (16 + 24 + 48 + NAME));
    ck_assert_uint_le(bytes, SW_PROTO_MAX_PACKET_BYTES);
    ck_assert_mem_eq(packet + arrays, build, sizeof build);
    ck_assert_mem_eq(packet + arrays + N * (16 + 24 + 48) - sizeof buffer, buffer, sizeof buffer);
    ck_assert_mem_eq(packet + bytes - 3, "end", 3);
    ck_assert_int_eq(sw_msg_decode(&back, packet, bytes, NULL), 0);
    /* Borrowed, and not copied. */
    ck_assert_ptr_eq(back.u.build.builds, packet + arrays);
    ck_assert_ptr_eq(back.u.build.buffers, packet + arrays + N * 16);
    ck_assert_ptr_eq(back.u.build.chunks, packet + arrays + N * (16 + 24));
    ck_assert_ptr_eq(back.u.build.names, packet + bytes - sizeof names);
}
END_TEST

/* The result of a read that asked for frames. */
START_TEST(frames_follow_the_buffers_of_results) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    static const struct sw_wire_result result;
    static const struct sw_wire_buffer buffer;
    static const struct sw_wire_frame frames[2] = {{.offset = 1},
                                                   {.offset = 0x0807060504030201,
                                                    .buffer = 9,
                                                    .codec = 10,
                                                    .value_type = 11,
                                                    .segment_log2 = 12,
                                                    .dictionary16 = 13}};
    static const struct sw_wire_text text = {"text"};
    const struct sw_msg msg = {.header = {.type = SW_MSG_RESULTS},
                               .u.results = {.n_results = 1,
                                             .n_buffers = 1,
                                             .n_frames = 2,
                                             .n_texts = 1,
                                             .results = &result,
                                             .buffers = &buffer,
                                             .frames = frames,
                                             .texts = &text}};
    static const uint8_t last[40] = {1, 2, 3, 4, 5, 6, 7, 8, [28] = 9, 0, 10, 11, 12, 0, 13};
    struct sw_msg back;
    const size_t bytes = sw_msg_encode(&msg, packet), frames_at = SW_PROTO_HEADER_BYTES + 24 + 40 + 24;
    ck_assert_uint_eq(bytes, frames_at + 2 * 40 + 32);
    ck_assert_mem_eq(packet + frames_at + 40, last, sizeof last);
    ck_assert_int_eq(sw_msg_decode(&back, packet, bytes, NULL), 0);
    ck_assert_ptr_eq(back.u.results.frames, packet + frames_at);
    ck_assert_ptr_eq(back.u.results.texts, packet + frames_at + 2 * 40);
}
END_TEST

/* A count that is one too high, one too low, and 0. */
START_TEST(arrays_have_the_lengths_of_their_counts) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const struct sw_msg msg = patterned(SW_MSG_READ, 9);
    struct sw_msg back, empty = {.header = {.type = SW_MSG_READ}};
    struct sw_err err;
    const size_t bytes = sw_msg_encode(&msg, packet);
    for (size_t offset = 4; offset <= 6; offset += 2) /* n_reads, n_chunks */
        for (int step = -1; step <= 1; step += 2) {
            uint8_t *count = packet + SW_PROTO_HEADER_BYTES + offset;
            *count = (uint8_t)(*count + step);
            ck_assert_int_eq(sw_msg_decode(&back, packet, bytes, &err), -SW_EPROTO);
            ck_assert_uint_eq(back.header.seq, 9);
            *count = (uint8_t)(*count - step);
        }
    packet[SW_PROTO_HEADER_BYTES + 7] = 0xff; /* 65283 chunks: far beyond the packet */
    ck_assert_int_eq(sw_msg_decode(&back, packet, bytes, &err), -SW_EPROTO);
    ck_assert_uint_eq(sw_msg_encode(&empty, packet), SW_PROTO_HEADER_BYTES + 16);
    ck_assert_int_eq(sw_msg_decode(&back, packet, SW_PROTO_HEADER_BYTES + 16, &err), 0);
    ck_assert_uint_eq(back.u.read.n_reads + back.u.read.n_chunks, 0);
}
END_TEST

/* All of the message, and nothing behind it. */
START_TEST(a_new_message_is_empty) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = patterned(types[_i], 7);
    const uint8_t last = ((uint8_t *)&msg.u)[sizeof msg.u - 1];
    sw_msg_init(&msg, types[_i]);
    const size_t bytes = sw_msg_packet_bytes(&msg);
    ck_assert_uint_eq(msg.header.type, types[_i]);
    ck_assert_uint_eq(msg.header.seq, 0);
    ck_assert_uint_eq(sw_msg_encode(&msg, packet), bytes);
    for (size_t i = SW_PROTO_HEADER_BYTES; i < bytes; i++)
        ck_assert_uint_eq(packet[i], 0);
    ck_assert(SW_PROTO_HEADER_BYTES + sizeof msg.u == bytes || ((uint8_t *)&msg.u)[sizeof msg.u - 1] == last);
    ck_assert_uint_eq(sw_msg_packet_bytes(&(struct sw_msg){.header.type = 99}), 0);
}
END_TEST

START_TEST(overlaps_are_found) {
    static const struct {
        struct sw_span spans[4];
        size_t n;
        bool overlap;
    } cases[] = {
        {{{0, 5}}, 1, false},
        {{{0, 5}, {5, 5}, {10, 1}}, 3, false},
        {{{10, 1}, {0, 5}, {5, 5}}, 3, false},
        {{{10, 1}, {0, 6}, {5, 5}}, 3, true},
        {{{0, 5}, {4, 1}}, 2, true},
        {{{7, 1}, {7, 1}}, 2, true},
        {{{7, 0}, {7, 1}, {7, 0}, {8, 1}}, 4, false}, /* an empty range overlaps nothing */
        {{{0, 9}, {3, 0}}, 2, false},
        {{{0, 9}, {3, 0}, {8, 1}}, 3, true},
        {{{0, UINT64_MAX}, {UINT64_MAX, UINT64_MAX}}, 2, false},
        {{{UINT64_MAX - 1, 5}, {0, 1}, {UINT64_MAX, 1}}, 3, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_span spans[4];
        memcpy(spans, cases[i].spans, sizeof spans);
        ck_assert_msg(sw_spans_overlap(spans, cases[i].n) == cases[i].overlap, "case %zu", i);
    }
}
END_TEST

START_TEST(wrong_length_is_refused) {
    /* Exactly as long as the packet, so that a sanitizer sees a read past its end. */
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const struct sw_msg msg = patterned(types[_i], 9);
    const size_t bytes = sw_msg_encode(&msg, packet);
    for (size_t n = 0; n <= bytes + 64; n++) {
        if (n == bytes)
            continue;
        struct sw_msg back;
        struct sw_err err = {0};
        uint8_t *copy = calloc(1, n ? n : 1);
        ck_assert_ptr_nonnull(copy);
        memcpy(copy, packet, n < bytes ? n : bytes);
        ck_assert_int_eq(sw_msg_decode(&back, copy, n, &err), -SW_EPROTO);
        ck_assert_int_eq(err.code, -SW_EPROTO);
        ck_assert_int_eq(err.scope, SW_SCOPE_SESSION);
        ck_assert_uint_eq(back.header.seq, n < SW_PROTO_HEADER_BYTES ? 0 : 9);
        free(copy);
    }
}
END_TEST

static int decode_with(size_t offset, uint8_t value, struct sw_msg *ret) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const struct sw_msg msg = patterned(SW_MSG_QUERY, 9);
    const size_t bytes = sw_msg_encode(&msg, packet);
    packet[offset] = value;
    struct sw_err err = {0};
    int rc = sw_msg_decode(ret, packet, bytes, &err);
    ck_assert_int_eq(err.code, rc);
    return rc;
}

START_TEST(wrong_header_is_refused) {
    struct sw_msg back;
    for (size_t i = 0; i < 4; i++)
        ck_assert_int_eq(decode_with(i, 0, &back), -SW_EPROTO); /* magic */
    ck_assert_int_eq(decode_with(4, SW_PROTO_VERSION + 1, &back), -SW_EVERSION);
    ck_assert_int_eq(decode_with(4, SW_PROTO_OLDEST_VERSION - 1, &back), -SW_EVERSION);
    ck_assert_int_eq(decode_with(4, SW_PROTO_OLDEST_VERSION, &back), 0);
    ck_assert_uint_eq(back.header.seq, 9); /* so that the refusal can be answered */
    ck_assert_int_eq(decode_with(5, 1, &back), -SW_EVERSION);
    for (unsigned type = 0; type < 256; type++) {
        int known = 0;
        for (size_t i = 0; i < TYPE_COUNT; i++)
            known |= types[i] == type;
        int rc = decode_with(6, (uint8_t)type, &back);
        if (!known)
            ck_assert_int_eq(rc, -SW_EPROTO);
    }
    ck_assert_int_eq(decode_with(7, 1, &back), -SW_EPROTO);
    for (size_t i = 12; i < 16; i++)
        ck_assert_int_eq(decode_with(i, 0x7f, &back), -SW_EPROTO); /* length */
}
END_TEST

START_TEST(no_message_is_without_a_body) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const struct sw_msg msg = patterned(SW_MSG_QUERY, 9);
    (void)sw_msg_encode(&msg, packet);
    memset(packet + 12, 0, 4); /* length */
    /* Unknown ones, too. */
    for (unsigned type = 0; type < 256; type++) {
        struct sw_msg back;
        struct sw_err err;
        packet[6] = (uint8_t)type;
        ck_assert_int_eq(sw_msg_decode(&back, packet, SW_PROTO_HEADER_BYTES, &err), -SW_EPROTO);
    }
}
END_TEST

START_TEST(text_fields) {
    uint8_t field[8];
    char text[9];
    sw_msg_set_text(field, sizeof field, "abc");
    ck_assert_mem_eq(field, "abc\0\0\0\0\0", 8);
    sw_msg_set_text(field, sizeof field, "0123456789");
    ck_assert_mem_eq(field, "01234567", 8); /* cut, and without a zero */
    ck_assert_str_eq(sw_msg_text(text, sizeof text, field, sizeof field), "01234567");
    for (size_t room = 1; room < sizeof text; room++) { /* a text that is cut has its end, and nothing is behind it */
        memset(text, 'x', sizeof text);
        ck_assert_uint_eq(strlen(sw_msg_text(text, room, field, sizeof field)), room - 1);
        ck_assert_int_eq(text[room], 'x');
    }
}
END_TEST

START_TEST(errors_survive_the_wire) {
    struct sw_err err, back;
    struct sw_msg msg;
    (void)sw_err_set(&err, -SW_ENOSPACE, SW_SCOPE_REGION, "tier is full");
    (void)sw_err_detail(&err, "reserve(%d)", 12);
    err.cuda = 700;
    sw_msg_from_err(&msg, 5, &err);
    ck_assert_uint_eq(msg.header.seq, 5);
    ck_assert_uint_eq(msg.header.type, SW_MSG_ERROR);
    sw_msg_to_err(&back, &msg.u.error);
    ck_assert_int_eq(back.code, -SW_ENOSPACE);
    ck_assert_int_eq(back.scope, SW_SCOPE_REGION);
    ck_assert_int_eq(back.cuda, 700);
    ck_assert_str_eq(back.msg, "tier is full (reserve(12))");
    /* Longest texts fit or are cut; an unknown name and scope become something that is known. */
    memset(err.msg, 'm', sizeof err.msg - 1);
    memset(err.detail, 'd', sizeof err.detail - 1);
    sw_msg_from_err(&msg, 5, &err);
    memset(msg.u.error.name, 'X', sizeof msg.u.error.name);
    for (uint32_t scope = SW_SCOPE_NR; scope < 77; scope++) {
        msg.u.error.scope = scope;
        sw_msg_to_err(&back, &msg.u.error);
        ck_assert_int_eq(back.code, -SW_EPROTO);
        ck_assert_int_eq(back.scope, SW_SCOPE_SESSION);
    }
}
END_TEST

static int pair[2];
static unsigned fds_before;

static void setup(void) {
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    fds_before = sw_count_fds();
}

static void teardown(void) {
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    (void)close(pair[0]);
    (void)close(pair[1]);
}

START_TEST(packet_arrives_with_descriptors) {
    uint8_t in[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS], send[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    for (unsigned n = 0; n <= SW_PROTO_MAX_FDS; n += n < 2 ? 1 : 31) {
        unsigned n_fds = 99;
        int pipes[2];
        ck_assert_int_eq(pipe(pipes), 0);
        for (unsigned i = 0; i < n; i++)
            send[i] = pipes[1];
        ck_assert_int_eq(sw_packet_send(pair[0], (const uint8_t *)"hello", 5, send, n), 0);
        ck_assert_int_eq(sw_packet_receive(pair[1], in, &bytes, fds, &n_fds), 0);
        ck_assert_uint_eq(bytes, 5);
        ck_assert_mem_eq(in, "hello", 5);
        ck_assert_uint_eq(n_fds, n);
        for (unsigned i = 0; i < n; i++) {
            char byte = 0;
            ck_assert_int_eq(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
            ck_assert_int_eq(write(fds[i], "x", 1), 1);
            ck_assert_int_eq(read(pipes[0], &byte, 1), 1);
            ck_assert_int_eq(close(fds[i]), 0);
        }
        (void)close(pipes[0]);
        (void)close(pipes[1]);
    }
    const int one = pair[0];
    ck_assert_int_eq(sw_packet_send(pair[0], in, 5, &one, SW_PROTO_MAX_FDS + 1), -SW_EFDS);
}
END_TEST

static const struct {
    size_t bytes;
    unsigned n_fds;
    int expected;
} odd_packets[] = {
    {SW_PROTO_MAX_PACKET_BYTES, SW_PROTO_MAX_FDS, 0},
    {SW_PROTO_MAX_PACKET_BYTES + 1, 0, -SW_EPROTO},
    {SW_PROTO_MAX_PACKET_BYTES + 1, 3, -SW_EPROTO},
    {SW_PROTO_MAX_PACKET_BYTES * 2, SW_PROTO_MAX_FDS, -SW_EPROTO},
    {0, 2, -SW_EPROTO},
    {16, SW_PROTO_MAX_FDS + 1, -SW_EFDS},
    {16, 253, -SW_EFDS},
    {SW_PROTO_MAX_PACKET_BYTES + 1, 253, -SW_EFDS},
};
enum { N_ODD_PACKETS = sizeof odd_packets / sizeof *odd_packets, N_WITH_TOO_MANY_FDS = 3 };

/* qemu-aarch64 gives the kernel twice the room for descriptors that the program has given, and then neither closes
 * those that have no room nor sets MSG_CTRUNC (seen with version 7.2): the last cases would test qemu. */
static int odd_packets_here(void) {
    return getenv("SW_TEST_EMULATED") ? N_ODD_PACKETS - N_WITH_TOO_MANY_FDS : N_ODD_PACKETS;
}

START_TEST(odd_packets_leave_nothing_behind) {
    uint8_t in[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    sw_test_send_raw(pair[0], odd_packets[_i].bytes, odd_packets[_i].n_fds);
    sw_test_send_raw(pair[0], 3, 0);
    const int rc = sw_packet_receive(pair[1], in, &bytes, fds, &n_fds);
    ck_assert_int_eq(rc, odd_packets[_i].expected);
    for (unsigned i = 0; i < n_fds; i++)
        ck_assert_int_eq(close(fds[i]), 0);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    /* The odd one is used up: the next is read from its start. */
    ck_assert_int_eq(sw_packet_receive(pair[1], in, &bytes, fds, &n_fds), 0);
    ck_assert_uint_eq(bytes, 3);
    ck_assert_int_eq(sw_packet_receive(pair[1], in, &bytes, fds, &n_fds), -SW_EAGAIN);
}
END_TEST

START_TEST(closed_and_full_sockets) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES] = {0};
    int fds[SW_PROTO_MAX_FDS], rc;
    size_t bytes = 1;
    unsigned n_fds = 1, sent = 0;
    while ((rc = sw_packet_send(pair[0], packet, sizeof packet, NULL, 0)) == 0)
        ck_assert_uint_lt(++sent, 100000);
    ck_assert_int_eq(rc, -SW_EAGAIN);
    while ((rc = sw_packet_receive(pair[1], packet, &bytes, fds, &n_fds)) == 0)
        sent--;
    ck_assert_int_eq(rc, -SW_EAGAIN);
    ck_assert_uint_eq(sent, 0);
    ck_assert_int_eq(shutdown(pair[0], SHUT_WR), 0);
    ck_assert_int_eq(sw_packet_receive(pair[1], packet, &bytes, fds, &n_fds), 0);
    ck_assert_uint_eq(bytes, 0);
    ck_assert_uint_eq(n_fds, 0);
    ck_assert_int_eq(sw_packet_send(pair[0], packet, 4, NULL, 0), -SW_ECONN); /* and no SIGPIPE */
}
END_TEST

START_TEST(descriptor_table_full) {
    /* The kernel then drops descriptors of the packet. This error differs from the error of a packet with too many
     * descriptors, and the descriptors that did arrive are the caller's. */
    uint8_t in[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS], held[64];
    size_t bytes = 0;
    unsigned n_fds = 0, n_held = 0;
    const struct rlimit limit = {.rlim_cur = 64, .rlim_max = 64};
    ck_assert_int_eq(setrlimit(RLIMIT_NOFILE, &limit), 0);
    sw_test_send_raw(pair[0], 16, 4);
    while ((held[n_held] = dup(pair[0])) >= 0)
        n_held++;
    (void)close(held[--n_held]);
    (void)close(held[--n_held]);
    ck_assert_int_eq(sw_packet_receive(pair[1], in, &bytes, fds, &n_fds), -SW_ELIMIT);
    ck_assert_uint_eq(n_fds, 2);
    ck_assert_uint_eq(bytes, 16);
    while (n_fds)
        ck_assert_int_eq(close(fds[--n_fds]), 0);
    while (n_held)
        (void)close(held[--n_held]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc");
    TCase *messages = tcase_create("messages");
    tcase_add_loop_test(messages, message_decodes_to_itself, 0, TYPE_COUNT);
    tcase_add_test(messages, fields_have_their_offsets);
    tcase_add_test(messages, the_longest_message_has_its_length);
    tcase_add_test(messages, frames_follow_the_buffers_of_results);
    tcase_add_test(messages, arrays_have_the_lengths_of_their_counts);
    tcase_add_loop_test(messages, a_new_message_is_empty, 0, TYPE_COUNT);
    tcase_add_test(messages, overlaps_are_found);
    tcase_add_loop_test(messages, wrong_length_is_refused, 0, TYPE_COUNT);
    tcase_add_test(messages, wrong_header_is_refused);
    tcase_add_test(messages, no_message_is_without_a_body);
    tcase_add_test(messages, text_fields);
    tcase_add_test(messages, errors_survive_the_wire);
    suite_add_tcase(suite, messages);
    TCase *packets = tcase_create("packets");
    tcase_add_checked_fixture(packets, setup, teardown);
    tcase_add_test(packets, packet_arrives_with_descriptors);
    tcase_add_loop_test(packets, odd_packets_leave_nothing_behind, 0, odd_packets_here());
    tcase_add_test(packets, closed_and_full_sockets);
    tcase_add_test(packets, descriptor_table_full);
    suite_add_tcase(suite, packets);
    return sw_test_run(suite, CK_FORK);
}
