"""A whole app in process: the real pipeline over a device and a decoder that know what they will hear."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI

from app.pipeline import RECOGNIZER, VAD, EncodedAudio, Pipeline
from app.server import create_app
from app.settings import Settings
from app.speakers import SPEAKERS, SpeakerRequest
from audio.decode import Channel
from audio.errors import AudioTooLong, NoAudioStream, UndecodableAudio
from audio.shared import SharedWaveform
from audio.span import SAMPLE_RATE, Span
from diarization.outcome import Diarization
from diarization.timeline import SpeakerTurn
from engine.device import DeviceGone, DeviceHealth
from engine.recognition import Capabilities, DecodingOptions, Hypothesis, TokenLogprob, Word
from vad.options import SegmentationOptions

MAGIC = b"FAKE"
CALL = b"CALL"
"""The magic of two channels, sample by sample."""


def samples(number: int, seconds: float = 1.0) -> bytes:
    """16-bit samples that are all `number`, which the fake device hears as "number <number>"; 0 is silence."""
    return np.full(round(seconds * SAMPLE_RATE), number, "<i2").tobytes()


def _read(path: str) -> bytes:
    return Path(path).read_bytes()


class FakeDecoder:
    """Knows a container of four magic bytes and 16-bit samples."""

    max_seconds = 3600.0

    def __init__(self) -> None:
        self.decoded: list[EncodedAudio] = []
        self.closed = False

    async def decode(self, audio: EncodedAudio, into: SharedWaveform, *, channel: Channel) -> None:
        self.decoded.append(audio)
        content = audio.content if isinstance(audio.content, bytes) else await asyncio.to_thread(_read, audio.content)
        if content.startswith(b"MUTE"):
            raise NoAudioStream("the file has no sound")
        if not content.startswith(MAGIC):
            raise UndecodableAudio("this is no recording")
        sound = np.frombuffer(content[len(MAGIC) :], "<i2").astype(np.float32) / 32768
        if len(sound) > self.max_seconds * SAMPLE_RATE:
            raise AudioTooLong(f"the recording is longer than {self.max_seconds:g} s")
        with into.ref().writer() as out:
            out.write(sound.tobytes())

    async def decode_channels(self, audio: EncodedAudio, into: Sequence[SharedWaveform]) -> int:
        assert isinstance(audio.content, bytes)
        if not audio.content.startswith(CALL):
            await self.decode(audio, into[0], channel="mix")
            return 1
        sound = np.frombuffer(audio.content[len(CALL) :], "<i2").astype(np.float32).reshape(-1, 2) / 32768
        for waveform, channel in zip(into, sound.T, strict=False):
            waveform.write(channel)
        return 2

    async def close(self) -> None:
        self.closed = True


@dataclass
class FakeDevice:
    """Hears every second as a segment of two words, "number" and the value of its samples.

    With `speakers`, "number" is said by the one before: the change of speaker lies in the middle of a segment. A
    known speaker is one whose reference has the samples that the segment has.
    """

    languages: tuple[str, ...] = ("en", "zh", "de")
    word_timestamps: bool = True
    hotwords: bool = True
    prompt: bool = True
    logprobs: bool = True
    translation: bool = False
    speakers: bool = False
    loaded: asyncio.Event = field(default_factory=asyncio.Event)
    running: asyncio.Event = field(default_factory=asyncio.Event)
    entered: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    failure: str | None = None
    refusal: Exception | None = None
    asked: list[DecodingOptions] = field(default_factory=list)
    segmentations: list[SegmentationOptions] = field(default_factory=list)
    diarized: list[SpeakerRequest] = field(default_factory=list)
    under_way: int = 0
    cancelled: int = 0
    closed: bool = False

    def __post_init__(self) -> None:
        self.loaded.set()
        self.running.set()

    async def ready(self) -> None:
        await self.loaded.wait()
        if self.failure is not None:
            raise DeviceGone(self.failure)

    @property
    def health(self) -> DeviceHealth:
        gone = self.failure is not None
        return DeviceHealth(self.loaded.is_set() and not gone, self.failure, final=gone)

    @property
    def facts(self) -> Mapping[str, Mapping[str, Any]]:
        capabilities = Capabilities(
            model="whisper-base",
            max_segment_seconds=30.0,
            languages=self.languages,
            word_timestamps=self.word_timestamps,
            hotwords=self.hotwords,
            translation=self.translation,
            detects_language=True,
            prompt=self.prompt,
            logprobs=self.logprobs,
        )
        speakers = {SPEAKERS: {"model": "fake"}} if self.speakers else {}
        return {VAD: {}, RECOGNIZER: {"capabilities": capabilities}, **speakers}

    async def call(self, stage: str, waveform: SharedWaveform, request: Any) -> AsyncGenerator[Any, None]:
        if self.failure is not None:
            raise DeviceGone(self.failure)
        heard = waveform.ref().open()
        if stage == SPEAKERS:
            self.diarized.append(request)
            yield self._diarization(heard, request)
            return
        self.segmentations.append(request.segmentation)
        spans = self._spans(heard)
        yield spans
        if request.decoding is None or not spans:
            return
        async with aclosing(self._hypotheses(heard, spans, request.decoding)) as hypotheses:
            async for hypothesis in hypotheses:
                yield hypothesis

    async def _hypotheses(
        self, heard: np.ndarray[Any, Any], spans: list[Span], options: DecodingOptions
    ) -> AsyncGenerator[Hypothesis, None]:
        self.asked.append(options)
        self.under_way += 1
        self.entered.release()
        over = False
        try:
            await self.running.wait()
            if self.refusal is not None:
                raise self.refusal
            for index in reversed(range(len(spans))):
                yield self._hypothesis(index, heard[spans[index].slice()], options)
            over = True
        finally:
            self.under_way -= 1
            self.cancelled += not over

    def _diarization(self, heard: np.ndarray[Any, Any], request: SpeakerRequest) -> Diarization:
        numbers = [heard[span.slice()][0] for span in request.spans]
        voices = list(dict.fromkeys(numbers))
        names = {known.reference[0]: known.name for known in request.options.known_speakers}
        turns: list[SpeakerTurn] = []
        for span, number in zip(request.spans, numbers, strict=True):
            speaker = voices.index(number)
            before = turns[-1].speaker if turns else speaker
            turns += [
                SpeakerTurn(span.start, span.start + 0.5, before),
                SpeakerTurn(span.start + 0.5, span.end, speaker),
            ]
        return Diarization(tuple(turns), tuple(names.get(voice) for voice in voices))

    def _spans(self, heard: np.ndarray[Any, Any]) -> list[Span]:
        seconds = [Span(start, start + 1.0) for start in range(len(heard) // SAMPLE_RATE)]
        return [span for span in seconds if heard[span.slice()].any()]

    def _hypothesis(self, index: int, heard: np.ndarray[Any, Any], options: DecodingOptions) -> Hypothesis:
        number = round(float(heard[0]) * 32768)
        words = (Word(" number", 0.1, 0.4996), Word(f" {number}.", 0.5, 0.9))
        return Hypothesis(
            index,
            f"number {number}.",
            words=words if options.word_timestamps else None,
            language=options.language or "en",
            tokens=(7, number),
            avg_logprob=-0.25,
            no_speech_prob=float("nan"),
            logprobs=_logprobs(number) if options.logprobs else None,
        )

    async def close(self) -> None:
        self.closed = True


def _logprobs(number: int) -> tuple[TokenLogprob, ...]:
    """A token of one byte of two, of which no text can be made, is part of it."""
    content = f" {number}.".encode()
    return (
        TokenLogprob("number", b"number", -0.125),
        TokenLogprob("\ufffd", b"\xc3", -2.5),
        TokenLogprob(content.decode(), content, -0.5),
    )


@dataclass
class House:
    """An app and the fakes that it stands on."""

    app: FastAPI
    device: FakeDevice
    decoder: FakeDecoder
    client: httpx.AsyncClient

    def recording(self, number: int = 1, seconds: float = 1.0) -> dict[str, tuple[str, bytes, str]]:
        """The `files` of a multipart request."""
        return {"file": ("recording.wav", MAGIC + samples(number, seconds), "audio/wav")}


Build = Callable[..., AbstractAsyncContextManager[House]]


@pytest.fixture(autouse=True)
def _no_settings_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("TINGLU_")]:
        monkeypatch.delenv(name)


@pytest.fixture
def build() -> Build:
    """A factory of running apps: `async with build(device, max_upload_bytes=...) as house`.

    The fakes do not know the recording of the self-test.
    """

    @asynccontextmanager
    async def build(device: FakeDevice | None = None, /, **settings: Any) -> AsyncIterator[House]:
        device, decoder = device or FakeDevice(), FakeDecoder()
        app = create_app(Pipeline(decoder=decoder, device=device), Settings(**{"self_test": False, **settings}))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://tinglu") as client,
        ):
            await asyncio.sleep(0)
            yield House(app, device, decoder, client)

    return build


@pytest.fixture
async def house(build: Build) -> AsyncIterator[House]:
    async with build() as house:
        yield house


@pytest.fixture
def new_device() -> type[FakeDevice]:
    return FakeDevice


@pytest.fixture
def new_decoder() -> type[FakeDecoder]:
    return FakeDecoder


@pytest.fixture
def runtime(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Stands for the module that starts real models; a test gives it its `build_pipeline`."""
    module = ModuleType("app.runtime")
    module.device_kind = lambda _: "cpu"  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "app.runtime", module)
    return module


@pytest.fixture
def pcm() -> Callable[..., bytes]:
    """16-bit samples of one value: `pcm(number, seconds)`."""
    return samples
