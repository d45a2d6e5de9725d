from __future__ import annotations

import json
from typing import Any

import pytest

from app.formats import formats
from app.formats.asr import asr_answer
from app.formats.format import Asked, json_text
from app.formats.ws import render_ws
from app.transcript import Segment, Transcript
from engine.recognition import Word


@pytest.fixture
def transcript() -> Transcript:
    words = (Word(" Well,", 1.23449, 1.5), Word("用", 1.5, 2.00051))
    segments = (
        Segment(1.2, 2.1, "Well, 用", words, speaker=0, avg_logprob=float("-inf"), compression_ratio=0.875),
        Segment(3.0, 4.0, "no times", None, speaker=1, language="zh"),
    )
    return Transcript("Well, 用 no times", segments, 4.0004, 0.12345, "zh", ("one segment was cut short",))


def test_all_formats_are_found() -> None:
    assert list(formats()) == ["json", "text", "verbose_json"]
    assert all(name == each.name for name, each in formats().items())


def test_verbose_json(transcript: Transcript) -> None:
    body: dict[str, Any] = json.loads(formats()["verbose_json"].render(transcript, Asked(words=True)))
    words = [{"word": "Well,", "start": 1.234, "end": 1.5}, {"word": "用", "start": 1.5, "end": 2.001}]
    first, second = body["segments"]
    assert (body["language"], body["duration"], body["usage"]["seconds"]) == ("chinese", 4.0, 5)
    assert body["warnings"] == ["one segment was cut short"]
    assert body["words"] == first["words"] == words
    assert "words" not in second
    assert (first["speaker"], second["speaker"]) == ("SPK0", "SPK1")
    assert (first["seek"], first["avg_logprob"], first["compression_ratio"]) == (120, 0.0, 0.875)


def test_asr(transcript: Transcript) -> None:
    body = json.loads(json_text(asr_answer(transcript, words=True)))
    assert (body["duration"], body["processing_time"], body["rtf"]) == (4.0, 0.123, 0.0309)
    assert body["warnings"] == ["one segment was cut short"]
    assert [segment["speaker"] for segment in body["segments"]] == ["SPK0", "SPK1"]
    assert "words" not in body["segments"][1]


def test_ws(transcript: Transcript) -> None:
    body = json.loads(render_ws(transcript))
    first, second = body["sentences"]
    assert body["duration_ms"] == 4000
    assert (first["start"], first["end"], first["spk"]) == (1200, 2100, 0)
    assert first["words"] == [{"word": "Well,", "start": 1234, "end": 1500}, {"word": "用", "start": 1500, "end": 2001}]
    assert "words" not in second
