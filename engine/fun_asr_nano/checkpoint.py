"""A published Fun-ASR-Nano directory, read and checked before anything is built from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch
from torch import Tensor, nn

from engine.fun_asr_nano.adaptor import Adaptor
from engine.fun_asr_nano.config import CtcConfig, NanoConfig
from engine.fun_asr_nano.ctc import CtcHead
from engine.fun_asr_nano.ctc_tokenizer import CtcTokenizer
from engine.fun_asr_nano.encoder import SanmEncoder
from engine.fun_asr_nano.errors import CheckpointError
from engine.fun_asr_nano.language_model import language_model_tensors
from engine.fun_asr_nano.layout import CheckpointPaths, read_layout
from engine.fun_asr_nano.tensors import Shape, check_shapes, read_state_dict

_M = TypeVar("_M", bound=nn.Module)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A model directory whose tensors all have the shapes that its configuration promises.

    `ctc_tokenizer` is None where there are no word times; `ctc_missing` then says why, in one line.
    """

    paths: CheckpointPaths
    config: NanoConfig
    tensors: Mapping[str, Tensor]
    language_model: Mapping[str, Tensor]
    ctc_tokenizer: CtcTokenizer | None
    ctc_missing: str | None

    @classmethod
    def open(cls, directory: Path) -> Checkpoint:
        """Read a directory as published on ModelScope or Hugging Face.

        Raises:
            CheckpointError: one line that names the file, key or tensor that is wrong. A CTC part that is missing or
                does not fit is no error: see `ctc_missing`.
        """
        paths, config = read_layout(directory)
        tensors = read_state_dict(paths.weights)
        with torch.device("meta"):
            encoder, adaptor = SanmEncoder(config.encoder, max_rows=1), Adaptor(config.adaptor)
        check_shapes(tensors, _shapes(encoder, "audio_encoder.") | _shapes(adaptor, "audio_adaptor."), paths.weights)
        language_model = language_model_tensors(tensors, config, paths.weights)
        ctc = _ctc_tokenizer(tensors, paths, config.ctc)
        if isinstance(ctc, CtcTokenizer):
            return cls(paths, config, tensors, language_model, ctc_tokenizer=ctc, ctc_missing=None)
        return cls(paths, config, tensors, language_model, ctc_tokenizer=None, ctc_missing=ctc)

    def encoder(self, *, max_rows: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> SanmEncoder:
        """The encoder with its weights, for inputs of up to `max_rows` rows."""
        with torch.device("meta"):
            module = SanmEncoder(self.config.encoder, max_rows=max_rows)
        return self._fill(module, "audio_encoder.", dtype, device)

    def adaptor(self, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Adaptor:
        """The adaptor with its weights."""
        with torch.device("meta"):
            module = Adaptor(self.config.adaptor)
        return self._fill(module, "audio_adaptor.", dtype, device)

    def ctc_head(self, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> CtcHead | None:
        """The CTC head with its weights, None where `ctc_missing` says why there is none."""
        if self.ctc_missing is not None or not isinstance(self.config.ctc, CtcConfig):
            return None
        with torch.device("meta"):
            module = CtcHead(self.config.ctc)
        return self._fill(module, "", dtype, device)

    def embeddings(self, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Tensor:
        """The language model's embedding table, (vocabulary, hidden)."""
        return self.language_model["model.embed_tokens.weight"].to(device, dtype)

    def _fill(self, module: _M, prefix: str, dtype: torch.dtype, device: str) -> _M:
        """Put the tensors into a module that has none yet; the buffers that it computes itself have them already."""
        state = {name: self.tensors[prefix + name].to(device, dtype, copy=True) for name in module.state_dict()}
        module.load_state_dict(state, assign=True)
        return module.to(device, dtype).eval().requires_grad_(False)


def _ctc_tokenizer(
    tensors: Mapping[str, Tensor], paths: CheckpointPaths, config: CtcConfig | str
) -> CtcTokenizer | str:
    """The tokenizer of a complete CTC part, or the reason why there is none."""
    if isinstance(config, str):
        return config
    with torch.device("meta"):
        head = CtcHead(config)
    try:
        check_shapes(tensors, _shapes(head, ""), paths.weights)
        if paths.ctc_ranks is None:
            return f"{paths.directory} has no multilingual.tiktoken"
        tokenizer = CtcTokenizer.load(paths.ctc_ranks)
    except CheckpointError as error:
        return str(error)
    if tokenizer.vocabulary != config.vocabulary:
        return f"{paths.ctc_ranks} makes {tokenizer.vocabulary} tokens, the CTC head has {config.vocabulary}"
    return tokenizer


def _shapes(module: nn.Module, prefix: str) -> dict[str, Shape]:
    return {prefix + name: tuple(tensor.shape) for name, tensor in module.state_dict().items()}
