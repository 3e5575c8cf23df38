/* frames.h - the stored form of a region: one frame per chunk, all chunks but the last of one length.
 *
 * Frames lie in a tier, or - the region is *packed* - at the front of the range they came from, in the client's own
 * memory. `packed` is then the directory: it says of each chunk whether its frame or its raw bytes are there, and is
 * the journal by which a pack or unpack that fails half-way is undone or repeated. A frame that is longer than its
 * chunk would not fit: of such a one the data section alone lies in the client's memory, which is never longer than the
 * chunk, and what comes before it in the tier.
 *
 * A region of several buffers has the chunks of all of them side by side, and a table that says whose are which. Each
 * buffer is spilled by a job of its own, into frames of its own, which are joined when all have ended; it is restored
 * by a job of its own, from a view. What else is done with stored frames (drop, move, record) does not look at buffers.
 *
 * Made by a spill's job, then owned by the region. Either the worker (while a job is in flight) or the loop uses it,
 * never both at once; restoring only reads. */
#ifndef SW_SPILL_MOVER_FRAMES_H
#define SW_SPILL_MOVER_FRAMES_H

#include "base/err.h"
#include "codec/codec.h"
#include "codec/frame.h"
#include "spill/device/stored.h"
#include "spillway_packed.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A chunk of a packed region. */
struct sw_packed_chunk {
    uint64_t offset, bytes; /* of the frame, or of its data section, from the start of the range */
    bool is_packed;         /* else the chunk's raw bytes are in their own place */
};

enum { SW_FRAMES_MAX_PARTS = 64 };

/* A buffer's share. All of its chunks but the last are of one length. */
struct sw_frames_part {
    uint64_t raw_bytes, chunk_bytes;
    size_t first, n_chunks;
    uint8_t reason; /* enum sw_cost_reason: why it was compressed, or was not; read from a catalogue: the region's */
};

struct sw_frames {
    uint64_t raw_bytes, chunk_bytes; /* several buffers: of all of them, the longest */
    size_t n_chunks;
    size_t n_begun;                 /* none behind the first so many was ever worked on: their records are untouched */
    unsigned part;                  /* of one buffer alone, or of a part of it: which buffer */
    size_t first;                   /* the same: which of the buffer's chunks is the first here */
    unsigned n_parts;               /* buffers; 0: not several */
    struct sw_frames_part *parts;   /* [n_parts] */
    struct sw_packed_chunk *packed; /* [n_chunks], or NULL: all frames lie in the tier */
    /* [n_chunks], of frames that are complete: what their headers say. Those are read again by who has nothing else. */
    struct sw_frame_layout *layouts;
    uint64_t *identities;      /* [n_chunks], which frames they are (codec/identity.h); 0: not known */
    struct sw_stored stored[]; /* [n_chunks]; an empty one is not stored yet, or packed whole */
};

/* NULL: out of memory. chunk_bytes > 0. All chunks count as begun; a spill that has just made its frames sets n_begun
 * to 0, and sw_run_note_frame() raises it, so that the end of a spill that stored little takes little time, however
 * many chunks there would have been. */
struct sw_frames *sw_frames_new(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed);
/* Memory that is kept for the frames of raw_bytes, in RAM and in the catalogue: known before they are made. It follows
 * the number of chunks; that a frame may lie in several extents, and leave a free one behind, is in it. units: bytes.
 */
uint64_t sw_frames_kept_bytes(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed);
/* The same of frames that are there. */
uint64_t sw_frames_kept(const struct sw_frames *frames);
/* The same for several buffers, of which raw_bytes and chunk_bytes are read. */
struct sw_frames *sw_frames_new_parts(const struct sw_frames_part *parts, unsigned n_parts);
/* Joins the frames of several buffers, in order: they are moved into the new ones. NULL: out of memory, nothing has
 * changed. */
struct sw_frames *sw_frames_join(struct sw_frames *const *parts, unsigned n_parts);
/* Moves the frames of a part of a buffer to their place among those of the whole buffer, and frees `part`. */
void sw_frames_put(struct sw_frames *buffer, struct sw_frames *part);
/* Room for n_chunks frames of one buffer, from its chunk `first` on, for reading; to be freed by sw_free(). _update()
 * fills it, when nobody changes `frames`, whose extents it shows from then on. */
struct sw_frames *sw_frames_view(const struct sw_frames *frames, unsigned part, size_t first, size_t n_chunks);
void sw_frames_view_update(struct sw_frames *view, const struct sw_frames *frames);
/* A buffer, of one or of several. The reason is right only of several. */
struct sw_frames_part sw_frames_part(const struct sw_frames *frames, unsigned part);
unsigned sw_frames_n_buffers(const struct sw_frames *frames);
/* By what durable tiers know chunk i: the same while its buffer is alone and when it is among others; and back, false:
 * there is none. */
uint64_t sw_frames_key(const struct sw_frames *frames, size_t i);
bool sw_frames_find(const struct sw_frames *frames, uint64_t key, size_t *ret);
/* Which frame it is that lies in host memory as chunk i: of all of it, or of all that comes before its counts. The
 * chunk's layout is that of the frame. Never 0. */
uint64_t sw_frames_identify(const struct sw_frames *frames, size_t i, const struct sw_stored *in_memory);
/* That it is the frame that was stored as chunk i, by an identity that is known or else not at all. errors:
 * -SW_ECHECKSUM. */
int sw_frames_check(const struct sw_frames *frames, size_t i, uint64_t identity, struct sw_err *err);
int sw_frames_check_memory(const struct sw_frames *frames, size_t i, const struct sw_stored *in_memory,
                           struct sw_err *err);
/* Frees the arrays alone; the frames are their keeper's. NULL is a no-op. */
void sw_frames_delete(struct sw_frames *frames);
/* Raw bytes of chunk i. */
uint64_t sw_frames_chunk_bytes(const struct sw_frames *frames, size_t i);
/* The codec of most bytes, of so many of each. */
enum sw_codec_id sw_frames_most_used(const uint64_t bytes[SW_CODEC_NR]);

/* Packed: bytes at the front of the range that hold frames. */
uint64_t sw_frames_packed_bytes(const struct sw_frames *frames);
/* Packed: where chunk i lies in the range, for who reads it there; a chunk that was unpacked already is raw. */
struct spillway_packed_chunk sw_frames_packed_chunk(const struct sw_frames *frames, size_t i);

#endif
