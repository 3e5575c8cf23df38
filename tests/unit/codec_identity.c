/* Identities: the function is the one that is recorded, whatever way the bytes come; and no two beginnings of frames
 * that differ in anything have the same. */
#include "codec/codec.h"
#include "codec/identity.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LANES = 8, STRIPE = 64, BLOCK = 16 };

static const uint64_t keys[LANES] = {
    UINT64_C(0x6A09E667F3BCC908), UINT64_C(0xBB67AE8584CAA73B), UINT64_C(0x3C6EF372FE94F82B),
    UINT64_C(0xA54FF53A5F1D36F1), UINT64_C(0x510E527FADE682D1), UINT64_C(0x9B05688C2B3E6C1F),
    UINT64_C(0x1F83D9ABFB41BD6B), UINT64_C(0x5BE0CD19137E2179),
};
static const uint64_t step = UINT64_C(0x9E3779B97F4A7C15);

/* Once more, word by word, as codec/FORMAT.md says it. */
static uint64_t reference(const uint8_t *data, size_t bytes) {
    uint64_t lanes[LANES];
    memcpy(lanes, keys, sizeof lanes);
    for (uint64_t n = 0; n * STRIPE < bytes; n++) {
        uint64_t words[LANES] = {0};
        memcpy(words, data + n * STRIPE, bytes - n * STRIPE < STRIPE ? bytes - n * STRIPE : STRIPE);
        for (unsigned i = 0; i < LANES; i++) {
            const uint64_t keyed = words[i] ^ (keys[i] + n * step);
            lanes[i ^ 1] += words[i];
            lanes[i] += (keyed & 0xFFFFFFFF) * (keyed >> 32);
        }
        const bool is_whole = bytes - n * STRIPE >= STRIPE;
        for (unsigned i = 0; is_whole && n % BLOCK == BLOCK - 1 && i < LANES; i++)
            lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ keys[i]) * UINT64_C(0x9E3779B1);
    }
    uint64_t h = bytes * step;
    for (unsigned i = 0; i < LANES; i += 2) {
        const unsigned __int128 product = (unsigned __int128)(lanes[i] ^ keys[i + 1]) * (lanes[i + 1] ^ keys[i]);
        h += (uint64_t)product ^ (uint64_t)(product >> 64);
    }
    h = (h ^ h >> 37) * UINT64_C(0x165667919E3779F9);
    h ^= h >> 32;
    return h ? h : 1;
}

START_TEST(any_length_and_alignment) {
    static uint8_t bytes[5000];
    sw_content_fill(bytes, sizeof bytes, SW_CONTENT_RANDOM, 7);
    for (size_t n = 0; n < sizeof bytes - 8; n += n < 300 ? 1 : 61)
        for (size_t at = 0; at < 8; at++)
            ck_assert_uint_eq(sw_identity_of(bytes + at, n), reference(bytes + at, n));
}
END_TEST

/* The bytes come in several pieces, as a frame lies in extents. */
START_TEST(bytes_added_in_several_calls) {
    static uint8_t bytes[40 * STRIPE + 16];
    sw_content_fill(bytes, sizeof bytes, SW_CONTENT_TEXT, 8);
    for (size_t first = 0; first <= 40 * STRIPE; first += STRIPE)
        for (size_t second = 0; first + second <= 40 * STRIPE; second += 7 * STRIPE) {
            struct sw_identity identity;
            sw_identity_init(&identity);
            sw_identity_add(&identity, bytes, first);
            sw_identity_add(&identity, bytes + first, second);
            sw_identity_add(&identity, bytes + first + second, sizeof bytes - first - second);
            ck_assert_uint_eq(sw_identity_value(&identity), sw_identity_of(bytes, sizeof bytes));
        }
}
END_TEST

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void ck_all_differ(uint64_t *values, size_t n) {
    qsort(values, n, sizeof *values, by_value);
    for (size_t i = 1; i < n; i++)
        ck_assert_uint_ne(values[i], values[i - 1]);
}

/* Every bit counts, every length, and every place of a tile's record, even if all bytes are zero or equal. */
START_TEST(different_bytes_have_different_identities) {
    enum { BYTES = 1500, RECORD = 8, N = BYTES * 8 + BYTES + BYTES / RECORD + 1 };
    static uint8_t bytes[BYTES], record[RECORD] = {1, 2, 3, 4, 5, 6, 7, 8};
    static uint64_t values[N];
    size_t n = 0;
    if (_i == 0)
        sw_content_fill(bytes, sizeof bytes, SW_CONTENT_RANDOM, 9);
    else
        memset(bytes, _i == 1 ? 0 : 0xA5, sizeof bytes);
    for (size_t bit = 0; bit < 8 * BYTES; bit++) {
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        values[n++] = sw_identity_of(bytes, sizeof bytes);
        bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
    }
    for (size_t length = 0; length < BYTES; length++)
        values[n++] = sw_identity_of(bytes, length);
    for (size_t at = 0; at + RECORD <= BYTES; at += RECORD) {
        uint8_t kept[RECORD];
        memcpy(kept, bytes + at, RECORD);
        memcpy(bytes + at, record, RECORD);
        values[n++] = sw_identity_of(bytes, sizeof bytes);
        memcpy(bytes + at, kept, RECORD);
    }
    values[n++] = sw_identity_of(bytes, sizeof bytes);
    ck_all_differ(values, n);
}
END_TEST

/* Any two records change places, and any two stripes. */
START_TEST(swapped_bytes_have_another_identity) {
    enum { RECORDS = 200, UNIT = 8, MOST = RECORDS * RECORDS / 2 };
    static uint8_t bytes[RECORDS * UNIT];
    static uint64_t values[MOST + 1];
    const size_t unit = _i ? STRIPE : UNIT, n_units = sizeof bytes / unit;
    size_t n = 0;
    sw_content_fill(bytes, sizeof bytes, SW_CONTENT_RANDOM, 10);
    values[n++] = sw_identity_of(bytes, sizeof bytes);
    for (size_t a = 0; a < n_units; a++)
        for (size_t b = a + 1; b < n_units; b++) {
            uint8_t kept[STRIPE];
            memcpy(kept, bytes + a * unit, unit);
            memcpy(bytes + a * unit, bytes + b * unit, unit);
            memcpy(bytes + b * unit, kept, unit);
            values[n++] = sw_identity_of(bytes, sizeof bytes);
            memcpy(bytes + b * unit, bytes + a * unit, unit);
            memcpy(bytes + a * unit, kept, unit);
        }
    ck_all_differ(values, n);
}
END_TEST

/* Catalogues have these numbers: of the beginnings of golden frames. */
static const struct {
    const char *name;
    uint64_t identity;
} goldens[] = {
    {"v1-raw", UINT64_C(0x6181B26B9C7EDB10)},         {"v1-v5t-256", UINT64_C(0x3078134C4541847D)},
    {"v1-phrase-1024", UINT64_C(0xCF72F2625084DFB5)}, {"v1-for-i32", UINT64_C(0x78FCE55AC9B71879)},
    {"v1-raw-empty", UINT64_C(0x06B98BD913FD5BC7)},
};

START_TEST(recorded_identities_stay_valid) {
    static uint8_t frame[1 << 20];
    char path[300];
    struct sw_frame_layout layout;
    (void)snprintf(path, sizeof path, "%s/tests/golden/%s.spwf", SW_SOURCE_DIR, goldens[_i].name);
    FILE *file = fopen(path, "rb");
    ck_assert_ptr_nonnull(file);
    const size_t bytes = fread(frame, 1, sizeof frame, file);
    (void)fclose(file);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, bytes, bytes, NULL), 0);
    const uint64_t identity = sw_identity_of(frame, layout.counts_offset);
    ck_assert_msg(identity == goldens[_i].identity, "%s: 0x%llX", goldens[_i].name, (unsigned long long)identity);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("identity");
    TCase *tcase = tcase_create("identity");
    tcase_add_test(tcase, any_length_and_alignment);
    tcase_add_test(tcase, bytes_added_in_several_calls);
    tcase_add_loop_test(tcase, different_bytes_have_different_identities, 0, 3);
    tcase_add_loop_test(tcase, swapped_bytes_have_another_identity, 0, 2);
    tcase_add_loop_test(tcase, recorded_identities_stay_valid, 0, (int)(sizeof goldens / sizeof goldens[0]));
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
