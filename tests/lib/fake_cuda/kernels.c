/* kernels.c - the calls of codec/gpu.h, done by the codecs of the host when the stream comes to them. */
#include "base/assert.h"
#include "codec/checksum.h"
#include "codec/codec.h"
#include "codec/gpu.h"
#include "codec/identity.h"
#include "codec/onpair/onpair.h"
#include "codec/plan/plan.h"
#include "tests/lib/fake_cuda/state.h"

#include <stdlib.h>
#include <string.h>

#define SCRATCH_BYTES ((size_t)64 << 10)

/* Begins a call; errors as of a launch. */
static int begin(enum sw_fake_call call, struct sw_err *err) {
    cudaError_t e = sw_fake_enter(call);
    if (e == cudaSuccess)
        e = sw_fake_take_last_error();
    if (e == cudaSuccess)
        return 0;
    (void)sw_err_set(err, -SW_EGPU, SW_SCOPE_DEVICE, "%s", cudaGetErrorString(e));
    (void)sw_err_detail(err, "%s", sw_fake_call_name(call));
    if (err)
        err->cuda = (int)e;
    return -SW_EGPU;
}

static int end(int rc) {
    (void)sw_fake_leave(cudaSuccess);
    return rc;
}

/* Ends one that queues work. A call that fails may have launched some of its kernels: taken for all of them. */
static int queue(int rc, cudaStream_t stream, void (*work)(const void *args), const void *args, size_t bytes,
                 struct sw_gpu_pass pass) {
    (void)sw_fake_queue_kernel(stream, work, args, bytes, pass);
    return end(rc);
}

static const struct sw_gpu_pass no_gate;

/* It loads kernels, for which it waits for those that run. */
int sw_gpu_codec_init(struct sw_err *err) {
    if (atomic_load(&sw_fake_cuda->is_full))
        atomic_fetch_add(&sw_fake_cuda->stuck, 1);
    return end(begin(SW_FAKE_sw_gpu_codec_init, err));
}

bool sw_gpu_takes_dictionaries(void) {
    return true;
}

uint32_t sw_gpu_full_segments(void) {
    return 64;
}

size_t sw_gpu_pool_bytes(uint64_t raw_bytes) {
    const size_t most = (size_t)54 << 20; /* as of a GPU */
    return raw_bytes / 2 < most ? raw_bytes / 2 : most;
}

static void do_nothing(const void *args) {
    (void)args;
}

int sw_gpu_pool_init_async(const struct sw_gpu_pool *pool, struct CUstream_st *stream, struct sw_err *err) {
    (void)pool;
    return queue(begin(SW_FAKE_sw_gpu_pool_init_async, err), stream, do_nothing, NULL, 0, no_gate);
}

size_t sw_gpu_train_scratch_bytes(void) {
    return SCRATCH_BYTES;
}

size_t sw_gpu_batch_scratch_bytes(uint32_t n) {
    return SCRATCH_BYTES + n * sizeof(struct sw_gpu_item);
}

int sw_gpu_wake_async(struct CUstream_st *stream, struct sw_err *err) {
    return queue(begin(SW_FAKE_sw_gpu_wake_async, err), stream, do_nothing, NULL, 0, no_gate);
}

/* ---- plans ---- */

struct sample {
    const void *d_region;
    uint64_t raw_bytes;
    unsigned piece_bytes;
    void *d_sample;
};

static void do_sample(const void *args) {
    const struct sample *s = args;
    if (sw_fake_reach(s->d_region, s->raw_bytes) && sw_fake_reach(s->d_sample, SW_SAMPLE_MAX_BYTES))
        (void)sw_sample_gather(s->d_sample, s->d_region, s->raw_bytes, s->piece_bytes);
}

int sw_gpu_sample_async(const void *d_region, uint64_t raw_bytes, unsigned piece_bytes, void *d_sample,
                        struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err) {
    const struct sample s = {
        .d_region = d_region, .raw_bytes = raw_bytes, .piece_bytes = piece_bytes, .d_sample = d_sample};
    return queue(begin(SW_FAKE_sw_gpu_sample_async, err), stream, do_sample, &s, sizeof s, pass);
}

/* Writes to both ends of memory that is the call's own: what a device has there by mistake is lost. */
static void spoil(void *memory, size_t bytes) {
    const size_t end = bytes < 4096 ? bytes : 4096;
    memset(memory, 0xDB, end);
    memset((uint8_t *)memory + bytes - end, 0xDB, end);
}

struct training {
    const void *d_sample;
    size_t sample_bytes;
    uint32_t *d_hopeless;
    struct sw_params *d_params;
    struct sw_gpu_training *d_training;
    void *d_scratch;
    size_t scratch_bytes;
};

/* Returns a plan of v5t, or raw. A failing allocation of a test does not fail it: the GPU's kernels allocate
 * nothing. */
static struct sw_plan v5t_plan_for(const void *sample, size_t bytes) {
    struct sw_plan v5t = {.codec = SW_CODEC_V5T}, plan;
    struct sw_frame_layout layout;
    const uint64_t cap_bytes = sw_frame_bound_bytes(bytes);
    uint64_t frame_bytes = 0;
    uint8_t *frame = aligned_alloc(SW_FRAME_ALIGN, (cap_bytes + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN);
    SW_ASSERT(frame);
    sw_plan_learn(&v5t, sample, bytes);
    if (sw_codec_encode(&v5t, sample, bytes, frame, cap_bytes, &frame_bytes, NULL)) {
        free(frame);
        sw_plan_init_raw(&plan);
        return plan;
    }
    SW_ASSERT(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL) == 0);
    free(frame);
    sw_plan_init_trained(&plan, &v5t.params, frame_bytes - layout.data_offset, bytes, bytes);
    return plan;
}

/* The plan for a sample. Training takes milliseconds, and tests bring the same bytes again and again. */
static const struct sw_plan *plan_for(const void *sample, size_t bytes) {
    static struct {
        uint32_t hash;
        size_t bytes;
        struct sw_plan plan;
    } known[8];
    static unsigned next;
    const uint32_t hash = sw_hash_update(0, sample, bytes);
    for (unsigned i = 0; i < 8; i++)
        if (known[i].bytes == bytes && known[i].hash == hash)
            return &known[i].plan;
    const unsigned i = next++ % 8;
    known[i].plan = v5t_plan_for(sample, bytes);
    known[i].hash = hash;
    known[i].bytes = bytes;
    return &known[i].plan;
}

static void do_probe(const void *args) {
    const struct training *t = args;
    if (!sw_fake_reach(t->d_sample, t->sample_bytes) || !sw_fake_reach(t->d_hopeless, sizeof *t->d_hopeless))
        return;
    *t->d_hopeless = plan_for(t->d_sample, t->sample_bytes)->codec == SW_CODEC_RAW;
}

int sw_gpu_probe_async(const void *d_sample, size_t sample_bytes, uint32_t *d_hopeless, struct CUstream_st *stream,
                       struct sw_err *err) {
    const struct training t = {.d_sample = d_sample, .sample_bytes = sample_bytes, .d_hopeless = d_hopeless};
    return queue(begin(SW_FAKE_sw_gpu_probe_async, err), stream, do_probe, &t, sizeof t, no_gate);
}

static void do_train(const void *args) {
    const struct training *t = args;
    if (!sw_fake_reach(t->d_sample, t->sample_bytes) || !sw_fake_reach(t->d_params, sizeof *t->d_params) ||
        !sw_fake_reach(t->d_training, sizeof *t->d_training) || !sw_fake_reach(t->d_scratch, t->scratch_bytes))
        return;
    spoil(t->d_scratch, t->scratch_bytes);
    const struct sw_plan *plan = plan_for(t->d_sample, t->sample_bytes);
    *t->d_params = plan->params;
    t->d_training->n_symbols = plan->params.n_symbols;
    t->d_training->coded_bytes = (uint32_t)((double)t->sample_bytes / plan->expected_ratio);
}

int sw_gpu_train_async(const void *d_sample, size_t sample_bytes, struct sw_params *d_params,
                       struct sw_gpu_training *d_training, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err) {
    const struct training t = {.d_sample = d_sample,
                               .sample_bytes = sample_bytes,
                               .d_params = d_params,
                               .d_training = d_training,
                               .d_scratch = d_scratch,
                               .scratch_bytes = scratch_bytes};
    SW_ASSERT(scratch_bytes >= sw_gpu_train_scratch_bytes());
    return queue(begin(SW_FAKE_sw_gpu_train_async, err), stream, do_train, &t, sizeof t, no_gate);
}

/* Less than a GPU needs: tests have short chunks. */
size_t sw_gpu_learn_scratch_bytes(void) {
    return SCRATCH_BYTES;
}

struct learning {
    const void *d_sample;
    size_t sample_bytes;
    uint32_t most_symbols;
    struct sw_onpair_learned *d_learned;
    void *d_scratch;
};

static void do_learn(const void *args) {
    const struct learning *l = args;
    if (!sw_fake_reach(l->d_sample, l->sample_bytes) || !sw_fake_reach(l->d_learned, sizeof *l->d_learned) ||
        !sw_fake_reach(l->d_scratch, SCRATCH_BYTES))
        return;
    spoil(l->d_scratch, SCRATCH_BYTES);
    while (sw_onpair_learn_symbols(l->d_learned, l->d_sample, l->sample_bytes, SW_ONPAIR_PIECE_BYTES,
                                   l->most_symbols) == -SW_ENOMEM)
        continue; /* a GPU does without the memory that a test may make short */
}

int sw_gpu_learn_async(const void *d_sample, size_t sample_bytes, uint32_t most_symbols,
                       struct sw_onpair_learned *d_learned, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err) {
    const struct learning l = {.d_sample = d_sample,
                               .sample_bytes = sample_bytes,
                               .most_symbols = most_symbols,
                               .d_learned = d_learned,
                               .d_scratch = d_scratch};
    SW_ASSERT(scratch_bytes >= SCRATCH_BYTES && (uintptr_t)d_scratch % SW_FRAME_ALIGN == 0 &&
              sample_bytes <= SW_ONPAIR_MOST_SAMPLE);
    return queue(begin(SW_FAKE_sw_gpu_learn_async, err), stream, do_learn, &l, sizeof l, no_gate);
}

/* ---- frames ---- */

struct encode {
    struct sw_gpu_plan plan;
    const void *d_in;
    uint64_t in_bytes;
    void *d_frame;
    struct sw_gpu_result *d_result;
    struct sw_gpu_progress *d_progress; /* NULL: in a batch */
    struct sw_gpu_pool pool;
};

/* Copies a plan's dictionary from the device, with the index, which the host's encoder then uses, too. */
static void take_dictionary(struct sw_plan *plan, const struct sw_gpu_plan *from) {
    static _Thread_local struct sw_frame_dictionary dictionary;
    const uint32_t index_bytes = ((16u + 16u + 4u) << from->index_log2) + 512u;
    SW_ASSERT(index_bytes <= sizeof dictionary.index && from->dictionary_bytes <= sizeof dictionary.data);
    if (!sw_fake_reach(from->d_dictionary, from->dictionary_bytes) || !sw_fake_reach(from->d_index, index_bytes))
        return;
    dictionary.bytes = from->dictionary_bytes;
    dictionary.index_log2 = from->index_log2;
    dictionary.index_bytes = index_bytes;
    memcpy(dictionary.data, from->d_dictionary, dictionary.bytes);
    memcpy(dictionary.index, from->d_index, index_bytes);
    plan->dictionary = &dictionary;
}

/* Frames of equal bytes, as they are made when a device opens: of one chunk by each codec for each type. Coding these
 * would take most of the time of tests that open hundreds of devices. */
enum { MAX_KNOWN = 256, MAX_KNOWN_BYTES = 32 << 10 };

static struct known {
    struct sw_plan plan; /* without the dictionary */
    uint32_t dictionary_bytes, dictionary_hash;
    uint64_t raw_bytes, frame_bytes;
    uint8_t byte, *frame;
} known_frames[MAX_KNOWN];
static unsigned n_known;

/* Returns whether what is encoded may be known, and its key. */
static bool may_be_known(struct known *key, const struct sw_plan *plan, const uint8_t *in, uint64_t bytes) {
    if (bytes < 2 || bytes > MAX_KNOWN_BYTES || memcmp(in, in + 1, bytes - 1) != 0)
        return false;
    memset(key, 0, sizeof *key);
    key->plan.codec = plan->codec;
    key->plan.segment_log2 = plan->segment_log2;
    key->plan.value_type = plan->value_type;
    key->plan.params = plan->params;
    key->raw_bytes = bytes;
    key->byte = in[0];
    if (plan->dictionary) {
        key->dictionary_bytes = plan->dictionary->bytes;
        key->dictionary_hash = sw_hash_update(0, plan->dictionary->data, plan->dictionary->bytes);
    }
    return true;
}

static const struct known *find_known(const struct known *key) {
    for (unsigned i = 0; i < n_known; i++) {
        const struct known *k = &known_frames[i];
        if (k->plan.codec == key->plan.codec && k->plan.segment_log2 == key->plan.segment_log2 &&
            k->plan.value_type == key->plan.value_type && k->raw_bytes == key->raw_bytes && k->byte == key->byte &&
            k->dictionary_bytes == key->dictionary_bytes && k->dictionary_hash == key->dictionary_hash &&
            memcmp(&k->plan.params, &key->plan.params, sizeof k->plan.params) == 0)
            return k;
    }
    return NULL;
}

static void remember(const struct known *key, const void *frame, uint64_t frame_bytes) {
    if (n_known == MAX_KNOWN)
        return;
    struct known *k = &known_frames[n_known++];
    *k = *key;
    k->frame_bytes = frame_bytes;
    k->frame = malloc(frame_bytes);
    SW_ASSERT(k->frame);
    memcpy(k->frame, frame, frame_bytes);
}

/* Decodes a frame that is byte for byte one that is known. */
static bool decode_known(const void *frame, uint64_t frame_bytes, void *out, uint64_t raw_bytes) {
    for (unsigned i = 0; i < n_known; i++) {
        const struct known *k = &known_frames[i];
        if (k->frame_bytes == frame_bytes && k->raw_bytes == raw_bytes && memcmp(k->frame, frame, frame_bytes) == 0) {
            memset(out, k->byte, raw_bytes);
            return true;
        }
    }
    return false;
}

/* The host's codec makes a raw frame of bytes that do not shrink. A GPU's codec does not: it reports the frame's
 * length. */
static void do_encode(const void *args) {
    const struct encode *e = args;
    struct sw_plan plan = {
        .codec = e->plan.codec, .segment_log2 = e->plan.segment_log2, .value_type = e->plan.value_type};
    const uint64_t cap_bytes = sw_frame_bound_bytes(e->in_bytes);
    struct sw_frame_layout made;
    uint64_t frame_bytes = 0;
    if (!sw_fake_reach(e->d_in, e->in_bytes) || !sw_fake_reach(e->d_frame, cap_bytes) ||
        !sw_fake_reach(e->d_result, sizeof *e->d_result) || !sw_fake_reach(e->pool.d_memory, e->pool.bytes))
        return;
    if (e->d_progress) {
        if (!sw_fake_reach(e->d_progress, sizeof *e->d_progress))
            return;
        SW_ASSERT(!e->d_progress->tiles_units && !e->d_progress->next_tile);
    }
    spoil(e->pool.d_memory, e->pool.bytes);
    if (e->plan.d_params && sw_fake_reach(e->plan.d_params, sizeof plan.params))
        plan.params = *e->plan.d_params;
    if (e->plan.d_dictionary)
        take_dictionary(&plan, &e->plan);
    struct known key;
    const bool may_be = may_be_known(&key, &plan, e->d_in, e->in_bytes);
    const struct known *known = may_be ? find_known(&key) : NULL;
    int rc = 0;
    if (known) {
        frame_bytes = known->frame_bytes;
        memcpy(e->d_frame, known->frame, frame_bytes);
    } else {
        do /* a GPU does without the memory that a test may make short */
            rc = sw_codec_encode(&plan, e->d_in, e->in_bytes, e->d_frame, cap_bytes, &frame_bytes, NULL);
        while (rc == -SW_ENOMEM);
        SW_ASSERT(rc == 0);
        if (may_be)
            remember(&key, e->d_frame, frame_bytes);
    }
    SW_ASSERT(sw_frame_parse(&made, e->d_frame, frame_bytes, frame_bytes, NULL) == 0);
    *e->d_result = (struct sw_gpu_result){.frame_bytes = made.codec == plan.codec ? frame_bytes : cap_bytes,
                                          .codec = (uint32_t)plan.codec};
}

int sw_gpu_encode_async(const struct sw_gpu_plan *plan, const void *d_in, uint64_t in_bytes, void *d_frame,
                        uint64_t frame_cap_bytes, struct sw_gpu_result *d_result, const struct sw_gpu_pool *pool,
                        struct sw_gpu_progress *d_progress, struct sw_gpu_pass pass, struct CUstream_st *stream,
                        struct sw_err *err) {
    const struct encode e = {.plan = *plan,
                             .d_in = d_in,
                             .in_bytes = in_bytes,
                             .d_frame = d_frame,
                             .d_result = d_result,
                             .d_progress = d_progress,
                             .pool = *pool};
    SW_ASSERT(frame_cap_bytes >= sw_frame_bound_bytes(in_bytes) && pool->bytes >= sw_gpu_pool_bytes(in_bytes));
    return queue(begin(SW_FAKE_sw_gpu_encode_async, err), stream, do_encode, &e, sizeof e, pass);
}

struct decode {
    uint64_t frame_bytes, raw_bytes;
    uint32_t n_tiles;
    const void *d_frame;
    void *d_out;
    struct sw_gpu_result *d_result;
};

static void do_decode(const void *args) {
    const struct decode *d = args;
    uint64_t raw_bytes = 0;
    if (!sw_fake_reach(d->d_frame, d->frame_bytes) || !sw_fake_reach(d->d_out, d->raw_bytes) ||
        !sw_fake_reach(d->d_result, sizeof *d->d_result))
        return;
    if (!decode_known(d->d_frame, d->frame_bytes, d->d_out, d->raw_bytes) &&
        sw_codec_decode(d->d_frame, d->frame_bytes, d->d_out, d->raw_bytes, &raw_bytes, NULL) < 0)
        d->d_result->bad_tiles += d->n_tiles;
}

static struct decode decode_of(const struct sw_frame_layout *layout, const void *d_frame, void *d_out,
                               struct sw_gpu_result *d_result) {
    return (struct decode){.frame_bytes = layout->frame_bytes,
                           .raw_bytes = layout->raw_bytes,
                           .n_tiles = layout->n_tiles,
                           .d_frame = d_frame,
                           .d_out = d_out,
                           .d_result = d_result};
}

int sw_gpu_decode_async(const struct sw_frame_layout *layout, const void *d_frame, uint32_t first_tile,
                        uint32_t n_tiles, void *d_out, struct sw_gpu_result *d_result, struct sw_gpu_pass pass,
                        struct CUstream_st *stream, struct sw_err *err) {
    const struct decode d = decode_of(layout, d_frame, d_out, d_result);
    SW_ASSERT(first_tile == 0 && n_tiles == layout->n_tiles); /* the device decodes whole frames */
    return queue(begin(SW_FAKE_sw_gpu_decode_async, err), stream, do_decode, &d, sizeof d, pass);
}

/* ---- batches, whose descriptors are read when the stream comes to them ---- */

struct batch {
    struct sw_gpu_plan plan;
    const struct sw_gpu_item *h_items;
    uint32_t n;
    struct sw_gpu_result *results;
    struct sw_gpu_pool pool;
};

static void do_encode_batch(const void *args) {
    const struct batch *b = args;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct sw_gpu_item *item = &b->h_items[i];
        do_encode(&(struct encode){.plan = b->plan,
                                   .d_in = item->d_raw,
                                   .in_bytes = item->layout.raw_bytes,
                                   .d_frame = item->d_frame,
                                   .d_result = &b->results[i],
                                   .pool = b->pool});
    }
}

int sw_gpu_encode_batch_async(const struct sw_gpu_plan *plan, struct sw_gpu_item *h_items, uint32_t n,
                              struct sw_gpu_result *results, const struct sw_gpu_pool *pool, void *d_scratch,
                              size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream,
                              struct sw_err *err) {
    const struct batch b = {.plan = *plan, .h_items = h_items, .n = n, .results = results, .pool = *pool};
    (void)d_scratch;
    SW_ASSERT(scratch_bytes >= n * sizeof *h_items);
    for (uint32_t i = 0; i < n; i++) {
        const uint64_t raw_bytes = h_items[i].layout.raw_bytes;
        sw_frame_layout_init(&h_items[i].layout, plan->codec, plan->segment_log2, raw_bytes,
                             plan->d_params ? plan->n_symbols : 0);
        h_items[i].layout.value_type = plan->value_type;
        sw_frame_layout_add_dictionary(&h_items[i].layout, plan->dictionary_bytes);
        SW_ASSERT(!plan->dictionary_bytes || h_items[i].layout.data_offset < sw_frame_bound_bytes(raw_bytes));
    }
    return queue(begin(SW_FAKE_sw_gpu_encode_batch_async, err), stream, do_encode_batch, &b, sizeof b, pass);
}

static void do_decode_batch(const void *args) {
    const struct batch *b = args;
    for (uint32_t i = 0; i < b->n; i++) {
        const struct decode d =
            decode_of(&b->h_items[i].layout, b->h_items[i].d_frame, b->h_items[i].d_raw, &b->results[i]);
        do_decode(&d);
    }
}

int sw_gpu_decode_batch_async(struct sw_gpu_item *h_items, uint32_t n, struct sw_gpu_result *results, void *d_scratch,
                              size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream,
                              struct sw_err *err) {
    const struct batch b = {.h_items = h_items, .n = n, .results = results};
    (void)d_scratch;
    SW_ASSERT(scratch_bytes >= n * sizeof *h_items);
    return queue(begin(SW_FAKE_sw_gpu_decode_batch_async, err), stream, do_decode_batch, &b, sizeof b, pass);
}

struct hashes {
    struct sw_gpu_source ranges[SW_GPU_HASH_MAX];
    uint32_t n;
    uint32_t *hashes;
};

static void do_hash(const void *args) {
    const struct hashes *h = args;
    const uint64_t tile_bytes = (uint64_t)SW_TILE_SEGMENTS << SW_RAW_SEGMENT_LOG2;
    uint32_t *to = h->hashes;
    for (uint32_t i = 0; i < h->n; i++) {
        const struct sw_gpu_source *range = &h->ranges[i];
        if (!sw_fake_reach(range->d_raw, range->bytes))
            return;
        for (uint64_t at = 0; at < range->bytes; at += tile_bytes) {
            const uint64_t left = range->bytes - at;
            if (!sw_fake_reach(to, sizeof *to))
                return;
            *to++ = sw_hash_tile((const uint8_t *)range->d_raw + at, left < tile_bytes ? left : tile_bytes,
                                 SW_RAW_SEGMENT_LOG2, (uint32_t)(at / tile_bytes));
        }
    }
}

int sw_gpu_hash_async(const struct sw_gpu_source *ranges, uint32_t n, uint32_t *hashes, struct CUstream_st *stream,
                      struct sw_err *err) {
    struct hashes h = {.n = n, .hashes = hashes};
    const int rc = begin(SW_FAKE_sw_gpu_hash_async, err);
    SW_ASSERT(n <= SW_GPU_HASH_MAX);
    memcpy(h.ranges, ranges, n * sizeof *ranges);
    return n ? queue(rc, stream, do_hash, &h, sizeof h, no_gate) : end(rc);
}

struct runs {
    const struct sw_gpu_run *h_runs;
    uint32_t n;
};

static void do_copies(const void *args) {
    const struct runs *r = args;
    for (uint32_t i = 0; i < r->n; i++) {
        const struct sw_gpu_run *run = &r->h_runs[i];
        SW_ASSERT(((uintptr_t)run->from | (uintptr_t)run->to | run->bytes) % 16 == 0);
        if (sw_fake_reach(run->from, run->bytes) && sw_fake_reach(run->to, run->bytes))
            memcpy(run->to, run->from, run->bytes);
    }
}

int sw_gpu_copy_async(struct sw_gpu_run *h_runs, uint32_t n, void *d_scratch, size_t scratch_bytes,
                      struct CUstream_st *stream, struct sw_err *err) {
    const struct runs r = {.h_runs = h_runs, .n = n};
    (void)d_scratch;
    SW_ASSERT(scratch_bytes >= n * sizeof *h_runs);
    return queue(begin(SW_FAKE_sw_gpu_copy_async, err), stream, do_copies, &r, sizeof r, no_gate);
}

struct identities {
    const struct sw_gpu_source *h_sources;
    uint32_t n;
    uint64_t *identities;
};

static void do_identify(const void *args) {
    const struct identities *j = args;
    for (uint32_t i = 0; i < j->n; i++)
        if (sw_fake_reach(j->h_sources[i].d_raw, j->h_sources[i].bytes))
            j->identities[i] = sw_identity_of(j->h_sources[i].d_raw, j->h_sources[i].bytes);
}

int sw_gpu_identify_async(const struct sw_gpu_source *h_sources, uint32_t n, uint64_t *identities,
                          struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err) {
    const struct identities j = {.h_sources = h_sources, .n = n, .identities = identities};
    const int rc = begin(SW_FAKE_sw_gpu_identify_async, err);
    return n ? queue(rc, stream, do_identify, &j, sizeof j, pass) : end(rc);
}
