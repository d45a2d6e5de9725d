from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace
from typing import Any

import pytest
import soundfile

from app.pipeline import Pipeline
from app.selftest import CLIP, SelfTestFailed, check, self_test
from audio.decode import Channel
from audio.shared import SharedWaveform
from audio.span import Span
from engine.device import DeviceGone
from engine.recognition import Capabilities, Hypothesis

WHISPER = Capabilities("whisper-base", 30.0, ("en", "de"), True, False, True, True)
CHINESE = replace(WHISPER, model="fun-asr-nano", languages=("zh",))
DIRECTORY = replace(WHISPER, model="my-own-model")

SENSE = "And so, my fellow Americans,"
SOMETHING = "Und so weiter"


@pytest.mark.field("B5")
@pytest.mark.parametrize("text", ["", " ", "!!!!!!", "。。。", "... - ...", "123 456", "\N{MUSICAL SYMBOL G CLEF}" * 9])
@pytest.mark.parametrize("model", [WHISPER, CHINESE, DIRECTORY])
def test_what_is_never_a_text(text: str, model: Capabilities) -> None:
    """B5."""
    with pytest.raises(SelfTestFailed, match="self-test heard"):
        check(text, model)


def test_the_reason_is_in_the_message() -> None:
    with pytest.raises(SelfTestFailed, match="'!!!!!!' where words were said: the weights do not fit"):
        check("!!!!!!", DIRECTORY)


@pytest.mark.parametrize("text", [SENSE, "and so my fellow american", "so my fellow citizens"])
def test_what_a_known_model_may_hear(text: str) -> None:
    check(text, WHISPER)


@pytest.mark.parametrize("text", [SOMETHING, "the the the the", "Thank you."])
def test_what_a_known_model_must_not_hear(text: str) -> None:
    with pytest.raises(SelfTestFailed, match="where 'and so my fellow americans' was said"):
        check(text, WHISPER)


@pytest.mark.parametrize("model", [CHINESE, DIRECTORY])
def test_of_other_models_nobody_knows_what_they_hear(model: Capabilities) -> None:
    check(SOMETHING, model)
    check("安德索", model)


def test_the_clip_is_short() -> None:
    info = soundfile.info(CLIP)
    assert (info.samplerate, info.channels) == (16_000, 1)
    assert 3 <= info.duration <= 4


class Device:
    """Says what it is told to."""

    def __init__(self, texts: list[str | Exception]) -> None:
        self.texts = texts
        self.facts: Any = {"recognizer": {"capabilities": WHISPER}}

    async def call(self, stage: str, waveform: SharedWaveform, request: Any) -> AsyncGenerator[Any, None]:
        yield [Span(0.0, waveform.duration)]
        text = self.texts.pop(0)
        if isinstance(text, Exception):
            raise text
        yield Hypothesis(0, text)


class Decoder:
    async def decode(self, audio: Any, into: SharedWaveform, *, channel: Channel) -> None:
        samples, _ = soundfile.read(audio.content, dtype="float32")
        into.write(samples)


async def test_it_goes_through_the_whole_pipeline() -> None:
    pipeline = Pipeline(decoder=Decoder(), device=Device([SENSE, "!!!!!!", DeviceGone("killed")]))  # type: ignore[arg-type]
    await self_test(pipeline)
    with pytest.raises(SelfTestFailed, match="!!!!!!"):
        await self_test(pipeline)
    with pytest.raises(DeviceGone):
        await self_test(pipeline)


@pytest.mark.field("B5")
async def test_nonsense_is_never_ready(build: Any) -> None:
    """B5: the fake decoder does not know the clip, which is as good as nonsense."""
    async with build(self_test=True) as house:
        async with asyncio.timeout(5):
            while (health := await house.client.get("/health")).json()["status"] == "starting":  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        assert (health.status_code, health.json()["status"]) == (503, "failed")
        assert "self-test could not decode its clip" in health.json()["reason"]
        assert (await house.client.get("/health/ready")).status_code == 503
        assert (await house.client.post("/asr", files=house.recording())).status_code == 503
