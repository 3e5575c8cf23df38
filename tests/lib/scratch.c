#include "tests/lib/scratch.h"

#include "base/assert.h"
#include <dirent.h>
#include <errno.h>
#include <ftw.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

static char prefix[32] = "spillway-test-"; /* the same for all programs that do not ask for a mark */

/* A number by chance, not the process's: containers may share a folder. */
void sw_test_scratch_begin(void) {
    uint32_t mark = 0;
    SW_ASSERT(getrandom(&mark, sizeof mark, 0) == (ssize_t)sizeof mark);
    (void)snprintf(prefix, sizeof prefix, "spillway-test-%08x-", mark);
}

static int remove_one(const char *path, const struct stat *stat, int type, struct FTW *at) {
    (void)stat;
    (void)type;
    (void)at;
    (void)remove(path); /* files that cannot be removed stay */
    return 0;
}

void sw_test_remove(const char *folder) {
    SW_ASSERT(nftw(folder, remove_one, 16, FTW_DEPTH | FTW_PHYS) == 0);
}

void sw_test_put(const char *root, const char *path, const char *text) {
    char whole[512];
    SW_ASSERT((size_t)snprintf(whole, sizeof whole, "%s%s", root, path) < sizeof whole);
    for (char *end = whole + strlen(root) + 1; (end = strchr(end, '/')); end++) {
        *end = 0;
        SW_ASSERT(mkdir(whole, 0755) == 0 || errno == EEXIST);
        *end = '/';
    }
    FILE *file = fopen(whole, "we");
    SW_ASSERT(file && fputs(text, file) >= 0 && fclose(file) == 0);
}

static void sweep(const char *folder) {
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char path[sizeof entry->d_name + 8];
        (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (strncmp(entry->d_name, prefix, strlen(prefix)) == 0)
            (void)nftw(path, remove_one, 8, FTW_DEPTH | FTW_PHYS);
    }
    if (dir)
        (void)closedir(dir);
}

void sw_test_scratch_end(void) {
    sweep("/tmp");
    sweep("/dev/shm");
    sweep(".");
}

static void name(char ret[SW_TEST_PATH_BYTES], const char *folder) {
    SW_ASSERT(snprintf(ret, SW_TEST_PATH_BYTES, "%s%sXXXXXX", folder, prefix) < SW_TEST_PATH_BYTES);
}

void sw_test_folder(char ret[SW_TEST_PATH_BYTES]) {
    name(ret, "/tmp/");
    SW_ASSERT(mkdtemp(ret));
}

void sw_test_folder_in_memory(char ret[SW_TEST_PATH_BYTES]) {
    name(ret, "/dev/shm/");
    if (!mkdtemp(ret))
        sw_test_folder(ret);
}

void sw_test_folder_here(char ret[SW_TEST_PATH_BYTES]) {
    name(ret, "");
    SW_ASSERT(mkdtemp(ret));
}

int sw_test_file(char ret[SW_TEST_PATH_BYTES]) {
    name(ret, "/tmp/");
    const int fd = mkstemp(ret);
    SW_ASSERT(fd >= 0);
    return fd;
}
