#include "spill/device/sealer.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/list.h"
#include "base/thread.h"

#include <pthread.h>
#include <stdatomic.h>

/* Tiles of one frame that a thread takes at a time: 512 KiB, a tenth of a millisecond. */
enum { PIECE_TILES = 16 };

struct sw_sealer_pool {
    pthread_mutex_t lock;  /* guards all below, and what sealers say that it guards */
    pthread_cond_t is_due; /* for the threads */
    struct sw_list due;    /* sealers of which pieces are left to take: the first is served first */
    bool stop;
    unsigned n_threads, n_started;
    pthread_t threads[SW_SEALER_MAX_THREADS];
};

struct sw_sealer {
    struct sw_sealer_pool *pool;
    struct sw_list due;   /* node of pool->due; the lock guards it, and what comes next */
    pthread_cond_t ended; /* for who waits */
    atomic_uint n_left;   /* pieces that have not ended; read without the lock, too */
    uint32_t n_bad;
    unsigned frame;     /* of the next piece */
    uint32_t next_tile; /* in that frame */
    /* What pieces are: as it is while any is left. */
    enum sw_sealer_work work;
    void (*run)(void *arg); /* NULL: `work` */
    void *arg;
    struct sw_run *runs; /* of all frames, one behind the other */
    unsigned cap_runs;
    struct frame {
        const struct sw_frame_layout *layout;
        const struct sw_run *runs;
        unsigned n_runs;
    } frames[SW_RAW_MAX];
    unsigned n_frames;
};

/* What a thread does without the lock. */
struct piece {
    struct sw_sealer *sealer;
    const struct frame *frame;
    struct sw_tile_range tiles;
};

static unsigned count_pieces(const struct frame *frame) {
    return (frame->layout->n_tiles + PIECE_TILES - 1) / PIECE_TILES;
}

/* ---- threads ---- */

static struct piece take_piece(struct sw_sealer_pool *pool) {
    struct sw_sealer *s = SW_CONTAINER_OF(pool->due.next, struct sw_sealer, due);
    struct piece piece = {.sealer = s, .frame = &s->frames[s->frame], .tiles.first = s->next_tile};
    if (s->run) {
        sw_list_remove(&s->due);
        return piece;
    }
    const uint32_t left = piece.frame->layout->n_tiles - s->next_tile;
    s->next_tile += left < PIECE_TILES ? left : PIECE_TILES;
    piece.tiles.end = s->next_tile;
    if (piece.tiles.end == piece.frame->layout->n_tiles) {
        s->next_tile = 0;
        if (++s->frame == s->n_frames)
            sw_list_remove(&s->due);
    }
    return piece;
}

/* Returns how many tiles are bad. */
static uint32_t work_on(const struct piece *piece) {
    const struct sw_sealer *s = piece->sealer;
    const struct frame *frame = piece->frame;
    if (s->run)
        s->run(s->arg);
    else if (s->work == SW_SEALER_VERIFY)
        return sw_raw_runs_verify(frame->layout, frame->runs, frame->n_runs, piece->tiles);
    else
        sw_raw_runs_seal(frame->layout, frame->runs, frame->n_runs, piece->tiles);
    return 0;
}

static void *thread_main(void *arg) {
    struct sw_sealer_pool *pool = arg;
    (void)pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (sw_list_empty(&pool->due) && !pool->stop)
            (void)pthread_cond_wait(&pool->is_due, &pool->lock);
        if (sw_list_empty(&pool->due))
            break;
        const struct piece piece = take_piece(pool);
        (void)pthread_mutex_unlock(&pool->lock);
        const uint32_t n_bad = work_on(&piece);
        (void)pthread_mutex_lock(&pool->lock);
        piece.sealer->n_bad += n_bad;
        if (atomic_fetch_sub(&piece.sealer->n_left, 1) == 1)
            (void)pthread_cond_signal(&piece.sealer->ended);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return NULL;
}

int sw_sealer_pool_new(struct sw_sealer_pool **ret, unsigned n_threads, struct sw_err *err) {
    SW_ASSERT(n_threads >= 1 && n_threads <= SW_SEALER_MAX_THREADS);
    struct sw_sealer_pool *pool = sw_alloc(sizeof *pool);
    if (!pool)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for the threads of a GPU");
    (void)pthread_mutex_init(&pool->lock, NULL);
    (void)pthread_cond_init(&pool->is_due, NULL);
    sw_list_init(&pool->due);
    pool->n_threads = n_threads;
    *ret = pool;
    return 0;
}

void sw_sealer_pool_free(struct sw_sealer_pool *pool) {
    if (!pool)
        return;
    (void)pthread_mutex_lock(&pool->lock);
    SW_ASSERT(sw_list_empty(&pool->due));
    pool->stop = true;
    (void)pthread_cond_broadcast(&pool->is_due);
    (void)pthread_mutex_unlock(&pool->lock);
    for (unsigned i = 0; i < pool->n_started; i++)
        (void)pthread_join(pool->threads[i], NULL);
    (void)pthread_cond_destroy(&pool->is_due);
    (void)pthread_mutex_destroy(&pool->lock);
    sw_free(pool);
}

/* Fewer threads than there should be are enough. */
static int start_threads(struct sw_sealer_pool *pool) {
    while (pool->n_started < pool->n_threads && !sw_thread_start(&pool->threads[pool->n_started], thread_main, pool))
        pool->n_started++;
    return pool->n_started > 0 ? 0 : -SW_ENOMEM;
}

/* ---- a slot's ---- */

int sw_sealer_new(struct sw_sealer **ret, struct sw_sealer_pool *pool, struct sw_err *err) {
    struct sw_sealer *s = sw_alloc(sizeof *s);
    if (!s)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DEVICE, "out of memory for a slot");
    (void)pthread_cond_init(&s->ended, NULL);
    sw_list_init(&s->due);
    s->pool = pool;
    *ret = s;
    return 0;
}

void sw_sealer_free(struct sw_sealer *s) {
    if (!s)
        return;
    sw_sealer_wait(s);
    (void)pthread_cond_destroy(&s->ended);
    sw_free(s->runs);
    sw_free(s);
}

void sw_sealer_runs(struct sw_run *ret, const struct sw_stored *frame) {
    for (unsigned i = 0; i < frame->n_extents; i++)
        ret[i] = (struct sw_run){.memory = frame->extents[i].memory, .bytes = frame->extents[i].bytes};
}

static int make_room(struct sw_sealer *s, unsigned n_runs) {
    if (n_runs <= s->cap_runs)
        return 0;
    struct sw_run *runs = sw_alloc_array(n_runs, sizeof *runs);
    if (!runs)
        return -SW_ENOMEM;
    sw_free(s->runs);
    s->runs = runs;
    s->cap_runs = n_runs;
    return 0;
}

int sw_sealer_take(struct sw_sealer *s, const struct sw_raw_item *items, unsigned n, struct sw_err *err) {
    unsigned n_runs = 0;
    SW_ASSERT(n <= SW_RAW_MAX && sw_sealer_ended(s));
    for (unsigned i = 0; i < n; i++)
        n_runs += items[i].stored->n_extents;
    const int rc = make_room(s, n_runs);
    struct sw_run *runs = s->runs;
    for (unsigned i = 0; !rc && i < n; i++) {
        const struct sw_stored *stored = items[i].stored;
        s->frames[i] = (struct frame){.layout = &items[i].frame, .runs = runs, .n_runs = stored->n_extents};
        sw_sealer_runs(runs, stored);
        runs += stored->n_extents;
    }
    s->n_frames = rc ? 0 : n;
    s->n_bad = 0;
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "out of memory for the places of a frame") : 0;
}

/* Has the threads begin with n pieces of what the sealer says. */
static int begin(struct sw_sealer *s, unsigned n, struct sw_err *err) {
    struct sw_sealer_pool *pool = s->pool;
    (void)pthread_mutex_lock(&pool->lock);
    const int rc = start_threads(pool);
    if (rc == 0) {
        atomic_store(&s->n_left, n);
        if (s->run) /* not hashes, of which there may be many: what a plan waits for */
            sw_list_prepend(&pool->due, &s->due);
        else
            sw_list_append(&pool->due, &s->due);
        if (n > 1)
            (void)pthread_cond_broadcast(&pool->is_due);
        else
            (void)pthread_cond_signal(&pool->is_due);
    }
    (void)pthread_mutex_unlock(&pool->lock);
    return rc ? sw_err_set(err, rc, SW_SCOPE_REQUEST, "no thread for the work of a slot") : 0;
}

int sw_sealer_begin(struct sw_sealer *s, enum sw_sealer_work work, unsigned first, struct sw_err *err) {
    unsigned n = 0;
    SW_ASSERT(sw_sealer_ended(s));
    for (unsigned i = first; i < s->n_frames; i++)
        n += count_pieces(&s->frames[i]);
    s->run = NULL;
    s->work = work;
    s->frame = first;
    s->next_tile = 0;
    return n > 0 ? begin(s, n, err) : 0;
}

int sw_sealer_run(struct sw_sealer *s, void (*run)(void *arg), void *arg, struct sw_err *err) {
    SW_ASSERT(sw_sealer_ended(s));
    s->run = run;
    s->arg = arg;
    return begin(s, 1, err);
}

void sw_sealer_seal_hashed(const struct sw_sealer *s, unsigned end, const uint32_t *hashes) {
    SW_ASSERT(end <= s->n_frames);
    for (const struct frame *frame = s->frames; frame < s->frames + end; frame++) {
        sw_raw_runs_seal_hashed(frame->layout, frame->runs, frame->n_runs, hashes);
        hashes += frame->layout->n_tiles;
    }
}

uint32_t sw_sealer_verify_hashed(const struct sw_sealer *s, unsigned end, const uint32_t *hashes) {
    uint32_t n_bad = 0;
    SW_ASSERT(end <= s->n_frames);
    for (const struct frame *frame = s->frames; frame < s->frames + end; frame++) {
        n_bad += sw_raw_runs_verify_hashed(frame->layout, frame->runs, frame->n_runs, hashes);
        hashes += frame->layout->n_tiles;
    }
    return n_bad;
}

bool sw_sealer_ended(struct sw_sealer *s) {
    return atomic_load(&s->n_left) == 0;
}

void sw_sealer_wait(struct sw_sealer *s) {
    (void)pthread_mutex_lock(&s->pool->lock);
    while (s->n_left > 0)
        (void)pthread_cond_wait(&s->ended, &s->pool->lock);
    (void)pthread_mutex_unlock(&s->pool->lock);
}

uint32_t sw_sealer_bad_tiles(struct sw_sealer *s) {
    SW_ASSERT(sw_sealer_ended(s));
    return s->n_bad;
}
