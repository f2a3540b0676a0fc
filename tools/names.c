/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pici/file.h"
#include "parse/safetensors.h"

enum { HEAD_MOST = 16 << 20 /* bytes; reading a longer header would delay the shell */ };

/* Whether a shell can show and insert the name as it is, without escapes. */
static bool can_be_shown(const char *name, size_t size)
{
    const uint8_t *position = (const uint8_t *)name, *end = position + size;
    uint32_t character;
    for (size_t step; position < end; position += step) {
        step = pici_parse_char(position, end, &character);
        if (step == 0 || pici_parse_hidden(character))
            return false;
    }
    return size != 0;
}

static bool in_pici(const char *path, const char *begun,
                    void (*offer)(const char *, const char *, const char *, const char *))
{
    struct pici_reader *reader;
    int more = 1;
    bool opened = pici_reader_open_path(&reader, path, NULL) == PICI_OK;
    while (opened && more) {
        struct pici_tensor_info tensor = PICI_TENSOR_INFO_INIT;
        if (pici_reader_next(reader, &tensor, &more) != PICI_OK)
            break;
        if (more && can_be_shown(tensor.name, tensor.name_len))
            offer(begun, "", tensor.name, pici_dtype_name(tensor.dtype));
    }
    pici_reader_close(reader);
    return opened;
}

static void in_safetensors(const char *path, const char *begun,
                           void (*offer)(const char *, const char *, const char *, const char *))
{
    uint8_t first[SAFETENSORS_PREFIX_BYTES], *head = NULL;
    struct safetensors safetensors;
    struct parse_error error;
    uint64_t need;
    FILE *stream = fopen(path, "rb");
    bool parsed = stream && fread(first, 1, sizeof first, stream) == sizeof first &&
                  pici_safetensors_header_bytes(&need, first, sizeof first, &error) && need <= HEAD_MOST &&
                  (head = malloc((size_t)need)) && fseek(stream, 0, SEEK_SET) == 0 &&
                  fread(head, 1, (size_t)need, stream) == need &&
                  pici_safetensors_parse(&safetensors, head, (size_t)need, UINT64_MAX, &error);
    for (size_t i = 0; parsed && i < safetensors.count; i++)
        if (can_be_shown(safetensors.tensors[i].name, safetensors.tensors[i].name_bytes))
            offer(begun, "", safetensors.tensors[i].name, safetensors.tensors[i].source_dtype);
    if (parsed)
        pici_safetensors_free(&safetensors);
    free(head);
    if (stream)
        fclose(stream);
}

void names_each(const char *path, const char *begun,
                void (*offer)(const char *begun, const char *dashes, const char *word, const char *meaning))
{
    struct stat file_info;
    if (stat(path, &file_info) == 0 && S_ISREG(file_info.st_mode) &&
        !in_pici(path, begun, offer)) /* opening a FIFO would block */
        in_safetensors(path, begun, offer);
}
