/* tier_host.c - the host arena: memfd slabs, cut into 4 KiB blocks.
 *
 * One thread makes slabs, touches and pins them, without holding the lock: at the start until `initial_bytes` are
 * backed, then whenever less than `ahead_bytes` is free or a reservation waits, up to the bound. The lock guards the
 * extents and the fields that both sides share. A growth that fails fails the reservations that wait for it. The thread
 * then rests until the next reservation has to wait, so that it does not ask for missing memory in a loop.
 *
 * The kernel may still write for a process that was killed, into space that it had reserved, until its last request has
 * ended. So kept space without a frame is held while an in-flight I/O pipe has a writer; the pipes are checked when
 * room is asked for. Space of a frame that was found is not held, not even after its release. */
#include "spill/tier/host/tier_host.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/log.h"
#include "base/thread.h"
#include "spill/device/device.h"
#include "spill/tier/extents.h"
#include "spill/tier/host/fresh.h"

#include <inttypes.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES 4096u
#define SLAB_ALIGN_BYTES (2u << 20)

struct slab {
    struct sw_list node;
    struct sw_fresh memory;
    uint64_t first_block;
    struct sw_run *run; /* its lowest: the whole slab while nothing of it is taken */
    unsigned n_pinned;  /* devices[0 .. n_pinned) have pinned it */
    bool was_kept;      /* from a predecessor */
};

enum reported { REPORTED_NOTHING, REPORTED_READY, REPORTED_FAILURE };

struct tier_host {
    struct sw_tier tier;
    struct sw_tier_host_config config;
    uint64_t ahead_blocks;
    uint64_t bound_bytes; /* as configured; the capacity is larger while a predecessor's slabs exceed it */
    pthread_t thread;
    atomic_ullong committed_frames;
    pthread_mutex_t lock;   /* guards all fields below */
    pthread_cond_t wanted;  /* for the thread: a slab is wanted, or it is to stop */
    pthread_cond_t changed; /* for reservations: a slab was added or failed, or blocks were released */
    bool stop, growing;
    bool resting;           /* the last growth failed and no reservation has waited since */
    uint64_t demand_blocks; /* of the waiting reservations */
    unsigned n_waiting, n_failures;
    struct sw_err failure; /* the last one */
    enum reported reported;
    struct sw_list slabs;
    struct sw_extents extents;
    unsigned n_slabs;
    uint64_t next_block; /* of the next slab: after all others */
    uint64_t backed_bytes, huge_bytes;
    struct sw_run *held;
    uint64_t held_blocks;
    int *io_pipes;
    unsigned n_io_pipes;
};

/* The owner of what sw_stored.extents points to: the runs stay with the reservation. */
struct reservation {
    struct sw_run *runs;
    struct sw_extent extents[];
};

static struct tier_host *host_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct tier_host, tier);
}

/* ---- slabs, made by the thread without the lock ---- */

static void slab_free(struct tier_host *t, struct slab *slab) {
    while (slab->n_pinned > 0) {
        struct sw_device *device = t->config.devices[--slab->n_pinned];
        device->ops->unpin(device, slab->memory.base, slab->memory.bytes);
    }
    sw_fresh_fini(&slab->memory);
    sw_free(slab);
}

/* Frees a kept slab that is no longer needed. */
static void slab_give(struct tier_host *t, struct slab *slab) {
    if (t->config.forget)
        t->config.forget(slab->first_block * BLOCK_BYTES, t->config.keep_arg);
    slab_free(t, slab);
}

static bool is_stopping(struct tier_host *t) {
    (void)pthread_mutex_lock(&t->lock);
    bool stop = t->stop;
    (void)pthread_mutex_unlock(&t->lock);
    return stop;
}

static int slab_pin(struct tier_host *t, struct slab *slab, struct sw_err *err) {
    for (; slab->n_pinned < t->config.n_devices; slab->n_pinned++) {
        struct sw_device *device = t->config.devices[slab->n_pinned];
        if (is_stopping(t)) /* each takes a while, and the arena is about to go */
            return sw_err_set(err, -SW_ESHUTDOWN, SW_SCOPE_DAEMON, "the host arena is closing");
        int rc = device->ops->pin(device, slab->memory.base, slab->memory.bytes, err);
        if (rc)
            return rc;
    }
    return 0;
}

static struct slab *slab_new(struct tier_host *t, size_t bytes, struct sw_err *err) {
    struct slab *slab = sw_alloc(sizeof *slab);
    if (!slab) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an arena slab");
        return NULL;
    }
    int fd = -1;
    slab->first_block = t->next_block; /* only this thread changes it */
    int rc = sw_fresh_init(&slab->memory, bytes, t->config.keep ? &fd : NULL, err);
    if (!rc)
        rc = slab_pin(t, slab, err);
    if (!rc && t->config.keep) {
        t->config.keep(fd, slab->first_block * BLOCK_BYTES, t->config.keep_arg);
        t->next_block += bytes / BLOCK_BYTES; /* a name is used once, even if this slab is not added */
    }
    if (fd >= 0)
        (void)close(fd);
    if (rc) {
        slab_free(t, slab);
        return NULL;
    }
    sw_log(SW_LOG_DEBUG, "tier.grow", "tier=host slab_bytes=%zu pages=%s", bytes,
           slab->memory.huge ? "hugetlb" : "shmem");
    return slab;
}

/* ---- space that a predecessor's requests may still write to; with the lock held ---- */

bool sw_tier_io_has_ended(int io_pipe) {
    struct pollfd end = {.fd = io_pipe, .events = POLLIN};
    return poll(&end, 1, 0) > 0 && (end.revents & POLLHUP);
}

/* Closes the pipes of requests that have ended. */
static void check_io_pipes(struct tier_host *t) {
    for (unsigned i = 0; i < t->n_io_pipes;)
        if (sw_tier_io_has_ended(t->io_pipes[i])) {
            (void)close(t->io_pipes[i]);
            t->io_pipes[i] = t->io_pipes[--t->n_io_pipes];
        } else {
            i++;
        }
}

static void hold(struct tier_host *t) {
    struct sw_run **tail = &t->held;
    const uint64_t before = t->extents.free_blocks;
    check_io_pipes(t);
    for (struct sw_list *node = t->slabs.next; t->n_io_pipes && node != &t->slabs; node = node->next) {
        const struct slab *slab = SW_CONTAINER_OF(node, struct slab, node);
        if (!slab->was_kept)
            break;
        *tail = sw_extents_take_free(&t->extents, slab->run);
        while (*tail)
            tail = &(*tail)->next;
    }
    t->held_blocks = before - t->extents.free_blocks;
}

static void give_held(struct tier_host *t) {
    sw_extents_give(&t->extents, t->held);
    t->held = NULL;
    t->held_blocks = 0;
}

static void check_held(struct tier_host *t) {
    if (!t->held_blocks)
        return;
    check_io_pipes(t);
    if (t->n_io_pipes)
        return;
    sw_log(SW_LOG_DEBUG, "tier.held_released", "tier=host bytes=%" PRIu64, t->held_blocks * BLOCK_BYTES);
    give_held(t);
    (void)pthread_cond_broadcast(&t->changed);
}

/* ---- growth; with the lock held unless said otherwise ---- */

static bool wants_slab(const struct tier_host *t) {
    return !t->resting && t->backed_bytes < t->config.capacity_bytes &&
           (t->backed_bytes < t->config.initial_bytes || t->extents.free_blocks < t->demand_blocks + t->ahead_blocks);
}

static int slab_add(struct tier_host *t, struct slab *slab, struct sw_err *err) {
    const size_t bytes = slab->memory.bytes;
    if (sw_extents_add(&t->extents, slab->first_block, bytes / BLOCK_BYTES, slab, &slab->run))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an arena slab");
    sw_list_append(&t->slabs, &slab->node);
    t->n_slabs++;
    t->next_block = slab->first_block + bytes / BLOCK_BYTES;
    t->backed_bytes += bytes;
    t->huge_bytes += slab->memory.huge ? bytes : 0;
    return 0;
}

/* Reports a change, with the lock released meanwhile. */
static void report(struct tier_host *t, enum reported what) {
    const struct sw_err failure = t->failure;
    const uint64_t backed_bytes = t->backed_bytes;
    if (t->reported == what)
        return;
    t->reported = what;
    if (!t->config.report)
        return;
    (void)pthread_mutex_unlock(&t->lock);
    t->config.report(what == REPORTED_FAILURE ? &failure : NULL, backed_bytes, t->config.report_arg);
    (void)pthread_mutex_lock(&t->lock);
}

/* Without the lock. */
static int check_most(const struct tier_host *t, uint64_t bytes, struct sw_err *err) {
    const uint64_t most = t->config.most_bytes ? t->config.most_bytes(t->config.most_arg) : UINT64_MAX;
    if (bytes <= most)
        return 0;
    return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST,
                      "the host tier cannot grow to %" PRIu64 " bytes: the memory allows %" PRIu64 " now", bytes, most);
}

static void grow(struct tier_host *t) {
    const uint64_t left = t->config.capacity_bytes - t->backed_bytes;
    const size_t bytes = (size_t)(left < t->config.slab_bytes ? left : t->config.slab_bytes);
    const uint64_t after = t->backed_bytes + bytes;
    struct sw_err err = {0};
    t->growing = true;
    (void)pthread_mutex_unlock(&t->lock);
    struct slab *slab = check_most(t, after, &err) ? NULL : slab_new(t, bytes, &err);
    (void)pthread_mutex_lock(&t->lock);
    if (slab && slab_add(t, slab, &err)) {
        (void)pthread_mutex_unlock(&t->lock);
        slab_give(t, slab);
        (void)pthread_mutex_lock(&t->lock);
        slab = NULL;
    }
    t->growing = false;
    if (!slab) {
        t->failure = err;
        t->n_failures++;
        t->resting = true;
    }
    (void)pthread_cond_broadcast(&t->changed);
    if (!slab && !t->stop)
        report(t, REPORTED_FAILURE);
}

static void *growth_main(void *arg) {
    struct tier_host *t = arg;
    (void)pthread_mutex_lock(&t->lock);
    while (!t->stop) {
        check_held(t);
        if (wants_slab(t))
            grow(t);
        else if (!t->resting && t->reported != REPORTED_READY)
            report(t, REPORTED_READY);
        else
            (void)pthread_cond_wait(&t->wanted, &t->lock);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

/* ---- frames ---- */

/* Waits until `n_blocks` are free. Called and returns with the lock held. */
static int await_room(struct tier_host *t, uint64_t n_blocks, struct sw_err *err) {
    const unsigned failures = t->n_failures;
    int rc = 0;
    t->demand_blocks += n_blocks;
    check_held(t);
    while (!rc && t->extents.free_blocks < n_blocks) {
        const uint64_t unbacked = (t->config.capacity_bytes - t->backed_bytes) / BLOCK_BYTES,
                       possible = t->extents.free_blocks + unbacked;
        if (possible < n_blocks) {
            rc = sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST,
                            "host tier is full: %" PRIu64 " bytes wanted, %" PRIu64 " of %" PRIu64 " free",
                            n_blocks * BLOCK_BYTES, possible * BLOCK_BYTES, t->config.capacity_bytes);
        } else if (t->n_failures != failures) {
            rc = t->failure.code;
            if (err)
                *err = t->failure;
        } else {
            t->resting = false;
            (void)pthread_cond_signal(&t->wanted);
            t->n_waiting++;
            (void)pthread_cond_wait(&t->changed, &t->lock);
            t->n_waiting--;
        }
        check_held(t);
    }
    t->demand_blocks -= n_blocks;
    return rc;
}

static int take_blocks(struct tier_host *t, uint64_t n_blocks, struct sw_run **ret, unsigned *ret_n,
                       struct sw_err *err) {
    int rc = await_room(t, n_blocks, err);
    if (rc)
        return rc;
    rc = sw_extents_take(&t->extents, n_blocks, ret, ret_n);
    if (wants_slab(t))
        (void)pthread_cond_signal(&t->wanted);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for a reservation") : 0;
}

static void give_blocks(struct tier_host *t, struct sw_run *runs) {
    sw_extents_give(&t->extents, runs);
    if (t->demand_blocks > 0)
        (void)pthread_cond_broadcast(&t->changed);
}

/* Makes the extents of a frame from the runs that it has taken. */
static struct reservation *reservation_new(struct sw_run *runs, unsigned n, uint64_t bytes) {
    struct reservation *r = sw_alloc(sizeof *r + n * sizeof r->extents[0]);
    if (!r)
        return NULL;
    /* A taken run's place and length do not change, so they can be read without the lock. */
    r->runs = runs;
    uint64_t left = bytes;
    unsigned i = 0;
    for (const struct sw_run *run = runs; run; run = run->next, i++) {
        const struct slab *slab = run->slab;
        uint64_t run_bytes = run->count * BLOCK_BYTES;
        r->extents[i].memory = slab->memory.base + (run->first - slab->first_block) * BLOCK_BYTES;
        r->extents[i].offset = run->first * BLOCK_BYTES;
        r->extents[i].bytes = left < run_bytes ? left : run_bytes;
        left -= r->extents[i].bytes;
    }
    return r;
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
    struct reservation *r = reservation_new(runs, n, bytes);
    if (!r) {
        (void)pthread_mutex_lock(&t->lock);
        give_blocks(t, runs);
        (void)pthread_mutex_unlock(&t->lock);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a reservation");
    }
    *ret = (struct sw_stored){.extents = r->extents, .n_extents = n, .bytes = bytes, .tier = tier};
    return 0;
}

static int host_commit(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err) {
    struct tier_host *t = host_of(tier);
    (void)err; /* memory cannot fail to commit */
    SW_ASSERT(stored->extents && !stored->committed);
    const struct sw_extent *last = &stored->extents[stored->n_extents - 1];
    if (last->bytes % BLOCK_BYTES) /* clears an earlier frame's bytes, also where whole blocks are copied */
        memset((char *)last->memory + last->bytes, 0, BLOCK_BYTES - last->bytes % BLOCK_BYTES);
    (void)atomic_fetch_add(&t->committed_frames, 1);
    stored->committed = true;
    return 0;
}

static void host_release(struct sw_tier *tier, struct sw_stored *stored) {
    struct tier_host *t = host_of(tier);
    if (stored->extents) {
        struct reservation *r = SW_CONTAINER_OF(stored->extents, struct reservation, extents);
        (void)pthread_mutex_lock(&t->lock);
        give_blocks(t, r->runs);
        if (stored->committed)
            (void)atomic_fetch_sub(&t->committed_frames, 1);
        (void)pthread_mutex_unlock(&t->lock);
        sw_free(r);
    }
    memset(stored, 0, sizeof *stored);
}

static void host_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    struct tier_host *t = host_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    check_held(t);
    *ret = (struct sw_tier_stats){
        .capacity_bytes = t->config.capacity_bytes,
        .backed_bytes = t->backed_bytes,
        .used_bytes = (t->extents.total_blocks - t->extents.free_blocks) * BLOCK_BYTES,
        .held_bytes = t->held_blocks * BLOCK_BYTES,
        .largest_free_bytes = sw_extents_longest(&t->extents) * BLOCK_BYTES,
        .huge_bytes = t->huge_bytes,
        .committed_frames = atomic_load(&t->committed_frames),
        .n_slabs = t->n_slabs,
        .n_waiting = t->n_waiting,
        .growing = t->growing,
    };
    (void)pthread_mutex_unlock(&t->lock);
}

/* ---- memory of a predecessor ---- */

/* A descriptor that is no slab is refused, and its place stays unused. A failure that may pass is an error, since
 * without the slab its regions would be lost for good. */
static int adopt_slab(struct tier_host *t, int fd, uint64_t offset, struct sw_err *err) {
    const uint64_t first_block = offset / BLOCK_BYTES;
    struct slab *slab = sw_alloc(sizeof *slab);
    if (!slab) {
        (void)close(fd);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for an arena slab");
    }
    int rc = 0;
    if (offset % BLOCK_BYTES || first_block < t->next_block) {
        (void)close(fd);
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON, "kept memory overlaps other kept memory");
    }
    slab->first_block = first_block;
    slab->was_kept = true;
    if (!rc)
        rc = sw_fresh_adopt(&slab->memory, fd, err);
    if (!rc)
        rc = slab_pin(t, slab, err);
    if (!rc)
        rc = slab_add(t, slab, err);
    if (!rc)
        return 0;
    slab_free(t, slab);
    if (rc != -SW_EINVAL)
        return rc;
    sw_log(SW_LOG_WARNING, "tier.slab_refused", "tier=host offset=%" PRIu64 " name=%s", offset, sw_err_name(rc));
    const uint64_t behind = first_block + t->config.slab_bytes / BLOCK_BYTES;
    t->next_block = behind > t->next_block ? behind : t->next_block;
    return 0;
}

/* Returns the slab after `last` in order of address; slabs at the same place go in order of their listing. NULL: none.
 */
static const struct sw_tier_host_slab *next_kept(const struct tier_host *t, const struct sw_tier_host_slab *last) {
    const struct sw_tier_host_slab *next = NULL;
    for (unsigned i = 0; i < t->config.n_kept; i++) {
        const struct sw_tier_host_slab *kept = &t->config.kept[i];
        if (last && (kept->offset < last->offset || (kept->offset == last->offset && kept <= last)))
            continue;
        if (!next || kept->offset < next->offset)
            next = kept;
    }
    return next;
}

/* Adopts the slabs in order of address; they are few. */
static int adopt(struct tier_host *t, struct sw_err *err) {
    int rc = 0;
    for (const struct sw_tier_host_slab *kept = next_kept(t, NULL); kept; kept = next_kept(t, kept))
        if (!rc)
            rc = adopt_slab(t, kept->fd, kept->offset, err);
        else
            (void)close(kept->fd);
    if (t->backed_bytes > t->config.capacity_bytes)
        t->config.capacity_bytes = t->backed_bytes; /* clients' bytes are in it */
    t->config.kept = NULL;
    return rc;
}

/* rc: the result so far; after an error the pipes are only closed. */
static int take_io_pipes(struct tier_host *t, int rc, struct sw_err *err) {
    const unsigned n = t->config.n_io_pipes;
    t->io_pipes = !rc && n ? sw_alloc_array(n, sizeof t->io_pipes[0]) : NULL;
    for (unsigned i = 0; i < n; i++)
        if (t->io_pipes)
            t->io_pipes[t->n_io_pipes++] = t->config.io_pipes[i];
        else
            (void)close(t->config.io_pipes[i]);
    t->config.io_pipes = NULL;
    return rc || !n || t->io_pipes ? rc
                                   : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the host tier");
}

/* Makes a frame from the places of its extents, or gives them back. */
static int claim_frame(struct tier_host *t, struct sw_stored *frame, const struct sw_place *places) {
    struct sw_run *runs = NULL, **tail = &runs;
    bool whole = true;
    for (unsigned i = 0; i < frame->n_extents; i++)
        if (places[i].run) {
            *tail = places[i].run;
            tail = &places[i].run->next;
        } else {
            whole = false;
        }
    *tail = NULL;
    struct reservation *r = whole ? reservation_new(runs, frame->n_extents, frame->bytes) : NULL;
    if (!r) {
        sw_extents_give(&t->extents, runs);
        return whole ? -SW_ENOMEM : 0;
    }
    sw_free(frame->extents);
    frame->extents = r->extents;
    frame->committed = true;
    frame->tier = &t->tier;
    (void)atomic_fetch_add(&t->committed_frames, 1);
    return 0;
}

/* Lists the places of all extents, in their order. NULL: out of memory. */
static struct sw_place *list_places(struct sw_stored *const *frames, size_t n, size_t n_places) {
    struct sw_place *places = sw_alloc_array(n_places, sizeof *places);
    size_t k = 0;
    for (size_t i = 0; places && i < n; i++)
        for (unsigned e = 0; e < frames[i]->n_extents; e++, k++) {
            const struct sw_extent *x = &frames[i]->extents[e];
            places[k] = (struct sw_place){.first = x->offset / BLOCK_BYTES,
                                          .count = x->bytes / BLOCK_BYTES + (x->bytes % BLOCK_BYTES != 0),
                                          .order = k};
        }
    return places;
}

/* Needs the lock. Only in kept slabs, which come first: a new slab may lie where a lost one was. */
static int take_places(struct tier_host *t, struct sw_place *places, size_t n) {
    int rc = 0;
    for (struct sw_list *node = t->slabs.next; !rc && node != &t->slabs; node = node->next) {
        const struct slab *slab = SW_CONTAINER_OF(node, struct slab, node);
        size_t n_seen = 0;
        if (!slab->was_kept)
            break;
        rc = sw_extents_take_places(&t->extents, slab->run, places, n, &n_seen);
        places += n_seen;
        n -= n_seen;
    }
    return rc;
}

static int claim(struct tier_host *t, struct sw_stored *const *frames, size_t n, struct sw_err *err) {
    size_t n_places = 0;
    for (size_t i = 0; i < n; i++)
        n_places += frames[i]->n_extents;
    struct sw_place *places = n_places ? list_places(frames, n, n_places) : NULL;
    if (!places)
        return n_places ? sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %zu extents", n_places) : 0;
    (void)pthread_mutex_lock(&t->lock);
    sw_places_sort(places, n_places, false);
    int rc = take_places(t, places, n_places);
    sw_places_sort(places, n_places, true);
    const struct sw_place *next = places;
    for (size_t i = 0; i < n; i++) {
        const unsigned n_extents = frames[i]->n_extents;
        if (claim_frame(t, frames[i], next))
            rc = -SW_ENOMEM;
        next += n_extents;
    }
    (void)pthread_mutex_unlock(&t->lock);
    sw_free(places);
    return rc ? sw_err_set(err, rc, SW_SCOPE_DAEMON, "out of memory for the kept frames") : 0;
}

static int host_recover(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err) {
    struct tier_host *t = host_of(tier);
    const int rc = claim(t, what->frames, what->n, err);
    (void)pthread_mutex_lock(&t->lock);
    hold(t);
    (void)pthread_mutex_unlock(&t->lock);
    return rc;
}

/* Removes the last empty slab if the arena exceeds its bound. Needs the lock. NULL: none. */
static struct slab *take_surplus(struct tier_host *t) {
    for (struct sw_list *node = t->slabs.prev; node != &t->slabs && t->backed_bytes > t->bound_bytes;
         node = node->prev) {
        struct slab *slab = SW_CONTAINER_OF(node, struct slab, node);
        if (!slab->run->free || slab->run->count * BLOCK_BYTES != slab->memory.bytes)
            continue;
        sw_extents_remove(&t->extents, slab->run);
        sw_list_remove(&slab->node);
        t->n_slabs--;
        t->backed_bytes -= slab->memory.bytes;
        t->huge_bytes -= slab->memory.huge ? slab->memory.bytes : 0;
        t->config.capacity_bytes = t->backed_bytes > t->bound_bytes ? t->backed_bytes : t->bound_bytes;
        return slab;
    }
    return NULL;
}

static uint64_t host_trim(struct sw_tier *tier) {
    struct tier_host *t = host_of(tier);
    const uint64_t before = t->config.capacity_bytes;
    (void)pthread_mutex_lock(&t->lock);
    for (struct slab *slab; (slab = take_surplus(t));) {
        (void)pthread_mutex_unlock(&t->lock);
        slab_give(t, slab);
        (void)pthread_mutex_lock(&t->lock);
    }
    const uint64_t after = t->config.capacity_bytes;
    (void)pthread_mutex_unlock(&t->lock);
    return before - after;
}

/* Frees everything. The thread has ended, or was never started. */
static void fini(struct tier_host *t) {
    struct sw_list *node;
    give_held(t);
    while (t->n_io_pipes)
        (void)close(t->io_pipes[--t->n_io_pipes]);
    sw_free(t->io_pipes);
    sw_extents_fini(&t->extents);
    while ((node = sw_list_take_first(&t->slabs)))
        slab_free(t, SW_CONTAINER_OF(node, struct slab, node));
    (void)pthread_cond_destroy(&t->changed);
    (void)pthread_cond_destroy(&t->wanted);
    (void)pthread_mutex_destroy(&t->lock);
    sw_free(t);
}

static void host_close(struct sw_tier *tier) {
    struct tier_host *t = host_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    SW_ASSERT(atomic_load(&t->committed_frames) == 0 && t->demand_blocks == 0);
    t->stop = true;
    (void)pthread_cond_signal(&t->wanted);
    (void)pthread_mutex_unlock(&t->lock);
    (void)pthread_join(t->thread, NULL);
    fini(t);
}

/* Names the slab as the service manager does. */
static void host_locate(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                        uint64_t *ret_offset) {
    const struct reservation *r = SW_CONTAINER_OF(stored->extents, struct reservation, extents);
    const struct slab *slab = r->runs->slab;
    (void)tier;
    (void)snprintf(ret_file, SW_TIER_FILE_BYTES, "arena-%" PRIx64, slab->first_block * BLOCK_BYTES);
    *ret_offset = (r->runs->first - slab->first_block) * BLOCK_BYTES;
}

const struct sw_tier_kind sw_tier_host_kind = {.name = "host", .id = 1, .capabilities = SW_TIER_ADDRESSABLE};

static const struct sw_tier_ops host_ops = {
    .reserve = host_reserve,
    .commit = host_commit,
    .release = host_release,
    .stats = host_stats,
    .locate = host_locate,
    .recover = host_recover,
    .trim = host_trim,
    .close = host_close,
};

int sw_tier_host_open(struct sw_tier **ret, const struct sw_tier_host_config *config, struct sw_err *err) {
    if (config->slab_bytes == 0 || config->slab_bytes % SLAB_ALIGN_BYTES || config->capacity_bytes < BLOCK_BYTES ||
        config->capacity_bytes > INT64_MAX || config->initial_bytes > config->capacity_bytes ||
        config->ahead_bytes > config->capacity_bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON,
                          "impossible host tier: %llu bytes, %llu at start, %llu ahead, slabs of %llu",
                          (unsigned long long)config->capacity_bytes, (unsigned long long)config->initial_bytes,
                          (unsigned long long)config->ahead_bytes, (unsigned long long)config->slab_bytes);
    struct tier_host *t = sw_alloc(sizeof *t);
    if (!t)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the host tier");
    t->tier = (struct sw_tier){.ops = &host_ops, .kind = &sw_tier_host_kind};
    t->config = *config;
    t->config.capacity_bytes -= config->capacity_bytes % BLOCK_BYTES;
    t->bound_bytes = t->config.capacity_bytes;
    t->ahead_blocks = config->ahead_bytes / BLOCK_BYTES + (config->ahead_bytes % BLOCK_BYTES != 0);
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->wanted, NULL);
    (void)pthread_cond_init(&t->changed, NULL);
    sw_list_init(&t->slabs);
    sw_extents_init(&t->extents);
    int rc = take_io_pipes(t, adopt(t, err), err);
    if (rc) {
        fini(t);
        return rc;
    }
    if (sw_thread_start(&t->thread, growth_main, t) != 0) {
        fini(t);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot start the host tier's thread");
    }
    *ret = &t->tier;
    return 0;
}
