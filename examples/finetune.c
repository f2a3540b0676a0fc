/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Fine-tunes a model in bf16 while a second process gets the same weights after each step, as a process that generates
 * rollouts for reinforcement learning does. It sends the weights through a socket in three ways: whole, as deltas, and
 * as small deltas, which the receiver decodes with the old weights. If zstd is installed, it also sends them through
 * files by zstd --patch-from. Prints the bytes and the time of each way; for zstd, the time includes its files and
 * processes.
 *     finetune [-s STEPS] [-u HIDDEN] [-r RATE] [FILE]
 * FILE has examples of two classes in LIBSVM's text format; without it, data are generated. Training is by Adam: first
 * at a rate of 0.001, to get a pretrained model, then at RATE. Exits with status 1 if a byte of the weights ever
 * differs in the second process. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <pici/delta.h>

#include "job.h"

enum { PRETRAIN = 200, BATCH = 64, ROWS = 8 };
enum ship { WHOLE, DELTA, SMALL, HASH };
enum { WAYS = 4 }; /* the first three, and zstd */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Write (out) or read all n bytes. False on an error or at the end of the stream. */
static bool transfer(int fd, char *p, size_t n, bool out)
{
    while (n) {
        const ssize_t k = out ? write(fd, p, n) : read(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            return false;
        p += k;
        n -= (size_t)k;
    }
    return true;
}

static bool put(int fd, const void *p, size_t n)
{
    return transfer(fd, (char *)p, n, true); /* writing does not change p */
}

static bool get(int fd, void *p, size_t n)
{
    return transfer(fd, p, n, false);
}

/* FNV-1a, by words. */
static uint64_t hash(const uint16_t *w, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ w[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* ---- the second process: it holds weights and executes orders */

struct order {
    uint64_t ship, bytes; /* enum ship; the bytes that follow: weights, or a block */
};

/* Execute orders until the socket is closed. Answers each order with 0 when it is done; HASH with the hash. */
static int worker(int fd, size_t n, size_t cap)
{
    uint16_t *const w = calloc(n, sizeof *w);
    void *const block = malloc(cap);
    struct order o;
    if (!w || !block)
        return 1;
    while (get(fd, &o, sizeof o)) {
        uint64_t answer = o.ship == HASH ? hash(w, n) : 0;
        if (o.ship == WHOLE && (o.bytes != n * sizeof *w || !get(fd, w, n * sizeof *w)))
            return 1;
        if (o.ship == DELTA && (o.bytes > cap || !get(fd, block, o.bytes) || pici_apply(w, n, block, o.bytes, NULL)))
            return 1;
        if (o.ship == SMALL &&
            (o.bytes > cap || !get(fd, block, o.bytes) || pici_apply_small(w, n, block, o.bytes, NULL)))
            return 1;
        if (!put(fd, &answer, sizeof answer))
            return 1;
    }
    free(w);
    free(block);
    return 0;
}

static bool ship(int fd, enum ship how, const void *p, size_t bytes, uint64_t *answer)
{
    const struct order o = {how, bytes};
    if (put(fd, &o, sizeof o) && put(fd, p, bytes) && get(fd, answer, sizeof *answer))
        return true;
    complain("the other process has ended");
    return false;
}

/* ---- zstd --patch-from */

/* Run zstd in dir. Returns its exit status; 127 if zstd is not installed. */
static int zstd(const char *dir, const char *const arguments[])
{
    const pid_t pid = fork();
    int status;
    if (pid == 0) {
        const int null = open("/dev/null", O_WRONLY); /* it prints notes about its window */
        if (null >= 0 && dup2(null, 1) == 1 && dup2(null, 2) == 2 && chdir(dir) == 0)
            execvp("zstd", (char *const *)arguments);
        _exit(127);
    }
    return pid < 0 || waitpid(pid, &status, 0) < 0 || !WIFEXITED(status) ? 1 : WEXITSTATUS(status);
}

static bool save(const char *dir, const char *name, const void *p, size_t bytes)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    const bool ok = fd >= 0 && put(fd, p, bytes);
    return fd >= 0 && close(fd) == 0 && ok;
}

/* Make and apply a patch with zstd. *bytes: its length; *s: the seconds for both, files included. False, after a
 * message, if it cannot be made or does not give the weights. */
static bool patch(const char *dir, const uint16_t *before, const uint16_t *now, size_t n, uint64_t *bytes, double *s)
{
    static const char *const make[] = {"zstd", "-qf", "--patch-from=before", "now", "-o", "patch", NULL};
    static const char *const use[] = {"zstd", "-dqf", "--patch-from=before", "patch", "-o", "back", NULL};
    char path[4096];
    struct stat st;
    uint16_t *const back = malloc(n * sizeof *back);
    bool ok = back && save(dir, "before", before, n * sizeof *before);
    const double start = seconds();
    ok = ok && save(dir, "now", now, n * sizeof *now) && zstd(dir, make) == 0 && zstd(dir, use) == 0;
    snprintf(path, sizeof path, "%s/back", dir);
    const int fd = ok ? open(path, O_RDONLY) : -1;
    ok = fd >= 0 && get(fd, back, n * sizeof *back) && memcmp(back, now, n * sizeof *back) == 0;
    *s = seconds() - start;
    if (fd >= 0)
        close(fd);
    snprintf(path, sizeof path, "%s/patch", dir);
    ok = ok && stat(path, &st) == 0;
    *bytes = ok ? (uint64_t)st.st_size : 0;
    free(back);
    if (!ok)
        complain("zstd --patch-from does not lead back");
    return ok;
}

static void clean(const char *dir)
{
    static const char *const names[] = {"before", "now", "patch", "back"};
    char path[4096];
    for (int i = 0; i < 4; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        unlink(path);
    }
    rmdir(dir);
}

/* ---- learning */

struct trainer {
    struct job job;
    struct model_place place;
    size_t n;
    float *master, *shown, *g, *m, *v; /* f32 weights; the bf16 weights as f32; gradient; its first and second
    moments */
    uint16_t *now, *before;            /* bf16 weights: after and before this step */
    int steps;
};

/* Round to nearest even. */
static uint16_t round_bf16(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return (uint16_t)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

static void show(struct trainer *t)
{
    for (size_t i = 0; i < t->n; i++) {
        t->now[i] = round_bf16(t->master[i]);
        const uint32_t u = (uint32_t)t->now[i] << 16;
        memcpy(&t->shown[i], &u, sizeof u);
    }
}

/* One step of Adam on a batch. Returns the loss. */
static double learn(struct trainer *t, double rate)
{
    const struct job *const j = &t->job;
    double loss = 0;
    memset(t->g, 0, t->n * sizeof *t->g);
    for (size_t i = 0; i < BATCH; i++) {
        const size_t row = j->order[((size_t)t->steps * BATCH + i) % j->taught];
        const double z = model_score(&j->model, &t->place, t->shown, &j->data, row);
        const bool upper = j->data.label[row] == j->upper;
        loss += log1p(exp(-fabs(z))) + fmax(upper ? -z : z, 0);
        model_backward(&j->model, &t->place, t->shown, t->g, (float)((1 / (1 + exp(-z)) - upper) / BATCH));
    }
    t->steps++;
    const float a = (float)(rate * sqrt(1 - pow(0.999, t->steps)) / (1 - pow(0.9, t->steps)));
    for (size_t i = 0; i < t->n; i++) {
        t->m[i] += 0.1f * (t->g[i] - t->m[i]);
        t->v[i] += 0.001f * (t->g[i] * t->g[i] - t->v[i]);
        t->master[i] -= a * t->m[i] / (sqrtf(t->v[i]) + 1e-8f);
    }
    show(t);
    return loss / BATCH;
}

static bool trainer_init(struct trainer *t, const struct options *o)
{
    memset(t, 0, sizeof *t);
    if (!job_init(&t->job, o))
        return false;
    const size_t n = t->n = t->job.n;
    uint64_t state = o->seed;
    t->master = calloc(n, sizeof *t->master);
    t->shown = calloc(n, sizeof *t->shown);
    t->g = calloc(n, sizeof *t->g);
    t->m = calloc(n, sizeof *t->m);
    t->v = calloc(n, sizeof *t->v);
    t->now = calloc(n, sizeof *t->now);
    t->before = calloc(n, sizeof *t->before);
    if (!model_place_init(&t->place, &t->job.model) || !t->master || !t->shown || !t->g || !t->m || !t->v || !t->now ||
        !t->before) {
        complain("no memory");
        return false;
    }
    for (size_t i = 0; i < n; i++)
        t->master[i] = (float)(0.2 * uniform(&state) - 0.1);
    show(t);
    return true;
}

static void trainer_free(struct trainer *t)
{
    model_place_free(&t->place);
    job_free(&t->job);
    free(t->master);
    free(t->shown);
    free(t->g);
    free(t->m);
    free(t->v);
    free(t->now);
    free(t->before);
}

/* ---- training and shipping */

struct cost {
    uint64_t bytes;
    double s;
};

/* Make a delta, ship it, and check that the other process has the weights now. */
static bool ship_delta(struct trainer *t, int fd, enum ship how, void *block, size_t cap, size_t *len,
                       struct cost *cost)
{
    uint64_t answer;
    if (!ship(fd, WHOLE, t->before, t->n * sizeof *t->now, &answer)) /* what it had before this step */
        return false;
    const double begin = seconds();
    if ((how == SMALL ? pici_diff_small : pici_diff)(block, cap, len, t->before, t->now, t->n, PICI_BF16, PICI_AUTO,
                                                     NULL) != PICI_OK) {
        complain("no delta");
        return false;
    }
    if (!ship(fd, how, block, *len, &answer))
        return false;
    cost->s += seconds() - begin;
    cost->bytes += *len;
    if (!ship(fd, HASH, NULL, 0, &answer))
        return false;
    if (answer != hash(t->now, t->n)) {
        complain("step %d: the other process has other weights", t->steps);
        return false;
    }
    return true;
}

/* Train one step and ship the weights in each way, adding to cost. dir: for the files of zstd; NULL: do not run zstd.
 * row: print a line. */
static bool step(struct trainer *t, int fd, void *block, size_t cap, double rate, const char *dir, int row,
                 struct cost cost[WAYS])
{
    uint64_t answer, changed = 0, bytes;
    size_t len, small_len;
    double s;
    memcpy(t->before, t->now, t->n * sizeof *t->now);
    const double loss = learn(t, rate);
    for (size_t i = 0; i < t->n; i++)
        changed += t->now[i] != t->before[i];

    const double begin = seconds();
    if (!ship(fd, WHOLE, t->now, t->n * sizeof *t->now, &answer))
        return false;
    cost[WHOLE].s += seconds() - begin;
    cost[WHOLE].bytes += t->n * sizeof *t->now;
    if (!ship_delta(t, fd, DELTA, block, cap, &len, &cost[DELTA]) ||
        !ship_delta(t, fd, SMALL, block, cap, &small_len, &cost[SMALL]))
        return false;
    if (dir) {
        if (!patch(dir, t->before, t->now, t->n, &bytes, &s))
            return false;
        cost[3].s += s;
        cost[3].bytes += bytes;
    }
    if (row)
        printf("  %5d   %.6f   %8.3f%%   %9zu   %9zu\n", t->steps - PRETRAIN, loss,
               100 * (double)changed / (double)t->n, len, small_len);
    return true;
}

/* The longest delta of either kind. */
static size_t longest(size_t n)
{
    const size_t a = pici_bound(PICI_AUTO, PICI_BF16, n), b = pici_diff_small_bound(PICI_AUTO, PICI_BF16, n);
    return a > b ? a : b;
}

static bool run(struct trainer *t, int fd, int steps, double rate, const char *dir)
{
    static const char *const names[WAYS] = {"whole", "delta", "small delta", "zstd --patch-from"};
    const size_t cap = longest(t->n);
    void *const block = malloc(cap);
    struct cost cost[WAYS] = {{0}};
    uint64_t answer;
    bool ok = block && ship(fd, WHOLE, t->now, t->n * sizeof *t->now, &answer);
    for (int i = 0; ok && i < PRETRAIN; i++)
        learn(t, 0.001);
    ok = ok && ship(fd, WHOLE, t->now, t->n * sizeof *t->now, &answer);
    printf("   step       loss     changed  delta, bytes       small\n");
    const int apart = (steps + ROWS - 1) / ROWS;
    for (int i = 0; ok && i < steps; i++)
        ok = step(t, fd, block, cap, rate, dir, i % apart == 0 || i + 1 == steps, cost);
    printf("\n                      bytes a step    of whole   ms a step\n");
    for (int i = 0; ok && i < (dir ? WAYS : WAYS - 1); i++)
        printf("  %-18s  %12.0f   %8.3f%%  %10.3f\n", names[i], (double)cost[i].bytes / steps,
               100 * (double)cost[i].bytes / (double)cost[0].bytes, 1e3 * cost[i].s / steps);
    if (!dir)
        printf("  SKIPPED: no zstd: deltas are not compared with zstd --patch-from\n");
    if (ok)
        printf("\n  The other process had the very bytes after each of %d steps.\n", steps);
    free(block);
    return ok;
}

static int usage(int status)
{
    fprintf(status ? stderr : stdout, "usage: finetune [-s STEPS] [-u HIDDEN] [-r RATE] [FILE]\n");
    return status;
}

int main(int argc, char **argv)
{
    struct options o = {.network = true, .ranks = 1, .hidden = 8192, .order = 1, .seed = 1};
    int steps = 50, pair[2], status = 1;
    double rate = 1e-5;
    own_name = "finetune";
    for (int c; (c = getopt(argc, argv, "s:u:r:h")) != -1;) {
        if (c == 's')
            steps = atoi(optarg);
        else if (c == 'u')
            o.hidden = atoi(optarg);
        else if (c == 'r')
            rate = atof(optarg);
        else
            return usage(c == 'h' ? 0 : 2);
    }
    if (steps < 1 || steps > 1000000 || o.hidden < 1 || o.hidden > 1 << 20 || !(rate > 0 && rate <= 1) ||
        argc - optind > 1)
        return usage(2);
    o.path = argv[optind];
    signal(SIGPIPE, SIG_IGN);

    struct trainer t;
    pid_t pid = -1;
    char temp[] = "/tmp/finetune-XXXXXX";
    const char *dir = NULL;
    if (trainer_init(&t, &o)) {
        printf("%s: %zu examples of %u features. A network of %d hidden units: %zu weights, %.2f MiB of bf16.\n\n",
               o.path ? o.path : "Generated data", t.job.data.rows, (unsigned)t.job.data.features, o.hidden, t.n,
               (double)t.n * 2 / (1 << 20));
        fflush(stdout);
        if (zstd("/", (const char *const[]){"zstd", "-V", NULL}) != 127)
            dir = mkdtemp(temp);
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0 && (pid = fork()) == 0) {
            close(pair[0]);
            _exit(worker(pair[1], t.n, longest(t.n)));
        }
        if (pid < 0) {
            complain("no second process: %s", strerror(errno));
        } else {
            close(pair[1]);
            const bool ok = run(&t, pair[0], steps, rate, dir);
            int how = 1;
            close(pair[0]);
            status = waitpid(pid, &how, 0) == pid && how == 0 && ok ? 0 : 1;
        }
        if (dir)
            clean(dir);
    }
    trainer_free(&t);
    if (fflush(stdout) || ferror(stdout)) {
        complain("standard output: %s", strerror(errno));
        return 1;
    }
    return status;
}
