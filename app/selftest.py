"""Whether what was loaded can hear: a model whose parts do not fit says nonsense, without any error."""

from __future__ import annotations

import re
from pathlib import Path

from app.pipeline import EncodedAudio, Pipeline
from audio.errors import AudioError
from engine.catalog import ENTRIES
from engine.recognition import Capabilities

CLIP = Path(__file__).parent / "data" / "selftest.wav"
"""3.1 s of President Kennedy's inaugural address, 1961; a recording of the U.S. government, in the public domain."""

WORDS = ("and", "so", "my", "fellow", "americans")
"""What is said in it."""

_ENOUGH = 3
_SHOWN = 60


class SelfTestFailed(Exception):
    """The models are loaded and do not work; the message says what they heard."""


async def self_test(pipeline: Pipeline) -> None:
    """Transcribe the clip through the whole pipeline, which also warms it up.

    Every model must answer with letters. One of the catalogue that speaks English must hear most of the words; of a
    directory nobody knows what it was trained for.

    Raises:
        SelfTestFailed: it heard nonsense.
        DeviceGone: the device died of it.
    """
    try:
        transcript = await pipeline.transcribe(EncodedAudio(str(CLIP)))
    except AudioError as error:
        raise SelfTestFailed(f"the self-test could not decode its clip: {error}") from error
    check(transcript.text, pipeline.capabilities)


def check(text: str, capabilities: Capabilities) -> None:
    """Nothing, if the text makes sense.

    Raises:
        SelfTestFailed: it does not.
    """
    heard = repr(text[:_SHOWN])
    if not any(character.isalpha() for character in text):
        raise SelfTestFailed(f"the self-test heard {heard} where words were said: the weights do not fit the model")
    known = capabilities.model in {entry.name for entry in ENTRIES} and "en" in capabilities.languages
    found = set(re.findall(r"\w+", text.lower()))
    if known and len(found.intersection(WORDS)) < _ENOUGH:
        raise SelfTestFailed(f"the self-test heard {heard} where {' '.join(WORDS)!r} was said")
