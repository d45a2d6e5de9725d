from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from typing import Any

import pytest

from app.pipeline import EncodedAudio
from vad.options import SegmentationOptions


async def test_answer(house: Any) -> None:
    answer = await house.client.post("/asr", files=house.recording(7, 2.25))
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body.pop("processing_time") >= 0
    assert body.pop("rtf") >= 0
    assert body == {
        "text": "number 7. number 7.",
        "segments": [
            {
                "text": "number 7.",
                "start": start,
                "end": start + 1.0,
                "words": [
                    {"word": "number", "start": start + 0.1, "end": start + 0.5},
                    {"word": "7.", "start": start + 0.5, "end": start + 0.9},
                ],
            }
            for start in (0.0, 1.0)
        ],
        "duration": 2.25,
    }


async def test_without_word_times(house: Any) -> None:
    answer = await house.client.post("/asr", files=house.recording(), data={"timestamp": "false"})
    assert "words" not in answer.json()["segments"][0]
    assert house.device.asked[0].word_timestamps is False


async def test_a_model_without_word_times(build: Any, new_device: Any) -> None:
    async with build(new_device(word_timestamps=False)) as house:
        answer = await house.client.post("/asr", files=house.recording())
    assert answer.json()["text"] == "number 1."
    assert "words" not in answer.json()["segments"][0]


async def test_silence(house: Any) -> None:
    answer = await house.client.post("/asr", files=house.recording(0, 3), data={"hotwords": "a", "language": "en"})
    assert answer.status_code == 200
    assert (answer.json()["text"], answer.json()["segments"]) == ("", [])
    assert not house.device.asked


async def test_nothing_after_the_header(house: Any) -> None:
    answer = await house.client.post("/asr", files={"file": ("a.wav", b"FAKE")})
    assert answer.status_code == 200
    assert (answer.json()["duration"], answer.json()["rtf"]) == (0.0, 0.0)


@pytest.mark.parametrize(
    ("fields", "hotwords"),
    [
        ({"hotwords": "开放时间, Tinglu,"}, ("开放时间", "Tinglu")),
        ({"hotwords": "甲\N{FULLWIDTH COMMA}乙,甲"}, ("甲", "乙")),
        ({"hotwords[]": ["a", "b c"]}, ("a", "b c")),
        ({"hotwords": ["a", "b"], "hotwords[]": "c"}, ("a", "b", "c")),
        ({"hotwords": ""}, ()),
        ({}, ()),
    ],
)
async def test_hotwords(house: Any, fields: dict[str, Any], hotwords: tuple[str, ...]) -> None:
    await house.client.post("/asr", files=house.recording(), data=fields)
    assert house.device.asked[0].hotwords == hotwords


@pytest.mark.parametrize(("language", "code"), [("中文", "zh"), ("en-US", "en"), ("auto", None), ("", None)])
async def test_language(house: Any, language: str, code: str | None) -> None:
    await house.client.post("/asr", files=house.recording(), data={"language": language})
    assert house.device.asked[0].language == code


async def test_unknown_fields_are_ignored(house: Any) -> None:
    files = {**house.recording(), "cover": ("x.png", b"\x89PNG")}
    answer = await house.client.post("/asr", files=files, data={"colour": "red", "temperature": "x"})
    assert answer.status_code == 200


@pytest.mark.field("E7")
async def test_sixteen_at_once_get_their_own_answers(house: Any) -> None:
    house.device.running.clear()
    requests = [
        asyncio.create_task(house.client.post("/asr", files=house.recording(number, 1 + number % 3)))
        for number in range(1, 17)
    ]
    for _ in requests:
        await house.device.entered.acquire()
    house.device.running.set()
    for number, answer in enumerate(await asyncio.gather(*requests), 1):
        assert answer.json()["text"] == " ".join([f"number {number}."] * (1 + number % 3))


async def test_small_uploads_stay_in_memory_and_large_ones_are_read_from_a_file(house: Any) -> None:
    small, large = house.recording(1, 10), house.recording(2, 40)
    assert (await house.client.post("/asr", files=small)).json()["duration"] == 10
    assert (await house.client.post("/asr", files=large)).json()["duration"] == 40
    in_memory, on_disk = house.decoder.decoded
    assert isinstance(in_memory, EncodedAudio)
    assert in_memory.content == small["file"][1]
    assert isinstance(on_disk.content, str)
    number = int(on_disk.content.rpartition("/")[2])
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, SegmentationOptions()),
        ({"silence_ms": "500"}, SegmentationOptions(fixed_silence_ms=500)),
        ({"silence_schedule": "[[5, 1500], [null, 300]]"}, SegmentationOptions(schedule=((5, 1500), (None, 300)))),
        ({"max_segment_seconds": "12"}, SegmentationOptions(max_segment_seconds=12)),
    ],
)
async def test_segmentation(house: Any, fields: dict[str, str], expected: SegmentationOptions) -> None:
    assert (await house.client.post("/asr", files=house.recording(1), data=fields)).status_code == 200
    (asked,) = house.device.segmentations
    assert asked == replace(expected, max_segment_seconds=min(expected.max_segment_seconds, 30))


@pytest.mark.parametrize(
    "fields",
    [
        {"silence_ms": "-1"},
        {"silence_ms": "much"},
        {"silence_ms": "500", "silence_schedule": "[[null, 300]]"},
        {"silence_schedule": "[[5, 1500]]"},
        {"silence_schedule": "five"},
        {"max_segment_seconds": "0"},
        {"max_segment_seconds": "nan"},
    ],
)
async def test_segmentation_that_cannot_be(house: Any, fields: dict[str, str]) -> None:
    assert (await house.client.post("/asr", files=house.recording(1), data=fields)).status_code == 400
