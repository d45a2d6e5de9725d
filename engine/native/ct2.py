"""Reading a CTranslate2 model file (`model.bin`, format versions 4 to 6).

Little-endian. A header (u32 format version, string name of the specification, u32 its revision), a u32 number of
variables, and for each a string name, u8 rank, that many u32 sizes, u8 element type, u32 number of bytes, the bytes.
Then a u32 number of aliases, each two strings: the other name and the name of the variable. A string is a u16 length,
which counts a closing zero byte, and the characters. Source: `model_spec.py` of CTranslate2 writes it so.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Tensor = NDArray[Any]

_VERSIONS = range(4, 7)
_ELEMENT_TYPES = {0: np.float32, 1: np.int8, 2: np.int16, 3: np.int32, 4: np.float16}
_BFLOAT16 = 5


class BrokenModelFile(ValueError):
    """A model file that is cut off, or not what it claims to be."""


@dataclass(frozen=True, slots=True)
class Ct2Model:
    """A parsed model file: the tensors are views of the bytes that were given."""

    specification: str
    revision: int
    variables: Mapping[str, Tensor]
    aliases: Mapping[str, str]


class _Cursor:
    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def bytes(self, count: int) -> memoryview:
        end = self._at + count
        if end > len(self._data):
            raise BrokenModelFile(f"the model file ends at byte {len(self._data)}, {end} were promised")
        piece = self._data[self._at : end]
        self._at = end
        return piece

    def integer(self, form: str) -> int:
        value: int = struct.unpack(f"<{form}", self.bytes(struct.calcsize(form)))[0]
        return value

    def string(self) -> str:
        try:
            return bytes(self.bytes(self.integer("H"))).rstrip(b"\0").decode()
        except UnicodeDecodeError as error:
            raise BrokenModelFile("the model file holds a name that is no text") from error

    @property
    def at_end(self) -> bool:
        return self._at == len(self._data)


def parse_ct2(data: bytes | bytearray | memoryview) -> Ct2Model:
    """Parse the bytes of a `model.bin`.

    Raises:
        BrokenModelFile: not a model file, cut off, or of a version or element type that is not known here.
    """
    cursor = _Cursor(memoryview(data).toreadonly())
    version = cursor.integer("I")
    if version not in _VERSIONS:
        raise BrokenModelFile(f"not a CTranslate2 model file, or of the unknown format version {version}")
    specification, revision = cursor.string(), cursor.integer("I")
    variables = dict(_variable(cursor) for _ in range(cursor.integer("I")))
    aliases = {cursor.string(): cursor.string() for _ in range(cursor.integer("I"))}
    if not cursor.at_end:
        raise BrokenModelFile("the model file goes on after its last entry")
    return Ct2Model(specification, revision, variables, aliases)


def _variable(cursor: _Cursor) -> tuple[str, Tensor]:
    name = cursor.string()
    shape = tuple(cursor.integer("I") for _ in range(cursor.integer("B")))
    kind = cursor.integer("B")
    raw = cursor.bytes(cursor.integer("I"))
    if kind not in _ELEMENT_TYPES:
        what = "bfloat16" if kind == _BFLOAT16 else f"the unknown type {kind}"
        raise BrokenModelFile(f"tensor {name} is stored as {what}")
    try:
        return name, np.frombuffer(raw, _ELEMENT_TYPES[kind]).reshape(shape)
    except ValueError as error:
        raise BrokenModelFile(f"tensor {name} has {len(raw)} bytes, which do not make the shape {shape}") from error
