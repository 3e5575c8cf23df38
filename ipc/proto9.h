/* proto9.h - messages of version 9 that version 10 has replaced. Only proto.h includes it.
 *
 * - SPILL_BATCH and RESTORE_BATCH are up to SW_PROTO_MAX_BATCH spills or restores in one memory that stays open, all or
 *   nothing. Array elements from `count` on are ignored.
 * - DROP_BATCH drops as many regions as it can. Its ERROR is about the first region that it could not drop. With
 *   `consume`, and in CONSUME, durable regions stay.
 * - SPILL_BUFFERS makes one region of up to 64 buffers in memories that stay open. RESTORE_BUFFERS names as many
 *   destinations, in the same order. waits: 1 if the buffer waits for its word.
 * - SPILL_DURABLE makes a region with a name. */
#ifndef SW_IPC_PROTO9_H
#define SW_IPC_PROTO9_H

#define SW_PROTO_MAX_BATCH 256
#define SW_PROTO_MAX_CHUNKS 64 /* of REGION_PACKED */

/* Flags of SPILL and RESTORE, and of their batches. Batches cannot be IN_PLACE. */
#define SW_REQ9_ORDER 1u    /* wait until order_word of the order page has order_value */
#define SW_REQ9_KEEP 2u     /* RESTORE, RESTORE_BATCH: keep the stored copy */
#define SW_REQ9_IN_PLACE 4u /* pack, unpack: the frames are at the front of the range itself */

/* clang-format off */
#define SW_FIELDS_SPILL(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(mem) U32(flags) U64(offset) U64(bytes) U32(order_word) U64(order_value) U32(value_type)
#define SW_FIELDS_RESTORE(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(slot) U32(gen) U32(mem) U32(flags) U64(offset) U64(bytes) U32(order_word) U64(order_value)
#define SW_FIELDS_DROP(U16, U32, U64, BYTES, U32S, U64S, ARRAY)       U32(slot) U32(gen)
#define SW_FIELDS_QUERY(U16, U32, U64, BYTES, U32S, U64S, ARRAY)      U32(slot) U32(gen)
#define SW_FIELDS_RESULT(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(slot) U32(gen) U64(raw_bytes) U64(stored_bytes) U64(service_us) BYTES(codec, SW_PROTO_CODEC_BYTES) \
    BYTES(tier, SW_PROTO_TIER_BYTES) BYTES(reason, SW_PROTO_REASON_BYTES)
#define SW_FIELDS_REGION(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U64(raw_bytes) U64(stored_bytes) BYTES(state, 16) BYTES(codec, SW_PROTO_CODEC_BYTES) \
    BYTES(tier, SW_PROTO_TIER_BYTES)
#define SW_FIELDS_SPILL_BATCH(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(mem) U32(flags) U32(count) U32(order_word) U64(order_value) U64S(offset, SW_PROTO_MAX_BATCH) \
    U64S(bytes, SW_PROTO_MAX_BATCH)
#define SW_FIELDS_RESTORE_BATCH(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(mem) U32(flags) U32(count) U32(order_word) U64(order_value) U32S(slot, SW_PROTO_MAX_BATCH) \
    U32S(gen, SW_PROTO_MAX_BATCH) U64S(offset, SW_PROTO_MAX_BATCH) U64S(bytes, SW_PROTO_MAX_BATCH)
#define SW_FIELDS_DROP_BATCH(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(count) U32S(slot, SW_PROTO_MAX_BATCH) U32S(gen, SW_PROTO_MAX_BATCH) U32(consume)
#define SW_FIELDS_RESULT_BATCH(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(count) U64(raw_bytes) U64(stored_bytes) U64(service_us) BYTES(codec, SW_PROTO_CODEC_BYTES) \
    BYTES(tier, SW_PROTO_TIER_BYTES) BYTES(reason, SW_PROTO_REASON_BYTES) U32S(slot, SW_PROTO_MAX_BATCH) \
    U32S(gen, SW_PROTO_MAX_BATCH)
#define SW_FIELDS_SETTLE9(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(type) U32(seq) U32(count) U32S(slot, SW_PROTO_MAX_BATCH) U32S(gen, SW_PROTO_MAX_BATCH)
#define SW_FIELDS_SPILL_BUFFERS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(flags) U32(count) U32S(mem, SW_PROTO_MAX_BUFFERS) \
    U32S(waits, SW_PROTO_MAX_BUFFERS) U32S(order_word, SW_PROTO_MAX_BUFFERS) \
    U64S(order_value, SW_PROTO_MAX_BUFFERS) U32S(value_type, SW_PROTO_MAX_BUFFERS) U64S(offset, SW_PROTO_MAX_BUFFERS) \
    U64S(bytes, SW_PROTO_MAX_BUFFERS)
#define SW_FIELDS_RESTORE_BUFFERS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(slot) U32(gen) U32(flags) U32(count) U32S(mem, SW_PROTO_MAX_BUFFERS) \
    U32S(waits, SW_PROTO_MAX_BUFFERS) U32S(order_word, SW_PROTO_MAX_BUFFERS) \
    U64S(order_value, SW_PROTO_MAX_BUFFERS) U64S(offset, SW_PROTO_MAX_BUFFERS) U64S(bytes, SW_PROTO_MAX_BUFFERS)
#define SW_FIELDS_QUERY_BUFFERS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) U32(slot) U32(gen)
#define SW_FIELDS_REGION_BUFFERS(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(count) U64S(raw_bytes, SW_PROTO_MAX_BUFFERS) U64S(stored_bytes, SW_PROTO_MAX_BUFFERS) \
    BYTES(codecs, SW_PROTO_MAX_BUFFERS * SW_PROTO_CODEC_BYTES)                                                          \
    BYTES(reasons, SW_PROTO_MAX_BUFFERS * SW_PROTO_REASON_BYTES)
#define SW_FIELDS_QUERY_PACKED(U16, U32, U64, BYTES, U32S, U64S, ARRAY) U32(slot) U32(gen) U32(first)
#define SW_FIELDS_REGION_PACKED(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(n_chunks) U32(count) U64S(offset, SW_PROTO_MAX_CHUNKS) U64S(bytes, SW_PROTO_MAX_CHUNKS) \
    U64S(raw_bytes, SW_PROTO_MAX_CHUNKS) U32S(codec, SW_PROTO_MAX_CHUNKS) U32S(type, SW_PROTO_MAX_CHUNKS) \
    U32S(n_symbols, SW_PROTO_MAX_CHUNKS)
#define SW_FIELDS_SPILL_DURABLE(U16, U32, U64, BYTES, U32S, U64S, ARRAY) \
    U32(mem) U32(flags) U64(offset) U64(bytes) U32(order_word) U64(order_value) BYTES(name, SW_PROTO_NAME_BYTES) \
    U32(value_type)
#define SW_FIELDS_CONSUME(U16, U32, U64, BYTES, U32S, U64S, ARRAY)    U32(slot) U32(gen)

#define SW_MESSAGES_9(X) \
    X(SPILL, spill, 5) X(RESTORE, restore, 6) X(DROP, drop, 7) X(QUERY, query, 8) X(SPILL_BATCH, spill_batch, 11) \
    X(RESTORE_BATCH, restore_batch, 12) X(DROP_BATCH, drop_batch, 13) X(SETTLE9, settle9, 14) \
    X(SPILL_BUFFERS, spill_buffers, 15) X(RESTORE_BUFFERS, restore_buffers, 16) \
    X(QUERY_BUFFERS, query_buffers, 17) X(SPILL_DURABLE, spill_durable, 23) X(CONSUME, consume, 25) \
    X(QUERY_PACKED, query_packed, 26) X(RESULT, result, 102) X(REGION, region, 103) \
    X(RESULT_BATCH, result_batch, 106) X(REGION_BUFFERS, region_buffers, 107) X(REGION_PACKED, region_packed, 108)
/* clang-format on */

#endif
