"""The prompt around the sound: exact strings that the model was trained with, and their token ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from engine.bytelevel import ByteTable
from engine.fun_asr_nano.errors import UnreadableWeights, UnsupportedConfig
from engine.fun_asr_nano.languages import Language, LanguageTable

_BEFORE_USER = "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\n"
_AFTER_SOUND = "<|im_end|>\n<|im_start|>assistant\n"
_CONTEXT = "请结合上下文信息，更加准确地完成语音转写任务。如果没有相关信息，我们会留空。\n\n\n**上下文信息：**\n\n\n"
_STOPS = ("<|im_end|>", "<|endoftext|>")

MAX_HOTWORDS = 200
"""More confuse the model: beyond about a hundred it starts to hear them where nobody says them."""


@dataclass(frozen=True, slots=True)
class Prompt:
    """Token ids before and behind the embeddings of the sound."""

    prefix: tuple[int, ...]
    suffix: tuple[int, ...]

    def __len__(self) -> int:
        return len(self.prefix) + len(self.suffix)


class NanoTokenizer:
    """The language model's tokenizer, as far as prompts and transcripts need it."""

    def __init__(self, file: Path, *, vocabulary: int) -> None:
        """Read a `tokenizer.json`; `vocabulary` is the number of embeddings that the language model has.

        Raises:
            UnreadableWeights, UnsupportedConfig: it is broken, lacks the tokens that end a turn, or has more tokens
                than the model.
        """
        try:
            self._tokenizer = Tokenizer.from_file(str(file))
        except Exception as error:  # the library raises nothing more exact
            raise UnreadableWeights(f"{file} cannot be read: {' '.join(str(error).split())[:200]}") from error
        stops = [self._tokenizer.token_to_id(token) for token in _STOPS]
        if None in stops:
            raise UnsupportedConfig(f"{file} has no token {_STOPS[stops.index(None)]}")
        self.stop_ids: tuple[int, ...] = tuple(stop for stop in stops if stop is not None)
        if (size := self._tokenizer.get_vocab_size()) > vocabulary:
            raise UnsupportedConfig(f"{file} has {size} tokens, the language model {vocabulary}")
        added = self._tokenizer.get_added_tokens_decoder()
        self.control_tokens = frozenset(token.content for token in added.values())
        self._added_ids = frozenset(added)
        self._bytes = ByteTable()

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids without special tokens; broken characters become U+FFFD."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def spell(self, token: int) -> bytes:
        """The bytes of a token, perhaps part of a character; empty for control tokens and ids that are no token."""
        piece = None if token in self._added_ids else self._tokenizer.id_to_token(token)
        return b"" if piece is None else self._bytes.of(piece)


class PromptBuilder:
    """Prompts for the options of a request."""

    def __init__(self, tokenizer: NanoTokenizer, languages: LanguageTable, *, max_tokens: int) -> None:
        """`max_tokens` is what the context leaves for a prompt beside the sound and the answer."""
        self._tokenizer = tokenizer
        self._languages = languages
        self._max_tokens = max_tokens
        self._suffix = tuple(tokenizer.encode(_AFTER_SOUND))
        self._cached = lru_cache(maxsize=256)(self._build)

    def build(self, *, language: str | None = None, hotwords: Sequence[str] = (), itn: bool = True) -> Prompt:
        """The prompt for one segment.

        Args:
            language: a code or a name; "auto", None and unknown ones leave the choice to the model.
            hotwords: words that are likely to be said, at most `MAX_HOTWORDS`.
            itn: whether numbers and dates are written as one writes them, or as one says them.

        Raises:
            ValueError: the hotwords are too many for the model or the context, or hold the model's control tokens.
        """
        return self._cached(language, tuple(hotwords), itn)

    def _build(self, language: str | None, hotwords: tuple[str, ...], itn: bool) -> Prompt:
        text = user_text(self._clean(hotwords), self._languages.find(language), itn=itn)
        prompt = Prompt(tuple(self._tokenizer.encode(_BEFORE_USER + text)), self._suffix)
        if len(prompt) > self._max_tokens:
            raise ValueError(
                f"the hotwords make a prompt of {len(prompt)} tokens, at most {self._max_tokens} fit: leave some out"
            )
        return prompt

    def _clean(self, hotwords: tuple[str, ...]) -> list[str]:
        """Hotwords without spaces around, empty ones and doubles."""
        words = list(dict.fromkeys(" ".join(word.split()) for word in hotwords if word.strip()))
        if len(words) > MAX_HOTWORDS:
            raise ValueError(f"{len(words)} hotwords, at most {MAX_HOTWORDS} are allowed")
        for word in words:
            if any(token in word for token in self._tokenizer.control_tokens):
                raise ValueError(f"the hotword {word!r} holds a control token of the model")
        return words


def user_text(hotwords: Sequence[str], language: Language | None, *, itn: bool) -> str:
    """The user's turn up to the sound."""
    context = f"{_CONTEXT}热词列表：[{', '.join(hotwords)}]\n" if hotwords else ""
    into = f"成{language.prompt_name}" if language else ""
    return f"{context}语音转写{into}{'' if itn else '，不进行文本规整'}："
