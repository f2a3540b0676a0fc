/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "names.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "pici/file.h"
#include "parse/safetensors.h"

enum { HEAD_MOST = 16 << 20 /* bytes; a longer header would keep the shell waiting */ };

/* Whether a shell can show and insert the name as it is; an escaped name would be another name. */
static bool can_be_shown(const char *name, size_t size)
{
    const uint8_t *p = (const uint8_t *)name, *end = p + size;
    uint32_t c;
    for (size_t k; p < end; p += k) {
        k = pici_parse_char(p, end, &c);
        if (k == 0 || pici_parse_hidden(c))
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
    struct safetensors s;
    struct parse_error error;
    uint64_t need;
    FILE *f = fopen(path, "rb");
    bool ok = f && fread(first, 1, sizeof first, f) == sizeof first &&
              pici_safetensors_header_bytes(&need, first, sizeof first, &error) && need <= HEAD_MOST &&
              (head = malloc((size_t)need)) && fseek(f, 0, SEEK_SET) == 0 && fread(head, 1, (size_t)need, f) == need &&
              pici_safetensors_parse(&s, head, (size_t)need, UINT64_MAX, &error);
    for (size_t i = 0; ok && i < s.count; i++)
        if (can_be_shown(s.tensors[i].name, s.tensors[i].name_bytes))
            offer(begun, "", s.tensors[i].name, s.tensors[i].source_dtype);
    if (ok)
        pici_safetensors_free(&s);
    free(head);
    if (f)
        fclose(f);
}

void names_each(const char *path, const char *begun,
                void (*offer)(const char *begun, const char *dashes, const char *word, const char *meaning))
{
    struct stat info;
    if (stat(path, &info) == 0 && S_ISREG(info.st_mode) &&
        !in_pici(path, begun, offer)) /* opening a FIFO would block */
        in_safetensors(path, begun, offer);
}
