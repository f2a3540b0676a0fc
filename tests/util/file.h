/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What the tests of .pici files share: memory as a file, and tensors to write and to find again. */
#ifndef PICI_TESTS_TEST_FILE_H
#define PICI_TESTS_TEST_FILE_H

#include <criterion/criterion.h>
#include <sys/types.h>

#include "pici/file.h"
#include "tests/util/util.h"

/* Give a test a directory of its own, which becomes the current one, and a umask of 022; remove it. For TestSuite's
 * .init and .fini. */
void home_enter(void);
void home_leave(void);

/* In the unit tests: how many calls of open, fsync, rename and unlink succeed before one fails with EIO, and
 * before one kills the process; -1: all do. After a call that fails, -1 again. */
extern int calls_until_failure, calls_until_kill;

/* Write a file with that text and mode. */
void make_file(const char *path, const char *text, mode_t mode);

/* How many entries a directory has: temporary files are among them. */
int entries_of(const char *dir);

/* Assert that a file has that text, of less than 64 bytes. */
void expect_file(const char *path, const char *text);

/* A growing file in memory, which fails at call fail_at (0: never). */
struct sink {
    uint8_t *p;
    size_t len, cap;
    unsigned calls, fail_at;
};

int sink_write(void *sink, const void *p, size_t n); /* pici_write_fn */
void sink_free(struct sink *);

/* Memory as a stream of pieces of up to `piece` bytes (0: as asked for), or at random; fails at call fail_at. low and
 * high bound what was asked for at random. */
struct source {
    const uint8_t *p;
    size_t len, at, piece;
    unsigned calls, fail_at;
    uint64_t low, high;
};

int source_read(void *source, void *p, size_t cap, size_t *got);      /* pici_read_fn */
int source_read_at(void *source, void *p, size_t n, uint64_t offset); /* pici_read_at_fn */

/* A tensor with its data. */
struct item {
    struct pici_tensor t;
    uint64_t shape[PICI_RANK_MAX];
    uint64_t count;
    uint8_t *data;
    size_t bytes;
};

/* One with that name, dtype and pattern; dims is ended by DIMS_END. */
#define DIMS_END UINT64_MAX
#define DIMS(...) ((const uint64_t[]){__VA_ARGS__, DIMS_END})
void item_init(struct item *, const char *name, enum pici_dtype, enum pattern, struct rng *, const uint64_t *dims);
void item_free(struct item *);

/* Write the items to k, pushing their data in pieces (0: at once). Asserts that all is well. */
void write_items(struct sink *k, const struct item *, size_t n, const struct pici_attr *attrs, size_t n_attrs,
                 const struct pici_writer_opts *, size_t piece);

/* Assert that the file holds the items, in order: read at random; forward, n elements at a time (0: all); verified both
 * ways. */
void expect_random(const struct sink *k, const struct item *, size_t n, int threads);
void expect_forward(const struct sink *k, const struct item *, size_t n, uint64_t at_a_time, size_t piece, int threads);
void expect_verified(const struct sink *k, int threads);
void expect_items(const struct sink *k, const struct item *, size_t n); /* all of the above */

/* A small file of that version of the format, with four tensors: "coo" in three chunks, "dense" in one, "empty", and
 * "same" in two. The file has two attributes, the second tensor one. In version 2 "dense" and "empty" are in a
 * table. */
struct sink small_file(unsigned version, int zstd_level);

/* Read all there is: the first error, PICI_OK if there is none; its words to `words`. read: the elements, in pieces
 * that do not fit the chunks, else pici_reader_verify. verify: that first. */
enum pici_status all_forward(const uint8_t *p, size_t len, int read, char words[512]);
enum pici_status all_random(const uint8_t *p, size_t len, int verify, char words[512]);

/* Is it a status for bytes that are wrong. */
int data_error(enum pici_status);

void open_memory(struct pici_reader **r, const struct sink *k);

/* Assert that s is PICI_OK; say what the reader or writer says else. */
#define READ_OK(r, call) r_ok((r), (call), #call, __LINE__)
#define WRITE_OK(w, call) w_ok((w), (call), #call, __LINE__)
void r_ok(const struct pici_reader *r, enum pici_status s, const char *call, int line);
void w_ok(const struct pici_writer *w, enum pici_status s, const char *call, int line);

#endif
