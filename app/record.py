"""What is noted of a request while it is served, for the log, the metrics and the traces."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field

_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
_WAITING = "queue"
STAGES = (_WAITING, "decode", "vad", "recognise", "speakers")
"""Where a request may be: it waits for a decoder, or something is done for it."""

_current: ContextVar[Record | None] = ContextVar("request", default=None)


@dataclass(frozen=True, slots=True)
class Stay:
    """A stay of a request in a stage; `began_ns` since the epoch."""

    stage: str
    began_ns: int
    seconds: float


@dataclass(slots=True, eq=False)
class Record:
    """A request, or a round on a WebSocket. `code` is that of the refusal it ended with, `within` are the stages in
    which it is now.
    """

    request_id: str
    method: str
    route: str = "unknown"
    path: str = ""
    traceparent: str | None = None
    began_ns: int = field(default_factory=time.time_ns)
    began: float = field(default_factory=time.perf_counter)
    audio_seconds: float | None = None
    stays: list[Stay] = field(default_factory=list)
    within: list[str] = field(default_factory=list)
    code: str | None = None
    cancelled: bool = False

    @property
    def seconds(self) -> float:
        """Since it came."""
        return time.perf_counter() - self.began

    @property
    def queue_seconds(self) -> float:
        """How long nothing could be done for it yet."""
        return sum(stay.seconds for stay in self.stays if stay.stage == _WAITING)

    @property
    def works(self) -> list[Stay]:
        """The stays in which something was done for it."""
        return [stay for stay in self.stays if stay.stage != _WAITING]

    @property
    def processing_seconds(self) -> float:
        """How long something was done for it; speakers are told apart while words are recognised, which counts once."""
        total, until = 0.0, 0.0
        for stay in sorted(self.works, key=lambda stay: stay.began_ns):
            began = stay.began_ns / 1e9
            end = max(until, began + stay.seconds)
            total += end - max(until, began)
            until = end
        return total


def current() -> Record | None:
    """The record of the request that this task serves, None outside of requests."""
    return _current.get()


@contextmanager
def recording(record: Record) -> Iterator[Record]:
    """Make a record the current one, for this task and those that it starts."""
    token: Token[Record | None] = _current.set(record)
    try:
        yield record
    finally:
        _current.reset(token)


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Note how long the request is in a stage, one of `STAGES`."""
    record, began_ns, began = current(), time.time_ns(), time.perf_counter()
    if record is not None:
        record.within.append(name)
    try:
        yield
    finally:
        if record is not None:
            record.within.remove(name)
            record.stays.append(Stay(name, began_ns, time.perf_counter() - began))


def note_audio(seconds: float) -> None:
    """Note how long the recording is."""
    if (record := current()) is not None:
        record.audio_seconds = seconds


def note_refusal(code: str) -> None:
    """Note why the request is not served."""
    if (record := current()) is not None:
        record.code = code


def note_gone() -> None:
    """Note that the client did not wait for its answer."""
    if (record := current()) is not None:
        record.cancelled = True


def request_id(given: str | None) -> str:
    """The client's own id if it is fit to be logged and sent back, otherwise a new one."""
    return given if given is not None and _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
