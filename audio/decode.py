"""Any recording to a waveform: mono float32 at 16 kHz, block by block, with limits that hold while it decodes."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import BinaryIO, Literal

import numpy as np
import soxr
from numpy.typing import NDArray

from audio.errors import AudioTooLong, EmptyAudio, TooManyChannels, UndecodableAudio
from audio.pcm import DecodingCancelled as DecodingCancelled
from audio.pcm import Pcm, read_pcm
from audio.shared import Waveform
from audio.span import SAMPLE_RATE

Channel = Literal["mix", "left", "right"]
"""Which channels become the waveform: the mean of all, or one. A mono recording is its own left and right."""

_PCM_ITEM_BYTES = 4


@dataclass(frozen=True, slots=True)
class DecodeLimits:
    """How large a recording may be; None is no limit.

    `max_bytes` is the size of the file, `max_seconds` the decoded length, `max_pcm_bytes` the decoded samples of all
    channels at the recording's own rate, as float32. Meeting a limit exactly is allowed.
    """

    max_bytes: int | None = None
    max_seconds: float | None = None
    max_pcm_bytes: int | None = None


def never() -> bool:
    """The answer of a caller that does not cancel."""
    return False


def decode(
    file: BinaryIO,
    *,
    limits: DecodeLimits = DecodeLimits(),
    channel: Channel = "mix",
    cancelled: Callable[[], bool] = never,
) -> Waveform:
    """Decode a whole recording into this process's memory.

    Takes and raises what `decode_blocks` does.
    """
    memory = io.BytesIO()
    decode_into(file, memory, limits=limits, channel=channel, cancelled=cancelled)
    return np.frombuffer(memory.getbuffer(), np.float32)


def decode_into(
    file: BinaryIO,
    out: BinaryIO,
    *,
    limits: DecodeLimits = DecodeLimits(),
    channel: Channel = "mix",
    cancelled: Callable[[], bool] = never,
) -> int:
    """Decode into a (buffered) binary file, native float32, and return how many samples were written.

    Takes and raises what `decode_blocks` does; after an error `out` holds what was decoded before it.
    """
    written = 0
    for block in decode_blocks(file, limits=limits, channel=channel, cancelled=cancelled):
        out.write(block.data)
        written += len(block)
    return written


def decode_channels_into(
    file: BinaryIO,
    outs: Sequence[BinaryIO],
    *,
    limits: DecodeLimits = DecodeLimits(),
    cancelled: Callable[[], bool] = never,
) -> int:
    """Decode every channel of a recording into a binary file of its own, as `decode_into` does; how many there are.

    Raises:
        TooManyChannels: there are more than `outs`, or their number changes on the way.
        AudioError: what `decode_blocks` raises.
    """
    _check_size(file.seek(0, os.SEEK_END), limits)
    meter = _Meter(limits)
    resamplers: list[_Resampler] = []
    produced = 0
    with closing(read_pcm(file, cancelled)) as blocks:
        for pcm in blocks:
            start, count = meter.seconds, len(pcm.samples)
            meter.add(pcm)
            if count > len(outs):
                raise TooManyChannels(f"the recording has {count} channels; at most {len(outs)} are told apart")
            resamplers = resamplers or [_Resampler() for _ in range(count)]
            if count != len(resamplers):
                raise TooManyChannels(f"the recording changes from {len(resamplers)} to {count} channels")
            for samples, resampler, out in zip(pcm.samples, resamplers, outs, strict=False):
                for block in resampler.feed(_one_channel(samples[np.newaxis], "left", start), pcm.rate):
                    out.write(block.data)
                    produced += len(block)
    for resampler, out in zip(resamplers, outs, strict=False):
        for block in resampler.flush():
            out.write(block.data)
            produced += len(block)
    if produced == 0:
        raise UndecodableAudio("the file holds no sound: not one sample could be decoded")
    return len(resamplers)


def decode_blocks(
    file: BinaryIO,
    *,
    limits: DecodeLimits = DecodeLimits(),
    channel: Channel = "mix",
    cancelled: Callable[[], bool] = never,
) -> Iterator[Waveform]:
    """Decode a seekable file into consecutive pieces of its waveform, a few seconds each, none of them empty.

    Samples beyond full scale are clipped. `cancelled` is asked at every read of the file and at every block.

    Raises:
        EmptyAudio: the file has no bytes.
        AudioTooLong: a limit was passed; at the latest one block after it was.
        NoAudioStream: the container holds no sound.
        UndecodableAudio: nothing could be decoded, or a sample is not a finite number.
        DecodingCancelled: `cancelled` said so.
    """
    _check_size(file.seek(0, os.SEEK_END), limits)
    meter = _Meter(limits)
    resampler = _Resampler()
    produced = 0
    with closing(read_pcm(file, cancelled)) as blocks:
        for pcm in blocks:
            start = meter.seconds
            meter.add(pcm)
            for block in resampler.feed(_one_channel(pcm.samples, channel, start), pcm.rate):
                produced += len(block)
                yield block
    for block in resampler.flush():
        produced += len(block)
        yield block
    if produced == 0:
        raise UndecodableAudio("the file holds no sound: not one sample could be decoded")


def _check_size(size: int, limits: DecodeLimits) -> None:
    if size == 0:
        raise EmptyAudio("the file is empty: 0 bytes")
    if limits.max_bytes is not None and size > limits.max_bytes:
        raise AudioTooLong(f"the file has {size} bytes; the limit is {limits.max_bytes} bytes (max_bytes)")


class _Meter:
    """Counts what was decoded and stops what is too much."""

    def __init__(self, limits: DecodeLimits) -> None:
        self._limits = limits
        self.seconds = 0.0
        self._pcm_bytes = 0

    def add(self, pcm: Pcm) -> None:
        channels, frames = pcm.samples.shape
        self.seconds += frames / pcm.rate
        self._pcm_bytes += channels * frames * _PCM_ITEM_BYTES
        max_seconds, max_pcm_bytes = self._limits.max_seconds, self._limits.max_pcm_bytes
        # Half a sample of room for the sum of many fractions.
        if max_seconds is not None and self.seconds > max_seconds + 0.5 / pcm.rate:
            raise AudioTooLong(
                f"the recording is longer than the limit of {max_seconds:g} s (max_seconds): "
                f"decoding stopped at {self.seconds:.1f} s"
            )
        if max_pcm_bytes is not None and self._pcm_bytes > max_pcm_bytes:
            raise AudioTooLong(
                f"the recording decodes to more than the limit of {max_pcm_bytes} bytes (max_pcm_bytes): "
                f"decoding stopped at {self._pcm_bytes} bytes"
            )


def _one_channel(samples: NDArray[np.float32], channel: Channel, start: float) -> Waveform:
    """Reduce (channels, frames) to (frames,) within full scale; `start` in seconds is for the message."""
    if channel == "mix" and len(samples) > 1:
        with np.errstate(over="ignore", invalid="ignore"):
            mono = np.add.reduce(samples, axis=0) / np.float32(len(samples))
    else:
        mono = samples[min(1, len(samples) - 1) if channel == "right" else 0]
    if not np.isfinite(mono).all():
        raise UndecodableAudio(f"a sample in the block at {start:.1f} s is not a finite number")
    clipped: Waveform = np.clip(mono, -1.0, 1.0)
    return clipped


class _Resampler:
    """To 16 kHz with soxr; samples that already have that rate pass through, and the rate may change on the way."""

    def __init__(self) -> None:
        self._rate = SAMPLE_RATE
        self._stream: soxr.ResampleStream | None = None

    def feed(self, mono: Waveform, rate: int) -> Iterator[Waveform]:
        if rate != self._rate:
            yield from self.flush()
            self._rate = rate
            self._stream = None if rate == SAMPLE_RATE else _new_stream(rate)
        block = mono if self._stream is None else self._resample(mono)
        if len(block):
            yield block

    def flush(self) -> Iterator[Waveform]:
        """The samples that the filter still holds back; `feed` may follow only with another rate."""
        if self._stream is None:
            return
        block = self._resample(np.empty(0, np.float32), last=True)
        if len(block):
            yield block

    def _resample(self, mono: Waveform, *, last: bool = False) -> Waveform:
        assert self._stream is not None
        block: Waveform = self._stream.resample_chunk(mono, last=last)
        return np.clip(block, -1.0, 1.0, out=block)


def _new_stream(rate: int) -> soxr.ResampleStream:
    return soxr.ResampleStream(rate, SAMPLE_RATE, 1, dtype="float32", quality="HQ")
