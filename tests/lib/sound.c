#include "tests/lib/sound.h"

#include "base/assert.h"
#include "tests/lib/content.h"
#include "tests/lib/wire.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static const char *round_trip(struct sw_wire *wire, int from, int to, const uint8_t *content, uint8_t *back,
                              size_t bytes) {
    struct sw_region_id id;
    if (sw_wire_mem(wire, 1, from, bytes, true) != 0 || sw_wire_spill(wire, 1, 0, bytes, &id) != 0)
        return "a good spill fails";
    if (sw_wire_mem(wire, 2, to, bytes, true) != 0 || sw_wire_restore(wire, id, 2, 0, bytes) != 0)
        return "a good restore fails";
    if (pread(to, back, bytes, 0) != (ssize_t)bytes || memcmp(back, content, bytes) != 0)
        return "restored bytes differ";
    return NULL;
}

const char *sw_sound_round_trip(const struct sw_test_daemon *daemon, size_t bytes, uint64_t seed) {
    struct sw_wire wire;
    uint8_t *content = malloc(bytes), *back = malloc(bytes);
    SW_ASSERT(content && back);
    sw_content_fill(content, bytes, SW_CONTENT_TEXT, seed);
    const int from = sw_wire_memfd(content, bytes, F_SEAL_SHRINK), to = sw_wire_memfd(NULL, bytes, F_SEAL_SHRINK);
    const char *wrong = "nobody listens";
    if (sw_wire_connect(&wire, daemon->socket)) {
        wrong = sw_wire_hello(&wire, SW_PROTO_OLDEST_VERSION) == 0 ? round_trip(&wire, from, to, content, back, bytes)
                                                                   : "a good hello fails";
        sw_wire_close(&wire);
    }
    (void)close(from);
    (void)close(to);
    free(content);
    free(back);
    return wrong;
}

void sw_sound_take(const struct sw_test_daemon *daemon, struct sw_sound *ret) {
    struct sw_wire wire;
    struct sw_msg_status_ok status;
    sw_wire_open(&wire, daemon->socket);
    SW_ASSERT(sw_wire_status(&wire, &status) == 0);
    *ret = (struct sw_sound){.fds = sw_test_daemon_fds(daemon),
                             .sessions = status.sessions,
                             .regions = status.regions,
                             .tier_used_bytes = status.tier_used_bytes,
                             .mapped_memories = status.mapped_memories};
    sw_wire_close(&wire);
}

/* NULL once the daemon holds no more than before; else, after a while, a text of what it holds. */
static const char *settle(const struct sw_test_daemon *daemon, const struct sw_sound *before) {
    static char text[256];
    struct sw_sound now;
    const struct timespec pause = {.tv_nsec = 1000000};
    for (int i = 0; i < 10000; i++) {
        sw_sound_take(daemon, &now);
        /* "Before" may have seen a session that was still closing: less than that is no leak. */
        if (now.fds <= before->fds && now.sessions <= before->sessions && now.regions <= before->regions &&
            now.tier_used_bytes <= before->tier_used_bytes && now.mapped_memories <= before->mapped_memories)
            return NULL;
        (void)nanosleep(&pause, NULL);
    }
    (void)snprintf(text, sizeof text,
                   "before and now: fds %u %u, sessions %u %u, regions %u %u, tier %" PRIu64 " %" PRIu64
                   ", mapped %" PRIu64 " %" PRIu64,
                   before->fds, now.fds, before->sessions, now.sessions, before->regions, now.regions,
                   before->tier_used_bytes, now.tier_used_bytes, before->mapped_memories, now.mapped_memories);
    return text;
}

const char *sw_sound_check(const struct sw_test_daemon *daemon, const struct sw_sound *before) {
    const char *wrong = settle(daemon, before); /* clients that took a whole share may still be leaving */
    if (!wrong)
        wrong = sw_sound_round_trip(daemon, 300 * 1000 + 7, 1);
    return wrong ? wrong : settle(daemon, before);
}
