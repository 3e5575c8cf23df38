/* fuzz_proto.c - sw_msg_decode() on any bytes: it refuses them, or returns a message that encodes to the same packet
 * again. */
#include "base/assert.h"
#include "ipc/proto.h"
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sw_msg msg;
    struct sw_err err;
    uint8_t again[SW_PROTO_MAX_PACKET_BYTES];
    if (sw_msg_decode(&msg, data, size, &err) == 0) {
        SW_ASSERT(sw_msg_encode(&msg, again) == size);
        SW_ASSERT(memcmp(again, data, size) == 0);
        if (msg.header.type == SW_MSG_ERROR)
            sw_msg_to_err(&err, &msg.u.error);
    } else {
        SW_ASSERT(err.code == -SW_EPROTO || err.code == -SW_EVERSION);
        sw_msg_from_err(&msg, msg.header.seq, &err);
        SW_ASSERT(sw_msg_encode(&msg, again) <= sizeof again);
    }
    return 0;
}
