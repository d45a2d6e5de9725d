"""Two thousand requests, half of them hostile or cancelled: what is left of memory, tasks, files and calls."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import websockets

from bench.hostile import Hostile, Kind
from bench.recordings import DATA
from bench.server import Server, resident_mib, running_server
from bench.slope import Slope

_CONCURRENCY = 8
_SAMPLES = 80
_LEFT_SECONDS = 20.0
_SERVED_WELL = ("file", "language", "verbose", "stream", "socket")
_UNDER_WAY = (
    "tinglu_requests_in_flight",
    "tinglu_waiting_audio_seconds",
    "tinglu_uploads",
    "tinglu_sockets",
    "tinglu_socket_bytes",
    "tinglu_device_calls",
    "tinglu_device_shows",
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
)
_UPLOAD_GRACE_SECONDS = 5
"""So short that slow uploads are refused within the run."""


@dataclass(frozen=True, slots=True)
class Holdings:
    """What a server holds while nothing is asked of it: open files by process, tasks of the event loop."""

    open_files: dict[str, int]
    tasks: float


@dataclass
class Soak:
    """What came of it. `outcomes` counts answers by kind of request; memory is in MiB by process, over requests."""

    outcomes: Counter[str] = field(default_factory=Counter)
    memory: dict[str, list[tuple[int, float]]] = field(default_factory=lambda: defaultdict(list))
    before: Holdings = Holdings({}, 0)
    after: Holdings = Holdings({}, 0)
    left: dict[str, float] = field(default_factory=dict)
    spooled: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def faults(self) -> dict[str, int]:
        """Outcomes that must not be: faults of the server, requests without an end, good ones that were not served."""
        parted = {outcome: outcome.split(": ", 1) for outcome in self.outcomes}
        return {
            outcome: self.outcomes[outcome]
            for outcome, (kind, what) in parted.items()
            if what.startswith(("5", "hung")) or (kind in _SERVED_WELL and what not in ("200", "ok"))
        }

    @property
    def over(self) -> dict[str, Any]:
        """What is left over; empty is good. A file or a task fewer than before is none."""
        now, then = self.after, self.before
        more = {f"files of {who}": (then.open_files.get(who, 0), n) for who, n in now.open_files.items()}
        over: dict[str, Any] = {what: pair for what, pair in more.items() if pair[1] > pair[0]}
        if now.tasks > then.tasks:
            over["tasks"] = (then.tasks, now.tasks)
        return over | self.left | ({"spooled": self.spooled} if self.spooled else {})

    def slope(self, who: str) -> Slope:
        """MiB a thousand requests over the second half of the run: the first warms caches up."""
        points = self.memory[who]
        return Slope.of([(number / 1000, mib) for number, mib in points[len(points) // 2 :]])

    def report(self) -> str:
        good = sum(n for outcome, n in self.outcomes.items() if outcome.split(": ")[0] in _SERVED_WELL)
        total = self.outcomes.total()
        lines = [f"{outcome:32} {count:6}" for outcome, count in sorted(self.outcomes.items())]
        lines.append(f"{total} requests in {self.seconds:.0f} s, {total - good} hostile or cancelled")
        for who, points in self.memory.items():
            curve = " ".join(f"{mib:.0f}" for _, mib in points[:: max(1, len(points) // 10)])
            lines.append(f"memory of {who}: {curve} -> {points[-1][1]:.0f} MiB; {self.slope(who)}")
        files = ", ".join(f"{who} {n} -> {self.after.open_files.get(who)}" for who, n in self.before.open_files.items())
        lines.append(f"open files: {files}; tasks {self.before.tasks:.0f} -> {self.after.tasks:.0f}")
        lines.append(f"left over: {self.over or 'nothing'}")
        lines.append(f"faults: {self.faults or 'none'}")
        return "\n".join(lines)


async def soak(
    server: Server, recordings: Sequence[bytes], requests: int, *, seed: int = 0, spool: Path | None = None
) -> Soak:
    """Send requests of every kind, a few at a time, in an order that the seed decides; `spool` is where uploads lie."""
    result, chance = Soak(), random.Random(seed)
    began = time.monotonic()
    await _warm_up(server, recordings)
    result.before = await _holdings(server, max)
    spooled = _files_in(spool)
    gate = asyncio.Semaphore(_CONCURRENCY)
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        good = _good(client, server.url, recordings, chance)
        hostile = Hostile(client, server.url, recordings, chance).kinds()

        async def one(number: int) -> None:
            async with gate:
                kinds = good if chance.random() < 0.5 else hostile
                name = chance.choice(list(kinds))
                result.outcomes[f"{name}: {await _outcome(kinds[name])}"] += 1
            if number % max(1, requests // _SAMPLES) == 0:
                for who, mib in _memory(server).items():
                    result.memory[who].append((number, mib))

        for start in range(0, requests, 100):
            await asyncio.gather(*(one(number) for number in range(start, min(start + 100, requests))))
    result.left = await _under_way(server)
    result.after = await _holdings(server, min)
    result.spooled = sorted(_files_in(spool) - spooled)
    result.seconds = time.monotonic() - began
    return result


def _good(client: httpx.AsyncClient, url: str, recordings: Sequence[bytes], chance: random.Random) -> dict[str, Kind]:
    """Requests that must be served, by name."""
    door = "/v1/audio/transcriptions"

    async def post(path: str, **fields: str) -> str:
        answer = await client.post(path, files={"file": chance.choice(recordings)}, data=fields)
        return str(answer.status_code)

    return {
        "file": lambda: post("/asr"),
        "language": lambda: post("/asr", language="en"),
        "verbose": lambda: post(door, response_format="verbose_json"),
        "stream": lambda: post(door, stream="true"),
        "socket": lambda: _round(url, chance.choice(recordings)[44:]),
    }


async def _outcome(kind: Kind) -> str:
    try:
        return await kind()
    except (TimeoutError, httpx.TimeoutException):
        return "hung"
    except (OSError, httpx.TransportError, websockets.WebSocketException) as error:
        return f"broken by {type(error).__name__}"


async def _round(url: str, sound: bytes) -> str:
    async with websockets.connect(url.replace("http", "ws") + "/ws", ping_interval=None) as client:
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


async def _warm_up(server: Server, recordings: Sequence[bytes]) -> None:
    """As many at once as later, so that threads and connections of the server are there."""
    async with httpx.AsyncClient(base_url=server.url, timeout=120) as client:
        files = (recordings[number % len(recordings)] for number in range(_CONCURRENCY))
        await asyncio.gather(*(client.post("/asr", files={"file": file}) for file in files))


async def _under_way(server: Server) -> dict[str, float]:
    """What the server still counts as under way, once it had time to notice that everybody is gone."""
    for _ in range(int(_LEFT_SECONDS * 2)):
        text = await _metrics(server)
        values = {name: value for name in _UNDER_WAY if (value := _value(text, name))}
        if not values:
            return {}
        await asyncio.sleep(0.5)
    return values


async def _holdings(server: Server, which: Callable[..., float]) -> Holdings:
    """When all connections are closed, on both sides. Tasks and files come and go in an idle server, one or two: seen
    for two seconds, before the run the most counts, afterwards the least."""
    files: dict[str, list[int]] = defaultdict(list)
    tasks: list[float] = []
    for _ in range(10):
        for who, number in _open_files(server).items():
            files[who].append(number)
        tasks.append(_value(await _metrics(server), "tinglu_tasks"))
        await asyncio.sleep(0.2)
    return Holdings({who: int(which(numbers)) for who, numbers in files.items()}, which(tasks))


def _open_files(server: Server) -> dict[str, int]:
    """Files, pipes and sockets by what the processes are."""
    files: Counter[str] = Counter()
    for pid, role in server.processes().items():
        files[role] += len(list(Path(f"/proc/{pid}/fd").iterdir()))
    return dict(files)


def _files_in(directory: Path | None) -> set[str]:
    return set() if directory is None else {str(path) for path in directory.rglob("*") if path.is_file()}


async def _metrics(server: Server) -> str:
    async with httpx.AsyncClient(base_url=server.url, timeout=30) as client:
        return (await client.get("/metrics")).text


def _value(metrics: str, name: str) -> float:
    lines = (line for line in metrics.splitlines() if line.partition(" ")[0].partition("{")[0] == name)
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _memory(server: Server) -> dict[str, float]:
    """MiB by what the processes are; those of a kind together."""
    total: dict[str, float] = {}
    for pid, role in server.processes().items():
        total[role] = total.get(role, 0.0) + resident_mib(pid)
    return total


def add_command(commands: Any) -> None:
    parser: argparse.ArgumentParser = commands.add_parser("soak", help="requests of all kinds, and what they leave")
    parser.add_argument("--requests", type=int, default=2000)
    parser.add_argument("--model", default="whisper-tiny.en", help="a name, or a directory")
    parser.add_argument("--random", action="store_true", help="the model has random weights: no self-test")
    parser.add_argument("--log", type=Path, help="where the server's log goes")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    contents = [(DATA / f"{name}.wav").read_bytes() for name in ("goforward", "something", "austen-0880")]
    options = ["--model", arguments.model, "--upload-grace-seconds", str(_UPLOAD_GRACE_SECONDS)]
    options += ["--self-test", "false"] if arguments.random else []
    with (
        tempfile.TemporaryDirectory() as spool,
        running_server(*options, environment={"TMPDIR": spool}, log=arguments.log) as server,
    ):
        print(asyncio.run(soak(server, contents, arguments.requests, spool=Path(spool))).report())
