#include "daemon/check_tier.h"

#include "daemon/descriptors.h"
#include "spill/tier_check.h"

#include <inttypes.h>
#include <string.h>

static void print_bad(const struct sw_checked_frame *frame, void *arg) {
    (void)fprintf(arg,
                  "bad frame   region %" PRIu32 ":%" PRIu32 ", chunk %" PRIu64 ", %s at byte %" PRIu64 ", %" PRIu64
                  " bytes: %s: %s%s\n",
                  frame->slot, frame->gen, frame->chunk, frame->file, frame->offset, frame->bytes,
                  sw_err_name(frame->err.code), frame->err.msg,
                  frame->doubtful ? " (perhaps released: records are missing)" : "");
}

static void print_places(const struct sw_tier_check *check, FILE *out) {
    for (size_t i = 0; i < check->n_places && i < SW_MANIFEST_MAX_PLACES; i++)
        (void)fprintf(out, "damage      manifest at byte %" PRIu64 ", %" PRIu64 " bytes: %s\n", check->places[i].at,
                      check->places[i].bytes, check->places[i].what);
    if (check->n_places > SW_MANIFEST_MAX_PLACES)
        (void)fprintf(out, "damage      %zu places more\n", check->n_places - SW_MANIFEST_MAX_PLACES);
}

static void print_summary(const struct sw_tier_check *check, FILE *out) {
    (void)fprintf(
        out, "manifest    %" PRIu64 " bytes, %zu damaged places, %" PRIu64 " bytes of a record not written in full\n",
        check->manifest_bytes, check->n_places, check->tail_bytes);
    (void)fprintf(out,
                  "frames      %" PRIu64 ", %" PRIu64 " bytes; %" PRIu64
                  " perhaps released, since records are missing; %" PRIu64 " overwritten and left out\n",
                  check->n_frames, check->frame_bytes, check->n_doubtful, check->n_dropped);
    (void)fprintf(out, "read        %" PRIu64 ", of these bad: %" PRIu64 "%s%s\n", check->n_read, check->n_bad,
                  check->is_encrypted ? "; encrypted ones cannot be read without the service's key" : "",
                  check->in_use ? "; a service uses the folder, so that frames come and go" : "");
    (void)fprintf(out, "result      %s\n", sw_tier_check_is_good(check) ? "nothing is damaged" : "damaged");
}

int sw_check_tier(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err) {
    struct sw_tier_check check;
    const uint64_t bytes = config->nvme_tier_bytes;
    if (strcmp(config->nvme_tier_directory, "none") == 0)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "nvme_tier_directory is none: name the folder to check");
    const int rc = sw_tier_check(&check, config->nvme_tier_directory,
                                 bytes < SW_NVME_FILE_BYTES ? bytes : SW_NVME_FILE_BYTES, print_bad, out, err);
    if (rc < 0) {
        sw_err_context(err, "nvme_tier_directory %.60s", config->nvme_tier_directory);
        return rc;
    }
    print_places(&check, out);
    print_summary(&check, out);
    *ret_good = sw_tier_check_is_good(&check);
    return 0;
}
