"""The whole model in plain torch against the reference: 4 recordings x 5 prompts, every token."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine.fun_asr_nano.acoustic import AcousticModel
from engine.fun_asr_nano.checkpoint import Checkpoint
from engine.fun_asr_nano.embedder import PromptEmbedder
from engine.fun_asr_nano.languages import NANO, LanguageTable
from engine.fun_asr_nano.prompt import NanoTokenizer, PromptBuilder
from engine.fun_asr_nano.reference import GreedyDecoder


@pytest.fixture(scope="module")
def tokenizer(checkpoint: Checkpoint) -> NanoTokenizer:
    return NanoTokenizer(checkpoint.paths.llm / "tokenizer.json", vocabulary=checkpoint.config.llm.vocabulary)


@pytest.fixture(scope="module")
def decoder(checkpoint: Checkpoint) -> GreedyDecoder:
    return GreedyDecoder(checkpoint)


@pytest.fixture(scope="module")
def embedder(checkpoint: Checkpoint) -> PromptEmbedder:
    return PromptEmbedder(checkpoint.embeddings())


@pytest.mark.parametrize("name", ["nano-0.5s", "nano-3.1s", "jfk", "nano-29.7s"])
def test_golden_ids_and_text(
    checkpoint: Checkpoint,
    tokenizer: NanoTokenizer,
    decoder: GreedyDecoder,
    embedder: PromptEmbedder,
    golden: Mapping[str, Any],
    arrays: Mapping[str, NDArray[np.float32]],
    name: str,
) -> None:
    builder = PromptBuilder(tokenizer, LanguageTable(NANO), max_tokens=1000)
    (heard,) = AcousticModel.load(checkpoint, max_rows=500).hear([torch.from_numpy(arrays[f"{name}/lfr"])], ctc=False)
    assert heard.ctc is None
    for prompt, expected in golden["inputs"][name]["decode"].items():
        embedded = embedder(builder.build(**golden["prompts"][prompt]["options"]), heard.embeddings)
        decoded = decoder.decode(embedded, max_new_tokens=golden["max_new_tokens"], stop_ids=tokenizer.stop_ids)
        assert list(decoded.ids) == expected["ids"], prompt
        assert decoded.finish_reason == "length"
        # The reference collapses white space and nothing else; that is not how the product cleans.
        assert re.sub(r"\s+", " ", tokenizer.decode(decoded.ids).replace("/sil", " ")) == expected["text"], prompt


def test_a_stop_id_ends_it(decoder: GreedyDecoder) -> None:
    prompt = torch.randn(5, 64)
    ids = decoder.decode(prompt, max_new_tokens=4, stop_ids=()).ids
    stopped = decoder.decode(prompt, max_new_tokens=4, stop_ids=(ids[2],))
    assert stopped.finish_reason == "stop"
    assert stopped.ids == ids[: ids.index(ids[2])]


@pytest.mark.parametrize("shape", [(3, 32), (0, 64), (64,)])
def test_sound_of_a_wrong_shape_is_refused(
    embedder: PromptEmbedder, tokenizer: NanoTokenizer, shape: tuple[int, ...]
) -> None:
    prompt = PromptBuilder(tokenizer, LanguageTable(NANO), max_tokens=1000).build()
    with pytest.raises(ValueError, match=r"expected \[n, 64\]"):
        embedder(prompt, torch.zeros(shape))
