#include "spill/device/sealer.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>

struct part {
    struct sw_sealer *sealer;
    pthread_t thread;
    bool started, busy;
};

struct sw_sealer {
    pthread_mutex_t lock;        /* guards all below; the work and its frames belong to the threads while any is busy */
    pthread_cond_t begun, ended; /* for the threads, for who waits for them: those that have ended sleep on */
    bool stop;
    atomic_uint n_busy; /* changed under the lock */
    uint32_t n_bad;
    enum sw_sealer_work work;
    void (*run)(void *arg); /* NULL: `work` */
    void *arg;
    struct sw_run *runs; /* of all frames, one behind the other */
    unsigned cap_runs;
    struct frame {
        const struct sw_frame_layout *layout;
        const struct sw_run *runs;
        unsigned n_runs;
    } frames[SW_RAW_MAX];
    unsigned n_frames, first; /* first: that the threads work on */
    unsigned n_parts;
    struct part parts[SW_SEALER_MAX_THREADS];
};

/* A share of each frame, so that all threads end together however many frames there are. */
static struct sw_tile_range tiles_of(const struct part *part, const struct frame *frame) {
    const struct sw_sealer *s = part->sealer;
    const uint64_t n_tiles = frame->layout->n_tiles, index = (uint64_t)(part - s->parts);
    return (struct sw_tile_range){.first = (uint32_t)(n_tiles * index / s->n_parts),
                                  .end = (uint32_t)(n_tiles * (index + 1) / s->n_parts)};
}

/* Returns how many tiles are bad. */
static uint32_t work_on(const struct part *part) {
    const struct sw_sealer *s = part->sealer;
    uint32_t n_bad = 0;
    if (s->run) {
        s->run(s->arg);
        return 0;
    }
    for (unsigned i = s->first; i < s->n_frames; i++) {
        const struct frame *frame = &s->frames[i];
        if (s->work == SW_SEALER_SEAL)
            sw_raw_runs_seal(frame->layout, frame->runs, frame->n_runs, tiles_of(part, frame));
        else
            n_bad += sw_raw_runs_verify(frame->layout, frame->runs, frame->n_runs, tiles_of(part, frame));
    }
    return n_bad;
}

static void *part_main(void *arg) {
    struct part *part = arg;
    struct sw_sealer *s = part->sealer;
    (void)pthread_mutex_lock(&s->lock);
    for (;;) {
        while (!part->busy && !s->stop)
            (void)pthread_cond_wait(&s->begun, &s->lock);
        if (!part->busy)
            break;
        (void)pthread_mutex_unlock(&s->lock);
        const uint32_t n_bad = work_on(part);
        (void)pthread_mutex_lock(&s->lock);
        part->busy = false;
        s->n_bad += n_bad;
        if (atomic_fetch_sub(&s->n_busy, 1) == 1)
            (void)pthread_cond_signal(&s->ended);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

int sw_sealer_new(struct sw_sealer **ret, unsigned n_threads, struct sw_err *err) {
    SW_ASSERT(n_threads >= 1 && n_threads <= SW_SEALER_MAX_THREADS);
    struct sw_sealer *s = sw_alloc(sizeof *s);
    if (!s)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a slot");
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->begun, NULL);
    (void)pthread_cond_init(&s->ended, NULL);
    s->n_parts = n_threads;
    for (unsigned i = 0; i < n_threads; i++)
        s->parts[i].sealer = s;
    *ret = s;
    return 0;
}

void sw_sealer_free(struct sw_sealer *s) {
    if (!s)
        return;
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_broadcast(&s->begun);
    (void)pthread_mutex_unlock(&s->lock);
    for (unsigned i = 0; i < s->n_parts; i++)
        if (s->parts[i].started)
            (void)pthread_join(s->parts[i].thread, NULL);
    (void)pthread_cond_destroy(&s->begun);
    (void)pthread_cond_destroy(&s->ended);
    (void)pthread_mutex_destroy(&s->lock);
    sw_free(s->runs);
    sw_free(s);
}

void sw_sealer_runs(struct sw_run *ret, const struct sw_stored *frame) {
    for (unsigned i = 0; i < frame->n_extents; i++)
        ret[i] = (struct sw_run){.memory = frame->extents[i].memory, .bytes = frame->extents[i].bytes};
}

static int make_room(struct sw_sealer *s, unsigned n_runs) {
    if (n_runs <= s->cap_runs)
        return 0;
    struct sw_run *runs = sw_alloc_array(n_runs, sizeof *runs);
    if (!runs)
        return -SW_ENOMEM;
    sw_free(s->runs);
    s->runs = runs;
    s->cap_runs = n_runs;
    return 0;
}

int sw_sealer_take(struct sw_sealer *s, const struct sw_raw_item *items, unsigned n, struct sw_err *err) {
    unsigned n_runs = 0;
    SW_ASSERT(n <= SW_RAW_MAX);
    for (unsigned i = 0; i < n; i++)
        n_runs += items[i].stored->n_extents;
    (void)pthread_mutex_lock(&s->lock);
    SW_ASSERT(s->n_busy == 0);
    const int rc = make_room(s, n_runs);
    struct sw_run *runs = s->runs;
    for (unsigned i = 0; !rc && i < n; i++) {
        const struct sw_stored *stored = items[i].stored;
        s->frames[i] = (struct frame){.layout = &items[i].frame, .runs = runs, .n_runs = stored->n_extents};
        sw_sealer_runs(runs, stored);
        runs += stored->n_extents;
    }
    s->n_frames = rc ? 0 : n;
    s->n_bad = 0;
    (void)pthread_mutex_unlock(&s->lock);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for the places of a frame") : 0;
}

static int start_threads(struct sw_sealer *s) {
    for (unsigned i = 0; i < s->n_parts; i++) {
        if (!s->parts[i].started && sw_thread_start(&s->parts[i].thread, part_main, &s->parts[i]))
            return -SW_ENOMEM;
        s->parts[i].started = true;
    }
    return 0;
}

int sw_sealer_begin(struct sw_sealer *s, enum sw_sealer_work work, unsigned first, struct sw_err *err) {
    (void)pthread_mutex_lock(&s->lock);
    SW_ASSERT(s->n_busy == 0);
    const int rc = first < s->n_frames ? start_threads(s) : 0;
    if (rc == 0 && first < s->n_frames) {
        s->run = NULL;
        s->work = work;
        s->first = first;
        atomic_store(&s->n_busy, s->n_parts);
        for (unsigned i = 0; i < s->n_parts; i++)
            s->parts[i].busy = true;
        (void)pthread_cond_broadcast(&s->begun);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "no thread for a frame's hashes") : 0;
}

int sw_sealer_run(struct sw_sealer *s, void (*run)(void *arg), void *arg, struct sw_err *err) {
    (void)pthread_mutex_lock(&s->lock);
    SW_ASSERT(s->n_busy == 0);
    const int rc = start_threads(s);
    if (rc == 0) {
        s->run = run;
        s->arg = arg;
        atomic_store(&s->n_busy, 1);
        s->parts[0].busy = true;
        (void)pthread_cond_broadcast(&s->begun);
    }
    (void)pthread_mutex_unlock(&s->lock);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "no thread to run something on") : 0;
}

void sw_sealer_seal_hashed(const struct sw_sealer *s, unsigned end, const uint32_t *hashes) {
    SW_ASSERT(end <= s->n_frames);
    for (const struct frame *frame = s->frames; frame < s->frames + end; frame++) {
        sw_raw_runs_seal_hashed(frame->layout, frame->runs, frame->n_runs, hashes);
        hashes += frame->layout->n_tiles;
    }
}

uint32_t sw_sealer_verify_hashed(const struct sw_sealer *s, unsigned end, const uint32_t *hashes) {
    uint32_t n_bad = 0;
    SW_ASSERT(end <= s->n_frames);
    for (const struct frame *frame = s->frames; frame < s->frames + end; frame++) {
        n_bad += sw_raw_runs_verify_hashed(frame->layout, frame->runs, frame->n_runs, hashes);
        hashes += frame->layout->n_tiles;
    }
    return n_bad;
}

bool sw_sealer_ended(struct sw_sealer *s) {
    return atomic_load(&s->n_busy) == 0;
}

void sw_sealer_wait(struct sw_sealer *s) {
    (void)pthread_mutex_lock(&s->lock);
    while (s->n_busy > 0)
        (void)pthread_cond_wait(&s->ended, &s->lock);
    (void)pthread_mutex_unlock(&s->lock);
}

uint32_t sw_sealer_bad_tiles(struct sw_sealer *s) {
    (void)pthread_mutex_lock(&s->lock);
    SW_ASSERT(s->n_busy == 0);
    const uint32_t n_bad = s->n_bad;
    (void)pthread_mutex_unlock(&s->lock);
    return n_bad;
}
