# SPDX-License-Identifier: BSD-3-Clause
"""The results of collectives by straightforward code, in the order that docs/reference/algorithms.md documents; and
ranks that are threads."""
import threading

import numpy as np

import pici
from pici import _dtypes

OPS = ("sum", "avg", "min", "max")


def together(comms, work):
    """work(comm) for each rank, in a thread each: the results, or the exceptions."""
    results = [None] * len(comms)

    def run(i):
        try:
            results[i] = work(comms[i])
        except Exception as e:
            results[i] = e

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(comms))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


def checked(results):
    for r in results:
        if isinstance(r, Exception):
            raise r
    return results


def contribution(d, n, rank, density=0.3, seed=0):
    """The elements of a rank: small numbers, some negative, most zero."""
    rng = np.random.default_rng((seed, n, rank))
    x = np.where(rng.random(n) < density, rng.standard_normal(n) * 20, 0)
    if d.dlpack[0] == 1:  # unsigned
        x = np.abs(x)
    if not d.narrow:
        return x.astype(d.storage)
    if d.name == "bf16":
        return (x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
    # f8: the bits of small values, of either sign
    bits = rng.integers(1, 0x50, n, np.uint8) | (rng.integers(0, 2, n, np.uint8) << 7)
    return np.where(x != 0, bits, 0).astype(np.uint8)


def _bf16(x):
    """f32 rounded to nearest even, as the bits of bf16."""
    u = x.view(np.uint32).astype(np.uint64)
    return ((u + 0x7FFF + ((u >> 16) & 1)) >> 16).astype(np.uint16)


def wide(d, x):
    """Elements of a narrow float as f32."""
    if d.name == "bf16":
        return (x.astype(np.uint32) << 16).view(np.float32)
    mantissa, bias = (3, 7) if d.name == "f8e4m3" else (2, 15)
    exponent = (x.astype(np.int32) & 0x7F) >> mantissa
    fraction = (x.astype(np.int32) & ((1 << mantissa) - 1)) / (1 << mantissa)
    value = np.where(exponent, (1 + fraction) * 2.0 ** (exponent - bias), fraction * 2.0 ** (1 - bias))
    return np.where(x & 0x80, -value, value).astype(np.float32)


def fold(d, op, parts):
    """parts[0] op parts[1] op ..., from left to right; avg: not yet divided."""
    with np.errstate(all="ignore"):
        if op in ("min", "max"):
            values = np.stack([wide(d, x) if d.narrow else x for x in parts])
            which = (values.argmin if op == "min" else values.argmax)(axis=0)
            return np.stack(parts)[which, np.arange(parts[0].size)]
        total = np.zeros_like(parts[0])
        for x in parts:
            if d.name == "bf16":
                total = _bf16(wide(d, total) + wide(d, x))
            elif d.narrow:
                pici.scatter_add(total, pici.compress(x, dtype=d.name), dtype=d.name)
            else:
                total = total + x
        return total


def divided(d, total, p):
    """The end of avg."""
    if d.name == "bf16":
        return _bf16(wide(d, total) / np.float32(p))
    if d.dlpack[0] == 2:
        return (total / d.storage.type(p) + d.storage.type(0)).astype(d.storage)  # no -0.0
    quotient = total // d.storage.type(p)
    return (quotient + ((quotient < 0) & (quotient * d.storage.type(p) != total))).astype(d.storage)


def order(algorithm, r, p):
    """Whose contributions to the segment of rank r are added, one after the other."""
    return [(r + 1 + k) % p if algorithm == "ring" else (r - k) % p for k in range(p)]


def cut(n, p, i):
    """Where the segment of rank i of an all-reduce begins, with n elements; i == p: where the last ends."""
    first = n * i // p
    return first - first % 4096 if i < p and n // p >= 64 * 4096 else first


def reduced(d, op, algorithm, xs):
    """All-reduce."""
    p, n = len(xs), xs[0].size
    segments = []
    for r in range(p):
        a, b = cut(n, p, r), cut(n, p, r + 1)
        total = fold(d, op, [xs[i][a:b] for i in order(algorithm, r, p)])
        segments.append(divided(d, total, p) if op == "avg" else total)
    return np.concatenate(segments)


def scattered(d, op, algorithm, xs, r):
    """Reduce-scatter: the part of rank r."""
    p, n = len(xs), xs[0].size // len(xs)
    total = fold(d, op, [xs[i][r * n : (r + 1) * n] for i in order(algorithm, r, p)])
    return divided(d, total, p) if op == "avg" else total


def divides(d):
    """Whether divided() knows the dtype."""
    return not d.name.startswith("f8")


DTYPES = _dtypes.ALL
