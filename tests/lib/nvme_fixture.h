/* nvme_fixture.h - a folder for an NVMe tier, and its transfers as plain calls.
 *
 * Every call checks what it does with ck_assert. The folder is made where the test runs, so that it is on a disk if the
 * build is. thread: one at a time. */
#ifndef SW_TEST_NVME_FIXTURE_H
#define SW_TEST_NVME_FIXTURE_H

#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/scratch.h"
#include <sys/types.h>

struct sw_nvme_folder {
    char path[SW_TEST_PATH_BYTES];
};

struct sw_nvme_folder sw_nvme_folder_new(void);
/* Removes it with its files. */
void sw_nvme_folder_free(const struct sw_nvme_folder *folder);

/* Opens; the test fails if that fails. */
struct sw_tier *sw_nvme_open(const struct sw_tier_nvme_config *config);

/* Aligned memory for a frame of `bytes`, whole blocks of it. owns: caller, until free(). */
uint8_t *sw_nvme_buffer(uint64_t bytes);
/* Fills a frame with content that depends only on (bytes, seed), and checks that it is unchanged. */
void sw_nvme_fill(uint8_t *ret, uint64_t bytes, uint64_t seed);
bool sw_nvme_same(const uint8_t *data, uint64_t bytes, uint64_t seed);

/* Keeps n records, or forgets one, and waits. Returns the error's code, or 0. */
int sw_nvme_change(struct sw_tier *tier, enum sw_tier_change_kind kind, struct sw_tier_record *records, unsigned n);
/* Reads or writes a whole frame from or to one buffer and waits. Key: `seed`, then zeros. */
int sw_nvme_transfer(struct sw_tier *tier, enum sw_tier_io_kind kind, struct sw_stored *stored, uint8_t *buffer,
                     uint64_t seed, struct sw_err *err);
/* Reserves and writes a frame of (bytes, seed); empty and with the error's code if that fails. */
int sw_nvme_put(struct sw_tier *tier, uint64_t bytes, uint64_t seed, struct sw_stored *ret, struct sw_err *err);
/* Reads a frame. Returns true if it is the frame of (stored->bytes, seed). */
bool sw_nvme_holds(struct sw_tier *tier, struct sw_stored *stored, uint64_t seed);

/* --- for suites: a folder for each test --- */

/* Checked fixture: makes the test's folder; removes it, and checks that no descriptor and no memory is left. */
void sw_nvme_setup(void);
void sw_nvme_teardown(void);

/* A tier in the test's folder, with files that end at no multiple of a request. */
struct sw_tier_nvme_config sw_nvme_config_of(uint64_t capacity, enum sw_tier_nvme_method method);
char *sw_nvme_path(char ret[96], const char *name);
off_t sw_nvme_file_bytes(const char *name); /* -1: no such file */

/* For loop tests that run with io_uring and with threads. */
enum { SW_NVME_N_METHODS = 2 };
extern const enum sw_tier_nvme_method sw_nvme_methods[SW_NVME_N_METHODS];
/* False, and says so, where io_uring is not allowed. */
bool sw_nvme_allowed(enum sw_tier_nvme_method method);

struct sw_tier_stats sw_nvme_stats(struct sw_tier *tier);

/* The result of sw_nvme_take(). */
struct sw_nvme_recovered {
    unsigned n, n_doubtful;
    uint64_t seeds[64];
    struct sw_stored stored[64];
    uint64_t refuse; /* a seed */
};
bool sw_nvme_take(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored, bool doubtful);

/* Seeds of frames that are expected, oldest first; zeros follow. */
enum { SW_NVME_MAX_WANT = 8 };
#define SW_NVME_FRAMES(...) ((const uint64_t[SW_NVME_MAX_WANT]){__VA_ARGS__})
/* Opens and recovers; checks that the frames of `want` are there with their bytes, no other, and that space adds up. */
struct sw_tier *sw_nvme_reopen(const struct sw_tier_nvme_config *config, const uint64_t want[SW_NVME_MAX_WANT],
                               struct sw_nvme_recovered *ret);

/* Opens the folder's first file of frames, for reading and writing. owns: the caller. */
int sw_nvme_open_data(const struct sw_nvme_folder *of);

#endif
