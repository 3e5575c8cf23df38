/* Requests of several pieces, or of regions of several buffers, that no client should make, to a real daemon: refused
 * as wholes and by name, and descriptors, mappings, regions and tier bytes are as before. */
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/wired.h"
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- batches ----------------------------------------------------------------------------------------------------- */

enum { PIECES = 20, PIECE_BYTES = SW_WIRED_BYTES / PIECES };

static int spill_batch_code(struct sw_msg msg) {
    const int rc = sw_wire_call(&sw_wired, &msg, NULL, 0);
    struct sw_msg_status_ok status;
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert(rc == 0 || status.regions == 0); /* all or nothing */
    return rc;
}

START_TEST(invalid_spill_batches_are_refused) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_region_id id;
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    const struct sw_msg good = sw_wire_spill_batch_msg(1, PIECES, PIECE_BYTES);
    static const uint32_t counts[] = {0, SW_PROTO_MAX_BATCH + 1, UINT32_MAX};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_batch.count = counts[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    static const uint32_t flags[] = {SW_REQ9_KEEP, SW_REQ9_IN_PLACE, 0x80000000u};
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_batch.flags = flags[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    struct sw_msg msg = good;
    msg.u.spill_batch.flags = SW_REQ9_ORDER; /* there is no order page */
    ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    /* The last buffer; and the first one, which is then the only one that was checked. */
    for (unsigned piece = 0; piece < PIECES; piece += PIECES - 1) {
        msg = good;
        msg.u.spill_batch.bytes[piece] = SW_WIRED_BYTES + 1;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
        msg = good;
        msg.u.spill_batch.offset[piece] = UINT64_MAX;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
    }
    ck_assert_int_eq(spill_batch_code(sw_wire_spill_batch_msg(7, 1, 1)), -SW_ENOENT);
    /* Memory for one request: that was it, also if it was refused. */
    for (unsigned i = 0; i < 2; i++) {
        msg = sw_wire_spill_batch_msg(2, 2, 1);
        msg.u.spill_batch.bytes[1] = i ? 1 : SW_WIRED_BYTES + 1;
        ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, fd, SW_WIRED_BYTES, true), 0);
        ck_assert_int_eq(spill_batch_code(msg), i ? 0 : -SW_ERANGE);
        ck_assert_int_eq(sw_wire_spill(&sw_wired, 2, 0, SW_WIRED_BYTES, &id), -SW_ENOENT);
    }
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 2, 0, SW_WIRED_BYTES, &id), -SW_ENOENT);
    ck_assert_int_eq(spill_batch_code(good), 0);
    (void)close(fd);
}
END_TEST

START_TEST(invalid_restore_batches_are_refused) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    const int sealed = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK | F_SEAL_WRITE);
    struct sw_region_id ids[PIECES];
    struct sw_msg_region region;
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, sealed, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill_batch(&sw_wired, 1, PIECES, PIECE_BYTES, ids), 0);
    const struct sw_msg good = sw_wire_restore_batch_msg(1, ids, PIECES, PIECE_BYTES);
    struct sw_msg bad[8];
    static const int codes[8] = {-SW_EINVAL, -SW_EINVAL, -SW_EINVAL, -SW_EINVAL,
                                 -SW_ENOENT, -SW_EBUSY,  -SW_ERANGE, -SW_EACCES};
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].u.restore_batch.count = SW_PROTO_MAX_BATCH + 1;
    bad[1].u.restore_batch.flags = SW_REQ9_IN_PLACE;
    bad[2].u.restore_batch.offset[3] -= 1; /* overlap */
    bad[3].u.restore_batch.offset[PIECES - 1] = 0;
    bad[4].u.restore_batch.gen[PIECES - 1]++;
    bad[5].u.restore_batch.slot[PIECES - 1] = ids[0].slot;
    bad[5].u.restore_batch.gen[PIECES - 1] = ids[0].gen;
    bad[6].u.restore_batch.offset[PIECES - 1] = UINT64_MAX - 5;
    bad[7].u.restore_batch.mem = 2; /* cannot be written: fails when it has begun */
    for (int i = 0; i < 8; i++) {
        ck_assert_msg(sw_wire_call(&sw_wired, &bad[i], NULL, 0) == codes[i], "request %d", i);
        for (int piece = 0; piece < PIECES; piece++) {
            ck_assert_int_eq(sw_wire_query(&sw_wired, ids[piece], &region), 0);
            ck_assert_str_eq((const char *)region.state, "out");
        }
    }
    ck_assert(sw_wire_memfd_holds(fd, SW_WIRED_BYTES, SW_CONTENT_TEXT, 5));
    struct sw_msg msg = good;
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), 0);
    ck_assert(sw_wire_memfd_holds(fd, SW_WIRED_BYTES, SW_CONTENT_TEXT, 5));
    msg = good;
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_ESTALE);
    (void)close(fd);
    (void)close(sealed);
}
END_TEST

START_TEST(drop_batches_drop_all_valid_ids) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_region_id ids[3];
    struct sw_msg_status_ok status;
    struct sw_msg msg = {.header = {.type = SW_MSG_DROP_BATCH}};
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill_batch(&sw_wired, 1, 3, 1000, ids), 0);
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL); /* none */
    msg = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    msg.u.drop_batch = (struct sw_msg_drop_batch){
        .count = 3, .slot = {ids[0].slot, UINT32_MAX, ids[2].slot}, .gen = {ids[0].gen, 1, ids[2].gen}};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_ENOENT);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert_uint_eq(status.regions, 1);
    msg = (struct sw_msg){.header = {.type = SW_MSG_DROP_BATCH}};
    msg.u.drop_batch = (struct sw_msg_drop_batch){.count = 1, .slot = {ids[1].slot}, .gen = {ids[1].gen}};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), 0);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert_uint_eq(status.regions, 0);
    (void)close(fd);
}
END_TEST

/* More at once than the session may have: refused as wholes, and nothing of them stays. */
START_TEST(batches_beyond_the_limits) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_msg_status_ok status;
    unsigned refused = 0;
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    for (int i = 0; i < 12; i++) {
        struct sw_msg msg = sw_wire_spill_batch_msg(1, SW_PROTO_MAX_BATCH, 0);
        (void)sw_wire_send(&sw_wired, &msg, NULL, 0);
    }
    for (int i = 0; i < 12; i++) {
        struct sw_msg msg;
        ck_assert_int_eq(sw_wire_receive(&sw_wired, &msg), 1);
        ck_assert(msg.header.type != SW_MSG_ERROR || strcmp((const char *)msg.u.error.name, "ELIMIT") == 0);
        refused += msg.header.type == SW_MSG_ERROR;
    }
    ck_assert_uint_le(refused, 4);
    ck_assert_int_eq(sw_wire_status(&sw_wired, &status), 0);
    ck_assert_uint_eq(status.regions, (12ul - refused) * SW_PROTO_MAX_BATCH);
    (void)close(fd);
}
END_TEST

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

enum { BUFFERS = 3 };

static struct sw_msg spill_buffers_msg(uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BUFFERS}};
    struct sw_msg_spill_buffers *spill = &msg.u.spill_buffers;
    spill->count = BUFFERS;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        spill->mem[i] = mem;
        spill->value_type[i] = i; /* bytes, u8, u16 */
        spill->offset[i] = (uint64_t)i * 1000;
        spill->bytes[i] = 1000;
    }
    return msg;
}

static struct sw_msg restore_buffers_msg(struct sw_region_id id, uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BUFFERS}};
    struct sw_msg_restore_buffers *restore = &msg.u.restore_buffers;
    restore->slot = id.slot;
    restore->gen = id.gen;
    restore->count = BUFFERS;
    for (uint32_t i = 0; i < BUFFERS; i++) {
        restore->mem[i] = mem;
        restore->offset[i] = (uint64_t)i * 1000;
        restore->bytes[i] = 1000;
    }
    return msg;
}

START_TEST(invalid_spills_of_buffers_are_refused) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    struct sw_region_id id;
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    const struct sw_msg good = spill_buffers_msg(1);
    static const uint32_t counts[] = {0, SW_PROTO_MAX_BUFFERS + 1, UINT32_MAX};
    for (unsigned i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_buffers.count = counts[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    static const uint32_t flags[] = {SW_REQ9_ORDER, SW_REQ9_KEEP, SW_REQ9_IN_PLACE, 0x80000000u};
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        struct sw_msg msg = good;
        msg.u.spill_buffers.flags = flags[i];
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
    }
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct sw_msg msg = good;
        msg.u.spill_buffers.waits[i] = 2;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.waits[i] = 1; /* there is no order page */
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.value_type[i] = SW_VALUE_NR;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg.u.spill_buffers.value_type[i] = 0x80000000u;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.value_type[i] = SW_VALUE_U64;
        msg.u.spill_buffers.bytes[i] = 999;
        ck_assert_int_eq(spill_batch_code(msg), -SW_EINVAL);
        msg = good;
        msg.u.spill_buffers.bytes[i] = SW_WIRED_BYTES + 2;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
        msg = good;
        msg.u.spill_buffers.offset[i] = UINT64_MAX;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ERANGE);
        msg = good;
        msg.u.spill_buffers.mem[i] = 7;
        ck_assert_int_eq(spill_batch_code(msg), -SW_ENOENT);
    }
    /* Memory for one request: that was it. */
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, fd, SW_WIRED_BYTES, true), 0);
    struct sw_msg msg = good;
    msg.u.spill_buffers.mem[1] = 2;
    ck_assert_int_eq(spill_batch_code(msg), 0);
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 2, 0, SW_WIRED_BYTES, &id), -SW_ENOENT);
    ck_assert_int_eq(spill_batch_code(good), 0);
    (void)close(fd);
}
END_TEST

START_TEST(invalid_restores_of_buffers_are_refused) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    const int sealed = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK | F_SEAL_WRITE);
    const struct sw_region_id single = sw_wired_spill(3);
    struct sw_msg msg = spill_buffers_msg(1), bad[9];
    struct sw_msg_region region;
    struct sw_region_id id;
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, sealed, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), 0);
    ck_assert_uint_eq(msg.u.result.raw_bytes, BUFFERS * 1000);
    id = (struct sw_region_id){msg.u.result.slot, msg.u.result.gen};
    static const int codes[9] = {-SW_EINVAL, -SW_EINVAL, -SW_EINVAL, -SW_EINVAL,   -SW_EINVAL,
                                 -SW_ENOENT, -SW_ERANGE, -SW_EACCES, -SW_ETOOSMALL};
    for (int i = 0; i < 9; i++)
        bad[i] = restore_buffers_msg(id, 1);
    bad[0].u.restore_buffers.count = BUFFERS - 1;
    bad[1].u.restore_buffers.count = SW_PROTO_MAX_BUFFERS + 1;
    bad[2].u.restore_buffers.flags = SW_REQ9_IN_PLACE;
    bad[3].u.restore_buffers.offset[2] = 1999; /* overlap */
    bad[4] = restore_buffers_msg(single, 1);
    bad[5].u.restore_buffers.gen++;
    bad[6].u.restore_buffers.offset[2] = UINT64_MAX - 5;
    bad[7].u.restore_buffers.mem[1] = 2; /* cannot be written: fails when it has begun */
    bad[8].u.restore_buffers.bytes[0] = 999;
    for (int i = 0; i < 9; i++) {
        ck_assert_msg(sw_wire_call(&sw_wired, &bad[i], NULL, 0) == codes[i], "request %d", i);
        ck_assert_int_eq(sw_wire_query(&sw_wired, id, &region), 0);
        ck_assert_str_eq((const char *)region.state, "out");
    }
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 1, 0, SW_WIRED_BYTES), -SW_EINVAL);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_BUFFERS}, .u.query_buffers = {id.slot, id.gen + 1}};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_ENOENT);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_BUFFERS}, .u.query_buffers = {single.slot, single.gen}};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), 0);
    ck_assert_uint_eq(msg.u.region_buffers.count, 1);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_PACKED}, .u.query_packed = {id.slot, id.gen, 0}};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    msg = (struct sw_msg){.header = {.type = SW_MSG_QUERY_PACKED}, .u.query_packed = {id.slot, id.gen + 1, 0}};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_ENOENT);
    msg = restore_buffers_msg(id, 1);
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), 0);
    sw_wired_ck_restores(single, 3);
    (void)close(fd);
    (void)close(sealed);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("bad_batch");
    tcase_add_unchecked_fixture(tests, sw_wired_start, sw_wired_stop);
    tcase_add_checked_fixture(tests, sw_wired_before_each, sw_wired_after_each);
    tcase_add_test(tests, invalid_spill_batches_are_refused);
    tcase_add_test(tests, invalid_restore_batches_are_refused);
    tcase_add_test(tests, drop_batches_drop_all_valid_ids);
    tcase_add_test(tests, batches_beyond_the_limits);
    tcase_add_test(tests, invalid_spills_of_buffers_are_refused);
    tcase_add_test(tests, invalid_restores_of_buffers_are_refused);
    Suite *suite = suite_create("bad_batch");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
