/* device_cuda.c - a CUDA GPU as a device: slots are streams, all memory is one allocation made at open.
 *
 * Device memory, taken once: per slot a frame buffer (the bound of a chunk), scratch for encoding and training, a
 * symbol table, the sample and the results. A step is queued and followed by copies of what the host must know into the
 * slot's page-locked block; slot_poll reads that block when the stream has passed. */
#include "spill/device/device_cuda.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <stdbool.h>
#include <string.h>

enum { DEFAULT_SLOTS = 4, MAX_SLOTS = 64, ALIGN_BYTES = 256 };
#define CHUNK_STEP_BYTES ((uint64_t)1 << 20)
#define MAX_CHUNK_BYTES ((uint64_t)256 << 20)
#define DEVICE_PAGE_BYTES ((uint64_t)2 << 20) /* cudaMalloc takes memory in these */

/* Page-locked; written by the GPU, read by the host when the slot is idle. */
struct slot_host {
    struct sw_gpu_result result;
    struct sw_gpu_training training;
    struct sw_v5t_table table;
};

struct slot {
    cudaStream_t stream;
    cudaEvent_t idle;
    bool dirty;        /* steps were queued after `idle` was recorded */
    struct sw_err err; /* first failure of queueing since the last report */
    uint8_t *d_frame, *d_scratch, *d_sample;
    struct sw_v5t_table *d_table;
    struct sw_gpu_result *d_result;
    struct sw_gpu_training *d_training;
    struct slot_host *host;
    struct sw_plan plan;
    /* What to make of the results: of the last make_plan, encode or decode. */
    enum { NOTHING, PLANNED, ENCODED, DECODED } made;
    enum sw_codec_id codec; /* ENCODED: of the plan */
    const uint8_t *d_in;    /* ENCODED, PLANNED: the source */
    uint64_t in_bytes;
};

struct device_cuda {
    struct sw_device device;
    struct sw_device_info info;
    int ordinal;
    struct sw_cuda_driver driver;
    uint8_t *d_memory;
    struct slot_host *host;
    uint64_t frame_cap_bytes, scratch_bytes;
    struct slot slots[MAX_SLOTS];
};

static struct device_cuda *cuda_of(struct sw_device *device) {
    return (struct device_cuda *)device;
}

/* Makes the device current on the calling thread and gives the slot. */
static struct slot *enter(struct sw_device *device, unsigned s) {
    struct device_cuda *d = cuda_of(device);
    (void)cudaSetDevice(d->ordinal);
    return &d->slots[s];
}

/* Result of queueing a step: the first failure is kept for slot_wait, and steps after it are skipped. */
static int queued(struct slot *slot, cudaError_t e, const char *call, struct sw_err *err) {
    slot->dirty = true;
    if (e == cudaSuccess)
        return 0;
    const int rc = sw_cuda_fail(&slot->err, -SW_EGPU, e, call);
    if (err)
        *err = slot->err;
    return rc;
}

/* The same for a call of the codec, whose record is complete but for what a dead context means. */
static int queued_codec(struct slot *slot, int rc, const struct sw_err *cause, struct sw_err *err) {
    slot->dirty = true;
    if (!rc)
        return 0;
    if (cause->cuda)
        return queued(slot, (cudaError_t)cause->cuda, cause->detail, err);
    slot->err = *cause;
    if (err)
        *err = *cause;
    return rc;
}

/* Steps behind a failed one are skipped until it was reported. */
static int skip(const struct slot *slot, struct sw_err *err) {
    if (slot->err.code && err)
        *err = slot->err;
    return slot->err.code;
}

/* ---- memory ---- */

static const struct sw_device_info *cuda_info(const struct sw_device *device) {
    return &((const struct device_cuda *)device)->info;
}

static int cuda_map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret,
                    struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    (void)cudaSetDevice(d->ordinal);
    return sw_cuda_map(&d->driver, d->ordinal, desc, ret, err);
}

static void cuda_unmap(struct sw_device *device, struct sw_mapping *mapping) {
    struct device_cuda *d = cuda_of(device);
    (void)cudaSetDevice(d->ordinal);
    sw_cuda_unmap(&d->driver, mapping);
}

static int cuda_pin(struct sw_device *device, void *slab, size_t bytes, struct sw_err *err) {
    (void)cudaSetDevice(cuda_of(device)->ordinal);
    const cudaError_t e = cudaHostRegister(slab, bytes, cudaHostRegisterPortable);
    if (e == cudaErrorHostMemoryAlreadyRegistered) { /* by another GPU's device; portable holds for all */
        (void)cudaGetLastError();
        return 0;
    }
    return e == cudaSuccess ? 0 : sw_cuda_fail(err, -SW_EGPU, e, "cudaHostRegister");
}

static void cuda_unpin(struct sw_device *device, void *slab, size_t bytes) {
    (void)bytes;
    (void)cudaSetDevice(cuda_of(device)->ordinal);
    (void)cudaHostUnregister(slab);
    (void)cudaGetLastError(); /* not registered any more: another GPU's device was first */
}

/* ---- steps ---- */

static int cuda_wait_event(struct sw_device *device, unsigned s, const uint8_t bytes[SW_MEM_HANDLE_BYTES],
                           struct sw_err *err) {
    struct slot *slot = enter(device, s);
    cudaIpcEventHandle_t handle;
    cudaEvent_t event;
    _Static_assert(sizeof handle == SW_MEM_HANDLE_BYTES, "handles fit the wire");
    if (skip(slot, err))
        return slot->err.code;
    memcpy(&handle, bytes, sizeof handle);
    cudaError_t e = cudaIpcOpenEventHandle(&event, handle);
    if (e != cudaSuccess) {
        const int rc = sw_cuda_fail(&slot->err, -SW_EIMPORT, e, "cudaIpcOpenEventHandle");
        if (err)
            *err = slot->err;
        return rc;
    }
    e = cudaStreamWaitEvent(slot->stream, event, 0);
    (void)cudaEventDestroy(event); /* the queued wait keeps what it needs */
    return queued(slot, e, "cudaStreamWaitEvent", err);
}

static uint64_t sample_bytes_of(uint64_t raw_bytes) {
    return raw_bytes < SW_SAMPLE_MAX_BYTES ? raw_bytes : SW_SAMPLE_MAX_BYTES;
}

static int cuda_make_plan(struct sw_device *device, unsigned s, const struct sw_mapping *mapping, uint64_t offset,
                          uint64_t bytes, struct sw_err *err) {
    struct slot *slot = enter(device, s);
    struct sw_err cause = {0};
    if (skip(slot, err))
        return slot->err.code;
    slot->made = PLANNED;
    slot->in_bytes = bytes;
    int rc = sw_gpu_sample_async(mapping->d_base + offset, bytes, slot->d_sample, slot->stream, &cause);
    if (!rc)
        rc = sw_gpu_train_async(slot->d_sample, sample_bytes_of(bytes), slot->d_table, slot->d_training,
                                slot->d_scratch, cuda_of(device)->scratch_bytes, slot->stream, &cause);
    if (rc)
        return queued_codec(slot, rc, &cause, err);
    cudaError_t e = cudaMemcpyAsync(&slot->host->training, slot->d_training, sizeof slot->host->training,
                                    cudaMemcpyDeviceToHost, slot->stream);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(&slot->host->table, slot->d_table, sizeof slot->host->table, cudaMemcpyDeviceToHost,
                            slot->stream);
    return queued(slot, e, "cudaMemcpyAsync", err);
}

static const struct sw_plan *cuda_plan(struct sw_device *device, unsigned s) {
    return &cuda_of(device)->slots[s].plan;
}

/* Encodes slot->d_in by a plan whose table, if it has one, is in slot->d_table. */
static int queue_encode(struct device_cuda *d, struct slot *slot, const struct sw_gpu_plan *plan, struct sw_err *err) {
    struct sw_err cause = {0};
    slot->codec = plan->codec;
    const int rc = sw_gpu_encode_async(plan, slot->d_in, slot->in_bytes, slot->d_frame, d->frame_cap_bytes,
                                       slot->d_result, slot->d_scratch, d->scratch_bytes, slot->stream, &cause);
    if (rc)
        return queued_codec(slot, rc, &cause, err);
    return queued(slot,
                  cudaMemcpyAsync(&slot->host->result, slot->d_result, sizeof slot->host->result,
                                  cudaMemcpyDeviceToHost, slot->stream),
                  "cudaMemcpyAsync", err);
}

static int cuda_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                       const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    struct slot *slot = enter(device, s);
    if (skip(slot, err))
        return slot->err.code;
    slot->made = ENCODED;
    slot->d_in = mapping->d_base + offset;
    slot->in_bytes = bytes;
    if (plan->codec == SW_CODEC_V5T) {
        slot->host->table = plan->table;
        const int rc = queued(slot,
                              cudaMemcpyAsync(slot->d_table, &slot->host->table, sizeof slot->host->table,
                                              cudaMemcpyHostToDevice, slot->stream),
                              "cudaMemcpyAsync", err);
        if (rc)
            return rc;
    }
    const struct sw_gpu_plan gpu_plan = {plan->codec, plan->segment_log2, plan->table.n_symbols, slot->d_table};
    return queue_encode(cuda_of(device), slot, &gpu_plan, err);
}

static int cuda_store(struct sw_device *device, unsigned s, void *h_to, uint64_t frame_offset, uint64_t bytes,
                      struct sw_err *err) {
    struct slot *slot = enter(device, s);
    if (skip(slot, err))
        return slot->err.code;
    SW_ASSERT(frame_offset + bytes <= cuda_of(device)->frame_cap_bytes);
    return queued(slot,
                  cudaMemcpyAsync(h_to, slot->d_frame + frame_offset, bytes, cudaMemcpyDeviceToHost, slot->stream),
                  "cudaMemcpyAsync", err);
}

static int cuda_load(struct sw_device *device, unsigned s, const void *h_from, uint64_t frame_offset, uint64_t bytes,
                     struct sw_err *err) {
    struct slot *slot = enter(device, s);
    if (skip(slot, err))
        return slot->err.code;
    SW_ASSERT(frame_offset + bytes <= cuda_of(device)->frame_cap_bytes);
    return queued(slot,
                  cudaMemcpyAsync(slot->d_frame + frame_offset, h_from, bytes, cudaMemcpyHostToDevice, slot->stream),
                  "cudaMemcpyAsync", err);
}

static int cuda_decode(struct sw_device *device, unsigned s, const struct sw_frame_layout *layout,
                       struct sw_mapping *mapping, uint64_t offset, struct sw_err *err) {
    struct slot *slot = enter(device, s);
    struct sw_err cause = {0};
    if (skip(slot, err))
        return slot->err.code;
    SW_ASSERT(layout->frame_bytes <= cuda_of(device)->frame_cap_bytes);
    SW_ASSERT(offset + layout->raw_bytes <= mapping->bytes);
    slot->made = DECODED;
    const int rc = sw_gpu_decode_async(layout, slot->d_frame, 0, layout->n_tiles, mapping->d_base + offset,
                                       slot->d_result, slot->stream, &cause);
    if (rc)
        return queued_codec(slot, rc, &cause, err);
    return queued(slot,
                  cudaMemcpyAsync(&slot->host->result, slot->d_result, sizeof slot->host->result,
                                  cudaMemcpyDeviceToHost, slot->stream),
                  "cudaMemcpyAsync", err);
}

/* ---- results ---- */

/* A v5t frame that is no shorter than a raw one is made again as a raw one. Returns true if that was queued. */
static bool fall_back_to_raw(struct device_cuda *d, struct slot *slot) {
    struct sw_frame_layout raw;
    if (slot->made != ENCODED || slot->codec == SW_CODEC_RAW)
        return false;
    sw_frame_layout_init(&raw, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, slot->in_bytes, 0);
    if (slot->host->result.frame_bytes < raw.frame_bytes)
        return false;
    const struct sw_gpu_plan plan = {SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, 0, NULL};
    return queue_encode(d, slot, &plan, NULL) == 0;
}

/* All steps are done: what came of them. */
static int report(struct slot *slot, struct sw_slot_result *ret, struct sw_err *err) {
    int rc = slot->err.code;
    if (rc && err)
        *err = slot->err;
    if (!rc && slot->made == PLANNED)
        sw_plan_init_trained(&slot->plan, &slot->host->table, slot->host->training.coded_bytes,
                             (size_t)sample_bytes_of(slot->in_bytes), slot->in_bytes);
    if (!rc && slot->made == ENCODED)
        *ret = (struct sw_slot_result){slot->host->result.frame_bytes, (enum sw_codec_id)slot->host->result.codec};
    if (!rc && slot->made == DECODED && slot->host->result.bad_tiles)
        rc = sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "%u tiles of the frame are damaged",
                        slot->host->result.bad_tiles);
    memset(&slot->err, 0, sizeof slot->err);
    slot->made = NOTHING;
    return rc;
}

static int cuda_slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct slot *slot = enter(device, s);
    cudaError_t e = cudaSuccess;
    if (slot->dirty) {
        e = cudaEventRecord(slot->idle, slot->stream);
        slot->dirty = false;
    }
    if (e == cudaSuccess)
        e = cudaEventQuery(slot->idle);
    if (e == cudaErrorNotReady)
        return -SW_EAGAIN;
    if (e != cudaSuccess && !slot->err.code)
        (void)sw_cuda_fail(&slot->err, -SW_EGPU, e, "cudaEventQuery");
    if (!slot->err.code && fall_back_to_raw(cuda_of(device), slot))
        return -SW_EAGAIN;
    return report(slot, ret, err);
}

static int cuda_slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    struct slot *slot = enter(device, s);
    int rc;
    while ((rc = cuda_slot_poll(device, s, ret, err)) == -SW_EAGAIN)
        (void)cudaEventSynchronize(slot->idle); /* what it says, the next poll says too */
    return rc;
}

/* ---- life ---- */

static uint64_t align(uint64_t bytes) {
    return (bytes + ALIGN_BYTES - 1) / ALIGN_BYTES * ALIGN_BYTES;
}

static uint64_t slot_scratch_bytes(uint64_t chunk_bytes) {
    const uint64_t encode = sw_gpu_encode_scratch_bytes(chunk_bytes), train = sw_gpu_train_scratch_bytes();
    return align(encode > train ? encode : train);
}

static uint64_t slot_bytes(uint64_t chunk_bytes) {
    return align(sw_frame_bound_bytes(chunk_bytes)) + slot_scratch_bytes(chunk_bytes) + align(SW_SAMPLE_MAX_BYTES) +
           align(sizeof(struct sw_v5t_table)) + align(sizeof(struct sw_gpu_result)) +
           align(sizeof(struct sw_gpu_training));
}

static uint64_t device_bytes(uint64_t chunk_bytes, unsigned n_slots) {
    return (slot_bytes(chunk_bytes) * n_slots + DEVICE_PAGE_BYTES - 1) / DEVICE_PAGE_BYTES * DEVICE_PAGE_BYTES;
}

static int choose_sizes(struct device_cuda *d, const struct sw_device_config *config, struct sw_err *err) {
    struct sw_device_info *info = &d->info;
    info->n_slots = config->n_slots ? config->n_slots : DEFAULT_SLOTS;
    if (info->n_slots > MAX_SLOTS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DEVICE, "%u slots, at most %d are possible", info->n_slots,
                          MAX_SLOTS);
    uint64_t chunk = config->chunk_bytes ? config->chunk_bytes : MAX_CHUNK_BYTES;
    while (!config->chunk_bytes && chunk > CHUNK_STEP_BYTES &&
           device_bytes(chunk, info->n_slots) > config->scratch_bytes)
        chunk -= CHUNK_STEP_BYTES;
    if (chunk % CHUNK_STEP_BYTES || device_bytes(chunk, info->n_slots) > config->scratch_bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DEVICE,
                          "%u slots for chunks of %llu bytes take %llu bytes of device memory, %llu are allowed",
                          info->n_slots, (unsigned long long)chunk,
                          (unsigned long long)device_bytes(chunk, info->n_slots),
                          (unsigned long long)config->scratch_bytes);
    info->chunk_bytes = chunk;
    info->scratch_bytes = device_bytes(chunk, info->n_slots);
    d->frame_cap_bytes = align(sw_frame_bound_bytes(chunk));
    d->scratch_bytes = slot_scratch_bytes(chunk);
    return 0;
}

static int slot_init(struct device_cuda *d, unsigned s, struct sw_err *err) {
    struct slot *slot = &d->slots[s];
    uint8_t *at = d->d_memory + s * slot_bytes(d->info.chunk_bytes);
    slot->host = &d->host[s];
    slot->d_frame = at;
    at += d->frame_cap_bytes;
    slot->d_scratch = at;
    at += d->scratch_bytes;
    slot->d_sample = at;
    at += align(SW_SAMPLE_MAX_BYTES);
    slot->d_table = (struct sw_v5t_table *)(void *)at;
    at += align(sizeof *slot->d_table);
    slot->d_result = (struct sw_gpu_result *)(void *)at;
    at += align(sizeof *slot->d_result);
    slot->d_training = (struct sw_gpu_training *)(void *)at;
    cudaError_t e = cudaStreamCreateWithFlags(&slot->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess) /* waits sleep: the worker must not burn a core that the engine's own threads need */
        e = cudaEventCreateWithFlags(&slot->idle, cudaEventDisableTiming | cudaEventBlockingSync);
    return e == cudaSuccess ? 0 : sw_cuda_fail(err, -SW_EGPU, e, "cudaStreamCreateWithFlags, cudaEventCreateWithFlags");
}

static void cuda_close(struct sw_device *device) {
    struct device_cuda *d = cuda_of(device);
    (void)cudaSetDevice(d->ordinal);
    for (unsigned s = 0; s < d->info.n_slots; s++) {
        if (d->slots[s].stream)
            (void)cudaStreamSynchronize(d->slots[s].stream);
        if (d->slots[s].idle)
            (void)cudaEventDestroy(d->slots[s].idle);
        if (d->slots[s].stream)
            (void)cudaStreamDestroy(d->slots[s].stream);
    }
    (void)cudaFree(d->d_memory);
    (void)cudaFreeHost(d->host);
    sw_free(d);
}

static const struct sw_device_ops cuda_ops = {
    .info = cuda_info,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .wait_event = cuda_wait_event,
    .make_plan = cuda_make_plan,
    .plan = cuda_plan,
    .encode = cuda_encode,
    .store = cuda_store,
    .load = cuda_load,
    .decode = cuda_decode,
    .slot_poll = cuda_slot_poll,
    .slot_wait = cuda_slot_wait,
    .close = cuda_close,
};

int sw_device_cuda_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) == cudaSuccess)
        return n;
    (void)cudaGetLastError(); /* no driver, or no GPU */
    return 0;
}

static int describe(struct device_cuda *d, struct sw_err *err) {
    struct cudaDeviceProp prop;
    const cudaError_t e = cudaGetDeviceProperties(&prop, d->ordinal);
    if (e != cudaSuccess)
        return sw_cuda_fail(err, -SW_EDEVICE, e, "cudaGetDeviceProperties");
    memcpy(d->info.name, prop.name, sizeof d->info.name - 1);
    memcpy(d->info.uuid, &prop.uuid, sizeof d->info.uuid);
    return 0;
}

/* Runs every kernel once on slot 0: loads the code now, when memory is there, and finds a GPU that does not work. The
 * source is the slot's own scratch, the destination another part of it. */
static int warm_up(struct device_cuda *d, struct sw_err *err) {
    enum { PROBE_BYTES = 64 << 10 };
    struct sw_device *device = &d->device;
    uint8_t *d_probe = NULL, h_head[SW_FRAME_HEAD_MAX_BYTES];
    struct sw_slot_result result;
    struct sw_frame_layout layout;
    cudaError_t e = cudaMalloc((void **)&d_probe, PROBE_BYTES); /* given back before open returns */
    if (e == cudaSuccess)
        e = cudaMemset(d_probe, 'x', PROBE_BYTES);
    if (e != cudaSuccess) {
        (void)cudaFree(d_probe);
        return sw_cuda_fail(err, -SW_EGPU, e, "cudaMalloc, cudaMemset");
    }
    struct sw_mapping probe = {.kind = SW_MEM_CUDA_IPC, .d_base = d_probe, .bytes = PROBE_BYTES};
    int rc = cuda_make_plan(device, 0, &probe, 0, PROBE_BYTES, err);
    for (int codec = 0; !rc && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if ((rc = cuda_slot_wait(device, 0, &result, err)))
            break;
        plan = d->slots[0].plan;
        if (codec == SW_CODEC_RAW)
            sw_plan_init_raw(&plan);
        rc = cuda_encode(device, 0, &plan, &probe, 0, PROBE_BYTES, err);
        if (!rc)
            rc = cuda_store(device, 0, h_head, 0, sizeof h_head, err);
        if (!rc)
            rc = cuda_slot_wait(device, 0, &result, err);
        if (!rc)
            rc = sw_frame_parse(&layout, h_head, sizeof h_head, result.frame_bytes, err);
        if (!rc)
            rc = cuda_decode(device, 0, &layout, &probe, 0, err);
    }
    const int last = cuda_slot_wait(device, 0, &result, rc ? NULL : err);
    (void)cudaFree(d_probe);
    return rc ? rc : last;
}

static int open_device(struct device_cuda *d, const struct sw_device_config *config, struct sw_err *err) {
    cudaError_t e = cudaSetDevice(d->ordinal);
    if (e != cudaSuccess)
        return sw_cuda_fail(err, -SW_EDEVICE, e, "cudaSetDevice");
    int rc = describe(d, err);
    if (!rc)
        rc = sw_cuda_driver_load(&d->driver, err);
    if (!rc)
        rc = sw_gpu_codec_init(err);
    if (!rc)
        rc = choose_sizes(d, config, err);
    if (rc)
        return rc;
    e = cudaMalloc((void **)&d->d_memory, d->info.scratch_bytes);
    if (e != cudaSuccess)
        return sw_cuda_fail(err, -SW_ENOMEM, e, "cudaMalloc of the scratch");
    e = cudaHostAlloc((void **)&d->host, d->info.n_slots * sizeof *d->host, cudaHostAllocPortable);
    if (e != cudaSuccess)
        return sw_cuda_fail(err, -SW_ENOMEM, e, "cudaHostAlloc");
    for (unsigned s = 0; !rc && s < d->info.n_slots; s++)
        rc = slot_init(d, s, err);
    return rc ? rc : warm_up(d, err);
}

int sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config,
                        struct sw_err *err) {
    struct device_cuda *d = sw_alloc(sizeof *d);
    if (!d)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a device");
    d->device.ops = &cuda_ops;
    d->ordinal = ordinal;
    const int rc = open_device(d, config, err);
    if (rc) {
        cuda_close(&d->device);
        return rc;
    }
    *ret = &d->device;
    return 0;
}
