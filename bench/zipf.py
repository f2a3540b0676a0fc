#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Made-up examples of texts in LIBSVM's format: features are words, and the frequency of words follows Zipf's law.

bench/zipf.py FEATURES PER_ROW ROWS >FILE

Gradients of linear models over them are as sparse as gradients over real texts. A step changes the weights of frequent
words on all ranks, and of most words on none.
"""

import random
import sys
from math import exp, log


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit("usage: bench/zipf.py FEATURES PER_ROW ROWS >FILE")
    features, per_row, rows = (int(word) for word in sys.argv[1:])
    random.seed(1)
    span = log(features + 1)
    for _ in range(rows):
        words: set[int] = set()
        while len(words) < per_row:
            words.add(int(exp(random.random() * span)))  # word w: with a chance of about 1/w
        label = sum(1 if w % 3 else -2 for w in words) > 0
        print("+1" if label else "-1", *(f"{w}:1" for w in sorted(words)))


main()
