#include "spill/store/tier_share.h"

#include "base/assert.h"

#define MOST_BYTES ((uint64_t)16 << 20)
#define OUT_PART 4 /* writes have MOST_BYTES / OUT_PART while reads wait */
#define MOVE_PER_BYTES ((uint64_t)64 << 20)
#define RECENT_US 1000000u
/* A waiting move asks again within this time. */
#define MOVE_ASKS_US 1000u

void sw_tier_share_init(struct sw_tier_share *ret) {
    *ret = (struct sw_tier_share){.lock = PTHREAD_MUTEX_INITIALIZER};
}

static struct sw_tier_path *path_of(struct sw_tier_share *share, const struct sw_tier_ask *ask) {
    return &share->paths[ask->rank][ask->kind];
}

static bool is_recent(const struct sw_tier_user *user, uint64_t now_us) {
    return user->last_us && now_us < user->last_us + RECENT_US;
}

static bool has_others(const struct sw_tier_share *share, const void *tenant, uint64_t now_us) {
    for (int i = 0; i < 2; i++)
        if (share->users[i].tenant != tenant && is_recent(&share->users[i], now_us))
            return true;
    return false;
}

/* Returns the tenant's entry. If it has none: the entry that was not used for longest. */
static struct sw_tier_user *place_of(struct sw_tier_share *share, const void *tenant) {
    struct sw_tier_user *users = share->users;
    for (int i = 0; i < 2; i++)
        if (users[i].last_us && users[i].tenant == tenant)
            return &users[i];
    return users[0].last_us <= users[1].last_us ? &users[0] : &users[1];
}

bool sw_tier_share_note(struct sw_tier_share *share, const void *tenant, uint64_t now_us) {
    (void)pthread_mutex_lock(&share->lock);
    *place_of(share, tenant) = (struct sw_tier_user){.tenant = tenant, .last_us = now_us ? now_us : 1};
    const bool is_shared = has_others(share, tenant, now_us);
    (void)pthread_mutex_unlock(&share->lock);
    return is_shared;
}

bool sw_tier_share_has_others(struct sw_tier_share *share, const void *tenant, uint64_t now_us) {
    (void)pthread_mutex_lock(&share->lock);
    const bool is_shared = has_others(share, tenant, now_us);
    (void)pthread_mutex_unlock(&share->lock);
    return is_shared;
}

static bool fits(const struct sw_tier_path *path, uint64_t bytes, uint64_t most_bytes) {
    return path->asked_bytes == 0 || path->asked_bytes + bytes <= most_bytes;
}

/* Returns true if a client's frame has to wait for a move. Short frames wait only when twice as many bytes have
 * passed. */
static bool waits_for_move(const struct sw_tier_path *path, uint64_t bytes, uint64_t now_us) {
    const bool is_asked = path->refused_move_us && now_us < path->refused_move_us + MOVE_ASKS_US;
    return is_asked && path->passed_bytes >= (bytes > SW_TIER_SHARE_SHORT_BYTES ? 1 : 2) * MOVE_PER_BYTES;
}

bool sw_tier_share_has_room(struct sw_tier_share *share, const struct sw_tier_ask *ask, bool is_bound,
                            uint64_t now_us) {
    const struct sw_tier_path *path = path_of(share, ask);
    (void)pthread_mutex_lock(&share->lock);
    const bool yields = ask->kind == SW_TIER_WRITE && share->paths[ask->rank][SW_TIER_READ].asked_bytes > 0;
    const bool has_room = (!is_bound || fits(path, ask->bytes, yields ? MOST_BYTES / OUT_PART : MOST_BYTES)) &&
                          !waits_for_move(path, ask->bytes, now_us);
    (void)pthread_mutex_unlock(&share->lock);
    return has_room;
}

bool sw_tier_share_may_move(struct sw_tier_share *share, const struct sw_tier_ask *ask, const void *tenant,
                            uint64_t now_us) {
    struct sw_tier_path *path = path_of(share, ask);
    (void)pthread_mutex_lock(&share->lock);
    const bool may = !has_others(share, tenant, now_us) || fits(path, ask->bytes, MOST_BYTES);
    path->refused_move_us = may ? 0 : now_us;
    (void)pthread_mutex_unlock(&share->lock);
    return may;
}

void sw_tier_share_take(struct sw_tier_share *share, const struct sw_tier_ask *ask, bool is_move) {
    struct sw_tier_path *path = path_of(share, ask);
    (void)pthread_mutex_lock(&share->lock);
    path->asked_bytes += ask->bytes;
    path->passed_bytes = is_move ? 0 : path->passed_bytes + ask->bytes;
    (void)pthread_mutex_unlock(&share->lock);
}

void sw_tier_share_give(struct sw_tier_share *share, const struct sw_tier_ask *ask) {
    struct sw_tier_path *path = path_of(share, ask);
    (void)pthread_mutex_lock(&share->lock);
    SW_ASSERT(path->asked_bytes >= ask->bytes);
    path->asked_bytes -= ask->bytes;
    (void)pthread_mutex_unlock(&share->lock);
}
