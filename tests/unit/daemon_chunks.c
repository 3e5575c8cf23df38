/* Which destinations of a packet overlap. */
#include "daemon/session/chunks.h"
#include "tests/lib/run.h"

#include <check.h>

/* In the order in which a packet has them: bytes of a memory, or a frame there. */
START_TEST(overlaps_of_destinations_are_found_in_any_order) {
    static const struct {
        struct sw_wire_chunk chunks[3];
        unsigned n;
        int rc;
    } cases[] = {
        {{{.mem = 1, .raw_bytes = 10}, {.mem = 2, .raw_bytes = 10}, {.mem = 1, .offset = 10, .raw_bytes = 9}}, 3, 0},
        {{{.mem = 1, .raw_bytes = 10}, {.mem = 2, .raw_bytes = 10}, {.mem = 1, .offset = 9, .raw_bytes = 1}},
         3,
         -SW_EINVAL},
        {{{.mem = 2, .offset = 5, .raw_bytes = 5}, {.mem = 1, .raw_bytes = 5}, {.mem = 2, .raw_bytes = 6}},
         3,
         -SW_EINVAL},
        {{{.mem = 2, .offset = 5, .raw_bytes = 5}, {.mem = 1, .raw_bytes = 5}, {.mem = 2, .raw_bytes = 5}}, 3, 0},
        {{{.mem = 1, .frame_bytes = 7, .raw_bytes = 100}, {.mem = 1, .offset = 7, .raw_bytes = 1}}, 2, 0},
        {{{.mem = 1, .frame_bytes = 8, .raw_bytes = 1}, {.mem = 1, .offset = 7, .raw_bytes = 1}}, 2, -SW_EINVAL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        ck_assert_msg(sw_chunks_check_overlap(cases[i].chunks, cases[i].n, NULL) == cases[i].rc, "case %zu", i);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_chunks");
    TCase *tests = tcase_create("all");
    tcase_add_test(tests, overlaps_of_destinations_are_found_in_any_order);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
