"""A stage: one kind of work on the device, gathered across requests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from audio.shared import Waveform
from engine.flat import Flat


@dataclass(frozen=True, slots=True)
class Output(Flat):
    """Something a stage finished for a call.

    A call ends with the output whose `last` is true, or with one that carries an `error`. With `then`, the name of
    another stage and a request for it, the call goes on there, with the same waveform.
    """

    call_id: int
    value: Any = None
    last: bool = True
    error: Exception | None = None
    then: tuple[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class StageLoad:
    """How busy a stage is: seconds in its steps since it loaded, calls open now, what it counts and shows itself."""

    busy_seconds: float = 0.0
    calls: int = 0
    counters: Mapping[str, float] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)


class Stage(Protocol):
    """Work that needs the device. All methods are called from the one thread that owns the device."""

    def describe(self) -> Mapping[str, Any]:
        """Picklable facts for the app, read once the stage has loaded: capabilities, limits, names."""

    def submit(self, call_id: int, waveform: Waveform, request: Any) -> None:
        """Queue a call. Must be quick: the work belongs to `step`.

        Raises:
            ValueError: the request can never be served; the call ends with this error.
        """

    def cancel(self, call_id: int) -> None:
        """Forget a call and free what it holds; unknown or finished ids are ignored."""

    def step(self) -> Iterable[Output]:
        """Do one bounded piece of work (aim at tens of milliseconds on a GPU) and return what it finished.

        An error that concerns a single call is an `Output`; an exception means that the stage is broken for good.
        """

    @property
    def busy(self) -> bool:
        """Whether `step` has anything to do."""

    def close(self) -> None:
        """Free the device."""


@runtime_checkable
class Counting(Protocol):
    """A stage that counts what it does."""

    @property
    def counters(self) -> Mapping[str, float]:
        """Totals since the stage loaded, their unit in the name, such as `llm_seconds`.

        Read from another thread: the names never change.
        """


@runtime_checkable
class Gauging(Protocol):
    """A stage that shows how it is at the moment."""

    @property
    def gauges(self) -> Mapping[str, float]:
        """What goes up and down, by name; read from another thread."""
