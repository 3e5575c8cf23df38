/* nvme_crypt.h - a method of the NVMe tier that encrypts writes and decrypts reads, on threads of its own. An inner
 * method moves the bytes.
 *
 * AES-256-XTS, each block of 4096 bytes by itself; its tweak is its position in the tier. A block that is moved to
 * another place decrypts to noise, and the same bytes in two places look different. Without the key the disk's content
 * cannot be read. Deliberate changes on the disk are not detected: frames have checksums, which find accidents, not
 * attacks. If a block is written again at the same place, the disk shows whether it is the same.
 *
 * A write is encrypted into memory of the method's own, since its bytes may be a stored region. A read is decrypted
 * where it arrived. */
#ifndef SW_SPILL_NVME_CRYPT_H
#define SW_SPILL_NVME_CRYPT_H

#include "spill/tier/nvme/nvme_key.h"
#include "spill/tier/nvme/nvme_method.h"

/* Opens the method. inner: owned from a successful open on. key: borrowed for this call. errors: -SW_ENOMEM,
 * -SW_ENOTSUP. */
int sw_nvme_crypt_open(struct sw_nvme_method **ret, struct sw_nvme_method *inner, unsigned depth,
                       const struct sw_nvme_key *key, struct sw_err *err);

/* Gets the encryption of zeros at a position that no tier has. Returns false if libcrypto cannot. */
bool sw_nvme_crypt_mark(const struct sw_nvme_key *key, uint8_t ret[SW_NVME_MARK_BYTES]);

#endif
