# SPDX-License-Identifier: BSD-3-Clause
"""Stand-ins for what pici.vllm uses of vLLM 0.32, with its names: the engines' base classes, the two factories,
loading, and a server that calls its engine as vLLM's worker does."""
import contextlib
import json
import sys
import types
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import numpy as np


#: a key and its certificate, for tests of TLS
CERTIFICATE = """\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgD9f+kFi13CujsmW7
eZR+5DY1AQx0ioZiLv7+uIjsmymhRANCAASuV4/I0HAUgzkxXwONkZ9vPH7Kgg8G
7OjQ/mG2yB3KENNSRQjzdBOI7LBfhKaCluLhguXSJF+gnOP/eTUuEdF3
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBfjCCASWgAwIBAgIUG+9suavC6eYPSv8iz63jdseI18EwCgYIKoZIzj0EAwIw
FDESMBAGA1UEAwwJcGljaS10ZXN0MCAXDTI2MTEyODEzMTUxN1oYDzIxMjYxMTA0
MTMxNTE3WjAUMRIwEAYDVQQDDAlwaWNpLXRlc3QwWTATBgcqhkjOPQIBBggqhkjO
PQMBBwNCAASuV4/I0HAUgzkxXwONkZ9vPH7Kgg8G7OjQ/mG2yB3KENNSRQjzdBOI
7LBfhKaCluLhguXSJF+gnOP/eTUuEdF3o1MwUTAdBgNVHQ4EFgQU37t2AH6qokT3
L7frcj0SZoVbePUwHwYDVR0jBBgwFoAU37t2AH6qokT3L7frcj0SZoVbePUwDwYD
VR0TAQH/BAUwAwEB/zAKBggqhkjOPQQDAgNHADBEAiAJRmN3k0KSSiuAou8Qsdej
bmH+XTH1KEZXhZ53hn0+/gIgYC+a8RveCm/eqksCf6EbNcXrskga0nuCPPD2Y7WL
Cvs=
-----END CERTIFICATE-----
"""


class WeightTransferInitInfo:
    pass


class WeightTransferUpdateInfo:
    pass


@dataclass
class TrainerInitInfo:
    backend: ClassVar[str]
    rank: int = 0

    @property
    def is_sender(self):
        return self.rank == 0


class WeightTransferEngine:
    def __init__(self, config, vllm_config, device, model):
        self.config, self.vllm_config, self.device, self.model = config, vllm_config, device, model
        self.parallel_config, self.model_config = vllm_config.parallel_config, vllm_config.model_config

    def parse(self, kind, given):
        try:
            return kind(**given)
        except TypeError as e:
            raise ValueError(f"Invalid info: {e}") from e

    def update_weights(self, update_info):
        self.receive_weights(self.parse(self.update_info_cls, update_info))


class TrainerWeightTransferEngine:
    def __init__(self, *, client, source=None, is_sender=True):
        self.client, self.source, self.is_sender = client, source, is_sender


class Factory:
    def __init__(self):
        self.registry = {}

    def register_engine(self, name, module, class_name):
        if name in self.registry:
            raise ValueError(f"'{name}' is already registered.")
        self.registry[name] = (module, class_name)

    def engine(self, name):
        module, class_name = self.registry[name]
        return getattr(__import__(module, fromlist=[class_name]), class_name)


class Layer:
    """A layer of several tensors of the checkpoint, such as the projections of Q, K and V."""

    def __init__(self, names=()):
        self.names = names
        self.reset()

    def reset(self):
        self.load_numel, self.load_numel_total, self.loaded_weights = 0, None, []


class Model:
    """A model whose weights are arrays, in the layout of the checkpoint. `fails`: the name at which loading fails."""

    def __init__(self, weights):
        self.weights = {name: x.copy() for name, x in weights.items()}
        self.loads, self.fails, self.layerwise = 0, None, False
        self.layers = {}

    def named_modules(self):
        return iter(self.layers.items())

    def modules(self):
        return iter(self.layers.values())

    def load_weights(self, weights):
        self.loads += 1
        for name, x in weights:
            if name == self.fails:
                raise KeyError(name)
            layer = next((layer for layer in self.layers.values() if name in layer.names), None)
            if layer is None or not self.layerwise:
                self.weights[name][...] = x
            elif layer.load_numel_total is not None:  # else it has got all: what comes again is left out
                layer.loaded_weights.append((name, x))
                layer.load_numel += x.size
                if layer.load_numel >= layer.load_numel_total:
                    self.process(layer)

    def process(self, layer):
        """What a layer did not get is memory that nothing was written to."""
        got = dict(layer.loaded_weights)
        for name in layer.names:
            self.weights[name][...] = got.get(name, 99)
        layer.reset()


class Server:
    """A worker with its engine, and the client of it. Restarted by making another one."""

    def __init__(self, engine_class, folder, weights, base_url=None):
        self.model = Model(weights)
        config = types.SimpleNamespace(
            parallel_config=types.SimpleNamespace(rank=0),
            model_config=types.SimpleNamespace(model=str(folder), revision=None),
            quant_config=None,
        )
        device = types.SimpleNamespace(type="cpu")
        self.engine = engine_class(None, config, device, self.model)
        self.active, self.version, self.dies = False, None, ""
        self.cached = {}  # as vLLM's prefix cache
        if base_url:
            self.base_url = base_url

    def _call(self, name):
        if self.dies == name:
            raise ConnectionError("the server is gone")

    def init_weight_transfer_engine(self, init_info):
        self._call("init")
        self.engine.init_transfer_engine(
            self.engine.parse(self.engine.init_info_cls, json.loads(json.dumps(init_info)))
        )

    def start_weight_update(self):
        self._call("start")
        if self.active:
            raise RuntimeError("start_weight_update called while a weight update is already active.")
        self.engine.start_weight_update()
        self.active = True

    def update_weights(self, update_info):
        self._call("update")
        if not self.active:
            raise RuntimeError("start_weight_update must be called before update_weights.")
        try:
            self.engine.update_weights(json.loads(json.dumps(update_info)))
        except BaseException:
            self.active = False
            raise

    def finish_weight_update(self, weight_version=None):
        self._call("finish")
        if not self.active:
            raise RuntimeError("finish_weight_update called without a matching start_weight_update.")
        self.engine.finish_weight_update()
        self.active, self.version = False, weight_version

    def reset_prefix_cache(self, reset_running_requests=False):
        self._call("reset")
        self.cached.clear()
        return True

    def answer(self, prompt):
        """Of a prompt, by the weights that its beginning was computed with."""
        return self.cached.setdefault(prompt, b"".join(x.tobytes() for x in self.model.weights.values()))


class Workers:
    """A server of several workers, each with the whole model. As in vLLM, a call goes to all, and the first error is
    raised."""

    def __init__(self, *workers):
        self.workers = workers
        for w in workers:
            w.engine.parallel_config.world_size = len(workers)

    def _all(self, name, *args):
        errors = []
        for w in self.workers:
            try:
                getattr(w, name)(*args)
            except Exception as e:
                errors.append(e)
        if errors:
            raise errors[0]

    def init_weight_transfer_engine(self, init_info):
        self._all("init_weight_transfer_engine", init_info)

    def start_weight_update(self):
        self._all("start_weight_update")

    def update_weights(self, update_info):
        self._all("update_weights", update_info)

    def finish_weight_update(self, weight_version=None):
        self._all("finish_weight_update", weight_version)

    def reset_prefix_cache(self, reset_running_requests=False):
        return self.workers[0].reset_prefix_cache()


@dataclass
class CheckpointWeightPatch:
    name: str
    shape: tuple
    dtype: object
    values: object
    indices: object = field(default=None)


def get_layerwise_info(layer):
    return layer


def initialize_layerwise_reload(model):
    model.layerwise = True
    for layer in model.modules():
        layer.load_numel_total = sum(model.weights[name].size for name in layer.names)


def finalize_layerwise_reload(model, model_config):
    model.layerwise = False
    for layer in model.modules():
        if layer.load_numel:
            model.process(layer)
        layer.reset()


def load_checkpoint_weight_patches(model, patches, validate_unique_indices=True):
    for p in patches:
        flat = model.weights[p.name].reshape(-1)
        flat[... if p.indices is None else p.indices] = p.values


@contextlib.contextmanager
def installed():
    """The modules of vLLM that pici.vllm imports, as long as it lasts."""
    names = {
        "vllm": {},
        "vllm.distributed": {},
        "vllm.distributed.weight_transfer": {},
        "vllm.distributed.weight_transfer.base": dict(
            WeightTransferEngine=WeightTransferEngine,
            WeightTransferInitInfo=WeightTransferInitInfo,
            WeightTransferUpdateInfo=WeightTransferUpdateInfo,
            TrainerInitInfo=TrainerInitInfo,
            TrainerWeightTransferEngine=TrainerWeightTransferEngine,
        ),
        "vllm.distributed.weight_transfer.factory": dict(
            WeightTransferEngineFactory=Factory(), WeightTransferTrainerFactory=Factory()
        ),
        "vllm.model_executor": {},
        "vllm.model_executor.model_loader": {},
        "vllm.model_executor.model_loader.reload": dict(
            initialize_layerwise_reload=initialize_layerwise_reload,
            finalize_layerwise_reload=finalize_layerwise_reload,
            layerwise=types.SimpleNamespace(get_layerwise_info=get_layerwise_info),
        ),
        "vllm.model_executor.model_loader.checkpoint_weight_patch": dict(
            CheckpointWeightPatch=CheckpointWeightPatch, load_checkpoint_weight_patches=load_checkpoint_weight_patches
        ),
    }
    before = {name: sys.modules.get(name) for name in names}
    for name, members in names.items():
        module = types.ModuleType(name)
        vars(module).update(members)
        sys.modules[name] = module
    try:
        yield sys.modules["vllm.distributed.weight_transfer.factory"]
    finally:
        for name, module in before.items():
            sys.modules.pop(name)
            if module is not None:
                sys.modules[name] = module
        for name in ("pici.vllm.server", "pici.vllm.trainer"):
            sys.modules.pop(name, None)


def checkpoint(folder, weights, file="model.safetensors"):
    """model.safetensors of f16 and f32 arrays, or another file."""
    words = {np.dtype("f2"): "F16", np.dtype("f4"): "F32", np.dtype("i4"): "I32"}
    at, head = 0, {}
    for name, x in weights.items():
        head[name] = {"dtype": words[x.dtype], "shape": x.shape, "data_offsets": [at, at + x.nbytes]}
        at += x.nbytes
    text = json.dumps(head).encode()
    text += b" " * (-len(text) % 8)
    Path(folder).mkdir(exist_ok=True)
    data = b"".join(x.tobytes() for x in weights.values())
    (Path(folder) / file).write_bytes(len(text).to_bytes(8, "little") + text + data)
