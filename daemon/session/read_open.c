#include "daemon/session/read_open.h"

#include "base/assert.h"
#include "daemon/session/chunks.h"
#include <inttypes.h>

static bool begins(const struct sw_read_part *part) {
    return part->read->flags & SW_READ_BEGIN;
}

static bool ends(const struct sw_read_part *part) {
    return part->read->flags & SW_READ_END;
}

/* ---- begin and chunks -------------------------------------------------------------------------------------------- */

static int begin(struct sw_session *session, struct sw_piece *piece, const struct sw_read_part *part,
                 struct sw_open **ret, struct sw_buffer_info *ret_buffers, unsigned *ret_n, struct sw_err *err) {
    const struct sw_region_id id = {part->read->slot, part->read->gen};
    int rc = sw_opens_begin(session, part->read->read, true, ret, err);
    if (rc < 0)
        return rc;
    rc = sw_read_begin(session->owner, id, &(*ret)->read, ret_buffers, ret_n, err);
    if (rc < 0)
        sw_open_end(session, *ret);
    else
        *sw_piece_id(piece) = id;
    return rc;
}

static int ask(struct sw_piece *piece, const struct sw_open *open, const struct sw_read_part *part,
               struct sw_err *err) {
    struct sw_range ranges[SW_PROTO_MAX_ITEMS];
    const unsigned n = part->read->n_chunks;
    int rc = sw_chunks_ranges(piece, part->chunks, n, ranges, err);
    if (rc == 0)
        rc = sw_read_chunks(open->read, ranges, n, sw_piece_moved, piece, err);
    if (rc == 0)
        sw_piece_expect(piece);
    return rc;
}

/* ---- end --------------------------------------------------------------------------------------------------------- */

static int check_has_all(const struct sw_open *open, const struct sw_read_part *part, struct sw_err *err) {
    if ((part->read->flags & SW_READ_KEEP) || sw_read_state(open->read) == SW_READ_FAILED ||
        sw_read_has_all(open->read))
        return 0;
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                      "not all of the region's chunks have been read: read them, or end with the region kept");
}

/* cause: why it fails; NULL: it does not. */
static void end(struct sw_piece *piece, struct sw_open *open, bool keeps, const struct sw_err *cause) {
    if (cause)
        sw_read_fail(open->read, cause);
    SW_ASSERT(sw_read_end(open->read, keeps || cause, sw_piece_ended, piece, NULL) == 0);
    sw_piece_end(piece, open);
    sw_piece_expect(piece);
}

/* What is asked of an open read that is there. */
static void go_on(struct sw_piece *piece, struct sw_open *open, const struct sw_read_part *part) {
    struct sw_err cause;
    const bool is_moot = sw_piece_moot(piece, &cause) < 0;
    int rc = is_moot ? cause.code : 0;
    if (rc == 0 && part->read->n_chunks)
        rc = ask(piece, open, part, &cause);
    if (rc == 0 && ends(part))
        rc = check_has_all(open, part, &cause);
    const bool stays = rc < 0 && !is_moot && !begins(part) && !(part->read->flags & SW_READ_KEEP);
    if (rc < 0)
        sw_piece_fail(piece, &cause);
    if (ends(part) && !stays)
        end(piece, open, part->keeps, rc < 0 ? &cause : NULL);
}

/* ---- a part ------------------------------------------------------------------------------------------------------ */

static int begin_and_tell(struct sw_session *session, struct sw_piece *piece, const struct sw_read_part *part,
                          struct sw_err *err) {
    struct sw_buffer_info buffers[SW_FRAMES_MAX_PARTS];
    struct sw_open *open;
    struct sw_err cause;
    unsigned n = 0;
    int rc = sw_piece_moot(piece, err);
    if (rc == 0)
        rc = begin(session, piece, part, &open, buffers, &n, err);
    if (rc < 0)
        return rc;
    if (!ends(part) && sw_piece_tell(piece, buffers, n, &cause) < 0)
        end(piece, open, true, &cause);
    else
        go_on(piece, open, part);
    return 0;
}

/* The end of one that a packet ends already is a cancel. */
static int find(const struct sw_session *session, const struct sw_read_part *part, struct sw_open **ret,
                struct sw_err *err) {
    const int rc = sw_opens_find(session, part->read->read, true, ret, err);
    if (rc < 0 || !(*ret)->piece)
        return rc;
    if (part->read->flags != (SW_READ_END | SW_READ_KEEP) || part->read->n_chunks)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "read %" PRIu32 " was ended already", part->read->read);
    sw_piece_cancel((*ret)->piece);
    return sw_err_set(err, -SW_ECANCELED, SW_SCOPE_REQUEST,
                      "read %" PRIu32 " was canceled: the reply to its last packet says what has become of it",
                      part->read->read);
}

int sw_read_part(struct sw_session *session, struct sw_piece *piece, const struct sw_read_part *part,
                 struct sw_err *err) {
    struct sw_open *open;
    if (begins(part))
        return begin_and_tell(session, piece, part, err);
    const int rc = find(session, part, &open, err);
    if (rc == 0)
        go_on(piece, open, part);
    return rc;
}
