/* What the service manager keeps for the next process: catalogues, the disk's key, pipes of disk requests; and how the
 * tiers are opened with it. The test plays the manager: the linker puts functions from here in the place of fdstore.c's
 * (--wrap). */
#include "daemon/fdstore.h"
#include "daemon/tiers/io_pipe.h"
#include "daemon/tiers/row.h"
#include "daemon/tiers/tiers.h"
#include "spill/journal/catalogue.h"
#include "spill/tier/host/tier_host.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "spill/tier/remote/tier_remote.h"
#include "tests/lib/catalogue_v1.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/kept_log.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include "base/alloc.h"
#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* ---- the manager ------------------------------------------------------------------------------------------------- */

enum { MOST_KEPT = 8 };

static struct {
    struct kept {
        char name[64]; /* empty: unused */
        int fd;        /* -1: taken, and still kept */
    } kept[MOST_KEPT];
    bool refuses;
    unsigned limit;        /* as the process is told */
    unsigned paused_s;     /* by nanosleep() */
    uint64_t memory_bytes; /* of the machine */
    int ending;            /* a descriptor that is closed when the clock is read the fifth time; -1: none */
    _Atomic uint64_t us;   /* of the clock */
    pthread_mutex_t lock;  /* of what is kept: a tier's thread has its slabs kept */
} manager = {.limit = 100, .memory_bytes = UINT64_MAX, .ending = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

static struct kept *find(const char *name, bool is_prefix) {
    for (unsigned i = 0; i < MOST_KEPT; i++) {
        struct kept *kept = &manager.kept[i];
        if (kept->name[0] && strncmp(kept->name, name, is_prefix ? strlen(name) : sizeof kept->name) == 0 &&
            (!is_prefix || kept->fd >= 0))
            return kept;
    }
    return NULL;
}

static bool is_kept(const char *name) {
    return find(name, false) != NULL;
}

static unsigned count(void) {
    unsigned n = 0;
    for (unsigned i = 0; i < MOST_KEPT; i++)
        n += manager.kept[i].name[0] != 0;
    return n;
}

static int take(struct kept *kept) {
    const int fd = kept ? kept->fd : -1;
    if (kept)
        kept->fd = -1;
    return fd;
}

int __wrap_sw_fdstore_take(struct sw_fdstore *store, const char *name);
int __wrap_sw_fdstore_take(struct sw_fdstore *store, const char *name) {
    (void)store;
    return take(find(name, false));
}

int __wrap_sw_fdstore_take_any(struct sw_fdstore *store, const char *prefix, const char **ret_name);
int __wrap_sw_fdstore_take_any(struct sw_fdstore *store, const char *prefix, const char **ret_name) {
    struct kept *kept = find(prefix, true);
    (void)store;
    if (kept)
        *ret_name = kept->name + strlen(prefix);
    return take(kept);
}

unsigned __wrap_sw_fdstore_count(const struct sw_fdstore *store);
unsigned __wrap_sw_fdstore_count(const struct sw_fdstore *store) {
    (void)store;
    return count();
}

unsigned __wrap_sw_fdstore_limit(void);
unsigned __wrap_sw_fdstore_limit(void) {
    return manager.limit;
}

bool __wrap_sw_fdstore_keep(const char *name, int fd);
bool __wrap_sw_fdstore_keep(const char *name, int fd) {
    bool is_kept = false;
    (void)pthread_mutex_lock(&manager.lock);
    for (unsigned i = 0; !is_kept && !manager.refuses && i < MOST_KEPT; i++)
        if (!manager.kept[i].name[0]) {
            (void)snprintf(manager.kept[i].name, sizeof manager.kept[i].name, "%s", name);
            manager.kept[i].fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
            is_kept = true;
        }
    (void)pthread_mutex_unlock(&manager.lock);
    return is_kept;
}

void __wrap_sw_fdstore_forget(const char *name);
void __wrap_sw_fdstore_forget(const char *name) {
    (void)pthread_mutex_lock(&manager.lock);
    for (struct kept *kept; (kept = find(name, false)); kept->name[0] = 0)
        if (kept->fd >= 0)
            (void)close(kept->fd);
    (void)pthread_mutex_unlock(&manager.lock);
}

bool __wrap_sw_notify_is_heard(void);
bool __wrap_sw_notify_is_heard(void) {
    return true;
}

/* Waits take no time. */
uint64_t __wrap_sw_clock_us(void);
uint64_t __wrap_sw_clock_us(void) {
    const uint64_t us = atomic_fetch_add(&manager.us, 1000000) + 1000000;
    if (us == 5000000 && manager.ending >= 0)
        (void)close(manager.ending);
    return us;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left) {
    manager.paused_s += (unsigned)time->tv_sec;
    (void)left;
    return 0;
}

uint64_t __wrap_sw_memory_bytes(const char *root);
uint64_t __wrap_sw_memory_bytes(const char *root) {
    (void)root;
    return manager.memory_bytes;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

static struct sw_config config;
static struct sw_service service;
static struct sw_err err;
static unsigned n_fds; /* open at the beginning */

static void setup(void) {
    sw_config_init(&config);
    config.max_regions = 100;
    config.host_tier_ahead_pct = 0;
    service.config = &config;
    n_fds = sw_count_fds();
    sw_kept_log_begin();
}

static void ck_nothing_is_left(void) {
    for (unsigned i = 0; i < MOST_KEPT; i++)
        if (manager.kept[i].name[0] && manager.kept[i].fd >= 0)
            (void)close(manager.kept[i].fd);
    ck_assert_uint_eq(sw_count_fds(), n_fds);
    ck_assert_int_eq(sw_alloc_live(), 0);
}

static int keep_bytes(const char *name, const char *bytes) {
    const int fd = memfd_create("kept", MFD_CLOEXEC);
    ck_assert(write(fd, bytes, strlen(bytes)) == (ssize_t)strlen(bytes) && __wrap_sw_fdstore_keep(name, fd));
    return close(fd);
}

/* ---- catalogues -------------------------------------------------------------------------------------------------- */

/* The manager keeps a catalogue of this version, and perhaps one of version 1. */
static void keep_catalogues(bool has_newest, bool has_first) {
    struct sw_catalogue *catalogue;
    ck_assert_int_eq(sw_catalogue_open(&catalogue, -1, 100, &err), 0);
    const int first = has_first ? sw_catalogue_v1_of(sw_catalogue_fd(catalogue)) : -1;
    if (has_newest)
        ck_assert(__wrap_sw_fdstore_keep("catalogue-3", sw_catalogue_fd(catalogue)));
    if (has_first)
        ck_assert(__wrap_sw_fdstore_keep("catalogue", first) && close(first) == 0);
    sw_catalogue_close(catalogue);
}

START_TEST(a_new_catalogue_is_kept) {
    manager.refuses = _i;
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
    ck_assert_int_eq(service.catalogue != NULL, !manager.refuses);
    ck_assert_int_eq(is_kept("catalogue-3"), !manager.refuses);
    ck_assert(!sw_catalogue_is_adopted(service.catalogue));
    sw_tiers_close_catalogue(&service);
    ck_nothing_is_left();
}
END_TEST

/* Earlier ones stay kept until the start has succeeded. */
START_TEST(the_newest_catalogue_counts) {
    keep_catalogues(true, true);
    for (int i = 0; i < 2; i++) /* one name may stand for several */
        keep_bytes("catalogue-2", "not read");
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
    ck_assert(sw_catalogue_is_adopted(service.catalogue) && !sw_catalogue_is_copy(service.catalogue));
    ck_assert_uint_eq(count(), 4);
    sw_tiers_forget_old_catalogues(&service);
    ck_assert(is_kept("catalogue-3") && count() == 1);
    sw_tiers_close_catalogue(&service);
    ck_nothing_is_left();
}
END_TEST

/* Loop: the manager has room for the copy; has none, which it does not say; refuses. */
START_TEST(an_old_catalogue_is_copied) {
    const bool has_room = _i == 0;
    keep_catalogues(false, true);
    manager.limit = _i == 1 ? count() : 100;
    manager.refuses = _i == 2;
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), has_room ? 0 : -SW_ELIMIT);
    ck_assert(is_kept("catalogue") && is_kept("catalogue-3") == has_room);
    if (has_room)
        sw_tiers_forget_old_catalogues(&service);
    ck_assert(is_kept("catalogue") != has_room);
    sw_tiers_close_catalogue(&service);
    ck_nothing_is_left();
}
END_TEST

START_TEST(a_damaged_catalogue_is_given_up) {
    keep_bytes("catalogue-3", "damaged");
    keep_catalogues(false, true);
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
    ck_assert(service.catalogue && !sw_catalogue_is_adopted(service.catalogue));
    ck_assert(is_kept("catalogue-3") && count() == 1);
    sw_tiers_close_catalogue(&service);
    ck_nothing_is_left();
}
END_TEST

/* As a_later_catalogue_stops_the_start(), for one that does not say so by its name. */
START_TEST(a_later_version_in_a_catalogue_counts) {
    const uint32_t later = SW_CATALOGUE_VERSION + 1;
    keep_catalogues(true, false);
    ck_assert_int_eq(pwrite(find("catalogue-3", false)->fd, &later, sizeof later, 8), sizeof later);
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), -SW_EVERSION);
    ck_assert(is_kept("catalogue-3") && sw_kept_log_has("catalogue.newer"));
    ck_assert_uint_ge(manager.paused_s, 2);
    ck_nothing_is_left();
}
END_TEST

/* Nothing is forgotten, whatever else is kept. */
START_TEST(a_later_catalogue_stops_the_start) {
    keep_catalogues(_i, true);
    keep_bytes("catalogue-14", "of a later version");
    const unsigned before = count();
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), -SW_EVERSION);
    ck_assert_ptr_nonnull(strstr(err.msg, "catalogue 14"));
    ck_assert_uint_ge(manager.paused_s, 2); /* the manager does not give up */
    ck_assert(!service.catalogue && count() == before);
    ck_nothing_is_left();
}
END_TEST

/* ---- pipes of disk requests -------------------------------------------------------------------------------------- */

START_TEST(a_pipe_is_kept_while_requests_run) {
    char name[SW_IO_PIPE_NAME_BYTES] = "", second[SW_IO_PIPE_NAME_BYTES] = "";
    int *pipes;
    unsigned n;
    ck_assert_int_eq(sw_io_pipe_make(&service, name), -1); /* nothing survives this process */
    keep_catalogues(true, false);
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
    manager.refuses = true;
    ck_assert_int_eq(sw_io_pipe_make(&service, name), -1);
    ck_assert_str_eq(name, "");
    sw_io_pipe_forget(name);
    manager.refuses = false;
    const int end = sw_io_pipe_make(&service, name), ended = sw_io_pipe_make(&service, second);
    ck_assert(end >= 0 && ended >= 0 && is_kept(name) && is_kept(second) && count() == 3);
    (void)close(ended);
    ck_assert_int_eq(sw_io_pipe_take(&service, &pipes, &n, &err), 0); /* by the next process */
    ck_assert_uint_eq(n, 1);
    ck_assert(is_kept(name) && !is_kept(second));
    ck_assert_int_eq(close(end), 0);
    ck_assert_int_eq(close(pipes[0]), 0);
    sw_free(pipes);
    sw_io_pipe_forget(name);
    ck_assert_uint_eq(count(), 1);
    sw_tiers_close_catalogue(&service);
    ck_nothing_is_left();
}
END_TEST

/* The requests of the predecessor end during the start, or not. Memory that they may write to is then not used. */
START_TEST(a_start_waits_for_disk_requests) {
    int *pipes, ends[2];
    unsigned n;
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert(__wrap_sw_fdstore_keep("transfers-1", ends[0]) && close(ends[0]) == 0);
    manager.ending = _i ? ends[1] : -1;
    ck_assert_int_eq(sw_io_pipe_take(&service, &pipes, &n, &err), 0);
    ck_assert_uint_eq(n, _i ? 0 : 1);
    ck_assert_int_eq(sw_kept_log_has("tier.held"), !_i);
    ck_assert(_i || (close(pipes[0]) == 0 && close(ends[1]) == 0));
    sw_free(pipes);
    ck_nothing_is_left();
}
END_TEST

/* ---- the disk ---------------------------------------------------------------------------------------------------- */

static const struct sw_tier_row *nvme_row(void) {
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        if (sw_tier_rows[i]->option && strcmp(sw_tier_rows[i]->option, "nvme_tier_directory") == 0)
            return sw_tier_rows[i];
    return NULL;
}

static struct sw_tier *tier;
static struct sw_tier_nvme_info info;
static void *own;

/* Begins a process of the service, and opens its disk. */
static int open_disk(const char *encrypt) {
    (void)snprintf(config.nvme_encrypt, sizeof config.nvme_encrypt, "%s", encrypt);
    info = (struct sw_tier_nvme_info){.is_encrypted = false};
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
    const int rc = nvme_row()->open(&service, &tier, &own, &err);
    if (tier)
        sw_tier_nvme_info(tier, &info);
    return rc;
}

static void close_disk(void) {
    if (tier)
        tier->ops->close(tier);
    if (own)
        nvme_row()->closed(own);
    tier = own = NULL;
    sw_tiers_close_catalogue(&service);
    ck_assert_ptr_null(find("transfers-", true)); /* all requests have ended */
}

/* A process of the service from its start to its end. Returns whether its disk was encrypted; -1: it had none. */
static int live(const char *encrypt) {
    struct kept *catalogue = find("catalogue-3", false), *key = find("nvme-key", false);
    const int kept[] = {catalogue ? fcntl(catalogue->fd, F_DUPFD_CLOEXEC, 0) : -1,
                        key ? fcntl(key->fd, F_DUPFD_CLOEXEC, 0) : -1};
    ck_assert_msg(open_disk(encrypt) == 0, "%s", err.msg);
    const int ret = tier ? info.is_encrypted : -1;
    close_disk();
    if (catalogue)
        catalogue->fd = kept[0];
    if (key && key->name[0])
        key->fd = kept[1];
    else
        (void)close(kept[1]);
    return ret;
}

static char folder[SW_TEST_PATH_BYTES];

static void use_disk(void) {
    sw_test_folder_here(folder);
    (void)snprintf(config.nvme_tier_directory, sizeof config.nvme_tier_directory, "%s/nvme", folder);
    config.nvme_tier_bytes = UINT64_C(16) << 20;
}

/* The key stays kept, and is used, whatever the options say later. */
START_TEST(a_disk_stays_encrypted) {
    use_disk();
    ck_assert_int_eq(live("off"), 0);
    ck_assert(!is_kept("nvme-key") && count() == 1);
    ck_assert_int_eq(live("on"), 1);
    ck_assert(is_kept("nvme-key") && count() == 2);
    ck_assert_int_eq(live("on"), 1);
    ck_assert(!sw_kept_log_has("nvme.encrypted"));
    ck_assert_int_eq(live("off"), 1);
    ck_assert(sw_kept_log_has("nvme.encrypted"));
    ck_assert(is_kept("nvme-key") && count() == 2);
    (void)snprintf(config.nvme_tier_directory, sizeof config.nvme_tier_directory, "none");
    ck_assert_int_eq(live("off"), -1);
    ck_assert(is_kept("nvme-key") && count() == 2);
    ck_nothing_is_left();
    sw_test_remove(folder);
}
END_TEST

/* A key that lies in the folder, wrapped, need not be kept any longer. */
START_TEST(a_wrapped_key_is_not_kept) {
    static const char master[] = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff\n";
    use_disk();
    ck_assert_int_eq(live("on"), 1);
    ck_assert(is_kept("nvme-key"));
    (void)snprintf(config.nvme_key_file, sizeof config.nvme_key_file, "%s/master", folder);
    const int file = open(config.nvme_key_file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    ck_assert(write(file, master, sizeof master - 1) == sizeof master - 1 && close(file) == 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(live("on"), 1);
        ck_assert(info.is_wrapped && !is_kept("nvme-key"));
    }
    ck_nothing_is_left();
    sw_test_remove(folder);
}
END_TEST

/* A disk that cannot be used as it is configured stops the start, which can be mended, even if regions wait. */
START_TEST(a_refused_disk_stops_the_start) {
    use_disk();
    ck_assert_int_eq(live("off"), 0);
    ck_assert_int_eq(chmod(config.nvme_tier_directory, 0777), 0); /* others might change regions */
    ck_assert_int_eq(open_disk("off"), -SW_EACCES);
    ck_assert(sw_catalogue_is_adopted(service.catalogue));
    ck_assert_ptr_nonnull(strstr(err.msg, "nvme_tier_directory"));
    close_disk();
    ck_nothing_is_left();
    sw_test_remove(folder);
}
END_TEST

/* Requests of io_uring may outlive the process, so its end shows in a kept pipe. Otherwise threads make them. */
START_TEST(requests_are_known_to_the_next_process) {
    use_disk();
    ck_assert_int_eq(open_disk("off"), 0);
    const struct kept *pipe = find("transfers-", true);
    ck_assert(pipe && (info.method != SW_TIER_NVME_URING || !sw_tier_io_has_ended(pipe->fd)));
    close_disk();
    __wrap_sw_fdstore_forget("catalogue-3");
    keep_catalogues(true, false);
    manager.refuses = true;
    ck_assert_int_eq(open_disk("off"), 0);
    ck_assert(service.catalogue && info.method == SW_TIER_NVME_THREADS);
    close_disk();
    ck_nothing_is_left();
    sw_test_remove(folder);
}
END_TEST

static int check_disk(char *ret, size_t bytes) {
    bool is_good;
    memset(ret, 0, bytes);
    FILE *out = fmemopen(ret, bytes, "w");
    const int rc = nvme_row()->check(&config, out, &is_good, &err);
    (void)fclose(out);
    ck_assert(rc < 0 || is_good);
    return rc;
}

/* Frames that a check does not read are not said to be good. */
START_TEST(a_check_says_what_it_cannot_read) {
    char said[2048];
    use_disk();
    ck_assert_int_eq(check_disk(said, sizeof said), -SW_ENOENT);
    ck_assert_ptr_nonnull(strstr(err.msg, "nvme_tier_directory"));
    ck_assert_int_eq(open_disk("on"), 0);
    ck_assert_int_eq(check_disk(said, sizeof said), 0);
    ck_assert_msg(strstr(said, "a service uses the folder"), "%s", said);
    close_disk();
    ck_assert_int_eq(check_disk(said, sizeof said), 0);
    ck_assert_msg(strstr(said, "encrypted frames cannot be read"), "%s", said);
    ck_assert_msg(!strstr(said, "a service uses the folder"), "%s", said);
    sw_test_remove(folder);
}
END_TEST

/* ---- memory ------------------------------------------------------------------------------------------------------ */

#define MIB ((uint64_t)1 << 20)

static uint64_t kept_bytes(const char *name) {
    struct stat st = {.st_size = 0};
    const struct kept *kept = find(name, false);
    ck_assert(!kept || fstat(kept->fd, &st) == 0);
    return (uint64_t)st.st_size;
}

/* What a process of the service does with its memory. */
static void (*meanwhile)(struct sw_tier *tier);
static bool could_grow, had_larger_slabs; /* the last one */

/* A process of the service with this much memory for regions, some of it at once; returns how much of it there was.
 * Taken descriptors are kept for the next one. */
static uint64_t live_in_memory(uint64_t bytes, uint64_t initial_bytes) {
    struct sw_tier_stats stats;
    struct sw_tier *memory = NULL;
    void *memorys = NULL;
    int fds[MOST_KEPT];
    for (unsigned i = 0; i < MOST_KEPT; i++)
        fds[i] = manager.kept[i].name[0] ? fcntl(manager.kept[i].fd, F_DUPFD_CLOEXEC, 0) : -1;
    config.host_tier_bytes = bytes;
    config.host_tier_initial_bytes = initial_bytes;
    config.host_tier_slab_bytes = 2 * MIB;
    ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
    ck_assert_msg(sw_tier_rows[0]->open(&service, &memory, &memorys, &err) == 0, "%s", err.msg);
    while (!sw_kept_log_has("tier.ready") && !sw_kept_log_has("tier.grow_failed"))
        (void)usleep(1000);
    could_grow = !sw_kept_log_has("tier.grow_failed");
    had_larger_slabs = sw_kept_log_has("tier.larger_slabs");
    sw_kept_log_forget();
    if (meanwhile)
        meanwhile(memory);
    memory->ops->stats(memory, &stats);
    memory->ops->close(memory);
    sw_tier_rows[0]->closed(memorys);
    sw_tiers_close_catalogue(&service);
    for (unsigned i = 0; i < MOST_KEPT; i++)
        if (fds[i] >= 0 && manager.kept[i].name[0])
            manager.kept[i].fd = fds[i];
        else if (fds[i] >= 0)
            (void)close(fds[i]);
    return stats.backed_bytes;
}

static void trim(struct sw_tier *memory) {
    (void)memory->ops->trim(memory);
}

/* The next process finds them at their places, also if it may have less, until it has no need of them. */
START_TEST(slabs_are_kept) {
    ck_assert_uint_eq(live_in_memory(64 * MIB, 4 * MIB), 4 * MIB);
    ck_assert(kept_bytes("arena-0") == 2 * MIB && kept_bytes("arena-200000") == 2 * MIB && count() == 3);
    ck_assert_uint_eq(live_in_memory(64 * MIB, 4 * MIB), 4 * MIB);
    ck_assert(is_kept("arena-0") && is_kept("arena-200000") && count() == 3);
    ck_assert_uint_eq(live_in_memory(2 * MIB, 2 * MIB), 4 * MIB);
    ck_assert(is_kept("arena-0") && is_kept("arena-200000") && count() == 3);
    meanwhile = trim;
    ck_assert_uint_eq(live_in_memory(2 * MIB, 2 * MIB), 2 * MIB);
    ck_assert(is_kept("arena-0") && count() == 2);
    ck_nothing_is_left();
}
END_TEST

/* Few of them make up all memory, if the manager keeps only few. */
START_TEST(slabs_are_as_long_as_they_must) {
    manager.limit = 8 + 4; /* with room for others */
    ck_assert_uint_eq(live_in_memory(64 * MIB, 4 * MIB), 16 * MIB);
    ck_assert(kept_bytes("arena-0") == 16 * MIB && count() == 2);
    ck_assert_uint_eq(live_in_memory(64 * MIB, 32 * MIB), 32 * MIB); /* what is kept already counts */
    ck_assert(kept_bytes("arena-1000000") == 16 * MIB && count() == 3);
    ck_assert(had_larger_slabs);
    manager.limit = 8 + 2; /* as many as it has: the rest is one more */
    ck_assert_uint_eq(live_in_memory(64 * MIB, 34 * MIB), 64 * MIB);
    ck_assert(kept_bytes("arena-2000000") == 32 * MIB && count() == 4);
    ck_assert_uint_eq(live_in_memory(32 * MIB, 2 * MIB), 64 * MIB); /* more than there has to be */
    ck_assert(!had_larger_slabs);
    ck_nothing_is_left();
}
END_TEST

/* The bound is no multiple of so many slabs: all of it fits nevertheless. */
START_TEST(slabs_are_rounded_up) {
    manager.limit = 8 + 3;
    ck_assert_uint_eq(live_in_memory(64 * MIB, 2 * MIB), 22 * MIB);
    ck_assert(had_larger_slabs && kept_bytes("arena-0") == 22 * MIB);
    ck_assert_uint_eq(live_in_memory(64 * MIB, 64 * MIB), 64 * MIB);
    ck_assert_uint_eq(count(), 4);
    ck_nothing_is_left();
}
END_TEST

/* The manager has no room even for the others. */
START_TEST(one_slab_is_as_long_as_the_tier) {
    manager.limit = 4;
    ck_assert_uint_eq(live_in_memory(16 * MIB, 2 * MIB), 16 * MIB);
    ck_assert(had_larger_slabs);
    ck_nothing_is_left();
}
END_TEST

/* Memory is taken before a spill has to wait for it; but no more than the machine has now. */
START_TEST(memory_is_made_ahead) {
    config.host_tier_ahead_pct = 10;
    ck_assert_uint_eq(live_in_memory(64 * MIB, 2 * MIB), 8 * MIB);
    ck_nothing_is_left();
}
END_TEST

START_TEST(memory_that_is_gone_is_not_taken) {
    manager.memory_bytes = MIB;
    ck_assert_uint_eq(live_in_memory(64 * MIB, 4 * MIB), 2 * MIB);
    ck_assert(!could_grow);
    ck_nothing_is_left();
}
END_TEST

static unsigned n_pinned;

static int pin(struct sw_device *device, void *base, size_t bytes, struct sw_err *error) {
    (void)device;
    (void)base;
    (void)bytes;
    (void)error;
    n_pinned++;
    return 0;
}

static void unpin(struct sw_device *device, void *base, size_t bytes) {
    (void)device;
    (void)base;
    (void)bytes;
    n_pinned--;
}

static void ck_pinned(struct sw_tier *memory) {
    (void)memory;
    ck_assert_uint_eq(n_pinned, 2);
}

/* Each GPU copies to and from all of it at its full rate. */
START_TEST(memory_is_pinned) {
    static const struct sw_device_ops ops = {.pin = pin, .unpin = unpin};
    static struct sw_device device = {.ops = &ops};
    service.devices[service.n_devices++] = &device;
    meanwhile = ck_pinned;
    (void)live_in_memory(64 * MIB, 4 * MIB);
    ck_assert_uint_eq(n_pinned, 0);
}
END_TEST

static void ck_held(struct sw_tier *memory) {
    struct sw_tier_stats stats;
    const struct sw_tier_recovery nothing = {.n = 0};
    ck_assert_int_eq(memory->ops->recover(memory, &nothing, &err), 0);
    memory->ops->stats(memory, &stats);
    ck_assert_uint_eq(stats.held_bytes, 4 * MIB);
}

/* While the disk works for a process that was killed, it may write to free space. */
START_TEST(memory_is_held_for_the_disk) {
    int ends[2];
    (void)live_in_memory(64 * MIB, 4 * MIB);
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert(__wrap_sw_fdstore_keep("transfers-1", ends[0]) && close(ends[0]) == 0);
    meanwhile = ck_held;
    (void)live_in_memory(64 * MIB, 4 * MIB);
    ck_assert_int_eq(close(ends[1]), 0);
    ck_nothing_is_left();
}
END_TEST

/* ---- the store --------------------------------------------------------------------------------------------------- */

static struct {
    struct sw_tier_remote_config config; /* that the tier was opened with */
    char host[64];
    int rc;
    const char *machine_id;
} remote;

FILE *__wrap_fopen(const char *path, const char *mode);
FILE *__real_fopen(const char *path, const char *mode);

FILE *__wrap_fopen(const char *path, const char *mode) {
    if (strcmp(path, "/etc/machine-id") != 0)
        return __real_fopen(path, mode);
    return remote.machine_id ? fmemopen((void *)remote.machine_id, strlen(remote.machine_id), "r") : NULL;
}

int __wrap_sw_tier_remote_open(struct sw_tier **ret, const struct sw_tier_remote_config *got, struct sw_err *error);
int __wrap_sw_tier_remote_open(struct sw_tier **ret, const struct sw_tier_remote_config *got, struct sw_err *error) {
    (void)ret;
    remote.config = *got;
    (void)snprintf(remote.host, sizeof remote.host, "%s", got->host);
    return sw_err_set(error, remote.rc, SW_SCOPE_DAEMON, "that is played");
}

static int open_store(void) {
    const struct sw_tier_row *row = sw_tier_rows[sw_tier_n_rows - 1];
    ck_assert_str_eq(row->title, "remote");
    return row->open(&service, &tier, &own, &err);
}

/* A host's name in the store. "": it has none. */
static const char *host_of(const char *machine_id) {
    remote.machine_id = machine_id;
    remote.host[0] = 0;
    const int rc = open_store();
    ck_assert_int_eq(rc, remote.host[0] ? 0 : -SW_ECONFIG);
    return remote.host;
}

/* Two hosts with one name would delete each other's regions. The machine's id itself stays at home. */
START_TEST(a_host_has_a_name_of_its_own) {
    char first[64];
    remote.rc = -SW_EIO;
    (void)snprintf(config.remote_tier_endpoint, sizeof config.remote_tier_endpoint, "https://store");
    (void)snprintf(first, sizeof first, "%s", host_of("00112233445566778899aabbccddeeff\n"));
    ck_assert(strlen(first) == 16 && strncmp(first, "0011", 4) != 0);
    ck_assert_str_eq(host_of("00112233445566778899aabbccddeeff"), first);
    ck_assert_str_ne(host_of("00112233445566778899aabbccddeefe\n"), first);
    ck_assert_str_eq(host_of("uninitialized\n"), "");
    ck_assert_str_eq(host_of(NULL), "");
    ck_assert_ptr_nonnull(strstr(err.msg, "remote_tier_host"));
}
END_TEST

/* A store that does not answer stops no start. One that refuses does, unless regions would be lost by this. */
START_TEST(a_start_without_the_store) {
    static const struct {
        int rc, first, next; /* next: of a start with regions */
    } starts[] = {{-SW_ETIMEDOUT, 0, 0}, {-SW_EIO, 0, 0}, {-SW_EACCES, -SW_EACCES, 0}, {-SW_ECONFIG, -SW_ECONFIG, 0}};
    (void)snprintf(config.remote_tier_endpoint, sizeof config.remote_tier_endpoint, "https://store:9000");
    (void)snprintf(config.remote_tier_host, sizeof config.remote_tier_host, "here");
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        remote.rc = starts[i].rc;
        ck_assert_int_eq(open_store(), starts[i].first);
        ck_assert_int_eq(sw_kept_log_has("tier.unreadable"), !starts[i].first);
        ck_assert_ptr_nonnull(strstr(err.msg, "remote_tier_endpoint https://store:9000"));
        keep_catalogues(true, false);
        ck_assert_int_eq(sw_tiers_open_catalogue(&service, &err), 0);
        ck_assert_int_eq(open_store(), starts[i].next);
        ck_assert(sw_kept_log_has("tier.unreadable") && !tier);
        sw_tiers_close_catalogue(&service);
        __wrap_sw_fdstore_forget("catalogue-3");
        sw_kept_log_forget();
    }
    ck_nothing_is_left();
}
END_TEST

#define ck_option(field, ...)                                                                                          \
    ck_assert_msg(strcmp(config.field, __VA_ARGS__) == 0, #field ": %s, not %s", __VA_ARGS__, config.field)

/* Each option arrives where it belongs; the words for none or for the system's own do not arrive as files. */
START_TEST(the_store_is_opened_as_configured) {
    const struct sw_object_config *store = &remote.config.store;
    const char *const options[] = {
        "remote_tier_endpoint=https://a", "remote_tier_bucket=b",   "remote_tier_prefix=c/",
        "remote_tier_region=d",           "remote_tier_host=e",     "remote_tier_tenants=1=f",
        "remote_tier_bytes=32 MiB",       "remote_tier_requests=7", "remote_tier_bytes_per_s=8",
        "remote_tier_buffer_bytes=64 MiB"};
    remote.rc = -SW_EIO;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        ck_assert_msg(sw_config_set(&config, options[i], &err) == 0, "%s: %s", options[i], err.msg);
    ck_assert_int_eq(open_store(), 0);
    ck_assert(!store->ca_file && !store->credentials && !remote.config.key_file);
    ck_option(remote_tier_endpoint, store->endpoint);
    ck_option(remote_tier_bucket, store->bucket);
    ck_option(remote_tier_prefix, store->prefix);
    ck_option(remote_tier_region, store->region);
    ck_option(remote_tier_host, remote.host);
    ck_option(remote_tier_tenants, remote.config.tenants);
    ck_assert(remote.config.capacity_bytes == 32 * MIB && remote.config.pool_bytes == 64 * MIB);
    ck_assert(store->max_requests == 7 && store->bytes_per_s == 8);
    (void)snprintf(config.remote_tier_ca, sizeof config.remote_tier_ca, "/g");
    (void)snprintf(config.remote_tier_keys, sizeof config.remote_tier_keys, "/h");
    (void)snprintf(config.remote_tier_credentials, sizeof config.remote_tier_credentials, "/i");
    ck_assert_int_eq(open_store(), 0);
    ck_option(remote_tier_ca, store->ca_file);
    ck_option(remote_tier_keys, remote.config.key_file);
    ck_option(remote_tier_credentials, store->credentials);
}
END_TEST

/* All tiers are opened, or the last is refused. The caller closes them either way. */
START_TEST(closed_tiers_leave_nothing) {
    use_disk();
    config.host_tier_bytes = config.host_tier_initial_bytes = config.host_tier_slab_bytes = 2 * MIB;
    ck_assert(!_i || mkdir(config.nvme_tier_directory, 0777) == 0);
    ck_assert(!_i || chmod(config.nvme_tier_directory, 0777) == 0);
    (void)snprintf(config.nvme_encrypt, sizeof config.nvme_encrypt, "on");
    ck_assert_int_eq(sw_tiers_open(&service, &err), _i ? -SW_EACCES : 0);
    ck_assert_uint_eq(service.tiers.n, _i ? 1 : 2);
    sw_tiers_close(&service);
    ck_nothing_is_left();
    sw_test_remove(folder);
}
END_TEST

/* Only tiers that exist count. A store's connections have a second descriptor while they are closed. */
START_TEST(what_the_tiers_need_adds_up) {
    const uint64_t gib = UINT64_C(1) << 30;
    config.host_tier_bytes = 3 * gib;
    config.nvme_tier_bytes = 8 * gib + 4096;
    config.remote_tier_bytes = 16 * gib;
    config.remote_tier_buffer_bytes = gib;
    config.remote_tier_requests = 7;
    ck_assert_uint_eq(sw_tiers_bytes(&config), 3 * gib);
    ck_assert(!sw_tiers_buffer_bytes(&config) && !sw_tiers_descriptors(&config));
    (void)snprintf(config.nvme_tier_directory, sizeof config.nvme_tier_directory, "/nvme");
    ck_assert_uint_eq(sw_tiers_bytes(&config), 11 * gib + 4096);
    ck_assert_uint_eq(sw_tiers_descriptors(&config), 3); /* files of 4 GiB */
    (void)snprintf(config.remote_tier_endpoint, sizeof config.remote_tier_endpoint, "https://store");
    ck_assert_uint_eq(sw_tiers_bytes(&config), 27 * gib + 4096);
    ck_assert_uint_eq(sw_tiers_buffer_bytes(&config), gib);
    const uint64_t n = sw_tiers_descriptors(&config);
    config.remote_tier_requests += 5;
    ck_assert_uint_eq(sw_tiers_descriptors(&config), n + 2 * 5);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_kept");
    TCase *tcase = tcase_create("kept");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_loop_test(tcase, a_new_catalogue_is_kept, 0, 2);
    tcase_add_test(tcase, the_newest_catalogue_counts);
    tcase_add_loop_test(tcase, an_old_catalogue_is_copied, 0, 3);
    tcase_add_test(tcase, a_damaged_catalogue_is_given_up);
    tcase_add_loop_test(tcase, a_later_catalogue_stops_the_start, 0, 2);
    tcase_add_test(tcase, a_later_version_in_a_catalogue_counts);
    tcase_add_test(tcase, a_pipe_is_kept_while_requests_run);
    tcase_add_loop_test(tcase, a_start_waits_for_disk_requests, 0, 2);
    tcase_add_test(tcase, a_disk_stays_encrypted);
    tcase_add_test(tcase, a_wrapped_key_is_not_kept);
    tcase_add_test(tcase, a_refused_disk_stops_the_start);
    tcase_add_test(tcase, requests_are_known_to_the_next_process);
    tcase_add_test(tcase, a_check_says_what_it_cannot_read);
    tcase_add_test(tcase, slabs_are_kept);
    tcase_add_test(tcase, slabs_are_as_long_as_they_must);
    tcase_add_test(tcase, slabs_are_rounded_up);
    tcase_add_test(tcase, one_slab_is_as_long_as_the_tier);
    tcase_add_test(tcase, memory_is_made_ahead);
    tcase_add_test(tcase, memory_that_is_gone_is_not_taken);
    tcase_add_test(tcase, memory_is_pinned);
    tcase_add_test(tcase, memory_is_held_for_the_disk);
    tcase_add_loop_test(tcase, closed_tiers_leave_nothing, 0, 2);
    tcase_add_test(tcase, what_the_tiers_need_adds_up);
    tcase_add_test(tcase, a_host_has_a_name_of_its_own);
    tcase_add_test(tcase, a_start_without_the_store);
    tcase_add_test(tcase, the_store_is_opened_as_configured);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
