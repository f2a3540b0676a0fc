/* SPDX-License-Identifier: BSD-3-Clause
 *
 * As calls.c: collectives that do not wait, and persistent requests.
 *   mpirun -n 3 later SCENARIO
 * By tests/mpi/preload.sh, with and without the preloaded library. */
#include "calls.h"

#include <pthread.h>
#include <stdint.h>

enum { MOST = 64 };

/* The first call that does not wait wants a communicator of pici's, which the next that waits makes. */
static void warm(MPI_Comm comm)
{
    float in[2000] = {0}, out[2000];
    MPI_Request request;
    MPI_Iallreduce(in, out, 2000, MPI_FLOAT, MPI_SUM, comm, &request);
    MPI_Barrier(comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* ---- all functions, with all ways to wait */

struct all {
    float *in, *sum, *block, *scattered, *gathered, *varied, *to_root, *cast;
    int counts[MOST], displs[MOST];
    MPI_Request request[7];
};

static struct all begin_all(int in_place, int root, MPI_Comm comm)
{
    struct all all;
    float **const part[] = {&all.in,       &all.sum,    &all.block,   &all.scattered,
                            &all.gathered, &all.varied, &all.to_root, &all.cast};
    const int each = N / ranks;
    const void *const from_place = MPI_IN_PLACE;
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        *part[i] = zeroed(N * sizeof(float));
    for (int r = 0; r < MOST; r++) {
        all.counts[r] = each;
        all.displs[r] = (ranks - 1 - r) * each;
    }
    for (int i = 0; i < N; i++)
        all.in[i] = all.sum[i] = all.block[i] = all.scattered[i] = all.to_root[i] = (float)value(rank, i);
    memcpy(all.gathered + rank * each, all.in, (size_t)each * sizeof(float));
    memcpy(all.varied + all.displs[rank], all.in, (size_t)each * sizeof(float));
    if (rank == root)
        memcpy(all.cast, all.in, N * sizeof(float));
    const void *from = in_place ? from_place : all.in;
    MPI_Iallreduce(from, all.sum, N, MPI_FLOAT, MPI_SUM, comm, &all.request[0]);
    MPI_Ireduce_scatter_block(from, all.block, each, MPI_FLOAT, MPI_SUM, comm, &all.request[1]);
    MPI_Ireduce_scatter(from, all.scattered, all.counts, MPI_FLOAT, MPI_SUM, comm, &all.request[2]);
    MPI_Iallgather(from, each, MPI_FLOAT, all.gathered, each, MPI_FLOAT, comm, &all.request[3]);
    MPI_Iallgatherv(from, each, MPI_FLOAT, all.varied, all.counts, all.displs, MPI_FLOAT, comm, &all.request[4]);
    MPI_Ireduce(rank == root ? from : all.in, all.to_root, N, MPI_FLOAT, MPI_SUM, root, comm, &all.request[5]);
    MPI_Ibcast(all.cast, N, MPI_FLOAT, root, comm, &all.request[6]);
    return all;
}

static void end_all(struct all *all, int root)
{
    const int each = N / ranks;
    int wrong = 0;
    for (int i = 0; i < N; i++) {
        const float want = (float)reduced(MPI_SUM, value, ranks, i);
        wrong +=
            all->sum[i] != want || all->cast[i] != (float)value(root, i) || (rank == root && all->to_root[i] != want);
    }
    for (int i = 0; i < each; i++) {
        const float want = (float)reduced(MPI_SUM, value, ranks, rank * each + i);
        wrong += all->block[i] != want || all->scattered[i] != want;
    }
    for (int i = 0; i < each * ranks; i++) {
        const float want = (float)value(i / each, i % each);
        wrong += all->gathered[i] != want || all->varied[all->displs[i / each] + i % each] != want;
    }
    check(!wrong, "functions that do not wait");
    float *const part[] = {all->in,       all->sum,    all->block,   all->scattered,
                           all->gathered, all->varied, all->to_root, all->cast};
    for (size_t i = 0; i < sizeof part / sizeof *part; i++)
        free(part[i]);
}

static void wait_in_a_way(int way, int n, MPI_Request *request)
{
    MPI_Status status[MOST];
    int done = 0, some, which[MOST], flag;
    switch (way) {
    case 0: MPI_Waitall(n, request, status); break;
    case 1:
        for (int i = n; i-- > 0;)
            MPI_Wait(&request[i], &status[i]);
        break;
    case 2:
        for (int i = 0; i < n; i++)
            MPI_Waitany(n, request, &some, status);
        break;
    case 3:
        for (; done < n; done += some)
            MPI_Waitsome(n, request, &some, which, status);
        break;
    case 4:
        while (!done)
            MPI_Testall(n, request, &done, status);
        break;
    case 5:
        for (int i = 0; i < n; i++)
            for (flag = 0; !flag;)
                MPI_Test(&request[i], &flag, status);
        break;
    case 6:
        while (done < n) {
            MPI_Testany(n, request, &some, &flag, status);
            done += flag;
        }
        break;
    default:
        for (flag = 0; !flag;)
            MPI_Request_get_status(request[0], &flag, status);
        for (; done < n; done += some)
            MPI_Testsome(n, request, &some, which, status);
    }
}

static void results(void)
{
    warm(MPI_COMM_WORLD);
    for (int way = 0; way < 8; way++)
        for (int in_place = 0; in_place < 2; in_place++) {
            struct all all = begin_all(in_place, way % ranks, MPI_COMM_WORLD);
            wait_in_a_way(way, 7, all.request);
            int null = 0;
            for (int i = 0; i < 7; i++)
                null += all.request[i] == MPI_REQUEST_NULL;
            check(null == 7, "requests are gone");
            end_all(&all, way % ranks);
        }
}

/* Many at a time, on two communicators, with calls that wait among them. */
static void many(void)
{
    enum { SETS = 6 };
    struct all all[SETS];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(MPI_COMM_WORLD);
    warm(comm);
    for (int i = 0; i < SETS; i++) {
        all[i] = begin_all(0, 0, i % 2 ? comm : MPI_COMM_WORLD);
        if (i == 2)
            sum_on(MPI_COMM_WORLD, "a call that waits behind those that do not");
    }
    for (int i = SETS; i-- > 0;) {
        wait_in_a_way(i, 7, all[i].request);
        end_all(&all[i], 0);
    }
    MPI_Comm_free(&comm);
}

/* The program frees the datatype and the communicator at once. */
static void freed(void)
{
    float *data = zeroed(N * 2 * sizeof *data);
    MPI_Datatype spaced;
    MPI_Request request;
    MPI_Comm comm;
    int wrong = 0;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    warm(comm);
    MPI_Type_vector(N, 1, 2, MPI_FLOAT, &spaced);
    MPI_Type_commit(&spaced);
    for (int i = 0; i < 2 * N; i++)
        data[i] = rank || i % 2 ? 77 : (float)value(0, i / 2);
    MPI_Ibcast(data, 1, spaced, 0, comm, &request);
    MPI_Type_free(&spaced);
    MPI_Comm_free(&comm);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2 * N; i++)
        wrong += data[i] != (i % 2 ? 77 : (float)value(0, i / 2));
    check(!wrong, "a derived type and a communicator that are freed");
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    sum_on(comm, "another communicator after that");
    MPI_Comm_free(&comm);
    free(data);
}

/* Rank 1 waits for the collective first, while rank 0 waits in another function for what rank 1 does then. */
static void progress(void)
{
    MPI_Comm copy;
    warm(MPI_COMM_WORLD);
    for (int how = 0; how < 6; how++) {
        struct all all = begin_all(0, 0, MPI_COMM_WORLD);
        int word = rank, other = -1;
        if (rank)
            MPI_Waitall(7, all.request, MPI_STATUSES_IGNORE);
        switch (how) {
        case 0:
            if (rank == 1)
                MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
            else if (!rank)
                MPI_Recv(&other, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            break;
        case 1:
            if (rank == 1)
                MPI_Recv(&other, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            else if (!rank)
                MPI_Ssend(&word, 1, MPI_INT, 1, 4, MPI_COMM_WORLD);
            break;
        case 2: MPI_Barrier(MPI_COMM_WORLD); break;
        case 3:
            MPI_Comm_dup(MPI_COMM_WORLD, &copy);
            MPI_Comm_free(&copy);
            break;
        case 4: MPI_Bcast(&word, 1, MPI_INT, 1, MPI_COMM_WORLD); break;
        default:
            if (rank == 1)
                MPI_Send(&word, 1, MPI_INT, 0, 3, MPI_COMM_WORLD);
            else if (!rank) {
                MPI_Probe(1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
                MPI_Recv(&other, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
        }
        if (!rank)
            MPI_Waitall(7, all.request, MPI_STATUSES_IGNORE);
        end_all(&all, 0);
    }
}

/* ---- errors */

static int handled;

static void handle(MPI_Comm *comm, int *error, ...)
{
    (void)comm, (void)error;
    handled++;
}

static MPI_Errhandler handled_by_us(MPI_Comm comm)
{
    MPI_Errhandler own;
    MPI_Comm_create_errhandler(handle, &own);
    MPI_Comm_set_errhandler(comm, own);
    return own;
}

static void errors(void)
{
    float in[4000] = {0}, out[4000];
    MPI_Request request;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Errhandler own = handled_by_us(comm);
    warm(comm);
    MPI_Iallreduce(in, out, rank ? 2000 : 4000, MPI_FLOAT, MPI_SUM, comm, &request);
    const int rc = MPI_Wait(&request, MPI_STATUS_IGNORE);
    check(handled == 1 && rc != MPI_SUCCESS, "ranks with different counts");
    sum_on(MPI_COMM_WORLD, "another communicator");
    MPI_Errhandler_free(&own);
    MPI_Comm_free(&comm);
}

/* ---- threads, or none */

static void *in_thread(void *comm)
{
    float in[3000], out[3000];
    long wrong = 0;
    for (int i = 0; i < 3000; i++)
        in[i] = (float)value(rank, i);
    warm(*(MPI_Comm *)comm);
    for (int round = 0; round < 20; round++) {
        MPI_Request request;
        MPI_Iallreduce(in, out, 3000, MPI_FLOAT, MPI_SUM, *(MPI_Comm *)comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 3000; i++)
            wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    }
    return (void *)(intptr_t)wrong;
}

static void threads(void)
{
    enum { THREADS = 4 };
    MPI_Comm comm[THREADS];
    pthread_t thread[THREADS];
    void *wrong;
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_dup(MPI_COMM_WORLD, &comm[t]);
    for (int t = 0; t < THREADS; t++)
        if (pthread_create(&thread[t], NULL, in_thread, &comm[t]) != 0)
            MPI_Abort(MPI_COMM_WORLD, 1);
    for (int t = 0; t < THREADS; t++) {
        pthread_join(thread[t], &wrong);
        check(!wrong, "a thread's sums");
    }
    for (int t = 0; t < THREADS; t++)
        MPI_Comm_free(&comm[t]);
}

/* ---- persistent requests, and large counts */

#if MPI_VERSION >= 4
static void persistent(void)
{
    enum { ROUNDS = 3 };
    const int each = N / ranks;
    float *in = zeroed(N * sizeof *in), *sum = zeroed(N * sizeof *sum), *cast = zeroed(N * sizeof *cast),
          *block = zeroed(N * sizeof *block), *gathered = zeroed(N * sizeof *gathered),
          *scattered = zeroed(N * sizeof *scattered), *varied = zeroed(N * sizeof *varied),
          *to_root = zeroed(N * sizeof *to_root);
    int counts[MOST], displs[MOST], done = 0;
    MPI_Request request[7];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int r = 0; r < MOST; r++) {
        counts[r] = each;
        displs[r] = r * each;
    }
    MPI_Allreduce_init(in, sum, N, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request[0]);
    MPI_Bcast_init(cast, N, MPI_FLOAT, 0, comm, MPI_INFO_NULL, &request[1]);
    MPI_Reduce_scatter_block_init(in, block, each, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request[2]);
    MPI_Allgather_init_c(in, each, MPI_FLOAT, gathered, each, MPI_FLOAT, comm, MPI_INFO_NULL, &request[3]);
    MPI_Reduce_scatter_init(in, scattered, counts, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request[4]);
    MPI_Allgatherv_init(in, each, MPI_FLOAT, varied, counts, displs, MPI_FLOAT, comm, MPI_INFO_NULL, &request[5]);
    MPI_Reduce_init(in, to_root, N, MPI_FLOAT, MPI_SUM, 0, comm, MPI_INFO_NULL, &request[6]);
    MPI_Test(&request[0], &done, MPI_STATUS_IGNORE);
    check(done && request[0] != MPI_REQUEST_NULL, "an inactive request");
    MPI_Comm_free(&comm);
    for (int round = 0; round < ROUNDS; round++) {
        int wrong = 0;
        for (int i = 0; i < N; i++) {
            in[i] = (float)(value(rank, i) * (round + 1));
            cast[i] = rank ? 0 : (float)(value(0, i) + round);
        }
        if (round == 1)
            MPI_Startall(7, request);
        else
            for (int i = 0; i < 7; i++)
                MPI_Start(&request[i]);
        MPI_Waitall(7, request, MPI_STATUSES_IGNORE);
        for (int i = 0; i < N; i++) {
            const float want = (float)(reduced(MPI_SUM, value, ranks, i) * (round + 1));
            wrong += sum[i] != want || cast[i] != (float)(value(0, i) + round) || (!rank && to_root[i] != want);
        }
        for (int i = 0; i < each; i++) {
            const float want = (float)(reduced(MPI_SUM, value, ranks, rank * each + i) * (round + 1));
            wrong += block[i] != want || scattered[i] != want;
        }
        for (int i = 0; i < each * ranks; i++) {
            const float want = (float)(value(i / each, i % each) * (round + 1));
            wrong += gathered[i] != want || varied[i] != want;
        }
        check(!wrong, "persistent requests");
    }
    for (int i = 0; i < 7; i++) {
        MPI_Request_free(&request[i]);
        check(request[i] == MPI_REQUEST_NULL, "a request that is freed");
    }
    float *const all[] = {in, sum, cast, block, gathered, scattered, varied, to_root};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

/* ---- persistent requests that ranks start in different orders */

struct one {
    float *in, *out;
    int casts, factor; /* a broadcast of out, or a sum; what the values are multiplied by */
    MPI_Request request;
};

static struct one new_one(int casts, int factor, MPI_Comm comm)
{
    struct one one = {zeroed(N * sizeof(float)), zeroed(N * sizeof(float)), casts, factor, MPI_REQUEST_NULL};
    if (casts)
        MPI_Bcast_init(one.out, N, MPI_FLOAT, 0, comm, MPI_INFO_NULL, &one.request);
    else
        MPI_Allreduce_init(one.in, one.out, N, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &one.request);
    return one;
}

static void free_one(struct one *one)
{
    MPI_Request_free(&one->request);
    free(one->in);
    free(one->out);
}

static void fill(struct one *one)
{
    for (int i = 0; i < N; i++) {
        one->in[i] = (float)(value(rank, i) * one->factor);
        one->out[i] = one->casts && !rank ? one->in[i] : -99;
    }
}

static int is_right(const struct one *one)
{
    int wrong = 0;
    for (int i = 0; i < N; i++)
        wrong += one->out[i] != (float)((one->casts ? value(0, i) : reduced(MPI_SUM, value, ranks, i)) * one->factor);
    return !wrong;
}

/* Odd ranks start the last one first. */
static void run_all(struct one *one, int n, const char *what)
{
    for (int i = 0; i < n; i++)
        fill(&one[i]);
    for (int i = 0; i < n; i++)
        MPI_Start(&one[rank % 2 ? n - 1 - i : i].request);
    for (int i = 0; i < n; i++)
        MPI_Wait(&one[i].request, MPI_STATUS_IGNORE);
    for (int i = 0; i < n; i++)
        check(is_right(&one[i]), what);
}

/* Even ranks start the request before other calls of the communicator, odd ones after them. */
static void start_among(struct one *one, MPI_Comm comm)
{
    float in[2000], out[2000];
    MPI_Request other;
    int wrong = 0;
    for (int i = 0; i < 2000; i++)
        in[i] = (float)value(rank, i);
    fill(one);
    if (rank % 2 == 0)
        MPI_Start(&one->request);
    sum_on(comm, "a call that waits, and a start before or after it");
    MPI_Iallreduce(in, out, 2000, MPI_FLOAT, MPI_SUM, comm, &other);
    if (rank % 2)
        MPI_Start(&one->request);
    MPI_Wait(&other, MPI_STATUS_IGNORE);
    MPI_Wait(&one->request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2000; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    check(!wrong, "a call that does not wait, and a start before or after it");
    check(is_right(one), "a start before or after other calls");
}

static void orders(void)
{
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    struct one one[4] = {new_one(0, 1, comm), new_one(0, 100, comm), new_one(1, 3, comm)};
    for (int round = 0; round < 3; round++) {
        run_all(one, 2, "two sums in different orders");
        run_all(one + 1, 2, "a sum and a broadcast in different orders");
        start_among(&one[round], comm);
    }
    /* Ranks free different requests. So the next one can use what neither had. */
    const int odd = rank % 2;
    free_one(&one[odd]);
    one[3] = new_one(0, 5, comm);
    run_all(one + 2, 2, "a sum, after ranks have freed different requests");
    free_one(&one[!odd]);
    one[0] = new_one(0, 7, comm);
    one[1] = new_one(1, 8, comm);
    run_all(one, 4, "requests in the place of others");
    for (int i = 0; i < 4; i++)
        free_one(&one[odd ? i : 3 - i]);
    MPI_Comm_free(&comm);
}

/* More requests than pici's communicators, one after another, at once, and on communicators that are freed first. */
static void limits(void)
{
    enum { MANY = 20, FEWER = 8 };
    struct one one[MANY];
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    for (int i = 0; i < MANY; i++) {
        one[0] = new_one(0, i + 1, comm);
        run_all(one, 1, "a request after others");
        free_one(&one[0]);
    }
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++)
            one[i] = new_one(0, i + 1, comm);
        run_all(one, MANY, "many requests in different orders");
        for (int i = 0; i < MANY; i++)
            free_one(&one[rank % 2 ? MANY - 1 - i : i]);
    }
    MPI_Comm_free(&comm);
    for (int i = 0; i < FEWER; i++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comm);
        one[0] = new_one(0, 1, comm);
        one[1] = new_one(1, 2, comm);
        MPI_Comm_free(&comm);
        run_all(one, 2, "requests of a communicator that is freed");
        free_one(&one[rank % 2]);
        free_one(&one[!(rank % 2)]);
    }
}

/* With a communicator of pici's for each of these requests, and for none more. */
static void hundreds(void)
{
    enum { HUNDREDS = 520 };
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    struct one *one = zeroed(HUNDREDS * sizeof *one);
    for (int i = 0; i < HUNDREDS; i++)
        one[i] = new_one(0, i % 100 + 1, comm);
    free_one(&one[HUNDREDS - 2]);
    one[HUNDREDS - 2] = new_one(0, 77, comm);
    run_all(one + HUNDREDS - 3, 3, "the last of hundreds");
    for (int i = 0; i < HUNDREDS; i++)
        free_one(&one[i]);
    free(one);
    MPI_Comm_free(&comm);
}

/* A request that has failed, and others of its communicator. */
static void failed(void)
{
    float in[4000] = {0}, out[4000];
    MPI_Request request;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Errhandler own = handled_by_us(comm);
    struct one one[2] = {new_one(0, 1, comm)};
    MPI_Allreduce_init(in, out, rank ? 2000 : 4000, MPI_FLOAT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    MPI_Start(&request);
    check(MPI_Wait(&request, MPI_STATUS_IGNORE) != MPI_SUCCESS && handled == 1, "a request that fails");
    MPI_Request_free(&request);
    one[1] = new_one(0, 2, comm);
    run_all(one, 2, "requests beside one that has failed");
    sum_on(comm, "a call that waits, after a request that has failed");
    free_one(&one[0]);
    free_one(&one[1]);
    MPI_Errhandler_free(&own);
    MPI_Comm_free(&comm);
}

static void large(void)
{
    float *in = zeroed(N * sizeof *in), *out = zeroed(N * sizeof *out);
    MPI_Request request;
    int wrong = 0;
    warm(MPI_COMM_WORLD);
    for (int i = 0; i < N; i++)
        in[i] = (float)value(rank, i);
    MPI_Iallreduce_c(in, out, N, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++)
        wrong += out[i] != (float)reduced(MPI_SUM, value, ranks, i);
    MPI_Ibcast_c(in, N, MPI_FLOAT, 0, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < N; i++)
        wrong += in[i] != (float)value(0, i);
    check(!wrong, "functions with MPI_Count");
    free(in);
    free(out);
}
#else
static void persistent(void)
{
    printf("skip: this MPI has no persistent collectives\n");
}

static void large(void)
{
    printf("skip: this MPI has no functions with MPI_Count\n");
}

static void orders(void)
{
}

static void limits(void)
{
}

static void hundreds(void)
{
}

static void failed(void)
{
}
#endif

int main(int argc, char **argv)
{
    static const struct scenario SCENARIO[] = {
        {"results", results}, {"many", many},       {"freed", freed},           {"progress", progress},
        {"errors", errors},   {"threads", threads}, {"persistent", persistent}, {"large", large},
        {"single", results},  {"orders", orders},   {"limits", limits},         {"hundreds", hundreds},
        {"failed", failed},   {NULL, NULL},
    };
    return run_scenario(argc, argv, SCENARIO);
}
