"""Who speaks: known speakers made ready for the device, and the turns of a recording from it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from dataclasses import dataclass, replace

from app.attribution import Attribution
from app.record import stage
from app.speakers import SPEAKERS, SpeakerRequest
from audio.shared import SharedWaveform
from audio.span import Span
from diarization.options import DiarizationOptions, KnownSpeaker
from diarization.outcome import Diarization
from engine.device import Device


@dataclass(frozen=True, slots=True)
class EncodedAudio:
    """A recording in some container: its bytes, or the path of a file that holds them."""

    content: bytes | str


@dataclass(frozen=True, slots=True)
class SpeakerReference:
    """A known speaker, and a recording of his voice alone."""

    name: str
    audio: EncodedAudio


@dataclass(frozen=True, slots=True)
class SpeakerOptions:
    """Speakers are told apart: how many there are, as far as it is known, and who some of them may be."""

    counts: DiarizationOptions = DiarizationOptions()
    references: tuple[SpeakerReference, ...] = ()


class InvalidReference(ValueError):
    """The recording of a known speaker cannot be used."""


Hear = Callable[[EncodedAudio, SharedWaveform], Awaitable[Sequence[Span]]]
"""Decodes a recording into shared memory and tells where there is speech in it."""


async def diarization_options(wanted: SpeakerOptions, hear: Hear) -> DiarizationOptions:
    """What the device needs to know of the speakers.

    Raises:
        InvalidReference: a reference is no recording, holds no speech, or is too short or too long.
    """
    known = [await _known(reference, hear) for reference in wanted.references]
    try:
        return replace(wanted.counts, known_speakers=tuple(known))
    except ValueError as error:
        raise InvalidReference(str(error)) from error


async def _known(reference: SpeakerReference, hear: Hear) -> KnownSpeaker:
    with SharedWaveform() as waveform:
        try:
            spans = await hear(reference.audio, waveform)
        except ValueError as error:
            raise InvalidReference(f"the reference of {reference.name!r}: {error}") from error
        if not spans:
            raise InvalidReference(f"the reference of {reference.name!r}: no speech is heard in it")
        try:
            return KnownSpeaker(reference.name, waveform.ref().open())
        except ValueError as error:
            raise InvalidReference(str(error)) from error


@asynccontextmanager
async def attribution(
    device: Device, waveform: SharedWaveform, spans: Sequence[Span], options: DiarizationOptions, warnings: list[str]
) -> AsyncGenerator[Callable[[], Awaitable[Attribution]], None]:
    """Find out who speaks while the words are found out: a function that waits for the answer.

    Leaving the context cancels what is still under way. Warnings are added to the list.
    """

    async def found() -> Attribution:
        request = SpeakerRequest(tuple(spans), options)
        with stage("speakers"):
            async with aclosing(device.call(SPEAKERS, waveform, request)) as outputs:
                async for diarization in outputs:
                    assert isinstance(diarization, Diarization)
                    warnings.extend(diarization.warnings)
                    return Attribution(diarization.turns, diarization.names)
        raise AssertionError("the speaker stage answers once")

    task = asyncio.create_task(found())
    try:
        yield lambda: asyncio.shield(task)
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError, Exception):
            await task
