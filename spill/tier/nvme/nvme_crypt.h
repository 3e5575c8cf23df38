/* nvme_crypt.h - a method of the NVMe tier that encrypts what goes to the disk and decrypts what comes back, on threads
 * of its own; another method moves it.
 *
 * AES-256-XTS, each block of 4096 bytes by itself, its tweak its position in the tier: moved to another place a block
 * decrypts to noise, and the same bytes in two places look different. What is on the disk cannot be read without the
 * key; that nobody changes it there is not proved: frames have checksums, which find chance, not skill. Blocks that are
 * written again at one place tell whether they are the same.
 *
 * A write is encrypted into memory of the method's own, since its bytes may be a region at rest; a read is decrypted
 * where it arrived. */
#ifndef SW_SPILL_NVME_CRYPT_H
#define SW_SPILL_NVME_CRYPT_H

#include "spill/tier/nvme/nvme_key.h"
#include "spill/tier/nvme/nvme_method.h"

/* inner: owned from a successful open on. key: borrowed for this call. errors: -SW_ENOMEM, -SW_ENOTSUP. */
int sw_nvme_crypt_open(struct sw_nvme_method **ret, struct sw_nvme_method *inner, unsigned depth,
                       const struct sw_nvme_key *key, struct sw_err *err);

/* What the key makes of zeros at a position that no tier has. False: libcrypto cannot. */
bool sw_nvme_crypt_mark(const struct sw_nvme_key *key, uint8_t ret[SW_NVME_MARK_BYTES]);

#endif
