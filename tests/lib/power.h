/* power.h - a disk that loses its power: records what a tier writes to its files and flushes, and makes folders as a
 * power cut may leave them.
 *
 * After a cut a file has everything that was written before its last flush. Of each later write any sectors may be
 * kept, so writes may be torn, lost, and kept in another order. The file ends where it did at the last flush, or at the
 * last kept byte, or at the last written byte. Bytes that were not kept are zeros, or the old ones. A name in the
 * folder belongs to the same file as at the folder's last flush, or to a file that got the name later.
 *
 * One disk at a time. thread: any. */
#ifndef SW_TEST_POWER_H
#define SW_TEST_POWER_H

#include "spill/tier/nvme/nvme_file_ops.h"
#include <stddef.h>
#include <stdint.h>

/* File calls, such as for sw_world.files. They do not really flush. */
extern const struct sw_nvme_file_ops sw_power_files;

/* Begins to record a folder, in which everything is on the disk. */
void sw_power_on(const char *folder);
/* Cuts the power when so many more calls were made; at_cut is then called under the recorder's lock, from any thread.
 */
void sw_power_cut_after(unsigned calls, void (*at_cut)(void *arg), void *arg);
/* Cuts it now, if it was not yet. */
void sw_power_cut(void);
/* Returns whether the power was cut. */
bool sw_power_is_cut(void);
/* Locks the recorder for the caller's own state, which at_cut reads. */
void sw_power_lock(void);
void sw_power_unlock(void);

/* Returns how many writes the cut may have lost, and makes the folder, which is empty, as it may be. subset: bit i: the
 * i-th of these writes was kept, all of it. is_torn: each sector of each write, and each name, is decided by *random
 * instead. */
unsigned sw_power_n_lost(void);
void sw_power_restore(const char *folder, uint64_t subset, bool is_torn, uint64_t *random);
/* Forgets everything. */
void sw_power_off(void);

#endif
