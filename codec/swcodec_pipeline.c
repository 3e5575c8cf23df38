#include "codec/swcodec_pipeline.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* Life of a slot: FREE -> (reader) READY -> (worker) BUSY -> DONE -> (writer) FREE. */
enum slot_state { SLOT_FREE, SLOT_READY, SLOT_BUSY, SLOT_DONE };

struct slot {
    struct sw_chunk chunk;
    enum slot_state state;
};

/* Chunk number n is in slot n % n_slots. One lock guards the states; a chunk belongs to whom its state names. */
struct pipeline {
    const struct sw_pipeline_ops *ops;
    void *arg;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct slot *slots;
    size_t n_slots;
    uint64_t next_work; /* number of the next chunk that a worker takes */
    bool is_stopping;
    int stop_fd;
};

int sw_buffer_resize(struct sw_buffer *buffer, size_t bytes, struct sw_err *err) {
    if (bytes > buffer->cap_bytes) {
        uint8_t *data = sw_alloc(bytes);
        if (!data)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for %zu bytes", bytes);
        sw_free(buffer->data);
        buffer->data = data;
        buffer->cap_bytes = bytes;
    }
    buffer->bytes = bytes;
    return 0;
}

static void set_state(struct pipeline *p, struct slot *slot, enum slot_state state) {
    pthread_mutex_lock(&p->lock);
    slot->state = state;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
}

/* Waits until chunk `number` is in a state; NULL when the run is being stopped. */
static struct slot *await(struct pipeline *p, uint64_t number, enum slot_state state) {
    struct slot *slot = &p->slots[number % p->n_slots];
    pthread_mutex_lock(&p->lock);
    while (slot->state != state && !p->is_stopping)
        pthread_cond_wait(&p->changed, &p->lock);
    if (p->is_stopping)
        slot = NULL;
    pthread_mutex_unlock(&p->lock);
    return slot;
}

static void *read_all(void *arg) {
    struct pipeline *p = arg;
    struct slot *slot;
    for (uint64_t number = 0; (slot = await(p, number, SLOT_FREE)); number++) {
        struct sw_chunk *chunk = &slot->chunk;
        chunk->err = (struct sw_err){0};
        chunk->status = p->ops->read(p->arg, chunk, p->stop_fd, &chunk->err);
        bool is_last = chunk->status <= 0; /* the slot may be another's once its state is set */
        set_state(p, slot, is_last ? SLOT_DONE : SLOT_READY);
        if (is_last)
            break;
    }
    return NULL;
}

static struct slot *take_work(struct pipeline *p) {
    struct slot *slot;
    pthread_mutex_lock(&p->lock);
    while (slot = &p->slots[p->next_work % p->n_slots], slot->state != SLOT_READY && !p->is_stopping)
        pthread_cond_wait(&p->changed, &p->lock);
    if (p->is_stopping) {
        slot = NULL;
    } else {
        slot->state = SLOT_BUSY;
        p->next_work++;
    }
    pthread_mutex_unlock(&p->lock);
    return slot;
}

static void *work_all(void *arg) {
    struct pipeline *p = arg;
    struct slot *slot;
    while ((slot = take_work(p))) {
        struct sw_chunk *chunk = &slot->chunk;
        uint64_t start = sw_clock_us();
        int r = p->ops->work(p->arg, chunk, &chunk->err);
        chunk->work_us = sw_clock_us() - start;
        if (r < 0)
            chunk->status = r;
        set_state(p, slot, SLOT_DONE);
    }
    return NULL;
}

/* Returns the run's result. */
static int write_all(struct pipeline *p, struct sw_err *err) {
    for (uint64_t number = 0;; number++) {
        struct slot *slot = await(p, number, SLOT_DONE);
        if (slot->chunk.status <= 0) {
            if (err && slot->chunk.status < 0)
                *err = slot->chunk.err;
            return slot->chunk.status;
        }
        int r = p->ops->write(p->arg, &slot->chunk, err);
        if (r < 0)
            return r;
        set_state(p, slot, SLOT_FREE);
    }
}

static void stop(struct pipeline *p) {
    const uint64_t one = 1;
    pthread_mutex_lock(&p->lock);
    p->is_stopping = true;
    pthread_cond_broadcast(&p->changed);
    pthread_mutex_unlock(&p->lock);
    (void)!write(p->stop_fd, &one, sizeof one); /* cannot fail: the counter is 0 */
}

static int run_threads(struct pipeline *p, pthread_t *threads, unsigned workers, struct sw_err *err) {
    unsigned started = 0;
    int r = 0;
    while (started < workers + 1 && r == 0) {
        r = pthread_create(&threads[started], NULL, started ? work_all : read_all, p);
        started += r == 0;
    }
    r = r ? sw_err_set(err, -SW_EIO, SW_SCOPE_REQUEST, "threads cannot be started: %s", strerror(r))
          : write_all(p, err);
    stop(p);
    while (started)
        pthread_join(threads[--started], NULL);
    return r;
}

int sw_pipeline_run(const struct sw_pipeline_ops *ops, void *arg, unsigned threads, struct sw_err *err) {
    struct pipeline p = {.ops = ops, .arg = arg, .n_slots = threads + 2};
    int r = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for %u threads", threads);
    pthread_t *ids = sw_alloc_array(threads + 1, sizeof *ids);
    p.slots = sw_alloc_array(p.n_slots, sizeof *p.slots);
    p.stop_fd = eventfd(0, EFD_CLOEXEC);
    if (ids && p.slots && p.stop_fd >= 0) {
        pthread_mutex_init(&p.lock, NULL);
        pthread_cond_init(&p.changed, NULL);
        r = run_threads(&p, ids, threads, err);
        pthread_cond_destroy(&p.changed);
        pthread_mutex_destroy(&p.lock);
    }
    for (size_t i = 0; p.slots && i < p.n_slots; i++) {
        sw_free(p.slots[i].chunk.in.data);
        sw_free(p.slots[i].chunk.out.data);
    }
    if (p.stop_fd >= 0)
        close(p.stop_fd);
    sw_free(p.slots);
    sw_free(ids);
    return r;
}
