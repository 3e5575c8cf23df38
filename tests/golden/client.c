/* client.c - a client that outlives its version: built once, its binary is kept in this folder, and later services must
 * serve it. Every byte is compared; what does not hold ends it with an error.
 *
 *   client leave SOCKET            spills the regions of the table below, by the protocol alone, and says how to find
 *                                  them. Stays until its input ends
 *   client find SOCKET             reads that, resumes the session, and restores them
 *   client work SOCKET             does all that libspillway does. In between it says "half" and waits for a line: the
 *                                  service may be restarted then
 *
 * README.md says how the binary was made. Nothing is shared with the test that runs it, but these lines of text. */
#include "base/assert.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/numbers.h"
#include "tests/lib/requests.h"
#include "tests/lib/wire.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_BYTES = 65536, MEM = 1, FILLER = 0xdb, N_PIECES = 3, PIECE_BYTES = 3000, N_BUFFERS = 2 };

/* ---- content ---- */

/* A region: text and the like, or numbers of a type. */
static const struct item {
    const char *name; /* durable */
    size_t bytes;
    enum sw_content content;
    enum sw_value_type type; /* 0: content */
    enum sw_numbers numbers;
    bool on_disk;
} items[] = {
    {NULL, 6011, SW_CONTENT_TEXT, 0, 0, false},
    {NULL, 6011, SW_CONTENT_TEXT, 0, 0, true},
    {NULL, 3001, SW_CONTENT_RANDOM, 0, 0, false},
    {NULL, 3001, SW_CONTENT_RANDOM, 0, 0, true},
    {NULL, 1, SW_CONTENT_ONES, 0, 0, false},
    {NULL, 60000, SW_CONTENT_ZEROS, 0, 0, true},
    {NULL, 6000, SW_CONTENT_MIXED, 0, 0, true},
    {NULL, 6000, 0, SW_VALUE_U32, SW_NUMBERS_SORTED, false},
    {NULL, 6000, 0, SW_VALUE_I64, SW_NUMBERS_RUNS, true},
    {NULL, 6000, 0, SW_VALUE_F64, SW_NUMBERS_RARE, false},
    {NULL, 6000, 0, SW_VALUE_F32, SW_NUMBERS_REALS, true},
    {NULL, 6000, 0, SW_VALUE_I32, SW_NUMBERS_FEW, true},
    {NULL, 6000, 0, SW_VALUE_U16, SW_NUMBERS_UNIFORM, false},
    {NULL, 6000, 0, SW_VALUE_U64, SW_NUMBERS_STEPS, true},
    {"a durable region", 6011, SW_CONTENT_HEX, 0, 0, false},
    {"durable/on disk", 6000, 0, SW_VALUE_I32, SW_NUMBERS_UNIFORM, true},
};
enum { N_ITEMS = sizeof items / sizeof items[0] };

static void fill(uint8_t *to, const struct item *item, uint64_t seed) {
    if (item->type)
        sw_numbers_fill(to, 0, item->bytes, item->type, item->numbers, 6, seed);
    else
        sw_content_fill(to, item->bytes, item->content, seed);
}

static const struct item piece = {NULL, PIECE_BYTES, SW_CONTENT_TEXT, 0, 0, false};
static const struct item buffers[N_BUFFERS] = {{NULL, 4000, 0, SW_VALUE_I32, SW_NUMBERS_SORTED, false},
                                               {NULL, 4000, SW_CONTENT_TEXT, 0, 0, false}};
static const struct item packed = {NULL, 6011, SW_CONTENT_TEXT, 0, 0, false};
enum { SEED_OF_PIECES = 100, SEED_OF_BUFFERS = 200, SEED_OF_PACKED = 300 };

/* ---- by the protocol ---- */

static struct sw_wire wire;
static int memory_fd;
static uint8_t *memory; /* MOST_BYTES, handed over as MEM */

static void open_memory(void) {
    memory_fd = sw_wire_memfd(NULL, MOST_BYTES, F_SEAL_SHRINK);
    memory = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, memory_fd, 0);
    SW_ASSERT(memory != MAP_FAILED && sw_wire_mem(&wire, MEM, memory_fd, MOST_BYTES, false) == 0);
}

/* Whether `at` holds what item and seed make; wiped after that. */
static bool holds(uint8_t *at, const struct item *item, uint64_t seed) {
    static uint8_t expected[MOST_BYTES];
    fill(expected, item, seed);
    const bool same = memcmp(at, expected, item->bytes) == 0;
    memset(at, FILLER, item->bytes);
    return same;
}

static void say_region(const struct sw_msg_result *result, bool on_disk) {
    (void)printf("%" PRIu32 " %" PRIu32 " %s %.16s\n", result->slot, result->gen, on_disk ? "disk" : "host",
                 (const char *)result->codec);
}

static void leave_item(const struct item *item, uint64_t seed) {
    struct sw_msg msg = sw_wire_spill_msg(MEM, 0, item->bytes);
    msg.u.spill.value_type = item->type;
    if (item->name) {
        msg.header.type = SW_MSG_SPILL_DURABLE;
        msg.u.spill_durable = (struct sw_msg_spill_durable){.mem = MEM, .bytes = item->bytes, .value_type = item->type};
        sw_msg_set_text(msg.u.spill_durable.name, SW_PROTO_NAME_BYTES, item->name);
    }
    fill(memory, item, seed);
    SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0 && msg.header.type == SW_MSG_RESULT);
    say_region(&msg.u.result, item->on_disk);
}

static void leave_batch(void) {
    struct sw_region_id ids[N_PIECES];
    for (unsigned i = 0; i < N_PIECES; i++)
        fill(memory + (size_t)i * PIECE_BYTES, &piece, SEED_OF_PIECES + i);
    SW_ASSERT(sw_wire_spill_batch(&wire, MEM, N_PIECES, PIECE_BYTES, ids) == 0);
    for (unsigned i = 0; i < N_PIECES; i++)
        (void)printf("%" PRIu32 " %" PRIu32 " %s batch\n", ids[i].slot, ids[i].gen, i ? "disk" : "host");
}

static void leave_buffers(void) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BUFFERS}};
    struct sw_msg_spill_buffers *spill = &msg.u.spill_buffers;
    spill->count = N_BUFFERS;
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        spill->mem[i] = MEM;
        spill->value_type[i] = buffers[i].type;
        spill->offset[i] = i * (uint64_t)MOST_BYTES / N_BUFFERS;
        spill->bytes[i] = buffers[i].bytes;
        fill(memory + spill->offset[i], &buffers[i], SEED_OF_BUFFERS + i);
    }
    SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0 && msg.header.type == SW_MSG_RESULT);
    say_region(&msg.u.result, true);
}

/* Its bytes are this process's, and so are said. */
static void leave_packed(void) {
    struct sw_msg msg = sw_wire_spill_msg(MEM, 0, packed.bytes);
    msg.u.spill.flags = SW_REQ9_IN_PLACE;
    fill(memory, &packed, SEED_OF_PACKED);
    SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0 && msg.header.type == SW_MSG_RESULT);
    (void)printf("%" PRIu32 " %" PRIu32 " packed %" PRIu64 "\n", msg.u.result.slot, msg.u.result.gen,
                 msg.u.result.stored_bytes);
    for (uint64_t i = 0; i < msg.u.result.stored_bytes; i++)
        (void)printf("%02x%s", memory[i], i % 60 == 59 ? "\n" : "");
    (void)printf("\n");
}

static void leave(const char *socket) {
    sw_wire_open(&wire, socket);
    open_memory();
    for (unsigned i = 0; i < sizeof wire.token; i++)
        (void)printf("%02x%s", wire.token[i], i + 1 < sizeof wire.token ? "" : "\n");
    for (unsigned i = 0; i < N_ITEMS; i++)
        leave_item(&items[i], i);
    leave_batch();
    leave_buffers();
    leave_packed();
    (void)printf("seq %" PRIu32 "\n", wire.seq);
    (void)fflush(stdout);
    while (getchar() != EOF)
        ;
}

static struct sw_region_id read_region(void) {
    struct sw_region_id id;
    SW_ASSERT(scanf("%" SCNu32 " %" SCNu32 " %*s %*s", &id.slot, &id.gen) == 2);
    return id;
}

static void read_bytes(uint8_t *to, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        SW_ASSERT(scanf("%2hhx", &to[i]) == 1);
}

static void find_item(const struct item *item, struct sw_region_id id, uint64_t seed) {
    struct sw_msg msg = {.header = {.type = SW_MSG_ADOPT}};
    if (item->name) { /* the name leads to it, too */
        sw_msg_set_text(msg.u.adopt.name, SW_PROTO_NAME_BYTES, item->name);
        SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0 && msg.u.result.slot == id.slot);
    }
    SW_ASSERT(sw_wire_restore(&wire, id, MEM, 0, item->bytes) == 0 && holds(memory, item, seed));
    SW_ASSERT(!item->name || sw_wire_drop(&wire, id) == 0);
}

static void find_batch(const struct sw_region_id ids[N_PIECES]) {
    struct sw_msg msg = sw_wire_restore_batch_msg(MEM, ids, N_PIECES, PIECE_BYTES);
    SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0);
    for (unsigned i = 0; i < N_PIECES; i++)
        SW_ASSERT(holds(memory + (size_t)i * PIECE_BYTES, &piece, SEED_OF_PIECES + i));
}

static void find_buffers(struct sw_region_id id) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BUFFERS}};
    struct sw_msg_restore_buffers *restore = &msg.u.restore_buffers;
    *restore = (struct sw_msg_restore_buffers){.slot = id.slot, .gen = id.gen, .count = N_BUFFERS};
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        restore->mem[i] = MEM;
        restore->offset[i] = i * (uint64_t)MOST_BYTES / N_BUFFERS;
        restore->bytes[i] = buffers[i].bytes;
    }
    SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0);
    for (unsigned i = 0; i < N_BUFFERS; i++)
        SW_ASSERT(holds(memory + i * (size_t)MOST_BYTES / N_BUFFERS, &buffers[i], SEED_OF_BUFFERS + i));
}

static void find_packed(struct sw_region_id id) {
    struct sw_msg msg = sw_wire_restore_msg(id, MEM, 0, packed.bytes);
    msg.u.restore.flags = SW_REQ9_IN_PLACE;
    SW_ASSERT(sw_wire_call(&wire, &msg, NULL, 0) == 0 && holds(memory, &packed, SEED_OF_PACKED));
}

/* The output of `leave` comes first, since it has the last request's number. */
static void find(const char *socket) {
    struct sw_region_id ids[N_ITEMS], pieces[N_PIECES];
    static uint8_t packed_bytes[MOST_BYTES];
    size_t n_packed;
    struct sw_region_id several, packed_id;
    read_bytes(wire.token, sizeof wire.token);
    for (unsigned i = 0; i < N_ITEMS; i++)
        ids[i] = read_region();
    for (unsigned i = 0; i < N_PIECES; i++)
        pieces[i] = read_region();
    several = read_region();
    SW_ASSERT(scanf("%" SCNu32 " %" SCNu32 " packed %zu", &packed_id.slot, &packed_id.gen, &n_packed) == 3 &&
              n_packed <= sizeof packed_bytes);
    read_bytes(packed_bytes, n_packed);
    SW_ASSERT(scanf(" seq %" SCNu32, &wire.seq) == 1);
    SW_ASSERT(sw_wire_resume(&wire, socket));
    open_memory();
    for (unsigned i = 0; i < N_ITEMS; i++)
        find_item(&items[i], ids[i], i);
    find_batch(pieces);
    find_buffers(several);
    memcpy(memory, packed_bytes, n_packed);
    find_packed(packed_id);
    (void)printf("found\n");
}

/* ---- by the library ---- */

static struct spillway *connection;
static struct spillway_error error;
static uint8_t *registered; /* MOST_BYTES each, of memfds */
static uint8_t *unregistered;
static uint8_t *private_memory; /* what the service cannot open */

static uint8_t *new_memory(void) {
    const int fd = sw_wire_memfd(NULL, MOST_BYTES, 0);
    uint8_t *at = mmap(NULL, MOST_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SW_ASSERT(at != MAP_FAILED);
    return at; /* the descriptor stays open, so that the library can find it */
}

static void finish_all(int rc, struct spillway_ticket **ticket, struct spillway_result *ret, uint32_t n) {
    MUST(rc == 0, &error);
    MUST(spillway_wait(*ticket, -1, ret, n, &error) == 0, &error);
    spillway_ticket_free(*ticket);
}

static struct spillway_region finish(int rc, struct spillway_ticket **ticket) {
    struct spillway_result result = {.size = sizeof result};
    finish_all(rc, ticket, &result, 1);
    return result.region;
}

static struct spillway_region spill_item(const struct item *item, uint8_t *at, uint64_t seed) {
    struct spillway_ticket *ticket;
    fill(at, item, seed);
    if (item->type)
        return finish(spillway_spill(connection,
                                     SW_REQUEST(SW_ONE_TYPED(at, item->bytes, (enum spillway_value_type)item->type)), 1,
                                     &ticket, &error),
                      &ticket);
    return finish(spillway_spill(connection, SW_REQUEST(SW_ONE(at, item->bytes)), 1, &ticket, &error), &ticket);
}

static void restore_item(const struct item *item, uint8_t *at, uint64_t seed, struct spillway_region region,
                         unsigned flags) {
    struct spillway_ticket *ticket;
    memset(at, FILLER, item->bytes);
    (void)finish(spillway_restore(connection, SW_REQUEST(SW_ONE(at, item->bytes), .region = region, .flags = flags), 1,
                                  &ticket, &error),
                 &ticket);
    SW_ASSERT(holds(at, item, seed));
}

static struct spillway_region spill_durable(void) {
    const struct item *item = &items[N_ITEMS - 1];
    struct spillway_ticket *ticket;
    fill(registered, item, 1);
    return finish(
        spillway_spill(connection, SW_REQUEST(SW_ONE(registered, item->bytes), .name = "a name"), 1, &ticket, &error),
        &ticket);
}

static void find_durable(struct spillway_region region) {
    struct spillway_region found;
    MUST(spillway_adopt(connection, "a name", &found, &error) == 0, &error);
    SW_ASSERT(found.slot == region.slot && found.generation == region.generation);
    restore_item(&items[N_ITEMS - 1], registered, 1, found, 0);
    MUST(spillway_drop(connection, &found, 1, &error) == 0, &error);
    SW_ASSERT(spillway_adopt(connection, "a name", &found, &error) == -SPILLWAY_ENOENT);
}

static void spill_pieces(struct spillway_region ret[N_PIECES]) {
    struct spillway_buffer pieces[N_PIECES];
    struct spillway_request requests[N_PIECES] = {0};
    struct spillway_result results[N_PIECES] = {{.size = sizeof *results}};
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < N_PIECES; i++) {
        pieces[i] = (struct spillway_buffer){.data = registered + (size_t)i * PIECE_BYTES, .bytes = PIECE_BYTES};
        fill(pieces[i].data, &piece, SEED_OF_PIECES + i);
    }
    sw_requests_of_each(requests, pieces, N_PIECES);
    finish_all(spillway_spill(connection, requests, N_PIECES, &ticket, &error), &ticket, results, N_PIECES);
    for (unsigned i = 0; i < N_PIECES; i++)
        ret[i] = results[i].region;
}

static void restore_pieces(const struct spillway_region regions[N_PIECES]) {
    struct spillway_buffer pieces[N_PIECES];
    struct spillway_request requests[N_PIECES] = {0};
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < N_PIECES; i++) {
        pieces[i] = (struct spillway_buffer){.data = registered + (size_t)i * PIECE_BYTES, .bytes = PIECE_BYTES};
        requests[i].region = regions[i];
    }
    sw_requests_of_each(requests, pieces, N_PIECES);
    finish_all(spillway_restore(connection, requests, N_PIECES, &ticket, &error), &ticket, NULL, 0);
    for (unsigned i = 0; i < N_PIECES; i++)
        SW_ASSERT(holds(pieces[i].data, &piece, SEED_OF_PIECES + i));
}

static struct spillway_region spill_several(struct spillway_buffer several[N_BUFFERS]) {
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        several[i] = (struct spillway_buffer){
            .data = i ? registered : unregistered, .bytes = buffers[i].bytes, .type = (uint16_t)buffers[i].type};
        fill(several[i].data, &buffers[i], SEED_OF_BUFFERS + i);
    }
    return finish(spillway_spill(connection, SW_REQUEST(SW_SEVERAL(several, N_BUFFERS)), 1, &ticket, &error), &ticket);
}

static void restore_several(struct spillway_buffer several[N_BUFFERS], struct spillway_region region) {
    struct spillway_ticket *ticket;
    (void)finish(
        spillway_restore(connection, SW_REQUEST(SW_SEVERAL(several, N_BUFFERS), .region = region), 1, &ticket, &error),
        &ticket);
    for (unsigned i = 0; i < N_BUFFERS; i++)
        SW_ASSERT(holds(several[i].data, &buffers[i], SEED_OF_BUFFERS + i));
}

/* Makes the calls that need an answer and move no bytes. */
static void ask(struct spillway_region region, const struct item *item, struct spillway_region several) {
    struct spillway_region_info info = {.size = sizeof info};
    struct spillway_buffer_info of_buffers[SPILLWAY_MAX_BUFFERS];
    struct spillway_status status = {.size = sizeof status};
    uint32_t n;
    MUST(spillway_query(connection, region, &info, &error) == 0, &error);
    SW_ASSERT(info.raw_bytes == item->bytes && strcmp(info.state, "out") == 0);
    MUST(spillway_query_buffers(connection, several, of_buffers, &n, &error) == 0, &error);
    SW_ASSERT(n == N_BUFFERS && of_buffers[0].raw_bytes == buffers[0].bytes);
    MUST(spillway_advise(connection, region, SPILLWAY_ADVICE_PRIORITY, 7, &error) == 0, &error);
    MUST(spillway_status(connection, &status, &error) == 0, &error);
    SW_ASSERT(status.sessions == 1 && status.n_reasons > 0);
}

static struct spillway_region pack(void) {
    struct spillway_ticket *ticket;
    struct spillway_packed_chunk chunk;
    uint32_t n;
    fill(unregistered, &packed, SEED_OF_PACKED);
    const struct spillway_region region =
        finish(spillway_spill(connection, SW_REQUEST(SW_ONE(unregistered, packed.bytes), .flags = SPILLWAY_IN_PLACE), 1,
                              &ticket, &error),
               &ticket);
    MUST(spillway_query_packed(connection, region, &chunk, 1, &n, &error) == 0, &error);
    SW_ASSERT(n == 1 && chunk.raw_bytes == packed.bytes);
    return region;
}

static void unpack(struct spillway_region region) {
    struct spillway_ticket *ticket;
    (void)finish(
        spillway_restore(connection,
                         SW_REQUEST(SW_ONE(unregistered, packed.bytes), .region = region, .flags = SPILLWAY_IN_PLACE),
                         1, &ticket, &error),
        &ticket);
    SW_ASSERT(holds(unregistered, &packed, SEED_OF_PACKED));
}

static void wait_half_way(void) {
    (void)printf("half\n");
    (void)fflush(stdout);
    SW_ASSERT(getchar() != EOF);
}

static void work(const char *socket) {
    struct spillway_region regions[N_ITEMS];
    struct spillway_region pieces[N_PIECES];
    struct spillway_buffer several[N_BUFFERS];
    MUST(spillway_open(&connection, SW_OPTIONS(.socket_path = socket), &error) == 0, &error);
    registered = new_memory();
    unregistered = new_memory();
    private_memory = malloc(MOST_BYTES);
    SW_ASSERT(private_memory);
    MUST(spillway_register(connection, registered, MOST_BYTES, &error) == 0, &error);
    uint8_t *const places[] = {registered, unregistered, private_memory};
    for (unsigned i = 0; i < N_ITEMS; i++) {
        regions[i] = spill_item(&items[i], places[i % 3], i);
        restore_item(&items[i], places[(i + 1) % 3], i, regions[i], SPILLWAY_KEEP);
    }
    const struct spillway_region durable = spill_durable();
    spill_pieces(pieces);
    const struct spillway_region of_several = spill_several(several);
    ask(regions[0], &items[0], of_several);
    const struct spillway_region packed_region = pack();
    wait_half_way();
    unpack(packed_region);
    for (unsigned i = 0; i < N_ITEMS; i++)
        restore_item(&items[i], places[i % 3], i, regions[i], 0);
    restore_pieces(pieces);
    restore_several(several, of_several);
    find_durable(durable);
    MUST(spillway_unregister(connection, registered, &error) == 0, &error);
    spillway_close(connection);
    free(private_memory);
    (void)printf("done\n");
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(const char *socket);
    } modes[] = {{"leave", leave}, {"find", find}, {"work", work}};
    for (unsigned i = 0; argc == 3 && i < sizeof modes / sizeof modes[0]; i++)
        if (strcmp(argv[1], modes[i].name) == 0) {
            modes[i].run(argv[2]);
            return 0;
        }
    (void)fprintf(stderr, "usage: client leave|find|work SOCKET\n");
    return 2;
}
