# SPDX-License-Identifier: BSD-3-Clause
"""Files that are not what a call reads: it says what they are, and which call reads them. Errors name the tensor."""
import json
import tempfile
import unittest
import zipfile
from pathlib import Path

import numpy as np

import pici

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
STAND_INS = (
    (LFS, "is a Git LFS pointer, not the file itself: git lfs pull"),
    (b"\n<!DOCTYPE html><title>404</title>", "is an HTML page, not the file itself: download it again"),
    (b'{"error": "Repository not found"}', "is a JSON text, as a server's error"),
    (json.dumps([{"error": "x" * 100} for _ in range(50)]).encode(), "is a JSON text, as a server's error"),
    (b"<?xml version='1.0'?><Error/>", "is an XML text"),
)


class Looks(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.dir = Path(tmp.name)
        self.w = np.arange(6, dtype=np.float32).reshape(2, 3)

    def safetensors(self, path):
        head = json.dumps({"w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}}).encode()
        path.write_bytes(len(head).to_bytes(8, "little") + head + self.w.tobytes())

    def test_stand_ins(self):
        for first, words in STAND_INS:
            for name in ("a.pici", "a.safetensors", "a.bin"):
                path = self.dir / name
                path.write_bytes(first)
                calls = [pici.load, pici.open]
                if name == "a.safetensors":
                    self.safetensors(self.dir / "good.safetensors")
                    calls.append(lambda p: pici.diff_files(p, self.dir / "good.safetensors", self.dir / "d"))
                    calls.append(lambda p: pici.diff_files(self.dir / "good.safetensors", p, self.dir / "d"))
                for call in calls:
                    with self.subTest(words + name), self.assertRaisesRegex(pici.Error, f"{name} {words}"):
                        call(path)
            folder = self.dir / "folder"
            folder.mkdir(exist_ok=True)
            (folder / "model.safetensors").write_bytes(first)
            with self.subTest(words), self.assertRaisesRegex(pici.Error, f"model.safetensors {words}"):
                pici.load(folder)

    def test_files_of_others(self):
        self.safetensors(self.dir / "w.safetensors")
        for to in ("numpy", "bits"):
            found = pici.load(self.dir / "w.safetensors", to=to)
            self.assertEqual(found["w"].tobytes(), self.w.tobytes())
        self.assertEqual(list(pici.load(self.dir / "w.safetensors", names=["w"])), ["w"])
        with self.assertRaises(pici.NoTensorError):
            pici.load(self.dir / "w.safetensors", names=["v"])
        with self.assertRaisesRegex(pici.CorruptError, r"is a .safetensors file: pici.load\(\) reads it"):
            pici.open(self.dir / "w.safetensors")
        np.savez(self.dir / "w.npz", w=self.w)
        np.save(self.dir / "w.npy", self.w)
        with zipfile.ZipFile(self.dir / "w.pt", "w") as z:
            z.writestr("archive/data.pkl", b"")
        for name, words in (
            ("w.npz", r"is an .npz file: numpy.load\(\) reads it"),
            ("w.npy", r"is a .npy file: numpy.load\(\) reads it"),
            ("w.pt", r"is a file of torch.save: torch.load\(path, weights_only=True\) reads it"),
        ):
            with self.subTest(name), self.assertRaisesRegex(pici.CorruptError, words):
                pici.load(self.dir / name)
        (self.dir / "noise").write_bytes(bytes(range(256)))
        with self.assertRaisesRegex(pici.CorruptError, "not a .pici file"):
            pici.load(self.dir / "noise")
        with self.assertRaises(FileNotFoundError):
            pici.load(self.dir / "nothing")

    def test_elements_smaller_than_a_byte(self):
        """The last dimension counts bytes, as in torch, of a whole number of them; names of types stay."""
        tensors = {"a": ("F4", [3, 2, 4], 12), "b": ("F6_E2M3", [2, 8], 12), "c": ("F4", [2, 3], 3)}
        tensors |= {"d": ("F6_E3M2", [2, 2], 3), "e": ("F4", [2], 1)}
        shapes = {"a": (3, 2, 2), "b": (2, 6), "c": (3,), "d": (3,), "e": (1,)}
        names = ["f4e2m1x2", "f6e2m3", "f4e2m1x2", "f6e3m2", "f4e2m1x2"]
        heads, at = {}, 0
        for name, (word, shape, octets) in tensors.items():
            heads[name] = {"dtype": word, "shape": shape, "data_offsets": [at, at + octets]}
            at += octets
        text = json.dumps(heads).encode()
        whole = len(text).to_bytes(8, "little") + text + bytes(range(at))
        (self.dir / "in").mkdir()
        (self.dir / "in" / "x.safetensors").write_bytes(whole)
        pici.compress_folder(self.dir / "in", self.dir / "out")
        pici.decompress_folder(self.dir / "out", self.dir / "back")
        self.assertEqual((self.dir / "back" / "x.safetensors").read_bytes(), whole)
        for path in ("in/x.safetensors", "in", "out"):
            found = pici.load(self.dir / path)
            self.assertEqual({name: x.shape for name, x in found.items()}, shapes)
            self.assertEqual(b"".join(x.tobytes() for x in found.values()), bytes(range(at)))
        for path in ("in", "out"):
            self.assertEqual([t.dtype for t in pici.list_folder(self.dir / path).values()], names)

    def test_errors_name_a_path_or_none(self):
        here = self.dir / "file"
        here.write_bytes(b"")
        for call in (pici.DeltaLog, lambda path: pici.DeltaLog.create(path, {"x": np.ones(3)})):
            with self.assertRaisesRegex(OSError, "file/log") as caught:
                call(here / "log")
            self.assertFalse(str(caught.exception).endswith("''"), caught.exception)

    def test_errors_name_the_tensor(self):
        path = self.dir / "w.pici"
        for bad, kind in ((object(), TypeError), (np.array(["text"]), TypeError), (np.ma.array([1.0]), ValueError)):
            for call in (
                lambda bad=bad: pici.save(path, {"good": self.w, "model.bad": bad}),
                lambda bad=bad: pici.save_delta({"model.bad": self.w}, {"model.bad": bad}, path),
            ):
                with self.assertRaisesRegex(kind, "'model.bad'"):
                    call()
            self.assertFalse(path.exists())
        with self.assertRaisesRegex(TypeError, "tensor 'bad' of .*w.pici: "):
            pici.save(path, {"good": self.w, "bad": object()})

    def test_deltas_say_what_it_is(self):
        for name, text, words in (
            ("w.bin", LFS, "is a Git LFS pointer"),
            ("w.pt", b"<html>", "is an HTML page"),
            ("w", b"raw elements", "is taken as raw elements: pass dtype="),
        ):
            (self.dir / name).write_bytes(text)
            with self.assertRaisesRegex(ValueError, words):
                pici.diff_files(self.dir / name, self.dir / name, self.dir / "delta")
        with self.assertRaisesRegex(ValueError, "is a directory"):
            pici.diff_files(self.dir, self.dir, self.dir / "delta", dtype="u8")

    def test_logs_take_what_log_init_takes(self):
        np.savez(self.dir / "w.npz", w=self.w)
        (self.dir / "w.safetensors").write_bytes(LFS)
        for name, words in (("w.npz", "is an .npz file"), ("w.safetensors", "is a Git LFS pointer")):
            with self.assertRaisesRegex(ValueError, words):
                pici.DeltaLog.create(self.dir / "log", self.dir / name)
        log = pici.DeltaLog.create(self.dir / "log", {"w": self.w})
        with self.assertRaisesRegex(FileExistsError, r"is a log already: pici.DeltaLog\(.*\) opens it") as caught:
            pici.DeltaLog.create(self.dir / "log", {"w": self.w})
        self.assertNotIn("overwrite", str(caught.exception))
        self.assertEqual(log.newest, 0)
