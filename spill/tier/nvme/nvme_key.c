#include "spill/tier/nvme/nvme_key.h"

#include "base/assert.h"
#include "spill/tier/nvme/nvme_crypt.h"
#include "spill/tier/nvme/nvme_file_ops.h"
#include "spill/tier/nvme/nvme_files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define NEW_MARK_FILE "key-check.new"

enum { KEY_SEALS = F_SEAL_SHRINK | F_SEAL_GROW };

static int failed(struct sw_err *err, const char *call) {
    const int cause = errno;
    (void)sw_err_set(err, sw_nvme_error(cause), SW_SCOPE_DAEMON, "the NVMe tier's key cannot be used: %s",
                     strerror(cause));
    (void)sw_err_detail(err, "%s: %s", call, strerror(cause));
    return sw_nvme_error(cause);
}

/* Maps the descriptor's page, with or without a key in it. */
static int map(struct sw_nvme_key *key, int fd, struct sw_err *err) {
    void *page = mmap(NULL, SW_NVME_KEY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED)
        return failed(err, "mmap");
    *key = (struct sw_nvme_key){.fd = fd, .bytes = page};
    if (mlock(page, SW_NVME_KEY_BYTES) == 0 && madvise(page, SW_NVME_KEY_BYTES, MADV_DONTDUMP) == 0)
        return 0;
    const int cause = errno;
    (void)munmap(page, SW_NVME_KEY_BYTES);
    memset(key, 0, sizeof *key);
    return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON,
                      "the NVMe tier's key cannot be locked in memory (raise RLIMIT_MEMLOCK): %s", strerror(cause));
}

/* Fills the locked page directly, so that no copy of the key exists elsewhere. */
static bool fill(const struct sw_nvme_key *key) {
    uint8_t *bytes = (uint8_t *)key->bytes;
    for (size_t done = 0; done < SW_NVME_KEY_BYTES;) {
        const ssize_t n = getrandom(bytes + done, SW_NVME_KEY_BYTES - done, 0);
        if (n < 0 && errno != EINTR)
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Makes the page, without a key in it. */
static int make_page(struct sw_nvme_key *ret, struct sw_err *err) {
    const int fd = memfd_create("spillway-nvme-key", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    memset(ret, 0, sizeof *ret);
    if (fd < 0)
        return failed(err, "memfd_create");
    int rc = ftruncate(fd, SW_NVME_KEY_BYTES) < 0 || fcntl(fd, F_ADD_SEALS, KEY_SEALS) < 0 ? failed(err, "ftruncate")
                                                                                           : map(ret, fd, err);
    if (rc < 0)
        (void)close(fd);
    return rc;
}

int sw_nvme_key_set(struct sw_nvme_key *ret, const uint8_t first[SW_NVME_KEY_BYTES / 2],
                    const uint8_t second[SW_NVME_KEY_BYTES / 2], struct sw_err *err) {
    const int rc = make_page(ret, err);
    if (rc < 0)
        return rc;
    memcpy((void *)ret->bytes, first, SW_NVME_KEY_BYTES / 2);
    memcpy((uint8_t *)ret->bytes + SW_NVME_KEY_BYTES / 2, second, SW_NVME_KEY_BYTES / 2);
    (void)mprotect((void *)ret->bytes, SW_NVME_KEY_BYTES, PROT_READ);
    return 0;
}

int sw_nvme_key_make(struct sw_nvme_key *ret, struct sw_err *err) {
    int rc = make_page(ret, err);
    if (rc < 0)
        return rc;
    if (!fill(ret)) {
        rc = failed(err, "getrandom");
        sw_nvme_key_fini(ret);
        return rc;
    }
    (void)mprotect((void *)ret->bytes, SW_NVME_KEY_BYTES, PROT_READ);
    ret->is_new = true;
    return 0;
}

int sw_nvme_key_adopt(struct sw_nvme_key *ret, int fd, struct sw_err *err) {
    struct stat st;
    int rc = 0;
    memset(ret, 0, sizeof *ret);
    /* Sealed, so that it cannot be truncated under the mapping. */
    if (fstat(fd, &st) < 0 || st.st_size != SW_NVME_KEY_BYTES || (fcntl(fd, F_GET_SEALS) & KEY_SEALS) != KEY_SEALS)
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON, "descriptor %d holds no key of an NVMe tier", fd);
    else
        rc = map(ret, fd, err);
    if (rc < 0)
        (void)close(fd);
    else
        (void)mprotect((void *)ret->bytes, SW_NVME_KEY_BYTES, PROT_READ);
    return rc;
}

void sw_nvme_key_fini(struct sw_nvme_key *key) {
    if (!key->bytes)
        return;
    (void)munmap((void *)key->bytes, SW_NVME_KEY_BYTES);
    (void)close(key->fd);
    memset(key, 0, sizeof *key);
}

/* --- the mark --- */

/* A file that cannot be read proves nothing: taking it for a foreign mark, or for none, would remove frames. */
static int read_mark(int directory, uint8_t ret[SW_NVME_MARK_BYTES], bool *ret_has, struct sw_err *err) {
    const int fd = openat(directory, SW_NVME_MARK_FILE, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    memset(ret, 0, SW_NVME_MARK_BYTES);
    *ret_has = fd >= 0;
    if (fd < 0)
        return errno == ENOENT ? 0 : failed(err, "openat");
    ssize_t n;
    do
        n = read(fd, ret, SW_NVME_MARK_BYTES); /* a short file matches no key */
    while (n < 0 && errno == EINTR);
    const int rc = n < 0 ? failed(err, "read") : 0;
    (void)close(fd);
    return rc;
}

static int write_mark(int directory, const uint8_t mark[SW_NVME_MARK_BYTES], struct sw_err *err) {
    const int fd = openat(directory, NEW_MARK_FILE, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0)
        return failed(err, "openat");
    const ssize_t n = write(fd, mark, SW_NVME_MARK_BYTES);
    int rc = n == SW_NVME_MARK_BYTES && fsync(fd) == 0 ? 0 : failed(err, "write");
    (void)close(fd);
    if (!rc && renameat(directory, NEW_MARK_FILE, directory, SW_NVME_MARK_FILE) < 0)
        rc = failed(err, "renameat");
    return rc || fsync(directory) == 0 ? rc : failed(err, "fsync");
}

static int remove_mark(int directory, struct sw_err *err) {
    return unlinkat(directory, SW_NVME_MARK_FILE, 0) < 0 && errno != ENOENT ? failed(err, "unlinkat") : 0;
}

/* Removes the frames first: until the mark is right, the next process finds the same difference and repeats this. */
static int start_over(const uint8_t *mark, int directory, struct sw_err *err) {
    if (sw_nvme_files_remove(directory) < 0)
        return failed(err, "unlinkat");
    return mark ? write_mark(directory, mark, err) : remove_mark(directory, err);
}

static int make_mark(const struct sw_nvme_key *key, uint8_t ret[SW_NVME_MARK_BYTES], struct sw_err *err) {
    memset(ret, 0, SW_NVME_MARK_BYTES);
    if (key && !sw_nvme_crypt_mark(key, ret))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DAEMON, "libcrypto has no AES-256-XTS");
    return 0;
}

int sw_nvme_key_mark(const struct sw_nvme_key *key, int directory, struct sw_err *err) {
    uint8_t mark[SW_NVME_MARK_BYTES];
    if (!key)
        return remove_mark(directory, err);
    const int rc = make_mark(key, mark, err);
    return rc ? rc : write_mark(directory, mark, err);
}

int sw_nvme_key_settle(const struct sw_nvme_key *key, bool keep_plain, int directory, enum sw_nvme_frames *ret,
                       struct sw_err *err) {
    uint8_t found[SW_NVME_MARK_BYTES], mark[SW_NVME_MARK_BYTES];
    bool has_mark;
    int rc = read_mark(directory, found, &has_mark, err);
    *ret = SW_NVME_FRAMES_OURS;
    if (!rc)
        rc = make_mark(key, mark, err);
    if (rc)
        return rc;
    if (has_mark == (key != NULL) && memcmp(found, mark, sizeof mark) == 0)
        return 0;
    if (key && !key->is_new) {
        if (faccessat(directory, "manifest", F_OK, AT_SYMLINK_NOFOLLOW) == 0)
            return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_DAEMON,
                              "the NVMe tier's frames are not of the key that was kept");
        if (!has_mark) /* nothing is there: mark it first, or a start that fails half-way would look like another key's
                          folder */
            return write_mark(directory, mark, err);
    }
    if (keep_plain) { /* without a key there is a mark, since otherwise nothing would differ */
        *ret = has_mark ? SW_NVME_FRAMES_LOST : SW_NVME_FRAMES_PLAIN;
        return 0;
    }
    return start_over(key ? mark : NULL, directory, err);
}
