/* group_rig.h - operations that wait together: an engine with one slot that can be held until all of them have been
 * handed over, so that the members of a group do not depend on time; and a count of the device's steps.
 *
 * One rig at a time. */
#ifndef SW_TEST_GROUP_RIG_H
#define SW_TEST_GROUP_RIG_H

#include "tests/lib/engine_fixture.h"

struct sw_rig {
    struct sw_fixture f;
    struct sw_memory held; /* keeps the slot busy: a restore whose event does not come */
    struct sw_owner *holder;
    struct sw_region_id held_id;
    struct sw_test_op hold;
};

/* Config NULL: the defaults; slots are one in any case. */
void sw_rig_open(struct sw_rig *ret, const struct sw_fixture_config *config);
void sw_rig_close(struct sw_rig *rig);
/* Between these two, whatever is handed over waits. */
void sw_rig_hold(struct sw_rig *rig);
void sw_rig_release(struct sw_rig *rig);

/* Calls of the device since the last reset, and the items of steps that have items. The step that holds the slot is a
 * decode, and waits for an event. */
struct sw_rig_counts {
    unsigned make_plans, encodes, decodes;
    unsigned encode_groups, store_groups, restore_groups;
    unsigned encoded_items, restored_items;
};
struct sw_rig_counts sw_rig_counts(void);
void sw_rig_reset_counts(void);

/* The next step of a group of that name stops the worker once it is queued: until then sw_rig_await_gate() waits, and
 * sw_rig_open_gate() lets it go on. */
void sw_rig_close_gate(const char *step);
void sw_rig_await_gate(void);
void sw_rig_open_gate(void);

#endif
