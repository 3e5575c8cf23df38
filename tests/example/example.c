/* Parks a buffer in spillwayd and gets it back: example [SOCKET] */
#define _GNU_SOURCE
#include <spillway.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

enum { BYTES = 8 << 20 };

/* Memory that can be handed over; on a GPU, cudaMalloc(&data, BYTES) and cudaFree(data). The Spillway calls stay the
 * same there, with the stream that fills the buffer; fill and check it by a kernel or cudaMemcpy(), not by the CPU. */
static char *new_buffer(int *ret_fd) {
    *ret_fd = memfd_create("column", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (*ret_fd < 0 || ftruncate(*ret_fd, BYTES) < 0)
        return NULL;
    char *data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, *ret_fd, 0);
    return data == MAP_FAILED ? NULL : data;
}

static int failed(const char *what, const struct spillway_error *error) {
    fprintf(stderr, "%s: %s: %s\n", what, error->name, error->text);
    return 1;
}

int main(int argc, char **argv) {
    static const char text[] = "carefully final deposits sleep furiously. ";
    struct spillway_error error;
    struct spillway *spillway;
    struct spillway_ticket *ticket;
    const struct spillway_options options = {.size = sizeof options, .socket_path = argc > 1 ? argv[1] : NULL};
    int fd, same = 1;
    if (spillway_open(&spillway, &options, &error) < 0)
        return failed("connect", &error);
    char *data = new_buffer(&fd);
    for (size_t i = 0; data && i < BYTES; i++)
        data[i] = text[i % (sizeof text - 1)];

    struct spillway_buffer buffer = {.data = data, .bytes = BYTES};
    struct spillway_request request = {.size = sizeof request, .buffers = &buffer, .n_buffers = 1};
    struct spillway_result result = {.size = sizeof result};
    if (spillway_spill(spillway, &request, 1, &ticket, &error) < 0 ||
        spillway_wait(ticket, -1, &result, 1, &error) < 0) /* or watch spillway_fd() and call spillway_dispatch() */
        return failed("spill", &error);
    spillway_ticket_free(ticket);
    munmap(data, BYTES); /* the memory is yours again */
    close(fd);
    printf("%d bytes parked in %llu (%s)\n", BYTES, (unsigned long long)result.stored_bytes, result.codec);

    buffer.data = data = new_buffer(&fd);
    request.region = result.region;
    if (spillway_restore(spillway, &request, 1, &ticket, &error) < 0 ||
        spillway_wait(ticket, -1, &result, 1, &error) < 0)
        return failed("restore", &error);
    spillway_ticket_free(ticket);
    for (size_t i = 0; i < BYTES; i++)
        same &= data[i] == text[i % (sizeof text - 1)];
    puts(same ? "every byte is back" : "bytes differ");
    spillway_close(spillway);
    return !same;
}
