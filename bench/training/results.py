# SPDX-License-Identifier: BSD-3-Clause
"""Records of training runs: reading, medians over seeds, tables."""
import collections
import json
import statistics


def read(paths):
    records = []
    for path in paths:
        with open(path) as f:
            records += [json.loads(line) for line in f if line.strip()]
    return [r for r in records if r.get("bench") == "training"]


def key(record):
    """What tells runs apart that are not repetitions of each other with another seed."""
    return tuple(record[k] for k in ("link", "model", "ranks", "batch", "epochs", "contestant"))


def grouped(records):
    """{(link, model, ranks, batch, epochs): {contestant: [records]}}, in the order of the records."""
    groups = collections.defaultdict(lambda: collections.defaultdict(list))
    for r in records:
        *kind, contestant = key(r)
        groups[tuple(kind)][contestant].append(r)
    return groups


def median(values):
    """None if any is None in the middle: a level that half of the runs do not reach has no time."""
    values = sorted(values, key=lambda v: (v is None, v))
    middle = values[(len(values) - 1) // 2 : len(values) // 2 + 1]
    return None if None in middle else statistics.mean(middle)


def number(value, format, missing="–"):
    return missing if value is None else f"{value:{format}}"


def tables(records):
    """A table in Markdown for each network and model: medians over seeds."""
    for (link, model, ranks, batch, epochs), rows in grouped(records).items():
        first = next(iter(rows.values()))[0]
        yield (
            f"{model}, {first['weights'] / 1e6:.2f} M weights, {ranks} hosts, {link}, batch {ranks} x {batch}, "
            f"{epochs} epochs of {first['steps'] // epochs} steps, torch {first['torch']}\n"
        )
        yield "| | a step | sent a step | 93% after | 95% after | at the end | seeds |"
        yield "|---|---|---|---|---|---|---|"
        for runs in rows.values():
            step, sent = (median([r[k] for r in runs]) for k in ("step_seconds", "step_bytes"))
            reached = [median([r["seconds_to"][level] for r in runs]) for level in ("93%", "95%")]
            final = sorted(100 * r["final"] for r in runs)
            cells = [
                runs[0]["what"],
                f"{1e3 * step:.0f} ms",
                number(sent and sent / 1e6, ".2f") + (" MB" if sent is not None else ""),
                *(number(s, ".1f") + (" s" if s is not None else "") for s in reached),
                f"{median(final):.1f}%" + (f" ({final[0]:.1f} to {final[-1]:.1f})" if len(final) > 1 else ""),
                str(len(runs)),
            ]
            yield "| " + " | ".join(cells) + " |"
        yield ""
