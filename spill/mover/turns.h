/* turns.h - whose turn it is to get a slot, or whatever else is dealt out: fair shares of bytes (fair.h) by tenant,
 * then session, then request.
 *
 * A turn stands for a job; it is *ready* while the job wants a slot, or may, and rests otherwise. Of a tenant's jobs
 * those that bring bytes back go before those that take them out, since queries wait for them; but these get a quarter
 * of the bytes at least. Jobs of one request (of several buffers) are charged as one.
 *
 * A tenant that has had less than its share is *light*: what it wants next goes before what others want. While there is
 * a light tenant that holds no slot, the last free slot is kept for it. It counts for SW_TURNS_RECENT_US after its last
 * job, so that a client that comes again and again does not wait for a slot each time. Its price is that slot. Where
 * something else than slots is dealt out, a question that says that two are free keeps none.
 *
 * Invariant: no call takes time that grows with the number of jobs that wait, but for the logarithm. owns: tenants and
 * sessions; turns are the caller's. The caller has the clock and the lock. */
#ifndef SW_SPILL_TURNS_H
#define SW_SPILL_TURNS_H

#include "base/err.h"
#include "base/list.h"
#include "spill/mover/fair.h"

#define SW_TURNS_RECENT_US 1000000u

enum sw_turn_lane { SW_TURN_BACK, SW_TURN_OUT, SW_TURN_LANES };

struct sw_turn_session;
struct sw_turn_tenant;

/* All zero: not among the turns. */
struct sw_turn {
    struct sw_fair_node node; /* of the session's requests: it is ready */
    struct sw_turn_session *session;
    struct sw_list line;  /* of the session's, those that were dealt last at the end */
    struct sw_list peers; /* of the session's that belong to requests of several, by number */
    uint64_t request;     /* 0: it is one of its own */
    uint64_t piece_bytes; /* about what it takes at a time */
};

struct sw_turns {
    struct sw_list tenants;
    uint64_t now; /* on the scale of bytes of tenants */
    unsigned n_requests;
};

struct sw_turn_key {
    const void *tenant; /* NULL: of none, which counts as one */
    uint64_t session, request, piece_bytes;
    enum sw_turn_lane lane;
};

void sw_turns_init(struct sw_turns *turns);
/* No turn may be in it. */
void sw_turns_fini(struct sw_turns *turns);

/* The turn is ready. errors: -SW_ENOMEM. */
int sw_turns_add(struct sw_turns *turns, struct sw_turn *turn, const struct sw_turn_key *key, uint64_t now_us,
                 struct sw_err *err);
/* Those that were not added, or removed, are no-ops for this one and the next two. */
void sw_turns_remove(struct sw_turns *turns, struct sw_turn *turn, uint64_t now_us);
void sw_turns_rest(struct sw_turns *turns, struct sw_turn *turn);
void sw_turns_wake(struct sw_turns *turns, struct sw_turn *turn);
/* The turn's job has one slot more, or one less. */
void sw_turns_hold(struct sw_turn *turn);
void sw_turns_give(struct sw_turn *turn);
/* True if its tenant has any. */
bool sw_turns_tenant_holds(const struct sw_turn *turn);
/* The turn's job has been dealt as many bytes: charged to its tenant, its session, and its request. */
void sw_turns_charge(struct sw_turns *turns, struct sw_turn *turn, uint64_t bytes);

/* What the caller says of a turn whose turn it is. */
enum sw_turn_answer {
    SW_TURN_TAKE,
    SW_TURN_REST, /* it wants nothing now: rests, until it is woken */
    SW_TURN_LATER /* nor do others of its tenant in this lane get on now */
};
struct sw_turn_question {
    enum sw_turn_answer (*ask)(struct sw_turn *turn, void *arg);
    void *arg;
    unsigned n_free, n_slots; /* slots, at least one of them free */
    uint64_t now_us;
};
/* Whose turn it is, NULL: no one's. */
struct sw_turn *sw_turns_next(struct sw_turns *turns, const struct sw_turn_question *question);

/* Others of the same session and lane, then those of other sessions of its tenant, in line; NULL: no more. `turn` is
 * the one before. */
struct sw_turn *sw_turns_line_first(const struct sw_turn *of);
struct sw_turn *sw_turns_line_next(const struct sw_turn *of, const struct sw_turn *turn);
/* Others of the same request: calls back for each, `turn` too. */
void sw_turns_each_peer(struct sw_turn *turn, void (*visit)(struct sw_turn *turn, void *arg), void *arg);

/* True if another tenant than the turn's has jobs, or has lately had some. */
bool sw_turns_has_neighbours(const struct sw_turns *turns, const struct sw_turn *turn, uint64_t now_us);
/* Of two that want the same: a should have it before b. */
bool sw_turns_goes_before(const struct sw_turn *a, const struct sw_turn *b);

#endif
