/* client.c - keeps durable regions in a machine that loses its power or reboots, and finds them afterwards (reboot.py).
 *
 *   client keep SOCKET DISK FIRST N   spills regions FIRST to FIRST+N-1 and drops every third. Says "kept I" once the
 *                                     service has reported region I durable, "dropping I" and "dropped I" around a drop
 *   client find SOCKET                says "found I" for each region that is there, whole, and "found all" at the end
 *
 * What it says it also writes to a sector of DISK of its own, past the file system: there it has a place in the order
 * of all writes. Whatever does not hold ends it. */
#include "base/assert.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/requests.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_BYTES = 400 << 10, MOST_REGIONS = 1000, SECTOR_BYTES = 512, MARKS_MIB = 192 };
static const char *const events[] = {"kept", "dropping", "dropped"};
enum { N_EVENTS = sizeof events / sizeof events[0] };

static struct spillway *connection;
static struct spillway_error error;
static uint8_t *memory;

static size_t bytes_of(unsigned i) {
    return 1 + i * UINT64_C(77003) % MOST_BYTES;
}

static void fill(uint8_t *to, unsigned i) {
    sw_content_fill(to, bytes_of(i), i % 2 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, i);
}

static void say(int disk, unsigned event, unsigned i) {
    static _Alignas(SECTOR_BYTES) char sector[SECTOR_BYTES];
    (void)snprintf(sector, sizeof sector, "%s %u\n", events[event], i);
    const off_t at = ((off_t)MARKS_MIB << 20) + (off_t)(i * N_EVENTS + event) * SECTOR_BYTES;
    SW_ASSERT(pwrite(disk, sector, sizeof sector, at) == (ssize_t)sizeof sector);
    (void)printf("%s", sector);
    (void)fflush(stdout);
}

static const char *name_of(unsigned i) {
    static char name[16];
    (void)snprintf(name, sizeof name, "%u", i);
    return name;
}

static struct spillway_region spill(unsigned i) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    fill(memory, i);
    const struct spillway_request *request =
        SW_REQUEST(SW_ONE(memory, bytes_of(i)), .name = name_of(i), .durability = SPILLWAY_DURABLE_HOST);
    MUST(spillway_spill(connection, request, 1, &ticket, &error) == 0, &error);
    MUST(spillway_wait(ticket, -1, &result, 1, &error) == 0, &error);
    spillway_ticket_free(ticket);
    SW_ASSERT(result.durability == SPILLWAY_DURABLE_HOST);
    return result.region;
}

static void keep(const char *path, unsigned first, unsigned n) {
    const int disk = open(path, O_WRONLY | O_DIRECT | O_CLOEXEC);
    SW_ASSERT(disk >= 0 && first + n <= MOST_REGIONS);
    for (unsigned i = first; i < first + n; i++) {
        const struct spillway_region region = spill(i);
        say(disk, 0, i);
        if (i % 3 != 1)
            continue;
        say(disk, 1, i);
        MUST(spillway_drop(connection, &region, 1, &error) == 0, &error);
        say(disk, 2, i);
    }
    (void)close(disk);
}

static void find(void) {
    static struct spillway_list_item items[MOST_REGIONS] = {{.size = sizeof items[0]}};
    static uint8_t expected[MOST_BYTES];
    const int n = spillway_list(connection, NULL, items, MOST_REGIONS, &error);
    MUST(n >= 0, &error);
    for (int k = 0; k < n; k++) {
        const unsigned i = (unsigned)strtoul(items[k].name, NULL, 10);
        struct spillway_ticket *ticket = NULL;
        struct spillway_region region;
        MUST(spillway_adopt(connection, items[k].name, &region, &error) == 0, &error);
        memset(memory, 0xEE, MOST_BYTES);
        MUST(spillway_restore(connection, SW_REQUEST(SW_ONE(memory, bytes_of(i)), .region = region), 1, &ticket,
                              &error) == 0,
             &error);
        MUST(spillway_wait(ticket, -1, NULL, 0, &error) == 0, &error);
        spillway_ticket_free(ticket);
        fill(expected, i);
        SW_ASSERT(items[k].raw_bytes == bytes_of(i) && memcmp(memory, expected, bytes_of(i)) == 0);
        (void)printf("found %u\n", i);
    }
    (void)printf("found all\n");
}

int main(int argc, char **argv) {
    const int fd = memfd_create("regions", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(argc > 2 && fd >= 0 && ftruncate(fd, MOST_BYTES) == 0);
    memory = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SW_ASSERT(memory != MAP_FAILED);
    MUST(spillway_open(&connection, SW_OPTIONS(.socket_path = argv[2]), &error) == 0, &error);
    if (argc == 6)
        keep(argv[3], (unsigned)strtoul(argv[4], NULL, 10), (unsigned)strtoul(argv[5], NULL, 10));
    else
        find();
    spillway_close(connection);
    return 0;
}
