# SPDX-License-Identifier: BSD-3-Clause
"""Sparse tensors: by the backend, by the hooks and by all_reduce_sparse(), with ranks that are processes."""
import unittest

import torch

import ranks
import sparse_cases as cases
from pici.torch import _backend

CAN = _backend.supported()
NEEDED = f"the backend pici: torch {torch.__version__} has none written in Python"


@unittest.skipUnless(CAN, NEEDED)
class Backend(unittest.TestCase):
    def test_operations(self):
        for size in (2, 3):
            ranks.run(size, cases.operations)

    def test_debug_detail(self):
        ranks.run(2, cases.operations, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})

    def test_bits_of_the_dense_call(self):
        for size in (2, 3):
            ranks.run(size, cases.bits)

    def test_training(self):
        for size in (2, 3):
            ranks.run(size, cases.trained, "cpu:pici")

    def test_unused(self):
        ranks.run(2, cases.unused, "cpu:pici")

    def test_errors(self):
        """Raised on all ranks, with the number of one."""
        for width in (3, 32):
            for end in ranks.ended(3, cases.wrong_shape, width):
                self.assertIn("PeerError", end.kinds, end)
                self.assertRegex(end.error, "rank [0-2]")
            for rank, end in enumerate(ranks.ended(3, cases.wrong_index, width)):
                self.assertIn("ArgumentError", end.kinds, end)
                self.assertIn("rank 1: ", end.error)
                self.assertEqual("-3" in end.error, rank == 1)


class WithGloo(unittest.TestCase):
    def test_all_reduce_sparse(self):
        for size in (2, 3):
            ranks.run(size, cases.equals_gloo)

    def test_refused(self):
        ranks.run(2, cases.refuses_dtypes)

    def test_in_rank_order(self):
        for size in (2, 3, 5):
            ranks.run(size, cases.in_rank_order)

    def test_hook(self):
        for size in (2, 3):
            ranks.run(size, cases.trained, "gloo")

    def test_unused(self):
        """Parameters that a rank does not use, and tables in which it looks up nothing."""
        ranks.run(3, cases.unused, "gloo")

    def test_lossy_hooks(self):
        ranks.run(2, cases.lossy)

    def test_small_buckets(self):
        ranks.run(2, cases.small_buckets_are_gloos)


if __name__ == "__main__":
    unittest.main()
