"""The tokenizer of the CTC head: byte-level pairs from `multilingual.tiktoken`, the same format as Whisper's."""

from __future__ import annotations

import base64
import binascii
from pathlib import Path

import tiktoken

from engine.fun_asr_nano.errors import MissingFile, UnreadableWeights

SPECIAL_TOKENS = 1679
"""Tokens after the ranks: two of text, 105 languages, 11 events, 4 emotions, 6 of tasks, 50 spare ones, 1501 times."""

# The splitting pattern of GPT-2 (Radford et al., 2019), which the ranks were learned with.
_PATTERN = r"""'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


class CtcTokenizer:
    """Text to label ids, and the bytes each id stands for. The names of special tokens are plain text to it."""

    def __init__(self, ranks: dict[bytes, int]) -> None:
        """`ranks` numbers the byte pieces from 0 without gaps, all 256 single bytes among them."""
        self._encoding = tiktoken.Encoding(
            "sensevoice", pat_str=_PATTERN, mergeable_ranks=ranks, special_tokens={}, explicit_n_vocab=len(ranks)
        )
        self.pieces: tuple[bytes, ...] = tuple(sorted(ranks, key=ranks.__getitem__))
        """The bytes of each label; those of special tokens come after them and have none."""
        self.vocabulary = len(ranks) + SPECIAL_TOKENS

    @classmethod
    def load(cls, path: Path) -> CtcTokenizer:
        """Read a rank file: a line each of base64 bytes and rank.

        Raises:
            MissingFile, UnreadableWeights: no such file, or not a complete rank table.
        """
        return cls(_read_ranks(path))

    def encode(self, text: str) -> list[int]:
        """Label ids of a text, spaces and punctuation included."""
        return self._encoding.encode_ordinary(text)

    def piece(self, label: int) -> bytes:
        """The bytes of a label, perhaps part of a character; empty for special tokens."""
        return self.pieces[label] if label < len(self.pieces) else b""


def _read_ranks(path: Path) -> dict[bytes, int]:
    try:
        lines = [line.split() for line in path.read_bytes().splitlines() if line.strip()]
        ranks = {base64.b64decode(piece, validate=True): int(rank) for piece, rank in lines}
    except FileNotFoundError as error:
        raise MissingFile(f"{path} is missing") from error
    except (OSError, ValueError, binascii.Error) as error:
        raise UnreadableWeights(f"{path} is not a rank table: {error}") from error
    if sorted(ranks.values()) != list(range(len(ranks))):
        raise UnreadableWeights(f"{path} is not a rank table: its ranks do not count from 0 without gaps")
    if any(bytes([byte]) not in ranks for byte in range(256)):
        raise UnreadableWeights(f"{path} is not a rank table: not every single byte has a rank")
    return ranks
