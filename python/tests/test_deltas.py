# SPDX-License-Identifier: BSD-3-Clause
"""Deltas of files and of dicts of arrays, also compared with picitool's if PICITOOL names it."""
import json
import os
import resource
import subprocess
import tempfile
import unittest
import unittest.mock
import warnings
from pathlib import Path

import numpy as np

import pici
from pici import _arrays, _dlpack, _dtypes, deltas


def weights(step, dtype=np.float16):
    """A dict of arrays, of which some elements depend on the step."""
    rng = np.random.default_rng(1)
    w = rng.standard_normal((300, 70)).astype(dtype)
    w.reshape(-1)[::17] += dtype(step) * dtype(0.01)
    return {
        "w": w,
        "mask": np.arange(99) % 3 == step % 3,
        "z": np.array([1 + 2j, step], np.complex64),
        "scalar": np.array(7 + step, np.int64),
        "none": np.zeros((0, 5), np.float32),
        f"only {step}": np.full(5, step, np.uint8),
        "é\n": np.arange(3, dtype=np.uint16),
    }


def bf16(array):
    """An array of float32 as an object with __dlpack__ of bf16, and its bits."""
    bits = (np.ascontiguousarray(array, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return _dlpack.DLPackArray(bits, _dtypes.BY_NAME["bf16"]), bits


def save_safetensors(path, arrays, **metadata):
    words = {"float32": "F32", "float16": "F16", "uint8": "U8"}
    at, head = 0, {"__metadata__": metadata} if metadata else {}
    for name, x in arrays.items():
        head[name] = {"dtype": words[x.dtype.name], "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head).encode()
    data = b"".join(x.astype(x.dtype.newbyteorder("<")).tobytes() for x in arrays.values())
    Path(path).write_bytes(len(text).to_bytes(8, "little") + text + data)


# Of picitool, which has the sanitizer's runtime already.
OWN = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}


class Deltas(unittest.TestCase):
    def setUp(self):
        self.tmp = tempfile.TemporaryDirectory()
        self.addCleanup(self.tmp.cleanup)
        self.dir = Path(self.tmp.name)
        self.delta = self.dir / "d.pici"

    def same(self, found, wanted):
        self.assertEqual(list(found), list(wanted))
        for name, x in wanted.items():
            self.assertEqual((found[name].dtype, found[name].shape), (x.dtype, x.shape), name)
            self.assertEqual(found[name].tobytes(), x.tobytes(), name)

    def no_rest(self, *names):
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), sorted(names))


class InPlace(Deltas):
    def setUp(self):
        super().setUp()
        self.old, self.new, self.last = ({k: v for k, v in weights(i).items() if "only" not in k} for i in range(3))
        self.second = self.dir / "2.pici"
        pici.save_delta(self.old, self.new, self.delta)
        pici.save_delta(self.new, self.last, self.second, small=True)
        self.live = {k: v.copy() for k, v in self.old.items()}
        self.arrays = dict(self.live)

    def is_now(self, wanted):
        self.same(self.live, wanted)
        self.assertTrue(all(self.live[k] is x for k, x in self.arrays.items()), "the same arrays")

    def test_undo(self):
        update = pici.apply_delta(self.live, self.delta, self.second)
        self.is_now(self.last)
        self.assertEqual(sorted(update.changed), sorted(k for k in self.old if k not in ("none", "é\n")))
        self.assertLess(update.bytes, sum(x.nbytes for x in self.old.values()))
        self.assertRaisesRegex(ValueError, "switched already", update.switch)
        update.undo()
        self.is_now(self.old)
        self.assertRaisesRegex(ValueError, "switch()", update.undo)
        update.switch()
        update.commit()
        self.is_now(self.last)
        self.assertRaisesRegex(ValueError, "committed", update.undo)

    def test_stage(self):
        update = pici.apply_delta(self.live, self.delta, stage=True, threads=2)
        self.is_now(self.old)
        for name, first, at, values in update.patches():
            np.testing.assert_array_equal(self.new[name].reshape(-1).view(values.dtype)[first:][at], values)
        update.switch()
        self.is_now(self.new)
        with self.assertRaises(ZeroDivisionError), pici.apply_delta(self.live, self.second):
            self.is_now(self.last)
            raise ZeroDivisionError
        self.is_now(self.new)
        with pici.apply_delta(self.live, self.second):
            pass
        self.is_now(self.last)

    def test_refused(self):
        pici.apply_delta(self.live, self.delta)
        for wrong, kind, words in (
            ((self.delta,), pici.ArgumentError, "not the base"),  # twice
            ((self.second, self.delta), pici.CorruptError, "not a delta of the result"),
            ((), TypeError, "no delta"),
        ):
            self.assertRaisesRegex(kind, words, pici.apply_delta, self.live, *wrong)
            self.is_now(self.new)
        self.live["none"], kept = np.zeros((0, 6), np.float32), self.live["none"]  # which no delta lists
        self.assertRaises(pici.ArgumentError, pici.apply_delta, self.live, self.second)
        self.live["none"] = kept
        self.live["w"] = np.asfortranarray(self.new["w"])
        self.assertRaisesRegex(ValueError, "'w'.*load_delta", pici.apply_delta, self.live, self.second)
        self.live["w"] = self.new["w"].copy()
        self.live["w"].flags.writeable = False
        self.assertRaisesRegex(ValueError, "'w'.*writable", pici.apply_delta, self.live, self.second)
        self.assertRaisesRegex(TypeError, "apply_files", pici.apply_delta, "a.safetensors", self.second)
        pici.save_delta(self.new, {**self.new, "more": np.ones(3)}, self.delta, overwrite=True)
        self.live["w"] = self.new["w"].copy()
        self.assertRaisesRegex(pici.UnsupportedError, "more", pici.apply_delta, self.live, self.delta)

    def test_shards(self):
        chunk = 1 << 19
        rng = np.random.default_rng(5)
        old = {"w": rng.standard_normal((8, chunk // 4)).astype(np.float16), "v": np.zeros((60, 7), np.float32)}
        old |= {"norm": np.ones(9, np.float32), "ids": rng.integers(0, 9, 5000)}
        new = {k: v.copy() for k, v in old.items()}
        new["w"].view(np.uint16)[:, ::40] += 1
        new["v"][::9] = 2
        new["norm"] *= 3
        new["ids"][::2] += 1
        pici.save_delta(old, new, self.delta, overwrite=True)
        for a, b in ((0, 4), (4, 8)):
            for flat in (False, True):
                rows = {"w": slice(a, b), "v": slice(5 * a, 5 * b), "ids": slice(500 * a, 500 * b)}
                shards = {"w": (a, 8), "v": (5 * a, 60), "ids": (500 * a, 5000)}
                live = {k: v[rows[k]].copy() if k in rows else v.copy() for k, v in old.items()}
                if flat:
                    live["w"] = live["w"].reshape(-1)
                    shards["w"] = (a * chunk // 4, 2 * chunk)
                with self.assertRaisesRegex(pici.UnsupportedError, "no delta has a hash"):
                    pici.apply_delta(live, self.delta, shards=shards, strict=True)
                update = pici.apply_delta(live, self.delta, shards=shards, stage=True)
                for name, first, at, values in update.patches():  # counted in the shard
                    wanted = new[name][rows.get(name, slice(None))].reshape(-1).view(values.dtype)
                    np.testing.assert_array_equal(wanted[first:][at], values)
                update.switch()
                self.assertEqual(sorted(update.unverified), ["ids", "v"])  # w has pieces with hashes
                for name, x in live.items():
                    self.assertEqual(x.tobytes(), new[name][rows.get(name, slice(None))].tobytes(), name)
                with self.assertRaisesRegex(pici.ArgumentError, "'norm'"):  # which is whole
                    pici.apply_delta(live, self.delta, shards=shards)
                update.undo()
                for name, x in live.items():
                    self.assertEqual(x.tobytes(), old[name][rows.get(name, slice(None))].tobytes(), name)
        live["w"] = old["w"][1:5].copy()
        with self.assertRaisesRegex(pici.UnsupportedError, "'w'.*multiple of 524288"):
            pici.apply_delta(live, self.delta, shards={**shards, "w": (1, 8)})
        with self.assertRaisesRegex(pici.ArgumentError, "'w'.*shape differs"):
            pici.apply_delta(live, self.delta, shards={**shards, "w": (0, 9)})
        for wrong, kind in (((5, 8), ValueError), ((-1, 8), ValueError), (3, TypeError), ((0, 2**64), ValueError)):
            with self.assertRaises(kind):
                pici.apply_delta(live, self.delta, shards={**shards, "w": wrong})
        with self.assertRaisesRegex(ValueError, "'u'"):
            pici.apply_delta(live, self.delta, shards={"u": (0, 8)})
        whole = {k: v.copy() for k, v in old.items()}
        update = pici.apply_delta(whole, self.delta, shards={"w": (0, 8)}, strict=True)
        self.assertEqual(update.unverified, [])
        self.same(whole, new)

    def test_hashes_of_shards(self):
        """Another base is found by the pieces that a shard has, before anything changes."""
        chunk = 1 << 19
        rng = np.random.default_rng(6)
        for dtype in (np.float16, np.int32):  # small deltas, and XORs
            states = [{"w": rng.integers(0, 9, (5, chunk // 2)).astype(dtype)}]
            for _ in range(2):
                states.append({"w": states[-1]["w"].copy()})
                states[-1]["w"].view(f"u{states[0]['w'].itemsize}")[:, ::50] += 1
            for before, after, path in zip(states, states[1:], (self.delta, self.second)):
                pici.save_delta(before, after, path, overwrite=True)
            # rows, and whether the pieces of two rows are all there
            for a, b, whole in ((0, 2, True), (2, 5, True), (4, 5, True), (0, 5, True), (1, 5, False), (1, 2, False)):
                if not whole and dtype is np.float16:
                    continue  # no small deltas of these
                shards = {"w": (a, 5)}
                live = {"w": states[0]["w"][a:b].copy()}
                update = pici.apply_delta(live, self.delta, self.second, shards=shards, strict=whole)
                self.assertEqual(update.unverified, [] if whole else ["w"])
                self.assertEqual(live["w"].tobytes(), states[2]["w"][a:b].tobytes())
                live["w"][-1, -1] += 1  # where nothing changes
                kept = live["w"].copy()
                if whole:
                    for path in (self.delta, self.second):
                        with self.assertRaisesRegex(pici.ArgumentError, "not the base of.*'w'|'w'.*XXH64"):
                            pici.apply_delta(live, path, shards=shards)
                        self.assertEqual(live["w"].tobytes(), kept.tobytes())
            live = {"w": states[1]["w"][1:5].copy()}  # a step later, and one row is of no piece
            if dtype is np.int32:
                with self.assertRaisesRegex(pici.ArgumentError, "'w'.*elements \\[524288, 1048576\\)"):
                    pici.apply_delta(live, self.delta, shards={"w": (1, 5)})
                self.assertEqual(live["w"].tobytes(), states[1]["w"][1:5].tobytes())

    def test_shards_of_columns(self):
        rng = np.random.default_rng(8)
        old = {
            "w": rng.standard_normal((600, 3, 1000)).astype(np.float32),
            "few": rng.standard_normal((40, 60)).astype(np.float16),
            "z": (rng.standard_normal((9, 20)) + 1j).astype(np.complex64),
            "norm": rng.standard_normal(50).astype(np.float32),
        }
        states = [old]
        for step in range(2):
            new = {name: x.copy() for name, x in states[-1].items()}
            new["w"].view("u4")[rng.random(new["w"].shape) < 0.03] += 1
            new["few"].view("u2")[step::7, ::11] += 1
            new["z"].view("u4")[:, step::5] += 1
            new["norm"] += np.float32(0.5)
            states.append(new)
        paths = [self.dir / f"columns-{step}" for step in range(2)]
        for step, path in enumerate(paths):
            pici.save_delta(states[step], states[step + 1], path, small=False)
        shards = {"w": (333, 1000, 2), "few": (0, 60, 1), "z": (5, 20, 1)}
        cut = [
            {
                "w": s["w"][:, :, 333:].copy(),
                "few": s["few"][:, :1].copy(),
                "z": s["z"][:, 5:12].copy(),
                "norm": s["norm"].copy(),
            }
            for s in states
        ]
        live = {name: x.copy() for name, x in cut[0].items()}
        with self.assertRaisesRegex(pici.UnsupportedError, "is a shard, and changes"):
            pici.apply_delta(live, *paths, shards=shards, strict=True)
        update = pici.apply_delta(live, *paths, shards=shards, stage=True)
        self.assertEqual(sorted(update.unverified), ["few", "w", "z"])
        patched = {name: x.copy() for name, x in live.items()}
        for name, first, at, values in update.patches():
            patched[name].reshape(-1).view(values.dtype)[first + at] = values
        for name in cut[2]:
            self.assertEqual(patched[name].tobytes(), cut[2][name].tobytes(), name)
            self.assertEqual(live[name].tobytes(), cut[0][name].tobytes(), name)
        update.switch()
        for name in cut[2]:
            self.assertEqual(live[name].tobytes(), cut[2][name].tobytes(), name)
        update.undo()
        wrong = {**live, "norm": live["norm"] + np.float32(1)}  # whole, and so checked
        with self.assertRaisesRegex(pici.ArgumentError, "'norm'"):
            pici.apply_delta(wrong, paths[0], shards=shards)
        for bad, words in (
            ((333, 1000, 3), "axis 3 of"),
            ((334, 1000, 2), "columns"),
            ((333, 1001, 2), "shape differs"),
        ):
            with self.assertRaisesRegex((ValueError, pici.ArgumentError), words):
                pici.apply_delta(live, paths[0], shards={**shards, "w": bad})
        small = self.dir / "columns-small"
        pici.save_delta(old, states[1], small, small=True)
        with self.assertRaisesRegex(pici.UnsupportedError, "tensor 'w' is stored as small deltas"):
            pici.apply_delta(live, small, shards=shards)
        for name in cut[0]:
            self.assertEqual(live[name].tobytes(), cut[0][name].tobytes(), name)

    def test_flat_shards_of_whole_tensors(self):
        for small in (False, None):
            pici.save_delta(self.old, self.new, self.delta, small=small, overwrite=True)
            flat = {k: v.reshape(-1).copy() for k, v in self.old.items()}
            shards = {k: (0, v.size) for k, v in flat.items()}
            flat["w"][5] += 1
            with self.assertRaisesRegex(pici.ArgumentError, "'w'.*XXH64"):
                pici.apply_delta(flat, self.delta, shards=shards)
            flat["w"][5] = self.old["w"].reshape(-1)[5]
            update = pici.apply_delta(flat, self.delta, shards=shards, strict=True)
            self.assertEqual(update.unverified, [])
            self.same(flat, {k: v.reshape(-1) for k, v in self.new.items()})

    def test_flat_shards_of_complex_numbers(self):
        old = {"z": (np.arange(600) + 1j).astype(np.complex64).reshape(20, 30)}
        new = {"z": old["z"] * np.where(np.arange(600) % 7, 1, 2j).astype(np.complex64).reshape(20, 30)}
        pici.save_delta(old, new, self.delta, overwrite=True)
        for a, b in ((0, 77), (77, 600), (600, 600), (0, 600)):
            live = {"z": old["z"].reshape(-1)[a:b].copy()}
            pici.apply_delta(live, self.delta, shards={"z": (a, 600)})
            self.same(live, {"z": new["z"].reshape(-1)[a:b]})
        rows = {"z": old["z"][3:9].copy()}
        pici.apply_delta(rows, self.delta, shards={"z": (3, 20)})
        self.same(rows, {"z": new["z"][3:9]})
        for wrong in ((0, 599), (0, 2**63)):
            with self.assertRaises((pici.ArgumentError, ValueError)):
                pici.apply_delta({"z": old["z"].reshape(-1)[:9].copy()}, self.delta, shards={"z": wrong})
        with self.assertRaisesRegex(ValueError, "without dimensions"):
            pici.apply_delta({"z": np.array(2j, np.complex64)}, self.delta, shards={"z": (0, 600)})

    def test_many_small_tensors(self):
        old = {f"model.layers.{i % 48}.experts.{i // 48}.up_proj.weight": np.zeros(64, np.float16) for i in range(3000)}
        pici.save_delta(old, old, self.delta, overwrite=True)
        self.assertLess(self.delta.stat().st_size, 1000)
        new = {k: v.copy() for k, v in old.items()}
        for x in new.values():
            x[7] = 1
        pici.save_delta(old, new, self.delta, overwrite=True)
        self.assertLess(self.delta.stat().st_size, 3000 * 30)
        self.same(pici.load_delta(old, self.delta), new)

    def test_order_of_arguments(self):
        with self.assertWarnsRegex(DeprecationWarning, r"save_delta\(base, new, path\)"):
            pici.save_delta(self.second, self.old, self.new, overwrite=True)
        self.assertEqual(self.second.read_bytes(), self.delta.read_bytes())
        paths = [self.dir / "a.safetensors", self.dir / "b.safetensors"]
        for path, step in zip(paths, (1, 2)):
            save_safetensors(path, {"w": np.full(9, step, np.float32)})
        kept = [path.read_bytes() for path in paths]
        for path in (self.dir / "new.pici", self.delta):
            with self.assertWarns(DeprecationWarning):
                pici.save_delta(path, *paths, overwrite=True)
            with warnings.catch_warnings():
                warnings.simplefilter("error")
                pici.save_delta(*paths, self.second, overwrite=True)
            self.assertEqual(path.read_bytes(), self.second.read_bytes())
        self.assertEqual(kept, [path.read_bytes() for path in paths])


class ManyDeltas(Deltas):
    def test_few_descriptors(self):
        """A row of more deltas than the process may have descriptors."""
        deltas = [self.dir / f"{step}.pici" for step in range(100)]
        paths = [self.dir / f"{step}.safetensors" for step in range(101)]
        for step, path in enumerate(paths):
            save_safetensors(path, {"w": np.full(9, step, np.float32)})
        for step, path in enumerate(deltas):
            pici.diff_files(paths[step], paths[step + 1], path)
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (60, limits[1]))
        try:
            pici.apply_files(paths[0], *deltas, out=self.dir / "out")
            self.assertEqual((self.dir / "out").read_bytes(), paths[-1].read_bytes())
            deltas[70].write_bytes(b"no delta")
            with self.assertRaises(pici.CorruptError):
                pici.apply_files(paths[0], *deltas, out=self.dir / "bad")
            deltas[70].unlink()
            with self.assertRaises(FileNotFoundError):
                pici.apply_files(paths[0], *deltas, out=self.dir / "bad")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def test_exceptions_of_callbacks(self):
        """What the handler of a signal raises while a delta is read, by a callback: at any of its reads."""
        old, new = ({"w": np.full(900, step, np.float32)} for step in (1, 2))
        pici.save_delta(old, new, self.delta)
        real, reads = deltas._Resting.read, []
        stop = 0

        def read(self, n):
            reads.append(n)
            if len(reads) == stop:
                raise KeyboardInterrupt
            return real(self, n)

        with unittest.mock.patch.object(resource, "getrlimit", lambda _: (0, 0)):
            with unittest.mock.patch.object(deltas._Resting, "read", read):
                pici.load_delta(old, self.delta)
                most = len(reads)
                self.assertLess(3, most)
                for stop in range(1, most + 1):
                    reads.clear()
                    self.assertRaises(KeyboardInterrupt, pici.load_delta, old, self.delta)
            with unittest.mock.patch.object(deltas._Resting, "read", lambda self, n: b""):
                self.assertRaisesRegex(EOFError, "shorter", pici.load_delta, old, self.delta)


class Dicts(Deltas):
    def test_little_endian_arrays(self):
        """A state has arrays in the byte order of the file, whatever the host's is."""
        x = np.arange(6, dtype=np.float32).reshape(2, 3)
        other = x.dtype.newbyteorder()
        of_file = x.astype(other)
        with unittest.mock.patch.object(deltas, "taken_array", lambda name, _: (of_file, _dtypes.named("f32"))):
            with deltas.Held({"x": x}) as held:
                room = np.zeros(held.file_bytes(), np.uint8)
                self.assertEqual(held.write(room), room.size)
        self.assertEqual(room[-x.nbytes :].tobytes(), of_file.tobytes())

    def test_there(self):
        for small in (None, True, False):
            for threads in (1, 2):
                pici.save_delta(weights(0), weights(1), self.delta, small=small, threads=threads, overwrite=True)
                self.same(pici.load_delta(weights(0), self.delta, threads=threads), weights(1))
        with self.assertRaises(FileExistsError):
            pici.save_delta(weights(0), weights(1), self.delta)

    def test_two_at_once(self):
        second = self.dir / "e.pici"
        pici.save_delta(weights(0, np.float32), weights(1, np.float32), self.delta)
        pici.save_delta(weights(1, np.float32), weights(2, np.float32), second, small=True)
        self.same(pici.load_delta(weights(0, np.float32), self.delta, second), weights(2, np.float32))
        with self.assertRaisesRegex(pici.CorruptError, "not a delta of the result of"):
            pici.load_delta(weights(1, np.float32), second, self.delta)
        with self.assertRaises(TypeError):
            pici.load_delta(weights(0))

    def test_small_is_smaller(self):
        sizes = []
        for small in (True, False):
            pici.save_delta({"w": weights(0)["w"]}, {"w": weights(1)["w"]}, self.delta, small=small, overwrite=True)
            sizes.append(self.delta.stat().st_size)
        self.assertLess(sizes[0], sizes[1])

    def test_floats_of_8_and_4_bits(self):
        rng = np.random.default_rng(2)
        master = rng.standard_normal(60000).astype(np.float32)
        nibbles = rng.integers(0, 256, 60000, np.uint8)

        def state(step):
            changed = np.where(np.arange(60000) % 50 == 0, 16 * step, 0).astype(np.uint8)
            f8 = (master.view(np.uint32) >> 20).astype(np.uint8)  # any bits
            f8 = f8 + np.where(np.arange(60000) % 41 == 0, step, 0).astype(np.uint8)
            return {
                "f8": _dlpack.DLPackArray(f8, _dtypes.named("f8e4m3")),
                "e5": _dlpack.DLPackArray(f8, _dtypes.named("f8e5m2")),
                "blocks": nibbles ^ changed,
                "f4": _dlpack.DLPackArray(nibbles ^ changed, _dtypes.F4),
                "text": np.arange(1000, dtype=np.uint8) * np.uint8(1 + 2 * step),
            }

        sizes = {}
        for small in (None, True, False):
            pici.save_delta(state(0), state(1), self.delta, small=small, overwrite=True)
            sizes[small] = self.delta.stat().st_size
            after, wanted = pici.load_delta(state(0), self.delta, to="bits"), state(1)
            for name in ("f8", "e5", "blocks", "f4"):
                self.assertEqual(after[name].tobytes(), np.asarray(_arrays.readable(wanted[name])[0]).tobytes())
        self.assertLess(sizes[None], 0.6 * sizes[False])
        self.assertLess(sizes[True], 0.6 * sizes[False])

    @unittest.skipUnless(os.environ.get("PICITOOL"), "PICITOOL does not name the program")
    def test_floats_of_4_bits_in_files(self):
        rng = np.random.default_rng(4)
        blocks = rng.integers(0, 256, 50000, np.uint8)
        stepped = blocks ^ np.where(np.arange(50000) % 60 == 0, 16, 0).astype(np.uint8)
        paths = [self.dir / f"{name}.safetensors" for name in ("base", "new", "back")]
        save_safetensors(paths[0], {"blocks": blocks})
        save_safetensors(paths[1], {"blocks": stepped})
        sizes = []
        for fast in ([], ["--fast"]):
            self.delta.unlink(missing_ok=True)
            paths[2].unlink(missing_ok=True)
            tool = [os.environ["PICITOOL"]]
            subprocess.run([*tool, "diff", *fast, *paths[:2], "-o", self.delta], check=True, env=OWN)
            subprocess.run([*tool, "apply", paths[0], self.delta, "-o", paths[2]], check=True, env=OWN)
            self.assertEqual(paths[2].read_bytes(), paths[1].read_bytes())
            sizes.append(self.delta.stat().st_size)
        self.assertLess(sizes[0], 0.85 * sizes[1])

    def test_convert(self):
        rng = np.random.default_rng(3)
        old = {"w": rng.standard_normal(5000).astype(np.float32), "kept": np.arange(3)}
        new = {"w": old["w"] - np.float32(1e-4), "kept": np.arange(3)}

        def to_half(name, x):
            if name == "kept":
                return x
            return {"w": x.astype(np.float16), "w.scale": np.abs(x).max(keepdims=True)}

        pici.save_delta(old, new, self.delta, convert=to_half)
        base = to_half("w", old["w"]) | {"kept": np.arange(3)}
        after = pici.load_delta(base, self.delta)
        self.assertEqual(after["w"].tobytes(), new["w"].astype(np.float16).tobytes())
        self.assertEqual(sorted(after), ["kept", "w", "w.scale"])
        size = self.delta.stat().st_size
        pici.save_delta(old, new, self.delta, overwrite=True)
        self.assertLess(size, self.delta.stat().st_size / 2)
        with self.assertRaisesRegex(ValueError, "twice"):
            pici.save_delta(old, new, self.delta, overwrite=True, convert=lambda name, x: {"same": x})
        paths = [self.dir / "a.safetensors", self.dir / "b.safetensors"]
        for path, x in zip(paths, (base, after)):
            save_safetensors(path, {"w": x["w"], "w.scale": x["w.scale"]})
        with self.assertRaisesRegex(TypeError, "files"):  # and not ignored
            pici.diff_files(*paths, self.delta, overwrite=True, convert=to_half)
        pici.diff_files(paths[0], {"w": new["w"]}, self.delta, overwrite=True, convert=to_half)
        found = pici.load_delta(paths[0], self.delta)  # the base was what servers hold
        self.assertEqual({k: x.tobytes() for k, x in found.items()}, {k: after[k].tobytes() for k in found})

    def test_bf16_and_views(self):
        old, _ = bf16(np.linspace(-1, 1, 6000))
        new, bits = bf16(np.linspace(-1, 1.001, 6000))
        pici.save_delta({"w": old}, {"w": new}, self.delta)
        found = pici.load_delta({"w": old}, self.delta, to="bits")["w"]
        self.assertEqual((found.dtype, found.tolist()), (np.uint16, bits.tolist()))
        found[:] = 0  # memory of its own
        x = np.arange(24, dtype=np.float32).reshape(4, 6)
        pici.save_delta({"x": x}, {"x": x.T[::-1]}, self.delta, overwrite=True)
        np.testing.assert_array_equal(pici.load_delta({"x": x}, self.delta)["x"], x.T[::-1])
        big = x.astype(">f4")
        self.same(pici.load_delta({"x": big}, self.delta), {"x": np.ascontiguousarray(x.T[::-1])})

    def test_refused(self):
        pici.save_delta(weights(0), weights(1), self.delta)
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of .*tensor '.*': its XXH64"):
            pici.load_delta(weights(2) | {"only 0": np.zeros(5, np.uint8)}, self.delta)
        with self.assertRaisesRegex(pici.LimitError, "max_bytes"):
            pici.load_delta(weights(0), self.delta, max_bytes=1000)
        for bad, why in ({"x": [1.0]}, "'x'"), ({"x": np.zeros(1, np.complex128)}, "complex128"), ({1: 2}, "a str"):
            with self.assertRaisesRegex(TypeError, why):
                pici.save_delta({}, bad, self.dir / "x")
        with self.assertRaisesRegex(ValueError, "__metadata__"):
            pici.save_delta({}, {"__metadata__": np.zeros(1)}, self.dir / "x")
        with self.assertRaisesRegex(ValueError, "small="):
            pici.save_delta({}, {}, self.dir / "x", small=3)
        self.no_rest("d.pici")
        data = self.delta.read_bytes()
        for at in range(0, len(data), 97):
            for changed in (data[:at], data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :]):
                self.delta.write_bytes(changed)
                try:
                    found = pici.load_delta(weights(0), self.delta)
                except pici.Error:
                    continue
                self.same(found, weights(1))


class Files(Deltas):
    def files(self, step, suffix=".safetensors"):
        path = self.dir / f"{step}{suffix}"
        arrays = {k: v for k, v in weights(step).items() if k in ("w", f"only {step}")}
        if suffix == ".safetensors":
            save_safetensors(path, arrays)
        elif suffix == ".npy":
            np.save(path, np.asfortranarray(arrays["w"]))
        else:
            path.write_bytes(arrays["w"].tobytes() + b"!")
        return path

    def test_files(self):
        for suffix, dtype in ((".safetensors", None), (".npy", None), (".bin", "f16")):
            old, new, out = self.files(0, suffix), self.files(1, suffix), self.dir / "out"
            pici.diff_files(old, new, self.delta, dtype=dtype, overwrite=True)
            pici.apply_files(old, self.delta, out=out, threads=2, overwrite=True)
            self.assertEqual(out.read_bytes(), new.read_bytes(), suffix)
            for _ in range(2):  # in place, and once more, which changes nothing
                pici.apply_files(old, self.delta)
                self.assertEqual(old.read_bytes(), new.read_bytes())
        with self.assertRaisesRegex(ValueError, "dtype="):
            pici.diff_files(old, new, self.delta)
        with self.assertRaisesRegex(ValueError, "different types"):
            pici.diff_files(self.files(0), self.files(0, ".bin"), self.dir / "x", dtype="f16")
        with self.assertRaises(FileNotFoundError):
            pici.diff_files(self.dir / "no.npy", new, self.dir / "x", dtype="u8")
        with self.assertRaises(FileNotFoundError):
            pici.apply_files(old, self.dir / "no.pici")
        with self.assertRaisesRegex(TypeError, "out="):
            pici.apply_files({}, self.delta)

    def test_files_and_dicts(self):
        old, new = self.files(0), self.files(1)
        arrays = [{k: v for k, v in weights(i).items() if k in ("w", f"only {i}")} for i in range(2)]
        pici.diff_files(old, new, self.delta)
        self.same(pici.load_delta(arrays[0], self.delta), arrays[1])
        self.same(pici.load_delta(old, self.delta), arrays[1])
        pici.save_delta(arrays[0], arrays[1], self.delta, overwrite=True)
        out = self.dir / "o.safetensors"
        pici.apply_files(old, self.delta, out=out)
        pici.diff_files(out, arrays[0], self.dir / "back.pici")
        self.same(pici.load_delta(out, self.dir / "back.pici"), arrays[0])

    def test_heads(self):
        old, new = ({"z": x["w"], "a": x["w"][:7]} for x in (weights(0), weights(1)))
        other, out = self.dir / "other.safetensors", self.dir / "out.safetensors"
        save_safetensors(other, {"z": old["z"], "a": old["a"]}, step="1", padding="x" * 400)
        # Without a head in the delta: that of the base, which may be longer.
        pici.save_delta(old, new, self.delta)
        self.same(pici.load_delta(other, self.delta), new)
        pici.apply_files(other, self.delta, out=out)
        self.same(pici.load_delta(out, self.delta_of(out, out)), new)
        log = pici.DeltaLog.create(self.dir / "log", old)
        log.append(old, new)
        found, number = log.load(other, 0)
        self.same(found, new)
        self.assertEqual(number, 1)
        # With one: that of the result, whatever the order of the base.
        changed = self.dir / "changed.safetensors"
        save_safetensors(changed, new, step="2")
        turned = {"a": old["a"], "z": old["z"]}
        delta = self.delta_of(other, changed)
        self.same(pici.load_delta(turned, delta), new)
        pici.apply_files(turned, delta, out=out, overwrite=True)
        self.assertEqual(out.read_bytes(), changed.read_bytes())

    def delta_of(self, base, new):
        path = self.dir / "of.pici"
        pici.diff_files(base, new, path, overwrite=True)
        return path

    def test_limit_counts_the_base(self):
        old = {"w": np.zeros(1 << 20, np.float32)}
        new = {"w": old["w"].copy()}
        new["w"][5] = 1
        for small in (None, False):
            pici.save_delta(old, new, self.delta, small=small, overwrite=True)
            with unittest.mock.patch("pici._arrays._LEAST_LIMIT", 1 << 20):
                self.same(pici.load_delta(old, self.delta), new)

    def test_another_base(self):
        old, new = self.files(0), self.files(1)
        pici.diff_files(old, new, self.delta)
        other = self.files(2)
        before = other.read_bytes()
        with self.assertRaises(pici.ArgumentError):
            pici.apply_files(other, self.delta)
        self.assertEqual(other.read_bytes(), before)
        with self.assertRaisesRegex(pici.CorruptError, "offset"):
            (self.dir / "bad.safetensors").write_bytes(b"\xff" * 20)
            pici.diff_files(self.dir / "bad.safetensors", new, self.dir / "x")
        self.no_rest("0.safetensors", "1.safetensors", "2.safetensors", "d.pici", "bad.safetensors")

    @unittest.skipUnless(os.environ.get("PICITOOL"), "deltas compared with picitool's: PICITOOL is not set")
    def test_picitool(self):
        tool = os.environ["PICITOOL"]
        old, new = self.files(0), self.files(1)
        subprocess.run(
            [tool, "diff", "-o", self.dir / "t.pici", old, new], check=True, stderr=subprocess.DEVNULL, env=OWN
        )
        pici.diff_files(old, new, self.delta)
        self.assertEqual(self.delta.read_bytes(), (self.dir / "t.pici").read_bytes())
        pici.save_delta(weights(0), weights(1), self.delta, small=True, overwrite=True)
        subprocess.run([tool, "test", self.delta], check=True, stderr=subprocess.DEVNULL, env=OWN)


if __name__ == "__main__":
    unittest.main()
