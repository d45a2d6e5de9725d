"""What a run is over: paths, folders, lists of recordings, arrays. They become one `Recording` after another."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.pipeline import EncodedAudio, Source
from audio.errors import EmptyAudio
from audio.shared import Waveform

SUFFIXES = frozenset(
    [
        ".3gp",
        ".aac",
        ".ac3",
        ".aif",
        ".aifc",
        ".aiff",
        ".amr",
        ".ape",
        ".au",
        ".avi",
        ".caf",
        ".flac",
        ".flv",
        ".m4a",
        ".m4b",
        ".mka",
        ".mkv",
        ".mov",
        ".mp2",
        ".mp3",
        ".mp4",
        ".mpeg",
        ".mpg",
        ".mpga",
        ".oga",
        ".ogg",
        ".ogv",
        ".opus",
        ".ts",
        ".w64",
        ".wav",
        ".wave",
        ".webm",
        ".wma",
        ".wmv",
        ".wv",
    ]
)
"""Names that count as recordings where a folder is searched; a path that is named itself may end as it likes."""

_JSON_FIELDS = ("audio", "path", "source")
_LOUDEST = 16.0
"""Decoded sound may pass 1.0 a little; samples that pass this were never brought into [-1, 1]."""

Sound = str | os.PathLike[str] | NDArray[Any]
"""The path of a file, or an array as `Waveform`."""


@dataclass(frozen=True, slots=True, eq=False)
class Recording:
    """A recording and the name that its result goes by. `sound` may also be the reason why there is none."""

    key: str
    sound: Sound | Exception

    @property
    def path(self) -> str | None:
        """Where the file is, in characters that can be written anywhere; None for an array."""
        return printable(os.fspath(self.sound)) if isinstance(self.sound, (str, os.PathLike)) else None

    def source(self) -> Source:
        """What the pipeline takes; an array is looked at, so this may take a moment.

        Raises:
            ValueError: an array that is no waveform; an entry of a list that is none.
            OSError: a list or a folder that cannot be read.
        """
        match self.sound:
            case Exception():
                raise self.sound
            case str() | os.PathLike():
                return EncodedAudio(os.fspath(self.sound))
            case _:
                return _waveform(self.sound)


Input = Sound | Recording


def recordings(inputs: Input | Iterable[Input]) -> Iterator[Recording]:
    """The recordings of an input or of many, in order. Nothing is read before it is asked for, and nothing is kept.

    A path may be a recording; a folder, which is searched with its subfolders by suffix and in the order of names,
    leaving out what is hidden; Kaldi's `wav.scp` (a key, a space, a path) by its suffix `.scp`; or a list of JSON
    objects by its suffix `.jsonl` (a path as `audio`, `path` or `source`, and perhaps a `key`). Relative paths in lists
    start from the working directory. A recording without a key goes by its path, an array by its index in `inputs`.

    What cannot be read becomes a recording with a reason, in its place.

    Raises:
        TypeError: an input of another type.
    """
    each = (inputs,) if isinstance(inputs, (str, os.PathLike, np.ndarray, Recording)) else inputs
    for index, one in enumerate(each):
        match one:
            case Recording():
                yield one
            case np.ndarray():
                yield Recording(str(index), one)
            case str() | os.PathLike():
                yield from _at(os.fspath(one))
            case _:
                raise TypeError(f"a recording is a path, a NumPy array or a Recording, not {type(one).__name__}")


def printable(text: str) -> str:
    """The same text with characters that UTF-8 does not have, as in names of files from elsewhere, spelled out."""
    return text.encode("utf-8", "backslashreplace").decode()


def _at(path: str) -> Iterator[Recording]:
    if os.path.isdir(path):
        yield from _folder(path)
        return
    match os.path.splitext(path)[1].lower():
        case ".scp":
            entry = _kaldi
        case ".jsonl":
            entry = _json
        case _:
            yield Recording(printable(path), path)
            return
    try:
        with open(path, encoding="utf-8-sig", errors="surrogateescape") as file:
            for number, line in enumerate(file, 1):
                if line.strip():
                    yield entry(line.strip(), f"{printable(path)}:{number}")
    except OSError as error:
        yield Recording(printable(path), error)


def _folder(root: str) -> Iterator[Recording]:
    failures: list[OSError] = []
    found = False
    for folder, folders, names in os.walk(root, onerror=failures.append):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            if os.path.splitext(name)[1].lower() in SUFFIXES and not name.startswith("."):
                found = True
                path = os.path.join(folder, name)
                yield Recording(printable(path), path)
    for failure in failures:
        yield Recording(printable(str(failure.filename)), failure)
    if not found and not failures:
        yield Recording(printable(root), ValueError("there are no recordings in this folder"))


def _kaldi(line: str, place: str) -> Recording:
    key, *rest = line.split(maxsplit=1)
    if not rest:
        return Recording(place, ValueError("a line holds a key, a space and a path"))
    if rest[0].endswith("|"):
        return Recording(printable(key), ValueError("commands in a wav.scp are not run; give the path of a file"))
    return Recording(printable(key), rest[0])


def _json(line: str, place: str) -> Recording:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return Recording(place, ValueError("this line is not valid JSON"))
    paths = [entry[field] for field in _JSON_FIELDS if field in entry] if isinstance(entry, dict) else []
    if not paths or not isinstance(paths[0], str) or not paths[0]:
        return Recording(place, ValueError(f"a line is a JSON object with a path as {', '.join(_JSON_FIELDS)}"))
    key = entry.get("key")
    if key is not None and not isinstance(key, (str, int)):
        return Recording(place, ValueError("a key is a string"))
    return Recording(printable(paths[0] if key is None else str(key)), paths[0])


def _waveform(array: NDArray[Any]) -> Waveform:
    if array.ndim != 1:
        raise ValueError(f"a waveform is mono and has one dimension, not the shape {array.shape}")
    if array.dtype.kind != "f":
        raise ValueError(f"samples are floats in [-1, 1], not {array.dtype}; 16-bit ones are to be divided by 32768")
    if not len(array):
        raise EmptyAudio("the array holds no samples")
    peak = max(float(array.max()), -float(array.min()))
    if not peak <= _LOUDEST:  # nor NaN
        raise ValueError(f"samples are floats in [-1, 1]; the loudest of these is {peak:g}")
    return array.astype(np.float32, copy=False)
