"""Two thousand requests, half of them hostile or cancelled: what is left of memory, tasks and files afterwards."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import websockets

from bench.recordings import DATA
from bench.server import Server, running_server

_CONCURRENCY = 8
_SAMPLES = 40
_LEFT_SECONDS = 10.0
_GOOD = ("file", "language", "verbose", "stream", "socket")
_GAUGES = (
    "tinglu_requests_in_flight",
    "tinglu_waiting_audio_seconds",
    "tinglu_uploads",
    "tinglu_sockets",
    "tinglu_socket_bytes",
)


@dataclass
class Soak:
    """What came of it. `outcomes` counts statuses by kind of request; memory is in MiB, of all processes together."""

    outcomes: Counter[str] = field(default_factory=Counter)
    memory: list[tuple[int, float]] = field(default_factory=list)
    files_before: int = 0
    files_after: int = 0
    left: dict[str, float] = field(default_factory=dict)

    @property
    def slope(self) -> float:
        """MiB a thousand requests, by least squares over the second half: the first warms caches up."""
        points = np.array(self.memory[len(self.memory) // 2 :])
        return float(np.polyfit(points[:, 0], points[:, 1], 1)[0] * 1000)

    @property
    def faults(self) -> dict[str, int]:
        """Outcomes that must not be: faults of the server, and good requests that were not served."""
        parted = {outcome: outcome.split(": ", 1) for outcome in self.outcomes}
        return {
            outcome: self.outcomes[outcome]
            for outcome, (kind, what) in parted.items()
            if what.startswith("50") or (kind in _GOOD and what not in ("200", "ok"))
        }

    def report(self) -> str:
        lines = [f"{outcome:24} {count:6}" for outcome, count in sorted(self.outcomes.items())]
        first, last = self.memory[0][1], self.memory[-1][1]
        lines.append(f"memory {first:.0f} -> {last:.0f} MiB, slope {self.slope:+.2f} MiB per 1000 requests")
        lines.append(f"open files {self.files_before} -> {self.files_after}, left over {self.left}")
        return "\n".join(lines)


async def soak(server: Server, recordings: Sequence[bytes], requests: int, *, seed: int = 0) -> Soak:
    """Send requests of every kind, a few at a time, in an order that the seed decides."""
    result, chance = Soak(), random.Random(seed)
    gate = asyncio.Semaphore(_CONCURRENCY)
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        kinds = _kinds(client, server.url, recordings, chance)
        await asyncio.gather(*(client.post("/asr", files={"file": each}) for each in recordings))
        result.files_before = _open_files(server.pid)

        async def one(number: int) -> None:
            async with gate:
                name = chance.choice(list(kinds))
                result.outcomes[f"{name}: {await kinds[name]()}"] += 1
            if number % max(1, requests // _SAMPLES) == 0:
                result.memory.append((number, server.resident_mib()))

        for start in range(0, requests, 100):
            await asyncio.gather(*(one(number) for number in range(start, min(start + 100, requests))))
        result.left = await _left_over(client)
    result.files_after = _open_files(server.pid)
    return result


def _kinds(
    client: httpx.AsyncClient, url: str, recordings: Sequence[bytes], chance: random.Random
) -> dict[str, Callable[[], Awaitable[str]]]:
    """Kinds of requests by name; each is as likely as any other, so that half are hostile or cancelled."""
    door = "/v1/audio/transcriptions"

    async def post(content: bytes, path: str = "/asr", **fields: str) -> str:
        return str((await client.post(path, files={"file": content}, data=fields)).status_code)

    async def leave(path: str, **fields: str) -> str:
        """Gone after at most a fifth of a second."""
        try:
            await client.post(path, files={"file": chance.choice(recordings)}, data=fields, timeout=chance.random() / 5)
        except httpx.TimeoutException:
            return "left"
        return "done before"

    async def half_a_body() -> str:
        """Announces a megabyte and leaves after a part of it."""
        _, writer = await asyncio.open_connection(*url.removeprefix("http://").split(":"))
        head = "Host: x\r\nContent-Type: multipart/form-data; boundary=x\r\nContent-Length: 1000000"
        writer.write(f"POST /asr HTTP/1.1\r\n{head}\r\n\r\n".encode() + bytes(chance.randrange(100_000)))
        await writer.drain()
        writer.close()
        return "left"

    return {
        "file": lambda: post(chance.choice(recordings)),
        "language": lambda: post(chance.choice(recordings), language="en"),
        "verbose": lambda: post(chance.choice(recordings), door, response_format="verbose_json"),
        "stream": lambda: post(chance.choice(recordings), door, stream="true"),
        "socket": lambda: _round(url, chance.choice(recordings)[44:]),
        "random bytes": lambda: post(chance.randbytes(chance.randrange(100_000))),
        "bad field": lambda: post(b"x", door, response_format="docx"),
        "left": lambda: leave("/asr"),
        "left the stream": lambda: leave(door, stream="true"),
        "half a body": half_a_body,
    }


async def _round(url: str, sound: bytes) -> str:
    async with websockets.connect(url.replace("http", "ws") + "/ws") as client:
        with contextlib.suppress(websockets.ConnectionClosed):
            await client.send("START")
            for start in range(0, len(sound), 32_001):
                await client.send(sound[start : start + 32_001])
            await client.send("STOP")
        answers: list[str] = []
        with contextlib.suppress(websockets.ConnectionClosed):
            while len(answers) < 3:
                answers.append(str(await client.recv()))
        return "ok" if len(answers) == 3 and '"is_final":true' in answers[1] else f"refused {answers[-1:]}"


async def _left_over(client: httpx.AsyncClient) -> dict[str, float]:
    """What the server still counts as under way, once it had time to notice that everybody is gone."""
    for _ in range(int(_LEFT_SECONDS * 10)):
        text = (await client.get("/metrics")).text
        values = {name: _value(text, name) for name in _GAUGES}
        values["tinglu_device_calls"] = _value(text, "tinglu_device_calls")
        if not any(values.values()):
            return {}
        await asyncio.sleep(0.1)
    return {name: value for name, value in values.items() if value}


def _value(metrics: str, name: str) -> float:
    lines = (line for line in metrics.splitlines() if line.partition(" ")[0].partition("{")[0] == name)
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _open_files(pid: int) -> int:
    """Files and sockets of the app process, without connections that clients keep."""
    names = [str(link.readlink()) for link in Path(f"/proc/{pid}/fd").iterdir() if link.is_symlink()]
    return sum(not name.startswith("socket:") for name in names)


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("soak", help="requests of all kinds, and what they leave")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--model", default="whisper-tiny.en")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    contents = [(DATA / f"{name}.wav").read_bytes() for name in ("goforward", "something", "austen-0880")]
    with running_server("--model", arguments.model) as server:
        print(asyncio.run(soak(server, contents, arguments.requests)).report())
