from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, contextmanager

import numpy as np
import pytest
import uvloop

from audio.shared import SharedWaveform
from engine.client import DeviceClient, DeviceProcess, DeviceThread
from engine.device import DeviceGone
from tests.fakes import EchoStage, broken_stage

KINDS = [DeviceThread, DeviceProcess]


@pytest.fixture(params=KINDS)
async def device(request: pytest.FixtureRequest) -> AsyncIterator[DeviceClient]:
    device = request.param({"echo": EchoStage})
    await device.ready()
    yield device
    await device.close()


@pytest.fixture
async def process() -> AsyncIterator[DeviceProcess]:
    device = DeviceProcess({"echo": EchoStage})
    await device.ready()
    yield device
    await device.close()


def wave(value: float = 1.0, samples: int = 8) -> SharedWaveform:
    return SharedWaveform.of(np.full(samples, value, np.float32))


async def ask(device: DeviceClient, request: object, value: float = 1.0) -> list[object]:
    with wave(value) as waveform:
        return [output async for output in device.call("echo", waveform, request)]


async def test_call_yields_every_output_and_sees_the_waveform(device: DeviceClient) -> None:
    assert await ask(device, "hello", 0.5) == [("hello", 4.0)] * 3


async def test_facts_are_what_the_stage_says(device: DeviceClient) -> None:
    assert device.facts["echo"]["parts"] == 3
    assert device.alive


async def test_concurrent_calls_get_their_own_answers(device: DeviceClient) -> None:
    answers = await asyncio.gather(*(ask(device, number, number) for number in range(100)))
    assert answers == [[(number, 8.0 * number)] * 3 for number in range(100)]


async def test_a_refusal_concerns_one_call(device: DeviceClient) -> None:
    with pytest.raises(ValueError, match="refused"):
        await ask(device, "refuse")
    assert len(await ask(device, "hello")) == 3


async def test_a_closed_call_is_cancelled_on_the_device(device: DeviceClient) -> None:
    with wave() as waveform:
        async with aclosing(device.call("echo", waveform, "slow")) as outputs:
            await anext(outputs)
    ((cancelled, _), *_) = await ask(device, "cancelled?")  # type: ignore[misc]
    assert len(cancelled) == 1


async def test_a_cancelled_task_is_cancelled_on_the_device(device: DeviceClient) -> None:
    task = asyncio.create_task(ask(device, "slow"))
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    ((cancelled, _), *_) = await ask(device, "cancelled?")  # type: ignore[misc]
    assert len(cancelled) == 1


async def test_a_caller_who_left_before_the_device_looked(device: DeviceClient) -> None:
    """The number of its waveform belongs to a connection by then; only its own call ends."""
    waveform = wave()
    outputs = device.call("echo", waveform, "hello")
    number = int(waveform.ref().path.rpartition("/")[2])
    one, other = socket.socketpair()
    with one, other, remembered_ref(waveform):
        os.dup2(one.fileno(), number)
        with pytest.raises(FileNotFoundError):
            await anext(outputs)
    waveform.close()
    assert len(await ask(device, "hello")) == 3


@contextmanager
def remembered_ref(waveform: SharedWaveform) -> Iterator[None]:
    """The reference as it was when the waveform was whole."""
    ref = waveform.ref()
    waveform.ref = lambda: ref  # type: ignore[method-assign]
    yield


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_messages_of_many_megabytes(loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """More than a socket holds, both ways, while the loop stays free."""

    async def talk() -> None:
        device = DeviceProcess({"echo": EchoStage})
        await device.ready()
        long = "x" * 8_000_000
        ticks = 0

        async def tick() -> None:
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1

        ticking = asyncio.create_task(tick())
        answers = await asyncio.gather(*(ask(device, long) for _ in range(3)), ask(device, "short"))
        ticking.cancel()
        assert [len(answer) for answer in answers] == [3] * 4
        assert answers[0] == [(long, 8.0)] * 3
        assert ticks > 3
        assert device.alive
        await device.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(talk())


async def test_an_empty_waveform(device: DeviceClient) -> None:
    with wave(samples=0) as waveform:
        assert [output async for output in device.call("echo", waveform, 1)] == [(1, 0.0)] * 3


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stage_that_cannot_load(kind: Callable[..., DeviceClient]) -> None:
    device = kind({"echo": broken_stage})
    with pytest.raises(DeviceGone, match="no weights"):
        await device.ready()
    assert not device.alive
    with pytest.raises(DeviceGone):
        await ask(device, 1)
    await device.close()


async def test_a_stage_that_breaks_ends_every_call(device: DeviceClient) -> None:
    slow = asyncio.create_task(ask(device, "slow"))
    await asyncio.sleep(0.05)
    with pytest.raises(DeviceGone, match="broken for good"):
        await ask(device, "break")
    with pytest.raises(DeviceGone):
        await slow
    assert not device.alive


async def test_a_process_that_dies_ends_every_call(process: DeviceProcess) -> None:
    slow = asyncio.create_task(ask(process, "slow"))
    await asyncio.sleep(0.05)
    with pytest.raises(DeviceGone, match="exit code 7"):
        await ask(process, "die")
    with pytest.raises(DeviceGone, match="exit code 7"):
        await slow
    assert not process.alive


async def test_a_killed_process_is_noticed(process: DeviceProcess) -> None:
    slow = asyncio.create_task(ask(process, "slow"))
    await asyncio.sleep(0.05)
    assert process.pid
    os.kill(process.pid, signal.SIGKILL)
    async with asyncio.timeout(2):
        with pytest.raises(DeviceGone, match="-9"):
            await slow


async def test_signals_for_all_do_not_end_the_device(process: DeviceProcess) -> None:
    assert process.pid
    os.kill(process.pid, signal.SIGINT)
    os.kill(process.pid, signal.SIGTERM)
    assert len(await ask(process, "hello")) == 3


async def test_a_hung_process_is_not_alive(process: DeviceProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engine.client._HEARTBEAT_TIMEOUT_SECONDS", 1.5)
    assert process.pid
    os.kill(process.pid, signal.SIGSTOP)
    try:
        await asyncio.sleep(2)
        assert not process.alive
    finally:
        os.kill(process.pid, signal.SIGCONT)
    await asyncio.sleep(1.2)
    assert process.alive


async def test_the_device_ends_when_the_app_is_gone() -> None:
    device = DeviceProcess({"echo": EchoStage})
    await device.ready()
    # What a dying app does to the connection, without dying.
    device._process._frames.close()  # type: ignore[union-attr]
    await asyncio.to_thread(device._process._process.join, 5)  # type: ignore[union-attr]
    assert device._process._process.exitcode == 0  # type: ignore[union-attr]


async def test_close_before_start() -> None:
    await DeviceProcess({"echo": EchoStage}).close()
