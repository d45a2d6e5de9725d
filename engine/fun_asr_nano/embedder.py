"""The prompt as embeddings: those of its tokens, with those of the sound between them."""

from __future__ import annotations

from functools import lru_cache

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from engine.fun_asr_nano.prompt import Prompt

_PROMPTS_KEPT = 64
"""50 kB each without hotwords, 2 MB with as many as fit."""


class PromptEmbedder:
    """Puts the embeddings of the sound between those of the prompt's tokens."""

    def __init__(self, table: Tensor) -> None:
        """`table`: (vocabulary, hidden), on the device and in the type that the language model takes."""
        self._table = table
        self._rows = lru_cache(maxsize=_PROMPTS_KEPT)(self._looked_up)  # mostly all requests have the same prompt

    @property
    def width(self) -> int:
        return self._table.shape[1]

    def __call__(self, prompt: Prompt, sound: Tensor) -> Tensor:
        """(tokens, hidden) from (n, hidden) of sound.

        Raises:
            ValueError: the sound has no rows, or another width than the language model: vLLM would not survive it.
        """
        if sound.ndim != 2 or not len(sound) or sound.shape[1] != self.width:
            raise ValueError(f"the sound's embeddings are {list(sound.shape)}, expected [n, {self.width}]")
        return torch.cat([self._rows(prompt.prefix), sound.to(self._table), self._rows(prompt.suffix)])

    def _looked_up(self, ids: tuple[int, ...]) -> Tensor:
        return F.embedding(torch.tensor(ids, device=self._table.device), self._table)
