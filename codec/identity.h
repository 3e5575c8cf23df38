/* identity.h - a frame's identity: a 64-bit hash of the sections before its counts (codec/FORMAT.md, "What proves
 * what").
 *
 * A frame's own hashes prove that it is whole, not that it is the frame that was stored. If others can reach a stored
 * frame, keep its identity elsewhere, and compare it before the frame is used. The hash has no key, so it does not
 * protect against an attacker who searches for two frames with the same identity. Identities are stored, so this
 * function never changes. thread: any. */
#ifndef SW_CODEC_IDENTITY_H
#define SW_CODEC_IDENTITY_H

#include <stddef.h>
#include <stdint.h>

enum { SW_IDENTITY_LANES = 8, SW_IDENTITY_STRIPE_BYTES = 64 };

struct sw_identity {
    uint64_t lanes[SW_IDENTITY_LANES];
    uint64_t bytes;
};

/* Begins an identity. */
void sw_identity_init(struct sw_identity *ret);
/* Adds bytes of any alignment. Only the last call of a series may pass a length that is no multiple of
 * SW_IDENTITY_STRIPE_BYTES. */
void sw_identity_add(struct sw_identity *identity, const void *data, size_t bytes);
/* Returns the identity. It is never 0: 0 stands for an unknown identity. */
uint64_t sw_identity_value(const struct sw_identity *identity);

/* Computes the identity of contiguous bytes. */
uint64_t sw_identity_of(const void *data, size_t bytes);

#endif
