/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* sched_getaffinity */
#include "codec/parallel.h"

#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#ifdef __GLIBC__
#include <link.h>
#endif

static int cores(void)
{
#ifdef __linux__
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed) == 0)
        return CPU_COUNT(&allowed);
#endif
    long online = sysconf(_SC_NPROCESSORS_ONLN);
    return online > 0 ? (int)online : 1;
}

int pici_thread_count(int threads, uint64_t pieces)
{
    if (pieces <= 1)
        return 1;
    if (threads == 0)
        threads = cores();
    if (threads > PICI_MAX_THREADS)
        threads = PICI_MAX_THREADS;
    return (uint64_t)threads > pieces ? (int)pieces : threads;
}

struct task {
    pthread_t thread;
    void (*work)(void *, int);
    void *context;
    int index;
};

static void *start(void *argument)
{
    struct task *task = argument;
    task->work(task->context, task->index);
    return NULL;
}

#ifdef __GLIBC__
static int add_tls(struct dl_phdr_info *object, size_t bytes, void *sum)
{
    (void)bytes;
    for (int i = 0; i < object->dlpi_phnum; i++)
        if (object->dlpi_phdr[i].p_type == PT_TLS)
            *(size_t *)sum += (size_t)(object->dlpi_phdr[i].p_memsz + object->dlpi_phdr[i].p_align);
    return 0;
}
#endif

/* Bytes that libc takes from the stack of each thread. glibc puts there the thread-local variables of the program and
 * its libraries: in Fortran, for example, threadprivate arrays of any size. */
static size_t tls_bytes(void)
{
    size_t bytes = 0;
#ifdef __GLIBC__
    dl_iterate_phdr(add_tls, &bytes);
#endif
    return bytes;
}

void pici_parallel(int count, size_t stack, void (*work)(void *, int), void *context)
{
    struct task task[PICI_MAX_THREADS];
    pthread_attr_t attribute;
    int started = 0, have_attr = pthread_attr_init(&attribute) == 0;
    if (have_attr)
        have_attr = pthread_attr_setstacksize(&attribute, stack + tls_bytes()) == 0;
    for (; have_attr && started < count - 1; started++) {
        task[started] = (struct task){.work = work, .context = context, .index = started};
        if (pthread_create(&task[started].thread, &attribute, start, &task[started]) != 0)
            break;
    }
    for (int i = started; i < count; i++)
        work(context, i);
    for (int i = 0; i < started; i++)
        pthread_join(task[i].thread, NULL);
    if (have_attr)
        pthread_attr_destroy(&attribute);
}
