from __future__ import annotations

import pytest

from app.text import join_texts


@pytest.mark.field("C8")
@pytest.mark.parametrize(
    ("texts", "joined"),
    [
        (["你好。", "世界"], "你好。世界"),
        (["Hello", "world."], "Hello world."),
        (["用 Python 写", "代码"], "用 Python 写代码"),
        (["用", "Python", "写"], "用 Python 写"),
        (["안녕", "하세요"], "안녕 하세요"),
        (["こんにちは", "世界"], "こんにちは世界"),
        ([" a ", "", "  ", "b"], "a b"),
        ([], ""),
    ],
)
def test_a_space_where_one_belongs(texts: list[str], joined: str) -> None:
    """C8."""
    assert join_texts(texts) == joined
