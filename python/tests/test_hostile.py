# SPDX-License-Identifier: BSD-3-Clause
"""Invalid blocks raise the right exception with the right fault, and do nothing worse. Nor do invalid arguments."""
import ast
import gc
import io
import os
import pickle
import sys
import tempfile
import unittest
import unittest.mock
from pathlib import Path

import numpy as np

import pici
from pici import _codec
from test_views import FLOATS, VIEWS, made
from vectors import verdicts

CLASSES = {
    "CORRUPT": pici.CorruptError,
    "VERSION": pici.VersionError,
    "CHECKSUM": pici.ChecksumError,
    "UNSUPPORTED": pici.UnsupportedError,
}


def error_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except pici.Error as e:
        return e
    return None


class Vectors(unittest.TestCase):
    def test_faults(self):
        seen = set()
        for name, rule, status, offset, tile, block in verdicts():
            with self.subTest(name):
                error, other = error_of(pici.verify, block), error_of(pici.decompress, block, to="bits")
                if status == "OK":
                    self.assertIsNone(error)
                    self.assertIn(type(other), (type(None), pici.LimitError))
                    continue
                for e in (error, other)[: 1 if isinstance(other, pici.LimitError) else 2]:
                    self.assertIs(type(e), CLASSES[status])
                    self.assertEqual((e.fault, e.status), ((offset, tile, rule), CLASSES[status].status))
                seen.add(rule)
        self.assertGreater(len(seen), 15)

    def test_what_an_exception_says(self):
        block = bytearray(pici.compress(np.arange(100, dtype=np.uint8), format="coo"))
        block[52] = 0  # the second position, no longer above the first
        with self.assertRaises(pici.CorruptError) as caught:
            pici.decompress(block)
        error = caught.exception
        self.assertIsInstance(error, ValueError)
        self.assertEqual((error.status, error.fault.rule, error.fault.offset), (-20, "rising", 52))
        self.assertIn("'rising'", str(error))
        again = pickle.loads(pickle.dumps(error))
        self.assertEqual((type(again), str(again), again.fault), (type(error), str(error), error.fault))


class Damage(unittest.TestCase):
    def block(self, form):
        x = np.zeros(5000, np.int16)
        x[::97] = np.arange(1, 53)
        return x, pici.compress(x, format=form, checksum=True)

    def test_every_byte(self):
        for form in ("dense", "bitmap", "coo", "hybrid"):
            x, block = self.block(form)
            for at in range(len(block)):
                bad = bytearray(block)
                bad[at] ^= 0x10
                error = error_of(pici.decompress, bad)
                self.assertIsInstance(error, pici.Error, (form, at))
                if not isinstance(error, pici.LimitError):
                    self.assertIsNotNone(error.fault, (form, at))

    def test_every_length(self):
        for form in ("bitmap", "coo", "hybrid"):
            _, block = self.block(form)
            for n in range(len(block)):
                error = error_of(pici.decompress, block[:n])
                self.assertIsInstance(error, pici.CorruptError)
                self.assertEqual(error.fault.offset, n)
            self.assertIsInstance(error_of(pici.decompress, block + b"\0"), pici.CorruptError)

    def test_outputs_are_not_overrun(self):
        """Random bytes after valid headers: whatever the result, the memory around the output does not change."""
        rng = np.random.default_rng(3)
        for form in ("bitmap", "coo", "hybrid"):
            x, block = self.block(form)
            block = bytearray(pici.compress(x, format=form))
            for _ in range(200):
                bad = np.frombuffer(bytes(block), np.uint8).copy()
                at = rng.integers(48, bad.size, 8)
                bad[at] = rng.integers(0, 256, 8)
                room = np.full(x.size + 128, -7, np.int16)
                for call in (pici.scatter_add, pici.decompress_into, pici.apply):
                    error = error_of(call, room[64:-64], bad)
                    if error is not None:
                        self.assertIsInstance(error, pici.CorruptError)
                        self.assertIsNotNone(error.fault)
                    self.assertTrue((room[:64] == -7).all() and (room[-64:] == -7).all())

    def test_claims(self):
        """48 bytes that claim 2^60 zeros do not cause an allocation of that size."""
        claims = [case for case in verdicts() if case[0] == "coo-2^60-zeros"]
        self.assertEqual(len(claims), 1)
        block = claims[0][-1]
        self.assertEqual(pici.inspect(block).count, 2**60)
        self.assertRaises(pici.LimitError, pici.decompress, block)
        self.assertRaises((MemoryError, ValueError), pici.decompress, block, max_bytes=None)
        self.assertEqual(pici.decompress_range(block, 2**59, 3).tolist(), [0, 0, 0])
        self.assertRaises(ValueError, pici.scatter_add, np.zeros(8, np.uint32), block)


class Arguments(unittest.TestCase):
    """The functions of the extension module, on arguments of any kind: an exception or a result, and nothing worse.
    Not those that take addresses of others' memory, and load()."""

    NOT = {"advise", "load", "comm_mpi", "comm_nccl", "in_turn"}
    TRIES = 200

    def setUp(self):
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(self.enterContext(tempfile.TemporaryDirectory()))  # where names among the arguments make files

    def enterContext(self, manager):  # as Python 3.11's
        result = manager.__enter__()
        self.addCleanup(manager.__exit__, None, None, None)
        return result

    @staticmethod
    def parameters():
        """The number of parameters of each function, by the stub."""
        stub = ast.parse(Path(_codec.__file__).with_name("_codec.pyi").read_text())
        functions = [x for x in stub.body if isinstance(x, ast.FunctionDef)]
        return {f.name: len(f.args.posonlyargs) + len(f.args.args) for f in functions}

    def test_stub(self):
        found = {name for name, x in vars(_codec).items() if type(x) is type(_codec.load)}
        self.assertEqual(set(self.parameters()), found)

    def calls(self, folder):
        """Valid arguments of each function."""
        folder, x, out = Path(folder), np.arange(9.0), np.zeros(9)
        pici.save(folder / "a.pici", {"a": x}, attrs={"k": b"v"}, overwrite=True)
        pici.save_delta({"a": out}, {"a": x}, folder / "d.pici", overwrite=True)
        self.file = self.enterContext(open(folder / "a.pici", "rb"))
        for name in ("log", "written"):
            pici.DeltaLog.create(folder / name, {"a": x})
        newest, written = pici.deltas.Held({"a": x}).handle, _codec.log_open(bytes(folder / "written"), True)
        block, small = pici.compress(x), pici.diff(np.zeros(9, "f4"), np.ones(9, "f4"), small=True)
        whole = (folder / "a.pici").read_bytes()
        path, log = bytes(folder / "a.pici"), bytes(folder / "log")

        def state():
            made = _codec.state_new(b"x", _codec.STATE_SAFETENSORS, b"head")
            self.assertIsNone(_codec.state_add(made, b"a", b"F64", 2, (9,), np.zeros(9)))
            return made

        def handles():
            """New ones, since a call may close or fail them."""
            reader, delta = _codec.reader_open_path(path, 1), _codec.reader_open_path(bytes(folder / "d.pici"), 1)
            row, file = _codec.deltas_new(), _codec.outfile_open(bytes(folder / "b.pici"), True)
            self.assertIsNone(_codec.deltas_add(row, delta, b"d"))
            writer = _codec.writer_open(file, (), 255, 1, 0, 100, 0, 0)
            (driver, _, _), *_ = _codec.comm_threads(1)
            return reader, delta, row, file, writer, state(), _codec.log_open(log, False), driver

        reader, delta, row, file, writer, base, opened, driver = handles()
        coll = (driver, _codec.ALL_REDUCE, x, out, 2, 0, _codec.coll_opts(), False, _codec.values(codec=1), None, None)
        held, held_row = pici.deltas.Held({"a": np.zeros(9)}), pici.deltas.Row((folder / "d.pici",), 1)
        update = _codec.update_new(held.handle, held_row.handle, 1)
        self.kept = held, held_row, out
        begun = _codec.writer_open(_codec.outfile_open(bytes(folder / "f.pici"), True), (), 255, 1, 0, 100, 0, 0)
        self.assertIsNone(_codec.writer_tensor(begun, b"a", 2, (9,), ()))
        opts, topk = (0, 255, 1, 0), (0, 512, 4, 0.1, 0.1, 1.0, 1.0, 0.0, 0, 0, 1)
        viewed = _codec.reader_open_memory(made(VIEWS, {"a": FLOATS, "zip.1": FLOATS}), 1)
        view, *_ = _codec.reader_find(viewed, "rows")[-1]
        flight = _codec.comm_start(*coll[:8], None, None, None)
        rows = (2, 9, 3, 2, 8, np.array([2, 0]), np.ones(6), None, 2, 3, None)  # a vector of 9 elements, 2 rows of 3
        added = _codec.sparse(*rows)
        self.assertEqual(_codec.comm_call(driver, _codec.ALL_REDUCE, added, None, *coll[4:8], None, None, None), 0)
        return {
            "algorithms": (),
            "strerror": (-1,),
            "bound": (255, 1, 9, False),
            "encode": (None, x, 2, 255, 1, True, 0, 0, None, None),
            "head": (block,),
            "verify": (block,),
            "decode": (1, out[:3], 2, block, 1),
            "apply_small": (np.zeros(9, "f4"), 9, (1, 9, 0, 9), (small,), 1),
            "nonzeros": (np.zeros(9, "f4"), small, 0, 9, np.zeros(9, "u4"), 4, np.zeros(9, "f4"), 4),
            "close": (file,),
            "reader_open_path": (path, 1),
            "reader_open_memory": (whole, 1),
            "reader_open_stream": (pici._streams.Source(io.BytesIO(whole)), len(whole), 1),
            "reader_names": (viewed,),
            "reader_stored": (viewed, 0),
            "reader_find": (reader, "a"),
            "reader_attrs": (reader, 0),
            "reader_read": (reader, 0, 0, 9, out),
            "reader_verify": (reader,),
            "view_copy": (view, FLOATS.copy(), 0, 0, 20, np.zeros(20, "f4")),
            "outfile_open": (bytes(folder / "c.pici"), True),
            "outfile_write": (file, b"x"),
            "outfile_commit": (_codec.outfile_open(bytes(folder / "e.pici"), True),),
            "writer_open": (file, ((b"k", b"v"),), 255, 1, 0, 100, 0, 0),
            "writer_tensor": (writer, b"a", 2, (9,), ((b"k", b"v"),)),
            "writer_data": (begun, x),
            "writer_finish": (writer,),
            "state_new": (b"x", 3, b"head"),
            "state_open": (path, 1, 2),
            "state_add": (base, b"b", b"F64", 2, (3, 3), x),
            "state_type": (base,),
            "state_hash": (base,),
            "diff_states": (file, base, state(), opts),
            "deltas_new": (),
            "deltas_add": (row, delta, b"d"),
            "deltas_info": (row, delta),
            "deltas_is_result": (row, base),
            "apply_deltas": (np.zeros(999, "u1"), base, row, 1),
            "update_new": (held.handle, held_row.handle, 1),
            "update_switch": (update,),
            "update_parts": (update,),
            "update_block": (update, 0),
            "log_create": (bytes(folder / "other"), base, b".safetensors", 1, 1),
            "log_open": (log, False),
            "log_info": (opened,),
            "log_state": (opened, 0),
            "log_append": (written, newest, newest, opts),
            "log_apply": (opened, None, None, np.zeros(999, "u1"), 1),
            "log_compact": (written, 1),
            "topk": (out, np.zeros(9), None, x, 2, topk),
            "topk_warmup": (1, 2),
            "comm_threads": (1,),
            "comm_sockets": ((-1,), 0),
            "comm_rendezvous": (b"nowhere", 0, 1, None),
            "library": (b"nowhere.so",),
            "mpi_version": (None,),
            "coll_opts": (),
            "values": (),
            "sparse": rows,
            "sparse_result": (added,),
            "comm_call": coll,
            "comm_start": coll,
            "comm_wait": (flight, False),
            "comm_stats": (driver, False),
            "comm_error": (driver,),
            "comm_tune": (driver,),
            "comm_set_nodes": (driver, (0,)),
            "comm_levels": (_codec.comm_threads(1)[0][0], _codec.comm_threads(1)[0][0]),
            "comm_close": (driver,),
            "neighbors_new": (driver, (0,), (0,), 0, 0, 0, 0, 0, 0),
            "neighbors_info": (_codec.neighbors_new(driver, (0,), (0,), 0, 0, 0, 0, 0, 0),),
            "dlpack_open": (np.zeros((2, 3)).__dlpack__(),),
            "dlpack_retype": (np.zeros((2, 3)).__dlpack__(), 2, 64, 1),
            "map_file": (self.file.fileno(), 3),
            "rename_with": (path, path + b"2", 1),
        }

    def objects(self):
        """What does not fit anywhere, and what fits in a wrong place."""
        arrays = [np.zeros(9), np.zeros(9, "f4"), np.eye(3)[:, 1], np.zeros(0), np.zeros(3, ">f8"), np.array(None)]
        numbers = [-(2**70), -1, 0, 1, 2, 3, 100, 2**31, 2**63, 2**64, True, 1.5, float("nan")]
        tuples = [(), (2, 3), (9,), (2**64,), (-1,), tuple(range(40)), ((b"k", b"v"),), ((b"k",),), ((b"\0", b""),)]
        others = [None, "", "a", "\ud800", b"", b"a", b"a\0", b"x" * 99, [], {}, object(), io.BytesIO(), self]
        return [*arrays, *numbers, *tuples, *others]

    RAISED = (TypeError, ValueError, OverflowError, AttributeError, BufferError, ImportError, OSError, MemoryError)

    def test_no_leaks(self):
        """Neither of references nor of memory, whether calls succeed or not."""
        calls = self.calls(self.enterContext(tempfile.TemporaryDirectory()))
        for name in sorted(set(self.parameters()) - self.NOT - {"deltas_add", "state_add"}):  # which keep what they get
            function, valid = getattr(_codec, name), calls[name]
            for arguments in (valid, (*valid[:-1], object()), valid[:-1]):

                def run(times):
                    for _ in range(times):
                        try:
                            function(*arguments)
                        except self.RAISED:
                            pass
                    gc.collect()
                    return sys.getallocatedblocks(), [sys.getrefcount(x) for x in arguments]

                with unittest.mock.patch("sys.unraisablehook"):
                    _, references = run(20)
                    counts = [run(200) for _ in range(2)]
                    while len(counts) < 5 and counts[-1][0] - counts[-2][0] >= 100:  # Python may have grown a cache
                        counts.append(run(200))
                self.assertLess(max((b - a for a, b in zip(references, counts[0][1])), default=0), 100, name)
                self.assertLess(counts[-1][0] - counts[-2][0], 100, name)

    def test_any_arguments(self):
        random = np.random.default_rng(8)
        for name in sorted(set(self.parameters()) - self.NOT):
            function, succeeded = getattr(_codec, name), False
            for k in range(self.TRIES):
                if k % 50 == 0:
                    folder = self.enterContext(tempfile.TemporaryDirectory())
                    calls = self.calls(folder)
                    pool = [*self.objects(), *(x for given in calls.values() for x in given)]
                    if name == "comm_sockets":  # which closes descriptors: none of this process
                        pool = [x for x in pool if type(x) is not tuple or not any(n in range(900) for n in x)]
                arguments = list(calls[name])
                for i in random.integers(0, max(1, len(arguments)), k % 50 and k % 3):
                    if arguments:
                        arguments[i] = pool[random.integers(0, len(pool))]
                with unittest.mock.patch("sys.unraisablehook"):
                    try:
                        # The result is dropped before the next call: a log that is open to write makes that wait.
                        succeeded |= not isinstance(function(*arguments), _codec.Failed)
                    except self.RAISED:
                        pass
            self.assertTrue(succeeded or name in ("comm_rendezvous", "library", "mpi_version"), name)
