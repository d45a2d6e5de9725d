"""Recordings as the field sends them, against a real model: every container says the same."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import httpx
import numpy as np
import pytest
import soundfile
import soxr

from bench.recordings import normalise
from tests import compositions
from tests.encoding import encode
from tests.hearing import wav_header

TEXT = "go forward ten meters"
SECONDS = 2.786
DOORS = ("/asr", "/v1/audio/transcriptions")


def command() -> compositions.Samples:
    return compositions.recording("goforward")


def wav(samples: Any, rate: int = 16_000, subtype: str = "PCM_16") -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, rate, format="WAV", subtype=subtype)
    return out.getvalue()


async def hear(client: httpx.AsyncClient, content: bytes, **fields: str) -> Any:
    answer = await client.post("/asr", files={"file": content}, data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def check_command(client: httpx.AsyncClient, content: bytes, **fields: str) -> None:
    answer = await hear(client, content, **fields)
    assert normalise(answer["text"]) == TEXT
    assert answer["duration"] == pytest.approx(SECONDS, abs=0.1)


async def check_refused(client: httpx.AsyncClient, content: bytes, code: str) -> None:
    for door in DOORS:
        answer = await client.post(door, files={"file": content})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, code), answer.text


CONTAINERS: dict[str, tuple[str, str, int]] = {
    "webm": ("webm", "libopus", 48_000),
    "m4a": ("ipod", "aac", 44_100),
    "mp4": ("mp4", "aac", 48_000),
    "ogg": ("ogg", "libopus", 48_000),
    "mp3": ("mp3", "libmp3lame", 44_100),
    "flac": ("flac", "flac", 16_000),
    "amr": ("amr", "libopencore_amrnb", 8_000),
    "adts": ("adts", "aac", 16_000),
}


@pytest.mark.field("A1")
@pytest.mark.parametrize("name", CONTAINERS)
async def test_every_container_says_the_same(client: httpx.AsyncClient, name: str) -> None:
    await check_command(client, encode(command(), *CONTAINERS[name]))


@pytest.mark.field("A2")
async def test_an_index_at_the_end(client: httpx.AsyncClient) -> None:
    """FFmpeg writes `moov` last unless told otherwise."""
    whole = encode(command(), "ipod", "aac", 44_100)
    assert whole.index(b"moov") > whole.index(b"mdat")
    await check_command(client, whole)
    await check_refused(client, whole[: whole.index(b"moov")], "invalid_audio")


@pytest.mark.field("A3")
async def test_webm_of_a_browser(client: httpx.AsyncClient) -> None:
    """The live muxer writes no duration, no cues, and clusters of unknown size, as MediaRecorder does."""
    content = encode(command(), "webm", "libopus", 48_000, options={"live": "1"})
    assert b"\x44\x89" not in content[:500]  # the element of the duration
    await check_command(client, content)


@pytest.mark.field("A4")
@pytest.mark.parametrize(("riff", "data"), [(0xFFFFFFFF, 0xFFFFFFFF), (0, 0), (0x7FFFFFFF, 0x7FFFFFFF - 36)])
async def test_wav_that_was_written_to_a_pipe(client: httpx.AsyncClient, riff: int, data: int) -> None:
    head = bytearray(wav_header(0))
    head[4:8], head[40:44] = riff.to_bytes(4, "little"), data.to_bytes(4, "little")
    await check_command(client, bytes(head) + command().tobytes())


@pytest.mark.field("A9")
@pytest.mark.parametrize(("channel", "said"), [("mix", TEXT), ("left", TEXT), ("right", ""), ("split", TEXT)])
async def test_speech_on_the_left_only(client: httpx.AsyncClient, channel: str, said: str) -> None:
    stereo = np.stack([command(), np.zeros_like(command())], axis=1).astype(np.float32)
    answer = await hear(client, wav(soxr.resample(stereo / 32768, 16_000, 48_000), 48_000), channel=channel)
    assert normalise(answer["text"]) == said
    assert answer["duration"] == pytest.approx(SECONDS, abs=0.1)
    speakers = {segment.get("speaker") for segment in answer["segments"]}
    assert speakers == ({"SPK0"} if channel == "split" else {None} if said else set())


@pytest.mark.field("A10")
@pytest.mark.parametrize("subtype", ["ULAW", "ALAW"])
async def test_telephone_wav(client: httpx.AsyncClient, subtype: str) -> None:
    narrow = soxr.resample(command().astype(np.float32) / 32768, 16_000, 8_000)
    await check_command(client, wav(narrow, 8_000, subtype))


@pytest.mark.field("A11")
@pytest.mark.parametrize(
    ("make", "code"),
    [
        (lambda: b"", "empty_file"),
        (lambda: wav(np.zeros(0)), "invalid_audio"),
        (lambda: b"hello " * 1000, "invalid_audio"),
        (lambda: np.random.default_rng(3).bytes(50_000), "invalid_audio"),
    ],
)
async def test_what_is_no_recording(client: httpx.AsyncClient, make: Callable[[], bytes], code: str) -> None:
    await check_refused(client, make(), code)


@pytest.mark.field("A12")
@pytest.mark.parametrize("seconds", [0.01, 0.25])
async def test_a_short_tone_says_nothing(client: httpx.AsyncClient, seconds: float) -> None:
    tone = 0.3 * np.sin(2 * np.pi * 440 * np.arange(round(16_000 * seconds)) / 16_000)
    answer = await hear(client, wav(tone))
    assert (answer["text"], answer["segments"], answer["duration"]) == ("", [], seconds)


@pytest.mark.field("A12")
@pytest.mark.parametrize(("name", "start", "word"), [("goforward", 0.40, "go"), ("cards-005", 1.30, "for")])
async def test_a_short_word_is_not_dropped(client: httpx.AsyncClient, name: str, start: float, word: str) -> None:
    """A quarter of a second of a recording: "go", and "four", which nothing but its neighbours tells from "for"."""
    first = round(start * 16_000)
    answer = await hear(client, wav(compositions.recording(name)[first : first + 4000]), language="en")
    assert normalise(answer["text"]).replace("four", "for") == word


@pytest.mark.field("A13")
async def test_video(client: httpx.AsyncClient) -> None:
    await check_command(client, encode(command(), "mp4", "aac", 48_000, video=True))
    await check_refused(client, encode(np.zeros(0, np.int16), "mp4", "", video=True), "no_audio_stream")
