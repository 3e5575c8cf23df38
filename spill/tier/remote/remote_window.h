/* remote_window.h - how many bytes should be on their way to or from an object store at a time.
 *
 * Twice what the store takes, or gives, in the time of the shortest recent transfer. That time has hardly any waiting
 * for other transfers in it. So the window doubles as long as more bytes on their way give a higher rate, and then
 * stops. More bytes would only take more memory, and time, since they do not fit into caches (README.md). If transfers
 * follow each other for minutes, all of them wait for others, and the window grows to what the pool has. Pure. */
#ifndef SW_SPILL_REMOTE_WINDOW_H
#define SW_SPILL_REMOTE_WINDOW_H

#include <stdint.h>

enum { SW_REMOTE_WINDOW_LEAST_BYTES = 64 << 20, SW_REMOTE_WINDOW_PERIOD_US = 60000000 };

/* All zero: nothing is known. */
struct sw_remote_window {
    uint64_t least_us[2]; /* the shortest transfer of this period, and of the one before; 0: there was none */
    uint64_t begun_us;    /* this period */
    uint64_t most_bytes;  /* of a transfer */
};

/* Notes how long a transfer of `bytes` took. Short ones count as if they were as long as the longest one, so that they
 * make the window larger rather than smaller. */
void sw_remote_window_note(struct sw_remote_window *window, uint64_t now_us, uint64_t took_us, uint64_t bytes);
/* Returns the window at a rate; 0: not known. At least SW_REMOTE_WINDOW_LEAST_BYTES. */
uint64_t sw_remote_window_bytes(const struct sw_remote_window *window, uint64_t bytes_per_s);

#endif
