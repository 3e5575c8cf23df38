/* swcodec - encodes and decodes files and pipes as streams of frames (codec/FORMAT.md, "Stream"), and predicts how well
 * a spill would compress a file. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "base/thread.h"
#include "codec/codec.h"
#include "codec/lz/lz.h"
#include "codec/onpair/onpair.h"
#include "codec/plan/planning.h"
#include "codec/plan/rates.h"
#include "codec/swcodec/files.h"
#include "codec/swcodec/stream.h"

#include <getopt.h>
#include <inttypes.h>
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define DEFAULT_CHUNK_MIB 16
#define MAX_CHUNK_MIB 256 /* the limit of a stream's chunks in FORMAT.md */
#define MAX_THREADS 256
#define DEFAULT_LINK_GBPS 55 /* PCIe Gen5 x16, pinned memory, one way */
#define DISK_GBPS 3
#define NVLINK_GBPS 450 /* NVLink 4, one way */
#define PROGRESS_AFTER_US 1000000
#define PROGRESS_EVERY_US 200000

enum { EXIT_USAGE = 2 };

struct options {
    bool is_forced, is_quiet, is_dense;
    unsigned threads, chunk_mib;
    double link_gbps;
    enum sw_value_type type; /* of the input's values */
};

/* One run of a command. The stream's functions share it. */
struct job {
    const struct options *options;
    struct sw_input input;
    struct sw_output output; /* fd -1: frames are counted, not written (probe) */
    const char *failed_name; /* the file that an error is about */
    struct sw_buffer *first; /* probe: a copy of the first chunk; the reader's. NULL: not wanted */
    /* Used by the writer only: */
    uint64_t raw_bytes, stored_bytes, input_bytes, frames[SW_CODEC_NR], work_us;
    uint64_t start_us, shown_us;
    bool is_showing;
};

/* ---- progress ---- */

static void show_progress(struct job *job) {
    uint64_t now = sw_clock_us();
    if (!job->is_showing || now - job->start_us < PROGRESS_AFTER_US || now - job->shown_us < PROGRESS_EVERY_US)
        return;
    job->shown_us = now;
    double rate = (double)job->input_bytes / (double)(now - job->start_us);
    if (job->input.total_bytes) {
        unsigned percent = (unsigned)(100.0 * (double)job->input_bytes / (double)job->input.total_bytes);
        char bar[26];
        for (unsigned i = 0; i < sizeof bar - 1; i++)
            bar[i] = i < percent / 4 ? '#' : '.';
        bar[sizeof bar - 1] = '\0';
        fprintf(stderr, "\r[%s] %3u %%  %" PRIu64 " MB  %.0f MB/s ", bar, percent > 100 ? 100 : percent,
                job->input_bytes / 1000000, rate);
    } else {
        fprintf(stderr, "\r%" PRIu64 " MB  %.0f MB/s ", job->input_bytes / 1000000, rate);
    }
}

static void clear_progress(const struct job *job) {
    if (job->shown_us)
        fprintf(stderr, "\r%*s\r", 78, "");
}

/* ---- encode ---- */

static int encode_read(void *arg, struct sw_chunk *chunk, int stop_fd, struct sw_err *err) {
    struct job *job = arg;
    int r = sw_buffer_resize(&chunk->in, (size_t)job->options->chunk_mib << 20, err);
    if (r == 0)
        r = sw_input_read(&job->input, chunk->in.data, chunk->in.bytes, stop_fd, &chunk->in.bytes, err);
    if (r == 0 && chunk->in.bytes && job->first && !job->first->data) {
        r = sw_buffer_resize(job->first, chunk->in.bytes, err);
        if (r == 0)
            memcpy(job->first->data, chunk->in.data, chunk->in.bytes);
    }
    return r < 0 ? r : chunk->in.bytes > 0;
}

/* Encodes a chunk by a dictionary of its own. *ret_frame_bytes: UINT64_MAX if another plan expects a shorter frame. */
static int encode_densely(const struct sw_plan *other, struct sw_chunk *chunk, uint64_t *ret_frame_bytes,
                          struct sw_err *err) {
    struct sw_plan plan;
    struct sw_frame_dictionary *dictionary = sw_alloc(sizeof *dictionary);
    int r = dictionary ? sw_onpair_plan(&plan, dictionary, chunk->in.data, chunk->in.bytes) : -SW_ENOMEM;
    if (r < 0)
        (void)sw_err_set(err, r, SW_SCOPE_REQUEST, "out of memory for a dictionary");
    else
        r = sw_codec_encode(&plan, chunk->in.data, chunk->in.bytes, chunk->out.data, chunk->out.bytes, ret_frame_bytes,
                            err);
    sw_free(dictionary);
    if (r == 0 && (double)*ret_frame_bytes * other->expected_ratio > (double)chunk->in.bytes)
        *ret_frame_bytes = UINT64_MAX;
    return r;
}

static int encode_work(void *arg, struct sw_chunk *chunk, struct sw_err *err) {
    struct sw_plan plan;
    struct sw_frame_layout layout;
    uint64_t frame_bytes = UINT64_MAX;
    const struct options *options = ((const struct job *)arg)->options;
    const enum sw_value_type type = options->type;
    int r = sw_buffer_resize(&chunk->out, sw_frame_bound_bytes(chunk->in.bytes), err);
    uint8_t *sample = r == 0 ? sw_alloc(SW_SAMPLE_MAX_BYTES) : NULL;
    if (!sample)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a chunk of %zu bytes", chunk->in.bytes);
    sw_plan_make(&plan, type, chunk->in.data, chunk->in.bytes, sample);
    sw_free(sample);
    r = 0;
    if (options->is_dense && type == SW_VALUE_NONE)
        r = encode_densely(&plan, chunk, &frame_bytes, err);
    if (r == 0 && frame_bytes == UINT64_MAX)
        r = sw_codec_encode(&plan, chunk->in.data, chunk->in.bytes, chunk->out.data, chunk->out.bytes, &frame_bytes,
                            err);
    if (r < 0)
        return r;
    chunk->out.bytes = frame_bytes;
    r = sw_frame_parse(&layout, chunk->out.data, frame_bytes, frame_bytes, err);
    chunk->codec = (unsigned)layout.codec;
    return r;
}

static int encode_write(void *arg, struct sw_chunk *chunk, struct sw_err *err) {
    struct job *job = arg;
    job->raw_bytes += chunk->in.bytes;
    job->stored_bytes += chunk->out.bytes;
    job->input_bytes = job->raw_bytes;
    job->work_us += chunk->work_us;
    job->frames[chunk->codec]++;
    show_progress(job);
    if (job->output.fd < 0)
        return 0;
    int r = sw_output_write(&job->output, chunk->out.data, chunk->out.bytes, err);
    if (r < 0)
        job->failed_name = job->output.name;
    return r;
}

static const struct sw_stream_ops encode_ops = {encode_read, encode_work, encode_write};

/* Writes the empty frame that ends a stream. */
static int write_end(struct job *job, struct sw_err *err) {
    struct sw_frame_layout layout;
    struct sw_frame_header header;
    uint8_t end[SW_FRAME_HEAD_MAX_BYTES] = {0}; /* padding included */
    sw_frame_layout_init(&layout, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, 0, 0);
    sw_frame_header_init(&header, &layout, NULL);
    memcpy(end, &header, sizeof header);
    job->stored_bytes += layout.frame_bytes;
    return sw_output_write(&job->output, end, layout.frame_bytes, err);
}

/* ---- decode ---- */

static int cut_stream(struct sw_err *err, const char *where) {
    return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "stream is cut %s", where);
}

/* Reads header and symbol table into chunk->in. Sizes in the header are used only after its hash has been verified,
 * except for the table's size, which is bounded. */
static int read_head(struct job *job, struct sw_chunk *chunk, int stop_fd, struct sw_frame_layout *ret,
                     struct sw_err *err) {
    struct sw_frame_header header;
    size_t got = 0;
    int r = sw_buffer_resize(&chunk->in, SW_FRAME_HEAD_MAX_BYTES, err);
    if (r == 0)
        r = sw_input_read(&job->input, chunk->in.data, sizeof header, stop_fd, &got, err);
    if (r < 0)
        return r;
    if (got == 0)
        return cut_stream(err, "before its end");
    if (got < sizeof header)
        return cut_stream(err, "in a frame's header");
    memcpy(&header, chunk->in.data, sizeof header);
    if (header.magic != SW_FRAME_MAGIC)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "not a stream of frames");
    if (header.n_symbols <= SW_FRAME_MAX_SYMBOLS) {
        size_t table_bytes = ((size_t)9 * header.n_symbols + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN;
        r = sw_input_read(&job->input, chunk->in.data + sizeof header, table_bytes, stop_fd, &got, err);
        if (r < 0)
            return r;
        if (got < table_bytes)
            return cut_stream(err, "in a symbol table");
        chunk->in.bytes = sizeof header + table_bytes;
    }
    return sw_frame_parse(ret, chunk->in.data, chunk->in.bytes, header.frame_bytes, err);
}

static int read_end(struct job *job, int stop_fd, struct sw_err *err) {
    char extra;
    size_t got;
    int r = sw_input_read(&job->input, &extra, 1, stop_fd, &got, err);
    if (r == 0 && got)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_REQUEST, "there are bytes after the end of the stream");
    return r;
}

static int decode_read(void *arg, struct sw_chunk *chunk, int stop_fd, struct sw_err *err) {
    struct job *job = arg;
    struct sw_frame_layout layout;
    uint8_t head[SW_FRAME_HEAD_MAX_BYTES];
    size_t got;
    int r = read_head(job, chunk, stop_fd, &layout, err);
    if (r < 0)
        return r;
    if (layout.raw_bytes > (uint64_t)MAX_CHUNK_MIB << 20 || layout.frame_bytes > sw_frame_bound_bytes(layout.raw_bytes))
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "a chunk of %" PRIu64 " bytes exceeds the limit of streams", layout.raw_bytes);
    size_t head_bytes = chunk->in.bytes;
    memcpy(head, chunk->in.data, head_bytes);
    r = sw_buffer_resize(&chunk->in, layout.frame_bytes, err);
    if (r < 0)
        return r;
    memcpy(chunk->in.data, head, head_bytes);
    r = sw_input_read(&job->input, chunk->in.data + head_bytes, chunk->in.bytes - head_bytes, stop_fd, &got, err);
    if (r == 0 && got < chunk->in.bytes - head_bytes)
        return cut_stream(err, "in a frame");
    if (r < 0)
        return r;
    return layout.raw_bytes ? 1 : read_end(job, stop_fd, err);
}

static int decode_work(void *arg, struct sw_chunk *chunk, struct sw_err *err) {
    struct sw_frame_layout layout;
    uint64_t raw_bytes;
    (void)arg;
    int r = sw_frame_parse(&layout, chunk->in.data, chunk->in.bytes, chunk->in.bytes, err);
    if (r == 0)
        r = sw_buffer_resize(&chunk->out, layout.raw_bytes, err);
    if (r == 0)
        r = sw_codec_decode(chunk->in.data, chunk->in.bytes, chunk->out.data, chunk->out.bytes, &raw_bytes, err);
    return r;
}

static int decode_write(void *arg, struct sw_chunk *chunk, struct sw_err *err) {
    struct job *job = arg;
    job->raw_bytes += chunk->out.bytes;
    job->input_bytes += chunk->in.bytes;
    show_progress(job);
    int r = sw_output_write(&job->output, chunk->out.data, chunk->out.bytes, err);
    if (r < 0)
        job->failed_name = job->output.name;
    return r;
}

static const struct sw_stream_ops decode_ops = {decode_read, decode_work, decode_write};

/* ---- commands ---- */

static int report(const char *name, const struct sw_err *err) {
    fprintf(stderr, "swcodec: %s: %s\n", name, err->msg);
    return EXIT_FAILURE;
}

static void job_init(struct job *job, const struct options *options) {
    *job = (struct job){
        .options = options,
        .output.fd = -1,
        .start_us = sw_clock_us(),
        .is_showing = !options->is_quiet && isatty(STDERR_FILENO),
    };
}

/* Runs encode or decode, from one file to another. */
static int convert(const struct options *options, char **paths, bool is_encoding) {
    struct job job;
    struct sw_err err = {0};
    job_init(&job, options);
    if (sw_input_open(&job.input, paths[0], &err) < 0)
        return report(paths[0], &err);
    if (sw_output_open(&job.output, paths[1], job.input.mode, is_encoding, options->is_forced, &err) < 0) {
        sw_input_close(&job.input);
        return report(job.output.name, &err);
    }
    job.failed_name = job.input.name;
    int r = sw_stream_run(is_encoding ? &encode_ops : &decode_ops, &job, options->threads, &err);
    clear_progress(&job);
    if (r == 0) {
        job.failed_name = job.output.name;
        r = is_encoding ? write_end(&job, &err) : 0;
    }
    if (r == 0)
        r = sw_output_commit(&job.output, &err);
    else
        sw_output_abort(&job.output);
    sw_input_close(&job.input);
    return r < 0 ? report(job.failed_name, &err) : EXIT_SUCCESS;
}

static int run_encode(const struct options *options, char **paths) {
    return convert(options, paths, true);
}

static int run_decode(const struct options *options, char **paths) {
    return convert(options, paths, false);
}

static void print_probe(const struct job *job, uint64_t elapsed_us) {
    const struct options *options = job->options;
    double ratio = job->stored_bytes ? (double)job->raw_bytes / (double)job->stored_bytes : 1;
    unsigned codec = 0; /* the codec of most chunks; raw only if there is no other */
    for (unsigned i = 1; i < SW_CODEC_NR; i++)
        codec = job->frames[i] > (codec ? job->frames[codec] : 0) ? i : codec;
    printf("file            %s\n", job->input.name);
    printf("bytes           %" PRIu64 "\n", job->raw_bytes);
    printf("stored          %" PRIu64 "\n", job->stored_bytes);
    printf("ratio           %.4f\n", ratio);
    printf("codec           %s\n", sw_codec_name((enum sw_codec_id)codec));
    printf("chunks          ");
    for (unsigned i = 1; i < SW_CODEC_NR; i++)
        if (job->frames[i] || i == (options->type ? SW_CODEC_FOR : SW_CODEC_V5T))
            printf("%" PRIu64 " %s, ", job->frames[i], sw_codec_name((enum sw_codec_id)i));
    printf("%" PRIu64 " raw\n", job->frames[SW_CODEC_RAW]);
    printf("link            %.2f GB/s\n", options->link_gbps);
    printf("spill rate      %.2f GB/s of content, if encoding keeps up with the link (ratio x link)\n",
           ratio * options->link_gbps);
    printf("encode rate     %.3f GB/s measured on this host, %u thread(s), planning and reading included\n",
           elapsed_us ? (double)job->raw_bytes / 1e3 / (double)elapsed_us : 0, options->threads);
    printf("  per thread    %.3f GB/s\n", job->work_us ? (double)job->raw_bytes / 1e3 / (double)job->work_us : 0);
}

/* ---- the ladder: each codec alone ---- */

struct ladder {
    const struct options *options;
    const struct sw_buffer *in;
    struct sw_buffer out;
    uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_frame_dictionary dictionary;
};

/* Makes a plan by one codec. Returns false if it is not for bytes of the type. */
static bool plan_by(struct ladder *l, enum sw_codec_id codec, struct sw_plan *ret) {
    const enum sw_value_type type = l->options->type;
    const unsigned piece = codec == SW_PLAN_BYTES_CODEC ? SW_SAMPLE_SHORT_PIECE_BYTES : SW_SAMPLE_LONG_PIECE_BYTES;
    if (codec == SW_CODEC_RAW) {
        sw_plan_init_raw(ret);
        return true;
    }
    if (codec == SW_CODEC_LZ && type != SW_VALUE_NONE) {
        sw_plan_init_lz(ret, type, 0);
        return true;
    }
    const size_t bytes = sw_sample_gather(l->sample, l->in->data, l->in->bytes, piece);
    return sw_plan_init_by_codec(ret, codec, type, l->sample, bytes, &l->dictionary);
}

static void print_rate(double rate) {
    if (rate > 0)
        printf(" %10.1f", rate);
    else
        printf(" %10s", "-");
}

/* Prints the row of a codec that shrinks the chunk. What it can do over a link is limited by the link or the encoder.
 */
static int print_codec(struct ladder *l, enum sw_codec_id codec, struct sw_err *err) {
    const double links[] = {DISK_GBPS, l->options->link_gbps, NVLINK_GBPS};
    struct sw_frame_layout layout;
    struct sw_plan plan;
    uint64_t frame_bytes = 0;
    if (!plan_by(l, codec, &plan))
        return 0;
    int r = sw_codec_encode(&plan, l->in->data, l->in->bytes, l->out.data, l->out.bytes, &frame_bytes, err);
    if (r == 0)
        r = sw_frame_parse(&layout, l->out.data, frame_bytes, frame_bytes, err);
    if (r < 0 || layout.codec != codec)
        return r;
    const double ratio = (double)l->in->bytes / (double)frame_bytes, encode = sw_codec_rates_of(codec)->encode / 1e9;
    printf("  %-10s %8.2f", sw_codec_name(codec), ratio);
    print_rate(encode);
    for (unsigned i = 0; i < sizeof links / sizeof links[0]; i++)
        print_rate(encode > 0 && encode < ratio * links[i] ? encode : ratio * links[i]);
    printf("\n");
    return 0;
}

static int print_ladder(const struct options *options, const struct sw_buffer *first, struct sw_err *err) {
    struct ladder *l = sw_alloc(sizeof *l);
    int r = l ? 0 : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for the codecs");
    if (r < 0)
        return r;
    l->options = options;
    l->in = first;
    r = sw_buffer_resize(&l->out, sw_frame_bound_bytes(first->bytes), err);
    printf("each codec alone, first chunk; encode: on one H200 (-: not measured); GB/s of content over a link of\n");
    printf("  %-10s %8s %10s %5d GB/s %5.5g GB/s %5d GB/s\n", "codec", "ratio", "encode", DISK_GBPS, options->link_gbps,
           NVLINK_GBPS);
    for (unsigned codec = 0; r == 0 && codec < SW_CODEC_NR; codec++)
        r = print_codec(l, (enum sw_codec_id)codec, err);
    sw_free(l->out.data);
    sw_free(l);
    return r;
}

static int run_probe(const struct options *options, char **paths) {
    struct job job;
    struct sw_buffer first = {0};
    struct sw_err err = {0};
    job_init(&job, options);
    job.first = &first;
    if (sw_input_open(&job.input, paths[0], &err) < 0)
        return report(paths[0], &err);
    int r = sw_stream_run(&encode_ops, &job, options->threads, &err);
    clear_progress(&job);
    sw_input_close(&job.input);
    if (r == 0) {
        print_probe(&job, sw_clock_us() - job.start_us);
        r = first.bytes ? print_ladder(options, &first, &err) : 0;
    }
    sw_free(first.data);
    if (r < 0)
        return report(job.input.name, &err);
    if (fflush(stdout) != 0 || ferror(stdout)) {
        perror("swcodec: standard output");
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

static const struct command {
    const char *name;
    int n_paths;
    int (*run)(const struct options *options, char **paths);
} commands[] = {
    {"encode", 2, run_encode},
    {"decode", 2, run_decode},
    {"probe", 1, run_probe},
};

static void print_help(FILE *to) {
    fprintf(to,
            "usage: swcodec encode [options] IN OUT    compress IN into a stream of frames\n"
            "       swcodec decode [options] IN OUT    decode the stream of frames IN\n"
            "       swcodec probe  [options] FILE      predict how well a spill would compress FILE\n"
            "IN, OUT and FILE may be - for standard input and output.\n"
            "\n"
            "  -f, --force          replace OUT if it exists; write a stream even to a terminal\n"
            "  -T, --threads N      process N chunks at a time (1 ... %d; default: all cores)\n"
            "  -c, --chunk-mib N    split IN into chunks of N MiB (1 ... %d; default: %d); each chunk\n"
            "                       gets its own codec\n"
            "  -t, --type TYPE      IN consists of little-endian numbers of this type: u8, u16, u32, u64,\n"
            "                       i8, i16, i32, i64, f32, f64, bf16, f16, f8 or\n"
            "                       dec128\n"
            "  -d, --dense          learn a dictionary for each chunk of text: a better ratio, at a\n"
            "                       lower rate. Spills do so for room, or for slow disks and stores\n"
            "      --link-gbps X    probe: rate of the link between GPU and host in GB/s (default: %d)\n"
            "  -q, --quiet          show no progress bar\n"
            "  -h, --help           print this text\n"
            "  -V, --version        print the version\n"
            "\n"
            "Exit status: 0: success; 1: damaged data, or a failed read or write; 2: wrong usage.\n",
            MAX_THREADS, MAX_CHUNK_MIB, DEFAULT_CHUNK_MIB, DEFAULT_LINK_GBPS);
}

static int usage(const char *what, const char *which) {
    fprintf(stderr, "swcodec: %s%s\nTry 'swcodec --help'.\n", what, which);
    return EXIT_USAGE;
}

static unsigned default_threads(void) {
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n > MAX_THREADS ? MAX_THREADS : (unsigned)n;
}

static bool parse_unsigned(const char *text, unsigned max, unsigned *ret) {
    char *end;
    unsigned long value = strtoul(text, &end, 10);
    if (text[0] < '0' || text[0] > '9' || *end || value < 1 || value > max)
        return false;
    *ret = (unsigned)value;
    return true;
}

static bool parse_rate(const char *text, double *ret) {
    char *end;
    double value = strtod(text, &end);
    if (end == text || *end || !isfinite(value) || value <= 0)
        return false;
    *ret = value;
    return true;
}

/* Parses the options. Returns the exit status if the program has to end, else -1. */
static int parse_options(int argc, char **argv, struct options *ret) {
    enum { OPTION_LINK = 256 };
    static const struct option long_options[] = {
        {"force", no_argument, NULL, 'f'},
        {"threads", required_argument, NULL, 'T'},
        {"chunk-mib", required_argument, NULL, 'c'},
        {"dense", no_argument, NULL, 'd'},
        {"link-gbps", required_argument, NULL, OPTION_LINK},
        {"type", required_argument, NULL, 't'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {0},
    };
    for (int c; (c = getopt_long(argc, argv, "fT:c:dt:qhV", long_options, NULL)) != -1;) {
        if (c == 'h')
            return print_help(stdout), EXIT_SUCCESS;
        if (c == 'V')
            return printf("swcodec %s\n", SW_VERSION), EXIT_SUCCESS;
        if (c == '?')
            return usage("wrong option", "");
        if (c == 'T' && !parse_unsigned(optarg, MAX_THREADS, &ret->threads))
            return usage("--threads needs a number in its range, not ", optarg);
        if (c == 'c' && !parse_unsigned(optarg, MAX_CHUNK_MIB, &ret->chunk_mib))
            return usage("--chunk-mib needs a number in its range, not ", optarg);
        if (c == 't' && !(ret->type = sw_value_type_find(optarg)))
            return usage("--type needs a type such as i64, not ", optarg);
        if (c == OPTION_LINK && !parse_rate(optarg, &ret->link_gbps))
            return usage("--link-gbps needs a rate above 0, not ", optarg);
        ret->is_forced |= c == 'f';
        ret->is_quiet |= c == 'q';
        ret->is_dense |= c == 'd';
    }
    return -1;
}

static int swcodec(int argc, char **argv) {
    struct options options = {
        .threads = default_threads(),
        .chunk_mib = DEFAULT_CHUNK_MIB,
        .link_gbps = DEFAULT_LINK_GBPS,
    };
    int status = parse_options(argc, argv, &options);
    if (status >= 0)
        return status;
    if (optind == argc)
        return usage("a command is missing: encode, decode or probe", "");
    for (size_t i = 0; i < sizeof commands / sizeof commands[0]; i++) {
        if (strcmp(argv[optind], commands[i].name) != 0)
            continue;
        if (argc - optind - 1 != commands[i].n_paths)
            return usage("wrong number of file names for ", commands[i].name);
        return commands[i].run(&options, argv + optind + 1);
    }
    return usage("unknown command: ", argv[optind]);
}

int main(int argc, char **argv) {
    sw_descriptors_begin();
    return sw_thread_run(swcodec, argc, argv);
}
