# SPDX-License-Identifier: BSD-3-Clause
"""torch's own tests of torch.distributed, from its wheel, as a test case that own.py runs. BACKEND and WORLD_SIZE are
in the environment. PICI_AS_GLOO=1: what calls itself gloo is the backend pici."""
import os

import torch.multiprocessing
from torch.testing._internal.common_distributed import DistTestCases

from pici.torch import _backend

if os.environ.get("PICI_AS_GLOO") == "1":
    torch.distributed.Backend.register_backend("gloo", _backend._create, extended_api=True, devices=["cpu"])
if os.environ["BACKEND"] == "pici":
    # Where torch lists what its backends can do. Without this, the tests of DDP and of subgroups skip other backends.
    for feature in ("ddp", "subgroup", "plugin"):
        DistTestCases.backend_feature[feature] = DistTestCases.backend_feature[feature] | {"pici"}

from torch.testing._internal.distributed.distributed_test import DistributedTest, TestDistBackend  # noqa: E402


class Suite(TestDistBackend, DistributedTest._DistTestBase):
    """Each test runs on WORLD_SIZE processes. They are forked from a server that has imported torch: torch's own way,
    a new interpreter for each, takes seconds more."""

    def setUp(self):
        super().setUp()
        self._start_processes(_process)


def _process(target, name, args, kwargs):
    process = torch.multiprocessing.get_context("forkserver").Process
    return process(target=_run, name=name, args=(dict(os.environ), target, args, kwargs))


def _run(environment, target, args, kwargs):
    """The server has the environment of its start."""
    os.environ.update(environment)
    target(*args, **kwargs)


TestDistBackend.__test__ = False
