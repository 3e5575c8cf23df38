#include "tests/lib/pair_fixture.h"

#include "tests/lib/content.h"
#include <check.h>

struct sw_pair sw_pair;

void sw_pair_open(const struct sw_fixture_config *config, size_t bytes) {
    sw_fixture_open(&sw_pair.f, config);
    sw_pair.from = sw_memory_new(bytes);
    sw_pair.to = sw_memory_new(bytes);
    sw_pair.from_mem = sw_fixture_mem(&sw_pair.f, sw_pair.f.owner, &sw_pair.from, false);
    sw_pair.to_mem = sw_fixture_mem(&sw_pair.f, sw_pair.f.owner, &sw_pair.to, false);
    sw_content_fill(sw_pair.from.data, bytes, SW_CONTENT_MIXED, 3);
}

void sw_pair_open_busy_disk(size_t bytes) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.nvme_bytes = 64 << 20;
    config.staging_bytes = 4 << 20;
    config.high_pct = config.low_pct = 0;
    sw_pair_open(&config, bytes);
}

void sw_pair_close(void) {
    if (sw_pair.f.owner) {
        sw_fixture_close_mem(&sw_pair.f, sw_pair.from_mem);
        sw_fixture_close_mem(&sw_pair.f, sw_pair.to_mem);
    }
    sw_memory_free(&sw_pair.from);
    sw_memory_free(&sw_pair.to);
    sw_fixture_close(&sw_pair.f);
}

void sw_pair_release_until(const bool *flag) {
    while (!*flag) {
        sw_device_faulty_release(sw_pair.f.device);
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
    }
}

int sw_pair_wait(struct sw_test_op *op) {
    sw_pair_release_until(&op->done);
    sw_engine_check(sw_pair.f.engine);
    ck_assert_uint_eq(op->calls, 1);
    op->id = op->outcome.region;
    return op->outcome.err.code;
}
