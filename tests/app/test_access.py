"""What surrounds every request: ids, log lines, headers, metrics."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from typing import Any

import pytest

from engine.logs import JsonFormatter


@pytest.fixture
def access_log(caplog: pytest.LogCaptureFixture) -> Any:
    """The access lines so far, parsed as JSON."""
    caplog.set_level(logging.INFO)

    def lines() -> list[dict[str, Any]]:
        records = [record for record in caplog.records if record.name == "tinglu.access"]
        return [json.loads(JsonFormatter().format(record)) for record in records]

    return lines


def metric(text: str, name: str) -> float:
    """The value of a line such as `name{label="x"}`."""
    (line,) = [line for line in text.splitlines() if line.startswith(f"{name} ")]
    return float(line.rpartition(" ")[2])


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        (None, False),
        ("abc-1.2_3:4", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("a b", False),
        ('a"b', False),
        ("", False),
        ("ü", False),
    ],
)
async def test_request_ids(house: Any, access_log: Any, given: str | None, kept: bool) -> None:
    headers = {} if given is None else {"x-request-id": given.encode()}
    answer = await house.client.post("/asr", files=house.recording(), headers=headers)
    own = answer.headers["x-request-id"]
    assert own == given if kept else re.fullmatch("[0-9a-f]{32}", own)
    assert access_log()[-1]["request_id"] == own


@pytest.mark.parametrize("path", ["/nowhere", "/asr", "/v1/models", "/health", "/v1/models/none"])
async def test_every_answer_has_an_id_and_headers_for_browsers(house: Any, path: str) -> None:
    answer = await house.client.get(path)
    assert answer.headers["x-request-id"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["cache-control"] == "no-store"
    assert "default-src 'none'" in answer.headers["content-security-policy"]


async def test_the_documentation_may_load_its_scripts(house: Any) -> None:
    answer = await house.client.get("/docs")
    assert "default-src 'none'" not in answer.headers["content-security-policy"]


async def test_a_line_a_request(house: Any, access_log: Any) -> None:
    await house.client.post("/asr?secret=1", files={"file": ("my secret.wav", house.recording(1, 3)["file"][1])})
    (line,) = access_log()
    assert (line["method"], line["path"], line["status"], line["level"]) == ("POST", "/asr", 200, "info")
    assert line["audio_seconds"] == 3
    assert line["total_seconds"] >= line["processing_seconds"] >= 0
    assert "secret" not in json.dumps(line)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["time"])


async def test_refusals_say_why_in_the_log(house: Any, access_log: Any) -> None:
    await house.client.post("/asr", files={"file": b""})
    await house.client.get("/a%0Ab%22/" + "x" * 500)
    empty, unknown = access_log()
    assert (empty["status"], empty["code"]) == (400, "empty_file")
    assert unknown["path"].startswith("/a%0Ab%22/xx")
    assert len(unknown["path"]) == 200


async def test_questions_after_health_are_quiet(house: Any, access_log: Any) -> None:
    for path in ("/health", "/health/live", "/health/ready", "/metrics"):
        await house.client.get(path)
    assert access_log() == []


async def test_a_fault_of_ours_is_logged_with_the_id_and_without_a_traceback_for_the_client(
    house: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E14."""
    monkeypatch.setattr(type(house.app.state.services), "capabilities", property(lambda _: 1 / 0))
    answer = await house.client.post("/asr", files=house.recording())
    assert answer.status_code == 500
    assert "ZeroDivisionError" not in answer.text
    (fault,) = [record for record in caplog.records if record.levelno == logging.ERROR]
    assert fault.request_id == answer.headers["x-request-id"]  # type: ignore[attr-defined]
    assert "ZeroDivisionError" in JsonFormatter().format(fault)


async def test_json_is_one_line_whatever_is_logged() -> None:
    record = logging.makeLogRecord({"name": "x", "msg": "a\nb %s", "args": (object(),), "levelno": 20, "file": {1}})
    (line,) = JsonFormatter().format(record).splitlines()
    assert json.loads(line)["message"].startswith("a\nb")


async def test_metrics_count_what_happens(house: Any) -> None:
    await house.client.post("/asr", files=house.recording(1, 3))
    await house.client.post("/asr", files={"file": b""})
    await house.client.get("/random/path")
    answer = await house.client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain")
    text = answer.text
    assert metric(text, 'tinglu_requests_total{route="/asr",status="200"}') == 1
    assert metric(text, 'tinglu_requests_total{route="/asr",status="400"}') == 1
    assert metric(text, 'tinglu_requests_total{route="unknown",status="404"}') == 1
    assert metric(text, "tinglu_audio_seconds_total") == 3
    assert metric(text, 'tinglu_rejected_total{reason="empty_file"}') == 1
    assert metric(text, "tinglu_request_rtfx_count") == 1
    assert metric(text, 'tinglu_stage_seconds_count{stage="recognise"}') == 1
    assert metric(text, 'tinglu_stage_seconds_count{stage="vad"}') == 1
    assert metric(text, "tinglu_ready") == 1
    assert metric(text, "tinglu_requests_in_flight") == 0


async def test_metrics_know_what_is_under_way(house: Any) -> None:
    house.device.running.clear()
    request = asyncio.create_task(house.client.post("/asr", files=house.recording(1, 3)))
    await house.device.entered.acquire()
    text = (await house.client.get("/metrics")).text
    assert metric(text, "tinglu_requests_in_flight") == 1
    assert metric(text, "tinglu_waiting_audio_seconds") == 3
    request.cancel()
    await asyncio.gather(request, return_exceptions=True)


async def test_readiness_and_liveness(build: Any, new_device: Any) -> None:
    device = new_device()
    device.loaded.clear()
    async with build(device) as house:
        assert (await house.client.get("/health/live")).status_code == 200
        assert (await house.client.get("/health/ready")).status_code == 503
        device.loaded.set()
        await asyncio.sleep(0.01)
        assert (await house.client.get("/health/ready")).status_code == 200
        device.failure = "killed"
        ready = await house.client.get("/health/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "killed")
        assert (await house.client.get("/health/live")).status_code == 200
        assert metric((await house.client.get("/metrics")).text, "tinglu_ready") == 0


async def test_who_comes_while_the_server_ends(house: Any) -> None:
    """E25."""
    house.app.state.services.readiness.stop()
    answer = await house.client.post("/asr", files=house.recording())
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert int(answer.headers["retry-after"]) > 0
    health = await house.client.get("/health")
    assert (health.status_code, health.json()["status"]) == (200, "stopping")
    assert (await house.client.get("/health/ready")).status_code == 503


async def test_a_request_that_the_end_of_the_server_cuts_off(house: Any) -> None:
    house.device.running.clear()
    request = asyncio.create_task(house.client.post("/asr", files=house.recording()))
    await house.device.entered.acquire()
    request.cancel()
    answer = await request
    assert (answer.status_code, answer.json()["error"]["code"]) == (503, "shutting_down")
    assert house.device.under_way == 0
