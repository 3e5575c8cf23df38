/* control_regions.c - sessions and regions, as operators see and move them. */
#include "base/clock.h"
#include "daemon/control/control_handlers.h"
#include "daemon/session/session.h"
#include "daemon/tiers/tiers.h"
#include "spill/operator.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum {
    PAGE = 100,
    SNAPSHOT_PAGE = 1000,
    SLOTS_PER_PAGE = 16384, /* examined at most: a filter that matches nothing must not block the loop */
};

static struct sw_service *service_of(void *context) {
    return ((struct sw_control_context *)context)->service;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static json_t *session_to_json(const struct sw_session *session) {
    struct sw_owner_stats stats;
    sw_owner_stats(session->owner, &stats);
    return json_pack("{s:I, s:I, s:I, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I}",   //
                     "session", (json_int_t)session->id,                          //
                     "pid", (json_int_t)session->peer.pid,                        //
                     "uid", (json_int_t)session->peer.uid,                        //
                     "client", sw_rpc_text(session->client),                      //
                     "open_us", (json_int_t)(sw_clock_us() - session->opened_us), //
                     "requests", (json_int_t)session->n_requests,                 //
                     "operations", (json_int_t)stats.n_ops,                       //
                     "regions", (json_int_t)stats.n_regions,                      //
                     "memories", (json_int_t)stats.n_mems,                        //
                     "raw_bytes", (json_int_t)stats.raw_bytes,                    //
                     "stored_bytes", (json_int_t)stats.stored_bytes);
}

int sw_on_control_sessions(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                           json_t **ret_result, struct sw_err *err) {
    const struct sw_list *sessions = service_of(context)->sessions;
    json_t *array = json_array();
    (void)caller;
    (void)args;
    (void)err;
    for (const struct sw_list *node = sessions ? sessions->next : NULL; node && node != sessions; node = node->next) {
        const struct sw_session *session = SW_CONTAINER_OF(node, struct sw_session, node);
        if (!session->closing) /* the owner of a closing session may be gone */
            (void)json_array_append_new(array, session_to_json(session));
    }
    *ret_result = json_pack("{s:o}", "sessions", array);
    return 0;
}

struct page {
    const struct sw_control_args *args;
    uint64_t now_us;
    json_t *regions;
    size_t limit;
};

enum { ARG_SESSION, ARG_UID, ARG_TIER, ARG_STATE, ARG_LIMIT, ARG_CURSOR };

/* For a region without a session the engine knows the uid. */
static uint32_t uid_of(const struct sw_region_view *view) {
    const struct sw_session *session = view->tag;
    return session ? (uint32_t)session->peer.uid : view->uid;
}

static bool fits(const struct page *page, const struct sw_region_view *view) {
    const struct sw_control_arg *arg = page->args->arg;
    const struct sw_session *session = view->tag;
    return (!arg[ARG_SESSION].given || (session && session->id == arg[ARG_SESSION].number)) &&
           (!arg[ARG_UID].given || uid_of(view) == arg[ARG_UID].number) &&
           (!arg[ARG_TIER].given || strcmp(view->info.tier, arg[ARG_TIER].text) == 0) &&
           (!arg[ARG_STATE].given || strcmp(sw_region_state_name(view->info.state), arg[ARG_STATE].text) == 0);
}

static bool add_region(const struct sw_region_view *view, void *arg) {
    struct page *page = arg;
    const struct sw_session *session = view->tag;
    const bool is_stored = view->info.state == SW_REGION_OUT || view->info.state == SW_REGION_RESTORING;
    char region[32];
    if (!fits(page, view))
        return true;
    if (json_array_size(page->regions) >= page->limit)
        return false; /* the next page begins with this region */
    (void)snprintf(region, sizeof region, "%" PRIu32 ":%" PRIu32, view->id.slot, view->id.gen);
    json_t *object = json_pack("{s:s, s:o, s:o, s:s, s:s, s:I, s:I, s:s, s:s, s:I, s:b, s:b, s:I}",          //
                               "region", region,                                                             //
                               "session", session ? json_integer((json_int_t)session->id) : json_null(),     //
                               "uid", uid_of(view) != UINT32_MAX ? json_integer(uid_of(view)) : json_null(), //
                               "state", sw_region_state_name(view->info.state),                              //
                               "tier", view->info.tier,                                                      //
                               "raw_bytes", (json_int_t)view->info.raw_bytes,                                //
                               "stored_bytes", (json_int_t)view->info.stored_bytes,                          //
                               "codec", is_stored ? sw_codec_name(view->info.codec) : "none",                //
                               "coder", is_stored ? view->info.coder : "none",                               //
                               "priority", (json_int_t)view->priority,                                       //
                               "pinned", view->pinned,                                                       //
                               "moving", view->is_moving,                                                    //
                               "idle_us", (json_int_t)(view->used_us ? page->now_us - view->used_us : 0));
    if (view->is_moving)
        (void)json_object_set_new(object, "moved_bytes", json_integer((json_int_t)view->moved_bytes));
    if (view->name) {
        (void)json_object_set_new(object, "name", sw_rpc_text(view->name));
        (void)json_object_set_new(object, "durability", json_string(sw_durability_name(view->info.durability)));
    }
    (void)json_array_append_new(page->regions, object);
    return true;
}

int sw_on_control_regions(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                          json_t **ret_result, struct sw_err *err) {
    struct page page = {.args = args,
                        .now_us = sw_clock_us(),
                        .regions = json_array(),
                        .limit = args->arg[ARG_LIMIT].given ? args->arg[ARG_LIMIT].number : PAGE};
    (void)caller;
    (void)err;
    const uint32_t next = sw_engine_visit(service_of(context)->engine, (uint32_t)args->arg[ARG_CURSOR].number,
                                          SLOTS_PER_PAGE, add_region, &page);
    *ret_result = json_pack("{s:o}", "regions", page.regions);
    if (next != UINT32_MAX)
        (void)json_object_set_new(*ret_result, "next", json_integer(next));
    return 0;
}

/* ---- a snapshot -------------------------------------------------------------------------------------------------- */

/* Adds a region to the page, in the form that snapshot.h describes. Leaves out regions that are not stored
 * completely. */
static bool add_to_snapshot(const struct sw_region_view *view, void *arg) {
    struct page *page = arg;
    char region[32];
    if (json_array_size(page->regions) >= page->limit)
        return false;
    if (view->info.state != SW_REGION_OUT && view->info.state != SW_REGION_RESTORING)
        return true;
    (void)snprintf(region, sizeof region, "%" PRIu32 ":%" PRIu32, view->id.slot, view->id.gen);
    (void)json_array_append_new(page->regions, json_pack("{s:s, s:I, s:I, s:s, s:I, s:b}", "region", region,
                                                         "stored_bytes", (json_int_t)view->info.stored_bytes, "used_us",
                                                         (json_int_t)view->used_us, "tier", view->info.tier, "priority",
                                                         (json_int_t)view->priority, "pinned", view->pinned));
    return true;
}

int sw_on_control_snapshot(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                           json_t **ret_result, struct sw_err *err) {
    const struct sw_service *service = service_of(context);
    struct page page = {.regions = json_array(), .limit = SNAPSHOT_PAGE};
    struct sw_tier_shown first;
    char name[32];
    (void)caller;
    (void)err;
    (void)sw_tiers_show(service, 0, &first);
    (void)snprintf(name, sizeof name, "%s_tier", first.name);
    const uint32_t next =
        sw_engine_visit(service->engine, (uint32_t)args->arg[0].number, SLOTS_PER_PAGE, add_to_snapshot, &page);
    *ret_result = json_pack("{s:{s:I, s:I, s:I}, s:o}", name,                             //
                            "used_bytes", (json_int_t)first.stats.used_bytes,             //
                            "capacity_bytes", (json_int_t)first.stats.capacity_bytes,     //
                            "staging_bytes", (json_int_t)sw_tiers_staging_bytes(service), //
                            "regions", page.regions);
    if (next != UINT32_MAX)
        (void)json_object_set_new(*ret_result, "next", json_integer(next));
    return 0;
}

/* ---- moving ------------------------------------------------------------------------------------------------------ */

/* Returns the region that the parameters region, name and uid mean, and its owner. */
static int find(void *context, const struct sw_control_args *args, struct sw_region_id *ret,
                struct sw_owner **ret_owner, struct sw_err *err) {
    const struct sw_control_arg *region = &args->arg[0], *name = &args->arg[1], *uid = &args->arg[2];
    struct sw_engine *engine = service_of(context)->engine;
    int rc = 0;
    if (region->given == name->given)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "give a region or a name%s",
                          region->given ? ", not both" : "");
    if (uid->given && !name->given)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "uid: belongs to a name");
    *ret = (struct sw_region_id){.slot = (uint32_t)region->number, .gen = region->gen};
    if (name->given)
        rc = sw_engine_find_name(engine, name->text, uid->given ? (uint32_t)uid->number : UINT32_MAX, ret, err);
    return rc ? rc : sw_engine_owner(engine, *ret, ret_owner, err);
}

static json_t *region_to_json(struct sw_region_id id) {
    return json_pack("{s:o}", "region", json_sprintf("%" PRIu32 ":%" PRIu32, id.slot, id.gen));
}

static int advise(void *context, const struct sw_control_args *args, enum sw_advice advice, json_t **ret_result,
                  struct sw_err *err) {
    struct sw_owner *owner;
    struct sw_region_id id;
    int rc = find(context, args, &id, &owner, err);
    if (rc == 0)
        rc = sw_engine_advise(owner, id, advice, 0, err);
    if (rc == 0)
        *ret_result = region_to_json(id);
    return rc;
}

int sw_on_control_demote(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                         json_t **ret_result, struct sw_err *err) {
    (void)caller;
    return advise(context, args, SW_ADVISE_DEMOTE, ret_result, err);
}

int sw_on_control_promote(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                          json_t **ret_result, struct sw_err *err) {
    (void)caller;
    return advise(context, args, SW_ADVISE_PREFETCH, ret_result, err);
}

int sw_on_control_drop(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                       json_t **ret_result, struct sw_err *err) {
    struct sw_owner *owner;
    struct sw_region_id id;
    struct sw_region_info info;
    (void)caller;
    int rc = find(context, args, &id, &owner, err);
    if (rc == 0)
        rc = sw_engine_query(owner, id, &info, err);
    if (rc == 0 && info.state == SW_REGION_IN)
        rc = sw_err_set(err, -SW_ESTATE, SW_SCOPE_REQUEST,
                        "the region was restored: its client has not acknowledged this yet");
    if (rc == 0)
        rc = sw_engine_drop(owner, id, err);
    sw_tenants_forget_idle(service_of(context));
    if (rc == 0)
        *ret_result = region_to_json(id);
    return rc;
}

int sw_on_control_spill(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                        json_t **ret_result, struct sw_err *err) {
    const uint64_t bytes = args->arg[0].number;
    (void)caller;
    if (args->arg[0].given == args->arg[1].given)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "give bytes or a name%s",
                          args->arg[0].given ? ", not both" : "");
    if (args->arg[1].given)
        return advise(context, args, SW_ADVISE_DEMOTE, ret_result, err);
    const int rc = sw_engine_make_room(service_of(context)->engine, bytes, err);
    if (rc == 0)
        *ret_result = json_pack("{s:I}", "bytes", (json_int_t)bytes);
    return rc;
}
