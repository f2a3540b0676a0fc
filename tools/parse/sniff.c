/* SPDX-License-Identifier: BSD-3-Clause */
#include "parse/sniff.h"

#include <stdbool.h>
#include <string.h>

#include "parse/parse.h"
#include "parse/torch_old.h"

#define UNPACK "unpack it first"
#define EXPORT "export its arrays as .npy or raw elements"

/* Bytes that identify a file. The first matching row counts. */
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
    {0, 4, "GGUF", {SNIFF_OTHER, "a GGUF file", "gguf", NULL}},
    {0, 3, "CDF", {SNIFF_OTHER, "a NetCDF file", NULL, EXPORT}},
    {0, 4, "PAR1", {SNIFF_OTHER, "a Parquet file", NULL, EXPORT}},
    {0, 6, "ARROW1", {SNIFF_OTHER, "an Arrow file", NULL, EXPORT}},
    {0, 6, "MATLAB", {SNIFF_OTHER, "a MATLAB file", NULL, EXPORT}},
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

static unsigned le16(const uint8_t *bytes)
{
    return (unsigned)(bytes[0] | bytes[1] << 8);
}

/* Whether the `size` bytes contain the text. */
static bool has(const uint8_t *bytes, size_t size, const char *text)
{
    const size_t text_size = strlen(text);
    for (size_t i = 0; i + text_size <= size; i++)
        if (memcmp(bytes + i, text, text_size) == 0)
            return true;
    return false;
}

/* Guesses the program that wrote a zip archive by the name of the first entry. */
static struct sniff zip(const uint8_t *bytes, size_t size)
{
    static const struct sniff of_numpy = {SNIFF_OTHER, "a zip archive of .npy files, as numpy.savez writes", "npz",
                                          UNPACK},
                              of_torch = {SNIFF_OTHER, "a zip archive of torch.save", "pt", NULL},
                              other = {SNIFF_OTHER, "a zip archive: torch or npz? --type says which", NULL, NULL};
    enum { LOCAL = 30 }; /* bytes of an entry's header before its name */
    if (size <= LOCAL)
        return other;
    const uint8_t *name = bytes + LOCAL;
    const size_t name_size = le16(bytes + 26) < size - LOCAL ? le16(bytes + 26) : size - LOCAL;
    if (name_size >= 4 && memcmp(name + name_size - 4, ".npy", 4) == 0)
        return of_numpy;
    if (has(name, name_size, "/data.pkl") || has(name, name_size, "/data/") || has(name, name_size, "/version") ||
        has(name, name_size, "/byteorder") || has(name, name_size, "/.format_version"))
        return of_torch;
    return other;
}

/* Whether this may begin a .safetensors file: the length of its header, and the header, which is JSON. */
static bool is_safetensors(const uint8_t *bytes, size_t size)
{
    return size >= 10 && bytes[4] == 0 && bytes[5] == 0 && bytes[6] == 0 && bytes[7] == 0 && bytes[8] == '{' &&
           (bytes[9] == '"' || bytes[9] == '}' || bytes[9] == ' ' || bytes[9] == '\n');
}

/* Whether the bytes begin with a word, which is in lower case here, in any case. */
static bool begins(const uint8_t *bytes, size_t size, const char *word)
{
    const size_t word_size = strlen(word);
    if (size < word_size)
        return false;
    for (size_t i = 0; i < word_size; i++)
        if ((bytes[i] >= 'A' && bytes[i] <= 'Z' ? bytes[i] + 'a' - 'A' : bytes[i]) != (uint8_t)word[i])
            return false;
    return true;
}

/* Recognizes a page that a server sends instead of a file. NULL: it is none. */
static const struct sniff *page(const uint8_t *position, size_t size)
{
    static const struct sniff html = {SNIFF_STAND_IN, "an HTML page, not the file itself", NULL,
                                      "download it again, and sign in if it asks for that"},
                              xml = {SNIFF_STAND_IN, "an XML text, as a server's error, not the file itself", NULL,
                                     "download it again"},
                              json = {SNIFF_STAND_IN, "a JSON text, as a server's error, not a file of tensors", NULL,
                                      "download it again"};
    if (begins(position, size, "\xef\xbb\xbf"))
        position += 3, size -= 3;
    while (size && strchr(" \t\r\n", *position) && *position)
        position++, size--;
    if (begins(position, size, "<!doctype html") || begins(position, size, "<html") || begins(position, size, "<head"))
        return &html;
    if (begins(position, size, "<?xml"))
        return &xml;
    const uint8_t *next = position + 1;
    while (size && next < position + size && strchr(" \t\r\n", *next) && *next)
        next++;
    return size && next < position + size &&
                   ((*position == '{' && (*next == '"' || *next == '}')) ||
                    (*position == '[' && *next && strchr("{\"[]", *next)))
               ? &json
               : NULL;
}

/* Whether the bytes are UTF-8 without controls. The last character may be cut. */
static bool is_text(const uint8_t *bytes, size_t size)
{
    for (size_t i = 0, step; i < size; i += step) {
        step = pici_parse_utf8(bytes + i, bytes + size);
        if (step == 0 && size - i < 4)
            break;
        if (step == 0 || (bytes[i] < ' ' && !strchr("\n\r\t\f", bytes[i])) || bytes[i] == 0 || bytes[i] == 0x7f)
            return false;
    }
    return size >= 4;
}

static struct sniff text(const uint8_t *bytes, size_t size)
{
    static const struct sniff csv = {SNIFF_OTHER, "text with columns, as CSV", NULL, EXPORT},
                              plain = {SNIFF_OTHER, "text", NULL, NULL};
    size_t line = 0;
    while (line < size && bytes[line] != '\n')
        line++;
    return memchr(bytes, ',', line) || memchr(bytes, '\t', line) || memchr(bytes, ';', line) ? csv : plain;
}

/* Whether this begins a pickle of protocol 2 to 5: the protocol, and an opcode with which such files begin. */
static bool is_pickle(const uint8_t *bytes, size_t size)
{
    return size >= 3 && bytes[0] == 0x80 && bytes[1] >= 2 && bytes[1] <= 5 && bytes[2] &&
           strchr("\x95}]()Nc\x8a\x8c\x58KJMGU", bytes[2]);
}

/* Whether this begins an ONNX model, a protobuf message. Field 1, the version, is a small number. Then comes the
 * producer's name; if there is none, the graph or the list of operators. */
static bool is_onnx(const uint8_t *bytes, size_t size)
{
    if (size < 4 || bytes[0] != 0x08 || bytes[1] == 0 || bytes[1] > 31)
        return false;
    if (bytes[2] == 0x3a || bytes[2] == 0x42)
        return true;
    const size_t end = 4 + (size_t)bytes[3];
    if (bytes[2] != 0x12 || end >= size)
        return false;
    for (size_t i = 4; i < end; i++)
        if (bytes[i] < ' ' || bytes[i] > '~')
            return false;
    return strchr("\x1a\x22\x28\x32\x3a\x42", bytes[end]) && bytes[end];
}

struct sniff sniff(const uint8_t *first, size_t size)
{
    static const struct sniff nothing = {SNIFF_OTHER, NULL, NULL, NULL},
                              cut = {SNIFF_PICI_CUT, "the beginning of a .pici file", NULL, NULL},
                              safetensors = {SNIFF_OTHER, "a .safetensors file", "safetensors", NULL},
                              pickle = {SNIFF_OTHER, "a pickle", NULL, EXPORT},
                              old_torch = {SNIFF_OTHER, "a file of torch.save before version 1.6", "pt", NULL},
                              onnx = {SNIFF_OTHER, "an ONNX model", NULL,
                                      "export its initializers as .safetensors or .npy"};
    for (size_t i = 0; i < sizeof magics / sizeof *magics; i++)
        if (size >= magics[i].at + magics[i].len && memcmp(first + magics[i].at, magics[i].bytes, magics[i].len) == 0)
            return magics[i].is;
    if (torch_old_begins(first, size))
        return old_torch;
    if (size >= 2 && size < magics[0].len && memcmp(first, magics[0].bytes, size) == 0)
        return cut;
    if (size >= 4 && (memcmp(first, "PK\3\4", 4) == 0 || memcmp(first, "PK\5\6", 4) == 0))
        return zip(first, size);
    if (is_safetensors(first, size))
        return safetensors;
    if (is_pickle(first, size))
        return pickle;
    if (is_onnx(first, size))
        return onnx;
    if (!is_text(first, size))
        return nothing;
    const struct sniff *const stand_in = page(first, size);
    return stand_in ? *stand_in : text(first, size);
}
