# SPDX-License-Identifier: BSD-3-Clause
"""Communicators over sockets: among threads by socket pairs, and among processes by a rendezvous."""
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import unittest.mock

import numpy as np

import pici
from sums import checked, together

LONG = 60.0  # seconds: a test that takes so long has failed

PROGRAM = """
import os, sys, time
import numpy as np
import pici
with pici.Comm.rendezvous(*eval(sys.argv[1])) as comm:
    x = np.zeros(100000, np.float32)
    x[comm.rank :: 50] = 1 + comm.rank
    for _ in range(3):
        total = comm.all_reduce(x)
    want = sum(np.where(np.arange(100000) % 50 == r, 1 + r, 0) for r in range(comm.size))
    assert (total == want).all() and comm.totals.wire_bytes < x.nbytes
    print("rank", comm.rank, "of", comm.size, flush=True)
    if len(sys.argv) > 2:
        time.sleep(comm.rank * 1000)  # those but rank 0 are killed here
        comm.all_reduce(x)
"""


def mesh(p):
    """fds[r][q]: the end of rank r of its connection with rank q."""
    fds = [[None] * p for _ in range(p)]
    for r in range(p):
        for q in range(r):
            fds[r][q], fds[q][r] = socket.socketpair()
    return fds


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Pairs(unittest.TestCase):
    def connected(self, p, of=lambda s: s):
        """Communicators of p ranks."""
        fds = mesh(p)

        class Rank:
            def __init__(self, rank):
                self.rank = rank

        ends = [[s if s is None else of(s) for s in row] for row in fds]
        return checked(together([Rank(r) for r in range(p)], lambda r: pici.Comm.sockets(ends[r.rank], r.rank, p)))

    def test_results(self):
        """As among threads."""
        for p in (1, 2, 3, 5):
            xs = [np.where(np.arange(70000) % 31 == r, r + 0.1, 0).astype(np.float32) for r in range(p)]

            def work(comm):
                x = xs[comm.rank]
                small = comm.all_reduce(x[:100])
                request = comm.all_reduce_start(x)
                return small, request.wait(), comm.all_gather(x), comm.reduce_scatter(np.resize(x, 70 * p), op="max")

            among_threads = checked(together(pici.Comm.threads(p), work))
            comms = self.connected(p)
            self.assertRegex(repr(comms[0]), f"<pici.Comm rank 0 of {p}, sockets>")
            for got, want in zip(checked(together(comms, work)), among_threads):
                for a, b in zip(got, want):
                    self.assertEqual(a.tobytes(), b.tobytes())

    def test_ownership(self):
        """Sockets are detached, and closed with the communicator; descriptors are closed too."""
        fds = mesh(2)
        made = []
        other = threading.Thread(target=lambda: made.append(pici.Comm.sockets([fds[1][0].detach(), -1], 1, 2)))
        number = fds[0][1].fileno()
        other.start()
        comm = pici.Comm.sockets(fds[0], 0)
        other.join()
        self.assertEqual((comm.size, made[0].rank, fds[0][1].fileno()), (2, 1, -1))
        os.fstat(number)
        comm.close()
        self.assertRaises(OSError, os.fstat, number)
        self.assertRaises(pici.PeerError, made[0].all_reduce, np.ones(5), timeout=LONG)

    def test_refusals(self):
        """What is wrong at a glance leaves the sockets to the caller."""
        a, b = socket.socketpair()
        with a, b:
            for error, words, arguments in (
                (ValueError, "fds has 2 sockets, not 3", ([a, None], 1, 3)),
                (ValueError, "rank is 2, not a whole number from 0 to 1", ([a, None], 2)),
                (TypeError, r"fds\[0\] is None: pass a socket", ([None, a], 1)),
                (TypeError, r"fds\[0\] is 'x'", (["x", a], 1)),
                (ValueError, "ranks is 0", ([], 0)),
            ):
                self.assertRaisesRegex(error, words, pici.Comm.sockets, *arguments)
            for wrong, rank in (([a, None, 2**40], 1), ([a, 2**40, None], 1), ([a, None, -(2**40)], 1)):
                self.assertRaisesRegex(ValueError, r"fds\[\d\] is -?1\d+, not", pici.Comm.sockets, wrong, rank)
            self.assertNotEqual(a.fileno(), -1)
            wrapped = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            wrapped.check_hostname = False
            with wrapped.wrap_socket(a, do_handshake_on_connect=False) as tls:
                self.assertRaisesRegex(TypeError, "SSLSocket", pici.Comm.sockets, [tls, None], 1)
                self.assertNotEqual(tls.fileno(), -1)
            self.assertNotEqual(b.fileno(), -1)

    def test_not_made(self):
        """What the module refuses is closed, but for this rank's own."""
        a, b = socket.socketpair()
        c, d = socket.socketpair()
        with b, c, d:
            number = a.detach()
            self.assertRaises(OverflowError, pici._codec.comm_sockets, (number, c.fileno(), 2**40), 1)
            self.assertRaises(OSError, os.fstat, number)
            os.fstat(c.fileno())

    def test_failures(self):
        """No stream socket, which stays the caller's; and a peer that says nothing. Sockets are closed."""
        with tempfile.TemporaryFile() as file:
            a, b = socket.socketpair()
            words = r"fds\[0\] \(\d+\) is not a stream socket"
            with b, unittest.mock.patch.dict(os.environ, {"PICI_TIMEOUT_MS": "200"}):
                number = a.fileno()
                self.assertRaisesRegex(pici.ArgumentError, words, pici.Comm.sockets, [file.fileno(), a, None], 2)
                self.assertRaises(OSError, os.fstat, number)
            os.fstat(file.fileno())
        a, b = socket.socketpair()
        with b, unittest.mock.patch.dict(os.environ, {"PICI_TIMEOUT_MS": "200"}):
            number = a.fileno()
            self.assertRaisesRegex(pici.TimedOutError, "rank 0", pici.Comm.sockets, [a, None], 1)
            self.assertRaises(OSError, os.fstat, number)
        a, b = socket.socketpair()
        with b:
            b.sendall(b"GET / HTTP/1.0\r\n\r\n" + bytes(1000))
            self.assertRaises(pici.Error, pici.Comm.sockets, [a, None], 1)

    def test_interrupted(self):
        """Ctrl-C while a peer says nothing."""

        def handler(*_):
            raise KeyboardInterrupt

        old = signal.signal(signal.SIGALRM, handler)
        self.addCleanup(signal.signal, signal.SIGALRM, old)
        a, b = socket.socketpair()
        with b:
            begin = time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with self.assertRaises(KeyboardInterrupt):
                pici.Comm.sockets([a, None], 1)
            self.assertLess(time.monotonic() - begin, 10)


class Processes(unittest.TestCase):
    def launch(self, n, arguments, env, *more):
        """n processes, each with its arguments for rendezvous() and its own environment."""
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", PROGRAM, repr(arguments(r)), *more],
                env={**os.environ, **env(r)},
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for r in range(n)
        ]
        for p in processes:
            self.addCleanup(p.stdout.close)
            self.addCleanup(p.wait)
            self.addCleanup(p.kill)
        return processes

    def test_rendezvous(self):
        for n, given in ((1, "arguments"), (3, "arguments"), (2, "environment"), (2, "both")):
            address = f"127.0.0.1:{free_port()}"
            variables = {"PICI_RENDEZVOUS": address, "PICI_RANKS": str(n), "PICI_TOKEN": "secret"}
            arguments = {
                "arguments": lambda r: (address, r, n, "secret"),
                "environment": lambda r: (),
                "both": lambda r: (None, r),
            }[given]
            env = {
                "arguments": lambda r: {},
                "environment": lambda r: {**variables, "PICI_RANK": str(r)},
                "both": lambda r: {**variables, "PICI_RANK": "7"},
            }[given]
            for r, p in enumerate(self.launch(n, arguments, env)):
                said, _ = p.communicate(timeout=LONG)
                self.assertEqual((p.returncode, said), (0, f"rank {r} of {n}\n"), said)

    def test_killed(self):
        """A rank that dies is an exception on the others, at once."""
        address = f"127.0.0.1:{free_port()}"
        first, *others = self.launch(3, lambda r: (address, r, 3, "t"), lambda r: {}, "stay")
        for p in others:
            self.assertEqual(p.stdout.readline(), f"rank {1 + others.index(p)} of 3\n")
        others[1].kill()
        begin = time.monotonic()
        said, _ = first.communicate(timeout=LONG)
        self.assertNotEqual(first.returncode, 0)
        self.assertRegex(said, "PeerError.*rank 2")
        self.assertLess(time.monotonic() - begin, 20)

    def test_refusals(self):
        address = f"127.0.0.1:{free_port()}"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("PICI_R")}
        with unittest.mock.patch.dict(os.environ, clean, clear=True):
            for words, arguments in (
                ("PICI_RANKS", ()),
                ("PICI_RENDEZVOUS", (None, 0, 2)),
                ("PICI_RANKS", (address, 0)),
            ):
                self.assertRaisesRegex(pici.ArgumentError, words, pici.Comm.rendezvous, *arguments)
            self.assertRaisesRegex(pici.ArgumentError, ".", pici.Comm.rendezvous, "nonsense", 0, 2, "t")
        for words, arguments in (
            ("rank is -1", (address, -1, 2)),
            ("ranks is 0", (address, 0, 0)),
            ("zero bytes", (address, 0, 2, "a\0b")),
        ):
            self.assertRaisesRegex(ValueError, words, pici.Comm.rendezvous, *arguments)
        with unittest.mock.patch.dict(os.environ, {"PICI_TIMEOUT_MS": "300"}):
            self.assertRaisesRegex(pici.TimedOutError, "rank 1", pici.Comm.rendezvous, address, 0, 2, "t")
