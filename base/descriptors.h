/* descriptors.h - the process's table of descriptors: what has its first three places, and whether something failed
 * because it is full: for a caller that is a limit reached (-SW_ELIMIT), not a defect of what it asked for. thread:
 * any, no state. */
#ifndef SW_BASE_DESCRIPTORS_H
#define SW_BASE_DESCRIPTORS_H

#include <stdbool.h>

/* The first thing that a program does: where a standard stream is closed, what is opened next would take its place, and
 * get what is printed. So each gets a descriptor that can neither be read nor written, and is told as before that it
 * cannot (EBADF). Where there is none to be had it stays closed. */
void sw_descriptors_begin(void);

/* Whether a failed call's errno says so, of the process's table or of the system's. */
bool sw_is_out_of_descriptors(int errno_value);

/* Whether no descriptor can be had now: for what fails without an errno, as the CUDA driver does. */
bool sw_descriptors_are_used_up(void);

#endif
