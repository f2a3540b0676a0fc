/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Sparse collectives beside dense ones: pici's own, and MPI's under mpirun. Flags and table are nccl-tests'.
 *
 * Contestants take turns within each repetition, so that noise of the host hits all of them alike. Dense contestants
 * run once per repetition, pici once at each sparsity. Speedups compare with the fastest dense contestant, over all
 * algorithms and orders of ranks. */
#define _GNU_SOURCE
#include <getopt.h>

#include "coll.h"
#include "common.h"

enum { MAX_THREADS = 256, THREADS = 4 };

static const char
    usage[] =
        "usage: bench_coll [options], alone (ranks are threads), or each process a rank: under mpirun or pici-run\n"
        "  -b, --minbytes BYTES[KMG]  the smallest size, 64M: of a rank's larger buffer, as in nccl-tests\n"
        "  -e, --maxbytes BYTES[KMG]  the largest, as the smallest\n"
        "  -f, --stepfactor X         from one to the next, 2;  -i, --stepbytes BYTES: in steps of so many\n"
        "  --by-send                  sizes are of a rank's send buffer\n"
        "  -n, --iters N              repetitions, 5; medians are printed\n"
        "  -w, --warmup N             untimed ones before, 1\n"
        "  --calls N                  calls of a repetition, of which the mean is taken, 1; many for small sizes\n"
        "  -c, --check 0|1            check the results of the last repetition, 1\n"
        "  -t, --threads N            ranks, 4; if alone\n"
        "  --sockets                  alone: ranks are processes, connected over TCP on loopback; under mpirun: "
        "pici's\n"
        "                             messages go over sockets, to the rank 0 that PICI_RENDEZVOUS names\n"
        "  --levels                   under mpirun: over MPI inside nodes, and such sockets between them\n"
        "  --stream                   all-reduce of indices and values, beside that of the same in dense buffers\n"
        "  --balance                  the same, with segments cut evenly and with balanced owners\n"
        "  --nodes N|LIST             deal these ranks out to N nodes, or to nodes of so many ranks each; 1\n"
        "  --by-node                  below each line a line for each node: bytes that left it, its slowest rank\n"
        "  -d, --datatype NAME        f32\n"
        "  -o, --op NAME              sum, avg, min or max\n"
        "  --collective LIST          all_reduce,reduce_scatter,all_gather; or broadcast, from rank 0;\n"
        "                             or all_gatherv, to which rank r contributes r + 1 times as much as rank 0;\n"
        "                             or all_to_all, equally much to each rank\n"
        "  --algorithm LIST           ",
    usage_rest[] =
        ", or all of them; auto\n"
        "  --dense LIST               those of which a dense run takes part; all\n"
        "  --order turn|near          ranks are dealt out to the nodes in turn, or neighbours share one; both\n"
        "  --format LIST              auto, bitmap, coo, hybrid, dense; or several joined by +, which is auto among "
        "these; "
        "auto\n"
        "  --values LIST              exact, q2, q4, q8, bf16, f16, f32, zfp:RATE, zfp~TOLERANCE; exact\n"
        "                             with @reduce or @gather: in the messages of one phase\n"
        "  --pattern LIST             uniform, identical (positions, on all ranks), clustered, block, zipf,\n"
        "                             front (all in the first eighth), ranked (Zipf's law by position),\n"
        "                             smooth (a field, values up to 2^19); uniform\n"
        "  --sparsity LIST            percentages, 0,20,50,80,90,95,99,99.9\n"
        "  --zeros LIST               positive, negative (half of the zeros of floats are -0.0); positive\n"
        "  --mpi all|none|LIST        which algorithms of MPI (with --cuda: of NCCL) take part, as the table names "
        "them, "
        "all\n"
        "  --cuda[=nccl|mpi]          elements in the memory of GPUs, beside NCCL's collectives; pici's messages go "
        "over "
        "NCCL "
        "under\n"
        "                             mpirun, and else from thread to thread; or as is said here\n"
        "  --screen BYTES[KMG]        run dense contestants at this size first, and leave out those that take half as "
        "long\n"
        "                             again as the best, or more; 8M; 0: none\n"
        "  --targets                  print the project's targets beside the figures\n"
        "  --predict MACHINE|FILE     print what the model predicts for a machine (picitool predict) or by a tune "
        "file,\n"
        "                             and the error\n"
        "  --json[=FILE]              records instead of tables; into FILE: besides\n"
        "Formats and thresholds beyond these: the environment of the library (docs/reference/settings.md).\n";

static void print_usage(FILE *f)
{
    fputs(usage, f);
    for (int a = 0; pici_algorithm_name((enum pici_algorithm)a); a++)
        fprintf(f, "%s%s", a ? ", " : "", pici_algorithm_name((enum pici_algorithm)a));
    fputs(usage_rest, f);
}

static _Noreturn void bad_usage(void)
{
    print_usage(stderr);
    exit(2);
}

/* Parse comma-separated names to their numbers. Numbers without a use have the name NULL. */
static struct list parse_list(char *text, const char *const *names, int n)
{
    struct list l = {0, {0}};
    for (char *rest = text, *word; (word = strsep(&rest, ","));) {
        int i = 0;
        while (i < n && !(names[i] && !strcmp(names[i], word)))
            i++;
        if (i == n || l.n == MAX_LIST)
            bad_usage();
        l.v[l.n++] = i;
    }
    return l;
}

static int parse_number(const char *text, int least, int most)
{
    char *end;
    const long v = strtol(text, &end, 10);
    if (end == text || *end || v < least || v > most)
        bad_usage();
    return (int)v;
}

static size_t parse_bytes(const char *text)
{
    const size_t v = parse_size(text);
    if (!v)
        bad_usage();
    return v;
}

static enum device_use parse_device(const char *text)
{
#ifndef BENCH_CUDA
    die("built without CUDA: make bench-coll-cuda");
#endif
    if (!text)
        return DEVICE_DEFAULT;
    if (strcmp(text, "nccl") != 0 && strcmp(text, "mpi") != 0)
        bad_usage();
    return *text == 'n' ? DEVICE_NCCL : DEVICE_MPI;
}

/* Deal ranks to nodes, neighbours together. text: a number of nodes, or the ranks of each node. Returns the number of
 * nodes. */
static int parse_nodes(const char *text, int ranks, int *node_of)
{
    int nodes = 0, dealt = 0;
    if (!text || !strchr(text, ',')) {
        nodes = text ? parse_number(text, 1, ranks) : 1;
        for (int r = 0; r < ranks; r++)
            node_of[r] = (int)((long)r * nodes / ranks);
        return nodes;
    }
    char *copy = strdup(text);
    for (char *rest = copy, *word; copy && (word = strsep(&rest, ",")); nodes++)
        for (int n = parse_number(word, 1, ranks - dealt); n; n--)
            node_of[dealt++] = nodes;
    free(copy);
    if (dealt != ranks)
        bad_usage();
    return nodes;
}

static struct list parse_formats(char *text)
{
    struct list l = {0, {0}};
    for (char *rest = text, *word; (word = strsep(&rest, ","));) {
        const int one = !strchr(word, '+');
        unsigned set = 0, f = 0;
        if (l.n == MAX_LIST)
            bad_usage();
        for (char *name; (name = strsep(&word, "+")); set |= 1u << f) {
            for (f = PICI_DENSE; f <= PICI_HYBRID && strcmp(name, pici_format_name((enum pici_format)f));)
                f++;
            if (f > PICI_HYBRID && !(one && !strcmp(name, "auto")))
                bad_usage();
        }
        l.v[l.n++] = !one ? AUTO_AMONG + (int)set : f > PICI_HYBRID ? PICI_AUTO : (int)f;
    }
    return l;
}

static struct list parse_algorithms(char *text)
{
    const char *names[MAX_LIST];
    struct list all = {0, {0}};
    int n = 0;
    for (; n < MAX_LIST && pici_algorithm_name((enum pici_algorithm)n); n++) {
        names[n] = pici_algorithm_name((enum pici_algorithm)n);
        all.v[all.n++] = n;
    }
    return strcmp(text, "all") ? parse_list(text, names, n) : all;
}

/* The body of each rank; the first rank writes. */
static int body(struct world *w, const void *argument)
{
    struct settings s = *(const struct settings *)argument;
    const int separate = s.json_path && strcmp(s.json_path, "-");
    if (w->rank == 0 && s.json_path && !(s.json = separate ? fopen(s.json_path, "w") : stdout))
        die(s.json_path);
#ifdef BENCH_CUDA
    if (s.device)
        device_begin(w, &s);
#endif
    const double wrong = s.stream ? run_streams(w, &s) : run_all(w, &s);
#ifdef BENCH_CUDA
    if (s.device)
        device_end(w);
#endif
    const int failed = separate && s.json && (ferror(s.json) | fclose(s.json));
    return wrong > 0 || failed;
}

static int under_mpirun(void)
{
#ifdef PICI_SMPI
    return 1; /* under smpirun, which sets none of these */
#endif
    static const char *const names[] = {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMI_RANK", "PMIX_RANK"};
    for (size_t i = 0; i < COUNT_OF(names); i++)
        if (getenv(names[i]))
            return 1;
    return 0;
}

int main(int argc, char **argv)
{
    enum {
        BY_SEND = 256,
        COLLECTIVE,
        ALGORITHM,
        NODES,
        BY_NODE,
        CALLS,
        ORDER,
        SOCKETS,
        LEVELS,
        STREAM,
        DENSE,
        FORMAT,
        VALUES,
        PATTERN,
        SPARSITY,
        ZEROS,
        MPI_PEERS,
        CUDA,
        SCREEN,
        TARGETS,
        PREDICT,
        BALANCE,
        JSON
    };
    static const struct option options[] = {
        {"minbytes", 1, NULL, 'b'},
        {"maxbytes", 1, NULL, 'e'},
        {"stepfactor", 1, NULL, 'f'},
        {"stepbytes", 1, NULL, 'i'},
        {"by-send", 0, NULL, BY_SEND},
        {"iters", 1, NULL, 'n'},
        {"warmup", 1, NULL, 'w'},
        {"calls", 1, NULL, CALLS},
        {"check", 1, NULL, 'c'},
        {"threads", 1, NULL, 't'},
        {"datatype", 1, NULL, 'd'},
        {"op", 1, NULL, 'o'},
        {"collective", 1, NULL, COLLECTIVE},
        {"algorithm", 1, NULL, ALGORITHM},
        {"format", 1, NULL, FORMAT},
        {"values", 1, NULL, VALUES},
        {"pattern", 1, NULL, PATTERN},
        {"sparsity", 1, NULL, SPARSITY},
        {"zeros", 1, NULL, ZEROS},
        {"mpi", 1, NULL, MPI_PEERS},
        {"cuda", 2, NULL, CUDA},
        {"screen", 1, NULL, SCREEN},
        {"targets", 0, NULL, TARGETS},
        {"json", 2, NULL, JSON},
        {"nodes", 1, NULL, NODES},
        {"by-node", 0, NULL, BY_NODE},
        {"dense", 1, NULL, DENSE},
        {"order", 1, NULL, ORDER},
        {"sockets", 0, NULL, SOCKETS},
        {"levels", 0, NULL, LEVELS},
        {"stream", 0, NULL, STREAM},
        {"balance", 0, NULL, BALANCE},
        {"predict", 1, NULL, PREDICT},
        {"help", 0, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    static const char *const signs[] = {"positive", "negative"};
    struct settings s = {
        .first = (size_t)64 << 20,
        .factor = 2,
        .reps = 5,
        .calls = 1,
        .warmup = 1,
        .check = 1,
        .threads = THREADS,
        .dtype = PICI_F32,
        .op = PICI_SUM,
        .collectives = {3, {PICI_ALL_REDUCE, PICI_REDUCE_SCATTER, PICI_ALL_GATHER}},
        .algorithms = {1, {PICI_ALGO_AUTO}},
        .formats = {1, {PICI_AUTO}},
        .codecs = 1,
        .codec = {{"exact", PICI_VALUES_INIT}},
        .spreads = {1, {SPREAD_UNIFORM}},
        .zeros = {1, {0}},
        .sparsities = 8,
        .sparsity = {0, 20, 50, 80, 90, 95, 99, 99.9},
        .screen = (size_t)8 << 20,
        .peers = "all",
        .table = stdout,
    };
    const char *nodes = NULL;
    enum bench_over over = OVER_DEFAULT;
    int c;
    while ((c = getopt_long(argc, argv, "b:e:f:i:n:w:c:t:d:o:h", options, NULL)) != -1) {
        struct list l;
        switch (c) {
        case 'b': s.first = parse_bytes(optarg); break;
        case 'e': s.last = parse_bytes(optarg); break;
        case 'i': s.step = parse_bytes(optarg); break;
        case 'f':
            s.factor = atof(optarg);
            if (!(s.factor > 1 && s.factor <= 1e6))
                bad_usage();
            break;
        case BY_SEND: s.by_send = 1; break;
        case 'n': s.reps = parse_number(optarg, 1, MAX_REPS); break;
        case 'w': s.warmup = parse_number(optarg, 0, MAX_REPS); break;
        case CALLS: s.calls = parse_number(optarg, 1, 1000000); break;
        case 'c': s.check = parse_number(optarg, 0, 1); break;
        case 't': s.threads = parse_number(optarg, 1, MAX_THREADS); break;
        case 'd':
            if (!parse_dtype(optarg, &s.dtype))
                bad_usage();
            break;
        case 'o':
            l = parse_list(optarg, op_name, COUNT_OF(op_name));
            if (l.n != 1)
                bad_usage();
            s.op = (enum pici_op)l.v[0];
            break;
        case COLLECTIVE: s.collectives = parse_list(optarg, collective_name, COLLECTIVES); break;
        case NODES: nodes = optarg; break;
        case BY_NODE: s.by_node = 1; break;
        case DENSE: s.dense = parse_algorithms(optarg); break;
        case ORDER:
            if (strcmp(optarg, "turn") != 0 && strcmp(optarg, "near") != 0)
                bad_usage();
            s.order = optarg;
            break;
        case ALGORITHM: s.algorithms = parse_algorithms(optarg); break;
        case FORMAT: s.formats = parse_formats(optarg); break;
        case VALUES:
            if (!(s.codecs = values_parse(s.codec, MAX_LIST, optarg)))
                bad_usage();
            break;
        case PATTERN: s.spreads = parse_list(optarg, spread_name, SPREADS); break;
        case SPARSITY:
            if (!(s.sparsities = (int)parse_sparsities(optarg, s.sparsity)))
                bad_usage();
            break;
        case ZEROS: s.zeros = parse_list(optarg, signs, COUNT_OF(signs)); break;
        case MPI_PEERS: s.peers = optarg; break;
        case CUDA: s.device = parse_device(optarg); break;
        case SCREEN: s.screen = strcmp(optarg, "0") ? parse_bytes(optarg) : 0; break;
        case TARGETS: s.targets = 1; break;
        case SOCKETS: over = OVER_SOCKETS; break;
        case LEVELS: over = OVER_LEVELS; break;
        case STREAM: s.stream = 1; break;
        case BALANCE: s.stream = s.balance = 1; break;
        case PREDICT:
            predictor_close(s.predictor);
            if (!(s.predictor = predictor_open(optarg)))
                bad_usage();
            break;
        case JSON: s.json_path = optarg ? optarg : "-"; break;
        case 'h': print_usage(stdout); return 0;
        default: bad_usage();
        }
    }
    if (optind < argc)
        bad_usage();
    s.last = s.last < s.first ? s.first : s.last;
    if (s.json_path && !strcmp(s.json_path, "-"))
        s.table = NULL;
    if (((s.device == DEVICE_MPI || over == OVER_LEVELS) && !under_mpirun()) || (over && under_mpirun() && s.device))
        bad_usage();
    int status, node_of[MAX_THREADS];
    const int n = parse_nodes(nodes, s.threads, node_of);
    if (!under_mpirun() && (over || getenv("PICI_RANKS")) && s.device)
        bad_usage();
    if (!under_mpirun() && getenv("PICI_RANKS"))
        status = world_sockets_started(body, &s);
    else if (!under_mpirun() && over)
        status = world_sockets(s.threads, n, node_of, body, &s);
    else if (!under_mpirun())
        status = world_threads(s.threads, n, node_of, body, &s);
    else
#ifdef BENCH_MPI
        status = world_mpi(over, body, &s);
#else
        die("built without MPI, and cannot run under mpirun");
#endif
    predictor_close(s.predictor);
    return status | (fflush(stdout) || ferror(stdout));
}
