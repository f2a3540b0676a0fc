# SPDX-License-Identifier: BSD-3-Clause
"""Records of training runs: reading, medians over seeds, tables."""
import collections
import json
import statistics


def read(paths):
    records, older = [], {"epochs": None, "steps_asked": None, "loss": None}
    for path in paths:
        with open(path) as f:
            records += [{**older, **json.loads(line)} for line in f if line.strip()]
    return [r for r in records if r.get("bench") == "training"]


def key(record):
    """What tells runs apart that are not repetitions of each other with another seed."""
    kind = ("link", "model", "ranks", "batch", "level", "loss", "cap", "epochs", "steps_asked", "contestant")
    return tuple(record[k] for k in kind)


def grouped(records):
    """{all of key() but the contestant: {contestant: [records]}}, in the order of the records."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in records:
        *kind, contestant = key(r)
        groups[tuple(kind)][contestant].append(r)
    return groups


def reached(record, column):
    """The step (column 0) or the seconds of training (1) at which the level, or the loss, was reached first; None: it
    was not."""
    loss, level = record["loss"], record["level"] / 100
    return next((row[column] for row in record["curve"] if (row[2] >= level if loss is None else row[3] <= loss)), None)


def median(values):
    """Of the sorted values the one in the middle, or the mean of the two there. None, a level that was not reached, is
    longer than all others; the median is None if one in the middle is."""
    values = sorted(values, key=lambda v: (v is None, v))
    middle = values[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return None if None in middle else statistics.mean(middle)


def best(record):
    """The largest fraction that was right, or minus the least loss."""
    by_level = record["loss"] is None
    return max(row[2] if by_level else -row[3] for row in record["curve"])


def until(record):
    """What ends a run, in words."""
    return f"{record['level']:g}%" if record["loss"] is None else f"a loss of {record['loss']:g}"


def length(record):
    """The fixed length of a run, in words; None: it trained to the level."""
    if record["steps_asked"]:
        return f"{record['steps_asked']} steps"
    return record["epochs"] and f"{record['epochs']} epochs"


def spread(values, form):
    """The median, and the least and the most: "2.0 (1.5 to 3.0)"."""
    ends = f" ({form(min(values))} to {form(max(values))})" if len(values) > 1 else ""
    return form(median(values)) + ends


def at_the_end(runs):
    """For runs of a fixed length: accuracy, loss, seconds, CPU seconds, and the bytes that a host sent."""
    if not all(r["finished"] for r in runs):
        yield f"not in {runs[0]['cap']:g} s"
        yield from ("–", "–", "–", "–")
        return
    last, sent = [r["curve"][-1] for r in runs], median([r["step_bytes"] for r in runs])
    yield spread([100 * row[2] for row in last], "{:.1f}".format).replace(" (", "% (") + ("" if len(runs) > 1 else "%")
    yield spread([row[3] for row in last], "{:.3f}".format) if len(last[0]) > 3 else "–"
    yield spread([row[1] for row in last], "{:.1f}".format)
    cpu = [r["step_cpu_seconds"] * r["steps"] for r in runs if "step_cpu_seconds" in r]
    yield spread(cpu, "{:.1f}".format) if cpu else "–"
    yield "–" if sent is None else f"{sent * runs[0]['steps'] / 1e6:.2f} MB"


def cells(runs):
    """A row of the table: medians over seeds, and the range of the seconds."""
    step, sent = (median([r[k] for r in runs]) for k in ("step_seconds", "step_bytes"))
    steps, seconds = (median([reached(r, column) for r in runs]) for column in (0, 1))
    times = [reached(r, 1) for r in runs]
    fixed, cap = length(runs[0]), f"{runs[0]['cap']:g}"
    missing = f"not in {fixed or cap}"
    shown = [missing if t is None else f"{t:.1f}" for t in sorted(times, key=lambda t: (t is None, t))]
    yield runs[0]["what"]
    yield f"{1e3 * step:.0f} ms"
    yield "–" if sent is None else f"{sent / 1e6:.2f} MB"
    yield "–" if steps is None else f"{steps:g}"
    if seconds is None:
        most = median([best(r) for r in runs])
        shown_best = f"{100 * most:.1f}%" if runs[0]["loss"] is None else f"{-most:.3f}"
        yield f"not reached in {fixed or cap + ' s'} (best: {shown_best})"
    else:
        yield f"{seconds:.1f} s"
    yield shown[0] if shown[0] == shown[-1] else f"{shown[0]} to {shown[-1]}"
    if fixed:
        yield from at_the_end(runs)
    yield str(len(runs))


def load_of(rows):
    """How busy the machine was, in words, if the records say it."""
    loads = [load for runs in rows.values() for r in runs for load in r.get("load", [])]
    return f"; load average {min(loads):.1f} to {max(loads):.1f}" if loads else ""


def tables(records):
    """A table in Markdown for each network and model."""
    for (link, model, ranks, batch, *_), rows in grouped(records).items():
        first = next(iter(rows.values()))[0]
        yield (
            f"{model}, {first['weights'] / 1e6:.2f} M weights, {ranks} hosts, {link}, batch {ranks} x {batch}, "
            f"torch {first['torch']}; medians over seeds{load_of(rows)}\n"
        )
        columns = ["", "a step", "sent a step", f"steps to {until(first)}", f"{until(first)} after", "of all seeds, s"]
        if length(first):
            columns += [f"right after {length(first)}", "loss", "seconds", "of CPU", "sent in all"]
        columns.append("seeds")
        yield f"| {' | '.join(columns)} |".replace("|  |", "| |")
        yield "|---" * len(columns) + "|"
        for runs in rows.values():
            yield "| " + " | ".join(cells(runs)) + " |"
        yield ""
