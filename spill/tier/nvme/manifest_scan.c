#include "spill/tier/nvme/manifest_scan.h"

#include "base/alloc.h"
#include "spill/tier/nvme/manifest_format.h"
#include "spill/tier/nvme/nvme_files.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BLOCK_BYTES ((uint64_t)SW_MANIFEST_BLOCK_BYTES)

struct scanner {
    struct sw_manifest_scan *scan;
    const uint8_t *image;
    uint64_t bytes, at;
    size_t doubt_until; /* commits before this index are doubtful */
    bool any_sequence;  /* the header does not say the first record's number */
    bool may_skip;      /* it is already known that records are missing before the next one */
    bool no_memory;
};

static void damaged(struct scanner *s, uint64_t at, uint64_t bytes, const char *what) {
    struct sw_manifest_scan *scan = s->scan;
    if (scan->n_places < SW_MANIFEST_MAX_PLACES)
        scan->places[scan->n_places] = (struct sw_manifest_place){.at = at, .bytes = bytes, .what = what};
    scan->n_places++;
    s->doubt_until = scan->n_commits;
}

/* --- records --- */

enum look {
    LOOK_RECORD,   /* whole */
    LOOK_TORN,     /* its body extends past the end of the file */
    LOOK_BAD_BODY, /* the head says how long it is */
    LOOK_BAD_HEAD,
};

static bool is_possible(const struct sw_manifest_head *head) {
    if (head->sequence == 0 || head->sequence == UINT64_MAX || head->id == 0 || head->id > head->sequence)
        return false;
    if (head->kind == SW_MANIFEST_RELEASE)
        return head->body_bytes == 0;
    return (head->kind == SW_MANIFEST_COMMIT || head->kind == SW_MANIFEST_COMMIT_PLAIN) &&
           head->body_bytes > sizeof(struct sw_manifest_body) &&
           (head->body_bytes - sizeof(struct sw_manifest_body)) % sizeof(struct sw_manifest_extent) == 0;
}

/* Examines what lies at `at`, where there is room for a head. */
static enum look look_at(const struct scanner *s, uint64_t at, struct sw_manifest_head *ret) {
    memcpy(ret, s->image + at, sizeof *ret);
    if (sw_manifest_head_hash(ret) != ret->hash || !is_possible(ret))
        return LOOK_BAD_HEAD;
    if (s->bytes - at - sizeof *ret < ret->body_bytes)
        return LOOK_TORN;
    return sw_manifest_hash(s->image + at + sizeof *ret, ret->body_bytes) == ret->body_hash ? LOOK_RECORD
                                                                                            : LOOK_BAD_BODY;
}

static bool has_head(const struct scanner *s, uint64_t at) {
    return at <= s->bytes && s->bytes - at >= sizeof(struct sw_manifest_head);
}

/* Returns the next offset after `at` that has a whole record, newer than those that were read. The file's end: there is
 * none. */
static uint64_t find_record(const struct scanner *s, uint64_t at) {
    struct sw_manifest_head head;
    for (at += SW_MANIFEST_RECORD_ALIGN; has_head(s, at); at += SW_MANIFEST_RECORD_ALIGN)
        if (look_at(s, at, &head) == LOOK_RECORD && (s->any_sequence || head.sequence >= s->scan->next_sequence))
            return at;
    return s->bytes;
}

/* Returns whether a frame's extents add up to its length and lie at blocks. Whether these places exist, and are used
 * once, is checked later. */
static bool is_frame(const uint8_t *body, unsigned n_extents) {
    uint64_t left;
    memcpy(&left, body + offsetof(struct sw_manifest_body, bytes), sizeof left);
    for (unsigned i = 0; i < n_extents; i++) {
        struct sw_manifest_extent extent;
        memcpy(&extent, body + sizeof(struct sw_manifest_body) + i * sizeof extent, sizeof extent);
        if (extent.bytes == 0 || extent.bytes > left || extent.offset % BLOCK_BYTES ||
            (extent.bytes % BLOCK_BYTES && i + 1 < n_extents) || extent.offset > INT64_MAX ||
            extent.bytes > INT64_MAX - extent.offset - BLOCK_BYTES)
            return false;
        left -= extent.bytes;
    }
    return left == 0;
}

static bool add_commit(struct scanner *s, const struct sw_manifest_head *head) {
    struct sw_manifest_scan *scan = s->scan;
    const uint8_t *body = s->image + s->at + sizeof *head;
    const size_t n = (head->body_bytes - sizeof(struct sw_manifest_body)) / sizeof(struct sw_manifest_extent);
    if (!is_frame(body, (unsigned)n) || (scan->n_commits > 0 && head->id <= scan->commits[scan->n_commits - 1].id))
        return false;
    if (scan->n_commits == scan->max_commits) {
        const size_t max = scan->max_commits ? scan->max_commits * 2 : 64;
        void *grown = sw_realloc(scan->commits, max * sizeof *scan->commits);
        s->no_memory |= !grown;
        if (!grown)
            return true;
        scan->commits = grown;
        scan->max_commits = max;
    }
    scan->commits[scan->n_commits++] = (struct sw_manifest_commit){.id = head->id,
                                                                   .at = s->at,
                                                                   .body = body,
                                                                   .n_extents = (unsigned)n,
                                                                   .plain = head->kind == SW_MANIFEST_COMMIT_PLAIN};
    return true;
}

static struct sw_manifest_commit *find_commit(const struct sw_manifest_scan *scan, uint64_t id) {
    size_t low = 0, high = scan->n_commits;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (scan->commits[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < scan->n_commits && scan->commits[low].id == id ? &scan->commits[low] : NULL;
}

/* A release without its commit releases nothing. Where records are missing anyway, it is no further damage. */
static bool add_release(const struct scanner *s, const struct sw_manifest_head *head) {
    struct sw_manifest_commit *commit = find_commit(s->scan, head->id);
    if (!commit)
        return s->scan->n_places > 0;
    if (commit->released)
        return false;
    commit->released = true;
    return true;
}

static void take_record(struct scanner *s, const struct sw_manifest_head *head) {
    const uint64_t bytes = sizeof *head + head->body_bytes;
    if (!s->any_sequence && !s->may_skip && head->sequence > s->scan->next_sequence)
        damaged(s, s->at, 0, "records are missing before it");
    if (!s->any_sequence && head->sequence < s->scan->next_sequence)
        damaged(s, s->at, bytes, "record is older than the one before");
    else if (!(head->kind == SW_MANIFEST_RELEASE ? add_release(s, head) : add_commit(s, head)))
        damaged(s, s->at, bytes, "impossible record");
    if (s->any_sequence || head->sequence >= s->scan->next_sequence)
        s->scan->next_sequence = head->sequence + 1;
    s->any_sequence = s->may_skip = false;
    s->at += bytes;
}

/* The damage reaches the file's end: the next record goes after it, so that it stays visible until the file is
 * rewritten. The sequence numbers of the lost records are unknown: none of them may be used again. */
static void end_in_damage(struct scanner *s, uint64_t from) {
    s->at = (s->bytes + SW_MANIFEST_RECORD_ALIGN - 1) / SW_MANIFEST_RECORD_ALIGN * SW_MANIFEST_RECORD_ALIGN;
    s->scan->next_sequence += (s->bytes - from) / sizeof(struct sw_manifest_head) + 1;
}

static void scan_records(struct scanner *s) {
    struct sw_manifest_head head;
    while (!s->no_memory && has_head(s, s->at)) {
        const enum look look = look_at(s, s->at, &head);
        const uint64_t from = s->at;
        if (look == LOOK_TORN && (s->any_sequence || head.sequence == s->scan->next_sequence))
            break;
        if (look == LOOK_RECORD) {
            take_record(s, &head);
            continue;
        }
        /* A valid head says where the next record begins, and that this one was there. */
        const uint64_t behind = from + sizeof head + head.body_bytes;
        const bool skips = look == LOOK_BAD_BODY && (s->any_sequence || head.sequence >= s->scan->next_sequence);
        s->at = skips ? behind : find_record(s, from);
        damaged(s, from, s->at - from, skips ? "record's body has a wrong hash" : "record has a wrong hash");
        s->may_skip = !skips;
        if (skips) {
            s->scan->next_sequence = head.sequence + 1;
            s->any_sequence = false;
        } else if (s->at == s->bytes) {
            end_in_damage(s, from);
        }
    }
}

static int scan_header(struct scanner *s, struct sw_err *err) {
    struct sw_manifest_header header;
    s->scan->next_sequence = 1;
    s->any_sequence = true;
    if (s->bytes < sizeof header) {
        damaged(s, 0, s->bytes, "header is incomplete");
        s->at = sizeof header;
        return 0;
    }
    s->at = sizeof header;
    memcpy(&header, s->image, sizeof header);
    if (memcmp(header.magic, SW_NVME_MANIFEST_MAGIC, sizeof header.magic) != 0 ||
        sw_manifest_hash(&header, offsetof(struct sw_manifest_header, hash)) != header.hash) {
        damaged(s, 0, sizeof header, "header has a wrong hash");
        return 0;
    }
    if (header.version != SW_MANIFEST_VERSION || header.block_bytes != SW_MANIFEST_BLOCK_BYTES)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON, "manifest has version %" PRIu32 ", this program reads %d",
                          header.version, SW_MANIFEST_VERSION);
    s->scan->file_bytes = header.file_bytes;
    if (header.file_bytes == 0 || header.first_sequence == 0)
        damaged(s, 0, sizeof header, "impossible header");
    else
        s->scan->next_sequence = header.first_sequence;
    s->any_sequence = header.first_sequence == 0;
    return 0;
}

/* --- frames that overlap --- */

/* Cells: the intervals between neighbouring ends of extents. All blocks of a cell belong to the same frames. */
struct cells {
    uint64_t *bounds; /* [n], ascending: cell i is [bounds[i], bounds[i + 1]) */
    size_t *free;     /* [n]: the first free cell from i on, through others (union-find); the last one is none */
    size_t n;
};

static int by_value(const void *a, const void *b) {
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

static struct sw_manifest_extent extent_of(const struct sw_manifest_commit *commit, unsigned i) {
    struct sw_manifest_extent extent;
    memcpy(&extent, commit->body + sizeof(struct sw_manifest_body) + i * sizeof extent, sizeof extent);
    extent.bytes = (extent.bytes + BLOCK_BYTES - 1) / BLOCK_BYTES * BLOCK_BYTES;
    return extent;
}

static size_t cell_at(const struct cells *cells, uint64_t bound) {
    size_t low = 0, high = cells->n;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (cells->bounds[middle] < bound)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static size_t first_free(struct cells *cells, size_t at) {
    size_t root = at;
    while (cells->free[root] != root)
        root = cells->free[root];
    while (cells->free[at] != root) {
        const size_t next = cells->free[at];
        cells->free[at] = root;
        at = next;
    }
    return root;
}

/* Takes the cells of a commit. Returns whether all were free. */
static bool take_cells(struct cells *cells, const struct sw_manifest_commit *commit) {
    bool alone = true;
    for (unsigned i = 0; i < commit->n_extents; i++) {
        const struct sw_manifest_extent extent = extent_of(commit, i);
        const size_t end = cell_at(cells, extent.offset + extent.bytes);
        for (size_t at = cell_at(cells, extent.offset); at < end; at++) {
            const size_t found = first_free(cells, at);
            alone &= found == at;
            if (found >= end)
                break;
            at = found;
            cells->free[at] = at + 1;
        }
    }
    return alone;
}

static bool make_cells(struct cells *ret, const struct sw_manifest_scan *scan) {
    size_t n = 0, n_unique = 0;
    for (size_t i = 0; i < scan->n_commits; i++)
        n += 2 * (size_t)scan->commits[i].n_extents;
    ret->bounds = sw_alloc_array(n, sizeof *ret->bounds);
    ret->free = sw_alloc_array(n, sizeof *ret->free);
    if (!ret->bounds || !ret->free)
        return false;
    n = 0;
    for (size_t i = 0; i < scan->n_commits; i++)
        for (unsigned k = 0; k < scan->commits[i].n_extents; k++) {
            const struct sw_manifest_extent extent = extent_of(&scan->commits[i], k);
            ret->bounds[n++] = extent.offset;
            ret->bounds[n++] = extent.offset + extent.bytes;
        }
    qsort(ret->bounds, n, sizeof *ret->bounds, by_value);
    for (size_t i = 0; i < n; i++)
        if (n_unique == 0 || ret->bounds[i] != ret->bounds[n_unique - 1])
            ret->bounds[n_unique++] = ret->bounds[i];
    ret->n = n_unique;
    for (size_t i = 0; i < n_unique; i++)
        ret->free[i] = i;
    return true;
}

/* Space is used again only after its frame's release was written. So a frame that a later commit overlaps was released,
 * whether this commit's frame is still there or not. If no release was lost, no frames overlap. */
static void drop_overlapped(struct scanner *s) {
    struct sw_manifest_scan *scan = s->scan;
    struct cells cells = {0};
    if (scan->n_commits > 0 && make_cells(&cells, scan))
        for (size_t i = scan->n_commits; i-- > 0;) {
            struct sw_manifest_commit *commit = &scan->commits[i];
            if (take_cells(&cells, commit) || commit->released)
                continue;
            commit->dropped = true;
            scan->n_dropped++;
            if (s->doubt_until <= i)
                damaged(s, commit->at, 0, "a later frame overlaps this one, or it overlaps itself");
        }
    s->no_memory |= scan->n_commits > 0 && (!cells.bounds || !cells.free);
    sw_free(cells.bounds);
    sw_free(cells.free);
}

static void mark_doubtful(struct scanner *s) {
    for (size_t i = 0; i < s->doubt_until; i++) {
        struct sw_manifest_commit *commit = &s->scan->commits[i];
        commit->doubtful = sw_manifest_commit_is_live(commit);
        s->scan->n_doubtful += commit->doubtful;
    }
}

int sw_manifest_scan(struct sw_manifest_scan *ret, const uint8_t *image, uint64_t bytes, struct sw_err *err) {
    struct scanner s = {.scan = ret, .image = image, .bytes = bytes};
    memset(ret, 0, sizeof *ret);
    int rc = scan_header(&s, err);
    if (rc)
        return rc;
    scan_records(&s);
    ret->end = s.at;
    ret->tail = s.at < bytes;
    if (!s.no_memory)
        drop_overlapped(&s);
    if (s.no_memory) {
        sw_manifest_scan_fini(ret);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the manifest");
    }
    mark_doubtful(&s);
    return 0;
}

void sw_manifest_scan_fini(struct sw_manifest_scan *scan) {
    sw_free(scan->commits);
    memset(scan, 0, sizeof *scan);
}
