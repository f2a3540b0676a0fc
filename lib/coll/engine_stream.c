/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in lists. Where other engines get addresses of elements, it gets pieces (engine_stream.h). To
 * reduce two lists, it takes the union of their positions, fills in +0 where a list has no entry, and runs the kernels
 * for dense elements on the values. So results are bit-identical to dense ones. */
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "coll/engine.h"
#include "coll/engine_stream.h"
#include "cpu/kernels.h"
#include "cpu/reduce.h"

struct pici_queue {
    const uint8_t *looked;
    struct stream_engine *engine;
};

struct stream_engine {
    struct stream_call *call;
    void *host_self; /* of the host's engine, whose memory messages are in */
    unsigned width_log2;
    enum pici_status failed; /* since the last call of ready */
    struct pici_list positions, received, other, sum;
    struct stream_piece scattered; /* memory for a slice that is encoded */
    struct pici_queue queue[COLL_MAX_WINDOW];
};

void *pici_engine_stream_new(struct stream_call *call, void *host_self)
{
    struct stream_engine *engine = calloc(1, sizeof *engine);
    if (!engine)
        return NULL;
    engine->call = call;
    engine->host_self = host_self;
    engine->width_log2 = (unsigned)__builtin_ctzll(call->width);
    for (int i = 0; i < COLL_MAX_WINDOW; i++)
        engine->queue[i].engine = engine;
    return engine;
}

/* ---- functions of the host's engine */

static int stream_owns(void *self, const void *address)
{
    return pici_engine_host.owns(self, address);
}

static enum pici_status stream_enter(void *self, void **mark)
{
    return pici_engine_host.enter(self, mark);
}

static enum pici_status stream_begin(void *self, void *mark, int queues)
{
    return pici_engine_host.begin(self, mark, queues);
}

static int stream_holds(void *self, const void *address)
{
    return pici_engine_host.holds(self, address);
}

static int stream_move(void *self, void *to, const void *from, size_t bytes)
{
    return pici_engine_host.move(self, to, from, bytes);
}

static int stream_halt(void *self)
{
    return pici_engine_host.halt(self);
}

static const char *stream_error(void *self)
{
    const struct stream_engine *engine = self;
    return pici_engine_host.error(engine->host_self);
}

static void stream_put(struct pici_queue *queue, uint8_t *to, const uint8_t *from, size_t bytes)
{
    (void)queue;
    memcpy(to, from, bytes);
}

static void stream_containers(struct pici_queue *queue, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block,
                              size_t size)
{
    (void)queue;
    pici_engine_host.containers(NULL, tiles, block, size);
}

/* ---- memory */

static void stream_close(void *self, int leak)
{
    struct stream_engine *engine = self;
    (void)leak; /* messages are the host's */
    if (!engine)
        return;
    pici_list_free(&engine->positions);
    pici_list_free(&engine->received);
    pici_list_free(&engine->other);
    pici_list_free(&engine->sum);
    free(engine->scattered.dense);
    free(engine);
}

/* Sums are pieces, so they need no memory here. */
static enum pici_status stream_room(void *self, const struct engine_needs *needs, struct engine_room *room,
                                    struct pici_queue **queues)
{
    struct stream_engine *engine = self;
    struct engine_needs messages = *needs;
    messages.sums = 0;
    messages.memory = NULL;
    const enum pici_status status = pici_engine_host.room(engine->host_self, &messages, room, queues);
    for (int i = 0; i < needs->queues; i++)
        queues[i] = &engine->queue[i];
    return status;
}

static enum pici_status stream_ready(struct pici_queue *queue, int *done)
{
    enum pici_status status = PICI_OK;
    *done = 1;
    if (queue) {
        status = queue->engine->failed;
        queue->engine->failed = PICI_OK;
    }
    return status;
}

static void stream_look(struct pici_queue *queue, const uint8_t *message, size_t bytes, int blocks)
{
    (void)bytes;
    (void)blocks;
    queue->looked = message;
}

static const uint8_t *stream_head(struct pici_queue *queue, int i, size_t offset)
{
    return queue->looked + (i < 0 ? 0 : offset);
}

/* ---- pieces */

/* Whether a dense slice is cheaper than a list of `entries` entries. */
static int better_dense(const struct stream_engine *engine, uint64_t entries, uint64_t count)
{
    return pici_policy_dense(pici_policy_sparsity(entries < count ? entries : count, count), engine->call->threshold);
}

/* Whether the piece is in the caller's result, where it must stay. */
static int is_fixed(const struct stream_piece *piece)
{
    return piece->dense && !piece->room;
}

/* Make a piece dense, with room for its elements, which it does not set. 0: no memory. */
static int make_room(struct stream_engine *engine, struct stream_piece *piece, uint64_t count)
{
    piece->kind = PIECE_DENSE;
    piece->count = count;
    piece->counted = 0;
    if (is_fixed(piece) || count <= piece->room)
        return 1;
    uint8_t *more = NULL;
    if (count <= SIZE_MAX >> engine->width_log2)
        more = malloc((size_t)count << engine->width_log2);
    if (!more) {
        piece->kind = PIECE_LIST;
        piece->list.count = 0;
        return 0;
    }
    free(piece->dense);
    piece->dense = more;
    piece->room = count;
    return 1;
}

static int make_dense(struct stream_engine *engine, struct stream_piece *piece, const struct pici_list *list,
                      uint64_t count)
{
    if (!make_room(engine, piece, count))
        return 0;
    memset(piece->dense, 0, (size_t)count << engine->width_log2);
    pici_list_scatter(piece->dense, list, engine->width_log2);
    return 1;
}

static void swap_lists(struct pici_list *one, struct pici_list *other)
{
    const struct pici_list list = *one;
    *one = *other;
    *other = list;
}

/* A piece's elements: returns them dense, or NULL and a list. The list may be in the engine's memory, which the next
 * view overwrites. */
static const uint8_t *view_of(struct stream_engine *engine, struct pici_list *view, const struct stream_piece *piece,
                              enum pici_status *status)
{
    if (piece->kind == PIECE_DENSE)
        return piece->dense;
    if (piece->kind == PIECE_LIST) {
        *view = piece->list;
        return NULL;
    }
    const uint8_t *dense = pici_stream_view(view, &engine->positions, &engine->call->input, piece->first, piece->count,
                                            engine->call->width);
    if (!dense && !view->values)
        *status = PICI_E_NOMEM;
    return dense;
}

static void fail(struct stream_engine *engine)
{
    engine->failed = PICI_E_NOMEM;
}

/* ---- elements */

/* The treatment of float zeros in a copy. */
enum zeros { ZEROS_KEPT, ZEROS_POSITIVE, ZEROS_QUIET };

/* Copy elements, or the values of a list, with positive zeros. Does nothing for ZEROS_KEPT. */
static void make_positive(uint8_t *to, const uint8_t *from, uint64_t count, enum pici_dtype dtype, enum zeros zeros)
{
    if (count && zeros != ZEROS_KEPT)
        pici_positive_zeros(to, from, (size_t)count, (unsigned)dtype, zeros == ZEROS_QUIET);
}

/* Zeros outside of a list are positive, so only the list's values change, before it becomes dense. */
static void copy_piece(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                       enum pici_dtype dtype, enum zeros zeros)
{
    struct stream_engine *engine = queue->engine;
    struct stream_piece *to = destination;
    struct pici_list view;
    enum pici_status status = PICI_OK;
    if (!count)
        return;
    const uint8_t *dense = view_of(engine, &view, source, &status);
    if (status) {
        fail(engine);
        return;
    }
    if (dense) {
        if (!make_room(engine, to, count))
            fail(engine);
        else if (zeros == ZEROS_KEPT)
            memcpy(to->dense, dense, (size_t)count << engine->width_log2);
        else
            make_positive(to->dense, dense, count, dtype, zeros);
        return;
    }
    if (is_fixed(to) || better_dense(engine, view.count, count)) {
        if (zeros != ZEROS_KEPT && view.count) {
            if (!pici_list_reserve(&engine->other, view.count, engine->width_log2)) {
                fail(engine);
                return;
            }
            make_positive(engine->other.values, view.values, view.count, dtype, zeros);
            view.values = engine->other.values;
        }
        if (!make_dense(engine, to, &view, count))
            fail(engine);
        return;
    }
    to->kind = PIECE_LIST;
    to->count = count;
    to->counted = 0;
    to->list.count = 0;
    if (!pici_list_reserve(&to->list, view.count, engine->width_log2)) {
        fail(engine);
        return;
    }
    if (view.count) {
        memcpy(to->list.positions, view.positions, (size_t)view.count * sizeof *view.positions);
        memcpy(to->list.values, view.values, (size_t)view.count << engine->width_log2);
    }
    to->list.count = view.count;
    make_positive(to->list.values, to->list.values, view.count, dtype, zeros);
}

static void stream_copy(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                        enum pici_dtype dtype)
{
    copy_piece(queue, destination, source, count, dtype, ZEROS_KEPT);
}

/* A piece's values in its own memory, for changes in place. Its nonzeros no longer count as counted. */
static uint8_t *values_of(struct stream_piece *piece, uint64_t count, size_t *entries)
{
    *entries = (size_t)(piece->kind == PIECE_DENSE ? count : piece->list.count);
    piece->counted = 0;
    return piece->kind == PIECE_DENSE ? piece->dense : piece->list.values;
}

static void stream_positive_zeros(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                                  enum pici_dtype dtype, int quiet)
{
    const enum zeros zeros = quiet ? ZEROS_QUIET : ZEROS_POSITIVE;
    size_t entries;
    if (!count)
        return;
    if (destination != source) {
        copy_piece(queue, destination, source, count, dtype, zeros);
        return;
    }
    uint8_t *values = values_of(destination, count, &entries);
    make_positive(values, values, entries, dtype, zeros);
}

static void stream_divide(struct pici_queue *queue, void *destination, uint64_t count, enum pici_dtype dtype, int ranks)
{
    size_t entries;
    (void)queue;
    uint8_t *values = count ? values_of(destination, count, &entries) : NULL;
    if (values && entries)
        pici_divide(values, entries, (unsigned)dtype, ranks);
}

static const struct pici_move *move_of(const struct stream_engine *engine, int by_value)
{
    return (by_value ? pici_isa()->by_value : pici_isa()->move)[engine->width_log2];
}

static void stream_count(struct pici_queue *queue, const void *const *source, const uint64_t *count, int runs,
                         const struct engine_array *array, int arrays, uint64_t *nonzeros)
{
    struct stream_engine *engine = queue->engine;
    const struct pici_move *move = move_of(engine, array->by_value);
    (void)arrays; /* always 1: there are no lossy codecs */
    for (int i = 0; i < runs; i++) {
        struct pici_list view;
        enum pici_status status = PICI_OK;
        nonzeros[i] = 0;
        if (!count[i])
            continue;
        const uint8_t *dense = view_of(engine, &view, source[i], &status);
        if (status)
            fail(engine);
        else if (dense)
            nonzeros[i] = move->count(dense, (size_t)count[i]);
        else
            nonzeros[i] = view.count ? move->count(view.values, (size_t)view.count) : 0;
    }
}

/* ---- blocks */

/* Drop the zeros of a list, which a block does not store. */
static enum pici_status without_zeros(struct stream_engine *engine, struct pici_list *list, int by_value)
{
    const struct pici_move *move = move_of(engine, by_value);
    struct pici_list *kept = &engine->other;
    const uint64_t nonzeros = list->count ? move->count(list->values, (size_t)list->count) : 0;
    if (nonzeros == list->count)
        return PICI_OK;
    /* first indices into the list, then the positions there */
    if (!pici_list_of_dense(kept, list->values, list->count, engine->width_log2, by_value))
        return PICI_E_NOMEM;
    for (uint64_t i = 0; i < kept->count; i++)
        kept->positions[i] = list->positions[kept->positions[i]];
    *list = *kept;
    list->capacity = 0;
    return PICI_OK;
}

static enum pici_status encode_list(struct stream_engine *engine, uint8_t *output, size_t capacity, size_t *size,
                                    const struct pici_list *entries, uint64_t count, const struct engine_array *array,
                                    int checksum)
{
    struct pici_list list = *entries;
    const unsigned formats = engine->call->formats;
    enum pici_format format = PICI_COO;
    enum pici_status status = without_zeros(engine, &list, array->by_value);
    if (status)
        return status;
    uint64_t bytes = pici_list_bytes(&list, PICI_COO, count, array->dtype);
    if (formats >> PICI_HYBRID & 1 && (!(formats >> PICI_COO & 1) || count / TILE / GROUP_TILES <= 4 * list.count)) {
        const uint64_t hybrid = pici_list_bytes(&list, PICI_HYBRID, count, array->dtype);
        const int fits = !engine->call->longest || hybrid <= engine->call->longest;
        if (fits && (hybrid < bytes || !(formats >> PICI_COO & 1))) {
            bytes = hybrid;
            format = PICI_HYBRID;
        }
    }
    if (bytes > capacity)
        return PICI_E_SPACE;
    pici_list_write(output, &list, format, count, array->dtype, checksum);
    *size = (size_t)bytes;
    return PICI_OK;
}

static enum pici_status encode_piece(struct stream_engine *engine, uint8_t *output, size_t capacity, size_t *size,
                                     const struct stream_piece *piece, uint64_t count, const struct engine_array *array,
                                     int checksum)
{
    const size_t longest = engine->call->longest;
    struct pici_list view = {.values = NULL};
    enum pici_status status = PICI_OK;
    const uint8_t *dense = count ? view_of(engine, &view, piece, &status) : NULL;
    if (status)
        return status;
    if (!dense && count && better_dense(engine, view.count, count)) { /* a pass over all elements takes less time */
        if (!make_dense(engine, &engine->scattered, &view, count))
            return PICI_E_NOMEM;
        dense = engine->scattered.dense;
    }
    if (!dense)
        return encode_list(engine, output, capacity, size, &view, count, array, checksum);
    const void *source = dense;
    const size_t most = longest && longest < capacity ? longest : capacity;
    status = pici_engine_host.encode(NULL, output, 0, most, size, &source, &count, 1, array, 1, checksum);
    if (status != PICI_E_SPACE || !longest)
        return status;
    /* the requested format is longer than the room that all ranks have */
    if (!pici_list_of_dense(&engine->received, dense, count, engine->width_log2, array->by_value))
        return PICI_E_NOMEM;
    return encode_list(engine, output, capacity, size, &engine->received, count, array, checksum);
}

static enum pici_status stream_encode(struct pici_queue *queue, uint8_t *message, size_t offset, size_t capacity,
                                      size_t *size, const void *const *source, const uint64_t *count, int runs,
                                      const struct engine_array *array, int arrays, int checksum)
{
    enum pici_status status = PICI_OK;
    (void)arrays;
    for (int i = 0; i < runs && !status; i++) {
        status = encode_piece(queue->engine, message + offset, capacity - offset, &size[i], source[i], count[i], array,
                              checksum);
        offset += status ? 0 : size[i];
    }
    return status;
}

/* The block of a header that was parsed from its message. */
static struct pici_block whole_of(const struct pici_block *parsed, const uint8_t *bytes)
{
    struct pici_block whole = *parsed;
    whole.bytes = bytes;
    (void)pici_block_whole(&whole, (size_t)parsed->layout.block_bytes, NULL); /* the length is the header's */
    return whole;
}

/* Whether to decode a block to a list, for a result as a list. The decoder builds lists tile by tile in the first-level
 * cache, so they pay up to a higher density than in additions. */
static int is_listed(const struct stream_engine *engine, const struct stream_piece *piece,
                     const struct pici_block *block)
{
    enum { HALF = 2 };
    const struct stream_call *call = engine->call;
    return call->out->want != PICI_STREAM_DENSE && piece >= call->results &&
           piece < call->results + (uint64_t)call->segments * call->slices && call->threshold < 1 &&
           block->format != FMT_DENSE && block->nonzeros < block->count / HALF;
}

static enum pici_status stream_decode(struct pici_queue *queue, void *destination, const uint8_t *block,
                                      const struct pici_block *parsed, uint64_t output)
{
    struct stream_engine *engine = queue->engine;
    struct stream_piece *to = destination;
    const struct pici_block whole = whole_of(parsed, block);
    const int dense = parsed->count && better_dense(engine, parsed->nonzeros, parsed->count);
    enum pici_status status;
    if (is_fixed(to) || (dense && !is_listed(engine, to, parsed))) {
        if (parsed->nonzeros > engine->call->most && parsed->format != FMT_DENSE)
            return PICI_E_CORRUPT;
        if (!make_room(engine, to, parsed->count))
            return PICI_E_NOMEM;
        /* all elements that sparse blocks store have a bit set; blocks of another version also represent negative
         * zeros */
        to->counted = (parsed->format == FMT_COO || parsed->format == FMT_HYBRID || parsed->format == FMT_BITMAP) &&
                      parsed->layout.version == FMT_VERSION;
        to->nonzeros = parsed->nonzeros;
        return pici_block_decode(to->dense, &whole, output);
    }
    to->kind = PIECE_LIST;
    to->count = parsed->count;
    status = pici_list_read(&to->list, &whole, engine->call->most);
    to->counted = 1;
    to->nonzeros = to->list.count;
    return status;
}

/* Whether the operation changes elements that only one of two operands has. */
static int is_ordered(enum pici_op op)
{
    return op == PICI_MIN || op == PICI_MAX;
}

static enum pici_status stream_reduce(struct pici_queue *queue, void *destination, const uint8_t *block,
                                      const struct pici_block *parsed, enum pici_op op, void *temp,
                                      uint64_t temp_elements)
{
    struct stream_engine *engine = queue->engine;
    struct stream_piece *to = destination;
    const struct pici_block whole = whole_of(parsed, block);
    if (to->kind == PIECE_LIST && parsed->count &&
        better_dense(engine, parsed->nonzeros + to->list.count, parsed->count)) {
        if (!make_dense(engine, to, &to->list, parsed->count))
            return PICI_E_NOMEM;
    }
    to->counted = 0;
    if (to->kind == PIECE_DENSE)
        return pici_engine_host.reduce(NULL, to->dense, block, parsed, op, temp, temp_elements);
    enum pici_status status = pici_list_read(&engine->received, &whole, engine->call->most);
    const uint64_t both = engine->received.count + to->list.count;
    if (status || (!engine->received.count && !is_ordered(op)))
        return status;
    if (!pici_list_reserve(&engine->sum, both, engine->width_log2) ||
        !pici_list_reserve(&engine->other, both, engine->width_log2))
        return PICI_E_NOMEM;
    struct pici_list *sum = &engine->sum;
    sum->count = pici_list_union(sum->positions, sum->values, engine->other.values, &to->list, &engine->received,
                                 engine->width_log2);
    if (sum->count && is_ordered(op))
        pici_reduce(sum->values, engine->other.values, (size_t)sum->count, parsed->dtype, op == PICI_MAX);
    else if (sum->count)
        pici_isa()->add[parsed->dtype]->dense(sum->values, engine->other.values, (size_t)sum->count);
    swap_lists(&to->list, sum);
    return PICI_OK;
}

static enum pici_status stream_reduce_own(struct pici_queue *queue, void *destination, const uint8_t *block,
                                          size_t size, uint64_t count, enum pici_dtype dtype, enum pici_op op,
                                          void *temp, uint64_t temp_elements)
{
    struct pici_block parsed;
    (void)count;
    (void)dtype;
    const enum pici_status status = pici_block_parse(&parsed, block, size, NULL);
    return status ? status : stream_reduce(queue, destination, block, &parsed, op, temp, temp_elements);
}

/* ---- no lossy codecs */

static enum pici_status stream_quantize(struct pici_queue *queue, const struct values *values,
                                        const struct values_where *where, void *const outputs[VALUES_ARRAYS],
                                        uint64_t made_counts[VALUES_ARRAYS], const void *source, uint64_t count,
                                        struct values_loss *loss)
{
    (void)queue, (void)values, (void)where, (void)outputs, (void)made_counts, (void)source, (void)count, (void)loss;
    return PICI_E_UNSUPPORTED;
}

static enum pici_status stream_dequantize(struct pici_queue *queue, const struct engine_values *usage,
                                          enum engine_store store, void *destination, uint64_t count,
                                          const void *const inputs[VALUES_ARRAYS],
                                          const uint64_t input_counts[VALUES_ARRAYS], void *temp, size_t temp_bytes)
{
    (void)queue, (void)usage, (void)store, (void)destination, (void)count, (void)inputs, (void)input_counts, (void)temp,
        (void)temp_bytes;
    return PICI_E_UNSUPPORTED;
}

const struct pici_engine pici_engine_stream = {
    .size = sizeof(struct pici_engine),
    .name = "stream",
    .cost_scale = 1,
    .owns = stream_owns,
    .enter = stream_enter,
    .begin = stream_begin,
    .room = stream_room,
    .holds = stream_holds,
    .move = stream_move,
    .halt = stream_halt,
    .close = stream_close,
    .error = stream_error,
    .ready = stream_ready,
    .copy = stream_copy,
    .positive_zeros = stream_positive_zeros,
    .count = stream_count,
    .prefix = stream_put,
    .encode = stream_encode,
    .put = stream_put,
    .look = stream_look,
    .head = stream_head,
    .decode = stream_decode,
    .reduce = stream_reduce,
    .reduce_own = stream_reduce_own,
    .quantize = stream_quantize,
    .dequantize = stream_dequantize,
    .containers = stream_containers,
    .divide = stream_divide,
};
