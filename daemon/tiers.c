#include "daemon/tiers.h"

#include "base/alloc.h"
#include "base/log.h"
#include "daemon/descriptors.h"
#include "daemon/fdstore.h"
#include "daemon/memory.h"
#include "daemon/notify.h"
#include "daemon/service.h"
#include "daemon/witness.h"
#include "spill/tier/tier_host.h"
#include "spill/tier/tier_nvme.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* Requests of 1 MiB that a disk needs to be busy. */
enum { NVME_QUEUE_DEPTH = 64, STAGED_FRAMES = 16 };

/* Slabs come in multiples of this. Besides them the manager keeps the catalogue, two sockets, the disk's key, and
 * a witness for each process whose requests at the disk have not ended. */
enum { SLAB_UNIT_BYTES = 2 << 20, OTHERS_KEPT = 8 };

/* What the manager keeps them as. That of version 1 of the catalogue has no number. */
#define OLD_CATALOGUE_NAME "catalogue"
#define CATALOGUE_PREFIX "catalogue-"
#define CATALOGUE_NAME CATALOGUE_PREFIX "2"
_Static_assert(SW_CATALOGUE_VERSION == 2, "its name says so");
#define SLAB_PREFIX "arena-"
#define NVME_KEY_NAME "nvme-key"

/* ---- catalogue ---- */

/* A service manager starts the unit again at once, and gives up after a number of starts, and with the unit the
 * descriptors. The pause keeps it from that; it ends with a signal. */
enum { REFUSED_START_PAUSE_S = 2 };

static int refuse_newer(unsigned long version, struct sw_err *err) {
    const struct timespec pause = {.tv_sec = REFUSED_START_PAUSE_S};
    sw_log(SW_LOG_ERROR, "catalogue.newer",
           "version=%lu known=%u then=\"not started; all regions stay stored\" hint=\"start the later version of "
           "spillwayd again; or stop the unit, which gives up its regions, and start it\"",
           version, SW_CATALOGUE_VERSION);
    (void)nanosleep(&pause, NULL);
    return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON,
                      "a later version has stored regions (catalogue %lu, here %u): start that one, or stop the unit "
                      "to give them up",
                      version, SW_CATALOGUE_VERSION);
}

/* *ret: the catalogue that counts; -1: there is none. Both are there if a start was killed or has failed after the old
 * one had been copied: the copy is then the newer one. */
static int take_catalogue(struct sw_service *service, int *ret, struct sw_err *err) {
    unsigned long newest = 0;
    const char *version;
    *ret = -1;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, CATALOGUE_PREFIX, &version)) >= 0;) {
        const unsigned long n = strtoul(version, NULL, 10);
        newest = n > newest ? n : newest;
        if (n == SW_CATALOGUE_VERSION && *ret < 0)
            *ret = fd;
        else
            (void)close(fd);
    }
    if (newest > SW_CATALOGUE_VERSION) {
        if (*ret >= 0)
            (void)close(*ret);
        return refuse_newer(newest, err);
    }
    const int old = sw_fdstore_take(service->fdstore, OLD_CATALOGUE_NAME);
    service->has_old_catalogue = old >= 0;
    if (*ret < 0)
        *ret = old;
    else if (old >= 0)
        (void)close(old);
    return 0;
}

/* The manager does not say so when it has no room. */
static int keep_copy(struct sw_service *service, struct sw_err *err) {
    if (sw_fdstore_count(service->fdstore) < sw_fdstore_limit() &&
        sw_fdstore_keep(CATALOGUE_NAME, sw_catalogue_fd(service->catalogue)))
        return 0;
    return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_DAEMON,
                      "the service manager does not keep the catalogue's copy: raise FileDescriptorStoreMax= (now %u)",
                      sw_fdstore_limit());
}

static void forget_catalogue(struct sw_service *service) {
    sw_fdstore_forget(CATALOGUE_NAME);
    sw_tiers_forget_old_catalogue(service);
}

static int open_catalogue(struct sw_service *service, int fd, struct sw_err *err) {
    const int rc = sw_catalogue_open(&service->catalogue, fd, (unsigned)service->config->max_regions, err);
    if (rc == -SW_EVERSION)
        return refuse_newer(SW_CATALOGUE_VERSION + 1, err);
    return !rc && sw_catalogue_is_copy(service->catalogue) ? keep_copy(service, err) : rc;
}

int sw_tiers_open_catalogue(struct sw_service *service, struct sw_err *err) {
    int fd;
    if (!sw_notify_is_heard())
        return 0;
    int rc = take_catalogue(service, &fd, err);
    if (!rc && fd >= 0) {
        rc = open_catalogue(service, fd, err);
        if (rc != -SW_EFRAME)
            return rc;
        sw_log(SW_LOG_ERROR, "catalogue.refused", "name=%s text=\"%s\" then=\"regions of before are lost\"",
               sw_err_name(rc), err->msg);
        forget_catalogue(service);
        rc = 0;
    }
    if (!rc)
        rc = sw_catalogue_open(&service->catalogue, -1, (unsigned)service->config->max_regions, err);
    if (!rc && !sw_fdstore_keep(CATALOGUE_NAME, sw_catalogue_fd(service->catalogue)))
        sw_tiers_close_catalogue(service);
    return rc;
}

void sw_tiers_forget_old_catalogue(struct sw_service *service) {
    if (service->has_old_catalogue)
        sw_fdstore_forget(OLD_CATALOGUE_NAME);
    service->has_old_catalogue = false;
}

void sw_tiers_close_catalogue(struct sw_service *service) {
    sw_catalogue_close(service->catalogue);
    service->catalogue = NULL;
}

/* ---- host memory ---- */

/* On the tier's thread: only the log. */
static void on_tier_report(const struct sw_err *failure, uint64_t backed_bytes, void *arg) {
    char text[300], detail[300];
    (void)arg;
    if (failure)
        sw_log(SW_LOG_WARNING, "tier.grow_failed",
               "name=%s text=%s detail=%s backed_bytes=%" PRIu64
               " then=\"tried again for each spill that finds too little memory\"",
               sw_err_name(failure->code), sw_log_quote(text, sizeof text, failure->msg),
               sw_log_quote(detail, sizeof detail, failure->detail), backed_bytes);
    else
        sw_log(SW_LOG_INFO, "tier.ready", "tier=host backed_bytes=%" PRIu64, backed_bytes);
}

/* On the tier's thread. A slab that is not kept is used all the same: what lies in it is lost with this process, and
 * its regions say so then. */
static void keep_slab(int fd, uint64_t offset, void *arg) {
    char name[48];
    (void)arg;
    (void)snprintf(name, sizeof name, SLAB_PREFIX "%" PRIx64, offset);
    (void)sw_fdstore_keep(name, fd);
}

/* On the loop, for slabs that a smaller bound has made needless; on the tier's thread for one that came to nothing. */
static void forget_slab(uint64_t offset, void *arg) {
    char name[48];
    (void)arg;
    (void)snprintf(name, sizeof name, SLAB_PREFIX "%" PRIx64, offset);
    sw_fdstore_forget(name);
}

/* Slabs of a predecessor; at most so many are made, one allocation for all. NULL: there are none. */
static struct sw_tier_host_slab *take_slabs(struct sw_service *service, unsigned *ret_n, uint64_t *ret_bytes) {
    struct sw_tier_host_slab *slabs = NULL;
    struct stat memory;
    const char *offset;
    for (int fd; (fd = sw_fdstore_take_any(service->fdstore, SLAB_PREFIX, &offset)) >= 0;) {
        struct sw_tier_host_slab *more = sw_realloc(slabs, (*ret_n + 1) * sizeof *slabs);
        if (!more) { /* its regions will be found lost */
            (void)close(fd);
            break;
        }
        slabs = more;
        slabs[(*ret_n)++] = (struct sw_tier_host_slab){.fd = fd, .offset = strtoull(offset, NULL, 16)};
        *ret_bytes += fstat(fd, &memory) == 0 ? (uint64_t)memory.st_size : 0;
    }
    return slabs;
}

/* A slab that the manager has no room for would be lost with this process, and it would not say so: where the bound is
 * more slabs than it keeps, those to come are larger than configured. */
static uint64_t slab_bytes(const struct sw_config *config, unsigned n_kept, uint64_t kept_bytes) {
    const unsigned limit = sw_fdstore_limit(), n_max = limit > OTHERS_KEPT ? limit - OTHERS_KEPT : 0;
    const uint64_t n = n_kept < n_max ? n_max - n_kept : 1, /* OTHERS_KEPT has a few to spare */
        left = config->host_tier_bytes > kept_bytes ? config->host_tier_bytes - kept_bytes : 0,
                   units = (left + SLAB_UNIT_BYTES - 1) / SLAB_UNIT_BYTES,
                   least = (units + n - 1) / n * SLAB_UNIT_BYTES;
    if (least <= config->host_tier_slab_bytes)
        return config->host_tier_slab_bytes;
    sw_log(SW_LOG_INFO, "tier.larger_slabs",
           "tier=host slab_bytes=%" PRIu64 " why=\"the manager keeps %u descriptors\"", least, limit);
    return least;
}

/* Its memory is taken as it is needed, so that this would show only when it is too late. */
static void warn_of_bound(const struct sw_config *config) {
    const uint64_t most = sw_memory_bytes("");
    if (config->host_tier_bytes > most)
        sw_log(SW_LOG_WARNING, "tier.exceeds_memory",
               "tier=host host_tier_bytes=%" PRIu64 " memory_bytes=%" PRIu64
               " then=\"taken as far as it goes: the system may end processes, this one among them, before spills are "
               "refused\"",
               config->host_tier_bytes, most);
}

static int open_host(struct sw_service *service, struct sw_err *err) {
    unsigned n_kept = 0;
    uint64_t kept_bytes = 0;
    unsigned n_witnesses = 0;
    int *witnesses = NULL;
    int rc = service->catalogue ? sw_witness_take(service, &witnesses, &n_witnesses, err) : 0;
    if (rc)
        return rc;
    warn_of_bound(service->config);
    struct sw_tier_host_slab *kept = service->catalogue ? take_slabs(service, &n_kept, &kept_bytes) : NULL;
    const struct sw_tier_host_config config = {
        .capacity_bytes = service->config->host_tier_bytes,
        .initial_bytes = service->config->host_tier_initial_bytes,
        .ahead_bytes = service->config->host_tier_bytes / 100 * service->config->host_tier_ahead_pct,
        .slab_bytes = service->catalogue ? slab_bytes(service->config, n_kept, kept_bytes)
                                         : service->config->host_tier_slab_bytes,
        .devices = service->devices,
        .n_devices = service->n_devices,
        .report = on_tier_report,
        .keep = service->catalogue ? keep_slab : NULL,
        .forget = service->catalogue ? forget_slab : NULL,
        .kept = kept,
        .n_kept = n_kept,
        .witnesses = witnesses,
        .n_witnesses = n_witnesses};
    rc = sw_tier_host_open(&service->tiers.at[0], &config, err);
    service->tiers.n = rc ? 0 : 1;
    sw_free(kept);
    sw_free(witnesses);
    return rc;
}

/* ---- disk ---- */

/* The predecessor's key, if it was kept: without it frames that were kept cannot be read, so they stay encrypted
 * whatever the option says now. */
static int take_key(struct sw_service *service, bool *ret_encrypt, struct sw_err *err) {
    const bool encrypt = strcmp(service->config->nvme_encrypt, "on") == 0;
    const int fd = service->catalogue ? sw_fdstore_take(service->fdstore, NVME_KEY_NAME) : -1;
    if (fd >= 0 && !encrypt)
        sw_log(SW_LOG_WARNING, "nvme.encrypted", "then=\"the NVMe tier stays encrypted until the unit is stopped\"");
    *ret_encrypt = encrypt || fd >= 0;
    if (fd >= 0)
        return sw_nvme_key_adopt(&service->nvme_key, fd, err);
    return encrypt ? sw_nvme_key_make(&service->nvme_key, err) : 0;
}

/* Started without its disk, for which regions wait: the manager goes on keeping what was encrypted with. */
static void leave_key(struct sw_service *service) {
    const int fd = service->catalogue ? sw_fdstore_take(service->fdstore, NVME_KEY_NAME) : -1;
    if (fd >= 0)
        (void)close(fd);
}

/* A disk that cannot be read must not cost what lies in memory, which is gone when the manager gives up on a service
 * that does not start. Nothing is changed on the disk: a start that can read it has its regions again. */
static bool goes_on_without(const struct sw_service *service, int rc, const struct sw_err *err) {
    char text[300], detail[300];
    if (rc != -SW_EIO || !sw_catalogue_is_adopted(service->catalogue))
        return false;
    sw_log(
        SW_LOG_ERROR, "tier.unreadable",
        "tier=nvme name=%s text=%s detail=%s then=\"the service goes on without it: regions on it are lost, unless a "
        "restart can read it\"",
        sw_err_name(rc), sw_log_quote(text, sizeof text, err->msg), sw_log_quote(detail, sizeof detail, err->detail));
    return true;
}

static void log_damage(const struct sw_manifest_damage *damage) {
    if (damage->n_places)
        sw_log(SW_LOG_ERROR, "tier.damaged",
               "tier=nvme file=manifest offset=%" PRIu64 " text=\"%s\" places=%zu doubtful_frames=%" PRIu64
               " dropped_frames=%" PRIu64 " then=\"what is whole is kept; regions that are not are named as lost\"",
               damage->at, damage->what, damage->n_places, damage->n_doubtful, damage->n_dropped);
}

static void log_nvme(const struct sw_service *service, bool encrypt) {
    struct sw_tier_nvme_info info;
    char directory[600];
    sw_tier_nvme_info(service->tiers.at[1], &info);
    log_damage(&info.damage);
    if (info.emptied.code)
        sw_log(SW_LOG_WARNING, "tier.emptied",
               "tier=nvme name=%s text=\"%s\" then=\"its files are removed: frames of before are nobody's\"",
               sw_err_name(info.emptied.code), info.emptied.msg);
    if (!info.reserved)
        sw_log(SW_LOG_WARNING, "tier.not_reserved",
               "tier=nvme bytes=%" PRIu64 " why=\"the file system does not support fallocate()\" then=\"space is taken "
               "as it is written: if others fill the disk before, spills fail\"",
               service->config->nvme_tier_bytes);
    sw_log(SW_LOG_INFO, "tier.ready", "tier=nvme directory=%s bytes=%" PRIu64 " method=%s direct=%s encrypted=%s",
           sw_log_quote(directory, sizeof directory, service->config->nvme_tier_directory),
           service->config->nvme_tier_bytes, info.method == SW_TIER_NVME_URING ? "io_uring" : "threads",
           info.direct ? "yes" : "no", encrypt ? "yes" : "no");
}

static int open_nvme(struct sw_service *service, struct sw_err *err) {
    bool encrypt = false;
    if (strcmp(service->config->nvme_tier_directory, "none") == 0) {
        leave_key(service);
        return 0;
    }
    int rc = take_key(service, &encrypt, err);
    const uint64_t bytes = service->config->nvme_tier_bytes;
    const int witness = rc == 0 ? sw_witness_make(service) : -1;
    const struct sw_tier_nvme_config config = {.directory = service->config->nvme_tier_directory,
                                               .capacity_bytes = bytes,
                                               .file_bytes = bytes < SW_NVME_FILE_BYTES ? bytes : SW_NVME_FILE_BYTES,
                                               .queue_depth = NVME_QUEUE_DEPTH,
                                               /* Without one none of its requests may outlive the process. */
                                               .method = service->catalogue && witness < 0 ? SW_TIER_NVME_THREADS
                                                                                           : SW_TIER_NVME_AUTO,
                                               .witness = witness < 0 ? NULL : &witness,
                                               .key = encrypt ? &service->nvme_key : NULL,
                                               .unwanted = !sw_catalogue_is_adopted(service->catalogue),
                                               .keep_plain = service->catalogue != NULL};
    if (rc == 0)
        rc = sw_tier_nvme_open(&service->tiers.at[1], &config, err);
    if (witness >= 0)
        (void)close(witness);
    if (rc < 0) {
        sw_err_context(err, "nvme_tier_directory %.60s", config.directory);
        return goes_on_without(service, rc, err) ? 0 : rc;
    }
    service->tiers.n = 2;
    if (encrypt && service->nvme_key.is_new && service->catalogue) /* not before the folder is in its encryption */
        (void)sw_fdstore_keep(NVME_KEY_NAME, service->nvme_key.fd);
    log_nvme(service, encrypt);
    return 0;
}

/* ---- both ---- */

int sw_tiers_open(struct sw_service *service, struct sw_err *err) {
    const int rc = open_host(service, err);
    return rc ? rc : open_nvme(service, err);
}

void sw_tiers_close(struct sw_service *service) {
    for (unsigned i = 0; i < service->tiers.n; i++)
        service->tiers.at[i]->ops->close(service->tiers.at[i]);
    service->tiers.n = 0;
    sw_witness_forget(service);
    sw_nvme_key_fini(&service->nvme_key);
}

uint64_t sw_tiers_staging_bytes(const struct sw_service *service) {
    if (service->tiers.n < 2)
        return 0;
    const struct sw_device_info *info = service->devices[0]->ops->info(service->devices[0]);
    const uint64_t n_frames = (uint64_t)STAGED_FRAMES * (service->n_gpus ? service->n_gpus : 1);
    const uint64_t wanted = n_frames * sw_frame_bound_bytes(info->chunk_bytes),
                   half = service->config->host_tier_bytes / 2;
    return wanted < half ? wanted : half;
}
