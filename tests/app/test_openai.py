"""The OpenAI door, seen by OpenAI's own client."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import openai
import pytest
from openai.types.audio import (
    Transcription,
    TranscriptionTextDeltaEvent,
    TranscriptionTextDoneEvent,
    TranscriptionVerbose,
)


@pytest.fixture
def sdk(house: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client, max_retries=0)


@pytest.fixture
def file(house: Any) -> Callable[..., Any]:
    return lambda *args: house.recording(*args)["file"]


async def test_json(sdk: Any, file: Any, house: Any) -> None:
    answer = await sdk.audio.transcriptions.create(model="whisper-1", file=file(5, 1.5))
    assert isinstance(answer, Transcription)
    assert answer.to_dict() == {"text": "number 5.", "usage": {"type": "duration", "seconds": 2}}
    assert house.device.asked[0].word_timestamps is False


LOGPROBS = [
    {"token": "number", "logprob": -0.125, "bytes": list(b"number")},
    {"token": "\ufffd", "logprob": -2.5, "bytes": [0xC3]},
    {"token": " 5.", "logprob": -0.5, "bytes": list(b" 5.")},
]


async def test_logprobs(sdk: Any, file: Any, house: Any) -> None:
    answer = await sdk.audio.transcriptions.create(model="whisper-1", file=file(5, 2), include=["logprobs"])
    Transcription.model_validate(answer.to_dict(), strict=True)
    assert answer.to_dict()["logprobs"] == 2 * LOGPROBS
    assert house.device.asked[0].logprobs is True
    silence = await sdk.audio.transcriptions.create(model="whisper-1", file=file(0, 2), include=["logprobs"])
    assert silence.logprobs == []
    plain = await sdk.audio.transcriptions.create(model="whisper-1", file=file(5, 2))
    assert (plain.logprobs, house.device.asked[-1].logprobs) == (None, False)


async def test_logprobs_of_a_stream(sdk: Any, file: Any) -> None:
    stream = await sdk.audio.transcriptions.create(
        model="whisper-1", file=file(5, 2), include=["logprobs"], stream=True
    )
    first, second, done = [event async for event in stream]
    for event, kind in (
        (first, TranscriptionTextDeltaEvent),
        (second, TranscriptionTextDeltaEvent),
        (done, TranscriptionTextDoneEvent),
    ):
        assert isinstance(event, kind)
        assert all(isinstance(each.bytes[0], int) for each in event.logprobs)
    assert first.to_dict()["logprobs"] == second.to_dict()["logprobs"] == LOGPROBS
    assert done.to_dict()["logprobs"] == 2 * LOGPROBS


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_without_logprobs(build: Any, new_device: Any, stream: bool) -> None:
    async with build(new_device(logprobs=False)) as house:
        sdk = openai.AsyncOpenAI(api_key="none", base_url="http://tinglu/v1", http_client=house.client, max_retries=0)
        with pytest.raises(openai.BadRequestError, match="does not give logprobs") as refused:
            await sdk.audio.transcriptions.create(
                model="whisper-1", file=house.recording()["file"], include=["logprobs"], stream=stream
            )
    assert (refused.value.code, refused.value.param) == ("unsupported_parameter", "include")
    assert not house.device.asked


@pytest.mark.field("E1")
async def test_text(sdk: Any, file: Any, house: Any) -> None:
    answer = await sdk.audio.transcriptions.create(model="whisper-1", file=file(5), response_format="text")
    assert answer == "number 5."
    raw = await house.client.post(
        "/v1/audio/transcriptions", files=house.recording(5), data={"response_format": "text"}
    )
    assert raw.text == "number 5."
    assert raw.headers["content-type"] == "text/plain; charset=utf-8"


async def test_verbose_json(sdk: Any, file: Any) -> None:
    answer = await sdk.audio.transcriptions.create(
        model="whisper-base", file=file(5, 2.5), response_format="verbose_json", language="de", temperature=0.5
    )
    assert isinstance(answer, TranscriptionVerbose)
    assert answer.to_dict() == {
        "task": "transcribe",
        "language": "german",
        "duration": 2.5,
        "text": "number 5. number 5.",
        "segments": [
            {
                "id": number,
                "seek": 100 * number,
                "start": float(number),
                "end": number + 1.0,
                "text": "number 5.",
                "tokens": [7, 5],
                "temperature": 0.0,
                "avg_logprob": -0.25,
                "compression_ratio": 0.0,
                "no_speech_prob": 0.0,
            }
            for number in (0, 1)
        ],
        "usage": {"type": "duration", "seconds": 3},
    }


@pytest.mark.field("C7")
@pytest.mark.parametrize("name", ["timestamp_granularities", "timestamp_granularities[]"])
@pytest.mark.parametrize(
    ("granularities", "segments", "words"),
    [([], True, False), (["segment"], True, False), (["word"], False, True), (["word", "segment"], True, True)],
)
async def test_granularities(house: Any, name: str, granularities: list[str], segments: bool, words: bool) -> None:
    fields = {"response_format": "verbose_json", name: granularities}
    answer = await house.client.post("/v1/audio/transcriptions", files=house.recording(5, 2), data=fields)
    body = answer.json()
    assert ("segments" in body, "words" in body) == (segments, words)
    if words:
        assert body["words"] == [
            {"word": "number", "start": 0.1, "end": 0.5},
            {"word": "5.", "start": 0.5, "end": 0.9},
            {"word": "number", "start": 1.1, "end": 1.5},
            {"word": "5.", "start": 1.5, "end": 1.9},
        ]
    if segments:
        assert ("words" in body["segments"][0]) == words
    assert house.device.asked[0].word_timestamps == words


async def test_granularities_of_the_client(sdk: Any, file: Any) -> None:
    answer = await sdk.audio.transcriptions.create(
        model="whisper-1",
        file=file(5, 2),
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
    )
    assert [word.word for word in answer.words] == ["number", "5."] * 2
    assert [segment.id for segment in answer.segments] == [0, 1]


async def test_words_of_silence(sdk: Any, file: Any) -> None:
    answer = await sdk.audio.transcriptions.create(
        model="whisper-1", file=file(0), response_format="verbose_json", timestamp_granularities=["word"]
    )
    assert (answer.text, answer.words, answer.language) == ("", [], "unknown")


async def test_words_that_the_model_does_not_time(build: Any, new_device: Any) -> None:
    async with build(new_device(word_timestamps=False)) as house:
        fields = {"response_format": "verbose_json", "timestamp_granularities[]": ["word", "segment"]}
        answer = await house.client.post("/v1/audio/transcriptions", files=house.recording(), data=fields)
    assert answer.json()["text"] == "number 1."
    assert "words" not in answer.json()
    assert "words" not in answer.json()["segments"][0]
    assert answer.json()["warnings"] == ["words have no times: the model makes none"]


@pytest.mark.field("E23")
@pytest.mark.parametrize("name", ["whisper-1", "whisper-base", "Whisper-Base", "openai/whisper-base"])
async def test_known_models(sdk: Any, file: Any, name: str) -> None:
    assert (await sdk.audio.transcriptions.create(model=name, file=file())).text == "number 1."
    model = await sdk.models.retrieve(name)
    assert (model.id, model.object, model.owned_by) == ("whisper-base", "model", "tinglu")
    assert model.created > 1_700_000_000


@pytest.mark.field("E23")
async def test_unknown_models(sdk: Any, file: Any) -> None:
    with pytest.raises(openai.NotFoundError) as error:
        await sdk.audio.transcriptions.create(model="whisper-9", file=file())
    assert (error.value.code, error.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.NotFoundError, match="whisper-base"):
        await sdk.models.retrieve("gpt/4")


async def test_models(sdk: Any) -> None:
    models = [model async for model in sdk.models.list()]
    assert [model.id for model in models] == ["whisper-base"]
    assert models[0].to_dict()["aliases"] == ["openai/whisper-base", "whisper-1"]
    facts = models[0].to_dict()
    assert facts["languages"] == ["en", "zh", "de"]
    assert (facts["word_timestamps"], facts["hotwords"], facts["translation"]) == (True, True, False)
    assert (facts["prompt"], facts["logprobs"]) == (True, True)
    assert (facts["detects_language"], facts["max_segment_seconds"]) == (True, 30.0)


@pytest.mark.field("E14")
async def test_errors_of_the_client(sdk: Any, file: Any, house: Any) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        await sdk.audio.transcriptions.create(model="whisper-1", file=("x.wav", b"junk"))
    assert (bad.value.code, bad.value.param, bad.value.type) == ("invalid_audio", "file", "invalid_request_error")
    house.device.failure = "killed"
    with pytest.raises(openai.InternalServerError) as gone:
        await sdk.audio.transcriptions.create(model="whisper-1", file=file())
    assert gone.value.status_code == 503
