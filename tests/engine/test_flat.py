from __future__ import annotations

import pickle

import pytest

from engine.protocol import Outputs
from engine.recognition import DecodingOptions, Hypothesis, TokenLogprob, Word
from engine.stage import Output

HYPOTHESIS = Hypothesis(
    2,
    "one, 二",
    (Word("one,", 0.0, 0.4), Word(" 二", 0.5, 0.9, interpolated=True)),
    language="zh",
    finish_reason="length",
    logprobs=(TokenLogprob("one", b"one", -0.1),),
    warnings=("cut",),
)


@pytest.mark.parametrize("value", [HYPOTHESIS, DecodingOptions(hotwords=("a", "b")), Outputs((Output(7, HYPOTHESIS),))])
def test_what_travels_arrives_as_it_was(value: object) -> None:
    assert pickle.loads(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)) == value


def test_an_error_arrives_with_its_message() -> None:
    arrived = pickle.loads(pickle.dumps(Output(7, error=ValueError("refused"))))
    assert (arrived.call_id, str(arrived.error)) == (7, "refused")
