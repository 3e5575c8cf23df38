/* nvme.c - the tier on a disk: its folder, its key and its in-flight I/O pipe, which the service manager keeps. */
#include "daemon/tiers/row.h"

#include "base/alloc.h"
#include "base/log.h"
#include "daemon/fdstore.h"
#include "daemon/tiers/io_pipe.h"
#include "spill/tier/nvme/nvme_check.h"
#include "spill/tier/nvme/tier_nvme.h"
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

/* Requests of 1 MiB that keep a disk busy. */
enum { NVME_QUEUE_DEPTH = 64 };

/* Length of a data file. Each stays open, so files are long: a disk of terabytes has few of them. */
#define NVME_FILE_BYTES ((uint64_t)4 << 30)

#define NVME_KEY_NAME "nvme-key"
#define MASTER_KEY_CREDENTIAL "spillway-nvme-key"

/* Takes the predecessor's key, if it was kept. Without it the kept frames cannot be read, so they stay encrypted
 * whatever the option says now. */
static int take_key(struct sw_service *service, struct sw_nvme_key *ret, bool *ret_encrypt, struct sw_err *err) {
    const bool encrypt = strcmp(service->config->nvme_encrypt, "on") == 0;
    const int fd = service->catalogue ? sw_fdstore_take(service->fdstore, NVME_KEY_NAME) : -1;
    if (fd >= 0 && !encrypt)
        sw_log(SW_LOG_WARNING, "nvme.encrypted", "then=\"the NVMe tier stays encrypted until the unit is stopped\"");
    *ret_encrypt = encrypt || fd >= 0;
    if (fd >= 0)
        return sw_nvme_key_adopt(ret, fd, err);
    return encrypt ? sw_nvme_key_make(ret, err) : 0;
}

/* For a start without the disk, while regions wait for it: the manager still keeps the key. */
static void leave_key(struct sw_service *service) {
    const int fd = service->catalogue ? sw_fdstore_take(service->fdstore, NVME_KEY_NAME) : -1;
    if (fd >= 0)
        (void)close(fd);
}

/* A disk that cannot be read must not cost the regions in memory, which are lost when the manager gives up on a service
 * that does not start. Nothing is changed on the disk: a start that can read it recovers its regions. */
static bool goes_on_without(const struct sw_service *service, int rc, const struct sw_err *err) {
    char text[300], detail[300];
    if (rc != -SW_EIO || !sw_catalogue_is_adopted(service->catalogue))
        return false;
    sw_log(SW_LOG_ERROR, "tier.unreadable",
           "tier=nvme name=%s text=%s detail=%s then=\"the service works without it: regions on it are lost, unless a "
           "restart can read it\"",
           sw_err_name(rc), sw_log_quote(text, sizeof text, err->msg),
           sw_log_quote(detail, sizeof detail, err->detail));
    return true;
}

static void log_damage(const struct sw_manifest_damage *damage) {
    if (damage->n_places)
        sw_log(SW_LOG_ERROR, "tier.damaged",
               "tier=nvme file=manifest offset=%" PRIu64 " text=\"%s\" places=%zu doubtful_frames=%" PRIu64
               " dropped_frames=%" PRIu64 " then=\"whole frames are kept; each region that is not whole is named\"",
               damage->at, damage->what, damage->n_places, damage->n_doubtful, damage->n_dropped);
}

static void log_nvme(const struct sw_config *config, struct sw_tier *tier) {
    struct sw_tier_nvme_info info;
    char directory[600];
    sw_tier_nvme_info(tier, &info);
    if (info.is_rewrapped)
        sw_log(SW_LOG_INFO, "nvme.key_rewrapped",
               "then=\"the first master key of nvme_key_file opens the folder; the others can be removed\"");
    log_damage(&info.damage);
    if (info.damaged_names)
        sw_log(SW_LOG_WARNING, "tier.damaged",
               "tier=nvme file=names places=%zu then=\"durable regions whose records are whole are kept; after a power "
               "cut, records that were not flushed look like this\"",
               info.damaged_names);
    if (info.emptied.code)
        sw_log(SW_LOG_WARNING, "tier.emptied",
               "tier=nvme name=%s text=\"%s\" then=\"its files are removed: no catalogue knows their frames\"",
               sw_err_name(info.emptied.code), info.emptied.msg);
    if (!info.reserved)
        sw_log(SW_LOG_WARNING, "tier.not_reserved",
               "tier=nvme bytes=%" PRIu64 " why=\"the file system does not support fallocate()\" then=\"space is taken "
               "when it is written: if others fill the disk earlier, spills fail\"",
               config->nvme_tier_bytes);
    sw_log(SW_LOG_INFO, "tier.ready", "tier=nvme directory=%s bytes=%" PRIu64 " method=%s direct=%s encrypted=%s",
           sw_log_quote(directory, sizeof directory, config->nvme_tier_directory), config->nvme_tier_bytes,
           info.method == SW_TIER_NVME_URING ? "io_uring" : "threads", info.direct ? "yes" : "no",
           info.is_encrypted ? "yes" : "no");
}

/* The tier's own data. */
struct own {
    struct sw_nvme_key key;       /* empty without encryption */
    struct sw_nvme_key unwrapped; /* the folder's own; empty if it has none */
    char io_pipe[SW_IO_PIPE_NAME_BYTES];
};

static uint64_t bytes_of(const struct sw_config *config) {
    return strcmp(config->nvme_tier_directory, "none") == 0 ? 0 : config->nvme_tier_bytes;
}

static uint64_t file_bytes(const struct sw_config *config) {
    return config->nvme_tier_bytes < NVME_FILE_BYTES ? config->nvme_tier_bytes : NVME_FILE_BYTES;
}

static uint64_t count_files(const struct sw_config *config) {
    return (bytes_of(config) + NVME_FILE_BYTES - 1) / NVME_FILE_BYTES;
}

/* ret: NULL: there are no master keys. */
static int open_keyring(const struct sw_config *config, struct sw_object_keyring **ret, struct sw_err *err) {
    static const struct sw_object_keyring_use use = {MASTER_KEY_CREDENTIAL, "NVMe"};
    const bool is_credential = strcmp(config->nvme_key_file, "credential") == 0;
    *ret = NULL;
    if (strcmp(config->nvme_key_file, "none") == 0)
        return 0;
    return sw_object_keyring_open_for(ret, is_credential ? NULL : config->nvme_key_file, &use, err);
}

static int open_folder(struct sw_service *service, struct own *own, bool encrypt, struct sw_tier **ret,
                       struct sw_err *err) {
    struct sw_object_keyring *keyring;
    int rc = open_keyring(service->config, &keyring, err);
    if (rc)
        return rc;
    const int io_pipe = sw_io_pipe_make(service, own->io_pipe);
    const struct sw_tier_nvme_config config = {.directory = service->config->nvme_tier_directory,
                                               .capacity_bytes = service->config->nvme_tier_bytes,
                                               .file_bytes = file_bytes(service->config),
                                               .queue_depth = NVME_QUEUE_DEPTH,
                                               /* Without a kept pipe no request may outlive the process. */
                                               .method = service->catalogue && io_pipe < 0 ? SW_TIER_NVME_THREADS
                                                                                           : SW_TIER_NVME_AUTO,
                                               .io_pipe = io_pipe < 0 ? NULL : &io_pipe,
                                               .key = encrypt ? &own->key : NULL,
                                               .keyring = keyring,
                                               .unwrapped = &own->unwrapped,
                                               .unwanted = !sw_catalogue_is_adopted(service->catalogue),
                                               .keep_plain = service->catalogue != NULL};
    rc = sw_tier_nvme_open(ret, &config, err);
    sw_object_keyring_close(keyring);
    if (io_pipe >= 0)
        (void)close(io_pipe);
    if (rc)
        sw_err_context(err, "nvme_tier_directory %.60s", config.directory);
    return rc;
}

static void nvme_closed(void *arg) {
    struct own *own = arg;
    sw_io_pipe_forget(own->io_pipe);
    sw_nvme_key_fini(&own->key);
    sw_nvme_key_fini(&own->unwrapped);
    sw_free(own);
}

/* Call it only when the folder has its encryption. A key that is in the folder itself need not be kept. */
static void keep_key(const struct own *own, struct sw_tier *tier) {
    struct sw_tier_nvme_info info;
    sw_tier_nvme_info(tier, &info);
    if (info.is_wrapped)
        sw_fdstore_forget(NVME_KEY_NAME);
    else if (info.is_encrypted && own->key.is_new)
        (void)sw_fdstore_keep(NVME_KEY_NAME, own->key.fd);
}

static int open_nvme(struct sw_service *service, struct sw_tier **ret, void **ret_own, struct sw_err *err) {
    bool encrypt = false;
    if (!bytes_of(service->config)) {
        leave_key(service);
        return 0;
    }
    struct own *own = sw_alloc(sizeof *own);
    if (!own)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    *ret_own = own;
    int rc = take_key(service, &own->key, &encrypt, err);
    if (!rc)
        rc = open_folder(service, own, encrypt, ret, err);
    if (rc)
        return goes_on_without(service, rc, err) ? 0 : rc;
    if (service->catalogue)
        keep_key(own, *ret);
    log_nvme(service->config, *ret);
    return 0;
}

/* ---- --check-tier ---- */

static void print_bad(const struct sw_checked_frame *frame, void *arg) {
    (void)fprintf(arg,
                  "bad frame   region %" PRIu32 ":%" PRIu32 ", chunk %" PRIu64 ", %s at byte %" PRIu64 ", %" PRIu64
                  " bytes: %s: %s%s\n",
                  frame->slot, frame->gen, frame->chunk, frame->file, frame->offset, frame->bytes,
                  sw_err_name(frame->err.code), frame->err.msg,
                  frame->doubtful ? " (perhaps released: records are missing)" : "");
}

static void print_places(const struct sw_nvme_check *check, FILE *out) {
    for (size_t i = 0; i < check->n_places && i < SW_MANIFEST_MAX_PLACES; i++)
        (void)fprintf(out, "damage      manifest at byte %" PRIu64 ", %" PRIu64 " bytes: %s\n", check->places[i].at,
                      check->places[i].bytes, check->places[i].what);
    if (check->n_places > SW_MANIFEST_MAX_PLACES)
        (void)fprintf(out, "damage      %zu more places\n", check->n_places - SW_MANIFEST_MAX_PLACES);
}

static void print_summary(const struct sw_nvme_check *check, FILE *out) {
    (void)fprintf(
        out, "manifest    %" PRIu64 " bytes, %zu damaged places, %" PRIu64 " bytes of a record not written in full\n",
        check->manifest_bytes, check->n_places, check->tail_bytes);
    (void)fprintf(out,
                  "frames      %" PRIu64 ", %" PRIu64 " bytes; %" PRIu64
                  " perhaps released, since records are missing; %" PRIu64 " overwritten and left out\n",
                  check->n_frames, check->frame_bytes, check->n_doubtful, check->n_dropped);
    (void)fprintf(out, "read        %" PRIu64 ", of these damaged: %" PRIu64 "%s%s\n", check->n_read, check->n_bad,
                  check->is_encrypted ? "; encrypted frames cannot be read without the service's key" : "",
                  check->in_use ? "; a service uses the folder, so no frames were read" : "");
    (void)fprintf(out, "result      %s\n", sw_nvme_check_is_good(check) ? "nothing is damaged" : "damaged");
}

static int check_folder(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err) {
    struct sw_nvme_check check;
    if (!bytes_of(config))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "nvme_tier_directory is none: set it to the folder to check");
    const int rc = sw_nvme_check(&check, config->nvme_tier_directory, file_bytes(config), print_bad, out, err);
    if (rc < 0) {
        sw_err_context(err, "nvme_tier_directory %.60s", config->nvme_tier_directory);
        return rc;
    }
    print_places(&check, out);
    print_summary(&check, out);
    *ret_good = sw_nvme_check_is_good(&check);
    return 0;
}

const struct sw_tier_row sw_tier_row_nvme = {.kind = &sw_tier_nvme_kind,
                                             .title = "NVMe",
                                             .option = "nvme_tier_directory",
                                             .bytes = bytes_of,
                                             .n_descriptors = count_files,
                                             .open = open_nvme,
                                             .closed = nvme_closed,
                                             .check = check_folder};
