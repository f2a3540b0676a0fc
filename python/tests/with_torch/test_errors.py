# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch: what hooks keep of gradients, where gradients are not finite, loss scales change, or a program is resumed
from a checkpoint."""
import tempfile
import unittest

import torch

import errors_cases as cases
import ranks
from pici.torch._errors import Errors

HAS_AMP = hasattr(torch, "amp") and hasattr(torch.amp, "GradScaler")


class NotFinite(unittest.TestCase):
    def test_errors_stay(self):
        for value in (float("inf"), float("-inf"), float("nan")):
            with self.subTest(value):
                ranks.run(2, cases.poisoned, value, 5)
        ranks.run(3, cases.poisoned, float("nan"), slice(None))

    def test_gradient_goes_out_whole(self):
        ranks.run(2, cases.goes_out_whole)

    def test_skipped_steps(self):
        ranks.run(2, cases.skipped_everywhere)
        ranks.run(2, cases.skipped_by_sparse)
        ranks.run(2, cases.skipped_by_torchs)

    @unittest.skipUnless(HAS_AMP, f"a GradScaler of CPU tensors: torch {torch.__version__} has none")
    def test_grad_scaler(self):
        ranks.run(2, cases.with_grad_scaler)

    def test_scale_changes(self):
        ranks.run(2, cases.follows_scale)


class Failures(unittest.TestCase):
    @unittest.skipIf(torch.__version__.startswith("1."), f"groups of a part: torch {torch.__version__} is older than 2")
    def test_undone(self):
        ends = ranks.ended(3, cases.undone)
        self.assertIn("died", ends[2].error)
        for end in ends[:2]:
            self.assertFalse(end.error, end.trace)

    def test_codecs(self):
        ranks.run(2, cases.refuses_codecs)

    def test_later_calls(self):
        ends = ranks.ended(3, cases.all_later_ones_break)
        for end in ends[:2]:
            self.assertFalse(end.error, end.trace)

    def test_undone_by_hook(self):
        ranks.run(2, cases.undone_by_hook)


class Parameters(unittest.TestCase):
    def test_complex(self):
        ranks.run(2, cases.complex_pieces)

    def test_two_models(self):
        ranks.run(2, cases.used_by_two)

    def test_places_of_freed_ones(self):
        """An id() that repeats is another parameter, with a place of its own."""
        errors, ids = Errors(), []
        for i in range(50):
            parameter, other = torch.zeros(3), torch.zeros(3)
            self.assertTrue(errors.see([parameter, other]))
            self.assertEqual(errors.places([parameter, other]), [2 * i, 2 * i + 1])
            self.assertFalse(errors.see([other]))
            ids += id(parameter), id(other)
            del parameter, other
        self.assertLess(len(set(ids)), len(ids))


def has_dcp():
    try:
        import torch.distributed.checkpoint as dcp
    except Exception:  # torch 1.13 with Python 3.11
        return False
    return hasattr(dcp, "save")


def has_async_dcp():
    return has_dcp() and hasattr(torch.distributed.checkpoint, "async_save")


class Checkpoints(unittest.TestCase):
    @unittest.skipUnless(has_dcp(), f"torch.distributed.checkpoint.save: torch {torch.__version__} has none")
    def test_dcp(self):
        ranks.run(2, cases.by_dcp)

    @unittest.skipUnless(has_async_dcp(), f"dcp.async_save: torch {torch.__version__} has none")
    def test_async_dcp(self):
        ranks.run(2, cases.by_async_dcp)

    @unittest.skipUnless(has_dcp(), f"torch.distributed.checkpoint.save: torch {torch.__version__} has none")
    def test_dcp_on_other_numbers_of_ranks(self):
        with tempfile.TemporaryDirectory() as folder:
            ranks.run(2, cases.saves_for_others, folder)
            for size in (1, 3):
                ranks.run(size, cases.loads_of_others, folder, 2)

    def test_saved_by_rank_0(self):
        ranks.run(2, cases.by_rank_0)
        ranks.run(1, cases.gathered_of_one)

    @unittest.skipUnless(hasattr(torch, "compile"), f"torch.compile: torch {torch.__version__} has none")
    def test_compiled(self):
        ranks.run(2, cases.compiled)

    def test_pickled_after_load(self):
        ranks.run(2, cases.pickled_after_load)

    def test_pickled_with_fewer(self):
        ranks.run(2, cases.pickled_with_fewer)

    def test_loaded_for_another_model(self):
        ranks.run(2, cases.loaded_for_another)

    def test_refused(self):
        ranks.run(2, cases.refuses)


if __name__ == "__main__":
    unittest.main()
