/* The remote tier: frames come back as they were, whatever the store and the network do, or end with a named error; no
 * object is left. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/thread.h"
#include "codec/frame.h"
#include "spill/store/placement.h"
#include "spill/tier/remote/object_crypt.h"
#include "spill/tier/remote/remote_probe.h"
#include "spill/tier/remote/remote_window.h"
#include "tests/lib/child.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAME_BYTES = (20 << 20) + 12345, PARTS = 3 };

static struct sw_object_store store;
static struct sw_nvme_folder folder;
static struct sw_tier_remote_config config;
static struct sw_tier *tier;

static struct sw_tier_store_stats at_start; /* after the requests of the start */

static struct sw_tier_store_stats info(void) {
    struct sw_tier_store_stats ret;
    tier->ops->store_stats(tier, &ret);
    return ret;
}

static void open_tier(void) {
    tier = sw_object_store_open(&config);
    at_start = info();
}

static void setup(void) {
    folder = sw_nvme_folder_new();
    store = sw_object_store_begin(false);
    config = sw_object_store_tier(&store, folder.path);
    open_tier();
}

static void teardown(void) {
    tier->ops->close(tier);
    sw_object_store_end(&store);
    sw_nvme_folder_free(&folder);
    ck_assert_int_eq(sw_alloc_live(), 0);
}

static void write_keys(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fchmod(fileno(file), 0600), 0);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
}

static void put(uint64_t bytes, uint64_t seed, struct sw_stored *ret) {
    struct sw_err err = {0};
    ck_assert_msg(sw_nvme_put(tier, bytes, seed, ret, &err) == 0, "%s", err.msg);
}

static int get(struct sw_stored *stored, uint64_t seed, struct sw_err *err) {
    uint8_t *buffer = sw_nvme_buffer(stored->bytes);
    const int rc = sw_nvme_transfer(tier, SW_TIER_READ, stored, buffer, 0, err);
    if (!rc)
        ck_assert(sw_nvme_same(buffer, stored->bytes, seed));
    free(buffer);
    return rc;
}

/* The name of the only object. */
static const char *only_name(char ret[600]) {
    (void)sw_object_store_ask(&store, ret, 600, "names");
    ck_assert_ptr_null(strchr(ret, ' '));
    return ret;
}

static const uint64_t lengths[] = {1, 4096, 4097, 1 << 20, (8 << 20) - 1, 8 << 20, (8 << 20) + 1, FRAME_BYTES};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

START_TEST(a_frame_comes_back_and_goes) {
    struct sw_stored stored;
    put(lengths[_i], 7, &stored);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, (lengths[_i] + 4095) / 4096 * 4096);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, 1);
    sw_object_store_await(&store, 1);
    ck_assert_int_eq(get(&stored, 7, NULL), 0);
    ck_assert_int_eq(get(&stored, 7, NULL), 0);
    tier->ops->release(tier, &stored);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    sw_object_store_await(&store, 0);
    ck_assert_uint_eq(info().backlog_frames, 0);
    const uint64_t sent_bytes = info().sent_bytes - at_start.sent_bytes;
    ck_assert_uint_eq(info().puts, at_start.puts + 1);
    ck_assert_uint_eq(info().gets, at_start.gets + 2 * ((lengths[_i] + (8 << 20) - 1) >> 23));
    ck_assert_uint_eq(info().received_bytes, at_start.received_bytes + 2 * sent_bytes);
    ck_assert_uint_ge(sent_bytes, lengths[_i] + 16);
    ck_assert_uint_eq(info().buffer_used_bytes, 0);
}
END_TEST

START_TEST(no_object_is_longer_than_64_MiB) {
    struct sw_placement place;
    sw_placement_init(&place, &(struct sw_tiers){.at = {tier, tier}, .n = 2}, UINT64_C(1) << 30);
    const uint64_t most = sw_object_body_bytes(sw_frame_bound_bytes(place.chunk_bytes));
    ck_assert_uint_le(most, 64 << 20);
    ck_assert_uint_ge(most, 63 << 20);
}
END_TEST

START_TEST(what_the_store_has_is_encrypted) {
    struct sw_stored stored;
    char name[600];
    put(1 << 20, 7, &stored);
    (void)only_name(name);
    ck_assert_int_eq(strncmp(name, "some/where/frames/this-host/0700000000000000", 44), 0);
    const struct sw_object_config plain = config.store;
    struct sw_object_client *client;
    ck_assert_int_eq(sw_object_client_open(&client, &plain, NULL), 0);
    struct sw_object_request request = {.verb = SW_OBJECT_GET, .body_bytes = 1 << 20};
    (void)strcpy(request.name, name + strlen("some/where/"));
    uint8_t *seen = sw_nvme_buffer(1 << 20), *frame = sw_nvme_buffer(1 << 20);
    request.body = seen;
    sw_nvme_fill(frame, 1 << 20, 7);
    ck_assert_int_eq(sw_object_run(client, &request), 0);
    for (size_t i = 0; i < (1 << 20); i += 16)
        ck_assert_int_ne(memcmp(seen + i, frame + i, 16), 0);
    free(seen);
    free(frame);
    sw_object_client_close(client);
    tier->ops->release(tier, &stored);
}
END_TEST

/* ---- the next process ---- */

static struct sw_nvme_recovered found;

static void open_next(uint64_t refuse) {
    open_tier();
    found = (struct sw_nvme_recovered){.refuse = refuse};
    (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = &found}, NULL);
}

static void reopen(uint64_t refuse) {
    tier->ops->close(tier);
    open_next(refuse);
}

START_TEST(the_next_process_finds_frames_and_releases_orphans) {
    struct sw_stored stored[3];
    for (uint64_t i = 0; i < 3; i++)
        put(FRAME_BYTES / 10 + i, i + 1, &stored[i]);
    reopen(2);
    ck_assert_uint_eq(found.n, 2);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, 2);
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(get(&found.stored[i], found.seeds[i], NULL), 0);
    sw_object_store_await(&store, 2);
    for (unsigned i = 0; i < 2; i++)
        tier->ops->release(tier, &found.stored[i]);
    sw_object_store_await(&store, 0);
}
END_TEST

/* Frames that a smaller tier finds stay, and take room. The rest is given away, to the block. */
START_TEST(frames_beyond_a_lower_capacity_are_found) {
    struct sw_stored stored, none = {0};
    struct sw_err err;
    for (uint64_t i = 1; i <= 3; i++)
        put(5000, i, &stored);
    config.capacity_bytes = 2 * 8192;
    reopen(0);
    ck_assert_uint_eq(found.n, 3);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 3 * 8192);
    ck_assert_uint_eq(sw_nvme_stats(tier).largest_free_bytes, 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &none, &err), -SW_ENOSPACE);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(get(&found.stored[i], found.seeds[i], NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        tier->ops->release(tier, &found.stored[i]);
    ck_assert_int_eq(tier->ops->reserve(tier, 8193, &none, &err), -SW_ENOSPACE);
    ck_assert_int_eq(tier->ops->reserve(tier, 8192, &stored, &err), 0);
    ck_assert_int_eq(tier->ops->reserve(tier, 1, &none, &err), -SW_ENOSPACE);
    tier->ops->release(tier, &stored);
    tier->ops->release(tier, &found.stored[2]);
}
END_TEST

/* Also those of a host whose name begins with this one's. */
START_TEST(objects_of_others_stay) {
    struct sw_stored stored;
    config.host = "this-host-2";
    tier->ops->close(tier);
    open_tier();
    put(1000, 5, &stored);
    config.host = "this-host";
    reopen(0);
    ck_assert_uint_eq(found.n, 0);
    struct sw_object_client *client;
    ck_assert_int_eq(sw_object_client_open(&client, &config.store, NULL), 0);
    struct sw_object_request request[2] = {{.verb = SW_OBJECT_PUT, .name = "frames/this-host/notes"},
                                           {.verb = SW_OBJECT_PUT, .name = "frames/this-host/-before-all"}};
    for (unsigned i = 0; i < 2; i++)
        ck_assert(sw_object_hash("", 0, request[i].hash));
    sw_object_run_all(client, request, 2);
    ck_assert_int_eq(request[0].err.code + request[1].err.code, 0);
    sw_object_client_close(client);
    put(1000, 6, &stored);
    reopen(0);
    ck_assert_uint_eq(found.n, 1); /* between them */
    ck_assert_uint_eq(info().foreign, 2);
    sw_object_store_await(&store, 4);
}
END_TEST

#define KEY "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

/* Each is as long as a frame of 16 bytes, or of none. Only the first has the name of one. */
START_TEST(a_name_that_is_almost_a_frames_is_foreign) {
    static const char *const names[] = {KEY "-10-1",
                                        KEY "-0-1",
                                        KEY "-10-1x",
                                        KEY "-10-1-1",
                                        KEY "-10-",
                                        KEY "-10",
                                        KEY "--1",
                                        KEY "-1g-1",
                                        KEY "-0x10-1",
                                        KEY "0-10-1",
                                        KEY "x10-1",
                                        KEY "-10x1",
                                        KEY "-11-1",
                                        "-10-1",
                                        KEY "-10-00000000000000001",
                                        KEY "-00000000000000010-1",
                                        "x" KEY "-10-1"};
    enum { N = sizeof names / sizeof names[0], BODY_BYTES = 32 };
    struct sw_object_request requests[N] = {{.verb = SW_OBJECT_PUT}};
    uint8_t body[BODY_BYTES] = {0};
    struct sw_object_client *client;
    ck_assert_uint_eq(sw_object_body_bytes(16), BODY_BYTES);
    ck_assert_int_eq(sw_object_client_open(&client, &config.store, NULL), 0);
    for (unsigned i = 0; i < N; i++) {
        const size_t bytes = i == 1 ? 0 : BODY_BYTES;
        requests[i] = (struct sw_object_request){.verb = SW_OBJECT_PUT, .body = body, .body_bytes = bytes};
        (void)snprintf(requests[i].name, sizeof requests[i].name, "frames/this-host/%s", names[i]);
        ck_assert(sw_object_hash(body, bytes, requests[i].hash));
    }
    sw_object_run_all(client, requests, N);
    sw_object_client_close(client);
    tier->ops->close(tier);
    open_tier();
    ck_assert_uint_eq(info().foreign, N - 1);
    sw_object_store_await(&store, N);
}
END_TEST

/* Whatever made it so short: it is no frame. */
START_TEST(an_object_that_was_cut_is_no_frame) {
    struct sw_stored stored;
    char name[600];
    put(1000, 5, &stored);
    sw_object_store_tell(&store, "cut %s 1", only_name(name));
    reopen(0);
    ck_assert_uint_eq(found.n, 0);
    ck_assert_uint_eq(info().foreign, 1);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    sw_object_store_await(&store, 1);
}
END_TEST

START_TEST(a_folder_is_used_by_one_process) {
    struct sw_tier *second = NULL;
    struct sw_err err;
    ck_assert_int_eq(sw_tier_remote_open(&second, &config, &err), -SW_EBUSY);
    ck_assert_ptr_nonnull(strstr(err.msg, "frames/this-host"));
    config.host = "Bad Name";
    ck_assert_int_eq(sw_tier_remote_open(&second, &config, &err), -SW_ECONFIG);
    config.host = "a-second";
    ck_assert_int_eq(sw_tier_remote_open(&second, &config, &err), 0);
    second->ops->close(second);
}
END_TEST

/* A tier that does not open closes nothing that it has not opened, such as the first descriptor. */
START_TEST(what_does_not_open_closes_nothing) {
    struct sw_tier *second = NULL;
    const int root = open("/", O_PATH | O_CLOEXEC);
    ck_assert_int_eq(dup2(root, STDIN_FILENO), STDIN_FILENO);
    config.tenants = "nobody";
    ck_assert_int_eq(sw_tier_remote_open(&second, &config, NULL), -SW_ECONFIG);
    ck_assert_int_ge(fcntl(STDIN_FILENO, F_GETFD), 0);
    (void)close(root);
}
END_TEST

START_TEST(frames_of_another_master_key_are_not_lost) {
    struct sw_err err;
    struct sw_stored stored;
    char other[600];
    put(1000, 5, &stored);
    (void)snprintf(other, sizeof other, "%s/other", folder.path);
    write_keys(other, "0000000000000000000000000000000000000000000000000000000000000001\n");
    const char *right = config.key_file;
    config.key_file = other;
    reopen(0);
    ck_assert_int_eq(get(&found.stored[0], 5, &err), -SW_EACCES);
    config.key_file = right;
    reopen(0);
    ck_assert_int_eq(get(&found.stored[0], 5, &err), 0);
    tier->ops->release(tier, &found.stored[0]);
}
END_TEST

/* ---- faults ---- */

static const struct {
    const char *verb, *kind;
} passing[] = {{"put", "500"},  {"put", "reset-early"}, {"put", "lost-reply"}, {"put", "alter"},
               {"get", "500"},  {"get", "reset-half"},  {"get", "truncate"},   {"get", "alter"},
               {"get", "slow"}, {"any", "reset"},       {"get", "longer"}};
enum { N_PASSING = sizeof passing / sizeof passing[0] };

START_TEST(what_passes_costs_nothing) {
    struct sw_stored stored;
    sw_object_store_tell(&store, "fault %s %s 2", passing[_i].verb, passing[_i].kind);
    put(FRAME_BYTES, 3, &stored);
    ck_assert_int_eq(get(&stored, 3, NULL), 0);
    tier->ops->release(tier, &stored);
    sw_object_store_await(&store, 0);
    ck_assert_uint_eq(info().orphans, 0);
}
END_TEST

START_TEST(an_altered_object_is_an_error_and_no_wrong_byte) {
    struct sw_stored stored;
    struct sw_err err;
    char name[600];
    put(FRAME_BYTES, 3, &stored);
    sw_object_store_tell(&store, "alter %s %u", only_name(name), 15 << 20);
    ck_assert_int_eq(get(&stored, 3, &err), -SW_ECHECKSUM);
    ck_assert_ptr_nonnull(strstr(err.msg, "content was altered"));
    /* The bad part three times; a busy machine may repeat others. */
    ck_assert_uint_ge(sw_object_store_count(&store, "get") - at_start.gets, PARTS + 2);
    sw_object_store_tell(&store, "alter %s %u", name, 15 << 20);
    ck_assert_int_eq(get(&stored, 3, &err), 0);
    tier->ops->release(tier, &stored);
}
END_TEST

/* Parts fail one after the other: at once, and in a second attempt. */
START_TEST(the_first_error_of_a_read_is_reported) {
    struct sw_stored stored;
    struct sw_err err;
    put(FRAME_BYTES, 3, &stored);
    sw_object_store_tell(&store, "fault get 403 1");
    sw_object_store_tell(&store, "fault get later %d", PARTS - 1); /* a second later */
    sw_object_store_tell(&store, "fault get 501 %d", PARTS - 1);
    ck_assert_int_eq(get(&stored, 3, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "not permitted"));
    sw_object_store_tell(&store, "calm");
    ck_assert_int_eq(get(&stored, 3, NULL), 0);
    tier->ops->release(tier, &stored);
}
END_TEST

START_TEST(an_object_that_is_gone_is_an_error) {
    struct sw_stored stored;
    struct sw_err err;
    char name[600];
    put(1000, 3, &stored);
    sw_object_store_tell(&store, "remove %s", only_name(name));
    ck_assert_int_eq(get(&stored, 3, &err), -SW_EIO);
    ck_assert_ptr_nonnull(strstr(err.msg, "there is no such object"));
    tier->ops->release(tier, &stored);
}
END_TEST

START_TEST(a_full_tier_and_a_full_bucket_are_ENOSPACE) {
    struct sw_stored stored, none = {0};
    struct sw_err err;
    ck_assert_int_eq(tier->ops->reserve(tier, config.capacity_bytes + 1, &none, &err), -SW_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(err.msg, "remote tier is full"));
    sw_object_store_tell(&store, "quota 2000");
    put(1000, 3, &stored);
    ck_assert_int_eq(sw_nvme_put(tier, 1000, 4, &none, &err), -SW_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(err.msg, "the bucket is full"));
    tier->ops->release(tier, &stored);
    sw_object_store_await(&store, 0);
}
END_TEST

START_TEST(during_an_outage_writes_fail_at_once_and_reads_wait) {
    struct sw_stored stored, none = {0};
    struct sw_err err;
    config.store.outage_us = 500000;
    reopen(0);
    put(FRAME_BYTES, 3, &stored);
    sw_object_store_tell(&store, "down");
    ck_assert_int_eq(sw_nvme_put(tier, 1000, 4, &none, &err), -SW_ENOSPACE);
    while (!info().is_out)
        (void)usleep(1000);
    const uint64_t from_us = sw_clock_us();
    ck_assert_int_eq(tier->ops->reserve(tier, 1000, &none, &err), -SW_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(err.msg, "the remote store is out: remote store: "));
    ck_assert_uint_lt(sw_clock_us() - from_us, 400000);
    sw_object_store_tell(&store, "up");
    ck_assert_int_eq(get(&stored, 3, &err), 0); /* it may have begun in the outage */
    while (info().is_out)
        (void)usleep(1000);
    tier->ops->release(tier, &stored);
    put(1000, 4, &stored);
    tier->ops->release(tier, &stored);
    sw_object_store_await(&store, 0);
}
END_TEST

static struct sw_tier_stats rates(void) {
    struct sw_tier_stats ret;
    tier->ops->stats(tier, &ret);
    return ret;
}

/* Bytes a second, in both directions; the first transfer has costs of its own. */
START_TEST(what_the_store_takes_and_gives_is_measured) {
    enum { BYTES = 1 << 20, TIMES = 3, LATENCY_MS = 50, MOST = BYTES / LATENCY_MS * 1000 };
    struct sw_stored stored[TIMES];
    sw_object_store_tell(&store, "latency %d", LATENCY_MS);
    ck_assert(rates().write_bytes_per_s == 0 && rates().read_bytes_per_s == 0);
    for (unsigned i = 0; i < TIMES; i++)
        put(BYTES, i, &stored[i]);
    ck_assert_uint_gt(rates().write_bytes_per_s, 0);
    ck_assert_uint_le(rates().write_bytes_per_s, MOST);
    ck_assert_uint_eq(rates().read_bytes_per_s, 0);
    for (unsigned i = 0; i < TIMES; i++)
        ck_assert_int_eq(get(&stored[i], i, NULL), 0);
    ck_assert_uint_gt(rates().read_bytes_per_s, 0);
    ck_assert_uint_le(rates().read_bytes_per_s, MOST);
    for (unsigned i = 0; i < TIMES; i++)
        tier->ops->release(tier, &stored[i]);
}
END_TEST

START_TEST(a_store_that_is_out_at_the_start_is_named) {
    struct sw_tier *second = NULL;
    struct sw_err err;
    config.store.patience_us = 300000;
    config.host = "a-second";
    sw_object_store_tell(&store, "down");
    ck_assert_int_eq(sw_tier_remote_open(&second, &config, &err), -SW_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, "remote store: "));
    ck_assert_ptr_null(second);
}
END_TEST

/* The store has the object, but never says so. */
START_TEST(what_may_have_been_stored_is_deleted) {
    struct sw_stored none = {0};
    struct sw_err err;
    config.store.patience_us = 300000;
    reopen(0);
    sw_object_store_tell(&store, "fault put lost-reply 1000");
    ck_assert_int_eq(sw_nvme_put(tier, 1000, 3, &none, &err), -SW_ENOSPACE);
    sw_object_store_tell(&store, "calm");
    sw_object_store_await(&store, 0);
}
END_TEST

START_TEST(objects_that_cannot_be_deleted_are_orphans_until_the_next_process) {
    struct sw_stored stored;
    put(1000, 3, &stored);
    sw_object_store_tell(&store, "fault delete 403 1");
    tier->ops->release(tier, &stored);
    while (info().orphans == 0)
        (void)usleep(1000);
    sw_object_store_await(&store, 1);
    reopen(3);
    sw_object_store_await(&store, 0);
}
END_TEST

/* ---- care ---- */

static struct sw_tier_care_state care(enum sw_tier_care what, bool changes) {
    struct sw_tier_care_state state = {.is_running = true};
    ck_assert_int_eq(tier->ops->care(tier, what, changes, NULL), 0);
    for (; state.is_running; tier->ops->care_state(tier, &state))
        (void)usleep(1000);
    return state;
}

START_TEST(orphans_are_found_and_then_deleted) {
    struct sw_stored stored[3];
    struct sw_tier_care_state state;
    tier->ops->care_state(tier, &state);
    ck_assert(!state.has_begun);
    for (uint64_t i = 0; i < 3; i++)
        put(1000, i + 1, &stored[i]);
    sw_object_store_tell(&store, "fault delete 403 1");
    tier->ops->release(tier, &stored[1]);
    while (info().orphans == 0)
        (void)usleep(1000);
    state = care(SW_TIER_CARE_GC, false);
    ck_assert_int_eq(state.err.code, 0);
    ck_assert_uint_eq(state.objects, 3);
    ck_assert_uint_eq(state.found, 1);
    ck_assert_uint_eq(state.found_bytes, 1016);
    ck_assert_uint_eq(state.changed, 0);
    sw_object_store_await(&store, 3);
    state = care(SW_TIER_CARE_GC, true);
    ck_assert_uint_eq(state.changed, 1);
    sw_object_store_await(&store, 2);
    ck_assert_int_eq(get(&stored[0], 1, NULL), 0);
    ck_assert_int_eq(get(&stored[2], 3, NULL), 0);
    ck_assert_uint_eq(care(SW_TIER_CARE_GC, true).found, 0);
    sw_object_store_tell(&store, "fault list 403 1");
    ck_assert_int_eq(care(SW_TIER_CARE_GC, true).err.code, -SW_EACCES);
    tier->ops->release(tier, &stored[0]);
    tier->ops->release(tier, &stored[2]);
}
END_TEST

START_TEST(a_new_master_key_rewraps_and_the_old_one_can_go) {
    struct sw_stored stored;
    struct sw_tier_care_state state;
    char path[600], keys[200], gone[600];
    if (sw_object_store_is_ours()) {
        put(1000, 4, &stored);
        (void)only_name(gone);
    }
    put(FRAME_BYTES, 5, &stored);
    (void)snprintf(path, sizeof path, "%s/rotated", folder.path);
    (void)snprintf(keys, sizeof keys, "%064x\n%064x\n", 2, 0x5117);
    write_keys(path, keys);
    config.key_file = path;
    reopen(0);
    ck_assert_uint_eq(found.n, sw_object_store_is_ours() ? 2 : 1);
    if (sw_object_store_is_ours())
        sw_object_store_tell(&store, "remove %s", gone); /* which ends no rewrap */
    state = care(SW_TIER_CARE_REWRAP, false);
    ck_assert_int_eq(state.err.code, 0);
    ck_assert_uint_eq(state.found, 1);
    ck_assert_uint_eq(state.changed, 0);
    const uint64_t sent_bytes = info().sent_bytes;
    state = care(SW_TIER_CARE_REWRAP, true);
    ck_assert_int_eq(state.err.code, 0);
    ck_assert_uint_eq(state.changed, 1);
    ck_assert_uint_eq(info().sent_bytes, sent_bytes); /* no body was sent */
    ck_assert_uint_eq(care(SW_TIER_CARE_REWRAP, true).found, 0);
    (void)snprintf(keys, sizeof keys, "%064x\n", 2);
    write_keys(path, keys);
    reopen(0);
    ck_assert_int_eq(get(&found.stored[0], 5, NULL), 0);
    tier->ops->release(tier, &found.stored[0]);
    sw_object_store_await(&store, 0);
}
END_TEST

/* ---- a process that is killed while it writes ---- */

static void live(unsigned i, int socket) {
    struct sw_stored stored;
    config.host = "killed";
    open_tier();
    put(1 << 20, 1, &stored);
    ck_assert_int_eq(write(socket, "x", 1), 1);
    (void)i;
    (void)sw_nvme_put(tier, FRAME_BYTES, 2, &stored, NULL);
    (void)pause();
    _exit(0);
}

/* Before the body is read, within it, after the object is there but before the reply, and after that. */
static const char *const states[] = {"stall-early", "stall", "lost-reply", "none"};
enum { N_STATES = sizeof states / sizeof states[0] };

START_TEST(a_killed_process_leaves_whole_frames_and_no_orphan) {
    char byte;
    tier->ops->close(tier); /* a process is forked without threads */
    sw_object_store_tell(&store, "fault put none %d",
                         SW_REMOTE_PROBE_RACERS + 1); /* the start's, and the first frame */
    sw_object_store_tell(&store, "fault put %s 1", states[_i]);
    const unsigned n_puts = sw_object_store_count(&store, "put") + SW_REMOTE_PROBE_RACERS;
    struct sw_child child = sw_child_begin(live, 0);
    sw_child_hear(&child, &byte, 1, "the writer");
    while (sw_object_store_count(&store, "put") < n_puts + 2)
        (void)usleep(1000);
    (void)usleep(20000u * (unsigned)_i);
    ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
    (void)close(child.socket);
    config.host = "killed";
    open_next(2); /* no catalogue names the second frame */
    ck_assert_uint_eq(found.n, 1);
    ck_assert_int_eq(get(&found.stored[0], 1, NULL), 0);
    (void)usleep(100000); /* a store may go on with what it has */
    (void)care(SW_TIER_CARE_GC, true);
    sw_object_store_await(&store, 1);
    tier->ops->release(tier, &found.stored[0]);
    sw_object_store_await(&store, 0);
}
END_TEST

/* ---- many at once, in a small pool ---- */

enum { FRAMES = 24 };

struct many {
    struct sw_stored stored[FRAMES];
    struct sw_tier_io io[FRAMES];
    struct sw_extent memory[FRAMES];
    unsigned n, n_ended;
    pthread_mutex_t lock;
    pthread_cond_t all;
};

static void count_end(struct sw_tier_io *io, void *arg) {
    struct many *many = arg;
    (void)io;
    (void)pthread_mutex_lock(&many->lock);
    if (++many->n_ended == many->n)
        (void)pthread_cond_signal(&many->all);
    (void)pthread_mutex_unlock(&many->lock);
}

static void submit_all(struct many *many, enum sw_tier_io_kind kind, uint64_t bytes) {
    many->n_ended = 0;
    for (unsigned i = 0; i < many->n; i++) {
        many->io[i] = (struct sw_tier_io){.kind = kind,
                                          .stored = &many->stored[i],
                                          .memory = &many->memory[i],
                                          .n_memory = 1,
                                          .done = count_end,
                                          .arg = many};
        many->io[i].key[0] = (uint8_t)i;
        if (kind == SW_TIER_READ)
            memset(many->memory[i].memory, 0, bytes);
        tier->ops->submit(tier, &many->io[i]);
    }
}

static void await_all(struct many *many) {
    (void)pthread_mutex_lock(&many->lock);
    while (many->n_ended < many->n)
        (void)pthread_cond_wait(&many->all, &many->lock);
    (void)pthread_mutex_unlock(&many->lock);
    for (unsigned i = 0; i < many->n; i++)
        ck_assert_int_eq(many->io[i].err.code, 0);
}

static void transfer_all(struct many *many, enum sw_tier_io_kind kind, uint64_t bytes) {
    submit_all(many, kind, bytes);
    await_all(many);
}

/* It goes alone. */
START_TEST(a_frame_may_be_longer_than_the_pool) {
    struct sw_stored stored[2];
    config.pool_bytes = 1 << 20;
    reopen(0);
    for (uint64_t i = 0; i < 2; i++)
        put(3 << 20, 1 + i, &stored[i]);
    for (uint64_t i = 0; i < 2; i++) {
        ck_assert_int_eq(get(&stored[i], 1 + i, NULL), 0);
        tier->ops->release(tier, &stored[i]);
    }
    ck_assert_uint_eq(info().buffer_used_bytes, 0);
}
END_TEST

START_TEST(the_pool_is_bounded) {
    static struct many many = {.n = FRAMES, .lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER};
    const uint64_t bytes = 2 << 20;
    config.pool_bytes = 5 << 20;
    reopen(0);
    for (unsigned i = 0; i < FRAMES; i++) {
        ck_assert_int_eq(tier->ops->reserve(tier, bytes, &many.stored[i], NULL), 0);
        many.memory[i] = (struct sw_extent){.memory = sw_nvme_buffer(bytes), .bytes = bytes};
        sw_nvme_fill(many.memory[i].memory, bytes, i);
    }
    transfer_all(&many, SW_TIER_WRITE, bytes);
    transfer_all(&many, SW_TIER_READ, bytes);
    ck_assert_uint_gt(info().buffer_peak_bytes, bytes);
    ck_assert_uint_le(info().buffer_peak_bytes, 5 << 20);
    ck_assert_uint_eq(info().buffer_used_bytes, 0);
    for (unsigned i = 0; i < FRAMES; i++) {
        ck_assert(sw_nvme_same(many.memory[i].memory, bytes, i));
        free(many.memory[i].memory);
        tier->ops->release(tier, &many.stored[i]);
    }
    sw_object_store_await(&store, 0);
}
END_TEST

/* So the next ones go as soon as the store has taken one of those that it can use. */
START_TEST(a_few_more_frames_are_encrypted_than_are_on_their_way) {
    enum { BYTES = 5 << 20 };
    static struct many many = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER};
    const unsigned n_few = sw_thread_cpus(4, 16), n_window = SW_REMOTE_WINDOW_LEAST_BYTES / BYTES;
    const unsigned n_sent = n_few > n_window ? n_few : n_window;
    char answer[16];
    config.pool_bytes = 256 << 20;
    config.capacity_bytes = 256 << 20;
    config.store.stall_us = 60000000; /* the store is silent for a while */
    reopen(0);
    many.n = n_sent + 4;
    for (unsigned i = 0; i < many.n; i++) {
        ck_assert_int_eq(tier->ops->reserve(tier, BYTES, &many.stored[i], NULL), 0);
        many.memory[i] = (struct sw_extent){.memory = sw_nvme_buffer(BYTES), .bytes = BYTES};
        sw_nvme_fill(many.memory[i].memory, BYTES, i);
    }
    sw_object_store_tell(&store, "hold");
    (void)sw_object_store_ask(&store, answer, sizeof answer, "busiest");
    submit_all(&many, SW_TIER_WRITE, BYTES);
    while (info().buffer_used_bytes < (uint64_t)(n_sent + 1) * BYTES)
        (void)usleep(1000);
    ck_assert_int_le(atoi(sw_object_store_ask(&store, answer, sizeof answer, "busiest")), (int)n_sent);
    sw_object_store_tell(&store, "go");
    await_all(&many);
    ck_assert_uint_eq(info().buffer_used_bytes, 0);
    for (unsigned i = 0; i < many.n; i++) {
        free(many.memory[i].memory);
        tier->ops->release(tier, &many.stored[i]);
    }
}
END_TEST

/* One frame is read as two parts. Of many reads only the first ones are. */
START_TEST(many_reads_take_fewer_requests) {
    static struct many many = {.n = 12, .lock = PTHREAD_MUTEX_INITIALIZER, .all = PTHREAD_COND_INITIALIZER};
    const uint64_t bytes = (8 << 20) + 1;
    struct sw_stored stored;
    put(bytes, 0, &stored);
    ck_assert_int_eq(get(&stored, 0, NULL), 0);
    ck_assert_uint_eq(info().gets - at_start.gets, 2);
    for (unsigned i = 0; i < many.n; i++) {
        many.stored[i] = stored;
        many.memory[i] = (struct sw_extent){.memory = sw_nvme_buffer(bytes), .bytes = bytes};
    }
    sw_object_store_tell(&store, "latency 100"); /* all are submitted before one ends */
    transfer_all(&many, SW_TIER_READ, bytes);
    ck_assert_uint_lt(info().gets - at_start.gets, 2 + 2 * many.n - many.n / 3);
    for (unsigned i = 0; i < many.n; i++) {
        ck_assert(sw_nvme_same(many.memory[i].memory, bytes, 0));
        free(many.memory[i].memory);
    }
    tier->ops->release(tier, &stored);
}
END_TEST

static uint64_t page_faults(void) {
    struct rusage usage;
    ck_assert_int_eq(getrusage(RUSAGE_SELF, &usage), 0);
    return (uint64_t)usage.ru_minflt;
}

START_TEST(memory_of_transfers_is_used_again) {
    enum { TIMES = 4 };
    struct sw_stored stored;
    uint64_t n_before = 0;
    config.pool_bytes = 128 << 20;
    reopen(0);
    uint8_t *buffer = sw_nvme_buffer(FRAME_BYTES);
    sw_nvme_fill(buffer, FRAME_BYTES, 1);
    for (unsigned i = 0; i <= TIMES; i++) {
        ck_assert_int_eq(tier->ops->reserve(tier, FRAME_BYTES, &stored, NULL), 0);
        ck_assert_int_eq(sw_nvme_transfer(tier, SW_TIER_WRITE, &stored, buffer, 0, NULL), 0);
        tier->ops->release(tier, &stored);
        n_before = i ? n_before : page_faults();
    }
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* shadow memory has faults of its own */
    ck_assert_uint_lt(page_faults() - n_before, TIMES * FRAME_BYTES / (unsigned)getpagesize() / 8);
#else
    (void)n_before;
#endif
    free(buffer);
}
END_TEST

/* They are decrypted as they come. */
START_TEST(reads_take_little_memory) {
    struct sw_stored stored;
    put(FRAME_BYTES, 1, &stored);
    reopen(0);
    stored = found.stored[0];
    ck_assert_int_eq(get(&stored, 1, NULL), 0);
    ck_assert_uint_ge(info().buffer_peak_bytes, SW_OBJECT_BUFFER_BYTES);
    ck_assert_uint_le(info().buffer_peak_bytes, PARTS * SW_OBJECT_BUFFER_BYTES);
    ck_assert_uint_eq(info().buffer_used_bytes, 0);
    tier->ops->release(tier, &stored);
}
END_TEST

/* Adds the tests that need no commands; they run with other stores, too. */
static void add_plain(TCase *tests) {
    tcase_add_loop_test(tests, a_frame_comes_back_and_goes, 0, N_LENGTHS);
    tcase_add_test(tests, the_next_process_finds_frames_and_releases_orphans);
    tcase_add_test(tests, a_new_master_key_rewraps_and_the_old_one_can_go);
    tcase_add_test(tests, the_pool_is_bounded);
    tcase_add_test(tests, a_frame_may_be_longer_than_the_pool);
}

static void add_others(TCase *tests) {
    tcase_add_test(tests, a_few_more_frames_are_encrypted_than_are_on_their_way);
    tcase_add_test(tests, many_reads_take_fewer_requests);
    tcase_add_test(tests, memory_of_transfers_is_used_again);
    tcase_add_test(tests, reads_take_little_memory);
    tcase_add_test(tests, no_object_is_longer_than_64_MiB);
    tcase_add_test(tests, what_the_store_has_is_encrypted);
    tcase_add_test(tests, frames_beyond_a_lower_capacity_are_found);
    tcase_add_test(tests, objects_of_others_stay);
    tcase_add_test(tests, a_name_that_is_almost_a_frames_is_foreign);
    tcase_add_test(tests, an_object_that_was_cut_is_no_frame);
    tcase_add_test(tests, a_folder_is_used_by_one_process);
    tcase_add_test(tests, what_does_not_open_closes_nothing);
    tcase_add_test(tests, frames_of_another_master_key_are_not_lost);
    tcase_add_loop_test(tests, what_passes_costs_nothing, 0, N_PASSING);
    tcase_add_test(tests, an_altered_object_is_an_error_and_no_wrong_byte);
    tcase_add_test(tests, the_first_error_of_a_read_is_reported);
    tcase_add_test(tests, an_object_that_is_gone_is_an_error);
    tcase_add_test(tests, a_full_tier_and_a_full_bucket_are_ENOSPACE);
    tcase_add_test(tests, during_an_outage_writes_fail_at_once_and_reads_wait);
    tcase_add_test(tests, what_the_store_takes_and_gives_is_measured);
    tcase_add_test(tests, a_store_that_is_out_at_the_start_is_named);
    tcase_add_test(tests, what_may_have_been_stored_is_deleted);
    tcase_add_test(tests, objects_that_cannot_be_deleted_are_orphans_until_the_next_process);
    tcase_add_test(tests, orphans_are_found_and_then_deleted);
    tcase_add_loop_test(tests, a_killed_process_leaves_whole_frames_and_no_orphan, 0, N_STATES);
}

int main(void) {
    sw_object_store_needed();
    TCase *tests = tcase_create("tier_remote");
    tcase_add_checked_fixture(tests, setup, teardown);
    add_plain(tests);
    if (sw_object_store_is_ours())
        add_others(tests);
    Suite *suite = suite_create("spill_tier_remote");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
