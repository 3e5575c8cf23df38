# SPDX-License-Identifier: Apache-2.0
"""The declarations of spillway.h for cffi.

tests/test_cdef.py compares every struct, constant and function here with the compiled header.
"""

MAJOR, MINOR = 0, 2

STRUCTS = """
struct spillway_error { int code; int scope; int cuda; char name[16]; char text[256]; };
struct spillway_region { uint32_t slot, generation; };
struct spillway_options {
    size_t size;
    const char *socket_path;
    int connect_ms, call_ms, reconnect_ms;
    uint32_t flags, server_uid;
};
struct spillway_buffer {
    void *data;
    uint64_t bytes;
    uint16_t type, source;
    uint32_t stride;
    uint64_t source_offset;
    uint64_t reserved[2];
};
struct spillway_request {
    size_t size;
    const struct spillway_buffer *buffers;
    uint32_t n_buffers, flags;
    struct spillway_region region;
    const char *name;
    struct CUstream_st *stream;
    uint32_t timeout_ms;
    uint8_t urgency, keep_priority, durability, prefer;
    void *user;
};
struct spillway_result {
    size_t size;
    int code;
    struct spillway_region region;
    uint64_t raw_bytes, stored_bytes, service_us;
    char codec[16], tier[16], reason[32], coder[8];
    uint32_t durability, reserved;
};
struct spillway_list_item {
    size_t size;
    char name[64];
    struct spillway_region region;
    uint64_t raw_bytes, stored_bytes;
    char state[16], tier[16];
    uint32_t durability, reserved;
};
struct spillway_region_info {
    size_t size;
    uint64_t raw_bytes, stored_bytes;
    uint32_t n_buffers;
    char state[16], codec[16], tier[16];
    uint32_t durability;
};
struct spillway_buffer_info { uint64_t raw_bytes, stored_bytes; char codec[16]; char reason[32]; };
struct spillway_reason { char text[32]; uint64_t spills; };
struct spillway_status {
    size_t size;
    char version[32], device[64];
    uint32_t n_gpus, sessions, regions;
    uint64_t scratch_bytes, scratch_limit_bytes;
    uint64_t tier_capacity_bytes, tier_backed_bytes, tier_used_bytes;
    uint64_t nvme_capacity_bytes, nvme_used_bytes;
    uint64_t mapped_memories;
    uint32_t n_reasons;
    struct spillway_reason reasons[16];
};
"""

OPAQUE = """
struct spillway;
struct spillway_ticket;
struct CUstream_st;
"""

FUNCTIONS = """
int spillway_open(struct spillway **, const struct spillway_options *, struct spillway_error *);
void spillway_close(struct spillway *);
int spillway_prepare(struct spillway *, const void *, struct spillway_error *);
int spillway_spill(struct spillway *, const struct spillway_request *, uint32_t, struct spillway_ticket **,
                   struct spillway_error *);
int spillway_restore(struct spillway *, const struct spillway_request *, uint32_t, struct spillway_ticket **,
                     struct spillway_error *);
int spillway_wait(struct spillway_ticket *, int, struct spillway_result *, uint32_t, struct spillway_error *);
int spillway_cancel(struct spillway_ticket *, struct spillway_error *);
void spillway_ticket_free(struct spillway_ticket *);
void *spillway_ticket_user(const struct spillway_ticket *);
int spillway_fd(const struct spillway *);
int spillway_dispatch(struct spillway *, struct spillway_error *);
struct spillway_ticket *spillway_next_done(struct spillway *);
int spillway_register(struct spillway *, void *, uint64_t, struct spillway_error *);
int spillway_unregister(struct spillway *, void *, struct spillway_error *);
int spillway_adopt(struct spillway *, const char *, struct spillway_region *, struct spillway_error *);
int spillway_list(struct spillway *, const char *, struct spillway_list_item *, uint32_t, struct spillway_error *);
int spillway_drop(struct spillway *, const struct spillway_region *, uint32_t, struct spillway_error *);
int spillway_query(struct spillway *, struct spillway_region, struct spillway_region_info *, struct spillway_error *);
int spillway_query_buffers(struct spillway *, struct spillway_region, struct spillway_buffer_info *, uint32_t *,
                           struct spillway_error *);
int spillway_status(struct spillway *, struct spillway_status *, struct spillway_error *);
const char *spillway_version(void);
const char *spillway_error_text(int);
"""

# Names without "SPILLWAY_".
CONSTANTS = {
    "SERVED_BY": 1,
    "CODEC_CLIENT": 2,
    "CODEC_SERVICE": 4,
    "KEEP": 1,
    "EACH": 16,
    "MAX_BUFFERS": 64,
    "SCOPE_REQUEST": 0,
    "SCOPE_REGION": 1,
    "SCOPE_SESSION": 2,
    "SCOPE_DEVICE": 3,
    "SCOPE_DAEMON": 4,
    "BYTES": 0,
    "U8": 1,
    "U16": 2,
    "U32": 3,
    "U64": 4,
    "I8": 5,
    "I16": 6,
    "I32": 7,
    "I64": 8,
    "F32": 9,
    "F64": 10,
    "BF16": 11,
    "F16": 12,
    "F8": 13,
    "DEC128": 14,
    "VERSION_MAJOR": MAJOR,
    "VERSION_MINOR": MINOR,
}
