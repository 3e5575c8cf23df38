/* Every combination of a spill's fields and flags, on a real spillwayd with the host device: it works, and every byte
 * comes back, or its error is named. The table in ipc/README.md is this one. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BUFFER_BYTES = 40000, MOST_REQUESTS = 300, MOST_BUFFERS = 3, OTHER_BYTE = 0xdb };

enum memory { REGISTERED, HANDED_OVER, COPIED, MEMORY_NR };
enum many { ONE, SOME, MANY, MANY_NR }; /* requests of the call: 1, 5, 300 */

/* One cell. */
struct cell {
    enum memory memory;
    enum many many;
    bool each, several, typed, durable, in_place;
};

static struct spillway *connection;
static struct spillway_error error;
static struct spillway_buffer buffers[MOST_REQUESTS][MOST_BUFFERS];
static struct spillway_request requests[MOST_REQUESTS];
static struct spillway_result results[MOST_REQUESTS];
static char names[MOST_REQUESTS][16];
static uint8_t *memory[MEMORY_NR];
static int descriptors[MEMORY_NR]; /* open as long as calls name the memory, as spillway.h asks for */
static const char *const memory_names[] = {"registered", "handed over", "copied"};

static const uint32_t n_requests[] = {1, 5, MOST_REQUESTS};
static const size_t memory_bytes = (size_t)MOST_REQUESTS * MOST_BUFFERS * BUFFER_BYTES;

static void before_each(void) {
    connection = sw_served_connect(&sw_served_daemon);
    for (int m = 0; m < COPIED; m++) {
        descriptors[m] = memfd_create("e2e", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert(descriptors[m] >= 0 && ftruncate(descriptors[m], (off_t)memory_bytes) == 0);
        memory[m] = mmap(NULL, memory_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptors[m], 0);
        ck_assert_ptr_ne(memory[m], MAP_FAILED);
    }
    memory[COPIED] = malloc(memory_bytes);
    ck_assert_ptr_nonnull(memory[COPIED]);
    ck_assert_int_eq(spillway_register(connection, memory[REGISTERED], memory_bytes, &error), 0);
}

static void after_each(void) {
    ck_assert_int_eq(spillway_unregister(connection, memory[REGISTERED], &error), 0);
    for (int m = 0; m < COPIED; m++) {
        (void)munmap(memory[m], memory_bytes);
        (void)close(descriptors[m]);
    }
    free(memory[COPIED]);
    sw_served_close(connection);
}

static void fill(const struct cell *cell) {
    for (uint32_t i = 0; i < n_requests[cell->many]; i++)
        for (uint32_t k = 0; k < requests[i].n_buffers; k++)
            sw_content_fill(buffers[i][k].data, buffers[i][k].bytes, SW_CONTENT_TEXT, MOST_BUFFERS * i + k);
}

static void lay_out(const struct cell *cell) {
    memset(requests, 0, sizeof requests);
    for (uint32_t i = 0; i < n_requests[cell->many]; i++) {
        const uint32_t n = cell->several ? MOST_BUFFERS : 1;
        for (uint32_t k = 0; k < n; k++)
            buffers[i][k] =
                (struct spillway_buffer){.data = memory[cell->memory] + (size_t)(MOST_BUFFERS * i + k) * BUFFER_BYTES,
                                         .bytes = k == 1 ? 0 : BUFFER_BYTES, /* one of several is empty */
                                         .type = cell->typed ? SPILLWAY_U32 : SPILLWAY_BYTES};
        (void)snprintf(names[i], sizeof names[i], "r%u", i);
        requests[i] = (struct spillway_request){.size = sizeof requests[0],
                                                .buffers = buffers[i],
                                                .n_buffers = n,
                                                .flags = (cell->each ? SPILLWAY_EACH : 0u) |
                                                         (cell->in_place ? SPILLWAY_IN_PLACE : 0u),
                                                .name = cell->durable ? names[i] : NULL};
        results[i].size = sizeof results[0];
    }
    fill(cell);
}

/* The expected error; 0: it works. */
static int expected(const struct cell *cell) {
    if (cell->in_place && (cell->durable || cell->several))
        return SPILLWAY_EINVAL;
    if (cell->in_place && cell->many != ONE && !cell->each)
        return SPILLWAY_EINVAL;
    if (cell->in_place && cell->memory == COPIED)
        return SPILLWAY_EMEMKIND;
    if (cell->durable && cell->many == MANY && !cell->each)
        return SPILLWAY_ELIMIT; /* more than one packet: the service makes no more than 256 at once */
    return 0;
}

static int run(int (*start)(struct spillway *c, const struct spillway_request *r, uint32_t n,
                            struct spillway_ticket **ret, struct spillway_error *e),
               uint32_t n) {
    struct spillway_ticket *ticket = NULL;
    int rc = start(connection, requests, n, &ticket, &error);
    if (!rc)
        rc = spillway_wait(ticket, -1, results, n, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static void ck_content(const struct cell *cell, const char *text) {
    static uint8_t expected_bytes[BUFFER_BYTES];
    for (uint32_t i = 0; i < n_requests[cell->many]; i++)
        for (uint32_t k = 0; k < requests[i].n_buffers; k++) {
            const struct spillway_buffer *b = &buffers[i][k];
            sw_content_fill(expected_bytes, b->bytes, SW_CONTENT_TEXT, MOST_BUFFERS * i + k);
            ck_assert_msg(memcmp(b->data, expected_bytes, b->bytes) == 0, "%s: request %u, buffer %u differs", text, i,
                          k);
        }
}

static void restore(const struct cell *cell, const char *text) {
    const uint32_t n = n_requests[cell->many];
    for (uint32_t i = 0; i < n; i++) {
        requests[i].region = results[i].region;
        requests[i].name = NULL;
        if (!cell->in_place)
            memset(buffers[i][0].data, OTHER_BYTE, buffers[i][0].bytes);
    }
    const int rc = run(spillway_restore, n);
    ck_assert_msg(rc == 0, "%s: restore: %s: %s", text, error.name, error.text);
    ck_content(cell, text);
    for (uint32_t i = 0; i < n; i++) {
        struct spillway_region_info info = {.size = sizeof info};
        const int there = spillway_query(connection, results[i].region, &info, NULL);
        ck_assert_msg((there == 0) == cell->durable, "%s: %s afterwards", text, spillway_error_name(there));
        if (cell->durable)
            ck_assert_int_eq(spillway_drop(connection, &results[i].region, 1, &error), 0);
    }
}

static void visit(const struct cell *cell) {
    char text[128];
    (void)snprintf(text, sizeof text, "%s, %u requests%s%s%s%s%s", memory_names[cell->memory], n_requests[cell->many],
                   cell->each ? ", each" : "", cell->several ? ", several buffers" : "", cell->typed ? ", typed" : "",
                   cell->durable ? ", durable" : "", cell->in_place ? ", in place" : "");
    lay_out(cell);
    const int rc = run(spillway_spill, n_requests[cell->many]);
    ck_assert_msg(rc == -expected(cell), "%s: %s (%s), not %s", text, spillway_error_name(rc), rc ? error.text : "",
                  spillway_error_name(expected(cell)));
    if (rc)
        ck_content(cell, text); /* untouched */
    else
        restore(cell, text);
}

START_TEST(every_combination_works_or_names_its_error) {
    for (unsigned bits = 0; bits < 32; bits++)
        for (int many = 0; many < MANY_NR; many++)
            visit(&(struct cell){.memory = (enum memory)_i,
                                 .many = (enum many)many,
                                 .each = bits & 1,
                                 .several = bits & 2,
                                 .typed = bits & 4,
                                 .durable = bits & 8,
                                 .in_place = bits & 16});
}
END_TEST

int main(void) {
    Suite *suite = suite_create("e2e_combinations");
    TCase *tcase = tcase_create("combinations");
    tcase_set_timeout(tcase, 120);
    tcase_add_unchecked_fixture(tcase, sw_served_start, sw_served_stop);
    tcase_add_checked_fixture(tcase, before_each, after_each);
    tcase_add_loop_test(tcase, every_combination_works_or_names_its_error, 0, MEMORY_NR);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
