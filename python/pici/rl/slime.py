# SPDX-License-Identifier: BSD-3-Clause
"""Hooks of slime and SGLang: deltas of checkpoints cross the shared folder, instead of whole ones.

    --update-weight-transport disk --update-weight-mode full --update-weight-local-checkpoint-dir DIR
    --custom-update-weight-post-write-path pici.rl.slime.publish        (slime)
    --sglang-custom-pull-weights-pre-read-hook pici.rl.slime.pull       (SGLang, on each host)

slime writes each version, weight_vNNNNNN, to a folder on its own host. publish() makes the delta from the previous
version, in the folder $PICI_DELTAS, which all hosts share. pull() rebuilds the version on each host, in SGLang's source
folder, which need not be shared. Version 0 is the common first checkpoint: args.hf_checkpoint, and on SGLang's hosts
$PICI_BASE. pull() replaces a version of an earlier run, made by another delta.

Names were read from THUDM/slime at 06236d02 (docs/en/advanced/delta-weight-sync.md, update_weight_from_disk_delta.py)
and from sgl-project/sglang at 01d5bfe5 (python/sglang/srt/weight_sync/local_checkpoint.py).
"""
from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Optional

from .._outfolder import LIST
from ..folders import apply_folders, diff_folders

_VERSION = re.compile(r"weight_v(\d{6,})")
KEPT = 2  # versions that a host keeps


def _name(version: int) -> str:
    return f"weight_v{version:06d}"


def _deltas() -> str:
    folder = os.environ.get("PICI_DELTAS")
    if not folder:
        raise ValueError("PICI_DELTAS is not set: the folder for deltas, which the trainer and all hosts see")
    os.makedirs(folder, exist_ok=True)
    return folder


def publish(args: Any, version_dir: str, rollout_engines: Any) -> None:
    """slime's hook, called after each version on all ranks: hook(args, version_dir, rollout_engines). Only rank 0
    works."""
    found = _VERSION.fullmatch(os.path.basename(os.path.normpath(version_dir)))
    if found is None or _rank() != 0:  # slime calls it for the empty folder too, when it begins
        return
    with suppress(FileNotFoundError), open(f"{version_dir}/model.safetensors.index.json", encoding="utf-8") as f:
        if "delta_encoding" in json.load(f).get("metadata", {}):
            raise ValueError(f"{version_dir} is a delta of slime's own: pass --update-weight-mode full")
    version = int(found[1])
    above = os.path.dirname(os.path.normpath(version_dir))
    before = os.path.join(above, _name(version - 1)) if version > 1 else str(args.hf_checkpoint)
    diff_folders(before, version_dir, os.path.join(_deltas(), _name(version)), threads=0, overwrite=True)


def pull(source_dir: str, target_version: int) -> None:
    """SGLang's hook, called before it reads a version: hook(source_dir, target_version). Several processes of a host
    may call it at once."""
    deltas = _deltas()
    os.makedirs(source_dir, exist_ok=True)
    with _locked(source_dir):
        there = [int(m[1]) for m in map(_VERSION.fullmatch, os.listdir(source_dir)) if m]
        notes = {v: _note(source_dir, v) for v in there if v <= target_version}
        mine = [v for v, note in notes.items() if note and _identity(deltas, v) in (note, "")]  # "": it was pruned
        have = max(mine, default=0)
        if have == target_version:
            return
        for version in range(have + 1, target_version + 1):
            base = os.path.join(source_dir, _name(version - 1))
            if version == 1:
                base = os.environ.get("PICI_BASE", "")
                if not base:
                    raise ValueError("PICI_BASE is not set: the checkpoint that the training has begun with")
            delta, identity = os.path.join(deltas, _name(version)), _identity(deltas, version)
            if not identity:
                raise FileNotFoundError(
                    f"{delta}: no delta, and {source_dir} has no complete version from {version} on"
                )
            if version in there:  # of an earlier run
                _remove(source_dir, version)
            apply_folders(base, delta, out=os.path.join(source_dir, _name(version)), threads=0)
            with open(_note_path(source_dir, version), "w", encoding="ascii") as f:
                f.write(identity)
        for version in there:
            if version <= target_version - KEPT:
                _remove(source_dir, version)


def _identity(deltas: str, version: int) -> str:
    """The identity of a delta's result: its list has the hashes of all files. "": no such delta."""
    try:
        with open(os.path.join(deltas, _name(version), LIST), "rb") as f:
            return hashlib.sha256(f.read()).hexdigest()
    except FileNotFoundError:
        return ""


def _note_path(source_dir: str, version: int) -> str:
    return os.path.join(source_dir, f".pici-{_name(version)}")


def _note(source_dir: str, version: int) -> Optional[str]:
    """The identity of the delta that made a version, once it is complete. None: no delta made it."""
    try:
        with open(_note_path(source_dir, version), encoding="ascii") as f:
            return f.read()
    except FileNotFoundError:
        return None


def _remove(source_dir: str, version: int) -> None:
    with suppress(FileNotFoundError):
        os.unlink(_note_path(source_dir, version))  # first: an incomplete version has none
    shutil.rmtree(os.path.join(source_dir, _name(version)))


def _rank() -> int:
    """The rank of this process, if torch.distributed is in use."""
    torch = sys.modules.get("torch")
    distributed = getattr(torch, "distributed", None)
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        return int(distributed.get_rank())
    return 0


@contextmanager
def _locked(folder: str) -> Iterator[None]:
    with open(os.path.join(folder, ".pici-lock"), "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)  # closing frees it
        yield
