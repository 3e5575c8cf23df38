#include "codec/plan/planning_gpu.h"

#include "codec/onpair/onpair.h"
#include <cuda_runtime_api.h>

/* The parts of `d_learner`, one behind the other. */
#define SAMPLES_BYTES (SW_SAMPLE_MOST_GPU_PARTS * SW_SAMPLE_MAX_BYTES)
#define LEARNED_BYTES ((sizeof(struct sw_onpair_learned) + 15) / 16 * 16)
_Static_assert(SAMPLES_BYTES <= SW_ONPAIR_MOST_SAMPLE, "a GPU learns from so many bytes");
_Static_assert(LEARNED_BYTES <= (SW_SAMPLE_MOST_PARTS - 1) * SW_SAMPLE_MAX_BYTES, "h_samples has room behind a sample");

size_t sw_gpu_planning_learner_bytes(void) {
    return SAMPLES_BYTES + LEARNED_BYTES + sw_gpu_learn_scratch_bytes();
}

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

static int gather_of(const struct sw_gpu_planning *p, struct sw_sample_part of, void *d_sample, struct sw_err *err) {
    return sw_gpu_sample_async((const uint8_t *)p->d_region + of.offset, of.bytes, p->planning.piece_bytes, d_sample,
                               p->room.pass, p->stream, err);
}

static int gather(const struct sw_gpu_planning *p, unsigned part, void *d_sample, struct sw_err *err) {
    return gather_of(p, sw_sample_part(p->planning.raw_bytes, p->planning.n_parts, part), d_sample, err);
}

/* Kernels that have a gate are queued one by one: behind one that has passed the gate, the next one could wait for
 * others for ever, and the gate would let it read the region later. */
static bool goes_alone(const struct sw_gpu_planning *p) {
    return p->room.pass.d_gate;
}

static int queue_sample(struct sw_gpu_planning *p, struct sw_err *err) {
    int rc = 0;
    while (rc == 0 && p->n_gathered < p->planning.n_parts) {
        const unsigned part = p->n_gathered++;
        rc = gather(p, part, p->room.d_sample, err);
        if (rc == 0)
            rc = fetch(p, p->room.h_samples + part * sample_bytes(p), p->room.d_sample, sample_bytes(p), err);
        if (goes_alone(p))
            break;
    }
    return rc;
}

static int queue_probe(const struct sw_gpu_planning *p, struct sw_err *err) {
    const int rc = gather(p, 0, p->room.d_sample, err);
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

static void *h_learned(const struct sw_gpu_planning *p) {
    return p->room.h_samples + SW_SAMPLE_MAX_BYTES;
}

/* Queues the gathering of a part's sample, or, as the last one, of the sample that judges the dictionary. */
static int queue_gathering(const struct sw_gpu_planning *p, unsigned i, struct sw_err *err) {
    const struct sw_sample_part judge = sw_planning_judge(&p->planning);
    if (i < p->planning.n_parts)
        return gather(p, i, p->room.d_learner + i * sample_bytes(p), err);
    const int rc = gather_of(p, judge, p->room.d_sample, err);
    return rc < 0 ? rc : fetch(p, p->room.h_samples, p->room.d_sample, sw_sample_bytes(judge.bytes), err);
}

/* Queues the learning of a dictionary from the samples. */
static int queue_symbols(const struct sw_gpu_planning *p, struct sw_err *err) {
    uint8_t *d_samples = p->room.d_learner, *d_scratch = d_samples + SAMPLES_BYTES + LEARNED_BYTES;
    struct sw_onpair_learned *d_learned = (void *)(d_samples + SAMPLES_BYTES);
    const int rc = sw_gpu_learn_async(d_samples, p->planning.n_parts * sample_bytes(p), SW_ONPAIR_MAX_SYMBOLS,
                                      d_learned, d_scratch, sw_gpu_learn_scratch_bytes(), p->stream, err);
    return rc < 0 ? rc : fetch(p, h_learned(p), d_learned, sizeof *d_learned, err);
}

/* Queues the gathering of all samples, and the learning. */
static int queue_learning(struct sw_gpu_planning *p, struct sw_err *err) {
    const unsigned n = p->planning.n_parts + 1;
    int rc = 0;
    while (rc == 0 && p->n_gathered < n) {
        rc = queue_gathering(p, p->n_gathered++, err);
        if (goes_alone(p))
            return rc;
    }
    p->has_samples = true;
    return rc < 0 ? rc : queue_symbols(p, err);
}

/* What the GPU cannot learn the host does. If the context is dead, the next call says so. */
static int queue_learning_or_sample(struct sw_gpu_planning *p, struct sw_err *err) {
    if (queue_learning(p, NULL) == 0)
        return 0;
    sw_planning_learn_on_host(&p->planning);
    p->n_gathered = 0;
    return queue_sample(p, err);
}

static int queue_step(struct sw_gpu_planning *p, struct sw_err *err) {
    switch (p->planning.step) {
    case SW_PLANNING_SAMPLE:
        return queue_sample(p, err);
    case SW_PLANNING_PROBE:
        return queue_probe(p, err);
    case SW_PLANNING_TRAIN:
        return queue_training(p, err);
    case SW_PLANNING_LEARN:
        return queue_learning_or_sample(p, err);
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
    p->n_gathered = 0;
    p->has_samples = false;
    sw_planning_begin(&p->planning, type, raw_bytes, true, room->dictionary);
    p->planning.learns = room->d_learner != NULL;
    return queue_step(p, err);
}

static bool is_learning(const struct sw_gpu_planning *p) {
    return p->planning.step == SW_PLANNING_LEARN && p->has_samples;
}

/* All samples that the host learns from are there, or are about to be. */
static bool is_sampled(const struct sw_gpu_planning *p) {
    return p->planning.step == SW_PLANNING_SAMPLE && p->n_gathered == p->planning.n_parts;
}

bool sw_gpu_planning_reads_region(const struct sw_gpu_planning *p) {
    return p->planning.step != SW_PLANNING_TRAIN && p->planning.step != SW_PLANNING_DONE && !is_learning(p);
}

bool sw_gpu_planning_waits(const struct sw_gpu_planning *p) {
    return is_learning(p) || (is_sampled(p) && p->planning.takes_long);
}

void sw_gpu_planning_learn(struct sw_gpu_planning *p) {
    if (p->planning.step == SW_PLANNING_LEARN)
        sw_planning_learned(&p->planning, h_learned(p), p->room.h_samples);
    else
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
        if (is_sampled(p))
            sw_gpu_planning_learn(p);
        break;
    case SW_PLANNING_PROBE:
        sw_planning_probed(&p->planning, p->room.h->hopeless);
        break;
    case SW_PLANNING_TRAIN:
        take_trained(p);
        break;
    case SW_PLANNING_LEARN: /* more samples are to be gathered, or all are there */
    case SW_PLANNING_DONE:
        break;
    }
    if (p->planning.step == SW_PLANNING_DONE)
        return 0;
    const int rc = queue_step(p, err);
    return rc < 0 ? rc : -SW_EAGAIN;
}
