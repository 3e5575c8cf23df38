/* orders.c - order with streams of every kind on a GPU: work that was queued before a call is part of the spilled
 * bytes, captures survive, and a client whose work never ends delays only itself.
 *
 * orders [SPILLWAYD]; the neighbours are this program again: orders --neighbour SOCKET WAY. */
#include "ipc/spillway.h"
#include "tests/gpu/endless.h"
#include "tests/lib/buffer.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/served_gpu.h"

#include <check.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 3000001, SMALL_BYTES = 65536, N_QUEUED = 256 };

static struct sw_test_daemon daemon_process;
static struct spillway *connection;
static struct spillway_error error;
static uint8_t *content, *d_source, *d_data;

static void cuda_ok(cudaError_t e, const char *call) {
    ck_assert_msg(e == cudaSuccess, "%s: %s", call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static double now_us(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec / 1e3;
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

static void CUDART_CB sleep_on_stream(void *arg) {
    (void)arg;
    (void)usleep(100000);
}

/* Queues work that writes the content to d_data, after a while. */
static void fill_late(cudaStream_t stream) {
    CUDA(cudaMemset(d_data, 0xEE, BYTES));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaLaunchHostFunc(stream, sleep_on_stream, NULL));
    CUDA(cudaMemcpyAsync(d_data, d_source, BYTES, cudaMemcpyDeviceToDevice, stream));
}

static struct spillway_region spill(const void *data, uint64_t bytes, cudaStream_t stream) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(data, bytes), .stream = stream), 1, &ticket, &error));
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    return result.region;
}

static void restore(struct spillway_region region, void *data, uint64_t bytes) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(connection, SW_REQUEST(SW_ONE(data, bytes), .region = region), 1, &ticket, &error));
    ok(spillway_wait(ticket, -1, NULL, 0, &error));
    spillway_ticket_free(ticket);
}

static void ck_region(struct spillway_region region) {
    uint8_t *got = malloc(BYTES);
    ck_assert_ptr_nonnull(got);
    CUDA(cudaMemset(d_data, 0, BYTES));
    CUDA(cudaDeviceSynchronize());
    restore(region, d_data, BYTES);
    CUDA(cudaMemcpy(got, d_data, BYTES, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(memcmp(got, content, BYTES), 0);
    free(got);
}

enum stream_kind { LEGACY, NAMED_LEGACY, PER_THREAD, BLOCKING, NON_BLOCKING, URGENT, STREAM_KINDS };

static cudaStream_t stream_new(enum stream_kind kind) {
    cudaStream_t stream = kind == NAMED_LEGACY ? cudaStreamLegacy : kind == PER_THREAD ? cudaStreamPerThread : NULL;
    int least, greatest;
    if (kind == BLOCKING)
        CUDA(cudaStreamCreate(&stream));
    CUDA(cudaDeviceGetStreamPriorityRange(&least, &greatest));
    if (kind >= NON_BLOCKING)
        CUDA(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, kind == URGENT ? greatest : least));
    return stream;
}

static void stream_free(enum stream_kind kind, cudaStream_t stream) {
    if (kind >= BLOCKING)
        CUDA(cudaStreamDestroy(stream));
}

START_TEST(earlier_work_of_the_stream_comes_first) {
    const cudaStream_t stream = stream_new((enum stream_kind)_i);
    fill_late(stream);
    ck_region(spill(d_data, BYTES, stream));
    ck_region(spill(d_source, BYTES, stream)); /* it has run dry, or not */
    stream_free((enum stream_kind)_i, stream);
}
END_TEST

/* The legacy stream waits for blocking streams, so an operation behind it does, too. */
START_TEST(the_default_stream_waits_for_blocking_ones) {
    const cudaStream_t stream = stream_new(BLOCKING);
    fill_late(stream);
    ck_region(spill(d_data, BYTES, NULL));
    stream_free(BLOCKING, stream);
}
END_TEST

/* Nothing here waits for a stream on another GPU than the memory's. */
START_TEST(a_stream_of_another_gpu_comes_first) {
    cudaStream_t stream;
    int n_gpus = 0;
    CUDA(cudaGetDeviceCount(&n_gpus));
    if (n_gpus < 2) {
        (void)printf("one GPU: its streams alone\n");
        return;
    }
    CUDA(cudaMemset(d_data, 0xEE, BYTES));
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaSetDevice(1));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaLaunchHostFunc(stream, sleep_on_stream, NULL));
    CUDA(cudaMemcpyPeerAsync(d_data, 0, d_source, 0, BYTES, stream));
    const double begun_us = now_us();
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(d_data, BYTES), .stream = stream), 1, &ticket, &error));
    ck_assert_double_lt(now_us() - begun_us, 50e3); /* the stream's work takes 100 ms */
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    CUDA(cudaSetDevice(0));
    ck_region(result.region);
    CUDA(cudaSetDevice(1));
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaSetDevice(0));
}
END_TEST

static const enum cudaStreamCaptureMode modes[] = {cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal,
                                                   cudaStreamCaptureModeRelaxed};

static void end_capture(cudaStream_t stream, size_t n_nodes) {
    cudaGraph_t graph = NULL;
    size_t n = 0;
    CUDA(cudaStreamEndCapture(stream, &graph));
    CUDA(cudaGraphGetNodes(graph, NULL, &n));
    ck_assert_uint_eq(n, n_nodes);
    CUDA(cudaGraphDestroy(graph));
}

START_TEST(a_stream_that_is_captured_is_refused) {
    for (int kind = BLOCKING; kind <= NON_BLOCKING; kind++) {
        struct spillway_ticket *ticket = NULL;
        const cudaStream_t stream = stream_new((enum stream_kind)kind);
        CUDA(cudaStreamBeginCapture(stream, modes[_i]));
        CUDA(cudaMemsetAsync(d_data, 1, 10, stream));
        ck_assert_int_eq(
            spillway_spill(connection, SW_REQUEST(SW_ONE(d_data, BYTES), .stream = stream), 1, &ticket, &error),
            -SPILLWAY_EINVAL);
        end_capture(stream, 1); /* and not broken */
        stream_free((enum stream_kind)kind, stream);
    }
}
END_TEST

/* Work that the default stream got before the capture began comes first, and the capture goes on. */
START_TEST(the_default_stream_works_beside_a_capture) {
    const enum stream_kind kind = _i < 3 ? BLOCKING : NON_BLOCKING;
    const cudaStream_t captured = stream_new(kind);
    fill_late(NULL);
    CUDA(cudaStreamBeginCapture(captured, modes[_i % 3]));
    CUDA(cudaMemsetAsync(d_source, 1, 10, captured));
    const struct spillway_region region = spill(d_data, BYTES, NULL);
    CUDA(cudaMemsetAsync(d_source, 2, 10, captured));
    end_capture(captured, 2);
    ck_region(region);
    stream_free(kind, captured);
}
END_TEST

/* ---- neighbours -------------------------------------------------------------------------------------------------- */

/* A client that queues N_QUEUED spills behind work that does not end, or that work alone, and says so by a line. */
static int neighbour(const char *socket, const char *way) {
    struct spillway_ticket *ticket = NULL;
    cudaStream_t stream;
    uint32_t *flag;
    void *d_memory;
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (cudaHostAlloc((void **)&flag, sizeof *flag, cudaHostAllocMapped) != cudaSuccess ||
        cudaMalloc(&d_memory, SMALL_BYTES) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
        spillway_open(&connection, SW_OPTIONS(.socket_path = socket), &error) < 0 ||
        spillway_register(connection, d_memory, SMALL_BYTES, &error) < 0)
        return 1;
    *flag = 0;
    if (sw_test_launch_endless(flag, false, stream) != cudaSuccess)
        return 1;
    for (unsigned i = 0; strcmp(way, "kernel") != 0 && i < N_QUEUED; i++)
        if (spillway_spill(connection, SW_REQUEST(SW_ONE(d_memory, SMALL_BYTES), .stream = stream), 1, &ticket,
                           &error) < 0)
            return 1;
    (void)printf("queued\n");
    (void)fflush(stdout);
    if (strcmp(way, "stopped") == 0)
        (void)raise(SIGSTOP);
    for (;;)
        (void)pause();
}

/* A process whose first calls come while a kernel of its own fills the GPU until they have ended. Without assertions of
 * Check, which work only in a test. */
static int first_calls(const char *socket) {
    volatile uint32_t *flag;
    uint8_t *got = malloc(BYTES);
    cudaStream_t stream, other;
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    content = malloc(BYTES);
    (void)alarm(30);
    if (!content || !got || cudaHostAlloc((void **)&flag, sizeof *flag, cudaHostAllocMapped) != cudaSuccess ||
        cudaMalloc((void **)&d_data, BYTES) != cudaSuccess ||
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) != cudaSuccess ||
        cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) != cudaSuccess ||
        spillway_open(&connection, SW_OPTIONS(.socket_path = socket), &error) < 0)
        return 1;
    *flag = 0;
    sw_content_fill(content, BYTES, SW_CONTENT_MIXED, 6);
    if (cudaMemcpy(d_data, content, BYTES, cudaMemcpyHostToDevice) != cudaSuccess ||
        sw_test_launch_endless(flag, true, stream) != cudaSuccess ||
        spillway_spill(connection, SW_REQUEST(SW_ONE(d_data, BYTES), .stream = other), 1, &ticket, &error) < 0 ||
        spillway_wait(ticket, -1, &result, 1, &error) < 0)
        return 1;
    spillway_ticket_free(ticket);
    if (spillway_restore(connection, SW_REQUEST(SW_ONE(d_data, BYTES), .region = result.region), 1, &ticket, &error) <
            0 ||
        spillway_wait(ticket, -1, NULL, 0, &error) < 0)
        return 1;
    spillway_ticket_free(ticket);
    *flag = 1;
    if (cudaMemcpy(got, d_data, BYTES, cudaMemcpyDeviceToHost) != cudaSuccess || memcmp(got, content, BYTES) != 0)
        return 1;
    (void)printf("whole.\n");
    (void)fflush(stdout);
    for (;;)
        (void)pause();
}

static pid_t start_neighbour(const char *way) {
    int out[2];
    char line[16] = "";
    ck_assert_int_eq(pipe(out), 0);
    const pid_t pid = fork(); /* and another program: CUDA does not survive a fork */
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        (void)dup2(out[1], STDOUT_FILENO);
        (void)execl("/proc/self/exe", "gpu_orders", "--neighbour", daemon_process.socket, way, (char *)NULL);
        _exit(127);
    }
    (void)close(out[1]);
    ck_assert_int_eq(read(out[0], line, sizeof line - 1), 7);
    (void)close(out[0]);
    return pid;
}

static void end_neighbour(pid_t pid) {
    ck_assert_int_eq(kill(pid, SIGKILL), 0);
    ck_assert_int_eq(waitpid(pid, NULL, 0), pid);
}

static int by_value(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* Measures how long a short region takes, and the CPU time of the idle service per second. */
static double measure(const char *beside) {
    enum { N = 200 };
    static double us[N];
    for (int i = 0; i < N; i++) {
        const double begun_us = now_us();
        restore(spill(d_data, SMALL_BYTES, NULL), d_data, SMALL_BYTES);
        us[i] = now_us() - begun_us;
    }
    qsort(us, N, sizeof us[0], by_value);
    (void)usleep(200000);
    const double before_s = sw_test_daemon_cpu_s(&daemon_process);
    (void)sleep(1);
    const double idle_s = sw_test_daemon_cpu_s(&daemon_process) - before_s;
    (void)printf("beside %-50s out and back of 64 KiB: p50 %6.0f us, p99 %6.0f; idle service: %.0f ms CPU a second\n",
                 beside, us[N / 2], us[N * 99 / 100], idle_s * 1e3);
    return idle_s;
}

/* The service has seen the neighbours end, and the driver has freed their memory. */
static void await_one_session(void) {
    struct spillway_status status = {.size = sizeof status, .sessions = 2};
    for (int i = 0; status.sessions > 1 && i < 1000; i++) {
        (void)usleep(10000);
        ok(spillway_status(connection, &status, &error));
    }
    ck_assert_uint_eq(status.sessions, 1);
    ck_assert_uint_eq(status.regions, 0);
    (void)sleep(1);
}

START_TEST(endless_work_delays_only_its_client) {
    struct spillway_status status = {.size = sizeof status};
    size_t before, after, total;
    (void)measure("nobody");
    const pid_t kernel = start_neighbour("kernel"), other_kernel = start_neighbour("kernel");
    (void)measure("two kernels that never end");
    end_neighbour(kernel);
    end_neighbour(other_kernel);
    end_neighbour(start_neighbour("queued"));
    await_one_session();
    CUDA(cudaMemGetInfo(&before, &total));
    const pid_t queued = start_neighbour("queued"), stopped = start_neighbour("stopped");
    const double idle_s = measure("two such, 256 spills behind each, one process stopped");
    ck_assert_double_lt(idle_s, 0.1);
    ok(spillway_status(connection, &status, &error));
    ck_assert_uint_eq(status.sessions, 3);
    end_neighbour(queued);
    end_neighbour(stopped);
    await_one_session();
    CUDA(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(before, after);
}
END_TEST

/* The engine's own kernel fills the GPU until the calls have ended. The client's own kernels, if it had any queued, do
 * nothing when they begin at last. */
START_TEST(calls_end_beside_a_kernel_that_fills_the_gpu) {
    uint32_t *flag;
    uint8_t *d_back, *got = malloc(BYTES);
    ck_assert_ptr_nonnull(got);
    ok(spillway_prepare(connection, d_data, &error));
    const cudaStream_t stream = stream_new(NON_BLOCKING), other = stream_new(NON_BLOCKING);
    CUDA(cudaMalloc((void **)&d_back, BYTES));
    CUDA(cudaMemcpy(d_data, d_source, BYTES, cudaMemcpyDeviceToDevice));
    CUDA(cudaMemset(d_back, 0, BYTES));
    CUDA(cudaHostAlloc((void **)&flag, sizeof *flag, cudaHostAllocDefault));
    *(volatile uint32_t *)flag = 0;
    CUDA(cudaDeviceSynchronize());
    CUDA(sw_test_launch_endless(flag, true, stream));
    const double begun_us = now_us();
    for (int i = 0; i < 8; i++)
        restore(spill(d_data, BYTES, other), d_back, BYTES);
    (void)printf("8 spills and restores beside a kernel that fills the GPU: %.0f us\n", now_us() - begun_us);
    ck_assert_double_lt(now_us() - begun_us, 10e6);
    ck_assert_int_eq(cudaStreamQuery(stream), cudaErrorNotReady);
    *(volatile uint32_t *)flag = 1;
    CUDA(cudaDeviceSynchronize());
    CUDA(cudaMemcpy(got, d_back, BYTES, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(memcmp(got, content, BYTES), 0);
    ck_region(spill(d_data, BYTES, other));
    CUDA(cudaFreeHost(flag));
    CUDA(cudaFree(d_back));
    stream_free(NON_BLOCKING, other);
    stream_free(NON_BLOCKING, stream);
    free(got);
}
END_TEST

START_TEST(first_calls_end_beside_a_kernel_that_fills_the_gpu) {
    end_neighbour(start_neighbour("first"));
}
END_TEST

/* Endless work does not delay the service's end. Runs last. */
START_TEST(the_service_ends_beside_endless_work) {
    const pid_t queued = start_neighbour("queued");
    const double begun_us = now_us();
    ck_assert_int_eq(sw_test_daemon_stop(&daemon_process, SIGTERM), 0);
    ck_assert_double_lt(now_us() - begun_us, 10e6);
    end_neighbour(queued);
}
END_TEST

static void set_up(void) {
    content = malloc(BYTES);
    ck_assert_ptr_nonnull(content);
    sw_content_fill(content, BYTES, SW_CONTENT_MIXED, 5);
    CUDA(cudaMalloc((void **)&d_source, BYTES));
    CUDA(cudaMalloc((void **)&d_data, BYTES));
    CUDA(cudaMemcpy(d_source, content, BYTES, cudaMemcpyHostToDevice));
}

static void tear_down(void) {
    CUDA(cudaFree(d_source));
    CUDA(cudaFree(d_data));
    free(content);
}

static Suite *make_suite(void) {
    TCase *streams = tcase_create("streams"), *neighbours = tcase_create("neighbours");
    tcase_set_timeout(streams, 0);
    tcase_add_unchecked_fixture(streams, set_up, tear_down);
    tcase_add_loop_test(streams, earlier_work_of_the_stream_comes_first, 0, STREAM_KINDS);
    tcase_add_test(streams, the_default_stream_waits_for_blocking_ones);
    tcase_add_test(streams, a_stream_of_another_gpu_comes_first);
    tcase_add_loop_test(streams, a_stream_that_is_captured_is_refused, 0, 3);
    tcase_add_loop_test(streams, the_default_stream_works_beside_a_capture, 0, 6);
    tcase_set_timeout(neighbours, 0);
    tcase_add_unchecked_fixture(neighbours, set_up, tear_down);
    tcase_add_test(neighbours, endless_work_delays_only_its_client);
    tcase_add_test(neighbours, calls_end_beside_a_kernel_that_fills_the_gpu);
    tcase_add_test(neighbours, first_calls_end_beside_a_kernel_that_fills_the_gpu);
    tcase_add_test(neighbours, the_service_ends_beside_endless_work);
    Suite *suite = suite_create("gpu orders");
    suite_add_tcase(suite, streams);
    suite_add_tcase(suite, neighbours);
    return suite;
}

int main(int argc, char **argv) {
    if (argc == 4 && strcmp(argv[1], "--neighbour") == 0)
        return strcmp(argv[3], "first") == 0 ? first_calls(argv[2]) : neighbour(argv[2], argv[3]);
    return sw_served_gpu_run(argc > 1 ? argv[1] : SW_SPILLWAYD_PATH, &daemon_process, &connection, make_suite);
}
