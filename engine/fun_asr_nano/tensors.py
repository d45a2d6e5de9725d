"""Weights files: read without running what is in them, and checked against the shapes they must have."""

from __future__ import annotations

import pickle
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine.fun_asr_nano.errors import MissingFile, TensorMismatch, UnreadableWeights

Shape = tuple[int, ...]

_WRAPPINGS = ("state_dict", "model_state_dict", "model")


def read_state_dict(path: Path) -> dict[str, Tensor]:
    """Tensors of a `torch.save` file by name, out of any wrapping it was published in; no code in it is run.

    They lie in a memory map where the file allows it, so what is never used is never read.

    Raises:
        MissingFile: there is no such file.
        UnreadableWeights: the file is cut off or damaged, or holds objects that only running code could rebuild.
    """
    content = _load(path)
    for wrapping in _WRAPPINGS:
        if isinstance(content, Mapping) and isinstance(content.get(wrapping), Mapping):
            content = content[wrapping]
            break
    if not isinstance(content, Mapping):
        raise UnreadableWeights(f"{path} holds a {type(content).__name__}, expected tensors by name")
    tensors = {str(name).removeprefix("module."): value for name, value in content.items() if isinstance(value, Tensor)}
    if not tensors:
        raise UnreadableWeights(f"{path} holds no tensors")
    return tensors


def check_shapes(tensors: Mapping[str, Tensor], shapes: Mapping[str, Shape], source: Path) -> None:
    """Compare tensors with the shapes they must have.

    Raises:
        TensorMismatch: names the first tensor that is missing or does not fit, and says how many more there are.
    """
    complaints = [f"{name} {fault}" for name, shape in shapes.items() if (fault := _fault(tensors.get(name), shape))]
    if complaints:
        more = f" (and {len(complaints) - 1} more tensors)" if len(complaints) > 1 else ""
        raise TensorMismatch(f"{source}: {complaints[0]}{more}")


def _fault(tensor: Tensor | None, shape: Shape) -> str | None:
    if tensor is None:
        return f"is missing, expected shape {list(shape)}"
    if tuple(tensor.shape) != shape:
        return f"has shape {list(tensor.shape)}, expected {list(shape)}"
    if not tensor.is_floating_point():
        return f"has type {tensor.dtype}, expected floating point"
    return None


def _load(path: Path) -> Any:
    if not path.is_file():
        raise MissingFile(f"{path} is missing")
    try:
        with path.open("rb") as file:
            zipped = file.read(4) == b"PK\x03\x04"
        if zipped and not zipfile.is_zipfile(path):
            raise EOFError("its end is missing, download it again")
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipped)
    except pickle.UnpicklingError as error:
        raise UnreadableWeights(
            f"{path} is damaged or holds Python objects other than tensors; nothing was run"
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, LookupError, AttributeError, zipfile.BadZipFile) as error:
        raise UnreadableWeights(f"{path} is cut off or damaged: {' '.join(str(error).split())[:200]}") from error
