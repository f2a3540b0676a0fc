# SPDX-License-Identifier: BSD-3-Clause
"""Run the tests beside this file. Prints each reason to skip once, as "skip: REASON"; the last line is "N passed"."""
import sys
import unittest
from pathlib import Path

import pici


class Result(unittest.TextTestResult):
    passed = 0

    def addSuccess(self, test):
        super().addSuccess(test)
        self.passed += 1


here = str(Path(__file__).resolve().parent)
print(f"{pici.__file__}, {pici._abi.lib._name}, Python {sys.version.split()[0]}")
suite = unittest.defaultTestLoader.discover(here)
result = unittest.TextTestRunner(stream=sys.stdout, resultclass=Result).run(suite)
for why in sorted({why for _, why in result.skipped}):
    print(f"skip: {why}")
print(f"{result.passed} passed")
sys.exit(not result.wasSuccessful() or result.passed == 0)
