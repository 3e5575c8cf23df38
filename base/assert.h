/* assert.h - SW_ASSERT: for our own mistakes only, and on in release builds.
 * Bytes that come from a client, a disk or a GPU are checked and refused with an error, never asserted. */
#ifndef SW_BASE_ASSERT_H
#define SW_BASE_ASSERT_H

#ifdef __cplusplus
extern "C" {
#endif

/* Prints the condition to stderr and aborts. thread: any. */
__attribute__((noreturn)) void sw_assert_failed(const char *condition, const char *file, int line);

#define SW_ASSERT(condition) ((condition) ? (void)0 : sw_assert_failed(#condition, __FILE__, __LINE__))

#ifdef __cplusplus
}
#endif
#endif
