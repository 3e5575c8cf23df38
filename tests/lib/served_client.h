/* served_client.h - a connection to the spillwayd of lib/served.h, memory, and spills and restores of it.
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one. */
#ifndef SW_TEST_SERVED_CLIENT_H
#define SW_TEST_SERVED_CLIENT_H

#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS };
static const size_t mib = 1 << 20;

static struct spillway *connection;
static struct spillway_error error;

static inline void before_each(void) {
    connection = sw_served_connect(&sw_served_daemon);
}

static inline void after_each(void) {
    sw_served_close(connection);
}

struct memory {
    uint8_t *data;
    size_t bytes;
    int fd;
};

static inline struct memory new_memory(size_t bytes) {
    struct memory m = {.bytes = bytes, .fd = memfd_create("e2e", MFD_CLOEXEC | MFD_ALLOW_SEALING)};
    ck_assert(m.fd >= 0 && ftruncate(m.fd, (off_t)bytes) == 0);
    m.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, m.fd, 0);
    ck_assert_ptr_ne(m.data, MAP_FAILED);
    return m;
}

static inline void free_memory(struct memory *m) {
    (void)munmap(m->data, m->bytes);
    (void)close(m->fd);
}

static inline void fill(uint8_t *data, size_t bytes, uint64_t seed) {
    sw_content_fill(data, bytes, SW_CONTENT_MIXED, seed);
}

static inline bool holds(const uint8_t *data, size_t bytes, uint64_t seed) {
    uint8_t *expected = malloc(bytes + 1);
    ck_assert_ptr_nonnull(expected);
    fill(expected, bytes, seed);
    const bool same = memcmp(data, expected, bytes) == 0;
    free(expected);
    return same;
}

static inline struct spillway_ticket *spill(const uint8_t *data, size_t bytes) {
    struct spillway_ticket *ticket = NULL;
    const int rc = spillway_spill(connection, SW_REQUEST(SW_ONE(data, bytes)), 1, &ticket, &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return ticket;
}

static inline struct spillway_ticket *restore(struct spillway_region region, uint8_t *data, size_t bytes,
                                              unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    const int rc = spillway_restore(connection, SW_REQUEST(SW_ONE(data, bytes), .region = region, .flags = flags), 1,
                                    &ticket, &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return ticket;
}

/* Waits for a ticket and frees it. */
static inline int finish(struct spillway_ticket *ticket, struct spillway_result *ret) {
    const int rc = spillway_wait(ticket, WAIT_MS, ret, ret != NULL, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static inline struct spillway_region spilled(const uint8_t *data, size_t bytes) {
    struct spillway_result result = {.size = sizeof result};
    const int rc = finish(spill(data, bytes), &result);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    ck_assert_uint_eq(result.raw_bytes, bytes);
    ck_assert_str_eq(result.tier, "host");
    ck_assert_str_ne(result.codec, "");
    return result.region;
}

static inline void ck_failed(int rc, int code, enum spillway_scope scope) {
    ck_assert_msg(rc == -code, "%d (%s: %s), not %d", rc, error.name, error.text, -code);
    ck_assert_int_eq(error.scope, scope);
    ck_assert_str_eq(error.name, spillway_error_name(code));
    ck_assert_str_ne(error.text, "");
}

#endif
