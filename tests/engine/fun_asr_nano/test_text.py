from __future__ import annotations

import pytest

from engine.fun_asr_nano.text import clean

SAID = [
    "[2]号",
    "a < b > c",
    "“你好”，他说。",
    "「はい」",
    "<b>粗体</b>",
    "the /silver path, a/silk",
    "[音乐]",
    "...and so",
    "0xFFFF and FFFF",
    "x|y",
    "👨\u200d👩\u200d👧 e\u0301",
    "可以吗？<3",
    "patch, endofpatches",
]


@pytest.mark.parametrize("text", SAID)
def test_what_was_said_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("<think>\n\n</think>\n\n你好", "你好"),
        ("<think>let me listen</think>Hello", "Hello"),
        ("<think>Hello", "Hello"),
        ("你好<|im_end|>", "你好"),
        ("<|nospeech|>", ""),
        ("你好/sil再见", "你好 再见"),
        ("好endofpatch", "好"),
        ("好</strong>的", "好 的"),
        ("FFFF", ""),
        ("FFFFFFFF FFFF", ""),
        ("  a \n\t b\u3000c  ", "a b c"),
        ("坏\ufffd\ufffd", "坏"),
        ("a\x00b\x1bc", "abc"),
        ("", ""),
    ],
)
def test_markers_go(text: str, expected: str) -> None:
    assert clean(text) == expected
