/* Records of regions that the remote tier keeps: the next process finds them, whatever the store and the network did;
 * one name is one host's; a bucket that lets several creates win is known. */
#include "base/alloc.h"
#include "spill/tier/remote/remote_probe.h"
#include "tests/lib/child.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"

#include <check.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { UID = 1000, MOST = 8, CONTENT_BYTES = 700 };

static struct sw_object_store store;
static struct sw_nvme_folder folder;
static struct sw_tier_remote_config config;
static struct sw_tier *tier;

static void open_tier(void) {
    tier = sw_object_store_open(&config);
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

static void reopen(void) {
    tier->ops->close(tier);
    open_tier();
}

/* ---- changes ---- */

struct attempt {
    struct sw_tier_change change;
    struct sw_tier_record records[MOST];
    pthread_mutex_t lock;
    pthread_cond_t ended;
    bool has_ended;
};

static void on_done(struct sw_tier_change *change, void *arg) {
    struct attempt *attempt = arg;
    (void)change;
    (void)pthread_mutex_lock(&attempt->lock);
    attempt->has_ended = true;
    (void)pthread_cond_signal(&attempt->ended);
    (void)pthread_mutex_unlock(&attempt->lock);
}

static void begin(struct sw_tier *of, struct attempt *attempt, enum sw_tier_change_kind kind, unsigned n) {
    attempt->change =
        (struct sw_tier_change){.kind = kind, .records = attempt->records, .n = n, .done = on_done, .arg = attempt};
    (void)pthread_mutex_init(&attempt->lock, NULL);
    (void)pthread_cond_init(&attempt->ended, NULL);
    attempt->has_ended = false;
    of->ops->change(of, &attempt->change);
}

static int end(struct attempt *attempt) {
    (void)pthread_mutex_lock(&attempt->lock);
    while (!attempt->has_ended)
        (void)pthread_cond_wait(&attempt->ended, &attempt->lock);
    (void)pthread_mutex_unlock(&attempt->lock);
    return attempt->change.err.code;
}

static uint8_t content[CONTENT_BYTES];

static void name_all(struct attempt *attempt, const char *const *names, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        attempt->records[i] =
            (struct sw_tier_record){.content = content, .bytes = CONTENT_BYTES, .uid = UID, .name = names[i]};
    for (unsigned i = 0; i < CONTENT_BYTES; i++)
        content[i] = (uint8_t)(i * 7);
}

static int keep(struct attempt *attempt, const char *const *names, unsigned n) {
    name_all(attempt, names, n);
    begin(tier, attempt, SW_TIER_KEEP, n);
    return end(attempt);
}

static int keep_one(struct attempt *attempt, const char *name) {
    return keep(attempt, &name, 1);
}

static int forget(uint64_t number) {
    struct attempt attempt = {.records = {{.number = number}}};
    begin(tier, &attempt, SW_TIER_FORGET, 1);
    return end(&attempt);
}

/* ---- what is found ---- */

static char found[64 * MOST];
static unsigned n_found;
static uint64_t numbers[MOST];

static int take(void *arg, const struct sw_tier_record *record, struct sw_err *err) {
    (void)arg;
    (void)err;
    ck_assert_uint_eq(record->uid, UID);
    ck_assert_uint_eq(record->bytes, CONTENT_BYTES);
    ck_assert_int_eq(memcmp(record->content, content, CONTENT_BYTES), 0);
    (void)strcat(strcat(found, found[0] ? " " : ""), record->name);
    numbers[n_found++] = record->number;
    return 0;
}

/* Returns the names in the order in which they were kept. */
static const char *find(void) {
    found[0] = 0;
    n_found = 0;
    ck_assert_int_eq(tier->ops->visit_kept(tier, take, NULL, NULL), 0);
    return found;
}

static struct sw_tier_store_stats info(void) {
    struct sw_tier_store_stats ret;
    tier->ops->store_stats(tier, &ret);
    return ret;
}

/* The wall clock stands at this second, or goes if 0. */
static atomic_long stands_at_s;

int clock_gettime(clockid_t clock, struct timespec *ret) {
    const long at_s = atomic_load(&stands_at_s);
    if (clock != CLOCK_REALTIME || !at_s)
        return (int)syscall(SYS_clock_gettime, clock, ret);
    *ret = (struct timespec){.tv_sec = at_s};
    return 0;
}

static const char *const three[] = {"zoo", "a/../b ", "\xc3\xa4"};

START_TEST(the_next_process_finds_records_in_order) {
    struct attempt attempt;
    ck_assert_str_eq(find(), "");
    ck_assert_int_eq(keep_one(&attempt, "first"), 0);
    ck_assert_uint_ne(attempt.records[0].number, 0);
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    ck_assert_int_eq(keep_one(&attempt, "and another"), 0);
    sw_object_store_await(&store, 6); /* one is the batch's */
    for (unsigned i = 0; i < 2; i++) {
        reopen();
        ck_assert_str_eq(find(), "first zoo a/../b  \xc3\xa4 and another");
        ck_assert_str_eq(find(), "first zoo a/../b  \xc3\xa4 and another");
    }
    ck_assert_int_eq(forget(numbers[0]), 0);
    ck_assert_int_eq(forget(numbers[2]), 0);
    reopen();
    ck_assert_str_eq(find(), "zoo \xc3\xa4 and another");
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(forget(numbers[i]), 0);
    sw_object_store_await(&store, 0);
    reopen();
    ck_assert_str_eq(find(), "");
}
END_TEST

/* The order is that in which they were kept, also of those of one moment, and across starts. */
START_TEST(a_clock_that_stands_or_goes_back_keeps_the_order) {
    struct attempt attempt;
    const long now_s = time(NULL);
    atomic_store(&stands_at_s, now_s);
    ck_assert_int_eq(keep_one(&attempt, "zz"), 0);
    ck_assert_int_eq(keep_one(&attempt, "y"), 0);
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    atomic_store(&stands_at_s, now_s - 60);
    ck_assert_int_eq(keep_one(&attempt, "x"), 0);
    for (unsigned i = 0; i < 2; i++) {
        reopen();
        ck_assert_str_eq(find(), i ? "zz y zoo a/../b  \xc3\xa4 x 0" : "zz y zoo a/../b  \xc3\xa4 x");
        if (i == 0)
            ck_assert_int_eq(keep_one(&attempt, "0"), 0);
    }
    atomic_store(&stands_at_s, 0);
}
END_TEST

START_TEST(the_bucket_shows_no_names) {
    struct attempt attempt;
    char names[4096];
    ck_assert_int_eq(keep_one(&attempt, "customers"), 0);
    (void)sw_object_store_ask(&store, names, sizeof names, "names");
    ck_assert_int_eq(strncmp(names, "some/where/names/this-host.1000/", 32), 0);
    ck_assert_ptr_null(strstr(names, "customers"));
    ck_assert_uint_eq(strlen(names), 32 + 64 + 1 + 16);
}
END_TEST

START_TEST(a_batch_without_its_object_does_not_count) {
    struct attempt attempt;
    char names[4096], *at;
    ck_assert_int_eq(keep_one(&attempt, "single"), 0);
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    (void)sw_object_store_ask(&store, names, sizeof names, "names");
    ck_assert_int_eq(strncmp(names, "some/where/batches/this-host/", 29), 0);
    at = strchr(names, ' ');
    *at = 0;
    sw_object_store_tell(&store, "remove %s", names); /* as if the process had been killed before */
    reopen();
    ck_assert_str_eq(find(), "single");
    sw_object_store_await(&store, 1);
}
END_TEST

/* As if the process had been killed when the last of its records had been deleted. */
START_TEST(the_object_of_a_batch_without_records_is_deleted) {
    struct attempt attempt;
    char names[4096];
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    (void)sw_object_store_ask(&store, names, sizeof names, "names");
    for (const char *name = strtok(names, " "); name; name = strtok(NULL, " "))
        if (strstr(name, "/names/"))
            sw_object_store_tell(&store, "remove %s", name);
    sw_object_store_await(&store, 1);
    reopen();
    ck_assert_str_eq(find(), "");
    sw_object_store_await(&store, 0);
}
END_TEST

/* _i: which of the four creates fails at each try; it may be the batch's object. */
START_TEST(a_batch_that_fails_leaves_nothing) {
    struct attempt attempt;
    const unsigned n_puts = sw_object_store_count(&store, "put");
    sw_object_store_tell(&store, "fault put none %d", _i);
    sw_object_store_tell(&store, "fault put 403 1");
    ck_assert_int_eq(keep(&attempt, three, 3), -SW_EACCES);
    sw_object_store_await(&store, 0);
    ck_assert_uint_eq(sw_object_store_count(&store, "put") - n_puts, _i < 3 ? 3 : 4); /* no batch of some records */
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    reopen();
    ck_assert_str_eq(find(), "zoo a/../b  \xc3\xa4");
}
END_TEST

/* ---- faults ---- */

static const char *const passing[] = {"lost-reply", "409", "500", "reset", "reset-early", "alter", "slow"};
enum { N_PASSING = sizeof passing / sizeof passing[0] };

START_TEST(what_passes_costs_nothing) {
    struct attempt attempt;
    sw_object_store_tell(&store, "fault put %s 2", passing[_i]);
    ck_assert_int_eq(keep_one(&attempt, "a"), 0);
    sw_object_store_await(&store, 1);
    reopen();
    ck_assert_str_eq(find(), "a");
    sw_object_store_tell(&store, "fault delete %s 2", passing[_i]);
    ck_assert_int_eq(forget(numbers[0]), 0);
    sw_object_store_await(&store, 0);
}
END_TEST

/* The store has the object of the batch at the first attempt, but says so only at the second: it exists. */
START_TEST(a_batch_whose_reply_was_lost_counts) {
    struct attempt attempt;
    sw_object_store_tell(&store, "fault put none 3");
    sw_object_store_tell(&store, "fault put lost-reply 1");
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    sw_object_store_await(&store, 4);
    reopen();
    ck_assert_str_eq(find(), "zoo a/../b  \xc3\xa4");
}
END_TEST

/* A proxy has sent the record again, so the store says that it exists. It is ours, and goes if another one fails. */
START_TEST(a_record_that_was_sent_twice_is_ours) {
    struct attempt attempt;
    sw_object_store_tell(&store, "fault put twice 1");
    ck_assert_int_eq(keep_one(&attempt, "a"), 0);
    ck_assert_int_eq(forget(attempt.records[0].number), 0);
    sw_object_store_await(&store, 0);
    sw_object_store_tell(&store, "fault put twice 1");
    sw_object_store_tell(&store, "fault put 403 1");
    ck_assert_int_eq(keep(&attempt, three, 3), -SW_EACCES);
    sw_object_store_await(&store, 0);
}
END_TEST

START_TEST(an_outage_fails_the_change_and_leaves_no_record) {
    struct attempt attempt;
    config.store.patience_us = 300000;
    reopen();
    ck_assert_int_eq(keep_one(&attempt, "a"), 0);
    const uint64_t number = attempt.records[0].number;
    sw_object_store_tell(&store, "down");
    ck_assert_int_eq(keep_one(&attempt, "b"), -SW_ETIMEDOUT);
    ck_assert_int_eq(forget(number), -SW_ETIMEDOUT);
    sw_object_store_tell(&store, "up");
    reopen();
    ck_assert_str_eq(find(), "a");
    ck_assert_int_eq(forget(numbers[0]), 0);
}
END_TEST

/* The store has the objects, but never says so. */
START_TEST(what_may_have_been_stored_is_deleted) {
    struct attempt attempt;
    config.store.patience_us = 300000;
    reopen();
    sw_object_store_tell(&store, "fault put lost-reply %d", _i);
    sw_object_store_tell(&store, "fault put 500 1000");
    ck_assert_int_eq(keep(&attempt, three, (unsigned)_i), -SW_EIO);
    sw_object_store_tell(&store, "calm");
    sw_object_store_await(&store, 0);
    ck_assert_str_eq(find(), "");
}
END_TEST

static void live(unsigned i, int socket) {
    struct attempt attempt;
    (void)i;
    open_tier();
    if (keep(&attempt, three, 3) == 0)
        (void)send(socket, "x", 1, 0);
    (void)pause();
    _exit(0);
}

/* Before the body is read, after that, after the object is there but before the reply, and after the reply. */
static const char *const states[] = {"stall-early", "stall", "lost-reply", "none"};
enum { N_STATES = sizeof states / sizeof states[0] };

/* Killed in each state of a record's creation (_i < N_STATES) and of that of the batch's object, which is the last. */
START_TEST(a_process_that_is_killed_keeps_all_of_a_batch_or_nothing) {
    const unsigned n_before = _i < N_STATES ? 0 : 3;
    struct attempt expected;
    char byte;
    name_all(&expected, three, 3);
    tier->ops->close(tier); /* a process is forked without threads */
    sw_object_store_tell(&store, "fault put none %u", SW_REMOTE_PROBE_RACERS + n_before);
    sw_object_store_tell(&store, "fault put %s 1", states[_i % N_STATES]);
    const unsigned n_puts = sw_object_store_count(&store, "put") + SW_REMOTE_PROBE_RACERS;
    struct sw_child child = sw_child_begin(live, 0);
    while (sw_object_store_count(&store, "put") < n_puts + n_before + 1)
        (void)usleep(1000);
    (void)usleep(20000);
    ck_assert_int_eq(kill(child.pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(child.pid, NULL, 0), child.pid);
    const bool is_reported = recv(child.socket, &byte, 1, MSG_DONTWAIT) == 1;
    (void)close(child.socket);
    (void)usleep(_i % N_STATES == 0 ? 700000 : 50000); /* the store goes on; what comes later is an orphan */
    sw_object_store_tell(&store, "calm");
    open_tier();
    (void)find();
    ck_assert_uint_eq(n_found, is_reported || n_found ? 3 : 0);
    ck_assert(n_found == 0 || strcmp(found, "zoo a/../b  \xc3\xa4") == 0);
    sw_object_store_await(&store, n_found ? 4 : 0);
    for (unsigned i = 0; i < n_found; i++)
        ck_assert_int_eq(forget(numbers[i]), 0);
    sw_object_store_await(&store, 0);
}
END_TEST

START_TEST(records_that_cannot_be_read_fail_the_start) {
    struct attempt attempt;
    struct sw_err err;
    char name[600], other[600];
    ck_assert_int_eq(keep_one(&attempt, "a"), 0);
    (void)sw_object_store_ask(&store, name, sizeof name, "names");
    tier->ops->close(tier);
    sw_object_store_tell(&store, "alter %s 200", name);
    ck_assert_int_eq(sw_tier_remote_open(&tier, &config, &err), -SW_ECHECKSUM);
    ck_assert_ptr_nonnull(strstr(err.msg, "content was altered: names/this-host.1000/"));
    sw_object_store_tell(&store, "alter %s 200", name);
    (void)snprintf(other, sizeof other, "%s/other", folder.path);
    FILE *file = fopen(other, "we");
    ck_assert(file && fprintf(file, "%064x\n", 1) == 65 && fclose(file) == 0 && chmod(other, 0600) == 0);
    const char *right = config.key_file;
    config.key_file = other;
    ck_assert_int_eq(sw_tier_remote_open(&tier, &config, &err), -SW_EACCES);
    config.key_file = right;
    open_tier();
    ck_assert_str_eq(find(), "a");
}
END_TEST

/* Another host has dropped it since it was listed. */
START_TEST(a_record_that_goes_during_the_start_is_none) {
    struct attempt attempt;
    ck_assert_int_eq(keep_one(&attempt, "a"), 0);
    ck_assert_int_eq(keep_one(&attempt, "b"), 0);
    sw_object_store_tell(&store, "fault get none 1"); /* the probe's */
    sw_object_store_tell(&store, "fault get 404 1");
    reopen();
    (void)find();
    ck_assert_uint_eq(n_found, 1);
    reopen();
    ck_assert_str_eq(find(), "a b");
}
END_TEST

/* ---- tenants of several hosts ---- */

static struct sw_tier *open_host(const char *host) {
    struct sw_tier_remote_config other = config;
    other.host = host;
    return sw_object_store_open(&other);
}

static void share(void) {
    config.tenants = "7=seven 1000=etl";
    reopen();
}

static int keep_in(struct sw_tier *of, struct attempt *attempt, const char *name) {
    name_all(attempt, &name, 1);
    begin(of, attempt, SW_TIER_KEEP, 1);
    return end(attempt);
}

START_TEST(a_name_of_a_shared_tenant_is_one_hosts) {
    struct attempt attempt;
    share();
    ck_assert_int_eq(tier->ops->may_keep(tier, UID, NULL), 0);
    struct sw_tier *second = open_host("second");
    ck_assert_int_eq(keep_in(tier, &attempt, "a"), 0);
    const uint64_t number = attempt.records[0].number;
    ck_assert_int_eq(keep_in(second, &attempt, "a"), -SW_EEXIST);
    ck_assert_ptr_nonnull(strstr(attempt.change.err.msg, "host this-host has a durable region of this name"));
    ck_assert_int_eq(keep_in(second, &attempt, "b"), 0);
    ck_assert_int_eq(keep_in(tier, &attempt, "b"), -SW_EEXIST);
    ck_assert_int_eq(forget(number), 0);
    ck_assert_int_eq(keep_in(second, &attempt, "a"), 0);
    second->ops->close(second);
    reopen();
    ck_assert_str_eq(find(), ""); /* they are the second host's */
    second = open_host("second");
    tier->ops->close(tier);
    tier = second;
    ck_assert_str_eq(find(), "b a");
    ck_assert_int_eq(forget(numbers[0]) + forget(numbers[1]), 0);
    sw_object_store_await(&store, 0);
}
END_TEST

START_TEST(hosts_that_race_for_a_name_do_not_both_win) {
    struct attempt first, other;
    const char *name = "a";
    share();
    struct sw_tier *second = open_host("second");
    for (unsigned i = 0; i < 20; i++) {
        name_all(&first, &name, 1);
        name_all(&other, &name, 1);
        begin(tier, &first, SW_TIER_KEEP, 1);
        begin(second, &other, SW_TIER_KEEP, 1);
        const int rc = end(&first), other_rc = end(&other);
        ck_assert(rc == 0 || rc == -SW_EEXIST);
        ck_assert(other_rc == -SW_EEXIST || (other_rc == 0 && rc != 0));
        if (!rc)
            ck_assert_int_eq(forget(first.records[0].number), 0);
        if (!other_rc) {
            begin(second, &other, SW_TIER_FORGET, 1);
            ck_assert_int_eq(end(&other), 0);
        }
        sw_object_store_await(&store, 0);
    }
    second->ops->close(second);
}
END_TEST

/* The objects have one name, since they are made in the same moment: the second one does not replace the first. */
START_TEST(hosts_that_race_in_one_moment_do_not_both_win) {
    struct attempt first, other;
    const char *name = "a";
    share();
    struct sw_tier *second = open_host("second");
    atomic_store(&stands_at_s, time(NULL));
    name_all(&first, &name, 1);
    name_all(&other, &name, 1);
    const unsigned n_lists = sw_object_store_count(&store, "list");
    sw_object_store_tell(&store, "hold");
    begin(tier, &first, SW_TIER_KEEP, 1);
    begin(second, &other, SW_TIER_KEEP, 1);
    while (sw_object_store_count(&store, "list") < n_lists + 2)
        (void)usleep(1000);
    sw_object_store_tell(&store, "go"); /* neither finds the other's */
    const int rc = end(&first), other_rc = end(&other);
    ck_assert_int_eq(rc + other_rc, -SW_EEXIST);
    sw_object_store_await(&store, 1);
    second->ops->close(second);
    tier->ops->close(tier);
    tier = open_host(rc ? "second" : "this-host");
    ck_assert_str_eq(find(), "a");
    atomic_store(&stands_at_s, 0);
}
END_TEST

START_TEST(a_careless_bucket_is_for_a_single_writer) {
    struct sw_err err;
    struct attempt attempt;
    ck_assert(info().is_exclusive);
    ck_assert_uint_eq(info().failed_requests, 0);
    config.tenants = "1000=etl";
    sw_object_store_tell(&store, "careless");
    reopen();
    ck_assert(!info().is_exclusive);
    ck_assert_int_eq(tier->ops->may_keep(tier, UID, &err), -SW_EDURABILITY);
    ck_assert_ptr_nonnull(strstr(err.msg, "tenant etl cannot be shared"));
    ck_assert_int_eq(tier->ops->may_keep(tier, UID + 1, NULL), 0);
    config.tenants = NULL;
    reopen();
    ck_assert_int_eq(keep_one(&attempt, "a"), 0);
    sw_object_store_await(&store, 1); /* and nothing of the probe */
}
END_TEST

static const char *const wrong_tenants[] = {"etl", "1000", "1000=", "1000=A", "x=etl", "1000=a 1000=b", "5000000000=a"};
enum { N_WRONG_TENANTS = sizeof wrong_tenants / sizeof wrong_tenants[0] };

START_TEST(wrong_tenants_are_refused) {
    struct sw_tier *second = NULL;
    struct sw_err err;
    config.host = "second";
    config.tenants = wrong_tenants[_i];
    ck_assert_int_eq(sw_tier_remote_open(&second, &config, &err), -SW_ECONFIG);
    ck_assert_ptr_nonnull(strstr(err.msg, "UID=NAME"));
}
END_TEST

/* ---- care ---- */

static struct sw_tier_care_state care(enum sw_tier_care what, bool changes) {
    struct sw_tier_care_state state = {.is_running = true};
    ck_assert_int_eq(tier->ops->care(tier, what, changes, NULL), 0);
    for (; state.is_running; tier->ops->care_state(tier, &state))
        (void)usleep(1000);
    ck_assert_int_eq(state.err.code, 0);
    return state;
}

/* A creation that the store completes after the deletion: the record comes back. _i: in a shared tenant. Records of
 * another host are none of this one's orphans, whatever its name begins with. */
START_TEST(records_that_come_back_are_orphans) {
    struct attempt attempt;
    if (_i)
        share();
    struct sw_tier *second = open_host("this-host-2");
    ck_assert_int_eq(keep_in(second, &attempt, "of another host"), 0);
    ck_assert_int_eq(keep_one(&attempt, "stays"), 0);
    ck_assert_int_eq(keep_one(&attempt, "comes back"), 0);
    sw_object_store_tell(&store, "remember");
    ck_assert_int_eq(forget(attempt.records[0].number), 0);
    sw_object_store_await(&store, 2);
    sw_object_store_tell(&store, "recall");
    ck_assert_uint_eq(care(SW_TIER_CARE_GC, false).found, 1);
    ck_assert_uint_eq(care(SW_TIER_CARE_GC, true).changed, 1);
    sw_object_store_await(&store, 2);
    sw_object_store_tell(&store, "recall");
    sw_object_store_tell(&store, "fault delete 500 3");
    ck_assert_int_eq(keep_one(&attempt, "comes back"), 0); /* the orphan is no obstacle, even while it is still there */
    reopen();
    ck_assert_str_eq(find(), "stays comes back");
    ck_assert_uint_eq(numbers[1], attempt.records[0].number);
    second->ops->close(second);
    sw_object_store_await(&store, 3);
}
END_TEST

START_TEST(a_new_master_key_rewraps_records) {
    struct attempt attempt;
    char path[600];
    ck_assert_int_eq(keep_one(&attempt, "single"), 0);
    ck_assert_int_eq(keep(&attempt, three, 3), 0);
    (void)snprintf(path, sizeof path, "%s/rotated", folder.path);
    FILE *file = fopen(path, "we");
    ck_assert(file && fprintf(file, "%064x\n%064x\n", 2, 0x5117) == 130 && fclose(file) == 0 && chmod(path, 0600) == 0);
    config.key_file = path;
    reopen();
    ck_assert_uint_eq(care(SW_TIER_CARE_REWRAP, true).changed, 5);
    ck_assert_uint_eq(care(SW_TIER_CARE_REWRAP, true).found, 0);
    file = fopen(path, "we");
    ck_assert(file && fprintf(file, "%064x\n", 2) == 65 && fclose(file) == 0);
    reopen();
    ck_assert_str_eq(find(), "single zoo a/../b  \xc3\xa4");
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(forget(numbers[i]), 0);
    sw_object_store_await(&store, 0);
}
END_TEST

int main(void) {
    const bool is_ours = sw_object_store_is_ours(); /* others' take no commands */
    sw_object_store_needed();
    Suite *suite = suite_create("remote_names");
    TCase *any = tcase_create("any_store"), *records = tcase_create("records"), *faults = tcase_create("faults");
    tcase_add_checked_fixture(any, setup, teardown);
    tcase_add_test(any, the_next_process_finds_records_in_order);
    tcase_add_test(any, a_name_of_a_shared_tenant_is_one_hosts);
    tcase_add_test(any, hosts_that_race_for_a_name_do_not_both_win);
    tcase_add_test(any, a_new_master_key_rewraps_records);
    tcase_add_checked_fixture(records, setup, teardown);
    tcase_add_test(records, a_clock_that_stands_or_goes_back_keeps_the_order);
    tcase_add_test(records, the_bucket_shows_no_names);
    tcase_add_test(records, a_batch_without_its_object_does_not_count);
    tcase_add_test(records, the_object_of_a_batch_without_records_is_deleted);
    tcase_add_loop_test(records, a_batch_that_fails_leaves_nothing, 0, 4);
    tcase_add_loop_test(records, records_that_come_back_are_orphans, 0, 2);
    tcase_add_checked_fixture(faults, setup, teardown);
    tcase_add_loop_test(faults, what_passes_costs_nothing, 0, N_PASSING);
    tcase_add_test(faults, a_batch_whose_reply_was_lost_counts);
    tcase_add_test(faults, a_record_that_was_sent_twice_is_ours);
    tcase_add_test(faults, an_outage_fails_the_change_and_leaves_no_record);
    tcase_add_loop_test(faults, what_may_have_been_stored_is_deleted, 1, 4);
    tcase_add_loop_test(faults, a_process_that_is_killed_keeps_all_of_a_batch_or_nothing, 0, 2 * N_STATES);
    tcase_add_test(faults, records_that_cannot_be_read_fail_the_start);
    tcase_add_test(faults, a_record_that_goes_during_the_start_is_none);
    tcase_add_test(faults, hosts_that_race_in_one_moment_do_not_both_win);
    tcase_add_test(faults, a_careless_bucket_is_for_a_single_writer);
    tcase_add_loop_test(faults, wrong_tenants_are_refused, 0, N_WRONG_TENANTS);
    TCase *const all[] = {any, records, faults};
    for (unsigned i = 0; i < (is_ours ? 3 : 1); i++) {
        sw_test_slow(all[i], 90);
        suite_add_tcase(suite, all[i]);
    }
    return sw_test_run(suite, CK_FORK);
}
