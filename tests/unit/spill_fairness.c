/* A small client beside others with unlimited work, in virtual time. Its operations take at most four times as long as
 * alone, plus one chunk's copy. Clients with equal work get equal parts. */
#include "base/clock.h"
#include "spill/mover/mover_state.h"
#include "spill/store/frames.h"
#include "spill/store/quota.h"
#include "spill/worker/transfer.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"

#include <check.h>
#include <stdlib.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
/* The slots of a GPU by the daemon's defaults. */
enum { N_SLOTS = 4, POLL_US = 500, NAP_US = 100 };
#define CHUNK_BYTES (26 * MIB)
#define BUSY 26.7 /* spill_never_slower.c has why */
#define DISK_BYTES_PER_S 3e9
#define STAGING_BYTES (512 * MIB)
#define STRIPE (1 << 30) /* MiB: text lies before, bytes that do not shrink behind */
enum { N_TENANTS = 32, MOST_CLIENTS = 8192, MOST_ON_DISK = 256, N_SMALL = 100, N_WARM = 40, MOST_BUFFERS = 8 };

enum shape { SPILLS, RESTORES, BOTH, MOVES /* down to a disk */ };

struct hog {
    const char *name;
    unsigned tenants, sessions, in_flight; /* sessions of a tenant, requests of a session */
    enum shape shape;
    bool is_raw;
    uint64_t bytes;
    unsigned buffers; /* of a request; 0: one */
};

static const struct hog hogs[] = {
    {"a session's many chunks", 1, 1, 250, SPILLS, .bytes = 4 * MIB},
    {"four tenants' many chunks", 4, 1, 250, SPILLS, .bytes = 4 * MIB},
    {"long regions", 1, 1, 8, SPILLS, .bytes = 2 * GIB},
    {"long regions of raw bytes", 1, 1, 8, SPILLS, true, .bytes = 2 * GIB},
    {"a single long region", 1, 1, 1, SPILLS, .bytes = 16 * GIB},
    {"a single long region of raw bytes", 1, 1, 1, SPILLS, true, .bytes = 16 * GIB},
    {"long regions that come back", 1, 1, 8, RESTORES, .bytes = 2 * GIB},
    {"long raw regions that come back", 1, 1, 8, RESTORES, true, .bytes = 2 * GIB},
    {"both ways", 2, 2, 8, BOTH, .bytes = 64 * MIB},
    {"both ways, raw", 2, 2, 8, BOTH, true, .bytes = 512 * MIB},
    {"many sessions", 1, 64, 4, SPILLS, .bytes = 16 * MIB},
    {"many tenants", 16, 1, 16, SPILLS, .bytes = 64 * MIB},
    {"many tenants, raw", 16, 1, 16, SPILLS, true, .bytes = 64 * MIB},
    {"many tenants, both ways", 16, 1, 8, BOTH, .bytes = 64 * MIB},
    {"a batch of short regions", 1, 1, 256, SPILLS, .bytes = 64 * KIB},
    {"short regions of many sessions that come back", 1, 8, 128, RESTORES, .bytes = 64 * KIB},
    {"short regions of many tenants", 8, 2, 32, BOTH, .bytes = 64 * KIB},
    {"requests of several buffers", 1, 1, 32, SPILLS, .bytes = 32 * MIB, .buffers = 8},
    {"requests of several raw buffers", 2, 1, 8, BOTH, true, .bytes = 128 * MIB, .buffers = 8},
    {"regions of a chunk", 1, 1, 250, SPILLS, .bytes = 26 * MIB},
    {"raw regions of a chunk", 3, 1, 250, BOTH, true, .bytes = 26 * MIB},
};

/* ---- clients ---- */

struct rig;

/* A buffer of a request that is made again and again. */
struct client {
    struct sw_list node; /* of the hogs' requests that are not under way */
    struct sw_job job;
    struct sw_run_memory mem;
    struct sw_request request; /* the first client's request is everyone's */
    struct sw_buffer buffers[MOST_BUFFERS];
    struct sw_quota *tenant;
    struct sw_frames *stored; /* of restores */
    struct rig *rig;
    struct client *first; /* of the request */
    unsigned n_left;      /* of the first one: its buffers under way */
    unsigned n_buffers;
    uint64_t began_ns, buffer_bytes, bytes_moved;
    bool is_done, is_small, keeps_frames, is_canceled;
};

struct rig {
    struct sw_device *device;
    struct sw_tier *tier, *disk;
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    struct sw_quota quotas[N_TENANTS];
    struct client *clients;
    struct sw_list idle;
    unsigned n_clients, n_under_way;
    uint64_t advanced_ns, last_op;
    bool stops;
};

static uint64_t random_state = 1;

/* Frames that were moved to the disk are in host memory again. */
static void move_back(const struct rig *r, struct sw_frames *frames) {
    for (size_t i = 0; i < frames->n_chunks; i++) {
        struct sw_stored *stored = &frames->stored[i];
        const uint64_t bytes = stored->bytes;
        ck_assert_ptr_eq(stored->tier, r->disk);
        sw_stored_release(stored);
        ck_assert_int_eq(r->tier->ops->reserve(r->tier, bytes, stored, NULL), 0);
        ck_assert_int_eq(r->tier->ops->commit(r->tier, stored, NULL), 0);
    }
}

static void on_finished(struct sw_run *run, void *arg) {
    struct client *client = SW_CONTAINER_OF(sw_job_of_run(run), struct client, job);
    struct rig *rig = arg;
    ck_assert_int_eq(run->outcome.err.code, client->is_canceled ? -SW_ECANCELED : 0);
    client->bytes_moved += client->buffer_bytes;
    rig->n_under_way--;
    if (--client->first->n_left == 0 && !client->is_small)
        sw_list_append(&rig->idle, &client->first->node);
    if (client->keeps_frames)
        client->stored = run->frames;
    else if (run->request->operation == SW_OP_SPILL)
        sw_frames_free(run->frames);
    else if (run->request->operation == SW_OP_MOVE)
        move_back(rig, run->frames);
    client->is_done = true;
}

static void on_event(void *arg) {
    (void)arg;
}

/* with_disk: that is where all frames go. */
static void rig_open(struct rig *r, double slowdown, bool with_disk) {
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event, .arg = r};
    const struct sw_sim_data data = {.ratios = {3, 1}, .stripe_bytes = (uint64_t)STRIPE * MIB};
    struct sw_sim_speed speed = sw_sim_idle_gpu;
    speed.slowdown = slowdown;
    *r = (struct rig){.device = sw_sim_device_new(N_SLOTS, CHUNK_BYTES, POLL_US), .tier = sw_sim_tier_new()};
    sw_list_init(&r->idle);
    r->clients = calloc(MOST_CLIENTS, sizeof *r->clients);
    ck_assert_ptr_nonnull(r->clients);
    sw_sim_set_speed(r->device, &speed);
    sw_sim_set_data(r->device, &data);
    r->disk = with_disk ? sw_sim_disk_new(r->device, DISK_BYTES_PER_S) : NULL;
    struct sw_tiers tiers = {.at = {r->tier, r->disk}, .n = with_disk ? 2 : 1};
    ck_assert_int_eq(sw_tiers_settle(&tiers, NULL), 0);
    sw_placement_init(&r->place, &tiers, STAGING_BYTES);
    if (with_disk)
        r->place.limit_bytes[0] = 0;
    sw_tier_sink_init(&r->sink, &r->place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&r->mover, r->device, &r->sink.sink, &host, NULL), 0);
    random_state = 1;
}

static void rig_close(struct rig *r) {
    for (unsigned i = 0; i < r->n_clients; i++)
        sw_frames_free(r->clients[i].stored);
    free(r->clients);
    sw_mover_free(r->mover);
    sw_tier_sink_fini(&r->sink);
    r->tier->ops->close(r->tier);
    if (r->disk)
        r->disk->ops->close(r->disk);
    r->device->ops->close(r->device);
}

/* A step of what a worker does (worker/worker.c), until `until_ns` at most. */
static void step(struct rig *r, uint64_t until_ns) {
    const uint64_t now_ns = sw_sim_now_ns(), idle_ns = now_ns - r->advanced_ns, poll_ns = POLL_US * UINT64_C(1000);
    const bool polls = idle_ns < poll_ns || sw_mover_has_steps(r->mover);
    const uint64_t most_ns = polls ? poll_ns : NAP_US * UINT64_C(1000);
    if (sw_mover_step(r->mover, polls))
        r->advanced_ns = now_ns;
    else
        sw_sim_advance(r->device, most_ns < until_ns - now_ns ? most_ns : until_ns - now_ns);
}

static void add(struct client *first, unsigned i) {
    struct client *c = first + i;
    c->job = (struct sw_job){.quota = first->tenant};
    sw_job_init_run(&c->job, &first->request, i);
    c->job.run.frames = first->request.operation == SW_OP_SPILL ? NULL : c->stored;
    if (first->request.operation == SW_OP_MOVE)
        c->job.behind = c->job.from = c->rig->tier;
    c->is_done = false;
    c->began_ns = sw_sim_now_ns();
    c->rig->n_under_way++;
    first->n_left++;
    sw_mover_add(c->rig->mover, &c->job.run);
}

static void begin(struct client *first) {
    if (first->n_buffers > 1)
        first->request.number = ++first->rig->last_op;
    for (unsigned i = 0; i < first->n_buffers; i++)
        add(first, i);
}

/* Hogs begin again at once. */
static void begin_again(struct rig *r) {
    struct sw_list *node;
    while (!r->stops && (node = sw_list_take_first(&r->idle)))
        begin(SW_CONTAINER_OF(node, struct client, node));
}

static void run_until(struct rig *r, const struct client *client, uint64_t until_ns) {
    while (sw_sim_now_ns() < until_ns && !(client && client->is_done)) {
        begin_again(r);
        step(r, until_ns);
    }
}

static void stop(struct rig *r) {
    r->stops = true;
    while (r->n_under_way > 0)
        step(r, UINT64_MAX);
}

/* A request of n buffers; restores first have something stored. */
static struct client *add_client(struct rig *r, unsigned tenant, uint64_t session, enum sw_operation operation,
                                 const struct hog *what) {
    const unsigned n = what->buffers ? what->buffers : 1;
    struct client *first = &r->clients[r->n_clients];
    ck_assert_uint_le(r->n_clients + n, MOST_CLIENTS);
    ck_assert_uint_le(n, MOST_BUFFERS);
    for (unsigned i = 0; i < n; i++, r->n_clients++) {
        struct client *c = &r->clients[r->n_clients];
        *c = (struct client){.rig = r,
                             .first = first,
                             .n_buffers = n,
                             .is_small = true,
                             .buffer_bytes = what->bytes,
                             .mem = {.once = true}};
        first->buffers[i] = (struct sw_buffer){.memory = &c->mem,
                                               .offset = what->is_raw ? (uint64_t)STRIPE * MIB : 0,
                                               .bytes = what->bytes,
                                               .number = n > 1 ? i + 1 : 0};
    }
    first->tenant = &r->quotas[tenant];
    first->request = (struct sw_request){.operation = SW_OP_SPILL,
                                         .tenant = first->tenant,
                                         .session = session,
                                         .n_buffers = n,
                                         .buffers = first->buffers};
    for (unsigned i = 0; operation != SW_OP_SPILL && i < n; i++) {
        first[i].keeps_frames = true;
        add(first, i);
        while (r->n_under_way > 0)
            step(r, UINT64_MAX);
        first[i].keeps_frames = false;
    }
    first->request.operation = operation;
    if (operation == SW_OP_MOVE)
        first->request.n_buffers = 0;
    return first;
}

static enum sw_operation operation_of(const struct hog *hog, unsigned i) {
    static const enum sw_operation operations[] = {
        [SPILLS] = SW_OP_SPILL, [RESTORES] = SW_OP_RESTORE, [MOVES] = SW_OP_MOVE};
    return hog->shape == BOTH ? operations[i % 2] : operations[hog->shape];
}

static void add_tenant(struct rig *r, unsigned tenant, const struct hog *hog) {
    const unsigned before = r->n_clients;
    for (unsigned s = 0; s < hog->sessions; s++)
        for (unsigned i = 0; i < hog->in_flight; i++)
            (void)add_client(r, tenant, 1000 * tenant + s, operation_of(hog, i), hog);
    for (unsigned i = before; i < r->n_clients; i++) {
        r->clients[i].is_small = false;
        if (r->clients[i].first == &r->clients[i])
            sw_list_append(&r->idle, &r->clients[i].node);
    }
}

/* The last tenant's regions, at rest in host memory, that are moved to the disk. */
static void add_moved(struct rig *r, const struct hog *hog) {
    r->place.limit_bytes[0] = UINT64_MAX;
    add_tenant(r, N_TENANTS - 1, hog);
    r->place.limit_bytes[0] = 0;
}

static void add_hogs(struct rig *r, const struct hog *hog) {
    for (unsigned t = 0; t < hog->tenants; t++)
        add_tenant(r, t + 1, hog);
}

/* ---- the small client ---- */

static int compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct client *add_small(struct rig *r, enum sw_operation kind) {
    const struct hog small = {.bytes = 64 * KIB};
    return add_client(r, 0, 1, kind, &small);
}

/* An operation of the small client's, some time after the one before. Returns microseconds. */
static double small_us(struct rig *r, struct client *small) {
    run_until(r, NULL, sw_sim_now_ns() + sw_random(&random_state) % 1000000);
    begin(small);
    run_until(r, small, UINT64_MAX);
    return (double)(sw_sim_now_ns() - small->began_ns) / 1e3;
}

static double small_p99_us(struct rig *r, enum sw_operation kind) {
    struct client *small = add_small(r, kind);
    double us[N_SMALL];
    for (int i = 0; i < N_WARM; i++)
        (void)small_us(r, small);
    for (int i = 0; i < N_SMALL; i++)
        us[i] = small_us(r, small);
    qsort(us, N_SMALL, sizeof us[0], compare);
    return us[N_SMALL * 99 / 100];
}

/* Where the small client is alone, and how long its operations take there. */
enum place { IDLE, BUSY_ENGINE, ON_DISK, N_PLACES };
static const double slowdowns[N_PLACES] = {1, BUSY, 1};
static double alone_us[N_PLACES][SW_OP_RESTORE + 1];

/* Once for all tests of a case, before each of them gets a process of its own. */
static void measure_alone(enum place place) {
    for (enum sw_operation kind = SW_OP_SPILL; kind <= SW_OP_RESTORE; kind++) {
        struct rig r;
        rig_open(&r, slowdowns[place], place == ON_DISK);
        alone_us[place][kind] = small_p99_us(&r, kind);
        rig_close(&r);
    }
}

static void measure_idle(void) {
    measure_alone(IDLE);
}

static void measure_busy(void) {
    measure_alone(BUSY_ENGINE);
}

static void measure_on_disk(void) {
    measure_alone(ON_DISK);
}

static void check_beside(const struct hog *hog, enum sw_operation kind, enum place place) {
    const double slowdown = slowdowns[place], alone = alone_us[place][kind],
                 copy_us = (double)CHUNK_BYTES / sw_sim_idle_gpu.link_out * 1e6;
    /* Kernels that are under way in the other slots take longer than a copy there, and cannot be overtaken. */
    const double kernels_us =
        slowdown > 1 ? (N_SLOTS - 1) * (double)CHUNK_BYTES / sw_sim_idle_gpu.encode[SW_CODEC_V5T] * slowdown * 1e6 : 0;
    struct rig r;
    rig_open(&r, slowdown, false);
    add_hogs(&r, hog);
    const double us = small_p99_us(&r, kind);
    stop(&r);
    rig_close(&r);
    ck_assert_msg(us <= 4 * alone + copy_us + kernels_us, "%s, %s: %g us, alone %g us, copy %g us", hog->name,
                  sw_operation_name(kind), us, alone, copy_us);
}

START_TEST(test_a_small_client_beside_hogs) {
    check_beside(&hogs[_i], SW_OP_SPILL, IDLE);
    check_beside(&hogs[_i], SW_OP_RESTORE, IDLE);
}
END_TEST

START_TEST(test_a_small_client_beside_hogs_and_a_busy_engine) {
    check_beside(&hogs[_i], SW_OP_SPILL, BUSY_ENGINE);
    check_beside(&hogs[_i], SW_OP_RESTORE, BUSY_ENGINE);
}
END_TEST

/* Everything goes to the disk, and comes from there: a chunk may be in the way on the disk and on the link. */
static void check_beside_on_disk(const struct hog *hog, const struct hog *moved, enum sw_operation kind) {
    const double alone = alone_us[ON_DISK][kind],
                 chunk_us = (double)CHUNK_BYTES * (1 / DISK_BYTES_PER_S + 1 / sw_sim_idle_gpu.link_out) * 1e6;
    struct rig r;
    rig_open(&r, 1, true);
    if (moved)
        add_moved(&r, moved);
    if (hog)
        add_hogs(&r, hog);
    const double us = small_p99_us(&r, kind);
    stop(&r);
    rig_close(&r);
    ck_assert_msg(us <= 4 * alone + chunk_us, "%s, %s: %g us, alone %g us", hog ? hog->name : moved->name,
                  sw_operation_name(kind), us, alone);
}

START_TEST(test_a_small_client_beside_hogs_on_a_disk) {
    struct hog hog = hogs[_i];
    while (hog.sessions * hog.in_flight > MOST_ON_DISK) /* of more, short ones, the test takes long */
        hog.in_flight /= 2;
    check_beside_on_disk(&hog, NULL, SW_OP_SPILL);
    check_beside_on_disk(&hog, NULL, SW_OP_RESTORE);
}
END_TEST

enum { RAW_CHUNKS = 19 }; /* of `hogs`, from there on: regions of a chunk */
static const struct hog moved = {"raw regions that make room", 1, 1, 12, MOVES, true, .bytes = 208 * MIB};

START_TEST(test_a_small_client_beside_moves_to_a_disk) {
    check_beside_on_disk(NULL, &moved, SW_OP_SPILL);
    check_beside_on_disk(&hogs[_i], &moved, SW_OP_SPILL);
}
END_TEST

/* ---- parts ---- */

enum { WARM_MS = 200, MS = 300 };

static void run_ms(struct rig *r, struct client *small, uint64_t ms) {
    const uint64_t until_ns = sw_sim_now_ns() + ms * 1000000;
    while (small && sw_sim_now_ns() < until_ns)
        (void)small_us(r, small);
    run_until(r, NULL, until_ns);
}

/* Bytes that a tenant's jobs have moved. */
static double bytes_of(const struct rig *r, unsigned tenant) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < r->n_clients; i++)
        bytes += r->clients[i].first->tenant == &r->quotas[tenant] ? r->clients[i].bytes_moved : 0;
    return (double)bytes;
}

/* Four tenants that have as much to do as they can get, in each its own way: as many bytes for each. */
static void check_equal_parts(bool with_disk) {
    static const struct hog ways[] = {{"short chunks", 1, 1, 250, SPILLS, .bytes = 4 * MIB},
                                      {"many sessions", 1, 50, 2, SPILLS, .bytes = 26 * MIB},
                                      {"long", 1, 1, 4, SPILLS, .bytes = 100 * MIB},
                                      {"several buffers", 1, 1, 4, SPILLS, .bytes = 20 * MIB, .buffers = 4}};
    enum { N = sizeof ways / sizeof ways[0] };
    double bytes[N], sum = 0;
    struct rig r;
    const uint64_t times = with_disk ? 8 : 1; /* a disk takes longer */
    rig_open(&r, 1, with_disk);
    for (unsigned t = 0; t < N; t++)
        add_tenant(&r, t + 1, &ways[t]);
    run_ms(&r, NULL, times * WARM_MS);
    for (unsigned t = 0; t < N; t++)
        bytes[t] = -bytes_of(&r, t + 1);
    run_ms(&r, NULL, times * MS);
    for (unsigned t = 0; t < N; t++)
        sum += bytes[t] += bytes_of(&r, t + 1);
    for (unsigned t = 0; t < N; t++)
        ck_assert_msg(bytes[t] > 0.9 * sum / N && bytes[t] < 1.1 * sum / N, "%s: %g of %g", ways[t].name, bytes[t],
                      sum);
    stop(&r);
    rig_close(&r);
}

START_TEST(test_equal_tenants_have_equal_parts) {
    check_equal_parts(false);
    check_equal_parts(true);
}
END_TEST

/* A canceled run releases its memory that waits for the disk, and does not wait for it. */
START_TEST(test_a_canceled_spill_does_not_wait_for_the_disk) {
    static const struct hog hog = {"long, raw", 1, 1, 1, SPILLS, true, .bytes = 16 * GIB};
    struct rig r;
    rig_open(&r, 1, true);
    add_tenant(&r, 1, &hog);
    add_tenant(&r, 2, &hog);
    run_ms(&r, NULL, WARM_MS);
    struct client *canceled = &r.clients[0];
    ck_assert(!canceled->is_done && !sw_list_empty(&canceled->job.writes));
    r.stops = canceled->is_canceled = true;
    sw_mover_cancel(r.mover, &canceled->job.signals);
    const uint64_t began_ns = sw_sim_now_ns();
    run_until(&r, canceled, began_ns + 1000000000);
    ck_assert(canceled->is_done);
    ck_assert_uint_lt(sw_sim_now_ns() - began_ns, (uint64_t)(3 * (double)CHUNK_BYTES / DISK_BYTES_PER_S * 1e9));
    stop(&r);
    rig_close(&r); /* all memory has been given back */
}
END_TEST

/* A worker of another tenant has asked the disk for more than a share. */
static void ask_elsewhere(struct rig *r, const struct sw_tier_ask *ask) {
    static const int other;
    (void)sw_tier_share_note(&r->place.share, &other, sw_clock_us());
    sw_tier_share_take(&r->place.share, ask, false);
}

static void run_for_us(struct rig *r, const struct client *client, uint64_t us) {
    run_until(r, client, sw_sim_now_ns() + us * 1000);
}

static const struct hog one_chunk = {.bytes = CHUNK_BYTES, .is_raw = true};

/* Each worker may have one frame there in any case, however long: or one's could keep out another's for ever. */
START_TEST(test_a_workers_first_frame_goes_beside_anothers) {
    const struct sw_tier_ask ask = {.rank = 1, .kind = SW_TIER_WRITE, .bytes = 20 * MIB};
    struct rig r;
    rig_open(&r, 1, true);
    struct client *client = add_client(&r, 0, 1, SW_OP_SPILL, &one_chunk);
    ask_elsewhere(&r, &ask);
    begin(client);
    run_for_us(&r, client, 100000); /* 9,000 for the disk; and it is others' for a second */
    ck_assert(client->is_done);
    sw_tier_share_give(&r.place.share, &ask);
    rig_close(&r);
}
END_TEST

/* A job that waits for another worker's move is checked again although nothing of its own worker ends: the move may
 * have been canceled. */
START_TEST(test_frames_that_wait_for_another_worker_are_retried) {
    const struct sw_tier_ask ask = {.rank = 1, .kind = SW_TIER_WRITE, .bytes = 64 * MIB};
    static const int mover;
    struct rig r;
    rig_open(&r, 1, true);
    struct client *client = add_client(&r, 0, 1, SW_OP_SPILL, &one_chunk);
    ask_elsewhere(&r, &ask);
    ck_assert(!sw_tier_share_may_move(&r.place.share, &ask, &mover, sw_clock_us()));
    begin(client);
    while (sw_list_empty(&client->job.writes)) { /* its frame is not there yet; the move asks again */
        run_for_us(&r, client, 10);
        ck_assert(!client->is_done && !sw_tier_share_may_move(&r.place.share, &ask, &mover, sw_clock_us()));
    }
    run_for_us(&r, client, 200);
    ck_assert(!client->is_done);
    ck_assert(r.mover->look_us && r.mover->look_us <= sw_clock_us() + 100); /* or a worker would sleep */
    run_for_us(&r, client, 100000);
    ck_assert(client->is_done);
    sw_tier_share_give(&r.place.share, &ask);
    rig_close(&r);
}
END_TEST

static double hog_bytes(const struct hog *hog, bool is_beside) {
    struct rig r;
    double bytes = 0;
    rig_open(&r, 1, false);
    add_hogs(&r, hog);
    struct client *small = is_beside ? add_small(&r, SW_OP_RESTORE) : NULL;
    run_ms(&r, small, WARM_MS);
    for (unsigned t = 1; t <= hog->tenants; t++)
        bytes -= bytes_of(&r, t);
    run_ms(&r, small, MS);
    for (unsigned t = 1; t <= hog->tenants; t++)
        bytes += bytes_of(&r, t);
    stop(&r);
    rig_close(&r);
    return bytes;
}

/* A small client costs a hog a slot, for which the others make up while the link is the slowest stage, and pauses
 * between copies. Where the link is full both ways, nothing makes up for the pauses. */
START_TEST(test_a_hog_keeps_its_rate_beside_a_small_client) {
    const double alone = hog_bytes(&hogs[_i], false), beside = hog_bytes(&hogs[_i], true);
    ck_assert_msg(beside > (hogs[_i].shape == BOTH ? 0.75 : 0.85) * alone, "%s: %.2f", hogs[_i].name, beside / alone);
}
END_TEST

/* Returns the disk's bytes per second as a part of its rate in one direction. */
static double disk_part(const struct hog *hog, bool is_beside) {
    struct rig r;
    rig_open(&r, 1, true);
    add_hogs(&r, hog);
    struct client *small = is_beside ? add_small(&r, SW_OP_RESTORE) : NULL;
    run_ms(&r, small, WARM_MS);
    const uint64_t began_ns = sw_sim_now_ns(), had = sw_sim_disk_done_bytes(r.disk);
    run_ms(&r, small, MS);
    const double s = (double)(sw_sim_now_ns() - began_ns) / 1e9, bytes = (double)(sw_sim_disk_done_bytes(r.disk) - had);
    stop(&r);
    rig_close(&r);
    return bytes / s / DISK_BYTES_PER_S;
}

START_TEST(test_a_hog_keeps_its_rate_on_a_disk_beside_a_small_client) {
    const double alone = disk_part(&hogs[_i], false), beside = disk_part(&hogs[_i], true);
    ck_assert_msg(beside > 0.85 * alone, "%s: %.2f of %.2f", hogs[_i].name, beside, alone);
}
END_TEST

/* With no other tenant the disk never stands still, whatever the length of the chunks. */
START_TEST(test_a_tenant_alone_has_all_of_a_disk) {
    static const struct hog alone[] = {{"long", 1, 1, 4, SPILLS, .bytes = 2 * GIB},
                                       {"long, raw", 1, 1, 4, SPILLS, true, .bytes = 2 * GIB},
                                       {"back", 1, 1, 4, RESTORES, .bytes = 1 * GIB},
                                       {"back, raw", 1, 1, 4, RESTORES, true, .bytes = 1 * GIB}};
    for (size_t i = 0; i < sizeof alone / sizeof alone[0]; i++) {
        const double part = disk_part(&alone[i], false);
        ck_assert_msg(part > 0.97, "%s: %.3f", alone[i].name, part);
    }
}
END_TEST

/* However much clients want to write, the moves that make room for them progress. */
START_TEST(test_moves_progress_behind_hogs) {
    struct rig r;
    rig_open(&r, 1, true);
    add_moved(&r, &moved);
    add_hogs(&r, &hogs[_i]);
    run_ms(&r, NULL, 4 * (WARM_MS + MS));
    const double bytes = bytes_of(&r, N_TENANTS - 1);
    stop(&r);
    rig_close(&r);
    ck_assert_msg(bytes > 0.2 * DISK_BYTES_PER_S, "%s: %g", hogs[_i].name, bytes);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("fairness");
    const int n = sizeof hogs / sizeof hogs[0];
    TCase *idle = tcase_create("idle"), *busy = tcase_create("busy"), *disk = tcase_create("disk"),
          *moves = tcase_create("moves"), *parts = tcase_create("parts"), *workers = tcase_create("workers");
    tcase_add_unchecked_fixture(idle, measure_idle, NULL);
    tcase_add_unchecked_fixture(busy, measure_busy, NULL);
    tcase_add_unchecked_fixture(disk, measure_on_disk, NULL);
    tcase_add_unchecked_fixture(moves, measure_on_disk, NULL);
    tcase_add_loop_test(idle, test_a_small_client_beside_hogs, 0, n);
    tcase_add_loop_test(busy, test_a_small_client_beside_hogs_and_a_busy_engine, 0, n);
    tcase_add_loop_test(disk, test_a_small_client_beside_hogs_on_a_disk, 0, n);
    tcase_add_loop_test(moves, test_a_small_client_beside_moves_to_a_disk, RAW_CHUNKS, n);
    tcase_add_loop_test(moves, test_moves_progress_behind_hogs, RAW_CHUNKS, n);
    tcase_add_test(parts, test_equal_tenants_have_equal_parts);
    tcase_add_test(parts, test_a_canceled_spill_does_not_wait_for_the_disk);
    tcase_add_test(workers, test_a_workers_first_frame_goes_beside_anothers);
    tcase_add_test(workers, test_frames_that_wait_for_another_worker_are_retried);
    tcase_add_loop_test(parts, test_a_hog_keeps_its_rate_beside_a_small_client, 0, n);
    tcase_add_loop_test(parts, test_a_hog_keeps_its_rate_on_a_disk_beside_a_small_client, RAW_CHUNKS, n);
    tcase_add_test(parts, test_a_tenant_alone_has_all_of_a_disk);
    suite_add_tcase(suite, idle);
    suite_add_tcase(suite, busy);
    suite_add_tcase(suite, disk);
    suite_add_tcase(suite, moves);
    suite_add_tcase(suite, parts);
    suite_add_tcase(suite, workers);
    return sw_test_run(suite, CK_FORK);
}
