/* mem.c - clients' memories: finds the worker that maps one, and unmaps it when it is not used any more. */
#include "spill/engine_state.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <string.h>

/* Bytes that a device keeps for a mapping, and for each part of it, in addition to the description. */
enum { MAPPING_BYTES = 128, PART_BYTES = 2 * sizeof(uint64_t) };

static struct sw_worker *find_worker(const struct sw_engine *engine, const struct sw_mem_desc *desc) {
    static const uint8_t host_uuid[SW_DEVICE_UUID_BYTES];
    const bool on_host = desc->kind == SW_MEM_MEMFD;
    const uint8_t *uuid = on_host ? host_uuid : desc->device_uuid;
    for (unsigned i = 0; i < engine->config.n_devices; i++) {
        const struct sw_device_info *info = sw_worker_device_info(engine->workers[i]);
        bool is_host = memcmp(info->uuid, host_uuid, sizeof host_uuid) == 0;
        if (is_host == on_host && memcmp(info->uuid, uuid, sizeof host_uuid) == 0)
            return engine->workers[i];
    }
    return NULL;
}

static int mem_open(struct sw_owner *owner, struct sw_mem_desc *desc, bool once, struct sw_mem **ret,
                    struct sw_err *err) {
    struct sw_engine *engine = sw_engine_of(owner);
    if (sw_owner_is_ending(owner))
        return sw_err_set(err, -SW_ESHUTDOWN, SW_SCOPE_SESSION, "the session is closing");
    if (owner->n_mems >= engine->config.max_owner_mems)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "the session has %u memories, the most allowed",
                          owner->n_mems);
    struct sw_worker *worker = find_worker(engine, desc);
    if (!worker)
        return sw_err_set(
            err, -SW_EDEVICE, SW_SCOPE_REQUEST,
            "the service does not use the GPU of this %s memory: event=service.ready in its log lists its devices",
            sw_mem_kind_name(desc->kind));
    const uint64_t kept_bytes = sizeof(struct sw_mem) + MAPPING_BYTES + (uint64_t)desc->n_parts * PART_BYTES;
    int rc;
    struct sw_mem *mem = sw_budget_alloc(sw_quota_kept(owner->quota), kept_bytes, "a memory", &rc, err);
    if (!mem)
        return rc;
    mem->kept_bytes = owner->quota ? kept_bytes : 0;
    mem->owner = owner;
    mem->worker = worker;
    mem->bytes = desc->bytes;
    mem->memory.once = once;
    mem->memory.desc = *desc;
    memset(desc, 0, sizeof *desc);
    sw_list_append(&owner->mems, &mem->node);
    owner->n_mems++;
    engine->n_mems++;
    *ret = mem;
    return 0;
}

int sw_mem_open(struct sw_owner *owner, struct sw_mem_desc *desc, bool once, struct sw_mem **ret, struct sw_err *err) {
    int rc = mem_open(owner, desc, once, ret, err);
    sw_mem_desc_fini(desc); /* empty on success */
    return rc;
}

void sw_mem_share(struct sw_mem *mem) {
    SW_ASSERT(!mem->used && !mem->closing);
    mem->memory.once = false;
}

static void submit(struct sw_mem *mem, enum sw_job_kind kind) {
    mem->job.kind = kind;
    mem->job.memory = &mem->memory;
    sw_worker_submit(mem->worker, &mem->job);
}

void sw_mem_map(struct sw_mem *mem, void (*mapped)(const struct sw_err *err, void *arg), void *arg) {
    SW_ASSERT(!mem->memory.once && !mem->closing && !mem->mapped);
    mem->mapped = mapped;
    mem->mapped_arg = arg;
    mem->n_ops++;
    submit(mem, SW_JOB_MAP);
}

void sw_mem_close(struct sw_mem *mem, void (*closed)(void *arg), void *arg) {
    SW_ASSERT(!mem->closing);
    mem->closing = true;
    mem->closed = closed;
    mem->arg = arg;
    if (mem->n_ops == 0)
        submit(mem, SW_JOB_UNMAP);
}

void sw_mem_op_ended(struct sw_mem *mem) {
    if (--mem->n_ops == 0 && mem->closing)
        submit(mem, SW_JOB_UNMAP);
}

void sw_mem_mapped(struct sw_mem *mem) {
    void (*mapped)(const struct sw_err *, void *) = mem->mapped;
    void *arg = mem->mapped_arg;
    const struct sw_err err = mem->job.run.outcome.err;
    sw_mem_op_ended(mem);
    mapped(&err, arg);
}

void sw_mem_unmapped(struct sw_mem *mem) {
    struct sw_owner *owner = mem->owner;
    void (*closed)(void *) = mem->closed;
    void *arg = mem->arg;
    sw_list_remove(&mem->node);
    owner->n_mems--;
    sw_engine_of(owner)->n_mems--;
    sw_budget_give(sw_quota_kept(owner->quota), mem->kept_bytes);
    sw_free(mem);
    sw_owner_settle(owner);
    if (closed)
        closed(arg);
}
