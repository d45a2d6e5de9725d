"""What the pipeline returns: a transcript, its segments and their words."""

from __future__ import annotations

from dataclasses import dataclass

from engine.recognition import FinishReason, TokenLogprob, Word


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of speech with its text. All times are seconds from the beginning of the recording.

    `speaker` counts from 0 in order of appearance, None unless speakers are told apart; `speaker_label` is his name if
    he is known, otherwise a letter.
    """

    start: float
    end: float
    text: str
    words: tuple[Word, ...] | None = None
    speaker: int | None = None
    speaker_label: str | None = None
    language: str | None = None
    finish_reason: FinishReason = "stop"
    tokens: tuple[int, ...] = ()
    temperature: float = 0.0
    avg_logprob: float | None = None
    no_speech_prob: float | None = None
    compression_ratio: float | None = None
    logprobs: tuple[TokenLogprob, ...] | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Transcript:
    """The whole answer. `language` is an ISO 639 code, None where nothing was said or the model does not tell."""

    text: str
    segments: tuple[Segment, ...]
    duration: float
    processing_seconds: float
    language: str | None = None
    warnings: tuple[str, ...] = ()
