/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls without memory: each allocation of the library fails in turn, alone or with all later ones. A call must then
 * return PICI_E_NOMEM, or do without. A build with a leak checker also finds what a failed call keeps. Needs libc
 * alone.
 *
 * The linker puts the functions of counted.h in the place of the allocator's. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pici/delta_log.h"
#include "tests/util/counted.h"
#include "tests/util/util.h"

enum { N = 5000, FILE_BYTES = 1 << 18 };

static float base[N], next[N];
static const uint64_t shape[1] = {N};

/* A file in memory. */
struct memory {
    uint8_t bytes[FILE_BYTES];
    size_t size;
};
static struct memory file, result;

static int store(void *context, const void *bytes, size_t size)
{
    struct memory *m = context;
    if (size > FILE_BYTES - m->size)
        return 1;
    memcpy(m->bytes + m->size, bytes, size);
    m->size += size;
    return 0;
}

/* ---- calls, each of which returns its first error */

static enum pici_status small_delta(void)
{
    static uint8_t delta[8 * N], indices[8 * N], values[4 * N];
    static float changed[N];
    static const struct pici_columns columns = {sizeof columns, 10, N / 10, 100, 200, N / 10};
    const void *const deltas[] = {delta};
    size_t size;
    uint64_t count;
    enum pici_status s = pici_diff_small(delta, sizeof delta, &size, base, next, N, PICI_F32, PICI_AUTO, NULL);
    memcpy(changed, base, sizeof base);
    if (!s)
        s = pici_changes(indices, 8, values, N, &count, base, N, delta, size, 0, N);
    if (!s)
        s = pici_apply_small(changed, N, delta, size, NULL);
    if (!s && memcmp(changed, next, sizeof next) != 0)
        return PICI_E_CORRUPT;
    if (!s)
        s = pici_diff_small_columns(delta, sizeof delta, &size, base + 100, next + 100, &columns, PICI_F32, PICI_AUTO,
                                    NULL);
    memcpy(changed, base, sizeof base);
    return s ? s : pici_apply_small_columns(changed + 100, &columns, deltas, &size, 1, NULL);
}

static enum pici_status write_file(void)
{
    struct pici_writer *w;
    const struct pici_attr attribute = {"key", "value", 5};
    struct pici_tensor t = {sizeof t, "t", 1, PICI_F32, 1, shape, &attribute, 1};
    struct pici_writer_opts opts = PICI_WRITER_OPTS_INIT;
    opts.chunk_elements = N / 2;
    file.size = 0;
    enum pici_status s = pici_writer_open(&w, store, &file, &attribute, 1, &opts);
    if (!s)
        s = pici_writer_tensor(w, &t);
    if (!s)
        s = pici_writer_data(w, base, sizeof base);
    if (!s)
        s = pici_writer_finish(w);
    pici_writer_close(w);
    return s;
}

static enum pici_status read_file(void)
{
    static float elements[N];
    struct pici_reader *r;
    struct pici_tensor_info t = PICI_TENSOR_INFO_INIT;
    struct pici_attr attribute;
    int more;
    enum pici_status s = pici_reader_open_memory(&r, file.bytes, file.size, NULL);
    if (!s)
        s = pici_reader_find(r, "t", 1, &t);
    if (!s)
        s = pici_reader_attr(r, 0, "key", &attribute);
    if (!s)
        s = pici_reader_read_range(r, 0, 1, N - 1, elements);
    if (!s)
        s = pici_reader_next(r, &t, &more);
    if (!s)
        s = pici_reader_read(r, elements, N);
    if (!s)
        s = memcmp(elements, base, sizeof base) == 0 ? pici_reader_verify(r) : PICI_E_CORRUPT;
    pici_reader_close(r);
    return s;
}

static char path[64], folder[64]; /* a file of tensors; a log of deltas */

static enum pici_status open_state(void)
{
    struct pici_state *state;
    uint64_t bytes, hash;
    enum pici_status s = pici_state_open(&state, path, 0, PICI_F32, NULL);
    if (!s)
        s = pici_state_hash(state, &bytes, &hash, NULL);
    pici_state_free(state);
    return s;
}

static enum pici_status states(struct pici_state **from, struct pici_state **to)
{
    const struct pici_tensor t = {sizeof t, "data", 4, PICI_F32, 1, shape, NULL, 0};
    *to = NULL;
    enum pici_status s = pici_state_new(from, "base", PICI_STATE_RAW, NULL, 0, NULL, NULL);
    if (!s)
        s = pici_state_add(*from, &t, base, 0);
    if (!s)
        s = pici_state_new(to, "next", PICI_STATE_RAW, NULL, 0, NULL, NULL);
    return s ? s : pici_state_add(*to, &t, next, 0);
}

static enum pici_status delta_file(void)
{
    struct pici_state *from, *to;
    struct pici_reader *r = NULL;
    struct pici_deltas *deltas = NULL;
    struct pici_update *update = NULL;
    struct pici_diff_opts opts = PICI_DIFF_OPTS_INIT;
    int is = 1;
    opts.choice = PICI_DELTA_SMALLEST;
    file.size = result.size = 0;
    enum pici_status s = states(&from, &to);
    if (!s)
        s = pici_diff_states(store, &file, from, to, &opts, NULL);
    if (!s)
        s = pici_reader_open_memory(&r, file.bytes, file.size, NULL);
    if (!s)
        s = pici_deltas_new(&deltas);
    if (!s)
        s = pici_deltas_add(deltas, r, "delta", NULL);
    if (!s)
        s = pici_apply_deltas(store, &result, from, deltas, NULL, NULL);
    if (!s && memcmp(result.bytes, next, sizeof next) != 0)
        s = PICI_E_CORRUPT;
    if (!s)
        s = pici_deltas_is_result(deltas, to, &is, NULL);
    if (!s && !is)
        s = PICI_E_CORRUPT;
    if (!s)
        s = pici_update_new(&update, from, deltas, NULL, NULL);
    for (int i = 0; i < 2 && !s; i++) {
        s = pici_update_switch(update);
        if (s && i) { /* not back yet: nothing has changed */
            counted.on = 0;
            pici_update_switch(update);
        }
    }
    pici_update_free(update);
    pici_deltas_free(deltas);
    pici_reader_close(r);
    pici_state_free(from);
    pici_state_free(to);
    return s;
}

static enum pici_status delta_log(void)
{
    struct pici_state *from, *to;
    struct pici_log *l = NULL;
    uint64_t first, last;
    result.size = 0;
    enum pici_status s = states(&from, &to);
    if (!s)
        s = pici_log_create(folder, from, "", NULL);
    if (!s)
        s = pici_log_open(&l, folder, 1, NULL);
    if (!s)
        s = pici_log_append(l, from, to, NULL, NULL);
    if (!s)
        s = pici_log_apply(l, NULL, store, &result, &first, &last, NULL, NULL);
    pici_log_close(l);
    pici_state_free(from);
    pici_state_free(to);
    return s;
}

/* ---- without memory */

static void remove_log(void)
{
    char command[80];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    if (system(command))
        abort();
}

/* Make the calls with allocations [from, end) failing. */
static enum pici_status attempt(enum pici_status (*calls)(void), int from, int end)
{
    if (calls == delta_log)
        remove_log();
    counted.allocations = 0;
    counted.fail_from = from;
    counted.fail_end = end;
    counted.on = 1;
    const enum pici_status s = calls();
    counted.on = 0;
    return s;
}

static void without_memory(const char *what, enum pici_status (*calls)(void))
{
    static char wrong[100];
    enum pici_status s = attempt(calls, 0, 0);
    const int all = counted.allocations;
    const char *bad = s ? pici_strerror(s) : all ? NULL : "allocates nothing: this test does not see it";
    for (int i = 0; i < all && !bad; i++)
        for (int later = 0; later < 2 && !bad; later++) {
            s = attempt(calls, i, later ? 1 << 30 : i + 1);
            if (s != PICI_E_NOMEM && s != PICI_OK) {
                snprintf(wrong, sizeof wrong, "allocation %d of %d fails%s: %s", i, all,
                         later ? ", and later ones" : "", pici_strerror(s));
                bad = wrong;
            }
        }
    tally(what, bad);
}

static void state_file(const char *name, const char *head, size_t head_bytes)
{
    FILE *f;
    snprintf(path + strlen(folder) - 4, sizeof path - strlen(folder), "/%s", name);
    if (!(f = fopen(path, "wb")) || fwrite(head, 1, head_bytes, f) != head_bytes || fclose(f))
        abort();
    without_memory(name, open_state);
    unlink(path);
}

int main(void)
{
    static const char json[] = "\x35\0\0\0\0\0\0\0{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}xy";
    static const char gguf[] = "GGUF\3\0\0\0\1\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0a\1\0\0\0\2\0\0\0\0\0\0\0"
                               "\x18\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0xy";
    char home[] = "/tmp/pici-no-memory-XXXXXX";
    for (int i = 0; i < N; i++) {
        base[i] = (float)(i % 1000 + 1) / 512;
        next[i] = i % 7 ? base[i] : base[i] + 0x1p-22f;
    }
    if (!mkdtemp(home))
        abort();
    snprintf(folder, sizeof folder, "%s/log", home);
    snprintf(path, sizeof path, "%s", home);
    without_memory("a small delta", small_delta);
    without_memory("writing a file", write_file);
    if (write_file())
        abort();
    without_memory("reading a file", read_file);
    without_memory("a delta of states", delta_file);
    without_memory("a log of deltas", delta_log);
    state_file("state.safetensors", json, sizeof json - 1);
    state_file("state.gguf", gguf, sizeof gguf - 1);
    state_file("state.raw", json, sizeof json - 1);
    remove_log();
    rmdir(home);
    return tally_end();
}
