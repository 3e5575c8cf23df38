/* raw_runs.h - raw frames in host memory, made and verified where they lie, by the CPU alone.
 *
 * For bytes that a copy engine brought: it moves the content, this adds or checks what makes a frame of it. A frame may
 * lie in several runs of memory, in frame order, cut anywhere. thread: any. */
#ifndef SW_CODEC_RAW_RUNS_H
#define SW_CODEC_RAW_RUNS_H

#include "codec/frame.h"

struct sw_run {
    uint8_t *memory;
    uint64_t bytes;
};

/* Makes a frame of the content that lies at layout->data_offset: writes header, records and padding. layout: of
 * sw_frame_layout_init() for the raw codec; the runs have layout->frame_bytes. */
void sw_raw_runs_seal(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs);

/* How many tiles are not what was sealed. layout: parsed by sw_frame_parse() from the same frame, of the raw codec. */
uint32_t sw_raw_runs_verify(const struct sw_frame_layout *layout, const struct sw_run *runs, unsigned n_runs);

#endif
