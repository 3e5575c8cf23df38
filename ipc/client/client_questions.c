/* client_questions.c - calls that move no bytes, and wait for the reply. */
#include "ipc/client/client_call.h"
#include "ipc/client/client_packed.h"
#include "ipc/client/client_results.h"

#include <string.h>

#define COPY_TEXT(to, from) sw_msg_text((to), sizeof(to), (from), sizeof(from))

/* Sends a request and waits for its reply, which take() copies to *into. Returns the code of *error. */
static int ask(struct spillway *c, const struct sw_msg *msg,
               bool (*take)(struct spillway_ticket *t, const struct sw_msg *msg), void *into,
               struct spillway_error *error) {
    struct sw_err err = {0};
    int rc = sw_client_enter(c, error);
    if (rc < 0)
        return rc;
    struct spillway_ticket *t = c->lost.code ? NULL : sw_client_call(c, msg, take, into, c->timeout_ms, &err);
    if (c->lost.code && !t && !err.code)
        rc = sw_client_copy_error(error, &c->lost);
    else
        rc = t ? sw_client_copy_error(error, &t->error) : sw_client_report(error, &err);
    if (t)
        sw_ticket_destroy(t);
    sw_client_leave(c);
    return rc;
}

/* ---- drop -------------------------------------------------------------------------------------------------------- */

struct discarded {
    uint32_t n;
    struct sw_wire_id ids[SW_PROTO_MAX_ITEMS];
};

static bool take_discarded(struct spillway_ticket *t, const struct sw_msg *msg) {
    const struct sw_msg_results *m = &msg->u.results;
    const struct discarded *what = t->into;
    if (msg->header.type != SW_MSG_RESULTS || m->n_results != what->n)
        return false;
    for (uint32_t i = 0; i < m->n_results; i++) {
        struct spillway_result result;
        if (!sw_results_read(m, i, &result))
            return false;
        if (result.code && !t->error.code)
            sw_client_result_error(&t->error, m, i);
        if (!result.code || result.code == -SW_ESTALE || result.code == -SW_ENOENT)
            sw_packed_forget(t->connection, (struct spillway_region){what->ids[i].slot, what->ids[i].gen});
    }
    return true;
}

/* Adds the ids of the regions that are not being unpacked here. */
static int add_ids(struct spillway *c, const struct spillway_region *regions, uint32_t n, struct discarded *ret,
                   struct spillway_error *error) {
    struct sw_err err = {0};
    const int foreign = sw_client_enter(c, error);
    if (foreign < 0)
        return foreign;
    for (uint32_t i = 0; i < n; i++) {
        const struct sw_packed_region *packed = sw_packed_find(c, regions[i]);
        if (packed && packed->is_busy)
            (void)sw_err_set(&err, -SW_EBUSY, SW_SCOPE_REQUEST, "region %u:%u is being unpacked", regions[i].slot,
                             regions[i].generation);
        else
            ret->ids[ret->n++] = (struct sw_wire_id){regions[i].slot, regions[i].generation};
    }
    sw_client_leave(c);
    return sw_client_report(error, &err);
}

static int discard(struct spillway *c, const struct spillway_region *regions, uint32_t n,
                   struct spillway_error *error) {
    struct discarded what = {0};
    struct spillway_error busy = {0};
    const int rc = add_ids(c, regions, n, &what, &busy);
    const struct sw_msg msg = {.header.type = SW_MSG_DISCARD,
                               .u.discard = {.n_ids = (uint16_t)what.n, .ids = what.ids}};
    const int asked = what.n ? ask(c, &msg, take_discarded, &what, error) : 0;
    return asked < 0 ? asked : rc < 0 ? sw_client_copy_error(error, &busy) : 0;
}

int spillway_drop(struct spillway *connection, const struct spillway_region *regions, uint32_t n,
                  struct spillway_error *error) {
    struct spillway_error first = {0};
    for (uint32_t i = 0; i < n; i += SW_PROTO_MAX_ITEMS) {
        struct spillway_error e = {0};
        (void)discard(connection, regions + i, n - i < SW_PROTO_MAX_ITEMS ? n - i : SW_PROTO_MAX_ITEMS, &e);
        if (e.code)
            sw_client_note_error(&first, &e);
    }
    return sw_client_copy_error(error, &first);
}

/* ---- names ------------------------------------------------------------------------------------------------------- */

static int set_name(uint8_t ret[SW_PROTO_NAME_BYTES], const char *name, struct spillway_error *error) {
    struct sw_err err = {0};
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes >= SW_PROTO_NAME_BYTES)
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name of %zu bytes, must be 1 to %d", bytes,
                         SW_PROTO_NAME_BYTES - 1);
    else
        sw_msg_set_text(ret, SW_PROTO_NAME_BYTES, name);
    return sw_client_report(error, &err);
}

/* Refuses while a durable spill runs whose ticket was freed, because its region will be dropped, even if it is adopted
 * first. errors: -SW_EBUSY. */
static int check_none_is_to_be_dropped(struct spillway *c, struct spillway_error *error) {
    struct sw_err err = {0};
    const int foreign = sw_client_enter(c, error);
    if (foreign < 0)
        return foreign;
    (void)sw_client_pump(c); /* send due drops first */
    for (const struct sw_list *node = c->transfers.next; node != &c->transfers; node = node->next) {
        const struct spillway_ticket *t = SW_CONTAINER_OF(node, const struct spillway_ticket, node);
        if (t->abandoned && t->is_durable)
            (void)sw_err_set(&err, -SW_EBUSY, SW_SCOPE_REQUEST,
                             "a durable spill whose ticket was freed still runs on this connection: try again");
    }
    sw_client_leave(c);
    return sw_client_report(error, &err);
}

static bool take_adopted(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct spillway_region *ret = t->into;
    struct spillway_result result;
    if (msg->header.type != SW_MSG_RESULTS || msg->u.results.n_results != 1 ||
        !sw_results_read(&msg->u.results, 0, &result))
        return false;
    if (result.code)
        sw_client_result_error(&t->error, &msg->u.results, 0);
    else
        *ret = result.region;
    t->connection->has_names |= !result.code;
    return result.code || (result.region.generation);
}

int spillway_adopt(struct spillway *connection, const char *name, struct spillway_region *ret,
                   struct spillway_error *error) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_ADOPT);
    int rc = set_name(msg.u.adopt.name, name, error);
    if (!rc)
        rc = check_none_is_to_be_dropped(connection, error);
    return rc < 0 ? rc : ask(connection, &msg, take_adopted, ret, error);
}

/* The caller's array for a listing. */
struct listing {
    struct spillway_list_item *items;
    size_t stride;
    uint32_t n, max;
};

static bool take_listing(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct listing *l = t->into;
    const struct sw_msg_listing *m = &msg->u.listing;
    if (msg->header.type != SW_MSG_LISTING || m->n_items > l->max)
        return false;
    for (l->n = 0; l->n < m->n_items; l->n++) {
        const struct sw_wire_listed *from = &m->items[l->n];
        struct spillway_list_item item = {.size = l->stride,
                                          .region = {from->slot, from->gen},
                                          .raw_bytes = from->raw_bytes,
                                          .stored_bytes = from->stored_bytes,
                                          .durability = from->durability};
        memcpy(item.name, from->name, sizeof item.name - 1);
        memcpy(item.state, from->state, sizeof from->state);
        memcpy(item.tier, from->tier, sizeof item.tier - 1);
        uint8_t *to = (uint8_t *)l->items + l->n * l->stride;
        memcpy(to, &l->stride, sizeof l->stride);
        sw_versioned_fill(to, &item, sizeof item);
    }
    return true;
}

/* The length of the struct's first version. */
#define LIST_ITEM_BYTES offsetof(struct spillway_list_item, durability)

int spillway_list(struct spillway *connection, const char *after, struct spillway_list_item *items, uint32_t max,
                  struct spillway_error *error) {
    if (max == 0)
        return 0;
    struct listing l = {
        .items = items, .stride = items->size, .max = max < SW_PROTO_MAX_ITEMS ? max : SW_PROTO_MAX_ITEMS};
    struct sw_msg msg;
    int rc = sw_check_size(items->size, LIST_ITEM_BYTES, "struct spillway_list_item", error);
    sw_msg_init(&msg, SW_MSG_LIST);
    msg.u.list.max = l.max;
    if (!rc && after)
        rc = set_name(msg.u.list.after, after, error);
    if (!rc)
        rc = ask(connection, &msg, take_listing, &l, error);
    if (rc < 0 || l.n < SW_PROTO_MAX_ITEMS || max == SW_PROTO_MAX_ITEMS)
        return rc < 0 ? rc : (int)l.n;
    const struct spillway_list_item *last = (const void *)((uint8_t *)items + (l.n - 1) * l.stride);
    struct spillway_list_item *next = (void *)((uint8_t *)items + l.n * l.stride);
    next->size = l.stride;
    rc = spillway_list(connection, last->name, next, max - l.n, error);
    return rc < 0 ? rc : (int)l.n + rc;
}

/* ---- questions about a region ------------------------------------------------------------------------------------ */

static bool take_info(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct spillway_region_info *ret = t->into;
    const struct sw_msg_details *m = &msg->u.details;
    if (msg->header.type != SW_MSG_DETAILS || m->n_results != 1)
        return false;
    const struct sw_wire_result *r = &m->results[0];
    *ret = (struct spillway_region_info){.size = sizeof *ret,
                                         .raw_bytes = r->raw_bytes,
                                         .stored_bytes = r->stored_bytes,
                                         .n_buffers = r->n_buffers,
                                         .durability = r->durability};
    return sw_results_text(m->texts, m->n_texts, r->state, ret->state, sizeof ret->state) &&
           sw_results_text(m->texts, m->n_texts, r->codec, ret->codec, sizeof ret->codec) &&
           sw_results_text(m->texts, m->n_texts, r->tier, ret->tier, sizeof ret->tier);
}

static struct sw_msg inspect_msg(struct spillway_region region, enum sw_inspect what, uint32_t first) {
    return (struct sw_msg){.header.type = SW_MSG_INSPECT,
                           .u.inspect = {.slot = region.slot, .gen = region.generation, .what = what, .first = first}};
}

/* The lengths of the structs' first versions. */
#define INFO_BYTES sizeof(struct spillway_region_info)

int spillway_query(struct spillway *connection, struct spillway_region region, struct spillway_region_info *ret,
                   struct spillway_error *error) {
    struct spillway_region_info info = {0};
    const int sized = sw_check_size(ret->size, INFO_BYTES, "struct spillway_region_info", error);
    if (sized < 0)
        return sized;
    const struct sw_msg msg = inspect_msg(region, SW_INSPECT_REGION, 0);
    const int rc = ask(connection, &msg, take_info, &info, error);
    if (!rc)
        sw_versioned_fill(ret, &info, sizeof info);
    return rc;
}

struct buffer_infos {
    uint32_t n;
    struct spillway_buffer_info info[SPILLWAY_MAX_BUFFERS];
};

static bool take_buffers(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct buffer_infos *ret = t->into;
    const struct sw_msg_details *m = &msg->u.details;
    if (msg->header.type != SW_MSG_DETAILS || m->n_buffers < 1 || m->n_buffers > SPILLWAY_MAX_BUFFERS)
        return false;
    ret->n = m->n_buffers;
    for (uint32_t i = 0; i < ret->n; i++) {
        const struct sw_wire_buffer *b = &m->buffers[i];
        struct spillway_buffer_info *info = &ret->info[i];
        *info = (struct spillway_buffer_info){.raw_bytes = b->raw_bytes, .stored_bytes = b->stored_bytes};
        if (!sw_results_text(m->texts, m->n_texts, b->codec, info->codec, sizeof info->codec) ||
            !sw_results_text(m->texts, m->n_texts, b->reason, info->reason, sizeof info->reason))
            return false;
    }
    return true;
}

int spillway_query_buffers(struct spillway *connection, struct spillway_region region, struct spillway_buffer_info *ret,
                           uint32_t *ret_n, struct spillway_error *error) {
    const struct sw_msg msg = inspect_msg(region, SW_INSPECT_BUFFERS, 0);
    struct buffer_infos infos;
    const int rc = ask(connection, &msg, take_buffers, &infos, error);
    if (rc < 0)
        return rc;
    *ret_n = infos.n;
    memcpy(ret, infos.info, infos.n * sizeof *ret);
    return rc;
}

struct packed_chunks {
    uint32_t n, n_all;
    struct spillway_packed_chunk chunk[SW_PROTO_MAX_FRAMES];
};

/* Only a region without chunks has a reply without frames. */
static bool take_packed(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct packed_chunks *ret = t->into;
    const struct sw_msg_details *m = &msg->u.details;
    if (msg->header.type != SW_MSG_DETAILS || m->n_frames > SW_PROTO_MAX_FRAMES || m->n_frames > m->n_all ||
        (m->n_all && !m->n_frames))
        return false;
    ret->n = m->n_frames;
    ret->n_all = m->n_all;
    for (uint32_t i = 0; i < ret->n; i++) {
        const struct sw_wire_frame *f = &m->frames[i];
        if (f->value_type > SPILLWAY_DEC128 || f->n_symbols > UINT16_MAX)
            return false;
        ret->chunk[i] = (struct spillway_packed_chunk){.offset = f->offset,
                                                       .bytes = f->bytes,
                                                       .raw_bytes = f->raw_bytes,
                                                       .codec = f->codec,
                                                       .type = f->value_type,
                                                       .n_symbols = (uint16_t)f->n_symbols};
    }
    return true;
}

/* Returns whether the region was packed here. *ret_rc: the answer then. */
static bool is_packed_here(struct spillway *c, struct spillway_region region, struct spillway_packed_chunk *ret,
                           uint32_t max, uint32_t *ret_n, int *ret_rc, struct spillway_error *error) {
    struct sw_err err = {0};
    *ret_rc = sw_client_enter(c, error);
    if (*ret_rc < 0)
        return true;
    const struct sw_packed_region *packed = sw_packed_find(c, region);
    if (packed) {
        (void)sw_packed_describe(packed, ret, max, ret_n, &err);
        *ret_rc = sw_client_report(error, &err);
    }
    sw_client_leave(c);
    return packed != NULL;
}

int spillway_query_packed(struct spillway *connection, struct spillway_region region, struct spillway_packed_chunk *ret,
                          uint32_t max, uint32_t *ret_n, struct spillway_error *error) {
    struct packed_chunks chunks;
    uint32_t first = 0;
    int known;
    if (is_packed_here(connection, region, ret, max, ret_n, &known, error))
        return known;
    do {
        const struct sw_msg msg = inspect_msg(region, SW_INSPECT_FRAMES, first);
        const int rc = ask(connection, &msg, take_packed, &chunks, error);
        if (rc < 0)
            return rc;
        for (uint32_t i = 0; i < chunks.n && first < max; i++)
            ret[first++] = chunks.chunk[i];
    } while (first < max && first < chunks.n_all);
    *ret_n = chunks.n_all;
    return 0;
}

int spillway_advise(struct spillway *connection, struct spillway_region region, enum spillway_advice advice,
                    unsigned value, struct spillway_error *error) {
    const struct sw_msg msg = {
        .header.type = SW_MSG_ADVISE,
        .u.advise = {.slot = region.slot, .gen = region.generation, .advice = (uint32_t)advice, .value = value}};
    return ask(connection, &msg, NULL, NULL, error);
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

_Static_assert((int)SPILLWAY_MAX_REASONS == SW_PROTO_MAX_REASONS, "the API has room for all reasons");

static bool take_status(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct spillway_status *ret = t->into;
    const struct sw_msg_status_ok *m = &msg->u.status_ok;
    if (msg->header.type != SW_MSG_STATUS_OK)
        return false;
    *ret = (struct spillway_status){.n_gpus = m->n_gpus,
                                    .sessions = m->sessions,
                                    .regions = m->regions,
                                    .scratch_bytes = m->scratch_bytes,
                                    .scratch_limit_bytes = m->scratch_limit_bytes,
                                    .tier_capacity_bytes = m->tier_capacity_bytes,
                                    .tier_backed_bytes = m->tier_backed_bytes,
                                    .tier_used_bytes = m->tier_used_bytes,
                                    .nvme_capacity_bytes = m->nvme_capacity_bytes,
                                    .nvme_used_bytes = m->nvme_used_bytes,
                                    .mapped_memories = m->mapped_memories};
    COPY_TEXT(ret->version, m->version);
    COPY_TEXT(ret->device, m->device);
    ret->n_reasons = m->n_reasons < SPILLWAY_MAX_REASONS ? m->n_reasons : SPILLWAY_MAX_REASONS;
    for (uint32_t i = 0; i < ret->n_reasons; i++) {
        struct spillway_reason *reason = &ret->reasons[i];
        sw_msg_text(reason->text, sizeof reason->text, m->reasons + (size_t)i * SW_PROTO_REASON_BYTES,
                    SW_PROTO_REASON_BYTES);
        reason->spills = m->reason_spills[i];
    }
    return true;
}

int spillway_status(struct spillway *connection, struct spillway_status *ret, struct spillway_error *error) {
    const struct sw_msg msg = {.header.type = SW_MSG_STATUS};
    struct spillway_status status = {0};
    int rc = sw_check_size(ret->size, sizeof status, "struct spillway_status", error);
    if (!rc)
        rc = ask(connection, &msg, take_status, &status, error);
    if (!rc)
        sw_versioned_fill(ret, &status, sizeof status);
    return rc;
}

const char *spillway_version(void) {
    return SW_VERSION;
}

const char *spillway_error_name(int code) {
    return sw_err_name(code);
}

const char *spillway_error_text(int code) {
    return sw_err_text(code);
}
