#include "tests/lib/nvme_fixture.h"

#include "base/alloc.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)

struct sw_nvme_folder sw_nvme_folder_new(void) {
    struct sw_nvme_folder folder;
    sw_test_folder_here(folder.path);
    return folder;
}

void sw_nvme_folder_free(const struct sw_nvme_folder *folder) {
    DIR *dir = opendir(folder->path);
    const struct dirent *entry;
    ck_assert_ptr_nonnull(dir);
    while ((entry = readdir(dir)))
        if (entry->d_name[0] != '.')
            ck_assert_int_eq(unlinkat(dirfd(dir), entry->d_name, 0), 0);
    (void)closedir(dir);
    ck_assert_int_eq(rmdir(folder->path), 0);
}

struct sw_tier *sw_nvme_open(const struct sw_tier_nvme_config *config) {
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    int rc;
    while ((rc = sw_tier_nvme_open(&tier, config, &err)) == -SW_EBUSY) /* what a killed process has begun goes on */
        continue;
    ck_assert_msg(rc == 0, "%s (%s)", err.msg, err.detail);
    return tier;
}

static uint64_t whole_blocks(uint64_t bytes) {
    return (bytes + BLOCK - 1) / BLOCK * BLOCK;
}

uint8_t *sw_nvme_buffer(uint64_t bytes) {
    void *buffer = NULL;
    ck_assert_int_eq(posix_memalign(&buffer, SW_TIER_IO_ALIGN, whole_blocks(bytes)), 0);
    memset(buffer, 0, whole_blocks(bytes));
    return buffer;
}

/* A word depends on all that comes before it and on the length, so no part of another frame passes for it. */
void sw_nvme_fill(uint8_t *ret, uint64_t bytes, uint64_t seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + bytes, word;
    for (uint64_t at = 0; at < bytes; at += sizeof word) {
        word = sw_random(&state);
        memcpy(ret + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word);
    }
}

bool sw_nvme_same(const uint8_t *data, uint64_t bytes, uint64_t seed) {
    uint64_t state = seed * 0x9E3779B97F4A7C15u + bytes, word;
    bool same = true;
    for (uint64_t at = 0; at < bytes; at += sizeof word) {
        word = sw_random(&state);
        same &= memcmp(data + at, &word, bytes - at < sizeof word ? bytes - at : sizeof word) == 0;
    }
    return same;
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

static void on_done(struct sw_tier_io *io, void *arg) {
    struct waiter *w = arg;
    (void)io;
    (void)pthread_mutex_lock(&w->lock);
    w->done = true;
    (void)pthread_cond_signal(&w->ended);
    (void)pthread_mutex_unlock(&w->lock);
}

int sw_nvme_transfer(struct sw_tier *tier, enum sw_tier_io_kind kind, struct sw_stored *stored, uint8_t *buffer,
                     uint64_t seed, struct sw_err *err) {
    struct waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    struct sw_extent memory = {.memory = buffer, .bytes = whole_blocks(stored->bytes)};
    struct sw_tier_io io = {
        .kind = kind, .stored = stored, .memory = &memory, .n_memory = 1, .done = on_done, .arg = &w};
    memcpy(io.key, &seed, sizeof seed);
    tier->ops->submit(tier, &io);
    (void)pthread_mutex_lock(&w.lock);
    while (!w.done)
        (void)pthread_cond_wait(&w.ended, &w.lock);
    (void)pthread_mutex_unlock(&w.lock);
    ck_assert_int_eq(kind == SW_TIER_WRITE && io.err.code == 0, kind == SW_TIER_WRITE && stored->committed);
    if (err)
        *err = io.err;
    return io.err.code;
}

int sw_nvme_put(struct sw_tier *tier, uint64_t bytes, uint64_t seed, struct sw_stored *ret, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    int rc = tier->ops->reserve(tier, bytes, ret, err);
    if (rc)
        return rc;
    uint8_t *buffer = sw_nvme_buffer(bytes);
    sw_nvme_fill(buffer, bytes, seed);
    rc = sw_nvme_transfer(tier, SW_TIER_WRITE, ret, buffer, seed, err);
    free(buffer);
    if (rc)
        tier->ops->release(tier, ret);
    return rc;
}

bool sw_nvme_holds(struct sw_tier *tier, struct sw_stored *stored, uint64_t seed) {
    uint8_t *buffer = sw_nvme_buffer(stored->bytes);
    ck_assert_int_eq(sw_nvme_transfer(tier, SW_TIER_READ, stored, buffer, seed, NULL), 0);
    bool same = sw_nvme_same(buffer, stored->bytes, seed);
    free(buffer);
    return same;
}

/* --- for suites --- */

static struct sw_nvme_folder folder;
static unsigned fds_before;
static long live_before;

void sw_nvme_setup(void) {
    folder = sw_nvme_folder_new();
    fds_before = sw_count_fds();
    live_before = sw_alloc_live();
}

void sw_nvme_teardown(void) {
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    ck_assert_int_eq(sw_alloc_live(), live_before);
    sw_nvme_folder_free(&folder);
}

struct sw_tier_nvme_config sw_nvme_config_of(uint64_t capacity, enum sw_tier_nvme_method method) {
    return (struct sw_tier_nvme_config){.directory = folder.path,
                                        .capacity_bytes = capacity,
                                        .file_bytes = ((uint64_t)1 << 20) + 3 * BLOCK,
                                        .queue_depth = 8,
                                        .method = method};
}

const enum sw_tier_nvme_method sw_nvme_methods[SW_NVME_N_METHODS] = {SW_TIER_NVME_URING, SW_TIER_NVME_THREADS};

bool sw_nvme_allowed(enum sw_tier_nvme_method method) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(BLOCK, method);
    struct sw_tier *tier;
    struct sw_err err;
    int rc = sw_tier_nvme_open(&tier, &config, &err);
    if (rc == -SW_ENOTSUP) {
        (void)fprintf(stderr, "left out: %s\n", err.msg);
        return false;
    }
    ck_assert_int_eq(rc, 0);
    tier->ops->close(tier);
    return true;
}

struct sw_tier_stats sw_nvme_stats(struct sw_tier *tier) {
    struct sw_tier_stats stats;
    tier->ops->stats(tier, &stats);
    return stats;
}

char *sw_nvme_path(char ret[96], const char *name) {
    (void)snprintf(ret, 96, "%s/%s", folder.path, name);
    return ret;
}

off_t sw_nvme_file_bytes(const char *name) {
    char path[96];
    struct stat st;
    return stat(sw_nvme_path(path, name), &st) == 0 ? st.st_size : -1;
}

bool sw_nvme_take(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored, bool doubtful) {
    struct sw_nvme_recovered *r = arg;
    uint64_t seed;
    memcpy(&seed, key, sizeof seed);
    for (unsigned i = sizeof seed; i < SW_TIER_KEY_BYTES; i++)
        ck_assert_uint_eq(key[i], 0);
    ck_assert_uint_lt(r->n, 64);
    if (seed == r->refuse)
        return false;
    r->n_doubtful += doubtful;
    r->seeds[r->n] = seed;
    r->stored[r->n++] = *stored;
    return true;
}

static void oldest_first(struct sw_nvme_recovered *r) {
    for (unsigned i = 0, k = r->n; i + 1 < k; i++) {
        const struct sw_stored stored = r->stored[i];
        const uint64_t seed = r->seeds[i];
        k--;
        r->stored[i] = r->stored[k];
        r->seeds[i] = r->seeds[k];
        r->stored[k] = stored;
        r->seeds[k] = seed;
    }
}

struct sw_tier *sw_nvme_reopen(const struct sw_tier_nvme_config *config, const uint64_t want[SW_NVME_MAX_WANT],
                               struct sw_nvme_recovered *ret) {
    struct sw_tier *tier = sw_nvme_open(config);
    uint64_t used = 0;
    *ret = (struct sw_nvme_recovered){0};
    (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = ret}, NULL);
    ck_assert_uint_lt(ret->n, SW_NVME_MAX_WANT);
    oldest_first(ret);
    for (unsigned i = 0; i < ret->n; i++) {
        ck_assert_uint_eq(ret->seeds[i], want[i]);
        ck_assert(sw_nvme_holds(tier, &ret->stored[i], ret->seeds[i]));
        used += whole_blocks(ret->stored[i].bytes);
    }
    ck_assert_uint_eq(want[ret->n], 0);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, used);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, ret->n);
    return tier;
}

int sw_nvme_open_data(const struct sw_nvme_folder *of) {
    char path[sizeof of->path + 16];
    (void)snprintf(path, sizeof path, "%s/data-0000", of->path);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    return fd;
}

struct change_waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool done;
};

static void on_changed(struct sw_tier_change *change, void *arg) {
    struct change_waiter *w = arg;
    (void)change;
    (void)pthread_mutex_lock(&w->lock);
    w->done = true;
    (void)pthread_cond_signal(&w->ended);
    (void)pthread_mutex_unlock(&w->lock);
}

int sw_nvme_change(struct sw_tier *tier, enum sw_tier_change_kind kind, struct sw_tier_record *records, unsigned n) {
    struct change_waiter w = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, false};
    struct sw_tier_change change = {.kind = kind, .records = records, .n = n, .done = on_changed, .arg = &w};
    tier->ops->change(tier, &change);
    (void)pthread_mutex_lock(&w.lock);
    while (!w.done)
        (void)pthread_cond_wait(&w.ended, &w.lock);
    (void)pthread_mutex_unlock(&w.lock);
    return change.err.code;
}
