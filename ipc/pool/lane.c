#include "ipc/pool/lane.h"

#include "base/clock.h"
#include "ipc/client/client.h"
#include "ipc/pool/pool.h"
#include <poll.h>
#include <string.h>

enum {
    SPIN_US = 200,    /* a sleeping thread wakes up late: see client_tickets.c */
    POLL_US = 100000, /* at most, then it looks again */
    MAX_TAKEN = 32,   /* calls that a leader takes in before it settles them */
    MAX_RESTARTS = 3
};

int sw_lane_open(struct sw_lane *lane, struct spillway_pool *pool, const struct spillway_options *options,
                 struct spillway_error *error) {
    lane->pool = pool;
    return spillway_open(&lane->connection, options, error);
}

void sw_lane_close(struct sw_lane *lane) {
    spillway_close(lane->connection);
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

static int submit(struct sw_lane *lane, struct sw_lane_call *call, struct spillway_error *error) {
    struct spillway_ticket *ticket = NULL;
    return call->is_spill ? spillway_spill(lane->connection, call->requests, call->n, &ticket, error)
                          : spillway_restore(lane->connection, call->requests, call->n, &ticket, error);
}

static void note_lost(struct sw_lane *lane, const struct spillway_error *lost) {
    (void)pthread_mutex_lock(&lane->pool->lock);
    if (!lane->lost.code)
        lane->lost = *lost;
    (void)pthread_mutex_unlock(&lane->pool->lock);
}

struct turn {
    const struct sw_lane *lane;
    unsigned n_calls;
};

static bool has_fewer_calls(const void *arg) {
    const struct turn *turn = arg;
    return turn->lane->n_calls < turn->n_calls;
}

/* Gives the call's place back. Returns whether another call was under way, after waiting for the end of one. */
static bool wait_turn(struct sw_lane *lane) {
    (void)pthread_mutex_lock(&lane->pool->lock);
    const struct turn turn = {lane, --lane->n_calls};
    const bool has_others = turn.n_calls > 0;
    if (has_others)
        (void)sw_lane_wait(lane, has_fewer_calls, &turn, UINT64_MAX);
    (void)pthread_mutex_unlock(&lane->pool->lock);
    return has_others;
}

/* Counts before it submits: the leader may have the answer before this thread goes on. */
int sw_lane_start(struct sw_lane *lane, struct sw_lane_call *call, struct spillway_error *error) {
    struct spillway_error e = {0};
    call->lane = lane;
    call->is_done = false;
    do {
        (void)pthread_mutex_lock(&lane->pool->lock);
        lane->n_calls++;
        (void)pthread_cond_broadcast(&lane->pool->changed); /* there is something to lead */
        (void)pthread_mutex_unlock(&lane->pool->lock);
        if (submit(lane, call, &e) == 0)
            return 0;
    } while (wait_turn(lane) && e.code == -SPILLWAY_ELIMIT);
    if (e.scope == SPILLWAY_SCOPE_SESSION)
        note_lost(lane, &e);
    return sw_client_copy_error(error, &e);
}

bool sw_lane_is_alive(struct sw_lane *lane) {
    struct spillway_error lost;
    if (sw_client_enter(lane->connection, NULL) < 0)
        return false;
    (void)sw_client_pump(lane->connection);
    lost = lane->connection->lost;
    sw_client_leave(lane->connection);
    if (lost.code)
        note_lost(lane, &lost);
    return lost.code == 0;
}

void sw_lane_drop(struct sw_lane *lane, struct spillway_region region) {
    const struct sw_wire_id id = {region.slot, region.generation};
    const struct sw_msg msg = {.header.type = SW_MSG_DISCARD, .u.discard = {.n_ids = 1, .ids = &id}};
    if (!region.generation || sw_client_enter(lane->connection, NULL) < 0)
        return;
    (void)sw_client_pump(lane->connection); /* takes in the answers to earlier ones */
    if (!lane->connection->lost.code)
        (void)sw_client_submit_unattended(lane->connection, &msg);
    sw_client_leave(lane->connection);
}

/* ---- the leader -------------------------------------------------------------------------------------------------- */

/* Returns whether the service was restarted, and has done nothing of the call: it may be sent again. If the connection
 * is lost, that fails with the same error. */
static bool is_undone(const struct sw_lane_call *call) {
    if (call->rc != -SPILLWAY_ERESTARTED)
        return false;
    for (uint32_t i = 0; i < call->n && call->n > 1; i++)
        if (call->results[i].code == 0)
            return false;
    return call->n_restarts < MAX_RESTARTS;
}

/* Takes in one completed call. Returns NULL if it was sent again. */
static struct sw_lane_call *take(struct sw_lane *lane, struct spillway_ticket *ticket) {
    struct sw_lane_call *call = spillway_ticket_user(ticket);
    call->results[0].size = sizeof call->results[0];
    call->rc = spillway_wait(ticket, 0, call->results, call->n, &call->error);
    spillway_ticket_free(ticket);
    if (!is_undone(call))
        return call;
    call->n_restarts++;
    call->rc = submit(lane, call, &call->error);
    return call->rc < 0 ? call : NULL;
}

static unsigned take_all(struct sw_lane *lane, struct sw_lane_call **ret, struct spillway_error *lost) {
    struct spillway_ticket *ticket;
    unsigned n = 0;
    (void)spillway_dispatch(lane->connection, lost);
    while (n < MAX_TAKEN && (ticket = spillway_next_done(lane->connection))) {
        ret[n] = take(lane, ticket);
        n += ret[n] != NULL;
    }
    return n;
}

static void sleep_for_reply(const struct sw_lane *lane, uint64_t until_us) {
    const uint64_t now_us = sw_clock_us();
    if (until_us <= now_us)
        return;
    const uint64_t left_us = until_us - now_us < POLL_US ? until_us - now_us : POLL_US;
    struct pollfd fd = {.fd = spillway_fd(lane->connection), .events = POLLIN};
    const struct timespec timeout = {.tv_nsec = (long)left_us * 1000};
    (void)ppoll(&fd, 1, &timeout, NULL);
}

/* Takes in what has come, after waiting for it, as the lane's leader. Needs the pool's lock, gives it back
 * meanwhile. */
static void lead(struct sw_lane *lane, uint64_t deadline_us, uint64_t spin_until_us) {
    struct spillway_pool *pool = lane->pool;
    struct sw_lane_call *calls[MAX_TAKEN];
    struct sw_pool_memory memory[MAX_TAKEN];
    struct spillway_error lost = {0};
    lane->has_leader = true;
    (void)pthread_mutex_unlock(&pool->lock);
    unsigned n = take_all(lane, calls, &lost);
    if (n == 0 && !lost.code && sw_clock_us() >= spin_until_us) {
        sleep_for_reply(lane, deadline_us);
        n = take_all(lane, calls, &lost);
    }
    (void)pthread_mutex_lock(&pool->lock);
    lane->has_leader = false;
    lane->n_calls -= n;
    if (lost.code && !lane->lost.code)
        lane->lost = lost;
    (void)pthread_cond_broadcast(&pool->changed);
    if (n == 0)
        return;
    (void)pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < n; i++)
        memory[i] = calls[i]->settle(calls[i]);
    for (unsigned i = 0; i < n; i++)
        sw_pool_free_memory(pool, &memory[i]);
    (void)pthread_mutex_lock(&pool->lock);
}

void sw_lane_poll(struct sw_lane *lane) {
    if (!lane->has_leader && lane->n_calls > 0)
        lead(lane, 0, 0);
}

bool sw_lane_wait(struct sw_lane *lane, bool (*ended)(const void *arg), const void *arg, uint64_t deadline_us) {
    const uint64_t spin_until_us = sw_clock_us() + SPIN_US;
    bool is_last = false;
    while (!ended(arg)) {
        if (is_last)
            return false;
        if (lane->has_leader || lane->n_calls == 0)
            (void)sw_pool_wait(lane->pool, deadline_us);
        else
            lead(lane, deadline_us, spin_until_us);
        is_last = sw_clock_us() >= deadline_us;
    }
    return true;
}
