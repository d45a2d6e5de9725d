"""How many WebSockets there are, and how much sound they hold together."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from app.errors import Refusal

_RETRY_SECONDS = 5


class Sockets:
    """The WebSockets of one app."""

    def __init__(self, *, max_sockets: int, max_bytes: int) -> None:
        self._max_sockets = max_sockets
        self._max_bytes = max_bytes
        self.count = 0
        self.bytes = 0

    @contextmanager
    def one(self) -> Iterator[Hold]:
        """One socket for as long as the context lasts, and what it holds.

        Raises:
            Refusal: 503, there are too many.
        """
        if self.count >= self._max_sockets:
            raise Refusal(
                503,
                "too_many_sockets",
                f"{self.count} sockets are open, and no more than {self._max_sockets} may be.",
                retry_after=_RETRY_SECONDS,
            )
        self.count += 1
        hold = Hold(self)
        try:
            yield hold
        finally:
            hold.set(0)
            self.count -= 1

    def change(self, by: int) -> None:
        """Raises:
        Refusal: 503, it would be too much.
        """
        if by > 0 and self.bytes + by > self._max_bytes:
            raise Refusal(
                503,
                "server_busy",
                f"All sockets together hold {self.bytes} bytes of sound, and no more than {self._max_bytes} may wait.",
                retry_after=_RETRY_SECONDS,
            )
        self.bytes += by


class Hold:
    """The bytes that one socket holds."""

    def __init__(self, sockets: Sockets) -> None:
        self._sockets = sockets
        self._bytes = 0

    def set(self, held: int) -> None:
        """Raises:
        Refusal: 503, all sockets together would hold too much.
        """
        self._sockets.change(held - self._bytes)
        self._bytes = held
