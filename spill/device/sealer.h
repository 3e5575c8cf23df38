/* sealer.h - completes and verifies raw frames in host memory (codec/raw_runs.h) whose content copy engines move.
 *
 * To *seal* a frame is to write its header and its hashes. The hashes come from the device, or from threads that the
 * slots of a GPU share: the worker must not compute them, since all slots wait for it. The threads take a few tiles at
 * a time, so no step waits for the share of a single thread that got no processor. After hashing they evict the bytes
 * from the CPU caches, which makes the next copies faster. The threads also do other long work of the worker.
 *
 * thread: the device's worker. */
#ifndef SW_SPILL_DEVICE_SEALER_H
#define SW_SPILL_DEVICE_SEALER_H

#include "codec/raw_runs.h"
#include "spill/device/device.h"
#include "spill/device/stored.h"

enum { SW_SEALER_MAX_THREADS = 16 };

struct sw_sealer_pool;
struct sw_sealer;

/* Creates the pool of a GPU's threads (1 … SW_SEALER_MAX_THREADS). They start with the first work. errors: -SW_ENOMEM.
 */
int sw_sealer_pool_new(struct sw_sealer_pool **ret, unsigned n_threads, struct sw_err *err);
/* Frees the pool, after its sealers. NULL is a no-op. */
void sw_sealer_pool_free(struct sw_sealer_pool *pool);

/* Creates the sealer of a slot. errors: -SW_ENOMEM. */
int sw_sealer_new(struct sw_sealer **ret, struct sw_sealer_pool *pool, struct sw_err *err);
/* Waits for the sealer's work, and frees it. NULL is a no-op. */
void sw_sealer_free(struct sw_sealer *sealer);

/* Sets the frames of a step, which may be sealed or verified in any order. The sealer must be idle. The items and their
 * frames must not change while the sealer uses them. errors: -SW_ENOMEM. */
int sw_sealer_take(struct sw_sealer *sealer, const struct sw_raw_item *items, unsigned n, struct sw_err *err);

enum sw_sealer_work { SW_SEALER_SEAL, SW_SEALER_VERIFY };

/* Starts the threads on the step's frames from `first` on. The sealer must be idle. errors: -SW_ENOMEM. */
int sw_sealer_begin(struct sw_sealer *sealer, enum sw_sealer_work work, unsigned first, struct sw_err *err);
/* Wakes as many threads as the frames from `first` on will need, and keeps them awake for this time. */
void sw_sealer_wake(struct sw_sealer *sealer, unsigned first, uint64_t us);
/* Makes one of the threads call run(arg), before other slots' hashes. The sealer must be idle. errors: -SW_ENOMEM. */
int sw_sealer_run(struct sw_sealer *sealer, void (*run)(void *arg), void *arg, struct sw_err *err);
/* Returns true if the sealer is idle: no thread works for this slot. */
bool sw_sealer_ended(struct sw_sealer *sealer);
/* Waits until the sealer is idle. */
void sw_sealer_wait(struct sw_sealer *sealer);
/* Returns how many tiles of the step's frames the threads have found bad. The sealer must be idle. */
uint32_t sw_sealer_bad_tiles(struct sw_sealer *sealer);

/* Seal or verify the step's frames [0, end) on the calling thread, by given hashes of their tiles, one frame after the
 * other. _verify_ returns the number of bad tiles. */
void sw_sealer_seal_hashed(const struct sw_sealer *sealer, unsigned end, const uint32_t *hashes);
uint32_t sw_sealer_verify_hashed(const struct sw_sealer *sealer, unsigned end, const uint32_t *hashes);

/* Gets the runs of a frame. ret: has room for its extents. thread: any. */
void sw_sealer_runs(struct sw_run *ret, const struct sw_stored *frame);

#endif
