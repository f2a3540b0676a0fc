# SPDX-License-Identifier: BSD-3-Clause
"""The package pici with libpici.so, libpici_coll.so and the extension module _codec inside. make builds them from the
tree that this folder is part of; PICI_BUILD names the build folder, if it is not build. With PICI_SYSTEM=1 the
libraries are not inside: the package loads the system's libpici.so.0 and libpici_coll.so.0.

For wheels of another machine (tools/dev/wheels), PYTHON_INCLUDE names its Python's headers and STRIP its strip.
PICI_NOTICE is a file to put beside the library: the terms of linked libraries.
"""
import os
import shutil
import subprocess
import sysconfig
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.build_py import build_py

try:
    from setuptools.command.bdist_wheel import bdist_wheel
except ImportError:  # before setuptools 70
    from wheel.bdist_wheel import bdist_wheel

TREE = Path(__file__).resolve().parent.parent
if not (TREE / "Makefile").exists():
    raise SystemExit("pici: there are no C sources around this folder: build in the repository, or take a wheel")
BUILD = os.path.relpath(TREE / os.environ.get("PICI_BUILD", "build"), TREE)  # relative, as make itself has it
SYSTEM = os.environ.get("PICI_SYSTEM") == "1"
WORK = TREE / BUILD / "python"  # for the intermediate files of setuptools


ALL_PARTS = ("libpici.so", "libpici_coll.so", "_codec.abi3.so")
PARTS = ALL_PARTS[2:] if SYSTEM else ALL_PARTS
HEADERS = Path(os.environ.get("PYTHON_INCLUDE") or sysconfig.get_path("include"))
STRIP = os.environ.get("STRIP", "strip")
NOTICE = os.environ.get("PICI_NOTICE")
if not (HEADERS / "Python.h").exists():
    raise SystemExit(f"pici: no {HEADERS}/Python.h: install the headers of this Python (python3-dev), or take a wheel")


class WithLibrary(build_py):
    """Copies the library and the extension module beside the other modules."""

    def run(self):
        super().run()
        jobs = [] if "MAKEFLAGS" in os.environ else [f"-j{os.cpu_count() or 1}"]
        goals = [f"{BUILD}/{part}" for part in PARTS]
        subprocess.check_call(["make", *jobs, "-C", TREE, f"BUILD={BUILD}", f"PYTHON_INCLUDE={HEADERS}", *goals])
        package = self.get_package_dir("pici") if self.editable_mode else Path(self.build_lib) / "pici"
        for part in set(ALL_PARTS) - set(PARTS):  # of a build before
            (Path(package) / part).unlink(missing_ok=True)
        for part in PARTS:
            copy = Path(package) / part
            shutil.copyfile(TREE / BUILD / part, copy)
            if not SYSTEM and shutil.which(STRIP):  # debug information is four fifths of the file
                subprocess.check_call([STRIP, "--strip-unneeded", copy])
        if NOTICE:
            shutil.copyfile(NOTICE, Path(package) / "libzstd.copyright")


class Platform(Distribution):
    """Makes the wheel one for this platform, since it has a library inside."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """Makes the wheel one for every CPython from 3.9 on: the extension module uses the stable ABI only."""

    def get_tag(self):
        return "cp39", "abi3", super().get_tag()[2]


WORK.mkdir(parents=True, exist_ok=True)
setup(
    distclass=Platform,
    cmdclass={"build_py": WithLibrary, "bdist_wheel": AnyPython},
    options={"build": {"build_base": str(WORK)}, "egg_info": {"egg_base": str(WORK)}},
)
