/* A slot's raw frames in host memory equal the codec's, whichever thread hashes their tiles; damage is found. */
#include "codec/codec.h"
#include "spill/device/sealer.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <check.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N = 5, MOST_TILES = 1000 };
static const uint64_t lengths[N] = {1, 100000, 32768, 3000001, 70000};

static struct {
    struct sw_sealer_pool *pool;
    uint8_t *wanted[N], *memory[N];
    struct sw_extent extents[N][2];
    struct sw_stored stored[N];
    struct sw_raw_item items[N];
    uint32_t hashes[MOST_TILES];
} f;

/* Frames of which only the content is there, each cut in its first tile's middle if it has one. */
static void setup(void) {
    struct sw_plan raw;
    uint32_t n_tiles = 0;
    sw_plan_init_raw(&raw);
    ck_assert_int_eq(sw_sealer_pool_new(&f.pool, 3, NULL), 0);
    for (unsigned i = 0; i < N; i++) {
        struct sw_frame_layout *layout = &f.items[i].frame;
        uint64_t frame_bytes = 0;
        sw_frame_layout_init(layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, lengths[i], 0);
        const uint64_t cap = sw_frame_bound_bytes(lengths[i]), cut = layout->frame_bytes > 20000 ? 16384 : 64;
        uint8_t *content = malloc(lengths[i]);
        f.wanted[i] = malloc(cap);
        f.memory[i] = malloc(layout->frame_bytes);
        ck_assert(content && f.wanted[i] && f.memory[i]);
        sw_content_fill(content, lengths[i], SW_CONTENT_RANDOM, i);
        ck_assert_int_eq(sw_codec_encode(&raw, content, lengths[i], f.wanted[i], cap, &frame_bytes, NULL), 0);
        ck_assert_uint_eq(frame_bytes, layout->frame_bytes);
        memset(f.memory[i], 0xA5, frame_bytes);
        memcpy(f.memory[i] + layout->data_offset, content, lengths[i]);
        f.extents[i][0] = (struct sw_extent){.memory = f.memory[i], .bytes = cut};
        f.extents[i][1] = (struct sw_extent){.memory = f.memory[i] + cut, .bytes = frame_bytes - cut};
        f.stored[i] = (struct sw_stored){.extents = f.extents[i], .n_extents = 2, .bytes = frame_bytes};
        f.items[i].stored = &f.stored[i];
        for (uint32_t tile = 0; tile < layout->n_tiles; tile++)
            memcpy(&f.hashes[n_tiles++], f.wanted[i] + layout->records_offset + UINT64_C(8) * tile + 4, 4);
        free(content);
    }
}

static void teardown(void) {
    sw_sealer_pool_free(f.pool);
    for (unsigned i = 0; i < N; i++) {
        free(f.wanted[i]);
        free(f.memory[i]);
    }
}

static struct sw_sealer *new_sealer(void) {
    struct sw_sealer *sealer;
    ck_assert_int_eq(sw_sealer_new(&sealer, f.pool, NULL), 0);
    ck_assert(sw_sealer_ended(sealer));
    return sealer;
}

/* Tiles that are found bad; the first _i frames are the device's to hash. */
static uint32_t verify(struct sw_sealer *sealer, unsigned n_hashed) {
    ck_assert_int_eq(sw_sealer_take(sealer, f.items, N, NULL), 0);
    ck_assert_int_eq(sw_sealer_begin(sealer, SW_SEALER_VERIFY, n_hashed, NULL), 0);
    const uint32_t n_bad = sw_sealer_verify_hashed(sealer, n_hashed, f.hashes);
    sw_sealer_wait(sealer);
    return n_bad + sw_sealer_bad_tiles(sealer);
}

START_TEST(test_frames_are_sealed_and_verified) {
    const unsigned n_hashed = (unsigned)_i;
    struct sw_sealer *sealer = new_sealer();
    ck_assert_int_eq(sw_sealer_take(sealer, f.items, N, NULL), 0);
    ck_assert_int_eq(sw_sealer_begin(sealer, SW_SEALER_SEAL, n_hashed, NULL), 0);
    sw_sealer_seal_hashed(sealer, n_hashed, f.hashes);
    sw_sealer_wait(sealer);
    for (unsigned i = 0; i < N; i++)
        ck_assert_mem_eq(f.memory[i], f.wanted[i], f.items[i].frame.frame_bytes);
    ck_assert_uint_eq(verify(sealer, n_hashed), 0);
    for (unsigned i = 0; i < N; i++) { /* one after the other, in its last record: hashed here or elsewhere */
        uint8_t *record = f.memory[i] + f.items[i].frame.records_offset + UINT64_C(8) * (f.items[i].frame.n_tiles - 1);
        record[5] ^= 1;
        ck_assert_uint_eq(verify(sealer, n_hashed), i + 1);
    }
    sw_sealer_free(sealer);
}
END_TEST

/* Hashes of the sealer's threads are those of the stored bytes; hashes of the device are those of the bytes that it
 * copied. */
START_TEST(test_damaged_content_is_found_by_its_reader) {
    struct sw_sealer *sealer = new_sealer();
    ck_assert_int_eq(sw_sealer_take(sealer, f.items, N, NULL), 0);
    sw_sealer_seal_hashed(sealer, N, f.hashes);
    f.memory[3][f.items[3].frame.data_offset + 2000000] ^= 1;
    ck_assert_uint_eq(verify(sealer, 4), 0);
    ck_assert_uint_eq(verify(sealer, 3), 1);
    f.hashes[0] ^= 1;
    ck_assert_uint_eq(verify(sealer, 4), 1);
    sw_sealer_free(sealer);
}
END_TEST

/* Several sealers share the threads, as slots do. */
START_TEST(test_sealers_share_threads) {
    struct sw_sealer *sealers[2] = {new_sealer(), new_sealer()};
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_sealer_take(sealers[i], f.items + 2 * i, 2, NULL), 0);
        ck_assert_int_eq(sw_sealer_begin(sealers[i], SW_SEALER_SEAL, 0, NULL), 0);
    }
    sw_sealer_free(sealers[1]); /* waits for its own */
    for (unsigned i = 2; i < 4; i++)
        ck_assert_mem_eq(f.memory[i], f.wanted[i], f.items[i].frame.frame_bytes);
    sw_sealer_wait(sealers[0]);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_mem_eq(f.memory[i], f.wanted[i], f.items[i].frame.frame_bytes);
    sw_sealer_free(sealers[0]);
}
END_TEST

/* Callers do not wait for threads that sleep, or are about to. */
START_TEST(test_callers_do_not_wait_for_sleeping_threads) {
    struct sw_sealer *sealer = new_sealer();
    for (unsigned i = 0; i < 400; i++) {
        ck_assert_int_eq(sw_sealer_take(sealer, f.items, N, NULL), 0);
        if (i % 3 == 0)
            sw_sealer_wake(sealer, i % N, 50);
        const struct timespec pause = {.tv_nsec = 1000 * (i % 200)};
        (void)nanosleep(&pause, NULL);
        ck_assert_int_eq(sw_sealer_begin(sealer, SW_SEALER_SEAL, i % N, NULL), 0);
        sw_sealer_wait(sealer);
    }
    sw_sealer_free(sealer);
    for (unsigned i = 0; i < N; i++)
        ck_assert_mem_eq(f.memory[i], f.wanted[i], f.items[i].frame.frame_bytes);
}
END_TEST

static struct {
    pthread_t thread;
    sem_t may_end;
} other;

static void note_thread(void *arg) {
    *(pthread_t *)arg = pthread_self();
    (void)sem_wait(&other.may_end);
}

/* Other work that runs in the threads delays only callers that wait for it; then the threads serve frames again. */
START_TEST(test_something_else_runs_beside_the_caller) {
    struct sw_sealer *sealer = new_sealer();
    ck_assert_int_eq(sem_init(&other.may_end, 0, 0), 0);
    ck_assert_int_eq(sw_sealer_run(sealer, note_thread, &other.thread, NULL), 0);
    ck_assert(!sw_sealer_ended(sealer));
    ck_assert_int_eq(sem_post(&other.may_end), 0);
    sw_sealer_wait(sealer);
    ck_assert(sw_sealer_ended(sealer));
    ck_assert(!pthread_equal(other.thread, pthread_self()));
    ck_assert_int_eq(sw_sealer_take(sealer, f.items, N, NULL), 0);
    ck_assert_int_eq(sw_sealer_begin(sealer, SW_SEALER_SEAL, 0, NULL), 0);
    sw_sealer_wait(sealer);
    ck_assert_uint_eq(verify(sealer, 0), 0);
    sw_sealer_free(sealer);
    (void)sem_destroy(&other.may_end);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("sealer");
    TCase *tcase = tcase_create("sealer");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, test_frames_are_sealed_and_verified, 0, N + 1);
    tcase_add_test(tcase, test_damaged_content_is_found_by_its_reader);
    tcase_add_test(tcase, test_sealers_share_threads);
    tcase_add_test(tcase, test_callers_do_not_wait_for_sleeping_threads);
    tcase_add_test(tcase, test_something_else_runs_beside_the_caller);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
