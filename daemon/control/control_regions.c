/* control_regions.c - sessions and regions, as operators see and move them. */
#include "base/clock.h"
#include "daemon/control/control_handlers.h"
#include "daemon/session/session.h"
#include "spill/operator.h"
#include <inttypes.h>
#include <jansson.h>
#include <string.h>

enum {
    PAGE = 100,
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
    if (view->name)
        (void)json_object_set_new(object, "name", sw_rpc_text(view->name));
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

/* ---- moving ------------------------------------------------------------------------------------------------------ */

static struct sw_region_id id_of(const struct sw_control_args *args) {
    return (struct sw_region_id){.slot = (uint32_t)args->arg[0].number, .gen = args->arg[0].gen};
}

static int advise(void *context, const struct sw_control_args *args, enum sw_advice advice, json_t **ret_result,
                  struct sw_err *err) {
    struct sw_owner *owner;
    int rc = sw_engine_owner(service_of(context)->engine, id_of(args), &owner, err);
    if (rc == 0)
        rc = sw_engine_advise(owner, id_of(args), advice, 0, err);
    if (rc == 0)
        *ret_result = json_pack("{s:s}", "region", args->arg[0].text);
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
    struct sw_region_info info;
    (void)caller;
    int rc = sw_engine_owner(service_of(context)->engine, id_of(args), &owner, err);
    if (rc == 0)
        rc = sw_engine_query(owner, id_of(args), &info, err);
    if (rc == 0 && info.state == SW_REGION_IN)
        rc = sw_err_set(err, -SW_ESTATE, SW_SCOPE_REQUEST,
                        "the region was restored: its client has not acknowledged this yet");
    if (rc == 0)
        rc = sw_engine_drop(owner, id_of(args), err);
    sw_tenants_forget_idle(service_of(context));
    if (rc == 0)
        *ret_result = json_pack("{s:s}", "region", args->arg[0].text);
    return rc;
}

int sw_on_control_spill(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                        json_t **ret_result, struct sw_err *err) {
    const uint64_t bytes = args->arg[0].number;
    (void)caller;
    const int rc = sw_engine_make_room(service_of(context)->engine, bytes, err);
    if (rc == 0)
        *ret_result = json_pack("{s:I}", "bytes", (json_int_t)bytes);
    return rc;
}
