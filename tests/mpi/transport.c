/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The transport over MPI: traffic among all ranks, in one piece and in many; messages longer than their receivers;
 * requests given up; who shares a node; what is refused. By tests/mpi/programs.sh, under mpirun.
 *     mpi_transport [--quick] */
#define _POSIX_C_SOURCE 200809L
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transport/mpi_transport.h"
#include "tests/util/transport.h"
#include "tests/util/mpi_tally.h"
#include "tests/util/util.h"

static struct pici_transport open_transport(MPI_Comm comm)
{
    struct pici_transport t = PICI_TRANSPORT_INIT;
    if (pici_transport_mpi(&t, comm)) {
        printf("FAIL pici_transport_mpi\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return t;
}

static void among_all(const char *what, const struct traffic *f)
{
    struct pici_transport t = open_transport(MPI_COMM_WORLD);
    expect(exchange(&t, f), what);
    t.close(t.context);
}

static void traffic(const char *what, int messages, int window, size_t longest, size_t each_bytes)
{
    among_all(what,
              &(struct traffic){
                  .seed = 7, .messages = messages, .window = window, .longest = longest, .each_bytes = each_bytes});
}

/* A rank sends more messages than it receives, or fewer, or none. */
static void one_sided(int messages)
{
    for (uint64_t seed = 1; seed <= 3; seed++)
        among_all("one-sided", &(struct traffic){
                                   .seed = seed, .messages = messages, .one_sided = 1, .window = 4, .longest = 300000});
}

/* Around multiples of a piece, and with the end's own piece empty. */
static void pieces(void)
{
    static const int sizes[] = {1, 7, 256, 4096};
    const int usual = pici_mpi_piece;
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        pici_mpi_piece = sizes[i];
        traffic("pieces", 20, 3, (size_t)sizes[i] * 30, 0);
        for (int n = 1; n <= 3; n++)
            for (int more = -1; more <= 1; more++)
                traffic("whole pieces", 3, 2, 0, (size_t)(n * sizes[i] + more ? n * sizes[i] + more : 1));
    }
    pici_mpi_piece = usual;
}

/* A message of more bytes than the receiver has room for is an error there, whatever piece it shows in. */
static void too_long(size_t bytes, size_t cap, int piece)
{
    const int usual = pici_mpi_piece;
    struct pici_transport t = open_transport(MPI_COMM_WORLD);
    uint8_t *data = test_alloc(bytes);
    void *request = NULL;
    const char *wrong = NULL;
    memset(data, 1, bytes);
    pici_mpi_piece = piece;
    if (rank == 0) {
        if (t.send(t.context, 1, data, bytes, &request))
            wrong = "send";
        for (int i = 0, done = 0; i < 2000 && !done && !wrong; i++) {
            t.test(t.context, request, &done, NULL); /* it ends, or does not: MPI's affair */
            t.wait(t.context, 1);
        }
    } else if (rank == 1) {
        if (t.recv(t.context, 0, data, cap, &request) || finish(&t, request, NULL) != PICI_E_CORRUPT)
            wrong = "not PICI_E_CORRUPT";
        else if (!strstr(t.error(t.context), "runcate"))
            wrong = t.error(t.context);
    }
    const int in_use = t.abandon(t.context, PICI_E_CORRUPT); /* the sender's may be under way still */
    t.close(t.context);
    pici_mpi_piece = usual;
    expect(wrong, "a message too long");
    if (!in_use)
        free(data);
}

/* Receives that nobody meets are given up, and their buffers free. */
static void abandoned(void)
{
    struct pici_transport t = open_transport(MPI_COMM_WORLD);
    uint8_t *data = test_alloc(3 << 20);
    void *request;
    const char *wrong = NULL;
    for (int i = 0; i < 3 && !wrong; i++)
        if (t.recv(t.context, (rank + 1) % ranks, data + (i << 20), 1 << 20, &request))
            wrong = "recv";
    for (int i = 0; i < 10 && !wrong; i++) {
        int done = 0;
        if (t.test(t.context, request, &done, NULL) || done)
            wrong = "done";
        t.wait(t.context, 1);
    }
    if (t.abandon(t.context, PICI_E_TIMEOUT))
        wrong = "still in use";
    t.close(t.context);
    free(data);
    expect(wrong, "abandon");
}

/* All ranks of a test share a machine: all of one node, known by its lowest rank. */
static void nodes(void)
{
    MPI_Comm odd_even = MPI_COMM_NULL;
    MPI_Comm_split(MPI_COMM_WORLD, rank & 1, -rank, &odd_even);
    struct pici_transport t = open_transport(odd_even);
    int *node_of = test_alloc((size_t)t.ranks * sizeof *node_of), shared = 0, highest = ranks - 1;
    const char *wrong = NULL;
    MPI_Comm machine;
    MPI_Comm_split_type(odd_even, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine);
    MPI_Comm_size(machine, &shared);
    if ((highest & 1) != (rank & 1))
        highest--;
    if (t.rank != (highest - rank) / 2 || t.nodes(t.context, node_of))
        wrong = "nodes";
    for (int i = 0; i < t.ranks && !wrong && shared == t.ranks; i++)
        if (node_of[i] != 0)
            wrong = "not node 0";
    t.close(t.context);
    MPI_Comm_free(&machine);
    MPI_Comm_free(&odd_even);
    free(node_of);
    expect(wrong, "nodes");
}

/* The caller's communicator keeps its error handler, whatever happens to ours; what MPI refuses is an error, not the
 * end. */
static void errors(void)
{
    MPI_Errhandler handler;
    const char *wrong = NULL;
    struct pici_transport t = open_transport(MPI_COMM_WORLD);
    void *request;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
    if (handler != MPI_ERRORS_ARE_FATAL)
        wrong = "the error handler changed";
    MPI_Errhandler_free(&handler);
    if (t.send(t.context, 0, NULL, 1, &request) != PICI_E_TRANSPORT || !t.error(t.context)[0])
        wrong = "a null buffer";
    t.close(t.context);
    expect(wrong, "errors");
}

static enum pici_memory memory_with(const char *said)
{
    setenv("PICI_MPI_CUDA", said, 1);
    struct pici_transport t = open_transport(MPI_COMM_WORLD);
    t.close(t.context);
    return t.memory;
}

/* Where messages may be is what the environment says, whatever MPI does. */
static void memory(void)
{
    struct pici_transport t;
    expect(memory_with("1") == PICI_MEMORY_ANY ? NULL : "1", "PICI_MPI_CUDA");
    expect(memory_with("0") == PICI_MEMORY_HOST ? NULL : "0", "PICI_MPI_CUDA");
    setenv("PICI_MPI_CUDA", rank == ranks - 1 ? "yes" : "1", 1);
    const enum pici_status s = pici_transport_mpi(&t, MPI_COMM_WORLD);
    expect(s == PICI_E_ARG && strstr(pici_comm_error(NULL), "PICI_MPI_CUDA is \"yes\"") ? NULL : pici_comm_error(NULL),
           "PICI_MPI_CUDA=yes on one rank");
    unsetenv("PICI_MPI_CUDA");
}

static void wrong_calls(void)
{
    struct pici_comm *comm = (void *)&rank;
    const char *wrong = NULL;
    if (pici_comm_mpi(&comm, MPI_COMM_NULL) != PICI_E_ARG || comm || !pici_comm_error(NULL)[0])
        wrong = "MPI_COMM_NULL";
    expect(wrong, "wrong calls");

    wrong = NULL;
    if (pici_comm_mpi(rank == ranks - 1 ? NULL : &comm, MPI_COMM_WORLD) != PICI_E_ARG || comm)
        wrong = "null on one rank";
    else if (!strstr(pici_comm_error(NULL), "rank"))
        wrong = pici_comm_error(NULL);
    expect(wrong, "wrong calls");

    if (ranks > 1) {
        MPI_Comm half, inter;
        MPI_Comm_split(MPI_COMM_WORLD, rank & 1, 0, &half);
        MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, !(rank & 1), 1, &inter);
        wrong = pici_comm_mpi(&comm, inter) != PICI_E_ARG || comm ? "an intercommunicator" : NULL;
        expect(wrong, "wrong calls");
        MPI_Comm_free(&inter);
        MPI_Comm_free(&half);
    }
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    const int quick = argc > 1 && strcmp(argv[1], "--quick") == 0;
    traffic("small", quick ? 5 : 200, 4, 300, 0);
    traffic("mixed", quick ? 5 : 40, 4, 300000, 0);
    one_sided(quick ? 5 : 40);
    if (!quick) {
        traffic("large", 4, 2, 5 << 20, 0);
        pieces();
    }
    if (ranks > 1) {
        too_long(10, 0, INT_MAX);
        too_long(100000, 99999, INT_MAX);
        too_long(5000, 4500, 1000);
        too_long(5001, 5000, 1000);
        abandoned();
    }
    nodes();
    errors();
    memory();
    wrong_calls();
    if (rank == 0)
        printf("%d passed, %d failed\n", passed, failed);
    MPI_Finalize();
    return failed != 0;
}
