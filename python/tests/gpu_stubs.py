# SPDX-License-Identifier: BSD-3-Clause
"""A stand-in for what pici uses of torch on a GPU, over the emulator's build of libpici_cuda: the tensors lie in the
memory of that GPU. PICI_CUDA_LIBRARY names the library (make cuda-emu-shared)."""
import contextlib
import ctypes
import os
import sys
import types
import unittest
import unittest.mock

import numpy as np

from pici import _dtypes, _gpu


class Tensor:
    """Of a GPU that is the emulator's. dtype: a NumPy type, or the name of one of torch's."""

    is_cuda, device = True, "cuda:0"

    def __init__(self, array, dtype=None, memory=None):
        self._array, self.dtype, self._memory = array, dtype or array.dtype, memory

    @classmethod
    def of(cls, array, dtype=None):
        memory = _Memory(array.nbytes)
        there = np.frombuffer(memory.octets, array.dtype).reshape(array.shape)
        there[...] = array
        return cls(there, dtype, memory)

    def data_ptr(self):
        return self._array.ctypes.data

    @property
    def shape(self):
        return self._array.shape

    def numel(self):
        return self._array.size

    def is_contiguous(self):
        return self._array.flags.c_contiguous

    def detach(self):
        return self

    contiguous = detach

    def __getitem__(self, where):
        return Tensor(self._array[where], self.dtype, self._memory)

    def reshape(self, *shape):
        return Tensor(self._array.reshape(*shape), self.dtype, self._memory)

    def view(self, dtype):
        return Tensor(self._array.view(_storage(dtype)), dtype, self._memory)

    def clone(self):
        done()
        return Tensor.of(self._array, self.dtype)

    def max(self):
        return self.cpu().numpy().max()

    def cpu(self):
        done()
        return Host(self._array.copy())


class Host:
    def __init__(self, array):
        self._array = array

    def numpy(self):
        return self._array

    def to(self, device):
        return Tensor.of(self._array)

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class _Memory:
    def __init__(self, count):
        at = ctypes.c_void_p()
        done()
        assert not _gpu.library().cudaMalloc(ctypes.byref(at), ctypes.c_size_t(count or 1))
        self.octets = (ctypes.c_uint8 * count).from_address(at.value)
        self._at = at

    def __del__(self):
        done()
        _gpu.library().cudaFree(self._at)


def done():
    """Wait for the GPU."""
    error = _gpu.library().cudaDeviceSynchronize()
    assert not error, f"CUDA error {error}"


def _storage(dtype):
    """NumPy's type for the elements of a type of torch."""
    return _dtypes.named(dtype).storage


def torch():
    """The module."""
    names = "int16 int32 int64 float32 bfloat16 float8_e4m3fn float4_e2m1fn_x2 bool"
    return types.SimpleNamespace(
        uint8=np.dtype("u1"),
        **{name: f"torch.{name}" for name in names.split()},
        empty=lambda count, dtype, device: Tensor.of(
            np.frombuffer(b"\xa5" * count * _storage(dtype).itemsize, _storage(dtype)), dtype
        ),
        frombuffer=lambda data, dtype: Host(np.frombuffer(data, dtype)),
        cuda=types.SimpleNamespace(
            device=lambda device: contextlib.nullcontext(),
            current_stream=lambda device: types.SimpleNamespace(cuda_stream=0),
        ),
    )


def patched():
    return unittest.mock.patch.dict(sys.modules, {"torch": torch()})


needs_emulator = unittest.skipUnless(
    "PICI_CUDA_LIBRARY" in os.environ,
    "tensors in a GPU's memory: PICI_CUDA_LIBRARY names no libpici_cuda over the emulator (make cuda-emu-shared)",
)
