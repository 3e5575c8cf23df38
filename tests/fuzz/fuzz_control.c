/* fuzz_control.c - lines of the control socket, to a service with a stored region and a connection that subscribes.
 *
 * Input: one byte for the caller's rights, then lines. "0:0", which is no region's id, stands for the id of the stored
 * region. What must hold: a line is answered by one JSON-RPC object, or by an array of them, or, if it is a
 * notification, not at all; and after any line the service's books are right. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "spill/operator.h"
#include "tests/lib/service.h"
#include "tests/lib/transfer.h"
#include "tests/lib/wire.h"
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { REGION_BYTES = 4096, MAX_LINES = 32 };

static struct sw_test_service service;
static struct sw_test_control control;
static struct sw_config config; /* as it was */
static struct sw_owner *owner;
static struct sw_region_id parked; /* gen 0: is not stored yet */

static void on_spilled(const struct sw_outcome *outcome, void *arg) {
    (void)arg;
    SW_ASSERT(outcome->err.code == 0);
    parked = outcome->region;
}

/* Stores the region, unless it is still there. */
static void park(void) {
    struct sw_range range = {.bytes = REGION_BYTES};
    struct sw_region_info info;
    struct sw_region_id id;
    if (sw_engine_query(owner, parked, &info, NULL) == 0)
        return;
    struct sw_mem_desc desc = {.kind = SW_MEM_MEMFD,
                               .bytes = REGION_BYTES,
                               .n_parts = 1,
                               .fds = sw_alloc_array(1, sizeof(int)),
                               .part_bytes = sw_alloc_array(1, sizeof(uint64_t))};
    SW_ASSERT(desc.fds && desc.part_bytes);
    desc.fds[0] = sw_wire_memfd(NULL, REGION_BYTES, F_SEAL_SHRINK);
    desc.part_bytes[0] = REGION_BYTES;
    parked.gen = 0;
    SW_ASSERT(sw_mem_open(owner, &desc, true, &range.mem, NULL) == 0);
    SW_ASSERT(sw_engine_spill(owner, SW_TRANSFER(&range, 1), on_spilled, NULL, &id, NULL) == 0);
    while (!parked.gen)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    sw_mem_close(range.mem, NULL, NULL);
}

static void start(void) {
    sw_test_service_start(&service);
    sw_test_control_start(&control, &service);
    config = service.config;
    (void)snprintf(config.log_level, sizeof config.log_level, "error");
    SW_ASSERT(sw_owner_open(service.service.engine, &owner, NULL) == 0);
}

/* Undoes the settings of an input, so that they do not reach the next one. */
static void reset(enum sw_control_right right) {
    sw_unsubscribe(&control.subscriber);
    service.config = config;
    service.service.draining = false;
    SW_ASSERT(sw_log_set_level_name(config.log_level));
    sw_engine_set_limits(service.service.engine, (unsigned)config.host_tier_high_pct,
                         (unsigned)config.host_tier_low_pct, (unsigned)config.max_session_regions);
    control.caller.right = right;
    park();
}

/* The line with the region's id in its place; owns: the caller, by free(). */
static char *name_region(const char *line, size_t bytes, size_t *ret_bytes) {
    char id[32];
    const char *at = memmem(line, bytes, "\"0:0\"", 5);
    const size_t before = at ? (size_t)(at - line) : bytes, after = at ? bytes - before - 5 : 0;
    const size_t n = at ? (size_t)snprintf(id, sizeof id, "\"%" PRIu32 ":%" PRIu32 "\"", parked.slot, parked.gen) : 0;
    char *named = malloc(before + n + after + 1);
    SW_ASSERT(named);
    memcpy(named, line, before);
    memcpy(named + before, id, n);
    memcpy(named + before + n, line + bytes - after, after);
    *ret_bytes = before + n + after;
    return named;
}

static void check_object(const json_t *answer) {
    const json_t *result = json_object_get(answer, "result"), *error = json_object_get(answer, "error"),
                 *data = json_object_get(error, "data");
    const char *version = json_string_value(json_object_get(answer, "jsonrpc")),
               *name = json_string_value(json_object_get(data, "name"));
    SW_ASSERT(json_object_size(answer) == 3 && json_object_get(answer, "id") && version && !strcmp(version, "2.0"));
    SW_ASSERT((result == NULL) != (error == NULL));
    SW_ASSERT(result || (json_is_integer(json_object_get(error, "code")) &&
                         json_is_string(json_object_get(error, "message")) && name && sw_err_from_name(name)));
}

static void feed(const char *line, size_t bytes) {
    size_t named_bytes;
    char *named = name_region(line, bytes, &named_bytes), *text = sw_test_control_line(&control, named, named_bytes);
    free(named);
    if (!text)
        return;
    const size_t n = strlen(text);
    SW_ASSERT(n > 1 && strchr(text, '\n') == text + n - 1); /* one line */
    json_t *answer = json_loadb(text, n, 0, NULL);
    SW_ASSERT(answer && (json_is_object(answer) || json_array_size(answer) > 0));
    for (size_t i = 0; i < json_array_size(answer); i++)
        check_object(json_array_get(answer, i));
    if (json_is_object(answer))
        check_object(answer);
    json_decref(answer);
    free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const enum sw_control_right rights[] = {SW_CONTROL_ALL, SW_CONTROL_ALL, SW_CONTROL_READ, SW_CONTROL_NOTHING};
    if (!owner)
        start();
    if (size == 0)
        return 0;
    reset(rights[data[0] % 4]);
    const char *line = (const char *)data + 1;
    size_t left = size - 1;
    for (unsigned i = 0; i < MAX_LINES && left > 0; i++) {
        const char *end = memchr(line, '\n', left);
        const size_t bytes = end ? (size_t)(end - line) : left;
        feed(line, bytes);
        line += bytes + (end != NULL);
        left -= bytes + (end != NULL);
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    }
    sw_engine_check(service.service.engine);
    return 0;
}
