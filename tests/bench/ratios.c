/* ratios.c - compressed lengths of the columns of TPC-H's lineitem, orders and partsupp, by the plans that the service
 * would choose.
 *
 * ratios [-s SCALE] [-d DIRECTORY]: prints a line per buffer: column, role, type, codec, its bytes and its frames'
 * bytes, separated by tabs. Frames are decoded and compared. With -d each buffer is also written to
 * DIRECTORY/COLUMN.ROLE, for parquet.py, which reads these lines as well.
 *
 * ratios TYPE:KIND:BITS...: prints the bits that a value of such a column (tests/lib/numbers.h) takes, by each codec
 * that can be chosen for its type. A column has 16 MiB; all metadata counts. */
#include "base/alloc.h"
#include "codec/bitpack/bitpack_core.h"
#include "codec/codec.h"
#include "codec/plan/planning.h"
#include "tests/lib/numbers.h"
#include "tests/lib/tpch_tables.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEED = 1 };
#define CHUNK_BYTES ((uint64_t)16 << 20)

struct bench {
    const char *directory; /* or NULL */
    uint8_t *frame, *out;  /* of a chunk */
};

static void fail(const char *what, const char *column) {
    fprintf(stderr, "ratios: %s: %s\n", column, what);
    exit(1);
}

static void *need(uint64_t bytes) {
    void *p = sw_alloc(bytes);
    if (!p)
        fail("out of memory", "buffers");
    return p;
}

static uint64_t encode_chunk(const struct bench *b, const struct sw_plan *plan, const uint8_t *in, uint64_t bytes,
                             const char *column) {
    uint64_t frame_bytes, raw_bytes;
    if (sw_codec_encode(plan, in, bytes, b->frame, sw_frame_bound_bytes(CHUNK_BYTES), &frame_bytes, NULL) < 0 ||
        sw_codec_decode(b->frame, frame_bytes, b->out, CHUNK_BYTES, &raw_bytes, NULL) < 0 || raw_bytes != bytes ||
        memcmp(b->out, in, bytes) != 0)
        fail("the codec failed", column);
    return frame_bytes;
}

static void write_file(const struct bench *b, const char *column, const char *role, const void *data, uint64_t bytes) {
    char path[4096];
    (void)snprintf(path, sizeof path, "%s/%s.%s", b->directory, column, role);
    FILE *file = fopen(path, "wb");
    if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
        fail("its file cannot be written", column);
}

static void bench_buffer(const struct bench *b, const char *column, const char *role, enum sw_value_type type,
                         const uint8_t *data, uint64_t bytes) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    uint64_t frames_bytes = 0;
    sw_plan_make(&plan, type, data, bytes, sample);
    for (uint64_t at = 0; at < bytes; at += CHUNK_BYTES)
        frames_bytes += encode_chunk(b, &plan, data + at, bytes - at < CHUNK_BYTES ? bytes - at : CHUNK_BYTES, column);
    printf("%s\t%s\t%s\t%s\t%" PRIu64 "\t%" PRIu64 "\n", column, role, sw_value_type_name(type),
           sw_codec_name(plan.codec), bytes, frames_bytes);
    fflush(stdout);
    if (b->directory)
        write_file(b, column, role, data, bytes);
}

static void bench_column(const struct bench *b, const struct sw_tpch *tpch, enum sw_tpch_column column) {
    const char *name = sw_tpch_column_name(column);
    const enum sw_value_type type = sw_tpch_column_type(column);
    const uint64_t keys = sw_tpch_keys(tpch, column), rows = sw_tpch_rows(tpch, column, 0, keys);
    const bool is_string = type == SW_VALUE_NONE;
    uint8_t *data = need(sw_tpch_bound_bytes(column, rows));
    int32_t *offsets = is_string ? need((rows + 1) * sizeof *offsets) : NULL;
    const uint64_t bytes = sw_tpch_fill(tpch, column, 0, keys, data, offsets);
    if (is_string)
        bench_buffer(b, name, "offsets", SW_VALUE_I32, (const uint8_t *)offsets, (rows + 1) * sizeof *offsets);
    bench_buffer(b, name, is_string ? "characters" : "values", type, data, bytes);
    sw_free(offsets);
    sw_free(data);
}

static void bench_numbers(const struct bench *b, const char *column) {
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits;
    uint8_t *data = need(CHUNK_BYTES), *sample = need(SW_SAMPLE_MAX_BYTES);
    if (!sw_numbers_parse(column, &type, &kind, &bits))
        fail("not TYPE:KIND:BITS", column);
    sw_numbers_fill(data, 0, CHUNK_BYTES, type, kind, bits, SEED);
    const size_t sample_bytes = sw_sample_gather(sample, data, CHUNK_BYTES, SW_SAMPLE_LONG_PIECE_BYTES);
    printf("%s", column);
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type))
            continue;
        sw_plan_learn(&plan, sample, sample_bytes);
        const double frame_bytes = (double)encode_chunk(b, &plan, data, CHUNK_BYTES, column);
        printf("\t%s %.2f", sw_codec_name(plan.codec), frame_bytes * sw_value_bits(type) / (double)CHUNK_BYTES);
    }
    printf("\n");
    sw_free(sample);
    sw_free(data);
}

static void bench_tables(const struct bench *b, double scale) {
    struct sw_tpch *tpch = sw_tpch_new(scale, SEED);
    if (!tpch)
        fail("out of memory", "tables");
    for (unsigned column = 0; column < SW_TPCH_COLUMNS; column++)
        bench_column(b, tpch, (enum sw_tpch_column)column);
    sw_tpch_free(tpch);
}

int main(int argc, char **argv) {
    struct bench b = {.directory = NULL};
    double scale = 1;
    for (int option; (option = getopt(argc, argv, "s:d:")) != -1;) {
        if (option == 's')
            scale = strtod(optarg, NULL);
        else if (option == 'd')
            b.directory = optarg;
        if (option == '?' || !(scale > 0 && scale <= 12)) {
            fprintf(stderr, "usage: bench_ratios [-s SCALE] [-d DIRECTORY] | bench_ratios TYPE:KIND:BITS...\n");
            return 2;
        }
    }
    b.frame = need(sw_frame_bound_bytes(CHUNK_BYTES));
    b.out = need(CHUNK_BYTES);
    if (optind == argc)
        bench_tables(&b, scale);
    for (int i = optind; i < argc; i++)
        bench_numbers(&b, argv[i]);
    sw_free(b.frame);
    sw_free(b.out);
    return 0;
}
