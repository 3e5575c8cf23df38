#include "spill/tier/nvme/nvme_keep.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

struct sw_nvme_keep {
    struct sw_nvme_keep_config config;
    pthread_t thread;
    pthread_mutex_t lock; /* guards the next two fields; held for list operations only */
    pthread_cond_t work;
    struct sw_list inbox; /* sw_tier_change.node */
    bool stop;
    bool knows_files; /* the thread's: the names of the files are on the disk */
};

static int flush_failed(struct sw_err *err, const char *what) {
    const int cause = errno;
    (void)sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_REQUEST, "%s cannot be flushed to the disk: %s", what,
                     strerror(cause));
    return sw_nvme_error(cause);
}

/* A write that ends meanwhile marks its file again. */
static int flush_data(struct sw_nvme_keep *k, struct sw_err *err) {
    struct sw_nvme_files *files = k->config.files;
    for (unsigned i = 0; i < files->n_data; i++) {
        if (!atomic_exchange(&files->data[i].is_dirty, false))
            continue;
        if (k->config.ops->sync(files->data[i].fd, false)) {
            atomic_store(&files->data[i].is_dirty, true);
            return flush_failed(err, "a data file");
        }
    }
    return 0;
}

static int flush_names(struct sw_nvme_keep *k, struct sw_err *err) {
    if (!k->knows_files && k->config.ops->sync(k->config.files->directory, true))
        return flush_failed(err, "the tier's folder");
    k->knows_files = true;
    return 0;
}

static int flush_frames(struct sw_nvme_keep *k, struct sw_err *err) {
    int rc = flush_names(k, err);
    if (!rc)
        rc = flush_data(k, err);
    return rc ? rc : sw_manifest_flush(k->config.manifest, err);
}

/* Moves the changes of a kind to another list, or all. */
static void move_kind(struct sw_list *from, struct sw_list *to, enum sw_tier_change_kind kind) {
    for (struct sw_list *node = from->next, *next; node != from; node = next) {
        next = node->next;
        if (SW_CONTAINER_OF(node, struct sw_tier_change, node)->kind != kind)
            continue;
        sw_list_remove(node);
        sw_list_append(to, node);
    }
}

static void report(struct sw_list *changes, const struct sw_err *err) {
    struct sw_list *node;
    while ((node = sw_list_take_first(changes))) {
        struct sw_tier_change *change = SW_CONTAINER_OF(node, struct sw_tier_change, node);
        change->err = *err;
        change->done(change, change->arg); /* may free it */
    }
}

static bool has_kind(const struct sw_list *changes, enum sw_tier_change_kind kind) {
    for (const struct sw_list *node = changes->next; node != changes; node = node->next)
        if (SW_CONTAINER_OF(node, const struct sw_tier_change, node)->kind == kind)
            return true;
    return false;
}

/* Frames that cannot be flushed do not keep other regions from being forgotten. */
static void run(struct sw_nvme_keep *k, struct sw_list *changes) {
    struct sw_err err = {0};
    struct sw_list failed;
    sw_list_init(&failed);
    if (has_kind(changes, SW_TIER_KEEP) && flush_frames(k, &err)) {
        move_kind(changes, &failed, SW_TIER_KEEP);
        report(&failed, &err);
        memset(&err, 0, sizeof err);
    }
    if (!sw_list_empty(changes))
        (void)sw_ledger_change(k->config.ledger, changes, &err);
    report(changes, &err);
}

static void *thread_main(void *arg) {
    struct sw_nvme_keep *k = arg;
    struct sw_list changes, *node;
    bool stop = false;
    sw_list_init(&changes);
    while (!stop) {
        (void)pthread_mutex_lock(&k->lock);
        while (sw_list_empty(&k->inbox) && !k->stop)
            (void)pthread_cond_wait(&k->work, &k->lock);
        while ((node = sw_list_take_first(&k->inbox)))
            sw_list_append(&changes, node);
        stop = k->stop;
        (void)pthread_mutex_unlock(&k->lock);
        SW_ASSERT(!stop || sw_list_empty(&changes));
        run(k, &changes);
    }
    return NULL;
}

void sw_nvme_keep_submit(struct sw_nvme_keep *k, struct sw_tier_change *change) {
    SW_ASSERT(change->n > 0);
    memset(&change->err, 0, sizeof change->err);
    sw_list_init(&change->node);
    (void)pthread_mutex_lock(&k->lock);
    sw_list_append(&k->inbox, &change->node);
    (void)pthread_cond_signal(&k->work);
    (void)pthread_mutex_unlock(&k->lock);
}

int sw_nvme_keep_open(struct sw_nvme_keep **ret, const struct sw_nvme_keep_config *config, struct sw_err *err) {
    struct sw_nvme_keep *k = sw_alloc(sizeof *k);
    if (!k)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    k->config = *config;
    (void)pthread_mutex_init(&k->lock, NULL);
    (void)pthread_cond_init(&k->work, NULL);
    sw_list_init(&k->inbox);
    if (sw_thread_start(&k->thread, thread_main, k) == 0) {
        *ret = k;
        return 0;
    }
    (void)pthread_cond_destroy(&k->work);
    (void)pthread_mutex_destroy(&k->lock);
    sw_free(k);
    return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot start a thread for the NVMe tier");
}

void sw_nvme_keep_close(struct sw_nvme_keep *k) {
    if (!k)
        return;
    (void)pthread_mutex_lock(&k->lock);
    k->stop = true;
    (void)pthread_cond_signal(&k->work);
    (void)pthread_mutex_unlock(&k->lock);
    (void)pthread_join(k->thread, NULL);
    (void)pthread_cond_destroy(&k->work);
    (void)pthread_mutex_destroy(&k->lock);
    sw_free(k);
}
