"""The one place that joins the rooms: sound to segments, segments to hypotheses, hypotheses to a transcript."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from app.record import note_audio, stage
from app.text import join_texts
from app.transcript import Segment, Transcript
from audio.decode import Channel
from audio.shared import SharedWaveform, Waveform
from audio.span import Span
from engine.device import Device, DeviceHealth
from engine.recognition import Capabilities, DecodingOptions, Hypothesis, Recognition
from vad.options import SegmentationOptions

VAD = "vad"
RECOGNIZER = "recognizer"


@dataclass(frozen=True, slots=True)
class EncodedAudio:
    """A recording in some container: its bytes, or the path of a file that holds them."""

    content: bytes | str


Source = EncodedAudio | Waveform


class Decoder(Protocol):
    """Turns containers into waveforms away from the event loop."""

    async def decode(self, audio: EncodedAudio, into: SharedWaveform, *, channel: Channel) -> None:
        """Decode into shared memory; cancelling the call stops the work.

        Raises:
            AudioError: what is wrong with the recording, with a code.
        """

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """Everything a request may choose. `segmentation` None means the server's own; `warnings` say what of the request
    is not honoured, and go into the transcript.
    """

    decoding: DecodingOptions = DecodingOptions()
    segmentation: SegmentationOptions | None = None
    channel: Channel = "mix"
    warnings: tuple[str, ...] = ()


class Pipeline:
    """Recordings to transcripts. Any number of requests may be under way at once."""

    def __init__(self, *, decoder: Decoder, device: Device, segmentation: SegmentationOptions | None = None) -> None:
        self._decoder = decoder
        self._device = device
        self._segmentation = segmentation or SegmentationOptions()

    async def ready(self) -> None:
        """Wait until the models are loaded.

        Raises:
            DeviceGone: they never will be; the message says why.
        """
        await self._device.ready()

    @property
    def health(self) -> DeviceHealth:
        """How the device is."""
        return self._device.health

    @property
    def capabilities(self) -> Capabilities:
        """What the loaded recogniser can do; only once ready."""
        capabilities = self._device.facts[RECOGNIZER]["capabilities"]
        assert isinstance(capabilities, Capabilities)
        return capabilities

    async def transcribe(self, source: Source, options: TranscriptionOptions | None = None) -> Transcript:
        """The whole transcript of a recording.

        Raises:
            AudioError: the recording cannot be used.
            ValueError: an option that the loaded recogniser cannot honour.
            DeviceGone: the device died meanwhile.
        """
        async with aclosing(self.stream(source, options)) as items:
            async for item in items:
                if isinstance(item, Transcript):
                    return item
        raise AssertionError("a stream ends with its transcript")

    async def stream(
        self,
        source: Source,
        options: TranscriptionOptions | None = None,
        *,
        admit: Callable[[float], None] | None = None,
    ) -> AsyncGenerator[Segment | Transcript, None]:
        """Segments in the order of the recording, each as soon as it and all before it are ready; then the transcript.

        `admit` is told the seconds of sound before the device hears of them; what it raises ends the request. Closing
        the generator cancels what is left on the device. Raises what `transcribe` raises.
        """
        options = options or TranscriptionOptions()
        started = time.perf_counter()
        with SharedWaveform() as waveform:
            if isinstance(source, EncodedAudio):
                await self._decoder.decode(source, waveform, channel=options.channel)
            else:
                await asyncio.to_thread(waveform.write, source)
            duration = waveform.duration
            note_audio(duration)
            if admit is not None:
                admit(duration)
            with stage("vad"):
                spans = await self._spans(waveform, options)
            segments: list[Segment] = []
            warnings = list(options.warnings)
            if spans:
                hypotheses = self._hypotheses(waveform, spans, options.decoding)
                with stage("recognise"):
                    async with aclosing(hypotheses):
                        async for span, hypothesis in hypotheses:
                            warnings += hypothesis.warnings
                            if hypothesis.text.strip():
                                segments.append(_segment(span, hypothesis))
                                yield segments[-1]
            yield Transcript(
                text=join_texts(segment.text for segment in segments),
                segments=tuple(segments),
                duration=duration,
                processing_seconds=time.perf_counter() - started,
                language=_spoken_most(segments) or options.decoding.language,
                warnings=tuple(dict.fromkeys(warnings)),
            )

    async def _spans(self, waveform: SharedWaveform, options: TranscriptionOptions) -> Sequence[Span]:
        wanted = options.segmentation or self._segmentation
        limit = min(wanted.max_segment_seconds, self.capabilities.max_segment_seconds)
        async with aclosing(self._device.call(VAD, waveform, replace(wanted, max_segment_seconds=limit))) as outputs:
            async for spans in outputs:
                return list(spans)
        raise AssertionError("the vad stage answers once")

    async def _hypotheses(
        self, waveform: SharedWaveform, spans: Sequence[Span], decoding: DecodingOptions
    ) -> AsyncGenerator[tuple[Span, Hypothesis], None]:
        """Hypotheses in the order of their segments, though the recogniser finishes them in any."""
        early: dict[int, Hypothesis] = {}
        following = 0
        async with aclosing(self._device.call(RECOGNIZER, waveform, Recognition(tuple(spans), decoding))) as outputs:
            async for hypothesis in outputs:
                early[hypothesis.index] = hypothesis
                while following in early:
                    yield spans[following], early.pop(following)
                    following += 1

    async def close(self) -> None:
        await self._decoder.close()
        await self._device.close()


def _segment(span: Span, hypothesis: Hypothesis) -> Segment:
    words = hypothesis.words
    return Segment(
        start=span.start,
        end=span.end,
        text=hypothesis.text,
        words=None if words is None else tuple(word.shifted(span.start) for word in words),
        language=hypothesis.language,
        finish_reason=hypothesis.finish_reason,
        tokens=hypothesis.tokens,
        temperature=hypothesis.temperature,
        avg_logprob=hypothesis.avg_logprob,
        no_speech_prob=hypothesis.no_speech_prob,
        compression_ratio=hypothesis.compression_ratio,
        warnings=hypothesis.warnings,
    )


def _spoken_most(segments: Sequence[Segment]) -> str | None:
    """The language of the most seconds of speech."""
    seconds: dict[str, float] = {}
    for segment in segments:
        if segment.language:
            seconds[segment.language] = seconds.get(segment.language, 0.0) + segment.end - segment.start
    return max(seconds, key=seconds.__getitem__) if seconds else None


def pcm16(data: bytes | bytearray) -> Waveform:
    """16-bit little-endian mono samples at 16 kHz as a waveform."""
    waveform = np.frombuffer(data, "<i2").astype(np.float32)
    waveform /= 32768.0
    return waveform
