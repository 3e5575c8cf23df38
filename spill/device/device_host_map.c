#include "spill/device/device_host_map.h"

#include "base/alloc.h"
#include "base/closer.h"

#include <string.h>

struct sw_mapping {
    uint8_t *data; /* memory of this process; NULL: the memfd */
    int fd;
    uint32_t uid; /* the user whose client sent it */
    bool once;    /* as in its description */
};

int sw_host_map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret, struct sw_err *err) {
    (void)device;
    if (desc->kind != SW_MEM_MEMFD)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "the host device cannot reach memory of kind %s",
                          sw_mem_kind_name(desc->kind));
    if (desc->n_parts != 1 || !desc->fds || desc->fds[0] < 0)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "memfd: one descriptor wanted, %u given", desc->n_parts);
    int rc = sw_memfd_check(desc->fds[0], desc->bytes, err);
    if (rc)
        return rc;
    struct sw_mapping *mapping = sw_alloc(sizeof *mapping);
    if (!mapping)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a mapping");
    mapping->fd = desc->fds[0];
    desc->fds[0] = -1;
    mapping->uid = desc->uid;
    mapping->once = desc->once;
    *ret = mapping;
    return 0;
}

int sw_host_adopt(struct sw_device *device, void *data, uint64_t bytes, struct sw_mapping **ret, struct sw_err *err) {
    (void)device;
    (void)bytes;
    struct sw_mapping *mapping = sw_alloc(sizeof *mapping);
    if (!mapping)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a mapping");
    mapping->data = data;
    mapping->fd = -1;
    *ret = mapping;
    return 0;
}

void sw_host_unmap(struct sw_mapping *mapping) {
    if (mapping && !mapping->data)
        sw_closer_close(mapping->fd, mapping->uid); /* closing the last descriptor of a large memory takes long */
    sw_free(mapping);
}

bool sw_host_is_once(const struct sw_mapping *mapping) {
    return mapping->once;
}

int sw_host_read(const struct sw_mapping *mapping, void *to, uint64_t bytes, uint64_t offset, struct sw_err *err) {
    if (!mapping->data)
        return sw_memfd_read(mapping->fd, to, bytes, offset, err);
    memcpy(to, mapping->data + offset, bytes);
    return 0;
}

int sw_host_write(struct sw_memfd_writer *writer, const struct sw_mapping *mapping, const void *from, uint64_t bytes,
                  uint64_t offset, struct sw_err *err) {
    if (!mapping->data)
        return sw_memfd_write(writer, mapping->fd, from, bytes, offset, err);
    memcpy(mapping->data + offset, from, bytes);
    return 0;
}
