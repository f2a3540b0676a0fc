/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of folders (formats/folder.md): the input as it is, and with the end that its hash asks for. What is accepted
 * must be printed as it was. */
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "fuzz/fuzz.h"
#include "tools/parse/folder_list.h"
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
    }
    folder_list_free(&l);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
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
