/* object_http.c - libcurl 7.88 signs all headers that are set here, and the query as it stands in the URL. So headers
 * have values, names need no escape, and the query is sorted and escaped. */
#include "spill/tier/remote/object_http.h"

#include "base/alloc.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { URL_BYTES = 2048, ERROR_BYTES = 8 << 10, PAGE_BYTES = 4 << 20, HEADER_BYTES = 2200 };
#define META_HEADER "x-amz-meta-spillway-key"
#define EMPTY_HASH "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

static long ms(uint64_t us) {
    return (long)((us + 999) / 1000);
}

/* ---- what comes ---- */

/* Keeps the beginning of a text; the rest of an error's is not needed. */
static bool keep_text(struct sw_object_attempt *a, const char *data, size_t bytes, bool is_page) {
    const size_t most = is_page ? PAGE_BYTES : ERROR_BYTES;
    if (a->text_bytes + bytes > most)
        return !is_page;
    char *text = sw_realloc(a->text, a->text_bytes + bytes + 1);
    if (!text)
        return false;
    memcpy(text + a->text_bytes, data, bytes);
    a->text = text;
    a->text_bytes += bytes;
    text[a->text_bytes] = 0;
    return true;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg) {
    struct sw_object_attempt *a = arg;
    struct sw_object_request *request = a->request;
    const size_t bytes = size * n;
    long status = 0;
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    if (request->verb != SW_OBJECT_GET || status != 206)
        return keep_text(a, data, bytes, request->verb == SW_OBJECT_LIST && status == 200) ? bytes : 0;
    if (bytes > request->body_bytes - a->received_bytes) {
        a->reply.trouble = "the reply is longer than what was asked for";
        return 0;
    }
    if (request->body)
        memcpy((char *)request->body + a->received_bytes, data, bytes);
    else
        request->take(request, data, bytes, a->received_bytes);
    a->received_bytes += bytes;
    return bytes;
}

/* Copies a header's value if the line is of this header. */
static bool take_header(const char *line, size_t bytes, const char *name, char *ret, size_t ret_bytes) {
    const size_t n = strlen(name);
    if (bytes <= n || line[n] != ':' || strncasecmp(line, name, n) != 0)
        return false;
    const char *from = line + n + 1, *to = line + bytes;
    while (from < to && *from == ' ')
        from++;
    while (from < to && (to[-1] == '\r' || to[-1] == '\n' || to[-1] == ' '))
        to--;
    const size_t length = (size_t)(to - from) < ret_bytes ? (size_t)(to - from) : 0; /* too long: as if not there */
    memcpy(ret, from, length);
    ret[length] = 0;
    return true;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg) {
    struct sw_object_attempt *a = arg;
    const size_t bytes = size * n;
    char value[64], *end;
    const bool reads = a->request->verb == SW_OBJECT_GET || a->request->verb == SW_OBJECT_HEAD;
    if (reads && take_header(line, bytes, META_HEADER, a->request->meta, sizeof a->request->meta))
        return bytes;
    if (take_header(line, bytes, "date", value, sizeof value)) {
        const time_t date = curl_getdate(value, NULL);
        a->reply.date_s = date > 0 ? date : 0;
    } else if (take_header(line, bytes, "retry-after", value, sizeof value)) {
        const unsigned long s = strtoul(value, &end, 10); /* a date instead is ignored */
        a->reply.retry_after_us = end != value && *end == 0 && s < 86400 ? s * UINT64_C(1000000) : 0;
    }
    return bytes;
}

/* ---- what is sent ---- */

static size_t on_read(char *to, size_t size, size_t n, void *arg) {
    struct sw_object_attempt *a = arg;
    const size_t left = a->request->body_bytes - a->sent_bytes, bytes = left < size * n ? left : size * n;
    memcpy(to, (const char *)a->request->body + a->sent_bytes, bytes);
    a->sent_bytes += bytes;
    return bytes;
}

/* libcurl begins again, once, if a kept connection was closed before a reply: maybe after the store had the body. */
static int on_seek(void *arg, curl_off_t offset, int origin) {
    struct sw_object_attempt *a = arg;
    if (origin != SEEK_SET || offset < 0 || (uint64_t)offset > a->request->body_bytes)
        return CURL_SEEKFUNC_CANTSEEK;
    a->sent_bytes = (size_t)offset;
    a->has_sent_again = true;
    return CURL_SEEKFUNC_OK;
}

static bool add_header(struct sw_object_attempt *a, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static bool add_header(struct sw_object_attempt *a, const char *fmt, ...) {
    char line[HEADER_BYTES];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(line, sizeof line, fmt, args);
    va_end(args);
    struct curl_slist *headers = curl_slist_append(a->headers, line);
    if (headers)
        a->headers = headers;
    return headers != NULL;
}

static bool add_headers(struct sw_object_attempt *a, const struct sw_object_config *config,
                        const struct sw_object_credentials *credentials) {
    const struct sw_object_request *r = a->request;
    const bool writes = r->verb == SW_OBJECT_PUT, copies = r->verb == SW_OBJECT_COPY;
    bool good = add_header(a, "x-amz-content-sha256: %s", writes ? r->hash : EMPTY_HASH);
    if (credentials->token[0])
        good = good && add_header(a, "x-amz-security-token: %s", credentials->token);
    if (writes && r->if_absent)
        good = good && add_header(a, "if-none-match: *");
    if ((writes || copies) && r->meta[0])
        good = good && add_header(a, META_HEADER ": %s", r->meta);
    if (copies)
        good = good && add_header(a, "x-amz-copy-source: /%s/%s%s", config->bucket, config->prefix, r->name) &&
               add_header(a, "x-amz-metadata-directive: REPLACE");
    return good;
}

static size_t append_escaped(char *url, size_t n, const char *text) {
    for (; *text && n + 4 < URL_BYTES; text++) {
        const bool is_plain = (*text >= 'a' && *text <= 'z') || (*text >= 'A' && *text <= 'Z') ||
                              (*text >= '0' && *text <= '9') || strchr("-_.~", *text);
        n += (size_t)snprintf(url + n, URL_BYTES - n, is_plain ? "%c" : "%%%02X", (unsigned char)*text);
    }
    return n;
}

static void write_url(char ret[URL_BYTES], const struct sw_object_config *config, const struct sw_object_request *r) {
    if (r->verb != SW_OBJECT_LIST) {
        (void)snprintf(ret, URL_BYTES, "%s/%s/%s%s", config->endpoint, config->bucket, config->prefix, r->name);
        return;
    }
    size_t n = (size_t)snprintf(ret, URL_BYTES, "%s/%s?", config->endpoint, config->bucket);
    if (r->token[0]) {
        n += (size_t)snprintf(ret + n, URL_BYTES - n, "continuation-token=");
        n = append_escaped(ret, n, r->token);
        n += (size_t)snprintf(ret + n, URL_BYTES - n, "&");
    }
    n += (size_t)snprintf(ret + n, URL_BYTES - n, "list-type=2&prefix=");
    n = append_escaped(ret, n, config->prefix);
    (void)append_escaped(ret, n, r->name);
}

/* ---- the transfer ---- */

#define SET(option, value) good = good && curl_easy_setopt(a->easy, CURLOPT_##option, value) == CURLE_OK

static bool set_verb(struct sw_object_attempt *a) {
    const struct sw_object_request *r = a->request;
    char range[48];
    bool good = true;
    switch (r->verb) {
    case SW_OBJECT_PUT:
        SET(UPLOAD, 1L);
        SET(INFILESIZE_LARGE, (curl_off_t)r->body_bytes);
        break;
    case SW_OBJECT_COPY:
        SET(UPLOAD, 1L);
        SET(INFILESIZE_LARGE, (curl_off_t)0);
        break;
    case SW_OBJECT_GET:
        (void)snprintf(range, sizeof range, "%" PRIu64 "-%" PRIu64, r->offset, r->offset + r->body_bytes - 1);
        SET(RANGE, range);
        break;
    case SW_OBJECT_HEAD:
        SET(NOBODY, 1L);
        break;
    case SW_OBJECT_DELETE:
        SET(CUSTOMREQUEST, "DELETE");
        break;
    default:
        break;
    }
    return good;
}

/* Returns how long an attempt may see no byte. A read is soon tried again; each attempt waits twice as long. */
static uint64_t stall_us(const struct sw_object_request *request, const struct sw_object_config *config) {
    uint64_t us = request->verb == SW_OBJECT_GET ? config->first_read_us : config->stall_us;
    for (unsigned i = 1; i < request->client.n_attempts && us < config->stall_us; i++)
        us *= 2;
    return us < config->stall_us ? us : config->stall_us;
}

static bool set_limits(struct sw_object_attempt *a, const struct sw_object_config *config) {
    const long stall_ms = ms(stall_us(a->request, config)), stall_s = stall_ms / 1000 > 0 ? stall_ms / 1000 : 1;
    bool good = true;
    SET(CONNECTTIMEOUT_MS, ms(config->connect_us));
    SET(LOW_SPEED_LIMIT, 1024L);
    SET(LOW_SPEED_TIME, stall_s);
    SET(MAX_SEND_SPEED_LARGE, (curl_off_t)config->bytes_per_s);
    SET(MAX_RECV_SPEED_LARGE, (curl_off_t)config->bytes_per_s);
    SET(NOSIGNAL, 1L);
    SET(BUFFERSIZE, (long)SW_OBJECT_BUFFER_BYTES);
    SET(UPLOAD_BUFFERSIZE, 256L << 10);
    return good;
}

/* Only the configured store is used: no proxy of the environment, no redirection, no other protocol. */
static bool set_peer(struct sw_object_attempt *a, const struct sw_object_config *config,
                     const struct sw_object_credentials *credentials) {
    char url[URL_BYTES], signing[128];
    bool good = true;
    write_url(url, config, a->request);
    (void)snprintf(signing, sizeof signing, "aws:amz:%s:s3", config->region);
    SET(URL, url);
    SET(PROTOCOLS_STR, "http,https");
    SET(PROXY, "");
    SET(HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
    SET(AWS_SIGV4, signing);
    SET(USERNAME, credentials->id);
    SET(PASSWORD, credentials->secret);
    if (config->ca_file)
        SET(CAINFO, config->ca_file);
    return good;
}

static bool set_callbacks(struct sw_object_attempt *a) {
    bool good = true;
    SET(PRIVATE, a);
    SET(ERRORBUFFER, a->trouble);
    SET(WRITEFUNCTION, on_body);
    SET(WRITEDATA, a);
    SET(HEADERFUNCTION, on_header);
    SET(HEADERDATA, a);
    SET(READFUNCTION, on_read);
    SET(READDATA, a);
    SET(SEEKFUNCTION, on_seek);
    SET(SEEKDATA, a);
    SET(HTTPHEADER, a->headers);
    return good;
}

int sw_object_attempt_init(struct sw_object_attempt *a) {
    sw_list_init(&a->node);
    a->easy = curl_easy_init();
    return a->easy ? 0 : -SW_ENOMEM;
}

static void forget(struct sw_object_attempt *a) {
    curl_slist_free_all(a->headers);
    a->headers = NULL;
    sw_free(a->text);
    a->text = NULL;
    a->text_bytes = 0;
}

void sw_object_attempt_fini(struct sw_object_attempt *a) {
    forget(a);
    if (a->easy)
        curl_easy_cleanup(a->easy);
}

bool sw_object_attempt_begin(struct sw_object_attempt *a, struct sw_object_request *request,
                             const struct sw_object_config *config, const struct sw_object_credentials *credentials) {
    a->request = request;
    memset(&a->reply, 0, sizeof a->reply);
    a->sent_bytes = a->received_bytes = 0;
    a->has_sent_again = false;
    a->trouble[0] = 0;
    curl_easy_reset(a->easy);
    if (add_headers(a, config, credentials) && set_peer(a, config, credentials) && set_limits(a, config) &&
        set_callbacks(a) && set_verb(a))
        return true;
    forget(a);
    return false;
}

static const char *trouble_of(const struct sw_object_attempt *a) {
    if (a->code == CURLE_OPERATION_TIMEDOUT && a->sent_bytes + a->received_bytes > 0)
        return "no byte has come or gone for too long";
    return a->reply.trouble ? a->reply.trouble : a->trouble[0] ? a->trouble : curl_easy_strerror(a->code);
}

void sw_object_attempt_end(struct sw_object_attempt *a, const char *prefix) {
    struct sw_object_request *r = a->request;
    long status = 0;
    curl_off_t length = -1;
    (void)curl_easy_getinfo(a->easy, CURLINFO_RESPONSE_CODE, &status);
    (void)curl_easy_getinfo(a->easy, CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    if (a->text)
        sw_object_read_error(&a->reply, a->text);
    /* A store may refuse a body before it has read it, and close the connection. */
    const bool is_refusal = status >= 400 && a->reply.code[0];
    if (a->code != CURLE_OK && !is_refusal) {
        a->reply.trouble = trouble_of(a);
    } else if (r->verb == SW_OBJECT_GET && status == 206 && a->received_bytes < r->body_bytes) {
        a->reply.trouble = "the reply is shorter than what was asked for";
    } else if (r->verb == SW_OBJECT_LIST && status == 200 && !(a->text && sw_object_read_page(r, prefix, a->text))) {
        a->reply.trouble = "the list of names is not complete";
    } else {
        a->reply.status = (int)status;
        r->object_bytes = r->verb == SW_OBJECT_HEAD && length > 0 ? (uint64_t)length : 0;
    }
    forget(a);
}
