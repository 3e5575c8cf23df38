#include "tests/lib/builds_rig.h"

#include "base/assert.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct sw_builds sw_builds;
static struct sw_packet_rig *const rig = &sw_builds.rig;

void sw_builds_open(void) {
    const size_t bytes = SW_BUILDS_MEMORY_BYTES;
    sw_packet_rig_open(rig, bytes);
    sw_builds.fds[0] = rig->fd;
    sw_builds.memory[0] = rig->memory;
    sw_builds.original[0] = rig->original;
    const int fd = sw_builds.fds[1] = memfd_create("builds", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(ftruncate(fd, (off_t)bytes) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    sw_builds.memory[1] = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    sw_builds.original[1] = malloc(bytes);
    SW_ASSERT(sw_builds.memory[1] != MAP_FAILED && sw_builds.original[1]);
    sw_content_fill(sw_builds.original[1], bytes, SW_CONTENT_RANDOM, 4);
    memcpy(sw_builds.memory[1], sw_builds.original[1], bytes);
    sw_packet_rig_add_memory(rig, SW_PACKET_RIG_MEM + 1, fd, bytes, false);
}

void sw_builds_close(void) {
    sw_packet_rig_close(rig);
    (void)munmap(sw_builds.memory[1], SW_BUILDS_MEMORY_BYTES);
    (void)close(sw_builds.fds[1]);
    free(sw_builds.original[1]);
}

void sw_builds_ck_memory(void) {
    for (unsigned i = 0; i < SW_BUILDS_MEMS; i++)
        ck_assert_mem_eq(sw_builds.memory[i], sw_builds.original[i], SW_BUILDS_MEMORY_BYTES);
}

void sw_builds_wipe(void) {
    for (unsigned i = 0; i < SW_BUILDS_MEMS; i++)
        memset(sw_builds.memory[i], 0, SW_BUILDS_MEMORY_BYTES);
}

void sw_builds_fill_again(void) {
    for (unsigned i = 0; i < SW_BUILDS_MEMS; i++)
        memcpy(sw_builds.memory[i], sw_builds.original[i], SW_BUILDS_MEMORY_BYTES);
}

int sw_builds_close_memory(uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}, .u.mem_close.mem = mem};
    return sw_packet_rig_call_msg(rig, &msg);
}

void sw_builds_ck_rest(unsigned n_regions, unsigned n_mems) {
    ck_assert_uint_le(sw_packet_rig_stats(rig).n_mapped, n_mems);
    while (sw_packet_rig_stats(rig).n_mems > n_mems) /* memory that was not mapped is closed later */
        (void)uv_run(&rig->service.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(sw_packet_rig_stats(rig).n_mems, n_mems);
    sw_packet_rig_check_rest(rig, n_regions, 0);
}

void sw_builds_make(struct sw_test_packet *ret, unsigned n, uint32_t flags) {
    sw_test_packet(ret, SW_MSG_BUILD, flags);
    for (unsigned i = 0; i < n; i++) {
        (void)sw_test_add_build(ret, NULL);
        (void)sw_test_add_buffer(ret, SW_BUILDS_BYTES, 0);
        (void)sw_test_add_chunk(ret, SW_PACKET_RIG_MEM, (uint64_t)i * SW_BUILDS_BYTES, SW_BUILDS_BYTES);
    }
}

void sw_builds_make_reads(struct sw_test_packet *ret, unsigned n, uint32_t flags, unsigned read_flags) {
    struct sw_region_id ids[SW_PROTO_MAX_ITEMS];
    for (unsigned i = 0; i < n; i++)
        ids[i] = sw_test_result_id(&rig->reply, i);
    sw_test_packet(ret, SW_MSG_READ, flags);
    for (unsigned i = 0; i < n; i++) {
        (void)sw_test_add_read(ret, ids[i], read_flags);
        (void)sw_test_add_room(ret, SW_PACKET_RIG_MEM, (uint64_t)i * SW_BUILDS_BYTES, SW_BUILDS_BYTES);
    }
}

void sw_builds_drop_all(void) {
    struct sw_owner *owner = rig->session->owner;
    while (!sw_list_empty(&owner->regions))
        ck_assert_int_eq(sw_engine_drop(owner, SW_CONTAINER_OF(owner->regions.next, struct sw_region, node)->id, NULL),
                         0);
}

void sw_builds_discard_all(unsigned n) {
    static struct sw_test_packet packet;
    sw_test_packet(&packet, SW_MSG_DISCARD, 0);
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, sw_test_result_id(&rig->reply, i));
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
}
