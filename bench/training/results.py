# SPDX-License-Identifier: BSD-3-Clause
"""Records of training runs: reading, medians over seeds, tables."""
import collections
import json
import statistics


def read(paths):
    records = []
    for path in paths:
        with open(path) as f:
            records += [{"epochs": None, **json.loads(line)} for line in f if line.strip()]
    return [r for r in records if r.get("bench") == "training"]


def key(record):
    """What tells runs apart that are not repetitions of each other with another seed."""
    return tuple(record[k] for k in ("link", "model", "ranks", "batch", "level", "cap", "epochs", "contestant"))


def grouped(records):
    """{(link, model, ranks, batch, level, cap, epochs): {contestant: [records]}}, in the order of the records."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in records:
        *kind, contestant = key(r)
        groups[tuple(kind)][contestant].append(r)
    return groups


def reached(record, column):
    """The step (column 0) or the seconds of training (1) at which the level was reached first; None: it was not."""
    return next((row[column] for row in record["curve"] if row[2] >= record["level"] / 100), None)


def median(values):
    """Of the sorted values the one in the middle, or the mean of the two there. None, a level that was not reached, is
    longer than all others; the median is None if one in the middle is."""
    values = sorted(values, key=lambda v: (v is None, v))
    middle = values[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return None if None in middle else statistics.mean(middle)


def best(record):
    return max(row[2] for row in record["curve"])


def cells(runs):
    """A row of the table: medians over seeds, and the range of the seconds."""
    step, sent = (median([r[k] for r in runs]) for k in ("step_seconds", "step_bytes"))
    steps, seconds = (median([reached(r, column) for r in runs]) for column in (0, 1))
    times = [reached(r, 1) for r in runs]
    epochs, cap = runs[0]["epochs"], f"{runs[0]['cap']:g}"
    missing = f"not in {epochs} epochs" if epochs else f"not in {cap}"
    shown = [missing if t is None else f"{t:.1f}" for t in sorted(times, key=lambda t: (t is None, t))]
    yield runs[0]["what"]
    yield f"{1e3 * step:.0f} ms"
    yield "–" if sent is None else f"{sent / 1e6:.2f} MB"
    yield "–" if steps is None else f"{steps:g}"
    if seconds is None:
        end = f"{epochs} epochs" if epochs else f"{cap} s"
        yield f"not reached in {end} (best: {100 * median([best(r) for r in runs]):.1f}%)"
    else:
        yield f"{seconds:.1f} s"
    yield shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"
    if epochs:
        ends = sorted(100 * r["curve"][-1][2] for r in runs if r["finished"])
        range_of = f" ({ends[0]:.1f} to {ends[-1]:.1f})" if len(ends) > 1 else ""
        yield f"{median(ends):.1f}%{range_of}" if len(ends) == len(runs) else f"not in {cap} s"
    yield str(len(runs))


def tables(records):
    """A table in Markdown for each network and model."""
    for (link, model, ranks, batch, level, _, epochs), rows in grouped(records).items():
        first = next(iter(rows.values()))[0]
        yield (
            f"{model}, {first['weights'] / 1e6:.2f} M weights, {ranks} hosts, {link}, batch {ranks} x {batch}, "
            f"torch {first['torch']}; medians over seeds\n"
        )
        columns = ["", "a step", "sent a step", f"steps to {level:g}%", f"{level:g}% after", "of all seeds, s"]
        columns += ["seeds"] if epochs is None else [f"right after {epochs} epochs", "seeds"]
        yield f"| {' | '.join(columns)} |".replace("|  |", "| |")
        yield "|---" * len(columns) + "|"
        for runs in rows.values():
            yield "| " + " | ".join(cells(runs)) + " |"
        yield ""
