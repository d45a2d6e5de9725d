"""OpenAI's client against a real model: what the fakes cannot show."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import httpx
import openai
import pytest

from bench.recordings import DATA, normalise
from bench.server import Server
from tests.subtitles import check_lines, read_srt


@pytest.fixture
async def sdk(server: Server) -> AsyncIterator[openai.AsyncOpenAI]:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as client:
        yield client


async def create(sdk: Any, name: str = "nano-29.7s.wav", **fields: Any) -> Any:
    return await sdk.audio.transcriptions.create(model="whisper-1", file=(name, (DATA / name).read_bytes()), **fields)


@pytest.mark.field("C6")
async def test_subtitles_of_half_a_minute(sdk: Any) -> None:
    """C6, over word times that a model made."""
    verbose = await create(sdk, response_format="verbose_json", timestamp_granularities=["word", "segment"])
    srt = read_srt(await create(sdk, response_format="srt"))
    check_lines(srt)
    assert len(srt) >= 7
    assert srt[-1].end <= verbose.duration
    assert normalise(" ".join(line for cue in srt for line in cue.lines)) == normalise(verbose.text)
    starts = {word.start for word in verbose.words}
    assert all(cue.start in starts for cue in srt)
    for before, after in zip(verbose.words, verbose.words[1:], strict=False):
        if after.start - before.end >= 0.7:
            assert not any(cue.start < before.end and cue.end > after.start for cue in srt)


@pytest.mark.field("E2")
async def test_a_stream(sdk: Any) -> None:
    """E2."""
    whole = await create(sdk)
    events = [event async for event in await create(sdk, stream=True)]
    *deltas, done = events
    assert len(deltas) > 1
    assert {event.type for event in deltas} == {"transcript.text.delta"}
    assert done.type == "transcript.text.done"
    assert "".join(event.delta for event in deltas) == done.text == whole.text
    assert done.usage.to_dict() == {"type": "duration", "seconds": 30}


async def test_a_translation_of_english_is_english(client: httpx.AsyncClient) -> None:
    answer = await client.post(
        "/v1/audio/translations",
        files={"file": (DATA / "jfk.wav").read_bytes()},
        data={"model": "whisper-1", "response_format": "verbose_json"},
    )
    assert answer.status_code == 200, answer.text
    body = answer.json()
    assert (body["task"], body["language"]) == ("translate", "english")
    assert "ask not what your country can do for you" in body["text"]


async def test_hotwords_that_whisper_does_not_take(sdk: Any) -> None:
    answer = await create(sdk, "goforward.wav", keywords=["forward"], chunking_strategy={"type": "server_vad"})
    assert normalise(answer.text).startswith("go forward")
    assert answer.to_dict()["warnings"] == ["hotwords have no effect: the model takes none"]
