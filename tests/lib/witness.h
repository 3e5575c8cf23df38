/* witness.h - a client process that has a region parked while others die. On request it compares every byte of the
 * region, and reports the GPU's free memory.
 *
 * It touches CUDA, the test's own process does not. A failure fails the test. thread: one. */
#ifndef SW_TEST_WITNESS_H
#define SW_TEST_WITNESS_H

#include "tests/lib/buffer.h"
#include "tests/lib/child.h"

struct sw_witness {
    struct sw_child child;
};

/* Parks a region of so many bytes, of memory of that kind, in the service behind the socket. */
struct sw_witness sw_witness_begin(const char *socket, enum sw_buffer_kind kind, uint64_t bytes);
/* Compares; returns sw_buffer_free_bytes(). */
uint64_t sw_witness_ask(const struct sw_witness *witness);
/* Asks until about as many bytes are free as before: the driver may have taken a little for itself. */
void sw_witness_check_free(const struct sw_witness *witness, uint64_t before);
/* Takes the region back, compares and ends it. */
void sw_witness_end(struct sw_witness *witness);

#endif
