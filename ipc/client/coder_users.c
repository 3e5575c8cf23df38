#include "ipc/client/coder_users.h"

#include "base/clock.h"
#include <poll.h>

/* Users whose sockets are looked at together. */
enum { MOST_POLLED = 64 };
/* All users whose calls sleep are served so often, whatever their sockets show: not all that they wait for is there. */
#define SWEEP_US ((uint64_t)1000)

static struct sw_coder_user *user_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_coder_user, node);
}

void sw_coder_users_init(struct sw_coder_users *ret) {
    (void)pthread_mutex_init(&ret->lock, NULL);
    (void)pthread_cond_init(&ret->unserved, NULL);
    sw_list_init(&ret->list);
    ret->served = NULL;
}

void sw_coder_users_fini(struct sw_coder_users *users) {
    (void)pthread_cond_destroy(&users->unserved);
    (void)pthread_mutex_destroy(&users->lock);
}

void sw_coder_users_add(struct sw_coder_users *users, struct sw_coder_user *user) {
    (void)pthread_mutex_lock(&users->lock);
    user->polled = MOST_POLLED;
    sw_list_append(&users->list, &user->node);
    (void)pthread_mutex_unlock(&users->lock);
}

void sw_coder_users_remove(struct sw_coder_users *users, struct sw_coder_user *user) {
    (void)pthread_mutex_lock(&users->lock);
    while (users->served == user)
        (void)pthread_cond_wait(&users->unserved, &users->lock);
    sw_list_remove(&user->node);
    (void)pthread_mutex_unlock(&users->lock);
}

void sw_coder_user_wake(struct sw_coder_user *user) {
    atomic_store(&user->has_news, true);
    user->wake(user);
}

/* Notes which users' calls sleep, and which of their sockets have something, by one system call for all. Users that it
 * has no room for wake up by themselves. */
static void look(struct sw_coder_users *users, const struct sw_coder_user *self, struct pollfd fds[MOST_POLLED]) {
    unsigned n = 0;
    for (struct sw_list *node = users->list.next; node != &users->list; node = node->next) {
        struct sw_coder_user *user = user_of(node);
        const bool looks = user != self && user->socket && n < MOST_POLLED && !atomic_load(&user->has_news);
        const int fd = looks ? user->socket(user) : -1;
        user->polled = fd < 0 ? MOST_POLLED : n;
        if (fd >= 0)
            fds[n++] = (struct pollfd){.fd = fd, .events = POLLIN};
    }
    if (n > 0)
        (void)poll(fds, n, 0);
}

static bool is_due(struct sw_coder_user *user, const struct pollfd fds[MOST_POLLED], bool sweeps) {
    return atomic_load(&user->has_news) || (user->polled < MOST_POLLED && (sweeps || fds[user->polled].revents));
}

/* The coder's thread, which comes seldom, always sweeps. */
static bool sweeps(struct sw_coder_users *users, const struct sw_coder_user *self) {
    const uint64_t now_us = sw_clock_us();
    const bool ret = !self || now_us - users->swept_us >= SWEEP_US;
    if (ret)
        users->swept_us = now_us;
    return ret;
}

/* The lock is not held while a user is served: users come and go. */
void sw_coder_users_serve(struct sw_coder_users *users, const struct sw_coder_user *self) {
    struct pollfd fds[MOST_POLLED];
    if (pthread_mutex_trylock(&users->lock))
        return;
    if (users->served) { /* by another thread */
        (void)pthread_mutex_unlock(&users->lock);
        return;
    }
    look(users, self, fds);
    const bool all = sweeps(users, self);
    for (struct sw_list *node = users->list.next; node != &users->list; node = node->next) {
        struct sw_coder_user *user = user_of(node);
        if (user == self || !is_due(user, fds, all))
            continue;
        users->served = user;
        (void)pthread_mutex_unlock(&users->lock);
        user->serve(user);
        (void)pthread_mutex_lock(&users->lock);
        users->served = NULL;
        (void)pthread_cond_broadcast(&users->unserved);
    }
    (void)pthread_mutex_unlock(&users->lock);
}

bool sw_coder_users_wake_due(struct sw_coder_users *users, uint64_t *ret_next_us) {
    const uint64_t now_us = sw_clock_us();
    bool some = false;
    *ret_next_us = 0;
    (void)pthread_mutex_lock(&users->lock);
    for (struct sw_list *node = users->list.next; node != &users->list; node = node->next) {
        struct sw_coder_user *user = user_of(node);
        const uint64_t at_us = atomic_load(&user->wake_at_us);
        if (at_us && at_us <= now_us) {
            atomic_store(&user->wake_at_us, 0);
            sw_coder_user_wake(user);
            some = true;
        } else if (at_us && (!*ret_next_us || at_us < *ret_next_us)) {
            *ret_next_us = at_us;
        }
    }
    (void)pthread_mutex_unlock(&users->lock);
    return some;
}
