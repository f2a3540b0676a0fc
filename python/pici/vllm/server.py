# SPDX-License-Identifier: BSD-3-Clause
"""The vLLM server's engine "pici". vLLM's factory imports this module if the server is configured for it.

vLLM calls init_transfer_engine() once; then for each update start_weight_update(), update_weights() and
finish_weight_update(). update_weights() gets the weights and checks all of them, but changes nothing.
finish_weight_update() loads them. So all workers of a server have checked before one of them loads.

Written for vLLM 0.32, with the names of its vllm.distributed.weight_transfer.base.
"""
from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Optional

from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)

from .. import folders
from .._outfolder import LIST
from ..errors import Error
from . import _parts
from ._parts import Meta
from ._replica import Refused, Replica, Source, Update, report
from ._shared import folder_of_server
from ._stats import Step, log
from ._together import SharedReplica


# of layers that keep weights on CUDA as they are in the checkpoint; attention layers have scales at most
_PLAIN_METHODS = {"UnquantizedLinearMethod", "UnquantizedEmbeddingMethod"}
_PLAIN_LAYERS = {"Attention", "MMEncoderAttention"}

CHECKPOINT = "the weights of its checkpoint"
LOST = "weights that are lost or half loaded"


@dataclass
class PiciInitInfo(WeightTransferInitInfo):
    """The trainer's first message to a server."""

    encoding: str = "auto"
    check: bool = True


@dataclass
class PiciUpdateInfo(WeightTransferUpdateInfo):
    """The trainer's message for each update. It is self-contained, so that restarted servers understand it."""

    run: str = ""
    version: int = -1
    url: str = ""
    token: str = ""
    fingerprint: str = ""
    ticket: str = ""
    encoding: str = "auto"
    check: bool = True
    abort: bool = False
    whole: bool = False


class PiciWeightTransferEngine(WeightTransferEngine):
    """Weights by small deltas, over sockets or from a delta log."""

    init_info_cls = PiciInitInfo
    update_info_cls = PiciUpdateInfo
    supports_draft_weight_update = False

    to = "torch"  # the type in which weights are loaded
    folder: Optional[str] = None  # where workers of one host meet; None: named after their parent process

    def __init__(self, config: Any, vllm_config: Any, device: Any, model: Any) -> None:
        super().__init__(config, vllm_config, device, model)
        #: the weights that the model has; none yet: the checkpoint's
        self._replica: Optional[Replica] = None
        #: gets updates: the same, or one with another encoding, which takes over once the model has its weights
        self._taking: Optional[Replica] = None
        self._has = CHECKPOINT
        self._update: Optional[Update] = None
        self._source: Optional[Source] = None
        self._step = Step("server")
        self._last: Optional[tuple[Update, Callable[[], None], str]] = None
        self._check = True
        self._known: Optional[dict[str, Meta]] = None
        self._rest: dict[str, Any] = {}
        rank = getattr(self.parallel_config, "rank", 0)
        #: in messages
        self.name = f"{socket.gethostname()} (process {os.getpid()}, rank {rank})"

    # ---- called by vLLM

    def init_transfer_engine(self, init_info: PiciInitInfo) -> None:
        self._update = None
        self._keep(None)
        self._begin(init_info.encoding, init_info.check)

    def start_weight_update(self) -> None:
        self._update = None

    def receive_weights(self, update_info: PiciUpdateInfo) -> None:
        self._update = None
        if update_info.abort:
            self._abort(update_info)
            return
        self._keep(None)
        replica = self._begin(update_info.encoding, update_info.check)
        self._source = Source(
            update_info.url,
            update_info.token,
            update_info.ticket,
            update_info.run,
            update_info.version,
            update_info.fingerprint,
            update_info.whole,
        )
        self._step = Step(f"server {self.name}")
        with self._telling(f"it has {self._has} still"):
            self._update = replica.fetch(self._source, self._accept, self._step)

    def finish_weight_update(self) -> None:
        update, self._update = self._update, None
        if update is None:
            return
        assert self._taking is not None
        replica, before = self._taking, self._has
        with self._telling(f"it has {before} still"):
            go_back = replica.switch(update)
        try:
            with self._step.stage("load"):
                if update.changes:
                    self._load(replica, update)
        except BaseException as e:
            if replica.shared:  # others may load from the mirror now
                replica.broken()
                self._has = LOST
                self._keep(update, go_back, before)
                if isinstance(e, Exception):
                    raise self._told(e, "it goes back when the trainer ends this update") from e
                raise
            go_back()
            state = self._restore(before)
            replica.commit(update)
            if isinstance(e, Exception):
                raise self._told(e, state) from e
            raise
        if self._replica is not None and self._replica is not replica:
            self._replica.close()
        self._replica = replica
        self._has = f"version {update.version}"
        self._keep(update, go_back, before)
        self._step.version = update.version
        self._step.kind = update.kind
        self._step.report()

    def shutdown(self) -> None:
        self._update = None
        self._keep(None)
        for replica in {self._replica, self._taking} - {None}:
            assert replica is not None
            replica.close()
        self._replica = self._taking = None

    # ---- undo

    def _keep(
        self, update: Optional[Update], go_back: Optional[Callable[[], None]] = None, before: str = CHECKPOINT
    ) -> None:
        """Keep the undo state of a loaded update while other workers may still fail to load it; an abort reports that.
        Frees the previous one; init_transfer_engine() does that too, once all have loaded the update."""
        if self._last is not None and self._taking is not None:
            self._taking.commit(self._last[0])
        self._last = None
        if update is not None and go_back is not None and self._taking is not None:
            if getattr(self.parallel_config, "world_size", 1) > 1:
                self._last = (update, go_back, before)
            else:
                self._taking.commit(update)

    def _abort(self, info: PiciUpdateInfo) -> None:
        """Undo an update that another worker did not load."""
        if self._last is None or (self._last[0].run, self._last[0].version) != (info.run, info.version):
            return
        update, go_back, before = self._last
        go_back()
        self._keep(None)
        if update.changes:
            state = self._restore(before)
        else:
            self._has, state = before, f"it went back to {before}"
        words = f"a worker did not load version {update.version}"
        if self._has == LOST:
            raise self._told(RuntimeError(words), state)
        log.warning("server %s: %s; %s", self.name, words, state)

    # ---- loading

    def _begin(self, encoding: str, check: bool) -> Replica:
        """Return the object that gets the next updates."""
        self._check = check
        chosen = self._chosen(encoding)
        if self._taking is not None and self._taking.encoding == chosen:
            return self._taking
        if self._taking is not None and self._taking is not self._replica:
            self._taking.close()
        if self._replica is not None and self._replica.encoding == chosen:
            self._taking = self._replica
            return self._taking
        workers = max(getattr(self.parallel_config, "world_size", 1), 1)
        threads = min(4, max((os.cpu_count() or 1) // workers, 1))
        if chosen == _parts.SMALL and workers > 1:
            self._taking = SharedReplica(self.to, threads, self._meeting())
        else:
            self._taking = Replica(chosen, self.to, threads)
        return self._taking

    def _meeting(self) -> str:
        """The folder in which the workers of this server meet."""
        instance = getattr(self.vllm_config, "instance_id", "")
        index = getattr(self.parallel_config, "data_parallel_index", 0)
        return self.folder or folder_of_server(f"_{instance}_{index}")

    def _chosen(self, encoding: str) -> str:
        if encoding not in (_parts.SMALL, _parts.REPLACE, "auto"):
            raise ValueError(f"encoding={encoding!r}: pass 'small', 'replace' or 'auto'")
        if encoding == "auto":
            replica = self._replica or self._taking
            if replica is not None:
                return replica.encoding
            return _parts.SMALL if self._packed() or self._fits() else _parts.REPLACE
        if encoding == _parts.REPLACE and self._packed():
            raise ValueError(
                "encoding='replace' changes weights where they are, and this model's are packed after loading (on a "
                "CPU, quantized, or in layers such as FusedMoE and MLA): pass encoding='small'"
            )
        return encoding

    def _packed(self) -> bool:
        """Whether weights may be stored in another form than in the checkpoint: by layers that are not known to store
        them unchanged, or by loaders that compute with earlier contents."""
        quantized = getattr(self.vllm_config, "quant_config", None) is not None
        if quantized or getattr(self.device, "type", "") != "cuda":
            return True
        for layer in self.model.modules():
            method = getattr(layer, "quant_method", None)
            if method is not None and type(method).__name__ not in _PLAIN_METHODS:
                return True
            of_vllm = {c.__name__ for c in type(layer).__mro__}
            if callable(getattr(layer, "process_weights_after_loading", None)) and not of_vllm & _PLAIN_LAYERS:
                return True
            for p in getattr(layer, "_parameters", {}).values():
                if "composed" in getattr(getattr(p, "weight_loader", None), "__qualname__", ""):
                    return True
        return False

    def _fits(self) -> bool:
        """Whether a mirror fits in host memory twice, once for an update, for each data-parallel replica of the server
        on this host. False if the size is unknown."""
        servers = max(getattr(self.parallel_config, "data_parallel_size_local", 1), 1)
        need = 2 * servers * sum(meta.bytes for meta in self._checkpoint().values())
        if not need:
            return False
        with contextlib.suppress(OSError, ValueError):
            with open("/proc/meminfo", encoding="ascii") as f:
                free = next(int(line.split()[1]) << 10 for line in f if line.startswith("MemAvailable:"))
            return need < free
        return True

    def _checkpoint(self) -> dict[str, Meta]:
        """The tensors of the model's own checkpoint; none if it is not on this host."""
        if self._known is None:
            folder = self._folder()
            try:
                with self._shards() as shards:
                    listed = folders.list_folder(shards) if shards else {}
                self._known = {n: Meta(n, t.dtype, tuple(t.shape)) for n, t in listed.items()}
            except (Error, OSError, ValueError) as e:
                log.warning("the checkpoint in %s is not read: %s", folder, e)
                self._known = {}
        return self._known

    def _folder(self) -> Optional[str]:
        model = str(self.model_config.model)
        if os.path.isdir(model):
            return model
        with contextlib.suppress(Exception):  # missing, or no such package
            from huggingface_hub import snapshot_download

            return str(snapshot_download(model, revision=self.model_config.revision, local_files_only=True))
        return None

    @contextlib.contextmanager
    def _shards(self) -> Iterator[Optional[str]]:
        """A folder with links to the files that vLLM loads from the checkpoint; with an index, the files in it. The
        checkpoint may also have the same weights for other programs, such as consolidated.safetensors.
        """
        folder = self._folder()
        if folder is None or os.path.exists(os.path.join(folder, LIST)):
            yield folder
            return
        try:
            with open(os.path.join(folder, "model.safetensors.index.json"), encoding="utf-8") as f:
                names = sorted({str(name) for name in json.load(f)["weight_map"].values()})
        except FileNotFoundError:
            found = sorted(name for name in os.listdir(folder) if name.endswith(".safetensors"))
            names = [name for name in found if not name.startswith("consolidated")] or found
        except (KeyError, TypeError, AttributeError) as e:
            raise ValueError(f"the index is invalid: {e!r}") from None
        with tempfile.TemporaryDirectory(prefix="pici-") as links:
            for i, name in enumerate(names):
                os.symlink(os.path.abspath(os.path.join(folder, name)), os.path.join(links, f"{i}.safetensors"))
            yield links if names else None

    def _accept(self, metas: list[Meta]) -> None:
        """Reject weights of another model than the served one."""
        known = self._checkpoint()
        if not self._check or not known:
            return
        for meta in metas:
            own = known.get(meta.name)
            if own is None:
                raise Refused(f"tensor {meta.name!r} is not in the checkpoint of {self.model_config.model}")
            if own.shape != meta.shape or own.dtype != meta.dtype:
                raise Refused(
                    f"tensor {meta.name!r} is {meta.dtype} {list(meta.shape)}, and {own.dtype} {list(own.shape)} in "
                    f"the checkpoint of {self.model_config.model}"
                )

    def _load(self, replica: Replica, update: Update) -> None:
        if replica.encoding == _parts.SMALL:
            self._reload(replica.items())
        elif update.whole is not None:
            self._reload((name, x) for group in update.whole for name, x in group.items())
        else:
            self._patch(update)

    def _reload(self, weights: Iterator[tuple[str, Any]]) -> None:
        """Load all weights, as at the server's start."""
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload

        given = dict(weights)
        rest = self._not_sent(given)
        initialize_layerwise_reload(self.model)
        try:
            self.model.load_weights(iter([*given.items(), *(rest or {}).items()]))
            if rest is None:
                for name in self._partial():
                    raise Refused(
                        f"layer {name!r} got some of its weights and not all, and there is no checkpoint on this host "
                        "with the others by the names that are sent: send all"
                    )
        except BaseException:
            for name in self._partial():  # these would have unwritten memory
                info = self._layers()[name]
                info.load_numel, info.loaded_weights = 0, []
            raise
        finally:
            finalize_layerwise_reload(self.model, self.model_config)
            self._pack_again()

    def _not_sent(self, given: dict[str, Any]) -> Optional[dict[str, Any]]:
        """The checkpoint's tensors that the trainer does not send: layers are loaded as a whole. None: unknown."""
        known = self._checkpoint()
        missing = [name for name in known if name not in given]
        if not known or (missing and any(name not in known for name in given)):
            return None
        unread = [name for name in missing if name not in self._rest]
        if unread:
            with self._shards() as folder:
                if folder is None:
                    return None
                self._rest.update(folders.load_folder(folder, to=self.to, names=unread))
        return {name: self._rest[name] for name in missing}

    def _layers(self) -> dict[str, Any]:
        """vLLM's records of the layers' loading progress. Attention layers have at most scales, which it treats
        separately."""
        from vllm.model_executor.model_loader.reload import layerwise

        later = getattr(layerwise, "is_deferred_attention_layer", lambda layer: False)
        layers = ((name, layer) for name, layer in self.model.named_modules() if not later(layer))
        return {name: layerwise.get_layerwise_info(layer) for name, layer in layers}

    def _partial(self) -> list[str]:
        """Partially loaded layers. Embeddings may be padded with rows that no checkpoint has."""
        found = []
        layers = dict(self.model.named_modules())
        for name, info in self._layers().items():
            rows, padded = (getattr(layers[name], a, 0) for a in ("org_vocab_size", "num_embeddings_padded"))
            if padded > rows and info.loaded_weights:
                continue
            if info.load_numel_total is not None and 0 < info.load_numel < info.load_numel_total:
                found.append(name)
        return found

    def _pack_again(self) -> None:
        """On a CPU, vLLM 0.32 does not update the packed copy of an output layer that shares the embedding's weights:
        it only loads the embedding."""
        for layer in self.model.modules():
            weight, method = getattr(layer, "weight", None), getattr(layer, "quant_method", None)
            if hasattr(layer, "cpu_linear") and weight is not None and weight.numel() and method is not None:
                method.process_weights_after_loading(layer)

    def _patch(self, update: Update) -> None:
        """Change weights in place."""
        from vllm.model_executor.model_loader.checkpoint_weight_patch import (
            CheckpointWeightPatch,
            load_checkpoint_weight_patches,
        )

        for sparse in (True, False):
            rows = [p for p in update.patches if (p.indices is not None) == sparse]
            patches = [
                CheckpointWeightPatch(
                    name=p.meta.name,
                    shape=p.meta.shape,
                    dtype=p.values.dtype,
                    values=self._placed(p.values),
                    indices=None if p.indices is None else self._placed(p.indices),
                )
                for p in rows
            ]
            load_checkpoint_weight_patches(self.model, patches, validate_unique_indices=False)

    def _placed(self, x: Any) -> Any:
        return x.to(self.device) if hasattr(x, "to") else x

    def _restore(self, before: str) -> str:
        """Load the old weights after an update that failed to load. Returns the outcome."""
        old: dict[str, Any] = {} if self._replica is None else dict(self._replica.items())
        try:
            if not old and before == CHECKPOINT:
                with self._shards() as shards:
                    old = folders.load_folder(shards, to=self.to) if shards else {}
            if not old:
                raise Refused(f"there is no copy of {before} here")
            self._reload(iter(old.items()))
        except Exception as e:
            for replica in (self._replica, self._taking):
                if replica is not None:
                    replica.forget()
                    replica.broken()
            self._has = LOST
            return f"its weights are lost until the next send ({e})"
        self._has = before
        return f"it went back to {before}"

    # ---- words

    @contextlib.contextmanager
    def _telling(self, state: str) -> Iterator[None]:
        """Report errors to the trainer too."""
        try:
            yield
        except Exception as e:
            raise self._told(e, state) from e

    def _told(self, error: Exception, state: str) -> RuntimeError:
        words = f"{type(error).__name__}: {error}; {state}"
        log.error("server %s: %s", self.name, words)
        if self._source is not None:
            with contextlib.suppress(OSError, ValueError):
                report(self._source, self.name, words)
        return RuntimeError(f"pici, server {self.name}: {words}")
