/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Files at rest. For any flipped bit of a .pici file, picitool test finds it and names the damaged part, and decompress
 * --keep-going restores everything else. In some of the files, as in those of zip files, each tensor has a part of the
 * head before it. */
#define _GNU_SOURCE
#include "tests/util/file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/input/attrs.h"
#include "tools/input/reading.h"
#include "tools/parse/unzip.h"
#include "tools/tool.h"

enum { ITEMS = 3, CHUNKS = 32 };

static const char head[] = "what stood before the first tensor";

/* A file, what it restores to, and where its chunks are in both. */
struct rest {
    struct sink file;
    uint8_t *original;
    size_t bytes;
    struct {
        uint64_t begin, end; /* of its record */
        uint64_t from, to;   /* of its elements in the original */
        char words[96];
    } chunk[CHUNKS];
    unsigned chunks;
    uint64_t meta_end, index_begin; /* records in the file */
    bool parts;
    struct {
        uint64_t begin, end;      /* of the record that describes it */
        uint64_t at, bytes, head; /* its place in the original, and bytes of the head before it */
    } tensor[ITEMS];
};

/* The end of the record at that offset. */
static uint64_t record_end(const struct sink *file, uint64_t at)
{
    uint64_t body = 0;
    for (int i = 8; i-- > 0;)
        body = body << 8 | file->p[at + 8 + (uint64_t)i];
    return (at + 32 + body + 15) / 16 * 16;
}

static void make(struct rest *r, int zstd_level, bool parts)
{
    static const char *const before[ITEMS] = {"11", "0", "9"};
    struct rng rng = {7};
    struct item items[ITEMS];
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    const struct pici_attr attrs[] = {{ATTR_TYPE, parts ? "npz" : "npy", 3}, {ATTR_HEAD, head, sizeof head}};
    struct pici_attr of[ITEMS];
    *r = (struct rest){.parts = parts};
    opts.chunk_elements = 50;
    opts.zstd_level = zstd_level;
    item_init(&items[0], "w", PICI_F32, PATTERN_50, &rng, DIMS(12, 10));
    item_init(&items[1], "none", PICI_I64, PATTERN_50, &rng, DIMS(0, 3));
    item_init(&items[2], "b", PICI_BF16, PATTERN_50, &rng, DIMS(101));
    for (size_t i = 0; i < items[2].bytes / 2; i++) /* for zstd to do something */
        items[2].data[i] = 5;
    for (size_t i = 0; i < ITEMS; i++) {
        of[i] = (struct pici_attr){ATTR_BEFORE, before[i], strlen(before[i])};
        items[i].t.attrs = &of[i];
        items[i].t.n_attrs = parts;
        r->tensor[i].head = parts ? strtoul(before[i], NULL, 10) : i == 0 ? sizeof head : 0;
    }
    write_items(&r->file, items, ITEMS, attrs, 2, &opts, 0);
    r->bytes = sizeof head;
    for (size_t i = 0; i < ITEMS; i++)
        r->bytes += items[i].bytes;
    r->original = test_alloc(r->bytes);

    struct pici_reader *reader;
    open_memory(&reader, &r->file);
    uint64_t at = 0, head_at = 0, end = record_end(&r->file, 16);
    r->meta_end = end;
    for (size_t i = 0; i < ITEMS; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        READ_OK(reader, pici_reader_tensor(reader, i, &t));
        memcpy(r->original + at, head + head_at, r->tensor[i].head);
        head_at += r->tensor[i].head;
        at += r->tensor[i].head;
        memcpy(r->original + at, items[i].data, items[i].bytes);
        r->tensor[i].begin = end;
        r->tensor[i].end = end = record_end(&r->file, end);
        r->tensor[i].at = at;
        r->tensor[i].bytes = items[i].bytes;
        for (uint64_t c = 0; c < t.chunks; c++) {
            struct pici_chunk_info info = PICI_CHUNK_INFO_INIT;
            READ_OK(reader, pici_reader_chunk(reader, i, c, &info));
            const size_t width = pici_dtype_width(t.dtype);
            r->chunk[r->chunks].begin = info.offset;
            r->chunk[r->chunks].end = end = info.offset + 32 + (info.stored_bytes + 15) / 16 * 16;
            r->chunk[r->chunks].from = at + info.first * width;
            r->chunk[r->chunks].to = at + (info.first + info.block.count) * width;
            snprintf(r->chunk[r->chunks].words, sizeof r->chunk->words, "chunk %u of tensor '%s' (elements %u to %u)",
                     (unsigned)c, t.name, (unsigned)info.first, (unsigned)(info.first + info.block.count - 1));
            cr_assert_lt(++r->chunks, CHUNKS);
        }
        at += items[i].bytes;
        item_free(&items[i]);
    }
    memcpy(r->original + at, head + head_at, sizeof head - head_at);
    cr_assert_eq(r->chunks, 3 + 3);
    pici_reader_close(reader);
    r->index_begin = end;
}

/* The restored part of a file whose byte i was changed. It is the original, or has zeros instead of a chunk, or no
 * head, or the bytes before a tensor after it. Returns its length. */
static size_t rest_of(const struct rest *r, size_t i, uint8_t *to)
{
    uint8_t *const begin = to;
    size_t head_at = 0;
    const bool none = i >= 16 && i < r->meta_end;
    for (unsigned k = 0; k < ITEMS; k++) {
        const bool lost = r->parts && i >= r->tensor[k].begin && i < r->tensor[k].end;
        const size_t n = none || lost ? 0 : r->tensor[k].head;
        memcpy(to, head + head_at, n);
        head_at += n;
        memcpy(to + n, r->original + r->tensor[k].at, r->tensor[k].bytes);
        for (unsigned c = 0; c < r->chunks; c++)
            if (i >= r->chunk[c].begin && i < r->chunk[c].end && r->chunk[c].from >= r->tensor[k].at &&
                r->chunk[c].to <= r->tensor[k].at + r->tensor[k].bytes)
                memset(to + n + (r->chunk[c].from - r->tensor[k].at), 0, (size_t)(r->chunk[c].to - r->chunk[c].from));
        to += n + r->tensor[k].bytes;
    }
    memcpy(to, head + head_at, none ? 0 : sizeof head - head_at);
    return (size_t)(to - begin) + (none ? 0 : sizeof head - head_at);
}

/* ---- running verbs */

static char folder[] = "/dev/shm/pici-test-XXXXXX", in[64], out[64], said[8192];
static int errors, real_stderr;

static void setup(void)
{
    if (!mkdtemp(folder)) { /* where fsync costs nothing, or else elsewhere */
        memcpy(folder, "/tmp/pici-test-XXXXXX", sizeof "/tmp/pici-test-XXXXXX");
        cr_assert_not_null(mkdtemp(folder));
    }
    snprintf(in, sizeof in, "%s/in.pici", folder);
    snprintf(out, sizeof out, "%s/out", folder);
    errors = memfd_create("errors", 0);
    real_stderr = dup(STDERR_FILENO);
    cr_assert(errors >= 0 && real_stderr >= 0);
}

static void teardown(void)
{
    unlink(in);
    unlink(out);
    cr_assert_eq(rmdir(folder), 0, "something is left in %s", folder);
    close(errors);
    close(real_stderr);
}

/* End a test that cannot run here; Criterion then does not call teardown. */
static void leave_out(const char *why)
{
    teardown();
    cr_skip_test("%s", why);
}

/* Run a verb on bytes; what it says goes to said. Returns the exit status. */
static int run(int (*verb)(const struct tool_options *), const uint8_t *p, size_t len, bool keep_going)
{
    char *args[] = {in};
    struct tool_options o = {
        .threads = 1, .max_size = {true, 1 << 20}, .out = out, .force = true, .args = args, .nargs = 1};
    o.keep_going = keep_going;
    int fd = open(in, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    cr_assert(fd >= 0 && write(fd, p, len) == (ssize_t)len && close(fd) == 0);
    cr_assert_eq(ftruncate(errors, 0), 0);
    dup2(errors, STDERR_FILENO);
    lseek(errors, 0, SEEK_SET);
    int status = verb(&o);
    dup2(real_stderr, STDERR_FILENO);
    ssize_t n = pread(errors, said, sizeof said - 1, 0);
    cr_assert_geq(n, 0);
    said[n] = 0;
    return status;
}

static unsigned lines(void)
{
    unsigned n = 0;
    for (const char *p = said; (p = strchr(p, '\n')); p++)
        n++;
    return n;
}

static size_t restored(uint8_t *p, size_t cap)
{
    int fd = open(out, O_RDONLY);
    cr_assert_geq(fd, 0);
    ssize_t n = read(fd, p, cap);
    cr_assert(n >= 0 && (size_t)n < cap);
    close(fd);
    return (size_t)n;
}

/* Byte i was changed: what both verbs must make of it. */
static void expect_found(const struct rest *r, size_t i)
{
    enum { CAP = 8192 };
    static uint8_t back[CAP], want[CAP];
    const char *words = i < 16 ? "file header" : i < r->meta_end ? "the file's attributes" : "";
    const size_t wanted = rest_of(r, i, want);
    for (unsigned c = 0; c < r->chunks; c++)
        if (i >= r->chunk[c].begin && i < r->chunk[c].end)
            words = r->chunk[c].words;
    cr_assert_eq(run(verb_test, r->file.p, r->file.len, false), TOOL_BAD, "byte %zu: not found", i);
    cr_assert(lines() == 1 && strstr(said, "offset ") && strstr(said, words), "byte %zu, '%s': %s", i, words, said);
    cr_assert_eq(run(verb_decompress, r->file.p, r->file.len, false), TOOL_BAD, "byte %zu: restored", i);
    cr_assert_neq(access(out, F_OK), 0);
    cr_assert_eq(run(verb_decompress, r->file.p, r->file.len, true), TOOL_BAD, "byte %zu: nothing lost?", i);
    cr_assert(lines() == 1 && strstr(said, "offset ") && strstr(said, words), "byte %zu, '%s': %s", i, words, said);
    size_t n = restored(back, CAP);
    cr_assert(n == wanted && memcmp(back, want, n) == 0, "byte %zu: restored to other bytes", i);
    cr_assert(i < r->index_begin || strstr(said, "no elements are lost"), "byte %zu: %s", i, said);
    unlink(out);
}

Test(keep_going, every_bit, .init = setup, .fini = teardown)
{
    struct rest r;
    struct rng rng = {8};
    make(&r, 0, false);
    for (size_t i = 0; i < r.file.len; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            if (left_out(&rng))
                continue;
            r.file.p[i] ^= (uint8_t)(1 << bit);
            expect_found(&r, i);
            r.file.p[i] ^= (uint8_t)(1 << bit);
        }
    free(r.original);
    sink_free(&r.file);
}

static void every_byte(int zstd, bool parts)
{
    struct rest r;
    make(&r, zstd, parts);
    for (size_t i = 0; i < r.file.len; i++) {
        r.file.p[i] ^= 0x5a;
        expect_found(&r, i);
        r.file.p[i] ^= 0x5a;
    }
    free(r.original);
    sink_free(&r.file);
}

Test(keep_going, every_byte_with_a_head_in_parts, .init = setup, .fini = teardown)
{
    every_byte(0, true);
}

#ifdef PICI_HAVE_ZSTD
Test(keep_going, every_byte_with_zstd, .init = setup, .fini = teardown)
{
    every_byte(3, false);
}
#endif

Test(keep_going, nothing_is_wrong, .init = setup, .fini = teardown)
{
    uint8_t back[8192];
    for (int parts = 0; parts < 2; parts++) {
        struct rest r;
        make(&r, 0, parts);
        cr_assert_eq(run(verb_decompress, r.file.p, r.file.len, true), TOOL_OK, "%s", said);
        cr_assert(lines() == 0 && restored(back, sizeof back) == r.bytes && memcmp(back, r.original, r.bytes) == 0);
        unlink(out);
        free(r.original);
        sink_free(&r.file);
    }
}

/* What this build cannot deflate is refused before anything is written, also to a stream. */
Test(keep_going, no_zlib, .init = setup, .fini = teardown)
{
    static const char deflate[] = "5 0 1000 1 9.9";
    if (unzip_inflates())
        leave_out("built with zlib");
    struct rng rng = {7};
    struct item items[2];
    struct sink file = {0};
    const struct pici_attr attr = {ATTR_DEFLATE, deflate, sizeof deflate - 1};
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    item_init(&items[0], "a", PICI_F32, PATTERN_50, &rng, DIMS(1000));
    item_init(&items[1], "b", PICI_F32, PATTERN_50, &rng, DIMS(1000));
    items[1].t.attrs = &attr;
    items[1].t.n_attrs = 1;
    write_items(&file, items, 2, NULL, 0, &opts, 0);
    const int real = dup(STDOUT_FILENO), to = memfd_create("to", 0);
    memcpy(out, "-", 2);
    fflush(stdout);
    dup2(to, STDOUT_FILENO);
    const int status = run(verb_decompress, file.p, file.len, false);
    dup2(real, STDOUT_FILENO);
    cr_assert(status == TOOL_BAD && lines() == 1 && strstr(said, "extract gives the elements"), "%d: %s", status, said);
    cr_assert_eq(lseek(to, 0, SEEK_END), 0);
    close(real);
    close(to);
    item_free(&items[0]);
    item_free(&items[1]);
    sink_free(&file);
}

/* Several chunks, and the header with them: a line each. */
Test(keep_going, many_losses, .init = setup, .fini = teardown)
{
    static uint8_t back[8192], want[8192];
    struct rest r;
    make(&r, 0, false);
    memcpy(want, r.original, r.bytes);
    r.file.p[1] ^= 1;
    for (unsigned c = 0; c < r.chunks; c += 2) {
        r.file.p[r.chunk[c].begin + 3 * c] ^= 0x10; /* headers of records, and bodies */
        memset(want + r.chunk[c].from, 0, (size_t)(r.chunk[c].to - r.chunk[c].from));
    }
    cr_assert_eq(run(verb_decompress, r.file.p, r.file.len, true), TOOL_BAD);
    cr_assert_eq(lines(), 1 + r.chunks / 2, "%s", said);
    for (unsigned c = 0; c < r.chunks; c++)
        cr_assert_eq(!strstr(said, r.chunk[c].words), c % 2, "%s: %s", r.chunk[c].words, said);
    cr_assert(restored(back, sizeof back) == r.bytes && memcmp(back, want, r.bytes) == 0);
    free(r.original);
    sink_free(&r.file);
}

/* Bytes of elements that are restored of the file at in, with at most fill_most bytes of zeros for what it breaks off
 * in. */
static uint64_t salvaged(uint64_t fill_most)
{
    uint64_t bytes = 0;
    struct input input;
    struct reading reading;
    struct pici_tensor_info t;
    bool more = true;
    dup2(errors, STDERR_FILENO);
    cr_assert_eq(input_open(&input, in), TOOL_OK);
    cr_assert_eq(reading_salvage(&reading, &input, 1, fill_most), TOOL_OK);
    while (more) {
        cr_assert_eq(reading_next(&reading, &t, &more), TOOL_OK);
        for (uint64_t done = 0, n = more; n; bytes += n * pici_dtype_width(t.dtype))
            cr_assert_eq(reading_piece(&reading, &t, &done, &n), TOOL_OK);
    }
    reading_close(&reading);
    input_close(&input);
    dup2(real_stderr, STDERR_FILENO);
    return bytes;
}

/* A file cut anywhere: all chunks before the cut, zeros to the end of their tensor. */
Test(keep_going, cut_anywhere, .init = setup, .fini = teardown)
{
    static uint8_t back[8192];
    struct rest r;
    make(&r, 0, false);
    for (size_t len = 0; len < r.file.len; len++) {
        uint64_t whole = len >= r.meta_end ? sizeof head : 0;
        int status = run(verb_decompress, r.file.p, len, true);
        cr_assert(status == TOOL_BAD && lines() >= 1 && lines() <= 2, "cut to %zu: %d, %s", len, status, said);
        if (len < r.meta_end) {
            cr_assert_neq(access(out, F_OK), 0, "cut to %zu", len);
            continue;
        }
        for (unsigned c = 0; c < r.chunks && r.chunk[c].end <= len; c++)
            whole = r.chunk[c].to;
        size_t n = restored(back, sizeof back);
        cr_assert(n >= whole && n <= r.bytes && memcmp(back, r.original, whole) == 0, "cut to %zu: %zu bytes", len, n);
        for (size_t i = whole; i < n; i++)
            cr_assert_eq(back[i], 0, "cut to %zu: byte %zu", len, i);
        unlink(out);
    }
    /* within the last chunk of the first tensor, whose zeros are then too many, or just not */
    cr_assert_eq(truncate(in, (off_t)(r.chunk[2].end - 1)), 0);
    cr_assert_eq(sizeof head + salvaged(79), r.chunk[1].to);
    cr_assert_eq(sizeof head + salvaged(80), r.chunk[2].to);
    free(r.original);
    sink_free(&r.file);
}

/* What is no .pici file leaves nothing. */
Test(keep_going, no_such_file, .init = setup, .fini = teardown)
{
    uint8_t noise[300];
    for (size_t i = 0; i < sizeof noise; i++)
        noise[i] = (uint8_t)(i * 37);
    for (size_t len = 0; len < sizeof noise; len += 23) {
        cr_assert_eq(run(verb_decompress, noise, len, true), TOOL_BAD);
        cr_assert_neq(access(out, F_OK), 0);
    }
}
