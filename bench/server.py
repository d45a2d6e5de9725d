"""A Tinglu server in a process of its own, and requests against it."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import httpx


@dataclass(frozen=True, slots=True)
class Server:
    """Where a running server listens, its process id and how long it took to be ready, in seconds."""

    url: str
    pid: int
    start_seconds: float

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    def resident_mib(self) -> float:
        """Resident memory of the server and all its processes together; shared pages count once (PSS)."""
        return sum(resident_mib(pid) for pid in _family(self.pid))

    def processes(self) -> dict[int, str]:
        """What each of its processes is, by process id: `app`, `device`, `decoder` or `other`."""
        return {pid: "app" if pid == self.pid else _role(pid) for pid in _family(self.pid)}


@contextmanager
def running_server(
    *options: str,
    until: Literal["listening", "ready"] = "ready",
    timeout: float = 300.0,
    environment: Mapping[str, str] | None = None,
    log: Path | None = None,
) -> Iterator[Server]:
    """Start `tinglu serve` on a free port, wait until it listens or can serve, stop it at the end.

    `environment` is set for it on top of our own; what it says goes to `log`.
    """
    port = _free_port()
    command = [sys.executable, "-m", "app.cli", "serve", "--host", "127.0.0.1", "--port", str(port), *options]
    with _running(command, port, environment or {}, until, timeout, log) as server:
        yield server


@contextmanager
def running_fixed_server(
    settings: Mapping[str, str], log: Path | None = None, module: str = "bench.served"
) -> Iterator[Server]:
    """The same over answers of fixed length, with settings of the server by name; what it says goes to `log`."""
    port = _free_port()
    given = {"host": "127.0.0.1", "port": str(port), **settings}
    environment = {f"TINGLU_{name.upper()}": value for name, value in given.items()}
    with _running([sys.executable, "-m", module], port, environment, "ready", 300.0, log) as server:
        yield server


@contextmanager
def _running(
    command: Sequence[str], port: int, environment: Mapping[str, str], until: str, timeout: float, log: Path | None
) -> Iterator[Server]:
    started = time.perf_counter()
    with open(log or os.devnull, "wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env={**os.environ, **environment})
    try:
        url = f"http://127.0.0.1:{port}"
        _wait(url, process, {"ok", "starting"} if until == "listening" else {"ok"}, timeout)
        yield Server(url, process.pid, time.perf_counter() - started)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


async def transcribe_all(url: str, paths: Sequence[Path], concurrency: int) -> tuple[list[str], float]:
    """Texts in order, and wall seconds from the first byte sent to the last answer read."""
    gate = asyncio.Semaphore(concurrency)
    contents = [path.read_bytes() for path in paths]

    async def one(client: httpx.AsyncClient, content: bytes) -> str:
        async with gate:
            response = await client.post(f"{url}/asr", files={"file": content})
        response.raise_for_status()
        return str(response.json()["text"])

    async with httpx.AsyncClient(timeout=600) as client:
        started = time.perf_counter()
        texts = await asyncio.gather(*(one(client, content) for content in contents))
        return texts, time.perf_counter() - started


def _wait(url: str, process: subprocess.Popen[bytes], statuses: set[str], timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with exit code {process.returncode}")
        try:
            if httpx.get(f"{url}/health", timeout=5).json()["status"] in statuses:
                return
        except httpx.TransportError:
            pass
        time.sleep(0.1)
    raise TimeoutError(f"the server was not ready within {timeout:.0f} s")


def resident_mib(pid: int) -> float:
    """Resident memory of one process, its share of what it shares (PSS); 0 if it is gone."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return sum(int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:")) / 1024


def _role(pid: int) -> str:
    """Decoders are limited in memory, and the device is not."""
    if "spawn_main" not in Path(f"/proc/{pid}/cmdline").read_text():
        return "other"
    data = next(line for line in Path(f"/proc/{pid}/limits").read_text().splitlines() if line.startswith("Max data"))
    return "device" if "unlimited" in data else "decoder"


def _family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(member for child in children for member in _family(int(child)))]
