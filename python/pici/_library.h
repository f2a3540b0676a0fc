/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The addresses of the functions of libpici and libpici_coll that the extension module _codec calls. The module is not
 * linked with the libraries: load() opens them, so that the process has one copy of each. The functions have the types
 * of the public headers. */
#ifndef PICI_PYTHON_LIBRARY_H
#define PICI_PYTHON_LIBRARY_H

#include "pici/coll.h"
#include "pici/delta.h"
#include "pici/delta_file.h"
#include "pici/delta_log.h"
#include "pici/file.h"
#include "pici/neighbor.h"
#include "pici/pici.h"
#include "pici/socket.h"
#include "pici/stream.h"
#include "pici/topk.h"

#define PICI_FUNCTIONS(X)                                                                                              \
    X(strerror)                                                                                                        \
    X(dtype_width)                                                                                                     \
    X(bound)                                                                                                           \
    X(compress)                                                                                                        \
    X(decompress)                                                                                                      \
    X(decompress_range)                                                                                                \
    X(scatter_add)                                                                                                     \
    X(inspect)                                                                                                         \
    X(verify_at)                                                                                                       \
    X(diff)                                                                                                            \
    X(apply)                                                                                                           \
    X(diff_small_columns)                                                                                              \
    X(diff_small_bound)                                                                                                \
    X(apply_small_columns)                                                                                             \
    X(nonzeros)                                                                                                        \
    X(changes)                                                                                                         \
    X(topk)                                                                                                            \
    X(topk_warmup)                                                                                                     \
    X(reader_open_path)                                                                                                \
    X(reader_open_at)                                                                                                  \
    X(reader_open_memory)                                                                                              \
    X(reader_count)                                                                                                    \
    X(reader_tensor)                                                                                                   \
    X(reader_find)                                                                                                     \
    X(reader_read_range)                                                                                               \
    X(reader_attr)                                                                                                     \
    X(reader_attr_at)                                                                                                  \
    X(reader_attr_count)                                                                                               \
    X(reader_view_count)                                                                                               \
    X(reader_view)                                                                                                     \
    X(reader_find_view)                                                                                                \
    X(reader_is_unnamed)                                                                                               \
    X(view_copy)                                                                                                       \
    X(reader_verify)                                                                                                   \
    X(reader_error)                                                                                                    \
    X(reader_error_offset)                                                                                             \
    X(reader_close)                                                                                                    \
    X(writer_open)                                                                                                     \
    X(writer_tensor)                                                                                                   \
    X(writer_data)                                                                                                     \
    X(writer_finish)                                                                                                   \
    X(writer_error)                                                                                                    \
    X(writer_close)                                                                                                    \
    X(outfile_open)                                                                                                    \
    X(outfile_write)                                                                                                   \
    X(outfile_commit)                                                                                                  \
    X(outfile_abort)                                                                                                   \
    X(state_new)                                                                                                       \
    X(state_open)                                                                                                      \
    X(state_add)                                                                                                       \
    X(state_add_columns)                                                                                               \
    X(state_get_type)                                                                                                  \
    X(state_hash)                                                                                                      \
    X(state_free)                                                                                                      \
    X(diff_states)                                                                                                     \
    X(deltas_new)                                                                                                      \
    X(deltas_add)                                                                                                      \
    X(deltas_get_info)                                                                                                 \
    X(deltas_is_result)                                                                                                \
    X(deltas_free)                                                                                                     \
    X(apply_deltas)                                                                                                    \
    X(update_new)                                                                                                      \
    X(update_switch)                                                                                                   \
    X(update_count)                                                                                                    \
    X(update_get)                                                                                                      \
    X(update_free)                                                                                                     \
    X(log_create)                                                                                                      \
    X(log_create_packed)                                                                                               \
    X(log_open)                                                                                                        \
    X(log_get_info)                                                                                                    \
    X(log_get_state)                                                                                                   \
    X(log_append)                                                                                                      \
    X(log_apply)                                                                                                       \
    X(log_apply_state)                                                                                                 \
    X(log_compact)                                                                                                     \
    X(log_close)

#define PICI_COLL_FUNCTIONS(X)                                                                                         \
    X(algorithm_name)                                                                                                  \
    X(all_gather)                                                                                                      \
    X(reduce_scatter)                                                                                                  \
    X(all_reduce)                                                                                                      \
    X(broadcast)                                                                                                       \
    X(all_gatherv)                                                                                                     \
    X(all_to_allv)                                                                                                     \
    X(all_to_allv_start)                                                                                               \
    X(all_gather_start)                                                                                                \
    X(reduce_scatter_start)                                                                                            \
    X(all_reduce_start)                                                                                                \
    X(broadcast_start)                                                                                                 \
    X(all_gatherv_start)                                                                                               \
    X(all_gather_stream_start)                                                                                         \
    X(reduce_scatter_stream_start)                                                                                     \
    X(all_reduce_stream_start)                                                                                         \
    X(broadcast_stream_start)                                                                                          \
    X(stream_free)                                                                                                     \
    X(test)                                                                                                            \
    X(wait)                                                                                                            \
    X(wait_for)                                                                                                        \
    X(neighbor_plan_create)                                                                                            \
    X(neighbor_plan_info)                                                                                              \
    X(neighbor_plan_free)                                                                                              \
    X(neighbor_all_gather_start)                                                                                       \
    X(neighbor_all_gatherv_start)                                                                                      \
    X(comm_threads)                                                                                                    \
    X(comm_sockets)                                                                                                    \
    X(comm_rendezvous)                                                                                                 \
    X(comm_levels)                                                                                                     \
    X(comm_rank)                                                                                                       \
    X(comm_size)                                                                                                       \
    X(comm_error)                                                                                                      \
    X(comm_tune)                                                                                                       \
    X(comm_set_nodes)                                                                                                  \
    X(comm_free)

#define PICI_MEMBER(name) __typeof__(&pici_##name) name;
struct library {
    PICI_FUNCTIONS(PICI_MEMBER)
    PICI_COLL_FUNCTIONS(PICI_MEMBER)
};
#undef PICI_MEMBER

/* load() sets all members. If it fails, the package cannot be imported. */
extern struct library lib;

#endif
