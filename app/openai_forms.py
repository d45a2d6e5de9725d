"""The forms of the OpenAI door: its fields, and a few of our own."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from app.chunking import ChunkingStrategy
from app.errors import Refusal
from app.formats import formats
from app.formats.format import Asked, Format
from app.forms import Form
from app.models import require_model
from app.options import Hotwords, lost_words, transcription_options
from app.pipeline import ChannelChoice, TranscriptionOptions
from app.services import Services
from app.speaker_fields import SpeakerFields
from app.voices import SpeakerOptions
from engine.recognition import Task
from vad.options import SegmentationOptions

TRANSCRIPTION_FORMATS = tuple(formats())
TRANSLATION_FORMATS = tuple(name for name, each in formats().items() if not each.speakers)


def _one_of(names: tuple[str, ...]) -> AfterValidator:
    def check(name: str) -> str:
        if name not in names:
            raise ValueError(f"allowed are {', '.join(names)}")
        return name

    return AfterValidator(check)


class SpeechForm(Form):
    """What transcriptions and translations share."""

    task: ClassVar[Task]

    model: str | None = Field(None, description="the served model or one of its aliases")
    language: str | None = Field(None, description="such as en, zh-CN, English, 中文; auto or nothing to detect it")
    prompt: str = Field("", description="text before the recording, or words to expect")
    response_format: str = "json"
    temperature: float = Field(0.0, ge=0, le=1)
    hotwords: Hotwords = Field((), description="words to expect, separated by commas")
    keywords: Hotwords = Field((), description="OpenAI's name for hotwords")

    @property
    def format(self) -> Format:
        return formats()[self.response_format]

    def asked(self) -> Asked:
        """What the answer shall hold."""
        return Asked(task=self.task)

    def _options(
        self,
        services: Services,
        *,
        languages: tuple[str, ...] = (),
        word_timestamps: bool = False,
        logprobs: bool = False,
        segmentation: SegmentationOptions | None = None,
        speakers: SpeakerOptions | None = None,
        channel: ChannelChoice = "mix",
        warnings: tuple[str, ...] = (),
    ) -> TranscriptionOptions:
        return transcription_options(
            services.capabilities,
            language=self.language,
            languages=languages,
            hotwords=self.hotwords + self.keywords,
            prompt=self.prompt,
            temperature=self.temperature,
            task=self.task,
            word_timestamps=word_timestamps,
            logprobs=logprobs,
            segmentation=segmentation,
            speakers=speakers,
            channel=channel,
            warnings=warnings,
        )


class TranslationForm(SpeechForm):
    """The fields of a translation beside the recording. `language` is the one that is spoken."""

    task = "translate"

    response_format: Annotated[str, _one_of(TRANSLATION_FORMATS)] = Field(
        "json", json_schema_extra={"enum": list(TRANSLATION_FORMATS)}
    )

    def options(self, services: Services) -> TranscriptionOptions:
        """What the pipeline shall do: no word times, as the words do not come in the order in which they were said.

        Raises:
            Refusal: 400 or 404, the loaded model cannot do that.
        """
        require_model(self.model, services.capabilities)
        return self._options(services)


class TranscriptionForm(SpeechForm, SpeakerFields):
    """The fields of a transcription beside the recording."""

    task = "transcribe"
    objects = frozenset({"chunking_strategy"})

    response_format: Annotated[str, _one_of(TRANSCRIPTION_FORMATS)] = Field(
        "json", json_schema_extra={"enum": list(TRANSCRIPTION_FORMATS)}
    )
    languages: Hotwords = Field((), description="languages that may be spoken")
    timestamp_granularities: tuple[Literal["word", "segment"], ...] = Field((), description="verbose_json only")
    include: tuple[Literal["logprobs"], ...] = Field(
        (), description="logprobs: those of the tokens; json only, for models that give them"
    )
    chunking_strategy: ChunkingStrategy = Field(None, description="auto, or the settings of the detector")
    known_speaker_names: tuple[str, ...] = Field((), description="up to 4 names, with spk or diarized_json")
    known_speaker_references: tuple[str, ...] = Field(
        (), description="a data URL of 2 to 10 s of each one's voice, in the same order"
    )
    stream: bool = Field(False, description="server-sent events")

    def asked(self) -> Asked:
        """Segments unless only words are asked for, as at OpenAI."""
        granularities = self.timestamp_granularities
        return Asked(
            segments=not granularities or "segment" in granularities,
            words="word" in granularities,
            logprobs=bool(self.include),
        )

    def options(self, services: Services) -> TranscriptionOptions:
        """What the pipeline shall do.

        Raises:
            Refusal: 400 or 404, fields that do not go together, or not with the loaded model.
        """
        require_model(self.model, services.capabilities)
        self._check()
        vad = self.chunking_strategy
        words = "word" in self.timestamp_granularities
        lost = lost_words(words, services.capabilities)
        return self._options(
            services,
            languages=self.languages,
            word_timestamps=words or self.format.words,
            logprobs=bool(self.include),
            segmentation=None if vad is None else vad.segmentation(services.segmentation),
            speakers=self.speakers(
                services,
                asked_by="response_format" if self.format.speakers else None,
                names=self.known_speaker_names,
                references=self.known_speaker_references,
            ),
            channel=self.channel,
            warnings=lost if vad is None else lost + vad.warnings,
        )

    def _check(self) -> None:
        if self.include and not self.format.logprobs:
            raise _needs("include", [each.name for each in formats().values() if each.logprobs])
        if self.timestamp_granularities and not self.format.timed:
            raise _needs("timestamp_granularities", [each.name for each in formats().values() if each.timed])
        if self.stream and not self.format.streamed:
            raise _needs("stream", [each.name for each in formats().values() if each.streamed])


def _needs(param: str, names: list[str]) -> Refusal:
    return Refusal(
        400, "invalid_value", f"`{param}` needs one of these as `response_format`: {', '.join(names)}.", param=param
    )
