/* descriptors.h - how many descriptors this process has open, for leak checks, and how many it may have. */
#ifndef SW_TEST_DESCRIPTORS_H
#define SW_TEST_DESCRIPTORS_H

/* Counts the same few of its own in every call, so only differences mean something. Aborts the test if it cannot.
 * thread: any. */
unsigned sw_count_fds(void);

/* Lets the process open n descriptors more (at most 15), until sw_leave_all_fds(). Meanwhile no other thread may open
 * or close any. */
void sw_leave_fds(unsigned n);
void sw_leave_all_fds(void);

#endif
