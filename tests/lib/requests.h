/* requests.h - writes a call of the client API in one line.
 *
 *     spillway_spill(c, SW_REQUEST(SW_ONE(data, bytes), .name = "orders"), 1, &ticket, &error);
 *
 * What a macro makes lives until the end of the block that it stands in. The library copies it during the call.
 * thread: any. */
#ifndef SW_TEST_REQUESTS_H
#define SW_TEST_REQUESTS_H

#include "ipc/spillway.h"

#define SW_OPTIONS(...) (&(const struct spillway_options){.size = sizeof(struct spillway_options), __VA_ARGS__})
#define SW_REQUEST(...) (&(const struct spillway_request){.size = sizeof(struct spillway_request), __VA_ARGS__})

/* Fields of a request: its buffers. */
#define SW_SEVERAL(buffers_, n) .buffers = (buffers_), .n_buffers = (n)
#define SW_ONE_TYPED(data_, bytes_, type_)                                                                             \
    SW_SEVERAL((&(const struct spillway_buffer){                                                                       \
                   .data = (void *)(uintptr_t)(data_), .bytes = (bytes_), .type = (uint16_t)(type_)}),                 \
               1)
#define SW_ONE(data, bytes) SW_ONE_TYPED(data, bytes, SPILLWAY_BYTES)

/* A region of its own for each buffer. requests[i] keeps the region that it has, which a restore reads. */
static inline void sw_requests_of_each(struct spillway_request *requests, const struct spillway_buffer *buffers,
                                       uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        requests[i] = (struct spillway_request){
            .size = sizeof *requests, SW_SEVERAL(&buffers[i], 1), .region = requests[i].region};
}

/* Names the regions that a spill has made, so that the same requests restore them. */
static inline void sw_requests_take_regions(struct spillway_request *requests, const struct spillway_result *results,
                                            uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        requests[i].region = results[i].region;
}

#endif
