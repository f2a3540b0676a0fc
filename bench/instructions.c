/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Runs each kernel on tiles: everything between region_begin and region_end. tools/dev/instructions counts these
 * instructions in an emulator; tools/dev/cycles executes them one at a time. Kernels that have non-temporal stores use
 * them, as for buffers that are larger than the caches.
 *   instructions TILES [ISA OP BITS PERCENT]     all of them, or one
 * For each it prints "ISA OP BITS PERCENT" to standard output. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu/kernels.h"

enum { TILES_MOST = 64, BYTES = TILES_MOST * TILE * 8, SLACK = 256 };

enum op {
    EMPTY,
    COMPRESS,
    DECOMPRESS,
    ADD,
    COMPRESS_HYBRID,
    COMPRESS_PREDICTED,
    DECOMPRESS_HYBRID,
    ADD_HYBRID,
    APPLY,
    XOR,
    COUNT,
    OPS
};
static const char *const name[OPS] = {
    "empty",      "compress", "decompress", "add",  "compress-hybrid", "compress-predicted", "decompress-hybrid",
    "add-hybrid", "apply",    "xor",        "count"};
static const unsigned percents[] = {1, 10, 50, 100};

static _Alignas(64) uint8_t dst[BYTES + SLACK]; /* as aligned as non-temporal stores need */
static uint8_t src[BYTES + SLACK], values[BYTES + SLACK], payload[BYTES + SLACK];
static uint8_t bits[TILES_MOST * TILE_BITS_BYTES], place[TILES_MOST * 8];
static uint64_t word[TILES_MOST][TILE_COLS];
static struct pici_tile tile[TILES_MOST];

/* The emulator's plugin counts from region_begin to region_end. */
__attribute__((noinline)) void region_begin(void);
__attribute__((noinline)) void region_end(void);
void region_begin(void)
{
    __asm__ volatile("");
}
void region_end(void)
{
    __asm__ volatile("" ::: "memory");
}

static uint64_t draw(void)
{
    static uint64_t x = 88172645463325252u;
    x ^= x << 13;
    x ^= x >> 7;
    x ^= x << 17;
    return x;
}

/* Set nonzeros at random places, with the same chance for each element. */
static void fill(unsigned width, unsigned percent, size_t tiles)
{
    memset(src, 0, sizeof src);
    for (size_t i = 0; i < tiles * TILE; i++)
        if (draw() % 100 < percent)
            for (unsigned k = 0; k < width; k++)
                src[i * width + k] = (uint8_t)(draw() % 127 + 1);
}

static uint64_t pack(const struct pici_move *move, unsigned width, size_t tiles)
{
    struct pici_pack_run r = {.src = src, .bits = bits, .index = place, .index_width = 4, .values = values};
    r.tiles = tiles;
    r.ahead = (size_t)TILE * width;
    r.stream = 1;
    move->pack(&r);
    return r.next_value;
}

/* Pack the tiles for a hybrid block, with the kernels that lib/codec uses. */
static void pack_hybrid(const struct pici_move *move, unsigned log2_width, size_t tiles)
{
    struct pici_pack_tiles r = {.src = src, .word = (const uint64_t(*)[TILE_COLS])word, .tile = tile};
    r.tiles = tiles;
    r.payload = payload;
    r.values = values;
    r.stream = 1;
    move->masks(word, tile, src, tiles);
    for (size_t t = 0; t < tiles; t++)
        tile[t].container =
            (uint8_t)(tile[t].nonzeros ? container_of(tile[t].nonzeros, TILE, log2_width, tile[t].nonzeros == TILE)
                                       : PICI_EMPTY);
    move->pack_tiles(&r);
}

/* pack_hybrid if the previous tiles had the same container. */
static void pack_predicted(const struct pici_move *move, unsigned log2_width, size_t tiles)
{
    const unsigned container = tile[0].container, nonzeros = tile[0].nonzeros;
    struct pici_pack_tiles r = {.src = src, .tiles = tiles, .stream = 1, .payload = payload, .values = values};
    if (container == PICI_RAW || container == PICI_BITVECTOR) {
        move->pack_alike(&r, tile);
        return;
    }
    r.tiles = 1;
    r.stream = 0;
    for (size_t t = 0; t < tiles; t++) {
        const uint8_t *const elements = src + (t * TILE << log2_width);
        if (nonzeros >= move->sparse_many) {
            tile[t].nonzeros = (uint16_t)move->pack_sparse(r.payload, r.values, elements, OFFSETS8_MOST);
            r.payload += container_payload(tile[t].container, tile[t].nonzeros);
            r.values += (size_t)tile[t].nonzeros << log2_width;
        } else {
            move->masks(word + t, tile + t, elements, 1);
            r.src = elements;
            r.word = (const uint64_t(*)[TILE_COLS])word + t;
            r.tile = tile + t;
            move->pack_tiles(&r);
        }
    }
}

static void place_hybrid(unsigned width, size_t tiles)
{
    const uint8_t *p = payload, *v = values;
    for (size_t t = 0; t < tiles; t++) {
        tile[t].payload = p;
        tile[t].values = v;
        p += container_payload(tile[t].container, tile[t].nonzeros);
        v += (size_t)width * (tile[t].container == PICI_RAW ? TILE : tile[t].nonzeros);
    }
}

static void run(const struct pici_isa *isa, enum op op, unsigned log2_width, unsigned percent, size_t tiles)
{
    static const unsigned floats[] = {5 /* f8e4m3 */, 4 /* bf16 */, 1 /* f32 */, 2 /* f64 */};
    const unsigned width = 1u << log2_width;
    const struct pici_move *move = isa->move[log2_width];
    const int hybrid = op >= COMPRESS_HYBRID && op <= ADD_HYBRID;
    const int adds = op == ADD || op == ADD_HYBRID;
    const struct pici_add *add = adds ? isa->add[floats[log2_width]] : isa->xors[log2_width];
    struct pici_unpack r = {.dst = dst, .bits = bits, .index = place, .index_width = 4, .values = values};
    const struct pici_unpack_tiles h = {dst, tile, tiles, 1};
    fill(width, percent, tiles);
    memset(dst, adds ? 1 : 0, sizeof dst);
    if (hybrid)
        pack_hybrid(move, log2_width, tiles);
    else
        r.limit = pack(move, width, tiles);
    place_hybrid(width, tiles);
    r.tiles = tiles;
    r.stream = 1;
    printf("%s %s %u %u\n", isa->name, name[op], 8 * width, percent);
    fflush(stdout);
    region_begin();
    switch (op) {
    case COMPRESS: pack(move, width, tiles); break;
    case COMPRESS_HYBRID: pack_hybrid(move, log2_width, tiles); break;
    case COMPRESS_PREDICTED: pack_predicted(move, log2_width, tiles); break;
    case DECOMPRESS: r.tiles -= move->unpack(&r); break;
    case DECOMPRESS_HYBRID: r.tiles -= move->unpack_tiles(&h); break;
    case ADD:
    case APPLY: r.tiles -= add->unpack(&r); break;
    case ADD_HYBRID: r.tiles -= add->unpack_tiles(&h); break;
    case XOR: move->difference(dst, src, values, tiles * TILE); break;
    case COUNT: r.limit += move->count(src, tiles * TILE); break;
    default: break;
    }
    region_end();
    if (r.tiles && r.tiles != tiles) {
        fprintf(stderr, "instructions: %s: not all tiles were done\n", name[op]);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const size_t tiles = argc > 1 ? strtoul(argv[1], NULL, 10) : 8;
    if (tiles < 1 || tiles > TILES_MOST || (argc > 2 && argc < 6)) {
        fprintf(stderr, "usage: instructions TILES [ISA OP BITS PERCENT]\n");
        return 2;
    }
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++)
        for (enum op op = EMPTY; op < OPS; op++)
            for (unsigned w = 0; w < 4; w++)
                for (size_t p = 0; p < sizeof percents / sizeof *percents; p++) {
                    const unsigned percent = percents[p];
                    if (argc > 2 && (strcmp(argv[2], (*isa)->name) != 0 || strcmp(argv[3], name[op]) != 0 ||
                                     strtoul(argv[4], NULL, 10) != 8u << w || strtoul(argv[5], NULL, 10) != percent))
                        continue;
                    run(*isa, op, w, percent, tiles);
                }
    return 0;
}
