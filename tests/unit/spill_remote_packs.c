/* Packs of the remote tier: short frames that are written together come back as they were, each alone, and in the next
 * process; their object goes with the last of them. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/tier/remote/remote_pack.h"
#include "tests/lib/child.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { FRAMES = 40, NAMES_BYTES = FRAMES * 300, BLOCK = SW_TIER_IO_ALIGN };

static struct sw_object_store store;
static struct sw_nvme_folder folder;
static struct sw_tier_remote_config config;
static struct sw_tier *tier;

static struct frame {
    struct sw_stored stored;
    struct sw_tier_io io;
    struct sw_extent memory;
    uint64_t bytes;
} frames[FRAMES];
static unsigned n_left;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t all = PTHREAD_COND_INITIALIZER;

/* Of lengths from a byte to 64 KiB; frame i has seed i + 1. */
static uint64_t length_of(unsigned i) {
    return 1 + (uint64_t)i * 1663;
}

static void setup(void) {
    folder = sw_nvme_folder_new();
    store = sw_object_store_begin(false);
    config = sw_object_store_tier(&store, folder.path);
    tier = sw_object_store_open(&config);
    memset(frames, 0, sizeof frames);
}

static void teardown(void) {
    tier->ops->close(tier);
    sw_object_store_end(&store);
    sw_nvme_folder_free(&folder);
    ck_assert_int_eq(sw_alloc_live(), 0);
}

static void on_done(struct sw_tier_io *io, void *arg) {
    (void)io;
    (void)arg;
    (void)pthread_mutex_lock(&lock);
    if (--n_left == 0)
        (void)pthread_cond_signal(&all);
    (void)pthread_mutex_unlock(&lock);
}

static void prepare(unsigned i, bool is_alone) {
    struct frame *frame = &frames[i];
    const uint64_t seed = i + 1;
    frame->bytes = frame->bytes ? frame->bytes : length_of(i);
    ck_assert_int_eq(tier->ops->reserve(tier, frame->bytes, &frame->stored, NULL), 0);
    frame->memory =
        (struct sw_extent){.memory = sw_nvme_buffer(frame->bytes), .bytes = (frame->bytes + BLOCK - 1) / BLOCK * BLOCK};
    sw_nvme_fill(frame->memory.memory, frame->bytes, seed);
    frame->io = (struct sw_tier_io){.kind = SW_TIER_WRITE,
                                    .stored = &frame->stored,
                                    .memory = &frame->memory,
                                    .n_memory = 1,
                                    .is_alone = is_alone,
                                    .done = on_done};
    memcpy(frame->io.key, &seed, sizeof seed);
}

static void hold(bool is_held) {
    if (sw_object_store_is_ours())
        sw_object_store_tell(&store, is_held ? "hold" : "go");
}

static uint64_t used_buffers(void) {
    struct sw_tier_store_stats stats;
    tier->ops->store_stats(tier, &stats);
    return stats.buffer_used_bytes;
}

/* Begins to write n frames; the store waits for the last one, so all but the first wait for each other. */
static void begin(unsigned n, bool are_alone) {
    hold(true);
    n_left = n;
    for (unsigned i = 0; i < n; i++)
        prepare(i, are_alone);
    tier->ops->submit(tier, &frames[0].io);
    while (used_buffers() == 0)
        (void)usleep(100);
    for (unsigned i = 1; i < n; i++)
        tier->ops->submit(tier, &frames[i].io);
    hold(false);
}

static void await_all(void) {
    (void)pthread_mutex_lock(&lock);
    while (n_left > 0)
        (void)pthread_cond_wait(&all, &lock);
    (void)pthread_mutex_unlock(&lock);
}

static void await(unsigned n) {
    await_all();
    for (unsigned i = 0; i < n; i++)
        free(frames[i].memory.memory);
}

static void write_all(unsigned n, bool are_alone) {
    begin(n, are_alone);
    await(n);
    for (unsigned i = 0; i < n; i++)
        ck_assert_msg(frames[i].io.err.code == 0, "%s", frames[i].io.err.msg);
}

static int read_frame(struct sw_stored *stored, uint64_t seed) {
    uint8_t *buffer = sw_nvme_buffer(stored->bytes);
    const int rc = sw_nvme_transfer(tier, SW_TIER_READ, stored, buffer, 0, NULL);
    if (!rc)
        ck_assert(sw_nvme_same(buffer, stored->bytes, seed));
    free(buffer);
    return rc;
}

static void begin_read(unsigned i, uint8_t **ret) {
    struct frame *frame = &frames[i];
    frame->memory.memory = *ret = sw_nvme_buffer(frame->bytes);
    frame->io = (struct sw_tier_io){
        .kind = SW_TIER_READ, .stored = &frame->stored, .memory = &frame->memory, .n_memory = 1, .done = on_done};
    tier->ops->submit(tier, &frame->io);
}

/* Reads n frames at once, in their order; ret: a buffer of each. Those that have no room in the pool wait for each
 * other. */
static void read_all(unsigned n, uint8_t *ret[FRAMES]) {
    n_left = n;
    hold(true);
    for (unsigned i = 0; i < n; i++)
        begin_read(i, &ret[i]);
    hold(false);
    await_all();
}

static void release(unsigned i) {
    tier->ops->release(tier, &frames[i].stored);
}

static const char *names(void) {
    static char text[NAMES_BYTES];
    return sw_object_store_ask(&store, text, sizeof text, "names");
}

static unsigned count_objects(const char *of) {
    unsigned n = 0;
    for (const char *at = names(); (at = strstr(at, of)); at += strlen(of))
        n++;
    return n;
}

/* The name of the i-th of all n packs, and nothing behind it. */
static const char *pack_name_of(unsigned i, unsigned n) {
    static char name[600];
    ck_assert_uint_eq(count_objects("/packs/"), n);
    const char *begin = names(), *at = strstr(begin, "/packs/");
    while (i-- > 0)
        at = strstr(at + 1, "/packs/");
    while (at > begin && at[-1] != ' ')
        at--;
    (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(at, " "), at);
    return name;
}

static const char *pack_name(void) {
    return pack_name_of(0, 1);
}

static struct sw_nvme_recovered found;

static void reopen(uint64_t refuse) {
    tier->ops->close(tier);
    tier = sw_object_store_open(&config);
    found = (struct sw_nvme_recovered){.refuse = refuse};
    ck_assert_int_eq(tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = &found}, NULL),
                     0);
}

static uint64_t whole(unsigned first, unsigned end) {
    uint64_t bytes = 0;
    for (unsigned i = first; i < end; i++)
        bytes += (length_of(i) + BLOCK - 1) / BLOCK * BLOCK;
    return bytes;
}

/* ---- out and back ---- */

START_TEST(frames_that_wait_go_together) {
    const unsigned n_puts = sw_object_store_count(&store, "put");
    write_all(FRAMES, false);
    ck_assert_uint_eq(sw_object_store_count(&store, "put") - n_puts, 2);
    ck_assert_uint_eq(count_objects("/frames/"), 1);
    ck_assert_uint_eq(count_objects("/packs/this-host/27-"), 1); /* 39 frames */
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, FRAMES);
    for (unsigned i = FRAMES; i-- > 0;)
        ck_assert_int_eq(read_frame(&frames[i].stored, i + 1), 0);
    for (unsigned i = 0; i < FRAMES; i++)
        release(i);
    sw_object_store_await(&store, 0);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
    ck_assert_uint_eq(sw_nvme_stats(tier).wasted_bytes, 0);
}
END_TEST

START_TEST(some_frames_stay_alone) {
    write_all(8, true);
    ck_assert_uint_eq(count_objects("/frames/"), 8);
    for (unsigned i = 0; i < 8; i++)
        release(i);
    for (unsigned i = 0; i < 5; i++)
        frames[i].bytes = (4 << 20) + 1; /* longer than one in a pack may be */
    write_all(5, false);
    ck_assert_uint_eq(count_objects("/frames/"), 5);
    for (unsigned i = 0; i < 5; i++) {
        ck_assert_int_eq(read_frame(&frames[i].stored, i + 1), 0);
        release(i);
    }
    sw_object_store_await(&store, 0);
}
END_TEST

/* _i: which frame is damaged in the store; 0: none. FRAMES: two replies are altered on their way: if they are of one
 * part, a third one is read. */
START_TEST(frames_that_are_read_in_their_order_come_together) {
    uint8_t *read[FRAMES];
    const unsigned bad = _i == FRAMES ? 0 : (unsigned)_i;
    write_all(FRAMES, false);
    uint64_t at = sw_remote_pack_index_bytes(FRAMES - 1);
    for (unsigned i = 1; i < bad; i++)
        at += sw_object_body_bytes(frames[i].bytes);
    if (bad)
        sw_object_store_tell(&store, "alter %s %llu", pack_name(), (unsigned long long)at);
    config.pool_bytes = 1 << 20; /* four requests at once */
    reopen(0);
    for (unsigned i = 0; i < FRAMES; i++)
        frames[found.seeds[i] - 1].stored = found.stored[i];
    if (_i == FRAMES)
        sw_object_store_tell(&store, "fault get alter 2");
    const unsigned n_gets = sw_object_store_count(&store, "get");
    read_all(FRAMES, read);
    ck_assert_uint_le(sw_object_store_count(&store, "get") - n_gets, FRAMES / 2);
    for (unsigned i = 0; i < FRAMES; i++) {
        ck_assert_int_eq(frames[i].io.err.code, bad && i == bad ? -SW_ECHECKSUM : 0);
        ck_assert(frames[i].io.err.code || sw_nvme_same(read[i], frames[i].bytes, i + 1));
        free(read[i]);
    }
}
END_TEST

/* A few longer ones do not wait. Their pieces have several segments. */
START_TEST(longer_frames_share_packs) {
    for (unsigned i = 0; i < 8; i++)
        frames[i].bytes = (2 << 20) + 4097 * i - 5000 + 1;
    write_all(8, false);
    ck_assert_uint_le(count_objects("/frames/"), 5);
    ck_assert_uint_ge(count_objects("/packs/"), 1);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(read_frame(&frames[i].stored, i + 1), 0);
    reopen(0);
    ck_assert_uint_eq(found.n, 8);
    for (unsigned i = 0; i < 8; i++) {
        ck_assert_int_eq(read_frame(&found.stored[i], found.seeds[i]), 0);
        tier->ops->release(tier, &found.stored[i]);
    }
    sw_object_store_await(&store, 0);
}
END_TEST

/* What has gone with others does not count as waiting any more: later frames wait for each other like the first. */
START_TEST(later_packs_are_as_long) {
    enum { N = 12, ROUNDS = 4 };
    for (unsigned i = 0; i < N; i++)
        frames[i].bytes = 200000;
    for (unsigned round = 0; round < ROUNDS; round++) {
        const unsigned n_puts = sw_object_store_count(&store, "put");
        write_all(N, false);
        ck_assert_uint_eq(sw_object_store_count(&store, "put") - n_puts, 2);
        for (unsigned i = 0; i < N; i++)
            release(i);
    }
}
END_TEST

/* What was read together has ended together, so as many are read at once as before. */
START_TEST(frames_alone_are_read_at_once_after_packs) {
    enum { N = 24 }; /* more than may always be on their way */
    uint8_t *read[FRAMES];
    config.pool_bytes = (uint64_t)N * SW_OBJECT_BUFFER_BYTES;
    reopen(0);
    write_all(FRAMES, false);
    read_all(FRAMES, read);
    for (unsigned i = 0; i < FRAMES; i++)
        free(read[i]);
    write_all(N, true);
    hold(true);
    n_left = N;
    for (unsigned i = 0; i < N; i++)
        begin_read(i, &read[i]);
    const uint64_t until_us = sw_clock_us() + 10000000;
    while (used_buffers() < config.pool_bytes)
        ck_assert(sw_clock_us() < until_us && usleep(1000) == 0);
    hold(false);
    await_all();
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(frames[i].io.err.code, 0);
        free(read[i]);
    }
}
END_TEST

/* A pack takes at most a quarter of the pool. */
START_TEST(a_small_pool_makes_short_packs) {
    config.pool_bytes = 1 << 20;
    reopen(0);
    write_all(FRAMES, false);
    ck_assert_uint_ge(count_objects("/"), whole(0, FRAMES) / (256 << 10));
    for (unsigned i = 0; i < FRAMES; i++) {
        ck_assert_int_eq(read_frame(&frames[i].stored, i + 1), 0);
        release(i);
    }
}
END_TEST

/* ---- room ---- */

START_TEST(room_is_free_with_the_last_frame) {
    write_all(FRAMES, false);
    for (unsigned i = 1; i < FRAMES; i++) { /* those of the pack, the short ones first */
        const bool is = tier->ops->is_wasteful(tier, &frames[i].stored);
        ck_assert_int_eq(is, whole(i, FRAMES) < whole(1, FRAMES) / 2);
        ck_assert_uint_eq(sw_nvme_stats(tier).wasteful_bytes, is ? whole(i, FRAMES) : 0);
        ck_assert_int_eq(read_frame(&frames[i].stored, i + 1), 0);
        release(i);
        ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, BLOCK + (i + 1 < FRAMES ? whole(1, FRAMES) : 0));
        ck_assert_uint_eq(sw_nvme_stats(tier).wasted_bytes, i + 1 < FRAMES ? whole(1, i + 1) : 0);
    }
    ck_assert(!tier->ops->is_wasteful(tier, &frames[0].stored));
    sw_object_store_await(&store, 1);
    release(0);
}
END_TEST

/* ---- the next process ---- */

START_TEST(the_next_process_finds_them) {
    write_all(FRAMES, false);
    reopen(7);
    ck_assert_uint_eq(found.n, FRAMES - 1);
    ck_assert_uint_eq(sw_nvme_stats(tier).committed_frames, FRAMES - 1);
    if (sw_object_store_is_ours()) /* one that is fast may get it alone */
        ck_assert_uint_eq(sw_nvme_stats(tier).wasted_bytes, whole(6, 7));
    for (unsigned i = 0; i < found.n; i++) {
        ck_assert_uint_eq(found.stored[i].bytes, length_of((unsigned)found.seeds[i] - 1));
        ck_assert_int_eq(read_frame(&found.stored[i], found.seeds[i]), 0);
        tier->ops->release(tier, &found.stored[i]);
    }
    sw_object_store_await(&store, 0);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 0);
}
END_TEST

/* _i: which byte is altered. 0: of the index; then the start is refused, as the frames are not known. */
START_TEST(what_was_altered_is_noticed) {
    char name[600];
    struct sw_err err;
    write_all(FRAMES, false);
    (void)snprintf(name, sizeof name, "%s", pack_name());
    const uint64_t frame_at = sw_remote_pack_index_bytes(FRAMES - 1) + sw_object_body_bytes(length_of(1)) + 5;
    sw_object_store_tell(&store, "alter %s %llu", name, _i ? (unsigned long long)frame_at : 40ull);
    for (unsigned i = 1; i < FRAMES; i++)
        ck_assert_int_eq(read_frame(&frames[i].stored, i + 1), _i && i == 2 ? -SW_ECHECKSUM : 0);
    if (_i == 0) {
        struct sw_tier *next = NULL;
        tier->ops->close(tier);
        ck_assert_int_eq(sw_tier_remote_open(&next, &config, &err), -SW_ECHECKSUM);
        ck_assert_ptr_nonnull(strstr(err.msg, "packs/this-host/"));
        sw_object_store_tell(&store, "alter %s 40", name);
        tier = sw_object_store_open(&config);
    }
}
END_TEST

/* One damaged index is enough, whichever of the packs has it. _i: which one. */
START_TEST(no_index_of_several_may_be_damaged) {
    enum { PACKS = 3 };
    struct sw_tier *next = NULL;
    for (unsigned i = 0; i < PACKS; i++)
        write_all(FRAMES, false);
    const char *name = pack_name_of((unsigned)_i, PACKS);
    sw_object_store_tell(&store, "alter %s 40", name);
    tier->ops->close(tier);
    ck_assert_int_eq(sw_tier_remote_open(&next, &config, NULL), -SW_ECHECKSUM);
    sw_object_store_tell(&store, "alter %s 40", name);
    tier = sw_object_store_open(&config);
}
END_TEST

/* Objects that a name or a length makes no packs of ours. A name counts although the length is as it says. */
START_TEST(others_objects_are_no_packs) {
    static const struct {
        const char *name;
        uint64_t bytes;
    } bad[] = {{"0-100-1", 0x100},   {"201-ffff-1", 0xffff}, {"2-70-1", 0x70},
               {"2-5000-1", 0x4fff}, {"2-5000-2", 0x5001},   {"2-ffffffffffff-1", 0},
               {"2-5-", 5},          {"x-100-1", 0x100},     {"notes", 0x100},
               {"1-100-1-1", 0x100}, {"1-100-1x", 0x100},    {"1-100-", 0x100},
               {"1-100", 0x100},     {"1x100-1", 0x100},     {"100000001-5000-1", 0x5000},
               {"1--1", 0}};
    enum { N = sizeof bad / sizeof bad[0], MOST_BYTES = 1 << 16 };
    struct sw_object_client *client;
    uint8_t *body = sw_nvme_buffer(MOST_BYTES);
    struct sw_object_request requests[N] = {{.verb = SW_OBJECT_PUT}};
    ck_assert_int_eq(sw_object_client_open(&client, &config.store, NULL), 0);
    for (unsigned i = 0; i < N; i++) {
        requests[i] =
            (struct sw_object_request){.verb = SW_OBJECT_PUT, .body = body, .body_bytes = (size_t)bad[i].bytes};
        (void)snprintf(requests[i].name, sizeof requests[i].name, "packs/this-host/%s", bad[i].name);
        ck_assert(sw_object_hash(body, requests[i].body_bytes, requests[i].hash));
    }
    sw_object_run_all(client, requests, N);
    sw_object_client_close(client);
    free(body);
    struct sw_tier_store_stats stats;
    reopen(0);
    tier->ops->store_stats(tier, &stats);
    ck_assert_uint_eq(found.n, 0);
    ck_assert_uint_eq(stats.foreign, N);
    sw_object_store_await(&store, N);
}
END_TEST

/* Puts a pack of one frame into the store. */
static void put_pack(uint64_t frame_bytes) {
    const struct sw_remote_pack_entry entry = {.number = 1, .bytes = frame_bytes};
    const uint64_t body_bytes = sw_remote_pack_index_bytes(1) + sw_object_body_bytes(frame_bytes);
    struct sw_remote_pack *pack = sw_remote_pack_new("packs/this-host/", 1, 1, body_bytes);
    const struct sw_extent frame = {.memory = sw_nvme_buffer(frame_bytes), .bytes = frame_bytes};
    const struct sw_extent *const frames_of[] = {&frame};
    struct sw_object_request request = {
        .verb = SW_OBJECT_PUT, .body = sw_nvme_buffer(body_bytes), .body_bytes = body_bytes};
    struct sw_object_client *client;
    struct sw_object_keyring *keyring;
    ck_assert_int_eq(sw_object_client_open(&client, &config.store, NULL), 0);
    ck_assert_int_eq(sw_object_keyring_open(&keyring, config.key_file, NULL), 0);
    memcpy(request.name, pack->name, sizeof request.name);
    ck_assert_int_eq(sw_remote_pack_seal(keyring, &entry, frames_of, 1, &request, NULL), 0);
    ck_assert_int_eq(sw_object_run(client, &request), 0);
    sw_object_keyring_close(keyring);
    sw_object_client_close(client);
    sw_free(pack);
    free(request.body);
    free(frame.memory);
}

/* What no version of ours puts into a pack is damage, though it adds up. */
START_TEST(frames_of_a_pack_have_a_longest_length) {
    struct sw_err err;
    put_pack(SW_REMOTE_PACK_FRAME_BYTES);
    reopen(7); /* its key is 0 */
    ck_assert_uint_eq(found.n, 1);
    tier->ops->release(tier, &found.stored[0]);
    sw_object_store_await(&store, 0);
    tier->ops->close(tier);
    put_pack(SW_REMOTE_PACK_FRAME_BYTES + 1);
    ck_assert_int_eq(sw_tier_remote_open(&tier, &config, &err), -SW_ECHECKSUM);
    ck_assert_ptr_nonnull(strstr(err.msg, "index is damaged"));
    sw_object_store_tell(&store, "remove %s", pack_name());
    tier = sw_object_store_open(&config);
}
END_TEST

/* ---- failures ---- */

/* _i 0: the store refuses the pack. 1: it has it, but its reply is lost, for good. */
START_TEST(a_pack_that_cannot_be_written_fails_all_its_frames) {
    sw_object_store_tell(&store, "fault put none 1"); /* the first frame alone */
    sw_object_store_tell(&store, "fault put %s", _i ? "lost-reply 1" : "403 1");
    if (_i)
        sw_object_store_tell(&store, "fault put 403 1");
    begin(FRAMES, false);
    await(FRAMES);
    ck_assert_int_eq(frames[0].io.err.code, 0);
    for (unsigned i = 1; i < FRAMES; i++) {
        ck_assert_int_eq(frames[i].io.err.code, -SW_EACCES);
        ck_assert(!frames[i].stored.committed);
        release(i);
    }
    sw_object_store_await(&store, 1);
    ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, BLOCK);
    ck_assert_int_eq(read_frame(&frames[0].stored, 1), 0);
    release(0);
}
END_TEST

/* An allocation of the pack's own fails, each in turn. */
START_TEST(out_of_memory_ends_the_frames) {
    bool failed = true;
    for (unsigned k = 1; failed; k++) {
        begin(3, false);
        sw_alloc_fail_nth(k);
        await(3);
        sw_alloc_fail_nth(0);
        failed = false;
        for (unsigned i = 0; i < 3; i++) {
            const int code = frames[i].io.err.code;
            ck_assert(code == 0 || code == -SW_ENOMEM);
            failed |= code != 0;
            release(i);
        }
        ck_assert_uint_lt(k, 30);
    }
    sw_object_store_await(&store, 0);
}
END_TEST

static void live(unsigned i, int socket) {
    (void)i;
    config.host = "killed";
    tier = sw_object_store_open(&config);
    begin(FRAMES, false);
    ck_assert_int_eq(write(socket, "x", 1), 1);
    (void)pause();
    _exit(0);
}

/* Before the pack's body is read, within it, after the object is there but before the reply. */
static const char *const states[] = {"stall-early", "stall", "lost-reply"};
enum { N_STATES = sizeof states / sizeof states[0] };

/* Returns how many requests the store had at once since the last call. */
static unsigned busiest(void) {
    char text[16];
    return (unsigned)strtoul(sw_object_store_ask(&store, text, sizeof text, "busiest"), NULL, 10);
}

/* The store may go on with what it has of a process that is gone. */
static void await_idle(void) {
    (void)busiest();
    while (busiest() > 0)
        (void)usleep(1000);
}

START_TEST(a_killed_process_leaves_all_frames_of_a_pack_or_none) {
    char byte;
    tier->ops->close(tier); /* a process is forked without threads */
    sw_object_store_tell(&store, "fault put none %d", 16 + 1);
    sw_object_store_tell(&store, "fault put %s 1", states[_i]);
    const unsigned n_puts = sw_object_store_count(&store, "put");
    struct sw_child child = sw_child_begin(live, 0);
    sw_child_hear(&child, &byte, 1, "the writer");
    while (sw_object_store_count(&store, "put") < n_puts + 16 + 2)
        (void)usleep(1000);
    (void)usleep(20000);
    ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
    (void)close(child.socket);
    config.host = "killed";
    if (strcmp(states[_i], "stall") != 0) /* this takes seconds, and creates nothing */
        await_idle();
    tier = sw_object_store_open(&config);
    reopen(0);
    ck_assert_msg(found.n == 1 || found.n == FRAMES, "%u", found.n);
    for (unsigned i = 0; i < found.n; i++) {
        ck_assert_int_eq(read_frame(&found.stored[i], found.seeds[i]), 0);
        tier->ops->release(tier, &found.stored[i]);
    }
    sw_object_store_await(&store, 0);
}
END_TEST

/* ---- care ---- */

static struct sw_tier_care_state care(enum sw_tier_care what) {
    struct sw_tier_care_state state = {.is_running = true};
    ck_assert_int_eq(tier->ops->care(tier, what, true, NULL), 0);
    for (; state.is_running; tier->ops->care_state(tier, &state))
        (void)usleep(1000);
    ck_assert_int_eq(state.err.code, 0);
    return state;
}

START_TEST(gc_and_a_new_master_key_see_packs) {
    char path[600];
    write_all(FRAMES, false);
    ck_assert_uint_eq(care(SW_TIER_CARE_GC).found, 0);
    (void)snprintf(path, sizeof path, "%s/rotated", folder.path);
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_eq(fchmod(fileno(file), 0600), 0);
    ck_assert_int_gt(fprintf(file, "%064x\n%064x\n", 2, 0x5117), 0);
    ck_assert_int_eq(fclose(file), 0);
    config.key_file = path;
    reopen(0);
    ck_assert_uint_eq(care(SW_TIER_CARE_REWRAP).changed, 2);
    ck_assert_uint_eq(care(SW_TIER_CARE_REWRAP).found, 0);
    sw_object_store_tell(&store, "fault delete 403 1");
    for (unsigned i = 0; i < found.n; i++) {
        ck_assert_int_eq(read_frame(&found.stored[i], found.seeds[i]), 0);
        if (found.seeds[i] > 1)
            tier->ops->release(tier, &found.stored[i]);
    }
    struct sw_tier_store_stats stats = {.orphans = 0};
    for (; stats.orphans == 0; tier->ops->store_stats(tier, &stats))
        (void)usleep(1000);
    ck_assert_uint_eq(care(SW_TIER_CARE_GC).changed, 1);
    sw_object_store_await(&store, 1);
}
END_TEST

/* Those that need a store that takes commands. */
static void add_others(TCase *tests) {
    tcase_add_test(tests, frames_that_wait_go_together);
    tcase_add_test(tests, some_frames_stay_alone);
    tcase_add_loop_test(tests, frames_that_are_read_in_their_order_come_together, 0, 3);
    tcase_add_loop_test(tests, frames_that_are_read_in_their_order_come_together, FRAMES - 1, FRAMES + 1);
    tcase_add_test(tests, longer_frames_share_packs);
    tcase_add_test(tests, later_packs_are_as_long);
    tcase_add_test(tests, frames_alone_are_read_at_once_after_packs);
    tcase_add_test(tests, a_small_pool_makes_short_packs);
    tcase_add_test(tests, room_is_free_with_the_last_frame);
    tcase_add_loop_test(tests, what_was_altered_is_noticed, 0, 2);
    tcase_add_loop_test(tests, no_index_of_several_may_be_damaged, 0, 3);
    tcase_add_test(tests, others_objects_are_no_packs);
    tcase_add_test(tests, frames_of_a_pack_have_a_longest_length);
    tcase_add_loop_test(tests, a_pack_that_cannot_be_written_fails_all_its_frames, 0, 2);
    tcase_add_test(tests, out_of_memory_ends_the_frames);
    tcase_add_loop_test(tests, a_killed_process_leaves_all_frames_of_a_pack_or_none, 0, N_STATES);
    tcase_add_test(tests, gc_and_a_new_master_key_see_packs);
}

int main(void) {
    sw_object_store_needed();
    TCase *tests = tcase_create("packs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_next_process_finds_them);
    if (sw_object_store_is_ours())
        add_others(tests);
    Suite *suite = suite_create("spill_remote_packs");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
