/* nvme_io.h - the NVMe tier's thread: cuts transfers into requests, keeps the disk's queue filled, ends transfers.
 *
 * Reads and writes take turns at the queue, so that a restore does not wait for all spills before it. Within a kind,
 * first come, first served. This thread is the only one that touches the manifest, through the two hooks. */
#ifndef SW_SPILL_NVME_IO_H
#define SW_SPILL_NVME_IO_H

#include "spill/tier/nvme/nvme_files.h"
#include "spill/tier/nvme/nvme_method.h"
#include "spill/tier/tier.h"

struct sw_nvme_io;

struct sw_nvme_io_config {
    struct sw_nvme_files *files;   /* borrowed */
    struct sw_nvme_method *method; /* owned from a successful open on */
    unsigned depth;                /* requests under way, at most */
    /* Called on the thread before writes are started and after each wake. An error fails the writes. */
    int (*settle)(void *arg, struct sw_err *err);
    /* Called on the thread when all bytes of a frame are written: commits it. */
    int (*commit)(void *arg, struct sw_tier_io *io, struct sw_err *err);
    void *arg;
};

/* Starts the thread. errors: -SW_ENOMEM. */
int sw_nvme_io_open(struct sw_nvme_io **ret, const struct sw_nvme_io_config *config, struct sw_err *err);
/* Submits a transfer. is_plain: the frame is not encrypted, whatever the method does. thread: any. */
void sw_nvme_io_submit(struct sw_nvme_io *io, struct sw_tier_io *transfer, bool is_plain);
/* Makes the thread call `settle` soon. thread: any. */
void sw_nvme_io_wake(struct sw_nvme_io *io);
/* Returns bytes per second, 0: not known. thread: any. */
uint64_t sw_nvme_io_rate(const struct sw_nvme_io *io, enum sw_tier_io_kind kind);
/* Ends the thread. No transfer may be under way. `settle` is called once more. thread: any but its own. */
void sw_nvme_io_close(struct sw_nvme_io *io);

#endif
