from __future__ import annotations

import pytest

from app.languages import chinese_name, choose_language, english_name, language_code

FUN_ASR_MLT = """
中文 英文 粤语 日文 韩文 越南语 印尼语 泰语 马来语 菲律宾语 阿拉伯语 印地语 保加利亚语 克罗地亚语 捷克语 丹麦语
荷兰语 爱沙尼亚语 芬兰语 希腊语 匈牙利语 爱尔兰语 拉脱维亚语 立陶宛语 马耳他语 波兰语 葡萄牙语 罗马尼亚语
斯洛伐克语 斯洛文尼亚语 瑞典语
"""
WHISPER = """
en zh de es ru ko fr ja pt tr pl ca nl ar sv it id hi fi vi he uk el ms cs ro da hu ta no th ur hr bg lt la mi ml cy sk
te fa lv bn sr az sl kn et mk br eu is hy ne mn bs kk sq sw gl mr pa si km sn yo so af oc ka be tg sd gu am yi lo uz fo
ht ps tk nn mt sa lb my bo tl mg as tt haw ln ha ba jw su yue
"""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("en-US", "en"),
        ("en_GB", "en"),
        ("en_US.UTF-8", "en"),
        ("English", "en"),
        (" english ", "en"),
        ("eng", "en"),
        ("zh", "zh"),
        ("zh-CN", "zh"),
        ("zh_Hans", "zh"),
        ("zh-Hant-TW", "zh"),
        ("zh-yue-HK", "yue"),
        ("cmn-Hans-CN", "zh"),
        ("中文", "zh"),
        ("普通话", "zh"),
        ("普通話", "zh"),
        ("Mandarin", "zh"),
        ("粤语", "yue"),
        ("粵語", "yue"),
        ("日文", "ja"),
        ("日語", "ja"),
        ("日本語", "ja"),
        ("한국어", "ko"),
        ("法文", "fr"),
        ("français", "fr"),
        ("franc\u0327ais", "fr"),
        ("Haitian  Creole", "ht"),
        ("Burmese", "my"),
        ("nb", "no"),
        ("iw", "he"),
        ("ＪＡ", "ja"),
        ("haw", "haw"),
        ("", None),
        ("  ", None),
        ("auto", None),
        ("AUTO", None),
        ("自动", None),
        (None, None),
    ],
)
def test_names_and_tags(text: str | None, code: str | None) -> None:
    assert language_code(text) == code


@pytest.mark.parametrize(
    "text",
    ["klingon", "e", "xx", "en-", "-", "english-US", "en US", "文", "火星文", "en-" + "a" * 9, "x" * 60_000, "\0"],
)
def test_no_language(text: str) -> None:
    with pytest.raises(ValueError, match="no language is called so"):
        language_code(text)


def test_models_languages_are_covered() -> None:
    assert len({language_code(name) for name in FUN_ASR_MLT.split()}) == 31
    assert len({language_code(code) for code in WHISPER.split()}) == 100


@pytest.mark.parametrize("code", sorted({*WHISPER.split(), "ga"}))
def test_every_name_leads_back_to_its_code(code: str) -> None:
    own = language_code(code)
    assert own is not None
    assert language_code(english_name(own)) == own
    assert language_code(chinese_name(own)) == own
    assert english_name(own) == english_name(own).lower()


def test_the_model_has_its_own_codes() -> None:
    assert choose_language("Javanese", ["en", "jw"]) == "jw"
    assert english_name("jw") == "javanese"
    assert choose_language("auto", ["en"]) is None


@pytest.mark.parametrize(
    "text", ["yue", "Cantonese", "粤语", "粵語", "广东话", "zh-yue", "yue-HK", "wuu", "上海话", "Hokkien"]
)
def test_a_part_of_chinese_is_chinese_to_a_model_that_does_not_know_it_by_itself(text: str) -> None:
    assert choose_language(text, ["zh", "en", "ja"]) == "zh"
    with pytest.raises(ValueError, match="the model does not know"):
        choose_language(text, ["en"])


def test_a_model_that_knows_cantonese_is_asked_for_it() -> None:
    assert choose_language("Cantonese", ["zh", "yue"]) == "yue"
    assert choose_language("nynorsk", ["no", "nn"]) == "nn"
    assert choose_language("nynorsk", ["no"]) == "no"
    assert choose_language("Chinese", ["yue", "zh"]) == "zh"


def test_a_language_that_the_model_does_not_speak() -> None:
    with pytest.raises(ValueError, match="does not know french; it knows en, zh, or auto"):
        choose_language("fr-CA", ["en", "zh"])
