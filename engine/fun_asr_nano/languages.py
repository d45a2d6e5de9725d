"""The languages of the published models, and the Chinese names that their prompts were trained with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Language:
    """An ISO 639 code, the English name, and the name that stands in the prompt."""

    code: str
    english: str
    prompt_name: str
    aliases: tuple[str, ...] = ()


CHINESE = Language("zh", "chinese", "中文", ("mandarin", "汉语", "普通话", "国语", "cmn", "zho", "华语"))
ENGLISH = Language("en", "english", "英文", ("英语", "eng"))
CANTONESE = Language("yue", "cantonese", "粤语", ("广东话", "zh-yue", "zh-hk"))
JAPANESE = Language("ja", "japanese", "日文", ("日语", "jpn"))

NANO = (CHINESE, ENGLISH, JAPANESE)
"""Fun-ASR-Nano; it hears Cantonese and other dialects as Chinese."""

MLT_NANO = (
    CHINESE,
    ENGLISH,
    CANTONESE,
    JAPANESE,
    Language("ko", "korean", "韩文", ("韩语", "kor")),
    Language("vi", "vietnamese", "越南语"),
    Language("id", "indonesian", "印尼语", ("印度尼西亚语",)),
    Language("th", "thai", "泰语"),
    Language("ms", "malay", "马来语"),
    Language("tl", "filipino", "菲律宾语", ("fil", "tagalog")),
    Language("ar", "arabic", "阿拉伯语"),
    Language("hi", "hindi", "印地语"),
    Language("bg", "bulgarian", "保加利亚语"),
    Language("hr", "croatian", "克罗地亚语"),
    Language("cs", "czech", "捷克语"),
    Language("da", "danish", "丹麦语"),
    Language("nl", "dutch", "荷兰语"),
    Language("et", "estonian", "爱沙尼亚语"),
    Language("fi", "finnish", "芬兰语"),
    Language("el", "greek", "希腊语"),
    Language("hu", "hungarian", "匈牙利语"),
    Language("ga", "irish", "爱尔兰语"),
    Language("lv", "latvian", "拉脱维亚语"),
    Language("lt", "lithuanian", "立陶宛语"),
    Language("mt", "maltese", "马耳他语"),
    Language("pl", "polish", "波兰语"),
    Language("pt", "portuguese", "葡萄牙语"),
    Language("ro", "romanian", "罗马尼亚语"),
    Language("sk", "slovak", "斯洛伐克语"),
    Language("sl", "slovenian", "斯洛文尼亚语"),
    Language("sv", "swedish", "瑞典语"),
)
"""Fun-ASR-MLT-Nano: 31 languages."""


class LanguageTable:
    """Finds a supported language by code ("zh", "en-US"), English name or Chinese name, in any case."""

    def __init__(self, languages: tuple[Language, ...]) -> None:
        self.languages = languages
        self._by_name = {
            name: language
            for language in languages
            for name in (language.code, language.english, language.prompt_name, *language.aliases)
        }
        if CANTONESE not in languages:
            heard_as_chinese = (CANTONESE.code, CANTONESE.english, CANTONESE.prompt_name, *CANTONESE.aliases)
            self._by_name |= dict.fromkeys(heard_as_chinese, CHINESE)

    @property
    def codes(self) -> tuple[str, ...]:
        return tuple(language.code for language in self.languages)

    def find(self, name: str | None) -> Language | None:
        """The language of a name; None for no name, "auto", and what the model does not know."""
        key = (name or "").strip().casefold().replace("_", "-")
        return self._by_name.get(key) or self._by_name.get(key.split("-")[0])
