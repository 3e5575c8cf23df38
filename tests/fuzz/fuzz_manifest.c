/* fuzz_manifest.c - any bytes as the manifest of an NVMe tier: first as they are, then with hashes and sequence numbers
 * made right, so that the code behind these checks is reached. The manifest is refused by name and left as it was, or
 * it is opened. Then the found frames do not overlap and lie inside the tier, and an undamaged manifest has them again.
 * A check of the folder from outside changes nothing, and reports the same. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/log.h"
#include "codec/checksum.h"
#include "spill/tier/nvme/manifest_scan.h"
#include "spill/tier/nvme/nvme_check.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/scratch.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Offsets as in MANIFEST.md. */
enum {
    HEADER_BYTES = 64,
    HEAD_BYTES = 32,
    MAX_BYTES = 64 << 10,
    CAPACITY_BYTES = 64 << 10,
    FILE_BYTES = 16 << 10,
    MAX_FRAMES = 64,
};

static char folder[SW_TEST_PATH_BYTES], path[SW_TEST_PATH_BYTES + 16];

static void write_image(const uint8_t *image, size_t bytes) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    SW_ASSERT(fd >= 0 && (bytes == 0 || write(fd, image, bytes) == (ssize_t)bytes) && close(fd) == 0);
}

static void check_image(const uint8_t *image, size_t bytes) {
    static uint8_t found[MAX_BYTES + 1];
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    SW_ASSERT(fd >= 0 && read(fd, found, sizeof found) == (ssize_t)bytes && close(fd) == 0);
    SW_ASSERT(bytes == 0 || memcmp(found, image, bytes) == 0);
}

struct frames {
    unsigned n;
    uint64_t blocks;
    uint64_t bytes[MAX_FRAMES];
    uint8_t keys[MAX_FRAMES][SW_TIER_KEY_BYTES];
    struct sw_stored stored[MAX_FRAMES];
    bool used[CAPACITY_BYTES / SW_TIER_IO_ALIGN];
};

static bool take(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored, bool doubtful) {
    (void)doubtful;
    struct frames *frames = arg;
    SW_ASSERT(frames->n < MAX_FRAMES);
    uint64_t bytes = 0;
    for (unsigned i = 0; i < stored->n_extents; i++) {
        const struct sw_extent *extent = &stored->extents[i];
        SW_ASSERT(extent->offset + extent->bytes <= CAPACITY_BYTES);
        for (uint64_t at = extent->offset; at < extent->offset + extent->bytes; at += SW_TIER_IO_ALIGN) {
            SW_ASSERT(!frames->used[at / SW_TIER_IO_ALIGN]);
            frames->used[at / SW_TIER_IO_ALIGN] = true;
            frames->blocks++;
        }
        bytes += extent->bytes;
    }
    SW_ASSERT(bytes == stored->bytes);
    memcpy(frames->keys[frames->n], key, SW_TIER_KEY_BYTES);
    frames->bytes[frames->n] = bytes;
    frames->stored[frames->n++] = *stored;
    return true;
}

static int open_tier(struct sw_tier **ret, struct frames *ret_frames, struct sw_err *err) {
    const struct sw_tier_nvme_config config = {.directory = folder,
                                               .capacity_bytes = CAPACITY_BYTES,
                                               .file_bytes = FILE_BYTES,
                                               .queue_depth = 1,
                                               .method = SW_TIER_NVME_THREADS};
    struct sw_tier_stats stats;
    memset(ret_frames, 0, sizeof *ret_frames);
    const int rc = sw_tier_nvme_open(ret, &config, err);
    if (rc < 0)
        return rc;
    (void)(*ret)->ops->recover(*ret, &(struct sw_tier_recovery){.take = take, .arg = ret_frames}, NULL);
    (*ret)->ops->stats(*ret, &stats);
    SW_ASSERT(stats.used_bytes == ret_frames->blocks * SW_TIER_IO_ALIGN && stats.committed_frames == ret_frames->n);
    return 0;
}

static void count_bad(const struct sw_checked_frame *frame, void *arg) {
    SW_ASSERT(frame->err.code && frame->err.msg[0]);
    ++*(unsigned *)arg;
}

static size_t damaged_places(struct sw_tier *tier) {
    struct sw_tier_nvme_info info;
    sw_tier_nvme_info(tier, &info);
    return info.damage.n_places;
}

/* The file lies at the end of its memory, so that a sanitizer sees reads behind it. */
static void scan_alone(const uint8_t *image, size_t bytes) {
    struct sw_manifest_scan scan;
    uint8_t *exact = malloc(bytes ? bytes : 1);
    SW_ASSERT(exact);
    if (bytes)
        memcpy(exact, image, bytes);
    if (sw_manifest_scan(&scan, exact, bytes, NULL) == 0) {
        SW_ASSERT(scan.n_doubtful + scan.n_dropped <= scan.n_commits && (!scan.tail || scan.end < bytes));
        sw_manifest_scan_fini(&scan);
    }
    free(exact);
}

static int check_from_outside(const uint8_t *image, size_t bytes, struct sw_nvme_check *ret) {
    unsigned n_bad = 0;
    struct sw_err err;
    const int rc = sw_nvme_check(ret, folder, FILE_BYTES, count_bad, &n_bad, &err);
    SW_ASSERT(rc == 0 || rc == -SW_EVERSION);
    SW_ASSERT(rc || (n_bad == ret->n_bad && ret->n_read == ret->n_frames && !ret->in_use));
    check_image(image, bytes);
    return rc;
}

static void run(const uint8_t *image, size_t bytes) {
    struct sw_nvme_check check;
    static struct frames frames, again;
    struct sw_tier *tier;
    struct sw_err err = {0};
    const long live = sw_alloc_live();
    write_image(image, bytes);
    scan_alone(image, bytes);
    const int rc_check = check_from_outside(image, bytes, &check), rc = open_tier(&tier, &frames, &err);
    if (rc < 0) {
        SW_ASSERT(rc == -SW_EVERSION || rc == -SW_ECONFIG);
        SW_ASSERT((rc == -SW_EVERSION) == (rc_check == -SW_EVERSION) && err.code == rc && err.msg[0]);
        check_image(image, bytes);
    } else {
        SW_ASSERT((damaged_places(tier) > 0) == (check.n_places > 0 || frames.n < check.n_frames));
        /* The first is released, and the others are what the next one finds. */
        if (frames.n > 0)
            tier->ops->release(tier, &frames.stored[0]);
        tier->ops->close(tier);
        SW_ASSERT(open_tier(&tier, &again, &err) == 0 && damaged_places(tier) == 0);
        SW_ASSERT(again.n == frames.n - (frames.n > 0));
        SW_ASSERT(again.n == 0 || memcmp(again.bytes, frames.bytes + 1, again.n * sizeof again.bytes[0]) == 0);
        SW_ASSERT(again.n == 0 || memcmp(again.keys, frames.keys + 1, again.n * sizeof again.keys[0]) == 0);
        tier->ops->close(tier);
    }
    SW_ASSERT(sw_alloc_live() == live);
}

static uint32_t hash_of(const uint8_t *data, size_t bytes) {
    return sw_hash_finish(sw_hash_update(1, data, bytes));
}

static void put32(uint8_t *at, uint32_t value) {
    memcpy(at, &value, sizeof value);
}

static void put64(uint8_t *at, uint64_t value) {
    memcpy(at, &value, sizeof value);
}

/* A record whose body is longer than the rest of the file gets the rest. Otherwise lengths, kinds and ids stay as they
 * are. */
static void make_right(uint8_t *image, size_t bytes) {
    uint64_t sequence = 1;
    if (bytes < HEADER_BYTES)
        return;
    memcpy(image, "SPWMANIF", 8);
    put32(image + 8, 1);
    put32(image + 12, SW_TIER_IO_ALIGN);
    put64(image + 16, FILE_BYTES);
    put64(image + 24, sequence);
    memset(image + 32, 0, 28);
    put32(image + 60, hash_of(image, 60));
    for (size_t at = HEADER_BYTES; at + HEAD_BYTES <= bytes;) {
        const size_t most = bytes - at - HEAD_BYTES;
        uint32_t body_bytes;
        memcpy(&body_bytes, image + at + 8, sizeof body_bytes);
        body_bytes = body_bytes <= most ? body_bytes : (uint32_t)most;
        put32(image + at + 8, body_bytes);
        put32(image + at + 4, hash_of(image + at + HEAD_BYTES, body_bytes));
        put64(image + at + 16, sequence++);
        put32(image + at, hash_of(image + at + 4, HEAD_BYTES - 4));
        at += HEAD_BYTES + body_bytes;
    }
}

/* A tier's folder, whatever its manifest becomes: a file that is named as one elsewhere is another's, and not read. */
static void begin(void) {
    static struct frames none;
    struct sw_tier *tier;
    struct sw_err err = {0};
    sw_log_set_level(SW_LOG_ERROR);
    sw_test_scratch_begin();
    sw_test_folder_in_memory(folder);
    (void)snprintf(path, sizeof path, "%s/manifest", folder);
    SW_ASSERT(atexit(sw_test_scratch_end) == 0);
    SW_ASSERT(open_tier(&tier, &none, &err) == 0);
    tier->ops->close(tier);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (!folder[0])
        begin();
    if (size > MAX_BYTES)
        return 0;
    run(data, size);
    uint8_t *image = malloc(size ? size : 1);
    SW_ASSERT(image);
    if (size)
        memcpy(image, data, size);
    make_right(image, size);
    run(image, size);
    free(image);
    return 0;
}
