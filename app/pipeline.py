"""The one place that joins the rooms: sound to segments, segments to hypotheses, hypotheses to a transcript."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AsyncExitStack, ExitStack, aclosing
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

import numpy as np

from app.attribution import speaker_letter
from app.record import note_audio, stage
from app.speakers import SPEAKERS
from app.stages import RECOGNIZER, VAD, SpeechRequest
from app.text import join_texts
from app.transcript import Segment, Transcript
from app.voices import EncodedAudio as EncodedAudio
from app.voices import SpeakerOptions, attribution, diarization_options
from audio.decode import Channel
from audio.shared import SharedWaveform, Waveform
from audio.span import Span
from engine.device import Device, DeviceHealth
from engine.recognition import Capabilities, DecodingOptions, Hypothesis
from vad.options import SegmentationOptions

MOST_CHANNELS = 8
"""Channels of a recording that are told apart."""


Source = EncodedAudio | Waveform

ChannelChoice = Channel | Literal["split"]
"""What is heard of a recording of several channels; `split` is each by itself, a speaker each."""


class Decoder(Protocol):
    """Turns containers into waveforms away from the event loop."""

    async def decode(self, audio: EncodedAudio, into: SharedWaveform, *, channel: Channel) -> None:
        """Decode into shared memory; cancelling the call stops the work.

        Raises:
            AudioError: what is wrong with the recording, with a code.
        """

    async def decode_channels(self, audio: EncodedAudio, into: Sequence[SharedWaveform]) -> int:
        """The same for every channel by itself; how many there are, and so how many of `into` are filled.

        Raises:
            AudioError: what is wrong with the recording, or there are more channels than `into`.
        """

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class TranscriptionOptions:
    """Everything a request may choose. `segmentation` None means the server's own, `speakers` None that they are not
    told apart by voice; `warnings` say what of the request is not honoured, and go into the transcript.
    """

    decoding: DecodingOptions = DecodingOptions()
    segmentation: SegmentationOptions | None = None
    speakers: SpeakerOptions | None = None
    channel: ChannelChoice = "mix"
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
    def segmentation(self) -> SegmentationOptions:
        """How recordings are cut unless a request says otherwise."""
        return self._segmentation

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

    @property
    def tells_speakers(self) -> bool:
        """Whether there is a model that tells speakers apart; only once ready."""
        return SPEAKERS in self._device.facts

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
        with ExitStack() as held:
            channels = await self._channels(source, options.channel, held)
            duration = max(channel.duration for channel in channels)
            note_audio(duration)
            if admit is not None:
                admit(sum(channel.duration for channel in channels))
            segments: list[Segment] = []
            warnings = list(options.warnings)
            heard = self._heard if options.channel != "split" else self._heard_apart
            async with aclosing(heard(channels, options, warnings)) as parts:
                async for part in parts:
                    segments.append(part)
                    yield part
            yield Transcript(
                text=join_texts(segment.text for segment in segments),
                segments=tuple(segments),
                duration=duration,
                processing_seconds=time.perf_counter() - started,
                language=_spoken_most(segments) or options.decoding.language,
                warnings=tuple(dict.fromkeys(warnings)),
            )

    async def _channels(self, source: Source, choice: ChannelChoice, held: ExitStack) -> list[SharedWaveform]:
        """The waveform of a recording, one of each channel where they are split."""
        waveform = held.enter_context(SharedWaveform())
        if not isinstance(source, EncodedAudio):
            await asyncio.to_thread(waveform.write, source)
        elif choice != "split":
            await self._decoder.decode(source, waveform, channel=choice)
        else:
            channels = [waveform, *(held.enter_context(SharedWaveform()) for _ in range(MOST_CHANNELS - 1))]
            return channels[: await self._decoder.decode_channels(source, channels)]
        return [waveform]

    async def _heard(
        self, channels: Sequence[SharedWaveform], options: TranscriptionOptions, warnings: list[str]
    ) -> AsyncGenerator[Segment, None]:
        """The segments of one channel, their speakers told apart if that is asked for."""
        (waveform,) = channels
        known = None if options.speakers is None else await diarization_options(options.speakers, self._reference)
        async with AsyncExitStack() as stack:
            outputs = await stack.enter_async_context(aclosing(self._listen(waveform, options)))
            with stage("vad"):
                spans = await anext(outputs)
            speakers = None
            if known is not None and spans:
                speakers = await stack.enter_async_context(attribution(self._device, waveform, spans, known, warnings))
            with stage("recognise"):
                for span in spans:
                    hypothesis = await anext(outputs)
                    warnings += hypothesis.warnings
                    if not hypothesis.text.strip():
                        continue
                    segment = _segment(span, hypothesis)
                    for part in (await speakers()).attributed(segment) if speakers else (segment,):
                        yield part

    async def _heard_apart(
        self, channels: Sequence[SharedWaveform], options: TranscriptionOptions, warnings: list[str]
    ) -> AsyncGenerator[Segment, None]:
        """The segments of all channels in the order of their start, each channel that says something a speaker."""
        numbers: dict[int, int] = {}
        async with AsyncExitStack() as stack:
            outputs = [await stack.enter_async_context(aclosing(self._listen(each, options))) for each in channels]
            with stage("vad"):
                spans = await asyncio.gather(*(anext(each) for each in outputs))
            order = sorted((span.start, channel, span) for channel, of in enumerate(spans) for span in of)
            with stage("recognise"):
                for _, channel, span in order:
                    hypothesis = await anext(outputs[channel])
                    warnings += hypothesis.warnings
                    if hypothesis.text.strip():
                        number = numbers.setdefault(channel, len(numbers))
                        segment = _segment(span, hypothesis)
                        yield replace(segment, speaker=number, speaker_label=speaker_letter(number))

    async def _reference(self, audio: EncodedAudio, into: SharedWaveform) -> Sequence[Span]:
        await self._decoder.decode(audio, into, channel="mix")
        return await self._spans(into, TranscriptionOptions())

    async def _listen(self, waveform: SharedWaveform, options: TranscriptionOptions) -> AsyncGenerator[Any, None]:
        """First the spans of speech, then a hypothesis for each in their order, whatever order they get ready in."""
        early: dict[int, Hypothesis] = {}
        following = 0
        request = SpeechRequest(self._segmentation_of(options), options.decoding)
        async with aclosing(self._device.call(VAD, waveform, request)) as outputs:
            yield await anext(outputs)
            async for hypothesis in outputs:
                early[hypothesis.index] = hypothesis
                while following in early:
                    yield early.pop(following)
                    following += 1

    async def _spans(self, waveform: SharedWaveform, options: TranscriptionOptions) -> Sequence[Span]:
        request = SpeechRequest(self._segmentation_of(options))
        async with aclosing(self._device.call(VAD, waveform, request)) as outputs:
            spans: Sequence[Span] = await anext(outputs)
            return spans

    def _segmentation_of(self, options: TranscriptionOptions) -> SegmentationOptions:
        return _limited(options.segmentation or self._segmentation, self.capabilities.max_segment_seconds)

    async def close(self) -> None:
        await self._decoder.close()
        await self._device.close()


@functools.lru_cache(maxsize=64)
def _limited(wanted: SegmentationOptions, max_seconds: float) -> SegmentationOptions:
    limit = min(wanted.max_segment_seconds, max_seconds)
    return wanted if limit == wanted.max_segment_seconds else replace(wanted, max_segment_seconds=limit)


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
        logprobs=hypothesis.logprobs,
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
