#!/usr/bin/env python3
"""Write a Hugging Face tokenizer directory from Qwen's rank table.

It holds tokenizer.json, tokenizer_config.json, vocab.json and merges.txt.

    pip download dashscope --no-deps && unzip -j dashscope-*.whl dashscope/resources/qwen.tiktoken
    python3 make_qwen_tokenizer.py qwen.tiktoken OUT [RANKS]

With all 151 643 ranks the ids are those of Qwen3. RANKS keeps only the first ranks: a small tokenizer that still
encodes any text, falling back to single bytes; the special tokens follow the ranks in the same order.
"""

import base64
import itertools
import json
import pathlib
import sys

SPECIAL = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
ADDED = [
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def printable_bytes() -> dict[int, str]:
    """Byte-level BPE writes printable Latin-1 bytes as themselves and the rest as code points from 256 on."""
    plain = {*range(33, 127), *range(161, 173), *range(174, 256)}
    rest = iter(range(256, 512))
    return {byte: chr(byte) if byte in plain else chr(next(rest)) for byte in range(256)}


def merge_of(token: bytes, rank: int, ranks: dict[bytes, int]) -> tuple[bytes, bytes]:
    """The two pieces a token is merged from: apply every earlier merge, lowest rank first."""
    parts = [bytes([byte]) for byte in token]
    while True:
        pairs = [(ranks.get(a + b, rank), i) for i, (a, b) in enumerate(itertools.pairwise(parts))]
        best, i = min(pairs)
        if best >= rank:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    assert len(parts) == 2, token
    return parts[0], parts[1]


def main(rank_table: str, out: str, limit: int | None = None) -> None:
    lines = (line.split() for line in pathlib.Path(rank_table).read_bytes().splitlines() if line.strip())
    ranks = {base64.b64decode(token): int(rank) for token, rank in lines}
    ranks = {token: rank for token, rank in ranks.items() if limit is None or rank < limit}
    alphabet = printable_bytes()

    def spell(token: bytes) -> str:
        return "".join(alphabet[byte] for byte in token)

    vocab = {spell(token): rank for token, rank in ranks.items()}
    merges = [
        [spell(piece) for piece in merge_of(token, rank, ranks)]
        for token, rank in sorted(ranks.items(), key=lambda item: item[1])
        if len(token) > 1
    ]
    added = [
        {
            "id": len(ranks) + i,
            "content": text,
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": text in SPECIAL,
        }
        for i, text in enumerate(SPECIAL + ADDED)
    ]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    folder = pathlib.Path(out)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(
        json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": added,
                "normalizer": {"type": "NFC"},
                "pre_tokenizer": {
                    "type": "Sequence",
                    "pretokenizers": [
                        {"type": "Split", "pattern": {"Regex": PATTERN}, "behavior": "Isolated", "invert": False},
                        byte_level,
                    ],
                },
                "post_processor": byte_level,
                "decoder": byte_level,
                "model": {
                    "type": "BPE",
                    "dropout": None,
                    "unk_token": None,
                    "continuing_subword_prefix": "",
                    "end_of_word_suffix": "",
                    "fuse_unk": False,
                    "byte_fallback": False,
                    "ignore_merges": False,
                    "vocab": vocab,
                    "merges": merges,
                },
            },
            ensure_ascii=False,
        )
    )
    (folder / "vocab.json").write_text(json.dumps(vocab, ensure_ascii=False))
    (folder / "merges.txt").write_text("#version: 0.2\n" + "".join(" ".join(pair) + "\n" for pair in merges))
    (folder / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "add_bos_token": False,
                "add_prefix_space": False,
                "bos_token": None,
                "added_tokens_decoder": {
                    str(token["id"]): {key: value for key, value in token.items() if key != "id"} for token in added
                },
                "additional_special_tokens": SPECIAL[1:],
                "clean_up_tokenization_spaces": False,
                "eos_token": "<|im_end|>",
                "pad_token": "<|endoftext|>",
                "unk_token": None,
                "errors": "replace",
                "model_max_length": 131072,
                "split_special_tokens": False,
                "tokenizer_class": "Qwen2Tokenizer",
                "chat_template": "{% for m in messages %}<|im_start|>{{m.role}}\n{{m.content}}<|im_end|>\n{% endfor %}",
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else None)
