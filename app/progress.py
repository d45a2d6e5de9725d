"""How far a run is, for a person who watches it."""

from __future__ import annotations

import sys
import time
from typing import Self, TextIO

from tqdm import tqdm

_REDRAW_SECONDS = 0.2


class ProgressBar:
    """Recordings and time of sound on stderr, where it is a terminal; elsewhere only what `say` is given."""

    def __init__(self) -> None:
        self._bar = tqdm(
            unit="file", file=sys.stderr, disable=None, dynamic_ncols=True, miniters=1, bar_format="loading the model"
        )
        self._seconds = 0.0
        self._partial: dict[str, float] = {}
        self._began = self._drawn = time.monotonic()

    @property
    def shown(self) -> bool:
        return not self._bar.disable

    def begin(self, *, total: int, done: int) -> None:
        """The models are there. Of `total` recordings, some are `done` from before."""
        self._bar.bar_format, self._bar.total = None, total
        self._bar.n = self._bar.initial = self._bar.last_print_n = done
        self._bar.unpause()
        self._bar.refresh()
        self._began = time.monotonic()

    def heard(self, key: str, seconds: float) -> None:
        """A recording that is under way has come so far; from any thread."""
        self._partial[key] = seconds
        if time.monotonic() - self._drawn > _REDRAW_SECONDS:
            self._count()
            self._bar.refresh()

    def finished(self, key: str, seconds: float) -> None:
        """A recording is done; one that failed has no seconds."""
        self._partial.pop(key, None)
        self._seconds += seconds
        self._count()
        self._bar.update()

    def say(self, line: str, stream: TextIO | None = None) -> None:
        """A line to stderr, or to a stream that may lead to the same terminal."""
        with self._bar.external_write_mode(file=sys.stderr):
            print(line, file=stream or sys.stderr, flush=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()

    def _count(self) -> None:
        self._drawn = time.monotonic()
        seconds = self._seconds + sum(list(self._partial.values()))
        speed = seconds / max(self._drawn - self._began, 1e-3)
        self._bar.set_postfix_str(f"{tqdm.format_interval(seconds)} of sound, {speed:.1f}x", refresh=False)
