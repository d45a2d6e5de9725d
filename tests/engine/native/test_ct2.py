from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from engine.native.ct2 import BrokenModelFile, parse_ct2


def test_reads_what_was_written(pack_ct2: Callable[..., bytes]) -> None:
    weight = np.arange(6, dtype=np.float16).reshape(2, 3)
    model = parse_ct2(pack_ct2({"a/weight": weight, "heads": np.array(8, np.int16)}))
    assert (model.specification, model.revision) == ("WhisperSpec", 3)
    np.testing.assert_array_equal(model.variables["a/weight"], weight)
    assert model.variables["a/weight"].dtype == np.float16
    assert int(model.variables["heads"]) == 8
    assert model.aliases == {"decoder/projection/weight": "decoder/embeddings/weight"}


def test_every_truncation_is_noticed(pack_ct2: Callable[..., bytes]) -> None:
    data = pack_ct2({"w": np.ones((2, 2), np.float32)})
    for length in range(len(data)):
        with pytest.raises(BrokenModelFile):
            parse_ct2(data[:length])
    with pytest.raises(BrokenModelFile, match="goes on"):
        parse_ct2(data + b"\0")


def test_other_files_are_refused() -> None:
    with pytest.raises(BrokenModelFile, match="format version"):
        parse_ct2(b"PK\x03\x04" * 100)
