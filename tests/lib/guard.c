#include "tests/lib/guard.h"

#include "base/assert.h"

#include <sys/mman.h>
#include <unistd.h>

struct sw_guard sw_guard_new(size_t bytes, enum sw_guard_side side) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), inner = (bytes + page - 1) / page * page;
    struct sw_guard g = {.bytes = bytes, .mapping_bytes = inner + 2 * page};
    g.mapping = mmap(NULL, g.mapping_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    SW_ASSERT(g.mapping != MAP_FAILED);
    uint8_t *start = (uint8_t *)g.mapping + page;
    SW_ASSERT(inner == 0 || mprotect(start, inner, PROT_READ | PROT_WRITE) == 0);
    g.data = side == SW_GUARD_AT_END ? start + inner - bytes : start;
    return g;
}

void sw_guard_free(struct sw_guard *guard) {
    if (guard->mapping)
        SW_ASSERT(munmap(guard->mapping, guard->mapping_bytes) == 0);
    *guard = (struct sw_guard){0};
}
