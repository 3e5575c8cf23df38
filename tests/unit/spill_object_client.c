/* The client of object stores, against a store that checks signatures and hashes, with everything that goes wrong. */
#include "base/alloc.h"
#include "base/clock.h"
#include "spill/tier/remote/object_credentials.h"
#include "spill/tier/remote/object_reply.h"
#include "tests/lib/object_store.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BODY_BYTES = 3 << 20 };

static struct sw_object_store store;
static struct sw_object_config config;
static struct sw_object_client *client;
static uint8_t *body, *back;

static void open_client(void) {
    struct sw_err err = {0};
    ck_assert_msg(sw_object_client_open(&client, &config, &err) == 0, "%s", err.msg);
}

static void setup(void) {
    store = sw_object_store_begin(false);
    config = sw_object_store_config(&store);
    body = sw_alloc(BODY_BYTES);
    back = sw_alloc(BODY_BYTES);
    for (size_t i = 0; i < BODY_BYTES; i++)
        body[i] = (uint8_t)(i * 2654435761u >> 13);
    open_client();
}

static void teardown(void) {
    sw_object_client_close(client);
    sw_object_store_end(&store);
    sw_free(body);
    sw_free(back);
    ck_assert_int_eq(sw_alloc_live(), 0);
}

static struct sw_object_request request_of(enum sw_object_verb verb, const char *name) {
    struct sw_object_request request = {.verb = verb};
    (void)snprintf(request.name, sizeof request.name, "%s", name);
    return request;
}

static void fill_put(struct sw_object_request *ret, const char *name, size_t bytes) {
    *ret = request_of(SW_OBJECT_PUT, name);
    ret->body = body;
    ret->body_bytes = bytes;
    ck_assert(sw_object_hash(body, bytes, ret->hash));
}

static int put(const char *name, size_t bytes, struct sw_err *err) {
    struct sw_object_request request;
    fill_put(&request, name, bytes);
    (void)strcpy(request.meta, "1:wrapped/key+=");
    const int rc = sw_object_run(client, &request);
    if (err)
        *err = request.err;
    else
        ck_assert_msg(rc == 0 || rc == -SW_ETIMEDOUT, "%s", request.err.msg);
    return rc;
}

static int get(const char *name, uint64_t offset, size_t bytes, struct sw_err *err) {
    struct sw_object_request request = request_of(SW_OBJECT_GET, name);
    memset(back, 0, BODY_BYTES);
    request.body = back;
    request.body_bytes = bytes;
    request.offset = offset;
    const int rc = sw_object_run(client, &request);
    if (err)
        *err = request.err;
    if (!rc) {
        ck_assert_mem_eq(back, body + offset, bytes);
        ck_assert_str_eq(request.meta, "1:wrapped/key+=");
    }
    return rc;
}

static struct sw_object_stats stats(void) {
    struct sw_object_stats ret;
    sw_object_client_stats(client, &ret);
    return ret;
}

/* ---- libcurl ---- */

static atomic_llong connect_ms, send_speed, receive_speed; /* of the last attempt */
static atomic_uint n_refused;                              /* so many transfers cannot begin */

#if __has_include(<curl/curl.h>) /* otherwise there is no client */
#include <curl/curl.h>

/* Each option's value is a word. */
#undef curl_easy_setopt
CURLcode curl_easy_setopt(CURL *easy, CURLoption option, ...) {
    CURLcode (*real)(CURL *, CURLoption, ...) = (CURLcode(*)(CURL *, CURLoption, ...))dlsym(RTLD_NEXT, __func__);
    va_list args;
    va_start(args, option);
    void *value = va_arg(args, void *);
    va_end(args);
    if (option == CURLOPT_CONNECTTIMEOUT_MS)
        atomic_store(&connect_ms, (intptr_t)value);
    else if (option == CURLOPT_MAX_SEND_SPEED_LARGE)
        atomic_store(&send_speed, (intptr_t)value);
    else if (option == CURLOPT_MAX_RECV_SPEED_LARGE)
        atomic_store(&receive_speed, (intptr_t)value);
    return real(easy, option, value);
}

CURLMcode curl_multi_add_handle(CURLM *multi, CURL *easy) {
    CURLMcode (*real)(CURLM *, CURL *) = (CURLMcode(*)(CURLM *, CURL *))dlsym(RTLD_NEXT, __func__);
    if (atomic_load(&n_refused) == 0)
        return real(multi, easy);
    atomic_fetch_sub(&n_refused, 1);
    return CURLM_OUT_OF_MEMORY;
}

#endif

/* ---- what works ---- */

START_TEST(an_object_comes_back_and_goes) {
    struct sw_object_request head = request_of(SW_OBJECT_HEAD, "a/b-c.1"), copy = request_of(SW_OBJECT_COPY, "a/b-c.1"),
                             gone = request_of(SW_OBJECT_DELETE, "a/b-c.1");
    ck_assert_int_eq(put("a/b-c.1", BODY_BYTES, NULL), 0);
    ck_assert_int_eq(get("a/b-c.1", 0, BODY_BYTES, NULL), 0);
    ck_assert_int_eq(get("a/b-c.1", 12345, 54321, NULL), 0);
    ck_assert_int_eq(sw_object_run(client, &head), 0);
    ck_assert_uint_eq(head.object_bytes, BODY_BYTES);
    ck_assert_str_eq(head.meta, "1:wrapped/key+=");
    (void)strcpy(copy.meta, "2:another-one");
    ck_assert_int_eq(sw_object_run(client, &copy), 0);
    ck_assert_int_eq(sw_object_run(client, &head), 0);
    ck_assert_str_eq(head.meta, "2:another-one");
    ck_assert_int_eq(sw_object_run(client, &gone), 0);
    ck_assert_int_eq(sw_object_run(client, &gone), 0); /* once more */
    ck_assert_int_eq(get("a/b-c.1", 0, 1, NULL), -SW_ENOENT);
    ck_assert_int_eq(sw_object_run(client, &head), -SW_ENOENT);
    ck_assert_uint_eq(stats().sent_bytes, BODY_BYTES);
    ck_assert_uint_eq(stats().received_bytes, BODY_BYTES + 54321);
    ck_assert_uint_eq(stats().n_attempts[SW_OBJECT_GET], 3);
}
END_TEST

static bool count_names(void *arg, const char *name, uint64_t bytes, int64_t modified_s) {
    unsigned *n = arg;
    char expected[32];
    (void)snprintf(expected, sizeof expected, "list/%02u", *n);
    ck_assert_str_eq(name, expected);
    ck_assert_uint_eq(bytes, 10);
    ck_assert_int_gt(modified_s, 1700000000);
    return ++*n < 11;
}

START_TEST(lists_have_pages) {
    unsigned n = 0;
    char name[32];
    for (unsigned i = 0; i < 12; i++) {
        (void)snprintf(name, sizeof name, "list/%02u", i);
        ck_assert_int_eq(put(name, 10, NULL), 0);
    }
    sw_object_store_tell(&store, "page 5");
    ck_assert_int_eq(sw_object_list(client, "list/", count_names, &n, NULL), 0);
    ck_assert_uint_eq(n, 11); /* ended by the visitor */
    ck_assert_uint_eq(sw_object_store_count(&store, "list"), 3);
    n = 0;
    sw_object_store_tell(&store, "fault list truncate 1"); /* an incomplete page is asked for again */
    ck_assert_int_eq(sw_object_list(client, "list/0", count_names, &n, NULL), 0);
    ck_assert_uint_eq(n, 10);
    n = 0;
    ck_assert_int_eq(sw_object_list(client, "nothing/", count_names, &n, NULL), 0);
    ck_assert_uint_eq(n, 0);
}
END_TEST

enum { MANY = 64 };

struct many {
    struct sw_object_request requests[MANY];
    unsigned n_ended;
    pthread_mutex_t lock;
};

static void count_end(struct sw_object_request *request, void *arg) {
    struct many *many = arg;
    (void)request;
    (void)pthread_mutex_lock(&many->lock);
    many->n_ended++;
    (void)pthread_mutex_unlock(&many->lock);
}

static bool have_ended(struct many *many) {
    (void)pthread_mutex_lock(&many->lock);
    const bool all = many->n_ended == MANY;
    (void)pthread_mutex_unlock(&many->lock);
    return all;
}

static void submit_many(struct many *many, size_t bytes) {
    char name[32];
    *many = (struct many){.lock = PTHREAD_MUTEX_INITIALIZER};
    for (unsigned i = 0; i < MANY; i++) {
        (void)snprintf(name, sizeof name, "many/%u", i);
        fill_put(&many->requests[i], name, bytes);
        many->requests[i].done = count_end;
        many->requests[i].arg = many;
        sw_object_submit(client, &many->requests[i]);
    }
}

static void await(struct many *many) {
    while (!have_ended(many))
        (void)usleep(1000);
}

static void reopen(void) {
    sw_object_client_close(client);
    open_client();
}

START_TEST(requests_at_once_are_limited) {
    struct many many;
    char busiest[16];
    config.max_requests = 4;
    reopen();
    sw_object_store_tell(&store, "latency 10");
    submit_many(&many, 1000);
    await(&many);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(many.requests[i].err.code, 0);
    ck_assert_str_eq(sw_object_store_ask(&store, busiest, sizeof busiest, "busiest"), "4");
}
END_TEST

START_TEST(bytes_per_second_are_limited) {
    struct many many;
    config.bytes_per_s = 2000000;
    reopen();
    const uint64_t from_us = sw_clock_us();
    submit_many(&many, 20000); /* 1.28 MB */
    await(&many);
    ck_assert_uint_ge(sw_clock_us() - from_us, 600000);
}
END_TEST

/* Also within a request; and a connection has its time. */
START_TEST(a_transfer_has_the_limits_of_the_configuration) {
    config.bytes_per_s = 50000000;
    config.connect_us = 3999001;
    reopen();
    ck_assert_int_eq(put("limited", 10, NULL), 0);
    ck_assert_int_eq(atomic_load(&send_speed), 50000000);
    ck_assert_int_eq(atomic_load(&receive_speed), 50000000);
    ck_assert_int_eq(atomic_load(&connect_ms), 4000);
}
END_TEST

/* What one request costs does not delay those of the other direction: here for minutes. _i: a read is first. */
START_TEST(each_direction_has_its_own_rate) {
    enum { SHORT = 10 };
    struct sw_err err;
    config.bytes_per_s = 10000;
    reopen();
    ck_assert_int_eq(put("a", SHORT, NULL), 0);
    if (_i) {
        sw_object_store_tell(&store, "fault get 403 1");
        ck_assert_int_eq(get("a", 0, BODY_BYTES, &err), -SW_EACCES);
        ck_assert_int_eq(put("b", SHORT, NULL), 0);
    } else {
        struct sw_object_request copy = request_of(SW_OBJECT_COPY, "a");
        (void)strcpy(copy.meta, "1:wrapped/key+=");
        copy.body_bytes = BODY_BYTES; /* what it costs; it sends nothing */
        ck_assert_int_eq(sw_object_run(client, &copy), 0);
        ck_assert_int_eq(get("a", 0, SHORT, NULL), 0);
    }
}
END_TEST

/* There is no memory for a transfer: it is tried again. */
START_TEST(a_transfer_that_cannot_begin_is_tried_again) {
    atomic_store(&n_refused, 2);
    ck_assert_int_eq(put("a", 10, NULL), 0);
    ck_assert_uint_eq(stats().n_repeated, 2);
    ck_assert_int_eq(get("a", 0, 10, NULL), 0);
    ck_assert_uint_eq(stats().n_repeated, 2);
}
END_TEST

START_TEST(a_store_that_asks_for_less_gets_less) {
    struct many many;
    const uint64_t from_us = sw_clock_us();
    sw_object_store_tell(&store, "fault put slow 3");
    submit_many(&many, 1000);
    await(&many);
    if (sw_clock_us() - from_us < 1000000) /* all at once count as one */
        ck_assert_uint_ge(stats().n_allowed, config.max_requests / 2);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(many.requests[i].err.code, 0);
    ck_assert_uint_eq(stats().n_repeated, 3);
    ck_assert_uint_lt(stats().n_allowed, config.max_requests);
}
END_TEST

START_TEST(a_pause_that_the_store_asks_for_is_kept) {
    const uint64_t from_us = sw_clock_us();
    sw_object_store_tell(&store, "fault put later 1");
    ck_assert_int_eq(put("later", 10, NULL), 0);
    ck_assert_uint_ge(sw_clock_us() - from_us, 1000000);
}
END_TEST

/* Neither a day nor what is no number of seconds: either would hold the request up for longer than a test may take. */
START_TEST(an_odd_pause_is_not_kept) {
    sw_object_store_tell(&store, "fault put %s 1", _i ? "later-words" : "later-days");
    ck_assert_int_eq(put("odd", 10, NULL), 0);
    ck_assert_uint_eq(stats().n_repeated, 1);
}
END_TEST

/* ---- what goes wrong ---- */

static const struct {
    const char *verb, *kind;
    bool is_unclear;
} passing[] = {{"put", "500", true},         {"put", "503", true},        {"put", "reset", true},
               {"put", "reset-early", true}, {"put", "lost-reply", true}, {"put", "alter", false},
               {"put", "stall", true},       {"put", "409", false},       {"get", "500", false},
               {"get", "503", false},        {"get", "reset", false},     {"get", "reset-half", false},
               {"get", "truncate", false},   {"get", "stall", false}};
enum { N_PASSING = sizeof passing / sizeof passing[0] };

START_TEST(what_passes_is_tried_again) {
    struct sw_object_request request;
    const bool is_put = strcmp(passing[_i].verb, "put") == 0;
    const unsigned n = strcmp(passing[_i].kind, "stall") == 0 ? 1 : 2;
    sw_object_store_tell(&store, "fault %s %s %u", passing[_i].verb, passing[_i].kind, n);
    fill_put(&request, "passing", BODY_BYTES);
    (void)strcpy(request.meta, "1:wrapped/key+=");
    ck_assert_int_eq(sw_object_run(client, &request), 0);
    ck_assert(request.is_unclear == (is_put && passing[_i].is_unclear));
    ck_assert_int_eq(get("passing", 0, BODY_BYTES, NULL), 0);
    ck_assert_uint_ge(stats().n_failed, 1); /* libcurl itself repeats what was reset on a kept connection */
    ck_assert_uint_le(stats().n_failed, n);
    ck_assert_uint_eq(stats().n_repeated, stats().n_failed);
    ck_assert_uint_eq(stats().failing_us, 0);
}
END_TEST

static const char *const copy_faults[] = {"late", "500", "reset", "slow"};
enum { N_COPY_FAULTS = sizeof copy_faults / sizeof copy_faults[0] };

START_TEST(a_copy_that_fails_is_tried_again) {
    struct sw_object_request copy = request_of(SW_OBJECT_COPY, "copied"), head = request_of(SW_OBJECT_HEAD, "copied");
    ck_assert_int_eq(put("copied", 100, NULL), 0);
    (void)strcpy(copy.meta, "2:another-one");
    sw_object_store_tell(&store, "fault copy %s 2", copy_faults[_i]);
    ck_assert_int_eq(sw_object_run(client, &copy), 0);
    ck_assert_int_eq(sw_object_run(client, &head), 0);
    ck_assert_str_eq(head.meta, "2:another-one");
    ck_assert_uint_eq(head.object_bytes, 100);
}
END_TEST

/* The store's stall ends the connection after three seconds; the client does not wait for that. */
START_TEST(a_read_that_stalls_is_soon_tried_again) {
    config.stall_us = 20000000;
    config.first_read_us = 1000000;
    reopen();
    ck_assert_int_eq(put("stalls", BODY_BYTES, NULL), 0);
    sw_object_store_tell(&store, "fault get stall 1");
    const uint64_t from_us = sw_clock_us();
    ck_assert_int_eq(get("stalls", 0, BODY_BYTES, NULL), 0);
    ck_assert_uint_lt(sw_clock_us() - from_us, 2700000);
    ck_assert_uint_eq(stats().n_repeated, 1);
}
END_TEST

START_TEST(a_name_is_created_once) {
    struct sw_object_request request;
    fill_put(&request, "once", 100);
    request.if_absent = true;
    ck_assert_int_eq(sw_object_run(client, &request), 0);
    ck_assert_int_eq(sw_object_run(client, &request), -SW_EEXIST);
    ck_assert(!request.is_unclear);
    /* Created by an attempt whose reply was lost. */
    fill_put(&request, "twice", 100);
    request.if_absent = true;
    sw_object_store_tell(&store, "fault put lost-reply 1");
    ck_assert_int_eq(sw_object_run(client, &request), -SW_EEXIST);
    ck_assert(request.is_unclear);
}
END_TEST

/* No byte came back on a kept connection, so libcurl itself sends the body again. The second reply is clear. */
START_TEST(a_reply_that_is_lost_on_a_kept_connection_is_unclear) {
    struct sw_object_request request;
    sw_object_store_tell(&store, "silent");
    config.stall_us = 20000000; /* libcurl 7.88 waits a second for the store to ask for a body */
    reopen();
    ck_assert_int_eq(put("before", 100, NULL), 0);
    fill_put(&request, "twice", 100);
    request.if_absent = true;
    sw_object_store_tell(&store, "fault put lost-reply 1");
    ck_assert_int_eq(sw_object_run(client, &request), -SW_EEXIST);
    ck_assert(request.is_unclear);
    ck_assert_uint_eq(stats().n_repeated, 0);
}
END_TEST

START_TEST(a_full_bucket_is_named) {
    struct sw_err err;
    sw_object_store_tell(&store, "quota 1000");
    ck_assert_int_eq(put("full", 2000, &err), -SW_ENOSPACE);
    ck_assert_ptr_nonnull(strstr(err.msg, "the bucket is full"));
    ck_assert_int_eq(put("full", 1000, NULL), 0);
}
END_TEST

START_TEST(what_is_not_permitted_is_named) {
    struct sw_err err;
    sw_object_store_tell(&store, "fault put 403 1");
    ck_assert_int_eq(put("refused", 10, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "not permitted (HTTP 403, AccessDenied)"));
    ck_assert_uint_eq(stats().n_repeated, 0);
    sw_object_client_close(client);
    config.bucket = "nowhere";
    open_client();
    ck_assert_int_eq(put("refused", 10, &err), -SW_ENOENT);
    ck_assert_ptr_nonnull(strstr(err.msg, "there is no such bucket"));
}
END_TEST

START_TEST(a_wrong_clock_is_named) {
    struct sw_err err;
    sw_object_store_tell(&store, "clock 7200");
    ck_assert_int_eq(put("late", 10, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "s behind the store's"));
    sw_object_store_tell(&store, "clock -7200");
    ck_assert_int_eq(put("late", 10, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "s ahead of the store's"));
    sw_object_store_tell(&store, "clock 60");
    ck_assert_int_eq(put("late", 10, NULL), 0);
}
END_TEST

static void write_file(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

START_TEST(expired_credentials_are_read_again) {
    struct sw_err err;
    char folder[SW_TEST_PATH_BYTES], path[80];
    sw_test_folder(folder);
    (void)snprintf(path, sizeof path, "%s/credentials", folder);
    write_file(path, "aws_access_key_id = test-id\naws_secret_access_key = test-secret\n");
    config.credentials = path;
    config.patience_us = 300000;
    reopen();
    ck_assert_int_eq(put("mine", 10, NULL), 0);
    sw_object_store_tell(&store, "expire");
    ck_assert_int_eq(put("mine", 10, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "it does not accept the credentials (HTTP 400, ExpiredToken)"));
    write_file(path, "[other]\naws_access_key_id=no\n[default]\naws_access_key_id=new-id\n"
                     "aws_secret_access_key=new-secret\naws_session_token=of+a/session==\n"
                     "[third]\naws_access_key_id=no\naws_secret_access_key=no\n");
    sw_object_store_tell(&store, "credentials new-id new-secret of+a/session==");
    ck_assert_int_eq(put("mine", 10, &err), 0);
    sw_test_remove(folder);
}
END_TEST

START_TEST(a_store_that_is_gone_is_waited_for) {
    struct sw_err err;
    config.outage_us = 1000000;
    reopen();
    ck_assert_int_eq(put("kept", BODY_BYTES, NULL), 0);
    sw_object_store_tell(&store, "down");
    const uint64_t from_us = sw_clock_us();
    ck_assert_int_eq(put("lost", 10, &err), -SW_ETIMEDOUT);
    ck_assert_uint_ge(sw_clock_us() - from_us, config.outage_us);
    ck_assert_uint_lt(sw_clock_us() - from_us, config.patience_us / 2);
    ck_assert_ptr_nonnull(strstr(err.msg, "remote store: "));
    while (!stats().is_out)
        (void)usleep(1000);
    const uint64_t then_us = sw_clock_us(), n_puts = stats().n_attempts[SW_OBJECT_PUT];
    ck_assert_int_eq(put("lost", 10, NULL), -SW_ETIMEDOUT); /* at once, without an attempt */
    ck_assert_uint_lt(sw_clock_us() - then_us, config.outage_us);
    ck_assert_uint_eq(stats().n_attempts[SW_OBJECT_PUT], n_puts);
    struct many many;
    submit_many(&many, 1000); /* all of them fail with the first attempt of any */
    await(&many);
    sw_object_store_tell(&store, "up");
    ck_assert_int_eq(get("kept", 0, BODY_BYTES, NULL), 0);
    ck_assert_uint_eq(stats().failing_us, 0);
}
END_TEST

/* Without a request of anybody. */
START_TEST(the_end_of_an_outage_is_found) {
    config.outage_us = 500000;
    reopen();
    sw_object_store_tell(&store, "down");
    ck_assert_int_eq(put("lost", 10, NULL), -SW_ETIMEDOUT);
    ck_assert_uint_ne(stats().failing_us, 0);
    sw_object_store_tell(&store, "up");
    while (stats().failing_us || stats().is_out)
        (void)usleep(1000);
    ck_assert_uint_ge(stats().n_attempts[SW_OBJECT_LIST], 1);
}
END_TEST

START_TEST(patience_ends) {
    struct sw_err err;
    sw_object_store_tell(&store, "down");
    config.patience_us = 300000;
    reopen();
    ck_assert_int_eq(get("kept", 0, 10, &err), -SW_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, "connect"));
}
END_TEST

START_TEST(an_unknown_host_is_named) {
    struct sw_err err;
    config.endpoint = "http://store.invalid:9000";
    config.patience_us = 100000;
    reopen();
    ck_assert_int_eq(get("kept", 0, 10, &err), -SW_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, "store.invalid"));
}
END_TEST

START_TEST(closing_cancels_what_is_left) {
    struct many many;
    config.outage_us = 500000;
    reopen();
    sw_object_store_tell(&store, "down");
    ck_assert_int_eq(put("lost", 10, NULL), -SW_ETIMEDOUT);
    struct sw_object_request left = request_of(SW_OBJECT_DELETE, "left");
    many = (struct many){.lock = PTHREAD_MUTEX_INITIALIZER};
    left.done = count_end;
    left.arg = &many;
    sw_object_submit(client, &left);
    reopen();
    ck_assert_uint_eq(many.n_ended, 1);
    ck_assert_int_eq(left.err.code, -SW_ECANCELED);
}
END_TEST

/* The store does not answer, so they get no time. */
START_TEST(closing_cancels_transfers_that_run) {
    struct many many;
    struct sw_err err;
    sw_object_store_tell(&store, "fault put 403 1");
    ck_assert_int_eq(put("refused", 10, &err), -SW_EACCES);
    sw_object_store_tell(&store, "latency 1000");
    submit_many(&many, 1000);
    while (stats().n_active < config.max_requests)
        (void)usleep(1000);
    reopen();
    ck_assert(have_ended(&many));
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(many.requests[i].err.code, -SW_ECANCELED);
}
END_TEST

START_TEST(a_certificate_is_checked) {
    struct sw_err err;
    struct sw_object_store safe = sw_object_store_begin(true);
    config.endpoint = safe.endpoint;
    reopen();
    ck_assert_int_eq(put("safe", BODY_BYTES, NULL), 0);
    ck_assert_int_eq(get("safe", 0, BODY_BYTES, NULL), 0);
    config.ca_file = NULL; /* the system does not know it */
    config.patience_us = 100000;
    reopen();
    ck_assert_int_eq(get("safe", 0, 10, &err), -SW_ETIMEDOUT);
    ck_assert_ptr_nonnull(strstr(err.msg, "certificate"));
    sw_object_store_end(&safe);
}
END_TEST

/* ---- configuration ---- */

START_TEST(what_is_malformed_is_refused) {
    struct sw_object_client *none = NULL;
    const struct sw_object_config good = config;
    struct sw_object_config bad[7] = {good, good, good, good, good, good, good};
    bad[0].endpoint = "ftp://host";
    bad[1].endpoint = "http://host/path";
    bad[2].bucket = "Bucket";
    bad[3].prefix = "no-end";
    bad[4].region = "";
    bad[5].max_requests = 0;
    bad[6].bucket = "";
    for (unsigned i = 0; i < 7; i++)
        ck_assert_int_eq(sw_object_client_open(&none, &bad[i], NULL), -SW_ECONFIG);
    char name[3000] = "";
    memset(name, 'a', sizeof name - 1);
    memcpy(name, "http://", 7);
    for (unsigned i = 0; i < 3; i++) {
        bad[0] = good;
        *(i == 0 ? &bad[0].endpoint : i == 1 ? &bad[0].ca_file : &bad[0].credentials) = name;
        ck_assert_int_eq(sw_object_client_open(&none, &bad[0], NULL), -SW_ECONFIG);
    }
    (void)unsetenv("AWS_SECRET_ACCESS_KEY");
    ck_assert_int_eq(sw_object_client_open(&none, &good, NULL), -SW_ECONFIG);
    ck_assert_ptr_null(none);
}
END_TEST

START_TEST(credentials_come_from_the_unit_first) {
    struct sw_object_credentials found = {.id = ""};
    struct sw_err err;
    char folder[SW_TEST_PATH_BYTES], path[80];
    sw_test_folder(folder);
    (void)snprintf(path, sizeof path, "%s/" SW_OBJECT_CREDENTIAL_NAME, folder);
    (void)setenv("CREDENTIALS_DIRECTORY", folder, 1);
    ck_assert_int_eq(sw_object_credentials_load(&found, NULL, NULL), 0);
    ck_assert_str_eq(found.id, "test-id");
    write_file(path, "# of the unit\naws_access_key_id = unit\naws_secret_access_key = s\n");
    ck_assert_int_eq(sw_object_credentials_load(&found, NULL, NULL), 0);
    ck_assert_str_eq(found.id, "unit");
    ck_assert_str_eq(found.token, "");
    write_file(path, "[default]\r\n\taws_access_key_id = other\t\r\naws_secret_access_key=s\r\n");
    ck_assert_int_eq(sw_object_credentials_load(&found, NULL, NULL), 0);
    ck_assert(strcmp(found.id, "other") == 0 && strcmp(found.secret, "s") == 0);
    write_file(path, "aws_access_key_id = unit\n");
    ck_assert_int_eq(sw_object_credentials_load(&found, NULL, &err), -SW_ECONFIG);
    for (int more = 0; more < 2; more++) {
        char text[300];
        (void)snprintf(text, sizeof text, "aws_access_key_id=%0*d\naws_secret_access_key = s\n",
                       (int)sizeof found.id - 1 + more, 1);
        write_file(path, text);
        ck_assert_int_eq(sw_object_credentials_load(&found, NULL, &err), more ? -SW_ECONFIG : 0);
        ck_assert_uint_eq(strlen(found.id), sizeof found.id - 1);
    }
    ck_assert_int_eq(chmod(path, 0604), 0);
    ck_assert_int_eq(sw_object_credentials_load(&found, path, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "every user may access it"));
    ck_assert_int_eq(sw_object_credentials_load(&found, "/nowhere", &err), -SW_EIO);
    ck_assert_str_eq(found.secret, "s");
    sw_test_remove(folder);
}
END_TEST

/* Only the configured store is asked. */
START_TEST(a_proxy_of_the_environment_is_not_used) {
    static const char *const variables[] = {"http_proxy", "https_proxy", "all_proxy", "ALL_PROXY"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        ck_assert_int_eq(setenv(variables[i], "http://127.0.0.1:1", 1), 0); /* nobody listens there */
    ck_assert_int_eq(put("direct", 10, NULL), 0);
    ck_assert_uint_eq(stats().n_failed, 0);
}
END_TEST

START_TEST(pauses_grow_and_differ) {
    for (unsigned n = 1; n < 20; n++) {
        const uint64_t most = n < 7 ? UINT64_C(100) << (n - 1) : 5000;
        ck_assert_uint_eq(sw_object_pause_us(n, 100, 5000, 0, 0), most);
        ck_assert_uint_ge(sw_object_pause_us(n, 100, 5000, 0, UINT64_MAX), most / 2);
        ck_assert_uint_lt(sw_object_pause_us(n, 100, 5000, 0, most / 2 - 1), most);
        ck_assert_uint_eq(sw_object_pause_us(n, 100, 5000, 5001, 0), 5001); /* the store asks for it, each time */
    }
    ck_assert_uint_eq(sw_object_pause_us(1, 100, 5000, 7000000, 0), 7000000);
    ck_assert_uint_eq(sw_object_pause_us(1, 100, 5000, 7000000000, 0), 60000000);
}
END_TEST

int main(void) {
    sw_object_store_needed();
    TCase *tests = tcase_create("object_client");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, an_object_comes_back_and_goes);
    tcase_add_test(tests, lists_have_pages);
    tcase_add_test(tests, requests_at_once_are_limited);
    tcase_add_test(tests, bytes_per_second_are_limited);
    tcase_add_test(tests, a_transfer_has_the_limits_of_the_configuration);
    tcase_add_loop_test(tests, each_direction_has_its_own_rate, 0, 2);
    tcase_add_test(tests, a_transfer_that_cannot_begin_is_tried_again);
    tcase_add_test(tests, a_store_that_asks_for_less_gets_less);
    tcase_add_test(tests, a_pause_that_the_store_asks_for_is_kept);
    tcase_add_loop_test(tests, an_odd_pause_is_not_kept, 0, 2);
    tcase_add_loop_test(tests, what_passes_is_tried_again, 0, N_PASSING);
    tcase_add_loop_test(tests, a_copy_that_fails_is_tried_again, 0, N_COPY_FAULTS);
    tcase_add_test(tests, a_read_that_stalls_is_soon_tried_again);
    tcase_add_test(tests, a_name_is_created_once);
    tcase_add_test(tests, a_reply_that_is_lost_on_a_kept_connection_is_unclear);
    tcase_add_test(tests, a_full_bucket_is_named);
    tcase_add_test(tests, what_is_not_permitted_is_named);
    tcase_add_test(tests, a_wrong_clock_is_named);
    tcase_add_test(tests, expired_credentials_are_read_again);
    tcase_add_test(tests, a_store_that_is_gone_is_waited_for);
    tcase_add_test(tests, the_end_of_an_outage_is_found);
    tcase_add_test(tests, patience_ends);
    tcase_add_test(tests, an_unknown_host_is_named);
    tcase_add_test(tests, closing_cancels_what_is_left);
    tcase_add_test(tests, closing_cancels_transfers_that_run);
    tcase_add_test(tests, a_proxy_of_the_environment_is_not_used);
    tcase_add_test(tests, a_certificate_is_checked);
    tcase_add_test(tests, what_is_malformed_is_refused);
    tcase_add_test(tests, credentials_come_from_the_unit_first);
    tcase_add_test(tests, pauses_grow_and_differ);
    Suite *suite = suite_create("spill_object_client");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
