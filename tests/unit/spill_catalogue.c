/* The catalogue: what was recorded is found by the next process, whatever instruction the last one was killed at, and
 * nothing else is. */
#include "base/alloc.h"
#include "spill/catalogue.h"
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

enum { MAX_REGIONS = 256, MAX_FOUND = 1024, N_SLOTS = 40, CYCLES = 150 };
#define CHUNK_BYTES ((uint64_t)1 << 20)

static const struct sw_tier_ops memory_ops;
static void submit(struct sw_tier *tier, struct sw_tier_io *io) {
    (void)tier;
    (void)io;
}
static const struct sw_tier_ops disk_ops = {.submit = submit};
static struct sw_tier memory_tier = {.ops = &memory_ops, .name = "host"},
                      disk_tier = {.ops = &disk_ops, .name = "nvme"};

struct found {
    struct sw_catalogue_session sessions[8];
    struct sw_catalogue_region regions[MAX_FOUND];
    uint32_t records[MAX_FOUND];
    unsigned n_sessions, n_regions, n_damaged;
};

/* ---- making and comparing ---- */

/* Frames of `n` chunks, some of several extents, some on the disk; their numbers follow from the seed. */
static struct sw_frames *frames_new(unsigned n, bool packed, uint64_t seed) {
    struct sw_frames *frames = sw_frames_new(n * CHUNK_BYTES, CHUNK_BYTES, packed);
    ck_assert_ptr_nonnull(frames);
    for (unsigned i = 0; i < n; i++) {
        struct sw_stored *stored = &frames->stored[i];
        sw_frame_layout_init(&frames->layouts[i], i % 3 ? SW_CODEC_V5T : SW_CODEC_RAW, 10, CHUNK_BYTES,
                             i % 3 ? 200 : 0);
        if (i % 3)
            frames->layouts[i].frame_bytes = 4096 + sw_random(&seed) % 100000;
        if (i % 5 == 4) {
            sw_frame_layout_init(&frames->layouts[i], SW_CODEC_RFOR, 12, CHUNK_BYTES, 0);
            frames->layouts[i].frame_bytes = 7000;
            frames->layouts[i].value_type = SW_VALUE_I64;
        }
        if (packed) {
            frames->packed[i] = (struct sw_packed_chunk){sw_random(&seed), sw_random(&seed), i % 2};
            continue;
        }
        stored->committed = true;
        stored->tier = i % 4 == 1 ? &disk_tier : &memory_tier;
        stored->n_extents = 1 + i % 3;
        stored->extents = sw_alloc_array(stored->n_extents, sizeof stored->extents[0]);
        uint64_t left = stored->bytes = frames->layouts[i].frame_bytes;
        for (unsigned e = 0; e < stored->n_extents; e++) {
            const uint64_t bytes = e + 1 == stored->n_extents ? left : left / 2;
            stored->extents[e] = (struct sw_extent){.offset = sw_random(&seed), .bytes = bytes};
            left -= bytes;
        }
    }
    return frames;
}

static void frames_end(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        frames->stored[i].tier = NULL;
    sw_catalogue_frames_free(frames);
}

static void ck_same_frames(const struct sw_frames *a, const struct sw_frames *found) {
    ck_assert_uint_eq(a->raw_bytes, found->raw_bytes);
    ck_assert_uint_eq(a->chunk_bytes, found->chunk_bytes);
    ck_assert_uint_eq(a->n_chunks, found->n_chunks);
    ck_assert((a->packed != NULL) == (found->packed != NULL));
    for (size_t i = 0; i < a->n_chunks; i++) {
        const struct sw_stored *x = &a->stored[i], *y = &found->stored[i];
        ck_assert_mem_eq(&a->layouts[i], &found->layouts[i], sizeof a->layouts[0]);
        ck_assert_ptr_null(y->tier);
        ck_assert_uint_eq(x->bytes, y->bytes);
        ck_assert_uint_eq(y->n_extents, x->tier == &disk_tier ? 0 : x->n_extents);
        for (unsigned e = 0; e < y->n_extents; e++) {
            ck_assert_uint_eq(x->extents[e].offset, y->extents[e].offset);
            ck_assert_uint_eq(x->extents[e].bytes, y->extents[e].bytes);
        }
        if (a->packed) {
            ck_assert_uint_eq(a->packed[i].offset, found->packed[i].offset);
            ck_assert_uint_eq(a->packed[i].bytes, found->packed[i].bytes);
            ck_assert_int_eq(a->packed[i].is_packed, found->packed[i].is_packed);
        }
    }
}

static struct sw_catalogue *open_new(void) {
    struct sw_catalogue *c = NULL;
    ck_assert_int_eq(sw_catalogue_open(&c, -1, MAX_REGIONS, NULL), 0);
    return c;
}

static uint32_t put(struct sw_catalogue *c, uint32_t slot, uint32_t gen, struct sw_frames *frames, uint32_t replaced) {
    const struct sw_catalogue_region region = {.session = 7,
                                               .slot = slot,
                                               .gen = gen,
                                               .request = 100 + slot,
                                               .piece = slot % 3,
                                               .raw_bytes = frames ? frames->raw_bytes : 5,
                                               .stored_bytes = 77,
                                               .codec = 1,
                                               .reason = 2,
                                               .hints = {.used_us = 1234567890123, .priority = 9, .pinned = slot % 2},
                                               .frames = frames};
    uint32_t record = 0;
    ck_assert_int_eq(sw_catalogue_put_region(c, &region, replaced, &record, NULL), 0);
    ck_assert_uint_ne(record, 0);
    return record;
}

static bool on_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct found *found = arg;
    (void)record;
    ck_assert_uint_eq(found->n_regions, 0);
    found->sessions[found->n_sessions++] = *session;
    return true;
}

static bool on_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    struct found *found = arg;
    found->records[found->n_regions] = record;
    found->regions[found->n_regions++] = *region;
    return true;
}

/* As the next process: by the descriptor alone. */
static struct sw_catalogue *open_again(int fd, struct found *ret) {
    const struct sw_catalogue_visitor visitor = {.session = on_session, .found = on_region, .arg = ret};
    struct sw_catalogue *c = NULL;
    memset(ret, 0, sizeof *ret);
    ck_assert_int_eq(sw_catalogue_open(&c, fd, MAX_REGIONS, NULL), 0);
    ck_assert_int_eq(sw_catalogue_recover(c, &visitor, &ret->n_damaged, NULL), 0);
    return c;
}

static void found_end(struct found *found) {
    for (unsigned i = 0; i < found->n_regions; i++)
        sw_catalogue_frames_free(found->regions[i].frames);
}

static struct found found;

/* ---- tests ---- */

START_TEST(what_was_recorded_is_found) {
    struct sw_frames *frames[] = {frames_new(0, false, 1), frames_new(1, false, 2), frames_new(2200, false, 3),
                                  frames_new(7, true, 4), NULL};
    const struct sw_catalogue_session session = {.number = 7, .uid = 1000, .token = "0123456789abcde"};
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
    ck_assert_mem_eq(&found.sessions[0], &session, sizeof session);
    ck_assert_uint_eq(found.n_regions, 5);
    ck_assert_uint_eq(sw_catalogue_generation(c), 12);
    ck_assert_uint_eq(sw_catalogue_n_slots(c), 9);
    for (uint32_t i = 0; i < 5; i++) {
        const struct sw_catalogue_region *r = &found.regions[4 - i]; /* the newest first */
        ck_assert(r->slot == i && r->gen == 3 && r->session == 7 && r->request == 100 + i && r->piece == i % 3);
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

START_TEST(what_was_freed_or_replaced_is_not) {
    struct sw_frames *one = frames_new(1, false, 1), *many = frames_new(50, false, 2);
    struct sw_catalogue *c = open_new();
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    uint32_t freed = put(c, 1, 1, many, 0), retired = put(c, 2, 1, one, 0), list = 0;
    const uint32_t old = put(c, 3, 1, one, 0);
    (void)put(c, 3, 1, many, old);
    sw_catalogue_free(c, &freed);
    ck_assert_uint_eq(freed, 0);
    sw_catalogue_retire(c, &retired, &list);
    (void)put(c, 4, 1, one, 0); /* into the cells of what was freed */
    sw_catalogue_close(c);

    c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
    ck_assert_uint_eq(found.n_regions, 3);
    ck_assert(found.regions[0].slot == 4);
    ck_assert(found.regions[1].slot == 3 && found.regions[1].frames->n_chunks == 50);
    ck_assert(found.regions[2].slot == 2 && found.regions[2].hints.is_in);
    found_end(&found);
    sw_catalogue_free_retired(c, &list);
    /* What it found, it can free and replace like its own. */
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
START_TEST(the_later_of_two_counts) {
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

START_TEST(damage_is_found) {
    for (size_t byte = 0; byte < 128; byte++) {
        struct sw_frames *frames = frames_new(3, false, 1);
        struct sw_catalogue *c = open_new();
        const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        const uint32_t record = put(c, 1, 1, frames, 0);
        (void)put(c, 2, 1, frames, 0);
        sw_catalogue_close(c);
        uint8_t value;
        ck_assert_int_eq(pread(fd, &value, 1, (off_t)((size_t)record * 128 + byte)), 1);
        value ^= 0x10;
        ck_assert_int_eq(pwrite(fd, &value, 1, (off_t)((size_t)record * 128 + byte)), 1);
        c = open_again(fd, &found);
        /* Hints, the list of retired ones and when it was used are nobody's checksum. */
        const bool counts = byte < 8 || (byte >= 20 && byte < 28) || byte >= 32;
        ck_assert_msg(found.n_regions == (counts ? 1 : 2) && found.n_damaged == counts, "byte %zu: %u regions, %u bad",
                      byte, found.n_regions, found.n_damaged);
        found_end(&found);
        sw_catalogue_close(c);
        frames_end(frames);
    }
}
END_TEST

START_TEST(a_foreign_one_is_refused) {
    static const struct {
        size_t at;
        int code;
    } cases[] = {{0, -SW_EFRAME}, {8, -SW_EVERSION}, {12, -SW_EVERSION}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_catalogue *c = open_new();
        const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
        sw_catalogue_close(c);
        ck_assert_int_eq(pwrite(fd, "\x7f", 1, (off_t)cases[i].at), 1);
        ck_assert_int_eq(sw_catalogue_open(&c, fd, MAX_REGIONS, NULL), cases[i].code);
    }
    struct sw_catalogue *c;
    ck_assert_int_eq(sw_catalogue_open(&c, memfd_create("empty", MFD_CLOEXEC), MAX_REGIONS, NULL), -SW_EFRAME);
}
END_TEST

/* It goes with the memory; one that an earlier version has made has none. */
START_TEST(each_has_an_epoch_of_its_own) {
    static const uint8_t none[sizeof(uint64_t)];
    struct sw_catalogue *c = open_new(), *other = open_new();
    const uint64_t epoch = sw_catalogue_epoch(c);
    ck_assert_uint_ne(epoch, 0);
    ck_assert_uint_ne(epoch, sw_catalogue_epoch(other));
    ck_assert_uint_eq(sw_catalogue_epoch(NULL), 0);
    sw_catalogue_close(other);
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    sw_catalogue_close(c);
    c = open_again(fcntl(fd, F_DUPFD_CLOEXEC, 0), &found);
    ck_assert_uint_eq(sw_catalogue_epoch(c), epoch);
    sw_catalogue_close(c);
    ck_assert_int_eq(pwrite(fd, none, sizeof none, 24), sizeof none);
    c = open_again(fd, &found);
    ck_assert_uint_eq(sw_catalogue_epoch(c), 0);
    sw_catalogue_close(c);
}
END_TEST

START_TEST(a_full_one_says_so) {
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

START_TEST(a_signal_while_it_grows_costs_nothing) {
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
    tcase_add_test(tcase, what_was_recorded_is_found);
    tcase_add_test(tcase, a_forgotten_request_is_not_found);
    tcase_add_test(tcase, what_was_freed_or_replaced_is_not);
    tcase_add_test(tcase, the_later_of_two_counts);
    tcase_add_test(tcase, damage_is_found);
    tcase_add_test(tcase, a_foreign_one_is_refused);
    tcase_add_test(tcase, each_has_an_epoch_of_its_own);
    tcase_add_test(tcase, a_full_one_says_so);
    tcase_add_test(tcase, a_signal_while_it_grows_costs_nothing);
    tcase_add_test(tcase, killed_at_any_moment);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
