/* SPDX-License-Identifier: BSD-3-Clause */
#define _POSIX_C_SOURCE 200809L
#include "preload/jobs.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "preload/progress.h"

struct job {
    struct work work; /* the current start: a copy of `prepared` at first */
    struct work prepared;
    MPI_Datatype own_types[2]; /* copies, or MPI_DATATYPE_NULL: the program may free its own meanwhile */
    void *own_lists[2];        /* copies of counts and displacements */
    MPI_Request request;       /* persistent: the program's */
    int persistent, tag;
    struct job *next, *next_persistent;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct job *jobs, **last = &jobs; /* running jobs, in the order of their start */
static struct job *persistent;           /* all persistent requests */
static atomic_int running;               /* the number of running jobs */
static atomic_flag progressing = ATOMIC_FLAG_INIT;
static int next_tag;

void pmpi_lock(struct state *state)
{
    while (atomic_flag_test_and_set_explicit(&state->busy, memory_order_acquire))
        sched_yield();
}

void pmpi_unlock(struct state *state)
{
    atomic_flag_clear_explicit(&state->busy, memory_order_release);
}

/* ---- ending a job */

/* The state of the program's communicator. */
static struct state *of_comm(const struct job *job)
{
    struct state *state = job->prepared.plan.state;
    return state->of ? state->of : state;
}

static void free_job(struct job *job)
{
    struct state *state = job->prepared.plan.state, *of = of_comm(job);
    for (int i = 0; i < 2; i++) {
        if (job->own_types[i] != MPI_DATATYPE_NULL)
            PMPI_Type_free(&job->own_types[i]);
        free(job->own_lists[i]);
    }
    if (job->persistent)
        atomic_fetch_sub(&state->users, 1);
    atomic_fetch_sub(&of->users, 1); /* the last use of both: another thread may free them then */
    free(job);
}

/* The communicator whose error handler is called: the program may have freed its own. */
static MPI_Comm blamed(const struct job *job)
{
    return atomic_load(&of_comm(job)->orphaned) ? MPI_COMM_SELF : job->prepared.call.comm;
}

/* Complete the program's request: with an error, if the message is longer than the empty one that the request
 * receives. */
static void complete(struct job *job, enum pici_status status)
{
    static const char byte = 0;
    const int tag = job->tag, once = !job->persistent;
    status = pmpi_work_end(&job->work, status);
    if (status) {
        atomic_store(&job->work.plan.state->failed, 1);
        PMPI_Comm_call_errhandler(blamed(job), pmpi_work_failed(&job->work, status));
    }
    if (once)
        free_job(job);
    PMPI_Send(&byte, status != PICI_OK, MPI_BYTE, 0, tag, pmpi_self());
    pmpi_progress_tell();
}

/* ---- progress */

static void take_out(struct job *job)
{
    struct job **link = &jobs;
    pthread_mutex_lock(&lock);
    while (*link != job)
        link = &(*link)->next;
    *link = job->next;
    if (last == &job->next)
        last = link;
    pthread_mutex_unlock(&lock);
    atomic_fetch_sub(&running, 1);
}

static int is_running(void)
{
    return atomic_load_explicit(&running, memory_order_acquire);
}

static struct job *job_after(struct job *const *link)
{
    pthread_mutex_lock(&lock);
    struct job *job = *link;
    pthread_mutex_unlock(&lock);
    return job;
}

/* Make progress on all jobs. May run inside any function of MPI, also inside one that progress has called: then it does
 * nothing. Returns the number of jobs that have ended. */
static int progress(void)
{
    int ended = 0;
    if (!is_running() || atomic_flag_test_and_set(&progressing))
        return 0;
    for (struct job *job = job_after(&jobs), *next; job; job = next) {
        struct state *state = job->work.plan.state;
        enum pici_status status = PICI_OK;
        int done = 0;
        next = job_after(&job->next);
        if (!atomic_flag_test_and_set_explicit(&state->busy, memory_order_acquire)) {
            status = pici_test(&job->work.request, &done);
            pmpi_unlock(state);
        }
        if (done) {
            take_out(job);
            complete(job, status);
            ended++;
        }
    }
    atomic_flag_clear(&progressing);
    return ended;
}

/* ---- beginning */

static int tag_is_taken(int tag)
{
    for (const struct job *job = jobs; job; job = job->next)
        if (job->tag == tag)
            return 1;
    for (const struct job *job = persistent; job; job = job->next_persistent)
        if (job->tag == tag)
            return 1;
    return 0;
}

/* Choose a free tag for messages to this rank; MPI has at least 32768. */
static void choose_tag(struct job *job)
{
    pthread_mutex_lock(&lock);
    do
        job->tag = next_tag = (next_tag + 1) % 32768;
    while (tag_is_taken(job->tag));
    pthread_mutex_unlock(&lock);
}

static int keep_type(MPI_Datatype *own, MPI_Datatype *type)
{
    if (*type == MPI_DATATYPE_NULL)
        return 1;
    if (PMPI_Type_dup(*type, own) != MPI_SUCCESS) {
        *own = MPI_DATATYPE_NULL;
        return 0;
    }
    *type = *own;
    return 1;
}

static int keep_list(void **own, const void **list, size_t bytes)
{
    *own = malloc(bytes);
    if (*own)
        memcpy(*own, *list, bytes);
    *list = *own;
    return *own != NULL;
}

/* Copy the arguments that the program may free before the job ends. */
static int keep_arguments(struct job *job)
{
    struct call *call = &job->prepared.call;
    const struct plan *plan = &job->prepared.plan;
    const size_t ranks = (size_t)plan->ranks;
    int good = 1;
    if (call->sendtype != MPI_DATATYPE_NULL && (call->function == ALLGATHER || call->function == ALLGATHERV))
        good = keep_type(&job->own_types[0], &call->sendtype);
    good = good && keep_type(&job->own_types[1], &call->type);
    if (good && call->function == ALLGATHERV)
        good = keep_list(&job->own_lists[0], &call->counts, ranks * (call->large ? sizeof(MPI_Count) : sizeof(int))) &&
               keep_list(&job->own_lists[1], &call->displs, ranks * (call->large ? sizeof(MPI_Aint) : sizeof(int)));
    return good;
}

static struct job *new_job(const struct work *work)
{
    const int open = pmpi_self() != MPI_COMM_NULL && pmpi_progress_open(progress, is_running);
    struct job *job = open ? calloc(1, sizeof *job) : NULL;
    if (!job)
        return NULL;
    job->own_types[0] = job->own_types[1] = MPI_DATATYPE_NULL;
    job->persistent = work->call.mode == PERSISTENT;
    job->prepared = *work;
    job->prepared.call.request = NULL;
    atomic_fetch_add(&of_comm(job)->users, 1);
    if (job->persistent)
        atomic_fetch_add(&work->plan.state->users, 1);
    if (!keep_arguments(job)) {
        free_job(job);
        return NULL;
    }
    choose_tag(job);
    return job;
}

static void begin(struct job *job)
{
    struct state *state = job->prepared.plan.state;
    job->work = job->prepared;
    job->work.call.comm = MPI_COMM_SELF; /* any communicator can pack, and the program may free its own */
    pmpi_lock(state);
    const enum pici_status status = pmpi_work_begin(&job->work);
    pmpi_unlock(state);
    if (status) {
        complete(job, status);
        return;
    }
    atomic_fetch_add(&running, 1);
    pthread_mutex_lock(&lock);
    job->next = NULL;
    *last = job;
    last = &job->next;
    pthread_mutex_unlock(&lock);
    pmpi_progress_wake();
}

/* Report that this rank lacks memory for a call that other ranks have begun. */
static int no_memory(const struct work *work)
{
    PMPI_Comm_call_errhandler(work->call.comm, MPI_ERR_NO_MEM);
    return MPI_ERR_NO_MEM;
}

int pmpi_job_start(const struct work *work)
{
    struct job *job = new_job(work);
    if (!job)
        return no_memory(work);
    const int rc = PMPI_Irecv(NULL, 0, MPI_BYTE, 0, job->tag, pmpi_self(), work->call.request);
    if (rc == MPI_SUCCESS)
        begin(job);
    else
        free_job(job);
    return rc;
}

/* ---- persistent requests */

int pmpi_job_prepare(const struct work *work)
{
    struct job *job = new_job(work);
    if (!job)
        return no_memory(work);
    const int rc = PMPI_Recv_init(NULL, 0, MPI_BYTE, 0, job->tag, pmpi_self(), &job->request);
    if (rc != MPI_SUCCESS) {
        free_job(job);
        return rc;
    }
    *work->call.request = job->request;
    pthread_mutex_lock(&lock);
    job->next_persistent = persistent;
    persistent = job;
    pthread_mutex_unlock(&lock);
    return rc;
}

/* The job of a request, or NULL. take: remove it from the list. */
static struct job *find(MPI_Request request, int take)
{
    pthread_mutex_lock(&lock);
    struct job **link = &persistent;
    while (*link && (*link)->request != request)
        link = &(*link)->next_persistent;
    struct job *job = *link;
    if (job && take)
        *link = job->next_persistent;
    pthread_mutex_unlock(&lock);
    return job;
}

int pmpi_start(MPI_Request *request)
{
    const int rc = PMPI_Start(request);
    struct job *job = rc == MPI_SUCCESS ? find(*request, 0) : NULL;
    if (job)
        begin(job);
    return rc;
}

/* MPI forbids freeing an active request. */
int pmpi_request_free(MPI_Request *request)
{
    struct job *job = find(*request, 1);
    if (job)
        free_job(job);
    return PMPI_Request_free(request);
}
