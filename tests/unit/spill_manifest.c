/* The NVMe tier's manifest, torn, damaged or full of nonsense. */
#include "codec/checksum.h"
#include "spill/tier/manifest.h"
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
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

START_TEST(test_damage_anywhere_is_found_and_nothing_is_changed) {
    struct image image, damaged, after;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    struct sw_tier *tier = NULL;
    struct sw_nvme_recovered r;
    for (size_t at = 0; at < image.bytes; at++)
        for (unsigned bit = 0; bit < 8; bit += 7) {
            struct sw_err err = {0};
            damaged = image;
            damaged.data[at] ^= (uint8_t)(1u << bit);
            image_write(&damaged);
            ck_assert_msg(sw_tier_nvme_open(&tier, &config, &err) == -SW_ECHECKSUM, "byte %zu: %s", at, err.msg);
            image_read(&after);
            ck_assert_uint_eq(after.bytes, image.bytes);
            ck_assert_int_eq(memcmp(after.data, damaged.data, image.bytes), 0);
        }
    image_write(&image);
    tier = sw_nvme_reopen(&config, SW_NVME_FRAMES(1, 3), &r);
    tier->ops->close(tier);
}
END_TEST

/* What a power cut may leave, where nobody knows the frames: zeros for records, nothing at all, any damage. The rest of
 * another kind of tier is none better. */
START_TEST(test_what_nobody_wants_is_removed_instead) {
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

/* What a kill leaves: any prefix. Header 64, commits 32 + 40 + 16, release 32. */
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
            ck_assert_int_eq(sw_tier_nvme_open(&tier, &config, &err), -SW_ECHECKSUM);
            continue;
        }
        /* Frame 3 lies where frame 2 lay; as long as 2 counts, it has been overwritten only in this test. */
        const uint64_t *want = bytes < 152   ? none
                               : bytes < 240 ? first
                               : bytes < 272 ? both
                               : bytes < 360 ? first
                                             : last;
        if (want == both)
            continue;
        tier = sw_nvme_reopen(&config, want, &r);
        ck_assert_int_eq(sw_nvme_put(tier, 100, 9, &stored, &err), 0); /* behind what was cut off */
        tier->ops->close(tier);
        uint64_t more[SW_NVME_MAX_WANT] = {0};
        memcpy(more, want, sizeof more);
        more[r.n] = 9;
        tier = sw_nvme_reopen(&config, more, &r);
        tier->ops->close(tier);
    }
}
END_TEST

/* Frames that lie where they cannot, in a manifest that is otherwise sound. */
static struct sw_manifest_entry *refuse_found(void *arg, const struct sw_manifest_entry *frame) {
    (void)arg;
    (void)frame;
    return NULL;
}

static const struct sw_nvme_file_ops plain_files = {.pwrite = pwrite, .pread = pread};

START_TEST(test_frames_that_lie_where_they_cannot_are_found) {
    static const struct {
        uint64_t bytes;
        struct sw_extent extents[2];
        int code;
    } frames[] = {
        {8192, {{NULL, 8192, 8192}, {NULL, 0, 0}}, 0},               /* sound, and the first of each case */
        {4096, {{NULL, 12288, 4096}, {NULL, 0, 0}}, -SW_EFRAME},     /* overlaps it */
        {4096, {{NULL, 4000, 4096}, {NULL, 0, 0}}, -SW_EFRAME},      /* not at a block */
        {5000, {{NULL, 16384, 4096}, {NULL, 0, 0}}, -SW_EFRAME},     /* too short */
        {4000, {{NULL, 16384, 4096}, {NULL, 0, 0}}, -SW_EFRAME},     /* too long */
        {4097, {{NULL, 16384, 1}, {NULL, 20480, 4096}}, -SW_EFRAME}, /* a part of a block in the middle */
        {4096, {{NULL, 65536, 4096}, {NULL, 0, 0}}, -SW_ECONFIG},    /* behind the end */
        {4096, {{NULL, UINT64_MAX - 4095, 4096}, {NULL, 0, 0}}, -SW_ECONFIG},
    };
    struct sw_tier_nvme_config config = sw_nvme_config_of(64 * KIB, SW_TIER_NVME_THREADS);
    for (unsigned i = 0; i < sizeof frames / sizeof frames[0]; i++) {
        struct sw_manifest_config manifest_config = {
            .file_bytes = config.file_bytes, .files = &plain_files, .found = refuse_found};
        struct sw_manifest *manifest = NULL;
        struct sw_err err = {0};
        struct sw_tier *tier = NULL;
        char path[96];
        manifest_config.directory = open(sw_nvme_path(path, ""), O_RDONLY | O_DIRECTORY);
        (void)unlink(sw_nvme_path(path, "manifest"));
        ck_assert_int_eq(sw_manifest_open(&manifest, &manifest_config, &err), 0);
        for (unsigned k = 0; k <= i; k += i ? i : 1) {
            struct sw_manifest_entry entry = {.bytes = frames[k].bytes, .extents = frames[k].extents};
            entry.n_extents = frames[k].extents[1].bytes ? 2 : 1;
            ck_assert_int_eq(sw_manifest_commit(manifest, &entry, &err), 0);
            sw_list_remove(&entry.node);
        }
        sw_manifest_close(manifest);
        ck_assert_int_eq(close(manifest_config.directory), 0);
        int rc = sw_tier_nvme_open(&tier, &config, &err);
        ck_assert_msg(rc == frames[i].code, "frame %u: %s", i, err.msg);
        if (!rc)
            tier->ops->close(tier);
    }
}
END_TEST

/* Bytes 4 to 31 of a record's head and its body changed at random, hashes made right again: only what the records say
 * stands between nonsense and the tier. It opens with frames that are possible, or not at all. */
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

static bool take_possible(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored) {
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

START_TEST(test_nonsense_under_right_hashes_is_refused_or_possible) {
    struct image image, nonsense;
    struct sw_tier_nvme_config config = write_small_manifest(&image);
    uint64_t state = 7;
    unsigned opened = 0, refused = 0;
    for (unsigned i = 0; i < 1000; i++) {
        struct sw_tier *tier = NULL;
        struct sw_err err = {0};
        uint64_t bytes = 0;
        nonsense = image;
        mutate(&nonsense, &state);
        image_write(&nonsense);
        int rc = sw_tier_nvme_open(&tier, &config, &err);
        if (rc) {
            ck_assert_msg(rc == -SW_ECHECKSUM || rc == -SW_EFRAME || rc == -SW_ECONFIG, "%s", err.msg);
            refused++;
            continue;
        }
        sw_tier_nvme_recover(tier, take_possible, &bytes);
        ck_assert_uint_eq(sw_nvme_stats(tier).used_bytes, bytes);
        tier->ops->close(tier);
        opened++;
    }
    ck_assert_uint_gt(opened, 100);
    ck_assert_uint_gt(refused, 100);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("manifest");
    TCase *tcase = tcase_create("manifest");
    sw_test_slow(tcase, 60);
    tcase_add_checked_fixture(tcase, sw_nvme_setup, sw_nvme_teardown);
    tcase_add_test(tcase, test_damage_anywhere_is_found_and_nothing_is_changed);
    tcase_add_test(tcase, test_what_nobody_wants_is_removed_instead);
    tcase_add_test(tcase, test_a_torn_tail_is_cut_off);
    tcase_add_test(tcase, test_frames_that_lie_where_they_cannot_are_found);
    tcase_add_test(tcase, test_nonsense_under_right_hashes_is_refused_or_possible);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
