/* fuzz_catalogue.c - any bytes as the catalogue that a predecessor has left: first as they are, then as records with
 * valid checksums, in either version, so that what lies behind a checksum is reached. The catalogue is refused by name,
 * or opened: then each region that is found makes sense, and a successor finds the same again. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "codec/checksum.h"
#include "spill/journal/catalogue_format.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    CELL_HEAD_BYTES = 32,
    MAX_BYTES = 64 << 10,
    MAX_CELLS = 256,
    MAX_RECORDS = 64,
    KIND_SESSION = 1,
    KIND_REGION = 2,
};

static int memory_with(const void *bytes, size_t n) {
    const int fd = memfd_create("fuzz-catalogue", MFD_CLOEXEC);
    SW_ASSERT(fd >= 0 && (n == 0 || pwrite(fd, bytes, n, 0) == (ssize_t)n));
    return fd;
}

/* ---- what must hold of a region ---- */

static void check_frames(const struct sw_frames *frames) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < frames->n_chunks; i++) {
        const struct sw_stored *stored = &frames->stored[i];
        const struct sw_frame_layout *layout = &frames->layouts[i];
        SW_ASSERT(!stored->tier && (stored->n_extents == 0) == (stored->extents == NULL));
        SW_ASSERT(layout->codec < SW_CODEC_NR && layout->value_type < SW_VALUE_NR);
        const uint64_t chunk_bytes = sw_frames_chunk_bytes(frames, i);
        SW_ASSERT(chunk_bytes > 0 && chunk_bytes <= frames->chunk_bytes);
        bytes += chunk_bytes;
        if (frames->packed)
            SW_ASSERT(frames->packed[i].offset <= frames->raw_bytes &&
                      frames->packed[i].bytes <= frames->raw_bytes - frames->packed[i].offset);
    }
    SW_ASSERT(bytes == frames->raw_bytes);
}

static void check_region(const struct sw_catalogue_region *region) {
    SW_ASSERT(!region->name || memchr(region->name, 0, SW_REGION_NAME_BYTES));
    if (region->frames) {
        SW_ASSERT(region->frames->raw_bytes == region->raw_bytes);
        check_frames(region->frames);
    }
}

struct counts {
    unsigned n_sessions, n_regions;
};

static bool count_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    (void)session;
    SW_ASSERT(record);
    ((struct counts *)arg)->n_sessions++;
    return true;
}

static bool count_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    SW_ASSERT(record);
    check_region(region);
    sw_catalogue_frames_free(region->frames);
    ((struct counts *)arg)->n_regions++;
    return true;
}

/* ---- a catalogue ---- */

static struct sw_catalogue *find(int fd, struct counts *ret, unsigned *ret_damaged) {
    struct sw_catalogue *c = NULL;
    struct sw_err err = {0};
    const struct sw_catalogue_visitor visitor = {.session = count_session, .found = count_region, .arg = ret};
    const int rc = sw_catalogue_open(&c, fd, 1, &err);
    *ret = (struct counts){0};
    if (rc) {
        SW_ASSERT((rc == -SW_EFRAME || rc == -SW_EVERSION) && err.code == rc && err.msg[0]);
        return NULL;
    }
    (void)sw_catalogue_longest_chunk(c);
    SW_ASSERT(sw_catalogue_recover(c, &visitor, ret_damaged, &err) == 0);
    return c;
}

/* Opens the catalogue again: it has the same records, no damage, and room for more. */
static void find_again(struct sw_catalogue *c, const struct counts *first) {
    struct counts again;
    unsigned damaged;
    uint32_t record;
    const struct sw_catalogue_session session = {.number = 5};
    const int fd = fcntl(sw_catalogue_fd(c), F_DUPFD_CLOEXEC, 0);
    SW_ASSERT(fd >= 0 && sw_catalogue_put_session(c, &session, &record, NULL) == 0);
    sw_catalogue_close(c);
    c = find(fd, &again, &damaged);
    SW_ASSERT(c && damaged == 0);
    SW_ASSERT(again.n_sessions == first->n_sessions + 1 && again.n_regions == first->n_regions);
    sw_catalogue_close(c);
}

static void run(const void *image, size_t bytes) {
    struct counts counts;
    unsigned damaged;
    const long live = sw_alloc_live();
    struct sw_catalogue *c = find(memory_with(image, bytes), &counts, &damaged);
    if (c)
        find_again(c, &counts);
    SW_ASSERT(sw_alloc_live() == live);
}

/* ---- records with valid checksums ---- */

struct image {
    const struct sw_catalogue_format *format;
    uint8_t cells[MAX_CELLS * 256];
    uint32_t n_cells;
};

static uint8_t *cell_at(struct image *image, uint32_t at) {
    return image->cells + (size_t)at * image->format->cell_bytes;
}

static void begin(struct image *image, const struct sw_catalogue_format *format) {
    static const uint64_t magic = UINT64_C(0x3147544357505300);
    memset(image, 0, sizeof *image);
    image->format = format;
    image->n_cells = 1;
    memcpy(image->cells, &magic, sizeof magic);
    memcpy(image->cells + 8, &format->version, 4);
    memcpy(image->cells + 12, &format->cell_bytes, 4);
}

static void add(struct image *image, uint64_t kind, const uint8_t *content, uint32_t bytes) {
    const uint32_t most = image->format->cell_bytes - CELL_HEAD_BYTES, first = image->n_cells;
    if (bytes == 0 || first + bytes / most + 1 > MAX_CELLS)
        return;
    const uint32_t hash = sw_hash_finish(sw_hash_update(bytes * 31u + (uint32_t)kind, content, bytes));
    const uint64_t commit = (uint64_t)hash << 32 | kind;
    for (uint32_t done = 0; done < bytes; done += most) {
        const uint32_t left = bytes - done, next = left > most ? image->n_cells + 1 : 0;
        memcpy(cell_at(image, image->n_cells) + CELL_HEAD_BYTES, content + done, left < most ? left : most);
        memcpy(cell_at(image, image->n_cells++) + 24, &next, sizeof next);
    }
    memcpy(cell_at(image, first), &commit, sizeof commit);
    memcpy(cell_at(image, first) + 20, &bytes, sizeof bytes);
}

/* The record lies at the end of its memory, so that a sanitizer sees reads behind it. */
static void read_alone(const struct sw_catalogue_format *format, const uint8_t *content, size_t bytes) {
    struct sw_catalogue_region region;
    char name[SW_REGION_NAME_BYTES];
    uint8_t *exact = malloc(bytes ? bytes : 1);
    SW_ASSERT(exact);
    memcpy(exact, content, bytes);
    const int rc = sw_catalogue_read_region(format, exact, bytes, &region, name);
    SW_ASSERT(rc == 0 || rc == -SW_EFRAME);
    if (rc == 0) {
        check_region(&region);
        sw_catalogue_frames_free(region.frames);
    }
    free(exact);
}

/* Input: the version, then for each record its kind, two bytes of its length, and its content. */
static void run_records(const uint8_t *data, size_t size) {
    static struct image image;
    const struct sw_catalogue_format *format = data[0] % 2 ? &sw_catalogue_v1 : &sw_catalogue_v2;
    data++;
    size--;
    begin(&image, format);
    for (unsigned n = 0; n < MAX_RECORDS && size > 3; n++) {
        const size_t asked = (size_t)data[1] | (size_t)data[2] << 8, bytes = asked < size - 3 ? asked : size - 3;
        const long live = sw_alloc_live();
        read_alone(format, data + 3, bytes);
        SW_ASSERT(sw_alloc_live() == live);
        add(&image, data[0] % 2 ? KIND_SESSION : KIND_REGION, data + 3, (uint32_t)bytes);
        data += 3 + bytes;
        size -= 3 + bytes;
    }
    image.n_cells += image.n_cells < MAX_CELLS; /* a free one: memory that grows takes long */
    run(image.cells, (size_t)image.n_cells * format->cell_bytes);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    sw_log_set_level(SW_LOG_ERROR);
    if (size > MAX_BYTES)
        return 0;
    run(data, size);
    if (size > 0)
        run_records(data, size);
    return 0;
}
