/* SPDX-License-Identifier: BSD-3-Clause */
#include "transport/mpi_dense.h"

#include <stdlib.h>
#include <string.h>

enum {
    PACKED_BYTES = 64 << 20
}; /* the most that all ranks together get in one piece of a reduce-scatter; pieces are packed for MPI */

/* MPI_DATATYPE_NULL: MPI has no arithmetic for it. */
static MPI_Datatype type_of(enum pici_dtype dtype)
{
    switch (dtype) {
    case PICI_F32: return MPI_FLOAT;
    case PICI_F64: return MPI_DOUBLE;
    case PICI_I8: return MPI_INT8_T;
    case PICI_U8: return MPI_UINT8_T;
    case PICI_I16: return MPI_INT16_T;
    case PICI_U16: return MPI_UINT16_T;
    case PICI_I32: return MPI_INT32_T;
    case PICI_U32: return MPI_UINT32_T;
    case PICI_I64: return MPI_INT64_T;
    case PICI_U64: return MPI_UINT64_T;
    default: return MPI_DATATYPE_NULL;
    }
}

static MPI_Op op_of(enum pici_op operation)
{
    switch (operation) {
    case PICI_MIN: return MPI_MIN;
    case PICI_MAX: return MPI_MAX;
    default: return MPI_SUM;
    }
}

static uint64_t least(uint64_t one, uint64_t other)
{
    return one < other ? one : other;
}

/* The number of elements per rank (all-reduce: in total) that one MPI call can handle; 0 if not even one. */
static uint64_t elements_at_once(const struct mpi_dense *dense, enum pici_collective collective, uint64_t count,
                                 size_t width)
{
    const uint64_t each = width * (collective == PICI_ALL_REDUCE ? 1 : (uint64_t)dense->ranks);
    const uint64_t most = (uint64_t)dense->piece / each;
    if (collective != PICI_REDUCE_SCATTER || count <= most)
        return least(most, count);
    return most ? least(most, PACKED_BYTES / each ? PACKED_BYTES / each : 1) : 0;
}

static int reserve(struct mpi_dense *dense, uint64_t bytes)
{
    if (bytes <= dense->room_bytes)
        return 1;
    uint8_t *more = bytes <= SIZE_MAX ? malloc((size_t)bytes) : NULL;
    if (!more)
        return 0;
    free(dense->room);
    dense->room = more;
    dense->room_bytes = (size_t)bytes;
    return 1;
}

static int scatters_in_place(const struct mpi_dense *dense, const uint8_t *send, const uint8_t *recv, uint64_t bytes)
{
    return recv == send + (uint64_t)dense->rank * bytes;
}

enum pici_status pici_mpi_dense_ready(struct mpi_dense *dense, enum pici_collective collective, const void *send,
                                      const void *recv, uint64_t count, enum pici_dtype dtype, enum pici_op operation)
{
    const size_t width = pici_dtype_width(dtype);
    const uint64_t piece = elements_at_once(dense, collective, count, width);
    (void)operation;
    if (!piece || (collective != PICI_ALL_GATHER && type_of(dtype) == MPI_DATATYPE_NULL))
        return PICI_E_UNSUPPORTED;
    if (collective != PICI_REDUCE_SCATTER)
        return PICI_OK;
    uint64_t packed = 0;
    if (piece < count)
        packed = piece * width * (uint64_t)dense->ranks;
    else if (scatters_in_place(dense, send, recv, count * width))
        packed = piece * width;
    return reserve(dense, packed) ? PICI_OK : PICI_E_NOMEM;
}

static int all_reduce(const struct mpi_dense *dense, const uint8_t *send, uint8_t *recv, uint64_t count, uint64_t piece,
                      enum pici_dtype dtype, enum pici_op operation)
{
    const size_t width = pici_dtype_width(dtype);
    int rc = MPI_SUCCESS;
    for (uint64_t offset = 0; offset < count && rc == MPI_SUCCESS; offset += piece)
        rc = MPI_Allreduce(send == recv ? MPI_IN_PLACE : send + offset * width, recv + offset * width,
                           (int)least(piece, count - offset), type_of(dtype), op_of(operation), dense->comm);
    return rc;
}

/* Gather one piece of each rank's block: `bytes` bytes at `recv`, with blocks `apart` bytes apart. */
static int gather_piece(const struct mpi_dense *dense, const void *send, void *recv, uint64_t bytes, uint64_t apart)
{
    MPI_Datatype piece = MPI_DATATYPE_NULL, spaced = MPI_DATATYPE_NULL;
    int rc = MPI_Type_contiguous((int)bytes, MPI_BYTE, &piece);
    if (rc == MPI_SUCCESS)
        rc = MPI_Type_create_resized(piece, 0, (MPI_Aint)apart, &spaced);
    if (rc == MPI_SUCCESS)
        rc = MPI_Type_commit(&spaced);
    if (rc == MPI_SUCCESS)
        rc = MPI_Allgather(send, (int)bytes, MPI_BYTE, recv, 1, spaced, dense->comm);
    if (spaced != MPI_DATATYPE_NULL)
        MPI_Type_free(&spaced);
    if (piece != MPI_DATATYPE_NULL)
        MPI_Type_free(&piece);
    return rc;
}

static int all_gather(const struct mpi_dense *dense, const uint8_t *send, uint8_t *recv, uint64_t bytes, uint64_t piece)
{
    const int in_place = send == recv + (uint64_t)dense->rank * bytes;
    int rc = MPI_SUCCESS;
    if (piece == bytes)
        return MPI_Allgather(in_place ? MPI_IN_PLACE : send, (int)bytes, MPI_BYTE, recv, (int)bytes, MPI_BYTE,
                             dense->comm);
    for (uint64_t offset = 0; offset < bytes && rc == MPI_SUCCESS; offset += piece)
        rc = gather_piece(dense, in_place ? MPI_IN_PLACE : send + offset, recv + offset, least(piece, bytes - offset),
                          bytes);
    return rc;
}

/* MPI's own "in place" would overwrite the send buffer, so this function copies the result. It packs pieces. */
static int reduce_scatter(const struct mpi_dense *dense, const uint8_t *send, uint8_t *recv, uint64_t count,
                          uint64_t piece, enum pici_dtype dtype, enum pici_op operation)
{
    const size_t width = pici_dtype_width(dtype);
    const uint64_t bytes = count * width;
    int rc = MPI_SUCCESS;
    if (piece == count) {
        uint8_t *target = scatters_in_place(dense, send, recv, bytes) ? dense->room : recv;
        rc = MPI_Reduce_scatter_block(send, target, (int)piece, type_of(dtype), op_of(operation), dense->comm);
        if (rc == MPI_SUCCESS && target != recv)
            memcpy(recv, target, (size_t)bytes);
        return rc;
    }
    for (uint64_t offset = 0; offset < count && rc == MPI_SUCCESS; offset += piece) {
        const uint64_t piece_now = least(piece, count - offset);
        for (int i = 0; i < dense->ranks; i++)
            memcpy(dense->room + (uint64_t)i * piece_now * width, send + (uint64_t)i * bytes + offset * width,
                   (size_t)(piece_now * width));
        rc = MPI_Reduce_scatter_block(dense->room, recv + offset * width, (int)piece_now, type_of(dtype),
                                      op_of(operation), dense->comm);
    }
    return rc;
}

int pici_mpi_dense(const struct mpi_dense *dense, enum pici_collective collective, const void *send, void *recv,
                   uint64_t count, enum pici_dtype dtype, enum pici_op operation)
{
    const size_t width = pici_dtype_width(dtype);
    const uint64_t piece = elements_at_once(dense, collective, count, width);
    if (collective == PICI_ALL_GATHER)
        return all_gather(dense, send, recv, count * width, piece * width);
    if (collective == PICI_REDUCE_SCATTER)
        return reduce_scatter(dense, send, recv, count, piece, dtype, operation);
    return all_reduce(dense, send, recv, count, piece, dtype, operation);
}
