from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

REQUESTS = [
    ("GET", "/v1/models"),
    ("GET", "/v1/models/whisper-1"),
    ("POST", "/asr"),
    ("POST", "/v1/audio/transcriptions"),
]


@pytest.fixture
def loading(new_device: Any) -> Any:
    device = new_device()
    device.loaded.clear()
    return device


async def test_from_start_to_ready(build: Any, loading: Any) -> None:
    async with build(loading, model="whisper-base", device="cpu") as house:
        started = time.perf_counter()
        answer = await house.client.get("/health")
        assert time.perf_counter() - started < 0.05
        assert answer.status_code == 200
        assert answer.json() == {"status": "starting", "model": "whisper-base", "device": "cpu"}
        for method, path in REQUESTS:
            refused = await house.client.request(method, path)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "model_loading"
            assert int(refused.headers["retry-after"]) > 0
        loading.loaded.set()
        await asyncio.sleep(0.01)
        assert (await house.client.get("/health")).json()["status"] == "ok"
        assert (await house.client.post("/asr", files=house.recording())).status_code == 200
    assert house.device.closed
    assert house.decoder.closed


async def test_loading_fails(build: Any, new_device: Any) -> None:
    async with build(new_device(failure="no space left on the device")) as house:
        answer = await house.client.get("/health")
        assert answer.status_code == 503
        assert answer.json()["status"] == "failed"
        assert answer.json()["reason"] == "no space left on the device"
        for method, path in REQUESTS:
            refused = await house.client.request(method, path)
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "engine_unavailable"
            assert "retry-after" in refused.headers


async def test_loading_takes_too_long(build: Any, loading: Any) -> None:
    async with build(loading, startup_grace_seconds=0.01) as house:
        await asyncio.sleep(0.05)
        assert (await house.client.get("/health")).json()["reason"] == "the model did not load within 0.01 s"


async def test_the_device_dies_later(house: Any) -> None:
    assert (await house.client.get("/health")).json()["status"] == "ok"
    house.device.failure = "killed"
    answer = await house.client.get("/health")
    assert (answer.status_code, answer.json()["status"], answer.json()["reason"]) == (503, "failed", "killed")


async def test_while_requests_run(house: Any) -> None:
    house.device.running.clear()
    request = asyncio.create_task(house.client.post("/asr", files=house.recording()))
    await house.device.entered.acquire()
    answer = await house.client.get("/health")
    assert (answer.json()["status"], answer.json()["model"]) == ("ok", "whisper-base")
    house.device.running.set()
    assert (await request).status_code == 200


async def test_documentation(house: Any) -> None:
    assert (await house.client.get("/docs")).status_code == 200
    schema = (await house.client.get("/openapi.json")).json()
    for door in ("/asr", "/v1/audio/transcriptions"):
        form = schema["paths"][door]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
        assert form["required"] == ["file"]
        assert {"file", "language", "hotwords", "spk"} <= set(form["properties"])
