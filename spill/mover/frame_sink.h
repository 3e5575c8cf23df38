/* frame_sink.h - where the frames of a mover's runs go, and where they come from.
 *
 * The mover's host provides the sink: in the daemon, tiers (transfer.h). A place (struct sw_stored) belongs to the run
 * until it is released, or until put() has taken its frame. thread: the mover's, for all calls. An error of a call is
 * the run's. */
#ifndef SW_SPILL_MOVER_FRAME_SINK_H
#define SW_SPILL_MOVER_FRAME_SINK_H

#include "spill/mover/request.h"

struct sw_frame_sink;
struct sw_mover;

struct sw_frame_sink_ops {
    /* Returns whether a frame of this length, of the run, would stay in memory now. */
    bool (*rests)(struct sw_frame_sink *sink, const struct sw_run *run, uint64_t bytes);
    void (*room)(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret);
    /* Reserves host memory for a frame of this length, or for its beginning. must_rest: the frame stays there;
     * otherwise it may have to move on (ret->use). errors: -SW_EAGAIN: there is no memory now, but there will be.
     * Nothing is reserved after an error. */
    int (*reserve)(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                   struct sw_stored *ret, struct sw_err *err);
    /* Commits a complete frame in the place where it stays. */
    int (*commit)(struct sw_frame_sink *sink, struct sw_stored *stored, struct sw_err *err);
    /* Takes over the chunk's complete frame, which moves on, and leaves *stored empty. When the frame has arrived, it
     * is in run->frames->stored[chunk], and the sink calls sw_mover_stored(). If it never arrives, the sink calls
     * sw_mover_fail(). */
    void (*put)(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *stored);
    /* Brings frames that a restore under way needs into memory, in the order of need, or notes that deal() is to bring
     * them. The sink calls sw_mover_wake() when one has arrived. The mover calls this again and again. Returns true if
     * anything was begun or noted. */
    bool (*get)(struct sw_frame_sink *sink, struct sw_run *run);
    /* Returns whether the chunk's frame is in memory. */
    bool (*has)(struct sw_frame_sink *sink, const struct sw_run *run, size_t chunk);
    /* Hands over the place of a frame that get() has brought. Returns false if the frame stays in memory, in
     * run->frames->stored[chunk]. */
    bool (*take)(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *ret);
    /* Releases one of the run's places, and empties *stored. An empty one is a no-op and needs no run. */
    void (*release)(struct sw_frame_sink *sink, struct sw_run *run, struct sw_stored *stored);
    /* Begins the next work on frames that runs have put() or want, by their turns. Returns true if anything was begun.
     * NULL: nothing waits for a turn. */
    bool (*deal)(struct sw_frame_sink *sink);
    /* Continues a run of SW_OP_MOVE, whose n_dealt and n_done belong to the sink. Returns true if anything was begun or
     * done. NULL: the sink has no moves. */
    bool (*move)(struct sw_frame_sink *sink, struct sw_run *run);
    /* Gives up what a failed run has in the sink: frames that were brought for it, and frames put(), or to be sent or
     * fetched, and not begun. The mover calls this until n_in_sink is 0. */
    void (*abandon)(struct sw_frame_sink *sink, struct sw_run *run);
    /* Reports that a run is over and has nothing left in the sink. NULL: the sink does not care. */
    void (*ended)(struct sw_frame_sink *sink, struct sw_run *run);
    /* has_news() returns whether work under way has ended; collect() takes it in and reports it to the mover. NULL: no
     * work is ever under way. */
    bool (*has_news)(const struct sw_frame_sink *sink);
    bool (*collect)(struct sw_frame_sink *sink);

    /* For a sink in another process, which reads and writes the device's frame buffers itself (away.c). With send() the
     * mover calls send, fetch, room, abandon, ended, deal, has_news and collect only; all but the first two may be
     * NULL. room() finds *ret without limits, and says what the run prefers.
     * Packs and unpacks also need reserve, commit and release, whose places are in this process (heap_places.h).
     * From the call to sw_mover_slot_done(), which may come from inside the call, the slot's buffer belongs to the sink
     * alone, and counts in run->n_in_sink. */
    /* The frames of chunks [chunk, chunk + n), n up to SW_DECODE_MAX, are complete, at at[i] in the slot's buffer.
     * Their layouts are in run->frames. `at` lasts until the call returns. */
    void (*send)(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, unsigned n, unsigned slot,
                 const uint64_t *at);
    /* Brings the frames of chunks [chunk, chunk + n), n up to SW_DECODE_MAX, to at[i] in the slot's buffer. Each has
     * room for the bound of its chunk's frame. Before it reports success the sink has filled in these chunks'
     * run->frames->layouts. `at` lasts until the call returns. is_disputed: they were fetched before, and at least one
     * of them did not decode. */
    void (*fetch)(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, unsigned n, unsigned slot,
                  const uint64_t *at, bool is_disputed);
    /* Short runs, each of one chunk, whose frames share a slot's buffer and a message; all three or none. goes_with():
     * whether another run may go with the first one. send_group(): the frames of n runs, up to most_runs, begin at
     * items[i].frame_at, one behind the other in steps of SW_FRAME_STEP_BYTES. fetch_group(): the same places are
     * rooms, one behind the other; the sink lets the frames begin anywhere in all of these, and sets frame_at. It fills
     * in the layout of each run's chunk; if the region is shorter than the buffer, also run->frames->raw_bytes. If it
     * has no frame for a run, it fails the run. runs and items last until sw_mover_slot_done(), and count in n_in_sink
     * of each run. */
    bool (*goes_with)(struct sw_frame_sink *sink, const struct sw_run *first, const struct sw_run *other);
    void (*send_group)(struct sw_frame_sink *sink, struct sw_run *const *runs, struct sw_group_item *items, unsigned n,
                       unsigned slot);
    void (*fetch_group)(struct sw_frame_sink *sink, struct sw_run *const *runs, struct sw_group_item *items, unsigned n,
                        unsigned slot);
};

/* Every implementation embeds this first. */
struct sw_frame_sink {
    const struct sw_frame_sink_ops *ops;
    uint64_t chunk_bytes;   /* the longest chunk whose frame fits, whatever it holds */
    unsigned most_runs;     /* of a send_group() or fetch_group() */
    struct sw_mover *mover; /* set by sw_mover_new() */
};

/* Ends a send() or fetch() of a sink in another process: the slot's buffer is the mover's again. err NULL or code 0:
 * success; else the run fails. */
void sw_mover_slot_done(struct sw_mover *mover, unsigned slot, const struct sw_err *err);
/* Lets no step use the slot any more: another process may write to its buffer at any time. One slot always stays. */
void sw_mover_retire_slot(struct sw_mover *mover, unsigned slot);
/* Report that a frame that was put() is stored, or that a wanted frame has arrived. For sinks, from any of their calls.
 * A sink reports by one of these, by sw_mover_fail() or from abandon() that it has less under way for a run
 * (n_in_sink). */
void sw_mover_stored(struct sw_mover *mover, struct sw_run *run);
void sw_mover_wake(struct sw_mover *mover, struct sw_run *run);
/* Sets the latest time at which the mover looks again at runs that wait without a report. */
void sw_mover_look_at(struct sw_mover *mover, uint64_t us);
/* Fails a run; its first failure stands. A dead context fails all runs of the device. _at: the failed chunks are known.
 */
void sw_mover_fail(struct sw_mover *mover, struct sw_run *run, const struct sw_err *cause);
void sw_mover_fail_at(struct sw_mover *mover, struct sw_run *run, size_t chunk, size_t n_chunks,
                      const struct sw_err *cause);
#endif
