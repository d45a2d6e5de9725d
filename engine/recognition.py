"""What every recogniser takes and returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from audio.span import Span
from engine.flat import Flat
from engine.stage import Stage

FinishReason = Literal["stop", "length"]
Task = Literal["transcribe", "translate"]


@dataclass(frozen=True, slots=True)
class DecodingOptions(Flat):
    """How a request wants its segments decoded. `language` is an ISO 639 code, None to let the model find out."""

    language: str | None = None
    task: Task = "transcribe"
    prompt: str = ""
    hotwords: tuple[str, ...] = ()
    itn: bool = True
    temperature: float = 0.0
    max_new_tokens: int | None = None
    word_timestamps: bool = True
    logprobs: bool = False


@dataclass(frozen=True, slots=True)
class Recognition:
    """One call on a recogniser: the segments of one waveform."""

    spans: tuple[Span, ...]
    options: DecodingOptions = DecodingOptions()


@dataclass(frozen=True, slots=True)
class Word(Flat):
    """A spelled word, or one CJK character; punctuation belongs to the word before it.

    Times are seconds; `interpolated` marks a time that lies between aligned neighbours rather than on a measurement.
    Words of a hypothesis, joined in order, give its text exactly: a word carries the space in front of it.
    """

    text: str
    start: float
    end: float
    interpolated: bool = False

    def shifted(self, seconds: float) -> Word:
        return Word(self.text, self.start + seconds, self.end + seconds, self.interpolated)


@dataclass(frozen=True, slots=True)
class TokenLogprob(Flat):
    """A token of the text: how it is written, the UTF-8 bytes it stands for, and its natural log probability."""

    token: str
    content: bytes
    logprob: float


@dataclass(frozen=True, slots=True)
class Hypothesis(Flat):
    """What a recogniser heard in one segment. Word times count from the beginning of the segment.

    `words` is None where no times could be made. `language` is an ISO 639 code or None. `avg_logprob`, `no_speech_prob`
    and `compression_ratio` are as OpenAI's Whisper defines them, None where the model does not give them. `logprobs`
    are those of the tokens of the text, None unless `DecodingOptions.logprobs` asks for them.
    """

    index: int
    text: str
    words: Sequence[Word] | None = None
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
class Capabilities:
    """What a loaded recogniser can do. `languages` are ISO 639 codes, `prompt` is text that came before."""

    model: str
    max_segment_seconds: float
    languages: tuple[str, ...]
    word_timestamps: bool
    hotwords: bool
    translation: bool
    detects_language: bool
    prompt: bool = False
    logprobs: bool = False


@runtime_checkable
class Recognizer(Stage, Protocol):
    """A stage that takes a `Recognition` and puts out one `Hypothesis` a segment, in the order they get ready.

    `describe()` returns `{"capabilities": Capabilities}`.
    """

    @property
    def capabilities(self) -> Capabilities: ...
