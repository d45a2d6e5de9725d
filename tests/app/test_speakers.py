"""Speakers through the doors, over a device that knows who speaks."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest

from app.speakers import speaker_factory
from audio.span import SAMPLE_RATE
from engine.catalog import ModelNotFound
from tests.app.conftest import CALL, MAGIC, samples

OPENAI = "/v1/audio/transcriptions"


@pytest.fixture
async def house(build: Any, new_device: Any) -> AsyncIterator[Any]:
    async with build(new_device(speakers=True)) as house:
        yield house


def talk(*numbers: int) -> dict[str, bytes]:
    """A second of each number, as the `files` of a request."""
    return {"file": MAGIC + b"".join(map(samples, numbers))}


def reference(number: int, seconds: float = 3.0) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(MAGIC + samples(number, seconds)).decode()}"


async def test_asr_splits_segments_where_the_speaker_changes(house: Any) -> None:
    answer = (await house.client.post("/asr", files=talk(5, 7), data={"spk": "true"})).json()
    told = [(part["speaker"], part["text"], part["start"], part["end"]) for part in answer["segments"]]
    assert told == [
        ("SPK0", "number 5.", 0.0, 1.0),
        ("SPK0", "number", 1.0, 1.5),
        ("SPK1", "7.", 1.5, 2.0),
    ]
    assert [word["word"] for part in answer["segments"] for word in part["words"]] == ["number", "5.", "number", "7."]
    assert answer["text"] == "number 5. number 7."


async def test_no_speakers_unless_asked_for(house: Any) -> None:
    answer = (await house.client.post("/asr", files=talk(5, 7))).json()
    assert all("speaker" not in part for part in answer["segments"])
    assert house.device.diarized == []


async def test_word_times_are_made_for_speakers_and_shown_only_if_wanted(house: Any) -> None:
    answer = await house.client.post("/asr", files=talk(5, 7), data={"spk": "true", "timestamp": "false"})
    assert house.device.asked[0].word_timestamps
    assert [part["speaker"] for part in answer.json()["segments"]] == ["SPK0", "SPK0", "SPK1"]
    assert all("words" not in part for part in answer.json()["segments"])


async def test_counts_reach_the_device(house: Any) -> None:
    await house.client.post("/asr", files=talk(5), data={"spk": "true", "min_speakers": "2", "max_speakers": "4"})
    (request,) = house.device.diarized
    assert (request.options.min_speakers, request.options.max_speakers) == (2, 4)


async def test_known_speakers(house: Any) -> None:
    fields = {
        "response_format": "diarized_json",
        "known_speaker_names[]": ["agent", "customer"],
        "known_speaker_references[]": [reference(7), reference(9)],
    }
    answer = (await house.client.post(OPENAI, files=talk(5, 7), data=fields)).json()
    assert [part["speaker"] for part in answer["segments"]] == ["A", "A", "agent"]
    (request,) = house.device.diarized
    assert [len(known.reference) for known in request.options.known_speakers] == [3 * SAMPLE_RATE] * 2


async def test_a_stream_tells_speakers(house: Any) -> None:
    fields = {"response_format": "diarized_json", "stream": "true"}
    answer = await house.client.post(OPENAI, files=talk(5, 7), data=fields)
    frames = answer.text.split("\n\n")
    assert [frame.count("transcript.text.segment") for frame in frames if "segment" in frame and "type" in frame]
    assert answer.text.count('"speaker":"B"') == 1


async def test_a_call_has_a_speaker_a_channel(house: Any) -> None:
    left = np.frombuffer(samples(5) + samples(0) + samples(5), "<i2")
    right = np.frombuffer(samples(0) + samples(7) + samples(7), "<i2")
    call = {"file": CALL + np.stack([left, right], axis=1).tobytes()}
    answer = (await house.client.post("/asr", files=call, data={"channel": "split"})).json()
    assert [(part["speaker"], part["text"], part["start"]) for part in answer["segments"]] == [
        ("SPK0", "number 5.", 0.0),
        ("SPK1", "number 7.", 1.0),
        ("SPK0", "number 5.", 2.0),
        ("SPK1", "number 7.", 2.0),
    ]
    assert answer["duration"] == 3.0
    assert house.device.diarized == []


async def test_a_call_needs_no_speaker_model(build: Any) -> None:
    async with build() as house:
        answer = await house.client.post("/asr", files=talk(5), data={"channel": "split"})
        assert [part["speaker"] for part in answer.json()["segments"]] == ["SPK0"]
        listed = await house.client.get("/v1/models")
        assert listed.json()["data"][0]["diarization"] is False


async def test_models_tell(house: Any) -> None:
    assert (await house.client.get("/v1/models")).json()["data"][0]["diarization"] is True


@pytest.mark.parametrize("model", ["nobody", "campplus-of-nowhere"])
def test_a_speaker_model_that_is_not_there(model: str, tmp_path: Any) -> None:
    with pytest.raises(ModelNotFound, match="ge2e, campplus, eres2netv2, none"):
        speaker_factory(model, "cpu", tmp_path)


def test_no_speaker_model(tmp_path: Any) -> None:
    assert speaker_factory("none", "cpu", tmp_path) is None
    assert speaker_factory(None, "cpu", tmp_path) is not None
    assert speaker_factory(str(tmp_path), "cpu", tmp_path) is not None
