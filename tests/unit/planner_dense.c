/* Whether a run's text gets a plan with a dictionary, as a table of goals, room and rates; and how many are kept. */
#include "spill/planner/dense.h"
#include "tests/lib/run.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)
#define GB 1e9
#define NONE SW_PREFER_NONE
#define TIME SW_PREFER_TIME
#define ROOM SW_PREFER_ROOM
#define WAITS SW_DENSE_WAITS
#define LATER SW_DENSE_LATER

static struct sw_planner planner;

struct goal {
    const char *name;
    enum sw_prefer prefer;
    uint64_t raw_bytes, memory_bytes; /* the text's length; the room that memory has */
    double disk;                      /* GB a second; 0: there is none */
    bool is_unmeasured;               /* how fast the disk writes */
    bool has_link;
    enum sw_dense choice;
    double encode, dense_encode; /* the usual codec's, and the denser one's, GB a second; 0: not measured */
    enum sw_value_type type;
    bool is_pack, takes_none, learns;
};

static const struct goal goals[] = {
    {"memory behind a link", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .encode = 700},
    {"memory behind a link, the GPU learns", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 64 * GIB, .disk = 3,
     .has_link = true, .choice = LATER, .encode = 700, .learns = true},
    {"numbers to memory, the GPU learns", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 64 * GIB, .has_link = true,
     .encode = 700, .type = SW_VALUE_U32, .learns = true},
    {"to a disk as fast as the link, the GPU learns", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 400,
     .has_link = true, .encode = 700, .learns = true},
    {"memory of the host device", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 64 * GIB, .disk = 3},
    {"room is preferred", ROOM, .raw_bytes = 64 * MIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .choice = WAITS, .encode = 700},
    {"room is preferred, no link", ROOM, .raw_bytes = 64 * MIB, .memory_bytes = 64 * GIB, .choice = WAITS},
    {"too short for a dictionary", ROOM, .raw_bytes = 2 * MIB - 1, .memory_bytes = 64 * GIB, .disk = 3,
     .has_link = true, .encode = 700},
    {"just long enough", ROOM, .raw_bytes = 2 * MIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .choice = WAITS, .encode = 700},
    {"to a slow disk", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3, .has_link = true, .choice = LATER,
     .encode = 700},
    {"to a slow disk, the denser encoder is slow", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3,
     .has_link = true, .encode = 700, .dense_encode = 5},
    {"to a slow disk, for time", TIME, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3, .has_link = true,
     .choice = LATER, .encode = 700},
    {"to a slow disk, nothing is measured", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3, .has_link = true,
     .choice = LATER},
    {"to a disk of an unknown rate", NONE, .raw_bytes = 8 * GIB, .disk = 3, .is_unmeasured = true, .has_link = true,
     .encode = 700},
    {"to a slow disk, one short region", NONE, .raw_bytes = 64 * MIB, .memory_bytes = 0, .disk = 3, .has_link = true,
     .encode = 700},
    {"to a disk as fast as the link", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 400, .has_link = true,
     .encode = 700},
    {"to a slow disk, but others keep the GPU busy", NONE, .raw_bytes = 8 * GIB, .memory_bytes = 0, .disk = 3,
     .has_link = true, .encode = 5},
    {"to a disk, no link", NONE, .raw_bytes = 64 * MIB, .memory_bytes = 0, .disk = 3, .choice = WAITS},
    {"to a disk, no link, for time", TIME, .raw_bytes = 64 * MIB, .memory_bytes = 0, .disk = 3},
    {"to a disk, no link, a short region", NONE, .raw_bytes = 8 * MIB, .memory_bytes = 0, .disk = 3},
    {"memory is nearly full", NONE, .raw_bytes = GIB, .memory_bytes = GIB - 1, .has_link = true, .choice = WAITS,
     .encode = 700},
    {"memory is nearly full, for time", TIME, .raw_bytes = GIB, .memory_bytes = GIB - 1, .has_link = true,
     .encode = 700},
    {"memory is nearly full, a short region", NONE, .raw_bytes = 8 * MIB, .memory_bytes = 8 * MIB - 1, .has_link = true,
     .encode = 700},
    {"numbers for room", ROOM, .raw_bytes = GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true, .choice = WAITS,
     .encode = 700, .type = SW_VALUE_U32},
    {"numbers to a slow disk", NONE, .raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700,
     .type = SW_VALUE_U32},
    {"a pack", ROOM, .raw_bytes = GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true, .encode = 700,
     .is_pack = true},
    {"a device without dictionaries", ROOM, .raw_bytes = GIB, .memory_bytes = 64 * GIB, .disk = 3, .has_link = true,
     .encode = 700, .takes_none = true},
};

static struct sw_snapshot snapshot_of(const struct goal *g) {
    struct sw_snapshot now = {.type = g->type,
                              .is_pack = g->is_pack,
                              .raw_bytes = g->raw_bytes,
                              .chunk_bytes = 16 * MIB,
                              .n_chunks = (g->raw_bytes + 16 * MIB - 1) / (16 * MIB)};
    now.room = (struct sw_room){.memory_bytes = g->memory_bytes, .allowed_bytes = UINT64_MAX, .prefer = g->prefer};
    if (g->disk > 0) {
        now.room.n_behind = 1;
        now.room.behind[0] = (struct sw_room_place){
            .bytes = UINT64_MAX, .write = g->is_unmeasured ? 0 : g->disk * GB, .read = g->disk * GB};
    }
    return now;
}

static void init(const struct goal *g) {
    planner = (struct sw_planner){
        .n_slots = 4, .has_link = g->has_link, .takes_dictionaries = !g->takes_none, .learns_dictionaries = g->learns};
    for (int i = 0; i < SW_COST_CLASSES; i++) {
        struct sw_cost_class *c = &planner.costs[i];
        c->encode[SW_CODEC_RAW] = (struct sw_meter){.bytes = 2000 * GB, .us = 1e6};
        c->encode[SW_CODEC_V5T] = (struct sw_meter){.bytes = g->encode * GB, .us = 1e6};
        c->encode[SW_CODEC_ONPAIR] = (struct sw_meter){.bytes = g->dense_encode * GB, .us = 1e6};
        c->link_out = c->direct_out = (struct sw_meter){.bytes = 55 * GB, .us = 1e6};
    }
}

static enum sw_dense choose(uint64_t key, const struct sw_snapshot *now) {
    double gain_s = 0;
    const enum sw_dense choice = sw_dense_choose(&planner, key, now, &gain_s);
    ck_assert_int_eq(gain_s > 0, choice == SW_DENSE_COLUMN);
    return choice;
}

START_TEST(a_goal_decides) {
    const struct goal *g = &goals[_i];
    const struct sw_snapshot now = snapshot_of(g);
    init(g);
    const enum sw_dense choice = choose(sw_plan_key(1, g->type, 0), &now);
    ck_assert_msg(choice == g->choice, "%s: %d", g->name, choice);
}
END_TEST

/* Only raw frames that find no room before a store go there. */
START_TEST(a_store_is_known_by_the_room_before_it) {
    struct sw_room room = {.memory_bytes = MIB, .n_behind = 2, .allowed_bytes = UINT64_MAX};
    room.behind[0] = (struct sw_room_place){.bytes = 2 * MIB};
    room.behind[1] = (struct sw_room_place){.bytes = 4 * MIB, .is_store = true};
    for (uint64_t mib = 1; mib <= 5; mib++)
        ck_assert_int_eq(sw_planner_goes_to_store(&room, mib * MIB), mib == 3 || mib == 4);
}
END_TEST

/* Short regions for a slow disk: the dictionary is learned when together they would have gained its price. */
START_TEST(short_regions_pay_together) {
    const struct goal g = {.raw_bytes = 64 * MIB, .disk = 3, .has_link = true, .encode = 700};
    const struct sw_snapshot now = snapshot_of(&g);
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes};
    struct sw_plan_choice choice = {0};
    unsigned n = 1;
    init(&g);
    while (choose(key, &now) == SW_DENSE_NOT)
        ck_assert_uint_lt(n++, 100);
    ck_assert_uint_gt(n, 3);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice, &plan);
    ck_assert_int_eq(choose(key, &now), WAITS); /* the kept one costs nothing */
    ck_assert_int_eq(choose(sw_plan_key(2, SW_VALUE_NONE, 0), &now), SW_DENSE_NOT);
}
END_TEST

/* How far a run has come when its denser plan is learned. */
struct moment {
    const char *name;
    size_t n_dealt;
    double usual_ratio, dense_ratio;
    bool is_planned; /* its usual plan is there */
    bool learns, switches;
};

static const struct moment moments[] = {
    {"before the usual plan", 0, 3, 4, .learns = false},
    {"before the first chunk", 0, 3, 4, .is_planned = true},
    {"after the first chunk", 1, 3, 4, .is_planned = true, .learns = true, .switches = true},
    {"the usual plan is raw", 1, 1, 4, .is_planned = true},
    {"it shrinks text no more than the usual one", 1, 2.1, 2.1, .is_planned = true, .learns = true},
    {"nothing is left", 512, 3, 4, .is_planned = true},
};

/* A long region for a slow disk begins with a usual plan, learns a denser one once, and changes to it if what is left
 * gains by it. The next region begins with it. */
START_TEST(a_long_region_learns_meanwhile) {
    const struct moment *c = &moments[_i];
    const struct goal g = {.raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan;
    struct sw_course course = {.plan_key = key, .plan = &plan};
    const struct sw_plan usual = {.codec = c->usual_ratio > 1 ? SW_CODEC_V5T : SW_CODEC_RAW,
                                  .expected_ratio = c->usual_ratio,
                                  .raw_bytes = g.raw_bytes},
                         dense = {.codec = SW_CODEC_ONPAIR, .expected_ratio = c->dense_ratio, .raw_bytes = g.raw_bytes};
    init(&g);
    ck_assert(!sw_planner_begin(&planner, &course, &now));
    ck_assert_uint_eq(course.plan_key, key);
    now.is_running = true;
    if (c->is_planned)
        sw_planner_take_plan(&planner, &course, &now, 0, &usual);
    now.n_dealt = c->n_dealt;
    ck_assert_msg(sw_planner_learns_now(&planner, &course, &now) == c->learns, "%s", c->name);
    if (!c->learns)
        return;
    const unsigned number = course.plan_number;
    now.n_dealt = 20;
    sw_planner_take_denser(&planner, &course, &now, &dense);
    ck_assert_msg((plan.codec == SW_CODEC_ONPAIR) == c->switches, "%s", c->name);
    ck_assert_msg((course.plan_number > number) == c->switches, "%s", c->name); /* frames under way are another one's */
    ck_assert(!sw_planner_learns_now(&planner, &course, &now));
    now.n_dealt = 0;
    course = (struct sw_course){.plan_key = key, .plan = &plan};
    (void)sw_planner_begin(&planner, &course, &now);
    ck_assert_int_eq(sw_plan_key_is_dense(course.plan_key), c->switches);
}
END_TEST

/* The rest of a run to memory, by the usual plan of ratio 3 so far, on a GPU that learns. */
struct rest {
    const char *name;
    uint64_t bytes;
    double link, encode, dense_encode; /* GB a second; 0: not measured */
    double plan_s;                     /* a plan took so long; 0: none has been made */
    bool is_dense;                     /* it goes by a dictionary, which is to be replaced */
    bool learns, asks_again;
};

static const struct rest rests[] = {
    {"long", 8 * GIB, 55, 700, 0, .learns = true},
    {"no longer than two plans", 2 * GIB, 55, 700, .learns = false},
    {"a slow link", GIB, 12, 700, 0, .learns = true},
    {"plans took long", 8 * GIB, 55, 700, .plan_s = 0.03},
    {"no chunk has crossed the link yet", 8 * GIB, 0, 700, 0, .asks_again = true},
    {"no chunk has been encoded yet", 8 * GIB, 55, 0, 0, .asks_again = true},
    {"the encoder is hardly faster than the link", 8 * GIB, 55, 200, .learns = false},
    {"the denser encoder is too slow", 8 * GIB, 55, 700, .dense_encode = 150},
    {"another dictionary", 4 * GIB, 55, 700, .dense_encode = 150, .is_dense = true, .learns = true},
    {"another dictionary, too late", GIB, 55, 700, .dense_encode = 350, .is_dense = true},
    {"a link that needs no compression", 8 * GIB, 450, 700, .learns = false},
};

START_TEST(what_is_left_must_be_worth_learning) {
    const struct rest *c = &rests[_i];
    const struct goal g = {.raw_bytes = c->bytes,
                           .memory_bytes = 64 * GIB,
                           .has_link = true,
                           .encode = c->encode,
                           .dense_encode = c->dense_encode,
                           .learns = true};
    struct sw_snapshot now = snapshot_of(&g);
    static struct sw_frame_dictionary old;
    struct sw_plan plan = {.codec = c->is_dense ? SW_CODEC_ONPAIR : SW_CODEC_V5T,
                           .expected_ratio = 3,
                           .raw_bytes = g.raw_bytes,
                           .dictionary = c->is_dense ? &old : NULL};
    struct sw_course course = {.plan_key = sw_plan_key(1, SW_VALUE_NONE, 0) | (c->is_dense ? SW_PLAN_KEY_DENSE : 0),
                               .plan = &plan,
                               .plan_state = SW_PLAN_STATE_SETTLED,
                               .learning = SW_LEARNING_WANTED};
    init(&g);
    for (int i = 0; i < SW_COST_CLASSES; i++)
        planner.costs[i].link_out = planner.costs[i].direct_out = (struct sw_meter){.bytes = c->link * GB, .us = 1e6};
    planner.plan_s[true] = c->plan_s;
    now.is_running = true;
    now.n_dealt = 4;
    ck_assert_msg(sw_planner_learns_now(&planner, &course, &now) == c->learns, "%s", c->name);
    ck_assert_msg((course.learning == SW_LEARNING_WANTED) == (c->learns || c->asks_again), "%s", c->name);
}
END_TEST

/* To memory a kept dictionary is used by long regions, and where it saves time: not by a slow encoder, or beside others
 * that have kept the GPU busy since its rate was measured. Of short ones each column has its own. */
START_TEST(memory_is_for_time) {
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan usual = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = GIB},
                         plan = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = GIB};
    for (int i = 0; i < 4; i++) {
        const struct goal g = {.raw_bytes = i == 1 ? GIB : 8 * GIB,
                               .memory_bytes = 64 * GIB,
                               .has_link = true,
                               .encode = i == 3 ? 80 : 700,
                               .dense_encode = i == 2 ? 150 : 350,
                               .learns = true};
        const struct sw_snapshot now = snapshot_of(&g);
        struct sw_plan_choice choice = {0};
        init(&g);
        sw_plan_cache_put(&planner.plans, key, g.raw_bytes, &(struct sw_plan_choice){0}, &usual);
        sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice, &plan);
        ck_assert_int_eq(choose(key, &now), i == 0 ? SW_DENSE_KEPT : i == 1 ? SW_DENSE_COLUMN : SW_DENSE_NOT);
    }
}
END_TEST

static const struct goal short_text = {.raw_bytes = 256 * MIB,
                                       .memory_bytes = 64 * GIB,
                                       .has_link = true,
                                       .encode = 700,
                                       .dense_encode = 400,
                                       .learns = true};
enum { LEARNING_US = 6000, PLAN_US = 500, MOST_REGIONS = 50 };
static const struct sw_plan short_usual = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = 256 * MIB};

static struct sw_plan short_denser(const struct sw_frame_dictionary *dictionary) {
    return (struct sw_plan){
        .codec = SW_CODEC_ONPAIR, .expected_ratio = 4.2, .raw_bytes = 256 * MIB, .dictionary = dictionary};
}

static void init_measured(const struct goal *g) {
    init(g);
    sw_planner_observe_plan(&planner, true, LEARNING_US);
    sw_planner_observe_plan(&planner, false, PLAN_US);
}

static void init_short(void) {
    init_measured(&short_text);
}

/* Begins regions until one is to learn. Returns how many have not. */
static unsigned regions_before_learning(struct sw_course *course, const struct sw_snapshot *now, uint64_t key) {
    struct sw_plan *plan = course->plan;
    for (unsigned n = 0; n < MOST_REGIONS; n++) {
        *course = (struct sw_course){.plan_key = key, .plan = plan};
        if (!sw_planner_begin(&planner, course, now) && sw_plan_key_is_dense(course->plan_key))
            return n;
        ck_assert_uint_eq(course->plan_key, key);
        if (course->plan_state == SW_PLAN_STATE_MISSING) /* the usual plan is due */
            sw_planner_take_plan(&planner, course, now, 0, &short_usual);
        ck_assert_ptr_null(plan->dictionary);
    }
    return MOST_REGIONS;
}

/* A region waits for a dictionary once those before it would have gained what it costs. Then all of its column use it,
 * without a new usual plan. */
START_TEST(a_column_of_short_regions_learns_once) {
    static struct sw_frame_dictionary learned;
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan denser = short_denser(&learned);
    const struct sw_snapshot now = snapshot_of(&short_text);
    struct sw_plan plan;
    struct sw_course course = {.plan = &plan};
    init_short();
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &(struct sw_plan_choice){0}, &short_usual);
    const unsigned n = regions_before_learning(&course, &now, key);
    ck_assert_uint_gt(n, 5);
    ck_assert_uint_lt(n, MOST_REGIONS);
    sw_planner_take_plan(&planner, &course, &now, 0, &denser);
    ck_assert_ptr_eq(plan.dictionary, &learned);
    for (unsigned i = 0; i < MOST_REGIONS; i++) {
        course = (struct sw_course){.plan_key = key, .plan = &plan};
        ck_assert(sw_planner_begin(&planner, &course, &now));
        ck_assert_ptr_eq(plan.dictionary, &learned);
    }
    /* Others do not: another session, another place in a request. */
    ck_assert_int_eq(choose(sw_plan_key(2, SW_VALUE_NONE, 0), &now), SW_DENSE_LATER);
    ck_assert_int_eq(choose(sw_plan_key(1, SW_VALUE_NONE, 1), &now), SW_DENSE_LATER);
}
END_TEST

/* If a dictionary would not shrink the column more, that is learned once. */
START_TEST(a_column_without_a_dictionary_learns_no_more) {
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_snapshot now = snapshot_of(&short_text);
    struct sw_plan plan;
    struct sw_course course = {.plan = &plan};
    init_short();
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &(struct sw_plan_choice){0}, &short_usual);
    ck_assert_uint_lt(regions_before_learning(&course, &now, key), MOST_REGIONS);
    sw_planner_take_plan(&planner, &course, &now, 0, &short_usual);
    ck_assert_uint_eq(regions_before_learning(&course, &now, key), MOST_REGIONS);
}
END_TEST

/* Keeps a column's usual plan and its denser one. Returns the choice of the usual one. */
static struct sw_plan_choice keep_pair(uint64_t key, const struct sw_frame_dictionary *dictionary) {
    const struct sw_plan denser = short_denser(dictionary);
    struct sw_plan_choice of_usual = {0}, of_denser = {0};
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &of_usual, &short_usual);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, short_text.raw_bytes, &of_denser, &denser);
    sw_plan_cache_link(&planner.plans, key, sw_plan_cache_wish_denser(&planner.plans, key, &of_usual, 1, 1), &of_denser,
                       &denser);
    return of_usual;
}

/* The region's first frame, by this codec, shows that it is the other column's turn. */
static void show_the_other_column(struct sw_course *course, struct sw_snapshot *now, enum sw_codec_id codec) {
    const struct sw_frame_layout poor = {.codec = codec, .raw_bytes = 16 * MIB, .frame_bytes = 11 * MIB};
    now->is_running = true;
    now->n_dealt = now->n_encoded = 1;
    ck_assert_int_eq(sw_planner_check_frame(&planner, course, now, course->plan_number, &poor), SW_MISMATCH_RETRY);
}

/* Where the first frame shows that it is the other column's turn, the region goes on by that one's dictionary. */
START_TEST(the_other_column_has_its_own_dictionary) {
    static struct sw_frame_dictionary dictionaries[2];
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_snapshot now = snapshot_of(&short_text);
    struct sw_plan plan;
    struct sw_course course = {.plan = &plan};
    init_short();
    for (int i = 0; i < 2; i++)
        (void)keep_pair(key, &dictionaries[i]);
    course = (struct sw_course){.plan_key = key, .plan = &plan};
    ck_assert(sw_planner_begin(&planner, &course, &now));
    const struct sw_frame_dictionary *first = plan.dictionary;
    show_the_other_column(&course, &now, SW_CODEC_ONPAIR);
    ck_assert_ptr_nonnull(plan.dictionary);
    ck_assert_ptr_ne(plan.dictionary, first);
}
END_TEST

/* A denser encoder that saves no time any more, as beside other programs, is not taken where the first frame shows
 * another column either. */
START_TEST(a_slow_dictionary_is_not_taken_at_a_mismatch) {
    static struct sw_frame_dictionary dictionaries[2];
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct goal g = short_text;
    struct sw_plan plan;
    struct sw_course course = {.plan_key = key, .plan = &plan};
    g.dense_encode = 100;
    struct sw_snapshot now = snapshot_of(&g);
    init_measured(&g);
    for (int i = 0; i < 2; i++)
        (void)keep_pair(key, &dictionaries[i]);
    ck_assert(sw_planner_begin(&planner, &course, &now));
    ck_assert_ptr_null(plan.dictionary);
    show_the_other_column(&course, &now, SW_CODEC_V5T);
    ck_assert_ptr_null(plan.dictionary);
    ck_assert_int_eq(plan.codec, SW_CODEC_V5T);
}
END_TEST

/* What a column gains by its dictionary is known by the dictionary's own ratio, and must be clearly more than noise. */
START_TEST(a_column_gains_by_what_its_dictionary_reaches) {
    static const double ratios[] = {3.1, 3.3, 4.2};
    static struct sw_frame_dictionary dictionary;
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_snapshot now = snapshot_of(&short_text);
    struct sw_plan_choice of_usual = {0}, of_denser = {0};
    struct sw_plan denser = short_denser(&dictionary);
    denser.expected_ratio = ratios[_i];
    init_short();
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &of_usual, &short_usual);
    ck_assert_int_eq(choose(key, &now), SW_DENSE_COLUMN); /* expects more while none is known */
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, short_text.raw_bytes, &of_denser, &denser);
    sw_plan_cache_link(&planner.plans, key, sw_plan_cache_wish_denser(&planner.plans, key, &of_usual, 1, 1), &of_denser,
                       &denser);
    ck_assert_int_eq(choose(key, &now), _i == 2 ? SW_DENSE_COLUMN : SW_DENSE_NOT);
}
END_TEST

static unsigned count_plans(uint64_t key, uint64_t bytes) {
    struct sw_plan_choice choice = {0};
    unsigned n = 0;
    while (sw_plan_cache_find(&planner.plans, key, bytes, &choice)) {
        sw_plan_cache_note_mismatch(&choice);
        n++;
    }
    return n;
}

/* A denser plan replaces none that another column has, although the usual plan before it was to be made anew. _i:
 * whether the denser plan is used. */
START_TEST(a_plan_of_the_other_kind_replaces_none) {
    const struct goal g = {.raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700, .dense_encode = 400};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan old = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes},
                         made = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4.1, .raw_bytes = g.raw_bytes};
    struct sw_plan plan = {.codec = SW_CODEC_V5T, .expected_ratio = _i ? 3 : 4.1, .raw_bytes = g.raw_bytes};
    struct sw_course course = {
        .plan_key = key, .plan = &plan, .plan_state = SW_PLAN_STATE_SETTLED, .plan_choice = {.is_due = true}};
    struct sw_snapshot now = snapshot_of(&g);
    init(&g);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &(struct sw_plan_choice){0}, &old);
    now.is_running = true;
    now.n_dealt = 4;
    sw_planner_take_denser(&planner, &course, &now, &made);
    ck_assert_int_eq(plan.codec == SW_CODEC_ONPAIR, _i);
    ck_assert_uint_eq(count_plans(key | SW_PLAN_KEY_DENSE, g.raw_bytes), 2);
    ck_assert_int_eq(course.plan_choice.is_due, !_i); /* the usual plan that it stays with is due still */
}
END_TEST

/* Columns in turn: each region takes the dictionary of the column that follows. */
START_TEST(columns_in_turn_take_their_own_dictionaries) {
    static struct sw_frame_dictionary dictionaries[2];
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_snapshot now = snapshot_of(&short_text);
    const struct sw_frame_dictionary *before = NULL;
    struct sw_plan_choice choice = {0};
    struct sw_plan plan;
    init_short();
    for (int i = 0; i < 2; i++)
        (void)keep_pair(key, &dictionaries[i]);
    /* After the second column the first one comes. */
    (void)sw_plan_cache_find(&planner.plans, key, short_text.raw_bytes, &choice);
    sw_plan_cache_note_mismatch(&choice);
    (void)sw_plan_cache_find(&planner.plans, key, short_text.raw_bytes, &choice);
    sw_plan_cache_note_match(&planner.plans, key, &choice);
    for (int i = 0; i < 6; i++) {
        struct sw_course course = {.plan_key = key, .plan = &plan};
        ck_assert(sw_planner_begin(&planner, &course, &now));
        ck_assert(plan.dictionary && plan.dictionary != before);
        before = plan.dictionary;
    }
}
END_TEST

/* If the kept dictionary of a long region does not match its bytes, the region goes on by a usual plan, and learns
 * another dictionary meanwhile. */
START_TEST(a_mismatch_is_not_waited_for) {
    static struct sw_frame_dictionary old;
    const struct goal g = {.raw_bytes = 8 * GIB,
                           .memory_bytes = 64 * GIB,
                           .has_link = true,
                           .encode = 700,
                           .dense_encode = 350,
                           .learns = true};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan kept = {.codec = SW_CODEC_ONPAIR,
                                 .expected_ratio = 4,
                                 .raw_bytes = g.raw_bytes,
                                 .dictionary = &old},
                         usual = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = g.raw_bytes};
    const struct sw_frame_layout frame = {.codec = SW_CODEC_ONPAIR, .raw_bytes = 16 * MIB, .frame_bytes = 8 * MIB};
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan;
    struct sw_plan_choice choice = {0};
    struct sw_course course = {.plan_key = key, .plan = &plan};
    init(&g);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice, &kept);
    ck_assert(sw_planner_begin(&planner, &course, &now));
    ck_assert_ptr_eq(plan.dictionary, &old);
    now.is_running = true;
    now.n_dealt = 4;
    ck_assert_int_eq(sw_planner_check_frame(&planner, &course, &now, course.plan_number, &frame), SW_MISMATCH_REPLAN);
    ck_assert_uint_eq(course.plan_key, key);
    sw_planner_take_plan(&planner, &course, &now, 0, &usual);
    ck_assert(sw_planner_learns_now(&planner, &course, &now));
    ck_assert_int_eq(plan.codec, SW_CODEC_V5T);
}
END_TEST

/* The usual plan that takes over from a dictionary which was to be made anew replaces no other column's usual plan. */
START_TEST(a_plan_after_a_mismatch_replaces_none) {
    static struct sw_frame_dictionary old;
    const struct goal g = {.raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700, .dense_encode = 1};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan kept = {.codec = SW_CODEC_ONPAIR,
                                 .expected_ratio = 4,
                                 .raw_bytes = g.raw_bytes,
                                 .dictionary = &old},
                         usual = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = g.raw_bytes};
    const struct sw_frame_layout frame = {.codec = SW_CODEC_ONPAIR, .raw_bytes = 16 * MIB, .frame_bytes = 8 * MIB};
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan;
    struct sw_course course = {.plan_key = key | SW_PLAN_KEY_DENSE,
                               .plan = &plan,
                               .plan_state = SW_PLAN_STATE_UNPROVEN,
                               .learning = SW_LEARNING_WANTED,
                               .never_waits = true};
    init(&g);
    sw_plan_cache_put(&planner.plans, key, g.raw_bytes, &(struct sw_plan_choice){0}, &usual);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &(struct sw_plan_choice){0}, &kept);
    ck_assert_ptr_nonnull(sw_plan_cache_find(&planner.plans, course.plan_key, g.raw_bytes, &course.plan_choice));
    ck_assert(!sw_plan_cache_use(&planner.plans, course.plan_key, &course.plan_choice, 1));
    plan = kept;
    now.is_running = true;
    now.n_dealt = now.n_encoded = 4;
    ck_assert_int_eq(sw_planner_check_frame(&planner, &course, &now, course.plan_number, &frame), SW_MISMATCH_REPLAN);
    ck_assert_uint_eq(course.plan_key, key);
    ck_assert_uint_eq(course.n_retrained, 1);
    sw_planner_take_plan(&planner, &course, &now, 4, &usual);
    ck_assert_uint_eq(count_plans(key, g.raw_bytes), 2);
    ck_assert_int_eq(course.learning, SW_LEARNING_WANTED);
    ck_assert(!course.never_waits); /* once */
}
END_TEST

/* A kept plan whose regions have earned a new one is used until that is learned, and then replaced. */
START_TEST(a_kept_plan_is_made_anew_meanwhile) {
    const struct goal g = {.raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700, .dense_encode = 400};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan, made = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes};
    struct sw_plan_choice choice = {0};
    unsigned n = 0;
    init(&g);
    sw_planner_observe_plan(&planner, true, 30000);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice, &made);
    for (bool learns = false; !learns; n++) {
        struct sw_course course = {.plan_key = key, .plan = &plan};
        now.n_dealt = 0;
        now.is_running = false;
        ck_assert(sw_planner_begin(&planner, &course, &now));
        ck_assert_int_eq(plan.codec, SW_CODEC_ONPAIR);
        now.n_dealt = 1;
        now.is_running = true;
        learns = sw_planner_learns_now(&planner, &course, &now);
        made.expected_ratio = 4.1;
        if (learns)
            sw_planner_take_denser(&planner, &course, &now, &made);
    }
    ck_assert_uint_gt(n, 1);
    choice = (struct sw_plan_choice){0};
    ck_assert(sw_plan_cache_find(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice)->expected_ratio > 4);
    sw_plan_cache_note_mismatch(&choice);
    ck_assert_ptr_null(sw_plan_cache_find(&planner.plans, key | SW_PLAN_KEY_DENSE, g.raw_bytes, &choice));
}
END_TEST

/* Text that changes along a region: the rest gets a new dictionary, and goes by the old one until then. If room is
 * preferred, it waits. */
START_TEST(changing_text_gets_a_new_dictionary) {
    static struct sw_frame_dictionary old, new;
    const bool waits = _i;
    const struct goal g = {.prefer = waits ? ROOM : NONE,
                           .raw_bytes = 8 * GIB,
                           .disk = 3,
                           .has_link = true,
                           .encode = 700,
                           .dense_encode = 400};
    const struct sw_plan
        first = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes, .dictionary = &old},
        second = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 3, .raw_bytes = g.raw_bytes, .dictionary = &new};
    const struct sw_frame_layout frame = {.codec = SW_CODEC_ONPAIR, .raw_bytes = 16 * MIB, .frame_bytes = 8 * MIB};
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan;
    struct sw_course course = {.plan_key = sw_plan_key(1, SW_VALUE_NONE, 0) | SW_PLAN_KEY_DENSE, .plan = &plan};
    init(&g);
    now.is_running = true;
    sw_planner_take_plan(&planner, &course, &now, 0, &first);
    now.n_dealt = now.n_encoded = 20;
    sw_planner_handle_drift(&planner, &course, &now, &frame);
    ck_assert_uint_eq(course.n_retrained, 1);
    ck_assert_int_eq(course.plan_state == SW_PLAN_STATE_MISSING, waits);
    ck_assert_int_eq(sw_planner_learns_now(&planner, &course, &now), !waits);
    if (waits)
        return;
    ck_assert_ptr_eq(plan.dictionary, &old);
    ck_assert_double_eq_tol(plan.expected_ratio, 2, 1e-3); /* the new one is compared with what the old one reaches */
    sw_planner_take_denser(&planner, &course, &now, &second);
    ck_assert_ptr_eq(plan.dictionary, &new);
    ck_assert(!sw_planner_learns_now(&planner, &course, &now));
    ck_assert(sw_plan_cache_has_dictionary(&planner.plans, &old)); /* another region begins as this one did */
}
END_TEST

/* Of two regions side by side, only one learns. */
START_TEST(regions_learn_it_once) {
    const struct goal g = {.raw_bytes = 8 * GIB, .disk = 3, .has_link = true, .encode = 700};
    const struct sw_plan usual = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = g.raw_bytes},
                         dense = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes};
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plans[2];
    struct sw_course courses[2];
    init(&g);
    now.is_running = true;
    for (int i = 0; i < 2; i++) {
        now.n_dealt = 0;
        courses[i] = (struct sw_course){.plan_key = sw_plan_key(1, SW_VALUE_NONE, 0), .plan = &plans[i]};
        (void)sw_planner_begin(&planner, &courses[i], &now);
        sw_planner_take_plan(&planner, &courses[i], &now, 0, &usual);
        now.n_dealt = 1;
        ck_assert(sw_planner_learns_now(&planner, &courses[i], &now));
    }
    sw_planner_take_denser(&planner, &courses[0], &now, &dense);
    ck_assert(!sw_planner_learns_now(&planner, &courses[1], &now));
}
END_TEST

/* A run that gets one asks for it by its key; plans of both goals are kept apart. */
START_TEST(goals_have_plans_of_their_own) {
    const struct goal g = {.prefer = ROOM,
                           .raw_bytes = 64 * MIB,
                           .memory_bytes = 64 * GIB,
                           .has_link = true,
                           .encode = 700,
                           .dense_encode = 400};
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_snapshot now = snapshot_of(&g);
    struct sw_plan plan;
    struct sw_course course = {.plan_key = key, .plan = &plan};
    init(&g);
    ck_assert(!sw_planner_begin(&planner, &course, &now));
    ck_assert(sw_plan_key_is_dense(course.plan_key));
    const struct sw_plan made = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = g.raw_bytes};
    sw_planner_observe_plan(&planner, true, 20000);
    sw_planner_take_plan(&planner, &course, &now, 0, &made);
    ck_assert_int_eq(course.reason, SW_COST_ROOM);
    course = (struct sw_course){.plan_key = key, .plan = &plan};
    ck_assert(sw_planner_begin(&planner, &course, &now));
    ck_assert_int_eq(plan.codec, SW_CODEC_ONPAIR);
    now.room.prefer = SW_PREFER_TIME;
    course = (struct sw_course){.plan_key = key, .plan = &plan};
    ck_assert(!sw_planner_begin(&planner, &course, &now));
    ck_assert_uint_eq(course.plan_key, key);
}
END_TEST

/* The oldest plan with a dictionary makes way for the newest; it is not used any more. */
START_TEST(few_dictionaries_are_kept) {
    static struct sw_plan_cache cache;
    static struct sw_frame_dictionary dictionaries[SW_PLAN_DICTIONARIES + 1];
    for (unsigned i = 0; i <= SW_PLAN_DICTIONARIES; i++) {
        const struct sw_plan plan = {
            .codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = GIB, .dictionary = &dictionaries[i]};
        struct sw_plan_choice choice = {0};
        sw_plan_cache_put(&cache, sw_plan_key(1 + i, SW_VALUE_NONE, 0), GIB, &choice, &plan);
    }
    for (unsigned i = 0; i <= SW_PLAN_DICTIONARIES; i++) {
        struct sw_plan_choice choice = {0};
        ck_assert_int_eq(sw_plan_cache_has_dictionary(&cache, &dictionaries[i]), i > 0);
        ck_assert_int_eq(sw_plan_cache_find(&cache, sw_plan_key(1 + i, SW_VALUE_NONE, 0), GIB, &choice) != NULL, i > 0);
    }
}
END_TEST

/* A dictionary that regions use stays, however many others come; one that was forgotten is no column's any more. _i:
 * whether it is used. */
START_TEST(a_dictionary_in_use_is_kept) {
    static struct sw_frame_dictionary dictionaries[SW_PLAN_DICTIONARIES + 1];
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    init(&short_text);
    const struct sw_plan_choice choice = keep_pair(key, &dictionaries[0]);
    for (unsigned i = 1; i <= SW_PLAN_DICTIONARIES; i++) {
        ck_assert(!_i || sw_plan_cache_denser(&planner.plans, key, &choice));
        (void)keep_pair(sw_plan_key(1 + i, SW_VALUE_NONE, 0), &dictionaries[i]);
    }
    ck_assert_int_eq(sw_plan_cache_denser(&planner.plans, key, &choice) != NULL, _i);
}
END_TEST

/* A plan that replaces another column's has neither its dictionary nor its wish for one; one that is made anew for the
 * same column has its dictionary still. */
START_TEST(a_replaced_plan_takes_its_dictionary_along) {
    static struct sw_frame_dictionary dictionary;
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    init(&short_text);
    struct sw_plan_choice first = keep_pair(key, &dictionary);
    ck_assert(!sw_plan_cache_use(&planner.plans, key, &first, 1));
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &first, &short_usual);
    ck_assert_ptr_nonnull(sw_plan_cache_denser(&planner.plans, key, &first));
    ck_assert_uint_eq(sw_plan_cache_wish_denser(&planner.plans, key, &first, 1, 2), 0);
    for (unsigned i = 0; i < SW_PLANS_KEPT; i++) {
        struct sw_plan_choice other = {0};
        sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &other, &short_usual);
    }
    ck_assert_ptr_null(sw_plan_cache_denser(&planner.plans, key, &first));
    ck_assert_uint_eq(sw_plan_cache_wish_denser(&planner.plans, key, &first, 1, 2), 0);
}
END_TEST

/* A plan that was made because another one was due replaces a third column's, if the bytes have changed: it has nothing
 * of either. */
START_TEST(a_due_plan_of_other_bytes_has_no_dictionary) {
    static struct sw_frame_dictionary dictionary;
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan changed = {.codec = SW_CODEC_V5T, .expected_ratio = 9, .raw_bytes = 256 * MIB};
    struct sw_plan_choice due = {0};
    init(&short_text);
    const struct sw_plan_choice first = keep_pair(key, &dictionary);
    for (unsigned i = 1; i < SW_PLANS_KEPT; i++) {
        due = (struct sw_plan_choice){0};
        sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &due, &short_usual);
    }
    ck_assert_ptr_nonnull(sw_plan_cache_denser(&planner.plans, key, &first));
    ck_assert(!sw_plan_cache_use(&planner.plans, key, &due, 1));
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &due, &changed);
    ck_assert_uint_eq(due.number, first.number);
    ck_assert_ptr_null(sw_plan_cache_denser(&planner.plans, key, &due));
}
END_TEST

/* A dictionary that shrinks too little is not kept, and another column's is not taken for it. */
START_TEST(a_dictionary_that_is_not_kept_is_no_columns) {
    static struct sw_frame_dictionary dictionaries[2];
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    struct sw_plan poor = short_denser(&dictionaries[1]);
    struct sw_plan_choice of_usual = {0}, of_denser = {0};
    init(&short_text);
    const struct sw_plan_choice first = keep_pair(key, &dictionaries[0]);
    poor.expected_ratio = 1.2;
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &of_usual, &short_usual);
    sw_plan_cache_put(&planner.plans, key | SW_PLAN_KEY_DENSE, short_text.raw_bytes, &of_denser, &poor);
    sw_plan_cache_link(&planner.plans, key, sw_plan_cache_wish_denser(&planner.plans, key, &of_usual, 1, 1), &of_denser,
                       &poor);
    ck_assert_ptr_null(sw_plan_cache_denser(&planner.plans, key, &of_usual));
    ck_assert_ptr_nonnull(sw_plan_cache_denser(&planner.plans, key, &first));
}
END_TEST

/* The place of a dictionary that was forgotten is used before any other, however old. */
START_TEST(a_forgotten_dictionarys_place_is_free) {
    static struct sw_frame_dictionary dictionaries[SW_PLAN_DICTIONARIES + 1];
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    unsigned n = 0;
    init(&short_text);
    for (unsigned i = 0; i < SW_PLANS_KEPT; i++) { /* the first has none */
        const struct sw_plan plan = short_denser(i ? &dictionaries[n++] : NULL);
        sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &(struct sw_plan_choice){0}, &plan);
    }
    for (unsigned i = 2; n <= SW_PLAN_DICTIONARIES; i++) {
        const struct sw_plan plan = short_denser(&dictionaries[n++]);
        sw_plan_cache_put(&planner.plans, sw_plan_key(i, SW_VALUE_NONE, 0), short_text.raw_bytes,
                          &(struct sw_plan_choice){0}, &plan);
    }
    ck_assert_uint_eq(count_plans(key, short_text.raw_bytes), SW_PLANS_KEPT - 1);
    sw_plan_cache_put(&planner.plans, key, short_text.raw_bytes, &(struct sw_plan_choice){0}, &short_usual);
    ck_assert_uint_eq(count_plans(key, short_text.raw_bytes), SW_PLANS_KEPT);
}
END_TEST

/* What regions would have gained counts until a plan is learned, and then from the beginning. */
START_TEST(a_wish_ends_when_it_is_met) {
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .expected_ratio = 4, .raw_bytes = GIB};
    struct sw_plan_choice choice = {0};
    init(&short_text);
    for (int i = 0; i < 2; i++) {
        ck_assert(!sw_plan_cache_wish(&planner.plans, key, 1, 2));
        ck_assert(sw_plan_cache_wish(&planner.plans, key, 1, 2));
        sw_plan_cache_put(&planner.plans, key, GIB, &choice, &plan);
    }
}
END_TEST

/* Returns the kept plan that the next region would try. */
static unsigned expected_plan(uint64_t key) {
    struct sw_plan_choice choice = {0};
    ck_assert_ptr_nonnull(sw_plan_cache_find(&planner.plans, key, GIB, &choice));
    return choice.number;
}

/* One region whose frames do not match says nothing about the next one; two in a row do. _i: what comes between. */
START_TEST(two_mismatches_in_a_row_change_what_is_expected) {
    enum { NOTHING, A_MATCH, A_PLAN };
    const uint64_t key = sw_plan_key(1, SW_VALUE_NONE, 0);
    const struct sw_plan plan = {.codec = SW_CODEC_V5T, .expected_ratio = 3, .raw_bytes = GIB};
    const struct sw_plan_choice again = {.tried = 1u << 2, .number = 0, .before = 2};
    unsigned expected = 0;
    init(&short_text);
    for (int i = 0; i < 3; i++)
        sw_plan_cache_put(&planner.plans, key, GIB, &(struct sw_plan_choice){.before = i ? (unsigned)i - 1 : 0}, &plan);
    sw_plan_cache_note_match(&planner.plans, key, &again); /* after the last column the first one comes */
    for (int i = 0; i < 2; i++) {
        struct sw_plan_choice tried = {0};
        (void)sw_plan_cache_find(&planner.plans, key, GIB, &tried);
        expected = tried.number;
        ck_assert(sw_plan_cache_use(&planner.plans, key, &tried, 0));
        (void)sw_plan_cache_add_regret(&planner.plans, key, &tried, false, 0);
        ck_assert(i == 1 || expected_plan(key) == expected);
        if (_i == A_MATCH && i == 0)
            sw_plan_cache_note_match(&planner.plans, key, &(struct sw_plan_choice){0});
        if (_i == A_PLAN && i == 0)
            sw_plan_cache_put(&planner.plans, key, GIB, &(struct sw_plan_choice){.before = 2}, &plan);
    }
    ck_assert_int_eq(expected_plan(key) != expected, _i == NOTHING);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("planner_dense");
    TCase *tcase = tcase_create("dense");
    tcase_add_loop_test(tcase, a_goal_decides, 0, sizeof goals / sizeof goals[0]);
    tcase_add_test(tcase, a_store_is_known_by_the_room_before_it);
    tcase_add_test(tcase, short_regions_pay_together);
    tcase_add_loop_test(tcase, a_long_region_learns_meanwhile, 0, sizeof moments / sizeof moments[0]);
    tcase_add_loop_test(tcase, what_is_left_must_be_worth_learning, 0, sizeof rests / sizeof rests[0]);
    tcase_add_test(tcase, memory_is_for_time);
    tcase_add_test(tcase, a_column_of_short_regions_learns_once);
    tcase_add_test(tcase, a_column_without_a_dictionary_learns_no_more);
    tcase_add_test(tcase, the_other_column_has_its_own_dictionary);
    tcase_add_test(tcase, a_slow_dictionary_is_not_taken_at_a_mismatch);
    tcase_add_loop_test(tcase, a_column_gains_by_what_its_dictionary_reaches, 0, 3);
    tcase_add_loop_test(tcase, a_plan_of_the_other_kind_replaces_none, 0, 2);
    tcase_add_test(tcase, columns_in_turn_take_their_own_dictionaries);
    tcase_add_test(tcase, a_mismatch_is_not_waited_for);
    tcase_add_test(tcase, a_plan_after_a_mismatch_replaces_none);
    tcase_add_test(tcase, a_kept_plan_is_made_anew_meanwhile);
    tcase_add_loop_test(tcase, changing_text_gets_a_new_dictionary, 0, 2);
    tcase_add_test(tcase, regions_learn_it_once);
    tcase_add_test(tcase, goals_have_plans_of_their_own);
    tcase_add_test(tcase, few_dictionaries_are_kept);
    tcase_add_loop_test(tcase, a_dictionary_in_use_is_kept, 0, 2);
    tcase_add_test(tcase, a_replaced_plan_takes_its_dictionary_along);
    tcase_add_test(tcase, a_wish_ends_when_it_is_met);
    tcase_add_test(tcase, a_due_plan_of_other_bytes_has_no_dictionary);
    tcase_add_test(tcase, a_dictionary_that_is_not_kept_is_no_columns);
    tcase_add_test(tcase, a_forgotten_dictionarys_place_is_free);
    tcase_add_loop_test(tcase, two_mismatches_in_a_row_change_what_is_expected, 0, 3);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
