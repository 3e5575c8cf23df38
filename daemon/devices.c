#include "daemon/devices.h"

#include "base/log.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int open_gpus(struct sw_service *service, const struct sw_device_config *config, struct sw_err *err) {
    /* Set before the first call of CUDA: kernels then take their device memory at the start, not at their first launch.
     */
    (void)setenv("CUDA_MODULE_LOADING", "EAGER", 0);
    const int old = sw_device_cuda_check_driver(err), count = old ? 0 : sw_device_cuda_count();
    if (old && strcmp(service->config->device, "cuda") == 0)
        return old;
    if (old)
        sw_log(SW_LOG_ERROR, "device.skipped", "cause=\"%s\" then=\"the service works with host memory only\"",
               err->msg);
    for (int i = 0; i < count && service->n_gpus < SW_MAX_DEVICES - 1; i++) {
        struct sw_device *device = NULL;
        const int rc = sw_device_cuda_open(&device, i, config, err);
        if (rc == -SW_ENOTSUP) { /* an old card beside good ones must not prevent the start */
            sw_log(SW_LOG_WARNING, "device.skipped", "ordinal=%d cause=\"%s\" then=\"the service works without it\"", i,
                   err->msg);
            continue;
        }
        if (rc < 0) {
            sw_err_context(err, "GPU %d", i);
            return rc;
        }
        service->devices[service->n_devices++] = device;
        service->n_gpus++;
    }
    return 0;
}

static int open_host(struct sw_service *service, const struct sw_device_config *config, struct sw_err *err) {
    const int rc = sw_device_host_open(&service->devices[service->n_devices], config, err);
    if (rc < 0)
        return rc;
    const struct sw_device *device = service->devices[service->n_devices++];
    if (device->ops->info(device)->is_unguarded)
        sw_log(SW_LOG_WARNING, "memory.unguarded",
               "cause=\"userfaultfd() cannot be used: Linux before 5.11, or it is forbidden\" then=\"missing pages of "
               "clients' memory are made at the service's expense\"");
    return 0;
}

static uint64_t largest_chunk_bytes(const struct sw_service *service) {
    uint64_t largest = 0;
    for (unsigned i = 0; i < service->n_devices; i++) {
        const struct sw_device *device = service->devices[i];
        const uint64_t chunk_bytes = device->ops->info(device)->chunk_bytes;
        largest = chunk_bytes > largest ? chunk_bytes : largest;
    }
    return largest;
}

/* The longest chunk of a predecessor's regions. */
static uint64_t stored_chunk_bytes(const struct sw_service *service) {
    return service->catalogue && sw_catalogue_is_adopted(service->catalogue)
               ? sw_catalogue_longest_chunk(service->catalogue)
               : 0;
}

/* Logs chunks and slots that differ from the options, and regions that these chunks cannot restore. */
static void log_stored_chunks(const struct sw_service *service, uint64_t stored_bytes) {
    for (unsigned i = 0; stored_bytes && i < service->n_devices; i++) {
        const struct sw_device_info *info = service->devices[i]->ops->info(service->devices[i]);
        if (info->chunk_bytes < stored_bytes)
            sw_log(SW_LOG_WARNING, "chunks.too_long",
                   "device=%s chunk_bytes=%" PRIu64 " stored_bytes=%" PRIu64
                   " then=\"regions with longer chunks are kept; restart with more scratch_bytes to restore them\"",
                   info->name, info->chunk_bytes, stored_bytes);
        else if ((service->config->chunk_bytes && info->chunk_bytes > service->config->chunk_bytes) ||
                 info->n_slots < service->config->slots)
            sw_log(SW_LOG_WARNING, "chunks.kept",
                   "device=%s chunk_bytes=%" PRIu64
                   " slots=%u then=\"the chunk length of stored regions is kept until a start without stored regions\"",
                   info->name, info->chunk_bytes, info->n_slots);
    }
}

int sw_devices_open(struct sw_service *service, struct sw_err *err) {
    struct sw_device_config config = {.scratch_bytes = service->config->scratch_bytes,
                                      .n_slots = (unsigned)service->config->slots,
                                      .chunk_bytes = service->config->chunk_bytes,
                                      .stored_chunk_bytes = stored_chunk_bytes(service)};
    const char *wanted = service->config->device;
    int rc = strcmp(wanted, "host") == 0 ? 0 : open_gpus(service, &config, err);
    if (rc == 0 && strcmp(wanted, "cuda") == 0 && service->n_gpus == 0)
        rc = sw_err_set(err, -SW_EDEVICE, SW_SCOPE_DAEMON, "device=cuda, but no CUDA GPU can be used");
    /* The host device uses the GPUs' chunk length, if it can, so that it can restore regions that they have spilled. */
    const uint64_t stored_bytes = config.stored_chunk_bytes, gpu_bytes = largest_chunk_bytes(service);
    config.stored_chunk_bytes = gpu_bytes > stored_bytes ? gpu_bytes : stored_bytes;
    if (rc == 0)
        rc = open_host(service, &config, err);
    if (rc < 0)
        sw_devices_close(service);
    else
        log_stored_chunks(service, stored_bytes);
    return rc;
}

void sw_devices_close(struct sw_service *service) {
    while (service->n_devices) {
        struct sw_device *device = service->devices[--service->n_devices];
        device->ops->close(device);
    }
    service->n_gpus = 0;
}

const char *sw_devices_names(const struct sw_service *service, char *ret, size_t ret_bytes) {
    size_t n = 0;
    ret[0] = 0;
    for (unsigned i = 0; i < service->n_devices && n < ret_bytes; i++) {
        const struct sw_device *device = service->devices[i];
        n += (size_t)snprintf(ret + n, ret_bytes - n, "%s%s", i ? "," : "", device->ops->info(device)->name);
    }
    return ret;
}
