#include "tests/lib/group_rig.h"
#include "tests/lib/transfer.h"

#include "spill/engine_state.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum { HELD_BYTES = 1001 }; /* no other region is as long */

static struct {
    const struct sw_device_ops *real;
    struct sw_device_ops ops;
    atomic_uint make_plans, encodes, decodes;
    atomic_bool is_held; /* the holder's step is on its slot */
    atomic_uint encode_groups, store_groups, restore_groups, encoded_items, restored_items;
    _Atomic(const char *) gate; /* the step that is to stop; NULL: none */
    atomic_bool at_gate;
} rig_device;

/* ---- the device, as its worker sees it ---- */

static void pass_gate(const char *step) {
    const char *gate = atomic_load(&rig_device.gate);
    if (!gate || strcmp(gate, step) != 0)
        return;
    atomic_store(&rig_device.at_gate, true);
    while (atomic_load(&rig_device.gate))
        (void)usleep(100);
    atomic_store(&rig_device.at_gate, false);
}

static int rig_make_plan(struct sw_device *device, unsigned s, enum sw_value_type type, bool is_dense,
                         const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    (void)atomic_fetch_add(&rig_device.make_plans, 1);
    return rig_device.real->make_plan(device, s, type, is_dense, mapping, offset, bytes, err);
}

static int rig_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                      const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    (void)atomic_fetch_add(&rig_device.encodes, 1);
    return rig_device.real->encode(device, s, plan, mapping, offset, bytes, err);
}

static int rig_decode(struct sw_device *device, unsigned s, struct sw_mapping *mapping,
                      const struct sw_decode_item *items, unsigned n, struct sw_err *err) {
    const int rc = rig_device.real->decode(device, s, mapping, items, n, err);
    (void)atomic_fetch_add(&rig_device.decodes, 1);
    if (items[0].layout->raw_bytes == HELD_BYTES)
        atomic_store(&rig_device.is_held, true);
    return rc;
}

static int rig_encode_group(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                            struct sw_group_item *items, unsigned n, struct sw_err *err) {
    (void)atomic_fetch_add(&rig_device.encode_groups, 1);
    (void)atomic_fetch_add(&rig_device.encoded_items, n);
    int rc = rig_device.real->encode_group(device, s, plan, items, n, err);
    pass_gate("encode_group");
    return rc;
}

static int rig_store_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                           struct sw_err *err) {
    (void)atomic_fetch_add(&rig_device.store_groups, 1);
    int rc = rig_device.real->store_group(device, s, items, n, err);
    pass_gate("store_group");
    return rc;
}

static int rig_restore_group(struct sw_device *device, unsigned s, struct sw_group_item *items, unsigned n,
                             struct sw_err *err) {
    (void)atomic_fetch_add(&rig_device.restore_groups, 1);
    (void)atomic_fetch_add(&rig_device.restored_items, n);
    int rc = rig_device.real->restore_group(device, s, items, n, err);
    pass_gate("restore_group");
    return rc;
}

/* ---- the rig ---- */

void sw_rig_open(struct sw_rig *rig, const struct sw_fixture_config *config) {
    struct sw_fixture_config one_slot = config ? *config : sw_fixture_defaults;
    struct sw_test_op op = {0};
    memset(rig, 0, sizeof *rig);
    one_slot.n_slots = 1;
    sw_fixture_open(&rig->f, &one_slot);
    ck_assert_int_eq(sw_owner_open(rig->f.engine, &rig->holder, NULL), 0);
    rig->held = sw_memory_new(HELD_BYTES);
    struct sw_range range = {.mem = sw_fixture_mem(&rig->f, rig->holder, &rig->held, true), .bytes = HELD_BYTES};
    ck_assert_int_eq(sw_engine_spill(rig->holder, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &rig->held_id, NULL),
                     0);
    sw_fixture_until(&rig->f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_fixture_close_mem(&rig->f, range.mem);
    /* The worker's thread rests now, and will look at the device again with its next job. */
    rig_device.real = rig->f.device->ops;
    rig_device.ops = *rig_device.real;
    rig_device.ops.make_plan = rig_make_plan;
    rig_device.ops.encode = rig_encode;
    rig_device.ops.decode = rig_decode;
    rig_device.ops.encode_group = rig_encode_group;
    rig_device.ops.store_group = rig_store_group;
    rig_device.ops.restore_group = rig_restore_group;
    rig->f.device->ops = &rig_device.ops;
    sw_rig_reset_counts();
}

void sw_rig_close(struct sw_rig *rig) {
    sw_fixture_close_owner(&rig->f, rig->holder);
    sw_memory_free(&rig->held);
    sw_fixture_close(&rig->f);
}

void sw_rig_hold(struct sw_rig *rig) {
    struct sw_range range = {.mem = sw_fixture_mem(&rig->f, rig->holder, &rig->held, true), .bytes = HELD_BYTES};
    atomic_store(&rig_device.is_held, false);
    memset(&rig->hold, 0, sizeof rig->hold);
    sw_device_faulty_arm(rig->f.device, "decode", 1, -SW_EAGAIN, SW_FAULT_LATE);
    ck_assert_int_eq(sw_engine_restore(rig->holder, rig->held_id, SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done,
                                       &rig->hold, &rig->hold.outcome.err),
                     0);
    sw_mem_close(range.mem, NULL, NULL);
    while (!atomic_load(&rig_device.is_held)) {
        (void)uv_run(&rig->f.loop, UV_RUN_NOWAIT); /* it may have to wait for a move to the disk to end */
        (void)usleep(100);
    }
}

void sw_rig_release(struct sw_rig *rig) {
    sw_device_faulty_release(rig->f.device);
    sw_fixture_until(&rig->f, &rig->hold.done);
    ck_assert_int_eq(rig->hold.outcome.err.code, 0);
}

struct sw_rig_counts sw_rig_counts(void) {
    return (struct sw_rig_counts){.make_plans = atomic_load(&rig_device.make_plans),
                                  .encodes = atomic_load(&rig_device.encodes),
                                  .decodes = atomic_load(&rig_device.decodes),
                                  .encode_groups = atomic_load(&rig_device.encode_groups),
                                  .store_groups = atomic_load(&rig_device.store_groups),
                                  .restore_groups = atomic_load(&rig_device.restore_groups),
                                  .encoded_items = atomic_load(&rig_device.encoded_items),
                                  .restored_items = atomic_load(&rig_device.restored_items)};
}

void sw_rig_reset_counts(void) {
    atomic_uint *const counts[] = {&rig_device.make_plans,    &rig_device.encodes,       &rig_device.decodes,
                                   &rig_device.encode_groups, &rig_device.store_groups,  &rig_device.restore_groups,
                                   &rig_device.encoded_items, &rig_device.restored_items};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        atomic_store(counts[i], 0);
}

void sw_rig_close_gate(const char *step) {
    atomic_store(&rig_device.gate, step);
}

void sw_rig_await_gate(void) {
    while (!atomic_load(&rig_device.at_gate))
        (void)usleep(100);
}

void sw_rig_open_gate(void) {
    atomic_store(&rig_device.gate, NULL);
    while (atomic_load(&rig_device.at_gate))
        (void)usleep(100);
}
