# SPDX-License-Identifier: BSD-3-Clause
"""The libraries are found and loaded, or it is said why not; and the package agrees with the headers."""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

import pici
from pici import _codec, _dtypes, _libraries, _ranges, errors
from vectors import TREE

HEADERS = ("pici.h", "file.h", "coll.h")


class Headers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        text = "\n".join((TREE / "include" / "pici" / h).read_text() for h in HEADERS)
        cls.text = re.sub(r"/\*.*?\*/", "", text, flags=re.S)

    def constants(self, name):
        body = re.search(rf"enum {name} {{(.*?)}};", self.text, re.S)[1]
        value, found = -1, {}
        for item in filter(None, (x.strip() for x in body.split(","))):
            key, number = (x.strip() for x in (item + "=").split("=")[:2])
            if number not in found:  # else an old name
                value = int(number) if number else value + 1
                found[key] = value
        return found

    def defined(self, name):
        return re.search(rf"#define {name} (\S+)", self.text)[1]

    def test_statuses(self):
        statuses = {value for key, value in self.constants("pici_status").items() if key != "PICI_OK"}
        self.assertEqual(set(errors.CLASSES), statuses)
        for status, cls in errors.CLASSES.items():
            error = errors.make(status, "why")
            self.assertIs(type(error), cls)
            self.assertEqual((error.status, str(error)), (status, "why"))

    def test_words(self):
        """Each number of an enum has a word here: a format or an op that is new in the library."""
        self.assertEqual(
            {key[5:].lower(): value for key, value in self.constants("pici_dtype").items()},
            {d.name: d.code for d in _dtypes.ALL},
        )
        for enum, words in (("pici_format", _codec.FORMATS), ("pici_op", _codec.OPS)):
            self.assertEqual({key[5:].lower(): value for key, value in self.constants(enum).items()}, words)
        codecs = {key[12:].lower(): value for key, value in self.constants("pici_value_codec").items()}
        self.assertEqual(codecs, _codec.VALUE_CODECS)
        algorithms = {key[10:].lower(): value for key, value in self.constants("pici_algorithm").items()}
        self.assertEqual({name.replace("-", "_"): n for name, n in _libraries.ALGORITHMS.items()}, algorithms)

    def test_versions(self):
        version = self.defined("PICI_VERSION")
        self.assertIn(f"version = {version}\n", (TREE / "python" / "pyproject.toml").read_text())
        self.assertEqual(pici.__version__, _libraries.VERSION)
        soversion = re.search(r"^SOVERSION = (.*)$", (TREE / "Makefile").read_text(), re.M)[1]
        self.assertEqual(_libraries.SOVERSION, soversion)


class Loading(unittest.TestCase):
    def setUp(self):
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))

    def enterContext(self, manager):  # as Python 3.11's
        result = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return result

    def imported(self, library):
        """What a program prints that imports the package with this library."""
        program = "import pici; print(pici._libraries.PATH, pici.__version__)"
        found = os.pathsep.join([str(Path(pici.__file__).parents[1]), *filter(None, sys.path)])
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONPATH": found, "PICI_LIBRARY": str(library)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        return done.stdout.strip().splitlines()[-1]

    @unittest.skipUnless(os.sep in _libraries.PATH, "the system's library: loading a copy of it")
    def test_by_path(self):
        for name in ("libpici.so", "libpici_coll.so"):
            shutil.copy(Path(_libraries.PATH).with_name(name), self.folder)
        library = self.folder / "libpici.so"
        self.assertEqual(self.imported(library), f"{library} {pici.__version__}")
        (self.folder / "libpici_coll.so").unlink()
        self.assertRegex(
            self.imported(library),
            "^ImportError: pici: cannot load libpici_coll: .*/libpici_coll.so: cannot open .* pip install brings one",
        )

    @unittest.skipUnless(os.sep in _libraries.PATH, "the system's library: loading a copy of it")
    def test_other_name(self):
        library = self.folder / "other.so"
        shutil.copy(_libraries.PATH, library)
        self.assertRegex(self.imported(library), "^ImportError: pici: cannot load .*/other.so, .* name lacks 'libpici'")

    def test_missing(self):
        self.assertRegex(
            self.imported("/nowhere/libpici.so"),
            "^ImportError: pici: cannot load libpici: /nowhere/libpici.so: cannot open shared object file: No such "
            "file or directory. pip install brings one; PICI_LIBRARY=path/to/libpici.so names another$",
        )

    def made(self, text):
        source, library = self.folder / "other.c", self.folder / "libpici.so"
        source.write_text(text)
        subprocess.run([shutil.which("cc"), "-shared", "-fPIC", "-o", library, source], check=True)
        return self.imported(library)

    @unittest.skipUnless(shutil.which("cc"), "no cc: libraries that are not libpici")
    def test_others(self):
        self.assertRegex(self.made("int other;"), "^ImportError: pici: cannot load libpici: .*pici_version.*names")
        said = self.made('const char *pici_version(void) { return "9.1.0"; }')
        own = pici.__version__.rsplit(".", 1)[0]
        self.assertRegex(said, f"^ImportError: pici: .*libpici.so is version 9.1.0; this package is for {own}$")
        self.assertIn("is version", self.made(f'const char *pici_version(void) {{ return "{own}9.0"; }}'))
        said = self.made(f'const char *pici_version(void) {{ return "{own}.7"; }}')
        self.assertRegex(said, "^ImportError: pici: cannot load libpici: .*undefined symbol: pici_strerror")


class Ranges(unittest.TestCase):
    def test_integers(self):
        self.assertEqual(_ranges.u31(2**31 - 1, "x"), 2**31 - 1)
        self.assertEqual(_ranges.u64(2**64 - 1, "x"), 2**64 - 1)
        for check, value in ((_ranges.u31, -1), (_ranges.u31, 2**31), (_ranges.u64, -1), (_ranges.u64, 2**64)):
            self.assertRaisesRegex(ValueError, f"^x is {value}, not from 0 to ", check, value, "x")
        self.assertRaises(ValueError, _ranges.u32, 0, "x")
        self.assertRaises(TypeError, _ranges.u64, 1.0, "x")
