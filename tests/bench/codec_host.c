/* codec_host.c - how fast one core encodes and decodes files, and what they shrink to.
 *
 * codec_host [-r REPEATS] FILE...: each file is read, repeated up to 64 MiB of chunks, and encoded and decoded REPEATS
 * times; prints the median and, as the spread, the slowest and the fastest. */
#include "base/alloc.h"
#include "base/clock.h"
#include "codec/codec.h"
#include "codec/plan/planning.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define WORK_BYTES ((size_t)64 << 20)
#define MAX_REPEATS 101

struct buffers {
    uint8_t *in, *frame, *out;
    size_t file_bytes;
    uint64_t frame_bytes;
    struct sw_plan plan;
    unsigned repeats;
};

struct spread {
    double slowest, median, fastest; /* MB/s */
};

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int run_encode(struct buffers *b) {
    return sw_codec_encode(&b->plan, b->in, WORK_BYTES, b->frame, sw_frame_bound_bytes(WORK_BYTES), &b->frame_bytes,
                           NULL);
}

static int run_decode(struct buffers *b) {
    uint64_t bytes;
    return sw_codec_decode(b->frame, b->frame_bytes, b->out, WORK_BYTES, &bytes, NULL);
}

static struct spread measure(struct buffers *b, int (*run)(struct buffers *)) {
    double rate[MAX_REPEATS];
    for (unsigned i = 0; i < b->repeats; i++) {
        uint64_t start = sw_clock_us();
        if (run(b) < 0) {
            fprintf(stderr, "codec_host: the codec failed\n");
            exit(1);
        }
        rate[i] = (double)WORK_BYTES / (double)(sw_clock_us() - start);
    }
    qsort(rate, b->repeats, sizeof rate[0], ascending);
    return (struct spread){rate[0], rate[b->repeats / 2], rate[b->repeats - 1]};
}

static bool load(struct buffers *b, const char *path) {
    FILE *file = fopen(path, "rb");
    if (!file)
        return false;
    b->file_bytes = fread(b->in, 1, WORK_BYTES, file);
    fclose(file);
    for (size_t at = b->file_bytes; b->file_bytes && at < WORK_BYTES; at += b->file_bytes)
        memcpy(b->in + at, b->in, WORK_BYTES - at < b->file_bytes ? WORK_BYTES - at : b->file_bytes);
    return b->file_bytes > 0;
}

static void bench_file(struct buffers *b, const char *path) {
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    uint64_t file_frame_bytes = 0;
    const char *slash = strrchr(path, '/');
    if (!load(b, path)) {
        fprintf(stderr, "codec_host: %s: cannot be read or is empty\n", path);
        exit(1);
    }
    uint64_t start = sw_clock_us();
    sw_plan_make(&b->plan, SW_VALUE_NONE, b->in, b->file_bytes, sample);
    uint64_t plan_us = sw_clock_us() - start;
    (void)sw_codec_encode(&b->plan, b->in, b->file_bytes, b->frame, sw_frame_bound_bytes(WORK_BYTES), &file_frame_bytes,
                          NULL);
    double ratio = (double)b->file_bytes / (double)file_frame_bytes;
    struct spread encode = measure(b, run_encode), decode = measure(b, run_decode);
    if (memcmp(b->in, b->out, WORK_BYTES) != 0) {
        fprintf(stderr, "codec_host: %s: decoded bytes differ\n", path);
        exit(1);
    }
    printf("%-16s %-5s %7.4f %8" PRIu64 " %7.0f (%.0f-%.0f) %7.0f (%.0f-%.0f)\n", slash ? slash + 1 : path,
           sw_codec_name(b->plan.codec), ratio, plan_us, encode.median, encode.slowest, encode.fastest, decode.median,
           decode.slowest, decode.fastest);
}

int main(int argc, char **argv) {
    struct buffers b = {.repeats = 7};
    for (int option; (option = getopt(argc, argv, "r:")) != -1;) {
        b.repeats = option == 'r' ? (unsigned)strtoul(optarg, NULL, 10) : 0;
        if (b.repeats < 1 || b.repeats > MAX_REPEATS) {
            fprintf(stderr, "usage: bench_codec_host [-r REPEATS] FILE...\n");
            return 2;
        }
    }
    b.in = sw_alloc(WORK_BYTES);
    b.out = sw_alloc(WORK_BYTES);
    b.frame = sw_alloc(sw_frame_bound_bytes(WORK_BYTES));
    if (!b.in || !b.out || !b.frame)
        return 1;
    printf("%-16s %-5s %7s %8s %23s %23s\n", "column", "codec", "ratio", "plan us", "encode MB/s (spread)",
           "decode MB/s (spread)");
    for (int i = optind; i < argc; i++)
        bench_file(&b, argv[i]);
    sw_free(b.in);
    sw_free(b.out);
    sw_free(b.frame);
    return 0;
}
