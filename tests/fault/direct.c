/* Raw chunks that go directly, several in a step, also beside others that are compressed: whatever fails in the middle
 * of one, the memory or the stored frames are whole and no room is lost. On the host device, said to have a link, by a
 * mover that takes its kernels for slow.
 */
#include "spill/device/guard.h"
#include "spill/mover/mover_state.h"
#include "spill/store/frames.h"
#include "spill/tier/host/tier_host.h"
#include "spill/worker/transfer.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <time.h>

#define MIB ((uint64_t)1 << 20)
/* Long enough for kernels to hash it, had the device any; 4 steps of 15 or 16 chunks. */
#define CHUNK_BYTES (2 * MIB)
#define REGION_BYTES (61 * CHUNK_BYTES + 12345)
enum { N_SLOTS = 2, N_STEPS = 4 };

static struct {
    struct sw_device *device; /* a faulty one */
    struct sw_device_ops ops;
    const struct sw_device_info *(*real_info)(const struct sw_device *device);
    struct sw_device_info info;
    struct sw_tier *tier, *nvme;
    struct sw_tier_ops tier_ops;
    int (*real_reserve)(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err);
    int (*real_commit)(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err);
    unsigned reserve_fails;  /* the n-th reserve of host memory from now (1 = next) finds no room; 0: none */
    unsigned commit_fails;   /* likewise, the n-th commit */
    struct sw_stored others; /* host memory that is taken */
    bool others_leave;       /* with the next reserve */
    struct sw_nvme_folder folder;
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    struct sw_run_memory mem;
    unsigned n_unfinished;
} rig;
static struct sw_memory from, to;

static const struct sw_device_info *linked_info(const struct sw_device *device) {
    rig.info = *rig.real_info(device);
    rig.info.has_link = true;
    return &rig.info;
}

static void on_finished(struct sw_run *run, void *arg) {
    (void)run, (void)arg;
    rig.n_unfinished--;
}

static void on_event(void *arg) {
    (void)arg;
}

static void open_device(void) {
    const struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = N_SLOTS, .chunk_bytes = CHUNK_BYTES};
    struct sw_device *inner;
    ck_assert_int_eq(sw_fixture_open_device(&inner, &config, NULL), 0);
    ck_assert_int_eq(sw_device_faulty_open(&rig.device, inner, NULL), 0);
    rig.ops = *rig.device->ops;
    rig.real_info = rig.ops.info;
    rig.ops.info = linked_info;
    rig.device->ops = &rig.ops;
}

static int reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    if (rig.reserve_fails && --rig.reserve_fails == 0)
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "injected: no room");
    const int rc = rig.real_reserve(tier, bytes, ret, err);
    if (rig.others_leave)
        sw_stored_release(&rig.others);
    return rc;
}

static int commit(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err) {
    if (rig.commit_fails && --rig.commit_fails == 0)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_REQUEST, "injected: no commit");
    return rig.real_commit(tier, stored, err);
}

static void open_host_tier(uint64_t bytes) {
    const struct sw_tier_host_config host = {
        .capacity_bytes = bytes, .slab_bytes = 2 * MIB, .devices = &rig.device, .n_devices = 1};
    ck_assert_int_eq(sw_tier_host_open(&rig.tier, &host, NULL), 0);
    rig.tier_ops = *rig.tier->ops;
    rig.real_reserve = rig.tier_ops.reserve;
    rig.tier_ops.reserve = reserve;
    rig.real_commit = rig.tier_ops.commit;
    rig.tier_ops.commit = commit;
    rig.tier->ops = &rig.tier_ops;
}

/* nvme_bytes 0: no disk. */
static void rig_open(uint64_t host_bytes, uint64_t nvme_bytes, uint64_t staging_bytes) {
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event};
    memset(&rig, 0, sizeof rig);
    open_device();
    open_host_tier(host_bytes);
    if (nvme_bytes) {
        rig.folder = sw_nvme_folder_new();
        const struct sw_tier_nvme_config nvme = {.directory = rig.folder.path,
                                                 .capacity_bytes = nvme_bytes,
                                                 .file_bytes = nvme_bytes,
                                                 .queue_depth = 16,
                                                 .method = SW_TIER_NVME_AUTO};
        rig.nvme = sw_nvme_open(&nvme);
    }
    struct sw_tiers tiers = {.at = {rig.tier, rig.nvme}, .n = rig.nvme ? 2 : 1};
    ck_assert_int_eq(sw_tiers_settle(&tiers, NULL), 0);
    sw_placement_init(&rig.place, &tiers, staging_bytes);
    sw_tier_sink_init(&rig.sink, &rig.place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&rig.mover, rig.device, &rig.sink.sink, &host, NULL), 0);
}

static uint64_t used_bytes(struct sw_tier *tier) {
    struct sw_tier_stats stats;
    tier->ops->stats(tier, &stats);
    return stats.used_bytes;
}

/* Other tenants have all but less than a block of the host memory for stored frames. */
static void fill_host_memory(void) {
    const uint64_t bytes = (rig.place.limit_bytes[0] - used_bytes(rig.tier)) / 4096 * 4096;
    ck_assert_int_eq(rig.tier->ops->reserve(rig.tier, bytes, &rig.others, NULL), 0);
}

static void rig_close(void) {
    sw_mover_free(rig.mover);
    sw_tier_sink_fini(&rig.sink);
    ck_assert_uint_eq(used_bytes(rig.tier), 0);
    rig.tier->ops->close(rig.tier);
    if (rig.nvme) {
        ck_assert_uint_eq(used_bytes(rig.nvme), 0);
        rig.nvme->ops->close(rig.nvme);
        sw_nvme_folder_free(&rig.folder);
    }
    rig.device->ops->close(rig.device);
}

/* Once for all tests of a case, which only read it: filling it takes longer than most of them. */
static void fill(enum sw_content content) {
    from = sw_memory_new(REGION_BYTES);
    sw_content_fill(from.data, REGION_BYTES, content, 7);
}

static void fill_random(void) {
    fill(SW_CONTENT_RANDOM);
}

static void fill_text(void) {
    fill(SW_CONTENT_TEXT);
}

static void free_content(void) {
    sw_memory_free(&from);
}

static void setup(void) {
    to = sw_memory_new(REGION_BYTES);
}

static void teardown(void) {
    sw_memory_free(&to);
}

/* Sets rates as measured beside a busy GPU, and forgets the last job's measurements. */
static void seem_busy(void) {
    const struct sw_meter fast = {.bytes = 55e9, .us = 1e6}, slow = {.bytes = 1e9, .us = 1e6},
                          late = {.bytes = 48e9, .us = 1e6};
    for (int class = 0; class < SW_COST_CLASSES; class ++) {
        struct sw_cost_class *c = &rig.mover->planner.costs[class];
        *c = (struct sw_cost_class){.link_out = fast};
        for (int codec = 0; codec < SW_CODEC_NR; codec++)
            c->encode[codec] = c->restore[codec] = codec == SW_CODEC_RAW ? slow : late;
    }
}

/* quota: of a spill, NULL: none; frames: of a restore. */
static void add(struct sw_one_run *job, enum sw_operation operation, struct sw_quota *quota, struct sw_frames *frames) {
    const bool is_out = operation == SW_OP_SPILL;
    seem_busy();
    rig.mem = (struct sw_run_memory){.desc = sw_memory_desc(is_out ? &from : &to), .once = true};
    sw_one_run_init(job, operation, &rig.mem, REGION_BYTES, frames);
    job->job.quota = quota;
    rig.n_unfinished++;
    sw_mover_add(rig.mover, &job->job.run);
}

static int finish(const struct sw_one_run *job) {
    const struct timespec rest = {.tv_nsec = 100000};
    while (rig.n_unfinished > 0)
        if (!sw_mover_step(rig.mover, false) && !sw_mover_wait(rig.mover)) {
            ck_assert_msg(job->job.run.n_slots + job->job.run.n_in_sink > 0,
                          "the run has not ended, and nothing is under way");
            (void)nanosleep(&rest, NULL);
        }
    sw_mem_desc_fini(&rig.mem.desc);
    return job->job.run.outcome.err.code;
}

static int spill_of_tenant(struct sw_quota *quota, struct sw_one_run *ret) {
    add(ret, SW_OP_SPILL, quota, NULL);
    return finish(ret);
}

static int spill(struct sw_one_run *ret) {
    return spill_of_tenant(NULL, ret);
}

static int restore(struct sw_frames *frames) {
    struct sw_one_run job;
    add(&job, SW_OP_RESTORE, NULL, frames);
    return finish(&job);
}

static void check_restores(struct sw_frames *frames) {
    memset(to.data, 0xEE, REGION_BYTES);
    ck_assert_int_eq(restore(frames), 0);
    ck_assert_int_eq(memcmp(to.data, from.data, REGION_BYTES), 0);
}

/* The region is whole, and is the last thing that the rig holds. */
static void end(struct sw_frames *frames) {
    check_restores(frames);
    sw_frames_free(frames);
    rig_close();
}

static void advance(void) {
    if (!sw_mover_step(rig.mover, false))
        ck_assert(sw_mover_wait(rig.mover));
}

/* A spill has taken from its quota exactly the bytes that it has stored. */
static void check_charged(const struct sw_quota *quota, const struct sw_one_run *job) {
    ck_assert_uint_eq(atomic_load(&quota->bytes), job->job.charged_bytes);
    ck_assert_uint_eq(job->job.charged_bytes, job->job.run.outcome.stored_bytes);
}

static const char *const fault_names[] = {"at once", "late", "done"};
enum { BY_TURNS = -1 };

/* One after the other in one way; or each in one of the three, the first ones one by one, of the others, which are
 * alike, some. Returns which of them it was. */
static enum sw_fault arm(const char *step, unsigned nth, int fault) {
    const enum sw_fault way = (enum sw_fault)(fault == BY_TURNS ? (int)(nth % 3) : fault);
    sw_device_faulty_arm(rig.device, step, nth, -SW_EGPU, way);
    return way;
}

static unsigned next_step(unsigned nth, int fault) {
    return fault == BY_TURNS && nth >= 6 ? nth + 4 + SW_TEST_EVERY : nth + 1; /* no multiple of 3 */
}

static void disarm(const char *step) {
    sw_device_faulty_arm(rig.device, step, 0, 0, SW_FAULT_AT_ONCE);
}

/* Makes the nth step of that name fail, for each nth in turn, until a spill has no such step and succeeds: *ret.
 * Returns this nth. */
static unsigned fail_spills(const char *step, int fault, struct sw_one_run *ret) {
    unsigned nth = 1;
    for (;; nth = next_step(nth, fault)) {
        const enum sw_fault way = arm(step, nth, fault);
        if (spill(ret) == 0)
            break;
        ck_assert_msg(ret->job.run.outcome.err.code == -SW_EGPU, "%s: %s", fault_names[way],
                      ret->job.run.outcome.err.msg);
        ck_assert_ptr_null(ret->job.run.frames);
        ck_assert_uint_eq(used_bytes(rig.tier), 0);
    }
    disarm(step);
    return nth;
}

static unsigned fail_restores(const char *step, int fault, struct sw_frames *frames) {
    unsigned nth = 1;
    int rc;
    for (;; nth = next_step(nth, fault)) {
        (void)arm(step, nth, fault);
        rc = restore(frames);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_EGPU);
    }
    disarm(step);
    return nth;
}

START_TEST(test_any_step_of_a_direct_spill_fails) {
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_uint_eq(fail_spills("spill_raw", _i, &job), N_STEPS + 1);
    ck_assert_uint_eq(job.job.run.outcome.codec_raw_bytes[SW_CODEC_RAW], REGION_BYTES);
    ck_assert_int_eq(atomic_load(&job.job.signals.phase), SW_PHASE_STORING);
    end(job.job.run.frames);
}
END_TEST

START_TEST(test_any_step_of_a_direct_restore_fails) {
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_int_eq(spill(&job), 0);
    ck_assert_uint_eq(fail_restores("restore_raw", _i, job.job.run.frames), N_STEPS + 1);
    end(job.job.run.frames);
}
END_TEST

/* Any chunk of a step: the region is bad. */
/* Regions of an earlier version's clients are restored into memory without pages, all others are not. */
START_TEST(test_a_direct_restore_fills_holes_only_if_it_may) {
    struct sw_one_run job, back;
    if (sw_fixture_describe != sw_memory_memfd_desc || !sw_guard_take())
        return;
    sw_guard_give_back();
    rig_open(200 * MIB, 0, 0);
    ck_assert_int_eq(spill(&job), 0);
    for (unsigned may = 0; may < 2; may++) {
        ck_assert_int_eq(fallocate(to.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, REGION_BYTES), 0);
        add(&back, SW_OP_RESTORE, NULL, job.job.run.frames);
        back.request.may_fill_holes = may;
        ck_assert_int_eq(finish(&back), may ? 0 : -SW_EUNALLOCATED);
    }
    ck_assert_int_eq(memcmp(to.data, from.data, REGION_BYTES), 0);
    end(job.job.run.frames);
}
END_TEST

START_TEST(test_a_damaged_chunk_fails_the_region) {
    static const size_t chunks[] = {0, 20, 61};
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_int_eq(spill(&job), 0);
    for (size_t i = 0; i < sizeof chunks / sizeof chunks[0]; i++) {
        const struct sw_stored *stored = &job.job.run.frames->stored[chunks[i]];
        uint8_t *byte = (uint8_t *)stored->extents[0].memory + job.job.run.frames->layouts[chunks[i]].data_offset + 100;
        *byte ^= 1;
        ck_assert_int_eq(restore(job.job.run.frames), -SW_ECHECKSUM);
        *byte ^= 1;
    }
    end(job.job.run.frames);
}
END_TEST

START_TEST(test_a_commit_fails_in_the_middle_of_a_step) {
    static const unsigned nths[] = {1, 2, 20};
    for (size_t i = 0; i < sizeof nths / sizeof nths[0]; i++) {
        struct sw_one_run job;
        rig_open(200 * MIB, 0, 0);
        rig.commit_fails = nths[i];
        ck_assert_int_eq(spill(&job), -SW_EIO);
        ck_assert_ptr_null(job.job.run.frames);
        rig_close();
    }
}
END_TEST

START_TEST(test_a_full_tier_fails_a_spill_in_the_middle_of_a_step) {
    struct sw_quota quota = {0};
    struct sw_one_run job;
    rig_open(70 * MIB, 0, 0);
    ck_assert_int_eq(spill_of_tenant(&quota, &job), -SW_ENOSPACE);
    ck_assert_ptr_null(job.job.run.frames);
    ck_assert_uint_gt(job.job.charged_bytes, 0);
    ck_assert_uint_eq(atomic_load(&quota.bytes), job.job.charged_bytes); /* the loop gives it back */
    rig_close();
}
END_TEST

/* A chunk without room is left to the next step, and charged only there. */
START_TEST(test_a_step_is_cut_where_there_is_no_room) {
    static const unsigned nths[] = {2, 5, 15};
    for (size_t i = 0; i < sizeof nths / sizeof nths[0]; i++) {
        struct sw_quota quota = {.max_bytes = 2 * REGION_BYTES};
        struct sw_one_run job;
        rig_open(200 * MIB, 0, 0);
        rig.reserve_fails = nths[i];
        ck_assert_int_eq(spill_of_tenant(&quota, &job), 0);
        ck_assert_uint_eq(rig.reserve_fails, 0);
        check_charged(&quota, &job);
        end(job.job.run.frames);
    }
}
END_TEST

/* Frames without room in host memory go on to the disk, one by one, and come back one by one. */
START_TEST(test_a_step_ends_where_the_disk_begins) {
    struct sw_one_run job;
    rig_open(96 * MIB, 160 * MIB, 48 * MIB);
    ck_assert_int_eq(spill(&job), 0);
    ck_assert_uint_gt(used_bytes(rig.nvme), 0);
    ck_assert_uint_gt(used_bytes(rig.tier), 0);
    ck_assert_uint_le(used_bytes(rig.tier), rig.place.limit_bytes[0]);
    check_restores(job.job.run.frames);
    for (int fault = SW_FAULT_AT_ONCE; fault <= SW_FAULT_DONE; fault++) {
        sw_device_faulty_arm(rig.device, "restore_raw", 3, -SW_EGPU, (enum sw_fault)fault);
        ck_assert_int_eq(restore(job.job.run.frames), -SW_EGPU);
    }
    end(job.job.run.frames);
}
END_TEST

/* A frame for the disk goes alone, although other tenants have left room for the chunks behind it by then. */
START_TEST(test_a_frame_for_the_disk_goes_alone) {
    struct sw_one_run job;
    rig_open(200 * MIB, 160 * MIB, 48 * MIB);
    fill_host_memory();
    rig.others_leave = true;
    ck_assert_int_eq(spill(&job), 0);
    ck_assert(sw_stored_is_away(&job.job.run.frames->stored[0]));
    ck_assert(!sw_stored_is_away(&job.job.run.frames->stored[1]));
    end(job.job.run.frames);
}
END_TEST

/* Ends the running steps, and begins no others. */
START_TEST(test_a_spill_is_canceled_in_the_middle_of_a_step) {
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    add(&job, SW_OP_SPILL, NULL, NULL);
    while (job.job.run.n_dealt == 0)
        advance();
    ck_assert_uint_gt(job.job.run.n_dealt, N_SLOTS);
    sw_mover_cancel(rig.mover, &job.job.signals);
    ck_assert_int_eq(finish(&job), -SW_ECANCELED);
    ck_assert_ptr_null(job.job.run.frames);
    rig_close();
}
END_TEST

START_TEST(test_a_restore_is_canceled_in_the_middle_of_a_step) {
    struct sw_one_run spilled, job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_int_eq(spill(&spilled), 0);
    add(&job, SW_OP_RESTORE, NULL, spilled.job.run.frames);
    while (job.job.run.n_dealt == 0)
        advance();
    sw_mover_cancel(rig.mover, &job.job.signals);
    ck_assert_int_eq(finish(&job), -SW_ECANCELED);
    end(spilled.job.run.frames);
}
END_TEST

/* ---- beside chunks that are compressed ---- */

static const char *const mixed_steps[] = {"make_plan", "spill_raw", "encode", "store", "restore_raw", "load", "decode"};
enum { N_SPILL_STEPS = 4, N_MIXED_STEPS = sizeof mixed_steps / sizeof mixed_steps[0] };

static void ck_is_mixed(const struct sw_one_run *job) {
    const uint64_t raw_bytes = job->job.run.outcome.codec_raw_bytes[SW_CODEC_RAW];
    uint64_t coded_bytes = 0;
    ck_assert_int_eq(job->job.run.outcome.reason, SW_COST_PARTIAL);
    for (unsigned codec = SW_CODEC_RAW + 1; codec < SW_CODEC_NR; codec++)
        coded_bytes += job->job.run.outcome.codec_raw_bytes[codec];
    ck_assert_uint_gt(raw_bytes, 0);
    ck_assert_uint_gt(coded_bytes, 0);
    ck_assert_uint_eq(raw_bytes + coded_bytes, REGION_BYTES);
}

START_TEST(test_any_step_of_a_mixed_spill_fails) {
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_uint_gt(fail_spills(mixed_steps[_i], BY_TURNS, &job), 1);
    ck_is_mixed(&job);
    end(job.job.run.frames);
}
END_TEST

START_TEST(test_any_step_of_a_mixed_restore_fails) {
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_int_eq(spill(&job), 0);
    ck_is_mixed(&job);
    ck_assert_uint_gt(fail_restores(mixed_steps[_i], BY_TURNS, job.job.run.frames), 1);
    end(job.job.run.frames);
}
END_TEST

/* While it is being planned, too: chunks are under way then. */
START_TEST(test_a_mixed_spill_is_canceled) {
    rig_open(200 * MIB, 0, 0);
    for (size_t n_dealt = 1; n_dealt < 60; n_dealt += 15) {
        struct sw_one_run job;
        add(&job, SW_OP_SPILL, NULL, NULL);
        while (job.job.run.n_dealt < n_dealt)
            advance();
        sw_mover_cancel(rig.mover, &job.job.signals);
        ck_assert_int_eq(finish(&job), -SW_ECANCELED);
        ck_assert_ptr_null(job.job.run.frames);
        ck_assert_uint_eq(used_bytes(rig.tier), 0);
    }
    rig_close();
}
END_TEST

static void step_until_settled(void) {
    for (int i = 0; i < 1000; i++)
        if (!sw_mover_step(rig.mover, false) && sw_mover_has_steps(rig.mover))
            ck_assert(sw_mover_wait(rig.mover));
}

/* A worker polls for running steps, not for room in host memory, which other workers take and release. A waiting job is
 * not charged. */
START_TEST(test_no_job_polls_for_room) {
    struct sw_quota quota = {0};
    struct sw_one_run job;
    rig_open(300 * MIB, 400 * MIB, 48 * MIB);
    add(&job, SW_OP_SPILL, &quota, NULL);
    while (job.job.run.course.reason != SW_COST_PARTIAL)
        advance();
    fill_host_memory();
    atomic_fetch_add(&rig.place.out_bytes, rig.place.transit_bytes); /* another device's frames are on their way */
    step_until_settled();
    ck_assert(job.job.run.course.is_mixed && job.job.run.n_done < job.job.run.frames->n_chunks);
    ck_assert(!sw_mover_has_steps(rig.mover));
    const unsigned long long charged_bytes = atomic_load(&quota.bytes);
    step_until_settled();
    ck_assert_uint_eq(atomic_load(&quota.bytes), charged_bytes);
    atomic_fetch_sub(&rig.place.out_bytes, rig.place.transit_bytes);
    ck_assert_int_eq(finish(&job), 0);
    sw_stored_release(&rig.others);
    check_charged(&quota, &job);
    end(job.job.run.frames);
}
END_TEST

/* A tenant's quota is room, too. */
START_TEST(test_a_quota_has_room_for_compressed_chunks_only) {
    struct sw_quota quota = {.max_bytes = REGION_BYTES / 2};
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    ck_assert_int_eq(spill_of_tenant(&quota, &job), 0);
    ck_assert_int_eq(job.job.run.outcome.reason, SW_COST_ROOM);
    ck_assert_uint_eq(job.job.run.outcome.codec_raw_bytes[SW_CODEC_RAW], 0);
    end(job.job.run.frames);
}
END_TEST

/* All chunks have gone before the plan is there: the outcome says why they went as they are. */
START_TEST(test_a_plan_comes_too_late) {
    struct sw_one_run job;
    rig_open(200 * MIB, 0, 0);
    sw_device_faulty_arm(rig.device, "make_plan", 1, -SW_EAGAIN, SW_FAULT_LATE);
    add(&job, SW_OP_SPILL, NULL, NULL);
    while (!job.job.run.frames || job.job.run.n_done < job.job.run.frames->n_chunks)
        (void)sw_mover_step(rig.mover, false);
    sw_device_faulty_release(rig.device);
    ck_assert_int_eq(finish(&job), 0);
    ck_assert_int_eq(job.job.run.outcome.reason, SW_COST_ENCODER);
    ck_assert_uint_eq(job.job.run.outcome.codec_raw_bytes[SW_CODEC_RAW], REGION_BYTES);
    ck_assert_uint_gt(job.job.run.outcome.planned_us, 0);
    end(job.job.run.frames);
}
END_TEST

/* Where there is no room for raw chunks all are compressed, and where there is none for that either nothing stays. */
START_TEST(test_no_room_for_a_mixed_spill) {
    struct sw_one_run job;
    rig_open(30 * MIB, 0, 0);
    ck_assert_int_eq(spill(&job), 0);
    ck_assert_int_eq(job.job.run.outcome.reason, SW_COST_ROOM);
    ck_assert_uint_eq(job.job.run.outcome.codec_raw_bytes[SW_CODEC_RAW], 0);
    end(job.job.run.frames);
    rig_open(6 * MIB, 0, 0);
    ck_assert_int_eq(spill(&job), -SW_ENOSPACE);
    ck_assert_ptr_null(job.job.run.frames);
    rig_close();
}
END_TEST

/* Raw, they would go on to the disk, compressed they stay. */
START_TEST(test_room_for_compressed_chunks_only_beside_a_disk) {
    struct sw_one_run job;
    rig_open(108 * MIB, 160 * MIB, 48 * MIB);
    ck_assert_int_eq(spill(&job), 0);
    ck_assert_int_eq(job.job.run.outcome.reason, SW_COST_ROOM);
    ck_assert_uint_eq(job.job.run.outcome.codec_raw_bytes[SW_CODEC_RAW], 0);
    ck_assert_uint_eq(used_bytes(rig.nvme), 0);
    end(job.job.run.frames);
}
END_TEST

/* ---- short regions, in one step ---- */

enum { N_SHORT = 8, SHORT_BYTES = 96 << 10 };

/* Sets rates as if encoding had been slow in groups. No rates of chunks are known. */
static void groups_seem_slow(void) {
    const struct sw_meter fast = {.bytes = 55e9, .us = 1e6}, slow = {.bytes = 1e9, .us = 1e6};
    for (int class = 0; class < SW_COST_CLASSES; class ++) {
        struct sw_cost_class *c = &rig.mover->planner.group_costs[class];
        *c = (struct sw_cost_class){.link_out = fast};
        for (int codec = 0; codec < SW_CODEC_NR; codec++)
            c->encode[codec] = c->restore[codec] = codec == SW_CODEC_RAW ? fast : slow;
    }
}

/* Runs short jobs in one memory, which stays mapped until all have ended. */
static void run_short(struct sw_one_run *jobs, const struct sw_memory *memory) {
    rig.mem = (struct sw_run_memory){.desc = sw_memory_desc(memory)};
    for (unsigned i = 0; i < N_SHORT; i++) {
        jobs[i].buffer.offset = (uint64_t)i * SHORT_BYTES;
        rig.n_unfinished++;
        sw_mover_add(rig.mover, &jobs[i].job.run);
    }
    for (unsigned i = 0; i < N_SHORT; i++)
        ck_assert_int_eq(finish(&jobs[i]), 0);
    sw_mover_unmap(rig.mover, &rig.mem);
}

/* Back they come, and are gone. */
static void end_short(const struct sw_one_run *spills) {
    struct sw_one_run restores[N_SHORT];
    for (unsigned i = 0; i < N_SHORT; i++)
        sw_one_run_init(&restores[i], SW_OP_RESTORE, &rig.mem, SHORT_BYTES, spills[i].job.run.frames);
    run_short(restores, &to);
    ck_assert_int_eq(memcmp(to.data, from.data, (size_t)N_SHORT * SHORT_BYTES), 0);
    for (unsigned i = 0; i < N_SHORT; i++)
        sw_frames_free(spills[i].job.run.frames);
    rig_close();
}

/* A group that is not worth encoding is stored raw, by the rates of groups, except if its tenant has room for
 * compressed frames only. */
START_TEST(test_a_quota_has_room_for_a_compressed_group_only) {
    const bool is_short = _i == 1;
    struct sw_quota quota = {.max_bytes = is_short ? N_SHORT * SHORT_BYTES / 2 : 0};
    struct sw_one_run jobs[N_SHORT];
    rig_open(200 * MIB, 0, 0);
    groups_seem_slow();
    for (unsigned i = 0; i < N_SHORT; i++) {
        sw_one_run_init(&jobs[i], SW_OP_SPILL, &rig.mem, SHORT_BYTES, NULL);
        jobs[i].job.quota = &quota;
    }
    run_short(jobs, &from);
    for (unsigned i = 0; i < N_SHORT; i++) {
        ck_assert_int_eq(jobs[i].job.run.outcome.reason, is_short ? SW_COST_ROOM : SW_COST_ENCODER);
        ck_assert_uint_eq(jobs[i].job.run.outcome.codec_raw_bytes[SW_CODEC_RAW], is_short ? 0 : SHORT_BYTES);
    }
    end_short(jobs);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("direct");
    TCase *tcase = tcase_create("direct");
    tcase_add_unchecked_fixture(tcase, fill_random, free_content);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_any_step_of_a_direct_spill_fails, 0, 3);
    tcase_add_loop_test(tcase, test_any_step_of_a_direct_restore_fails, 0, 3);
    tcase_add_test(tcase, test_a_damaged_chunk_fails_the_region);
    tcase_add_test(tcase, test_a_direct_restore_fills_holes_only_if_it_may);
    tcase_add_test(tcase, test_a_commit_fails_in_the_middle_of_a_step);
    tcase_add_test(tcase, test_a_full_tier_fails_a_spill_in_the_middle_of_a_step);
    tcase_add_test(tcase, test_a_step_is_cut_where_there_is_no_room);
    tcase_add_test(tcase, test_a_step_ends_where_the_disk_begins);
    tcase_add_test(tcase, test_a_frame_for_the_disk_goes_alone);
    tcase_add_test(tcase, test_a_spill_is_canceled_in_the_middle_of_a_step);
    tcase_add_test(tcase, test_a_restore_is_canceled_in_the_middle_of_a_step);
    suite_add_tcase(suite, tcase);
    TCase *mixed = tcase_create("mixed");
    tcase_add_unchecked_fixture(mixed, fill_text, free_content);
    tcase_add_checked_fixture(mixed, setup, teardown);
    tcase_add_loop_test(mixed, test_any_step_of_a_mixed_spill_fails, 0, N_SPILL_STEPS);
    tcase_add_loop_test(mixed, test_any_step_of_a_mixed_restore_fails, N_SPILL_STEPS, N_MIXED_STEPS);
    tcase_add_test(mixed, test_a_mixed_spill_is_canceled);
    tcase_add_test(mixed, test_no_job_polls_for_room);
    tcase_add_test(mixed, test_a_quota_has_room_for_compressed_chunks_only);
    tcase_add_test(mixed, test_a_plan_comes_too_late);
    tcase_add_test(mixed, test_no_room_for_a_mixed_spill);
    tcase_add_test(mixed, test_room_for_compressed_chunks_only_beside_a_disk);
    suite_add_tcase(suite, mixed);
    TCase *groups = tcase_create("groups");
    tcase_add_unchecked_fixture(groups, fill_text, free_content);
    tcase_add_checked_fixture(groups, setup, teardown);
    tcase_add_loop_test(groups, test_a_quota_has_room_for_a_compressed_group_only, 0, 2);
    suite_add_tcase(suite, groups);
    return sw_test_run(suite, CK_FORK);
}
