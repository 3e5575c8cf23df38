/* Limits that hold for each kind of request: operations, buffers, regions, bytes, memories, ranges to the byte. */
#include "spill/engine_state.h"
#include "tests/lib/request_kinds.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

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

/* ---- durable ---- */

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

int main(void) {
    Suite *suite = suite_create("limits");
    TCase *tcase = tcase_create("limits");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, operations_in_flight_are_limited, 0, 2 * N_KINDS);
    tcase_add_loop_test(tcase, buffers_in_flight_are_limited, 0, 2);
    tcase_add_loop_test(tcase, regions_are_limited, 0, N_KINDS);
    tcase_add_loop_test(tcase, a_tenants_bytes_are_limited, 0, N_KINDS);
    tcase_add_loop_test(tcase, ranges_end_where_the_memory_does, 0, N_KINDS);
    tcase_add_loop_test(tcase, destinations_have_room_for_all, 0, N_KINDS);
    tcase_add_test(tcase, counts_are_limited);
    tcase_add_test(tcase, memories_are_limited);
    tcase_add_test(tcase, durable_regions_are_limited);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
