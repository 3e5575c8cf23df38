/* nvme_wrap.h - the data files' key in the folder, wrapped by a master key that the operator keeps (MANIFEST.md).
 *
 * So the frames can be read after the end of the unit and of the machine. A new master key wraps the same key again,
 * and leaves the data as it is. The file is written when everything in the folder is of this key: while it is there,
 * nothing is of another one. thread: any, one at a time. */
#ifndef SW_SPILL_NVME_WRAP_H
#define SW_SPILL_NVME_WRAP_H

#include "spill/tier/nvme/nvme_key.h"
#include "spill/tier/remote/object_crypt.h"

#define SW_NVME_WRAP_FILE "key-wrapped"

/* Returns 1 if the folder has a wrapped key, or something in its place; 0: it has none. errors: the system's, if that
 * is not known. */
int sw_nvme_wrap_exists(int directory, struct sw_err *err);
/* Opens the wrapped key. *ret_is_old: not the first master key has wrapped it. errors: -SW_ECHECKSUM (the file is
 * damaged), -SW_EACCES (no master key of these has wrapped it), -SW_EIO, -SW_ENOMEM. */
int sw_nvme_wrap_read(int directory, const struct sw_object_keyring *keyring, struct sw_nvme_key *ret, bool *ret_is_old,
                      struct sw_err *err);
/* Wraps the key by the first master key. The file is on the disk when this returns. errors: -SW_EIO, -SW_ENOSPACE. */
int sw_nvme_wrap_write(int directory, const struct sw_object_keyring *keyring, const struct sw_nvme_key *key,
                       struct sw_err *err);
/* Removes the file, because nothing in the folder is wanted. errors: -SW_EIO. */
int sw_nvme_wrap_remove(int directory, struct sw_err *err);

#endif
