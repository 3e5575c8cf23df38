/* assert.h - SW_ASSERT catches our own mistakes. It stays on in release builds.
 *
 * Never assert bytes that come from a client, a disk or a GPU: check them, and refuse them with an error. */
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
