#include "spill/mover/turns.h"

#include "base/alloc.h"
#include "base/assert.h"

/* The least that a job is charged, however short: a launch takes as long as more bytes on the link. */
#define LEAST_BYTES ((uint64_t)16 << 10)
/* The slot that is kept free is not for longer steps. */
#define SHORT_BYTES ((uint64_t)4 << 20)
/* Sessions without jobs that a lane remembers because they have had more than others. */
enum { MOST_IDLE = 64 };

struct sw_turn_session {
    struct sw_fair_node node; /* among the lane's sessions, while one of its turns is ready */
    struct sw_list listed;    /* in the lane's `all` */
    struct sw_turn_tenant *tenant;
    enum sw_turn_lane lane;
    uint64_t number;
    struct sw_fair requests;
    struct sw_list line, peers;
    unsigned n_turns;
};

struct lane {
    struct sw_fair sessions;
    struct sw_list all; /* the one used last is first */
    unsigned n_held;
};

struct sw_turn_tenant {
    struct sw_list node;
    const void *key;
    uint64_t at, last_us;
    unsigned n_turns, n_ready;
    bool is_out_next; /* the last charge was for bytes that came back */
    bool is_passed;   /* none of its jobs can advance now */
    struct lane lanes[SW_TURN_LANES];
};

static struct sw_turn *turn_of_node(struct sw_fair_node *node) {
    return SW_CONTAINER_OF(node, struct sw_turn, node);
}

static struct sw_turn_session *session_of_node(struct sw_fair_node *node) {
    return SW_CONTAINER_OF(node, struct sw_turn_session, node);
}

static struct sw_turn_tenant *tenant_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_turn_tenant, node);
}

static bool is_recent(const struct sw_turn_tenant *tenant, uint64_t now_us) {
    return tenant->n_turns > 0 || now_us < tenant->last_us + SW_TURNS_RECENT_US;
}

/* Returns true if the tenant has had less than its share. Waiting tenants have had at least that. */
static bool is_light(const struct sw_turns *turns, const struct sw_turn_tenant *tenant) {
    return tenant->at < turns->now;
}

/* ---- tenants and sessions ---- */

static void free_session(struct sw_turn_session *session) {
    SW_ASSERT(session->n_turns == 0 && !session->node.is_in);
    sw_list_remove(&session->listed);
    sw_free(session);
}

static void free_tenant(struct sw_turn_tenant *tenant) {
    for (int i = 0; i < SW_TURN_LANES; i++)
        while (!sw_list_empty(&tenant->lanes[i].all))
            free_session(SW_CONTAINER_OF(tenant->lanes[i].all.next, struct sw_turn_session, listed));
    sw_list_remove(&tenant->node);
    sw_free(tenant);
}

/* Frees tenants about which nothing has to be remembered. */
static void forget_tenants(struct sw_turns *turns, uint64_t now_us) {
    for (struct sw_list *node = turns->tenants.next, *next; node != &turns->tenants; node = next) {
        next = node->next;
        if (!is_recent(tenant_of(node), now_us))
            free_tenant(tenant_of(node));
    }
}

static struct sw_turn_tenant *find_tenant(struct sw_turns *turns, const void *key) {
    for (struct sw_list *node = turns->tenants.next; node != &turns->tenants; node = node->next)
        if (tenant_of(node)->key == key)
            return tenant_of(node);
    struct sw_turn_tenant *tenant = sw_alloc(sizeof *tenant);
    if (!tenant)
        return NULL;
    tenant->key = key;
    for (int i = 0; i < SW_TURN_LANES; i++)
        sw_list_init(&tenant->lanes[i].all);
    sw_list_append(&turns->tenants, &tenant->node);
    return tenant;
}

/* Frees sessions without jobs that have had no more than others, and the oldest ones if there are too many. */
static void forget_sessions(struct lane *lane) {
    unsigned n = 0;
    for (struct sw_list *node = lane->all.next, *next; node != &lane->all; node = next) {
        struct sw_turn_session *session = SW_CONTAINER_OF(node, struct sw_turn_session, listed);
        next = node->next;
        if (session->n_turns > 0)
            continue;
        if (session->node.at <= lane->sessions.now || ++n > MOST_IDLE)
            free_session(session);
    }
}

static struct sw_turn_session *new_session(struct sw_turn_tenant *tenant, const struct sw_turn_key *key) {
    forget_sessions(&tenant->lanes[key->lane]);
    struct sw_turn_session *session = sw_alloc(sizeof *session);
    if (!session)
        return NULL;
    session->tenant = tenant;
    session->lane = key->lane;
    session->number = key->session;
    session->requests.clock = SW_FAIR_BY_SHARE;
    session->requests.now = 1; /* 0 is the place of requests that come for the first time */
    sw_list_init(&session->line);
    sw_list_init(&session->peers);
    sw_list_init(&session->listed);
    return session;
}

static struct sw_turn_session *find_session(struct sw_turn_tenant *tenant, const struct sw_turn_key *key) {
    struct lane *lane = &tenant->lanes[key->lane];
    struct sw_turn_session *found = NULL;
    for (struct sw_list *node = lane->all.next; !found && node != &lane->all; node = node->next) {
        struct sw_turn_session *session = SW_CONTAINER_OF(node, struct sw_turn_session, listed);
        found = session->number == key->session ? session : NULL;
    }
    found = found ? found : new_session(tenant, key);
    if (found) {
        sw_list_remove(&found->listed);
        sw_list_prepend(&lane->all, &found->listed);
    }
    return found;
}

void sw_turns_init(struct sw_turns *turns) {
    *turns = (struct sw_turns){.n_requests = 0};
    sw_list_init(&turns->tenants);
}

void sw_turns_fini(struct sw_turns *turns) {
    while (!sw_list_empty(&turns->tenants)) {
        SW_ASSERT(tenant_of(turns->tenants.next)->n_turns == 0);
        free_tenant(tenant_of(turns->tenants.next));
    }
}

/* ---- turns ---- */

static struct sw_turn *turn_of_peer(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_turn, peers);
}

/* Turns of one request stand side by side. New ones mostly have the highest number. */
static void join_peers(struct sw_turn_session *session, struct sw_turn *turn) {
    struct sw_list *after = session->peers.prev;
    while (after != &session->peers && turn_of_peer(after)->request > turn->request)
        after = after->prev;
    sw_list_prepend(after, &turn->peers);
}

static bool is_peer(const struct sw_turn *turn, struct sw_list *node) {
    return node != &turn->session->peers && turn_of_peer(node)->request == turn->request;
}

static bool has_peers(const struct sw_turn *turn) {
    return turn->request && (is_peer(turn, turn->peers.prev) || is_peer(turn, turn->peers.next));
}

int sw_turns_add(struct sw_turns *turns, struct sw_turn *turn, const struct sw_turn_key *key, uint64_t now_us,
                 struct sw_err *err) {
    SW_ASSERT(!turn->session);
    forget_tenants(turns, now_us);
    struct sw_turn_tenant *tenant = find_tenant(turns, key->tenant);
    struct sw_turn_session *session = tenant ? find_session(tenant, key) : NULL;
    if (!session)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a turn");
    turn->session = session;
    turn->request = key->request;
    turn->step_bytes = key->step_bytes;
    sw_list_append(&session->line, &turn->line);
    sw_list_init(&turn->peers);
    if (turn->request)
        join_peers(session, turn);
    if (has_peers(turn)) /* it shares their place */
        turn->node.at = turn_of_peer(is_peer(turn, turn->peers.prev) ? turn->peers.prev : turn->peers.next)->node.at;
    turns->n_requests += !has_peers(turn);
    session->n_turns++;
    tenant->n_turns++;
    tenant->last_us = now_us;
    sw_turns_wake(turns, turn);
    return 0;
}

void sw_turns_remove(struct sw_turns *turns, struct sw_turn *turn, uint64_t now_us) {
    struct sw_turn_session *session = turn->session;
    if (!session)
        return;
    sw_turns_rest(turns, turn);
    turns->n_requests -= !has_peers(turn);
    sw_list_remove(&turn->line);
    sw_list_remove(&turn->peers);
    session->n_turns--;
    session->tenant->n_turns--;
    session->tenant->last_us = now_us;
    *turn = (struct sw_turn){.session = NULL};
}

void sw_turns_rest(struct sw_turns *turns, struct sw_turn *turn) {
    struct sw_turn_session *session = turn->session;
    (void)turns;
    if (!session || !turn->node.is_in)
        return;
    sw_fair_leave(&session->requests, &turn->node);
    session->tenant->n_ready--;
    if (!session->requests.first)
        sw_fair_leave(&session->tenant->lanes[session->lane].sessions, &session->node);
}

void sw_turns_wake(struct sw_turns *turns, struct sw_turn *turn) {
    struct sw_turn_session *session = turn->session;
    if (!session || turn->node.is_in)
        return;
    struct sw_turn_tenant *tenant = session->tenant;
    sw_fair_enter(&session->requests, &turn->node);
    if (!session->node.is_in)
        sw_fair_enter(&tenant->lanes[session->lane].sessions, &session->node);
    if (tenant->n_ready++ == 0)
        tenant->at = sw_fair_place(tenant->at, turns->now);
}

static struct lane *lane_of(const struct sw_turn *turn) {
    return &turn->session->tenant->lanes[turn->session->lane];
}

static unsigned n_held(const struct sw_turn_tenant *tenant) {
    return tenant->lanes[SW_TURN_BACK].n_held + tenant->lanes[SW_TURN_OUT].n_held;
}

void sw_turns_hold(struct sw_turn *turn) {
    if (turn->session)
        lane_of(turn)->n_held++;
}

void sw_turns_give(struct sw_turn *turn) {
    if (turn->session)
        lane_of(turn)->n_held--;
}

bool sw_turns_tenant_holds(const struct sw_turn *turn) {
    return turn->session && n_held(turn->session->tenant) > 0;
}

/* Returns the lane with fewer slots, or the one that was not charged last. So both directions of a link are busy. */
static enum sw_turn_lane first_lane(const struct sw_turn_tenant *tenant) {
    const struct lane *back = &tenant->lanes[SW_TURN_BACK], *out = &tenant->lanes[SW_TURN_OUT];
    if (!back->sessions.first || !out->sessions.first)
        return back->sessions.first ? SW_TURN_BACK : SW_TURN_OUT;
    if (back->n_held != out->n_held)
        return back->n_held < out->n_held ? SW_TURN_BACK : SW_TURN_OUT;
    return tenant->is_out_next ? SW_TURN_OUT : SW_TURN_BACK;
}

struct charge {
    uint64_t bytes;
    const struct sw_turn *first;
};

static void charge_peer(struct sw_turn *turn, void *arg) {
    const struct charge *charge = arg;
    if (turn == charge->first)
        return;
    const bool was_in = turn->node.is_in;
    if (was_in)
        sw_fair_leave(&turn->session->requests, &turn->node);
    turn->node.at += charge->bytes;
    if (was_in)
        sw_fair_enter(&turn->session->requests, &turn->node);
}

/* Charges the request. Its turn goes behind the session's others. */
static void charge_request(struct sw_turn *turn, uint64_t bytes) {
    struct charge charge = {.bytes = bytes, .first = turn};
    sw_fair_charge(&turn->session->requests, &turn->node, bytes);
    if (turn->request)
        sw_turns_each_peer(turn, charge_peer, &charge);
    sw_list_remove(&turn->line);
    sw_list_append(&turn->session->line, &turn->line);
}

void sw_turns_sum_end(struct sw_turns *turns, struct sw_turns_sum *sum) {
    if (!sum->session)
        return;
    struct sw_turn_tenant *tenant = sum->session->tenant;
    tenant->is_out_next = sum->session->lane == SW_TURN_BACK;
    turns->now = tenant->at > turns->now ? tenant->at : turns->now;
    tenant->at += sum->bytes;
    sw_fair_charge(&tenant->lanes[sum->session->lane].sessions, &sum->session->node, sum->bytes);
}

void sw_turns_sum_add(struct sw_turns *turns, struct sw_turns_sum *sum, struct sw_turn *turn, uint64_t bytes) {
    const uint64_t charged_bytes = bytes > LEAST_BYTES ? bytes : LEAST_BYTES;
    if (!turn->session)
        return;
    if (turn->session != sum->session) {
        sw_turns_sum_end(turns, sum);
        *sum = (struct sw_turns_sum){.session = turn->session};
    }
    sum->bytes += charged_bytes;
    charge_request(turn, charged_bytes);
}

void sw_turns_charge(struct sw_turns *turns, struct sw_turn *turn, uint64_t bytes) {
    struct sw_turns_sum sum = {.session = NULL};
    sw_turns_sum_add(turns, &sum, turn, bytes);
    sw_turns_sum_end(turns, &sum);
}

/* ---- the next turn ---- */

static struct sw_turn *next_of_lane(struct sw_turns *turns, struct lane *lane,
                                    const struct sw_turn_question *question) {
    while (lane->sessions.first) {
        struct sw_turn *turn = turn_of_node(session_of_node(lane->sessions.first)->requests.first);
        switch (question->ask(turn, question->arg)) {
        case SW_TURN_TAKE:
            return turn;
        case SW_TURN_REST:
            sw_turns_rest(turns, turn);
            break;
        case SW_TURN_LATER:
            return NULL;
        }
    }
    return NULL;
}

static struct sw_turn *next_of_tenant(struct sw_turns *turns, struct sw_turn_tenant *tenant,
                                      const struct sw_turn_question *question) {
    const enum sw_turn_lane first = first_lane(tenant), second = first == SW_TURN_BACK ? SW_TURN_OUT : SW_TURN_BACK;
    struct sw_turn *turn = next_of_lane(turns, &tenant->lanes[first], question);
    return turn ? turn : next_of_lane(turns, &tenant->lanes[second], question);
}

static bool holds_none(const struct sw_turns *turns, const struct sw_turn_tenant *tenant) {
    return n_held(tenant) == 0 && is_light(turns, tenant);
}

static uint64_t step_bytes(const struct sw_turn_tenant *tenant) {
    struct sw_fair_node *session = tenant->lanes[first_lane(tenant)].sessions.first;
    return turn_of_node(session_of_node(session)->requests.first)->step_bytes;
}

/* The last free slot is for short steps of a light tenant that holds no slot, as long as such a tenant exists. */
static bool may_have_slot(const struct sw_turns *turns, const struct sw_turn_tenant *tenant,
                          const struct sw_turn_question *question) {
    if (question->n_free > 1 || question->n_slots == 1 ||
        (holds_none(turns, tenant) && step_bytes(tenant) <= SHORT_BYTES))
        return true;
    for (struct sw_list *node = turns->tenants.next; node != &turns->tenants; node = node->next) {
        const struct sw_turn_tenant *other = tenant_of(node);
        if (other != tenant && holds_none(turns, other) && is_recent(other, question->now_us))
            return false;
    }
    return true;
}

static struct sw_turn_tenant *next_tenant(const struct sw_turns *turns, const struct sw_turn_question *question) {
    struct sw_turn_tenant *best = NULL;
    uint64_t best_end = 0;
    for (struct sw_list *node = turns->tenants.next; node != &turns->tenants; node = node->next) {
        struct sw_turn_tenant *tenant = tenant_of(node);
        if (tenant->n_ready == 0 || tenant->is_passed || !may_have_slot(turns, tenant, question))
            continue;
        const uint64_t end =
            tenant->at +
            step_bytes(tenant); /* of two tenants with equal shares the one with the shorter step goes first */
        if (best && end >= best_end)
            continue;
        best = tenant;
        best_end = end;
    }
    return best;
}

struct sw_turn *sw_turns_next(struct sw_turns *turns, const struct sw_turn_question *question) {
    struct sw_turn_tenant *tenant;
    struct sw_turn *turn = NULL;
    for (struct sw_list *node = turns->tenants.next; node != &turns->tenants; node = node->next)
        tenant_of(node)->is_passed = false;
    while (!turn && (tenant = next_tenant(turns, question))) {
        turn = next_of_tenant(turns, tenant, question);
        tenant->is_passed = true;
    }
    return turn;
}

/* ---- others ---- */

static struct sw_turn *turn_of_line(const struct sw_turn_session *session, struct sw_list *node) {
    return node == &session->line ? NULL : SW_CONTAINER_OF(node, struct sw_turn, line);
}

static struct sw_turn *first_of_others(const struct sw_turn_session *own, struct sw_list *listed) {
    for (; listed != &own->tenant->lanes[own->lane].all; listed = listed->next) {
        const struct sw_turn_session *session = SW_CONTAINER_OF(listed, struct sw_turn_session, listed);
        if (session != own && !sw_list_empty(&session->line))
            return turn_of_line(session, session->line.next);
    }
    return NULL;
}

struct sw_turn *sw_turns_line_first(const struct sw_turn *of) {
    return of->session ? turn_of_line(of->session, of->session->line.next) : NULL;
}

struct sw_turn *sw_turns_line_next(const struct sw_turn *of, const struct sw_turn *turn) {
    const struct sw_turn_session *own = of->session, *session = turn->session;
    struct sw_turn *next = turn_of_line(session, turn->line.next);
    if (next)
        return next;
    return first_of_others(own, session == own ? own->tenant->lanes[own->lane].all.next : session->listed.next);
}

void sw_turns_each_peer(struct sw_turn *turn, void (*visit)(struct sw_turn *turn, void *arg), void *arg) {
    struct sw_list *first = &turn->peers;
    if (!turn->request || !turn->session) {
        visit(turn, arg);
        return;
    }
    while (is_peer(turn, first->prev))
        first = first->prev;
    for (struct sw_list *node = first, *next;; node = next) {
        next = node->next;
        const bool is_last = !is_peer(turn, next);
        visit(turn_of_peer(node), arg);
        if (is_last)
            return;
    }
}

bool sw_turns_has_neighbours(const struct sw_turns *turns, const struct sw_turn *turn, uint64_t now_us) {
    for (struct sw_list *node = turns->tenants.next; node != &turns->tenants; node = node->next)
        if ((!turn->session || tenant_of(node) != turn->session->tenant) && is_recent(tenant_of(node), now_us))
            return true;
    return false;
}

bool sw_turns_goes_before(const struct sw_turn *a, const struct sw_turn *b) {
    const struct sw_turn_session *in_a = a->session, *in_b = b->session;
    if (!in_a || !in_b)
        return false;
    if (in_a->tenant != in_b->tenant)
        return in_a->tenant->at < in_b->tenant->at;
    if (in_a->lane != in_b->lane)
        return in_a->lane == SW_TURN_BACK;
    return in_a == in_b ? a->node.at < b->node.at : in_a->node.at < in_b->node.at;
}
