/* identity.h - 64 bits that say which frame it is: a hash of all that comes before its counts (codec/FORMAT.md, "What
 * proves what").
 *
 * A frame proves by its own hashes that it is whole, not that it is the one that was stored. Whoever keeps a frame
 * where others can reach it remembers its identity, and compares. No protection against somebody who looks for two
 * frames with one identity: the hash has no key. The values are recorded, so the function never changes. thread: any.
 */
#ifndef SW_CODEC_IDENTITY_H
#define SW_CODEC_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

enum { SW_IDENTITY_LANES = 8, SW_IDENTITY_STRIPE_BYTES = 64 };

struct sw_identity {
    uint64_t lanes[SW_IDENTITY_LANES];
    uint64_t bytes;
};

void sw_identity_init(struct sw_identity *ret);
/* Takes in more bytes, of any alignment; only the last call of a series may pass a length that is no multiple of
 * SW_IDENTITY_STRIPE_BYTES. */
void sw_identity_add(struct sw_identity *identity, const void *data, size_t bytes);
/* Never 0, which stands for an identity that is not known. */
uint64_t sw_identity_value(const struct sw_identity *identity);

/* Of bytes that lie in one piece. */
uint64_t sw_identity_of(const void *data, size_t bytes);

#endif
