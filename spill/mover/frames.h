/* frames.h - the stored form of a region: one frame for each chunk. All chunks but the last have the same length.
 *
 * Frames lie in a tier, or, if the region is *packed*, in the client's own memory, at the front of the buffer that they
 * came from. `packed` is then the directory: it says for each chunk whether its frame or its raw bytes are there. It is
 * the journal by which a pack or unpack that fails half-way is undone or repeated. A frame longer than its chunk would
 * not fit. Only its data section, which is never longer than the chunk, lies in the client's memory; its beginning lies
 * in the tier.
 *
 * A region of several buffers has the chunks of all of them side by side, and a table of the buffers' shares. Each
 * buffer is spilled by its own job into its own frames, which are joined when all jobs have ended. Each is restored by
 * its own job, from a view. All other uses of stored frames (drop, move, record) ignore buffers.
 *
 * A spill's job makes the frames; then the region owns them. Either the worker (while a job is in flight) or the loop
 * uses them, never both at once. A restore only reads them. */
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
    uint64_t offset, bytes; /* of the frame, or of its data section, from the start of the buffer */
    bool is_packed;         /* false: the chunk's raw bytes are in their own place */
};

enum { SW_FRAMES_MAX_BUFFERS = 64 };

/* One buffer's share. All of its chunks but the last have the same length. */
struct sw_frames_buffer {
    uint64_t raw_bytes, chunk_bytes;
    size_t first, n_chunks;
    uint8_t reason; /* enum sw_cost_reason: why it was compressed or not; the region's, if read from a catalogue */
};

struct sw_frames {
    uint64_t raw_bytes, chunk_bytes; /* several buffers: the sum, and the longest */
    size_t n_chunks;
    size_t n_begun;     /* chunks that were ever worked on, from the first; records after them are untouched */
    unsigned buffer;    /* frames of one buffer, or of a part of it: the buffer's index */
    size_t first;       /* the same: index in the buffer of the first chunk here */
    unsigned n_buffers; /* 0: one buffer, without a table */
    struct sw_frames_buffer *buffers; /* [n_buffers] */
    struct sw_packed_chunk *packed;   /* [n_chunks], or NULL: all frames lie in the tier */
    /* [n_chunks], for complete frames: the contents of their headers. Code that has no other copy reads the headers
     * again. */
    struct sw_frame_layout *layouts;
    uint64_t *identities;      /* [n_chunks], identities of the frames (codec/identity.h); 0: not known */
    bool *are_clients;         /* [n_chunks], frames that the client has made: their content may have been bad before */
    struct sw_stored stored[]; /* [n_chunks]; empty: not stored yet, or packed whole */
};

/* Allocates frames. NULL: out of memory. chunk_bytes > 0. All chunks count as begun. A spill that has just made its
 * frames sets n_begun to 0, and sw_run_note_frame() raises it. So ending a spill that stored little takes little time,
 * however many chunks it would have had. */
struct sw_frames *sw_frames_new(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed);
/* Returns the memory that the frames of raw_bytes keep, in RAM and in the catalogue, before they are made. It depends
 * on the number of chunks, and includes that a frame may lie in several extents and leave a free one behind. units:
 * bytes. */
uint64_t sw_frames_kept_bytes(uint64_t raw_bytes, uint64_t chunk_bytes, bool packed);
/* Returns the same for existing frames. */
uint64_t sw_frames_kept(const struct sw_frames *frames);
/* Allocates frames for several buffers. Only raw_bytes and chunk_bytes of each are read. */
struct sw_frames *sw_frames_new_buffers(const struct sw_frames_buffer *buffers, unsigned n_buffers);
/* Joins the frames of several buffers, in order: moves them into the new frames. NULL: out of memory, nothing has
 * changed. */
struct sw_frames *sw_frames_join(struct sw_frames *const *of, unsigned n_buffers);
/* Moves the frames of a part of a buffer to their place among those of the whole buffer, and frees `part`. */
void sw_frames_put(struct sw_frames *buffer, struct sw_frames *part);
/* Allocates room for a view of n_chunks frames of one buffer, from its chunk `first` on, for reading. Free it by
 * sw_free(). _update() fills it with the places in `frames`, which must not change while the view is used. */
struct sw_frames *sw_frames_view(const struct sw_frames *frames, unsigned buffer, size_t first, size_t n_chunks);
void sw_frames_view_update(struct sw_frames *view, const struct sw_frames *frames);
/* Returns a buffer's entry, also of frames without a table. Without a table the reason is not set. */
struct sw_frames_buffer sw_frames_buffer(const struct sw_frames *frames, unsigned buffer);
/* Returns the layout of the buffer's chunk that has the byte `at`. */
const struct sw_frame_layout *sw_frames_layout_at(const struct sw_frames *frames, unsigned buffer, uint64_t at);
unsigned sw_frames_n_buffers(const struct sw_frames *frames);
/* Returns the key under which durable tiers know chunk i. It does not change when the buffer is joined with others.
 * sw_frames_find() gets the chunk of a key; false: there is none. */
uint64_t sw_frames_key(const struct sw_frames *frames, size_t i);
bool sw_frames_find(const struct sw_frames *frames, uint64_t key, size_t *ret);
/* Returns the identity of the frame that lies in host memory as chunk i, from all bytes before its counts. The memory
 * holds the whole frame, or at least these bytes. layouts[i] is the frame's. Never 0. */
uint64_t sw_frames_identify(const struct sw_frames *frames, size_t i, const struct sw_stored *in_memory);
/* Check that a frame is the one that was stored as chunk i. An unknown identity passes. errors: -SW_ECHECKSUM. */
int sw_frames_check(const struct sw_frames *frames, size_t i, uint64_t identity, struct sw_err *err);
int sw_frames_check_memory(const struct sw_frames *frames, size_t i, const struct sw_stored *in_memory,
                           struct sw_err *err);
/* Frees the arrays; the places of frames are not released. NULL is a no-op. */
void sw_frames_delete(struct sw_frames *frames);
/* Returns the raw bytes of chunk i. */
uint64_t sw_frames_chunk_bytes(const struct sw_frames *frames, size_t i);
/* Returns the codec that has the most bytes. */
enum sw_codec_id sw_frames_most_used(const uint64_t bytes[SW_CODEC_NR]);

/* Returns the length of the front of a packed buffer that holds frames. */
uint64_t sw_frames_packed_bytes(const struct sw_frames *frames);
/* Returns where chunk i lies in a packed buffer, for readers there. A chunk that was already unpacked is raw. */
struct spillway_packed_chunk sw_frames_packed_chunk(const struct sw_frames *frames, size_t i);

#endif
