"""E3 and its kind: every field of the OpenAI door, as clients of all sorts write it."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from vad.options import SegmentationOptions

DOOR = "/v1/audio/transcriptions"


async def post(house: Any, **fields: Any) -> Any:
    """The answer, and what the recogniser was asked for."""
    answer = await house.client.post(DOOR, files=house.recording(), data=fields)
    assert answer.status_code == 200, answer.text
    return answer.json(), house.device.asked[-1]


async def refused(house: Any, **fields: Any) -> Any:
    answer = await house.client.post(DOOR, files=house.recording(), data=fields)
    assert answer.status_code == 400, answer.text
    assert answer.headers["x-should-retry"] == "false"
    assert not house.device.asked
    return answer.json()["error"]


@pytest.mark.field("E3")
@pytest.mark.parametrize("brackets", ["", "[]"])
@pytest.mark.parametrize("name", ["hotwords", "keywords"])
async def test_hotwords(house: Any, name: str, brackets: str) -> None:
    body, asked = await post(house, **{f"{name}{brackets}": ["开放时间", "Tinglu,a b"]})
    assert asked.hotwords == ("开放时间", "Tinglu", "a b")
    assert "warnings" not in body


async def test_hotwords_of_every_field_come_together(house: Any) -> None:
    _, asked = await post(house, hotwords="a,b", **{"keywords[]": ["b", "c"]}, prompt="d, e")
    assert asked.hotwords == ("a", "b", "c", "d", "e")
    assert asked.prompt == ""


async def test_a_prompt_is_not_lost_in_silence(build: Any, new_device: Any) -> None:
    async with build(new_device(hotwords=False, prompt=False)) as house:
        body, asked = await post(house, prompt="So far.")
    assert asked.prompt == ""
    assert body["warnings"] == ["the prompt has no effect: the model takes none"]


@pytest.mark.parametrize("name", ["hotwords", "keywords"])
async def test_hotwords_are_not_lost_in_silence(build: Any, new_device: Any, name: str) -> None:
    async with build(new_device(hotwords=False)) as house:
        body, asked = await post(house, **{name: "a,b"}, prompt="So far.")
        assert (asked.hotwords, asked.prompt) == ((), "So far.")
        assert body["warnings"] == ["hotwords have no effect: the model takes none"]
        fields = {name: "a,b", "response_format": "srt"}
        answer = await house.client.post(DOOR, files=house.recording(), data=fields)
        assert answer.headers["x-tinglu-warnings"] == "hotwords have no effect: the model takes none"
        answer = await house.client.post(DOOR, files=house.recording(), data={name: "a", "stream": "true"})
        assert json.loads(answer.text.split("data: ")[-1])["warnings"] == body["warnings"]
        answer = await house.client.post("/asr", files=house.recording(), data={"hotwords": "a"})
        assert answer.json()["warnings"] == body["warnings"]


@pytest.mark.parametrize(
    ("fields", "language", "warned"),
    [
        ({"language": "German"}, "de", False),
        ({"languages[]": ["zh-CN"]}, "zh", False),
        ({"languages": "en"}, "en", False),
        ({"languages[]": ["en", "English"]}, "en", False),
        ({"languages[]": ["en", "zh"]}, None, True),
        ({"languages": "en,zh"}, None, True),
        ({"languages": ["en", "zh"], "language": "de"}, "de", False),
        ({"languages": "auto"}, None, False),
        ({"language": "", "languages": ""}, None, False),
    ],
)
async def test_languages(house: Any, fields: dict[str, Any], language: str | None, warned: bool) -> None:
    body, asked = await post(house, **fields)
    assert asked.language == language
    assert ("warnings" in body) == warned


@pytest.mark.parametrize("language", ["klingon", "fr"])
async def test_languages_that_are_not_known(house: Any, language: str) -> None:
    error = await refused(house, **{"languages[]": ["en", language]})
    assert (error["code"], error["param"]) == ("invalid_language", "languages")


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, SegmentationOptions()),
        ({"chunking_strategy": "auto"}, SegmentationOptions()),
        ({"chunking_strategy": ""}, SegmentationOptions()),
        ({"chunking_strategy": '{"type": "server_vad"}'}, SegmentationOptions()),
        (
            {"chunking_strategy": '{"type": "server_vad", "silence_duration_ms": 200, "threshold": 0.25, "x": 1}'},
            SegmentationOptions(fixed_silence_ms=200, speech_threshold=0.25),
        ),
        (
            {"chunking_strategy[type]": "server_vad", "chunking_strategy[silence_duration_ms]": "500"},
            SegmentationOptions(fixed_silence_ms=500),
        ),
    ],
)
async def test_chunking(house: Any, fields: dict[str, str], expected: SegmentationOptions) -> None:
    body, _ = await post(house, **fields)
    (asked,) = house.device.segmentations
    assert (asked.fixed_silence_ms, asked.speech_threshold) == (expected.fixed_silence_ms, expected.speech_threshold)
    assert "warnings" not in body


async def test_chunking_of_the_client(house: Any) -> None:
    sdk = openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client)
    answer = await sdk.audio.transcriptions.create(
        model="whisper-1",
        file=house.recording()["file"],
        chunking_strategy={
            "type": "server_vad",
            "prefix_padding_ms": 300,
            "silence_duration_ms": 700,
            "threshold": 1.0,
        },
    )
    (asked,) = house.device.segmentations
    assert asked.fixed_silence_ms == 700
    assert 0.99 < asked.speech_threshold < 1
    assert "prefix_padding_ms" in answer.to_dict()["warnings"][0]  # type: ignore[index]


@pytest.mark.parametrize(
    ("strategy", "said"),
    [
        ("always", "auto"),
        ("[]", "auto"),
        ("5", "auto"),
        ("{", "auto"),
        ("[" * 50_000, "auto"),
        ("{}", "server_vad"),
        ('{"type": "client_vad"}', "server_vad"),
        ('{"type": "server_vad", "threshold": 2}', "threshold"),
        ('{"type": "server_vad", "threshold": NaN}', "threshold"),
        ('{"type": "server_vad", "threshold": "high"}', "threshold"),
        ('{"type": "server_vad", "silence_duration_ms": -1}', "silence_duration_ms"),
        ('{"type": "server_vad", "silence_duration_ms": 1e9}', "60000"),
        ('{"type": "server_vad", "prefix_padding_ms": "x"}', "prefix_padding_ms"),
    ],
)
async def test_chunking_that_cannot_be(house: Any, strategy: str, said: str) -> None:
    error = await refused(house, chunking_strategy=strategy)
    assert (error["code"], error["param"]) == ("invalid_value", "chunking_strategy")
    assert said in error["message"]


async def test_members_of_what_is_no_object_are_ignored(house: Any) -> None:
    _, asked = await post(house, **{"language[code]": "de", "chunking_strategy[type][x]": "1", "model[0]": "gpt-9"})
    assert asked.language is None


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"response_format": "diarized_json"}, "response_format", "speakers"),
        ({"spk": "true"}, "spk", "speakers"),
    ],
)
async def test_what_is_known_but_not_there(house: Any, fields: dict[str, str], param: str, said: str) -> None:
    error = await refused(house, **fields)
    assert (error["code"], error["param"]) == ("unsupported_parameter", param)
    assert said in error["message"]


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"include[]": "thoughts"}, "include", "logprobs"),
        *(
            ({"include[]": "logprobs", "response_format": name}, "include", "json")
            for name in ("text", "srt", "vtt", "verbose_json", "diarized_json")
        ),
        ({"timestamp_granularities": ["word", "letter"]}, "timestamp_granularities", "'word' or 'segment'"),
        ({"temperature": "1.5"}, "temperature", "1"),
        ({"temperature": "-0.1"}, "temperature", "0"),
        ({"stream": "perhaps"}, "stream", "boolean"),
        ({"stream": "true", "response_format": "srt"}, "stream", "json, text"),
    ],
)
async def test_unknown_values(house: Any, fields: dict[str, Any], param: str, said: str) -> None:
    error = await refused(house, **fields)
    assert (error["code"], error["param"]) == ("invalid_value", param)
    assert said in error["message"]


async def test_unknown_fields_are_ignored(house: Any) -> None:
    await post(house, temperatur="9", **{"known_speakers[]": "x", "logprobs": "true"})


@pytest.mark.field("E3")
@pytest.mark.parametrize("name", ["timestamp_granularities", "timestamp_granularities[]"])
async def test_lists_may_be_repeated_and_mixed(house: Any, name: str) -> None:
    body, _ = await post(house, response_format="verbose_json", **{name: ["word", "segment", "word"]})
    assert {"words", "segments"} <= set(body)


@pytest.mark.parametrize(
    ("trouble", "kind", "calls"),
    [
        ({"model": "whisper-9"}, openai.NotFoundError, 1),
        ({"language": "klingon"}, openai.BadRequestError, 1),
        ({"file": ("x.wav", b"")}, openai.BadRequestError, 1),
        ({"file": ("x.wav", b"FAKE" + bytes(64_000 * 3))}, openai.APIStatusError, 1),
        ({}, openai.InternalServerError, 1),
    ],
)
async def test_the_client_does_not_retry_what_cannot_help(
    house: Any, trouble: dict[str, Any], kind: type[openai.APIStatusError], calls: int
) -> None:
    asked = []
    house.client.event_hooks["request"] = [_recorder(asked)]
    house.decoder.max_seconds = 2.0
    house.device.refusal = KeyError("a fault of ours")
    sdk = openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client, max_retries=2)
    with pytest.raises(kind) as raised:
        await sdk.audio.transcriptions.create(**{"model": "whisper-1", "file": house.recording()["file"], **trouble})
    assert len(asked) == calls
    assert raised.value.body["message"]  # type: ignore[index]


def _recorder(requests: list[Any]) -> Any:
    async def record(request: Any) -> None:
        requests.append(request)

    return record
