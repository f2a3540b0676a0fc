# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch.Outer: the outer loop of local SGD."""
import unittest

import torch

import outer_cases as cases
import ranks
from test_errors import has_dcp


@unittest.skipIf(torch.__version__.startswith("1."), f"Outer: torch {torch.__version__} is older than 2")
class Outer(unittest.TestCase):
    def test_is_diloco(self):
        for size in (1, 3):
            ranks.run(size, cases.is_diloco)

    def test_learns(self):
        ranks.run(2, cases.learns)

    def test_sends_the_largest_of_chunks(self):
        ranks.run(2, cases.sends_the_largest_of_chunks)

    def test_sends_what_is_visible(self):
        ranks.run(2, cases.sends_what_is_visible)

    def test_streams(self):
        ranks.run(3, cases.streams)

    def test_resumes(self):
        for method in cases.METHODS:
            ranks.run(2, cases.resumes, method)

    def test_ranks_come_and_go(self):
        ranks.run(3, cases.come_and_go)

    def test_regroups_between_outer_steps(self):
        ranks.run(3, cases.regroups_between)

    def test_in_float64(self):
        ranks.run(2, cases.in_float64)

    def test_not_finite(self):
        ranks.run(2, cases.not_finite)

    def test_in_few_bits(self):
        ranks.run(2, cases.in_few_bits)

    def test_ends_once(self):
        ranks.run(2, cases.ends_once)

    def test_not_row_major(self):
        ranks.run(2, cases.not_row_major)

    def test_loads_whole_or_not(self):
        ranks.run(2, cases.loads_whole_or_not)

    def test_on_gpu(self):
        ranks.run(1, cases.on_gpu)

    @unittest.skipUnless(has_dcp(), f"torch.distributed.checkpoint.save: torch {torch.__version__} has none")
    def test_dcp(self):
        ranks.run(2, cases.by_dcp)


if __name__ == "__main__":
    unittest.main()
