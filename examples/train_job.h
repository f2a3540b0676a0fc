/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The command line of train. */
#ifndef EXAMPLES_TRAIN_JOB_H
#define EXAMPLES_TRAIN_JOB_H

#include <getopt.h>

#include "job.h"

enum { MAX_RANKS = 256 };

static void usage(FILE *to)
{
    fprintf(to, "usage: train [OPTION]... [FILE]\n"
                "Train a classifier on several ranks, with dense and with sparse collectives, the latter\nalso in the "
                "formats pici and hybrid alone, side by side.\n"
                "FILE has examples of two classes in LIBSVM's text format; without one, data are generated.\n\n"
                "  -m, --model MODEL     logistic (default) or network\n"
                "  -o, --order N         logistic: products of up to N features, 1 to 3 (default 3)\n"
                "  -u, --hidden N        network: hidden units (default 1024)\n"
                "  -k, --keep PERCENT    send the largest of the gradient, keep the rest for later\n"
                "                        (default: 100 for logistic, 1 for network)\n"
                "  -S, --shard           reduce-scatter, update a share on each rank, all-gather\n"
                "  -s, --steps N         (default 100)\n"
                "  -b, --batch N         examples a rank and step (default 64)\n"
                "  -r, --rate X          of learning (default 0.01)\n"
                "  -w, --weights OUT     write the weights at the end to this file, as raw f32\n"
                "      --seed N          of the data's order, and of what is generated (default 1)\n"
#ifndef PICI_EXAMPLE_MPI
                "  -t, --threads N       ranks (default 4); not under pici-run\n"
#endif
                "  -h, --help\n\n"
                "PICI_ALGORITHM, PICI_FORMAT and the other variables of docs/collectives.md apply.\n"
                "Exit status: 0 done, and all agree; 1 bad data, a failure, or they disagree; 2 usage.\n");
}

static bool parse_number(const char *text, double least, double most, double *number)
{
    char *end;
    *number = strtod(text, &end);
    return end != text && *end == '\0' && *number >= least && *number <= most;
}

static bool parse_int(const char *text, int least, int most, int *number)
{
    double x;
    if (!parse_number(text, least, most, &x) || x != floor(x))
        return false;
    *number = (int)x;
    return true;
}

/* Parse the command line into *o. Returns -1, or the exit status if the program ends here. */
static int parse_options(int argc, char **argv, struct options *o)
{
    enum { SEED = 256 };
    static const struct option names[] = {{"model", required_argument, NULL, 'm'},
                                          {"order", required_argument, NULL, 'o'},
                                          {"hidden", required_argument, NULL, 'u'},
                                          {"keep", required_argument, NULL, 'k'},
                                          {"shard", no_argument, NULL, 'S'},
                                          {"steps", required_argument, NULL, 's'},
                                          {"batch", required_argument, NULL, 'b'},
                                          {"rate", required_argument, NULL, 'r'},
                                          {"seed", required_argument, NULL, SEED},
                                          {"threads", required_argument, NULL, 't'},
                                          {"weights", required_argument, NULL, 'w'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const int ranks = o->ranks;
    int seed;
    *o = (struct options){false, false, ranks ? ranks : 4, 100, 64, 1024, 3, 0.01, 0, 1, NULL, NULL};
    opterr = own_rank == 0;
    for (int c; (c = getopt_long(argc, argv, "m:o:u:k:Ss:b:r:t:w:h", names, NULL)) != -1;) {
        bool ok = true;
        switch (c) {
        case 'm':
            o->network = strcmp(optarg, "network") == 0;
            ok = o->network || strcmp(optarg, "logistic") == 0;
            break;
        case 'o': ok = parse_int(optarg, 1, 3, &o->order); break;
        case 'u': ok = parse_int(optarg, 1, 1 << 20, &o->hidden); break;
        case 'k': ok = parse_number(optarg, 0, 100, &o->keep) && o->keep > 0; break;
        case 'S': o->shard = true; break;
        case 's': ok = parse_int(optarg, 1, 1000000, &o->steps); break;
        case 'b': ok = parse_int(optarg, 1, 1000000, &o->batch); break;
        case 'r': ok = parse_number(optarg, 0, 1000, &o->rate); break;
        case 't': ok = ranks == 0 && parse_int(optarg, 1, MAX_RANKS, &o->ranks); break;
        case 'w': o->weights = optarg; break;
        case SEED:
            ok = parse_int(optarg, 0, INT32_MAX, &seed);
            o->seed = ok ? (uint64_t)seed : 0;
            break;
        case 'h': own_rank == 0 ? usage(stdout) : (void)0; return 0;
        default: return 2;
        }
        if (!ok) {
            if (own_rank == 0)
                complain("%s: not what an option takes (train --help)", optarg);
            return 2;
        }
    }
    if (o->keep == 0)
        o->keep = o->network ? 1 : 100;
    if (optind < argc)
        o->path = argv[optind++];
    if (optind < argc) {
        if (own_rank == 0)
            complain("more than one file (train --help)");
        return 2;
    }
    return -1;
}

#endif
