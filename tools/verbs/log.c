/* SPDX-License-Identifier: BSD-3-Clause
 *
 * picitool log: a folder that holds one state of a file of tensors whole, and the deltas from each state to the next
 * (formats/delta-log.md). The manifest names what belongs to the log. Each verb writes files that no manifest names,
 * then replaces the manifest, then removes what the new one does not name; so it can be killed at any time. */
#define _GNU_SOURCE
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

#include "io.h"
#include "manifest.h"
#include "tool.h"
#include "xxh64.h"

struct log {
    const char *dir;
    int fd; /* of the directory, locked; -1 */
    struct manifest m;
};

/* DIR/NAME. The caller frees it. NULL, after a message: no memory. */
static char *path_in(const struct log *l, const char *name)
{
    char *path = NULL;
    if (asprintf(&path, "%s/%s", l->dir, name) < 0) {
        tool_nomem(l->dir, "a path");
        return NULL;
    }
    return path;
}

static char *delta_path(const struct log *l, uint64_t state)
{
    char name[MANIFEST_NAME_MOST];
    manifest_delta_name(name, state);
    return path_in(l, name);
}

static char *base_path(const struct log *l)
{
    char name[MANIFEST_NAME_MOST];
    manifest_base_name(name, &l->m);
    return path_in(l, name);
}

/* The length and the hash of a file; copied to out unless that is NULL. */
static int measure(const char *path, struct manifest_file *f, struct output *out)
{
    struct input in;
    struct pici_xxh64 hash;
    static uint8_t piece[1 << 18];
    size_t got = sizeof piece;
    int status = input_open(&in, path);
    if (status)
        return status;
    *f = (struct manifest_file){0, 0};
    pici_xxh64_init(&hash, 0);
    while (status == TOOL_OK && got == sizeof piece) {
        status = input_read(&in, piece, sizeof piece, &got);
        if (status == TOOL_OK && out)
            status = output_write(out, piece, got);
        f->bytes += got;
        pici_xxh64_update(&hash, piece, got);
    }
    f->hash = pici_xxh64_digest(&hash);
    input_close(&in);
    return status;
}

static bool equal(const struct manifest_file *a, const struct manifest_file *b)
{
    return a->bytes == b->bytes && a->hash == b->hash;
}

/* Whether a file of the log is there, whole and unchanged. Says so if not. */
static int check_file(const char *path, const struct manifest_file *want)
{
    struct manifest_file is;
    struct stat st;
    if (stat(path, &st) != 0 && errno == ENOENT)
        return tool_bad(path, "is not there yet, or has been removed by log compact: copy the log again");
    const int status = measure(path, &is, NULL);
    return status             ? status
           : equal(&is, want) ? TOOL_OK
                              : tool_bad(path, "is incomplete or damaged: copy the log again");
}

static void log_close(struct log *l)
{
    if (l->fd >= 0)
        close(l->fd);
    manifest_free(&l->m);
}

/* Opens the log. lock: nobody else may change it until it is closed. */
static int log_open(struct log *l, const char *dir, bool lock)
{
    struct input in;
    struct parse_error err = {0};
    uint8_t *text;
    size_t len;
    *l = (struct log){.dir = dir, .fd = -1};
    if (lock) {
        l->fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (l->fd < 0 || flock(l->fd, LOCK_EX) != 0)
            return tool_bad(dir, "%s", strerror(errno));
    }
    char *const path = path_in(l, MANIFEST_NAME);
    int status = path ? input_open(&in, path) : TOOL_BAD;
    if (status == TOOL_OK) {
        if (in.bytes > MANIFEST_BYTES_MOST)
            status = tool_bad(path, "longer than any manifest");
        else
            status = input_slurp(&in, &text, &len);
        if (status == TOOL_OK) {
            if (!manifest_parse(&l->m, (const char *)text, len, &err))
                status = tool_bad_at(path, err.offset, "%s", err.what);
            free(text);
        }
        input_close(&in);
    }
    free(path);
    return status;
}

/* Replaces the manifest. */
static int write_manifest(const struct log *l)
{
    struct output out = {.fd = -1};
    size_t len;
    char *const path = path_in(l, MANIFEST_NAME), *const text = manifest_text(&l->m, &len);
    int status = path && text ? output_open(&out, path, NULL, true) : tool_nomem(l->dir, "the manifest");
    if (status == TOOL_OK)
        status = output_write(&out, text, len);
    if (status == TOOL_OK)
        status = output_commit(&out);
    output_discard(&out);
    free(path);
    free(text);
    return status;
}

/* Copies a file, whole or not at all. */
static int copy(const char *from, const char *to, bool force, struct manifest_file *f)
{
    struct output out = {.fd = -1};
    int status = output_open(&out, to, NULL, force);
    if (status == TOOL_OK)
        status = measure(from, f, &out);
    if (status == TOOL_OK)
        status = output_commit(&out);
    output_discard(&out);
    return status;
}

/* ---- init, append */

int verb_log_init(const struct tool_options *o)
{
    struct log l = {.dir = o->args[0], .fd = -1};
    if (mkdir(l.dir, 0777) != 0 && errno != EEXIST)
        return tool_bad(l.dir, "%s", strerror(errno));
    char *const manifest = path_in(&l, MANIFEST_NAME);
    if (!manifest)
        return TOOL_BAD;
    const bool there = access(manifest, F_OK) == 0;
    free(manifest);
    if (there)
        return tool_usage(l.dir, "is a log already");
    const char *const extension = tool_extension(o->args[1]);
    if (strlen(extension) < sizeof l.m.extension && !strpbrk(extension, " \t\n\v\f\r"))
        strcpy(l.m.extension, extension);
    char *const base = base_path(&l);
    int status = base ? copy(o->args[1], base, true, &l.m.whole) : TOOL_BAD;
    l.m.start = l.m.whole;
    if (status == TOOL_OK)
        status = write_manifest(&l);
    free(base);
    return status;
}

static int append(struct log *l, const struct tool_options *o)
{
    const uint64_t newest = manifest_newest(&l->m);
    struct manifest_delta d;
    struct manifest_file old, after;
    int status = measure(o->args[1], &old, NULL);
    if (status == TOOL_OK && !equal(&old, manifest_state(&l->m, newest)))
        status = tool_bad(o->args[1], "is not the newest state of %s", l->dir);
    if (status == TOOL_OK)
        status = measure(o->args[2], &d.state, NULL);
    if (status)
        return status;
    char *const path = delta_path(l, newest + 1);
    struct tool_options diff = *o;
    diff.out = path;
    diff.args = o->args + 1;
    diff.nargs = 2;
    diff.force = true; /* a file of this name is of an append that was killed */
    status = path ? verb_diff(&diff) : TOOL_BAD;
    if (status == TOOL_OK)
        status = measure(path, &d.delta, NULL);
    if (status == TOOL_OK)
        status = measure(o->args[2], &after, NULL);
    free(path);
    if (status == TOOL_OK && !equal(&after, &d.state))
        status = tool_bad(o->args[2], "has changed meanwhile; nothing is appended");
    if (status)
        return status;
    struct manifest_delta *const more = realloc(l->m.delta, ((size_t)l->m.deltas + 1) * sizeof *more);
    if (!more)
        return tool_nomem(l->dir, "the manifest");
    l->m.delta = more;
    more[l->m.deltas++] = d;
    return write_manifest(l);
}

int verb_log_append(const struct tool_options *o)
{
    struct log l;
    int status = log_open(&l, o->args[0], true);
    if (status == TOOL_OK)
        status = append(&l, o);
    log_close(&l);
    return status;
}

/* ---- apply */

/* Makes `to` of `from`, which is in state k, by the deltas up to state `last`, k < last. to: NULL: in place. */
static int apply_deltas(const struct log *l, const struct tool_options *o, const char *from, const char *to, uint64_t k,
                        uint64_t last)
{
    struct tool_options apply = *o;
    const int n = (int)(last - k);
    char **const args = calloc((size_t)n + 1, sizeof *args);
    int status = args ? TOOL_OK : tool_nomem(l->dir, "the list of deltas");
    if (args)
        args[0] = (char *)(uintptr_t)from; /* verbs do not change their operands */
    for (int i = 0; status == TOOL_OK && i < n; i++)
        status = (args[i + 1] = delta_path(l, k + 1 + (uint64_t)i)) ? TOOL_OK : TOOL_BAD;
    apply.args = args;
    apply.nargs = n + 1;
    apply.out = to;
    apply.in_place = !to;
    apply.force = true;
    if (status == TOOL_OK)
        status = verb_apply(&apply);
    for (int i = 0; args && i < n; i++)
        free(args[i + 1]);
    free(args);
    return status;
}

/* The number of states that follow k and whose deltas are whole. Says what the first other is. */
static uint64_t whole_deltas(const struct log *l, uint64_t k, int *status)
{
    enum { MOST = 1 << 16 }; /* at a time */
    uint64_t last = k;
    for (; last < manifest_newest(&l->m) && last - k < MOST; last++) {
        char *const path = delta_path(l, last + 1);
        *status = path ? check_file(path, &l->m.delta[last - l->m.first].delta) : TOOL_BAD;
        free(path);
        if (*status)
            break;
    }
    return last;
}

/* Makes the file from the base. */
static int from_base(const struct log *l, const struct tool_options *o, const char *file)
{
    struct manifest_file is;
    int late = TOOL_OK;
    char *const base = base_path(l);
    int status = base ? check_file(base, &l->m.whole) : TOOL_BAD;
    if (status == TOOL_OK) {
        const uint64_t last = whole_deltas(l, l->m.base, &late);
        status = last > l->m.base ? apply_deltas(l, o, base, file, l->m.base, last) : copy(base, file, true, &is);
    }
    free(base);
    return status ? status : late;
}

static int apply(const struct log *l, const struct tool_options *o)
{
    const char *const file = o->args[1];
    struct manifest_file is;
    struct stat st;
    int late = TOOL_OK;
    if (stat(file, &st) != 0 && errno == ENOENT)
        return from_base(l, o, file);
    int status = measure(file, &is, NULL);
    if (status)
        return status;
    uint64_t k = manifest_newest(&l->m);
    while (k > l->m.first && !equal(&is, manifest_state(&l->m, k)))
        k--;
    if (!equal(&is, manifest_state(&l->m, k)))
        return o->force ? from_base(l, o, file)
                        : tool_bad(file,
                                   "is none of the states of %s, or older than its first: --force makes it from "
                                   "the base",
                                   l->dir);
    const uint64_t last = whole_deltas(l, k, &late);
    status = last > k ? apply_deltas(l, o, file, NULL, k, last) : TOOL_OK;
    return status ? status : late;
}

int verb_log_apply(const struct tool_options *o)
{
    struct log l;
    int status = log_open(&l, o->args[0], false);
    if (status == TOOL_OK)
        status = apply(&l, o);
    log_close(&l);
    return status;
}

/* ---- compact */

/* How many deltas to keep: the last whose bytes are together at most those of the base. */
static uint64_t kept(const struct manifest *m)
{
    uint64_t n = 0, bytes = 0;
    while (n < m->deltas && m->delta[m->deltas - 1 - n].delta.bytes <= m->whole.bytes - bytes)
        bytes += m->delta[m->deltas - 1 - n++].delta.bytes;
    return n;
}

/* Removes the files of logs that the manifest does not name, and temporary ones of verbs that were killed. */
static int clean(const struct log *l)
{
    DIR *const d = opendir(l->dir);
    char base[MANIFEST_NAME_MOST], name[MANIFEST_NAME_MOST];
    int status = d ? TOOL_OK : tool_bad(l->dir, "%s", strerror(errno));
    manifest_base_name(base, &l->m);
    for (struct dirent *e; d && (e = readdir(d));) {
        uint64_t state;
        bool stays = strcmp(e->d_name, base) == 0;
        const bool is_base = sscanf(e->d_name, "base-%9" SCNu64, &state) == 1;
        const bool is_temporary = strncmp(e->d_name, ".pici-", 6) == 0;
        if (!is_base && !is_temporary && sscanf(e->d_name, "delta-%" SCNu64 ".pici", &state) != 1)
            continue;
        if (!is_base && !is_temporary) {
            manifest_delta_name(name, state);
            stays = strcmp(name, e->d_name) != 0 || (state > l->m.first && state <= manifest_newest(&l->m));
        }
        if (!stays && unlinkat(dirfd(d), e->d_name, 0) != 0 && errno != ENOENT)
            status = tool_bad(l->dir, "%s: %s", e->d_name, strerror(errno));
    }
    if (d)
        closedir(d);
    return status;
}

static int compact(struct log *l, const struct tool_options *o)
{
    struct manifest *const m = &l->m;
    const uint64_t newest = manifest_newest(m), old = m->base;
    int status = TOOL_OK;
    if (old < newest) {
        const struct manifest_file want = *manifest_state(m, newest);
        struct manifest_file is;
        char *const from = base_path(l);
        m->base = newest;
        char *const to = base_path(l);
        status = from && to ? TOOL_OK : TOOL_BAD;
        m->base = old;
        if (status == TOOL_OK)
            status = check_file(from, &m->whole);
        uint64_t last = status ? old : whole_deltas(l, old, &status);
        if (status == TOOL_OK && last < newest)
            status = tool_bad(l->dir, "has too many deltas after its base for one run");
        if (status == TOOL_OK)
            status = apply_deltas(l, o, from, to, old, newest);
        if (status == TOOL_OK)
            status = measure(to, &is, NULL);
        if (status == TOOL_OK && !equal(&is, &want))
            status = tool_bad(to, "is not the newest state; the log stays as it was");
        free(from);
        free(to);
        m->base = newest;
        m->whole = want;
    }
    const uint64_t n = kept(m), gone = m->deltas - n;
    if (status == TOOL_OK && (gone || old < newest)) {
        if (gone) {
            m->start = m->delta[gone - 1].state;
            memmove(m->delta, m->delta + gone, (size_t)n * sizeof *m->delta);
            m->first += gone;
            m->deltas = n;
        }
        status = write_manifest(l);
    }
    return status ? status : clean(l);
}

int verb_log_compact(const struct tool_options *o)
{
    struct log l;
    int status = log_open(&l, o->args[0], true);
    if (status == TOOL_OK)
        status = compact(&l, o);
    log_close(&l);
    return status;
}

/* ---- list */

int verb_log_list(const struct tool_options *o)
{
    struct log l;
    char name[MANIFEST_NAME_MOST];
    const int status = log_open(&l, o->args[0], false);
    if (status == TOOL_OK) {
        manifest_base_name(name, &l.m);
        printf("state %" PRIu64 ": %s, %" PRIu64 " bytes\n", l.m.base, name, l.m.whole.bytes);
        for (uint64_t i = 0; i < l.m.deltas; i++) {
            manifest_delta_name(name, l.m.first + 1 + i);
            printf("state %" PRIu64 " to %" PRIu64 ": %s, %" PRIu64 " bytes\n", l.m.first + i, l.m.first + 1 + i, name,
                   l.m.delta[i].delta.bytes);
        }
    }
    log_close(&l);
    return status;
}
