/* GPU memory of a client, whatever libspillway was built with: it finds the driver that its process has loaded, here a
 * stand-in, and hands over memory of each kind, in order with a stream, to a spillwayd whose CUDA device is on the
 * fake. A service without kernels names the reason. */
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/fake_cuda/stand_in.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <dlfcn.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 4 << 20, AT = 4096, PART = (3 << 20) + 5 }; /* the part crosses the border of two allocations */

static __typeof__(sw_stand_in_new) *new_memory;
static __typeof__(sw_stand_in_free) *free_memory;
static __typeof__(sw_stand_in_stream) *new_stream;
static __typeof__(sw_stand_in_run) *run_stream;
static __typeof__(sw_stand_in_calls) *calls;
static __typeof__(sw_stand_in_held) *held;
static struct spillway_error error;

static void find(void *library, const char *name, void *ret) {
    void *symbol = dlsym(library, name);
    ck_assert_msg(symbol != NULL, "%s", name);
    memcpy(ret, &symbol, sizeof symbol);
}

/* Loads the driver, like an engine that is linked with it. The library finds only a loaded driver. */
static void load_driver(void) {
    void *library = dlopen(SW_STAND_IN_PATH, RTLD_NOW | RTLD_GLOBAL);
    ck_assert_msg(library != NULL, "%s", dlerror());
    find(library, "sw_stand_in_new", &new_memory);
    find(library, "sw_stand_in_free", &free_memory);
    find(library, "sw_stand_in_stream", &new_stream);
    find(library, "sw_stand_in_run", &run_stream);
    find(library, "sw_stand_in_calls", &calls);
    find(library, "sw_stand_in_held", &held);
}

static struct sw_test_daemon service;
static struct spillway *connection;

static void start(const char *program, const char *device) {
    const char *const options[] = {device, "scratch_bytes=96 MiB", NULL};
    sw_test_daemon_start(&service, program, options);
    connection = sw_served_connect(&service);
    load_driver();
}

static void start_gpu(void) {
    start(SW_FAKE_SPILLWAYD_PATH, "device=cuda");
}

static void start_host(void) {
    start(SW_SPILLWAYD_PATH, "device=host");
}

static void stop(void) {
    spillway_close(connection);
    if (held)
        ck_assert_uint_eq(held(), 0);
    ck_assert_int_eq(sw_test_daemon_stop(&service, SIGTERM), 0);
    sw_test_daemon_clean(&service);
}

static void ok(int rc) {
    ck_assert_msg(rc >= 0, "%s: %s", error.name, error.text);
}

static struct spillway_ticket *begin_spill(const void *data, uint64_t bytes, struct CUstream_st *stream) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(data, bytes), .stream = stream), 1, &ticket, &error));
    return ticket;
}

static struct spillway_region end_spill(struct spillway_ticket *ticket) {
    struct spillway_result result = {.size = sizeof result};
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    ck_assert_str_ne(result.codec, "raw"); /* the text was encoded by the CUDA device */
    return result.region;
}

static void restore(struct spillway_region region, void *data, uint64_t bytes) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(connection, SW_REQUEST(SW_ONE(data, bytes), .region = region), 1, &ticket, &error));
    ok(spillway_wait(ticket, -1, NULL, 0, &error));
    spillway_ticket_free(ticket);
}

static void fill(void *memory) {
    sw_content_fill(memory, BYTES, SW_CONTENT_TEXT, 1);
}

static const enum sw_mem_kind kinds[] = {SW_MEM_CUDA_IPC, SW_MEM_CUDA_VMM, SW_MEM_CUDA_POOL, SW_MEM_MEMFD};

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(each_kind_comes_back) {
    uint8_t *from = new_memory(kinds[_i], BYTES), *to = new_memory(kinds[_i], BYTES);
    fill(from);
    const struct spillway_region region = end_spill(begin_spill(from + AT, PART, NULL));
    restore(region, to + AT, PART);
    ck_assert_mem_eq(to + AT, from + AT, PART);
    for (int i = 0; i < AT; i++)
        ck_assert_uint_eq(to[i], 0); /* before the part nothing was written */
    free_memory(from);
    free_memory(to);
}
END_TEST

START_TEST(registered_memory_comes_back) {
    uint8_t *data = new_memory(SW_MEM_CUDA_VMM, BYTES), content[64];
    fill(data);
    memcpy(content, data + BYTES / 2, sizeof content);
    ok(spillway_register(connection, data, BYTES, &error));
    const struct spillway_region region = end_spill(begin_spill(data, BYTES, NULL));
    memset(data, 0, BYTES);
    restore(region, data, BYTES);
    ck_assert_mem_eq(data + BYTES / 2, content, sizeof content);
    ok(spillway_unregister(connection, data, &error));
    free_memory(data);
}
END_TEST

/* The spilled bytes are those that the stream's queued work writes. */
START_TEST(a_spill_waits_for_the_stream) {
    uint8_t *from = new_memory(SW_MEM_CUDA_IPC, BYTES), *to = new_memory(SW_MEM_CUDA_IPC, BYTES);
    struct CUstream_st *stream = new_stream(fill, from);
    struct spillway_ticket *ticket = begin_spill(from, BYTES, stream);
    ck_assert_int_eq(spillway_wait(ticket, 100, NULL, 0, &error), -SPILLWAY_EAGAIN);
    run_stream(stream);
    restore(end_spill(ticket), to, BYTES);
    ck_assert_mem_eq(to, from, BYTES);
    ck_assert_uint_ne(from[0], 0);
    free_memory(from);
    free_memory(to);
}
END_TEST

START_TEST(a_service_without_kernels_names_the_reason) {
    uint8_t *data = new_memory(SW_MEM_CUDA_IPC, BYTES);
    struct spillway_ticket *ticket = begin_spill(data, BYTES, NULL);
    struct spillway_result result = {.size = sizeof result};
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, 1, &error), -SPILLWAY_EDEVICE);
    ck_assert_msg(strstr(error.text, "GPU") != NULL, "%s", error.text);
    spillway_ticket_free(ticket);
    ck_assert_uint_ge(calls(), 1);
    free_memory(data);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("gpu_memory");
    TCase *gpu = tcase_create("gpu"), *host = tcase_create("host");
    tcase_add_checked_fixture(gpu, start_gpu, stop);
    tcase_add_loop_test(gpu, each_kind_comes_back, 0, sizeof kinds / sizeof *kinds);
    tcase_add_test(gpu, registered_memory_comes_back);
    tcase_add_test(gpu, a_spill_waits_for_the_stream);
    suite_add_tcase(suite, gpu);
    tcase_add_checked_fixture(host, start_host, stop);
    tcase_add_test(host, a_service_without_kernels_names_the_reason);
    suite_add_tcase(suite, host);
    return sw_test_run(suite, CK_FORK);
}
