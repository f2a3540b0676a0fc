# SPDX-License-Identifier: BSD-3-Clause
"""The types of results, as mypy --strict sees them in a program that uses the package."""
import importlib.util
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pici

HERE = Path(__file__).resolve().parent


def mypy():
    """The command of mypy: this Python's, or the one on the path."""
    if importlib.util.find_spec("mypy"):
        return [sys.executable, "-m", "mypy"]
    return [shutil.which("mypy")] if shutil.which("mypy") else None


@unittest.skipUnless(mypy(), "no mypy: the types of results")
class Typed(unittest.TestCase):
    def check(self, text):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "typed.py"
            program.write_text(text)
            package = Path(pici.__file__).parent.parent
            (Path(folder) / "mypy.ini").write_text("[mypy-torch.*]\nignore_missing_imports = True\n")
            config = [f"--config-file={folder}/mypy.ini", f"--cache-dir={folder}/cache", "--python-version=3.11"]
            return subprocess.run(
                [*mypy(), "--strict", *config, program],
                env={"MYPYPATH": str(package), "PATH": "/usr/bin:/bin"},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )

    def test_results(self):
        text = (HERE / "typed.py").read_text()
        done = self.check(text)
        self.assertEqual(done.returncode, 0, done.stdout)
        wrong = self.check(text.replace("(pici.compress(x, out=room), memoryview)", "(pici.compress(x), memoryview)"))
        self.assertIn('Expression is of type "bytes"', wrong.stdout)

    def test_all_is_used(self):
        text = (HERE / "typed.py").read_text()
        for name in pici.__all__:
            if name.islower():
                self.assertIn(f"pici.{name}(", text)
