#include "spill/tier/remote/remote_window.h"

static uint64_t shorter_us(uint64_t a, uint64_t b) {
    return a == 0 || (b > 0 && b < a) ? b : a;
}

void sw_remote_window_note(struct sw_remote_window *w, uint64_t now_us, uint64_t took_us, uint64_t bytes) {
    if (now_us - w->begun_us >= SW_REMOTE_WINDOW_PERIOD_US) {
        w->least_us[1] = w->least_us[0];
        w->least_us[0] = 0;
        w->begun_us = now_us;
    }
    if (bytes > w->most_bytes)
        w->most_bytes = bytes;
    w->least_us[0] = shorter_us(w->least_us[0], (uint64_t)((double)took_us * (double)w->most_bytes / (double)bytes));
}

uint64_t sw_remote_window_bytes(const struct sw_remote_window *w, uint64_t bytes_per_s) {
    const double least_s = (double)shorter_us(w->least_us[0], w->least_us[1]) / 1e6;
    const double bytes = 2 * (double)bytes_per_s * least_s;
    return bytes > SW_REMOTE_WINDOW_LEAST_BYTES ? (uint64_t)bytes : SW_REMOTE_WINDOW_LEAST_BYTES;
}
