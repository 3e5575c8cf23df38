#include "spill/journal/catalogue_format.h"

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

#define MAGIC UINT64_C(0x3147544357505300) /* "\0SPWCTG1": in every version */
enum { GROW_CELLS = 8192, SPARE_CELLS = 65536, CELLS_A_REGION = 3 };

enum kind { KIND_SESSION = 1, KIND_REGION = 2, KIND_BATCH = 3 };
enum { HINT_PINNED = 1u << 8, HINT_BROKEN = 1u << 9, HINT_IN = 1u << 10 }; /* below: the priority */
/* Other bits of the same word. They stay set. Version 0.1 of the program ignores NO_HOLES, and never sets it. */
enum { NO_REQUEST = 1u << 11, NO_HOLES = 1u << 12, SETTLED = 1u << 13, STAYS = NO_REQUEST | NO_HOLES | SETTLED };

/* A record is a chain of cells; only the first one has a commit word. The bytes after this head are content. */
struct cell {
    atomic_ullong commit;  /* 0: no valid record begins here; else checksum and kind */
    atomic_ullong used_us; /* this and `hints` are not part of the checksum */
    atomic_uint hints;
    uint32_t bytes;   /* of the record's content */
    uint32_t next;    /* next cell, 0: last; of a free cell: the next free one */
    uint32_t retired; /* in the first cell of a retired record: the next such record */
    uint8_t body[];
};
_Static_assert(sizeof(struct cell) == 32, "cells are shared with other versions of the program");

struct header { /* in place of cell 0; zeros follow */
    uint64_t magic;
    uint32_t version, cell_bytes;
    atomic_uint generation;
    atomic_uint n_entries; /* 0 in the first versions of the program: as many as max_regions */
    uint64_t epoch;        /* likewise 0 in the first versions */
};
_Static_assert(sizeof(struct header) == sizeof(struct cell), "the header is a cell");

struct sw_catalogue {
    int fd;
    bool adopted, copied;
    const struct sw_catalogue_format *format;
    uint8_t *memory; /* max_cells are mapped, n_cells exist */
    uint32_t n_cells, max_cells;
    uint32_t n_touched;  /* no cell from here on was ever used */
    uint32_t first_free; /* 0: none */
    unsigned n_lost;     /* records that were damaged, and so not copied */
    uint64_t sequence;
    struct sw_catalogue_content scratch; /* the record that is being written or read */
};

/* A process that is killed has executed all stores before some instruction, and none after it. So only the compiler
 * could reorder the stores that a successor sees. */
static void keep_order(void) {
    atomic_signal_fence(memory_order_seq_cst);
}

static struct header *header_of(const struct sw_catalogue *c) {
    return (struct header *)(void *)c->memory;
}

static struct cell *cell_at(const struct sw_catalogue *c, uint32_t at) {
    return (struct cell *)(void *)(c->memory + (size_t)at * c->format->cell_bytes);
}

static size_t body_bytes(const struct sw_catalogue *c) {
    return c->format->cell_bytes - sizeof(struct cell);
}

static size_t mapped_bytes(const struct sw_catalogue *c) {
    return (size_t)c->max_cells * c->format->cell_bytes;
}

/* ---- life ---- */

static int grow(struct sw_catalogue *c, struct sw_err *err) {
    const uint32_t left = c->max_cells - c->n_cells, more = left < GROW_CELLS ? left : GROW_CELLS;
    if (more == 0)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "catalogue is full: %u cells", c->n_cells);
    const uint64_t bytes = (uint64_t)(c->n_cells + more) * c->format->cell_bytes;
    int rc;
    do /* the loop's thread gets the signals */
        rc = fallocate(c->fd, 0, 0, (off_t)bytes);
    while (rc && errno == EINTR);
    if (rc)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "catalogue cannot grow: %s", strerror(errno));
    c->n_cells += more;
    return 0;
}

/* is_private: writes stay in this process. */
static int map(struct sw_catalogue *c, bool is_private, struct sw_err *err) {
    void *base = mmap(NULL, mapped_bytes(c), PROT_READ | PROT_WRITE,
                      (is_private ? MAP_PRIVATE : MAP_SHARED) | MAP_NORESERVE, c->fd, 0);
    if (base == MAP_FAILED)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "catalogue cannot be mapped: %s", strerror(errno));
    c->memory = base;
    return 0;
}

static int make(struct sw_catalogue *c, struct sw_err *err) {
    c->format = &sw_catalogue_v3;
    c->fd = memfd_create("spillway-catalogue", MFD_CLOEXEC);
    if (c->fd < 0)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "memfd_create: %s", strerror(errno));
    int rc = map(c, false, err);
    if (!rc)
        rc = grow(c, err);
    if (rc)
        return rc;
    struct header *header = header_of(c);
    if (getrandom(&header->epoch, sizeof header->epoch, 0) != (ssize_t)sizeof header->epoch)
        return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "no random bytes for the catalogue");
    header->version = c->format->version;
    header->cell_bytes = c->format->cell_bytes;
    header->magic = MAGIC;
    return 0;
}

/* Finds the format of the catalogue. */
static int look_at_header(struct sw_catalogue *c, struct sw_err *err) {
    static const struct sw_catalogue_format *const formats[] = {&sw_catalogue_v1, &sw_catalogue_v2, &sw_catalogue_v3};
    struct header header;
    if (pread(c->fd, &header, sizeof header, 0) != (ssize_t)sizeof header || header.magic != MAGIC)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "the kept memory is no catalogue");
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (formats[i]->version == header.version)
            c->format = formats[i];
    if (!c->format)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON, "catalogue has version %u, this program reads up to %u",
                          header.version, SW_CATALOGUE_VERSION);
    return header.cell_bytes == c->format->cell_bytes
               ? 0
               : sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "catalogue has cells of %u bytes", header.cell_bytes);
}

static int load(struct sw_catalogue *c, struct sw_err *err) {
    struct stat found;
    const int rc = look_at_header(c, err);
    if (rc)
        return rc;
    if (fstat(c->fd, &found) < 0 || (uint64_t)found.st_size / c->format->cell_bytes > UINT32_MAX ||
        found.st_size < (off_t)c->format->cell_bytes)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "catalogue has an impossible length");
    c->n_cells = (uint32_t)((uint64_t)found.st_size / c->format->cell_bytes);
    c->max_cells = c->max_cells > c->n_cells ? c->max_cells : c->n_cells;
    return map(c, c->format->version != SW_CATALOGUE_VERSION, err);
}

/* Opens one catalogue. ret: NULL after an error. fd: moved. max_cells: at least this many; may be more than a catalogue
 * has. */
static int open_one(struct sw_catalogue **ret, int fd, uint64_t max_cells, struct sw_err *err) {
    struct sw_catalogue *c = sw_alloc(sizeof *c);
    *ret = NULL;
    if (!c) {
        if (fd >= 0)
            (void)close(fd);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the catalogue");
    }
    c->fd = fd;
    c->adopted = fd >= 0;
    c->max_cells = max_cells < UINT32_MAX ? (uint32_t)max_cells : UINT32_MAX;
    c->n_touched = 1;
    const int rc = fd < 0 ? make(c, err) : load(c, err);
    if (rc)
        sw_catalogue_close(c);
    else
        *ret = c;
    return rc;
}

static int copy_records(struct sw_catalogue *to, struct sw_catalogue *from, struct sw_err *err);

/* Replaces *c by a copy in the version of this program. A cell of the copy holds more than one of the old, so twice as
 * many are enough. */
static int copy(struct sw_catalogue **c, uint64_t max_cells, struct sw_err *err) {
    struct sw_catalogue *old = *c;
    const uint64_t needed = 2 * (uint64_t)old->n_cells + GROW_CELLS;
    *c = NULL;
    int rc = open_one(c, -1, max_cells > needed ? max_cells : needed, err);
    if (!rc)
        rc = copy_records(*c, old, err);
    if (rc) {
        sw_catalogue_close(*c);
        *c = NULL;
    }
    sw_catalogue_close(old);
    return rc;
}

int sw_catalogue_open(struct sw_catalogue **ret, int fd, unsigned max_regions, struct sw_err *err) {
    const uint64_t max_cells = (uint64_t)max_regions * CELLS_A_REGION + SPARE_CELLS;
    struct sw_catalogue *c;
    int rc = open_one(&c, fd, max_cells, err);
    if (!rc && c->format->version != SW_CATALOGUE_VERSION)
        rc = copy(&c, max_cells, err);
    if (!rc)
        *ret = c;
    return rc;
}

bool sw_catalogue_is_copy(const struct sw_catalogue *c) {
    return c && c->copied;
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
    if (c->memory)
        (void)munmap(c->memory, mapped_bytes(c));
    if (c->fd >= 0)
        (void)close(c->fd);
    sw_free(c->scratch.bytes);
    sw_free(c);
}

/* ---- writing ---- */

static uint64_t commit_word(const uint8_t *content, size_t bytes, enum kind kind) {
    const uint32_t seed = (uint32_t)bytes * 31u + (uint32_t)kind;
    return (uint64_t)sw_hash_finish(sw_hash_update(seed, content, bytes)) << 32 | (uint64_t)kind;
}

static void give_cell(struct sw_catalogue *c, uint32_t at) {
    cell_at(c, at)->next = c->first_free;
    c->first_free = at;
}

static void give_chain(struct sw_catalogue *c, uint32_t first) {
    for (uint32_t at = first, next; at; at = next) {
        next = cell_at(c, at)->next;
        give_cell(c, at);
    }
}

static uint32_t take_cell(struct sw_catalogue *c, struct sw_err *err) {
    uint32_t at = c->first_free;
    if (at) {
        c->first_free = cell_at(c, at)->next;
    } else {
        if (c->n_touched == c->n_cells && grow(c, err))
            return 0;
        at = c->n_touched++;
    }
    cell_at(c, at)->next = 0;
    return at;
}

/* Writes the content of `scratch` as a record, and makes it valid. region: NULL for other kinds. */
static int put(struct sw_catalogue *c, enum kind kind, const struct sw_catalogue_region *region, uint32_t *ret,
               struct sw_err *err) {
    uint32_t first = 0, last = 0;
    const size_t most = body_bytes(c);
    for (size_t done = 0; done < c->scratch.n; done += most) {
        const size_t left = c->scratch.n - done, bytes = left < most ? left : most;
        const uint32_t at = take_cell(c, err);
        if (!at) {
            give_chain(c, first);
            return err ? err->code : -SW_ENOMEM;
        }
        memcpy(cell_at(c, at)->body, c->scratch.bytes + done, bytes);
        if (last)
            cell_at(c, last)->next = at;
        else
            first = at;
        last = at;
    }
    struct cell *cell = cell_at(c, first);
    cell->bytes = (uint32_t)c->scratch.n;
    atomic_store_explicit(&cell->hints, region && !region->may_fill_holes ? NO_HOLES : 0, memory_order_relaxed);
    if (region)
        sw_catalogue_hint(c, first, &region->hints);
    atomic_store_explicit(&cell->commit, commit_word(c->scratch.bytes, c->scratch.n, kind), memory_order_release);
    *ret = first;
    return 0;
}

int sw_catalogue_put_region(struct sw_catalogue *c, const struct sw_catalogue_region *region, uint32_t replaced,
                            uint32_t *ret, struct sw_err *err) {
    struct sw_err cause = {0};
    *ret = 0;
    if (!c)
        return 0;
    c->scratch.n = 0;
    int rc = sw_catalogue_add_region(&c->scratch, region, ++c->sequence);
    if (rc)
        return sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for a record of the catalogue");
    rc = put(c, KIND_REGION, region, ret, &cause);
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
    c->scratch.n = 0;
    if (sw_catalogue_add_session(&c->scratch, session))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_SESSION, "out of memory for a record of the catalogue");
    struct sw_err cause = {0};
    const int rc = put(c, KIND_SESSION, NULL, ret, &cause);
    if (rc && err)
        *err = cause;
    return rc;
}

uint64_t sw_catalogue_new_batch(struct sw_catalogue *c) {
    return c ? ++c->sequence : 0;
}

int sw_catalogue_put_batch(struct sw_catalogue *c, uint64_t batch, uint32_t *ret, struct sw_err *err) {
    *ret = 0;
    if (!c)
        return 0;
    c->scratch.n = 0;
    if (sw_catalogue_add_batch(&c->scratch, batch))
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a record of the catalogue");
    struct sw_err cause = {0};
    const int rc = put(c, KIND_BATCH, NULL, ret, &cause);
    keep_order(); /* its regions are settled only then */
    if (rc && err)
        *err = cause;
    return rc;
}

void sw_catalogue_settle(struct sw_catalogue *c, uint32_t record) {
    if (c && record)
        (void)atomic_fetch_or_explicit(&cell_at(c, record)->hints, SETTLED, memory_order_release);
    keep_order(); /* its batch goes only then */
}

static void store_hints(struct cell *cell, unsigned hints) {
    const unsigned kept = atomic_load_explicit(&cell->hints, memory_order_relaxed) & STAYS;
    atomic_store_explicit(&cell->hints, hints | kept, memory_order_release);
}

void sw_catalogue_hint(struct sw_catalogue *c, uint32_t record, const struct sw_catalogue_hints *hints) {
    if (!c || !record)
        return;
    struct cell *cell = cell_at(c, record);
    atomic_store_explicit(&cell->used_us, hints->used_us, memory_order_relaxed);
    store_hints(cell, hints->priority | (hints->pinned ? HINT_PINNED : 0u) | (hints->broken ? HINT_BROKEN : 0u) |
                          (hints->is_in ? HINT_IN : 0u));
}

void sw_catalogue_forget_request(struct sw_catalogue *c, uint32_t record) {
    if (c && record)
        (void)atomic_fetch_or_explicit(&cell_at(c, record)->hints, NO_REQUEST, memory_order_release);
}

void sw_catalogue_forbid_holes(struct sw_catalogue *c, uint32_t record) {
    if (c && record)
        (void)atomic_fetch_or_explicit(&cell_at(c, record)->hints, NO_HOLES, memory_order_release);
}

void sw_catalogue_free(struct sw_catalogue *c, uint32_t *record) {
    if (!c || !*record)
        return;
    atomic_store_explicit(&cell_at(c, *record)->commit, 0, memory_order_release);
    keep_order(); /* only then its cells, and what the record named, may be reused */
    give_chain(c, *record);
    *record = 0;
}

void sw_catalogue_retire(struct sw_catalogue *c, uint32_t *record, uint32_t *list) {
    if (!c || !*record)
        return;
    struct cell *cell = cell_at(c, *record);
    store_hints(cell, HINT_IN);
    keep_order();
    cell->retired = *list;
    *list = *record;
    *record = 0;
}

void sw_catalogue_free_retired(struct sw_catalogue *c, uint32_t *list) {
    while (*list) {
        uint32_t record = *list;
        *list = cell_at(c, record)->retired;
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
    raise(&header_of(c)->n_entries, slot + 1);
}

uint32_t sw_catalogue_generation(const struct sw_catalogue *c) {
    return c ? atomic_load(&header_of(c)->generation) : 0;
}

uint32_t sw_catalogue_n_entries(const struct sw_catalogue *c) {
    return c ? atomic_load(&header_of(c)->n_entries) : 0;
}

uint64_t sw_catalogue_epoch(const struct sw_catalogue *c) {
    return c ? header_of(c)->epoch : 0;
}

void sw_catalogue_take_over(struct sw_catalogue *c, uint64_t epoch, uint32_t generation, uint32_t n_entries) {
    if (!c)
        return;
    if (!c->adopted)
        header_of(c)->epoch = epoch;
    raise(&header_of(c)->generation, generation);
    raise(&header_of(c)->n_entries, n_entries);
}

/* ---- finding ---- */

/* A valid record. */
struct found {
    uint64_t slot_gen, sequence;
    uint64_t batch; /* it counts only with this batch; 0: it counts alone */
    uint32_t at;
};

struct found_batch {
    uint64_t number;
    uint32_t at;
};

struct scan {
    uint8_t *is_taken; /* [n_cells] */
    struct found *regions;
    size_t n_regions, cap_regions;
    struct found_batch *batches;
    size_t n_batches, cap_batches;
    unsigned damaged;
};

/* Gathers a record's content in `scratch` and checks it. Then its cells are taken. errors: -SW_EFRAME (damaged),
 * -SW_ENOMEM. */
static int gather(struct sw_catalogue *c, struct scan *scan, uint32_t first) {
    const struct cell *head = cell_at(c, first);
    const size_t most = body_bytes(c), bytes = head->bytes;
    uint32_t at = first;
    c->scratch.n = 0;
    if (bytes / most >= c->n_cells) /* otherwise a circular chain would be followed for as many bytes as it claims */
        return -SW_EFRAME;
    while (c->scratch.n < bytes) {
        const size_t left = bytes - c->scratch.n;
        if (at == 0 || at >= c->n_cells || (scan && scan->is_taken[at]))
            return -SW_EFRAME;
        if (sw_catalogue_add(&c->scratch, cell_at(c, at)->body, left < most ? left : most))
            return -SW_ENOMEM;
        at = cell_at(c, at)->next;
    }
    const uint64_t commit = atomic_load_explicit(&head->commit, memory_order_acquire);
    if (at != 0 || bytes == 0 || commit != commit_word(c->scratch.bytes, bytes, (enum kind)(commit & UINT32_MAX)))
        return -SW_EFRAME;
    for (at = first; scan && at; at = cell_at(c, at)->next)
        scan->is_taken[at] = 1;
    return 0;
}

/* Makes room for one more element of an array that grows. */
static int make_room(void **array, size_t n, size_t *cap, size_t element_bytes) {
    if (n < *cap)
        return 0;
    const size_t more = *cap ? 2 * *cap : 256;
    void *grown = sw_realloc(*array, more * element_bytes);
    if (!grown)
        return -SW_ENOMEM;
    *array = grown;
    *cap = more;
    return 0;
}

static void note_sequence(struct sw_catalogue *c, uint64_t sequence) {
    c->sequence = sequence > c->sequence ? sequence : c->sequence;
}

static bool is_settled(const struct sw_catalogue *c, uint32_t at) {
    return atomic_load(&cell_at(c, at)->hints) & SETTLED;
}

/* Returns false if the record makes no sense. */
static int note_region(struct sw_catalogue *c, struct scan *scan, uint32_t at) {
    struct sw_catalogue_reader reader = {c->scratch.bytes, c->scratch.n};
    struct sw_region_head head;
    void *regions = scan->regions;
    if (!c->format->take_region(&reader, &head))
        return -SW_EFRAME;
    if (make_room(&regions, scan->n_regions, &scan->cap_regions, sizeof scan->regions[0]))
        return -SW_ENOMEM;
    scan->regions = regions;
    scan->regions[scan->n_regions++] =
        (struct found){.slot_gen = (uint64_t)head.key.slot << 32 | head.key.gen,
                       .sequence = head.key.sequence,
                       .batch = c->format->take_batch && !is_settled(c, at) ? head.batch : 0,
                       .at = at};
    note_sequence(c, head.key.sequence);
    note_sequence(c, c->format->take_batch ? head.batch : 0);
    return 0;
}

static int note_batch(struct sw_catalogue *c, struct scan *scan, uint32_t at) {
    struct sw_catalogue_reader reader = {c->scratch.bytes, c->scratch.n};
    void *batches = scan->batches;
    uint64_t number;
    if (!c->format->take_batch || !c->format->take_batch(&reader, &number) || reader.left)
        return -SW_EFRAME;
    if (make_room(&batches, scan->n_batches, &scan->cap_batches, sizeof scan->batches[0]))
        return -SW_ENOMEM;
    scan->batches = batches;
    scan->batches[scan->n_batches++] = (struct found_batch){number, at};
    note_sequence(c, number);
    return 0;
}

/* Frees a record before the free cells are listed. */
static void refuse(struct sw_catalogue *c, struct scan *scan, uint32_t first) {
    atomic_store(&cell_at(c, first)->commit, 0);
    for (uint32_t at = first; at && scan->is_taken[at]; at = cell_at(c, at)->next)
        scan->is_taken[at] = 0;
}

/* Returns true if the gathered content is a session and nothing else. */
static bool is_session(const struct sw_catalogue *c, struct sw_catalogue_session *ret) {
    struct sw_catalogue_reader reader = {c->scratch.bytes, c->scratch.n};
    return c->format->take_session(&reader, ret) && reader.left == 0;
}

static int visit_session(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor,
                         uint32_t at) {
    struct sw_catalogue_session session;
    if (!is_session(c, &session))
        return -SW_EFRAME;
    if (!visitor->session(visitor->arg, &session, at))
        refuse(c, scan, at);
    return 0;
}

/* Takes a record in. errors: -SW_EFRAME (it makes no sense), -SW_ENOMEM. */
static int scan_record(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor,
                       uint64_t kind, uint32_t at) {
    const int rc = gather(c, scan, at);
    if (rc)
        return rc;
    switch (kind) {
    case KIND_SESSION:
        return visit_session(c, scan, visitor, at);
    case KIND_REGION:
        return note_region(c, scan, at);
    case KIND_BATCH:
        return note_batch(c, scan, at);
    default:
        return -SW_EFRAME;
    }
}

static int scan_cells(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor) {
    for (uint32_t at = 1; at < c->n_cells; at++) {
        const uint64_t kind = atomic_load(&cell_at(c, at)->commit) & UINT32_MAX;
        const int rc = kind ? scan_record(c, scan, visitor, kind, at) : 0;
        if (rc == -SW_ENOMEM)
            return rc;
        if (rc) {
            atomic_store(&cell_at(c, at)->commit, 0);
            scan->damaged++;
        }
    }
    return 0;
}

uint64_t sw_catalogue_longest_chunk(struct sw_catalogue *c) {
    uint64_t longest = 0;
    for (uint32_t at = 1; at < c->n_cells; at++) {
        struct sw_region_key key;
        if ((atomic_load(&cell_at(c, at)->commit) & UINT32_MAX) != KIND_REGION || gather(c, NULL, at) ||
            c->scratch.n < c->format->region_bytes)
            continue;
        memcpy(&key, c->scratch.bytes, sizeof key);
        const uint64_t chunk_bytes = key.chunk_bytes < key.raw_bytes ? key.chunk_bytes : key.raw_bytes;
        longest = chunk_bytes > longest ? chunk_bytes : longest;
    }
    return longest;
}

/* Regions of one table entry: the newest first. A restored region may still be recorded, until its client acknowledges
 * it, when a newer region uses its entry. */
static int by_id(const void *a, const void *b) {
    const struct found *x = a, *y = b;
    if (x->slot_gen != y->slot_gen)
        return x->slot_gen > y->slot_gen ? -1 : 1;
    return x->sequence > y->sequence ? -1 : x->sequence < y->sequence;
}

static int visit_region(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor,
                        uint32_t at) {
    struct sw_catalogue_region region;
    char name[SW_REGION_NAME_BYTES];
    if (gather(c, NULL, at)) /* it was valid a moment ago */
        return -SW_ENOMEM;
    const int rc = sw_catalogue_read_region(c->format, c->scratch.bytes, c->scratch.n, &region, name);
    if (rc == -SW_ENOMEM)
        return rc;
    if (rc) {
        scan->damaged++;
        refuse(c, scan, at);
        return 0;
    }
    const unsigned hints = atomic_load(&cell_at(c, at)->hints);
    region.request = hints & NO_REQUEST ? 0 : region.request;
    region.may_fill_holes = !(hints & NO_HOLES);
    region.hints = (struct sw_catalogue_hints){.used_us = atomic_load(&cell_at(c, at)->used_us),
                                               .priority = (uint8_t)hints,
                                               .pinned = hints & HINT_PINNED,
                                               .broken = hints & HINT_BROKEN,
                                               .is_in = hints & HINT_IN};
    if (!visitor->found(visitor->arg, &region, at))
        refuse(c, scan, at);
    return 0;
}

/* Returns true for a region of a batch that was not recorded as a whole: it is not there. */
static bool is_incomplete(const struct scan *scan, const struct found *region) {
    for (size_t i = 0; i < scan->n_batches; i++)
        if (scan->batches[i].number == region->batch)
            return false;
    return region->batch != 0;
}

static int visit_regions(struct sw_catalogue *c, struct scan *scan, const struct sw_catalogue_visitor *visitor) {
    uint64_t last = UINT64_MAX; /* not the id of any region */
    int rc = 0;
    if (scan->n_regions)
        qsort(scan->regions, scan->n_regions, sizeof scan->regions[0], by_id);
    for (size_t i = 0; !rc && i < scan->n_regions; i++) {
        const struct found *region = &scan->regions[i];
        /* The second of two was replaced, and its process was killed before it was freed. */
        if (is_incomplete(scan, region) || region->slot_gen == last) {
            refuse(c, scan, region->at);
            continue;
        }
        last = region->slot_gen;
        if (region->batch)
            sw_catalogue_settle(c, region->at);
        rc = visit_region(c, scan, visitor, region->at);
    }
    for (size_t i = 0; !rc && i < scan->n_batches; i++)
        refuse(c, scan, scan->batches[i].at);
    return rc;
}

int sw_catalogue_recover(struct sw_catalogue *c, const struct sw_catalogue_visitor *visitor, unsigned *ret_damaged,
                         struct sw_err *err) {
    struct scan scan = {.is_taken = sw_alloc(c->n_cells)};
    SW_ASSERT(c->n_touched == 1);
    int rc = scan.is_taken ? scan_cells(c, &scan, visitor) : -SW_ENOMEM;
    if (!rc)
        rc = visit_regions(c, &scan, visitor);
    for (uint32_t at = c->n_cells; !rc && at-- > 1;)
        if (!scan.is_taken[at])
            give_cell(c, at);
    c->n_touched = c->n_cells;
    *ret_damaged = scan.damaged + c->n_lost;
    sw_free(scan.regions);
    sw_free(scan.batches);
    sw_free(scan.is_taken);
    return rc ? sw_err_set(err, rc, SW_SCOPE_DAEMON, "out of memory for the catalogue") : 0;
}

/* ---- copying an earlier version's records ---- */

struct copying {
    struct sw_catalogue *to;
    struct sw_err *err;
    int rc;
};

static bool copy_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct copying *copying = arg;
    if (!copying->rc)
        copying->rc = sw_catalogue_put_session(copying->to, session, &record, copying->err);
    return true;
}

static bool copy_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    struct copying *copying = arg;
    region->batch = 0; /* no version before had any */
    if (!copying->rc)
        copying->rc = sw_catalogue_put_region(copying->to, region, 0, &record, copying->err);
    sw_catalogue_frames_free(region->frames);
    return true;
}

/* `from` is mapped privately, so that its memory stays unchanged. The copied records are recovered like any others. */
static int copy_records(struct sw_catalogue *to, struct sw_catalogue *from, struct sw_err *err) {
    struct copying copying = {.to = to, .err = err};
    const struct sw_catalogue_visitor visitor = {.session = copy_session, .found = copy_region, .arg = &copying};
    struct header *header = header_of(to);
    const int rc = sw_catalogue_recover(from, &visitor, &to->n_lost, err);
    if (rc || copying.rc)
        return rc ? rc : copying.rc;
    header->epoch = header_of(from)->epoch;
    atomic_store(&header->generation, atomic_load(&header_of(from)->generation));
    atomic_store(&header->n_entries, atomic_load(&header_of(from)->n_entries));
    to->adopted = to->copied = true;
    to->n_touched = 1; /* as in any catalogue before its recovery */
    to->first_free = 0;
    return 0;
}
