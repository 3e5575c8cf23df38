/* The host device by its own contract: slots, memory of all sorts of bad descriptors, clients that misbehave, sizes. */
#include "base/alloc.h"
#include "codec/identity.h"
#include "codec/plan/planning.h"
#include "codec/sample.h"
#include "spill/device/device.h"
#include "spill/device/memfd.h"
#include "tests/lib/content.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/host_device.h"
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

/* Frames in a client's memory, at any place and of any length, and in the slot's buffer, which is not changed. */
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

/* Steps are done in the order in which they were queued, however many wait. */
START_TEST(test_many_steps_keep_their_order) {
    enum { MANY = 60 };
    struct sw_memory memory = sw_memory_new(CHUNK);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK)), values[MANY], again[MANY];
    struct sw_plan raw;
    struct sw_slot_result result;
    sw_plan_init_raw(&raw);
    (void)encode(0, mapping, 0, CHUNK, frame); /* the queue's first place is not its beginning then */
    ck_assert_int_eq(device->ops->encode(device, 0, &raw, mapping, 0, CHUNK, &err), 0); /* takes a while */
    for (unsigned i = 0; i < MANY; i++) {
        values[i] = (uint8_t)(i + 1);
        ck_assert_int_eq(device->ops->load(device, 0, &values[i], i, 1, &err), 0);
    }
    ck_assert_int_eq(device->ops->store(device, 0, again, 0, MANY, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    ck_assert_mem_eq(again, values, MANY);
    device->ops->unmap(device, mapping);
    free(frame);
    sw_memory_free(&memory);
}
END_TEST

/* A frame is reported once, with the steps that have made it. */
START_TEST(test_a_result_is_reported_once) {
    struct sw_memory memory = sw_memory_new(CHUNK);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct sw_plan raw;
    struct sw_slot_result result;
    uint8_t byte;
    sw_plan_init_raw(&raw);
    ck_assert_int_eq(device->ops->encode(device, 0, &raw, mapping, 0, CHUNK, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    ck_assert_uint_eq(result.frame.raw_bytes, CHUNK);
    ck_assert_int_eq(device->ops->store(device, 0, &byte, 0, 1, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    ck_assert_uint_eq(result.frame.raw_bytes, 0);
    device->ops->unmap(device, mapping);
    sw_memory_free(&memory);
}
END_TEST

/* A step that finds no place in the queue leaves nothing behind (teardown() counts), and those before it are done. */
START_TEST(test_a_queue_that_cannot_grow_refuses_steps) {
    struct sw_memory memory = sw_memory_new(CHUNK);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct sw_plan raw;
    struct sw_slot_result result;
    int rc = 0;
    sw_plan_init_raw(&raw);
    for (unsigned i = 0; !rc && i < 10000; i++) {
        sw_alloc_fail_nth(2); /* the plan's copy is the first */
        rc = device->ops->encode(device, 0, &raw, mapping, 0, CHUNK, &err);
        sw_alloc_fail_nth(0);
    }
    ck_assert_int_eq(rc, -SW_ENOMEM);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    ck_assert_uint_eq(result.frame.raw_bytes, CHUNK);
    device->ops->unmap(device, mapping);
    sw_memory_free(&memory);
}
END_TEST

/* The plan is the one that anybody would make of these bytes: of a long region it learns from each of its parts. _i:
 * with a dictionary. */
START_TEST(test_a_plan_is_made_of_all_parts) {
    enum { BYTES = 33 << 20, PARTS = 2 };
    static uint8_t samples[SW_SAMPLE_MOST_PARTS * SW_SAMPLE_MAX_BYTES];
    static struct sw_frame_dictionary dictionary;
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct sw_slot_result result;
    struct sw_planning p;
    for (size_t i = 0; i < PARTS; i++)
        sw_content_fill(memory.data + i * (BYTES / PARTS), BYTES / PARTS, i ? SW_CONTENT_HEX : SW_CONTENT_TEXT, 1);
    sw_planning_begin(&p, SW_VALUE_NONE, BYTES, false, _i ? &dictionary : NULL);
    while (p.step != SW_PLANNING_DONE) {
        for (unsigned i = 0; i < p.n_parts; i++) {
            const struct sw_sample_part part = sw_sample_part(BYTES, p.n_parts, i);
            (void)sw_sample_gather(samples + i * SW_SAMPLE_MAX_BYTES, memory.data + part.offset, part.bytes,
                                   p.piece_bytes);
        }
        sw_planning_learn(&p, samples);
    }
    ck_assert_uint_eq(p.n_parts, _i ? PARTS : 1);
    ck_assert_int_eq(device->ops->make_plan(device, 0, SW_VALUE_NONE, _i, mapping, 0, BYTES, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    const struct sw_plan *plan = device->ops->plan(device, 0);
    ck_assert_int_eq(plan->codec, p.plan.codec);
    ck_assert_double_eq(plan->expected_ratio, p.plan.expected_ratio);
    ck_assert_int_eq(plan->dictionary != NULL, p.plan.dictionary != NULL);
    if (plan->dictionary) {
        ck_assert_uint_eq(plan->dictionary->bytes, dictionary.bytes);
        ck_assert_mem_eq(plan->dictionary->data, dictionary.data, dictionary.bytes);
    }
    device->ops->unmap(device, mapping);
    sw_memory_free(&memory);
}
END_TEST

/* The frame of a chunk of text, or of its beginning. */
struct one_frame {
    struct sw_memory memory;
    struct sw_mapping *mapping;
    uint8_t *frame;
    uint64_t bytes;
    struct sw_frame_layout layout;
};

static struct one_frame one_frame_of(uint64_t raw_bytes) {
    struct one_frame f = {.memory = sw_memory_new(CHUNK), .frame = malloc(sw_frame_bound_bytes(CHUNK))};
    f.mapping = sw_memory_map(device, &f.memory);
    sw_content_fill(f.memory.data, CHUNK, SW_CONTENT_TEXT, 1);
    f.bytes = encode(0, f.mapping, 0, raw_bytes, f.frame);
    ck_assert_int_eq(sw_frame_parse(&f.layout, f.frame, f.bytes, f.bytes, &err), 0);
    return f;
}

static void one_frame_free(struct one_frame *f) {
    device->ops->unmap(device, f->mapping);
    free(f->frame);
    sw_memory_free(&f->memory);
}

/* A frame that is whole, but not as long as the chunk. */
START_TEST(test_a_frame_of_another_length_is_refused) {
    struct one_frame f = one_frame_of(CHUNK - 100);
    struct sw_slot_result result;
    f.layout.raw_bytes = CHUNK;
    memset(f.memory.data, 7, CHUNK);
    ck_assert_int_eq(device->ops->load(device, 0, f.frame, 0, f.bytes, &err), 0);
    ck_assert_int_eq(device->ops->decode(device, 0, f.mapping, &(struct sw_decode_item){.layout = &f.layout}, 1, &err),
                     0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_EFRAME);
    for (unsigned i = 0; i < CHUNK; i++)
        ck_assert_uint_eq(f.memory.data[i], 7);
    one_frame_free(&f);
}
END_TEST

/* A page that is missing is made only if the client said so; what one step may do, the next one may not. */
START_TEST(test_decoding_fills_holes_only_if_it_may) {
    struct one_frame f = one_frame_of(CHUNK);
    struct sw_slot_result result;
    for (unsigned i = 0; i < 4 && !device->ops->info(device)->is_unguarded; i++) {
        const struct sw_decode_item item = {.layout = &f.layout, .may_fill_holes = i % 2};
        ck_assert_int_eq(fallocate(f.memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, CHUNK), 0);
        ck_assert_int_eq(device->ops->load(device, 0, f.frame, 0, f.bytes, &err), 0);
        ck_assert_int_eq(device->ops->decode(device, 0, f.mapping, &item, 1, &err), 0);
        ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), i % 2 ? 0 : -SW_EUNALLOCATED);
    }
    one_frame_free(&f);
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

START_TEST(test_mapping_takes_the_descriptor_and_needs_no_other) {
    struct sw_memory memory = sw_memory_new(8192);
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mapping *mapping = NULL;
    sw_leave_fds(0);
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), 0);
    ck_assert_int_eq(desc.fds[0], -1);
    sw_leave_all_fds();
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

/* Opened only for writing, or only for reading: its owner may not do with it what was asked for. The writer without a
 * guard is that of memory whose holes may be filled. */
START_TEST(test_descriptors_allow_what_they_were_opened_for) {
    struct sw_memory memory = sw_memory_new(10000);
    struct sw_memfd_writer writer = {.may_fill_holes = true};
    struct sw_slot_result result;
    char path[64], content[100] = {0};
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", memory.fd);
    const struct sw_memory write_only = {.fd = open(path, O_WRONLY | O_CLOEXEC), .bytes = memory.bytes};
    const int read_only = open(path, O_RDONLY | O_CLOEXEC);
    ck_assert(write_only.fd >= 0 && read_only >= 0);
    struct sw_mapping *mapping = sw_memory_map(device, &write_only);
    ck_assert_int_eq(device->ops->make_plan(device, 0, SW_VALUE_NONE, false, mapping, 0, memory.bytes, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_EACCES);
    device->ops->unmap(device, mapping);
    ck_assert_int_eq(sw_memfd_read(write_only.fd, content, sizeof content, 0, &err), -SW_EACCES);
    ck_assert_int_eq(sw_memfd_write(&writer, write_only.fd, content, sizeof content, 0, &err), 0);
    ck_assert_int_eq(sw_memfd_write(&writer, read_only, content, sizeof content, 0, &err), -SW_EACCES);
    ck_assert_int_eq(sw_memfd_read(read_only, content, sizeof content, 0, &err), 0);
    sw_memfd_writer_end(&writer);
    (void)close(write_only.fd);
    (void)close(read_only);
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
    Suite *suite = suite_create("host device");
    TCase *tcase = tcase_create("host device");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_frames_go_out_and_come_back_on_any_slot);
    tcase_add_test(tcase, test_frames_are_identified);
    tcase_add_test(tcase, test_a_failed_step_skips_the_rest_and_leaves_the_slot_usable);
    tcase_add_test(tcase, test_many_steps_keep_their_order);
    tcase_add_test(tcase, test_a_result_is_reported_once);
    tcase_add_test(tcase, test_a_queue_that_cannot_grow_refuses_steps);
    tcase_add_loop_test(tcase, test_a_plan_is_made_of_all_parts, 0, 2);
    tcase_add_test(tcase, test_a_frame_of_another_length_is_refused);
    tcase_add_test(tcase, test_decoding_fills_holes_only_if_it_may);
    tcase_add_test(tcase, test_bad_descriptors_are_refused_by_name);
    tcase_add_test(tcase, test_mapping_takes_the_descriptor_and_needs_no_other);
    tcase_add_test(tcase, test_read_only_memory_is_only_read);
    tcase_add_test(tcase, test_descriptors_allow_what_they_were_opened_for);
    tcase_add_test(tcase, test_sparse_memory_reads_as_zeros);
    tcase_add_test(tcase, test_changing_memory_makes_valid_frames);
    tcase_add_test(tcase, test_a_guest_works_in_given_memory);
    tcase_add_test(tcase, test_sizes_follow_the_configuration);
    tcase_add_test(tcase, test_sizes_leave_room_for_stored_frames);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
