/* SPDX-License-Identifier: BSD-3-Clause
 *
 * As calls.c, with what goes wrong: errors, ranks without memory or with other settings, a rank that is late, a GPU.
 *   mpirun -n 3 failures SCENARIO
 * By tests/mpi/preload.sh, with the preloaded library. */
#include "calls.h"

#include <dlfcn.h>
#include <unistd.h>

/* ---- errors */

static int handled, code;

static void handle(MPI_Comm *comm, int *error, ...)
{
    (void)comm;
    handled++;
    code = *error;
}

/* A wrong argument is for MPI to refuse. Ranks that make different calls are found out by ours: the program's handler
 * is called, and later calls fail too. */
static void errors(void)
{
    float in[4000] = {0}, out[4000];
    MPI_Errhandler own;
    MPI_Comm comm;
    int class = MPI_SUCCESS;
    (void)class;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handle, &own);
    MPI_Comm_set_errhandler(comm, own);
    int rc = MPI_SUCCESS, before = 0;
#if defined OPEN_MPI /* MPICH, as Debian builds it, goes on with these */
    rc = MPI_Allreduce(in, out, -1, MPI_FLOAT, MPI_SUM, comm);
    MPI_Error_class(rc, &class);
    check(handled == 1 && class == MPI_ERR_COUNT, "a negative count");
    rc = MPI_Allreduce(in, out, 2000, MPI_DATATYPE_NULL, MPI_SUM, comm);
    check(handled == 2 && rc != MPI_SUCCESS, "no type");
    before = handled;
#endif
    sum_on(comm, "after errors of arguments");
    rc = MPI_Allreduce(in, out, rank ? 2000 : 4000, MPI_FLOAT, MPI_SUM, comm);
    check(handled == before + 1 && rc == MPI_ERR_OTHER && code == rc, "ranks with different counts");
    rc = MPI_Allreduce(in, out, 2000, MPI_FLOAT, MPI_SUM, comm);
    check(handled == before + 2 && rc == MPI_ERR_OTHER, "a call after that");
    sum_on(MPI_COMM_WORLD, "another communicator");
    MPI_Comm_free(&comm);
    MPI_Errhandler_free(&own);
}

static MPI_Comm handled_copy(void)
{
    MPI_Errhandler own;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_create_errhandler(handle, &own);
    MPI_Comm_set_errhandler(comm, own);
    MPI_Errhandler_free(&own);
    handled = 0;
    return comm;
}

/* An int of tests/mpi/preload/failing.c. */
static int *flag(const char *name)
{
    int *f = dlsym(RTLD_DEFAULT, name);
    if (!f)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return f;
}

/* Rank 1 has no memory for a call that is longer than the first. MPI makes it, unless it is in place. */
static void memory(void)
{
    enum { LONG = 100 * N };
    int *no_scratch = flag("no_scratch");
    for (int in_place = 0; in_place < 2; in_place++) {
        MPI_Comm comm = handled_copy();
        float *in = zeroed(LONG * sizeof *in), *out = zeroed(LONG * sizeof *out);
        for (int i = 0; i < LONG; i++)
            in[i] = out[i] = (float)value(rank, i);
        sum_on(comm, "before");
        *no_scratch = rank == 1;
        const int rc = MPI_Allreduce(in_place ? MPI_IN_PLACE : in, out, LONG, MPI_FLOAT, MPI_SUM, comm);
        *no_scratch = 0;
        int wrong = 0;
        for (int i = 0; i < LONG; i++)
            wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
        if (in_place)
            check(rc == MPI_ERR_NO_MEM && handled == 1 && code == rc, "no memory, in place");
        else
            check(rc == MPI_SUCCESS && !handled && !wrong, "no memory");
        MPI_Comm_free(&comm);
        free(in);
        free(out);
    }
}

/* A call does not search the file system for a GPU's library, unless libraries were loaded since the last. */
static void looks(void)
{
    sum_on(MPI_COMM_WORLD, "first");
    sum_on(MPI_COMM_WORLD, "second");
    const int before = *flag("library_looks");
    for (int i = 0; i < 5; i++)
        sum_on(MPI_COMM_WORLD, "later");
    check(before > 0 && *flag("library_looks") == before, "libraries that are not there are looked for in each call");
}

/* On rank 1 what was received cannot be unpacked. */
static void unpacking(void)
{
    MPI_Comm comm = handled_copy();
    float *in = zeroed(N * sizeof *in), *out = zeroed(4 * (size_t)ranks * N * sizeof *out);
    MPI_Datatype spaced;
    MPI_Type_vector(N / 4, 1, 3, MPI_FLOAT, &spaced);
    MPI_Type_commit(&spaced);
    *flag("no_unpacking") = rank == 1;
    const int rc = MPI_Allgather(in, N / 4, MPI_FLOAT, out, 1, spaced, comm);
    *flag("no_unpacking") = 0;
    check((rc != MPI_SUCCESS) == (rank == 1) && handled == (rank == 1), "unpacking");
    MPI_Type_free(&spaced);
    MPI_Comm_free(&comm);
    free(in);
    free(out);
}

/* Rank 1 comes late to its second call, by $PAUSE_MS. With $PICI_TIMEOUT_MS the others do not wait for it. */
static void paused(void)
{
    const char *pause = getenv("PAUSE_MS"), *timeout = getenv("PICI_TIMEOUT_MS");
    MPI_Comm comm = handled_copy();
    float in[4000] = {0}, out[4000];
    sum_on(comm, "before");
    if (rank == 1)
        usleep((useconds_t)(pause ? strtoul(pause, NULL, 10) * 1000 : 0));
    const int rc = MPI_Allreduce(in, out, 4000, MPI_FLOAT, MPI_SUM, comm);
    check(timeout ? rc == MPI_ERR_OTHER && handled == 1 : rc == MPI_SUCCESS && !handled, "a rank that is late");
    MPI_Comm_free(&comm);
}

/* What MPI forbids: rank 1 has the same buffer twice. Libraries that take it as in place get that. */
static void aliased(void)
{
    float x[4000], y[4000];
    int wrong = 0;
    for (int i = 0; i < 4000; i++)
        x[i] = (float)value(rank, i);
    float *const out = rank == 1 ? x : y;
    MPI_Allreduce(x, out, 4000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 4000; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "the same buffer twice");
}

/* Dense vectors, of which the first was taken for sparse. */
static void dense(void)
{
    enum { LONG = 100 * N };
    float *in = zeroed(LONG * sizeof *in), *out = zeroed(LONG * sizeof *out);
    for (int i = 0; i < LONG; i++)
        in[i] = 1;
    for (int k = 0; k < 3; k++)
        MPI_Allreduce(in, out, LONG, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    check(out[0] == (float)ranks && out[LONG - 1] == (float)ranks, "dense");
    free(in);
    free(out);
}

/* By default an error ends the job. */
static void fatal(void)
{
    float in[4000] = {0}, out[4000];
    MPI_Allreduce(in, out, rank ? 2000 : 4000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    printf("still here\n");
}

/* ---- a GPU that appears when the program has begun: on rank 1, by an imitation of CUDA's driver */

static void gpu(void)
{
    float in[3000], out[3000];
    int wrong = 0;
    sum_on(MPI_COMM_WORLD, "before");
    if (rank == 1 && !dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL))
        check(0, "no libcuda.so.1 to load");
    sum_on(MPI_COMM_WORLD, "a GPU");
    for (int i = 0; i < 3000; i++)
        out[i] = in[i] = (float)value(rank, i);
    MPI_Allreduce(MPI_IN_PLACE, out, 3000, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < 3000; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "in place");
}

/* ---- a rank whose environment differs, in what all must have the same */

static void lonely(void)
{
    if (rank == 1)
        setenv("PICI_PMPI_MIN_BYTES", "123456", 1);
    sum_on(MPI_COMM_WORLD, "different settings");
    sum_on(MPI_COMM_WORLD, "different settings");
}

/* A rank that comes late to its first call. */
static void late(void)
{
    if (rank == 1)
        usleep(2500000);
    sum_on(MPI_COMM_WORLD, "late");
}

int main(int argc, char **argv)
{
    static const struct scenario SCENARIO[] = {
        {"errors", errors}, {"memory", memory},   {"looks", looks}, {"unpacking", unpacking},
        {"paused", paused}, {"aliased", aliased}, {"dense", dense}, {"fatal", fatal},
        {"gpu", gpu},       {"lonely", lonely},   {"late", late},   {NULL, NULL},
    };
    return run_scenario(argc, argv, SCENARIO);
}
