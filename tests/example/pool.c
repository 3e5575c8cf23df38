/* Works on columns that are twice as large as their budget: pool [SOCKET] */
#include <spillway_pool.h>
#include <stdio.h>

enum { COLUMNS = 8, VALUES = 1 << 18, BYTES = 4 * VALUES };

static int failed(const char *what, const struct spillway_error *error) {
    fprintf(stderr, "%s: %s: %s\n", what, error->name, error->text);
    return 1;
}

/* Stands for a kernel. Where the process has loaded CUDA, the pool's memory is the GPU's: then queue one on a stream.
 */
static void fill(int *values, int column) {
    for (int i = 0; i < VALUES; i++)
        values[i] = column + i % 100;
}

static int is_whole(const int *values, int column) {
    int whole = 1;
    for (int i = 0; i < VALUES; i++)
        whole &= values[i] == column + i % 100;
    return whole;
}

int main(int argc, char **argv) {
    const struct spillway_options connection = {.size = sizeof connection, .socket_path = argc > 1 ? argv[1] : NULL};
    const struct spillway_pool_options options = {
        .size = sizeof options, .connection = &connection, .budget_bytes = (uint64_t)COLUMNS / 2 * BYTES};
    const struct spillway_handle_options column = {.size = sizeof column, .bytes = BYTES, .type = SPILLWAY_I32};
    struct spillway_pool_stats stats = {.size = sizeof stats};
    struct spillway_handle *handles[COLUMNS];
    struct spillway_error error;
    struct spillway_pool *pool;
    int whole = 1;
    if (spillway_pool_create(&pool, &options, &error) < 0)
        return failed("pool", &error);
    for (int turn = 0; turn < 2; turn++)
        for (int i = 0; i < COLUMNS; i++) {
            void *data;
            if (turn == 0 && spillway_pool_new(pool, &column, &handles[i], &error) < 0)
                return failed("new", &error);
            if (spillway_handle_pin(handles[i], NULL, &data, &error) < 0)
                return failed("pin", &error);
            if (turn == 0)
                fill(data, i);
            else
                whole &= is_whole(data, i);
            if (spillway_handle_unpin(handles[i], NULL, &error) < 0)
                return failed("unpin", &error);
        }
    spillway_pool_stats(pool, &stats, &error);
    printf("%llu of %d bytes held; %llu evictions, %llu restores\n", (unsigned long long)stats.held_bytes,
           COLUMNS * BYTES, (unsigned long long)stats.evictions, (unsigned long long)stats.restores);
    puts(whole ? "every byte is back" : "bytes differ");
    spillway_pool_close(pool);
    return !whole;
}
