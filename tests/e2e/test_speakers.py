"""Who spoke, over the wire: two recorded voices through every door, with real speech and speaker models."""

from __future__ import annotations

import base64
import io
import json
from typing import Any

import httpx
import numpy as np
import openai
import pytest
import soundfile
import websockets
from openai.types.audio import TranscriptionDiarized

from bench.recordings import normalise
from bench.server import Server
from tests import compositions

Samples = compositions.Samples


def wav(samples: Samples) -> bytes:
    """(frames,) or (frames, channels) int16 at 16 kHz."""
    file = io.BytesIO()
    soundfile.write(file, samples, 16_000, format="WAV", subtype="PCM_16")
    return file.getvalue()


def data_url(samples: Samples) -> str:
    return f"data:audio/wav;base64,{base64.b64encode(wav(samples)).decode()}"


def kennedy() -> Samples:
    return compositions.recording("jfk")


def reader() -> Samples:
    return compositions.recording("austen-0870")


def conversation() -> Samples:
    """Kennedy for 8 s, a reader of Austen for 7 s, Kennedy again for 3 s."""
    first, last = np.split(kennedy(), [8 * 16_000])
    return np.concatenate([first, compositions.silence(0.4), reader(), compositions.silence(0.4), last])


@pytest.fixture(scope="module")
def sound() -> bytes:
    return wav(conversation())


async def asr(client: httpx.AsyncClient, content: bytes, **fields: str) -> Any:
    answer = await client.post("/asr", files={"file": content}, data={"spk": "true", **fields})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def diarized(client: httpx.AsyncClient, content: bytes, **fields: Any) -> Any:
    answer = await client.post(
        "/v1/audio/transcriptions", files={"file": content}, data={"response_format": "diarized_json", **fields}
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def said_by(segments: list[dict[str, Any]]) -> list[tuple[Any, str]]:
    """Who said what, what one speaker says in a row as one."""
    turns: list[tuple[Any, str]] = []
    for segment in segments:
        speaker = segment.get("speaker", segment.get("spk"))
        if turns and turns[-1][0] == speaker:
            turns[-1] = (speaker, f"{turns[-1][1]} {segment['text']}")
        else:
            turns.append((speaker, segment["text"]))
    return turns


def check_turns(segments: list[dict[str, Any]], first: Any, second: Any) -> None:
    """Every word belongs to the one who said it."""
    turns = said_by(segments)
    assert [speaker for speaker, _ in turns] == [first, second, first]
    assert normalise(turns[0][1]).startswith("and so my fellow americans")
    assert "country" not in normalise(turns[1][1])
    assert normalise(turns[2][1]) == "ask what you can do for your country"


@pytest.mark.field("D1")
async def test_two_voices(client: httpx.AsyncClient, sound: bytes) -> None:
    both = wav(np.concatenate([kennedy()[: 6 * 16_000], compositions.silence(0.3), reader()[: 6 * 16_000]]))
    assert {segment["speaker"] for segment in (await asr(client, both))["segments"]} == {"SPK0", "SPK1"}
    answer = await asr(client, sound)
    check_turns(answer["segments"], "SPK0", "SPK1")
    plain = (await client.post("/asr", files={"file": sound})).json()
    assert answer["text"] == plain["text"]
    assert "speaker" not in plain["segments"][0]


async def test_one_voice(client: httpx.AsyncClient) -> None:
    answer = await asr(client, wav(kennedy()))
    assert {segment["speaker"] for segment in answer["segments"]} == {"SPK0"}


async def test_all_doors_tell_the_same(client: httpx.AsyncClient, server: Server, sound: bytes) -> None:
    expected = [(segment["start"], segment["end"]) for segment in (await asr(client, sound))["segments"]]
    body = await diarized(client, sound)
    check_turns(body["segments"], "A", "B")
    assert [(segment["start"], segment["end"]) for segment in body["segments"]] == expected
    verbose = await client.post(
        "/v1/audio/transcriptions",
        files={"file": sound},
        data={"response_format": "verbose_json", "spk": "true", "timestamp_granularities[]": ["word", "segment"]},
    )
    check_turns(verbose.json()["segments"], "SPK0", "SPK1")
    subtitles = await client.post(
        "/v1/audio/transcriptions", files={"file": sound}, data={"response_format": "vtt", "spk": "true"}
    )
    assert "<v A>And so" in subtitles.text
    assert "<v B>" in subtitles.text
    async with websockets.connect(server.url.replace("http", "ws") + "/ws") as socket:
        for message in ("SPK:on", "START", sound[44:], "STOP"):
            await socket.send(message)
        answers = [json.loads(await socket.recv()) for _ in range(4)]
    assert answers[0] == {"event": "spk_set", "spk": True}
    check_turns(answers[2]["sentences"], 0, 1)


@pytest.mark.field("D6")
async def test_the_openai_client_parses_it(server: Server, sound: bytes) -> None:
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as sdk:
        create: Any = sdk.audio.transcriptions.create
        whole = await create(model="whisper-1", file=("a.wav", sound), response_format="diarized_json")
        assert isinstance(whole, TranscriptionDiarized)
        check_turns([segment.to_dict() for segment in whole.segments], "A", "B")
        assert whole.usage is not None
        stream = await create(model="whisper-1", file=("a.wav", sound), response_format="diarized_json", stream=True)
        events = [event async for event in stream]
    told = [event for event in events if event.type == "transcript.text.segment"]
    assert [event.to_dict() for event in told] == [segment.to_dict() for segment in whole.segments]
    deltas = [event for event in events if event.type == "transcript.text.delta"]
    assert "".join(event.delta for event in deltas) == events[-1].text == whole.text


async def test_known_speakers_have_their_names(server: Server, sound: bytes) -> None:
    references = [data_url(reader()[: 6 * 16_000]), data_url(kennedy()[: 5 * 16_000])]
    async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=300) as sdk:
        create: Any = sdk.audio.transcriptions.create
        fields = {"model": "whisper-1", "file": ("a.wav", sound), "response_format": "diarized_json"}
        both = await create(**fields, known_speaker_names=["reader", "kennedy"], known_speaker_references=references)
        one = await create(**fields, known_speaker_names=["reader"], known_speaker_references=references[:1])
    check_turns([segment.to_dict() for segment in both.segments], "kennedy", "reader")
    check_turns([segment.to_dict() for segment in one.segments], "A", "reader")


@pytest.mark.field("D3")
async def test_counts_are_obeyed(client: httpx.AsyncClient, sound: bytes) -> None:
    answer = await asr(client, sound, num_speakers="3")
    speakers = {segment["speaker"] for segment in answer["segments"]}
    assert len(speakers) == 3 or any("3 speakers" in warning for warning in answer["warnings"])
    one = await asr(client, sound, max_speakers="1")
    assert {segment["speaker"] for segment in one["segments"]} == {"SPK0"}


@pytest.mark.parametrize(
    ("fields", "param", "said"),
    [
        ({"spk": "true", "min_speakers": "3", "max_speakers": "2"}, "min_speakers", "max_speakers 2"),
        ({"spk": "true", "num_speakers": "0"}, "num_speakers", "1 to 50"),
        ({"spk": "true", "num_speakers": "51"}, "num_speakers", "1 to 50"),
        ({"spk": "true", "num_speakers": "two"}, "num_speakers", "integer"),
        ({"num_speakers": "2"}, "num_speakers", "spk"),
        ({"channel": "split", "spk": "true", "num_speakers": "2"}, "num_speakers", "channel"),
        ({"channel": "middle"}, "channel", "split"),
    ],
)
async def test_counts_that_cannot_be(
    client: httpx.AsyncClient, sound: bytes, fields: dict[str, str], param: str, said: str
) -> None:
    for door in ("/asr", "/v1/audio/transcriptions"):
        answer = await client.post(door, files={"file": sound}, data=fields)
        assert answer.status_code == 400, answer.text
        error = answer.json()["error"]
        assert error["param"] == param
        assert said in error["message"]


@pytest.mark.parametrize(
    ("names", "references", "param", "said"),
    [
        (["a"], [], "known_speaker_references", "1 names"),
        ([], ["data:audio/wav;base64,AAAA"], "known_speaker_references", "0 names"),
        (["a"], ["https://example.com/a.wav"], "known_speaker_references", "data URL"),
        (["a"], ["data:audio/wav;base64,!!!"], "known_speaker_references", "base64"),
        (["a"], ["data:audio/wav;base64,AAAA"], "known_speaker_references", "'a'"),
        (["a"], [data_url(kennedy()[:16_000])], "known_speaker_references", "1.0 s long"),
        (["a"], [data_url(kennedy())], "known_speaker_references", "11.0 s long"),
        (["a"], [data_url(compositions.silence(3.0))], "known_speaker_references", "'a'"),
        (["a", "a"], [data_url(reader())] * 2, "known_speaker_names", "different names"),
        (["a", "b", "c", "d", "e"], [data_url(reader())] * 5, "known_speaker_names", "at most 4"),
    ],
)
async def test_references_that_cannot_be(
    client: httpx.AsyncClient, sound: bytes, names: list[str], references: list[str], param: str, said: str
) -> None:
    answer = await client.post(
        "/v1/audio/transcriptions",
        files={"file": sound},
        data={
            "response_format": "diarized_json",
            "known_speaker_names[]": names,
            "known_speaker_references[]": references,
        },
    )
    assert answer.status_code == 400, answer.text
    error = answer.json()["error"]
    assert error["param"] == param
    assert said in error["message"]


async def test_silence_has_no_speakers(client: httpx.AsyncClient) -> None:
    answer = await asr(client, wav(compositions.silence(5.0)))
    assert (answer["text"], answer["segments"]) == ("", [])
    assert (await diarized(client, wav(compositions.silence(5.0))))["segments"] == []


@pytest.mark.field("A9")
async def test_a_channel_a_speaker(client: httpx.AsyncClient) -> None:
    """A call: who is on the right speaks second, and both speak at once for a while."""
    left = np.concatenate([kennedy(), compositions.silence(2.0)])
    right = np.concatenate([compositions.silence(5.5), reader()])
    call = wav(np.stack([left[: len(right)], right[: len(left)]], axis=1))
    body = await asr(client, call, channel="split")
    segments = body["segments"]
    assert [segment["start"] for segment in segments] == sorted(segment["start"] for segment in segments)
    assert body["duration"] == pytest.approx(12.6, abs=0.1)
    for channel, speaker in (("left", "SPK0"), ("right", "SPK1")):
        alone = (await client.post("/asr", files={"file": call}, data={"channel": channel})).json()
        told = [segment for segment in segments if segment["speaker"] == speaker]
        assert " ".join(segment["text"] for segment in told) == alone["text"]
    assert {segment["speaker"] for segment in (await diarized(client, call, channel="split"))["segments"]} == {"A", "B"}


async def test_split_of_one_channel_and_of_silent_ones(client: httpx.AsyncClient) -> None:
    (segment,) = (await asr(client, wav(kennedy()), channel="split"))["segments"]
    assert segment["speaker"] == "SPK0"
    right_only = np.stack([np.zeros_like(kennedy()), kennedy()], axis=1)
    (segment,) = (await asr(client, wav(right_only), channel="split"))["segments"]
    assert segment["speaker"] == "SPK0"


async def test_too_many_channels(client: httpx.AsyncClient) -> None:
    many = wav(np.tile(kennedy()[:16_000, None], (1, 9)))
    answer = await client.post("/asr", files={"file": many}, data={"channel": "split"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "too_many_channels")
