"""What a recogniser counts while it works: seconds by kind of work, and how many clips the encoder takes at once."""

from __future__ import annotations

import bisect
import time
from collections.abc import Iterator
from contextlib import contextmanager

BATCH_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128)
"""Upper bounds of the histogram of batch sizes; what is larger is in the last place."""


def batch_counter(place: int) -> str:
    """The counter of batches whose size lies in one place of the histogram, from 0 to `len(BATCH_BOUNDS)`."""
    return f"encoder_batches_{place}"


ENCODER_CLIPS = "encoder_clips"


class Tally:
    """Counters of one recogniser. Written by the thread of the device, read by others: the names never change."""

    def __init__(self) -> None:
        names = ["prepare_seconds", "encode_seconds", "llm_seconds", "align_seconds", "clips", ENCODER_CLIPS]
        names += [batch_counter(place) for place in range(len(BATCH_BOUNDS) + 1)]
        self.counters = dict.fromkeys(names, 0.0)

    @contextmanager
    def timed(self, name: str) -> Iterator[None]:
        """Add the seconds of a block, less those that were counted as `encode_seconds` inside of it."""
        started, encoded = time.perf_counter(), self.counters["encode_seconds"]
        yield
        inside = self.counters["encode_seconds"] - encoded
        self.counters[name] += time.perf_counter() - started - inside

    def encoded(self, clips: int, seconds: float) -> None:
        """The encoder was busy for so long with a batch of so many clips."""
        self.counters["encode_seconds"] += seconds
        self.counters[ENCODER_CLIPS] += clips
        self.counters[batch_counter(bisect.bisect_left(BATCH_BOUNDS, clips))] += 1
