/* spillway-bench against a real spillwayd on the host device: its counts, its errors, and that it notices wrong bytes.
 */
#include "base/assert.h"
#include "ipc/proto.h"
#include "tests/lib/run.h"
#include "tests/lib/sound.h"
#include "tests/lib/spillwayd.h"
#include <check.h>
#include <jansson.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static struct sw_test_daemon daemon_process;
static pid_t program_pid;
static char output[32768];

/* A line for each operation shows how far it has come. */
static const char *const verbose[] = {"log_level=debug", NULL};

static void start(void) {
    sw_test_daemon_start(&daemon_process, SW_SPILLWAYD_PATH, verbose);
}

static void stop(void) {
    SW_ASSERT(sw_test_daemon_stop(&daemon_process, SIGTERM) == 0);
    sw_test_daemon_clean(&daemon_process);
}

/* Starts it as an ordinary user's: without capabilities. What it says on both streams goes to `output` at its end(). */
static FILE *begin(const char *socket, const char *arguments) {
    char line[1024];
    (void)snprintf(line, sizeof line, "echo $$; exec %s '%s' --socket '%s' %s 2>&1",
                   geteuid() == 0 ? "setpriv --bounding-set=-all" : "", SW_BENCH_PATH, socket, arguments);
    FILE *program = popen(line, "r");
    ck_assert(program && fgets(line, sizeof line, program));
    program_pid = (pid_t)strtol(line, NULL, 10);
    return program;
}

static int end(FILE *program) {
    output[fread(output, 1, sizeof output - 1, program)] = 0;
    const int status = pclose(program);
    ck_assert_msg(WIFEXITED(status), "%s", output);
    return WEXITSTATUS(status);
}

static int run(const char *arguments) {
    return end(begin(daemon_process.socket, arguments));
}

static void ck_says(const char *text) {
    ck_assert_msg(strstr(output, text) != NULL, "'%s' does not say '%s'", output, text);
}

/* ---- statistics -------------------------------------------------------------------------------------------------- */

/* The JSON file beside the socket; the caller's. */
static json_t *load(const struct sw_test_daemon *daemon) {
    char path[128];
    json_error_t error;
    (void)snprintf(path, sizeof path, "%s/json", daemon->folder);
    json_t *json = json_load_file(path, 0, &error);
    ck_assert_msg(json != NULL, "%s:%d: %s; %s", path, error.line, error.text, output);
    return json;
}

static json_t *run_for_json(const char *arguments) {
    char line[800];
    (void)snprintf(line, sizeof line, "%s --json %s/json", arguments, daemon_process.folder);
    const int exit_code = run(line);
    ck_assert_msg(exit_code == 0, "%d: %s", exit_code, output);
    return load(&daemon_process);
}

static json_int_t integer_at(json_t *json, const char *object, const char *name) {
    json_t *value = json_object_get(object ? json_object_get(json, object) : json, name);
    ck_assert_msg(json_is_integer(value), "%s is no whole number", name);
    return json_integer_value(value);
}

static void ck_operations(json_t *json, const char *name, json_int_t count, json_int_t least_bytes) {
    json_t *op = json_object_get(json, name);
    ck_assert_int_eq(integer_at(op, NULL, "count"), count);
    ck_assert_int_ge(integer_at(op, NULL, "bytes"), least_bytes);
    ck_assert(json_real_value(json_object_get(op, "gbps")) > 0 && json_real_value(json_object_get(op, "x_raw")) > 0);
    for (int i = 0; i < 2; i++) {
        const char *times = i ? "latency_us" : "service_us";
        ck_assert_int_le(integer_at(op, times, "p50"), integer_at(op, times, "p99"));
        ck_assert_int_le(integer_at(op, times, "p99"), integer_at(op, times, "max"));
    }
    ck_assert_int_ge(integer_at(op, "latency_us", "p50"), integer_at(op, "service_us", "p50"));
}

static json_t *first_column(json_t *json) {
    return json_array_get(json_object_get(json, "columns"), 0);
}

/* Each session's rate counts its own time, and the slowest session's share is reported. */
static double slowest_share(json_t *json) {
    json_t *sessions = json_object_get(json, "sessions");
    const size_t n = json_array_size(sessions);
    double slowest = INFINITY, sum = 0;
    for (size_t i = 0; i < n; i++) {
        json_t *session = json_array_get(sessions, i);
        const double gbps = json_real_value(json_object_get(session, "gbps")),
                     s = json_real_value(json_object_get(session, "s"));
        ck_assert_double_eq_tol(gbps * s * 1e9 / (double)integer_at(session, NULL, "bytes"), 1, 1e-3);
        slowest = gbps < slowest ? gbps : slowest;
        sum += gbps;
    }
    return slowest / (sum / (double)n);
}

START_TEST(several_sessions_add_up) {
    char arguments[400];
    struct sw_sound before;
    sw_sound_take(&daemon_process, &before);
    (void)snprintf(arguments, sizeof arguments,
                   "--sessions 3 --in-flight 2 --size 1K..200K --count 20 --mix 3:2 --parked 2 --column zero --column "
                   "random --column mixed --column l_comment --column '%s' --think-ms 0.5 --stagger-ms 2 %s",
                   daemon_process.log, _i ? "--registered" : "");
    json_t *json = run_for_json(arguments);
    ck_operations(json, "spill", 60, 60000);
    ck_operations(json, "restore", 39, 39000); /* of 20, 13 in each session; the others are dropped */
    ck_assert_int_eq(integer_at(json, NULL, "dropped"), 21);
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 39);
    ck_assert_int_eq(integer_at(json, NULL, "different"), 0);
    ck_assert_int_eq(integer_at(json, NULL, "failed_sessions"), 0);
    ck_assert_uint_eq(json_object_size(json_object_get(json, "errors")), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "sessions")), 3);
    ck_assert_uint_eq(json_array_size(json_object_get(json, "columns")), 5);
    ck_assert(json_real_value(json_object_get(first_column(json), "ratio")) > 2);
    const double fairness = json_real_value(json_object_get(json, "fairness"));
    ck_assert(fairness > 0 && fairness <= 1);
    ck_assert_double_eq_tol(fairness, slowest_share(json), 1e-3);
    ck_assert(json_real_value(json_object_get(json_object_get(json, "raw_copy"), "both_gbps")) > 0);
    json_int_t stored = 0;
    for (size_t i = 0; i < json_array_size(json_object_get(json, "stored")); i++) {
        json_t *row = json_array_get(json_object_get(json, "stored"), i);
        ck_assert_str_eq(json_string_value(json_object_get(row, "tier")), "host");
        ck_assert_str_eq(json_string_value(json_object_get(row, "reason")),
                         strcmp(json_string_value(json_object_get(row, "codec")), "raw") ? "saves room"
                                                                                         : "does not shrink");
        stored += integer_at(row, NULL, "count");
    }
    ck_assert_int_eq(stored, 60);
    json_decref(json);
    ck_says("verified  every byte of 39 restored regions of 39");
    const char *unsound = sw_sound_check(&daemon_process, &before);
    ck_assert_msg(!unsound, "%s", unsound);
}
END_TEST

START_TEST(regions_are_restored_several_times) {
    json_t *json = run_for_json("--size 50000 --count 5 --mix 1:3 --in-flight 4 --seed 7");
    ck_operations(json, "spill", 5, 250000);
    ck_operations(json, "restore", 15, 750000);
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 15);
    json_decref(json);
    json = run_for_json("--size 50000 --count 5 --no-verify");
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 0);
    json_decref(json);
    ck_says("verified  nothing: none of 5 restored regions");
    json = run_for_json("--size 50000 --duration 1");
    ck_assert_int_ge(integer_at(json, "spill", "count"), 1);
    ck_assert_int_eq(integer_at(json, "spill", "count"), integer_at(json, "restore", "count"));
    json_decref(json);
}
END_TEST

START_TEST(batches_add_up) {
    json_t *json =
        run_for_json("--batch 300 --size 100..3000 --count 6 --mix 3:4 --parked 2 --in-flight 2 --sessions 2 "
                     "--column zero --column mixed");
    ck_operations(json, "spill", 12, 12 * 300 * 100);
    ck_operations(json, "restore", 16, 16 * 300 * 100);
    ck_assert_int_eq(integer_at(json, "spill", "regions"), 12 * 300);
    ck_assert_int_eq(integer_at(json, "restore", "regions"), 16 * 300);
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 16 * 300);
    ck_assert_int_eq(integer_at(json, NULL, "different"), 0);
    ck_assert_int_eq(integer_at(json, "setting", "batch"), 300);
    ck_assert_int_eq(integer_at(json, "raw_copy", "copies_per_sync"), 2 * 300); /* as an engine would copy them */
    json_decref(json);
    ck_says(", in batches of 300");
    ck_says("verified  every byte of 4800 restored regions of 4800");
    json = run_for_json("--batch 10 --size 1000 --count 4 --mix 2:1");
    ck_assert_int_eq(integer_at(json, NULL, "dropped"), 20);
    ck_assert_int_eq(integer_at(json, "raw_copy", "copies_per_sync"), 10);
    json_decref(json);
}
END_TEST

/* Each buffer of a table with what became of it, and numbers by their codecs. */
START_TEST(tables_and_columns_of_numbers) {
    json_t *json = run_for_json("--table lineitem --scale 0.002 --count 3");
    const json_t *buffers = json_object_get(json, "buffers");
    json_int_t bytes = 0;
    ck_assert_int_eq((json_int_t)json_array_size(buffers), 22);
    for (size_t i = 0; i < 22; i++)
        bytes += integer_at(json_array_get(buffers, i), NULL, "raw_bytes");
    ck_assert_int_eq(integer_at(json, NULL, "bytes"), bytes);
    ck_assert_int_eq(integer_at(json, "spill", "count"), 3);
    ck_assert_int_eq(integer_at(json, "restore", "count"), 3);
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 66);
    ck_assert_int_eq(integer_at(json, NULL, "different"), 0);
    json_decref(json);
    ck_says("l_comment        characters bytes v5t");
    ck_says("verified  every byte of 66 restored buffers of 66");
    json = run_for_json("--table lineitem --scale 0.002 --count 1 --registered --no-verify");
    ck_assert_int_eq(integer_at(json, "spill", "count"), 1);
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 0);
    json_decref(json);
    json = run_for_json("--column l_quantity --column o_orderdate --size 100000..300000 --count 12");
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 12);
    json_decref(json);
    ck_says("stored    for in host");
}
END_TEST

/* 64 MiB of tier, 5 MiB pieces that do not compress, of which more are to be parked than fit. */
START_TEST(a_full_tier_is_counted) {
    json_t *json = run_for_json("--column random --size 5M --parked 20 --count 16 --in-flight 2");
    ck_assert_int_ge(integer_at(json, "errors", "ENOSPACE"), 1);
    ck_assert_int_eq(integer_at(json, "spill", "count"), 16); /* that succeeded */
    ck_assert_int_eq(integer_at(json, NULL, "compared"), 16);
    json_decref(json);
}
END_TEST

/* It does not wait for ever for room that never comes. */
START_TEST(spills_that_find_no_room_are_given_up) {
    ck_assert_int_eq(run("--column random --size 80M --count 2 --in-flight 2"), 1);
    ck_says("gives up after 0 of 2 spills");
    ck_says("FAILED    1 sessions");
    ck_assert_int_eq(run("--column random --size 80M --duration 0.2"), 1);
    ck_says("spill: ENOSPACE: none succeeded");
}
END_TEST

/* ---- options ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *arguments, *says;
} mistakes[] = {
    {"--nonsense", "unrecognized option"},
    {"argument", "unexpected argument 'argument'"},
    {"--size 0", "--size cannot be '0'"},
    {"--size 2M..1M", "--size cannot be '2M..1M'"},
    {"--size 1M..", "--size cannot be"},
    {"--size 99999999999G", "--size cannot be"},
    {"--sessions 0", "--sessions cannot be '0'"},
    {"--sessions 4294967297", "--sessions cannot be"},
    {"--batch 0", "--batch cannot be '0'"},
    {"--in-flight -1", "--in-flight cannot be '-1'"},
    {"--mix 0:1", "--mix cannot be '0:1'"},
    {"--mix 1", "--mix cannot be '1'"},
    {"--kind disk", "--kind cannot be 'disk'"},
    {"--duration nan", "--duration cannot be 'nan'"},
    {"--duration 0", "--duration cannot be '0'"},
    {"--table lineitem --duration 0", "--duration cannot be '0'"},
    {"--size 1.5MB", "--size cannot be '1.5MB'"},
    {"--think-ms", "requires an argument"},
    {"--stagger-ms x", "--stagger-ms cannot be 'x'"},
    {"--column ''", "--column cannot be ''"},
    {"--table orders", "--table cannot be 'orders'"},
    {"--scale 0", "--scale cannot be '0'"},
    {"--scale 12.5", "--scale cannot be '12.5'"},
    {"--table lineitem --sessions 4", "--sessions means nothing with --table"},
    {"--seed 2 --table lineitem", "--seed means nothing with --table"},
    {"--scale 2", "--scale means nothing without --table"},
};

START_TEST(mistakes_exit_with_2) {
    ck_assert_int_eq(run(mistakes[_i].arguments), 2);
    ck_says(mistakes[_i].says);
}
END_TEST

START_TEST(help_and_unknown_options) {
    ck_assert_int_eq(run("--help"), 0);
    ck_says("Usage: spillway-bench");
    ck_says("-V, --version");
    ck_assert_int_eq(run("-V"), 0);
    ck_assert_str_eq(output, "spillway-bench " SW_VERSION "\n");
    ck_assert_int_eq(run("--version"), 0);
    ck_assert_str_eq(output, "spillway-bench " SW_VERSION "\n");
    ck_assert_int_eq(run("--count 1 --size 4K --column /nonexistent/column"), 1);
    ck_says("column: ENOENT: /nonexistent/column: No such file or directory");
    ck_assert_int_eq(run("--count 1 --size 7..4K --column l_quantity"), 1);
    ck_says("column: EINVAL: l_quantity: --size is less than a value of 8 bytes");
    ck_assert_int_eq(run("--count 1 --size 4K --column l_coment"), 1);
    ck_says("column: ENOENT: l_coment is neither a column nor a file; did you mean l_comment?");
    ck_assert_int_eq(run("--count 1 --size 4K --column /tmp"), 1);
    ck_says("column: EINVAL: /tmp: is a directory");
    ck_assert_int_eq(run("--count 1 --size 4K --column /dev/null"), 1);
    ck_says("column: EINVAL: /dev/null: is empty");
    ck_assert_int_eq(run("--count 1 --size 4K --json /nonexistent/json"), 1);
    ck_says("cannot be written");
    ck_assert_int_eq(end(begin("/nonexistent/socket", "--count 1")), 1);
    ck_says("ENOSERVICE: /nonexistent/socket");
}
END_TEST

/* ---- Ctrl-C ------------------------------------------------------------------------------------------------------ */

/* Operations that have begun are finished, and all are reported. */
/* The report must not go where the connection is. */
START_TEST(streams_that_are_closed) {
    char line[512];
    (void)snprintf(line, sizeof line,
                   "'%s' --socket '%s' --size 64K --duration 3 <&- >&- 2>&- & sleep 0.5; "
                   "for i in 0 1 2; do readlink /proc/$!/fd/$i; done; wait $!; echo $?",
                   SW_BENCH_PATH, daemon_process.socket);
    ck_assert_int_eq(end(popen(line, "r")), 0);
    ck_assert_str_eq(output, "/dev/null\n/dev/null\n/dev/null\n1\n");
}
END_TEST

START_TEST(an_interrupt_ends_it) {
    static const char *const arguments[] = {"--size 100K --sessions 2 --duration 200",
                                            "--table lineitem --scale 0.002 --duration 200"};
    const unsigned before = sw_test_daemon_logged(&daemon_process, "event=restore.done");
    FILE *program = begin(daemon_process.socket, arguments[_i]);
    while (sw_test_daemon_logged(&daemon_process, "event=restore.done") < before + 4)
        (void)usleep(10000);
    ck_assert_int_eq(kill(program_pid, SIGINT), 0);
    ck_assert_int_eq(end(program), 0);
    ck_says("verified  every byte of ");
}
END_TEST

/* Neither a session that has yet to begin nor one that thinks, with something parked, is waited for: each would take
 * longer than this test may. */
START_TEST(an_interrupt_waits_for_no_pause) {
    const unsigned before = sw_test_daemon_logged(&daemon_process, "event=spill.done");
    FILE *program = begin(daemon_process.socket, "--size 10K --sessions 2 --in-flight 2 --parked 5 --duration 3000 "
                                                 "--think-ms 1000000 --stagger-ms 1000000");
    while (sw_test_daemon_logged(&daemon_process, "event=spill.done") < before + 2)
        (void)usleep(10000);
    ck_assert_int_eq(kill(program_pid, SIGINT), 0);
    ck_assert_int_eq(end(program), 0);
    ck_says("verified  every byte of 2 restored regions of 2");
}
END_TEST

/* ---- a daemon that goes, and one that lies ----------------------------------------------------------------------- */

START_TEST(a_killed_daemon_ends_it) {
    struct sw_test_daemon own;
    char arguments[200];
    sw_test_daemon_start(&own, SW_SPILLWAYD_PATH, verbose);
    (void)snprintf(arguments, sizeof arguments, "--sessions 2 --size 100K --duration 600 --json %s/json", own.folder);
    FILE *program = begin(own.socket, arguments);
    for (int i = 0; i < 6000 && sw_test_daemon_logged(&own, "event=restore.done") < 4; i++) {
        const struct timespec a_little = {.tv_nsec = 10000000};
        (void)nanosleep(&a_little, NULL);
    }
    ck_assert_int_eq(sw_test_daemon_stop(&own, SIGKILL), -SIGKILL);
    ck_assert_int_eq(end(program), 1);
    ck_says("ECONN: the daemon closed the connection");
    ck_says("FAILED    2 sessions");
    json_t *json = load(&own); /* what had been measured until then */
    ck_assert_int_ge(integer_at(json, "restore", "count"), 4);
    ck_assert_int_ge(integer_at(json, "errors", "ECONN"), 1);
    ck_assert_int_eq(integer_at(json, NULL, "failed_sessions"), 2);
    json_decref(json);
    sw_test_daemon_clean(&own);
}
END_TEST

/* A daemon that a thread of the test plays: it refuses its first spills, and answers all else with success and does
 * nothing. */
static struct liar {
    const char *refusal; /* name of an error */
    unsigned n_refusals; /* still to come */
    char folder[SW_TEST_PATH_BYTES];
    struct sockaddr_un address;
    int listener;
    pthread_t thread;
} liar;

/* Success of every build, read or id of a packet: region 1:1, moved as often as the packet says. */
static void set_results(struct sw_msg *reply, const struct sw_msg *request) {
    static struct sw_wire_result results[SW_PROTO_MAX_ITEMS];
    const struct sw_msg_build *build = &request->u.build;
    const struct sw_msg_read *read = &request->u.read;
    uint16_t n = 0;
    memset(results, 0, sizeof results);
    if (request->header.type == SW_MSG_BUILD) {
        const struct sw_wire_buffer *buffer = build->buffers;
        for (n = 0; n < build->n_builds; n++) {
            results[n] = (struct sw_wire_result){.number = build->builds[n].build, .slot = 1, .gen = 1};
            for (unsigned i = 0; i < build->builds[n].n_buffers; i++)
                results[n].raw_bytes += buffer++->raw_bytes;
        }
    } else if (request->header.type == SW_MSG_READ) {
        const struct sw_wire_chunk *chunk = read->chunks;
        for (n = 0; n < read->n_reads; n++) {
            results[n] = (struct sw_wire_result){.number = read->reads[n].read, .slot = 1, .gen = 1};
            for (unsigned i = 0; i < read->reads[n].n_chunks; i++)
                results[n].raw_bytes += chunk++->raw_bytes;
        }
    } else {
        n = request->u.discard.n_ids;
    }
    reply->header.type = SW_MSG_RESULTS;
    reply->u.results.n_results = n;
    reply->u.results.results = results;
}

static void answer(int socket, const struct sw_msg *request) {
    struct sw_msg reply = {.header = {.type = SW_MSG_OK, .seq = request->header.seq}};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    static const struct sw_wire_result region = {.slot = 1, .gen = 1};
    static const struct sw_wire_buffer buffer;
    const bool refuses = request->header.type == SW_MSG_BUILD && liar.n_refusals;
    switch (refuses ? SW_MSG_ERROR : request->header.type) {
    case SW_MSG_ERROR:
        liar.n_refusals--;
        reply.header.type = SW_MSG_ERROR;
        reply.u.error.scope = SW_SCOPE_REQUEST;
        sw_msg_set_text(reply.u.error.name, sizeof reply.u.error.name, liar.refusal);
        sw_msg_set_text(reply.u.error.text, sizeof reply.u.error.text, "refused by the test");
        break;
    case SW_MSG_HELLO:
        reply.header.type = SW_MSG_HELLO_OK;
        reply.u.hello_ok =
            (struct sw_msg_hello_ok){.version = SW_PROTO_VERSION, .max_in_flight = 64, .max_buffers = 512};
        break;
    case SW_MSG_STATUS:
        reply.header.type = SW_MSG_STATUS_OK;
        break;
    case SW_MSG_BUILD:
    case SW_MSG_READ:
    case SW_MSG_DISCARD:
        set_results(&reply, request);
        break;
    case SW_MSG_INSPECT:
        reply.header.type = SW_MSG_DETAILS;
        reply.u.details =
            (struct sw_msg_details){.n_results = 1, .n_buffers = 1, .results = &region, .buffers = &buffer};
        break;
    default:
        break;
    }
    const size_t bytes = sw_msg_encode(&reply, packet);
    (void)sw_packet_send(socket, packet, bytes, NULL, 0);
}

/* One connection after the other, until the listener is shut down. */
static void *lie(void *arg) {
    (void)arg;
    for (int socket; (socket = accept4(liar.listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
        _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
        int fds[SW_PROTO_MAX_FDS];
        struct sw_msg request;
        size_t bytes;
        unsigned n_fds;
        while (sw_packet_receive(socket, packet, &bytes, fds, &n_fds) == 0 && bytes) {
            while (n_fds)
                (void)close(fds[--n_fds]);
            SW_ASSERT(sw_msg_decode(&request, packet, bytes, NULL) == 0);
            answer(socket, &request);
        }
        (void)close(socket);
    }
    return NULL;
}

/* Runs the benchmark against it. */
static int run_against_liar(unsigned n_refusals, const char *refusal, const char *arguments) {
    liar = (struct liar){.refusal = refusal, .n_refusals = n_refusals, .address.sun_family = AF_UNIX};
    sw_test_folder(liar.folder);
    (void)snprintf(liar.address.sun_path, sizeof liar.address.sun_path, "%s/s", liar.folder);
    liar.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(liar.listener, (const struct sockaddr *)&liar.address, sizeof liar.address), 0);
    ck_assert_int_eq(listen(liar.listener, 4), 0);
    ck_assert_int_eq(pthread_create(&liar.thread, NULL, lie, NULL), 0);
    const int exit_code = end(begin(liar.address.sun_path, arguments));
    ck_assert_int_eq(shutdown(liar.listener, SHUT_RDWR), 0);
    ck_assert_int_eq(pthread_join(liar.thread, NULL), 0);
    (void)close(liar.listener);
    (void)unlink(liar.address.sun_path);
    (void)rmdir(liar.folder);
    return exit_code;
}

START_TEST(wrong_bytes_are_noticed) {
    ck_assert_int_eq(run_against_liar(0, "", "--count 3 --size 10000"), 1);
    ck_says("MISMATCH");
    ck_says("DIFFERENT 1 of 1 restored regions"); /* the first is enough */
}
END_TEST

/* A table's spill that a restart has cut short, or that a full service refuses, is repeated; one that fails is not. */
START_TEST(a_table_is_spilled_again) {
    static const char arguments[] = "--table lineitem --scale 0.001 --count 2 --no-verify";
    ck_assert_int_eq(run_against_liar(3, "ERESTARTED", arguments), 0);
    ck_says("errors    ERESTARTED: 3");
    ck_says("spill           2 ");
    ck_assert_int_eq(run_against_liar(1, "ENOSPACE", arguments), 0);
    ck_says("errors    ENOSPACE: 1");
    ck_assert_int_eq(run_against_liar(UINT_MAX, "ENOSPACE", arguments), 1);
    ck_says("gives up after 0 of 2 spills");
    ck_assert_int_eq(run_against_liar(1, "EIMPORT", arguments), 1);
    ck_says("spill: EIMPORT: refused by the test");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spillway-bench");
    TCase *served = tcase_create("served"), *left = tcase_create("left");
    sw_test_slow(served, 80);
    sw_test_slow(left, 80);
    tcase_add_unchecked_fixture(served, start, stop);
    tcase_add_loop_test(served, several_sessions_add_up, 0, 2);
    tcase_add_test(served, regions_are_restored_several_times);
    tcase_add_test(served, batches_add_up);
    tcase_add_test(served, tables_and_columns_of_numbers);
    tcase_add_test(served, a_full_tier_is_counted);
    tcase_add_test(served, spills_that_find_no_room_are_given_up);
    tcase_add_loop_test(served, mistakes_exit_with_2, 0, (int)(sizeof mistakes / sizeof mistakes[0]));
    tcase_add_test(served, help_and_unknown_options);
    tcase_add_test(served, streams_that_are_closed);
    tcase_add_loop_test(served, an_interrupt_ends_it, 0, 2);
    tcase_add_test(served, an_interrupt_waits_for_no_pause);
    tcase_add_test(left, a_killed_daemon_ends_it);
    tcase_add_test(left, wrong_bytes_are_noticed);
    tcase_add_test(left, a_table_is_spilled_again);
    suite_add_tcase(suite, served);
    suite_add_tcase(suite, left);
    return sw_test_run(suite, CK_FORK);
}
