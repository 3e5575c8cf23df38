/* direct.c - raw chunks whose bytes are moved without being encoded: several of them in one step of a slot.
 *
 * Beside a busy GPU a step that has a kernel takes milliseconds, however little it does, so that steps must be long
 * (cost.h says how long). A step needs no buffer of its slot: room in the tier is all that it takes. A spill's step is
 * cut where the host tier has no more; the chunk that did not fit is the first one of the next step, which waits or
 * fails as any other. */
#include "spill/mover/mover_state.h"

#include "base/assert.h"

#include <string.h>

static struct sw_cost_direct region_of(const struct sw_mover *m, const struct sw_job *job) {
    return (struct sw_cost_direct){.raw_bytes = job->bytes,
                                   .n_chunks = job->frames->n_chunks,
                                   .n_slots = m->n_slots,
                                   .is_back = job->kind == SW_JOB_RESTORE,
                                   .is_alone = sw_mover_is_alone(m, job),
                                   .has_neighbours = sw_mover_has_neighbours(m, job),
                                   .is_mixed = job->kind == SW_JOB_SPILL && job->is_mixed};
}

/* Chunks of the job, from `first` on, that a step would take at most. */
static unsigned step_chunks(const struct sw_mover *m, const struct sw_job *job, size_t first) {
    const struct sw_cost_direct region = region_of(m, job);
    const size_t left = job->frames->n_chunks - first;
    const unsigned n = sw_cost_direct_chunks(&region);
    return left < n ? (unsigned)left : n;
}

static uint64_t step_bytes(const struct sw_job *job, size_t first, unsigned n) {
    uint64_t bytes = 0;
    for (size_t i = first; i < first + n; i++)
        bytes += sw_frames_chunk_bytes(job->frames, i);
    return bytes;
}

static void add(struct sw_slot *slot, size_t chunk, const struct sw_frame_layout *frame,
                const struct sw_stored *stored) {
    const struct sw_job *job = slot->job;
    struct sw_direct *d = &slot->direct;
    SW_ASSERT(d->n < SW_RAW_MAX);
    d->chunks[d->n] = chunk;
    d->items[d->n++] = (struct sw_raw_item){
        .frame = *frame, .offset = job->offset + chunk * job->frames->chunk_bytes, .stored = stored};
}

static uint64_t items_bytes(const struct sw_direct *d) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < d->n; i++)
        bytes += d->items[i].frame.raw_bytes;
    return bytes;
}

/* What a step measures: a stage of its own, as the chunks that it has. Not beside compressed ones: with them it shares
 * the link. */
static void measure(struct sw_mover *m, struct sw_slot *slot, enum sw_measure_kind kind) {
    if (!sw_slot_shares_link(m, slot))
        sw_measure_begin(m, slot, kind, SW_CODEC_RAW, slot->direct.items[0].frame.raw_bytes,
                         items_bytes(&slot->direct));
}

/* ---- out ---- */

/* How long the frame of the job's next chunk will be is known. */
static struct sw_frame_layout next_frame(const struct sw_job *job) {
    struct sw_frame_layout frame;
    sw_frame_layout_init(&frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, sw_frames_chunk_bytes(job->frames, job->n_dealt),
                         0);
    return frame;
}

/* Deals the job's next chunk to the slot; its frame counts as encoded. */
static void deal_next(struct sw_mover *m, struct sw_slot *slot, const struct sw_frame_layout *frame,
                      const struct sw_stored *room) {
    struct sw_job *job = slot->job;
    add(slot, job->n_dealt, frame, room);
    sw_job_note_frame(job, job->n_dealt++, SW_CODEC_RAW, frame);
    if (job->n_encoded == job->frames->n_chunks)
        sw_job_set_phase(m, job, SW_PHASE_STORING);
}

bool sw_direct_take(struct sw_mover *m, struct sw_slot *slot, struct sw_job *job) {
    const size_t chunk = job->n_dealt;
    if (!sw_job_spills_directly(m, job, sw_frames_chunk_bytes(job->frames, chunk),
                                step_bytes(job, chunk, step_chunks(m, job, chunk))))
        return false;
    sw_slot_take(m, slot, SW_SLOT_STORING, job);
    slot->chunk = chunk;
    slot->frame = next_frame(job);
    deal_next(m, slot, &slot->frame, &slot->stored);
    return true;
}

/* Room for one more chunk. False: there is none, or not where frames come to rest. */
static bool reserve_next(struct sw_mover *m, struct sw_slot *slot) {
    const struct sw_frame_layout frame = next_frame(slot->job);
    struct sw_stored *room = &slot->direct.more[slot->direct.n];
    struct sw_tier *memory = sw_placement_memory(m->place);
    if (sw_placement_goes_out(m->place, frame.frame_bytes) || sw_job_charge(slot->job, frame.frame_bytes, NULL))
        return false;
    if (memory->ops->reserve(memory, frame.frame_bytes, room, NULL)) {
        sw_job_uncharge(slot->job, frame.frame_bytes);
        return false;
    }
    deal_next(m, slot, &frame, room);
    return true;
}

int sw_direct_queue(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    struct sw_job *job = slot->job;
    struct sw_direct *d = &slot->direct;
    const struct sw_cost_direct region = region_of(m, job);
    const unsigned most = slot->is_staged ? 1 : sw_cost_direct_chunks(&region);
    while (d->n < most && job->n_dealt < job->frames->n_chunks && reserve_next(m, slot))
        continue;
    measure(m, slot, SW_MEASURE_DIRECT_OUT);
    sw_link_take(m, slot, SW_LINK_OUT, items_bytes(d));
    return m->device->ops->spill_raw(m->device, sw_slot_index(m, slot), job->mem->mapping, d->items, d->n,
                                     sw_cost_chunks_by_cpu(&region, slot->chunk, d->n), err);
}

int sw_direct_commit(struct sw_slot *slot, struct sw_err *err) {
    struct sw_job *job = slot->job;
    struct sw_direct *d = &slot->direct;
    int rc = 0;
    for (unsigned i = 1; !rc && i < d->n; i++) {
        struct sw_stored *room = &d->more[i];
        rc = room->tier->ops->commit(room->tier, room, err);
        if (rc)
            break;
        job->frames->identities[d->chunks[i]] = sw_frames_identify(job->frames, d->chunks[i], room);
        job->frames->stored[d->chunks[i]] = *room;
        memset(room, 0, sizeof *room);
        job->n_done++;
    }
    return rc;
}

/* ---- back ---- */

/* Chunks from `first` on that lie in host memory as raw frames, at most `most`. */
static unsigned count_raw(const struct sw_job *job, size_t first, unsigned most) {
    const struct sw_frames *frames = job->frames;
    unsigned n = 0;
    while (n < most && first + n < frames->n_chunks && frames->layouts[first + n].codec == SW_CODEC_RAW &&
           !sw_stored_is_away(&frames->stored[first + n]))
        n++;
    return n;
}

bool sw_direct_restores(struct sw_mover *m, struct sw_slot *slot) {
    struct sw_job *job = slot->job;
    const struct sw_frames *frames = job->frames;
    if (frames->layouts[slot->chunk].codec != SW_CODEC_RAW)
        return false;
    /* One that was read from the disk goes alone. */
    const unsigned n = slot->is_staged ? 1 : count_raw(job, slot->chunk, step_chunks(m, job, slot->chunk));
    if (!sw_job_restores_directly(m, job, frames->layouts[slot->chunk].raw_bytes, step_bytes(job, slot->chunk, n)))
        return false;
    for (unsigned i = 0; i < n; i++) {
        const size_t chunk = slot->chunk + i;
        add(slot, chunk, &frames->layouts[chunk], slot->is_staged ? &slot->stored : &frames->stored[chunk]);
    }
    job->n_dealt += n - 1;
    return true;
}

int sw_direct_restore(struct sw_mover *m, struct sw_slot *slot, struct sw_err *err) {
    const struct sw_direct *d = &slot->direct;
    const struct sw_cost_direct region = region_of(m, slot->job);
    int rc = 0;
    for (unsigned i = 0; !rc && !slot->is_staged && i < d->n; i++) /* what was read from the disk was checked then */
        rc = sw_frames_check_memory(slot->job->frames, d->chunks[i], d->items[i].stored, err);
    if (rc)
        return rc;
    measure(m, slot, SW_MEASURE_DIRECT_BACK);
    sw_link_take(m, slot, SW_LINK_BACK, items_bytes(d));
    return m->device->ops->restore_raw(m->device, sw_slot_index(m, slot), slot->job->mem->mapping, d->items, d->n,
                                       sw_cost_chunks_by_cpu(&region, slot->chunk, d->n), err);
}

void sw_direct_fini(struct sw_slot *slot) {
    for (unsigned i = 1; i < slot->direct.n; i++)
        sw_stored_release(&slot->direct.more[i]);
    slot->direct.n = 0;
}
