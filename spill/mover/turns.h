/* turns.h - decides which job gets the next slot, or whatever else is dealt: fair shares of bytes (fair.h) by tenant,
 * then session, then request.
 *
 * A turn stands for a job. It is *ready* while the job wants a slot, or may want one; otherwise it rests. A tenant's
 * jobs that bring bytes back go before its jobs that take bytes out, since queries wait for them, until they have half
 * of its slots: a link carries both ways at once. Jobs of one request (of several buffers) are charged as one.
 *
 * A tenant that has had less than its share is *light*: its next job goes before the others'. While a light tenant
 * holds no slot, the last free slot is kept for it. It counts for SW_TURNS_RECENT_US after its last job, so that a
 * client that returns again and again does not wait for a slot each time. The price is this one slot. Where something
 * other than slots is dealt, a question with n_free 2 keeps none.
 *
 * Invariant: no call takes time that grows with the number of waiting jobs, except logarithmically. owns: tenants and
 * sessions; turns belong to the caller. The caller provides the clock and the lock. */
#ifndef SW_SPILL_TURNS_H
#define SW_SPILL_TURNS_H

#include "base/err.h"
#include "base/list.h"
#include "spill/mover/fair.h"

#define SW_TURNS_RECENT_US 1000000u

enum sw_turn_lane { SW_TURN_BACK, SW_TURN_OUT, SW_TURN_LANES };

struct sw_turn_session;
struct sw_turn_tenant;

/* A job's turn. All zero: not added. */
struct sw_turn {
    struct sw_fair_node node; /* among the session's requests, while ready */
    struct sw_turn_session *session;
    struct sw_list line;  /* the session's turns; the one dealt last is at the end */
    struct sw_list peers; /* the session's turns of requests with several jobs, by number */
    uint64_t request;     /* 0: a request of one job */
    uint64_t step_bytes;  /* about the bytes that it takes at a time */
};

struct sw_turns {
    struct sw_list tenants;
    uint64_t now; /* on the scale of tenants' bytes */
    unsigned n_requests;
};

struct sw_turn_key {
    const void *tenant; /* NULL: no tenant, which counts as one */
    uint64_t session, request, step_bytes;
    enum sw_turn_lane lane;
};

void sw_turns_init(struct sw_turns *turns);
/* Frees tenants and sessions. No turn may be left. */
void sw_turns_fini(struct sw_turns *turns);

/* Adds a turn, which is ready. errors: -SW_ENOMEM. */
int sw_turns_add(struct sw_turns *turns, struct sw_turn *turn, const struct sw_turn_key *key, uint64_t now_us,
                 struct sw_err *err);
/* Removes a turn. For a turn that was not added, or was removed, this and the next two calls are no-ops. */
void sw_turns_remove(struct sw_turns *turns, struct sw_turn *turn, uint64_t now_us);
void sw_turns_rest(struct sw_turns *turns, struct sw_turn *turn);
void sw_turns_wake(struct sw_turns *turns, struct sw_turn *turn);
/* Notes that the turn's job has one slot more, or one less. */
void sw_turns_hold(struct sw_turn *turn);
void sw_turns_give(struct sw_turn *turn);
/* Returns true if the turn's tenant holds any slot. */
bool sw_turns_tenant_holds(const struct sw_turn *turn);
/* Charges bytes that were dealt to the turn's job to its tenant, its session and its request. */
void sw_turns_charge(struct sw_turns *turns, struct sw_turn *turn, uint64_t bytes);
/* Charges several turns. Sessions, and their tenant, are charged once for turns that follow each other, at the end. A
 * sum is all zero before. */
struct sw_turns_sum {
    struct sw_turn_session *session;
    uint64_t bytes;
};
void sw_turns_sum_add(struct sw_turns *turns, struct sw_turns_sum *sum, struct sw_turn *turn, uint64_t bytes);
void sw_turns_sum_end(struct sw_turns *turns, struct sw_turns_sum *sum);

/* The caller's answer about the turn that would be next. */
enum sw_turn_answer {
    SW_TURN_TAKE,
    SW_TURN_REST, /* it wants nothing now, and rests until it is woken */
    SW_TURN_LATER /* no job of its tenant in this lane can advance now */
};
struct sw_turn_question {
    enum sw_turn_answer (*ask)(struct sw_turn *turn, void *arg);
    void *arg;
    unsigned n_free, n_slots; /* slots, at least one of them free */
    uint64_t now_us;
};
/* Returns the next turn. NULL: there is none. */
struct sw_turn *sw_turns_next(struct sw_turns *turns, const struct sw_turn_question *question);

/* Iterate over the other turns of the same session and lane, then of its tenant's other sessions, in order. NULL: no
 * more. `turn` is the previous one. */
struct sw_turn *sw_turns_line_first(const struct sw_turn *of);
struct sw_turn *sw_turns_line_next(const struct sw_turn *of, const struct sw_turn *turn);
/* Calls visit() for each turn of the same request, `turn` included. */
void sw_turns_each_peer(struct sw_turn *turn, void (*visit)(struct sw_turn *turn, void *arg), void *arg);

/* Returns true if a tenant other than the turn's has jobs, or recently had some. */
bool sw_turns_has_neighbours(const struct sw_turns *turns, const struct sw_turn *turn, uint64_t now_us);
/* Returns true if a should get before b what both want. */
bool sw_turns_goes_before(const struct sw_turn *a, const struct sw_turn *b);

#endif
