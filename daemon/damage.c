#include "daemon/damage.h"

#include "base/log.h"
#include <inttypes.h>

/* A missing disk may cost thousands of regions: only the first are logged, and `service.recovered` has the count. */
enum { MAX_LOST_LINES = 200 };

static void on_bad_frame(const struct sw_bad_frame *bad, void *arg) {
    char text[300];
    (void)arg;
    sw_log(SW_LOG_ERROR, "frame.bad",
           "tier=%s file=%s offset=%" PRIu64 " bytes=%" PRIu64 " region=%" PRIu32 ":%" PRIu32
           " chunk=%zu chunks=%zu name=%s text=%s",
           bad->tier, bad->file, bad->offset, bad->bytes, bad->region.slot, bad->region.gen, bad->chunk, bad->n_chunks,
           sw_err_name(bad->err->code), sw_log_quote(text, sizeof text, bad->err->msg));
}

static void on_lost_region(const struct sw_lost_region *lost, void *arg) {
    struct sw_service *service = arg;
    char name[300];
    if (service->n_lost_lines >= MAX_LOST_LINES)
        return;
    sw_log(SW_LOG_ERROR, "region.lost",
           "region=%" PRIu32 ":%" PRIu32 " uid=%" PRIu32 " name=%s bytes=%" PRIu64
           " chunks=%zu not_in_memory=%zu not_on_disk=%zu%s",
           lost->region.slot, lost->region.gen, lost->uid,
           sw_log_quote(name, sizeof name, lost->name ? lost->name : ""), lost->raw_bytes, lost->n_chunks, lost->n_gone,
           lost->n_away,
           ++service->n_lost_lines == MAX_LOST_LINES ? " then=\"further lost regions are not named\"" : "");
}

struct sw_observer sw_damage_observer(struct sw_service *service) {
    return (struct sw_observer){.bad_frame = on_bad_frame, .lost_region = on_lost_region, .arg = service};
}
