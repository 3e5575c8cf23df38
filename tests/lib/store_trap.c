/* store_trap.c - the right to write is taken from the catalogue's mapping: each store faults, is reported, and then
 * done alone, by the processor's trap flag. */
#include "tests/lib/store_trap.h"

#if SW_STORE_TRAP
#include "base/assert.h"

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

enum { CELL_BYTES = 256, CELL_HEAD_BYTES = 32, TRAP_FLAG = 0x100 };

static void (*on_point)(void);
static char *records; /* the catalogue's mapping */
static size_t records_bytes;

static bool is_record(const char *at) {
    return records && at >= records && at < records + records_bytes;
}

static void on_store(int number, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    const char *at = info->si_addr;
    if (!is_record(at)) {
        (void)signal(number, SIG_DFL);
        return;
    }
    const size_t offset = (size_t)(at - records);
    if (offset < CELL_BYTES || offset % CELL_BYTES < CELL_HEAD_BYTES)
        on_point();
    (void)mprotect(records, records_bytes, PROT_READ | PROT_WRITE);
    u->uc_mcontext.gregs[REG_EFL] |= TRAP_FLAG;
}

static void on_stored(int number, siginfo_t *info, void *context) {
    ucontext_t *u = context;
    (void)number;
    (void)info;
    u->uc_mcontext.gregs[REG_EFL] &= ~TRAP_FLAG;
    (void)mprotect(records, records_bytes, PROT_READ);
}

void sw_store_trap_set(void (*point)(void)) {
    struct sigaction action = {.sa_flags = SA_SIGINFO};
    char line[300];
    FILE *maps = fopen("/proc/self/maps", "re");
    on_point = point;
    while (maps && !records && fgets(line, sizeof line, maps)) {
        unsigned long from, to;
        if (strstr(line, "spillway-catalogue") && sscanf(line, "%lx-%lx", &from, &to) == 2) {
            records = (char *)from; // NOLINT: the kernel says so
            records_bytes = to - from;
        }
    }
    SW_ASSERT(records && fclose(maps) == 0);
    action.sa_sigaction = on_store;
    SW_ASSERT(sigaction(SIGSEGV, &action, NULL) == 0);
    action.sa_sigaction = on_stored;
    SW_ASSERT(sigaction(SIGTRAP, &action, NULL) == 0);
    SW_ASSERT(mprotect(records, records_bytes, PROT_READ) == 0);
}
#endif
