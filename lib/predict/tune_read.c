/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Reading a tune file. The reader cuts a line into words. The first word is the kind of line, and each kind has a
 * function. At the end, the reader checks relations between lines (points and their shapes, duplicates). */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "format.h"
#include "predict/machine.h"
#include "predict/number.h"
#include "predict/tune.h"
#include "schedule/registry.h"
#include "xxh64.h"

enum { WORDS_MOST = 24, RANKS_MOST = 1 << 20, CORES_MOST = 1 << 16, SHOWN = 40 };
static const double NUMBER_MOST = 1e12, DENSITY_LEAST = 1e-9;
static const uint64_t BYTES_MOST = UINT64_C(1) << 50;

struct word {
    const char *text;
    size_t size;
    int quoted;
};

/* The ranks and nodes with which a point was measured; 0: not set. */
struct measured_at {
    int ranks, nodes;
};

struct reader {
    struct tune *tune;
    char *why;
    const char *begin, *next, *end; /* of the file; the next line */
    int line, words;
    struct word word[WORDS_MOST];
    int said_made, said_agree, said_assume, said_threshold, ended;
    int said_link[POLICY_LINKS], said_codec[MODEL_FORMATS][MODEL_WORKS];
    struct measured_at *measured; /* of each point */
};

#if defined(__GNUC__)
__attribute__((format(printf, 3, 4)))
#endif
static enum pici_status
fail_at(struct reader *reader, int line, const char *format, ...)
{
    va_list arguments;
    const int printed = line ? snprintf(reader->why, TUNE_WHY, "line %d: ", line) : 0;
    va_start(arguments, format);
    vsnprintf(reader->why + printed, (size_t)(TUNE_WHY - printed), format, arguments);
    va_end(arguments);
    return PICI_E_CORRUPT;
}

/* Print words in errors: printf formats and arguments. */
#define WORD "\"%.*s\""
#define SHOW(word) (int)((word).size < SHOWN ? (word).size : SHOWN), (word).text
#define FAIL(r, ...) fail_at(r, (r)->line, __VA_ARGS__)

static enum pici_status no_memory(struct reader *reader)
{
    snprintf(reader->why, TUNE_WHY, "no memory");
    return PICI_E_NOMEM;
}

/* ---- words */

static int is(const struct word *word, const char *text)
{
    return !word->quoted && word->size == strlen(text) && memcmp(word->text, text, word->size) == 0;
}

static int is_space(char character)
{
    return character == ' ' || character == '\t';
}

static int is_control(char character)
{
    return ((unsigned char)character < ' ' && character != '\t') || character == 0x7f;
}

/* Read one word at *position, which is no space, and move *position behind it. */
static enum pici_status read_word(struct reader *reader, const char **position, const char *end)
{
    struct word *word = &reader->word[reader->words++];
    const char *cursor = *position;
    *word = (struct word){.text = cursor, .quoted = *cursor == '"'};
    if (word->quoted) {
        for (word->text = ++cursor; cursor < end && *cursor != '"'; cursor++)
            ;
        if (cursor == end)
            return FAIL(reader, "a quoted string does not end");
        word->size = (size_t)(cursor++ - word->text);
        if (cursor < end && !is_space(*cursor) && *cursor != '#')
            return FAIL(reader, "no space behind a quoted string");
    } else {
        for (; cursor < end && !is_space(*cursor) && *cursor != '#'; cursor++)
            if (*cursor == '"' || (unsigned char)*cursor > 0x7e)
                return FAIL(reader, "a character in a word that may only be in a quoted string or a comment");
        word->size = (size_t)(cursor - word->text);
    }
    *position = cursor;
    return PICI_OK;
}

/* Cut the next line into words. */
static enum pici_status read_line(struct reader *reader)
{
    const char *cursor = reader->next, *end = memchr(cursor, '\n', (size_t)(reader->end - cursor));
    reader->line++;
    reader->words = 0;
    if (!end)
        return FAIL(reader, "the line does not end");
    reader->next = end + 1;
    for (const char *character = cursor; character < end; character++)
        if (is_control(*character))
            return FAIL(reader, "a control character, 0x%02x", (unsigned)(unsigned char)*character);
    while (cursor < end && *cursor != '#') {
        if (is_space(*cursor)) {
            cursor++;
            continue;
        }
        if (reader->words == WORDS_MOST)
            return FAIL(reader, "more than %d words", WORDS_MOST);
        enum pici_status status = read_word(reader, &cursor, end);
        if (status)
            return status;
    }
    return PICI_OK;
}

/* ---- values. Each reads word i, and `quantity` names it in errors. */

static enum pici_status missing(struct reader *reader, int i, const char *quantity)
{
    return i < reader->words ? PICI_OK : FAIL(reader, "the %s is missing", quantity);
}

static enum pici_status read_real(struct reader *reader, int i, const char *quantity, double least, double *value)
{
    enum pici_status status = missing(reader, i, quantity);
    const struct word *word = &reader->word[i];
    if (status)
        return status;
    if (word->size && !word->quoted && word->text[0] == '-')
        return FAIL(reader, "the %s is negative: " WORD, quantity, SHOW(*word));
    if (word->quoted || !pici_number_read(word->text, word->size, value))
        return FAIL(reader, "the %s is no number: " WORD, quantity, SHOW(*word));
    if (*value < least || *value > NUMBER_MOST)
        return FAIL(reader, "the %s is out of range: " WORD, quantity, SHOW(*word));
    return PICI_OK;
}

static enum pici_status read_density(struct reader *reader, int i, double *value)
{
    enum pici_status status = read_real(reader, i, "density", DENSITY_LEAST, value);
    if (status || *value <= 1)
        return status;
    return FAIL(reader, "the density is above 1: " WORD, SHOW(reader->word[i]));
}

/* Read the digits at *cursor as an integer. 0: there are none, or it is above `most`. */
static int read_digits(const char **cursor, const char *end, uint64_t most, uint64_t *value)
{
    const char *begin = *cursor;
    for (*value = 0; *cursor < end && **cursor >= '0' && **cursor <= '9'; ++*cursor) {
        const uint64_t digit = (uint64_t)(**cursor - '0');
        if (digit > most || *value > (most - digit) / 10)
            return 0;
        *value = *value * 10 + digit;
    }
    return *cursor > begin;
}

static enum pici_status read_count(struct reader *reader, int i, const char *quantity, uint64_t least, uint64_t most,
                                   uint64_t *value)
{
    enum pici_status status = missing(reader, i, quantity);
    if (status)
        return status;
    const struct word *word = &reader->word[i];
    const char *cursor = word->text, *end = word->text + word->size;
    if (word->quoted || !read_digits(&cursor, end, most, value) || cursor < end || *value < least)
        return FAIL(reader, "the %s is not a whole number from %llu to %llu: " WORD, quantity,
                    (unsigned long long)least, (unsigned long long)most, SHOW(*word));
    return PICI_OK;
}

static enum pici_status read_int(struct reader *reader, int i, const char *quantity, int least, int most, int *value)
{
    uint64_t number = 0;
    enum pici_status status = read_count(reader, i, quantity, (uint64_t)least, (uint64_t)most, &number);
    *value = (int)number;
    return status;
}

static enum pici_status read_text(struct reader *reader, int i, const char *quantity, char text[TUNE_TEXT])
{
    enum pici_status status = missing(reader, i, quantity);
    const struct word *word = &reader->word[i];
    if (status)
        return status;
    if (!word->size || word->size >= TUNE_TEXT)
        return FAIL(reader, "the %s is empty or has more than %d bytes", quantity, TUNE_TEXT - 1);
    memcpy(text, word->text, word->size);
    text[word->size] = '\0';
    return PICI_OK;
}

/* The index of word i among names, which end with NULL; < 0: it is none of them. */
static int find(const struct reader *reader, int i, const char *const *names)
{
    for (int index = 0; i < reader->words && names[index]; index++)
        if (is(&reader->word[i], names[index]))
            return index;
    return -1;
}

static enum pici_status unknown(struct reader *reader, int i, const char *quantity)
{
    enum pici_status status = missing(reader, i, quantity);
    return status ? status : FAIL(reader, "unknown %s " WORD, quantity, SHOW(reader->word[i]));
}

static enum pici_status end_of_line(struct reader *reader, int i)
{
    return i < reader->words ? FAIL(reader, "unexpected " WORD " at the end of the line", SHOW(reader->word[i]))
                             : PICI_OK;
}

/* Read pairs of a key and a value, from word i on. value_words[k] becomes the word of key k's value, 0 if the key is
 * missing. */
static enum pici_status read_pairs(struct reader *reader, int i, const char *const *keys, int *value_words)
{
    for (int k = 0; keys[k]; k++)
        value_words[k] = 0;
    for (; i < reader->words; i += 2) {
        const int k = find(reader, i, keys);
        if (k < 0)
            return unknown(reader, i, "word");
        if (value_words[k])
            return FAIL(reader, "%s occurs twice", keys[k]);
        if (i + 1 == reader->words)
            return FAIL(reader, "the value of %s is missing", keys[k]);
        value_words[k] = i + 1;
    }
    return PICI_OK;
}

static enum pici_status need(struct reader *reader, const char *const *keys, const int *value_words, int many)
{
    for (int k = 0; k < many; k++)
        if (!value_words[k])
            return FAIL(reader, "%s is missing", keys[k]);
    return PICI_OK;
}

static enum pici_status once(struct reader *reader, int *said, const char *quantity)
{
    return (*said)++ ? FAIL(reader, "there is a line for %s already", quantity) : PICI_OK;
}

/* ---- lines */

static int is_date(const struct word *word)
{
    static const char form[] = "0000-00-00T00:00:00Z";
    int good = word->size == sizeof form - 1 && !word->quoted;
    for (size_t i = 0; good && i < word->size; i++)
        good = form[i] == '0' ? word->text[i] >= '0' && word->text[i] <= '9' : word->text[i] == form[i];
    return good;
}

static enum pici_status read_made(struct reader *reader)
{
    static const char *const keys[] = {"pici", "transport", "library", "cpu", NULL};
    struct tune *tune = reader->tune;
    char *const target[] = {tune->pici, tune->transport, tune->library, tune->cpu};
    int value_words[5];
    enum pici_status status = once(reader, &reader->said_made, "made");
    if (!status)
        status = missing(reader, 1, "date");
    if (!status && !is_date(&reader->word[1]))
        status = FAIL(reader, "a date is like 2026-11-22T20:10:00Z, not " WORD, SHOW(reader->word[1]));
    if (!status)
        status = read_text(reader, 1, "date", tune->date);
    if (!status)
        status = read_pairs(reader, 2, keys, value_words);
    for (int k = 0; keys[k] && !status; k++)
        if (value_words[k])
            status = read_text(reader, value_words[k], keys[k], target[k]);
    return status;
}

/* Read the ranks of each node, separated by commas. */
static enum pici_status read_map(struct reader *reader, const struct word *word, struct tune_shape *shape)
{
    const char *cursor = word->text, *end = word->text + word->size;
    const int nodes = shape->nodes.nodes;
    int commas = 0, sum = 0;
    for (const char *comma = cursor; comma < end; comma++)
        commas += *comma == ',';
    if (word->quoted || commas + 1 != nodes)
        return FAIL(reader, "the map is not one number for each of %d nodes, with commas", nodes);
    int *begin = malloc(((size_t)nodes + 1) * sizeof *begin);
    if (!begin)
        return no_memory(reader);
    shape->nodes.begin = begin;
    begin[0] = 0;
    for (int i = 0; i < nodes; i++, cursor++) {
        uint64_t ranks;
        if (!read_digits(&cursor, end, (uint64_t)(shape->ranks - sum), &ranks) || !ranks ||
            (cursor < end ? *cursor != ',' : i + 1 < nodes))
            return FAIL(reader,
                        "the map's number %d is not a node's number of ranks, or they are more than %d together", i + 1,
                        shape->ranks);
        sum += (int)ranks;
        begin[i + 1] = sum;
    }
    return sum == shape->ranks ? PICI_OK : FAIL(reader, "the map has %d ranks, not %d", sum, shape->ranks);
}

static enum pici_status read_shape(struct reader *reader)
{
    static const char *const keys[] = {"ranks", "nodes", "map", "cores", NULL};
    struct tune *tune = reader->tune;
    int value_words[5];
    if (tune->shape_count == TUNE_SHAPES_MOST)
        return FAIL(reader, "more than %d shapes", TUNE_SHAPES_MOST);
    enum pici_status status = read_pairs(reader, 1, keys, value_words);
    if (!status)
        status = need(reader, keys, value_words, 4);
    if (status)
        return status;
    struct tune_shape *shape = &tune->shapes[tune->shape_count++];
    *shape = (struct tune_shape){.ranks = 0};
    if ((status = read_int(reader, value_words[0], keys[0], 1, RANKS_MOST, &shape->ranks)) ||
        (status = read_int(reader, value_words[1], keys[1], 1, shape->ranks, &shape->nodes.nodes)) ||
        (status = read_int(reader, value_words[3], keys[3], 0, CORES_MOST, &shape->cores)) ||
        (status = read_map(reader, &reader->word[value_words[2]], shape)))
        return status;
    for (const struct tune_shape *other = tune->shapes; other < shape; other++)
        if (other->ranks == shape->ranks && other->nodes.nodes == shape->nodes.nodes)
            return FAIL(reader, "there is a shape of %d ranks on %d nodes already", shape->ranks, shape->nodes.nodes);
    return PICI_OK;
}

static enum pici_status read_link(struct reader *reader)
{
    static const char *const names[] = {"inter", "intra", NULL}, *const keys[] = {"alpha", "beta", "node_beta", NULL};
    struct model_machine *machine = &reader->tune->machine;
    const int link = find(reader, 1, names);
    int value_words[4];
    if (link < 0)
        return unknown(reader, 1, "link");
    enum pici_status status = once(reader, &reader->said_link[link], names[link]);
    if (!status)
        status = read_pairs(reader, 2, keys, value_words);
    if (!status)
        status = need(reader, keys, value_words, 2);
    if (!status)
        status = read_real(reader, value_words[0], keys[0], 0, &machine->link[link].alpha);
    if (!status)
        status = read_real(reader, value_words[1], keys[1], 0, &machine->link[link].beta);
    if (!status && value_words[2] && link != POLICY_INTER)
        status = FAIL(reader, "node_beta is of the link inter");
    if (!status && value_words[2])
        status = read_real(reader, value_words[2], keys[2], 0, &machine->node_beta);
    return status;
}

static enum pici_status read_agree(struct reader *reader)
{
    static const char *const keys[] = {"ranks", NULL};
    struct model_machine *machine = &reader->tune->machine;
    int value_words[2];
    enum pici_status status = once(reader, &reader->said_agree, "agree");
    if (!status)
        status = read_real(reader, 1, "time", 0, &machine->agree);
    if (!status)
        status = read_pairs(reader, 2, keys, value_words);
    if (!status)
        status = need(reader, keys, value_words, 1);
    return status ? status : read_int(reader, value_words[0], keys[0], 2, RANKS_MOST, &machine->agree_ranks);
}

/* Read the additional time of a tile over an empty one. It may be negative, but no tile takes less than no time. */
static enum pici_status read_more(struct reader *reader, int i, double empty, double *value)
{
    static const char quantity[] = "time at a density";
    struct word *word = &reader->word[i];
    enum pici_status status = missing(reader, i, quantity);
    const int less = !status && !word->quoted && word->size > 1 && word->text[0] == '-';
    if (less) {
        word->text++;
        word->size--;
    }
    if (!status)
        status = read_real(reader, i, quantity, 0, value);
    if (!status && less && *value > 0)
        *value = -*value;
    return status || *value >= -empty ? status : FAIL(reader, "a tile takes less than no time: -" WORD, SHOW(*word));
}

static const char *const work_names[] = {"count", "encode", "add", "decode", NULL};

static enum pici_status read_codec(struct reader *reader)
{
    static const char *const dtypes[] = {"f32", NULL};
    const char *const formats[] = {pici_format_name(PICI_DENSE),  pici_format_name(PICI_BITMAP),
                                   pici_format_name(PICI_COO),    pici_format_name(PICI_HYBRID),
                                   pici_format_name(PICI_PACKED), NULL};
    const int work = find(reader, 3, work_names);
    int format = find(reader, 2, formats);
    if (format < 0 && reader->words > 2 && is(&reader->word[2], FMT_BITMAP_ALIAS))
        format = PICI_BITMAP;
    if (find(reader, 1, dtypes) < 0)
        return FAIL(reader, "the dtype of a codec line is f32");
    if (format < 0)
        return unknown(reader, 2, "format");
    if (work < 0)
        return unknown(reader, 3, "work");
    if (work == MODEL_COUNT && format != PICI_DENSE)
        return FAIL(reader, "count is a line of the format dense: it is the same for all");
    enum pici_status status = once(reader, &reader->said_codec[format][work], "this format and work");
    struct model_codec *codec = &reader->tune->machine.codec[format][work];
    reader->tune->machine.packed_measured |= format == PICI_PACKED;
    if (!status)
        status = read_real(reader, 4, "time of an empty tile", 0, &codec->empty);
    for (int i = 0; i < MODEL_POINTS && !status; i++)
        status = read_more(reader, 5 + i, codec->empty, &codec->more[i]);
    return status ? status : end_of_line(reader, 5 + MODEL_POINTS);
}

/* Read word i: an algorithm, "native", or "native:" and the native collective's algorithm. */
static enum pici_status read_candidate(struct reader *reader, int i, struct tune_point *point)
{
    static const char native[] = "native", old_native[] = "vendor"; /* until version 0.3 */
    static const char *const how[] = {"sparse", "dense", NULL};
    const size_t native_size = sizeof native - 1;
    enum pici_status status = missing(reader, i, "algorithm");
    const struct word *word = &reader->word[i];
    if (status)
        return status;
    if (!word->quoted && word->size >= native_size &&
        (memcmp(word->text, native, native_size) == 0 || memcmp(word->text, old_native, native_size) == 0) &&
        (word->size == native_size || word->text[native_size] == ':')) {
        point->candidate.native = MODEL_NATIVE;
        if (word->size > native_size && (word->size == native_size + 1 || word->size - native_size > TUNE_TEXT))
            return FAIL(reader, "the native collective's algorithm is empty or has more than %d bytes", TUNE_TEXT - 1);
        if (word->size > native_size)
            memcpy(point->native, word->text + native_size + 1, word->size - native_size - 1);
    } else {
        const struct schedule *schedule = pici_schedules;
        while (schedule->name && !is(word, schedule->name))
            schedule++;
        if (!schedule->name)
            return unknown(reader, i, "algorithm");
        if (!(schedule->collectives >> point->collective & 1))
            return FAIL(reader, "%s cannot do this collective", schedule->name);
        point->candidate.algorithm = schedule->id;
    }
    point->candidate.dense = find(reader, i + 1, how);
    if (point->candidate.dense < 0)
        return i + 1 < reader->words ? FAIL(reader, WORD " is neither sparse nor dense", SHOW(reader->word[i + 1]))
                                     : FAIL(reader, "the word sparse or dense is missing");
    return point->candidate.native && !point->candidate.dense
               ? FAIL(reader, "the native collective's messages are dense")
               : PICI_OK;
}

static enum pici_status read_dtype(struct reader *reader, int i, enum pici_dtype *dtype)
{
    for (int number = 0; number < 256 && i < reader->words; number++) {
        const char *name = pici_dtype_width((enum pici_dtype)number) ? pici_dtype_name((enum pici_dtype)number) : NULL;
        if (name && is(&reader->word[i], name)) {
            *dtype = (enum pici_dtype)number;
            return PICI_OK;
        }
    }
    return unknown(reader, i, "dtype");
}

static enum pici_status read_point(struct reader *reader)
{
    static const char *const keys[] = {"ranks", "nodes", NULL};
    struct tune *tune = reader->tune;
    if (tune->point_count == TUNE_POINTS_MOST)
        return FAIL(reader, "more than %d points", TUNE_POINTS_MOST);
    struct measured_at *measured = &reader->measured[tune->point_count];
    struct tune_point *point = &tune->points[tune->point_count++];
    int value_words[3];
    *point = (struct tune_point){.line = reader->line};
    *measured = (struct measured_at){0, 0};
    point->collective = PICI_ALL_GATHER;
    while (reader->words > 1 && pici_model_name(point->collective) &&
           !is(&reader->word[1], pici_model_name(point->collective)))
        point->collective++;
    if (reader->words < 2 || !pici_model_name(point->collective))
        return unknown(reader, 1, "collective");
    enum pici_status status = read_dtype(reader, 2, &point->dtype);
    if (!status)
        status = read_count(reader, 3, "number of bytes", 1, BYTES_MOST, &point->bytes);
    if (!status && point->bytes % pici_dtype_width(point->dtype))
        status = FAIL(reader, "%llu bytes are not a whole number of elements", (unsigned long long)point->bytes);
    if (!status)
        status = read_density(reader, 4, &point->density);
    if (!status)
        status = read_candidate(reader, 5, point);
    if (!status)
        status = read_real(reader, 7, "time", 1e-12, &point->seconds);
    if (!status)
        status = read_real(reader, 8, "spread of the time", 0, &point->spread);
    if (!status)
        status = read_pairs(reader, 9, keys, value_words);
    if (!status && value_words[0] + value_words[1])
        status = need(reader, keys, value_words, 2);
    if (!status && value_words[0])
        status = read_int(reader, value_words[0], keys[0], 1, RANKS_MOST, &measured->ranks);
    if (!status && value_words[0])
        status = read_int(reader, value_words[1], keys[1], 1, measured->ranks, &measured->nodes);
    return status;
}

static enum pici_status read_assume(struct reader *reader)
{
    static const char *const keys[] = {"density", "correlation", NULL};
    struct tune *tune = reader->tune;
    int value_words[3] = {0};
    enum pici_status status = once(reader, &reader->said_assume, "assume");
    if (!status)
        status = read_pairs(reader, 1, keys, value_words);
    if (!status && !value_words[0] && !value_words[1])
        status = FAIL(reader, "nothing is assumed");
    if (!status && value_words[0])
        status = read_density(reader, value_words[0], &tune->density);
    if (!status && value_words[1])
        status = read_real(reader, value_words[1], keys[1], 0, &tune->correlation);
    return status || tune->correlation <= 1 ? status : FAIL(reader, "the correlation is above 1");
}

static enum pici_status read_threshold(struct reader *reader)
{
    struct tune_thresholds *thresholds = &reader->tune->thresholds;
    int value_words[TUNE_THRESHOLDS];
    enum pici_status status = once(reader, &reader->said_threshold, "threshold");
    if (!status)
        status = read_pairs(reader, 1, pici_tune_threshold_names, value_words);
    if (!status && reader->words < 2)
        status = FAIL(reader, "there is no threshold");
    for (int i = 0; i < TUNE_THRESHOLDS && !status; i++) {
        double sparsity = 0;
        if (!value_words[i])
            continue;
        status = read_real(reader, value_words[i], pici_tune_threshold_names[i], 0, &sparsity);
        if (!status && sparsity > 1)
            status = FAIL(reader, "the threshold %s is above 1", pici_tune_threshold_names[i]);
        thresholds->at[i] = (float)sparsity;
        thresholds->said |= 1u << i;
    }
    return status;
}

/* Read the last line. from: where it begins. */
static enum pici_status read_end(struct reader *reader, const char *from)
{
    uint64_t said = 0;
    const struct word *word = &reader->word[1];
    int digits = reader->words == 2 && !word->quoted && word->size == 16;
    for (size_t i = 0; digits && i < word->size; i++) {
        const char digit = word->text[i];
        digits = (digit >= '0' && digit <= '9') || (digit >= 'a' && digit <= 'f');
        said = said << 4 | (uint64_t)(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
    if (!digits)
        return FAIL(reader, "end takes a hash of 16 hexadecimal digits in lower case");
    reader->tune->hash = pici_xxh64(reader->begin, (size_t)(from - reader->begin), 0);
    if (said != reader->tune->hash)
        return FAIL(reader, "the file was changed: its hash is %016llx, not %016llx",
                    (unsigned long long)reader->tune->hash, (unsigned long long)said);
    reader->ended = 1;
    return reader->next == reader->end ? PICI_OK : FAIL(reader, "something follows the line end");
}

static enum pici_status read_first(struct reader *reader)
{
    uint64_t version = 0;
    enum pici_status status = read_line(reader);
    if (status || reader->words != 2 || !is(&reader->word[0], "pici-tune"))
        return FAIL(reader, "the first line of a tune file is \"pici-tune %d\"", TUNE_VERSION);
    status = read_count(reader, 1, "version", 0, INT32_MAX, &version);
    if (!status && version != TUNE_VERSION) {
        (void)FAIL(reader, "the file has version %d, this library reads version %d", (int)version, TUNE_VERSION);
        return PICI_E_VERSION;
    }
    return status;
}

static enum pici_status read_lines(struct reader *reader)
{
    static const struct {
        const char *word;
        enum pici_status (*read)(struct reader *);
    } kinds[] = {{"made", read_made},   {"shape", read_shape}, {"link", read_link},     {"agree", read_agree},
                 {"codec", read_codec}, {"point", read_point}, {"assume", read_assume}, {"threshold", read_threshold}};
    enum { KINDS = sizeof kinds / sizeof *kinds };
    enum pici_status status = read_first(reader);
    while (!status && reader->next < reader->end) {
        const char *from = reader->next;
        status = read_line(reader);
        const struct word *first_word = &reader->word[0];
        if (status || !reader->words ||
            (!first_word->quoted && first_word->size > 1 && memcmp(first_word->text, "x-", 2) == 0))
            continue;
        if (is(first_word, "end")) {
            status = read_end(reader, from);
            break;
        }
        int k = 0;
        while (k < KINDS && !is(first_word, kinds[k].word))
            k++;
        status = k < KINDS ? kinds[k].read(reader) : unknown(reader, 0, "word");
    }
    if (!status && !reader->ended)
        status = fail_at(reader, reader->line + 1, "the line end is missing: the file is incomplete");
    return status;
}

/* ---- relations between lines */

static enum pici_status find_shapes(struct reader *reader)
{
    struct tune *tune = reader->tune;
    if (!tune->shape_count)
        return fail_at(reader, 0, "there is no shape");
    for (size_t i = 0; i < tune->point_count; i++) {
        struct tune_point *point = &tune->points[i];
        const struct measured_at *measured = &reader->measured[i];
        if (!measured->ranks && tune->shape_count > 1)
            return fail_at(reader, point->line,
                           "the file has several shapes, and the point does not say ranks and nodes");
        for (point->shape = 0; measured->ranks && point->shape < tune->shape_count; point->shape++)
            if (tune->shapes[point->shape].ranks == measured->ranks &&
                tune->shapes[point->shape].nodes.nodes == measured->nodes)
                break;
        if (point->shape == tune->shape_count)
            return fail_at(reader, point->line, "there is no shape of %d ranks on %d nodes", measured->ranks,
                           measured->nodes);
    }
    return PICI_OK;
}

static enum pici_status find_duplicates(struct reader *reader)
{
    const struct tune *tune = reader->tune;
    for (size_t i = 1; i < tune->point_count; i++) {
        const struct tune_point *point_before = &tune->points[i - 1], *point = &tune->points[i];
        if (pici_tune_order(point_before, point) == 0) {
            const int in_order = point_before->line < point->line;
            const int second = in_order ? point->line : point_before->line;
            return fail_at(reader, second, "the same point as in line %d", point->line + point_before->line - second);
        }
    }
    return PICI_OK;
}

/* The most lines of a kind that there can be. So no number in the file determines how much is allocated. */
static size_t count_lines(const char *cursor, const char *end, const char *word, size_t most)
{
    size_t lines = 0;
    const size_t size = strlen(word);
    for (; cursor < end && lines < most; cursor++) {
        while (cursor < end && is_space(*cursor))
            cursor++;
        lines += (size_t)(end - cursor) > size && memcmp(cursor, word, size) == 0;
        cursor = memchr(cursor, '\n', (size_t)(end - cursor));
        if (!cursor)
            break;
    }
    return lines;
}

/* Without lines for packed blocks, assume the built-in constants' additional time over hybrid blocks: files of 0.2 have
 * no such lines. */
static void assume_packed(struct reader *reader)
{
    const struct model_codec(*usual)[MODEL_WORKS] = pici_model_machine.codec;
    for (int work = MODEL_ENCODE; work < MODEL_WORKS; work++) {
        const struct model_codec *hybrid = &reader->tune->machine.codec[PICI_HYBRID][work];
        struct model_codec *packed = &reader->tune->machine.codec[PICI_PACKED][work];
        if (reader->said_codec[PICI_PACKED][work])
            continue;
        packed->empty = hybrid->empty;
        for (int i = 0; i < MODEL_POINTS; i++) {
            packed->more[i] = hybrid->more[i] + usual[PICI_PACKED][work].more[i] - usual[PICI_HYBRID][work].more[i];
            packed->more[i] = packed->more[i] < -packed->empty ? -packed->empty : packed->more[i];
        }
    }
}

enum pici_status pici_tune_read(struct tune *tune, const void *bytes, size_t size, char *reason)
{
    struct reader reader = {.tune = tune, .why = reason, .begin = bytes, .next = bytes};
    reason[0] = '\0';
    *tune = (struct tune){.machine = pici_model_machine, .density = TUNE_DENSITY, .correlation = 1};
    if (size > TUNE_BYTES_MOST)
        return fail_at(&reader, 0, "the file has more than %d bytes", TUNE_BYTES_MOST);
    if (!size)
        return fail_at(&reader, 0, "the file is empty");
    reader.end = reader.begin + size;
    const size_t points = count_lines(reader.begin, reader.end, "point", TUNE_POINTS_MOST),
                 shapes = count_lines(reader.begin, reader.end, "shape", TUNE_SHAPES_MOST);
    tune->points = calloc(points + 1, sizeof *tune->points);
    tune->shapes = calloc(shapes + 1, sizeof *tune->shapes);
    reader.measured = calloc(points + 1, sizeof *reader.measured);
    enum pici_status status =
        tune->points && tune->shapes && reader.measured ? read_lines(&reader) : no_memory(&reader);
    if (!status)
        status = find_shapes(&reader);
    if (!status) {
        struct tune_shape largest;
        (void)pici_tune_largest((const struct tune *const[]){tune}, 1, &largest);
        tune->machine.cores = largest.cores;
        assume_packed(&reader);
        pici_tune_sort(tune);
        status = find_duplicates(&reader);
    }
    free(reader.measured);
    if (status)
        pici_tune_free(tune);
    return status;
}

enum pici_status pici_tune_open(struct tune *tune, const char *path, char *reason)
{
    FILE *file = fopen(path, "rb");
    uint8_t *bytes = file ? malloc(TUNE_BYTES_MOST + 1) : NULL; /* one more byte shows that a file is too long */
    const size_t size = bytes ? fread(bytes, 1, TUNE_BYTES_MOST + 1, file) : 0;
    const int failed = !file || (bytes && ferror(file)), error = errno;
    enum pici_status s = failed ? PICI_E_IO : PICI_E_NOMEM;
    *tune = (struct tune){.shapes = NULL};
    snprintf(reason, TUNE_WHY, "%s", failed ? strerror(error) : "no memory");
    if (file)
        fclose(file);
    if (!failed && bytes)
        s = pici_tune_read(tune, bytes, size, reason);
    free(bytes);
    return s;
}
