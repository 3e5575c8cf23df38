/* contexts.c - an engine with several contexts: one on each of two GPUs, and a second one on a GPU. Each spills and
 * restores while the others do, and what one context has spilled comes back into another's memory.
 *
 * contexts [SPILLWAYD]; with one GPU both first contexts are that GPU's primary one. */
#include "ipc/spillway.h"
#include "tests/lib/buffer.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/served_gpu.h"

#include <check.h>
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = (32 << 20) + 4099, N = 3, ROUNDS = 10 };

/* A context of the engine, and what lies in it. */
struct context {
    CUcontext context;
    uint8_t *d_data, *content, *got;
};

static struct sw_test_daemon daemon_process;
static struct spillway *connection;
static struct context contexts[N];
static PFN_cuCtxCreate_v3020 create_context;
static PFN_cuCtxDestroy_v4000 destroy_context;
static PFN_cuCtxSetCurrent_v4000 set_context;
static PFN_cuCtxGetCurrent_v4000 get_context;

static void cuda_ok(int e, const char *call) {
    ck_assert_msg(e == 0, "%s: error %d", call, e);
}
#define CUDA(call) cuda_ok((int)(call), #call)

static void ok(int rc, const struct spillway_error *error) {
    ck_assert_msg(rc == 0, "%s: %s", error->name, error->text);
}

static void load(void **ret, const char *name, unsigned version) {
    enum cudaDriverEntryPointQueryResult found;
    CUDA(cudaGetDriverEntryPointByVersion(name, ret, version, cudaEnableDefault, &found));
    ck_assert_int_eq(found, cudaDriverEntryPointSuccess);
}

static void load_driver(void) {
    void *function;
#define LOAD(pointer, name, version) (load(&function, name, version), memcpy(&(pointer), &function, sizeof function))
    LOAD(create_context, "cuCtxCreate", 3020);
    LOAD(destroy_context, "cuCtxDestroy", 4000);
    LOAD(set_context, "cuCtxSetCurrent", 4000);
    LOAD(get_context, "cuCtxGetCurrent", 4000);
#undef LOAD
}

static void set_up(void) {
    int n_gpus = 0;
    load_driver();
    CUDA(cudaGetDeviceCount(&n_gpus));
    (void)printf("%d GPU%s\n", n_gpus, n_gpus == 1 ? ": the contexts are on one" : "s");
    for (int i = 0; i < N; i++) {
        struct context *c = &contexts[i];
        CUDA(cudaSetDevice(i == 1 && n_gpus > 1));
        CUDA(cudaFree(NULL)); /* makes the primary context */
        if (i == 2)
            CUDA(create_context(&c->context, 0, 0));
        else
            CUDA(get_context(&c->context));
        c->content = malloc(BYTES);
        c->got = malloc(BYTES);
        ck_assert(c->content && c->got);
        sw_content_fill(c->content, BYTES, SW_CONTENT_TEXT, (uint64_t)i);
        CUDA(cudaMalloc((void **)&c->d_data, BYTES));
    }
}

static void tear_down(void) {
    for (int i = 0; i < N; i++) {
        struct context *c = &contexts[i];
        CUDA(set_context(c->context));
        CUDA(cudaFree(c->d_data));
        if (i == 2)
            CUDA(destroy_context(c->context));
        free(c->content);
        free(c->got);
    }
    CUDA(cudaSetDevice(0));
}

static struct spillway_region spill(const struct context *c) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    CUDA(set_context(c->context));
    CUDA(cudaMemcpy(c->d_data, c->content, BYTES, cudaMemcpyHostToDevice));
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(c->d_data, BYTES)), 1, &ticket, &error), &error);
    ok(spillway_wait(ticket, -1, &result, 1, &error), &error);
    spillway_ticket_free(ticket);
    const char *codec = getenv("SPILLWAY_CODEC");
    ck_assert_str_eq(result.coder, codec && strcmp(codec, "client") == 0 ? "client" : "daemon");
    CUDA(cudaMemset(c->d_data, 0xEE, BYTES));
    CUDA(cudaStreamSynchronize(NULL));
    return result.region;
}

static void restore(const struct context *c, struct spillway_region region, const uint8_t *content) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_error error;
    CUDA(set_context(c->context));
    ok(spillway_restore(connection, SW_REQUEST(SW_ONE(c->d_data, BYTES), .region = region), 1, &ticket, &error),
       &error);
    ok(spillway_wait(ticket, -1, NULL, 0, &error), &error);
    spillway_ticket_free(ticket);
    CUDA(cudaMemcpy(c->got, c->d_data, BYTES, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(memcmp(c->got, content, BYTES), 0);
}

START_TEST(what_one_has_spilled_comes_back_into_anothers_memory) {
    for (int from = 0; from < N; from++)
        for (int to = 0; to < N; to++)
            restore(&contexts[to], spill(&contexts[from]), contexts[from].content);
}
END_TEST

static void *rounds(void *arg) {
    const struct context *c = arg;
    for (int round = 0; round < ROUNDS; round++)
        restore(c, spill(c), c->content);
    return NULL;
}

START_TEST(all_work_at_the_same_time) {
    pthread_t threads[N];
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(pthread_create(&threads[i], NULL, rounds, &contexts[i]), 0);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(pthread_join(threads[i], NULL), 0);
}
END_TEST

/* The engine destroys its second context, and goes on with a new one. */
START_TEST(a_context_ends_and_another_follows) {
    struct context *c = &contexts[2];
    const struct spillway_region region = spill(c);
    CUDA(cudaFree(c->d_data));
    CUDA(destroy_context(c->context));
    CUDA(create_context(&c->context, 0, 0));
    CUDA(cudaMalloc((void **)&c->d_data, BYTES));
    restore(c, region, c->content);
    restore(c, spill(c), c->content);
}
END_TEST

static Suite *make_suite(void) {
    TCase *cases = tcase_create("contexts");
    tcase_set_timeout(cases, 0);
    tcase_add_unchecked_fixture(cases, set_up, tear_down);
    tcase_add_test(cases, what_one_has_spilled_comes_back_into_anothers_memory);
    tcase_add_test(cases, all_work_at_the_same_time);
    tcase_add_test(cases, a_context_ends_and_another_follows);
    Suite *suite = suite_create("gpu contexts");
    suite_add_tcase(suite, cases);
    return suite;
}

int main(int argc, char **argv) {
    return sw_served_gpu_run(argc > 1 ? argv[1] : SW_SPILLWAYD_PATH, &daemon_process, &connection, make_suite);
}
