/* power.h - a disk that loses its power: records what a tier writes to its files and flushes, and makes folders as a
 * power cut may leave them.
 *
 * After a cut a file has everything that was written before its last flush, and of each later write any of its sectors:
 * so writes may be torn, lost, and kept in another order. Its length is that of the last flush, or reaches to what was
 * kept, or to what was written; bytes that were not kept are zeros, or as they were. A name in the folder belongs to
 * the file that it belonged to at the folder's last flush, or to one that got it later.
 *
 * One disk at a time. thread: any. */
#ifndef SW_TEST_POWER_H
#define SW_TEST_POWER_H

#include "spill/tier/nvme/nvme_file_ops.h"
#include <stddef.h>
#include <stdint.h>

/* For sw_world.files and the like. They do not flush for real. */
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
