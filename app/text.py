"""How pieces of text become one."""

from __future__ import annotations

from collections.abc import Iterable

_NO_SPACE_BETWEEN = (
    (0x2E80, 0x303F),  # CJK radicals, symbols and punctuation
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x312F),  # Bopomofo
    (0x31F0, 0x31FF),  # Katakana extensions
    (0x3400, 0x4DBF),  # CJK extension A
    (0x4E00, 0x9FFF),  # CJK unified ideographs
    (0xF900, 0xFAFF),  # CJK compatibility ideographs
    (0xFF00, 0xFF65),  # full-width forms
    (0xFF66, 0xFF9F),  # half-width Katakana
    (0x0E00, 0x0E7F),  # Thai
    (0x0E80, 0x0EFF),  # Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1780, 0x17FF),  # Khmer
    (0x20000, 0x3FFFF),  # CJK extensions B and later
)


def is_unspaced(character: str) -> bool:
    """Whether the character belongs to a script, or its punctuation, that is written without spaces between words."""
    code = ord(character)
    return any(first <= code <= last for first, last in _NO_SPACE_BETWEEN)


def join_texts(texts: Iterable[str]) -> str:
    """Texts of consecutive segments as one: a space between them, none where two unspaced scripts meet."""
    joined = ""
    for text in texts:
        joined += continuation(joined, text)
    return joined


def continuation(before: str, text: str) -> str:
    """What `text` adds to a joined text that ends as `before` does: itself, after a space where one belongs."""
    before, text = before.rstrip(), text.strip()
    if not text or not before:
        return text
    return text if is_unspaced(before[-1]) and is_unspaced(text[0]) else f" {text}"
