/* one_run.h - a job that runs a request of one buffer, with all that it borrows. */
#ifndef SW_TESTS_LIB_ONE_RUN_H
#define SW_TESTS_LIB_ONE_RUN_H

#include "spill/worker/job.h"

struct sw_one_run {
    struct sw_job job;
    struct sw_request request;
    struct sw_buffer buffer;
};

/* Of session 1; its memory is unmapped with it if it is `once`. frames: of a restore. */
static inline void sw_one_run_init(struct sw_one_run *one, enum sw_operation operation, struct sw_run_memory *memory,
                                   uint64_t bytes, struct sw_frames *frames) {
    *one =
        (struct sw_one_run){.request = {.operation = operation, .session = 1, .n_buffers = 1, .buffers = &one->buffer},
                            .buffer = {.memory = memory, .bytes = bytes}};
    sw_job_init_run(&one->job, &one->request, 0);
    one->job.run.frames = frames;
}

#endif
