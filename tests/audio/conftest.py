"""Recordings, and encoders that turn them into every container the tests need."""

from __future__ import annotations

import io
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from tests.encoding import Samples, encode

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="session")
def recording() -> Callable[[str], NDArray[np.float32]]:
    """Name of a recording in tests/data -> its waveform."""

    def read(name: str) -> NDArray[np.float32]:
        samples, rate = soundfile.read(DATA / f"{name}.wav", dtype="int16")
        assert rate == 16_000
        return samples.astype(np.float32) / 32768

    return read


@pytest.fixture(scope="session")
def clip() -> Samples:
    """Three seconds of speech, 16 kHz, 16 bits."""
    samples, _ = soundfile.read(DATA / "jfk.wav", dtype="int16", frames=48_000)
    return samples


@pytest.fixture(scope="session", name="encode")
def encode_fixture() -> Callable[..., bytes]:
    """`tests.encoding.encode`."""
    return encode


@pytest.fixture(scope="session")
def wav() -> Callable[..., bytes]:
    """A WAV file with any claim in its header."""

    def build(data: bytes, *, riff_size: int | None = None, data_size: int | None = None, channels: int = 1,
              rate: int = 16_000) -> bytes:  # fmt: skip
        sizes = [len(data) + 36 if riff_size is None else riff_size, len(data) if data_size is None else data_size]
        frame = channels * 2 & 0xFFFF
        form = struct.pack("<IHHIIHH", 16, 1, channels, rate, rate * frame & 0xFFFFFFFF, frame, 16)
        head = b"RIFF" + struct.pack("<I", sizes[0]) + b"WAVEfmt " + form
        return head + b"data" + struct.pack("<I", sizes[1]) + data

    return build


@pytest.fixture(scope="session")
def sound_file() -> Callable[..., bytes]:
    """(frames,) or (frames, channels) -> a file in one of libsndfile's formats."""

    def build(samples: NDArray[np.generic], rate: int, subtype: str, container: str = "WAV") -> bytes:
        file = io.BytesIO()
        soundfile.write(file, samples, rate, format=container, subtype=subtype)
        return file.getvalue()

    return build
