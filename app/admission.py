"""Who is served: requests and seconds of sound in flight have limits, and the refusal says when to return."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from app.errors import Refusal

_UNMEASURED_RATE = 10.0
"""Seconds of sound a second, until something has been measured."""
_TELLING_SECONDS = 0.2
_MEMORY_SECONDS = 120.0
_LONGEST_RETRY_SECONDS = 600.0


class Place:
    """What one request holds."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._left = 0.0
        self._done = 0.0

    def hear(self, seconds: float) -> None:
        """Its recording is decoded and this long.

        Raises:
            Refusal: 429, it does not fit beside the others. One that is alone always fits.
        """
        self._admission.check_fits(seconds)
        self._left = seconds
        self._admission.hold(seconds)

    def done_until(self, seconds: float) -> None:
        """It has been served this far."""
        step = min(max(0.0, seconds - self._done), self._left)
        self._done += step
        self._left -= step
        self._admission.let_go(step, served=True)

    def leave(self) -> None:
        """What is left of it will not be served any more."""
        self._admission.let_go(self._left, served=False)
        self._left = 0.0


class Admission:
    """The places of one app, and the rate at which it serves sound."""

    def __init__(
        self, *, max_requests: int, max_audio_seconds: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._max_requests = max_requests
        self._max_audio_seconds = max_audio_seconds
        self._clock = clock
        self._changed = clock()
        self._busy = 0.0
        self._served = 0.0
        self.requests = 0
        """Requests in flight."""
        self.audio_seconds = 0.0
        """Sound in flight that has not been served yet."""

    @property
    def rate(self) -> float:
        """Seconds of sound served in a second with something to do, of the last minutes; 0 if too little was."""
        self._tick()
        return self._served / self._busy if self._busy >= _TELLING_SECONDS else 0.0

    def require(self) -> None:
        """Nothing, if one more request may come.

        Raises:
            Refusal: 429 and when to return.
        """
        if self.requests >= self._max_requests:
            raise self._busy_refusal(
                f"{self.requests} requests are being served, and no more than {self._max_requests} at a time.",
                self.audio_seconds / max(1, self.requests),
            )
        if self.audio_seconds >= self._max_audio_seconds:
            raise self._busy_refusal(
                f"{self.audio_seconds:.0f} s of sound are waiting, and no more than {self._max_audio_seconds:g} s may.",
                self.audio_seconds - self._max_audio_seconds,
            )

    @contextmanager
    def place(self) -> Iterator[Place]:
        """A place for as long as the context lasts.

        Raises:
            Refusal: 429 and when to return.
        """
        self.require()
        self._tick()
        self.requests += 1
        place = Place(self)
        try:
            yield place
        finally:
            place.leave()
            self._tick()
            self.requests -= 1
            if not self.requests:
                self.audio_seconds = 0.0  # nothing of the rounding stays

    def check_fits(self, seconds: float) -> None:
        too_many = self.audio_seconds + seconds - self._max_audio_seconds
        if self.audio_seconds > 0 and too_many > 0:
            raise self._busy_refusal(
                f"{self.audio_seconds:.0f} s of sound are waiting, and with these {seconds:.0f} s it would be more "
                f"than {self._max_audio_seconds:g} s.",
                too_many,
            )

    def hold(self, seconds: float) -> None:
        self.audio_seconds += seconds

    def let_go(self, seconds: float, *, served: bool) -> None:
        self.audio_seconds = max(0.0, self.audio_seconds - seconds)
        if served:
            self._tick()
            self._served += seconds

    def _tick(self) -> None:
        """Count time with something to do; what is long ago counts less and less."""
        now = self._clock()
        if self.requests:
            self._busy += now - self._changed
        self._changed = now
        if self._busy > _MEMORY_SECONDS:
            self._busy, self._served = self._busy / 2, self._served / 2

    def _busy_refusal(self, why: str, seconds_ahead: float) -> Refusal:
        wait = min(max(1.0, seconds_ahead / (self.rate or _UNMEASURED_RATE)), _LONGEST_RETRY_SECONDS)
        return Refusal(429, "server_busy", f"The server is busy: {why}", retry_after=wait)
