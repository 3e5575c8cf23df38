/* manifest_scan.h - reads the bytes of a manifest, whole or damaged, and lists the frames that it vouches for.
 *
 * A damaged place costs the records that lie in it, and nothing else: reading continues at the next record that is
 * whole. The lost record may have been a commit; then its frame is not found. Or it was a release; then its frame is
 * found although its space may have been used again. So frames that were committed before a damaged place are
 * *doubtful*. A doubtful frame that a later commit overlaps was released, and is dropped. For the others the reader
 * must verify that the frame is the right one; its owner decides whether it is still wanted.
 *
 * Pure: reads no file. thread: any. */
#ifndef SW_SPILL_MANIFEST_SCAN_H
#define SW_SPILL_MANIFEST_SCAN_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SW_MANIFEST_MAX_PLACES = 32 };

struct sw_manifest_commit {
    uint64_t id, at;     /* at: offset of its record in the file */
    const uint8_t *body; /* struct sw_manifest_body in the image, not aligned */
    unsigned n_extents;
    bool released;
    bool plain;    /* SW_MANIFEST_COMMIT_PLAIN */
    bool doubtful; /* records after it are lost */
    bool dropped;  /* a later frame overlaps it */
};

struct sw_manifest_place {
    uint64_t at, bytes;
    const char *what; /* static */
};

struct sw_manifest_scan {
    uint64_t file_bytes; /* 0: the header is damaged */
    uint64_t next_sequence;
    uint64_t end;                       /* where the next record goes */
    bool tail;                          /* the bytes after `end` are a record that was not written in full */
    struct sw_manifest_commit *commits; /* [n_commits], ids ascending */
    size_t n_commits, max_commits;
    size_t n_places; /* number of damaged places; the first ones are listed */
    struct sw_manifest_place places[SW_MANIFEST_MAX_PLACES];
    uint64_t n_doubtful, n_dropped;
};

/* Reads an image. image: borrowed as long as *ret is used. Damage is no error. errors: -SW_EVERSION (another version),
 * -SW_ENOMEM; *ret is then empty. */
int sw_manifest_scan(struct sw_manifest_scan *ret, const uint8_t *image, uint64_t bytes, struct sw_err *err);
void sw_manifest_scan_fini(struct sw_manifest_scan *scan);

/* Returns whether the commit's frame is there: neither released nor dropped. */
static inline bool sw_manifest_commit_is_live(const struct sw_manifest_commit *commit) {
    return !commit->released && !commit->dropped;
}

#endif
