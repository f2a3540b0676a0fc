# SPDX-License-Identifier: BSD-3-Clause
"""pici for torch.distributed: averages gradients with mostly zero elements, and sends only the nonzeros.

DistributedDataParallel (torch 1.13 or later), lossless; state: None, a process group or a State:

    ddp.register_comm_hook(None, pici.torch.all_reduce_hook)

The largest 1% of the gradients, with error feedback:

    state = pici.torch.TopKState(density=0.01)
    ddp.register_comm_hook(state, pici.torch.topk_hook)

8-bit gradients, with error feedback:

    ddp.register_comm_hook(pici.torch.QuantizeState(bits=8), pici.torch.quantize_hook)

Ranks that train locally and average every few steps (DiLoCo, SparseLoCo):

    outer = pici.torch.Outer(model, inner_steps=50, method="bits")

FSDP2 (torch.distributed.fsdp.fully_shard):

    pici.torch.fully_shard(model)

Lists of tensors, and a pici.Comm among the ranks of a process group:

    pici.torch.all_reduce([p.grad for p in model.parameters()], state=state)
    comm = pici.torch.comm()

A sparse tensor, such as the gradient of an Embedding(sparse=True); the hooks and the backend support these too:

    pici.torch.all_reduce_sparse(embedding.weight.grad, op=torch.distributed.ReduceOp.AVG)

Files, with the arguments of torch.load and of safetensors.torch:

    pici.torch.load(path), pici.torch.load_file(path), pici.torch.save_file(tensors, path)

Any CPU program of torch.distributed, including FSDP and functional collectives, through a backend (torch 2.14 or
later):

    torch.distributed.init_process_group("cpu:pici")           # or "cpu:pici,cuda:nccl"

torch 2.15 finds it even if the program does not import pici. help(pici.torch._backend) lists the calls that it makes.

The ranks connect by TCP: see pici/_peers.py for the network interface and ports. Messages are not encrypted.

Environment, besides the variables of the library's collectives:
    PICI_SOCKET_IFNAME      the network interface to listen at; else GLOO_SOCKET_IFNAME; else the route to
                            MASTER_ADDR
    PICI_SOCKET_PORTS       "lo-hi": the ports to listen at
    PICI_TORCH_MIN_BYTES    default 65536: the backend leaves smaller tensors to gloo; the same on all ranks
    PICI_TORCH_STATS=1      a line on stderr at the end of rank 0: calls, bytes sent, seconds
    PICI_TORCH_CUDA=1       send CUDA tensors through pici and libpici_nccl, which no test has run on a GPU; else they
                            go to torch's own backend, with one warning
    PICI_TORCH_OUTER=sockets  send their messages between hosts over sockets

When a rank fails, all others raise an exception that names it, in backward() or wait(). The communicator is then
broken, and later calls raise BrokenError: make a new process group."""
try:
    import torch.distributed as _dist
except ImportError as e:
    raise ImportError(f"pici.torch needs torch, 1.13 or later: {e}") from e
if not _dist.is_available():
    raise ImportError("pici.torch needs a torch that was built with torch.distributed")

from . import _backend  # noqa: E402
from ._files import load, load_file, save_file  # noqa: E402
from ._fsdp import fully_shard  # noqa: E402
from ._group import comm  # noqa: E402
from ._hooks import State, all_reduce_hook  # noqa: E402
from ._lists import all_reduce  # noqa: E402
from ._outer import Outer  # noqa: E402
from ._quantize import QuantizeState, quantize_hook  # noqa: E402
from ._sparse import all_reduce_sparse  # noqa: E402
from ._topk import TopKState, topk_hook  # noqa: E402

_backend.register()

__all__ = [
    "all_reduce_hook",
    "State",
    "topk_hook",
    "TopKState",
    "quantize_hook",
    "QuantizeState",
    "all_reduce",
    "all_reduce_sparse",
    "comm",
    "Outer",
    "fully_shard",
    "load",
    "load_file",
    "save_file",
]
