/* wire.h - the data protocol spoken by hand, so that a test can send packets that no client library would.
 *
 * A failed set-up aborts the test; the daemon's answers are returned. Waits at most SW_WIRE_TIMEOUT_MS. thread: one per
 * connection. */
#ifndef SW_TEST_WIRE_H
#define SW_TEST_WIRE_H

#include "ipc/proto.h"
#include "spill/engine.h"
#include "tests/lib/content.h"
#include <stdbool.h>

enum { SW_WIRE_TIMEOUT_MS = 60000 };

struct sw_wire {
    int socket;
    uint32_t seq;      /* of the last request */
    uint16_t version;  /* of the protocol, of packets, and of the last HELLO */
    uint8_t token[16]; /* of the session; all 0: none */
};

/* Connects, without HELLO; false: nothing listens. */
bool sw_wire_connect(struct sw_wire *ret, const char *path);
/* Connects and says HELLO of version 9, which all requests in short are of; must succeed. */
void sw_wire_open(struct sw_wire *ret, const char *path);
/* The same in a version of the caller's choice; the requests in short that it has can be used. */
void sw_wire_open_version(struct sw_wire *ret, const char *path, uint32_t version);
void sw_wire_close(struct sw_wire *wire);
/* Connects again, to a successor, and goes on with the session; false if that does not know it. */
bool sw_wire_resume(struct sw_wire *wire, const char *path);

/* Sends bytes as they are, with any number of copies of a descriptor up to 253; false if the peer is gone. */
bool sw_wire_send_raw(struct sw_wire *wire, const void *packet, size_t bytes, int fd, unsigned n_fds);
/* Sends a message under the next seq, which it returns. */
uint32_t sw_wire_send(struct sw_wire *wire, struct sw_msg *msg, const int *fds, unsigned n_fds);
/* Next packet, whatever it is; its arrays are there until the thread receives the next one. Returns 1, or 0 when the
 * daemon has closed, or -1 when nothing came in time. */
int sw_wire_receive(struct sw_wire *wire, struct sw_msg *ret);
/* Next packet must answer seq: 0, or the negative code of an ERROR (kept in *ret); -SW_ECONN if closed. */
int sw_wire_await(struct sw_wire *wire, uint32_t seq, struct sw_msg *ret);
/* Sends and awaits; the message is replaced by the reply. */
int sw_wire_call(struct sw_wire *wire, struct sw_msg *msg, const int *fds, unsigned n_fds);
/* Whether the daemon closes the connection (unread replies are skipped). */
bool sw_wire_is_closed(struct sw_wire *wire);

/* Requests in short. Each returns 0 or the ERROR's code. */
int sw_wire_hello(struct sw_wire *wire, uint32_t version);
int sw_wire_mem_open(struct sw_wire *wire, uint32_t mem, uint32_t kind, uint32_t n_parts, uint32_t once,
                     uint64_t bytes);
/* One MEM_PARTS for parts first ... first + count - 1 of part_bytes each, sent with n_fds copies of fd. */
int sw_wire_mem_parts(struct sw_wire *wire, uint32_t mem, uint32_t first, uint32_t count, uint64_t part_bytes, int fd,
                      unsigned n_fds);
int sw_wire_mem_close(struct sw_wire *wire, uint32_t mem);
/* Hands over a memfd: MEM_OPEN and MEM_PARTS. */
int sw_wire_mem(struct sw_wire *wire, uint32_t mem, int fd, uint64_t bytes, bool once);
struct sw_msg sw_wire_spill_msg(uint32_t mem, uint64_t offset, uint64_t bytes);
int sw_wire_spill(struct sw_wire *wire, uint32_t mem, uint64_t offset, uint64_t bytes, struct sw_region_id *ret);
struct sw_msg sw_wire_restore_msg(struct sw_region_id id, uint32_t mem, uint64_t offset, uint64_t bytes);
int sw_wire_restore(struct sw_wire *wire, struct sw_region_id id, uint32_t mem, uint64_t offset, uint64_t bytes);
/* Batches of n pieces of so many bytes each, side by side from offset 0. */
struct sw_msg sw_wire_spill_batch_msg(uint32_t mem, uint32_t n, uint64_t bytes);
struct sw_msg sw_wire_restore_batch_msg(uint32_t mem, const struct sw_region_id *ids, uint32_t n, uint64_t bytes);
int sw_wire_spill_batch(struct sw_wire *wire, uint32_t mem, uint32_t n, uint64_t bytes, struct sw_region_id *ret_ids);
int sw_wire_drop(struct sw_wire *wire, struct sw_region_id id);
int sw_wire_query(struct sw_wire *wire, struct sw_region_id id, struct sw_msg_region *ret);
int sw_wire_status(struct sw_wire *wire, struct sw_msg_status_ok *ret);

/* A memfd with the given content (NULL: zeros) and seals. */
int sw_wire_memfd(const void *content, size_t bytes, int seals);
/* The same with content of a kind and seed; and whether a memfd holds just that. */
int sw_wire_content_memfd(size_t bytes, enum sw_content kind, uint64_t seed, int seals);
bool sw_wire_memfd_holds(int fd, size_t bytes, enum sw_content kind, uint64_t seed);

#endif
