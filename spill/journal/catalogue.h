/* catalogue.h - the records by which a successor finds sessions and regions again, in memory that outlives the process.
 *
 * The memory is a memfd that the service manager keeps (daemon/fdstore.h). A record is written in full into cells that
 * no valid record uses. One store of its commit word, which carries a checksum of the record, makes it valid; one store
 * of 0 frees it. So at whatever instruction a process is killed, each record is either there or not. A record that
 * replaces another becomes valid before the other is freed: of two records for one region the later one counts. A crash
 * of the machine loses the memory.
 *
 * Invariant: whatever a valid record names exists: callers record what was committed, and free a record before the
 * space that it names. Records are known by their number, never 0. A NULL catalogue keeps nothing: recording succeeds
 * with number 0, and freeing 0 is a no-op. thread: loop, all calls. */
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
    struct sw_process process; /* the client's; version 1 has recorded the pid only, for any session */
};

/* The fields that may change while a record is valid, each by one store. */
struct sw_catalogue_hints {
    uint64_t used_us;
    uint8_t priority;
    bool pinned;
    bool broken; /* its bytes are not whole: it is lost, or packing or unpacking is under way */
    /* The region was restored: its bytes are in the memory of the client, which may not know it yet; it has no frames.
     */
    bool is_in;
};

struct sw_catalogue_region {
    uint64_t session;              /* the session's number */
    uint32_t slot, gen;            /* the region's id */
    uint32_t request, batch_index; /* the session's request that made it; request 0: not known, or forgotten */
    uint64_t batch;                /* sw_catalogue_new_batch(): it counts only with the batch; 0: it stands alone */
    uint64_t raw_bytes, stored_bytes;
    uint8_t codec, reason;
    /* A version of the program recorded it whose clients do not make their memory's pages before a restore, so the
     * service makes them. Records of later versions say so; only a copy of an older record does not. */
    bool may_fill_holes;
    struct sw_catalogue_hints hints;
    const char *name; /* durable: outlives its session; NULL: not durable. Found: borrowed for the call */
    uint32_t uid;     /* the tenant of a durable region */
    /* put: all committed, or NULL while there are none. Found: owned by `found`. The frames have no tier yet, and
     * extents without memory, allocated one by one. A frame `awaits` its tier. On a disk it has no extents if version 1
     * has recorded it. */
    struct sw_frames *frames;
};

/* The version that this program writes. It reads this one and all before it. */
#define SW_CATALOGUE_VERSION 3u

/* Opens the catalogue in `fd` (moved, also on error), or makes one if fd is -1. max_regions limits its length: a cell
 * of 256 bytes holds a region of three chunks; there are three cells for each region and 65536 more.
 *
 * An earlier version's catalogue is copied to new memory, and stays unchanged: the caller has the new memory kept
 * before it gives up the old one. errors: -SW_ENOMEM, -SW_EVERSION (written by a later version), -SW_EFRAME (not a
 * catalogue), -SW_EIO (no random bytes for a new one). */
int sw_catalogue_open(struct sw_catalogue **ret, int fd, unsigned max_regions, struct sw_err *err);
/* Returns true if this is a copy of an earlier version's catalogue. */
bool sw_catalogue_is_copy(const struct sw_catalogue *catalogue);
/* Returns false if this process has made it, or there is none, so that it names nothing of a predecessor. */
bool sw_catalogue_is_adopted(const struct sw_catalogue *catalogue);
/* Returns the memory's descriptor, to have it kept; borrowed. */
int sw_catalogue_fd(const struct sw_catalogue *catalogue);
/* Closes a catalogue. Valid records stay in the memory. NULL is a no-op. */
void sw_catalogue_close(struct sw_catalogue *catalogue);

/* Make a record valid, and then free `replaced` (0: none). errors: -SW_ENOMEM, -SW_ELIMIT (all cells are taken):
 * nothing has changed. */
int sw_catalogue_put_session(struct sw_catalogue *catalogue, const struct sw_catalogue_session *session, uint32_t *ret,
                             struct sw_err *err);
int sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region, uint32_t replaced,
                            uint32_t *ret, struct sw_err *err);
void sw_catalogue_hint(struct sw_catalogue *catalogue, uint32_t record, const struct sw_catalogue_hints *hints);
/* Sets the recorded region's request to 0. */
void sw_catalogue_forget_request(struct sw_catalogue *catalogue, uint32_t record);
/* Clears the recorded region's may_fill_holes. */
void sw_catalogue_forbid_holes(struct sw_catalogue *catalogue, uint32_t record);
/* Frees a record and forgets its number. */
void sw_catalogue_free(struct sw_catalogue *catalogue, uint32_t *record);

/* Make several regions valid in one step. Put each with the number of a new batch. A successor finds none of them until
 * the batch's record is valid, and all from then on. Then settle each: it no longer needs the batch, whose record can
 * be freed. errors: as for the other records. */
uint64_t sw_catalogue_new_batch(struct sw_catalogue *catalogue);
int sw_catalogue_put_batch(struct sw_catalogue *catalogue, uint64_t batch, uint32_t *ret, struct sw_err *err);
void sw_catalogue_settle(struct sw_catalogue *catalogue, uint32_t record);

/* Keeps the record of a restored region until its client has been informed: puts it on the list that begins with *list
 * (0: empty), and marks it is_in. From then on the space that it names may be reused. */
void sw_catalogue_retire(struct sw_catalogue *catalogue, uint32_t *record, uint32_t *list);
void sw_catalogue_free_retired(struct sw_catalogue *catalogue, uint32_t *list);

/* Notes that an id is in use. No region has a higher generation than the highest noted one, so a successor does not use
 * ids again. All table entries in use are below n_entries, so a successor's table has all of them, however few regions
 * it may have. */
void sw_catalogue_note_id(struct sw_catalogue *catalogue, uint32_t slot, uint32_t gen);
uint32_t sw_catalogue_generation(const struct sw_catalogue *catalogue);
uint32_t sw_catalogue_n_entries(const struct sw_catalogue *catalogue);
/* Returns a random number made with the catalogue. Ids are unique in one catalogue only, and the next one begins with
 * the same ids. Where several catalogues may have left frames, this number tells which one owns them. 0: there is no
 * catalogue, or an earlier version of the program made it. */
uint64_t sw_catalogue_epoch(const struct sw_catalogue *catalogue);
/* Lets a new catalogue go on with the ids and the epoch of a lost one. An adopted one only raises the ids. */
void sw_catalogue_take_over(struct sw_catalogue *catalogue, uint64_t epoch, uint32_t generation, uint32_t n_entries);
/* Returns the longest chunk of a recorded region, 0: there is none. A restore needs room for it. */
uint64_t sw_catalogue_longest_chunk(struct sw_catalogue *catalogue);

/* Called for each valid record, sessions before regions. A function returns false if the record is to be freed. Before
 * the calls, the older of two records for one region was freed, and the record of each region whose batch is not there;
 * regions whose batch is there were settled. */
struct sw_catalogue_visitor {
    bool (*session)(void *arg, const struct sw_catalogue_session *session, uint32_t record);
    bool (*found)(void *arg, struct sw_catalogue_region *region, uint32_t record);
    void *arg;
};
/* Visits a predecessor's records, once, before anything is recorded. *ret_damaged: records with valid checksums that
 * make no sense; they are freed. errors: -SW_ENOMEM. */
int sw_catalogue_recover(struct sw_catalogue *catalogue, const struct sw_catalogue_visitor *visitor,
                         unsigned *ret_damaged, struct sw_err *err);
/* Forgets the frames that no tier has claimed, with their extents. frames: as `found` got them. NULL is a no-op. */
void sw_catalogue_free_unclaimed(struct sw_frames *frames);
/* Frees frames as `found` gets them, with their extents, except those that a tier has claimed. */
void sw_catalogue_frames_free(struct sw_frames *frames);

#endif
