/* run.c - a job's beginning and end in the mover, and what may come between. */
#include "spill/mover/mover_state.h"

#include "base/clock.h"
#include "base/log.h"
#include "spill/planner/rules.h"

static void job_fail(struct sw_job *job, const struct sw_err *cause) {
    if (!job->err.code)
        job->err = *cause;
}

void sw_job_check_canceled(struct sw_job *job) {
    if (!job->err.code && atomic_load_explicit(&job->cancel, memory_order_relaxed))
        (void)sw_err_set(&job->err, -SW_ECANCELED, SW_SCOPE_REQUEST, "canceled");
}

int sw_job_charge(struct sw_job *job, uint64_t bytes, struct sw_err *err) {
    const int rc = job->quota ? sw_quota_take(job->quota, bytes, err) : 0;
    if (!rc && job->quota)
        job->charged_bytes += bytes;
    return rc;
}

void sw_job_uncharge(struct sw_job *job, uint64_t bytes) {
    if (!job->quota)
        return;
    sw_quota_give(job->quota, bytes);
    job->charged_bytes -= bytes;
}

void sw_job_set_phase(struct sw_mover *m, struct sw_job *job, enum sw_job_phase phase) {
    atomic_store(&job->phase, (int)phase);
    m->sink.progress(m->sink.arg);
}

void sw_job_unmap(struct sw_mover *m, struct sw_job *job) {
    if (job->mem->mapping) {
        m->device->ops->unmap(m->device, job->mem->mapping);
        job->mem->mapping = NULL;
        m->n_mapped--;
    }
}

int sw_job_map(struct sw_mover *m, struct sw_job *job, struct sw_err *err) {
    if (job->mem->mapping)
        return 0;
    int rc = m->device->ops->map(m->device, &job->mem->desc, &job->mem->mapping, err);
    if (rc)
        return rc;
    m->n_mapped++;
    sw_mem_desc_fini(&job->mem->desc); /* the mapping has what it needs; descriptors are scarce */
    return 0;
}

/* Microseconds of each stage, for whoever looks for the slow one; a stage that was not reached counts 0. */
static void job_log(const struct sw_job *job, uint64_t moved_us, uint64_t end_us) {
    const uint64_t mapped = job->mapped_us ? job->mapped_us : moved_us;
    const uint64_t planned = job->planned_us ? job->planned_us : mapped;
    sw_log(SW_LOG_DEBUG, "job.stages", "kind=%s bytes=%llu map_us=%llu plan_us=%llu move_us=%llu unmap_us=%llu",
           sw_job_kind_name(job->kind), (unsigned long long)job->bytes, (unsigned long long)(mapped - job->started_us),
           (unsigned long long)(planned - mapped), (unsigned long long)(moved_us - planned),
           (unsigned long long)(end_us - moved_us));
}

void sw_job_finish(struct sw_mover *m, struct sw_job *job) {
    const uint64_t moved_us = sw_clock_us();
    sw_list_remove(&job->node);
    sw_turns_remove(&m->turns, &job->turn, moved_us);
    sw_in_place_finish(job);
    if (job->err.code && sw_job_encodes(job->kind)) {
        sw_frames_free(job->frames);
        job->frames = NULL;
    }
    if (job->unmap_after) {
        sw_job_unmap(m, job);
        sw_mem_desc_fini(&job->mem->desc); /* still there if mapping failed */
    }
    if (job->started_us)
        job_log(job, moved_us, sw_clock_us());
    m->sink.finished(job, m->sink.arg);
}

bool sw_job_complete(const struct sw_job *job) {
    return job->stage == SW_STAGE_RUNNING && job->n_done == job->frames->n_chunks;
}

void sw_mover_fail(struct sw_mover *m, struct sw_job *job, const struct sw_err *cause) {
    job_fail(job, cause);
    if (cause->code != -SW_EGPULOST || m->lost.code)
        return;
    m->lost = *cause;
    for (struct sw_list *node = m->jobs.next; node != &m->jobs; node = node->next)
        job_fail(SW_CONTAINER_OF(node, struct sw_job, node), cause);
}

void sw_mover_fail_at(struct sw_mover *m, struct sw_job *job, size_t chunk, size_t n_chunks,
                      const struct sw_err *cause) {
    if (!job->err.code)
        job->failed = (struct sw_job_chunks){.first = chunk, .n = n_chunks};
    sw_mover_fail(m, job, cause);
}

uint64_t sw_job_chunk_bytes(const struct sw_mover *m, const struct sw_job *job) {
    const uint64_t device_bytes = m->device->ops->info(m->device)->chunk_bytes, way_bytes = m->place->chunk_bytes;
    const uint64_t most = job->kind == SW_JOB_SPILL && way_bytes < device_bytes ? way_bytes : device_bytes;
    return sw_rules_chunk_bytes(job->bytes, most, m->n_slots);
}

/* Not so few raw ones as bytes leave that shrink but for some places. */
static bool has_raw_and_others(const struct sw_frames *frames) {
    size_t n_raw = 0;
    for (size_t i = 0; i < frames->n_chunks; i++)
        n_raw += frames->layouts[i].codec == SW_CODEC_RAW;
    return n_raw > frames->n_chunks / 8 && n_raw < frames->n_chunks;
}

/* Frames for a job that makes some, once it is known that their records may be kept. */
static int make_frames(const struct sw_mover *m, struct sw_job *job, struct sw_err *err) {
    const uint64_t chunk_bytes = sw_job_chunk_bytes(m, job);
    const bool packed = job->kind == SW_JOB_PACK;
    const uint64_t kept_bytes = sw_frames_kept_bytes(job->bytes, chunk_bytes, packed);
    const int rc = sw_budget_take(sw_quota_kept(job->quota), kept_bytes, "the records of a region", err);
    if (rc)
        return rc;
    job->kept_bytes = kept_bytes;
    job->frames = sw_frames_new(job->bytes, chunk_bytes, packed);
    if (!job->frames)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a region of %llu bytes",
                          (unsigned long long)job->bytes);
    job->frames->part = job->buffer;
    job->frames->n_begun = 0;
    return 0;
}

static uint64_t longest_chunk(const struct sw_frames *frames) {
    return frames->raw_bytes < frames->chunk_bytes ? frames->raw_bytes : frames->chunk_bytes;
}

int sw_job_start(struct sw_mover *m, struct sw_job *job, struct sw_err *err) {
    uint64_t device_chunk_bytes = m->device->ops->info(m->device)->chunk_bytes;
    const bool was_mapped = job->mem->mapping != NULL;
    job->started_us = sw_clock_us();
    int rc = sw_job_map(m, job, err);
    if (rc)
        return rc;
    job->mapped_us = was_mapped ? job->started_us : sw_clock_us();
    if (sw_job_encodes(job->kind))
        return make_frames(m, job, err);
    if (longest_chunk(job->frames) > device_chunk_bytes)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "region has chunks of up to %llu bytes, this device takes %llu",
                          (unsigned long long)longest_chunk(job->frames), (unsigned long long)device_chunk_bytes);
    if (job->kind == SW_JOB_RESTORE)
        job->is_mixed = has_raw_and_others(job->frames);
    return 0;
}

void sw_job_note_frame(struct sw_job *job, size_t chunk, enum sw_codec_id planned,
                       const struct sw_frame_layout *frame) {
    if (frame->codec != planned && job->frames->n_chunks == 1)
        job->reason = SW_COST_NO_GAIN;
    job->frames->layouts[chunk] = *frame;
    if (chunk >= job->frames->n_begun)
        job->frames->n_begun = chunk + 1;
    job->stored_bytes += frame->frame_bytes;
    job->codec_raw_bytes[frame->codec] += frame->raw_bytes;
    job->n_encoded++;
}
