# SPDX-License-Identifier: BSD-3-Clause
"""The package pici with libpici.so inside. make builds the library from the tree that this folder is part of;
PICI_BUILD names the build folder, if it is not build."""
import os
import shutil
import subprocess
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
WORK = TREE / BUILD / "python"  # for the intermediate files of setuptools


class WithLibrary(build_py):
    """Copies the library beside the modules."""

    def run(self):
        super().run()
        jobs = [] if "MAKEFLAGS" in os.environ else [f"-j{os.cpu_count() or 1}"]
        subprocess.check_call(["make", *jobs, "-C", TREE, f"BUILD={BUILD}", f"{BUILD}/libpici.so"])
        package = self.get_package_dir("pici") if self.editable_mode else Path(self.build_lib) / "pici"
        library = Path(package) / "libpici.so"
        shutil.copyfile(TREE / BUILD / "libpici.so", library)
        if shutil.which("strip"):  # debug information is four fifths of the file
            subprocess.check_call(["strip", "--strip-unneeded", library])


class Platform(Distribution):
    """Makes the wheel one for this platform, since it has a library inside."""

    def has_ext_modules(self):
        return True


class AnyPython(bdist_wheel):
    """Makes the wheel one for every Python 3: there is no extension module, only a library that ctypes loads."""

    def get_tag(self):
        return "py3", "none", super().get_tag()[2]


WORK.mkdir(parents=True, exist_ok=True)
setup(
    distclass=Platform,
    cmdclass={"build_py": WithLibrary, "bdist_wheel": AnyPython},
    options={"build": {"build_base": str(WORK)}, "egg_info": {"egg_base": str(WORK)}},
)
