# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoints in shards, also compared with picitool's if PICITOOL names it."""
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import numpy as np

import pici
from pici._dtypes import BY_NAME
from pici._references import KEY, Reference, twins

WORDS = {"float32": "F32", "float16": "F16", "uint8": "U8", "bool": "BOOL", "complex64": "C64"}


def tensors(step):
    rng = np.random.default_rng(1)
    found = {f"layer.{i}": rng.standard_normal((40, 7 + i)).astype(np.float16) for i in range(12)}
    for x in found.values():
        x.reshape(-1)[:: 5 + step] *= np.float16(1 + step / 64)
    found["mask"] = np.arange(99) % 3 == step % 3
    found["z"] = np.array([1 + 2j, step], np.complex64)
    found["scalar"] = np.array(7 + step, np.float32)
    found["none"] = np.zeros((0, 5), np.float32)
    found[f"only {step} é"] = np.full(5, step, np.uint8)
    return found


def save_shards(folder, arrays, count, turn=0):
    """Write a checkpoint in so many shards. turn: where in the arrays the first shard begins."""
    os.mkdir(folder)
    names, where = list(arrays), {}
    names = names[turn:] + names[:turn]
    for k in range(count):
        file = f"model-{k + 1:05}-of-{count:05}.safetensors"
        at, head, data = 0, {"__metadata__": {"format": "pt"}}, b""
        for name in names[k * len(names) // count : (k + 1) * len(names) // count]:
            x = arrays[name]
            head[name] = {"dtype": WORDS[x.dtype.name], "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
            at += x.nbytes
            data += x.astype(x.dtype.newbyteorder("<")).tobytes()
            where[name] = file
        text = json.dumps(head).encode()
        Path(folder, file).write_bytes(len(text).to_bytes(8, "little") + text + data)
    index = {"metadata": {"total_size": sum(x.nbytes for x in arrays.values())}, "weight_map": where}
    Path(folder, "model.safetensors.index.json").write_text(json.dumps(index))
    Path(folder, "config.json").write_text("{}\n")
    Path(folder, ".gitattributes").write_bytes(b"")


def save_twins(folder):
    """A checkpoint that has tensors several times: in one shard, in another, in another shape; and some that differ."""
    rng = np.random.default_rng(2)
    x, z = rng.standard_normal(10000).astype(np.float16), np.arange(2000, dtype=np.float32).view(np.complex64)
    y = x.copy()
    y[3001] += 1
    save_shards(
        folder,
        {
            "x": x,
            "small": x[:1000],
            "z": np.tile(z, 2),
            "third": x,
            "again": x.reshape(100, 100),
            "other": y,
            "z again": np.tile(z, 2).reshape(2, -1),
            "small again": x[:1000],
        },
        2,
    )


def files(folder):
    return {p.name: p.read_bytes() for p in Path(folder).iterdir()}


class Folders(unittest.TestCase):
    def setUp(self):
        tmp = tempfile.TemporaryDirectory()
        self.addCleanup(tmp.cleanup)
        self.dir = Path(tmp.name)
        self.old, self.new = self.dir / "old", self.dir / "new"
        save_shards(self.old, tensors(0), 4)
        save_shards(self.new, tensors(1), 3, turn=5)
        self.made = self.dir / "made"

    def no_rest(self, *names):
        self.assertEqual(sorted(p.name for p in self.dir.iterdir()), sorted(names))

    def same(self, found, wanted):
        self.assertEqual(sorted(found), sorted(wanted))
        for name, x in wanted.items():
            self.assertEqual((found[name].dtype, found[name].shape), (x.dtype, x.shape), name)
            self.assertEqual(found[name].tobytes(), x.tobytes(), name)

    def test_compress(self):
        for threads in (1, 3, 0):
            pici.compress_folder(self.old, self.made, threads=threads, overwrite=True)
            self.same(pici.load(self.made, threads=threads), tensors(0))
            pici.decompress_folder(self.made, self.dir / "back", threads=threads, overwrite=True)
            self.assertEqual(files(self.dir / "back"), files(self.old))
        self.no_rest("old", "new", "made", "back")
        with self.assertRaises(FileExistsError):
            pici.compress_folder(self.old, self.made)

    def test_load(self):
        self.same(pici.load(self.old), tensors(0))
        self.same(pici.load(self.old, names=["z", "mask"]), {k: tensors(0)[k] for k in ("z", "mask")})
        pici.compress_folder(self.old, self.made)
        self.assertEqual(list(pici.load(self.made, names=["z", "mask"])), ["z", "mask"])
        for folder in (self.old, self.made):
            with self.assertRaises(pici.NoTensorError):
                pici.load(folder, names=["w"])
        with self.assertRaises(pici.LimitError):
            pici.load(self.made, max_bytes=10)

    def test_changed_meanwhile(self):
        """A file that changes while it is read is an error at once, not when the folder is restored."""
        shard, begun = sorted(self.new.glob("*.safetensors"))[0], pici._codec.outfile_open

        def change_first(path, force):
            if path.endswith(b".pici"):
                os.utime(shard, ns=(0, time.time_ns()))
            return begun(path, force)

        calls = [lambda: pici.compress_folder(self.new, self.made)]
        calls.append(lambda: pici.diff_folders(self.old, self.new, self.made))
        for call in calls:
            with mock.patch.object(pici._codec, "outfile_open", change_first):
                with self.assertRaisesRegex(pici.IoError, f"{shard.name} has changed while it was read"):
                    call()
        self.no_rest("old", "new")

    def test_permissions(self):
        """What is made of two files permits no more than both."""

        def shards_allow(folder):
            return {p.stat().st_mode & 0o777 for p in folder.rglob("*.safetensors*") if ".index" not in p.name}

        def allow(folder, mode):
            for p in folder.iterdir():
                p.chmod(mode)

        allow(self.old, 0o600)
        allow(self.new, 0o644)
        pici.diff_folders(self.old, self.new, self.made)
        self.assertEqual(shards_allow(self.made), {0o600})
        allow(self.made, 0o644)
        pici.apply_folders(self.old, self.made, out=self.dir / "out")
        self.assertEqual(shards_allow(self.dir / "out"), {0o600})
        pici.apply_folders(self.old, self.made)
        self.assertEqual(files(self.old), files(self.new))
        self.assertEqual(shards_allow(self.old), {0o600})

    def test_delta(self):
        for small in (None, True, False):
            pici.diff_folders(self.old, self.new, self.made, small=small, threads=2, overwrite=True)
            pici.apply_folders(self.old, self.made, out=self.dir / "out", threads=2, overwrite=True)
            self.assertEqual(files(self.dir / "out"), files(self.new))
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of"):
            pici.apply_folders(self.new, self.made, out=self.dir / "wrong")
        with self.assertRaises(ValueError):
            pici.load(self.made)
        for _ in range(2):  # the second time it is the result already
            pici.apply_folders(self.old, self.made)
            self.assertEqual(files(self.old), files(self.new))
        self.no_rest("old", "new", "made", "out")

    def test_delta_lists_what_changes(self):
        """A shard with the tensors of the base's of its name has a delta without those that do not change."""
        old = {f"experts.{i}.weight": np.full((4, 8), i, np.float16) for i in range(3000)}
        new = {**old, "experts.7.weight": np.ones((4, 8), np.float16)}
        for folder, x, shards in (("many", old, 2), ("more", new, 2), ("whole", new, 1)):
            save_shards(self.dir / folder, x, shards)
        pici.diff_folders(self.dir / "many", self.dir / "more", self.made)
        self.assertLess(sum(len(data) for data in files(self.made).values()), 3000)
        pici.apply_folders(self.dir / "many", self.made, out=self.dir / "out")
        self.assertEqual(files(self.dir / "out"), files(self.dir / "more"))
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of .*it has no model-00001"):
            pici.apply_folders(self.dir / "whole", self.made, out=self.dir / "wrong")
        with self.assertRaisesRegex(pici.ArgumentError, "not the base of"):
            pici.apply_folders(self.dir / "more", self.made, out=self.dir / "wrong")

    def test_few_descriptors(self):
        """Folders of more shards than the process may have descriptors."""
        arrays = [{f"t{i}": np.full(3, i * step, np.float32) for i in range(150)} for step in (1, 2)]
        for folder, x, shards in (("many", arrays[0], 150), ("more", arrays[1], 150), ("whole", arrays[1], 1)):
            save_shards(self.dir / folder, x, shards)
        made, out, many = self.dir / "made", self.dir / "out", self.dir / "many"
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
        try:
            pici.compress_folder(many, made, threads=2)
            self.assertEqual(len(pici.list_folder(made)), 150)
            self.same(pici.load(made), arrays[0])
            self.same(pici.load(many), arrays[0])
            pici.decompress_folder(made, out, threads=2)
            self.assertEqual(files(out), files(many))
            for base, new in (("many", "more"), ("many", "whole"), ("whole", "more")):
                pici.diff_folders(self.dir / base, self.dir / new, made, threads=2, overwrite=True)
                pici.apply_folders(self.dir / base, made, out=out, threads=2, overwrite=True)
                self.assertEqual(files(out), files(self.dir / new))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    def test_damage(self):
        pici.compress_folder(self.old, self.made)
        delta = self.dir / "delta"
        pici.diff_folders(self.old, self.new, delta)
        for folder in (self.made, delta):
            for path in sorted(folder.iterdir()):
                whole = path.read_bytes()
                if not whole:
                    continue
                changed = bytearray(whole)
                changed[len(whole) * 5 // 11] ^= 1
                for bad in (whole[:-1], bytes(changed), None):
                    path.unlink() if bad is None else path.write_bytes(bad)
                    with self.subTest(path.name), self.assertRaises((pici.Error, ValueError)):
                        if folder == delta:
                            pici.apply_folders(self.old, delta, out=self.dir / "out")
                        else:
                            pici.decompress_folder(self.made, self.dir / "out")
                path.write_bytes(whole)
        self.no_rest("old", "new", "made", "delta")

    def test_bad_checkpoints(self):
        index, shard = self.old / "model.safetensors.index.json", self.old / "model-00002-of-00004.safetensors"
        good, whole = index.read_text(), shard.read_bytes()
        for bad in (
            good.replace('"mask"', '"mask2"'),
            good.replace('"mask"', '"z"'),
            good.replace('"weight_map": {', '"weight_map": {"more": "model-00001-of-00004.safetensors", '),
            good.replace("model-00002-of", "../model-00002-of"),
            good.replace("model-00002-of-00004.safetensors", "..", 1),
            good.replace("model-00002-of", "model-00009-of"),
            good[:100],
            "[]",
            '{"weight_map": {}}',
        ):
            index.write_text(bad)
            with self.subTest(bad[:60]), self.assertWarnsRegex(UserWarning, "out of date|not an index of shards"):
                pici.compress_folder(self.old, self.made, overwrite=True)
            pici.decompress_folder(self.made, self.dir / "back", overwrite=True)
            self.assertEqual(files(self.dir / "back"), files(self.old))
        shutil.rmtree(self.made)
        shutil.rmtree(self.dir / "back")
        index.write_text(good.replace('"weight_map": {', '"weight_map": {"more": "model-00009-of-00004.safetensors", '))
        with self.assertRaisesRegex(pici.CorruptError, "model-00009-of-00004.safetensors is missing"):
            pici.compress_folder(self.old, self.made)
        index.write_text(good)
        shard.write_bytes(whole[:-1])
        with self.assertRaises(pici.CorruptError):
            pici.compress_folder(self.old, self.made)
        shard.unlink()
        for target in (self.new, self.dir / "nothing"):
            shard.symlink_to(target)
            with self.assertRaisesRegex(ValueError, "not a regular file"):
                pici.compress_folder(self.old, self.made)
            shard.unlink()
        self.no_rest("old", "new")

    def test_names(self):
        for name in (".pici-mine", "a\nb", os.fsdecode(b"\xff.txt"), "n" * 241):
            path = self.old / name
            path.write_bytes(b"1")
            with self.subTest(name):
                with self.assertRaisesRegex(ValueError, "cannot be stored under its name"):
                    pici.compress_folder(self.old, self.made)
                with self.assertRaisesRegex(ValueError, "cannot be stored under its name"):
                    pici.diff_folders(self.new, self.old, self.made)
            path.unlink()
        index, name = self.old / "model.safetensors.index.json", "model-00002-of-00004.safetensors"
        for size in (235, 236):
            longer = "n" * (size - 12) + ".safetensors"
            (self.old / name).rename(self.old / longer)
            index.write_text(index.read_text().replace(name, longer))
            name = longer
            if size == 235:
                pici.compress_folder(self.old, self.made)
                pici.decompress_folder(self.made, self.dir / "back")
                self.assertEqual(files(self.dir / "back"), files(self.old))
        with self.assertRaisesRegex(ValueError, "at most 240 bytes"):
            pici.compress_folder(self.old, self.dir / "out")
        with self.assertRaisesRegex(ValueError, "at most 240 bytes"):
            pici.diff_folders(self.new, self.old, self.dir / "out")
        self.no_rest("old", "new", "made", "back")

    def test_links_and_hidden_folders(self):
        links = self.dir / "links"
        links.mkdir()
        for path in self.old.iterdir():
            (links / path.name).symlink_to(path)
        (links / ".git").mkdir()
        (links / ".git" / "HEAD").touch()
        pici.compress_folder(links, self.made)
        pici.decompress_folder(self.made, self.dir / "back")
        self.assertEqual(files(self.dir / "back"), files(self.old))
        self.assertFalse(any(p.is_symlink() for p in (self.dir / "back").iterdir()))
        pici.diff_folders(links, self.new, self.dir / "delta")
        with self.assertRaisesRegex(ValueError, "has folders that the new one lacks"):  # .git would be lost
            pici.apply_folders(links, self.dir / "delta")
        shutil.rmtree(links / ".git")
        pici.apply_folders(links, self.dir / "delta")
        self.assertEqual(files(links), files(self.new))
        (links / "sub").symlink_to(self.old)
        with self.assertRaisesRegex(ValueError, "not a regular file"):
            pici.load(links)

    def tree(self, folder):
        return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}

    def test_output_is_no_source(self):
        pici.compress_folder(self.old, self.made)
        delta = self.dir / "delta"
        pici.diff_folders(self.old, self.new, delta)
        calls = [
            lambda: pici.compress_folder(self.old, self.old, overwrite=True),
            lambda: pici.decompress_folder(self.made, self.made, overwrite=True),
            lambda: pici.diff_folders(self.old, self.new, self.old, overwrite=True),
            lambda: pici.diff_folders(self.old, self.new, self.new, overwrite=True),
            lambda: pici.apply_folders(self.old, delta, out=delta, overwrite=True),
            lambda: pici.compress_folder(self.old, self.dir, overwrite=True),
        ]
        before = files(self.old), files(self.new), files(self.made), files(delta)
        for call in calls:
            self.assertRaisesRegex(ValueError, "contains an input folder", call)
        self.assertEqual(before, (files(self.old), files(self.new), files(self.made), files(delta)))

    def times(self, folder):
        return {str(p.relative_to(folder)): p.stat().st_mtime_ns for p in [folder, *folder.rglob("*")]}

    def test_folders_below_and_no_index(self):
        """Models of one file, of several parts with the same names, and distributed checkpoints."""
        for step, root in enumerate((self.dir / "a", self.dir / "b")):
            (root / "vae").mkdir(parents=True)
            for part in ("unet", "vae/fp16"):
                save_shards(root / part, tensors(step + len(part)), 2)
            (root / "unet" / "model.safetensors.index.json").unlink()
            (root / "vae" / "config.json").write_text("{}")
            (root / "__0_0.distcp").write_bytes(bytes(9999) + b"%d" % step + bytes(5000))
            (root / "__1_0.distcp").touch()
            (root / "vae").chmod(0o700)
            (root / "empty" / str(step)).mkdir(parents=True)
            for i, path in enumerate([*sorted(root.rglob("*")), root]):
                os.utime(path, (10**9, 10**9 + 1000 * step + i))
        pici.compress_folder(self.dir / "a", self.made)
        self.assertTrue((self.made / "__0_0.distcp.pici").stat().st_size < 3000)
        self.assertTrue((self.made / "pici-folder").read_text().startswith("pici-folder 2 compressed"))
        for _ in range(2):
            pici.decompress_folder(self.made, self.dir / "back", overwrite=True)
            self.assertEqual(self.tree(self.dir / "back"), self.tree(self.dir / "a"))
        self.assertEqual(self.times(self.dir / "back"), self.times(self.dir / "a"))
        self.assertEqual((self.dir / "back" / "vae").stat().st_mode & 0o777, 0o700)
        pici.diff_folders(self.dir / "a", self.dir / "b", self.dir / "delta")
        pici.apply_folders(self.dir / "a", self.dir / "delta", out=self.dir / "out")
        self.assertEqual(self.tree(self.dir / "out"), self.tree(self.dir / "b"))
        same = {name for name, text in self.tree(self.dir / "a").items() if text == self.tree(self.dir / "b")[name]}
        last, wanted = self.times(self.dir / "out"), self.times(self.dir / "b")
        self.assertEqual(last.keys(), wanted.keys())
        self.assertEqual({name for name in last if last[name] != wanted[name]}, same)  # of the base
        for folder in (self.dir / "a", self.made):
            for call in (pici.load, pici.list_folder):
                with self.assertRaisesRegex(ValueError, "open the files one by one"):
                    call(folder)
        (self.dir / "back" / "mine" / "too").mkdir(parents=True)
        pici.decompress_folder(self.made, self.dir / "back", overwrite=True)  # nothing is lost
        (self.dir / "back" / "mine").mkdir()
        (self.dir / "notes").touch()
        for more in (self.dir / "notes", self.dir / "a"):  # a link to a folder is something to lose too
            (self.dir / "back" / "mine" / "more").symlink_to(more)
            with self.assertRaisesRegex(ValueError, "it has folders that the new one lacks, such as mine"):
                pici.decompress_folder(self.made, self.dir / "back", overwrite=True)
            (self.dir / "back" / "mine" / "more").unlink()
        odd = (("pici-folder", "name of the list"), ("a\nb", "under its name"), ("x" * 241, "under its name"))
        for name, words in odd:
            (self.dir / "b" / name).mkdir()
            with self.assertRaisesRegex(ValueError, words):
                pici.compress_folder(self.dir / "b", self.dir / "y")
            (self.dir / "b" / name).rmdir()
        (self.dir / "b" / "__0_0.distcp.pici").mkdir()
        with self.assertRaisesRegex(ValueError, "__0_0.distcp.pici"):
            pici.compress_folder(self.dir / "b", self.dir / "y")
        (self.dir / "b" / "__0_0.distcp.pici").rmdir()
        (self.made / "__0_0.distcp").mkdir()
        with self.assertRaisesRegex(pici.CorruptError, "__0_0.distcp is a folder"):
            pici.decompress_folder(self.made, self.dir / "y")
        (self.made / "__0_0.distcp").rmdir()
        (self.made / "a\nb").mkdir()
        with self.assertRaisesRegex(pici.CorruptError, "malformed name"):
            pici.decompress_folder(self.made, self.dir / "y")
        (self.made / "a\nb").rmdir()
        self.assertFalse((self.dir / "y").exists())
        with self.assertRaisesRegex(ValueError, "is inside the input folder"):
            pici.compress_folder(self.dir / "a", self.dir / "a" / "vae" / "x")
        with self.assertRaisesRegex(ValueError, "is inside the input folder"):
            pici.diff_folders(self.dir / "a", self.dir / "b", self.dir / "a" / "d")
        with self.assertRaisesRegex(ValueError, "is inside the input folder"):
            pici.apply_folders(self.dir / "a", self.dir / "delta", out=self.dir / "a" / "d")
        if "PICITOOL" in os.environ:
            for made, verb in (
                (self.made, ["compress", "--pack", "none"]),
                (self.dir / "delta", ["diff", self.dir / "a"]),
            ):
                last = self.dir / ("a" if verb[0] == "compress" else "b")
                own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
                tool = [os.environ["PICITOOL"], *verb, "-q", "-o", self.dir / "tool", last]
                subprocess.run(tool, check=True, env=own)
                self.assertEqual(self.tree(made), self.tree(self.dir / "tool"))
                shutil.rmtree(self.dir / "tool")
        pici.apply_folders(self.dir / "a", self.dir / "delta")
        self.assertEqual(self.tree(self.dir / "a"), self.tree(self.dir / "b"))
        raw = self.dir / "raw"
        raw.mkdir()
        (raw / "__0_0.distcp").write_bytes(bytes(9999))
        pici.compress_folder(raw, self.dir / "raw.pici")
        for folder in (raw, self.dir / "raw.pici"):
            for call in (pici.load, pici.list_folder):
                with self.assertRaisesRegex(ValueError, "torch.distributed.checkpoint reads"):
                    call(folder)
        one = self.dir / "one"
        save_shards(one, tensors(0), 1)
        (one / "model.safetensors.index.json").unlink()
        pici.compress_folder(one, self.dir / "one.pici")
        for folder in (one, self.dir / "one.pici"):
            self.same(pici.load(folder), tensors(0))
            self.assertEqual(sorted(pici.list_folder(folder)), sorted(tensors(0)))

    def test_list(self):
        pici.compress_folder(self.old, self.made)
        listed = pici.list_folder(self.made)
        self.assertEqual(listed, pici.list_folder(self.old))
        self.assertEqual(sorted(listed), sorted(tensors(0)))
        where = json.loads((self.old / "model.safetensors.index.json").read_text())["weight_map"]
        loaded = pici.load(self.made)
        for name, t in listed.items():
            self.assertEqual((t.shape, t.shard), (loaded[name].shape, where[name]))
        kinds = {"z": "complex64", "mask": "bool", "layer.0": "f16", "none": "f32", "only 0 é": "u8"}
        self.assertEqual({name: listed[name].dtype for name in kinds}, kinds)
        pici.diff_folders(self.old, self.new, self.dir / "delta")
        with self.assertRaisesRegex(ValueError, "is delta, not compressed"):
            pici.list_folder(self.dir / "delta")

    def rewrite(self, change):
        """Change the lines of the list of self.made, and give it the hash that it must have then."""
        path = self.made / "pici-folder"
        body = change(path.read_bytes()[:-21])
        path.write_bytes(body + b"end %016x\n" % pici.folders._sum_of_bytes(body))

    def test_hostile_lists(self):
        pici.compress_folder(self.old, self.made)
        good = (self.made / "pici-folder").read_bytes()
        self.rewrite(lambda body: body)
        self.assertEqual((self.made / "pici-folder").read_bytes(), good)
        lines = good[:-21].splitlines(keepends=True)
        config = next(line for line in lines if line.endswith(b" config.json\n"))
        shard = next(line for line in lines if line.startswith(b"shard"))
        word = config.split(b" ")
        name = shard.split(b" ", 5)[5].strip()
        empty = next(line for line in lines if line.endswith(b" .gitattributes\n"))

        def instead(new, old=config):
            return lambda body: body.replace(old, new)

        def spelled(*numbers):
            return instead(b" ".join([b"file", *numbers, b"config.json\n"]))

        for what, change in {
            "a sign": spelled(b"+" + word[1], word[2]),
            "an underscore": spelled(b"0_" + word[1], word[2]),
            "a leading zero": spelled(b"0" + word[1], word[2]),
            "other digits": spelled("\u0663".encode(), word[2]),
            "capitals": spelled(word[1], word[2].upper()),
            "a short hash": spelled(word[1], word[2].lstrip(b"0")[:15]),
            "a long hash": spelled(word[1], b"0" + word[2]),
            "0x": spelled(word[1], b"0x" + word[2]),
            "two spaces": spelled(b"", word[1], word[2]),
            "another word": instead(b"File" + config[4:]),
            "no name": instead(b" ".join(word[:3]) + b" \n"),
            "no base": instead(b"same" + config[4:]),
            "no UTF-8": instead(config[:-1] + b"\xff\n"),
            "no UTF-8 at the start": lambda body: b"\xff" + body,
            "a NUL": instead(config[:-1] + b"\0\n"),
            "a carriage return": instead(config[:-1] + b"\r\n"),
            "the list": instead(config + b" ".join(word[:3]) + b" pici-folder\n"),
            "out of order": lambda body: body.replace(config, b"") + config,
            "twice": instead(config + config),
            "an empty line": instead(config + b"\n"),
            "no newline": lambda body: body[:-1],
            "nothing": lambda body: b"",
            "another version": lambda body: body.replace(b"pici-folder 1", b"pici-folder 2"),
            "a name that leads out": instead(config[:-1] + b"/../config.json\n"),
            "a file as the .pici of a shard": instead(shard + empty[:-15] + name + b".pici\n", shard),
        }.items():
            self.rewrite(change)
            self.assertNotEqual((self.made / "pici-folder").read_bytes(), good, what)
            with self.subTest(what), self.assertRaises(pici.CorruptError):
                pici.decompress_folder(self.made, self.dir / "out")
            with self.subTest(what), self.assertRaises(pici.CorruptError):
                pici.load(self.made)
            (self.made / "pici-folder").write_bytes(good)
        self.no_rest("old", "new", "made")

    def test_load_of_other_shards(self):
        """A shard of another state that is as long; and tensors that are not where the index says."""
        other = self.dir / "other"
        for folder, values in ((self.old, (1, 2)), (other, (3, 4))):
            if folder.exists():
                shutil.rmtree(folder)
            save_shards(folder, {f"x{k}": np.full(64, v, np.float32) for k, v in enumerate(values)}, 2)
        pici.compress_folder(self.old, self.made, format="dense")
        pici.compress_folder(other, self.dir / "theirs", format="dense")
        one, two = sorted(p.name for p in self.made.glob("*.pici"))
        whole = (self.made / one).read_bytes()
        theirs = (self.dir / "theirs" / one).read_bytes()
        self.assertEqual(len(theirs), len(whole))
        (self.made / one).write_bytes(theirs)
        with self.assertRaisesRegex(pici.CorruptError, "XXH64"):
            pici.load(self.made)
        self.assertEqual(pici.load(self.made, names=["x1"])["x1"][0], 2)
        # The list agrees with the files, but both shards have the same tensor.
        (self.made / one).write_bytes((self.made / two).read_bytes())
        body = (self.made / "pici-folder").read_bytes()[:-21].splitlines(keepends=True)
        a, b = (next(k for k, line in enumerate(body) if name[:-5].encode() in line) for name in (one, two))
        body[a] = body[b].replace(two[:-5].encode(), one[:-5].encode())
        self.rewrite(lambda _: b"".join(body))
        for call in (pici.load, pici.list_folder):
            with self.assertRaisesRegex(ValueError, "'x1' is in .* and in "):
                call(self.made)

    def test_what_appears_meanwhile(self):
        """A folder that somebody makes after the last look is not replaced, even if it is empty."""
        source = mock.Mock(path=self.old, files={}, folders=[])
        with pici._outfolder.OutFolder(self.made, self.old, False, source) as to:
            self.made.mkdir()
            with mock.patch("os.path.lexists", return_value=False), self.assertRaises(FileExistsError):
                to.commit()
        self.assertEqual(files(self.made), {})
        self.no_rest("old", "new", "made")

    def test_what_is_replaced(self):
        self.made.mkdir()
        (self.made / "notes").write_text("1")
        with self.assertRaisesRegex(ValueError, "is not replaced: it is not a checkpoint"):
            pici.compress_folder(self.old, self.made, overwrite=True)
        self.assertEqual(files(self.made), {"notes": b"1"})
        self.no_rest("old", "new", "made")

    def test_twins(self):
        save_twins(self.dir / "twins")
        pici.compress_folder(self.dir / "twins", self.made)
        self.assertIn(b"pici-folder 3 compressed\n", (self.made / "pici-folder").read_bytes())
        sizes = [sum(map(len, files(x).values())) for x in (self.dir / "twins", self.made)]
        self.assertLess(sizes[1], sizes[0] - 2 * 20000 - 13000)
        listed, want = pici.list_folder(self.made), pici.list_folder(self.dir / "twins")
        self.assertEqual(listed, want)
        loaded = pici.load(self.made)
        for name, x in pici.load(self.dir / "twins").items():
            self.assertEqual((loaded[name].dtype, loaded[name].shape), (x.dtype, x.shape))
            self.assertEqual(loaded[name].tobytes(), x.tobytes(), name)
        self.assertEqual(pici.load(self.made, names=["again"])["again"].shape, (100, 100))
        pici.decompress_folder(self.made, self.dir / "back")
        self.assertEqual(files(self.dir / "back"), files(self.dir / "twins"))
        # a shard alone
        with pici.open(self.made / "model-00002-of-00002.safetensors.pici") as f:
            self.assertRaisesRegex(pici.ArgumentError, "refers to another tensor of the folder", f["again"].read)
            self.assertEqual(f["other"].read().shape, (10000,))
        with self.assertRaisesRegex(pici.ArgumentError, "refers to another tensor of the folder"):
            pici.load(self.made / "model-00002-of-00002.safetensors.pici")

    def test_bad_references(self):
        for change, words in (
            ({"shard": "x.safetensors"}, "which is no shard"),
            ({"name": "nowhere"}, "which is not there"),
            ({"name": "third"}, "which is a reference itself"),
            ({"dtype": "bf16"}, "has another type"),
            ({"shape": (9999,)}, "has another type, or another number"),
        ):
            with self.subTest(words=words):
                shutil.rmtree(self.dir / "twins", ignore_errors=True)
                shutil.rmtree(self.made, ignore_errors=True)
                save_twins(self.dir / "twins")
                change = {**change, **({"dtype": BY_NAME["bf16"]} if "dtype" in change else {})}
                if change.get("name") == "third":
                    change["shard"] = ""
                value = Reference.value
                with mock.patch.object(Reference, "value", lambda r: value(r._replace(**change))):
                    pici.compress_folder(self.dir / "twins", self.made)
                self.assertRaisesRegex(pici.CorruptError, words, pici.load, self.made)
                self.assertRaisesRegex(pici.CorruptError, words, pici.decompress_folder, self.made, self.dir / "x")
        with mock.patch.object(Reference, "value", lambda r: b"\4\1"):
            pici.compress_folder(self.dir / "twins", self.made, overwrite=True)
        self.assertRaisesRegex(pici.CorruptError, "is a malformed reference", pici.load, self.made)

    def test_targets_stay_open(self):
        """A file that references lead to is opened once, not for each of them."""
        x = np.arange(40000, dtype=np.float32).reshape(8, -1)
        save_shards(self.dir / "many", {f"{turn}.{k}": x[k] for turn in range(6) for k in range(8)}, 2)
        pici.compress_folder(self.dir / "many", self.made)
        for call in (pici.list_folder, pici.load):
            opened = pici.folders._Made.shard
            with mock.patch.object(pici.folders._Made, "shard", autospec=True, side_effect=opened) as shard:
                self.assertEqual(len(call(self.made)), 48)
            self.assertLessEqual(shard.call_count, 8)

    def test_twins_are_found_by_samples(self):
        class Data:
            dtype = BY_NAME["u8"]

            def __init__(self, data):
                self.data = data

        x = np.arange(1 << 20, dtype=np.uint32).view(np.uint8)[: (1 << 22) - 1]
        found = [x]
        for at in (100, 1 << 21, x.size - 100, 5000):  # the last is where no sample is taken
            found.append(x.copy())
            found[-1][at] ^= 1
        found.append(x.copy())
        hashed, compared = [], []

        def hash_of(data):
            hashed.append(data.size)
            return hash(data.tobytes())

        def equal(a, b, real=np.array_equal):
            compared.append(a.size)
            return real(a, b)

        with mock.patch("pici._references._PIECE", 1 << 20), mock.patch("numpy.array_equal", equal):
            self.assertEqual(list(twins(((k, Data(v)) for k, v in enumerate(found)), hash_of)), [(5, 0)])
        self.assertEqual(sorted(hashed), [3 * 4096] * 6 + [x.size] * 3)
        self.assertEqual(compared, [1 << 20] * 3 + [(1 << 20) - 1])

    def test_references_that_are_not_empty(self):
        """A reference is u8 of shape [0]; anything else with its attribute is malformed, for picitool too."""
        value = Reference(BY_NAME["u8"], (3,), "", "x").value()
        for d, shape in (("u8", (3,)), ("f32", (0,)), ("u8", (0, 2)), ("u8", ())):
            path = self.dir / "bad.pici"
            with self.subTest(d=d, shape=shape):
                with pici.create(path, overwrite=True) as w:
                    w.add("x", np.arange(3, dtype=np.uint8))
                    w.begin("bad", shape, d, attrs={KEY: value})
                    w.append(np.zeros(shape, np.float32 if d == "f32" else np.uint8))
                with pici.open(path) as f:
                    self.assertRaisesRegex(pici.CorruptError, "is a malformed reference", f["bad"].read)
                    self.assertRaisesRegex(
                        pici.CorruptError, "is a malformed reference", pici._references.reference_of, f["bad"]
                    )
                if os.environ.get("PICITOOL"):
                    own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
                    for verb in (["extract", "-n", "bad"], ["decompress"]):
                        tool = [os.environ["PICITOOL"], *verb, "-o", str(self.dir / "x"), str(path)]
                        done = subprocess.run(tool, env=own, capture_output=True, text=True)
                        self.assertEqual(done.returncode, 1)
                        self.assertIn("tensor bad: a reference that is not u8 of shape [0]", done.stderr)

    @unittest.skipUnless(os.environ.get("PICITOOL"), "folders compared with picitool's: PICITOOL is not set")
    def test_beside_picitool(self):
        def picitool(*args):
            own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}  # it has the sanitizer's runtime already
            tool = [os.environ["PICITOOL"], *args]
            subprocess.run(tool, cwd=self.dir, check=True, stdout=subprocess.DEVNULL, env=own)

        picitool("compress", "-q", "-o", "tool.pici", "old")
        pici.compress_folder(self.old, self.made, pack="planes")
        self.assertEqual(files(self.made), files(self.dir / "tool.pici"))
        save_twins(self.dir / "twins")
        picitool("compress", "-q", "twins")
        pici.compress_folder(self.dir / "twins", self.dir / "twins.made", pack="planes")
        self.assertEqual(files(self.dir / "twins.made"), files(self.dir / "twins.pici"))
        picitool("test", "made")
        picitool("diff", "-q", "-o", "tool.delta", "old", "new")
        pici.diff_folders(self.old, self.new, self.dir / "delta")
        self.assertEqual(files(self.dir / "delta"), files(self.dir / "tool.delta"))
        picitool("apply", "-q", "-o", "back", "old", "delta")
        self.assertEqual(files(self.dir / "back"), files(self.new))

    @unittest.skipUnless(os.environ.get("PICITOOL"), "folders with files of torch.save: PICITOOL is not set")
    def test_torch_files(self):
        """picitool stores the tensors that files of torch.save share with shards once, and Python reads its folders."""
        code = """
import sys
from torchfile import save, tensor
x = bytes(range(256)) * 100
save(sys.argv[1], {"a": tensor("Float", "0", 6400, (80, 80), (80, 1)), "tied": tensor("Float", "0", 6400, (80,), (1,)),
                   "b": tensor("Float", "1", 6400, (6400,), (1,)), "slice": tensor("Float", "2", 6400, (5,), (3,))},
     {"0": x, "1": x[::-1], "2": x})
save(sys.argv[2], {"a": tensor("Float", "0", 6400, (80, 80), (80, 1))}, {"0": x}, order="big")
"""
        checkpoint = self.dir / "torch"
        x = np.frombuffer(bytes(range(256)) * 100, np.float32)
        save_shards(checkpoint, {"a": x, "b": x.view(np.uint8)[::-1].copy().view(np.float32)}, 1)
        own = {k: v for k, v in os.environ.items() if k != "LD_PRELOAD"}
        helper = Path(__file__).resolve().parents[2] / "tests" / "cli"
        made_by = [sys.executable, "-c", code, str(checkpoint / "a.pth"), str(checkpoint / "big.bin")]
        subprocess.run(made_by, check=True, env=own | {"PYTHONPATH": str(helper)})
        tool = [os.environ["PICITOOL"], "compress", "-q", "-o", str(self.made), str(checkpoint)]
        subprocess.run(tool, check=True, env=own)
        lines = (self.made / "pici-folder").read_text().splitlines()
        self.assertEqual([line.split()[0] for line in lines if line.endswith((".pth", ".bin"))], ["shard", "shard"])
        pici.decompress_folder(self.made, self.dir / "back")
        self.assertEqual(files(self.dir / "back"), files(checkpoint))
        loaded = pici.load(self.made)
        self.assertEqual(sorted(loaded), ["a", "b"])
        self.assertEqual(loaded["a"].tobytes(), x.tobytes())
        with mock.patch.object(pici.File, "_attrs", lambda f, i: {"source.before": b"x"} if i is not None else {}):
            self.assertRaises(pici.CorruptError, pici.decompress_folder, self.made, self.dir / "x")


if __name__ == "__main__":
    unittest.main()
