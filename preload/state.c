/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators of ours are freed with the program's, or at the latest by MPI_Finalize: it first deletes the attributes
 * of MPI_COMM_SELF, while MPI still works. This is an attribute and not a function MPI_Finalize, since not every
 * Fortran interface calls that in C. */
#define _POSIX_C_SOURCE 200809L
#include "preload/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "pici/mpi.h"
#include "preload/agree.h"
#include "preload/gpu.h"
#include "preload/profiling.h"
#include "preload/progress.h"

/* Words of an agreement, which combines them by their maximum. */
enum { SETTINGS, SETTINGS_NOT, HOST, HOST_NOT, INVALID, GPU, FULL, STUCK };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int phase; /* 0: not begun; 1: begun; 2: ended, or there is nothing to do */
static int keyval = MPI_KEYVAL_INVALID, self_keyval = MPI_KEYVAL_INVALID;
static struct state *made;            /* states with a communicator of ours */
static MPI_Comm self = MPI_COMM_NULL; /* pmpi_self */
static int places;                    /* places taken, of settings->comms */
static struct state *orphans;         /* states with running jobs, whose communicators the program has freed */

/* Shared by communicators without memory for a state: agreed on or not. */
static struct state nothing = {.reason = OFF, .agreed = 1}, nothing_yet = {.reason = OFF};

/* ---- freeing */

static void free_comm(struct state *state)
{
    struct pici_comm *comm = state->comm;
    if (!comm)
        return;
    pmpi_graph_unplan(state->graph);
    pthread_mutex_lock(&lock);
    *state->link = state->next;
    if (state->next)
        state->next->link = state->link;
    places--;
    state->comm = NULL;
    pthread_mutex_unlock(&lock);
    pici_comm_free(comm);
}

void pmpi_state_off(struct state *state, enum reason reason)
{
    free_comm(state);
    state->reason = reason;
}

static void free_state(struct state *state)
{
    while (state->requests) {
        struct state *const own = state->requests;
        state->requests = own->next_request;
        free_state(own);
    }
    free_comm(state);
    pmpi_graph_free(state->graph);
    free(state);
}

static int delete_state(MPI_Comm comm, int key, void *value, void *extra)
{
    struct state *state = value;
    (void)comm, (void)key, (void)extra;
    if (state == &nothing || state == &nothing_yet)
        return MPI_SUCCESS;
    if (!atomic_load(&state->users)) {
        free_state(state);
        return MPI_SUCCESS;
    }
    atomic_store(&state->orphaned, 1);
    pthread_mutex_lock(&lock);
    state->next_orphan = orphans;
    orphans = state;
    pthread_mutex_unlock(&lock);
    return MPI_SUCCESS;
}

/* Free orphans without jobs, or all. */
static void free_orphans(int all)
{
    struct state *unused = NULL;
    pthread_mutex_lock(&lock);
    for (struct state **link = &orphans, *state; (state = *link) != NULL;)
        if (all || !atomic_load(&state->users)) {
            *link = state->next_orphan;
            state->next_orphan = unused;
            unused = state;
        } else
            link = &state->next_orphan;
    pthread_mutex_unlock(&lock);
    while (unused) {
        struct state *const state = unused;
        unused = state->next_orphan;
        free_state(state);
    }
}

static int end(MPI_Comm comm, int key, void *value, void *extra)
{
    const int stats = pmpi_settings()->stats;
    int rank = 0;
    (void)comm, (void)key, (void)value, (void)extra;
    atomic_store(&phase, 2);
    pmpi_progress_close();
    if (self != MPI_COMM_NULL)
        PMPI_Comm_free(&self);
    free_orphans(1);
    while (made)
        pmpi_state_off(made, OFF);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (stats == 2 || (stats == 1 && !rank))
        pmpi_print_stats(stats == 2 ? rank : -1);
    return MPI_SUCCESS;
}

MPI_Comm pmpi_self(void)
{
    pthread_mutex_lock(&lock);
    if (self == MPI_COMM_NULL && pmpi_comm_dup(MPI_COMM_SELF, &self) != MPI_SUCCESS)
        self = MPI_COMM_NULL;
    const MPI_Comm made_or_not = self;
    pthread_mutex_unlock(&lock);
    return made_or_not;
}

/* ---- beginning */

/* Nonzero: MPI_Init, or a function like it, has initialized MPI, so that MPI_COMM_SELF exists; and MPI is not
 * finalized. */
static int initialized(void)
{
    int yes = 0, finalized = 0;
    return PMPI_Initialized(&yes) == MPI_SUCCESS && yes && PMPI_Finalized(&finalized) == MPI_SUCCESS && !finalized;
}

static void say_lossy(void)
{
    const struct settings *settings = pmpi_settings();
    int rank = 0;
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!rank && settings->lossy && !settings->fault[0])
        fprintf(stderr, "pici: PICI_PMPI_LOSSY=%s: sums of floats by MPI_Allreduce lose precision\n", settings->lossy);
}

static int begin(void)
{
    if (!pmpi_settings()->enabled)
        return 2;
    if (!initialized())
        return 0;
    if (PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, delete_state, &keyval, NULL) != MPI_SUCCESS ||
        PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, end, &self_keyval, NULL) != MPI_SUCCESS ||
        PMPI_Comm_set_attr(MPI_COMM_SELF, self_keyval, &nothing) != MPI_SUCCESS)
        return 2;
    say_lossy();
    return 1;
}

int pmpi_begun(void)
{
    int now = atomic_load_explicit(&phase, memory_order_acquire);
    if (now)
        return now == 1;
    pthread_mutex_lock(&lock);
    now = atomic_load(&phase);
    if (!now) {
        now = begin();
        atomic_store(&phase, now);
    }
    pthread_mutex_unlock(&lock);
    return now == 1;
}

/* ---- agreeing */

static uint64_t hash_of_host(void)
{
    char name[MPI_MAX_PROCESSOR_NAME];
    int size = 0;
    return PMPI_Get_processor_name(name, &size) == MPI_SUCCESS ? pmpi_hash(PMPI_HASH, name, (unsigned long)size) : 0;
}

static enum reason judge(MPI_Comm comm, const uint64_t words[PMPI_WORDS])
{
    static atomic_flag settings_said = ATOMIC_FLAG_INIT, gpu_said = ATOMIC_FLAG_INIT;
    const struct settings *settings = pmpi_settings();
    if (words[INVALID]) {
        pmpi_say(comm, &settings_said, "off: %s",
                 settings->fault[0] ? settings->fault : "a variable of another rank is invalid");
        return OFF;
    }
    if (words[SETTINGS] != ~words[SETTINGS_NOT]) {
        pmpi_say(comm, &settings_said, "off: ranks have different versions of pici, or different PICI_ variables");
        return OFF;
    }
    if (words[GPU]) {
        pmpi_say(comm, &gpu_said, "off: a rank uses a GPU, whose memory this library cannot read");
        return OFF;
    }
    return words[HOST] == ~words[HOST_NOT] && !settings->intra ? ONE_NODE : OURS;
}

static int agree_on_state(struct state *state, MPI_Comm comm, enum function function, int lacking)
{
    const struct settings *settings = pmpi_settings();
    uint64_t words[PMPI_WORDS] = {[SETTINGS] = settings->hash,
                                  [SETTINGS_NOT] = ~settings->hash,
                                  [HOST] = hash_of_host(),
                                  [INVALID] = settings->fault[0] || lacking,
                                  [GPU] = (uint64_t)pmpi_gpu()};
    words[HOST_NOT] = ~words[HOST];
    const int rc = pmpi_agree(comm, function, words, MPI_MAX);
    if (lacking)
        return rc == MPI_SUCCESS ? PMPI_Comm_set_attr(comm, keyval, &nothing) : rc;
    state->reason = rc == MPI_SUCCESS ? judge(comm, words) : OFF;
    state->agreed = 1;
    return rc;
}

/* Make a state that the ranks have not agreed on. */
static struct state *new_state(MPI_Comm comm, int *rc)
{
    int inter = 0, ranks = 0;
    free_orphans(0);
    if ((*rc = PMPI_Comm_test_inter(comm, &inter)) != MPI_SUCCESS ||
        (*rc = PMPI_Comm_size(comm, &ranks)) != MPI_SUCCESS)
        return NULL;
    struct state *state = calloc(1, sizeof *state);
    const int lacking = !state;
    if (lacking)
        state = &nothing_yet;
    else {
        atomic_flag_clear(&state->busy);
        if (inter || ranks < 2) {
            state->reason = inter ? INTER : ONE_RANK;
            state->agreed = 1;
        }
    }
    *rc = PMPI_Comm_set_attr(comm, keyval, state);
    if (*rc == MPI_SUCCESS)
        return state;
    if (!lacking)
        free(state);
    return NULL;
}

struct state *pmpi_state(MPI_Comm comm, enum function function, int may_wait, int *rc)
{
    struct state *state = NULL;
    int found = 0;
    *rc = PMPI_Comm_get_attr(comm, keyval, &state, &found);
    if (*rc != MPI_SUCCESS)
        return NULL;
    if (!found)
        state = new_state(comm, rc);
    if (state && !state->agreed && may_wait)
        *rc = agree_on_state(state, comm, function, state == &nothing_yet);
    return *rc == MPI_SUCCESS ? state : NULL;
}

struct state *pmpi_state_wanting(MPI_Comm comm)
{
    struct state *state = NULL;
    int found = 0;
    if (PMPI_Comm_get_attr(comm, keyval, &state, &found) != MPI_SUCCESS || !found || !state->wanted)
        return NULL;
    return state;
}

int pmpi_state_meet(struct state *state, MPI_Comm comm)
{
    if (!state->wanted || state->comm || state->reason != OURS || state->eligible < pmpi_settings()->after)
        return MPI_SUCCESS;
    return pmpi_state_make(state, comm, state->wants);
}

/* ---- making a communicator */

static int take_place(void)
{
    pthread_mutex_lock(&lock);
    const int taken = places < pmpi_settings()->comms;
    places += taken;
    pthread_mutex_unlock(&lock);
    return taken;
}

static void give_place(void)
{
    pthread_mutex_lock(&lock);
    places--;
    pthread_mutex_unlock(&lock);
}

static void keep(struct state *state)
{
    pthread_mutex_lock(&lock);
    state->next = made;
    state->link = &made;
    if (made)
        made->link = &state->next;
    made = state;
    pthread_mutex_unlock(&lock);
}

/* Turn off the timeout: ranks may be hours apart in MPI. Turn off the history of densities, so that a call depends on
 * its arguments alone. With it, a resumed program might choose another algorithm, and get sums with other bits. */
static enum pici_status change_defaults(struct pici_comm *comm)
{
    const struct settings *settings = pmpi_settings();
    struct pici_tune tune = PICI_TUNE_INIT;
    tune.timeout_ms = settings->own_timeout ? 0 : -1;
    tune.history = settings->own_history ? 0 : -1;
    return pici_comm_tune(comm, &tune);
}

static void forget(struct state *state)
{
    pici_comm_free(state->comm);
    state->comm = NULL;
    state->reason = OFF;
}

/* Nonzero: the library has the codec of PICI_PMPI_LOSSY, if that is set. */
static int has_codec(const struct pici_comm *comm)
{
    struct pici_coll_opts opts = PICI_COLL_OPTS_INIT;
    opts.values = &pmpi_settings()->values;
    return pici_comm_scratch(comm, PICI_ALL_REDUCE, 1 << 16, PICI_F32, PICI_SUM, &opts) > 0;
}

static void make(struct state *state, MPI_Comm comm)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (pici_comm_mpi(&state->comm, comm) == PICI_OK && !has_codec(state->comm)) {
        pmpi_say(comm, &said, "off: this library was built without the codec of PICI_PMPI_LOSSY=%s",
                 pmpi_settings()->lossy);
        forget(state);
        return;
    }
    if (!state->comm || change_defaults(state->comm) != PICI_OK) {
        pmpi_say(comm, &said, "off: no communicator: %s", pici_comm_error(NULL));
        forget(state);
    }
}

/* lacking: this rank has no memory, so that no rank makes a communicator. */
static int make_or_not(struct state *state, MPI_Comm comm, enum function function, int lacking)
{
    const struct settings *settings = pmpi_settings();
    const int place = !lacking && take_place();
    uint64_t words[PMPI_WORDS] = {[SETTINGS] = settings->hash,
                                  [SETTINGS_NOT] = ~settings->hash,
                                  [HOST_NOT] = 0,
                                  [GPU] = (uint64_t)pmpi_gpu(),
                                  [FULL] = !place,
                                  [STUCK] = !pmpi_can_progress()};
    const int rc = pmpi_agree(comm, function, words, MPI_MAX);
    state->reason = rc != MPI_SUCCESS ? OFF : judge(comm, words);
    if (state->reason == OURS && words[FULL])
        state->reason = LIMIT;
    state->stuck = words[STUCK] != 0;
    if (state->reason == OURS)
        make(state, comm);
    if (state->comm)
        keep(state);
    else if (place)
        give_place();
    return rc;
}

int pmpi_state_make(struct state *state, MPI_Comm comm, enum function function)
{
    return make_or_not(state, comm, function, 0);
}

/* ---- states of persistent requests */

/* Find the first one that no rank uses. The ranks free requests in orders of their own, and may be early or late. */
static struct state *find_unused(struct state *of, MPI_Comm comm, enum function function, int *rc)
{
    enum { BITS = 64 * PMPI_WORDS };
    for (struct state *first = of->requests, *own; first; first = own) {
        uint64_t words[PMPI_WORDS] = {0}; /* bits: those that some rank uses */
        own = first;
        for (int i = 0; own && i < BITS; i++, own = own->next_request)
            words[i / 64] |= (uint64_t)(atomic_load(&own->users) || atomic_load(&own->failed)) << i % 64;
        *rc = pmpi_agree(comm, function, words, MPI_BOR);
        if (*rc != MPI_SUCCESS)
            return NULL;
        for (int i = 0; first != own; i++, first = first->next_request)
            if (!(words[i / 64] >> i % 64 & 1))
                return first;
    }
    return NULL;
}

/* Append one more, if all ranks can. */
static enum reason add_request(struct state *of, MPI_Comm comm, enum function function, struct state **own, int *rc)
{
    struct state *state = calloc(1, sizeof *state), **link = &of->requests, nothing_kept = {.reason = OFF};
    const int lacking = !state;
    uint64_t number = 1;
    free_orphans(0);
    if (lacking)
        state = &nothing_kept;
    *rc = make_or_not(state, comm, function, lacking);
    const enum reason reason = state->reason;
    if (!state->comm) {
        if (!lacking)
            free(state);
        return reason;
    }
    for (; *link; link = &(*link)->next_request)
        number++;
    atomic_flag_clear(&state->busy);
    state->of = of;
    state->lossy = number << 40; /* other random numbers than other requests have */
    *link = *own = state;
    return OURS;
}

enum reason pmpi_state_request(struct state *of, MPI_Comm comm, enum function function, struct state **own, int *rc)
{
    *own = find_unused(of, comm, function, rc);
    if (*own || *rc != MPI_SUCCESS)
        return *own ? OURS : OFF;
    return add_request(of, comm, function, own, rc);
}
