/* Metrics of a real spillwayd: the text has the right format, counts what happened, and has every name that the
 * dashboard and the alerts use. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/control.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <arpa/inet.h>
#include <check.h>
#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { MAX_SAMPLES = 4096, NAME_BYTES = 96, MAX_TEXT = 1 << 20 };

static struct sw_test_daemon served;
static unsigned port; /* 0: no HTTP */

/* ---- the format, strictly ---------------------------------------------------------------------------------------- */

struct sample {
    char name[NAME_BYTES], labels[256];
    double value;
};
static struct sample samples[MAX_SAMPLES];
static unsigned n_samples;

static const char *take_name(const char *at, char *ret, bool colons) {
    size_t n = 0;
    ck_assert(isalpha((unsigned char)*at) || *at == '_');
    for (; isalnum((unsigned char)*at) || *at == '_' || (colons && *at == ':'); at++) {
        ck_assert_uint_lt(n + 1, NAME_BYTES);
        ret[n++] = *at;
    }
    ret[n] = 0;
    return at;
}

/* {a="b",c="d"} */
static const char *take_labels(const char *at) {
    char name[NAME_BYTES];
    ck_assert_int_eq(*at, '{');
    do {
        at = take_name(at + 1, name, false);
        ck_assert_msg(at[0] == '=' && at[1] == '"', "label %s", name);
        for (at += 2; *at != '"'; at++) {
            ck_assert_msg(*at && *at != '\n' && *at != '\\', "value of label %s", name); /* ours need no escapes */
        }
        at++;
    } while (*at == ',');
    ck_assert_int_eq(*at, '}');
    return at + 1;
}

static void take_sample(const char *line) {
    struct sample *sample = &samples[n_samples++];
    ck_assert_uint_lt(n_samples, MAX_SAMPLES);
    const char *at = take_name(line, sample->name, true), *labels = at;
    char *end;
    if (*at == '{')
        at = take_labels(at);
    (void)snprintf(sample->labels, sizeof sample->labels, "%.*s", (int)(at - labels), labels);
    ck_assert_msg(*at == ' ', "%s", line);
    sample->value = strtod(at + 1, &end);
    ck_assert_msg(end > at + 1 && *end == 0 && isfinite(sample->value), "%s", line);
    for (unsigned i = 0; i + 1 < n_samples; i++)
        ck_assert_msg(strcmp(samples[i].name, sample->name) != 0 || strcmp(samples[i].labels, sample->labels) != 0,
                      "twice: %s", line);
}

/* The metric that a sample belongs to: for histograms without its ending. */
static bool belongs(const char *sample, const char *metric, const char *type) {
    static const char *const ends[] = {"_bucket", "_sum", "_count"};
    const size_t n = strlen(metric);
    if (strcmp(type, "histogram") != 0)
        return strcmp(sample, metric) == 0;
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++)
        if (strncmp(sample, metric, n) == 0 && strcmp(sample + n, ends[i]) == 0)
            return true;
    return false;
}

/* HELP, TYPE, samples; each metric once, and its lines together. */
static void parse(const char *text) {
    char *copy = strdup(text), *rest = copy, metric[NAME_BYTES] = "", help[NAME_BYTES] = "", type[16] = "";
    char all[8192] = " ";
    size_t n_all = 1;
    unsigned n_of_metric = 1;
    n_samples = 0;
    ck_assert(copy && text[0] && text[strlen(text) - 1] == '\n');
    for (char *line; (line = strsep(&rest, "\n")) && (rest || *line);) {
        if (strncmp(line, "# HELP ", 7) == 0) {
            ck_assert_msg(n_of_metric > 0, "%s has no samples", metric);
            const char *at = take_name(line + 7, help, true);
            ck_assert_msg(at[0] == ' ' && at[1], "%s", line);
        } else if (strncmp(line, "# TYPE ", 7) == 0) {
            char spaced[NAME_BYTES + 2];
            const char *at = take_name(line + 7, metric, true);
            ck_assert_str_eq(metric, help);
            ck_assert_int_eq(sscanf(at, " %15[a-z]", type), 1);
            ck_assert(strcmp(type, "gauge") == 0 || strcmp(type, "counter") == 0 || strcmp(type, "histogram") == 0);
            ck_assert_msg((strcmp(type, "counter") == 0) == (strstr(metric, "_total") != NULL), "%s %s", metric, type);
            (void)snprintf(spaced, sizeof spaced, " %s ", metric);
            ck_assert_msg(!strstr(all, spaced), "%s comes twice", metric);
            n_all += (size_t)snprintf(all + n_all, sizeof all - n_all, "%s", spaced + 1);
            ck_assert_uint_lt(n_all, sizeof all);
            n_of_metric = 0;
        } else {
            take_sample(line);
            ck_assert_msg(belongs(samples[n_samples - 1].name, metric, type), "%s under %s", line, metric);
            n_of_metric++;
        }
    }
    free(copy);
}

static double value(const char *name, const char *labels) {
    for (unsigned i = 0; i < n_samples; i++)
        if (strcmp(samples[i].name, name) == 0 && strcmp(samples[i].labels, labels) == 0)
            return samples[i].value;
    ck_abort_msg("no %s%s", name, labels);
}

/* ---- a daemon ---------------------------------------------------------------------------------------------------- */

/* Returns a port that is free now, and that no other program is likely to take. */
static unsigned free_port(void) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(fd >= 0 && bind(fd, (const struct sockaddr *)&address, bytes) == 0);
    ck_assert_int_eq(getsockname(fd, (struct sockaddr *)&address, &bytes), 0);
    (void)close(fd);
    return ntohs(address.sin_port);
}

static void setup(void) {
    char option[32];
    const char *const options[] = {option, NULL};
    port = SW_HAVE_HTTP ? free_port() : 0;
    (void)snprintf(option, sizeof option, "metrics_port=%u", port);
    sw_test_daemon_start(&served, SW_SPILLWAYD_PATH, options);
}

static void teardown(void) {
    ck_assert_int_eq(sw_test_daemon_stop(&served, SIGTERM), 0);
    sw_test_daemon_clean(&served);
}

static void ask(void) {
    struct sw_ctl *ctl = sw_control_connect(&served);
    json_t *text = sw_control_ask(ctl, "metrics", NULL);
    parse(json_string_value(text));
    json_decref(text);
    sw_ctl_close(ctl);
}

static void round_trip(struct spillway *client, uint8_t *data, size_t bytes) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_error error;
    struct spillway_result result = {.size = sizeof result};
    ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, bytes)), 1, &ticket, &error), 0);
    ck_assert_msg(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error) == 0, "%s", error.text);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(
        spillway_restore(client, SW_REQUEST(SW_ONE(data, bytes), .region = result.region), 1, &ticket, &error), 0);
    ck_assert_msg(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, "%s", error.text);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(spillway_drop(client, &result.region, 1, &error), -SPILLWAY_ESTALE);
}

START_TEST(metrics_of_a_new_service) {
    const int low_bytes = (64 << 20) / 100 * 80;
    ask();
    ck_assert_double_eq(value("spillway_build_info", "{version=\"" SW_VERSION "\"}"), 1);
    ck_assert_double_eq(value("spillway_sessions", ""), 0);
    ck_assert_double_eq(value("spillway_sessions_limit", ""), 256);
    ck_assert_double_eq(value("spillway_compression_ratio", ""), 1);
    ck_assert_double_eq(value("spillway_tier_capacity_bytes", "{tier=\"host\"}"), 64 << 20);
    ck_assert_double_eq(value("spillway_tier_capacity_bytes", "{tier=\"nvme\"}"), 0);
    ck_assert_double_eq(value("spillway_tier_watermark_bytes", "{mark=\"low\"}"), low_bytes);
}
END_TEST

START_TEST(operations_are_counted) {
    enum { N = 5, BYTES = 1 << 20 };
    const int fd = memfd_create("metrics", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, BYTES) == 0);
    uint8_t *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    sw_content_fill(data, BYTES, SW_CONTENT_MIXED, 1);
    struct spillway *client = sw_served_connect(&served);
    for (int i = 0; i < N; i++)
        round_trip(client, data, BYTES);
    ask();
    double spills = 0, raw = 0, reasons = 0;
    for (unsigned i = 0; i < n_samples; i++) {
        const bool is_spill = strstr(samples[i].labels, "kind=\"spill\",tier=\"host\"") != NULL;
        spills += is_spill && strcmp(samples[i].name, "spillway_operations_total") == 0 ? samples[i].value : 0;
        raw += is_spill && strcmp(samples[i].name, "spillway_raw_bytes_total") == 0 ? samples[i].value : 0;
        reasons += strcmp(samples[i].name, "spillway_spill_reasons_total") == 0 ? samples[i].value : 0;
    }
    ck_assert_double_eq(spills, N);
    ck_assert_double_eq(raw, N * (double)BYTES);
    ck_assert_double_eq(reasons, N);
    ck_assert_double_eq(value("spillway_errors_total", "{name=\"ESTALE\"}"), N);
    ck_assert_double_eq(value("spillway_sessions", ""), 1);
    ck_assert_double_eq(value("spillway_regions", ""), 0);
    spillway_close(client);
    /* Each stage has a count, the parts add up to the whole, and buckets grow up to the count. */
    static const char *const kinds[] = {"spill", "restore"}, *const stages[] = {"wait", "plan", "move", "whole"};
    for (int kind = 0; kind < 2; kind++) {
        double sum = 0;
        for (int stage = 0; stage < 4; stage++) {
            char labels[128];
            (void)snprintf(labels, sizeof labels, "{kind=\"%s\",stage=\"%s\"}", kinds[kind], stages[stage]);
            ck_assert_double_eq(value("spillway_latency_seconds_count", labels), N);
            sum += (stage < 3 ? 1 : -1) * value("spillway_latency_seconds_sum", labels);
            (void)snprintf(labels, sizeof labels, "{kind=\"%s\",stage=\"%s\",le=\"+Inf\"}", kinds[kind], stages[stage]);
            ck_assert_double_eq(value("spillway_latency_seconds_bucket", labels), N);
        }
        ck_assert_double_lt(fabs(sum), 1e-5);
    }
    double before = 0, bound_before = 0;
    for (unsigned i = 0; i < n_samples; i++) {
        const char *le = strstr(samples[i].labels, "le=\"");
        if (!le)
            continue;
        const double bound = le[4] == '+' ? INFINITY : strtod(le + 4, NULL);
        if (bound > bound_before) {
            ck_assert_double_ge(samples[i].value, before);
        }
        bound_before = isinf(bound) ? 0 : bound;
        before = isinf(bound) ? 0 : samples[i].value;
    }
    (void)munmap(data, BYTES);
    (void)close(fd);
}
END_TEST

/* ---- HTTP -------------------------------------------------------------------------------------------------------- */

static int connect_http(void) {
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

static double now_s(void) {
    struct timespec time;
    ck_assert_int_eq(clock_gettime(CLOCK_MONOTONIC, &time), 0);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static const char *http(const char *request) {
    static char text[MAX_TEXT];
    size_t n = 0;
    const int fd = connect_http();
    const struct timeval most = {.tv_sec = 5};
    (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
    ck_assert_int_eq(send(fd, request, strlen(request), MSG_NOSIGNAL), (ssize_t)strlen(request));
    for (ssize_t got; n + 1 < sizeof text && (got = recv(fd, text + n, sizeof text - 1 - n, 0)) > 0;)
        n += (size_t)got;
    text[n] = 0;
    (void)close(fd);
    return text;
}

#define REST " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"

START_TEST(by_http) {
    if (!port)
        return;
    const char *text = http("GET /metrics" REST), *body = strstr(text, "\r\n\r\n");
    ck_assert_msg(strncmp(text, "HTTP/1.1 200 ", 13) == 0 && body, "%.80s", text);
    ck_assert_ptr_nonnull(strstr(text, "Content-Type: text/plain; version=0.0.4"));
    parse(body + 4);
    ck_assert_double_eq(value("spillway_sessions", ""), 0);
    ck_assert_int_eq(strncmp(http("GET /" REST), "HTTP/1.1 404 ", 13), 0);
    ck_assert_int_eq(strncmp(http("GET /metrics/../x" REST), "HTTP/1.1 404 ", 13), 0);
    ck_assert_int_eq(strncmp(http("DELETE /metrics" REST), "HTTP/1.1 405 ", 13), 0);
    ck_assert_ptr_nonnull(strstr(http("POST /metrics" REST), "\r\nAllow: GET, HEAD\r\n"));
    ck_assert_int_eq(strncmp(http("HEAD /metrics" REST), "HTTP/1.1 200 ", 13), 0);
    ck_assert_int_eq(strncmp(http("nonsense\r\n\r\n"), "HTTP/1.1 200", 12) == 0, 0);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__) /* sanitizers keep freed memory */
/* Freed memory may stay in the heap, but it is reused. */
START_TEST(scrapes_leave_nothing) {
    enum { WARM = 10, SCRAPES = 100 };
    long before_kib = 0;
    size_t kib = 0;
    for (int i = 0; port && i < WARM + SCRAPES; i++) {
        if (i == WARM)
            before_kib = sw_test_daemon_anonymous_kib(&served);
        kib = strlen(http("GET /metrics" REST)) / 1024;
        ck_assert_uint_gt(kib, 0);
    }
    if (port)
        ck_assert_int_lt(sw_test_daemon_anonymous_kib(&served) - before_kib, (long)kib * SCRAPES / 2);
}
END_TEST
#endif

/* A client that connects and sends nothing, or half a request, does not delay others. */
START_TEST(slow_clients_delay_no_other) {
    int fds[8];
    if (!port)
        return;
    for (int i = 0; i < 8; i++) {
        fds[i] = connect_http();
        ck_assert_int_eq(send(fds[i], "GET /metr", (size_t)i, MSG_NOSIGNAL), i);
    }
    ck_assert_int_eq(strncmp(http("GET /metrics" REST), "HTTP/1.1 200 ", 13), 0);
    ask();
    for (int i = 0; i < 8; i++)
        (void)close(fds[i]);
}
END_TEST

/* As many connections as there may be, and more, all of them silent: they are hung up on, and then the port answers
 * again, whether or not any of them is left. */
START_TEST(silent_connections_do_not_close_the_port) {
    enum { N = 80, HUNG_UP_S = 8 };
    int fds[N];
    if (!port)
        return;
    for (int i = 0; i < N; i++)
        fds[i] = connect_http();
    const struct timeval most = {.tv_sec = HUNG_UP_S};
    for (int i = 0; i < N; i++) {
        char byte;
        (void)setsockopt(fds[i], SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
        ck_assert_msg(recv(fds[i], &byte, 1, 0) == 0 || errno == ECONNRESET, "connection %d: %s", i, strerror(errno));
    }
    ck_assert_int_eq(strncmp(http("GET /metrics" REST), "HTTP/1.1 200 ", 13), 0);
    for (int i = 0; i < N; i++)
        (void)close(fds[i]);
    ck_assert_int_eq(strncmp(http("GET /metrics" REST), "HTTP/1.1 200 ", 13), 0);
}
END_TEST

/* All of them taken, one is closed by its client: there is room for another at once, not when the others time out. */
START_TEST(a_freed_connection_is_reused_at_once) {
    enum { N = 64 };
    int fds[N];
    if (!port)
        return;
    for (int i = 0; i < N; i++)
        fds[i] = connect_http();
    ask(); /* by now all are accepted */
    const double begin = now_s();
    (void)close(fds[0]);
    ck_assert_int_eq(strncmp(http("GET /metrics" REST), "HTTP/1.1 200 ", 13), 0);
    ck_assert_double_lt(now_s() - begin, 1);
    for (int i = 1; i < N; i++)
        (void)close(fds[i]);
}
END_TEST

START_TEST(a_used_port_is_reported) {
    struct sw_test_daemon other = {.pid = 0};
    char option[32];
    const char *const options[] = {option, NULL};
    int exit_code = 0;
    if (!port)
        return;
    (void)snprintf(option, sizeof option, "metrics_port=%u", port);
    ck_assert(!sw_test_daemon_try(&other, SW_SPILLWAYD_PATH, options, &exit_code));
    ck_assert_int_eq(exit_code, 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&other, "Address already in use: choose another port, or stop the program"),
                      1);
    sw_test_daemon_clean(&other);
}
END_TEST

/* ---- what is made of it ------------------------------------------------------------------------------------------ */

/* Any address is served, but one that others reach is told. _i 1: another of this host's own. */
START_TEST(another_address_is_logged) {
    char option[32];
    const char *const options[] = {option, _i ? "metrics_address=127.1.2.3" : "metrics_address=0.0.0.0", NULL};
    if (!port)
        return;
    teardown();
    (void)snprintf(option, sizeof option, "metrics_port=%u", port);
    sw_test_daemon_start(&served, SW_SPILLWAYD_PATH, options);
    if (_i == 0)
        ck_assert_int_eq(strncmp(http("GET /healthz" REST), "HTTP/1.1 200 ", 13), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&served, "event=metrics.exposed"), _i == 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&served, "event=metrics.exposed address=0.0.0.0 "), _i == 0);
}
END_TEST

static const char *const files[] = {"/systemd/grafana-dashboard.json", "/systemd/alerts.yml"};

START_TEST(names_that_are_used_exist) {
    static char text[MAX_TEXT];
    char path[512], name[NAME_BYTES];
    unsigned n = 0;
    ask();
    (void)snprintf(path, sizeof path, "%s%s", SW_SOURCE_DIR, files[_i]);
    FILE *file = fopen(path, "r");
    ck_assert_msg(file != NULL, "%s", path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    (void)fclose(file);
    for (const char *at = text; (at = strstr(at, "spillway_"));) {
        unsigned i = 0;
        at = take_name(at, name, true);
        while (i < n_samples && strcmp(samples[i].name, name) != 0)
            i++;
        ck_assert_msg(i < n_samples, "%s uses %s, which is no metric", files[_i], name);
        n++;
    }
    ck_assert_uint_gt(n, 10);
    if (strstr(path, ".json")) {
        json_error_t where;
        json_t *dashboard = json_loads(text, JSON_REJECT_DUPLICATES, &where);
        ck_assert_msg(dashboard != NULL, "%s:%d: %s", path, where.line, where.text);
        ck_assert_uint_gt(json_array_size(json_object_get(dashboard, "panels")), 10);
        json_decref(dashboard);
    }
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("metrics");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, metrics_of_a_new_service);
    tcase_add_test(tests, operations_are_counted);
    tcase_add_test(tests, by_http);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tcase_add_test(tests, scrapes_leave_nothing);
#endif
    tcase_add_test(tests, slow_clients_delay_no_other);
    tcase_add_test(tests, silent_connections_do_not_close_the_port);
    tcase_add_test(tests, a_freed_connection_is_reused_at_once);
    tcase_add_test(tests, a_used_port_is_reported);
    tcase_add_loop_test(tests, another_address_is_logged, 0, 2);
    tcase_add_loop_test(tests, names_that_are_used_exist, 0, (int)(sizeof files / sizeof files[0]));
    Suite *suite = suite_create("metrics");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
