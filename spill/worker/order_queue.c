#include "spill/worker/order_queue.h"

enum {
    FIRST_PAUSE_US = 100,
    LAST_PAUSE_US = 5000,
    WAIT_TO_PAUSE = 8 /* a look that is late by a pause adds at most an eighth to the wait, half of this on average */
};

void sw_order_queue_init(struct sw_order_queue *queue, uint64_t spin_us) {
    sw_list_init(&queue->young);
    sw_list_init(&queue->old);
    queue->old_look_us = 0;
    queue->spin_us = spin_us;
}

void sw_order_queue_add(struct sw_order_queue *queue, struct sw_job *job, uint64_t now_us) {
    job->order_since_us = job->order_look_us = now_us;
    sw_list_append(&queue->young, &job->node);
}

bool sw_order_queue_is_empty(const struct sw_order_queue *queue) {
    return sw_list_empty(&queue->young) && sw_list_empty(&queue->old);
}

static uint64_t pause_us(const struct sw_order_queue *queue, const struct sw_job *job, uint64_t now_us) {
    const uint64_t waited_us = now_us - job->order_since_us;
    if (waited_us < queue->spin_us)
        return 0;
    return waited_us / WAIT_TO_PAUSE > FIRST_PAUSE_US ? waited_us / WAIT_TO_PAUSE : FIRST_PAUSE_US;
}

static bool may_leave(const struct sw_job *job) {
    return sw_order_is_reached(&job->order) || atomic_load_explicit(&job->signals.cancel, memory_order_relaxed);
}

static bool take_young(struct sw_order_queue *queue, uint64_t now_us, bool all, struct sw_list *ret) {
    bool found = false;
    for (struct sw_list *node = queue->young.next, *next; node != &queue->young; node = next) {
        struct sw_job *job = SW_CONTAINER_OF(node, struct sw_job, node);
        next = node->next;
        if (!all && now_us < job->order_look_us)
            continue;
        const uint64_t pause = pause_us(queue, job, now_us);
        const bool leaves = all || may_leave(job);
        job->order_look_us = now_us + pause;
        found |= leaves;
        if (!leaves && pause < LAST_PAUSE_US)
            continue;
        sw_list_remove(node);
        sw_list_append(leaves ? ret : &queue->old, node);
    }
    return found;
}

bool sw_order_queue_take(struct sw_order_queue *queue, uint64_t now_us, bool all, struct sw_list *ret) {
    bool found = take_young(queue, now_us, all, ret);
    if (!all && now_us < queue->old_look_us)
        return found;
    for (struct sw_list *node = queue->old.next, *next; node != &queue->old; node = next) {
        next = node->next;
        if (!all && !may_leave(SW_CONTAINER_OF(node, struct sw_job, node)))
            continue;
        sw_list_remove(node);
        sw_list_append(ret, node);
        found = true;
    }
    queue->old_look_us = now_us + LAST_PAUSE_US;
    return found;
}

uint64_t sw_order_queue_next_us(const struct sw_order_queue *queue, uint64_t now_us) {
    uint64_t next_us = sw_list_empty(&queue->old) ? UINT64_MAX : queue->old_look_us;
    for (const struct sw_list *node = queue->young.next; node != &queue->young; node = node->next) {
        const uint64_t look_us = SW_CONTAINER_OF(node, const struct sw_job, node)->order_look_us;
        next_us = look_us < next_us ? look_us : next_us;
    }
    return next_us > now_us ? next_us : now_us;
}
