/* nvme_keep.h - the thread that makes regions outlive the machine: it flushes data files, manifest and ledger, in this
 * order, and then reports. All changes that wait when it looks share one flush of each.
 *
 * It has a thread of its own because a flush takes up to seconds, and transfers must go on. thread: any, but close. */
#ifndef SW_SPILL_NVME_KEEP_H
#define SW_SPILL_NVME_KEEP_H

#include "spill/tier/nvme/ledger.h"
#include "spill/tier/nvme/manifest.h"
#include "spill/tier/nvme/nvme_files.h"

struct sw_nvme_keep;

struct sw_nvme_keep_config {
    struct sw_nvme_files *files; /* all borrowed */
    const struct sw_nvme_file_ops *ops;
    struct sw_manifest *manifest;
    struct sw_ledger *ledger; /* belongs to the thread until close */
};

/* Starts the thread. errors: -SW_ENOMEM. */
int sw_nvme_keep_open(struct sw_nvme_keep **ret, const struct sw_nvme_keep_config *config, struct sw_err *err);
/* Queues a change (tier.h). */
void sw_nvme_keep_submit(struct sw_nvme_keep *keep, struct sw_tier_change *change);
/* Ends the thread. No change may be under way. NULL is a no-op. */
void sw_nvme_keep_close(struct sw_nvme_keep *keep);

#endif
