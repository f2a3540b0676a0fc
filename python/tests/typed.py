# SPDX-License-Identifier: BSD-3-Clause
"""Every public function, as a program that mypy --strict checks (test_typed.py). It is not run."""
import datetime
import io
import socket
from pathlib import Path
from typing import Any, Optional

import numpy as np
import torch
from typing_extensions import assert_type

import pici

Elements = np.ndarray[Any, np.dtype[Any]]

x = np.zeros((2, 3), np.float32)
room = bytearray(pici.bound(6))

# Blocks
assert_type(pici.bound(6, np.float32, "hybrid"), int)
assert_type(pici.bound(6, "bf16", small=True), int)
block = pici.compress(x, format="auto", dtype="f32", threads=2, checksum=True, zeros="value")
assert_type(block, bytes)
assert_type(pici.compress(x, out=room), memoryview)
assert_type(pici.decompress(block), Elements)
assert_type(pici.decompress(block, to="bits", threads=2, max_bytes=None), Elements)
assert_type(pici.decompress(block, to="dlpack", max_bytes="auto"), pici.DLPackArray)
assert_type(pici.decompress(block, to="torch"), torch.Tensor)
assert_type(pici.decompress(block, dtype=np.dtype("f4"), out=room), bytearray)
assert_type(pici.decompress_range(block, 0, 3), Elements)
assert_type(pici.decompress_range(block, 0, 3, to="dlpack"), pici.DLPackArray)
assert_type(pici.diff(x, x), bytes)
info = pici.inspect(block)
assert_type(info, pici.Info)
assert_type((info.format, info.dtype, info.count, info.nnz, info.block_bytes), tuple[str, str, int, int, int])
pici.decompress_into(x, block, dtype="float32")
pici.scatter_add(x, block, threads=2)
pici.apply(x, block)
pici.apply(x, block, block, offset=3, of=9, threads=2)
assert_type(pici.diff(x, x, small=True, offset=3, of=9), bytes)
pici.verify(block)
assert_type(pici.nonzeros(block, 0, 3, index="i64", to="torch"), tuple[Any, Any])
assert_type(pici.changes(x, block, dtype="f32", max_bytes=None), tuple[Any, Any])

# Selection
assert_type(pici.topk(x, x, select="global", density=0.1, leak=0.9, threads=2), tuple[Elements, int])
assert_type(pici.topk(x, x, x, momentum=0.9, to="torch"), tuple[torch.Tensor, int])
assert_type(pici.topk(x, select="sampled", sample=0.01, seed=1, step=2, to="dlpack"), tuple[pici.DLPackArray, int])
assert_type(pici.topk(x, bucket=8, k=2, rate=2, dtype="f32", out=room), tuple[bytearray, int])
assert_type(pici.topk_warmup(0, 100), float)

# Deltas
pici.diff_files("a.npy", Path("b.npy"), "d.pici", small=True, dtype="bf16", threads=2, zstd=3, overwrite=True)
pici.apply_files("a.npy", "d.pici", Path("e.pici"))
pici.apply_files({"x": x}, "d.pici", out="f.safetensors", overwrite=True, threads=0)
pici.save_delta({"x": x}, {"x": torch.zeros(3)}, "d.pici", small=None, format="coo")
with pici.apply_delta({"x": torch.zeros(3)}, "d.pici", Path("e.pici"), stage=True, threads=2) as update:
    assert_type(update, pici.Update)
    update.switch()
    update.undo()
    assert_type((update.changed, update.bytes, update.switched), tuple[list[str], int, bool])
    assert_type(list(update.patches(to="torch")), list[tuple[str, int, Any, Any]])
    update.commit()
pici.compress_folder("a", "b", format="coo", threads=0)
pici.decompress_folder("b", Path("a"), overwrite=True)
pici.diff_folders("a", "c", "d", small=True)
pici.apply_folders("a", "d", out=None)
assert_type(pici.list_folder("b")["x"].shape, tuple[int, ...])
assert_type(pici.load_delta({"x": x}, "d.pici"), dict[str, Elements])
assert_type(pici.load_delta("a.safetensors", "d.pici", "e.pici", to="torch", max_bytes=None), dict[str, torch.Tensor])
assert_type(pici.load_delta({"x": x}, "d.pici", to="dlpack"), dict[str, pici.DLPackArray])

log = pici.DeltaLog.create("log", {"x": x})
assert_type(log, pici.DeltaLog)
assert_type(next(log.follow(timeout=0.0)), tuple[dict[str, Any], int])
assert_type(log.append({"x": x}, "b.safetensors", small=True, threads=2), int)
assert_type(log.apply(Path("c.safetensors"), force=True), int)
assert_type(log.load(), tuple[dict[str, Elements], int])
assert_type(log.load({"x": x}, 3, to="torch", max_bytes=None), tuple[dict[str, torch.Tensor], int])
assert_type((log.newest, log.base, log.states()), tuple[int, int, list[pici.LogState]])
log.compact(threads=2)

pici.keep_memory(1 << 28)

# Files
pici.save("x.pici", {"x": x}, overwrite=True, attrs={"run": b"7"}, zeros="value")
pici.save(io.BytesIO(), {"x": x})
assert_type(pici.load("x.pici"), dict[str, Elements])
assert_type(pici.load(Path("x.pici"), to="dlpack", names=["x"], max_bytes=1 << 40), dict[str, pici.DLPackArray])
assert_type(pici.load("x.pici", to="torch"), dict[str, torch.Tensor])
with pici.create("y.pici", chunk_elements=1000, zstd=3) as w:
    assert_type(w, pici.Writer)
    w.begin("x", x.shape, "bfloat16", attrs={"unit": b"m"})
    w.append(x, dtype="bf16")
    w.add("y", x)
pici.save_file({"x": x}, "x.pici", {"format": "np"}, threads=2)
assert_type(pici.load_file(Path("x.pici")), dict[str, Elements])
with pici.safe_open("x.pici", framework="pt", device="cuda:0") as s:
    assert_type((s.keys(), s.metadata()), tuple[list[str], Optional[dict[str, str]]])
    assert_type(s.get_slice("x").get_shape(), list[int])
with pici.open(open("x.pici", "rb"), threads=2) as f:
    assert_type(f, pici.File)
    assert_type(list(f), list[str])
    t = f["x"]
    assert_type(t, pici.Tensor)
    assert_type((t.name, t.dtype, t.shape, t.size), tuple[str, str, tuple[int, ...], int])
    assert_type(t.read(), Elements)
    assert_type(t.read(0, 3, to="dlpack"), pici.DLPackArray)
    assert_type(t.attrs, dict[str, bytes])
    f.verify()

# Collectives
comms = pici.Comm.threads(2)
assert_type(comms, list[pici.Comm])
with comms[0] as comm:
    assert_type((comm.rank, comm.size, comm.closed, comm.error), tuple[int, int, bool, str])
    assert_type(comm.all_reduce(x, op="max", algorithm="ring", timeout=5, density=0.01), Elements)
    assert_type(comm.all_reduce(x, room, native=True, latency=1e-5, format="coo", dtype="f32"), bytearray)
    assert_type(comm.reduce_scatter(x, timeout=datetime.timedelta(seconds=5)), Elements)
    assert_type(comm.all_gather(x, zeros="value"), Elements)
    assert_type(comm.all_gather(x, room), bytearray)
    assert_type(comm.broadcast(room, 0, zeros="value"), bytearray)
    assert_type(comm.all_gatherv(x, [3, 0]), Elements)
    assert_type(comm.all_gatherv(x, [3, 0], room, [0, 3], timeout=3.0), bytearray)
    assert_type(comm.all_to_allv(x, [2, 1], [2, 0]), Elements)
    assert_type(comm.all_to_allv(x, [2, 1], [2, 0], room, [0, 2], [1, 0], timeout=3.0), bytearray)
    plan = comm.neighbors([1, 0], destinations=range(2), route="halving", most_bytes=64)
    assert_type(plan, pici.Neighbors)
    assert_type((plan.info, plan.info.route, plan.info.messages), tuple[pici.NeighborInfo, str, int])
    assert_type(plan.all_gather(x, values={"codec": "cast"}), Elements)
    assert_type(plan.all_gatherv(x, [3, 0], room, [0, 3], timeout=3.0), bytearray)
    assert_type(plan.all_gather_start(x), pici.Request)
    assert_type(plan.all_gatherv_start(x, [3, 0]), pici.Request)
    requests = [
        comm.all_reduce_start(x),
        comm.reduce_scatter_start(x, op="avg"),
        comm.all_gather_start(x, zeros="exact"),
        comm.broadcast_start(x, root=1),
        comm.all_gatherv_start(x, [3, 0]),
        comm.all_to_allv_start(x, [2, 1], [2, 0]),
    ]
    assert_type(requests, list[pici.Request])
    assert_type((requests[0].test(), requests[0].done), tuple[bool, bool])
    requests[0].wait()
    assert_type((comm.stats, comm.totals, requests[0].stats), tuple[pici.Stats, pici.Stats, pici.Stats])
    assert_type((comm.stats.wire_bytes, comm.stats.sends, comm.stats.wait_s), tuple[int, dict[str, int], float])
    comm.set_nodes([0, 0])
    comm.tune(algorithm="ring", formats=["coo", "hybrid"], timeout=5, checksum=True, window=2)
assert_type(pici.Comm.sockets([None, 5, *socket.socketpair()], rank=0, ranks=4), pici.Comm)
assert_type(pici.Comm.rendezvous(), pici.Comm)
assert_type(pici.Comm.rendezvous("localhost:5000", rank=0, ranks=2, token="secret"), pici.Comm)
assert_type(pici.Comm.mpi(), pici.Comm)
assert_type(pici.Comm.nccl(1, stream=2), pici.Comm)
assert_type(pici.Comm.levels(pici.Comm.threads(2)[0], outer=pici.Comm.rendezvous()), pici.Comm)

# Errors
try:
    pici.decompress(b"")
except pici.CorruptError as e:
    assert_type(e.fault, Optional[pici.Fault])
    assert_type(e.status, int)

pici.compress(x, threads="2")  # type: ignore[call-overload]
pici.decompress(block, to="list")  # type: ignore[call-overload]
pici.compress(x, zeros="none")  # type: ignore[call-overload]
pici.load(5)  # type: ignore[call-overload]
comms[0].all_reduce(x, op="prod")  # type: ignore[call-overload]
comms[0].all_gather(x, op="sum")  # type: ignore[call-overload]
comms[0].all_gatherv(x)  # type: ignore[call-overload]
comms[0].neighbors([0])  # type: ignore[call-arg]
comms[0].all_to_allv(x, [2, 1])  # type: ignore[call-overload]
comms[0].all_to_allv(x, [2, 1], [2, 0], zeros="value")  # type: ignore[call-overload]
comms[0].all_reduce(x, timeot=5)  # type: ignore[call-overload]
comms[0].all_reduce(x, timeout="5")  # type: ignore[call-overload]
comms[0].all_reduce_start(x, native=True)  # type: ignore[call-arg]
comms[0].all_gather_start(x, zeros="none")  # type: ignore[arg-type]
comms[0].broadcast(x, root="0")  # type: ignore[arg-type]
comms[0].broadcast_start(x, density=0.5)  # type: ignore[call-arg]
pici.compress(x, thread=2)  # type: ignore[call-overload]
pici.decompress(block, max_bytes="all")  # type: ignore[call-overload]
pici.decompress_range(block, 0, 3, dtype="f32")  # type: ignore[call-overload]
pici.load("x.pici", name=["x"])  # type: ignore[call-overload]
pici.load_delta({"x": x}, "d.pici", threads=1.5)  # type: ignore[call-overload]
log.load(to="list")  # type: ignore[call-overload]
pici.topk(x, buckets=8)  # type: ignore[call-overload]
pici.topk(x, select="all")  # type: ignore[call-overload]
