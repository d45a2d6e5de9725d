from __future__ import annotations

import asyncio
from typing import Any

import pytest

from app.admission import Admission
from app.errors import Refusal


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def admission(clock: Clock, requests: int = 4, seconds: float = 100.0) -> Admission:
    return Admission(max_requests=requests, max_audio_seconds=seconds, clock=clock)


def test_the_rate_is_what_was_served_in_busy_time(clock: Clock) -> None:
    queue = admission(clock)
    assert queue.rate == 0
    clock.now = 1000
    with queue.place() as place:
        place.hear(60)
        clock.now += 1
        place.done_until(20)
        assert queue.audio_seconds == 40
        clock.now += 1
        place.done_until(60)
    clock.now += 1000
    assert queue.rate == 30
    assert (queue.requests, queue.audio_seconds) == (0, 0)


def test_what_is_long_ago_counts_less(clock: Clock) -> None:
    queue = admission(clock, seconds=1e9)
    for speed in (1, 50):
        for _ in range(10):
            with queue.place() as place:
                place.hear(100 * speed)
                clock.now += 100
                place.done_until(100 * speed)
    assert queue.rate > 45


@pytest.mark.field("E9")
def test_one_request_too_many(clock: Clock) -> None:
    """E9: the refusal says when one of those that run will be done."""
    queue = admission(clock, requests=2)
    with queue.place() as one, queue.place() as two:
        one.hear(40)
        two.hear(40)
        clock.now += 4
        one.done_until(20)
        with pytest.raises(Refusal, match="2 requests") as refused:
            queue.require()
        assert (refused.value.status, refused.value.code) == (429, "server_busy")
        assert refused.value.retry_after == pytest.approx(60 / 2 / 5)
    queue.require()


def test_too_much_sound(clock: Clock) -> None:
    queue = admission(clock)
    with queue.place() as one:
        one.hear(80)
        with queue.place() as two, pytest.raises(Refusal, match=r"80 s of sound .* 30 s .* 100 s") as refused:
            two.hear(30)
        assert refused.value.retry_after == pytest.approx(1)
        with queue.place() as three:
            three.hear(20)
            with pytest.raises(Refusal, match="100 s of sound"):
                queue.require()
    assert queue.audio_seconds == 0


def test_a_long_recording_that_is_alone_fits(clock: Clock) -> None:
    queue = admission(clock)
    with queue.place() as place:
        place.hear(5000)
        with pytest.raises(Refusal):
            queue.require()
        place.done_until(4950)
        queue.require()


def test_a_place_is_freed_however_the_request_ends(clock: Clock) -> None:
    queue = admission(clock)
    for error in (ValueError, asyncio.CancelledError, KeyboardInterrupt):
        with pytest.raises(error), queue.place() as place:  # noqa: PT012
            place.hear(50)
            place.done_until(10)
            raise error
    assert (queue.requests, queue.audio_seconds) == (0, 0)


def test_rounding_leaves_nothing_behind(clock: Clock) -> None:
    queue = admission(clock)
    for _ in range(100):
        with queue.place() as one, queue.place() as two:
            one.hear(0.1)
            two.hear(1.7)
            for place in (one, two):
                for tenth in range(17):
                    place.done_until(tenth / 9.7)
    assert queue.audio_seconds == 0


def test_the_wait_is_never_absurd(clock: Clock) -> None:
    queue = admission(clock, requests=1, seconds=1e9)
    with queue.place() as place:
        with pytest.raises(Refusal) as refused:
            queue.require()
        assert refused.value.retry_after == 1
        place.hear(1e8)
        with pytest.raises(Refusal) as refused:
            queue.require()
        assert refused.value.retry_after == 600


@pytest.mark.field("E9")
@pytest.mark.parametrize("door", ["/asr", "/v1/audio/transcriptions"])
async def test_a_full_server_refuses_at_once_and_recovers(build: Any, door: str) -> None:
    """E9."""
    async with build(max_requests=2) as house:
        house.device.running.clear()
        running = [asyncio.create_task(house.client.post(door, files=house.recording())) for _ in range(2)]
        for _ in running:
            await house.device.entered.acquire()
        async with asyncio.timeout(1):
            refused = await house.client.post(door, files=house.recording())
        assert refused.status_code == 429
        assert refused.json()["error"]["code"] == "server_busy"
        assert refused.json()["error"]["type"] == "rate_limit_error"
        assert int(refused.headers["retry-after"]) >= 1
        assert len(house.decoder.decoded) == 2
        assert (await house.client.get("/v1/models")).status_code == 200
        house.device.running.set()
        assert [answer.status_code for answer in await asyncio.gather(*running)] == [200, 200]
        assert (await house.client.post(door, files=house.recording())).status_code == 200


async def test_sound_that_does_not_fit(build: Any) -> None:
    async with build(max_waiting_audio_seconds=10) as house:
        house.device.running.clear()
        running = asyncio.create_task(house.client.post("/asr", files=house.recording(1, 8)))
        await house.device.entered.acquire()
        refused = await house.client.post("/asr", files=house.recording(1, 3))
        assert (refused.status_code, refused.json()["error"]["code"]) == (429, "server_busy")
        house.device.running.set()
        assert (await running).status_code == 200
        assert (await house.client.post("/asr", files=house.recording(1, 30))).status_code == 200
        assert house.app.state.services.admission.audio_seconds == 0


async def test_a_stream_holds_its_place_to_its_end(build: Any) -> None:
    async with build(max_requests=1) as house:
        services = house.app.state.services
        for _ in range(3):
            answer = await house.client.post(
                "/v1/audio/transcriptions", files=house.recording(1, 3), data={"stream": "true"}
            )
            assert answer.status_code == 200
            assert services.admission.requests == 0
