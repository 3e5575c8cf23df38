/* The NVMe tier's key in its folder, wrapped by a master key: it outlives the process and the manager, a new master key
 * opens the same frames, and without a master key nothing is lost and nothing is read. */
#include "base/alloc.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
#define KEY_A "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n"
#define KEY_B "ffeeddccbbaa99887766554433221100ffeeddccbbaa99887766554433221100\n"

static struct sw_tier *tier;
static struct sw_tier_nvme_info info;
static struct sw_err error;

/* A keyring with these lines. NULL: none. */
static struct sw_object_keyring *keyring_of(const char *lines, mode_t mode, int *ret_rc) {
    static const struct sw_object_keyring_use use = {"spillway-nvme-key", "NVMe"};
    struct sw_object_keyring *keyring = NULL;
    char path[96];
    if (!lines)
        return NULL;
    const int fd = open(sw_nvme_path(path, ".master"), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    ck_assert_int_eq(write(fd, lines, strlen(lines)), (ssize_t)strlen(lines));
    ck_assert_int_eq(fchmod(fd, mode), 0);
    (void)close(fd);
    const int rc = sw_object_keyring_open_for(&keyring, path, &use, &error);
    ck_assert_int_eq(unlink(path), 0);
    if (ret_rc)
        *ret_rc = rc;
    else
        ck_assert_msg(rc == 0, "%s", error.msg);
    return keyring;
}

/* Opens the tier as a process with these master keys; encrypts: with a new key of its own; kept: as the manager gives
 * it back. */
struct start {
    const char *masters;
    bool encrypts, unwanted;
    const struct sw_nvme_key *kept;
};

static struct sw_nvme_key own, unwrapped;

static int start(const struct start *how) {
    struct sw_tier_nvme_config config = sw_nvme_config_of(4 * MIB, SW_TIER_NVME_AUTO);
    struct sw_object_keyring *keyring = keyring_of(how->masters, 0600, NULL);
    if (how->encrypts)
        ck_assert_int_eq(how->kept ? sw_nvme_key_adopt(&own, fcntl(how->kept->fd, F_DUPFD_CLOEXEC, 0), NULL)
                                   : sw_nvme_key_make(&own, NULL),
                         0);
    config.key = how->encrypts ? &own : NULL;
    config.keyring = keyring;
    config.unwrapped = &unwrapped;
    config.unwanted = how->unwanted;
    memset(&error, 0, sizeof error);
    const int rc = sw_tier_nvme_open(&tier, &config, &error);
    sw_object_keyring_close(keyring);
    if (rc == 0)
        sw_tier_nvme_info(tier, &info);
    else
        tier = NULL;
    return rc;
}

static void stop(void) {
    if (tier)
        tier->ops->close(tier);
    sw_nvme_key_fini(&own);
    sw_nvme_key_fini(&unwrapped);
}

static void ck_start(const struct start *how) {
    const int rc = start(how);
    ck_assert_msg(rc == 0, "%s: %s", sw_err_name(rc), error.msg);
}

static void ck_refused(const struct start *how, int code, const char *text) {
    ck_assert_int_eq(start(how), code);
    ck_assert_msg(strstr(error.msg, text), "%s", error.msg);
    stop();
}

static void ck_frames(const uint64_t want[SW_NVME_MAX_WANT]) {
    struct sw_nvme_recovered r = {0};
    ck_assert_int_eq(tier->ops->recover(tier, &(struct sw_tier_recovery){.take = sw_nvme_take, .arg = &r}, NULL), 0);
    for (unsigned i = 0; i < r.n; i++) {
        ck_assert_uint_eq(r.seeds[r.n - 1 - i], want[i]);
        ck_assert(sw_nvme_holds(tier, &r.stored[i], r.seeds[i]));
    }
    ck_assert_uint_eq(want[r.n], 0);
}

static void put(uint64_t seed) {
    struct sw_stored stored;
    ck_assert_int_eq(sw_nvme_put(tier, 100000, seed, &stored, NULL), 0);
}

/* Lets the tier keep something, so that its frames are wanted. */
static void keep(void) {
    struct sw_tier_record record = {.content = "a region", .bytes = 8, .name = "a"};
    ck_assert_int_eq(tier->ops->may_keep(tier, 0, NULL), 0);
    ck_assert_int_eq(sw_nvme_change(tier, SW_TIER_KEEP, &record, 1), 0);
}

START_TEST(the_key_outlives_the_machine) {
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true});
    ck_assert(info.is_encrypted && info.is_wrapped && !info.is_rewrapped);
    put(1);
    keep();
    stop();
    for (unsigned i = 0; i < 3; i++) { /* whatever the process brings along, the folder's key counts */
        ck_start(&(struct start){.masters = KEY_A, .encrypts = i > 0, .unwanted = i > 1});
        ck_assert(info.is_encrypted && info.is_wrapped && !info.is_rewrapped);
        ck_frames(SW_NVME_FRAMES(1, i > 0 ? 2 : 0, i > 1 ? 3 : 0));
        put(2 + i);
        stop();
    }
}
END_TEST

START_TEST(a_new_master_key_opens_the_same_frames) {
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true});
    put(1);
    keep();
    stop();
    ck_refused(&(struct start){.masters = KEY_B, .encrypts = true, .unwanted = true}, -SW_EACCES, "another master key");
    ck_start(&(struct start){.masters = "# new first\n" KEY_B KEY_A});
    ck_assert(info.is_rewrapped);
    ck_frames(SW_NVME_FRAMES(1));
    put(2);
    stop();
    ck_refused(&(struct start){.masters = KEY_A}, -SW_EACCES, "another master key");
    ck_start(&(struct start){.masters = KEY_B});
    ck_assert(!info.is_rewrapped);
    ck_frames(SW_NVME_FRAMES(1, 2));
    stop();
}
END_TEST

/* The manager has kept the key until now. */
START_TEST(a_kept_key_is_wrapped) {
    ck_start(&(struct start){.encrypts = true});
    ck_assert(info.is_encrypted && !info.is_wrapped);
    ck_assert_int_eq(tier->ops->may_keep(tier, 0, &error), -SW_EDURABILITY);
    ck_assert_ptr_nonnull(strstr(error.msg, "nvme_key_file"));
    put(1);
    tier->ops->close(tier);
    const struct sw_nvme_key kept = own;
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true, .kept = &kept});
    ck_assert(info.is_wrapped);
    ck_frames(SW_NVME_FRAMES(1));
    stop();
    (void)close(kept.fd);
    ck_start(&(struct start){.masters = KEY_A});
    ck_frames(SW_NVME_FRAMES(1));
    stop();
}
END_TEST

static void damage(const char *name) {
    char path[96];
    const int fd = open(sw_nvme_path(path, name), O_RDWR | O_CLOEXEC);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(pwrite(fd, "x", 1, 60), 1);
    (void)close(fd);
}

START_TEST(without_its_key_a_wanted_folder_is_refused) {
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true});
    put(1);
    keep();
    stop();
    for (unsigned i = 0; i < 4; i++)
        ck_refused(&(struct start){.encrypts = i % 2, .unwanted = i / 2}, -SW_ECONFIG, "nvme_key_file");
    ck_start(&(struct start){.masters = KEY_A}); /* nothing was changed */
    ck_frames(SW_NVME_FRAMES(1));
    stop();
    damage(SW_NVME_WRAP_FILE);
    ck_refused(&(struct start){.masters = KEY_A, .unwanted = true}, -SW_ECHECKSUM, "damaged");
}
END_TEST

/* It may be there again at the next start, so it is not taken for one that is lost. */
START_TEST(a_key_that_cannot_be_read_stays) {
    char path[96], aside[96];
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true});
    put(1);
    stop();
    (void)sw_nvme_path(path, SW_NVME_WRAP_FILE);
    (void)sw_nvme_path(aside, "aside");
    ck_assert_int_eq(rename(path, aside), 0);
    if (_i)
        ck_assert_int_eq(mkdir(path, 0700), 0); /* it opens, and read() fails */
    else
        ck_assert_int_eq(symlink("aside", path), 0); /* it does not open, and could be removed */
    ck_refused(&(struct start){.masters = KEY_A, .encrypts = true, .unwanted = true}, -SW_EIO, "wrapped key");
    ck_assert_int_eq(_i ? rmdir(path) : unlink(path), 0);
    ck_assert_int_eq(rename(aside, path), 0);
    ck_start(&(struct start){.masters = KEY_A, .unwanted = true});
    ck_frames(SW_NVME_FRAMES(1));
    stop();
}
END_TEST

/* Its frames would be gone with the process. */
START_TEST(a_key_that_cannot_be_wrapped_fails_the_start) {
    char path[96];
    ck_start(&(struct start){0});
    stop();
    ck_assert_int_eq(mkdir(sw_nvme_path(path, SW_NVME_WRAP_FILE ".new"), 0700), 0);
    ck_refused(&(struct start){.masters = KEY_A, .encrypts = true}, -SW_EIO, "wrapped key");
    ck_assert_int_eq(rmdir(path), 0);
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true, .unwanted = true});
    ck_assert(info.is_wrapped);
    stop();
}
END_TEST

/* No region is durable, and no catalogue knows the frames. */
START_TEST(without_its_key_an_unwanted_folder_begins_again) {
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true});
    put(1);
    stop();
    ck_start(&(struct start){.masters = KEY_B, .encrypts = true, .unwanted = true});
    ck_assert(info.is_wrapped);
    ck_frames(SW_NVME_FRAMES(0));
    put(2);
    stop();
    ck_start(&(struct start){.masters = KEY_B});
    ck_frames(SW_NVME_FRAMES(2));
    stop();
    ck_start(&(struct start){.unwanted = true});
    ck_assert(!info.is_encrypted);
    stop();
}
END_TEST

/* Durable regions that are not encrypted stay readable when encryption is turned on. */
START_TEST(durable_regions_stay_when_encryption_is_turned_on) {
    ck_start(&(struct start){0});
    put(1);
    keep();
    stop();
    ck_start(&(struct start){.masters = _i ? KEY_A : NULL, .encrypts = true, .unwanted = true});
    ck_assert_int_eq(tier->ops->may_keep(tier, 0, NULL), _i ? 0 : -SW_EDURABILITY);
    ck_frames(SW_NVME_FRAMES(1));
    put(2);
    stop();
    ck_start(&(struct start){.masters = _i ? KEY_A : NULL, .encrypts = true, .unwanted = true});
    ck_frames(SW_NVME_FRAMES(1, _i ? 2 : 0)); /* an unwrapped key has ended with its process */
    stop();
}
END_TEST

START_TEST(a_master_key_is_a_secret) {
    int rc;
    ck_assert_ptr_null(keyring_of(KEY_A, 0644, &rc));
    ck_assert_int_eq(rc, -SW_EACCES);
    ck_assert_ptr_null(keyring_of("0011\n", 0600, &rc));
    ck_assert_int_eq(rc, -SW_ECONFIG);
    ck_start(&(struct start){.masters = KEY_A, .encrypts = true});
    char text[2000], path[96];
    const int fd = open(sw_nvme_path(path, SW_NVME_WRAP_FILE), O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, text, sizeof text);
    struct stat st;
    ck_assert_int_eq(fstat(fd, &st), 0);
    (void)close(fd);
    ck_assert_uint_eq(st.st_mode & 07777, 0600);
    ck_assert_int_gt(n, 100);
    ck_assert_ptr_null(memmem(text, (size_t)n, own.bytes, 16));
    stop();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("spill_nvme_wrap");
    TCase *tcase = tcase_create("wrap");
    tcase_add_checked_fixture(tcase, sw_nvme_setup, sw_nvme_teardown);
    tcase_add_test(tcase, the_key_outlives_the_machine);
    tcase_add_test(tcase, a_new_master_key_opens_the_same_frames);
    tcase_add_test(tcase, a_kept_key_is_wrapped);
    tcase_add_test(tcase, without_its_key_a_wanted_folder_is_refused);
    tcase_add_loop_test(tcase, a_key_that_cannot_be_read_stays, 0, 2);
    tcase_add_test(tcase, a_key_that_cannot_be_wrapped_fails_the_start);
    tcase_add_test(tcase, without_its_key_an_unwanted_folder_begins_again);
    tcase_add_loop_test(tcase, durable_regions_stay_when_encryption_is_turned_on, 0, 2);
    tcase_add_test(tcase, a_master_key_is_a_secret);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
