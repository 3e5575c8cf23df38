/* found.c - owners that a predecessor left: who comes back for one, and the end of those that nobody has claimed. */
#include "spill/engine_state.h"

#include <string.h>

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
            if (is_tenant_owner) /* the caller's from now on */
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
