#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The time of a step's weights from a trainer to a server, over a link of a known speed and the sockets of pici.vllm.
Compares small deltas, positions (int32) with values, and all weights.

    bench/net with 2 200mbit python3 bench/weight_link.py [--weights 160e6] [--rates 1e-6 3e-6 1e-5] [--json]

Two processes, on two of bench/net's hosts. bf16 weights, random; a step moves each weight of an f32 copy by about the
rate, as Adam does. The server is pici.vllm's without vLLM: it checks all hashes and puts the new weights in host
memory. Loading them into a model takes the same time for all three; bench/weight_sync.py measures it. Needs torch.
Columns in seconds. diff: the trainer makes its message. send: until the server has the bytes. apply: until it has the
weights. all: from the step's end to the server's answer. Then the sent bytes. Small deltas are sent and checked while
others are being made: send and apply are only the rest of these times.
"""
import argparse
import json
import os
import subprocess
import sys
import time

import numpy as np

from pici.vllm import _wire
from pici.vllm._parts import SMALL, Held
from pici.vllm._publisher import Publisher, Weights
from pici.vllm._replica import Replica, Source
from pici.vllm._stats import Step

TENSOR = 4 << 20  # elements of each
TOKEN = "weight-link"
KINDS = ("pici", "int32 + bf16", "whole")


def names(weights):
    return [f"layers.{i}.weight" for i in range(max(int(weights) // TENSOR, 1))]


def bf16(x):
    """The bits of f32 values, rounded to nearest even."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def state(bits):
    """Bits of bf16 as pici takes them."""
    from pici._dlpack import DLPackArray
    from pici._dtypes import named

    d = named("bf16")
    return {name: DLPackArray(x.view(d.storage), d) for name, x in bits.items()}


def listening(host, port):
    """A connection of the server, for messages other than pici's own."""
    import socket

    listener = socket.create_server((host, port))
    connection, _ = listener.accept()
    listener.close()
    return _wire.Channel(connection, TOKEN, listens=True)


def trainer(o):
    rng = np.random.default_rng(1)
    master = {name: rng.standard_normal(TENSOR, np.float32) * np.float32(0.02) for name in names(o.weights)}
    bits = {name: bf16(x) for name, x in master.items()}
    weights = Weights(SMALL, o.threads)
    publisher = Publisher(weights, o.host, o.port, TOKEN)
    channel = listening(o.host, o.port + 1)
    rows = []

    def pici(rate, changed):
        step = Step("trainer")
        sent, began = publisher.bytes, time.perf_counter()
        first = weights.version < 0
        with publisher.held_back():
            told = {"kind": "pici", "run": weights.run, "version": weights.version + 1}
            if not first:  # the server gets and checks parts while others are made
                channel.say(told)
            weights.update(((n, Held(n, a).array) for n, a in state(bits).items()), step)
        diff = time.perf_counter() - began
        if first:
            channel.say(told)
        done = channel.hear()
        total = time.perf_counter() - began
        rows.append(
            (
                rate,
                "pici",
                changed,
                publisher.bytes - sent,
                diff,
                total - diff - done["apply"],
                done["apply"],
                total,
            )
        )

    def plain(rate, changed, kind, old):
        began, sent = time.perf_counter(), channel.sent
        made = []
        if kind != "whole":
            for name, x in bits.items():
                at = np.flatnonzero(x != old[name]).astype(np.int32)
                made.append((at, x[at]))
        diff = time.perf_counter() - began
        channel.say({"kind": kind})
        for pieces in made or [(x,) for x in bits.values()]:
            for piece in pieces:
                channel.send_data(piece.view(np.uint8).reshape(-1).data)
        done = channel.hear()
        total = time.perf_counter() - began
        rows.append(
            (
                rate,
                kind,
                changed,
                channel.sent - sent,
                diff,
                done["receive"],
                done["apply"],
                total,
            )
        )

    pici(0.0, sum(x.size for x in bits.values()))
    for rate in o.rates:
        for repeat in range(o.steps):
            old = {name: x.copy() for name, x in bits.items()}
            for name, w in master.items():
                w -= np.float32(rate) * np.clip(rng.standard_normal(w.size, np.float32), -3, 3)
                bits[name][:] = bf16(w)
            changed = sum(int(np.count_nonzero(x != old[name])) for name, x in bits.items())
            pici(rate, changed)
            plain(rate, changed, "int32 + bf16", old)
            if not repeat:
                plain(rate, changed, "whole", old)
    channel.say({"kind": "end"})
    report(o, rows, sum(x.size for x in bits.values()))


def report(o, rows, count):
    fields = (
        "rate",
        "kind",
        "changed",
        "bytes",
        "diff_s",
        "send_s",
        "apply_s",
        "total_s",
    )
    named_rows = [dict(zip(fields, row)) for row in rows]
    if o.svg:
        svg(named_rows, count, o.svg)
    if o.json:
        print(json.dumps({"weights": count, "rows": named_rows}))
        return
    print(f"{count} bf16 weights, {o.threads} threads; of {o.steps} steps the median")
    print("rate      changed  kind               bytes  per changed |   diff   send  apply |   total   beside pici")
    for rate in sorted({row[0] for row in rows}):
        own = None
        for kind in KINDS:
            found = [row for row in rows if row[:2] == (rate, kind)]
            if not found:
                continue
            changed, size, *seconds = (float(np.median([row[i] for row in found])) for i in range(2, 8))
            own = own or seconds[-1]
            print(
                f"{rate or 'first':<8}  {changed / count:7.2%}  {kind:12} {size:11.0f}  {size / changed:11.3f} | "
                + " ".join(f"{s:6.2f}" for s in seconds[:3])
                + f" | {seconds[3]:7.2f}   {seconds[3] / own:6.1f} x",
                flush=True,
            )


def svg(rows, count, path):
    """A picture of the seconds: a bar for each way, of its stages."""
    groups = [(rate, kind) for rate in sorted({r["rate"] for r in rows} - {0}) for kind in KINDS]
    stages = (
        ("diff_s", "#009e73", "diff"),
        ("send_s", "#0072b2", "send"),
        ("apply_s", "#e69f00", "apply"),
    )
    medians = {}
    for group in groups:
        found = [r for r in rows if (r["rate"], r["kind"]) == group]
        medians[group] = {name: float(np.median([r[name] for r in found])) for name in found[0] if name != "kind"}
    most = max(sum(m[name] for name, _, _ in stages) for m in medians.values())
    lines = [
        "<!-- SPDX-License-Identifier: BSD-3-Clause -->",
        f'<svg xmlns="http://www.w3.org/2000/svg" width="860" height="{70 + 34 * len(groups)}" '
        'font-family="sans-serif" font-size="13">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="20" y="24">Seconds per step over 200 Mbit/s, {count / 1e6:.0f} million bf16 weights</text>',
    ]
    for i, (_, colour, word) in enumerate(stages):
        lines.append(f'<rect x="{520 + 100 * i}" y="13" width="12" height="12" fill="{colour}"/>')
        lines.append(f'<text x="{538 + 100 * i}" y="24">{word}</text>')
    for i, group in enumerate(groups):
        m, y = medians[group], 44 + 34 * i + 6 * (i // len(KINDS))
        if i % len(KINDS) == 0:
            lines.append(f'<text x="20" y="{y + 15}">{m["changed"] / count:.1%} changed</text>')
        lines.append(f'<text x="235" y="{y + 15}" text-anchor="end">{group[1]}</text>')
        x = 245.0
        for name, colour, _ in stages:
            width = 440 * m[name] / most
            lines.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="20" fill="{colour}"/>')
            x += width
        what = f'{sum(m[name] for name, _, _ in stages):.2f} s, {m["bytes"] / 1e6:.1f} MB'
        lines.append(f'<text x="{x + 6:.1f}" y="{y + 15}">{what}</text>')
    with open(path, "w", encoding="utf-8") as f:
        f.write("\n".join([*lines, "</svg>"]) + "\n")


def server(o):
    replica = Replica(SMALL, "torch", o.threads)
    address = _wire.Address("tcp", o.host, o.port, "")
    while True:
        try:
            channel = _wire.connect(address._replace(port=o.port + 1), TOKEN)
            break
        except OSError:
            time.sleep(0.2)
    channel._socket.settimeout(600)  # the trainer makes its weights meanwhile
    mirror = {}
    while True:
        told = channel.hear()
        if told["kind"] == "end":
            return
        if told["kind"] == "pici":
            step = Step("server")
            source = Source(
                _wire.spelled("tcp", o.host, o.port),
                TOKEN,
                "t",
                told["run"],
                told["version"],
            )
            update = replica.fetch(source, lambda metas: None, step)
            began = time.perf_counter()
            replica.switch(update)
            replica.commit(update)
            switched = time.perf_counter() - began
            seconds = step.seconds
            receive = seconds.get("receive", 0.0) + seconds.get("connect", 0.0) + seconds.get("wait", 0.0)
            channel.say({"receive": receive, "apply": seconds.get("verify", 0.0) + switched})
            if not mirror:
                mirror = {name: Held(name, x).bits.copy() for name, x in replica.items()}
            continue
        receive = apply = 0.0
        for x in mirror.values():
            began = time.perf_counter()
            pieces = [channel.receive_data(1 << 30) for _ in range(1 if told["kind"] == "whole" else 2)]
            received = time.perf_counter()
            if told["kind"] == "whole":
                x[:] = np.frombuffer(pieces[0], np.uint16)
            else:
                x[np.frombuffer(pieces[0], np.int32)] = np.frombuffer(pieces[1], np.uint16)
            receive += received - began
            apply += time.perf_counter() - received
        channel.say({"receive": receive, "apply": apply})
        for name, x in replica.items():
            if not np.array_equal(Held(name, x).bits, mirror[name]):
                sys.exit(f"{name} differs after {told['kind']}")


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--weights", type=float, default=160e6)
    p.add_argument("--rates", type=float, nargs="+", default=[1e-6, 3e-6, 1e-5])
    p.add_argument("--steps", type=int, default=3, help="at each rate (%(default)s)")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--json", action="store_true")
    p.add_argument("--svg", help="a picture of the seconds")
    p.add_argument("--host", default="10.78.0.1", help="the trainer's, of bench/net")
    p.add_argument("--port", type=int, default=7101)
    p.add_argument("--role", choices=("trainer", "server"))
    o = p.parse_args()
    if o.role:
        return {"trainer": trainer, "server": server}[o.role](o)
    net = os.environ.get("BENCH_NET", "pb")
    both = [
        subprocess.Popen(
            [
                "ip",
                "netns",
                "exec",
                f"{net}{i + 1}",
                sys.executable,
                *sys.argv,
                "--role",
                role,
            ]
        )
        for i, role in enumerate(("trainer", "server"))
    ]
    status = max(process.wait() for process in both)
    sys.exit(status)


if __name__ == "__main__":
    main()
