#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A trainer keeps the weights of two servers up to date, over sockets: after each step it sends what changed.

    python examples/weight_sync.py                   the trainer and two servers, three processes on this host
    python examples/weight_sync.py --help            on several hosts: --listen and --connect, with the same token:
    export WEIGHT_SYNC_TOKEN=$(openssl rand -hex 16)

The weights are bf16, the trainer's own copy is f32. A step of fine-tuning changes so little that 97 to 99% of the bf16
weights keep all their bits; the delta has the others. It is a small delta, which is coded with the old weights: both
sides have these. Each server checks a hash of all of its weights after each step. For comparison, the same weights then
go over the same sockets once more as a whole.

Needs NumPy and pici. The training is made up: each weight moves by about the learning rate, as with Adam.
"""
import argparse
import hashlib
import hmac
import ipaddress
import os
import socket
import struct
import subprocess
import sys
import time

import numpy as np

import pici

HEAD = struct.Struct("<4sQ32s")  # what comes, how many bytes, and a hash of all weights afterwards
WHOLE, DELTA, END = b"all ", b"diff", b"end "
TOKEN = 16  # bytes
VARIABLE = "WEIGHT_SYNC_TOKEN"  # which has it, in hexadecimal; others can see the arguments of a process
TIMEOUT = 60  # seconds that one waits for the other
GREETING = 5  # seconds in which whoever connects must have said the token


def digest(weights):
    return hashlib.blake2b(weights, digest_size=32).digest()


def to_bf16(x):
    """The bits of the nearest bf16 of each f32, ties to even; of finite numbers."""
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)


def receive(connection, n, deadline=None):
    """n bytes. deadline: by time.monotonic(), for all of them; else the connection's timeout holds for each part."""
    data = bytearray(n)
    view = memoryview(data)
    while view:
        if deadline is not None:
            connection.settimeout(max(deadline - time.monotonic(), 1e-3))
        got = connection.recv_into(view)
        if not got:
            raise ConnectionError("the other end closed the connection")
        view = view[got:]
    return data


# ---- the server


def serve(address, token, n):
    """Hold n weights, and follow the trainer until it says that this was all."""
    weights = np.zeros(n, np.uint16)
    longest = {WHOLE: weights.nbytes, DELTA: pici.bound(n, "bf16", small=True), END: 0}  # nothing longer is read
    with socket.create_connection(address, TIMEOUT) as trainer:
        trainer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        trainer.sendall(token)
        while True:
            kind, length, expected = HEAD.unpack(receive(trainer, HEAD.size))
            if length > longest.get(kind, -1):
                raise ValueError(f"the trainer sends {kind!r} of {length} bytes")
            if kind == END:
                return
            data = receive(trainer, length)
            if kind == DELTA:
                pici.apply(weights, data, dtype="bf16")  # in place
            else:
                weights[:] = np.frombuffer(data, np.uint16)
            if digest(weights) != expected:
                raise ValueError("these are not the trainer's weights")
            trainer.sendall(b"ok")


# ---- the trainer


def accept(listener, token, servers, connections):
    """Add the connections of as many servers to the list, all within TIMEOUT. Who has not said the token in GREETING
    seconds is no server."""
    deadline = time.monotonic() + TIMEOUT
    while len(connections) < servers:
        listener.settimeout(max(deadline - time.monotonic(), 1e-3))
        try:
            connection, _ = listener.accept()
        except socket.timeout:
            raise TimeoutError(f"{len(connections)} of {servers} servers came in {TIMEOUT} s") from None
        try:
            known = hmac.compare_digest(receive(connection, TOKEN, time.monotonic() + GREETING), token)
        except OSError:
            known = False
        if not known:
            connection.close()
            continue
        connection.settimeout(TIMEOUT)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connections.append(connection)


def send(connections, kind, data, expected):
    """To all servers; returns when all of them have these weights."""
    for connection in connections:
        connection.sendall(HEAD.pack(kind, len(data), expected))
        connection.sendall(data)
    for connection in connections:
        if receive(connection, 2) != b"ok":
            raise ConnectionError("a server does not have these weights")


def train(connections, n, steps, rate):
    random = np.random.default_rng(0)
    master = 0.02 * random.standard_normal(n, np.float32)
    weights = to_bf16(master)
    send(connections, WHOLE, weights.data.cast("B"), digest(weights))
    print(f"{n} weights, {weights.nbytes} bytes, to {len(connections)} servers")
    print("step   changed      delta      of all   seconds: delta    whole")
    for step in range(1, steps + 1):
        master -= rate * random.standard_normal(n, np.float32)  # stands for a step of training
        new = to_bf16(master)
        expected = digest(new)

        start = time.perf_counter()
        delta = pici.diff(weights, new, dtype="bf16", small=True)
        send(connections, DELTA, delta, expected)
        of_delta = time.perf_counter() - start

        start = time.perf_counter()
        send(connections, WHOLE, new.data.cast("B"), expected)
        of_whole = time.perf_counter() - start

        changed = np.count_nonzero(weights != new) / n
        share = len(delta) / new.nbytes
        print(f"{step:4}  {changed:7.2%}  {len(delta):9}  {share:9.2%}  {of_delta:15.3f}  {of_whole:7.3f}", flush=True)
        weights = new
    for connection in connections:
        connection.sendall(HEAD.pack(END, 0, bytes(32)))
    print(f"The servers had the trainer's very bits after each of {steps} steps.")


# ---- the command line


def address_of(text):
    host, colon, port = text.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text} is not HOST:PORT")
    return host, int(port)


def token_of(text, address):
    """The token that the text has; none is needed where only processes of this host can connect."""
    if not text and loopback(address[0]):
        return bytes(TOKEN)
    try:
        token = bytes.fromhex(text or "")
    except ValueError:
        token = b""
    if len(token) != TOKEN:
        raise SystemExit(f"weight_sync.py: {VARIABLE} is not {2 * TOKEN} hexadecimal digits (openssl rand -hex 16)")
    return token


def loopback(host):
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:  # another name
        return False


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--weights", type=int, default=16 << 20, help="how many (%(default)s)")
    p.add_argument("--steps", type=int, default=5, help="(%(default)s)")
    p.add_argument("--rate", type=float, default=5e-7, help="how far a weight moves in a step (%(default)s)")
    p.add_argument("--servers", type=int, default=2, help="(%(default)s)")
    p.add_argument("--listen", type=address_of, metavar="HOST:PORT", help="be the trainer; start the servers yourself")
    p.add_argument("--connect", type=address_of, metavar="HOST:PORT", help="be a server of the trainer there")
    o = p.parse_args()
    if o.weights < 1 or o.steps < 1 or o.servers < 1:
        p.error("--weights, --steps and --servers are 1 or more")
    text = os.environ.get(VARIABLE)
    if o.connect:
        return serve(o.connect, token_of(text, o.connect), o.weights)
    here = o.listen is None
    token = os.urandom(TOKEN) if here else token_of(text, o.listen)
    with socket.create_server(o.listen or ("127.0.0.1", 0)) as listener:
        servers, connections = [], []
        if here:
            host, port = listener.getsockname()
            command = [sys.executable, __file__, "--connect", f"{host}:{port}", "--weights", str(o.weights)]
            environment = {**os.environ, VARIABLE: token.hex()}
            servers = [subprocess.Popen(command, env=environment) for _ in range(o.servers)]
        try:
            accept(listener, token, o.servers, connections)
            train(connections, o.weights, o.steps, o.rate)
        finally:
            for connection in connections:
                connection.close()
            failed = [server.wait(TIMEOUT) for server in servers]
    return 1 if any(failed) else 0


if __name__ == "__main__":
    sys.exit(main())
