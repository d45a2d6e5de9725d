from __future__ import annotations

import random

import pytest

from engine.words import TimedPiece, merge_pieces


def pieces(*texts: str | bytes, unmeasured: str = "") -> list[TimedPiece]:
    """Pieces a second apart and half a second long."""
    return [
        TimedPiece(
            text if isinstance(text, bytes) else text.encode(),
            float(index),
            index + 0.5,
            not (isinstance(text, str) and text and text in unmeasured),
        )
        for index, text in enumerate(texts)
    ]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["你", "好", "。", "再", "见"], ["你", "好。", "再", "见"]),
        (["And", " so", ",", " my", " fel", "low", "."], ["And", " so,", " my", " fellow."]),
        (["用", " Py", "thon", " ", "写", "，", "OK"], ["用", " Python", " 写，", "OK"]),
        (["他", "说", "“", "你", "好", "”", "。"], ["他", "说", "“你", "好”。"]),
        (["don", "'t", " e", ".", "g", ".", " well", "-", "known"], ["don't", " e.g.", " well-known"]),
        (["hello", " —", " world"], ["hello —", " world"]),
        (["a", " <", " b", " &", " c"], ["a", " <", " b", " &", " c"]),
        (["[", "2", "]", "号"], ["[2]", "号"]),
        ([' "', "Hi", '"', " she"], [' "Hi"', " she"]),
        (["涨", "了", "5", "%", "。"], ["涨", "了", "5%。"]),
        (["3", ",", "000", ".", "5", ",", "x"], ["3,000.5,", "x"]),
        (["Hello", ",", "world"], ["Hello,", "world"]),
        (["。", "你"], ["。你"]),
        (["안녕", "하세요", " 여러분"], ["안녕하세요", " 여러분"]),
        (["こ", "ん", "に", "ち", "は"], ["こ", "ん", "に", "ち", "は"]),
        (["שלום", " עולם"], ["שלום", " עולם"]),
        (["e\u0301", "te", " 👨\u200d👩\u200d👧"], ["e\u0301te", " 👨\u200d👩\u200d👧"]),
        (["好", " "], ["好 "]),
        (["¿", "Qué", "?", " ", "¡", "Sí", "!"], ["¿Qué?", " ¡Sí!"]),
    ],
)
def test_where_words_begin_and_end(given: list[str], expected: list[str]) -> None:
    words = merge_pieces(pieces(*given))
    assert [word.text for word in words] == expected


def test_bytes_of_one_character_become_one_word() -> None:
    data = "你好".encode()
    words = merge_pieces(pieces(data[:1], data[1:4], data[4:]))
    assert [(word.text, word.start, word.end) for word in words] == [("你", 0.0, 1.5), ("好", 1.5, 2.5)]


def test_broken_bytes_read_as_python_reads_them() -> None:
    random.seed(0)
    for _ in range(300):
        data = bytes(random.choice(b"\xe4\xbd\xa0a \xff\xc3\xf0\x9f\x98\x80\x80") for _ in range(12))
        cut = sorted(random.sample(range(13), 3))
        parts = [data[a:b] for a, b in zip([0, *cut], [*cut, 12], strict=True)]
        assert "".join(word.text for word in merge_pieces(pieces(*parts))) == data.decode(errors="replace")


@pytest.mark.field("C4")
def test_punctuation_has_no_width() -> None:
    first, second = merge_pieces(pieces("好", "。", "再"))
    assert (first.text, first.start, first.end) == ("好。", 0.0, 0.5)
    assert (second.start, second.end) == (2.0, 2.5)


def test_a_piece_of_several_characters_is_divided() -> None:
    words = merge_pieces([TimedPiece("我们".encode(), 1.0, 2.0), TimedPiece(b" hi", 2.0, 3.0)])
    assert [(word.text, word.start, word.end) for word in words] == [
        ("我", 1.0, 1.5),
        ("们", 1.5, 2.0),
        (" hi", 2.0, 3.0),
    ]


@pytest.mark.field("C3")
def test_unmeasured_words_share_the_gap() -> None:
    words = merge_pieces(pieces("有", "20", " 0", "个", unmeasured="20 0"))
    assert [(word.text, word.start, word.end, word.interpolated) for word in words] == [
        ("有", 0.0, 0.5, False),
        ("20", 0.5, pytest.approx(0.5 + 2.5 * 2 / 3), True),
        (" 0", pytest.approx(0.5 + 2.5 * 2 / 3), 3.0, True),
        ("个", 3.0, 3.5, False),
    ]


def test_unmeasured_words_at_the_edges_keep_their_own_outer_time() -> None:
    first, second = merge_pieces(pieces("20", "个", unmeasured="20"))
    assert (first.start, first.end, second.start) == (0.0, 1.0, 1.0)
    last = merge_pieces(pieces("个", "20", unmeasured="20"))[-1]
    assert (last.start, last.end, last.interpolated) == (0.5, 1.5, True)


def test_nothing_and_nothing_but_punctuation() -> None:
    assert merge_pieces([]) == []
    assert merge_pieces([TimedPiece(b"", 0.0, 1.0)]) == []
    (only,) = merge_pieces(pieces("。", " ", "…"))
    assert (only.text, only.start, only.end, only.interpolated) == ("。 …", 0.0, 0.0, True)


def test_times_that_run_backwards_are_straightened() -> None:
    words = merge_pieces([TimedPiece(b"a", 2.0, 3.0), TimedPiece(b" b", 1.0, 1.5), TimedPiece(b" c", 2.5, 4.0)])
    assert [(word.start, word.end) for word in words] == [(2.0, 3.0), (3.0, 3.0), (3.0, 4.0)]
