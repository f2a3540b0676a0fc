# SPDX-License-Identifier: BSD-3-Clause
"""Communicators among threads: results, in place, requests, errors."""
import array
import copy
import gc
import inspect
import math
import os
import pickle
import pydoc
import sys
import threading
import time
import typing
import unittest
import unittest.mock
import weakref
from datetime import timedelta

import numpy as np

import pici
import sums
from pici import _calls, _dtypes
from sums import checked, together
from test_dlpack import Foreign, installed

torch = installed("torch")
ml_dtypes = installed("ml_dtypes")
LONG = 60.0  # seconds: a test that takes so long has failed


class Results(unittest.TestCase):
    def test_all_reduce(self):
        """Every dtype and op, bit for bit as a sum in the documented order, and the same on all ranks."""
        for p in (1, 2, 3, 4, 5, 8):
            cases = [
                (algorithm, d, op, n)
                for algorithm in ("ring", "split")
                for d in sums.DTYPES
                for op in sums.OPS
                for n in (p - 1, 9001)
                if op != "avg" or sums.divides(d)
            ]
            inputs = {(d.name, n): [sums.contribution(d, n, r) for r in range(p)] for _, d, _, n in cases}

            def work(comm):
                results = []
                for algorithm, d, op, n in cases:
                    x = inputs[d.name, n][comm.rank]
                    dtype = d.name if d.narrow else None
                    results.append(comm.all_reduce(x, op=op, algorithm=algorithm, dtype=dtype, timeout=LONG))
                return results

            comms = pici.Comm.threads(p)
            results = checked(together(comms, work))
            for i, (algorithm, d, op, n) in enumerate(cases):
                want = sums.reduced(d, op, algorithm, inputs[d.name, n])
                for r in range(p):
                    got = results[r][i]
                    with self.subTest(p=p, rank=r, algorithm=algorithm, dtype=d.name, op=op, n=n):
                        self.assertEqual((got.dtype, got.shape), (d.storage, (n,)))
                        self.assertEqual(got.tobytes(), want.tobytes())

    def test_large(self):
        """Several slices, new pages for the result, and segments that begin at tiles."""
        p, n = 3, 3 * 64 * 4096 + 12345
        f32 = _dtypes.BY_NAME["f32"]
        xs = [sums.contribution(f32, n, r, 0.02) for r in range(p)]
        for algorithm in ("ring", "split"):
            want = sums.reduced(f32, "sum", algorithm, xs)
            results = together(pici.Comm.threads(p), lambda c: c.all_reduce(xs[c.rank], algorithm=algorithm))
            for got in checked(results):
                self.assertEqual(got.tobytes(), want.tobytes())

    def test_reduce_scatter(self):
        for p in (1, 2, 3, 5, 8):
            for d in (_dtypes.BY_NAME[name] for name in ("f32", "f16", "i64", "bf16")):
                xs = [sums.contribution(d, 331 * p, r) for r in range(p)]
                dtype = d.name if d.narrow else None
                for op in sums.OPS:

                    def work(comm):
                        new = comm.reduce_scatter(xs[comm.rank], op=op, dtype=dtype, algorithm="ring")
                        into = np.full_like(new, 7)
                        self.assertIs(comm.reduce_scatter(xs[comm.rank], into, op, dtype=dtype, algorithm="ring"), into)
                        return new, into

                    for r, both in enumerate(checked(together(pici.Comm.threads(p), work))):
                        want = sums.scattered(d, op, "ring", xs, r)
                        for got in both:
                            self.assertEqual(got.tobytes(), want.tobytes(), (p, d.name, op, r))

    def test_all_gather(self):
        for p in (1, 2, 3, 5, 8):
            for d in [*sums.DTYPES, _dtypes.BOOL, *_dtypes.COMPLEX]:
                if d is _dtypes.BOOL:
                    xs = [np.arange(300) % (r + 2) == 0 for r in range(p)]
                elif d in _dtypes.COMPLEX:
                    xs = [np.full(300, r - 1j * r, d.name) for r in range(p)]
                else:
                    xs = [sums.contribution(d, 300, r) for r in range(p)]
                dtype = d.name if d.narrow else None
                want = np.concatenate(xs)
                for got in checked(together(pici.Comm.threads(p), lambda c: c.all_gather(xs[c.rank], dtype=dtype))):
                    self.assertEqual((got.dtype, got.tobytes()), (want.dtype, want.tobytes()))

    def test_zeros(self):
        x = np.array([-0.0, 1, -0.0, 0], np.float32)
        for zeros, signs in (("exact", [True, False, True, False] * 2), ("value", [False] * 8)):
            for got in checked(together(pici.Comm.threads(2), lambda c: c.all_gather(x, zeros=zeros))):
                self.assertEqual(np.signbit(got).tolist(), signs)

    def test_complex_and_bool(self):
        zs = [np.array([1 + 2j, 0, -3j], t) for t in (np.complex64,) * 3]
        for got in checked(together(pici.Comm.threads(3), lambda c: c.all_reduce(zs[c.rank]))):
            self.assertEqual((got.dtype, got.tolist()), (zs[0].dtype, [3 + 6j, 0, -9j]))
        for got in checked(together(pici.Comm.threads(3), lambda c: c.all_reduce(zs[c.rank], op="avg"))):
            self.assertEqual(got.tolist(), [1 + 2j, 0, -3j])
        masks = [np.arange(100) % k == 0 for k in (2, 3)]
        for op, want in (("max", masks[0] | masks[1]), ("min", masks[0] & masks[1])):
            for got in checked(together(pici.Comm.threads(2), lambda c: c.all_reduce(masks[c.rank], op=op))):
                self.assertEqual((got.dtype, got.tolist()), (np.dtype(bool), want.tolist()))
        comm = pici.Comm.threads(1)[0]
        for op in ("sum", "avg"):
            self.assertRaisesRegex(TypeError, "bool is not added.*view", comm.all_reduce, masks[0], op=op)
        for op in ("min", "max"):
            self.assertRaisesRegex(TypeError, "no order", comm.all_reduce, zs[0], op=op)


class InPlace(unittest.TestCase):
    def test_all_three(self):
        p, n = 3, 5000
        xs = [np.arange(n * p, dtype=np.int32) % (r + 5) for r in range(p)]

        def work(comm):
            r = comm.rank
            whole = xs[r].copy()
            self.assertIs(comm.all_reduce(whole, whole), whole)
            part = xs[r].copy()
            comm.reduce_scatter(part, part[r * n : (r + 1) * n])
            gathered = np.full(n * p, -1, np.int32)
            gathered[r * n : (r + 1) * n] = xs[r][:n]
            comm.all_gather(gathered[r * n : (r + 1) * n], gathered)
            return whole, part[r * n : (r + 1) * n], gathered

        total = sum(xs)
        for r, (whole, part, gathered) in enumerate(checked(together(pici.Comm.threads(p), work))):
            self.assertEqual(whole.tolist(), total.tolist())
            self.assertEqual(part.tolist(), total[r * n : (r + 1) * n].tolist())
            self.assertEqual(gathered.tolist(), np.concatenate([x[:n] for x in xs]).tolist())

    def test_overlap(self):
        """Buffers that overlap otherwise are refused before anything is sent."""
        comm = pici.Comm.threads(1)[0]
        x = np.zeros(100, np.float32)
        self.assertRaisesRegex(ValueError, "recv overlaps send", comm.all_reduce, x[:60], x[40:])
        self.assertRaisesRegex(ValueError, "recv overlaps send", comm.reduce_scatter, x[:60], x[10:70])
        self.assertRaisesRegex(ValueError, "recv overlaps send", comm.all_gather, x[1:61], x[:60])
        comm.all_reduce(x[:50], x[50:])
        self.assertEqual(comm.error, "")


class Arrays(unittest.TestCase):
    def setUp(self):
        self.comm = pici.Comm.threads(1)[0]

    def test_shapes(self):
        """New arrays have the shape of what is sent; its first dimension is what is cut and joined."""
        x = np.arange(24, dtype=np.float32).reshape(4, 3, 2)

        def work(comm):
            return comm.all_reduce(x), comm.reduce_scatter(x), comm.all_gather(x), comm.all_gather(np.float64(5))

        for r, (total, part, both, scalars) in enumerate(checked(together(pici.Comm.threads(2), work))):
            self.assertEqual((total.shape, total.tolist()), ((4, 3, 2), (2 * x).tolist()))
            self.assertEqual(part.tolist(), (2 * x)[2 * r : 2 * r + 2].tolist())
            self.assertEqual(both.tolist(), np.concatenate([x, x]).tolist())
            self.assertEqual(scalars.tolist(), [5, 5])
        odd = np.zeros((3, 2), np.float32)
        for wrong in together(pici.Comm.threads(2), lambda c: c.reduce_scatter(odd)):
            self.assertRegex(str(wrong), r"^send: a shape of \(3, 2\), .* 2 ranks: pass send.reshape\(-1\), or recv")
        self.assertEqual(self.comm.all_reduce(np.float32(3)).shape, ())
        self.assertEqual(self.comm.all_reduce(np.zeros((0, 3))).shape, (0, 3))

    def test_any_array_is_sent(self):
        x = np.arange(210, dtype=np.float32).reshape(5, 6, 7)
        buffer = array.array("f", x.tobytes())
        for same in (np.asfortranarray(x), x.astype(">f4"), x[::-1][::-1], memoryview(x), buffer, Foreign(x, "f32")):
            got = self.comm.all_reduce(same)
            self.assertEqual((got.dtype, got.tobytes()), (x.dtype, x.tobytes()))
        self.assertEqual(self.comm.all_reduce(x[:, ::2, 3]).tolist(), x[:, ::2, 3].tolist())
        into = array.array("f", bytes(x.nbytes))
        self.comm.all_reduce(buffer, into)
        self.assertEqual(into, buffer)

    def test_narrow(self):
        """bf16 by its bits, by DLPack, and as ml_dtypes has it."""
        bits = np.array([0, 0x3F80, 0x4000], np.uint16)
        got = self.comm.all_reduce(bits, dtype="bf16")
        self.assertEqual((got.dtype, got.tolist()), (bits.dtype, bits.tolist()))
        into = np.zeros_like(bits)
        self.comm.all_reduce(Foreign(bits, "bf16"), Foreign(into, "bf16"))
        self.assertEqual(into.tolist(), bits.tolist())
        if ml_dtypes:
            for x in (Foreign(bits, "bf16"), bits.view(ml_dtypes.bfloat16)):
                got = self.comm.all_reduce(x)
                self.assertEqual((got.dtype, got.tobytes()), (np.dtype(ml_dtypes.bfloat16), bits.tobytes()))
        else:
            self.assertRaisesRegex(ImportError, "ml_dtypes, or pass recv", self.comm.all_reduce, Foreign(bits, "bf16"))

    def test_refusals(self):
        """Each names the argument that is wrong, and what to do."""
        x, call = np.zeros(8, np.float32), self.comm.all_reduce
        frozen = x.copy()
        frozen.flags.writeable = False
        for error, words, send, recv in (
            (TypeError, "^send: list is no array.*Pass numpy.asarray", [1.0], None),
            (TypeError, "^send: unsupported element type object: pass dtype=", x.astype(object), None),
            (TypeError, "^recv: str is no array", x, "text"),
            (TypeError, "^recv: elements of f64, but send has f32", x, np.zeros(8)),
            (ValueError, "^recv: 7 elements, not 8", x, x[:7].copy()),
            (ValueError, "^recv: it is read-only: pass an array that may be written", x, frozen),
            (ValueError, "^recv: it is not row-major: pass a contiguous copy", x, np.zeros(16, np.float32)[::2]),
            (ValueError, "^recv: it is not in the host's byte order", x.astype(">f4"), x.astype(">f4")),
            (ValueError, "^recv: it is read-only", frozen, frozen),
            (BufferError, "^send: .*on a device", Foreign(x, "f32", device=2), None),
        ):
            with self.subTest(words):
                self.assertRaisesRegex(error, words, call, send, recv)
        self.assertRaisesRegex(TypeError, "^send: cannot read elements of float32 as bf16", call, x, dtype="bf16")
        self.assertRaisesRegex(ValueError, "op='prod': pass one of 'sum', 'avg', 'min', 'max'", call, x, op="prod")
        pair = pici.Comm.threads(2)
        self.assertRaisesRegex(ValueError, "^send: 7 elements, not a multiple of 2", pair[0].reduce_scatter, x[:7], x)
        self.assertRaisesRegex(ValueError, "^recv: 8 elements, not 4", pair[0].reduce_scatter, x, x.copy())
        self.assertRaisesRegex(ValueError, "^recv: 8 elements, not 16", pair[0].all_gather, x, x.copy())
        for comm in (self.comm, *pair):
            self.assertEqual((comm.error, comm.totals.calls), ("", 0))

    def test_options(self):
        x = np.zeros(8, np.float32)
        for words, option in (
            ("algorithm='rings': pass one of 'auto', 'ring', ", {"algorithm": "rings"}),
            ("format='zip': pass one of 'dense', ", {"format": "zip"}),
            ("timeout is 0 s, not above 0", {"timeout": 0}),
            ("timeout is -1.0 s", {"timeout": timedelta(seconds=-1)}),
            ("density is 1.5, not from 0 to 1", {"density": 1.5}),
            ("density is nan", {"density": math.nan}),
            ("latency is -1, not from 0 to 3600", {"latency": -1}),
        ):
            self.assertRaisesRegex(ValueError, words, self.comm.all_reduce, x, **option)
        self.assertRaisesRegex(ValueError, "zeros='none': pass one of", self.comm.all_gather, x, zeros="none")
        for timeout in (0.001, 5, math.inf, timedelta(minutes=1), 1e12):
            self.comm.all_reduce(x, timeout=timeout, density=0.01, latency=1e-5, native=False, format="coo")
            self.comm.all_reduce(x, timeout=timeout, vendor=False)
        with self.assertRaisesRegex(pici.UnsupportedError, "algorithm='doubling' for all_gather"):
            self.comm.all_gather(x, algorithm="doubling")
        self.assertEqual(self.comm.error, "")
        for call, wrong in (
            (self.comm.all_reduce, {"zeros": "value"}),
            (self.comm.all_reduce_start, {"native": True}),
            (self.comm.reduce_scatter, {"timeot": 5}),
            (self.comm.reduce_scatter_start, {"zeros": "exact"}),
            (self.comm.all_gather, {"op": "sum"}),
            (self.comm.all_gather_start, {"native": False}),
            (self.comm.broadcast, {"density": 0.5}),
            (self.comm.broadcast_start, {"values": None}),
        ):
            said = rf"^{call.__name__}\(\) got an unexpected keyword argument '{next(iter(wrong))}'$"
            self.assertRaisesRegex(TypeError, said, call, x, **wrong)
        for call in (self.comm.all_gatherv, self.comm.all_gatherv_start):
            self.assertRaisesRegex(TypeError, "unexpected keyword argument 'latency'", call, x, [8], latency=1)

        for call in (self.comm.all_to_allv, self.comm.all_to_allv_start):
            self.assertRaisesRegex(TypeError, "unexpected keyword argument 'zeros'", call, x, [8], [8], zeros="value")

    def test_old_name_of_native(self):
        for options, native in (
            ({"vendor": True}, True),
            ({"native": None, "vendor": True}, True),
            ({"native": False, "vendor": True}, False),
            ({"native": None}, None),
        ):
            self.assertIs(_calls.taken("all_reduce", _calls.Calling, options).native, native)

    def test_signatures(self):
        """Tools that look at a function see its options."""
        every = ["dtype", "algorithm", "format", "timeout", "pack"]
        hints = [*every, "density", "latency", "values", "balance"]
        calling = [*hints, "native", "vendor"]
        counts = ["send", "counts", "recv", "displs"]
        runs = ["send", "sendcounts", "recvcounts", "recv", "sdispls", "rdispls"]
        vector, listed = ["indices", "values", "shape"], [*every, "density", "latency", "balance"]
        for name, want in (
            ("all_reduce_sparse", [*vector, "op", "out", *listed]),
            ("all_reduce_sparse_start", [*vector, "op", "out", *listed]),
            ("reduce_scatter_sparse", [*vector, "op", "out", *listed]),
            ("reduce_scatter_sparse_start", [*vector, "op", "out", *listed]),
            ("all_gather_sparse", [*vector, "out", *listed]),
            ("all_gather_sparse_start", [*vector, "out", *listed]),
            ("broadcast_sparse", [*vector, "root", "out", *every]),
            ("broadcast_sparse_start", [*vector, "root", "out", *every]),
            ("all_reduce", ["send", "recv", "op", *calling]),
            ("all_reduce_start", ["send", "recv", "op", *hints]),
            ("reduce_scatter", ["send", "recv", "op", *calling]),
            ("reduce_scatter_start", ["send", "recv", "op", *hints]),
            ("all_gather", ["send", "recv", *calling, "zeros"]),
            ("all_gather_start", ["send", "recv", *hints, "zeros"]),
            ("broadcast", ["array", "root", *every, "zeros"]),
            ("broadcast_start", ["array", "root", *every, "zeros"]),
            ("all_gatherv", [*counts, *every, "zeros"]),
            ("all_gatherv_start", [*counts, *every, "zeros"]),
            ("all_to_allv", [*runs, *every]),
            ("all_to_allv_start", [*runs, *every]),
        ):
            method = getattr(pici.Comm, name)
            shown = inspect.signature(method).parameters
            self.assertEqual(list(shown), ["self", *want], name)
            self.assertIn("options", typing.get_type_hints(method))
            options = {*calling, "zeros"} - ({"values"} if "sparse" in name else set())
            for option in want[len(want) - len(set(want) & options) :]:
                self.assertIs(shown[option].kind, inspect.Parameter.KEYWORD_ONLY)
                self.assertEqual(shown[option].default, "exact" if option == "zeros" else None)
        own = ["dtype", "format", "timeout", "pack", "values"]
        for name, want in (
            ("all_gather", ["send", "recv", *own]),
            ("all_gather_start", ["send", "recv", *own]),
            ("all_gatherv", [*counts, *own]),
            ("all_gatherv_start", [*counts, *own]),
        ):
            self.assertEqual(list(inspect.signature(getattr(pici.Neighbors, name)).parameters), ["self", *want])
        self.assertEqual(
            list(inspect.signature(pici.Comm.neighbors).parameters),
            ["self", "sources", "destinations", "route", "most_bytes", "leaf", "gain", "level", "region"],
        )
        self.assertRegex(
            pydoc.plain(pydoc.render_doc(pici.Comm.all_reduce)), r"timeout: ?'?Optional\[Timeout\]'? = None"
        )

    def test_not_pickled(self):
        request = self.comm.all_reduce_start(np.ones(3))
        self.assertRaisesRegex(TypeError, "pici.Comm is not pickled: make one in each", pickle.dumps, self.comm)
        self.assertRaisesRegex(TypeError, "pici.Comm is not pickled", copy.copy, self.comm)
        self.assertRaisesRegex(TypeError, "pici.Request is not pickled: wait", pickle.dumps, request)
        request.wait()

    def test_options_reach_the_library(self):
        """By what is sent: a dense call, one in a format, a hint; and by failing after the timeout."""
        x = np.zeros(100000, np.float32)
        x[::50] = 1

        def work(comm):
            sent = []
            for option in ({"format": "dense"}, {"format": "coo"}, {"format": "hybrid"}):
                comm.all_reduce(x, **option)
                sent.append({name for name, n in comm.stats.sends.items() if n})
            comm.tune(format="bitmap", checksum=True, window=2, timeout=LONG, formats=["bitmap"], history=False)
            comm.tune(inter_threshold=0.5, intra_bandwidth=1e9, slice_bytes=1 << 20, algorithm="ring")
            comm.all_reduce(x)
            sent.append({name for name, n in comm.stats.sends.items() if n})
            return sent

        for sent in checked(together(pici.Comm.threads(2), work)):
            self.assertEqual(sent, [{"dense"}, {"coo"}, {"hybrid"}, {"bitmap"}])
        comms = pici.Comm.threads(2)
        begin = time.monotonic()
        self.assertRaises(pici.TimedOutError, comms[0].all_reduce, x, timeout=0.2)
        self.assertLess(time.monotonic() - begin, 10)

    @unittest.skipUnless(torch, "no torch: its tensors, in and out")
    def test_torch(self):
        for name in ("float32", "float64", "float16", "bfloat16", "int64", "uint8", "complex64"):
            x = (torch.arange(60) % 7).to(getattr(torch, name)).reshape(6, 10)

            def work(comm):
                total, inplace = comm.all_reduce(x), x.clone()
                self.assertIs(comm.all_reduce(inplace, inplace, timeout=LONG), inplace)
                return total, inplace, comm.reduce_scatter(x), comm.all_gather(x.t())

            for r, (total, inplace, part, both) in enumerate(checked(together(pici.Comm.threads(2), work))):
                for got, want in ((total, x + x), (inplace, x + x), (part, (x + x)[3 * r : 3 * r + 3])):
                    self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape))
                    self.assertTrue(torch.equal(got, want))
                self.assertTrue(torch.equal(both, torch.cat([x.t(), x.t()])))
        x = torch.zeros(4, 4)
        for words, send, recv in (
            ("^send: a tensor that requires grad.*detach", torch.ones(4, requires_grad=True), None),
            ("^send: a tensor of layout torch.sparse_coo", x.to_sparse(), None),
            ("^recv: it is not row-major", x, x.t()),
            ("^recv: 4 elements, not 16", x, x[0]),
            ("^send: a tensor on meta", x.to("meta"), None),
        ):
            self.assertRaisesRegex((TypeError, ValueError, BufferError), words, self.comm.all_reduce, send, recv)
        lazy = torch.ones(3, dtype=torch.complex64).conj()
        self.assertRaisesRegex(ValueError, "^send: a lazy conj", self.comm.all_reduce, lazy)


class Requests(unittest.TestCase):
    def test_start_and_wait(self):
        n = 20000

        def work(comm):
            x = np.arange(n, dtype=np.int64) % 13 + comm.rank
            requests = [
                comm.all_reduce_start(x),
                comm.reduce_scatter_start(x, op="max"),
                comm.all_gather_start(x[:10], timeout=LONG),
                comm.all_reduce_start(x, np.empty_like(x), "min"),
            ]
            self.assertRegex(repr(requests[0]), "in flight")
            results = [r.wait() for r in reversed(requests)][::-1]
            for r, result in zip(requests, results):
                self.assertTrue(r.done and r.test())
                self.assertIs(r.wait(), result)
                self.assertEqual(r.stats.calls, 1)
            self.assertEqual(comm.totals.calls, 4)
            return results

        x = np.arange(n) % 13
        for r, (total, most, both, least) in enumerate(checked(together(pici.Comm.threads(2), work))):
            self.assertEqual(total.tolist(), (2 * x + 1).tolist())
            self.assertEqual(most.tolist(), (x + 1)[r * n // 2 : (r + 1) * n // 2].tolist())
            self.assertEqual(both.tolist(), [*x[:10], *(x[:10] + 1)])
            self.assertEqual(least.tolist(), x.tolist())

    def test_test_does_not_wait(self):
        """One thread drives both ranks."""
        a, b = pici.Comm.threads(2)
        x = np.ones(50000, np.float32)
        first = a.all_reduce_start(x)
        self.assertFalse(first.test() or first.done)
        self.assertEqual(first.stats.calls, 0)
        second = b.all_reduce_start(x, x.copy())
        end = time.monotonic() + LONG
        while not all([first.test(), second.test()]):
            self.assertLess(time.monotonic(), end)
        self.assertTrue((first.wait() == 2).all() and (second.wait() == 2).all())

    def test_lifetime(self):
        """What is in flight is kept, and no longer, whatever is dropped first."""
        a, b = pici.Comm.threads(2)
        x, y = np.ones(300000, np.float32), np.empty(300000, np.float32)
        gone = [weakref.ref(x), weakref.ref(y)]
        request = a.all_reduce_start(x, y)
        request.test()
        del x, y, request
        gc.collect()
        self.assertTrue(all(ref() is not None for ref in gone))
        other = np.full(300000, 2, np.float32)
        helper = threading.Thread(target=lambda: (b.all_reduce(other, other), b.all_reduce(other, other)))
        helper.start()
        a.all_reduce(np.ones(300000, np.float32))  # ends the one that was dropped, too
        helper.join()
        self.assertTrue((other == 4).all())
        self.assertTrue(all(ref() is None for ref in gone))
        self.assertEqual(a.totals.calls, 2)

        request = a.all_reduce_start(np.ones(5))  # in flight when the communicator is dropped
        del a
        gc.collect()
        self.assertFalse(request.done)
        del request
        self.assertRaises(pici.PeerError, b.all_reduce, np.ones(5), timeout=LONG)

    def test_close_with_requests_in_flight(self):
        a, b = pici.Comm.threads(2)
        request = a.all_reduce_start(np.ones(5))
        with self.assertRaisesRegex(pici.BrokenError, "requests are in flight"):
            a.tune(window=2)
        a.close()
        for call in (request.wait, request.test):
            self.assertRaisesRegex(pici.BrokenError, "closed", call)
        self.assertTrue(request.done)
        self.assertRaises(pici.PeerError, b.all_reduce, np.ones(5), timeout=LONG)


class Stats(unittest.TestCase):
    def test_last_and_totals(self):
        x = np.zeros(1 << 16, np.float32)
        x[::100] = 1

        def work(comm):
            comm.set_nodes([0, 1])
            comm.all_reduce(x, format="hybrid")
            first = comm.stats
            comm.all_gather(x, format="dense")
            return first, comm.stats, comm.totals

        for first, last, totals in checked(together(pici.Comm.threads(2), work)):
            self.assertLess(first.wire_bytes, first.dense_bytes / 10)
            self.assertGreater(first.sends["hybrid"], 0)
            self.assertEqual((first.calls, last.calls, totals.calls), (1, 1, 2))
            self.assertGreaterEqual(last.wire_bytes, x.nbytes)
            self.assertEqual(last.wire_bytes, last.inter_bytes)
            for name in ("wire_bytes", "dense_bytes", "inter_bytes", "encode_s", "decode_s", "wait_s"):
                self.assertAlmostEqual(getattr(totals, name), getattr(first, name) + getattr(last, name), msg=name)
            self.assertEqual(totals.sends, {f: first.sends[f] + last.sends[f] for f in first.sends})

    def test_pack(self):
        x = np.arange(1, 100001, dtype=np.float32)

        def work(comm):
            sent = []
            for tuned, pack in ((None, None), (None, "planes"), ("planes", None), ("planes", "none"), ("none", "auto")):
                comm.tune(pack=tuned)
                y = comm.all_reduce(x, pack=pack)
                np.testing.assert_array_equal(y, 2 * x)
                sent.append(comm.stats.sends)
            return sent

        for sent in checked(together(pici.Comm.threads(2), work)):
            self.assertEqual([s["packed"] > 0 for s in sent], [False, True, True, False, False])
        comm = pici.Comm.threads(1)[0]
        with self.assertRaisesRegex(ValueError, "pack='fast': pass one of 'auto', 'none', 'planes'"):
            comm.all_reduce(x, pack="fast")

    def test_balance(self):
        x = np.zeros(1 << 16, np.int32)
        x[: len(x) // 8] = 1  # all in one of the 8 segments that are cut evenly
        at = np.arange(len(x) // 8, dtype=np.int32)
        ones = np.ones(len(at), np.int32)
        ways = ((None, None), (None, "on"), ("on", None), ("on", "off"), ("off", "auto"))

        def work(comm):
            sent = []
            for tuned, balance in ways:
                comm.tune(balance=tuned)
                y = comm.all_reduce(x, algorithm="recursive", balance=balance)
                np.testing.assert_array_equal(y, 8 * x)
                dense = comm.stats.wire_bytes
                request = comm.all_reduce_sparse_start(at, ones, len(x), algorithm="recursive", balance=balance)
                np.testing.assert_array_equal(request.wait()[1], 8 * ones)
                sent.append((dense, request.stats.wire_bytes))
            return sent

        ranks = checked(together(pici.Comm.threads(8), work))
        most = [[max(rank[way][form] for rank in ranks) for form in (0, 1)] for way in range(len(ways))]
        for form in (0, 1):  # auto leaves dense arrays as they are
            balanced = [way[form] < 0.9 * most[3][form] for way in most]
            self.assertEqual(balanced, [form == 1, True, True, False, form == 1], most)
        comm = pici.Comm.threads(1)[0]
        for call in (lambda: comm.all_reduce(x, balance="yes"), lambda: comm.tune(balance="yes")):
            with self.assertRaisesRegex(ValueError, "balance='yes': pass one of 'auto', 'on', 'off'"):
                call()
        with self.assertRaisesRegex(TypeError, "balance"):
            comm.broadcast(x, balance="on")

    def test_tune_and_nodes(self):
        comm = pici.Comm.threads(2)[0]
        for words, option in (
            ("algorithm='auto'", {"algorithm": "auto"}),
            ("window is 0, not a whole number from 1 to 64", {"window": 0}),
            ("window is 65", {"window": 65}),
            ("slice_bytes is 1.5", {"slice_bytes": 1.5}),
            ("format='auto': pass one of 'dense', 'bitmap', 'coo', 'hybrid'", {"format": "auto"}),
            ("formats is empty", {"formats": []}),
            ("formats='zip'", {"formats": ["coo", "zip"]}),
            ("ag_threshold is -1, not from 0 to 1", {"ag_threshold": -1}),
            ("inter_bandwidth is 0", {"inter_bandwidth": 0}),
            ("timeout is 0", {"timeout": 0}),
        ):
            self.assertRaisesRegex(ValueError, words, comm.tune, **option)
        self.assertRaisesRegex(ValueError, "nodes has 3 numbers, not 2", comm.set_nodes, [0, 0, 1])
        self.assertRaisesRegex(ValueError, "a node is 0.5", comm.set_nodes, [0, 0.5])


class Failures(unittest.TestCase):
    def test_ranks_disagree(self):
        """Named on every rank; the communicators are broken afterwards, and say why."""
        for work in (
            lambda c: c.all_reduce(np.ones(5 + c.rank)),
            lambda c: c.all_reduce(np.ones(5, np.float32 if c.rank else np.float64)),
            lambda c: c.all_reduce(np.ones(5), op="min" if c.rank else "max"),
            lambda c: c.all_reduce(np.ones(6)) if c.rank else c.reduce_scatter(np.ones(6)),
        ):
            comms = pici.Comm.threads(2)
            for r, e in enumerate(together(comms, work)):
                self.assertIsInstance(e, pici.PeerError)
                self.assertEqual(e.status, -42)
                self.assertRegex(str(e), "rank.*close it on all ranks, and make another")
                self.assertIn(comms[r].error, str(e))
                self.assertRegex(repr(comms[r]), "broken: ")
                with self.assertRaises(pici.BrokenError) as later:
                    comms[r].all_reduce(np.ones(5))
                self.assertIn(comms[r].error, str(later.exception))

    def test_gone_and_late(self):
        a, b = pici.Comm.threads(2)
        b.close()
        self.assertRaisesRegex(pici.PeerError, "another", a.all_reduce, np.ones(5))
        a, b = pici.Comm.threads(2)
        with self.assertRaisesRegex(pici.TimedOutError, "no progress for 100 ms.*timeout=") as caught:
            a.all_reduce(np.ones(5), timeout=0.1)
        self.assertIsInstance(caught.exception, TimeoutError)

    def test_closed(self):
        with pici.Comm.threads(1)[0] as comm:
            self.assertEqual(repr(comm), "<pici.Comm rank 0 of 1, threads>")
            self.assertFalse(comm.closed)
            comm.all_reduce(np.ones(3))
        self.assertTrue(comm.closed)
        self.assertEqual(repr(comm), "<pici.Comm rank 0 of 1, threads, closed>")
        comm.close()
        for call in (comm.all_reduce, comm.all_gather_start):
            self.assertRaisesRegex(pici.BrokenError, "closed: make another", call, np.ones(3))
        self.assertRaisesRegex(pici.BrokenError, "closed", comm.tune, window=2)
        self.assertEqual((comm.rank, comm.size, comm.error, comm.totals.calls), (0, 1, "", 1))

    def test_making(self):
        self.assertRaisesRegex(TypeError, "use Comm.threads", pici.Comm)
        for n in (0, -1, 2.0, 1 << 21):
            self.assertRaisesRegex(ValueError, "n is", pici.Comm.threads, n)
        os.environ["PICI_WINDOW"] = "many"
        try:
            self.assertRaisesRegex(pici.ArgumentError, 'PICI_WINDOW is "many"', pici.Comm.threads, 2)
        finally:
            del os.environ["PICI_WINDOW"]

    def test_fork(self):
        comm = pici.Comm.threads(1)[0]
        child = os.fork()
        if not child:
            try:
                comm.all_reduce(np.ones(3))
            except pici.BrokenError as e:
                comm.close()
                os._exit("another process" not in str(e))
            os._exit(2)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(comm.all_reduce(np.ones(3)).tolist(), [1, 1, 1])


class Levels(unittest.TestCase):
    NODES = [0, 1, 0, 0, 1]
    ALGORITHMS = ("ring", "recursive", "nodes-ring", "nodes-recursive")

    def parts(self):
        """Communicators inside nodes, and among all."""
        inner = [None] * len(self.NODES)
        for node in set(self.NODES):
            ranks = [rank for rank, other in enumerate(self.NODES) if other == node]
            for rank, comm in zip(ranks, pici.Comm.threads(len(ranks))):
                inner[rank] = comm
        return inner, pici.Comm.threads(len(self.NODES))

    def test_results(self):
        """Bits and bytes are those of one transport with that node map."""
        x = np.random.default_rng(1).normal(size=(len(self.NODES), 9000)).astype(np.float32)
        inner, outer = self.parts()

        def one(comm):
            comm.set_nodes(self.NODES)
            return [comm.all_reduce(x[comm.rank], algorithm=a) for a in self.ALGORITHMS], comm.stats.inter_bytes

        def two(comm):
            with pici.Comm.levels(inner[comm.rank], comm) as both:
                self.assertEqual((both.rank, both.size), (comm.rank, len(self.NODES)))
                self.assertIn("threads inside nodes, threads between", repr(both))
                result = [both.all_reduce(x[comm.rank], algorithm=a) for a in self.ALGORITHMS], both.stats.inter_bytes
                return result, both.all_gather(np.int64([comm.rank]))

        plain = checked(together(pici.Comm.threads(len(self.NODES)), one))
        for rank, (result, ranks) in enumerate(checked(together(outer, two))):
            self.assertEqual(result[1], plain[rank][1])
            for got, want in zip(result[0], plain[rank][0]):
                np.testing.assert_array_equal(got.view("u4"), want.view("u4"))
            self.assertEqual(list(ranks), list(range(len(self.NODES))))
        for part in (*inner, *outer):
            self.assertRaisesRegex(pici.BrokenError, "closed", part.all_reduce, np.ones(3))

    def test_refusals(self):
        inner, outer = self.parts()
        self.assertRaisesRegex(TypeError, "pass communicators", pici.Comm.levels, inner[0], 1)
        self.assertRaisesRegex(ValueError, "the same", pici.Comm.levels, outer[0], outer[0])
        inner[1] = pici.Comm.threads(1)[0]  # rank 4 is alone in one of two

        def work(comm):
            with self.assertRaisesRegex(pici.PeerError, "must have each rank of outer once"):
                pici.Comm.levels(inner[comm.rank], comm)
            return comm.all_reduce(np.ones(1))[0]  # nothing is broken

        self.assertEqual(checked(together(outer, work)), [len(self.NODES)] * len(self.NODES))
        closed = pici.Comm.threads(1)[0]
        closed.close()
        self.assertRaisesRegex(pici.BrokenError, "closed", pici.Comm.levels, closed, pici.Comm.threads(1)[0])


class OverOthers(unittest.TestCase):
    def test_without_mpi4py(self):
        with unittest.mock.patch.dict("sys.modules", {"mpi4py": None}):
            self.assertRaisesRegex(ImportError, "Comm.mpi needs mpi4py", pici.Comm.mpi)

    def test_names_that_are_not_utf8(self):
        self.assertRaisesRegex(OSError, "/nowhere/.*cannot open", pici._codec.library, b"/nowhere/\xff.so")

    def test_without_the_library(self):
        with unittest.mock.patch.dict(os.environ, {"PICI_NCCL_LIBRARY": "/nowhere/libpici_nccl.so"}):
            with self.assertRaisesRegex(ImportError, "/nowhere/libpici_nccl.so.*make nccl-shared.*PICI_NCCL_LIBRARY"):
                pici.Comm.nccl(1)
