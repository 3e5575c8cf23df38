/* A service is killed at each of its writes in turn: at every store to the catalogue's records, at every record of the
 * disk's manifest (before it, in the middle, behind it), and at every reply. A client that speaks the protocol by hand
 * knows which replies it got, and the successor's state must agree with them. Then each record of a service fails in
 * turn: its client must get the error, or lose nothing.
 *
 * The service (lib/killed_service.h) is a child process with a real session; its catalogue and its memory are this
 * process's. Stores are found by lib/store_trap.h, so it is x86-64 only. */
#include "base/assert.h"
#include "base/log.h"
#include "spill/engine_state.h"
#include "tests/lib/killed_service.h"
#include "tests/lib/known_regions.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"
#include "tests/lib/store_trap.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#if !SW_STORE_TRAP
int main(void) {
    (void)fprintf(stderr, "left out: it needs the trap flag of x86-64\n");
    return 77;
}
#else

enum { BYTES = 100001, N_PIECES = 12 };
/* ---- what its successor finds ---- */

static struct sw_life life;
static struct sw_owner *tenant_owner;

static int on_found(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg, struct sw_err *err) {
    (void)uid;
    (void)arg;
    (void)err;
    if (is_tenant_owner)
        tenant_owner = owner;
    return 0;
}

/* Restores to memory of the test's own; 0: it has the right bytes. */
static int try(struct sw_owner *owner, struct sw_known_region *p) {
    struct sw_memory own = p->packed ? p->from : sw_memory_new(SW_KNOWN_BYTES);
    struct sw_mem_desc desc = sw_memory_desc(&own);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    struct sw_range ranges[2] = {{.bytes = SW_KNOWN_BYTES}};
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    if (p->n_buffers == 2) {
        ranges[0].bytes = SW_KNOWN_BYTES / 2;
        ranges[1] =
            (struct sw_range){.mem = mem, .offset = SW_KNOWN_BYTES / 2, .bytes = SW_KNOWN_BYTES - SW_KNOWN_BYTES / 2};
    }
    ranges[0].mem = mem;
    int rc =
        sw_engine_restore(owner, p->id, SW_TRANSFER(ranges, p->n_buffers, .in_place = p->packed, .keep = !p->packed),
                          sw_test_op_done, &op, NULL);
    sw_mem_close(mem, NULL, NULL);
    if (!rc) {
        sw_life_until(&life, &op.done);
        rc = op.outcome.err.code;
    }
    if (!rc)
        ck_assert_msg(sw_known_holds(own.data, (unsigned)(p - sw_known.at)), "region %u has other bytes",
                      (unsigned)(p - sw_known.at));
    if (!p->packed)
        sw_memory_free(&own);
    return rc;
}

static bool is_back(const struct sw_known_region *p) {
    return sw_known_holds((p->packed ? p->from.data : p->to.data) + p->offset, (unsigned)(p - sw_known.at));
}

/* ALL of a batch's restore are back if one of them is said to be. */
static bool is_whole_batch_back(const struct sw_known_region *p) {
    for (unsigned i = 0; i < sw_known.n; i++)
        if (p->batch ? sw_known.at[i].batch == p->batch && !is_back(&sw_known.at[i])
                     : p == &sw_known.at[i] && !is_back(p))
            return false;
    return true;
}

static void check_region(struct sw_owner *owner, struct sw_known_region *p, unsigned kill_at) {
    struct sw_region_info info;
    const unsigned i = (unsigned)(p - sw_known.at);
    int rc = -SW_ENOENT;
    if (!p->id.gen && owner && p->request) {
        struct sw_region_id ids[SW_KNOWN_REGIONS_MAX];
        sw_engine_find_by_request(owner, p->request, ids, p->index + 1);
        p->id = ids[p->index];
    }
    if (p->id.gen) {
        rc = owner ? sw_engine_query(owner, p->id, &info, NULL) : -SW_ENOENT;
        if (rc && tenant_owner && p->durable)
            rc = sw_engine_query(owner = tenant_owner, p->id, &info, NULL);
    }
    const bool is_out = !rc && info.state == SW_REGION_OUT, is_in = !rc && info.state == SW_REGION_IN,
               is_lost = !rc && info.state == SW_REGION_LOST;
#define SAY(condition)                                                                                                 \
    ck_assert_msg(condition, "killed at %u: region %u in stage %d: %s", kill_at, i, p->stage,                          \
                  rc ? "is not there" : sw_region_state_name(info.state))
    switch (p->stage) {
    case SW_KNOWN_NONE:
        break;
    case SW_KNOWN_SPILLING:
        SAY(!is_in && (!is_lost || p->packed));
        SAY(is_lost || is_out || sw_known_holds(p->from.data + p->offset, i)); /* no record: it was not touched */
        SAY(p->packed || sw_known_holds(p->from.data + p->offset, i));
        break;
    case SW_KNOWN_STORED: /* a pack whose end could not be recorded ends with its service */
        SAY(is_out || (is_lost && p->packed && sw_kill_plan->fail_at));
        break;
    case SW_KNOWN_REFUSED:
        SAY(rc && sw_known_holds(p->from.data + p->offset, i));
        break;
    case SW_KNOWN_RESTORING:
        SAY(!rc);
        SAY(!is_lost || p->packed);
        SAY(!is_in || is_whole_batch_back(p));
        break;
    case SW_KNOWN_DROPPING:
        SAY(!is_in && !is_lost);
        break;
    case SW_KNOWN_GONE:
        SAY(rc || is_in);
        break;
    }
    p->is_out = is_out;
    if (is_out)
        SAY(try(owner, p) == 0);
#undef SAY
}

/* Regions whose reply was lost were all recorded, or none. */
static void check_groups(unsigned kill_at) {
    for (unsigned i = 0; i < sw_known.n; i++)
        if (sw_known.at[i].group && sw_known.at[i].stage == SW_KNOWN_SPILLING)
            ck_assert_msg(sw_known.at[i].is_out == sw_known.at[sw_known.at[i].group - 1].is_out,
                          "killed at %u: region %u is %s", kill_at, i,
                          sw_known.at[i].is_out ? "there, the first of its group is not"
                                                : "gone, the first of its group is there");
}

static void check_successor(unsigned kill_at, uint64_t disk_bytes, bool has_hung_up) {
    static const uint8_t none[sizeof sw_known.wire.token];
    struct sw_tier_stats stats;
    sw_world.files = NULL;
    sw_life_open(&life, disk_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_damaged, 0);
    sw_engine_check(life.engine);
    struct sw_owner *owner = memcmp(sw_known.wire.token, none, sizeof none)
                                 ? sw_owner_claim(life.engine, (uint32_t)getuid(), sw_known.wire.token)
                                 : NULL;
    ck_assert(owner || has_hung_up || sw_known.n == 0 || !sw_known.at[0].request || sw_kill_plan->fail_at);
    tenant_owner = NULL;
    ck_assert_int_eq(sw_owners_visit_found(life.engine, on_found, NULL, NULL), 0);
    for (unsigned i = 0; i < sw_known.n; i++) {
        if (has_hung_up && !sw_known.at[i].durable &&
            sw_known.at[i].stage != SW_KNOWN_NONE) /* it may go, and may still be there */
            sw_known.at[i].stage = sw_known.at[i].stage == SW_KNOWN_GONE ? SW_KNOWN_GONE : SW_KNOWN_DROPPING;
        check_region(owner, &sw_known.at[i], kill_at);
    }
    check_groups(kill_at);
    /* Every region is known to a client: after they have dropped them nothing is left. */
    sw_life_close_owner(&life, tenant_owner, false);
    sw_life_close_owner(&life, owner, false);
    (void)sw_owners_close_unclaimed(life.engine, NULL, false, NULL);
    for (struct sw_engine_stats all = {.n_owners = 1}; all.n_owners; sw_engine_stats(life.engine, &all))
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
    life.host->ops->stats(life.host, &stats);
    ck_assert_uint_eq(stats.used_bytes, 0);
    if (life.nvme) {
        life.nvme->ops->stats(life.nvme, &stats);
        ck_assert_uint_eq(stats.used_bytes, 0);
    }
    sw_life_close(&life, NULL, false);
}

/* ---- what is done meanwhile ---- */

static void alone(void) {
    struct sw_known_region *p = sw_known_regions_new(1), *kept = sw_known_regions_new(1),
                           *late = sw_known_regions_new(1);
    sw_known_spill(p, false);
    sw_known_spill(kept, false);
    sw_known_restore(kept, SW_REQ9_KEEP);
    sw_known_restore(p, 0);
    sw_known_spill(late, false);
    sw_known_drop(kept);
    sw_known_restore(late, 0);
}

static void in_batches(void) {
    struct sw_known_region *p = sw_known_regions_new(3), *more = sw_known_regions_new(2);
    sw_known_spill_batch(p, 3);
    sw_known_restore_batch(p, 3);
    sw_known_spill_batch(more, 2);
    sw_known_drop(&more[1]);
}

static void durable(void) {
    struct sw_known_region *p = sw_known_regions_new(1), *other = sw_known_regions_new(1),
                           *third = sw_known_regions_new(1);
    sw_known_spill_durable(p, "one");
    sw_known_spill_durable(other, "two");
    sw_known_restore(p, 0);
    sw_known_restore_batch(p, 1);
    sw_known_spill_durable(third, "three");
    sw_known_drop(other);
    struct sw_msg msg = {.header = {.type = SW_MSG_ADOPT}};
    sw_msg_set_text(msg.u.adopt.name, sizeof msg.u.adopt.name, "one");
    if (p->stage == SW_KNOWN_STORED)
        (void)sw_known_ask(&msg, p, 1, SW_KNOWN_STORED, SW_KNOWN_STORED);
}

static void buffers(void) {
    struct sw_known_region *p = sw_known_regions_new(1), *other = sw_known_regions_new(1);
    sw_known_spill_buffers(p);
    sw_known_spill_buffers(other);
    sw_known_restore_buffers(p);
    sw_known_drop(other);
}

static void in_place(void) {
    struct sw_known_region *p = sw_known_regions_new(1), *other = sw_known_regions_new(1);
    sw_known_spill(p, true);
    sw_known_spill(other, true);
    sw_known_restore(p, 0);
    sw_known_restore(other, 0);
}

static void on_the_disk(void) {
    struct sw_known_region *p = sw_known_regions_new(4);
    sw_known_spill_batch(p, 4);
    sw_known_await_moves();
    sw_known_restore_batch(p, 1);
    sw_known_drop(&p[1]);
    sw_known_spill(sw_known_regions_new(1), false);
    sw_known_await_moves();
}

static void in_packets(void) {
    struct sw_known_region *p = sw_known_regions_new(3), *more = sw_known_regions_new(3),
                           *rest = sw_known_regions_new(2);
    sw_known_build_packet(p, 3, 0, "one");
    sw_known_read_packet(p, 3, 0);
    sw_known_build_packet(more, 3, SW_REQ_ALL, NULL);
    sw_known_read_packet(more, 3, SW_REQ_ALL);
    sw_known_build_packet(rest, 2, 0, NULL);
    sw_known_discard_packet(rest, 2);
}

static void in_open_packets(void) {
    struct sw_known_region *p = sw_known_regions_new(3), *more = sw_known_regions_new(2);
    sw_known_build_open(p, 3, "one");
    sw_known_build_open(more, 2, NULL);
    sw_known_read_open(p, 3);
    sw_known_read_open(more, 2);
}

static const struct scenario {
    void (*run)(void);
    bool has_disk, hangs_up;
    uint32_t version;
} scenarios[] = {{alone, false, false, 9},       {in_batches, false, false, 9},      {durable, false, true, 9},
                 {buffers, false, true, 9},      {in_place, false, false, 9},        {on_the_disk, true, false, 9},
                 {in_packets, false, false, 10}, {in_open_packets, false, false, 10}};
enum { N_SCENARIOS = 8 };

/* Returns whether it was killed before its end, or a record has failed. */
static bool run(const struct scenario *s, unsigned kill_at, unsigned fail_at, bool goes_on) {
    const uint64_t disk_bytes = s->has_disk ? sw_life_disks[1] : 0;
    int pair[2], status;
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    *sw_kill_plan = (struct sw_kill_plan){.kill_at = kill_at, .fail_at = fail_at, .goes_on = goes_on};
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)close(pair[1]);
        SW_ASSERT(fcntl(pair[0], F_SETFL, O_NONBLOCK) == 0);
        sw_killed_service_serve(pair[0], disk_bytes);
    }
    (void)close(pair[0]);
    sw_known.wire = (struct sw_wire){.socket = pair[1]};
    sw_known.n = sw_known.last_mem = sw_known.n_errors = 0;
    sw_known.is_dead = false;
    if (sw_known_answered(sw_wire_hello(&sw_known.wire, s->version)))
        s->run();
    const bool died = sw_known.is_dead;
    if (!s->hangs_up) /* else it is killed while it cleans up, or when it has */
        (void)kill(child, SIGKILL);
    sw_wire_close(&sw_known.wire);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", (unsigned)status);
    check_successor(kill_at, disk_bytes, s->hangs_up && !died);
    for (unsigned i = 0; i < sw_known.n; i++)
        if (sw_known.at[i].index == 0) {
            sw_memory_free(&sw_known.at[i].from);
            sw_memory_free(&sw_known.at[i].to);
        }
    return (kill_at && sw_kill_plan->n_points >= kill_at) || (fail_at && sw_kill_plan->n_records >= fail_at);
}

static void begin(const struct scenario *s) {
    sw_world.high_pct = 3; /* with a disk, all but one region leave memory */
    sw_world.low_pct = 2;
    sw_life_open(&life, s->has_disk ? sw_life_disks[1] : 0); /* makes catalogue and memory */
    sw_life_await_arena(&life);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_life_close(&life, NULL, false);
}

START_TEST(killed_at_each_write) {
    const struct scenario *s = &scenarios[_i];
    begin(s);
    ck_assert(!run(s, 0, 0, false));
    const unsigned n_points = sw_kill_plan->n_points, step = SW_TEST_EVERY;
    ck_assert_uint_gt(n_points, 40);
    for (unsigned at = 1; run(s, at, 0, false); at += step)
        ck_assert_uint_lt(at, 20 * n_points);
}
END_TEST

/* With a disk a write or a move may fail, and no client gets an error. Without a disk a client gets each failure as an
 * error, with one exception. The exception is the end of a pack, which cannot be undone. */
START_TEST(each_record_fails) {
    const struct scenario *s = &scenarios[_i / 2];
    unsigned n_failed = 0, n_seen = 0;
    begin(s);
    for (unsigned at = 1; run(s, 0, at, _i % 2); at++) {
        ck_assert_uint_lt(at, 1000);
        n_failed++;
        n_seen += sw_known.n_errors > 0;
    }
    ck_assert_uint_gt(n_failed, 2);
    ck_assert_msg(s->has_disk || s->run == in_place || n_seen == n_failed, "%u failed, %u were seen", n_failed, n_seen);
    ck_assert_uint_gt(n_seen, 1);
}
END_TEST

static void setup(void) {
    sw_kill_plan = mmap(NULL, sizeof *sw_kill_plan, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(sw_kill_plan != MAP_FAILED);
    sw_world_setup();
}

static void teardown(void) {
    sw_world_teardown();
    (void)munmap(sw_kill_plan, sizeof *sw_kill_plan);
}

int main(void) {
    sw_log_set_level(SW_LOG_ERROR);
    Suite *suite = suite_create("kill_points");
    TCase *tcase = tcase_create("kill_points");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, killed_at_each_write, 0, N_SCENARIOS);
    tcase_add_loop_test(tcase, each_record_fails, 0, 2 * N_SCENARIOS);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
#endif
