"""From what a request says to what the pipeline takes: the rules that all doors share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import AfterValidator

from app.errors import Refusal
from app.languages import choose_language
from app.pipeline import ChannelChoice, TranscriptionOptions
from app.voices import SpeakerOptions
from engine.recognition import Capabilities, DecodingOptions, Task
from vad.options import SegmentationOptions

_HOTWORD_SEPARATOR = re.compile("[,\N{FULLWIDTH COMMA}]")


def split_hotwords(texts: Iterable[str]) -> tuple[str, ...]:
    """Hotwords of comma-separated lists; ASCII and full-width commas, each word once, in order."""
    words = (word.strip() for text in texts for word in _HOTWORD_SEPARATOR.split(text))
    return tuple(dict.fromkeys(word for word in words if word))


Hotwords = Annotated[tuple[str, ...], AfterValidator(split_hotwords)]
"""A form field; any list whose items may be repeated or separated by commas is written so."""


def transcription_options(
    capabilities: Capabilities,
    *,
    language: str | None = None,
    languages: tuple[str, ...] = (),
    hotwords: tuple[str, ...] = (),
    prompt: str = "",
    temperature: float = 0.0,
    task: Task = "transcribe",
    word_timestamps: bool = True,
    logprobs: bool = False,
    segmentation: SegmentationOptions | None = None,
    speakers: SpeakerOptions | None = None,
    channel: ChannelChoice = "mix",
    warnings: tuple[str, ...] = (),
) -> TranscriptionOptions:
    """Options for the loaded recogniser; word times are asked for only where it makes them, and made for speakers too.

    A recogniser that takes hotwords takes the prompt as such; one that does not gets the prompt as text, if it takes
    that. A warning says what is lost. `languages` are candidates: one of them alone is the language, of several the
    recogniser finds out which; `language` goes before them. `warnings` are those of the request so far.

    Raises:
        Refusal: 400, a language that it does not speak, or a translation or logprobs that it does not make.
    """
    if logprobs and not capabilities.logprobs:
        raise Refusal(
            400,
            "unsupported_parameter",
            f"`include`: the model {capabilities.model} does not give logprobs; leave it out.",
            param="include",
        )
    if task == "translate" and not capabilities.translation:
        raise Refusal(400, "unsupported_model", f"The model {capabilities.model} does not translate.", param="model")
    code = _language("language", language, capabilities)
    candidates = dict.fromkeys(_language("languages", each, capabilities) for each in languages)
    lost = list(warnings)
    if code is None and len(candidates) == 1:
        (code,) = candidates
    elif code is None and candidates:
        lost.append("several languages are no limit: the model finds out among all that it knows")
    if capabilities.hotwords:
        hotwords, prompt = split_hotwords([*hotwords, prompt]), ""
    elif hotwords:
        hotwords = ()
        lost.append("hotwords have no effect: the model takes none")
    if prompt and not capabilities.prompt:
        prompt = ""
        lost.append("the prompt has no effect: the model takes none")
    return TranscriptionOptions(
        DecodingOptions(
            language=code,
            task=task,
            prompt=prompt,
            hotwords=hotwords,
            temperature=temperature,
            word_timestamps=(word_timestamps or speakers is not None) and capabilities.word_timestamps,
            logprobs=logprobs,
        ),
        segmentation=segmentation,
        speakers=speakers,
        channel=channel,
        warnings=tuple(lost),
    )


def lost_words(asked: bool, capabilities: Capabilities) -> tuple[str, ...]:
    """The warning for a client that asks for word times of a model that makes none."""
    return ("words have no times: the model makes none",) if asked and not capabilities.word_timestamps else ()


def _language(param: str, text: str | None, capabilities: Capabilities) -> str | None:
    try:
        return choose_language(text, capabilities.languages)
    except ValueError as error:
        raise Refusal(400, "invalid_language", f"Invalid `{param}`: {error}", param=param) from error


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
        return replace(server, **changes) if changes else server
    except ValueError as error:
        raise Refusal(400, "invalid_value", f"Segmentation: {error}", param="silence_schedule") from error
