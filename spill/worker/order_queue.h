/* order_queue.h - jobs that wait for words of their clients' order pages (order.h), and when to look at the words.
 *
 * A word can only be polled. The longer a job has waited, the less a late look adds to its wait. So the pauses grow
 * with the wait: none while a job is new (spin_us), then 100 us, in the end 5 ms. A job that waits for ever costs 200
 * looks a second. Jobs leave in any order, since streams end in any order. Pure: no clock, no lock. thread: gpu (the
 * worker). */
#ifndef SW_SPILL_ORDER_QUEUE_H
#define SW_SPILL_ORDER_QUEUE_H

#include "base/list.h"
#include "spill/worker/job.h"
#include <stdbool.h>
#include <stdint.h>

struct sw_order_queue {
    struct sw_list young, old; /* sw_job.node; old: jobs whose pauses have reached their maximum */
    uint64_t old_look_us;      /* when to look at the old jobs again */
    uint64_t spin_us;          /* how long a new job's word is polled without pauses */
};

void sw_order_queue_init(struct sw_order_queue *queue, uint64_t spin_us);
/* Adds a job whose word was not written at now_us. */
void sw_order_queue_add(struct sw_order_queue *queue, struct sw_job *job, uint64_t now_us);
bool sw_order_queue_is_empty(const struct sw_order_queue *queue);
/* Moves to *ret the jobs that are due and need not wait any more: their words were written, or they were canceled. all:
 * every job, because the device is lost. Returns true if there were any. */
bool sw_order_queue_take(struct sw_order_queue *queue, uint64_t now_us, bool all, struct sw_list *ret);
/* Returns when to look again: now_us for new jobs; UINT64_MAX if no job waits. */
uint64_t sw_order_queue_next_us(const struct sw_order_queue *queue, uint64_t now_us);

#endif
