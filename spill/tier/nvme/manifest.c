#include "spill/tier/nvme/manifest.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "spill/tier/nvme/manifest_format.h"
#include "spill/tier/nvme/manifest_scan.h"
#include "spill/tier/nvme/nvme_files.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define COMPACT_MIN_BYTES (64u << 10) /* a shorter file is not worth the work */
#define COMPACT_BUFFER_BYTES (256u << 10)

struct sw_manifest {
    struct sw_manifest_config config;
    struct sw_nvme_file_ops files; /* config.files */
    int fd;
    int spare;           /* where the next rewrite goes, or -1 */
    uint64_t end;        /* where the next record goes */
    uint64_t live_bytes; /* of the header and of commit records without a release */
    uint64_t compact_at; /* no rewrite before the file has this length */
    uint64_t next_sequence;
    struct sw_list live;              /* sw_manifest_entry.node, ids ascending */
    bool tail;                        /* there may be bytes after `end` */
    struct sw_manifest_damage damage; /* of the present file */
    pthread_mutex_t lock;             /* guards the next two fields, and changes of `fd` */
    bool flushes;                     /* a file is flushed before it becomes the manifest */
    bool is_renamed;                  /* the directory on the disk may name another file */
};

static size_t commit_bytes(const struct sw_manifest_entry *entry) {
    return sizeof(struct sw_manifest_head) + sizeof(struct sw_manifest_body) +
           entry->n_extents * sizeof(struct sw_manifest_extent);
}

/* --- writing --- */

static int write_error(struct sw_err *err, const char *call, int cause) {
    int rc = sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_REQUEST, "manifest cannot be written: %s", strerror(cause));
    (void)sw_err_detail(err, "%s of " SW_MANIFEST_FILE ": %s", call, strerror(cause));
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
    if (m->tail && m->config.files->truncate(m->fd, (off_t)m->end) != 0)
        return write_error(err, "ftruncate", errno);
    m->tail = false;
    return 0;
}

/* Appends one record to the file, all of it or nothing. */
static int append(struct sw_manifest *m, const void *record, size_t bytes, struct sw_err *err) {
    int rc = sw_manifest_settle(m, err);
    if (rc)
        return rc;
    rc = write_all(m, m->fd, record, bytes, m->end, err);
    if (rc) { /* cut off at once: a whole record would count, even if its write was reported as a failure */
        m->tail = true;
        (void)sw_manifest_settle(m, NULL);
        return rc;
    }
    m->end += bytes;
    m->next_sequence++;
    return 0;
}

static void encode_head(struct sw_manifest_head *ret, enum sw_manifest_kind kind, uint64_t sequence, uint64_t id,
                        const void *body, size_t body_bytes) {
    *ret = (struct sw_manifest_head){.kind = kind, .sequence = sequence, .id = id, .body_bytes = (uint32_t)body_bytes};
    ret->body_hash = sw_manifest_hash(body, body_bytes);
    ret->hash = sw_manifest_head_hash(ret);
}

/* Encodes a commit. `ret` has room for commit_bytes(entry) and is aligned. */
static void encode_commit(const struct sw_manifest *m, void *ret, const struct sw_manifest_entry *entry,
                          uint64_t sequence, uint64_t id) {
    const enum sw_manifest_kind kind =
        entry->encrypted == m->config.encrypted ? SW_MANIFEST_COMMIT : SW_MANIFEST_COMMIT_PLAIN;
    struct sw_manifest_head *head = ret;
    struct sw_manifest_body *body = (void *)(head + 1);
    memcpy(body->key, entry->key, sizeof body->key);
    body->bytes = entry->bytes;
    for (unsigned i = 0; i < entry->n_extents; i++)
        body->extents[i] = (struct sw_manifest_extent){entry->extents[i].offset, entry->extents[i].bytes};
    encode_head(head, kind, sequence, id, body, commit_bytes(entry) - sizeof *head);
}

/* An invalid head follows the last doubtful frame: until these frames have been verified, the file must show that
 * records are missing. */
static bool ends_doubt(const struct sw_manifest *m, const struct sw_manifest_entry *entry) {
    const struct sw_list *next = entry->node.next;
    return entry->doubtful && (next == &m->live || !SW_CONTAINER_OF(next, struct sw_manifest_entry, node)->doubtful);
}

/* Writes a header, and a commit for every frame, to a file without a name yet. */
static int write_compact(const struct sw_manifest *m, int fd, char *buffer, size_t buffer_bytes, uint64_t *ret_end,
                         uint64_t *ret_next_sequence, struct sw_err *err) {
    struct sw_manifest_header header = {.magic = SW_NVME_MANIFEST_MAGIC,
                                        .version = SW_MANIFEST_VERSION,
                                        .block_bytes = SW_MANIFEST_BLOCK_BYTES,
                                        .file_bytes = m->config.file_bytes,
                                        .first_sequence = m->next_sequence};
    header.hash = sw_manifest_hash(&header, offsetof(struct sw_manifest_header, hash));
    memcpy(buffer, &header, sizeof header);
    size_t used = sizeof header;
    uint64_t end = 0, sequence = m->next_sequence;
    int rc = 0;
    for (const struct sw_list *node = m->live.next; !rc && node != &m->live; node = node->next) {
        const struct sw_manifest_entry *entry = SW_CONTAINER_OF(node, struct sw_manifest_entry, node);
        const size_t mark = ends_doubt(m, entry) ? sizeof(struct sw_manifest_head) : 0, bytes = commit_bytes(entry);
        if (used + bytes + mark > buffer_bytes) {
            rc = write_all(m, fd, buffer, used, end, err);
            end += used;
            used = 0;
        }
        encode_commit(m, buffer + used, entry, sequence++, entry->id);
        memset(buffer + used + bytes, 0, mark);
        used += bytes + mark;
    }
    if (!rc)
        rc = write_all(m, fd, buffer, used, end, err);
    *ret_end = end + used;
    *ret_next_sequence = sequence;
    return rc;
}

/* Makes the file for the next rewrite, and reserves its room, so that a full file system does not prevent appends and
 * rewrites up to some size. Without that room a rewrite may still work. */
static int make_spare(struct sw_manifest *m, struct sw_err *err) {
    m->spare =
        openat(m->config.directory, SW_MANIFEST_NEW_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (m->spare < 0)
        return write_error(err, "openat", errno);
    (void)fallocate(m->spare, FALLOC_FL_KEEP_SIZE, 0, (off_t)(2 * (uint64_t)COMPACT_MIN_BYTES + 8 * m->live_bytes));
    return 0;
}

static void drop_spare(struct sw_manifest *m) {
    if (m->spare < 0)
        return;
    (void)close(m->spare);
    (void)unlinkat(m->config.directory, SW_MANIFEST_NEW_FILE, 0);
    m->spare = -1;
}

/* Lets the new file be the manifest. A flush that comes earlier is one of the old file, and a later one of the new
 * file; so the new file has to be on the disk before it takes the name, if there was any flush. */
static int take_name(struct sw_manifest *m, struct sw_err *err) {
    int rc = 0;
    (void)pthread_mutex_lock(&m->lock);
    if (m->flushes && m->config.files->sync(m->spare, false) != 0)
        rc = write_error(err, "fdatasync", errno);
    else if (m->config.files->rename(m->config.directory, SW_MANIFEST_NEW_FILE, SW_MANIFEST_FILE) != 0)
        rc = write_error(err, "renameat", errno);
    if (!rc) {
        if (m->fd >= 0)
            (void)close(m->fd);
        m->fd = m->spare;
        m->is_renamed = true;
    }
    (void)pthread_mutex_unlock(&m->lock);
    return rc;
}

/* Replaces the file by one without dead records, or leaves it alone. */
static int rewrite(struct sw_manifest *m, struct sw_err *err) {
    size_t buffer_bytes = COMPACT_BUFFER_BYTES;
    for (const struct sw_list *node = m->live.next; node != &m->live; node = node->next) {
        size_t bytes =
            commit_bytes(SW_CONTAINER_OF(node, struct sw_manifest_entry, node)) + sizeof(struct sw_manifest_head);
        buffer_bytes = bytes > buffer_bytes ? bytes : buffer_bytes;
    }
    char *buffer = sw_alloc(buffer_bytes);
    if (!buffer)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the manifest");
    uint64_t end = 0, next_sequence = 0;
    int rc = m->spare < 0 ? make_spare(m, err) : 0;
    if (!rc)
        rc = write_compact(m, m->spare, buffer, buffer_bytes, &end, &next_sequence, err);
    if (!rc)
        rc = take_name(m, err);
    sw_free(buffer);
    if (rc) {
        drop_spare(m);
        return rc;
    }
    m->end = m->live_bytes = end;
    m->next_sequence = next_sequence;
    m->tail = false;
    (void)make_spare(m, NULL); /* if this fails, the next rewrite tries again */
    return 0;
}

/* Begins a flush. Returns a copy of the descriptor; -1: failed. */
static int begin_flush(struct sw_manifest *m, bool *ret_is_renamed) {
    (void)pthread_mutex_lock(&m->lock);
    m->flushes = true;
    *ret_is_renamed = m->is_renamed;
    m->is_renamed = false;
    const int fd = fcntl(m->fd, F_DUPFD_CLOEXEC, 0);
    (void)pthread_mutex_unlock(&m->lock);
    return fd;
}

/* If a rewrite replaces the file meanwhile, the new one has all of its live records, and is flushed. */
int sw_manifest_flush(struct sw_manifest *m, struct sw_err *err) {
    bool is_renamed;
    const int fd = begin_flush(m, &is_renamed);
    int rc = fd < 0 || m->config.files->sync(fd, false) != 0 ? write_error(err, "fdatasync", errno) : 0;
    if (!rc && is_renamed && m->config.files->sync(m->config.directory, true) != 0)
        rc = write_error(err, "fsync of the directory", errno);
    if (fd >= 0)
        (void)close(fd);
    if (rc && is_renamed) {
        (void)pthread_mutex_lock(&m->lock);
        m->is_renamed = true;
        (void)pthread_mutex_unlock(&m->lock);
    }
    return rc;
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

const struct sw_manifest_damage *sw_manifest_damage(const struct sw_manifest *m) {
    return m->damage.n_places > 0 ? &m->damage : NULL;
}

int sw_manifest_mend(struct sw_manifest *m, struct sw_err *err) {
    if (m->damage.n_places == 0)
        return 0;
    for (struct sw_list *node = m->live.next; node != &m->live; node = node->next)
        SW_CONTAINER_OF(node, struct sw_manifest_entry, node)->doubtful = false;
    const int rc = rewrite(m, err);
    if (!rc)
        m->damage = (struct sw_manifest_damage){0};
    return rc;
}

void sw_manifest_drop(struct sw_manifest *m, struct sw_manifest_entry *entry, const char *why) {
    if (m->damage.n_places++ == 0)
        m->damage.what = why;
    m->damage.n_dropped++;
    sw_list_remove(&entry->node);
    m->live_bytes -= commit_bytes(entry);
}

static void compact_if_due(struct sw_manifest *m) {
    if (m->end < m->compact_at || m->end / 4 < m->live_bytes)
        return;
    struct sw_err err;
    uint64_t before = m->end;
    int rc = rewrite(m, &err);
    m->compact_at = rc ? m->end * 2 : COMPACT_MIN_BYTES; /* after a failure it is not tried again at once */
    sw_log(SW_LOG_DEBUG, "tier.nvme.compact", "bytes_before=%" PRIu64 " bytes=%" PRIu64 " error=%s", before, m->end,
           rc ? sw_err_name(rc) : "none");
}

/* Encodes a record of `entry` with the next sequence number to `ret`, which has room for it, and appends it. */
static int append_record(struct sw_manifest *m, enum sw_manifest_kind kind, const struct sw_manifest_entry *entry,
                         void *ret, struct sw_err *err) {
    if (kind == SW_MANIFEST_RELEASE) {
        encode_head(ret, kind, m->next_sequence, entry->id, NULL, 0);
        return append(m, ret, sizeof(struct sw_manifest_head), err);
    }
    encode_commit(m, ret, entry, m->next_sequence, entry->id);
    return append(m, ret, commit_bytes(entry), err);
}

/* In a full file system, dead records may make room. */
static int append_or_compact(struct sw_manifest *m, enum sw_manifest_kind kind, const struct sw_manifest_entry *entry,
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
    int rc = append_or_compact(m, SW_MANIFEST_COMMIT, entry, record, err);
    sw_free(record);
    if (rc)
        return rc;
    sw_list_append(&m->live, &entry->node);
    m->live_bytes += bytes;
    compact_if_due(m);
    return 0;
}

int sw_manifest_release(struct sw_manifest *m, struct sw_manifest_entry *entry, struct sw_err *err) {
    struct sw_manifest_head head;
    int rc = append_or_compact(m, SW_MANIFEST_RELEASE, entry, &head, err);
    if (rc)
        return rc;
    sw_list_remove(&entry->node);
    m->live_bytes -= commit_bytes(entry);
    compact_if_due(m);
    return 0;
}

/* --- reading --- */

static struct sw_extent *read_extents(const struct sw_manifest_commit *commit) {
    struct sw_extent *extents = sw_alloc_array(commit->n_extents, sizeof *extents);
    for (unsigned i = 0; extents && i < commit->n_extents; i++) {
        struct sw_manifest_extent extent;
        memcpy(&extent, commit->body + sizeof(struct sw_manifest_body) + i * sizeof extent, sizeof extent);
        extents[i] = (struct sw_extent){.offset = extent.offset, .bytes = extent.bytes};
    }
    return extents;
}

/* Returns the tier's entry for a frame that was found. NULL: out of memory. */
static struct sw_manifest_entry *hand_over(const struct sw_manifest *m, const struct sw_manifest_commit *commit) {
    struct sw_extent *extents = read_extents(commit);
    struct sw_manifest_entry *entry = NULL, frame = {.id = commit->id,
                                                     .extents = extents,
                                                     .n_extents = commit->n_extents,
                                                     .encrypted = m->config.encrypted && !commit->plain,
                                                     .doubtful = commit->doubtful};
    memcpy(frame.key, commit->body, sizeof frame.key);
    memcpy(&frame.bytes, commit->body + offsetof(struct sw_manifest_body, bytes), sizeof frame.bytes);
    if (extents)
        entry = m->config.found(m->config.arg, &frame);
    sw_free(extents);
    return entry;
}

/* Turns the frames that were found into the tier's entries, which become the live ones. */
static int adopt(struct sw_manifest *m, const struct sw_manifest_scan *scan, struct sw_err *err) {
    for (size_t i = 0; i < scan->n_commits; i++) {
        const struct sw_manifest_commit *commit = &scan->commits[i];
        if (!sw_manifest_commit_is_live(commit) || (m->config.lost && !commit->plain))
            continue;
        struct sw_manifest_entry *entry = hand_over(m, commit);
        if (!entry)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the frames of the manifest");
        entry->id = commit->id;
        entry->doubtful = commit->doubtful;
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

/* Adopts the content of the file. errors: -SW_EVERSION, -SW_ENOMEM. */
static int take_image(struct sw_manifest *m, const uint8_t *image, uint64_t bytes, uint64_t *ret_file_bytes,
                      struct sw_err *err) {
    struct sw_manifest_scan scan;
    int rc = sw_manifest_scan(&scan, image, bytes, err);
    if (rc)
        return rc;
    m->live_bytes = sizeof(struct sw_manifest_header);
    m->next_sequence = scan.next_sequence;
    m->end = scan.end;
    m->tail = scan.tail; /* the next append cuts it off */
    m->damage = (struct sw_manifest_damage){.n_places = scan.n_places,
                                            .at = scan.n_places ? scan.places[0].at : 0,
                                            .what = scan.n_places ? scan.places[0].what : NULL,
                                            .n_doubtful = scan.n_doubtful,
                                            .n_dropped = scan.n_dropped};
    *ret_file_bytes =
        scan.file_bytes ? scan.file_bytes : m->config.file_bytes; /* a wrong length shows when a frame is read */
    rc = adopt(m, &scan, err);
    sw_log(SW_LOG_DEBUG, "tier.nvme.replay",
           "bytes=%" PRIu64 " tail_bytes=%" PRIu64 " commits=%zu damaged=%zu error=%s", bytes,
           scan.tail ? bytes - scan.end : 0, scan.n_commits, scan.n_places, rc ? sw_err_name(rc) : "none");
    sw_manifest_scan_fini(&scan);
    return rc;
}

/* Loads the existing file. */
static int load(struct sw_manifest *m, struct sw_err *err) {
    uint8_t *image = NULL;
    uint64_t bytes = 0, file_bytes = 0;
    int rc = read_image(m, &image, &bytes, err);
    if (!rc)
        rc = take_image(m, image, bytes, &file_bytes, err);
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
    m->files = sw_nvme_file_ops_of(config->files);
    m->config.files = &m->files;
    m->compact_at = COMPACT_MIN_BYTES;
    m->spare = -1;
    m->next_sequence = 1;
    m->flushes = config->flushes;
    (void)pthread_mutex_init(&m->lock, NULL);
    sw_list_init(&m->live);
    m->fd = openat(config->directory, SW_MANIFEST_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
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
    (void)pthread_mutex_destroy(&m->lock);
    sw_free(m);
}
