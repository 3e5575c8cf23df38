/* Memory that the client library copies through its arena, against a played daemon that neither reads nor writes it: a
 * restore gets what a spill has left there. */
#include "base/assert.h"
#include "ipc/client/client_arena.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { COPIED_BYTES = 1000 * 1000, MOST_AT_ONCE = 300000 };
_Static_assert(COPIED_BYTES <= SW_PIECE_BYTES, "one place of the arena");

/* The linker puts these in the place of the system's: fewer bytes than asked for, as after a signal. */
ssize_t __real_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at);
ssize_t __real_pwrite(int fd, const void *data, size_t bytes, off_t at);
ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at);

ssize_t __wrap_pread(int fd, void *data, size_t bytes, off_t at) {
    return __real_pread(fd, data, bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE, at);
}

ssize_t __wrap_pwrite(int fd, const void *data, size_t bytes, off_t at) {
    return __real_pwrite(fd, data, bytes < MOST_AT_ONCE ? bytes : MOST_AT_ONCE, at);
}

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

static void begin_read(int socket, uint32_t seq) {
    const struct sw_wire_buffer buffer = {.raw_bytes = COPIED_BYTES};
    const struct sw_wire_result result = {.slot = 1, .gen = 9, .n_buffers = 1};
    struct sw_msg reply = {.u.results = {.n_results = 1, .n_buffers = 1, .results = &result, .buffers = &buffer}};
    sw_play_put(socket, &reply, SW_MSG_RESULTS, seq);
}

/* Answers all. */
static void serve(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    while (sw_play_get(socket, &msg)) {
        const struct sw_msg_build *build = &msg.u.build;
        const struct sw_msg_read *read = &msg.u.read;
        if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(socket, msg.header.seq, 1, build->n_chunks ? build->chunks[0].raw_bytes : COPIED_BYTES);
        else if (msg.header.type == SW_MSG_READ && read->reads[0].flags & SW_READ_BEGIN)
            begin_read(socket, msg.header.seq);
        else if (msg.header.type == SW_MSG_READ)
            sw_play_put_result(socket, msg.header.seq, 1, read->n_chunks ? read->chunks[0].raw_bytes : 0);
        else if (msg.header.type == SW_MSG_DISCARD)
            sw_play_put_discarded(socket, msg.header.seq, msg.u.discard.n_ids);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

enum { HALF_BYTES = COPIED_BYTES / 2 };

static void take_two_buffers(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    for (uint32_t k = 0; k < 2; k++) {
        sw_play_expect(socket, &msg, SW_MSG_BUILD);
        SW_ASSERT(msg.u.build.n_chunks == 1);
        const struct sw_wire_chunk *chunk = msg.u.build.chunks;
        SW_ASSERT(chunk->buffer == k && chunk->at == 0 && chunk->raw_bytes == HALF_BYTES);
        sw_play_put_result(socket, msg.header.seq, 1, HALF_BYTES);
    }
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.builds[0].flags == SW_BUILD_COMMIT);
    sw_play_put_result(socket, msg.header.seq, 1, COPIED_BYTES);
    sw_play_expect_end(socket);
}

static bool says_by_result;

/* Refuses the only part of a spill. */
static void refuse_a_part(int socket) {
    static const char text[] = "no room";
    const struct sw_wire_result result = {.error = 1, .scope = SW_SCOPE_REQUEST};
    const struct sw_wire_text code = {"ENOSPACE"};
    struct sw_msg reply = {.u.results = {.n_results = 1,
                                         .n_texts = 1,
                                         .text_bytes = sizeof text - 1,
                                         .results = &result,
                                         .texts = &code,
                                         .text = text}};
    struct sw_msg msg;
    sw_play_greet(socket);
    (void)sw_play_register(socket);
    sw_play_expect(socket, &msg, SW_MSG_BUILD);
    SW_ASSERT(msg.u.build.n_chunks == 1 && !(msg.u.build.builds[0].flags & SW_BUILD_COMMIT));
    if (says_by_result)
        sw_play_put(socket, &reply, SW_MSG_RESULTS, msg.header.seq);
    else
        sw_play_put_error(socket, msg.header.seq, "ENOSPACE", SW_SCOPE_REQUEST, text);
    sw_play_expect(socket, &msg, SW_MSG_BUILD); /* it was on its way */
    SW_ASSERT(msg.u.build.builds[0].flags == SW_BUILD_COMMIT);
    sw_play_put_error(socket, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "no such build");
    sw_play_expect_end(socket);
}

/* ---- the client -------------------------------------------------------------------------------------------------- */

static uint8_t *new_memory(void) {
    uint8_t *memory = calloc(1, COPIED_BYTES);
    ck_assert_ptr_nonnull(memory);
    return memory;
}

START_TEST(a_copy_goes_on_where_it_has_stopped) {
    uint8_t *from = new_memory(), *to = new_memory();
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    for (unsigned i = 0; i < COPIED_BYTES; i++)
        from[i] = (uint8_t)(i * 2654435761u >> 24);
    sw_play_open(serve);
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(from, COPIED_BYTES)), 1, &ticket, NULL), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &sw_play.error), 0);
    ck_assert_int_eq(spillway_restore(sw_play.connection, SW_REQUEST(SW_ONE(to, COPIED_BYTES), .region = result.region),
                                      1, &ticket, NULL),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    ck_assert_mem_eq(from, to, COPIED_BYTES);
    sw_play_close();
    free(from);
    free(to);
}
END_TEST

START_TEST(each_buffer_is_copied_from_its_beginning) {
    struct spillway_ticket *ticket = NULL;
    uint8_t *memory = new_memory();
    const struct spillway_buffer buffers[] = {{.data = memory, .bytes = HALF_BYTES},
                                              {.data = memory + HALF_BYTES, .bytes = HALF_BYTES}};
    sw_play_open(take_two_buffers);
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 2)), 1, &ticket, NULL), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &sw_play.error), 0);
    sw_play_close();
    free(memory);
}
END_TEST

/* The error is that of the part, not of the commit behind it. Loop: how the service says so. */
START_TEST(a_part_that_is_refused_fails_the_spill) {
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    uint8_t *memory = new_memory();
    says_by_result = _i;
    sw_play_open(refuse_a_part);
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(memory, COPIED_BYTES)), 1, &ticket, NULL), 0);
    sw_play_ck_error(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &sw_play.error), SPILLWAY_ENOSPACE,
                     SPILLWAY_SCOPE_REQUEST, "no room");
    ck_assert_int_eq(result.code, -SPILLWAY_ENOSPACE);
    sw_play_close();
    free(memory);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client_copies");
    TCase *tcase = tcase_create("copies");
    tcase_add_test(tcase, a_copy_goes_on_where_it_has_stopped);
    tcase_add_test(tcase, each_buffer_is_copied_from_its_beginning);
    tcase_add_loop_test(tcase, a_part_that_is_refused_fails_the_spill, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
