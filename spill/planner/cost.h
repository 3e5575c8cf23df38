/* cost.h - decides whether compressing a region saves time, by the time that each path takes (times.h).
 *
 * Compressed frames are preferred while the spill, and spill and restore together, take at most 3 % longer than raw: a
 * smaller difference is noise, and compressed frames need less room. Raw chunks go directly only where kernels for each
 * chunk are slower because others keep the GPU busy: direct steps are long, and a part of their work costs CPU time.
 * While rates have not been measured, nothing is decided and the plan that the sample suggested stands. Pure: no clock,
 * no lock, no allocation. */
#ifndef SW_SPILL_COST_H
#define SW_SPILL_COST_H

#include "base/meter.h"
#include "spill/planner/probe.h"
#include "spill/planner/times.h"

/* The goal of a run's frames, if a request, a user's row or the operator names one: least time, or least room. */
enum sw_prefer { SW_PREFER_NONE, SW_PREFER_TIME, SW_PREFER_ROOM, SW_PREFER_NR };

enum sw_cost_reason {
    SW_COST_UNKNOWN, /* rates have not been measured */
    SW_COST_PAYS,
    SW_COST_NO_GAIN, /* the sample hardly shrinks */
    SW_COST_ENCODER, /* encoding takes longer than it saves */
    SW_COST_DECODER, /* decoding takes longer than the spill saved */
    SW_COST_SHORT,   /* fixed costs decide */
    SW_COST_ROOM,    /* time does not count, or room is scarcer */
    SW_COST_RETRY,   /* it does not pay; one chunk, or a part, is compressed to check this */
    SW_COST_PARTIAL, /* encoding everything would take longer, so other chunks go directly meanwhile */
    SW_COST_CLIENT,  /* nothing was decided here: the client has made the frames */
    SW_COST_REASON_NR
};
/* Returns the reason's text, such as "pays"; at most 31 characters. */
const char *sw_cost_reason_text(enum sw_cost_reason reason);

struct sw_cost_answer {
    enum sw_codec_id codec;
    enum sw_cost_reason reason;
    bool direct;                            /* raw chunks go directly */
    struct sw_cost_time times[SW_CODEC_NR]; /* raw: of the faster path */
};

/* Returns true if the codec of `other` takes less time than the codec of `question`, by more than noise. An unmeasured
 * codec in `other` counts as quicker, so that it gets measured; nothing is quicker than an unmeasured codec in
 * `question`. The two differ in codec and ratio alone. */
bool sw_cost_is_quicker(const struct sw_cost_question *other, const struct sw_cost_question *question);
void sw_cost_choose(const struct sw_cost_question *question, struct sw_cost_answer *ret);
/* Returns true if the rest of a region that is being compressed should go as *ret says, partially compressed or raw.
 * The new measurements come from a few chunks, so only a clear gain counts. */
bool sw_cost_stops_paying(const struct sw_cost_question *question, struct sw_cost_answer *ret);
/* Returns true if a plan is not worth making: even at question->expected_ratio the bytes could not make up for the time
 * of the plan and the encoding, and room is not short. */
bool sw_cost_is_hopeless(const struct sw_cost_question *question, struct sw_cost_answer *ret);
/* Returns true if raw frames are restored faster directly. */
bool sw_cost_restores_directly(const struct sw_cost_rates *rates);

/* Short chunks have lower rates, so each length (by powers of two) has rates of its own. */
#define SW_COST_MIN_BYTES ((uint64_t)256 << 10)
enum { SW_COST_CLASSES = 7 }; /* from 256 KiB; the last: 16 MiB and more */

/* Measurements with chunks of one length on one device. All zero at the start. */
struct sw_cost_class {
    struct sw_meter encode[SW_CODEC_NR], link_out, restore[SW_CODEC_NR], direct_out, direct_back;
    struct sw_probe_budget probes;
};

/* Raises the codec's rates of a buffer that shares the slots with its request's other buffers: half as much again as
 * measured, the rate that it would have with all slots. Otherwise the buffer's share of a slot's time would look like
 * time taken from the link. */
void sw_cost_share_slots(struct sw_cost_question *question);

/* Returns the index of the class, or -1: too short for rates to matter. */
int sw_cost_class(uint64_t chunk_bytes);
/* Gets all rates but the disk's. */
void sw_cost_class_rates(const struct sw_cost_class *c, struct sw_cost_rates *ret);
/* ---- probes (probe.h) ---- */

/* Returns true if a region that goes raw by its rates should still compress one chunk (or, partially, one chunk on all
 * slots but one), so that the rates stay current. */
bool sw_cost_probe_encoding(struct sw_cost_class *c, const struct sw_cost_question *question,
                            const struct sw_cost_answer *answer);
/* Returns true if the first chunk of a direct step of direct_bytes should go by kernels, so that their rate stays
 * current: for a spill, and for a restore. */
bool sw_cost_probe_kernels_out(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes);
bool sw_cost_probe_kernels_back(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes);
/* Returns true if a region that is restored by kernels should be restored directly, to measure this again. Otherwise
 * one bad first measurement would stand for ever. */
bool sw_cost_probe_direct_back(struct sw_cost_class *c, uint64_t region_bytes);

/* ---- direct steps ---- */

/* A region whose raw chunks go directly. */
struct sw_cost_direct {
    uint64_t raw_bytes;
    size_t n_chunks;
    unsigned n_slots;
    bool is_back;
    bool is_alone;       /* no other request wants the device */
    bool has_neighbours; /* another tenant wants it: a step is one chunk */
    bool is_mixed;       /* spill: other chunks are compressed meanwhile */
};
/* Returns how many chunks a slot takes in one step, at most. */
unsigned sw_cost_direct_chunks(const struct sw_cost_direct *region);
/* Returns how many chunks of the step first … first + n - 1, counted from its end, are hashed by the CPU and not by a
 * kernel. */
unsigned sw_cost_chunks_by_cpu(const struct sw_cost_direct *region, size_t first, unsigned n);

#endif
