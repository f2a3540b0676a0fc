# SPDX-License-Identifier: BSD-3-Clause
"""The trainer's engine "pici", for WeightTransferTrainerFactory of vLLM.

Written for vLLM 0.32, with the names of its vllm.distributed.weight_transfer.base.
"""
from __future__ import annotations

import contextlib
import importlib
import inspect
import ipaddress
import os
import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, Optional, Union
from urllib.parse import urlsplit

from vllm.distributed.weight_transfer.base import TrainerInitInfo, TrainerWeightTransferEngine

from .. import _gpu
from . import _wire
from ._appender import Appender
from ._parts import OnGpu
from ._publisher import Publisher, Weights
from ._stats import Step, log


class SendError(RuntimeError):
    """Some servers do not have the sent weights; the message has their errors. The others have them. The next
    send_weights() brings all servers to the same weights."""


@dataclass
class PiciTrainerInitInfo(TrainerInitInfo):
    """How weights go to the servers.

    url: tcp://HOST:PORT or tls://HOST:PORT, where the trainer listens (port 0: any); or a shared delta log,
        file:///FOLDER or an fsspec URL such as s3://BUCKET/RUN.
    certificate, key: for tls, paths of PEM files. Servers get its fingerprint, and accept no other certificate.
    encoding: "small", "replace" or "auto".
    token: the secret that servers need to connect; generated if it is empty.
    advertise: the host that servers connect to; empty: detected.
    threads: encoding threads; 0: one for each core, at most 8.
    overlap: send each part of a delta while making the next. Servers then begin the update before the weights are
        gathered. False: they begin when all parts are made, and generate until then.
    convert: a function of a tensor's name and a tensor; the trainer sends its result.
    check: whether servers compare names, types and shapes with their checkpoint.
    """

    backend: ClassVar[str] = "pici"

    url: str = "tcp://0.0.0.0:0"
    encoding: str = "auto"
    token: str = ""
    advertise: str = ""
    threads: int = 0
    overlap: bool = True
    certificate: str = ""
    key: str = ""
    convert: Optional[Callable[[str, Any], Any]] = None
    check: bool = True


class _Goal(NamedTuple):
    """The target of an update."""

    run: str
    version: int


class PiciTrainerWeightTransferEngine(TrainerWeightTransferEngine):
    """Sends the changes since the version that each server has."""

    init_info_cls = PiciTrainerInitInfo

    def __init__(self, *, client: Any, source: Any = None, is_sender: bool = True) -> None:
        if source is None:
            raise ValueError("source is missing: pass source=ModuleSource(model)")
        super().__init__(client=client, source=source, is_sender=is_sender)
        self.clients: list[Any] = list(client) if isinstance(client, Sequence) else [client]
        self.info: Optional[PiciTrainerInitInfo] = None
        self._weights: Union[Weights, Appender, None] = None
        self._publisher: Optional[Publisher] = None
        self._staging = _Staging()
        self._on_gpu = False
        #: statistics of the last send
        self.step = Step("trainer")

    @classmethod
    def trainer_init(
        cls, init_info: PiciTrainerInitInfo, *, client: Any, source: Any = None
    ) -> PiciTrainerWeightTransferEngine:
        """client: of one server, or a list of clients."""
        engine = cls(client=client, source=source, is_sender=init_info.is_sender)
        engine._open(init_info)
        return engine

    def _open(self, info: PiciTrainerInitInfo) -> None:
        self.info = info
        address = _wire.parsed(info.url)
        if info.encoding not in ("small", "replace", "auto"):
            raise ValueError(f"encoding={info.encoding!r}: pass 'small', 'replace' or 'auto'")
        if address.scheme == _wire.LOG and info.encoding == "replace":
            raise ValueError("a log leads from state to state: pass encoding='small' with the url of a log")
        if address.scheme == _wire.LOG and address.path.startswith(("http:", "https:")):
            raise ValueError(f"url={info.url!r}: logs are read over HTTP, not written: pass tcp:// or the store's URL")
        if (address.scheme == "tls") != bool(info.certificate):
            raise ValueError("a url of tls:// takes a certificate, and others take none: certificate='cert.pem'")
        if not self.is_sender:
            return
        self._fingerprint = ""
        self._token = info.token or secrets.token_hex(16)
        threads = info.threads or min(os.cpu_count() or 1, 8)
        if address.scheme == _wire.LOG:
            self._weights = Appender(address.path, threads)
        else:
            self._weights = Weights(info.encoding, threads)
            tls = None
            if address.scheme == "tls":
                tls, self._fingerprint = _wire.listening(info.certificate, info.key)
            self._on_gpu = os.environ.get("PICI_VLLM_CUDA") == "1"
            if self._on_gpu:
                _gpu.library()  # or report a missing package now
            self._publisher = Publisher(self._weights, address.host, address.port, self._token, tls)
        failures = self._each(self._init)
        if failures:
            self.shutdown()
            raise SendError("servers that cannot take weights: " + "; ".join(failures))

    def _init(self, client: Any) -> None:
        client.init_weight_transfer_engine(self._init_info())

    def _init_info(self) -> dict[str, Any]:
        assert self.info is not None
        encoding = "small" if self._publisher is None else self.info.encoding
        return {"encoding": encoding, "check": self.info.check}

    def send_weights(self, *, whole: bool = False) -> None:
        """Send the source's current weights; on return all servers have loaded them. SendError: some have not.

        whole: send and load all weights, even if servers report that they have them. For servers whose weights others
            changed: after /reload_weights, or after a level-2 sleep, which discards them."""
        if not self.is_sender:
            for _ in self.source:
                pass
            return
        assert self._weights is not None and self.info is not None
        step = self.step = Step("trainer")
        before = 0 if self._publisher is None else self._publisher.bytes
        with ThreadPoolExecutor(1) as pool:
            sent: Optional[Future[list[str]]] = None
            with contextlib.nullcontext() if self._publisher is None else self._publisher.held_back():
                if self._publisher is not None and self.info.overlap and self._weights.version >= 0 and not whole:
                    goal = _Goal(self._weights.run, self._weights.version + 1)
                    sent = pool.submit(self._each, lambda client: self._send(client, goal, whole))
                self._weights.update(self._pairs(), step)
            with step.stage("send"):  # the rest of it
                if sent is None:
                    goal = _Goal(self._weights.run, self._weights.version)
                    sent = pool.submit(self._each, lambda client: self._send(client, goal, whole))
                failures = sent.result()
        if self._publisher is not None:
            step.bytes = self._publisher.bytes - before
        step.report()
        if failures:
            raise SendError(
                f"{len(failures)} of {len(self.clients)} servers do not have version {step.version}: "
                + "; ".join(failures)
            )

    def _pairs(self) -> Iterator[tuple[str, Any]]:
        """The source's weights in host memory."""
        assert self.info is not None
        for name, tensor in self.source:
            if self.info.convert is not None:
                tensor = self.info.convert(name, tensor)
            if not hasattr(tensor, "detach"):
                yield name, tensor
                continue
            tensor = tensor.detach()
            # the copy to the host waits for the current stream, so the threads that make deltas of `there` need not
            there = tensor.contiguous().clone() if self._on_gpu and _gpu.has(tensor) else None
            host = self._staging.on_host(tensor)
            yield name, host if host is tensor else OnGpu(host, there)

    def _each(self, call: Callable[[Any], None]) -> list[str]:
        """Call for all servers at once. Returns the errors, by server."""
        with ThreadPoolExecutor(len(self.clients)) as pool:
            tasks = [pool.submit(call, client) for client in self.clients]
        failures = []
        for i, task in enumerate(tasks):
            error = task.exception()
            if isinstance(error, Exception):
                failures.append(f"{self._name(i)}: {_words(error)}")
            elif error is not None:
                raise error
        return failures

    def _name(self, i: int) -> str:
        return str(getattr(self.clients[i], "base_url", f"server {i}"))

    def _send(self, client: Any, goal: _Goal, whole: bool) -> None:
        """One server's update. After a failure, the server can still take the next one."""
        ticket = secrets.token_hex(8)
        info = {
            **self._init_info(),
            "run": goal.run,
            "version": goal.version,
            "url": self._url(client),
            "token": "" if self._publisher is None else self._token,
            "fingerprint": self._fingerprint,
            "ticket": ticket,
            **({"whole": True} if whole else {}),
        }
        try:
            try:
                client.start_weight_update()
            except Exception as e:
                log.info("a server has an update that was not finished: %s", e)
                self._abandon(client, goal)
                client.start_weight_update()
            client.update_weights(info)
            self._finish(client, goal)
        except Exception as e:
            lost = self._abandon(client, goal)
            told = [_words(e), *lost] if self._publisher is None else self._publisher.words(ticket)
            raise RuntimeError("; ".join(told) or _words(e)) from e
        try:
            _reset_caches(client)
        except Exception as e:
            raise RuntimeError(
                f"it has loaded the weights, and its caches may have what older ones made: {_words(e)}"
            ) from e
        with contextlib.suppress(Exception):  # all workers have loaded it: none keeps its undo state
            client.init_weight_transfer_engine(self._init_info())
        if self._publisher is not None:
            self.step.kind = ", ".join(sorted(set(self._publisher.kinds(ticket)))) or self.step.kind

    def _finish(self, client: Any, goal: _Goal) -> None:
        if "weight_version" in inspect.signature(client.finish_weight_update).parameters:
            client.finish_weight_update(weight_version=str(goal.version))
        else:
            client.finish_weight_update()

    def _abandon(self, client: Any, goal: _Goal) -> list[str]:
        """End an update without its weights: workers discard received weights, and those that have loaded them go back.
        Calls all workers, even if some fail: some may be within the update and others not. Returns the error of one
        that could not go back."""
        lost = []
        with contextlib.suppress(Exception):
            client.start_weight_update()
        try:
            client.update_weights({"abort": True, "run": goal.run, "version": goal.version})
        except Exception as e:
            lost = [_words(e)] if "lost" in _words(e) else []
        with contextlib.suppress(Exception):
            client.finish_weight_update()
        return lost

    def _url(self, client: Any) -> str:
        """The address that a server connects to."""
        assert self.info is not None
        if self._publisher is None:
            return self.info.url
        scheme, host = _wire.parsed(self.info.url)[:2]
        host = self.info.advertise or host
        if not self.info.advertise and _is_any(host):
            host = _own_address(urlsplit(str(getattr(client, "base_url", ""))).hostname or "127.0.0.1")
        return _wire.spelled(scheme, host, self._publisher.port)

    def shutdown(self) -> None:
        if self._publisher is not None:
            self._publisher.close()


class _Staging:
    """Copies torch tensors from CUDA to the host through pinned memory, which is several times faster. One buffer, as
    long as the longest tensor."""

    def __init__(self) -> None:
        self._buffer: Any = None
        self._pins = True

    def on_host(self, x: Any) -> Any:
        if not getattr(x, "is_cuda", False) or not self._pins:
            return x.cpu()
        torch = importlib.import_module("torch")
        octets = x.contiguous().reshape(-1).view(torch.uint8)
        count = octets.numel()
        try:
            if self._buffer is None or self._buffer.numel() < count:
                self._buffer = None  # first, so that two are not needed at once
                self._buffer = torch.empty(count, dtype=torch.uint8, pin_memory=True)
        except RuntimeError as e:  # the system's limit of locked memory
            log.warning("no pinned memory, which takes longer: %s", e)
            self._pins = False
            return x.cpu()
        staged = self._buffer[:count]
        staged.copy_(octets)
        return staged.clone().view(x.dtype).reshape(x.shape)  # pinned memory is shared by the next one


def _reset_caches(client: Any) -> None:
    """Clear a server's results of older weights, which finish_weight_update() does not do: the prefix cache, and the
    encoders' cache. Running requests recompute what they have so far."""
    done = True
    if hasattr(client, "reset_encoder_cache"):
        client.reset_encoder_cache()
    if hasattr(client, "reset_prefix_cache"):
        done = client.reset_prefix_cache(True) is not False
    elif hasattr(client, "_post") and hasattr(client, "base_url"):  # vLLM's HTTPVLLMWeightSyncClient
        client._post("reset_prefix_cache?reset_running_requests=true")
        try:
            client._post("reset_encoder_cache")
        except Exception as e:  # a vLLM without one says "not found"
            if getattr(getattr(e, "response", None), "status_code", None) != 404:
                raise
    elif hasattr(client, "handles"):  # vLLM's RayVLLMWeightSyncClient
        ray = importlib.import_module("ray")
        done = all(ok is not False for ok in ray.get([h.reset_prefix_cache.remote(True) for h in client.handles]))
    else:
        log.warning("%s has no reset_prefix_cache(): prompts may be answered by older weights", type(client).__name__)
    if not done:
        raise RuntimeError("vLLM did not reset it")


def _is_any(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return not host


def _own_address(of: str) -> str:
    """This host's address in the network that leads to a server."""
    with contextlib.suppress(OSError):
        family, kind, _, _, there = socket.getaddrinfo(of, 9, type=socket.SOCK_DGRAM)[0]
        with socket.socket(family, kind) as s:
            s.connect(there)
            return str(s.getsockname()[0])
    return socket.gethostname()


def _words(error: Exception) -> str:
    """The error, with an HTTP server's description of it."""
    text = getattr(getattr(error, "response", None), "text", "")
    return f"{error}: {text}" if text else str(error)
