# SPDX-License-Identifier: BSD-3-Clause
"""The backend "pici" of torch.distributed: its operations with 2 and 3 ranks, training over it, and what goes wrong."""
import importlib.metadata
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from datetime import timedelta
from pathlib import Path
from unittest import mock

import torch
import torch.distributed as dist

import backend_cases as cases
import ranks
from pici.torch import _backend

CAN = _backend.supported()
NEEDED = f"the backend pici: torch {torch.__version__} has none written in Python"


@unittest.skipUnless(CAN, NEEDED)
class Operations(unittest.TestCase):
    names = [f.__name__ for f in cases.OPERATIONS if f is not cases.split_group]

    def test_two_ranks(self):
        ranks.run(2, cases.operations, "cpu:pici", self.names)

    def test_three_ranks(self):
        ranks.run(3, cases.operations, "cpu:pici", self.names)

    @unittest.skipIf(
        torch.__version__.startswith("2.14."), f"split_group: torch {torch.__version__} needs a GPU for it"
    )
    def test_split_group(self):
        for size in (2, 3):
            ranks.run(size, cases.operations, "cpu:pici", ["split_group"])

    def test_one_rank(self):
        ranks.run(1, alone)

    def test_name_without_device(self):
        ranks.run(2, cases.operations, "pici", ["all_reduce", "all_reduce_small", "broadcast"])

    def test_debug_detail(self):
        """torch's wrapper, which compares the calls of all ranks, in front of the backend."""
        names = ["all_reduce", "all_reduce_async", "all_reduce_small", "all_gather_into_tensor", "objects", "new_group"]
        names += ["reduce_scatter_tensor", "barrier", "send_recv", "sequence_numbers"]
        environment = {"TORCH_DISTRIBUTED_DEBUG": "DETAIL"}
        ranks.run(2, cases.operations, "cpu:pici", names, environment=environment)
        self.assertEqual(ranks.run(1, level, environment=environment), ["DETAIL"])

    def test_compile(self):
        """Dynamo does not trace into the backend, nor imports it."""
        for least in ("0", "65536"):
            ranks.run(2, compiled, environment={"PICI_TORCH_MIN_BYTES": least}, timeout=120)

    def test_all_sizes_are_ours(self):
        environment = {"PICI_TORCH_MIN_BYTES": "0"}
        self.assertEqual(ranks.run(2, tiny, environment=environment), 2 * [5 * ["all_reduce"]])
        self.assertEqual(ranks.run(2, tiny), 2 * [[]])

    def test_profiler(self):
        """The event of a call lasts until its end."""
        events, _ = ranks.run(2, profiled)
        self.assertEqual([name for name, _ in events], 2 * ["pici:all_reduce"])
        for _, microseconds in events:
            self.assertGreater(microseconds, 150e3)

    def test_group_is_made_anew(self):
        ranks.run(2, twice)

    def test_exit_without_destroy(self):
        done = [subprocess.Popen([sys.executable, "-c", LEAVES], env=dict(os.environ, **e)) for e in job(2)]
        for process in done:
            self.assertEqual(process.wait(60), 0)


def level(rank, size):
    cases.begin()
    return dist.get_debug_level().name


def alone(rank, size):
    cases.begin()
    x = cases.sparse_values(0)
    dist.all_reduce(x)
    cases.same(x, cases.sparse_values(0))
    whole = torch.empty(cases.LARGE)
    dist.all_gather_into_tensor(whole, x)
    cases.same(whole, x)


def compiled(rank, size):
    """The first call of all in a compiled function, then a compiled DDP."""
    cases.begin()

    def doubled(x):
        y = x * 2
        work = dist.all_reduce(y, async_op=True)
        work.wait()
        return y + 1

    doubled = torch.compile(doubled, backend="eager")
    for _ in range(2):
        cases.same(doubled(torch.ones(100)), 2 * size + 1)
    net = torch.compile(torch.nn.parallel.DistributedDataParallel(cases.model()), backend="eager")
    cases.train(net, rank, 2)


def tiny(rank, size):
    cases.begin()
    for n in (1, 2, 3, 1000):
        x = torch.full((n,), float(rank))
        dist.all_reduce(x)
        cases.same(x, 1.0)
    dist.all_reduce(torch.empty(0))
    return cases.made()


def profiled(rank, size):
    cases.begin()
    dist.barrier()
    with torch.autograd.profiler.profile() as profile:
        for asynchronous in (False, True):
            if rank == 1:
                time.sleep(0.2)
            work = dist.all_reduce(cases.sparse_values(rank), async_op=asynchronous)
            if work:
                work.wait()
    return [(e.name, e.cpu_time_total) for e in profile.function_events if e.name.startswith("pici:")]


def twice(rank, size):
    for _ in range(2):
        cases.begin()
        cases.all_reduce(rank, size)
        dist.destroy_process_group()
        assert not _backend._in_use
        os.environ["STORE"] += "-next"


def job(size):
    """The environment of each rank, for programs that use env://."""
    folder = tempfile.mkdtemp()
    store = {"STORE": f"file://{folder}/store", "MASTER_ADDR": "127.0.0.1", "WORLD_SIZE": str(size)}
    return [dict(store, RANK=str(rank)) for rank in range(size)]


LEAVES = """
import os, torch, torch.distributed as dist
import pici.torch
dist.init_process_group("cpu:pici", init_method=os.environ["STORE"], rank=int(os.environ["RANK"]), world_size=2)
x = torch.ones(100000)
dist.all_reduce(x)
assert x[0] == 2
dist.barrier()
"""


@unittest.skipUnless(CAN, NEEDED)
class Training(unittest.TestCase):
    def ddp(self, size, hook, least="65536"):
        environment = {"PICI_TORCH_MIN_BYTES": least}
        ours = ranks.run(size, cases.ddp, "cpu:pici", hook, environment=environment)
        theirs = ranks.run(size, cases.ddp, "gloo", hook)
        for (losses, state, made), (wanted, wanted_state, none) in zip(ours, theirs):
            self.assertGreater(len(made), 4)
            self.assertIn("all_reduce", made)
            self.assertLessEqual(set(made), {"all_reduce", "broadcast", "all_gather"})  # the weights, at the beginning
            self.assertEqual(none, [])
            for x, y in zip(losses, wanted):
                self.assertAlmostEqual(x, y, delta=2e-3 if hook else 1e-5)
            if size == 2 and not hook:  # the sum of two numbers has one order
                for x, y in zip(state, wanted_state):
                    self.assertTrue((x == y).all())
        for _, state, _ in ours[1:]:
            for x, y in zip(state, ours[0][1]):
                self.assertEqual(x.tobytes(), y.tobytes(), "ranks have different weights")

    def test_ddp(self):
        self.ddp(2, None)

    def test_ddp_of_three(self):
        self.ddp(3, None, "0")

    def test_ddp_fp16_hook(self):
        self.ddp(2, "fp16_compress_hook")

    def fsdp(self, size, dtype, delta):
        ours = ranks.run(size, cases.fsdp, "cpu:pici", dtype, environment={"PICI_TORCH_MIN_BYTES": "4096"})
        theirs = ranks.run(size, cases.fsdp, "gloo", dtype)
        for (losses, made), (wanted, none) in zip(ours, theirs):
            self.assertIn("all_gather_single", made)
            self.assertIn("reduce_scatter_single", made)
            self.assertEqual(none, [])
            for x, y in zip(losses, wanted):
                self.assertAlmostEqual(x, y, delta=delta)

    def test_fsdp2(self):
        self.fsdp(2, "float32", 1e-5)

    def test_fsdp2_bf16_of_three(self):
        self.fsdp(3, "bfloat16", 0.05)


@unittest.skipUnless(CAN, NEEDED)
class Faults(unittest.TestCase):
    def both_fail(self, results, *words, kind="DistBackendError", seconds=25):
        for rank, e in enumerate(results):
            self.assertTrue(e.error, f"rank {rank} did not fail: {e.value}")
            for word in words:
                self.assertRegex(e.error, word, f"rank {rank}\n{e.trace}")
            self.assertIn(kind, e.kinds, e.trace)
            self.assertLess(e.seconds, seconds)

    def test_killed_rank(self):
        results = ranks.ended(3, killed)
        self.assertIn("-9", results[1].error)
        self.both_fail([results[0], results[2]], "rank 1")
        for rank in (0, 2):
            self.assertIn(f"rank {rank} of group", results[rank].error)
            self.assertIn("Error", results[rank].kinds)  # pici's

    def test_killed_rank_in_ddp(self):
        results = ranks.ended(3, killed_while_training, environment={"PICI_TORCH_MIN_BYTES": "0"})
        self.both_fail([results[0], results[2]], "rank 1", kind="RuntimeError")

    def test_broken_stays_broken(self):
        for value in ranks.run(2, broken):
            self.assertEqual(value, ["PeerError", "BrokenError", "BrokenError", "small is gloo's", "COMM_ERROR"])

    def test_other_op(self):
        self.both_fail(ranks.ended(2, other_op), "sum on rank 0", "min on rank 1")

    def test_other_size(self):
        self.both_fail(ranks.ended(2, other_size), f"{cases.LARGE} on rank 0", f"{cases.LARGE + 1} on rank 1")

    def test_other_dtype(self):
        self.both_fail(ranks.ended(2, other_dtype), "f32 on rank 0", "i32 on rank 1")

    def test_other_collective(self):
        self.both_fail(ranks.ended(2, other_collective), "calls all-reduce", "calls all-gather")

    def test_detail_names_a_call_that_is_gloos_on_one_rank(self):
        results = ranks.ended(2, large_and_small, environment={"TORCH_DISTRIBUTED_DEBUG": "DETAIL"})
        self.both_fail(results, "(?i)mismatch|shape", kind="RuntimeError")

    def test_timeout_of_the_group(self):
        results = ranks.ended(2, missing)
        self.assertEqual(results[1].error, "")
        self.both_fail(results[:1], "TimedOutError", seconds=8)

    def test_timeout_of_a_wait(self):
        ranks.run(2, late)

    def test_abort(self):
        results = ranks.ended(2, aborted)
        self.both_fail(results, "Error")

    def test_nonsense_of_the_environment(self):
        for text in ("64K", "-1", "1e3", "x", "9" * 30, "١"):
            for e in ranks.ended(1, cases.operations, "cpu:pici", [], environment={"PICI_TORCH_MIN_BYTES": text}):
                self.assertIn("ValueError: PICI_TORCH_MIN_BYTES=", e.error)
                self.assertIn("not a number of bytes", e.error)

    def test_nonsense_on_one_rank(self):
        results = ranks.ended(3, nonsense_of_one)
        self.both_fail(results, "PICI_TORCH_MIN_BYTES", "not a number of bytes", kind="ValueError")
        for rank in (0, 2):
            self.assertIn("on rank 1", results[rank].error)

    def test_environment_differs(self):
        results = ranks.ended(3, other_least)
        self.both_fail(results, "PICI_TORCH_MIN_BYTES", "65536 on rank 0 and 1000 on rank 1", kind="ValueError")

    def test_rank_without_the_backend(self):
        """It finds gloo's part of the backend, and waits there."""
        results = ranks.ended(2, one_of_gloo)
        for e in results:
            self.assertTrue(e.error)
            self.assertLess(e.seconds, 20)


def killed(rank, size):
    cases.begin()
    cases.all_reduce(rank, size)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(cases.sparse_values(rank))


def killed_while_training(rank, size):
    cases.begin()
    net = torch.nn.parallel.DistributedDataParallel(cases.model(), bucket_cap_mb=0.2)
    cases.train(net, rank, 3)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    cases.train(net, rank, 1)


def broken(rank, size):
    cases.begin()
    found = []
    op = dist.ReduceOp.SUM if rank else dist.ReduceOp.MAX
    for _ in range(3):
        x = cases.sparse_values(rank)
        try:
            dist.all_reduce(x, op=op)
        except dist.DistBackendError as e:
            found.append(type(e).__name__)
    x = torch.ones(3)
    dist.all_reduce(x)
    found.append("small is gloo's" if x[0] == size else "wrong")
    (backend,) = _backend._in_use
    found.append(backend.get_error().name)
    return found


def other_op(rank, size):
    cases.begin()
    dist.all_reduce(cases.sparse_values(rank), op=dist.ReduceOp.MIN if rank else dist.ReduceOp.SUM)


def other_size(rank, size):
    cases.begin()
    dist.all_reduce(cases.sparse_values(rank, cases.LARGE + rank))


def other_dtype(rank, size):
    cases.begin()
    dist.all_reduce(cases.sparse_values(rank, dtype=torch.int32 if rank else torch.float32))


def other_collective(rank, size):
    cases.begin()
    if rank == 0:
        dist.all_reduce(cases.sparse_values(rank))
    else:
        dist.all_gather_into_tensor(torch.empty(2 * cases.LARGE), cases.sparse_values(rank))


def large_and_small(rank, size):
    cases.begin()
    dist.all_reduce(cases.sparse_values(rank) if rank else torch.ones(3))


def missing(rank, size):
    cases.begin(seconds=2)
    if rank == 0:
        dist.all_reduce(cases.sparse_values(rank))
    else:
        time.sleep(4)


def late(rank, size):
    cases.begin()
    if rank == 1:
        time.sleep(1)
    x = cases.sparse_values(rank)
    work = dist.all_reduce(x, async_op=True)
    if rank == 0:
        try:
            work.wait(timedelta(seconds=0.2))
        except dist.DistBackendError as e:
            assert "did not end" in str(e) and isinstance(e, TimeoutError), e
        else:
            raise AssertionError("the wait has no timeout")
    work.wait(timedelta(seconds=20))
    cases.same(x, cases.total_of(size))
    dist.all_reduce(x)  # the group is whole


def aborted(rank, size):
    cases.begin()
    if rank == 0:
        work = dist.all_reduce(cases.sparse_values(rank), async_op=True)
        time.sleep(0.5)
        dist.distributed_c10d._abort_process_group()
        work.wait()
    else:
        time.sleep(1.5)
        dist.all_reduce(cases.sparse_values(rank))


def other_least(rank, size):
    if rank == 1:
        os.environ["PICI_TORCH_MIN_BYTES"] = "1000"
    cases.begin()


def nonsense_of_one(rank, size):
    if rank == 1:
        os.environ["PICI_TORCH_MIN_BYTES"] = "64K"
    cases.begin()


def one_of_gloo(rank, size):
    cases.begin("cpu:pici" if rank else "gloo", seconds=5)
    dist.all_reduce(torch.ones(3))


class Registration(unittest.TestCase):
    def test_old_torch(self):
        """A torch without backends in Python: the error names the hook."""
        for e in ranks.ended(1, old_torch):
            self.assertIn("ImportError", e.error)
            self.assertIn("torch 2.14", e.error)
            self.assertIn("pici.torch.all_reduce_hook", e.error)

    @unittest.skipUnless(CAN, NEEDED)
    def test_gloo_stays_the_default(self):
        self.assertEqual(dist.Backend.default_device_backend_map["cpu"], "gloo")
        self.assertEqual(dist.Backend.backend_capability["pici"], ["cpu"])

    @unittest.skipUnless(CAN, NEEDED)
    def test_no_line_of_pici(self):
        """A program without a line of pici, under torchrun: by the entry point of the installed package."""
        points = [e for e in importlib.metadata.entry_points(group="torch.distributed.backends") if e.name == "pici"]
        if not points:
            self.skipTest("a program without a line of pici: pici is not installed, but taken from a folder")
        if not hasattr(dist.Backend, "_ensure_backend_registered"):
            self.skipTest(
                f"a program without a line of pici: torch {torch.__version__} has no entry points for backends"
            )
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder) / "program.py"
            program.write_text(PROGRAM)
            run = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", str(program)]
            done = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertEqual(done.stdout.count("2.0 pici True"), 2, done.stdout)


PROGRAM = """
import sys
import torch
import torch.distributed as dist
dist.init_process_group("cpu:pici")
x = torch.ones(100000)
with torch.autograd.profiler.profile() as profile:
    dist.all_reduce(x)
ours = any(e.name == "pici:all_reduce" for e in profile.function_events)
backend = dist.distributed_c10d._get_default_group()._get_backend(torch.device("cpu"))
# one write, so that the lines of the ranks do not mix
sys.stdout.write(f"{x[-1].item()} {backend.name()} {ours}\\n")
sys.stdout.flush()
dist.destroy_process_group()
"""


def old_torch(rank, size):
    if CAN:
        dist.Backend._plugins.pop("PICI", None)
        with mock.patch.object(_backend, "supported", lambda: False):
            _backend.register()
    cases.begin("pici")


if __name__ == "__main__":
    unittest.main()
