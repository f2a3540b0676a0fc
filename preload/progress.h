/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Calls a function while the program is in functions of MPI: from Open MPI's own progress; else from a thread, which
 * needs MPI_THREAD_MULTIPLE. */
#ifndef PICI_PRELOAD_PROGRESS_H
#define PICI_PRELOAD_PROGRESS_H

/* Nonzero: this MPI, and the thread level that it was started with, allow that. */
int pmpi_can_progress(void);

/* Call `make` from now on, at least while is_running() is not 0. It returns the number of jobs that have ended. Callers
 * always pass the same functions. Returns 0 if that is not possible. */
int pmpi_progress_open(int (*make)(void), int (*is_running)(void));

/* is_running() has become true. */
void pmpi_progress_wake(void);

/* A request of the program has ended: waiting threads look at their requests again. */
void pmpi_progress_tell(void);

/* For MPI_Finalize. */
void pmpi_progress_close(void);

#endif
