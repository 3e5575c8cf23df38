/* ledger.h - the file that lists the regions that the tier keeps beyond its process and its machine: MANIFEST.md.
 *
 * Invariant: a change that was reported done is in the file after a power cut; one that was reported to have failed may
 * be. Records are found one by one: whatever happened to the bytes between them, a whole record counts. The content of
 * each live record stays in memory, so that the file can be rewritten at any time.
 *
 * Not thread safe: the thread of nvme_keep.c owns it once the tier is open. All calls may wait for the file system. */
#ifndef SW_SPILL_LEDGER_H
#define SW_SPILL_LEDGER_H

#include "spill/tier/nvme/nvme_file_ops.h"
#include "spill/tier/tier.h"

struct sw_ledger;

#define SW_LEDGER_FILE "names"
#define SW_LEDGER_NEW_FILE "names.new"

/* Opens the ledger of a directory (borrowed while open). It has no file until the first record. errors: -SW_EVERSION (a
 * later version has written it), -SW_ECHECKSUM (its header is damaged), -SW_EIO, -SW_ENOMEM. The file is unchanged. */
int sw_ledger_open(struct sw_ledger **ret, int directory, const struct sw_nvme_file_ops *files, struct sw_err *err);
/* Closes a ledger. NULL is a no-op. */
void sw_ledger_close(struct sw_ledger *ledger);

size_t sw_ledger_n_records(const struct sw_ledger *ledger);
/* Returns in how many places the file had bytes of no whole record when it was opened. */
size_t sw_ledger_n_damaged(const struct sw_ledger *ledger);

/* Writes all changes of the list (struct sw_tier_change.node), and flushes them together. It sets the numbers of kept
 * records. errors: -SW_EIO, -SW_ENOSPACE, -SW_ENOMEM: nothing was changed, or it is not known. */
int sw_ledger_change(struct sw_ledger *ledger, const struct sw_list *changes, struct sw_err *err);

/* Visits the live records, in the order in which they were kept (tier.h). */
int sw_ledger_visit(const struct sw_ledger *ledger,
                    int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                    struct sw_err *err);

#endif
