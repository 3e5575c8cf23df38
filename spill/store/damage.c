#include "spill/store/damage.h"

#include "spill/mover/frames.h"
#include "spill/mover/request.h"

static bool is_of_stored_bytes(int code) {
    return code == -SW_ECHECKSUM || code == -SW_EFRAME || code == -SW_EVERSION || code == -SW_EIO;
}

/* Returns whether the memory has another beginning of the frame than was stored. */
static bool has_changed(const struct sw_frames *frames, size_t i) {
    const struct sw_stored *stored = &frames->stored[i];
    return stored->n_extents > 0 && sw_stored_is_in_memory(stored) && sw_frames_check_memory(frames, i, stored, NULL);
}

/* Returns whether a client may have made the bad frame as it is. */
static bool may_be_clients_doing(const struct sw_frames *frames, const struct sw_run_outcome *outcome) {
    bool are_clients = false, has_one_changed = false;
    for (size_t i = outcome->failed.first, left = outcome->failed.n; left > 0 && i < frames->n_chunks; i++, left--) {
        are_clients |= frames->are_clients[i];
        has_one_changed |= has_changed(frames, i);
    }
    return are_clients && !has_one_changed && outcome->err.code != -SW_EIO;
}

/* Packed frames are not reported: they lie in the client's own memory, which the client may have changed. */
void sw_damage_report(const struct sw_observer *observer, struct sw_region_id id, const struct sw_frames *frames,
                      const struct sw_run_outcome *outcome) {
    if (!observer->bad_frame || !is_of_stored_bytes(outcome->err.code) || outcome->failed.n == 0 || !frames ||
        frames->packed || outcome->failed.first >= frames->n_chunks || may_be_clients_doing(frames, outcome))
        return;
    const struct sw_stored *stored = &frames->stored[outcome->failed.first];
    struct sw_bad_frame bad = {.region = id,
                               .chunk = outcome->failed.first,
                               .n_chunks = outcome->failed.n,
                               .bytes = stored->bytes,
                               .err = &outcome->err};
    if (!stored->tier || !stored->tier->ops->locate)
        return;
    bad.tier = stored->tier->kind->name;
    stored->tier->ops->locate(stored->tier, stored, bad.file, &bad.offset);
    observer->bad_frame(&bad, observer->arg);
}
