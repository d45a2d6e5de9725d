from __future__ import annotations

import io
import struct

import numpy as np
import pytest

from audio.decode import decode
from audio.plain import plain_samples
from tests.hearing import wav_header

SOUND = np.array([0, 1, -1, 32767, -32768, 12345], "<i2").tobytes()
FILE = wav_header(len(SOUND)) + SOUND


def test_the_samples_are_those_of_the_decoder() -> None:
    rng = np.random.default_rng(0)
    sound = rng.integers(-32768, 32768, 16_000, np.int16).astype("<i2").tobytes()
    for content in (FILE, wav_header(len(sound)) + sound):
        samples = plain_samples(content)
        assert samples is not None
        assert samples.dtype == np.float32
        np.testing.assert_array_equal(samples, decode(io.BytesIO(content)))


def _changed(offset: int, form: str, value: int) -> bytes:
    content = bytearray(FILE)
    struct.pack_into(form, content, offset, value)
    return bytes(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        FILE[:20],
        FILE[:44],
        FILE[:-1],
        FILE[:-2],
        FILE + b"\0\0",
        b"RF64" + FILE[4:],
        _changed(20, "<H", 3),
        _changed(22, "<H", 2),
        _changed(24, "<I", 8000),
        _changed(34, "<H", 8),
        _changed(40, "<I", 2**32 - 1),
        _changed(40, "<I", 0),
        FILE[:36] + b"LIST" + FILE[40:],
    ],
    ids=[
        "empty",
        "part-of-a-header",
        "no-samples",
        "odd",
        "cut-off",
        "more-behind",
        "rf64",
        "float",
        "stereo",
        "8-khz",
        "8-bit",
        "vast",
        "zero",
        "another-chunk",
    ],
)
def test_anything_else_is_left_to_the_decoder(content: bytes) -> None:
    assert plain_samples(content) is None
