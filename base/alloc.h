/* alloc.h - the one door to the heap, so that a test can make the n-th call fail.
 *
 * Everything in the project that allocates goes through here, but for texts of the control socket
 * and of metrics, which are freed as those of jansson are; third-party libraries keep their own. thread: any. */
#ifndef SW_BASE_ALLOC_H
#define SW_BASE_ALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed memory, or NULL. owns: the caller, until sw_free(). */
void *sw_alloc(size_t bytes);
/* Zeroed array; NULL also when count * bytes overflows. */
void *sw_alloc_array(size_t count, size_t bytes);
/* Grows or shrinks; new bytes are not zeroed; the old block stays valid on NULL. */
void *sw_realloc(void *block, size_t bytes);
/* NULL is a no-op. */
void sw_free(void *block);
/* Test hook: the n-th allocation from now (1 = the next) returns NULL, once; 0 switches it off. */
void sw_alloc_fail_nth(unsigned long n);
/* Allocations not yet freed, for leak checks in tests. */
long sw_alloc_live(void);

#ifdef __cplusplus
}
#endif
#endif
