/* catalogue_format.h - the content of a catalogue record: a stream of bytes, which catalogue.c keeps in cells.
 *
 *   session   a session body
 *   region    a region body; its name, if it is durable; a table of buffers, if it has several; then its chunks, each
 *             with its extents, and if the region is packed with its place in the client's memory. A region that its
 *             client has packed has no chunks
 *   batch     a batch body, since version 3: its regions count although they are not settled
 *
 * Version 3 adds one kind of record, one bit beside the hints, and one bit of chunks to version 2. A program that knows
 * only version 2 would free the record of a batch, find a half-recorded batch, and clear the bit of settled regions. So
 * it must refuse the catalogue, by the number of its version.
 *
 * Each version is a row of function pointers. Integers are little endian, structures have no padding. The bytes of a
 * record have a valid checksum, and are still checked: another version of the program may have written them. Private to
 * catalogue*.c. thread: loop. */
#ifndef SW_SPILL_CATALOGUE_FORMAT_H
#define SW_SPILL_CATALOGUE_FORMAT_H

#include "spill/journal/catalogue.h"
#include <stddef.h>

/* The beginning of a region's record, in every version: enough to find the newest record and the longest chunk. */
struct sw_region_key {
    uint64_t sequence, session;
    uint32_t slot, gen;
    uint64_t raw_bytes, chunk_bytes;
};

/* The bodies of a record, whatever their version. */
struct sw_region_head {
    struct sw_region_key key;
    uint64_t stored_bytes, batch;
    uint32_t n_chunks, request, batch_index;
    unsigned n_buffers; /* 0: one buffer */
    uint8_t codec, reason;
    bool has_frames, has_name, is_packed;
    bool is_held; /* packed by its client, which has its directory */
};

struct sw_chunk_head {
    uint64_t frame_bytes, identity;
    uint32_t n_extents, n_symbols, dictionary_bytes;
    unsigned codec, value_type, segment_log2;
    uint8_t tier; /* sw_tier_kind.id; 0: none */
    bool is_packed, is_clients;
};

/* A position in a record's content. */
struct sw_catalogue_reader {
    const uint8_t *at;
    size_t left;
};

struct sw_catalogue_format {
    uint32_t version, cell_bytes;
    size_t region_bytes; /* length of its body */
    /* Read a body. False: the content ends before, or makes no sense. */
    bool (*take_session)(struct sw_catalogue_reader *reader, struct sw_catalogue_session *ret);
    bool (*take_region)(struct sw_catalogue_reader *reader, struct sw_region_head *ret);
    bool (*take_chunk)(struct sw_catalogue_reader *reader, struct sw_chunk_head *ret);
    /* NULL: the version has no batches. */
    bool (*take_batch)(struct sw_catalogue_reader *reader, uint64_t *ret);
};

extern const struct sw_catalogue_format sw_catalogue_v1, sw_catalogue_v2, sw_catalogue_v3;

/* Takes the next bytes of the content. Returns false if there are too few. */
bool sw_catalogue_take(struct sw_catalogue_reader *reader, void *ret, size_t bytes);

/* Reads a region's content. *ret_name is zero-terminated, and empty if the region is not durable; ret->name points to
 * it. errors: -SW_EFRAME (makes no sense), -SW_ENOMEM. */
int sw_catalogue_read_region(const struct sw_catalogue_format *format, const void *content, size_t bytes,
                             struct sw_catalogue_region *ret, char ret_name[SW_REGION_NAME_BYTES]);

/* Content in version 3, which grows as it is written. The owner frees `bytes`. errors: -SW_ENOMEM. */
struct sw_catalogue_content {
    uint8_t *bytes;
    size_t n, cap;
};
int sw_catalogue_add(struct sw_catalogue_content *content, const void *data, size_t bytes);
int sw_catalogue_add_batch(struct sw_catalogue_content *content, uint64_t batch);
int sw_catalogue_add_session(struct sw_catalogue_content *content, const struct sw_catalogue_session *session);
int sw_catalogue_add_region(struct sw_catalogue_content *content, const struct sw_catalogue_region *region,
                            uint64_t sequence);

#endif
