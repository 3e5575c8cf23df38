/* coder.h - the coder of an engine whose GPU is the fake. */
#ifndef SW_TEST_FAKE_CUDA_CODER_H
#define SW_TEST_FAKE_CUDA_CODER_H

#include "ipc/client/coder.h"

#include <check.h>
#include <unistd.h>

/* Gets the coder of place->context, and fills in the context's id. On a busy machine the fake's kernels begin late, as
 * if others filled the GPU: then it tries again. */
static inline struct sw_coder *sw_fake_coder_get(struct sw_coder_place *place) {
    struct sw_coder *ret = NULL;
    struct sw_err err = {0};
    int rc;
    place->context_id = sw_coder_context_id(place->context);
    while ((rc = sw_coder_get(&ret, place, &err)) == -SW_EBUSY)
        (void)usleep(10000);
    ck_assert_msg(rc == 0, "%s %s", err.msg, err.detail);
    return ret;
}

#endif
