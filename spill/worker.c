#include "spill/worker.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/forecast.h"
#include "base/thread.h"
#include "spill/pipeline/pipeline.h"

#include <pthread.h>
#include <time.h>

/* How long to sleep when only slots that wait for clients' events are busy. */
#define CLIENT_EVENT_POLL_NS 100000
/* Where a device is polled at all, for how long at most because its steps run: a direct one takes 8 ms, 32 with three
 * others before it on the link. Sleeping on an event wakes 0.1 to 0.5 ms late (H200, virtual machine), which each
 * region would pay at its end. */
#define STEP_POLL_US 50000

/* From where a worker has something to do to where it has not: the thread's. */
struct spell {
    enum sw_job_kind kind; /* of its first job */
    uint64_t bytes, begun_us;
    uint64_t announce_us; /* when to tell the loop that it ends soon; 0: not */
    bool is_whole;        /* no job has come later, and all move bytes of clients */
};

struct sw_worker {
    struct sw_device *device;     /* asked for nothing by the thread between the end of its jobs and the next one */
    unsigned poll_us;             /* the device's */
    struct sw_pipeline *pipeline; /* the thread's */
    void (*wake)(void *arg);
    void *arg;
    pthread_t thread;
    struct sw_list finished;                      /* the thread's: jobs of the present step */
    struct sw_list held;                          /* the loop's: jobs that wait for sw_worker_release() */
    bool holds;                                   /* the loop's */
    struct spell spell;                           /* the thread's, and so are forecasts */
    struct sw_forecast forecasts[SW_JOB_KIND_NR]; /* of spells that move clients' bytes, by kind */
    pthread_mutex_t lock;                         /* guards the lists and flags below */
    pthread_cond_t posted;
    struct sw_list inbox, outbox;
    bool stop, ended, silent;
    bool expects; /* jobs are about to be posted */
    atomic_bool ends_soon;
    atomic_bool lost;
    atomic_uint n_mapped;
};

static void on_finished(struct sw_job *job, void *arg) {
    struct sw_worker *w = arg;
    sw_list_append(&w->finished, &job->node);
}

/* The loop looks at a phase when it is asked about the region: it is not woken for it. */
static void on_progress(void *arg) {
    struct sw_worker *w = arg;
    atomic_store(&w->n_mapped, sw_pipeline_mapped(w->pipeline));
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
    /* Published before the jobs, so that who sees the jobs sees these. */
    atomic_store(&w->lost, sw_pipeline_lost(w->pipeline));
    atomic_store(&w->n_mapped, sw_pipeline_mapped(w->pipeline));
    (void)pthread_mutex_lock(&w->lock);
    sw_list_append_all(&w->outbox, &w->finished);
    (void)pthread_mutex_unlock(&w->lock);
    wake_loop(w);
}

/* On a tier's thread: cuts a nap short. */
static void on_arrived(void *arg) {
    struct sw_worker *w = arg;
    (void)pthread_mutex_lock(&w->lock);
    (void)pthread_cond_signal(&w->posted);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Jobs are about to join those that the pipeline has, if it has any. */
static void note_jobs(struct sw_worker *w, const struct sw_list *posted) {
    struct spell *spell = &w->spell;
    if (sw_list_empty(posted))
        return;
    if (sw_pipeline_busy(w->pipeline)) {
        spell->is_whole = false;
        spell->announce_us = 0;
        return;
    }
    *spell = (struct spell){.kind = SW_CONTAINER_OF(posted->next, struct sw_job, node)->kind,
                            .begun_us = sw_clock_us(),
                            .is_whole = w->poll_us > 0};
    for (const struct sw_list *node = posted->next; node != posted; node = node->next) {
        const struct sw_job *job = SW_CONTAINER_OF(node, const struct sw_job, node);
        spell->bytes += job->bytes;
        spell->is_whole &= sw_job_moves_client_bytes(job->kind);
    }
    const uint64_t expected_us = spell->is_whole ? sw_forecast_us(&w->forecasts[spell->kind], spell->bytes) : 0;
    if (expected_us > w->poll_us) /* for so long the loop is awake anyway */
        spell->announce_us = spell->begun_us + expected_us - SW_FORECAST_EARLY_US;
}

/* Tells the loop that a spell ends soon, and notes how long it was. */
static void look_at_spell(struct sw_worker *w, uint64_t now_us) {
    struct spell *spell = &w->spell;
    if (!sw_pipeline_busy(w->pipeline)) {
        if (spell->is_whole)
            sw_forecast_note(&w->forecasts[spell->kind], spell->bytes, now_us - spell->begun_us);
        *spell = (struct spell){0};
    } else if (spell->announce_us > 0 && now_us >= spell->announce_us) {
        spell->announce_us = 0;
        atomic_store(&w->ends_soon, true);
        wake_loop(w);
    }
}

/* Moves what has been posted into the pipeline; with nothing else to do waits for a post, if it `may_wait`. False: time
 * to end. *ret_expects: there is nothing to do yet, but soon will be. */
static bool take_inbox(struct sw_worker *w, bool may_wait, bool *ret_expects) {
    struct sw_list posted, *node;
    sw_list_init(&posted);
    (void)pthread_mutex_lock(&w->lock);
    while (may_wait && !sw_pipeline_busy(w->pipeline) && sw_list_empty(&w->inbox) && !w->stop && !w->expects)
        (void)pthread_cond_wait(&w->posted, &w->lock);
    *ret_expects = w->expects && !sw_pipeline_busy(w->pipeline) && sw_list_empty(&w->inbox);
    w->expects = false;
    sw_list_append_all(&posted, &w->inbox);
    const bool stop = w->stop;
    (void)pthread_mutex_unlock(&w->lock);
    note_jobs(w, &posted);
    while ((node = sw_list_take_first(&posted)))
        sw_pipeline_add(w->pipeline, SW_CONTAINER_OF(node, struct sw_job, node));
    return !stop || sw_pipeline_busy(w->pipeline);
}

/* Nothing is to be waited for but clients' events and the disk: looks again in a moment, or when a job is posted. */
static void nap(struct sw_worker *w) {
    struct timespec until;
    (void)clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += CLIENT_EVENT_POLL_NS;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    (void)pthread_mutex_lock(&w->lock);
    if (sw_list_empty(&w->inbox))
        (void)pthread_cond_timedwait(&w->posted, &w->lock, &until);
    (void)pthread_mutex_unlock(&w->lock);
}

/* Whether to ask the device again, rather than to sleep until it is done, after idle_us in which nothing has moved. */
static bool keeps_polling(const struct sw_worker *w, uint64_t idle_us) {
    return idle_us < w->poll_us || (w->poll_us > 0 && idle_us < STEP_POLL_US && sw_pipeline_has_steps(w->pipeline));
}

static void *worker_main(void *arg) {
    struct sw_worker *w = arg;
    uint64_t advanced_us = 0;
    bool polls = false;
    bool expects;
    while (take_inbox(w, !polls, &expects)) {
        if (expects)
            w->device->ops->rouse(w->device);
        const bool advanced = sw_pipeline_step(w->pipeline, polls) || expects;
        hand_back(w);
        const uint64_t now_us = sw_clock_us();
        look_at_spell(w, now_us);
        if (advanced)
            advanced_us = now_us;
        polls = keeps_polling(w, now_us - advanced_us);
        if (polls || advanced || !sw_pipeline_busy(w->pipeline))
            continue;
        if (sw_pipeline_wait(w->pipeline))
            advanced_us = sw_clock_us();
        else
            nap(w);
    }
    hand_back(w);
    (void)pthread_mutex_lock(&w->lock);
    w->ended = true;
    if (!w->silent)
        w->wake(w->arg); /* under the lock: who sees `ended` knows that no wake-up is to come */
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
    sw_pipeline_free(w->pipeline);
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
    init_locks(w);
    struct sw_pipeline_sink sink = {.finished = on_finished, .progress = on_progress, .arrived = on_arrived, .arg = w};
    int rc = sw_pipeline_new(&w->pipeline, device, place, &sink, err);
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

void sw_worker_hold(struct sw_worker *w) {
    SW_ASSERT(!w->holds);
    w->holds = true;
    (void)pthread_mutex_lock(&w->lock);
    w->expects = true;
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
