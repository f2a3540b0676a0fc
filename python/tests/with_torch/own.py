# SPDX-License-Identifier: BSD-3-Clause
"""Run torch's own tests of torch.distributed over the backend pici (make check-torch-own).

    own.py [-k WORD]... [--backend gloo] [--ranks 3] [--least 65536] [--beside-gloo]

-k: tests whose name has one of these words. Without it: all, but for those that need a GPU.

All calls that pici can make are pici's, of any size (--least: PICI_TORCH_MIN_BYTES). own_expected.txt lists the tests
that fail, with the reason. The status is 1 if another test fails, or if one of these passes. --beside-gloo runs those
that failed or were skipped with gloo, too."""
import argparse
import collections
import importlib.util
import os
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


def listed():
    """The tests that are expected to fail, and why."""
    rows = (HERE / "own_expected.txt").read_text().splitlines()
    pairs = [row.split(None, 1) for row in rows if row and not row.startswith("#")]
    return {name: why for name, why in pairs}


class Result(unittest.TestResult):
    """How each test ended: "passed", "failed: WHY" or "skipped: WHY"."""

    def __init__(self, tell):
        super().__init__()
        self.ends, self.tell = {}, tell

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def end(self, test, how):
        name = test._testMethodName
        self.ends[name] = how
        if self.tell:
            print(f"  {how.split(':')[0]:8}{time.monotonic() - self.began:5.1f} s  {name}", flush=True)

    def addSuccess(self, test):
        self.end(test, "passed")

    def addSkip(self, test, why):
        self.end(test, f"skipped: {why}")

    def addFailure(self, test, error):
        lines = [line for line in str(error[1]).splitlines() if line.strip()]
        named = [line for line in lines if "Error" in line or "died" in line or "Timing out" in line]
        self.end(test, f"failed: {(named or lines or ['?'])[-1].strip()}")

    addError = addFailure


def run(names, tell):
    import own_suite

    result = Result(tell)
    unittest.TestSuite(own_suite.Suite(name) for name in names).run(result)
    return result.ends


def chosen(words):
    import own_suite

    names = unittest.defaultTestLoader.getTestCaseNames(own_suite.Suite)
    if words:
        return [name for name in names if any(word in name for word in words)]
    return [name for name in names if not any(word in name for word in ("cuda", "nccl", "gpu"))]


def beside_gloo(names):
    """How these tests end with gloo, in a process of its own: what a backend can do is decided when torch's tests are
    imported."""
    import json
    import subprocess

    command = [sys.executable, __file__, "--backend", "gloo", "--json", *[f"-k={name}" for name in names]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", action="append", default=[], metavar="WORD")
    parser.add_argument("--backend", default="pici")
    parser.add_argument("--ranks", default="2")
    parser.add_argument("--least", default="0")
    parser.add_argument("--beside-gloo", action="store_true")
    parser.add_argument("--json", action="store_true", help="the ends of all tests in the last line, and no verdict")
    options = parser.parse_args()
    if importlib.util.find_spec("torch") is None:
        print("skip: torch's own tests: no torch")
        return 77
    if importlib.util.find_spec("expecttest") is None:
        print("skip: torch's own tests: they need the package expecttest")
        return 77
    os.environ.update(BACKEND=options.backend, WORLD_SIZE=options.ranks, PICI_TORCH_MIN_BYTES=options.least)
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(HERE))
    import torch.multiprocessing

    from pici.torch import _backend

    if options.backend == "pici" and not _backend.supported():
        print(f"skip: torch's own tests: torch {torch.__version__} has no backends written in Python")
        return 77
    torch.multiprocessing.set_forkserver_preload(["own_suite"])
    ends = run(chosen(options.k), not options.json)
    if options.json:
        import json

        print(json.dumps(ends))
        return 0

    failed = {name: how[8:] for name, how in ends.items() if how.startswith("failed")}
    skipped = collections.Counter(how[9:] for how in ends.values() if how.startswith("skipped"))
    expected = {name: why for name, why in listed().items() if name in ends} if options.backend == "pici" else {}
    for why, count in sorted(skipped.items()):
        print(f"skip: {count} of torch's own tests: {why}")
    for name in sorted(set(failed) & set(expected)):
        print(f"expected to fail: {name}: {expected[name]}")
    wrong = [f"failed: {name}: {failed[name]}" for name in sorted(set(failed) - set(expected))]
    wrong += [f"expected to fail, but did not: {name}" for name in sorted(set(expected) - set(failed))]
    if options.beside_gloo:
        names = [name for name, how in ends.items() if how != "passed"]
        for name, how in sorted(beside_gloo(names).items() if names else ()):
            if name in names:
                print(f"with gloo: {name}: {how}")
    print("\n".join(wrong), end="\n" if wrong else "")
    passed = sum(how == "passed" for how in ends.values())
    print(f"{options.backend}: {passed} passed, {len(failed)} failed, {sum(skipped.values())} skipped")
    return 1 if wrong or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
