#include "spill/tier/remote/remote_list.h"

#include "base/alloc.h"
#include "spill/tier/remote/remote_deletion.h"
#include "spill/tier/remote/remote_load.h"

#include <openssl/rand.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static struct sw_remote_entry *entry_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_remote_entry, node);
}

static uint64_t new_epoch(struct sw_remote_list *list) {
    struct timespec now;
    (void)clock_gettime(CLOCK_REALTIME, &now);
    const uint64_t us = (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
    list->last_epoch = us > list->last_epoch ? us : list->last_epoch + 1;
    return list->last_epoch;
}

static void entry_free(struct sw_remote_entry *entry) {
    sw_list_remove(&entry->node);
    sw_free(entry->record);
    sw_free(entry);
}

struct sw_remote_entry *sw_remote_list_find(struct sw_remote_list *list, uint64_t number) {
    struct sw_remote_entry *found = NULL;
    (void)pthread_mutex_lock(&list->lock);
    for (struct sw_list *node = list->entries.next; !found && node != &list->entries; node = node->next)
        if (entry_of(node)->number == number)
            found = entry_of(node);
    (void)pthread_mutex_unlock(&list->lock);
    return found;
}

void sw_remote_list_name_batch(const struct sw_remote_list *list, uint64_t batch, char ret[SW_OBJECT_NAME_BYTES]) {
    (void)snprintf(ret, SW_OBJECT_NAME_BYTES, "batches/%s/", list->config.host);
    sw_remote_record_number(ret, batch);
}

static bool has_batch(const struct sw_remote_list *list, uint64_t batch) {
    for (struct sw_list *node = list->entries.next; node != &list->entries; node = node->next)
        if (entry_of(node)->batch == batch)
            return true;
    return false;
}

void sw_remote_list_remove(struct sw_remote_list *list, struct sw_remote_entry *entry, bool deletes) {
    char object[SW_OBJECT_NAME_BYTES], batch_object[SW_OBJECT_NAME_BYTES];
    const uint64_t batch = entry->batch;
    memcpy(object, entry->object, sizeof object);
    (void)pthread_mutex_lock(&list->lock);
    entry_free(entry);
    const bool was_last = batch && !has_batch(list, batch);
    (void)pthread_mutex_unlock(&list->lock);
    if (deletes)
        sw_remote_delete_later(list->config.client, object, list->config.n_orphans);
    if (!was_last)
        return;
    sw_remote_list_name_batch(list, batch, batch_object);
    sw_remote_delete_later(list->config.client, batch_object, list->config.n_orphans);
}

void sw_remote_list_forget_contents(struct sw_remote_list *list) {
    (void)pthread_mutex_lock(&list->lock);
    for (struct sw_list *node = list->entries.next; node != &list->entries; node = node->next) {
        sw_free(entry_of(node)->record);
        entry_of(node)->record = NULL;
    }
    (void)pthread_mutex_unlock(&list->lock);
}

uint64_t sw_remote_list_number(struct sw_remote_list *list) {
    (void)pthread_mutex_lock(&list->lock);
    const uint64_t number = ++list->last_number;
    (void)pthread_mutex_unlock(&list->lock);
    return number;
}

struct sw_remote_entry *sw_remote_list_add(struct sw_remote_list *list, uint64_t batch) {
    struct sw_remote_entry *entry = sw_alloc(sizeof *entry);
    if (!entry)
        return NULL;
    sw_list_init(&entry->node);
    entry->batch = batch;
    entry->number = sw_remote_list_number(list);
    (void)pthread_mutex_lock(&list->lock);
    sw_list_append(&list->entries, &entry->node);
    (void)pthread_mutex_unlock(&list->lock);
    return entry;
}

void sw_remote_list_name(struct sw_remote_list *list, struct sw_remote_entry *entry, const char *folder) {
    (void)pthread_mutex_lock(&list->lock);
    (void)snprintf(entry->object, sizeof entry->object, "%s", folder);
    sw_remote_record_number(entry->object, new_epoch(list));
    (void)pthread_mutex_unlock(&list->lock);
}

/* ---- for the tier ---- */

static struct sw_tier_record record_of(const struct sw_remote_entry *entry) {
    return (struct sw_tier_record){.number = entry->number,
                                   .content = entry->record + 1,
                                   .bytes = entry->bytes - sizeof *entry->record,
                                   .uid = entry->record->uid,
                                   .name = entry->record->name};
}

int sw_remote_list_visit(struct sw_remote_list *list,
                         int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                         struct sw_err *err) {
    int rc = 0;
    for (struct sw_list *node = list->entries.next; !rc && node != &list->entries; node = node->next) {
        const struct sw_tier_record record = record_of(entry_of(node));
        rc = visit(arg, &record, err);
    }
    return rc;
}

size_t sw_remote_list_copy(struct sw_remote_list *list, char (*ret)[SW_OBJECT_NAME_BYTES], size_t max) {
    size_t n = 0;
    uint64_t batch = 0;
    (void)pthread_mutex_lock(&list->lock);
    for (struct sw_list *node = list->entries.next; node != &list->entries; node = node->next) {
        const struct sw_remote_entry *entry = entry_of(node);
        if (entry->object[0] && ret && n < max)
            memcpy(ret[n], entry->object, sizeof ret[n]);
        n += entry->object[0] != 0;
        if (entry->batch && entry->batch != batch && ret && n < max) /* twice does no harm */
            sw_remote_list_name_batch(list, entry->batch, ret[n]);
        n += entry->batch && entry->batch != batch;
        batch = entry->batch ? entry->batch : batch;
    }
    (void)pthread_mutex_unlock(&list->lock);
    return n;
}

bool sw_remote_list_has(struct sw_remote_list *list, const char *name) {
    const bool is_batch = strncmp(name, "batches/", 8) == 0;
    bool has = false;
    (void)pthread_mutex_lock(&list->lock);
    if (is_batch)
        has = has_batch(list, sw_remote_record_read_number(name));
    for (struct sw_list *node = list->entries.next; !is_batch && !has && node != &list->entries; node = node->next)
        has = strcmp(entry_of(node)->object, name) == 0;
    (void)pthread_mutex_unlock(&list->lock);
    return has;
}

/* ---- the start ---- */

struct batch {
    struct sw_list node;
    uint64_t number;
    bool is_needed;
};

struct start {
    struct sw_remote_list *list;
    struct sw_list batches;
    size_t n; /* entries */
    bool is_out_of_memory;
};

static bool on_batch(void *arg, const char *name, uint64_t bytes, int64_t modified_s) {
    struct start *start = arg;
    const uint64_t number = sw_remote_record_read_number(name);
    (void)bytes, (void)modified_s;
    struct batch *batch = number ? sw_alloc(sizeof *batch) : NULL;
    start->is_out_of_memory = number && !batch;
    if (batch) {
        sw_list_init(&batch->node);
        batch->number = number;
        sw_list_append(&start->batches, &batch->node);
    }
    return !start->is_out_of_memory;
}

static int list_batches(struct start *start, struct sw_err *err) {
    char prefix[SW_OBJECT_NAME_BYTES];
    (void)snprintf(prefix, sizeof prefix, "batches/%s/", start->list->config.host);
    const int rc = sw_object_list(start->list->config.client, prefix, on_batch, start, err);
    return start->is_out_of_memory ? sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier")
                                   : rc;
}

/* Returns whether a record counts. */
static bool counts(struct start *start, const struct sw_remote_record *record) {
    for (struct sw_list *node = start->batches.next; record->batch && node != &start->batches; node = node->next) {
        struct batch *batch = SW_CONTAINER_OF(node, struct batch, node);
        if (batch->number != record->batch)
            continue;
        batch->is_needed = true;
        return true;
    }
    return record->batch == 0;
}

static int on_record(void *arg, const char *object, struct sw_remote_record *body, size_t bytes, struct sw_err *err) {
    struct start *start = arg;
    struct sw_remote_list *list = start->list;
    if (!counts(start, body)) {
        sw_remote_delete_later(list->config.client, object, list->config.n_orphans);
        sw_free(body);
        return 0;
    }
    struct sw_remote_entry *entry = sw_alloc(sizeof *entry);
    if (!entry) {
        sw_free(body);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    }
    sw_list_init(&entry->node);
    entry->number = body->number;
    entry->batch = body->batch;
    entry->record = body;
    entry->bytes = bytes;
    (void)snprintf(entry->object, sizeof entry->object, "%s", object);
    sw_list_append(&list->entries, &entry->node);
    start->n++;
    return 0;
}

static uint64_t epoch_of(const struct sw_remote_entry *entry) {
    return sw_remote_record_read_number(entry->object);
}

static int compare_epochs(const void *a, const void *b) {
    const uint64_t first = epoch_of(*(struct sw_remote_entry *const *)a),
                   second = epoch_of(*(struct sw_remote_entry *const *)b);
    return first < second ? -1 : first > second;
}

static bool have_one_name(const struct sw_remote_entry *a, const struct sw_remote_entry *b) {
    return a->record->uid == b->record->uid && strcmp(a->record->name, b->record->name) == 0;
}

static int compare_regions(const void *a, const void *b) {
    const struct sw_remote_entry *first = *(struct sw_remote_entry *const *)a,
                                 *second = *(struct sw_remote_entry *const *)b;
    const int order = strcmp(first->record->name, second->record->name);
    if (!order && first->record->uid != second->record->uid)
        return first->record->uid < second->record->uid ? -1 : 1;
    return order ? order : compare_epochs(a, b);
}

/* Puts the list in the order of epochs. If two records have one name, a change that failed has left the older one. */
static int sort(struct sw_remote_list *list, size_t n, struct sw_err *err) {
    struct sw_remote_entry **all = sw_alloc_array(n + 1, sizeof(void *));
    struct sw_list *node;
    if (!all)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    for (n = 0; (node = sw_list_take_first(&list->entries)); n++)
        all[n] = entry_of(node);
    qsort(all, n, sizeof(void *), compare_regions);
    for (size_t i = 1; i < n; i++)
        if (have_one_name(all[i - 1], all[i]))
            all[i - 1]->number = 0;
    qsort(all, n, sizeof(void *), compare_epochs);
    for (size_t i = 0; i < n; i++)
        sw_list_append(&list->entries, &all[i]->node);
    if (n > 0)
        list->last_epoch = epoch_of(all[n - 1]);
    for (size_t i = 0; i < n; i++)
        if (all[i]->number == 0)
            sw_remote_list_remove(list, all[i], true);
    sw_free(all);
    return 0;
}

static void end_start(struct start *start, bool good) {
    struct sw_list *node;
    char object[SW_OBJECT_NAME_BYTES];
    while ((node = sw_list_take_first(&start->batches))) {
        const struct batch *batch = SW_CONTAINER_OF(node, struct batch, node);
        if (good && !batch->is_needed) {
            sw_remote_list_name_batch(start->list, batch->number, object);
            sw_remote_delete_later(start->list->config.client, object, start->list->config.n_orphans);
        }
        sw_free(SW_CONTAINER_OF(node, struct batch, node));
    }
}

static int load(struct sw_remote_list *list, struct sw_err *err) {
    struct start start = {.list = list};
    const struct sw_remote_load what = {.client = list->config.client,
                                        .keyring = list->config.keyring,
                                        .host = list->config.host,
                                        .found = on_record,
                                        .arg = &start};
    sw_list_init(&start.batches);
    int rc = list_batches(&start, err);
    if (!rc)
        rc = sw_remote_load(&what, err);
    if (!rc)
        rc = sort(list, start.n, err);
    end_start(&start, rc == 0);
    return rc;
}

int sw_remote_list_open(struct sw_remote_list *ret, const struct sw_remote_list_config *config, struct sw_err *err) {
    *ret = (struct sw_remote_list){.config = *config};
    (void)pthread_mutex_init(&ret->lock, NULL);
    sw_list_init(&ret->entries);
    if (RAND_bytes((unsigned char *)&ret->last_number, sizeof ret->last_number) != 1)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "libcrypto has no random numbers");
    ret->last_number >>= 1; /* it does not wrap around */
    return load(ret, err);
}

void sw_remote_list_fini(struct sw_remote_list *list) {
    while (!sw_list_empty(&list->entries))
        entry_free(entry_of(list->entries.next));
    (void)pthread_mutex_destroy(&list->lock);
}
