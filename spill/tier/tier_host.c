/* tier_host.c - the host arena: memfd slabs, cut into 4 KiB blocks.
 *
 * The lock guards the extents and the counters. A slab is made, touched and pinned with the lock open: `growing` keeps
 * that to one thread at a time, others that need the room wait on `grown`. */
#include "spill/tier/tier.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/log.h"
#include "spill/device/device.h"
#include "spill/tier/extents.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u
#define SLAB_ALIGN_BYTES (2u << 20)

struct slab {
    struct sw_list node;
    int fd; /* kept open: the arena's contents outlive a mapping */
    char *base;
    size_t bytes;
    uint64_t first_block;
    unsigned n_pinned; /* devices[0 .. n_pinned) have it pinned */
};

struct tier_host {
    struct sw_tier tier;
    struct sw_tier_host_config config;
    pthread_mutex_t lock;
    pthread_cond_t grown;
    bool growing;
    struct sw_list slabs;
    struct sw_extents extents;
    uint64_t backed_bytes, committed_frames;
};

/* What sw_stored.extents points into: the runs stay with the reservation. */
struct reservation {
    struct sw_run *runs;
    struct sw_extent extents[];
};

static struct tier_host *host_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct tier_host, tier);
}

static void slab_free(struct tier_host *t, struct slab *slab) {
    while (slab->n_pinned > 0) {
        struct sw_device *device = t->config.devices[--slab->n_pinned];
        device->ops->unpin(device, slab->base, slab->bytes);
    }
    if (slab->base)
        (void)munmap(slab->base, slab->bytes);
    if (slab->fd >= 0)
        (void)close(slab->fd);
    sw_free(slab);
}

/* Backs the slab's pages now, so that no page fault can fail later. */
static int slab_touch(struct slab *slab, struct sw_err *err) {
    int rc;
    do
        rc = fallocate(slab->fd, 0, 0, (off_t)slab->bytes);
    while (rc && errno == EINTR);
    if (rc)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "host arena cannot grow by %zu bytes", slab->bytes);
    slab->base = mmap(NULL, slab->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, slab->fd, 0);
    if (slab->base == MAP_FAILED) {
        slab->base = NULL;
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "host arena cannot map %zu bytes", slab->bytes);
    }
    (void)madvise(slab->base, slab->bytes, MADV_HUGEPAGE); /* advice: a kernel without it maps small pages */
    if (madvise(slab->base, slab->bytes, MADV_POPULATE_WRITE) != 0)
        for (size_t i = 0; i < slab->bytes; i += BLOCK_BYTES) /* Linux before 5.14 */
            ((volatile char *)slab->base)[i] = 0;
    return 0;
}

/* Makes a slab outside the lock. */
static int slab_new(struct tier_host *t, size_t bytes, struct slab **ret, struct sw_err *err) {
    struct slab *slab = sw_alloc(sizeof *slab);
    if (!slab)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an arena slab");
    int rc;
    slab->bytes = bytes;
    slab->fd = memfd_create("spillway-arena", MFD_CLOEXEC);
    if (slab->fd < 0 || ftruncate(slab->fd, (off_t)bytes) != 0) {
        int cause = errno;
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "host arena cannot grow by %zu bytes", bytes);
        (void)sw_err_detail(err, "memfd_create, ftruncate: %s", strerror(cause));
        goto fail;
    }
    rc = slab_touch(slab, err);
    if (rc)
        goto fail;
    for (; slab->n_pinned < t->config.n_devices; slab->n_pinned++) {
        struct sw_device *device = t->config.devices[slab->n_pinned];
        rc = device->ops->pin(device, slab->base, slab->bytes, err);
        if (rc)
            goto fail;
    }
    *ret = slab;
    return 0;
fail:
    slab_free(t, slab);
    return rc;
}

/* Adds one slab, or waits for the thread that is adding one. Called and returns with the lock held. The caller has
 * seen that the bound leaves room. */
static int grow(struct tier_host *t, struct sw_err *err) {
    if (t->growing) {
        (void)pthread_cond_wait(&t->grown, &t->lock);
        return 0;
    }
    uint64_t left = t->config.capacity_bytes - t->backed_bytes;
    size_t bytes = (size_t)(left < t->config.slab_bytes ? left : t->config.slab_bytes);
    struct slab *slab = NULL;
    t->growing = true;
    (void)pthread_mutex_unlock(&t->lock);
    int rc = slab_new(t, bytes, &slab, err);
    (void)pthread_mutex_lock(&t->lock);
    t->growing = false;
    (void)pthread_cond_broadcast(&t->grown);
    if (rc)
        return rc;
    slab->first_block = t->backed_bytes / BLOCK_BYTES;
    if (sw_extents_add(&t->extents, slab->first_block, bytes / BLOCK_BYTES, slab)) {
        (void)pthread_mutex_unlock(&t->lock);
        slab_free(t, slab);
        (void)pthread_mutex_lock(&t->lock);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an arena slab");
    }
    sw_list_append(&t->slabs, &slab->node);
    t->backed_bytes += bytes;
    sw_log(SW_LOG_DEBUG, "tier.grow", "tier=host slab_bytes=%zu backed_bytes=%llu", bytes,
           (unsigned long long)t->backed_bytes);
    return 0;
}

static int take_blocks(struct tier_host *t, uint64_t n_blocks, struct sw_run **ret, unsigned *ret_n,
                       struct sw_err *err) {
    while (t->extents.free_blocks < n_blocks) {
        uint64_t possible = t->extents.free_blocks + (t->config.capacity_bytes - t->backed_bytes) / BLOCK_BYTES;
        if (possible < n_blocks)
            return sw_err_set(
                err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "host tier is full: %llu bytes wanted, %llu of %llu free",
                (unsigned long long)(n_blocks * BLOCK_BYTES), (unsigned long long)(possible * BLOCK_BYTES),
                (unsigned long long)t->config.capacity_bytes);
        int rc = grow(t, err);
        if (rc)
            return rc;
    }
    int rc = sw_extents_take(&t->extents, n_blocks, ret, ret_n);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for a reservation") : 0;
}

static int host_reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    struct tier_host *t = host_of(tier);
    struct sw_run *runs = NULL;
    unsigned n = 0;
    SW_ASSERT(bytes > 0);
    (void)pthread_mutex_lock(&t->lock);
    int rc = take_blocks(t, bytes / BLOCK_BYTES + (bytes % BLOCK_BYTES != 0), &runs, &n, err);
    (void)pthread_mutex_unlock(&t->lock);
    if (rc)
        return rc;
    struct reservation *r = sw_alloc(sizeof *r + n * sizeof r->extents[0]);
    if (!r) {
        (void)pthread_mutex_lock(&t->lock);
        sw_extents_give(&t->extents, runs);
        (void)pthread_mutex_unlock(&t->lock);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a reservation");
    }
    /* A taken run's place and length do not change, so they can be read without the lock. */
    r->runs = runs;
    uint64_t left = bytes;
    unsigned i = 0;
    for (const struct sw_run *run = runs; run; run = run->next, i++) {
        const struct slab *slab = run->slab;
        uint64_t run_bytes = run->count * BLOCK_BYTES;
        r->extents[i].memory = slab->base + (run->first - slab->first_block) * BLOCK_BYTES;
        r->extents[i].offset = run->first * BLOCK_BYTES;
        r->extents[i].bytes = left < run_bytes ? left : run_bytes;
        left -= r->extents[i].bytes;
    }
    *ret = (struct sw_stored){.extents = r->extents, .n_extents = n, .bytes = bytes};
    return 0;
}

static int host_commit(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err) {
    struct tier_host *t = host_of(tier);
    (void)err; /* memory cannot fail to commit */
    SW_ASSERT(stored->extents && !stored->committed);
    (void)pthread_mutex_lock(&t->lock);
    t->committed_frames++;
    (void)pthread_mutex_unlock(&t->lock);
    stored->committed = 1;
    return 0;
}

static void host_release(struct sw_tier *tier, struct sw_stored *stored) {
    struct tier_host *t = host_of(tier);
    if (stored->extents) {
        struct reservation *r = SW_CONTAINER_OF(stored->extents, struct reservation, extents);
        (void)pthread_mutex_lock(&t->lock);
        sw_extents_give(&t->extents, r->runs);
        if (stored->committed)
            t->committed_frames--;
        (void)pthread_mutex_unlock(&t->lock);
        sw_free(r);
    }
    memset(stored, 0, sizeof *stored);
}

static void host_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    struct tier_host *t = host_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    *ret = (struct sw_tier_stats){
        .capacity_bytes = t->config.capacity_bytes,
        .backed_bytes = t->backed_bytes,
        .used_bytes = (t->extents.total_blocks - t->extents.free_blocks) * BLOCK_BYTES,
        .committed_frames = t->committed_frames,
    };
    (void)pthread_mutex_unlock(&t->lock);
}

static void host_close(struct sw_tier *tier) {
    struct tier_host *t = host_of(tier);
    SW_ASSERT(t->committed_frames == 0);
    sw_extents_fini(&t->extents);
    struct sw_list *node;
    while ((node = sw_list_take_first(&t->slabs)))
        slab_free(t, SW_CONTAINER_OF(node, struct slab, node));
    (void)pthread_cond_destroy(&t->grown);
    (void)pthread_mutex_destroy(&t->lock);
    sw_free(t);
}

static const struct sw_tier_ops host_ops = {
    .reserve = host_reserve,
    .commit = host_commit,
    .release = host_release,
    .stats = host_stats,
    .close = host_close,
};

int sw_tier_host_open(struct sw_tier **ret, const struct sw_tier_host_config *config, struct sw_err *err) {
    if (config->slab_bytes == 0 || config->slab_bytes % SLAB_ALIGN_BYTES || config->capacity_bytes < BLOCK_BYTES ||
        config->capacity_bytes > INT64_MAX || config->initial_bytes > config->capacity_bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON,
                          "host tier of %llu bytes, %llu at start, in slabs of %llu: not possible",
                          (unsigned long long)config->capacity_bytes, (unsigned long long)config->initial_bytes,
                          (unsigned long long)config->slab_bytes);
    struct tier_host *t = sw_alloc(sizeof *t);
    if (!t)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the host tier");
    t->tier = (struct sw_tier){.ops = &host_ops, .name = "host"};
    t->config = *config;
    t->config.capacity_bytes -= config->capacity_bytes % BLOCK_BYTES;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->grown, NULL);
    sw_list_init(&t->slabs);
    sw_extents_init(&t->extents);
    int rc = 0;
    (void)pthread_mutex_lock(&t->lock);
    while (!rc && t->backed_bytes < config->initial_bytes && t->backed_bytes < t->config.capacity_bytes)
        rc = grow(t, err);
    (void)pthread_mutex_unlock(&t->lock);
    if (rc) {
        host_close(&t->tier);
        return rc;
    }
    *ret = &t->tier;
    return 0;
}
