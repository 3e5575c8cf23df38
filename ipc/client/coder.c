/* coder.c - see coder.h. */
#include "ipc/client/coder.h"
#include "ipc/client/coder_memory.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "spill/mover/heap_places.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

/* Four chunks at a time: so the next chunk's kernel is queued when one ends beside an engine that fills the GPU. */
enum { N_SLOTS = 4 };
/* Bytes on a GPU: of all frame buffers, and of everything. */
#define GPU_FRAME_BYTES ((uint64_t)248 << 20)
#define GPU_BYTES ((uint64_t)320 << 20)
#define HOST_FRAME_BYTES ((uint64_t)72 << 20)
#define HOST_BYTES ((uint64_t)256 << 20)
/* Chunks of new regions, whatever buffers their process has. A buffer takes exactly four of the longest ones. */
enum { LONGEST_CHUNKS = 4 };
#define MOST_NEW_CHUNK_BYTES ((uint64_t)16 << 20)
enum { PAUSE_NS = 100000, STACK_BYTES = 1 << 20 };
/* Callers that poll at a time. Another one is there when one of them gets its result. */
enum { MOST_ATTENDING = 2 };
enum { SPIN_US = 100 };

struct sw_coder {
    struct sw_list node; /* of `coders` */
    unsigned n_users;
    pid_t process; /* that made it */
    struct sw_coder_place place;
    struct sw_coder_memory memory; /* the frame buffers */
    uint64_t stride;               /* from one slot's buffer to the next */
    pthread_mutex_t lock;          /* of all below */
    struct sw_device *device;
    struct sw_mover *mover;
    struct sw_frame_sink sink;
    struct sw_coder_event events[N_SLOTS];
    atomic_uint n_attending; /* callers */
    pthread_cond_t change;   /* a run was added, the end */
    pthread_t thread;
    bool has_thread, ends;
    bool is_gone; /* the context, with all that lies in it */
    atomic_bool is_condemned;
    atomic_uint n_patient; /* calls that the service can no longer do in the coder's place */
    uint64_t n_steps;      /* calls of sw_coder_step() */
    struct sw_coder_users users;
    pthread_mutex_t done_lock; /* of `done` */
    struct sw_list done;       /* sw_coder_event.node: ended by their users, for the next step to take in */
};

static pthread_mutex_t coders_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_list coders = {&coders, &coders};

/* A thread that sleeps at the lock wakes up later than the lock is mostly held, and what waits for the thread is late,
 * too. So it tries again for a while; now and then it yields, since the thread that holds the lock may have lost its
 * CPU. */
static void lock(struct sw_coder *coder) {
    uint64_t begun_us = 0;
    for (unsigned n = 1; pthread_mutex_trylock(&coder->lock); n++) {
        if (n % 64)
            continue;
        const uint64_t now_us = sw_clock_us();
        begun_us = begun_us ? begun_us : now_us;
        if (now_us - begun_us >= SPIN_US) {
            (void)pthread_mutex_lock(&coder->lock);
            return;
        }
        (void)sched_yield();
    }
}

/* ---- the mover's sink: the service ------------------------------------------------------------------------------- */

static struct sw_coder *of_sink(struct sw_frame_sink *sink) {
    return SW_CONTAINER_OF(sink, struct sw_coder, sink);
}

static struct sw_coder_run *of_run(struct sw_run *run) {
    return SW_CONTAINER_OF(run, struct sw_coder_run, run);
}

/* The frame buffer may not be used any more: the run fails, and the service does its work. */
static void refuse(struct sw_coder *coder, unsigned slot) {
    struct sw_err err;
    (void)sw_err_set(&err, -SW_EIO, SW_SCOPE_REQUEST,
                     "the service may still use a frame buffer of a closed connection");
    sw_mover_slot_done(coder->mover, slot, &err);
}

/* Returns a slot's event for n frames. */
static struct sw_coder_event *event_of(struct sw_coder *coder, enum sw_coder_event_kind kind, unsigned n,
                                       unsigned slot) {
    struct sw_coder_event *event = &coder->events[slot];
    event->kind = kind;
    event->is_pending = true;
    event->is_disputed = false;
    event->items = NULL;
    event->chunk = 0;
    event->n = n;
    event->slot = slot;
    return event;
}

static void post(struct sw_coder *coder, struct sw_coder_event *event) {
    event->run = event->runs[0];
    if (atomic_load(&coder->is_condemned)) {
        event->is_pending = false;
        refuse(coder, event->slot);
        return;
    }
    struct sw_coder_user *user = event->run->user;
    sw_list_append(&user->events, &event->node);
    atomic_store(&user->has_events, true);
    if (atomic_load(&coder->n_attending))
        atomic_store(&user->has_news, true);
    else
        sw_coder_user_wake(user);
}

static void post_chunks(struct sw_coder *coder, struct sw_run *run, struct sw_coder_event *event, size_t chunk,
                        const uint64_t *at) {
    event->chunk = chunk;
    for (unsigned i = 0; i < event->n; i++) {
        event->runs[i] = of_run(run);
        event->at[i] = event->slot * coder->stride + at[i];
        event->bytes[i] = event->kind == SW_CODER_SEND
                              ? run->frames->layouts[chunk + i].frame_bytes
                              : sw_frame_bound_bytes(sw_frames_chunk_bytes(run->frames, chunk + i));
    }
    post(coder, event);
}

static void sink_send(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, unsigned n, unsigned slot,
                      const uint64_t *at) {
    post_chunks(of_sink(sink), run, event_of(of_sink(sink), SW_CODER_SEND, n, slot), chunk, at);
}

static void sink_fetch(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, unsigned n, unsigned slot,
                       const uint64_t *at, bool is_disputed) {
    struct sw_coder_event *event = event_of(of_sink(sink), SW_CODER_FETCH, n, slot);
    event->is_disputed = is_disputed;
    post_chunks(of_sink(sink), run, event, chunk, at);
}

static bool sink_goes_with(struct sw_frame_sink *sink, const struct sw_run *first, const struct sw_run *other) {
    const struct sw_coder_run *a = SW_CONTAINER_OF(first, const struct sw_coder_run, run),
                              *b = SW_CONTAINER_OF(other, const struct sw_coder_run, run);
    (void)sink;
    return a->owner == b->owner && a->goes_in_groups && b->goes_in_groups;
}

static void post_group(struct sw_coder *coder, struct sw_run *const *runs, struct sw_group_item *items,
                       struct sw_coder_event *event) {
    event->items = items;
    for (unsigned i = 0; i < event->n; i++) {
        event->runs[i] = of_run(runs[i]);
        event->at[i] = event->slot * coder->stride + items[i].frame_at;
        event->bytes[i] = event->kind == SW_CODER_SEND
                              ? items[i].frame.frame_bytes
                              : sw_frame_step_bytes(sw_frame_bound_bytes(runs[i]->frames->raw_bytes));
    }
    post(coder, event);
}

static void sink_send_group(struct sw_frame_sink *sink, struct sw_run *const *runs, struct sw_group_item *items,
                            unsigned n, unsigned slot) {
    post_group(of_sink(sink), runs, items, event_of(of_sink(sink), SW_CODER_SEND, n, slot));
}

static void sink_fetch_group(struct sw_frame_sink *sink, struct sw_run *const *runs, struct sw_group_item *items,
                             unsigned n, unsigned slot) {
    post_group(of_sink(sink), runs, items, event_of(of_sink(sink), SW_CODER_FETCH, n, slot));
}

static void sink_room(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret) {
    (void)sink;
    ret->prefer = SW_CONTAINER_OF(run, const struct sw_coder_run, run)->prefer;
}

/* Marks the run as abandoned. The service answers the events that it has got. Events that it has not got may wait for
 * chunks that never come. */
static void sink_abandon(struct sw_frame_sink *sink, struct sw_run *run) {
    struct sw_coder_run *coder_run = of_run(run);
    (void)sink;
    if (!atomic_exchange(&coder_run->is_abandoned, true))
        sw_coder_user_wake(coder_run->user);
}

static const struct sw_frame_sink_ops sink_ops = {.send = sink_send,
                                                  .fetch = sink_fetch,
                                                  .room = sink_room,
                                                  .goes_with = sink_goes_with,
                                                  .send_group = sink_send_group,
                                                  .fetch_group = sink_fetch_group,
                                                  .abandon = sink_abandon,
                                                  .reserve = sw_heap_reserve,
                                                  .commit = sw_heap_commit,
                                                  .release = sw_heap_release};

static void finished(struct sw_run *run, void *arg) {
    struct sw_coder_run *coder_run = of_run(run);
    struct sw_coder_user *user = coder_run->user;
    (void)arg;
    atomic_store_explicit(&coder_run->is_over, true, memory_order_release);
    sw_coder_user_wake(user);
}

static void progress(void *arg) {
    (void)arg;
}

/* ---- the context ------------------------------------------------------------------------------------------------- */

static void lose(struct sw_coder *coder) {
    coder->is_gone = true;
    if (coder->device && coder->device->ops->forget)
        coder->device->ops->forget(coder->device);
}

/* Makes the coder's context the current one. If it cannot be, it is gone, and the device fails all. */
static void enter_context(struct sw_coder *coder, struct sw_coder_context *ret) {
    *ret = (struct sw_coder_context){0};
    if (!coder->is_gone && sw_coder_context_enter(ret, coder->place.context, coder->place.context_id, NULL))
        lose(coder);
}

/* ---- the thread ---------------------------------------------------------------------------------------------------
 */

/* The service may still write to the frame buffer of a fetch that was given up. Packs and unpacks go on, in others. */
static void slot_done(struct sw_coder *coder, const struct sw_coder_event *event, const struct sw_err *err) {
    if (event->kind == SW_CODER_FETCH && atomic_load(&coder->is_condemned))
        sw_mover_retire_slot(coder->mover, event->slot);
    sw_mover_slot_done(coder->mover, event->slot, err);
}

static struct sw_coder_event *next_done(struct sw_coder *coder) {
    (void)pthread_mutex_lock(&coder->done_lock);
    struct sw_list *node = sw_list_empty(&coder->done) ? NULL : sw_list_take_first(&coder->done);
    (void)pthread_mutex_unlock(&coder->done_lock);
    return node ? SW_CONTAINER_OF(node, struct sw_coder_event, node) : NULL;
}

/* Takes in the events that users have ended. In the coder's context. */
static void take_done(struct sw_coder *coder) {
    for (struct sw_coder_event *event; (event = next_done(coder));) {
        event->is_pending = false;
        for (unsigned i = 0; event->items && i < event->n; i++) {
            event->items[i].frame_at = event->at[i] - event->slot * coder->stride;
            if (event->runs[i]->refused.code)
                sw_mover_fail(coder->mover, &event->runs[i]->run, &event->runs[i]->refused);
        }
        slot_done(coder, event, &event->result);
    }
}

static void step(struct sw_coder *coder) {
    struct sw_coder_context outer;
    if (!sw_mover_busy(coder->mover))
        return;
    enter_context(coder, &outer);
    take_done(coder);
    if (coder->device->ops->be_patient)
        coder->device->ops->be_patient(coder->device,
                                       atomic_load(&coder->n_patient) > 0 || sw_mover_must_go_on(coder->mover));
    while (sw_mover_step(coder->mover, false))
        ;
    sw_coder_context_leave(&outer);
}

/* Sleeps while the mover has nothing to do. */
static void sleep_until(struct sw_coder *coder, uint64_t us) {
    const struct timespec at = {.tv_sec = (time_t)(us / 1000000), .tv_nsec = (long)(us % 1000000) * 1000};
    if (us)
        (void)pthread_cond_timedwait(&coder->change, &coder->lock, &at);
    else
        (void)pthread_cond_wait(&coder->change, &coder->lock);
}

/* Waits until there may be work, with the lock, which is held before and after. Returns true if the mover is to be
 * stepped: no caller has done so for a while. */
static bool wait_for_work(struct sw_coder *coder) {
    const struct timespec pause = {.tv_nsec = PAUSE_NS};
    const uint64_t n_steps = coder->n_steps;
    uint64_t next_us;
    if (sw_coder_users_wake_due(&coder->users, &next_us))
        return true;
    if (!sw_mover_busy(coder->mover)) {
        sleep_until(coder, next_us);
        return false;
    }
    (void)pthread_mutex_unlock(&coder->lock);
    (void)nanosleep(&pause, NULL);
    lock(coder);
    return coder->n_steps == n_steps;
}

/* Works while no caller does. */
static void *run_thread(void *arg) {
    struct sw_coder *coder = arg;
    lock(coder);
    while (!coder->ends) {
        if (!wait_for_work(coder))
            continue;
        step(coder);
        (void)pthread_mutex_unlock(&coder->lock);
        sw_coder_users_serve(&coder->users, NULL);
        lock(coder);
    }
    (void)pthread_mutex_unlock(&coder->lock);
    return NULL;
}

/* Signals are the engine's own threads' business, and so are the CPUs that the calling thread is bound to. */
static int start_thread(struct sw_coder *coder, struct sw_err *err) {
    sigset_t all, before;
    pthread_attr_t attributes;
    cpu_set_t cpus;
    memset(&cpus, 0xFF, sizeof cpus);
    (void)sigfillset(&all);
    int rc = pthread_attr_init(&attributes);
    if (rc == 0) {
        (void)pthread_attr_setstacksize(&attributes, STACK_BYTES);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        rc = pthread_create(&coder->thread, &attributes, run_thread, coder);
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)pthread_attr_destroy(&attributes);
    }
    if (rc)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "thread of a coder: %s", strerror(rc));
    (void)pthread_setaffinity_np(coder->thread, sizeof cpus, &cpus);
    (void)pthread_setname_np(coder->thread, "spillway-coder");
    coder->has_thread = true;
    return 0;
}

static void end_thread(struct sw_coder *coder) {
    if (!coder->has_thread)
        return;
    lock(coder);
    coder->ends = true;
    (void)pthread_cond_broadcast(&coder->change);
    (void)pthread_mutex_unlock(&coder->lock);
    (void)pthread_join(coder->thread, NULL);
    coder->has_thread = coder->ends = false;
}

bool sw_coder_attend_begin(struct sw_coder *coder) {
    if (atomic_fetch_add(&coder->n_attending, 1) < MOST_ATTENDING)
        return true;
    sw_coder_attend_end(coder);
    return false;
}

void sw_coder_attend_end(struct sw_coder *coder) {
    (void)atomic_fetch_sub(&coder->n_attending, 1);
}

void sw_coder_serve_others(struct sw_coder *coder, const struct sw_coder_user *self) {
    sw_coder_users_serve(&coder->users, self);
}

void sw_coder_wake_at(struct sw_coder *coder, struct sw_coder_user *user, uint64_t us) {
    if (atomic_load(&user->wake_at_us))
        return;
    lock(coder);
    atomic_store(&user->wake_at_us, us);
    (void)pthread_cond_broadcast(&coder->change);
    (void)pthread_mutex_unlock(&coder->lock);
}

void sw_coder_add_user(struct sw_coder *coder, struct sw_coder_user *user) {
    sw_coder_users_add(&coder->users, user);
}

void sw_coder_remove_user(struct sw_coder *coder, struct sw_coder_user *user) {
    sw_coder_users_remove(&coder->users, user);
}

/* ---- events ------------------------------------------------------------------------------------------------------ */

static int event_init(struct sw_coder_event *event, struct sw_err *err) {
    event->runs = sw_alloc_array(SW_CODER_MOST_RUNS, sizeof event->runs[0]);
    event->at = sw_alloc_array(SW_CODER_MOST_RUNS, sizeof event->at[0]);
    event->bytes = sw_alloc_array(SW_CODER_MOST_RUNS, sizeof event->bytes[0]);
    event->numbers = sw_alloc_array(SW_CODER_MOST_RUNS, sizeof event->numbers[0]);
    return event->runs && event->at && event->bytes && event->numbers
               ? 0
               : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a coder");
}

static void event_fini(struct sw_coder_event *event) {
    sw_free(event->runs);
    sw_free(event->at);
    sw_free(event->bytes);
    sw_free(event->numbers);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

/* A context that is gone has taken along what lay in it. */
static void coder_free(struct sw_coder *coder) {
    struct sw_coder_context outer;
    end_thread(coder);
    enter_context(coder, &outer);
    (void)pthread_cond_destroy(&coder->change);
    sw_mover_free(coder->mover);
    if (coder->device)
        coder->device->ops->close(coder->device);
    if (!coder->is_gone)
        sw_coder_memory_fini(&coder->memory);
    sw_coder_context_leave(&outer);
    (void)pthread_mutex_destroy(&coder->lock);
    sw_coder_users_fini(&coder->users);
    (void)pthread_mutex_destroy(&coder->done_lock);
    for (unsigned s = 0; s < N_SLOTS; s++)
        event_fini(&coder->events[s]);
    sw_free(coder);
}

/* The longest chunk of which n_slots buffers fit. */
static uint64_t chunk_that_fits(uint64_t frame_bytes, unsigned n_slots) {
    uint64_t chunk = frame_bytes / n_slots / SW_CHUNK_ALIGN_BYTES * SW_CHUNK_ALIGN_BYTES;
    while (chunk > SW_CHUNK_ALIGN_BYTES && n_slots * sw_device_frame_stride(chunk) > frame_bytes)
        chunk -= SW_CHUNK_ALIGN_BYTES;
    return chunk;
}

static int open_device(struct sw_coder *coder, struct sw_err *err) {
    const struct sw_coder_place *place = &coder->place;
    struct sw_device_config config = {.n_slots = N_SLOTS, .is_guest = true, .cuda_context = place->context};
    config.chunk_bytes = chunk_that_fits(place->context ? GPU_FRAME_BYTES : HOST_FRAME_BYTES, N_SLOTS);
    config.scratch_bytes = place->context ? GPU_BYTES - GPU_FRAME_BYTES : HOST_BYTES;
    coder->stride = sw_device_frame_stride(config.chunk_bytes);
    config.frames_bytes = N_SLOTS * coder->stride;
    int rc = place->context ? sw_device_cuda_check_free(err) : 0;
    if (rc)
        return rc;
    rc = sw_coder_memory_init(&coder->memory, place->context, place->ordinal, config.frames_bytes, err);
    if (rc)
        return rc;
    config.frames = coder->memory.data;
    return place->context ? sw_device_cuda_open(&coder->device, place->ordinal, &config, err)
                          : sw_device_host_open(&coder->device, &config, err);
}

static int fill(struct sw_coder *coder, struct sw_err *err) {
    const struct sw_mover_host host = {.finished = finished, .progress = progress};
    struct sw_coder_context outer;
    int rc = 0;
    for (unsigned s = 0; !rc && s < N_SLOTS; s++)
        rc = event_init(&coder->events[s], err);
    if (!rc)
        rc = sw_coder_context_enter(&outer, coder->place.context, coder->place.context_id, err);
    if (rc)
        return rc;
    rc = open_device(coder, err);
    if (!rc)
        rc = sw_mover_new(&coder->mover, coder->device, &coder->sink, &host, err);
    sw_coder_context_leave(&outer);
    return rc ? rc : start_thread(coder, err);
}

static struct sw_coder *coder_new(const struct sw_coder_place *place, struct sw_err *err) {
    struct sw_coder *coder = sw_alloc(sizeof *coder);
    if (!coder) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a coder");
        return NULL;
    }
    (void)pthread_mutex_init(&coder->lock, NULL);
    sw_coder_users_init(&coder->users);
    (void)pthread_mutex_init(&coder->done_lock, NULL);
    pthread_condattr_t attributes;
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&coder->change, &attributes);
    (void)pthread_condattr_destroy(&attributes);
    sw_list_init(&coder->done);
    coder->place = *place;
    coder->process = getpid();
    coder->sink = (struct sw_frame_sink){
        .ops = &sink_ops, .chunk_bytes = SW_FRAME_MAX_RAW_BYTES, .most_runs = SW_CODER_MOST_RUNS};
    for (unsigned s = 0; s < N_SLOTS; s++)
        sw_list_init(&coder->events[s].node);
    coder->memory.fd = -1;
    sw_list_init(&coder->node);
    coder->n_users = 1;
    if (fill(coder, err)) {
        coder_free(coder);
        return NULL;
    }
    return coder;
}

/* A forked child has its parent's coders without their threads, and shares the host's frame buffers with it. They stay
 * as they are: nothing of them can be freed without CUDA. */
static void forget_parents(void) {
    for (struct sw_list *n = coders.next, *next; n != &coders; n = next) {
        next = n->next;
        if (SW_CONTAINER_OF(n, struct sw_coder, node)->process != getpid())
            sw_list_remove(n);
    }
}

static struct sw_coder *find(const struct sw_coder_place *place) {
    forget_parents();
    for (struct sw_list *n = coders.next; n != &coders; n = n->next) {
        struct sw_coder *coder = SW_CONTAINER_OF(n, struct sw_coder, node);
        if (coder->place.context == place->context && coder->place.context_id == place->context_id &&
            !atomic_load(&coder->is_condemned))
            return coder;
    }
    return NULL;
}

/* Begins work in the coder's context, whatever the calling thread's is. */
static void enter(struct sw_coder *coder, struct sw_coder_context *outer) {
    lock(coder);
    enter_context(coder, outer);
}

static void leave(struct sw_coder *coder, struct sw_coder_context *outer) {
    (void)pthread_mutex_unlock(&coder->lock);
    sw_coder_context_leave(outer);
}

/* Freeing GPU memory waits for kernels, the engine's, too. */
static bool may_be_freed(struct sw_coder *coder) {
    struct sw_coder_context outer;
    enter(coder, &outer);
    const bool is_asleep =
        !coder->is_gone && coder->device->ops->is_asleep && coder->device->ops->is_asleep(coder->device);
    leave(coder, &outer);
    return !is_asleep;
}

/* Frees unused coders, if that does not wait. */
static void free_unused(void) {
    for (struct sw_list *n = coders.next, *next; n != &coders; n = next) {
        struct sw_coder *coder = SW_CONTAINER_OF(n, struct sw_coder, node);
        next = n->next;
        if (coder->n_users > 0 || !may_be_freed(coder))
            continue;
        sw_list_remove(n);
        coder_free(coder);
    }
}

/* The thread of an unused coder has ended. */
static int use(struct sw_coder *coder, struct sw_err *err) {
    const int rc = coder->has_thread ? 0 : start_thread(coder, err);
    if (!rc)
        coder->n_users++;
    return rc;
}

int sw_coder_get(struct sw_coder **ret, const struct sw_coder_place *place, struct sw_err *err) {
    struct sw_err cause = {0};
    (void)pthread_mutex_lock(&coders_lock);
    struct sw_coder *coder = find(place);
    if (coder && use(coder, &cause))
        coder = NULL;
    else if (!coder && (coder = coder_new(place, &cause)))
        sw_list_append(&coders, &coder->node);
    free_unused();
    (void)pthread_mutex_unlock(&coders_lock);
    if (!coder && err)
        *err = cause;
    if (coder)
        *ret = coder;
    return coder ? 0 : cause.code;
}

void sw_coder_put(struct sw_coder *coder) {
    if (!coder)
        return;
    (void)pthread_mutex_lock(&coders_lock);
    if (--coder->n_users == 0)
        end_thread(coder);
    free_unused();
    (void)pthread_mutex_unlock(&coders_lock);
}

void *sw_coder_frames(const struct sw_coder *coder, uint64_t *ret_bytes, int *ret_fd) {
    *ret_bytes = coder->memory.bytes;
    *ret_fd = coder->memory.fd;
    return coder->memory.data;
}

uint64_t sw_coder_chunk_bytes(const struct sw_coder *coder) {
    return coder->device->ops->info(coder->device)->chunk_bytes;
}

uint64_t sw_coder_new_chunk_bytes(const struct sw_coder *coder) {
    const uint64_t buffer_bytes = coder->device->ops->info(coder->device)->group_bytes;
    uint64_t chunk = buffer_bytes / LONGEST_CHUNKS / SW_CHUNK_ALIGN_BYTES * SW_CHUNK_ALIGN_BYTES;
    while (LONGEST_CHUNKS * sw_group_item_bytes(chunk) > buffer_bytes)
        chunk -= SW_CHUNK_ALIGN_BYTES;
    return chunk < MOST_NEW_CHUNK_BYTES ? chunk : MOST_NEW_CHUNK_BYTES;
}

unsigned sw_coder_slots(const struct sw_coder *coder) {
    (void)coder;
    return N_SLOTS;
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void add(struct sw_coder *coder, struct sw_coder_run *run) {
    struct sw_frames *frames = run->run.frames; /* of a restore */
    run->memory.desc.bytes = run->buffer.bytes;
    run->memory.once = true;
    run->buffer.memory = &run->memory;
    run->request.n_buffers = 1;
    run->request.buffers = &run->buffer;
    sw_run_init(&run->run, &run->request, 0, &run->signals);
    run->run.frames = frames;
    run->is_added = true;
    sw_mover_add(coder->mover, &run->run);
}

void sw_coder_add(struct sw_coder *coder, struct sw_coder_run *const *runs, unsigned n) {
    struct sw_coder_context outer;
    enter(coder, &outer);
    for (unsigned i = 0; i < n; i++)
        add(coder, runs[i]);
    (void)pthread_cond_broadcast(&coder->change);
    leave(coder, &outer);
}

void sw_coder_cancel(struct sw_coder *coder, struct sw_coder_run *run) {
    sw_mover_cancel(coder->mover, &run->signals);
}

void sw_coder_run_fini(struct sw_coder_run *run) {
    SW_ASSERT(!run->is_added || atomic_load(&run->is_over));
    sw_heap_free_frames(run->run.frames);
    run->run.frames = NULL;
}

bool sw_coder_step(struct sw_coder *coder) {
    if (pthread_mutex_trylock(&coder->lock))
        return true;
    coder->n_steps++;
    step(coder);
    const bool runs = sw_mover_has_steps(coder->mover);
    (void)pthread_mutex_unlock(&coder->lock);
    return runs;
}

struct sw_coder_event *sw_coder_next_event(struct sw_coder *coder, struct sw_coder_user *user) {
    if (!atomic_load(&user->has_events)) /* else the lock may be a launch away */
        return NULL;
    lock(coder);
    struct sw_list *node = sw_list_empty(&user->events) ? NULL : sw_list_take_first(&user->events);
    atomic_store(&user->has_events, !sw_list_empty(&user->events));
    (void)pthread_mutex_unlock(&coder->lock);
    return node ? SW_CONTAINER_OF(node, struct sw_coder_event, node) : NULL;
}

void sw_coder_event_done(struct sw_coder *coder, struct sw_coder_event *event, const struct sw_err *err) {
    event->result = err ? *err : (struct sw_err){0};
    (void)pthread_mutex_lock(&coder->done_lock);
    sw_list_append(&coder->done, &event->node);
    (void)pthread_mutex_unlock(&coder->done_lock);
}

void sw_coder_be_patient(struct sw_coder *coder, bool is_patient) {
    if (is_patient)
        atomic_fetch_add(&coder->n_patient, 1);
    else
        atomic_fetch_sub(&coder->n_patient, 1);
}

void sw_coder_condemn(struct sw_coder *coder) {
    atomic_store(&coder->is_condemned, true);
}

bool sw_coder_is_condemned(const struct sw_coder *coder) {
    return atomic_load(&coder->is_condemned);
}

void sw_coder_drop_events(struct sw_coder *coder, const void *owner) {
    struct sw_coder_context outer;
    struct sw_err err;
    (void)sw_err_set(&err, -SW_ECANCELED, SW_SCOPE_REQUEST, "the connection has ended");
    enter(coder, &outer);
    take_done(coder);
    for (unsigned s = 0; s < N_SLOTS; s++) {
        struct sw_coder_event *event = &coder->events[s];
        if (!event->is_pending || event->run->owner != owner)
            continue;
        sw_list_remove(&event->node);
        event->is_pending = false;
        slot_done(coder, event, &err);
    }
    leave(coder, &outer);
}
