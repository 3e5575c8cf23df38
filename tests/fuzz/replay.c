/* replay.c - runs a fuzz harness without libFuzzer: on the files that are named and on mutations of them, then on
 * seeded random inputs, so that every build runs every harness a little. replay [FILE...] */
#include "base/assert.h"
#include "tests/lib/content.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A sanitizer sees the first bad access of the same inputs; without one a part of them shows that the harness works. */
#if defined(__SANITIZE_ADDRESS__)
enum { RANDOM_INPUTS = 1000, MUTATIONS = 400 };
#else
enum { RANDOM_INPUTS = 200, MUTATIONS = 100 };
#endif
enum { MAX_RANDOM_BYTES = 600, MAX_FILE_BYTES = 1 << 20 };

static uint8_t input[MAX_FILE_BYTES];

static void run(size_t bytes) {
    uint8_t *copy = malloc(bytes ? bytes : 1); /* exactly as long, so that a sanitizer sees a read past its end */
    SW_ASSERT(copy);
    memcpy(copy, input, bytes);
    (void)LLVMFuzzerTestOneInput(copy, bytes);
    free(copy);
}

/* Mostly zeros and small numbers: fields of random bytes would all be refused at the first check. */
static uint8_t random_byte(uint64_t *random) {
    const uint64_t r = sw_random(random);
    return r % 4 == 0 ? (uint8_t)(r >> 8) : r % 4 == 1 ? (uint8_t)(r >> 8 & 7) : 0;
}

static void run_random(uint64_t *random) {
    const size_t bytes = sw_random(random) % MAX_RANDOM_BYTES;
    for (size_t at = 0; at < bytes; at++)
        input[at] = random_byte(random);
    run(bytes);
}

/* A file as it is, then with a few bytes changed, again and again. */
static void run_file(const char *path, uint64_t *random) {
    static uint8_t original[MAX_FILE_BYTES];
    FILE *file = fopen(path, "re");
    SW_ASSERT(file);
    const size_t bytes = fread(original, 1, sizeof original, file);
    (void)fclose(file);
    for (int i = 0; i <= MUTATIONS; i++) {
        memcpy(input, original, bytes);
        for (uint64_t n = i == 0 || bytes == 0 ? 0 : 1 + sw_random(random) % 4; n > 0; n--)
            input[sw_random(random) % bytes] = random_byte(random);
        run(bytes);
    }
}

int main(int argc, char **argv) {
    uint64_t random = 20240229;
    for (int i = 1; i < argc; i++)
        run_file(argv[i], &random);
    for (int i = 0; i < RANDOM_INPUTS; i++)
        run_random(&random);
    return 0;
}
