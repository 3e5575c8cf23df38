/* catalogue.h - what a successor must know to find sessions and regions again: records in memory that outlives the
 * process.
 *
 * The memory is a memfd that the service manager keeps (daemon/fdstore.h). A record is written in full into cells that
 * no valid record has, and then made valid by one store of its commit word, which carries a checksum of the record; one
 * store of 0 frees it. So whatever instruction a process is killed at, each record is either there or not. A record
 * that replaces another is made valid before that one is freed: of two for one region the later one counts. Not made
 * for the end of the machine, which takes the memory with it.
 *
 * Invariant: whatever a valid record names is there: callers record what has been committed, and free a record before
 * the space that it names. Records are known by their number, never 0. A NULL catalogue keeps nothing: recording
 * succeeds with number 0, and freeing 0 is a no-op. thread: the loop's, all of it. */
#ifndef SW_SPILL_CATALOGUE_H
#define SW_SPILL_CATALOGUE_H

#include "base/err.h"
#include "base/process.h"
#include "spill/store/frames.h"
#include "spill/store/ids.h"
#include <stdbool.h>
#include <stdint.h>

struct sw_catalogue;

struct sw_catalogue_session {
    uint64_t number;
    uint32_t uid;
    uint8_t token[SW_TOKEN_BYTES];
    struct sw_process process; /* the client's; of sessions that version 1 has recorded the pid alone, any number */
};

/* What may change while a record is valid, each by one store. */
struct sw_catalogue_hints {
    uint64_t used_us;
    uint8_t priority;
    bool pinned;
    bool broken; /* its bytes are not whole: lost, or packing or unpacking is under way */
    bool is_in;  /* restored: the bytes are in the client's memory, who may not know it; frames mean nothing */
};

struct sw_catalogue_region {
    uint64_t session;        /* its number */
    uint32_t slot, gen;      /* the region's id */
    uint32_t request, piece; /* of the session's that made it; request 0: not known, or forgotten */
    uint64_t batch;          /* sw_catalogue_new_batch(): it counts only with the batch; 0: it stands alone */
    uint64_t raw_bytes, stored_bytes;
    uint8_t codec, reason;
    /* A version of the program has recorded it whose clients do not make their memory's pages before a restore, so that
     * the service makes them. Each record says that it is of a later one; only a copy of an older record does not. */
    bool may_fill_holes;
    struct sw_catalogue_hints hints;
    const char *name; /* durable: it outlives its session; NULL: it does not. Found: borrowed for the call */
    uint32_t uid;     /* whose it is then */
    /* put: all committed, or NULL while there are none. Found: owned by `found`; frames have no tier yet, and extents
     * without memory, allocated one by one. A frame `awaits` its tier; on a disk it has no extents if version 1 has
     * recorded it. */
    struct sw_frames *frames;
};

/* The version that this program writes. It reads this one and all before it. */
#define SW_CATALOGUE_VERSION 3u

/* Opens the catalogue in `fd` (moved, also on error), or makes one if it is -1. max_regions bounds its length: a cell
 * of 256 bytes holds a region of three chunks, and there are three for each and 65536 more.
 *
 * What an earlier version has written is copied to a new memory, and stays as it is: the caller has the new memory kept
 * before it gives up the old one. errors: -SW_ENOMEM, -SW_EVERSION (of a later version of the program), -SW_EFRAME (not
 * a catalogue), -SW_EIO (no random bytes for a new one). */
int sw_catalogue_open(struct sw_catalogue **ret, int fd, unsigned max_regions, struct sw_err *err);
/* True: this is a copy of what an earlier version has written. */
bool sw_catalogue_is_copy(const struct sw_catalogue *catalogue);
/* False: this process has made it, or there is none, and so there is nothing that it could know of. */
bool sw_catalogue_is_adopted(const struct sw_catalogue *catalogue);
/* The memory, for whoever keeps it; borrowed. */
int sw_catalogue_fd(const struct sw_catalogue *catalogue);
/* Valid records stay in the memory. NULL is a no-op. */
void sw_catalogue_close(struct sw_catalogue *catalogue);

/* Makes a record valid, and then frees `replaced` (0: none). errors: -SW_ENOMEM, -SW_ELIMIT (all cells are taken):
 * nothing has changed. */
int sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session, uint32_t *ret,
                             struct sw_err *err);
int sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region, uint32_t replaced,
                            uint32_t *ret, struct sw_err *err);
void sw_catalogue_hint(struct sw_catalogue *catalogue, uint32_t record, const struct sw_catalogue_hints *hints);
/* From now on the region is found with request 0. */
void sw_catalogue_forget_request(struct sw_catalogue *catalogue, uint32_t record);
/* From now on the region is found as one that may not fill holes. */
void sw_catalogue_forbid_holes(struct sw_catalogue *catalogue, uint32_t record);
/* Frees a record and forgets its number. */
void sw_catalogue_free(struct sw_catalogue *catalogue, uint32_t *record);

/* Regions that are there all or none: each is put with the number of a new batch. Until a record of the batch is valid
 * none of them is found, from then on all are. Each is then settled: it counts without the batch, whose record can go.
 * errors: as of the others. */
uint64_t sw_catalogue_new_batch(struct sw_catalogue *catalogue);
int sw_catalogue_put_batch(struct sw_catalogue *catalogue, uint64_t batch, uint32_t *ret, struct sw_err *err);
void sw_catalogue_settle(struct sw_catalogue *catalogue, uint32_t record);

/* Keeps a record, as that of a region that is_in, until its client has been told: puts it on the list that begins with
 * *list (0: empty). From then on the space that it names may be reused. */
void sw_catalogue_retire(struct sw_catalogue *catalogue, uint32_t *record, uint32_t *list);
void sw_catalogue_free_retired(struct sw_catalogue *catalogue, uint32_t *list);

/* No region's generation is beyond this one. It only rises, so that ids are not used again by a successor. And no
 * region's slot is at or beyond n_slots, so that a successor has them all, however few regions it may have. */
void sw_catalogue_note_id(struct sw_catalogue *catalogue, uint32_t slot, uint32_t gen);
uint32_t sw_catalogue_generation(const struct sw_catalogue *catalogue);
uint32_t sw_catalogue_n_slots(const struct sw_catalogue *catalogue);
/* Ids are those of one catalogue, and the next one begins with the same. Of what lies where more than one may have left
 * something, this number, random and made with the catalogue, tells whose it is. 0: there is none, or an earlier
 * version of the program has made it. */
uint64_t sw_catalogue_epoch(const struct sw_catalogue *catalogue);
/* The longest chunk of a region that is recorded, 0: there is none. Whoever is to restore it needs room for it. */
uint64_t sw_catalogue_longest_chunk(struct sw_catalogue *catalogue);

/* Called for each valid record, sessions before regions; of two records for one region the older one is freed, and so
 * is the record of a region whose batch is not there. Those of a batch that is there have been settled then. Each
 * returns false to have the record freed. */
struct sw_catalogue_visitor {
    bool (*session)(void *arg, const struct sw_catalogue_session *session, uint32_t record);
    bool (*found)(void *arg, struct sw_catalogue_region *region, uint32_t record);
    void *arg;
};
/* Finds what a predecessor left, once, before anything is recorded. *ret_damaged: records that were valid and make no
 * sense; they are freed. errors: -SW_ENOMEM. */
int sw_catalogue_recover(struct sw_catalogue *catalogue, const struct sw_catalogue_visitor *visitor,
                         unsigned *ret_damaged, struct sw_err *err);
/* Of frames as `found` gets them: forgets those that no tier has claimed, with their extents. NULL is a no-op. */
void sw_catalogue_free_unclaimed(struct sw_frames *frames);
/* The same: frees them with their extents, but for those that a tier has claimed. */
void sw_catalogue_frames_free(struct sw_frames *frames);

#endif
