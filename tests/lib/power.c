#include "tests/lib/power.h"

#include "base/assert.h"
#include "tests/lib/content.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FILES = 64, MAX_NAMES = 64, NAME_BYTES = 32, SECTOR_BYTES = 512 };

struct image {
    uint8_t *bytes;
    size_t n;
};

/* Something that was done to a file since its last flush. */
struct write {
    struct write *next;
    size_t offset, bytes;
    bool truncates; /* to `offset` */
    uint8_t data[];
};

struct file {
    dev_t device;
    ino_t inode;
    int fd; /* so that the inode is not used again */
    struct image on_disk;
    struct write *first, **last;
};

/* A name's file: -1: it does not exist. */
struct name {
    char name[NAME_BYTES];
    int on_disk;
    int later[16]; /* files that it was given since the folder's last flush */
    unsigned n_later;
};

static struct {
    pthread_mutex_t lock;
    char folder[600];
    struct file files[MAX_FILES];
    int n_files;
    struct name names[MAX_NAMES];
    unsigned n_names;
    bool is_on, is_cut;
    unsigned calls_left; /* 0: no cut is planned */
    void (*at_cut)(void *arg);
    void *arg;
} disk = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void image_write(struct image *image, size_t offset, const uint8_t *data, size_t bytes) {
    if (offset + bytes > image->n) {
        image->bytes = realloc(image->bytes, offset + bytes);
        SW_ASSERT(image->bytes);
        memset(image->bytes + image->n, 0, offset + bytes - image->n);
        image->n = offset + bytes;
    }
    if (data)
        memcpy(image->bytes + offset, data, bytes);
}

static int file_of(int fd) {
    struct stat st;
    SW_ASSERT(fstat(fd, &st) == 0);
    for (int i = 0; i < disk.n_files; i++)
        if (disk.files[i].device == st.st_dev && disk.files[i].inode == st.st_ino)
            return i;
    SW_ASSERT(disk.n_files < MAX_FILES);
    struct file *file = &disk.files[disk.n_files];
    *file = (struct file){.device = st.st_dev, .inode = st.st_ino, .fd = dup(fd)};
    SW_ASSERT(file->fd >= 0);
    file->last = &file->first;
    return disk.n_files++;
}

static struct name *name_of(const char *text) {
    for (unsigned i = 0; i < disk.n_names; i++)
        if (strcmp(disk.names[i].name, text) == 0)
            return &disk.names[i];
    SW_ASSERT(disk.n_names < MAX_NAMES && strlen(text) < NAME_BYTES);
    struct name *name = &disk.names[disk.n_names++];
    *name = (struct name){.on_disk = -1};
    memcpy(name->name, text, strlen(text));
    return name;
}

/* Calls visit() for each file in the folder. */
static void each_entry(void (*visit)(const char *name, int fd)) {
    DIR *dir = opendir(disk.folder);
    SW_ASSERT(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        const int fd = entry->d_name[0] == '.' ? -1 : openat(dirfd(dir), entry->d_name, O_RDWR | O_CLOEXEC);
        if (fd < 0)
            continue;
        visit(entry->d_name, fd);
        (void)close(fd);
    }
    (void)closedir(dir);
}

static void name_is_on_disk(const char *text, int fd) {
    struct name *name = name_of(text);
    name->on_disk = file_of(fd);
}

static void load(const char *text, int fd) {
    struct stat st;
    name_is_on_disk(text, fd);
    struct file *file = &disk.files[name_of(text)->on_disk];
    SW_ASSERT(fstat(fd, &st) == 0);
    image_write(&file->on_disk, 0, NULL, (size_t)st.st_size);
    SW_ASSERT(pread(fd, file->on_disk.bytes, file->on_disk.n, 0) == st.st_size);
}

static void flush_names(void) {
    for (unsigned i = 0; i < disk.n_names; i++) {
        disk.names[i].on_disk = -1;
        disk.names[i].n_later = 0;
    }
    each_entry(name_is_on_disk);
}

static void apply(struct image *image, const struct write *write) {
    if (!write->truncates)
        image_write(image, write->offset, write->data, write->bytes);
    else if (image->n > write->offset)
        image->n = write->offset;
}

static void flush_file(struct file *file) {
    struct write *write;
    while ((write = file->first)) {
        apply(&file->on_disk, write);
        file->first = write->next;
        free(write);
    }
    file->last = &file->first;
}

static void note(struct file *file, size_t offset, const void *data, size_t bytes) {
    struct write *write = malloc(sizeof *write + bytes);
    SW_ASSERT(write);
    *write = (struct write){.offset = offset, .bytes = bytes, .truncates = !data};
    if (data)
        memcpy(write->data, data, bytes);
    *file->last = write;
    file->last = &write->next;
}

/* After the cut nothing is recorded: what the process does then does not reach the disk. */
static void called(void) {
    if (disk.calls_left && --disk.calls_left == 0) {
        disk.is_cut = true;
        disk.at_cut(disk.arg);
    }
}

static bool begin(void) {
    (void)pthread_mutex_lock(&disk.lock);
    return disk.is_on && !disk.is_cut;
}

static void end(void) {
    (void)pthread_mutex_unlock(&disk.lock);
}

/* ---- the calls ---- */

static ssize_t power_pwrite(int fd, const void *data, size_t bytes, off_t offset) {
    const ssize_t n = pwrite(fd, data, bytes, offset);
    if (begin() && n > 0) {
        note(&disk.files[file_of(fd)], (size_t)offset, data, (size_t)n);
        called();
    }
    end();
    return n;
}

static int power_truncate(int fd, off_t bytes) {
    const int rc = ftruncate(fd, bytes);
    if (begin() && rc == 0) {
        note(&disk.files[file_of(fd)], (size_t)bytes, NULL, 0);
        called();
    }
    end();
    return rc;
}

static int power_sync(int fd, bool is_directory) {
    if (begin()) {
        if (is_directory)
            flush_names();
        else
            flush_file(&disk.files[file_of(fd)]);
        called();
    }
    end();
    return 0;
}

static int power_rename(int directory, const char *from, const char *to) {
    (void)pthread_mutex_lock(&disk.lock);
    const int fd = openat(directory, from, O_RDWR | O_CLOEXEC), rc = renameat(directory, from, directory, to);
    if (disk.is_on && !disk.is_cut && rc == 0) {
        struct name *name = name_of(to);
        SW_ASSERT(name->n_later < sizeof name->later / sizeof name->later[0]);
        name->later[name->n_later++] = file_of(fd);
        called();
    }
    (void)close(fd);
    end();
    return rc;
}

const struct sw_nvme_file_ops sw_power_files = {
    .pwrite = power_pwrite, .pread = pread, .sync = power_sync, .truncate = power_truncate, .rename = power_rename};

/* ---- on, cut, off ---- */

void sw_power_on(const char *folder) {
    (void)pthread_mutex_lock(&disk.lock);
    memcpy(disk.folder, folder, strlen(folder) + 1);
    disk.is_on = true;
    each_entry(load);
    end();
}

void sw_power_cut_after(unsigned calls, void (*at_cut)(void *arg), void *arg) {
    (void)pthread_mutex_lock(&disk.lock);
    disk.calls_left = calls;
    disk.at_cut = at_cut;
    disk.arg = arg;
    end();
}

void sw_power_cut(void) {
    if (begin()) {
        disk.calls_left = 1;
        called();
    }
    end();
}

bool sw_power_is_cut(void) {
    (void)pthread_mutex_lock(&disk.lock);
    const bool is_cut = disk.is_cut;
    end();
    return is_cut;
}

void sw_power_lock(void) {
    (void)pthread_mutex_lock(&disk.lock);
}

void sw_power_unlock(void) {
    end();
}

void sw_power_off(void) {
    for (int i = 0; i < disk.n_files; i++) {
        flush_file(&disk.files[i]);
        free(disk.files[i].on_disk.bytes);
        (void)close(disk.files[i].fd);
    }
    disk.n_files = 0;
    disk.n_names = 0;
    disk.is_on = disk.is_cut = false;
    disk.calls_left = 0;
}

/* ---- after the cut ---- */

unsigned sw_power_n_lost(void) {
    unsigned n = 0;
    for (int i = 0; i < disk.n_files; i++)
        for (const struct write *write = disk.files[i].first; write; write = write->next)
            n++;
    return n;
}

static void apply_torn(struct image *image, const struct write *write, uint64_t *random) {
    if (write->truncates) {
        if (sw_random(random) % 2)
            apply(image, write);
        return;
    }
    for (size_t at = 0; at < write->bytes;) {
        const size_t left = SECTOR_BYTES - (write->offset + at) % SECTOR_BYTES,
                     n = left < write->bytes - at ? left : write->bytes - at;
        if (sw_random(random) % 2)
            image_write(image, write->offset + at, write->data + at, n);
        at += n;
    }
}

static struct image image_of(int index, unsigned *n_before, uint64_t subset, bool is_torn, uint64_t *random) {
    const struct file *file = &disk.files[index];
    struct image image = {0};
    image_write(&image, 0, file->on_disk.bytes, file->on_disk.n);
    for (const struct write *write = file->first; write; write = write->next, ++*n_before) {
        if (is_torn)
            apply_torn(&image, write, random);
        else if (subset >> *n_before & 1)
            apply(&image, write);
        if (is_torn && sw_random(random) % 4 == 0 && write->offset + write->bytes > image.n)
            image_write(&image, write->offset + write->bytes, NULL, 0); /* its length was kept */
    }
    return image;
}

/* Blocks of zeros are holes. */
static void store(int directory, const char *name, const struct image *image) {
    static const uint8_t zeros[4096];
    const int fd = openat(directory, name, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    SW_ASSERT(fd >= 0 && ftruncate(fd, (off_t)image->n) == 0);
    for (size_t at = 0; at < image->n; at += sizeof zeros) {
        const size_t left = image->n - at, n = left < sizeof zeros ? left : sizeof zeros;
        if (memcmp(image->bytes + at, zeros, n) != 0)
            SW_ASSERT(pwrite(fd, image->bytes + at, n, (off_t)at) == (ssize_t)n);
    }
    (void)close(fd);
}

/* The process flushes this file without calls of ours, before it writes anything else. */
static void store_lock(int directory) {
    struct image image = {0};
    uint8_t bytes[64];
    char path[700];
    (void)snprintf(path, sizeof path, "%s/lock", disk.folder);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t n = read(fd, bytes, sizeof bytes);
    SW_ASSERT(fd >= 0 && n >= 0);
    (void)close(fd);
    image_write(&image, 0, bytes, (size_t)n);
    store(directory, "lock", &image);
    free(image.bytes);
}

/* The file that has the name. */
static int choose(const struct name *name, bool is_torn, uint64_t *random) {
    const unsigned n = name->n_later + 1, i = is_torn ? (unsigned)(sw_random(random) % n) : n - 1;
    return i == 0 ? name->on_disk : name->later[i - 1];
}

static int now(const char *name) {
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s", disk.folder, name);
    const int fd = open(path, O_RDWR | O_CLOEXEC), index = fd < 0 ? -1 : file_of(fd);
    if (fd >= 0)
        (void)close(fd);
    return index;
}

static void see_name(const char *text, int fd) {
    (void)fd;
    (void)name_of(text);
}

void sw_power_restore(const char *folder, uint64_t subset, bool is_torn, uint64_t *random) {
    const int directory = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct image images[MAX_FILES];
    unsigned n_before = 0;
    SW_ASSERT(directory >= 0);
    each_entry(see_name); /* names that were made without a call of ours */
    const int n_files = disk.n_files;
    for (int i = 0; i < n_files; i++)
        images[i] = image_of(i, &n_before, subset, is_torn, random);
    for (unsigned i = 0; i < disk.n_names; i++) {
        const struct name *name = &disk.names[i];
        int file = choose(name, is_torn, random);
        const bool is_data = strncmp(name->name, "data-", 5) == 0; /* made without a call of ours */
        if (strcmp(name->name, "lock") == 0)
            continue;
        if (is_data && file < 0 && (!is_torn || sw_random(random) % 2))
            file = now(name->name);
        if (file >= 0 && file < n_files)
            store(directory, name->name, &images[file]);
    }
    store_lock(directory);
    for (int i = 0; i < n_files; i++)
        free(images[i].bytes);
    (void)close(directory);
}
