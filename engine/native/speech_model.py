"""What the native recogniser wants from a model: prompts for vLLM, and how to read what comes back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from audio.shared import Waveform
from engine.native import vllm_compat
from engine.recognition import Capabilities, DecodingOptions


@dataclass(frozen=True, slots=True)
class EngineRequest:
    """What goes into vLLM: a prompt and `SamplingParams`."""

    prompt: Any
    params: Any


@dataclass(frozen=True, slots=True)
class Reading:
    """The text of a finished request, trimmed, and its text tokens."""

    text: str
    tokens: tuple[int, ...]


class SpeechModel(Protocol):
    """One kind of model that vLLM serves."""

    capabilities: Capabilities

    def check(self, options: DecodingOptions) -> None:
        """Refuse what the model cannot do.

        Raises:
            ValueError: says what is wrong and what is possible.
        """

    def detection(self, audio: Waveform, key: str) -> EngineRequest:
        """A request whose one token tells the language of a clip."""

    def detected(self, tokens: tuple[int, ...]) -> str:
        """The ISO 639 code of the token that a `detection` came to."""

    def transcription(self, audio: Waveform, key: str, language: str | None, options: DecodingOptions) -> EngineRequest:
        """A request for the text of a clip; `key` names the clip inside the engine."""

    def read(self, completion: Any) -> Reading:
        """What a finished `transcription` says."""


class ServedModel:
    """Any model with vLLM's `SupportsTranscription` interface, prompted as that model itself prescribes."""

    def __init__(self, name: str, engine: Any) -> None:
        from vllm.sampling_params import SamplingParams

        self._class = vllm_compat.transcription_class(engine)
        self._config = engine.model_config
        self._speech = vllm_compat.speech_config(self._class, engine.model_config)
        self._tokenizer = vllm_compat.tokenizer_of(engine)
        self._params = SamplingParams
        self._room = engine.model_config.max_model_len
        self.capabilities = Capabilities(
            model=name,
            max_segment_seconds=float(self._speech.max_audio_clip_s or 60.0),
            languages=tuple(self._class.supported_languages),
            word_timestamps=False,
            hotwords=False,
            translation=False,
            detects_language=bool(getattr(self._class, "supports_explicit_language_detection", False)),
            prompt=True,
        )

    def check(self, options: DecodingOptions) -> None:
        check_options(options, self.capabilities)

    def detection(self, audio: Waveform, key: str) -> EngineRequest:
        allowed = self._class.get_language_token_ids(self._tokenizer)
        params = self._params(temperature=0.0, max_tokens=1, allowed_token_ids=allowed, detokenize=False)
        return EngineRequest(self._class.get_language_detection_prompt(audio, self._speech), params)

    def detected(self, tokens: tuple[int, ...]) -> str:
        return str(self._class.parse_language_detection_output(list(tokens), self._tokenizer))

    def transcription(self, audio: Waveform, key: str, language: str | None, options: DecodingOptions) -> EngineRequest:
        prompt = vllm_compat.generation_prompt(self._class, self._config, self._speech, audio, language, options)
        limit = options.max_new_tokens or self._room
        return EngineRequest(prompt, self._params(temperature=options.temperature, max_tokens=limit, logprobs=0))

    def read(self, completion: Any) -> Reading:
        clean = getattr(self._class, "post_process_output", str)
        return Reading(clean(completion.text).strip(), tuple(completion.token_ids))


def check_options(options: DecodingOptions, capabilities: Capabilities) -> None:
    """What every model refuses.

    Raises:
        ValueError: an option outside of what the capabilities allow.
    """
    if options.language is not None and options.language not in capabilities.languages:
        known = ", ".join(capabilities.languages)
        raise ValueError(f"{capabilities.model} does not know the language {options.language!r}; it knows {known}")
    if options.task == "translate" and not capabilities.translation:
        raise ValueError(f"{capabilities.model} cannot translate")
    if not 0.0 <= options.temperature <= 2.0:
        raise ValueError(f"temperature must lie in [0, 2], got {options.temperature}")
    if options.max_new_tokens is not None and options.max_new_tokens < 1:
        raise ValueError(f"max_new_tokens must be at least 1, got {options.max_new_tokens}")
