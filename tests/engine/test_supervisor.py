from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import AsyncIterator

import numpy as np
import pytest

from audio.shared import SharedWaveform
from engine.client import DeviceProcess, DeviceThread
from engine.device import DeviceGone
from engine.supervisor import RestartPolicy, SupervisedDevice
from tests.fakes import EchoStage, broken_stage

QUICK = RestartPolicy(restarts=2, backoff_seconds=0.05, hang_seconds=0.5)


@pytest.fixture
async def device() -> AsyncIterator[SupervisedDevice]:
    device = SupervisedDevice(lambda: DeviceProcess({"echo": EchoStage}), QUICK)
    await device.ready()
    yield device
    await device.close()


async def ask(device: SupervisedDevice, request: object) -> list[object]:
    with SharedWaveform.of(np.ones(8, np.float32)) as waveform:
        return [output async for output in device.call("echo", waveform, request)]


async def test_a_dead_device_is_started_again(device: SupervisedDevice) -> None:
    """E11: calls end at once, and the next device serves."""
    slow = asyncio.create_task(ask(device, "slow"))
    await asyncio.sleep(0.05)
    first = device.pid
    assert first
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(2):
        with pytest.raises(DeviceGone, match="-9"):
            await slow
    assert not device.health.alive
    assert device.facts["echo"]["parts"] == 3
    assert "-9" in str(device.health.failure)
    with pytest.raises(DeviceGone):
        await ask(device, "hello")
    async with asyncio.timeout(20):
        await device.ready()
    assert device.pid != first
    assert await ask(device, "hello") == [("hello", 8.0)] * 3
    assert (device.health.restarts, device.health.final, device.health.failure) == (1, False, None)


async def test_it_gives_up_after_too_many_deaths(device: SupervisedDevice) -> None:
    for _ in range(QUICK.restarts):
        with pytest.raises(DeviceGone, match="exit code 7"):
            await ask(device, "die")
        await device.ready()
    with pytest.raises(DeviceGone, match="exit code 7"):
        await ask(device, "die")
    async with asyncio.timeout(5):
        with pytest.raises(DeviceGone, match="exit code 7"):
            await device.ready()
    assert device.health.final
    assert not device.health.alive


async def test_deaths_of_long_ago_do_not_count() -> None:
    policy = RestartPolicy(restarts=1, window_seconds=0.1, backoff_seconds=0.15)
    device = SupervisedDevice(lambda: DeviceThread({"echo": EchoStage}), policy)
    await device.ready()
    for _ in range(3):
        with pytest.raises(DeviceGone):
            await ask(device, "break")
        await device.ready()
    assert device.health.restarts == 3
    await device.close()


async def test_loading_that_fails_is_tried_again() -> None:
    made: list[str] = []

    def make() -> DeviceThread:
        made.append("")
        return DeviceThread({"echo": EchoStage if len(made) == 2 else broken_stage})

    device = SupervisedDevice(make, QUICK)
    await device.ready()
    assert len(made) == 2
    await device.close()


async def test_loading_that_always_fails() -> None:
    device = SupervisedDevice(functools.partial(DeviceThread, {"echo": broken_stage}), QUICK)
    with pytest.raises(DeviceGone, match="no weights"):
        await device.ready()
    assert device.health.final
    await device.close()


async def test_a_hung_device_is_killed(device: SupervisedDevice, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.client._HEARTBEAT_TIMEOUT_SECONDS", 1.2)
    first = device.pid
    assert first
    slow = asyncio.create_task(ask(device, "slow"))
    await asyncio.sleep(0.05)
    os.kill(first, signal.SIGSTOP)
    async with asyncio.timeout(10):
        with pytest.raises(DeviceGone):
            await slow
        await device.ready()
    assert device.pid != first


def test_the_pause_doubles() -> None:
    policy = RestartPolicy()
    assert [policy.backoff(deaths) for deaths in (1, 2, 3, 9)] == [1, 2, 4, 30]


async def test_close_before_start() -> None:
    device = SupervisedDevice(lambda: DeviceThread({"echo": EchoStage}))
    await device.close()
    with pytest.raises(DeviceGone):
        await device.ready()


async def test_the_load_of_each_stage_is_known(device: SupervisedDevice) -> None:
    await ask(device, "hello")
    slow = asyncio.create_task(ask(device, "slow"))
    await asyncio.sleep(1.3)
    load = device.health.stages["echo"]
    assert load.calls == 1
    assert load.busy_seconds > 0.5
    slow.cancel()
    await asyncio.gather(slow, return_exceptions=True)
