/* A day of a service in minutes. Clients come and go, with memory of every kind and all sizes, into both tiers; some
 * end in order, some hang up, some are killed and leave a durable region to their successor. Operators look, change
 * options, move regions and drain. In the morning the service is killed, or stopped, and started again. Each hour has
 * its own load, as in a day. At the end of each hour all clients hang up, and the service must hold what it held
 * before: regions, bytes of either tier, descriptors and memory, except for allocations that the first hours make for
 * good.
 *
 * day [HOURS [MS]]: so many hours of MS milliseconds each, 3 of 700 by default. A line for each. */
#include "base/assert.h"
#include "base/clock.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/control.h"
#include "tests/lib/must.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/supervisor.h"

#include <check.h>
#include <limits.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    SEATS = 6,      /* clients at once, at most */
    PLACES = 8,     /* regions of a client */
    N_BUFFERS = 24, /* of a batch */
    MAX_LOG2 = 21,  /* of a region's length */
    MAX_BYTES = 2 << MAX_LOG2,
    TASKS_AN_HOUR = 8,
    MORNING = 6, /* the hours in which the service is started again */
    RETURN_MS = 60000,
    MAX_GROWN_KIB_AN_HOUR = 64,
    FDS_SETTLE_MS = 10000,
};

static unsigned hours = 3, hour_ms = 700;

/* Shared by all processes. */
static struct day {
    char socket[96];
    atomic_bool pause, stop;
    atomic_uint n_seats;     /* that work, by the hour's load */
    atomic_uint n_connected; /* clients that have a connection, or are about to */
    atomic_ulong n_sessions, n_spills, n_restores, n_again, n_full, n_adopted;
} * day;
static struct sw_supervisor supervisor;
static struct spillway_error error;

/* ---- a client ---------------------------------------------------------------------------------------------------- */

struct place {
    struct spillway_region region;
    uint64_t bytes, seed;
    bool is_used;
};

struct client {
    unsigned seat;
    uint64_t random;
    struct spillway *connection;
    uint8_t *shared, *registered, *private, *expected;
    struct place places[PLACES];
};

static uint64_t below(struct client *c, uint64_t n) {
    return sw_random(&c->random) % n;
}

/* Each length of 2^n to 2^(n+1) as often as any other. */
static uint64_t any_length(struct client *c) {
    const uint64_t power = UINT64_C(1) << below(c, MAX_LOG2 + 1);
    return power - 1 + below(c, power);
}

static void fill(uint8_t *to, uint64_t bytes, uint64_t seed) {
    sw_content_fill(to, bytes, (enum sw_content)(seed % SW_CONTENT_NR), seed);
}

static void check(struct client *c, const uint8_t *data, uint64_t bytes, uint64_t seed) {
    fill(c->expected, bytes, seed);
    SW_ASSERT(memcmp(c->expected, data, bytes) == 0);
}

/* Errors that a client must expect: a restart, full tiers, a service that is being drained. */
static bool may_fail(int rc) {
    if (rc == -SPILLWAY_ERESTARTED)
        atomic_fetch_add(&day->n_again, 1);
    if (rc == -SPILLWAY_ENOSPACE || rc == -SPILLWAY_EDRAINING || rc == -SPILLWAY_ETENANTBYTES)
        atomic_fetch_add(&day->n_full, 1);
    return rc == -SPILLWAY_ERESTARTED || rc == -SPILLWAY_ENOSPACE || rc == -SPILLWAY_EDRAINING ||
           rc == -SPILLWAY_ETENANTBYTES;
}

static int await_all(struct spillway_ticket *ticket, struct spillway_result *ret, uint32_t n) {
    const int rc = spillway_wait(ticket, -1, ret, n, &error);
    spillway_ticket_free(ticket);
    return rc;
}

static int await(struct spillway_ticket *ticket, struct spillway_result *ret) {
    return await_all(ticket, ret, ret != NULL);
}

static void spill(struct client *c, struct place *place) {
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    uint8_t *from = below(c, 5) == 0 ? c->private : c->shared;
    place->bytes = any_length(c);
    place->seed = sw_random(&c->random);
    fill(from, place->bytes, place->seed);
    MUST(spillway_spill(c->connection, SW_REQUEST(SW_ONE(from, place->bytes)), 1, &ticket, &error) == 0, &error);
    const int rc = await(ticket, &result);
    MUST(rc == 0 || may_fail(rc), &error);
    place->is_used = rc == 0;
    place->region = result.region;
    atomic_fetch_add(&day->n_spills, 1);
}

static void restore(struct client *c, struct place *place, unsigned flags) {
    struct spillway_ticket *ticket;
    uint8_t *to = below(c, 5) == 0 ? c->private : c->shared;
    int rc;
    do {
        MUST(spillway_restore(c->connection, SW_REQUEST(SW_ONE(to, MAX_BYTES), .region = place->region, .flags = flags),
                              1, &ticket, &error) == 0,
             &error);
        rc = await(ticket, NULL);
        MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    } while (rc && may_fail(rc));
    check(c, to, place->bytes, place->seed);
    place->is_used = flags & SPILLWAY_KEEP;
    atomic_fetch_add(&day->n_restores, 1);
}

/* Spills and restores; a restart meanwhile may lose the bytes, which is reported. */
static void pack(struct client *c) {
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    const uint64_t bytes = any_length(c), seed = sw_random(&c->random);
    fill(c->shared, bytes, seed);
    MUST(spillway_spill(c->connection, SW_REQUEST(SW_ONE(c->shared, bytes), .flags = SPILLWAY_IN_PLACE), 1, &ticket,
                        &error) == 0,
         &error);
    int rc = await(ticket, &result);
    MUST(rc == 0 || rc == -SPILLWAY_ELOST || may_fail(rc), &error);
    while (rc == 0) {
        MUST(spillway_restore(c->connection,
                              SW_REQUEST(SW_ONE(c->shared, bytes), .region = result.region, .flags = SPILLWAY_IN_PLACE),
                              1, &ticket, &error) == 0,
             &error);
        const int back = await(ticket, NULL);
        if (back == 0) {
            check(c, c->shared, bytes, seed);
            return;
        }
        MUST(back == -SPILLWAY_ERESTARTED || back == -SPILLWAY_ELOST, &error);
        rc = back == -SPILLWAY_ELOST ? back : 0;
        if (rc)
            MUST(spillway_drop(c->connection, &result.region, 1, &error) == 0, &error);
    }
}

static void batch(struct client *c) {
    struct spillway_buffer buffers[N_BUFFERS];
    struct spillway_request requests[N_BUFFERS] = {0};
    struct spillway_result results[N_BUFFERS] = {{.size = sizeof *results}};
    struct spillway_ticket *ticket;
    const uint64_t seed = sw_random(&c->random), each = 1 + below(c, MAX_BYTES / N_BUFFERS);
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        buffers[i] = (struct spillway_buffer){.data = c->registered + i * each, .bytes = each};
        fill(buffers[i].data, each, seed + i);
    }
    sw_requests_of_each(requests, buffers, N_BUFFERS);
    MUST(spillway_spill(c->connection, requests, N_BUFFERS, &ticket, &error) == 0, &error);
    int rc = await_all(ticket, results, N_BUFFERS);
    MUST(rc == 0 || may_fail(rc), &error);
    if (rc)
        return;
    sw_requests_take_regions(requests, results, N_BUFFERS);
    memset(c->registered, 0xEE, N_BUFFERS * each);
    do {
        MUST(spillway_restore(c->connection, requests, N_BUFFERS, &ticket, &error) == 0, &error);
        rc = await(ticket, NULL);
        MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    } while (rc && may_fail(rc));
    for (unsigned i = 0; i < N_BUFFERS; i++)
        check(c, buffers[i].data, each, seed + i);
}

static const char *name_of(const struct client *c) {
    static char name[32];
    (void)snprintf(name, sizeof name, "seat %u", c->seat);
    return name;
}

/* The region that a client of this seat has left to the next: its length is its seed. */
static void inherit(struct client *c) {
    struct place place = {.is_used = true};
    struct spillway_region_info info = {.size = sizeof info};
    const int rc = spillway_adopt(c->connection, name_of(c), &place.region, &error);
    MUST(rc == 0 || rc == -SPILLWAY_ENOENT || rc == -SPILLWAY_EBUSY, &error);
    if (rc)
        return;
    MUST(spillway_query(c->connection, place.region, &info, &error) == 0, &error);
    place.bytes = place.seed = info.raw_bytes;
    restore(c, &place, 0);
    MUST(spillway_drop(c->connection, &place.region, 1, &error) == 0, &error);
    atomic_fetch_add(&day->n_adopted, 1);
}

static void bequeath(struct client *c) {
    struct spillway_ticket *ticket;
    const uint64_t bytes = any_length(c);
    fill(c->shared, bytes, bytes);
    MUST(spillway_spill(c->connection, SW_REQUEST(SW_ONE(c->shared, bytes), .name = name_of(c)), 1, &ticket, &error) ==
             0,
         &error);
    const int rc = await(ticket, NULL);
    MUST(rc == 0 || rc == -SPILLWAY_EEXIST || may_fail(rc), &error);
}

static void advise(struct client *c, const struct place *place) {
    static const unsigned most[] = {256, 2, 1};
    const enum spillway_advice advice = (enum spillway_advice)below(c, 3);
    const int rc = spillway_advise(c->connection, place->region, advice, (unsigned)below(c, most[advice]), &error);
    MUST(rc == 0 || rc == -SPILLWAY_EBUSY || rc == -SPILLWAY_ENOSPACE, &error);
}

static void step(struct client *c) {
    struct place *place = &c->places[below(c, PLACES)];
    const uint64_t dice = below(c, 20);
    if (dice == 0)
        batch(c);
    else if (dice == 1)
        pack(c);
    else if (dice == 2)
        inherit(c);
    else if (!place->is_used)
        spill(c, place);
    else if (dice < 5)
        advise(c, place);
    else if (dice < 7)
        (void)(spillway_drop(c->connection, &place->region, 1, &error), place->is_used = false);
    else
        restore(c, place, dice < 13 ? SPILLWAY_KEEP : 0);
}

/* The life of a client, from connecting to one of its ends. */
static void live(struct client *c) {
    int rc;
    while ((rc = spillway_open(&c->connection, SW_OPTIONS(.socket_path = day->socket), &error)) == -SPILLWAY_ECONN ||
           rc == -SPILLWAY_ENOSERVICE || rc == -SPILLWAY_ESHUTDOWN)
        sleep_us(1000); /* killed before it had answered: there was no session to come back to */
    MUST(rc == 0, &error);
    while ((rc = spillway_register(c->connection, c->registered, MAX_BYTES, &error)) == -SPILLWAY_ERESTARTED)
        ;
    MUST(rc == 0, &error);
    inherit(c);
    for (uint64_t n = 3 + below(c, 40); n > 0 && !atomic_load(&day->pause); n--)
        step(c);
    atomic_fetch_add(&day->n_sessions, 1);
    const uint64_t end = below(c, 4);
    if (end == 0)
        bequeath(c);
    if (end < 2) { /* a new process takes its place */
        atomic_fetch_sub(&day->n_connected, 1);
        (void)raise(SIGKILL);
    }
    spillway_close(c->connection);
    memset(c->places, 0, sizeof c->places);
}

static uint8_t *new_memory(bool shared) {
    if (!shared)
        return calloc(1, MAX_BYTES);
    const int fd = memfd_create("day", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, MAX_BYTES) == 0);
    uint8_t *memory = mmap(NULL, MAX_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SW_ASSERT(memory != MAP_FAILED);
    return memory; /* the descriptor stays open: the library hands it over */
}

static __attribute__((noreturn)) void client_main(unsigned seat, uint64_t seed, pid_t parent) {
    struct client c = {.seat = seat, .random = seed};
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    c.shared = new_memory(true);
    c.registered = new_memory(true);
    c.private = new_memory(false);
    c.expected = new_memory(false);
    while (!atomic_load(&day->stop)) {
        atomic_fetch_add(&day->n_connected, 1); /* before it looks: no client begins once the pause is complete */
        if (!atomic_load(&day->pause) && seat < atomic_load(&day->n_seats))
            live(&c);
        atomic_fetch_sub(&day->n_connected, 1);
        sleep_us(1000);
    }
    _exit(0);
}

/* ---- those who look after the clients ---------------------------------------------------------------------------- */

static pid_t seats[SEATS];
static uint64_t n_started;

/* A client ends in order, or kills itself. */
static void ck_ended_well(int status) {
    ck_assert_msg(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL),
                  "a client has failed; it says above, why");
}

static void fill_seats(void) {
    const pid_t parent = getpid();
    for (unsigned i = 0; i < SEATS; i++) {
        int status = 0;
        if (seats[i] && waitpid(seats[i], &status, WNOHANG) == 0)
            continue;
        ck_ended_well(seats[i] ? status : 0);
        seats[i] = fork();
        ck_assert_int_ge(seats[i], 0);
        if (seats[i] == 0)
            client_main(i, ++n_started * 977, parent);
        n_started++;
    }
}

static void end_seats(void) {
    atomic_store(&day->stop, true);
    for (unsigned i = 0; i < SEATS; i++) {
        int status = -1;
        ck_assert_int_eq(waitpid(seats[i], &status, 0), seats[i]);
        ck_ended_well(status);
    }
}

/* ---- operators --------------------------------------------------------------------------------------------------- */

static struct sw_ctl *ctl;

static void ask(const char *method, const char *params) {
    json_decref(sw_control_ask(ctl, method, params));
}

/* One that may be gone by now, or busy. */
static void move_a_region(uint64_t *random) {
    json_t *page = sw_control_ask(ctl, "regions", "{\"state\":\"out\",\"limit\":50}");
    const json_t *regions = json_object_get(page, "regions");
    const size_t n = json_array_size(regions);
    if (n) {
        const json_t *region = json_object_get(json_array_get(regions, sw_random(random) % n), "region");
        json_t *result = NULL;
        (void)sw_ctl_call(ctl, sw_random(random) % 2 ? "demote" : "promote",
                          json_pack("[s]", json_string_value(region)), &result, NULL);
        json_decref(result);
    }
    json_decref(page);
}

static void operate(uint64_t *random) {
    switch (sw_random(random) % 8) {
    case 0:
        ask("config.set", "[\"host_tier_low_pct\",40]");
        break;
    case 1:
        ask("config.reload", NULL);
        break;
    case 2:
        ask("drain", "[\"on\"]");
        sleep_us(2000);
        ask("drain", "[\"off\"]");
        break;
    case 3:
        ask("spill", "[1048576]");
        break;
    case 4:
        ask("stats", NULL);
        ask("sessions", NULL);
        break;
    case 5:
        ask("metrics", NULL);
        break;
    case 6:
        ask("events", "[\"config,drain\"]");
        break;
    default:
        for (int i = 0; i < 5; i++)
            move_a_region(random);
    }
}

static void start_again(int signal) {
    sw_ctl_close(ctl);
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, signal), signal == SIGKILL ? -SIGKILL : 0);
    ck_assert(sw_supervisor_spawn(&supervisor));
    ctl = sw_control_connect(&supervisor.daemon);
}

/* ---- what is held ------------------------------------------------------------------------------------------------ */

struct held {
    unsigned fds;
    long long sessions, regions, operations, mapped, host_bytes, nvme_bytes;
    long anonymous_kib; /* of the heap and the stacks; the arena is not in it */
};

static struct held look(void) {
    json_t *status = sw_control_ask(ctl, "status", NULL);
    const struct held held = {.fds = sw_test_daemon_fds(&supervisor.daemon),
                              .sessions = json_integer_value(json_object_get(status, "sessions")),
                              .regions = json_integer_value(json_object_get(status, "regions")),
                              .operations = json_integer_value(json_object_get(status, "operations")),
                              .mapped = json_integer_value(json_object_get(status, "mapped_memories")),
                              .host_bytes = json_integer_value(json_object_get(status, "host_used_bytes")),
                              .nvme_bytes = json_integer_value(json_object_get(status, "nvme_used_bytes")),
                              .anonymous_kib = sw_test_daemon_anonymous_kib(&supervisor.daemon)};
    json_decref(status);
    return held;
}

static bool is_empty(const struct held *h) {
    return !h->sessions && !h->regions && !h->operations && !h->mapped && !h->host_bytes && !h->nvme_bytes;
}

/* Drops regions that clients have left to successors that did not come. */
static void drop_durable(void) {
    struct spillway *connection = NULL;
    struct spillway_region region;
    struct client c = {.seat = 0};
    MUST(spillway_open(&connection, SW_OPTIONS(.socket_path = day->socket), &error) == 0, &error);
    for (; c.seat < SEATS; c.seat++) {
        int rc;
        while ((rc = spillway_adopt(connection, name_of(&c), &region, &error)) == -SPILLWAY_EBUSY)
            sleep_us(1000);
        MUST(rc == 0 || rc == -SPILLWAY_ENOENT, &error);
        MUST(rc || spillway_drop(connection, &region, 1, &error) == 0, &error);
    }
    spillway_close(connection);
}

/* Descriptors, when they are no more than `most`, or after a while: clients' are closed by threads for that. */
static unsigned settled_fds(unsigned most) {
    unsigned n = sw_test_daemon_fds(&supervisor.daemon);
    for (int i = 0; n > most && i < FDS_SETTLE_MS; i++) {
        sleep_us(1000);
        n = sw_test_daemon_fds(&supervisor.daemon);
    }
    return n;
}

/* All clients hang up; regions that are still there have no owner. */
static struct held pause_and_look(unsigned most_fds) {
    const uint64_t begun_us = sw_clock_us();
    struct held held;
    atomic_store(&day->pause, true);
    while (atomic_load(&day->n_connected) > 0) {
        fill_seats();
        sleep_us(1000);
    }
    drop_durable();
    while (held = look(), !is_empty(&held)) {
        ck_assert_msg(sw_clock_us() - begun_us < RETURN_MS * 1000ull,
                      "left: sessions %lld, regions %lld, operations %lld, mapped %lld, host %lld, nvme %lld",
                      held.sessions, held.regions, held.operations, held.mapped, held.host_bytes, held.nvme_bytes);
        sleep_us(2000);
    }
    held.fds = settled_fds(most_fds);
    atomic_store(&day->pause, false);
    return held;
}

/* ---- the day ----------------------------------------------------------------------------------------------------- */

/* Returns the number of clients at an hour: 1 at night, all at noon. */
static unsigned load_at(unsigned hour) {
    const unsigned from_noon = hour % 24 < 12 ? 12 - hour % 24 : hour % 24 - 12;
    return SEATS - (SEATS - 1) * from_noon / 12;
}

static bool is_long(void) {
    return hours > 2 * MORNING;
}

/* Returns the growth per hour, by least squares. */
static double slope(const long *kib, unsigned n) {
    double x = 0, y = 0, xx = 0, xy = 0;
    for (unsigned i = 0; i < n; i++) {
        x += i;
        y += (double)kib[i];
        xx += (double)i * i;
        xy += (double)i * (double)kib[i];
    }
    return n < 2 ? 0 : (n * xy - x * y) / (n * xx - x * x);
}

/* Returns the most that was seen in use meanwhile, of each by itself. */
static struct held pass_an_hour(unsigned hour, uint64_t *random) {
    struct held peak = {0};
    const bool again = is_long() ? hour < MORNING : hour == 0;
    atomic_store(&day->n_seats, load_at(is_long() ? hour : 12));
    for (unsigned task = 0; task < TASKS_AN_HOUR; task++) {
        for (unsigned i = 0; i < 10; i++) {
            fill_seats();
            sleep_us(hour_ms * 1000ull / TASKS_AN_HOUR / 10);
        }
        if (again && task == TASKS_AN_HOUR / 2)
            start_again(hour % 3 == 2 ? SIGTERM : SIGKILL);
        else
            operate(random);
        const struct held now = look();
        peak.regions = now.regions > peak.regions ? now.regions : peak.regions;
        peak.host_bytes = now.host_bytes > peak.host_bytes ? now.host_bytes : peak.host_bytes;
        peak.nvme_bytes = now.nvme_bytes > peak.nvme_bytes ? now.nvme_bytes : peak.nvme_bytes;
    }
    return peak;
}

static void start(char *option, size_t option_bytes) {
    char folder[SW_TEST_PATH_BYTES];
    static const char *options[] = {"log_level=warning",
                                    NULL,
                                    "nvme_encrypt=on",
                                    "nvme_tier_bytes=128 MiB",
                                    "host_tier_bytes=16 MiB",
                                    "host_tier_initial_bytes=16 MiB",
                                    "host_tier_slab_bytes=4 MiB",
                                    "chunk_bytes=1 MiB",
                                    "host_tier_low_pct=50",
                                    "host_tier_high_pct=70",
                                    "tenant_bytes=256 MiB",
                                    NULL};
    sw_test_folder_here(folder);
    (void)snprintf(option, option_bytes, "nvme_tier_directory=%s/nvme", folder);
    options[1] = option;
    sw_supervisor_start(&supervisor, SW_SPILLWAYD_PATH, options);
    ctl = sw_control_connect(&supervisor.daemon);
    day = mmap(NULL, sizeof *day, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(day, MAP_FAILED);
    (void)snprintf(day->socket, sizeof day->socket, "%s", supervisor.daemon.socket);
}

static void report(unsigned hour, const struct held *peak, const struct held *held) {
    printf("hour %u: sessions %lu, spills %lu, restores %lu, repeated %lu, refused %lu, adopted %lu; ", hour + 1,
           atomic_load(&day->n_sessions), atomic_load(&day->n_spills), atomic_load(&day->n_restores),
           atomic_load(&day->n_again), atomic_load(&day->n_full), atomic_load(&day->n_adopted));
    printf("at most regions %lld, host bytes %lld, disk bytes %lld; ", peak->regions, peak->host_bytes,
           peak->nvme_bytes);
    printf("then anonymous KiB %ld, descriptors %u, host bytes %lld, disk bytes %lld\n", held->anonymous_kib, held->fds,
           held->host_bytes, held->nvme_bytes);
    (void)fflush(stdout);
}

START_TEST(memory_is_flat) {
    char option[SW_TEST_PATH_BYTES + 32];
    long *kib = calloc(hours, sizeof *kib);
    unsigned fds = 0;
    uint64_t random = 7;
    start(option, sizeof option);
    for (unsigned hour = 0; hour < hours; hour++) {
        const struct held peak = pass_an_hour(hour, &random);
        /* Since its last start, and once a device's files are open. */
        const bool is_flat = hour > 0 && (!is_long() || hour > MORNING);
        const struct held held = pause_and_look(is_flat ? fds : UINT_MAX);
        report(hour, &peak, &held);
        kib[hour] = held.anonymous_kib;
        if (is_flat)
            ck_assert_uint_le(held.fds, fds);
        fds = held.fds;
    }
    end_seats();
    ck_assert_uint_gt(atomic_load(&day->n_spills), 0);
    if (is_long()) {
        const unsigned from = hours / 2; /* permanent allocations have been made by then */
        const double grown = slope(kib + from, hours - from);
        printf("anonymous memory: %+.1f KiB an hour over the last %u\n", grown, hours - from);
        (void)fflush(stdout);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers keep freed memory */
        ck_assert(grown < MAX_GROWN_KIB_AN_HOUR);
#endif
    }
    free(kib);
    sw_ctl_close(ctl);
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGTERM), 0);
    sw_supervisor_end(&supervisor);
}
END_TEST

int main(int argc, char **argv) {
    hours = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : hours;
    hour_ms = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : hour_ms;
    Suite *suite = suite_create("day");
    TCase *tcase = tcase_create("day");
    sw_test_slow(tcase, argc > 1 ? 36000 : 60);
    tcase_add_test(tcase, memory_is_flat);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
