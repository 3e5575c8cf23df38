/* Lists of durable regions by their names, in several packets. */
#include "spill/engine_state.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/open_builds.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

enum { N_NAMES = 300, NAME_BYTES = 16 };

/* Their order is not that in which they are built. */
static const char *name_of(unsigned i, char ret[NAME_BYTES]) {
    (void)snprintf(ret, NAME_BYTES, "name %03u", i * 7 % N_NAMES);
    return ret;
}

static void build_names(void) {
    char name[NAME_BYTES];
    for (unsigned i = 0; i < N_NAMES;) {
        new_packet(0);
        for (unsigned k = 0; k < 100; k++, i++) {
            sw_test_add_build(&packet, name_of(i, name))->build = NUMBER + i;
            add_buffer(1 + i, 0);
            (void)add_chunk(0, 0, 1 + i);
        }
        ck_assert_int_eq(call(), 0);
    }
}

START_TEST(durable_regions_are_listed_by_their_names) {
    const uint32_t max = _i ? SW_PROTO_MAX_ITEMS : 7;
    char after[SW_PROTO_NAME_BYTES] = "", name[NAME_BYTES];
    unsigned n = 0;
    ck_assert_int_eq(list("", max), 0);
    ck_assert_uint_eq(rig.reply.u.listing.n_items, 0);
    build_names();
    do {
        ck_assert_int_eq(list(after, max), 0);
        ck_assert_uint_eq(rig.reply.u.listing.n_items, N_NAMES - n < max ? N_NAMES - n : max);
        for (unsigned i = 0; i < rig.reply.u.listing.n_items; i++, n++) {
            const struct sw_wire_listed *item = &rig.reply.u.listing.items[i];
            (void)snprintf(name, sizeof name, "name %03u", n);
            ck_assert_str_eq(item->name, name);
            memcpy(after, item->name, sizeof after);
            ck_assert_str_eq(name_of((unsigned)item->raw_bytes - 1, name), after);
            ck_assert(item->gen && strcmp(item->state, "out") == 0 && strcmp(item->tier, "host") == 0);
            struct sw_region_info info;
            const struct sw_region_id id = {item->slot, item->gen};
            ck_assert_int_eq(sw_engine_query(rig.session->owner, id, &info, NULL), 0);
            ck_assert(item->stored_bytes == info.stored_bytes && info.stored_bytes != item->raw_bytes);
        }
    } while (n < N_NAMES);
    ck_assert_int_eq(list(after, max), 0);
    ck_assert_uint_eq(rig.reply.u.listing.n_items, 0);
}
END_TEST

/* A name is taken from the begin of its build on. Only the session itself sees that it has the region. */
START_TEST(a_list_describes_its_regions) {
    struct sw_session *first = rig.session;
    const int first_peer = rig.peer;
    bool closed;
    new_packet(0);
    sw_test_add_build(&packet, "open")->flags = SW_BUILD_BEGIN;
    add_buffer(STEP, STEP);
    (void)sw_test_add_build(&packet, "there");
    add_buffer(STEP, 0);
    (void)add_chunk(0, 0, STEP);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 1);
    static struct sw_tier disk = {.kind = &sw_tier_nvme_kind};
    struct sw_region *region;
    ck_assert_int_eq(sw_engine_find(rig.session->owner, id, &region, NULL), 0);
    region->kept = 1; /* as if a disk had them, too */
    region->keeper = &disk;
    ck_assert_int_eq(list("", 2), 0);
    region->kept = 0;
    region->keeper = NULL;
    ck_assert(rig.reply.u.listing.items[0].durability == SW_DURABILITY_SERVICE &&
              rig.reply.u.listing.items[1].durability == (uint32_t)sw_tier_nvme_kind.durability);
    const struct sw_wire_listed *items = rig.reply.u.listing.items;
    ck_assert_uint_eq(rig.reply.u.listing.n_items, 2);
    ck_assert(strcmp(items[0].name, "open") == 0 && strcmp(items[0].state, "staging") == 0);
    ck_assert(strcmp(items[1].name, "there") == 0 && items[1].slot == id.slot && items[1].gen == id.gen);
    rig.session = sw_test_service_session(&rig.service, &rig.peer, &closed);
    rig.session->version = SW_PROTO_VERSION;
    ck_assert_int_eq(list("open", 1), 0);
    items = rig.reply.u.listing.items;
    ck_assert(rig.reply.u.listing.n_items == 1 && strcmp(items[0].name, "there") == 0);
    ck_assert(items[0].gen == 0 && items[0].slot == 0);
    sw_session_close(rig.session, "test");
    while (!closed)
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    (void)close(rig.peer);
    rig.session = first;
    rig.peer = first_peer;
}
END_TEST

START_TEST(invalid_lists_are_refused) {
    struct sw_msg msg = {.header.type = SW_MSG_LIST, .u.list.max = 1};
    ck_assert_int_eq(list("", 0), -SW_EINVAL);
    ck_assert_int_eq(list("", SW_PROTO_MAX_ITEMS + 1), -SW_EINVAL);
    memset(msg.u.list.after, 'a', sizeof msg.u.list.after);
    (void)sw_packet_rig_send(&rig, &msg, NULL, 0);
    ck_assert_int_eq(sw_packet_rig_await(&rig), -SW_EINVAL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("lists of regions");
    TCase *tcase = tcase_create("lists of regions");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, durable_regions_are_listed_by_their_names, 0, 2);
    tcase_add_test(tcase, a_list_describes_its_regions);
    tcase_add_test(tcase, invalid_lists_are_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
