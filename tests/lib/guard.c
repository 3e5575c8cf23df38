#include "tests/lib/guard.h"

#include "base/assert.h"

#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Freed blocks for new ones of the same length: without access, but with their pages. Where a test makes one block
 * after the other, a new mapping and its page faults take longer than what is tested. */
enum { N_KEPT = 8 };
#define KEPT_MAX_BYTES ((size_t)4 << 20)
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_guard kept[N_KEPT];
static unsigned next_kept;

static void *take_kept(size_t bytes) {
    void *mapping = NULL;
    (void)pthread_mutex_lock(&lock);
    for (unsigned i = 0; i < N_KEPT && !mapping; i++)
        if (kept[i].mapping_bytes == bytes) {
            mapping = kept[i].mapping;
            kept[i] = (struct sw_guard){0};
        }
    (void)pthread_mutex_unlock(&lock);
    return mapping;
}

/* Keeps it instead of the one that has been kept longest, which it returns. */
static struct sw_guard keep(const struct sw_guard *guard) {
    SW_ASSERT(mprotect(guard->mapping, guard->mapping_bytes, PROT_NONE) == 0);
    (void)pthread_mutex_lock(&lock);
    const struct sw_guard oldest = kept[next_kept];
    kept[next_kept] = *guard;
    next_kept = (next_kept + 1) % N_KEPT;
    (void)pthread_mutex_unlock(&lock);
    return oldest;
}

struct sw_guard sw_guard_new(size_t bytes, enum sw_guard_side side) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    struct sw_guard g = {.bytes = bytes, .mapping_bytes = inner + 2 * page};
    void *old = take_kept(g.mapping_bytes);
    g.mapping = old ? old : mmap(NULL, g.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SW_ASSERT(g.mapping != MAP_FAILED);
    uint8_t *start = (uint8_t *)g.mapping + page;
    SW_ASSERT(inner == 0 || mprotect(start, inner, PROT_READ | PROT_WRITE) == 0);
    if (old)
        memset(start, 0, inner);
    g.data = side == SW_GUARD_AT_END ? start + inner - bytes : start;
    return g;
}

void sw_guard_free(struct sw_guard *guard) {
    struct sw_guard old = *guard;
    if (old.mapping && old.mapping_bytes <= KEPT_MAX_BYTES)
        old = keep(guard);
    if (old.mapping)
        SW_ASSERT(munmap(old.mapping, old.mapping_bytes) == 0);
    *guard = (struct sw_guard){0};
}
