/* cost.h - whether compressing a region saves time, by what the ways take (times.h).
 *
 * Compressed frames are preferred while the way out, and out and back together, take at most 3 % longer than raw: less
 * than that cannot be told from noise, and they need less room. Raw chunks go directly only while kernels for each
 * chunk are the slower way, since others keep the GPU busy: such steps are long, and some of it costs the CPU cores.
 * Nothing is decided on rates that have not been measured: then the plan that the sample suggested stands. Pure: no
 * clock, no lock, no allocation. */
#ifndef SW_SPILL_COST_H
#define SW_SPILL_COST_H

#include "base/meter.h"
#include "spill/planner/probe.h"
#include "spill/planner/times.h"

enum sw_cost_reason {
    SW_COST_UNKNOWN, /* rates have not been measured */
    SW_COST_PAYS,
    SW_COST_NO_GAIN, /* the sample hardly shrinks */
    SW_COST_ENCODER, /* encoding takes longer than it saves */
    SW_COST_DECODER, /* decoding does, more than was won on the way out */
    SW_COST_SHORT,   /* fixed costs decide */
    SW_COST_ROOM,    /* time does not count, or is less scarce than room */
    SW_COST_RETRY,   /* it does not pay; the first chunk, or a part, is compressed to see whether that still holds */
    SW_COST_IN_PART, /* encoding all of it would take longer; other chunks go directly meanwhile */
    SW_COST_REASON_NR
};
/* "pays" ...; at most 31 characters. */
const char *sw_cost_reason_text(enum sw_cost_reason reason);

struct sw_cost_answer {
    enum sw_codec_id codec;
    enum sw_cost_reason reason;
    bool direct;                            /* raw chunks: directly */
    struct sw_cost_time times[SW_CODEC_NR]; /* raw: of the better way */
};

/* True if the codec of `other` takes less time than that of `question`, by more than noise. One that has not been
 * measured is given its chance; nothing is quicker than one that has not. The two differ in codec and ratio alone. */
bool sw_cost_is_quicker(const struct sw_cost_question *other, const struct sw_cost_question *question);
void sw_cost_choose(const struct sw_cost_question *question, struct sw_cost_answer *ret);
/* Of a region that is being compressed: true if what is left of it had better go as *ret says, in part or raw. What has
 * been measured meanwhile is of a few chunks, so only a clear gain counts. */
bool sw_cost_stops_paying(const struct sw_cost_question *question, struct sw_cost_answer *ret);
/* True if bytes that shrink as far as question->expected_ratio says could not make up for the time that the plan and
 * encoding take, and room is not short either: a plan is not worth making. */
bool sw_cost_is_hopeless(const struct sw_cost_question *question, struct sw_cost_answer *ret);
/* True if raw frames come back faster directly. */
bool sw_cost_restores_directly(const struct sw_cost_rates *rates);

/* Short chunks are slow for what is in them, so each length (by powers of two) has rates of its own. */
#define SW_COST_MIN_BYTES ((uint64_t)256 << 10)
enum { SW_COST_CLASSES = 7 }; /* from 256 KiB; the last: 16 MiB and more */

/* What one device has measured with chunks of one length. All zero at the start. */
struct sw_cost_class {
    struct sw_meter encode[SW_CODEC_NR], link_out, restore[SW_CODEC_NR], direct_out, direct_back;
    struct sw_probe_budget probes;
};

/* Of one of several buffers of a request, which have the slots in turn while the link has the frames of all of them:
 * the rates of its codec are those that it would have with the slots for itself, half as much again as measured. What
 * it takes of a slot's time would else look as if it were taken from the link. */
void sw_cost_share_slots(struct sw_cost_question *question);

/* Index of the class, or -1: too short for rates to matter. */
int sw_cost_class(uint64_t chunk_bytes);
/* Rates but for the disk's. */
void sw_cost_class_rates(const struct sw_cost_class *c, struct sw_cost_rates *ret);
/* ---- probes (probe.h) ---- */

/* Of a region that was turned away by its rates: true if one chunk of it, or in part one for all slots but one, should
 * be compressed all the same, so that the rates stay current. */
bool sw_cost_probe_encoding(struct sw_cost_class *c, const struct sw_cost_question *question,
                            const struct sw_cost_answer *answer);
/* Of a step of direct_bytes that is to go directly, and one that is to come back so: true if its first chunk should
 * take the way of the kernels all the same, so that their rate stays current. */
bool sw_cost_probe_kernels_out(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes);
bool sw_cost_probe_kernels_back(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes);
/* Of a region that comes back by kernels: true if it should come directly all the same. The first time that it did may
 * have been a bad one: without this nobody would know. */
bool sw_cost_probe_direct_back(struct sw_cost_class *c, uint64_t region_bytes);

/* ---- the direct way ---- */

/* A region whose raw chunks go directly. */
struct sw_cost_direct {
    uint64_t raw_bytes;
    size_t n_chunks;
    unsigned n_slots;
    bool is_back;
    bool is_alone;       /* no other request wants the device */
    bool has_neighbours; /* another tenant wants it: a step is one chunk */
    bool is_mixed;       /* out: other chunks are compressed meanwhile */
};
/* How many chunks a slot takes in one step, at most. */
unsigned sw_cost_direct_chunks(const struct sw_cost_direct *region);
/* Of the chunks first … first + n - 1, which are a step, how many, the last ones, are hashed by the CPU and not by a
 * kernel. */
unsigned sw_cost_chunks_by_cpu(const struct sw_cost_direct *region, size_t first, unsigned n);

#endif
