/* The NVMe tier's manifest, torn, damaged or full of nonsense. */
#include "codec/checksum.h"
#include "spill/tier/nvme/manifest.h"
#include "spill/tier/nvme/manifest_format.h"
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define BLOCK ((uint64_t)SW_TIER_IO_ALIGN)

struct image {
    size_t bytes;
    uint8_t data[4096];
};

static void image_read(struct image *ret) {
    char path[96];
    FILE *file = fopen(sw_nvme_path(path, "manifest"), "rb");
    ck_assert_ptr_nonnull(file);
    ret->bytes = fread(ret->data, 1, sizeof ret->data, file);
    (void)fclose(file);
}

static void image_write(const struct image *image) {
    char path[96];
    FILE *file = fopen(sw_nvme_path(path, "manifest"), "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(image->data, 1, image->bytes, file), image->bytes);
    (void)fclose(file);
}

/* Two frames and the record of one that was released between them. */
static struct sw_tier_nvme_config write_small_manifest(struct image *ret) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(64 * KIB, SW_TIER_NVME_THREADS);
    config.queue_depth = 1;
    struct sw_tier *tier = sw_nvme_open(&config);
    struct sw_stored stored[3];
    struct sw_err err = {0};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_nvme_put(tier, 5000, i + 1, &stored[i], &err), 0);
        if (i == 1)
            tier->ops->release(tier, &stored[i]);
    }
    tier->ops->close(tier);
    image_read(ret);
    return config;
}

/* Where the records of the small manifest begin: commits of frame 1, frame 2, the release of frame 2, the commit of
 * frame 3, which lies where frame 2 lay. */
enum { AT_1 = 64, AT_2 = 152, AT_RELEASE = 240, AT_3 = 272, AT_END = 360 };

static struct sw_manifest_damage damage_of(struct sw_tier *tier) {
    struct sw_tier_nvme_info info;
    sw_tier_nvme_info(tier, &info);
    return info.damage;
}

/* A damaged record loses at most its frame. A lost release brings no frame back whose space was reused. The file stays
 * unchanged until the frames are handed over; then it is whole again. */
START_TEST(test_a_damaged_byte_costs_one_record) {
    struct image image, damaged, after;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    struct sw_nvme_recovered r;
    ck_assert_uint_eq(image.bytes, AT_END);
    for (size_t at = 0; at < image.bytes; at++) {
        const uint64_t *want = at >= AT_1 && at < AT_2 ? SW_NVME_FRAMES(3)
                               : at >= AT_3            ? SW_NVME_FRAMES(1)
                                                       : SW_NVME_FRAMES(1, 3);
        damaged = image;
        damaged.data[at] ^= at % 2 ? 1 : 0x80;
        image_write(&damaged);
        struct sw_tier *tier = sw_nvme_open(&config);
        const struct sw_manifest_damage damage = damage_of(tier);
        ck_assert_msg(damage.n_places == 1 && damage.what, "byte %zu: %zu places", at, damage.n_places);
        ck_assert_uint_eq(damage.at, at < AT_1         ? 0
                                     : at < AT_2       ? AT_1
                                     : at < AT_RELEASE ? AT_2
                                     : at < AT_3       ? AT_RELEASE
                                                       : AT_3);
        ck_assert_uint_eq(damage.n_dropped, at >= AT_RELEASE && at < AT_3);
        tier->ops->close(tier);
        image_read(&after);
        ck_assert_uint_eq(after.bytes, image.bytes);
        ck_assert_int_eq(memcmp(after.data, damaged.data, image.bytes), 0);
        tier = sw_nvme_reopen(&config, want, &r);
        ck_assert_uint_eq(r.n_doubtful, at >= AT_2); /* frame 1 was committed before, and 3 is lost or behind it */
        tier->ops->close(tier);
        tier = sw_nvme_reopen(&config, want, &r);
        ck_assert_msg(damage_of(tier).n_places == 0, "byte %zu: not mended", at);
        ck_assert_uint_eq(r.n_doubtful, 0);
        tier->ops->close(tier);
    }
}
END_TEST

/* Records are appended behind damage as behind anything, and numbers are not used again. */
START_TEST(test_records_after_damage_are_found) {
    static const size_t places[] = {8, AT_1 + 40, AT_1, AT_2, AT_RELEASE, AT_3, AT_3 + 50};
    struct image image, damaged;
    for (unsigned i = 0; i < sizeof places / sizeof places[0]; i++)
        for (unsigned cut = 0; cut < 2; cut++) { /* and a record that was not written in full */
            struct sw_nvme_recovered r;
            struct sw_stored stored;
            struct sw_err err;
            char path[96];
            (void)unlink(sw_nvme_path(path, "manifest"));
            struct sw_tier_nvme_config config = write_small_manifest(&image);
            damaged = image;
            damaged.data[places[i]] ^= 4;
            damaged.bytes -= cut * 9;
            image_write(&damaged);
            const bool has_1 = places[i] < AT_1 || places[i] >= AT_2, has_3 = places[i] < AT_3 && !cut;
            uint64_t want[SW_NVME_MAX_WANT] = {has_1 ? 1 : has_3 ? 3 : 0, has_1 && has_3 ? 3 : 0};
            const unsigned n = (unsigned)has_1 + has_3;
            if (places[i] == AT_RELEASE && cut)
                continue; /* frame 2 seems to be there: its reader finds out */
            struct sw_tier *tier = sw_nvme_reopen(&config, want, &r);
            ck_assert_int_eq(sw_nvme_put(tier, 6000, 9, &stored, &err), 0);
            tier->ops->close(tier);
            want[n] = 9;
            tier = sw_nvme_reopen(&config, want, &r);
            ck_assert_uint_eq(damage_of(tier).n_places, 0);
            tier->ops->close(tier);
        }
}
END_TEST

/* States after a power cut where no frame is known: zeros for records, an empty file, any damage. Remains of another
 * kind of tier are treated alike. */
START_TEST(test_an_unwanted_damaged_tier_is_removed) {
    struct image image, damaged;
    struct sw_tier_nvme_config config = write_small_manifest(&image), other = config;
    struct sw_tier_nvme_info info;
    struct sw_nvme_recovered r;
    struct sw_stored stored;
    struct sw_err err = {0};
    config.unwanted = true;
    for (unsigned way = 0; way < 5; way++) {
        damaged = image;
        if (way == 0)
            damaged.bytes = 0;
        else if (way == 1)
            memset(damaged.data + 64, 0, damaged.bytes - 64);
        else if (way == 2)
            memset(damaged.data + damaged.bytes, 0, 1000), damaged.bytes += 1000;
        else if (way == 3)
            damaged.data[8]++; /* the version, under a wrong hash */
        image_write(&damaged);
        const int code = way == 4 ? -SW_ECONFIG : -SW_ECHECKSUM;
        config.file_bytes = way == 4 ? 2 * other.file_bytes : other.file_bytes;
        struct sw_tier *tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(0), &r);
        sw_tier_nvme_info(tier, &info);
        ck_assert_msg(info.emptied.code == code, "way %u: %s", way, info.emptied.msg);
        ck_assert_uint_gt(strlen(info.emptied.msg), 0);
        ck_assert_int_eq(sw_nvme_put(tier, 9000, 5, &stored, &err), 0);
        tier->ops->close(tier);
        config.unwanted = false;
        tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(5), &r);
        sw_tier_nvme_info(tier, &info);
        ck_assert_int_eq(info.emptied.code, 0);
        tier->ops->close(tier);
        config.unwanted = true;
    }
    struct sw_tier *tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(5), &r); /* nothing is wrong with it */
    tier->ops->close(tier);
}
END_TEST

/* A kill leaves any prefix. Header 64, commits 32 + 40 + 16, release 32. */
START_TEST(test_a_torn_tail_is_cut_off) {
    static const uint64_t none[SW_NVME_MAX_WANT] = {0}, first[SW_NVME_MAX_WANT] = {1}, both[SW_NVME_MAX_WANT] = {1, 2},
                          last[SW_NVME_MAX_WANT] = {1, 3};
    struct image image, cut;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    ck_assert_uint_eq(image.bytes, 64 + 3 * 88 + 32);
    for (size_t bytes = image.bytes + 1; bytes-- > 0;) { /* downwards: frames are overwritten when they are gone */
        struct sw_tier *tier = NULL;
        struct sw_nvme_recovered r;
        struct sw_stored stored;
        struct sw_err err = {0};
        cut = image;
        cut.bytes = bytes;
        image_write(&cut);
        if (bytes < 64) {
            tier = sw_nvme_reopen(&config, none, &r);
            ck_assert_uint_eq(damage_of(tier).n_places, 1);
            tier->ops->close(tier);
            continue;
        }
        /* Frame 3 lies where frame 2 lay. While 2 counts, only this test overwrites it. */
        const uint64_t *want = bytes < 152   ? none
                               : bytes < 240 ? first
                               : bytes < 272 ? both
                               : bytes < 360 ? first
                                             : last;
        if (want == both)
            continue;
        tier = sw_nvme_reopen(&config, want, &r);
        ck_assert_uint_eq(damage_of(tier).n_places, 0);
        ck_assert_int_eq(sw_nvme_put(tier, 100, 9, &stored, &err), 0); /* behind the part that was cut off */
        tier->ops->close(tier);
        uint64_t more[SW_NVME_MAX_WANT] = {0};
        memcpy(more, want, sizeof more);
        more[r.n] = 9;
        tier = sw_nvme_reopen(&config, more, &r);
        tier->ops->close(tier);
    }
}
END_TEST

/* --- records that are right in themselves, by way of the manifest alone --- */

static const struct sw_nvme_file_ops plain_files = {.pwrite = pwrite, .pread = pread};

/* Frames that a manifest hands over, in this test's memory. */
struct found {
    unsigned n;
    int directory; /* of the manifest that was opened last; 0: none */
    struct sw_manifest_entry entries[8];
    struct sw_extent extents[8][2];
};

static struct sw_manifest_entry *keep_found(void *arg, const struct sw_manifest_entry *frame) {
    struct found *found = arg;
    ck_assert_uint_lt(found->n, 8);
    ck_assert_uint_le(frame->n_extents, 2);
    struct sw_manifest_entry *entry = &found->entries[found->n];
    *entry = *frame;
    memcpy(found->extents[found->n], frame->extents, frame->n_extents * sizeof *frame->extents);
    entry->extents = found->extents[found->n++];
    sw_list_init(&entry->node);
    return entry;
}

static struct sw_manifest *open_manifest(struct found *ret) {
    char path[96];
    struct sw_manifest_config config = {.file_bytes = 1 << 20, .files = &plain_files, .found = keep_found, .arg = ret};
    struct sw_manifest *manifest = NULL;
    struct sw_err err = {0};
    ret->n = 0;
    if (ret->directory > 0)
        (void)close(ret->directory);
    config.directory = ret->directory = open(sw_nvme_path(path, ""), O_RDONLY | O_DIRECTORY);
    ck_assert_msg(sw_manifest_open(&manifest, &config, &err) == 0, "%s", err.msg);
    return manifest;
}

struct frame {
    uint64_t bytes;
    struct sw_extent extents[2];
    bool released;
};

static void write_frames(const struct frame *frames, unsigned n) {
    static struct found found;
    char path[96];
    struct sw_manifest_entry entries[8];
    struct sw_err err = {0};
    (void)unlink(sw_nvme_path(path, "manifest"));
    struct sw_manifest *manifest = open_manifest(&found);
    for (unsigned i = 0; i < n; i++) {
        entries[i] = (struct sw_manifest_entry){.key = {(uint8_t)(i + 1)}, .bytes = frames[i].bytes};
        entries[i].extents = frames[i].extents;
        entries[i].n_extents = frames[i].extents[1].bytes ? 2 : 1;
        sw_list_init(&entries[i].node);
        ck_assert_int_eq(sw_manifest_commit(manifest, &entries[i], &err), 0);
    }
    for (unsigned i = 0; i < n; i++)
        if (frames[i].released)
            ck_assert_int_eq(sw_manifest_release(manifest, &entries[i], &err), 0);
    sw_manifest_close(manifest);
    (void)close(found.directory);
    found.directory = 0;
}

/* If frames overlap, the last one counts. A frame that a later one overlaps was released, even if the later one is
 * gone. */
START_TEST(test_the_last_of_overlapping_frames_counts) {
    static const struct {
        struct frame frames[3];
        unsigned n;
        uint8_t want[3];
    } cases[] = {
        {{{8192, {{NULL, 0, 8192}}, false}, {8192, {{NULL, 8192, 8192}}, false}}, 2, {1, 2}},
        {{{8192, {{NULL, 0, 8192}}, false}, {4096, {{NULL, 4096, 4096}}, false}}, 2, {2}},
        {{{8192, {{NULL, 0, 8192}}, false}, {4096, {{NULL, 0, 4096}}, false}}, 2, {2}},
        {{{4096, {{NULL, 4096, 4096}}, false}, {12288, {{NULL, 0, 12288}}, false}}, 2, {2}},
        {{{8192, {{NULL, 0, 8192}}, false}, {4096, {{NULL, 4096, 4096}}, true}}, 2, {0}},
        {{{8192, {{NULL, 0, 8192}}, true}, {4096, {{NULL, 4096, 4096}}, false}}, 2, {2}},
        {{{8192, {{NULL, 0, 8192}}, false}, {8192, {{NULL, 4096, 8192}}, false}, {8192, {{NULL, 8192, 8192}}, false}},
         3,
         {3}},
        {{{8192, {{NULL, 0, 4096}, {NULL, 16384, 4096}}, false}, {4000, {{NULL, 16384, 4000}}, false}}, 2, {2}},
        {{{4097, {{NULL, 0, 4097}}, false}, {1, {{NULL, 4096, 1}}, false}}, 2, {2}}, /* within a block */
        {{{4096, {{NULL, 0, 4096}}, false}, {1, {{NULL, 4096, 1}}, false}}, 2, {1, 2}},
        {{{8192, {{NULL, 4096, 4096}, {NULL, 4096, 4096}}, false}, {1, {{NULL, 0, 1}}, false}}, 2, {2}}, /* itself */
    };
    static struct found found;
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        unsigned n = 0;
        write_frames(cases[i].frames, cases[i].n);
        struct sw_manifest *manifest = open_manifest(&found);
        while (n < 3 && cases[i].want[n])
            n++;
        ck_assert_msg(found.n == n, "case %u: %u frames", i, found.n);
        for (unsigned k = 0; k < n; k++)
            ck_assert_msg(found.entries[k].key[0] == cases[i].want[k], "case %u: frame %u", i, found.entries[k].key[0]);
        unsigned n_live = 0;
        for (unsigned k = 0; k < cases[i].n; k++)
            n_live += !cases[i].frames[k].released;
        ck_assert_int_eq(sw_manifest_damage(manifest) != NULL, n != n_live);
        sw_manifest_close(manifest);
    }
    (void)close(found.directory);
}
END_TEST

/* A process may be killed at any moment before the file is whole again: frames in doubt stay in doubt until they are
 * confirmed. */
START_TEST(test_doubt_ends_only_with_a_repair) {
    static const struct frame frames[] = {
        {4096, {{NULL, 0, 4096}}, false}, {4096, {{NULL, 8192, 4096}}, true}, {4096, {{NULL, 16384, 4096}}, false}};
    static struct found found;
    struct image image;
    struct sw_err err = {0};
    for (unsigned way = 0; way < 3; way++) {
        write_frames(frames, 3);
        image_read(&image);
        image.data[way == 2 ? AT_1 + 2 * 88 + 33 : image.bytes - 1] ^=
            1; /* the last commit, or the release behind it */
        image_write(&image);
        struct sw_manifest *manifest = open_manifest(&found);
        ck_assert_uint_eq(found.n, way == 2 ? 1 : 3);
        struct sw_manifest_entry more = {.key = {9}, .bytes = 1, .n_extents = 1};
        const struct sw_extent extent = {.offset = 32768, .bytes = 1};
        more.extents = &extent;
        sw_list_init(&more.node);
        if (way == 0)
            ck_assert_int_eq(sw_manifest_release(manifest, &found.entries[1], &err), 0);
        else
            ck_assert_int_eq(sw_manifest_commit(manifest, &more, &err), 0);
        if (way == 1) /* written anew, but for another reason */
            ck_assert_int_eq(sw_manifest_encrypt(manifest, &err), 0);
        sw_manifest_close(manifest);
        manifest = open_manifest(&found);
        ck_assert_ptr_nonnull(sw_manifest_damage(manifest));
        ck_assert_uint_eq(found.n, way == 1 ? 4 : 2);
        for (unsigned i = 0; i < found.n; i++)
            ck_assert_msg(found.entries[i].doubtful == (found.entries[i].key[0] != 9), "way %u, frame %u", way, i);
        ck_assert_int_eq(sw_manifest_mend(manifest, &err), 0);
        ck_assert_ptr_null(sw_manifest_damage(manifest));
        sw_manifest_close(manifest);
        const unsigned n = found.n;
        manifest = open_manifest(&found);
        ck_assert_ptr_null(sw_manifest_damage(manifest));
        ck_assert_uint_eq(found.n, n);
        for (unsigned i = 0; i < found.n; i++)
            ck_assert(!found.entries[i].doubtful);
        sw_manifest_close(manifest);
    }
    (void)close(found.directory);
}
END_TEST

static bool count_taken(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                        bool doubtful) {
    (void)stored;
    (void)doubtful;
    *(unsigned *)arg = *(unsigned *)arg * 10 + key[0];
    return true;
}

/* Frames that lie where they cannot, in a manifest that is otherwise sound: the others are there. */
START_TEST(test_frames_at_impossible_places_are_left_out) {
    static const struct frame frames[] = {
        {4096, {{NULL, 4000, 4096}}, false},                    /* not at a block */
        {5000, {{NULL, 16384, 4096}}, false},                   /* too short */
        {4000, {{NULL, 16384, 4096}}, false},                   /* too long */
        {4097, {{NULL, 16384, 1}, {NULL, 20480, 4096}}, false}, /* a part of a block in the middle */
        {4096, {{NULL, 65536, 4096}}, false},                   /* behind the end, where no file is */
        {4097, {{NULL, 61440, 4097}}, false},
        {4096, {{NULL, UINT64_MAX - 4095, 4096}}, false},
        {UINT64_MAX - 4095, {{NULL, 8192, UINT64_MAX - 4095}}, false},
        {UINT64_MAX / 2, {{NULL, 4096, UINT64_MAX / 2}}, false},
        {8192, {{NULL, 16384, UINT64_MAX - 8191}, {NULL, 20480, 16384}}, false}, /* whose lengths wrap to it */
    };
    struct sw_tier_nvme_config config = sw_nvme_config_of(64 * KIB, SW_TIER_NVME_THREADS);
    config.file_bytes = 1 << 20;
    for (unsigned i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        const struct frame three[] = {
            {8192, {{NULL, 8192, 8192}}, false}, frames[i], {4096, {{NULL, 61440, 4096}}, false}};
        unsigned taken = 0;
        write_frames(three, 3);
        struct sw_tier *tier = sw_nvme_open(&config);
        ck_assert_msg(damage_of(tier).n_places > 0, "frame %u", i);
        (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = count_taken, .arg = &taken}, NULL);
        ck_assert_msg(taken == 31, "frame %u: %u", i, taken);
        ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, 3 * BLOCK);
        tier->ops->close(tier);
    }
}
END_TEST

/* The disk cannot be read. Its content is then unknown, and nothing on it is changed. */
static ssize_t fail_pread(int fd, void *ret, size_t bytes, off_t offset) {
    (void)fd, (void)ret, (void)bytes, (void)offset;
    errno = EIO;
    return -1;
}

START_TEST(test_unreadable_files_stay_unchanged) {
    static const struct sw_nvme_file_ops unreadable = {.pwrite = pwrite, .pread = fail_pread};
    struct image image, after;
    struct sw_tier_nvme_config config = write_small_manifest(&image), good = config;
    struct sw_nvme_recovered r;
    config.files = &unreadable;
    for (unsigned way = 0; way < 4; way++) {
        char mark[96];
        struct sw_tier *tier = NULL;
        struct sw_err err = {0};
        config.unwanted = way % 2;
        if (way == 2) { /* a mark that cannot be read, either: it opens, and read() fails */
            config.files = NULL;
            ck_assert_int_eq(mkdir(sw_nvme_path(mark, "key-check"), 0700), 0);
        }
        const int rc = sw_tier_nvme_open(&tier, &config, &err);
        ck_assert_msg(rc == -SW_EIO, "way %u: %s", way, sw_err_name(rc));
        image_read(&after);
        ck_assert_uint_eq(after.bytes, image.bytes);
        ck_assert_int_eq(memcmp(after.data, image.data, image.bytes), 0);
    }
    char mark[96];
    ck_assert_int_eq(rmdir(sw_nvme_path(mark, "key-check")), 0);
    struct sw_tier *tier = sw_nvme_reopen(&good, SW_NVME_FRAMES(1, 3), &r);
    tier->ops->close(tier);
}
END_TEST

/* Bytes 4 to 31 of a record's head and its body change at random, and the hashes are made valid again, so only checks
 * of the content protect the tier. It opens, and all frames are possible ones. */
static void mutate(struct image *image, uint64_t *state) {
    static const size_t records[] = {64, 152, 240, 272};
    const size_t at = records[sw_random(state) % 4], body_bytes = at == 240 ? 0 : 56;
    uint32_t *head = (uint32_t *)(void *)(image->data + at);
    for (uint64_t n = 1 + sw_random(state) % 3; n > 0; n--) {
        const size_t place = at + 8 + sw_random(state) % (24 + body_bytes);
        static const uint8_t values[] = {0, 1, 2, 0x10, 0x20, 0x80, 0xFF};
        image->data[place] = values[sw_random(state) % sizeof values];
    }
    const size_t rest = image->bytes - at - 32, hashed = head[2] < rest ? head[2] : rest;
    head[1] = sw_hash_finish(sw_hash_update(1, image->data + at + 32, hashed));
    head[0] = sw_hash_finish(sw_hash_update(1, image->data + at + 4, 28));
}

static bool take_possible(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                          bool doubtful) {
    (void)doubtful;
    uint64_t *bytes = arg, total = 0;
    (void)key;
    for (unsigned i = 0; i < stored->n_extents; i++) {
        ck_assert_uint_le(stored->extents[i].offset + stored->extents[i].bytes, 64 * KIB);
        total += stored->extents[i].bytes;
    }
    ck_assert_uint_eq(total, stored->bytes);
    *bytes += (total + BLOCK - 1) / BLOCK * BLOCK;
    return true;
}

START_TEST(test_invalid_records_with_right_hashes_are_harmless) {
    struct image image, nonsense;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    uint64_t state = 7;
    unsigned opened = 0, damaged = 0;
    for (unsigned i = 0; i < 1000; i++) {
        struct sw_tier *tier = NULL;
        struct sw_err err = {0};
        uint64_t bytes = 0;
        nonsense = image;
        mutate(&nonsense, &state);
        image_write(&nonsense);
        int rc = sw_tier_nvme_open(&tier, &config, &err);
        if (rc) {
            ck_assert_msg(rc == -SW_ECONFIG, "%s", err.msg);
            continue;
        }
        damaged += damage_of(tier).n_places > 0;
        (void)tier->ops->recover(tier, &(struct sw_tier_recovery){.take = take_possible, .arg = &bytes}, NULL);
        ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, bytes);
        tier->ops->close(tier);
        opened++;
    }
    ck_assert_uint_gt(opened, 900);
    ck_assert_uint_gt(damaged, 500);
}
END_TEST

/* The one of frame 2 names none. */
START_TEST(test_a_release_without_its_commit_is_damage) {
    struct image image;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    struct sw_manifest_head head;
    memcpy(&head, image.data + AT_RELEASE, sizeof head);
    head.id = head.sequence;
    head.hash = sw_manifest_head_hash(&head);
    memcpy(image.data + AT_RELEASE, &head, sizeof head);
    image_write(&image);
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_uint_eq(damage_of(tier).at, AT_RELEASE);
    tier->ops->close(tier);
}
END_TEST

static struct sw_manifest_head head_at(const struct image *image, size_t at) {
    struct sw_manifest_head head;
    memcpy(&head, image->data + at, sizeof head);
    return head;
}

/* With right hashes. */
static void set_head(struct image *image, size_t at, struct sw_manifest_head head) {
    head.body_hash = sw_manifest_hash(image->data + at + sizeof head, head.body_bytes);
    head.hash = sw_manifest_head_hash(&head);
    memcpy(image->data + at, &head, sizeof head);
}

enum field { BODY_BYTES, KIND, SEQUENCE, ID };

static const struct {
    size_t at;
    enum field field;
    int64_t value;
    const uint64_t *left; /* frames */
} impossible[] = {
    {AT_1, ID, 0, SW_NVME_FRAMES(3)},
    {AT_1, ID, 2, SW_NVME_FRAMES(3)}, /* more than its number */
    {AT_3, ID, 1, SW_NVME_FRAMES(1)}, /* of an earlier frame */
    {AT_3, ID, 2, SW_NVME_FRAMES(1)},
    {AT_3, SEQUENCE, 0, SW_NVME_FRAMES(1)},
    {AT_3, SEQUENCE, -1, SW_NVME_FRAMES(1)},
    {AT_1, KIND, 0, SW_NVME_FRAMES(3)},
    {AT_1, KIND, 4, SW_NVME_FRAMES(3)},
    {AT_1, BODY_BYTES, 0, SW_NVME_FRAMES(3)},
    {AT_1, BODY_BYTES, sizeof(struct sw_manifest_body), SW_NVME_FRAMES(3)}, /* no extent */
    {AT_1, BODY_BYTES, 48, SW_NVME_FRAMES(3)},                              /* half of one */
    {AT_RELEASE, BODY_BYTES, 8, SW_NVME_FRAMES(1, 3)},
};

/* The damage is where the record is, so that it is not taken for one of another length. */
START_TEST(test_an_impossible_record_is_damage) {
    struct image image;
    struct sw_nvme_recovered r;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    struct sw_manifest_head head = head_at(&image, impossible[_i].at);
    ck_assert(head_at(&image, AT_1).id == 1 && head_at(&image, AT_2).id == 2);
    const uint64_t value = (uint64_t)impossible[_i].value;
    switch (impossible[_i].field) {
    case BODY_BYTES:
        head.body_bytes = (uint32_t)value;
        if (value == sizeof(struct sw_manifest_body)) /* a frame of no byte */
            memset(image.data + impossible[_i].at + sizeof head + offsetof(struct sw_manifest_body, bytes), 0, 8);
        break;
    case KIND:
        head.kind = (uint32_t)value;
        break;
    case SEQUENCE:
        head.sequence = value;
        break;
    case ID:
        head.id = value;
        break;
    }
    set_head(&image, impossible[_i].at, head);
    image_write(&image);
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_uint_eq(damage_of(tier).n_places, 1);
    ck_assert_uint_eq(damage_of(tier).at, impossible[_i].at);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, impossible[_i].left, &r);
    tier->ops->close(tier);
}
END_TEST

/* A whole record that is older than those before the damage is of an earlier file. */
START_TEST(test_an_older_record_within_damage_is_part_of_it) {
    struct image image;
    struct sw_nvme_recovered r;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    struct sw_manifest_head old = head_at(&image, AT_RELEASE);
    image.data[AT_2]++;
    old.sequence = old.id = 1;
    set_head(&image, AT_RELEASE, old);
    image_write(&image);
    struct sw_tier *tier = sw_nvme_open(&config);
    ck_assert_uint_eq(damage_of(tier).n_places, 1);
    ck_assert_uint_eq(damage_of(tier).at, AT_2);
    tier->ops->close(tier);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 3), &r);
    tier->ops->close(tier);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("manifest");
    TCase *tcase = tcase_create("manifest");
    sw_test_slow(tcase, 60);
    tcase_add_checked_fixture(tcase, sw_nvme_setup, sw_nvme_teardown);
    tcase_add_test(tcase, test_a_damaged_byte_costs_one_record);
    tcase_add_test(tcase, test_records_after_damage_are_found);
    tcase_add_test(tcase, test_the_last_of_overlapping_frames_counts);
    tcase_add_test(tcase, test_doubt_ends_only_with_a_repair);
    tcase_add_test(tcase, test_unreadable_files_stay_unchanged);
    tcase_add_test(tcase, test_an_unwanted_damaged_tier_is_removed);
    tcase_add_test(tcase, test_a_torn_tail_is_cut_off);
    tcase_add_test(tcase, test_frames_at_impossible_places_are_left_out);
    tcase_add_test(tcase, test_invalid_records_with_right_hashes_are_harmless);
    tcase_add_loop_test(tcase, test_an_impossible_record_is_damage, 0, sizeof impossible / sizeof impossible[0]);
    tcase_add_test(tcase, test_an_older_record_within_damage_is_part_of_it);
    tcase_add_test(tcase, test_a_release_without_its_commit_is_damage);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
