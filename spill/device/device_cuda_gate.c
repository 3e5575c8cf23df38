/* device_cuda_gate.c - gives up steps of a guest whose kernels do not begin, since the engine's own fill the GPU: the
 * engine may well wait for the step.
 *
 * The host closes the gate (codec/gpu.h) to the step's kernels, and copies it back: copy engines work although kernels
 * fill the GPU. If no block has come, the step has failed, and its slot sleeps until the stream has run dry: then the
 * kernels have ended without touching the client's memory. Else the step goes on. */
#include "base/clock.h"
#include "spill/device/device_cuda_state.h"

#include <unistd.h>

/* Kernels that have not begun after so long may well never begin before the call ends. */
#define BEGIN_US 20000
#define LOOK_US 20 /* from one look at a stream to the next */
/* The driver fills 4 KiB by a copy engine, and 64 KiB by a kernel (H200, driver 580). */
#define PAGE_BYTES ((size_t)64 << 10)
/* Training is two dozen launches, learning a dictionary 90. Each may wait for kernels of the engine. */
#define TRAIN_US 500000

struct sw_gpu_pass sw_cuda_pass(const struct device_cuda *d, struct slot *slot) {
    if (!d->is_guest)
        return (struct sw_gpu_pass){0};
    slot->begin = BEGIN_UNKNOWN;
    slot->queued_us = sw_clock_us();
    return (struct sw_gpu_pass){.d_gate = slot->parts.d_gate, .ticket = ++slot->ticket};
}

static int fail_asleep(struct sw_err *err) {
    return sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "other kernels fill the GPU: none of ours has begun");
}

/* Returns true if a stream has work, or cannot tell. */
static bool is_busy(cudaStream_t stream) {
    const cudaError_t e = cudaStreamQuery(stream);
    if (e == cudaErrorNotReady)
        (void)cudaGetLastError();
    return e == cudaErrorNotReady;
}

int sw_cuda_enter_slot(const struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    const int rc = enter(d, err);
    if (rc < 0)
        return rc;
    slot->is_asleep = slot->is_asleep && !d->is_patient && is_busy(slot->stream);
    return slot->is_asleep ? fail_asleep(err) : 0;
}

static int copy_gate(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    const int rc = check(
        cudaMemcpyAsync(&slot->h->gate, slot->parts.d_gate, sizeof slot->h->gate, cudaMemcpyDeviceToHost, d->gates),
        err, "cudaMemcpyAsync of a gate");
    return rc < 0 ? rc : -SW_EAGAIN;
}

static int close_gate(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    slot->h->closed = slot->ticket;
    slot->begin = BEGIN_CLOSING;
    const int rc = check(cudaMemcpyAsync(&slot->parts.d_gate->closed, &slot->h->closed, sizeof slot->h->closed,
                                         cudaMemcpyHostToDevice, d->gates),
                         err, "cudaMemcpyAsync to a gate");
    return rc < 0 ? rc : copy_gate(d, slot, err);
}

static int fall_asleep(struct slot *slot, struct sw_err *err) {
    slot->is_asleep = true;
    return fail_asleep(err);
}

/* The gate is closed, and its copy is here. */
static int judge(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    switch (sw_gpu_decision_of(&slot->h->gate, slot->ticket)) {
    case SW_GPU_UNDECIDED:
        return copy_gate(d, slot, err);
    case SW_GPU_PASSES:
        slot->begin = BEGIN_SEEN;
        return -SW_EAGAIN;
    case SW_GPU_REFUSED:
        break;
    }
    return fall_asleep(slot, err);
}

/* Training, learning from samples, and the gathering of frames work on the slot's own memory, and have no gate. */
static bool has_gate(const struct slot *slot) {
    return slot->work != WORK_GATHER_GROUP &&
           (slot->work != WORK_PLAN || sw_gpu_planning_reads_region(&slot->planning));
}

int sw_cuda_poll_begin(struct device_cuda *d, struct slot *slot, struct sw_err *err) {
    if (slot->is_asleep) /* nothing of the new step could be queued */
        return fail_asleep(err);
    if (slot->work == WORK_NONE || slot->begin == BEGIN_SEEN)
        return -SW_EAGAIN;
    if (slot->begin == BEGIN_CLOSING)
        return is_busy(d->gates) ? -SW_EAGAIN : judge(d, slot, err);
    const bool gated = has_gate(slot);
    if (d->is_patient || sw_clock_us() - slot->queued_us < (gated || slot->work != WORK_PLAN ? BEGIN_US : TRAIN_US))
        return -SW_EAGAIN;
    return gated ? close_gate(d, slot, err) : fall_asleep(slot, err);
}

bool sw_cuda_is_asleep(struct sw_device *device) {
    struct device_cuda *d = cuda_of(device);
    bool is_asleep = false;
    if (enter(d, NULL) < 0)
        return false;
    for (unsigned s = 0; s < d->info.n_slots; s++) {
        struct slot *slot = &d->slots[s];
        slot->is_asleep = slot->is_asleep && is_busy(slot->stream);
        is_asleep |= slot->is_asleep;
    }
    return is_asleep;
}

void sw_cuda_be_patient(struct sw_device *device, bool is_patient) {
    cuda_of(device)->is_patient = is_patient;
}

/* Registers a page that the GPU can fill, for good: to unregister it would wait for all kernels. */
static int get_page(void **ret, struct sw_err *err) {
    static _Alignas(4096) uint8_t page[PAGE_BYTES];
    const cudaError_t e = cudaHostRegister(page, sizeof page, cudaHostRegisterMapped | cudaHostRegisterPortable);
    *ret = page;
    if (e != cudaErrorHostMemoryAlreadyRegistered)
        return check(e, err, "cudaHostRegister");
    (void)cudaGetLastError();
    return 0;
}

/* It launches a kernel of the driver's, which is loaded: loading one of ours waits, too. The stream may be destroyed
 * with the kernel in it, which waits for nothing. */
int sw_device_cuda_check_free(struct sw_err *err) {
    cudaStream_t stream;
    void *page;
    int rc = get_page(&page, err);
    if (rc == 0)
        rc = check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), err, "cudaStreamCreateWithFlags");
    if (rc < 0)
        return rc;
    rc = check(cudaMemsetAsync(page, 0, PAGE_BYTES, stream), err, "cudaMemsetAsync");
    const uint64_t begun_us = sw_clock_us();
    bool busy = rc == 0;
    while (busy && (busy = is_busy(stream)) && sw_clock_us() - begun_us < BEGIN_US)
        (void)usleep(LOOK_US);
    if (busy)
        rc = sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "other kernels fill the GPU");
    (void)cudaStreamDestroy(stream);
    return rc < 0 ? rc : sw_gpu_codec_init(err);
}
