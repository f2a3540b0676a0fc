# SPDX-License-Identifier: BSD-3-Clause
"""Loads the libraries whose functions the extension module _codec calls. Import this module before you call functions
of _codec.
"""
from __future__ import annotations

import os
import sys
from pathlib import Path

SOVERSION = "0"


def _found() -> str:
    """The library that PICI_LIBRARY names; else the one installed with this package; else the system's."""
    beside = Path(__file__).with_name("libpici.so")
    return os.environ.get("PICI_LIBRARY") or (str(beside) if beside.exists() else f"libpici.so.{SOVERSION}")


def _beside(path: str) -> str:
    """The libpici_coll in the folder of a libpici."""
    folder, name = os.path.split(path)
    if "libpici" not in name:
        raise ImportError(
            f"pici: cannot load {path}, which PICI_LIBRARY names: its name lacks 'libpici', so the name of "
            "libpici_coll beside it is unknown. Name them libpici.so and libpici_coll.so"
        )
    return os.path.join(folder, name.replace("libpici", "libpici_coll", 1))


try:
    from . import _codec
except ImportError as e:
    raise ImportError(
        f"pici: no extension module _codec for this Python, {sys.version.split()[0]}: {e}. pip install ./python "
        "brings it, for CPython 3.9 or later; free-threaded builds of Python cannot load it"
    ) from e

#: of libpici, as it was loaded
PATH = _found()
#: of libpici
VERSION = _codec.load(os.fsencode(PATH), os.fsencode(_beside(PATH)))
#: enum pici_algorithm, by name
ALGORITHMS = _codec.algorithms()
#: names of formats until version 0.3; still accepted
ALIASES = {"pici": "bitmap"}
