#include "codec/identity.h"

#include "codec/identity_format.h"

#include <string.h>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* The core of XXH3 (Y. Collet) has eight lanes. A lane sums the products of the halves of its keyed words, and the
 * words of its neighbor. Here the keys change with each stripe, so that exchanged stripes change the hash. */
static const uint64_t keys[SW_IDENTITY_LANES] = SW_IDENTITY_KEYS;

#ifdef __SSE2__

static void add_stripes(uint64_t lanes[SW_IDENTITY_LANES], const uint8_t *p, size_t n, uint64_t number) {
    enum { PAIRS = SW_IDENTITY_LANES / 2 };
    const __m128i step = _mm_set1_epi64x((long long)SW_IDENTITY_STEP),
                  first = _mm_set1_epi64x((long long)(number * SW_IDENTITY_STEP));
    __m128i sum[PAIRS], key[PAIRS];
    for (int k = 0; k < PAIRS; k++) {
        sum[k] = _mm_loadu_si128((const __m128i *)lanes + k);
        key[k] = _mm_add_epi64(_mm_loadu_si128((const __m128i *)keys + k), first);
    }
    for (size_t i = 0; i < n; i++, p += SW_IDENTITY_STRIPE_BYTES)
        for (int k = 0; k < PAIRS; k++) {
            const __m128i words = _mm_loadu_si128((const __m128i *)p + k), keyed = _mm_xor_si128(words, key[k]);
            sum[k] = _mm_add_epi64(sum[k], _mm_shuffle_epi32(words, _MM_SHUFFLE(1, 0, 3, 2)));
            sum[k] = _mm_add_epi64(sum[k], _mm_mul_epu32(keyed, _mm_srli_epi64(keyed, 32)));
            key[k] = _mm_add_epi64(key[k], step);
        }
    for (int k = 0; k < PAIRS; k++)
        _mm_storeu_si128((__m128i *)lanes + k, sum[k]);
}

#else

static void add_stripes(uint64_t lanes[SW_IDENTITY_LANES], const uint8_t *p, size_t n, uint64_t number) {
    for (size_t stripe = 0; stripe < n; stripe++, p += SW_IDENTITY_STRIPE_BYTES)
        for (unsigned i = 0; i < SW_IDENTITY_LANES; i++) {
            uint64_t word;
            memcpy(&word, p + 8 * i, sizeof word);
            const uint64_t keyed = word ^ (keys[i] + (number + stripe) * SW_IDENTITY_STEP);
            lanes[i ^ 1] += word;
            lanes[i] += (keyed & UINT32_MAX) * (keyed >> 32);
        }
}

#endif

static void scramble(uint64_t lanes[SW_IDENTITY_LANES]) {
    for (unsigned i = 0; i < SW_IDENTITY_LANES; i++)
        lanes[i] = (lanes[i] ^ lanes[i] >> 47 ^ keys[i]) * SW_IDENTITY_SCRAMBLE_PRIME;
}

void sw_identity_init(struct sw_identity *ret) {
    memcpy(ret->lanes, keys, sizeof ret->lanes);
    ret->bytes = 0;
}

void sw_identity_add(struct sw_identity *identity, const void *data, size_t bytes) {
    uint64_t lanes[SW_IDENTITY_LANES], number = identity->bytes / SW_IDENTITY_STRIPE_BYTES;
    const uint8_t *p = data;
    memcpy(lanes, identity->lanes, sizeof lanes);
    identity->bytes += bytes;
    for (size_t left = bytes / SW_IDENTITY_STRIPE_BYTES, n; left > 0; left -= n) {
        n = SW_IDENTITY_PERIOD_STRIPES - number % SW_IDENTITY_PERIOD_STRIPES;
        n = n < left ? n : left;
        add_stripes(lanes, p, n, number);
        p += n * SW_IDENTITY_STRIPE_BYTES;
        number += n;
        if (number % SW_IDENTITY_PERIOD_STRIPES == 0)
            scramble(lanes);
    }
    if (bytes % SW_IDENTITY_STRIPE_BYTES) {
        uint8_t last[SW_IDENTITY_STRIPE_BYTES] = {0};
        memcpy(last, p, bytes % SW_IDENTITY_STRIPE_BYTES);
        add_stripes(lanes, last, 1, number);
    }
    memcpy(identity->lanes, lanes, sizeof lanes);
}

static uint64_t fold(uint64_t a, uint64_t b) {
    const unsigned __int128 product = (unsigned __int128)a * b;
    return (uint64_t)product ^ (uint64_t)(product >> 64);
}

uint64_t sw_identity_value(const struct sw_identity *identity) {
    const uint64_t *lanes = identity->lanes;
    uint64_t h = identity->bytes * SW_IDENTITY_STEP;
    for (unsigned i = 0; i < SW_IDENTITY_LANES; i += 2)
        h += fold(lanes[i] ^ keys[i + 1], lanes[i + 1] ^ keys[i]);
    h ^= h >> 37;
    h *= SW_IDENTITY_LAST_PRIME;
    h ^= h >> 32;
    return h ? h : 1;
}

uint64_t sw_identity_of(const void *data, size_t bytes) {
    struct sw_identity identity;
    sw_identity_init(&identity);
    sw_identity_add(&identity, data, bytes);
    return sw_identity_value(&identity);
}
