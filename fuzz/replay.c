/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A main() for a fuzzer's entry, where there is no libFuzzer: feeds it the files named, and those in the directories
 * named, in order. Exit status 1 if a name cannot be read. */
#define _DEFAULT_SOURCE
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static unsigned long replayed;

static int fail(const char *path)
{
    perror(path);
    return 1;
}

static int replay_file(const char *path, size_t len)
{
    uint8_t *data = malloc(len ? len : 1); /* its exact size, so that a sanitizer knows the end */
    FILE *f = fopen(path, "rb");
    if (!data || !f || fread(data, 1, len, f) != len)
        return fail(path);
    fclose(f);
    LLVMFuzzerTestOneInput(data, len);
    free(data);
    replayed++;
    return 0;
}

static int replay(const char *path)
{
    struct stat st;
    if (stat(path, &st))
        return fail(path);
    if (!S_ISDIR(st.st_mode))
        return replay_file(path, (size_t)st.st_size);

    struct dirent **names;
    int n = scandir(path, &names, NULL, alphasort), bad = n < 0 ? fail(path) : 0;
    for (int i = 0; i < n; i++) {
        char inner[4096];
        if (names[i]->d_name[0] != '.') {
            if (snprintf(inner, sizeof inner, "%s/%s", path, names[i]->d_name) < (int)sizeof inner)
                bad |= replay(inner);
            else
                bad = 1;
        }
        free(names[i]);
    }
    if (n >= 0)
        free(names);
    return bad;
}

int main(int argc, char **argv)
{
    int bad = 0;
    for (int i = 1; i < argc; i++)
        bad |= replay(argv[i]);
    printf("%lu inputs replayed\n", replayed);
    return bad;
}
