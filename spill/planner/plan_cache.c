#include "spill/planner/plan_cache.h"

#include <stddef.h>
#include <string.h>

#define ALIKE 0.9  /* the estimates of one column's plans differ by less */
#define LITTLE 0.1 /* of a plan's price */
/* A region's sample may be this many times longer or shorter than the plan's. At 7 times, text takes half as much room
 * again in long regions, and more than twice as much in short ones. */
#define LENGTHS_ALIKE 2u
#define NO_DENSER UINT64_MAX /* learning found no dictionary that is worth it */

static int index_of(const struct sw_plan_cache *cache, uint64_t key) {
    for (int i = 0; i < SW_PLAN_CACHE_KEYS; i++)
        if (cache->keys[i] == key)
            return i;
    return -1;
}

static struct sw_plan_cache_entry *find(struct sw_plan_cache *cache, uint64_t key) {
    const int i = index_of(cache, key);
    return i < 0 ? NULL : &cache->entries[i];
}

uint64_t sw_plan_key(uint64_t session, enum sw_value_type type, unsigned buffer) {
    return session << 16 | (uint64_t)type << 8 | buffer;
}

static uint64_t sample_bytes(uint64_t bytes) {
    return bytes < SW_SAMPLE_MAX_BYTES ? bytes : SW_SAMPLE_MAX_BYTES;
}

static bool is_for_length(const struct sw_kept_plan *kept, uint64_t bytes) {
    const uint64_t sample = sample_bytes(bytes);
    return sample <= LENGTHS_ALIKE * kept->sample_bytes && kept->sample_bytes <= LENGTHS_ALIKE * sample;
}

/* After the expected plan the following ones are tried: columns mostly come in the order in which they came first. */
const struct sw_plan *sw_plan_cache_find(const struct sw_plan_cache *cache, uint64_t key, uint64_t bytes,
                                         struct sw_plan_choice *choice) {
    const int at = index_of(cache, key);
    if (at < 0 || cache->entries[at].n_kept == 0)
        return NULL;
    const struct sw_plan_cache_entry *entry = &cache->entries[at];
    if (choice->tried == 0)
        choice->before = entry->last;
    choice->is_due = false;
    for (unsigned i = 0; i < entry->n_kept; i++) {
        const unsigned number = (entry->kept[choice->before].next + i) % entry->n_kept;
        if (choice->tried & 1u << number || !is_for_length(&entry->kept[number], bytes))
            continue;
        choice->number = number;
        return &entry->kept[number].plan;
    }
    return NULL;
}

bool sw_plan_cache_use(struct sw_plan_cache *cache, uint64_t key, struct sw_plan_choice *choice, double part) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    struct sw_kept_plan *kept = &entry->kept[choice->number];
    entry->age = kept->age = ++cache->clock;
    kept->paid += part;
    if (kept->paid >= 1) {
        kept->paid = 0;
        sw_replan_plan_paid(&entry->replan);
        choice->is_due = true;
        return false;
    }
    entry->last = choice->number; /* presumably: another region may begin before this is known */
    return true;
}

void sw_plan_cache_note_match(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    if (!entry)
        return;
    entry->n_in_row = 0;
    if (choice->tried == 0)
        return;
    sw_replan_try_won(&entry->replan, choice->gain_s);
    entry->kept[choice->before].next = choice->number;
    entry->last = choice->number;
}

void sw_plan_cache_note_mismatch(struct sw_plan_choice *choice) {
    choice->tried |= 1u << choice->number;
}

bool sw_plan_cache_may_try(struct sw_plan_cache *cache, uint64_t key, struct sw_plan_choice *choice, double cost_s,
                           double gain_s) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    if (!entry || !sw_replan_may_try(&entry->replan, cost_s, gain_s))
        return false;
    choice->gain_s = gain_s;
    return true;
}

bool sw_plan_cache_add_regret(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice, bool pays,
                              double part) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    if (!entry)
        return true;
    entry->last = choice->before;
    if (++entry->n_in_row > 1) /* another column has its turn, for longer: the next region tries another plan */
        entry->kept[choice->before].next = (choice->number + 1) % (entry->n_kept ? entry->n_kept : 1);
    return sw_replan_add_regret(&entry->replan, pays, part);
}

void sw_plan_cache_saw(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice,
                       const struct sw_plan *plan, double ratio) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    struct sw_kept_plan *kept = entry && choice->number < entry->n_kept ? &entry->kept[choice->number] : NULL;
    if (kept && kept->seen_ratio <= 0 && kept->plan.codec == plan->codec &&
        kept->plan.expected_ratio == plan->expected_ratio) /* a plan that is not worth keeping has no entry */
        kept->seen_ratio = ratio;
}

double sw_plan_cache_seen(const struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice) {
    const int at = index_of(cache, key);
    return at < 0 || choice->number >= cache->entries[at].n_kept ? 0
                                                                 : cache->entries[at].kept[choice->number].seen_ratio;
}

double sw_plan_cache_estimate(const struct sw_plan_cache *cache, uint64_t key) {
    const int at = index_of(cache, key);
    double best = 0;
    if (at < 0 || cache->entries[at].n_estimates < SW_PLAN_ESTIMATES)
        return 0;
    for (int i = 0; i < SW_PLAN_ESTIMATES; i++)
        best = best > cache->entries[at].estimates[i] ? best : cache->entries[at].estimates[i];
    return best;
}

/* Returns the key's entry. If there is none, a new entry replaces the one that was not used for longest. */
static struct sw_plan_cache_entry *make_entry(struct sw_plan_cache *cache, uint64_t key) {
    int oldest = index_of(cache, key);
    if (oldest >= 0)
        return &cache->entries[oldest];
    oldest = 0;
    for (int i = 1; i < SW_PLAN_CACHE_KEYS; i++)
        if (cache->entries[i].age < cache->entries[oldest].age)
            oldest = i;
    cache->keys[oldest] = key;
    memset(&cache->entries[oldest], 0, sizeof cache->entries[oldest]);
    return &cache->entries[oldest];
}

static bool is_alike(double a, double b) {
    return a > ALIKE * b && b > ALIKE * a;
}

bool sw_plan_cache_wish(struct sw_plan_cache *cache, uint64_t key, double gain_s, double price_s) {
    struct sw_plan_cache_entry *entry = make_entry(cache, key);
    entry->age = ++cache->clock;
    entry->wish_s += gain_s;
    return entry->wish_s >= price_s;
}

/* Returns the key's plan of this number. NULL: it was replaced. */
static struct sw_kept_plan *kept_of(struct sw_plan_cache *cache, uint64_t key, uint64_t number) {
    struct sw_plan_cache_entry *entry = find(cache, key);
    for (unsigned i = 0; entry && i < entry->n_kept; i++)
        if (entry->kept[i].made == number)
            return &entry->kept[i];
    return NULL;
}

const struct sw_plan *sw_plan_cache_denser(struct sw_plan_cache *cache, uint64_t key,
                                           const struct sw_plan_choice *choice) {
    const uint64_t number = find(cache, key)->kept[choice->number].denser;
    struct sw_kept_plan *kept = number ? kept_of(cache, key | SW_PLAN_KEY_DENSE, number) : NULL;
    if (!kept || !kept->plan.dictionary)
        return NULL;
    kept->age = find(cache, key | SW_PLAN_KEY_DENSE)->age = ++cache->clock;
    return &kept->plan;
}

uint64_t sw_plan_cache_wish_denser(struct sw_plan_cache *cache, uint64_t key, const struct sw_plan_choice *choice,
                                   double gain_s, double price_s) {
    struct sw_kept_plan *kept = &find(cache, key)->kept[choice->number];
    kept->wish_s += kept->denser == NO_DENSER ? 0 : gain_s;
    if (kept->wish_s < price_s)
        return 0;
    kept->wish_s = 0;
    return kept->made;
}

void sw_plan_cache_link(struct sw_plan_cache *cache, uint64_t key, uint64_t number, const struct sw_plan_choice *choice,
                        const struct sw_plan *plan) {
    const struct sw_plan_cache_entry *dense = find(cache, key | SW_PLAN_KEY_DENSE);
    const struct sw_kept_plan *kept = dense && choice->number < dense->n_kept ? &dense->kept[choice->number] : NULL;
    struct sw_kept_plan *usual = kept_of(cache, key, number);
    const bool is_denser = plan->dictionary && kept && kept->plan.dictionary == plan->dictionary;
    if (usual)
        usual->denser = is_denser ? kept->made : NO_DENSER;
}

bool sw_plan_cache_has_dictionary(const struct sw_plan_cache *cache, const struct sw_frame_dictionary *dictionary) {
    for (int i = 0; i < SW_PLAN_CACHE_KEYS; i++)
        for (unsigned k = 0; cache->keys[i] && k < cache->entries[i].n_kept; k++)
            if (cache->entries[i].kept[k].plan.dictionary == dictionary)
                return true;
    return false;
}

/* Forgets the oldest plan with a dictionary, if there are too many. Its place is free: it matches no region, and is the
 * next to be replaced. */
static void limit_dictionaries(struct sw_plan_cache *cache) {
    struct sw_kept_plan *oldest = NULL;
    unsigned n = 0;
    for (int i = 0; i < SW_PLAN_CACHE_KEYS; i++)
        for (unsigned k = 0; cache->keys[i] && k < cache->entries[i].n_kept; k++) {
            struct sw_kept_plan *kept = &cache->entries[i].kept[k];
            if (!kept->plan.dictionary)
                continue;
            n++;
            if (!oldest || kept->age < oldest->age)
                oldest = kept;
        }
    if (n <= SW_PLAN_DICTIONARIES)
        return;
    oldest->plan.dictionary = NULL;
    oldest->sample_bytes = oldest->age = 0;
}

static unsigned place_for(struct sw_plan_cache_entry *entry, const struct sw_plan_choice *choice, double estimate) {
    unsigned oldest = 0;
    if (choice->is_due && is_alike(entry->kept[choice->number].plan.expected_ratio, estimate))
        return choice->number;
    if (entry->n_kept < SW_PLANS_KEPT)
        return entry->n_kept++;
    for (unsigned i = 1; i < entry->n_kept; i++)
        if (entry->kept[i].age < entry->kept[oldest].age)
            oldest = i;
    if (entry->kept[oldest].paid < LITTLE)
        sw_replan_plan_wasted(&entry->replan);
    return oldest;
}

void sw_plan_cache_put(struct sw_plan_cache *cache, uint64_t key, uint64_t bytes, struct sw_plan_choice *choice,
                       const struct sw_plan *plan) {
    struct sw_plan_cache_entry *entry = make_entry(cache, key);
    entry->age = ++cache->clock;
    entry->wish_s = 0;
    sw_replan_planned(&entry->replan);
    if (bytes >= SW_SAMPLE_MAX_BYTES)
        entry->estimates[entry->n_estimates++ % SW_PLAN_ESTIMATES] = plan->expected_ratio;
    if (plan->codec == SW_CODEC_RAW || plan->expected_ratio < SW_PLAN_MIN_RATIO)
        return;
    const unsigned n_before = entry->n_kept, number = place_for(entry, choice, plan->expected_ratio);
    struct sw_kept_plan *kept = &entry->kept[number];
    if (number == n_before)
        kept->next = number;
    kept->paid = kept->seen_ratio = 0;
    if (!choice->is_due || number != choice->number) { /* another column's */
        kept->denser = 0;
        kept->wish_s = 0;
    }
    kept->age = kept->made = entry->age;
    kept->sample_bytes = sample_bytes(bytes);
    kept->plan = *plan;
    limit_dictionaries(cache);
    if (choice->before < n_before)
        entry->kept[choice->before].next = number;
    entry->last = choice->number = number;
    entry->n_in_row = 0;
    choice->is_due = false;
}
