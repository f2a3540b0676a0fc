/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs of deltas. The manifest names what belongs to the log. Each change writes files that no manifest names, then
 * replaces the manifest, then removes what the new one does not name; so it can be killed at any time. */
#define _GNU_SOURCE /* asprintf */
#define _FILE_OFFSET_BITS 64
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "delta/delta.h"
#include "delta/manifest.h"
#include "file/file.h"
#include "pici/delta_log.h"
#include "sized.h"

struct pici_log {
    char *dir;
    int lock;   /* the directory, locked; -1: open to read */
    bool stale; /* m may not be what the folder has */
    struct manifest m;
};

/* ---- files of the log */

static enum pici_status nomem(const char *name, char *why)
{
    return pici_why(why, PICI_E_NOMEM, name, "out of memory for the log");
}

static enum pici_status io_failed(const char *name, char *why)
{
    char text[128];
    const int e = errno;
    pici_why(why, PICI_E_IO, name, "%s", pici_errno_text(e, text, sizeof text));
    errno = e;
    return PICI_E_IO;
}

/* DIR/NAME. The caller frees it. NULL: no memory. */
static char *path_in(const char *dir, const char *name)
{
    char *path = NULL;
    return asprintf(&path, "%s/%s", dir, name) < 0 ? NULL : path;
}

static char *delta_path(const struct pici_log *l, uint64_t state)
{
    char name[MANIFEST_NAME_MOST];
    pici_manifest_delta_name(name, state);
    return path_in(l->dir, name);
}

static char *base_path(const struct pici_log *l)
{
    char name[MANIFEST_NAME_MOST];
    pici_manifest_base_name(name, &l->m);
    return path_in(l->dir, name);
}

static bool equal(const struct manifest_file *a, const struct manifest_file *b)
{
    return a->bytes == b->bytes && a->hash == b->hash;
}

static enum pici_status measure_state(struct pici_state *state, struct manifest_file *f, char *why)
{
    return pici_state_hash(state, &f->bytes, &f->hash, why);
}

/* The length and the hash of a file. */
static enum pici_status measure(const char *path, struct manifest_file *f, char *why)
{
    struct pici_state *state;
    enum pici_status s = pici_state_open(&state, path, PICI_STATE_RAW, PICI_U8, why);
    if (s)
        return s;
    s = measure_state(state, f, why);
    pici_state_free(state);
    return s;
}

/* Whether a file of the log is there, whole and unchanged: else PICI_E_CORRUPT. */
static enum pici_status check_file(const char *path, const struct manifest_file *want, char *why)
{
    struct manifest_file is;
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT)
        return pici_why(why, PICI_E_CORRUPT, path, "is not there yet, or has been removed since: copy the log again");
    const enum pici_status s = measure(path, &is, why);
    if (s && s != PICI_E_ARG) /* which an empty file is */
        return s;
    return !s && equal(&is, want) ? PICI_OK
                                  : pici_why(why, PICI_E_CORRUPT, path, "is incomplete or damaged: copy the log again");
}

/* An output of which the bytes are hashed. */
struct hashed {
    struct pici_outfile *out;
    struct pici_xxh64 hash;
    uint64_t bytes;
};

static int hashed_write(void *ctx, const void *p, size_t n)
{
    struct hashed *const h = ctx;
    pici_xxh64_update(&h->hash, p, n);
    h->bytes += n;
    return pici_outfile_write(h->out, p, n);
}

static enum pici_status hashed_open(struct hashed *h, const char *path, const int *like, char *why)
{
    *h = (struct hashed){0};
    pici_xxh64_init(&h->hash, 0);
    const enum pici_status s = pici_outfile_open_like(&h->out, path, 1, like, like && *like >= 0);
    return s == PICI_E_IO ? io_failed(path, why) : s ? nomem(path, why) : PICI_OK;
}

/* Ends the output: it appears if s is PICI_OK. Returns the status of both; PICI_E_SYNC as of pici_outfile_commit. */
static enum pici_status hashed_end(struct hashed *h, enum pici_status s, const char *path, struct manifest_file *f,
                                   char *why)
{
    if (s) {
        const int e = errno;
        pici_outfile_abort(h->out);
        errno = e;
        return s;
    }
    *f = (struct manifest_file){h->bytes, pici_xxh64_digest(&h->hash)};
    s = pici_outfile_commit(h->out);
    if (s)
        (void)io_failed(path, why);
    return s;
}

static enum pici_status write_manifest(const char *dir, const struct manifest *m, char *why)
{
    struct hashed out;
    struct manifest_file f;
    size_t len = 0;
    char *const path = path_in(dir, MANIFEST_NAME), *const text = pici_manifest_text(m, &len);
    enum pici_status s = path && text ? hashed_open(&out, path, NULL, why) : nomem(dir, why);
    if (!s) {
        errno = hashed_write(&out, text, len);
        s = hashed_end(&out, errno ? io_failed(path, why) : PICI_OK, path, &f, why);
    }
    free(path);
    free(text);
    return s;
}

/* A file of the log that no manifest names yet: if it is perhaps not on the disk, it is not used. */
static enum pici_status unused(enum pici_status s)
{
    return s == PICI_E_SYNC ? PICI_E_IO : s;
}

/* ---- creating, opening */

/* Opens a folder and locks it, for one writer at a time. -1: errno says why. */
static int lock_folder(const char *dir)
{
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int locked = -1;
    while (fd >= 0 && (locked = flock(fd, LOCK_EX)) != 0 && errno == EINTR)
        ;
    if (locked == 0 || fd < 0)
        return fd;
    const int e = errno;
    close(fd);
    errno = e;
    return -1;
}

/* Makes the folder if it is missing, so that it is there after a crash too. */
static enum pici_status make_folder(const char *dir, char *why)
{
    if (mkdir(dir, 0777) != 0)
        return errno == EEXIST ? PICI_OK : io_failed(dir, why);
    char *const above = path_in(dir, "..");
    const int fd = above ? open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
    enum pici_status s = !above ? nomem(dir, why) : PICI_OK;
    /* a folder that one may write to and not read cannot be synchronized */
    if (fd >= 0 && pici_fd_sync(fd) != 0)
        s = io_failed(dir, why);
    const int e = errno;
    if (fd >= 0)
        close(fd);
    free(above);
    errno = e;
    return s;
}

/* Writes the file of a state. */
static enum pici_status copy_state(struct pici_state *state, const char *path, struct manifest_file *f, char *why)
{
    enum { PIECE = 1 << 18 };
    struct hashed out;
    uint8_t *const piece = malloc(PIECE);
    enum pici_status s = piece ? hashed_open(&out, path, &state->fd, why) : nomem(path, why);
    if (s) {
        free(piece);
        return s;
    }
    errno = state->head_len ? hashed_write(&out, state->head, state->head_len) : 0;
    if (errno)
        s = io_failed(path, why);
    for (size_t i = 0; i < state->n; i++)
        for (uint64_t at = 0, n; at < state->tensor[i].bytes && !s; at += n) {
            n = state->tensor[i].bytes - at < PIECE ? state->tensor[i].bytes - at : PIECE;
            s = pici_state_read(state, &state->tensor[i], at, piece, (size_t)n, why);
            if (!s && (errno = hashed_write(&out, piece, (size_t)n)) != 0)
                s = io_failed(path, why);
        }
    free(piece);
    return hashed_end(&out, s, path, f, why);
}

enum pici_status pici_log_create(const char *dir, struct pici_state *state, const char *extension, char *why)
{
    struct manifest m = {0};
    char name[MANIFEST_NAME_MOST];
    if (why)
        why[0] = 0;
    if (!dir || !state || !extension || !pici_manifest_extension(extension))
        return PICI_E_ARG;
    enum pici_status s = make_folder(dir, why);
    if (s)
        return s;
    const int lock = lock_folder(dir);
    if (lock < 0)
        return io_failed(dir, why);
    strcpy(m.extension, extension);
    pici_manifest_base_name(name, &m);
    char *const manifest = path_in(dir, MANIFEST_NAME), *const base = path_in(dir, name);
    s = manifest && base ? PICI_OK : nomem(dir, why);
    if (!s && access(manifest, F_OK) == 0) {
        errno = EEXIST;
        s = pici_why(why, PICI_E_IO, dir, "is a log already");
    }
    if (!s)
        s = unused(copy_state(state, base, &m.whole, why));
    m.start = m.whole;
    if (!s)
        s = write_manifest(dir, &m, why);
    const int e = errno;
    close(lock);
    free(manifest);
    free(base);
    errno = e;
    return s;
}

/* Reads the manifest. */
static enum pici_status read_manifest(struct manifest *m, const char *path, char *why)
{
    struct parse_error err = {0};
    struct stat st;
    char *text = NULL;
    enum pici_status s = PICI_OK;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0)
        s = io_failed(path, why);
    else if (!S_ISREG(st.st_mode) || st.st_size > MANIFEST_BYTES_MOST)
        s = pici_why(why, PICI_E_CORRUPT, path, "is no manifest, or longer than any");
    else if (!(text = malloc((size_t)st.st_size + 1)))
        s = nomem(path, why);
    else if ((errno = st.st_size ? pici_fd_read_at(&fd, text, (size_t)st.st_size, 0) : 0) != 0)
        s = io_failed(path, why);
    else if (!pici_manifest_parse(m, text, (size_t)st.st_size, &err))
        s = pici_why(why, PICI_E_CORRUPT, path, "offset %" PRIu64 ": %s", err.offset, err.what);
    const int e = errno;
    if (fd >= 0)
        close(fd);
    free(text);
    errno = e;
    return s;
}

enum pici_status pici_log_open(struct pici_log **out, const char *dir, int write, char *why)
{
    if (why)
        why[0] = 0;
    if (!out)
        return PICI_E_ARG;
    *out = NULL;
    if (!dir || !*dir)
        return PICI_E_ARG;
    struct pici_log *const l = calloc(1, sizeof *l);
    char *const path = path_in(dir, MANIFEST_NAME);
    enum pici_status s = l && path && (l->dir = strdup(dir)) ? PICI_OK : nomem(dir, why);
    if (l)
        l->lock = -1;
    if (!s && write) {
        l->lock = lock_folder(dir);
        if (l->lock < 0)
            s = io_failed(dir, why);
    }
    if (!s)
        s = read_manifest(&l->m, path, why);
    const int e = errno;
    free(path);
    if (s)
        pici_log_close(l);
    else
        *out = l;
    errno = e;
    return s;
}

void pici_log_close(struct pici_log *l)
{
    if (!l)
        return;
    if (l->lock >= 0)
        close(l->lock);
    pici_manifest_free(&l->m);
    free(l->dir);
    free(l);
}

enum pici_status pici_log_get_info(const struct pici_log *l, struct pici_log_info *info)
{
    struct pici_log_info is = PICI_LOG_INFO_INIT;
    if (!l || !info)
        return PICI_E_ARG;
    is.first = l->m.first;
    is.base = l->m.base;
    is.newest = pici_manifest_newest(&l->m);
    is.base_bytes = l->m.whole.bytes;
    is.base_hash = l->m.whole.hash;
    is.extension = l->m.extension;
    return sized_write(info, &is, sizeof is, sizeof is);
}

enum pici_status pici_log_get_state(const struct pici_log *l, uint64_t number, struct pici_log_state *state)
{
    struct pici_log_state is = PICI_LOG_STATE_INIT;
    if (!l || !state || number < l->m.first || number > pici_manifest_newest(&l->m))
        return PICI_E_ARG;
    const struct manifest_file *const f = pici_manifest_state(&l->m, number);
    is.bytes = f->bytes;
    is.hash = f->hash;
    if (number > l->m.first) {
        is.delta_bytes = l->m.delta[number - l->m.first - 1].delta.bytes;
        is.delta_hash = l->m.delta[number - l->m.first - 1].delta.hash;
    }
    return sized_write(state, &is, sizeof is, sizeof is);
}

/* ---- changing it */

/* Whether the folder has this manifest. If it cannot be read, the handle is stale. */
static bool has_manifest(struct pici_log *l, const struct manifest *m)
{
    char unread[PICI_WHY_BYTES];
    struct manifest now;
    size_t len = 0, len_now = 0;
    char *const path = path_in(l->dir, MANIFEST_NAME);
    l->stale = !path || read_manifest(&now, path, unread) != PICI_OK;
    free(path);
    if (l->stale)
        return false;
    char *const text = pici_manifest_text(m, &len), *const text_now = pici_manifest_text(&now, &len_now);
    l->stale = !text || !text_now;
    const bool same = !l->stale && len == len_now && memcmp(text, text_now, len) == 0;
    free(text);
    free(text_now);
    pici_manifest_free(&now);
    return same;
}

/* Writes the manifest. PICI_E_SYNC: the folder has it, but perhaps not the disk. Other errors: the folder has the old
 * one; also a rename over a network that was carried out may be reported as an error, so the folder is looked at. */
static enum pici_status replace_manifest(struct pici_log *l, const struct manifest *m, char *why)
{
    const enum pici_status s = write_manifest(l->dir, m, why);
    const int e = errno;
    const bool changed = s == PICI_E_IO && has_manifest(l, m);
    errno = e;
    return changed ? PICI_E_SYNC : s;
}

static enum pici_status check_writable(const struct pici_log *l, char *why)
{
    if (l->lock < 0)
        return PICI_E_ARG;
    if (!l->stale)
        return PICI_OK;
    errno = EIO;
    return pici_why(why, PICI_E_IO, l->dir, "its manifest could not be read after an error: open the log again");
}

/* ---- append */

static enum pici_status append(struct pici_log *l, struct pici_state *newest, struct pici_state *next,
                               const struct pici_diff_opts *opts, struct manifest_delta *d, const char *path, char *why)
{
    struct manifest_file old, after;
    struct hashed out;
    enum pici_status s = measure_state(newest, &old, why);
    if (!s && !equal(&old, pici_manifest_state(&l->m, pici_manifest_newest(&l->m))))
        s = pici_why(why, PICI_E_ARG, newest->name, "is not the newest state of %s", l->dir);
    if (!s)
        s = measure_state(next, &d->state, why);
    if (!s)
        s = hashed_open(&out, path, &next->fd, why); /* a file of this name is of an append that was killed */
    if (s)
        return s;
    s = pici_diff_states(hashed_write, &out, newest, next, opts, why);
    if (!s)
        s = measure_state(next, &after, why);
    if (!s && !equal(&after, &d->state))
        s = pici_why(why, PICI_E_ARG, next->name, "has changed meanwhile; nothing is appended");
    return unused(hashed_end(&out, s, path, &d->delta, why));
}

enum pici_status pici_log_append(struct pici_log *l, struct pici_state *newest, struct pici_state *next,
                                 const struct pici_diff_opts *opts, char *why)
{
    struct manifest_delta d;
    if (why)
        why[0] = 0;
    if (!l || !newest || !next)
        return PICI_E_ARG;
    enum pici_status s = check_writable(l, why);
    if (s)
        return s;
    struct manifest m = l->m;
    if (pici_manifest_newest(&m) >= PICI_LOG_UNKNOWN - 1)
        return pici_why(why, PICI_E_SPACE, l->dir, "is at the last state that has a number");
    if (m.deltas >= MANIFEST_DELTAS_MOST)
        return pici_why(why, PICI_E_SPACE, l->dir, "has as many deltas as a log can have: compact it");
    char *const path = delta_path(l, pici_manifest_newest(&m) + 1);
    m.delta = malloc(((size_t)m.deltas + 1) * sizeof *m.delta);
    s = path && m.delta ? append(l, newest, next, opts, &d, path, why) : nomem(l->dir, why);
    if (!s) {
        if (m.deltas)
            memcpy(m.delta, l->m.delta, (size_t)m.deltas * sizeof *m.delta);
        m.delta[m.deltas++] = d;
        s = replace_manifest(l, &m, why);
    }
    const int e = errno;
    const bool changed = s == PICI_OK || s == PICI_E_SYNC;
    free(path);
    free(changed ? l->m.delta : m.delta);
    if (changed)
        l->m = m;
    errno = e;
    return s;
}

/* ---- apply */

/* Deltas of the log that are open. */
struct row {
    struct pici_deltas *deltas;
    struct pici_reader **reader; /* [n] */
    char **path;                 /* [n]: of its file */
    uint64_t n;
    size_t kept; /* how many files stay open */
};

static void row_close(struct row *r)
{
    pici_deltas_free(r->deltas);
    for (uint64_t i = 0; i < r->n; i++) {
        pici_reader_close(r->reader[i]);
        free(r->path[i]);
    }
    free(r->reader);
    free(r->path);
}

static int read_by_path(void *path, void *p, size_t n, uint64_t offset)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    const int e = pici_fd_read_at(&fd, p, n, offset);
    close(fd);
    return e;
}

static enum pici_status row_add(struct row *r, const struct pici_log *l, uint64_t state, int threads, char *why)
{
    struct pici_reader_opts opts = PICI_READER_OPTS_INIT;
    const uint64_t bytes = l->m.delta[state - l->m.first - 1].delta.bytes;
    char *const path = delta_path(l, state);
    if (!path)
        return nomem(l->dir, why);
    struct pici_reader **const reader = &r->reader[r->n];
    opts.threads = threads;
    r->path[r->n++] = path;
    enum pici_status s = r->n > r->kept ? pici_reader_open_at(reader, read_by_path, path, bytes, &opts)
                                        : pici_reader_open_path(reader, path, &opts);
    if (s)
        return *reader ? pici_why(why, s, path, "%s", pici_reader_error(*reader)) : nomem(path, why);
    return pici_deltas_add(r->deltas, *reader, path, why);
}

/* Opens the deltas that lead from state k to state last. */
static enum pici_status row_open(struct row *r, const struct pici_log *l, uint64_t k, uint64_t last, int threads,
                                 char *why)
{
    const size_t n = (size_t)(last - k);
    *r = (struct row){NULL, calloc(n, sizeof *r->reader), calloc(n, sizeof *r->path), 0, pici_files_kept()};
    enum pici_status s = r->reader && r->path && !pici_deltas_new(&r->deltas) ? PICI_OK : nomem(l->dir, why);
    while (!s && k < last)
        s = row_add(r, l, ++k, threads, why);
    return s;
}

/* Writes state `last` of state k at `state`, which may be NULL: then of the file at path. last > k. *gone: set if the
 * file of a delta has been removed; nothing was written then. */
static enum pici_status apply_deltas(const struct pici_log *l, const char *path, struct pici_state *state, uint64_t k,
                                     uint64_t last, pici_write_fn write, void *ctx, const struct pici_apply_opts *opts,
                                     bool *gone, char *why)
{
    struct pici_deltas_info info = PICI_DELTAS_INFO_INIT;
    struct pici_state *opened = NULL;
    struct row row;
    enum pici_status s = row_open(&row, l, k, last, opts->threads, why);
    *gone = s == PICI_E_IO && errno == ENOENT;
    if (!s) {
        s = pici_deltas_get_info(row.deltas, &info);
        if (s)
            pici_why(why, s, l->dir, "%s", pici_reader_error(row.reader[row.n - 1]));
    }
    if (!s && !state)
        s = pici_state_open(&opened, path, (int)info.type, info.dtype, why);
    if (!s)
        s = pici_apply_deltas(write, ctx, state ? state : opened, row.deltas, opts, why);
    const int e = errno;
    pici_state_free(opened);
    row_close(&row);
    errno = e;
    return s;
}

/* The newest state that follows k by deltas that are whole. If that is not the newest, *late says why. */
static uint64_t whole_deltas(const struct pici_log *l, uint64_t k, enum pici_status *late, char *why)
{
    uint64_t last = k;
    *late = PICI_OK;
    for (; last < pici_manifest_newest(&l->m); last++) {
        char *const path = delta_path(l, last + 1);
        *late = path ? check_file(path, &l->m.delta[last - l->m.first].delta, why) : nomem(l->dir, why);
        free(path);
        if (*late)
            break;
    }
    return last;
}

/* What pici_log_apply does for a file that is state k; of the base if `base`, which is written in any case. */
static enum pici_status apply(const struct pici_log *l, const char *path, struct pici_state *state, bool base,
                              uint64_t k, pici_write_fn write, void *ctx, uint64_t *to,
                              const struct pici_apply_opts *opts, char *why)
{
    char missing[PICI_WHY_BYTES] = "";
    enum pici_status late, s = PICI_OK;
    bool gone = false;
    do {
        *to = whole_deltas(l, k, &late, missing);
        if (late && late != PICI_E_CORRUPT && late != PICI_E_IO) {
            if (why)
                memcpy(why, missing, sizeof missing);
            return late;
        }
        gone = false;
        s = *to > k ? apply_deltas(l, path, state, k, *to, write, ctx, opts, &gone, why) : PICI_OK;
    } while (gone);
    if (*to == k && base) {
        struct pici_state *whole;
        s = pici_state_open(&whole, path, PICI_STATE_RAW, PICI_U8, why);
        uint8_t piece[1 << 16];
        for (uint64_t at = 0, n; !s && at < l->m.whole.bytes; at += n) {
            n = l->m.whole.bytes - at < sizeof piece ? l->m.whole.bytes - at : sizeof piece;
            s = pici_state_read(whole, &whole->tensor[0], at, piece, (size_t)n, why);
            if (!s && (errno = write(ctx, piece, (size_t)n)) != 0)
                s = io_failed("the result", why);
        }
        const int e = errno;
        pici_state_free(whole);
        errno = e;
    }
    if (!s && why)
        memcpy(why, missing, sizeof missing);
    return s;
}

/* The number of a state that the log knows. */
static enum pici_status number_of(const struct pici_log *l, const struct manifest_file *is, const char *name,
                                  uint64_t *k, char *why)
{
    *k = pici_manifest_newest(&l->m);
    while (*k > l->m.first && !equal(is, pici_manifest_state(&l->m, *k)))
        --*k;
    return equal(is, pici_manifest_state(&l->m, *k))
               ? PICI_OK
               : pici_why(why, PICI_E_ARG, name, "is none of the states of %s, or older than its first", l->dir);
}

static enum pici_status apply_any(const struct pici_log *l, const char *path, struct pici_state *state,
                                  pici_write_fn write, void *ctx, uint64_t *from, uint64_t *to,
                                  const struct pici_apply_opts *theirs, char *why)
{
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    struct manifest_file is;
    char *base = NULL;
    if (why)
        why[0] = 0;
    enum pici_status s = theirs ? sized_read(&opts, sizeof opts, sizeof opts, theirs) : PICI_OK;
    if (s)
        return s;
    if (!l || !write || !from || !to)
        return PICI_E_ARG;
    if (!path && !state) {
        base = base_path(l);
        s = base ? check_file(base, &l->m.whole, why) : nomem(l->dir, why);
        *from = l->m.base;
    } else if (state && *from != PICI_LOG_UNKNOWN) {
        if (*from < l->m.first || *from > pici_manifest_newest(&l->m))
            s = pici_why(why, PICI_E_ARG, l->dir, "has no state %" PRIu64 " now, but %" PRIu64 " to %" PRIu64, *from,
                         l->m.first, pici_manifest_newest(&l->m));
    } else {
        s = state ? measure_state(state, &is, why) : measure(path, &is, why);
        if (!s)
            s = number_of(l, &is, state ? state->name : path, from, why);
    }
    if (!s)
        s = apply(l, base ? base : path, state, base != NULL, *from, write, ctx, to, &opts, why);
    const int e = errno;
    free(base);
    errno = e;
    return s;
}

enum pici_status pici_log_apply(const struct pici_log *l, const char *path, pici_write_fn write, void *ctx,
                                uint64_t *from, uint64_t *to, const struct pici_apply_opts *opts, char *why)
{
    return apply_any(l, path, NULL, write, ctx, from, to, opts, why);
}

enum pici_status pici_log_apply_state(const struct pici_log *l, struct pici_state *state, pici_write_fn write,
                                      void *ctx, uint64_t *from, uint64_t *to, const struct pici_apply_opts *opts,
                                      char *why)
{
    if (!state) {
        if (why)
            why[0] = 0;
        return PICI_E_ARG;
    }
    return apply_any(l, NULL, state, write, ctx, from, to, opts, why);
}

/* ---- compact */

/* How many deltas to keep: the last whose bytes are together at most those of the base, with room left for more. */
static uint64_t kept(const struct manifest *m)
{
    uint64_t n = 0, bytes = 0;
    while (n < m->deltas && n < MANIFEST_DELTAS_MOST / 2 &&
           m->delta[m->deltas - 1 - n].delta.bytes <= m->whole.bytes - bytes)
        bytes += m->delta[m->deltas - 1 - n++].delta.bytes;
    return n;
}

/* Whether a file of this name is to be removed: a temporary file, or one whose whole name is that of a base or a delta
 * of this log, of a state of which the manifest names none. Any other file is not the log's. */
static bool is_rest(const struct pici_log *l, const char *file)
{
    char name[MANIFEST_NAME_MOST];
    struct manifest other = l->m;
    if (strncmp(file, ".pici-", 6) == 0)
        return true;
    if (strncmp(file, "base-", 5) == 0) {
        other.base = strtoull(file + 5, NULL, 10);
        pici_manifest_base_name(name, &other);
        return strcmp(file, name) == 0 && other.base != l->m.base;
    }
    if (strncmp(file, "delta-", 6) == 0) {
        const uint64_t state = strtoull(file + 6, NULL, 10);
        pici_manifest_delta_name(name, state);
        return strcmp(file, name) == 0 && (state <= l->m.first || state > pici_manifest_newest(&l->m));
    }
    return false;
}

static bool is_folder(int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode);
}

/* Removes the files of logs that the manifest does not name, and temporary ones of processes that were killed. */
static enum pici_status clean(const struct pici_log *l, char *why)
{
    DIR *const d = opendir(l->dir);
    enum pici_status s = d ? PICI_OK : io_failed(l->dir, why);
    for (struct dirent *e; d && (e = readdir(d));)
        if (is_rest(l, e->d_name) && !is_folder(dirfd(d), e->d_name) && unlinkat(dirfd(d), e->d_name, 0) != 0 &&
            errno != ENOENT)
            s = io_failed(e->d_name, why);
    if (d)
        closedir(d);
    return s;
}

/* Writes the file of the newest state, the base of m, of the base of l. */
static enum pici_status make_base(const struct pici_log *l, struct manifest *m, const struct pici_apply_opts *opts,
                                  char *why)
{
    const uint64_t newest = pici_manifest_newest(m);
    const struct manifest_file want = *pici_manifest_state(m, newest);
    struct manifest_file is;
    struct hashed out;
    enum pici_status late;
    bool gone;
    char name[MANIFEST_NAME_MOST];
    m->base = newest;
    m->whole = want;
    pici_manifest_base_name(name, m);
    char *const from = base_path(l), *const to = path_in(l->dir, name);
    enum pici_status s = from && to ? check_file(from, &l->m.whole, why) : nomem(l->dir, why);
    if (!s && whole_deltas(l, l->m.base, &late, why) < newest)
        s = late;
    int fd = s ? -1 : open(from, O_RDONLY | O_CLOEXEC);
    if (!s && fd < 0) /* nobody is to read the new base who may not read this one */
        s = io_failed(from, why);
    if (!s)
        s = hashed_open(&out, to, &fd, why);
    if (fd >= 0)
        close(fd);
    if (!s) {
        s = apply_deltas(l, from, NULL, l->m.base, newest, hashed_write, &out, opts, &gone, why);
        is = (struct manifest_file){out.bytes, pici_xxh64_digest(&out.hash)};
        if (!s && !equal(&is, &want))
            s = pici_why(why, PICI_E_CORRUPT, to, "is not the newest state; the log stays as it was");
        s = unused(hashed_end(&out, s, to, &is, why));
    }
    const int e = errno;
    free(from);
    free(to);
    errno = e;
    return s;
}

enum pici_status pici_log_compact(struct pici_log *l, const struct pici_apply_opts *theirs, char *why)
{
    struct pici_apply_opts opts = PICI_APPLY_OPTS_INIT;
    if (why)
        why[0] = 0;
    enum pici_status s = theirs ? sized_read(&opts, sizeof opts, sizeof opts, theirs) : PICI_OK;
    if (s)
        return s;
    if (!l)
        return PICI_E_ARG;
    s = check_writable(l, why);
    if (s)
        return s;
    struct manifest m = l->m; /* shares the deltas of l */
    const bool advance = m.base < pici_manifest_newest(&m);
    if (advance)
        s = make_base(l, &m, &opts, why);
    if (s)
        return s;
    const uint64_t n = kept(&m), gone = m.deltas - n;
    if (gone) {
        m.start = m.delta[gone - 1].state;
        m.delta += gone; /* for the manifest's text only */
        m.first += gone;
        m.deltas = n;
    }
    if (gone || advance)
        s = replace_manifest(l, &m, why);
    if (s && s != PICI_E_SYNC)
        return s;
    m.delta = l->m.delta;
    if (n)
        memmove(m.delta, m.delta + gone, (size_t)n * sizeof *m.delta);
    l->m = m;
    return s ? s : clean(l, why); /* the old manifest may come back, and name the old files */
}
