"""The bytes behind the tokens of byte-level vocabularies, those of Whisper and Qwen among them."""

from __future__ import annotations

from engine.recognition import TokenLogprob


class ByteTable:
    """The bytes behind the printable characters by which byte-level vocabularies (GPT-2's scheme) write them.

    Bytes that are printable in Latin-1 stand for themselves, the others for U+0100 and onwards in order.
    """

    def __init__(self) -> None:
        plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
        hidden = (byte for byte in range(256) if byte not in plain)
        self._bytes = {chr(byte): byte for byte in plain}
        self._bytes |= {chr(0x100 + number): byte for number, byte in enumerate(hidden)}

    def of(self, piece: str) -> bytes:
        return bytes(self._bytes[character] for character in piece)


def token_logprob(content: bytes, logprob: float) -> TokenLogprob:
    """A token of the text by its bytes; half a character is written U+FFFD."""
    return TokenLogprob(content.decode("utf-8", "replace"), content, logprob)
