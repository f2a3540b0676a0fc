/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A canvas of pixels, written as PNG with a palette. With zlib the pixels are compressed; a build without it stores
 * them. */
#include "show/png.h"

#include <stdlib.h>
#include <string.h>

#include "parse/crc32.h"
#include "tool.h"

#ifdef PICI_HAVE_ZLIB
#define ZLIB_CONST
#include <zlib.h>
#endif

enum { STEPS = 250, STORED_MOST = 65535, FONT_FIRST = 32, FONT_LAST = 126, FONT_WIDE = 5, DOT = 2 };

struct png {
    struct canvas canvas;
    uint8_t *pixels; /* [height][width] indices of the palette */
    uint32_t crc;
    int status;
};

/* A font of 5 x 7 dots: five columns for each character, whose lowest bit is the top. g, j, p, q, y and the comma use
 * an eighth row. */
static const uint8_t font[FONT_LAST - FONT_FIRST + 1][FONT_WIDE] = {
    {0x00, 0x00, 0x00, 0x00, 0x00}, {0x00, 0x00, 0x5f, 0x00, 0x00}, {0x00, 0x07, 0x00, 0x07, 0x00},
    {0x14, 0x7f, 0x14, 0x7f, 0x14}, {0x24, 0x2a, 0x7f, 0x2a, 0x12}, {0x23, 0x13, 0x08, 0x64, 0x62},
    {0x36, 0x49, 0x56, 0x20, 0x50}, {0x00, 0x08, 0x07, 0x03, 0x00}, {0x00, 0x1c, 0x22, 0x41, 0x00},
    {0x00, 0x41, 0x22, 0x1c, 0x00}, {0x2a, 0x1c, 0x7f, 0x1c, 0x2a}, {0x08, 0x08, 0x3e, 0x08, 0x08},
    {0x00, 0x80, 0x70, 0x30, 0x00}, {0x08, 0x08, 0x08, 0x08, 0x08}, {0x00, 0x00, 0x60, 0x60, 0x00},
    {0x20, 0x10, 0x08, 0x04, 0x02}, {0x3e, 0x51, 0x49, 0x45, 0x3e}, {0x00, 0x42, 0x7f, 0x40, 0x00},
    {0x72, 0x49, 0x49, 0x49, 0x46}, {0x21, 0x41, 0x49, 0x4d, 0x33}, {0x18, 0x14, 0x12, 0x7f, 0x10},
    {0x27, 0x45, 0x45, 0x45, 0x39}, {0x3c, 0x4a, 0x49, 0x49, 0x31}, {0x41, 0x21, 0x11, 0x09, 0x07},
    {0x36, 0x49, 0x49, 0x49, 0x36}, {0x46, 0x49, 0x49, 0x29, 0x1e}, {0x00, 0x00, 0x14, 0x00, 0x00},
    {0x00, 0x40, 0x34, 0x00, 0x00}, {0x00, 0x08, 0x14, 0x22, 0x41}, {0x14, 0x14, 0x14, 0x14, 0x14},
    {0x00, 0x41, 0x22, 0x14, 0x08}, {0x02, 0x01, 0x59, 0x09, 0x06}, {0x3e, 0x41, 0x5d, 0x59, 0x4e},
    {0x7c, 0x12, 0x11, 0x12, 0x7c}, {0x7f, 0x49, 0x49, 0x49, 0x36}, {0x3e, 0x41, 0x41, 0x41, 0x22},
    {0x7f, 0x41, 0x41, 0x41, 0x3e}, {0x7f, 0x49, 0x49, 0x49, 0x41}, {0x7f, 0x09, 0x09, 0x09, 0x01},
    {0x3e, 0x41, 0x41, 0x51, 0x73}, {0x7f, 0x08, 0x08, 0x08, 0x7f}, {0x00, 0x41, 0x7f, 0x41, 0x00},
    {0x20, 0x40, 0x41, 0x3f, 0x01}, {0x7f, 0x08, 0x14, 0x22, 0x41}, {0x7f, 0x40, 0x40, 0x40, 0x40},
    {0x7f, 0x02, 0x1c, 0x02, 0x7f}, {0x7f, 0x04, 0x08, 0x10, 0x7f}, {0x3e, 0x41, 0x41, 0x41, 0x3e},
    {0x7f, 0x09, 0x09, 0x09, 0x06}, {0x3e, 0x41, 0x51, 0x21, 0x5e}, {0x7f, 0x09, 0x19, 0x29, 0x46},
    {0x26, 0x49, 0x49, 0x49, 0x32}, {0x03, 0x01, 0x7f, 0x01, 0x03}, {0x3f, 0x40, 0x40, 0x40, 0x3f},
    {0x1f, 0x20, 0x40, 0x20, 0x1f}, {0x3f, 0x40, 0x38, 0x40, 0x3f}, {0x63, 0x14, 0x08, 0x14, 0x63},
    {0x03, 0x04, 0x78, 0x04, 0x03}, {0x61, 0x59, 0x49, 0x4d, 0x43}, {0x00, 0x7f, 0x41, 0x41, 0x41},
    {0x02, 0x04, 0x08, 0x10, 0x20}, {0x00, 0x41, 0x41, 0x41, 0x7f}, {0x04, 0x02, 0x01, 0x02, 0x04},
    {0x40, 0x40, 0x40, 0x40, 0x40}, {0x00, 0x03, 0x07, 0x08, 0x00}, {0x20, 0x54, 0x54, 0x78, 0x40},
    {0x7f, 0x28, 0x44, 0x44, 0x38}, {0x38, 0x44, 0x44, 0x44, 0x28}, {0x38, 0x44, 0x44, 0x28, 0x7f},
    {0x38, 0x54, 0x54, 0x54, 0x18}, {0x00, 0x08, 0x7e, 0x09, 0x02}, {0x18, 0xa4, 0xa4, 0x9c, 0x78},
    {0x7f, 0x08, 0x04, 0x04, 0x78}, {0x00, 0x44, 0x7d, 0x40, 0x00}, {0x40, 0x80, 0x84, 0x7d, 0x00},
    {0x7f, 0x10, 0x28, 0x44, 0x00}, {0x00, 0x41, 0x7f, 0x40, 0x00}, {0x7c, 0x04, 0x78, 0x04, 0x78},
    {0x7c, 0x08, 0x04, 0x04, 0x78}, {0x38, 0x44, 0x44, 0x44, 0x38}, {0xfc, 0x18, 0x24, 0x24, 0x18},
    {0x18, 0x24, 0x24, 0x18, 0xfc}, {0x7c, 0x08, 0x04, 0x04, 0x08}, {0x48, 0x54, 0x54, 0x54, 0x24},
    {0x04, 0x04, 0x3f, 0x44, 0x24}, {0x3c, 0x40, 0x40, 0x20, 0x7c}, {0x1c, 0x20, 0x40, 0x20, 0x1c},
    {0x3c, 0x40, 0x30, 0x40, 0x3c}, {0x44, 0x28, 0x10, 0x28, 0x44}, {0x4c, 0x90, 0x90, 0x90, 0x7c},
    {0x44, 0x64, 0x54, 0x4c, 0x44}, {0x00, 0x08, 0x36, 0x41, 0x00}, {0x00, 0x00, 0x77, 0x00, 0x00},
    {0x00, 0x41, 0x36, 0x08, 0x00}, {0x02, 0x01, 0x02, 0x04, 0x02},
};

/* The palette has STEPS + 1 levels, then the other inks. */
static uint8_t palette_index(unsigned ink)
{
    return (uint8_t)(ink <= HEAT_TOP ? (ink * STEPS + HEAT_TOP / 2) / HEAT_TOP : STEPS + (ink - HEAT_TOP));
}

static void png_rect(struct canvas *c, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink)
{
    struct png *p = (struct png *)c;
    /* palette_index would round the least level to 0, which is none. */
    uint8_t index = ink && ink <= HEAT_TOP && palette_index(ink) == 0 ? 1 : palette_index(ink);
    for (unsigned row = y; row < y + height && row < c->height; row++)
        for (unsigned column = x; column < x + width && column < c->width; column++)
            p->pixels[(size_t)row * c->width + column] = index;
}

static void png_cells(struct canvas *c, unsigned x, unsigned y, const struct canvas_cells *cells)
{
    for (unsigned i = 0; i < cells->count; i++)
        png_rect(c, x + i % cells->wide * cells->cell_width, y + i / cells->wide * cells->cell_height,
                 cells->cell_width, cells->cell_height, cells->level[i]);
}

static void png_line(struct canvas *c, unsigned x, unsigned y, unsigned to_x, unsigned to_y, unsigned ink)
{
    const long dx = (long)to_x - (long)x, dy = (long)to_y - (long)y, steps = labs(dx) > labs(dy) ? labs(dx) : labs(dy);
    for (long i = 0; i <= steps; i++)
        png_rect(c, (unsigned)((long)x + (steps ? dx * i / steps : 0)),
                 (unsigned)((long)y + (steps ? dy * i / steps : 0)), DOT, DOT, ink);
}

/* The pixels that a text is wide. A UTF-8 character is one box. */
static unsigned text_width(const char *text)
{
    unsigned characters = 0;
    for (; *text; text++)
        characters += (*text & 0xc0) != 0x80;
    return characters ? characters * CANVAS_CHAR - DOT : 0;
}

static void png_text(struct canvas *c, unsigned x, unsigned y, const char *text, enum canvas_anchor anchor,
                     unsigned ink)
{
    const unsigned width = text_width(text), before = anchor == ANCHOR_LEFT     ? 0
                                                      : anchor == ANCHOR_MIDDLE ? width / 2
                                                                                : width;
    x = x > before ? x - before : 0;
    for (; *text; text++) {
        unsigned char ch = (unsigned char)*text;
        if ((ch & 0xc0) == 0x80)
            continue;
        static const uint8_t box[FONT_WIDE] = {0x7f, 0x41, 0x41, 0x41, 0x7f};
        const uint8_t *columns = ch < FONT_FIRST || ch > FONT_LAST ? box : font[ch - FONT_FIRST];
        for (unsigned i = 0; i < FONT_WIDE; i++)
            for (unsigned j = 0; j < 8; j++)
                if (columns[i] >> j & 1)
                    png_rect(c, x + DOT * i, y + DOT * j, DOT, DOT, ink);
        x += CANVAS_CHAR;
    }
}

static void be32(uint8_t *p, uint32_t value)
{
    p[0] = (uint8_t)(value >> 24);
    p[1] = (uint8_t)(value >> 16);
    p[2] = (uint8_t)(value >> 8);
    p[3] = (uint8_t)value;
}

/* Writes bytes that the chunk's CRC covers. */
static void put(struct png *p, const uint8_t *bytes, size_t size)
{
    p->crc = parse_crc32(p->crc, bytes, size);
    if (!p->status)
        p->status = output_write(p->canvas.out, bytes, size);
}

static void begin_chunk(struct png *p, uint32_t len, const char type[4])
{
    uint8_t word[4];
    be32(word, len);
    put(p, word, 4);
    p->crc = 0;
    put(p, (const uint8_t *)type, 4);
}

static void end_chunk(struct png *p)
{
    uint8_t word[4];
    be32(word, p->crc);
    put(p, word, 4);
}

#ifdef PICI_HAVE_ZLIB

enum { CHUNK = 1 << 16, LEVEL = 9 };

/* Gives bytes to the compressor, and writes each chunk [CHUNK] that it fills. */
static void deflate_into(struct png *p, z_stream *z, uint8_t *chunk, const uint8_t *bytes, unsigned len, int flush)
{
    int result;
    z->next_in = bytes;
    z->avail_in = len;
    do {
        result = deflate(z, flush);
        if (!z->avail_out || result == Z_STREAM_END) {
            begin_chunk(p, CHUNK - z->avail_out, "IDAT");
            put(p, chunk, CHUNK - z->avail_out);
            end_chunk(p);
            z->next_out = chunk;
            z->avail_out = CHUNK;
        }
    } while (z->avail_in || (flush == Z_FINISH && result != Z_STREAM_END));
}

/* Writes compressed rows. */
static void put_pixels(struct png *p)
{
    static const uint8_t filter = 0; /* the filter type of each row: none, which suits a palette */
    const struct canvas *c = &p->canvas;
    uint8_t *chunk = malloc(CHUNK);
    z_stream z = {.next_out = chunk, .avail_out = CHUNK};
    if (!chunk || deflateInit(&z, LEVEL) != Z_OK) {
        p->status = tool_nomem(c->out->name, "the compressor of a picture");
        free(chunk);
        return;
    }
    for (unsigned row = 0; row < c->height && !p->status; row++) {
        deflate_into(p, &z, chunk, &filter, 1, Z_NO_FLUSH);
        deflate_into(p, &z, chunk, p->pixels + (size_t)row * c->width, c->width, Z_NO_FLUSH);
    }
    deflate_into(p, &z, chunk, NULL, 0, Z_FINISH);
    deflateEnd(&z);
    free(chunk);
}

#else

/* Writes one chunk, in which each row is a stored block: its filter type, 0, and its pixels. */
static void put_pixels(struct png *p)
{
    const struct canvas *c = &p->canvas;
    uint32_t a = 1, b = 0; /* Adler-32 */
    begin_chunk(p, (uint32_t)(2 + c->height * (c->width + 6) + 4), "IDAT");
    put(p, (const uint8_t[]){0x78, 0x01}, 2);
    for (unsigned row = 0; row < c->height; row++) {
        const uint8_t *pixels = p->pixels + (size_t)row * c->width;
        const unsigned len = c->width + 1;
        const uint8_t last = row + 1 == c->height;
        put(p, (const uint8_t[]){last, (uint8_t)len, (uint8_t)(len >> 8), (uint8_t)~len, (uint8_t)(~len >> 8), 0}, 6);
        put(p, pixels, c->width);
        b = (b + a) % 65521; /* the filter type */
        for (unsigned x = 0; x < c->width; x++) {
            a = (a + pixels[x]) % 65521;
            b = (b + a) % 65521;
        }
    }
    uint8_t adler[4];
    be32(adler, b << 16 | a);
    put(p, adler, sizeof adler);
    end_chunk(p);
}

#endif

static int png_finish(struct canvas *c)
{
    struct png *p = (struct png *)c;
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    enum { COLOURS = STEPS + 1 + INK_END - HEAT_TOP - 1 };
    uint8_t header[13], palette[COLOURS][3];
    be32(header, c->width);
    be32(header + 4, c->height);
    memcpy(header + 8, "\x08\x03\0\0", 5); /* eight bits, palette; the other fields have one value only */
    for (unsigned i = 0; i <= STEPS; i++)
        ink_colour(i * HEAT_TOP / STEPS, palette[i]);
    for (unsigned ink = HEAT_TOP + 1; ink < INK_END; ink++)
        ink_colour(ink, palette[palette_index(ink)]);
    put(p, signature, sizeof signature);
    begin_chunk(p, sizeof header, "IHDR");
    put(p, header, sizeof header);
    end_chunk(p);
    begin_chunk(p, sizeof palette, "PLTE");
    put(p, palette[0], sizeof palette);
    end_chunk(p);
    put_pixels(p);
    begin_chunk(p, 0, "IEND");
    end_chunk(p);
    int status = p->status;
    free(p->pixels);
    free(p);
    return status;
}

struct canvas *canvas_png(struct output *output, unsigned width, unsigned height)
{
    struct png *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    p->canvas = (struct canvas){png_rect, png_cells, png_line, png_text, png_finish, output, width, height};
    /* A row must fit in a stored block, and all rows in a chunk. */
    if (width < STORED_MOST && height < UINT32_MAX / 2 / (width + 6))
        p->pixels = calloc(height, width);
    if (!p->pixels) {
        free(p);
        return NULL;
    }
    return &p->canvas;
}
