! SPDX-License-Identifier: BSD-3-Clause
! mpif.h: sums, in place too, and gathers. By tests/mpi/preload.sh.
      program f77
      implicit none
      include 'mpif.h'
      integer n
      parameter (n = 6000)
      real x(n), y(n)
      integer ierr, rank, ranks, i, each, counts(64), wrong, circle
      integer two(2), places(2)
      logical wraps(1)
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
      each = n / ranks
      wrong = 0
      do i = 1, n
        x(i) = 0
        if (mod(i + rank, 10) .eq. 0) x(i) = real(rank + 1)
        y(i) = x(i)
      end do
      call MPI_ALLREDUCE(x, y, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD,    &
     &                   ierr)
      call look(y, 0, n, ranks, wrong)
      do i = 1, n
        y(i) = x(i)
      end do
      call MPI_ALLREDUCE(MPI_IN_PLACE, y, n, MPI_REAL, MPI_SUM,         &
     &                   MPI_COMM_WORLD, ierr)
      call look(y, 0, n, ranks, wrong)
      call MPI_REDUCE_SCATTER_BLOCK(x, y, each, MPI_REAL, MPI_SUM,      &
     &                              MPI_COMM_WORLD, ierr)
      call look(y, rank * each, each, ranks, wrong)
      do i = 1, n
        y(i) = x(i)
      end do
      call MPI_REDUCE_SCATTER_BLOCK(MPI_IN_PLACE, y, each, MPI_REAL,    &
     &                              MPI_SUM, MPI_COMM_WORLD, ierr)
      call look(y, rank * each, each, ranks, wrong)
      do i = 1, ranks
        counts(i) = each
      end do
      do i = 1, n
        y(i) = x(i)
      end do
      call MPI_REDUCE_SCATTER(MPI_IN_PLACE, y, counts, MPI_REAL,        &
     &                        MPI_SUM, MPI_COMM_WORLD, ierr)
      call look(y, rank * each, each, ranks, wrong)
      call MPI_REDUCE_SCATTER(x, y, counts, MPI_REAL, MPI_SUM,          &
     &                        MPI_COMM_WORLD, ierr)
      call look(y, rank * each, each, ranks, wrong)
      call MPI_ALLGATHER(x, each, MPI_REAL, y, each, MPI_REAL,          &
     &                   MPI_COMM_WORLD, ierr)
      do i = 0, ranks - 1
        call block(y, i * each, each, i, wrong)
      end do
      do i = 1, n
        y(i) = 0
      end do
      do i = 1, each
        y(rank * each + i) = x(i)
      end do
      call MPI_ALLGATHER(MPI_IN_PLACE, 0, MPI_REAL, y, each, MPI_REAL,  &
     &                   MPI_COMM_WORLD, ierr)
      do i = 0, ranks - 1
        call block(y, i * each, each, i, wrong)
      end do
      counts(1) = ranks
      wraps(1) = .true.
      call MPI_CART_CREATE(MPI_COMM_WORLD, 1, counts, wraps, .false.,   &
     &                     circle, ierr)
      call MPI_NEIGHBOR_ALLGATHER(x, n / 2, MPI_REAL, y, n / 2,         &
     &                            MPI_REAL, circle, ierr)
      call block(y, 0, n / 2, mod(rank + ranks - 1, ranks), wrong)
      call block(y, n / 2, n / 2, mod(rank + 1, ranks), wrong)
      do i = 1, 2
        two(i) = n / 3
        places(i) = (2 - i) * (n / 3)
      end do
      call MPI_NEIGHBOR_ALLGATHERV(x, n / 3, MPI_REAL, y, two, places,  &
     &                             MPI_REAL, circle, ierr)
      call block(y, n / 3, n / 3, mod(rank + ranks - 1, ranks), wrong)
      call block(y, 0, n / 3, mod(rank + 1, ranks), wrong)
      call more(x, y, n, rank, ranks, wrong)
      call never(x, y, circle, ranks, wrong)
      call MPI_COMM_FREE(circle, ierr)
      if (ierr .ne. MPI_SUCCESS) wrong = wrong + 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM,  &
     &                   MPI_COMM_WORLD, ierr)
      if (rank .eq. 0 .and. wrong .eq. 0) print '(a)', '11 passed'
      call MPI_FINALIZE(ierr)
      end

      subroutine more(x, y, n, rank, ranks, wrong)
      implicit none
      include 'mpif.h'
      integer n, rank, ranks, wrong, ierr, i, counts(64), at(64)
      real x(*), y(*)
      call MPI_REDUCE(x, y, n, MPI_REAL, MPI_SUM, ranks - 1,            &
     &                MPI_COMM_WORLD, ierr)
      if (rank .eq. ranks - 1) call look(y, 0, n, ranks, wrong)
      call MPI_BCAST(y, n, MPI_REAL, ranks - 1, MPI_COMM_WORLD, ierr)
      call look(y, 0, n, ranks, wrong)
      do i = 1, ranks
        counts(i) = n / ranks - i
        at(i) = (ranks - i) * (n / ranks)
      end do
      call MPI_ALLGATHERV(x, counts(rank + 1), MPI_REAL, y, counts, at, &
     &                    MPI_REAL, MPI_COMM_WORLD, ierr)
      do i = 1, ranks
        call block(y, at(i), counts(i), i - 1, wrong)
      end do
      end

      subroutine never(x, y, comm, ranks, wrong)
      implicit none
      include 'mpif.h'
      real x(*), y(*)
      integer comm, ranks, wrong, ierr, i, q(9), counts(64), at(64)
      do i = 1, 64
        counts(i) = 10
        at(i) = 10 * (i - 1)
      end do
      call MPI_BCAST(y, 10, MPI_REAL, 0, comm, ierr)
      call MPI_REDUCE(x, y, 10, MPI_REAL, MPI_SUM, 0, comm, ierr)
      call MPI_ALLGATHERV(x, 10, MPI_REAL, y, counts, at, MPI_REAL,     &
     &                    comm, ierr)
      call MPI_IBCAST(y, 10, MPI_REAL, 0, comm, q(1), ierr)
      call MPI_IREDUCE(x, y(101), 10, MPI_REAL, MPI_SUM, 0, comm, q(2), &
     &                 ierr)
      call MPI_IALLREDUCE(x, y(201), 10, MPI_REAL, MPI_SUM, comm, q(3), &
     &                    ierr)
      call MPI_IREDUCE_SCATTER(x, y(301), counts, MPI_REAL, MPI_SUM,    &
     &                         comm, q(4), ierr)
      call MPI_IREDUCE_SCATTER_BLOCK(x, y(401), 10, MPI_REAL, MPI_SUM,  &
     &                               comm, q(5), ierr)
      call MPI_IALLGATHER(x, 10, MPI_REAL, y(501), 10, MPI_REAL, comm,  &
     &                    q(6), ierr)
      call MPI_IALLGATHERV(x, 10, MPI_REAL, y(1201), counts, at,        &
     &                     MPI_REAL, comm, q(7), ierr)
      call MPI_INEIGHBOR_ALLGATHER(x, 10, MPI_REAL, y(1901), 10,        &
     &                             MPI_REAL, comm, q(8), ierr)
      call MPI_INEIGHBOR_ALLGATHERV(x, 10, MPI_REAL, y(2001), counts,   &
     &                              at, MPI_REAL, comm, q(9), ierr)
      call MPI_WAITALL(9, q, MPI_STATUSES_IGNORE, ierr)
      call look(y(201), 0, 10, ranks, wrong)
      call block(y(1201), 0, 10, 0, wrong)
      end

      subroutine look(y, first, n, ranks, wrong)
      implicit none
      integer first, n, ranks, wrong, i, r
      real y(n), want
      do i = 1, n
        want = 0
        do r = 0, ranks - 1
          if (mod(first + i + r, 10) .eq. 0) want = want + real(r + 1)
        end do
        if (y(i) .ne. want) wrong = wrong + 1
      end do
      end

      subroutine block(y, first, n, of, wrong)
      implicit none
      integer first, n, of, wrong, i
      real y(*), want
      do i = 1, n
        want = 0
        if (mod(i + of, 10) .eq. 0) want = real(of + 1)
        if (y(first + i) .ne. want) wrong = wrong + 1
      end do
      end
