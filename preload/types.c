/* SPDX-License-Identifier: BSD-3-Clause */
#include "preload/types.h"

#include <stdint.h>
#include <stdlib.h>

enum { AT_ONCE = 1 << 30, DEEPEST = 64 };

/* MPI reports the widths: widths of Fortran types depend on its build. */
static const struct {
    MPI_Datatype type;
    enum kind kind;
} NAMED[] = {
    {MPI_FLOAT, FLOAT},
    {MPI_DOUBLE, FLOAT},
    {MPI_INT, SIGNED},
    {MPI_LONG, SIGNED},
    {MPI_UNSIGNED, UNSIGNED},
    {MPI_UNSIGNED_LONG, UNSIGNED},
    {MPI_INT8_T, SIGNED},
    {MPI_INT16_T, SIGNED},
    {MPI_INT32_T, SIGNED},
    {MPI_INT64_T, SIGNED},
    {MPI_UINT8_T, UNSIGNED},
    {MPI_UINT16_T, UNSIGNED},
    {MPI_UINT32_T, UNSIGNED},
    {MPI_UINT64_T, UNSIGNED},
    {MPI_SIGNED_CHAR, SIGNED},
    {MPI_SHORT, SIGNED},
    {MPI_LONG_LONG, SIGNED},
    {MPI_AINT, SIGNED},
    {MPI_OFFSET, SIGNED},
    {MPI_COUNT, SIGNED},
    {MPI_UNSIGNED_CHAR, UNSIGNED},
    {MPI_UNSIGNED_SHORT, UNSIGNED},
    {MPI_UNSIGNED_LONG_LONG, UNSIGNED},
    {MPI_C_FLOAT_COMPLEX, COMPLEX},
    {MPI_C_DOUBLE_COMPLEX, COMPLEX},
    {MPI_CXX_FLOAT_COMPLEX, COMPLEX},
    {MPI_CXX_DOUBLE_COMPLEX, COMPLEX},
    {MPI_REAL, FLOAT},
    {MPI_DOUBLE_PRECISION, FLOAT},
    {MPI_REAL4, FLOAT},
    {MPI_REAL8, FLOAT},
    {MPI_INTEGER, SIGNED},
    {MPI_INTEGER1, SIGNED},
    {MPI_INTEGER2, SIGNED},
    {MPI_INTEGER4, SIGNED},
    {MPI_INTEGER8, SIGNED},
    {MPI_COMPLEX, COMPLEX},
    {MPI_DOUBLE_COMPLEX, COMPLEX},
    {MPI_COMPLEX8, COMPLEX},
    {MPI_COMPLEX16, COMPLEX},
#ifdef MPI_REAL2
    {MPI_REAL2, FLOAT},
#endif
#ifdef MPIX_C_FLOAT16
    {MPIX_C_FLOAT16, FLOAT},
#endif
    {MPI_CHAR, RAW},
    {MPI_BYTE, RAW},
    {MPI_WCHAR, RAW},
    {MPI_C_BOOL, RAW},
    {MPI_CXX_BOOL, RAW},
    {MPI_LOGICAL, RAW},
    {MPI_CHARACTER, RAW},
};

/* MPI's description of a datatype. */
struct made {
    int combiner;
    MPI_Count integers, addresses, counts, types;
};

#if MPI_VERSION >= 4 /* the old functions refuse types that were made of large counts */
static int get_envelope(MPI_Datatype type, struct made *made)
{
    return PMPI_Type_get_envelope_c(type, &made->integers, &made->addresses, &made->counts, &made->types,
                                    &made->combiner);
}

static int get_contents(MPI_Datatype type, const struct made *made, int *integers, MPI_Aint *addresses,
                        MPI_Count *counts, MPI_Datatype *types)
{
    return PMPI_Type_get_contents_c(type, made->integers, made->addresses, made->counts, made->types, integers,
                                    addresses, counts, types);
}
#else
static int get_envelope(MPI_Datatype type, struct made *made)
{
    int integers, addresses, types;
    const int rc = PMPI_Type_get_envelope(type, &integers, &addresses, &types, &made->combiner);
    if (rc == MPI_SUCCESS) {
        made->integers = integers;
        made->addresses = addresses;
        made->counts = 0;
        made->types = types;
    }
    return rc;
}

static int get_contents(MPI_Datatype type, const struct made *made, int *integers, MPI_Aint *addresses,
                        MPI_Count *counts, MPI_Datatype *types)
{
    (void)counts;
    return PMPI_Type_get_contents(type, (int)made->integers, (int)made->addresses, (int)made->types, integers,
                                  addresses, types);
}
#endif

MPI_Count pmpi_type_size(MPI_Datatype type)
{
    MPI_Count size = 0;
    return PMPI_Type_size_x(type, &size) == MPI_SUCCESS && size > 0 ? size : 0;
}

static int named(MPI_Datatype type, struct basic *basic)
{
    for (size_t i = 0; i < sizeof NAMED / sizeof *NAMED; i++)
        if (NAMED[i].type == type) {
            *basic = (struct basic){NAMED[i].kind, (size_t)pmpi_type_size(type)};
            return basic->bytes > 0;
        }
    return 0;
}

/* Predefined pairs of one basic type, for MPI_MINLOC and MPI_MAXLOC: each has the signature of two elements. */
static const struct {
    MPI_Datatype type;
    enum kind kind;
} PAIRS[] = {
    {MPI_2INT, SIGNED},
    {MPI_2INTEGER, SIGNED},
    {MPI_2REAL, FLOAT},
    {MPI_2DOUBLE_PRECISION, FLOAT},
};

static int pair(MPI_Datatype type, struct basic *basic)
{
    for (size_t i = 0; i < sizeof PAIRS / sizeof *PAIRS; i++)
        if (PAIRS[i].type == type) {
            *basic = (struct basic){PAIRS[i].kind, (size_t)pmpi_type_size(type) / 2};
            return basic->bytes > 0;
        }
    return 0;
}

static int predefined(int combiner)
{
    return combiner == MPI_COMBINER_NAMED || combiner == MPI_COMBINER_F90_INTEGER ||
           combiner == MPI_COMBINER_F90_REAL || combiner == MPI_COMBINER_F90_COMPLEX;
}

static int parametrized(MPI_Datatype type, int combiner, struct basic *basic)
{
    *basic = (struct basic){.kind = COMPLEX, .bytes = (size_t)pmpi_type_size(type)};
    if (combiner == MPI_COMBINER_F90_INTEGER)
        basic->kind = SIGNED;
    else if (combiner == MPI_COMBINER_F90_REAL)
        basic->kind = FLOAT;
    return basic->bytes > 0;
}

/* Memory for count items, which may be 0. */
static void *room(MPI_Count count, size_t bytes)
{
    return calloc((size_t)count + 1, bytes);
}

/* A member of a struct may occur 0 times. With any other combiner, a type that occurs 0 times has no size, which the
 * caller has checked. */
static int occurs(const struct made *made, const int *integers, const MPI_Count *counts, MPI_Count i)
{
    if (made->combiner != MPI_COMBINER_STRUCT)
        return 1;
    return made->counts > 0 ? counts[i + 1] > 0 : integers[i + 1] > 0;
}

static int unfold(MPI_Datatype type, struct basic *basic, int *plain, int depth);

/* Find the one basic type of all of a derived type's members that occur. */
static int unfold_members(const struct made *made, const int *integers, const MPI_Count *counts,
                          const MPI_Datatype *types, struct basic *basic, int *plain, int depth)
{
    int members = 0, good = 1;
    for (MPI_Count i = 0; good && i < made->types; i++) {
        struct basic one;
        if (!occurs(made, integers, counts, i) || !pmpi_type_size(types[i]))
            continue;
        good = unfold(types[i], &one, plain, depth + 1) &&
               (!members || (one.kind == basic->kind && one.bytes == basic->bytes));
        *basic = one;
        members++;
    }
    return good && members;
}

static int unfold_derived(MPI_Datatype type, const struct made *made, struct basic *basic, int *plain, int depth)
{
    int *integers = room(made->integers, sizeof *integers);
    MPI_Aint *addresses = room(made->addresses, sizeof *addresses);
    MPI_Count *counts = room(made->counts, sizeof *counts);
    MPI_Datatype *types = room(made->types, sizeof *types);
    int good = integers && addresses && counts && types &&
               get_contents(type, made, integers, addresses, counts, types) == MPI_SUCCESS;
    if (good) {
        good = unfold_members(made, integers, counts, types, basic, plain, depth);
        for (MPI_Count i = 0; i < made->types; i++) {
            struct made of_member;
            if (get_envelope(types[i], &of_member) == MPI_SUCCESS && !predefined(of_member.combiner))
                PMPI_Type_free(&types[i]);
        }
    }
    free(integers);
    free(addresses);
    free(counts);
    free(types);
    return good;
}

static int extent_is_size(MPI_Datatype type)
{
    MPI_Aint lower_bound = 0, extent = 0;
    return PMPI_Type_get_extent(type, &lower_bound, &extent) == MPI_SUCCESS && !lower_bound &&
           extent == pmpi_type_size(type);
}

static int unfold(MPI_Datatype type, struct basic *basic, int *plain, int depth)
{
    struct made made;
    if (named(type, basic))
        return 1;
    if (pair(type, basic)) {
        *plain = 0; /* MPI_SUM, MPI_MIN and MPI_MAX do not take pairs */
        return 1;
    }
    if (depth > DEEPEST || get_envelope(type, &made) != MPI_SUCCESS || made.combiner == MPI_COMBINER_NAMED)
        return 0;
    if (predefined(made.combiner))
        return parametrized(type, made.combiner, basic);
    const int simple = made.combiner == MPI_COMBINER_DUP || made.combiner == MPI_COMBINER_CONTIGUOUS ||
                       made.combiner == MPI_COMBINER_RESIZED;
    const int good = unfold_derived(type, &made, basic, plain, depth);
    *plain = *plain && simple && extent_is_size(type);
    return good;
}

int pmpi_basic(MPI_Datatype type, struct basic *basic, int *plain)
{
    int is_plain = 1;
    const int good = unfold(type, basic, &is_plain, 0);
    if (plain)
        *plain = is_plain;
    return good;
}

int pmpi_dtype_reduced(const struct basic *basic, int sums, enum pici_dtype *dtype, int *each)
{
    static const enum pici_dtype OF_WIDTH[][9] = {
        [SIGNED] = {[1] = PICI_I8, [2] = PICI_I16, [4] = PICI_I32, [8] = PICI_I64},
        [UNSIGNED] = {[1] = PICI_U8, [2] = PICI_U16, [4] = PICI_U32, [8] = PICI_U64},
        [FLOAT] = {[2] = PICI_F16, [4] = PICI_F32, [8] = PICI_F64},
    };
    const int pairs = basic->kind == COMPLEX;
    const size_t width = pairs ? basic->bytes / 2 : basic->bytes;
    if (basic->kind == RAW || width > 8 || (pairs && !sums))
        return 0;
    *dtype = OF_WIDTH[pairs ? FLOAT : basic->kind][width];
    *each = pairs ? 2 : 1;
    return *dtype != 0;
}

int pmpi_dtype_gathered(const struct basic *basic, enum pici_dtype *dtype, int *each)
{
    *each = basic->kind == COMPLEX ? 2 : 1;
    switch (basic->bytes / (size_t)*each) {
    case 1: *dtype = PICI_U8; return 1;
    case 2: *dtype = PICI_U16; return 1;
    case 4: *dtype = PICI_U32; return 1;
    case 8: *dtype = PICI_U64; return 1;
    default: return 0;
    }
}

/* Items in memory. MPI may pack `most` of them at once, since its counts of bytes are ints. */
struct items {
    MPI_Datatype type;
    uintptr_t address; /* of the first */
    MPI_Aint extent;
    MPI_Count size, most;
    int own_type;
};

/* MPICH refuses to pack a buffer at 0 with absolute addresses in the datatype: move both. */
static int move_from_zero(struct items *items)
{
    enum { AWAY = 64 };
    const MPI_Aint back = -AWAY;
    const int one = 1;
    if (PMPI_Type_create_hindexed(1, &one, &back, items->type, &items->type) != MPI_SUCCESS)
        return 0;
    items->own_type = 1;
    items->address = AWAY;
    return PMPI_Type_commit(&items->type) == MPI_SUCCESS;
}

static int open_items(struct items *items, const void *buffer, MPI_Datatype type)
{
    MPI_Aint lower_bound;
    *items = (struct items){.type = type, .address = (uintptr_t)buffer, .size = pmpi_type_size(type)};
    items->most = items->size ? AT_ONCE / items->size : 0;
    return items->most && PMPI_Type_get_extent(type, &lower_bound, &items->extent) == MPI_SUCCESS &&
           (buffer || move_from_zero(items));
}

static void close_items(struct items *items)
{
    if (items->own_type)
        PMPI_Type_free(&items->type);
}

/* Extents may be negative. */
static void *item(const struct items *items, MPI_Count i)
{
    return (void *)(items->address + (uintptr_t)i * (uintptr_t)items->extent);
}

static int copy(const void *buffer, MPI_Count count, MPI_Datatype type, uint8_t *packed, int unpacks, MPI_Comm comm)
{
    struct items items;
    int good = open_items(&items, buffer, type);
    for (MPI_Count i = 0; good && i < count; i += items.most) {
        const int items_now = (int)(count - i < items.most ? count - i : items.most),
                  bytes = (int)(items_now * items.size);
        uint8_t *const packed_at = packed + i * items.size;
        int position = 0;
        const int rc = unpacks ? PMPI_Unpack(packed_at, bytes, &position, item(&items, i), items_now, items.type, comm)
                               : PMPI_Pack(item(&items, i), items_now, items.type, packed_at, bytes, &position, comm);
        good = rc == MPI_SUCCESS && position == bytes;
    }
    close_items(&items);
    return good;
}

int pmpi_pack(const void *buffer, MPI_Count count, MPI_Datatype type, void *packed, MPI_Comm comm)
{
    return copy(buffer, count, type, packed, 0, comm);
}

int pmpi_unpack(const void *packed, void *buffer, MPI_Count count, MPI_Datatype type, MPI_Comm comm)
{
    return copy(buffer, count, type, (uint8_t *)packed, 1, comm);
}
