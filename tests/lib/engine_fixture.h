/* engine_fixture.h - an engine on the host device (wrapped so that steps can be made to fail) and a real loop, for
 * tests; and the test's own view of a client's memory.
 *
 * Every call checks what it does with ck_assert. sw_fixture_close() also proves that nothing is left: allocations,
 * descriptors, mappings, arena bytes. */
#ifndef SW_TEST_ENGINE_FIXTURE_H
#define SW_TEST_ENGINE_FIXTURE_H

#include "spill/engine.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/device_faulty.h"
#include "tests/lib/nvme_fixture.h"

enum { SW_FIXTURE_MAX_DURABLE = 3 };

struct sw_fixture_config {
    unsigned n_slots;
    uint64_t chunk_bytes;
    uint64_t capacity_bytes, initial_bytes;
    uint64_t nvme_bytes, staging_bytes; /* 0: no NVMe tier */
    unsigned high_pct, low_pct;
    const struct sw_nvme_file_ops *files; /* of the NVMe tier; NULL: the system's */
    unsigned max_regions, max_owner_regions, max_owner_mems;
};
extern const struct sw_fixture_config sw_fixture_defaults;

struct sw_fixture {
    uv_loop_t loop;
    struct sw_device *device;    /* a faulty one */
    struct sw_tier *tier, *nvme; /* nvme: in a folder of its own, gone with the fixture; or NULL */
    struct sw_nvme_folder folder;
    struct sw_engine *engine;
    struct sw_owner *owner;
    long live_before;
    unsigned fds_before;
};

/* How the fixture opens a device, and describes a client's memory: the host device and memfds, unless a test with
 * another device has set these functions before. */
extern int (*sw_fixture_open_device)(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err);
struct sw_memory;
extern struct sw_mem_desc (*sw_fixture_describe)(const struct sw_memory *memory);

/* Config NULL: the defaults. */
void sw_fixture_open(struct sw_fixture *ret, const struct sw_fixture_config *config);
/* Closes the owner (if still there) and the engine. */
void sw_fixture_close(struct sw_fixture *fixture);
/* Runs the loop until *flag. */
void sw_fixture_until(struct sw_fixture *fixture, const bool *flag);
/* Closes an owner and waits. */
void sw_fixture_close_owner(struct sw_fixture *fixture, struct sw_owner *owner);

/* A client's memfd, mapped, with all of its pages; sealed against shrinking. */
struct sw_memory {
    int fd;
    uint8_t *data;
    size_t bytes;
};
struct sw_memory sw_memory_new(size_t bytes);
void sw_memory_free(struct sw_memory *memory);
/* A description of it with a descriptor of its own; as a memfd, and as sw_fixture_describe() has it. */
struct sw_mem_desc sw_memory_memfd_desc(const struct sw_memory *memory);
struct sw_mem_desc sw_memory_desc(const struct sw_memory *memory);
/* Maps the memory on a device. */
struct sw_mapping *sw_memory_map(struct sw_device *device, const struct sw_memory *memory);
/* Hands it to the engine. */
struct sw_mem *sw_fixture_mem(struct sw_fixture *fixture, struct sw_owner *owner, const struct sw_memory *memory,
                              bool once);
void sw_fixture_close_mem(struct sw_fixture *fixture, struct sw_mem *mem);

/* An operation and its end. */
struct sw_test_op {
    bool done;
    unsigned calls;
    struct sw_region_id id;
    struct sw_outcome outcome;
};
/* done-callback of an operation whose arg is a struct sw_test_op. */
void sw_test_op_done(const struct sw_outcome *outcome, void *arg);

/* Spills or restores through a `once` memory and waits; returns the operation's error, also one at its start. */
int sw_fixture_spill(struct sw_fixture *fixture, const struct sw_memory *memory, uint64_t offset, uint64_t bytes,
                     struct sw_test_op *ret);
int sw_fixture_restore(struct sw_fixture *fixture, struct sw_region_id id, const struct sw_memory *memory,
                       uint64_t offset, uint64_t bytes, bool keep, struct sw_test_op *ret);

/* Packs or unpacks a range in place, likewise. */
int sw_fixture_pack(struct sw_fixture *fixture, const struct sw_memory *memory, uint64_t offset, uint64_t bytes,
                    struct sw_test_op *ret);
int sw_fixture_unpack(struct sw_fixture *fixture, struct sw_region_id id, const struct sw_memory *memory,
                      uint64_t offset, uint64_t bytes, struct sw_test_op *ret);

/* The n-th commit in host memory (1 = next) fails with -SW_EIO, its frame stays uncommitted; 0: none. Returns how many
 * commits there were since the last call. */
unsigned sw_fixture_fail_commit(struct sw_fixture *fixture, unsigned nth);

/* State of a region of the fixture's owner, or the error of the query. */
int sw_fixture_state(struct sw_fixture *fixture, struct sw_region_id id);

#endif
