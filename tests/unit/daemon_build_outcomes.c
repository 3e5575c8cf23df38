/* The outcome of a packet of builds when one build fails, when memory of the client, the service or the session is
 * missing, when it waits, and when it meets a limit. */
#include "base/alloc.h"
#include "base/log.h"
#include "spill/engine_state.h"
#include "tests/lib/builds_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
    MOST = SW_PROTO_MAX_ITEMS,
    BYTES = SW_BUILDS_BYTES,
    MEMORY_BYTES = SW_BUILDS_MEMORY_BYTES,
    N_MEMS = SW_BUILDS_MEMS,
    ONCE = 100 /* and ONCE + 1, ...: of the same bytes, for one packet */
};

static struct sw_packet_rig *const rig = &sw_builds.rig;
static struct sw_test_packet packet, packet_back;

/* ---- all or nothing, or each by itself ---- */

/* The tenant's bytes are used up by the second of three: that shows when it is stored. */
START_TEST(a_build_that_fails_late) {
    const bool all = _i;
    rig->session->tenant->quota.max_bytes = 2 * BYTES;
    sw_builds_make(&packet, 3, all ? SW_REQ_ALL : 0);
    const int rc = sw_packet_rig_call(rig, &packet);
    ck_assert_int_eq(rc, all ? -SW_ETENANTBYTES : 0);
    ck_assert(!all || sw_packet_rig_says(rig, " of 3: "));
    unsigned n_stored = 0;
    for (unsigned i = 0; !all && i < 3; i++) {
        const int code = sw_test_result_code(&rig->reply, i);
        const struct sw_region_id id = sw_test_result_id(&rig->reply, i);
        ck_assert(code == 0 || code == -SW_ETENANTBYTES);
        ck_assert(!code == (id.gen != 0));
        n_stored += !code;
    }
    ck_assert(all || (n_stored > 0 && n_stored < 3));
    sw_builds_ck_rest(n_stored, N_MEMS);
    sw_builds_ck_memory();
}
END_TEST

START_TEST(reads_with_the_keep_flag_keep_their_regions) {
    const bool all = _i;
    sw_builds_make(&packet, 3, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_builds_make_reads(&packet, 3, all ? SW_REQ_ALL : 0, SW_READ_KEEP);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_builds_ck_rest(3, N_MEMS);
    packet.reads[1].flags &= (uint16_t)~SW_READ_KEEP;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), all ? -SW_EINVAL : 0); /* one that is back speaks for all */
    sw_builds_ck_rest(all ? 3 : 2, N_MEMS);
    packet.reads[0].flags = packet.reads[2].flags = packet.reads[1].flags;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    if (!all)
        ck_assert_int_eq(sw_test_result_code(&rig->reply, 1), -SW_ESTALE);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

static char logged[600]; /* the last line about an operation's end, or a request that failed */

static void keep_line(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    if (strstr(line, ".done") || strstr(line, "request.failed"))
        (void)snprintf(logged, sizeof logged, "%s", line);
}

static void ck_logged(const char *event, unsigned n, uint64_t bytes, uint64_t stored_bytes) {
    char text[200];
    (void)snprintf(text, sizeof text, "event=%s session=1 n=%u failed=0 bytes=%llu stored=%llu us=", event, n,
                   (unsigned long long)bytes, (unsigned long long)stored_bytes);
    ck_assert_msg(strstr(logged, text) != NULL, "no '%s' in '%s'", text, logged);
}

/* The line about a packet has the sums of all. */
START_TEST(the_log_has_the_sums) {
    enum { N = 3 };
    sw_log_set_level(SW_LOG_DEBUG);
    sw_log_set_tap(keep_line, NULL);
    sw_builds_make(&packet, N, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    uint64_t stored_bytes = 0;
    for (unsigned i = 0; i < N; i++)
        stored_bytes += rig->reply.u.results.results[i].stored_bytes;
    sw_packet_rig_idle(rig);
    ck_logged("spill_batch.done", N, N * BYTES, stored_bytes);
    sw_builds_make_reads(&packet, N, 0, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_packet_rig_idle(rig);
    ck_logged("restore_batch.done", N, N * BYTES, stored_bytes);
    sw_log_set_tap(NULL, NULL);
}
END_TEST

/* The line about a failed request has the region's name, if there is one region and its name is none that is too long.
 * The loop's index: a name; the longest one; one that is longer by a byte; two names. */
START_TEST(the_log_has_the_name_of_a_failed_build) {
    char name[SW_PROTO_NAME_BYTES + 1], text[SW_PROTO_NAME_BYTES + 20];
    memset(name, 'n', sizeof name);
    name[_i == 1 ? SW_PROTO_NAME_BYTES - 1 : _i == 2 ? SW_PROTO_NAME_BYTES : 3] = 0;
    sw_log_set_tap(keep_line, NULL);
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    for (int i = 0; i < (_i == 3 ? 2 : 1); i++) {
        (void)sw_test_add_build(&packet, name);
        (void)sw_test_add_buffer(&packet, BYTES, 0);
        (void)sw_test_add_chunk(&packet, 77, 0, BYTES); /* there is no such memory */
    }
    ck_assert_int_lt(sw_packet_rig_call(rig, &packet), 0);
    (void)snprintf(text, sizeof text, " region_name=\"%s\" ", name);
    ck_assert_msg(strstr(logged, "request.failed") != NULL, "%s", logged);
    ck_assert_msg(!strstr(logged, _i < 2 ? text : "region_name=") == (_i >= 2), "%s", logged);
    sw_log_set_tap(NULL, NULL);
}
END_TEST

START_TEST(the_priority_comes_with_the_build) {
    sw_builds_make(&packet, 2, 0);
    packet.builds[1].keep_priority = 200;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region *regions = rig->service.service.engine->store.regions.regions;
    ck_assert_uint_eq(regions[sw_test_result_id(&rig->reply, 0).slot].priority, 0);
    ck_assert_uint_eq(regions[sw_test_result_id(&rig->reply, 1).slot].priority, 200);
}
END_TEST

/* What a client has consumed is on record only until the reply is sent and the work behind it is done: no successor
 * finds it, and its cells are free. Loop: by reads, by reads of which all or none succeed, by their ids. */
START_TEST(consumed_regions_leave_no_record) {
    enum { N = 3 };
    static const uint8_t token[SW_TOKEN_BYTES] = "of this session";
    struct sw_engine *engine = rig->service.service.engine;
    ck_assert_int_eq(sw_catalogue_open(&engine->config.catalogue, -1, N, NULL), 0);
    struct sw_catalogue *catalogue = engine->config.catalogue;
    ck_assert_int_eq(sw_owner_name(rig->session->owner, 1000, &(struct sw_process){.pid = 0}, token, NULL), 0);
    sw_builds_make(&packet, N, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    ck_assert_uint_eq(sw_catalogue_longest_chunk(catalogue), BYTES);
    if (_i == 2) {
        sw_test_packet(&packet_back, SW_MSG_DISCARD, SW_REQ_CONSUME);
        for (unsigned i = 0; i < N; i++)
            sw_test_add_id(&packet_back, sw_test_result_id(&rig->reply, i));
    } else {
        sw_builds_make_reads(&packet_back, N, _i ? SW_REQ_ALL : 0, 0);
    }
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), 0);
    sw_builds_ck_rest(0, N_MEMS);
    ck_assert_uint_eq(sw_catalogue_longest_chunk(catalogue), 0);
    engine->config.catalogue = NULL;
    sw_catalogue_close(catalogue);
}
END_TEST

/* ---- memories for one packet ---- */

/* A memory for each chunk, or one for several; unmapped before the reply. */
START_TEST(once_memories_end_with_their_packet) {
    enum { N = 32 };
    sw_test_packet(&packet, SW_MSG_BUILD, _i ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < N; i++) {
        sw_packet_rig_add_memory(rig, ONCE + i, sw_builds.fds[0], MEMORY_BYTES, true);
        (void)sw_test_add_build(&packet, NULL);
        for (unsigned k = 0; k < 2; k++) {
            (void)sw_test_add_buffer(&packet, BYTES, 0);
            (void)sw_test_add_chunk(&packet, ONCE + i * k, (2ul * i + k) * BYTES, BYTES);
        }
    }
    ck_assert_uint_eq(sw_packet_rig_stats(rig).n_mems, N_MEMS + N);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_builds_ck_rest(N, N_MEMS);
    ck_assert_uint_eq(sw_packet_rig_stats(rig).n_mapped, N_MEMS);
    ck_assert_uint_eq(rig->service.service.fds.used, N_MEMS);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(sw_builds_close_memory(ONCE + i), -SW_ENOENT);
}
END_TEST

/* _i: refused by its head, its limits, its first build, or its last one. */
START_TEST(a_refused_packet_uses_up_its_once_memories) {
    for (unsigned i = 0; i < 2; i++)
        sw_packet_rig_add_memory(rig, ONCE + i, sw_builds.fds[i], MEMORY_BYTES, true);
    sw_builds_make(&packet, 2, _i == 2 ? SW_REQ_ALL : 0);
    packet.chunks[0].mem = ONCE;
    packet.chunks[1].mem = ONCE + 1;
    rig->service.service.draining = _i == 0;
    packet.msg.u.build.reserved = _i == 1;
    packet.builds[0].reserved[0] = _i >= 2;
    packet.builds[1].reserved[0] = _i >= 3;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), _i ? -SW_EINVAL : -SW_EDRAINING);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(sw_builds_close_memory(ONCE + i), -SW_ENOENT);
    sw_builds_ck_rest(0, N_MEMS);
    ck_assert_uint_eq(rig->service.service.fds.used, N_MEMS);
}
END_TEST

/* The session ends while a packet works with memories of its own. */
START_TEST(a_session_ends_during_a_packet) {
    for (unsigned i = 0; i < 2; i++)
        sw_packet_rig_add_memory(rig, ONCE + i, sw_builds.fds[i], MEMORY_BYTES, true);
    sw_builds_make(&packet, 2, _i ? SW_REQ_ALL : 0);
    packet.chunks[0].mem = ONCE;
    packet.chunks[1].mem = ONCE + 1;
    (void)sw_packet_rig_send(rig, &packet.msg, NULL, 0);
    sw_session_close(rig->session, "test");
}
END_TEST

/* ---- memory that cannot be had ---- */

/* Each allocation fails in turn: regions in the results are stored, others are not, and the rest is unchanged. The
 * loop's index: all or nothing, or each by itself. */
START_TEST(an_allocation_that_fails_leaves_nothing_behind) {
    const uint32_t flags = _i ? SW_REQ_ALL : 0;
    long live = 0;
    unsigned n_failed = 0;
    for (unsigned long nth = 0;; nth++) { /* not at first: the device keeps its first allocations */
        sw_builds_make(&packet, 2, flags);
        (void)sw_test_add_buffer(&packet, 0, 0); /* in no memory */
        sw_alloc_fail_nth(nth);
        const int rc = sw_packet_rig_call(rig, &packet);
        sw_alloc_fail_nth(0);
        ck_assert_msg(rc == 0 || rc == -SW_ENOMEM, "%s", (const char *)rig->reply.u.error.text);
        const unsigned n_bad =
            rc ? 2u : (sw_test_result_code(&rig->reply, 0) ? 1u : 0) + (sw_test_result_code(&rig->reply, 1) ? 1u : 0);
        ck_assert(!_i || n_bad != 1);
        sw_builds_ck_rest(2 - n_bad, N_MEMS);
        sw_builds_ck_memory();
        sw_builds_drop_all();
        live = nth ? live : sw_alloc_live();
        ck_assert_int_eq(sw_alloc_live(), live);
        if (nth && !n_bad)
            break;
        n_failed += n_bad > 0;
    }
    ck_assert_uint_gt(n_failed, 5);
}
END_TEST

/* ---- orders ---- */

START_TEST(chunks_wait_for_their_words) {
    enum { WORDS = 512 };
    int page = memfd_create("order", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct sw_msg hand_over = {.header.type = SW_MSG_ORDER_PAGE, .u.order_page.bytes = WORDS * 8};
    ck_assert(ftruncate(page, WORDS * 8) == 0 && fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    _Atomic uint64_t *words = mmap(NULL, WORDS * 8, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    ck_assert_ptr_ne(words, MAP_FAILED);
    (void)sw_packet_rig_send(rig, &hand_over, &page, 1);
    ck_assert_int_eq(sw_packet_rig_await(rig), 0);
    sw_builds_make(&packet, 3, 0);
    packet.chunks[0].order_word = 3;
    packet.chunks[0].order_value = 5;
    packet.chunks[1].order_word = WORDS - 1;
    packet.chunks[1].order_value = 1;
    packet.chunks[2].order_word = 4000; /* means nothing: it does not wait */
    memset(sw_builds.memory[0], 0, 2 * BYTES);
    (void)sw_packet_rig_send(rig, &packet.msg, NULL, 0);
    for (unsigned i = 0; i < 2; i++) {
        for (int turn = 0; turn < 20; turn++) {
            (void)uv_run(&rig->service.loop, UV_RUN_NOWAIT);
            (void)usleep(500);
            ck_assert(!sw_packet_rig_has_reply(rig));
        }
        memcpy(sw_builds.memory[0] + (size_t)i * BYTES, sw_builds.original[0] + (size_t)i * BYTES, BYTES);
        atomic_store(&words[i ? WORDS - 1 : 3], i ? 1 : 7);
    }
    ck_assert_int_eq(sw_packet_rig_await(rig), 0);
    ck_assert_uint_ge(rig->reply.u.results.service_us, 2 * 20 * 500); /* with its waits */
    sw_builds_make_reads(&packet, 3, SW_REQ_ALL, 0);
    sw_builds_wipe();
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    ck_assert_mem_eq(sw_builds.memory[0], sw_builds.original[0], 3 * BYTES); /* as the stream left them */
    sw_builds_make(&packet, 1, 0);
    packet.chunks[0].order_word = WORDS;
    packet.chunks[0].order_value = 1;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_ERANGE);
    sw_builds_ck_rest(0, N_MEMS);
    (void)munmap((void *)(uintptr_t)words, WORDS * 8);
}
END_TEST

static unsigned count_stored_names(void) {
    struct sw_msg msg = {.header.type = SW_MSG_LIST, .u.list.max = 10};
    unsigned n = 0;
    ck_assert_int_eq(sw_packet_rig_call_msg(rig, &msg), 0);
    ck_assert_uint_eq(rig->reply.u.listing.n_items, 3);
    for (unsigned i = 0; i < 3; i++)
        n += strcmp(rig->reply.u.listing.items[i].state, "out") == 0;
    return n;
}

/* With SW_REQ_ALL none of it is stored before all is. */
START_TEST(named_regions_of_a_packet_are_stored_together) {
    static const char *const names[] = {"first", "second", "third"};
    sw_packet_rig_add_page(rig);
    sw_builds_make(&packet, 0, SW_REQ_ALL);
    for (unsigned i = 0; i < 3; i++) {
        (void)sw_test_add_build(&packet, names[i]);
        (void)sw_test_add_buffer(&packet, BYTES, 0);
        struct sw_wire_chunk *chunk = sw_test_add_chunk(&packet, SW_PACKET_RIG_MEM, (uint64_t)i * BYTES, BYTES);
        chunk->order_word = 3;
        chunk->order_value = i == 1; /* the others do not wait */
    }
    const uint32_t seq = sw_packet_rig_send(rig, &packet.msg, NULL, 0);
    sw_packet_rig_idle(rig);
    ck_assert_uint_eq(count_stored_names(), 0);
    atomic_store(&rig->words[3], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(rig, seq), 0);
    ck_assert_uint_eq(count_stored_names(), 3);
}
END_TEST

/* ---- limits ---- */

/* Overdue sessions hold what a packet lacks, whichever of its builds fails. The failure is counted. */
START_TEST(a_build_that_lacks_room_ends_overdue_sessions) {
    struct sw_service *service = &rig->service.service;
    struct sw_tenant *tenant = rig->session->tenant;
    struct sw_owner *owner;
    ck_assert_int_eq(sw_owner_open(service->engine, &owner, NULL), 0);
    sw_owner_set_quota(owner, &tenant->quota);
    tenant->n_owners++;
    owner->state = SW_OWNER_UNCLAIMED;
    service->n_overdue = 1;
    tenant->quota.max_regions = 1;
    memset(service->n_errors, 0, sizeof service->n_errors);
    sw_builds_make(&packet, 2, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    ck_assert_int_eq(sw_test_result_code(&rig->reply, 0), 0);
    ck_assert_int_eq(sw_test_result_code(&rig->reply, 1), -SW_ETENANTREGIONS);
    ck_assert_uint_eq(service->n_overdue, 0);
    for (int i = 0; i < SW_ERR_COUNT; i++)
        ck_assert_uint_eq(service->n_errors[i], strcmp(sw_err_name_at(i), "ETENANTREGIONS") == 0);
    while (tenant->n_owners > 0)
        (void)uv_run(&rig->service.loop, UV_RUN_ONCE);
    sw_builds_drop_all();
}
END_TEST

START_TEST(a_drained_service_builds_nothing_and_gives_all_back) {
    sw_builds_make(&packet, 3, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    sw_builds_make_reads(&packet_back, 3, 0, 0);
    rig->service.service.draining = true;
    for (unsigned all = 0; all < 2; all++) {
        sw_builds_make(&packet, 3, all ? SW_REQ_ALL : 0);
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EDRAINING);
    }
    sw_builds_wipe();
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), 0);
    ck_assert_mem_eq(sw_builds.memory[0], sw_builds.original[0], 3 * BYTES);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

/* Numbers builds as the client's counter would after n others. */
static void number_builds(struct sw_test_packet *p, unsigned n) {
    for (unsigned i = 0; i < p->msg.u.build.n_builds; i++)
        p->builds[i].build += n;
}

/* Packets count, whatever is in them; until the loop runs none has ended. */
START_TEST(packets_in_flight_are_limited) {
    unsigned n_codes[2] = {0};
    rig->service.config.max_session_operations = _i ? 100 : 3;
    rig->service.config.tenant_operations = _i ? 3 : 0;
    sw_tenants_set_limits(&rig->service.service);
    for (unsigned i = 0; i < 5; i++) {
        sw_builds_make(&packet, i + 1, 0);
        number_builds(&packet, i * MOST);
        (void)sw_packet_rig_send(rig, &packet.msg, NULL, 0);
    }
    for (unsigned i = 0; i < 5; i++) {
        const int rc = sw_packet_rig_await(rig);
        ck_assert(rc == 0 || rc == (_i ? -SW_ETENANTOPS : -SW_ELIMIT));
        n_codes[rc != 0]++;
    }
    ck_assert(n_codes[0] == 3 && n_codes[1] == 2);
    sw_builds_ck_rest(1 + 2 + 3, N_MEMS);
}
END_TEST

/* Eight full packets, and single builds beside them, but not one more of two. */
START_TEST(buffers_in_flight_are_limited) {
    unsigned n_refused = 0;
    const unsigned n_full = SW_SESSION_MAX_BUFFERS / MOST;
    for (unsigned i = 0; i < n_full; i++) {
        sw_builds_make(&packet, MOST, 0);
        number_builds(&packet, i * MOST);
        for (unsigned k = 0; k < MOST; k++)
            packet.buffers[k].raw_bytes = packet.chunks[k].raw_bytes = 0; /* the tier has room for all */
        (void)sw_packet_rig_send(rig, &packet.msg, NULL, 0);
    }
    ck_assert_uint_eq(rig->session->n_buffers, SW_SESSION_MAX_BUFFERS);
    for (unsigned n = 1; n <= 2; n++) {
        sw_builds_make(&packet, n, 0);
        number_builds(&packet, (n_full + n) * MOST);
        (void)sw_packet_rig_send(rig, &packet.msg, NULL, 0);
    }
    for (unsigned i = 0; i < n_full + 2; i++) {
        const int rc = sw_packet_rig_await(rig);
        ck_assert_msg(rc == 0 || rc == -SW_ELIMIT, "%s", (const char *)rig->reply.u.error.text);
        n_refused += rc != 0;
    }
    ck_assert_uint_eq(n_refused, 1);
    sw_builds_ck_rest(SW_SESSION_MAX_BUFFERS + 1, N_MEMS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_build_outcomes");
    TCase *tcase = tcase_create("build_outcomes");
    tcase_add_checked_fixture(tcase, sw_builds_open, sw_builds_close);
    tcase_add_loop_test(tcase, a_build_that_fails_late, 0, 2);
    tcase_add_loop_test(tcase, reads_with_the_keep_flag_keep_their_regions, 0, 2);
    tcase_add_test(tcase, the_priority_comes_with_the_build);
    tcase_add_test(tcase, the_log_has_the_sums);
    tcase_add_loop_test(tcase, the_log_has_the_name_of_a_failed_build, 0, 4);
    tcase_add_loop_test(tcase, consumed_regions_leave_no_record, 0, 3);
    tcase_add_loop_test(tcase, once_memories_end_with_their_packet, 0, 2);
    tcase_add_loop_test(tcase, a_refused_packet_uses_up_its_once_memories, 0, 4);
    tcase_add_loop_test(tcase, a_session_ends_during_a_packet, 0, 2);
    tcase_add_loop_test(tcase, an_allocation_that_fails_leaves_nothing_behind, 0, 2);
    tcase_add_test(tcase, chunks_wait_for_their_words);
    tcase_add_test(tcase, named_regions_of_a_packet_are_stored_together);
    tcase_add_test(tcase, a_build_that_lacks_room_ends_overdue_sessions);
    tcase_add_test(tcase, a_drained_service_builds_nothing_and_gives_all_back);
    tcase_add_loop_test(tcase, packets_in_flight_are_limited, 0, 2);
    tcase_add_test(tcase, buffers_in_flight_are_limited);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
