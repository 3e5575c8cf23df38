/* owner.c - how a session's owner begins and ends, and how owners of the previous process are claimed or closed. */
#include "spill/engine_state.h"

#include "base/assert.h"
#include "spill/store/names.h"

#include <string.h>

int sw_owner_open(struct sw_engine *engine, struct sw_owner **ret, struct sw_err *err) {
    if (engine->state != SW_ENGINE_RUNNING)
        return sw_err_set(err, -SW_ESHUTDOWN, SW_SCOPE_DAEMON, "the engine is stopping");
    struct sw_owner *owner = sw_owner_new(&engine->store);
    if (!owner)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for a session");
    *ret = owner;
    return 0;
}

int sw_owner_name(struct sw_owner *owner, uint32_t uid, const struct sw_process *process,
                  const uint8_t token[SW_TOKEN_BYTES], struct sw_err *err) {
    struct sw_catalogue_session session = {.number = owner->number, .uid = uid, .process = *process};
    memcpy(session.token, token, sizeof session.token);
    memcpy(owner->token, token, sizeof owner->token);
    owner->uid = uid;
    owner->process = *process;
    return sw_catalogue_put_session(sw_engine_of(owner)->config.catalogue, &session, &owner->record, err);
}

void sw_owner_acknowledged(struct sw_owner *owner) {
    sw_catalogue_free_retired(sw_engine_of(owner)->config.catalogue, &owner->consumed);
}

void sw_engine_forget_in(struct sw_owner *owner) {
    struct sw_catalogue *catalogue = sw_engine_of(owner)->config.catalogue;
    sw_owner_free_request_index(owner);
    for (struct sw_list *node = owner->regions.next, *next; node != &owner->regions; node = next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        next = node->next;
        if (region->state == SW_REGION_IN)
            sw_region_forget(catalogue, region);
    }
    while (!sw_list_empty(&owner->detached))
        sw_region_forget(catalogue, SW_CONTAINER_OF(owner->detached.next, struct sw_region, node));
}

/* Returns whether regions outlive this process: in kept memory, or in a tier. */
static bool leaves_regions(const struct sw_engine *engine) {
    return engine->config.catalogue || sw_tiers_keeper(&engine->store.place.tiers, SW_DURABILITY_HOST);
}

static void close_owner(struct sw_owner *owner, bool leave, void (*closed)(void *arg), void *arg) {
    struct sw_engine *engine = sw_engine_of(owner);
    SW_ASSERT(!sw_owner_is_ending(owner));
    const bool leaves = leave && (owner->record || (owner->is_tenant_owner && leaves_regions(engine)));
    owner->state = leaves ? SW_OWNER_LEAVING : SW_OWNER_CLOSING;
    owner->closed = closed;
    owner->arg = arg;
    sw_owner_free_request_index(owner);
    if (!leaves)
        sw_owner_acknowledged(owner);
    sw_series_close(owner);
    for (struct sw_list *node = owner->ops.next; node != &owner->ops; node = node->next)
        sw_op_cancel(SW_CONTAINER_OF(node, struct sw_op, node));
    for (struct sw_list *node = owner->regions.next, *next; node != &owner->regions; node = next) {
        struct sw_region *region = SW_CONTAINER_OF(node, struct sw_region, node);
        next = node->next;
        if (leaves && region->move)
            region->move->cancel(region->move);
        else if (!leaves && !sw_region_is_busy(region)) /* the others are dropped when their operation has ended */
            sw_region_let_go(engine->config.catalogue, region);
    }
    if (!leaves)
        sw_engine_forget_in(owner);
    for (struct sw_list *node = owner->mems.next, *next; node != &owner->mems; node = next) {
        struct sw_mem *mem = SW_CONTAINER_OF(node, struct sw_mem, node);
        next = node->next;
        if (!mem->closing)
            sw_mem_close(mem, NULL, NULL);
    }
    sw_owner_settle(owner);
}

void sw_owner_close(struct sw_owner *owner, void (*closed)(void *arg), void *arg) {
    close_owner(owner, false, closed, arg);
}

void sw_owner_leave(struct sw_owner *owner, void (*closed)(void *arg), void *arg) {
    close_owner(owner, true, closed, arg);
}

/* ---- owners of the previous process ---- */

struct sw_owner *sw_owner_claim(struct sw_engine *engine, uint32_t uid, const uint8_t token[SW_TOKEN_BYTES]) {
    for (struct sw_list *node = engine->store.owners.next; node != &engine->store.owners; node = node->next) {
        struct sw_owner *owner = SW_CONTAINER_OF(node, struct sw_owner, node);
        if (owner->state == SW_OWNER_UNCLAIMED && !owner->is_tenant_owner && owner->uid == uid &&
            memcmp(owner->token, token, sizeof owner->token) == 0) {
            owner->state = SW_OWNER_OPEN;
            return owner;
        }
    }
    return NULL;
}

int sw_owners_visit_found(struct sw_engine *engine,
                          int (*visit)(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg,
                                       struct sw_err *err),
                          void *arg, struct sw_err *err) {
    for (int is_tenant_owner = 1; is_tenant_owner >= 0; is_tenant_owner--)
        for (struct sw_list *node = engine->store.owners.next, *next; node != &engine->store.owners; node = next) {
            struct sw_owner *owner = SW_CONTAINER_OF(node, struct sw_owner, node);
            next = node->next;
            if (owner->is_tenant_owner != is_tenant_owner || owner->state != SW_OWNER_UNCLAIMED)
                continue;
            const int rc = visit(owner, owner->uid, is_tenant_owner, arg, err);
            if (rc)
                return rc;
            if (is_tenant_owner) /* belongs to the caller from now on */
                owner->state = SW_OWNER_OPEN;
        }
    return 0;
}

unsigned sw_owners_close_ended(struct sw_engine *engine, void (*closed)(void *quota), unsigned *ret_running) {
    unsigned n = 0;
    *ret_running = 0;
    for (struct sw_list *node = engine->store.owners.next, *next; node != &engine->store.owners; node = next) {
        struct sw_owner *owner = SW_CONTAINER_OF(node, struct sw_owner, node);
        next = node->next;
        if (owner->state != SW_OWNER_UNCLAIMED)
            continue;
        if (!sw_process_has_ended(&owner->process)) {
            ++*ret_running;
            continue;
        }
        n++;
        sw_owner_close(owner, closed, owner->quota);
    }
    return n;
}

bool sw_owners_close_ended_holder(struct sw_owner *owner, const char *name, void (*closed)(void *quota)) {
    const struct sw_region *region = owner->tenant_owner ? sw_name_find(owner->tenant_owner, name) : NULL;
    struct sw_owner *holder = region ? region->owner : NULL;
    if (!holder || holder->state != SW_OWNER_UNCLAIMED || !sw_process_has_ended(&holder->process))
        return false;
    sw_owner_close(holder, closed, holder->quota);
    return true;
}

unsigned sw_owners_close_unclaimed(struct sw_engine *engine, const struct sw_quota *quota, bool leave,
                                   void (*closed)(void *quota)) {
    unsigned n = 0;
    for (struct sw_list *node = engine->store.owners.next, *next; node != &engine->store.owners; node = next) {
        struct sw_owner *owner = SW_CONTAINER_OF(node, struct sw_owner, node);
        next = node->next;
        if (owner->state != SW_OWNER_UNCLAIMED || (quota && owner->quota != quota))
            continue;
        n++;
        if (leave)
            sw_owner_leave(owner, closed, owner->quota);
        else
            sw_owner_close(owner, closed, owner->quota);
    }
    return n;
}
