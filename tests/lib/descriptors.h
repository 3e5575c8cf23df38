/* descriptors.h - how many descriptors this process has open, for leak checks, and how many it may have. */
#ifndef SW_TEST_DESCRIPTORS_H
#define SW_TEST_DESCRIPTORS_H

/* Counts the same few of its own in every call, so only differences mean something. Aborts the test if it cannot.
 * thread: any. */
unsigned sw_count_fds(void);

/* From now on the process can open n descriptors more (at most 15), until sw_leave_all_fds(). thread: one that knows
 * that no other opens or closes any meanwhile. */
void sw_leave_fds(unsigned n);
void sw_leave_all_fds(void);

#endif
