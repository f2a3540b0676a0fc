# SPDX-License-Identifier: BSD-3-Clause
"""Run torch's own tests of torch.distributed over the backend pici (make check-torch-own).

    own.py [-k WORD]... [--backend pici|as-gloo|gloo] [--ranks 3] [--least 65536] [--beside-gloo]

-k: tests whose name has one of these words. Without it: all, but for WITHOUT.
--backend as-gloo: pici under the name of gloo, since many tests skip backends that are not torch's own. Without it: the
tests run with pici, and then those that it skips as-gloo.

All calls that pici can make are pici's, of any size (--least: PICI_TORCH_MIN_BYTES). own_expected.txt lists the tests
that fail, with the reason. The status is 1 if another test fails, or if one of these passes. --beside-gloo runs those
that failed or were skipped with gloo itself, too."""
import argparse
import collections
import importlib.util
import json
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent

#: those that need a GPU, and one that does not end with gloo itself either
WITHOUT = ("cuda", "nccl", "gpu", "test_barrier_timeout_global")


def listed(backend):
    """The tests that are expected to fail, and why."""
    rows = (HERE / "own_expected.txt").read_text().splitlines()
    fields = [row.split(None, 2) for row in rows if row and not row.startswith("#")]
    return {name: why for of, name, why in fields if of == backend}


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
    return [name for name in names if not any(word in name for word in WITHOUT)]


def apart(backend, names, options):
    """How tests end with another backend, in a process of its own: what a backend can do is decided when torch's tests
    are imported."""
    command = [sys.executable, "-W", "ignore", __file__, f"--backend={backend}", "--json", f"--ranks={options.ranks}"]
    command += [f"--least={options.least}", *[f"-k={name}" for name in names]]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True)
    ends = json.loads(done.stdout.splitlines()[-1])
    return {name: ends[name] for name in names}


def judge(backend, ends):
    """Tell how tests ended. Returns whether that is as it should be."""
    failed = {name: how[8:] for name, how in ends.items() if how.startswith("failed")}
    skipped = collections.Counter(how[9:] for how in ends.values() if how.startswith("skipped"))
    ran = {name for name, how in ends.items() if not how.startswith("skipped")}
    expected = {name: why for name, why in listed(backend).items() if name in ran}
    for why, count in sorted(skipped.items()):
        print(f"skip: {count} of torch's own tests, {backend}: {why}")
    for name in sorted(set(failed) & set(expected)):
        print(f"expected to fail, {backend}: {name}: {expected[name]}")
    wrong = [f"FAIL: {backend}: {name}: {failed[name]}" for name in sorted(set(failed) - set(expected))]
    wrong += [
        f"FAIL: {backend}: {name} was expected to fail, and did not" for name in sorted(set(expected) - set(failed))
    ]
    print("\n".join(wrong), end="\n" if wrong else "")
    passed = sum(how == "passed" for how in ends.values())
    print(f"{backend}: {passed} passed, {len(failed)} failed, {sum(skipped.values())} skipped", flush=True)
    return not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", action="append", default=[], metavar="WORD")
    parser.add_argument("--backend", choices=["pici", "as-gloo", "gloo"])
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
    first = options.backend or "pici"
    os.environ.update(BACKEND=first.replace("as-", ""), PICI_AS_GLOO="1" if first == "as-gloo" else "0")
    os.environ.update(WORLD_SIZE=options.ranks, PICI_TORCH_MIN_BYTES=options.least)
    os.environ.setdefault("DISTRIBUTED_TESTS_DEFAULT_TIMEOUT", "120")
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(HERE), os.environ.get("PYTHONPATH")]))
    sys.path.insert(0, str(HERE))
    import torch.multiprocessing

    from pici.torch import _backend

    if first != "gloo" and not _backend.supported():
        print(f"skip: torch's own tests: torch {torch.__version__} has no backends written in Python")
        return 77
    torch.multiprocessing.set_forkserver_preload(["own_suite"])
    ends = run(chosen(options.k), not options.json)
    if options.json:
        print(json.dumps(ends))
        return 0
    good = judge(first, ends)
    skipped = [name for name, how in ends.items() if how.startswith("skipped")]
    if options.backend is None and skipped:
        more = apart("as-gloo", skipped, options)
        good = judge("as-gloo", more) and good
        ends.update(more)
    names = [name for name, how in ends.items() if how != "passed"]
    if options.beside_gloo and names:
        for name, how in sorted(apart("gloo", names, options).items()):
            print(f"with gloo itself: {name}: {how}")
    return 0 if good and "passed" in ends.values() else 1


if __name__ == "__main__":
    sys.exit(main())
