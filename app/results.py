"""Where `tinglu transcribe` leaves its results: a file that outlives a killed run, or stdout and nothing else on it."""

from __future__ import annotations

import fcntl
import io
import json
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Self, TextIO

_KEY_FIRST = b'{"key":'
"""How every line begins, so that the keys of a large file are found without parsing all of it."""


class ResultsFile:
    """JSON lines, one a recording. A run that goes on with a file knows what is done already.

    A line is handed to the system whole; what a killed run left of one is taken away when the file is opened again.
    """

    done: frozenset[str]
    """The keys of the recordings that were in the file when it was opened."""

    def __init__(self, path: Path) -> None:
        """Open or create the file, for this run alone.

        Raises:
            OSError: it cannot be written.
            ValueError: it holds something else, or another run writes to it. It is left as it is.
        """
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
        try:
            if not stat.S_ISREG(os.fstat(self._file).st_mode):
                raise ValueError("is not a regular file")
            self._lock()
            self.done = frozenset(self._read(path))
        except BaseException:
            self.close()
            raise

    def write(self, line: str) -> None:
        """Add the line of a recording: a JSON object whose first field is its key.

        Raises:
            OSError: the disk is full, or gone.
        """
        data = line.encode() + b"\n"
        assert data.startswith(_KEY_FIRST)
        while data:
            data = data[os.write(self._file, data) :]

    def close(self) -> None:
        os.close(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _lock(self) -> None:
        with suppress(OSError):  # a file system without locks
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise ValueError("another run is writing to it") from None

    def _read(self, path: Path) -> set[str]:
        """The keys in the file, which ends with a whole line afterwards."""
        keys = set()
        whole = 0
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    if not (line.startswith(_KEY_FIRST) or _KEY_FIRST.startswith(line)):
                        raise ValueError(f"line {number} is not a result of `tinglu transcribe`")
                    os.ftruncate(self._file, whole)
                    break
                keys.add(_key(line, number))
                whole += len(line)
        return keys


def _key(line: bytes, number: int) -> str:
    with suppress(ValueError):
        if line.startswith(_KEY_FIRST) and line.rstrip().endswith(b"}"):
            key, _ = json.JSONDecoder().raw_decode(line[len(_KEY_FIRST) :].decode())
            if isinstance(key, str):
                return key
    raise ValueError(f"line {number} is not a result of `tinglu transcribe`")


@contextmanager
def results_alone() -> Iterator[TextIO]:
    """Stdout, in UTF-8, for results alone: what libraries of Python or C print there meanwhile goes to stderr."""
    try:
        redirected = sys.stdout.fileno() != 1
    except io.UnsupportedOperation:
        redirected = True
    if redirected:  # by a test, or by a program that runs the command: nothing to protect
        yield sys.stdout
        return
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    stream = open(own, "w", encoding="utf-8", closefd=False)  # noqa: SIM115 - closed below, after a last word to stderr
    try:
        yield stream
    finally:
        sys.stdout.flush()
        os.dup2(own, 1)
        with suppress(BrokenPipeError):
            stream.close()
        os.close(own)
