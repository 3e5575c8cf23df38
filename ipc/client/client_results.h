/* client_results.h - inside of libspillway: what RESULTS and DETAILS say, checked as if they came from an enemy. Not
 * installed. thread: any. */
#ifndef SW_IPC_CLIENT_RESULTS_H
#define SW_IPC_CLIENT_RESULTS_H

#include "ipc/client/client.h"
#include <stdbool.h>

/* Result i of a RESULTS. False: it names a text that is not there, or an error that is none. */
bool sw_results_read(const struct sw_msg_results *m, uint32_t i, struct spillway_result *ret);
/* The same, into element i of an array that results 0 to i - 1 have been read into, which mostly saves the texts. */
bool sw_results_read_next(const struct sw_msg_results *m, uint32_t i, struct spillway_result *ret);
/* What result i of a reply says went wrong, with the reply's text if it is about that one. */
void sw_client_result_error(struct spillway_error *ret, const struct sw_msg_results *m, uint32_t i);
/* Copies text n - 1 of an array, 0: the empty one. False: there is none. */
bool sw_results_text(const struct sw_wire_text *texts, uint32_t n_texts, uint8_t n, char *ret, size_t ret_bytes);

#endif
