/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading a tune file. A line is cut into words, its first word says what it is, and each kind of line has a function.
 * What lines say about each other (points and their shapes, duplicates) is checked at the end. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/machine.h"
#include "predict/number.h"
#include "predict/tune.h"
#include "schedule/registry.h"
#include "xxh64.h"

enum { WORDS_MOST = 24, RANKS_MOST = 1 << 20, CORES_MOST = 1 << 16, SHOWN = 40 };
static const double NUMBER_MOST = 1e12, DENSITY_LEAST = 1e-9;
static const uint64_t BYTES_MOST = UINT64_C(1) << 50;

struct word {
    const char *at;
    size_t len;
    int quoted;
};

/* Ranks and nodes that a point says it was measured with; 0: not said. */
struct measured_at {
    int ranks, nodes;
};

struct reader {
    struct tune *tune;
    char *why;
    const char *begin, *at, *end; /* of the file; the next line */
    int line, words;
    struct word word[WORDS_MOST];
    int said_made, said_agree, said_assume, ended;
    int said_link[POLICY_LINKS], said_codec[MODEL_FORMATS][MODEL_WORKS];
    struct measured_at *of; /* of each point */
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static enum pici_status
fail_at(struct reader *r, int line, const char *format, ...)
{
    va_list args;
    const int n = line ? snprintf(r->why, TUNE_WHY, "line %d: ", line) : 0;
    va_start(args, format);
    vsnprintf(r->why + n, (size_t)(TUNE_WHY - n), format, args);
    va_end(args);
    return PICI_E_CORRUPT;
}

/* Words are printed in errors: as format and arguments of printf. */
#define WORD "\"%.*s\""
#define SHOW(w) (int)((w).len < SHOWN ? (w).len : SHOWN), (w).at
#define FAIL(r, ...) fail_at(r, (r)->line, __VA_ARGS__)

static enum pici_status no_memory(struct reader *r)
{
    snprintf(r->why, TUNE_WHY, "no memory");
    return PICI_E_NOMEM;
}

/* ---- words */

static int is(const struct word *w, const char *text)
{
    return !w->quoted && w->len == strlen(text) && memcmp(w->at, text, w->len) == 0;
}

static int is_space(char c)
{
    return c == ' ' || c == '\t';
}

static int is_control(char c)
{
    return ((unsigned char)c < ' ' && c != '\t') || c == 0x7f;
}

/* One word at *at, which is no space; *at moves behind it. */
static enum pici_status read_word(struct reader *r, const char **at, const char *end)
{
    struct word *w = &r->word[r->words++];
    const char *p = *at;
    *w = (struct word){.at = p, .quoted = *p == '"'};
    if (w->quoted) {
        for (w->at = ++p; p < end && *p != '"'; p++)
            ;
        if (p == end)
            return FAIL(r, "a quoted string does not end");
        w->len = (size_t)(p++ - w->at);
        if (p < end && !is_space(*p) && *p != '#')
            return FAIL(r, "no space behind a quoted string");
    } else {
        for (; p < end && !is_space(*p) && *p != '#'; p++)
            if (*p == '"' || (unsigned char)*p > 0x7e)
                return FAIL(r, "a character in a word that may only be in a quoted string or a comment");
        w->len = (size_t)(p - w->at);
    }
    *at = p;
    return PICI_OK;
}

/* Cut the next line into words. */
static enum pici_status read_line(struct reader *r)
{
    const char *at = r->at, *end = memchr(at, '\n', (size_t)(r->end - at));
    r->line++;
    r->words = 0;
    if (!end)
        return FAIL(r, "the line does not end");
    r->at = end + 1;
    for (const char *p = at; p < end; p++)
        if (is_control(*p))
            return FAIL(r, "a control character, 0x%02x", (unsigned)(unsigned char)*p);
    while (at < end && *at != '#') {
        if (is_space(*at)) {
            at++;
            continue;
        }
        if (r->words == WORDS_MOST)
            return FAIL(r, "more than %d words", WORDS_MOST);
        enum pici_status s = read_word(r, &at, end);
        if (s)
            return s;
    }
    return PICI_OK;
}

/* ---- values. Each reads word i, and `what` names it in errors. */

static enum pici_status missing(struct reader *r, int i, const char *what)
{
    return i < r->words ? PICI_OK : FAIL(r, "the %s is missing", what);
}

static enum pici_status read_real(struct reader *r, int i, const char *what, double least, double *value)
{
    enum pici_status s = missing(r, i, what);
    const struct word *w = &r->word[i];
    if (s)
        return s;
    if (w->len && !w->quoted && w->at[0] == '-')
        return FAIL(r, "the %s is negative: " WORD, what, SHOW(*w));
    if (w->quoted || !pici_number_read(w->at, w->len, value))
        return FAIL(r, "the %s is no number: " WORD, what, SHOW(*w));
    if (*value < least || *value > NUMBER_MOST)
        return FAIL(r, "the %s is out of range: " WORD, what, SHOW(*w));
    return PICI_OK;
}

static enum pici_status read_density(struct reader *r, int i, double *value)
{
    enum pici_status s = read_real(r, i, "density", DENSITY_LEAST, value);
    return s ? s : *value > 1 ? FAIL(r, "the density is above 1: " WORD, SHOW(r->word[i])) : PICI_OK;
}

/* Digits at *p, as an integer; 0: there are none, or it is above `most`. */
static int read_digits(const char **p, const char *end, uint64_t most, uint64_t *value)
{
    const char *begin = *p;
    for (*value = 0; *p < end && **p >= '0' && **p <= '9'; ++*p) {
        const uint64_t digit = (uint64_t)(**p - '0');
        if (digit > most || *value > (most - digit) / 10)
            return 0;
        *value = *value * 10 + digit;
    }
    return *p > begin;
}

static enum pici_status read_count(struct reader *r, int i, const char *what, uint64_t least, uint64_t most,
                                   uint64_t *value)
{
    enum pici_status s = missing(r, i, what);
    if (s)
        return s;
    const struct word *w = &r->word[i];
    const char *p = w->at, *end = w->at + w->len;
    if (w->quoted || !read_digits(&p, end, most, value) || p < end || *value < least)
        return FAIL(r, "the %s is not a whole number from %llu to %llu: " WORD, what, (unsigned long long)least,
                    (unsigned long long)most, SHOW(*w));
    return PICI_OK;
}

static enum pici_status read_int(struct reader *r, int i, const char *what, int least, int most, int *value)
{
    uint64_t n = 0;
    enum pici_status s = read_count(r, i, what, (uint64_t)least, (uint64_t)most, &n);
    *value = (int)n;
    return s;
}

static enum pici_status read_text(struct reader *r, int i, const char *what, char text[TUNE_TEXT])
{
    enum pici_status s = missing(r, i, what);
    const struct word *w = &r->word[i];
    if (s)
        return s;
    if (!w->len || w->len >= TUNE_TEXT)
        return FAIL(r, "the %s is empty or has more than %d bytes", what, TUNE_TEXT - 1);
    memcpy(text, w->at, w->len);
    text[w->len] = '\0';
    return PICI_OK;
}

/* The index of word i among names, which end with NULL; < 0: it is none of them. */
static int find(const struct reader *r, int i, const char *const *names)
{
    for (int n = 0; i < r->words && names[n]; n++)
        if (is(&r->word[i], names[n]))
            return n;
    return -1;
}

static enum pici_status unknown(struct reader *r, int i, const char *what)
{
    enum pici_status s = missing(r, i, what);
    return s ? s : FAIL(r, "unknown %s " WORD, what, SHOW(r->word[i]));
}

static enum pici_status end_of_line(struct reader *r, int i)
{
    return i < r->words ? FAIL(r, "unexpected " WORD " at the end of the line", SHOW(r->word[i])) : PICI_OK;
}

/* Pairs of a key and a value, from word i on: say[k] is the word of key k's value, 0 if it is not there. */
static enum pici_status read_pairs(struct reader *r, int i, const char *const *keys, int *say)
{
    for (int k = 0; keys[k]; k++)
        say[k] = 0;
    for (; i < r->words; i += 2) {
        const int k = find(r, i, keys);
        if (k < 0)
            return unknown(r, i, "word");
        if (say[k])
            return FAIL(r, "%s is there twice", keys[k]);
        if (i + 1 == r->words)
            return FAIL(r, "the value of %s is missing", keys[k]);
        say[k] = i + 1;
    }
    return PICI_OK;
}

static enum pici_status need(struct reader *r, const char *const *keys, const int *say, int many)
{
    for (int k = 0; k < many; k++)
        if (!say[k])
            return FAIL(r, "%s is missing", keys[k]);
    return PICI_OK;
}

static enum pici_status once(struct reader *r, int *said, const char *what)
{
    return (*said)++ ? FAIL(r, "there is a line for %s already", what) : PICI_OK;
}

/* ---- lines */

static int is_date(const struct word *w)
{
    static const char form[] = "0000-00-00T00:00:00Z";
    int good = w->len == sizeof form - 1 && !w->quoted;
    for (size_t i = 0; good && i < w->len; i++)
        good = form[i] == '0' ? w->at[i] >= '0' && w->at[i] <= '9' : w->at[i] == form[i];
    return good;
}

static enum pici_status read_made(struct reader *r)
{
    static const char *const keys[] = {"pici", "transport", "library", "cpu", NULL};
    struct tune *t = r->tune;
    char *const to[] = {t->pici, t->transport, t->library, t->cpu};
    int say[5];
    enum pici_status s = once(r, &r->said_made, "made");
    if (!s)
        s = missing(r, 1, "date");
    if (!s && !is_date(&r->word[1]))
        s = FAIL(r, "a date is like 2026-11-22T20:10:00Z, not " WORD, SHOW(r->word[1]));
    if (!s)
        s = read_text(r, 1, "date", t->date);
    if (!s)
        s = read_pairs(r, 2, keys, say);
    for (int k = 0; keys[k] && !s; k++)
        if (say[k])
            s = read_text(r, say[k], keys[k], to[k]);
    return s;
}

/* The ranks of each node, with commas. */
static enum pici_status read_map(struct reader *r, const struct word *w, struct tune_shape *shape)
{
    const char *p = w->at, *end = w->at + w->len;
    const int nodes = shape->nodes.nodes;
    int commas = 0, sum = 0;
    for (const char *q = p; q < end; q++)
        commas += *q == ',';
    if (w->quoted || commas + 1 != nodes)
        return FAIL(r, "the map is not one number for each of %d nodes, with commas", nodes);
    int *begin = malloc(((size_t)nodes + 1) * sizeof *begin);
    if (!begin)
        return no_memory(r);
    shape->nodes.begin = begin;
    begin[0] = 0;
    for (int i = 0; i < nodes; i++, p++) {
        uint64_t ranks;
        if (!read_digits(&p, end, (uint64_t)(shape->ranks - sum), &ranks) || !ranks ||
            (p < end ? *p != ',' : i + 1 < nodes))
            return FAIL(r, "the map's number %d is not that of a node's ranks, or they are more than %d together",
                        i + 1, shape->ranks);
        sum += (int)ranks;
        begin[i + 1] = sum;
    }
    return sum == shape->ranks ? PICI_OK : FAIL(r, "the map has %d ranks, not %d", sum, shape->ranks);
}

static enum pici_status read_shape(struct reader *r)
{
    static const char *const keys[] = {"ranks", "nodes", "map", "cores", NULL};
    struct tune *t = r->tune;
    int say[5];
    if (t->shape_count == TUNE_SHAPES_MOST)
        return FAIL(r, "more than %d shapes", TUNE_SHAPES_MOST);
    enum pici_status s = read_pairs(r, 1, keys, say);
    if (!s)
        s = need(r, keys, say, 4);
    if (s)
        return s;
    struct tune_shape *shape = &t->shapes[t->shape_count++];
    *shape = (struct tune_shape){.ranks = 0};
    if ((s = read_int(r, say[0], keys[0], 1, RANKS_MOST, &shape->ranks)) ||
        (s = read_int(r, say[1], keys[1], 1, shape->ranks, &shape->nodes.nodes)) ||
        (s = read_int(r, say[3], keys[3], 0, CORES_MOST, &shape->cores)) || (s = read_map(r, &r->word[say[2]], shape)))
        return s;
    for (const struct tune_shape *other = t->shapes; other < shape; other++)
        if (other->ranks == shape->ranks && other->nodes.nodes == shape->nodes.nodes)
            return FAIL(r, "there is a shape of %d ranks on %d nodes already", shape->ranks, shape->nodes.nodes);
    return PICI_OK;
}

static enum pici_status read_link(struct reader *r)
{
    static const char *const names[] = {"inter", "intra", NULL}, *const keys[] = {"alpha", "beta", "node_beta", NULL};
    struct model_machine *m = &r->tune->machine;
    const int link = find(r, 1, names);
    int say[4];
    if (link < 0)
        return unknown(r, 1, "link");
    enum pici_status s = once(r, &r->said_link[link], names[link]);
    if (!s)
        s = read_pairs(r, 2, keys, say);
    if (!s)
        s = need(r, keys, say, 2);
    if (!s)
        s = read_real(r, say[0], keys[0], 0, &m->link[link].alpha);
    if (!s)
        s = read_real(r, say[1], keys[1], 0, &m->link[link].beta);
    if (!s && say[2] && link != POLICY_INTER)
        s = FAIL(r, "node_beta is of the link inter");
    if (!s && say[2])
        s = read_real(r, say[2], keys[2], 0, &m->node_beta);
    return s;
}

static enum pici_status read_agree(struct reader *r)
{
    static const char *const keys[] = {"ranks", NULL};
    struct model_machine *m = &r->tune->machine;
    int say[2];
    enum pici_status s = once(r, &r->said_agree, "agree");
    if (!s)
        s = read_real(r, 1, "time", 0, &m->agree);
    if (!s)
        s = read_pairs(r, 2, keys, say);
    if (!s)
        s = need(r, keys, say, 1);
    return s ? s : read_int(r, say[0], keys[0], 2, RANKS_MOST, &m->agree_ranks);
}

/* What a tile takes more than an empty one: it may be less, but no tile takes less than no time. */
static enum pici_status read_more(struct reader *r, int i, double empty, double *value)
{
    static const char what[] = "time at a density";
    struct word *w = &r->word[i];
    enum pici_status s = missing(r, i, what);
    const int less = !s && !w->quoted && w->len > 1 && w->at[0] == '-';
    if (less) {
        w->at++;
        w->len--;
    }
    if (!s)
        s = read_real(r, i, what, 0, value);
    if (!s && less && *value > 0)
        *value = -*value;
    return s || *value >= -empty ? s : FAIL(r, "a tile takes less than no time: -" WORD, SHOW(*w));
}

static const char *const work_names[] = {"count", "encode", "add", "decode", NULL};

static enum pici_status read_codec(struct reader *r)
{
    static const char *const dtypes[] = {"f32", NULL};
    const char *const formats[] = {pici_format_name(PICI_DENSE), pici_format_name(PICI_PICI),
                                   pici_format_name(PICI_COO), pici_format_name(PICI_HYBRID), NULL};
    const int format = find(r, 2, formats), work = find(r, 3, work_names);
    if (find(r, 1, dtypes) < 0)
        return FAIL(r, "the dtype of a codec line is f32");
    if (format < 0)
        return unknown(r, 2, "format");
    if (work < 0)
        return unknown(r, 3, "work");
    if (work == MODEL_COUNT && format != PICI_DENSE)
        return FAIL(r, "count is a line of the format dense: it is the same for all");
    enum pici_status s = once(r, &r->said_codec[format][work], "this format and work");
    struct model_codec *c = &r->tune->machine.codec[format][work];
    if (!s)
        s = read_real(r, 4, "time of an empty tile", 0, &c->empty);
    for (int i = 0; i < MODEL_POINTS && !s; i++)
        s = read_more(r, 5 + i, c->empty, &c->more[i]);
    return s ? s : end_of_line(r, 5 + MODEL_POINTS);
}

/* Word i: an algorithm, "vendor", or "vendor:" and which of its algorithms. */
static enum pici_status read_candidate(struct reader *r, int i, struct tune_point *p)
{
    static const char vendor[] = "vendor";
    static const char *const how[] = {"sparse", "dense", NULL};
    const size_t n = sizeof vendor - 1;
    enum pici_status s = missing(r, i, "algorithm");
    const struct word *w = &r->word[i];
    if (s)
        return s;
    if (!w->quoted && w->len >= n && memcmp(w->at, vendor, n) == 0 && (w->len == n || w->at[n] == ':')) {
        p->candidate.vendor = MODEL_VENDOR;
        if (w->len > n && (w->len == n + 1 || w->len - n > TUNE_TEXT))
            return FAIL(r, "the vendor's algorithm is empty or has more than %d bytes", TUNE_TEXT - 1);
        if (w->len > n)
            memcpy(p->vendor, w->at + n + 1, w->len - n - 1);
    } else {
        const struct schedule *schedule = pici_schedules;
        while (schedule->name && !is(w, schedule->name))
            schedule++;
        if (!schedule->name)
            return unknown(r, i, "algorithm");
        if (!(schedule->collectives >> p->collective & 1))
            return FAIL(r, "%s cannot do this collective", schedule->name);
        p->candidate.algorithm = schedule->id;
    }
    p->candidate.dense = find(r, i + 1, how);
    if (p->candidate.dense < 0)
        return i + 1 < r->words ? FAIL(r, WORD " is neither sparse nor dense", SHOW(r->word[i + 1]))
                                : FAIL(r, "the word sparse or dense is missing");
    return p->candidate.vendor && !p->candidate.dense ? FAIL(r, "the vendor's messages are dense") : PICI_OK;
}

static enum pici_status read_dtype(struct reader *r, int i, enum pici_dtype *dtype)
{
    for (int d = 0; d < 256 && i < r->words; d++) {
        const char *name = pici_dtype_width((enum pici_dtype)d) ? pici_dtype_name((enum pici_dtype)d) : NULL;
        if (name && is(&r->word[i], name)) {
            *dtype = (enum pici_dtype)d;
            return PICI_OK;
        }
    }
    return unknown(r, i, "dtype");
}

static enum pici_status read_point(struct reader *r)
{
    static const char *const keys[] = {"ranks", "nodes", NULL};
    struct tune *t = r->tune;
    if (t->point_count == TUNE_POINTS_MOST)
        return FAIL(r, "more than %d points", TUNE_POINTS_MOST);
    struct measured_at *of = &r->of[t->point_count];
    struct tune_point *p = &t->points[t->point_count++];
    int say[3];
    *p = (struct tune_point){.line = r->line};
    *of = (struct measured_at){0, 0};
    p->collective = PICI_ALL_GATHER;
    while (r->words > 1 && pici_model_name(p->collective) && !is(&r->word[1], pici_model_name(p->collective)))
        p->collective++;
    if (r->words < 2 || !pici_model_name(p->collective))
        return unknown(r, 1, "collective");
    enum pici_status s = read_dtype(r, 2, &p->dtype);
    if (!s)
        s = read_count(r, 3, "number of bytes", 1, BYTES_MOST, &p->bytes);
    if (!s && p->bytes % pici_dtype_width(p->dtype))
        s = FAIL(r, "%llu bytes are not a whole number of elements", (unsigned long long)p->bytes);
    if (!s)
        s = read_density(r, 4, &p->density);
    if (!s)
        s = read_candidate(r, 5, p);
    if (!s)
        s = read_real(r, 7, "time", 1e-12, &p->seconds);
    if (!s)
        s = read_real(r, 8, "spread of the time", 0, &p->spread);
    if (!s)
        s = read_pairs(r, 9, keys, say);
    if (!s && say[0] + say[1])
        s = need(r, keys, say, 2);
    if (!s && say[0])
        s = read_int(r, say[0], keys[0], 1, RANKS_MOST, &of->ranks);
    if (!s && say[0])
        s = read_int(r, say[1], keys[1], 1, of->ranks, &of->nodes);
    return s;
}

static enum pici_status read_assume(struct reader *r)
{
    static const char *const keys[] = {"density", "correlation", NULL};
    struct tune *t = r->tune;
    int say[3] = {0};
    enum pici_status s = once(r, &r->said_assume, "assume");
    if (!s)
        s = read_pairs(r, 1, keys, say);
    if (!s && !say[0] && !say[1])
        s = FAIL(r, "nothing is assumed");
    if (!s && say[0])
        s = read_density(r, say[0], &t->density);
    if (!s && say[1])
        s = read_real(r, say[1], keys[1], 0, &t->correlation);
    return s || t->correlation <= 1 ? s : FAIL(r, "the correlation is above 1");
}

/* The last line. from: where it begins. */
static enum pici_status read_end(struct reader *r, const char *from)
{
    uint64_t said = 0;
    const struct word *w = &r->word[1];
    int digits = r->words == 2 && !w->quoted && w->len == 16;
    for (size_t i = 0; digits && i < w->len; i++) {
        const char c = w->at[i];
        digits = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
        said = said << 4 | (uint64_t)(c <= '9' ? c - '0' : c - 'a' + 10);
    }
    if (!digits)
        return FAIL(r, "end takes a hash of 16 hexadecimal digits in lower case");
    r->tune->hash = pici_xxh64(r->begin, (size_t)(from - r->begin), 0);
    if (said != r->tune->hash)
        return FAIL(r, "the file was changed: its hash is %016llx, not %016llx", (unsigned long long)r->tune->hash,
                    (unsigned long long)said);
    r->ended = 1;
    return r->at == r->end ? PICI_OK : FAIL(r, "something follows the line end");
}

static enum pici_status read_first(struct reader *r)
{
    uint64_t version = 0;
    enum pici_status s = read_line(r);
    if (s || r->words != 2 || !is(&r->word[0], "pici-tune"))
        return FAIL(r, "the first line of a tune file is \"pici-tune %d\"", TUNE_VERSION);
    s = read_count(r, 1, "version", 0, INT32_MAX, &version);
    if (!s && version != TUNE_VERSION) {
        (void)FAIL(r, "the file has version %d, this library reads version %d", (int)version, TUNE_VERSION);
        return PICI_E_VERSION;
    }
    return s;
}

static enum pici_status read_lines(struct reader *r)
{
    static const struct {
        const char *word;
        enum pici_status (*read)(struct reader *);
    } kinds[] = {{"made", read_made},   {"shape", read_shape}, {"link", read_link},    {"agree", read_agree},
                 {"codec", read_codec}, {"point", read_point}, {"assume", read_assume}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    enum pici_status s = read_first(r);
    while (!s && r->at < r->end) {
        const char *from = r->at;
        s = read_line(r);
        const struct word *w = &r->word[0];
        if (s || !r->words || (!w->quoted && w->len > 1 && memcmp(w->at, "x-", 2) == 0))
            continue;
        if (is(w, "end")) {
            s = read_end(r, from);
            break;
        }
        int k = 0;
        while (k < KINDS && !is(w, kinds[k].word))
            k++;
        s = k < KINDS ? kinds[k].read(r) : unknown(r, 0, "word");
    }
    if (!s && !r->ended)
        s = fail_at(r, r->line + 1, "the line end is missing: the file is not whole");
    return s;
}

/* ---- what lines say about each other */

static enum pici_status find_shapes(struct reader *r)
{
    struct tune *t = r->tune;
    if (!t->shape_count)
        return fail_at(r, 0, "there is no shape");
    for (size_t i = 0; i < t->point_count; i++) {
        struct tune_point *p = &t->points[i];
        const struct measured_at *of = &r->of[i];
        if (!of->ranks && t->shape_count > 1)
            return fail_at(r, p->line, "the file has several shapes, and the point does not say ranks and nodes");
        for (p->shape = 0; of->ranks && p->shape < t->shape_count; p->shape++)
            if (t->shapes[p->shape].ranks == of->ranks && t->shapes[p->shape].nodes.nodes == of->nodes)
                break;
        if (p->shape == t->shape_count)
            return fail_at(r, p->line, "there is no shape of %d ranks on %d nodes", of->ranks, of->nodes);
    }
    return PICI_OK;
}

static enum pici_status find_duplicates(struct reader *r)
{
    const struct tune *t = r->tune;
    for (size_t i = 1; i < t->point_count; i++) {
        const struct tune_point *a = &t->points[i - 1], *b = &t->points[i];
        if (pici_tune_order(a, b) == 0) {
            const int first = a->line < b->line ? a->line : b->line, later = a->line < b->line ? b->line : a->line;
            return fail_at(r, later, "the same point as in line %d", first);
        }
    }
    return PICI_OK;
}

/* How many lines there can be of a kind: no more than this, so no number of the file says how much is allocated. */
static size_t count_lines(const char *at, const char *end, const char *word, size_t most)
{
    size_t n = 0;
    const size_t len = strlen(word);
    for (; at < end && n < most; at++) {
        while (at < end && is_space(*at))
            at++;
        n += (size_t)(end - at) > len && memcmp(at, word, len) == 0;
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at)
            break;
    }
    return n;
}

enum pici_status pici_tune_read(struct tune *t, const void *bytes, size_t len, char *why)
{
    struct reader r = {.tune = t, .why = why, .begin = bytes, .at = bytes};
    why[0] = '\0';
    *t = (struct tune){.machine = pici_model_machine, .density = TUNE_DENSITY, .correlation = 1};
    if (len > TUNE_BYTES_MOST)
        return fail_at(&r, 0, "the file has more than %d bytes", TUNE_BYTES_MOST);
    if (!len)
        return fail_at(&r, 0, "the file is empty");
    r.end = r.begin + len;
    const size_t points = count_lines(r.begin, r.end, "point", TUNE_POINTS_MOST),
                 shapes = count_lines(r.begin, r.end, "shape", TUNE_SHAPES_MOST);
    t->points = calloc(points + 1, sizeof *t->points);
    t->shapes = calloc(shapes + 1, sizeof *t->shapes);
    r.of = calloc(points + 1, sizeof *r.of);
    enum pici_status s = t->points && t->shapes && r.of ? read_lines(&r) : no_memory(&r);
    if (!s)
        s = find_shapes(&r);
    if (!s) {
        struct tune_shape of;
        (void)pici_tune_largest((const struct tune *const[]){t}, 1, &of);
        t->machine.cores = of.cores;
        pici_tune_sort(t);
        s = find_duplicates(&r);
    }
    free(r.of);
    if (s)
        pici_tune_free(t);
    return s;
}

enum pici_status pici_tune_open(struct tune *t, const char *path, char *why)
{
    FILE *f = fopen(path, "rb");
    uint8_t *bytes = f ? malloc(TUNE_BYTES_MOST + 1) : NULL; /* one more tells a file that is too long */
    const size_t len = bytes ? fread(bytes, 1, TUNE_BYTES_MOST + 1, f) : 0;
    const int failed = !f || (bytes && ferror(f)), error = errno;
    enum pici_status s = failed ? PICI_E_IO : PICI_E_NOMEM;
    *t = (struct tune){.shapes = NULL};
    snprintf(why, TUNE_WHY, "%s", failed ? strerror(error) : "no memory");
    if (f)
        fclose(f);
    if (!failed && bytes)
        s = pici_tune_read(t, bytes, len, why);
    free(bytes);
    return s;
}
