#include "spill/tier/nvme/ledger.h"

#include "base/alloc.h"
#include "codec/checksum.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC "SPWNAMES"
enum { VERSION = 1, ALIGN = 8, COMPACT_MIN_BYTES = 64 << 10 };
enum kind { KIND_KEEP = 1, KIND_FORGET = 2 };

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they lie in memory");

struct header {
    char magic[8];
    uint32_t version;
    uint8_t zero[48];
    uint32_t hash; /* of the bytes before */
};
_Static_assert(sizeof(struct header) == 64, "as MANIFEST.md has it");

struct head {
    uint32_t hash, body_hash, body_bytes, kind; /* hash: of the rest of the head */
    uint64_t sequence;                          /* rises */
    uint64_t number;                            /* of the record that is kept or forgotten */
    uint32_t n_batch, batch_index;              /* records that count together; the place of this one */
};
_Static_assert(sizeof(struct head) == 40, "as MANIFEST.md has it");

/* A live record. */
struct record {
    struct sw_list node;
    uint64_t number;
    uint32_t n_missing; /* while the file is read: records of its batch that were not found */
    uint32_t bytes;
    uint8_t content[];
};

struct sw_ledger {
    int directory, fd; /* fd -1: there is no file */
    const struct sw_nvme_file_ops *files;
    struct sw_list live; /* numbers ascending */
    size_t n_live, n_damaged;
    uint64_t end, live_bytes; /* of the file; of its header and of live records */
    uint64_t next_sequence, next_number;
    bool must_rewrite; /* the file has bytes that do not count, or a change of it has failed */
};

static uint32_t hash_of(const void *data, size_t bytes) {
    return sw_hash_finish(sw_hash_update(2, data, bytes));
}

static uint32_t head_hash(const struct head *head) {
    return hash_of((const char *)head + sizeof head->hash, sizeof *head - sizeof head->hash);
}

static size_t padded(size_t bytes) {
    return (bytes + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t record_bytes(size_t content_bytes) {
    return sizeof(struct head) + padded(content_bytes);
}

static int failed(struct sw_err *err, const char *call) {
    const int cause = errno;
    (void)sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_REQUEST, "the list of durable regions cannot be written: %s",
                     strerror(cause));
    (void)sw_err_detail(err, "%s of " SW_LEDGER_FILE ": %s", call, strerror(cause));
    return sw_nvme_error(cause);
}

/* ---- live records ---- */

static struct record *find(const struct sw_ledger *l, uint64_t number) {
    for (struct sw_list *node = l->live.next; node != &l->live; node = node->next) {
        struct record *record = SW_CONTAINER_OF(node, struct record, node);
        if (record->number == number)
            return record;
    }
    return NULL;
}

static struct record *record_new(const void *content, size_t bytes, uint64_t number) {
    struct record *record = sw_alloc(sizeof *record + bytes);
    if (!record)
        return NULL;
    sw_list_init(&record->node);
    record->number = number;
    record->bytes = (uint32_t)bytes;
    memcpy(record->content, content, bytes);
    return record;
}

static void add(struct sw_ledger *l, struct record *record) {
    sw_list_append(&l->live, &record->node);
    l->n_live++;
    l->live_bytes += record_bytes(record->bytes);
}

static void drop(struct sw_ledger *l, struct record *record) {
    if (!record)
        return;
    sw_list_remove(&record->node);
    l->n_live--;
    l->live_bytes -= record_bytes(record->bytes);
    sw_free(record);
}

/* ---- writing ---- */

/* Bytes to be written. */
struct image {
    uint8_t *bytes;
    size_t n;
};

static void put(struct image *image, struct head head, const void *body) {
    uint8_t *at = image->bytes + image->n;
    head.body_hash = hash_of(body, head.body_bytes);
    head.hash = head_hash(&head);
    memset(at, 0, record_bytes(head.body_bytes));
    memcpy(at, &head, sizeof head);
    if (head.body_bytes)
        memcpy(at + sizeof head, body, head.body_bytes);
    image->n += record_bytes(head.body_bytes);
}

static int write_all(const struct sw_ledger *l, int fd, const struct image *image, uint64_t offset,
                     struct sw_err *err) {
    for (size_t done = 0; done < image->n;) {
        const ssize_t n = l->files->pwrite(fd, image->bytes + done, image->n - done, (off_t)(offset + done));
        if (n < 0 && errno == EINTR)
            continue;
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return failed(err, "pwrite");
        done += (size_t)n;
    }
    return 0;
}

/* Writes the new file, flushes it, and puts it in the old one's place, also in the directory on the disk. */
static int replace(struct sw_ledger *l, const struct image *image, struct sw_err *err) {
    const int fd = openat(l->directory, SW_LEDGER_NEW_FILE, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(err, "openat");
    int rc = write_all(l, fd, image, 0, err);
    if (!rc && l->files->sync(fd, false))
        rc = failed(err, "fdatasync");
    if (!rc && l->files->rename(l->directory, SW_LEDGER_NEW_FILE, SW_LEDGER_FILE))
        rc = failed(err, "renameat");
    if (rc) {
        (void)close(fd);
        return rc;
    }
    if (l->fd >= 0)
        (void)close(l->fd);
    l->fd = fd;
    l->end = image->n;
    return l->files->sync(l->directory, true) ? failed(err, "fsync of the directory") : 0;
}

/* Writes a file with the live records alone. */
static int rewrite(struct sw_ledger *l, struct sw_err *err) {
    struct header header = {.magic = MAGIC, .version = VERSION};
    struct image image = {.bytes = sw_alloc((size_t)l->live_bytes)};
    if (!image.bytes)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the list of durable regions");
    header.hash = hash_of(&header, offsetof(struct header, hash));
    memcpy(image.bytes, &header, sizeof header);
    image.n = sizeof header;
    for (const struct sw_list *node = l->live.next; node != &l->live; node = node->next) {
        const struct record *record = SW_CONTAINER_OF(node, const struct record, node);
        put(&image,
            (struct head){.kind = KIND_KEEP,
                          .sequence = l->next_sequence++,
                          .number = record->number,
                          .body_bytes = record->bytes,
                          .n_batch = 1},
            record->content);
    }
    const int rc = replace(l, &image, err);
    l->must_rewrite = rc != 0;
    sw_free(image.bytes);
    return rc;
}

static size_t change_bytes(const struct sw_tier_change *change) {
    size_t bytes = 0;
    for (unsigned i = 0; i < change->n; i++)
        bytes += record_bytes(change->kind == SW_TIER_KEEP ? change->records[i].bytes : 0);
    return bytes;
}

static void encode(struct sw_ledger *l, const struct sw_tier_change *change, struct image *image) {
    const bool keeps = change->kind == SW_TIER_KEEP;
    for (unsigned i = 0; i < change->n; i++) {
        struct sw_tier_record *record = &change->records[i];
        if (keeps)
            record->number = l->next_number++;
        put(image,
            (struct head){.kind = keeps ? KIND_KEEP : KIND_FORGET,
                          .sequence = l->next_sequence++,
                          .number = record->number,
                          .body_bytes = keeps ? (uint32_t)record->bytes : 0,
                          .n_batch = keeps ? change->n : 1,
                          .batch_index = keeps ? i : 0},
            record->content);
    }
}

/* Appends the changes and flushes them. After a failure their bytes may be in the file, so it is rewritten before the
 * next change. */
static int append(struct sw_ledger *l, const struct sw_list *changes, struct sw_err *err) {
    size_t bytes = 0;
    for (const struct sw_list *node = changes->next; node != changes; node = node->next)
        bytes += change_bytes(SW_CONTAINER_OF(node, const struct sw_tier_change, node));
    struct image image = {.bytes = sw_alloc(bytes ? bytes : 1)};
    if (!image.bytes)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the list of durable regions");
    for (const struct sw_list *node = changes->next; node != changes; node = node->next)
        encode(l, SW_CONTAINER_OF(node, const struct sw_tier_change, node), &image);
    int rc = write_all(l, l->fd, &image, l->end, err);
    if (!rc && l->files->sync(l->fd, false))
        rc = failed(err, "fdatasync");
    l->end += rc ? 0 : image.n;
    l->must_rewrite |= rc != 0;
    sw_free(image.bytes);
    return rc;
}

/* Makes what the file says true in memory. */
static void apply(struct sw_ledger *l, const struct sw_tier_change *change, struct sw_list *fresh) {
    for (unsigned i = 0; i < change->n; i++) {
        if (change->kind == SW_TIER_FORGET)
            drop(l, find(l, change->records[i].number));
        else
            add(l, SW_CONTAINER_OF(sw_list_take_first(fresh), struct record, node));
    }
}

static void free_all(struct sw_list *records) {
    struct sw_list *node;
    while ((node = sw_list_take_first(records)))
        sw_free(SW_CONTAINER_OF(node, struct record, node));
}

/* Copies the contents that are to be kept, before anything is written. */
static int copy_fresh(const struct sw_list *changes, struct sw_list *ret, struct sw_err *err) {
    for (const struct sw_list *node = changes->next; node != changes; node = node->next) {
        const struct sw_tier_change *change = SW_CONTAINER_OF(node, const struct sw_tier_change, node);
        for (unsigned i = 0; change->kind == SW_TIER_KEEP && i < change->n; i++) {
            struct record *record = record_new(change->records[i].content, change->records[i].bytes, 0);
            if (!record)
                return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a durable region");
            sw_list_append(ret, &record->node);
        }
    }
    return 0;
}

static void set_numbers(const struct sw_list *changes, const struct sw_list *fresh) {
    const struct sw_list *at = fresh->next;
    for (const struct sw_list *node = changes->next; node != changes; node = node->next) {
        const struct sw_tier_change *change = SW_CONTAINER_OF(node, const struct sw_tier_change, node);
        for (unsigned i = 0; change->kind == SW_TIER_KEEP && i < change->n; i++, at = at->next)
            SW_CONTAINER_OF(at, struct record, node)->number = change->records[i].number;
    }
}

int sw_ledger_change(struct sw_ledger *l, const struct sw_list *changes, struct sw_err *err) {
    struct sw_list fresh;
    sw_list_init(&fresh);
    int rc = copy_fresh(changes, &fresh, err);
    if (!rc && (l->fd < 0 || l->must_rewrite || (l->end > COMPACT_MIN_BYTES && l->end / 4 > l->live_bytes)))
        rc = rewrite(l, err);
    if (!rc)
        rc = append(l, changes, err);
    if (rc) {
        if (l->must_rewrite) /* a change that has failed should not be found later */
            (void)rewrite(l, NULL);
        free_all(&fresh);
        return rc;
    }
    set_numbers(changes, &fresh);
    for (const struct sw_list *node = changes->next; node != changes; node = node->next)
        apply(l, SW_CONTAINER_OF(node, const struct sw_tier_change, node), &fresh);
    return 0;
}

/* ---- reading ---- */

/* Returns the length of the whole record that begins there; 0: there is none. */
static size_t record_at(const struct sw_ledger *l, const uint8_t *image, uint64_t left, struct head *ret) {
    if (left < sizeof *ret)
        return 0;
    memcpy(ret, image, sizeof *ret);
    const size_t bytes = record_bytes(ret->body_bytes);
    if (ret->hash != head_hash(ret) || bytes > left || ret->body_hash != hash_of(image + sizeof *ret, ret->body_bytes))
        return 0;
    const bool is_known = (ret->kind == KIND_KEEP && ret->body_bytes > 0 && ret->batch_index < ret->n_batch) ||
                          (ret->kind == KIND_FORGET && ret->body_bytes == 0);
    return is_known && ret->sequence >= l->next_sequence ? bytes : 0;
}

/* Takes a record. The records of a batch follow each other, and count when the last one has been read. */
static int take(struct sw_ledger *l, const struct head *head, const uint8_t *body) {
    l->next_sequence = head->sequence + 1;
    l->next_number = head->number >= l->next_number ? head->number + 1 : l->next_number;
    if (head->kind == KIND_FORGET) {
        drop(l, find(l, head->number));
        return 0;
    }
    struct record *record = record_new(body, head->body_bytes, head->number);
    if (!record)
        return -SW_ENOMEM;
    record->n_missing = head->n_batch - 1;
    add(l, record);
    for (struct sw_list *node = record->node.prev; node != &l->live; node = node->prev) {
        struct record *other = SW_CONTAINER_OF(node, struct record, node);
        if (record->number - other->number > head->batch_index)
            break;
        other->n_missing -= other->n_missing > 0;
        record->n_missing -= record->n_missing > 0;
    }
    return 0;
}

static void drop_incomplete(struct sw_ledger *l) {
    for (struct sw_list *node = l->live.next, *next; node != &l->live; node = next) {
        struct record *record = SW_CONTAINER_OF(node, struct record, node);
        next = node->next;
        if (record->n_missing == 0)
            continue;
        l->must_rewrite = true;
        drop(l, record);
    }
}

static int scan(struct sw_ledger *l, const uint8_t *image, uint64_t bytes, struct sw_err *err) {
    bool is_whole = true;
    for (uint64_t at = sizeof(struct header); at < bytes;) {
        struct head head;
        const size_t n = record_at(l, image + at, bytes - at, &head);
        if (n && take(l, &head, image + at + sizeof head))
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the durable regions");
        l->n_damaged += !n && is_whole;
        is_whole = n > 0;
        at += n ? n : ALIGN;
    }
    l->end = bytes;
    l->must_rewrite = l->n_damaged > 0;
    drop_incomplete(l);
    return 0;
}

static int check_header(const uint8_t *image, uint64_t bytes, struct sw_err *err) {
    struct header header;
    if (bytes >= sizeof header)
        memcpy(&header, image, sizeof header);
    if (bytes < sizeof header || memcmp(header.magic, MAGIC, sizeof header.magic) != 0 ||
        header.hash != hash_of(&header, offsetof(struct header, hash)))
        return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_DAEMON,
                          "the list of durable regions (" SW_LEDGER_FILE ") is damaged: restore it, or remove it and "
                          "give up the regions");
    if (header.version != VERSION)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON,
                          "the list of durable regions has version %" PRIu32 ", this program reads %d", header.version,
                          VERSION);
    return 0;
}

static int load(struct sw_ledger *l, struct sw_err *err) {
    struct stat st;
    if (fstat(l->fd, &st) != 0)
        return sw_err_set(err, sw_nvme_error(errno), SW_SCOPE_DAEMON, "the list of durable regions cannot be read: %s",
                          strerror(errno));
    uint8_t *image = sw_alloc((size_t)st.st_size + 1);
    if (!image)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the durable regions");
    int rc = 0;
    for (off_t at = 0; !rc && at < st.st_size;) {
        const ssize_t n = l->files->pread(l->fd, image + at, (size_t)(st.st_size - at), at);
        if (n <= 0 && !(n < 0 && errno == EINTR))
            rc = sw_err_set(err, n < 0 ? sw_nvme_error(errno) : -SW_EIO, SW_SCOPE_DAEMON,
                            "the list of durable regions cannot be read: %s", strerror(n < 0 ? errno : EIO));
        at += n > 0 ? n : 0;
    }
    if (!rc)
        rc = check_header(image, (uint64_t)st.st_size, err);
    if (!rc)
        rc = scan(l, image, (uint64_t)st.st_size, err);
    sw_free(image);
    return rc;
}

int sw_ledger_open(struct sw_ledger **ret, int directory, const struct sw_nvme_file_ops *files, struct sw_err *err) {
    struct sw_ledger *l = sw_alloc(sizeof *l);
    if (!l)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the durable regions");
    l->directory = directory;
    l->files = files;
    l->live_bytes = sizeof(struct header);
    l->next_sequence = l->next_number = 1;
    sw_list_init(&l->live);
    l->fd = openat(directory, SW_LEDGER_FILE, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
    int rc = 0;
    if (l->fd >= 0)
        rc = load(l, err);
    else if (errno != ENOENT)
        rc = sw_err_set(err, sw_nvme_error(errno), SW_SCOPE_DAEMON, "the list of durable regions cannot be opened: %s",
                        strerror(errno));
    if (rc)
        sw_ledger_close(l);
    else
        *ret = l;
    return rc;
}

void sw_ledger_close(struct sw_ledger *l) {
    if (!l)
        return;
    free_all(&l->live);
    if (l->fd >= 0)
        (void)close(l->fd);
    sw_free(l);
}

size_t sw_ledger_n_records(const struct sw_ledger *l) {
    return l->n_live;
}

size_t sw_ledger_n_damaged(const struct sw_ledger *l) {
    return l->n_damaged;
}

int sw_ledger_visit(const struct sw_ledger *l,
                    int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                    struct sw_err *err) {
    int rc = 0;
    for (const struct sw_list *node = l->live.next; !rc && node != &l->live; node = node->next) {
        const struct record *record = SW_CONTAINER_OF(node, const struct record, node);
        const struct sw_tier_record found = {
            .number = record->number, .content = record->content, .bytes = record->bytes};
        rc = visit(arg, &found, err);
    }
    return rc;
}
