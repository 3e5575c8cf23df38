#include "spill/store/region.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "spill/store/owner.h"

#include <stdbool.h>
#include <string.h>

#define NO_ENTRY UINT32_MAX
/* This many entries are released before one of them is used again. With 2^32 generations each, ids last for 2^44
 * regions. */
#define REUSE_AFTER 4096u

static const uint32_t allowed_moves[SW_REGION_STATE_NR] = {
    [SW_REGION_IN] = 1u << SW_REGION_STAGING,
    /* A spill's phases are read only when they are asked for, so a caller may miss some or all. */
    [SW_REGION_STAGING] = 1u << SW_REGION_ENCODING | 1u << SW_REGION_STORING | 1u << SW_REGION_OUT | 1u << SW_REGION_IN,
    [SW_REGION_ENCODING] = 1u << SW_REGION_STORING | 1u << SW_REGION_OUT | 1u << SW_REGION_IN,
    [SW_REGION_STORING] = 1u << SW_REGION_OUT | 1u << SW_REGION_IN,
    [SW_REGION_OUT] = 1u << SW_REGION_RESTORING | 1u << SW_REGION_LOST,
    [SW_REGION_RESTORING] = 1u << SW_REGION_IN | 1u << SW_REGION_OUT | 1u << SW_REGION_LOST,
};

const char *sw_region_state_name(enum sw_region_state state) {
    static const char *const names[SW_REGION_STATE_NR] = {"in",  "staging",   "encoding", "storing",
                                                          "out", "restoring", "lost"};
    return (unsigned)state < SW_REGION_STATE_NR ? names[state] : "unknown";
}

int sw_region_table_init(struct sw_region_table *ret, unsigned max_regions, unsigned n_entries, uint32_t first_gen) {
    memset(ret, 0, sizeof *ret);
    ret->max = max_regions;
    ret->cap = n_entries > max_regions ? n_entries : max_regions;
    ret->regions = sw_alloc_array(ret->cap, sizeof *ret->regions);
    if (!ret->regions)
        return -SW_ENOMEM;
    ret->first_gen = first_gen;
    ret->first_free = ret->last_free = NO_ENTRY;
    return 0;
}

void sw_region_table_fini(struct sw_region_table *table) {
    SW_ASSERT(table->n_used == 0);
    sw_free(table->regions);
    memset(table, 0, sizeof *table);
}

static struct sw_region *take_entry(struct sw_region_table *table) {
    struct sw_region *region;
    /* Prefer an unused entry until enough used ones are free. After that reuse: each touched entry takes memory for
     * good. */
    if (table->n_touched < table->cap && table->n_touched - table->n_used < REUSE_AFTER) {
        region = &table->regions[table->n_touched];
        region->id = (struct sw_region_id){table->n_touched++, table->first_gen};
        return region;
    }
    if (table->first_free == NO_ENTRY)
        return NULL;
    region = &table->regions[table->first_free];
    table->first_free = region->next_free;
    if (table->first_free == NO_ENTRY)
        table->last_free = NO_ENTRY;
    return region;
}

struct sw_region *sw_region_acquire(struct sw_region_table *table, struct sw_owner *owner) {
    struct sw_region *region = table->n_used < table->max ? take_entry(table) : NULL;
    if (!region)
        return NULL;
    struct sw_region_id id = {.slot = region->id.slot, .gen = region->id.gen + 1};
    if (id.gen <= table->first_gen) /* a predecessor used this entry, perhaps also with higher generations */
        id.gen = table->first_gen + 1;
    if (id.gen == 0)
        id.gen = 1; /* 0 is never valid */
    memset(region, 0, sizeof *region);
    region->id = id;
    region->owner = owner;
    region->holder = owner->number;
    region->state = SW_REGION_IN;
    sw_list_init(&region->node);
    table->n_used++;
    return region;
}

static void add_free(struct sw_region_table *table, struct sw_region *region) {
    region->next_free = NO_ENTRY;
    if (table->last_free == NO_ENTRY)
        table->first_free = region->id.slot;
    else
        table->regions[table->last_free].next_free = region->id.slot;
    table->last_free = region->id.slot;
}

struct sw_region *sw_region_adopt(struct sw_region_table *table, struct sw_owner *owner, struct sw_region_id id,
                                  enum sw_region_state state) {
    if (id.slot >= table->cap || id.gen == 0 || table->regions[id.slot].owner)
        return NULL;
    struct sw_region *region = &table->regions[id.slot];
    *region = (struct sw_region){.id = id, .owner = owner, .holder = owner->number, .state = state};
    sw_list_init(&region->node);
    table->n_used++;
    if (id.slot >= table->n_touched)
        table->n_touched = id.slot + 1;
    return region;
}

void sw_region_table_settle(struct sw_region_table *table) {
    for (uint32_t slot = 0; slot < table->n_touched; slot++)
        if (!table->regions[slot].owner) {
            table->regions[slot].id = (struct sw_region_id){slot, table->first_gen};
            add_free(table, &table->regions[slot]);
        }
}

struct sw_region *sw_region_new_detached(struct sw_owner *owner, struct sw_region_id id) {
    struct sw_region *region = sw_alloc(sizeof *region);
    if (!region)
        return NULL;
    *region = (struct sw_region){.id = id, .owner = owner, .state = SW_REGION_IN, .is_detached = true};
    sw_list_init(&region->node);
    return region;
}

void sw_region_free_detached(struct sw_region *region) {
    SW_ASSERT(region->is_detached && region->state == SW_REGION_IN && !region->frames);
    sw_list_remove(&region->node);
    sw_free(region);
}

void sw_region_release(struct sw_region_table *table, struct sw_region *region) {
    SW_ASSERT(region->owner && !sw_region_is_busy(region) && !region->frames && !region->move);
    SW_ASSERT(region->state == SW_REGION_IN || region->state == SW_REGION_OUT || region->state == SW_REGION_LOST);
    sw_list_remove(&region->node);
    region->owner = NULL;
    add_free(table, region);
    table->n_used--;
}

static int refuse(int code, struct sw_region_id id, struct sw_err *err) {
    return sw_err_set(err, code, SW_SCOPE_REQUEST,
                      code == -SW_ESTALE ? "region %u:%u does not exist any more" : "there is no region %u:%u", id.slot,
                      id.gen);
}

int sw_region_find(const struct sw_region_table *table, const struct sw_owner *owner, struct sw_region_id id,
                   struct sw_region **ret, struct sw_err *err) {
    if (id.slot >= table->cap || id.gen == 0)
        return refuse(-SW_ENOENT, id, err);
    struct sw_region *region = &table->regions[id.slot];
    /* Always compare everything: looking up another owner's id then takes as long as an id that never existed. If this
     * owner has the entry, or had it last, -SW_ESTALE tells it nothing about other owners. */
    const bool is_owners = (region->owner == owner) & (region->id.gen == id.gen);
    const bool was_owners = (region->holder == owner->number) & (region->id.gen >= id.gen);
    if (!is_owners)
        return refuse(was_owners ? -SW_ESTALE : -SW_ENOENT, id, err);
    *ret = region;
    return 0;
}

int sw_region_find_any(const struct sw_region_table *table, struct sw_region_id id, struct sw_region **ret,
                       struct sw_err *err) {
    struct sw_region *region = id.slot < table->n_touched ? &table->regions[id.slot] : NULL;
    if (!region || id.gen == 0 || id.gen > region->id.gen)
        return refuse(-SW_ENOENT, id, err);
    if (!region->owner || id.gen != region->id.gen)
        return refuse(-SW_ESTALE, id, err);
    *ret = region;
    return 0;
}

void sw_region_move(struct sw_region *region, enum sw_region_state to) {
    SW_ASSERT((unsigned)to < SW_REGION_STATE_NR && (allowed_moves[region->state] >> to & 1));
    if (sw_log_prints(SW_LOG_DEBUG))
        sw_log(SW_LOG_DEBUG, "region.move", "region=%u:%u from=%s to=%s", region->id.slot, region->id.gen,
               sw_region_state_name(region->state), sw_region_state_name(to));
    region->state = to;
}
