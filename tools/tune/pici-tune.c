/* SPDX-License-Identifier: BSD-3-Clause
 *
 * pici-tune: measures collectives on the ranks of an MPI job, and writes a file from which the library chooses
 * algorithms. See pici-tune.1. */
#define _POSIX_C_SOURCE 200809L
#include <errno.h>
#include <getopt.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "calibrate.h"
#include "files.h"
#include "over.h"
#include "points.h"
#include "predict/machine.h"
#include "report.h"
#include "term.h"
#include "thresholds.h"
#include "world.h"

static const char help[] =
    "usage: mpirun -n RANKS pici-tune -o FILE [options]      measure, and write a tune file\n"
    "       pici-tune --merge -o FILE FILES...               merge files of one cluster with different ranks\n"
    "       pici-tune --report FILE                          show how well a file predicts calls it did not measure\n"
    "\n"
    "Programs read the file in the environment variable PICI_TUNE. It must be the same on all ranks.\n"
    "\n"
    "  -o, --output FILE    the tune file; pici-tune replaces it atomically\n"
    "      --minutes N      minutes to measure (default 10)\n"
    "      --native         also measure MPI's own collectives. The library may then choose them in programs that\n"
    "                       permit it (PICI_NATIVE=1)\n"
    "      --min SIZE       the smallest call, in bytes or with K, M or G (default 4K)\n"
    "      --max SIZE       the largest call; each rank needs more than twice as much memory (default 256M)\n"
    "      --noise PERCENT  omit calls whose interquartile range exceeds this share of the median (default 10)\n"
    "      --nodes LIST     the node of each rank, separated by commas, if MPI does not know (pici_comm_set_nodes)\n"
    "      --over NAME      transport of the library's messages: mpi (default); sockets, with shared memory inside\n"
    "                       hosts; levels: MPI inside nodes and sockets between. For several hosts, set the network\n"
    "                       interface in PICI_SOCKET_IFNAME\n"
    "  -h, --help           print this help\n"
    "      --version        print the version\n";

struct options {
    const char *output, *nodes;
    int merge, report, native, over;
    double minutes, noise;
    uint64_t least, most;
    char **files;
    int count;
};

enum { MERGE = 256, REPORT, MINUTES, NATIVE, MIN, MAX, NOISE, NODES, OVER, VERSION };

/* Parses a number above 0; 0: not valid. */
static double number_of(const char *text)
{
    char *end;
    errno = 0;
    const double number = strtod(text, &end);
    return end != text && !*end && !errno && number > 0 && isfinite(number) ? number : 0;
}

static int shift_of(char unit)
{
    switch (unit) {
    case 'K': return 10;
    case 'M': return 20;
    case 'G': return 30;
    default: return 0;
    }
}

/* Parses a number of bytes, with an optional unit; 0: not valid. */
static uint64_t size_of(const char *text)
{
    char *end;
    errno = 0;
    const unsigned long long number = strtoull(text, &end, 10);
    const int shift = shift_of(*end);
    return end != text && text[0] >= '0' && text[0] <= '9' && !end[shift > 0] && !errno && number &&
                   number <= UINT64_MAX >> 32
               ? (uint64_t)number << shift
               : 0;
}

/* Returns 0 to continue, else 1 + the exit status. say: this rank prints. */
static int read_options(struct options *options, int argc, char **argv, int say)
{
    static const struct option names[] = {{"output", required_argument, NULL, 'o'},
                                          {"help", no_argument, NULL, 'h'},
                                          {"merge", no_argument, NULL, MERGE},
                                          {"report", no_argument, NULL, REPORT},
                                          {"minutes", required_argument, NULL, MINUTES},
                                          {"native", no_argument, NULL, NATIVE},
                                          {"vendor", no_argument, NULL, NATIVE}, /* the name until version 0.3 */

                                          {"min", required_argument, NULL, MIN},
                                          {"max", required_argument, NULL, MAX},
                                          {"noise", required_argument, NULL, NOISE},
                                          {"nodes", required_argument, NULL, NODES},
                                          {"over", required_argument, NULL, OVER},
                                          {"version", no_argument, NULL, VERSION},
                                          {NULL, 0, NULL, 0}};
    const char *wrong = NULL;
    int letter;
    *options = (struct options){.minutes = 10, .noise = 0.1, .least = 4096, .most = UINT64_C(256) << 20};
    opterr = say;
    while ((letter = getopt_long(argc, argv, "o:h", names, NULL)) != -1) {
        switch (letter) {
        case 'o': options->output = optarg; break;
        case 'h': say ? fputs(help, stdout) : 0; return 1;
        case MERGE: options->merge = 1; break;
        case REPORT: options->report = 1; break;
        case MINUTES:
            wrong = (options->minutes = number_of(optarg)) > 0 ? wrong : "--minutes takes a number above 0";
            break;
        case NATIVE: options->native = 1; break;
        case MIN: wrong = (options->least = size_of(optarg)) > 0 ? wrong : "--min takes bytes, such as 4K"; break;
        case MAX: wrong = (options->most = size_of(optarg)) > 0 ? wrong : "--max takes bytes, such as 64M"; break;
        case NOISE:
            wrong = (options->noise = number_of(optarg) / 100) > 0 ? wrong : "--noise takes a percentage above 0";
            break;
        case NODES: options->nodes = optarg; break;
        case OVER:
            wrong = (options->over = over_named(optarg)) >= 0 ? wrong : "--over takes mpi, sockets or levels";
            break;
        case VERSION: say ? printf("pici-tune %s\n", pici_version()) : 0; return 1;
        default: return 1 + 2;
        }
    }
    options->files = argv + optind;
    options->count = argc - optind;
    if (!wrong && options->merge && options->report)
        wrong = "--merge and --report exclude each other";
    if (!wrong && options->report && (options->count != 1 || options->output))
        wrong = "--report takes one file, and writes none";
    if (!wrong && options->merge && options->count < 2)
        wrong = "--merge takes two files or more";
    if (!wrong && !options->merge && !options->report && options->count)
        wrong = "there are arguments that are not options";
    if (!wrong && !options->report && !options->output)
        wrong = "-o FILE is missing";
    if (!wrong && options->native && options->over != OVER_MPI)
        wrong = "--native measures MPI's collectives, which calls over sockets cannot take";
    if (!wrong && options->least > options->most)
        wrong = "--min is above --max";
    if (wrong && say)
        fprintf(stderr, "pici-tune: %s; see pici-tune --help\n", wrong);
    return wrong ? 1 + 2 : 0;
}

/* ---- measuring */

/* Copies text for a quoted string of the file. Characters that it cannot contain become spaces. */
static void quote(char quoted[TUNE_TEXT], const char *text)
{
    size_t size = 0;
    for (; text[size] && text[size] != '\n' && text[size] != ',' && size < TUNE_TEXT - 1; size++)
        quoted[size] = text[size] < ' ' || text[size] > '~' || text[size] == '"' ? ' ' : text[size];
    quoted[size] = '\0';
}

static int describe(const struct world *world, struct tune *tune)
{
    char library[MPI_MAX_LIBRARY_VERSION_STRING];
    int size;
    const time_t now = time(NULL);
    struct tm utc;
    *tune = (struct tune){.density = 0.05, .correlation = 1, .machine = pici_model_machine};
    strftime(tune->date, sizeof tune->date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    quote(tune->pici, pici_version());
    quote(tune->transport, over_name(world->over));
    MPI_Get_library_version(library, &size);
    quote(tune->library, library);
    tune->machine.natives = 0;
    tune->shapes = malloc(sizeof *tune->shapes);
    int *begin = malloc(((size_t)world->nodes.nodes + 1) * sizeof *begin);
    if (!tune->shapes || !begin) {
        free(begin);
        return 0;
    }
    memcpy(begin, world->nodes.begin, ((size_t)world->nodes.nodes + 1) * sizeof *begin);
    tune->shape_count = 1;
    tune->shapes[0].ranks = world->ranks;
    tune->shapes[0].cores = world->cores;
    tune->shapes[0].nodes.nodes = world->nodes.nodes;
    tune->shapes[0].nodes.begin = begin;
    return 1;
}

static int measure(const struct options *options)
{
    struct world world = {.native = options->native, .over = (enum over)options->over};
    const struct points_options points = {.least = options->least, .most = options->most, .noise = options->noise};
    struct tune tune;
    if (!world_open(&world, options->nodes))
        return 0;
    int good = world.rank || file_probe(options->output);
    MPI_Bcast(&good, 1, MPI_INT, 0, world.mpi);
    if (!good) {
        world_close(&world);
        return 0;
    }
    if (!describe(&world, &tune))
        world_die(&world, "no memory");
    const double begin = MPI_Wtime();
    world.deadline = begin + 60 * options->minutes;
    world_say(&world, "%d ranks on %d nodes, %d cores a node", world.ranks, world.nodes.nodes, world.cores);
    calibrate(&world, &tune.machine, 60 * options->minutes / 4, options->noise);
    thresholds_find(&world, &tune.machine, &tune.thresholds, begin + 60 * options->minutes / 3, options->most);
    world_set_links(&world, tune.machine.link, &tune.thresholds);
    points_measure(&world, &tune, &points);
    good = world.rank || file_write(options->output, &tune);
    MPI_Bcast(&good, 1, MPI_INT, 0, world.mpi);
    if (good)
        world_say(&world, "To use it: export PICI_TUNE=%s", options->output);
    pici_tune_free(&tune);
    world_close(&world);
    return good;
}

/* Unsets variables that would affect the measured calls. */
static void clear_environment(void)
{
    static const char *const names[] = {"PICI_TUNE",  "PICI_ALGORITHM", "PICI_FORMAT", "PICI_NATIVE",
                                        "PICI_TRACE", "PICI_PACK",      "PICI_BALANCE"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        unsetenv(names[i]);
}

int main(int argc, char **argv)
{
    struct options options;
    struct tune tune = {.shape_count = 0};
    term_whole_lines();
    int good, rank = 0, stop = read_options(&options, argc, argv, 0);
    optind = 1;
    setlocale(LC_CTYPE, "");                                         /* the encoding for printing names */
    if (stop == 1 || (!stop && (options.merge || options.report))) { /* without MPI, so that it runs without mpirun */
        stop = read_options(&options, argc, argv, 1);
        if (stop)
            return stop - 1;
        if (options.merge)
            return file_merge(options.output, options.files, options.count) ? 0 : 1;
        good = file_read(options.files[0], &tune) && report_tune(&tune);
        pici_tune_free(&tune);
        return good ? 0 : 1;
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    stop = read_options(&options, argc, argv, rank == 0);
    clear_environment();
    good = !stop && measure(&options);
    MPI_Finalize();
    if (stop)
        return stop - 1;
    return good ? 0 : 1;
}
