! SPDX-License-Identifier: BSD-3-Clause
! mpif.h: sums, in place too, and gathers. By tests/mpi_preload.sh.
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
      do i = 1, ranks
        counts(i) = each
      end do
      call MPI_REDUCE_SCATTER(x, y, counts, MPI_REAL, MPI_SUM,          &
     &                        MPI_COMM_WORLD, ierr)
      call look(y, rank * each, each, ranks, wrong)
      call MPI_ALLGATHER(x, each, MPI_REAL, y, each, MPI_REAL,          &
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
      call MPI_COMM_FREE(circle, ierr)
      if (ierr .ne. MPI_SUCCESS) wrong = wrong + 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM,  &
     &                   MPI_COMM_WORLD, ierr)
      if (rank .eq. 0 .and. wrong .eq. 0) print '(a)', '7 passed'
      call MPI_FINALIZE(ierr)
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
