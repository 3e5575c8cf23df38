#include "spill/catalogue.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "codec/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x3147544357505300) /* "\0SPWCTG1" */
#define VERSION 1u
enum { CELL_BODY_BYTES = 96, GROW_CELLS = 8192, SPARE_CELLS = 65536, CELLS_A_REGION = 4 };

enum kind { KIND_SESSION = 1, KIND_REGION = 2 };
enum { HINT_PINNED = 1u << 8, HINT_BROKEN = 1u << 9, HINT_IN = 1u << 10 }; /* below: the priority */
enum { NO_REQUEST = 1u << 11 };                                            /* beside the hints: once set, it stays */

/* A record is a chain of cells; only the first one has a commit word. */
struct cell {
    atomic_ullong commit;  /* 0: no valid record begins here; else checksum and kind */
    atomic_ullong used_us; /* the two are not part of the checksum */
    atomic_uint hints;
    uint32_t bytes;   /* of the record's content */
    uint32_t next;    /* cell, 0: last; of free cells: the next free one */
    uint32_t retired; /* first of a record on that list: the next record */
    uint8_t body[CELL_BODY_BYTES];
};
_Static_assert(sizeof(struct cell) == 128, "cells are shared with other versions of the program");

struct header { /* in place of cell 0 */
    uint64_t magic;
    uint32_t version, cell_bytes;
    atomic_uint generation;
    atomic_uint n_slots; /* 0 of the first versions of the program: as many as max_regions */
    uint64_t epoch;      /* the same: 0 */
    uint8_t zero[96];
};
_Static_assert(sizeof(struct header) == sizeof(struct cell), "the header is a cell");

struct region_body {
    uint64_t sequence, session;
    uint32_t slot, gen;
    uint64_t raw_bytes, chunk_bytes, stored_bytes;
    uint32_t n_chunks, request, piece;
    uint8_t codec, reason;
    uint8_t shape; /* SHAPE_PACKED, or how many buffers it has, if they are several */
    uint8_t has;
};
_Static_assert(sizeof(struct region_body) == 64, "with a chunk of one extent it fills a cell");
enum { HAS_FRAMES = 1, HAS_NAME = 2 };

struct name_body { /* before the chunks */
    uint32_t uid;
    char name[SW_REGION_NAME_BYTES];
};

enum { SHAPE_PLAIN, SHAPE_PACKED };

_Static_assert(SW_CODEC_NR <= 16 && SW_VALUE_NR <= 16, "they have four bits each");
enum place { PLACE_NONE, PLACE_HOST, PLACE_DISK };
struct chunk_body { /* behind it: extents; of a packed region then a range */
    uint64_t frame_bytes;
    uint32_t n_extents;
    uint16_t symbols_type; /* number of symbols, value type << 12 */
    uint8_t segment_log2;
    uint8_t codec_place; /* codec, place << 4, packed << 7 */
};

struct part_body { /* of a region of several buffers, before the chunks */
    uint64_t raw_bytes, chunk_bytes;
};

struct range_body {
    uint64_t offset, bytes;
};

struct sw_catalogue {
    int fd;
    bool adopted;
    struct cell *cells; /* max_cells are mapped, n_cells are there */
    uint32_t n_cells, max_cells;
    uint32_t n_touched;  /* from here on none was ever used */
    uint32_t first_free; /* 0: none */
    uint64_t sequence;
    uint8_t *scratch; /* a record's content, while it is written */
    size_t scratch_bytes, scratch_cap;
};

/* A process that is killed has done what stands before the instruction that it was killed at, and nothing behind it:
 * for whoever comes next only the compiler could bring that into another order. */
static void keep_order(void) {
    atomic_signal_fence(memory_order_seq_cst);
}

static struct header *header_of(const struct sw_catalogue *c) {
    return (struct header *)(void *)c->cells;
}

/* ---- life ---- */

static int grow(struct sw_catalogue *c, struct sw_err *err) {
    const uint32_t left = c->max_cells - c->n_cells, more = left < GROW_CELLS ? left : GROW_CELLS;
    if (more == 0)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "catalogue is full: %u cells", c->n_cells);
    const uint64_t bytes = (uint64_t)(c->n_cells + more) * sizeof(struct cell);
    int rc;
    do /* the loop's thread gets the signals */
        rc = fallocate(c->fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    if (rc)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "catalogue cannot grow: %s", strerror(errno));
    c->n_cells += more;
    return 0;
}

static int map(struct sw_catalogue *c, struct sw_err *err) {
    void *base = mmap(NULL, (size_t)c->max_cells * sizeof(struct cell), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_NORESERVE, c->fd, 0);
    if (base == MAP_FAILED)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "catalogue cannot be mapped: %s", strerror(errno));
    c->cells = base;
    return 0;
}

static int make(struct sw_catalogue *c, struct sw_err *err) {
    c->fd = memfd_create("spillway-catalogue", MFD_CLOEXEC);
    if (c->fd < 0)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "memfd_create: %s", strerror(errno));
    int rc = map(c, err);
    if (!rc)
        rc = grow(c, err);
    if (rc)
        return rc;
    struct header *header = header_of(c);
    if (getrandom(&header->epoch, sizeof header->epoch, 0) != (ssize_t)sizeof header->epoch)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "no random bytes for the catalogue");
    header->version = VERSION;
    header->cell_bytes = sizeof(struct cell);
    header->magic = MAGIC;
    return 0;
}

static int load(struct sw_catalogue *c, struct sw_err *err) {
    struct stat found;
    if (fstat(c->fd, &found) < 0 || found.st_size < (off_t)sizeof(struct header) ||
        (uint64_t)found.st_size / sizeof(struct cell) > UINT32_MAX)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "catalogue has an impossible length");
    c->n_cells = (uint32_t)((uint64_t)found.st_size / sizeof(struct cell));
    c->max_cells = c->max_cells > c->n_cells ? c->max_cells : c->n_cells;
    int rc = map(c, err);
    if (rc)
        return rc;
    const struct header *header = header_of(c);
    if (header->magic != MAGIC)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "catalogue is none");
    if (header->version != VERSION || header->cell_bytes != sizeof(struct cell))
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON, "catalogue has version %u, this is made for %u",
                          header->version, VERSION);
    return 0;
}

int sw_catalogue_open(struct sw_catalogue **ret, int fd, unsigned max_regions, struct sw_err *err) {
    const uint64_t cells = (uint64_t)max_regions * CELLS_A_REGION + SPARE_CELLS;
    struct sw_catalogue *c = sw_alloc(sizeof *c);
    if (!c) {
        if (fd >= 0)
            (void)close(fd);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the catalogue");
    }
    c->fd = fd;
    c->adopted = fd >= 0;
    c->max_cells = cells < UINT32_MAX ? (uint32_t)cells : UINT32_MAX;
    c->n_touched = 1;
    const int rc = fd < 0 ? make(c, err) : load(c, err);
    if (rc) {
        sw_catalogue_close(c);
        return rc;
    }
    *ret = c;
    return 0;
}

bool sw_catalogue_is_adopted(const struct sw_catalogue *c) {
    return c && c->adopted;
}

int sw_catalogue_fd(const struct sw_catalogue *c) {
    return c->fd;
}

void sw_catalogue_close(struct sw_catalogue *c) {
    if (!c)
        return;
    if (c->cells)
        (void)munmap(c->cells, (size_t)c->max_cells * sizeof(struct cell));
    if (c->fd >= 0)
        (void)close(c->fd);
    sw_free(c->scratch);
    sw_free(c);
}

/* ---- writing ---- */

static int add(struct sw_catalogue *c, const void *data, size_t bytes) {
    if (c->scratch_bytes + bytes > c->scratch_cap) {
        const size_t cap = 2 * (c->scratch_bytes + bytes) + 1024;
        uint8_t *grown = sw_realloc(c->scratch, cap);
        if (!grown)
            return -SW_ENOMEM;
        c->scratch = grown;
        c->scratch_cap = cap;
    }
    memcpy(c->scratch + c->scratch_bytes, data, bytes);
    c->scratch_bytes += bytes;
    return 0;
}

static uint64_t commit_word(const uint8_t *content, size_t bytes, enum kind kind) {
    const uint32_t seed = (uint32_t)bytes * 31u + (uint32_t)kind;
    return (uint64_t)sw_hash_finish(sw_hash_update(seed, content, bytes)) << 32 | (uint64_t)kind;
}

static void give_cell(struct sw_catalogue *c, uint32_t at) {
    c->cells[at].next = c->first_free;
    c->first_free = at;
}

static void give_chain(struct sw_catalogue *c, uint32_t first) {
    for (uint32_t at = first, next; at; at = next) {
        next = c->cells[at].next;
        give_cell(c, at);
    }
}

static uint32_t take_cell(struct sw_catalogue *c, struct sw_err *err) {
    uint32_t at = c->first_free;
    if (at) {
        c->first_free = c->cells[at].next;
    } else {
        if (c->n_touched == c->n_cells && grow(c, err))
            return 0;
        at = c->n_touched++;
    }
    c->cells[at].next = 0;
    return at;
}

/* Writes what is in `scratch` and makes it valid. */
static int put(struct sw_catalogue *c, enum kind kind, const struct sw_catalogue_hints *hints, uint32_t *ret,
               struct sw_err *err) {
    uint32_t first = 0, last = 0;
    for (size_t done = 0; done < c->scratch_bytes; done += CELL_BODY_BYTES) {
        const size_t left = c->scratch_bytes - done, bytes = left < CELL_BODY_BYTES ? left : CELL_BODY_BYTES;
        const uint32_t at = take_cell(c, err);
        if (!at) {
            give_chain(c, first);
            return err ? err->code : -SW_ENOMEM;
        }
        memcpy(c->cells[at].body, c->scratch + done, bytes);
        if (last)
            c->cells[last].next = at;
        else
            first = at;
        last = at;
    }
    c->cells[first].bytes = (uint32_t)c->scratch_bytes;
    atomic_store_explicit(&c->cells[first].hints, 0, memory_order_relaxed);
    if (hints)
        sw_catalogue_hint(c, first, hints);
    atomic_store_explicit(&c->cells[first].commit, commit_word(c->scratch, c->scratch_bytes, kind),
                          memory_order_release);
    *ret = first;
    return 0;
}

static int add_chunk(struct sw_catalogue *c, const struct sw_frames *frames, size_t i) {
    const struct sw_stored *stored = &frames->stored[i];
    const struct sw_frame_layout *layout = &frames->layouts[i];
    const struct sw_packed_chunk *packed = frames->packed ? &frames->packed[i] : NULL;
    const enum place place = !stored->tier ? PLACE_NONE : sw_stored_is_on_disk(stored) ? PLACE_DISK : PLACE_HOST;
    const struct chunk_body body = {.frame_bytes = layout->frame_bytes,
                                    .n_extents = place == PLACE_HOST ? stored->n_extents : 0,
                                    .symbols_type = (uint16_t)(layout->n_symbols | (unsigned)layout->value_type << 12),
                                    .segment_log2 = (uint8_t)layout->segment_log2,
                                    .codec_place = (uint8_t)((unsigned)layout->codec | (unsigned)place << 4 |
                                                             (packed && packed->is_packed ? 1u << 7 : 0))};
    int rc = add(c, &body, sizeof body);
    for (unsigned e = 0; !rc && e < body.n_extents; e++) {
        const struct range_body extent = {stored->extents[e].offset, stored->extents[e].bytes};
        rc = add(c, &extent, sizeof extent);
    }
    if (!rc && packed) {
        const struct range_body range = {packed->offset, packed->bytes};
        rc = add(c, &range, sizeof range);
    }
    return rc;
}

static uint8_t shape_of(const struct sw_frames *frames) {
    if (frames && frames->n_parts)
        return (uint8_t)frames->n_parts;
    return frames && frames->packed ? SHAPE_PACKED : SHAPE_PLAIN;
}

static int add_parts(struct sw_catalogue *c, const struct sw_frames *frames) {
    int rc = 0;
    for (unsigned i = 0; !rc && frames && i < frames->n_parts; i++) {
        const struct part_body part = {frames->parts[i].raw_bytes, frames->parts[i].chunk_bytes};
        rc = add(c, &part, sizeof part);
    }
    return rc;
}

static int add_region(struct sw_catalogue *c, const struct sw_catalogue_region *r) {
    const struct sw_frames *frames = r->frames;
    const struct region_body body = {.sequence = ++c->sequence,
                                     .session = r->session,
                                     .slot = r->slot,
                                     .gen = r->gen,
                                     .raw_bytes = r->raw_bytes,
                                     .stored_bytes = r->stored_bytes,
                                     .chunk_bytes = frames ? frames->chunk_bytes : 0,
                                     .n_chunks = frames ? (uint32_t)frames->n_chunks : 0,
                                     .request = r->request,
                                     .piece = r->piece,
                                     .codec = r->codec,
                                     .reason = r->reason,
                                     .shape = shape_of(frames),
                                     .has = (uint8_t)((frames ? HAS_FRAMES : 0) | (r->name ? HAS_NAME : 0))};
    struct name_body name = {.uid = r->uid};
    c->scratch_bytes = 0;
    int rc = add(c, &body, sizeof body);
    if (!rc && r->name) {
        (void)snprintf(name.name, sizeof name.name, "%s", r->name);
        rc = add(c, &name, sizeof name);
    }
    if (!rc)
        rc = add_parts(c, frames);
    for (size_t i = 0; !rc && frames && i < frames->n_chunks; i++)
        rc = add_chunk(c, frames, i);
    return rc;
}

int sw_catalogue_put_region(struct sw_catalogue *c, const struct sw_catalogue_region *region, uint32_t replaced,
                            uint32_t *ret, struct sw_err *err) {
    struct sw_err cause = {0};
    *ret = 0;
    if (!c)
        return 0;
    int rc = add_region(c, region);
    if (rc)
        return sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for a record of the catalogue");
    rc = put(c, KIND_REGION, &region->hints, ret, &cause);
    if (rc && err)
        *err = cause;
    if (!rc)
        sw_catalogue_free(c, &replaced);
    return rc;
}

int sw_catalogue_put_session(struct sw_catalogue *c, const struct sw_catalogue_session *session, uint32_t *ret,
                             struct sw_err *err) {
    *ret = 0;
    if (!c)
        return 0;
    c->scratch_bytes = 0;
    if (add(c, session, sizeof *session))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for a record of the catalogue");
    struct sw_err cause = {0};
    const int rc = put(c, KIND_SESSION, NULL, ret, &cause);
    if (rc && err)
        *err = cause;
    return rc;
}

static void store_hints(struct cell *cell, unsigned hints) {
    const unsigned kept = atomic_load_explicit(&cell->hints, memory_order_relaxed) & NO_REQUEST;
    atomic_store_explicit(&cell->hints, hints | kept, memory_order_release);
}

void sw_catalogue_hint(struct sw_catalogue *c, uint32_t record, const struct sw_catalogue_hints *hints) {
    if (!c || !record)
        return;
    struct cell *cell = &c->cells[record];
    atomic_store_explicit(&cell->used_us, hints->used_us, memory_order_relaxed);
    store_hints(cell, hints->priority | (hints->pinned ? HINT_PINNED : 0u) | (hints->broken ? HINT_BROKEN : 0u) |
                          (hints->is_in ? HINT_IN : 0u));
}

void sw_catalogue_forget_request(struct sw_catalogue *c, uint32_t record) {
    if (c && record)
        (void)atomic_fetch_or_explicit(&c->cells[record].hints, NO_REQUEST, memory_order_release);
}

void sw_catalogue_free(struct sw_catalogue *c, uint32_t *record) {
    if (!c || !*record)
        return;
    atomic_store_explicit(&c->cells[*record].commit, 0, memory_order_release);
    keep_order(); /* what follows writes to cells of no record, and what the record named is reused only then */
    give_chain(c, *record);
    *record = 0;
}

void sw_catalogue_retire(struct sw_catalogue *c, uint32_t *record, uint32_t *list) {
    if (!c || !*record)
        return;
    struct cell *cell = &c->cells[*record];
    store_hints(cell, HINT_IN);
    keep_order();
    cell->retired = *list;
    *list = *record;
    *record = 0;
}

void sw_catalogue_free_retired(struct sw_catalogue *c, uint32_t *list) {
    while (*list) {
        uint32_t record = *list;
        *list = c->cells[record].retired;
        sw_catalogue_free(c, &record);
    }
}

static void raise(atomic_uint *to, uint32_t value) {
    if (value > atomic_load_explicit(to, memory_order_relaxed))
        atomic_store_explicit(to, value, memory_order_release);
}

void sw_catalogue_note_id(struct sw_catalogue *c, uint32_t slot, uint32_t gen) {
    if (!c)
        return;
    raise(&header_of(c)->generation, gen);
    raise(&header_of(c)->n_slots, slot + 1);
}

uint32_t sw_catalogue_generation(const struct sw_catalogue *c) {
    return c ? atomic_load(&header_of(c)->generation) : 0;
}

uint32_t sw_catalogue_n_slots(const struct sw_catalogue *c) {
    return c ? atomic_load(&header_of(c)->n_slots) : 0;
}

uint64_t sw_catalogue_epoch(const struct sw_catalogue *c) {
    return c ? header_of(c)->epoch : 0;
}

/* ---- finding ---- */

void sw_catalogue_free_unclaimed(struct sw_frames *frames) {
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        if (!frames->stored[i].tier) {
            sw_free(frames->stored[i].extents);
            frames->stored[i] = (struct sw_stored){0};
        }
}

void sw_catalogue_frames_free(struct sw_frames *frames) {
    sw_catalogue_free_unclaimed(frames);
    sw_frames_free(frames);
}

/* A record's content being read; what goes beyond its end is damage. */
struct reader {
    const uint8_t *at;
    size_t left;
};

static bool take(struct reader *r, void *ret, size_t bytes) {
    if (r->left < bytes)
        return false;
    memcpy(ret, r->at, bytes);
    r->at += bytes;
    r->left -= bytes;
    return true;
}

/* 0, or what is wrong: -SW_EFRAME, -SW_ENOMEM. */
static int read_chunk(struct reader *r, struct sw_frames *frames, size_t i) {
    struct sw_stored *stored = &frames->stored[i];
    struct chunk_body body;
    struct range_body range;
    if (!take(r, &body, sizeof body))
        return -SW_EFRAME;
    const unsigned codec = body.codec_place & 15u, place = body.codec_place >> 4 & 7u, type = body.symbols_type >> 12;
    if (codec >= SW_CODEC_NR || type >= SW_VALUE_NR ||
        !sw_codec_takes((enum sw_codec_id)codec, (enum sw_value_type)type) || place > PLACE_DISK ||
        (place == PLACE_HOST) != (body.n_extents > 0) || body.n_extents > r->left / sizeof range)
        return -SW_EFRAME;
    sw_frame_layout_init(&frames->layouts[i], (enum sw_codec_id)codec, body.segment_log2,
                         sw_frames_chunk_bytes(frames, i), body.symbols_type & 0xFFFu);
    frames->layouts[i].value_type = (enum sw_value_type)type;
    frames->layouts[i].frame_bytes = body.frame_bytes;
    if (place == PLACE_HOST && !(stored->extents = sw_alloc_array(body.n_extents, sizeof stored->extents[0])))
        return -SW_ENOMEM;
    stored->n_extents = body.n_extents;
    stored->bytes = place == PLACE_DISK ? body.frame_bytes : 0;
    for (unsigned e = 0; e < body.n_extents; e++) {
        (void)take(r, &range, sizeof range);
        stored->extents[e] = (struct sw_extent){.offset = range.offset, .bytes = range.bytes};
        stored->bytes += range.bytes;
    }
    if (!frames->packed)
        return place == PLACE_NONE ? -SW_EFRAME : 0;
    if (!take(r, &range, sizeof range))
        return -SW_EFRAME;
    frames->packed[i] = (struct sw_packed_chunk){range.offset, range.bytes, body.codec_place >> 7};
    return 0;
}

static bool are_lengths(uint64_t raw_bytes, uint64_t chunk_bytes) {
    return chunk_bytes > 0 && raw_bytes / chunk_bytes <= UINT32_MAX;
}

/* errors: -SW_EFRAME, -SW_ENOMEM. */
static int new_frames(struct reader *r, const struct region_body *body, struct sw_frames **ret) {
    struct sw_frames_part parts[SW_FRAMES_MAX_PARTS];
    const unsigned n = body->shape > SHAPE_PACKED ? body->shape : 0;
    bool good = n <= SW_FRAMES_MAX_PARTS && are_lengths(body->raw_bytes, body->chunk_bytes);
    for (unsigned i = 0; good && i < n; i++) {
        struct part_body part;
        good = take(r, &part, sizeof part) && are_lengths(part.raw_bytes, part.chunk_bytes);
        if (good)
            parts[i] = (struct sw_frames_part){
                .raw_bytes = part.raw_bytes, .chunk_bytes = part.chunk_bytes, .reason = body->reason};
    }
    if (!good)
        return -SW_EFRAME;
    *ret = n ? sw_frames_new_parts(parts, n)
             : sw_frames_new(body->raw_bytes, body->chunk_bytes, body->shape == SHAPE_PACKED);
    return *ret ? 0 : -SW_ENOMEM;
}

static int read_frames(struct reader *r, const struct region_body *body, struct sw_frames **ret) {
    struct sw_frames *frames = NULL;
    if (!(body->has & HAS_FRAMES))
        return 0;
    int rc = new_frames(r, body, &frames);
    if (rc)
        return rc;
    rc = frames->n_chunks == body->n_chunks && frames->raw_bytes == body->raw_bytes ? 0 : -SW_EFRAME;
    for (size_t i = 0; !rc && i < frames->n_chunks; i++)
        rc = read_chunk(r, frames, i);
    if (!rc && r->left)
        rc = -SW_EFRAME;
    if (rc)
        sw_catalogue_frames_free(frames);
    else
        *ret = frames;
    return rc;
}

/* A valid record. */
struct found {
    uint64_t slot_gen, sequence;
    uint32_t at;
};

struct scan {
    uint8_t *is_taken; /* [n_cells] */
    struct found *regions;
    size_t n_regions, cap_regions;
    unsigned damaged;
};

/* Gathers a record's content in `scratch` and checks it; its cells are then taken. errors: -SW_EFRAME (damaged),
 * -SW_ENOMEM. */
static int gather(struct sw_catalogue *c, struct scan *scan, uint32_t first) {
    const struct cell *head = &c->cells[first];
    const uint32_t n = (head->bytes + CELL_BODY_BYTES - 1) / CELL_BODY_BYTES;
    uint32_t at = first;
    c->scratch_bytes = 0;
    for (uint32_t i = 0; i < n; i++, at = c->cells[at].next) {
        const size_t left = head->bytes - c->scratch_bytes;
        if (at == 0 || at >= c->n_cells || (scan && scan->is_taken[at]))
            return -SW_EFRAME;
        if (add(c, c->cells[at].body, left < CELL_BODY_BYTES ? left : CELL_BODY_BYTES))
            return -SW_ENOMEM;
    }
    const uint64_t commit = atomic_load_explicit(&head->commit, memory_order_acquire);
    if (at != 0 || n == 0 || commit != commit_word(c->scratch, c->scratch_bytes, (enum kind)(commit & UINT32_MAX)))
        return -SW_EFRAME;
    for (at = first; scan && at; at = c->cells[at].next)
        scan->is_taken[at] = 1;
    return 0;
}

static int note_region(struct sw_catalogue *c, struct scan *scan, uint32_t at) {
    struct region_body body;
    if (scan->n_regions == scan->cap_regions) {
        const size_t cap = scan->cap_regions ? 2 * scan->cap_regions : 256;
        struct found *grown = sw_realloc(scan->regions, cap * sizeof *grown);
        if (!grown)
            return -SW_ENOMEM;
        scan->regions = grown;
        scan->cap_regions = cap;
    }
    memcpy(&body, c->scratch, sizeof body);
    scan->regions[scan->n_regions++] = (struct found){(uint64_t)body.slot << 32 | body.gen, body.sequence, at};
    c->sequence = body.sequence > c->sequence ? body.sequence : c->sequence;
    return 0;
}

/* Frees the record while the free cells are not listed yet. */
static void refuse(struct sw_catalogue *c, struct scan *scan, uint32_t first) {
    atomic_store(&c->cells[first].commit, 0);
    for (uint32_t at = first; at && scan->is_taken[at]; at = c->cells[at].next)
        scan->is_taken[at] = 0;
}

static int scan_cells(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor) {
    for (uint32_t at = 1; at < c->n_cells; at++) {
        const uint64_t kind = atomic_load(&c->cells[at].commit) & UINT32_MAX;
        struct sw_catalogue_session session;
        if (!kind)
            continue;
        const int rc = gather(c, scan, at);
        const bool good = rc == 0;
        if (rc == -SW_ENOMEM)
            return rc;
        if (good && kind == KIND_SESSION && c->scratch_bytes == sizeof session) {
            memcpy(&session, c->scratch, sizeof session);
            if (!visitor->session(visitor->arg, &session, at))
                refuse(c, scan, at);
        } else if (good && kind == KIND_REGION && c->scratch_bytes >= sizeof(struct region_body)) {
            if (note_region(c, scan, at))
                return -SW_ENOMEM;
        } else {
            atomic_store(&c->cells[at].commit, 0);
            scan->damaged++;
        }
    }
    return 0;
}

uint64_t sw_catalogue_longest_chunk(struct sw_catalogue *c) {
    uint64_t longest = 0;
    for (uint32_t at = 1; at < c->n_cells; at++) {
        struct region_body body;
        if ((atomic_load(&c->cells[at].commit) & UINT32_MAX) != KIND_REGION || gather(c, NULL, at) ||
            c->scratch_bytes < sizeof body)
            continue;
        memcpy(&body, c->scratch, sizeof body);
        const uint64_t chunk_bytes = body.chunk_bytes < body.raw_bytes ? body.chunk_bytes : body.raw_bytes;
        longest = chunk_bytes > longest ? chunk_bytes : longest;
    }
    return longest;
}

/* Of one slot the newest first: one that is only waiting to be told of may still be recorded when the slot has another
 * region. */
static int by_id(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->slot_gen != y->slot_gen)
        return x->slot_gen > y->slot_gen ? -1 : 1;
    return x->sequence > y->sequence ? -1 : x->sequence < y->sequence;
}

static int visit_region(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor,
                        uint32_t at) {
    struct region_body body;
    struct sw_frames *frames = NULL;
    if (gather(c, NULL, at)) /* it was good a moment ago */
        return -SW_ENOMEM;
    struct reader reader = {c->scratch, c->scratch_bytes};
    struct name_body name = {0};
    if (!take(&reader, &body, sizeof body))
        return -SW_ENOMEM;
    const int rc = body.has & HAS_NAME && (!take(&reader, &name, sizeof name) || name.name[sizeof name.name - 1])
                       ? -SW_EFRAME
                       : read_frames(&reader, &body, &frames);
    if (rc == -SW_ENOMEM)
        return rc;
    const unsigned hints = atomic_load(&c->cells[at].hints);
    struct sw_catalogue_region region = {.session = body.session,
                                         .slot = body.slot,
                                         .gen = body.gen,
                                         .request = hints & NO_REQUEST ? 0 : body.request,
                                         .piece = body.piece,
                                         .raw_bytes = body.raw_bytes,
                                         .stored_bytes = body.stored_bytes,
                                         .codec = body.codec,
                                         .reason = body.reason,
                                         .hints = {.used_us = atomic_load(&c->cells[at].used_us),
                                                   .priority = (uint8_t)hints,
                                                   .pinned = hints & HINT_PINNED,
                                                   .broken = hints & HINT_BROKEN,
                                                   .is_in = hints & HINT_IN},
                                         .name = body.has & HAS_NAME ? name.name : NULL,
                                         .uid = name.uid,
                                         .frames = frames};
    scan->damaged += rc != 0;
    if (rc || !visitor->found(visitor->arg, &region, at))
        refuse(c, scan, at);
    return 0;
}

static int visit_regions(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor) {
    int rc = 0;
    qsort(scan->regions, scan->n_regions, sizeof scan->regions[0], by_id);
    for (size_t i = 0; !rc && i < scan->n_regions; i++) {
        const bool is_old = i > 0 && scan->regions[i].slot_gen == scan->regions[i - 1].slot_gen;
        if (is_old) /* replaced, and its process was killed before it was freed */
            refuse(c, scan, scan->regions[i].at);
        else
            rc = visit_region(c, scan, visitor, scan->regions[i].at);
    }
    return rc;
}

int sw_catalogue_recover(struct sw_catalogue *c, const struct sw_catalogue_visitor *visitor, unsigned *ret_damaged,
                         struct sw_err *err) {
    struct scan scan = {.is_taken = sw_alloc(c->n_cells)};
    SW_ASSERT(c->n_touched == 1);
    int rc = scan.is_taken ? scan_cells(c, &scan, visitor) : -SW_ENOMEM;
    if (!rc && scan.n_regions)
        rc = visit_regions(c, &scan, visitor);
    for (uint32_t at = c->n_cells; !rc && at-- > 1;)
        if (!scan.is_taken[at])
            give_cell(c, at);
    c->n_touched = c->n_cells;
    *ret_damaged = scan.damaged;
    sw_free(scan.regions);
    sw_free(scan.is_taken);
    return rc ? sw_err_set(err, rc, SW_SCOPE_DAEMON, "out of memory for the catalogue") : 0;
}
