/* catalogue_v1.h - writes a catalogue as version 0.1 of the program did, for tests of the upgrade from it. */
#ifndef SW_TEST_CATALOGUE_V1_H
#define SW_TEST_CATALOGUE_V1_H

/* A new memory with what the catalogue in `fd` (borrowed) has recorded, in version 1: without identities, and without
 * extents of frames on the disk. */
int sw_catalogue_v1_of(int fd);

#endif
