/* admission.c - decides whether an operation may begin: by its session, limits and quotas, its ranges and its region.
 * It also makes the request's buffers of the ranges. No other file of the engine refuses an operation, except for lack
 * of memory. The caller limits how many operations a session has in flight. */
#include "spill/engine_state.h"

#include "base/assert.h"

#include <string.h>

static int check_range(const struct sw_range *range, uint64_t bytes, struct sw_err *err) {
    const struct sw_mem *mem = range->mem;
    const uint64_t range_bytes = range->frame_bytes ? range->frame_bytes : range->bytes;
    SW_ASSERT(!mem->closing);
    if (range->offset > mem->bytes || range_bytes > mem->bytes - range->offset)
        return sw_err_set(
            err, -SW_ERANGE, SW_SCOPE_REQUEST, "offset %llu and length %llu exceed the memory's %llu bytes",
            (unsigned long long)range->offset, (unsigned long long)range_bytes, (unsigned long long)mem->bytes);
    if (range_bytes < bytes)
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "region has %llu bytes, the buffer %llu",
                          (unsigned long long)bytes, (unsigned long long)range_bytes);
    if (mem->memory.once && mem->used)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "memory was handed over for one operation, which it has had");
    return 0;
}

static bool uses(const struct sw_op *op, const struct sw_range *range, uint64_t bytes) {
    for (unsigned i = 0; i < op->request.n_buffers; i++) {
        const struct sw_buffer *buffer = &op->buffers[i];
        if (buffer->memory == &range->mem->memory && buffer->offset < range->offset + bytes &&
            range->offset < buffer->offset + sw_buffer_range_bytes(buffer))
            return true;
    }
    return false;
}

/* Refuses an operation beside a pack or unpack of the same bytes, and a pack or unpack beside any other operation on
 * them. A pack changes the bytes, and writes them again if it is undone. The check compares handles, so it sees only
 * memories that several operations share, as registered memory. */
static int check_alone(const struct sw_admission *a, const struct sw_range *range, uint64_t bytes, struct sw_err *err) {
    const struct sw_list *ops = &a->owner->ops;
    const bool in_place = sw_operation_is_in_place(a->operation);
    if (!in_place && !range->mem->n_in_place)
        return 0;
    for (const struct sw_list *node = ops->next; node != ops; node = node->next) {
        const struct sw_op *op = SW_CONTAINER_OF(node, const struct sw_op, node);
        const enum sw_operation operation = op->request.operation;
        if ((in_place || sw_operation_is_in_place(operation)) && uses(op, range, bytes))
            return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "a part of that memory is in another operation: %s",
                              sw_operation_name(operation));
    }
    return 0;
}

/* bytes: the raw bytes that the range holds or gets. */
static int check_memory(const struct sw_admission *a, const struct sw_range *range, uint64_t bytes,
                        struct sw_err *err) {
    const uint64_t used_bytes = range->frame_bytes ? range->frame_bytes : bytes;
    if (a->n > 1 && range->mem->memory.once) /* unmapped with the first job that used it, too early for the others */
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory of several buffers must stay open");
    const int rc = check_range(range, used_bytes, err);
    return rc ? rc : check_alone(a, range, used_bytes, err);
}

static int check_open(const struct sw_owner *owner, struct sw_err *err) {
    if (sw_owner_is_ending(owner) || sw_engine_of(owner)->state != SW_ENGINE_RUNNING)
        return sw_err_set(err, -SW_ESHUTDOWN, SW_SCOPE_SESSION, "the session is closing");
    return 0;
}

static void init(struct sw_admission *a, struct sw_owner *owner, enum sw_operation operation,
                 const struct sw_range *ranges, unsigned n) {
    a->operation = operation;
    a->owner = owner;
    a->series = NULL;
    a->frames = NULL;
    a->may_fill_holes = false;
    a->ranges = ranges;
    a->n = n;
}

/* Returns the first bytes of a range as the buffer of this index, or as a part of it; n: buffers of the region. */
static struct sw_buffer buffer_of(const struct sw_range *range, uint64_t bytes, unsigned index, unsigned n) {
    return (struct sw_buffer){.memory = &range->mem->memory,
                              .offset = range->offset,
                              .bytes = bytes,
                              .frame_bytes = range->frame_bytes,
                              .number = n > 1 ? index + 1 : 0};
}

static int check_owner_regions(const struct sw_owner *owner, struct sw_err *err) {
    if (owner->n_regions >= sw_engine_of(owner)->config.max_owner_regions)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "the session has %u regions, the most allowed",
                          owner->n_regions);
    return 0;
}

/* A pack leaves its frames in the client's own memory, so it may begin when the quota is used up. */
static int admit_region(const struct sw_owner *owner, bool in_place, struct sw_err *err) {
    const struct sw_quota *quota = owner->quota;
    const struct sw_region_table *table = &owner->store->regions;
    const int rc = check_owner_regions(owner, err);
    if (rc)
        return rc;
    if (quota && quota->max_regions && quota->n_regions >= quota->max_regions)
        return sw_err_set(err, -SW_ETENANTREGIONS, SW_SCOPE_REQUEST, "the tenant has %u regions, the most allowed",
                          quota->n_regions);
    if (table->n_used >= table->max)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "the service holds %u regions, the most allowed",
                          table->n_used);
    if (quota && !quota->max_regions && !sw_share_allows(quota->n_regions, table->n_used, table->max, 1))
        return sw_err_set(err, -SW_ETENANTREGIONS, SW_SCOPE_REQUEST,
                          "the tenant has %u of %u regions, its share of max_regions (tenant_regions)",
                          quota->n_regions, table->max);
    const unsigned long long stored = quota ? atomic_load(&quota->bytes) : 0;
    if (quota && quota->max_bytes && !in_place && stored >= quota->max_bytes)
        return sw_err_set(err, -SW_ETENANTBYTES, SW_SCOPE_REQUEST,
                          "the tenant has %llu bytes stored, and may have at most %llu", stored,
                          (unsigned long long)quota->max_bytes);
    return 0;
}

static int check_type(enum sw_value_type type, uint64_t bytes, struct sw_err *err) {
    if ((unsigned)type >= SW_VALUE_NR)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "values of type %u are unknown", (unsigned)type);
    if (bytes % sw_value_type_bytes(type))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "%llu bytes are not a multiple of %u, the bytes of a value of type %s",
                          (unsigned long long)bytes, sw_value_type_bytes(type), sw_value_type_name(type));
    return 0;
}

static int check_number(unsigned n, struct sw_err *err) {
    if (n < 1 || n > SW_FRAMES_MAX_BUFFERS)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers, must be 1 to %d", n, SW_FRAMES_MAX_BUFFERS);
    return 0;
}

static int add_bytes(uint64_t *sum, uint64_t bytes, struct sw_err *err) {
    if (__builtin_add_overflow(*sum, bytes, sum))
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "lengths of buffers overflow");
    return 0;
}

static void name_buffer(unsigned i, unsigned n, struct sw_err *err) {
    if (n > 1)
        sw_err_context(err, "buffer %u of %u", i + 1, n);
}

/* ret_bytes: of all buffers. */
static int take_sources(struct sw_admission *a, uint64_t *ret_bytes, struct sw_err *err) {
    int rc = check_number(a->n, err);
    *ret_bytes = 0;
    for (unsigned i = 0; !rc && i < a->n; i++) {
        const struct sw_range *range = &a->ranges[i];
        rc = check_type(range->type, range->bytes, err);
        if (!rc)
            rc = check_memory(a, range, range->bytes, err);
        if (!rc)
            rc = add_bytes(ret_bytes, range->bytes, err);
        if (rc)
            name_buffer(i, a->n, err);
        a->buffers[i] = buffer_of(range, range->bytes, i, a->n);
        a->buffers[i].type = range->type;
    }
    return rc;
}

/* Refuses a region that would not fit into empty tiers. How far its bytes shrink is known only after encoding, but no
 * codec makes shorter frames than sw_frame_least_bytes(). Most memory is far shorter than this bound. But a sparse file
 * may claim any length, and the records and the work for a region grow with its length. A pack stores nothing in the
 * tiers. */
static int check_fits(const struct sw_owner *owner, uint64_t bytes, bool in_place, struct sw_err *err) {
    const struct sw_quota *quota = owner->quota;
    const uint64_t least = sw_frame_least_bytes(bytes), capacity = owner->store->place.capacity_bytes;
    if (in_place)
        return 0;
    if (least > capacity)
        return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST,
                          "%llu bytes never fit: they take at least %llu in tiers of %llu", (unsigned long long)bytes,
                          (unsigned long long)least, (unsigned long long)capacity);
    if (quota && quota->max_bytes && least > quota->max_bytes)
        return sw_err_set(err, -SW_ETENANTBYTES, SW_SCOPE_REQUEST,
                          "%llu bytes never fit: they take at least %llu, the tenant may store %llu",
                          (unsigned long long)bytes, (unsigned long long)least, (unsigned long long)quota->max_bytes);
    return 0;
}

/* Only a region with a name can be found again. */
static int check_durability(const struct sw_owner *owner, const char *name, enum sw_durability durability,
                            struct sw_err *err) {
    if (durability == SW_DURABILITY_SERVICE)
        return 0;
    if ((unsigned)durability >= SW_DURABILITY_NR)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "durability %u is unknown", (unsigned)durability);
    if (!name)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "durability %s needs a name",
                          sw_durability_name(durability));
    struct sw_tier *keeper = sw_tiers_keeper(&owner->store->place.tiers, durability);
    if (!keeper)
        return sw_err_set(err, -SW_EDURABILITY, SW_SCOPE_REQUEST, "no tier keeps regions with durability %s: %s",
                          sw_durability_name(durability),
                          durability == SW_DURABILITY_HOST ? "set nvme_tier_directory" : "set remote_tier_endpoint");
    return keeper->ops->may_keep(keeper, owner->tenant_owner ? owner->tenant_owner->uid : owner->uid, err);
}

static int check_name(const struct sw_owner *owner, const char *name, bool in_place, struct sw_err *err) {
    const size_t bytes = strlen(name);
    if (bytes == 0 || bytes >= SW_REGION_NAME_BYTES || in_place)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          in_place ? "a packed region cannot be durable"
                                   : "a region's name of %zu bytes, must be 1 to %u",
                          bytes, SW_REGION_NAME_BYTES - 1u);
    if (!owner->tenant_owner)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "durable regions are disabled for this session");
    if (sw_name_find(owner->tenant_owner, name))
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_REQUEST, "the tenant has a durable region of this name");
    if (owner->quota && owner->tenant_owner->n_names >= owner->quota->max_durable)
        return sw_err_set(err, -SW_ETENANTREGIONS, SW_SCOPE_REQUEST,
                          "the tenant has %u durable regions, the most allowed", owner->tenant_owner->n_names);
    return 0;
}

int sw_admit_spill(struct sw_owner *owner, const struct sw_transfer *transfer, struct sw_op **ret, struct sw_err *err) {
    const bool in_place = transfer->in_place;
    struct sw_admission a; /* long, so it is not cleared */
    uint64_t bytes;
    SW_ASSERT(!in_place || transfer->n == 1);
    init(&a, owner, in_place ? SW_OP_PACK : SW_OP_SPILL, transfer->ranges, transfer->n);
    int rc = check_open(owner, err);
    if (!rc)
        rc = take_sources(&a, &bytes, err);
    if (!rc)
        rc = admit_region(owner, in_place, err);
    if (!rc)
        rc = check_fits(owner, bytes, in_place, err);
    if (!rc && transfer->name)
        rc = check_name(owner, transfer->name, in_place, err);
    if (!rc)
        rc = check_durability(owner, transfer->name, transfer->durability, err);
    return rc ? rc : sw_op_new(ret, &a, err);
}

int sw_admit_packed(const struct sw_owner *owner, const struct sw_packed *packed, struct sw_err *err) {
    int rc = check_open(owner, err);
    if (!rc && (!packed->raw_bytes || packed->stored_bytes > packed->raw_bytes || packed->codec >= SW_CODEC_NR))
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%llu bytes packed to %llu by codec %u",
                        (unsigned long long)packed->raw_bytes, (unsigned long long)packed->stored_bytes,
                        (unsigned)packed->codec);
    if (!rc)
        rc = check_type(packed->type, packed->raw_bytes, err);
    return rc ? rc : admit_region(owner, true, err);
}

/* ---- builds ---- */

static int check_buffer(const struct sw_owner *owner, const struct sw_build_buffer_config *buffer, struct sw_err *err) {
    const uint64_t most = owner->store->place.chunk_bytes;
    if (buffer->chunk_bytes % SW_BUILD_CHUNK_STEP_BYTES || buffer->chunk_bytes > most)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "chunks of %llu bytes, must be a multiple of %d and at most %llu",
                          (unsigned long long)buffer->chunk_bytes, SW_BUILD_CHUNK_STEP_BYTES, (unsigned long long)most);
    return check_type(buffer->type, buffer->raw_bytes, err);
}

int sw_admit_build(const struct sw_owner *owner, const struct sw_build_config *config, uint64_t *ret_bytes,
                   struct sw_err *err) {
    int rc = check_open(owner, err);
    if (!rc)
        rc = check_number(config->n_buffers, err);
    *ret_bytes = 0;
    for (unsigned i = 0; !rc && i < config->n_buffers; i++) {
        rc = check_buffer(owner, &config->buffers[i], err);
        if (!rc)
            rc = add_bytes(ret_bytes, config->buffers[i].raw_bytes, err);
        if (rc)
            name_buffer(i, config->n_buffers, err);
    }
    if (!rc)
        rc = admit_region(owner, false, err);
    if (!rc)
        rc = check_fits(owner, *ret_bytes, false, err);
    if (!rc && config->name)
        rc = check_name(owner, config->name, false, err);
    if (!rc)
        rc = check_durability(owner, config->name, config->durability, err);
    return rc;
}

/* A range holds whole chunks, unless it ends with the buffer. end_bytes: where the last append ended. */
static int check_place_in(const struct sw_build_buffer *buffer, uint64_t end_bytes, const struct sw_range *range,
                          struct sw_err *err) {
    if (range->at != end_bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "bytes from %llu on were appended, %llu bytes are there",
                          (unsigned long long)range->at, (unsigned long long)end_bytes);
    if (range->bytes > buffer->raw_bytes - end_bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%llu bytes were appended, the buffer lacks only %llu",
                          (unsigned long long)range->bytes, (unsigned long long)(buffer->raw_bytes - end_bytes));
    const bool is_end = range->bytes == buffer->raw_bytes - end_bytes;
    const bool is_whole = buffer->chunk_bytes && range->bytes % buffer->chunk_bytes == 0;
    if ((!is_end && !is_whole) || (range->bytes == 0 && buffer->raw_bytes > 0))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%llu bytes are no whole chunks of %llu",
                          (unsigned long long)range->bytes, (unsigned long long)buffer->chunk_bytes);
    return 0;
}

/* A frame holds one stored chunk. Its content is checked when it has been copied. */
static int check_frame(const struct sw_build_buffer *buffer, const struct sw_range *range, struct sw_err *err) {
    if (!range->frame_bytes)
        return 0;
    if (!buffer->chunk_bytes || range->bytes > buffer->chunk_bytes || !range->bytes)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a frame must hold one chunk of the buffer, of %llu bytes, not %llu bytes",
                          (unsigned long long)buffer->chunk_bytes, (unsigned long long)range->bytes);
    if (range->frame_bytes < sw_frame_least_bytes(range->bytes) ||
        range->frame_bytes > sw_frame_bound_bytes(range->bytes))
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "no frame of %llu bytes takes %llu",
                          (unsigned long long)range->bytes, (unsigned long long)range->frame_bytes);
    return 0;
}

/* For an operation of a series. */
static int admit_part(struct sw_admission *a, struct sw_series *series, unsigned most, struct sw_err *err) {
    int rc = sw_series_check(series, err);
    if (!rc)
        rc = check_open(series->owner, err);
    if (!rc && (a->n < 1 || a->n > most))
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u ranges, must be 1 to %u", a->n, most);
    a->series = series;
    return rc;
}

int sw_admit_append(struct sw_build *build, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                    struct sw_err *err) {
    uint64_t ends[SW_FRAMES_MAX_BUFFERS];
    struct sw_admission a;
    init(&a, build->series.owner, SW_OP_SPILL, ranges, n);
    int rc = admit_part(&a, &build->series, SW_BUILD_MAX_RANGES, err);
    for (unsigned i = 0; i < build->n_buffers; i++)
        ends[i] = build->buffers[i].end_bytes;
    for (unsigned i = 0; !rc && i < n; i++) {
        const struct sw_range *range = &ranges[i];
        if (range->buffer >= build->n_buffers)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u of %u", range->buffer, build->n_buffers);
        const struct sw_build_buffer *buffer = &build->buffers[range->buffer];
        rc = check_place_in(buffer, ends[range->buffer], range, err);
        if (!rc)
            rc = check_frame(buffer, range, err);
        if (!rc)
            rc = check_memory(&a, range, range->bytes, err);
        ends[range->buffer] += rc ? 0 : range->bytes;
        if (rc)
            name_buffer(range->buffer, build->n_buffers, err);
        a.buffers[i] = buffer_of(range, range->bytes, range->buffer, build->n_buffers);
        a.buffers[i].type = buffer->type;
        a.buffers[i].chunk_bytes = buffer->chunk_bytes;
        a.buffers[i].first_chunk = buffer->chunk_bytes ? range->at / buffer->chunk_bytes : 0;
    }
    return rc ? rc : sw_op_new(ret, &a, err);
}

/* ---- restores ---- */

/* Only a packed region is restored in place, and only in place. A client that has packed one has its directory. */
static int check_place(const struct sw_region *region, bool in_place, bool keep, struct sw_err *err) {
    const bool packed = region->frames->packed != NULL;
    if (packed != in_place)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          packed ? "region %u:%u is packed in its own memory: unpack it there"
                                 : "region %u:%u is not packed in its memory: restore it",
                          region->id.slot, region->id.gen);
    if (packed && sw_frames_are_held(region->frames))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "region %u:%u was packed by its client: only this client can unpack it", region->id.slot,
                          region->id.gen);
    if (packed && keep)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "unpacking region %u:%u overwrites it: it cannot be kept",
                          region->id.slot, region->id.gen);
    return 0;
}

static int take_destinations(struct sw_admission *a, const struct sw_region *region, struct sw_err *err) {
    const unsigned n_buffers = sw_frames_n_buffers(region->frames);
    int rc = 0;
    if (a->n != n_buffers)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "region %u:%u has %u buffers, %u were given",
                          region->id.slot, region->id.gen, n_buffers, a->n);
    for (unsigned i = 0; !rc && i < a->n; i++) {
        const uint64_t bytes = sw_frames_buffer(region->frames, i).raw_bytes;
        rc = check_memory(a, &a->ranges[i], bytes, err);
        if (rc)
            name_buffer(i, a->n, err);
        a->buffers[i] = buffer_of(&a->ranges[i], bytes, i, a->n);
    }
    return rc;
}

/* Finds a region that can be restored. */
static int find_out(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    struct sw_region *region;
    const int rc = sw_engine_find(owner, id, &region, err);
    if (rc)
        return rc;
    if (region->state == SW_REGION_LOST)
        return sw_err_set(err, -SW_ELOST, SW_SCOPE_REGION, "region %u:%u was found damaged", id.slot, id.gen);
    if (region->state != SW_REGION_OUT)
        return sw_err_set(err, region->state == SW_REGION_RESTORING ? -SW_EBUSY : -SW_ESTATE, SW_SCOPE_REQUEST,
                          "region %u:%u is %s", id.slot, id.gen, sw_region_state_name(region->state));
    *ret = region;
    return 0;
}

int sw_admit_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_transfer *transfer,
                     struct sw_op **ret, struct sw_region **ret_region, struct sw_err *err) {
    struct sw_region *region = NULL;
    struct sw_admission a;
    init(&a, owner, transfer->in_place ? SW_OP_UNPACK : SW_OP_RESTORE, transfer->ranges, transfer->n);
    int rc = check_open(owner, err);
    if (!rc)
        rc = find_out(owner, id, &region, err);
    if (!rc)
        rc = check_place(region, transfer->in_place, transfer->keep, err);
    if (!rc)
        rc = take_destinations(&a, region, err);
    if (rc)
        return rc;
    a.frames = region->frames;
    a.may_fill_holes = region->may_fill_holes;
    *ret_region = region;
    return sw_op_new(ret, &a, err);
}

/* ---- reads ---- */

int sw_admit_read(struct sw_owner *owner, struct sw_region_id id, struct sw_region **ret, struct sw_err *err) {
    struct sw_region *region = NULL;
    int rc = check_open(owner, err);
    if (!rc)
        rc = find_out(owner, id, &region, err);
    if (!rc)
        rc = check_place(region, false, false, err);
    if (!rc)
        *ret = region;
    return rc;
}

/* Counts the bytes of the whole chunks that a range has room for. */
static int count_bytes(const struct sw_frames_buffer *buffer, const struct sw_range *range, uint64_t *ret,
                       struct sw_err *err) {
    if (range->at % buffer->chunk_bytes || range->at > buffer->raw_bytes ||
        (range->at == buffer->raw_bytes && range->at > 0))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "no chunk begins at %llu: the buffer has %llu bytes in "
                          "chunks of %llu",
                          (unsigned long long)range->at, (unsigned long long)buffer->raw_bytes,
                          (unsigned long long)buffer->chunk_bytes);
    const uint64_t left = buffer->raw_bytes - range->at;
    *ret = range->bytes >= left ? left : range->bytes - range->bytes % buffer->chunk_bytes;
    if (*ret == 0 && left > 0)
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "%llu bytes are no room for a chunk of %llu",
                          (unsigned long long)range->bytes,
                          (unsigned long long)(left < buffer->chunk_bytes ? left : buffer->chunk_bytes));
    return 0;
}

/* A range for a frame gets the frame of one chunk. *ret_bytes: of the chunk. */
static int check_frame_room(const struct sw_frames *frames, const struct sw_frames_buffer *buffer,
                            const struct sw_range *range, uint64_t *ret_bytes, struct sw_err *err) {
    if (*ret_bytes == 0)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "an empty buffer has no frames");
    if (*ret_bytes > buffer->chunk_bytes)
        *ret_bytes = buffer->chunk_bytes;
    const uint64_t frame_bytes = sw_frames_layout_at(frames, range->buffer, range->at)->frame_bytes;
    if (range->frame_bytes < frame_bytes)
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "%llu bytes are no room for a frame of %llu",
                          (unsigned long long)range->frame_bytes, (unsigned long long)frame_bytes);
    return 0;
}

int sw_admit_chunks(struct sw_read *read, const struct sw_range *ranges, unsigned n, struct sw_op **ret,
                    struct sw_err *err) {
    struct sw_admission a;
    init(&a, read->series.owner, SW_OP_RESTORE, ranges, n);
    int rc = admit_part(&a, &read->series, SW_READ_MAX_RANGES, err);
    if (rc)
        return rc;
    a.frames = read->series.region->frames;
    a.may_fill_holes = read->may_fill_holes;
    const unsigned n_buffers = sw_frames_n_buffers(a.frames);
    for (unsigned i = 0; i < n; i++) {
        const struct sw_range *range = &ranges[i];
        uint64_t bytes = 0;
        if (range->buffer >= n_buffers)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "buffer %u of %u", range->buffer, n_buffers);
        const struct sw_frames_buffer buffer = sw_frames_buffer(a.frames, range->buffer);
        rc = count_bytes(&buffer, range, &bytes, err);
        if (!rc && range->frame_bytes)
            rc = check_frame_room(a.frames, &buffer, range, &bytes, err);
        if (!rc)
            rc = check_memory(&a, range, bytes, err);
        if (rc) {
            name_buffer(range->buffer, n_buffers, err);
            return rc;
        }
        a.buffers[i] = buffer_of(range, bytes, range->buffer, n_buffers);
        a.buffers[i].first_chunk = range->at / buffer.chunk_bytes;
        if (range->frame_bytes)
            a.buffers[i].frame_bytes = sw_frames_layout_at(a.frames, range->buffer, range->at)->frame_bytes;
        a.buffers[i].is_disputed = range->is_disputed;
    }
    return sw_op_new(ret, &a, err);
}

/* ---- durable regions ---- */

int sw_admit_adopt(const struct sw_owner *owner, const char *name, struct sw_region **ret, struct sw_err *err) {
    const struct sw_owner *tenant_owner = owner->tenant_owner;
    struct sw_region *region = tenant_owner ? sw_name_find(tenant_owner, name) : NULL;
    if (!region)
        return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "there is no durable region of this name");
    if (region->owner != owner && (region->owner != tenant_owner || region->move))
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST,
                          region->move ? "the region is being moved between tiers"
                                       : "another session has the region, or may come back for it");
    if (sw_region_is_busy(region) && !region->frames) /* its spill may fail, and it may not be durable yet */
        return sw_err_set(err, -SW_EBUSY, SW_SCOPE_REQUEST, "the region is being spilled");
    *ret = region;
    return region->owner == owner ? 0 : check_owner_regions(owner, err);
}
