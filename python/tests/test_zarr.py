# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of zarr, of version 3 and 2, through the codecs of pici; and chunks without zarr."""
import tempfile
import unittest
import warnings
from importlib import metadata
from pathlib import Path

import numpy as np

import pici
from pici import _chunks

try:
    import zarr
    import zarr.codecs

    import pici.zarr
except ImportError:
    zarr = None
try:
    import numcodecs

    import pici.numcodecs
except ImportError:
    numcodecs = None

NEEDS_ZARR = unittest.skipUnless(zarr, "zarr 3 is not installed")
NEEDS_NUMCODECS = unittest.skipUnless(numcodecs, "numcodecs is not installed")
#: of each kind, in both byte orders
DTYPES = "f4 f8 f2 i1 u1 i2 u2 i4 u4 i8 u8 ? c8 c16 >f4 >u2 >c8 >i8 M8[ns] m8[us] S5 U3 >U3"
STRUCTURE = np.dtype([("x", "<f4"), ("y", ">i2"), ("z", "u1")])


def some(dtype, shape=(7, 9, 5)):
    """Elements of a dtype, many of them zeros; with -0.0, NaNs and infinities."""
    dtype = np.dtype(dtype)
    rng = np.random.default_rng(3)
    at = rng.random(shape) < 0.3
    if dtype.names:
        x = np.zeros(shape, dtype)
        for name in dtype.names:
            x[name] = at * rng.integers(0, 100, shape)
        return x
    if dtype.kind == "f":
        x = np.where(at, rng.standard_normal(shape), 0).astype(dtype)
        x.flat[:4] = np.nan, -0.0, np.inf, -np.inf
        return x
    x = at * rng.integers(0, 100, shape)
    return x.astype("i8").astype(dtype) if dtype.kind in "Mm" else x.astype(dtype)


def is_same(a, b):
    return a.shape == b.shape and np.ascontiguousarray(a).tobytes() == np.ascontiguousarray(b, a.dtype).tobytes()


class Chunks(unittest.TestCase):
    def test_there_and_back(self):
        for dtype in (*DTYPES.split(), STRUCTURE):
            for shape in ((7, 9, 5), (), (0, 3)):
                x = some(dtype, (7, 9, 5))[(0,) * 3] if shape == () else some(dtype)[:, :3, 0][: shape[0]]
                x = np.asarray(x)
                for view in (x, np.asfortranarray(x)):
                    got = _chunks.decode(_chunks.encode(view, _chunks.Options()), view.dtype, view.shape)
                    self.assertEqual(got.dtype, view.dtype)
                    self.assertTrue(is_same(got, view), (dtype, shape))

    def test_structures(self):
        """Their bytes do not depend on the byte order of members, which zarr's metadata do not tell."""
        x = some(STRUCTURE)
        for order in "<>":
            block = _chunks.encode(x.astype(STRUCTURE.newbyteorder(order)), _chunks.Options())
            for dtype in (STRUCTURE, STRUCTURE.newbyteorder("<"), STRUCTURE.newbyteorder(">")):
                got = _chunks.decode(block, dtype, x.shape)
                self.assertEqual(got.dtype, dtype)
                self.assertTrue((got == x).all())

    def test_refused(self):
        block = _chunks.encode(np.zeros(10, "f4"), _chunks.Options())
        for dtype, shape in (("f4", (11,)), ("u4", (10,)), ("f8", (5,)), ("f4", ()), ("c8", (5, 2)), ("U1", (10,))):
            with self.subTest(dtype), self.assertRaisesRegex(pici.CorruptError, "the chunk has 10 elements of f32"):
                _chunks.decode(block, np.dtype(dtype), shape)
        self.assertTrue((_chunks.decode(block, np.dtype("c8"), (5,)) == 0).all())
        with self.assertRaisesRegex(ValueError, "no bool"):
            _chunks.decode(pici.compress(np.full(4, 2, np.uint8)), np.dtype(bool), (4,))
        with self.assertRaisesRegex(TypeError, "objects"):
            _chunks.encode(np.array(["x"], object), _chunks.Options())
        whole = _chunks.encode(some("f4"), _chunks.Options())
        for i in range(len(whole)):
            for bad in (whole[:i], whole[:i] + bytes([whole[i] ^ 1]) + whole[i + 1 :]):
                with self.assertRaises(pici.Error):
                    _chunks.decode(bad, np.dtype("f4"), (7, 9, 5))


@NEEDS_ZARR
class Version3(unittest.TestCase):
    def create(self, x, store=None, codec=None, **options):
        z = zarr.create_array(
            {} if store is None else store,
            shape=x.shape,
            chunks=(3, 4, 5)[: x.ndim],
            dtype=x.dtype,
            serializer=codec or pici.zarr.PiciCodec(),
            compressors=None,
            **options,
        )
        z[...] = x
        return z

    def test_dtypes(self):
        for dtype in DTYPES.replace("M8[ns] m8[us]", "M8[ns]").split():
            x = some(dtype)
            self.assertTrue(is_same(self.create(x)[...], x), dtype)
        x = some("f4")
        z = self.create(x)
        self.assertTrue(is_same(z[2:5, 3, ::2], x[2:5, 3, ::2]))

    def test_folder(self):
        x = some("f4")
        for sharded in ({}, {"shards": (6, 8, 5)}):
            with tempfile.TemporaryDirectory() as folder:
                self.create(x, folder, pici.zarr.PiciCodec(pack="none", format="hybrid"), **sharded)
                z = zarr.open_array(folder, mode="r+")
                self.assertTrue(is_same(z[...], x))
                self.assertTrue(is_same(z[3:4, 2:9], x[3:4, 2:9]))
                codec = z.metadata.codecs[0]
                codec = codec.codecs[0] if sharded else codec
                self.assertEqual((codec.pack, codec.format, codec.checksum), ("none", "hybrid", True))
                z[1:5] = 2 * x[1:5]
                self.assertTrue(is_same(z[1:5], 2 * x[1:5]))

    def test_structures(self):
        x = some(STRUCTURE)
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of zarr, that the dtype has no specification
            self.create(x, folder)
            self.assertTrue((zarr.open_array(folder, mode="r")[...] == x).all())

    def test_damaged(self):
        x = some("f4")
        with tempfile.TemporaryDirectory() as folder:
            z = self.create(x, folder)
            chunk = Path(folder, "c", "0", "0", "0")
            data = bytearray(chunk.read_bytes())
            data[-1] ^= 1
            chunk.write_bytes(data)
            with self.assertRaises(pici.Error):
                z[...]
            chunk.write_bytes(pici.compress(np.zeros(1 << 30, "u1")))
            with self.assertRaisesRegex(
                pici.CorruptError, "the chunk has 1073741824 elements of u8, and not 60 of f32"
            ):
                z[...]

    def test_refused(self):
        with self.assertRaisesRegex(ValueError, "no format"):
            pici.zarr.PiciCodec(format="lz4")
        with self.assertRaisesRegex(TypeError, "checksum"):
            pici.zarr.PiciCodec(checksum="yes")
        with self.assertRaises(TypeError):
            pici.zarr.PiciCodec.from_dict({"name": "pici", "configuration": {"level": 3}})
        with self.assertRaisesRegex(TypeError, "objects"):
            pici.zarr.PiciCodec().validate(shape=(3,), dtype=np.dtype(object), chunk_grid=None)


@NEEDS_NUMCODECS
class Version2(unittest.TestCase):
    def test_codec(self):
        codec = numcodecs.get_codec({"id": "pici"})
        self.assertEqual(numcodecs.get_codec(codec.get_config()), codec)
        for dtype in (*DTYPES.split(), STRUCTURE):
            for x in (some(dtype), np.asfortranarray(some(dtype))):
                got = codec.decode(codec.encode(x))
                self.assertEqual(got.tobytes(), x.tobytes("A"), dtype)
                out = np.empty_like(x)
                codec.decode(codec.encode(x), out=out)
                self.assertTrue(is_same(out, x), dtype)
        self.assertEqual(codec.decode(codec.encode(b"0123")).tobytes(), b"0123")
        hostile = pici.compress(np.zeros((1 << 30) + 1, "u1"))
        with self.assertRaises(pici.LimitError):
            codec.decode(hostile)
        with self.assertRaises(pici.Error):
            codec.decode(codec.encode(some("f4"))[:-1])

    @NEEDS_ZARR
    def test_zarr(self):
        for dtype in (*DTYPES.split(), STRUCTURE):
            for order in "CF":
                x = some(dtype)
                with tempfile.TemporaryDirectory() as folder:
                    z = zarr.create_array(
                        folder,
                        shape=x.shape,
                        chunks=(3, 4, 5),
                        dtype=x.dtype,
                        zarr_format=2,
                        order=order,
                        compressors=pici.numcodecs.Pici(),
                    )
                    z[...] = x
                    self.assertTrue(is_same(zarr.open_array(folder, mode="r")[...], x), dtype)


class Installed(unittest.TestCase):
    def test_entry_points(self):
        """zarr and numcodecs find the codecs by these, where the package is installed and not only on the path."""
        try:
            found = {(e.group, e.name): e.value for e in metadata.distribution("pici").entry_points}
        except metadata.PackageNotFoundError:
            self.skipTest("the package pici is not installed: no entry points")
        self.assertEqual(found["zarr.codecs", "pici"], "pici.zarr:PiciCodec")
        self.assertEqual(found["numcodecs.codecs", "pici"], "pici.numcodecs:Pici")
