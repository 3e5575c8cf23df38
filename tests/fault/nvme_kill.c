/* kill -9 at random moments of a process that keeps an NVMe tier busy, again and again in one directory. Frames that
 * were reported as stored, and whose release had not begun, are found with the same bytes; all found frames are whole;
 * the space adds up. */
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)

enum { N_SLOTS = 24, MAX_FRAME_BYTES = 96 << 10, MAX_DELAY_US = 6000, N_CYCLES = 120 };

/* The child's last state of a slot. Shared memory: every store is there after a kill. */
enum state { EMPTY, WRITING, STORED, RELEASING };

struct slot {
    atomic_uint state;
    atomic_uint version; /* of the frame that `state` speaks of; rises */
};

struct shared {
    struct slot slots[N_SLOTS];
    atomic_uint written; /* frames, by this cycle's child */
};

/* A frame's name: which slot, which version. Its length follows from it. */
static uint64_t seed_of(unsigned slot, unsigned version) {
    return (uint64_t)slot << 32 | version;
}

static uint64_t bytes_of(uint64_t seed) {
    uint64_t state = seed;
    return 1 + sw_random(&state) % MAX_FRAME_BYTES;
}

static uint64_t blocks_of(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK;
}

/* --- the child --- */

struct child;

struct work {
    struct child *child;
    unsigned index;
    struct sw_tier_io io;
    struct sw_stored stored;
    struct sw_extent memory;
};

struct child {
    struct shared *shared;
    struct sw_tier *tier;
    struct work works[N_SLOTS];
};

static void on_written(struct sw_tier_io *io, void *arg) {
    struct work *w = arg;
    if (io->err.code)
        abort(); /* not the death that the parent expects */
    atomic_fetch_add(&w->child->shared->written, 1);
    atomic_store(&w->child->shared->slots[w->index].state, STORED);
}

static bool take_stored(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                        bool doubtful) {
    struct child *child = arg;
    if (doubtful)
        abort();
    uint64_t seed;
    memcpy(&seed, key, sizeof seed);
    const struct slot *slot = &child->shared->slots[seed >> 32];
    if (atomic_load(&slot->state) != STORED || atomic_load(&slot->version) != (unsigned)seed)
        return false;
    child->works[seed >> 32].stored = *stored;
    return true;
}

static void write_frame(struct work *w) {
    struct slot *slot = &w->child->shared->slots[w->index];
    struct sw_err err;
    const unsigned version = atomic_load(&slot->version) + 1;
    const uint64_t seed = seed_of(w->index, version);
    if (w->child->tier->ops->reserve(w->child->tier, bytes_of(seed), &w->stored, &err))
        return; /* full */
    sw_nvme_fill(w->memory.memory, w->stored.bytes, seed);
    w->io = (struct sw_tier_io){
        .kind = SW_TIER_WRITE, .stored = &w->stored, .memory = &w->memory, .n_memory = 1, .done = on_written, .arg = w};
    memcpy(w->io.key, &seed, sizeof seed);
    atomic_store(&slot->version, version);
    atomic_store(&slot->state, WRITING);
    w->child->tier->ops->submit(w->child->tier, &w->io);
}

static void release_frame(struct work *w) {
    struct slot *slot = &w->child->shared->slots[w->index];
    atomic_store(&slot->state, RELEASING);
    w->child->tier->ops->release(w->child->tier, &w->stored);
    atomic_store(&slot->state, EMPTY);
}

/* Writes and releases until it is killed. Calls nothing of Check, whose pipe to the runner a kill would leave torn. */
__attribute__((noreturn)) static void child_main(struct shared *shared, const struct sw_tier_nvme_config *config,
                                                 uint8_t *memory, uint64_t seed) {
    static struct child child;
    struct sw_err err;
    child.shared = shared;
    if (sw_tier_nvme_open(&child.tier, config, &err))
        abort();
    for (unsigned i = 0; i < N_SLOTS; i++)
        child.works[i] = (struct work){
            .child = &child, .index = i, .memory = {memory + (size_t)i * MAX_FRAME_BYTES, 0, MAX_FRAME_BYTES}};
    (void)child.tier->ops->recover(child.tier, &(struct sw_tier_recovery){.take = take_stored, .arg = &child}, NULL);
    for (;;) {
        struct work *w = &child.works[sw_random(&seed) % N_SLOTS];
        switch (atomic_load(&shared->slots[w->index].state)) {
        case EMPTY:
            write_frame(w);
            break;
        case STORED:
            release_frame(w);
            break;
        default: /* on its way */
            (void)sched_yield();
            break;
        }
    }
}

/* --- the parent --- */

struct check {
    struct shared *shared;
    struct sw_tier *tier;
    bool found[N_SLOTS];
    struct sw_stored stored[N_SLOTS];
    uint64_t blocks;
    unsigned frames;
};

/* Every frame that is found has the bytes of its name; the latest version of a slot is kept. */
static bool take_all(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored, bool doubtful) {
    struct check *c = arg;
    ck_assert(!doubtful); /* a kill damages nothing */
    struct sw_stored copy = *stored;
    uint64_t seed;
    memcpy(&seed, key, sizeof seed);
    const unsigned index = (unsigned)(seed >> 32), version = (unsigned)seed;
    ck_assert_uint_lt(index, N_SLOTS);
    const struct slot *slot = &c->shared->slots[index];
    ck_assert_uint_le(version, atomic_load(&slot->version));
    ck_assert_uint_eq(stored->bytes, bytes_of(seed));
    ck_assert_msg(sw_nvme_holds(c->tier, &copy, seed), "slot %u version %u, state %u of version %u", index, version,
                  atomic_load(&slot->state), atomic_load(&slot->version));
    if (version != atomic_load(&slot->version))
        return false; /* its release had begun: the child went on to the next one */
    ck_assert_msg(!c->found[index], "slot %u version %u is there twice", index, version);
    c->found[index] = true;
    c->stored[index] = copy;
    c->blocks += blocks_of(stored->bytes);
    c->frames++;
    return true;
}

/* Opens the tier that the child left, compares it with the child's states, and writes down its content. */
static void check_directory(struct shared *shared, const struct sw_tier_nvme_config *config) {
    struct check c = {.shared = shared, .tier = sw_nvme_open(config)};
    struct sw_tier_stats stats;
    (void)c.tier->ops->recover(c.tier, &(struct sw_tier_recovery){.take = take_all, .arg = &c}, NULL);
    for (unsigned i = 0; i < N_SLOTS; i++) {
        const unsigned state = atomic_load(&shared->slots[i].state);
        ck_assert_msg(state != STORED || c.found[i], "slot %u was stored and is lost", i);
        /* WRITING: it was committed, but the child had not seen that yet. EMPTY, RELEASING: not recorded yet. */
        atomic_store(&shared->slots[i].state, c.found[i] ? STORED : EMPTY);
    }
    c.tier->ops->stats(c.tier, &stats);
    ck_assert_uint_eq(stats.used_bytes, c.blocks * BLOCK);
    ck_assert_uint_eq(stats.committed_frames, c.frames);
    c.tier->ops->close(c.tier);
}

static void check_space(const struct sw_tier_nvme_config *config, struct shared *shared) {
    struct check c = {.shared = shared, .tier = sw_nvme_open(config)};
    struct sw_stored all;
    struct sw_err err = {0};
    (void)c.tier->ops->recover(c.tier, &(struct sw_tier_recovery){.take = take_all, .arg = &c}, NULL);
    for (unsigned i = 0; i < N_SLOTS; i++)
        c.tier->ops->release(c.tier, &c.stored[i]);
    ck_assert_int_eq(c.tier->ops->reserve(c.tier, config->capacity_bytes, &all, &err), 0);
    ck_assert_uint_eq(all.n_extents, 1);
    c.tier->ops->release(c.tier, &all);
    c.tier->ops->close(c.tier);
}

/* --- death from inside --- */

/* The child's `countdown`-th request of a kind moves some of its bytes, then the process is killed. Requests of the
 * manifest are no whole blocks, and long when it is rewritten. */
static struct {
    bool manifest;
    size_t min_bytes;
    uint64_t random;
    atomic_int countdown; /* 0: no kill */
} death;

static ssize_t deadly_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    if ((bytes % BLOCK != 0) == death.manifest && bytes >= death.min_bytes && atomic_load(&death.countdown) > 0 &&
        atomic_fetch_sub(&death.countdown, 1) == 1) {
        size_t part = (size_t)(death.random % (bytes + 1));
        (void)!pwrite(fd, data, death.manifest ? part : part / BLOCK * BLOCK, offset);
        (void)kill(getpid(), SIGKILL);
    }
    return pwrite(fd, data, bytes, offset);
}

static const struct sw_nvme_file_ops deadly_files = {.pwrite = deadly_pwrite, .pread = pread};

/* With io_uring only the manifest's requests come this way. */
static void arm_death(const struct sw_tier_nvme_config *config, uint64_t random) {
    death.manifest = config->method != SW_TIER_NVME_THREADS || random % 2;
    death.random = random >> 16;
    const bool rewriting = death.manifest && random % 8 == 1;
    death.min_bytes = rewriting ? 500 : 0;
    atomic_store(&death.countdown, rewriting ? 1 : 1 + (int)((random >> 8) % 100));
}

/* --- tests --- */

/* Kills the child at a random moment: after some frames, or, in one cycle of four, maybe while it opens the tier. */
static void kill_child(pid_t child, struct shared *shared, unsigned cycle, uint64_t random) {
    siginfo_t info = {0};
    while (cycle % 4 && atomic_load(&shared->written) < (random >> 32) % 32) {
        ck_assert_int_eq(waitid(P_PID, (id_t)child, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        ck_assert_msg(info.si_pid == 0, "the child died by itself");
        (void)usleep(100);
    }
    (void)usleep((useconds_t)(random % MAX_DELAY_US));
    (void)kill(child, SIGKILL);
}

static void kill_again_and_again(struct sw_tier_nvme_config config, uint64_t seed) {
    struct sw_nvme_folder folder = sw_nvme_folder_new();
    struct shared *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    uint8_t *memory = sw_nvme_buffer((uint64_t)N_SLOTS * MAX_FRAME_BYTES); /* the child's */
    unsigned long written = 0;
    config.directory = folder.path;
    for (unsigned i = 0; i < N_CYCLES; i++) {
        const uint64_t random = sw_random(&seed);
        int status = 0;
        atomic_store(&shared->written, 0);
        pid_t child = fork();
        ck_assert_int_ge(child, 0);
        if (child == 0) {
            if (config.files)
                arm_death(&config, random);
            child_main(shared, &config, memory, random);
        }
        if (!config.files)
            kill_child(child, shared, i, random);
        ck_assert_int_eq(waitpid(child, &status, 0), child);
        ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %d", status);
        written += atomic_load(&shared->written);
        check_directory(shared, &config);
    }
    check_space(&config, shared);
    (void)fprintf(stderr, "%d kills, %lu frames written\n", N_CYCLES, written);
    ck_assert_uint_gt(written, N_CYCLES);
    (void)munmap(shared, sizeof *shared);
    free(memory);
    sw_nvme_folder_free(&folder);
}

/* Room for about half of what the child would like to hold: space is reused all the time. */
static const struct sw_tier_nvme_config small_tier = {
    .capacity_bytes = 768 << 10, .file_bytes = 300 << 10, .queue_depth = 6, .method = SW_TIER_NVME_AUTO};
static const enum sw_tier_nvme_method methods[] = {SW_TIER_NVME_AUTO, SW_TIER_NVME_THREADS};

START_TEST(test_killed_at_random_moments) {
    struct sw_tier_nvme_config config = small_tier;
    config.method = methods[_i];
    kill_again_and_again(config, 1 + (uint64_t)_i);
}
END_TEST

START_TEST(test_killed_in_the_middle_of_a_request) {
    struct sw_tier_nvme_config config = small_tier;
    config.method = methods[_i];
    config.files = &deadly_files;
    kill_again_and_again(config, 11 + (uint64_t)_i);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("nvme_kill");
    TCase *tcase = tcase_create("nvme_kill");
    sw_test_slow(tcase, 90);
    tcase_add_loop_test(tcase, test_killed_at_random_moments, 0, 2);
    tcase_add_loop_test(tcase, test_killed_in_the_middle_of_a_request, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
