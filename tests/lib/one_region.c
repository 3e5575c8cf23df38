#include "tests/lib/one_region.h"

#include "base/clock.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

void sw_one_region_init(struct sw_one_region *ret, size_t bytes, bool with_text) {
    const int fd = memfd_create("one region", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    *ret = (struct sw_one_region){.bytes = bytes, .with_text = with_text, .expected = malloc(bytes)};
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    ret->data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    (void)close(fd);
    ck_assert(ret->data != MAP_FAILED && ret->expected);
}

void sw_one_region_fini(struct sw_one_region *region) {
    (void)munmap(region->data, region->bytes);
    free(region->expected);
}

static void fill(const struct sw_one_region *region, uint8_t *to, uint64_t seed) {
    sw_content_fill(to, region->bytes, region->with_text && seed % 2 == 0 ? SW_CONTENT_TEXT : SW_CONTENT_RANDOM, seed);
}

void sw_one_region_expect(const struct sw_one_region *region, uint64_t seed) {
    fill(region, region->expected, seed);
}

int sw_one_region_spill(const struct sw_one_region *region, struct spillway *connection, uint64_t seed,
                        const char *name, uint8_t durability, struct spillway_result *ret,
                        struct spillway_error *error) {
    struct spillway_ticket *ticket = NULL;
    *ret = (struct spillway_result){.size = sizeof *ret};
    fill(region, region->data, seed);
    ck_assert_int_eq(
        spillway_spill(connection,
                       SW_REQUEST(SW_ONE(region->data, region->bytes), .name = name, .durability = durability), 1,
                       &ticket, error),
        0);
    const int rc = spillway_wait(ticket, SW_TEST_WAIT_MS, ret, 1, error);
    spillway_ticket_free(ticket);
    return rc;
}

double sw_one_region_restore(const struct sw_one_region *region, struct spillway *connection,
                             struct spillway_region from, uint64_t seed) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_error error;
    memset(region->data, 0xEE, region->bytes);
    const uint64_t from_us = sw_clock_us();
    ck_assert_int_eq(spillway_restore(connection, SW_REQUEST(SW_ONE(region->data, region->bytes), .region = from), 1,
                                      &ticket, &error),
                     0);
    ck_assert_msg(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, "%s: %s", error.name, error.text);
    const double took_ms = (double)(sw_clock_us() - from_us) / 1e3;
    spillway_ticket_free(ticket);
    sw_one_region_expect(region, seed);
    ck_assert_int_eq(memcmp(region->data, region->expected, region->bytes), 0);
    return took_ms;
}
