#include "tests/mover/away_sink.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/thread.h"
#include "codec/identity.h"
#include "spill/mover/heap_places.h"

#include <string.h>
#include <time.h>

static struct sw_away_sink *of(const struct sw_frame_sink *sink) {
    return SW_CONTAINER_OF(sink, struct sw_away_sink, sink);
}

static uint64_t next_random(struct sw_away_sink *s) {
    s->random ^= s->random << 13;
    s->random ^= s->random >> 7;
    s->random ^= s->random << 17;
    return s->random;
}

void sw_away_frames_free(struct sw_away_frames *frames) {
    for (size_t i = 0; i < frames->n; i++)
        sw_free(frames->frames[i].bytes);
    sw_free(frames->frames);
    *frames = (struct sw_away_frames){0};
}

/* ---- as the other process ---- */

static uint8_t *buffer_of(const struct sw_away_sink *s, unsigned slot) {
    return s->buffers + slot * s->stride;
}

static uint64_t hash_buffer(const struct sw_away_sink *s, unsigned slot) {
    return sw_identity_of(buffer_of(s, slot), s->stride);
}

/* It trusts nothing but its own copy. */
static void keep(const struct sw_away_sink *s, const struct sw_away_order *order) {
    for (unsigned i = 0; i < order->n; i++) {
        struct sw_away_frame *frame = &order->run->frames->frames[order->chunk + i];
        const uint64_t bytes = order->layouts[i].frame_bytes;
        SW_ASSERT(!frame->bytes);
        frame->bytes = sw_alloc(bytes);
        SW_ASSERT(frame->bytes);
        memcpy(frame->bytes, buffer_of(s, order->slot) + order->at[i], bytes);
        SW_ASSERT(sw_frame_parse(&frame->layout, frame->bytes, bytes, bytes, NULL) == 0);
        SW_ASSERT(memcmp(&frame->layout, &order->layouts[i], sizeof frame->layout) == 0);
    }
}

static void bring(const struct sw_away_sink *s, const struct sw_away_order *order) {
    for (unsigned i = 0; i < order->n; i++) {
        const struct sw_away_frame *frame = &order->run->frames->frames[order->chunk + i];
        memcpy(buffer_of(s, order->slot) + order->at[i], frame->bytes, frame->layout.frame_bytes);
        if (order->spoils)
            buffer_of(s, order->slot)[order->at[i] + frame->layout.frame_bytes - 40] ^= 0x55;
    }
}

/* A step that fails has been done in part. */
static void carry_out(const struct sw_away_sink *s, const struct sw_away_order *order) {
    SW_ASSERT(hash_buffer(s, order->slot) == order->hash);
    if (order->fails && !order->is_send)
        memset(buffer_of(s, order->slot), 0xAB, s->stride / 2);
    else if (!order->fails && order->is_send)
        keep(s, order);
    else if (!order->fails)
        bring(s, order);
}

static struct sw_away_order *any(struct sw_away_sink *s, int state) {
    const size_t first = next_random(s) % SW_AWAY_ORDERS;
    for (size_t i = 0; i < SW_AWAY_ORDERS; i++) {
        struct sw_away_order *order = &s->orders[(first + i) % SW_AWAY_ORDERS];
        if ((int)order->state == state)
            return order;
    }
    return NULL;
}

static void *thread_main(void *arg) {
    struct sw_away_sink *s = arg;
    (void)pthread_mutex_lock(&s->lock);
    while (!s->stop) {
        struct sw_away_order *order = any(s, SW_AWAY_QUEUED);
        if (!order) {
            (void)pthread_cond_wait(&s->work, &s->lock);
            continue;
        }
        const struct timespec delay = {.tv_nsec = (long)(next_random(s) % 200000)};
        order->state = SW_AWAY_AT_WORK;
        (void)pthread_mutex_unlock(&s->lock);
        (void)nanosleep(&delay, NULL);
        carry_out(s, order);
        (void)pthread_mutex_lock(&s->lock);
        order->state = SW_AWAY_DONE;
        s->n_done++;
    }
    (void)pthread_mutex_unlock(&s->lock);
    return NULL;
}

/* ---- as the sink ---- */

/* The mover's thread. The order is free afterwards. */
static void report(struct sw_away_sink *s, struct sw_away_order *order) {
    const struct sw_away_order done = *order;
    struct sw_err err = {0};
    for (unsigned i = 0; !done.is_send && !done.fails && i < done.n; i++)
        done.run->run.frames->layouts[done.chunk + i] = done.run->frames->frames[done.chunk + i].layout;
    if (done.fails)
        (void)sw_err_set(&err, s->fail_code, SW_SCOPE_REQUEST, "the other process refuses");
    (void)pthread_mutex_lock(&s->lock);
    order->state = SW_AWAY_FREE;
    (void)pthread_mutex_unlock(&s->lock);
    s->n_out--;
    sw_mover_slot_done(s->sink.mover, done.slot, done.fails ? &err : NULL);
}

static void give(struct sw_away_sink *s, struct sw_away_order *what) {
    what->hash = hash_buffer(s, what->slot);
    what->fails = s->fail_nth && --s->fail_nth == 0;
    what->spoils = s->n_to_spoil && s->n_to_spoil--;
    (void)pthread_mutex_lock(&s->lock);
    struct sw_away_order *order = any(s, SW_AWAY_FREE);
    SW_ASSERT(order);
    what->number = s->n_orders++;
    what->state = s->how == SW_AWAY_INSIDE ? SW_AWAY_AT_WORK
                  : s->how == SW_AWAY_HELD ? SW_AWAY_HELD_BACK
                                           : SW_AWAY_QUEUED;
    *order = *what;
    s->n_out++;
    const bool is_inside = s->how == SW_AWAY_INSIDE;
    (void)pthread_cond_signal(&s->work);
    (void)pthread_mutex_unlock(&s->lock);
    if (is_inside) {
        carry_out(s, order);
        report(s, order);
    }
}

/* Notes where a step's frames lie, or have room: side by side. */
static struct sw_away_order order_of(const struct sw_away_sink *s, struct sw_run *run, size_t chunk, unsigned n,
                                     unsigned slot, const uint64_t *at) {
    struct sw_away_order order = {
        .slot = slot, .n = n, .chunk = chunk, .run = SW_CONTAINER_OF(run, struct sw_away_run, run)};
    uint64_t end = 0;
    SW_ASSERT(n >= 1 && n <= SW_DECODE_MAX && chunk + n <= run->frames->n_chunks);
    for (unsigned i = 0; i < n; i++) {
        SW_ASSERT(at[i] >= end && at[i] % SW_FRAME_ALIGN == 0);
        end = at[i] + sw_frame_bound_bytes(sw_frames_chunk_bytes(run->frames, chunk + i));
        order.at[i] = at[i];
    }
    SW_ASSERT(end <= s->stride);
    return order;
}

static void send(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, unsigned n, unsigned slot,
                 const uint64_t *at) {
    struct sw_away_sink *s = of(sink);
    struct sw_away_order order = order_of(s, run, chunk, n, slot, at);
    struct sw_away_run *away = order.run;
    if (!away->frames->frames) {
        away->frames->n = run->frames->n_chunks;
        away->frames->frames = sw_alloc_array(away->frames->n, sizeof *away->frames->frames);
        SW_ASSERT(away->frames->frames);
    }
    order.is_send = true;
    for (unsigned i = 0; i < n; i++)
        order.layouts[i] = run->frames->layouts[chunk + i];
    s->n_sends++;
    s->n_sent += n;
    s->max_sent = n > s->max_sent ? n : s->max_sent;
    give(s, &order);
}

static void fetch(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, unsigned n, unsigned slot,
                  const uint64_t *at, bool is_disputed) {
    struct sw_away_sink *s = of(sink);
    struct sw_away_order order = order_of(s, run, chunk, n, slot, at);
    s->n_fetched++;
    s->n_disputed += is_disputed;
    s->n_chunks_fetched += n;
    s->max_step = n > s->max_step ? n : s->max_step;
    give(s, &order);
}

static void room(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret) {
    (void)run;
    ret->prefer = of(sink)->prefer;
}

static void abandon(struct sw_frame_sink *sink, struct sw_run *run) {
    SW_ASSERT(run->n_in_sink > 0 && run->outcome.err.code);
    of(sink)->n_abandoned++;
}

static void ended(struct sw_frame_sink *sink, struct sw_run *run) {
    SW_ASSERT(run->n_in_sink == 0);
    of(sink)->n_ended++;
}

static bool has_news(const struct sw_frame_sink *sink) {
    struct sw_away_sink *s = of(sink);
    (void)pthread_mutex_lock(&s->lock);
    const bool has = s->n_done > 0;
    (void)pthread_mutex_unlock(&s->lock);
    return has;
}

static bool collect(struct sw_frame_sink *sink) {
    struct sw_away_sink *s = of(sink);
    bool found = false;
    for (;;) {
        (void)pthread_mutex_lock(&s->lock);
        struct sw_away_order *order = any(s, SW_AWAY_DONE);
        s->n_done -= order != NULL;
        for (int i = 0; order && i < SW_AWAY_ORDERS; i++)
            s->n_out_of_order += s->orders[i].state != SW_AWAY_FREE && s->orders[i].number < order->number;
        (void)pthread_mutex_unlock(&s->lock);
        if (!order)
            return found;
        report(s, order);
        found = true;
    }
}

static const struct sw_frame_sink_ops ops = {.send = send,
                                             .room = room,
                                             .fetch = fetch,
                                             .abandon = abandon,
                                             .ended = ended,
                                             .has_news = has_news,
                                             .collect = collect,
                                             .reserve = sw_heap_reserve,
                                             .commit = sw_heap_commit,
                                             .release = sw_heap_release};

void sw_away_sink_init(struct sw_away_sink *s, uint8_t *buffers, uint64_t stride, enum sw_away_how how) {
    *s = (struct sw_away_sink){.sink = {.ops = &ops, .chunk_bytes = UINT64_MAX},
                               .buffers = buffers,
                               .stride = stride,
                               .how = how,
                               .random = 88172645463325252u};
    (void)pthread_mutex_init(&s->lock, NULL);
    (void)pthread_cond_init(&s->work, NULL);
    SW_ASSERT(sw_thread_start(&s->thread, thread_main, s) == 0);
}

void sw_away_sink_release(struct sw_away_sink *s) {
    (void)pthread_mutex_lock(&s->lock);
    for (int i = 0; i < SW_AWAY_ORDERS; i++)
        if (s->orders[i].state == SW_AWAY_HELD_BACK)
            s->orders[i].state = SW_AWAY_QUEUED;
    (void)pthread_cond_signal(&s->work);
    (void)pthread_mutex_unlock(&s->lock);
}

void sw_away_sink_fini(struct sw_away_sink *s) {
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_cond_signal(&s->work);
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    (void)pthread_cond_destroy(&s->work);
    (void)pthread_mutex_destroy(&s->lock);
}
