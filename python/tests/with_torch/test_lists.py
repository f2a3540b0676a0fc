# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch: all_reduce of lists, the pici.Comm of a process group, how TopKState selects, and what is logged."""
import unittest

import lists_cases as cases
import pici.torch
import ranks


class Lists(unittest.TestCase):
    def test_exact(self):
        for size in (1, 2, 3):
            ranks.run(size, cases.lists)

    def test_lossy(self):
        ranks.run(2, cases.lossy_lists)

    def test_comm(self):
        ranks.run(3, cases.own_comm)


class Selections(unittest.TestCase):
    def test_as_pici_topk(self):
        ranks.run(2, cases.as_pici_topk)

    def test_momentum_of_whole_ones(self):
        ranks.run(2, cases.momentum_of_whole_ones)

    def test_momentum_is_needed(self):
        ranks.run(1, cases.momentum_is_needed)

    def test_random(self):
        ranks.run(2, cases.random_positions)

    def test_refused(self):
        for options, words in (
            ({"momentum": 1.0}, "momentum=1.0"),
            ({"momentum": 0.5, "error_feedback": False}, "needs error_feedback"),
            ({"leak": 1.5}, "leak=1.5"),
            ({"seed": -1}, "seed=-1"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                pici.torch.TopKState(**options)


class Told(unittest.TestCase):
    def test_log_and_profiler(self):
        for told, events in ranks.run(2, cases.logged):
            self.assertRegex(told[0][1], r"rank \d of 2 of group '.*': connected from .*, algorithm auto")
            self.assertEqual([level for level, _ in told], ["INFO", "DEBUG", "DEBUG"])
            self.assertRegex(told[1][1], r"topk_hook: 5000 elements, \d+ bytes sent of \d+ dense")
            self.assertEqual(events, ["pici:topk_hook"])


if __name__ == "__main__":
    unittest.main()
