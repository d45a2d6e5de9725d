"""Stages that stand in for models where only the layers around them are tested."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping
from typing import Any

from audio.shared import Waveform
from engine.stage import Output


class EchoStage:
    """Answers every request with itself and the sum of its waveform, one part a step; "slow" takes many steps."""

    def __init__(self, parts: int = 3) -> None:
        self._parts = parts
        self._jobs: dict[int, list[Any]] = {}
        self.cancelled: list[int] = []

    def describe(self) -> Mapping[str, Any]:
        return {"parts": self._parts, "pid": os.getpid()}

    def submit(self, call_id: int, waveform: Waveform, request: Any) -> None:
        if request == "refuse":
            raise ValueError("refused")
        if request == "break":
            raise RuntimeError("broken for good")
        if request == "die":
            os._exit(7)
        if request == "cancelled?":
            request = tuple(self.cancelled)
        parts = 10_000 if request == "slow" else self._parts
        self._jobs[call_id] = [(request, float(waveform.sum()))] * parts

    def cancel(self, call_id: int) -> None:
        if self._jobs.pop(call_id, None) is not None:
            self.cancelled.append(call_id)

    def step(self) -> Iterable[Output]:
        if any(len(parts) > 100 for parts in self._jobs.values()):
            time.sleep(0.001)
        outputs = [Output(call_id, parts.pop(), last=not parts) for call_id, parts in self._jobs.items()]
        self._jobs = {call_id: parts for call_id, parts in self._jobs.items() if parts}
        return outputs

    @property
    def busy(self) -> bool:
        return bool(self._jobs)

    def close(self) -> None:
        self._jobs.clear()


def broken_stage() -> EchoStage:
    """A factory that cannot load."""
    raise FileNotFoundError("no weights")
