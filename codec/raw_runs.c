#include "codec/raw_runs.h"

#include "base/assert.h"
#include "codec/checksum.h"

#include <stdbool.h>
#include <string.h>

#ifdef __x86_64__
#include <cpuid.h>
#include <immintrin.h>
#include <stdatomic.h>
#endif

#define TILE_BYTES ((uint64_t)SW_TILE_SEGMENTS << SW_RAW_SEGMENT_LOG2)

/* A position in the frame, which only moves forward. */
struct cursor {
    const struct sw_run *run;
    uint64_t at; /* offset in the run */
};

static struct cursor cursor_at(const struct sw_run *runs, uint64_t offset) {
    struct cursor c = {.run = runs, .at = offset};
    while (c.at > c.run->bytes)
        c.at -= c.run++->bytes;
    return c;
}

/* Returns the next bytes that lie in one run: at least 1, at most `bytes`. */
static uint8_t *take(struct cursor *c, uint64_t bytes, uint64_t *ret_bytes) {
    while (c->at == c->run->bytes) {
        c->run++;
        c->at = 0;
    }
    uint8_t *p = c->run->memory + c->at;
    *ret_bytes = bytes < c->run->bytes - c->at ? bytes : c->run->bytes - c->at;
    c->at += *ret_bytes;
    return p;
}

/* Writes the next bytes; `from` NULL: zeros. */
static void put(struct cursor *c, const void *from, uint64_t bytes) {
    for (uint64_t done = 0, n = 0; done < bytes; done += n) {
        uint8_t *to = take(c, bytes - done, &n);
        if (from)
            memcpy(to, (const uint8_t *)from + done, n);
        else
            memset(to, 0, n);
    }
}

static void get(struct cursor *c, void *to, uint64_t bytes) {
    for (uint64_t done = 0, n = 0; done < bytes; done += n) {
        const uint8_t *from = take(c, bytes - done, &n);
        memcpy((uint8_t *)to + done, from, n);
    }
}

/* Hashes the next tile of a range. */
static uint32_t hash_next(struct cursor *data, uint64_t bytes, uint32_t tile, bool is_last) {
    uint8_t together[TILE_BYTES]; /* a copy of a tile that lies in several runs */
    uint64_t n = 0;
    const uint8_t *p = take(data, bytes, &n);
    if (n < bytes) {
        memcpy(together, p, n);
        get(data, together + n, bytes - n);
        p = together;
    }
    return is_last ? sw_hash_last_tile(p, bytes, SW_RAW_SEGMENT_LOG2, tile)
                   : sw_hash_tile(p, bytes, SW_RAW_SEGMENT_LOG2, tile);
}

static uint64_t tile_bytes(const struct sw_frame_layout *layout, uint32_t tile) {
    const uint64_t left = layout->raw_bytes - tile * TILE_BYTES;
    return left < TILE_BYTES ? left : TILE_BYTES;
}

/* Returns the offset of a tile's record. */
static uint64_t record_at(const struct sw_frame_layout *layout, uint32_t tile) {
    return layout->records_offset + tile * sizeof(struct sw_tile_record);
}

/* Returns the offset of a tile's content. */
static uint64_t data_at(const struct sw_frame_layout *layout, uint32_t tile) {
    return layout->data_offset + tile * TILE_BYTES;
}

static void put_header(const struct sw_frame_layout *layout, const struct sw_run *runs) {
    struct cursor front = cursor_at(runs, 0), behind_records = cursor_at(runs, record_at(layout, layout->n_tiles)),
                  behind_data = cursor_at(runs, layout->data_offset + layout->raw_bytes);
    struct sw_frame_header header;
    sw_frame_header_init(&header, layout, NULL);
    put(&front, &header, sizeof header);
    put(&behind_records, NULL, layout->data_offset - record_at(layout, layout->n_tiles));
    put(&behind_data, NULL, layout->frame_bytes - layout->data_offset - layout->raw_bytes);
}

static void put_record(struct cursor *records, uint32_t tile, uint32_t hash) {
    const struct sw_tile_record record = {.offset16 = (uint32_t)(tile * TILE_BYTES / SW_FRAME_ALIGN), .hash = hash};
    put(records, &record, sizeof record);
}

/* Returns whether the next record is the one that put_record() writes. */
static bool check_record(struct cursor *records, uint32_t tile, uint32_t hash) {
    struct sw_tile_record record;
    get(records, &record, sizeof record);
    return record.hash == hash && record.offset16 == tile * TILE_BYTES / SW_FRAME_ALIGN;
}

void sw_raw_runs_seal(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                      struct sw_tile_range tiles) {
    SW_ASSERT(layout->codec == SW_CODEC_RAW && n_runs > 0 && tiles.end <= layout->n_tiles);
    if (tiles.first == 0 && (tiles.end > 0 || layout->n_tiles == 0))
        put_header(layout, runs);
    if (tiles.first >= tiles.end)
        return;
    struct cursor records = cursor_at(runs, record_at(layout, tiles.first)),
                  data = cursor_at(runs, data_at(layout, tiles.first));
    for (uint32_t tile = tiles.first; tile < tiles.end; tile++)
        put_record(&records, tile, hash_next(&data, tile_bytes(layout, tile), tile, tile + 1 == tiles.end));
}

uint32_t sw_raw_runs_verify(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                            struct sw_tile_range tiles) {
    uint32_t n_bad = 0;
    SW_ASSERT(layout->codec == SW_CODEC_RAW && n_runs > 0 && tiles.end <= layout->n_tiles);
    if (tiles.first >= tiles.end)
        return 0;
    struct cursor records = cursor_at(runs, record_at(layout, tiles.first)),
                  data = cursor_at(runs, data_at(layout, tiles.first));
    for (uint32_t tile = tiles.first; tile < tiles.end; tile++)
        n_bad += !check_record(&records, tile, hash_next(&data, tile_bytes(layout, tile), tile, tile + 1 == tiles.end));
    return n_bad;
}

#ifdef __x86_64__

#define LINE_BYTES 64

__attribute__((target("clflushopt"))) static void evict(uint8_t *p, uint64_t bytes) {
    uint8_t *line = p - (uintptr_t)p % LINE_BYTES;
    for (; line < p + bytes; line += LINE_BYTES)
        _mm_clflushopt(line);
}

/* Asks the processor only once, because the answer takes microseconds in a virtual machine. */
static bool can_evict(void) {
    static atomic_int known; /* 0: not asked yet, 1: no, 2: yes */
    int can = atomic_load_explicit(&known, memory_order_relaxed);
    if (can == 0) {
        unsigned a, b, c, d;
        can = __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_CLFLUSHOPT) ? 2 : 1;
        atomic_store_explicit(&known, can, memory_order_relaxed);
    }
    return can == 2;
}

#else

static void evict(uint8_t *p, uint64_t bytes) {
    (void)p;
    (void)bytes;
}

static bool can_evict(void) {
    return false;
}

#endif

void sw_raw_runs_evict(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                       struct sw_tile_range tiles) {
    SW_ASSERT(layout->codec == SW_CODEC_RAW && n_runs > 0 && tiles.end <= layout->n_tiles);
    if (tiles.first >= tiles.end || !can_evict())
        return;
    struct cursor data = cursor_at(runs, data_at(layout, tiles.first));
    uint64_t left = data_at(layout, tiles.end - 1) + tile_bytes(layout, tiles.end - 1) - data_at(layout, tiles.first);
    for (uint64_t n = 0; left > 0; left -= n) {
        uint8_t *p = take(&data, left, &n);
        evict(p, n);
    }
}

void sw_raw_runs_seal_hashed(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                             const uint32_t *hashes) {
    SW_ASSERT(layout->codec == SW_CODEC_RAW && n_runs > 0);
    struct cursor records = cursor_at(runs, layout->records_offset);
    put_header(layout, runs);
    for (uint32_t tile = 0; tile < layout->n_tiles; tile++)
        put_record(&records, tile, hashes[tile]);
}

uint32_t sw_raw_runs_verify_hashed(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs,
                                   const uint32_t *hashes) {
    uint32_t n_bad = 0;
    SW_ASSERT(layout->codec == SW_CODEC_RAW && n_runs > 0);
    struct cursor records = cursor_at(runs, layout->records_offset);
    for (uint32_t tile = 0; tile < layout->n_tiles; tile++)
        n_bad += !check_record(&records, tile, hashes[tile]);
    return n_bad;
}
