/* Frames that clients make and decode, on the engine: which of the device's steps they need, and what is left when one
 * of these fails. Also run on the CUDA device, whose kernels are counted. */
#include "codec/plan/planning.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "spill/read.h"
#include "tests/lib/content.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include "tests/lib/pair_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>

enum {
    CHUNK = 64 << 10,
    N = 5,
    RAW_BYTES = (N - 1) * CHUNK + 5000,
    ROOM = CHUNK + (32 << 10), /* for a frame */
    MEMORY_BYTES = N * ROOM
};

static uint8_t raw[RAW_BYTES];
static uint64_t frame_bytes[N];
static bool follow; /* frames lie in steps, and not at multiples of ROOM */

static uint64_t place(unsigned i) {
    uint64_t at = 0;
    for (unsigned k = 0; k < i; k++)
        at += follow ? sw_frame_step_bytes(frame_bytes[k]) : ROOM;
    return at;
}

static uint64_t chunk_bytes(unsigned i) {
    return i < N - 1 ? CHUNK : RAW_BYTES - (N - 1) * CHUNK;
}

/* The client's codec: frames side by side in its memory. */
static void encode(enum sw_content content) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    sw_content_fill(raw, RAW_BYTES, content, 7);
    sw_plan_make(&plan, SW_VALUE_NONE, raw, RAW_BYTES, sample);
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(sw_codec_encode(&plan, raw + i * CHUNK, chunk_bytes(i), sw_pair.from.data + place(i), ROOM,
                                         &frame_bytes[i], NULL),
                         0);
}

static void open_with(const struct sw_fixture_config *config) {
    sw_pair_open(config, MEMORY_BYTES);
    encode(SW_CONTENT_TEXT);
}

static void setup(void) {
    open_with(NULL);
}

static void teardown(void) {
    sw_pair_close();
}

/* ---- operations ---- */

static struct sw_build *begin(void) {
    static const struct sw_build_buffer_config buffer = {RAW_BYTES, CHUNK, SW_VALUE_NONE};
    struct sw_build *build = NULL;
    ck_assert_int_eq(
        sw_build_begin(sw_pair.f.owner, &(struct sw_build_config){.buffers = &buffer, .n_buffers = 1}, &build, NULL),
        0);
    return build;
}

static void fill_ranges(struct sw_range ranges[N], struct sw_mem *mem) {
    for (unsigned i = 0; i < N; i++)
        ranges[i] = (struct sw_range){.mem = mem,
                                      .offset = place(i),
                                      .bytes = chunk_bytes(i),
                                      .frame_bytes = mem == sw_pair.from_mem ? frame_bytes[i] : ROOM,
                                      .at = i * (uint64_t)CHUNK};
}

static bool is_alone; /* frames are moved one after the other, and not several by one copy */

/* Appends all frames, as a packet of frames is handed to the engine. */
static int append_all(struct sw_build *build, struct sw_test_op *op) {
    struct sw_range ranges[N];
    const unsigned n = is_alone ? 1 : N;
    int rc = 0;
    fill_ranges(ranges, sw_pair.from_mem);
    for (unsigned i = 0; !rc && i < N; i += n) {
        *op = (struct sw_test_op){0};
        sw_engine_hold(sw_pair.f.engine, false);
        ck_assert_int_eq(sw_build_append(build, &ranges[i], n, sw_test_op_done, op, NULL), 0);
        sw_engine_release(sw_pair.f.engine);
        rc = sw_pair_wait(op);
    }
    return rc;
}

static int commit(struct sw_build *build, struct sw_test_op *op) {
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_build_commit(build, 7, 3, sw_test_op_done, op, NULL), 0);
    return sw_pair_wait(op);
}

/* Ends a build whose append has failed with rc, or commits it. */
static int abort_or_commit(struct sw_build *build, int rc, struct sw_test_op *op) {
    if (!rc)
        return commit(build, op);
    *op = (struct sw_test_op){0};
    ck_assert_int_eq(sw_build_abort(build, sw_test_op_done, op, NULL), 0);
    return sw_pair_wait(op);
}

static struct sw_region_id store(void) {
    struct sw_test_op op;
    struct sw_build *build = begin();
    ck_assert_int_eq(append_all(build, &op), 0);
    ck_assert_int_eq(commit(build, &op), 0);
    ck_assert_str_eq(op.outcome.coder, "client");
    return op.id;
}

/* All frames of a region, to the other memory. */
static int fetch_as(struct sw_region_id id, bool is_disputed) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    struct sw_range ranges[N];
    struct sw_test_op op = {0}, end = {0};
    struct sw_read *read = NULL;
    unsigned n = 0;
    int rc = 0;
    memset(sw_pair.to.data, 0, MEMORY_BYTES);
    fill_ranges(ranges, sw_pair.to_mem);
    for (unsigned i = 0; i < N; i++)
        ranges[i].is_disputed = is_disputed;
    ck_assert_int_eq(sw_read_begin(sw_pair.f.owner, id, &read, infos, &n, NULL), 0);
    for (unsigned i = 0, step = is_alone ? 1 : N; !rc && i < N; i += step) {
        op = (struct sw_test_op){0};
        sw_engine_hold(sw_pair.f.engine, false);
        ck_assert_int_eq(sw_read_chunks(read, &ranges[i], step, sw_test_op_done, &op, NULL), 0);
        sw_engine_release(sw_pair.f.engine);
        rc = sw_pair_wait(&op);
    }
    ck_assert_int_eq(sw_read_end(read, true, sw_test_op_done, &end, NULL), 0);
    ck_assert_int_eq(sw_pair_wait(&end), rc);
    return rc;
}

static int fetch(struct sw_region_id id) {
    return fetch_as(id, false);
}

static void ck_fetched(void) {
    for (unsigned i = 0; i < N; i++)
        ck_assert(memcmp(sw_pair.to.data + place(i), sw_pair.from.data + place(i), frame_bytes[i]) == 0);
}

/* Restores a region by the daemon's codec, and compares. */
static void ck_restored(struct sw_region_id id) {
    struct sw_test_op op = {0};
    const struct sw_range range = {.mem = sw_pair.to_mem, .bytes = RAW_BYTES};
    ck_assert_int_eq(sw_engine_restore(sw_pair.f.owner, id, SW_TRANSFER(&range, 1), sw_test_op_done, &op, NULL), 0);
    ck_assert_int_eq(sw_pair_wait(&op), 0);
    ck_assert(memcmp(sw_pair.to.data, raw, RAW_BYTES) == 0);
}

static const struct sw_region *region_of(struct sw_region_id id) {
    return &sw_pair.f.engine->store.regions.regions[id.slot];
}

static void ck_left(unsigned n_regions) {
    struct sw_engine_stats stats;
    sw_engine_check(sw_pair.f.engine);
    sw_engine_stats(sw_pair.f.engine, &stats);
    ck_assert_uint_eq(stats.n_regions, n_regions);
    if (n_regions == 0)
        ck_assert_uint_eq(stats.tiers[0].used_bytes, 0);
}

/* ---- kernels ---- */

extern struct sw_fake_cuda *sw_fake_cuda __attribute__((weak));

/* Launches so far; 0 on the host device. */
static int count_kernels(void) {
    static const enum sw_fake_call kernels[] = {
        SW_FAKE_sw_gpu_wake_async,         SW_FAKE_sw_gpu_sample_async,       SW_FAKE_sw_gpu_probe_async,
        SW_FAKE_sw_gpu_train_async,        SW_FAKE_sw_gpu_encode_async,       SW_FAKE_sw_gpu_decode_async,
        SW_FAKE_sw_gpu_encode_batch_async, SW_FAKE_sw_gpu_decode_batch_async, SW_FAKE_sw_gpu_hash_async,
        SW_FAKE_sw_gpu_copy_async,         SW_FAKE_sw_gpu_identify_async};
    int n = 0;
    for (unsigned i = 0; &sw_fake_cuda && i < sizeof kernels / sizeof kernels[0]; i++)
        n += atomic_load(&sw_fake_cuda->calls[kernels[i]]);
    return n;
}

START_TEST(frames_need_no_kernel) {
    const int before = count_kernels();
    const struct sw_region_id id = store();
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(fetch(id), 0);
        ck_fetched();
    }
    ck_assert_int_eq(count_kernels(), before);
    ck_restored(id);
    ck_assert(!&sw_fake_cuda || count_kernels() > before); /* it counts */
    ck_left(0);
}
END_TEST

/* Frames that follow each other in the client's memory and in the tier are moved by a single copy, also with the rest
 * of their steps, of which the client gets zeros. */
START_TEST(frames_that_follow_each_other_need_one_copy) {
    const atomic_int *calls = &sw_fake_cuda ? &sw_fake_cuda->calls[SW_FAKE_cudaMemcpyAsync] : NULL;
    follow = true;
    encode(SW_CONTENT_TEXT);
    int before = calls ? atomic_load(calls) : 0;
    const struct sw_region_id id = store();
    ck_assert(!calls || atomic_load(calls) == before + 1);
    before = calls ? atomic_load(calls) : 0;
    ck_assert_int_eq(fetch(id), 0);
    ck_assert(!calls || atomic_load(calls) == before + 1);
    ck_fetched();
    for (unsigned i = 0; i + 1 < N; i++)
        for (uint64_t at = place(i) + frame_bytes[i]; at < place(i + 1); at++)
            ck_assert_uint_eq(sw_pair.to.data[at], 0);
    ck_restored(id);
    ck_left(0);
}
END_TEST

/* Through memory that is short to the disk, and back. */
/* No frame of the chunk has such a length: the append is refused, and its build is as before. To the byte. */
START_TEST(lengths_that_no_frame_has_are_refused_at_once) {
    const uint64_t least = sw_frame_least_bytes(CHUNK), most = sw_frame_bound_bytes(CHUNK);
    const struct {
        uint64_t frame_bytes;
        int rc;
    } cases[] = {{1, -SW_EFRAME}, {least - 1, -SW_EFRAME}, {most + 1, -SW_EFRAME}, {least, 0}, {most, 0}};
    struct sw_range ranges[N];
    struct sw_test_op op;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_build *build = begin();
        fill_ranges(ranges, sw_pair.from_mem);
        ranges[0].frame_bytes = cases[i].frame_bytes;
        op = (struct sw_test_op){0};
        ck_assert_int_eq(sw_build_append(build, ranges, 1, sw_test_op_done, &op, NULL), cases[i].rc);
        if (cases[i].rc == 0)
            ck_assert_int_eq(sw_pair_wait(&op), -SW_EFRAME); /* it is none of that length */
        else
            ck_assert_int_eq(append_all(build, &op), 0);
        op = (struct sw_test_op){0};
        ck_assert_int_eq(sw_build_abort(build, sw_test_op_done, &op, NULL), 0);
        ck_assert_int_eq(sw_pair_wait(&op), cases[i].rc == 0 ? -SW_EFRAME : -SW_ECANCELED);
    }
}
END_TEST

START_TEST(frames_go_to_the_disk_and_back) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.capacity_bytes = config.initial_bytes = 1 << 20;
    config.staging_bytes = 900 << 10;
    config.nvme_bytes = 64 << 20;
    open_with(&config);
    encode(SW_CONTENT_RANDOM); /* long frames */
    const int before = count_kernels();
    const struct sw_region_id ids[] = {store(), store(), store()};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(fetch(ids[i]), 0);
        ck_fetched();
    }
    ck_assert_str_eq(region_of(ids[2])->tier->kind->name, "nvme");
    ck_assert_int_eq(count_kernels(), before);
    for (unsigned i = 0; i < 3; i++)
        ck_restored(ids[i]);
    ck_left(0);
    sw_pair_close();
}
END_TEST

/* In a tier where every second place is taken, a frame gets several extents. */
START_TEST(frames_in_several_extents) {
    enum { FILL_BYTES = 32 << 10, MOST = 100 };
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_region_id fillers[MOST];
    struct sw_test_op op;
    unsigned n = 0;
    config.capacity_bytes = config.initial_bytes = 2 << 20;
    open_with(&config);
    encode(SW_CONTENT_RANDOM);
    while (n < MOST && sw_fixture_spill(&sw_pair.f, &sw_pair.from, 0, FILL_BYTES, &op) == 0)
        fillers[n++] = op.id;
    ck_assert(n > 10 && n < MOST);
    for (unsigned i = 0; i < n; i += 2)
        ck_assert_int_eq(sw_engine_drop(sw_pair.f.owner, fillers[i], NULL), 0);
    const struct sw_region_id id = store();
    ck_assert_uint_gt(region_of(id)->frames->stored[0].n_extents, 1);
    ck_assert_int_eq(fetch(id), 0);
    ck_fetched();
    ck_assert_int_eq(fetch_as(id, true), 0);
    ck_fetched();
    ck_restored(id);
    sw_pair_close();
}
END_TEST

/* ---- faults ---- */

/* The loop's index: in which way it fails, and from 3 on for frames that are moved one after the other. */
START_TEST(any_copy_of_a_spill_fails) {
    struct sw_test_op op;
    unsigned nth = 1;
    is_alone = _i >= 3;
    for (;; nth++) {
        struct sw_build *build = begin();
        sw_device_faulty_arm(sw_pair.f.device, "take_frames", nth, -SW_EGPU, (enum sw_fault)(_i % 3));
        const int rc = append_all(build, &op);
        ck_assert_int_eq(abort_or_commit(build, rc, &op), rc);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_EGPU);
        ck_left(0);
    }
    ck_assert_uint_eq(nth, is_alone ? N + 1 : 2);
    sw_device_faulty_arm(sw_pair.f.device, "take_frames", 0, 0, SW_FAULT_AT_ONCE);
    ck_restored(op.id);
    ck_left(0);
}
END_TEST

START_TEST(any_copy_of_a_restore_fails) {
    const struct sw_region_id id = store();
    unsigned nth = 1;
    is_alone = true;
    for (;; nth++) {
        sw_device_faulty_arm(sw_pair.f.device, "give_frames", nth, -SW_EGPU, (enum sw_fault)_i);
        const int rc = fetch(id);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_EGPU);
        ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_OUT);
        ck_left(1);
    }
    ck_assert_uint_eq(nth, N + 1);
    sw_device_faulty_arm(sw_pair.f.device, "give_frames", 0, 0, SW_FAULT_AT_ONCE);
    ck_fetched();
    ck_restored(id);
    ck_left(0);
}
END_TEST

/* If one copy of several frames fails, each is copied alone, since one of them may be the cause. */
START_TEST(frames_whose_copy_back_fails_are_copied_alone) {
    const struct sw_region_id id = store();
    sw_device_faulty_arm(sw_pair.f.device, "give_frames", 1, -SW_EGPU, (enum sw_fault)_i);
    ck_assert_int_eq(fetch(id), 0);
    ck_fetched();
    ck_restored(id);
    ck_left(0);
}
END_TEST

/* A bad header among others: the region is not stored, and nothing is left of it. */
START_TEST(a_bad_frame_among_others_is_refused) {
    struct sw_test_op op;
    struct sw_build *build = begin();
    sw_pair.from.data[3 * ROOM] ^= 1;
    const int rc = append_all(build, &op);
    ck_assert_int_eq(rc, -SW_EFRAME);
    ck_assert_int_eq(abort_or_commit(build, rc, &op), rc);
    ck_left(0);
}
END_TEST

/* ---- disputed frames ---- */

START_TEST(good_frames_may_be_disputed) {
    const struct sw_region_id id = store();
    const int before = count_kernels();
    ck_assert_int_eq(fetch_as(id, true), 0);
    ck_fetched();
    ck_assert_int_eq(count_kernels(), before);
    ck_restored(id);
    ck_left(0);
}
END_TEST

/* Bytes behind the header are not looked at until the client says that they are bad. The loop's index: of which frame.
 */
START_TEST(a_bad_frame_that_is_disputed_is_lost) {
    const struct sw_region_id id = store();
    const unsigned bad = (unsigned)_i;
    uint8_t *stored = region_of(id)->frames->stored[bad].extents[0].memory;
    stored[frame_bytes[bad] - 40] ^= 0x55;
    ck_assert_int_eq(fetch(id), 0);
    ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_OUT);
    const int rc = fetch_as(id, true);
    ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME, "%s", sw_err_name(rc));
    ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_LOST);
    ck_assert_uint_eq(sw_pair.to.data[bad * ROOM], 0);
}
END_TEST

START_TEST(any_check_of_a_disputed_frame_fails) {
    const struct sw_region_id id = store();
    unsigned nth = 1;
    for (;; nth++) {
        sw_device_faulty_arm(sw_pair.f.device, "verify_frame", nth, -SW_ENOMEM, (enum sw_fault)_i);
        const int rc = fetch_as(id, true);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_ENOMEM);
        ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_OUT);
    }
    ck_assert_uint_eq(nth, N + 1);
    sw_device_faulty_arm(sw_pair.f.device, "verify_frame", 0, 0, SW_FAULT_AT_ONCE);
    ck_restored(id);
    ck_left(0);
}
END_TEST

static void set_flag(void *flag) {
    *(bool *)flag = true;
}

/* The session ends while a copy hangs: what is under way is waited for. */
START_TEST(a_session_ends_under_a_copy) {
    struct sw_range ranges[N];
    struct sw_test_op op = {0};
    struct sw_build *build = begin();
    fill_ranges(ranges, sw_pair.from_mem);
    sw_device_faulty_arm(sw_pair.f.device, "take_frames", 1, -SW_EAGAIN, SW_FAULT_LATE);
    ck_assert_int_eq(sw_build_append(build, ranges, N, sw_test_op_done, &op, NULL), 0);
    bool closed = false;
    sw_owner_close(sw_pair.f.owner, set_flag, &closed);
    sw_pair.f.owner = NULL;
    sw_pair_release_until(&closed);
    ck_assert(op.done && op.outcome.err.code == -SW_ECANCELED);
    ck_left(0);
}
END_TEST

/* Our copy has become another one: the client gets none. */
START_TEST(a_damaged_copy_is_not_sent) {
    const struct sw_region_id id = store();
    uint8_t *stored = region_of(id)->frames->stored[2].extents[0].memory;
    stored[8] ^= 1;
    ck_assert_int_eq(fetch(id), -SW_ECHECKSUM);
    ck_assert_int_eq(sw_fixture_state(&sw_pair.f, id), SW_REGION_LOST);
    for (unsigned i = 0; i < ROOM; i++)
        ck_assert_uint_eq(sw_pair.to.data[2 * ROOM + i], 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("frames of clients");
    TCase *tests = tcase_create("frames"), *others = tcase_create("other tiers");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, frames_need_no_kernel);
    tcase_add_test(tests, frames_that_follow_each_other_need_one_copy);
    tcase_add_test(tests, lengths_that_no_frame_has_are_refused_at_once);
    tcase_add_loop_test(tests, any_copy_of_a_spill_fails, 0, 6);
    tcase_add_loop_test(tests, any_copy_of_a_restore_fails, 0, 3);
    tcase_add_loop_test(tests, frames_whose_copy_back_fails_are_copied_alone, 0, 3);
    tcase_add_test(tests, a_bad_frame_among_others_is_refused);
    tcase_add_test(tests, good_frames_may_be_disputed);
    tcase_add_loop_test(tests, a_bad_frame_that_is_disputed_is_lost, 0, 2);
    tcase_add_loop_test(tests, any_check_of_a_disputed_frame_fails, 0, 3);
    tcase_add_test(tests, a_session_ends_under_a_copy);
    tcase_add_test(tests, a_damaged_copy_is_not_sent);
    tcase_add_test(others, frames_go_to_the_disk_and_back);
    tcase_add_test(others, frames_in_several_extents);
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, others);
    return sw_test_run(suite, CK_FORK);
}
