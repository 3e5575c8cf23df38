/* The NVMe tier: every length, full, many transfers at once, reopening, and which process may have the folder. */
#include "spill/tier/nvme/nvme_check.h"
#include "spill/tier/nvme/nvme_files.h"
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)

/* --- transfers --- */

START_TEST(test_every_length_comes_back) {
    static const uint64_t lengths[] = {1,       4095,        4096,        4097,        MIB - 1,
                                       MIB + 1, 2 * MIB + 7, 3 * MIB - 9, 5 * MIB + 1, 9 * MIB};
    enum { N = sizeof lengths / sizeof lengths[0] };
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    struct sw_tier_nvme_config config = sw_nvme_config_of(32 * MIB, sw_nvme_methods[_i]);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_tier_nvme_info info;
    struct sw_stored stored[N];
    struct sw_err err = {0};
    uint64_t used = 0;
    sw_tier_nvme_info(tier, &info);
    ck_assert_int_eq(info.method, sw_nvme_methods[_i]);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_msg(sw_nvme_put(tier, lengths[i], i, &stored[i], &err) == 0, "%s", err.msg);
        ck_assert_ptr_null(stored[i].extents[0].memory);
        ck_assert_uint_eq(stored[i].bytes, lengths[i]);
        used += (lengths[i] + BLOCK - 1) / BLOCK * BLOCK;
        ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, used);
        ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, i + 1);
    }
    for (unsigned i = 0; i < N; i++)
        ck_assert_msg(sw_nvme_holds(tier, &stored[i], i), "%llu bytes", (unsigned long long)lengths[i]);
    for (unsigned i = 0; i < N; i++)
        tier->ops->release(tier, &stored[i]);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_a_full_tier_refuses_and_frames_lie_in_extents) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(8 * MIB + 100, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored small[32], large, none;
    struct sw_err err = {0};
    ck_assert_uint_eq(sw_nvme_stats(tier).capacity_bytes, 8 * MIB);
    ck_assert_uint_eq(sw_nvme_stats(tier).backed_bytes, 8 * MIB);
    for (unsigned i = 0; i < 32; i++)
        ck_assert_int_eq(sw_nvme_put(tier, 256 * KIB, i, &small[i], &err), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &none, &err), -SW_ENOSPACE);
    ck_assert_uint_gt(strlen(err.msg), 0);
    for (unsigned i = 0; i < 32; i += 2)
        tier->ops->release(tier, &small[i]);
    ck_assert_int_eq(tier->ops->reserve(tier, 4 * MIB + 1, &none, &err), -SW_ENOSPACE);
    ck_assert_int_eq(sw_nvme_put(tier, 4 * MIB - 5, 99, &large, &err), 0);
    ck_assert_uint_eq(large.n_extents, 16);
    ck_assert(sw_nvme_holds(tier, &large, 99));
    for (unsigned i = 1; i < 32; i += 2)
        ck_assert(sw_nvme_holds(tier, &small[i], i));
    tier->ops->close(tier); /* and its pieces are found again, in order */
    tier = sw_nvme_open(&config);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 8 * MIB);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, 17);
    tier->ops->close(tier);
}
END_TEST

/* One of many transfers: written, then read back by the callback, a run of memory at a time. */
struct crowd {
    struct sw_tier *tier;
    struct sw_tier_io io;
    struct sw_stored stored;
    struct sw_extent memory[4];
    uint8_t *data;
    uint64_t seed;
    atomic_uint *n_ended;
    unsigned calls;
};

static void on_crowd(struct sw_tier_io *io, void *arg) {
    struct crowd *c = arg;
    c->calls++;
    if (io->err.code == 0 && io->kind == SW_TIER_WRITE) {
        memset(c->data, 0, c->stored.bytes);
        io->kind = SW_TIER_READ;
        c->tier->ops->submit(c->tier, io);
        return;
    }
    atomic_fetch_add(c->n_ended, 1);
}

static void crowd_submit(struct crowd *c, struct sw_tier *tier, uint64_t seed, atomic_uint *n_ended) {
    struct sw_err err = {0};
    uint64_t bytes = 4 * BLOCK + seed * 7919 % (MIB + MIB / 2);
    *c = (struct crowd){.tier = tier, .seed = seed, .n_ended = n_ended};
    ck_assert_int_eq(tier->ops->reserve(tier, bytes, &c->stored, &err), 0);
    c->data = sw_nvme_buffer(bytes);
    sw_nvme_fill(c->data, bytes, seed);
    uint64_t at = 0;
    for (unsigned i = 0; i < 4; i++) {
        c->memory[i].memory = c->data + at;
        c->memory[i].bytes = i < 3 ? (bytes - at) / 2 / BLOCK * BLOCK : bytes - at;
        at += c->memory[i].bytes;
    }
    c->io = (struct sw_tier_io){
        .kind = SW_TIER_WRITE, .stored = &c->stored, .memory = c->memory, .n_memory = 4, .done = on_crowd, .arg = c};
    tier->ops->submit(tier, &c->io);
}

/* _i: the method; with a key, more writes than it encrypts at once wait for their turn. */
/* As figures and reports of damage have them. The files are of 1 MiB and 3 blocks. */
START_TEST(test_where_frames_lie_and_how_long_the_gaps_are) {
    const uint64_t bytes = 512 * KIB, file_bytes = MIB + 3 * BLOCK;
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored stored[7];
    for (unsigned i = 0; i < 7; i++) {
        char file[SW_TIER_FILE_BYTES], expected[SW_TIER_FILE_BYTES];
        uint64_t offset;
        ck_assert_int_eq(sw_nvme_put(tier, bytes, i, &stored[i], NULL), 0);
        tier->ops->locate(tier, &stored[i], file, &offset);
        (void)snprintf(expected, sizeof expected, "data-%04u", (unsigned)(i * bytes / file_bytes));
        ck_assert_str_eq(file, expected);
        ck_assert_uint_eq(offset, i * bytes % file_bytes);
    }
    ck_assert_uint_eq(sw_nvme_stats(tier).largest_free_bytes, bytes);
    tier->ops->release(tier, &stored[1]);
    tier->ops->release(tier, &stored[3]);
    ck_assert_uint_eq(sw_nvme_stats(tier).largest_free_bytes, bytes);
    tier->ops->release(tier, &stored[2]);
    ck_assert_uint_eq(sw_nvme_stats(tier).largest_free_bytes, 3 * bytes);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_many_transfers_at_once_each_end_once) {
    enum { N = 64 };
    static struct crowd crowd[N];
    struct sw_nvme_key key;
    atomic_uint n_ended = 0;
    if (!sw_nvme_allowed(sw_nvme_methods[_i % SW_NVME_N_METHODS]))
        return;
    const bool encrypts = _i >= SW_NVME_N_METHODS;
    struct sw_tier_nvme_config config = sw_nvme_config_of(128 * MIB, sw_nvme_methods[_i % SW_NVME_N_METHODS]);
    config.queue_depth = _i % SW_NVME_N_METHODS ? 5 : 64;
    if (encrypts)
        ck_assert_int_eq(sw_nvme_key_make(&key, NULL), 0);
    config.key = encrypts ? &key : NULL;
    struct sw_tier *tier = sw_nvme_open(&config);
    for (unsigned i = 0; i < N; i++)
        crowd_submit(&crowd[i], tier, i + 1, &n_ended);
    while (atomic_load(&n_ended) < N)
        (void)usleep(200);
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(crowd[i].io.err.code, 0);
        ck_assert_uint_eq(crowd[i].calls, 2);
        ck_assert(sw_nvme_same(crowd[i].data, crowd[i].stored.bytes, crowd[i].seed));
        tier->ops->release(tier, &crowd[i].stored);
        free(crowd[i].data);
    }
    tier->ops->close(tier);
    if (encrypts)
        sw_nvme_key_fini(&key);
}
END_TEST

/* Puts, checks and releases frames of its own; the space of one is soon another thread's. */
struct churn {
    struct sw_tier *tier;
    uint64_t seed;
    bool wrong;
};

static void *churn_main(void *arg) {
    struct churn *c = arg;
    struct sw_stored held[4] = {0};
    uint64_t seeds[4] = {0}, state = c->seed;
    for (unsigned i = 0; i < 150; i++) {
        unsigned k = (unsigned)(sw_random(&state) % 4);
        struct sw_err err;
        c->wrong |= held[k].extents && !sw_nvme_holds(c->tier, &held[k], seeds[k]);
        c->tier->ops->release(c->tier, &held[k]);
        seeds[k] = c->seed * 1000 + i;
        int rc = sw_nvme_put(c->tier, 1 + sw_random(&state) % (200 * KIB), seeds[k], &held[k], &err);
        c->wrong |= rc != 0 && rc != -SW_ENOSPACE;
    }
    for (unsigned k = 0; k < 4; k++)
        c->tier->ops->release(c->tier, &held[k]);
    return NULL;
}

START_TEST(test_threads_share_it) {
    enum { N = 4 };
    struct churn churn[N];
    pthread_t threads[N];
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    struct sw_tier_nvme_config config =
        sw_nvme_config_of(MIB, sw_nvme_methods[_i]); /* room for about half of the frames */
    struct sw_tier *tier = sw_nvme_open(&config);
    for (unsigned i = 0; i < N; i++) {
        churn[i] = (struct churn){.tier = tier, .seed = i + 1};
        ck_assert_int_eq(pthread_create(&threads[i], NULL, churn_main, &churn[i]), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
        ck_assert(!churn[i].wrong);
    }
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, 0);
    tier->ops->close(tier);
}
END_TEST

/* Makes the system call fail, as in containers and on hardened hosts. */
static void forbid_io_uring(void) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof filter / sizeof filter[0], .filter = filter};
    ck_assert_int_eq(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    ck_assert_int_eq(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program), 0);
}

START_TEST(test_threads_replace_a_forbidden_io_uring) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, SW_TIER_NVME_URING);
    struct sw_tier *tier = NULL;
    struct sw_tier_nvme_info info;
    struct sw_stored stored;
    struct sw_err err = {0};
    forbid_io_uring();
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ENOTSUP);
    config.method = SW_TIER_NVME_AUTO;
    tier = sw_nvme_open(&config);
    sw_tier_nvme_info(tier, &info);
    ck_assert_int_eq(info.method, SW_TIER_NVME_THREADS);
    ck_assert_int_eq(sw_nvme_put(tier, 3 * MIB, 1, &stored, &err), 0);
    ck_assert(sw_nvme_holds(tier, &stored, 1));
    tier->ops->close(tier);
}
END_TEST

/* --- reopening --- */

START_TEST(test_committed_frames_are_found_again) {
    if (!sw_nvme_allowed(sw_nvme_methods[_i]))
        return;
    struct sw_tier_nvme_config config = sw_nvme_config_of(16 * MIB, sw_nvme_methods[_i]);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored stored[8], reserved;
    struct sw_nvme_recovered r = {.refuse = 5};
    struct sw_err err = {0};
    for (unsigned i = 1; i < 8; i++)
        ck_assert_int_eq(sw_nvme_put(tier, (uint64_t)i * 300001, i, &stored[i], &err), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, MIB, &reserved, &err), 0);
    tier->ops->release(tier, &stored[3]);
    tier->ops->release(tier, &reserved);
    tier->ops->close(tier);

    tier = sw_nvme_open(&config);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, 6);
    (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = &r}, NULL);
    ck_assert_uint_eq(r.n, 5);
    (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = &r}, NULL); /* once only */
    ck_assert_uint_eq(r.n, 5);
    ck_assert_int_eq(sw_nvme_put(tier, 2 * MIB, 8, &stored[0], &err), 0);
    ck_assert_uint_eq(r.seeds[4], 1); /* the newest came first */
    tier->ops->release(tier, &r.stored[4]);
    tier->ops->close(tier);

    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(2, 4, 6, 7, 8), &r);
    for (unsigned i = 0; i < r.n; i++)
        tier->ops->release(tier, &r.stored[i]);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 16 * MIB, &reserved, &err), 0);
    ck_assert_uint_eq(reserved.n_extents, 1); /* all is one extent again */
    tier->ops->release(tier, &reserved);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(0), &r);
    tier->ops->close(tier);
}
END_TEST

START_TEST(test_the_manifest_does_not_grow_without_end) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored keep[3], other;
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    off_t longest = 0;
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(sw_nvme_put(tier, 1000 + i, 1 + i, &keep[i], &err), 0);
    for (unsigned i = 0; i < 2000; i++) {
        ck_assert_int_eq(sw_nvme_put(tier, 100, 1000 + i, &other, &err), 0);
        tier->ops->release(tier, &other);
        longest = sw_nvme_file_bytes("manifest") > longest ? sw_nvme_file_bytes("manifest") : longest;
        if (i == 1000) /* moves to the end of the next one */
            tier->ops->release(tier, &keep[0]);
        if (i == 1001)
            ck_assert_int_eq(sw_nvme_put(tier, 1000, 4, &keep[0], &err), 0);
    }
    ck_assert_int_ge(longest, 60 << 10); /* else it was not put to the test */
    ck_assert_int_lt(longest, 70 << 10);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(2, 3, 4), &r);
    tier->ops->close(tier);
    ck_assert_int_eq(sw_nvme_file_bytes("manifest.new"), -1);
}
END_TEST

START_TEST(test_a_change_of_size_keeps_the_frames_or_is_refused) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, SW_TIER_NVME_AUTO), other = config;
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored stored;
    struct sw_nvme_recovered r;
    struct sw_err err = {0};
    const uint64_t want[SW_NVME_MAX_WANT] = {1};
    ck_assert_int_eq(sw_nvme_put(tier, 2 * MIB, 1, &stored, &err), 0);
    tier->ops->close(tier);
    ck_assert_int_ge(sw_nvme_file_bytes("data-0003"), 0);

    other.file_bytes = 2 * MIB;
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &other, &err), -SW_ECONFIG);
    other = config;
    other.capacity_bytes = MIB;
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &other, &err), -SW_ECONFIG);
    other.capacity_bytes = 6 * MIB;
    tier = sw_nvme_reopen(&other, want, &r);
    ck_assert_int_eq(sw_nvme_put(tier, 4 * MIB, 2, &stored, &err), 0);
    tier->ops->release(tier, &stored);
    tier->ops->close(tier);
    other.capacity_bytes = 3 * MIB;
    tier = sw_nvme_reopen(&other, want, &r);
    ck_assert_int_eq(sw_nvme_file_bytes("data-0003"), -1);
    tier->ops->release(tier, &r.stored[0]);
    tier->ops->close(tier);

    other.file_bytes = MIB; /* nothing is there any more: any size will do */
    tier = sw_nvme_reopen(&other, SW_NVME_FRAMES(0), &r);
    ck_assert_int_eq(sw_nvme_put(tier, 3 * MIB, 1, &stored, &err), 0);
    tier->ops->close(tier);
    ck_assert_int_eq(sw_nvme_file_bytes("data-0000"), (off_t)MIB);
    tier = sw_nvme_reopen(&other, want, &r);
    tier->ops->close(tier);
}
END_TEST

/* --- who may have it --- */

START_TEST(test_a_second_process_and_open_folders_are_refused) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config), *second = NULL;
    struct sw_err err = {0};
    char path[96], missing[96];
    struct stat st;
    static const char *const names[] = {"lock", "manifest", "data-0000", "data-0001"};
    ck_assert_int_eq(sw_tier_nvme_open(&second, &config, &err), -SW_EBUSY);
    ck_assert_str_eq(err.msg, "is in use by another process: end it, or name another folder");
    ck_assert_uint_eq(sw_nvme_stats(tier).backed_bytes, 2 * MIB);
    for (unsigned i = 0; i < 4; i++) {
        ck_assert_int_eq(stat(sw_nvme_path(path, names[i]), &st), 0);
        ck_assert_uint_eq(st.st_mode & 0777, 0600);
    }
    tier->ops->close(tier);

    ck_assert_int_eq(chmod(sw_nvme_path(path, ""), 0770), 0);
    ck_assert_int_eq(sw_tier_nvme_open(&second, &config, &err), -SW_EACCES);
    ck_assert_str_eq(err.msg, "may be written to by others: chmod go-w it");
    ck_assert_int_eq(chmod(sw_nvme_path(path, ""), 0702), 0);
    ck_assert_int_eq(sw_tier_nvme_open(&second, &config, &err), -SW_EACCES);
    ck_assert_int_eq(chmod(sw_nvme_path(path, ""), 0700), 0);

    config.directory = sw_nvme_path(missing, "none/at/all");
    ck_assert_int_eq(sw_tier_nvme_open(&second, &config, &err), -SW_ENOENT);
    config.directory = sw_nvme_path(missing, "made");
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
    ck_assert_int_eq(stat(missing, &st), 0);
    ck_assert_uint_eq(st.st_mode & 0777, 0700);
    struct sw_nvme_folder made;
    ck_assert_int_lt(snprintf(made.path, sizeof made.path, "%s", missing), (int)sizeof made.path);
    sw_nvme_folder_free(&made);
}
END_TEST

static void write_text(const char *name, const char *text) {
    char path[96];
    FILE *file = fopen(sw_nvme_path(path, name), "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void ck_text(const char *name, const char *text) {
    char path[96], found[64] = "";
    FILE *file = fopen(sw_nvme_path(path, name), "r");
    ck_assert_msg(file != NULL, "%s is gone", name);
    found[fread(found, 1, sizeof found - 1, file)] = 0;
    (void)fclose(file);
    ck_assert_str_eq(found, text);
}

/* Foreign files may have the names of the tier's files: then nothing is written, made or removed, even if no frame is
 * known. */
START_TEST(test_foreign_files_are_left_alone) {
    static const char *const names[] = {"data-0000", "data-0007",    "data-12345",
                                        "manifest",  "manifest.new", "key-check"};
    static const char theirs[] = "somebody's letters, 1998 to 2024";
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    char path[96];
    for (unsigned with_lock = 0; with_lock < 2; with_lock++)
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            write_text(names[i], theirs);
            if (with_lock)
                write_text("lock", "");
            config.unwanted = i % 2;
            ck_assert_msg(sw_tier_nvme_open(&tier, &config, &err) == -SW_EEXIST, "%s", names[i]);
            ck_assert_str_eq(err.msg, "not a folder of an NVMe tier: empty it, or name another");
            ck_text(names[i], theirs);
            ck_assert_int_eq(unlink(sw_nvme_path(path, names[i])), 0);
            if (with_lock)
                ck_assert_int_eq(unlink(sw_nvme_path(path, "lock")), 0);
            for (size_t k = 0; k < sizeof names / sizeof names[0]; k++)
                ck_assert_int_eq(sw_nvme_file_bytes(names[k]), -1);
            ck_assert_int_eq(sw_nvme_file_bytes("lock"), -1);
        }
    write_text("lock", theirs);
    ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_EEXIST);
    ck_text("lock", theirs);
    ck_assert_int_eq(unlink(sw_nvme_path(path, "lock")), 0);
    write_text("data-2024.csv", theirs); /* not one of ours */
    tier = sw_nvme_open(&config);
    tier->ops->close(tier);
    ck_text("data-2024.csv", theirs);
}
END_TEST

/* Killed at the very first start, or while the folder was emptied; and made by a version that left the lock empty. */
START_TEST(test_folders_of_a_tier_are_recognized) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_err err = {0};
    char path[96];
    tier->ops->close(tier);
    ck_assert_int_eq(unlink(sw_nvme_path(path, "manifest")), 0);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(0), &r);
    ck_assert_int_eq(sw_nvme_put(tier, MIB, 1, &stored, &err), 0);
    tier->ops->close(tier);
    write_text("lock", "");
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    tier->ops->close(tier);
    ck_text("lock", SW_NVME_LOCK_MAGIC);
    ck_assert_int_eq(unlink(sw_nvme_path(path, "lock")), 0);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1), &r);
    tier->ops->close(tier);
    ck_text("lock", SW_NVME_LOCK_MAGIC);
    write_text("manifest", ""); /* as a power cut may leave it */
    config.unwanted = true;
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(0), &r);
    tier->ops->close(tier);
}
END_TEST

/* A process that was killed while the kernel was at work for it: its descriptor of a data file is still locked. */
struct predecessor {
    int fd;
    atomic_bool gone;
};

static void *predecessor_main(void *arg) {
    struct predecessor *p = arg;
    (void)usleep(50000);
    atomic_store(&p->gone, true);
    (void)close(p->fd);
    return NULL;
}

START_TEST(test_opening_waits_for_transfers_of_a_killed_predecessor) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct predecessor p = {0};
    pthread_t thread;
    char path[96];
    tier->ops->close(tier);
    p.fd = open(sw_nvme_path(path, "data-0001"), O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(p.fd, 0);
    ck_assert_int_eq(flock(p.fd, LOCK_EX | LOCK_NB), 0);
    ck_assert_int_eq(pthread_create(&thread, NULL, predecessor_main, &p), 0);
    tier = sw_nvme_open(&config);
    ck_assert(atomic_load(&p.gone));
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    tier->ops->close(tier);
}
END_TEST

static bool has_ended(int io_pipe, unsigned ms) {
    struct pollfd end = {.fd = io_pipe, .events = POLLIN};
    return poll(&end, 1, (int)ms) == 1 && (end.revents & POLLHUP);
}

/* The other end of the pipe shows when the tier can do no more I/O: it was closed, or its process is gone and the
 * kernel has ended its requests. */
START_TEST(test_the_in_flight_pipe_closes_after_the_last_request) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(2 * MIB, sw_nvme_methods[_i]);
    struct sw_stored stored;
    struct sw_err err = {0};
    int ends[2], said[2];
    char byte = 0;
    if (!sw_nvme_allowed(config.method))
        return;
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    config.io_pipe = &ends[1];
    struct sw_tier *tier = sw_nvme_open(&config);
    (void)close(ends[1]);
    ck_assert_int_eq(sw_nvme_put(tier, 100000, 1, &stored, &err), 0);
    ck_assert(!has_ended(ends[0], 20));
    tier->ops->close(tier);
    ck_assert(has_ended(ends[0], 10000));
    (void)close(ends[0]);

    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(said, O_CLOEXEC), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)close(ends[0]);
        tier = sw_nvme_open(&config);
        (void)close(ends[1]);
        if (sw_nvme_put(tier, 100000, 2, &stored, &err) || write(said[1], &byte, 1) != 1)
            _exit(1);
        for (;;)
            (void)sw_nvme_holds(tier, &stored, 2);
    }
    ck_assert_int_gt(pid, 0);
    (void)close(ends[1]);
    ck_assert_int_eq(read(said[0], &byte, 1), 1);
    ck_assert(!has_ended(ends[0], 20));
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
    ck_assert(has_ended(ends[0], 10000));
    (void)close(ends[0]);
    (void)close(said[0]);
    (void)close(said[1]);
}
END_TEST

START_TEST(test_impossible_configurations_are_refused) {
    static const struct {
        uint64_t capacity, file;
        unsigned depth;
    } wrong[] = {{0, MIB, 8},       {BLOCK - 1, MIB, 8},      {MIB, 0, 8},
                 {MIB, MIB + 1, 8}, {UINT64_MAX, MIB, 8},     {MIB, MIB, 0},
                 {MIB, MIB, 1025},  {4097 * BLOCK, BLOCK, 8}, {UINT64_MAX, UINT64_C(1) << 60, 8}};
    struct sw_tier *tier = NULL;
    for (unsigned i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        struct sw_tier_nvme_config config = sw_nvme_config_of(wrong[i].capacity, SW_TIER_NVME_AUTO);
        struct sw_err err = {0};
        config.file_bytes = wrong[i].file;
        config.queue_depth = wrong[i].depth;
        ck_assert_msg(sw_tier_nvme_open(&tier, &config, &err) == -SW_EINVAL, "row %u", i);
        ck_assert_uint_gt(strlen(err.msg), 0);
    }
    ck_assert_ptr_null(tier);
}
END_TEST

/* A tier that does not open closes nothing that it has not opened, such as the first descriptor. */
START_TEST(what_does_not_open_closes_nothing) {
    struct sw_tier_nvme_config nowhere = sw_nvme_config_of(MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = NULL;
    const int root = open("/", O_PATH | O_CLOEXEC);
    ck_assert_int_eq(dup2(root, STDIN_FILENO), STDIN_FILENO);
    nowhere.directory = "/nonexistent/folder";
    ck_assert_int_lt(sw_tier_nvme_open(&tier, &nowhere, NULL), 0);
    ck_assert_int_ge(fcntl(STDIN_FILENO, F_GETFD), 0);
    (void)close(root);
}
END_TEST

/* Content that is no frame lies where the check says. */
static void ck_lies_there(const struct sw_checked_frame *frame, void *arg) {
    const uint64_t file_bytes = *(const uint64_t *)arg, left = file_bytes - frame->offset,
                   n = frame->bytes < left ? frame->bytes : left; /* it may go on in the next file */
    uint8_t *content = sw_nvme_buffer(frame->bytes), *found = sw_nvme_buffer(frame->bytes);
    char path[96];
    const int fd = open(sw_nvme_path(path, frame->file), O_RDONLY | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_uint_lt(frame->offset, file_bytes);
    sw_nvme_fill(content, frame->bytes, frame->slot);
    ck_assert_int_eq(pread(fd, found, n, (off_t)frame->offset), (ssize_t)n);
    ck_assert_mem_eq(found, content, n);
    (void)close(fd);
    free(content);
    free(found);
}

/* In the first file and in the others, however long the caller takes them for: the manifest knows. */
START_TEST(test_a_check_says_where_bad_frames_lie) {
    enum { N = 6 };
    struct sw_tier_nvme_config config = sw_nvme_config_of(5 * MIB, SW_TIER_NVME_AUTO);
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_nvme_check check;
    struct sw_stored stored;
    struct sw_err err = {0};
    for (uint64_t i = 0; i < N; i++)
        ck_assert_int_eq(sw_nvme_put(tier, 700 * KIB + i, i, &stored, &err), 0);
    tier->ops->close(tier);
    for (unsigned more = 1; more < 3; more++) {
        ck_assert_int_eq(
            sw_nvme_check(&check, config.directory, more * config.file_bytes, ck_lies_there, &config.file_bytes, &err),
            0);
        ck_assert_uint_eq(check.n_read, N);
        ck_assert_uint_eq(check.n_bad, N);
        ck_assert_uint_eq(check.file_bytes, config.file_bytes);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tier_nvme");
    TCase *tcase = tcase_create("tier_nvme");
    tcase_add_checked_fixture(tcase, sw_nvme_setup, sw_nvme_teardown);
    tcase_add_loop_test(tcase, test_every_length_comes_back, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, test_a_full_tier_refuses_and_frames_lie_in_extents);
    tcase_add_test(tcase, test_where_frames_lie_and_how_long_the_gaps_are);
    tcase_add_loop_test(tcase, test_many_transfers_at_once_each_end_once, 0, 2 * SW_NVME_N_METHODS);
    tcase_add_loop_test(tcase, test_threads_share_it, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, test_threads_replace_a_forbidden_io_uring);
    tcase_add_loop_test(tcase, test_committed_frames_are_found_again, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, test_the_manifest_does_not_grow_without_end);
    tcase_add_test(tcase, test_a_change_of_size_keeps_the_frames_or_is_refused);
    tcase_add_test(tcase, test_a_second_process_and_open_folders_are_refused);
    tcase_add_test(tcase, test_foreign_files_are_left_alone);
    tcase_add_test(tcase, test_folders_of_a_tier_are_recognized);
    tcase_add_test(tcase, test_opening_waits_for_transfers_of_a_killed_predecessor);
    tcase_add_loop_test(tcase, test_the_in_flight_pipe_closes_after_the_last_request, 0, SW_NVME_N_METHODS);
    tcase_add_test(tcase, test_impossible_configurations_are_refused);
    tcase_add_test(tcase, what_does_not_open_closes_nothing);
    tcase_add_test(tcase, test_a_check_says_where_bad_frames_lie);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
