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
                "  -l, --loss LOSS       logistic (default) or hinge, a support vector machine\n"
                "  -o, --order N         logistic: products of up to N features, 1 to 3 (default 3)\n"
                "  -u, --hidden N        network: hidden units (default 1024)\n"
                "  -k, --keep PERCENT    send the largest of the gradient, keep the rest for later\n"
                "                        (default: 100 for logistic, 1 for network)\n"
                "      --topk PERCENT    the same\n"
                "      --values LIST     compare instead: the whole gradient, its largest elements, and\n"
                "                        each of these lossy codecs alone and with the largest: q2, q4,\n"
                "                        q8, bf16, f16\n"
                "      --descent         compare instead: gradient descent and distributed coordinate\n"
                "                        ascent, whose changes are gathered dense and as streams, each\n"
                "                        with both losses\n"
                "      --curves FILE     draw the loss of all runs into this file, as SVG; with --values\n"
                "                        or --descent\n"
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
                "PICI_ALGORITHM, PICI_FORMAT and the other variables of docs/reference/settings.md apply.\n"
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

static struct contestant *add_run(struct options *o, const char *name, bool topk, enum pici_format format)
{
    const struct pici_values exact = PICI_VALUES_INIT;
    struct contestant *const c = &o->run[o->runs++];
    *c = (struct contestant){.loss = o->loss, .topk = topk, .format = format, .values = exact};
    snprintf(c->name, sizeof c->name, "%s", name);
    return c;
}

/* The codecs in a list of names; values[] has room for four. Returns how many, 0 if one is not known. */
static int parse_values(const char *list, struct pici_values *values, char (*name)[8])
{
    static const struct {
        const char *name;
        enum pici_value_codec codec;
        int bits;
        enum pici_dtype cast;
    } known[] = {{"q2", PICI_VALUES_QSGD, 2, PICI_F32},
                 {"q4", PICI_VALUES_QSGD, 4, PICI_F32},
                 {"q8", PICI_VALUES_QSGD, 8, PICI_F32},
                 {"bf16", PICI_VALUES_CAST, 0, PICI_BF16},
                 {"f16", PICI_VALUES_CAST, 0, PICI_F16}};
    const struct pici_values exact = PICI_VALUES_INIT;
    int n = 0;
    for (const char *word = list; word; n++) {
        const size_t len = strcspn(word, ",");
        size_t i = 0, all = sizeof known / sizeof *known;
        while (i < all && !(strlen(known[i].name) == len && strncmp(known[i].name, word, len) == 0))
            i++;
        if (i == all || n == 4)
            return 0;
        values[n] = exact;
        values[n].codec = known[i].codec;
        values[n].bits = known[i].bits;
        values[n].cast = known[i].cast;
        values[n].rounding = PICI_ROUND_NEAREST; /* less error; the rounding errors are sent later */
        snprintf(name[n], sizeof name[n], "%s", known[i].name);
        word = word[len] ? word + len + 1 : NULL;
    }
    return n;
}

static void choose_descents(struct options *o)
{
    static const char *const way[] = {"gradient", "dense", "stream"}, *const loss[] = {"logistic", "hinge"};
    for (int i = 0; i < 6; i++) {
        char name[24];
        o->loss = i % 2 ? LOSS_HINGE : LOSS_LOGISTIC;
        snprintf(name, sizeof name, "%s %s", loss[i % 2], way[i / 2]);
        struct contestant *const c = add_run(o, name, false, PICI_AUTO);
        c->coordinates = i >= 2;
        c->stream = i >= 4;
        c->dense = c->coordinates && !c->stream;
    }
}

/* The runs to compare: equal results with different messages; with --values different results; with --descent different
 * methods. False: these options conflict, or the list is invalid. */
static bool choose_runs(struct options *o, const char *list)
{
    struct pici_values values[4];
    char name[4][8];
    const bool topk = o->keep < 100, hinge = o->loss == LOSS_HINGE;
    if (o->descent) {
        choose_descents(o);
        return !list && !topk && !o->network && !o->shard && !hinge;
    }
    o->lossy = list != NULL;
    add_run(o, "dense", topk && !o->lossy, PICI_AUTO)->dense = true;
    if (!list) {
        add_run(o, "sparse", topk, PICI_AUTO);
        add_run(o, "bitmap", topk, PICI_BITMAP);
        add_run(o, "hybrid", topk, PICI_HYBRID);
        return true;
    }
    const int n = parse_values(list, values, name);
    if (topk)
        add_run(o, "topk", true, PICI_AUTO);
    for (int with = 0; with < (topk ? 2 : 1); with++)
        for (int i = 0; i < n; i++) {
            char both[16];
            snprintf(both, sizeof both, "%s%.7s", with ? "topk+" : "", name[i]);
            add_run(o, both, with, PICI_AUTO)->values = values[i];
        }
    return n > 0 && !o->shard;
}

/* Parse the command line into *o. Returns -1, or the exit status if the program ends here. */
static int parse_options(int argc, char **argv, struct options *o)
{
    enum { SEED = 256, VALUES, CURVES, DESCENT };
    const char *values = NULL;
    static const struct option names[] = {{"model", required_argument, NULL, 'm'},
                                          {"loss", required_argument, NULL, 'l'},
                                          {"order", required_argument, NULL, 'o'},
                                          {"hidden", required_argument, NULL, 'u'},
                                          {"keep", required_argument, NULL, 'k'},
                                          {"topk", required_argument, NULL, 'k'},
                                          {"values", required_argument, NULL, VALUES},
                                          {"descent", no_argument, NULL, DESCENT},
                                          {"curves", required_argument, NULL, CURVES},
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
    *o = (struct options){
        .ranks = ranks ? ranks : 4, .steps = 100, .batch = 64, .hidden = 1024, .order = 3, .rate = 0.01, .seed = 1};
    opterr = own_rank == 0;
    for (int c; (c = getopt_long(argc, argv, "m:l:o:u:k:Ss:b:r:t:w:h", names, NULL)) != -1;) {
        bool ok = true;
        switch (c) {
        case 'm':
            o->network = strcmp(optarg, "network") == 0;
            ok = o->network || strcmp(optarg, "logistic") == 0;
            break;
        case 'l':
            o->loss = strcmp(optarg, "hinge") == 0 ? LOSS_HINGE : LOSS_LOGISTIC;
            ok = o->loss == LOSS_HINGE || strcmp(optarg, "logistic") == 0;
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
        case VALUES: values = optarg; break;
        case DESCENT: o->descent = true; break;
        case CURVES: o->curves = optarg; break;
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
        o->keep = o->network || values ? 1 : 100;
    if (!choose_runs(o, values)) {
        if (own_rank == 0 && o->descent)
            complain("--descent compares linear models by both losses, so it goes without --values, --keep, --shard, "
                     "--model and --loss (train --help)");
        else if (own_rank == 0)
            complain("%s: not a list of lossy codecs, or with --shard (train --help)", values);
        return 2;
    }
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
