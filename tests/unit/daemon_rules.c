/* Rules that hold for each kind of request: single, batched, of several buffers, durable, packed. Draining, flags,
 * memory for one request, durable regions, failures, and questions after a restart. */
#include "spill/engine_state.h"
#include "tests/lib/request_kinds.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>

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

/* ---- numbers and flags ---- */

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

/* Only flags that are known, and no wait for the value with which a word begins: at each place of a request. */
START_TEST(each_buffer_waits_as_it_may) {
    const unsigned place = (unsigned)_i % N_PIECES;
    const bool waits_for_nothing = _i / N_PIECES % 2, is_restore = _i / N_PIECES / 2;
    const char *const text = waits_for_nothing ? "the value 0"
                             : place           ? "buffer 2 of 2: flags"
                                               : "buffer 1 of 2: flags";
    struct made made;
    ck_assert_int_eq(spill(BUFFERS, &plainly, &made), 0);
    struct sw_msg msg = is_restore ? restore_msg(BUFFERS, &made, &plainly) : spill_msg(BUFFERS, &plainly);
    uint32_t *waits = is_restore ? msg.u.restore_buffers.waits : msg.u.spill_buffers.waits;
    uint64_t *value = is_restore ? msg.u.restore_buffers.order_value : msg.u.spill_buffers.order_value;
    waits[place] = waits_for_nothing ? 1 : 2;
    value[place] = !waits_for_nothing;
    ck_assert_int_eq(call(&msg), -SW_EINVAL);
    ck_assert_msg(strstr((const char *)msg.u.error.text, text) != NULL, "%s", (const char *)msg.u.error.text);
    ck_assert_uint_eq(stats_now().n_regions, 1);
    ck_restores(BUFFERS, &made, 0);
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

/* The loop's index: a spill, or a restore, that cannot be translated for its wait. */
START_TEST(once_memory_ends_with_a_refused_request) {
    struct made made;
    ck_assert_int_eq(spill(BUFFERS, &plainly, &made), 0);
    ck_assert_int_eq(close_memory(MEM), 0);
    ck_assert_int_eq(open_memory(MEM, memory_fd, true), 0);
    for (int i = 0; i < 2; i++) {
        struct sw_msg msg = _i ? restore_msg(BUFFERS, &made, &plainly) : spill_msg(BUFFERS, &plainly);
        (_i ? msg.u.restore_buffers.waits : msg.u.spill_buffers.waits)[0] = i == 0; /* for the value 0 */
        ck_assert_int_eq(call(&msg), i == 0 ? -SW_EINVAL : -SW_ENOENT);
    }
}
END_TEST

/* A value alone is nothing to wait for. */
START_TEST(a_buffer_that_does_not_wait_has_a_value) {
    struct made made;
    struct sw_msg msg = spill_msg(BUFFERS, &plainly);
    msg.u.spill_buffers.order_value[0] = 5;
    ck_assert_int_eq(call(&msg), 0);
    made = (struct made){.ids = {{msg.u.result.slot, msg.u.result.gen}}, .n = 1};
    drop_all(&made);
}
END_TEST

/* ---- durable ---- */

/* Restores and consumes of every kind leave it: only a drop ends it. */
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

/* ---- what fails takes the rest along ---- */

/* Buffers wait until the last one was checked, so that all are canceled before they begin. */
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

/* ---- results ---- */

static void ask_about(struct sw_region_id id, struct sw_msg_region *ret) {
    struct sw_msg msg = {.header = {.type = SW_MSG_QUERY}};
    msg.u.query = (struct sw_msg_query){id.slot, id.gen};
    ck_assert_int_eq(call(&msg), 0);
    *ret = msg.u.region;
}

/* What differs between the regions is "mixed"; what is alike is named. */
START_TEST(a_batchs_result_sums_up_its_regions) {
    struct sw_msg_region first, second;
    struct made made;
    memset(memory, 0, BYTES / 2);
    memset(original, 0, BYTES / 2);
    struct sw_msg msg = spill_msg(BATCH, &plainly);
    ck_assert_int_eq(call(&msg), 0);
    const struct sw_msg_result_batch *all = &msg.u.result_batch;
    made = (struct made){.ids = {{all->slot[0], all->gen[0]}, {all->slot[1], all->gen[1]}}, .n = 2};
    for (int restored = 0; restored < 2; restored++) {
        ask_about(made.ids[0], &first);
        ask_about(made.ids[1], &second);
        ck_assert_str_ne((const char *)first.codec, (const char *)second.codec);
        if (restored) {
            msg = restore_msg(BATCH, &made, &(struct ask){.flags = SW_REQ9_KEEP});
            ck_assert_int_eq(call(&msg), 0);
        }
        ck_assert_uint_eq(msg.header.type, SW_MSG_RESULT_BATCH);
        ck_assert_uint_eq(all->raw_bytes, BYTES);
        ck_assert_uint_eq(all->stored_bytes, first.stored_bytes + second.stored_bytes);
        ck_assert_str_eq((const char *)all->codec, "mixed");
        ck_assert_str_eq((const char *)all->tier, (const char *)first.tier);
    }
    drop_all(&made);
}
END_TEST

/* ---- after a restart ---- */

/* Asks about a request whose reply has not come, as the library does. */
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
    for (unsigned n = 0; n <= N_PIECES; n += N_PIECES) {
        made.n = n;
        if (n && kind == BATCH)
            continue;
        ck_assert_int_eq(settle(spills[kind], made.request, &made, &msg), -SW_EINVAL);
        ck_assert_int_eq(settle(restores[kind], made.request, &made, &msg), -SW_EINVAL);
    }
    made.n = 0;
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
    tcase_add_loop_test(tcase, unknown_flags_are_refused, 0, N_KINDS);
    tcase_add_loop_test(tcase, each_buffer_waits_as_it_may, 0, 4 * N_PIECES);
    tcase_add_test(tcase, memory_that_failed_can_be_closed);
    tcase_add_loop_test(tcase, once_memory_ends_with_its_request, 0, N_KINDS);
    tcase_add_loop_test(tcase, once_memory_ends_with_a_refused_request, 0, 2);
    tcase_add_test(tcase, a_buffer_that_does_not_wait_has_a_value);
    tcase_add_test(tcase, a_durable_region_stays);
    tcase_add_test(tcase, a_refused_buffer_cancels_the_others);
    tcase_add_test(tcase, a_batchs_result_sums_up_its_regions);
    tcase_add_loop_test(tcase, each_kind_of_request_can_be_settled, 0, PACKED);
    tcase_add_loop_test(tcase, a_spill_lost_by_a_restart_is_repeated, 0, DURABLE);
    tcase_add_loop_test(tcase, a_failed_drop_does_not_stop_the_others, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
