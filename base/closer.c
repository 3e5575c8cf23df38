#include "base/closer.h"

#include "base/alloc.h"
#include "base/thread.h"
#include <errno.h>
#include <stdbool.h>
#include <time.h>
#include <unistd.h>

enum { STOP_MS = 1000 };

/* A descriptor that waits. The array is indexed by descriptor: an open descriptor waits only once, so there is always
 * room. */
struct waiting {
    int next; /* descriptor in the same lane; -1: this is the last */
    void (*end)(int fd);
};

struct lane {
    enum { LANE_OFF, LANE_ON, LANE_ABANDONED } state; /* ABANDONED: sw_closer_stop() gave up waiting for its close() */
    pthread_t thread;
    pthread_cond_t arrived;
    int first, last;
    unsigned n; /* descriptors that wait, and the one that is being closed */
    uint32_t uid;
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t ended; /* signaled when a thread has ended */
    bool is_running;
    struct waiting *waiting; /* by descriptor */
    unsigned max_fds, n;
    struct lane lanes[SW_CLOSER_LANES];
} closer = {.lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};

static int take_first(struct lane *lane) {
    const int fd = lane->first;
    lane->first = closer.waiting[fd].next;
    if (lane->first < 0)
        lane->last = -1;
    return fd;
}

static void *close_lane(void *arg) {
    struct lane *lane = arg;
    (void)pthread_mutex_lock(&closer.lock);
    for (;;) {
        while (lane->first < 0 && closer.is_running && lane->state == LANE_ON)
            (void)pthread_cond_wait(&lane->arrived, &closer.lock);
        if (lane->first < 0)
            break;
        const int fd = take_first(lane);
        void (*end)(int) = closer.waiting[fd].end;
        (void)pthread_mutex_unlock(&closer.lock);
        end(fd);
        (void)pthread_mutex_lock(&closer.lock);
        lane->n--;
        closer.n--;
    }
    lane->state = LANE_OFF;
    (void)pthread_cond_signal(&closer.ended);
    (void)pthread_mutex_unlock(&closer.lock);
    return NULL;
}

static bool start_lane(struct lane *lane) {
    lane->first = lane->last = -1;
    (void)pthread_cond_init(&lane->arrived, NULL);
    lane->state = sw_thread_start(&lane->thread, close_lane, lane) == 0 ? LANE_ON : LANE_OFF;
    return lane->state == LANE_ON;
}

int sw_closer_start(unsigned max_fds, struct sw_err *err) {
    bool is_started = true;
    (void)pthread_mutex_lock(&closer.lock);
    if (!closer.waiting) { /* an abandoned thread of an earlier start may still use the array */
        closer.waiting = sw_alloc_array(max_fds, sizeof *closer.waiting);
        closer.max_fds = closer.waiting ? max_fds : 0;
    }
    closer.is_running = closer.waiting != NULL;
    for (unsigned i = 0; i < SW_CLOSER_LANES && closer.is_running && is_started; i++)
        if (closer.lanes[i].state == LANE_OFF)
            is_started = start_lane(&closer.lanes[i]);
    is_started &= closer.is_running;
    (void)pthread_mutex_unlock(&closer.lock);
    if (is_started)
        return 0;
    sw_closer_stop();
    return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "no memory for the threads that close descriptors");
}

static bool is_any_on(void) {
    bool is_on = false;
    for (unsigned i = 0; i < SW_CLOSER_LANES; i++)
        is_on |= closer.lanes[i].state == LANE_ON;
    return is_on;
}

static void await_threads(void) {
    struct timespec until;
    (void)clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += STOP_MS / 1000;
    while (is_any_on() && pthread_cond_timedwait(&closer.ended, &closer.lock, &until) != ETIMEDOUT)
        continue;
}

void sw_closer_stop(void) {
    bool was_on[SW_CLOSER_LANES], is_in_use = false;
    (void)pthread_mutex_lock(&closer.lock);
    closer.is_running = false;
    for (unsigned i = 0; i < SW_CLOSER_LANES; i++) {
        was_on[i] = closer.lanes[i].state == LANE_ON;
        if (was_on[i])
            (void)pthread_cond_signal(&closer.lanes[i].arrived);
    }
    await_threads();
    for (unsigned i = 0; i < SW_CLOSER_LANES; i++) {
        struct lane *lane = &closer.lanes[i];
        if (lane->state == LANE_ON) {
            lane->state = LANE_ABANDONED;
            (void)pthread_detach(lane->thread);
        } else if (was_on[i]) {
            (void)pthread_join(lane->thread, NULL);
            (void)pthread_cond_destroy(&lane->arrived);
        }
        is_in_use |= lane->state == LANE_ABANDONED;
    }
    if (!is_in_use) {
        sw_free(closer.waiting);
        closer.waiting = NULL;
    }
    (void)pthread_mutex_unlock(&closer.lock);
}

static struct lane *find_lane(uint32_t uid) {
    struct lane *lane = NULL;
    for (unsigned i = 0; i < SW_CLOSER_LANES; i++)
        if (closer.lanes[i].state == LANE_ON && closer.lanes[i].n && closer.lanes[i].uid == uid)
            lane = &closer.lanes[i];
    return lane;
}

/* Returns the lane that already serves the uid, else an idle lane, else a busy lane: so many uids at once are rare.
 * NULL: no thread runs for it. */
static struct lane *choose_lane(uint32_t uid) {
    struct lane *lane = find_lane(uid), *shared = &closer.lanes[uid % SW_CLOSER_LANES];
    for (unsigned i = 0; i < SW_CLOSER_LANES && !lane; i++)
        if (closer.lanes[i].state == LANE_ON && !closer.lanes[i].n) {
            lane = &closer.lanes[i];
            lane->uid = uid;
        }
    if (lane)
        return lane;
    return shared->state == LANE_ON ? shared : NULL;
}

static void append(struct lane *lane, int fd, void (*end)(int fd)) {
    closer.waiting[fd] = (struct waiting){.next = -1, .end = end};
    if (lane->last < 0)
        lane->first = fd;
    else
        closer.waiting[lane->last].next = fd;
    lane->last = fd;
    lane->n++;
    closer.n++;
    (void)pthread_cond_signal(&lane->arrived);
}

void sw_closer_end(int fd, uint32_t uid, void (*end)(int fd)) {
    if (fd < 0)
        return;
    (void)pthread_mutex_lock(&closer.lock);
    struct lane *lane = closer.is_running && (unsigned)fd < closer.max_fds ? choose_lane(uid) : NULL;
    if (lane)
        append(lane, fd, end);
    (void)pthread_mutex_unlock(&closer.lock);
    if (!lane)
        end(fd);
}

static void close_now(int fd) {
    (void)close(fd);
}

void sw_closer_close(int fd, uint32_t uid) {
    sw_closer_end(fd, uid, close_now);
}

unsigned sw_closer_waiting(uint32_t uid) {
    (void)pthread_mutex_lock(&closer.lock);
    const struct lane *lane = find_lane(uid);
    const unsigned n = lane ? lane->n : 0;
    (void)pthread_mutex_unlock(&closer.lock);
    return n;
}

unsigned sw_closer_waiting_all(void) {
    (void)pthread_mutex_lock(&closer.lock);
    const unsigned n = closer.n;
    (void)pthread_mutex_unlock(&closer.lock);
    return n;
}
