/* The host device by its own contract: slots, memory of all sorts of bad descriptors, clients that misbehave. */
#include "base/alloc.h"
#include "codec/identity.h"
#include "spill/device/device.h"
#include "spill/tier/tier.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 256 << 10 };

static struct sw_device *device;
static struct sw_err err;
static long live;
static unsigned fds;

static void setup(void) {
    struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = CHUNK};
    live = sw_alloc_live();
    fds = sw_count_fds();
    ck_assert_int_eq(sw_device_host_open(&device, &config, &err), 0);
}

static void teardown(void) {
    device->ops->close(device);
    ck_assert_int_eq(sw_alloc_live(), live);
    ck_assert_uint_eq(sw_count_fds(), fds);
}

/* Encodes a range on slot s and fetches the frame. */
static uint64_t encode(unsigned s, const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, uint8_t *frame) {
    struct sw_slot_result result;
    struct sw_plan plan;
    ck_assert_int_eq(device->ops->make_plan(device, s, SW_VALUE_NONE, mapping, offset, bytes, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, s, &result, &err), 0);
    plan = *device->ops->plan(device, s);
    ck_assert_int_eq(device->ops->encode(device, s, &plan, mapping, offset, bytes, &err), 0);
    memset(&plan, 0xEE, sizeof plan); /* it was copied */
    ck_assert_int_eq(device->ops->slot_wait(device, s, &result, &err), 0);
    /* In pieces, more than a queue starts with. */
    for (uint64_t at = 0; at < result.frame.frame_bytes; at += 4096) {
        uint64_t left = result.frame.frame_bytes - at;
        ck_assert_int_eq(device->ops->store(device, s, frame + at, at, left < 4096 ? left : 4096, &err), 0);
    }
    uint64_t frame_bytes = result.frame.frame_bytes;
    ck_assert_int_eq(device->ops->slot_wait(device, s, &result, &err), 0);
    return frame_bytes;
}

static int decode(unsigned s, const uint8_t *frame, uint64_t frame_bytes, struct sw_mapping *mapping, uint64_t offset) {
    struct sw_slot_result result;
    struct sw_frame_layout layout;
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, &err), 0);
    ck_assert_int_eq(device->ops->load(device, s, frame, 0, frame_bytes, &err), 0);
    const struct sw_decode_item item = {.layout = &layout, .offset = offset};
    ck_assert_int_eq(device->ops->decode(device, s, mapping, &item, 1, &err), 0);
    int rc;
    while ((rc = device->ops->slot_poll(device, s, &result, &err)) == -SW_EAGAIN)
        (void)usleep(100);
    return rc;
}

START_TEST(test_frames_go_out_and_come_back_on_any_slot) {
    struct sw_memory from = sw_memory_new(CHUNK + 100), to = sw_memory_new(CHUNK + 100);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    for (unsigned kind = 0; kind < SW_CONTENT_NR; kind++) {
        sw_content_fill(from.data, from.bytes, (enum sw_content)kind, kind);
        uint64_t bytes = encode(kind % 2, source, kind, CHUNK - kind, frame);
        ck_assert_uint_le(bytes, sw_frame_bound_bytes(CHUNK));
        ck_assert_int_eq(decode((kind + 1) % 2, frame, bytes, target, 3), 0);
        ck_assert_int_eq(memcmp(to.data + 3, from.data + kind, CHUNK - kind), 0);
    }
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    device->ops->unmap(device, NULL);
    free(frame);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

/* In a client's memory, at any place and of any length, and in the slot's buffer, which stays as it is. */
START_TEST(test_frames_are_identified) {
    enum { N = SW_HEAD_MAX };
    struct sw_memory memory = sw_memory_new(CHUNK);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK)), *again = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_head_item heads[N];
    struct sw_slot_result result;
    sw_content_fill(memory.data, CHUNK, SW_CONTENT_TEXT, 1);
    const uint64_t bytes = encode(0, mapping, 0, CHUNK, frame);
    for (unsigned i = 0; i < N; i++)
        heads[i] = (struct sw_head_item){.at = 77 * i, .bytes = i + 1 == N ? CHUNK - 77 * i : 16 + 48 * (uint64_t)i};
    ck_assert_int_eq(device->ops->identify(device, 0, mapping, heads, N, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert_uint_eq(heads[i].identity, sw_identity_of(memory.data + heads[i].at, heads[i].bytes));
    heads[0] = (struct sw_head_item){.at = 0, .bytes = 2000};
    heads[1] = (struct sw_head_item){.at = 160, .bytes = bytes - 160};
    ck_assert_int_eq(device->ops->identify(device, 0, NULL, heads, 2, &err), 0);
    ck_assert_int_eq(device->ops->store(device, 0, again, 0, bytes, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    ck_assert_uint_eq(heads[0].identity, sw_identity_of(frame, 2000));
    ck_assert_uint_eq(heads[1].identity, sw_identity_of(frame + 160, bytes - 160));
    ck_assert_int_eq(memcmp(frame, again, bytes), 0);
    device->ops->unmap(device, mapping);
    sw_memory_free(&memory);
    free(frame);
    free(again);
}
END_TEST

START_TEST(test_a_failed_step_skips_the_rest_and_leaves_the_slot_usable) {
    struct sw_memory memory = sw_memory_new(CHUNK);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK)), untouched[100];
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct sw_slot_result result;
    struct sw_frame_layout layout;
    sw_content_fill(memory.data, CHUNK, SW_CONTENT_TEXT, 1);
    uint64_t bytes = encode(0, mapping, 0, CHUNK, frame);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, bytes, bytes, &err), 0);
    uint8_t saved = frame[bytes / 2];
    frame[bytes / 2] ^= 0x55;
    memset(untouched, 7, sizeof untouched);
    ck_assert_int_eq(device->ops->load(device, 0, frame, 0, bytes, &err), 0);
    ck_assert_int_eq(device->ops->decode(device, 0, mapping, &(struct sw_decode_item){.layout = &layout}, 1, &err), 0);
    ck_assert_int_eq(device->ops->store(device, 0, untouched, 0, sizeof untouched, &err), 0);
    int rc = device->ops->slot_wait(device, 0, &result, &err);
    ck_assert(rc == -SW_ECHECKSUM || rc == -SW_EFRAME);
    ck_assert_int_eq(err.code, rc);
    for (size_t i = 0; i < sizeof untouched; i++)
        ck_assert_uint_eq(untouched[i], 7);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0); /* reported once */
    frame[bytes / 2] = saved;
    ck_assert_int_eq(decode(0, frame, bytes, mapping, 0), 0);
    device->ops->unmap(device, mapping);
    free(frame);
    sw_memory_free(&memory);
}
END_TEST

static int map_fd(int fd, uint64_t bytes) {
    struct sw_memory memory = {.fd = fd, .bytes = bytes};
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mapping *mapping = NULL;
    memset(&err, 0, sizeof err);
    int rc = device->ops->map(device, &desc, &mapping, &err);
    ck_assert(rc == 0 || err.code == rc);
    device->ops->unmap(device, mapping);
    sw_mem_desc_fini(&desc);
    return rc;
}

START_TEST(test_bad_descriptors_are_refused_by_name) {
    int fd = memfd_create("unsealed", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    ck_assert_int_eq(map_fd(fd, 8192), -SW_EUNSEALED);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_GROW), 0);
    ck_assert_int_eq(map_fd(fd, 8192), -SW_EUNSEALED);
    ck_assert_int_eq(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
    ck_assert_int_eq(map_fd(fd, 8192), 0);
    ck_assert_int_eq(map_fd(fd, 0), 0);
    ck_assert_int_eq(map_fd(fd, 8193), -SW_ERANGE);
    ck_assert_int_eq(map_fd(fd, UINT64_MAX), -SW_ERANGE);
    (void)close(fd);
    ck_assert_int_eq(map_fd(fd, 8192), -SW_EFDS); /* closed */

    char path[SW_TEST_PATH_BYTES];
    fd = sw_test_file(path);
    ck_assert_int_eq(ftruncate(fd, 8192), 0);
    const int rc = map_fd(fd, 8192);
    ck_assert(rc == -SW_EFDS || rc == -SW_EUNSEALED); /* the latter where /tmp is a tmpfs */
    (void)close(fd);
    (void)unlink(path);
    int pipes[2];
    ck_assert_int_eq(pipe2(pipes, O_CLOEXEC), 0);
    ck_assert_int_eq(map_fd(pipes[0], 10), -SW_EFDS);
    (void)close(pipes[0]);
    (void)close(pipes[1]);
    fd = open("/", O_RDONLY | O_CLOEXEC);
    ck_assert_int_eq(map_fd(fd, 0), -SW_EFDS);
    (void)close(fd);
    fd = open("/dev/zero", O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(map_fd(fd, 10), -SW_EFDS);
    (void)close(fd);
    fd = memfd_create("huge", MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_HUGETLB);
    if (fd >= 0) { /* a kernel may have no huge pages */
        (void)fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK);
        ck_assert_int_eq(map_fd(fd, 0), -SW_EFDS);
        (void)close(fd);
    }

    struct sw_mem_desc desc = {.kind = SW_MEM_CUDA_IPC};
    struct sw_mapping *mapping;
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), -SW_ENOTSUP);
    desc.kind = SW_MEM_MEMFD;
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), -SW_EFDS);
}
END_TEST

START_TEST(test_a_full_descriptor_table_has_its_own_error) {
    struct sw_memory memory = sw_memory_new(8192);
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mapping *mapping = NULL;
    sw_leave_fds(0);
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), -SW_ELIMIT);
    ck_assert_ptr_null(mapping);
    sw_leave_all_fds();
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), 0);
    device->ops->unmap(device, mapping);
    sw_mem_desc_fini(&desc);
    sw_memory_free(&memory);
}
END_TEST

/* Spills from a descriptor, restores to it; returns the restore's code. */
static int restore_to(const struct sw_memory *memory) {
    struct sw_memory source = sw_memory_new(10000);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_mapping *from = sw_memory_map(device, &source), *to = sw_memory_map(device, memory);
    sw_content_fill(source.data, source.bytes, SW_CONTENT_TEXT, 3);
    uint64_t bytes = encode(0, from, 0, source.bytes, frame);
    int rc = decode(0, frame, bytes, to, 0);
    device->ops->unmap(device, from);
    device->ops->unmap(device, to);
    free(frame);
    sw_memory_free(&source);
    return rc;
}

START_TEST(test_read_only_memory_is_only_read) {
    struct sw_memory memory = sw_memory_new(10000);
    (void)munmap(memory.data, memory.bytes);
    memory.data = NULL;
    ck_assert_int_eq(fcntl(memory.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    (void)encode(0, mapping, 0, memory.bytes, frame);
    device->ops->unmap(device, mapping);
    ck_assert_int_eq(restore_to(&memory), -SW_EACCES);
    sw_memory_free(&memory);

    memory = sw_memory_new(10000);
    char path[64];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", memory.fd);
    struct sw_memory read_only = {.fd = open(path, O_RDONLY | O_CLOEXEC), .bytes = memory.bytes};
    ck_assert_int_ge(read_only.fd, 0);
    ck_assert_int_eq(restore_to(&read_only), -SW_EACCES);
    (void)close(read_only.fd);
    /* pwrite would ignore its offset. */
    ck_assert_int_eq(fcntl(memory.fd, F_SETFL, O_APPEND), 0);
    ck_assert_int_eq(restore_to(&memory), -SW_EACCES);
    ck_assert_int_eq(fcntl(memory.fd, F_SETFL, 0), 0);
    ck_assert_int_eq(restore_to(&memory), 0);
    free(frame);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(test_sparse_memory_reads_as_zeros) {
    struct sw_memory sparse = sw_memory_new(10000);
    struct stat st;
    ck_assert_int_eq(fallocate(sparse.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 3 * 4096), 0);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_mapping *mapping = sw_memory_map(device, &sparse);
    uint64_t bytes = encode(0, mapping, 0, sparse.bytes, frame);
    device->ops->unmap(device, mapping);
    ck_assert_uint_gt(bytes, 0);
    ck_assert_int_eq(fstat(sparse.fd, &st), 0);
    ck_assert_int_eq(st.st_blocks, 0);
    uint8_t raw[10000] = {1};
    uint64_t raw_bytes = 0;
    ck_assert_int_eq(sw_codec_decode(frame, bytes, raw, sizeof raw, &raw_bytes, &err), 0);
    ck_assert_uint_eq(raw_bytes, sizeof raw);
    ck_assert(raw[0] == 0 && memcmp(raw, raw + 1, sizeof raw - 1) == 0);
    free(frame);
    sw_memory_free(&sparse);
}
END_TEST

struct vandal {
    const struct sw_memory *memory;
    atomic_bool stop;
};

/* A client that writes to, and punches holes into, memory that it has just handed over. Through the descriptor: the
 * race is with the kernel's copy, which no sanitizer minds. */
static void *vandal_main(void *arg) {
    struct vandal *v = arg;
    uint64_t seed = 1;
    while (!atomic_load(&v->stop)) {
        uint64_t junk[64];
        for (int i = 0; i < 64; i++)
            junk[i] = sw_random(&seed);
        off_t at = (off_t)(sw_random(&seed) % (v->memory->bytes - sizeof junk));
        if (pwrite(v->memory->fd, junk, sizeof junk, at) < 0)
            return "write";
        if (seed % 8 == 0)
            (void)fallocate(v->memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, 8192);
    }
    return NULL;
}

START_TEST(test_changing_memory_makes_valid_frames) {
    struct sw_memory memory = sw_memory_new(CHUNK), to = sw_memory_new(CHUNK);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct vandal vandal = {.memory = &memory};
    pthread_t thread;
    sw_content_fill(memory.data, CHUNK, SW_CONTENT_TEXT, 3);
    struct sw_mapping *mapping = sw_memory_map(device, &memory), *target = sw_memory_map(device, &to);
    ck_assert_int_eq(pthread_create(&thread, NULL, vandal_main, &vandal), 0);
    for (int i = 0; i < 30; i++) {
        uint64_t bytes = encode(0, mapping, 0, CHUNK, frame);
        ck_assert_int_eq(decode(1, frame, bytes, target, 0), 0);
        const int rc = decode(1, frame, bytes, mapping, 0);
        ck_assert(rc == 0 || rc == -SW_EUNALLOCATED);
    }
    atomic_store(&vandal.stop, true);
    void *complaint;
    ck_assert_int_eq(pthread_join(thread, &complaint), 0);
    ck_assert_ptr_null(complaint);
    device->ops->unmap(device, mapping);
    device->ops->unmap(device, target);
    free(frame);
    sw_memory_free(&memory);
    sw_memory_free(&to);
}
END_TEST

enum { N_ITEMS = 5 };
static const uint64_t item_bytes[N_ITEMS] = {1, 50000, 4096, 10001, 8192};

/* Where an item's frame goes, in two pieces. */
struct place {
    uint8_t bytes[64 << 10];
    struct sw_extent extents[2];
    struct sw_stored stored;
};

static void place_init(struct place *place, uint64_t frame_bytes) {
    const uint64_t first = frame_bytes / 2;
    memset(place->bytes, 0xEE, sizeof place->bytes);
    place->extents[0] = (struct sw_extent){.memory = place->bytes, .bytes = first};
    place->extents[1] = (struct sw_extent){.memory = place->bytes + first, .bytes = frame_bytes - first};
    place->stored = (struct sw_stored){.extents = place->extents, .n_extents = 2, .bytes = frame_bytes};
}

/* Items from two memories, one of which is not stored. */
static void spill_group(struct sw_mapping *const mappings[2], struct sw_group_item items[N_ITEMS],
                        struct place places[N_ITEMS], unsigned left_out) {
    static const struct sw_stored nowhere;
    struct sw_slot_result result;
    struct sw_plan plan;
    ck_assert_int_eq(device->ops->make_plan(device, 0, SW_VALUE_NONE, mappings[1], 0, CHUNK, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    plan = *device->ops->plan(device, 0);
    for (uint64_t i = 0, at = 0; i < N_ITEMS; at += item_bytes[i++])
        items[i] = (struct sw_group_item){.mapping = mappings[i % 2], .offset = at, .bytes = item_bytes[i]};
    ck_assert_int_eq(device->ops->encode_group(device, 0, &plan, items, N_ITEMS, &err), 0);
    memset(&plan, 0xEE, sizeof plan); /* it was copied */
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        ck_assert_uint_eq(items[i].frame.raw_bytes, item_bytes[i]);
        place_init(&places[i], items[i].frame.frame_bytes);
        items[i].stored = i == left_out ? &nowhere : &places[i].stored;
    }
    ck_assert_int_eq(device->ops->store_group(device, 0, items, N_ITEMS, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        ck_assert_uint_eq(places[i].bytes[items[i].frame.frame_bytes], 0xEE);
        if (i != left_out)
            ck_assert_uint_eq(items[i].identity, sw_identity_of(places[i].bytes, items[i].frame.counts_offset));
    }
}

START_TEST(test_groups_go_out_and_come_back) {
    enum { LEFT_OUT = 2, DAMAGED = 3 };
    struct sw_memory from[2] = {sw_memory_new(CHUNK), sw_memory_new(CHUNK)}, to = sw_memory_new(2 * CHUNK);
    struct sw_mapping *sources[2] = {sw_memory_map(device, &from[0]), sw_memory_map(device, &from[1])},
                      *target = sw_memory_map(device, &to);
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    struct sw_slot_result result;
    sw_content_fill(from[0].data, CHUNK, SW_CONTENT_RANDOM, 1);
    sw_content_fill(from[1].data, CHUNK, SW_CONTENT_TEXT, 2);
    spill_group(sources, items, places, LEFT_OUT);
    ck_assert_uint_eq(places[LEFT_OUT].bytes[0], 0xEE);
    places[DAMAGED].bytes[items[DAMAGED].frame.frame_bytes - 100] ^= 1;
    items[LEFT_OUT] = items[N_ITEMS - 1];
    for (unsigned i = 0; i < N_ITEMS - 1; i++)
        items[i].mapping = target;
    ck_assert_int_eq(device->ops->restore_group(device, 1, items, N_ITEMS - 1, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
    for (unsigned i = 0; i < N_ITEMS - 1; i++) {
        const unsigned source = i == LEFT_OUT ? N_ITEMS - 1 : i;
        const uint64_t at = items[i].offset;
        ck_assert_int_eq(items[i].is_damaged, i == DAMAGED);
        ck_assert(i == DAMAGED || memcmp(to.data + at, from[source % 2].data + at, items[i].bytes) == 0);
        ck_assert(i != DAMAGED || to.data[at] == 0); /* nothing of it was written */
    }
    for (int i = 0; i < 2; i++) {
        device->ops->unmap(device, sources[i]);
        sw_memory_free(&from[i]);
    }
    device->ops->unmap(device, target);
    sw_memory_free(&to);
    free(places);
}
END_TEST

/* A group's frame equals that of its chunk encoded alone. */
START_TEST(test_a_groups_frames_equal_those_of_chunks) {
    struct sw_memory from[2] = {sw_memory_new(CHUNK), sw_memory_new(CHUNK)};
    struct sw_mapping *sources[2] = {sw_memory_map(device, &from[0]), sw_memory_map(device, &from[1])};
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_slot_result result;
    sw_content_fill(from[1].data, CHUNK, SW_CONTENT_TEXT, 2);
    spill_group(sources, items, places, N_ITEMS);
    ck_assert_int_eq(device->ops->make_plan(device, 1, SW_VALUE_NONE, sources[1], 0, CHUNK, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
    const struct sw_plan plan = *device->ops->plan(device, 1);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        ck_assert_int_eq(device->ops->encode(device, 1, &plan, items[i].mapping, items[i].offset, items[i].bytes, &err),
                         0);
        ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
        ck_assert_mem_eq(&result.frame, &items[i].frame, sizeof result.frame);
        ck_assert_int_eq(device->ops->store(device, 1, frame, 0, result.frame.frame_bytes, &err), 0);
        ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
        ck_assert_mem_eq(frame, places[i].bytes, items[i].frame.frame_bytes);
    }
    for (int i = 0; i < 2; i++) {
        device->ops->unmap(device, sources[i]);
        sw_memory_free(&from[i]);
    }
    free(places);
    free(frame);
}
END_TEST

enum { MAX_RAW_EXTENTS = 5, RAW_BYTES = 200001 };

/* Room for one raw frame, in pieces. */
struct raw_place {
    uint8_t *bytes;
    struct sw_extent extents[MAX_RAW_EXTENTS];
    struct sw_stored stored;
};

/* n pieces, the first ones so short that header, records and content are cut; 1: all in one. */
static void raw_place_init(struct raw_place *place, uint64_t frame_bytes, unsigned n) {
    static const uint64_t cuts[MAX_RAW_EXTENTS] = {40, 70, 4096, 100000, UINT64_MAX};
    uint64_t at = 0;
    place->bytes = malloc(frame_bytes + 1);
    memset(place->bytes, 0xEE, frame_bytes + 1);
    for (unsigned i = 0; i < n; i++) {
        const uint64_t left = frame_bytes - at, bytes = i == n - 1 || left < cuts[i] ? left : cuts[i];
        place->extents[i] = (struct sw_extent){.memory = place->bytes + at, .bytes = bytes};
        at += bytes;
    }
    place->stored = (struct sw_stored){.extents = place->extents, .n_extents = n, .bytes = frame_bytes};
}

static struct sw_raw_item raw_item(uint64_t offset, uint64_t bytes, const struct sw_stored *stored) {
    struct sw_raw_item item = {.offset = offset, .stored = stored};
    sw_frame_layout_init(&item.frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, bytes, 0);
    return item;
}

static int spill_raw(unsigned s, const struct sw_mapping *mapping, const struct sw_raw_item *items, unsigned n) {
    struct sw_slot_result result;
    ck_assert_int_eq(device->ops->spill_raw(device, s, mapping, items, n, 0, &err), 0);
    return device->ops->slot_wait(device, s, &result, &err);
}

static int restore_raw(unsigned s, struct sw_mapping *mapping, const struct sw_raw_item *items, unsigned n) {
    struct sw_slot_result result;
    ck_assert_int_eq(device->ops->restore_raw(device, s, mapping, items, n, 0, &err), 0);
    return device->ops->slot_wait(device, s, &result, &err);
}

/* _i: in how many pieces the frame lies, less one. */
START_TEST(test_raw_frames_equal_encoded_ones) {
    static const uint64_t lengths[] = {1, 4096, RAW_BYTES, CHUNK};
    struct sw_memory from = sw_memory_new(CHUNK + 100), to = sw_memory_new(CHUNK + 100);
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    sw_content_fill(from.data, from.bytes, SW_CONTENT_RANDOM, 1); /* make_plan chooses raw */
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const uint64_t frame_bytes = encode(0, source, 7, lengths[i], frame);
        struct raw_place place;
        raw_place_init(&place, frame_bytes, (unsigned)_i + 1);
        struct sw_raw_item item = raw_item(7, lengths[i], &place.stored);
        ck_assert_int_eq(spill_raw(1, source, &item, 1), 0);
        struct sw_frame_layout parsed = {0};
        ck_assert_int_eq(sw_frame_parse(&parsed, frame, frame_bytes, frame_bytes, &err), 0);
        ck_assert_mem_eq(&item.frame, &parsed, sizeof parsed);
        ck_assert_mem_eq(place.bytes, frame, frame_bytes);
        ck_assert_uint_eq(place.bytes[frame_bytes], 0xEE);
        memset(to.data, 0x11, to.bytes);
        item.offset = 3;
        ck_assert_int_eq(restore_raw(0, target, &item, 1), 0);
        ck_assert_mem_eq(to.data + 3, from.data + 7, lengths[i]);
        ck_assert_uint_eq(to.data[2], 0x11);
        ck_assert_uint_eq(to.data[3 + lengths[i]], 0x11);
        free(place.bytes);
    }
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
    free(frame);
}
END_TEST

/* Several chunks in one step: neither a damaged one nor those behind it are written. */
START_TEST(test_damaged_raw_frames_are_not_written) {
    enum { N = 3 };
    static const uint8_t zeros[RAW_BYTES];
    struct sw_memory from = sw_memory_new(N * RAW_BYTES), to = sw_memory_new(N * RAW_BYTES);
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    struct raw_place places[N];
    struct sw_raw_item items[N];
    sw_content_fill(from.data, from.bytes, SW_CONTENT_TEXT, 1);
    for (unsigned i = 0; i < N; i++) {
        items[i] = raw_item((uint64_t)i * RAW_BYTES, RAW_BYTES, &places[i].stored);
        raw_place_init(&places[i], items[i].frame.frame_bytes, MAX_RAW_EXTENTS - i);
    }
    ck_assert_int_eq(spill_raw(0, source, items, N), 0);
    const struct sw_frame_layout *layout = &items[1].frame;
    const uint64_t spots[] = {layout->records_offset, layout->data_offset, layout->data_offset + RAW_BYTES - 1};
    for (size_t i = 0; i < sizeof spots / sizeof spots[0]; i++) {
        places[1].bytes[spots[i]] ^= 1;
        ck_assert_int_eq(restore_raw(1, target, items, N), -SW_ECHECKSUM);
        ck_assert_int_eq(err.code, -SW_ECHECKSUM);
        places[1].bytes[spots[i]] ^= 1;
        ck_assert_mem_eq(to.data, from.data, RAW_BYTES);
        ck_assert_mem_eq(to.data + RAW_BYTES, zeros, RAW_BYTES);
        ck_assert_mem_eq(to.data + 2 * RAW_BYTES, zeros, RAW_BYTES);
    }
    ck_assert_int_eq(restore_raw(1, target, items, N), 0);
    ck_assert_mem_eq(to.data, from.data, from.bytes);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
    for (unsigned i = 0; i < N; i++)
        free(places[i].bytes);
}
END_TEST

START_TEST(test_raw_steps_can_be_failed) {
    struct sw_memory memory = sw_memory_new(RAW_BYTES);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct sw_device *faulty = NULL;
    struct sw_slot_result result;
    struct raw_place place;
    const struct sw_raw_item item = raw_item(0, RAW_BYTES, &place.stored);
    raw_place_init(&place, item.frame.frame_bytes, 2);
    ck_assert_int_eq(sw_device_faulty_open(&faulty, device, &err), 0);
    const struct sw_device_ops *ops = faulty->ops;
    for (int n = 0; n < 2; n++) { /* the first time it fails */
        if (n == 0)
            sw_device_faulty_arm(faulty, "spill_raw", 1, -SW_EGPU, SW_FAULT_LATE);
        ck_assert_int_eq(ops->spill_raw(faulty, 0, mapping, &item, 1, 0, &err), 0);
        ck_assert_int_eq(ops->slot_wait(faulty, 0, &result, &err), n == 0 ? -SW_EGPU : 0);
        ck_assert_int_eq(place.bytes[0] == 0xEE, n == 0);
    }
    sw_device_faulty_arm(faulty, "restore_raw", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(ops->restore_raw(faulty, 0, mapping, &item, 1, 0, &err), -SW_EGPU);
    ck_assert_int_eq(ops->restore_raw(faulty, 0, mapping, &item, 1, 0, &err), 0);
    ck_assert_int_eq(ops->slot_wait(faulty, 0, &result, &err), 0);
    device->ops->unmap(device, mapping);
    /* Owns the device, which teardown closes. */
    ops->close(faulty);
    struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = CHUNK};
    ck_assert_int_eq(sw_device_host_open(&device, &config, &err), 0);
    sw_memory_free(&memory);
    free(place.bytes);
}
END_TEST

START_TEST(test_unwritable_memory_fails_its_group) {
    struct sw_memory from[2] = {sw_memory_new(CHUNK), sw_memory_new(CHUNK)}, sealed = sw_memory_new(CHUNK);
    struct sw_mapping *sources[2] = {sw_memory_map(device, &from[0]), sw_memory_map(device, &from[1])};
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    struct sw_slot_result result;
    spill_group(sources, items, places, N_ITEMS);
    (void)munmap(sealed.data, sealed.bytes);
    sealed.data = NULL;
    ck_assert_int_eq(fcntl(sealed.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    struct sw_mapping *writable = items[2].mapping;
    items[2].mapping = sw_memory_map(device, &sealed);
    ck_assert_int_eq(device->ops->restore_group(device, 0, items, N_ITEMS, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_EACCES);
    device->ops->unmap(device, items[2].mapping);
    items[2].mapping = writable;
    ck_assert_int_eq(device->ops->restore_group(device, 0, items, N_ITEMS, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (int i = 0; i < 2; i++) {
        device->ops->unmap(device, sources[i]);
        sw_memory_free(&from[i]);
    }
    sw_memory_free(&sealed);
    free(places);
}
END_TEST

static void punch(const struct sw_memory *memory) {
    ck_assert_int_eq(fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)memory->bytes), 0);
}

static bool has_pages(const struct sw_memory *memory) {
    struct stat st;
    ck_assert_int_eq(fstat(memory->fd, &st), 0);
    return st.st_blocks > 0;
}

/* And it ends with the item: neither the next one nor the next step of the slot may. */
START_TEST(test_holes_are_filled_for_raw_items_that_allow_it) {
    enum { HALF = CHUNK / 2 };
    struct sw_memory from = sw_memory_new(CHUNK), to = sw_memory_new(CHUNK);
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    struct raw_place places[2];
    struct sw_raw_item items[2];
    struct sw_slot_result result;
    sw_content_fill(from.data, CHUNK, SW_CONTENT_RANDOM, 1);
    for (unsigned i = 0; i < 2; i++) {
        items[i] = raw_item(i * HALF, HALF, &places[i].stored);
        raw_place_init(&places[i], items[i].frame.frame_bytes, 2);
    }
    ck_assert_int_eq(spill_raw(0, source, items, 2), 0);
    punch(&to);
    if (!device->ops->info(device)->is_unguarded) {
        ck_assert_int_eq(restore_raw(0, target, items, 2), -SW_EUNALLOCATED);
        ck_assert(!has_pages(&to));
        items[0].may_fill_holes = true;
        ck_assert_int_eq(restore_raw(0, target, items, 2), -SW_EUNALLOCATED);
        ck_assert_mem_eq(to.data, from.data, HALF);
        punch(&to);
        ck_assert_int_eq(restore_raw(0, target, items, 1), 0);
        ck_assert_int_eq(device->ops->place(device, 0, target, HALF, 0, 1, &err), 0);
        ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_EUNALLOCATED);
        punch(&to);
    }
    items[0].may_fill_holes = items[1].may_fill_holes = true;
    ck_assert_int_eq(restore_raw(0, target, items, 2), 0);
    ck_assert_mem_eq(to.data, from.data, CHUNK);
    for (unsigned i = 0; i < 2; i++)
        free(places[i].bytes);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

static int restore_group(struct sw_group_item items[N_ITEMS]) {
    struct sw_slot_result result;
    ck_assert_int_eq(device->ops->restore_group(device, 0, items, N_ITEMS, &err), 0);
    return device->ops->slot_wait(device, 0, &result, &err);
}

START_TEST(test_holes_are_filled_for_group_items_that_allow_it) {
    struct sw_memory from = sw_memory_new(CHUNK), to = sw_memory_new(CHUNK);
    struct sw_mapping *source = sw_memory_map(device, &from),
                      *target = sw_memory_map(device, &to), *const sources[2] = {source, source};
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    const uint64_t first_bytes = item_bytes[0] + item_bytes[1];
    sw_content_fill(from.data, CHUNK, SW_CONTENT_TEXT, 1);
    spill_group(sources, items, places, N_ITEMS);
    punch(&to);
    for (unsigned i = 0; i < N_ITEMS; i++)
        items[i].mapping = target;
    if (!device->ops->info(device)->is_unguarded) {
        ck_assert_int_eq(restore_group(items), -SW_EUNALLOCATED);
        ck_assert(!has_pages(&to));
        items[0].may_fill_holes = items[1].may_fill_holes = items[4].may_fill_holes = true;
        ck_assert_int_eq(restore_group(items), -SW_EUNALLOCATED); /* the third one's second page */
        ck_assert_mem_eq(to.data, from.data, first_bytes);
        punch(&to);
    }
    for (unsigned i = 0; i < N_ITEMS; i++)
        items[i].may_fill_holes = true;
    ck_assert_int_eq(restore_group(items), 0);
    ck_assert_mem_eq(to.data, from.data, items[N_ITEMS - 1].offset + items[N_ITEMS - 1].bytes);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
    free(places);
}
END_TEST

/* For chunks that are stored room is made by fewer slots, if that is enough; a length that is none changes nothing. */
START_TEST(test_sizes_leave_room_for_stored_frames) {
    static const struct {
        struct sw_device_config config;
        unsigned n_slots;
        uint64_t chunk_bytes;
    } rows[] = {
        {{.scratch_bytes = 64 << 20, .n_slots = 4, .chunk_bytes = 64 << 10, .stored_chunk_bytes = 1000}, 4, 64 << 10},
        {{.scratch_bytes = 64 << 20, .n_slots = 4, .chunk_bytes = 64 << 10, .stored_chunk_bytes = 1 << 20}, 4, 1 << 20},
        {{.scratch_bytes = 64 << 20, .n_slots = 4, .chunk_bytes = 64 << 10, .stored_chunk_bytes = 100000},
         4,
         128 << 10},
        {{.scratch_bytes = 64 << 20, .n_slots = 16, .chunk_bytes = 64 << 10, .stored_chunk_bytes = 9 << 20},
         3,
         9 << 20},
        {{.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 << 10, .stored_chunk_bytes = 64 << 20},
         2,
         64 << 10},
        {{.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 << 10, .stored_chunk_bytes = UINT64_MAX / 2},
         2,
         64 << 10},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct sw_device *other = NULL;
        ck_assert_msg(sw_device_host_open(&other, &rows[i].config, &err) == 0, "%s", err.msg);
        const struct sw_device_info *info = other->ops->info(other);
        ck_assert_uint_eq(info->n_slots, rows[i].n_slots);
        ck_assert_uint_eq(info->chunk_bytes, rows[i].chunk_bytes);
        ck_assert_uint_le(info->scratch_bytes, rows[i].config.scratch_bytes);
        other->ops->close(other);
    }
}
END_TEST

START_TEST(test_sizes_follow_the_configuration) {
    static const struct sw_device_config good[] = {
        {.scratch_bytes = 64 << 20},
        {.scratch_bytes = 256 << 20},
        {.scratch_bytes = 64 << 20, .n_slots = 16},
        {.scratch_bytes = 64 << 20, .chunk_bytes = 24 << 20},
        {.scratch_bytes = 64 << 20, .n_slots = 3, .chunk_bytes = 32 << 10},
    };
    static const struct sw_device_config bad[] = {
        {.scratch_bytes = 1000},
        {.scratch_bytes = 64 << 20, .n_slots = 17},
        {.scratch_bytes = 64 << 20, .chunk_bytes = 1000},
        {.scratch_bytes = 64 << 20, .chunk_bytes = 64 << 20},
        {.scratch_bytes = 64 << 20, .n_slots = 4, .chunk_bytes = 16 << 20},
    };
    struct sw_device *other = NULL;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        ck_assert_msg(sw_device_host_open(&other, &good[i], &err) == 0, "%s", err.msg);
        const struct sw_device_info *info = other->ops->info(other);
        ck_assert_uint_le(info->scratch_bytes, good[i].scratch_bytes);
        ck_assert(good[i].n_slots == 0 || info->n_slots == good[i].n_slots);
        ck_assert(good[i].chunk_bytes == 0 || info->chunk_bytes == good[i].chunk_bytes);
        ck_assert_uint_eq(info->chunk_bytes % (32 << 10), 0);
        ck_assert_uint_gt(info->chunk_bytes, 0);
        ck_assert_uint_gt(info->group_items, 1);
        ck_assert_uint_gt(info->group_bytes, 2 * sw_group_item_bytes(4096));
        ck_assert_uint_le(info->group_bytes, sw_frame_bound_bytes(info->chunk_bytes));
        ck_assert_str_eq(info->name, "host");
        other->ops->close(other);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        ck_assert_int_eq(sw_device_host_open(&other, &bad[i], &err), -SW_EINVAL);
    for (unsigned long nth = 1;; nth++) {
        sw_alloc_fail_nth(nth);
        int rc = sw_device_host_open(&other, &good[4], &err);
        sw_alloc_fail_nth(0);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_ENOMEM);
        ck_assert_uint_lt(nth, 100);
    }
    other->ops->close(other);
}
END_TEST

/* In an engine's process: any memory, frame buffers that are the engine's, and no descriptor. */
START_TEST(test_a_guest_works_in_given_memory) {
    enum { SLOTS = 2 };
    const uint64_t stride = sw_device_frame_stride(CHUNK);
    uint8_t *frames = aligned_alloc(4096, SLOTS * stride), *data = malloc(2 * CHUNK);
    struct sw_device_config config = {.scratch_bytes = 64 << 20,
                                      .n_slots = SLOTS,
                                      .chunk_bytes = CHUNK,
                                      .frames = frames,
                                      .frames_bytes = SLOTS * stride,
                                      .is_guest = true};
    struct sw_mapping *mapping = NULL;
    struct sw_slot_result result;
    struct sw_frame_layout layout;
    const uint64_t scratch_bytes = device->ops->info(device)->scratch_bytes;
    device->ops->close(device);
    const unsigned n_fds = sw_count_fds();
    ck_assert_int_eq(sw_device_host_open(&device, &config, &err), 0);
    ck_assert_uint_eq(sw_count_fds(), n_fds);
    ck_assert_uint_le(device->ops->info(device)->scratch_bytes, scratch_bytes - SLOTS * CHUNK);
    ck_assert_uint_eq(device->ops->info(device)->buffer_bytes, stride);
    sw_content_fill(data, CHUNK, SW_CONTENT_TEXT, 1);
    ck_assert_int_eq(device->ops->adopt(device, data, 2 * CHUNK, &mapping, &err), 0);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    const uint64_t bytes = encode(1, mapping, 0, CHUNK, frame);
    ck_assert_int_eq(memcmp(frames + stride, frame, bytes), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, bytes, bytes, &err), 0);
    const struct sw_decode_item item = {
        .layout = &layout, .frame_at = (stride - bytes) / SW_FRAME_ALIGN * SW_FRAME_ALIGN, .offset = CHUNK};
    memcpy(frames + item.frame_at, frame, bytes); /* at the end of slot 0's */
    ck_assert_int_eq(device->ops->decode(device, 0, mapping, &item, 1, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    ck_assert_int_eq(memcmp(data, data + CHUNK, CHUNK), 0);
    device->ops->unmap(device, mapping);
    config.frames_bytes--;
    struct sw_device *none = NULL;
    ck_assert_int_eq(sw_device_host_open(&none, &config, &err), -SW_EINVAL);
    free(frame);
    device->ops->close(device);
    free(frames);
    free(data);
    setup(); /* for teardown() */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("device_host");
    TCase *tcase = tcase_create("device_host");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_frames_go_out_and_come_back_on_any_slot);
    tcase_add_test(tcase, test_frames_are_identified);
    tcase_add_test(tcase, test_a_failed_step_skips_the_rest_and_leaves_the_slot_usable);
    tcase_add_test(tcase, test_bad_descriptors_are_refused_by_name);
    tcase_add_test(tcase, test_a_full_descriptor_table_has_its_own_error);
    tcase_add_test(tcase, test_read_only_memory_is_only_read);
    tcase_add_test(tcase, test_sparse_memory_reads_as_zeros);
    tcase_add_test(tcase, test_changing_memory_makes_valid_frames);
    tcase_add_test(tcase, test_groups_go_out_and_come_back);
    tcase_add_test(tcase, test_a_groups_frames_equal_those_of_chunks);
    tcase_add_test(tcase, test_unwritable_memory_fails_its_group);
    tcase_add_test(tcase, test_holes_are_filled_for_raw_items_that_allow_it);
    tcase_add_test(tcase, test_holes_are_filled_for_group_items_that_allow_it);
    tcase_add_loop_test(tcase, test_raw_frames_equal_encoded_ones, 0, MAX_RAW_EXTENTS);
    tcase_add_test(tcase, test_damaged_raw_frames_are_not_written);
    tcase_add_test(tcase, test_raw_steps_can_be_failed);
    tcase_add_test(tcase, test_a_guest_works_in_given_memory);
    tcase_add_test(tcase, test_sizes_follow_the_configuration);
    tcase_add_test(tcase, test_sizes_leave_room_for_stored_frames);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
