/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of folders (formats/folder.md): the input unchanged, and with the last line that its hash requires; and the
 * input as a reference. Accepted lists must print as the same bytes. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/parse/folder_list.h"
#include "tools/parse/reference.h"
#include "xxh64.h"

static void parse(const char *text, size_t len)
{
    struct folder_list l;
    struct parse_error err = {0};
    size_t again;
    const bool good = folder_list_parse(&l, text, len, &err);
    require(good == !err.what[0]);
    if (!good)
        return;
    char *const p = folder_list_text(&l, &again);
    require(p && again == len && memcmp(p, text, len) == 0);
    free(p);
    for (size_t i = 0; i < l.files; i++) {
        const char *const name = l.file[i].name, *const end = strrchr(name, '/');
        require(name[0] != '/' && !strstr(name, "//") && !strstr(name, "/../") && !strstr(name, "/./"));
        require(strncmp(name, "../", 3) != 0 && strcmp(end ? end + 1 : name, "..") != 0 &&
                name[strlen(name) - 1] != '/');
        require(!i || strcmp(l.file[i - 1].name, l.file[i].name) < 0);
        require(folder_list_find(&l, l.file[i].name) == &l.file[i]);
        require(l.delta || l.file[i].kind != FOLDER_SAME);
        require(!l.delta || !l.references);
    }
    folder_list_free(&l);
}

static void refer(const uint8_t *data, size_t len)
{
    struct reference r;
    struct parse_error err = {0};
    size_t again;
    struct pici_tensor_info stored = PICI_TENSOR_INFO_INIT;
    stored.dtype = PICI_U8;
    stored.rank = 1;
    const bool good = reference_parse(&r, data, len, &stored, &err);
    require(good == !err.what[0]);
    stored.count = 1;
    require(!reference_parse(&(struct reference){0}, data, len, &stored, &(struct parse_error){0}));
    stored.count = 0;
    stored.rank = 2;
    require(!reference_parse(&(struct reference){0}, data, len, &stored, &(struct parse_error){0}));
    if (!good)
        return;
    require(r.count <= UINT64_MAX / 2 / pici_dtype_width(r.dtype));
    char *const value = reference_value(&r, &again);
    require(value && again == len && memcmp(value, data, len) == 0);
    free(value);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    refer(data, len);
    char *const text = malloc(len + 32);
    require(text != NULL);
    if (len)
        memcpy(text, data, len);
    parse(text, len);
    const int end = snprintf(text + len, 32, "end %016" PRIx64 "\n", pici_xxh64(text, len, 0));
    parse(text, len + (size_t)end);
    free(text);
    return 0;
}
