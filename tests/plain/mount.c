/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reads of picitool mount: a .pici file with a head before, between and after tensors of either byte order. Several
 * threads read it at random, with a cache that is too small. Also damage, files overwritten meanwhile, and the cache by
 * itself. Run under ThreadSanitizer too.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/util/util.h"
#include "tools/input/attrs.h"
#include "tools/input/source.h"
#include "tools/mount/chunks.h"
#include "tools/mount/mounted.h"
#include "tools/parse/folder_list.h"
#include "tools/term.h"

enum { ELEMENTS = 5000, CHUNK = 700, READERS = 4, READS = 300, MOST = 9000 };
enum { ORIGINAL = 10 + ELEMENTS * (4 + 2 + 8) };

static char folder[] = "/tmp/pici-mount-XXXXXX";
static char path[sizeof folder + 16];
static uint8_t original[ORIGINAL];

static void expect(const char *what, int good)
{
    tally(what, good ? NULL : "wrong");
}

/* ---- a file */

/* Writes a tensor whose bytes in the original are these. */
static enum pici_status put(struct pici_writer *writer, const char *name, enum pici_dtype dtype, int is_big,
                            const char *before, const uint8_t *bytes)
{
    static uint8_t elements[ELEMENTS * 8];
    const uint64_t shape[] = {ELEMENTS};
    const struct pici_attr attrs[] = {{ATTR_BEFORE, before, strlen(before)}, {ATTR_ENDIAN, "big", 3}};
    struct pici_tensor tensor = PICI_TENSOR_INIT;
    const size_t size = ELEMENTS * pici_dtype_width(dtype);
    tensor.name = name;
    tensor.name_len = strlen(name);
    tensor.dtype = dtype;
    tensor.rank = 1;
    tensor.shape = shape;
    tensor.attrs = attrs;
    tensor.n_attrs = is_big ? 2 : 1;
    memcpy(elements, bytes, size);
    if (is_big != source_host_is_big_endian())
        source_swap(elements, size, pici_dtype_width(dtype));
    const enum pici_status status = pici_writer_tensor(writer, &tensor);
    return status ? status : pici_writer_data(writer, elements, size);
}

/* The original: head bytes 0 to 6, f32, head byte 7, big-endian u16, f64, head bytes 8 and 9. */
static enum pici_status write_all(struct pici_writer *writer)
{
    const uint8_t *const first = original + 7, *const second = first + ELEMENTS * 4 + 1;
    enum pici_status status = put(writer, "first", PICI_F32, 0, "7", first);
    if (!status)
        status = put(writer, "second", PICI_U16, 1, "1", second);
    if (!status)
        status = put(writer, "third", PICI_F64, 0, "0", second + ELEMENTS * 2);
    return status ? status : pici_writer_finish(writer);
}

static int write_file(void)
{
    static uint8_t head[10];
    const struct pici_attr attr = {ATTR_HEAD, head, sizeof head};
    struct pici_writer_opts options = PICI_WRITER_OPTS_INIT;
    struct pici_writer *writer;
    for (size_t i = 0; i < ORIGINAL; i++)
        original[i] = i % 5 ? 0 : (uint8_t)(i * 7 % 251);
    memcpy(head, original, 7);
    head[7] = original[7 + ELEMENTS * 4];
    memcpy(head + 8, original + ORIGINAL - 2, 2);
    options.chunk_elements = CHUNK;
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    enum pici_status status = fd < 0 ? PICI_E_IO : pici_writer_open_fd(&writer, fd, &attr, 1, &options);
    if (!status)
        status = write_all(writer);
    if (fd >= 0) {
        pici_writer_close(writer);
        close(fd);
    }
    return status == PICI_OK;
}

/* ---- reading */

static struct mounted *mounted;
static size_t node;

/* Reads of random places and lengths. The result is whether all were right. */
static void *read_about(void *number)
{
    struct rng random = {(uint64_t)(uintptr_t)number};
    uint8_t *const buffer = test_alloc(MOST);
    int good = mounted_start(mounted, node) == 0;
    for (int i = 0; i < READS; i++) {
        const size_t from = (size_t)rng_below(&random, ORIGINAL + 10), size = (size_t)rng_below(&random, MOST);
        const size_t left = from < ORIGINAL ? ORIGINAL - from : 0, want = left < size ? left : size;
        size_t got;
        good = good && mounted_read(mounted, node, buffer, from, size, &got) == 0 && got == want &&
               memcmp(buffer, original + (from < ORIGINAL ? from : 0), want) == 0;
    }
    free(buffer);
    return good ? NULL : number;
}

static void test_reads(const char *what, uint64_t cache)
{
    pthread_t thread[READERS];
    void *failed = NULL, *one;
    int good = mounted_open(&mounted, path, cache) == 0 && mounted_find(mounted, 0, "x", &node);
    expect("the file is there", good && mounted_count(mounted) == 2 && mounted_node(mounted, node)->bytes == ORIGINAL &&
                                    mounted_parent(mounted, node) == 0);
    for (uintptr_t i = 0; good && i < READERS; i++)
        good = pthread_create(&thread[i], NULL, read_about, (void *)(i + 1)) == 0;
    for (int i = 0; good && i < READERS; i++) {
        pthread_join(thread[i], &one);
        failed = one ? one : failed;
    }
    expect(what, good && !failed);
    mounted_close(mounted);
}

/* Changes a byte of the chunk that is in the middle of the file: what is in it is an error, and nothing else. */
static void test_damage(void)
{
    uint8_t byte = 0, got[CHUNK];
    size_t received;
    const int fd = open(path, O_RDWR);
    const off_t middle = lseek(fd, 0, SEEK_END) / 2;
    int good = pread(fd, &byte, 1, middle) == 1;
    byte ^= 1;
    good = good && pwrite(fd, &byte, 1, middle) == 1 && mounted_open(&mounted, path, 1 << 20) == 0 &&
           mounted_find(mounted, 0, "x", &node);
    close(fd);
    expect("damage: it is mounted", good);
    int bad = 0, wrong = 0, untold = 0;
    for (size_t from = 0; good && from < ORIGINAL; from += sizeof got) {
        tool_mute();
        const int error = mounted_read(mounted, node, got, from, sizeof got, &received);
        const char *const told = tool_unmute();
        bad += error == EIO;
        untold += error && !strstr(told, "tensor 'third'");
        wrong += error && error != EIO;
        wrong += !error && memcmp(got, original + from, received) != 0;
    }
    expect("damage: a chunk is lost, and no more", bad >= 8 && bad <= 10 && !wrong);
    expect("damage: it is told once", untold == bad - 1);
    mounted_close(mounted);
}

/* ---- a file that is written over while it is mounted */

static char list_path[sizeof folder + 16], copy_path[sizeof folder + 16];

static int write_bytes(const char *name, const void *bytes, size_t size)
{
    const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const int good = fd >= 0 && write(fd, bytes, size) == (ssize_t)size;
    close(fd);
    return good;
}

/* Makes the folder one that picitool has made: of x.pici, and of the copy. */
static int write_list(const char *copy)
{
    struct stat stored;
    struct folder_file file[] = {{.name = "copy", .kind = FOLDER_COPY, .original.bytes = strlen(copy)},
                                 {.name = "x", .kind = FOLDER_SHARD, .original.bytes = ORIGINAL}};
    const struct folder_list list = {.file = file, .files = 2};
    size_t size;
    file[0].original.hash = pici_xxh64(copy, strlen(copy), 0);
    file[0].stored = file[0].original;
    if (stat(path, &stored) != 0)
        return 0;
    file[1].stored.bytes = (uint64_t)stored.st_size;
    char *const text = folder_list_text(&list, &size);
    const int good = text && write_bytes(copy_path, copy, strlen(copy)) && write_bytes(list_path, text, size);
    free(text);
    return good;
}

static void test_changes(void)
{
    size_t copy, received;
    char got[5] = "";
    uint8_t byte[1];
    expect("changes: the folder is written", write_file() && write_list("first"));
    const int good = mounted_open(&mounted, folder, 0) == 0 && mounted_find(mounted, 0, "x", &node) &&
                     mounted_find(mounted, 0, "copy", &copy) && mounted_start(mounted, copy) == 0 &&
                     mounted_read(mounted, copy, got, 0, 5, &received) == 0 && memcmp(got, "first", 5) == 0 &&
                     mounted_read(mounted, node, byte, ORIGINAL - 1, 1, &received) == 0; /* of another chunk */
    expect("changes: it is mounted", good);
    usleep(20000); /* longer than the clock of files may stand still */
    expect("changes: they are written", write_bytes(copy_path, "other", 5) && write_file());
    for (int i = 0; good && i < 2; i++) {
        tool_mute();
        const int of_copy = mounted_read(mounted, copy, got, 0, 5, &received);
        const int copy_told = strstr(tool_unmute(), "has changed since it was mounted") != NULL;
        tool_mute();
        const int of_chunk = mounted_read(mounted, node, byte, ORIGINAL / 2, 1, &received);
        const int chunk_told = strstr(tool_unmute(), "has changed since it was mounted") != NULL;
        expect("changes: what is read is an error", of_copy == EIO && of_chunk == EIO);
        expect("changes: it is told once", copy_told == !i && chunk_told == !i);
    }
    mounted_close(mounted);
    unlink(copy_path);
    unlink(list_path);
}

/* ---- the cache */

struct maker {
    struct chunks *chunks;
    int fails; /* so many times */
    int told;
    int is_short; /* of memory, when it fails */
};

static int make(void *context, const struct chunk_key *key, void *bytes, size_t size, bool tell)
{
    struct maker *const maker = context;
    memset(bytes, (int)(key->number * 16 + key->tensor * 4 + key->file * 2 + key->swap) & 255, size);
    if (maker->fails == 0)
        return 0;
    maker->fails--;
    maker->told += tell;
    return maker->is_short ? ENOMEM : EIO;
}

static int has(struct maker *maker, struct chunk_key key, size_t size)
{
    uint8_t got = 0;
    return chunks_read(maker->chunks, &key, size, &got, size - 1, 1) == 0 &&
           got == ((key.number * 16 + key.tensor * 4 + key.file * 2 + key.swap) & 255);
}

static void test_bound(void)
{
    enum { BOUND = 20000, SIZE = 3000, COUNT = 200 };
    struct maker maker = {.chunks = chunks_new(BOUND, make, &maker)};
    int good = 1, within = 1;
    for (uint64_t i = 0; i < COUNT; i++) {
        good = good && has(&maker, (struct chunk_key){0, 0, i, false}, SIZE);
        within = within && chunks_kept(maker.chunks) <= BOUND;
    }
    expect("cache: bytes", good && chunks_made(maker.chunks) == COUNT);
    expect("cache: its bound", within && chunks_kept(maker.chunks) > BOUND / 2);
    good = has(&maker, (struct chunk_key){0, 0, COUNT - 1, false}, SIZE) &&
           has(&maker, (struct chunk_key){0, 0, COUNT - 3, false}, SIZE);
    expect("cache: what was used last is kept", good && chunks_made(maker.chunks) == COUNT);
    good = has(&maker, (struct chunk_key){0, 0, COUNT - 1, true}, SIZE) &&
           has(&maker, (struct chunk_key){0, 1, COUNT - 1, false}, SIZE) &&
           has(&maker, (struct chunk_key){1, 0, COUNT - 1, false}, SIZE);
    expect("cache: each by all of its key", good && chunks_made(maker.chunks) == COUNT + 3);
    good = 1;
    for (int i = 0; i < 3; i++)
        good = good && has(&maker, (struct chunk_key){0, 0, 0, false}, 2 * BOUND);
    expect("cache: a chunk that is larger is made once", good && chunks_made(maker.chunks) == COUNT + 4);
    expect("cache: it is all that is kept", chunks_kept(maker.chunks) < 2 * BOUND + SIZE);
    good = has(&maker, (struct chunk_key){0, 0, 1, false}, SIZE);
    expect("cache: until another is used", good && chunks_kept(maker.chunks) <= BOUND);
    chunks_free(maker.chunks);
}

static void test_failure(void)
{
    struct maker maker = {.chunks = chunks_new(1 << 20, make, &maker), .fails = 2};
    const struct chunk_key key = {0, 0, 1, false};
    uint8_t got;
    const int first = chunks_read(maker.chunks, &key, 10, &got, 0, 1);
    const int second = chunks_read(maker.chunks, &key, 10, &got, 0, 1);
    expect("cache: a failure", first == EIO && second == EIO && maker.told == 1);
    expect("cache: good again", has(&maker, key, 10));
    expect("cache: beyond the chunk", chunks_read(maker.chunks, &key, 10, &got, 10, 1) == EIO);
    chunks_free(maker.chunks);
}

static void test_memory(void)
{
    struct maker maker = {.chunks = chunks_new(1 << 20, make, &maker), .is_short = 1};
    int good = 1;
    for (uint64_t i = 0; i < 20; i++)
        good = good && has(&maker, (struct chunk_key){0, 0, i, false}, 1000);
    maker.fails = 1;
    good = good && has(&maker, (struct chunk_key){0, 0, 20, false}, 1000);
    expect("cache: it makes room where memory is short", good && chunks_kept(maker.chunks) < 2000);
    maker.fails = 2;
    uint8_t got;
    const struct chunk_key key = {0, 0, 21, false};
    expect("cache: no memory at all", chunks_read(maker.chunks, &key, 10, &got, 0, 1) == ENOMEM);
    expect("cache: memory again", has(&maker, key, 10));
    chunks_free(maker.chunks);
}

int main(void)
{
    term_set_talk(TERM_QUIET);
    test_bound();
    test_failure();
    test_memory();
    if (!mkdtemp(folder))
        return 1;
    snprintf(path, sizeof path, "%s/x.pici", folder);
    snprintf(copy_path, sizeof copy_path, "%s/copy", folder);
    snprintf(list_path, sizeof list_path, "%s/" FOLDER_LIST_NAME, folder);
    expect("the file is written", write_file());
    test_reads("a small cache", 5 * CHUNK);
    test_reads("a large cache", 1 << 20);
    test_damage();
    test_changes();
    unlink(path);
    rmdir(folder);
    return tally_end();
}
