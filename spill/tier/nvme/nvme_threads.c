#include "spill/tier/nvme/nvme_method.h"

#include "base/alloc.h"
#include "base/thread.h"

#include <errno.h>
#include <pthread.h>

/* More threads add nothing: each has a request of up to 1 MiB at the disk. */
#define MAX_THREADS 16u

struct threads {
    struct sw_nvme_method method;
    const struct sw_nvme_file_ops *files;
    pthread_mutex_t lock; /* guards all fields below; held for list operations only */
    pthread_cond_t work, news;
    struct sw_list waiting, ended;
    bool woken, stop;
    unsigned n_threads;
    pthread_t threads[MAX_THREADS];
};

static struct threads *threads_of(struct sw_nvme_method *method) {
    return SW_CONTAINER_OF(method, struct threads, method);
}

static void run_request(const struct threads *t, struct sw_nvme_request *request) {
    ssize_t n = request->write ? t->files->pwrite(request->fd, request->memory, request->bytes, request->offset)
                               : t->files->pread(request->fd, request->memory, request->bytes, request->offset);
    request->result = n < 0 ? -errno : n;
}

static void *thread_main(void *arg) {
    struct threads *t = arg;
    (void)pthread_mutex_lock(&t->lock);
    for (;;) {
        struct sw_list *node = sw_list_take_first(&t->waiting);
        if (node) {
            (void)pthread_mutex_unlock(&t->lock);
            run_request(t, SW_CONTAINER_OF(node, struct sw_nvme_request, node));
            (void)pthread_mutex_lock(&t->lock);
            sw_list_append(&t->ended, node);
            (void)pthread_cond_signal(&t->news);
        } else if (t->stop) {
            break;
        } else {
            (void)pthread_cond_wait(&t->work, &t->lock);
        }
    }
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

static void threads_start(struct sw_nvme_method *method, struct sw_nvme_request *request) {
    struct threads *t = threads_of(method);
    (void)pthread_mutex_lock(&t->lock);
    sw_list_append(&t->waiting, &request->node);
    (void)pthread_cond_signal(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
}

static void threads_wait(struct sw_nvme_method *method, struct sw_list *ret_ended) {
    struct threads *t = threads_of(method);
    struct sw_list *node;
    (void)pthread_mutex_lock(&t->lock);
    while (sw_list_empty(&t->ended) && !t->woken)
        (void)pthread_cond_wait(&t->news, &t->lock);
    t->woken = false;
    while ((node = sw_list_take_first(&t->ended)))
        sw_list_append(ret_ended, node);
    (void)pthread_mutex_unlock(&t->lock);
}

static void threads_wake(struct sw_nvme_method *method) {
    struct threads *t = threads_of(method);
    (void)pthread_mutex_lock(&t->lock);
    t->woken = true;
    (void)pthread_cond_signal(&t->news);
    (void)pthread_mutex_unlock(&t->lock);
}

static void threads_close(struct sw_nvme_method *method) {
    struct threads *t = threads_of(method);
    (void)pthread_mutex_lock(&t->lock);
    t->stop = true;
    (void)pthread_cond_broadcast(&t->work);
    (void)pthread_mutex_unlock(&t->lock);
    while (t->n_threads > 0)
        (void)pthread_join(t->threads[--t->n_threads], NULL);
    (void)pthread_cond_destroy(&t->news);
    (void)pthread_cond_destroy(&t->work);
    (void)pthread_mutex_destroy(&t->lock);
    sw_free(t);
}

static const struct sw_nvme_method_ops threads_ops = {
    .start = threads_start,
    .wait = threads_wait,
    .wake = threads_wake,
    .close = threads_close,
};

int sw_nvme_threads_open(struct sw_nvme_method **ret, unsigned depth, const struct sw_nvme_file_ops *files,
                         struct sw_err *err) {
    struct threads *t = sw_alloc(sizeof *t);
    if (!t)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    t->method.ops = &threads_ops;
    t->files = files;
    (void)pthread_mutex_init(&t->lock, NULL);
    (void)pthread_cond_init(&t->work, NULL);
    (void)pthread_cond_init(&t->news, NULL);
    sw_list_init(&t->waiting);
    sw_list_init(&t->ended);
    for (; t->n_threads < depth && t->n_threads < MAX_THREADS; t->n_threads++)
        if (sw_thread_start(&t->threads[t->n_threads], thread_main, t) != 0) {
            threads_close(&t->method);
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot start a thread for the NVMe tier");
        }
    *ret = &t->method;
    return 0;
}
