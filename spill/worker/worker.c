#include "spill/worker/worker.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/forecast.h"
#include "base/thread.h"
#include "spill/mover/mover.h"
#include "spill/worker/order_queue.h"
#include "spill/worker/transfer.h"

#include <pthread.h>
#include <time.h>

/* How long to sleep when no slot is busy, but jobs wait for the disk, or for room that others release. */
#define NAP_US 100
/* The most time that a polled device is polled because its steps run: a direct step takes 8 ms, 32 behind three others
 * on the link. Sleeping on an event wakes 0.1 to 0.5 ms late (H200, virtual machine), and each region would pay for
 * this at its end. */
#define STEP_POLL_US 50000
/* On a polled device, clients' words are polled for this time, too: work queued just before a request is mostly short,
 * and a sleep of 100 us ends up to 0.25 ms late. */
#define ORDER_SPIN_US 1000

/* The time from a worker's first job to its last: a busy period. The thread's. */
struct busy_period {
    enum sw_operation operation; /* of its first run */
    uint64_t bytes, begun_us;
    uint64_t announce_us; /* when to tell the loop that it ends soon; 0: not */
    bool is_whole;        /* no job was added later, and all jobs move clients' bytes */
};

struct sw_worker {
    struct sw_device *device; /* the thread does not call it between the end of its jobs and the next one */
    unsigned poll_us;         /* the device's */
    struct sw_tier_sink sink; /* the mover's */
    struct sw_mover *mover;   /* the thread's */
    void (*wake)(void *arg);
    void *arg;
    pthread_t thread;
    struct sw_list finished;                /* the thread's: jobs finished in the present step */
    struct sw_order_queue ordered;          /* the thread's: jobs that wait for their clients' words */
    struct sw_list held;                    /* the loop's: jobs that wait for sw_worker_release() */
    bool holds;                             /* the loop's */
    struct busy_period period;              /* the thread's, like the forecasts */
    struct sw_forecast forecasts[SW_OP_NR]; /* of busy periods that move clients' bytes, by operation */
    pthread_mutex_t lock;                   /* guards the lists and flags below */
    pthread_cond_t posted;
    struct sw_list inbox, outbox;
    bool stop, ended, silent;
    bool expects;         /* jobs are about to be posted */
    bool expects_kernels; /* some of them need the device's kernels */
    atomic_bool ends_soon;
    atomic_bool lost;
    atomic_uint n_mapped;
};

static void on_finished(struct sw_run *run, void *arg) {
    struct sw_worker *w = arg;
    sw_list_append(&w->finished, &sw_job_of_run(run)->node);
}

/* The loop reads a phase when it is asked about the region, so it is not woken for a change. */
static void on_progress(void *arg) {
    struct sw_worker *w = arg;
    atomic_store(&w->n_mapped, sw_mover_mapped(w->mover));
}

static void wake_loop(struct sw_worker *w) {
    (void)pthread_mutex_lock(&w->lock);
    const bool silent = w->silent;
    (void)pthread_mutex_unlock(&w->lock);
    if (!silent)
        w->wake(w->arg);
}

static void hand_back(struct sw_worker *w) {
    if (sw_list_empty(&w->finished))
        return;
    /* Published before the jobs, so that a thread that sees the jobs sees these, too. */
    atomic_store(&w->lost, sw_mover_lost(w->mover));
    atomic_store(&w->n_mapped, sw_mover_mapped(w->mover));
    (void)pthread_mutex_lock(&w->lock);
    sw_list_append_all(&w->outbox, &w->finished);
    (void)pthread_mutex_unlock(&w->lock);
    wake_loop(w);
}

/* Called on a tier's thread: cuts a nap short. */
static void on_arrived(void *arg) {
    struct sw_worker *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    (void)pthread_cond_signal(&w->posted);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Returns SW_OP_MOVE also for jobs that are no runs: they move no clients' bytes. */
static enum sw_operation operation_of(const struct sw_job *job) {
    return job->kind == SW_JOB_RUN ? job->run.request->operation : SW_OP_MOVE;
}

/* Notes jobs that are about to be added to the mover's jobs, if it has any. */
static void note_jobs(struct sw_worker *w, const struct sw_list *posted) {
    struct busy_period *period = &w->period;
    if (sw_list_empty(posted))
        return;
    if (sw_mover_busy(w->mover)) {
        period->is_whole = false;
        period->announce_us = 0;
        return;
    }
    *period = (struct busy_period){.operation = operation_of(SW_CONTAINER_OF(posted->next, struct sw_job, node)),
                                   .begun_us = sw_clock_us(),
                                   .is_whole = w->poll_us > 0};
    for (const struct sw_list *node = posted->next; node != posted; node = node->next) {
        const struct sw_job *job = SW_CONTAINER_OF(node, const struct sw_job, node);
        const bool moves_client_bytes = operation_of(job) != SW_OP_MOVE;
        period->bytes += moves_client_bytes ? job->run.buffer->bytes : 0;
        period->is_whole &= moves_client_bytes;
    }
    const uint64_t expected_us = period->is_whole ? sw_forecast_us(&w->forecasts[period->operation], period->bytes) : 0;
    if (expected_us > w->poll_us) /* until then the loop is awake anyway */
        period->announce_us = period->begun_us + expected_us - SW_FORECAST_EARLY_US;
}

/* Tells the loop that the busy period ends soon, and records the length of one that has ended. */
static void check_period(struct sw_worker *w, uint64_t now_us) {
    struct busy_period *period = &w->period;
    if (!sw_mover_busy(w->mover)) {
        if (period->is_whole)
            sw_forecast_note(&w->forecasts[period->operation], period->bytes, now_us - period->begun_us);
        *period = (struct busy_period){0};
    } else if (period->announce_us > 0 && now_us >= period->announce_us) {
        period->announce_us = 0;
        atomic_store(&w->ends_soon, true);
        wake_loop(w);
    }
}

/* Sleeps until a job is posted, or until this time; UINT64_MAX: without limit. With the lock held. */
static void sleep_until(struct sw_worker *w, uint64_t until_us) {
    const struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                                   .tv_nsec = (long)(until_us % 1000000) * 1000};
    if (until_us == UINT64_MAX)
        (void)pthread_cond_wait(&w->posted, &w->lock);
    else
        (void)pthread_cond_timedwait(&w->posted, &w->lock, &until);
}

/* Takes posted jobs. If there is nothing else to do and it `may_wait`, waits for a job, or for the time to look at
 * clients' words. Returns whether the thread was asked to end. *ret_expects: there is nothing to do yet, but soon will
 * be; *ret_expects_kernels: and it will need kernels. */
static bool take_posted(struct sw_worker *w, bool may_wait, struct sw_list *ret, bool *ret_expects,
                        bool *ret_expects_kernels) {
    const bool is_busy = sw_mover_busy(w->mover);
    const uint64_t look_us = sw_order_queue_next_us(&w->ordered, 0);
    (void)pthread_mutex_lock(&w->lock);
    while (may_wait && !is_busy && sw_list_empty(&w->inbox) && !w->stop && !w->expects &&
           (look_us == UINT64_MAX || sw_clock_us() < look_us))
        sleep_until(w, look_us);
    *ret_expects = w->expects && !is_busy && sw_list_empty(&w->inbox);
    *ret_expects_kernels = *ret_expects && w->expects_kernels;
    w->expects = w->expects_kernels = false;
    sw_list_append_all(ret, &w->inbox);
    const bool stop = w->stop;
    (void)pthread_mutex_unlock(&w->lock);
    return stop;
}

static void begin(struct sw_worker *w, struct sw_job *job) {
    switch (job->kind) {
    case SW_JOB_RUN:
        sw_mover_add(w->mover, &job->run);
        return;
    case SW_JOB_MAP:
        (void)sw_mover_map(w->mover, job->memory, &job->run.outcome.err);
        break;
    case SW_JOB_UNMAP:
        sw_mover_unmap(w->mover, job->memory);
        break;
    case SW_JOB_CANARY:
        (void)sw_mover_canary(w->mover, &job->run.outcome.err);
        break;
    }
    sw_list_append(&w->finished, &job->node);
}

/* Starts the jobs that may begin: posted ones, and those whose word was written. Returns true if a job was added, to
 * the mover or to the waiting ones. */
static bool begin_jobs(struct sw_worker *w, struct sw_list *posted) {
    struct sw_list ready, *node;
    const uint64_t now_us = sw_clock_us();
    bool came = !sw_list_empty(posted);
    sw_list_init(&ready);
    while ((node = sw_list_take_first(posted))) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        if (sw_order_is_reached(&job->order))
            sw_list_append(&ready, node);
        else
            sw_order_queue_add(&w->ordered, job, now_us);
    }
    if (!sw_order_queue_is_empty(&w->ordered))
        came |= sw_order_queue_take(&w->ordered, now_us, sw_mover_lost(w->mover), &ready);
    note_jobs(w, &ready);
    while ((node = sw_list_take_first(&ready)))
        begin(w, SW_CONTAINER_OF(node, struct sw_job, node));
    return came;
}

static bool has_jobs(const struct sw_worker *w) {
    return sw_mover_busy(w->mover) || !sw_order_queue_is_empty(&w->ordered);
}

/* Sleeps for a moment, or until a job is posted: there is nothing to wait for but the disk, room of other jobs, and
 * clients' words. */
static void nap(struct sw_worker *w) {
    const uint64_t nap_us = sw_clock_us() + NAP_US, look_us = sw_order_queue_next_us(&w->ordered, 0);
    (void)pthread_mutex_lock(&w->lock);
    if (sw_list_empty(&w->inbox))
        sleep_until(w, look_us < nap_us ? look_us : nap_us);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Returns whether to look again at once, and not to sleep until a step is done or a job is posted, after idle_us
 * without progress. */
static bool keeps_polling(const struct sw_worker *w, uint64_t now_us, uint64_t idle_us) {
    if (w->poll_us == 0)
        return false;
    return idle_us < w->poll_us || (idle_us < STEP_POLL_US && sw_mover_has_steps(w->mover)) ||
           sw_order_queue_next_us(&w->ordered, now_us) == now_us;
}

static void *worker_main(void *arg) {
    struct sw_worker *w = arg;
    uint64_t advanced_us = 0;
    bool polls = false, expects, expects_kernels, stops;
    do {
        struct sw_list posted;
        sw_list_init(&posted);
        stops = take_posted(w, !polls, &posted, &expects, &expects_kernels);
        bool advanced = begin_jobs(w, &posted);
        if (expects_kernels)
            w->device->ops->wake(w->device);
        advanced |= sw_mover_step(w->mover, polls) || expects;
        hand_back(w);
        const uint64_t now_us = sw_clock_us();
        check_period(w, now_us);
        if (advanced)
            advanced_us = now_us;
        polls = keeps_polling(w, now_us, now_us - advanced_us);
        if (polls || advanced || !sw_mover_busy(w->mover))
            continue;
        if (sw_mover_wait(w->mover))
            advanced_us = sw_clock_us();
        else
            nap(w);
    } while (!stops || has_jobs(w));
    hand_back(w);
    (void)pthread_mutex_lock(&w->lock);
    w->ended = true;
    if (!w->silent)
        w->wake(w->arg); /* under the lock: a thread that sees `ended` knows that no wake-up follows */
    (void)pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void init_locks(struct sw_worker *w) {
    pthread_condattr_t attr;
    (void)pthread_mutex_init(&w->lock, NULL);
    (void)pthread_condattr_init(&attr);
    (void)pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&w->posted, &attr);
    (void)pthread_condattr_destroy(&attr);
}

static void fini(struct sw_worker *w) {
    (void)pthread_cond_destroy(&w->posted);
    (void)pthread_mutex_destroy(&w->lock);
    sw_mover_free(w->mover);
    sw_tier_sink_fini(&w->sink);
    sw_free(w);
}

int sw_worker_new(struct sw_worker **ret, struct sw_device *device, struct sw_placement *place, void (*wake)(void *arg),
                  void *arg, struct sw_err *err) {
    struct sw_worker *w = sw_alloc(sizeof *w);
    if (!w)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a worker");
    w->device = device;
    w->poll_us = device->ops->info(device)->poll_us;
    w->wake = wake;
    w->arg = arg;
    sw_list_init(&w->inbox);
    sw_list_init(&w->outbox);
    sw_list_init(&w->finished);
    sw_list_init(&w->held);
    sw_order_queue_init(&w->ordered, w->poll_us > 0 ? ORDER_SPIN_US : 0);
    init_locks(w);
    sw_tier_sink_init(&w->sink, place, on_arrived, w);
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_progress, .arg = w};
    int rc = sw_mover_new(&w->mover, device, &w->sink.sink, &host, err);
    if (rc) {
        fini(w);
        return rc;
    }
    if (sw_thread_start(&w->thread, worker_main, w) != 0) {
        fini(w);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "cannot start a worker thread");
    }
    *ret = w;
    return 0;
}

void sw_worker_free(struct sw_worker *w) {
    if (!w)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->silent = true;
    (void)pthread_mutex_unlock(&w->lock);
    sw_worker_stop(w);
    (void)pthread_join(w->thread, NULL);
    fini(w);
}

static void post_held(struct sw_worker *w) {
    if (sw_list_empty(&w->held))
        return;
    (void)pthread_mutex_lock(&w->lock);
    sw_list_append_all(&w->inbox, &w->held);
    (void)pthread_cond_signal(&w->posted);
    (void)pthread_mutex_unlock(&w->lock);
}

void sw_worker_submit(struct sw_worker *w, struct sw_job *job) {
    sw_list_append(&w->held, &job->node);
    if (!w->holds)
        post_held(w);
}

void sw_worker_cancel(struct sw_worker *w, struct sw_job *job) {
    sw_mover_cancel(w->mover, &job->signals);
}

void sw_worker_hold(struct sw_worker *w, bool needs_kernels) {
    SW_ASSERT(!w->holds);
    w->holds = true;
    (void)pthread_mutex_lock(&w->lock);
    w->expects = true;
    w->expects_kernels |= needs_kernels;
    (void)pthread_cond_signal(&w->posted);
    (void)pthread_mutex_unlock(&w->lock);
}

void sw_worker_release(struct sw_worker *w) {
    SW_ASSERT(w->holds);
    w->holds = false;
    post_held(w);
}

void sw_worker_take(struct sw_worker *w, struct sw_list *ret) {
    (void)pthread_mutex_lock(&w->lock);
    sw_list_append_all(ret, &w->outbox);
    (void)pthread_mutex_unlock(&w->lock);
}

void sw_worker_stop(struct sw_worker *w) {
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)pthread_cond_signal(&w->posted);
    (void)pthread_mutex_unlock(&w->lock);
}

bool sw_worker_ended(struct sw_worker *w) {
    (void)pthread_mutex_lock(&w->lock);
    bool ended = w->ended;
    (void)pthread_mutex_unlock(&w->lock);
    return ended;
}

const struct sw_device_info *sw_worker_device_info(const struct sw_worker *w) {
    return w->device->ops->info(w->device);
}

bool sw_worker_ends_soon(struct sw_worker *w) {
    return atomic_exchange(&w->ends_soon, false);
}

bool sw_worker_lost(const struct sw_worker *w) {
    return atomic_load(&w->lost);
}

unsigned sw_worker_mapped(const struct sw_worker *w) {
    return atomic_load(&w->n_mapped);
}
