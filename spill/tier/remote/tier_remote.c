/* tier_remote.c - frames and their objects, and what is found of a predecessor. remote_io.c does the transfers.
 *
 * The lock guards the lists and the counters. */
#include "spill/tier/remote/tier_remote.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/tier/remote/remote_care.h"
#include "spill/tier/remote/remote_deletion.h"
#include "spill/tier/remote/remote_io.h"
#include "spill/tier/remote/remote_load.h"
#include "spill/tier/remote/remote_names.h"
#include "spill/tier/remote/remote_pack.h"
#include "spill/tier/remote/remote_probe.h"

#include <errno.h>
#include <inttypes.h>
#include <openssl/rand.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define MOST_OBJECT_BYTES (UINT64_C(64) << 20)
#define BLOCK_BYTES ((uint64_t)SW_TIER_IO_ALIGN)

const struct sw_tier_kind sw_tier_remote_kind = {
    .name = "remote",
    .id = 3,
    .capabilities = SW_TIER_ASYNCHRONOUS | SW_TIER_DURABLE | SW_TIER_SHARED | SW_TIER_VIA,
    .durability = SW_DURABILITY_REMOTE,
    .frame_bytes = MOST_OBJECT_BYTES - MOST_OBJECT_BYTES / SW_OBJECT_SEGMENT_BYTES * SW_OBJECT_TAG_BYTES};

struct tier_remote {
    struct sw_tier tier;
    char host[SW_REMOTE_HOST_BYTES];
    char folder[SW_REMOTE_HOST_BYTES + 8];       /* of the frames' objects: "frames/HOST/" */
    char packs_folder[SW_REMOTE_HOST_BYTES + 7]; /* "packs/HOST/" */
    char batches[SW_REMOTE_HOST_BYTES + 9], probes[SW_REMOTE_HOST_BYTES + 8]; /* folders, too */
    struct sw_remote_tenants tenants;
    bool is_exclusive; /* only one of several creates wins */
    uint64_t capacity_bytes;
    int claim; /* a socket whose name stands for the objects' folder */
    struct sw_object_client *client;
    struct sw_object_keyring *keyring;
    struct sw_remote_io *io;
    struct sw_remote_care *care;
    struct sw_remote_names *names;
    pthread_mutex_t lock;
    atomic_ullong next_number;  /* of objects; begins at random, so no two processes have the same */
    struct sw_list found, held; /* places: of a predecessor, not handed over yet; reserved or committed */
    struct sw_list packs;
    uint64_t used_bytes, wasted_bytes, wasteful_bytes, n_frames, n_foreign;
    atomic_ullong n_orphans;
};

static struct tier_remote *remote_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct tier_remote, tier);
}

static struct sw_remote_place *place_of(const struct sw_stored *stored) {
    return SW_CONTAINER_OF(stored->extents, struct sw_remote_place, extent);
}

static uint64_t whole_blocks(uint64_t bytes) {
    return (bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
}

/* ---- names ---- */

static void name_object(const struct tier_remote *t, struct sw_remote_place *place) {
    int n = snprintf(place->name, sizeof place->name, "%s", t->folder);
    for (unsigned i = 0; i < SW_TIER_KEY_BYTES; i++)
        n += snprintf(place->name + n, sizeof place->name - (size_t)n, "%02x", place->key[i]);
    (void)snprintf(place->name + n, sizeof place->name - (size_t)n, "-%" PRIx64 "-%016" PRIx64, place->extent.bytes,
                   place->extent.offset);
}

/* Reads the part of a name after the folder. Returns false if it is not ours. */
static bool read_name(const char *text, uint8_t ret_key[SW_TIER_KEY_BYTES], struct sw_extent *ret) {
    if (strspn(text, "0123456789abcdef") != 2 * SW_TIER_KEY_BYTES)
        return false;
    for (unsigned i = 0; i < SW_TIER_KEY_BYTES; i++) {
        const char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        ret_key[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    text += 2 * SW_TIER_KEY_BYTES;
    text = *text == '-' ? sw_object_name_number(text + 1, '-', &ret->bytes) : NULL;
    return sw_object_name_number(text, 0, &ret->offset) && ret->bytes > 0;
}

/* ---- space ---- */

static int no_space(struct tier_remote *t, uint64_t bytes, struct sw_err *err) {
    struct sw_object_stats stats;
    sw_object_client_stats(t->client, &stats);
    if (stats.is_out)
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "the remote store is out: %.90s", stats.last.msg);
    (void)pthread_mutex_lock(&t->lock);
    const uint64_t used_bytes = t->used_bytes;
    (void)pthread_mutex_unlock(&t->lock);
    return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST,
                      "remote tier is full: %" PRIu64 " bytes wanted, %" PRIu64 " of %" PRIu64 " used", bytes,
                      used_bytes, t->capacity_bytes);
}

static struct sw_remote_place *place_new(uint64_t number, uint64_t bytes) {
    struct sw_remote_place *place = sw_alloc(sizeof *place);
    if (place) {
        sw_list_init(&place->node);
        place->extent = (struct sw_extent){.offset = number, .bytes = bytes};
    }
    return place;
}

/* Counts a place if there is room. */
static bool hold(struct tier_remote *t, struct sw_remote_place *place, struct sw_list *list) {
    const uint64_t bytes = whole_blocks(place->extent.bytes);
    (void)pthread_mutex_lock(&t->lock);
    const bool fits = list == &t->found || t->used_bytes + bytes <= t->capacity_bytes;
    if (fits) {
        t->used_bytes += bytes;
        sw_list_append(list, &place->node);
    }
    (void)pthread_mutex_unlock(&t->lock);
    return fits;
}

static struct sw_stored stored_of(struct tier_remote *t, struct sw_remote_place *place) {
    return (struct sw_stored){.extents = &place->extent,
                              .n_extents = 1,
                              .bytes = place->extent.bytes,
                              .committed = place->is_committed,
                              .tier = &t->tier};
}

static int remote_reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    struct tier_remote *t = remote_of(tier);
    struct sw_object_stats stats;
    sw_object_client_stats(t->client, &stats);
    SW_ASSERT(bytes > 0);
    if (stats.is_out)
        return no_space(t, bytes, err);
    struct sw_remote_place *place = place_new(atomic_fetch_add(&t->next_number, 1), bytes);
    if (!place)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a reservation");
    if (!hold(t, place, &t->held)) {
        sw_free(place);
        return no_space(t, bytes, err);
    }
    *ret = stored_of(t, place);
    return 0;
}

static bool is_mostly_free(const struct sw_remote_pack *pack) {
    return pack->held_bytes < pack->used_bytes / 2;
}

/* Frees the room of a place in a pack, if it is the last one. Returns the pack then. Under the lock. */
static struct sw_remote_pack *leave_pack(struct tier_remote *t, struct sw_remote_pack *pack, uint64_t bytes) {
    t->wasteful_bytes -= is_mostly_free(pack) ? pack->held_bytes : 0;
    pack->n_held--;
    pack->held_bytes -= bytes;
    t->wasteful_bytes += is_mostly_free(pack) ? pack->held_bytes : 0;
    t->wasted_bytes += bytes;
    if (pack->n_held > 0)
        return NULL;
    sw_list_remove(&pack->node);
    t->used_bytes -= pack->used_bytes;
    t->wasted_bytes -= pack->used_bytes;
    return pack;
}

static void remote_release(struct sw_tier *tier, struct sw_stored *stored) {
    struct tier_remote *t = remote_of(tier);
    if (stored->extents) {
        struct sw_remote_place *place = place_of(stored);
        const uint64_t bytes = whole_blocks(place->extent.bytes);
        (void)pthread_mutex_lock(&t->lock);
        sw_list_remove(&place->node);
        t->n_frames -= place->is_committed;
        t->used_bytes -= place->pack ? 0 : bytes;
        struct sw_remote_pack *pack = place->pack ? leave_pack(t, place->pack, bytes) : NULL;
        (void)pthread_mutex_unlock(&t->lock);
        if (pack ? pack->may_exist : place->may_exist)
            sw_remote_delete_later(t->client, pack ? pack->name : place->name, &t->n_orphans);
        sw_free(pack);
        sw_free(place);
    }
    memset(stored, 0, sizeof *stored);
}

/* ---- packs ---- */

/* Puts a place into a pack, behind its index (last NULL) or the place before. Under the lock. */
static void enter_pack(struct sw_remote_pack *pack, struct sw_remote_place *place, const struct sw_remote_place *last) {
    const uint64_t bytes = whole_blocks(place->extent.bytes);
    place->pack = pack;
    place->body_at =
        last ? last->body_at + sw_object_body_bytes(last->extent.bytes) : sw_remote_pack_index_bytes(pack->n_frames);
    place->before = last ? last->before + sw_object_segments(last->extent.bytes) : 1;
    place->name[0] = 0;
    pack->n_held++;
    pack->used_bytes += bytes;
    pack->held_bytes += bytes;
}

/* Called on a thread of remote_io. */
static struct sw_remote_pack *make_pack(void *arg, struct sw_remote_place *const *places, unsigned n,
                                        uint64_t body_bytes) {
    struct tier_remote *t = arg;
    struct sw_remote_pack *pack =
        sw_remote_pack_new(t->packs_folder, atomic_fetch_add(&t->next_number, 1), n, body_bytes);
    if (!pack)
        return NULL;
    (void)pthread_mutex_lock(&t->lock);
    sw_list_append(&t->packs, &pack->node);
    for (unsigned i = 0; i < n; i++)
        enter_pack(pack, places[i], i ? places[i - 1] : NULL);
    (void)pthread_mutex_unlock(&t->lock);
    return pack;
}

static bool remote_is_wasteful(struct sw_tier *tier, const struct sw_stored *stored) {
    struct tier_remote *t = remote_of(tier);
    const struct sw_remote_pack *pack = place_of(stored)->pack;
    (void)pthread_mutex_lock(&t->lock);
    const bool is = pack && is_mostly_free(pack);
    (void)pthread_mutex_unlock(&t->lock);
    return is;
}

/* ---- transfers ---- */

static void remote_submit(struct sw_tier *tier, struct sw_tier_io *io) {
    struct tier_remote *t = remote_of(tier);
    struct sw_remote_place *place = place_of(io->stored);
    memset(&io->err, 0, sizeof io->err);
    sw_list_init(&io->tier.node);
    SW_ASSERT((io->kind == SW_TIER_READ) == io->stored->committed);
    if (io->kind == SW_TIER_READ) {
        memcpy(io->key, place->key, sizeof io->key);
    } else {
        memcpy(place->key, io->key, sizeof io->key);
        (void)pthread_mutex_lock(&t->lock); /* gc compares names */
        name_object(t, place);
        (void)pthread_mutex_unlock(&t->lock);
    }
    sw_remote_io_submit(t->io, io, place);
}

/* A frame was written. Called on a thread of remote_io. */
static void committed(void *arg, struct sw_tier_io *io) {
    struct tier_remote *t = arg;
    (void)pthread_mutex_lock(&t->lock);
    place_of(io->stored)->is_committed = true;
    t->n_frames++;
    (void)pthread_mutex_unlock(&t->lock);
    io->stored->committed = true;
}

/* ---- frames of a predecessor ---- */

struct listing {
    struct tier_remote *tier;
    bool is_out_of_memory;
};

static bool take_object(void *arg, const char *name, uint64_t body_bytes, int64_t modified_s) {
    struct listing *listing = arg;
    struct tier_remote *t = listing->tier;
    uint8_t key[SW_TIER_KEY_BYTES];
    struct sw_extent extent = {.bytes = 0};
    (void)modified_s;
    if (!read_name(name + strlen(t->folder), key, &extent) || sw_object_body_bytes(extent.bytes) != body_bytes) {
        t->n_foreign++;
        return true;
    }
    struct sw_remote_place *place = place_new(extent.offset, extent.bytes);
    listing->is_out_of_memory = !place;
    if (!place)
        return false;
    memcpy(place->key, key, sizeof key);
    (void)snprintf(place->name, sizeof place->name, "%s", name);
    place->is_committed = place->may_exist = true;
    t->n_frames++;
    return hold(t, place, &t->found);
}

static bool take_pack(void *arg, const char *name, uint64_t body_bytes, int64_t modified_s) {
    struct listing *listing = arg;
    struct tier_remote *t = listing->tier;
    unsigned n;
    uint64_t bytes;
    (void)modified_s;
    if (!sw_remote_pack_read_name(name + strlen(t->packs_folder), &n, &bytes) || bytes != body_bytes) {
        t->n_foreign++;
        return true;
    }
    struct sw_remote_pack *pack = sw_remote_pack_new(t->packs_folder, 0, n, bytes);
    listing->is_out_of_memory = !pack;
    if (!pack)
        return false;
    (void)snprintf(pack->name, sizeof pack->name, "%s", name);
    pack->may_exist = true;
    sw_list_append(&t->packs, &pack->node);
    return true;
}

/* Makes places of the frames of a pack that was found. */
static int take_index(void *arg, struct sw_remote_pack *pack, const struct sw_remote_pack_entry *entries,
                      struct sw_err *err) {
    struct tier_remote *t = arg;
    const struct sw_remote_place *last = NULL;
    for (unsigned i = 0; i < pack->n_frames; i++) {
        struct sw_remote_place *place = place_new(entries[i].number, entries[i].bytes);
        if (!place)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
        memcpy(place->key, entries[i].key, sizeof place->key);
        place->is_committed = true;
        t->n_frames++;
        enter_pack(pack, place, last);
        (void)hold(t, place, &t->found);
        last = place;
    }
    return 0;
}

/* Forgets packs that were gone before their index could be read. */
static void forget_empty_packs(struct tier_remote *t) {
    for (struct sw_list *node = t->packs.next, *next; node != &t->packs; node = next) {
        struct sw_remote_pack *pack = SW_CONTAINER_OF(node, struct sw_remote_pack, node);
        next = node->next;
        if (pack->n_held > 0)
            continue;
        sw_list_remove(node);
        sw_free(pack);
    }
}

static int list_objects(struct tier_remote *t, struct sw_err *err) {
    struct listing listing = {.tier = t};
    const struct sw_remote_pack_load load = {.client = t->client, .keyring = t->keyring, .found = take_index, .arg = t};
    int rc = sw_object_list(t->client, t->folder, take_object, &listing, err);
    if (!rc && !listing.is_out_of_memory)
        rc = sw_object_list(t->client, t->packs_folder, take_pack, &listing, err);
    if (listing.is_out_of_memory)
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    if (!rc)
        rc = sw_remote_pack_load(&load, &t->packs, err);
    forget_empty_packs(t);
    return rc;
}

static int remote_recover(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err) {
    struct tier_remote *t = remote_of(tier);
    (void)err;
    for (;;) {
        (void)pthread_mutex_lock(&t->lock);
        struct sw_list *node = sw_list_take_first(&t->found);
        if (node)
            sw_list_append(&t->held, node);
        (void)pthread_mutex_unlock(&t->lock);
        if (!node)
            return 0;
        struct sw_remote_place *place = SW_CONTAINER_OF(node, struct sw_remote_place, node);
        struct sw_stored stored = stored_of(t, place);
        if (!what->take(what->arg, place->key, &stored, false))
            remote_release(tier, &stored);
    }
}

/* ---- care ---- */

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

static size_t copy_places(const struct sw_list *list, char (*ret)[SW_OBJECT_NAME_BYTES], size_t n) {
    for (const struct sw_list *node = list->next; node != list; node = node->next) {
        const struct sw_remote_place *place = SW_CONTAINER_OF(node, struct sw_remote_place, node);
        if (place->name[0] && ret)
            memcpy(ret[n], place->name, sizeof ret[n]);
        n += place->name[0] != 0;
    }
    return n;
}

/* Copies the names of frames' objects and packs to ret[0 ...], unless ret is NULL. Returns their number. Under the
 * lock. */
static size_t copy_names(const struct tier_remote *t, char (*ret)[SW_OBJECT_NAME_BYTES]) {
    size_t n = copy_places(&t->held, ret, copy_places(&t->found, ret, 0));
    for (const struct sw_list *node = t->packs.next; node != &t->packs; node = node->next, n++)
        if (ret)
            memcpy(ret[n], SW_CONTAINER_OF(node, struct sw_remote_pack, node)->name, sizeof ret[n]);
    return n;
}

static int list_names(void *arg, char (**ret)[SW_OBJECT_NAME_BYTES], size_t *ret_n) {
    struct tier_remote *t = arg;
    struct sw_remote_list *records = sw_remote_names_list(t->names);
    (void)pthread_mutex_lock(&t->lock);
    const size_t n = copy_names(t, NULL), n_records = sw_remote_list_copy(records, NULL, 0);
    *ret = sw_alloc_array(n + n_records + 1, sizeof **ret);
    if (*ret)
        (void)copy_names(t, *ret);
    (void)pthread_mutex_unlock(&t->lock);
    if (!*ret)
        return -SW_ENOMEM;
    const size_t n_copied = sw_remote_list_copy(records, *ret + n, n_records);
    *ret_n = n + (n_copied < n_records ? n_copied : n_records);
    qsort(*ret, *ret_n, sizeof **ret, compare_names);
    return 0;
}

static bool list_has_name(const struct sw_list *list, const char *name) {
    for (const struct sw_list *node = list->next; node != list; node = node->next)
        if (strcmp(SW_CONTAINER_OF(node, struct sw_remote_place, node)->name, name) == 0)
            return true;
    return false;
}

static bool packs_have_name(const struct sw_list *packs, const char *name) {
    for (const struct sw_list *node = packs->next; node != packs; node = node->next)
        if (strcmp(SW_CONTAINER_OF(node, struct sw_remote_pack, node)->name, name) == 0)
            return true;
    return false;
}

static bool has_name(void *arg, const char *name) {
    struct tier_remote *t = arg;
    (void)pthread_mutex_lock(&t->lock);
    const bool has =
        list_has_name(&t->held, name) || list_has_name(&t->found, name) || packs_have_name(&t->packs, name);
    (void)pthread_mutex_unlock(&t->lock);
    return has || sw_remote_list_has(sw_remote_names_list(t->names), name);
}

static enum sw_remote_record_of whose(void *arg, const char *name) {
    const struct tier_remote *t = arg;
    uint8_t key[SW_TIER_KEY_BYTES];
    struct sw_extent extent;
    unsigned n;
    if (strncmp(name, t->folder, strlen(t->folder)) == 0)
        return read_name(name + strlen(t->folder), key, &extent) ? SW_RECORD_OURS : SW_RECORD_FOREIGN;
    if (strncmp(name, t->packs_folder, strlen(t->packs_folder)) == 0)
        return sw_remote_pack_read_name(name + strlen(t->packs_folder), &n, &extent.bytes) ? SW_RECORD_OURS
                                                                                           : SW_RECORD_FOREIGN;
    if (strncmp(name, t->batches, strlen(t->batches)) == 0 || strncmp(name, t->probes, strlen(t->probes)) == 0)
        return sw_remote_record_read_number(name) ? SW_RECORD_OURS : SW_RECORD_FOREIGN;
    return sw_remote_record_of(name, t->host);
}

static bool is_ours(void *arg, const char *name) {
    const struct tier_remote *t = arg;
    const struct sw_remote_load load = {.client = t->client, .keyring = t->keyring, .host = t->host};
    struct sw_remote_record *record = NULL;
    (void)sw_remote_load_one(&load, name, &record, NULL);
    sw_free(record);
    return record;
}

static int remote_care(struct sw_tier *tier, enum sw_tier_care what, bool changes, struct sw_err *err) {
    return sw_remote_care_begin(remote_of(tier)->care, what, changes, err);
}

static void remote_care_state(struct sw_tier *tier, struct sw_tier_care_state *ret) {
    sw_remote_care_state(remote_of(tier)->care, ret);
}

/* ---- durable regions ---- */

static int remote_may_keep(struct sw_tier *tier, uint32_t uid, struct sw_err *err) {
    const struct tier_remote *t = remote_of(tier);
    const char *tenant = sw_remote_tenants_find(&t->tenants, uid);
    if (!tenant || t->is_exclusive)
        return 0;
    return sw_err_set(err, -SW_EDURABILITY, SW_SCOPE_REQUEST,
                      "the bucket lets several hosts create one object, so tenant %s cannot be shared: remove it from "
                      "remote_tier_tenants",
                      tenant);
}

static void remote_change(struct sw_tier *tier, struct sw_tier_change *change) {
    sw_remote_names_submit(remote_of(tier)->names, change);
}

static int remote_visit_kept(struct sw_tier *tier,
                             int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err),
                             void *arg, struct sw_err *err) {
    return sw_remote_list_visit(sw_remote_names_list(remote_of(tier)->names), visit, arg, err);
}

/* ---- statistics ---- */

static void remote_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    struct tier_remote *t = remote_of(tier);
    (void)pthread_mutex_lock(&t->lock);
    *ret = (struct sw_tier_stats){
        .capacity_bytes = t->capacity_bytes,
        .backed_bytes = t->capacity_bytes,
        .used_bytes = t->used_bytes,
        .wasted_bytes = t->wasted_bytes,
        .wasteful_bytes = t->wasteful_bytes,
        .largest_free_bytes = t->used_bytes < t->capacity_bytes ? t->capacity_bytes - t->used_bytes : 0,
        .committed_frames = t->n_frames,
        .write_bytes_per_s = sw_remote_io_rate(t->io, SW_TIER_WRITE),
        .read_bytes_per_s = sw_remote_io_rate(t->io, SW_TIER_READ),
    };
    (void)pthread_mutex_unlock(&t->lock);
}

/* The beginning of the object's name after the folder, and after the key, which the catalogue has. */
static void remote_locate(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                          uint64_t *ret_offset) {
    const struct tier_remote *t = remote_of(tier);
    const struct sw_remote_place *place = place_of(stored);
    const char *name = place->pack ? place->pack->name : place->name;
    const size_t n = place->pack ? strlen(t->packs_folder) : strlen(t->folder) + 2 * SW_TIER_KEY_BYTES + 1;
    (void)snprintf(ret_file, SW_TIER_FILE_BYTES, "%.31s", strlen(name) > n ? name + n : "");
    *ret_offset = place->body_at;
}

static void remote_store_stats(struct sw_tier *tier, struct sw_tier_store_stats *ret) {
    struct tier_remote *t = remote_of(tier);
    struct sw_object_stats store;
    sw_object_client_stats(t->client, &store);
    *ret = (struct sw_tier_store_stats){.puts = store.n_attempts[SW_OBJECT_PUT] + store.n_attempts[SW_OBJECT_COPY],
                                        .gets = store.n_attempts[SW_OBJECT_GET] + store.n_attempts[SW_OBJECT_HEAD],
                                        .lists = store.n_attempts[SW_OBJECT_LIST],
                                        .deletes = store.n_attempts[SW_OBJECT_DELETE],
                                        .failed_requests = store.n_failed,
                                        .repeated_requests = store.n_repeated,
                                        .sent_bytes = store.sent_bytes,
                                        .received_bytes = store.received_bytes,
                                        .is_out = store.is_out,
                                        .is_exclusive = t->is_exclusive,
                                        .last = store.last};
    sw_remote_io_add_stats(t->io, ret);
    (void)pthread_mutex_lock(&t->lock);
    ret->orphans = atomic_load(&t->n_orphans);
    ret->foreign = t->n_foreign;
    (void)pthread_mutex_unlock(&t->lock);
}

/* ---- life ---- */

static void forget(struct sw_list *list) {
    struct sw_list *node;
    while ((node = sw_list_take_first(list)))
        sw_free(SW_CONTAINER_OF(node, struct sw_remote_place, node));
}

static void forget_packs(struct sw_list *packs) {
    struct sw_list *node;
    while ((node = sw_list_take_first(packs)))
        sw_free(SW_CONTAINER_OF(node, struct sw_remote_pack, node));
}

/* Closes the tier, also a half-opened one. The threads of `io` submit to the client, which calls them back. */
static void remote_close(struct sw_tier *tier) {
    struct tier_remote *t = remote_of(tier);
    sw_remote_care_close(t->care);
    sw_remote_io_stop(t->io);
    sw_object_client_close(t->client);
    sw_remote_io_free(t->io);
    sw_remote_names_free(t->names);
    sw_object_keyring_close(t->keyring);
    forget(&t->found);
    forget(&t->held);
    forget_packs(&t->packs);
    (void)pthread_mutex_destroy(&t->lock);
    if (t->claim >= 0)
        (void)close(t->claim);
    sw_free(t);
}

static const struct sw_tier_ops remote_ops = {.reserve = remote_reserve,
                                              .release = remote_release,
                                              .stats = remote_stats,
                                              .is_wasteful = remote_is_wasteful,
                                              .store_stats = remote_store_stats,
                                              .care = remote_care,
                                              .care_state = remote_care_state,
                                              .locate = remote_locate,
                                              .submit = remote_submit,
                                              .recover = remote_recover,
                                              .may_keep = remote_may_keep,
                                              .change = remote_change,
                                              .visit_kept = remote_visit_kept,
                                              .close = remote_close};

/* Two processes of one name would take each other's objects for their own orphans. A socket's name in the abstract
 * namespace is free again when the process ends, however it does. */
static int claim_folder(struct tier_remote *t, const struct sw_tier_remote_config *config, struct sw_err *err) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    char what[1200], digest[SW_OBJECT_HASH_BYTES];
    const int n = snprintf(what, sizeof what, "%s\n%s\n%s\n%s", config->store.endpoint, config->store.bucket,
                           config->store.prefix, config->host);
    t->claim = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (t->claim < 0 || !sw_object_hash(what, (size_t)n < sizeof what ? (size_t)n : sizeof what - 1, digest))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "no socket for the remote tier");
    (void)snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "spillway-remote-%s", digest);
    if (bind(t->claim, (struct sockaddr *)&address, sizeof address) == 0)
        return 0;
    return sw_err_set(err, errno == EADDRINUSE ? -SW_EBUSY : -SW_EIO, SW_SCOPE_DAEMON,
                      "another process uses the remote tier's objects, frames/%s: %s", config->host, strerror(errno));
}

static int check_host(const char *host, struct sw_err *err) {
    const size_t n = strlen(host);
    if (n > 0 && n < SW_REMOTE_HOST_BYTES && strspn(host, "abcdefghijklmnopqrstuvwxyz0123456789-") == n)
        return 0;
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                      "remote tier: the host's name must have 1 to 32 characters of [a-z0-9-]");
}

static int begin_numbers(struct tier_remote *t, struct sw_err *err) {
    uint64_t number;
    if (RAND_bytes((unsigned char *)&number, sizeof number) != 1)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "libcrypto has no random numbers");
    atomic_init(&t->next_number, number >> 4); /* and its end has room for a length */
    return 0;
}

static int probe(struct tier_remote *t, struct sw_err *err) {
    char name[SW_OBJECT_NAME_BYTES];
    (void)snprintf(name, sizeof name, "%s", t->probes);
    sw_remote_record_number(name, atomic_fetch_add(&t->next_number, 1));
    return sw_remote_probe(t->client, name, &t->is_exclusive, err);
}

/* Lists the bucket's objects, and finds out what the store supports. */
static int ask_store(struct tier_remote *t, struct sw_err *err) {
    const struct sw_remote_list_config list = {
        .client = t->client, .keyring = t->keyring, .host = t->host, .n_orphans = &t->n_orphans};
    int rc = list_objects(t, err);
    if (!rc)
        rc = probe(t, err);
    return rc ? rc : sw_remote_names_open(&t->names, &list, &t->tenants, err);
}

static int open_care(struct tier_remote *t, struct sw_err *err) {
    const struct sw_remote_care_config care = {.client = t->client,
                                               .keyring = t->keyring,
                                               .folders = {t->folder, t->packs_folder, "names/", t->batches, t->probes},
                                               .list_names = list_names,
                                               .has_name = has_name,
                                               .whose = whose,
                                               .is_ours = is_ours,
                                               .arg = t};
    return sw_remote_care_open(&t->care, &care, err);
}

static int open_parts(struct tier_remote *t, const struct sw_tier_remote_config *config, struct sw_err *err) {
    int rc = sw_remote_tenants_read(&t->tenants, config->tenants ? config->tenants : "none", err);
    if (!rc)
        rc = claim_folder(t, config, err);
    if (!rc)
        rc = begin_numbers(t, err);
    if (!rc)
        rc = sw_object_keyring_open(&t->keyring, config->key_file, err);
    if (!rc)
        rc = sw_object_client_open(&t->client, &config->store, err);
    const struct sw_remote_io_config io = {.client = t->client,
                                           .keyring = t->keyring,
                                           .pool_bytes = config->pool_bytes,
                                           .committed = committed,
                                           .pack = make_pack,
                                           .arg = t};
    if (!rc)
        rc = sw_remote_io_open(&t->io, &io, err);
    if (!rc)
        rc = ask_store(t, err);
    return rc ? rc : open_care(t, err);
}

int sw_tier_remote_open(struct sw_tier **ret, const struct sw_tier_remote_config *config, struct sw_err *err) {
    int rc = check_host(config->host, err);
    if (rc)
        return rc;
    struct tier_remote *t = sw_alloc(sizeof *t);
    if (!t)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    t->tier = (struct sw_tier){.ops = &remote_ops, .kind = &sw_tier_remote_kind};
    (void)snprintf(t->host, sizeof t->host, "%s", config->host);
    (void)snprintf(t->folder, sizeof t->folder, "frames/%s/", t->host);
    (void)snprintf(t->packs_folder, sizeof t->packs_folder, "packs/%s/", t->host);
    (void)snprintf(t->batches, sizeof t->batches, "batches/%s/", t->host);
    (void)snprintf(t->probes, sizeof t->probes, "probe/%s/", t->host);
    t->capacity_bytes = config->capacity_bytes;
    t->claim = -1;
    sw_list_init(&t->found);
    sw_list_init(&t->held);
    sw_list_init(&t->packs);
    (void)pthread_mutex_init(&t->lock, NULL);
    rc = open_parts(t, config, err);
    if (rc)
        remote_close(&t->tier);
    else
        *ret = &t->tier;
    return rc;
}
