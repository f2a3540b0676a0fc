# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests beside this file, or in the folder that is given. Prints each reason to skip once, as "skip: REASON";
the last line is "N passed"."""
import argparse
import sys
import unittest
from pathlib import Path

import pici


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


parser = argparse.ArgumentParser()
parser.add_argument("folder", nargs="?", default=str(Path(__file__).resolve().parent))
parser.add_argument("-k", action="append", metavar="NAME", help="tests whose name has this")
chosen = parser.parse_args()
if chosen.k:
    unittest.defaultTestLoader.testNamePatterns = [f"*{name}*" for name in chosen.k]
print(f"{pici.__file__}, {pici._libraries.PATH}, Python {sys.version.split()[0]}")
suite = unittest.defaultTestLoader.discover(chosen.folder)
result = unittest.TextTestRunner(stream=sys.stdout, resultclass=Result).run(suite)
for why in sorted({why for _, why in result.skipped}):
    print(f"skip: {why}")
print(f"{result.passed} passed")
sys.exit(not result.wasSuccessful() or result.passed == 0)
