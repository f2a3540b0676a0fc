/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Files at rest: whichever bit of a .pici file is flipped, picitool test finds it and says what it hit, and decompress
 * --keep-going restores all that the bit does not concern. */
#define _GNU_SOURCE
#include "test_file.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tools/attrs.h"
#include "tools/reading.h"
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
};

static void make(struct rest *r, int zstd_level)
{
    struct rng rng = {7};
    struct item items[ITEMS];
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    const struct pici_attr attrs[] = {{ATTR_TYPE, "npy", 3}, {ATTR_HEAD, head, sizeof head}};
    *r = (struct rest){0};
    opts.chunk_elements = 50;
    opts.zstd_level = zstd_level;
    item_init(&items[0], "w", PICI_F32, PATTERN_50, &rng, DIMS(12, 10));
    item_init(&items[1], "none", PICI_I64, PATTERN_50, &rng, DIMS(0, 3));
    item_init(&items[2], "b", PICI_BF16, PATTERN_50, &rng, DIMS(101));
    for (size_t i = 0; i < items[2].bytes / 2; i++) /* for zstd to do something */
        items[2].data[i] = 5;
    write_items(&r->file, items, ITEMS, attrs, 2, &opts, 0);
    r->bytes = sizeof head;
    for (size_t i = 0; i < ITEMS; i++)
        r->bytes += items[i].bytes;
    r->original = test_alloc(r->bytes);
    memcpy(r->original, head, sizeof head);

    struct pici_reader *reader;
    open_memory(&reader, &r->file);
    uint64_t at = sizeof head, end = 0;
    for (size_t i = 0; i < ITEMS; i++) {
        struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
        READ_OK(reader, pici_reader_tensor(reader, i, &t));
        memcpy(r->original + at, items[i].data, items[i].bytes);
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
    cr_assert_eq(r->chunks, 3 + 3);
    pici_reader_close(reader);
    r->index_begin = end;
    r->meta_end = 16 + 32;
    for (int i = 0; i < 8; i++)
        r->meta_end += (uint64_t)r->file.p[16 + 8 + i] << 8 * i;
    r->meta_end = (r->meta_end + 15) / 16 * 16;
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
    const char *words = i < 16 ? "the file header" : i < r->meta_end ? "the file's attributes" : "";
    size_t skip = i >= 16 && i < r->meta_end ? sizeof head : 0;
    memcpy(want, r->original, r->bytes);
    for (unsigned c = 0; c < r->chunks; c++)
        if (i >= r->chunk[c].begin && i < r->chunk[c].end) {
            words = r->chunk[c].words;
            memset(want + r->chunk[c].from, 0, (size_t)(r->chunk[c].to - r->chunk[c].from));
        }
    cr_assert_eq(run(verb_test, r->file.p, r->file.len, false), TOOL_BAD, "byte %zu: not found", i);
    cr_assert(lines() == 1 && strstr(said, "offset ") && strstr(said, words), "byte %zu, '%s': %s", i, words, said);
    cr_assert_eq(run(verb_decompress, r->file.p, r->file.len, false), TOOL_BAD, "byte %zu: restored", i);
    cr_assert_neq(access(out, F_OK), 0);
    cr_assert_eq(run(verb_decompress, r->file.p, r->file.len, true), TOOL_BAD, "byte %zu: nothing lost?", i);
    cr_assert(lines() == 1 && strstr(said, "offset ") && strstr(said, words), "byte %zu, '%s': %s", i, words, said);
    size_t n = restored(back, CAP);
    cr_assert(n == r->bytes - skip && memcmp(back, want + skip, n) == 0, "byte %zu: restored to other bytes", i);
    cr_assert(i < r->index_begin || strstr(said, "no elements are lost"), "byte %zu: %s", i, said);
    unlink(out);
}

Test(keep_going, every_bit, .init = setup, .fini = teardown)
{
    struct rest r;
    make(&r, 0);
    for (size_t i = 0; i < r.file.len; i++)
        for (unsigned bit = 0; bit < 8; bit++) {
            r.file.p[i] ^= (uint8_t)(1 << bit);
            expect_found(&r, i);
            r.file.p[i] ^= (uint8_t)(1 << bit);
        }
    free(r.original);
    sink_free(&r.file);
}

#ifdef PICI_HAVE_ZSTD
Test(keep_going, every_byte_with_zstd, .init = setup, .fini = teardown)
{
    struct rest r;
    make(&r, 3);
    for (size_t i = 0; i < r.file.len; i++) {
        r.file.p[i] ^= 0x5a;
        expect_found(&r, i);
        r.file.p[i] ^= 0x5a;
    }
    free(r.original);
    sink_free(&r.file);
}
#endif

Test(keep_going, nothing_is_wrong, .init = setup, .fini = teardown)
{
    uint8_t back[8192];
    struct rest r;
    make(&r, 0);
    cr_assert_eq(run(verb_decompress, r.file.p, r.file.len, true), TOOL_OK, "%s", said);
    cr_assert(lines() == 0 && restored(back, sizeof back) == r.bytes && memcmp(back, r.original, r.bytes) == 0);
    free(r.original);
    sink_free(&r.file);
}

/* Several chunks, and the header with them: a line each. */
Test(keep_going, many_losses, .init = setup, .fini = teardown)
{
    static uint8_t back[8192], want[8192];
    struct rest r;
    make(&r, 0);
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
    make(&r, 0);
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
