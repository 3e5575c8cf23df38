/* device_cuda.c - a CUDA GPU. A slot is a stream with its share of one allocation, which is made when the device opens.
 * Behind the slots' shares is the pool that all encodes use.
 *
 * Each slot has a block of pinned memory for results. The host reads it only when the stream is empty. */
#include "spill/device/device_cuda_state.h"

#include "base/alloc.h"
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* With six, a restore of cudaMalloc memory in place was 4 % faster, and a spill of raw bytes 4 to 6 % slower (H200). */
enum { DEFAULT_SLOTS = 4 };
#define PART_ALIGN_BYTES ((uint64_t)256)      /* of the parts of a slot's memory: as from cudaMalloc */
#define DEVICE_PAGE_BYTES ((uint64_t)2 << 20) /* cudaMalloc takes whole pages */
/* Part of the limit that is left to the driver, which takes memory while clients' memory is mapped: up to 4 MiB (H200).
 */
#define DRIVER_RESERVE_BYTES ((uint64_t)8 << 20)
/* A thread that sleeps on an event wakes up late: with polling, the chunks of a pack of 2 GB took 4.8 ms instead of 5.9
 * (H100). Clients send the next short operation within this time. */
#define POLL_US 500

/* ---- client memory and arena ---- */

static int cuda_map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret,
                    struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    const int rc = enter(d, err);
    return rc < 0 ? rc : sw_cuda_map(&d->driver, desc, ret, err);
}

static void cuda_unmap(struct sw_device *device, struct sw_mapping *mapping) {
    struct device_cuda *d = cuda_of(device);
    (void)enter(d, NULL);
    sw_cuda_unmap(&d->driver, mapping);
}

static int cuda_adopt(struct sw_device *device, void *data, uint64_t bytes, struct sw_mapping **ret,
                      struct sw_err *err) {
    (void)device;
    return sw_cuda_adopt(data, bytes, ret, err);
}

/* Portable: one registration serves every GPU, so other GPUs find the slab registered. Mapped: kernels can copy, too.
 */
static int cuda_pin(struct sw_device *device, void *slab, size_t bytes, struct sw_err *err) {
    const int rc = enter(cuda_of(device), err);
    if (rc < 0)
        return rc;
    const cudaError_t e = cudaHostRegister(slab, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
    if (e == cudaErrorHostMemoryAlreadyRegistered) {
        (void)cudaGetLastError();
        return 0;
    }
    return check(e, err, "cudaHostRegister");
}

static void cuda_unpin(struct sw_device *device, void *slab, size_t bytes) {
    (void)bytes;
    if (enter(cuda_of(device), NULL) == 0 && cudaHostUnregister(slab) != cudaSuccess)
        (void)cudaGetLastError(); /* another GPU has already unpinned it */
}

/* ---- life ---- */

static const struct sw_device_info *cuda_info(const struct sw_device *device) {
    return &SW_CONTAINER_OF(device, const struct device_cuda, device)->info;
}

static cudaError_t stream_new(cudaStream_t *ret) {
    return cudaStreamCreateWithFlags(ret, cudaStreamNonBlocking);
}

/* A guest's kernels have priority: their blocks start as soon as any block of the engine's kernels ends. */
static cudaError_t slot_stream_new(cudaStream_t *ret, bool is_guest) {
    int least = 0, greatest = 0;
    if (!is_guest)
        return stream_new(ret);
    const cudaError_t e = cudaDeviceGetStreamPriorityRange(&least, &greatest);
    return e == cudaSuccess ? cudaStreamCreateWithPriority(ret, cudaStreamNonBlocking, greatest) : e;
}

static void stream_free(cudaStream_t stream) {
    if (stream)
        (void)cudaStreamDestroy(stream);
}

static void event_free(cudaEvent_t event) {
    if (event)
        (void)cudaEventDestroy(event);
}

static void slot_destroy(const struct slot *slot) {
    stream_free(slot->stream);
    event_free(slot->queued);
    event_free(slot->done);
    event_free(slot->copied);
    if (slot->h)
        (void)cudaFreeHost(slot->h);
}

/* Destroys what lies in the context. No thread works on a slot's *h any more. */
static void destroy(struct device_cuda *d) {
    for (unsigned s = 0; s < MAX_SLOTS; s++)
        slot_destroy(&d->slots[s]);
    stream_free(d->copies_out);
    stream_free(d->copies_back);
    stream_free(d->frames_out);
    stream_free(d->frames_back);
    stream_free(d->canary);
    stream_free(d->waking);
    stream_free(d->gates);
    if (d->d_memory)
        (void)cudaFree(d->d_memory);
    sw_cuda_driver_fini(&d->driver);
    (void)cudaGetLastError(); /* of a context that is dead */
}

static void cuda_close(struct sw_device *device) {
    struct device_cuda *d = cuda_of(device);
    if (d->driver.context)
        (void)enter(d, NULL);
    for (unsigned s = 0; s < MAX_SLOTS; s++) {
        sw_sealer_free(d->slots[s].sealer);
        sw_free(d->slots[s].learned);
    }
    sw_sealer_pool_free(d->sealers);
    if (!d->is_gone)
        destroy(d);
    sw_free(d);
}

static void cuda_forget(struct sw_device *device) {
    cuda_of(device)->is_gone = true;
}

/* Returns the next part of a slot's memory, and advances *at. base NULL: only adds up sizes. */
static void *carve(uint8_t *base, uint64_t *at, uint64_t bytes) {
    uint8_t *part = base ? base + *at : NULL;
    *at += (bytes + PART_ALIGN_BYTES - 1) / PART_ALIGN_BYTES * PART_ALIGN_BYTES;
    return part;
}

static unsigned group_items(uint64_t chunk_bytes) {
    const uint64_t fit = sw_group_item_bytes(chunk_bytes) / sw_group_item_bytes(1);
    return fit < MAX_GROUP_ITEMS ? (unsigned)fit : MAX_GROUP_ITEMS;
}

static uint64_t slot_scratch_bytes(uint64_t chunk_bytes) {
    return sw_gpu_batch_scratch_bytes(group_items(chunk_bytes));
}

/* Returns whether a slot's frame buffer has room to learn a dictionary in. */
static bool has_room_to_learn(uint64_t buffer_bytes) {
    return buffer_bytes >= sw_gpu_planning_learner_bytes();
}

/* In an engine's process, where the frame buffers are the caller's, no dictionary is worth a CPU's time to learn it. */
static bool takes_dictionaries(const void *d_frames, uint64_t chunk_bytes) {
    return sw_gpu_takes_dictionaries() && (!d_frames || has_room_to_learn(sw_device_frame_stride(chunk_bytes)));
}

/* Lays out a slot's memory from base; returns its length. d_frame: the caller's frame buffer; NULL: part of it. */
static uint64_t lay_out(struct parts *ret, uint8_t *base, uint64_t chunk_bytes, uint8_t *d_frame) {
    uint64_t at = 0;
    const uint64_t training = sw_gpu_train_scratch_bytes(), frame = sw_group_item_bytes(chunk_bytes);
    ret->d_frame = d_frame ? d_frame : carve(base, &at, frame > training ? frame : training);
    const bool is_short = d_frame && sw_device_frame_stride(chunk_bytes) < training;
    ret->d_learning = is_short ? carve(base, &at, training) : ret->d_frame;
    ret->d_scratch = carve(base, &at, slot_scratch_bytes(chunk_bytes));
    ret->d_progress = carve(base, &at, sizeof *ret->d_progress);
    ret->d_gate = carve(base, &at, sizeof *ret->d_gate);
    ret->d_sample = carve(base, &at, SW_SAMPLE_MAX_BYTES);
    ret->d_params = carve(base, &at, sizeof *ret->d_params);
    ret->d_training = carve(base, &at, sizeof *ret->d_training);
    ret->d_runs = carve(base, &at, MAX_GROUP_RUNS * sizeof *ret->d_runs);
    const bool has_dictionary = takes_dictionaries(d_frame, chunk_bytes);
    ret->d_dictionary = has_dictionary ? carve(base, &at, SW_FRAME_MAX_DICTIONARY_BYTES) : NULL;
    ret->d_index = has_dictionary ? carve(base, &at, SW_DICTIONARY_INDEX_BYTES) : NULL;
    return at;
}

/* All slots and the pool. */
static uint64_t slots_bytes(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots) {
    struct parts parts;
    const uint64_t bytes =
        n_slots * lay_out(&parts, NULL, chunk_bytes, config->frames) + sw_gpu_pool_bytes(n_slots * chunk_bytes);
    return (bytes + DEVICE_PAGE_BYTES - 1) / DEVICE_PAGE_BYTES * DEVICE_PAGE_BYTES;
}

/* Returns true if the slots fit into the limit, with the driver's reserve. */
static bool slots_fit(const struct sw_device_config *config, uint64_t chunk_bytes, unsigned n_slots) {
    return config->scratch_bytes > DRIVER_RESERVE_BYTES &&
           slots_bytes(config, chunk_bytes, n_slots) <= config->scratch_bytes - DRIVER_RESERVE_BYTES &&
           sw_device_frames_fit(config, chunk_bytes, n_slots);
}

/* Returns the largest chunk whose slots fit into the limit. */
static uint64_t largest_chunk(const struct sw_device_config *config, unsigned n_slots) {
    uint64_t fits = 0, too_large = config->scratch_bytes / n_slots / SW_CHUNK_ALIGN_BYTES + 1;
    while (too_large - fits > 1) {
        const uint64_t middle = fits + (too_large - fits) / 2;
        if (slots_fit(config, middle * SW_CHUNK_ALIGN_BYTES, n_slots))
            fits = middle;
        else
            too_large = middle;
    }
    return fits * SW_CHUNK_ALIGN_BYTES;
}

static int choose_sizes(const struct sw_device_config *config, struct sw_device_info *info, struct sw_err *err) {
    unsigned n = config->n_slots ? config->n_slots : DEFAULT_SLOTS;
    uint64_t chunk = config->chunk_bytes;
    SW_ASSERT(!config->frames || (config->n_slots && chunk));
    if (n <= MAX_SLOTS && !chunk)
        chunk = largest_chunk(config, n);
    if (n > MAX_SLOTS || !chunk || chunk % SW_CHUNK_ALIGN_BYTES || chunk > SW_FRAME_MAX_RAW_BYTES ||
        !slots_fit(config, chunk, n))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DEVICE,
                          "GPU: %u slots (at most %d) of chunks of %llu bytes (a multiple of 32 KiB) exceed %llu bytes",
                          n, MAX_SLOTS, (unsigned long long)chunk, (unsigned long long)config->scratch_bytes);
    sw_device_make_room(config, slots_fit, &n, &chunk);
    info->n_slots = n;
    info->has_link = true;
    info->poll_us = POLL_US;
    info->full_segments = sw_gpu_full_segments();
    info->takes_dictionaries = takes_dictionaries(config->frames, chunk);
    info->chunk_bytes = chunk;
    info->group_items = group_items(chunk);
    info->buffer_bytes = config->frames ? sw_device_frame_stride(chunk) : sw_group_item_bytes(chunk);
    info->group_bytes = info->buffer_bytes;
    info->learns_dictionaries = info->takes_dictionaries && has_room_to_learn(info->buffer_bytes);
    info->scratch_bytes = slots_bytes(config, chunk, n);
    return 0;
}

static int slot_init(struct slot *slot, uint8_t *d_memory, uint8_t *d_frame, bool is_guest,
                     const struct sw_device_info *info, struct sw_sealer_pool *sealers, struct sw_err *err) {
    (void)lay_out(&slot->parts, d_memory, info->chunk_bytes, d_frame);
    const uint64_t most_hashes = (uint64_t)SW_RAW_MAX * raw_layout(info->chunk_bytes).n_tiles,
                   exchange_bytes = sizeof *slot->h + most_hashes * sizeof slot->h->hashes[0],
                   dictionary_at = (exchange_bytes + sw_cuda_heads_bytes(info->chunk_bytes) + 15) / 16 * 16,
                   samples_at = dictionary_at + (info->takes_dictionaries ? sizeof *slot->h_dictionary : 0),
                   samples_bytes = SW_SAMPLE_MAX_BYTES * (info->takes_dictionaries ? SW_SAMPLE_MOST_PARTS : 1);
    cudaError_t e = slot_stream_new(&slot->stream, is_guest);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&slot->queued, cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&slot->done, cudaEventDisableTiming | cudaEventBlockingSync);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&slot->copied, cudaEventDisableTiming | cudaEventBlockingSync);
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&slot->h, samples_at + samples_bytes, cudaHostAllocPortable);
    slot->h_heads = slot->h ? (uint8_t *)slot->h + exchange_bytes : NULL;
    slot->h_samples = slot->h ? (uint8_t *)slot->h + samples_at : NULL;
    if (slot->h && info->takes_dictionaries)
        slot->h_dictionary = (void *)((uint8_t *)slot->h + dictionary_at);
    const int rc = check(e, err, "stream, event or pinned memory of a slot");
    return rc < 0 ? rc : sw_sealer_new(&slot->sealer, sealers, err);
}

/* Returns the number of threads that hash raw frames: one for each CPU that the process may use, less two for the
 * worker and the client, but at least two, since a plan occupies a thread for milliseconds. A guest's threads only help
 * to make plans. */
static unsigned sealers(bool is_guest) {
    cpu_set_t set;
    if (is_guest)
        return 2;
    const long processors = sched_getaffinity(0, sizeof set, &set) ? sysconf(_SC_NPROCESSORS_ONLN) : CPU_COUNT(&set);
    const unsigned n = processors > 4 ? (unsigned)processors - 2 : 2;
    return n < SW_SEALER_MAX_THREADS ? n : SW_SEALER_MAX_THREADS;
}

static int take_memory(struct device_cuda *d, const struct sw_device_config *config, struct sw_err *err) {
    struct parts parts;
    int kernels_reach_host = 0;
    uint8_t *const d_frames = config->frames;
    const uint64_t slot_bytes = lay_out(&parts, NULL, d->info.chunk_bytes, d_frames);
    d->scratch_bytes = slot_scratch_bytes(d->info.chunk_bytes);
    int rc =
        check(cudaDeviceGetAttribute(&kernels_reach_host, cudaDevAttrCanUseHostPointerForRegisteredMem, d->ordinal),
              err, "cudaDeviceGetAttribute");
    d->group_runs = kernels_reach_host ? MAX_GROUP_RUNS : 0;
    if (rc == 0)
        rc = check(cudaMalloc(&d->d_memory, d->info.scratch_bytes), err, "cudaMalloc of the scratch");
    if (rc == 0)
        rc = sw_sealer_pool_new(&d->sealers, sealers(config->is_guest), err);
    d->pool.d_memory = (uint8_t *)d->d_memory + d->info.n_slots * slot_bytes;
    d->pool.bytes = d->info.scratch_bytes - d->info.n_slots * slot_bytes;
    for (unsigned s = 0; rc == 0 && s < d->info.n_slots; s++)
        rc = slot_init(&d->slots[s], (uint8_t *)d->d_memory + s * slot_bytes,
                       d_frames ? d_frames + s * d->info.buffer_bytes : NULL, config->is_guest, &d->info, d->sealers,
                       err);
    return rc;
}

static int describe(struct device_cuda *d, struct sw_err *err) {
    struct cudaDeviceProp properties;
    CUuuid uuid;
    const int rc = check(cudaGetDeviceProperties(&properties, d->ordinal), err, "cudaGetDeviceProperties");
    if (rc < 0)
        return rc;
    (void)snprintf(d->info.name, sizeof d->info.name, "%.*s", (int)sizeof d->info.name - 1, properties.name);
    /* Ask the driver, as the client library does: with MIG the runtime reports the UUID of the whole card. */
    const CUresult result = d->driver.device_uuid(&uuid, d->driver.device);
    if (result != CUDA_SUCCESS)
        return sw_cuda_fail(err, (cudaError_t)result, "cuDeviceGetUuid");
    memcpy(d->info.uuid, &uuid, sizeof d->info.uuid);
    return 0;
}

/* Copies a word from the device; its value does not matter. */
static int cuda_canary(struct sw_device *device, struct sw_err *err) {
    struct device_cuda *d = cuda_of(device);
    uint32_t word;
    int rc = enter(d, err);
    if (rc == 0)
        rc = check(cudaMemcpyAsync(&word, d->d_memory, sizeof word, cudaMemcpyDeviceToHost, d->canary), err,
                   "cudaMemcpyAsync of the canary");
    if (rc == 0)
        rc = check(cudaStreamSynchronize(d->canary), err, "cudaStreamSynchronize of the canary");
    return sw_cuda_check_lost(rc, err);
}

static const struct sw_device_ops cuda_ops = {
    .info = cuda_info,
    .map = cuda_map,
    .unmap = cuda_unmap,
    .adopt = cuda_adopt,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .make_plan = sw_cuda_make_plan,
    .plan = sw_cuda_plan,
    .encode = sw_cuda_encode,
    .store = sw_cuda_store,
    .load = sw_cuda_load,
    .place = sw_cuda_place,
    .fetch = sw_cuda_fetch,
    .decode = sw_cuda_decode,
    .unpack = sw_cuda_unpack,
    .identify = sw_cuda_identify,
    .wake = sw_cuda_wake,
    .is_asleep = sw_cuda_is_asleep,
    .be_patient = sw_cuda_be_patient,
    .encode_group = sw_cuda_encode_group,
    .store_group = sw_cuda_store_group,
    .restore_group = sw_cuda_restore_group,
    .gather_group = sw_cuda_gather_group,
    .decode_group = sw_cuda_decode_group,
    .spill_raw = sw_cuda_spill_raw,
    .restore_raw = sw_cuda_restore_raw,
    .take_frames = sw_cuda_take_frames,
    .give_frames = sw_cuda_give_frames,
    .verify_frame = sw_cuda_verify_frame,
    .slot_poll = sw_cuda_slot_poll,
    .slot_wait = sw_cuda_slot_wait,
    .canary = cuda_canary,
    .forget = cuda_forget,
    .close = cuda_close,
};

int sw_device_cuda_count(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess) {
        (void)cudaGetLastError();
        return 0;
    }
    return n;
}

int sw_device_cuda_check_driver(struct sw_err *err) {
    enum { OLDEST = 13000 }; /* CUDA 13.0, of driver 580, as the driver reports it: 1000 * major + 10 * minor */
    int version = 0;
    if (cudaDriverGetVersion(&version) != cudaSuccess)
        (void)cudaGetLastError();
    if (version == 0 || version >= OLDEST)
        return 0;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE,
                      "the NVIDIA driver runs CUDA %d.%d, but %d.%d is needed: install driver 580 or later",
                      version / 1000, version % 1000 / 10, OLDEST / 1000, OLDEST % 1000 / 10);
}

static int make_streams(struct device_cuda *d, struct sw_err *err) {
    cudaError_t e = stream_new(&d->copies_out);
    if (e == cudaSuccess)
        e = stream_new(&d->copies_back);
    if (e == cudaSuccess)
        e = stream_new(&d->frames_out);
    if (e == cudaSuccess)
        e = stream_new(&d->frames_back);
    if (e == cudaSuccess)
        e = stream_new(&d->canary);
    if (e == cudaSuccess)
        e = stream_new(&d->waking);
    if (e == cudaSuccess)
        e = stream_new(&d->gates);
    return check(e, err, "cudaStreamCreateWithFlags");
}

/* Makes what encodes and gates need at first zero. */
static int clear(const struct parts *parts, cudaStream_t stream, struct sw_err *err) {
    const int rc = check(cudaMemsetAsync(parts->d_progress, 0, sizeof *parts->d_progress, stream), err,
                         "cudaMemsetAsync of a slot's progress");
    return rc < 0 ? rc
                  : check(cudaMemsetAsync(parts->d_gate, 0, sizeof *parts->d_gate, stream), err,
                          "cudaMemsetAsync of a gate");
}

/* Makes the pool, and clears what belongs to slots. Waits, since the slots' streams do not. */
static int make_pool(struct device_cuda *d, struct sw_err *err) {
    int rc = sw_gpu_pool_init_async(&d->pool, d->canary, err);
    for (unsigned s = 0; rc == 0 && s < d->info.n_slots; s++)
        rc = clear(&d->slots[s].parts, d->canary, err);
    return rc < 0 ? rc : check(cudaStreamSynchronize(d->canary), err, "cudaStreamSynchronize");
}

static int open_steps(struct device_cuda *d, const struct sw_device_config *config, struct sw_err *err) {
    int rc = sw_cuda_driver_init(&d->driver, d->ordinal, config->cuda_context, err);
    if (rc == 0)
        rc = describe(d, err);
    if (rc == 0)
        rc = sw_gpu_codec_init(err);
    if (rc == 0)
        rc = choose_sizes(config, &d->info, err);
    if (rc == 0)
        rc = take_memory(d, config, err);
    if (rc == 0)
        rc = make_streams(d, err);
    if (rc == 0)
        rc = make_pool(d, err);
    return rc < 0 ? rc : sw_cuda_warm_up(d, err);
}

int sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config,
                        struct sw_err *err) {
    const int n = sw_device_cuda_count();
    if (ordinal < 0 || ordinal >= n)
        return sw_err_set(err, -SW_EDEVICE, SW_SCOPE_DEVICE, "there is no GPU %d, this machine has %d", ordinal, n);
    struct device_cuda *d = sw_alloc(sizeof *d);
    if (!d)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "no memory for GPU %d", ordinal);
    d->device.ops = &cuda_ops;
    d->ordinal = ordinal;
    d->is_guest = config->is_guest;
    const int rc = open_steps(d, config, err);
    if (rc < 0) {
        cuda_close(&d->device);
        return rc;
    }
    *ret = &d->device;
    return 0;
}
