"""`/metrics`, read as Prometheus reads it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from app.metrics import Metrics
from app.record import Record, Stay, recording, stage
from engine.device import DeviceHealth
from engine.stage import StageLoad
from engine.tally import Tally


def _tallied() -> StageLoad:
    tally = Tally()
    for clips in (1, 3, 4, 500):
        tally.encoded(clips, 0.25)
    counters = {**tally.counters, "vllm:prompt_tokens_total": 40.0, "vllm:num_preemptions_total": 0.0}
    gauges = {"waiting_clips": 5, "vllm:num_requests_running": 3, "vllm:kv_cache_usage_perc": 0.25}
    return StageLoad(1.5, 2, counters, gauges)


@dataclass(frozen=True)
class Momentary:
    ready: bool = True
    model: str | None = "some-model"
    device: DeviceHealth = field(
        default_factory=lambda: DeviceHealth(True, stages={"recognizer": _tallied(), "vad": StageLoad()})
    )
    gauges: dict[str, tuple[str, float]] = field(default_factory=lambda: {"tasks": ("Tasks", 7)})


def _families(metrics: Metrics) -> dict[str, Metric]:
    found = list(text_string_to_metric_families(metrics.text().decode()))
    assert len({family.name for family in found}) == len(found), "a family stands twice"
    assert all(family.documentation and family.type != "unknown" for family in found)
    return {family.name: family for family in found}


def _samples(family: Metric) -> dict[tuple[Any, ...], float]:
    """By name and values of the labels, those in the order of their names."""
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value for sample in family.samples
    }


def test_vllm_is_read_under_its_own_names() -> None:
    families = _families(Metrics(Momentary()))
    kinds = {name: family.type for name, family in families.items() if name.startswith("vllm:")}
    assert kinds == {
        "vllm:prompt_tokens": "counter",
        "vllm:num_preemptions": "counter",
        "vllm:num_requests_running": "gauge",
        "vllm:kv_cache_usage_perc": "gauge",
    }
    (sample,) = families["vllm:prompt_tokens"].samples
    assert (sample.name, sample.value) == ("vllm:prompt_tokens_total", 40)
    assert sample.labels == {"model_name": "some-model", "engine": "0"}


def test_without_a_model_there_is_no_engine() -> None:
    families = _families(Metrics(replace(Momentary(), model=None, device=DeviceHealth(False))))
    assert not [name for name in families if name.startswith("vllm:")]


def test_what_stages_count_and_show() -> None:
    families = _families(Metrics(Momentary()))
    counts = _samples(families["tinglu_device_counts"])
    assert counts["tinglu_device_counts_total", "encode_seconds", "recognizer"] == 1.0
    assert not [key for key in counts if "vllm" in key[1] or key[1].startswith("encoder_")]
    assert _samples(families["tinglu_device_shows"]) == {("tinglu_device_shows", "waiting_clips", "recognizer"): 5}
    assert _samples(families["tinglu_device_calls"])["tinglu_device_calls", "recognizer"] == 2
    assert _samples(families["tinglu_tasks"]) == {("tinglu_tasks",): 7}


def test_batch_sizes_are_a_histogram() -> None:
    samples = _samples(_families(Metrics(Momentary()))["tinglu_encoder_batch_size"])
    bucket = "tinglu_encoder_batch_size_bucket"
    below = {key[1]: value for key, value in samples.items() if key[0] == bucket}
    assert (below["1.0"], below["2.0"], below["4.0"], below["128.0"], below["+Inf"]) == (1, 1, 3, 3, 4)
    assert samples["tinglu_encoder_batch_size_sum", "recognizer"] == 508
    assert samples["tinglu_encoder_batch_size_count", "recognizer"] == 4


def test_refused_and_cancelled_requests() -> None:
    metrics = Metrics(Momentary())
    metrics.observe(Record("1", "POST", route="/asr", code="server_busy"), 429)
    metrics.observe(Record("2", "POST", route="/asr", cancelled=True), 499)
    families = _families(metrics)
    assert _samples(families["tinglu_rejected"])["tinglu_rejected_total", "server_busy"] == 1
    assert _samples(families["tinglu_cancelled"])[("tinglu_cancelled_total",)] == 1
    assert _samples(families["tinglu_requests"])["tinglu_requests_total", "/asr", "429"] == 1


async def test_a_real_app_is_readable(house: Any) -> None:
    await house.client.post("/asr", files=house.recording(1, 2))
    text = (await house.client.get("/metrics")).text
    families = {family.name: family for family in text_string_to_metric_families(text)}
    stages = {sample.labels["stage"] for sample in families["tinglu_stage_seconds"].samples}
    assert {"vad", "recognise"} <= stages
    assert families["tinglu_tasks"].samples[0].value >= 1


def test_where_requests_are() -> None:
    metrics, record = Metrics(Momentary()), Record("1", "POST")

    def shown() -> dict[str, float]:
        samples = _families(metrics)["tinglu_stage_requests"].samples
        return {sample.labels["stage"]: sample.value for sample in samples if sample.value}

    with recording(record), metrics.watching(record):
        assert shown() == {}
        with stage("queue"):
            assert shown() == {"queue": 1}
        with stage("recognise"), stage("speakers"):
            assert shown() == {"recognise": 1, "speakers": 1}
    assert shown() == {}


def test_what_is_done_at_a_time_counts_once() -> None:
    second = 1_000_000_000
    works = [("decode", 0, 1.0), ("recognise", 2, 3.0), ("speakers", 3, 1.0), ("speakers", 4, 2.0), ("queue", 9, 5.0)]
    record = Record("1", "POST", stays=[Stay(name, begin * second, seconds) for name, begin, seconds in works])
    assert record.processing_seconds == pytest.approx(1 + 4)
    assert record.queue_seconds == 5
