# SPDX-License-Identifier: BSD-3-Clause
"""pici.torch: hooks of DDP and the communicator of a process group, with ranks that are processes."""
import os
import pickle
import subprocess
import sys
import tempfile
import unittest
from datetime import timedelta

import torch

import group_cases
import hooks_cases as cases
import pici.torch
import ranks


SOON = 60  # seconds, on a busy machine; the groups' timeout is longer


class Dtypes(unittest.TestCase):
    """Tests of several dtypes of gradients."""

    @classmethod
    def setUpClass(cls):
        cls.lacks = ranks.run(1, cases.gloo_lacks)[0]

    def need(self, dtype):
        if dtype in self.lacks:
            self.skipTest(f"gradients of {dtype}: gloo of torch {torch.__version__} has none")


class Lossless(Dtypes):
    def test_equals_gloo(self):
        for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
            with self.subTest(str(dtype)):
                self.need(dtype)
                for size in (1, 2, 3):
                    ranks.run(size, cases.equals_gloo, [dtype])

    def test_complex_gradients(self):
        self.need(torch.complex64)
        ranks.run(2, cases.complex_gradients)

    def test_group_of_some_ranks(self):
        ranks.run(3, cases.own_group)

    def test_several_groups(self):
        ranks.run(3, cases.several_groups)

    def test_gradient_accumulation(self):
        for size in (2, 3):
            ranks.run(size, cases.accumulates)

    def test_uneven_inputs(self):
        ranks.run(2, cases.joins)

    def test_empty_gradients(self):
        for size in (1, 2, 3):
            ranks.run(size, cases.empty_gradients)

    def test_half_is_divided_first(self):
        ranks.run(2, cases.half_is_divided_first)

    def test_min_bytes(self):
        ranks.run(2, cases.min_bytes)

    def test_other_gradients(self):
        ranks.run(2, cases.other_gradients)

    def test_hooks_agree_at_density_1(self):
        for size, options in (
            (2, {}),
            (3, {"bucket_cap_mb": 0.005}),
            (2, {"find_unused_parameters": True}),
            (2, {"static_graph": True, "bucket_cap_mb": 0.005}),
            (3, {"gradient_as_bucket_view": True, "dtype": torch.bfloat16}),
        ):
            with self.subTest(size=size, **{k: str(v) for k, v in options.items()}):
                self.need(options.get("dtype"))
                results = ranks.run(size, cases.training_by_hooks, options)
                self.assertEqual(len({repr(r) for r in results}), 1, "the ranks differ")


class TopK(Dtypes):
    def test_selects(self):
        ranks.run(2, cases.selects)

    def test_selects_in_bucket(self):
        ranks.run(2, cases.selects_in_bucket)

    def test_conserves(self):
        for options in ({}, {"find_unused_parameters": True}, {"static_graph": True}, {"start_iter": 2}):
            with self.subTest(**options):
                ranks.run(2, cases.conserves, options)

    def test_conserves_exactly(self):
        for dtype in (torch.float16, torch.bfloat16, torch.float32):
            with self.subTest(str(dtype)):
                self.need(dtype)
                ranks.run(2, cases.conserves_exactly, dtype)

    def test_without_feedback(self):
        ranks.run(2, cases.without_feedback)

    def test_parameter_without_gradient(self):
        for everywhere in (True, False):
            ranks.run(2, cases.unused, everywhere)

    def test_warmup(self):
        ranks.run(2, cases.warmup)

    def test_resumes(self):
        for how in ("dict", "pickle"):
            # DDP rebuilds its buckets after the first step of the resumed run, which changes the order of sums. The sum
            # of two numbers has one order; with find_unused_parameters, buckets are never rebuilt.
            for size, options in ((2, {}), (3, {"find_unused_parameters": True})):
                with self.subTest(how, size=size):
                    ranks.run(size, cases.resumes, "topk", how, options)
        ranks.run(3, cases.resumes, "topk", "dict", {}, False)

    def test_refuses_states(self):
        ranks.run(1, cases.refuses_states)


class Quantize(Dtypes):
    def test_rounds_and_conserves(self):
        for size, options in ((2, {}), (3, {"static_graph": True})):
            with self.subTest(size=size):
                ranks.run(size, cases.rounds_and_conserves, options)

    def test_dtypes(self):
        for dtype, close in ((torch.float16, 0.05), (torch.bfloat16, 0.4), (torch.float64, 1e-12)):
            with self.subTest(str(dtype)):
                self.need(dtype)
                ranks.run(2, cases.quantized_dtypes, dtype, close)

    def test_sends_less(self):
        ranks.run(2, cases.sends_less)

    def test_rounds_at_random(self):
        ranks.run(2, cases.rounds_at_random)

    def test_parameter_without_gradient(self):
        ranks.run(2, cases.unused, True, True)

    def test_resumes(self):
        for kind in ("quantize", "topk of 4 bits"):
            for how in ("dict", "pickle"):
                # With buckets that change, other elements share a scale, so the resumed run rounds in another way.
                with self.subTest(kind, how=how):
                    ranks.run(3, cases.resumes, kind, how, {"find_unused_parameters": True})

    def test_learns(self):
        results = ranks.run(2, cases.learns)
        for (exact, _), *others in results:
            for loss, _ in others:
                self.assertLess(loss, 1.2 * exact + 0.02)
        self.assertEqual([weights for _, weights in results[0]], [weights for _, weights in results[1]])

    def test_seeds_of_iterations(self):
        state = pici.torch.QuantizeState(values={"codec": "qsgd", "seed": 2**64 - 1})
        seeds = set()
        for state.iter in range(1000):
            seeds.add(state._values_now().seed)
        self.assertEqual(len(seeds), 1000)
        self.assertTrue(all(0 <= seed < 2**64 for seed in seeds))


class Arguments(unittest.TestCase):
    def test_refused(self):
        for make, words in (
            (lambda: pici.torch.State(zeros="exact"), "zeros='exact'"),
            (lambda: pici.torch.State(min_bytes=-1), "min_bytes=-1"),
            (lambda: pici.torch.State(timeout=0), "timeout"),
            (lambda: pici.torch.State(timeout=timedelta(seconds=-1)), "timeout"),
            (lambda: pici.torch.State(opts={"op": "max"}), "opts: op"),
            (lambda: pici.torch.State(opts={"algorithm": "bell"}), "algorithm='bell'"),
            (lambda: pici.torch.TopKState(density=0), "density=0"),
            (lambda: pici.torch.TopKState(density=1.5), "density=1.5"),
            (lambda: pici.torch.TopKState(density=float("nan")), "density=nan"),
            (lambda: pici.torch.TopKState(start_iter=-1), "start_iter=-1"),
            (lambda: pici.torch.TopKState(warmup_iters=-1), "warmup_iters=-1"),
            (lambda: pici.torch.TopKState(min_numel=-1), "min_numel=-1"),
            (lambda: pici.torch.TopKState(selection="layer"), "selection='layer'"),
            (lambda: pici.torch.TopKState(bits=3), "bits=3"),
            (lambda: pici.torch.TopKState(opts={"values": {"codec": "qsgd"}}), "opts: values"),
            (lambda: pici.torch.QuantizeState(bits=16), "bits=16"),
            (lambda: pici.torch.QuantizeState(bits=4, values={"codec": "cast"}), "bits or values"),
            (lambda: pici.torch.QuantizeState(values={"codec": "q4"}), "codec='q4'"),
            (lambda: pici.torch.QuantizeState(values={"codec": "qsgd", "residual": []}), "the state keeps it"),
            (lambda: pici.torch.QuantizeState(start_iter=-1), "start_iter=-1"),
        ):
            with self.subTest(words):
                with self.assertRaisesRegex(ValueError, words):
                    make()
        for make, words in (
            (lambda: pici.torch.State(opts={"algoritm": "ring"}), "'algoritm'"),
            (lambda: pici.torch.State("gloo"), "process_group='gloo'"),
            (lambda: pici.torch.TopKState(grad_scaler=2.0), "grad_scaler=2.0"),
        ):
            with self.subTest(words):
                with self.assertRaisesRegex(TypeError, words):
                    make()

    def test_repr(self):
        self.assertRegex(repr(pici.torch.TopKState(density=0.5)), r"^TopKState\(process_group=None, density=0.5, .*\)$")
        self.assertRegex(repr(pici.torch.QuantizeState(bits=4)), r"values=Values\(codec='qsgd', .*bits=4")

    def test_hook_without_its_state(self):
        with self.assertRaisesRegex(TypeError, "needs a pici.torch.TopKState"):
            pici.torch.topk_hook(None, None)
        with self.assertRaisesRegex(TypeError, "needs a pici.torch.QuantizeState, not TopKState"):
            pici.torch.quantize_hook(pici.torch.TopKState(), None)
        with self.assertRaisesRegex(TypeError, "does not use a TopKState: register pici.torch.topk_hook"):
            pici.torch.all_reduce_hook(pici.torch.TopKState(), None)
        self.assertIn("5 is no process group", ranks.run(1, no_group)[0])

    def test_pickle_leaves_the_group_out(self):
        state = pici.torch.TopKState(density=0.5)
        again = pickle.loads(pickle.dumps(state))
        self.assertIsNone(again.process_group)
        self.assertEqual((again.density, again.iter, again.density_now()), (0.5, 0, 1.0))
        again = pickle.loads(pickle.dumps(pici.torch.QuantizeState(bits=2)))
        self.assertEqual((again.process_group, again.values), (None, pici.Values("qsgd", bits=2, rounding="nearest")))
        again = pickle.loads(pickle.dumps(pici.torch.State(min_bytes=7, timeout=5)))
        self.assertEqual((again.process_group, again.min_bytes, again.timeout), (None, 7, 5))


def no_group(rank, size):
    cases.begin()
    try:
        cases.averaged(pici.torch.all_reduce_hook, 5, [torch.ones(10)])
    except (TypeError, RuntimeError) as e:  # torch 1.13: a RuntimeError that names the TypeError
        return str(e)


class Failures(unittest.TestCase):
    def test_killed_rank(self):
        for hook in ("all_reduce_hook", "topk_hook", "quantize_hook"):
            with self.subTest(hook):
                ends = ranks.ended(3, group_cases.killed, hook, timeout=SOON)
                self.assertIn("died", ends[1].error)
                for rank in (0, 2):
                    self.assertFalse(ends[rank].error, ends[rank])
                    (first, second), seconds = ends[rank].value
                    self.assertRegex(first, r"^RuntimeError: .*\bPeerError: .*rank 1")  # see docs/reference/torch.md
                    self.assertRegex(second, r"^RuntimeError: .*\bBrokenError: ")
                    self.assertLess(seconds, SOON / 2)

    def test_selection_that_fails(self):
        ends = ranks.ended(3, group_cases.selection_fails, timeout=SOON)
        self.assertIn("no memory for the selection", ends[1].error)
        for rank in (0, 2):
            self.assertRegex(ends[rank].error, "rank 1")
            self.assertLess(ends[rank].seconds, SOON / 2)  # though rank 1 lives

    def test_ranks_that_differ(self):
        rings = ("ring on rank [02]", "recursive on rank 1")
        for how, words in (
            ("size", ("1000 on rank [02]", "1001 on rank 1")),
            ("op", ("sum on rank [02]", "max on rank 1")),
            ("algorithm", rings),
            ("state", rings),
        ):
            with self.subTest(how):
                for end in ranks.ended(3, group_cases.differs, how, timeout=SOON):
                    self.assertIn("PeerError", end.error)
                    for word in words:
                        self.assertRegex(end.error, word)

    def test_choices_that_differ(self):
        for end in ranks.ended(3, group_cases.other_choice, timeout=SOON):
            self.assertRegex(end.error, "ValueError.*rank 0 has min_bytes=0 .*rank 1 has min_bytes=5000 ")
            self.assertLess(end.seconds, SOON / 2)

    def test_rank_that_dies_before_the_first_bucket(self):
        ends = ranks.ended(3, group_cases.dies_first, timeout=SOON)
        for rank in (0, 2):
            self.assertRegex(ends[rank].error, "PeerError.*(a rank ended|rank 1)")
            self.assertLess(ends[rank].seconds, SOON / 2)

    def test_store_that_is_gone(self):
        for end in ranks.ended(3, group_cases.store_is_gone, timeout=SOON)[1:]:
            self.assertRegex(end.error, "PeerError.*store does not answer.*rank 0")

    def test_rank_that_does_not_come(self):
        end, _ = ranks.ended(2, group_cases.does_not_come)
        self.assertRegex(end.error, "TimedOutError.*waiting for rank 1")

    def test_environment(self):
        for variables, words in (
            ({"PICI_SOCKET_IFNAME": "nix0"}, "PICI_SOCKET_IFNAME=nix0"),
            ({"PICI_SOCKET_PORTS": "x"}, "PICI_SOCKET_PORTS=x"),
            ({"PICI_TORCH_STATS": "yes"}, "PICI_TORCH_STATS=yes"),
            ({"PICI_TORCH_CUDA": "maybe"}, "PICI_TORCH_CUDA=maybe"),
            ({"PICI_TORCH_CUDA": "1"}, "PICI_TORCH_CUDA=1"),
            ({"PICI_ALGORITHM": "bell"}, "PICI_ALGORITHM"),
        ):
            with self.subTest(words):
                for end in ranks.ended(2, group_cases.first_call, variables, timeout=SOON):
                    self.assertIn(words, end.error)

    def test_cuda_flag(self):
        """Without a hook: nonsense is refused when the communicator is made, though no tensor is a GPU's."""
        for end in ranks.ended(2, group_cases.cuda_flag, timeout=SOON):
            self.assertIn("PICI_TORCH_CUDA=maybe: not 0 or 1", end.error)


class Communicator(unittest.TestCase):
    def test_order_and_errors(self):
        ranks.run(3, group_cases.order_and_errors)

    def test_threads_in_another_order(self):
        ranks.run(2, group_cases.crossed)

    def test_abort(self):
        words = ranks.run(3, group_cases.aborts)
        self.assertNotIn("no error", words)

    def test_ends_with_its_group(self):
        ranks.run(2, group_cases.ends_with_group)

    def test_fork(self):
        ends = ranks.ended(2, group_cases.forks, timeout=SOON)
        words, seconds = ends[1].value
        self.assertIn("rank 0", words)
        self.assertLess(seconds, SOON / 2)


STATS = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
import pici.torch
rank = int(os.environ["RANK"])
dist.init_process_group("gloo", init_method=os.environ["STORE"], rank=rank, world_size=2)
model = torch.nn.Linear(100, 100)
ddp = DistributedDataParallel(model)
ddp.register_comm_hook(pici.torch.TopKState(density=0.01, start_iter=0), pici.torch.topk_hook)
for _ in range(3):
    ddp(torch.ones(4, 100)).sum().backward()
"""


class Exit(unittest.TestCase):
    def test_stats(self):
        with tempfile.TemporaryDirectory() as folder:
            own = {"STORE": f"file://{folder}/store", "MASTER_ADDR": "127.0.0.1", "PICI_TORCH_STATS": "1"}
            done = [
                subprocess.Popen(
                    [sys.executable, "-c", STATS], env=dict(os.environ, RANK=str(r), **own), stderr=subprocess.PIPE
                )
                for r in range(2)
            ]
            words = [p.communicate(timeout=60)[1].decode() for p in done]
            self.assertEqual([p.returncode for p in done], [0, 0], words)
        lines = [line for line in words[0].splitlines() if line.startswith("pici.torch:")]
        self.assertEqual(len(lines), 1, words)
        self.assertRegex(lines[0], r"3 calls, .* MB sent, .* waiting; top-k: density 0\.0\d+, ")
        self.assertNotIn("pici.torch:", words[1])


if __name__ == "__main__":
    unittest.main()
