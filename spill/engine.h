/* engine.h - moves regions between device memory and tiers; owns all region state.
 *
 * The loop thread owns the engine; one worker thread per device does the work and reports back through a queue and one
 * uv_async_t. Nothing here waits. Every operation that was accepted (returned 0) calls back exactly once, on the loop,
 * never from inside the call that started it. An operation that is refused returns its error and does not call back.
 *
 * Invariant: a region that is not LOST has at least one complete, verified copy. A failed or canceled spill leaves the
 * client's memory as it was and the region's id dead; a failed restore leaves the region OUT. sw_engine_check() asserts
 * the books; tests call it after each fault.
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
struct sw_owner; /* what one session owns: memories, regions, operations */
struct sw_mem;   /* a client's memory that was handed over */

struct sw_engine_config {
    struct sw_device *const *devices; /* borrowed; used by the workers from open until closed */
    unsigned n_devices;
    struct sw_tiers tiers;
    uint64_t staging_bytes;         /* part of the first tier for frames on their way to those behind it and back */
    unsigned high_pct, low_pct;     /* above high, regions are moved to a tier behind until low is reached */
    unsigned max_regions;           /* all sessions together */
    unsigned max_owner_regions;     /* per session */
    unsigned max_owner_mems;        /* memories of one session */
    unsigned max_durable;           /* durable regions of one tenant owner */
    struct sw_catalogue *catalogue; /* borrowed; NULL: nothing survives the process */
    struct sw_observer observer;
};

/* ---- engine.c: start and stop ---- */

/* errors: -SW_ENOMEM, -SW_EINVAL. */
int sw_engine_open(struct sw_engine **ret, uv_loop_t *loop, const struct sw_engine_config *config, struct sw_err *err);
/* Orderly stop: running operations are canceled, workers joined, then `closed` runs once. All owners must be closed
 * or closing. NULL engine: no-op. */
void sw_engine_close(struct sw_engine *engine, void (*closed)(void *arg), void *arg);

/* The longest chunk that has room on its way to the disk and back: regions get no longer ones, whatever their device
 * takes. */
uint64_t sw_engine_chunk_bytes(const struct sw_engine *engine);

/* ---- recovery: engine.c, owner.c ---- */

/* Finds sessions and regions of a predecessor in the catalogue and the tiers, once, before the first owner is opened;
 * releases the rest. errors: -SW_ENOMEM. */
int sw_engine_recover(struct sw_engine *engine, struct sw_recovered *ret, struct sw_err *err);
/* The owner that a predecessor recorded under this name, with its regions: the caller's from now on; NULL: there is
 * none, or somebody has it. */
struct sw_owner *sw_owner_claim(struct sw_engine *engine, uint32_t uid, const uint8_t token[SW_TOKEN_BYTES]);
/* Shows those that nobody has claimed, so that they get a quota and a tenant owner, and before them the tenant owners
 * that were made for durable regions without a session, which are the caller's from then on. Ends early if visit()
 * returns an error, which it returns. */
int sw_owners_visit_found(struct sw_engine *engine,
                          int (*visit)(struct sw_owner *owner, uint32_t uid, bool is_tenant_owner, void *arg,
                                       struct sw_err *err),
                          void *arg, struct sw_err *err);
/* Closes those that nobody has claimed, of one quota, or all (NULL), or leaves them to the next process. Returns how
 * many. closed (may be NULL) runs
 * for each with its quota. */
unsigned sw_owners_close_unclaimed(struct sw_engine *engine, const struct sw_quota *quota, bool leave,
                                   void (*closed)(void *quota));
/* Closes those of them whose client's process has certainly ended. *ret_running: the others. */
unsigned sw_owners_close_ended(struct sw_engine *engine, void (*closed)(void *quota), unsigned *ret_running);
/* Records the owner under a name, so that it and its regions outlive the process; without this, or a catalogue, they do
 * not. process: the client's (copied). errors: -SW_ENOMEM, -SW_ELIMIT. */
int sw_owner_name(struct sw_owner *owner, uint32_t uid, const struct sw_process *process,
                  const uint8_t token[SW_TOKEN_BYTES], struct sw_err *err);

/* ---- owner.c ---- */

int sw_owner_open(struct sw_engine *engine, struct sw_owner **ret, struct sw_err *err);
/* Cancels the owner's operations (their callbacks still run, with -SW_ECANCELED or their result), drops its regions and
 * memories, then calls `closed` once when nothing of it is left mapped or stored. */
void sw_owner_close(struct sw_owner *owner, void (*closed)(void *arg), void *arg);
/* As sw_owner_close(), but of an owner with a name the regions stay for the next process. No operation may be accepted
 * from anybody after this: the engine is about to be closed. */
void sw_owner_leave(struct sw_owner *owner, void (*closed)(void *arg), void *arg);
/* The client has been sent all that it is owed: it knows of every region that was made, restored or consumed. */
void sw_owner_told(struct sw_owner *owner);

/* ---- immediate.c ---- */

/* Takes the durable region of that name over from the owner's tenant owner; its id stays. What the owner has already is
 * found, too. errors: -SW_ENOENT, -SW_EBUSY (another owner has it, or it is on its way between tiers), -SW_ELIMIT,
 * those of recording: it stays where it is. */
int sw_engine_adopt(struct sw_owner *owner, const char *name, struct sw_region_id *ret, struct sw_err *err);

/* ---- mem.c ---- */

/* Takes over a description (moved: *desc is emptied, also on error). `once`: unmapped as soon as the first operation
 * that uses it ends, and before its callback; a second operation is refused (-SW_EINVAL), the handle lives until
 * sw_mem_close. Else it stays mapped until sw_mem_close. Mapping happens on the worker, by sw_mem_map or with the first
 * operation; the descriptors are closed as soon as it has succeeded. errors: -SW_EDEVICE (no such GPU), -SW_ELIMIT,
 * -SW_ENOMEM, -SW_ESHUTDOWN. */
int sw_mem_open(struct sw_owner *owner, struct sw_mem_desc *desc, bool once, struct sw_mem **ret, struct sw_err *err);
/* Several jobs will use a `once` memory that none has used yet: it stays mapped until sw_mem_close(), as one that is
 * not `once`. */
void sw_mem_share(struct sw_mem *mem);
/* Maps a memory that is not `once` now, so that errors are known before the first operation: `mapped` runs once on the
 * loop, not from inside this call, and before the `closed` of sw_mem_close. After an error the mem is open as before.
 * At most once for a mem. errors: those of map. */
void sw_mem_map(struct sw_mem *mem, void (*mapped)(const struct sw_err *err, void *arg), void *arg);
/* Unmaps when the operations that use it have ended, then calls `closed` (may be NULL) on the loop, not from inside
 * this call. The mem must not be used for new operations afterwards. */
void sw_mem_close(struct sw_mem *mem, void (*closed)(void *arg), void *arg);

/* ---- engine.c: operations ---- */

/* Outcome of an operation. */
struct sw_outcome {
    struct sw_err err; /* err.code 0: success */
    struct sw_region_id region;
    uint64_t raw_bytes, stored_bytes;
    enum sw_codec_id codec; /* of most of the region's bytes */
    const char *reason;     /* why it was compressed, or was not, when it was spilled: sw_cost_reason_text() */
    const char *coder;      /* what has encoded all of its chunks, or decoded them: "client", "daemon" */
    const char *tier;       /* its name, or SW_PACKED_TIER_NAME */
    uint64_t queued_us, total_us;
    char name[SW_REGION_NAME_BYTES]; /* of a durable region; empty: it is not */
};
typedef void sw_outcome_cb(const struct sw_outcome *outcome, void *arg);

struct sw_range {
    struct sw_mem *mem;
    uint64_t offset, bytes;
    /* Builds and reads: 0: raw bytes lie at offset. Else the frame of exactly one chunk, which the client encodes and
     * decodes: so long, or with room for so much. `bytes` is the chunk's raw length, read: at least that. */
    uint64_t frame_bytes;
    struct sw_order order;         /* what the client's stream has to reach first; the page stays the caller's */
    bool in_place;                 /* pack and unpack: the frames lie in the range itself */
    enum sw_value_type type;       /* spill: of which the range holds whole numbers; SW_VALUE_NONE: bytes */
    uint32_t request, batch_index; /* spill: by what sw_engine_find_by_request() finds the region again */
    const char *name;              /* spill: makes the region durable under this name; copied; NULL: it is not */
    unsigned buffer;               /* builds and reads: of which buffer of the region it is a part */
    uint64_t at;                   /* the same: where in that buffer it begins */
};

/* Copies range (any length, also 0) to the tier and makes a region of it: *ret_id is valid at once, in state STAGING.
 * When done(success) runs, every frame is committed and a `once` memory is unmapped.
 * range->in_place: packs instead. The frames lie at the front of the range, the outcome's stored_bytes long (frames
 * that are longer than their chunk leave their first part in the tier); the rest of the range is the client's to reuse
 * until it unpacks. A pack that fails or is canceled is undone: the range has its bytes again. If that fails too, the
 * error is -SW_ELOST.
 * range->name: the region is durable, see sw_owner_set_tenant_owner(); not with in_place. errors then also: -SW_ENOTSUP
 * (no tenant owner), -SW_EEXIST, -SW_EINVAL (no bytes, or SW_REGION_NAME_BYTES or more). errors: -SW_ERANGE,
 * -SW_ELIMIT, -SW_ETENANTBYTES (nothing is left), -SW_ETENANTREGIONS, -SW_ENOMEM, -SW_EINVAL (also: no type, or bytes
 * that are no whole numbers), -SW_ESHUTDOWN; later in outcome: those of map and of reserve
 * (-SW_ENOSPACE), -SW_ETENANTBYTES, -SW_EGPU, -SW_EGPULOST, -SW_ECANCELED; the region is then forgotten and the memory
 * unchanged. */
int sw_engine_spill(struct sw_owner *owner, const struct sw_range *range, sw_outcome_cb *done, void *arg,
                    struct sw_region_id *ret_id, struct sw_err *err);

/* Puts a region's bytes into range, which must have room for all of them (range->bytes >= raw_bytes). On success the
 * stored copy is dropped and the id dies, unless `keep`, or the region is durable: then it stays OUT. When done runs
 * with an error the destination's content is undefined and the region is OUT (or LOST, on -SW_EFRAME, -SW_ECHECKSUM and
 * -SW_EVERSION). range->in_place: unpacks a packed region, and only such a one: the range starts with the frames as the
 * pack left them. If it fails the region is OUT, also on -SW_EFRAME, -SW_ECHECKSUM and -SW_EVERSION, which say that the
 * range does not have those frames: then no byte has been written if one of them is another frame. The range as a whole
 * still belongs to the region: some chunks are raw, the others packed, and the next call goes on from there. Later in
 * outcome also: -SW_EACCES (memory that cannot be written), -SW_ENOTSUP (the region's chunks are longer than this
 * device's: it was spilled on a device opened with a larger chunk_bytes). errors: -SW_EINVAL, -SW_ENOENT, -SW_ESTALE,
 * -SW_ESTATE (not OUT), -SW_EBUSY (being restored), -SW_ELOST, -SW_ETOOSMALL, -SW_ERANGE, -SW_ELIMIT, -SW_ENOMEM,
 * -SW_ESHUTDOWN. */
int sw_engine_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_range *range, bool keep,
                      sw_outcome_cb *done, void *arg, struct sw_err *err);

/* The same for n buffers (1 … SW_FRAMES_MAX_BUFFERS), in any memories of the owner, none of them `once` or in place,
 * which make one region: one id, and all that there is to do with a region is done with all of them, or nothing. Each
 * has its type, frames and codec. They are dealt so that encoding and the link, or the link and decoding, overlap best
 * (sw_rules_goes_before()). request, batch_index: the first one's. A restore has as many ranges, in the same order,
 * each with room for its buffer; no two may overlap. errors: as above, -SW_EINVAL (number of buffers), naming the
 * buffer. */
int sw_engine_spill_buffers(struct sw_owner *owner, const struct sw_range *ranges, unsigned n, sw_outcome_cb *done,
                            void *arg, struct sw_region_id *ret_id, struct sw_err *err);
int sw_engine_restore_buffers(struct sw_owner *owner, struct sw_region_id id, const struct sw_range *ranges, unsigned n,
                              bool keep, sw_outcome_cb *done, void *arg, struct sw_err *err);

/* Between the two, operations are accepted as ever, but begin all at once with the release: what came in one message
 * reaches a device together, and finds it awake. Not nested. */
void sw_engine_hold(struct sw_engine *engine);
void sw_engine_release(struct sw_engine *engine);

/* Has a region's operation end early, if there is one: it calls back with -SW_ECANCELED, or as it would have. */
void sw_engine_cancel(struct sw_owner *owner, struct sw_region_id id);

/* Forgets a region that is OUT, LOST or IN and frees its space. errors: -SW_ENOENT, -SW_ESTALE, -SW_EBUSY. */
int sw_engine_drop(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err);
/* The same, because its bytes are back in the client's memory: a successor finds it IN until sw_owner_told(). One that
 * is durable stays. */
int sw_engine_consume(struct sw_owner *owner, struct sw_region_id id, struct sw_err *err);

/* Says ahead that sw_engine_consume() will follow: from now on a successor finds the region IN. So the client can be
 * told before. */
void sw_engine_announce_consumed(struct sw_owner *owner, struct sw_region_id id);
/* Forgets regions that are IN: the client knows of them, and asks for none that it has made any more. */
void sw_engine_forget_in(struct sw_owner *owner);

/* ---- request_index.c ---- */

/* Finds the regions that a request of this owner has made, also in an earlier process. ret[i]: the region with batch
 * index i; generation 0: there is none. The first call builds an index of the owner's regions. Regions that are made
 * later are not found until sw_engine_forget_in() frees the index. Request 0 has no regions. */
void sw_engine_find_by_request(struct sw_owner *owner, uint32_t request, struct sw_region_id *ret, uint32_t n);
/* The numbers of requests come round. Those of the owner's regions that lie ahead of the newest one, rather than behind
 * it, are of the round before: they are forgotten, so that nothing is found by them when they are used again. Looks at
 * all of the owner's regions, once. */
void sw_owner_forget_requests(struct sw_owner *owner, uint32_t newest);

/* ---- build.h, read.h ---- */

enum { SW_SERIES_MAX_BATCH = 256 }; /* builds or reads that end together */

/* ---- immediate.c: advice ---- */

enum sw_advice { SW_ADVISE_PRIORITY, SW_ADVISE_PIN, SW_ADVISE_PREFETCH, SW_ADVISE_DEMOTE };
/* What is known about the future of a region that is OUT. PRIORITY, 0 to 255: those of lower priority leave a tier
 * first. PIN, 0 or 1: does not leave it. PREFETCH (value 0): begins to move it from the tiers behind to the first tier;
 * it can be restored or dropped meanwhile. DEMOTE (value 0): begins to move what of it is in the first tier to one
 * behind; -SW_ENOTSUP if there is none, -SW_EINVAL for packed regions, which are in no tier. errors: -SW_EINVAL,
 * -SW_ENOENT, -SW_ESTALE, -SW_ELOST, -SW_EBUSY (an operation or a move is under way), -SW_ENOSPACE, -SW_ENOMEM (nothing
 * to fetch it to, or with). */
int sw_engine_advise(struct sw_owner *owner, struct sw_region_id id, enum sw_advice advice, uint32_t value,
                     struct sw_err *err);

/* ---- query.c ---- */

struct sw_region_info {
    enum sw_region_state state;
    uint64_t raw_bytes, stored_bytes;
    enum sw_codec_id codec;
    const char *tier;
    const char *reason; /* as in struct sw_outcome */
    const char *coder;  /* what has encoded all of it: "client", "daemon" */
    bool in_place;      /* it was packed: if it is LOST, its client's memory has not its bytes either */
    unsigned n_buffers; /* 0: being spilled, or LOST */
};
/* errors: -SW_ENOENT (also for ids of other owners: their existence is not confirmed), -SW_ESTALE. */
int sw_engine_query(struct sw_owner *owner, struct sw_region_id id, struct sw_region_info *ret, struct sw_err *err);

enum { SW_LIST_MAX = 256 };
struct sw_listed {
    char name[SW_REGION_NAME_BYTES];
    struct sw_region_info info; /* one that is being spilled is listed, too: its name is taken */
    struct sw_region_id id;     /* 0:0: another owner has the region, or none */
};
/* The durable regions of the owner's tenant owner and of all whose tenant owner it is, in the order of their names,
 * behind `after` (the empty name: from the first one on). max: at most SW_LIST_MAX. Returns how many. */
unsigned sw_engine_list(const struct sw_owner *owner, const char *after, struct sw_listed *ret, unsigned max);

/* Of one buffer; a region that was spilled as one has one. */
struct sw_buffer_info {
    uint64_t raw_bytes, stored_bytes;
    uint64_t chunk_bytes;    /* of each stored chunk but the last */
    enum sw_value_type type; /* as which its frames were encoded; SW_VALUE_NONE: as bytes */
    enum sw_codec_id codec;  /* of most of its bytes */
    const char *reason;      /* as in struct sw_outcome; after a restart that of the region */
};
/* errors: as above, -SW_EBUSY (being spilled), -SW_ELOST. */
int sw_engine_query_buffers(struct sw_owner *owner, struct sw_region_id id,
                            struct sw_buffer_info ret[SW_FRAMES_MAX_BUFFERS], unsigned *ret_n, struct sw_err *err);

/* Where the chunks of a packed region lie in its range: ret[0 ... *ret_n) are those from `first` on, at most `max`.
 * errors: as above, -SW_EBUSY (being unpacked), -SW_EINVAL (not packed), -SW_ERANGE (no such chunk). */
int sw_engine_query_packed(struct sw_owner *owner, struct sw_region_id id, size_t first,
                           struct spillway_packed_chunk *ret, size_t max, size_t *ret_n, size_t *ret_n_chunks,
                           struct sw_err *err);

struct sw_engine_stats {
    unsigned n_owners, n_regions, n_mems, n_mapped, n_ops;
    uint64_t spills, restores, failed_ops, canceled_ops;
    uint64_t packs; /* of the spills */
    /* Regions taken from a tier to one behind, to make room or on advice, and back to the first on advice. */
    uint64_t demotions, promotions;
    uint64_t spilled_raw_bytes, spilled_stored_bytes, restored_raw_bytes;
    uint64_t reasons[SW_COST_REASON_NR];      /* spills, by why they were compressed, or were not */
    uint64_t scratch_bytes;                   /* device memory taken, all GPUs */
    struct sw_tier_stats tiers[SW_TIERS_MAX]; /* by rank; all 0 where there is none */
};
void sw_engine_stats(const struct sw_engine *engine, struct sw_engine_stats *ret);
/* Of all tiers behind the first together: capacity_bytes and used_bytes, for messages that know no more tiers. */
struct sw_tier_stats sw_engine_stats_behind(const struct sw_engine_stats *stats);

/* ---- workers.c ---- */

/* Asks every worker, and its device, for a sign of life; one that still owes the last one is not asked again. */
void sw_engine_ask_life(struct sw_engine *engine);
/* How long ago the last one was given by the worker that has been silent for longest; at first, since the start. */
uint64_t sw_engine_silent_us(const struct sw_engine *engine);

/* True once a device's context died (-SW_EGPULOST): operations on it fail until the process is restarted. */
bool sw_engine_device_lost(const struct sw_engine *engine);

/* ---- engine_check.c ---- */

/* Asserts the invariants over all regions. */
void sw_engine_check(const struct sw_engine *engine);

#endif
