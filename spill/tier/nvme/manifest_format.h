/* manifest_format.h - the records of a manifest, as in MANIFEST.md. Only for the code that writes them (manifest.c) and
 * reads them (manifest_scan.c). */
#ifndef SW_SPILL_MANIFEST_FORMAT_H
#define SW_SPILL_MANIFEST_FORMAT_H

#include "codec/checksum.h"
#include "spill/tier/tier.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "records are written as they lie in memory");

#define SW_MANIFEST_FILE "manifest"
#define SW_MANIFEST_NEW_FILE "manifest.new"

enum { SW_MANIFEST_VERSION = 1, SW_MANIFEST_BLOCK_BYTES = SW_TIER_IO_ALIGN, SW_MANIFEST_RECORD_ALIGN = 8 };

struct sw_manifest_header {
    char magic[8];
    uint32_t version, block_bytes;
    uint64_t file_bytes, first_sequence;
    uint8_t zero[28];
    uint32_t hash;
};
_Static_assert(sizeof(struct sw_manifest_header) == 64, "as MANIFEST.md has it");

enum sw_manifest_kind { SW_MANIFEST_COMMIT = 1, SW_MANIFEST_RELEASE = 2, SW_MANIFEST_COMMIT_PLAIN = 3 };

struct sw_manifest_head {
    uint32_t hash, body_hash, body_bytes, kind;
    uint64_t sequence, id;
};
_Static_assert(sizeof(struct sw_manifest_head) == 32, "as MANIFEST.md has it");

struct sw_manifest_extent {
    uint64_t offset, bytes;
};

struct sw_manifest_body {
    uint8_t key[SW_TIER_KEY_BYTES];
    uint64_t bytes;
    struct sw_manifest_extent extents[];
};
_Static_assert(sizeof(struct sw_manifest_body) == 40, "as MANIFEST.md has it");

static inline uint32_t sw_manifest_hash(const void *data, size_t bytes) {
    return sw_hash_finish(sw_hash_update(1, data, bytes));
}

static inline uint32_t sw_manifest_head_hash(const struct sw_manifest_head *head) {
    return sw_manifest_hash((const char *)head + sizeof head->hash, sizeof *head - sizeof head->hash);
}

#endif
