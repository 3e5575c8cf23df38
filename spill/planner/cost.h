/* cost.h - whether compressing a region saves time: what each stage takes by the rates it has lately had.
 *
 * A region on its way out is encoded, crosses the link, and is written to the disk if it goes there; on its way back it
 * is read, and loaded and decoded, which a slot does in one go and which is measured as one. Raw frames take the same
 * way: they are encoded, too (a copy with checksums), and all of their bytes cross. Or they go directly: the link's
 * copy engines bring the bytes, and hashes are made beside that, by few and long kernels or by the CPU; so that way is
 * taken only while kernels for each chunk are the slower one, since others keep the GPU busy. Such steps are long, and
 * some of it costs the CPU cores. Stages overlap but for the first chunk,
 * so that a long region takes as long as its slowest stage, and a region of one chunk as long as all together.
 *
 * Where the encoder cannot keep up with the link a long region may be compressed in part: the encoder takes what it
 * can, and the link, which would stand still in between, the rest as it is. That takes less time than raw also where
 * compressing all of it would take more, but for what is still being encoded at the end.
 *
 * Compressed frames are preferred while the way out, and out and back together, take at most 3 % longer than raw: less
 * than that cannot be told from noise, and they need less room. Nothing is decided on rates that have not been
 * measured: then the plan that the sample suggested stands. Pure: no clock, no lock, no allocation. */
#ifndef SW_SPILL_COST_H
#define SW_SPILL_COST_H

#include "codec/codec.h"
#include "spill/planner/meter.h"

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

/* Bytes per second, 0: not known. Of codecs: uncompressed bytes; of link and disk: those that cross. */
struct sw_cost_rates {
    double encode[SW_CODEC_NR], link_out;
    double restore[SW_CODEC_NR];    /* load and decode in one go, at the ratio of what was restored lately */
    double direct_out, direct_back; /* copy and checksums; not known: that of link_out */
    double disk_write, disk_read;
};

struct sw_cost_question {
    enum sw_codec_id codec; /* that would compress it */
    double expected_ratio;
    uint64_t raw_bytes, n_chunks;
    unsigned n_slots;
    bool to_disk;       /* it goes on to an asynchronous tier */
    bool room_is_short; /* raw, it may find no room where it would find some compressed */
    double plan_s;      /* what making a plan takes, if that is still to be done */
    struct sw_cost_rates rates;
};

struct sw_cost_time {
    double out_s, back_s; /* 0: not known */
};

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
/* True of a raw region that goes directly whatever is known of rates: a kernel hashes its bytes while they cross, which
 * takes no time of its own even beside a busy GPU. */
bool sw_cost_is_long(uint64_t region_bytes);
/* True if raw frames come back faster directly. */
bool sw_cost_restores_directly(const struct sw_cost_rates *rates);

/* Short chunks are slow for what is in them, so each length (by powers of two) has rates of its own. */
#define SW_COST_MIN_BYTES ((uint64_t)256 << 10)
enum { SW_COST_CLASSES = 7 }; /* from 256 KiB; the last: 16 MiB and more */

/* What one device has measured with chunks of one length, and what it owes. All zero at the start. */
struct sw_cost_class {
    struct sw_meter encode[SW_CODEC_NR], link_out, restore[SW_CODEC_NR], direct_out, direct_back;
    double credit_s;         /* time that may be spent on seeing whether compressing pays again */
    double kernels_credit_s; /* the same for raw frames that are made by kernels */
    double direct_credit_s;  /* the same for short regions that come back by kernels, whether they do so directly */
    double link_credit_s;    /* the same for how fast raw chunks go that have the link for themselves */
};

/* Of one of several buffers of a request, which have the slots in turn while the link has the frames of all of them:
 * the rates of its codec are those that it would have with the slots for itself, half as much again as measured. What
 * it takes of a slot's time would else look as if it were taken from the link. */
void sw_cost_share_slots(struct sw_cost_question *question);

/* Index of the class, or -1: too short for rates to matter. */
int sw_cost_class(uint64_t chunk_bytes);
/* Rates but for the disk's. */
void sw_cost_class_rates(const struct sw_cost_class *c, struct sw_cost_rates *ret);
/* True if chunks of it may go directly beside others that slots look at or encode: there are enough for all slots. */
bool sw_cost_can_go_in_part(const struct sw_cost_question *question);
/* Of a region that was turned away by its rates: true if one chunk of it, or in part one for all slots but one, should
 * be compressed all the same, so that the rates stay current. Such chunks take at most 1 % of the time that regions
 * took which were turned away. */
bool sw_cost_retry(struct sw_cost_class *c, const struct sw_cost_question *question,
                   const struct sw_cost_answer *answer);
/* True if that is done in part, so that several encoders at once show their rate: one alone beside a busy GPU shows how
 * long a turn takes. Only if it is the encoder that was too slow, and enough chunks are left beside the direct ones. */
bool sw_cost_retries_in_part(const struct sw_cost_question *question, const struct sw_cost_answer *answer);
/* Of a region that pays in part: true if it should go directly as a whole all the same, so that what that takes stays
 * known: beside compressed chunks it cannot be measured. Costs at most 0.25 % of the time, by the rates known. */
bool sw_cost_retry_link(struct sw_cost_class *c, enum sw_codec_id codec, const struct sw_cost_answer *answer);
/* Of a step of direct_bytes that is to go directly, and one that is to come back so: true if its first chunk should
 * take the way of the kernels all the same, so that their rate stays current. Such chunks take at most 1 % of the time.
 */
bool sw_cost_retry_kernels_out(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes);
bool sw_cost_retry_kernels_back(struct sw_cost_class *c, uint64_t raw_bytes, uint64_t direct_bytes);

/* Of a region that comes back by kernels: true if it should come directly all the same. The first time that it did may
 * have been a bad one: without this nobody would know. Costs at most 1 % of the time, by the rates known. */
bool sw_cost_retry_direct_back(struct sw_cost_class *c, uint64_t region_bytes);

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
