/* The catalogue: the next process finds all records and nothing else, at whichever instruction the last process was
 * killed. */
#include "base/alloc.h"
#include "spill/journal/catalogue.h"
#include "spill/journal/record.h"
#include "spill/store/owner.h"
#include "tests/lib/catalogue_records.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

START_TEST(recorded_regions_are_found) {
    struct sw_frames *frames[] = {frames_new(0, false, 1), frames_new(1, false, 2), frames_new(2200, false, 3),
                                  frames_new(7, true, 4), NULL};
    const struct sw_catalogue_session session = {
        .number = 7, .uid = 1000, .token = "0123456789abcde", .process = {1, UINT64_MAX, UINT64_C(1) << 33, 4}};
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t records[5], record;
    ck_assert_int_eq(sw_catalogue_put_session(c, &session, &record, NULL), 0);
    for (uint32_t i = 0; i < 5; i++)
        records[i] = put(c, i, 3, frames[i], 0);
    sw_catalogue_note_id(c, 3, 12);
    sw_catalogue_note_id(c, 8, 5);
    sw_catalogue_note_id(c, 0, 1);
    sw_catalogue_hint(c, records[1], &(struct sw_catalogue_hints){.used_us = 42, .priority = 255, .broken = true});
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_damaged, 0);
    ck_assert_uint_eq(found.n_sessions, 1);
    ck_same_session(&session, &found.sessions[0]);
    ck_assert_uint_eq(found.n_regions, 5);
    ck_assert_uint_eq(sw_catalogue_generation(c), 12);
    ck_assert_uint_eq(sw_catalogue_n_entries(c), 9);
    for (uint32_t i = 0; i < 5; i++) {
        const struct sw_catalogue_region *r = &found.regions[4 - i]; /* the newest first */
        ck_assert(r->slot == i && r->gen == 3 && r->session == 7 && r->request == 100 + i && r->batch_index == i % 3);
        ck_assert(r->stored_bytes == 77 && r->codec == 1 && r->reason == 2 && found.records[4 - i] == records[i]);
        ck_assert_uint_eq(r->hints.used_us, i == 1 ? 42 : 1234567890123);
        ck_assert_uint_eq(r->hints.priority, i == 1 ? 255 : 9);
        ck_assert(r->hints.broken == (i == 1) && r->hints.pinned == (i == 3) && !r->hints.is_in);
        ck_assert((r->frames != NULL) == (frames[i] != NULL));
        if (frames[i])
            ck_same_frames(frames[i], r->frames);
        frames_end(frames[i]);
    }
    found_end(&found);
    sw_catalogue_close(c);
}
END_TEST

/* A device has to take the chunks that there are. A region may be shorter than a chunk of it. */
START_TEST(the_longest_chunk_of_all_regions) {
    static const struct {
        uint64_t raw_bytes, chunk_bytes, longest;
    } of[] = {{0, 9000, 0}, {3000, 9000, 3000}, {3000, 3000, 3000}, {90000, 4000, 4000}, {20000, 2000, 4000}};
    struct sw_catalogue *c = open_new();
    for (uint32_t i = 0; i < sizeof of / sizeof of[0]; i++) {
        struct sw_frames *frames = sw_frames_new(of[i].raw_bytes, of[i].chunk_bytes, false);
        ck_assert_ptr_nonnull(frames);
        (void)put(c, i, 1, frames, 0);
        sw_frames_delete(frames);
        ck_assert_uint_eq(sw_catalogue_longest_chunk(c), of[i].longest);
    }
    sw_catalogue_close(c);
}
END_TEST

/* Whatever else becomes of the record; in its cells the next one is as any other. */
START_TEST(a_forgotten_request_is_not_found) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t records[4], list = 0;
    for (uint32_t i = 0; i < 4; i++) {
        records[i] = put(c, i, 1, NULL, 0);
        sw_catalogue_forget_request(c, records[i]);
    }
    sw_catalogue_hint(c, records[1], &(struct sw_catalogue_hints){.priority = 8});
    sw_catalogue_retire(c, &records[2], &list);
    sw_catalogue_free(c, &records[3]);
    (void)put(c, 3, 2, NULL, 0);
    sw_catalogue_forget_request(c, 0);
    sw_catalogue_forget_request(NULL, 1);
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 4);
    for (uint32_t i = 0; i < 4; i++) {
        const struct sw_catalogue_region *r = &found.regions[3 - i];
        ck_assert(r->slot == i && r->request == (i == 3 ? 103 : 0) && r->hints.is_in == (i == 2));
        ck_assert_uint_eq(r->hints.priority, i == 1 ? 8 : i == 2 ? 0 : 9);
    }
    sw_catalogue_close(c);
}
END_TEST

/* Each new record carries the flag, whatever happens to it; records of an earlier version do not. */
START_TEST(only_old_records_let_holes_be_filled) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t records[6], list = 0;
    for (uint32_t i = 0; i < 4; i++)
        records[i] = put(c, i, 1, NULL, 0);
    sw_catalogue_hint(c, records[1], &(struct sw_catalogue_hints){.priority = 8});
    sw_catalogue_forget_request(c, records[2]);
    sw_catalogue_retire(c, &records[3], &list);
    for (uint32_t i = 4; i < 6; i++) { /* as they are copied */
        const struct sw_catalogue_region region = {.slot = i, .gen = 1, .may_fill_holes = true};
        ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &records[i], NULL), 0);
    }
    sw_catalogue_forbid_holes(c, records[5]);
    sw_catalogue_hint(c, records[5], &(struct sw_catalogue_hints){.priority = 8});
    sw_catalogue_forbid_holes(c, 0);
    sw_catalogue_forbid_holes(NULL, 1);
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 6);
    for (uint32_t i = 0; i < 6; i++)
        ck_assert_int_eq(found.regions[5 - i].may_fill_holes, i == 4);
    sw_catalogue_close(c);
}
END_TEST

START_TEST(freed_and_replaced_records_are_not_found) {
    struct sw_frames *one = frames_new(1, false, 1), *many = frames_new(50, false, 2);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t freed = put(c, 1, 1, many, 0), retired = put(c, 2, 1, one, 0), list = 0;
    const uint32_t old = put(c, 3, 1, one, 0);
    (void)put(c, 3, 1, many, old);
    sw_catalogue_free(c, &freed);
    ck_assert_uint_eq(freed, 0);
    sw_catalogue_retire(c, &retired, &list);
    (void)put(c, 4, 1, one, 0); /* into the cells of freed records */
    sw_catalogue_close(c);

    c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
    ck_assert_uint_eq(found.n_regions, 3);
    ck_assert(found.regions[0].slot == 4);
    ck_assert(found.regions[1].slot == 3 && found.regions[1].frames->n_chunks == 50);
    ck_assert(found.regions[2].slot == 2 && found.regions[2].hints.is_in);
    found_end(&found);
    sw_catalogue_free_retired(c, &list);
    /* A process can free and replace records that it found like its own. */
    sw_catalogue_free(c, &found.records[1]);
    for (uint32_t i = 0; i < MAX_REGIONS; i++)
        (void)put(c, 10 + i, 1, many, 0);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 1 + MAX_REGIONS);
    found_end(&found);
    sw_catalogue_close(c);
    frames_end(one);
    frames_end(many);
}
END_TEST

/* Two valid records of one region: its process was killed between making one valid and freeing the other. */
START_TEST(the_later_of_two_records_counts) {
    struct sw_frames *frames = frames_new(2, false, 1);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    (void)put(c, 9, 4, frames, 0);
    const uint32_t later = put(c, 9, 4, NULL, 0);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 1);
    ck_assert_uint_eq(found.records[0], later);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

/* ---- version 1 ---- */

START_TEST(a_full_catalogue_refuses_records) {
    struct sw_frames *frames = frames_new(2200, false, 1);
    struct sw_catalogue_region region = {.slot = 1, .gen = 1, .frames = frames};
    struct sw_catalogue *c = open_new();
    struct sw_err err;
    uint32_t record = 0, first = put(c, 0, 1, frames, 0);
    int rc = 0;
    while (!rc)
        rc = sw_catalogue_put_region(c, &region, 0, &record, &err);
    ck_assert_int_eq(rc, -SW_ELIMIT);
    ck_assert_int_eq(err.code, -SW_ELIMIT);
    sw_catalogue_free(c, &first);
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &record, &err), 0);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

static unsigned fill_up(struct sw_catalogue *c, uint32_t *ret_records) {
    static const struct sw_catalogue_session session = {.number = 1};
    unsigned n = 0;
    while (sw_catalogue_put_session(c, &session, &ret_records[n], NULL) == 0)
        n++;
    return n;
}

/* What was written of it so far takes no cell away from later records. */
START_TEST(a_record_that_does_not_fit_leaves_nothing) {
    static uint32_t records[1 << 17];
    struct sw_frames *frames = frames_new(2200, false, 1);
    const struct sw_catalogue_region region = {.slot = 1, .gen = 1, .frames = frames};
    struct sw_catalogue *c = open_new();
    uint32_t record;
    unsigned n = fill_up(c, records), n_free = 100; /* fewer than the region takes */
    for (unsigned i = 0; i < n_free; i++)
        sw_catalogue_free(c, &records[--n]);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &record, NULL), -SW_ELIMIT);
    ck_assert_uint_eq(fill_up(c, records + n), n_free);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

/* The catalogue stays usable, and keeps no memory of the record that failed. */
START_TEST(a_record_without_memory_is_refused) {
    struct sw_frames *frames = frames_new(100, false, 1);
    const struct sw_catalogue_region region = {.slot = 1, .gen = 1, .frames = frames};
    const struct sw_catalogue_session session = {.number = 7};
    struct sw_catalogue *c = open_new();
    uint32_t record;
    ck_assert_int_eq(sw_catalogue_put_session(c, &session, &record, NULL), 0);
    const long live = sw_alloc_live();
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &record, NULL), -SW_ENOMEM);
    ck_assert_int_eq(sw_catalogue_put_session(c, &session, &record, NULL), 0);
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &record, NULL), 0);
    ck_assert_int_eq(sw_alloc_live(), live);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

static bool refuse_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct found *of = arg;
    (void)record;
    of->sessions[of->n_sessions++] = *session;
    return session->number != 8;
}

static bool refuse_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    struct found *of = arg;
    (void)record;
    of->regions[of->n_regions++] = *region;
    return region->slot != 1;
}

/* What this process does not take, no later one finds, and its cells are free. */
START_TEST(what_is_refused_is_gone) {
    static uint32_t cells[1 << 17];
    const struct sw_catalogue_visitor visitor = {.session = refuse_session, .found = refuse_region, .arg = &found};
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    const unsigned n_cells = fill_up(c, cells);
    uint32_t record;
    for (unsigned i = 0; i < n_cells; i++)
        sw_catalogue_free(c, &cells[i]);
    for (unsigned i = 7; i < 10; i++)
        ck_assert_int_eq(sw_catalogue_put_session(c, &(struct sw_catalogue_session){.number = i}, &record, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
        (void)put(c, i, 1, NULL, 0);
    sw_catalogue_close(c);

    ck_assert_int_eq(sw_catalogue_open(&c, fcntl(fd, F_DUPFD_CLOEXEC, 0), MAX_REGIONS, NULL), 0);
    memset(&found, 0, sizeof found);
    ck_assert_int_eq(sw_catalogue_recover(c, &visitor, &found.n_damaged, NULL), 0);
    ck_assert(found.n_sessions == 3 && found.n_regions == 3 && found.n_damaged == 0);
    ck_assert_uint_eq(fill_up(c, cells), n_cells - 4);
    for (unsigned i = 0; i < n_cells - 4; i++)
        sw_catalogue_free(c, &cells[i]);
    sw_catalogue_close(c);

    c = open_again(fd, &found);
    ck_assert(found.n_sessions == 2 && found.n_regions == 2 && found.n_damaged == 0);
    for (unsigned i = 0; i < 2; i++)
        ck_assert(found.sessions[i].number != 8 && found.regions[i].slot != 1);
    sw_catalogue_close(c);
}
END_TEST

/* Regions that their clients have packed, and whose directories only those have. */
START_TEST(only_possible_packs_are_found) {
    static const struct {
        uint64_t raw_bytes, stored_bytes;
        unsigned codec;
    } packs[] = {{1000, 1000, SW_CODEC_RAW}, {1000, 1001, SW_CODEC_RAW}, {1000, 10, SW_CODEC_NR}, {1000, 10, 1}};
    enum { N = sizeof packs / sizeof packs[0] };
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    for (uint32_t i = 0; i < N; i++) {
        struct sw_frames *held = sw_frames_new_held(packs[i].raw_bytes, packs[i].stored_bytes, SW_CODEC_RAW);
        const struct sw_catalogue_region region = {.session = 7,
                                                   .slot = i,
                                                   .gen = 1,
                                                   .raw_bytes = packs[i].raw_bytes,
                                                   .stored_bytes = packs[i].stored_bytes,
                                                   .codec = (uint8_t)packs[i].codec,
                                                   .frames = held};
        uint32_t record = 0;
        ck_assert_int_eq(sw_catalogue_put_region(c, &region, 0, &record, NULL), 0);
        sw_frames_free(held);
    }
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_damaged, 2);
    ck_assert_uint_eq(found.n_regions, 2);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert(found.regions[i].slot == 0 || found.regions[i].slot == N - 1);
        ck_assert(sw_frames_are_held(found.regions[i].frames));
    }
    found_end(&found);
    sw_catalogue_close(c);
}
END_TEST

/* ---- batches ---- */

/* Wherever the batch ended, another batch and single records are found; and the next process finds the same. */
START_TEST(a_batch_is_found_as_a_whole_or_not_at_all) {
    for (unsigned steps = 0; steps <= N_STEPS; steps++) {
        struct sw_catalogue *c = open_new();
        int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        (void)put(c, 30, 1, NULL, 0);
        (void)put_batch(c, 20, N_STEPS);
        const unsigned n = 1 + BATCH + (unsigned)put_batch(c, 10, steps);
        sw_catalogue_close(c);
        for (unsigned life = 0; life < 3; life++) {
            c = open_again(fd, &found);
            fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
            ck_assert_msg(found.n_regions == n, "step %u, life %u: %u regions", steps, life, found.n_regions);
            ck_assert_uint_eq(found.n_damaged, 0);
            if (life == 1) { /* in the cells of dropped records; settled records stay settled */
                sw_catalogue_hint(c, found.records[0], &(struct sw_catalogue_hints){.priority = 5});
                uint32_t record = put(c, 40, 1, NULL, 0);
                sw_catalogue_free(c, &record);
            }
            sw_catalogue_close(c);
        }
        (void)close(fd);
    }
}
END_TEST

/* Its regions are named by a batch that is not there, and of which nothing is known any more. */
START_TEST(batch_numbers_are_not_reused) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    (void)put_batch(c, 10, BATCH);
    const uint64_t last = sw_catalogue_new_batch(c);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    ck_assert_uint_eq(found.n_regions, 0);
    ck_assert_uint_ge(sw_catalogue_new_batch(c), last - 1);
    (void)put_batch(c, 20, N_STEPS);
    sw_catalogue_close(c);
    ck_assert(sw_catalogue_new_batch(NULL) == 0);
    uint32_t record = 1;
    ck_assert(sw_catalogue_put_batch(NULL, 0, &record, NULL) == 0 && record == 0);
    sw_catalogue_settle(NULL, 1);
}
END_TEST

/* Returns how many cells are left. */
static unsigned count_cells(struct sw_catalogue *c) {
    static uint32_t records[1 << 17];
    const unsigned n = fill_up(c, records);
    for (unsigned i = n; i > 0; i--)
        sw_catalogue_free(c, &records[i - 1]);
    return n;
}

/* Cells of regions without their batch, and of batches whose regions are settled, are used again. */
START_TEST(what_does_not_count_takes_no_cells) {
    struct sw_catalogue *c = open_new();
    const unsigned n_cells = count_cells(c);
    sw_catalogue_close(c);
    for (unsigned steps = 0; steps <= N_STEPS; steps++) {
        c = open_new();
        const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        (void)put_batch(c, 10, steps);
        sw_catalogue_close(c);
        c = open_again(fd, &found);
        for (unsigned i = 0; i < found.n_regions; i++)
            sw_catalogue_free(c, &found.records[i]);
        ck_assert_msg(count_cells(c) == n_cells, "step %u: %u of %u cells", steps, count_cells(c), n_cells);
        sw_catalogue_close(c);
    }
}
END_TEST

/* Regions that are recorded together are found by the next process, and by the one after it; of their batch nothing is
 * left. */
START_TEST(regions_are_recorded_together) {
    struct sw_owner owner = {.number = 7, .record = 1};
    struct sw_region regions[BATCH] = {0}, *all[BATCH];
    struct sw_catalogue *c = open_new();
    int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    const unsigned n_cells = count_cells(c);
    for (unsigned i = 0; i < BATCH; i++) {
        regions[i] = (struct sw_region){.id = {.slot = i, .gen = 1}, .owner = &owner, .raw_bytes = 5};
        all[i] = &regions[i];
    }
    ck_assert_int_eq(sw_region_record_batch(c, all, BATCH, NULL), 0);
    ck_assert_uint_eq(count_cells(c), n_cells - BATCH);
    for (unsigned life = 0; life < 2; life++) {
        sw_catalogue_close(c);
        c = open_again(fd, &found);
        fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        ck_assert_uint_eq(found.n_regions, BATCH);
    }
    sw_catalogue_close(c);
    (void)close(fd);
}
END_TEST

/* A service that has a catalogue goes on with its epoch; a new one takes over that of the tiers' records. Generations
 * and entries only grow. */
START_TEST(a_catalogue_takes_over_what_tiers_know) {
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    const uint64_t epoch = sw_catalogue_epoch(c) + 1;
    sw_catalogue_note_id(c, 9, 5);
    ck_assert(sw_catalogue_n_entries(c) == 10 && sw_catalogue_generation(c) == 5);
    sw_catalogue_take_over(c, epoch, 8, 4);
    ck_assert_uint_eq(sw_catalogue_epoch(c), epoch);
    ck_assert(sw_catalogue_n_entries(c) == 10 && sw_catalogue_generation(c) == 8);
    sw_catalogue_close(c);
    c = open_again(fd, &found);
    sw_catalogue_take_over(c, epoch + 1, 3, 20);
    ck_assert_uint_eq(sw_catalogue_epoch(c), epoch);
    ck_assert(sw_catalogue_n_entries(c) == 20 && sw_catalogue_generation(c) == 8);
    sw_catalogue_close(c);
}
END_TEST

/* Signals are the loop's, which is the thread that records: a reload or a stop may come while the catalogue grows. */
static unsigned n_interrupted;

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes);
int __real_fallocate(int fd, int mode, off_t offset, off_t bytes);

int __wrap_fallocate(int fd, int mode, off_t offset, off_t bytes) {
    if (n_interrupted == 0)
        return __real_fallocate(fd, mode, offset, bytes);
    n_interrupted--;
    errno = EINTR;
    return -1;
}

START_TEST(a_signal_during_growth_is_harmless) {
    struct sw_frames *frames = frames_new(2200, false, 1);
    struct sw_catalogue *c = open_new();
    n_interrupted = 3;
    for (uint32_t i = 0; n_interrupted; i++)
        (void)put(c, i, 1, frames, 0);
    sw_catalogue_close(c);
    frames_end(frames);
}
END_TEST

/* ---- killed ---- */

enum state { EMPTY, WRITING, STORED, FREEING };
struct shared {
    atomic_uint states[N_SLOTS], gens[N_SLOTS];
    atomic_ulong n;
};

static __attribute__((noreturn)) void child_main(struct sw_catalogue *c, struct shared *shared, uint64_t seed,
                                                 uint32_t records[N_SLOTS], struct sw_frames *const frames[4]) {
    for (;;) {
        const unsigned i = (unsigned)(sw_random(&seed) % N_SLOTS);
        struct sw_catalogue_region region = {
            .session = 7, .slot = i, .gen = atomic_load(&shared->gens[i]), .frames = frames[sw_random(&seed) % 4]};
        region.raw_bytes = region.frames ? region.frames->raw_bytes : 0;
        const bool replaces = records[i] && sw_random(&seed) % 2;
        if (records[i] && !replaces) {
            atomic_store(&shared->states[i], FREEING);
            sw_catalogue_free(c, &records[i]);
            atomic_store(&shared->states[i], EMPTY);
        } else {
            if (!replaces) {
                region.gen++;
                atomic_store(&shared->gens[i], region.gen);
                atomic_store(&shared->states[i], WRITING);
            }
            if (sw_catalogue_put_region(c, &region, records[i], &records[i], NULL))
                abort();
            atomic_store(&shared->states[i], STORED);
        }
        atomic_fetch_add(&shared->n, 1);
    }
}

START_TEST(killed_at_any_moment) {
    struct sw_frames *frames[4] = {frames_new(1, false, 1), frames_new(9, false, 2), frames_new(300, false, 3), NULL};
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint64_t seed = 5;
    uint32_t records[N_SLOTS] = {0};
    for (int cycle = 0; cycle < CYCLES; cycle++) {
        const unsigned long before = atomic_load(&shared->n);
        const uint64_t child_seed = sw_random(&seed);
        const pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0)
            child_main(c, shared, child_seed, records, frames);
        while (atomic_load(&shared->n) < before + 20)
            (void)usleep(50);
        (void)usleep((useconds_t)(sw_random(&seed) % 1000));
        (void)kill(child, SIGKILL);
        ck_assert_int_eq(waitpid(child, NULL, 0), child);
        sw_catalogue_close(c);
        c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
        ck_assert_uint_eq(found.n_damaged, 0);
        memset(records, 0, sizeof records);
        for (unsigned r = 0; r < found.n_regions; r++) {
            const unsigned i = found.regions[r].slot;
            ck_assert_uint_eq(records[i], 0);
            ck_assert_uint_eq(found.regions[r].gen, atomic_load(&shared->gens[i]));
            ck_assert_uint_ne(atomic_load(&shared->states[i]), EMPTY);
            records[i] = found.records[r];
        }
        for (unsigned i = 0; i < N_SLOTS; i++) {
            ck_assert(records[i] || atomic_load(&shared->states[i]) != STORED);
            atomic_store(&shared->states[i], records[i] ? STORED : EMPTY);
        }
        found_end(&found);
    }
    sw_catalogue_close(c);
    (void)close(fd);
    for (int i = 0; i < 4; i++)
        frames_end(frames[i]);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("catalogue");
    TCase *tcase = tcase_create("catalogue");
    sw_test_slow(tcase, 90);
    tcase_add_test(tcase, recorded_regions_are_found);
    tcase_add_test(tcase, the_longest_chunk_of_all_regions);
    tcase_add_test(tcase, a_forgotten_request_is_not_found);
    tcase_add_test(tcase, only_old_records_let_holes_be_filled);
    tcase_add_test(tcase, freed_and_replaced_records_are_not_found);
    tcase_add_test(tcase, the_later_of_two_records_counts);
    tcase_add_test(tcase, a_batch_is_found_as_a_whole_or_not_at_all);
    tcase_add_test(tcase, batch_numbers_are_not_reused);
    tcase_add_test(tcase, what_does_not_count_takes_no_cells);
    tcase_add_test(tcase, regions_are_recorded_together);
    tcase_add_test(tcase, a_catalogue_takes_over_what_tiers_know);
    tcase_add_test(tcase, a_full_catalogue_refuses_records);
    tcase_add_test(tcase, a_record_that_does_not_fit_leaves_nothing);
    tcase_add_test(tcase, a_record_without_memory_is_refused);
    tcase_add_test(tcase, what_is_refused_is_gone);
    tcase_add_test(tcase, only_possible_packs_are_found);
    tcase_add_test(tcase, a_signal_during_growth_is_harmless);
    tcase_add_test(tcase, killed_at_any_moment);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
