/* SPDX-License-Identifier: BSD-3-Clause
 *
 * How a function is called while the program is in functions of MPI: in Open MPI by its own progress; else by a thread,
 * for which MPI must have MPI_THREAD_MULTIPLE. */
#ifndef PICI_PRELOAD_PROGRESS_H
#define PICI_PRELOAD_PROGRESS_H

/* Nonzero: this MPI, and the level of threads that it was started with, allow it. */
int pmpi_can_progress(void);

/* From now on `make` is called, at least while is_running() is not 0; it returns how many jobs have ended. Always the
 * same functions. 0: it cannot be. */
int pmpi_progress_open(int (*make)(void), int (*is_running)(void));

/* is_running() has become true. */
void pmpi_progress_wake(void);

/* A request of the program has ended: those that wait look at theirs. */
void pmpi_progress_tell(void);

/* At MPI_Finalize. */
void pmpi_progress_close(void);

#endif
