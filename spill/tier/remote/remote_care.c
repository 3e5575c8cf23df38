#include "spill/tier/remote/remote_care.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef char object_name[SW_OBJECT_NAME_BYTES];

struct sw_remote_care {
    struct sw_remote_care_config config;
    pthread_t thread;
    bool has_thread;
    atomic_bool stop;
    bool changes;
    pthread_mutex_t lock; /* guards the state */
    struct sw_tier_care_state state;
};

/* An orphan. */
struct orphan {
    struct sw_list node;
    uint64_t bytes;
    bool is_shared; /* perhaps another host's */
    object_name name;
};

static void note(struct sw_remote_care *care, uint64_t objects, uint64_t found, uint64_t bytes, uint64_t changed) {
    (void)pthread_mutex_lock(&care->lock);
    care->state.objects += objects;
    care->state.found += found;
    care->state.found_bytes += bytes;
    care->state.changed += changed;
    (void)pthread_mutex_unlock(&care->lock);
}

/* Runs a request that does not wait for a store that is out. */
static int ask(struct sw_remote_care *care, struct sw_object_request *request, const char *name, struct sw_err *err) {
    (void)memcpy(request->name, name, sizeof request->name);
    request->is_impatient = true;
    const int rc = sw_object_run(care->config.client, request);
    if (rc)
        *err = request->err;
    return rc;
}

/* ---- gc ---- */

struct search {
    struct sw_remote_care *care;
    object_name *known;
    size_t n_known;
    struct sw_list orphans;
    bool is_out_of_memory;
};

static int compare_names(const void *a, const void *b) {
    return strcmp(a, b);
}

/* Called on the client's thread. A frame that was stored since the names were copied is known, too. */
static bool look_at(void *arg, const char *name, uint64_t bytes, int64_t modified_s) {
    struct search *search = arg;
    const struct sw_remote_care_config *config = &search->care->config;
    const enum sw_remote_record_of whose = config->whose(config->arg, name);
    (void)modified_s;
    note(search->care, 1, 0, 0, 0);
    if (atomic_load(&search->care->stop))
        return false;
    if (whose == SW_RECORD_FOREIGN ||
        (search->n_known && bsearch(name, search->known, search->n_known, sizeof search->known[0], compare_names)) ||
        config->has_name(config->arg, name))
        return true;
    struct orphan *orphan = sw_alloc(sizeof *orphan);
    search->is_out_of_memory = !orphan;
    if (!orphan)
        return false;
    orphan->bytes = bytes;
    orphan->is_shared = whose == SW_RECORD_SHARED;
    (void)snprintf(orphan->name, sizeof orphan->name, "%s", name);
    sw_list_init(&orphan->node);
    sw_list_append(&search->orphans, &orphan->node);
    return true;
}

static void end_orphan(struct sw_remote_care *care, const struct orphan *orphan, struct sw_err *err) {
    struct sw_object_request request = {.verb = SW_OBJECT_DELETE};
    if (orphan->is_shared && !care->config.is_ours(care->config.arg, orphan->name))
        return;
    note(care, 0, 1, orphan->bytes, 0);
    if (care->changes && ask(care, &request, orphan->name, err) == 0)
        note(care, 0, 0, 0, 1);
}

static void end_orphans(struct search *search, struct sw_err *err) {
    struct sw_list *node;
    while ((node = sw_list_take_first(&search->orphans))) {
        struct orphan *orphan = SW_CONTAINER_OF(node, struct orphan, node);
        if (!err->code && !atomic_load(&search->care->stop))
            end_orphan(search->care, orphan, err);
        sw_free(orphan);
    }
}

static void collect_garbage(struct sw_remote_care *care, struct sw_err *err) {
    const struct sw_remote_care_config *config = &care->config;
    struct search search = {.care = care};
    sw_list_init(&search.orphans);
    if (config->list_names(config->arg, &search.known, &search.n_known))
        search.is_out_of_memory = true;
    for (unsigned i = 0; !search.is_out_of_memory && !err->code && config->folders[i]; i++)
        (void)sw_object_list(config->client, config->folders[i], look_at, &search, err);
    if (search.is_out_of_memory)
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the names of objects");
    end_orphans(&search, err);
    sw_free(search.known);
}

/* ---- rewrap ---- */

/* A frame or a region may have gone meanwhile. */
static void rewrap(struct sw_remote_care *care, const char *name, struct sw_err *err) {
    struct sw_object_request head = {.verb = SW_OBJECT_HEAD}, copy = {.verb = SW_OBJECT_COPY};
    struct sw_object_key key;
    bool is_old = false;
    note(care, 1, 0, 0, 0);
    if (!care->config.has_name(care->config.arg, name) || ask(care, &head, name, err) ||
        sw_object_key_open(care->config.keyring, name, head.meta, &key, &is_old, err))
        return;
    if (is_old)
        note(care, 0, 1, head.object_bytes, 0);
    if (is_old && care->changes && sw_object_key_wrap(care->config.keyring, &key, name, copy.meta, err) == 0 &&
        ask(care, &copy, name, err) == 0)
        note(care, 0, 0, 0, 1);
    sw_object_key_fini(&key);
}

static void rewrap_all(struct sw_remote_care *care, struct sw_err *err) {
    object_name *names = NULL;
    size_t n = 0;
    if (care->config.list_names(care->config.arg, &names, &n)) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the names of objects");
        return;
    }
    for (size_t i = 0; i < n && !err->code && !atomic_load(&care->stop); i++) {
        rewrap(care, names[i], err);
        if (err->code == -SW_ENOENT)
            memset(err, 0, sizeof *err);
    }
    sw_free(names);
}

/* ---- the thread ---- */

static void *thread_main(void *arg) {
    struct sw_remote_care *care = arg;
    struct sw_err err = {0};
    if (care->state.what == SW_TIER_CARE_GC) /* does not change while it runs */
        collect_garbage(care, &err);
    else
        rewrap_all(care, &err);
    (void)pthread_mutex_lock(&care->lock);
    care->state.is_running = false;
    care->state.err = err;
    (void)pthread_mutex_unlock(&care->lock);
    return NULL;
}

static void join(struct sw_remote_care *care) {
    if (care->has_thread)
        (void)pthread_join(care->thread, NULL);
    care->has_thread = false;
}

int sw_remote_care_begin(struct sw_remote_care *care, enum sw_tier_care what, bool changes, struct sw_err *err) {
    struct sw_tier_care_state state;
    sw_remote_care_state(care, &state);
    if (state.is_running)
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "the remote tier's last task has not ended");
    join(care);
    care->changes = changes;
    care->state = (struct sw_tier_care_state){.what = what, .changes = changes, .is_running = true, .has_begun = true};
    care->has_thread = sw_thread_start(&care->thread, thread_main, care) == 0;
    if (care->has_thread)
        return 0;
    care->state.is_running = false;
    return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "cannot start a thread for the remote tier");
}

void sw_remote_care_state(struct sw_remote_care *care, struct sw_tier_care_state *ret) {
    (void)pthread_mutex_lock(&care->lock);
    *ret = care->state;
    (void)pthread_mutex_unlock(&care->lock);
}

int sw_remote_care_open(struct sw_remote_care **ret, const struct sw_remote_care_config *config, struct sw_err *err) {
    struct sw_remote_care *care = sw_alloc(sizeof *care);
    if (!care)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    care->config = *config;
    (void)pthread_mutex_init(&care->lock, NULL);
    *ret = care;
    return 0;
}

void sw_remote_care_close(struct sw_remote_care *care) {
    if (!care)
        return;
    atomic_store(&care->stop, true);
    join(care);
    (void)pthread_mutex_destroy(&care->lock);
    sw_free(care);
}
