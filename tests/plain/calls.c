/* SPDX-License-Identifier: BSD-3-Clause
 *
 * What a small all-reduce asks of others: after a first call, nothing of the allocator, and nothing of the kernel while
 * no rank waits. Needs libc alone.
 *
 * Nobody waits, since all ranks are on one thread. One of them makes the call in blocking form; the others have begun
 * theirs. Where that one finds that a message has not arrived, its transport lets the others make progress until it
 * has. It is the transport between threads, with this one function replaced.
 *
 * The linker puts the functions of counted.h in the place of the allocator's. For system calls there is a process for
 * each case, in which a filter of the kernel traps them all. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifdef __linux__
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#endif

#include "tests/util/counted.h"
#include "transport/thread.h"
#include "tests/util/transport.h"
#include "tests/util/util.h"

/* ---- ranks on one thread */

enum { RANKS = 8, ROUNDS = 1000 /* of progress, after which a message does not come any more */ };

struct small {
    int p;
    uint64_t count;
    enum pici_dtype dtype; /* u32 or f32 */
    enum pici_op op;
    int apart; /* every 100th element is not zero, else all are */
    int in_place, checksum;
    double density; /* the hint */
};

struct member {
    struct pici_transport inner; /* first: transport_wrap */
    struct crew *crew;
    struct pici_comm *comm;
    struct pici_request *request;
    enum pici_status status;
    uint32_t *send, *recv;
};

struct crew {
    const struct small *c;
    int caller; /* the rank whose call is in blocking form */
    int waits;  /* of that rank */
    struct member m[RANKS];
};

/* The other ranks make progress. What they free is not the caller's. */
static void others(struct crew *w)
{
    const int frees = counted.frees;
    for (int i = 0; i < w->c->p; i++) {
        struct member *m = &w->m[i];
        int done;
        if (m->request)
            m->status = pici_test(&m->request, &done);
    }
    counted.frees = frees;
}

static enum pici_status test_or_others(void *context, void *request, int *done, size_t *bytes)
{
    struct member *me = context;
    enum pici_status s = me->inner.test(me->inner.context, request, done, bytes);
    for (int i = 0; i < ROUNDS && !s && !*done && me == &me->crew->m[me->crew->caller]; i++) {
        others(me->crew);
        s = me->inner.test(me->inner.context, request, done, bytes);
    }
    return s;
}

static void count_wait(void *context, int timeout_ms)
{
    struct member *me = context;
    me->crew->waits++;
    me->inner.wait(me->inner.context, timeout_ms);
}

static struct crew *crew_make(const struct small *largest)
{
    struct pici_transport t[RANKS];
    struct crew *w = test_alloc(sizeof *w);
    const size_t bytes = (size_t)largest->count * sizeof(uint32_t);
    memset(w, 0, sizeof *w);
    w->c = largest;
    if (pici_transport_threads(t, largest->p))
        abort();
    for (int i = 0; i < largest->p; i++) {
        struct member *m = &w->m[i];
        m->crew = w;
        m->send = test_alloc(bytes);
        m->recv = test_alloc(bytes);
        transport_wrap(&t[i], &m->inner);
        t[i].test = test_or_others;
        t[i].wait = count_wait;
        if (pici_comm_transport(&m->comm, &t[i]))
            abort();
    }
    return w;
}

static void crew_free(struct crew *w, int p)
{
    for (int i = 0; i < p; i++) {
        pici_comm_free(w->m[i].comm);
        free(w->m[i].send);
        free(w->m[i].recv);
    }
    free(w);
}

/* An element as bits, of small whole numbers, whose sums and averages are exact. */
static uint32_t element(const struct small *c, uint64_t i, double x)
{
    const float f = (float)x;
    uint32_t bits = (uint32_t)x;
    if (c->apart && i % 100)
        return 0;
    if (c->dtype == PICI_F32)
        memcpy(&bits, &f, sizeof bits);
    return bits;
}

static double value(int rank, uint64_t i)
{
    return 8 * (1 + rank + (double)(i % 64));
}

static uint32_t expected(const struct small *c, uint64_t i)
{
    double sum = 0;
    for (int r = 0; r < c->p; r++)
        sum += value(r, i);
    return element(c, i, c->op == PICI_MAX ? value(c->p - 1, i) : c->op == PICI_AVG ? sum / c->p : sum);
}

/* All ranks but the caller begin the call. */
static struct pici_coll_opts begin(struct crew *w, const struct small *c, int caller)
{
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.checksum = c->checksum;
    opts.density = c->density;
    w->c = c;
    w->caller = caller;
    w->waits = 0;
    for (int r = 0; r < c->p; r++) {
        struct member *m = &w->m[r];
        uint32_t *const send = c->in_place ? m->recv : m->send;
        memset(m->recv, 0x5c, (size_t)c->count * sizeof *m->recv);
        for (uint64_t i = 0; i < c->count; i++)
            send[i] = element(c, i, value(r, i));
        if (r != caller && pici_all_reduce_start(send, m->recv, c->count, c->dtype, c->op, m->comm, &opts, &m->request))
            abort();
    }
    return opts;
}

/* The caller's call, and then the ends of the others'. */
static enum pici_status call(struct crew *w, const struct pici_coll_opts *opts)
{
    const struct small *c = w->c;
    struct member *me = &w->m[w->caller];
    counted.allocations = counted.frees = 0;
    counted.on = 1;
    enum pici_status s =
        pici_all_reduce(c->in_place ? me->recv : me->send, me->recv, c->count, c->dtype, c->op, me->comm, opts);
    counted.on = 0;
    return s;
}

static const char *judge(struct crew *w, enum pici_status s)
{
    static char wrong[200];
    const struct small *c = w->c;
    int left = 1;
    for (int round = 0; round < ROUNDS && left; round++) {
        others(w);
        left = 0;
        for (int r = 0; r < c->p; r++)
            left |= w->m[r].request != NULL;
    }
    for (int r = 0; r < c->p; r++) {
        if (r != w->caller && !s)
            s = w->m[r].status;
        for (uint64_t i = 0; i < c->count && !s && !left; i++)
            if (w->m[r].recv[i] != expected(c, i))
                return "a sum is wrong";
    }
    if (s || left)
        snprintf(wrong, sizeof wrong, "%s: %s", s ? pici_strerror(s) : "a rank does not end",
                 pici_comm_error(w->m[w->caller].comm));
    else if (w->waits)
        snprintf(wrong, sizeof wrong, "the caller waited %d times: this test is wrong", w->waits);
    return s || left || w->waits ? wrong : NULL;
}

static const char *words(const struct small *c, int caller, const char *what)
{
    static char text[200];
    snprintf(text, sizeof text, "%s: %s of %llu %s, rank %d of %d%s%s%s%s", what,
             c->op == PICI_MAX   ? "max"
             : c->op == PICI_AVG ? "avg"
                                 : "sum",
             (unsigned long long)c->count, c->dtype == PICI_F32 ? "f32" : "u32", caller, c->p,
             c->apart ? ", 99% zeros" : "", c->in_place ? ", in place" : "", c->checksum ? ", checksum" : "",
             c->density > 0 ? ", with a hint" : "");
    return text;
}

/* ---- allocations */

/* The first calls of a crew, which take what all need: with a hint AUTO may choose any algorithm. *first: what the very
 * first one allocates. */
static const char *warm(struct crew *w, const struct small *largest, int *first)
{
    struct small hinted = *largest;
    struct pici_coll_opts opts = begin(w, largest, 0);
    const char *wrong = judge(w, call(w, &opts));
    *first = counted.allocations;
    hinted.density = 0.01;
    opts = begin(w, &hinted, 0);
    return wrong ? wrong : judge(w, call(w, &opts));
}

static void allocations(const struct small *cases, int n, const struct small *largest)
{
    struct crew *w = crew_make(largest);
    int first;
    const char *wrong = warm(w, largest, &first);
    tally(words(largest, 0, "the first call"),
          wrong    ? wrong
          : !first ? "it allocates nothing: this test does not see what the library allocates"
                   : NULL);
    for (int i = 0; i < n; i++)
        for (int caller = 0; caller < largest->p; caller += largest->p - 1) {
            static char found[100];
            const struct pici_coll_opts opts = begin(w, &cases[i], caller);
            const enum pici_status s = call(w, &opts);
            snprintf(found, sizeof found, "%d allocations, %d frees", counted.allocations, counted.frees);
            wrong = counted.allocations || counted.frees ? found : NULL;
            const char *const result = judge(w, s);
            tally(words(&cases[i], caller, "allocations"), result ? result : wrong);
        }
    crew_free(w, largest->p);
}

/* ---- system calls */

#if defined __linux__ && !defined SANITIZED

enum { TRAPPED = 3, NO_FILTER = 4, NOT_MADE = 5 };

/* Of the process that makes the call, for the one that waits for it. */
static struct report {
    int number; /* of the system call */
    char wrong[200];
} * report;

static int clock_calls; /* the clock is a system call here */

static void trapped(int signal, siginfo_t *info, void *context)
{
    (void)signal;
    (void)context;
    report->number = info->si_syscall;
    _exit(TRAPPED);
}

/* From here on, trap all system calls of this thread but those that end the process, and the clock where the kernel
 * gives it in no other way. */
static void trap(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 3, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, clock_calls ? SYS_clock_gettime : SYS_exit_group, 2, 0),
#ifdef SYS_clock_gettime64
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, clock_calls ? SYS_clock_gettime64 : SYS_exit_group, 1, 0),
#else
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 1, 0),
#endif
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog filter = {sizeof code / sizeof *code, code};
    struct sigaction action = {.sa_sigaction = trapped, .sa_flags = SA_SIGINFO};
    if (sigaction(SIGSYS, &action, NULL) || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter)) {
        snprintf(report->wrong, sizeof report->wrong, "%s", strerror(errno));
        _exit(NO_FILTER);
    }
}

struct errand {
    const struct small *c, *largest;
    int caller;
};

static void the_clock(const struct errand *e)
{
    struct timespec t;
    (void)e;
    trap();
    clock_gettime(CLOCK_MONOTONIC, &t);
}

static void a_system_call(const struct errand *e)
{
    (void)e;
    trap();
    (void)getppid();
}

static void the_call(const struct errand *e)
{
    struct crew *w = crew_make(e->largest);
    int first;
    const char *wrong = warm(w, e->largest, &first);
    const struct pici_coll_opts opts = begin(w, e->c, e->caller);
    if (!wrong) {
        trap();
        wrong = call(w, &opts) ? "the call failed" : w->waits ? "the caller waited: this test is wrong" : NULL;
    }
    if (wrong) {
        strncpy(report->wrong, wrong, sizeof report->wrong - 1);
        _exit(NOT_MADE);
    }
}

/* Do it in a process of its own: its exit status. */
static int apart(void (*what)(const struct errand *), const struct errand *e)
{
    int status;
    *report = (struct report){0};
    fflush(stdout);
    const pid_t child = fork();
    if (!child) {
        what(e);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &status, 0) != child)
        abort();
    if (!WIFEXITED(status))
        snprintf(report->wrong, sizeof report->wrong, "signal %d", WTERMSIG(status));
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Whether system calls can be seen. */
static int can_trap(void)
{
    report = mmap(NULL, sizeof *report, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (report == MAP_FAILED)
        abort();
    const int status = apart(a_system_call, NULL);
    if (status == NO_FILTER) {
        printf("skip: system calls of small calls: no filter for them: %s\n", report->wrong);
        return 0;
    }
    tally("a system call is noticed", status == TRAPPED && report->number == SYS_getppid ? NULL : "it is not");
    clock_calls = apart(the_clock, NULL) == TRAPPED;
    if (clock_calls)
        printf("skip: that small calls do not read the clock: it is a system call here\n");
    return 1;
}

static void system_calls(const struct small *cases, int n, const struct small *largest)
{
    for (int i = 0; i < n; i++)
        for (int caller = 0; caller < largest->p; caller += largest->p - 1) {
            const struct errand e = {&cases[i], largest, caller};
            const int status = apart(the_call, &e);
            if (status == TRAPPED)
                snprintf(report->wrong, sizeof report->wrong, "system call %d", report->number);
            tally(words(&cases[i], caller, "system calls"), status ? report->wrong : NULL);
        }
}

#else

static int can_trap(void)
{
    printf("skip: system calls of small calls: %s\n",
#ifdef __linux__
           "a sanitizer makes its own"
#else
           "not Linux"
#endif
    );
    return 0;
}

static void system_calls(const struct small *cases, int n, const struct small *largest)
{
    (void)cases;
    (void)n;
    (void)largest;
}

#endif

int main(void)
{
    const int traps = can_trap();
    for (int p = 2; p <= RANKS; p *= 2) {
        /* the largest all-reduce that AUTO gives to doubling, which is one slice; up to 16 KiB travel with the call
         * agreement */
        const uint64_t most = p == 2 ? 16384 : p == 4 ? 8192 : 3200;
        const struct small cases[] = {
            {.p = p, .count = 1, .dtype = PICI_F32},
            {.p = p, .count = 256, .dtype = PICI_F32},
            {.p = p, .count = 256, .dtype = PICI_F32, .apart = 1, .in_place = 1},
            {.p = p, .count = 1000, .dtype = PICI_U32, .op = PICI_MAX, .checksum = 1},
            {.p = p, .count = 1000, .dtype = PICI_F32, .apart = 1, .density = 0.01},
            {.p = p, .count = most < 4096 ? most : 4096, .dtype = PICI_F32, .op = PICI_AVG},
            {.p = p, .count = most, .dtype = PICI_F32, .apart = 1},
            {.p = p, .count = most, .dtype = PICI_F32, .in_place = 1},
        };
        const int n = sizeof cases / sizeof *cases;
        allocations(cases, n, &cases[n - 2]);
        if (traps)
            system_calls(cases, n, &cases[n - 2]);
    }
    return tally_end();
}
