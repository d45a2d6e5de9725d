"""What must be refused, said clearly, and leave the server as it was."""

from __future__ import annotations

import io
from collections.abc import Callable

import httpx
import numpy as np
import pytest
import soundfile

from bench.recordings import DATA
from tests.encoding import encode


def wav(samples: np.ndarray) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, samples, 16_000, format="WAV", subtype="PCM_16")
    return out.getvalue()


def tone(seconds: float, hertz: float, level: float) -> np.ndarray:
    return level * np.sin(2 * np.pi * hertz * np.arange(round(seconds * 16_000)) / 16_000)


PDF = b"%PDF-1.7\n1 0 obj\n<< /Type /Catalog >>\nendobj\ntrailer\n<< /Root 1 0 R >>\n%%EOF\n"
BAD: dict[str, tuple[Callable[[], bytes], int, str]] = {
    "empty": (lambda: b"", 400, "empty_file"),
    "random": (lambda: np.random.default_rng(0).bytes(100_000), 400, "invalid_audio"),
    "pdf": (lambda: PDF, 400, "invalid_audio"),
    "text": (lambda: b"hello " * 1000, 400, "invalid_audio"),
    "header only": (lambda: wav(np.zeros(0)), 400, "invalid_audio"),
    "video without sound": (lambda: encode(np.zeros(0, np.int16), "mp4", "", video=True), 400, "no_audio_stream"),
    "too long": (lambda: encode(np.zeros(130 * 16_000, np.int16), "ogg", "libopus", 48_000), 413, "audio_too_long"),
    "too large": (lambda: bytes(21_000_000), 413, "request_too_large"),
}


@pytest.mark.field("A11", "A13", "E5", "E14")
@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("door", ["/asr", "/v1/audio/transcriptions"])
async def test_bad_recordings(client: httpx.AsyncClient, door: str, name: str) -> None:
    make, status, code = BAD[name]
    response = await client.post(door, files={"file": make()}, data={"model": "whisper-1"})
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert error["code"] == code
    assert error["message"]


@pytest.mark.parametrize(
    ("door", "fields", "mentions"),
    [
        ("/v1/audio/transcriptions", {"response_format": "pdf"}, "verbose_json"),
        ("/v1/audio/transcriptions", {"language": "klingon"}, "ISO 639"),
        ("/asr", {"language": "klingon"}, "ISO 639"),
        ("/asr", {"spk": "true", "num_speakers": "0"}, "num_speakers"),
        ("/asr", {"spk": "perhaps"}, "spk"),
    ],
)
async def test_bad_fields(client: httpx.AsyncClient, door: str, fields: dict[str, str], mentions: str) -> None:
    content = (DATA / "goforward.wav").read_bytes()
    response = await client.post(door, files={"file": content}, data={"model": "whisper-1", **fields})
    assert response.status_code == 400, response.text
    assert mentions in response.json()["error"]["message"]


async def test_a_missing_file(client: httpx.AsyncClient) -> None:
    response = await client.post("/asr", files={"language": (None, "en")})
    assert response.status_code == 400
    assert "file" in response.json()["error"]["message"]


SILENT: dict[str, Callable[[], np.ndarray]] = {
    "zeros": lambda: np.zeros(160_000),
    "faint noise": lambda: np.random.default_rng(0).normal(0, 1e-3, 160_000),
    "mains hum": lambda: tone(10, 50, 0.1),
    "short tone": lambda: tone(0.25, 1000, 0.3),
    "click": lambda: tone(0.01, 1000, 0.3),
}


@pytest.mark.parametrize("name", SILENT)
async def test_where_nothing_is_said_the_text_is_empty(client: httpx.AsyncClient, name: str) -> None:
    samples = SILENT[name]()
    response = await client.post("/asr", files={"file": wav(samples)}, data={"hotwords": "Tinglu", "language": "en"})
    assert response.status_code == 200
    answer = response.json()
    assert answer["text"] == ""
    assert answer["segments"] == []
    assert answer["duration"] == pytest.approx(len(samples) / 16_000, abs=1e-3)


async def test_the_server_goes_on(client: httpx.AsyncClient) -> None:
    content = (DATA / "goforward.wav").read_bytes()
    answer = (await client.post("/asr", files={"file": content})).json()
    assert answer["text"].lower().startswith("go forward")
