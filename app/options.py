"""From what a request says to what the pipeline takes: the rules that all doors share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator

from app.errors import Refusal
from app.languages import choose_language
from app.pipeline import TranscriptionOptions
from engine.recognition import Capabilities, DecodingOptions
from vad.options import SegmentationOptions

_HOTWORD_SEPARATOR = re.compile("[,\N{FULLWIDTH COMMA}]")


def split_hotwords(texts: Iterable[str]) -> tuple[str, ...]:
    """Hotwords of comma-separated lists; ASCII and full-width commas, each word once, in order."""
    words = (word.strip() for text in texts for word in _HOTWORD_SEPARATOR.split(text))
    return tuple(dict.fromkeys(word for word in words if word))


Hotwords = Annotated[tuple[str, ...], AfterValidator(split_hotwords)]
"""A form field."""


def transcription_options(
    capabilities: Capabilities,
    *,
    language: str | None = None,
    hotwords: tuple[str, ...] = (),
    prompt: str = "",
    temperature: float = 0.0,
    word_timestamps: bool = True,
    segmentation: SegmentationOptions | None = None,
) -> TranscriptionOptions:
    """Options for the loaded recogniser; word times are asked for only where it makes them.

    Raises:
        Refusal: 400, a language that it does not speak.
    """
    try:
        code = choose_language(language, capabilities.languages)
    except ValueError as error:
        raise Refusal(400, "invalid_language", f"Invalid `language`: {error}", param="language") from error
    return TranscriptionOptions(
        DecodingOptions(
            language=code,
            prompt=prompt,
            hotwords=hotwords,
            temperature=temperature,
            word_timestamps=word_timestamps and capabilities.word_timestamps,
        ),
        segmentation=segmentation,
    )


def segmentation_options(
    server: SegmentationOptions,
    *,
    silence_ms: int | None = None,
    schedule: Sequence[tuple[float | None, int]] | None = None,
    max_segment_seconds: float | None = None,
) -> SegmentationOptions:
    """The server's segmentation, with what the request wants instead.

    Raises:
        Refusal: 400, values out of range or at odds with each other.
    """
    changes: dict[str, Any] = {}
    if silence_ms is not None or schedule is not None:
        changes |= {"fixed_silence_ms": silence_ms, "schedule": None if schedule is None else tuple(schedule)}
    if max_segment_seconds is not None:
        changes["max_segment_seconds"] = max_segment_seconds
    try:
        return replace(server, **changes)
    except ValueError as error:
        raise Refusal(400, "invalid_value", f"Segmentation: {error}", param="silence_schedule") from error


def refuse_speakers(wanted: bool) -> None:
    """There is no speaker model yet, and a request for speakers is not served without them.

    Raises:
        Refusal: 400.
    """
    if wanted:
        raise Refusal(
            400, "unsupported_parameter", "`spk`: this server cannot tell speakers apart; leave it out.", param="spk"
        )
