/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE
#include "preload/progress.h"

#include <dlfcn.h>
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <time.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#if defined OPEN_MPI
/* Open MPI calls functions wherever it waits, for its own nonblocking collectives too. */
typedef int hook(int (*)(void));
static int (*hooked)(void);

static hook *find_hook(const char *name)
{
    void *const symbol = dlsym(RTLD_DEFAULT, name);
    hook *function = NULL;
    memcpy(&function, &symbol, sizeof function);
    return function;
}

int pmpi_can_progress(void)
{
    return find_hook("opal_progress_register") && find_hook("opal_progress_unregister");
}

int pmpi_progress_open(int (*make)(void), int (*is_running)(void))
{
    (void)is_running;
    pthread_mutex_lock(&lock);
    if (!hooked && find_hook("opal_progress_register")(make) == 0)
        hooked = make;
    const int open = hooked != NULL;
    pthread_mutex_unlock(&lock);
    return open;
}

void pmpi_progress_wake(void)
{
}

void pmpi_progress_tell(void)
{
}
void pmpi_progress_close(void)
{
    if (hooked)
        find_hook("opal_progress_unregister")(hooked);
    hooked = NULL;
}
#else
static pthread_t thread;
static pthread_cond_t more = PTHREAD_COND_INITIALIZER;
static int has_thread, quits;
static int (*make_progress)(void), (*is_needed)(void);

int pmpi_can_progress(void)
{
    int level = MPI_THREAD_SINGLE;
    return PMPI_Query_thread(&level) == MPI_SUCCESS && level == MPI_THREAD_MULTIPLE;
}

static void *run(void *unused)
{
    static const struct timespec nap = {0, 50000};
    (void)unused;
    for (int idle = 0;; idle++) {
        pthread_mutex_lock(&lock);
        while (!is_needed() && !quits)
            pthread_cond_wait(&more, &lock);
        const int end = quits;
        pthread_mutex_unlock(&lock);
        if (end)
            return NULL;
        if (make_progress())
            idle = 0;
        else if (idle < 1000)
            sched_yield();
        else
            nanosleep(&nap, NULL);
    }
}

static void create_thread(void)
{
    sigset_t all, before;
    sigfillset(&all); /* signals are for the program's threads */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    has_thread = pthread_create(&thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
}

int pmpi_progress_open(int (*make)(void), int (*is_running)(void))
{
    pthread_mutex_lock(&lock);
    make_progress = make;
    is_needed = is_running;
    if (!has_thread)
        create_thread();
    const int open = has_thread;
    pthread_mutex_unlock(&lock);
    return open;
}

void pmpi_progress_wake(void)
{
    pthread_mutex_lock(&lock);
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
}

static int query_nothing(void *unused, MPI_Status *status)
{
    (void)unused;
    PMPI_Status_set_elements(status, MPI_BYTE, 0);
    PMPI_Status_set_cancelled(status, 0);
    return MPI_SUCCESS;
}

static int free_nothing(void *unused)
{
    (void)unused;
    return MPI_SUCCESS;
}

static int cancel_nothing(void *unused, int complete)
{
    (void)unused, (void)complete;
    return MPI_SUCCESS;
}

/* A thread that waits in MPICH checks its requests again after MPICH has noted progress. A rank's message to itself is
 * not progress for MPICH, but a generalized request is. */
void pmpi_progress_tell(void)
{
    MPI_Request request;
    if (PMPI_Grequest_start(query_nothing, free_nothing, cancel_nothing, NULL, &request) != MPI_SUCCESS)
        return;
    PMPI_Grequest_complete(request);
    PMPI_Wait(&request, MPI_STATUS_IGNORE);
}

void pmpi_progress_close(void)
{
    pthread_mutex_lock(&lock);
    quits = 1;
    pthread_cond_signal(&more);
    pthread_mutex_unlock(&lock);
    if (has_thread)
        pthread_join(thread, NULL);
    has_thread = 0;
}
#endif
