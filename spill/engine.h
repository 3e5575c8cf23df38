/* engine.h - moves regions between clients' memory and tiers. The engine owns the state of all regions.
 *
 * The loop thread owns the engine. One worker thread per device does the work and reports through a queue and one
 * uv_async_t. Nothing here waits. An operation that was accepted (the call returned 0) calls back exactly once, on the
 * loop, never from inside the call that started it. An operation that is refused returns its error and does not call
 * back.
 *
 * Invariant: a region that is not LOST has at least one complete, verified copy. A failed or canceled spill leaves the
 * client's memory as it was, and the region's id is dead. A failed restore leaves the region OUT. sw_engine_check()
 * asserts the books; tests call it after each fault.
 *
 * All functions: thread loop. */
#ifndef SW_SPILL_ENGINE_H
#define SW_SPILL_ENGINE_H

#include "base/err.h"
#include "spill/device/device.h"
#include "spill/journal/recovery.h"
#include "spill/planner/cost.h"
#include "spill/store/damage.h"
#include "spill/store/names.h"
#include "spill/store/quota.h"
#include "spill/tier/tiers.h"
#include "spill/worker/order.h"
#include <stdbool.h>
#include <uv.h>

struct sw_engine;
struct sw_owner; /* a session, as the engine sees it: its memories, regions and operations */
struct sw_mem;   /* a client's memory */

struct sw_engine_config {
    struct sw_device *const *devices; /* borrowed; used by the workers from open until closed */
    unsigned n_devices;
    struct sw_tiers tiers;
    uint64_t staging_bytes;         /* part of the first tier, for frames in transit to the tiers behind it and back */
    unsigned high_pct, low_pct;     /* above high, regions are demoted until low is reached */
    unsigned max_regions;           /* all sessions together */
    unsigned max_owner_regions;     /* per session */
    unsigned max_owner_mems;        /* memories of one session */
    struct sw_catalogue *catalogue; /* borrowed; NULL: nothing survives the process */
    struct sw_observer observer;
};

/* ---- engine.c: start and stop ---- */

/* Starts an engine. errors: -SW_ENOMEM, -SW_EINVAL. */
int sw_engine_open(struct sw_engine **ret, uv_loop_t *loop, const struct sw_engine_config *config, struct sw_err *err);
/* Stops in order: cancels running operations, joins the workers, then calls `closed` once. All owners must be closed or
 * closing. NULL engine: no-op. */
void sw_engine_close(struct sw_engine *engine, void (*closed)(void *arg), void *arg);

/* Returns the longest chunk that has room in transit to the disk and back. Regions get no longer chunks, whatever their
 * device takes. */
uint64_t sw_engine_chunk_bytes(const struct sw_engine *engine);

/* ---- recovery: engine.c, owner.c ---- */

/* Finds the sessions and regions of the previous process in the catalogue and the tiers, and releases the rest. Call it
 * once, before the first owner is opened. errors: -SW_ENOMEM. */
int sw_engine_recover(struct sw_engine *engine, struct sw_recovered *ret, struct sw_err *err);
/* Claims the owner that the previous process recorded under this name, with its regions. From now on it belongs to the
 * caller. Returns NULL if there is none, or if it is claimed already. */
struct sw_owner *sw_owner_claim(struct sw_engine *engine, uint32_t uid, const uint8_t token[SW_TOKEN_BYTES]);
/* Visits the unclaimed owners, so that they get a quota and a tenant owner. Before them it visits the tenant owners
 * that were made for durable regions without a session; these belong to the caller from then on. If visit() returns an
 * error, the call ends early and returns the error. */
int sw_owners_visit_found(struct sw_engine *engine,
                          int (*visit)(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg,
                                       struct sw_err *err),
                          void *arg, struct sw_err *err);
/* Closes the unclaimed owners of one quota, or of all (NULL), or leaves them to the next process. `closed` (may be
 * NULL) runs for each, with its quota. Returns the number of owners. */
unsigned sw_owners_close_unclaimed(struct sw_engine *engine, const struct sw_quota *quota, bool leave,
                                   void (*closed)(void *quota));
/* Closes the unclaimed owners whose client process has certainly ended. Returns their number; *ret_running: the number
 * of the others. */
unsigned sw_owners_close_ended(struct sw_engine *engine, void (*closed)(void *quota), unsigned *ret_running);
/* Closes the unclaimed owner that has the tenant's durable region of this name if its client process has certainly
 * ended; the tenant owner gets the region. Returns whether it did. */
bool sw_owners_close_ended_holder(struct sw_owner *owner, const char *name, void (*closed)(void *quota));
/* Records the owner under a name. Only recorded owners and their regions outlive this process, if there is a catalogue.
 * process: the client's (copied). errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_owner_name(struct sw_owner *owner, uint32_t uid, const struct sw_process *process,
                  const uint8_t token[SW_TOKEN_BYTES], struct sw_err *err);

/* ---- owner.c ---- */

int sw_owner_open(struct sw_engine *engine, struct sw_owner **ret, struct sw_err *err);
/* Cancels the owner's operations (their callbacks still run, with -SW_ECANCELED or their result), and drops its regions
 * and memories. Calls `closed` once when nothing of the owner is mapped or stored any more. */
void sw_owner_close(struct sw_owner *owner, void (*closed)(void *arg), void *arg);
/* Closes the owner, too, but the regions of a recorded owner stay for the next process. After this no owner may begin
 * an operation: the engine is about to be closed. */
void sw_owner_leave(struct sw_owner *owner, void (*closed)(void *arg), void *arg);
/* Says that all replies have been sent: the client knows of every region that was made, restored or consumed. */
void sw_owner_acknowledged(struct sw_owner *owner);

/* ---- immediate.c ---- */

/* Takes the durable region of that name over from the tenant owner. Its id stays. A region that the owner has already
 * is found, too. errors: -SW_ENOENT, -SW_EBUSY (another owner has it, or it is moving between tiers), -SW_ELIMIT, those
 * of recording. After an error the region stays where it is. */
int sw_engine_adopt(struct sw_owner *owner, const char *name, struct sw_region_id *ret, struct sw_err *err);

/* ---- mem.c ---- */

/* Opens a memory by its description (moved: *desc is emptied, also on error). A `once` memory is unmapped as soon as
 * the first operation that uses it ends, before the operation's callback; a second operation is refused (-SW_EINVAL).
 * Any other memory stays mapped until sw_mem_close(). The handle lives until sw_mem_close() in both cases. The worker
 * maps the memory, for sw_mem_map() or with the first operation. The descriptors are closed once it has been mapped.
 * errors: -SW_EDEVICE (no such GPU), -SW_ELIMIT, -SW_ENOMEM, -SW_ESHUTDOWN. */
int sw_mem_open(struct sw_owner *owner, struct sw_mem_desc *desc, bool once, struct sw_mem **ret, struct sw_err *err);
/* Keeps a `once` memory, which no operation has used yet, mapped until sw_mem_close(), because several jobs will use
 * it. */
void sw_mem_share(struct sw_mem *mem);
/* Maps a memory that is not `once` now, so that errors are known before the first operation. `mapped` runs once on the
 * loop, not from inside this call, and before the `closed` of sw_mem_close(). After an error the memory is open as
 * before. Call it at most once for a memory. errors: the device's. */
void sw_mem_map(struct sw_mem *mem, void (*mapped)(const struct sw_err *err, void *arg), void *arg);
/* Unmaps the memory when the operations that use it have ended, then calls `closed` (may be NULL) on the loop, not from
 * inside this call. New operations must not use the memory. */
void sw_mem_close(struct sw_mem *mem, void (*closed)(void *arg), void *arg);

/* ---- engine.c: operations ---- */

struct sw_outcome {
    struct sw_err err; /* err.code 0: success */
    struct sw_region_id region;
    uint64_t raw_bytes, stored_bytes;
    enum sw_codec_id codec; /* of most of the region's bytes */
    const char *coder;      /* what has encoded or decoded all of its chunks: "client", "daemon" */
    const char *reason;     /* why the spill compressed it, or did not: sw_cost_reason_text() */
    const char *tier;       /* its name, or SW_PACKED_TIER_NAME */
    uint64_t queued_us, total_us;
    char name[SW_REGION_NAME_BYTES]; /* of a durable region, else empty */
    enum sw_durability durability;   /* that the region has reached */
};
typedef void sw_outcome_cb(const struct sw_outcome *outcome, void *arg);

/* A range of a memory: a buffer of a region, or a part of one. */
struct sw_range {
    struct sw_mem *mem;
    uint64_t offset, bytes;
    struct sw_order order;   /* what the client's stream has to reach first; the page stays the caller's */
    enum sw_value_type type; /* spill: the range holds whole numbers of it; SW_VALUE_NONE: any bytes */
    unsigned buffer;         /* builds and reads: which buffer of the region it is a part of */
    uint64_t at;             /* builds and reads: where in the buffer it begins */
    /* Builds and reads. 0: the range holds raw bytes. Otherwise it holds, or has room for, the frame of exactly one
     * chunk, which the client encodes and decodes; `bytes` is the chunk's raw length, for reads at least. */
    uint64_t frame_bytes;
    /* Reads, with frame_bytes: the client says that the frame is bad. A CPU decodes the stored frame before it is sent.
     * If it is bad, too, the read fails and the region is LOST. */
    bool is_disputed;
};

/* The spill or the restore of a whole region. It is borrowed for the call only. */
struct sw_transfer {
    const struct sw_range *ranges; /* [n] one for each buffer, in order */
    unsigned n;
    bool in_place;                 /* pack and unpack: the frames lie in the range itself */
    bool keep;                     /* restore: the region stays OUT */
    uint32_t request, batch_index; /* spill: sw_engine_find_by_request() finds the region by them */
    const char *name;              /* spill: the durable region's (copied); NULL: it is not durable */
    enum sw_durability durability; /* spill: that a durable region has to reach */
    enum sw_prefer prefer;         /* spill: what it is compressed for; NONE: as its tenant prefers */
};

/* Makes a region of n buffers (1 to SW_FRAMES_MAX_BUFFERS) in any memories of the owner, and copies their bytes (any
 * number, also 0) to the tiers. The region has one id and one state. Each buffer has its own type, frames and codec.
 * *ret_id is valid at once, in state STAGING. When done() reports success, every frame is committed and a `once` memory
 * is unmapped. Only a single buffer may be `once` or in place.
 *
 * in_place packs the buffer: its frames lie at the front of the range, the outcome's stored_bytes long. A frame longer
 * than its chunk leaves its first part in the tier. The client may reuse the rest of the range until it unpacks. A pack
 * that fails or is canceled is undone: the range has its bytes again. If that fails, too, the error is -SW_ELOST.
 *
 * name makes the region durable (sw_owner_set_tenant_owner()). With a durability above SW_DURABILITY_SERVICE its frames
 * go to a tier that keeps regions, and done() reports success when the tier keeps it (-SW_EDURABILITY: no tier can).
 *
 * errors, which name the buffer: -SW_EINVAL (number of buffers, an unknown type, bytes that are no whole values, a name
 * of no bytes or of SW_REGION_NAME_BYTES or more, a name with in_place), -SW_ERANGE, -SW_EBUSY (a pack or unpack uses
 * the bytes), -SW_ELIMIT, -SW_ENOSPACE (it never fits), -SW_ETENANTBYTES, -SW_ETENANTREGIONS, -SW_ETENANTMEMORY,
 * -SW_ENOTSUP (there is no tenant owner for a durable region), -SW_EEXIST, -SW_ENOMEM, -SW_ESHUTDOWN. Later in outcome:
 * those of mapping and of reserving (-SW_ENOSPACE), -SW_ETENANTBYTES, -SW_EGPU, -SW_EGPULOST, -SW_ECANCELED. The region
 * is then forgotten and the memory unchanged. */
int sw_engine_spill(struct sw_owner *owner, const struct sw_transfer *transfer, sw_outcome_cb *done, void *arg,
                    struct sw_region_id *ret_id, struct sw_err *err);

/* Copies a region's bytes into n ranges, one for each of its buffers, in the same order and with room for it. No two
 * ranges may overlap. On success the stored copy is dropped and the id dies, unless `keep`, or the region is durable:
 * then it stays OUT. After an error the content of the ranges is undefined and the region is OUT, or LOST after
 * -SW_EFRAME, -SW_ECHECKSUM and -SW_EVERSION.
 *
 * in_place unpacks a packed region, and only such a region. The range starts with the frames as the pack left them. If
 * the unpack fails, the region is OUT, also after -SW_EFRAME, -SW_ECHECKSUM and -SW_EVERSION, which say that the range
 * does not have the region's frames; no byte has been written if one of them is another frame. The range still belongs
 * to the region: some chunks are raw, the others packed, and the next call continues.
 *
 * errors, which name the buffer: -SW_EINVAL, -SW_ENOTSUP (its client has packed it), -SW_ENOENT, -SW_ESTALE,
 * -SW_ESTATE (not OUT), -SW_EBUSY (being restored), -SW_ELOST, -SW_ETOOSMALL, -SW_ERANGE, -SW_ENOMEM,
 * -SW_ETENANTMEMORY, -SW_ESHUTDOWN. Later in outcome: as above, also -SW_EACCES (the memory cannot be written) and
 * -SW_ENOTSUP (the region's chunks are longer than this device's). */
int sw_engine_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_transfer *transfer,
                      sw_outcome_cb *done, void *arg, struct sw_err *err);

/* A region that its client has packed in its own memory, which the engine does not know. */
struct sw_packed {
    uint64_t raw_bytes, stored_bytes; /* before, and after */
    enum sw_value_type type;
    enum sw_codec_id codec; /* of most bytes */
    uint32_t request, batch_index;
};
/* Makes a region of it, which is OUT, and recorded, when the call returns. Its client has the directory. So only the
 * client can unpack it, and consumes the region then (sw_engine_consume()). errors: -SW_EINVAL, -SW_ELIMIT,
 * -SW_ETENANTREGIONS, -SW_ETENANTMEMORY, -SW_ENOMEM, -SW_ESHUTDOWN. */
int sw_engine_note_packed(struct sw_owner *owner, const struct sw_packed *packed, struct sw_outcome *ret,
                          struct sw_err *err);

/* Between these two calls accepted operations are held back. They begin together with the release, so that the
 * operations of one message reach a device together. needs_kernels: the device is woken for them meanwhile. The calls
 * do not nest. */
void sw_engine_hold(struct sw_engine *engine, bool needs_kernels);
void sw_engine_release(struct sw_engine *engine);

/* Cancels the region's operation, if there is one. It calls back with -SW_ECANCELED, or with its result. */
void sw_engine_cancel(struct sw_owner *owner, struct sw_region_id id);

/* Forgets a region that is OUT, LOST or IN, and frees its space. errors: -SW_ENOENT, -SW_ESTALE, -SW_EBUSY. */
int sw_engine_drop(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err);
/* Forgets a region whose bytes are back in the client's memory: the next process finds it IN until
 * sw_owner_acknowledged(). A durable region stays. */
int sw_engine_consume(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err);

/* Announces sw_engine_consume(): from now on the next process finds the region IN. So the reply may be sent before the
 * region is consumed. */
void sw_engine_announce_consumed(struct sw_owner *owner, struct sw_region_id id);
/* Forgets the owner's regions that are IN. The client knows of them, and will not ask for regions by request again. */
void sw_engine_forget_in(struct sw_owner *owner);

/* ---- request_index.c ---- */

/* Finds the regions that a request of this owner has made, also in an earlier process. ret[i]: the region with batch
 * index i; generation 0: there is none. The first call builds an index of the owner's regions. Regions that are made
 * later are not found until sw_engine_forget_in() frees the index. Request 0 has no regions. */
void sw_engine_find_by_request(struct sw_owner *owner, uint32_t request, struct sw_region_id *ret, uint32_t n);
/* Request numbers wrap around. Forgets the numbers of the owner's regions that lie ahead of the newest number: they are
 * from before the wrap, and nothing must be found by them when they are used again. Looks at all of the owner's
 * regions. */
void sw_owner_forget_requests(struct sw_owner *owner, uint32_t newest);

/* ---- build.h, read.h ---- */

enum { SW_SERIES_MAX_BATCH = 256 }; /* builds or reads that end together */

/* ---- immediate.c: advice ---- */

enum sw_advice { SW_ADVISE_PRIORITY, SW_ADVISE_PIN, SW_ADVISE_PREFETCH, SW_ADVISE_DEMOTE };
/* Takes advice about a region that is OUT.
 *   PRIORITY, 0 to 255: regions of lower priority leave a tier first.
 *   PIN, 0 or 1: a pinned region does not leave its tier.
 *   PREFETCH, 0: begins to move the region to the first tier. It can be restored or dropped meanwhile.
 *   DEMOTE, 0: begins to move the region from the first tier to a tier behind it.
 * errors: -SW_EINVAL (also: a packed region, which is in no tier, cannot be demoted), -SW_ENOENT, -SW_ESTALE,
 * -SW_ELOST, -SW_EBUSY (an operation or a move is under way), -SW_ENOTSUP (there is no tier behind), -SW_ENOSPACE,
 * -SW_ENOMEM. */
int sw_engine_advise(struct sw_owner *owner, struct sw_region_id id, enum sw_advice advice, uint32_t value,
                     struct sw_err *err);

/* ---- query.c ---- */

struct sw_region_info {
    enum sw_region_state state;
    uint64_t raw_bytes, stored_bytes;
    enum sw_codec_id codec;
    const char *tier;
    const char *coder;             /* what has encoded all of it: "client", "daemon" */
    const char *reason;            /* as in struct sw_outcome */
    enum sw_durability durability; /* that it has reached */
    bool in_place;                 /* packed: if it is LOST, its bytes are not in the client's memory either */
    unsigned n_buffers;            /* 0: being spilled, or LOST */
};
/* Describes a region. errors: -SW_ENOENT (also for another owner's region, whose existence is not confirmed),
 * -SW_ESTALE. */
int sw_engine_query(struct sw_owner *owner, struct sw_region_id id, struct sw_region_info *ret, struct sw_err *err);

enum { SW_LIST_MAX = 256 };
struct sw_listed {
    char name[SW_REGION_NAME_BYTES];
    struct sw_region_info info; /* a region that is being spilled is listed, too: its name is taken */
    struct sw_region_id id;     /* 0:0: it is not this owner's */
};
/* Lists the durable regions of the tenant, in the order of their names, behind `after` (the empty name: from the first
 * one on). max: at most SW_LIST_MAX. Returns their number. */
unsigned sw_engine_list(const struct sw_owner *owner, const char *after, struct sw_listed *ret, unsigned max);

/* A buffer of a region. */
struct sw_buffer_info {
    uint64_t raw_bytes, stored_bytes;
    uint64_t chunk_bytes;    /* of each stored chunk but the last */
    enum sw_value_type type; /* of which its frames were encoded; SW_VALUE_NONE: bytes */
    enum sw_codec_id codec;  /* of most of its bytes */
    const char *reason;      /* as in struct sw_outcome; after a restart the region's */
};
/* Describes the buffers of a region. errors: as above, -SW_EBUSY (being spilled), -SW_ELOST. */
int sw_engine_query_buffers(struct sw_owner *owner, struct sw_region_id id,
                            struct sw_buffer_info ret[SW_FRAMES_MAX_BUFFERS], unsigned *ret_n, struct sw_err *err);

/* Says where the chunks of a packed region lie in its range: ret[0 ... *ret_n) are those from `first` on, at most
 * `max`. errors: as above, -SW_EBUSY (being unpacked), -SW_EINVAL (not packed), -SW_ENOTSUP (its client has
 * packed it), -SW_ERANGE (no such chunk). */
int sw_engine_query_packed(struct sw_owner *owner, struct sw_region_id id, size_t first,
                           struct spillway_packed_chunk *ret, size_t max, size_t *ret_n, size_t *ret_n_chunks,
                           struct sw_err *err);

struct sw_engine_stats {
    unsigned n_owners, n_regions, n_mems, n_mapped, n_ops;
    uint64_t spills, restores, failed_ops, canceled_ops;
    uint64_t packs; /* of the spills */
    /* Regions moved to a tier behind, to make room or on advice, and to the first tier, on advice. */
    uint64_t demotions, promotions;
    uint64_t spilled_raw_bytes, spilled_stored_bytes, restored_raw_bytes;
    uint64_t reasons[SW_COST_REASON_NR];      /* spills, by why they were compressed, or were not */
    uint64_t scratch_bytes;                   /* device memory taken, all GPUs */
    struct sw_tier_stats tiers[SW_TIERS_MAX]; /* by rank; all 0 where there is none */
};
void sw_engine_stats(const struct sw_engine *engine, struct sw_engine_stats *ret);
/* Sums capacity_bytes and used_bytes of all tiers behind the first, for messages that know two tiers only. */
struct sw_tier_stats sw_engine_stats_behind(const struct sw_engine_stats *stats);

/* ---- workers.c ---- */

/* Asks every worker, and its device, for a sign of life. A worker that still owes one is not asked again. */
void sw_engine_ask_life(struct sw_engine *engine);
/* Returns the time since the last sign of life, or since the start, of the worker that has been silent for longest. */
uint64_t sw_engine_silent_us(const struct sw_engine *engine);

/* Returns true once a device's context has died (-SW_EGPULOST). Operations on it fail until the process restarts. */
bool sw_engine_device_lost(const struct sw_engine *engine);

/* ---- engine_check.c ---- */

/* Asserts the invariants over all regions. */
void sw_engine_check(const struct sw_engine *engine);

#endif
