/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "delta/manifest.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "xxh64.h"

static const char head[] = "pici-log 1\n", head_packed[] = "pici-log 2\n"; /* of the same length */

static int print_file(char *target, size_t capacity, const struct manifest_file *file)
{
    return snprintf(target, capacity, " %" PRIu64 " %016" PRIx64, file->bytes, file->hash);
}

/* The line of a state or a delta: a word, a number, one or two files, and an extension or nothing. */
static int print_line(char line[256], const char *word, uint64_t number, const struct manifest_file *file,
                      const struct manifest_file *other, const char *extension)
{
    int printed = snprintf(line, 256, "%s %" PRIu64, word, number);
    printed += print_file(line + printed, 256 - (size_t)printed, file);
    if (other)
        printed += print_file(line + printed, 256 - (size_t)printed, other);
    return printed + snprintf(line + printed, 256 - (size_t)printed, "%s%s\n", *extension ? " " : "", extension);
}

char *pici_manifest_text(const struct manifest *manifest, size_t *size)
{
    char *text = NULL, line[256];
    FILE *stream = open_memstream(&text, size);
    if (!stream)
        return NULL;
    fputs(manifest->packed ? head_packed : head, stream);
    print_line(line, "first", manifest->first, &manifest->start, NULL, "");
    fputs(line, stream);
    print_line(line, "base", manifest->base, &manifest->whole, NULL, manifest->extension);
    fputs(line, stream);
    if (manifest->packed) {
        print_line(line, "packed", manifest->base, &manifest->stored, NULL, "");
        fputs(line, stream);
    }
    for (uint64_t i = 0; i < manifest->deltas; i++) {
        print_line(line, "delta", manifest->first + 1 + i, &manifest->delta[i].delta, &manifest->delta[i].state, "");
        fputs(line, stream);
    }
    fflush(stream);
    fprintf(stream, "end %016" PRIx64 "\n", pici_xxh64(text, *size, 0));
    if (fclose(stream) == 0)
        return text;
    free(text);
    return NULL;
}

bool pici_manifest_extension(const char *e)
{
    return strlen(e) < sizeof((struct manifest *)0)->extension && (!*e || *e == '.') && !strpbrk(e, "/ \t\n\v\f\r");
}

/* Reads the required next line. Scans it, prints the result, and compares both, so that a manifest has only one valid
 * form. */
static bool take_line(const char *text, size_t size, size_t *offset, const char *word, uint64_t *number,
                      struct manifest_file *file, struct manifest_file *other, char extension[16])
{
    char line[256], again[256], found[16] = "";
    const char *const end = memchr(text + *offset, '\n', size - *offset);
    const size_t count = end ? (size_t)(end - text) - *offset + 1 : 0;
    char read[8];
    if (!count || count >= sizeof line)
        return false;
    memcpy(line, text + *offset, count);
    line[count] = 0;
    if (strlen(line) != count)
        return false;
    const int got = other ? sscanf(line, "%7s %" SCNu64 " %" SCNu64 " %" SCNx64 " %" SCNu64 " %" SCNx64, read, number,
                                   &file->bytes, &file->hash, &other->bytes, &other->hash)
                          : sscanf(line, "%7s %" SCNu64 " %" SCNu64 " %" SCNx64 " %15s", read, number, &file->bytes,
                                   &file->hash, found);
    if (got < (other ? 6 : 4) || strcmp(read, word) != 0 || (*found && (!extension || !pici_manifest_extension(found))))
        return false;
    print_line(again, word, *number, file, other, found);
    if (strcmp(again, line) != 0)
        return false;
    if (extension)
        memcpy(extension, found, sizeof found);
    *offset += count;
    return true;
}

bool pici_manifest_parse(struct manifest *manifest, const char *text, size_t size, struct parse_error *error)
{
    enum { END = 4 + 16 + 1 };
    char end[32];
    size_t offset = sizeof head - 1;
    *manifest = (struct manifest){0};
    manifest->packed = size >= offset && memcmp(text, head_packed, offset) == 0;
    if (size < offset + END || (!manifest->packed && memcmp(text, head, offset) != 0))
        return pici_parse_fail(error, 0, "not a manifest of a log of deltas, or truncated");
    snprintf(end, sizeof end, "end %016" PRIx64 "\n", pici_xxh64(text, size - END, 0));
    if (memcmp(text + size - END, end, END) != 0)
        return pici_parse_fail(error, size - END, "the manifest is incomplete or damaged");
    const size_t most = size - END;
    uint64_t stored_base = 0;
    if (!take_line(text, most, &offset, "first", &manifest->first, &manifest->start, NULL, NULL) ||
        !take_line(text, most, &offset, "base", &manifest->base, &manifest->whole, NULL, manifest->extension) ||
        (manifest->packed && (!take_line(text, most, &offset, "packed", &stored_base, &manifest->stored, NULL, NULL) ||
                              stored_base != manifest->base)))
        return pici_parse_fail(error, offset, "a malformed line of a state");
    size_t capacity = 1;
    for (size_t i = offset; i < most; i++)
        capacity += text[i] == '\n';
    manifest->delta = calloc(capacity, sizeof *manifest->delta);
    if (!manifest->delta)
        return pici_parse_no_memory(error, 0, "the manifest");
    for (uint64_t number; offset < most; manifest->deltas++) {
        struct manifest_delta *const delta = &manifest->delta[manifest->deltas];
        if (!take_line(text, most, &offset, "delta", &number, &delta->delta, &delta->state, NULL) ||
            number != manifest->first + 1 + manifest->deltas) {
            pici_manifest_free(manifest);
            return pici_parse_fail(error, offset, "a malformed line of a delta, or out of order");
        }
    }
    if (manifest->first > UINT64_MAX - manifest->deltas || manifest->base < manifest->first ||
        manifest->base > pici_manifest_newest(manifest) ||
        memcmp(&manifest->whole, pici_manifest_state(manifest, manifest->base), sizeof manifest->whole) != 0) {
        pici_manifest_free(manifest);
        return pici_parse_fail(error, 0, "the base is not one of the states");
    }
    return true;
}

void pici_manifest_base_name(char name[MANIFEST_NAME_MOST], const struct manifest *manifest)
{
    snprintf(name, MANIFEST_NAME_MOST, "base-%09" PRIu64 "%s%s", manifest->base, manifest->extension,
             manifest->packed ? ".pici" : "");
}

void pici_manifest_delta_name(char name[MANIFEST_NAME_MOST], uint64_t state)
{
    snprintf(name, MANIFEST_NAME_MOST, "delta-%09" PRIu64 ".pici", state);
}

enum { HASH_DIGITS = 16 };

void pici_manifest_store_name(char name[MANIFEST_NAME_MOST], const char *plain, const struct manifest_file *file)
{
    const int stem = (int)strcspn(plain, ".");
    snprintf(name, MANIFEST_NAME_MOST, "%.*s-%016" PRIx64 "%s", stem, plain, file->hash, plain + stem);
}

bool pici_manifest_plain_name(char plain[MANIFEST_NAME_MOST], uint64_t *hash, const char *name)
{
    char again[MANIFEST_NAME_MOST];
    struct manifest_file file = {0};
    const size_t stem = strcspn(name, ".");
    if (stem > HASH_DIGITS + 1 && strlen(name) < MANIFEST_NAME_MOST) {
        const size_t dash = stem - HASH_DIGITS - 1;
        snprintf(plain, MANIFEST_NAME_MOST, "%.*s%s", (int)dash, name, name + stem);
        file.hash = *hash = strtoull(name + dash + 1, NULL, 16);
        pici_manifest_store_name(again, plain, &file);
        if (strcmp(again, name) == 0)
            return true;
    }
    snprintf(plain, MANIFEST_NAME_MOST, "%.*s", MANIFEST_NAME_MOST - 1, name);
    return false;
}

uint64_t pici_manifest_newest(const struct manifest *manifest)
{
    return manifest->first + manifest->deltas;
}

const struct manifest_file *pici_manifest_state(const struct manifest *manifest, uint64_t state)
{
    return state == manifest->first ? &manifest->start : &manifest->delta[state - manifest->first - 1].state;
}

void pici_manifest_free(struct manifest *manifest)
{
    free(manifest->delta);
    *manifest = (struct manifest){0};
}
