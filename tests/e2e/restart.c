/* The service is killed, or stopped in order, again and again under load of several clients, and started again by a
 * service manager that keeps its descriptors: no region that was reported stored is lost, none that was not is there.
 *
 * $SW_RESTART_ROUNDS: kills of each test, for long runs. */
#include "base/assert.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/supervisor.h"

#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_CLIENTS = 5, N_SLOTS = 10, MAX_BYTES = 600000, PLACE_BYTES = 1 << 20, BATCH = 4 };
/* A sanitizer sees the same accesses in each round. */
enum { ROUNDS = SW_TEST_EVERY > 1 ? 4 : 12 };
/* For the client that encodes, decodes and packs itself: chunk by chunk from 1 MiB on, else several regions by one
 * packet. What it packs is never lost with the service. */
enum { N_CODED_SLOTS = 4, LEAST_CODED_BYTES = 1 << 20, CODED_PLACE_BYTES = 4 << 20 };
enum slot_state { EMPTY, SPILLED, PACKED };
enum client_kind { HANDS_OVER, REGISTERED, COPIED, PACKS, CODES };

struct slot {
    enum slot_state state;
    uint64_t bytes, seed;
    bool in_halves; /* it has two buffers */
    struct spillway_region region;
};

/* A process of its own. */
struct client {
    pid_t pid;
    enum client_kind kind;
    int n_slots;
    size_t place_bytes;
    struct spillway *connection;
    uint64_t random;
    uint8_t *area, *scratch, *expected; /* n_slots places, one, one */
    struct slot slots[N_SLOTS];
    unsigned long n_spills, n_restores, n_restarted, n_lost, n_coded;
    atomic_uint verified;
};

/* Shared by all processes. */
static struct load {
    char socket[96];
    atomic_bool started, stop;
    atomic_uint round;             /* that clients must verify before they go on */
    atomic_uint n_done;            /* clients that have got everything back */
    struct spillway_status status; /* then */
    struct client clients[N_CLIENTS];
} * load;
static struct sw_supervisor supervisor;

/* ---- one client -------------------------------------------------------------------------------------------------- */

static uint8_t *new_memory(size_t bytes, bool shared) {
    if (!shared)
        return calloc(1, bytes);
    const int fd = memfd_create("restart", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SW_ASSERT(memory != MAP_FAILED);
    return memory; /* the descriptor stays open: the library hands it over */
}

static uint8_t *place_of(const struct client *client, const struct slot *slot) {
    return client->area + (size_t)(slot - client->slots) * client->place_bytes;
}

static void fill(uint8_t *to, const struct slot *slot) {
    sw_content_fill(to, slot->bytes, (enum sw_content)(slot->seed % SW_CONTENT_NR), slot->seed);
}

static void check(struct client *client, const struct slot *slot, const uint8_t *data) {
    fill(client->expected, slot);
    SW_ASSERT(memcmp(client->expected, data, slot->bytes) == 0);
}

static void choose(struct client *client, struct slot *slot) {
    slot->seed = sw_random(&client->random);
    slot->bytes = slot->seed % 16 == 0 ? 0 : sw_random(&client->random) % MAX_BYTES;
    if (client->kind == CODES)
        slot->bytes = slot->seed % 2
                          ? 1 + slot->bytes
                          : LEAST_CODED_BYTES + sw_random(&client->random) % (CODED_PLACE_BYTES - LEAST_CODED_BYTES);
    slot->in_halves = client->kind <= REGISTERED && slot->seed % 3 == 0 && slot->bytes > 0;
    fill(place_of(client, slot), slot);
}

/* Waits for a ticket and frees it. One kind of client does it with an event loop: it must be woken for everything, also
 * for a reconnection. */
static int await(struct client *client, struct spillway_ticket *ticket, struct spillway_result *ret, uint32_t n,
                 struct spillway_error *error) {
    int rc = spillway_wait(ticket, client->kind == HANDS_OVER ? 0 : -1, ret, n, error);
    while (rc == -SPILLWAY_EAGAIN) {
        struct pollfd readable = {.fd = spillway_fd(client->connection), .events = POLLIN};
        SW_ASSERT(poll(&readable, 1, -1) == 1);
        MUST(spillway_dispatch(client->connection, error) >= 0, error);
        rc = spillway_wait(ticket, 0, ret, n, error);
    }
    spillway_ticket_free(ticket);
    return rc;
}

/* One buffer, or one for each half. `buffers` must live as long as the request. */
static struct spillway_request request_of(const struct slot *slot, uint8_t *data, struct spillway_buffer buffers[2]) {
    const uint64_t first_bytes = slot->in_halves ? slot->bytes / 2 : slot->bytes;
    buffers[0] = (struct spillway_buffer){
        .data = data, .bytes = first_bytes, .type = slot->in_halves ? SPILLWAY_U8 : SPILLWAY_BYTES};
    buffers[1] = (struct spillway_buffer){.data = data + first_bytes, .bytes = slot->bytes - first_bytes};
    return *SW_REQUEST(SW_SEVERAL(buffers, slot->in_halves ? 2 : 1));
}

static void spill(struct client *client, struct slot *slot) {
    const bool pack = (client->kind == PACKS && slot->seed % 2) || (client->kind == CODES && slot->seed % 4 < 2);
    uint8_t *place = place_of(client, slot);
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    struct spillway_buffer buffers[2];
    struct spillway_request request = request_of(slot, place, buffers);
    request.flags = pack ? SPILLWAY_IN_PLACE : 0;
    MUST(spillway_spill(client->connection, &request, 1, &ticket, &error) == 0, &error);
    const int rc = await(client, ticket, &result, 1, &error);
    client->n_spills++;
    client->n_coded += rc == 0 && strcmp(result.coder, "client") == 0;
    if (rc == 0) {
        slot->state = pack ? PACKED : SPILLED;
        slot->region = result.region;
        memset(place + (pack ? result.stored_bytes : 0), 0xEE, slot->bytes - (pack ? result.stored_bytes : 0));
    } else if (client->kind == PACKS && pack && rc == -SPILLWAY_ELOST) {
        client->n_lost++;
    } else {
        MUST(rc == -SPILLWAY_ERESTARTED, &error);
        check(client, slot, place); /* untouched */
        client->n_restarted++;
    }
}

static void spill_batch(struct client *client) {
    struct spillway_buffer buffers[BATCH];
    struct spillway_request requests[BATCH] = {0};
    struct spillway_result results[BATCH] = {{.size = sizeof *results}};
    struct slot *slots[BATCH];
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint32_t n = 0;
    for (int i = 0; i < client->n_slots && n < BATCH; i++) {
        if (client->slots[i].state != EMPTY)
            continue;
        slots[n] = &client->slots[i];
        choose(client, slots[n]);
        slots[n]->bytes = slots[n]->bytes % 20000 + 1;
        slots[n]->in_halves = false;
        buffers[n] = (struct spillway_buffer){.data = place_of(client, slots[n]), .bytes = slots[n]->bytes};
        fill(place_of(client, slots[n]), slots[n]);
        n++;
    }
    if (!n)
        return;
    sw_requests_of_each(requests, buffers, n);
    MUST(spillway_spill(client->connection, requests, n, &ticket, &error) == 0, &error);
    const int rc = await(client, ticket, results, n, &error);
    MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    client->n_spills++;
    client->n_restarted += rc != 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        slots[i]->state = SPILLED;
        slots[i]->region = results[i].region;
    }
}

static void restore_batch(struct client *client) {
    struct spillway_buffer buffers[BATCH];
    struct spillway_request requests[BATCH] = {0};
    struct slot *slots[BATCH];
    struct spillway_ticket *ticket;
    struct spillway_error error;
    uint32_t n = 0;
    for (int i = 0; i < client->n_slots && n < BATCH; i++) {
        if (client->slots[i].state != SPILLED || client->slots[i].in_halves)
            continue;
        slots[n] = &client->slots[i];
        buffers[n] = (struct spillway_buffer){.data = place_of(client, slots[n]), .bytes = slots[n]->bytes};
        requests[n].region = slots[n]->region;
        n++;
    }
    if (!n)
        return;
    sw_requests_of_each(requests, buffers, n);
    MUST(spillway_restore(client->connection, requests, n, &ticket, &error) == 0, &error);
    const int rc = await(client, ticket, NULL, 0, &error);
    MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    client->n_restores++;
    client->n_restarted += rc != 0;
    for (uint32_t i = 0; i < n && rc == 0; i++) {
        check(client, slots[i], buffers[i].data);
        slots[i]->state = EMPTY;
    }
}

/* to: the slot's own place, or one beside it with the stored copy kept. Tried until it succeeds. */
static void restore(struct client *client, struct slot *slot, uint8_t *to, unsigned flags) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    struct spillway_buffer buffers[2];
    struct spillway_request request = request_of(slot, to, buffers);
    int rc;
    request.region = slot->region;
    request.flags = flags;
    do {
        MUST(spillway_restore(client->connection, &request, 1, &ticket, &error) == 0, &error);
        rc = await(client, ticket, NULL, 0, &error);
        client->n_restores++;
        client->n_restarted += rc != 0;
        MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    } while (rc < 0);
    check(client, slot, to);
    if (!flags)
        slot->state = EMPTY;
}

static void unpack(struct client *client, struct slot *slot) {
    struct spillway_ticket *ticket;
    struct spillway_error error;
    MUST(spillway_restore(client->connection,
                          SW_REQUEST(SW_ONE(place_of(client, slot), slot->bytes), .region = slot->region,
                                     .flags = SPILLWAY_IN_PLACE),
                          1, &ticket, &error) == 0,
         &error);
    const int rc = await(client, ticket, NULL, 0, &error);
    client->n_restores++;
    MUST(rc == 0 || client->kind == PACKS, &error);
    if (rc == -SPILLWAY_ERESTARTED) { /* had not begun */
        client->n_restarted++;
        return;
    }
    slot->state = EMPTY;
    if (rc == 0) {
        check(client, slot, place_of(client, slot));
        return;
    }
    MUST(rc == -SPILLWAY_ELOST, &error);
    client->n_lost++;
    MUST(spillway_drop(client->connection, &slot->region, 1, &error) == 0, &error);
}

static void drop(struct client *client, struct slot *slot) {
    struct spillway_error error;
    MUST(spillway_drop(client->connection, &slot->region, 1, &error) == 0, &error);
    slot->state = EMPTY;
}

static void verify_all(struct client *client) {
    for (int i = 0; i < client->n_slots; i++)
        if (client->slots[i].state == SPILLED)
            restore(client, &client->slots[i], client->scratch, SPILLWAY_KEEP);
}

static void step(struct client *client) {
    struct slot *slot = &client->slots[sw_random(&client->random) % (unsigned)client->n_slots];
    const uint64_t dice = sw_random(&client->random) % 16;
    if ((client->kind == REGISTERED || client->kind == CODES) && dice < 4)
        dice < 2 ? spill_batch(client) : restore_batch(client);
    else if (slot->state == EMPTY)
        choose(client, slot), spill(client, slot);
    else if (slot->state == PACKED)
        unpack(client, slot);
    else if (dice == 15)
        drop(client, slot);
    else if (dice > 8)
        restore(client, slot, client->scratch, SPILLWAY_KEEP);
    else
        restore(client, slot, place_of(client, slot), 0);
}

/* Nothing that the clients do not know of may be there, and nothing of the tiers may be taken by it: the first client
 * looks when all are done, and before any hangs up. The library's own drops are then through, for it has asked once
 * more. */
static void finish(struct client *client) {
    struct spillway_error error;
    struct spillway_status status = {.size = sizeof status};
    MUST(spillway_status(client->connection, &status, &error) == 0, &error);
    atomic_fetch_add(&load->n_done, 1);
    while (atomic_load(&load->n_done) < N_CLIENTS)
        sleep_us(1000);
    if (client == load->clients) {
        load->status.size = sizeof load->status;
        MUST(spillway_status(client->connection, &load->status, &error) == 0, &error);
    }
    atomic_fetch_add(&load->n_done, client == load->clients ? 1 : 0);
    while (atomic_load(&load->n_done) == N_CLIENTS)
        sleep_us(1000);
    spillway_close(client->connection);
}

static void run_load(struct client *client) {
    while (!atomic_load(&load->stop)) {
        const unsigned round = atomic_load(&load->round);
        if (atomic_load(&client->verified) != round) {
            verify_all(client);
            atomic_store(&client->verified, round);
        }
        step(client);
    }
    for (int i = 0; i < client->n_slots; i++) {
        while (client->slots[i].state == PACKED)
            unpack(client, &client->slots[i]);
        if (client->slots[i].state == SPILLED)
            restore(client, &client->slots[i], place_of(client, &client->slots[i]), 0);
    }
}

/* ---- the load ---------------------------------------------------------------------------------------------------- */

static __attribute__((noreturn)) void client_main(struct client *client, pid_t parent) {
    struct spillway_error error;
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    client->area = new_memory((size_t)client->n_slots * client->place_bytes, client->kind != COPIED);
    client->scratch = new_memory(client->place_bytes, client->kind != COPIED);
    client->expected = new_memory(client->place_bytes, false);
    while (!atomic_load(&load->started))
        sleep_us(1000);
    int rc;
    while ((rc = spillway_open(
                &client->connection,
                SW_OPTIONS(.socket_path = load->socket, .flags = client->kind == CODES ? SPILLWAY_CODEC_CLIENT : 0),
                &error)) == -SPILLWAY_ECONN ||
           rc == -SPILLWAY_ENOSERVICE || rc == -SPILLWAY_ESHUTDOWN)
        sleep_us(1000); /* killed or stopped before the session could be resumed */
    MUST(rc == 0, &error);
    do
        rc = client->kind != REGISTERED
                 ? 0
                 : spillway_register(client->connection, client->area, (uint64_t)N_SLOTS * PLACE_BYTES, &error);
    while (rc == -SPILLWAY_ERESTARTED);
    MUST(rc == 0, &error);
    run_load(client);
    finish(client);
    _exit(0);
}

static void start_clients(void) {
    const pid_t parent = getpid();
    load = mmap(NULL, sizeof *load, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(load, MAP_FAILED);
    for (unsigned i = 0; i < N_CLIENTS; i++) {
        struct client *client = &load->clients[i];
        client->kind = (enum client_kind)i;
        client->n_slots = client->kind == CODES ? N_CODED_SLOTS : N_SLOTS;
        client->place_bytes = client->kind == CODES ? CODED_PLACE_BYTES : PLACE_BYTES;
        client->random = 1000 + i;
        const pid_t pid = fork();
        ck_assert_int_ge(pid, 0);
        if (pid == 0)
            client_main(client, parent);
        client->pid = pid;
    }
}

static void ck_clients_live(void) {
    for (int i = 0; i < N_CLIENTS; i++) {
        siginfo_t info = {0};
        ck_assert_int_eq(waitid(P_PID, (id_t)load->clients[i].pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        ck_assert_msg(info.si_pid == 0, "client %d has died; it says above, why", i);
    }
}

static void await_verified(void) {
    const unsigned round = atomic_fetch_add(&load->round, 1) + 1;
    for (int i = 0; i < N_CLIENTS; i++)
        while (atomic_load(&load->clients[i].verified) != round) {
            ck_clients_live();
            sleep_us(500);
        }
}

static void end_load(unsigned rounds) {
    unsigned long spills = 0, restores = 0, restarted = 0, lost = 0, coded = 0;
    atomic_store(&load->stop, true);
    for (int i = 0; i < N_CLIENTS; i++) {
        const struct client *client = &load->clients[i];
        int status = -1;
        ck_assert_int_eq(waitpid(client->pid, &status, 0), client->pid);
        ck_assert_int_eq(status, 0);
        spills += client->n_spills;
        restores += client->n_restores;
        restarted += client->n_restarted;
        lost += client->n_lost;
        coded += client->n_coded;
    }
    ck_assert_uint_eq(load->status.regions, 0);
    ck_assert_uint_eq(load->status.tier_used_bytes, 0);
    ck_assert_uint_eq(load->status.nvme_used_bytes, 0);
    (void)fprintf(
        stderr,
        "%u restarts, %lu spills (%lu encoded by their client), %lu restores, %lu to be repeated, %lu lost in "
        "place\n",
        rounds, spills, coded, restores, restarted, lost);
    if (rounds >= 50) /* of a short load there may be none, by chance: 0 to 5 of 90 */
        ck_assert_uint_gt(coded, 0);
    ck_assert_uint_gt(spills, rounds);
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGTERM), 0);
    sw_supervisor_end(&supervisor);
    (void)munmap(load, sizeof *load);
}

static unsigned rounds_wanted(void) {
    const char *text = getenv("SW_RESTART_ROUNDS");
    return text ? (unsigned)strtoul(text, NULL, 10) : ROUNDS;
}

static void restart_under_load(const char *const *options, int signal, uint64_t seed) {
    const unsigned rounds = rounds_wanted();
    start_clients();
    sw_supervisor_start(&supervisor, SW_SPILLWAYD_PATH, options);
    (void)snprintf(load->socket, sizeof load->socket, "%s", supervisor.daemon.socket);
    atomic_store(&load->started, true);
    for (unsigned round = 0; round < rounds; round++) {
        sleep_us(sw_random(&seed) % 40000);
        ck_assert_int_eq(sw_supervisor_stop(&supervisor, signal), signal == SIGKILL ? -SIGKILL : 0);
        ck_assert(sw_supervisor_spawn(&supervisor));
        if (round % 3) /* else it may be killed before a client has come back */
            await_verified();
    }
    await_verified();
    end_load(rounds);
}

static const char *const in_memory[] = {"log_level=warning", NULL};

START_TEST(killed_under_load) {
    restart_under_load(in_memory, SIGKILL, 1);
}
END_TEST

START_TEST(stopped_under_load) {
    restart_under_load(in_memory, SIGTERM, 2);
}
END_TEST

/* Most regions are on the disk, or on the way to or from it. */
START_TEST(killed_under_load_with_a_disk) {
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *const options[] = {"log_level=warning",
                                   option,
                                   "nvme_tier_bytes=64 MiB",
                                   "host_tier_bytes=8 MiB",
                                   "host_tier_initial_bytes=8 MiB",
                                   "host_tier_slab_bytes=2 MiB",
                                   NULL};
    restart_under_load(options, SIGKILL, 3);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("restart");
    TCase *tcase = tcase_create("restart");
    tcase_set_timeout(tcase, 60 + rounds_wanted());
    tcase_add_test(tcase, killed_under_load);
    tcase_add_test(tcase, stopped_under_load);
    tcase_add_test(tcase, killed_under_load_with_a_disk);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
