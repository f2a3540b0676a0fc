/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/sniff.h"

#include <stdbool.h>
#include <string.h>

#include "parse/parse.h"

#define UNPACK "unpack it first"
#define EXPORT "export its arrays as .npy or raw elements"

/* Bytes of a file that tell what it is. The first row that matches counts. */
static const struct {
    unsigned at, len;
    const char *bytes;
    struct sniff is;
} magics[] = {
    {0, 8, "\x89PICI\r\n\x1a", {SNIFF_PICI, "a .pici file", NULL, NULL}},
    {0, 4, "PICI", {SNIFF_BLOCK, "a bare block", NULL, NULL}},
    {0, 6, "\x93NUMPY", {SNIFF_OTHER, "a .npy file", "npy", NULL}},
    {0,
     24,
     "version https://git-lfs.",
     {SNIFF_STAND_IN, "a Git LFS pointer, not the file itself", NULL, "git lfs pull fetches the file"}},
    {0, 8, "\x89HDF\r\n\x1a\n", {SNIFF_OTHER, "an HDF5 file", NULL, EXPORT}},
    {0, 4, "GGUF", {SNIFF_OTHER, "a GGUF file", NULL, EXPORT}},
    {0, 3, "CDF", {SNIFF_OTHER, "a NetCDF file", NULL, EXPORT}},
    {0, 4, "PAR1", {SNIFF_OTHER, "a Parquet file", NULL, EXPORT}},
    {0, 6, "ARROW1", {SNIFF_OTHER, "an Arrow file", NULL, EXPORT}},
    {0, 6, "MATLAB", {SNIFF_OTHER, "a MATLAB file", NULL, EXPORT}},
    /* a pickled integer of torch.save, which it begins with */
    {2,
     12,
     "\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8P\x19",
     {SNIFF_OTHER, "a file of torch.save before version 1.6", NULL, "save it again with a newer torch"}},
    {0, 2, "\x1f\x8b", {SNIFF_OTHER, "gzip data", NULL, UNPACK}},
    {0, 4, "\x28\xb5\x2f\xfd", {SNIFF_OTHER, "zstd data", NULL, UNPACK}},
    {0,
     6,
     "\xfd"
     "7zXZ",
     {SNIFF_OTHER, "xz data", NULL, UNPACK}},
    {0, 3, "BZh", {SNIFF_OTHER, "bzip2 data", NULL, UNPACK}},
    {0, 4, "\x04\x22\x4d\x18", {SNIFF_OTHER, "lz4 data", NULL, UNPACK}},
    {257, 5, "ustar", {SNIFF_OTHER, "a tar archive", NULL, UNPACK}},
    {0, 8, "\x89PNG\r\n\x1a\n", {SNIFF_OTHER, "a PNG picture", NULL, NULL}},
    {0, 3, "\xff\xd8\xff", {SNIFF_OTHER, "a JPEG picture", NULL, NULL}},
    {0,
     4,
     "\x7f"
     "ELF",
     {SNIFF_OTHER, "an ELF program or library", NULL, NULL}},
    {0, 5, "%PDF-", {SNIFF_OTHER, "a PDF document", NULL, NULL}},
};

static unsigned le16(const uint8_t *p)
{
    return (unsigned)(p[0] | p[1] << 8);
}

/* Whether the size bytes at p have the text somewhere. */
static bool has(const uint8_t *p, size_t size, const char *text)
{
    const size_t n = strlen(text);
    for (size_t i = 0; i + n <= size; i++)
        if (memcmp(p + i, text, n) == 0)
            return true;
    return false;
}

/* The name of the first entry of a zip archive tells which program wrote it. */
static struct sniff zip(const uint8_t *p, size_t size)
{
    static const struct sniff of_numpy = {SNIFF_OTHER, "a zip archive of .npy files, as numpy.savez writes", "npz",
                                          UNPACK},
                              of_torch = {SNIFF_OTHER, "a zip archive of torch.save", "pt", NULL},
                              other = {SNIFF_OTHER, "a zip archive: torch or npz? --type says which", NULL, NULL};
    enum { LOCAL = 30 }; /* bytes of an entry's header before its name */
    if (size <= LOCAL)
        return other;
    const uint8_t *name = p + LOCAL;
    const size_t name_len = le16(p + 26) < size - LOCAL ? le16(p + 26) : size - LOCAL;
    if (name_len >= 4 && memcmp(name + name_len - 4, ".npy", 4) == 0)
        return of_numpy;
    if (has(name, name_len, "/data.pkl") || has(name, name_len, "/data/") || has(name, name_len, "/version") ||
        has(name, name_len, "/byteorder") || has(name, name_len, "/.format_version"))
        return of_torch;
    return other;
}

/* Whether a .safetensors file may begin so: the length of its header, and the header, which is JSON. */
static bool is_safetensors(const uint8_t *p, size_t size)
{
    return size >= 10 && p[4] == 0 && p[5] == 0 && p[6] == 0 && p[7] == 0 && p[8] == '{' &&
           (p[9] == '"' || p[9] == '}' || p[9] == ' ' || p[9] == '\n');
}

/* Whether text begins with a word, in lower case, which may be in capitals there. */
static bool begins(const uint8_t *p, size_t size, const char *word)
{
    const size_t n = strlen(word);
    if (size < n)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((p[i] >= 'A' && p[i] <= 'Z' ? p[i] + 'a' - 'A' : p[i]) != (uint8_t)word[i])
            return false;
    return true;
}

/* What a server sends in place of a file. NULL: it is nothing like that. */
static const struct sniff *page(const uint8_t *p, size_t size)
{
    static const struct sniff html = {SNIFF_STAND_IN, "an HTML page, not the file itself", NULL,
                                      "download it again, and sign in if it asks for that"},
                              xml = {SNIFF_STAND_IN, "an XML text, as a server's error, not the file itself", NULL,
                                     "download it again"},
                              json = {SNIFF_STAND_IN, "a JSON text, as a server's error, not a file of tensors", NULL,
                                      "download it again"};
    if (begins(p, size, "\xef\xbb\xbf"))
        p += 3, size -= 3;
    while (size && strchr(" \t\r\n", *p) && *p)
        p++, size--;
    if (begins(p, size, "<!doctype html") || begins(p, size, "<html") || begins(p, size, "<head"))
        return &html;
    if (begins(p, size, "<?xml"))
        return &xml;
    const uint8_t *q = p + 1;
    while (size && q < p + size && strchr(" \t\r\n", *q) && *q)
        q++;
    return size && q < p + size && ((*p == '{' && (*q == '"' || *q == '}')) || (*p == '[' && *q && strchr("{\"[]", *q)))
               ? &json
               : NULL;
}

/* UTF-8 without controls. A character may be cut at the end. */
static bool is_text(const uint8_t *p, size_t size)
{
    for (size_t i = 0, k; i < size; i += k) {
        k = pici_parse_utf8(p + i, p + size);
        if (k == 0 && size - i < 4)
            break;
        if (k == 0 || (p[i] < ' ' && !strchr("\n\r\t\f", p[i])) || p[i] == 0 || p[i] == 0x7f)
            return false;
    }
    return size >= 4;
}

static struct sniff text(const uint8_t *p, size_t size)
{
    static const struct sniff csv = {SNIFF_OTHER, "text with columns, as CSV", NULL, EXPORT},
                              plain = {SNIFF_OTHER, "text", NULL, NULL};
    size_t line = 0;
    while (line < size && p[line] != '\n')
        line++;
    return memchr(p, ',', line) || memchr(p, '\t', line) || memchr(p, ';', line) ? csv : plain;
}

/* A pickle of protocol 2 to 5: the protocol, and then an opcode that such files begin with. */
static bool is_pickle(const uint8_t *p, size_t size)
{
    return size >= 3 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5 && p[2] && strchr("\x95}]()Nc\x8a\x8c\x58KJMGU", p[2]);
}

struct sniff sniff(const uint8_t *p, size_t size)
{
    static const struct sniff nothing = {SNIFF_OTHER, NULL, NULL, NULL},
                              cut = {SNIFF_PICI_CUT, "the beginning of a .pici file", NULL, NULL},
                              safetensors = {SNIFF_OTHER, "a .safetensors file", "safetensors", NULL},
                              pickle = {SNIFF_OTHER, "a pickle", NULL, EXPORT};
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (size >= magics[i].at + magics[i].len && memcmp(p + magics[i].at, magics[i].bytes, magics[i].len) == 0)
            return magics[i].is;
    if (size >= 2 && size < magics[0].len && memcmp(p, magics[0].bytes, size) == 0)
        return cut;
    if (size >= 4 && (memcmp(p, "PK\3\4", 4) == 0 || memcmp(p, "PK\5\6", 4) == 0))
        return zip(p, size);
    if (is_safetensors(p, size))
        return safetensors;
    if (is_pickle(p, size))
        return pickle;
    if (!is_text(p, size))
        return nothing;
    const struct sniff *const stand_in = page(p, size);
    return stand_in ? *stand_in : text(p, size);
}
