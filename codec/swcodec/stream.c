#include "codec/swcodec/stream.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdbool.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* States of a slot: FREE -> (reader) READY -> (worker) BUSY -> DONE -> (writer) FREE. */
enum slot_state { SLOT_FREE, SLOT_READY, SLOT_BUSY, SLOT_DONE };

struct slot {
    struct sw_chunk chunk;
    enum slot_state state;
};

/* Chunk number n is in slot n % n_slots. One lock guards the states. The thread that a slot's state waits for owns its
 * chunk. */
struct stream {
    const struct sw_stream_ops *ops;
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
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for %zu bytes", bytes);
        sw_free(buffer->data);
        buffer->data = data;
        buffer->cap_bytes = bytes;
    }
    buffer->bytes = bytes;
    return 0;
}

static void set_state(struct stream *s, struct slot *slot, enum slot_state state) {
    pthread_mutex_lock(&s->lock);
    slot->state = state;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
}

/* Waits until chunk `number` is in a state; NULL: the run is being stopped. */
static struct slot *await(struct stream *s, uint64_t number, enum slot_state state) {
    struct slot *slot = &s->slots[number % s->n_slots];
    pthread_mutex_lock(&s->lock);
    while (slot->state != state && !s->is_stopping)
        pthread_cond_wait(&s->changed, &s->lock);
    if (s->is_stopping)
        slot = NULL;
    pthread_mutex_unlock(&s->lock);
    return slot;
}

static void *read_all(void *arg) {
    struct stream *s = arg;
    struct slot *slot;
    for (uint64_t number = 0; (slot = await(s, number, SLOT_FREE)); number++) {
        struct sw_chunk *chunk = &slot->chunk;
        chunk->err = (struct sw_err){0};
        chunk->status = s->ops->read(s->arg, chunk, s->stop_fd, &chunk->err);
        bool is_last = chunk->status <= 0; /* read it now: another thread owns the slot once its state is set */
        set_state(s, slot, is_last ? SLOT_DONE : SLOT_READY);
        if (is_last)
            break;
    }
    return NULL;
}

static struct slot *take_work(struct stream *s) {
    struct slot *slot;
    pthread_mutex_lock(&s->lock);
    while (slot = &s->slots[s->next_work % s->n_slots], slot->state != SLOT_READY && !s->is_stopping)
        pthread_cond_wait(&s->changed, &s->lock);
    if (s->is_stopping) {
        slot = NULL;
    } else {
        slot->state = SLOT_BUSY;
        s->next_work++;
    }
    pthread_mutex_unlock(&s->lock);
    return slot;
}

static void *work_all(void *arg) {
    struct stream *s = arg;
    struct slot *slot;
    while ((slot = take_work(s))) {
        struct sw_chunk *chunk = &slot->chunk;
        uint64_t start = sw_clock_us();
        int r = s->ops->work(s->arg, chunk, &chunk->err);
        chunk->work_us = sw_clock_us() - start;
        if (r < 0)
            chunk->status = r;
        set_state(s, slot, SLOT_DONE);
    }
    return NULL;
}

/* Returns the run's result. */
static int write_all(struct stream *s, struct sw_err *err) {
    for (uint64_t number = 0;; number++) {
        struct slot *slot = await(s, number, SLOT_DONE);
        if (slot->chunk.status <= 0) {
            if (err && slot->chunk.status < 0)
                *err = slot->chunk.err;
            return slot->chunk.status;
        }
        int r = s->ops->write(s->arg, &slot->chunk, err);
        if (r < 0)
            return r;
        set_state(s, slot, SLOT_FREE);
    }
}

static void stop(struct stream *s) {
    const uint64_t one = 1;
    pthread_mutex_lock(&s->lock);
    s->is_stopping = true;
    pthread_cond_broadcast(&s->changed);
    pthread_mutex_unlock(&s->lock);
    (void)!write(s->stop_fd, &one, sizeof one); /* cannot fail: the counter is 0 */
}

static int run_threads(struct stream *s, pthread_t *threads, unsigned workers, struct sw_err *err) {
    unsigned started = 0;
    int r = 0;
    while (started < workers + 1 && r == 0) {
        r = sw_thread_start(&threads[started], started ? work_all : read_all, s);
        started += r == 0;
    }
    r = r ? sw_err_set(err, -SW_EIO, SW_SCOPE_REQUEST, "cannot start a thread: %s", strerror(r)) : write_all(s, err);
    stop(s);
    while (started)
        pthread_join(threads[--started], NULL);
    return r;
}

int sw_stream_run(const struct sw_stream_ops *ops, void *arg, unsigned threads, struct sw_err *err) {
    struct stream s = {.ops = ops, .arg = arg, .n_slots = threads + 2};
    int r = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for %u threads", threads);
    pthread_t *ids = sw_alloc_array(threads + 1, sizeof *ids);
    s.slots = sw_alloc_array(s.n_slots, sizeof *s.slots);
    s.stop_fd = eventfd(0, EFD_CLOEXEC);
    if (ids && s.slots && s.stop_fd >= 0) {
        pthread_mutex_init(&s.lock, NULL);
        pthread_cond_init(&s.changed, NULL);
        r = run_threads(&s, ids, threads, err);
        pthread_cond_destroy(&s.changed);
        pthread_mutex_destroy(&s.lock);
    }
    for (size_t i = 0; s.slots && i < s.n_slots; i++) {
        sw_free(s.slots[i].chunk.in.data);
        sw_free(s.slots[i].chunk.out.data);
    }
    if (s.stop_fd >= 0)
        close(s.stop_fd);
    sw_free(s.slots);
    sw_free(ids);
    return r;
}
