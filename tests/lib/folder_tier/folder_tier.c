/* A frame's only extent has the number of its file as its offset. A file that is being written has another name. One
 * thread does the transfers, in order. */
#include "tests/lib/folder_tier/folder_tier.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/thread.h"
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { BLOCK_BYTES = 4096, NAME_BYTES = 128 };

const struct sw_tier_kind sw_folder_tier_kind = {
    .name = "folder", .id = 200, .capabilities = SW_TIER_ASYNCHRONOUS | SW_TIER_DURABLE | SW_TIER_VIA};

struct folder_tier {
    struct sw_tier tier;
    int directory;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t posted;
    struct sw_list inbox; /* struct sw_tier_io */
    bool stop;
    uint64_t capacity_bytes, used_bytes, n_frames, last_number;
    struct sw_list places; /* struct place: of frames that are reserved or stored; those left to a successor, too */
};

struct place {
    struct sw_list node;
    struct sw_extent extent;
};

static struct folder_tier *folder_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct folder_tier, tier);
}

static uint64_t whole_blocks(uint64_t bytes) {
    return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

static void name_of(char ret[NAME_BYTES], uint64_t number, const char *kind) {
    (void)snprintf(ret, NAME_BYTES, "%" PRIu64 ".%s", number, kind);
}

static struct sw_extent *extent_new(struct folder_tier *t, uint64_t number, uint64_t bytes) {
    struct place *place = sw_alloc(sizeof *place);
    if (!place)
        return NULL;
    place->extent = (struct sw_extent){.offset = number, .bytes = bytes};
    sw_list_init(&place->node);
    (void)pthread_mutex_lock(&t->lock);
    sw_list_append(&t->places, &place->node);
    (void)pthread_mutex_unlock(&t->lock);
    return &place->extent;
}

/* Under the lock. */
static void extent_free(struct sw_extent *extent) {
    struct place *place = SW_CONTAINER_OF(extent, struct place, extent);
    sw_list_remove(&place->node);
    sw_free(place);
}

static int folder_reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    struct folder_tier *t = folder_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    const bool has_room = t->used_bytes + whole_blocks(bytes) <= t->capacity_bytes;
    const uint64_t number = has_room ? ++t->last_number : 0;
    t->used_bytes += has_room ? whole_blocks(bytes) : 0;
    (void)pthread_mutex_unlock(&t->lock);
    struct sw_extent *extent = has_room ? extent_new(t, number, bytes) : NULL;
    if (!extent)
        return sw_err_set(err, has_room ? -SW_ENOMEM : -SW_ENOSPACE, SW_SCOPE_REQUEST, "folder tier is full");
    *ret = (struct sw_stored){.extents = extent, .n_extents = 1, .bytes = bytes, .tier = tier};
    return 0;
}

static void folder_release(struct sw_tier *tier, struct sw_stored *stored) {
    struct folder_tier *t = folder_of(tier);
    char name[NAME_BYTES];
    name_of(name, stored->extents[0].offset, "frame");
    if (stored->committed)
        (void)unlinkat(t->directory, name, 0);
    (void)pthread_mutex_lock(&t->lock);
    t->used_bytes -= whole_blocks(stored->bytes);
    t->n_frames -= stored->committed;
    extent_free(stored->extents);
    (void)pthread_mutex_unlock(&t->lock);
    *stored = (struct sw_stored){0};
}

static void folder_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    struct folder_tier *t = folder_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    *ret = (struct sw_tier_stats){.capacity_bytes = t->capacity_bytes,
                                  .backed_bytes = t->capacity_bytes,
                                  .used_bytes = t->used_bytes,
                                  .largest_free_bytes = t->capacity_bytes - t->used_bytes,
                                  .committed_frames = t->n_frames};
    (void)pthread_mutex_unlock(&t->lock);
}

static void folder_locate(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                          uint64_t *ret_offset) {
    (void)tier;
    (void)snprintf(ret_file, SW_TIER_FILE_BYTES, "%" PRIu64 ".frame", stored->extents[0].offset);
    *ret_offset = SW_TIER_KEY_BYTES;
}

static void folder_submit(struct sw_tier *tier, struct sw_tier_io *io) {
    struct folder_tier *t = folder_of(tier);
    memset(&io->err, 0, sizeof io->err);
    sw_list_init(&io->tier.node);
    (void)pthread_mutex_lock(&t->lock);
    sw_list_append(&t->inbox, &io->tier.node);
    (void)pthread_cond_signal(&t->posted);
    (void)pthread_mutex_unlock(&t->lock);
}

/* The key, and then the frame, to or from an open file. */
static bool transfer(struct sw_tier_io *io, int fd) {
    const bool writes = io->kind == SW_TIER_WRITE;
    uint64_t left = io->stored->bytes, at = SW_TIER_KEY_BYTES;
    bool good = (writes ? pwrite(fd, io->key, sizeof io->key, 0) : pread(fd, io->key, sizeof io->key, 0)) ==
                (ssize_t)sizeof io->key;
    for (unsigned i = 0; good && i < io->n_memory && left > 0; i++) {
        const size_t n = (size_t)(io->memory[i].bytes < left ? io->memory[i].bytes : left);
        good = (writes ? pwrite(fd, io->memory[i].memory, n, (off_t)at)
                       : pread(fd, io->memory[i].memory, n, (off_t)at)) == (ssize_t)n;
        at += n;
        left -= n;
    }
    return good && left == 0;
}

static void serve(struct folder_tier *t, struct sw_tier_io *io) {
    char name[NAME_BYTES], part[NAME_BYTES];
    const bool writes = io->kind == SW_TIER_WRITE;
    name_of(name, io->stored->extents[0].offset, "frame");
    name_of(part, io->stored->extents[0].offset, "part");
    const int fd = writes ? openat(t->directory, part, O_CREAT | O_TRUNC | O_WRONLY | O_CLOEXEC, 0600)
                          : openat(t->directory, name, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && transfer(io, fd);
    if (fd >= 0)
        (void)close(fd);
    good = good && (!writes || renameat(t->directory, part, t->directory, name) == 0);
    if (!good)
        (void)sw_err_set(&io->err, -SW_EIO, SW_SCOPE_REQUEST, "file %s of the folder tier failed", name);
    (void)pthread_mutex_lock(&t->lock);
    if (good && writes) {
        io->stored->committed = true;
        t->n_frames++;
    }
    (void)pthread_mutex_unlock(&t->lock);
    io->done(io, io->arg);
}

static void *folder_main(void *arg) {
    struct folder_tier *t = arg;
    for (;;) {
        (void)pthread_mutex_lock(&t->lock);
        while (sw_list_empty(&t->inbox) && !t->stop)
            (void)pthread_cond_wait(&t->posted, &t->lock);
        struct sw_list *node = sw_list_take_first(&t->inbox);
        (void)pthread_mutex_unlock(&t->lock);
        if (!node)
            return NULL;
        serve(t, SW_CONTAINER_OF(node, struct sw_tier_io, tier.node));
    }
}

/* A file that a predecessor has left. */
static int find(struct folder_tier *t, const char *name, const struct sw_tier_recovery *what) {
    uint8_t key[SW_TIER_KEY_BYTES];
    char kind[8];
    uint64_t number;
    const int fd = openat(t->directory, name, O_RDONLY | O_CLOEXEC);
    const off_t end = fd < 0 ? -1 : lseek(fd, 0, SEEK_END);
    const bool is_frame = sscanf(name, "%" SCNu64 ".%7s", &number, kind) == 2 && strcmp(kind, "frame") == 0 &&
                          end > SW_TIER_KEY_BYTES && pread(fd, key, sizeof key, 0) == (ssize_t)sizeof key;
    if (fd >= 0)
        (void)close(fd);
    if (!is_frame)
        return 0;
    const uint64_t bytes = (uint64_t)end - SW_TIER_KEY_BYTES;
    struct sw_stored stored = {
        .extents = extent_new(t, number, bytes), .n_extents = 1, .bytes = bytes, .committed = true, .tier = &t->tier};
    if (!stored.extents)
        return -SW_ENOMEM;
    t->last_number = number > t->last_number ? number : t->last_number;
    t->used_bytes += whole_blocks(bytes);
    t->n_frames++;
    if (!what->take(what->arg, key, &stored, false))
        folder_release(&t->tier, &stored);
    return 0;
}

static int folder_recover(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err) {
    struct folder_tier *t = folder_of(tier);
    DIR *listing = fdopendir(openat(t->directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    int rc = listing ? 0 : -SW_ENOMEM;
    for (struct dirent *entry; !rc && (entry = readdir(listing));)
        rc = find(t, entry->d_name, what);
    if (listing)
        (void)closedir(listing);
    return rc ? sw_err_set(err, rc, SW_SCOPE_DAEMON, "out of memory for the folder tier") : 0;
}

static void folder_close(struct sw_tier *tier) {
    struct folder_tier *t = folder_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_signal(&t->posted);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    while (!sw_list_empty(&t->places))
        extent_free(&SW_CONTAINER_OF(t->places.next, struct place, node)->extent);
    (void)pthread_cond_destroy(&t->posted);
    (void)pthread_mutex_destroy(&t->lock);
    (void)close(t->directory);
    sw_free(t);
}

static const struct sw_tier_ops folder_ops = {.reserve = folder_reserve,
                                              .release = folder_release,
                                              .stats = folder_stats,
                                              .locate = folder_locate,
                                              .submit = folder_submit,
                                              .recover = folder_recover,
                                              .close = folder_close};

int sw_folder_tier_open(struct sw_tier **ret, const char *directory, uint64_t capacity_bytes, struct sw_err *err) {
    struct folder_tier *t = sw_alloc(sizeof *t);
    const int fd = open(directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (!t || fd < 0) {
        if (fd >= 0)
            (void)close(fd);
        sw_free(t);
        return sw_err_set(err, t ? -SW_EIO : -SW_ENOMEM, SW_SCOPE_DAEMON, "%s cannot be opened", directory);
    }
    t->tier = (struct sw_tier){.ops = &folder_ops, .kind = &sw_folder_tier_kind};
    t->directory = fd;
    t->capacity_bytes = capacity_bytes;
    sw_list_init(&t->inbox);
    sw_list_init(&t->places);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->posted, NULL);
    SW_ASSERT(sw_thread_start(&t->thread, folder_main, t) == 0);
    *ret = &t->tier;
    return 0;
}
