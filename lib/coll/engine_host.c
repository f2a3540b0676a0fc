/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The engine for elements in the host's memory: the codec, and the kernels below it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "codec/codec.h"
#include "coll/engine.h"
#include "cpu/kernels.h"
#include "cpu/reduce.h"

struct pici_queue {
    const uint8_t *looked; /* the message that was looked at last */
};

struct host {
    uint8_t *scratch;
    size_t bytes;
    struct pici_queue queue[COLL_MAX_WINDOW];
    char error[120];
};

/* ---- memory */

void *pici_engine_host_new(void)
{
    return calloc(1, sizeof(struct host));
}

enum pici_status pici_engine_host_reserve(void *self, size_t bytes)
{
    struct host *host = self;
    if (bytes <= host->bytes)
        return PICI_OK;
    uint8_t *more =
        bytes > SIZE_MAX - COLL_ALIGN ? NULL : aligned_alloc(COLL_ALIGN, (bytes + COLL_ALIGN) & -(size_t)COLL_ALIGN);
    if (!more)
        return PICI_E_NOMEM;
    free(host->scratch);
    host->scratch = more;
    host->bytes = bytes;
    return PICI_OK;
}

size_t pici_engine_host_scratch(const void *self)
{
    const struct host *host = self;
    return host->bytes;
}

static enum pici_status host_room(void *self, const struct engine_needs *needs, struct engine_room *room,
                                  struct pici_queue **queues)
{
    struct host *host = self;
    const size_t temp = needs->temp ? needs->temp : COLL_TEMP_BYTES;
    const size_t all = needs->messages + needs->sums + needs->arrays + temp + COLL_ALIGN;
    host->error[0] = '\0';
    for (int i = 0; i < needs->queues; i++)
        queues[i] = &host->queue[i];
    *room = (struct engine_room){0};
    /* there is no data to exchange */
    if (!needs->messages)
        return PICI_OK;
    if (needs->memory && needs->memory_bytes < all) {
        snprintf(host->error, sizeof host->error, "%zu bytes of scratch where %zu are needed", needs->memory_bytes,
                 all);
        return PICI_E_SPACE;
    }
    if (!needs->memory && pici_engine_host_reserve(host, all)) {
        snprintf(host->error, sizeof host->error, "no memory for %zu bytes of scratch", all);
        return PICI_E_NOMEM;
    }
    uint8_t *position = needs->memory ? needs->memory : host->scratch;
    position += -(uintptr_t)position % COLL_ALIGN;
    room->messages = position;
    room->sums = position + needs->messages;
    room->arrays = room->sums + needs->sums;
    room->temp = room->arrays + needs->arrays;
    return PICI_OK;
}

int pici_engine_host_kernels(void)
{
    const char *name = pici_isa()->name;
    if (!strcmp(name, "avx512"))
        return 2;
    return !strcmp(name, "avx2");
}

static void host_close(void *self, int leak)
{
    struct host *host = self;
    if (!leak)
        free(host->scratch);
    free(host);
}

static const char *host_error(void *self)
{
    const struct host *host = self;
    return host->error;
}

/* ---- trivial functions: all memory is the host's, and work has ended when a function returns */

static int host_owns(void *self, const void *address)
{
    (void)self;
    (void)address;
    return 1;
}

static enum pici_status host_enter(void *self, void **mark)
{
    (void)self;
    *mark = NULL;
    return PICI_OK;
}

static enum pici_status host_begin(void *self, void *mark, int queues)
{
    (void)self;
    (void)mark;
    (void)queues;
    return PICI_OK;
}

static int host_holds(void *self, const void *address)
{
    (void)self;
    (void)address;
    return 0;
}

static int host_move(void *self, void *to, const void *from, size_t bytes)
{
    (void)self;
    memcpy(to, from, bytes);
    return 1;
}

static int host_halt(void *self)
{
    (void)self;
    return 0;
}

static enum pici_status host_ready(struct pici_queue *queue, int *done)
{
    (void)queue;
    *done = 1;
    return PICI_OK;
}

static void host_look(struct pici_queue *queue, const uint8_t *message, size_t bytes, int blocks)
{
    (void)bytes;
    (void)blocks;
    queue->looked = message;
}

static const uint8_t *host_head(struct pici_queue *queue, int i, size_t offset)
{
    return queue->looked + (i < 0 ? 0 : offset);
}

/* ---- elements */

static void host_copy(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                      enum pici_dtype dtype)
{
    (void)queue;
    if (count)
        memcpy(destination, source, (size_t)count * pici_dtype_width(dtype));
}

static void host_positive_zeros(struct pici_queue *queue, void *destination, const void *source, uint64_t count,
                                enum pici_dtype dtype, int quiet)
{
    (void)queue;
    if (count)
        pici_positive_zeros(destination, source, (size_t)count, (unsigned)dtype, quiet);
}

static void host_count(struct pici_queue *queue, const void *const *source, const uint64_t *count, int runs,
                       const struct engine_array *array, int arrays, uint64_t *nonzeros)
{
    const struct pici_isa *isa = pici_isa();
    (void)queue;
    for (int k = 0; k < arrays * runs; k++) {
        const struct engine_array *current = &array[k / runs];
        const struct pici_move *move =
            (current->by_value ? isa->by_value : isa->move)[fmt_width_log2((unsigned)current->dtype)];
        nonzeros[k] = count[k] ? move->count(source[k], (size_t)count[k]) : 0;
    }
}

static void host_put(struct pici_queue *queue, uint8_t *to, const uint8_t *from, size_t bytes)
{
    (void)queue;
    memcpy(to, from, bytes);
}

static enum pici_status host_encode(struct pici_queue *queue, uint8_t *message, size_t offset, size_t capacity,
                                    size_t *size, const void *const *source, const uint64_t *count, int runs,
                                    const struct engine_array *array, int arrays, int checksum)
{
    struct pici_opts opts = PICI_OPTS_INIT;
    enum pici_status status = PICI_OK;
    (void)queue;
    opts.checksum = checksum;
    for (int i = 0; i < runs * arrays && !status; i++) {
        const struct engine_array *current = &array[i % arrays];
        const int k = i % arrays * runs + i / arrays;
        opts.zeros = current->by_value && current->format != PICI_DENSE ? PICI_ZEROS_BY_VALUE : PICI_ZEROS_EXACT;
        opts.pack = current->format == PICI_PACKED ? PICI_PACK_FAST : PICI_PACK_NONE;
        status = pici_compress(message + offset, capacity - offset, &size[k], source[k], count[k], current->dtype,
                               current->format, &opts);
        if (!status && current->format == PICI_PACKED && current->unpacked != PICI_PACKED &&
            size[k] >= HDR_BYTES + count[k] * pici_dtype_width(current->dtype)) {
            opts.pack = PICI_PACK_NONE;
            status = pici_compress(message + offset, capacity - offset, &size[k], source[k], count[k], current->dtype,
                                   current->unpacked, &opts);
        }
        offset += size[k];
    }
    return status;
}

/* Return a block with pointers into its bytes; its header was parsed from a copy. */
static struct pici_block at_bytes(const struct pici_block *parsed, const uint8_t *bytes)
{
    struct pici_block whole = *parsed;
    whole.bytes = bytes;
    /* sets pointers; cannot fail, since the length is the header's */
    (void)pici_block_whole(&whole, (size_t)parsed->layout.block_bytes, NULL);
    return whole;
}

static enum pici_status host_decode(struct pici_queue *queue, void *destination, const uint8_t *block,
                                    const struct pici_block *parsed, uint64_t output)
{
    const struct pici_block whole = at_bytes(parsed, block);
    (void)queue;
    return pici_block_decode(destination, &whole, output);
}

static void host_containers(struct pici_queue *queue, uint64_t tiles[PICI_CONTAINERS], const uint8_t *block,
                            size_t size)
{
    struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
    (void)queue;
    (void)pici_breakdown(&breakdown, block, size); /* adds no tiles if the block is not hybrid */
    for (int i = 0; i < PICI_CONTAINERS; i++)
        tiles[i] += breakdown.tiles[i];
}

/* Check the rules that pici_decompress_range does not: checksum, padding, and the total and version of hybrid and
 * packed blocks. */
static enum pici_status check_whole(const struct pici_block *parsed, size_t size)
{
    struct pici_breakdown breakdown = PICI_BREAKDOWN_INIT;
    uint64_t nonzeros = 0;
    enum pici_status status = pici_block_checksum(parsed, NULL);
    if (!status)
        status = pici_block_padding(parsed, NULL);
    if (status || !fmt_has_groups(parsed->format) ||
        (status = pici_breakdown(&breakdown, parsed->bytes, size)) != PICI_OK)
        return status;
    for (int i = 0; i < PICI_CONTAINERS; i++)
        nonzeros += breakdown.nnz[i];
    const int signs = parsed->layout.version == FMT_VERSION_SIGNS;
    return nonzeros == parsed->nonzeros && (!signs || breakdown.sign_tiles) ? PICI_OK : PICI_E_CORRUPT;
}

/* Decode in pieces that stay in a core's cache until they are reduced. */
static enum pici_status reduce_order(uint8_t *destination, const struct pici_block *parsed, size_t size, int max,
                                     void *temp, uint64_t temp_elements)
{
    const unsigned w = parsed->layout.width_log2;
    const uint64_t most = UINT64_C(64 << 10) >> w, piece = (temp_elements < most ? temp_elements : most) / TILE * TILE;
    enum pici_status status = check_whole(parsed, size);
    for (uint64_t offset = 0, now; !status && offset < parsed->count; offset += now) {
        now = parsed->count - offset < piece ? parsed->count - offset : piece;
        status = pici_decompress_range(temp, offset, now, parsed->bytes, size, NULL);
        if (!status)
            pici_reduce(destination + (offset << w), temp, (size_t)now, parsed->dtype, max);
    }
    return status;
}

static enum pici_status host_reduce(struct pici_queue *queue, void *destination, const uint8_t *block,
                                    const struct pici_block *parsed, enum pici_op op, void *temp,
                                    uint64_t temp_elements)
{
    const struct pici_block whole = at_bytes(parsed, block);
    (void)queue;
    if (op == PICI_MIN || op == PICI_MAX)
        return reduce_order(destination, &whole, (size_t)parsed->layout.block_bytes, op == PICI_MAX, temp,
                            temp_elements);
    return pici_block_add(destination, &whole);
}

static enum pici_status host_reduce_own(struct pici_queue *queue, void *destination, const uint8_t *block, size_t size,
                                        uint64_t count, enum pici_dtype dtype, enum pici_op op, void *temp,
                                        uint64_t temp_elements)
{
    struct pici_block parsed;
    (void)count;
    (void)dtype;
    const enum pici_status status = pici_block_parse(&parsed, block, size, NULL);
    return status ? status : host_reduce(queue, destination, block, &parsed, op, temp, temp_elements);
}

/* ---- values */

static enum pici_status host_quantize(struct pici_queue *queue, const struct values *values,
                                      const struct values_where *context, void *const outputs[VALUES_ARRAYS],
                                      uint64_t made_counts[VALUES_ARRAYS], const void *source, uint64_t count,
                                      struct values_loss *loss)
{
    (void)queue;
    return values->codec->quantize(values, context, outputs, made_counts, source, count, loss);
}

/* Add dequantized elements, which are not in blocks. */
static void add(uint8_t *destination, const uint8_t *source, uint64_t count, enum pici_dtype dtype, enum pici_op op)
{
    if (op == PICI_MIN || op == PICI_MAX)
        pici_reduce(destination, source, (size_t)count, (unsigned)dtype, op == PICI_MAX);
    else
        pici_isa()->add[dtype]->dense(destination, source, (size_t)count);
}

/* Works in pieces that stay in a core's cache until they are added, or until their zeros have lost their signs. Checks
 * arrays without elements too. */
static enum pici_status host_dequantize(struct pici_queue *queue, const struct engine_values *usage,
                                        enum engine_store store, void *destination, uint64_t count,
                                        const void *const inputs[VALUES_ARRAYS],
                                        const uint64_t input_counts[VALUES_ARRAYS], void *temp, size_t temp_bytes)
{
    const struct values *values = usage->values;
    const size_t width = pici_dtype_width(values->dtype),
                 most = COLL_TEMP_BYTES < temp_bytes ? COLL_TEMP_BYTES : temp_bytes;
    const uint64_t unit = values->codec->unit(values), piece = most / width >= unit ? most / width / unit * unit : unit;
    enum pici_status status;
    uint64_t offset = 0, now;
    (void)queue;
    do {
        uint8_t *there = (uint8_t *)destination + offset * width, *to = store == STORE_REDUCE ? temp : there;
        now = count - offset < piece ? count - offset : piece;
        status = values->codec->dequantize(values, to, offset, now, count, inputs, input_counts);
        if (status || !now)
            break;
        if (store == STORE_REDUCE)
            add(there, to, now, values->dtype, usage->op);
        else if (usage->by_value)
            pici_positive_zeros(to, to, (size_t)now, (unsigned)values->dtype, usage->quiet);
        offset += now;
    } while (offset < count);
    return status;
}

static void host_divide(struct pici_queue *queue, void *destination, uint64_t count, enum pici_dtype dtype, int ranks)
{
    (void)queue;
    if (count)
        pici_divide(destination, (size_t)count, (unsigned)dtype, ranks);
}

const struct pici_engine pici_engine_host = {
    .size = sizeof(struct pici_engine),
    .name = "host",
    .packs = 1,
    .cost_scale = 1,
    .owns = host_owns,
    .enter = host_enter,
    .begin = host_begin,
    .room = host_room,
    .holds = host_holds,
    .move = host_move,
    .halt = host_halt,
    .close = host_close,
    .error = host_error,
    .ready = host_ready,
    .copy = host_copy,
    .positive_zeros = host_positive_zeros,
    .count = host_count,
    .prefix = host_put,
    .encode = host_encode,
    .put = host_put,
    .look = host_look,
    .head = host_head,
    .decode = host_decode,
    .reduce = host_reduce,
    .reduce_own = host_reduce_own,
    .quantize = host_quantize,
    .dequantize = host_dequantize,
    .containers = host_containers,
    .divide = host_divide,
};
