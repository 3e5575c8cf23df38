/* identity_format.h - the constants of the hash in identity.h, for its implementations on host and GPU only.
 *
 * Never change them: identities are stored. */
#ifndef SW_CODEC_IDENTITY_FORMAT_H
#define SW_CODEC_IDENTITY_FORMAT_H

#include <stdint.h>

enum { SW_IDENTITY_PERIOD_STRIPES = 16 }; /* the lanes are scrambled after this many stripes */

#define SW_IDENTITY_STEP UINT64_C(0x9E3779B97F4A7C15)
#define SW_IDENTITY_SCRAMBLE_PRIME UINT64_C(0x9E3779B1)
#define SW_IDENTITY_LAST_PRIME UINT64_C(0x165667919E3779F9)

/* The fractional parts of the square roots of the first primes. */
#define SW_IDENTITY_KEYS                                                                                               \
    {                                                                                                                  \
        UINT64_C(0x6A09E667F3BCC908), UINT64_C(0xBB67AE8584CAA73B), UINT64_C(0x3C6EF372FE94F82B),                      \
            UINT64_C(0xA54FF53A5F1D36F1), UINT64_C(0x510E527FADE682D1), UINT64_C(0x9B05688C2B3E6C1F),                  \
            UINT64_C(0x1F83D9ABFB41BD6B), UINT64_C(0x5BE0CD19137E2179)                                                 \
    }

#endif
