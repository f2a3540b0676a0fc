# SPDX-License-Identifier: BSD-3-Clause
"""Deltas of state dicts: tensors of every type that a module has, bf16 among them, come back as they were."""
import tempfile
import unittest
from pathlib import Path

import torch

import pici


class StateDicts(unittest.TestCase):
    def test_in_place(self):
        """The state of a module, with tied weights: changed where it is, and back."""
        module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 64)).to(torch.bfloat16)
        module[1].weight = module[0].weight
        old = {name: x.clone() for name, x in module.state_dict().items()}
        new = {name: x.clone() for name, x in old.items()}
        for x in new.values():
            x.view(torch.int16).view(-1)[::7] ^= 1

        def has(wanted):
            now = module.state_dict()
            return all(torch.equal(now[name].view(torch.int16), x.view(torch.int16)) for name, x in wanted.items())

        with tempfile.TemporaryDirectory() as d:
            path = Path(d) / "d.pici"
            pici.save_delta(old, new, path)
            place = module[0].weight.data_ptr()
            update = pici.apply_delta(module.state_dict(), path)
            self.assertTrue(has(new))
            self.assertEqual(module[0].weight.data_ptr(), place)
            update.undo()
            self.assertTrue(has(old))
            for name, first, at, values in update.patches(to="torch"):
                wanted = new[name].reshape(-1)[first:][at]
                self.assertTrue(torch.equal(wanted.view(torch.int16), values.view(torch.int16)))

    def test_there(self):
        torch.manual_seed(0)
        module = torch.nn.Sequential(torch.nn.Linear(60, 50), torch.nn.BatchNorm1d(50)).to(torch.bfloat16)
        old = {name: t.clone() for name, t in module.state_dict().items()}
        with torch.no_grad():
            for p in module.parameters():
                p += 1e-4 * torch.randn_like(p)
            module[1].num_batches_tracked += 1
        new = module.state_dict()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "d.pici"
            for small in (True, False):
                pici.save_delta(old, new, path, small=small, overwrite=True)
                found = pici.load_delta(old, path, to="torch")
                self.assertEqual(list(found), list(new))
                for name, t in new.items():
                    self.assertEqual((found[name].dtype, found[name].shape), (t.dtype, t.shape), name)
                    self.assertTrue(torch.equal(found[name], t), name)
                module.load_state_dict(found)
            with self.assertRaisesRegex(BufferError, "'p': .*detach"):
                pici.save_delta({}, {"p": torch.nn.Parameter(torch.ones(3))}, path, overwrite=True)


if __name__ == "__main__":
    unittest.main()
