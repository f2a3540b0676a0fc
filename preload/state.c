/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Communicators of ours are freed with the program's, or at the latest by MPI_Finalize: it deletes the attributes of
 * MPI_COMM_SELF first, while MPI still works. Not every Fortran interface calls MPI_Finalize in C, so that this is an
 * attribute and not a function of that name. */
#define _POSIX_C_SOURCE 200809L
#include "preload/state.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "pici/mpi.h"
#include "preload/agree.h"
#include "preload/gpu.h"

/* What ranks agree on, by the maximum of each word. */
enum { SETTINGS, SETTINGS_NOT, HOST, HOST_NOT, INVALID, GPU, FULL };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int phase; /* 0: not begun; 1: begun; 2: ended, or there is nothing to do */
static int keyval = MPI_KEYVAL_INVALID, self_keyval = MPI_KEYVAL_INVALID;
static struct state *made; /* states with a communicator of ours */
static int places;         /* taken, of settings->comms */
static struct state nothing = {.reason = OFF};

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

static int delete_state(MPI_Comm comm, int key, void *value, void *extra)
{
    struct state *state = value;
    (void)comm, (void)key, (void)extra;
    if (state != &nothing) {
        free_comm(state);
        pmpi_graph_free(state->graph);
        free(state);
    }
    return MPI_SUCCESS;
}

static int end(MPI_Comm comm, int key, void *value, void *extra)
{
    const int stats = pmpi_settings()->stats;
    int rank = 0;
    (void)comm, (void)key, (void)value, (void)extra;
    atomic_store(&phase, 2);
    while (made)
        pmpi_state_off(made, OFF);
    PMPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (stats == 2 || (stats == 1 && !rank))
        pmpi_print_stats(stats == 2 ? rank : -1);
    return MPI_SUCCESS;
}

/* ---- beginning */

/* Nonzero: MPI is initialized, by MPI_Init and its like: MPI_COMM_SELF exists. */
static int initialized(void)
{
    int yes = 0, finalized = 0;
    return PMPI_Initialized(&yes) == MPI_SUCCESS && yes && PMPI_Finalized(&finalized) == MPI_SUCCESS && !finalized;
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
    state->reason = rc == MPI_SUCCESS ? judge(comm, words) : OFF;
    return rc;
}

struct state *pmpi_state(MPI_Comm comm, enum function function, int *rc)
{
    struct state *state = NULL;
    int found = 0, inter = 0, ranks = 0;
    *rc = PMPI_Comm_get_attr(comm, keyval, &state, &found);
    if (*rc != MPI_SUCCESS)
        return NULL;
    if (found)
        return state;
    if ((*rc = PMPI_Comm_test_inter(comm, &inter)) != MPI_SUCCESS ||
        (*rc = PMPI_Comm_size(comm, &ranks)) != MPI_SUCCESS)
        return NULL;
    state = calloc(1, sizeof *state);
    const int lacking = !state;
    if (lacking)
        state = &nothing;
    *rc = PMPI_Comm_set_attr(comm, keyval, state);
    if (*rc != MPI_SUCCESS) {
        if (!lacking)
            free(state);
        return NULL;
    }
    if (inter || ranks < 2)
        state->reason = inter ? INTER : ONE_RANK;
    else
        *rc = agree_on_state(state, comm, function, lacking);
    return *rc == MPI_SUCCESS ? state : NULL;
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

/* Ranks may be hours apart in MPI. And a call goes by its arguments alone: by the densities of earlier calls it might
 * have another algorithm, and sums with other bits, than in a program that is resumed in between. */
static enum pici_status change_defaults(struct pici_comm *comm)
{
    const struct settings *settings = pmpi_settings();
    struct pici_tune tune = PICI_TUNE_INIT;
    tune.timeout_ms = settings->own_timeout ? 0 : -1;
    tune.history = settings->own_history ? 0 : -1;
    return pici_comm_tune(comm, &tune);
}

static void make(struct state *state, MPI_Comm comm)
{
    static atomic_flag said = ATOMIC_FLAG_INIT;
    if (pici_comm_mpi(&state->comm, comm) != PICI_OK || change_defaults(state->comm) != PICI_OK) {
        pmpi_say(comm, &said, "off: no communicator: %s", pici_comm_error(NULL));
        pici_comm_free(state->comm);
        state->comm = NULL;
        state->reason = OFF;
    }
}

int pmpi_state_make(struct state *state, MPI_Comm comm, enum function function)
{
    const struct settings *settings = pmpi_settings();
    const int place = take_place();
    uint64_t words[PMPI_WORDS] = {[SETTINGS] = settings->hash,
                                  [SETTINGS_NOT] = ~settings->hash,
                                  [HOST_NOT] = 0,
                                  [GPU] = (uint64_t)pmpi_gpu(),
                                  [FULL] = !place};
    const int rc = pmpi_agree(comm, function, words, MPI_MAX);
    state->reason = rc != MPI_SUCCESS ? OFF : judge(comm, words);
    if (state->reason == OURS && words[FULL])
        state->reason = LIMIT;
    if (state->reason == OURS)
        make(state, comm);
    if (state->comm)
        keep(state);
    else if (place)
        give_place();
    return rc;
}
