/* remote_names.c - changes, each a chain of requests for each of its records. */
#include "spill/tier/remote/remote_names.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/tier/remote/remote_deletion.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct sw_remote_names {
    struct sw_remote_list list;
    const struct sw_remote_tenants *tenants;
};

/* A request of a change: for a record, or for the object of a batch. */
struct step {
    struct sw_object_request request;
    struct change *change;
    struct sw_remote_entry *entry;  /* NULL: the batch's */
    struct sw_remote_record *plain; /* KEEP: the content of the object */
    size_t plain_bytes;
    const char *tenant; /* that several hosts have; or NULL */
    char folder[SW_OBJECT_NAME_BYTES];
    char other[SW_OBJECT_NAME_BYTES], orphan[SW_OBJECT_NAME_BYTES]; /* found in the folder: another object; ours */
    uint64_t other_bytes;
    bool may_exist;
    struct sw_err err;
    void (*next)(struct step *step); /* called when the request has ended */
};

struct change {
    struct sw_remote_names *names;
    struct sw_tier_change *user;
    uint64_t batch;
    unsigned n_left;     /* steps; under the list's lock */
    struct step steps[]; /* the batch's is the last one */
};

/* ---- the list ---- */

/* ---- ends of changes ---- */

static void change_free(struct change *change) {
    for (unsigned i = 0; i <= change->user->n; i++) {
        sw_free(change->steps[i].plain);
        sw_free(change->steps[i].request.body);
    }
    sw_free(change);
}

static void note_first_error(struct change *change) {
    for (unsigned i = 0; i <= change->user->n && !change->user->err.code; i++)
        change->user->err = change->steps[i].err;
}

static void end_keep(struct change *change) {
    struct sw_remote_names *names = change->names;
    for (unsigned i = 0; i < change->user->n; i++) {
        struct step *step = &change->steps[i];
        if (change->user->err.code && step->entry)
            sw_remote_list_remove(&names->list, step->entry, step->may_exist);
        else if (!change->user->err.code)
            change->user->records[i].number = step->entry->number;
    }
}

static void create_batch(struct change *change);

static void change_ended(struct change *change) {
    struct sw_tier_change *user = change->user;
    note_first_error(change);
    if (user->kind == SW_TIER_KEEP && change->batch && !user->err.code && !change->steps[user->n].may_exist) {
        create_batch(change);
        return;
    }
    if (user->kind == SW_TIER_KEEP)
        end_keep(change);
    change_free(change);
    user->done(user, user->arg);
}

static void step_ended(struct step *step) {
    struct change *change = step->change;
    (void)pthread_mutex_lock(&change->names->list.lock);
    const bool is_last = --change->n_left == 0;
    (void)pthread_mutex_unlock(&change->names->list.lock);
    if (is_last)
        change_ended(change);
}

static void step_failed(struct step *step, const struct sw_err *err) {
    step->err = *err;
    step_ended(step);
}

/* Called on the client's thread. */
static void on_done(struct sw_object_request *request, void *arg) {
    struct step *step = arg;
    (void)request;
    step->next(step);
}

static void submit(struct step *step, void (*next)(struct step *step)) {
    step->next = next;
    step->request.done = on_done;
    step->request.arg = step;
    sw_object_submit(step->change->names->list.config.client, &step->request);
}

/* Prepares a request for an object. Its body is allocated if it has one. */
static bool prepare(struct step *step, enum sw_object_verb verb, const char *name, uint64_t body_bytes) {
    sw_free(step->request.body);
    step->request = (struct sw_object_request){.verb = verb, .body_bytes = body_bytes};
    (void)snprintf(step->request.name, sizeof step->request.name, "%s", name);
    step->request.body = body_bytes ? sw_alloc(body_bytes) : NULL;
    if (!body_bytes || step->request.body)
        return true;
    (void)sw_err_set(&step->err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a durable region");
    step_ended(step);
    return false;
}

/* ---- keep ---- */

static void deposed(struct step *step, const char *host) {
    (void)sw_err_set(&step->err, -SW_EEXIST, SW_SCOPE_REQUEST,
                     "host %s has a durable region of this name in the remote tier", host);
    step_ended(step);
}

/* Reads the record that an object holds. Returns false if it is none of this service's hosts. */
static struct sw_remote_record *open_record(struct step *step) {
    const struct sw_remote_list_config *config = &step->change->names->list.config;
    const struct sw_remote_record *record;
    void *body = NULL;
    size_t bytes;
    if (sw_object_unseal_request(config->keyring, &step->request, &body, &bytes, NULL) ||
        sw_remote_record_read(body, bytes, &record, NULL)) {
        sw_free(body);
        return NULL;
    }
    return body;
}

static void check_alone(struct step *step);

static void created(struct step *step) {
    step->may_exist = true;
    if (step->tenant)
        check_alone(step);
    else
        step_ended(step);
}

/* An object of our name was read: is it ours, or which service wrote it? */
static void on_read_back(struct step *step) {
    if (step->request.err.code) {
        step_failed(step, &step->request.err);
        return;
    }
    struct sw_remote_record *record = open_record(step);
    if (record && record->number == step->entry->number) {
        created(step);
    } else {
        step->may_exist = false;
        deposed(step, record ? record->host : "unknown");
    }
    sw_free(record);
}

static void on_measured(struct step *step) {
    if (step->request.err.code)
        step_failed(step, &step->request.err);
    else if (prepare(step, SW_OBJECT_GET, step->entry->object, step->request.object_bytes))
        submit(step, on_read_back);
}

static void on_put(struct step *step) {
    const struct sw_err err = step->request.err;
    step->may_exist = !err.code || step->request.is_unclear;
    if (!err.code)
        created(step);
    else if (err.code != -SW_EEXIST)
        step_failed(step, &err);
    else if (prepare(step, SW_OBJECT_HEAD, step->entry->object, 0))
        submit(step, on_measured);
}

static bool seal(struct step *step, const char *object, const void *plain, size_t bytes) {
    const struct sw_extent memory = {.memory = (void *)plain, .bytes = bytes};
    const struct sw_object_piece piece = {.memory = &memory, .bytes = bytes};
    if (!prepare(step, SW_OBJECT_PUT, object, sw_object_body_bytes(bytes)))
        return false;
    step->request.if_absent = true;
    if (sw_object_seal_request(step->change->names->list.config.keyring, &piece, 1, &step->request, &step->err) == 0)
        return true;
    step_ended(step);
    return false;
}

static void create(struct step *step) {
    struct sw_remote_names *names = step->change->names;
    sw_remote_list_name(&names->list, step->entry, step->folder);
    if (seal(step, step->entry->object, step->plain, step->plain_bytes))
        submit(step, on_put);
}

static void on_batch_put(struct step *step) {
    if (step->request.err.code && step->request.err.code != -SW_EEXIST) /* only we use its number */
        step_failed(step, &step->request.err);
    else
        step_ended(step);
}

static void create_batch(struct change *change) {
    struct step *step = &change->steps[change->user->n];
    char object[SW_OBJECT_NAME_BYTES];
    sw_remote_list_name_batch(&change->names->list, change->batch, object);
    change->n_left = 1;
    step->may_exist = true;
    if (seal(step, object, &change->batch, sizeof change->batch))
        submit(step, on_batch_put);
}

/* ---- tenants of several hosts ---- */

static void on_listed_one(struct sw_object_request *request, const char *name, uint64_t bytes, int64_t modified_s) {
    struct step *step = SW_CONTAINER_OF(request, struct step, request);
    (void)modified_s;
    if (strcmp(name, step->entry->object) == 0 || strcmp(name, step->orphan) == 0)
        return;
    (void)snprintf(step->other, sizeof step->other, "%s", name);
    step->other_bytes = bytes;
}

static void list(struct step *step, void (*next)(struct step *step)) {
    step->other[0] = 0;
    if (!prepare(step, SW_OBJECT_LIST, step->folder, 0))
        return;
    step->request.found = on_listed_one;
    submit(step, next);
}

static void on_listed_after(struct step *step) {
    if (step->request.err.code)
        step_failed(step, &step->request.err);
    else if (step->other[0])
        deposed(step, "another");
    else
        step_ended(step);
}

static void check_alone(struct step *step) {
    list(step, on_listed_after);
}

static void list_before(struct step *step);

/* A record of ours that no region has was left by a change that failed. */
static void on_other_read(struct step *step) {
    struct sw_remote_names *names = step->change->names;
    if (step->request.err.code == -SW_ENOENT) {
        list_before(step);
        return;
    }
    struct sw_remote_record *record = step->request.err.code ? NULL : open_record(step);
    const bool is_orphan = record && strcmp(record->host, names->list.config.host) == 0 &&
                           !sw_remote_list_find(&names->list, record->number);
    if (step->request.err.code) {
        step_failed(step, &step->request.err);
    } else if (is_orphan && !step->orphan[0]) {
        memcpy(step->orphan, step->other, sizeof step->orphan);
        sw_remote_delete_later(names->list.config.client, step->orphan, names->list.config.n_orphans);
        list_before(step);
    } else {
        deposed(step, record ? record->host : "unknown");
    }
    sw_free(record);
}

static void on_listed_before(struct step *step) {
    if (step->request.err.code)
        step_failed(step, &step->request.err);
    else if (!step->other[0])
        create(step);
    else if (prepare(step, SW_OBJECT_GET, step->other, step->other_bytes))
        submit(step, on_other_read);
}

static void list_before(struct step *step) {
    list(step, on_listed_before);
}

/* ---- beginnings ---- */

/* Makes the content of the object. */
static bool fill(struct step *step, const struct sw_tier_record *user) {
    struct sw_remote_names *names = step->change->names;
    step->plain_bytes = sizeof *step->plain + user->bytes;
    step->plain = sw_alloc(step->plain_bytes);
    step->entry = step->plain ? sw_remote_list_add(&names->list, step->change->batch) : NULL;
    if (!step->entry)
        return false;
    sw_remote_record_init(step->plain, names->list.config.host, user->uid, user->name);
    step->plain->number = step->entry->number;
    step->plain->batch = step->change->batch;
    memcpy(step->plain + 1, user->content, user->bytes);
    step->tenant = sw_remote_tenants_find(names->tenants, user->uid);
    sw_remote_record_folder(step->folder, step->plain, step->tenant);
    return true;
}

static void begin_keep(struct step *step, const struct sw_tier_record *user) {
    if (!fill(step, user)) {
        (void)sw_err_set(&step->err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a durable region");
        step_ended(step);
    } else if (step->tenant) {
        list_before(step);
    } else {
        create(step);
    }
}

static void on_deleted(struct step *step) {
    if (step->request.err.code) {
        step_failed(step, &step->request.err);
        return;
    }
    sw_remote_list_remove(&step->change->names->list, step->entry, false);
    step_ended(step);
}

static void begin_forget(struct step *step, const struct sw_tier_record *user) {
    struct sw_remote_names *names = step->change->names;
    step->entry = sw_remote_list_find(&names->list, user->number);
    SW_ASSERT(step->entry);
    if (prepare(step, SW_OBJECT_DELETE, step->entry->object, 0))
        submit(step, on_deleted);
}

void sw_remote_names_submit(struct sw_remote_names *names, struct sw_tier_change *user) {
    SW_ASSERT(user->n > 0);
    const unsigned n = user->n;
    memset(&user->err, 0, sizeof user->err);
    sw_list_init(&user->node);
    struct change *change = sw_alloc(sizeof *change + (n + 1) * sizeof change->steps[0]);
    if (!change) {
        (void)sw_err_set(&user->err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a durable region");
        user->done(user, user->arg);
        return;
    }
    change->names = names;
    change->user = user;
    change->n_left = n + 1; /* until all have begun */
    change->batch = user->kind == SW_TIER_KEEP && n > 1 ? sw_remote_list_number(&names->list) : 0;
    sw_remote_list_forget_contents(&names->list);
    for (unsigned i = 0; i <= n; i++)
        change->steps[i].change = change;
    for (unsigned i = 0; i < n; i++)
        (user->kind == SW_TIER_KEEP ? begin_keep : begin_forget)(&change->steps[i], &user->records[i]);
    step_ended(&change->steps[n]);
}

int sw_remote_names_open(struct sw_remote_names **ret, const struct sw_remote_list_config *config,
                         const struct sw_remote_tenants *tenants, struct sw_err *err) {
    struct sw_remote_names *names = sw_alloc(sizeof *names);
    if (!names)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    names->tenants = tenants;
    *ret = names;
    return sw_remote_list_open(&names->list, config, err);
}

void sw_remote_names_free(struct sw_remote_names *names) {
    if (!names)
        return;
    sw_remote_list_fini(&names->list);
    sw_free(names);
}

struct sw_remote_list *sw_remote_names_list(struct sw_remote_names *names) {
    return &names->list;
}
