#include "tests/lib/served.h"
#include "tests/lib/requests.h"
#include "tests/lib/wire.h"

#include "base/assert.h"
#include <check.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { TURNS = 1000 }; /* of 10 ms */

struct sw_test_daemon sw_served_daemon;

static bool is_running;

void sw_served_start(void) {
    sw_test_daemon_start(&sw_served_daemon, SW_SPILLWAYD_PATH, NULL);
    is_running = true;
}

void sw_served_start_verbose(void) {
    static const char *const options[] = {"log_level=debug", NULL};
    sw_test_daemon_start(&sw_served_daemon, SW_SPILLWAYD_PATH, options);
    is_running = true;
}

void sw_served_stop(void) {
    if (!is_running)
        return;
    is_running = false;
    SW_ASSERT(sw_test_daemon_stop(&sw_served_daemon, SIGTERM) == 0);
    sw_test_daemon_clean(&sw_served_daemon);
}

struct spillway *sw_served_connect(const struct sw_test_daemon *daemon) {
    struct spillway *connection = NULL;
    struct spillway_error error;
    const int rc = spillway_open(&connection, SW_OPTIONS(.socket_path = daemon->socket), &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return connection;
}

uint8_t *sw_served_memory(size_t bytes) {
    const int fd = sw_wire_memfd(NULL, bytes, 0);
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    return memory; /* the descriptor stays open: the library hands it over */
}

struct spillway_status sw_served_status(struct spillway *connection) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_error error;
    const int rc = spillway_status(connection, &status, &error);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return status;
}

void sw_served_ck_empty(struct spillway *connection, uint64_t mapped_memories) {
    const struct timespec a_little = {.tv_nsec = 10000000};
    struct spillway_status status = sw_served_status(connection);
    for (int i = 0; i < TURNS; i++) {
        if (!status.regions && !status.tier_used_bytes && status.mapped_memories == mapped_memories)
            break;
        (void)nanosleep(&a_little, NULL);
        status = sw_served_status(connection);
    }
    ck_assert_uint_eq(status.regions, 0);
    ck_assert_uint_eq(status.tier_used_bytes, 0);
    ck_assert_uint_eq(status.mapped_memories, mapped_memories);
}

void sw_served_close(struct spillway *connection) {
    spillway_close(connection);
    connection = sw_served_connect(&sw_served_daemon);
    sw_served_ck_empty(connection, 0);
    spillway_close(connection);
}
