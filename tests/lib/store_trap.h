/* store_trap.h - a point before each store to the records of the catalogue that this process has open, for tests that
 * kill it there. x86-64 only: SW_STORE_TRAP is 0 elsewhere. */
#ifndef SW_TEST_STORE_TRAP_H
#define SW_TEST_STORE_TRAP_H

#if defined(__x86_64__)
#define SW_STORE_TRAP 1
#else
#define SW_STORE_TRAP 0
#endif

/* Makes point() be called before each store that counts: stores to the catalogue's header and to the heads of its
 * cells, because a cell's body counts only by its head. Once in a process. */
void sw_store_trap_set(void (*point)(void));

#endif
