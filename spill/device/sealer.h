/* sealer.h - makes and verifies the raw frames in host memory (codec/raw_runs.h) whose content copy engines move.
 *
 * Hashes of tiles come from the device, or are made by threads, which the slots of a GPU share: too much work for the
 * worker, on which all slots wait. Threads take pieces of what slots have for them, so that what a step waits for is
 * never the share of one thread that got no processor. What they have read they turn out of the processors' caches, for
 * the copies that come next. What else would keep the worker for long the threads do, too.
 * thread: the device's worker. */
#ifndef SW_SPILL_DEVICE_SEALER_H
#define SW_SPILL_DEVICE_SEALER_H

#include "codec/raw_runs.h"
#include "spill/device/device.h"
#include "spill/device/stored.h"

enum { SW_SEALER_MAX_THREADS = 16 };

struct sw_sealer_pool;
struct sw_sealer;

/* The threads of a GPU (1 … SW_SEALER_MAX_THREADS), which start with the first work. errors: -SW_ENOMEM. */
int sw_sealer_pool_new(struct sw_sealer_pool **ret, unsigned n_threads, struct sw_err *err);
/* After its sealers. NULL is a no-op. */
void sw_sealer_pool_free(struct sw_sealer_pool *pool);

/* The sealer of a slot. errors: -SW_ENOMEM. */
int sw_sealer_new(struct sw_sealer **ret, struct sw_sealer_pool *pool, struct sw_err *err);
/* Waits for what was begun. NULL is a no-op. */
void sw_sealer_free(struct sw_sealer *sealer);

/* Takes the frames of a step, to be sealed or verified in any order; no thread may be at work. The items and their
 * frames stay as they are as long as the sealer deals with them. errors: -SW_ENOMEM. */
int sw_sealer_take(struct sw_sealer *sealer, const struct sw_raw_item *items, unsigned n, struct sw_err *err);

enum sw_sealer_work { SW_SEALER_SEAL, SW_SEALER_VERIFY };

/* Has the threads begin with frames [first, n) of those taken, if there are any; none may be at work.
 * errors: -SW_ENOMEM. */
int sw_sealer_begin(struct sw_sealer *sealer, enum sw_sealer_work work, unsigned first, struct sw_err *err);
/* Within us they will begin with frames [first, n): as many as have something to do then wake up, and stay awake for so
 * long. */
void sw_sealer_wake(struct sw_sealer *sealer, unsigned first, uint64_t us);
/* Has one of the threads call run(arg), before other slots' hashes; none may be at work. errors: -SW_ENOMEM. */
int sw_sealer_run(struct sw_sealer *sealer, void (*run)(void *arg), void *arg, struct sw_err *err);
/* True if no thread is at work for this slot. */
bool sw_sealer_ended(struct sw_sealer *sealer);
/* Waits until none is. */
void sw_sealer_wait(struct sw_sealer *sealer);
/* Tiles that the threads have found bad since the frames were taken. None may be at work. */
uint32_t sw_sealer_bad_tiles(struct sw_sealer *sealer);

/* Without the threads: makes frames [0, end) of those taken, whose tiles hash to hashes[0 ...], one frame behind the
 * other; returns how many of their tiles do not. */
void sw_sealer_seal_hashed(const struct sw_sealer *sealer, unsigned end, const uint32_t *hashes);
uint32_t sw_sealer_verify_hashed(const struct sw_sealer *sealer, unsigned end, const uint32_t *hashes);

/* The runs of a frame; ret has room for its extents. thread: any. */
void sw_sealer_runs(struct sw_run *ret, const struct sw_stored *frame);

#endif
