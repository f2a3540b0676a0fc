/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A canvas of pixels, written as PNG with a palette. A build without zlib stores the pixels uncompressed. */
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

/* A font of 5 x 7 dots: five columns for each character; the lowest bit is the top. g, j, p, q, y and the comma have an
 * eighth row. */
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

static void png_rect(struct canvas *canvas, unsigned x, unsigned y, unsigned width, unsigned height, unsigned ink)
{
    struct png *png = (struct png *)canvas;
    /* palette_index would round the lowest level to 0, which means none. */
    uint8_t index = ink && ink <= HEAT_TOP && palette_index(ink) == 0 ? 1 : palette_index(ink);
    for (unsigned row = y; row < y + height && row < canvas->height; row++)
        for (unsigned column = x; column < x + width && column < canvas->width; column++)
            png->pixels[(size_t)row * canvas->width + column] = index;
}

static void png_cells(struct canvas *canvas, unsigned x, unsigned y, const struct canvas_cells *cells)
{
    for (unsigned i = 0; i < cells->count; i++)
        png_rect(canvas, x + i % cells->wide * cells->cell_width, y + i / cells->wide * cells->cell_height,
                 cells->cell_width, cells->cell_height, cells->level[i]);
}

static void png_line(struct canvas *canvas, unsigned x, unsigned y, unsigned to_x, unsigned to_y, unsigned ink)
{
    const long across = (long)to_x - (long)x, down = (long)to_y - (long)y,
               steps = labs(across) > labs(down) ? labs(across) : labs(down);
    const long parts = steps ? steps : 1;
    for (long i = 0; i <= steps; i++)
        png_rect(canvas, (unsigned)((long)x + across * i / parts), (unsigned)((long)y + down * i / parts), DOT, DOT,
                 ink);
}

/* The width of a text in pixels. A UTF-8 character counts as one box. */
static unsigned text_width(const char *text)
{
    unsigned characters = 0;
    for (; *text; text++)
        characters += (*text & 0xc0) != 0x80;
    return characters ? characters * CANVAS_CHAR - DOT : 0;
}

static void png_text(struct canvas *canvas, unsigned x, unsigned y, const char *text, enum canvas_anchor anchor,
                     unsigned ink)
{
    const unsigned width = text_width(text);
    unsigned before = anchor == ANCHOR_RIGHT ? width : 0;
    if (anchor == ANCHOR_MIDDLE)
        before = width / 2;
    x = x > before ? x - before : 0;
    for (; *text; text++) {
        unsigned char character = (unsigned char)*text;
        if ((character & 0xc0) == 0x80)
            continue;
        static const uint8_t box[FONT_WIDE] = {0x7f, 0x41, 0x41, 0x41, 0x7f};
        const uint8_t *columns = character < FONT_FIRST || character > FONT_LAST ? box : font[character - FONT_FIRST];
        for (unsigned i = 0; i < FONT_WIDE; i++)
            for (unsigned j = 0; j < 8; j++)
                if (columns[i] >> j & 1)
                    png_rect(canvas, x + DOT * i, y + DOT * j, DOT, DOT, ink);
        x += CANVAS_CHAR;
    }
}

static void be32(uint8_t *bytes, uint32_t value)
{
    bytes[0] = (uint8_t)(value >> 24);
    bytes[1] = (uint8_t)(value >> 16);
    bytes[2] = (uint8_t)(value >> 8);
    bytes[3] = (uint8_t)value;
}

/* Writes bytes that the chunk's CRC covers. */
static void put(struct png *png, const uint8_t *bytes, size_t size)
{
    png->crc = parse_crc32(png->crc, bytes, size);
    if (!png->status)
        png->status = output_write(png->canvas.output, bytes, size);
}

static void begin_chunk(struct png *png, uint32_t size, const char type[4])
{
    uint8_t word[4];
    be32(word, size);
    put(png, word, 4);
    png->crc = 0;
    put(png, (const uint8_t *)type, 4);
}

static void end_chunk(struct png *png)
{
    uint8_t word[4];
    be32(word, png->crc);
    put(png, word, 4);
}

#ifdef PICI_HAVE_ZLIB

enum { CHUNK = 1 << 16, LEVEL = 9 };

/* Compresses bytes, and writes each chunk [CHUNK] that they fill. */
static void deflate_into(struct png *png, z_stream *stream, uint8_t *chunk, const uint8_t *bytes, unsigned size,
                         int flush)
{
    int result;
    stream->next_in = bytes;
    stream->avail_in = size;
    do {
        result = deflate(stream, flush);
        if (!stream->avail_out || result == Z_STREAM_END) {
            begin_chunk(png, CHUNK - stream->avail_out, "IDAT");
            put(png, chunk, CHUNK - stream->avail_out);
            end_chunk(png);
            stream->next_out = chunk;
            stream->avail_out = CHUNK;
        }
    } while (stream->avail_in || (flush == Z_FINISH && result != Z_STREAM_END));
}

/* Writes compressed rows. */
static void put_pixels(struct png *png)
{
    static const uint8_t filter = 0; /* the filter type of each row: none, which suits a palette */
    const struct canvas *canvas = &png->canvas;
    uint8_t *chunk = malloc(CHUNK);
    z_stream stream = {.next_out = chunk, .avail_out = CHUNK};
    if (!chunk || deflateInit(&stream, LEVEL) != Z_OK) {
        png->status = tool_nomem(canvas->output->name, "the compressor of a picture");
        free(chunk);
        return;
    }
    for (unsigned row = 0; row < canvas->height && !png->status; row++) {
        deflate_into(png, &stream, chunk, &filter, 1, Z_NO_FLUSH);
        deflate_into(png, &stream, chunk, png->pixels + (size_t)row * canvas->width, canvas->width, Z_NO_FLUSH);
    }
    deflate_into(png, &stream, chunk, NULL, 0, Z_FINISH);
    deflateEnd(&stream);
    free(chunk);
}

#else

/* Writes one chunk, in which each row is a stored block: its filter type, 0, and its pixels. */
static void put_pixels(struct png *png)
{
    const struct canvas *canvas = &png->canvas;
    uint32_t low = 1, high = 0; /* Adler-32 */
    begin_chunk(png, (uint32_t)(2 + canvas->height * (canvas->width + 6) + 4), "IDAT");
    put(png, (const uint8_t[]){0x78, 0x01}, 2);
    for (unsigned row = 0; row < canvas->height; row++) {
        const uint8_t *pixels = png->pixels + (size_t)row * canvas->width;
        const unsigned size = canvas->width + 1;
        const uint8_t last = row + 1 == canvas->height;
        put(png, (const uint8_t[]){last, (uint8_t)size, (uint8_t)(size >> 8), (uint8_t)~size, (uint8_t)(~size >> 8), 0},
            6);
        put(png, pixels, canvas->width);
        high = (high + low) % 65521; /* the filter type */
        for (unsigned x = 0; x < canvas->width; x++) {
            low = (low + pixels[x]) % 65521;
            high = (high + low) % 65521;
        }
    }
    uint8_t adler[4];
    be32(adler, high << 16 | low);
    put(png, adler, sizeof adler);
    end_chunk(png);
}

#endif

static int png_finish(struct canvas *canvas)
{
    struct png *png = (struct png *)canvas;
    static const uint8_t signature[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    enum { COLOURS = STEPS + 1 + INK_END - HEAT_TOP - 1 };
    uint8_t header[13], palette[COLOURS][3];
    be32(header, canvas->width);
    be32(header + 4, canvas->height);
    memcpy(header + 8, "\x08\x03\0\0", 5); /* eight bits, palette; the other fields have only one valid value */
    for (unsigned i = 0; i <= STEPS; i++)
        ink_colour(i * HEAT_TOP / STEPS, palette[i]);
    for (unsigned ink = HEAT_TOP + 1; ink < INK_END; ink++)
        ink_colour(ink, palette[palette_index(ink)]);
    put(png, signature, sizeof signature);
    begin_chunk(png, sizeof header, "IHDR");
    put(png, header, sizeof header);
    end_chunk(png);
    begin_chunk(png, sizeof palette, "PLTE");
    put(png, palette[0], sizeof palette);
    end_chunk(png);
    put_pixels(png);
    begin_chunk(png, 0, "IEND");
    end_chunk(png);
    int status = png->status;
    free(png->pixels);
    free(png);
    return status;
}

struct canvas *canvas_png(struct output *output, unsigned width, unsigned height)
{
    struct png *png = calloc(1, sizeof *png);
    if (!png)
        return NULL;
    png->canvas = (struct canvas){png_rect, png_cells, png_line, png_text, png_finish, output, width, height};
    /* A row must fit in a stored block, and all rows in one chunk. */
    if (width < STORED_MOST && height < UINT32_MAX / 2 / (width + 6))
        png->pixels = calloc(height, width);
    if (!png->pixels) {
        free(png);
        return NULL;
    }
    return &png->canvas;
}
