#include "tests/lib/parked.h"
#include "tests/lib/requests.h"

#include "base/assert.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"

#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct spillway_error error;
static struct sw_err err;

static void buffer_ok(int rc) {
    if (rc < 0)
        (void)fprintf(stderr, "buffer: %s\n", err.msg);
    SW_ASSERT(rc == 0);
}

unsigned sw_parked_usable_kinds(void) {
    int status = 0;
    const pid_t pid = fork();
    SW_ASSERT(pid >= 0);
    if (pid == 0)
        _exit((int)sw_buffer_usable_kinds(NULL));
    SW_ASSERT(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    return (unsigned)WEXITSTATUS(status);
}

static uint8_t *content_new(const struct sw_parked *parked) {
    uint8_t *content = malloc(parked->buffer->bytes + 1);
    SW_ASSERT(content);
    sw_content_fill(content, parked->buffer->bytes, (enum sw_content)(parked->seed % SW_CONTENT_NR), parked->seed);
    return content;
}

void sw_parked_fill(struct sw_parked *parked, uint64_t seed) {
    parked->seed = seed;
    parked->state = SW_PARKED_IN;
    uint8_t *content = content_new(parked);
    buffer_ok(sw_buffer_upload(parked->buffer, 0, content, parked->buffer->bytes, &err));
    free(content);
}

void sw_parked_init(struct sw_parked *ret, enum sw_buffer_kind kind, uint64_t bytes, uint64_t seed) {
    memset(ret, 0, sizeof *ret);
    buffer_ok(sw_buffer_new(&ret->buffer, kind, bytes, &err));
    sw_parked_fill(ret, seed);
}

void sw_parked_fini(struct sw_parked *parked) {
    sw_buffer_free(parked->buffer);
    parked->buffer = NULL;
}

void sw_parked_check(const struct sw_parked *parked) {
    uint8_t *content = content_new(parked), *found = malloc(parked->buffer->bytes + 1);
    SW_ASSERT(found);
    buffer_ok(sw_buffer_download(parked->buffer, 0, found, parked->buffer->bytes, &err));
    SW_ASSERT(memcmp(content, found, parked->buffer->bytes) == 0);
    free(content);
    free(found);
}

/* The memory that the client may use while the frames lie at the front. */
static void use_tail(struct sw_parked *parked, uint64_t kept_bytes) {
    if (sw_buffer_drop_tail(parked->buffer, kept_bytes) > 0)
        return;
    const uint64_t bytes = parked->buffer->bytes - kept_bytes;
    uint8_t *other = malloc(bytes + 1);
    SW_ASSERT(other);
    memset(other, 0xEE, bytes);
    buffer_ok(sw_buffer_upload(parked->buffer, kept_bytes, other, bytes, &err));
    free(other);
}

static int await(struct spillway_ticket *ticket, struct spillway_result *ret) {
    const int rc = spillway_wait(ticket, -1, ret, ret != NULL, &error);
    spillway_ticket_free(ticket);
    MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED || rc == -SPILLWAY_ELOST, &error);
    return rc;
}

int sw_parked_spill(struct spillway *connection, struct sw_parked *parked) {
    const struct sw_buffer *buffer = parked->buffer;
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(buffer->data, buffer->bytes)), 1, &ticket, &error) == 0, &error);
    const int rc = await(ticket, &result);
    if (rc < 0) {
        MUST(rc == -SPILLWAY_ERESTARTED, &error);
        sw_parked_check(parked);
        return rc;
    }
    parked->region = result.region;
    parked->state = SW_PARKED_SPILLED;
    buffer_ok(sw_buffer_fill(parked->buffer, 0xEE, &err));
    return 0;
}

int sw_parked_restore(struct spillway *connection, struct sw_parked *parked, bool keep) {
    const struct sw_buffer *buffer = parked->buffer;
    struct spillway_ticket *ticket;
    MUST(spillway_restore(connection,
                          SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .region = parked->region,
                                     .flags = keep ? SPILLWAY_KEEP : 0),
                          1, &ticket, &error) == 0,
         &error);
    const int rc = await(ticket, NULL);
    if (rc < 0) {
        MUST(rc == -SPILLWAY_ERESTARTED, &error);
        return rc;
    }
    sw_parked_check(parked);
    if (keep)
        buffer_ok(sw_buffer_fill(parked->buffer, 0xEE, &err));
    else
        parked->state = SW_PARKED_IN;
    return 0;
}

int sw_parked_pack(struct spillway *connection, struct sw_parked *parked) {
    const struct sw_buffer *buffer = parked->buffer;
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    MUST(spillway_spill(connection, SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .flags = SPILLWAY_IN_PLACE), 1,
                        &ticket, &error) == 0,
         &error);
    const int rc = await(ticket, &result);
    if (rc == -SPILLWAY_ELOST)
        sw_parked_fill(parked, parked->seed);
    else if (rc < 0)
        sw_parked_check(parked);
    if (rc < 0)
        return rc;
    parked->region = result.region;
    parked->state = SW_PARKED_PACKED;
    use_tail(parked, result.stored_bytes);
    return 0;
}

int sw_parked_unpack(struct spillway *connection, struct sw_parked *parked) {
    const struct sw_buffer *buffer = parked->buffer;
    struct spillway_ticket *ticket;
    buffer_ok(sw_buffer_regain_tail(parked->buffer, &err));
    MUST(spillway_restore(
             connection,
             SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .region = parked->region, .flags = SPILLWAY_IN_PLACE), 1,
             &ticket, &error) == 0,
         &error);
    const int rc = await(ticket, NULL);
    if (rc == -SPILLWAY_ELOST) {
        MUST(spillway_drop(connection, &parked->region, 1, &error) == 0, &error);
        sw_parked_fill(parked, parked->seed);
    } else if (rc == 0) {
        sw_parked_check(parked);
        parked->state = SW_PARKED_IN;
    }
    return rc;
}
