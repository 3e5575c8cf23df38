/* table.c - reads a dictionary section, and makes the index for encoders from it. */
#include "base/alloc.h"
#include "codec/onpair/onpair.h"

#include <string.h>

_Static_assert(SW_ONPAIR_HEAD_BYTES + SW_ONPAIR_MAX_SYMBOLS + 1 + SW_ONPAIR_MAX_BYTES * (SW_ONPAIR_MAX_SYMBOLS + 1) <=
                   SW_FRAME_MAX_DICTIONARY_BYTES,
               "the longest dictionary fits");
_Static_assert((36u << SW_ONPAIR_MAX_LOG2) + 512 <= SW_DICTIONARY_INDEX_BYTES &&
                   SW_ONPAIR_MAX_LOG2 == SW_DICTIONARY_INDEX_LOG2,
               "the largest index fits");

int sw_onpair_table_read(struct sw_onpair_table *ret, const uint8_t *section, size_t section_bytes) {
    uint16_t n;
    uint32_t codes = 0, at = 0;
    if (section_bytes < SW_ONPAIR_HEAD_BYTES)
        return -SW_EFRAME;
    memcpy(&n, section, sizeof n);
    const uint32_t text_offset = SW_ONPAIR_HEAD_BYTES + (n + 15u) / 16 * 16;
    if (n > SW_ONPAIR_MAX_SYMBOLS || section[2] != SW_ONPAIR_MAX_BYTES || text_offset > section_bytes)
        return -SW_EFRAME;
    ret->n = n;
    ret->text = section + text_offset;
    for (unsigned c = 0; c < SW_ONPAIR_CLASSES; c++) {
        ret->raw_bits[c] = section[8 + c / 2] >> 4 * (c % 2) & 15;
        ret->first[c] = codes;
        codes += 1u << ret->raw_bits[c];
        if (ret->raw_bits[c] > SW_ONPAIR_MAX_RAW_BITS)
            return -SW_EFRAME;
    }
    memcpy(ret->length, section + SW_ONPAIR_HEAD_BYTES, n);
    for (uint32_t i = 0; i < n; i++) {
        if (ret->length[i] < 1 || ret->length[i] > SW_ONPAIR_MAX_BYTES)
            return -SW_EFRAME;
        ret->at[i] = (uint16_t)at;
        at += ret->length[i];
    }
    return codes <= n || at + SW_ONPAIR_MAX_BYTES > section_bytes - text_offset ? -SW_EFRAME : 0;
}

/* A text of the index: a symbol, or a marker. */
struct node {
    uint32_t text[4]; /* padded with zero bytes */
    uint32_t bytes;
    uint32_t number; /* the longest symbol that it begins with */
};

enum { NODE_SLOTS_LOG2 = 15, MOST_NODES = 4 << SW_ONPAIR_MAX_LOG2, MOST_MOVES = 500 };

struct builder {
    struct node node[MOST_NODES];
    uint32_t n_nodes;
    uint16_t slot[1 << NODE_SLOTS_LOG2]; /* 1 more than a node's number; 0: free */
    struct sw_onpair_table table;
};

static uint32_t hash_of(const uint32_t text[4], uint32_t bytes) {
    return sw_onpair_mix(text[0] * SW_ONPAIR_MIX0 + text[1] * SW_ONPAIR_MIX1 + text[2] * SW_ONPAIR_MIX2 +
                             text[3] * SW_ONPAIR_MIX3,
                         bytes);
}

/* Returns the slot of the node for a text's first `bytes` bytes, or the free slot where it belongs. text_ret: these
 * bytes. */
static uint16_t *find_slot(struct builder *b, const uint32_t text[4], uint32_t bytes, uint32_t text_ret[4]) {
    memset(text_ret, 0, 4 * sizeof *text_ret);
    memcpy(text_ret, text, bytes);
    uint32_t i = hash_of(text_ret, bytes) >> (32 - NODE_SLOTS_LOG2);
    for (; b->slot[i]; i = (i + 1) % (1 << NODE_SLOTS_LOG2)) {
        const struct node *node = &b->node[b->slot[i] - 1];
        if (node->bytes == bytes && memcmp(node->text, text_ret, sizeof node->text) == 0)
            break;
    }
    return &b->slot[i];
}

/* Adds a node. If there is one of that text, a symbol replaces a marker. */
static void add_node(struct builder *b, const uint32_t text[4], uint32_t bytes, uint32_t number) {
    struct node node = {.bytes = bytes, .number = number};
    uint16_t *slot = find_slot(b, text, bytes, node.text);
    if (*slot) {
        if (number != SW_ONPAIR_NONE)
            b->node[*slot - 1].number = number;
        return;
    }
    b->node[b->n_nodes] = node;
    *slot = (uint16_t)++b->n_nodes;
}

/* Adds the markers that the search for a symbol passes. */
static void add_markers(struct builder *b, const uint32_t text[4], uint32_t bytes) {
    for (uint32_t known = 1, step = SW_ONPAIR_MAX_BYTES / 2; step; step /= 2) {
        if (known + step > bytes)
            continue;
        known += step;
        if (known < bytes)
            add_node(b, text, known, SW_ONPAIR_NONE);
    }
}

/* Finds the longest symbol that a marker begins with. */
static void settle_marker(struct builder *b, struct node *marker) {
    uint32_t text[4];
    for (uint32_t bytes = marker->bytes - 1; bytes >= 2 && marker->number == SW_ONPAIR_NONE; bytes--) {
        const uint16_t slot = *find_slot(b, marker->text, bytes, text);
        /* A shorter marker may name a shorter symbol already. */
        if (slot)
            marker->number = b->node[slot - 1].number;
    }
}

/* Puts an entry into the hash table, moving others to their other bucket. Rarely there is no place. Then the entry that
 * was moved last is left out, and its symbol is not found. */
static void put_entry(const struct sw_onpair_index *index, uint32_t *hashes, uint32_t hash, uint32_t number) {
    uint32_t bucket = sw_onpair_bucket(index, hash, 0);
    for (unsigned moves = 0; moves < MOST_MOVES; moves++) {
        for (unsigned which = 0; which < 2; which++)
            for (unsigned i = 0; i < 2; i++) {
                const uint32_t at = sw_onpair_bucket(index, hash, which);
                if (index->bucket[at][i] != SW_ONPAIR_FREE)
                    continue;
                index->bucket[at][i] = sw_onpair_entry(hash, number);
                hashes[2 * at + i] = hash;
                return;
            }
        const unsigned i = moves / 2 % 2;
        const uint32_t moved = hashes[2 * bucket + i],
                       moved_number = index->bucket[bucket][i] & ((1u << SW_ONPAIR_NUMBER_BITS) - 1);
        index->bucket[bucket][i] = sw_onpair_entry(hash, number);
        hashes[2 * bucket + i] = hash;
        hash = moved;
        number = moved_number;
        bucket = sw_onpair_bucket(index, hash, sw_onpair_bucket(index, hash, 0) == bucket);
    }
}

static void write_codes(const struct sw_onpair_index *index, const struct sw_onpair_table *table) {
    for (uint32_t c = 0; c < SW_ONPAIR_CLASSES; c++)
        for (uint32_t raw = 0; raw < 1u << table->raw_bits[c] && table->first[c] + raw <= table->n; raw++) {
            const uint32_t i = table->first[c] + raw, bytes = i < table->n ? table->length[i] : 0;
            const uint32_t code_bits = SW_ONPAIR_CLASS_BITS + (uint32_t)table->raw_bits[c];
            index->code[i] = c | raw << SW_ONPAIR_CLASS_BITS | code_bits << 16 | bytes << 21;
            if (bytes)
                memcpy(index->text[i], table->text + table->at[i], bytes);
        }
}

static void fill_index(const struct sw_onpair_index *index, struct builder *b, uint32_t *hashes) {
    const struct sw_onpair_table *table = &b->table;
    memset(index->bucket, 0xFF, 2 * sizeof index->bucket[0] << index->log2);
    write_codes(index, table);
    for (uint32_t c = 0; c < 256; c++)
        index->one[c] = (uint16_t)table->n;
    /* Fuller, a hash table of this kind cannot be filled. The last symbols, which are rare, are left out then. */
    const uint32_t most_nodes = (7u << index->log2) / 2;
    for (uint32_t i = 0; i < table->n; i++) {
        if (table->length[i] == 1)
            index->one[table->text[table->at[i]]] = (uint16_t)i;
        else if (b->n_nodes + 4 <= most_nodes) {
            add_node(b, index->text[i], table->length[i], i);
            add_markers(b, index->text[i], table->length[i]);
        }
    }
    for (uint32_t i = 0; i < b->n_nodes; i++) {
        settle_marker(b, &b->node[i]);
        put_entry(index, hashes, hash_of(b->node[i].text, b->node[i].bytes), b->node[i].number);
    }
}

int sw_onpair_index_new(struct sw_onpair_index *ret, const struct sw_frame_dictionary *dictionary) {
    struct builder *b = sw_alloc(sizeof *b);
    int r = b ? sw_onpair_table_read(&b->table, dictionary->data, dictionary->bytes) : -SW_ENOMEM;
    if (r == 0) {
        uint32_t log2 = SW_ONPAIR_MIN_LOG2;
        while (b->table.n >= 1u << log2)
            log2++;
        void *memory = sw_alloc(sw_onpair_index_bytes(log2));
        uint32_t *hashes = sw_alloc_array((size_t)4 << log2, sizeof *hashes);
        r = memory && hashes ? 0 : -SW_ENOMEM;
        if (r == 0) {
            *ret = sw_onpair_index_at(memory, log2);
            fill_index(ret, b, hashes);
        } else {
            sw_free(memory);
        }
        sw_free(hashes);
    }
    sw_free(b);
    return r;
}

void sw_onpair_index_free(struct sw_onpair_index *index) {
    sw_free(index->text);
}
