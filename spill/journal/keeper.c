#include "spill/journal/keeper.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "spill/journal/kept.h"
#include "spill/store/owner.h"

#include <string.h>

/* A change that is under way. */
struct change {
    struct sw_tier_change tier; /* first */
    struct sw_keeper *keeper;
    /* KEEP: */
    struct sw_tier *keeper_tier;
    struct sw_catalogue_content content; /* of all records */
    struct sw_region **regions;          /* [tier.n] */
    void (*ended)(const struct sw_err *err, void *arg);
    void *arg;
    /* FORGET: */
    struct sw_frames *frames;
    uint32_t record;
    struct sw_tier_record records[];
};

void sw_keeper_init(struct sw_keeper *ret, const struct sw_store *store, struct sw_catalogue *catalogue,
                    void (*wake)(void *arg), void *arg) {
    *ret = (struct sw_keeper){.store = store, .catalogue = catalogue, .wake = wake, .arg = arg};
    (void)pthread_mutex_init(&ret->lock, NULL);
    sw_list_init(&ret->ended);
}

void sw_keeper_fini(struct sw_keeper *keeper) {
    (void)pthread_mutex_destroy(&keeper->lock);
}

/* Called on a thread of the tier. */
static void on_done(struct sw_tier_change *tier, void *arg) {
    struct sw_keeper *keeper = arg;
    (void)pthread_mutex_lock(&keeper->lock);
    sw_list_append(&keeper->ended, &tier->node);
    /* Under the lock: after the last answer the engine may close. */
    keeper->wake(keeper->arg);
    (void)pthread_mutex_unlock(&keeper->lock);
}

static struct change *change_new(struct sw_keeper *keeper, enum sw_tier_change_kind kind, unsigned n) {
    struct change *change = sw_alloc(sizeof *change + n * (sizeof(struct sw_tier_record) + sizeof(struct sw_region *)));
    if (!change)
        return NULL;
    change->tier =
        (struct sw_tier_change){.kind = kind, .records = change->records, .n = n, .done = on_done, .arg = keeper};
    sw_list_init(&change->tier.node);
    change->keeper = keeper;
    change->regions = (struct sw_region **)(void *)&change->records[n];
    return change;
}

static void submit(struct sw_keeper *keeper, struct sw_tier *tier, struct change *change) {
    keeper->n_changes++;
    tier->ops->change(tier, &change->tier);
}

/* ---- keep ---- */

/* A session has a uid of its own only if it is recorded. */
static uint32_t uid_of(const struct sw_region *region) {
    const struct sw_owner *owner = region->owner;
    return owner->tenant_owner ? owner->tenant_owner->uid : owner->uid;
}

static int encode(const struct sw_keeper *keeper, const struct sw_completion *c, struct sw_catalogue_content *ret) {
    const struct sw_region *region = c->region;
    const struct sw_region_table *table = &keeper->store->regions;
    const uint32_t generation = sw_catalogue_generation(keeper->catalogue);
    const struct sw_kept_ids ids = {.epoch = keeper->store->place.epoch,
                                    .generation = generation > region->id.gen ? generation : region->id.gen,
                                    .n_entries = table->n_touched};
    const struct sw_catalogue_region what = {.session = region->owner->number,
                                             .slot = region->id.slot,
                                             .gen = region->id.gen,
                                             .request = region->request,
                                             .batch_index = region->batch_index,
                                             .raw_bytes = region->raw_bytes,
                                             .stored_bytes = c->sum->stored_bytes,
                                             .codec = (uint8_t)sw_frames_most_used(c->sum->codec_raw_bytes),
                                             .reason = (uint8_t)c->sum->reason,
                                             .hints = {.priority = region->priority},
                                             .name = region->name,
                                             .uid = uid_of(region),
                                             .frames = c->frames};
    return sw_kept_encode(ret, &ids, &what);
}

static int fill(struct sw_keeper *keeper, struct change *change, const struct sw_completion *all) {
    size_t ends[SW_KEEPER_MAX];
    int rc = 0;
    for (unsigned i = 0; !rc && i < change->tier.n; i++) {
        rc = encode(keeper, &all[i], &change->content);
        ends[i] = change->content.n;
        change->regions[i] = all[i].region;
    }
    for (unsigned i = 0; !rc && i < change->tier.n; i++) { /* the content does not grow any more */
        const size_t at = i ? ends[i - 1] : 0;
        change->records[i] = (struct sw_tier_record){.content = change->content.bytes + at,
                                                     .bytes = ends[i] - at,
                                                     .uid = uid_of(all[i].region),
                                                     .name = all[i].region->name};
    }
    return rc;
}

static int keep_in(struct sw_keeper *keeper, struct sw_tier *tier, const struct sw_completion *all, unsigned n,
                   void (*ended)(const struct sw_err *err, void *arg), void *arg, struct sw_err *err) {
    SW_ASSERT(n >= 1 && n <= SW_KEEPER_MAX);
    struct change *change = change_new(keeper, SW_TIER_KEEP, n);
    if (!change || fill(keeper, change, all)) {
        if (change)
            sw_free(change->content.bytes);
        sw_free(change);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a durable region");
    }
    change->keeper_tier = tier;
    change->ended = ended;
    change->arg = arg;
    submit(keeper, tier, change);
    return 0;
}

int sw_keeper_keep(struct sw_keeper *keeper, const struct sw_completion *all, unsigned n,
                   void (*ended)(const struct sw_err *err, void *arg), void *arg, struct sw_err *err) {
    struct sw_tier *tier = sw_tiers_keeper(&keeper->store->place.tiers, all[0].region->durability);
    return keep_in(keeper, tier, all, n, ended, arg, err);
}

int sw_keeper_move(struct sw_keeper *keeper, struct sw_region *region, struct sw_tier *to,
                   void (*ended)(const struct sw_err *err, void *arg), void *arg, struct sw_err *err) {
    struct sw_run_outcome sum = {.stored_bytes = region->stored_bytes, .reason = region->reason};
    const struct sw_completion what = {region, region->frames, &sum};
    sum.codec_raw_bytes[region->codec] = 1;
    return keep_in(keeper, to, &what, 1, ended, arg, err);
}

static void kept(struct change *change) {
    for (unsigned i = 0; !change->tier.err.code && i < change->tier.n; i++) {
        change->regions[i]->kept = change->records[i].number;
        change->regions[i]->keeper = change->keeper_tier;
        change->regions[i]->durability = change->keeper_tier->kind->durability;
    }
    change->ended(&change->tier.err, change->arg);
}

/* ---- forget ---- */

/* The frames stay, too: the successor finds the region, whole. */
static void not_forgotten(const struct sw_err *err, uint64_t number, struct sw_frames *frames) {
    sw_log(SW_LOG_WARNING, "region.not_forgotten",
           "record=%llu name=%s text=\"%s\" then=\"the dropped region takes up its room until the next start, and may "
           "come back then\"",
           (unsigned long long)number, sw_err_name(err->code), err->msg);
    sw_frames_leave(frames);
}

void sw_keeper_forget(struct sw_keeper *keeper, struct sw_tier *tier, uint64_t number, struct sw_frames *frames,
                      uint32_t record) {
    const struct sw_catalogue_hints hints = {.is_in = true};
    struct change *change = change_new(keeper, SW_TIER_FORGET, 1);
    sw_catalogue_hint(keeper->catalogue, record, &hints);
    if (!change) {
        not_forgotten(&(struct sw_err){.code = -SW_ENOMEM, .msg = "out of memory"}, number, frames);
        return;
    }
    change->records[0].number = number;
    change->frames = frames;
    change->record = record;
    submit(keeper, tier, change);
}

static void forgotten(struct change *change) {
    if (change->tier.err.code) {
        not_forgotten(&change->tier.err, change->records[0].number, change->frames);
        return;
    }
    sw_catalogue_free(change->keeper->catalogue, &change->record);
    sw_frames_free(change->frames);
}

/* ---- both ---- */

static struct change *next_ended(struct sw_keeper *keeper) {
    (void)pthread_mutex_lock(&keeper->lock);
    struct sw_list *node = sw_list_take_first(&keeper->ended);
    (void)pthread_mutex_unlock(&keeper->lock);
    return node ? SW_CONTAINER_OF(node, struct change, tier.node) : NULL;
}

void sw_keeper_take(struct sw_keeper *keeper) {
    struct change *change;
    while ((change = next_ended(keeper))) {
        keeper->n_changes--;
        if (change->tier.kind == SW_TIER_KEEP)
            kept(change);
        else
            forgotten(change);
        sw_free(change->content.bytes);
        sw_free(change);
    }
}
