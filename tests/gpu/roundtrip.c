/* roundtrip.c - GPU memory of every kind through a real spillwayd: the same bytes come back, nothing is left behind.
 *
 * The daemon is a child that is started before this process touches CUDA; the tests run in one process (no fork). The
 * first argument is the path of spillwayd; without it the build's spillwayd runs. */
#include "ipc/spillway.h"
#include "tests/lib/buffer.h"
#include "tests/lib/content.h"
#include "tests/lib/lineitem.h"
#include "tests/lib/requests.h"
#include "tests/lib/served_gpu.h"
#include "tests/lib/wire.h"

#include <check.h>
#include <cuda_runtime.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static struct sw_test_daemon daemon_process;
static struct spillway *connection;
static struct spillway_error error;
static struct sw_err err;

static void cuda_ok(cudaError_t e, const char *call) {
    ck_assert_msg(e == cudaSuccess, "%s: %s", call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static uint8_t *content_new(size_t bytes, uint64_t seed) {
    uint8_t *content = malloc(bytes + 1);
    ck_assert_ptr_nonnull(content);
    sw_content_fill(content, bytes, SW_CONTENT_MIXED, seed);
    return content;
}

static struct sw_buffer *buffer_new(enum sw_buffer_kind kind, uint64_t bytes, const uint8_t *content) {
    struct sw_buffer *buffer = NULL;
    ck_assert_msg(sw_buffer_new(&buffer, kind, bytes, &err) == 0, "%s: %s", sw_buffer_kind_name(kind), err.msg);
    if (content)
        ck_assert_int_eq(sw_buffer_upload(buffer, 0, content, bytes, &err), 0);
    else
        ck_assert_int_eq(sw_buffer_fill(buffer, 0xEE, &err), 0);
    return buffer;
}

static void ck_content(const struct sw_buffer *buffer, const uint8_t *content) {
    uint8_t *got = malloc(buffer->bytes + 1);
    ck_assert_ptr_nonnull(got);
    ck_assert_int_eq(sw_buffer_download(buffer, 0, got, buffer->bytes, &err), 0);
    ck_assert_msg(memcmp(got, content, buffer->bytes) == 0, "%s: bytes differ", sw_buffer_kind_name(buffer->kind));
    free(got);
}

static struct spillway_region spill(const struct sw_buffer *buffer, struct CUstream_st *stream) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .stream = stream), 1, &ticket,
                      &error));
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    ck_assert_uint_eq(result.raw_bytes, buffer->bytes);
    return result.region;
}

static void restore(struct spillway_region region, struct sw_buffer *buffer, unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(connection, SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .region = region, .flags = flags),
                        1, &ticket, &error));
    ok(spillway_wait(ticket, -1, NULL, 0, &error));
    spillway_ticket_free(ticket);
}

static void round_trip(enum sw_buffer_kind from, enum sw_buffer_kind to, uint64_t bytes) {
    uint8_t *content = content_new(bytes, bytes + 1);
    struct sw_buffer *buffer = buffer_new(from, bytes, content);
    const struct spillway_region region = spill(buffer, NULL);
    ck_content(buffer, content); /* untouched */
    sw_buffer_free(buffer);
    buffer = buffer_new(to, bytes, NULL);
    restore(region, buffer, 0);
    ck_content(buffer, content);
    sw_buffer_free(buffer);
    free(content);
}

/* SW_TEST_SMALL=1, for runs under compute-sanitizer: few and small regions. */
static bool is_small;

static uint64_t scaled(uint64_t bytes) {
    return is_small && bytes > 33001 ? 33001 : bytes;
}

static struct spillway_status get_status(void) {
    struct spillway_status status = {.size = sizeof status};
    ok(spillway_status(connection, &status, &error));
    return status;
}

static bool codec_is_clients(void) {
    const char *codec = getenv("SPILLWAY_CODEC");
    return codec && strcmp(codec, "client") == 0;
}

/* Returns how many of the client's memories the service maps while nothing is under way: with the client's codec its
 * frame buffers and staging arenas, with the service's codec none. */
static uint64_t idle_memories(void) {
    const uint64_t n = get_status().mapped_memories;
    ck_assert(codec_is_clients() || n == 0);
    return n;
}

static const uint64_t sizes[] = {33001, 0, 1, 7, 4095, 32768, 100001, 5000003, 40000001};

START_TEST(every_kind_and_size) {
    for (size_t i = 0; i < (is_small ? 2 : sizeof sizes / sizeof sizes[0]); i++)
        round_trip((enum sw_buffer_kind)_i, (enum sw_buffer_kind)_i, sizes[i]);
}
END_TEST

START_TEST(from_any_kind_to_any_gpu_kind) {
    for (int from = SW_BUFFER_CUDA_MALLOC; from < SW_BUFFER_KIND_NR; from++)
        for (int to = is_small ? from : SW_BUFFER_CUDA_MALLOC; to < SW_BUFFER_KIND_NR; to++)
            round_trip((enum sw_buffer_kind)from, (enum sw_buffer_kind)to, scaled(1000003));
}
END_TEST

/* Frames made on the GPU are restored to host memory and the other way round. */
START_TEST(between_gpu_and_host) {
    round_trip(SW_BUFFER_CUDA_MALLOC, SW_BUFFER_MEMFD, scaled(3000001));
    round_trip(SW_BUFFER_MEMFD, SW_BUFFER_CUDA_MALLOC, scaled(3000001));
}
END_TEST

START_TEST(kept_and_dropped) {
    const uint64_t bytes = scaled(2000001);
    uint8_t *content = content_new(bytes, 5);
    struct sw_buffer *buffer = buffer_new(SW_BUFFER_CUDA_MALLOC, bytes, content);
    const struct spillway_region region = spill(buffer, NULL);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_buffer_fill(buffer, 0, &err), 0);
        restore(region, buffer, SPILLWAY_KEEP);
        ck_content(buffer, content);
    }
    ok(spillway_drop(connection, &region, 1, &error));
    ck_assert_int_eq(spillway_drop(connection, &region, 1, &error), -SPILLWAY_ESTALE);
    sw_buffer_free(buffer);
    free(content);
}
END_TEST

START_TEST(many_in_flight) {
    enum { MOST = 24 };
    const int n = is_small ? 4 : MOST;
    const uint64_t bytes = scaled(700001);
    uint8_t *content[MOST];
    struct sw_buffer *buffers[MOST];
    struct spillway_ticket *tickets[MOST];
    struct spillway_result results[MOST];
    for (int i = 0; i < n; i++) {
        content[i] = content_new(bytes, (uint64_t)i);
        buffers[i] = buffer_new((enum sw_buffer_kind)(SW_BUFFER_CUDA_MALLOC + i % 4), bytes, content[i]);
        ok(spillway_spill(connection, SW_REQUEST(SW_ONE(buffers[i]->data, bytes)), 1, &tickets[i], &error));
    }
    for (int i = n - 1; i >= 0; i--) {
        results[i].size = sizeof results[i];
        ok(spillway_wait(tickets[i], -1, &results[i], 1, &error));
        spillway_ticket_free(tickets[i]);
        ck_assert_int_eq(sw_buffer_fill(buffers[i], 0xEE, &err), 0);
    }
    for (int i = 0; i < n; i++)
        ok(spillway_restore(connection, SW_REQUEST(SW_ONE(buffers[i]->data, bytes), .region = results[i].region), 1,
                            &tickets[i], &error));
    for (int i = 0; i < n; i++) {
        ok(spillway_wait(tickets[i], -1, NULL, 0, &error));
        spillway_ticket_free(tickets[i]);
        ck_content(buffers[i], content[i]);
        sw_buffer_free(buffers[i]);
        free(content[i]);
    }
}
END_TEST

/* All columns of a table as one region, each in memory of that kind, filled by work that is still queued; their frames
 * are restored to the host, too. */
START_TEST(tables_of_every_kind) {
    enum { N = SW_LINEITEM_BUFFERS };
    struct sw_lineitem *table = sw_lineitem_new(is_small ? 0.001 : 0.02, 1);
    struct sw_buffer *memory[N];
    struct spillway_buffer buffers[N];
    struct spillway_buffer_info info[SPILLWAY_MAX_BUFFERS];
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    cudaStream_t stream;
    uint32_t n;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    ck_assert_ptr_nonnull(table);
    for (int i = 0; i < N; i++) {
        memory[i] = buffer_new((enum sw_buffer_kind)_i, table->buffers[i].bytes, NULL);
        if (_i == SW_BUFFER_MEMFD)
            memcpy(memory[i]->data, table->buffers[i].data, table->buffers[i].bytes);
        else
            CUDA(cudaMemcpyAsync(memory[i]->data, table->buffers[i].data, table->buffers[i].bytes,
                                 cudaMemcpyHostToDevice, stream));
        buffers[i] = (struct spillway_buffer){
            .data = memory[i]->data, .bytes = table->buffers[i].bytes, .type = (uint16_t)table->buffers[i].type};
    }
    ok(spillway_spill(connection, SW_REQUEST(SW_SEVERAL(buffers, N), .stream = stream), 1, &ticket, &error));
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    ok(spillway_query_buffers(connection, result.region, info, &n, &error));
    ck_assert_uint_eq(n, N);
    for (int i = 0; i < N; i++)
        ck_assert_uint_eq(info[i].raw_bytes, table->buffers[i].bytes);
    for (int to_host = 1; to_host >= 0; to_host--) { /* the second restore uses it up */
        for (int i = 0; i < N; i++) {
            sw_buffer_free(memory[i]);
            memory[i] = buffer_new(to_host ? SW_BUFFER_MEMFD : (enum sw_buffer_kind)_i, buffers[i].bytes, NULL);
            buffers[i].data = memory[i]->data;
        }
        ok(spillway_restore(connection,
                            SW_REQUEST(SW_SEVERAL(buffers, N), .region = result.region, .stream = stream,
                                       .flags = to_host ? SPILLWAY_KEEP : 0),
                            1, &ticket, &error));
        ok(spillway_wait(ticket, -1, NULL, 0, &error));
        spillway_ticket_free(ticket);
        for (int i = 0; i < N; i++)
            ck_content(memory[i], table->buffers[i].data);
    }
    for (int i = 0; i < N; i++)
        sw_buffer_free(memory[i]);
    CUDA(cudaStreamDestroy(stream));
    sw_lineitem_free(table);
}
END_TEST

/* Pieces of one registered block, each by an operation of its own. */
START_TEST(registered_block) {
    enum { N = 8 };
    const uint64_t each = scaled(300007);
    const uint64_t idle = idle_memories();
    struct spillway_region regions[N];
    uint8_t *content = content_new(N * each, 21);
    struct sw_buffer *block = buffer_new(SW_BUFFER_CUDA_MALLOC, N * each, content);
    ok(spillway_register(connection, block->data, block->bytes, &error));
    for (uint64_t i = 0; i < N; i++) {
        const struct sw_buffer piece = {block->kind, (uint8_t *)block->data + i * each, each};
        regions[i] = spill(&piece, NULL);
    }
    /* The client's codec works on the memory itself. */
    ck_assert_uint_eq(get_status().mapped_memories, idle + !codec_is_clients());
    ck_assert_int_eq(sw_buffer_fill(block, 0, &err), 0);
    for (uint64_t i = 0; i < N; i++) {
        struct sw_buffer piece = {block->kind, (uint8_t *)block->data + i * each, each};
        restore(regions[i], &piece, 0);
    }
    ok(spillway_unregister(connection, block->data, &error));
    ck_assert_uint_eq(get_status().mapped_memories, idle);
    ck_content(block, content);
    sw_buffer_free(block);
    free(content);
}
END_TEST

static struct spillway_result packed(const struct sw_buffer *buffer) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .flags = SPILLWAY_IN_PLACE), 1,
                      &ticket, &error));
    ok(spillway_wait(ticket, -1, &result, 1, &error));
    spillway_ticket_free(ticket);
    ck_assert_str_eq(result.tier, "device");
    if (buffer->kind >= SW_BUFFER_CUDA_MALLOC)
        ck_assert_str_eq(result.coder, codec_is_clients() ? "client" : "daemon");
    ck_assert_uint_le(result.stored_bytes, buffer->bytes);
    return result;
}

static void unpacked(struct spillway_region region, struct sw_buffer *buffer) {
    struct spillway_ticket *ticket = NULL;
    ok(spillway_restore(connection,
                        SW_REQUEST(SW_ONE(buffer->data, buffer->bytes), .region = region, .flags = SPILLWAY_IN_PLACE),
                        1, &ticket, &error));
    ok(spillway_wait(ticket, -1, NULL, 0, &error));
    spillway_ticket_free(ticket);
}

/* Memory behind the packed bytes is overwritten, or (VMM) given back to the driver and allocated again. */
START_TEST(packed_in_place) {
    static const enum sw_content contents[] = {SW_CONTENT_TEXT, SW_CONTENT_MIXED, SW_CONTENT_RANDOM};
    const uint64_t bytes = is_small ? 150001 : 150000007;
    uint8_t *content = malloc(bytes);
    ck_assert_ptr_nonnull(content);
    for (int i = 0; i < 3; i++) {
        size_t before, after, total;
        sw_content_fill(content, bytes, contents[i], (uint64_t)i);
        struct sw_buffer *buffer = buffer_new((enum sw_buffer_kind)_i, bytes, content);
        const struct spillway_result result = packed(buffer);
        if (_i == SW_BUFFER_CUDA_VMM) {
            CUDA(cudaMemGetInfo(&before, &total));
            const uint64_t dropped = sw_buffer_drop_tail(buffer, result.stored_bytes);
            CUDA(cudaMemGetInfo(&after, &total));
            ck_assert_uint_eq(after - before, dropped);
            ck_assert(dropped > bytes / 3 || contents[i] != SW_CONTENT_TEXT || is_small);
            ck_assert_int_eq(sw_buffer_regain_tail(buffer, &err), 0);
        } else {
            struct sw_buffer tail = {buffer->kind, (uint8_t *)buffer->data + result.stored_bytes,
                                     bytes - result.stored_bytes};
            ck_assert_int_eq(sw_buffer_fill(&tail, 0xDB, &err), 0);
        }
        unpacked(result.region, buffer);
        ck_content(buffer, content);
        sw_buffer_free(buffer);
    }
    free(content);
}
END_TEST

static void sleep_on_stream(void *arg) {
    const struct timespec time = {.tv_nsec = *(const long *)arg};
    (void)nanosleep(&time, NULL);
}

/* Work queued on the caller's stream before the call is part of what is spilled. */
START_TEST(stream_order) {
    enum { BYTES = 3000001 };
    long sleep_ns = 200000000;
    uint8_t *content = content_new(BYTES, 77);
    struct sw_buffer *buffer = buffer_new(SW_BUFFER_CUDA_MALLOC, BYTES, NULL), *source;
    cudaStream_t stream;
    source = buffer_new(SW_BUFFER_CUDA_MALLOC, BYTES, content);
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaLaunchHostFunc(stream, sleep_on_stream, &sleep_ns));
    CUDA(cudaMemcpyAsync(buffer->data, source->data, BYTES, cudaMemcpyDeviceToDevice, stream));
    const struct spillway_region region = spill(buffer, stream);
    ck_assert_int_eq(sw_buffer_fill(buffer, 0, &err), 0);
    restore(region, buffer, 0);
    ck_content(buffer, content);
    CUDA(cudaStreamDestroy(stream));
    sw_buffer_free(buffer);
    sw_buffer_free(source);
    free(content);
}
END_TEST

/* A stream, and a buffer that is spilled and restored on it. */
struct lane {
    cudaStream_t stream;
    struct sw_buffer *buffer;
    struct spillway_ticket *ticket;
    struct spillway_region region;
};

static long lane_sleep_ns = 2000000;

static void lane_spill(struct lane *lane, const struct sw_buffer *source) {
    CUDA(cudaLaunchHostFunc(lane->stream, sleep_on_stream, &lane_sleep_ns));
    CUDA(cudaMemcpyAsync(lane->buffer->data, source->data, source->bytes, cudaMemcpyDeviceToDevice, lane->stream));
    ok(spillway_spill(connection, SW_REQUEST(SW_ONE(lane->buffer->data, source->bytes), .stream = lane->stream), 1,
                      &lane->ticket, &error));
}

/* Work that was queued before it must not come after it. */
static void lane_restore(struct lane *lane) {
    CUDA(cudaLaunchHostFunc(lane->stream, sleep_on_stream, &lane_sleep_ns));
    CUDA(cudaMemsetAsync(lane->buffer->data, 0xEE, lane->buffer->bytes, lane->stream));
    ok(spillway_restore(
        connection,
        SW_REQUEST(SW_ONE(lane->buffer->data, lane->buffer->bytes), .region = lane->region, .stream = lane->stream), 1,
        &lane->ticket, &error));
}

static void lane_wait(struct lane *lane) {
    struct spillway_result result = {.size = sizeof result};
    ok(spillway_wait(lane->ticket, -1, &result, 1, &error));
    spillway_ticket_free(lane->ticket);
    lane->region = result.region;
}

/* The same few words name new work again and again: each operation waits for its own stream's work, and for the work
 * before it, not before the operation that had the word last. */
START_TEST(many_operations_on_several_streams) {
    enum { LANES = 4, VERSIONS = 3, BYTES = 100001 };
    const int n_rounds = is_small ? 3 : 50;
    struct lane lanes[LANES] = {0};
    uint8_t *content[VERSIONS];
    struct sw_buffer *source[VERSIONS];
    for (int v = 0; v < VERSIONS; v++) {
        content[v] = content_new(BYTES, 100 + (uint64_t)v);
        source[v] = buffer_new(SW_BUFFER_CUDA_MALLOC, BYTES, content[v]);
    }
    for (int i = 0; i < LANES; i++) {
        lanes[i].buffer = buffer_new(SW_BUFFER_CUDA_MALLOC, BYTES, NULL);
        CUDA(cudaStreamCreateWithFlags(&lanes[i].stream, cudaStreamNonBlocking));
    }
    for (int round = 0; round < n_rounds; round++) {
        for (int i = 0; i < LANES; i++)
            lane_spill(&lanes[i], source[(round + i) % VERSIONS]);
        for (int i = 0; i < LANES; i++)
            lane_wait(&lanes[i]);
        for (int i = LANES - 1; i >= 0; i--)
            lane_restore(&lanes[i]);
        for (int i = 0; i < LANES; i++) {
            lane_wait(&lanes[i]);
            ck_content(lanes[i].buffer, content[(round + i) % VERSIONS]);
        }
    }
    for (int i = 0; i < LANES; i++) {
        CUDA(cudaStreamDestroy(lanes[i].stream));
        sw_buffer_free(lanes[i].buffer);
    }
    for (int v = 0; v < VERSIONS; v++) {
        sw_buffer_free(source[v]);
        free(content[v]);
    }
}
END_TEST

static void refused(const void *data, uint64_t bytes, int code) {
    struct spillway_ticket *ticket = NULL;
    const int rc = spillway_spill(connection, SW_REQUEST(SW_ONE(data, bytes)), 1, &ticket, &error);
    ck_assert_msg(rc == code, "%s: %s", error.name, error.text);
    ck_assert_ptr_null(ticket);
}

/* A copy of the content, wherever the memory is. */
static void set_bytes(void *data, const uint8_t *content, uint64_t bytes) {
    CUDA(cudaMemcpy(data, content, bytes, cudaMemcpyDefault));
    CUDA(cudaDeviceSynchronize());
}

static void ck_bytes(const void *data, const uint8_t *content, uint64_t bytes) {
    uint8_t *got = malloc(bytes + 1);
    ck_assert_ptr_nonnull(got);
    CUDA(cudaMemcpy(got, data, bytes, cudaMemcpyDefault));
    ck_assert(memcmp(got, content, bytes) == 0);
    free(got);
}

/* Out of the memory and back into it, also in part and from an odd place, and into memory that can be shared. */
static void staged_round_trip(void *data, const uint8_t *content, const uint8_t *other, uint64_t bytes) {
    struct sw_buffer whole = {SW_BUFFER_KIND_NR, data, bytes};
    const struct sw_buffer part = {SW_BUFFER_KIND_NR, (uint8_t *)data + 5, bytes / 2};
    struct sw_buffer *shared = buffer_new(SW_BUFFER_CUDA_MALLOC, bytes, NULL);
    set_bytes(data, content, bytes);
    const struct spillway_region first = spill(&whole, NULL), second = spill(&part, NULL);
    ck_bytes(data, content, bytes); /* untouched */
    set_bytes(data, other, bytes);
    restore(first, &whole, SPILLWAY_KEEP);
    ck_bytes(data, content, bytes);
    restore(first, shared, 0);
    ck_content(shared, content);
    restore(second, &whole, 0);
    ck_bytes(data, content + 5, bytes / 2);
    set_bytes(data, other, bytes);
    restore(spill(shared, NULL), &whole, 0); /* one region of the daemon's */
    ck_bytes(data, content, bytes);
    sw_buffer_free(shared);
}

static void refused_to_register(void *data, uint64_t bytes) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_register(connection, data, bytes, &error), -SPILLWAY_EMEMKIND);
    if (codec_is_clients()) /* it packs some of these kinds */
        return;
    ck_assert_int_eq(
        spillway_spill(connection, SW_REQUEST(SW_ONE(data, bytes), .flags = SPILLWAY_IN_PLACE), 1, &ticket, &error),
        -SPILLWAY_EMEMKIND);
}

/* A connection of its own, and with its end the staging arenas go. */
static uint64_t idle_before; /* the other connection */

static struct spillway *open_another(void) {
    struct spillway *first = connection;
    idle_before = idle_memories();
    ok(spillway_open(&connection, SW_OPTIONS(.socket_path = daemon_process.socket), &error));
    return first;
}

static void close_another(struct spillway *first) {
    struct spillway_status status;
    spillway_close(connection);
    connection = first;
    status = get_status();
    for (int i = 0; i < 1000 && (status.mapped_memories > idle_before || status.regions); i++) {
        const struct timespec time = {.tv_nsec = 10000000};
        (void)nanosleep(&time, NULL);
        status = get_status();
    }
    ck_assert_uint_eq(status.mapped_memories, idle_before);
    ck_assert_uint_eq(status.regions, 0);
}

START_TEST(memory_that_cannot_be_shared) {
    const uint64_t bytes = scaled(40000001);
    uint8_t *content = content_new(bytes, 31), *other = content_new(bytes, 32);
    void *managed, *pinned, *pooled, *block;
    struct spillway *first = open_another();
    CUDA(cudaMallocManaged(&managed, bytes, cudaMemAttachGlobal));
    CUDA(cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault));
    CUDA(cudaMallocAsync(&pooled, bytes, NULL)); /* the default pool has no export */
    CUDA(cudaStreamSynchronize(NULL));
    CUDA(cudaMalloc(&block, 1 << 20));
    void *const all[] = {managed, pinned, pooled};
    for (int i = 0; i < 3; i++) {
        staged_round_trip(all[i], content, other, bytes);
        refused_to_register(all[i], bytes);
    }
    refused(managed, bytes + ((uint64_t)1 << 40), -SPILLWAY_ERANGE);
    refused(pooled, bytes + ((uint64_t)1 << 40), -SPILLWAY_ERANGE);
    refused(block, ((uint64_t)1 << 20) + (16 << 20), -SPILLWAY_ERANGE);
    refused(block, UINT64_MAX, -SPILLWAY_ERANGE);
    if (!is_small) { /* too long for the driver to share */
        struct sw_buffer *large = buffer_new(SW_BUFFER_CUDA_POOL, SW_MEM_POOL_MAX_BYTES + 1, NULL);
        staged_round_trip(large->data, content, other, bytes);
        sw_buffer_free(large);
    }
    CUDA(cudaFree(managed));
    CUDA(cudaFreeHost(pinned));
    CUDA(cudaFree(pooled));
    CUDA(cudaFree(block));
    close_another(first);
    free(content);
    free(other);
}
END_TEST

/* Like stream_order, with memory that is copied. */
START_TEST(stream_order_of_copied_memory) {
    enum { BYTES = 3000001 };
    uint8_t *content = content_new(BYTES, 78), *other = content_new(BYTES, 79);
    struct sw_buffer *source = buffer_new(SW_BUFFER_CUDA_MALLOC, BYTES, content);
    struct spillway *first = open_another();
    long sleep_ns = 200000000;
    void *pooled, *pinned;
    cudaStream_t stream;
    CUDA(cudaMallocAsync(&pooled, BYTES, NULL));
    CUDA(cudaHostAlloc(&pinned, BYTES, cudaHostAllocDefault));
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    void *const all[] = {pooled, pinned};
    for (int i = 0; i < 2; i++) {
        struct sw_buffer buffer = {SW_BUFFER_KIND_NR, all[i], BYTES};
        set_bytes(all[i], other, BYTES);
        CUDA(cudaLaunchHostFunc(stream, sleep_on_stream, &sleep_ns));
        CUDA(cudaMemcpyAsync(all[i], source->data, BYTES, cudaMemcpyDefault, stream));
        const struct spillway_region region = spill(&buffer, stream);
        set_bytes(all[i], other, BYTES);
        restore(region, &buffer, 0);
        ck_bytes(all[i], content, BYTES);
    }
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(pooled));
    CUDA(cudaFreeHost(pinned));
    close_another(first);
    sw_buffer_free(source);
    free(content);
    free(other);
}
END_TEST

static struct sw_msg mem_open_msg(uint32_t mem, uint32_t kind, uint32_t n_parts, uint64_t bytes) {
    struct cudaDeviceProp prop;
    struct sw_msg msg = {.header.type = SW_MSG_MEM_OPEN};
    msg.u.mem_open = (struct sw_msg_mem_open){.mem = mem, .kind = kind, .n_parts = n_parts, .once = 1, .bytes = bytes};
    CUDA(cudaGetDeviceProperties(&prop, 0));
    memcpy(msg.u.mem_open.device_uuid, &prop.uuid, sizeof msg.u.mem_open.device_uuid);
    return msg;
}

/* Handles that lie: the daemon names the error and goes on. */
START_TEST(wrong_handles) {
    struct sw_wire wire;
    struct sw_region_id id;
    cudaIpcMemHandle_t handle;
    void *block;
    sw_wire_open(&wire, daemon_process.socket);
    struct sw_msg msg = mem_open_msg(1, SW_MEM_CUDA_IPC, 0, 1 << 20); /* a handle of zeros */
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, 1 << 20, &id), -SW_EIMPORT);

    CUDA(cudaMalloc(&block, 4 << 20));
    CUDA(cudaIpcGetMemHandle(&handle, block));
    msg = mem_open_msg(2, SW_MEM_CUDA_IPC, 0, 64 << 20); /* longer than the allocation */
    memcpy(msg.u.mem_open.handle, &handle, sizeof handle);
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 2, 32 << 20, 1 << 20, &id), -SW_ERANGE);

    for (uint32_t kind = SW_MEM_CUDA_VMM; kind <= SW_MEM_CUDA_POOL; kind++) { /* a descriptor of something else */
        const int fd = sw_wire_memfd(NULL, 2 << 20, 0);
        msg = mem_open_msg(10 + kind, kind, 1, 2 << 20);
        ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), 0);
        ck_assert_int_eq(sw_wire_mem_parts(&wire, 10 + kind, 0, 1, 2 << 20, fd, 1), 0);
        ck_assert_int_eq(sw_wire_spill(&wire, 10 + kind, 0, 4096, &id), -SW_EIMPORT);
        (void)close(fd);
    }
    msg = mem_open_msg(3, SW_MEM_CUDA_IPC, 0, 1 << 20);
    msg.u.mem_open.device_uuid[0] ^= 0xFF;
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_EDEVICE);
    sw_wire_close(&wire);
    CUDA(cudaFree(block));
    round_trip(SW_BUFFER_CUDA_MALLOC, SW_BUFFER_CUDA_MALLOC, 100001);
}
END_TEST

/* The device memory in use is as before, and the daemon stays within its limit. Runs last. */
START_TEST(nothing_left_behind) {
    size_t before, after, total;
    round_trip(SW_BUFFER_CUDA_VMM, SW_BUFFER_CUDA_POOL, scaled(1000003));
    CUDA(cudaMemGetInfo(&before, &total));
    const uint64_t idle = idle_memories();
    for (int kind = SW_BUFFER_CUDA_MALLOC; kind < SW_BUFFER_KIND_NR; kind++)
        for (int i = 0; i < (is_small ? 1 : 5); i++)
            round_trip((enum sw_buffer_kind)kind, (enum sw_buffer_kind)kind, scaled(9000001));
    CUDA(cudaMemGetInfo(&after, &total));
    ck_assert_uint_eq(before, after);
    const struct spillway_status status = get_status();
    ck_assert_uint_eq(status.regions, 0);
    ck_assert_uint_eq(status.mapped_memories, idle);
    ck_assert_uint_eq(status.tier_used_bytes, 0);
    ck_assert_uint_gt(status.scratch_bytes, 0);
    ck_assert_uint_le(status.scratch_bytes, status.scratch_limit_bytes);
}
END_TEST

static Suite *make_suite(void) {
    TCase *cases = tcase_create("roundtrip");
    tcase_set_timeout(cases, 0);
    tcase_add_loop_test(cases, every_kind_and_size, 0, SW_BUFFER_KIND_NR);
    tcase_add_test(cases, from_any_kind_to_any_gpu_kind);
    tcase_add_test(cases, between_gpu_and_host);
    tcase_add_test(cases, kept_and_dropped);
    tcase_add_test(cases, many_in_flight);
    tcase_add_loop_test(cases, tables_of_every_kind, 0, SW_BUFFER_KIND_NR);
    tcase_add_test(cases, registered_block);
    tcase_add_loop_test(cases, packed_in_place, 0, SW_BUFFER_KIND_NR);
    tcase_add_test(cases, stream_order);
    tcase_add_test(cases, many_operations_on_several_streams);
    tcase_add_test(cases, memory_that_cannot_be_shared);
    tcase_add_test(cases, stream_order_of_copied_memory);
    tcase_add_test(cases, wrong_handles);
    tcase_add_test(cases, nothing_left_behind);
    Suite *suite = suite_create("gpu roundtrip");
    suite_add_tcase(suite, cases);
    return suite;
}

int main(int argc, char **argv) {
    is_small = getenv("SW_TEST_SMALL") != NULL;
    return sw_served_gpu_run(argc > 1 ? argv[1] : SW_SPILLWAYD_PATH, &daemon_process, &connection, make_suite);
}
