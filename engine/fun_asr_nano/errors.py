"""What can be wrong with a model directory or its cache, in one line for the person who starts the server."""

from __future__ import annotations


class CheckpointError(RuntimeError):
    """A model directory that cannot be used."""


class MissingFile(CheckpointError):
    """A file or directory of the published layout is not there."""


class WrongLayout(CheckpointError):
    """A directory of another model, or of a conversion of this one for other software."""


class UnsupportedConfig(CheckpointError):
    """A configuration that is broken, or asks for something this implementation does not compute."""


class UnreadableWeights(CheckpointError):
    """A weights file that is cut off, damaged, or holds Python objects other than tensors."""


class TensorMismatch(CheckpointError):
    """A tensor that is missing, or has another shape or type than the configuration says."""


class CacheError(CheckpointError):
    """The extracted weights cannot be written: no space, or no permission."""
