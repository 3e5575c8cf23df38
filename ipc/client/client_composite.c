/* client_composite.c - regions that the daemon has in pieces, under one id of the library's.
 *
 * The ids are those of a table, like the daemon's: a slot, with the top bit set, and a generation that rises when the
 * slot is reused. */
#include "ipc/client/client_questions.h"
#include "ipc/client/client_staging.h"

#include "base/alloc.h"
#include <stdio.h>
#include <string.h>

enum { NO_SLOT = 0x7FFFFFFF, FIRST_SLOTS = 16 };

int sw_composite_new(struct sw_composite **ret, uint64_t raw_bytes, uint32_t n_parts, struct sw_err *err) {
    struct sw_composite *composite = sw_alloc(sizeof *composite + n_parts * sizeof composite->parts[0]);
    if (!composite)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a region of %u pieces", n_parts);
    composite->raw_bytes = raw_bytes;
    composite->n_parts = n_parts;
    composite->busy = true;
    *ret = composite;
    return 0;
}

static int grow(struct sw_composites *table, struct sw_err *err) {
    const uint32_t cap = table->cap ? 2 * table->cap : FIRST_SLOTS;
    if (cap > NO_SLOT)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "%u regions in pieces, and no more", table->cap);
    struct sw_composite_slot *slots = sw_realloc(table->slots, cap * sizeof *slots);
    if (!slots)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for %u ids of regions in pieces", cap);
    table->slots = slots;
    table->cap = cap;
    return 0;
}

int sw_composite_enter(struct spillway *c, struct sw_composite *composite, struct sw_err *err) {
    struct sw_composites *table = &c->composites;
    uint32_t slot = table->n_free ? table->first_free : table->n;
    if (!table->n_free) {
        const int rc = table->n == table->cap ? grow(table, err) : 0;
        if (rc < 0)
            return rc;
        table->slots[table->n++] = (struct sw_composite_slot){0};
    } else {
        table->first_free = table->slots[slot].next_free;
        table->n_free--;
    }
    struct sw_composite_slot *s = &table->slots[slot];
    s->composite = composite;
    s->generation += s->generation == UINT32_MAX ? 2 : 1; /* 0 is in no id */
    composite->id = (struct spillway_region){slot | SW_COMPOSITE_SLOT, s->generation};
    return 0;
}

struct sw_composite *sw_composite_find(const struct spillway *c, struct spillway_region id, struct sw_err *err) {
    const uint32_t slot = id.slot & ~SW_COMPOSITE_SLOT;
    const struct sw_composite_slot *s = slot < c->composites.n ? &c->composites.slots[slot] : NULL;
    if (!s || !id.generation || id.generation > s->generation) {
        (void)sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "there is no region %u:%u", id.slot, id.generation);
        return NULL;
    }
    if (s->composite && s->generation == id.generation)
        return s->composite;
    (void)sw_err_set(err, -SW_ESTALE, SW_SCOPE_REQUEST, "region %u:%u does not exist any more", id.slot, id.generation);
    return NULL;
}

static void forget(struct spillway *c, struct sw_composite *composite) {
    if (sw_region_is_composite(composite->id)) {
        struct sw_composites *table = &c->composites;
        const uint32_t slot = composite->id.slot & ~SW_COMPOSITE_SLOT;
        table->slots[slot].composite = NULL;
        table->slots[slot].next_free = table->first_free;
        table->first_free = slot;
        table->n_free++;
    }
    sw_free(composite);
}

/* Has the daemon drop, or consume, all parts, without waiting. */
static void end_parts(struct spillway *c, struct sw_composite *composite, bool consume) {
    struct sw_wire_id ids[SW_PROTO_MAX_ITEMS];
    uint16_t n = 0;
    for (uint32_t i = 0; i < composite->n_parts && !c->lost.code; i++) {
        const struct spillway_region part = composite->parts[i];
        if (part.generation)
            ids[n++] = (struct sw_wire_id){part.slot, part.generation};
        if (n == SW_PROTO_MAX_ITEMS || (n && i + 1 == composite->n_parts)) {
            const struct sw_msg msg = {.header.type = SW_MSG_DISCARD,
                                       .u.discard = {.flags = consume ? SW_REQ_CONSUME : 0, .n_ids = n, .ids = ids}};
            sw_client_submit_unattended(c, &msg);
            n = 0;
        }
    }
    forget(c, composite);
}

void sw_composite_discard(struct spillway *c, struct sw_composite *composite) {
    end_parts(c, composite, false);
}

void sw_composite_consume(struct spillway *c, struct sw_composite *composite) {
    end_parts(c, composite, true);
}

void sw_composites_free(struct spillway *c) {
    for (uint32_t i = 0; i < c->composites.n; i++)
        sw_free(c->composites.slots[i].composite);
    sw_free(c->composites.slots);
}

int sw_composite_drop(struct spillway *c, struct spillway_region id, struct spillway_error *error) {
    struct sw_err err = {0};
    struct sw_composite *composite = sw_composite_find(c, id, &err);
    int rc = 0;
    if (composite && composite->busy) {
        if (sw_client_pump(c) < 0)
            return sw_client_copy_error(error, &c->lost);
        composite = sw_composite_find(c, id, &err);
    }
    if (composite && composite->busy)
        (void)sw_err_set(&err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being restored", id.slot, id.generation);
    if (!composite || composite->busy)
        return sw_client_report(error, &err);
    /* The first is waited for, so that a daemon that is gone is told of; the others go the same way, in order. */
    composite->busy = true; /* no restore may begin meanwhile */
    rc = sw_client_discard(c, &composite->parts[0], 1, error);
    composite->busy = false;
    if (rc == -SW_ETIMEDOUT || rc == -SW_ENOMEM || c->lost.code)
        return rc;
    composite->parts[0].generation = 0;
    sw_composite_discard(c, composite);
    return rc;
}

/* The state of all is that of the part that is worst off. */
static void combine(struct spillway_region_info *ret, const struct spillway_region_info *part) {
    ret->raw_bytes += part->raw_bytes;
    ret->stored_bytes += part->stored_bytes;
    if (!ret->state[0] || strcmp(part->state, "lost") == 0 || strcmp(ret->state, "out") == 0)
        (void)snprintf(ret->state, sizeof ret->state, "%s", part->state);
    sw_client_combine(ret->codec, sizeof ret->codec, part->codec);
    sw_client_combine(ret->tier, sizeof ret->tier, part->tier);
}

int sw_composite_query(struct spillway *c, struct spillway_region id, struct spillway_region_info *ret,
                       struct spillway_error *error) {
    struct spillway_region_info info = {0};
    struct sw_err err = {0};
    for (uint32_t i = 0;; i++) { /* found anew each time: while it is asked about, a restore may use it up */
        const struct sw_composite *composite = sw_composite_find(c, id, &err);
        int rc = 0;
        if (!composite)
            return sw_client_report(error, &err);
        if (i == composite->n_parts) {
            if (composite->busy && strcmp(info.state, "lost") != 0) /* perhaps no part of it has begun to be restored */
                (void)snprintf(info.state, sizeof info.state, "restoring");
            break;
        }
        struct spillway_region_info part = {.size = sizeof part};
        rc = sw_client_inspect(c, composite->parts[i], &part, error);
        if (rc < 0)
            return rc;
        combine(&info, &part);
    }
    *ret = info;
    return sw_client_report(error, &err);
}

int sw_composite_advise(struct spillway *c, struct spillway_region id, uint32_t advice, uint32_t value,
                        struct spillway_error *error) {
    struct sw_err err = {0};
    for (uint32_t i = 0;; i++) {
        const struct sw_composite *composite = sw_composite_find(c, id, &err);
        int rc = 0;
        if (!composite || i == composite->n_parts)
            return sw_client_report(error, &err);
        rc = sw_client_advise(c, composite->parts[i], advice, value, error);
        if (rc < 0)
            return rc;
    }
}
