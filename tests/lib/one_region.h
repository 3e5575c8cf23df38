/* one_region.h - memory for one region, which a test of a service fills, spills, restores and compares.
 *
 * The content follows from a seed: text for even ones where `with_text`, else bytes that do not shrink. A failure fails
 * the test, unless it is a spill's. thread: the one that runs the test. */
#ifndef SW_TEST_ONE_REGION_H
#define SW_TEST_ONE_REGION_H

#include "ipc/spillway.h"
#include <stdbool.h>

struct sw_one_region {
    size_t bytes;
    bool with_text;
    uint8_t *data, *expected;
};

/* Allocates memory that the service can map. */
void sw_one_region_init(struct sw_one_region *ret, size_t bytes, bool with_text);
void sw_one_region_fini(struct sw_one_region *region);

/* Spills the memory, filled anew. name NULL: not durable. Returns the error's code, or 0. */
int sw_one_region_spill(const struct sw_one_region *region, struct spillway *connection, uint64_t seed,
                        const char *name, uint8_t durability, struct spillway_result *ret,
                        struct spillway_error *error);
/* Restores and compares. Returns how long the restore took, in ms. */
double sw_one_region_restore(const struct sw_one_region *region, struct spillway *connection,
                             struct spillway_region from, uint64_t seed);
/* Fills `expected`. */
void sw_one_region_expect(const struct sw_one_region *region, uint64_t seed);

#endif
