#include "tests/lib/fake_cuda/state.h"

#include "base/assert.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_RANGES = 1024 };

struct work {
    struct work *next;
    void (*run)(const void *args);
    bool is_kernel;
    struct sw_gpu_pass pass;
    _Alignas(16) uint8_t args[SW_FAKE_ARGS_BYTES];
};

/* A stream counts queued and finished work. An event is a number of this count. */
struct CUstream_st {
    struct CUstream_st *next;
    struct work *first, **last;
    uint64_t n_queued, n_done;
};

struct CUevent_st {
    struct CUevent_st *next;
    struct CUstream_st *stream; /* NULL: nothing was recorded, or the stream is gone */
    uint64_t at;
};

static struct sw_fake_cuda own;
struct sw_fake_cuda *sw_fake_cuda = &own;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_fake_range ranges[MAX_RANGES];
static unsigned n_ranges;
static struct CUstream_st *streams;
static struct CUevent_st *events;
static bool kills_next; /* SW_FAKE_LATER: what this call queues */
static _Thread_local cudaError_t last_error;

/* ---- faults ---- */

const char *sw_fake_call_name(enum sw_fake_call call) {
    static const char *const names[SW_FAKE_CALL_NR] = {
#define NAME(call) #call,
        SW_FAKE_CUDA_CALLS(NAME, NAME)
#undef NAME
    };
    return call < SW_FAKE_CALL_NR ? names[call] : "any";
}

const char *sw_fake_thing_name(enum sw_fake_thing thing) {
    static const char *const names[SW_FAKE_THING_NR] = {
        "device memory", "pinned memory",   "registered memory", "streams",      "events",      "IPC memory",
        "handles",       "reserved ranges", "VMM parts",         "memory pools", "pool memory",
    };
    return names[thing];
}

void sw_fake_arm(enum sw_fake_call call, int nth, int error, enum sw_fake_way way) {
    atomic_store(&sw_fake_cuda->armed, SW_FAKE_NO_CALL);
    sw_fake_cuda->error = error;
    sw_fake_cuda->way = way;
    atomic_store(&sw_fake_cuda->nth, nth);
    atomic_store(&sw_fake_cuda->fired, 0);
    atomic_store(&sw_fake_cuda->armed, (int)call);
}

void sw_fake_disarm(void) {
    atomic_store(&sw_fake_cuda->armed, SW_FAKE_NO_CALL);
}

static bool queues(enum sw_fake_call call) {
    return call == SW_FAKE_cudaMemcpyAsync || call == SW_FAKE_cudaMemsetAsync ||
           (call >= SW_FAKE_sw_gpu_wake_async && call < SW_FAKE_CALL_NR);
}

static bool hits(enum sw_fake_call call) {
    const int armed = atomic_load(&sw_fake_cuda->armed);
    if (armed != (int)call && armed != SW_FAKE_ANY_CALL)
        return false;
    if (atomic_fetch_sub(&sw_fake_cuda->nth, 1) != 1)
        return false;
    atomic_fetch_add(&sw_fake_cuda->fired, 1);
    return true;
}

void sw_fake_kill(cudaError_t error) {
    int alive = 0;
    (void)atomic_compare_exchange_strong(&sw_fake_cuda->dead, &alive, (int)error);
}

cudaError_t sw_fake_enter(enum sw_fake_call call) {
    (void)pthread_mutex_lock(&lock);
    atomic_fetch_add(&sw_fake_cuda->calls[call], 1);
    kills_next = false;
    if (atomic_load(&sw_fake_cuda->dead) == 0 && hits(call)) {
        if (sw_fake_cuda->way == SW_FAKE_ONCE)
            return (cudaError_t)sw_fake_cuda->error;
        if (sw_fake_cuda->way == SW_FAKE_LATER && queues(call))
            kills_next = true;
        else
            sw_fake_kill((cudaError_t)sw_fake_cuda->error);
    }
    return (cudaError_t)atomic_load(&sw_fake_cuda->dead);
}

cudaError_t sw_fake_leave(cudaError_t result) {
    (void)pthread_mutex_unlock(&lock);
    if (result != cudaSuccess)
        last_error = result;
    return result;
}

cudaError_t sw_fake_take_last_error(void) {
    const cudaError_t e = last_error;
    last_error = cudaSuccess;
    return e;
}

/* ---- memory ---- */

void sw_fake_hold(enum sw_fake_thing thing, int change) {
    SW_ASSERT(atomic_fetch_add(&sw_fake_cuda->held[thing], change) + change >= 0);
}

void sw_fake_range_add(enum sw_fake_thing thing, const void *from, size_t bytes) {
    SW_ASSERT(n_ranges < MAX_RANGES);
    ranges[n_ranges++] = (struct sw_fake_range){.thing = thing, .from = from, .bytes = bytes};
    sw_fake_hold(thing, 1);
}

size_t sw_fake_range_remove(enum sw_fake_thing thing, const void *from) {
    for (unsigned i = 0; i < n_ranges; i++)
        if (ranges[i].thing == thing && ranges[i].from == from) {
            const size_t bytes = ranges[i].bytes;
            ranges[i] = ranges[--n_ranges];
            sw_fake_hold(thing, -1);
            return bytes;
        }
    return 0;
}

const struct sw_fake_range *sw_fake_range_find(const void *at, size_t bytes) {
    for (unsigned i = 0; i < n_ranges; i++) {
        const uintptr_t before = (uintptr_t)at - (uintptr_t)ranges[i].from;
        if ((uintptr_t)at >= (uintptr_t)ranges[i].from && before < ranges[i].bytes && ranges[i].bytes - before >= bytes)
            return &ranges[i];
    }
    return NULL;
}

/* What is mapped side by side is one run of memory. */
static bool is_there(const uint8_t *at, size_t bytes) {
    const struct sw_fake_range *range;
    while (bytes > 0 && (range = sw_fake_range_find(at, 1))) {
        const size_t left = range->bytes - (size_t)(at - range->from), n = left < bytes ? left : bytes;
        at += n;
        bytes -= n;
    }
    return bytes == 0;
}

bool sw_fake_reach(const void *at, size_t bytes) {
    if (is_there(at, bytes))
        return true;
    atomic_fetch_add(&sw_fake_cuda->violations, 1);
    sw_fake_kill(cudaErrorIllegalAddress);
    return false;
}

/* ---- streams ---- */

enum { GREATEST_PRIORITY = -5 };

static cudaError_t dead(void) {
    return (cudaError_t)atomic_load(&sw_fake_cuda->dead);
}

static void kill_by_work(const void *args) {
    (void)args;
    sw_fake_kill((cudaError_t)sw_fake_cuda->error);
}

static struct work *add_work(cudaStream_t stream, void (*run)(const void *args), const void *args, size_t bytes) {
    struct work *work = calloc(1, sizeof *work);
    SW_ASSERT(work && bytes <= sizeof work->args);
    work->run = kills_next ? kill_by_work : run;
    if (bytes)
        memcpy(work->args, args, bytes);
    *stream->last = work;
    stream->last = &work->next;
    stream->n_queued++;
    return work;
}

cudaError_t sw_fake_queue(cudaStream_t stream, void (*run)(const void *args), const void *args, size_t bytes) {
    (void)add_work(stream, run, args, bytes);
    return cudaSuccess;
}

cudaError_t sw_fake_queue_kernel(cudaStream_t stream, void (*run)(const void *args), const void *args, size_t bytes,
                                 struct sw_gpu_pass pass) {
    struct work *work = add_work(stream, run, args, bytes);
    work->is_kernel = true;
    work->pass = pass;
    return cudaSuccess;
}

/* As the kernels' first block: see struct sw_gpu_gate. */
static bool may_pass(const struct sw_gpu_pass *pass) {
    struct sw_gpu_gate *gate = pass->d_gate;
    if (!gate)
        return true;
    if (!sw_fake_reach(gate, sizeof *gate))
        return false;
    gate->come = pass->ticket;
    if (gate->decided / 2 != pass->ticket)
        gate->decided = 2 * pass->ticket + (gate->closed == pass->ticket);
    return gate->decided % 2 == 0;
}

static void run_to(struct CUstream_st *stream, uint64_t n) {
    while (stream->first && stream->n_done < n && !dead()) {
        struct work *work = stream->first;
        if (work->is_kernel && atomic_load(&sw_fake_cuda->is_full))
            break;
        stream->first = work->next;
        if (!stream->first)
            stream->last = &stream->first;
        if (may_pass(&work->pass))
            work->run(work->args);
        free(work);
        stream->n_done++;
    }
}

cudaError_t sw_fake_run(cudaStream_t stream) {
    run_to(stream, UINT64_MAX);
    if (stream->first && !dead())
        atomic_fetch_add(&sw_fake_cuda->stuck, 1);
    return dead();
}

void sw_fake_run_all(void) {
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        (void)sw_fake_run(stream);
}

static void drop_work(struct CUstream_st *stream) {
    while (stream->first) {
        struct work *work = stream->first;
        stream->first = work->next;
        free(work);
    }
    stream->last = &stream->first;
    stream->n_done = stream->n_queued;
}

void sw_fake_revive(void) {
    (void)pthread_mutex_lock(&lock);
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        drop_work(stream);
    for (unsigned i = 0; i < n_ranges;) /* a dead context cannot take back what it has registered */
        if (ranges[i].thing == SW_FAKE_REGISTERED)
            (void)sw_fake_range_remove(SW_FAKE_REGISTERED, ranges[i].from);
        else
            i++;
    atomic_store(&sw_fake_cuda->dead, 0);
    (void)pthread_mutex_unlock(&lock);
}

static cudaError_t new_stream(cudaStream_t *ret, unsigned flags) {
    struct CUstream_st *stream = calloc(1, sizeof *stream);
    SW_ASSERT(stream && flags == cudaStreamNonBlocking);
    stream->last = &stream->first;
    stream->next = streams;
    streams = *ret = stream;
    sw_fake_hold(SW_FAKE_STREAM, 1);
    return cudaSuccess;
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaStreamCreateWithFlags);
    return sw_fake_leave(e != cudaSuccess ? e : new_stream(ret, flags));
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaDeviceGetStreamPriorityRange);
    if (e == cudaSuccess) {
        *least = 0;
        *greatest = GREATEST_PRIORITY;
    }
    return sw_fake_leave(e);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *ret, unsigned flags, int priority) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaStreamCreateWithPriority);
    SW_ASSERT(priority == GREATEST_PRIORITY);
    return sw_fake_leave(e != cudaSuccess ? e : new_stream(ret, flags));
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaStreamDestroy);
    if (!atomic_load(&sw_fake_cuda->is_full)) /* it does not wait; the fake forgets kernels that would begin later */
        (void)sw_fake_run(stream);
    drop_work(stream);
    for (struct CUevent_st *event = events; event; event = event->next)
        event->stream = event->stream == stream ? NULL : event->stream;
    struct CUstream_st **at = &streams;
    while (*at != stream)
        at = &(*at)->next;
    *at = stream->next;
    free(stream);
    sw_fake_hold(SW_FAKE_STREAM, -1);
    return sw_fake_leave(e);
}

/* A look at a stream gets it on by a piece, and finds it busy that time. */
cudaError_t cudaStreamQuery(cudaStream_t stream) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaStreamQuery);
    if (e != cudaSuccess || !stream->first)
        return sw_fake_leave(e);
    run_to(stream, stream->n_done + 1);
    if (stream->first && stream->first->is_kernel) /* it begins as soon as it can */
        run_to(stream, stream->n_done + 1);
    return sw_fake_leave(dead() ? dead() : cudaErrorNotReady);
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaStreamSynchronize);
    return sw_fake_leave(e != cudaSuccess ? e : sw_fake_run(stream));
}

struct CUstream_st *sw_fake_stream_new(void) {
    cudaStream_t stream;
    SW_ASSERT(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess);
    return stream;
}

void sw_fake_stream_free(struct CUstream_st *stream) {
    (void)cudaStreamDestroy(stream);
}

static void do_nothing(const void *args) {
    (void)args;
}

void sw_fake_stream_work(struct CUstream_st *stream, unsigned steps) {
    (void)pthread_mutex_lock(&lock);
    while (steps-- > 0)
        (void)sw_fake_queue(stream, do_nothing, NULL, 0);
    (void)pthread_mutex_unlock(&lock);
}

void sw_fake_stream_run(struct CUstream_st *stream) {
    (void)cudaStreamSynchronize(stream);
}

/* ---- events ---- */

static cudaError_t new_event(cudaEvent_t *ret) {
    struct CUevent_st *event = calloc(1, sizeof *event);
    SW_ASSERT(event);
    event->next = events;
    events = *ret = event;
    sw_fake_hold(SW_FAKE_EVENT, 1);
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *ret, unsigned flags) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaEventCreateWithFlags);
    SW_ASSERT(flags & cudaEventDisableTiming);
    return sw_fake_leave(e != cudaSuccess ? e : new_event(ret));
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaEventDestroy);
    struct CUevent_st **at = &events;
    while (*at != event)
        at = &(*at)->next;
    *at = event->next;
    sw_fake_hold(SW_FAKE_EVENT, -1);
    free(event);
    return sw_fake_leave(e);
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaEventRecord);
    if (e == cudaSuccess) {
        event->stream = stream;
        event->at = stream->n_queued;
    }
    return sw_fake_leave(e);
}

cudaError_t cudaEventQuery(cudaEvent_t event) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaEventQuery);
    if (e != cudaSuccess)
        return sw_fake_leave(e);
    if (!event->stream || event->stream->n_done >= event->at)
        return sw_fake_leave(cudaSuccess);
    run_to(event->stream, event->stream->n_done + 1);
    return sw_fake_leave(dead() ? dead() : cudaErrorNotReady);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaEventSynchronize);
    if (e == cudaSuccess && event->stream)
        run_to(event->stream, event->at);
    return sw_fake_leave(e != cudaSuccess ? e : dead());
}

/* What another stream is waited for, as it was when the wait was queued. */
struct wait {
    struct CUstream_st *other;
    uint64_t at;
};

static void wait_for(const void *args) {
    const struct wait *wait = args;
    for (struct CUstream_st *stream = streams; stream; stream = stream->next)
        if (stream == wait->other) /* else it is gone, and had come to its end */
            run_to(stream, wait->at);
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaStreamWaitEvent);
    const struct wait wait = {.other = event->stream, .at = event->at};
    (void)flags;
    if (e != cudaSuccess)
        return sw_fake_leave(e);
    return sw_fake_leave(sw_fake_queue(stream, wait_for, &wait, sizeof wait));
}
