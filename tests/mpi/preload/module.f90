! SPDX-License-Identifier: BSD-3-Clause
! Sums, in place too, and gathers, by the module mpi or mpi_f08, which is MODULE. By tests/mpi/preload.sh.
program sums
  use MODULE
  implicit none
  HANDLE :: circle
  integer, parameter :: n = 6000
  real :: x(n), y(n), z(n)
  integer :: ierr, rank, ranks, i, each, wrong
  integer, allocatable :: counts(:)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, ierr)
  each = n / ranks
  wrong = 0
  x = 0
  do i = 1, n
    if (mod(i + rank, 10) == 0) x(i) = real(rank + 1)
  end do
  allocate (counts(ranks))
  counts = each
  call MPI_Allreduce(x, y, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call look(0, n)
  y = x
  call MPI_Allreduce(MPI_IN_PLACE, y, n, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call look(0, n)
  call MPI_Reduce_scatter_block(x, y, each, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call look(rank * each, each)
  y = x
  call MPI_Reduce_scatter_block(MPI_IN_PLACE, y, each, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call look(rank * each, each)
  y = x
  call MPI_Reduce_scatter(MPI_IN_PLACE, y, counts, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call look(rank * each, each)
  call MPI_Reduce_scatter(x, y, counts, MPI_REAL, MPI_SUM, MPI_COMM_WORLD, ierr)
  call look(rank * each, each)
  call MPI_Allgather(x, each, MPI_REAL, y, each, MPI_REAL, MPI_COMM_WORLD, ierr)
  call blocks(each, [(i, i = 0, ranks - 1)])
  y = 0
  y(rank * each + 1:(rank + 1) * each) = x(1:each)
  call MPI_Allgather(MPI_IN_PLACE, 0, MPI_REAL, y, each, MPI_REAL, MPI_COMM_WORLD, ierr)
  call blocks(each, [(i, i = 0, ranks - 1)])
  call MPI_Cart_create(MPI_COMM_WORLD, 1, [ranks], [.true.], .false., circle, ierr)
  y = -1
  call MPI_Neighbor_allgather(x, n / 2, MPI_REAL, y, n / 2, MPI_REAL, circle, ierr)
  call blocks(n / 2, [modulo(rank - 1, ranks), modulo(rank + 1, ranks)])
  y = -1
  call MPI_Neighbor_allgatherv(x, n / 3, MPI_REAL, y, [n / 3, n / 3], [n / 3, 0], MPI_REAL, circle, ierr)
  call blocks(n / 3, [modulo(rank + 1, ranks), modulo(rank - 1, ranks)])
  call more
  call never
  call MPI_Comm_free(circle, ierr)
  if (ierr /= MPI_SUCCESS) wrong = wrong + 1
  call MPI_Allreduce(MPI_IN_PLACE, wrong, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (rank == 0 .and. wrong == 0) print '(a)', '11 passed'
  call MPI_Finalize(ierr)
contains
  subroutine more
    integer :: places(64), lengths(64)
    call MPI_Reduce(x, y, n, MPI_REAL, MPI_SUM, ranks - 1, MPI_COMM_WORLD, ierr)
    if (rank == ranks - 1) call look(0, n)
    call MPI_Bcast(y, n, MPI_REAL, ranks - 1, MPI_COMM_WORLD, ierr)
    call look(0, n)
    lengths = each
    places = [(i * each, i = 0, 63)]
    y = -1
    call MPI_Allgatherv(x, each, MPI_REAL, y, lengths, places, MPI_REAL, MPI_COMM_WORLD, ierr)
    call blocks(each, [(i, i = 0, ranks - 1)])
  end subroutine
  ! what is never pici's, once each
  subroutine never
    REQUEST :: q(9)
    integer :: places(64) = [(10 * i, i = 0, 63)], tens(64) = 10
    call MPI_Bcast(y, 10, MPI_REAL, 0, circle, ierr)
    call MPI_Reduce(x, y, 10, MPI_REAL, MPI_SUM, 0, circle, ierr)
    call MPI_Allgatherv(x, 10, MPI_REAL, y, tens, places, MPI_REAL, circle, ierr)
    call MPI_Ibcast(y, 10, MPI_REAL, 0, circle, q(1), ierr)
    call MPI_Ireduce(x, y(101:), 10, MPI_REAL, MPI_SUM, 0, circle, q(2), ierr)
    call MPI_Ireduce_scatter(x, y(301:), tens, MPI_REAL, MPI_SUM, circle, q(4), ierr)
    call MPI_Ireduce_scatter_block(x, y(401:), 10, MPI_REAL, MPI_SUM, circle, q(5), ierr)
    call MPI_Iallgather(x, 10, MPI_REAL, y(501:), 10, MPI_REAL, circle, q(6), ierr)
    call MPI_Iallgatherv(x, 10, MPI_REAL, y(1201:), tens, places, MPI_REAL, circle, q(7), ierr)
    call MPI_Ineighbor_allgather(x, 10, MPI_REAL, y(1901:), 10, MPI_REAL, circle, q(8), ierr)
    call MPI_Ineighbor_allgatherv(x, 10, MPI_REAL, y(2001:), tens, places, MPI_REAL, circle, q(9), ierr)
    call MPI_Iallreduce(x, z, n, MPI_REAL, MPI_SUM, circle, q(3), ierr)
    call MPI_Waitall(9, q, MPI_STATUSES_IGNORE, ierr)
    y = z
    call look(0, n)
  end subroutine
  subroutine look(first, some)
    integer, intent(in) :: first, some
    integer :: k, r
    real :: want
    do k = 1, some
      want = 0
      do r = 0, ranks - 1
        if (mod(first + k + r, 10) == 0) want = want + real(r + 1)
      end do
      if (y(k) /= want) wrong = wrong + 1
    end do
  end subroutine
  ! y has the first elements of some ranks, one after the other
  subroutine blocks(some, of)
    integer, intent(in) :: some, of(:)
    integer :: k, b
    do b = 1, size(of)
      do k = 1, some
        if (mod(k + of(b), 10) == 0) then
          if (y((b - 1) * some + k) /= real(of(b) + 1)) wrong = wrong + 1
        else
          if (y((b - 1) * some + k) /= 0) wrong = wrong + 1
        end if
      end do
    end do
  end subroutine
end program
