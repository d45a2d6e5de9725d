from __future__ import annotations

import pytest

from engine.repetition import compression_ratio, cut_loops, find_loop

SPOKEN = [
    "",
    "好好好好好",
    "哈" * 20,
    "no, no, no, no, no, no, no, no, no, no",
    "我们一起唱，" * 4 + "再见。",
    "Row, row, row your boat gently down the stream. " * 4,
    "8" * 40,
    "0 1 " * 20,
    "The number is 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5 5.",
    "a, b; c: d. " * 2,
]


@pytest.mark.field("B6")
@pytest.mark.parametrize("text", SPOKEN)
def test_real_repeats_are_kept(text: str) -> None:
    assert find_loop(text) is None
    assert cut_loops(text) == text


@pytest.mark.field("B3")
@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("前面的话。" + "谢谢观看，" * 100 + "后面的话。", "前面的话。谢谢观看，后面的话。"),
        ("Thank you. " * 30 + "Goodbye.", "Thank you. Goodbye."),
        ("好" * 100, "好"),
        ("the cat " * 50 + "the dog " * 50, "the cat the dog "),
        ("Thank you! thank you, THANK YOU " * 20 + "end", "Thank you end"),
    ],
)
def test_one_copy_and_the_tail_stay(text: str, kept: str) -> None:
    assert find_loop(text) is not None
    assert cut_loops(text) == kept


def test_a_text_cut_off_while_repeating_is_a_loop_with_fewer_copies() -> None:
    text = "他说" + "我们明天再来看看，" * 5 + "我们明天"
    assert cut_loops(text) == text
    assert cut_loops(text, truncated=True) == "他说我们明天再来看看"
    refrain = "我们一起唱歌，" * 5 + "然后他就走了"
    assert cut_loops(refrain, truncated=True) == refrain


def test_digits_count_when_the_text_was_cut_off() -> None:
    assert cut_loops("call " + "5 " * 100, truncated=True) == "call 5"


def test_long_units_and_long_texts() -> None:
    sentence = " ".join(f"word{i}" for i in range(40)) + ". "
    assert cut_loops("start " + sentence * 6 + "stop") == "start " + sentence + "stop"
    assert cut_loops(" ".join(f"w{i}" for i in range(5000)))


def test_compression_ratio() -> None:
    assert compression_ratio("") < 1
    assert compression_ratio("a b c " * 100) > 2.4
    assert compression_ratio("A short ordinary sentence.") < 1.5
