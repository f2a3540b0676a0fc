# SPDX-License-Identifier: BSD-3-Clause
"""make bench-torch: two ranks on this host, made-up digits; and its medians."""
import importlib.util
import json
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import numpy as np

TRAINING = Path(__file__).resolve().parents[3] / "bench/training"


def results():
    spec = importlib.util.spec_from_file_location("results", TRAINING / "results.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(seed, *curve):
    """A run whose steps take a second each; curve: the share of the digits that are right, after every tenth step."""
    return {
        "bench": "training",
        "contestant": "gloo",
        "what": "gloo, dense",
        "link": "1mbit",
        "model": "mlp",
        "weights": 10**6,
        "ranks": 4,
        "batch": 32,
        "seed": seed,
        "level": 93.0,
        "loss": None,
        "cap": 90.0,
        "epochs": None,
        "steps_asked": None,
        "step_seconds": 1.0,
        "step_bytes": 2e6,
        "torch": "2",
        "curve": [(10 * i, 10.0 * i, share) for i, share in enumerate(curve)],
    }


class Medians(unittest.TestCase):
    def test_of_values(self):
        median = results().median
        self.assertEqual(median([3, 1, 2]), 2)
        self.assertEqual(median([4, 1, 2, 3]), 2.5)
        self.assertEqual(median([None, 5, None, 1, 2]), 5)
        self.assertIsNone(median([None, 1, None, None, 2]))
        self.assertIsNone(median([None, 1]))

    def test_first_time_at_the_level(self):
        r = record(0, 0.1, 0.929, 0.93, 0.92, 0.94)
        self.assertEqual([results().reached(r, column) for column in (0, 1)], [20, 20.0])
        self.assertIsNone(results().reached(record(0, 0.1, 0.929), 1))

    def test_table(self):
        reached, later, never = (0.1, 0.93), (0.1, 0.9, 0.95), (0.1, 0.9, 0.91)
        row = list(results().tables([record(0, *reached), record(1, *never), record(2, *later)]))[3]
        self.assertEqual(row, "| gloo, dense | 1000 ms | 2.00 MB | 20 | 20.0 s | 10.0 to not in 90 | 3 |")
        row = list(results().tables([record(0, *reached), record(1, *never), record(2, *never)]))[3]
        self.assertIn("| not reached in 90 s (best: 91.0%) |", row)

    def test_to_a_loss(self):
        runs = [record(seed, 0.1, 0.2, 0.3) for seed in range(3)]
        for r, losses in zip(runs, ((5, 3, 2), (5, 2, 1), (5, 4, 3.5))):
            r["loss"], r["curve"] = 2.0, [(*row, loss) for row, loss in zip(r["curve"], losses)]
        self.assertEqual([results().reached(r, 0) for r in runs], [20, 10, None])
        head, _, row = list(results().tables(runs))[1:4]
        self.assertIn("| steps to a loss of 2 | a loss of 2 after |", head)
        self.assertTrue(row.endswith("| 20 | 20.0 s | 10.0 to not in 90 | 3 |"), row)
        self.assertIn("| not reached in 90 s (best: 3.500) |", list(results().tables(runs[2:]))[3])
        self.assertEqual(len(results().grouped([*runs, record(0, 0.1)])), 2)  # and not one with those to a level

    def test_table_of_epochs(self):
        runs = [
            {**record(seed, 0.1, right), "epochs": 3, "steps": 10, "finished": True}
            for seed, right in enumerate((0.94, 0.91, 0.92))
        ]
        head, _, row = list(results().tables(runs))[1:4]
        self.assertIn("| right after 3 epochs | loss | seconds | of CPU | sent in all | seeds |", head)
        self.assertIn("| 92.0% (91.0 to 94.0) | – | 10.0 (10.0 to 10.0) | – | 20.00 MB | 3 |", row)
        runs[1]["finished"] = False  # at the cap
        self.assertIn("| not in 90 s | – | – | – | – | 3 |", list(results().tables(runs))[3])
        runs = [{**record(0, 0.1, 0.9), "epochs": 3, "steps": 10, "finished": True}]
        self.assertIn(
            "| not reached in 3 epochs (best: 90.0%) | not in 3 epochs | 90.0% |", list(results().tables(runs))[3]
        )

    def test_table_of_steps(self):
        runs = [{**record(seed, 0.1, 0.9), "steps_asked": 10, "steps": 10, "finished": True} for seed in range(2)]
        for loss, r in zip((0.5, 0.7), runs):
            r["curve"] = [(*row, loss) for row in r["curve"]]
            r.update(step_cpu_seconds=0.2, load=[3.0, 4 + loss])
        title, _, head, _, row = "\n".join(results().tables(runs)).splitlines()[:5]
        self.assertTrue(title.endswith("; load average 3.0 to 4.7"), title)
        self.assertIn("| right after 10 steps |", head)
        end = ["90.0% (90.0 to 90.0)", "0.600 (0.500 to 0.700)", "10.0 (10.0 to 10.0)", "2.0 (2.0 to 2.0)", "20.00 MB"]
        self.assertTrue(row.endswith(f"| {' | '.join(end)} | 2 |"), row)


class Runs(unittest.TestCase):
    def test_runs_once(self):
        random = np.random.default_rng(0)
        y = random.integers(10, size=1300)
        x = np.clip(40 * y[:, None] % 251 + random.integers(-20, 20, (1300, 784)), 0, 255).astype(np.uint8)
        with tempfile.TemporaryDirectory() as folder:
            np.savez(f"{folder}/made-up.npz", x=x, y=y)
            command = [sys.executable, str(TRAINING / "run"), "--loopback", "--hosts", "2", "--seeds", "1"]
            command += ["--cap", "2", "--data", f"{folder}/made-up.npz", "-o", folder]

            def run(contestants):
                whole = [*command, "--contestants", contestants]
                ended = subprocess.run(whole, capture_output=True, text=True, timeout=400)
                self.assertEqual(ended.returncode, 0, ended.stderr[-4000:])
                return [json.loads(line) for line in Path(folder, "training.jsonl").read_text().splitlines()]

            self.assertEqual([r["contestant"] for r in run("top1")], ["top1"])
            first, second = run("top1,pici-pruned")
            self.assertEqual([first["contestant"], second["contestant"]], ["top1", "pici-pruned"])
            for r in (first, second):
                steps, seconds, right, _ = r["curve"][-1]
                self.assertEqual(steps, r["steps"])
                self.assertTrue(seconds >= r["cap"] or right >= r["level"] / 100, r["curve"])
            command += ["--level", "1", "--cap", "300"]  # reached at once, so after the least number of steps
            *_, samo, gradients, outer = run("samo-pruned,pici-pruned-gradients,outer-topk")
            self.assertEqual([r["steps"] for r in (samo, gradients, outer)], [20, 20, 20])
            self.assertAlmostEqual(samo["curve"][0][2], second["curve"][0][2])  # pruned alike
            command += ["--epochs", "3"]
            *_, third = run("top1")
            self.assertEqual((third["epochs"], third["steps"], third["finished"]), (3, 3 * (300 // 64), True))
            self.assertEqual(third["curve"][-1][0], third["steps"])

    def test_steps_of_outer(self):
        """All ranks have the same weights whenever they look, and at the end."""
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(TRAINING / "run"), "--loopback", "--hosts", "2", "--seeds", "1"]
            command += ["--models", "made-up", "--steps", "45", "--batch", "16", "-o", folder]
            command += ["--contestants", "outer,outer-visible"]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
            self.assertEqual(ended.returncode, 0, ended.stderr[-4000:])
            dense, visible = (json.loads(line) for line in Path(folder, "training.jsonl").read_text().splitlines())
            for r in (dense, visible):
                self.assertEqual([row[0] for row in r["curve"]], [0, 20, 40, 45])
                self.assertEqual((r["batch"], r["finished"]), (16, True))
                self.assertLess(r["curve"][-1][3], r["curve"][0][3])  # the loss
                self.assertGreater(r["step_cpu_seconds"], 0)
            self.assertIn("| right after 45 steps |", ended.stdout)

    def test_text(self):
        with tempfile.TemporaryDirectory() as folder:
            command = [sys.executable, str(TRAINING / "run"), "--loopback", "--hosts", "2", "--seeds", "1"]
            command += ["--models", "gpt,lstm", "--contestants", "pici-unpacked", "--loss", "5.4", "-o", folder]
            ended = subprocess.run(command, capture_output=True, text=True, timeout=400)
            self.assertEqual(ended.returncode, 0, ended.stderr[-4000:])
            gpt, lstm = (json.loads(line) for line in Path(folder, "training.jsonl").read_text().splitlines())
            for r, model in ((gpt, "gpt"), (lstm, "lstm")):
                self.assertEqual((r["model"], r["steps"], r["loss"]), (model, 20, 5.4))  # the least number of steps
                self.assertGreater(r["curve"][-1][2], 0.15)  # it learns
                self.assertLess(r["curve"][-1][3], r["loss"])
            self.assertIn("| a loss of 5.4 after |", ended.stdout)


if __name__ == "__main__":
    unittest.main()
