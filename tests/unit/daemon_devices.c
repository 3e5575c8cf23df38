/* Which devices the service opens, what it tells them of each other and of a predecessor's regions, and what it logs.
 * The devices are played. */
#include "daemon/devices.h"
#include "tests/lib/kept_log.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((uint64_t)1 << 20)

/* ---- played devices ---------------------------------------------------------------------------------------------- */

struct played {
    struct sw_device device;
    struct sw_device_info info;
};

static struct {
    int driver; /* result of its check */
    int n_gpus, gpu_code[SW_MAX_DEVICES + 4], host_code;
    uint64_t gpu_chunk_bytes[SW_MAX_DEVICES + 4], host_chunk_bytes;
    unsigned n_slots;
    bool is_unguarded;
    uint64_t stored_bytes; /* longest chunk of a predecessor; 0: there is none */
    bool is_new;           /* its catalogue is not used */
    struct sw_device_config asked_gpu, asked_host;
    unsigned n_open, n_counted;
} play;

static const struct sw_device_info *info(const struct sw_device *device) {
    return &SW_CONTAINER_OF(device, const struct played, device)->info;
}

static void close_device(struct sw_device *device) {
    free(SW_CONTAINER_OF(device, struct played, device));
    play.n_open--;
}

static const struct sw_device_ops ops = {.info = info, .close = close_device};

static int open_played(struct sw_device **ret, const char *name, uint64_t chunk_bytes, int code, struct sw_err *err) {
    if (code)
        return sw_err_set(err, code, SW_SCOPE_DAEMON, "it is broken");
    struct played *played = calloc(1, sizeof *played);
    ck_assert_ptr_nonnull(played);
    *played = (struct played){.device.ops = &ops, .info = {.chunk_bytes = chunk_bytes, .n_slots = play.n_slots}};
    (void)snprintf(played->info.name, sizeof played->info.name, "%s", name);
    *ret = &played->device;
    play.n_open++;
    return 0;
}

int __wrap_sw_device_cuda_check_driver(struct sw_err *err);
int __wrap_sw_device_cuda_check_driver(struct sw_err *err) {
    return play.driver ? sw_err_set(err, play.driver, SW_SCOPE_DAEMON, "it is old") : 0;
}

int __wrap_sw_device_cuda_count(void);
int __wrap_sw_device_cuda_count(void) {
    play.n_counted++;
    return play.n_gpus;
}

int __wrap_sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config,
                               struct sw_err *err);
int __wrap_sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config,
                               struct sw_err *err) {
    char name[16];
    (void)snprintf(name, sizeof name, "gpu%d", ordinal);
    play.asked_gpu = *config;
    return open_played(ret, name, play.gpu_chunk_bytes[ordinal] ? play.gpu_chunk_bytes[ordinal] : 16 * MIB,
                       play.gpu_code[ordinal], err);
}

int __wrap_sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);
int __wrap_sw_device_host_open(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    play.asked_host = *config;
    const int rc =
        open_played(ret, "host", play.host_chunk_bytes ? play.host_chunk_bytes : 16 * MIB, play.host_code, err);
    if (rc == 0)
        SW_CONTAINER_OF(*ret, struct played, device)->info.is_unguarded = play.is_unguarded;
    return rc;
}

bool __wrap_sw_catalogue_is_adopted(const struct sw_catalogue *catalogue);
bool __wrap_sw_catalogue_is_adopted(const struct sw_catalogue *catalogue) {
    (void)catalogue;
    return !play.is_new;
}

uint64_t __wrap_sw_catalogue_longest_chunk(struct sw_catalogue *catalogue);
uint64_t __wrap_sw_catalogue_longest_chunk(struct sw_catalogue *catalogue) {
    (void)catalogue;
    return play.stored_bytes;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

static struct sw_config config;
static struct sw_service service;
static struct sw_err err;

static void setup(void) {
    sw_kept_log_begin();
    sw_config_init(&config);
    config.slots = 2;
    config.chunk_bytes = 16 * MIB;
    play.n_slots = 2;
    service = (struct sw_service){.config = &config};
}

static void teardown(void) {
    sw_devices_close(&service);
    ck_assert_uint_eq(service.n_devices, 0);
    ck_assert_uint_eq(service.n_gpus, 0);
    ck_assert_uint_eq(play.n_open, 0);
    sw_kept_log_end();
}

static int open_devices(const char *wanted) {
    (void)snprintf(config.device, sizeof config.device, "%s", wanted);
    sw_kept_log_forget();
    return sw_devices_open(&service, &err);
}

static void ck_open(const char *wanted, const char *names) {
    char text[SW_MAX_DEVICES * 8];
    const int rc = open_devices(wanted);
    ck_assert_msg(rc == 0, "%s", err.msg);
    ck_assert_str_eq(sw_devices_names(&service, text, sizeof text), names);
    ck_assert_uint_eq(service.n_devices, play.n_open);
    ck_assert_uint_eq(service.n_gpus, service.n_devices - 1);
}

/* ---- which are opened -------------------------------------------------------------------------------------------- */

START_TEST(the_host_is_last) {
    play.n_gpus = 2;
    ck_open("host", "host");
    ck_assert_uint_eq(play.n_counted, 0); /* nothing is asked of CUDA */
    sw_devices_close(&service);
    ck_open("auto", "gpu0,gpu1,host");
    sw_devices_close(&service);
    ck_open("cuda", "gpu0,gpu1,host");
    ck_assert_str_eq(sw_kept_log, "");
    sw_devices_close(&service);
    play.n_gpus = 0;
    ck_open("auto", "host");
    ck_assert_str_eq(sw_kept_log, "");
}
END_TEST

START_TEST(a_gpu_is_required) {
    ck_assert_int_eq(open_devices("cuda"), -SW_EDEVICE);
    ck_assert_ptr_nonnull(strstr(err.msg, "no CUDA GPU can be used"));
    play.n_gpus = 1;
    play.gpu_code[0] = -SW_ENOTSUP;
    ck_assert_int_eq(open_devices("cuda"), -SW_EDEVICE);
    ck_assert_uint_eq(play.n_open, 0);
}
END_TEST

/* A driver that is too old is an error only for those who want a GPU. */
START_TEST(an_old_driver) {
    play.driver = -SW_ENOTSUP;
    play.n_gpus = 1;
    ck_assert_int_eq(open_devices("cuda"), -SW_ENOTSUP);
    ck_assert_ptr_nonnull(strstr(err.msg, "it is old"));
    ck_open("auto", "host");
    ck_assert_msg(strstr(sw_kept_log, "event=device.skipped cause=\"it is old\""), "%s", sw_kept_log);
    ck_assert_uint_eq(play.n_counted, 0);
}
END_TEST

/* An old card is left out, and what others are called does not change. */
START_TEST(an_old_card) {
    play.n_gpus = 3;
    play.gpu_code[1] = -SW_ENOTSUP;
    ck_open("cuda", "gpu0,gpu2,host");
    ck_assert_msg(strstr(sw_kept_log, "event=device.skipped ordinal=1 cause=\"it is broken\""), "%s", sw_kept_log);
}
END_TEST

/* Another error ends the start; whatever was open is closed. */
START_TEST(a_broken_device) {
    play.n_gpus = 3;
    play.gpu_code[2] = -SW_EGPU;
    ck_assert_int_eq(open_devices("auto"), -SW_EGPU);
    ck_assert_str_eq(err.msg, "GPU 2: it is broken");
    ck_assert(play.n_open == 0 && service.n_devices == 0 && service.n_gpus == 0);
    play.gpu_code[2] = 0;
    play.host_code = -SW_ENOMEM;
    ck_assert_int_eq(open_devices("auto"), -SW_ENOMEM);
    ck_assert_str_eq(err.msg, "it is broken");
    ck_assert(play.n_open == 0 && service.n_devices == 0 && service.n_gpus == 0);
}
END_TEST

/* There is always a place for the host. */
START_TEST(more_gpus_than_places) {
    play.n_gpus = SW_MAX_DEVICES + 3;
    play.gpu_code[0] = -SW_ENOTSUP;
    ck_assert_int_eq(open_devices("auto"), 0);
    ck_assert_uint_eq(service.n_devices, SW_MAX_DEVICES);
    ck_assert_uint_eq(service.n_gpus, SW_MAX_DEVICES - 1);
    ck_assert_str_eq(info(service.devices[SW_MAX_DEVICES - 2])->name, "gpu64");
    ck_assert_str_eq(info(service.devices[SW_MAX_DEVICES - 1])->name, "host");
    char names[20];
    ck_assert_str_eq(sw_devices_names(&service, names, sizeof names), "gpu1,gpu2,gpu3,gpu4"); /* cut */
}
END_TEST

START_TEST(memory_without_a_guard_is_logged) {
    play.is_unguarded = true;
    ck_open("host", "host");
    ck_assert_msg(strstr(sw_kept_log, "event=memory.unguarded "), "%s", sw_kept_log);
}
END_TEST

/* ---- chunks ------------------------------------------------------------------------------------------------------ */

START_TEST(devices_are_opened_as_configured) {
    config.scratch_bytes = 128 * MIB;
    config.slots = 3;
    play.n_gpus = 1;
    ck_open("auto", "gpu0,host");
    const struct sw_device_config *asked[] = {&play.asked_gpu, &play.asked_host};
    for (size_t i = 0; i < 2; i++) {
        ck_assert_uint_eq(asked[i]->scratch_bytes, 128 * MIB);
        ck_assert_uint_eq(asked[i]->n_slots, 3);
        ck_assert_uint_eq(asked[i]->chunk_bytes, 16 * MIB);
    }
    ck_assert_uint_eq(play.asked_gpu.stored_chunk_bytes, 0);
}
END_TEST

/* The host restores what a GPU has spilled: it knows the longest chunk of all. */
START_TEST(the_host_has_the_longest_chunk) {
    play.n_gpus = 3;
    play.gpu_chunk_bytes[0] = 8 * MIB;
    play.gpu_chunk_bytes[1] = 12 * MIB;
    play.gpu_chunk_bytes[2] = 4 * MIB;
    ck_open("auto", "gpu0,gpu1,gpu2,host");
    ck_assert_uint_eq(play.asked_host.stored_chunk_bytes, 12 * MIB);
    ck_assert_str_eq(sw_kept_log, "");
    sw_devices_close(&service);
    play.stored_bytes = 14 * MIB; /* of a predecessor, whose GPUs may have been others */
    service.catalogue = (struct sw_catalogue *)(void *)&play;
    ck_assert_int_eq(open_devices("auto"), 0);
    ck_assert_uint_eq(play.asked_gpu.stored_chunk_bytes, 14 * MIB);
    ck_assert_uint_eq(play.asked_host.stored_chunk_bytes, 14 * MIB);
    sw_devices_close(&service);
    play.stored_bytes = 10 * MIB;
    ck_assert_int_eq(open_devices("auto"), 0);
    ck_assert_uint_eq(play.asked_gpu.stored_chunk_bytes, 10 * MIB);
    ck_assert_uint_eq(play.asked_host.stored_chunk_bytes, 12 * MIB);
    sw_devices_close(&service);
    play.is_new = true;
    ck_assert_int_eq(open_devices("auto"), 0);
    ck_assert_uint_eq(play.asked_gpu.stored_chunk_bytes, 0);
}
END_TEST

/* What a device that does otherwise than configured logs. Without stored regions it logs nothing. */
static const struct {
    uint64_t stored_bytes, chunk_bytes, configured_bytes;
    unsigned n_slots;
    const char *says; /* NULL: nothing */
} chunks[] = {
    {0, 32 * MIB, 16 * MIB, 1, NULL},
    {16 * MIB, 16 * MIB, 16 * MIB, 2, NULL},
    {8 * MIB, 16 * MIB, 16 * MIB, 3, NULL},
    {16 * MIB, 16 * MIB, 0, 2, NULL},
    {32 * MIB, 32 * MIB, 0, 2, NULL},
    {32 * MIB, 32 * MIB, 16 * MIB, 2, "event=chunks.kept device=host chunk_bytes=33554432 slots=2 "},
    {16 * MIB, 16 * MIB, 16 * MIB, 1, "event=chunks.kept device=host chunk_bytes=16777216 slots=1 "},
    {32 * MIB, 32 * MIB, 0, 1, "event=chunks.kept device=host chunk_bytes=33554432 slots=1 "},
    {16 * MIB + 1, 16 * MIB, 16 * MIB, 2,
     "event=chunks.too_long device=host chunk_bytes=16777216 stored_bytes=16777217 "},
    {32 * MIB, 24 * MIB, 16 * MIB, 1, "event=chunks.too_long device=host chunk_bytes=25165824 stored_bytes=33554432 "},
};
enum { CHUNKS = sizeof chunks / sizeof chunks[0] };

START_TEST(chunks_of_a_predecessor_are_logged) {
    service.catalogue = (struct sw_catalogue *)(void *)&play;
    play.stored_bytes = chunks[_i].stored_bytes;
    play.host_chunk_bytes = chunks[_i].chunk_bytes;
    play.n_slots = chunks[_i].n_slots;
    config.chunk_bytes = chunks[_i].configured_bytes;
    ck_open("host", "host");
    const char *says = chunks[_i].says;
    ck_assert_msg(says ? strstr(sw_kept_log, says) != NULL : !sw_kept_log[0], "%s", sw_kept_log);
    const char *line = strstr(sw_kept_log, "event=");
    ck_assert_msg(!line || !strstr(line + 1, "event="), "%s", sw_kept_log);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_devices");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_host_is_last);
    tcase_add_test(tests, a_gpu_is_required);
    tcase_add_test(tests, an_old_driver);
    tcase_add_test(tests, an_old_card);
    tcase_add_test(tests, a_broken_device);
    tcase_add_test(tests, more_gpus_than_places);
    tcase_add_test(tests, memory_without_a_guard_is_logged);
    tcase_add_test(tests, devices_are_opened_as_configured);
    tcase_add_test(tests, the_host_has_the_longest_chunk);
    tcase_add_loop_test(tests, chunks_of_a_predecessor_are_logged, 0, CHUNKS);
    Suite *suite = suite_create("daemon_devices");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
