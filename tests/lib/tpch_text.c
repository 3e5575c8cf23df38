#include "tests/lib/tpch_text.h"

#include <string.h>

/* Words are copied 16 bytes at a time. */
#define WORD_BYTES 16
/* No sentence is longer: 3 phrases with 4 words, 2 prepositions with "the", a terminator. */
#define SENTENCE_BYTES 512
#define VALUE_SPAN (SW_TPCH_TEXT_MAX_VALUE_BYTES - SW_TPCH_TEXT_MIN_VALUE_BYTES + 1)

struct word {
    char text[WORD_BYTES];
    uint8_t weight;
};

static const struct word nouns[] = {
    {"packages", 40},   {"requests", 40},    {"accounts", 40},    {"deposits", 40},     {"foxes", 20},
    {"ideas", 20},      {"theodolites", 20}, {"pinto beans", 20}, {"instructions", 20}, {"dependencies", 10},
    {"excuses", 10},    {"platelets", 10},   {"asymptotes", 10},  {"courts", 5},        {"dolphins", 5},
    {"multipliers", 1}, {"sauternes", 1},    {"warthogs", 1},     {"frets", 1},         {"dinos", 1},
    {"attainments", 1}, {"somas", 1},        {"Tiresias", 1},     {"patterns", 1},      {"forges", 1},
    {"braids", 1},      {"frays", 1},        {"warhorses", 1},    {"dugouts", 1},       {"notornis", 1},
    {"epitaphs", 1},    {"pearls", 1},       {"tithes", 1},       {"waters", 1},        {"orbits", 1},
    {"gifts", 1},       {"sheaves", 1},      {"depths", 1},       {"sentiments", 1},    {"decoys", 1},
    {"realms", 1},      {"pains", 1},        {"grouches", 1},     {"escapades", 1},     {"hockey players", 1},
};

static const struct word verbs[] = {
    {"sleep", 20}, {"wake", 20},   {"are", 20},   {"cajole", 20},   {"haggle", 20},  {"nag", 10},    {"use", 10},
    {"boost", 10}, {"affix", 5},   {"detect", 5}, {"integrate", 5}, {"maintain", 1}, {"nod", 1},     {"was", 1},
    {"lose", 1},   {"sublate", 1}, {"solve", 1},  {"thrash", 1},    {"promise", 1},  {"engage", 1},  {"hinder", 1},
    {"print", 1},  {"x-ray", 1},   {"breach", 1}, {"eat", 1},       {"grow", 1},     {"impress", 1}, {"mold", 1},
    {"poach", 1},  {"serve", 1},   {"run", 1},    {"dazzle", 1},    {"snooze", 1},   {"doze", 1},    {"unwind", 1},
    {"kindle", 1}, {"play", 1},    {"hang", 1},   {"believe", 1},   {"doubt", 1},
};

static const struct word adjectives[] = {
    {"special", 20}, {"pending", 20},  {"unusual", 20}, {"express", 20}, {"furious", 1}, {"sly", 1},
    {"careful", 1},  {"blithe", 1},    {"quick", 1},    {"fluffy", 1},   {"slow", 1},    {"quiet", 1},
    {"ruthless", 1}, {"thin", 1},      {"close", 1},    {"dogged", 1},   {"daring", 1},  {"brave", 1},
    {"stealthy", 1}, {"permanent", 1}, {"enticing", 1}, {"idle", 1},     {"busy", 1},    {"regular", 50},
    {"final", 40},   {"ironic", 40},   {"even", 30},    {"bold", 20},    {"silent", 10},
};

static const struct word adverbs[] = {
    {"sometimes", 1},   {"always", 1},     {"never", 1},     {"furiously", 50}, {"slyly", 50},    {"carefully", 50},
    {"blithely", 40},   {"quickly", 30},   {"fluffily", 20}, {"slowly", 1},     {"quietly", 1},   {"ruthlessly", 1},
    {"thinly", 1},      {"closely", 1},    {"doggedly", 1},  {"daringly", 1},   {"bravely", 1},   {"stealthily", 1},
    {"permanently", 1}, {"enticingly", 1}, {"idly", 1},      {"busily", 1},     {"regularly", 1}, {"finally", 1},
    {"ironically", 1},  {"evenly", 1},     {"boldly", 1},    {"silently", 1},
};

static const struct word auxiliaries[] = {
    {"do", 1},           {"may", 1},          {"might", 1},         {"shall", 1},         {"will", 1},
    {"would", 1},        {"can", 1},          {"could", 1},         {"should", 1},        {"ought to", 1},
    {"must", 1},         {"will have to", 1}, {"shall have to", 1}, {"could have to", 1}, {"should have to", 1},
    {"must have to", 1}, {"need to", 1},      {"try to", 1},
};

static const struct word prepositions[] = {
    {"about", 50},
    {"above", 50},
    {"according to", 50},
    {"across", 50},
    {"after", 50},
    {"against", 40},
    {"along", 40},
    {"alongside of", 30},
    {"among", 30},
    {"around", 20},
    {"at", 10},
    {"atop", 1},
    {"before", 1},
    {"behind", 1},
    {"beneath", 1},
    {"beside", 1},
    {"besides", 1},
    {"between", 1},
    {"beyond", 1},
    {"by", 1},
    {"despite", 1},
    {"during", 1},
    {"except", 1},
    {"for", 1},
    {"from", 1},
    {"in place of", 1},
    {"inside", 1},
    {"instead of", 1},
    {"into", 1},
    {"near", 1},
    {"of", 1},
    {"on", 1},
    {"outside", 1},
    {"over", 1},
    {"past", 1},
    {"since", 1},
    {"through", 1},
    {"throughout", 1},
    {"to", 1},
    {"toward", 1},
    {"under", 1},
    {"until", 1},
    {"up", 1},
    {"upon", 1},
    {"without", 1},
    {"with", 1},
    {"within", 1},
};

static const struct word terminators[] = {{".", 50}, {";", 1}, {":", 1}, {"?", 1}, {"!", 1}, {"--", 1}};

/* Phrases as strings of symbols: N noun phrase, V verb phrase, P prepositional phrase, T terminator; within phrases
 * n noun, v verb, j adjective, d adverb, x auxiliary; a comma sticks to the word before it. */
static const struct word sentences[] = {{"NVT", 3}, {"NVPT", 3}, {"NVNT", 3}, {"NPVNT", 1}, {"NPVPT", 1}};
static const struct word noun_phrases[] = {{"n", 10}, {"jn", 20}, {"j,jn", 10}, {"djn", 50}};
static const struct word verb_phrases[] = {{"v", 30}, {"xv", 1}, {"vd", 40}, {"xvd", 1}};

/* A list with an entry for each unit of weight: a draw is one multiplication and one load. */
struct deck {
    const struct word *words;
    uint8_t length[64]; /* of each word */
    uint32_t n;
    uint8_t cards[600]; /* index of a word */
};

struct writer {
    struct deck noun, verb, adjective, adverb, auxiliary, preposition, terminator, sentence, noun_phrase, verb_phrase;
    uint64_t random; /* state of splitmix64 */
    char *at;
};

static void deck_init(struct deck *d, const struct word *words, size_t n_words) {
    d->words = words;
    d->n = 0;
    for (size_t i = 0; i < n_words; i++) {
        d->length[i] = (uint8_t)strnlen(words[i].text, WORD_BYTES);
        memset(d->cards + d->n, (int)i, words[i].weight);
        d->n += words[i].weight;
    }
}

#define DECK_INIT(deck, words) deck_init(&(deck), words, sizeof(words) / sizeof((words)[0]))

static void writer_init(struct writer *w) {
    DECK_INIT(w->noun, nouns);
    DECK_INIT(w->verb, verbs);
    DECK_INIT(w->adjective, adjectives);
    DECK_INIT(w->adverb, adverbs);
    DECK_INIT(w->auxiliary, auxiliaries);
    DECK_INIT(w->preposition, prepositions);
    DECK_INIT(w->terminator, terminators);
    DECK_INIT(w->sentence, sentences);
    DECK_INIT(w->noun_phrase, noun_phrases);
    DECK_INIT(w->verb_phrase, verb_phrases);
}

/* splitmix64: a number below n. */
static uint32_t draw(struct writer *w, uint32_t n) {
    uint64_t x = w->random += 0x9E3779B97F4A7C15u;
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
    x = (x ^ x >> 27) * 0x94D049BB133111EBu;
    return (uint32_t)((uint64_t)(uint32_t)(x >> 32) * n >> 32);
}

static const char *pick(struct writer *w, const struct deck *d) {
    return d->words[d->cards[draw(w, d->n)]].text;
}

/* A word and a space; may write up to WORD_BYTES past them. */
static void put_word(struct writer *w, const struct deck *d) {
    uint8_t i = d->cards[draw(w, d->n)];
    memcpy(w->at, d->words[i].text, WORD_BYTES);
    w->at += d->length[i];
    *w->at++ = ' ';
}

static void put_phrase(struct writer *w, const struct deck *phrases) {
    for (const char *symbol = pick(w, phrases); *symbol; symbol++) {
        if (*symbol == 'n')
            put_word(w, &w->noun);
        else if (*symbol == 'j')
            put_word(w, &w->adjective);
        else if (*symbol == 'd')
            put_word(w, &w->adverb);
        else if (*symbol == 'v')
            put_word(w, &w->verb);
        else if (*symbol == 'x')
            put_word(w, &w->auxiliary);
        else {
            w->at[-1] = ',';
            *w->at++ = ' ';
        }
    }
}

static void put_sentence(struct writer *w) {
    for (const char *symbol = pick(w, &w->sentence); *symbol; symbol++) {
        if (*symbol == 'N') {
            put_phrase(w, &w->noun_phrase);
        } else if (*symbol == 'V') {
            put_phrase(w, &w->verb_phrase);
        } else if (*symbol == 'P') {
            put_word(w, &w->preposition);
            memcpy(w->at, "the ", 4);
            w->at += 4;
            put_phrase(w, &w->noun_phrase);
        } else { /* the terminator takes the place of the last space */
            w->at--;
            put_word(w, &w->terminator);
        }
    }
}

/* Returns the length of the next value when `left` bytes of the block remain to be filled: the rest must be a value,
 * too. */
static uint32_t value_bytes(struct writer *w, uint32_t left) {
    uint32_t bytes = SW_TPCH_TEXT_MIN_VALUE_BYTES + draw(w, VALUE_SPAN);
    if (left <= SW_TPCH_TEXT_MAX_VALUE_BYTES + 1)
        return left - 1;
    if (left - (bytes + 1) < SW_TPCH_TEXT_MIN_VALUE_BYTES + 1)
        return left - (SW_TPCH_TEXT_MIN_VALUE_BYTES + 1) - 1;
    return bytes;
}

static void fill_block(struct writer *w, char *ret, uint64_t block, uint64_t seed) {
    char text[SW_TPCH_TEXT_BLOCK_BYTES + SENTENCE_BYTES];
    w->random = seed ^ (block + 1) * 0xD1B54A32D192ED03u;
    w->random ^= (uint64_t)draw(w, UINT32_MAX) << 32; /* neighbours do not share a sequence */
    w->at = text;
    while (w->at < text + SW_TPCH_TEXT_BLOCK_BYTES)
        put_sentence(w);
    uint32_t left = SW_TPCH_TEXT_BLOCK_BYTES;
    const char *from = text + draw(w, 64); /* blocks do not begin with a sentence */
    while (left) {
        uint32_t bytes = value_bytes(w, left);
        memcpy(ret, from, bytes);
        ret[bytes] = '\n';
        ret += bytes + 1;
        from += bytes;
        left -= bytes + 1;
    }
}

void sw_tpch_text_fill(void *ret, uint64_t offset, size_t bytes, uint64_t seed) {
    struct writer w;
    char *to = ret, part[SW_TPCH_TEXT_BLOCK_BYTES];
    writer_init(&w);
    while (bytes) {
        size_t skip = (size_t)(offset % SW_TPCH_TEXT_BLOCK_BYTES), n = SW_TPCH_TEXT_BLOCK_BYTES - skip;
        n = n < bytes ? n : bytes;
        if (n == SW_TPCH_TEXT_BLOCK_BYTES) {
            fill_block(&w, to, offset / SW_TPCH_TEXT_BLOCK_BYTES, seed);
        } else {
            fill_block(&w, part, offset / SW_TPCH_TEXT_BLOCK_BYTES, seed);
            memcpy(to, part + skip, n);
        }
        to += n;
        offset += n;
        bytes -= n;
    }
}
