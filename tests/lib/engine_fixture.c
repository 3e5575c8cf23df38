#include "tests/lib/engine_fixture.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/transfer.h"

#include "base/alloc.h"

#include <check.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const struct sw_fixture_config sw_fixture_defaults = {
    .n_slots = 2,
    .chunk_bytes = 64 << 10,
    .capacity_bytes = 64 << 20,
    .initial_bytes = 0,
    .max_regions = 1000,
    .max_owner_regions = 500,
    .max_owner_mems = 200,
};

int (*sw_fixture_open_device)(struct sw_device **ret, const struct sw_device_config *config,
                              struct sw_err *err) = sw_device_host_open;
struct sw_mem_desc (*sw_fixture_describe)(const struct sw_memory *memory) = sw_memory_memfd_desc;

static void open_nvme(struct sw_fixture *f, const struct sw_fixture_config *config) {
    f->folder = sw_nvme_folder_new();
    const struct sw_tier_nvme_config nvme_config = {.directory = f->folder.path,
                                                    .capacity_bytes = config->nvme_bytes,
                                                    .file_bytes = config->nvme_bytes,
                                                    .queue_depth = 16,
                                                    .method = config->files ? SW_TIER_NVME_THREADS : SW_TIER_NVME_AUTO,
                                                    .files = config->files};
    f->nvme = sw_nvme_open(&nvme_config);
}

static void close_nvme(struct sw_fixture *f) {
    struct sw_tier_stats stats;
    f->nvme->ops->stats(f->nvme, &stats);
    ck_assert_uint_eq(stats.used_bytes, 0);
    f->nvme->ops->close(f->nvme);
    sw_nvme_folder_free(&f->folder);
}

void sw_fixture_open(struct sw_fixture *f, const struct sw_fixture_config *config) {
    struct sw_device *host;
    struct sw_err err = {0};
    if (!config)
        config = &sw_fixture_defaults;
    memset(f, 0, sizeof *f);
    ck_assert_int_eq(uv_loop_init(&f->loop), 0); /* the first loop of a process opens descriptors that stay */
    ck_assert_int_eq(uv_loop_close(&f->loop), 0);
    f->live_before = sw_alloc_live();
    f->fds_before = sw_count_fds();
    ck_assert_int_eq(uv_loop_init(&f->loop), 0);
    struct sw_device_config device_config = {
        .scratch_bytes = 64 << 20, .n_slots = config->n_slots, .chunk_bytes = config->chunk_bytes};
    ck_assert_msg(sw_fixture_open_device(&host, &device_config, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(sw_device_faulty_open(&f->device, host, &err), 0);
    struct sw_tier_host_config tier_config = {.capacity_bytes = config->capacity_bytes,
                                              .initial_bytes = config->initial_bytes,
                                              .slab_bytes = 2 << 20,
                                              .devices = &f->device,
                                              .n_devices = 1};
    ck_assert_msg(sw_tier_host_open(&f->tier, &tier_config, &err) == 0, "%s", err.msg);
    if (config->nvme_bytes)
        open_nvme(f, config);
    struct sw_engine_config engine_config = {.devices = &f->device,
                                             .n_devices = 1,
                                             .tiers = {.at = {f->tier, f->nvme}, .n = f->nvme ? 2 : 1},
                                             .staging_bytes = config->staging_bytes,
                                             .high_pct = config->high_pct,
                                             .low_pct = config->low_pct,
                                             .max_regions = config->max_regions,
                                             .max_owner_regions = config->max_owner_regions,
                                             .max_owner_mems = config->max_owner_mems};
    ck_assert_msg(sw_engine_open(&f->engine, &f->loop, &engine_config, &err) == 0, "%s", err.msg);
    ck_assert_int_eq(sw_owner_open(f->engine, &f->owner, &err), 0);
}

static void set_flag(void *arg) {
    bool *flag = arg;
    ck_assert(!*flag);
    *flag = true;
}

void sw_fixture_until(struct sw_fixture *f, const bool *flag) {
    while (!*flag)
        (void)uv_run(&f->loop, UV_RUN_ONCE);
}

void sw_fixture_close_owner(struct sw_fixture *f, struct sw_owner *owner) {
    bool closed = false;
    sw_owner_close(owner, set_flag, &closed);
    ck_assert(!closed);
    sw_fixture_until(f, &closed);
}

void sw_fixture_close(struct sw_fixture *f) {
    struct sw_engine_stats stats;
    bool closed = false;
    sw_alloc_fail_nth(0);
    if (f->owner)
        sw_fixture_close_owner(f, f->owner);
    sw_engine_check(f->engine);
    sw_engine_stats(f->engine, &stats);
    ck_assert_uint_eq(stats.n_owners + stats.n_regions + stats.n_mems + stats.n_mapped + stats.n_ops, 0);
    ck_assert_uint_eq(stats.tiers[0].used_bytes, 0);
    ck_assert_uint_eq(stats.tiers[0].committed_frames, 0);
    sw_engine_close(f->engine, set_flag, &closed);
    ck_assert(!closed);
    ck_assert_int_eq(sw_owner_open(f->engine, &f->owner, NULL), -SW_ESHUTDOWN);
    sw_fixture_until(f, &closed);
    f->tier->ops->close(f->tier);
    if (f->nvme)
        close_nvme(f);
    f->device->ops->close(f->device);
    ck_assert_int_eq(uv_loop_close(&f->loop), 0);
    ck_assert_int_eq(sw_alloc_live(), f->live_before);
    ck_assert_uint_eq(sw_count_fds(), f->fds_before);
}

struct sw_memory sw_memory_new(size_t bytes) {
    struct sw_memory m = {.bytes = bytes};
    m.fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_ge(m.fd, 0);
    ck_assert_int_eq(ftruncate(m.fd, (off_t)bytes), 0);
    ck_assert_int_eq(fcntl(m.fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    if (bytes > 0)
        m.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, m.fd, 0);
    ck_assert(m.data != MAP_FAILED);
    return m;
}

void sw_memory_free(struct sw_memory *m) {
    if (m->data)
        (void)munmap(m->data, m->bytes);
    (void)close(m->fd);
}

struct sw_mem_desc sw_memory_memfd_desc(const struct sw_memory *m) {
    struct sw_mem_desc desc = {.kind = SW_MEM_MEMFD, .bytes = m->bytes, .n_parts = 1};
    desc.fds = sw_alloc_array(1, sizeof *desc.fds);
    desc.part_bytes = sw_alloc_array(1, sizeof *desc.part_bytes);
    ck_assert(desc.fds && desc.part_bytes);
    desc.fds[0] = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
    desc.part_bytes[0] = m->bytes;
    return desc;
}

struct sw_mem_desc sw_memory_desc(const struct sw_memory *m) {
    return sw_fixture_describe(m);
}

struct sw_mapping *sw_memory_map(struct sw_device *device, const struct sw_memory *memory) {
    struct sw_mem_desc desc = sw_memory_desc(memory);
    struct sw_mapping *mapping = NULL;
    struct sw_err err = {0};
    ck_assert_msg(device->ops->map(device, &desc, &mapping, &err) == 0, "%s", err.msg);
    sw_mem_desc_fini(&desc);
    return mapping;
}

struct sw_mem *sw_fixture_mem(struct sw_fixture *f, struct sw_owner *owner, const struct sw_memory *memory, bool once) {
    struct sw_mem_desc desc = sw_memory_desc(memory);
    struct sw_err err = {0};
    struct sw_mem *mem = NULL;
    (void)f;
    ck_assert_msg(sw_mem_open(owner, &desc, once, &mem, &err) == 0, "%s", err.msg);
    ck_assert_ptr_null(desc.fds);
    return mem;
}

void sw_fixture_close_mem(struct sw_fixture *f, struct sw_mem *mem) {
    bool closed = false;
    sw_mem_close(mem, set_flag, &closed);
    ck_assert(!closed);
    sw_fixture_until(f, &closed);
}

void sw_test_op_done(const struct sw_outcome *outcome, void *arg) {
    struct sw_test_op *op = arg;
    op->done = true;
    op->calls++;
    op->outcome = *outcome;
}

/* Waits for an accepted operation and closes its memory. */
static int finish(struct sw_fixture *f, struct sw_mem *mem, int rc, struct sw_test_op *op) {
    if (!rc) {
        ck_assert_uint_eq(op->calls, 0);
        sw_fixture_until(f, &op->done);
        rc = op->outcome.err.code;
    }
    sw_fixture_close_mem(f, mem);
    ck_assert_uint_le(op->calls, 1);
    return rc;
}

static int spill(struct sw_fixture *f, const struct sw_memory *memory, struct sw_range range, bool in_place,
                 struct sw_test_op *op) {
    memset(op, 0, sizeof *op);
    range.mem = sw_fixture_mem(f, f->owner, memory, true);
    int rc = sw_engine_spill(f->owner, SW_TRANSFER(&range, 1, .in_place = in_place), sw_test_op_done, op, &op->id,
                             &op->outcome.err);
    return finish(f, range.mem, rc, op);
}

static int restore(struct sw_fixture *f, struct sw_region_id id, const struct sw_memory *memory, struct sw_range range,
                   bool in_place, bool keep, struct sw_test_op *op) {
    memset(op, 0, sizeof *op);
    range.mem = sw_fixture_mem(f, f->owner, memory, true);
    int rc = sw_engine_restore(f->owner, id, SW_TRANSFER(&range, 1, .in_place = in_place, .keep = keep),
                               sw_test_op_done, op, &op->outcome.err);
    return finish(f, range.mem, rc, op);
}

int sw_fixture_spill(struct sw_fixture *f, const struct sw_memory *memory, uint64_t offset, uint64_t bytes,
                     struct sw_test_op *op) {
    return spill(f, memory, (struct sw_range){.offset = offset, .bytes = bytes}, false, op);
}

int sw_fixture_restore(struct sw_fixture *f, struct sw_region_id id, const struct sw_memory *memory, uint64_t offset,
                       uint64_t bytes, bool keep, struct sw_test_op *op) {
    return restore(f, id, memory, (struct sw_range){.offset = offset, .bytes = bytes}, false, keep, op);
}

int sw_fixture_pack(struct sw_fixture *f, const struct sw_memory *memory, uint64_t offset, uint64_t bytes,
                    struct sw_test_op *op) {
    return spill(f, memory, (struct sw_range){.offset = offset, .bytes = bytes}, true, op);
}

int sw_fixture_unpack(struct sw_fixture *f, struct sw_region_id id, const struct sw_memory *memory, uint64_t offset,
                      uint64_t bytes, struct sw_test_op *op) {
    return restore(f, id, memory, (struct sw_range){.offset = offset, .bytes = bytes}, true, false, op);
}

/* ---- commits that fail ---- */

static struct {
    const struct sw_tier_ops *real;
    struct sw_tier_ops ops;
    unsigned nth;
    atomic_uint n;
} commits;

static int commit(struct sw_tier *tier, struct sw_stored *stored, struct sw_err *err) {
    if (atomic_fetch_add(&commits.n, 1) + 1 == commits.nth)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_REQUEST, "the commit was made to fail");
    return commits.real->commit(tier, stored, err);
}

/* Nothing is under way, so no worker reads what is written here. */
unsigned sw_fixture_fail_commit(struct sw_fixture *f, unsigned nth) {
    const unsigned n = atomic_exchange(&commits.n, 0);
    if (f->tier->ops != &commits.ops)
        commits.real = f->tier->ops;
    commits.ops = *commits.real;
    commits.ops.commit = commit;
    commits.nth = nth;
    f->tier->ops = nth ? &commits.ops : commits.real;
    return n;
}

int sw_fixture_state(struct sw_fixture *f, struct sw_region_id id) {
    struct sw_region_info info;
    int rc = sw_engine_query(f->owner, id, &info, NULL);
    return rc ? rc : (int)info.state;
}
