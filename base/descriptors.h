/* descriptors.h - the process's descriptor table: its standard streams, and whether a call failed because it is full.
 *
 * A full table is a limit reached (-SW_ELIMIT), not a defect of the client's request. thread: any, no state. */
#ifndef SW_BASE_DESCRIPTORS_H
#define SW_BASE_DESCRIPTORS_H

#include <stdbool.h>

/* Occupies standard streams that are closed. A program calls it first.
 *
 * Otherwise the next file that the program opens would take the free number, and the program would print into it. The
 * placeholder fails as a closed stream does: reading stdin, or writing stdout or stderr, gives EBADF. If no descriptor
 * is available the stream stays closed. */
void sw_descriptors_begin(void);

/* Returns whether an errno value says that the process's or the system's descriptor table is full. */
bool sw_is_out_of_descriptors(int errno_value);

/* Returns whether the descriptor table is full now. For calls that fail without an errno, as the CUDA driver's do. */
bool sw_descriptors_are_used_up(void);

#endif
