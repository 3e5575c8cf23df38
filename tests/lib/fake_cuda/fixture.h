/* fixture.h - the engine of engine_fixture.h on the CUDA device, which stands on the fake: linking it is enough.
 *
 * thread: the fixture's. */
#ifndef SW_TEST_FAKE_CUDA_FIXTURE_H
#define SW_TEST_FAKE_CUDA_FIXTURE_H

#include "tests/lib/engine_fixture.h"

/* How memories are handed over from now on: SW_MEM_CUDA_IPC at first. SW_MEM_CUDA_VMM: in parts of one page and of the
 * rest, if there is one; their length must be a multiple of SW_FAKE_PAGE_BYTES. */
extern enum sw_mem_kind sw_fake_kind;

#endif
