/* lives.h - engines that run one after the other in the same world: the next one finds what the last one left in the
 * catalogue, in memory and on the disk.
 *
 * One world at a time, a test's own, and one life in it. Every call checks its work with ck_assert. */
#ifndef SW_TEST_LIVES_H
#define SW_TEST_LIVES_H

#include "spill/engine.h"
#include "spill/store/quota.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/nvme_fixture.h"

enum { SW_WORLD_REGIONS = 8, SW_WORLD_REGION_BYTES = 10 * 65536 - 77, SW_WORLD_MAX_SLABS = 16, SW_LIFE_TENANTS = 2 };

/* State that outlives an engine, and the test's settings for the lives to come. */
struct sw_world {
    int catalogue; /* -1: the next life makes it */
    struct sw_tier_host_slab slabs[SW_WORLD_MAX_SLABS];
    unsigned n_slabs;
    int io_pipe; /* the next life's host tier has a copy; -1: none */
    struct sw_nvme_folder folder;
    unsigned max_regions, high_pct, low_pct;
    uint64_t host_bytes;
    struct sw_memory memory; /* the client's, of one region */
    struct sw_region_id ids[SW_WORLD_REGIONS];
    struct sw_observer observer;          /* of the lives to come */
    const struct sw_nvme_file_ops *files; /* the same; NULL: the system's */
    enum sw_tier_nvme_method method;      /* of the disk */
    bool unwanted;                        /* as in struct sw_tier_nvme_config */
    struct sw_tier *(*open_last)(void);   /* makes a tier behind the others, for each of them; NULL: there is none */
    const char *spill_as;                 /* name of regions that are spilled now; NULL: they are not durable */
};
extern struct sw_world sw_world;

/* Checked fixture. */
void sw_world_setup(void);
void sw_world_teardown(void);
/* Bytes of region i. */
void sw_world_fill(uint8_t to[SW_WORLD_REGION_BYTES], unsigned i);

extern const uint8_t sw_life_token[SW_TOKEN_BYTES];
/* Bytes of the disk, for loop tests: without one, with one. */
extern const uint64_t sw_life_disks[2];

struct sw_life {
    uv_loop_t loop;
    struct sw_device *device;
    struct sw_tier *host, *nvme, *last; /* or NULL */
    struct sw_catalogue *catalogue;
    struct sw_engine *engine;
    struct sw_recovered found;
    struct sw_quota quotas[SW_LIFE_TENANTS]; /* of uid 1000 and 1001 */
    struct sw_owner *tenant_owners[SW_LIFE_TENANTS];
};

/* Opens all but recovers nothing yet. nvme_bytes 0: no disk. */
void sw_life_open(struct sw_life *ret, uint64_t nvme_bytes);
/* Closes the owner, which may be NULL, and unclaimed ones, then the engine. leave: recorded regions stay. */
void sw_life_close(struct sw_life *life, struct sw_owner *owner, bool leave);
/* Runs the loop until *flag. */
void sw_life_until(struct sw_life *life, const bool *flag);
/* Waits until only the worker uses the device, and frames lie one behind the other. */
void sw_life_await_arena(struct sw_life *life);
/* Recovers, and opens an owner of uid 1000 with sw_life_token. */
struct sw_owner *sw_life_new_owner(struct sw_life *life);

/* Spills region i from the world's memory, or restores it to that; some regions have several buffers. Returns the
 * operation's error, also one at its start. */
int sw_life_run(struct sw_life *life, struct sw_owner *owner, unsigned i, bool restore, bool keep);
void sw_life_spill_all(struct sw_life *life, struct sw_owner *owner);
void sw_life_restore_and_compare(struct sw_life *life, struct sw_owner *owner, unsigned i, bool keep);
void sw_life_restore_all(struct sw_life *life, struct sw_owner *owner, bool keep);
/* After each spill, so that none finds the host tier full: a region that is partly there ends with a life without its
 * disk. */
void sw_life_move_to_the_disk(struct sw_life *life);

/* --- with quotas, and tenant owners of durable regions, as the service has them --- */

/* Opens and recovers, with a tenant owner for each tenant that has something. Returns how many tenant owners were
 * found. */
unsigned sw_life_next(struct sw_life *ret, uint64_t nvme_bytes);
struct sw_owner *sw_life_named_owner(struct sw_life *life, uint32_t uid, const uint8_t token[SW_TOKEN_BYTES]);
/* NULL is a no-op. */
void sw_life_close_owner(struct sw_life *life, struct sw_owner *owner, bool leave);
/* The session, which may be NULL, the tenant owners and the engine; their state stays. */
void sw_life_end(struct sw_life *life, struct sw_owner *session);

#endif
