"""vLLM's figures, read from a real engine."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from audio.span import Span
from engine.fun_asr_nano.recognizer import FunAsrNanoRecognizer
from engine.native.engine_stats import EngineStats
from engine.recognition import DecodingOptions, Recognition
from engine.stage import Counting, Gauging, Output

_TOTALS = ("vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:num_preemptions_total")


def _noise(seconds: float) -> Any:
    return np.random.default_rng(1).normal(0.0, 0.1, round(16_000 * seconds)).astype(np.float32)


def _request(tokens: int) -> Recognition:
    return Recognition((Span(0.0, 1.0), Span(1.0, 2.0)), DecodingOptions(max_new_tokens=tokens))


def _since(recognizer: FunAsrNanoRecognizer, before: dict[str, float]) -> list[float]:
    return [recognizer.counters[name] - before[name] for name in _TOTALS]


def test_what_a_call_costs_the_engine(
    loaded: FunAsrNanoRecognizer, run: Callable[[FunAsrNanoRecognizer], list[Output]]
) -> None:
    assert isinstance(loaded, Counting)
    assert isinstance(loaded, Gauging)
    before = dict(loaded.counters)
    loaded.submit(1, _noise(2.0), _request(6))
    most = dict.fromkeys(loaded.gauges, 0.0)
    while loaded.busy:
        loaded.step()
        most = {name: max(value, loaded.gauges[name]) for name, value in most.items()}
    prompt, generated, preempted = _since(loaded, before)
    assert prompt > 2 * 10  # a turn's frame around three embeddings of sound
    assert 2 <= generated <= 2 * 6
    assert preempted == 0
    assert most["vllm:num_requests_running"] == 2
    assert 0 < most["vllm:kv_cache_usage_perc"] < 1
    assert not any(loaded.gauges.values())


def test_a_cancelled_call_leaves_nothing_in_the_engine(loaded: FunAsrNanoRecognizer) -> None:
    before = dict(loaded.counters)
    loaded.submit(1, _noise(2.0), _request(200))
    while not loaded.gauges["vllm:num_requests_running"]:
        loaded.step()
    loaded.cancel(1)
    assert not any(loaded.gauges.values())
    assert _since(loaded, before)[0] > 0


def test_an_engine_that_is_built_otherwise_tells_nothing() -> None:
    stats = EngineStats(SimpleNamespace(engine_core=SimpleNamespace()))
    assert stats.counters == {}
    assert stats.gauges == {}


def test_preemptions_are_counted_and_still_happen() -> None:
    preempted: list[tuple[Any, ...]] = []
    scheduler = SimpleNamespace(_preempt_request=lambda *arguments: preempted.append(arguments))
    stats = EngineStats(SimpleNamespace(engine_core=SimpleNamespace(engine_core=SimpleNamespace(scheduler=scheduler))))
    scheduler._preempt_request("request", 1.0)
    assert preempted == [("request", 1.0)]
    assert stats.counters == {"vllm:num_preemptions_total": pytest.approx(1.0)}
