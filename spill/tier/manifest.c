#include "spill/tier/manifest.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "codec/checksum.h"
#include "spill/tier/nvme_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they lie in memory");

#define FILE_NAME "manifest"
#define NEW_FILE_NAME "manifest.new"
#define BLOCK_BYTES 4096u
#define COMPACT_MIN_BYTES (64u << 10) /* a shorter file is not worth the work */
#define COMPACT_BUFFER_BYTES (256u << 10)

struct header {
    char magic[8];
    uint32_t version, block_bytes;
    uint64_t file_bytes, first_sequence;
    uint8_t zero[28];
    uint32_t hash;
};
_Static_assert(sizeof(struct header) == 64, "as MANIFEST.md has it");

enum record_kind { RECORD_COMMIT = 1, RECORD_RELEASE = 2, RECORD_COMMIT_PLAIN = 3 };

struct head {
    uint32_t hash, body_hash, body_bytes, kind;
    uint64_t sequence, id;
};
_Static_assert(sizeof(struct head) == 32, "as MANIFEST.md has it");

struct body_extent {
    uint64_t offset, bytes;
};

struct commit_body {
    uint8_t key[SW_TIER_KEY_BYTES];
    uint64_t bytes;
    struct body_extent extents[];
};

struct sw_manifest {
    struct sw_manifest_config config;
    int fd;
    int spare;           /* what the next rewrite goes to, or -1 */
    uint64_t end;        /* where the next record goes */
    uint64_t live_bytes; /* of commit records that no release follows, and of the header */
    uint64_t compact_at; /* not before the file is that long */
    uint64_t next_sequence;
    struct sw_list live; /* sw_manifest_entry.node, ids ascending */
    bool tail;           /* there may be bytes behind `end` */
};

static uint32_t hash_of(const void *data, size_t bytes) {
    return sw_hash_finish(sw_hash_update(1, data, bytes));
}

static uint32_t head_hash(const struct head *head) {
    return hash_of((const char *)head + sizeof head->hash, sizeof *head - sizeof head->hash);
}

static size_t commit_bytes(const struct sw_manifest_entry *entry) {
    return sizeof(struct head) + sizeof(struct commit_body) + entry->n_extents * sizeof(struct body_extent);
}

/* --- writing --- */

static int write_error(struct sw_err *err, const char *call, int cause) {
    int rc = sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_REQUEST, "manifest cannot be written: %s", strerror(cause));
    (void)sw_err_detail(err, "%s of " FILE_NAME ": %s", call, strerror(cause));
    return rc;
}

static int write_all(const struct sw_manifest *m, int fd, const void *data, size_t bytes, uint64_t offset,
                     struct sw_err *err) {
    const char *at = data;
    while (bytes > 0) {
        ssize_t n = m->config.files->pwrite(fd, at, bytes, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return write_error(err, "pwrite", n < 0 ? errno : EIO);
        at += n;
        bytes -= (size_t)n;
        offset += (uint64_t)n;
    }
    return 0;
}

int sw_manifest_settle(struct sw_manifest *m, struct sw_err *err) {
    if (m->tail && ftruncate(m->fd, (off_t)m->end) != 0)
        return write_error(err, "ftruncate", errno);
    m->tail = false;
    return 0;
}

/* One record at the end of the file, all of it or nothing. */
static int append(struct sw_manifest *m, const void *record, size_t bytes, struct sw_err *err) {
    int rc = sw_manifest_settle(m, err);
    if (rc)
        return rc;
    rc = write_all(m, m->fd, record, bytes, m->end, err);
    if (rc) { /* cut off at once: a record that is whole would count, even if its write was called a failure */
        m->tail = true;
        (void)sw_manifest_settle(m, NULL);
        return rc;
    }
    m->end += bytes;
    m->next_sequence++;
    return 0;
}

static void encode_head(struct head *ret, enum record_kind kind, uint64_t sequence, uint64_t id, const void *body,
                        size_t body_bytes) {
    *ret = (struct head){.kind = kind, .sequence = sequence, .id = id, .body_bytes = (uint32_t)body_bytes};
    ret->body_hash = hash_of(body, body_bytes);
    ret->hash = head_hash(ret);
}

/* `ret` has room for commit_bytes(entry) and is aligned. */
static void encode_commit(const struct sw_manifest *m, void *ret, const struct sw_manifest_entry *entry,
                          uint64_t sequence, uint64_t id) {
    const enum record_kind kind = entry->encrypted == m->config.encrypted ? RECORD_COMMIT : RECORD_COMMIT_PLAIN;
    struct head *head = ret;
    struct commit_body *body = (void *)(head + 1);
    memcpy(body->key, entry->key, sizeof body->key);
    body->bytes = entry->bytes;
    for (unsigned i = 0; i < entry->n_extents; i++)
        body->extents[i] = (struct body_extent){entry->extents[i].offset, entry->extents[i].bytes};
    encode_head(head, kind, sequence, id, body, commit_bytes(entry) - sizeof *head);
}

/* Header and a commit for every frame, to a file without a name yet. */
static int write_compact(const struct sw_manifest *m, int fd, char *buffer, size_t buffer_bytes, uint64_t *ret_end,
                         uint64_t *ret_next_sequence, struct sw_err *err) {
    struct header header = {.magic = SW_NVME_MANIFEST_MAGIC,
                            .version = 1,
                            .block_bytes = BLOCK_BYTES,
                            .file_bytes = m->config.file_bytes,
                            .first_sequence = m->next_sequence};
    header.hash = hash_of(&header, offsetof(struct header, hash));
    memcpy(buffer, &header, sizeof header);
    size_t used = sizeof header;
    uint64_t end = 0, sequence = m->next_sequence;
    int rc = 0;
    for (const struct sw_list *node = m->live.next; !rc && node != &m->live; node = node->next) {
        const struct sw_manifest_entry *entry = SW_CONTAINER_OF(node, struct sw_manifest_entry, node);
        size_t bytes = commit_bytes(entry);
        if (used + bytes > buffer_bytes) {
            rc = write_all(m, fd, buffer, used, end, err);
            end += used;
            used = 0;
        }
        encode_commit(m, buffer + used, entry, sequence++, entry->id);
        used += bytes;
    }
    if (!rc)
        rc = write_all(m, fd, buffer, used, end, err);
    *ret_end = end + used;
    *ret_next_sequence = sequence;
    return rc;
}

/* Makes the file that the next rewrite goes to, and takes room for it: so a full file system does not keep a manifest
 * of some size from being appended to and rewritten. Without that room it may work all the same. */
static int make_spare(struct sw_manifest *m, struct sw_err *err) {
    m->spare = openat(m->config.directory, NEW_FILE_NAME, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->spare < 0)
        return write_error(err, "openat", errno);
    (void)fallocate(m->spare, FALLOC_FL_KEEP_SIZE, 0, (off_t)(2 * (uint64_t)COMPACT_MIN_BYTES + 8 * m->live_bytes));
    return 0;
}

static void drop_spare(struct sw_manifest *m) {
    if (m->spare < 0)
        return;
    (void)close(m->spare);
    (void)unlinkat(m->config.directory, NEW_FILE_NAME, 0);
    m->spare = -1;
}

/* Replaces the file by one without dead records, or leaves it alone. */
static int rewrite(struct sw_manifest *m, struct sw_err *err) {
    size_t buffer_bytes = COMPACT_BUFFER_BYTES;
    for (const struct sw_list *node = m->live.next; node != &m->live; node = node->next) {
        size_t bytes = commit_bytes(SW_CONTAINER_OF(node, struct sw_manifest_entry, node));
        buffer_bytes = bytes > buffer_bytes ? bytes : buffer_bytes;
    }
    char *buffer = sw_alloc(buffer_bytes);
    if (!buffer)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the manifest");
    const int directory = m->config.directory;
    uint64_t end = 0, next_sequence = 0;
    int rc = m->spare < 0 ? make_spare(m, err) : 0;
    if (!rc)
        rc = write_compact(m, m->spare, buffer, buffer_bytes, &end, &next_sequence, err);
    if (!rc && renameat(directory, NEW_FILE_NAME, directory, FILE_NAME) != 0)
        rc = write_error(err, "renameat", errno);
    sw_free(buffer);
    if (rc) {
        drop_spare(m);
        return rc;
    }
    if (m->fd >= 0)
        (void)close(m->fd);
    m->fd = m->spare;
    m->end = m->live_bytes = end;
    m->next_sequence = next_sequence;
    m->tail = false;
    (void)make_spare(m, NULL); /* the next rewrite tries again */
    return 0;
}

int sw_manifest_encrypt(struct sw_manifest *m, struct sw_err *err) {
    const bool before = m->config.encrypted;
    for (struct sw_list *node = m->live.next; node != &m->live; node = node->next)
        SW_ASSERT(!SW_CONTAINER_OF(node, struct sw_manifest_entry, node)->encrypted);
    m->config.encrypted = true;
    const int rc = rewrite(m, err);
    if (rc)
        m->config.encrypted = before;
    return rc;
}

static void compact_if_due(struct sw_manifest *m) {
    if (m->end < m->compact_at || m->end / 4 < m->live_bytes)
        return;
    struct sw_err err;
    uint64_t before = m->end;
    int rc = rewrite(m, &err);
    m->compact_at = rc ? m->end * 2 : COMPACT_MIN_BYTES; /* what failed is not tried again at once */
    sw_log(SW_LOG_DEBUG, "tier.nvme.compact", "bytes_before=%" PRIu64 " bytes=%" PRIu64 " error=%s", before, m->end,
           rc ? sw_err_name(rc) : "none");
}

/* Encodes a record of `entry` with the next sequence number, to `ret` with room for it, and appends it. */
static int append_record(struct sw_manifest *m, enum record_kind kind, const struct sw_manifest_entry *entry, void *ret,
                         struct sw_err *err) {
    if (kind == RECORD_RELEASE) {
        encode_head(ret, kind, m->next_sequence, entry->id, NULL, 0);
        return append(m, ret, sizeof(struct head), err);
    }
    encode_commit(m, ret, entry, m->next_sequence, entry->id);
    return append(m, ret, commit_bytes(entry), err);
}

/* In a full file system, room may be had from dead records. */
static int append_or_compact(struct sw_manifest *m, enum record_kind kind, const struct sw_manifest_entry *entry,
                             void *buffer, struct sw_err *err) {
    int rc = append_record(m, kind, entry, buffer, err);
    if (rc != -SW_ENOSPACE || m->end == m->live_bytes || rewrite(m, NULL))
        return rc;
    if (err)
        memset(err, 0, sizeof *err);
    return append_record(m, kind, entry, buffer, err);
}

int sw_manifest_commit(struct sw_manifest *m, struct sw_manifest_entry *entry, struct sw_err *err) {
    size_t bytes = commit_bytes(entry);
    void *record = sw_alloc(bytes);
    if (!record)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a record of the manifest");
    entry->id = m->next_sequence;
    int rc = append_or_compact(m, RECORD_COMMIT, entry, record, err);
    sw_free(record);
    if (rc)
        return rc;
    sw_list_append(&m->live, &entry->node);
    m->live_bytes += bytes;
    compact_if_due(m);
    return 0;
}

int sw_manifest_release(struct sw_manifest *m, struct sw_manifest_entry *entry, struct sw_err *err) {
    struct head head;
    int rc = append_or_compact(m, RECORD_RELEASE, entry, &head, err);
    if (rc)
        return rc;
    sw_list_remove(&entry->node);
    m->live_bytes -= commit_bytes(entry);
    compact_if_due(m);
    return 0;
}

/* --- reading --- */

/* A commit record that was found; its body lies in the file's image. */
struct found_commit {
    uint64_t id;
    const uint8_t *body;
    unsigned n_extents;
    bool released, plain;
};

struct replay {
    const uint8_t *image;
    uint64_t bytes, at;
    struct found_commit *commits;
    size_t n_commits, max_commits;
};

static int damaged(struct sw_err *err, int code, uint64_t at, const char *what) {
    int rc = sw_err_set(err, code, SW_SCOPE_DAEMON, "manifest is damaged at byte %" PRIu64 ": %s", at, what);
    (void)sw_err_detail(err, "remove all files of the directory to start with an empty tier");
    return rc;
}

static struct found_commit *find_commit(const struct replay *r, uint64_t id) {
    size_t low = 0, high = r->n_commits;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (r->commits[middle].id < id)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->n_commits && r->commits[low].id == id ? &r->commits[low] : NULL;
}

static int replay_commit(struct replay *r, const struct head *head, const uint8_t *body, struct sw_err *err) {
    if (head->body_bytes <= sizeof(struct commit_body) ||
        (head->body_bytes - sizeof(struct commit_body)) % sizeof(struct body_extent) ||
        (r->n_commits > 0 && head->id <= r->commits[r->n_commits - 1].id))
        return damaged(err, -SW_EFRAME, r->at, "impossible commit");
    if (r->n_commits == r->max_commits) {
        size_t max = r->max_commits ? r->max_commits * 2 : 64;
        void *grown = sw_realloc(r->commits, max * sizeof *r->commits);
        if (!grown)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the manifest");
        r->commits = grown;
        r->max_commits = max;
    }
    size_t n = (head->body_bytes - sizeof(struct commit_body)) / sizeof(struct body_extent);
    r->commits[r->n_commits++] = (struct found_commit){
        .id = head->id, .body = body, .n_extents = (unsigned)n, .plain = head->kind == RECORD_COMMIT_PLAIN};
    return 0;
}

static int replay_record(struct replay *r, const struct head *head, const uint8_t *body, struct sw_err *err) {
    if (head->kind == RECORD_COMMIT || head->kind == RECORD_COMMIT_PLAIN)
        return replay_commit(r, head, body, err);
    struct found_commit *commit = find_commit(r, head->id);
    if (head->kind != RECORD_RELEASE || head->body_bytes || !commit || commit->released)
        return damaged(err, -SW_EFRAME, r->at, "impossible record");
    commit->released = true;
    return 0;
}

static int replay_header(struct sw_manifest *m, struct replay *r, uint64_t *ret_file_bytes, struct sw_err *err) {
    struct header header;
    if (r->bytes < sizeof header)
        return damaged(err, -SW_ECHECKSUM, 0, "header is incomplete");
    memcpy(&header, r->image, sizeof header);
    if (memcmp(header.magic, SW_NVME_MANIFEST_MAGIC, sizeof header.magic) != 0 ||
        hash_of(&header, offsetof(struct header, hash)) != header.hash)
        return damaged(err, -SW_ECHECKSUM, 0, "header has a wrong hash");
    if (header.version != 1 || header.block_bytes != BLOCK_BYTES)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON, "manifest has version %" PRIu32 ", this is made for 1",
                          header.version);
    m->next_sequence = header.first_sequence;
    *ret_file_bytes = header.file_bytes;
    r->at = sizeof header;
    return 0;
}

/* Reads records up to the end, or to a tail that was cut short. */
static int replay_records(struct sw_manifest *m, struct replay *r, struct sw_err *err) {
    struct head head;
    while (r->bytes - r->at >= sizeof head) {
        memcpy(&head, r->image + r->at, sizeof head);
        if (head_hash(&head) != head.hash)
            return damaged(err, -SW_ECHECKSUM, r->at, "record has a wrong hash");
        const uint8_t *body = r->image + r->at + sizeof head;
        if (r->bytes - r->at - sizeof head < head.body_bytes)
            break;
        if (hash_of(body, head.body_bytes) != head.body_hash)
            return damaged(err, -SW_ECHECKSUM, r->at, "record's body has a wrong hash");
        if (head.sequence != m->next_sequence)
            return damaged(err, -SW_ECHECKSUM, r->at, "records are missing");
        int rc = replay_record(r, &head, body, err);
        if (rc)
            return rc;
        r->at += sizeof head + head.body_bytes;
        m->next_sequence++;
    }
    return 0;
}

/* Hands over what was found; the tier's entries become the live ones. */
static int adopt(struct sw_manifest *m, const struct replay *r, struct sw_err *err) {
    for (size_t i = 0; i < r->n_commits; i++) {
        const struct found_commit *commit = &r->commits[i];
        if (commit->released || (m->config.lost && !commit->plain))
            continue;
        struct sw_manifest_entry frame = {
            .id = commit->id, .n_extents = commit->n_extents, .encrypted = m->config.encrypted && !commit->plain};
        struct sw_extent *extents = sw_alloc_array(frame.n_extents, sizeof *extents);
        struct sw_manifest_entry *entry = NULL;
        if (extents) {
            memcpy(frame.key, commit->body, sizeof frame.key);
            memcpy(&frame.bytes, commit->body + offsetof(struct commit_body, bytes), sizeof frame.bytes);
            for (unsigned k = 0; k < frame.n_extents; k++) {
                struct body_extent extent;
                memcpy(&extent, commit->body + sizeof(struct commit_body) + k * sizeof extent, sizeof extent);
                extents[k] = (struct sw_extent){.offset = extent.offset, .bytes = extent.bytes};
            }
            frame.extents = extents;
            entry = m->config.found(m->config.arg, &frame);
            sw_free(extents);
        }
        if (!entry)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the frames of the manifest");
        entry->id = commit->id;
        sw_list_append(&m->live, &entry->node);
        m->live_bytes += commit_bytes(entry);
    }
    return 0;
}

static int read_image(struct sw_manifest *m, uint8_t **ret, uint64_t *ret_bytes, struct sw_err *err) {
    struct stat st;
    if (fstat(m->fd, &st) != 0)
        return sw_err_set(err, sw_nvme_error(errno), SW_SCOPE_DAEMON, "manifest cannot be read: %s", strerror(errno));
    uint8_t *image = sw_alloc((size_t)st.st_size + 1);
    if (!image)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the manifest");
    for (off_t at = 0; at < st.st_size;) {
        ssize_t n = m->config.files->pread(m->fd, image + at, (size_t)(st.st_size - at), at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0) {
            int cause = n < 0 ? errno : EIO;
            sw_free(image);
            return sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "manifest cannot be read: %s",
                              strerror(cause));
        }
        at += n;
    }
    *ret = image;
    *ret_bytes = (uint64_t)st.st_size;
    return 0;
}

/* Takes in the file that there is. */
static int load(struct sw_manifest *m, struct sw_err *err) {
    struct replay r = {0};
    uint8_t *image = NULL;
    uint64_t file_bytes = 0;
    int rc = read_image(m, &image, &r.bytes, err);
    r.image = image;
    if (!rc)
        rc = replay_header(m, &r, &file_bytes, err);
    m->live_bytes = sizeof(struct header);
    if (!rc)
        rc = replay_records(m, &r, err);
    if (!rc)
        rc = adopt(m, &r, err);
    m->end = r.at;
    m->tail = r.at < r.bytes; /* the next append cuts it off */
    sw_log(SW_LOG_DEBUG, "tier.nvme.replay", "bytes=%" PRIu64 " tail_bytes=%" PRIu64 " commits=%zu error=%s", r.bytes,
           r.bytes - r.at, r.n_commits, rc ? sw_err_name(rc) : "none");
    sw_free(r.commits);
    sw_free(image);
    if (rc)
        return rc;
    if (file_bytes == m->config.file_bytes) {
        (void)make_spare(m, NULL);
        return 0;
    }
    if (!sw_list_empty(&m->live))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "tier holds frames in files of %" PRIu64 " bytes, not of %" PRIu64, file_bytes,
                          m->config.file_bytes);
    return rewrite(m, err);
}

int sw_manifest_open(struct sw_manifest **ret, const struct sw_manifest_config *config, struct sw_err *err) {
    struct sw_manifest *m = sw_alloc(sizeof *m);
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the manifest");
    m->config = *config;
    m->compact_at = COMPACT_MIN_BYTES;
    m->spare = -1;
    m->next_sequence = 1;
    sw_list_init(&m->live);
    m->fd = openat(config->directory, FILE_NAME, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int rc;
    if (m->fd >= 0)
        rc = load(m, err);
    else if (errno == ENOENT)
        rc = rewrite(m, err);
    else
        rc = sw_err_set(err, sw_nvme_error(errno), SW_SCOPE_DAEMON, "manifest cannot be opened: %s", strerror(errno));
    if (rc) {
        sw_manifest_close(m);
        return rc;
    }
    *ret = m;
    return 0;
}

void sw_manifest_close(struct sw_manifest *m) {
    if (!m)
        return;
    drop_spare(m);
    if (m->fd >= 0)
        (void)close(m->fd);
    sw_free(m);
}
