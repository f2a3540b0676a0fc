/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Joins the pieces of a call to its result. */
#include <stdlib.h>
#include <string.h>

#include "coll/engine_stream.h"
#include "cpu/kernels.h"

/* The first pass counts rows, the second one writes them. */
struct join {
    uint64_t rows, last; /* rows so far; the index of the last of them */
    uint64_t room;       /* rows that there is memory for */
    uint8_t *indices, *values;
    uint64_t run;
    size_t width;
    int index_width;
};

/* Add the entries of a list whose position 0 is element `first` of the result. */
static void add_list(struct join *join, const struct pici_list *list, uint64_t first)
{
    const size_t width = join->width;
    static const uint8_t zeros[8];
    for (uint64_t i = 0; i < list->count; i++) {
        const uint8_t *value = list->values + i * width;
        const uint64_t element = first + list->positions[i], row = join->run == 1 ? element : element / join->run;
        if (memcmp(value, zeros, width) == 0)
            continue;
        if (!join->rows || row != join->last) {
            const uint32_t narrow = (uint32_t)row;
            if (join->indices && join->index_width == 4)
                memcpy(join->indices + 4 * join->rows, &narrow, 4);
            else if (join->indices)
                memcpy(join->indices + 8 * join->rows, &row, 8);
            if (join->values && join->run > 1)
                memset(join->values + join->rows * join->run * width, 0, (size_t)join->run * width);
            join->last = row;
            join->rows++;
        }
        if (join->values)
            memcpy(join->values + ((join->rows - 1) * join->run + (element - row * join->run)) * width, value, width);
    }
}

/* Add a piece if rows have one element, so that each entry is a row of its own. */
static void add_single(struct join *join, const struct stream_piece *piece, uint64_t first)
{
    const unsigned width_log2 = (unsigned)__builtin_ctzll(join->width);
    const int dense = piece->kind == PIECE_DENSE;
    const uint8_t *values = dense ? piece->dense : piece->list.values;
    const uint64_t entries = dense ? piece->count : piece->list.count;
    if (!entries)
        return;
    uint64_t nonzeros = piece->counted ? piece->nonzeros : 0;
    if (!piece->counted && (!dense || !join->indices))
        nonzeros = pici_isa()->move[width_log2]->count(values, (size_t)entries);
    if (!join->indices) {
        join->rows += nonzeros;
    } else if (dense) {
        join->rows += pici_list_extract(join->indices + join->rows * (unsigned)join->index_width,
                                        (unsigned)join->index_width, join->values + (join->rows << width_log2),
                                        join->room - join->rows, values, entries, first, width_log2);
    } else if (nonzeros < entries) {
        add_list(join, &piece->list, first);
    } else {
        uint8_t *index = join->indices + join->rows * (unsigned)join->index_width;
        for (uint64_t i = 0; i < entries && join->index_width == 4; i++, index += 4) {
            const uint32_t narrow = (uint32_t)first + piece->list.positions[i];
            memcpy(index, &narrow, 4);
        }
        for (uint64_t i = 0; i < entries && join->index_width == 8; i++, index += 8) {
            const uint64_t wide = first + piece->list.positions[i];
            memcpy(index, &wide, 8);
        }
        memcpy(join->values + (join->rows << width_log2), values, (size_t)entries << width_log2);
        join->rows += entries;
    }
}

static int add_piece(struct join *join, const struct stream_piece *piece, uint64_t first, struct pici_list *temp)
{
    enum { PART = 1 << 16 };
    const unsigned width_log2 = (unsigned)__builtin_ctzll(join->width);
    if (join->run == 1) {
        add_single(join, piece, first);
        return 1;
    }
    if (piece->kind == PIECE_LIST) {
        add_list(join, &piece->list, first);
        return 1;
    }
    for (uint64_t offset = 0, some; offset < piece->count; offset += some) {
        some = piece->count - offset < PART ? piece->count - offset : PART;
        if (!pici_list_of_dense(temp, piece->dense + offset * join->width, some, width_log2, 0))
            return 0;
        add_list(join, temp, first + offset);
    }
    return 1;
}

/* A segment in this rank's result, to be sorted by its first element. */
struct order {
    uint64_t first;
    int segment;
};

static int compare(const void *one, const void *other)
{
    const uint64_t a = ((const struct order *)one)->first, b = ((const struct order *)other)->first;
    return (a > b) - (a < b);
}

static int go_through(struct join *join, const struct stream_call *stream, const struct order *order, int segments,
                      const struct pici_comm *comm, const struct coll_call *call, struct pici_list *temp)
{
    join->rows = 0;
    for (int i = 0; i < segments; i++)
        for (uint64_t slice = 0; slice < stream->slices; slice++) {
            const struct coll_span span = pici_coll_slice(comm, call, order[i].segment, slice);
            const struct stream_piece *piece = &stream->results[(uint64_t)order[i].segment * stream->slices + slice];
            if (span.count && !add_piece(join, piece, span.first - stream->base, temp))
                return 0;
        }
    return 1;
}

static void *allocate(struct pici_stream_out *out, uint64_t count, uint64_t each)
{
    if (!count || count > SIZE_MAX / 2 / each)
        return NULL;
    return out->allocate ? out->allocate(out->context, (size_t)(count * each)) : malloc((size_t)(count * each));
}

/* Whether the sparse form takes more bytes than the dense one. */
static int is_longer(const struct join *join, uint64_t n)
{
    const double row = join->index_width + (double)join->run * (double)join->width;
    return (double)join->rows * row > (double)n * (double)join->width;
}

static enum pici_status write_sparse(struct join *join, struct pici_stream_out *out)
{
    const uint64_t rows = join->rows;
    out->form = PICI_STREAM_SPARSE;
    out->nnz = rows;
    out->index_width = join->index_width;
    if (!rows)
        return PICI_OK;
    out->indices = allocate(out, rows, (uint64_t)join->index_width);
    out->values = out->indices ? allocate(out, rows, join->run * join->width) : NULL;
    if (out->values) {
        join->room = rows;
        join->indices = out->indices;
        join->values = out->values;
        return PICI_OK;
    }
    if (!out->allocate)
        free(out->indices);
    out->indices = NULL;
    return PICI_E_NOMEM;
}

static void write_dense(const struct stream_call *stream, const struct order *order, int segments,
                        const struct pici_comm *comm, const struct coll_call *call)
{
    const size_t width = stream->width;
    uint8_t *dense = stream->out->dense;
    memset(dense, 0, (size_t)stream->out->n * width);
    for (int i = 0; i < segments; i++)
        for (uint64_t slice = 0; slice < stream->slices; slice++) {
            const struct coll_span span = pici_coll_slice(comm, call, order[i].segment, slice);
            const struct stream_piece *piece = &stream->results[(uint64_t)order[i].segment * stream->slices + slice];
            uint8_t *to = dense + (span.first - stream->base) * width;
            if (span.count && piece->kind == PIECE_DENSE)
                memcpy(to, piece->dense, (size_t)span.count * width);
            else if (span.count)
                pici_list_scatter(to, &piece->list, (unsigned)__builtin_ctzll(width));
        }
}

enum pici_status pici_stream_finish(struct stream_call *stream, const struct pici_comm *comm,
                                    const struct coll_call *call)
{
    struct pici_stream_out *out = stream->out;
    struct pici_list temp = {.capacity = 0};
    struct join join = {.run = stream->run, .width = stream->width, .index_width = stream->index_width};
    if (out->want == PICI_STREAM_DENSE) { /* all pieces are parts of it */
        out->form = PICI_STREAM_DENSE;
        out->dense = stream->dense;
        return PICI_OK;
    }
    const int own = call->args.kind == PICI_REDUCE_SCATTER, all = stream->segments;
    struct order *order = malloc((size_t)(all ? all : 1) * sizeof *order);
    int segments = 0;
    for (int i = 0; i < all && order; i++)
        if (!own || i == comm->virtual_rank)
            order[segments++] = (struct order){pici_coll_segment(comm, call, i).first, i};
    enum pici_status status = PICI_E_NOMEM;
    if (order) {
        qsort(order, (size_t)segments, sizeof *order, compare);
        if (go_through(&join, stream, order, segments, comm, call, &temp))
            status = PICI_OK;
    }
    if (!status && out->want == PICI_STREAM_SHORTER && is_longer(&join, out->n)) {
        out->form = PICI_STREAM_DENSE;
        out->dense = allocate(out, out->n, stream->width);
        if (out->dense)
            write_dense(stream, order, segments, comm, call);
        else
            status = PICI_E_NOMEM;
    } else if (!status) {
        status = write_sparse(&join, out);
        if (!status && join.indices && !go_through(&join, stream, order, segments, comm, call, &temp))
            status = PICI_E_NOMEM;
    }
    out->owned = !out->allocate;
    pici_list_free(&temp);
    free(order);
    return status;
}

void pici_stream_free(struct pici_stream_out *out)
{
    if (!out)
        return;
    if (out->owned) {
        free(out->indices);
        free(out->values);
        free(out->dense);
    }
    out->indices = out->values = out->dense = NULL;
    out->owned = 0;
}

void pici_stream_pieces_free(struct stream_pieces *pieces)
{
    for (size_t i = 0; pieces && i < pieces->count; i++) {
        pici_list_free(&pieces->piece[i].list);
        if (pieces->piece[i].room)
            free(pieces->piece[i].dense);
    }
    free(pieces);
}

/* Pieces reuse the memory of the last call's pieces: calls are often repeated, and fresh memory takes as long as the
 * sums. */
struct stream_pieces *pici_stream_pieces_new(struct pici_comm *comm, size_t count, size_t width)
{
    struct stream_pieces *pieces = calloc(1, sizeof *pieces + count * sizeof *pieces->piece), *last = comm->pieces;
    if (!pieces)
        return NULL;
    pieces->count = count;
    pieces->width = width;
    for (size_t i = 0; last && last->width == width && i < count && i < last->count; i++) {
        struct stream_piece *old = &last->piece[i];
        pieces->piece[i].list = old->list;
        pieces->piece[i].list.count = 0;
        pieces->piece[i].dense = old->room ? old->dense : NULL;
        pieces->piece[i].room = old->room;
        *old = (struct stream_piece){.kind = PIECE_LIST};
    }
    return pieces;
}

void pici_stream_close(struct stream_call *stream, struct pici_comm *comm, enum pici_status status)
{
    if (!stream)
        return;
    if (status) { /* there is no result */
        if (stream->out->owned && !stream->out->dense)
            free(stream->dense);
        pici_stream_free(stream->out);
        stream->out->dense = stream->given;
    }
    pici_list_free(&stream->nothing.list);
    if (stream->pieces) {
        pici_stream_pieces_free(comm->pieces);
        comm->pieces = stream->pieces;
    }
    free(stream->input.sorted);
    pici_engine_stream.close(stream->engine_self, 0);
    if (!stream->lent)
        free(stream);
}
