#include "spill/journal/recovery.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/journal/keeper.h"
#include "spill/journal/kept.h"
#include "spill/journal/record.h"
#include "spill/store/names.h"
#include "spill/store/owner.h"
#include "spill/tier/frame_key.h"

#include <string.h>

/* A region that was dropped, but that its tier had not forgotten yet. */
struct dropped {
    struct sw_region_id id;
    uint32_t record;
    struct sw_tier *tier; /* that still keeps it; NULL: none does */
    uint64_t number;
};

/* A second record of a region, of a tier that was about to take it over from another one. */
struct second {
    struct sw_list node;
    struct sw_region *region;
    struct sw_frames *frames;
    struct sw_tier *tier;
    uint64_t number;
};

struct recovery {
    struct sw_store *store;
    struct sw_catalogue *catalogue;
    struct sw_recovered *result;
    struct sw_owner *last; /* the session found last */
    struct dropped *dropped;
    size_t n_dropped;
    struct sw_tier *tier; /* whose kept regions are being visited */
    struct sw_list seconds;
    bool no_memory;
};

static bool on_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct recovery *r = arg;
    struct sw_owner *owner = sw_owner_new(r->store);
    if (!owner) {
        r->no_memory = true;
        return true; /* nothing is freed: the start fails */
    }
    owner->number = session->number;
    owner->record = record;
    owner->uid = session->uid;
    owner->process = session->process;
    owner->state = SW_OWNER_UNCLAIMED;
    memcpy(owner->token, session->token, sizeof owner->token);
    if (session->number > r->store->last_owner)
        r->store->last_owner = session->number;
    r->result->n_sessions++;
    return true;
}

/* Tenant owners are skipped: their numbers are not recorded. */
static struct sw_owner *find_session(struct recovery *r, uint64_t number) {
    if (r->last && r->last->number == number)
        return r->last;
    for (struct sw_list *node = r->store->owners.next; node != &r->store->owners; node = node->next) {
        r->last = SW_CONTAINER_OF(node, struct sw_owner, node);
        if (!r->last->is_tenant_owner && r->last->number == number)
            return r->last;
    }
    return r->last = NULL;
}

/* Returns the tenant owner, which has the durable regions of a uid whose sessions are gone. NULL: out of memory. */
static struct sw_owner *find_tenant_owner(struct recovery *r, uint32_t uid) {
    struct sw_owner *owner = NULL;
    for (struct sw_list *node = r->store->owners.next; node != &r->store->owners; node = node->next) {
        owner = SW_CONTAINER_OF(node, struct sw_owner, node);
        if (owner->is_tenant_owner && owner->uid == uid)
            return owner;
    }
    owner = sw_owner_new(r->store);
    if (!owner) {
        r->no_memory = true;
        return NULL;
    }
    sw_owner_become_tenant_owner(owner, uid);
    owner->state = SW_OWNER_UNCLAIMED;
    return owner;
}

static struct sw_owner *find_owner(struct recovery *r, const struct sw_catalogue_region *found) {
    struct sw_owner *owner = find_session(r, found->session);
    return owner || !found->name ? owner : find_tenant_owner(r, found->uid);
}

/* The record stays until the tier has forgotten the region. */
static void note_dropped(struct recovery *r, const struct sw_catalogue_region *found, uint32_t record) {
    struct dropped *grown = sw_realloc(r->dropped, (r->n_dropped + 1) * sizeof *grown);
    if (!grown) {
        r->no_memory = true;
        return;
    }
    r->dropped = grown;
    r->dropped[r->n_dropped++] = (struct dropped){.id = {found->slot, found->gen}, .record = record};
}

static bool on_region(void *arg, struct sw_catalogue_region *found, uint32_t record) {
    struct recovery *r = arg;
    if (found->hints.is_in && found->name) { /* durable regions are never restored for good */
        note_dropped(r, found, record);
        sw_catalogue_frames_free(found->frames);
        return true;
    }
    struct sw_owner *owner = find_owner(r, found);
    const struct sw_region_id id = {.slot = found->slot, .gen = found->gen};
    const enum sw_region_state state = found->hints.is_in                      ? SW_REGION_IN
                                       : found->hints.broken || !found->frames ? SW_REGION_LOST
                                                                               : SW_REGION_OUT;
    const bool in_place = !found->frames || found->frames->packed; /* packing was under way, or had ended */
    struct sw_region *region = owner ? sw_region_adopt(&r->store->regions, owner, id, state) : NULL;
    if (!region && owner && state == SW_REGION_IN)
        r->no_memory |= !(region = sw_region_new_detached(owner, id));
    if (!region || state != SW_REGION_OUT) { /* other frames may be in their place by now */
        sw_catalogue_frames_free(found->frames);
        found->frames = NULL;
    }
    if (!region) {
        r->result->n_lost += owner != NULL && !found->hints.is_in; /* beyond max_regions */
        return r->no_memory;
    }
    region->raw_bytes = found->raw_bytes;
    region->stored_bytes = found->stored_bytes;
    region->used_us = found->hints.used_us;
    region->priority = found->hints.priority;
    region->pinned = found->hints.pinned;
    region->codec = found->codec < SW_CODEC_NR ? (enum sw_codec_id)found->codec : SW_CODEC_RAW;
    region->reason = found->reason < SW_COST_REASON_NR ? (enum sw_cost_reason)found->reason : SW_COST_UNKNOWN;
    region->request = found->request;
    region->batch_index = found->batch_index;
    region->record = record;
    region->in_place = in_place;
    region->may_fill_holes = found->may_fill_holes;
    region->frames = found->frames;
    if (found->name && sw_region_set_name(region, found->name))
        r->no_memory = true;
    if (found->session > r->store->last_owner) /* no new session may get the number of an old one */
        r->store->last_owner = found->session;
    sw_list_append(region->is_detached ? &owner->detached : &owner->regions, &region->node);
    owner->n_regions += !region->is_detached;
    r->result->n_regions++;
    r->result->raw_bytes += region->raw_bytes;
    return true;
}

/* ---- regions that tiers keep ---- */

static struct sw_region *find_region(const struct recovery *r, const struct sw_catalogue_region *found) {
    const struct sw_region_table *table = &r->store->regions;
    struct sw_region *region = found->slot < table->cap ? &table->regions[found->slot] : NULL;
    return region && region->owner && region->id.gen == found->gen ? region : NULL;
}

/* The tier is asked when all records were visited. */
static bool goes_on_forgetting(struct recovery *r, const struct sw_catalogue_region *found, uint64_t number) {
    for (size_t i = 0; i < r->n_dropped; i++) {
        struct dropped *dropped = &r->dropped[i];
        if (dropped->id.slot != found->slot || dropped->id.gen != found->gen)
            continue;
        if (dropped->tier) { /* two tiers have it */
            note_dropped(r, found, 0);
            dropped = &r->dropped[r->n_dropped - 1];
        }
        dropped->tier = r->tier;
        dropped->number = number;
        return true;
    }
    return false;
}

/* Returns whether the region's frames are in another tier than this one. */
static bool is_elsewhere(const struct sw_region *region, const struct sw_tier *tier) {
    for (size_t i = 0; region->frames && i < region->frames->n_chunks; i++)
        if (region->frames->stored[i].awaits && region->frames->stored[i].awaits != tier->kind->id)
            return true;
    return false;
}

static int note_second(struct recovery *r, struct sw_region *region, struct sw_frames *frames, uint64_t number,
                       struct sw_err *err) {
    struct second *second = sw_alloc(sizeof *second);
    if (!second) {
        sw_catalogue_frames_free(frames);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the durable regions");
    }
    *second = (struct second){.region = region, .frames = frames, .tier = r->tier, .number = number};
    sw_list_init(&second->node);
    sw_list_append(&r->seconds, &second->node);
    return 0;
}

/* A region that the catalogue has, too, is as the catalogue says. It does not have it after the end of the unit, or of
 * the machine, and if the process was killed after the tier had kept it. */
static int on_kept(void *arg, const struct sw_tier_record *record, struct sw_err *err) {
    struct recovery *r = arg;
    struct sw_catalogue_region found;
    char name[SW_REGION_NAME_BYTES];
    int rc = sw_kept_decode(record, &found, name, err);
    if (rc)
        return rc;
    struct sw_region *region = find_region(r, &found);
    if (region && is_elsewhere(region, r->tier))
        return note_second(r, region, found.frames, record->number, err);
    if (region || goes_on_forgetting(r, &found, record->number)) {
        sw_catalogue_frames_free(found.frames);
    } else {
        (void)on_region(r, &found, 0);
        region = find_region(r, &found);
        if (!region)
            rc = r->no_memory ? sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the durable regions")
                              : sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                                           "durable region %u:%u has the id of another one", found.slot, found.gen);
    }
    if (region) {
        region->kept = record->number;
        region->keeper = r->tier;
        region->durability = r->tier->kind->durability;
    }
    return rc;
}

static int visit_kept(struct recovery *r, struct sw_err *err) {
    const struct sw_tiers *tiers = &r->store->place.tiers;
    int rc = 0;
    for (unsigned i = 0; !rc && i < tiers->n; i++) {
        r->tier = tiers->at[i];
        if (r->tier->kind->durability > SW_DURABILITY_SERVICE)
            rc = r->tier->ops->visit_kept(r->tier, on_kept, r, err);
    }
    for (size_t i = 0; !rc && i < r->n_dropped; i++) {
        struct dropped *dropped = &r->dropped[i];
        if (dropped->tier)
            sw_keeper_forget(r->store->keeper, dropped->tier, dropped->number, NULL, dropped->record);
        else
            sw_catalogue_free(r->catalogue, &dropped->record);
    }
    sw_free(r->dropped);
    r->dropped = NULL;
    return rc;
}

/* Records kept regions, so that a successor with this catalogue finds them under their ids. Without a record it finds
 * them by their tier. */
static void record_kept(struct recovery *r, struct sw_region *region, void *arg) {
    (void)arg;
    if (region->kept && !region->record && region->state == SW_REGION_OUT)
        (void)sw_region_record(r->catalogue, region, NULL);
}

/* ---- frames ---- */

/* Returns true if the record says that the chunk is in a tier, and it was not found there yet. */
static bool awaits_frame(const struct sw_stored *stored) {
    return !stored->tier && stored->awaits;
}

/* Returns true if the frame found lies where the record says. Version 1 did not record the place. */
static bool is_in_its_place(const struct sw_stored *recorded, const struct sw_stored *found) {
    if (recorded->bytes != found->bytes || (recorded->n_extents && recorded->n_extents != found->n_extents))
        return false;
    for (unsigned i = 0; i < recorded->n_extents; i++)
        if (recorded->extents[i].offset != found->extents[i].offset ||
            recorded->extents[i].bytes != found->extents[i].bytes)
            return false;
    return true;
}

/* A frame that a durable tier has found. */
struct candidate {
    struct sw_tier_key key;
    const struct sw_stored *stored;
    bool is_doubtful;
};

/* Returns the frame's place among these; NULL: it has none. */
static struct sw_stored *find_place(struct sw_frames *frames, const struct candidate *found) {
    size_t i = 0;
    struct sw_stored *place = frames && sw_frames_find(frames, found->key.chunk, &i) ? &frames->stored[i] : NULL;
    const bool fits = place && awaits_frame(place) && place->awaits == found->stored->tier->kind->id &&
                      is_in_its_place(place, found->stored) &&
                      (!found->is_doubtful || place->n_extents || sw_tier_key_has_check(found->key.check));
    return fits ? place : NULL;
}

/* Returns the place of a durable tier's frame in its region. NULL: no record names it. */
static struct sw_stored *find_chunk(const struct recovery *r, const struct candidate *found) {
    const struct sw_region_table *table = &r->store->regions;
    const struct sw_region *region = found->key.slot < table->cap ? &table->regions[found->key.slot] : NULL;
    if (found->key.epoch != r->store->place.epoch || !region || !region->owner || region->id.gen != found->key.gen)
        return NULL;
    struct sw_stored *place = find_place(region->frames, found);
    for (struct sw_list *node = r->seconds.next; !place && node != &r->seconds; node = node->next) {
        const struct second *second = SW_CONTAINER_OF(node, struct second, node);
        place = second->region == region ? find_place(second->frames, found) : NULL;
    }
    return place;
}

/* Only a damaged manifest has two frames for one chunk. Then the frame in the recorded place counts; for a record of
 * version 1 the later one, which comes first. A doubtful frame is taken only if it lies in the recorded place, or has a
 * check that recognises it when it is read. */
static bool take_frame(void *arg, const uint8_t bytes[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                       bool doubtful) {
    struct recovery *r = arg;
    struct candidate found = {.stored = stored, .is_doubtful = doubtful};
    memcpy(&found.key, bytes, sizeof found.key);
    struct sw_stored *chunk = find_chunk(r, &found);
    if (!chunk) {
        r->result->n_released++;
        return false;
    }
    sw_free(chunk->extents);
    *chunk = *stored;
    return true;
}

/* Calls visit() for every region that was found. */
static void each_region(struct recovery *r, void (*visit)(struct recovery *r, struct sw_region *region, void *arg),
                        void *arg) {
    for (struct sw_list *o = r->store->owners.next; o != &r->store->owners; o = o->next) {
        struct sw_owner *owner = SW_CONTAINER_OF(o, struct sw_owner, node);
        for (struct sw_list *n = owner->regions.next; n != &owner->regions; n = n->next)
            visit(r, SW_CONTAINER_OF(n, struct sw_region, node), arg);
    }
}

struct claims {
    uint8_t id;                /* id of the tier's kind */
    struct sw_stored **frames; /* NULL: only counting */
    size_t n;
};

static void list_frames(struct recovery *r, struct sw_region *region, void *arg) {
    struct claims *claims = arg;
    (void)r;
    for (size_t i = 0; region->frames && i < region->frames->n_chunks; i++) {
        struct sw_stored *stored = &region->frames->stored[i];
        if (!awaits_frame(stored) || stored->awaits != claims->id || stored->n_extents == 0)
            continue;
        if (claims->frames)
            claims->frames[claims->n] = stored;
        claims->n++;
    }
}

/* Lists the frames that a tier without a record of its own should find. */
static int list_claims(struct recovery *r, const struct sw_tier *tier, struct claims *ret, struct sw_err *err) {
    *ret = (struct claims){.id = tier->kind->id};
    if (sw_tier_can(tier, SW_TIER_DURABLE))
        return 0;
    each_region(r, list_frames, ret);
    ret->frames = sw_alloc_array(ret->n ? ret->n : 1, sizeof(void *));
    if (!ret->frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for %zu frames", ret->n);
    ret->n = 0;
    each_region(r, list_frames, ret);
    return 0;
}

static int recover_tier(struct recovery *r, struct sw_tier *tier, struct sw_err *err) {
    struct claims claims;
    int rc = list_claims(r, tier, &claims, err);
    const struct sw_tier_recovery what = {.frames = claims.frames, .n = claims.n, .take = take_frame, .arg = r};
    if (!rc)
        rc = tier->ops->recover(tier, &what, err);
    sw_free(claims.frames);
    return rc;
}

/* Without a catalogue only durable tiers are asked, to release the frames that they have found. */
static int recover_tiers(struct recovery *r, struct sw_err *err) {
    const struct sw_tiers *tiers = &r->store->place.tiers;
    int rc = 0;
    for (unsigned i = 0; !rc && i < tiers->n; i++)
        if (r->catalogue || sw_tier_can(tiers->at[i], SW_TIER_DURABLE))
            rc = recover_tier(r, tiers->at[i], err);
    return rc;
}

static bool is_whole(const struct sw_frames *frames) {
    bool whole = frames != NULL;
    for (size_t i = 0; whole && i < frames->n_chunks; i++)
        whole = frames->stored[i].tier != NULL;
    return whole;
}

/* If a region has two records, one whose frames are whole counts: the region's own record, if possible. */
static void settle_second(struct recovery *r, struct second *second) {
    struct sw_region *region = second->region;
    const bool takes_second = is_whole(second->frames) && (!is_whole(region->frames) || !region->kept);
    if (takes_second) {
        const struct second old = {.frames = region->frames, .tier = region->keeper, .number = region->kept};
        region->frames = second->frames;
        region->keeper = second->tier;
        region->kept = second->number;
        region->durability = second->tier->kind->durability;
        *second = old;
        if (region->record)
            (void)sw_region_record(r->catalogue, region, NULL);
    }
    sw_catalogue_free_unclaimed(second->frames);
    if (second->number && (takes_second || is_whole(region->frames)))
        sw_keeper_forget(r->store->keeper, second->tier, second->number, second->frames, 0);
    else if (second->number)
        sw_frames_leave(second->frames); /* neither is whole: nothing is given up */
    else
        sw_frames_free(second->frames);
}

static void settle_seconds(struct recovery *r, bool good) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&r->seconds))) {
        struct second *second = SW_CONTAINER_OF(node, struct second, node);
        if (good) {
            settle_second(r, second);
        } else {
            sw_catalogue_free_unclaimed(second->frames);
            sw_frames_leave(second->frames);
        }
        sw_free(second);
    }
}

static void trim_tiers(struct sw_placement *place) {
    for (unsigned i = 0; i < place->tiers.n; i++)
        if (place->tiers.at[i]->ops->trim)
            place->limit_bytes[i] -= place->tiers.at[i]->ops->trim(place->tiers.at[i]);
}

static void report_lost(const struct sw_observer *observer, const struct sw_region *region, size_t n_gone,
                        size_t n_away) {
    const struct sw_lost_region lost = {.region = region->id,
                                        .session = region->owner->is_tenant_owner ? 0 : region->owner->number,
                                        .uid = region->owner->uid,
                                        .name = region->name,
                                        .raw_bytes = region->raw_bytes,
                                        .n_chunks = region->frames ? region->frames->n_chunks : 0,
                                        .n_gone = n_gone,
                                        .n_away = n_away};
    if (observer->lost_region && region->state == SW_REGION_LOST)
        observer->lost_region(&lost, observer->arg);
}

/* Returns whether a frame that was not found may still exist: in a tier that was not opened, or on a disk that is
 * replaced by another one at the moment. */
static bool is_away(const struct recovery *r, const struct sw_stored *stored) {
    const struct sw_tier *tier = sw_tiers_find(&r->store->place.tiers, stored->awaits);
    return awaits_frame(stored) && (!tier || sw_tier_can(tier, SW_TIER_DURABLE));
}

/* Clients of an earlier version restore their regions into memory without pages, which their library does not make.
 * They may do so once, and only while this process runs. So the cost is bounded by the bytes that they had stored
 * before. */
static void settle_holes(struct recovery *r, struct sw_region *region) {
    if (region->state != SW_REGION_OUT)
        region->may_fill_holes = false;
    else if (region->may_fill_holes)
        sw_catalogue_forbid_holes(r->catalogue, region->record);
}

/* A recorded region that is not whole is lost, and reported. If it only lacks frames that are away, its record stands
 * and its other frames stay, for a start with the right tier. */
static void check_whole(struct recovery *r, struct sw_region *region, void *arg) {
    struct sw_frames *frames = region->frames;
    size_t n_here = 0, n_away = 0, n_gone = 0;
    (void)arg;
    for (size_t i = 0; frames && i < frames->n_chunks; i++) {
        struct sw_stored *stored = &frames->stored[i];
        const bool is_here = stored->tier || (frames->packed && stored->bytes == 0);
        *(is_here ? &n_here : is_away(r, stored) ? &n_away : &n_gone) += 1;
        if (is_away(r, stored)) { /* the record still has the place */
            sw_free(stored->extents);
            stored->extents = NULL;
            stored->n_extents = 0;
        }
    }
    if (n_away + n_gone > 0)
        sw_region_move(region, SW_REGION_LOST);
    report_lost(&r->store->observer, region, n_gone, n_away);
    settle_holes(r, region);
    if (n_away + n_gone > 0) {
        if (n_here == 0 || n_gone > 0) {
            sw_catalogue_frames_free(frames);
            region->frames = NULL;
        }
        if (n_gone > 0)
            sw_region_record_hints(r->catalogue, region);
    }
    if (region->frames && !region->frames->packed)
        region->tier = sw_frames_tier(region->frames, region->tier_bytes);
    if (region->frames) {
        region->owner->raw_bytes += region->raw_bytes;
        region->owner->stored_bytes += region->stored_bytes;
    }
    r->result->n_lost += region->state == SW_REGION_LOST;
}

int sw_recovery_run(struct sw_store *store, struct sw_catalogue *catalogue, struct sw_recovered *ret,
                    struct sw_err *err) {
    struct recovery r = {.store = store, .catalogue = catalogue, .result = ret};
    const struct sw_catalogue_visitor visitor = {.session = on_session, .found = on_region, .arg = &r};
    memset(ret, 0, sizeof *ret);
    SW_ASSERT(store->n_owners == 0);
    sw_list_init(&r.seconds);
    int rc = 0;
    if (catalogue)
        rc = sw_catalogue_recover(catalogue, &visitor, &ret->n_damaged, err);
    if (!rc && r.no_memory)
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the kept sessions");
    if (!rc)
        rc = visit_kept(&r, err);
    if (!rc)
        rc = recover_tiers(&r, err);
    sw_free(r.dropped);
    settle_seconds(&r, rc == 0);
    if (rc)
        return rc;
    sw_region_table_settle(&store->regions);
    each_region(&r, check_whole, NULL);
    each_region(&r, record_kept, NULL);
    if (catalogue)
        trim_tiers(&store->place);
    return 0;
}

static void unname_left(struct sw_store *store) {
    for (struct sw_list *o = store->left.next; o != &store->left; o = o->next) {
        struct sw_owner *owner = SW_CONTAINER_OF(o, struct sw_owner, node);
        for (struct sw_list *n = owner->regions.next; n != &owner->regions; n = n->next)
            sw_region_unname(SW_CONTAINER_OF(n, struct sw_region, node));
    }
}

void sw_recovery_forget_left(struct sw_store *store) {
    struct sw_list *node, *at;
    unname_left(store); /* while the tenant owners exist */
    while ((node = sw_list_take_first(&store->left))) {
        struct sw_owner *owner = SW_CONTAINER_OF(node, struct sw_owner, node);
        while (!sw_list_empty(&owner->detached))
            sw_region_free_detached(SW_CONTAINER_OF(owner->detached.next, struct sw_region, node));
        while (!sw_list_empty(&owner->regions)) {
            at = owner->regions.next;
            struct sw_region *region = SW_CONTAINER_OF(at, struct sw_region, node);
            sw_catalogue_free_unclaimed(region->frames); /* of a start that failed */
            sw_frames_leave(region->frames);
            region->frames = NULL;
            sw_region_release(&store->regions, region);
        }
        sw_free(owner);
    }
}
