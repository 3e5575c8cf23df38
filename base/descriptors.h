/* descriptors.h - whether something failed because there are no descriptors left: for a caller that is a limit reached
 * (-SW_ELIMIT), not a defect of what it asked for. thread: any, no state. */
#ifndef SW_BASE_DESCRIPTORS_H
#define SW_BASE_DESCRIPTORS_H

#include <stdbool.h>

/* Whether a failed call's errno says so, of the process's table or of the system's. */
bool sw_is_out_of_descriptors(int errno_value);

/* Whether no descriptor can be had now: for what fails without an errno, as the CUDA driver does. */
bool sw_descriptors_are_used_up(void);

#endif
