/* descriptors.h - how many descriptors this process has open, for leak checks. thread: any. */
#ifndef SW_TEST_DESCRIPTORS_H
#define SW_TEST_DESCRIPTORS_H

/* Counts the same few of its own in every call, so only differences mean something. Aborts the test if it cannot. */
unsigned sw_count_fds(void);

#endif
