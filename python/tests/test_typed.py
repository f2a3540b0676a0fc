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
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        (cls.folder / "path").mkdir()
        (cls.folder / "path" / "pici").symlink_to(Path(pici.__file__).parent)
        (cls.folder / "mypy.ini").write_text(
            "[mypy]\nenable_incomplete_feature = Unpack\n[mypy-torch.*]\nignore_missing_imports = True\n"
        )

    def check(self, text):
        program = self.folder / "typed.py"
        program.write_text(text)
        own = [f"--config-file={self.folder}/mypy.ini", f"--cache-dir={self.folder}/cache", "--python-version=3.11"]
        return subprocess.run(
            [*mypy(), "--strict", *own, program],
            env={"MYPYPATH": f"{self.folder}/path", "PATH": "/usr/bin:/bin"},
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
