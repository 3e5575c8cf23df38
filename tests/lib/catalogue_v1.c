#include "tests/lib/catalogue_v1.h"

#include "base/assert.h"
#include "codec/checksum.h"
#include "spill/journal/catalogue.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CELL_BYTES = 128, BODY_BYTES = 96, MOST_CONTENT = 1 << 20, SESSION = 1, REGION = 2 };

struct writer {
    int fd;
    uint32_t n_cells; /* that are taken */
    uint64_t sequence;
    size_t n;
    uint8_t content[MOST_CONTENT];
};

static void add(struct writer *w, const void *data, size_t bytes) {
    SW_ASSERT(w->n + bytes <= sizeof w->content);
    memcpy(w->content + w->n, data, bytes);
    w->n += bytes;
}

static void add_u8(struct writer *w, unsigned value) {
    const uint8_t byte = (uint8_t)value;
    add(w, &byte, sizeof byte);
}

static void add_u32(struct writer *w, uint32_t value) {
    add(w, &value, sizeof value);
}

static void add_u64(struct writer *w, uint64_t value) {
    add(w, &value, sizeof value);
}

/* Writes the content into cells, one behind the other. */
static void put(struct writer *w, uint32_t kind, uint64_t used_us, uint32_t hints) {
    const uint32_t bytes = (uint32_t)w->n, first = w->n_cells, n = (bytes + BODY_BYTES - 1) / BODY_BYTES;
    const uint32_t hash = sw_hash_finish(sw_hash_update(bytes * 31 + kind, w->content, bytes));
    memset(w->content + bytes, 0, BODY_BYTES);
    for (uint32_t i = 0; i < n; i++) {
        uint8_t cell[CELL_BYTES] = {0};
        const uint64_t commit = i == 0 ? (uint64_t)hash << 32 | kind : 0;
        const uint32_t next = i + 1 < n ? first + i + 1 : 0;
        memcpy(cell, &commit, sizeof commit);
        memcpy(cell + 8, &used_us, sizeof used_us);
        memcpy(cell + 16, &hints, sizeof hints);
        memcpy(cell + 20, &bytes, sizeof bytes);
        memcpy(cell + 24, &next, sizeof next);
        memcpy(cell + 32, w->content + (size_t)i * BODY_BYTES, BODY_BYTES);
        SW_ASSERT(pwrite(w->fd, cell, sizeof cell, (off_t)(first + i) * CELL_BYTES) == CELL_BYTES);
    }
    w->n_cells += n;
    w->n = 0;
}

static bool put_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    struct writer *w = arg;
    (void)record;
    add_u64(w, session->number);
    add_u32(w, session->uid);
    add(w, session->token, sizeof session->token);
    add_u32(w, (uint32_t)session->process.pid);
    put(w, SESSION, 0, 0);
    return true;
}

static void add_chunk(struct writer *w, const struct sw_frames *frames, size_t i) {
    const struct sw_stored *stored = &frames->stored[i];
    const struct sw_frame_layout *layout = &frames->layouts[i];
    const unsigned place = stored->awaits, n = place == 1 ? stored->n_extents : 0,
                   is_packed = frames->packed && frames->packed[i].is_packed;
    const uint16_t symbols_type = (uint16_t)(layout->n_symbols | (unsigned)layout->value_type << 12);
    add_u64(w, layout->frame_bytes);
    add_u32(w, n);
    add(w, &symbols_type, sizeof symbols_type);
    add_u8(w, layout->segment_log2);
    add_u8(w, (unsigned)layout->codec | place << 4 | is_packed << 7);
    for (unsigned e = 0; e < n; e++) {
        add_u64(w, stored->extents[e].offset);
        add_u64(w, stored->extents[e].bytes);
    }
    if (frames->packed) {
        add_u64(w, frames->packed[i].offset);
        add_u64(w, frames->packed[i].bytes);
    }
}

static void add_region(struct writer *w, const struct sw_catalogue_region *r) {
    const struct sw_frames *frames = r->frames;
    char name[SW_REGION_NAME_BYTES] = {0};
    add_u64(w, ++w->sequence);
    add_u64(w, r->session);
    add_u32(w, r->slot);
    add_u32(w, r->gen);
    add_u64(w, r->raw_bytes);
    add_u64(w, frames ? frames->chunk_bytes : 0);
    add_u64(w, r->stored_bytes);
    add_u32(w, frames ? (uint32_t)frames->n_chunks : 0);
    add_u32(w, r->request);
    add_u32(w, r->batch_index);
    add_u8(w, r->codec);
    add_u8(w, r->reason);
    add_u8(w, !frames ? 0 : frames->n_buffers ? frames->n_buffers : frames->packed != NULL);
    add_u8(w, (frames ? 1u : 0) | (r->name ? 2u : 0));
    if (r->name) {
        (void)snprintf(name, sizeof name, "%s", r->name);
        add_u32(w, r->uid);
        add(w, name, sizeof name);
    }
    for (unsigned i = 0; frames && i < frames->n_buffers; i++) {
        add_u64(w, frames->buffers[i].raw_bytes);
        add_u64(w, frames->buffers[i].chunk_bytes);
    }
    for (size_t i = 0; frames && i < frames->n_chunks; i++)
        add_chunk(w, frames, i);
}

static bool put_region(void *arg, struct sw_catalogue_region *r, uint32_t record) {
    struct writer *w = arg;
    (void)record;
    add_region(w, r);
    put(w, REGION, r->hints.used_us,
        r->hints.priority | (r->hints.pinned ? 1u << 8 : 0) | (r->hints.broken ? 1u << 9 : 0) |
            (r->hints.is_in ? 1u << 10 : 0));
    sw_catalogue_frames_free(r->frames);
    return true;
}

static void put_header(const struct writer *w, const struct sw_catalogue *c) {
    uint8_t cell[CELL_BYTES] = "\0SPWCTG1";
    const uint32_t version = 1, cell_bytes = CELL_BYTES, generation = sw_catalogue_generation(c),
                   n_entries = sw_catalogue_n_entries(c);
    const uint64_t epoch = sw_catalogue_epoch(c);
    memcpy(cell + 8, &version, sizeof version);
    memcpy(cell + 12, &cell_bytes, sizeof cell_bytes);
    memcpy(cell + 16, &generation, sizeof generation);
    memcpy(cell + 20, &n_entries, sizeof n_entries);
    memcpy(cell + 24, &epoch, sizeof epoch);
    SW_ASSERT(pwrite(w->fd, cell, sizeof cell, 0) == CELL_BYTES);
}

/* Its own copy is scanned, so that the memory stays as it is. */
static struct sw_catalogue *open_copy(int fd) {
    static uint8_t bytes[1 << 16];
    struct sw_catalogue *c = NULL;
    const int copy = memfd_create("copy", MFD_CLOEXEC);
    ssize_t n;
    SW_ASSERT(copy >= 0);
    for (off_t at = 0; (n = pread(fd, bytes, sizeof bytes, at)) > 0; at += n)
        SW_ASSERT(pwrite(copy, bytes, (size_t)n, at) == n);
    SW_ASSERT(sw_catalogue_open(&c, copy, 1, NULL) == 0);
    return c;
}

int sw_catalogue_v1_of(int fd) {
    static struct writer w;
    const struct sw_catalogue_visitor visitor = {.session = put_session, .found = put_region, .arg = &w};
    struct sw_catalogue *c = open_copy(fd);
    unsigned n_damaged;
    memset(&w, 0, sizeof w);
    w.fd = memfd_create("spillway-catalogue", MFD_CLOEXEC);
    w.n_cells = 1;
    SW_ASSERT(w.fd >= 0 && sw_catalogue_recover(c, &visitor, &n_damaged, NULL) == 0 && n_damaged == 0);
    put_header(&w, c);
    sw_catalogue_close(c);
    return w.fd;
}
