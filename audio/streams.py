"""Work beside that of others: on a GPU a stream of its own, on a CPU simply done."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor


class Mark:
    """A point in a stream: reached once all that was started before it is done."""

    def __init__(self, event: Any = None) -> None:
        self._event = event

    @property
    def reached(self) -> bool:
        return self._event is None or bool(self._event.query())

    def wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()


class SideStream:
    """Where the work of one thread goes in order, while others go on."""

    def __init__(self, device: torch.device | str) -> None:
        cuda: Any = torch.cuda
        self._stream = cuda.Stream(device) if torch.device(device).type == "cuda" else None

    def use(self) -> AbstractContextManager[Any]:
        """What is started inside goes to the stream."""
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)

    def to_host(self, values: Tensor) -> Tensor:
        """The same values on the CPU, there once a mark that is set afterwards is reached."""
        if self._stream is None:
            return values
        host = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
        return host.copy_(values, non_blocking=True)

    def mark(self) -> Mark:
        if self._stream is None:
            return Mark()
        cuda: Any = torch.cuda
        event = cuda.Event(blocking=True)
        event.record(self._stream)
        return Mark(event)
