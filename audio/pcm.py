"""Containers and codecs: a seekable file becomes blocks of samples at its own rate, with all its channels.

FFmpeg (PyAV) reads everything; libsndfile reads WAV, where it is quicker and knows more of the old codecs. FLAC and MP3
belong to FFmpeg, which is as quick there: libsndfile stops after the first of two joined files, refuses FLAC that is
cut off or was streamed without a length, and gives up on MP3 at the first damaged stretch.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

import av
import numpy as np
import soundfile
from av.stream import Discard
from numpy.typing import NDArray

from audio.errors import NoAudioStream, UndecodableAudio

KNOWN_FORMATS = "WAV, FLAC, MP3, M4A/MP4/MOV, WebM/Matroska, Ogg, Opus, AAC, AMR, AIFF, CAF, WMA, AVI, MPEG"
"""What an error message offers instead."""

MAX_CHANNELS = 64
MIN_RATE, MAX_RATE = 1_000, 768_000
"""Channels and samples per second beyond which a header is taken for damage, not for sound."""

# Playlists, image lists, subtitles, devices and network formats stay out: they open other files or are no sound.
_DEMUXERS = (
    "3gp aac ac3 aiff amr amrnb amrwb ape asf au avi caf dsf dts dtshd eac3 flac flv gsm ircam latm loas m4a matroska "
    "mov mp3 mp4 mpc mpc8 mpeg mpegts mxf nistsphere nut ogg oma qcp rm tak truehd tta voc w64 wav webm wv"
)
_OPTIONS = {"format_whitelist": ",".join(_DEMUXERS.split()), "protocol_whitelist": "none"}

_BLOCK_FRAMES = 1 << 16

# An AAC frame is the overlap of two transforms: the first one of a bare stream is half missing. Containers count it as
# priming and FFmpeg drops it there; ADTS cannot say so.
_ADTS_PRIMING = 1024


@dataclass(frozen=True, slots=True)
class Pcm:
    """Decoded samples: float32 (channels, frames), full scale 1 (floats may exceed it), and frames per second."""

    samples: NDArray[np.float32]
    rate: int


class DecodingCancelled(Exception):
    """The caller no longer wants the waveform."""


def read_pcm(file: BinaryIO, cancelled: Callable[[], bool]) -> Generator[Pcm]:
    """Decode a seekable file from its beginning, about 65,536 frames at a time.

    What is damaged or cut off is left out: the blocks hold what could be decoded, which may be nothing.

    Raises:
        UndecodableAudio: no demuxer or decoder understands the file, or its header claims the impossible.
        NoAudioStream: the container holds no sound.
        DecodingCancelled: `cancelled` said so, at a read of the file or at a block.
    """
    for pcm in _blocks(file, cancelled):
        if cancelled():
            raise DecodingCancelled
        yield pcm


def _blocks(file: BinaryIO, cancelled: Callable[[], bool]) -> Generator[Pcm]:
    file.seek(0)
    magic = file.read(12)
    file.seek(0)
    if magic[:4] in (b"RIFF", b"RF64") and magic[8:] == b"WAVE":
        try:
            sound = soundfile.SoundFile(file)
        except soundfile.LibsndfileError:
            sound = None
        # No frames: empty, or written to a pipe with a data size of 0, which FFmpeg reads to the end of the file.
        if sound is not None and sound.frames > 0:
            yield from _libsndfile_blocks(sound)
            return
        file.seek(0)
    yield from _ffmpeg_blocks(_Source(file, cancelled))


class _Source:
    """What FFmpeg sees of a file: no name to guess a format from, and reads that notice that the caller has gone."""

    def __init__(self, file: BinaryIO, cancelled: Callable[[], bool]) -> None:
        self._file = file
        self._cancelled = cancelled
        self.seek = file.seek
        self.tell = file.tell

    def read(self, size: int) -> bytes:
        if self._cancelled():
            raise DecodingCancelled
        return self._file.read(size)


def _libsndfile_blocks(sound: soundfile.SoundFile) -> Generator[Pcm]:
    with sound:
        _check_shape(sound.channels, sound.samplerate)
        while True:
            try:
                samples = sound.read(_BLOCK_FRAMES, dtype="float32", always_2d=True)
            except soundfile.LibsndfileError:
                return
            if not len(samples):
                return
            yield Pcm(samples.T, sound.samplerate)


def _ffmpeg_blocks(file: _Source) -> Generator[Pcm]:
    try:
        container = av.open(file, options=_OPTIONS, metadata_errors="replace")
    except av.error.FFmpegError as error:
        raise UndecodableAudio(f"not a sound file, or damaged, or cut off; can be read: {KNOWN_FORMATS}") from error
    with container:
        stream = _audio_stream(container)
        priming = _ADTS_PRIMING if container.format.name == "aac" else 0
        try:
            for pcm in _packed(_frames(container, stream)):
                kept = pcm.samples[:, priming:]
                priming = max(0, priming - pcm.samples.shape[1])
                yield Pcm(kept, pcm.rate)
        except av.error.FFmpegError as error:
            raise UndecodableAudio(f"the sound in the file ({container.format.name}) cannot be converted") from error


def _audio_stream(container: Any) -> Any:
    """The stream a player would choose; the demuxer is told to leave out all others."""
    if not container.streams.audio:
        kinds = ", ".join(sorted({stream.type for stream in container.streams})) or "nothing"
        raise NoAudioStream(f"no audio stream in the file ({container.format.name}): it holds {kinds}")
    stream = container.streams.best("audio")
    if stream is None or stream.codec_context is None:
        raise UndecodableAudio(f"the sound in the file ({container.format.name}) is damaged or its codec is not known")
    for other in container.streams:
        if other.index != stream.index:
            other.discard = Discard.all
    return stream


def _frames(container: Any, stream: Any) -> Iterator[Any]:
    """Decoded frames in order; damaged packets are skipped, and a damaged container ends there."""
    packets = container.demux(stream)
    while True:
        try:
            packet = next(packets, None)
        except av.error.FFmpegError:
            packet = None
        with contextlib.suppress(av.error.FFmpegError):
            yield from stream.decode(packet)
        if packet is None or packet.size == 0:
            return


def _check_shape(channels: int, rate: int) -> None:
    if not 1 <= channels <= MAX_CHANNELS:
        raise UndecodableAudio(f"the file claims {channels} channels; 1 to {MAX_CHANNELS} are possible")
    if not MIN_RATE <= rate <= MAX_RATE:
        raise UndecodableAudio(f"the file claims a sample rate of {rate} Hz; {MIN_RATE} to {MAX_RATE} are possible")


def _packed(frames: Iterator[Any]) -> Iterator[Pcm]:
    """Join short frames of any sample type into blocks of packed float32.

    FFmpeg's own converter does it: quicker than one numpy array a frame, and PyAV 18 reads beyond the planes of a
    planar frame of eight channels or more. A stream may change its type, channels or rate on the way.
    """
    converter: Any = None
    current = None
    for frame in frames:
        shape = frame.format.name, frame.layout.name, frame.sample_rate
        if shape != current:
            if converter is not None:
                yield from map(_pcm, converter.resample(None))
            _check_shape(frame.layout.nb_channels, frame.sample_rate)
            converter, current = av.AudioResampler(format="flt", frame_size=_BLOCK_FRAMES), shape
        yield from map(_pcm, converter.resample(frame))
    if converter is not None:
        yield from map(_pcm, converter.resample(None))


def _pcm(frame: Any) -> Pcm:
    return Pcm(frame.to_ndarray().reshape(-1, frame.layout.nb_channels).T, frame.sample_rate)
