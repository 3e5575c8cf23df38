/* pair_fixture.h - an engine_fixture with two memories of a client: one that is spilled, and one that is restored to.
 * One for each test program.
 *
 * Every call checks what it does with ck_assert. thread: the loop's. */
#ifndef SW_TEST_PAIR_FIXTURE_H
#define SW_TEST_PAIR_FIXTURE_H

#include "tests/lib/engine_fixture.h"

extern struct sw_pair {
    struct sw_fixture f;
    struct sw_memory from, to; /* `from` has content of several kinds */
    struct sw_mem *from_mem, *to_mem;
} sw_pair;

/* config NULL: the defaults. bytes: of each memory. */
void sw_pair_open(const struct sw_fixture_config *config, size_t bytes);
/* With a disk. Everything stored begins to move there at once. */
void sw_pair_open_busy_disk(size_t bytes);
void sw_pair_close(void);

/* Runs the loop until *flag, and lets device steps go on that hang. */
void sw_pair_release_until(const bool *flag);
/* The same until the operation has ended. Returns its code; op->id is its region. */
int sw_pair_wait(struct sw_test_op *op);

#endif
