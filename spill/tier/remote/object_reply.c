/* object_reply.c - the XML of stores is flat and made by machines, so its elements are searched by name. */
#include "spill/tier/remote/object_reply.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Stores refuse requests that are signed more than 15 minutes before or after their own time. */
enum { MAX_SKEW_S = 600, MAX_RETRY_AFTER_S = 60 };

/* ---- XML ---- */

/* Returns the character of an entity at `*at`, which is moved behind it; '&' if it is none. */
static char read_entity(const char **at) {
    static const struct {
        const char *text;
        char is;
    } entities[] = {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&apos;", '\''}};
    for (size_t i = 0; i < sizeof entities / sizeof entities[0]; i++) {
        const size_t n = strlen(entities[i].text);
        if (strncmp(*at, entities[i].text, n) == 0) {
            *at += n;
            return entities[i].is;
        }
    }
    char *end;
    const bool is_hex = strncmp(*at, "&#x", 3) == 0, is_number = strncmp(*at, "&#", 2) == 0;
    const unsigned long number = is_number ? strtoul(*at + (is_hex ? 3 : 2), &end, is_hex ? 16 : 10) : 0;
    if (number > 0 && number < 128 && *end == ';') {
        *at = end + 1;
        return (char)number;
    }
    ++*at;
    return '&';
}

/* Copies the text of the first element of this name between `from` and `to`. Returns false if there is none, or it is
 * too long. */
static bool read_element(const char *from, const char *to, const char *name, char *ret, size_t ret_bytes) {
    char tag[40];
    const int n_tag = snprintf(tag, sizeof tag, "<%s>", name);
    const char *at = memmem(from, (size_t)(to - from), tag, (size_t)n_tag);
    size_t n = 0;
    ret[0] = 0;
    if (!at)
        return false;
    for (at += n_tag; at < to && *at != '<' && n + 1 < ret_bytes;)
        ret[n++] = *at == '&' ? read_entity(&at) : *at++;
    ret[n] = 0;
    return at < to && *at == '<';
}

void sw_object_read_error(struct sw_object_reply *reply, const char *xml) {
    const char *end = xml + strlen(xml);
    (void)read_element(xml, end, "Code", reply->code, sizeof reply->code);
    (void)read_element(xml, end, "Message", reply->text, sizeof reply->text);
}

static bool read_object(struct sw_object_request *request, const char *prefix, const char *from, const char *to) {
    char name[1100], size[24], modified[40];
    struct tm tm = {0};
    if (!read_element(from, to, "Key", name, sizeof name) || !read_element(from, to, "Size", size, sizeof size) ||
        !read_element(from, to, "LastModified", modified, sizeof modified))
        return false;
    const bool has_time = strptime(modified, "%Y-%m-%dT%H:%M:%S", &tm) != NULL;
    if (strncmp(name, prefix, strlen(prefix)) == 0)
        request->found(request, name + strlen(prefix), strtoull(size, NULL, 10), has_time ? (int64_t)timegm(&tm) : 0);
    return true;
}

bool sw_object_read_page(struct sw_object_request *request, const char *prefix, const char *xml) {
    const char *end = xml + strlen(xml);
    char truncated[8];
    if (!strstr(xml, "</ListBucketResult>") || !read_element(xml, end, "IsTruncated", truncated, sizeof truncated))
        return false;
    for (const char *at = xml; (at = strstr(at, "<Contents>"));) {
        const char *to = strstr(at, "</Contents>");
        if (!to || !read_object(request, prefix, at, to))
            return false;
        at = to;
    }
    request->token[0] = 0;
    return strcmp(truncated, "true") != 0 ||
           (read_element(xml, end, "NextContinuationToken", request->token, sizeof request->token) &&
            request->token[0]);
}

/* ---- evaluation ---- */

static bool is_one_of(const char *name, const char *const *list) {
    for (; *list; list++)
        if (strcmp(name, *list) == 0)
            return true;
    return false;
}

static const char *const expired[] = {"ExpiredToken",       "TokenRefreshRequired",  "InvalidToken",
                                      "InvalidAccessKeyId", "SignatureDoesNotMatch", NULL};
static const char *const full[] = {"QuotaExceeded",       "XMinioStorageFull", "EntityTooLarge",
                                   "InsufficientStorage", "XAmzQuotaExceeded", NULL};

static const char *name_of(const struct sw_object_reply *reply) {
    return reply->code[0] ? reply->code : "no reason given";
}

static int fail(struct sw_err *err, int code, const struct sw_object_reply *reply, const char *what) {
    (void)sw_err_set(err, code, SW_SCOPE_REQUEST, "remote store: %s (HTTP %d, %s)", what, reply->status,
                     name_of(reply));
    (void)sw_err_detail(err, "%s", reply->text);
    return code;
}

static enum sw_object_outcome refused(const struct sw_object_reply *reply, int64_t now_s, struct sw_err *err) {
    const int64_t skew_s = reply->date_s ? now_s - reply->date_s : 0;
    if (strcmp(reply->code, "RequestTimeTooSkewed") == 0 || skew_s > MAX_SKEW_S || skew_s < -MAX_SKEW_S) {
        (void)sw_err_set(err, -SW_EACCES, SW_SCOPE_DAEMON,
                         "remote store: this machine's clock is %lld s %s the store's; set it", llabs(skew_s),
                         skew_s < 0 ? "behind" : "ahead of");
        return SW_OBJECT_FAILED;
    }
    if (is_one_of(reply->code, expired)) {
        (void)fail(err, -SW_EACCES, reply, "it does not accept the credentials");
        return SW_OBJECT_CREDENTIALS;
    }
    (void)fail(err, is_one_of(reply->code, full) ? -SW_ENOSPACE : -SW_EACCES, reply,
               is_one_of(reply->code, full) ? "the bucket is full" : "not permitted");
    return SW_OBJECT_FAILED;
}

static enum sw_object_outcome other(const struct sw_object_reply *reply, struct sw_err *err) {
    if (reply->status == 507 || is_one_of(reply->code, full))
        return fail(err, -SW_ENOSPACE, reply, "the bucket is full"), SW_OBJECT_FAILED;
    if (is_one_of(reply->code, expired)) /* some stores say so with status 400 */
        return fail(err, -SW_EACCES, reply, "it does not accept the credentials"), SW_OBJECT_CREDENTIALS;
    if (reply->status == 429 || reply->status == 503 || strcmp(reply->code, "SlowDown") == 0)
        return fail(err, -SW_ETIMEDOUT, reply, "it asks for fewer requests"), SW_OBJECT_SLOW_DOWN;
    if (reply->status == 501)
        return fail(err, -SW_EIO, reply, "it does not know such requests"), SW_OBJECT_FAILED;
    const bool is_late = reply->status == 200 && reply->code[0]; /* of a copy */
    /* XAmzContentSHA256Mismatch and others: the body was altered on its way. */
    if (reply->status >= 500 || is_late || reply->status == 408 || reply->status == 409 ||
        strstr(reply->code, "Mismatch") || strcmp(reply->code, "BadDigest") == 0 ||
        strcmp(reply->code, "RequestTimeout") == 0 || strcmp(reply->code, "IncompleteBody") == 0)
        return fail(err, -SW_EIO, reply, "the request failed"), SW_OBJECT_AGAIN;
    if (reply->status == 404)
        return fail(err, -SW_ENOENT, reply,
                    strcmp(reply->code, "NoSuchBucket") == 0 ? "there is no such bucket" : "there is no such object"),
               SW_OBJECT_FAILED;
    if (reply->status == 412)
        return fail(err, -SW_EEXIST, reply, "there is an object of this name"), SW_OBJECT_FAILED;
    return fail(err, -SW_EIO, reply, "it does not accept the request"), SW_OBJECT_FAILED;
}

enum sw_object_outcome sw_object_evaluate(enum sw_object_verb verb, const struct sw_object_reply *reply, int64_t now_s,
                                          struct sw_err *ret_err) {
    if (reply->status == 0) {
        (void)sw_err_set(ret_err, -SW_ETIMEDOUT, SW_SCOPE_REQUEST, "remote store: %s", reply->trouble);
        return SW_OBJECT_AGAIN;
    }
    if (reply->status == (verb == SW_OBJECT_GET ? 206 : 200) || (verb == SW_OBJECT_DELETE && reply->status == 204) ||
        (verb == SW_OBJECT_DELETE && reply->status == 404 && strcmp(reply->code, "NoSuchBucket") != 0)) {
        /* A copy may fail after the store has begun to reply. */
        return verb == SW_OBJECT_COPY && reply->code[0] ? other(reply, ret_err) : SW_OBJECT_DONE;
    }
    return reply->status == 401 || reply->status == 403 ? refused(reply, now_s, ret_err) : other(reply, ret_err);
}

bool sw_object_is_trouble(enum sw_object_outcome outcome, const struct sw_err *err) {
    return outcome == SW_OBJECT_FAILED ? err->code == -SW_EACCES : outcome != SW_OBJECT_DONE;
}

uint64_t sw_object_pause_us(unsigned n, uint64_t base_us, uint64_t max_us, uint64_t retry_after_us, uint64_t random) {
    uint64_t most = base_us;
    for (unsigned i = 1; i < n && most < max_us; i++)
        most *= 2;
    most = most < max_us ? most : max_us;
    const uint64_t pause_us = most - (most / 2 ? random % (most / 2) : 0),
                   asked_us = retry_after_us < MAX_RETRY_AFTER_S * UINT64_C(1000000)
                                  ? retry_after_us
                                  : MAX_RETRY_AFTER_S * UINT64_C(1000000);
    return pause_us > asked_us ? pause_us : asked_us;
}
