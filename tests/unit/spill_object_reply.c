/* What replies of stores mean, whatever a store says and however little of it has come. */
#include "spill/tier/remote/object_reply.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

enum { NOW_S = 1700000000 };

static const struct {
    enum sw_object_verb verb;
    int status;
    const char *code;
    enum sw_object_outcome outcome;
    int rc;
    bool is_trouble; /* of the store */
} replies[] = {
    {SW_OBJECT_GET, 206, "", SW_OBJECT_DONE, 0, false},
    {SW_OBJECT_GET, 200, "", SW_OBJECT_FAILED, -SW_EIO, false},
    {SW_OBJECT_PUT, 200, "", SW_OBJECT_DONE, 0, false},
    {SW_OBJECT_DELETE, 200, "", SW_OBJECT_DONE, 0, false},
    {SW_OBJECT_DELETE, 204, "", SW_OBJECT_DONE, 0, false},
    {SW_OBJECT_DELETE, 404, "NoSuchKey", SW_OBJECT_DONE, 0, false},
    {SW_OBJECT_DELETE, 404, "NoSuchBucket", SW_OBJECT_FAILED, -SW_ENOENT, false},
    {SW_OBJECT_COPY, 200, "", SW_OBJECT_DONE, 0, false},
    {SW_OBJECT_COPY, 200, "InternalError", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_GET, 404, "NoSuchKey", SW_OBJECT_FAILED, -SW_ENOENT, false},
    {SW_OBJECT_PUT, 412, "PreconditionFailed", SW_OBJECT_FAILED, -SW_EEXIST, false},
    {SW_OBJECT_PUT, 507, "", SW_OBJECT_FAILED, -SW_ENOSPACE, false},
    {SW_OBJECT_PUT, 400, "EntityTooLarge", SW_OBJECT_FAILED, -SW_ENOSPACE, false},
    {SW_OBJECT_PUT, 403, "QuotaExceeded", SW_OBJECT_FAILED, -SW_ENOSPACE, false},
    {SW_OBJECT_PUT, 403, "AccessDenied", SW_OBJECT_FAILED, -SW_EACCES, true},
    {SW_OBJECT_PUT, 401, "", SW_OBJECT_FAILED, -SW_EACCES, true},
    {SW_OBJECT_PUT, 403, "ExpiredToken", SW_OBJECT_CREDENTIALS, -SW_EACCES, true},
    {SW_OBJECT_PUT, 400, "ExpiredToken", SW_OBJECT_CREDENTIALS, -SW_EACCES, true},
    {SW_OBJECT_PUT, 429, "", SW_OBJECT_SLOW_DOWN, -SW_ETIMEDOUT, true},
    {SW_OBJECT_PUT, 503, "", SW_OBJECT_SLOW_DOWN, -SW_ETIMEDOUT, true},
    {SW_OBJECT_PUT, 400, "SlowDown", SW_OBJECT_SLOW_DOWN, -SW_ETIMEDOUT, true},
    {SW_OBJECT_PUT, 501, "", SW_OBJECT_FAILED, -SW_EIO, false},
    {SW_OBJECT_PUT, 500, "", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 502, "", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 408, "", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 409, "", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 400, "XAmzContentSHA256Mismatch", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 400, "BadDigest", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 400, "RequestTimeout", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 400, "IncompleteBody", SW_OBJECT_AGAIN, -SW_EIO, true},
    {SW_OBJECT_PUT, 400, "InvalidArgument", SW_OBJECT_FAILED, -SW_EIO, false},
    {SW_OBJECT_PUT, 0, "", SW_OBJECT_AGAIN, -SW_ETIMEDOUT, true},
};

static struct sw_object_reply reply_of(int status, const char *code) {
    struct sw_object_reply reply = {.status = status, .trouble = "none came"};
    (void)snprintf(reply.code, sizeof reply.code, "%s", code);
    return reply;
}

START_TEST(each_reply_has_its_meaning) {
    const struct sw_object_reply reply = reply_of(replies[_i].status, replies[_i].code);
    struct sw_err err = {0};
    const enum sw_object_outcome outcome = sw_object_evaluate(replies[_i].verb, &reply, NOW_S, &err);
    ck_assert_int_eq(outcome, replies[_i].outcome);
    ck_assert_int_eq(err.code, replies[_i].rc);
    ck_assert_int_eq(sw_object_is_trouble(outcome, &err), replies[_i].is_trouble);
}
END_TEST

/* Of requests that are refused; ten minutes are no reason. */
START_TEST(a_clock_that_is_wrong_is_named) {
    static const struct {
        int64_t store_s;
        const char *said;
    } clocks[] = {{NOW_S - 601, "601 s ahead of"},
                  {NOW_S + 601, "601 s behind"},
                  {NOW_S - 600, "not permitted"},
                  {NOW_S + 600, "not permitted"},
                  {0, "not permitted"}};
    for (size_t i = 0; i < sizeof clocks / sizeof clocks[0]; i++) {
        struct sw_object_reply reply = reply_of(403, "AccessDenied");
        struct sw_err err = {0};
        reply.date_s = clocks[i].store_s;
        ck_assert_int_eq(sw_object_evaluate(SW_OBJECT_PUT, &reply, NOW_S, &err), SW_OBJECT_FAILED);
        ck_assert_msg(err.code == -SW_EACCES && strstr(err.msg, clocks[i].said), "%s", err.msg);
    }
}
END_TEST

/* ---- lists ---- */

static char names[256];

static void found(struct sw_object_request *request, const char *name, uint64_t bytes, int64_t modified_s) {
    const size_t n = strlen(names);
    (void)request;
    (void)snprintf(names + n, sizeof names - n, "%s:%llu:%lld;", name, (unsigned long long)bytes,
                   (long long)modified_s);
}

#define OBJECT(key, size, modified)                                                                                    \
    "<Contents><Key>" key "</Key><LastModified>" modified "</LastModified><Size>" size "</Size></Contents>"
#define TIME "1970-01-02T00:00:01.000Z"

/* Names have entities, other names do not count, and what is cut or lacks a part is no list. */
START_TEST(lists_are_read_whole_or_not_at_all) {
    static const struct {
        const char *xml, *names, *token; /* names NULL: it is refused */
    } lists[] = {
        {"<IsTruncated>false</IsTruncated></ListBucketResult>", "", ""},
        {"<IsTruncated>false</IsTruncated>", NULL, ""},
        {"</ListBucketResult>", NULL, ""},
        {"<IsTruncated>false</IsTruncated>" OBJECT("p/a&amp;b&#x41;&#66;&#300;", "7", TIME) "</ListBucketResult>",
         "a&bAB&#300;:7:86401;", ""},
        {"<IsTruncated>false</IsTruncated>" OBJECT("q/a", "7", TIME) OBJECT("p/b", "8", "?") "</ListBucketResult>",
         "b:8:0;", ""},
        {"<IsTruncated>false</IsTruncated><Contents><Key>p/a</Key></Contents></ListBucketResult>", NULL, ""},
        {"<IsTruncated>false</IsTruncated><Contents><Key>p/a</Key></ListBucketResult>", NULL, ""},
        {"<IsTruncated>true</IsTruncated><NextContinuationToken>t&lt;</NextContinuationToken></ListBucketResult>", "",
         "t<"},
        {"<IsTruncated>true</IsTruncated></ListBucketResult>", NULL, ""},
        {"<IsTruncated>true</IsTruncated><NextContinuationToken></NextContinuationToken></ListBucketResult>", NULL, ""},
    };
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++) {
        struct sw_object_request request = {.verb = SW_OBJECT_LIST, .found = found};
        names[0] = 0;
        ck_assert_msg(sw_object_read_page(&request, "p/", lists[i].xml) == (lists[i].names != NULL), "list %zu", i);
        if (lists[i].names)
            ck_assert_str_eq(names, lists[i].names);
        ck_assert_str_eq(request.token, lists[i].token);
    }
}
END_TEST

/* What is too long for its place counts as missing. */
START_TEST(a_token_that_is_too_long_ends_the_list) {
    char xml[2 * SW_OBJECT_TOKEN_BYTES + 200];
    for (int more = 0; more < 2; more++) {
        struct sw_object_request request = {.verb = SW_OBJECT_LIST, .found = found};
        (void)snprintf(xml, sizeof xml,
                       "<IsTruncated>true</IsTruncated><NextContinuationToken>%0*d</NextContinuationToken>"
                       "</ListBucketResult>",
                       SW_OBJECT_TOKEN_BYTES - 1 + more, 1);
        ck_assert_int_eq(sw_object_read_page(&request, "p/", xml), !more);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spill_object_reply");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, each_reply_has_its_meaning, 0, sizeof replies / sizeof replies[0]);
    tcase_add_test(tests, a_clock_that_is_wrong_is_named);
    tcase_add_test(tests, lists_are_read_whole_or_not_at_all);
    tcase_add_test(tests, a_token_that_is_too_long_ends_the_list);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
