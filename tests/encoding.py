"""Recordings in every container the tests need, by FFmpeg's encoders."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

Samples = NDArray[np.int16]

CONTAINERS: Mapping[str, tuple[str, str, int]] = {
    "flac": ("flac", "flac", 16_000),
    "mp3": ("mp3", "libmp3lame", 16_000),
    "m4a": ("ipod", "aac", 16_000),
    "webm": ("webm", "libopus", 48_000),
    "ogg": ("ogg", "libopus", 48_000),
}
"""File extension -> FFmpeg's container, its codec and the rate that codec wants."""


def encode(samples: Samples, container: str, codec: str, rate: int = 16_000, *, source_rate: int = 16_000,
           layout: str = "mono", video: bool = False, options: dict[str, str] | None = None,
           codec_options: dict[str, str] | None = None) -> bytes:  # fmt: skip
    """A file with samples, (channels, frames) or (frames,) int16; an empty `codec` leaves the sound out."""
    with tempfile.TemporaryDirectory() as directory:  # some muxers open their own file once more
        path = Path(directory, "file")
        with av.open(str(path), "w", format=container, options=options or {}) as output:
            frames: list[tuple[Any, Any]] = []
            if video:
                stream = output.add_stream("mpeg4", rate=10)
                stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
                pictures = [np.full((48, 64, 3), 20 * i, np.uint8) for i in range(10)]
                frames += [(stream, av.VideoFrame.from_ndarray(picture, format="rgb24")) for picture in pictures]
            if codec:
                stream = output.add_stream(codec, rate=rate, layout=layout, options=codec_options or {})
                packed = np.ascontiguousarray(np.atleast_2d(samples).T.reshape(1, -1))
                frame = av.AudioFrame.from_ndarray(packed, format="s16", layout=layout)
                frame.sample_rate, frame.pts = source_rate, 0
                frames.append((stream, frame))
            for stream, frame in [*frames, *((stream, None) for stream in output.streams)]:
                output.mux(stream.encode(frame))
        return path.read_bytes()
