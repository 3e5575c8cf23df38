/* coder_users.h - inside of libspillway: the connections that use a coder, and the threads that go on with them.
 *
 * A connection has news if its coder has an event for it, if one of its runs has ended, or if the service has sent
 * something while its call sleeps. Threads that poll anyway go on with all connections that have news, because
 * a sleeping thread wakes up late. thread: any; the list has a lock of its own, under which nothing else is locked. */
#ifndef SW_IPC_CODER_USERS_H
#define SW_IPC_CODER_USERS_H

#include "base/list.h"
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A connection that uses the coder, and the events of its runs. */
struct sw_coder_user {
    struct sw_list node;         /* of the coder's users */
    struct sw_list events;       /* sw_coder_event.node: what it has to send; guarded by the coder's lock */
    atomic_bool has_events;      /* there may be some */
    atomic_bool has_news;        /* for serve(), or for the user's own thread: an event has come, or a run has ended */
    _Atomic uint64_t wake_at_us; /* 0: never */
    unsigned polled;             /* the coder's, while it looks for users with news */
    /* Wakes the user's own thread, for which has_news is set. thread: any. It must call nothing of the coder. */
    void (*wake)(struct sw_coder_user *user);
    /* Returns the socket that shows news from the service, if a call of the user sleeps; else -1. NULL: there is none.
     * thread: any. */
    int (*socket)(struct sw_coder_user *user);
    /* Goes on with what the user has, if no other thread does. thread: any, without the coder's locks. */
    void (*serve)(struct sw_coder_user *user);
};

/* The users of one coder. */
struct sw_coder_users {
    pthread_mutex_t lock;
    struct sw_list list;          /* sw_coder_user.node */
    struct sw_coder_user *served; /* by some thread, now; NULL: none */
    uint64_t swept_us;            /* when all sleeping users were served last */
    pthread_cond_t unserved;      /* a user is no longer served */
};

void sw_coder_users_init(struct sw_coder_users *ret);
/* There must be no user left. */
void sw_coder_users_fini(struct sw_coder_users *users);
/* Adds a user; removes it: that waits until it is not being served. */
void sw_coder_users_add(struct sw_coder_users *users, struct sw_coder_user *user);
void sw_coder_users_remove(struct sw_coder_users *users, struct sw_coder_user *user);
/* Notes news of a user, and wakes its own thread. */
void sw_coder_user_wake(struct sw_coder_user *user);
/* Serves every user but `self` that has news, unless another thread is at it; now and then also those without news
 * whose calls sleep. self NULL: always those. */
void sw_coder_users_serve(struct sw_coder_users *users, const struct sw_coder_user *self);
/* Wakes users whose wake_at_us has come; returns false if there is none. *ret_next_us: when the next one's comes; 0:
 * never. */
bool sw_coder_users_wake_due(struct sw_coder_users *users, uint64_t *ret_next_us);

#endif
