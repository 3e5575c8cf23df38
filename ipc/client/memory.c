#include "ipc/client/memory.h"

#include "base/alloc.h"
#include <string.h>
#include <unistd.h>

int sw_export_reserve(struct sw_export *e, uint32_t n_parts, struct sw_err *err) {
    e->fds = sw_alloc_array(n_parts, sizeof *e->fds);
    e->part_bytes = sw_alloc_array(n_parts, sizeof *e->part_bytes);
    if (!e->fds || !e->part_bytes)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for %u descriptors", n_parts);
    for (uint32_t i = 0; i < n_parts; i++)
        e->fds[i] = -1;
    e->n_parts = n_parts;
    return 0;
}

void sw_export_fini(struct sw_export *e) {
    for (uint32_t i = 0; i < e->n_parts; i++)
        if (e->fds[i] >= 0)
            (void)close(e->fds[i]);
    sw_free(e->fds);
    sw_free(e->part_bytes);
    sw_mark_unref(e->mark);
    memset(e, 0, sizeof *e);
}
