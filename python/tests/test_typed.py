# SPDX-License-Identifier: BSD-3-Clause
"""The types of results, as mypy --strict sees them in a program that uses the package."""
import ast
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


class Stub(unittest.TestCase):
    def test_names(self):
        """What the stub of the extension module has, the module has, but for types of its objects; and nothing else."""
        stub = ast.parse(Path(pici.__file__).with_name("_codec.pyi").read_text())
        only_types, names = set(), set()
        for made in stub.body:
            if isinstance(made, ast.ClassDef) and "type_check_only" in map(ast.unparse, made.decorator_list):
                only_types.add(made.name)
            elif isinstance(made, (ast.ClassDef, ast.FunctionDef)):
                names.add(made.name)
            elif isinstance(made, ast.AnnAssign):
                names.add(made.target.id)
        found = {name for name in vars(pici._codec) if not name.startswith("__")}
        self.assertEqual(names, found)
        self.assertFalse(only_types & found)
        failed = pici._codec.outfile_open(b"/nowhere/x", False)
        self.assertIs(type(failed), pici._codec.Failed)
        self.assertFalse(hasattr(failed, "_replace"))
        bases = [ast.unparse(base) for c in stub.body if getattr(c, "name", "") == "Failed" for base in c.bases]
        self.assertEqual(bases, ["tuple[int, int, str, int]"])


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
