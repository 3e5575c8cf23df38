/* parked.h - a buffer of any kind that a client process spills and restores again and again: every byte of it is
 * compared, and memory that the service has meanwhile is overwritten.
 *
 * It knows of restarts: calls that may meet one return the result. Other failures end the process (must.h). The GPU is
 * touched in the process that makes the buffer: no fork after that. thread: one. */
#ifndef SW_TEST_PARKED_H
#define SW_TEST_PARKED_H

#include "ipc/spillway.h"
#include "tests/lib/buffer.h"
#include <stdbool.h>

enum sw_parked_state { SW_PARKED_IN, SW_PARKED_SPILLED, SW_PARKED_PACKED };

struct sw_parked {
    struct sw_buffer *buffer;
    enum sw_parked_state state;
    uint64_t seed; /* of its content */
    struct spillway_region region;
};

/* Like sw_buffer_usable_kinds(), but asks in another process, so that this one may still fork. */
unsigned sw_parked_usable_kinds(void);

/* Makes the buffer; and fills it with other content. */
void sw_parked_init(struct sw_parked *ret, enum sw_buffer_kind kind, uint64_t bytes, uint64_t seed);
void sw_parked_fill(struct sw_parked *parked, uint64_t seed);
void sw_parked_fini(struct sw_parked *parked);
void sw_parked_check(const struct sw_parked *parked);

/* From IN to SPILLED or PACKED, and back; restore with `keep` compares and stays SPILLED. Return 0, or
 * -SPILLWAY_ERESTARTED: the state is as before, a spill's buffer is untouched. Or -SPILLWAY_ELOST: it was met half
 * packed or half unpacked; it is IN, filled anew. */
int sw_parked_spill(struct spillway *connection, struct sw_parked *parked);
int sw_parked_restore(struct spillway *connection, struct sw_parked *parked, bool keep);
int sw_parked_pack(struct spillway *connection, struct sw_parked *parked);
int sw_parked_unpack(struct spillway *connection, struct sw_parked *parked);

#endif
