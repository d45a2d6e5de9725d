"""Whisper under vLLM: its tokens, its prompts, and the rules it was published with (arXiv 2212.04356)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from audio.shared import Waveform
from audio.span import SAMPLE_RATE
from engine.bytelevel import ByteTable, token_logprob
from engine.native import vllm_compat
from engine.native.cross_attention import Heads
from engine.native.speech_model import EngineRequest, Reading, check_options
from engine.recognition import Capabilities, DecodingOptions, TokenLogprob, Word
from engine.words import TimedPiece, merge_pieces

_CONTEXT = 448
_MAX_NEW_TOKENS = 224
"""Half of the decoder's context, as in the reference: 30 s of speech fit, and the other half is for a prompt."""
_MAX_PROMPT_TOKENS = 223
_MAX_SECONDS = 30.0
_FORBID = -100.0
_ISO_CODES = {"jw": "jv"}
"""Whisper's only language token that is not an ISO 639 code: Javanese."""


@dataclass(frozen=True, slots=True)
class WhisperTokens:
    """Ids of Whisper's special tokens; `languages` maps ISO 639 codes and is empty in English-only models."""

    start: int
    end: int
    previous: int
    no_timestamps: int
    no_speech: int
    tasks: Mapping[str, int]
    languages: Mapping[str, int]
    suppressed: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Any, generation_config: Mapping[str, Any]) -> WhisperTokens:
        """Read them from a tokenizer and the model's `generation_config.json`.

        Raises:
            ValueError: the tokenizer lacks one of them.
        """
        ids: Mapping[str, int] = tokenizer.get_added_vocab()
        try:
            start, translate = ids["<|startoftranscript|>"], ids["<|translate|>"]
            # Its older name is no captions.
            no_speech = ids["<|nocaptions|>"] if "<|nocaptions|>" in ids else ids["<|nospeech|>"]
            return cls(
                start=start,
                end=ids["<|endoftext|>"],
                previous=ids["<|startofprev|>"],
                no_timestamps=ids["<|notimestamps|>"],
                no_speech=no_speech,
                tasks={"transcribe": ids["<|transcribe|>"], "translate": translate},
                languages=_languages(ids, start, translate) if ids["<|endoftext|>"] > 50256 else {},
                suppressed=tuple(t for t in generation_config.get("suppress_tokens") or () if t >= 0),
            )
        except KeyError as error:
            raise ValueError(f"the tokenizer lacks the token {error}") from None

    def prompt(self, language: str | None, task: str) -> list[int]:
        """What stands before a text without timestamps."""
        if not self.languages:
            return [self.start, self.no_timestamps]
        if language is None:
            raise ValueError("a multilingual Whisper must be told the language")
        return [self.start, self.languages[language], self.tasks[task], self.no_timestamps]


def _languages(ids: Mapping[str, int], start: int, translate: int) -> dict[str, int]:
    """Language tokens lie between the start token and the first task token."""
    codes = {text.strip("<|>"): number for text, number in ids.items() if start < number < translate}
    return {_ISO_CODES.get(code, code): number for code, number in sorted(codes.items(), key=lambda pair: pair[1])}


class WhisperModel:
    """Prompts and texts of Whisper as token ids: vLLM's own prompt does not know English-only models, and spells the
    previous text's token in a way that Whisper does not."""

    def __init__(self, name: str, engine: Any, directory: Path, *, word_timestamps: bool = True) -> None:
        from vllm.sampling_params import SamplingParams

        self._params = SamplingParams
        self._tokenizer = vllm_compat.tokenizer_of(engine)
        self._bytes = ByteTable()
        settings = _read_json(directory / "generation_config.json")
        self.tokens = WhisperTokens.of(self._tokenizer, settings)
        self.heads = alignment_heads(settings, _read_json(directory / "config.json"))
        multilingual = bool(self.tokens.languages)
        self.capabilities = Capabilities(
            model=name,
            max_segment_seconds=_MAX_SECONDS,
            languages=tuple(self.tokens.languages) or ("en",),
            word_timestamps=word_timestamps,
            hotwords=False,
            translation=multilingual,
            detects_language=multilingual,
            prompt=True,
            logprobs=True,
        )

    def check(self, options: DecodingOptions) -> None:
        check_options(options, self.capabilities)

    def detection(self, audio: Waveform, key: str) -> EngineRequest:
        allowed = list(self.tokens.languages.values())
        params = self._params(temperature=0.0, max_tokens=1, allowed_token_ids=allowed, detokenize=False)
        return EngineRequest(_prompt(audio, key, [self.tokens.start]), params)

    def detected(self, tokens: tuple[int, ...]) -> str:
        return {number: code for code, number in self.tokens.languages.items()}[tokens[0]]

    def transcription(self, audio: Waveform, key: str, language: str | None, options: DecodingOptions) -> EngineRequest:
        prompt = [*self._previous(options.prompt), *self.tokens.prompt(language, options.task)]
        room = min(_MAX_NEW_TOKENS, _CONTEXT - len(prompt))
        params = self._params(
            temperature=options.temperature,
            max_tokens=min(options.max_new_tokens or room, room),
            min_tokens=1,
            stop_token_ids=[self.tokens.end],
            logit_bias=dict.fromkeys(self.tokens.suppressed, _FORBID),
            logprobs=0,
            detokenize=False,
        )
        return EngineRequest(_prompt(audio, key, prompt), params)

    def read(self, completion: Any) -> Reading:
        tokens = tuple(token for token in completion.token_ids if token < self.tokens.end)
        return Reading(b"".join(self.spell(tokens)).decode("utf-8", "replace").strip(), tokens)

    def logprobs(self, completion: Any) -> tuple[TokenLogprob, ...]:
        """Log probabilities of the text tokens of a finished `transcription`."""
        told = zip(completion.token_ids, completion.logprobs, strict=True)
        kept = [(token, at[token].logprob) for token, at in told if token < self.tokens.end]
        spelled = self.spell([token for token, _ in kept])
        return tuple(token_logprob(data, logprob) for data, (_, logprob) in zip(spelled, kept, strict=True))

    def encode(self, text: str) -> tuple[int, ...]:
        """Tokens of a text, with the space in front that a transcript begins with."""
        return tuple(self._tokenizer.encode(f" {text}", add_special_tokens=False))

    def spell(self, tokens: Sequence[int]) -> list[bytes]:
        """The bytes of each text token."""
        return [self._bytes.of(piece) for piece in self._tokenizer.convert_ids_to_tokens(list(tokens))]

    def words(self, tokens: Sequence[int], boundaries: Sequence[float]) -> list[Word]:
        """The words of text tokens, which last from one of their boundaries to the next; joined they are the text."""
        spelled = _stripped(self.spell(tokens))
        pieces = zip(spelled, boundaries[:-1], boundaries[1:], strict=True)
        return merge_pieces(TimedPiece(*piece) for piece in pieces if piece[0])

    def _previous(self, text: str) -> list[int]:
        text = text.strip()
        return [self.tokens.previous, *self.encode(text)[-_MAX_PROMPT_TOKENS:]] if text else []


def alignment_heads(generation_config: Mapping[str, Any], config: Mapping[str, Any]) -> Heads:
    """The heads that follow the sound: those published with the model, else all of the upper half of the decoder."""
    published = generation_config.get("alignment_heads")
    if published:
        return tuple((int(layer), int(head)) for layer, head in published)
    layers, heads = int(config["decoder_layers"]), int(config["decoder_attention_heads"])
    return tuple((layer, head) for layer in range(layers // 2, layers) for head in range(heads))


def _prompt(audio: Waveform, key: str, tokens: Sequence[int]) -> dict[str, Any]:
    clip = {"multi_modal_data": {"audio": (audio, SAMPLE_RATE)}, "multi_modal_uuids": {"audio": [key]}}
    return {"encoder_prompt": {"prompt": "", **clip}, "decoder_prompt": {"prompt_token_ids": list(tokens)}}


def _stripped(pieces: Sequence[bytes]) -> list[bytes]:
    """Pieces without the space at both ends of what they spell; there are as many as before."""
    kept = list(pieces)
    for order, strip in ((range(len(kept)), bytes.lstrip), (reversed(range(len(kept))), bytes.rstrip)):
        for number in order:
            kept[number] = strip(kept[number])
            if kept[number]:
                break
    return kept


def _read_json(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text())) if path.is_file() else {}
