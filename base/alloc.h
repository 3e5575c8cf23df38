/* alloc.h - all heap allocation, in one place, so that a test can make the n-th call fail.
 *
 * The whole project allocates through these functions. There are two exceptions: texts of the control socket and of
 * metrics, which are freed with free() like jansson's texts, and third-party libraries. thread: any. */
#ifndef SW_BASE_ALLOC_H
#define SW_BASE_ALLOC_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Allocates zeroed memory; NULL: out of memory. owns: the caller, until sw_free(). */
void *sw_alloc(size_t bytes);
/* Allocates a zeroed array; NULL: out of memory, or count * bytes overflows. */
void *sw_alloc_array(size_t count, size_t bytes);
/* Resizes a block. New bytes are not zeroed. On NULL the old block stays valid. */
void *sw_realloc(void *block, size_t bytes);
/* Frees a block; NULL: a no-op. */
void sw_free(void *block);
/* Test hook: makes the n-th allocation from now (1: the next) return NULL, once; 0 switches it off. */
void sw_alloc_fail_nth(unsigned long n);
/* Counts the blocks that are not freed yet, for leak checks in tests. */
long sw_alloc_live(void);

#ifdef __cplusplus
}
#endif
#endif
