/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The golden vectors, both directions, every reader, every ISA. */
#include <criterion/criterion.h>
#include <string.h>

#include "cpu/kernels.h"
#include "tests/util/util.h"

static const char directory[] = "formats/vectors";
static struct rig rig;

enum { ROOM = 3 * 4096 + 5, /* elements of 8 bytes */ LARGEST = 64 * 4096 /* bytes */ };

static void set_up(void)
{
    rig_init(&rig, LARGEST, 1);
}

static void tear_down(void)
{
    rig_free(&rig);
}

TestSuite(codec_vectors, .init = set_up, .fini = tear_down);

static void try_roundtrip(const struct roundtrip *v, void *unused)
{
    (void)unused;
    const struct subject s = {v->dense, v->n, v->dtype, v->format, v->checksum, 1, PICI_ZEROS_EXACT};
    const char *bad = v->earlier ? check_earlier(&rig, &s, v->block, v->len) : check_block(&rig, &s, v->block, v->len);
    cr_expect_null(bad, "%s: %s", v->name, bad);
}

Test(codec_vectors, both_directions)
{
    cr_expect_gt(roundtrips_read(directory, try_roundtrip, NULL), 600);
}

struct coverage {
    unsigned sizes, formats, dtypes, checksums, signs, earlier; /* signs: dtypes of hybrid blocks of version 2 */
};

static void cover(const struct roundtrip *v, void *context)
{
    static const uint64_t sizes[] = {0, 1, 63, 64, 65, 4095, 4096, 4097, 3 * 4096 + 5};
    struct coverage *c = context;
    for (unsigned i = 0; i < 9; i++)
        if (v->n == sizes[i])
            c->sizes |= 1u << (i + 10 * (v->format == PICI_COO));
    c->formats |= 1u << v->format;
    c->dtypes |= 1u << v->dtype;
    c->checksums |= 1u << (v->format + 4 * v->checksum);
    c->signs |= v->format == PICI_HYBRID && v->block[4] == 2 ? 1u << v->dtype : 0;
    c->earlier |= v->earlier ? 1u << v->dtype : 0;
}

Test(codec_vectors, cover_sizes_formats_dtypes)
{
    struct coverage c = {0};
    roundtrips_read(directory, cover, &c);
    cr_expect_eq(c.sizes, 0x1ffu << 10 | 0x1ffu, "%x", c.sizes);
    cr_expect_eq(c.formats, 15u);
    cr_expect_eq(c.dtypes, 0x7ffeu);
    cr_expect_eq(c.checksums, 0xffu);
    cr_expect_eq(c.signs, 0x7eu);
    cr_expect_eq(c.earlier, 0x7eu);
}

static void try_verdict(const struct verdict *v, void *unused)
{
    (void)unused;
    for (const struct pici_isa *const *isa = pici_isas(); *isa; isa++) {
        pici_isa_force(*isa);
        struct pici_fault f = PICI_FAULT_INIT;
        uint8_t *block = guard_place(&rig.block, v->len, GUARD_END, 0);
        memcpy(block, v->block, v->len);
        cr_expect_eq(pici_verify_at(block, v->len, &f), v->status, "%s", v->name);
        cr_expect_eq(f.status, v->status, "%s", v->name);
        cr_expect_eq(f.offset, v->offset, "%s: offset %llu", v->name, (unsigned long long)f.offset);
        cr_expect_eq(f.tile, v->rule ? v->tile : 0, "%s: tile %llu", v->name, (unsigned long long)f.tile);
        cr_expect_str_eq(f.rule ? f.rule : "none", v->rule ? v->rule : "none", "%s", v->name);
        cr_expect_eq(pici_verify(block, v->len), v->status, "%s", v->name);
        cr_expect_eq(pici_verify_at(block, v->len, NULL), v->status, "%s", v->name);
    }
    pici_isa_force(NULL);
}

Test(codec_vectors, verdicts)
{
    cr_expect_gt(verdicts_read(directory, try_verdict, NULL), 300);
}

static void try_readers(const struct verdict *v, void *unused)
{
    (void)unused;
    const char *bad = check_readers(&rig, v->block, v->len, ROOM);
    cr_expect_null(bad, "%s: %s", v->name, bad);
}

Test(codec_vectors, all_readers_reach_the_verdicts)
{
    cr_expect_gt(verdicts_read(directory, try_readers, NULL), 300);
}

static const char *const rules[] = {"size",          "magic",       "version",       "format",     "dtype",
                                    "flags",         "index-width", "nnz",           "offsets",    "length",
                                    "checksum",      "past-end",    "checksum-flag", "tile-index", "padding",
                                    "rising",        "directory",   "stored-zero",   "occupancy",  "descriptor",
                                    "record-length", "tile-count",  "container",     "total",      "signs"};

enum { RULES = sizeof rules / sizeof *rules };

static void mark_rule(const struct verdict *v, void *context)
{
    unsigned *seen = context;
    for (unsigned i = 0; i < RULES; i++)
        if (v->rule && strcmp(v->rule, rules[i]) == 0)
            *seen |= 1u << i;
}

Test(codec_vectors, cover_every_rule)
{
    unsigned seen = 0;
    verdicts_read(directory, mark_rule, &seen);
    cr_expect_eq(seen, (1u << RULES) - 1, "%x", seen);
}
