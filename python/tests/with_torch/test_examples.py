# SPDX-License-Identifier: BSD-3-Clause
"""The examples with torch, and the programs on the pages for torch, as users run them: by torchrun."""
import os
import re
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import torch

from test_fsdp import HAS as HAS_FSDP

ROOT = Path(__file__).resolve().parents[3]


def torchrun(*command, **environment):
    """What two ranks print; with an environment also what they print as errors."""
    if torch.__version__.startswith("1.") and sys.version_info >= (3, 11):
        raise unittest.SkipTest(f"examples by torchrun: that of torch {torch.__version__} needs Python before 3.11")
    run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", *command]
    ended = subprocess.run(run, capture_output=True, text=True, timeout=180, env={**os.environ, **environment})
    if ended.returncode:
        raise AssertionError(f"{' '.join(command)}: exit status {ended.returncode}\n{ended.stderr[-6000:]}")
    return (ended.stdout, ended.stderr) if environment else ended.stdout


def losses(printed):
    return [float(loss) for loss in re.findall(r"^step \d+: loss ([\d.]+)$", printed, re.M)]


class Examples(unittest.TestCase):
    def test_ddp(self):
        ours, torchs = (losses(torchrun(f"{ROOT}/examples/torch_ddp.py", "--hook", h)) for h in ("pici", "none"))
        self.assertEqual(len(ours), 3)
        for a, b in zip(ours, torchs):
            self.assertAlmostEqual(a, b, delta=1e-3)

    def test_ddp_topk(self):
        """The first command of docs/reference/torch.md prints what the page shows, but for the figures."""
        page = (ROOT / "docs/reference/torch.md").read_text()
        (asked,) = re.findall(r"^    PICI_TORCH_STATS=1 torchrun --nproc_per_node 2 (\S+) (.*)$", page, re.M)
        printed, told = torchrun(f"{ROOT}/{asked[0]}", *asked[1].split(), PICI_TORCH_STATS="1")
        first, *_, last = losses(printed)
        self.assertLess(last, first / 2)
        self.assertIn("errors of 3 tensors to save", printed)  # those of the weights; biases are below min_numel
        shown = " ".join(re.search(r"^    pici\.torch: (.*?)\n\n", page, re.M | re.S)[1].split())
        (line,) = re.findall(r"pici\.torch: (.*)", told)
        self.assertEqual(*(re.sub(r"[\d.]+(e-\d+)?", "0", text) for text in (line, shown)))
        times = float(re.search(r"dense ([\d.]+) times", line)[1])
        self.assertGreater(times, 15)

    def test_diloco(self):
        for options in ([], ["--method", "sparseloco", "--fragments", "2", "--overlap", "3"]):
            right, sent = re.search(
                r"([\d.]+)% right, ([\d.]+) MB", torchrun(f"{ROOT}/examples/torch_diloco.py", *options)
            ).groups()
            self.assertGreater(float(right), 75)
            self.assertGreater(float(sent), 0)

    def test_fsdp(self):
        if not HAS_FSDP:
            self.skipTest(f"FSDP2 with custom collectives: torch {torch.__version__} has none")
        first, *_, last = losses(torchrun(f"{ROOT}/examples/torch_fsdp.py"))
        self.assertLess(last, first / 2)


class Pages(unittest.TestCase):
    def program(self, page, fence):
        text = (ROOT / page).read_text()
        found = re.search(rf"^```{fence}\n(.*?)^```$", text, re.M | re.S)
        self.assertIsNotNone(found, f"{page} shows no program")
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(found[1])
            file.flush()
            return torchrun(file.name)

    def test_torch_page(self):
        self.program("docs/reference/torch.md", "python")

    def test_first_training(self):
        norms = re.findall(r"rank [01]: (\d+\.\d{3})", self.program("docs/tutorials/first-training.md", "py"))
        self.assertEqual(len(norms), 2)
        self.assertEqual(norms[0], norms[1])


if __name__ == "__main__":
    unittest.main()
