/* worker.h - the thread of one device: takes jobs from the loop, drives the mover, hands results back.
 *
 * The queue's lock is the first of the two locks of spill/README.md: held for list operations only. wake() is called on
 * the worker's thread whenever the loop has something to look at: finished jobs, handed back together at the end of
 * each of the mover's steps; a forecast that jobs end soon; or the thread's end. */
#ifndef SW_SPILL_WORKER_H
#define SW_SPILL_WORKER_H

#include "spill/store/placement.h"
#include "spill/worker/job.h"

struct sw_worker;

/* Starts the thread. Borrows device and placement until sw_worker_free(). errors: -SW_ENOMEM. thread: loop. */
int sw_worker_new(struct sw_worker **ret, struct sw_device *device, struct sw_placement *place, void (*wake)(void *arg),
                  void *arg, struct sw_err *err);
/* Joins the thread, which ends at once if nothing is in flight, and frees the worker. Jobs must have been taken back.
 * wake() is not called any more. NULL is a no-op. thread: loop. */
void sw_worker_free(struct sw_worker *worker);

/* Hands a job to the worker. thread: loop. */
void sw_worker_submit(struct sw_worker *worker, struct sw_job *job);
/* Cancels a job, which comes back soon. thread: loop. */
void sw_worker_cancel(struct sw_worker *worker, struct sw_job *job);
/* Between the two calls submitted jobs are collected, and then reach the worker together. So it can group them, and the
 * queue is locked once. Meanwhile the thread wakes up, if it is idle, and wakes its device, if jobs will need kernels.
 * thread: loop. */
void sw_worker_hold(struct sw_worker *worker, bool needs_kernels);
void sw_worker_release(struct sw_worker *worker);
/* Appends to *ret the jobs that are done, failed or canceled. thread: loop. */
void sw_worker_take(struct sw_worker *worker, struct sw_list *ret);

/* Returns true once if, by the time of recent jobs, jobs will end within SW_FORECAST_EARLY_US: the loop should stay
 * awake. thread: loop. */
bool sw_worker_ends_soon(struct sw_worker *worker);

/* Asks the thread to end when its jobs are done. After a wake(), sw_worker_ended() says whether a join returns at once.
 * thread: loop. */
void sw_worker_stop(struct sw_worker *worker);
bool sw_worker_ended(struct sw_worker *worker);

/* Returns what is known of the device. thread: any. */
const struct sw_device_info *sw_worker_device_info(const struct sw_worker *worker);
bool sw_worker_lost(const struct sw_worker *worker);
unsigned sw_worker_mapped(const struct sw_worker *worker);

#endif
