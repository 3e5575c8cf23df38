/* object_client.c - a thread decides what begins, and what is tried again. Wires (object_wire.h) run the transfers.
 *
 * The lock guards what is marked so; the rest is the thread's own. */
#include "spill/tier/remote/object_client.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"
#include "spill/tier/remote/object_wire.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINES = 3, MAX_REQUESTS = 256, GRACE_US = 2000000, PROBE_US = 2000000, LONGEST_SLEEP_US = 1000000 };
enum { MAX_WIRES = 4 };

/* A rate: a request may begin at `next_us`, and moves that on by the time that its bytes take. */
struct pace {
    uint64_t next_us;
};

struct sw_object_client {
    struct sw_object_config config; /* its texts are copies */
    char texts[2048];
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t work;
    struct sw_list inbox; /* requests. Under the lock, as are the next three */
    struct sw_list ended; /* attempts whose transfers have ended */
    bool stop;
    struct sw_object_stats stats;
    /* The thread's own: */
    struct sw_object_credentials credentials;
    struct sw_list lines[LINES]; /* requests that may begin: reads, writes, deletions */
    struct sw_list resting;      /* requests between two attempts */
    unsigned turn, n_queued, n_active, n_wires;
    struct sw_object_wire wires[MAX_WIRES]; /* attempts[i] is of wires[i % n_wires] */
    double allowed;                         /* attempts at once */
    uint64_t slowed_us;                     /* when `allowed` was lowered last */
    struct pace paces[2];                   /* to the store, from it */
    uint64_t failing_us, probe_us, stopped_us, random;
    struct sw_object_request probe;
    bool is_probing;
    struct sw_object_attempt attempts[];
};

static struct sw_object_request *request_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_object_request, client.node);
}

static struct sw_object_attempt *attempt_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_object_attempt, node);
}

static struct sw_object_wire *wire_of(struct sw_object_client *c, const struct sw_object_attempt *a) {
    return &c->wires[(size_t)(a - c->attempts) % c->n_wires];
}

static bool writes(const struct sw_object_request *request) {
    return request->verb == SW_OBJECT_PUT || request->verb == SW_OBJECT_COPY;
}

static struct sw_list *line_of(struct sw_object_client *c, const struct sw_object_request *request) {
    return &c->lines[request->verb == SW_OBJECT_DELETE ? 2 : writes(request)];
}

static uint64_t next_random(struct sw_object_client *c) {
    c->random ^= c->random << 13;
    c->random ^= c->random >> 7;
    c->random ^= c->random << 17;
    return c->random;
}

/* Returns whether a request waits while the store is out. The others fail. */
static bool waits(const struct sw_object_request *request) {
    return request->client.is_probe ||
           (request->verb != SW_OBJECT_PUT && request->verb != SW_OBJECT_LIST && !request->is_impatient);
}

static bool is_out(const struct sw_object_client *c, uint64_t now_us) {
    return c->failing_us && now_us - c->failing_us >= c->config.outage_us;
}

/* ---- ends ---- */

static void finish(struct sw_object_client *c, struct sw_object_request *request) {
    c->n_queued--;
    request->done(request, request->arg);
}

/* Ends the requests of a list; all: also those that wait for a store that is out. */
static void end_list(struct sw_object_client *c, struct sw_list *list, bool all, const struct sw_err *err) {
    for (struct sw_list *node = list->next, *next; node != list; node = next) {
        next = node->next;
        if (!all && waits(request_of(node)))
            continue;
        sw_list_remove(node);
        request_of(node)->err = *err;
        finish(c, request_of(node));
    }
}

static void end_everywhere(struct sw_object_client *c, bool all, const struct sw_err *err) {
    for (unsigned i = 0; i < LINES; i++)
        end_list(c, &c->lines[i], all, err);
    end_list(c, &c->resting, all, err);
}

static void note_health(struct sw_object_client *c, enum sw_object_outcome outcome, const struct sw_err *err,
                        uint64_t now_us) {
    if (!sw_object_is_trouble(outcome, err))
        c->failing_us = 0;
    else if (!c->failing_us)
        c->failing_us = now_us;
    c->probe_us = now_us + PROBE_US;
    if (is_out(c, now_us))
        end_everywhere(c, false, err);
}

/* Additive increase, multiplicative decrease. */
static void note_load(struct sw_object_client *c, enum sw_object_outcome outcome, uint64_t now_us) {
    if (outcome == SW_OBJECT_DONE && c->allowed < c->config.max_requests)
        c->allowed += 1 / c->allowed;
    if (outcome != SW_OBJECT_SLOW_DOWN || now_us - c->slowed_us < 1000000)
        return;
    c->allowed = c->allowed > 2 ? c->allowed / 2 : 1;
    c->slowed_us = now_us;
}

static void count(struct sw_object_client *c, const struct sw_object_attempt *a, enum sw_object_outcome outcome,
                  bool is_repeated) {
    /* An object that exists is an answer, not a failure. */
    const bool has_failed = outcome != SW_OBJECT_DONE && a->request->err.code != -SW_EEXIST;
    (void)pthread_mutex_lock(&c->lock);
    c->stats.n_attempts[a->request->verb]++;
    c->stats.n_failed += has_failed;
    c->stats.n_repeated += is_repeated;
    c->stats.sent_bytes += a->sent_bytes;
    c->stats.received_bytes += a->received_bytes;
    c->stats.n_allowed = (unsigned)c->allowed;
    c->stats.failing_us = c->failing_us;
    if (has_failed)
        c->stats.last = a->request->err;
    (void)pthread_mutex_unlock(&c->lock);
}

/* Returns whether the request gets another attempt. */
static bool goes_on(const struct sw_object_client *c, const struct sw_object_request *request,
                    enum sw_object_outcome outcome, uint64_t now_us) {
    if (outcome == SW_OBJECT_DONE || outcome == SW_OBJECT_FAILED || request->client.is_probe || c->stopped_us)
        return false;
    return now_us - request->client.begun_us < c->config.patience_us && (waits(request) || !is_out(c, now_us));
}

static void load_credentials(struct sw_object_client *c) {
    struct sw_object_credentials fresh;
    if (sw_object_credentials_load(&fresh, c->config.credentials, NULL) == 0)
        c->credentials = fresh;
    sw_object_credentials_fini(&fresh);
}

static void make_idle(struct sw_object_client *c, struct sw_object_attempt *a) {
    struct sw_object_wire *wire = wire_of(c, a);
    wire->n_active--;
    c->n_active--;
    sw_list_append(&wire->idle, &a->node);
}

/* Ends an attempt; its request may get another one. */
static void end_attempt(struct sw_object_client *c, struct sw_object_attempt *a) {
    struct sw_object_request *request = a->request;
    const uint64_t now_us = sw_clock_us();
    sw_object_attempt_end(a, c->config.prefix);
    memset(&request->err, 0, sizeof request->err);
    const enum sw_object_outcome outcome =
        sw_object_evaluate(request->verb, &a->reply, (int64_t)time(NULL), &request->err);
    request->is_unclear |= writes(request) && (a->reply.status == 0 || a->reply.status >= 500 || a->has_sent_again);
    note_load(c, outcome, now_us);
    note_health(c, outcome, &request->err, now_us);
    if (outcome == SW_OBJECT_CREDENTIALS)
        load_credentials(c);
    const bool repeats = goes_on(c, request, outcome, now_us);
    count(c, a, outcome, repeats);
    make_idle(c, a);
    if (!repeats) {
        finish(c, request);
        return;
    }
    request->client.retry_us =
        now_us + sw_object_pause_us(request->client.n_attempts, c->config.pause_us, c->config.max_pause_us,
                                    a->reply.retry_after_us, next_random(c));
    sw_list_append(&c->resting, &request->client.node);
}

/* ---- beginnings ---- */

static bool may_begin(const struct sw_object_client *c, const struct sw_object_request *request, uint64_t now_us) {
    return c->config.bytes_per_s == 0 || c->paces[!writes(request)].next_us <= now_us;
}

static void pay(struct sw_object_client *c, const struct sw_object_request *request, uint64_t now_us) {
    struct pace *pace = &c->paces[!writes(request)];
    if (c->config.bytes_per_s == 0)
        return;
    pace->next_us = (pace->next_us > now_us ? pace->next_us : now_us) +
                    (uint64_t)((double)request->body_bytes * 1e6 / (double)c->config.bytes_per_s);
}

/* Takes an attempt of the wire that has least to do. There is one. */
static struct sw_object_attempt *take_idle(struct sw_object_client *c) {
    struct sw_object_wire *best = NULL;
    for (unsigned i = 0; i < c->n_wires; i++)
        if (!sw_list_empty(&c->wires[i].idle) && (!best || c->wires[i].n_active < best->n_active))
            best = &c->wires[i];
    SW_ASSERT(best);
    best->n_active++;
    c->n_active++;
    return attempt_of(sw_list_take_first(&best->idle));
}

static void begin(struct sw_object_client *c, struct sw_object_request *request, uint64_t now_us) {
    struct sw_object_attempt *a = take_idle(c);
    pay(c, request, now_us);
    if (request->client.n_attempts++ == 0)
        request->client.begun_us = now_us;
    if (sw_object_attempt_begin(a, request, &c->config, &c->credentials)) {
        sw_object_wire_begin(wire_of(c, a), a);
        return;
    }
    a->code = CURLE_OUT_OF_MEMORY;
    end_attempt(c, a);
}

/* Lines take turns. */
static void begin_all(struct sw_object_client *c, uint64_t now_us) {
    for (unsigned n_passed = 0; n_passed < LINES && c->n_active < (unsigned)c->allowed; c->turn++) {
        struct sw_list *line = &c->lines[c->turn % LINES];
        struct sw_object_request *request = sw_list_empty(line) ? NULL : request_of(line->next);
        if (!request || !may_begin(c, request, now_us)) {
            n_passed++;
            continue;
        }
        n_passed = 0;
        sw_list_remove(&request->client.node);
        begin(c, request, now_us);
    }
}

static void wake_resting(struct sw_object_client *c, uint64_t now_us) {
    for (struct sw_list *node = c->resting.next, *next; node != &c->resting; node = next) {
        next = node->next;
        if (request_of(node)->client.retry_us > now_us)
            continue;
        sw_list_remove(node);
        sw_list_prepend(line_of(c, request_of(node)), node);
    }
}

static void probe_ended(struct sw_object_request *request, void *arg) {
    (void)request;
    ((struct sw_object_client *)arg)->is_probing = false;
}

static void ignore(struct sw_object_request *request, const char *name, uint64_t bytes, int64_t modified_s) {
    (void)request, (void)name, (void)bytes, (void)modified_s;
}

/* While the store fails and nothing else would find out whether it is back. */
static void probe(struct sw_object_client *c, uint64_t now_us) {
    if (!c->failing_us || c->is_probing || c->n_queued > 0 || now_us < c->probe_us || c->stopped_us)
        return;
    c->is_probing = true;
    c->probe = (struct sw_object_request){.verb = SW_OBJECT_LIST, .name = "probe", .found = ignore};
    c->probe.done = probe_ended;
    c->probe.arg = c;
    c->probe.client.is_probe = true;
    c->n_queued++;
    sw_list_append(&c->lines[0], &c->probe.client.node);
}

/* ---- the thread ---- */

/* Called on a wire's thread. */
static void transfer_ended(void *arg, struct sw_object_attempt *a) {
    struct sw_object_client *c = arg;
    (void)pthread_mutex_lock(&c->lock);
    sw_list_append(&c->ended, &a->node);
    (void)pthread_cond_signal(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
}

/* Takes what is new: first the attempts that have ended, since they say how the store is. */
static void take_work(struct sw_object_client *c) {
    struct sw_list ended, *node;
    sw_list_init(&ended);
    (void)pthread_mutex_lock(&c->lock);
    while ((node = sw_list_take_first(&c->inbox))) {
        sw_list_append(line_of(c, request_of(node)), node);
        c->n_queued++;
    }
    sw_list_append_all(&ended, &c->ended);
    const bool stops = c->stop;
    (void)pthread_mutex_unlock(&c->lock);
    while ((node = sw_list_take_first(&ended)))
        end_attempt(c, attempt_of(node));
    if (stops && !c->stopped_us) /* what has failed before is canceled: it would have been tried again */
        c->stopped_us = sw_clock_us();
}

/* Ends what does not wait for a store that is out. */
static void refuse(struct sw_object_client *c, uint64_t now_us) {
    if (!is_out(c, now_us))
        return;
    (void)pthread_mutex_lock(&c->lock);
    const struct sw_err last = c->stats.last;
    (void)pthread_mutex_unlock(&c->lock);
    end_everywhere(c, false, &last);
}

static uint64_t sooner(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t sleeps_until_us(const struct sw_object_client *c, uint64_t now_us) {
    uint64_t until_us = now_us + LONGEST_SLEEP_US;
    for (struct sw_list *node = c->resting.next; node != &c->resting; node = node->next)
        until_us = sooner(until_us, request_of(node)->client.retry_us);
    for (unsigned i = 0; i < 2; i++)
        if (!sw_list_empty(&c->lines[!i ? 1 : 0]) && c->n_active < (unsigned)c->allowed)
            until_us = sooner(until_us, c->paces[i].next_us);
    return until_us;
}

/* Sleeps until there is something to do. */
static void nap(struct sw_object_client *c) {
    const uint64_t now_us = sw_clock_us(), until_us = sleeps_until_us(c, now_us);
    const struct timespec until = {.tv_sec = (time_t)(until_us / 1000000),
                                   .tv_nsec = (long)(until_us % 1000000) * 1000};
    int rc = 0;
    (void)pthread_mutex_lock(&c->lock);
    c->stats.n_active = c->n_active;
    c->stats.n_waiting = c->n_queued - c->n_active;
    c->stats.is_out = is_out(c, now_us);
    while (!rc && sw_list_empty(&c->inbox) && sw_list_empty(&c->ended) && !(c->stop && !c->stopped_us))
        rc = pthread_cond_timedwait(&c->work, &c->lock, &until);
    (void)pthread_mutex_unlock(&c->lock);
}

/* Cancels what is left. */
static void cancel_all(struct sw_object_client *c) {
    struct sw_err err = {0};
    struct sw_list *node;
    (void)sw_err_set(&err, -SW_ECANCELED, SW_SCOPE_REQUEST, "remote store: the tier is closed");
    for (unsigned i = 0; i < c->n_wires; i++)
        sw_object_wire_stop(&c->wires[i]);
    while ((node = sw_list_take_first(&c->ended))) { /* now, no other thread uses it */
        struct sw_object_attempt *a = attempt_of(node);
        sw_object_attempt_end(a, c->config.prefix);
        a->request->err = err;
        finish(c, a->request);
    }
    end_everywhere(c, true, &err);
}

static void *thread_main(void *arg) {
    struct sw_object_client *c = arg;
    for (;;) {
        take_work(c);
        const uint64_t now_us = sw_clock_us();
        refuse(c, now_us);
        if (c->stopped_us && (c->n_queued == 0 || c->failing_us || now_us - c->stopped_us > GRACE_US))
            break;
        wake_resting(c, now_us);
        probe(c, now_us);
        begin_all(c, now_us);
        nap(c);
    }
    cancel_all(c);
    return NULL;
}

/* ---- for other threads ---- */

void sw_object_submit(struct sw_object_client *c, struct sw_object_request *request) {
    SW_ASSERT(sw_object_name_is_good(request->name));
    memset(&request->client, 0, sizeof request->client);
    memset(&request->err, 0, sizeof request->err);
    request->is_unclear = false;
    sw_list_init(&request->client.node);
    (void)pthread_mutex_lock(&c->lock);
    SW_ASSERT(!c->stop);
    sw_list_append(&c->inbox, &request->client.node);
    (void)pthread_cond_signal(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
}

struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned n_left;
};

static void wake_waiter(struct sw_object_request *request, void *arg) {
    struct waiter *waiter = arg;
    (void)request;
    (void)pthread_mutex_lock(&waiter->lock);
    if (--waiter->n_left == 0)
        (void)pthread_cond_signal(&waiter->ended);
    (void)pthread_mutex_unlock(&waiter->lock);
}

void sw_object_run_all(struct sw_object_client *c, struct sw_object_request *requests, unsigned n) {
    struct waiter waiter = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, n};
    for (unsigned i = 0; i < n; i++) {
        requests[i].done = wake_waiter;
        requests[i].arg = &waiter;
        sw_object_submit(c, &requests[i]);
    }
    (void)pthread_mutex_lock(&waiter.lock);
    while (waiter.n_left > 0)
        (void)pthread_cond_wait(&waiter.ended, &waiter.lock);
    (void)pthread_mutex_unlock(&waiter.lock);
}

int sw_object_run(struct sw_object_client *c, struct sw_object_request *request) {
    sw_object_run_all(c, request, 1);
    return request->err.code;
}

struct listing {
    struct sw_object_request request;
    bool (*found)(void *arg, const char *name, uint64_t bytes, int64_t modified_s);
    void *arg;
    bool goes_on;
};

static void list_one(struct sw_object_request *request, const char *name, uint64_t bytes, int64_t modified_s) {
    struct listing *listing = SW_CONTAINER_OF(request, struct listing, request);
    listing->goes_on = listing->goes_on && listing->found(listing->arg, name, bytes, modified_s);
}

int sw_object_list(struct sw_object_client *c, const char *prefix,
                   bool (*found)(void *arg, const char *name, uint64_t bytes, int64_t modified_s), void *arg,
                   struct sw_err *err) {
    struct listing listing = {
        .request = {.verb = SW_OBJECT_LIST, .found = list_one}, .found = found, .arg = arg, .goes_on = true};
    int rc;
    SW_ASSERT(strlen(prefix) < sizeof listing.request.name);
    memcpy(listing.request.name, prefix, strlen(prefix) + 1);
    do
        rc = sw_object_run(c, &listing.request);
    while (!rc && listing.goes_on && listing.request.token[0]);
    if (rc && err)
        *err = listing.request.err;
    return rc;
}

void sw_object_client_stats(struct sw_object_client *c, struct sw_object_stats *ret) {
    (void)pthread_mutex_lock(&c->lock);
    *ret = c->stats;
    (void)pthread_mutex_unlock(&c->lock);
}

/* ---- life ---- */

void sw_object_config_init(struct sw_object_config *ret) {
    *ret = (struct sw_object_config){.prefix = "",
                                     .region = "us-east-1",
                                     .max_requests = 32,
                                     .connect_us = 5000000,
                                     .stall_us = 15000000,
                                     .first_read_us = 2000000,
                                     .pause_us = 100000,
                                     .max_pause_us = 5000000,
                                     .outage_us = 10000000,
                                     .patience_us = 120000000};
}

/* Returns what is malformed; NULL: nothing. */
static const char *find_fault(const struct sw_object_config *config) {
    const size_t n = strlen(config->prefix);
    if (strncmp(config->endpoint, "http://", 7) != 0 && strncmp(config->endpoint, "https://", 8) != 0)
        return "the endpoint must begin with http:// or https://";
    if (strcspn(config->endpoint + 8, "/?#@ ") != strlen(config->endpoint + 8))
        return "the endpoint must be a host and perhaps a port";
    if (!config->bucket[0] || strchr(config->bucket, '/') || !sw_object_name_is_good(config->bucket))
        return "the bucket's name must consist of [a-z0-9.-]";
    if (!sw_object_name_is_good(config->prefix) || n > SW_OBJECT_NAME_BYTES / 4 ||
        (n && (config->prefix[n - 1] != '/' || config->prefix[0] == '/')))
        return "the prefix must consist of at most 64 characters of [a-z0-9/.-]";
    if (!config->region[0] || strchr(config->region, ':') || strlen(config->region) > 60)
        return "the region is malformed";
    return config->max_requests < 1 || config->max_requests > MAX_REQUESTS ? "1 to 256 requests at once are possible"
                                                                           : NULL;
}

/* Returns a copy of the text; `*at`: where the next one goes. */
static const char *keep_text(struct sw_object_client *c, size_t *at, const char *text) {
    const size_t n = text ? strlen(text) + 1 : 0;
    if (!text || *at + n > sizeof c->texts)
        return NULL;
    memcpy(c->texts + *at, text, n);
    *at += n;
    return c->texts + *at - n;
}

static bool keep_texts(struct sw_object_client *c, const struct sw_object_config *config) {
    size_t at = 0;
    c->config = *config;
    c->config.endpoint = keep_text(c, &at, config->endpoint);
    c->config.bucket = keep_text(c, &at, config->bucket);
    c->config.prefix = keep_text(c, &at, config->prefix);
    c->config.region = keep_text(c, &at, config->region);
    c->config.ca_file = keep_text(c, &at, config->ca_file);
    c->config.credentials = keep_text(c, &at, config->credentials);
    return c->config.endpoint && c->config.bucket && c->config.prefix && c->config.region &&
           !c->config.ca_file == !config->ca_file && !c->config.credentials == !config->credentials;
}

static void client_free(struct sw_object_client *c) {
    for (unsigned i = 0; i < c->n_wires; i++)
        sw_object_wire_fini(&c->wires[i]);
    for (unsigned i = 0; i < c->config.max_requests; i++)
        sw_object_attempt_fini(&c->attempts[i]);
    sw_object_credentials_fini(&c->credentials);
    (void)pthread_cond_destroy(&c->work);
    (void)pthread_mutex_destroy(&c->lock);
    sw_free(c);
}

static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static void init_curl(void) {
    SW_ASSERT(curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK);
}

static int start_threads(struct sw_object_client *c) {
    int rc = 0;
    c->n_wires = sw_thread_cpus(1, c->config.max_requests < MAX_WIRES ? c->config.max_requests : MAX_WIRES);
    for (unsigned i = 0; !rc && i < c->n_wires; i++)
        rc = sw_object_wire_init(&c->wires[i], c->config.max_requests / c->n_wires + 1, transfer_ended, c);
    for (unsigned i = 0; !rc && i < c->config.max_requests; i++) {
        rc = sw_object_attempt_init(&c->attempts[i]);
        sw_list_append(&wire_of(c, &c->attempts[i])->idle, &c->attempts[i].node);
    }
    return rc || sw_thread_start(&c->thread, thread_main, c) != 0 ? -SW_ENOMEM : 0;
}

static int prepare(struct sw_object_client *c, struct sw_err *err) {
    const int rc = sw_object_credentials_load(&c->credentials, c->config.credentials, err);
    return rc || start_threads(c) == 0
               ? rc
               : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
}

static void init_lock(struct sw_object_client *c) {
    pthread_condattr_t attributes;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_condattr_init(&attributes);
    (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    (void)pthread_cond_init(&c->work, &attributes);
    (void)pthread_condattr_destroy(&attributes);
}

int sw_object_client_open(struct sw_object_client **ret, const struct sw_object_config *config, struct sw_err *err) {
    const char *fault = find_fault(config);
    if (fault)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "remote tier: %s", fault);
    (void)pthread_once(&curl_once, init_curl);
    struct sw_object_client *c = sw_alloc(sizeof *c + config->max_requests * sizeof c->attempts[0]);
    if (!c)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    init_lock(c);
    sw_list_init(&c->inbox);
    sw_list_init(&c->ended);
    for (unsigned i = 0; i < LINES; i++)
        sw_list_init(&c->lines[i]);
    sw_list_init(&c->resting);
    c->allowed = config->max_requests;
    c->stats.n_allowed = config->max_requests;
    c->random = (sw_clock_us() * UINT64_C(2654435761)) ^ ((uint64_t)getpid() << 32) ^ 1;
    int rc = keep_texts(c, config)
                 ? 0
                 : sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "remote tier: its texts are too long");
    if (!rc)
        rc = prepare(c, err);
    if (rc)
        client_free(c);
    else
        *ret = c;
    return rc;
}

void sw_object_client_close(struct sw_object_client *c) {
    if (!c)
        return;
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_signal(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
    (void)pthread_join(c->thread, NULL);
    client_free(c);
}
