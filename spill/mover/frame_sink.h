/* frame_sink.h - where the frames of a mover's runs go, and where they come from.
 *
 * The host gives it: tiers in the daemon (transfer.h). A place (struct sw_stored) belongs to the run until it is
 * released, or its frame has been handed on by put(). All calls: the mover's thread. Errors of a call are the run's. */
#ifndef SW_SPILL_MOVER_FRAME_SINK_H
#define SW_SPILL_MOVER_FRAME_SINK_H

#include "spill/mover/request.h"

struct sw_frame_sink;
struct sw_mover;

struct sw_frame_sink_ops {
    /* Whether a frame of so many bytes would come to rest in memory now. */
    bool (*rests)(struct sw_frame_sink *sink, uint64_t bytes);
    void (*room)(struct sw_frame_sink *sink, const struct sw_run *run, struct sw_room *ret);
    /* Host memory for a frame of so many bytes, or for the beginning of one. must_rest: it stays there; else it may
     * have to go on (ret->use). -SW_EAGAIN: there is none now, but there will be. Nothing is reserved after an error.
     */
    int (*reserve)(struct sw_frame_sink *sink, struct sw_run *run, uint64_t bytes, bool must_rest,
                   struct sw_stored *ret, struct sw_err *err);
    /* The frame is complete in its place, where it rests. */
    int (*commit)(struct sw_frame_sink *sink, struct sw_stored *stored, struct sw_err *err);
    /* The chunk's frame is complete, and goes on. Takes *stored over, which is empty then. Once the frame is where it
     * should be it is run->frames->stored[chunk], and sw_mover_stored() tells the mover; sw_mover_fail() if it will
     * never be. */
    void (*put)(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *stored);
    /* A restore that is under way wants its frames in memory, those that it will want next first: begins to bring some,
     * or notes that deal() is to; sw_mover_wake() says that one is there. Called again and again. True: anything was
     * begun or noted. */
    bool (*get)(struct sw_frame_sink *sink, struct sw_run *run);
    /* Whether the chunk's frame is in memory. */
    bool (*has)(struct sw_frame_sink *sink, const struct sw_run *run, size_t chunk);
    /* The place of a frame that get() has brought, and that is the run's then. False: it rests in memory, in
     * run->frames->stored[chunk]. */
    bool (*take)(struct sw_frame_sink *sink, struct sw_run *run, size_t chunk, struct sw_stored *ret);
    /* Gives a place of the run's back, and empties *stored; an empty one is a no-op, and may be of no run. */
    void (*release)(struct sw_frame_sink *sink, struct sw_run *run, struct sw_stored *stored);
    /* Begins what is to be done next of what runs have put() and want, by their turns. True: anything was begun. NULL:
     * nothing waits for a turn. */
    bool (*deal)(struct sw_frame_sink *sink);
    /* Goes on with a run of SW_OP_MOVE, whose n_dealt and n_done are the sink's. True: anything was begun or done.
     * NULL: there are none. */
    bool (*move)(struct sw_frame_sink *sink, struct sw_run *run);
    /* A run has failed: what was brought for it is given up, and what has been put() and not begun. Called again and
     * again until n_in_sink is 0. */
    void (*abandon)(struct sw_frame_sink *sink, struct sw_run *run);
    /* A run is over, and has nothing more in the sink. NULL: that makes no difference. */
    void (*ended)(struct sw_frame_sink *sink, struct sw_run *run);
    /* Whether anything has ended that was under way, and takes that in: reports it to the mover. NULL: nothing ever is.
     */
    bool (*has_news)(const struct sw_frame_sink *sink);
    bool (*collect)(struct sw_frame_sink *sink);
};

/* Every implementation embeds this first. */
struct sw_frame_sink {
    const struct sw_frame_sink_ops *ops;
    uint64_t chunk_bytes;   /* the longest chunk of which a frame fits, whatever it holds */
    struct sw_mover *mover; /* whose it is: set by sw_mover_new() */
};

/* For sinks, from any of their calls. A frame that was put() is stored; or a frame that was wanted is there. */
void sw_mover_stored(struct sw_mover *mover, struct sw_run *run);
void sw_mover_wake(struct sw_mover *mover, struct sw_run *run);
/* What waits, and what nothing will be reported of, is to be looked at again then, at the latest. */
void sw_mover_look_at(struct sw_mover *mover, uint64_t us);
/* The first failure is the run's. A context that died takes every run of the device with it. _at: where it is known at
 * which chunks. */
void sw_mover_fail(struct sw_mover *mover, struct sw_run *run, const struct sw_err *cause);
void sw_mover_fail_at(struct sw_mover *mover, struct sw_run *run, size_t chunk, size_t n_chunks,
                      const struct sw_err *cause);
/* Fails it with -SW_ECANCELED if that was asked for. */
void sw_run_check_canceled(struct sw_run *run);

#endif
