"""What a request may ask for, and the prompt that it comes to."""

from __future__ import annotations

import math

from engine.fun_asr_nano.languages import LanguageTable
from engine.fun_asr_nano.prompt import Prompt, PromptBuilder
from engine.recognition import DecodingOptions

_TOKENS_AT_LEAST = 32
_TOKENS_A_SECOND = 16
"""The fastest speech comes to 8 tokens a second in Chinese or English, to 15 where letters fall apart into bytes."""


def token_limit(seconds: float, asked: int | None = None) -> int:
    """The most tokens that a segment's text can have: twice what the fastest speaker says, or less if asked for.

    What the decoder writes beyond it is a loop: 30 s may have 512 tokens, and have 200 as a rule.
    """
    limit = _TOKENS_AT_LEAST + math.ceil(_TOKENS_A_SECOND * seconds)
    return limit if asked is None else min(asked, limit)


class OptionRules:
    """Checks the options of a request and turns them into a prompt."""

    def __init__(self, builder: PromptBuilder, languages: LanguageTable) -> None:
        self._builder = builder
        self._languages = languages

    @property
    def codes(self) -> tuple[str, ...]:
        return self._languages.codes

    def prompt(self, options: DecodingOptions) -> Prompt:
        """The prompt of a request.

        Raises:
            ValueError: the model cannot do what is asked; the message says what is possible.
        """
        if options.task != "transcribe":
            raise ValueError("the model does not translate; it writes down what is said")
        if not (math.isfinite(options.temperature) and options.temperature >= 0):
            raise ValueError(f"a temperature of {options.temperature} is impossible, it is 0 or above")
        if options.max_new_tokens is not None and options.max_new_tokens < 1:
            raise ValueError(f"max_new_tokens is {options.max_new_tokens}, at least 1 is needed")
        self.language(options)
        return self._builder.build(language=options.language, hotwords=options.hotwords, itn=options.itn)

    def language(self, options: DecodingOptions) -> str | None:
        """The code of the language that is asked for, None where the model is to find out.

        Raises:
            ValueError: the model does not speak it.
        """
        asked = (options.language or "").strip()
        if asked.casefold() in ("", "auto"):
            return None
        language = self._languages.find(asked)
        if language is None:
            raise ValueError(f"the model does not know the language {asked!r}; it knows {', '.join(self.codes)}")
        return language.code

    def warnings(self, options: DecodingOptions) -> tuple[str, ...]:
        """What of the options has no effect."""
        if options.prompt.strip():
            return ("this model takes no prompt; names and terms can be given as hotwords",)
        return ()
