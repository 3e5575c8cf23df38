/* tier_nvme.c - space and frames of the NVMe tier. nvme_io.c does the transfers.
 *
 * The lock guards the extents, the counters and the lists. A release frees its space at once and leaves its record in
 * `released` for the tier's thread, which appends it before it starts a later write. */
#include "spill/tier/nvme/tier_nvme.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "spill/tier/extents.h"
#include "spill/tier/nvme/manifest.h"
#include "spill/tier/nvme/nvme_crypt.h"
#include "spill/tier/nvme/nvme_io.h"
#include "spill/tier/nvme/nvme_keep.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLOCK_BYTES ((uint64_t)SW_TIER_IO_ALIGN)
#define MAX_DEPTH 1024u

struct tier_nvme {
    struct sw_tier tier;
    struct sw_tier_nvme_config config;
    struct sw_nvme_file_ops file_ops; /* config.files */
    struct sw_tier_nvme_info info;
    struct sw_nvme_files files;
    struct sw_manifest *manifest; /* belongs to the thread once `io` exists */
    struct sw_ledger *ledger;     /* belongs to the thread of `keep` once this exists */
    struct sw_nvme_keep *keep;
    struct sw_nvme_io *io;
    int io_pipe; /* -1: none */
    pthread_mutex_t lock;
    struct sw_extents extents;
    struct sw_run *all_space; /* the one free run at the beginning */
    bool encrypts;
    uint64_t committed_frames;
    struct sw_list found;    /* committed by a predecessor, not handed over yet */
    bool handed_over;        /* all found frames were handed over, or there were none */
    struct sw_list held;     /* reserved or committed */
    struct sw_list released; /* the space is free, but the manifest does not know yet */
};

/* The owner of what sw_stored.extents points to. */
struct reservation {
    struct sw_list node; /* in found, held or released */
    struct sw_run *runs;
    bool committed;
    struct sw_manifest_entry entry;
    struct sw_extent extents[];
};

static struct tier_nvme *nvme_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct tier_nvme, tier);
}

static struct reservation *reservation_of(const struct sw_stored *stored) {
    return SW_CONTAINER_OF(stored->extents, struct reservation, extents);
}

static struct reservation *reservation_new(uint64_t bytes, unsigned n_extents) {
    struct reservation *r = sw_alloc(sizeof *r + n_extents * sizeof r->extents[0]);
    if (r) {
        sw_list_init(&r->node);
        sw_list_init(&r->entry.node);
        r->entry.bytes = bytes;
        r->entry.extents = r->extents;
        r->entry.n_extents = n_extents;
    }
    return r;
}

/* --- space --- */

static int take_blocks(struct tier_nvme *t, uint64_t n_blocks, struct sw_run **ret, unsigned *ret_n,
                       struct sw_err *err) {
    int rc = sw_extents_take(&t->extents, n_blocks, ret, ret_n);
    if (rc == -SW_ENOSPACE)
        return sw_err_set(err, rc, SW_SCOPE_REQUEST,
                          "NVMe tier is full: %" PRIu64 " bytes wanted, %" PRIu64 " of %" PRIu64 " free",
                          n_blocks * BLOCK_BYTES, t->extents.free_blocks * BLOCK_BYTES, t->files.bytes);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for a reservation") : 0;
}

static int nvme_reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    struct tier_nvme *t = nvme_of(tier);
    struct sw_run *runs = NULL;
    unsigned n = 0;
    SW_ASSERT(bytes > 0);
    (void)pthread_mutex_lock(&t->lock);
    int rc = take_blocks(t, bytes / BLOCK_BYTES + (bytes % BLOCK_BYTES != 0), &runs, &n, err);
    struct reservation *r = rc ? NULL : reservation_new(bytes, n);
    if (r)
        sw_list_append(&t->held, &r->node);
    else
        sw_extents_give(&t->extents, runs);
    (void)pthread_mutex_unlock(&t->lock);
    if (!r)
        return rc ? rc : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a reservation");
    r->entry.encrypted = t->encrypts;
    r->runs = runs; /* a taken run's place and length do not change */
    uint64_t left = bytes;
    unsigned i = 0;
    for (const struct sw_run *run = runs; run; run = run->next, i++) {
        uint64_t run_bytes = run->count * BLOCK_BYTES;
        r->extents[i].offset = run->first * BLOCK_BYTES;
        r->extents[i].bytes = left < run_bytes ? left : run_bytes;
        left -= r->extents[i].bytes;
    }
    *ret = (struct sw_stored){.extents = r->extents, .n_extents = n, .bytes = bytes, .tier = tier};
    return 0;
}

static void nvme_release(struct sw_tier *tier, struct sw_stored *stored) {
    struct tier_nvme *t = nvme_of(tier);
    if (stored->extents) {
        struct reservation *r = reservation_of(stored);
        bool committed = r->committed;
        (void)pthread_mutex_lock(&t->lock);
        sw_list_remove(&r->node);
        sw_extents_give(&t->extents, r->runs);
        r->runs = NULL;
        if (committed) {
            t->committed_frames--;
            sw_list_append(&t->released, &r->node);
        }
        (void)pthread_mutex_unlock(&t->lock);
        if (committed)
            sw_nvme_io_wake(t->io); /* the thread frees it */
        else
            sw_free(r);
    }
    memset(stored, 0, sizeof *stored);
}

/* --- on the tier's thread --- */

/* Rewrites a damaged manifest once its frames have been handed over, and unwanted ones are out of it. Until then the
 * next process has to find it as it was. */
static int mend(struct tier_nvme *t, struct sw_err *err) {
    (void)pthread_mutex_lock(&t->lock);
    const bool is_due = t->handed_over;
    (void)pthread_mutex_unlock(&t->lock);
    return is_due ? sw_manifest_mend(t->manifest, err) : 0;
}

/* Records all releases in the manifest. A release that fails stays in the list. Its space is not written to, because
 * the error fails the writes that would. */
static int settle(void *arg, struct sw_err *err) {
    struct tier_nvme *t = arg;
    int rc = sw_manifest_settle(t->manifest, err);
    while (!rc) {
        (void)pthread_mutex_lock(&t->lock);
        struct sw_list *node = sw_list_take_first(&t->released);
        (void)pthread_mutex_unlock(&t->lock);
        if (!node)
            break;
        struct reservation *r = SW_CONTAINER_OF(node, struct reservation, node);
        rc = sw_manifest_release(t->manifest, &r->entry, err);
        if (!rc) {
            sw_free(r);
            continue;
        }
        (void)pthread_mutex_lock(&t->lock);
        sw_list_append(&t->released, node);
        (void)pthread_mutex_unlock(&t->lock);
    }
    return rc ? rc : mend(t, err);
}

static int commit(void *arg, struct sw_tier_io *io, struct sw_err *err) {
    struct tier_nvme *t = arg;
    struct reservation *r = reservation_of(io->stored);
    memcpy(r->entry.key, io->key, sizeof r->entry.key);
    int rc = sw_manifest_commit(t->manifest, &r->entry, err);
    if (rc)
        return rc;
    r->committed = true;
    io->stored->committed = true;
    (void)pthread_mutex_lock(&t->lock);
    t->committed_frames++;
    (void)pthread_mutex_unlock(&t->lock);
    return 0;
}

static void nvme_submit(struct sw_tier *tier, struct sw_tier_io *io) {
    const struct reservation *r = reservation_of(io->stored);
    if (io->kind == SW_TIER_READ)
        memcpy(io->key, r->entry.key, sizeof io->key);
    sw_nvme_io_submit(nvme_of(tier)->io, io, !r->entry.encrypted);
}

/* --- durable regions --- */

static int nvme_may_keep(struct sw_tier *tier, uint32_t uid, struct sw_err *err) {
    const struct tier_nvme *t = nvme_of(tier);
    (void)uid;
    if (t->encrypts && !t->info.is_wrapped)
        return sw_err_set(err, -SW_EDURABILITY, SW_SCOPE_REQUEST,
                          "the NVMe tier is encrypted, and its key ends with the unit: set nvme_key_file");
    return 0;
}

static void nvme_change(struct sw_tier *tier, struct sw_tier_change *change) {
    sw_nvme_keep_submit(nvme_of(tier)->keep, change);
}

static int nvme_visit_kept(struct sw_tier *tier,
                           int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                           struct sw_err *err) {
    return sw_ledger_visit(nvme_of(tier)->ledger, visit, arg, err);
}

/* --- frames of a predecessor --- */

static struct sw_manifest_entry *found(void *arg, const struct sw_manifest_entry *frame) {
    struct tier_nvme *t = arg;
    struct reservation *r = reservation_new(frame->bytes, frame->n_extents);
    if (!r)
        return NULL;
    memcpy(r->entry.key, frame->key, sizeof r->entry.key);
    memcpy(r->extents, frame->extents, frame->n_extents * sizeof r->extents[0]);
    r->entry.encrypted = frame->encrypted;
    r->entry.doubtful = frame->doubtful;
    r->committed = true;
    sw_list_append(&t->found, &r->node);
    t->committed_frames++;
    return &r->entry;
}

/* Lists a frame's extents as places[first ...]. */
static void list_extents(const struct reservation *r, struct sw_place *places, size_t first) {
    for (unsigned i = 0; i < r->entry.n_extents; i++) {
        const struct sw_extent *e = &r->extents[i];
        places[first + i] = (struct sw_place){
            .first = e->offset / BLOCK_BYTES, .count = (e->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES, .order = first + i};
    }
}

/* Takes the listed places; on failure none. */
static int take_places(struct tier_nvme *t, struct sw_place *places, size_t n, struct sw_err *err) {
    size_t n_seen = 0;
    sw_places_sort(places, n, false);
    int rc = sw_extents_take_places(&t->extents, t->all_space, places, n, &n_seen);
    if (rc)
        rc = sw_err_set(err, rc, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    for (size_t i = 0; !rc && i < n; i++)
        SW_ASSERT(places[i].run); /* the manifest names no two frames for one place */
    for (size_t i = 0; rc && i < n; i++)
        sw_extents_give(&t->extents, places[i].run);
    sw_places_sort(places, n, true);
    return rc;
}

static int place(struct tier_nvme *t, struct sw_place *taken, size_t n, struct sw_err *err) {
    size_t k = 0;
    for (struct sw_list *node = t->found.next; node != &t->found; node = node->next) {
        const struct reservation *r = SW_CONTAINER_OF(node, struct reservation, node);
        list_extents(r, taken, k);
        k += r->entry.n_extents;
    }
    const int rc = take_places(t, taken, n, err);
    if (rc)
        return rc;
    k = 0;
    for (struct sw_list *node = t->found.next; node != &t->found; node = node->next) {
        struct reservation *r = SW_CONTAINER_OF(node, struct reservation, node);
        struct sw_run **tail = &r->runs;
        for (unsigned i = 0; i < r->entry.n_extents; i++, tail = &(*tail)->next)
            *tail = taken[k++].run;
        *tail = NULL;
    }
    return 0;
}

/* Whether a frame ends beyond the capacity: in existing files of a larger tier, or nowhere. */
enum beyond { BEYOND_NOT, BEYOND_IN_FILES, BEYOND_NOWHERE };

static enum beyond is_beyond(const struct tier_nvme *t, const struct reservation *r) {
    enum beyond worst = BEYOND_NOT;
    for (unsigned i = 0; i < r->entry.n_extents; i++) {
        const struct sw_extent *e = &r->extents[i];
        const uint64_t end = e->offset + (e->bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
        if (end <= t->config.capacity_bytes)
            continue;
        const enum beyond this =
            sw_nvme_files_reach(t->files.directory, t->config.file_bytes, end) ? BEYOND_IN_FILES : BEYOND_NOWHERE;
        worst = this > worst ? this : worst;
    }
    return worst;
}

/* A frame where no file is counts as damage. Where a file exists, the tier was larger and is needed as it was. */
static int check_found(struct tier_nvme *t, struct sw_err *err) {
    for (struct sw_list *node = t->found.next, *next; node != &t->found; node = next) {
        struct reservation *r = SW_CONTAINER_OF(node, struct reservation, node);
        const enum beyond beyond = is_beyond(t, r);
        next = node->next;
        if (beyond == BEYOND_IN_FILES)
            return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                              "tier holds frames beyond its capacity of %" PRIu64 " bytes", t->config.capacity_bytes);
        if (beyond == BEYOND_NOT)
            continue;
        sw_manifest_drop(t->manifest, &r->entry, "a frame lies where no file is");
        sw_list_remove(&r->node);
        t->committed_frames--;
        sw_free(r);
    }
    return 0;
}

/* Takes the space of found frames. */
static int place_found(struct tier_nvme *t, struct sw_err *err) {
    size_t n = 0;
    int rc = check_found(t, err);
    if (rc)
        return rc;
    for (struct sw_list *node = t->found.next; node != &t->found; node = node->next)
        n += SW_CONTAINER_OF(node, struct reservation, node)->entry.n_extents;
    if (n == 0)
        return 0;
    struct sw_place *taken = sw_alloc_array(n, sizeof *taken);
    if (!taken)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    rc = place(t, taken, n, err);
    sw_free(taken);
    return rc;
}

static int nvme_recover(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err) {
    struct tier_nvme *t = nvme_of(tier);
    for (;;) {
        (void)pthread_mutex_lock(&t->lock);
        struct sw_list *node = sw_list_empty(&t->found) ? NULL : t->found.prev;
        struct reservation *r = node ? SW_CONTAINER_OF(node, struct reservation, node) : NULL;
        const bool is_doubtful = r && r->entry.doubtful;
        if (node) {
            sw_list_remove(node);
            sw_list_append(&t->held, node);
        }
        (void)pthread_mutex_unlock(&t->lock);
        if (!node)
            break;
        struct sw_stored stored = {.extents = r->extents,
                                   .n_extents = r->entry.n_extents,
                                   .bytes = r->entry.bytes,
                                   .committed = true,
                                   .tier = tier};
        if (!what->take(what->arg, r->entry.key, &stored, is_doubtful))
            nvme_release(tier, &stored);
    }
    (void)pthread_mutex_lock(&t->lock);
    t->handed_over = true;
    (void)pthread_mutex_unlock(&t->lock);
    if (t->info.damage.n_places)
        sw_nvme_io_wake(t->io); /* to mend the manifest */
    (void)err;
    return 0;
}

/* --- life --- */

static void nvme_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    struct tier_nvme *t = nvme_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    *ret = (struct sw_tier_stats){
        .capacity_bytes = t->files.bytes,
        .backed_bytes = t->files.bytes,
        .used_bytes = (t->extents.total_blocks - t->extents.free_blocks) * BLOCK_BYTES,
        .largest_free_bytes = sw_extents_longest(&t->extents) * BLOCK_BYTES,
        .committed_frames = t->committed_frames,
        .write_bytes_per_s = sw_nvme_io_rate(t->io, SW_TIER_WRITE),
        .read_bytes_per_s = sw_nvme_io_rate(t->io, SW_TIER_READ),
    };
    (void)pthread_mutex_unlock(&t->lock);
}

static void nvme_locate(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                        uint64_t *ret_offset) {
    const struct tier_nvme *t = nvme_of(tier);
    sw_nvme_files_name(ret_file, SW_TIER_FILE_BYTES, (unsigned)(stored->extents[0].offset / t->files.file_bytes));
    *ret_offset = stored->extents[0].offset % t->files.file_bytes;
}

void sw_tier_nvme_info(struct sw_tier *tier, struct sw_tier_nvme_info *ret) {
    *ret = nvme_of(tier)->info;
}

/* Forgets the frames of a list; they stay in the directory. */
static void forget(struct tier_nvme *t, struct sw_list *list) {
    struct sw_list *node;
    while ((node = sw_list_take_first(list))) {
        struct reservation *r = SW_CONTAINER_OF(node, struct reservation, node);
        SW_ASSERT(r->committed);
        sw_extents_give(&t->extents, r->runs);
        sw_free(r);
    }
}

/* Closes the tier, also a half-opened one. */
static void nvme_close(struct sw_tier *tier) {
    struct tier_nvme *t = nvme_of(tier);
    sw_nvme_keep_close(t->keep);
    sw_nvme_io_close(t->io);
    sw_ledger_close(t->ledger);
    sw_manifest_close(t->manifest);
    forget(t, &t->found);
    forget(t, &t->held);
    forget(t, &t->released);
    sw_extents_fini(&t->extents);
    sw_nvme_files_close(&t->files);
    if (t->io_pipe >= 0)
        (void)close(t->io_pipe);
    (void)pthread_mutex_destroy(&t->lock);
    sw_free(t);
}

const struct sw_tier_kind sw_tier_nvme_kind = {.name = "nvme",
                                               .id = 2,
                                               .capabilities = SW_TIER_ASYNCHRONOUS | SW_TIER_DURABLE | SW_TIER_VIA,
                                               .durability = SW_DURABILITY_HOST};

static const struct sw_tier_ops nvme_ops = {
    .reserve = nvme_reserve,
    .release = nvme_release,
    .stats = nvme_stats,
    .locate = nvme_locate,
    .submit = nvme_submit,
    .recover = nvme_recover,
    .may_keep = nvme_may_keep,
    .change = nvme_change,
    .visit_kept = nvme_visit_kept,
    .close = nvme_close,
};

static int open_method(struct tier_nvme *t, struct sw_nvme_method **ret, struct sw_err *err) {
    const struct sw_tier_nvme_config *config = &t->config;
    int rc = -SW_ENOTSUP;
    t->info.method = SW_TIER_NVME_URING;
    if (config->method != SW_TIER_NVME_THREADS)
        rc = sw_nvme_uring_open(ret, config->queue_depth, t->io_pipe, err);
    if (rc == -SW_ENOTSUP && config->method != SW_TIER_NVME_URING) {
        t->info.method = SW_TIER_NVME_THREADS;
        rc = sw_nvme_threads_open(ret, config->queue_depth, config->files, err);
    }
    return rc;
}

static int open_io(struct tier_nvme *t, struct sw_err *err) {
    struct sw_nvme_method *method = NULL;
    int rc = open_method(t, &method, err);
    if (!rc && t->config.key) {
        struct sw_nvme_method *inner = method;
        rc = sw_nvme_crypt_open(&method, inner, t->config.queue_depth, t->config.key, err);
        if (rc)
            inner->ops->close(inner);
    }
    if (rc)
        return rc;
    struct sw_nvme_io_config config = {.files = &t->files,
                                       .method = method,
                                       .depth = t->config.queue_depth,
                                       .settle = settle,
                                       .commit = commit,
                                       .arg = t};
    rc = sw_nvme_io_open(&t->io, &config, err);
    if (rc)
        method->ops->close(method);
    return rc;
}

/* Loads what the directory holds. If encryption is new, the manifest first records which frames are not encrypted; then
 * the mark says that others are. */
static int open_manifest(struct tier_nvme *t, struct sw_err *err) {
    const struct sw_tier_nvme_config *config = &t->config;
    const int directory = t->files.directory;
    enum sw_nvme_frames frames;
    int rc = sw_nvme_key_settle(config->key, config->keep_plain, directory, &frames, err);
    if (rc)
        return rc;
    struct sw_manifest_config manifest = {.directory = directory,
                                          .file_bytes = config->file_bytes,
                                          .files = config->files,
                                          .encrypted = frames == SW_NVME_FRAMES_LOST ||
                                                       (config->key && frames != SW_NVME_FRAMES_PLAIN),
                                          .lost = frames == SW_NVME_FRAMES_LOST,
                                          .flushes = sw_ledger_n_records(t->ledger) > 0,
                                          .found = found,
                                          .arg = t};
    t->encrypts = config->key != NULL;
    rc = sw_manifest_open(&t->manifest, &manifest, err);
    if (!rc && frames != SW_NVME_FRAMES_OURS) {
        rc = sw_manifest_encrypt(t->manifest, err);
        if (!rc && manifest.flushes) /* before the mark says something else about its frames */
            rc = sw_manifest_flush(t->manifest, err);
        if (!rc)
            rc = sw_nvme_key_mark(config->key, directory, err);
    }
    return rc ? rc : place_found(t, err);
}

/* Finds the folder's own key. Nothing is wanted of a folder whose key cannot be opened, or the start ends. */
static int unwrap(struct tier_nvme *t, bool has_kept, struct sw_err *err) {
    struct sw_tier_nvme_config *config = &t->config;
    const int directory = t->files.directory;
    int rc = sw_nvme_wrap_exists(directory, err);
    if (rc <= 0)
        return rc;
    rc = config->keyring ? sw_nvme_wrap_read(directory, config->keyring, config->unwrapped, &t->info.is_rewrapped, err)
                         : sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                                      "the NVMe tier's key is wrapped by a master key: set nvme_key_file");
    if (!rc) {
        config->key = config->unwrapped;
        t->info.is_wrapped = true;
    } else if (!has_kept && config->unwanted && rc != -SW_EIO && rc != -SW_ENOMEM) {
        if (err)
            memset(err, 0, sizeof *err);
        rc = sw_nvme_wrap_remove(directory, err);
    }
    return rc;
}

/* Wraps the key, when the folder is in its encryption. */
static int wrap(struct tier_nvme *t, struct sw_err *err) {
    const struct sw_tier_nvme_config *config = &t->config;
    t->info.is_encrypted = config->key != NULL;
    if (!config->keyring || !config->key || (t->info.is_wrapped && !t->info.is_rewrapped))
        return 0;
    const int rc = sw_nvme_wrap_write(t->files.directory, config->keyring, config->key, err);
    t->info.is_wrapped = rc == 0;
    return rc;
}

/* Returns whether the content of the directory is at fault, not the system. */
static bool is_of_content(int rc) {
    return rc == -SW_ECHECKSUM || rc == -SW_EVERSION || rc == -SW_ECONFIG;
}

/* Notes the damage of a manifest that has given all it could. */
static int note_damage(struct tier_nvme *t, struct sw_err *err) {
    const struct sw_manifest_damage *damage = sw_manifest_damage(t->manifest);
    if (!damage)
        return 0;
    t->info.damage = *damage;
    return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_DAEMON, "manifest is damaged at byte %" PRIu64 ": %s", damage->at,
                      damage->what);
}

/* Empties a directory that cannot be taken as it is. */
static int start_over(struct tier_nvme *t, struct sw_err *err) {
    sw_manifest_close(t->manifest);
    t->manifest = NULL;
    forget(t, &t->found);
    t->committed_frames = 0;
    t->info.damage = (struct sw_manifest_damage){0};
    if (sw_nvme_files_remove(t->files.directory) == 0)
        return open_manifest(t, err);
    const int cause = errno;
    (void)sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "files cannot be removed: %s", strerror(cause));
    return sw_nvme_error(cause);
}

static int open_keep(struct tier_nvme *t, struct sw_err *err) {
    const struct sw_nvme_keep_config config = {
        .files = &t->files, .ops = &t->file_ops, .manifest = t->manifest, .ledger = t->ledger};
    return sw_nvme_keep_open(&t->keep, &config, err);
}

static int open_all(struct tier_nvme *t, const char *directory, struct sw_err *err) {
    const struct sw_tier_nvme_config *config = &t->config;
    struct sw_err cause = {0};
    int rc = sw_nvme_files_open(&t->files, directory, err);
    if (!rc)
        rc = sw_ledger_open(&t->ledger, t->files.directory, config->files, err);
    if (rc)
        return rc;
    const bool has_kept = sw_ledger_n_records(t->ledger) > 0;
    t->info.damaged_names = sw_ledger_n_damaged(t->ledger);
    t->config.unwanted &= !has_kept;
    t->config.keep_plain |= has_kept;
    rc = unwrap(t, has_kept, err);
    if (rc)
        return rc;
    if (sw_extents_add(&t->extents, 0, config->capacity_bytes / BLOCK_BYTES, NULL, &t->all_space))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    rc = open_manifest(t, &cause);
    const int content = rc ? rc : note_damage(t, &cause);
    if (config->unwanted && is_of_content(content)) {
        t->info.emptied = cause;
        rc = start_over(t, &cause);
    }
    if (rc && err)
        *err = cause;
    t->handed_over = sw_list_empty(&t->found);
    if (!rc)
        rc = wrap(t, err);
    if (!rc)
        rc = sw_nvme_files_allocate(&t->files, config->capacity_bytes, config->file_bytes, err);
    if (!rc)
        rc = open_io(t, err);
    return rc ? rc : open_keep(t, err);
}

int sw_tier_nvme_open(struct sw_tier **ret, const struct sw_tier_nvme_config *config, struct sw_err *err) {
    const uint64_t capacity = config->capacity_bytes - config->capacity_bytes % BLOCK_BYTES;
    if (capacity == 0 || capacity > INT64_MAX || config->file_bytes == 0 || config->file_bytes % BLOCK_BYTES ||
        (capacity - 1) / config->file_bytes >= SW_NVME_MAX_FILES || config->queue_depth == 0 ||
        config->queue_depth > MAX_DEPTH)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON,
                          "impossible NVMe tier: %" PRIu64 " bytes in files of %" PRIu64 ", %u requests at once",
                          config->capacity_bytes, config->file_bytes, config->queue_depth);
    struct tier_nvme *t = sw_alloc(sizeof *t);
    if (!t)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    t->tier = (struct sw_tier){.ops = &nvme_ops, .kind = &sw_tier_nvme_kind};
    t->config = *config;
    t->config.capacity_bytes = capacity;
    t->config.directory = NULL; /* borrowed for this call only */
    t->file_ops = sw_nvme_file_ops_of(config->files);
    t->config.files = &t->file_ops;
    t->files.directory = t->files.lock = -1;
    (void)pthread_mutex_init(&t->lock, NULL);
    sw_extents_init(&t->extents);
    sw_list_init(&t->found);
    sw_list_init(&t->held);
    sw_list_init(&t->released);
    t->io_pipe = config->io_pipe ? fcntl(*config->io_pipe, F_DUPFD_CLOEXEC, 0) : -1;
    int rc = config->io_pipe && t->io_pipe < 0
                 ? sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_DAEMON,
                              "the NVMe tier's in-flight I/O pipe cannot be duplicated: %s", strerror(errno))
                 : open_all(t, config->directory, err);
    t->config.key = NULL;
    t->config.keyring = NULL;
    t->config.io_pipe = NULL;
    t->info.direct = t->files.direct;
    t->info.reserved = t->files.reserved;
    sw_log(SW_LOG_DEBUG, "tier.nvme.open", "bytes=%" PRIu64 " frames=%" PRIu64 " direct=%d method=%s error=%s",
           capacity, t->committed_frames, t->info.direct, t->info.method == SW_TIER_NVME_URING ? "io_uring" : "threads",
           rc ? sw_err_name(rc) : "none");
    if (rc) {
        nvme_close(&t->tier);
        return rc;
    }
    *ret = &t->tier;
    return 0;
}
