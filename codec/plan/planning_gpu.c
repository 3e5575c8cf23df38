#include "codec/plan/planning_gpu.h"

#include <cuda_runtime_api.h>

/* Queues a copy to the host. */
static int fetch(const struct sw_gpu_planning *p, void *h_to, const void *d_from, size_t bytes, struct sw_err *err) {
    const cudaError_t e = cudaMemcpyAsync(h_to, d_from, bytes, cudaMemcpyDeviceToHost, p->stream);
    if (e == cudaSuccess)
        return 0;
    (void)cudaGetLastError();
    (void)sw_err_set(err, -SW_EGPU, SW_SCOPE_REQUEST, "%s", cudaGetErrorString(e));
    (void)sw_err_detail(err, "cudaMemcpyAsync of a plan: %s", cudaGetErrorName(e));
    if (err)
        err->cuda = (int)e;
    return -SW_EGPU;
}

static size_t sample_bytes(const struct sw_gpu_planning *p) {
    return sw_sample_bytes(p->planning.raw_bytes);
}

static int gather(const struct sw_gpu_planning *p, unsigned part, struct sw_err *err) {
    const struct sw_sample_part of = sw_sample_part(p->planning.raw_bytes, p->planning.n_parts, part);
    return sw_gpu_sample_async((const uint8_t *)p->d_region + of.offset, of.bytes, p->planning.piece_bytes,
                               p->room.d_sample, p->room.pass, p->stream, err);
}

static int queue_sample(const struct sw_gpu_planning *p, struct sw_err *err) {
    int rc = 0;
    for (unsigned part = 0; rc == 0 && part < p->planning.n_parts; part++) {
        rc = gather(p, part, err);
        if (rc == 0)
            rc = fetch(p, p->room.h_samples + part * sample_bytes(p), p->room.d_sample, sample_bytes(p), err);
    }
    return rc;
}

static int queue_probe(const struct sw_gpu_planning *p, struct sw_err *err) {
    const int rc = gather(p, 0, err);
    return rc < 0 ? rc : sw_gpu_probe_async(p->room.d_sample, sample_bytes(p), &p->room.h->hopeless, p->stream, err);
}

/* Queues training on the sample, which SW_PLANNING_PROBE has gathered. */
static int queue_training(const struct sw_gpu_planning *p, struct sw_err *err) {
    const struct sw_gpu_planning_room *room = &p->room;
    int rc = sw_gpu_train_async(room->d_sample, sample_bytes(p), room->d_params, room->d_training, room->d_scratch,
                                room->scratch_bytes, p->stream, err);
    if (rc == 0)
        rc = fetch(p, &room->h->trained, room->d_params, sizeof room->h->trained, err);
    return rc < 0 ? rc : fetch(p, &room->h->training, room->d_training, sizeof room->h->training, err);
}

static int queue_step(const struct sw_gpu_planning *p, struct sw_err *err) {
    switch (p->planning.step) {
    case SW_PLANNING_SAMPLE:
        return queue_sample(p, err);
    case SW_PLANNING_PROBE:
        return queue_probe(p, err);
    case SW_PLANNING_TRAIN:
        return queue_training(p, err);
    case SW_PLANNING_DONE:
        break;
    }
    return 0;
}

int sw_gpu_planning_begin(struct sw_gpu_planning *p, enum sw_value_type type, const void *d_region, uint64_t raw_bytes,
                          const struct sw_gpu_planning_room *room, struct CUstream_st *stream, struct sw_err *err) {
    p->room = *room;
    p->d_region = d_region;
    p->stream = stream;
    sw_planning_begin(&p->planning, type, raw_bytes, true, room->dictionary);
    return queue_step(p, err);
}

bool sw_gpu_planning_reads_region(const struct sw_gpu_planning *p) {
    return p->planning.step == SW_PLANNING_SAMPLE || p->planning.step == SW_PLANNING_PROBE;
}

bool sw_gpu_planning_waits(const struct sw_gpu_planning *p) {
    return p->planning.step == SW_PLANNING_SAMPLE && p->planning.takes_long;
}

void sw_gpu_planning_learn(struct sw_gpu_planning *p) {
    sw_planning_learn(&p->planning, p->room.h_samples);
}

static void take_trained(struct sw_gpu_planning *p) {
    struct sw_gpu_planning_host *h = p->room.h;
    h->trained.n_symbols = h->training.n_symbols;
    sw_planning_trained(&p->planning, &h->trained, h->training.coded_bytes);
}

int sw_gpu_planning_go_on(struct sw_gpu_planning *p, struct sw_err *err) {
    switch (p->planning.step) {
    case SW_PLANNING_SAMPLE:
        sw_gpu_planning_learn(p);
        break;
    case SW_PLANNING_PROBE:
        sw_planning_probed(&p->planning, p->room.h->hopeless);
        break;
    case SW_PLANNING_TRAIN:
        take_trained(p);
        break;
    case SW_PLANNING_DONE:
        break;
    }
    if (p->planning.step == SW_PLANNING_DONE)
        return 0;
    const int rc = queue_step(p, err);
    return rc < 0 ? rc : -SW_EAGAIN;
}
