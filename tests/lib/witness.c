#include "tests/lib/witness.h"
#include "tests/lib/requests.h"

#include "base/assert.h"
#include "base/clock.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/parked.h"

#include <check.h>
#include <unistd.h>

enum { SETTLE_MS = 30000 };
/* The memory that the driver may take for itself; a single client's memory that stayed would be as much. */
#define TOLERANCE_BYTES ((uint64_t)4 << 20)

static struct {
    const char *socket;
    enum sw_buffer_kind kind;
    uint64_t bytes;
} wanted; /* of the one that is begun */
static const char *const name = "the client that lives";

static void live(unsigned i, int socket) {
    struct spillway *connection;
    struct spillway_error error;
    struct sw_parked parked;
    uint64_t free_bytes;
    char byte;
    (void)i;
    MUST(spillway_open(&connection, SW_OPTIONS(.socket_path = wanted.socket), &error) == 0, &error);
    sw_parked_init(&parked, wanted.kind, wanted.bytes, SW_CONTENT_MIXED);
    SW_ASSERT(sw_parked_spill(connection, &parked) == 0);
    while (read(socket, &byte, 1) == 1) {
        SW_ASSERT(sw_parked_restore(connection, &parked, true) == 0);
        free_bytes = sw_buffer_free_bytes();
        SW_ASSERT(write(socket, &free_bytes, sizeof free_bytes) == sizeof free_bytes);
    }
    SW_ASSERT(sw_parked_restore(connection, &parked, false) == 0);
    spillway_close(connection);
    _exit(0);
}

struct sw_witness sw_witness_begin(const char *socket, enum sw_buffer_kind kind, uint64_t bytes) {
    wanted.socket = socket;
    wanted.kind = kind;
    wanted.bytes = bytes;
    const struct sw_witness witness = {.child = sw_child_begin(live, 0)};
    (void)sw_witness_ask(&witness);
    return witness;
}

uint64_t sw_witness_ask(const struct sw_witness *witness) {
    uint64_t free_bytes;
    sw_child_tell(&witness->child, "x", 1);
    sw_child_hear(&witness->child, &free_bytes, sizeof free_bytes, name);
    return free_bytes;
}

void sw_witness_check_free(const struct sw_witness *witness, uint64_t before) {
    const uint64_t begun_us = sw_clock_us();
    uint64_t now;
    while ((now = sw_witness_ask(witness)) + TOLERANCE_BYTES < before) {
        ck_assert_msg(sw_clock_us() - begun_us < SETTLE_MS * 1000ull, "%llu bytes of the GPU are free, were %llu",
                      (unsigned long long)now, (unsigned long long)before);
        sleep_us(10000);
    }
}

void sw_witness_end(struct sw_witness *witness) {
    sw_child_end(&witness->child, name);
}
