/* client_results.h - inside of libspillway: checks and reads RESULTS and DETAILS, which are not trusted. Not installed.
 * thread: any. */
#ifndef SW_IPC_CLIENT_RESULTS_H
#define SW_IPC_CLIENT_RESULTS_H

#include "ipc/client/client.h"
#include <stdbool.h>

/* Reads result i of a RESULTS. Returns false if it names a missing text, or an error without a name. */
bool sw_results_read(const struct sw_msg_results *m, uint32_t i, struct spillway_result *ret);
/* Does the same, and copies equal texts from `before`, which is result i - 1 as it was read. Unused for i = 0. */
bool sw_results_read_next(const struct sw_msg_results *m, uint32_t i, const struct spillway_result *before,
                          struct spillway_result *ret);
/* Gets the error of result i, with the reply's text if it is about this result. */
void sw_client_result_error(struct spillway_error *ret, const struct sw_msg_results *m, uint32_t i);
/* Copies text n - 1 of an array; 0: the empty text. Returns false if it does not exist. */
bool sw_results_text(const struct sw_wire_text *texts, uint32_t n_texts, uint8_t n, char *ret, size_t ret_bytes);

#endif
